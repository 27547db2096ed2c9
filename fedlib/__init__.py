"""Fairness and personalisation in federated learning: methods, an engine that runs them, and honest numbers.

    task    = fedlib.Task.from_arrays(x, y, client_id)
    result  = fedlib.compare(["FedAvg", "FedGA"], task, rounds=50, seeds=3)
    record  = fedlib.run(fedlib.make("FedGA", task, alpha=5), rounds=50)
"""
from . import metrics
from .cite import cite
from .compare import compare
from .engine import run
from .method import make
from .methods import METHODS
from .record import Record
from .task import Task

__all__ = ["METHODS", "Record", "Task", "cite", "compare", "make", "metrics", "run"]
