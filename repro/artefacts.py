"""The tables and figures of the five papers: what proves that we made each, and how
far we got.

An artefact is "done" when all its evidence is there, at the paper's sizes and not
from a stand-in; "reduced", with the reason, when something is smaller or missing;
"not run" when there is none. Nothing is typed: figures and tables are looked up below
results/figures (<name>.svg with <name>.json, or <name>.csv), numbers among the cells
of ours.csv, and what has nothing to compute by its anchor in the source of its page of
the book.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

COLUMNS = [
    "paper",
    "artefact",
    "title",
    "status",
    "reason",
    "tier",
    "data",
    "page",
    "files",
]
TIERS = ("tiny", "small", "paper", "exact")  # worst to best


@dataclass(frozen=True)
class Artefact:
    """One table or figure, and its evidence beside the cells that the
    paper prints there.
    """

    paper: str
    name: str  # as in reported.csv: "Table 5"
    title: str
    page: str = "ledger.html"  # in the built book; its anchor is the slug
    figure: bool = False  # <slug>.svg and .json, anywhere below results/figures
    table: bool = False  # <slug>.csv there
    cells: tuple = ()  # metrics of ours that must be there beside the printed ones
    text: bool = False  # restated on its page, nothing to compute: the anchor is there
    shown: str = ""  # the artefact whose figure shows this one, too

    @property
    def slug(self):
        """The name of its files and its anchor: "fedga-table-5"."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.paper}-{self.name}".lower()).strip(
            "-"
        )

    @property
    def anchor(self):
        """Its place on its page: its slug, or that of the figure that shows it."""
        return Artefact(self.paper, self.shown, "").slug if self.shown else self.slug


def _fedga(page, name, title, **evidence):
    return Artefact("fedga", name, title, f"notebooks/fedga/{page}.html", **evidence)


def _fedas(page, name, title, **evidence):
    return Artefact("fedas", name, title, f"notebooks/fedas/{page}.html", **evidence)


def _plgu(page, name, title, **evidence):
    return Artefact("plgu", name, title, f"notebooks/plgu/{page}.html", **evidence)


def _equfl(page, name, title, **evidence):
    return Artefact("equfl", name, title, f"notebooks/equfl/{page}.html", **evidence)


def _fftgp(page, name, title, **evidence):
    return Artefact("fft-gp", name, title, f"notebooks/fft-gp/{page}.html", **evidence)


