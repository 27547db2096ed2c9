"""Open the notebooks in JupyterLab: python -m repro.lab [options of jupyter lab]

Notebooks read params.yaml and write to results/, so their kernels start in the root of
the repository, as in the pipeline, and not in the notebook's folder.
"""

import os
import sys
from pathlib import Path

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

ROOT = Path(__file__).parents[1]


class FromRoot(AsyncMappingKernelManager):
    """Starts kernels in the folder that the server shows, whatever the notebook's."""

    def cwd_for_path(self, path: str, **_) -> str:
        return self.root_dir


def main(argv: list[str]) -> None:
    """Start the server and open a browser at the notebooks."""
    from jupyterlab.labapp import LabApp

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a second costs more than it brings
    options = [
        f"--ServerApp.root_dir={ROOT}",
        f"--ServerApp.allow_root={os.geteuid() == 0}",  # who is root is in a container
        "--ServerApp.kernel_manager_class=repro.lab.FromRoot",
        "--LabApp.default_url=/lab/tree/notebooks/labs",
    ]
    LabApp.launch_instance([*options, *argv])


if __name__ == "__main__":
    main(sys.argv[1:])
