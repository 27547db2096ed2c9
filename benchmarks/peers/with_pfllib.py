"""PFLlib: its own servers and clients. It is no package: PFLLIB names the folder of its
sources, which holds `system/`.

Its clients read their rows from a file in every round; here they lie in memory.
"""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from . import loaded, race

HOME = Path(os.environ.get("PFLLIB", "PFLlib")).resolve() / "system"
# method -> module of its server
SERVERS = {"FedAvg": "avg", "FedProx": "prox", "Ditto": "ditto", "FedPer": "per"}
SERVERS |= {"FedRep": "rep", "FedAS": "as"}
# what PFLlib asks its command line for, where our cases do not say it
QUIET = {"device": "cpu", "num_classes": 10, "few_shot": 0, "goal": "", "top_cnt": 1}
QUIET |= {"save_folder_name": "", "eval_gap": 1, "dlg_gap": 1, "time_threthold": 1e9}
QUIET |= dict.fromkeys(
    ("learning_rate_decay", "random_join_ratio", "time_select"), False
)
QUIET |= dict.fromkeys(("auto_break", "dlg_eval"), False)
QUIET |= dict.fromkeys(("client_drop_rate", "train_slow_rate", "send_slow_rate"), 0.0)
QUIET |= dict.fromkeys(("batch_num_per_client", "num_new_clients", "mu"), 0)
QUIET |= {"fine_tuning_epoch_new": 0, "learning_rate_decay_gamma": 1.0}
NOTES = {
    "FedAS": "takes the Fisher traces of all clients in every round, not only of "
    "the cohort; aligns in batches of 16",
}


class Split(nn.Module):
    """The case's layers as PFLlib wants them: all but the last, and the last."""

    def __init__(self, module):
        super().__init__()
        if hasattr(module, "fc"):  # a ResNet
            self.base, self.head, module.fc = module, module.fc, nn.Identity()
        else:
            *base, head = list(module.children()) or [module]
            self.base, self.head = nn.Sequential(*base), head

    def forward(self, x):
        return self.head(self.base(x))


class Done(Exception):
    """So many rounds are over."""


def server_of(method):
    """PFLlib's server of a method, with a clock where it would evaluate."""
    if not HOME.is_dir():
        raise SystemExit(
            f"PFLLIB: {HOME} is missing; name the folder with PFLlib's sources"
        )
    sys.path[:0] = [str(HOME)] * (str(HOME) not in sys.path)
    module = import_module(f"flcore.servers.server{SERVERS[method]}")

    class Clocked(getattr(module, method)):
        def evaluate(self, *_):
            self.ticks.append(time.process_time())
            if len(self.ticks) > self.args.rounds:
                raise Done

        def evaluate_personalized(self, *_):
            pass

        def select_clients(self):
            return [self.clients[i] for i in next(self.args.draw).tolist()]

    return Clocked


def federation(case, batch, cohort, rounds, method="FedAvg", epochs=1, **more):
    """more: PFLlib's own names of hyperparameters (mu, plocal_epochs)."""
    Server, pairs = server_of(method), loaded(case.name)[1]
    for module in ("flcore.servers.serverbase", "flcore.clients.clientbase"):
        read = lambda _, i, is_train=True, few_shot=0: pairs[i]
        import_module(module).read_client_data = read
    said = {"model": Split(case.model()), "algorithm": method, "dataset": case.name}
    said |= {"global_rounds": rounds, "rounds": rounds, "num_clients": case.task.C}
    said |= {"draw": replace(case, cohort=cohort).cohorts(), "batch_size": batch}
    said |= {"local_epochs": epochs, "plocal_epochs": epochs}
    said |= {"local_learning_rate": case.lr}
    # int(clients x ratio) must be the cohort
    said |= {"join_ratio": min(1.0, (cohort + 0.5) / case.task.C)}
    with contextlib.redirect_stdout(None):
        server = Server(SimpleNamespace(**QUIET | said | more), 0)
        for c in server.clients:  # it would leave out a batch that is not full
            c.batch_size = min(batch, c.train_samples)
        server.ticks = []
        with contextlib.suppress(Done):
            server.train()
    return server.ticks[-1] - server.ticks[1], server.global_model


def release():
    """PFLlib counts no versions: its commit, where git knows it."""
    asked = ["git", "-C", str(HOME.parent), "rev-parse", "--short", "HEAD"]
    found = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    return f"commit {found or 'unknown'}"


def note(case, method):
    """The last batch of a pass is left out unless it is full."""
    n = torch.tensor([len(r) for r in case.task.train])
    b = n.clamp(max=case.task.batch)
    share = ((n // b * b).sum() / n.sum()).item()
    said = f"trains on {share:.0%} of the rows: no batch that is not full"
    return "; ".join([said, *filter(None, [NOTES.get(method)])])


if __name__ == "__main__":
    race("pfllib", release(), federation, note=note)
