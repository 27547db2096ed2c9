"""The tests of FedAS's claims that follow no pattern; claims.yaml names them."""

from repro.claims import best, better, every, printed, ranked, throughout

ACC = "top1_acc_pct"


def cells(place):
    """The settings, as "beta=0.1;P=0.2", that Tables 2 and 3 print of FedAS."""
    of = {"dataset": place, "artefact": ("Table 2", "Table 3")}
    return list(printed("fedas", method="FedAS", **of).setting)


def best_everywhere(place, rivals):
    """FedAS is better than every rival in each cell of the tables."""
    one = lambda s: best(ACC, place, rivals, "FedAS", setting=s)
    return throughout({s: one(s) for s in cells(place)})


def average_rank(places, rivals):
    """FedAS ranks first over all cells of the tables."""
    every_cell = [(p, s) for p in places for s in cells(p)]
    return ranked(ACC, every_cell, (*rivals, "FedAS"), "FedAS")


def loses_little_at_each_skew(place, least):
    """From all clients online to the fewest, FedAS loses no more, whatever the skew."""
    skews = {}
    for setting in cells(place):  # of each skew, fewest clients first
        run = {"method": "FedAS", "setting": setting}
        skews.setdefault(setting.partition(";")[0], []).append(run)
    return every(*(better(ACC, place, x[0], x[-1], least) for x in skews.values()))
