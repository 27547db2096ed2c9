"""The models that a run ends with: one that all clients share, and one of each client.

A method says which models it has by its views. A view is a function from rows to
logits; most are one set of weights, which can be taken out.
Letters: C clients, K classes, n rows.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import torch

from .clients import Clients, cohort_of
from .errors import nearest
from .files import read_tensors, whole
from .method import acts_on_download, describe
from .ranges import is_whole
from .task import Fitted, Model, row_counts
from .tree import pick, tmap

OWN_FIRST = ("personal", "tuned", "global")  # a client's view, where none is named
AT_ONCE = 1024  # rows that pass a model together


def model(record, client=None, view=None, into=None):
    """See `Record.model`."""
    at_end = end_of(record)
    name, f = chosen(record, at_end, client, view)
    w = weights(at_end, name, f)
    return w if into is None else filled(into, w)


@torch.no_grad()
def predict(record, x, client=None, view=None):
    """See `Record.predict`."""
    at_end = end_of(record)
    x = rows_for(at_end[0].task, x)
    _, f = chosen(record, at_end, client, view, probe=x)
    z = torch.cat([f(part) for part in x.split(AT_ONCE)])
    return z.softmax(1).cpu()


def save(record, path, client=None, view=None):
    """See `Record.save_model`."""
    path = place(path, (".pt", ".pth", ".safetensors"))
    w, buffer = model(record, client, view), io.BytesIO()
    if path.suffix == ".safetensors":
        from safetensors.torch import save as packed  # an optional package

        buffer.write(packed(w))
    else:
        torch.save(w, buffer)
    whole(path, lambda f: f.write(buffer.getbuffer()))


def place(path, suffixes):
    """A path, whose suffix says what is written to it."""
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(
            f"{str(path)!r} ends with {path.suffix!r}: give a name that ends with "
            f"{' or '.join(suffixes)}"
        )
    return path


# ---------------------------------------------------------------- the end of a run
def end_of(record):
    """(method, state, Clients) at the end of a run; ValueError where not known."""
    meta, method = record.meta, record.method
    if "diverged" in meta:
        raise ValueError(
            f"this run of {meta['method']} diverged in round "
            f"{meta['diverged']['round']}, so there is no model; lower lr"
        )
    if method is None:
        raise ValueError(
            "this record does not know its method and task; load it with them, "
            f"Record.load(folder, fedlib.make({meta['method']!r}, task, ...))"
        )
    state, path = record.state, record.folder and record.folder / "state"
    if state is None and path and path.exists():
        state = read_tensors(path, method.task.x.device)["state"]
        state = state if state["t"] == meta["rounds"] else None  # of an earlier round
    if state is None:
        raise ValueError(
            f"the state of this run of {meta['method']} after {meta['rounds']} rounds "
            f"is not in {path or 'memory'}: run it with folder=..., and keep_state=True"
        )
    given = method, method.task, meta["seed"], state["t"], meta["rounds"]
    return method, state, Clients(*given, "loop", None)


def same_method(method, record):
    """A method as given, or a ValueError where another made the record."""
    task, meta = getattr(method, "task", None), record.meta
    if task is None:
        raise ValueError(
            f"Record.load(folder, {method!r:.60}): give a method with its task, "
            f"fedlib.make({meta['method']!r}, task)"
        )
    here = {"method": type(method).__name__, "parameters": describe(method)}
    here |= {"task": task.name, "n": row_counts(task)}
    for k, v in here.items():
        a, b = (json.dumps(x, sort_keys=True) for x in (meta.get(k), v))
        if a != b:
            raise ValueError(
                f"{record.folder} was made by another run: {k} is {a:.90} there, "
                f"{b:.90} here; give the method and task of that run"
            )
    return method


# ---------------------------------------------------------------- views
def chosen(record, at_end, client, view, probe=None):
    """(name, view) that is asked for; probe: rows on which views are compared that are
    no plain weights."""
    method, cls = at_end[0], record.meta["method"]
    views = views_of(record, at_end, 0 if client is None else number(record, client))
    has = ", ".join(map(repr, views))
    if client is None:
        view = "global" if view is None else view
        if view == "global" and view not in views:
            raise ValueError(
                f"{cls} has no global model, every client has its own: name a client, "
                f"as in model(client=0); its views: {has}"
            )
    elif view is None:
        view = next((v for v in OWN_FIRST if v in views), next(iter(views)))
    if view not in views:
        close = nearest(view, views)
        raise ValueError(f"{cls} has no view {view!r}{close} (it has {has})")
    if client is None and method.task.C > 1:
        others = (views_of(record, at_end, c)[view] for c in range(1, method.task.C))
        if not all(alike(views[view], other, probe) for other in others):
            raise ValueError(
                f"{cls}: view {view!r} is another model at each client; name a client, "
                f"as in model(client=0, view={view!r})"
            )
    return view, views[view]


def views_of(record, at_end, c):
    """{name: view} of client c, as the last row of the record scored it."""
    method, state, run = at_end
    ids, shards = run.shards(torch.tensor([c]))
    down = pick(method.send(state["server"], torch.arange(method.task.C)), c)
    mine, shard = tmap(torch.clone, pick(state["clients"], c)), shards[0]
    if acts_on_download(method) and c in listeners(record, method, run):
        mine = run._call(method.receive, (down, mine, shard), c, "receive")
    return run._call(method.views, (down, mine, shard), c, "views")


def listeners(record, method, run):
    """The clients that receive the model in the round after the last [M]."""
    C, cohort = method.task.C, record.meta["cohort"]
    if method.download == "all":
        return range(C)
    if cohort == "given":
        cohort = record.cohort
        if cohort is None:
            raise ValueError(
                "the cohorts of this run came from a function, which no folder keeps: "
                "call fedlib.run with the same arguments and folder; it returns the "
                "finished record, and that has its models"
            )
    return cohort_of(method, method.task, run.seed, run.t, cohort).tolist()


def number(record, client):
    """The number of a client, given by its number or its name."""
    C, names = record.meta["clients"], record.meta["owners"]
    if is_whole(client) and 0 <= client < C:
        return int(client)
    if isinstance(client, str) and names.count(client) == 1:
        return names.index(client)
    close = nearest(client, names) if isinstance(client, str) else ""
    raise ValueError(
        f"client = {client!r}: give a number from 0 to {C - 1}"
        + (f" or a client's name{close}" if names else "")
    )


def alike(one, other, probe):
    """Are two clients' views one model?"""
    if isinstance(one, Fitted) or isinstance(other, Fitted):
        return False  # made by each client for itself
    if isinstance(one, Model) and isinstance(other, Model):
        a, b = one.w, other.w
        return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
    return probe is None or torch.equal(one(probe), other(probe))


