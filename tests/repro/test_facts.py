"""What the data cards say of clients, and the page about queries of the audit."""

import pandas as pd

from repro import facts


def test_people_who_are_asked_twice_are_listed_once(tmp_path):
    row = {"paper": "equfl", "label": "census", "clients": 51, "rows_least": 28}
    row |= {"rows_median": 139.0, "rows_most": 537, "test_median": 132.6}
    row |= {"classes": "2 of 2", "largest": 75.4, "gate": 0.9}
    two = [row | {"dataset": name} for name in ("Income-Sex", "Income-Race")]
    pd.DataFrame(two).to_csv(tmp_path / "gates.csv", index=False)
    (shown,) = facts.clients(tmp_path).values.tolist()
    assert shown == ["EquFL", "census", 51, 28, 139, 537, 133, "2 of 2", 75]


def test_runs_that_were_computed_again_are_counted_by_paper(tmp_path):
    found = [("fedga/main", "same", 0), ("fedga/main", "rounding", 0.5)]
    found += [("fedga/sweep", "rounding", 0.7), ("fft-gp/steps", "DIFFERS", 12.3456)]
    two = ["study", "verdict", "points"]
    pd.DataFrame(found, columns=two).to_csv(tmp_path / "audit-gpu.csv", index=False)
    shown = facts.audits(tmp_path).set_index("paper")
    assert shown.loc["FedGA"].tolist() == [3, 1, 2, 0, "0.6", "0.7"]
    assert shown.loc["FFT-GP"].tolist() == [1, 0, 0, 1, "12.3", "12.3"]
    assert shown.loc["PLGU"].tolist() == [0, 0, 0, 0, "", ""]
