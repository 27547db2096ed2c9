"""Two towers with random weights, and small tasks on random features, for tests of what is trained beside a frozen CLIP."""
import torch
from toys_core import SIZES, rows

from fedlib.clip import IMAGE, StandIn, TextTower, vocabulary
from fedlib.nets.clip import Adapter, Prompts
from fedlib.task import Task

NAMES = tuple(f"latin small letter {c}" for c in "abdefghjmn")


def towers(d=6, seed=0, width=8, context=32):
    """A StandIn with random weights: d features, tokens of `width`, and a logit scale of 5. Its image tower has d = 64."""
    g, words = torch.Generator().manual_seed(seed), vocabulary()
    w = TextTower(len(words), width, context=context, d=d).init(g) | {f"image.{k}": v for k, v in IMAGE.init(seed).items()}
    w["text.words"] = 0.5 * torch.randn(w["text.words"].shape, generator=g)
    return StandIn(w | {"scale": torch.tensor(5.0).log()}, words, 16)


def toy_towers(classes=3, d=6, seed=0, network="Adapter", dtype=torch.float64, sizes=SIZES, batch=4, a=None, groups=None, **more):
    """(towers, task): unequal clients and two guests as in `toys_core.toy`, rows near the text feature of their class.

    network: "Adapter" or "Prompts" (M = 2 unless `more` says otherwise).
    """
    model, g = towers(d, seed), torch.Generator().manual_seed(seed)
    kind, more = (Adapter, more) if network == "Adapter" else (Prompts, {"M": 2} | more)
    net = kind(d, classes, NAMES[:classes], model, **more)
    n = [s + 10 for s in (*sizes, 10, 0)]
    y = torch.randint(0, classes, (sum(n),), generator=g)
    x = (3 * net.text[y] + torch.randn(sum(n), d, generator=g)).to(dtype)
    own, C = rows(n), len(sizes)
    train, val, test = (tuple(r[s] for r in own) for s in (slice(10, None), slice(0, 4), slice(4, 10)))
    if groups is not None and a is None:
        a = torch.randint(0, groups.A, (sum(n),), generator=g)
        x[:, 0] = a
    return model, Task("toy towers", net, x, y, train[:C], val[:C], test[:C], K=classes, a=a, groups=groups,
                       guests=tuple(zip(train[C:], val[C:], test[C:])), batch=batch)
