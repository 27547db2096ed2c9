"""Flower's simulation: its Message API and FedAvg strategy on the ray backend.

CPU time is that of the whole process tree.
"""

import os
from importlib.metadata import version

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_DEDUP_LOGS"] = "0"

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch.utils.data import DataLoader

from ..harness import tree_cpu
from . import race

SMALL = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 200 * 2**20}


class Clocked(FedAvg):
    """ticks: CPU seconds of the tree after every round."""

    def aggregate_train(self, server_round, replies):
        out = super().aggregate_train(server_round, replies)
        self.ticks.append(tree_cpu())
        return out


def federation(case, batch, cohort, rounds):
    name, C, initial, found = case.name, case.task.C, case.model().state_dict(), {}
    client, server = ClientApp(), ServerApp()

    @client.train()
    def train(message, context):
        # in the worker: only weights are sent to it
        from benchmarks.peers import loaded

        torch.set_num_threads(1)
        case, pairs = loaded(name)
        model = case.module()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        mine = pairs[context.node_config["partition-id"]]
        optimizer = torch.optim.SGD(model.parameters(), lr=case.lr)
        for x, y in DataLoader(mine, batch, shuffle=True):
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        rows = MetricRecord({"num-examples": len(mine)})
        answer = RecordDict(
            {"arrays": ArrayRecord(model.state_dict()), "metrics": rows}
        )
        return Message(content=answer, reply_to=message)

    @server.main()
    def main(grid, context):
        least = {"min_train_nodes": cohort, "min_available_nodes": C}
        strategy = Clocked(fraction_train=cohort / C, fraction_evaluate=0.0, **least)
        found["ticks"] = strategy.ticks = []
        arrays = ArrayRecord(initial)
        done = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds)
        found["state"] = done.arrays.to_torch_state_dict()

    config = {"client_resources": {"num_cpus": 1}, "init_args": SMALL}
    apps = {"server_app": server, "client_app": client}
    run_simulation(**apps, num_supernodes=C, backend_config=config)
    module = case.model()
    module.load_state_dict(found["state"])
    return found["ticks"][-1] - found["ticks"][0], module


if __name__ == "__main__":
    note = lambda *_: "CPU time of the ray workers included"
    race("flower", f"flwr {version('flwr')}", federation, tree_cpu, note)
