"""{methodsmap}: all methods in one table, made from the methods themselves: which
functions of the round a class has of its own, what its messages hold by
results/bytes.csv, and what fedlib/methods/limits.toml says of it.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path

from fedbook import LINES, Directive, parallel
from fedtables import size

from fedlib.core.method import Wrap
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.limits import FAVOURS, LIMITS
from repro import course
from repro.traffic import BESIDE_CLIP, NORMED

FAMILIES = ("base", "drift", "fair", "personal", "flat", "groups", "domains")
TITLES = (
    "Method, where it is explained, who proposed it",
    "Lines of the round that it changes",
    "What goes up beside the model",
    "Whom it favours",
    "At these settings it is another method",
)
MODEL, COUNT = ("w", "shared"), "n"  # names of what FedAvg uploads, too


def family(cls):
    """The package of a method of ours, as "fair"; None for one of another package."""
    found = re.fullmatch(r"fedlib\.methods\.(\w+)\.\w+", cls.__module__)
    return found[1] if found and found[1] in FAMILIES else None


def changed(cls):
    """Which lines of the round a class changes, in words."""
    plain = Wrap if issubclass(cls, Wrap) else FedAvg

    def own(name):
        mine = getattr(cls, name, None)
        return callable(mine) and mine is not getattr(plain, name, None)

    out = [words for words, names in LINES.items() if any(map(own, names))]
    everybody = cls.who == "all"  # of a wrapper it is that of the method inside
    return out + ["who takes part: every client in every round"] * everybody


def counted(table, method, way):
    """{name: bytes} of one client's messages in one round."""
    out = {}
    for r in table:
        if r["method"] == method and r["direction"] == way:
            out[r["name"]] = out.get(r["name"], 0) + float(r["bytes"])
    return out


def beside(up, plain):
    """What one client uploads beside a model and the number of its rows, in words."""
    model = sum(v for k, v in up.items() if k in MODEL)
    more = [f"{k} ({size(v)})" for k, v in up.items() if k not in (*MODEL, COUNT)]
    part = ["a part of the model only"] * (0 < model < plain["w"])
    return part + (more or ["no model"] * (not model))


def factor(mine, plain):
    """Bytes by those of FedAvg, as "0.86 ×"."""
    return f"{sum(mine.values()) / sum(plain.values()):.2f}\u202f×"


def traffic(table, name):
    """(what goes up beside the model, the bytes against FedAvg's) in words."""
    up, down = (counted(table, name, way) for way in ("up", "down"))
    if not up:
        return [], "not counted"
    plain = {way: counted(table, "FedAvg", way) for way in ("up", "down")}
    if name in BESIDE_CLIP:  # a weight of another network goes round
        return beside(up, {"w": 0}), "a small part beside a large frozen network"
    if name in NORMED:
        return beside(up, {"w": 0}), "counted with another network"
    if (up, down) == (plain["up"], plain["down"]):
        return [], "as FedAvg"
    ways = f"{factor(up, plain['up'])} up, {factor(down, plain['down'])} down"
    return beside(up, plain["up"]), ways


def pages(book):
    """{page: its text}: chapters in the order of the book, then their records."""
    files = course.contents(book)
    known = course.chapters(book) + [f for f in files if f.endswith("_record")]
    return {f: (book / f"{f}.md").read_text("utf-8") for f in known}


def explained(name, cls, texts):
    """The page that shows a method's source, or that of the class which it inherits
    from, the one with the most directives about it; else the first that speaks of it.
    """
    names = {c: n for n, c in METHODS.items()}
    line = [names[c] for c in cls.__mro__ if c in names and c is not FedAvg]
    for n in [name, *line]:
        about = re.compile(rf"^`+\{{(\w+)\}} {re.escape(n)}$", re.M)
        found = {p: about.findall(text) for p, text in texts.items()}
        found = {p: kinds for p, kinds in found.items() if "source" in kinds}
        if found:
            return max(found, key=lambda p: len(found[p]))
    word = rf"(?<![\w-]){re.escape(name)}(?![\w-])"
    return next((p for p, text in texts.items() if re.search(word, text)), None)


class MethodsMap(Directive):
    """{methodsmap}: the table."""

    def run(self):
        book, table = Path(self.env.srcdir), self.rows("bytes")
        texts, families = pages(book), []
        for page in texts:
            self.env.note_dependency(str(book / f"{page}.md"))
        for group in (*FAMILIES, None):
            mine = {n: c for n, c in METHODS.items() if family(c) == group}
            for cls in mine.values():
                self.env.note_dependency(inspect.getsourcefile(cls))
            lines = [line(name, cls, table, texts) for name, cls in mine.items()]
            families += [(group or "others", heading(group), lines)] if mine else []
        return self.draw("methodsmap", families)


def heading(group):
    """The row above a family: the first sentence of its package."""
    if not group:
        return "Methods of other packages"
    doc = import_module(f"fedlib.methods.{group}").__doc__
    return doc.strip().splitlines()[0].rstrip(".")


def line(name, cls, table, texts):
    """What the map says of a method; where: links to the page and the paper."""
    up, count = traffic(table, name)
    lines = changed(cls) or ["none"]
    if name == "FedAvg":
        lines = ["none: all others are compared with it"]
    page = explained(name, cls, texts)
    where = [f"{{doc}}`{page}`"] if page else []
    if cls.card and name not in getattr(METHODS, "added", ()):
        where.append(f"{{cite:t}}`{cls.card.bibkey}`")
    limits = [f"{x.said}: {x.gives}" for x in LIMITS if x.method == name]
    favours, where = FAVOURS.get(name, ""), "; ".join(where)
    about = dict(name=name, card=cls.card, where=where, lines=lines, up=up)
    return about | dict(bytes=count, favours=favours, limits=limits)


def setup(app):
    return parallel(app, MethodsMap)
