"""What the code of a method does not say by itself: whom it favours, in a phrase, and
the settings at which it is another method. The book's map of methods prints both, and
tests/oracles/test_limits.py computes every limit.

A method that is not named here, such as one of another package, has neither.
"""

from typing import NamedTuple


class Limit(NamedTuple):
    """`method` with the settings `at` computes what the method `gives` computes."""

    method: str
    gives: str
    at: dict = {}
    words: str = ""  # for readers; "": the settings as they stand
    both: dict = {}  # settings that the two share
    unlike: dict = {}  # with these it differs
    rounds: int = 4  # for so long
    # the models compared: what this one serves, and what the other one does
    views: tuple | None = None  # None: the models that the servers send

    @property
    def said(self):
        """The settings for readers, as "mu = 0"."""
        return self.words or ", ".join(f"{k} = {v}" for k, v in self.at.items())


FAR = {"tau": 1e6, "server_lr": 2e6}
LATE = {"epsilon": 0, "W": 1, "theta": 1e9}
PERSONAL = ("personal", "global")
LIMITS = (
    Limit("FedProx", "FedAvg", {"mu": 0}),
    Limit("FedProx-P", "FedAvg-P", {"mu": 0}),
    Limit("FedProx-FT", "FedAvg-FT", {"mu": 0}),
    Limit("MOON", "FedAvg", {"mu": 0}),
    Limit("FedAvg-FT", "FedAvg", {"tune": 0}, views=("tuned", "global")),
    # drift
    Limit("SCAFFOLD", "Uniform", words="in its first round", rounds=1),
    Limit("FedNova", "FedAvg", {}, "equally many local steps", both={"batches": 3}),
    Limit("FedAvgM", "FedAvg", {"beta": 0}),
    Limit("FedAdagrad", "FedAvg", FAR, "tau large, server_lr = 2 tau"),
    Limit(
        "FedYogi",
        "FedAvg",
        {"beta1": 0} | FAR,
        "beta1 = 0, tau large, server_lr = 2 tau",
    ),
    # fair
    Limit("q-FedAvg", "Uniform", {"q": 0}),
    Limit("AFL", "Uniform", {"gamma": 0}),
    Limit("FedFV", "Uniform", {"alpha": 1}),
    Limit("FedGini", "Uniform", {"epsilon": 1}, unlike=LATE),
    Limit("FedGA", "Uniform", {"alpha": 1, "delayed": False}, "alpha = 1, triggered"),
    Limit("FedGA", "FedAvg", words="before its trigger", unlike={"delayed": False}),
    Limit("FedGA_ablation", "Uniform", {"alpha": 1}),
    Limit("TERM", "FedAvg", {"tilt": 0}),
    # personal
    Limit("Ditto", "Local", {"lam": 0}, views=("personal", "personal")),
    Limit("APFL", "FedAvg", {"alpha": 0, "adapt": False}, views=PERSONAL),
    Limit("FedALA", "FedAvg", {"eta": 0}),
    Limit("CD2-pFed", "FedAvg", {"p": 0, "lam": 0}, views=PERSONAL),
    Limit("FedAS", "FedPer-online", {"align": "none", "by": "size"}),
    Limit("FedAS-parallel", "FedPer-online", {"lam": 0, "by": "size"}),
    # flat
    Limit("FedSAM", "FedAvg", {"rho": 1e-9}, "rho towards 0"),
    Limit("PLGU-LF", "FedAvg", {"perturb": "none"}, "perturb = none, its common model"),
    Limit("PLGU-LF", "FedSAM", {"uniform": True, "direction": "w"}),
    Limit("PLGU-GRep", "FedRep-2x", {"perturb": "none"}, both={"head_epochs": 5}),
    # groups
    Limit("FLinear", "FedAvg", {"tau": 1}),
    Limit("FairFed", "Reweight", {"beta": 0}),
    Limit("FairFed", "FedAvg", {"beta": 0, "debias": False}),
    Limit("FedFB", "FedAvg", {"alpha": 0}),
    Limit("Regular", "FedAvg", {"mu": 0}),
    Limit("EquFL", "FedAvg", {"lam": 0}),
    Limit("Gaussian-update", "FedAvg", {"lam": 0}),
    Limit("Uniform-update", "FedAvg", {"lam": 0}),
    # domains
    Limit("GA", "Uniform", {"step_size": 0}),
    Limit("FAA", "Uniform", {"eta": 0}),
    Limit("FAA-lagged", "Uniform", {"eta": 0}),
    Limit("FFT-GP", "FAA", {"meta": "none"}),
    Limit("FFT-GP", "Uniform", {"meta": "none", "eta": 0}),
    Limit("FFT-GP-lagged", "FAA-lagged", {"meta": "none"}),
)

# whom: the methods, by their names in tables
FAVOURED = {
    "clients with many rows": "FedAvg FedProx MOON FedAvgM FedAdagrad FedAdam FedYogi "
    "FedSAM",
    "no client: each counts once": "Uniform FedCLIP PromptFL",
    "no client: each counts once, with the drift taken out": "SCAFFOLD FedDyn",
    "clients with many rows, not those with many steps": "FedNova",
    "clients with enough rows to train alone": "Local",
    "no client: each row counts once": "Centralised",
    "each client, by a model of its own": "FedAvg-P FedProx-P FedAvg-FT FedProx-FT "
    "Ditto APFL pFedMe PerFedAvg FedPer FedPer-online FedRep FedRep-2x LG-FedAvg "
    "FedBABU FedBN FedProto FedALA FedPAC CD2-pFed pFedHN pFedHN-chunked PLGU-LF "
    "PLGU-GRep PLGU-GHN",
    "each, by a model of its own; in its body, a large Fisher trace": "FedAS "
    "FedAS-parallel FedAS-global FedAS-chained",
    "clients with a large loss": "q-FedAvg",
    "the clients with the largest losses": "AFL",
    "clients with a large loss, and those with many rows": "TERM",
    "clients with a low accuracy, and those that take part often": "FedFa",
    "no client: a step meant to harm none": "FedMGDA+",
    "clients with the largest losses: their updates stay as they are": "FedFV",
    "no client; once it is on, those with a large loss": "FedGini",
    "clients with many rows; once it is on, those it serves badly": "FedGA",
    "clients with a low accuracy": "FedGA_ablation",
    "no group: the column that names it is hidden": "Blind",
    "no group: its linear traces leave the inputs": "FLinear",
    "no group: row weights make group and label independent": "Reweight",
    "clients whose gap between groups is like that of all": "FairFed",
    "the group with the larger loss": "FedFB",
    "the group at a disadvantage by the chosen bias score": "Regular EquFL",
    "nobody: noise": "Gaussian-update Uniform-update",
    "domains that the average harms most": "GA FAA FAA-lagged FFT-GP FFT-GP-lagged "
    "FFT-GP-beside",
    "domains whose updates agree with the others": "GRACE",
}
FAVOURS = {name: whom for whom, names in FAVOURED.items() for name in names.split()}
