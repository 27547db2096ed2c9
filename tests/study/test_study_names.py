"""What names a run: everything that changes a number, and what is kept by its name."""

import contextlib
import hashlib
import inspect
import itertools
import json
import os
import shutil
import sys
import types
from dataclasses import dataclass, fields, replace

import numpy as np
import pandas as pd
import pytest
from toys_study import DATA, cell
from where import ROOT

from fedlib.core import engine, files
from fedlib.core.method import BASE, Wrap, hp
from fedlib.data import tasks
from fedlib.methods import METHODS
from fedlib.methods.base.fedavg import FedAvg
from fedlib.methods.make import make
from fedlib.study import compute, identity, once, store
from fedlib.study.studies import Cell, Run


def hypers(cls):
    """The hyper-parameters of a method, without task and the method inside."""
    return [f for f in fields(cls) if f.name not in ("task", "inner")]


def test_a_name_is_the_hash_of_what_is_said(monkeypatch):
    plain = {f.name: f.default for f in hypers(FedAvg)} | {"lr": 0.25}
    hyper = {k: float(v) if type(v) is int else v for k, v in plain.items()}
    for k in ("step", "rule"):
        hyper[k] = {"name": type(plain[k]).__name__} | vars(plain[k])
    task = {"data": DATA | {"sizes": [60.0, 80.0, 70.0]}, "network": {"name": "Linear"}}
    what = {"task": task, "method": "FedAvg", "hyper": hyper}
    what |= {"engine": {"rounds": 3.0}, "seed": 4}
    text, c = json.dumps(what, sort_keys=True), cell(seed=4, lr=0.25)
    assert c.id == hashlib.sha256(text.encode()).hexdigest()[:16]
    words = dict.fromkeys(("label", "dataset", "setting", "data"), "x")
    assert replace(c, **words).id == c.id
    others = replace(c, seed=1), replace(c, mine="a"), replace(c, mine="b")
    assert len({c.id, *(o.id for o in others)}) == 4
    assert cell(lr=1).id == cell(lr=1.0).id
    monkeypatch.chdir(ROOT)  # each ninth stored run has the name that it had
    columns = "dataset label method setting seed data task kwargs engine".split()
    seen = 0
    for folder in sorted(p.parent for p in ROOT.glob("evidence/*/runs.parquet")):
        for row in store.listed(folder)[::9]:
            c = Cell(*(row[k] for k in columns))
            if json.loads(row["versions"]) == identity.raised(identity.parts_of(c)[1]):
                assert c.id == row["id"], (folder.name, c)
                seen += 1
    assert seen > 1000


def other(method, f):
    """A value of a hyper-parameter that is not its default; None: none is known."""
    v, pieces = f.default, {"step": "SAM", "rule": "Median"}
    tries = [pieces.get(f.name), *(f.metadata.get("choices") or ())]
    if isinstance(v, (int, float)) and not isinstance(v, bool):
        tries += [v + 1, v / 2]
    for t in tries:
        if t is not None and t != v:
            with contextlib.suppress(ValueError):
                make(method, None, **{f.name: t})
                return t
    return None


def test_every_hyper_parameter_counts_and_its_default_does_not(monkeypatch):
    for method, cls in METHODS.items():
        seen, some = {cell(method).id}, hypers(cls)
        if issubclass(cls, Wrap):  # hands what it inherits to the method inside
            some = [f for f in some if f.name not in BASE]
            some += [f for f in hypers(METHODS[cls.around]) if f.name in BASE]
        for f in some:
            v, new = f.default, other(method, f)
            usual = v if type(v) in (str, bool, int, float) else type(v).__name__
            if usual is v or f.name in ("step", "rule"):
                assert cell(method, **{f.name: usual}).id in seen, (method, f.name)
            if new is not None:
                name = cell(method, **{f.name: new}).id
                assert name not in seen, (method, f.name)
                seen.add(name)
        assert len(seen) > 3
    same = {"name": "FedAvg", "lr": 0.2}
    for more in ({}, {"lr": 0.7}, {"inner": "FedAvg", "lr": 0.2}):  # what is nearer
        assert cell("EquFL", **{"inner": same} | more).id == cell("EquFL", lr=0.2).id
    inner = ["FedProx", {"name": "FedProx", "mu": 0.7}, {"name": "Ditto"}]
    assert len({cell("EquFL", inner=i).id for i in inner}) == 3
    assert cell(rule="Median").id == cell(rule={"name": "Median"}).id

    @dataclass(frozen=True)
    class Later(FedAvg):
        new: float = hp(2.0, "added later; 0 is what was done before", absent=0.0)

    Later.__module__, was = "fedlib.methods.more", cell().id
    monkeypatch.setitem(METHODS, "FedAvg", Later)
    assert cell(new=0).id == was != cell().id
    assert cell(new=2.0).id == cell().id != cell(new=3.0).id


