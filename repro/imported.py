"""What notebooks import, once: the kernels of repro/draw.py are forks of this."""

import ipykernel.kernelapp  # noqa: F401
import papermill  # noqa: F401
import pyarrow.dataset  # noqa: F401
import seaborn  # noqa: F401

import fedlib.plots
import fedlib.study.experiment
import repro.ledger  # noqa: F401

fedlib.study.experiment.identity.state()  # a second, for all of them
