"""What the code of a method does not say by itself: whom it favours, in a phrase, and
the settings at which it is another method. The book's map of methods prints both, and
tests/oracles/test_limits.py computes every limit.

A method that is not named here, such as one of another package, has neither.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Limit:
    """`method` with these settings computes what the method `gives` computes."""

    method: str
    at: dict[str, Any]
    gives: str
    words: str = ""  # for readers; "": the settings as they stand
    both: dict[str, Any] = field(default_factory=dict)  # settings that the two share
    unlike: dict[str, Any] = field(default_factory=dict)  # with these it differs
    rounds: int = 4  # for so long
    # the models compared: what this one serves, and what the other one does
    views: tuple[str, str] | None = None  # None: the models that the servers send

    @property
    def said(self) -> str:
        """The settings for readers, as "mu = 0"."""
        return self.words or ", ".join(f"{k} = {v}" for k, v in self.at.items())


PERSONAL = ("personal", "personal")
LIMITS = (
    Limit("FedProx", {"mu": 0}, "FedAvg"),
    Limit("FedProx-P", {"mu": 0}, "FedAvg-P"),
    Limit("FedProx-FT", {"mu": 0}, "FedAvg-FT"),
    Limit("MOON", {"mu": 0}, "FedAvg"),
    Limit(
        "FedAvg-FT",
        {"tune": 0},
        "FedAvg",
        "tune = 0, its tuned model",
        views=("tuned", "global"),
    ),
    # drift
    Limit("SCAFFOLD", {}, "Uniform", "in its first round", rounds=1),
    Limit(
        "FedNova",
        {},
        "FedAvg",
        "the same number of local steps everywhere",
        both={"batches": 3},
    ),
    Limit("FedAvgM", {"beta": 0}, "FedAvg"),
    Limit(
        "FedAdagrad",
        {"tau": 1e6, "server_lr": 2e6},
        "FedAvg",
        "tau large, server_lr = 2 tau",
    ),
    Limit(
        "FedYogi",
        {"beta1": 0, "tau": 1e6, "server_lr": 2e6},
        "FedAvg",
        "beta1 = 0, tau large, server_lr = 2 tau",
    ),
    # fair
    Limit("q-FedAvg", {"q": 0}, "Uniform"),
    Limit("AFL", {"gamma": 0}, "Uniform"),
    Limit("FedFV", {"alpha": 1}, "Uniform"),
    Limit(
        "FedGini",
        {"epsilon": 1},
        "Uniform",
        unlike={"epsilon": 0, "W": 1, "theta": 1e9},
    ),
    Limit(
        "FedGA",
        {"alpha": 1, "delayed": False},
        "Uniform",
        "alpha = 1, after its trigger",
    ),
    Limit("FedGA", {}, "FedAvg", "before its trigger", unlike={"delayed": False}),
    Limit("FedGA_ablation", {"alpha": 1}, "Uniform"),
    Limit("TERM", {"tilt": 0}, "FedAvg"),
    # personal
    Limit("Ditto", {"lam": 0}, "Local", "lam = 0, its personal model", views=PERSONAL),
    Limit(
        "APFL",
        {"alpha": 0, "adapt": False},
        "FedAvg",
        "alpha = 0 and not learned, its personal model",
        views=("personal", "global"),
    ),
    Limit("FedALA", {"eta": 0}, "FedAvg"),
    Limit(
        "CD2-pFed",
        {"p": 0, "lam": 0},
        "FedAvg",
        views=("personal", "global"),
    ),
    Limit("FedAS", {"align": "none", "by": "size"}, "FedPer-online"),
    Limit("FedAS-parallel", {"lam": 0, "by": "size"}, "FedPer-online"),
    # flat
    Limit("FedSAM", {"rho": 1e-9}, "FedAvg", "rho towards 0"),
    Limit("PLGU-LF", {"perturb": "none"}, "FedAvg", "perturb = none, its common model"),
    Limit(
        "PLGU-LF",
        {"uniform": True, "direction": "w"},
        "FedSAM",
        "uniform = True and direction = w, its common model",
    ),
    Limit(
        "PLGU-GRep",
        {"perturb": "none"},
        "FedRep-2x",
        "perturb = none, as many head_epochs",
        both={"head_epochs": 5},
    ),
    # groups
    Limit("FLinear", {"tau": 1}, "FedAvg"),
    Limit("FairFed", {"beta": 0}, "Reweight"),
    Limit("FairFed", {"beta": 0, "debias": False}, "FedAvg"),
    Limit("FedFB", {"alpha": 0}, "FedAvg"),
    Limit("Regular", {"mu": 0}, "FedAvg"),
    Limit("EquFL", {"lam": 0}, "FedAvg"),
    Limit("Gaussian-update", {"lam": 0}, "FedAvg"),
    Limit("Uniform-update", {"lam": 0}, "FedAvg"),
    # domains
    Limit("GA", {"step_size": 0}, "Uniform"),
    Limit("FAA", {"eta": 0}, "Uniform"),
    Limit("FAA-lagged", {"eta": 0}, "Uniform"),
    Limit("FFT-GP", {"meta": "none"}, "FAA"),
    Limit("FFT-GP", {"meta": "none", "eta": 0}, "Uniform"),
    Limit("FFT-GP-lagged", {"meta": "none"}, "FAA-lagged"),
)

OWN = "each client, by a model of its own"
DELAYED = "clients with many rows; once it is on, those it serves badly"
FAVOURS = {
    "FedAvg": "clients with many rows",
    "Uniform": "no client: each counts once",
    "FedProx": "clients with many rows",
    "MOON": "clients with many rows",
    "Local": "clients with enough rows to train alone",
    "Centralised": "no client: each row counts once",
    "FedAvg-P": OWN,
    "FedProx-P": OWN,
    "FedAvg-FT": OWN,
    "FedProx-FT": OWN,
    "SCAFFOLD": "no client: each counts once, with the drift taken out",
    "FedDyn": "no client: each counts once, with the drift taken out",
    "FedNova": "clients with many rows, not those with many steps",
    "FedAvgM": "clients with many rows",
    "FedAdagrad": "clients with many rows",
    "FedAdam": "clients with many rows",
    "FedYogi": "clients with many rows",
    "q-FedAvg": "clients with a large loss",
    "AFL": "the clients with the largest losses",
    "TERM": "clients with a large loss, and those with many rows",
    "FedFa": "clients with a low accuracy, and those that take part often",
    "FedMGDA+": "no client: a step meant to harm none",
    "FedFV": "clients with the largest losses: their updates stay as they are",
    "FedGini": "no client; once it is on, those with a large loss",
    "FedGA": DELAYED,
    "FedGA_ablation": "clients with a low accuracy",
    "Ditto": OWN,
    "APFL": OWN,
    "pFedMe": OWN,
    "PerFedAvg": OWN,
    "FedPer": OWN,
    "FedPer-online": OWN,
    "FedRep": OWN,
    "FedRep-2x": OWN,
    "LG-FedAvg": OWN,
    "FedBABU": OWN,
    "FedBN": OWN,
    "FedProto": OWN,
    "FedALA": OWN,
    "FedPAC": OWN,
    "CD2-pFed": OWN,
    "pFedHN": OWN,
    "pFedHN-chunked": OWN,
    "FedAS": "each, by a model of its own; in its body, a large Fisher trace",
    "FedAS-parallel": "each, by a model of its own; in its body, a large Fisher trace",
    "FedAS-global": "each, by a model of its own; in its body, a large Fisher trace",
    "FedAS-chained": "each, by a model of its own; in its body, a large Fisher trace",
    "FedSAM": "clients with many rows",
    "PLGU-LF": OWN,
    "PLGU-GRep": OWN,
    "PLGU-GHN": OWN,
    "Blind": "no group: the column that names it is hidden",
    "FLinear": "no group: its linear traces leave the inputs",
    "Reweight": "no group: row weights make group and label independent",
    "FairFed": "clients whose gap between groups is like that of all",
    "FedFB": "the group with the larger loss",
    "Regular": "the group at a disadvantage by the chosen bias score",
    "EquFL": "the group at a disadvantage by the chosen bias score",
    "Gaussian-update": "nobody: noise",
    "Uniform-update": "nobody: noise",
    "GA": "domains that the average harms most",
    "GRACE": "domains whose updates agree with the others",
    "FAA": "domains that the average harms most",
    "FAA-lagged": "domains that the average harms most",
    "FFT-GP": "domains that the average harms most",
    "FFT-GP-lagged": "domains that the average harms most",
    "FFT-GP-beside": "domains that the average harms most",
    "FedCLIP": "no client: each counts once",
    "PromptFL": "no client: each counts once",
}