_ABC = dict(
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
_RULES = dict(zip("abcd", ("Median", "Trimmed-mean", "Multi-Krum", "DeepSight")))

ARTEFACTS = (
    _fedga(
        "synthetic",
        "Figure 1",
        "Update scale and Gini coefficient fall together",
        figure=True,
        cells=("us_gini_pearson", "us_gini_spearman"),
    ),
    _fedga("theory", "Figure 2", "Workflow of FedGA", figure=True),
    _fedga(
        "synthetic", "Table 1", "Hyper-parameters of the compared methods", table=True
    ),
    _fedga(
        "theory",
        "Section 4.1",
        "What FedGA sends beyond FedAvg",
        cells=("extra_upload_bytes", "model_bytes"),
    ),
    _fedga(
        "theory",
        "Section 4.3",
        "Bounds of the aggregation weights",
        cells=("weight_bound_violations", "alpha_one_deviation"),
    ),
    _fedga(
        "theory", "Section 4.4", "Pairwise differences, Gini and mean: worked example"
    ),
    Artefact("fedga", "Section 5.1", "Settings of the experiments"),
    _fedga("images", "Figure 3", "Worst 10% of the clients, CIFAR-01", figure=True),
    _fedga(
        "images", "Figure 4", "Gini coefficient against FedAvg, CIFAR-01", figure=True
    ),
    _fedga("images", "Table 2", "Standard deviation over clients, CIFAR-01"),
    _fedga(
        "images",
        "Figure 5",
        "Gini curves and their areas, Office-Caltech-10 (AlexNet)",
        figure=True,
    ),
    _fedga(
        "images",
        "Figure 6",
        "Gini against FedAvg by round, Office-Caltech-10 (AlexNet)",
        figure=True,
    ),
    _fedga(
        "images",
        "Figure 7",
        "Accuracy against Gini, Office-Caltech-10 (ResNet18)",
        figure=True,
    ),
    _fedga(
        "images",
        "Figure 8",
        "Training and test accuracy, Office-Caltech-10 (ResNet18)",
        figure=True,
    ),
    _fedga(
        "images",
        "Table 3",
        "Standard deviation over clients, Office-Caltech-10 (ResNet18)",
    ),
    _fedga(
        "synthetic",
        "Figure 9",
        "Accuracy, Gini and standard deviation, Synthetic(0, 0)",
        figure=True,
    ),
    _fedga("synthetic", "Figure 10", "Accuracy by round, Synthetic(0, 0)", figure=True),
    _fedga(
        "synthetic",
        "Figure 11",
        "Gini coefficient by round, Synthetic(0, 0)",
        figure=True,
    ),
    _fedga("synthetic", "Table 4", "Worst 10% of the clients, Synthetic(0, 0)"),
    _fedga(
        "synthetic",
        "Figure 12",
        "Distributions of client accuracy, Synthetic(0.5, 0.5)",
        figure=True,
    ),
    _fedga(
        "synthetic",
        "Figure 13",
        "Top 10% minus bottom 10%, Synthetic(0.5, 0.5)",
        figure=True,
    ),
    _fedga("synthetic", "Table 5", "All methods on Synthetic(0.5, 0.5)"),
    _fedga(
        "synthetic",
        "Figure 14",
        "Densities of client accuracy, Synthetic(1, 1)",
        figure=True,
    ),
    _fedga(
        "synthetic",
        "Figure 15",
        "Four metrics in a radar chart, Synthetic(1, 1)",
        figure=True,
    ),
    _fedga(
        "alpha",
        "Figure 16",
        "Gini coefficient against alpha",
        figure=True,
        cells=("best_gini",),
    ),
    _fedga("images", "Table 6", "With and without delay, Office-Caltech-10"),
    _fedga("synthetic", "Table 7", "With and without delay, CIFAR-01 and Synthetic"),
    _fedga("theory", "Table 8", "Time of the trigger test"),
    Artefact("fedas", "Table 1", "Notation", "notation.html", text=True),
    _fedas(
        "fisher",
        "Figure 1",
        "Inconsistency within a client and between clients: in the diagram of Figure 2",
        figure=True,
        shown="Figure 2",
    ),
    _fedas("fisher", "Figure 2", "A round of FedAS", figure=True),
    _fedas(
        "fisher",
        "Figure 3a",
        "Accuracy after replacing the top 5% and a random 5% of the parameters",
        figure=True,
        cells=("acc_drop_top5_points", "acc_drop_random5_points"),
    ),
    _fedas(
        "fisher",
        "Figure 3b",
        "Fisher trace by round",
        figure=True,
        cells=("trace_rank_correlation",),
    ),
    _fedas(
        "fisher",
        "Figure 4a",
        "Aggregation weights of stragglers and of the others",
        figure=True,
        cells=("trace_stragglers_over_online",),
    ),
    _fedas("ablation", "Figure 4b", "Three ways to align", figure=True),
    _fedas("grid", "Table 2", "Accuracy on CIFAR-100 by skew and participation"),
    _fedas("grid", "Table 3", "Accuracy on CIFAR-10 by skew and participation"),
    _fedas("grid", "Figure 5a", "Accuracy by round, CIFAR-10", figure=True),
    _fedas("grid", "Figure 5b", "Accuracy by round, CIFAR-100", figure=True),
    _fedas("ablation", "Table 4", "Ablation of alignment and synchronisation"),
    _fedas("ablation", "Figure 6a", "Three ways from traces to weights", figure=True),
    _fedas("ablation", "Figure 6b", "CD2-pFed with and without alignment", figure=True),
    _fedas(
        "robust",
        "Figure 7a",
        "Accuracy against the number of local epochs",
        figure=True,
        cells=("top1_acc_pct",),
    ),
    _fedas(
        "robust",
        "Figure 7b",
        "Accuracy against the batch size",
        figure=True,
        cells=("top1_acc_pct",),
    ),
    _plgu(
        "tables",
        "Figure 1",
        "Distribution over clients: who is served badly",
        figure=True,
        cells=("pct_clients_far_below_mean",),
    ),
    _plgu(
        "tables",
        "Figure 1 text",
        "Toy example: clients with poor accuracy",
        shown="Figure 1",
    ),
    _plgu(
        "tables",
        "Figure 1 text (Section 5.1)",
        "Toy example: numbers of the running text",
        shown="Figure 1",
    ),
    _plgu(
        "readings",
        "Figure 2",
        "A round of PLGU-LF, and the scores that it measures",
        figure=True,
    ),
    _plgu("readings", "Figure 3", "A round of PLGU-GRep", figure=True),
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
        "plgu", "Theorem 1", "Generalisation gap of PLGU-LF", "plgu.html", text=True
    ),
    Artefact(
        "plgu", "Theorem 2", "Generalisation gap of PLGU-GRep", "plgu.html", text=True
    ),
    _plgu("tables", "Table 1", "Accuracy of the global model"),
    _plgu("tables", "Table 2", "Accuracy of the personalised model"),
    _plgu("tables", "Section 6.2 text", "Numbers of the running text", shown="Table 1"),
    _plgu(
        "tables",
        "Figure 4",
        "Accuracy by round, three data sets",
        figure=True,
        cells=("early_mean_acc_pct",),
    ),
    _plgu(
        "sweeps",
        "Figure 5",
        "Accuracy against the number of personal layers",
        figure=True,
        cells=("acc_mean_pct",),
    ),
    _plgu(
        "sweeps", "Figure 5 text", "Best number of personal layers", shown="Figure 5"
    ),
    _plgu(
        "tables",
        "Figure 6",
        "Distribution over clients of the three PLGU methods",
        figure=True,
    ),
    _plgu("tables", "Figure 6 text", "The client served worst", shown="Figure 6"),
    _plgu(
        "flatness",
        "Figure 7",
        "Loss landscapes of the global and of personal models",
        figure=True,
        cells=("landscape_area", "lambda_max"),
    ),
    _plgu("sweeps", "Table 3", "Number of local epochs"),
    _plgu("sweeps", "Table 4", "Size of the perturbation"),
    _equfl("tables", "Table I", "Capabilities of the compared methods"),
    _equfl(
        "sweeps",
        "Figure 1",
        "Bias against the share of calibrated rounds",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    _equfl(
        "readings",
        "Figure 2",
        "Time of a run, by method",
        figure=True,
        cells=("seconds_over_fedavg",),
    ),
    _equfl(
        "sweeps",
        "Figure 3",
        "Bias against the strength of the server's update",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    _equfl(
        "sweeps",
        "Figure 4",
        "Bias against the number of synthetic rows",
        figure=True,
        cells=("EO", "DP", "CAL", "CON"),
    ),
    _equfl(
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
    *(_equfl("tables", f"Table II({k})", f"Bias scores, {d}") for k, d in _ABC.items()),
    *(
        _equfl("tables", f"Table III({k})", f"Accuracy of the global model, {d}")
        for k, d in _ABC.items()
    ),
    *(
        _equfl("rules", f"Table IV({k})", f"Aggregation by {r}")
        for k, r in _RULES.items()
    ),
    _equfl("rules", "Table V(a)", "Two labels per client"),
    _equfl("rules", "Table V(b)", "Three labels per client"),
    _equfl("tables", "Table VI", "Transfer between fairness metrics"),
    _equfl("rules", "Table VII", "Network of the server"),
    _equfl("rules", "Table VIII", "Which global models the server collects"),
    _equfl("rules", "Table IX", "Against a regulariser at the clients"),
    _equfl("rules", "Table X", "Several fairness metrics at once"),
    _equfl("readings", "Table XI", "Storage at the server"),
    _equfl(
        "private",
        "Table XII",
        "Bias scores under differential privacy",
        cells=("epsilon",),
    ),
    _equfl("private", "Table XIII", "Accuracy under differential privacy"),
    _equfl("readings", "text V-C", "Numbers of the running text, experiments"),
    _equfl("readings", "text VI", "Numbers of the running text, discussion"),
    _equfl("readings", "text settings", "Settings of the experiments"),
    Artefact(
        "fft-gp",
        "Figure 1",
        "Cross-silo federated learning",
        "domains.html",
        figure=True,
    ),
    Artefact(
        "fft-gp", "Method", "The cycle of four steps", "domains.html", figure=True
    ),
    _fftgp("tables", "Table 2", "Local models on their own domain"),
    _fftgp("tables", "Table 3", "Global model on the domain left out"),
    *(
        _fftgp(
            "fairness",
            f"Figure 6({k})",
            f"Fairness of three aggregation rules by round, {d}",
            figure=True,
            cells=("gap_std_val", "gap_std_test"),
        )
        for k, d in zip("abcd", ("PACS", "VLCS", "OfficeHome", "TerraInc"))
    ),
    _fftgp(
        "foundation",
        "Foundation models",
        "FedCLIP and PromptFL beside a frozen CLIP",
        figure=True,
        cells=("in_domain_acc_pct", "out_of_domain_acc_pct", "bytes_up"),
    ),
)


def names(reported):
    """Paper -> the artefacts it may have:
    those of the list above and those of reported.csv.
    """
    found = {p: set(g) for p, g in reported.groupby("paper").artefact}
    for a in ARTEFACTS:
        found.setdefault(a.paper, set()).add(a.name)
    return found


def _look(artefact, printed, ours, root):
    """Evidence there and not there -> files, missing, tiers, kinds of data."""
    files, missing, tiers, kinds = [], [], set(), set()
    for wanted, end, what in (
        (artefact.figure, "svg", "figure"),
        (artefact.table, "csv", "table"),
    ):
        found = (
            sorted((root / "figures").rglob(f"{artefact.anchor}.{end}"))
            if wanted
            else ()
        )
        files += [path.relative_to(root).as_posix() for path in found]
        if wanted and not found:
            missing.append(f"the {what}")
        for about in (path.with_suffix(".json") for path in found if end == "svg"):
            facts = (
                json.loads(about.read_text(encoding="utf-8")) if about.exists() else {}
            )
            if facts.get("tier") not in TIERS or not facts.get("data"):
                raise ValueError(
                    f"{about}: save the figure with plots.save, with its tier and data"
                )
            tiers.add(facts["tier"])
            kinds.add("stand-in" if "stand-in" in facts["data"] else "")
    if artefact.text:
        source = (root.resolve().parent / "book" / artefact.page).with_suffix(".md")
        if source.exists() and f"({artefact.anchor})=" in source.read_text(
            encoding="utf-8"
        ):
            files.append(f"../book/{source.name}")
            tiers.add("exact")
    mine = ours[(ours.paper == artefact.paper) & (ours.artefact == artefact.name)]
    have = int(printed.key.isin(mine.key).sum())
    if have < len(printed):
        missing.append(f"{len(printed) - have} of {len(printed)} numbers")
    missing += [f"the number {m}" for m in artefact.cells if m not in set(mine.metric)]
    if len(mine):
        files.append("ours.csv")
    return files, missing, tiers | set(mine.tier), kinds | set(mine.data)


def table(reported, ours, root="results"):
    """artefacts.csv: one row per artefact with its status -> frame
    [artefacts, COLUMNS]. ours: one row per key."""
    rows, root = [], Path(root)
    for a in ARTEFACTS:
        printed = reported[(reported.paper == a.paper) & (reported.artefact == a.name)]
        files, missing, tiers, kinds = _look(a, printed, ours, root)
        lowest = min(tiers, key=TIERS.index, default="")
        reasons = missing and [f"missing: {', '.join(missing)}"]
        if lowest in ("tiny", "small"):
            reasons = [*reasons, f"sizes of tier {lowest}"]
        if "stand-in" in kinds:
            reasons = [*reasons, "stand-in data"]
        status = "not run" if not files else "reduced" if reasons else "done"
        page = f"{a.page}#{a.anchor}" if "/" in a.page or a.text else a.page
        rows.append(
            (
                a.paper,
                a.name,
                a.title,
                status,
                "; ".join(reasons) if files else "",
                lowest,
                ", ".join(sorted(kinds - {""})),
                page,
                " ".join(files),
            )
        )
    return pd.DataFrame(rows, columns=COLUMNS)
