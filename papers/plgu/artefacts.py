"""The tables and figures of PLGU's paper, and what proves that we made each; listed
by repro.artefacts.
"""

from __future__ import annotations

from repro.artefacts import Artefact


def drawn(notebook, name, title, **evidence):
    """An artefact that a notebook of notebooks/plgu draws."""
    page = f"notebooks/plgu/{notebook}.html"
    return Artefact("plgu", name, title, page, **evidence)


ARTEFACTS = (
    drawn(
        "tables",
        "Figure 1",
        "Distribution over clients: who is served badly",
        figure=True,
        cells=("pct_clients_far_below_mean",),
    ),
    drawn(
        "tables",
        "Figure 1 text",
        "Toy example: clients with poor accuracy",
        shown="Figure 1",
    ),
    drawn(
        "tables",
        "Figure 1 text (Section 5.1)",
        "Toy example: numbers of the running text",
        shown="Figure 1",
    ),
    drawn(
        "readings",
        "Figure 2",
        "A round of PLGU-LF, and the scores that it measures",
        figure=True,
    ),
    drawn("readings", "Figure 3", "A round of PLGU-GRep", figure=True),
    Artefact(
        "plgu",
        "Algorithm 1",
        "Local step with two gradients a batch",
        "plgu.html",
        text=True,
    ),
    Artefact("plgu", "Algorithm 2", "PLGU-LF", "plgu.html", text=True),
    Artefact("plgu", "Algorithm 3", "PLGU-GRep", "plgu.html", text=True),
    Artefact(
        "plgu",
        "Theorem 1",
        "Generalisation gap of PLGU-LF",
        "plgu_record.html",
        text=True,
    ),
    Artefact(
        "plgu",
        "Theorem 2",
        "Generalisation gap of PLGU-GRep",
        "plgu_record.html",
        text=True,
    ),
    drawn("tables", "Table 1", "Accuracy of the global model"),
    drawn("tables", "Table 2", "Accuracy of the personalised model"),
    drawn("tables", "Section 6.2 text", "Numbers of the running text", shown="Table 1"),
    drawn(
        "tables",
        "Figure 4",
        "Accuracy by round, three data sets",
        figure=True,
        cells=("early_mean_acc_pct",),
    ),
    drawn(
        "sweeps",
        "Figure 5",
        "Accuracy against the number of personal layers",
        figure=True,
        cells=("acc_mean_pct",),
    ),
    drawn(
        "sweeps", "Figure 5 text", "Best number of personal layers", shown="Figure 5"
    ),
    drawn(
        "tables",
        "Figure 6",
        "Distribution over clients of the three PLGU methods",
        figure=True,
    ),
    drawn("tables", "Figure 6 text", "The client served worst", shown="Figure 6"),
    drawn(
        "flatness",
        "Figure 7",
        "Loss landscapes of the global and of personal models",
        figure=True,
        cells=("landscape_area", "lambda_max"),
    ),
    drawn("sweeps", "Table 3", "Number of local epochs"),
    drawn("sweeps", "Table 4", "Size of the perturbation"),
)
