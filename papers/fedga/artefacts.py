"""The tables and figures of FedGA's paper, and what proves that we made each; listed
by repro.artefacts.
"""

from __future__ import annotations

from repro.artefacts import Artefact


def drawn(notebook, name, title, **evidence):
    """An artefact that a notebook of notebooks/fedga draws."""
    page = f"notebooks/fedga/{notebook}.html"
    return Artefact("fedga", name, title, page, **evidence)


ARTEFACTS = (
    drawn(
        "synthetic",
        "Figure 1",
        "Update scale and Gini coefficient fall together",
        figure=True,
        cells=("us_gini_pearson", "us_gini_spearman"),
    ),
    drawn("theory", "Figure 2", "Workflow of FedGA", figure=True),
    drawn(
        "synthetic", "Table 1", "Hyper-parameters of the compared methods", table=True
    ),
    drawn(
        "theory",
        "Section 4.1",
        "What FedGA sends beyond FedAvg",
        cells=("extra_upload_bytes", "model_bytes"),
    ),
    drawn(
        "theory",
        "Section 4.3",
        "Bounds of the aggregation weights",
        cells=("weight_bound_violations", "alpha_one_deviation"),
    ),
    drawn(
        "theory", "Section 4.4", "Pairwise differences, Gini and mean: worked example"
    ),
    Artefact("fedga", "Section 5.1", "Settings of the experiments"),
    drawn("images", "Figure 3", "Worst 10% of the clients, CIFAR-01", figure=True),
    drawn(
        "images", "Figure 4", "Gini coefficient against FedAvg, CIFAR-01", figure=True
    ),
    drawn("images", "Table 2", "Standard deviation over clients, CIFAR-01"),
    drawn(
        "images",
        "Figure 5",
        "Gini curves and their areas, Office-Caltech-10 (AlexNet)",
        figure=True,
    ),
    drawn(
        "images",
        "Figure 6",
        "Gini against FedAvg by round, Office-Caltech-10 (AlexNet)",
        figure=True,
    ),
    drawn(
        "images",
        "Figure 7",
        "Accuracy against Gini, Office-Caltech-10 (ResNet18)",
        figure=True,
    ),
    drawn(
        "images",
        "Figure 8",
        "Training and test accuracy, Office-Caltech-10 (ResNet18)",
        figure=True,
    ),
    drawn(
        "images",
        "Table 3",
        "Standard deviation over clients, Office-Caltech-10 (ResNet18)",
    ),
    drawn(
        "synthetic",
        "Figure 9",
        "Accuracy, Gini and standard deviation, Synthetic(0, 0)",
        figure=True,
    ),
    drawn("synthetic", "Figure 10", "Accuracy by round, Synthetic(0, 0)", figure=True),
    drawn(
        "synthetic",
        "Figure 11",
        "Gini coefficient by round, Synthetic(0, 0)",
        figure=True,
    ),
    drawn("synthetic", "Table 4", "Worst 10% of the clients, Synthetic(0, 0)"),
    drawn(
        "synthetic",
        "Figure 12",
        "Distributions of client accuracy, Synthetic(0.5, 0.5)",
        figure=True,
    ),
    drawn(
        "synthetic",
        "Figure 13",
        "Top 10% minus bottom 10%, Synthetic(0.5, 0.5)",
        figure=True,
    ),
    drawn("synthetic", "Table 5", "All methods on Synthetic(0.5, 0.5)"),
    drawn(
        "synthetic",
        "Figure 14",
        "Densities of client accuracy, Synthetic(1, 1)",
        figure=True,
    ),
    drawn(
        "synthetic",
        "Figure 15",
        "Four metrics in a radar chart, Synthetic(1, 1)",
        figure=True,
    ),
    drawn(
        "alpha",
        "Figure 16",
        "Gini coefficient against alpha",
        figure=True,
        cells=("best_gini",),
    ),
    drawn("images", "Table 6", "With and without delay, Office-Caltech-10"),
    drawn("synthetic", "Table 7", "With and without delay, CIFAR-01 and Synthetic"),
    drawn("theory", "Table 8", "Time of the trigger test"),
)