@torch.no_grad()
def weights(at_end, name, view):
    """{name: tensor} of a view, on the CPU, in the order of the network's tensors."""
    method = at_end[0]
    if not isinstance(view, Model):
        raise ValueError(
            f"{type(method).__name__}: view {name!r} is not one set of weights, but "
            "computes with more than them; use predict(x, ...)"
        )
    w, names = view.w, method.task.shapes
    if w.keys() != set(names):
        raise ValueError(
            f"{type(method).__name__}: view {name!r} is no whole model of "
            f"{method.task.network}; it has {', '.join(w)}"
        )
    return {k: w[k].detach().clone().cpu() for k in names}


def filled(module, w):
    """The module with weights w; ValueError, before anything changes, where they are
    not its own. What is frozen, and buffers that no run changes, stay as they are."""
    have, name = module.state_dict(), type(module).__name__
    trained = {k for k, p in module.named_parameters() if p.requires_grad}
    odd = {k for k, v in w.items() if k not in have or have[k].shape != v.shape}
    odd |= trained - w.keys()
    if odd:
        raise ValueError(
            f"into = {name}: {', '.join(sorted(odd))} differ, by "
            "name or shape; give a module of the network that was trained"
        )
    module.load_state_dict(w, strict=False)
    return module


def rows_for(task, x):
    """Rows x [n, ...] as a tensor like the task's; ValueError where they are not."""
    x = x if isinstance(x, torch.Tensor) else torch.as_tensor(np.array(x, order="C"))
    x, row = x.to(task.x.device, task.x.dtype), list(task.x.shape[1:])
    if not x.dim() or list(x.shape[1:]) != row or not len(x) or not x.isfinite().all():
        raise ValueError(
            f"x is {list(x.shape)}: give finite rows [n, {', '.join(map(str, row))}], "
            "prepared as those of the task"
        )
    return x
