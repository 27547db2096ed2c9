"""Run one notebook of the pipeline; called by its stages in dvc.yaml.

    python -m repro.run_notebook NOTEBOOK OUT_DIR --section S --set k=v

Parameters come from params.yaml. ``tier`` and ``seed`` at its top level reach every
notebook that declares them; ``--section S`` hands over each entry of S, and ``--set
k=v`` one value more: those the notebook MUST declare in its cell tagged ``parameters``,
so a misspelt name stops here instead of being ignored.

The executed notebook lands in OUT_DIR under the notebook's own name, whole or not at
all: a run that fails leaves the last good result where it was, and its own half-done
notebook in runs/failed. Times, machine paths and random names are taken out, so that
the same code and parameters give the same bytes.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import itertools
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import yaml

from fedlib.study import TIERS
from fedlib.study.spec import Loader

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


def closest(name: str, known) -> str:
    """The end of an error message: what the reader may have meant,
    and what there is.
    """
    near = difflib.get_close_matches(str(name), map(str, known), n=1, cutoff=0.5)
    there = ", ".join(map(str, known)) or "none"
    return (f" Did you mean {near[0]!r}?" if near else "") + f" Known: {there}."


def declared(nb, path: Path) -> list[str]:
    """Names that the notebook's ``parameters`` cell assigns."""
    cells = [c.source for c in nb.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ValueError(
            f"{path} has {len(cells)} cells tagged `parameters`; it needs exactly one."
        )
    body = ast.parse(cells[0]).body
    targets = [
        t for s in body for t in getattr(s, "targets", [getattr(s, "target", None)])
    ]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def parameters(
    names: list[str], path: Path, file: Path, sections=(), settings=()
) -> dict:
    """What the notebook at `path`, which declares `names`,
    is given from `file` and the command line.
    """
    with file.open() as text:  # the open file, so that a YAML error names it
        tree = yaml.load(text, Loader) or {}
    if tree.get("tier", TIERS[0]) not in TIERS:
        raise ValueError(
            f"{file}: no such tier: {tree['tier']!r}." + closest(tree["tier"], TIERS)
        )
    given = {
        name: (tree[name], file.name)
        for name in COMMON
        if name in tree and name in names
    }
    for section in sections:
        if not isinstance(tree.get(section), dict):
            here = [key for key, value in tree.items() if isinstance(value, dict)]
            raise ValueError(
                f"{file} has no section {section!r}." + closest(section, here)
            )
        given |= {
            key: (value, f"{file.name}, section {section}")
            for key, value in tree[section].items()
        }
    for setting in settings:
        key, sign, value = setting.partition("=")
        if not sign:
            raise ValueError(f"--set {setting}: write --set name=value.")
        given[key] = yaml.load(value, Loader), "--set"
    for key, (_, where) in given.items():
        if key not in names:
            raise ValueError(
                f"{path} declares no parameter {key!r} (it comes from {where})."
                + closest(key, names)
                + f" Mend {where} or the notebook's `parameters` cell."
            )
    return {key: value for key, (value, _) in given.items()}


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
    for i, cell in enumerate(nb.cells):
        cell.id = f"cell-{i}"
        for trace in ("papermill", "execution"):
            cell.metadata.pop(trace, None)
        if cell.cell_type == "code":
            cell.outputs = joined(cell.outputs)

    folders = {
        sys.prefix: "<python>",
        f"{sys.base_prefix}/lib": "<python>/lib",
        str(root): ".",
    }
    tables: dict[str, str] = {}

    def plain(value):
        if isinstance(value, str):
            for folder, name in folders.items():
                value = value.replace(folder, name)
            # the look-behind begins at a path's start only: without it base64
            # takes minutes
            value = re.sub(
                r"(?<![^\s\"'])[^\s\"']*ipykernel_\d+/\d+\.py", "<cell>", value
            )
            value = re.sub(r"\b0x[0-9a-f]{9,}", "0x...", value)
            return re.sub(
                r"\bT_[0-9a-f]{5}(?=[_\s\"])",
                lambda m: tables.setdefault(m[0], f"T_{len(tables)}"),
                value,
            )
        if isinstance(value, dict):
            return type(value)(
                (k, v if k.startswith("image/") and k != "image/svg+xml" else plain(v))
                for k, v in value.items()
            )
        return [plain(v) for v in value] if isinstance(value, list) else value

    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.outputs = plain(cell.outputs)
    return nbformat.writes(nb) + "\n"


def joined(outputs: list) -> list:
    """Printed texts that touch become one for stdout and one for
    stderr, in this order.
    """
    from nbformat.v4 import new_output

    done = []
    for printed, group in itertools.groupby(
        outputs, lambda out: out.output_type == "stream"
    ):
        group = list(group)
        if printed:
            texts = [
                (name, "".join(out.text for out in group if out.name == name))
                for name in ("stdout", "stderr")
            ]
            group = [
                new_output("stream", name=name, text=text)
                for name, text in texts
                if text
            ]
        done += group
    return done


def execute(path: Path, given: dict, part: Path) -> None:
    """Run the notebook in a kernel of this interpreter, in the current folder,
    one thread by default.
    """
    import papermill

    from repro.kernel import Manager

    before = dict(os.environ)
    for name, value in KERNEL_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # nobody's start-up files, no shared history
    with tempfile.TemporaryDirectory() as home:
        os.environ["IPYTHONDIR"] = home
        profile = Path(home) / "profile_default"
        profile.mkdir()
        (profile / "ipython_kernel_config.py").write_text(
            "c.IPKernelApp.log_level = 'ERROR'\n"
        )
        try:
            papermill.execute_notebook(
                str(path),
                str(part),
                parameters=given,
                kernel_name="python3",
                progress_bar=False,
                cwd=".",
                kernel_manager_class=Manager,
            )
        finally:
            os.environ.clear()
            os.environ.update(before)


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
        return (
            f"{path} failed: {type(error).__name__}: {error}\nWhat had run by "
            f"then: {kept}"
        )
    trace = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)).splitlines()[-25:]
    return "\n".join(
        [
            f"{path} failed in cell [{error.exec_count}]:",
            "",
            *("    " + s for s in error.source.splitlines()),
            "",
            *trace,
            "",
            f"{error.ename}: {error.evalue}",
            f"The notebook up to there: {kept}",
        ]
    )


