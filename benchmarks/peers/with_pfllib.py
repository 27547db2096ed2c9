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

from .harness import loaded, race

HOME = Path(os.environ.get("PFLLIB", "PFLlib")).resolve() / "system"
# method -> (module of its server, class)
SERVERS = {
    "FedAvg": ("serveravg", "FedAvg"),
    "FedProx": ("serverprox", "FedProx"),
    "Ditto": ("serverditto", "Ditto"),
    "FedPer": ("serverper", "FedPer"),
    "FedRep": ("serverrep", "FedRep"),
    "FedAS": ("serveras", "FedAS"),
}
# what PFLlib asks its command line for, where our cases do not say it
QUIET = dict(
    device="cpu",
    num_classes=10,
    learning_rate_decay=False,
    learning_rate_decay_gamma=1.0,
    random_join_ratio=False,
    few_shot=0,
    time_select=False,
    goal="",
    time_threthold=1e9,
    save_folder_name="",
    top_cnt=1,
    auto_break=False,
    eval_gap=1,
    client_drop_rate=0.0,
    train_slow_rate=0.0,
    send_slow_rate=0.0,
    dlg_eval=False,
    dlg_gap=1,
    batch_num_per_client=0,
    num_new_clients=0,
    fine_tuning_epoch_new=0,
)
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
            f"PFLLIB names no folder with PFLlib's sources: {HOME} is missing; "
            "set it to the folder that holds system/"
        )
    if str(HOME) not in sys.path:
        sys.path.insert(0, str(HOME))
    module, name = SERVERS[method]

    class Clocked(getattr(import_module(f"flcore.servers.{module}"), name)):
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
    Server = server_of(method)
    data = (
        import_module("flcore.servers.serverbase"),
        import_module("flcore.clients.clientbase"),
    )
    pairs = loaded(case.name)[1]
    for module in data:
        module.read_client_data = lambda _, i, is_train=True, few_shot=0: pairs[i]
    args = SimpleNamespace(
        **QUIET
        | dict(
            model=Split(case.model()),
            algorithm=method,
            dataset=case.name,
            global_rounds=rounds,
            rounds=rounds,
            draw=replace(case, cohort=cohort).cohorts(),
            local_epochs=epochs,
            plocal_epochs=epochs,
            mu=0.0,
            batch_size=batch,
            local_learning_rate=case.lr,
            num_clients=case.task.C,
            # int(clients x ratio) must be the cohort
            join_ratio=min(1.0, (cohort + 0.5) / case.task.C),
        )
        | more
    )
    with contextlib.redirect_stdout(None):
        server = Server(args, 0)
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


def trained(case):
    """Share of the rows that its clients train on: the last batch of a pass is left
    out unless it is full.
    """
    n = torch.tensor([len(r) for r in case.task.train])
    b = n.clamp(max=case.task.batch)
    return ((n // b * b).sum() / n.sum()).item()


def note(case, method):
    said = [f"trains on {trained(case):.0%} of the rows: no batch that is not full"]
    return "; ".join(filter(None, [*said, NOTES.get(method)]))


if __name__ == "__main__":
    race("pfllib", "PFLlib", release(), federation, note=note)
