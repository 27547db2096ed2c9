"""At which value each rival of EquFL runs in its tables: chosen on pilot seeds.

The study `grid` runs FedAvg and every value of every rival on the same pilots, all at
the step that the paper states. On each task the fairest value wins, by the rule "fair"
of repro/winners.py, on test rows, since none were held out there.

A test compares the winners with the values in studies.yaml, and with the regulariser's
in claims.yaml.
"""

from fedlib.methods.search import best
from repro import papers
from repro.winners import fairness, point


def chosen(method, grid):
    """{task: {hyper-parameter: value}} of a rival; grid: the Study."""
    level = fairness(grid.biases((papers.about("equfl")["rule"],)))
    mine = level.xs(method, level="method").groupby("dataset", sort=False)
    return {
        task: point(grid, method, task, *best(of.droplevel(0))) for task, of in mine
    }
