"""EquFL: the server condenses its own models into rows, and corrects their bias."""

from dataclasses import dataclass

import torch

from ...core.local import grad
from ...core.method import hp
from ...core.random import fold, tag, uniform
from ...core.tree import onehot, pick, scale, sqnorm, sub, tmap, without
from ...pieces import condense, surrogates
from .calibrated import GaussianUpdate
from .collecting import Collecting

METRICS = ("EO", "DP", "CAL", "CON")


@dataclass(frozen=True)
class EquFL(Collecting):
    """Collect the first global models, condense them to rows S, descend on S's bias.

    When the Server Steps In: Calibrated Updates for Fair Federated Learning,
    Algorithms 1 and 2. F: the surrogate of EO, DP, CAL or CON; p < q: two rounds.

        S    = argmin E |train(w^p; S) - w^q|^2 / |w^p - w^q|^2     eq:equfl-condense
        g_s  = grad F(w^t; S)                                       eq:equfl-update
        w   <- w - lr (AR(g_1 .. g_M) + lam g_s)                    eq:calibrated

    These are its equations 5, 12 and 6. Clients send nothing more.

    The paper's own: the metrics of `target`, with "Multi" for the shortest vector in
    the hull of the four gradients (MGDA) and "Sum" for their plain sum; size; net;
    source = "condensed"; form = "ce"; at = "start"; and of `Collecting` which models.
    Readings, where the paper is silent or can be read in two ways: start; labels, which
    are matched from the last model's answers ("soft", rounded in the end as "hard") or
    from classes in turn ("balanced"); the length of g_s (scale), its own, that of the
    aggregate, or times the local steps; normalise; and how the matching runs (lr_q,
    outer, J, reach, rows, pool: see `condense.Matching` and `condense.proxy`).
    Variants: labels "model" and "each", the answers of the last, or of every round's
    model to the matched rows; DP and CON read no labels. Controls: source = "start"
    leaves the rows as they were, "real" asks the clients for rows, as no server should.
    """

    target: str = hp("EO", "the bias to reduce", "EquFL", (*METRICS, "Multi", "Sum"))
    size: int = hp(
        1000, "rows of S", "EquFL", (2, 10**6), grid=(100, 250, 500, 1000, 1500, 2000)
    )
    net: str = hp(
        "standard", "that retraces", "EquFL", ("same", "standard", "deep", "wide")
    )
    source: str = hp(
        "condensed", "where S comes from", "EquFL", ("condensed", "start", "real")
    )
    start: str = hp("schema", "rows before matching", "a choice", ("schema", "noise"))
    labels: str = hp(
        "soft", "labels", "EquFL III-B", ("soft", "hard", "balanced", "model", "each")
    )
    lr_q: float = hp(
        0.001, "rate of the labels", "the least that learns", grid=(0, 0.001, 0.01, 0.1)
    )
    form: str = hp("ce", "what EO and DP compare", "EquFL", surrogates.FORMS)
    at: str = hp(
        "start", "where the gradient is taken", "EquFL, eq. 9", ("start", "aggregated")
    )
    scale: str = hp(
        "raw", "length of g_s", "a choice, eq. 12", ("raw", "aggregate", "steps")
    )
    normalise: str = hp("l2", "scaling before MGDA", "a choice", ("none", "l2", "loss"))
    outer: int = hp(300, "outer steps of the matching", "a choice")
    J: int = hp(10, "inner steps of the matching", "a choice", (1, 10**4))
    reach: int = hp(10, "largest distance of a pair", "a choice", (1, 10**6))
    rows: int = hp(0, "rows of S in an inner step; 0: all", "a choice")
    pool: int = hp(4000, "rows on which another network learns", "a choice", (2, 10**7))

    card = GaussianUpdate.card._replace(
        line="the server condenses its models and steps against their bias"
    )
    needs_groups = True

    def server(self, w, r):
        state, task = super().server(w, r), self.task
        # what cannot be made at T0 is refused now
        two = condense.start(task, state["in"]["w"], task.groups.A, 0, self.start)
        surrogates.fairness("EO", task, condense.finish(two))
        return state

    def update(self, server, w, new, r):
        log = {}
        if "S" not in server:
            met = server["met"]  # an empty cohort leaves no model
            trail, window = pick(server["trail"], met), server["window"][met]
            S, log = self.synthetic(trail, window, r)
            server = server | {"S": S}
        g, values = self.direction(w if self.at == "start" else new, server["S"])
        return server, self.scaled(g, w, new), log | values

    def direction(self, w, S):
        """grad F(w; S), and for several metrics one direction for all."""
        targets = METRICS if self.target in ("Multi", "Sum") else (self.target,)
        if self.labels == "each":
            S = S | {"q": self.answers(w, S["x"])}
        F = [surrogates.fairness(m, self.task, S, self.form) for m in targets]
        values, v = torch.stack([f(w) for f in F]), without(w, self.task.buffers)
        gs = [grad(lambda v, f=f: f(w | v))(v) for f in F]  # eq:equfl-update
        if self.target == "Multi":
            g, c = surrogates.min_norm(gs, self.normalise, values)
            return g, {"surrogate": values, "mgda": c}
        return tmap(lambda *x: sum(x), *gs), {"surrogate": values}

    def scaled(self, g, w, new):
        """g in the length that `scale` names; w -> new is what was aggregated."""
        if self.scale == "aggregate":
            moved = sub(*(without(v, self.task.buffers) for v in (w, new)))
            aggregate = sqnorm(moved).sqrt() / self.inner.lr  # |AR(g_1 .. g_M)|
            return scale(g, aggregate / sqnorm(g).sqrt().clamp(min=1e-12))
        return scale(g, self.local_steps()) if self.scale == "steps" else g

    def local_steps(self):
        """Batches of a client per round, mean over clients."""
        inner, task = self.inner, self.task
        batches = lambda rows: -(-len(rows) // task.batch)
        passes = sum(inner.epochs * batches(rows) for rows in task.train)
        return inner.batches or passes / task.C

    # the rows S
    def synthetic(self, trail, window, r):
        """The rows S from the trail of the rounds `window`, and how well they match."""
        if self.source == "real":
            return self.collected(r), {}
        task, seed, log = self.task, int(r.key) % 2**31, {}
        last, labels = tmap(lambda x: x[-1], trail), self.labels
        first = "balanced" if labels == "balanced" else "soft"
        S = condense.start(task, last, self.size, seed, self.start, first)
        if self.source == "condensed":
            S, log = self.condensed(trail, window, S, seed)
        else:
            S = condense.finish(S)
        if labels == "model":  # "each" replaces them anew in `direction`
            S = S | {"q": self.answers(last, S["x"])}
        hard = {"q": onehot(S["q"].argmax(1), task.K, S["q"])}
        return S | hard if labels == "hard" else S, log

    def answers(self, w, x):
        """What model w says about rows x [n, ...]: probabilities [n, K], as labels."""
        return self.task.logits(w, x).softmax(1).detach()

    def condensed(self, trail, window, S, seed):
        """The rows that retrace the trail best, from the start S, and what to log.

        Runs with another target, lam, form, at or scale have the same: made once.
        """
        task, batch, column = self.task, self.rows or None, self.task.groups.column
        net, sizes = condense.server_net(self.net, task), (self.outer, self.J)
        how = condense.Matching(*sizes, self.reach, batch, column, lr_q=self.lr_q)

        def make():
            path, log = trail, {}
            if self.net != "same":
                path, agreement = condense.proxy(net, task, trail, seed, self.pool)
                log["agreement"] = torch.tensor(agreement)
            rows, losses = condense.condense(net, path, window, S, how, seed)
            log["matching"] = losses[-20:].mean()  # eq:equfl-condense
            return {"S": rows, "log": log}

        # all that proxy sees of the task, S has the shape and kind of its rows
        seen = task.network, task.groups, self.pool
        made = condense.shared((net, trail, window, S, how, seed, seen), make)
        return made["S"], made["log"]

    def collected(self, r):
        """Rows of the clients themselves, equally many of each (a control)."""
        k = -(-self.size // len(r.ids))
        got = r.ask(self.own_rows, {"rows": torch.zeros(k)})
        x, y = (v.flatten(0, 1)[: self.size] for v in (got["x"], got["y"]))
        return {"x": x, "q": onehot(y.long(), self.task.K, x)}

    def own_rows(self, q, mine, shard):
        """As many training rows as q has entries, drawn with replacement."""
        b = shard.all("all")
        u = uniform(fold(shard.key, tag("own rows")), q["rows"].shape)
        i = (u * shard.n).long().clamp(max=len(b.y) - 1)
        return {"x": b.x[i], "y": b.y[i].to(b.x.dtype)}