def main(argv: list[str] | None = None) -> int:
    """Run a notebook from the command line; the exit status."""
    import nbformat

    ap = argparse.ArgumentParser(
        prog="repro.run_notebook", description=__doc__.splitlines()[0]
    )
    ap.add_argument("notebook", type=Path)
    ap.add_argument("out_dir", type=Path)
    ap.add_argument("--params", type=Path, default=Path("params.yaml"), metavar="FILE")
    ap.add_argument(
        "--section",
        action="append",
        default=[],
        metavar="S",
        help="hand over FILE's section S",
    )
    ap.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="K=V",
        help="one value more, read as YAML",
    )
    a = ap.parse_args(argv)
    start = time.perf_counter()
    try:
        if not a.notebook.is_file():
            there = sorted(map(str, a.notebook.parent.glob("*.ipynb")))
            raise ValueError(
                f"no such notebook: {a.notebook}." + closest(str(a.notebook), there)
            )
        names = declared(nbformat.read(a.notebook, 4), a.notebook)
        given = parameters(names, a.notebook, a.params, a.section, a.set)
        run(a.notebook, a.out_dir / a.notebook.name, given)
    except (OSError, ValueError, RuntimeError, yaml.YAMLError) as error:
        print(f"repro.run_notebook: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"repro.run_notebook: stopped in {a.notebook}", file=sys.stderr)
        return 130
    print(f"{a.out_dir / a.notebook.name}: done in {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    from repro.ask import ask

    status = ask(sys.argv[1:])
    sys.exit(main() if status is None else status)
