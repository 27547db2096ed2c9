"""Make `import torchvision` work beside a CPU-only torch: import this module first.

The torchvision wheel on package indexes is a CUDA build. Beside a CPU-only torch its
library of compiled operators cannot be loaded, and then the import itself fails with
"operator torchvision::nms does not exist". Data sets, transforms and models use none of
these operators, so it is enough to declare the missing names. Where the library loads,
nothing is changed.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

_declared = None  # a torch.library.Library, alive as long as the names are needed


def ensure_torchvision() -> str:
    """Before torchvision is imported: "native" if its operators load, else "stub".

    A stub declares the operators' names. May be called any number of times. With "stub"
    the operators themselves (nms, image files) still fail when they are used.
    """
    global _declared
    if hasattr(torch.ops.torchvision, "nms"):
        return "native" if _declared is None else "stub"
    package = importlib.util.find_spec("torchvision")
    if package is None:
        raise ModuleNotFoundError("install torchvision for its networks and data sets")
    try:
        for library in sorted(Path(package.origin).parent.glob("_C*.so")):
            torch.ops.load_library(str(library))
        if hasattr(torch.ops.torchvision, "nms"):
            return "native"
    except (OSError, ImportError):
        pass  # compiled for another torch
    _declared = torch.library.Library("torchvision", "FRAGMENT")
    signature = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    for operator in ("nms", "qnms"):
        _declared.define(operator + signature)
    return "stub"


BACKEND = ensure_torchvision()
