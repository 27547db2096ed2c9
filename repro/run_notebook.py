"""Run one notebook of the pipeline; called by its stages in dvc.yaml.

    python -m repro.run_notebook NOTEBOOK OUT_DIR

``tier`` and ``seed`` of params.yaml reach every notebook that declares them in its cell
tagged ``parameters``; studies read the rest of that file themselves.

The executed notebook lands in OUT_DIR under the notebook's own name, whole or not at
all: a run that fails leaves the last good result where it was, and its own half-done
notebook in runs/failed. Times, machine paths and random names are taken out, so that
the same code and parameters give the same bytes.
"""

from __future__ import annotations

import ast
import itertools
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from fedlib.cli.program import program
from fedlib.study import TIERS
from fedlib.study.spec import read
from repro.names import hint

COMMON = ("tier", "seed")
FAILED = Path("runs/failed")
KERNEL_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "SOURCE_DATE_EPOCH": "0",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "MPLBACKEND": "module://matplotlib_inline.backend_inline",
}


# ---------------------------------------------------------------- parameters
def declared(nb, path: Path) -> list[str]:
    """Names that the notebook's ``parameters`` cell assigns."""
    cells = [c.source for c in nb.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ValueError(f"{path} has {len(cells)} cells tagged `parameters`; mark one")
    body = ast.parse(cells[0]).body
    of = lambda s: getattr(s, "targets", [getattr(s, "target", None)])
    return [t.id for s in body for t in of(s) if isinstance(t, ast.Name)]


def parameters(names, file: Path) -> dict:
    """What a notebook that declares `names` is given from `file`."""
    tree = read(file)
    if (tier := tree.get("tier", TIERS[0])) not in TIERS:
        raise ValueError(f"{file}: no tier {tier!r}; {hint(tier, TIERS)}")
    return {k: tree[k] for k in COMMON if k in tree and k in names}


# ---------------------------------------------------------------- the same bytes
def same_bytes(nb, root: Path) -> str:
    """The notebook as text, without what differs between two runs of the same code.

    Left out: run times and other traces of the runner, cell ids made at random,
    the Python version. In outputs, `root` becomes ``.``, the interpreter's folder
    ``<python>``, a memory address ``0x...``; pandas' styled tables are numbered; texts
    printed in pieces are joined, since the clock cuts them.
    """
    import nbformat

    nb.metadata.pop("papermill", None)
    nb.metadata.get("language_info", {}).pop("version", None)
    plain = without_traces(root)
    for i, cell in enumerate(nb.cells):
        cell.id = f"cell-{i}"
        for trace in ("papermill", "execution"):
            cell.metadata.pop(trace, None)
        if cell.cell_type == "code":
            cell.outputs = plain(joined(cell.outputs))
    return nbformat.writes(nb) + "\n"


def without_traces(root: Path):
    """A function of outputs, dicts, lists and texts, that takes traces of the machine
    out of them."""
    base = sys.base_prefix
    folders = {sys.prefix: "<python>", f"{base}/lib": "<python>/lib", str(root): "."}
    tables: dict[str, str] = {}
    numbered = lambda m: tables.setdefault(m[0], f"T_{len(tables)}")
    # without its look-behind, the first takes minutes on base64
    traces = {
        r"(?<![^\s\"'])[^\s\"']*ipykernel_\d+/\d+\.py": "<cell>",
        r"\b0x[0-9a-f]{9,}": "0x...",
        r"\bT_[0-9a-f]{5}(?=[_\s\"])": numbered,
    }
    picture = lambda k: k.startswith("image/") and k != "image/svg+xml"

    def plain(value):
        if isinstance(value, dict):
            of = ((k, v if picture(k) else plain(v)) for k, v in value.items())
            return type(value)(of)
        if isinstance(value, list):
            return [plain(v) for v in value]
        if isinstance(value, str):
            for folder, name in folders.items():
                value = value.replace(folder, name)
            for trace, name in traces.items():
                value = re.sub(trace, name, value)
        return value

    return plain


def joined(outputs: list) -> list:
    """Printed texts that touch become one for stdout, then one for stderr."""
    from nbformat.v4 import new_output

    done = []
    of_text = lambda out: out.output_type == "stream"
    for printed, group in itertools.groupby(outputs, of_text):
        group = list(group)
        for name in ("stdout", "stderr") if printed else ():
            if text := "".join(out.text for out in group if out.name == name):
                done.append(new_output("stream", name=name, text=text))
        done += () if printed else group
    return done


# ---------------------------------------------------------------- the run
def execute(path: Path, given: dict, part: Path) -> None:
    """Run the notebook in a kernel of this interpreter, in the current folder,
    one thread by default.
    """
    import papermill
    from jupyter_client.manager import AsyncKernelManager

    class Manager(AsyncKernelManager):
        """Ends a kernel without the interrupt that comes first: one that is not quite
        idle yet would print that it was interrupted."""

        async def _async_interrupt_kernel(self):
            pass

    options = {"kernel_name": "python3", "progress_bar": False, "cwd": "."}
    options |= {"kernel_manager_class": Manager, "parameters": given}
    # nobody's start-up files, no shared history
    with tempfile.TemporaryDirectory() as home:
        profile = Path(home, "profile_default")
        profile.mkdir()
        quiet = "c.IPKernelApp.log_level = 'ERROR'\n"
        (profile / "ipython_kernel_config.py").write_text(quiet)
        own = KERNEL_ENVIRONMENT | os.environ | {"IPYTHONDIR": home}
        with patch.dict(os.environ, own):
            papermill.execute_notebook(str(path), str(part), **options)


def run(path: Path, out: Path, given: dict) -> None:
    """Execute `path` with `given` and move it to `out` once it is whole;
    RuntimeError when a cell fails.
    """
    import nbformat

    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(f".{out.stem}.part.ipynb")
    try:
        execute(path, given, part)
        part.write_text(same_bytes(nbformat.read(part, 4), Path.cwd()))
        os.replace(part, out)
    except Exception as error:
        kept = FAILED / path.parent.name / path.name
        kept.parent.mkdir(parents=True, exist_ok=True)
        if part.exists():
            os.replace(part, kept)
        raise RuntimeError(story(error, path, kept)) from error
    finally:
        part.unlink(missing_ok=True)


def story(error: Exception, path: Path, kept: Path) -> str:
    """What failed, for a reader who has only the terminal."""
    if not hasattr(error, "exec_count"):  # the kernel itself died, or was never there
        what = f"{path} failed: {type(error).__name__}: {error}"
        return f"{what}\nWhat had run by then: {kept}"
    trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()[-25:]
    lines = [f"{path} failed in cell [{error.exec_count}]:", ""]
    lines += [f"    {line}" for line in error.source.splitlines()]
    lines += ["", *trace, "", f"{error.ename}: {error.evalue}"]
    return "\n".join([*lines, f"The notebook up to there: {kept}"])


def main(notebook: Path, out_dir: Path) -> int:
    """Run a notebook; the exit status."""
    import nbformat

    start, out = time.perf_counter(), out_dir / notebook.name
    if not notebook.is_file():
        there = hint(notebook, sorted(notebook.parent.glob("*.ipynb")))
        raise ValueError(f"no such notebook: {notebook}; {there}")
    names = declared(nbformat.read(notebook, 4), notebook)
    try:
        run(notebook, out, parameters(names, Path("params.yaml")))
    except RuntimeError as error:  # the lines of a traceback
        print(error, file=sys.stderr)
        return 1
    print(f"{out}: done in {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    program(main)
