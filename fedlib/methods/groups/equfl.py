"""EquFL: the server learns rows that explain its own trail of models,
and steers by their bias.
"""

from __future__ import annotations

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
    """Collect the global models of the first rounds, condense them into rows S, then go
    down the bias that S shows.

    When the Server Steps In: Calibrated Updates for Fair Federated Learning,
    Algorithms 1 and 2.

        S      = argmin E_{p<q} |train(w^p; S) - w^q|^2 / |w^p - w^q|^2
                                                            eq:equfl-condense   (eq. 5)
        g_s    = grad F(w^t; S),  F the surrogate of EO, DP, CAL or CON
                                                            eq:equfl-update     (eq. 12)
        w     <- w - lr (AR(g_1 .. g_M) + lam g_s)          eq:calibrated       (eq. 6)

    Clients do what they did before and send nothing more. target "Multi" takes the
    shortest vector in the hull of the four gradients (MGDA), "Sum" their plain sum.
    `source`: "condensed", or two controls: "start" leaves the rows as they were before
    matching, "real" asks the clients for rows, which no server should. Which models are
    collected: `Collecting`.
    """

    target: str = hp(
        "EO", "the bias to reduce", choices=(*METRICS, "Multi", "Sum"), source="EquFL"
    )
    size: int = hp(
        1000,
        "rows of S",
        range=(2, 10**6),
        grid=(100, 250, 500, 1000, 1500, 2000),
        source="EquFL",
    )
    net: str = hp(
        "standard",
        "network that S is condensed with",
        choices=("same", "standard", "deep", "wide"),
        source="EquFL",
    )
    source: str = hp(
        "condensed",
        "where S comes from",
        choices=("condensed", "start", "real"),
        source="condensed: EquFL",
    )
    start: str = hp(
        "schema",
        "rows before matching",
        choices=("schema", "noise"),
        source="a choice; noise: the literal reading",
    )
    labels: str = hp(
        "soft",
        "labels before matching, by the last model or balanced, and whether they "
        "stay soft",
        choices=("soft", "hard", "balanced"),
        source="a choice",
    )
    form: str = hp(
        "ce",
        "what EO and DP compare: cross-entropies or probabilities",
        choices=surrogates.FORMS,
        source="ce: EquFL",
    )
    at: str = hp(
        "start",
        "where the gradient is taken",
        choices=("start", "aggregated"),
        source="start: EquFL, eq. 9",
    )
    scale: str = hp(
        "raw",
        "length of g_s: its own, that of the aggregate, or times the local steps",
        choices=("raw", "aggregate", "steps"),
        source="a choice: EquFL, eq. 12 can be read in two ways",
    )
    normalise: str = hp(
        "l2",
        "scaling of the gradients before MGDA",
        choices=("none", "l2", "loss"),
        source="a choice",
    )
    outer: int = hp(
        300, "outer steps of the matching", range=(0, 10**6), source="a choice"
    )
    J: int = hp(10, "inner steps of the matching", range=(1, 10**4), source="a choice")
    reach: int = hp(
        10,
        "largest distance of a pair of checkpoints",
        range=(1, 10**6),
        source="a choice",
    )
    rows: int = hp(
        0,
        "rows of S in an inner step; 0: all",
        range=(0, 10**6),
        source="a choice: bounds the memory",
    )
    pool: int = hp(
        4000,
        "rows on which another network learns the trail",
        range=(2, 10**7),
        source="a choice",
    )

    card = GaussianUpdate.card._replace(
        line=(
            "the server condenses its trail of models and steps against the bias it "
            "finds there"
        )
    )
    needs_groups = True

    def server(self, w, r):
        state = super().server(w, r)
        # what cannot be made at T0 is refused now
        two = condense.start(
            self.task, state["in"]["w"], self.task.groups.A, 0, self.start
        )
        surrogates.fairness(
            "EO", self.task, condense.finish(self.task, two["x"], two["logits"])
        )
        return state

    def update(self, server, w, new, r):
        log = {}
        if "S" not in server:
            met = server["met"]  # nobody online: no model was sent
            S, log = self.synthetic(
                pick(server["trail"], met), server["window"][met], r
            )
            server = server | {"S": S}
        g, log_g = self.direction(w if self.at == "start" else new, server["S"])
        if self.scale == "aggregate":
            moved = sub(*(without(v, self.task.buffers) for v in (w, new)))
            g = scale(
                g,
                sqnorm(moved).sqrt()
                / self.inner.lr
                / sqnorm(g).sqrt().clamp(min=1e-12),
            )
        if self.scale == "steps":
            g = scale(g, self.local_steps())
        return server, g, log | log_g

    def direction(self, w, S):
        """grad F(w; S), and for several metrics one direction for all."""
        targets = METRICS if self.target in ("Multi", "Sum") else (self.target,)
        F = [surrogates.fairness(m, self.task, S, self.form) for m in targets]
        values = torch.stack([f(w) for f in F])
        # eq:equfl-update
        gs = [grad(lambda v, f=f: f(w | v))(without(w, self.task.buffers)) for f in F]
        if self.target == "Multi":
            g, c = surrogates.min_norm(gs, self.normalise, values)
            return g, {"surrogate": values, "mgda": c}
        return tmap(lambda *x: sum(x), *gs), {"surrogate": values}

    def synthetic(self, trail, window, r):
        """The rows S from the trail of the rounds `window`, and how well they match."""
        task, seed = self.task, int(r.key) % 2**31
        if self.source == "real":
            return self.collected(r), {}
        last, log = tmap(lambda x: x[-1], trail), {}
        S = condense.start(
            task,
            last,
            self.size,
            seed,
            self.start,
            "balanced" if self.labels == "balanced" else "soft",
        )
        if self.source == "condensed":
            net = condense.server_net(self.net, task)
            if self.net != "same":
                trail, agreement = condense.proxy(net, task, trail, seed, self.pool)
                log["agreement"] = torch.tensor(agreement)
            S, losses = condense.condense(
                net,
                trail,
                window,
                S,
                self.outer,
                self.J,
                self.reach,
                self.rows or None,
                task.groups.column,
                seed=seed,
            )
            log["matching"] = losses[-20:].mean()
        else:
            S = condense.finish(task, S["x"], S["logits"])
        return S | {
            "q": onehot(S["q"].argmax(1), task.K, S["q"])
        } if self.labels == "hard" else S, log

    def collected(self, r):
        """Rows of the clients themselves, equally many of each:
        a control that no server should have.
        """
        k = -(-self.size // len(r.ids))
        got = r.ask(self.own_rows, {"rows": torch.zeros(k)})
        x, y = (v.flatten(0, 1)[: self.size] for v in (got["x"], got["y"]))
        return {"x": x, "q": onehot(y.long(), self.task.K, x)}

    def own_rows(self, q, mine, shard):
        """As many training rows as q has entries, drawn with replacement."""
        b = shard.all("all")
        i = (
            (uniform(fold(shard.key, tag("own rows")), q["rows"].shape) * shard.n)
            .long()
            .clamp(max=len(b.y) - 1)
        )
        return {"x": b.x[i], "y": b.y[i].to(b.x.dtype)}

    def local_steps(self):
        """Batches of a client per round, mean over clients."""
        m = self.inner
        return (
            m.batches
            or sum(m.epochs * -(-len(r) // self.task.batch) for r in self.task.train)
            / self.task.C
        )
