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
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..core.method import Method

GROUP = "fedlib.methods"


class Methods(dict[str, type[Method]]):
    """The methods by their names. Those of other packages are added when somebody
    first reads it: their modules import this one.
    """

    def __init__(self, own: dict[str, type[Method]]):
        super().__init__(own)
        self.added: set[str] = set()  # the names that other packages brought
        self.waiting: list[EntryPoint] | None = None

    def complete(self) -> None:
        """Add what other packages have and is not added yet."""
        if self.waiting is None:
            self.waiting = [*entry_points(group=GROUP)]
        todo, self.waiting = self.waiting, []
        for point in todo:
            if half_imported(point.module):  # that module reads METHODS: ask it later
                self.waiting.append(point)
            elif cls := loaded(point, self):
                self[point.name] = cls
                self.added.add(point.name)


def reading(name: str) -> Callable:
    """dict's method of that name, for a table that is completed before it is read."""
    plain = getattr(dict, name)

    def read(self: Methods, *args: Any) -> Any:
        if self.waiting != []:
            self.complete()
        return plain(self, *args)

    return read


for _name in (
    *("__getitem__", "__contains__", "__iter__", "__reversed__", "__len__", "__eq__"),
    *("__or__", "__ror__", "__repr__", "get", "keys", "values", "items", "copy"),
):
    setattr(Methods, _name, reading(_name))


def half_imported(module: str) -> bool:
    """Whether a module is just being imported, so that its classes are not there."""
    spec = getattr(sys.modules.get(module), "__spec__", None)
    return getattr(spec, "_initializing", False)


def loaded(point: EntryPoint, known: dict[str, type[Method]]) -> type[Method] | None:
    """The class of an entry point; None and a warning where it is no method, or has a
    name that is taken.
    """
    package = point.dist.name if point.dist else "an unknown package"
    what = f"{package}: its method {point.name!r} ({point.value}) is left out:"
    if point.name in known:
        there = known[point.name]
        if f"{there.__module__}:{there.__qualname__}" != point.value:
            warnings.warn(f"{what} there is a method of that name", stacklevel=2)
        return None
    try:
        cls = point.load()
    except Exception as e:  # whatever somebody else's module raises
        warnings.warn(f"{what} {type(e).__name__}: {e}", stacklevel=2)
        return None
    if not (inspect.isclass(cls) and issubclass(cls, Method)):
        warnings.warn(f"{what} it is no fedlib.core.method.Method", stacklevel=2)
        return None
    return cls