def test_every_part_of_a_task_and_of_the_engine_counts_and_its_default_does_not():
    bare = cell().id
    usual = {"partition": {"name": "natural"}, "batch": 32, "parts": [0.8, 0.1, 0.1]}
    assert cell(task=usual | {"standard": False}).id == bare
    changes = [{"batch": 8}, {"parts": [0.7, 0.2, 0.1]}, {"standard": True}]
    changes += [{"standard": "imagenet"}, {"groups": {"by": "parity"}}, {"guest": "a"}]
    changes += [{"guest": "b"}, {"test": {"by": "labels", "share": 0.5}}]
    changes += [{"owners": ["a", "b"]}, {"partition": {"name": "by_domain"}}]
    changes += [{"data": DATA | {"sizes": [60, 70, 80]}}]
    assert len({bare, *(cell(task=c).id for c in changes)}) == 1 + len(changes)
    name = lambda of, **told: cell(task={of[0]: {"name": of[1]} | told}).id
    for of in [(kind, n) for kind, table in tasks.TABLES.items() for n in table]:
        takes = inspect.signature(tasks.TABLES[of[0]][of[1]]).parameters.values()
        known = {p.name: p.default for p in takes if p.default is not p.empty}
        known = {k: v for k, v in known.items() if k not in ("model", "weights")}
        back = dict(reversed(known.items()))
        assert name(of, **known) == name(of, **back) == name(of), of
        for k in known:
            assert name(of, **{k: "another"}) != name(of), (of, k)
    takes = inspect.signature(engine.run).parameters
    name = lambda **told: cell(engine={"rounds": 3} | told).id
    for k in {*Run.model_fields} & {*takes} - {"rounds"}:
        assert name(**{k: takes[k].default}) == name(), k
    news = {"cohort": 2, "online": 0.5, "stragglers": {"portion": 0.5}, "every": 2}
    news |= {"splits": ["test"], "guests": True, "own": True, "microscope": True}
    news |= {"how": "vmap", "rounds": 4}
    assert news.keys() == Run.model_fields.keys()
    assert len({name(), *(name(**{k: v}) for k, v in news.items())}) == 1 + len(news)


def test_weights_count_by_their_content_wherever_they_lie(tmp_path):
    def name(file, content=None):
        path = tmp_path / file
        if content:
            path.write_bytes(content)
            os.utime(path, ns=(len(content), 10**18 + len(content)))
        deep = {"name": "features", "data": DATA, "model": str(path)}
        some = {"network": {"name": "ResNet18", "weights": str(path)}}, {"data": deep}
        return [cell(task=t).id for t in some]

    one = name("a.pth", b"one")
    assert one == name("b.pth", b"one")
    new = name("c.pth", b"other"), name("a.pth", b"changed"), name("none.pth")
    assert len({*one, *itertools.chain(*new)}) == 8


