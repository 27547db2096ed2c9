"""The tables and figures of EquFL's paper, and what proves that we made each; listed
by repro.artefacts.
"""

from __future__ import annotations

from repro.artefacts import Artefact


def drawn(notebook, name, title, **evidence):
    """An artefact that a notebook of notebooks/equfl draws."""
    page = f"notebooks/equfl/{notebook}.html"
    return Artefact("equfl", name, title, page, **evidence)


DATASETS = dict(
    zip(
        "abcdef",
        (
            "Income-Sex",
            "Employment-Sex",
            "Health-Sex",
            "Income-Race",
            "MNIST",
            "CIFAR-10",
        ),
    )
)
RULES = dict(zip("abcd", ("Median", "Trimmed-mean", "Multi-Krum", "DeepSight")))


ARTEFACTS = (
    drawn("tables", "Table I", "Capabilities of the compared methods"),
    drawn(
        "sweeps",
        "Figure 1",
        "Bias against the share of calibrated rounds",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    drawn(
        "readings",
        "Figure 2",
        "Time of a run, by method",
        figure=True,
        cells=("seconds_over_fedavg",),
    ),
    drawn(
        "sweeps",
        "Figure 3",
        "Bias against the strength of the server's update",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    drawn(
        "sweeps",
        "Figure 4",
        "Bias against the number of synthetic rows",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    drawn(
        "sweeps",
        "Figure 5",
        "Bias against the number of clients",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    Artefact(
        "equfl",
        "Algorithm 1",
        "Synthetic rows by matching the trail of the models",
        "equfl.html",
        text=True,
    ),
    Artefact("equfl", "Algorithm 2", "EquFL", "equfl.html", text=True),
    Artefact(
        "equfl", "Theorem 1", "Convergence to FedAvg's optimum", "equfl.html", text=True
    ),
    Artefact(
        "equfl",
        "Theorem 2",
        "A lower fairness loss than FedAvg's",
        "equfl.html",
        text=True,
    ),
    *(
        drawn("tables", f"Table II({k})", f"Bias scores, {d}")
        for k, d in DATASETS.items()
    ),
    *(
        drawn("tables", f"Table III({k})", f"Accuracy of the global model, {d}")
        for k, d in DATASETS.items()
    ),
    *(
        drawn("rules", f"Table IV({k})", f"Aggregation by {r}")
        for k, r in RULES.items()
    ),
    drawn("rules", "Table V(a)", "Two labels per client"),
    drawn("rules", "Table V(b)", "Three labels per client"),
    drawn("tables", "Table VI", "Transfer between fairness metrics"),
    drawn("rules", "Table VII", "Network of the server"),
    drawn("rules", "Table VIII", "Which global models the server collects"),
    drawn("rules", "Table IX", "Against a regulariser at the clients"),
    drawn("rules", "Table X", "Several fairness metrics at once"),
    drawn("readings", "Table XI", "Storage at the server"),
    drawn(
        "private",
        "Table XII",
        "Bias scores under differential privacy",
        cells=("epsilon",),
    ),
    drawn("private", "Table XIII", "Accuracy under differential privacy"),
    drawn("readings", "text V-C", "Numbers of the running text, experiments"),
    drawn("readings", "text VI", "Numbers of the running text, discussion"),
    drawn("readings", "text settings", "Settings of the experiments"),
)
