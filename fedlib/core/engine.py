"""The round.

One client after another or many under vmap, with the same numbers; a checkpoint is
the state.

run(method, task, rounds, ...) -> Record. Letters: C clients, M cohort,
R rounds, t round.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch.func import vmap
from tqdm import tqdm

from .errors import ClientError, Diverged
from .local import Private
from .method import Method, Round, Wrap, keeps, listens
from .random import fold, seed_of, tag
from .record import Record, whole
from .task import Task
from .tree import (
    leaves,
    pick,
    put,
    rows,
    stack,
    sub,
    subset,
    tmap,
    unstack,
    where,
    without,
)
from .types import Cohort


def cohort_of(method, task, seed, t, cohort):
    """The clients that train in round t [M], sorted if drawn.

    cohort: a size, None for all, or a function t -> ids (or none).
    """
    if method.who == "all" or cohort is None:
        return torch.arange(task.C)
    if callable(cohort):
        ids = torch.as_tensor(cohort(t), dtype=torch.long)
        if len(ids) and (
            ids.min() < 0 or ids.max() >= task.C or len(ids.unique()) < len(ids)
        ):
            raise ValueError(
                f"cohort({t}) = {ids.tolist()}: give different client numbers from "
                f"0 to {task.C - 1}"
            )
        return ids
    g = torch.Generator().manual_seed(seed_of(seed, t, tag("cohort")))
    return torch.randperm(task.C, generator=g)[:cohort].sort().values


class Clients:
    """How client functions are executed in one round: `each` maps over clients, `keep`
    also writes what they keep.
    """

    def __init__(
        self, method, task, seed, t, R, how, chunk, threads=1, precision="float32"
    ):
        self.task, self.seed, self.t, self.R, self.how, self.chunk = (
            task,
            seed,
            t,
            R,
            how,
            chunk,
        )
        self.threads, self.precision = threads, precision
        self.plans = method.plans()

    def shards(self, ids):
        make = self.task.stacked if self.how == "vmap" else self.task.shards
        return ids, make(self.seed, self.t, self.R, ids, self.plans)

    def each(self, f, trees, shards, stage):
        """f(*rows, shard) for every client; trees and result [M, ...]."""
        ids, S = shards
        if self.how == "vmap":
            data, make = S
            at_once = vmap(lambda d, *ts: f(*ts, make(d)), chunk_size=self.chunk)
            return self._one(
                at_once, [data, *trees], "(all at once; how='loop' says which)", stage
            )
        args = zip(*[unstack(t, len(S)) for t in trees], S)
        return stack(
            self._map(lambda c, a: self._one(f, a, c, stage), zip(ids.tolist(), args))
        )

    def keep(self, f, down, clients, shards, stage):
        """mine, up = f(down, mine, shard): rows of `clients` [C, ...] change in place,
        so C models are held once.
        """
        ids, S = shards
        if self.how == "vmap":
            out = self.each(
                lambda d, m, s: dict(zip(("mine", "up"), f(d, m, s))),
                (down, pick(clients, ids)),
                shards,
                stage,
            )
            tmap(
                lambda x, y: x.index_copy_(0, ids.to(x.device), y), clients, out["mine"]
            )
            return out["up"]

        def one(c, d, s):
            row = pick(clients, c)
            # f sees a copy: {"w": new, "last": mine["w"]} is safe
            mine = tmap(torch.clone, row)
            new, up = self._one(f, (d, mine, s), c, stage)
            tmap(lambda x, y: x.copy_(y), row, new)
            return up

        return stack(self._map(one, zip(ids.tolist(), unstack(down, len(S)), S)))

    def _map(self, f, calls):
        """[f(*args)] in order, here or in threads: no client writes where another
        reads, so the numbers are the same bits.
        """
        if self.threads == 1:
            return [f(*args) for args in calls]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(torch.no_grad()(lambda args: f(*args)), calls))

    def _one(self, f, args, c, stage):
        try:
            with arithmetic(
                self.precision if stage == "local" else "float32", self.task.x.device
            ):
                return f(*args)
        except Exception as e:
            raise ClientError(c, self.t, stage, f"{type(e).__name__}: {e}") from e


@contextmanager
def arithmetic(precision, device):
    """Products in this precision: float32, tf32 (tensor cores, 10 bits of mantissa),
    bf16 (7 bits; weights stay float32).
    """
    if precision == "bf16":  # no cache: weights change in place between two products
        with torch.autocast(device.type, torch.bfloat16, cache_enabled=False):
            yield
    elif device.type == "cuda":
        flags = torch.backends.cuda.matmul, torch.backends.cudnn
        before = [f.allow_tf32 for f in flags]
        for f in flags:
            f.allow_tf32 = precision == "tf32"
        try:
            yield
        finally:
            for f, b in zip(flags, before):
                f.allow_tf32 = b
    else:
        yield


def score(method, down, clients, run, shards, splits, names=None, hear=None):
    """{view: {split: [M]}} accuracy of each client on its own rows of every split.

    With groups also {"cells": {view: {split: [M, A, 2, 2]}}, the counts of
    `Groups.tally`, and "alike": {view: [M, 2]}}, over test rows with neighbours, the
    sum of |yhat_i - mean of the neighbours' yhat| by the same view, and their number.
    hear {"hear": [M]}: the clients that receive first; what they then keep is scored
    and dropped, so it is never held twice.
    """
    groups = method.task.groups
    near = method.task.alike["near"] if groups else None

    def f(down, mine, *rest):
        *hear, shard = rest
        if hear:
            mine = where(hear[0]["hear"], method.receive(down, mine, shard), mine)
        parts = [shard.all(s) for s in splits]
        x, y = (
            torch.cat(v) if len(v) > 1 else v[0]
            for v in zip(*[(b.x, b.y) for b in parts])
        )
        cut, n = [len(b.x) for b in parts], len(x)
        if groups:
            me = shard.all("alike")
            others = near[me.row]  # [n, NEAR]
            x = torch.cat([x, me.x, method.task.x[others].flatten(0, 1)])
            cut = [*cut, len(me.x), others.numel()]
        out, cells, alike = {}, {}, {}
        for k, view in method.views(down, mine, shard).items():
            if names is None or k in names:
                z = view(x)
                right = method.hits(z[:n], y).split(cut[: len(parts)])
                out[k] = {s: b.avg(h) for s, b, h in zip(splits, parts, right)}
                if groups:
                    z = z.split(cut)
                    cells[k] = {
                        s: groups.tally(zi, b) for s, b, zi in zip(splits, parts, z)
                    }
                    mine_, theirs = (
                        groups.outcome(v.argmax(-1)).to(v.dtype) for v in z[-2:]
                    )
                    apart = (mine_ - theirs.view(others.shape).mean(1)).abs()
                    m = torch.ones_like(apart) if me.m is None else me.m
                    alike[k] = torch.stack([(m * apart).sum(), m.sum()])
        return {"acc": out} | ({"cells": cells, "alike": alike} if groups else {})

    return run.each(
        f, (down, clients) if hear is None else (down, clients, hear), shards, "views"
    )


def run(
    method: Method,
    task: Task | None = None,
    rounds: int = 1,
    seed: int = 0,
    cohort: Cohort = None,
    every: int = 1,
    how: str | None = None,
    chunk: int | None = None,
    splits: Sequence[str] = ("test", "val"),
    guests: bool = False,
    own: bool = False,
    microscope: bool = False,
    folder: str | Path | None = None,
    checkpoint_every: float = 30.0,
    device: str | torch.device | None = None,
    progress: bool | None = None,
    upto: int | None = None,
    threads: int = 1,
    precision: str = "float32",
) -> Record:
    """Run a federation and return its Record.

    cohort: clients per round (None: all). every: evaluation period in rounds. how:
    "loop" or "vmap" (never changes a number beyond rounding; None: loop on a CPU, vmap
    on a GPU). threads: so many clients at once in the loop, which pays where a client
    is convolutions, and changes no bit. precision: of local training, "float32", "tf32"
    (on a GPU) or "bf16"; the last two are quicker and change the numbers. folder:
    where checkpoint and record are kept; an unfinished run there is continued to the
    same bits, a finished one is returned, one that diverged raises again. guests:
    also score clients that never take part. own: also score every client's model as
    it was uploaded, before averaging (moment "own"), where whole models are uploaded;
    all clients must train in every round. microscope: also record drift, conflict and
    update scale per round. upto: stop before that round, as a kill would.
    """
    task = method.task if task is None else task
    check(
        method,
        task,
        rounds,
        cohort,
        every,
        how,
        chunk,
        splits,
        own,
        guests,
        threads,
        precision,
    )
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    how = how or ("loop" if device.type == "cpu" else "vmap")
    if precision == "tf32" and device.type != "cuda":
        raise ValueError(
            f"precision = 'tf32' on {device.type}: tensor cores are a GPU's; give "
            "'float32' or 'bf16'"
        )
    task = task.to(device)
    method = bind(method, task)
    folder = None if folder is None else Path(folder)
    if folder is not None and (folder / "done").exists():
        done = same_run(
            Record.load(folder),
            Record.new(method, task, rounds, seed, cohort, every, how, precision),
            folder,
        )
        if "diverged" in done.meta:
            raise Diverged(**done.meta["diverged"], record=done)
        return done
    with torch.no_grad():
        return _run(
            method,
            task,
            rounds,
            seed,
            cohort,
            every,
            how,
            chunk,
            tuple(splits),
            guests,
            own,
            microscope,
            folder,
            checkpoint_every,
            progress,
            upto,
            threads,
            precision,
        )


def bind(method, task):
    """The method on the task that is really used (moved to a device),
    wrappers included.
    """
    more = (
        {"inner": bind(method.inner, task)}
        if getattr(method, "inner", None) is not None
        else {}
    )
    return replace(method, task=task, **more)


def _run(
    method,
    task,
    R,
    seed,
    cohort,
    every,
    how,
    chunk,
    splits,
    guests,
    own,
    microscope,
    folder,
    checkpoint_every,
    progress,
    upto,
    threads,
    precision,
):
    all_, hears = torch.arange(task.C), listens(method)
    record, state = (
        Record.new(method, task, R, seed, cohort, every, how, precision),
        None,
    )
    if folder is not None and (folder / "checkpoint").exists():
        state, record = restore(folder / "checkpoint", task.x.device, record)
        record.meta.pop("unfinished", None)
    bar = tqdm(
        total=R,
        initial=0 if state is None else state["t"],
        desc=record.meta["method"],
        leave=False,
        disable=not (sys.stderr.isatty() if progress is None else progress),
        unit="round",
    )
    began = saved = time.time()

    go = lambda t: Clients(method, task, seed, t, R, how, chunk, threads, precision)
    key = lambda t: fold(torch.tensor(seed, device=task.x.device), t, -999)

    def asking(clients, run, shards):
        def ask(question, tree=None):
            tree = {} if tree is None else tree
            out = run.each(
                lambda m, s: question(tree, m, s),
                (pick(clients, shards[0]),),
                shards,
                "ask",
            )
            record.count(
                "ask",
                {f"{question.__name__}.{k}": v for k, v in tree.items()},
                once=True,
            )
            record.count(
                "answer", {f"{question.__name__}.{k}": v for k, v in out.items()}
            )
            return out

        return ask

    w = task.init(seed)
    if state is None:
        first = go(-1)
        shards = first.shards(all_)
        mine = (
            first.each(lambda s: method.client(w, s), (), shards, "client")
            if keeps(method)
            else {}
        )
        mine = tmap(torch.Tensor.contiguous, mine)
        r = Round(-1, R, key(-1), asking(mine, first, shards), all_)
        state = {"server": method.server(w, r), "clients": mine, "t": 0}

    while True:
        t, server, clients = state["t"], state["server"], state["clients"]
        if upto is not None and t >= upto:
            record.meta["unfinished"] = True
            break
        last, look = t == R, t % every == 0 or t == R
        run_, ids = go(t), cohort_of(method, task, seed, t, cohort)
        S = run_.shards(ids)
        SA = run_.shards(all_) if look or method.download == "all" else None
        who = SA if method.download == "all" else S
        if hears and len(who[0]) and not last:
            run_.keep(
                lambda *a: (method.receive(*a), {}),
                method.send(server, who[0]),
                clients,
                who,
                "receive",
            )
        if look:
            # changes nothing
            hear = (
                {"hear": torch.isin(all_, who[0]).to(task.x.device)}
                if hears and last
                else None
            )
            pre = score(
                method, method.send(server, all_), clients, run_, SA, splits, hear=hear
            )
            record.score(t, "pre", pre)
            if guests and task.guests:
                G = run_.shards(-1 - torch.arange(len(task.guests)))
                down = method.send(server, G[0])
                new = run_.each(
                    lambda d, s: method.receive(d, method.client(w, s), s),
                    (down,),
                    G,
                    "guest",
                )
                there = [k for k in splits if k == "test" or not lacking(task, k)]
                record.score(t, "guest", score(method, down, new, run_, G, there))
        if last:
            break
        down = method.send(server, ids)
        up = run_.keep(method.local, down, clients, S, "local") if len(ids) else {}
        bad = (
            unfinite([*leaves(up), *(x[ids.to(x.device)] for x in leaves(clients))])
            if up
            else None
        )
        if bad is not None:
            record.meta["diverged"] = {"client": int(ids[bad]), "round": t}
            record.finish(time.time() - began)
            if folder is not None:
                record.save(folder)
                (folder / "checkpoint").unlink(missing_ok=True)
            raise Diverged(int(ids[bad]), t, record)
        if method.post and look:
            # who was absent has the same model as before
            post = {k: subset(v, method.post) for k, v in pre.items()}
            if len(ids):
                post = put(
                    post,
                    ids.to(task.x.device),
                    score(
                        method, down, pick(clients, ids), run_, S, splits, method.post
                    ),
                )
            record.score(t, "post", post)
        if own and look and set(task.shapes) <= set(up.get("w", {})):
            record.score(
                t, "own", score(Method(task), {"w": up["w"]}, clients, run_, SA, splits)
            )
        log = look_closer(task, down, up) if microscope and "w" in up else {}
        if up:  # nobody online: the round passes
            record.count("down", down)
            record.count("up", up)
            server = method.aggregate(
                server, up, Round(t, R, key(t), asking(clients, run_, S), ids)
            )
            log |= server.pop("log", {})
        up = down = None  # a model per client, twice: not into the next round
        record.log(t, ids, log)
        state = {"server": server, "clients": clients, "t": t + 1}
        if folder is not None and time.time() - saved >= checkpoint_every:
            record.add_time(time.time() - began)
            began = saved = time.time()
            save(folder / "checkpoint", state, record)
        bar.update()
        if look and not bar.disable:
            bar.set_postfix_str(record.headline())
    bar.close()
    record.finish(time.time() - began)
    record.state = state
    if folder is not None and "unfinished" in record.meta:
        save(folder / "checkpoint", state, record)
    elif folder is not None:
        record.save(folder)
        (folder / "checkpoint").unlink(missing_ok=True)
    return record


def lacking(task, split):
    """Has a guest no rows of this split?"""
    return any(not len(g[("all", "val", "test").index(split)]) for g in task.guests)


def unfinite(stacks):
    """The first row [M] at which some tensor [M, ...] holds a
    non-finite value, or None.
    """
    sums = [x.reshape(len(x), -1).sum(1) for x in stacks if x.is_floating_point()]
    ok = torch.stack(sums).isfinite().all(0) if sums else torch.tensor(True)
    return None if bool(ok.all()) else int((~ok).nonzero()[0])


def look_closer(task, down, up):
    """Drift |w_i - w| [M], conflict [M] (share of the cohort whose update points
    against mine), update scale U_s (FedGA 5).
    """
    same = {k: v for k, v in down["w"].items() if k in up["w"]} if "w" in down else None
    if not same:
        return {}
    n = task.buffers
    G = rows(sub(without({k: up["w"][k] for k in same}, n), without(same, n)))  # [M, P]
    against = (G @ G.T < 0).to(G.dtype)
    return {
        "drift": G.norm(dim=1),
        "conflict": against.sum(1) / max(1, len(G) - 1),
        "update_scale": G.mean(0).square().mean(),
    }


# ---------------------------------------------------------------- checkpoints
def save(path, state, record):
    """Write atomically: a checkpoint is whole or it is the one before.

    First line: its checksum.
    """
    buf = io.BytesIO()
    torch.save({"state": state, "record": record.pack()}, buf)
    path.parent.mkdir(parents=True, exist_ok=True)
    whole(
        path,
        lambda f: f.writelines(
            (
                hashlib.sha256(buf.getbuffer()).hexdigest().encode(),
                b"\n",
                buf.getbuffer(),
            )
        ),
    )


def restore(path, device, record):
    """State and record of a checkpoint; a truncated or changed file,
    or one of another run, is refused.
    """
    head, _, body = path.read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != head:
        raise ValueError(
            f"checkpoint {path} is damaged (its checksum does not fit); delete it to "
            "start this run again"
        )
    got = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    return got["state"], same_run(record.unpack(got["record"]), record, path)


def same_run(got, want, path):
    """Refuse to take up what another run has left behind."""
    for k in (
        "method",
        "parameters",
        "task",
        "n",
        "rounds",
        "seed",
        "cohort",
        "every",
        "precision",
    ):
        a, b = (json.dumps(r.meta.get(k), sort_keys=True) for r in (got, want))
        if a != b:
            raise ValueError(
                f"{path} belongs to another run: {k} is {a:.90} there, {b:.90} here; "
                "give each run its own folder"
            )
    return got


def check(
    method,
    task,
    rounds,
    cohort,
    every,
    how,
    chunk,
    splits,
    own=False,
    guests=False,
    threads=1,
    precision="float32",
):
    """Refuse a run that makes no sense, naming the value."""
    if task is None:
        raise ValueError("run needs a task: FedAvg(task), or run(method, task, ...)")
    if (
        not isinstance(rounds, int)
        or not isinstance(every, int)
        or rounds < 0
        or every < 1
    ):
        raise ValueError(
            f"rounds = {rounds}, every = {every}: give whole numbers, rounds >= 0 and "
            "every >= 1"
        )
    if (
        cohort is not None
        and not callable(cohort)
        and not (isinstance(cohort, int) and 1 <= cohort <= task.C)
    ):
        raise ValueError(
            f"cohort = {cohort}: the task {task.name!r} has {task.C} clients; give 1 "
            f"to {task.C}, None for all, or a function from the round to their numbers"
        )
    if own and method.who != "all" and cohort not in (None, task.C):
        raise ValueError(
            f"own = True with cohort = {cohort}: every client's own model is scored, "
            "so let all of them train: cohort None"
        )
    if how not in (None, "loop", "vmap"):
        raise ValueError(f"how = {how!r}: give 'loop', 'vmap' or None")
    if not isinstance(threads, int) or threads < 1 or (threads > 1 and how == "vmap"):
        raise ValueError(
            f"threads = {threads} with how = {how!r}: give a whole number >= 1, more "
            "than 1 only with how 'loop'"
        )
    if precision not in ("float32", "tf32", "bf16"):
        raise ValueError(f"precision = {precision!r}: give 'float32', 'tf32' or 'bf16'")
    if chunk is not None and chunk < 1:
        raise ValueError(
            f"chunk = {chunk}: give a positive number of clients, or None for the "
            "whole cohort"
        )
    if isinstance(method, Wrap) and method.inner is None:
        raise ValueError(
            f"{type(method).__name__} wraps a method and inner is None: give "
            f"inner={method.around}(task, ...), or build it with method.make"
        )
    if guests and not task.guests:
        raise ValueError(
            f"guests = True, and {task.name!r} has none: name a domain to leave out "
            "(guest: ...)"
        )
    inside = method
    while isinstance(inside, Wrap):
        inside = inside.inner
    if isinstance(inside.step, Private) and task.buffers:
        raise ValueError(
            f"Private steps on {type(task.network).__name__}: its batch norm "
            f"({task.buffers[0]}) mixes the rows of a batch, so no gradient is a row's "
            "own; take norm: group"
        )
    if method.needs_groups and task.groups is None:
        raise ValueError(
            f"{type(method).__name__} needs to know the groups, and {task.name!r} has "
            "none: give the task a sensitive attribute (data census or acs, or groups: "
            "{by: parity})"
        )
    bare = [c for c in range(task.C) if not len(task.val[c])]
    if method.needs_val and bare:
        raise ValueError(
            f"{type(method).__name__} needs validation rows at every client; client "
            f"{bare[0]} of {task.name!r} has none ({len(bare)} in all): give the task "
            "a validation part, or larger clients"
        )
    unknown = [s for s in splits if s not in ("test", "val", "all")]
    if unknown or not splits:
        raise ValueError(
            f"splits = {splits}: give some of 'test', 'val' and 'all' (the "
            "training rows)"
        )