PLAIN = {"engine", "method FedAvg", "step Plain", "rule Mean", "data synthetic"}
PLAIN |= {"partition natural", "network Linear"}
DEEP = {"data": {"name": "features", "data": DATA, "model": "m.pt"}}
DEEP |= {k: {"name": n} for k, n in (("partition", "ring"), ("network", "Adapter"))}
NESTED = PLAIN - {"step Plain", "partition natural", "network Linear"}
NESTED |= {"step SAM", "data features", "partition ring", "network Adapter"}
WRAPPED = PLAIN - {"method FedAvg", "rule Mean"}
WRAPPED |= {"method EquFL", "method FedProx", "rule Median"}
USES = [(cell(), PLAIN), (cell(task=DEEP, step="SAM"), NESTED)]
USES += [(cell("EquFL", inner={"name": "FedProx", "rule": "Median"}), WRAPPED)]


def test_a_raised_version_renames_what_uses_the_unit(tmp_path, monkeypatch):
    path = tmp_path / "versions.toml"
    path.write_text('engine = [{v = 2, why = "a"}, {v = 3, why = "b"}]\n')
    monkeypatch.setattr(identity, "VERSIONS", path)
    assert identity.versions.__wrapped__() == {"engine": 3}
    assert [identity.parts_of(c)[1] for c, _ in USES] == [u for _, u in USES]
    for unit in set().union(*(u for _, u in USES)):
        ids = {}
        for v in (1, 2, 3):
            monkeypatch.setattr(identity, "versions", lambda u=unit, v=v: {u: v})
            ids[v] = [c.id for c, _ in USES]
        for (_, uses), *names in zip(USES, *ids.values()):
            assert len({*names}) == (3 if unit in uses else 1), unit


def test_an_edit_of_what_makes_numbers_changes_the_state(tmp_path, monkeypatch):
    for name in ("core", "data", "methods", "nets", "pieces", "study"):
        shutil.copytree(ROOT / "fedlib" / name, tmp_path / name)
    of = lambda: files.sources(*identity.NUMBERS, "study/versions.toml", root=tmp_path)
    was, seen = of(), set()
    assert was[:16] == identity.state()
    some = "core/local.py", "data/glyphs.py", "nets/layers.py", "pieces/condense.py"
    for name in (*some, "methods/personal/fedas.py", "study/versions.toml"):
        with open(tmp_path / name, "a") as f:
            f.write("\n#")
        seen.add(of())
    assert len(seen | {was}) == 7
    (tmp_path / "study/results.py").unlink()
    assert of() in seen


number = itertools.count()
MINE = '''
from dataclasses import dataclass
from fedlib.methods import FedAvg

LIMIT = 2

def cut(x):
    return x * LIMIT

class Base(FedAvg):
    def weights(self, up):
        return super().weights(up)

@dataclass(frozen=True)
class Mine(Base):
    """A method of one's own."""
    tau: float = 1.0
    who = "sample"

    def local(self, down, mine, shard):
        # a comment
        go = lambda: super(Mine, self).local(down, mine, shard)
        return go() if cut(self.tau) in {1, 2} else None
'''
COUNTS = [("tau: float = 1.0", "tau: float = 2.0"), ("LIMIT = 2", "LIMIT = 3")]
COUNTS += [("x * LIMIT", "x - LIMIT"), ('"sample"', '"# x"'), ("{1, 2}", "{1, 3}")]
COUNTS += [("(up)\n\n", "(up) * 2\n\n"), ("go() if", "go() or 1 if")]
COUNTS += [("shard)\n", "1)\n")]
NOTHING = [("# a comment", "# another"), ("A method of one's own.", "Mine.")]


def mine(folder, old="", new="", file=None):
    """The class of a module MINE, with an edit; file: where its source is said to be."""
    assert old in MINE
    path = folder / f"mine{next(number)}.py"
    # the last one: a name of an argument stands in two places
    path.write_text(new.join(MINE.rsplit(old, 1)) if old else MINE)
    module = sys.modules["mine"] = types.ModuleType("mine")
    exec(compile(path.read_text(), file or str(path), "exec"), vars(module))
    return module.Mine


