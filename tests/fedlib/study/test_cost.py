"""Costs of a round: the bytes are those of the messages, and a method that does more
takes longer than nothing.
"""

from fedlib.study import cost, studies


def test_bytes_of_a_round_on_the_digits():
    t = cost.costs(
        "fedas",
        "digits",
        "digits",
        1,
        ("FedAvg", "FedPer", "FedAS", "LG-FedAvg", "Local", "FedProto"),
    )
    body = 4 * (64 * 64 + 64 + 64 * 32 + 32)  # two hidden layers
    head = 4 * (32 * 10 + 10)
    up = t.bytes_up
    # + the number of rows
    assert up["FedAvg"] == body + head + 4 and t.bytes_down["FedAvg"] == body + head
    assert (
        up["FedPer"] == body + 4
        and up["FedAS"] == body + 8
        and up["LG-FedAvg"] == head + 4
    )
    assert up["Local"] == 4 and t.bytes_down["Local"] == 0
    assert up["FedProto"] == 4 * (10 * 32 + 10)
    assert (t.seconds_over_fedavg > 0).all()


def test_rows_carry_every_repetition():
    t = cost.costs("fedas", "digits", "digits", 2, ["FedPer"])
    rows = cost.rows(t, "fedas", "digits", "real", "tiny")
    assert rows.metric.value_counts().to_dict() == {
        "seconds_over_fedavg": 2,
        "bytes_up": 1,
        "bytes_down": 1,
    }
    assert rows[rows.metric == "seconds_over_fedavg"].value.tolist() == t.ratios.iloc[0]


def test_gradients_are_counted_where_they_are_taken():
    cells, _, _ = studies.cells("plgu", "tables", tier="small")
    n = {
        c.method: cost.gradients(c)
        for c in cells
        if c.dataset == "digits" and c.seed == 0 and c.setting == "C=10"
    }
    batches = 15  # three of ten rows in each of five epochs
    assert n["FedAvg"] == n["Local"] == n["pFedHN"] == batches
    assert (
        n["FedSAM"]
        == n["Ditto"]
        == n["PLGU-LF"]
        == n["PLGU-GHN"]
        == n["pFedMe"]
        == 2 * batches
    )
    assert (n["FedRep"], n["FedRep-2x"], n["PLGU-GRep"]) == (
        batches + 3,
        batches + 6,
        batches + 6,
    )
