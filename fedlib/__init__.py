"""Fairness and personalisation in federated learning: methods, an engine that runs
them, and honest numbers.

task    = fedlib.Task.from_arrays(x, y, client_id)
result  = fedlib.compare(["FedAvg", "FedGA"], task, rounds=50, seeds=3)
record  = fedlib.run(fedlib.make("FedGA", task, alpha=5), rounds=50)
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees; at run time see __getattr__
    from . import core, data, deploy, measures, methods, nets, pieces, plots, study
    from .core.engine import run
    from .core.record import Record
    from .core.task import Task
    from .measures import metrics
    from .methods import METHODS
    from .methods.cite import cite
    from .methods.make import make
    from .study.compare import compare

MADE_IN = {
    "METHODS": "methods",
    "Record": "core.record",
    "Task": "core.task",
    "cite": "methods.cite",
    "compare": "study.compare",
    "make": "methods.make",
    "run": "core.engine",
}
__all__ = ["METHODS", "Record", "Task", "cite", "compare", "make", "metrics", "run"]
__version__: str  # asked of pyproject.toml in a checkout, else of what is installed


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports torch when a name is asked for, not before:
        commands that need no torch start at once.
        """
        if name in MADE_IN:
            made = getattr(import_module(f".{MADE_IN[name]}", __name__), name)
            return globals().setdefault(name, made)
        if name == "__version__":
            return import_module(".core.files", __name__).version()
        if name == "metrics":
            return import_module(".measures.metrics", __name__)
        if not name.startswith("_") and find_spec(f".{name}", __name__):
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
