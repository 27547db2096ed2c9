"""Stages name what exists and feed each other; another tier is made in a copy."""

import os
import subprocess
from pathlib import Path

import pytest
from where import ROOT

from repro import draw, tier

TOY = """
stages:
  a:
    foreach: [x, y]
    do: {cmd: "python toy.py in.txt a-${item}", deps: [in.txt, toy.py],
    outs: ["a-${item}"]}
  b:
    {cmd: python toy.py a-x results/b, deps: [a-x, toy.py], params: [tier],
    outs: [results/b: {cache: false}]}
  end: {cmd: python toy.py results/b end, deps: [a-y, results/b], outs: [end]}
"""
PARAMS = "seed: 3\ntier: small   # tiny, small or paper\ntoy:\n  rounds: 4\n"
CONFIG = "[core]\n analytics = false\n check_update = false\n no_scm = true\n"


def test_stages_name_what_exists_and_every_notebook_is_one(monkeypatch):
    import networkx as nx
    from dvc.repo import Repo

    monkeypatch.chdir(ROOT)
    with Repo() as repo:
        graph = repo.index.graph
        place = lambda out: Path(out.fs_path).relative_to(ROOT)
        made = {place(o): s for s in graph for o in s.outs}
        asked = {(place(d), s) for s in graph for d in s.deps if hasattr(d, "fs_path")}
    assert len(made) > 80
    for path, stage in asked:
        inside = {path, *path.parents}
        by_stage = [p for p in made if p in inside or path in p.parents]
        assert by_stage or (ROOT / path).exists(), (stage.addressing, path)
        before = nx.descendants(graph, stage)  # what it reads is there before it runs
        assert {made[p] for p in by_stage} <= before, (stage.addressing, path)
    run = {}
    for stage in graph:
        words = stage.cmd.split() if isinstance(stage.cmd, str) else [""] * 3
        if words[2] == "repro.run_notebook":
            run[words[3]] = stage
            out = Path(words[4], Path(words[3]).name)
            assert made.get(out) is stage, stage.cmd
            assert (Path(words[3]), stage) in asked, stage.cmd
            reads = {path for path, s in asked if s is stage}
            assert reads <= {*draw.reads(Path(words[3]))}
    there = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("notebooks/*/*.ipynb")}
    assert there == set(run)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with a pipeline of four stages, and git to ask for its files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("DVC_NO_ANALYTICS", "1")  # else a process of DVC outlives us
    files = {"dvc.yaml": TOY, "params.yaml": PARAMS}
    files |= {"toy.py": "the toy", "in.txt": "one"}
    files |= {".dvc/config": CONFIG, ".gitignore": "tiers\nruns\n/data\n/.dvc/tmp\n"}
    files |= {".dvcignore": "tiers\n", "old/page.md": "old", "run.sh": "#!/bin/sh"}
    for name, text in files.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    Path("run.sh").chmod(0o755)
    subprocess.run(["git", "init", "-q"], check=True)
    return tmp_path


def test_a_params_file_with_another_tier_differs_in_one_word():
    assert tier.with_tier(PARAMS, "tiny") == PARAMS.replace("small ", "tiny ", 1)
    nested = "toy:\n  tier: small\n"
    for name, text in (("huge", PARAMS), ("tiny", nested), ("tiny", PARAMS * 2)):
        with pytest.raises(ValueError, match="tier"):
            tier.with_tier(text, name)


def test_a_copy_follows_its_source_and_what_is_made_stays_where_it_is(toy):
    for name in ("results/b", "a-x", "end/of/it", "dvc.lock"):  # made here, at small
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("schema: '2.0'\n")
    (toy / "data").mkdir()
    there = toy / "tiers/tiny"
    tier.copy("tiny", there)
    files = lambda: (p for p in there.rglob("*") if p.is_file())
    kept = lambda: (p for p in files() if "tmp" not in p.parts[-2:])
    names = lambda: {p.relative_to(there).as_posix() for p in kept()}
    same = {*"dvc.yaml toy.py in.txt old/page.md run.sh .gitignore".split()}
    own = {*"params.yaml .dvc/config .dvc/config.local .dvcignore".split()}
    assert names() == same | own
    assert all((there / n).read_bytes() == (toy / n).read_bytes() for n in same)
    assert os.access(there / "run.sh", os.X_OK) and (there / "data").is_symlink()
    assert "tier: tiny" in (there / "params.yaml").read_text()
    (there / "results").mkdir()
    (there / "results/b").write_text("tiny")  # made there
    os.utime(there / "in.txt", (1, 1))
    (toy / "toy.py").write_text("changed")
    (toy / "new.md").write_text("")
    (toy / "old/page.md").unlink()
    tier.copy("tiny", there)
    assert names() == same - {"old/page.md"} | own | {"new.md", "results/b"}
    assert (there / "toy.py").read_text() == "changed"
    assert (there / "results/b").read_text() == "tiny"
    assert (there / "in.txt").stat().st_mtime == 1  # as it was: nothing to do again
    assert (toy / "params.yaml").read_text() == PARAMS
