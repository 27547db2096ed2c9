"""What the data cards say of clients."""

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
