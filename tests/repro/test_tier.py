"""Another tier is made in a copy of its own; nothing that git tracks changes."""

import os
import subprocess
import sys

import pytest

from repro import tier

PARAMS = "seed: 3\ntier: small   # tiny, small or paper\ntoy:\n  rounds: 4\n"
PIPELINE = """
stages:
  draw:
    cmd: python draw.py
    deps: [draw.py]
    params: [tier]
    outs:
      - results/picture
      - results/ours/table.csv:
          cache: false
"""
DRAW = """
import pathlib
for name in ("results/picture", "results/ours/table.csv"):
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).write_text(pathlib.Path("params.yaml").read_text().split()[3])
"""


def test_a_params_file_with_another_tier_differs_in_one_word():
    assert tier.chosen(PARAMS) == "small"
    assert tier.with_tier(PARAMS, "tiny") == PARAMS.replace("small ", "tiny ", 1)


@pytest.mark.parametrize(
    "name, text, told",
    [
        ("huge", PARAMS, "no such tier: 'huge'"),
        ("tiny", "toy:\n  tier: small\n", "has 0 lines"),
        ("tiny", PARAMS * 2, "has 2 lines"),
    ],
)
def test_a_tier_that_cannot_be_chosen_is_named(name, text, told):
    with pytest.raises(ValueError, match=told):
        tier.with_tier(text, name)


@pytest.fixture
def repo(tmp_path, monkeypatch):
    """A repository with results of tier small, committed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    files = {
        "params.yaml": PARAMS,
        "dvc.yaml": PIPELINE,
        "draw.py": DRAW,
        "results/ours/table.csv": "small",
        "old/page.md": "",
        ".gitignore": "/tiers/\n/runs/\n/results/picture\n",
        ".dvcignore": "tiers\n",
        ".dvc/config": (
            "[core]\n    analytics = false\n    check_update = false\n    "
            "autostage = false\n"
        ),
        ".dvc/.gitignore": "/config.local\n/tmp\n/cache\n",
        "dvc.lock": "schema: '2.0'\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], check=True)
    return tmp_path


def make(name):
    done = subprocess.run(
        [sys.executable, "-m", "repro.tier", name],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def changed():
    return subprocess.run(
        ["git", "status", "--short"], capture_output=True, text=True, check=True
    ).stdout


def test_the_copy_has_its_own_results_and_the_repository_stays_as_it_was(repo):
    there = repo / "tiers/tiny"
    status, said = make("tiny")
    assert (
        status == 0
        and "1 stage to run" in said
        and str(there / "book/_build/html/index.html") in said
    )
    assert (
        (there / "results/ours/table.csv").read_text()
        == (there / "results/picture").read_text()
        == "tiny"
    )
    assert (repo / "results/ours/table.csv").read_text() == "small" and changed() == ""
    assert (
        not (repo / "results/picture").exists()
        and (repo / "dvc.lock").read_text() == "schema: '2.0'\n"
    )

    status, said = make("tiny")
    assert status == 0 and "Nothing to do" in said


def test_edits_new_files_and_deletions_are_copied(repo):
    there = repo / "tiers/tiny"
    assert make("tiny")[0] == 0 and (there / "old/page.md").exists()
    (repo / "draw.py").write_text(DRAW.replace(".split()[3]", ".split()[3].upper()"))
    (repo / "new.md").write_text("not committed")
    (repo / "old/page.md").unlink()
    status, said = make("tiny")
    assert (
        status == 0
        and "1 stage to run" in said
        and (there / "results/picture").read_text() == "TINY"
    )
    assert (there / "new.md").exists() and not (there / "old/page.md").exists()


def test_the_tier_of_params_is_made_in_place_and_an_unknown_one_nowhere(repo):
    status, said = make("small")
    assert (
        status == 0
        and "here, not in a copy" in said
        and (repo / "results/picture").read_text() == "small"
    )
    status, said = make("huge")
    assert (
        status == 1 and "no such tier: 'huge'" in said and not (repo / "tiers").exists()
    )
