"""Fairness and personalisation in federated learning: methods, an engine that runs them, and honest numbers.

    task    = fedlib.Task.from_arrays(x, y, client_id)
    result  = fedlib.compare(["FedAvg", "FedGA"], task, rounds=50, seeds=3)
    record  = fedlib.run(fedlib.make("FedGA", task, alpha=5), rounds=50)
"""
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

MADE_IN = {"METHODS": "methods", "Record": "record", "Task": "task", "cite": "cite", "compare": "compare",
           "make": "method", "run": "engine"}
__all__ = ["METHODS", "Record", "Task", "cite", "compare", "make", "metrics", "run"]


class _Lazy(ModuleType):
    """Imports torch when a name is asked for, not before: commands that need no torch start at once."""

    def __getattr__(self, name):
        if name in MADE_IN:
            value = getattr(import_module(f".{MADE_IN[name]}", __name__), name)
            super().__setattr__(name, value)
            return value
        if not name.startswith("_") and find_spec(f".{name}", __name__):
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __setattr__(self, name, value):
        """Importing the module fedlib.compare would hide the function of that name; the function wins."""
        if not (name in MADE_IN and isinstance(value, ModuleType)):
            super().__setattr__(name, value)

    def __dir__(self):
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Lazy
