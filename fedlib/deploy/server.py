"""The server of a real federation: the round of fedlib.core.engine, with messages in
place of function calls.

    record = serve(federation, exchange, "server")    exchange: who carries the messages

A client that fails, answers too late or answers nonsense is left out of the round, with
one line in the log; the round completes with the others. The state is saved after every
round, and serve() on the same folder goes on from there.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import torch

from ..core import checkpoint, clients
from ..core.check_run import check_run
from ..core.files import whole
from ..core.method import Round, acts_on_download
from ..core.record import Record
from ..core.task import SPLITS
from ..core.tree import leaves, pick, put, stack, subset, without
from .act import ABOUT
from .rows import server_task
from .talk import Example, Left, Talk, key


def serve(federation, exchange, folder=None, log=print):
    """Run the federation and return its Record, as engine.run does.

    exchange(requests, wait) -> {c: tree or Exception}; requests
    [(c, kind, about, tree)], one per client: tree a tree of tensors, about a flat
    dict of str, int and bool. It returns when all have answered or `wait` seconds have
    passed: whoever is missing is late. The text of an Exception is the reason that the
    log gives. Before round 0 every client must answer.
    folder: where state and record are kept, None: nowhere. log: takes one line of text.
    """
    folder = None if folder is None else Path(folder)
    with torch.no_grad():
        return _serve(federation, exchange, folder, log)


def _serve(fed, exchange, folder, log):
    R, everybody, example, began = (
        fed.rounds,
        torch.arange(fed.C),
        Example(fed),
        time.time(),
    )
    example.rehearse()
    steps = [0] * fed.C
    n = known(folder, fed) or introduced(
        Talk(fed, example, exchange, log, -1, steps), folder
    )
    task = server_task(fed, n)
    method = fed.make(task)
    check_run(
        method, task, R, fed.cohort, fed.every, None, None, ("test", "val"), fed.own
    )
    record, hears = (
        Record.new(method, task, R, fed.seed, fed.cohort, fed.every, "deployed"),
        acts_on_download(method),
    )
    if folder is not None and (folder / "done").exists():
        return checkpoint.same_run(Record.load(folder), record, folder)
    if folder is not None and (folder / "checkpoint").exists():
        state, record = checkpoint.restore(folder / "checkpoint", task.x.device, record)
        log(f"going on with round {state['t']} of {R}")
    else:
        first = Talk(fed, example, exchange, log, -1, steps, n)
        r = Round(
            -1, R, key(fed, -1), first.asking(method, everybody, record), everybody
        )
        state = {
            "server": method.server(task.init(fed.seed), r),
            "steps": steps,
            "t": 0,
        }

    while True:
        t, server, steps = state["t"], state["server"], list(state["steps"])
        last, look = t == R, t % fed.every == 0 or t == R
        talk, ids = (
            Talk(fed, example, exchange, log, t, steps, n),
            clients.cohort_of(method, task, fed.seed, t, fed.cohort),
        )
        who = everybody if method.download == "all" else ids
        heard = (
            talk.send("receive", who, method.send(server, who))
            if hears and len(who) and not last
            else ()
        )
        if look:
            down = method.send(server, everybody)
            one = pick(down, 0)
            pre = talk.score(
                "pre", everybody, down, one, hear=who.tolist() if hears and last else ()
            )
            record.score(t, "pre", pre)
        if last:
            break
        ids = talk.left(ids)
        down = method.send(server, ids)
        up = talk.send("local", ids, down)
        if method.post and look:  # who was absent has the same model as before
            here = talk.left(ids)
            post = talk.score(
                "post",
                here,
                method.send(server, here) if len(here) else {},
                one,
                method.post,
            )
            record.score(
                t,
                "post",
                put(
                    {k: subset(v, method.post) for k, v in pre.items()},
                    here,
                    pick(post, here),
                ),
            )
        if fed.own and look:
            own(talk, record, task, up, one)
        ids, new = aggregated(talk, method, server, ids, down, up, record)
        record.log(t, ids, new.pop("log", {}))
        if method.download == "all":
            steps = [2 * t + 1 if c in heard else s for c, s in enumerate(steps)]
        state = {
            "server": new,
            "steps": [
                2 * t + 2 if c in ids.tolist() else s for c, s in enumerate(steps)
            ],
            "t": t + 1,
        }
        record.add_time(time.time() - began)
        began = time.time()
        if folder is not None:
            checkpoint.save(folder / "checkpoint", state, record)
        log(f"round {t} of {R}: {len(ids)} clients")
    record.finish(time.time() - began)
    record.state = state
    if folder is not None:
        record.save(folder)
        (folder / "checkpoint").unlink(missing_ok=True)
    return record


def aggregated(talk, method, server, ids, down, up, record):
    """(clients that completed the round, the server's next state).

    With nobody left, the state stays as it is.
    """
    t, ids = talk.t, talk.left(ids)
    if len(ids):
        record.count("down", down)
        record.count("up", stack([up[c] for c in ids.tolist()]))
    while len(ids):
        if method.who == "all" and len(ids) < talk.fed.C:
            talk.log(
                f"round {t} passes: {talk.fed.method['name']} needs the answers of all "
                f"{talk.fed.C} clients"
            )
            break
        try:
            r = Round(
                t,
                talk.fed.rounds,
                key(talk.fed, t),
                talk.asking(method, ids, record),
                ids,
            )
            new = method.aggregate(server, stack([up[c] for c in ids.tolist()]), r)
        except Left:  # somebody failed at a question: the same again without it
            ids = talk.left(ids)
            continue
        except RuntimeError as e:  # torch's own: numbers too large for a solver
            why = " ".join(str(e).split())
            talk.log(
                f"round {t} passes: {talk.fed.method['name']} cannot aggregate these "
                f"answers ({why:.200})"
            )
            break
        if all(
            bool(x.isfinite().all())
            for x in leaves(without(new, ("log",)))
            if x.is_floating_point()
        ):
            return ids, dict(new)
        talk.log(f"round {t} passes: the new state of the server is not finite")
        break
    return ids[:0], dict(server)


def own(talk, record, task, up, one):
    """Score every client's model as it was uploaded, where whole models are."""
    like = talk.example.answer("local", ABOUT | {"t": talk.t}, one)
    if set(task.shapes) <= set(like.get("w", {})):
        ids = torch.tensor(sorted(up), dtype=torch.long)
        downs = {"w": stack([up[c]["w"] for c in ids.tolist()])}
        record.score(talk.t, "own", talk.score("own", ids, downs, {"w": like["w"]}))


def introduced(talk, folder):
    """{"train": [C], "val": [C], "test": [C]}: how many rows every client says it has;
    kept for a restart.
    """
    got = talk.send("client", torch.arange(talk.fed.C))
    n = {s: [int(got[c]["n"][s]) for c in range(talk.fed.C)] for s in SPLITS}
    for c in range(talk.fed.C):
        if not all(
            low <= n[s][c] < 2**31 for s, low in (("train", 1), ("val", 0), ("test", 1))
        ):
            raise ValueError(
                f"client {c} says that it has { ({s: n[s][c] for s in SPLITS}) } rows"
            )
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        whole(
            folder / "clients.json",
            lambda f: f.write(
                json.dumps({"federation": talk.fed.digest, "n": n}).encode()
            ),
        )
    return n


def known(folder, fed):
    """The same of an earlier start on this folder, or None."""
    path = folder and folder / "clients.json"
    if not path or not path.exists():
        return None
    was = json.loads(path.read_text())
    if was["federation"] != fed.digest:
        raise ValueError(
            f"{folder} belongs to another federation ({was['federation']} there, "
            f"{fed.digest} in {fed.at}): give each federation its own folder"
        )
    return was["n"]
