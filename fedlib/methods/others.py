"""Methods that other packages bring, by the entry point group `fedlib.methods`.

    [project.entry-points."fedlib.methods"]        in that package's pyproject.toml
    Mine = "my_package.mine:Mine"

The name is that of tables and commands, the class a frozen dataclass that inherits
from fedlib.core.method.Method. A method that cannot be taken is a warning that names
its package; all others are there.
"""

import inspect
import sys
import warnings
from collections import UserDict
from importlib.metadata import entry_points

from ..core.method import Method
from .base.tuned import Tuned

FT = "+FT"  # "FedGA+FT": each client fine-tunes what FedGA gives it
GROUP = "fedlib.methods"


class Methods(UserDict[str, type[Method]]):
    """The methods by their names. Those of other packages are added when somebody
    first reads it: their modules import this one. "FedGA+FT" is Tuned."""

    def __init__(self, own):
        self.own, self.waiting = dict(own), None
        self.added = set()  # the names that other packages brought

    def __contains__(self, name):
        return str(name).removesuffix(FT) in self.data

    def __missing__(self, name):
        return Tuned if name in self else self.data[name]

    @property
    def data(self):
        """The table, after adding what other packages have and is not added yet."""
        if self.waiting is None:
            self.waiting = [*entry_points(group=GROUP)]
        todo, self.waiting = self.waiting, []
        for point in todo:
            if half_imported(point.module):  # that module reads METHODS: ask it later
                self.waiting.append(point)
            elif cls := loaded(point, self.own):
                self.own[point.name] = cls
                self.added.add(point.name)
        return self.own


def half_imported(module):
    """Whether a module is just being imported, so that its classes are not there."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return getattr(spec, "_initializing", False)


def loaded(point, known):
    """The class of an entry point; None and a warning where it is no method, or has a
    name that is taken."""
    cls, why = known.get(point.name), "there is a method of that name"
    if cls and f"{cls.__module__}:{cls.__qualname__}" == point.value:
        return None
    if cls is None:
        try:
            cls, why = point.load(), "it is no fedlib.core.method.Method"
            if inspect.isclass(cls) and issubclass(cls, Method):
                return cls
        except Exception as e:  # whatever somebody else's module raises
            why = f"{type(e).__name__}: {e}"
    package = point.dist.name if point.dist else "an unknown package"
    what = f"{package}: its method {point.name!r} ({point.value}) is left out"
    warnings.warn(f"{what}: {why}", stacklevel=2)
    return None
