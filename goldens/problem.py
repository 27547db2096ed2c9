"""The tiny federation that every package is given, and the file that its answers go to.

Four clients of 5, 12, 20 and 31 rows in four dimensions, three classes. Each client
labels its rows by a rule of its own, and the rules are opposed, so that updates
conflict. Two linear layers with relu between them, P = 43 parameters, in the order
weight, bias, weight, bias. Everything is float64, batches are the rows in their order:
no random number is shared with fedlib. Needs numpy and torch.
"""

import json
import platform
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

try:
    # some packages import it, and none of its operators is used here
    import torchvision  # noqa: F401
except ImportError:
    pass
except RuntimeError:  # the operators were compiled for another build of torch
    operators = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        operators.define(
            f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
        )

torch.set_num_threads(1)
torch.manual_seed(0)  # for what draws although nothing depends on it
torch.set_default_dtype(torch.float64)  # some packages make scalars of the default type

HERE = Path(__file__).parent
SIZES, INPUTS, HIDDEN, K = (5, 12, 20, 31), 4, 5, 3
ALL = tuple(range(len(SIZES)))
# the last batch of a client is incomplete, and is kept
LR, BATCH, EPOCHS, ROUNDS = 0.5, 8, 2, 2

rng = np.random.default_rng(1)
OWNER = np.repeat(np.arange(len(SIZES)), SIZES)
X = rng.normal(size=(len(OWNER), INPUTS))
RULE = (
    np.multiply.outer((1, -1, 1, -1), rng.normal(size=(INPUTS, K)))
    + rng.normal(size=(len(SIZES), INPUTS, K)) / 2
)
Y = np.einsum("nd,ndk->nk", X, RULE[OWNER]).argmax(1)
SHAPES = {
    "fc1.weight": (HIDDEN, INPUTS),
    "fc1.bias": (HIDDEN,),
    "fc.weight": (K, HIDDEN),
    "fc.bias": (K,),
}
START = np.concatenate(
    [rng.uniform(-1, 1, s).ravel() / np.sqrt(s[-1]) for s in SHAPES.values()]
)


def rows(client):
    """A client's rows, x [n, 4] and y [n]."""
    return torch.tensor(X[OWNER == client]), torch.tensor(Y[OWNER == client])


def flat(model):
    """The parameters of a module as one vector [P]."""
    return (
        torch.nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()
    )


def fill(model, vector=START):
    """The module with its parameters replaced by a vector [P]."""
    torch.nn.utils.vector_to_parameters(torch.tensor(vector), model.parameters())
    return model


class Answers:
    """What one package answered: <package>.npz holds arrays called golden/name,
    <package>.json says what each of them is.
    """

    def __init__(self, package, distributions):
        self.package, self.arrays, self.goldens = package, {}, {}
        self.versions = {d: version(d) for d in (*distributions, "torch", "numpy")}
        self.add(
            "data",
            "the federation of problem.py; no package was called",
            {},
            {
                "x": (X, "rows [N, 4]"),
                "y": (Y, "labels [N]"),
                "owner": (OWNER, "whose row it is [N]"),
                "start": (START, "parameters before the first round [P]"),
            },
        )

    def add(self, golden, call, arguments, arrays):
        """One golden: the call, its arguments, and {name: (array, what it is)}."""
        said = {}
        for name, (array, what) in arrays.items():
            self.arrays[f"{golden}/{name}"], said[f"{golden}/{name}"] = (
                np.asarray(array),
                what,
            )
        self.goldens[golden] = {"call": call, "arguments": arguments, "arrays": said}

    def save(self):
        about = {
            "package": self.package,
            "versions": self.versions | {"python": platform.python_version()},
            "made_by": f"goldens/make_{self.package}.py",
            "date": date.today().isoformat(),
            "goldens": self.goldens,
        }
        np.savez_compressed(HERE / f"{self.package}.npz", **self.arrays)
        (HERE / f"{self.package}.json").write_text(json.dumps(about, indent=1) + "\n")
        print(self.package, ", ".join(self.goldens))
