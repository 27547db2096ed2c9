"""The folders of the papers as a package, so that processes of a pool find what they
unpickle; repro.papers imports it.

papers/fft-gp, which is no identifier, is papers.fft_gp.
"""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path


class Hyphens:
    """Finds the folder of a paper whose name has hyphens."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        """A folder without __init__.py is a package, too: importlib's protocol."""
        package, _, paper = name.rpartition(".")
        folder = Path(__file__).parent / paper.replace("_", "-")
        if package != __name__ or not (folder / "paper.yaml").exists():
            return None
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [str(folder)]
        return spec


sys.meta_path.append(Hyphens)
