"""No federation: what a client gets by itself."""

from dataclasses import dataclass

from ...core.method import Card, Method


@dataclass(frozen=True)
class Local(Method):
    """Every client trains its own model when it is online; nothing is shared.

        w_i <- local training of w_i on F_i                                     eq:local

    The control for every personalised method: what does federation add? The messages
    are empty.
    """

    card = Card("mcmahan2017", "each client trains alone (a control)")
    ruled = False
    post = ("personal",)

    def server(self, w, r):
        return {}

    def send(self, server, ids):
        return {}

    def client(self, w, shard):
        return {"w": w}

    def local(self, down, mine, shard):
        w = self.fit(self.loss, mine["w"], shard)  # eq:local
        return {"w": w}, {"n": shard.n}

    def aggregate(self, server, up, r):
        return {}

    def views(self, down, mine, shard):
        return {"personal": self.task.net(mine["w"])}
