"""The tables and figures of FedAS's paper, and what proves that we made each; listed
by repro.artefacts.
"""

from __future__ import annotations

from repro.artefacts import Artefact


def drawn(notebook, name, title, **evidence):
    """An artefact that a notebook of notebooks/fedas draws."""
    page = f"notebooks/fedas/{notebook}.html"
    return Artefact("fedas", name, title, page, **evidence)


ARTEFACTS = (
    Artefact("fedas", "Table 1", "Notation", "notation.html", text=True),
    drawn(
        "fisher",
        "Figure 1",
        "Inconsistency within a client and between clients: in the diagram of Figure 2",
        figure=True,
        shown="Figure 2",
    ),
    drawn("fisher", "Figure 2", "A round of FedAS", figure=True),
    drawn(
        "fisher",
        "Figure 3a",
        "Accuracy after replacing the top 5% and a random 5% of the parameters",
        figure=True,
        cells=("acc_drop_top5_points", "acc_drop_random5_points"),
    ),
    drawn(
        "fisher",
        "Figure 3b",
        "Fisher trace by round",
        figure=True,
        cells=("trace_rank_correlation",),
    ),
    drawn(
        "fisher",
        "Figure 4a",
        "Aggregation weights of stragglers and of the others",
        figure=True,
        cells=("trace_stragglers_over_online",),
    ),
    drawn("ablation", "Figure 4b", "Three ways to align", figure=True),
    drawn("grid", "Table 2", "Accuracy on CIFAR-100 by skew and participation"),
    drawn("grid", "Table 3", "Accuracy on CIFAR-10 by skew and participation"),
    drawn("grid", "Figure 5a", "Accuracy by round, CIFAR-10", figure=True),
    drawn("grid", "Figure 5b", "Accuracy by round, CIFAR-100", figure=True),
    drawn("ablation", "Table 4", "Ablation of alignment and synchronisation"),
    drawn("ablation", "Figure 6a", "Three ways from traces to weights", figure=True),
    drawn("ablation", "Figure 6b", "CD2-pFed with and without alignment", figure=True),
    drawn(
        "robust",
        "Figure 7a",
        "Accuracy against the number of local epochs",
        figure=True,
        cells=("top1_acc_pct",),
    ),
    drawn(
        "robust",
        "Figure 7b",
        "Accuracy against the batch size",
        figure=True,
        cells=("top1_acc_pct",),
    ),
)