def test_what_is_ones_own_counts(tmp_path, monkeypatch):
    was = identity.own(mine(tmp_path))
    assert identity.own(mine(tmp_path)) == was and len(was) == 16
    for old, new in COUNTS:
        assert identity.own(mine(tmp_path, old, new)) != was, old
    for old, new in NOTHING:
        assert identity.own(mine(tmp_path, old, new)) == was, old
    with pytest.raises(OSError, match="source"):
        identity.own(mine(tmp_path, file="<cell>"))
    names = []
    for old, new in (("", ""), NOTHING[0], COUNTS[2]):
        monkeypatch.setitem(METHODS, "Mine", mine(tmp_path, old, new))
        names.append(cell("Mine").id)
        units = {u for c in (cell("Mine"), cell()) for u in identity.parts_of(c)[1]}
        own = identity.own(METHODS["Mine"])
        assert identity.user_defined(units) == {"method Mine": own}
    assert names[0] == names[1] != names[2]


OFFSET, CALLS = 0, []
FRAME = pd.DataFrame({"m": ["x", "y"], "v": [0.1 + 0.2, np.nan], "n": [1, 2]})
TREE = {
    "counts": {"a": 3, ("b", 2): True, 7: 0.1, "none": None, "empty": {}},
    "arrays": {("v", "x"): np.ones((2, 3), np.float32), "i": np.array([2**40])},
    "words": ["one", {"three": "3"}, [1.0, np.inf]],
    "many": [{"k": i} for i in range(12)],
    "frames": {"named": FRAME.set_index("m"), "flat": FRAME},
}


def measure(x, more=1):
    CALLS.append(x)
    return {"twice": 2 * x + OFFSET}


def test_it_is_computed_once_until_what_it_depends_on_changes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = once.RUNS / f"x{once.END}"
    back = once.write(path, TREE, {"key": "k"})
    got, about = once.read(path)
    with pd.option_context("display.precision", 17):
        assert repr(got) == repr(back) == repr(TREE) and about == {"key": "k"}

    def ask(*args, name="toy", tier="small", **more):
        return once.once(name, tier, measure, *args, **more)

    assert ask(3) == ask(3) == {"twice": 6} and CALLS == [3]
    asked = [(4, {}), (3, {"tier": "tiny"}), (3, {"more": 2}), (3, {"name": "other"})]
    for x, more in asked * 2:
        assert ask(x, **more) == {"twice": 2 * x}
    assert CALLS == [3, 4, 3, 3, 3]

    def key(*args):
        return once.key_of("n", "t", compute.unfinished, args, {})

    assert key(cell()) == key(cell().id) != key(cell(seed=1))  # a run is its name
    was, moved = key(1), "measure fedlib.compute.unfinished"
    with pytest.MonkeyPatch.context() as m:
        m.setattr(identity, "versions", lambda: {moved: 2})
        assert key(1) != was
    monkeypatch.setitem(globals(), "OFFSET", 1)  # a notebook's function counts with it
    assert ask(3) == {"twice": 7} and len(CALLS) == 6
    shutil.rmtree("runs")  # evidence goes before runs, and only a commit is packed
    CALLS.clear()
    monkeypatch.setitem(globals(), "OFFSET", 0)
    commit = {"now": "0123456789+"}
    monkeypatch.setattr(files, "commit", lambda: commit["now"])
    ask = lambda x, tier="small": once.once("toy", tier, measure, x)
    ask(3)
    assert once.pack("tiny") == []
    with pytest.raises(ValueError, match="toy.*no commit"):
        once.pack("small")
    (made,) = once.RUNS.iterdir()
    made.unlink()
    commit["now"], to = "0123456789", once.STORE / f"toy{once.END}"
    ask(3)
    (old,) = once.RUNS.iterdir()
    assert once.pack("small") == [to] and once.pack("small") == []
    body = old.read_bytes()
    old.unlink()
    assert ask(3) == {"twice": 6} and CALLS == [3, 3]  # from evidence
    old.write_bytes(body)
    os.utime(old, ns=(1, 1))
    ask(4)  # another question; the newest one is packed
    assert once.pack("small") == [to] and once.read(to)[0] == {"twice": 8}
    assert ask(4) == {"twice": 8} and CALLS == [3, 3, 4]
