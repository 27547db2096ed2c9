"""What runs on other people's machines, before a commit or after a push, calls things
that exist and has the versions that are pinned here.
"""

import os
import re

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from test_repo import PYTHONS, pins
from where import ROOT

GITHUB = ROOT / ".github"
FLOW = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())
JOBS = FLOW["jobs"]
STEPS = [(name, step) for name, job in JOBS.items() for step in job["steps"]]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.search(r"\.PHONY: (.*)", MAKEFILE).group(1).split())
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
ACTION = r"actions/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+"
EVERY_ACTION = {a for p in WORKFLOWS for a in re.findall(r"uses: *(.+)", p.read_text())}
ISSUES = sorted(p for p in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))


# ---------------------------------------------------------------- after a push
def commands():
    return [line for _, s in STEPS for line in s.get("run", "").splitlines() if line]


def test_the_workflow_calls_commands_that_exist():
    assert commands()
    for line in commands():
        word, *rest = line.split()
        if word == "make":
            targets = [w for w in rest if "=" not in w]
            assert targets and set(targets) <= TARGETS, line
        else:
            assert os.access(ROOT / word, os.X_OK), line


def test_ci_itself_calls_targets_that_exist():
    called = re.findall(r"^\s*make (\w+)", (ROOT / ".ci/run").read_text(), re.M)
    assert {"lint", "test", "paper"} <= set(called) <= TARGETS
    assert any(line.startswith(".ci/run") for line in commands())


def test_the_workflow_runs_on_the_oldest_and_on_the_newest_python():
    asked = {
        s["with"]["python-version"]
        for _, s in STEPS
        if s.get("uses", "").startswith("actions/setup-python")
    }
    admitted = [f"3.{k}" for k in range(30) if PYTHONS.contains(f"3.{k}")]
    assert asked == {admitted[0], admitted[-1]}


def test_the_workflow_may_only_read_and_ends_by_itself():
    assert FLOW["permissions"] == {"contents": "read"}
    assert not [name for name, job in JOBS.items() if "permissions" in job]
    assert all(5 <= job["timeout-minutes"] <= 90 for job in JOBS.values())
    assert "secrets." not in (GITHUB / "workflows/ci.yml").read_text()
    on = FLOW[True]  # YAML reads the word on as true
    assert set(on) == {"push", "pull_request"} and on["push"]["branches"] == ["main"]


def test_caches_are_renewed_with_the_lock():
    caches = [s["with"] for _, s in STEPS if "setup-python" in s.get("uses", "")]
    for c in caches:
        assert (c["cache"], c["cache-dependency-path"]) == ("pip", "lock/*.txt")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda p: p.stem)
def test_actions_are_pinned_by_their_commit(path):
    """A tag can be moved. The same action is of one commit everywhere, and the version
    stands beside it.
    """
    used = re.findall(r"uses: *(.+)", path.read_text())
    assert used
    for action in used:
        assert re.fullmatch(ACTION, action), f"{action}: name its commit and version"
        name = action.partition("@")[0]
        assert len({a for a in EVERY_ACTION if a.partition("@")[0] == name}) == 1, name


def test_the_book_is_kept_from_where_it_is_built():
    (kept,) = [s["with"] for _, s in STEPS if "upload-artifact" in s.get("uses", "")]
    assert kept["path"] == "book/_build/html"
    assert f"{kept['path']}/index.html" in (ROOT / "README.md").read_text()
    book = JOBS["book"]
    assert "push" in book["if"] and book["needs"] in JOBS


# ---------------------------------------------------------------- every night
NIGHTLY = yaml.safe_load((GITHUB / "workflows/nightly.yml").read_text())


def test_every_night_all_scripts_that_try_to_break_it_run():
    on, (job,) = NIGHTLY[True], NIGHTLY["jobs"].values()
    assert set(on) == {"schedule", "workflow_dispatch"}
    assert NIGHTLY["permissions"] == {"contents": "read"} and "permissions" not in job
    assert 5 <= job["timeout-minutes"] <= 90
    (line,) = [s["run"] for s in job["steps"] if "run" in s]
    assert line == "make torture" and "torture" in TARGETS
    recipe = re.search(r"^torture:.*\n((?:\t.*\n)+)", MAKEFILE, re.M).group(1)
    assert (
        "python tests/torture" in recipe
        and (ROOT / "tests/torture/__main__.py").exists()
    )
    used = {s["uses"] for s in job["steps"] if "uses" in s}
    assert used <= {s["uses"] for _, s in STEPS if "uses" in s}


# ---------------------------------------------------------------- before a commit
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]


@pytest.mark.parametrize("tool", ["ruff", "nbstripout"])
def test_hooks_have_the_versions_that_are_pinned(tool):
    (repo,) = [r for r in HOOKS if tool in r["repo"]]
    assert repo["rev"].removeprefix("v") == pins()[tool]
    assert SpecifierSet(f"=={pins()[tool]}").contains(repo["rev"])


def test_hooks_check_what_make_lint_checks():
    ids = {h["id"] for r in HOOKS for h in r["hooks"]}
    assert {"ruff-check", "ruff-format", "nbstripout", "check-yaml"} <= ids
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", MAKEFILE, re.M).group(1)
    assert [w in lint for w in ("ruff check", "ruff format --check", "mypy")] == [
        True
    ] * 3
    (local,) = [r["hooks"] for r in HOOKS if r["repo"] == "local"]
    for hook in local:
        word, *rest = hook["entry"].split()
        assert word == "make" and set(rest) <= TARGETS


# ---------------------------------------------------------------- what people are asked
@pytest.mark.parametrize(
    "path", [p for p in ISSUES if p.stem != "config"], ids=lambda p: p.stem
)
def test_an_issue_form_is_one(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    kinds = {"textarea", "input", "dropdown", "checkboxes", "markdown"}
    names = [part["id"] for part in form["body"]]
    assert len(set(names)) == len(names) and all(
        part["type"] in kinds and part["attributes"]["label"] for part in form["body"]
    )


def test_there_is_a_form_for_a_bug_a_method_and_a_number():
    assert {p.stem for p in ISSUES} == {"bug", "config", "method", "number"}


def test_a_pull_request_is_asked_for_the_three_checks():
    text = (GITHUB / "PULL_REQUEST_TEMPLATE.md").read_text()
    boxes = re.findall(r"^- \[ \] `make (\w+)`", text, re.M)
    assert boxes == ["lint", "test", "paper"] and set(boxes) <= TARGETS


# ---------------------------------------------------------------- the book as a site
PAGES = yaml.safe_load((GITHUB / "workflows/pages.yml").read_text())


def test_the_site_is_put_up_from_the_public_main_alone():
    build, deploy = PAGES["jobs"]["build"], PAGES["jobs"]["deploy"]
    on = PAGES[True]
    assert set(on) == {"push", "workflow_dispatch"}
    assert on["push"]["branches"] == ["main"]
    for words in ("refs/heads/main", "!github.event.repository.private"):
        assert words in build["if"]
    assert deploy["needs"] == "build" and "if" not in deploy


def test_only_the_job_that_puts_it_up_may_write_and_only_pages():
    build, deploy = PAGES["jobs"]["build"], PAGES["jobs"]["deploy"]
    assert PAGES["permissions"] == {"contents": "read"} and "permissions" not in build
    assert deploy["permissions"] == {"pages": "write", "id-token": "write"}
    assert not [s for s in deploy["steps"] if "run" in s]
    assert "secrets." not in (GITHUB / "workflows/pages.yml").read_text()


def test_the_site_is_the_book_that_is_built():
    steps = [s for job in PAGES["jobs"].values() for s in job["steps"]]
    (command,) = [s["run"] for s in steps if "run" in s]
    assert command.split()[0] == "make" and command.split()[1] in TARGETS
    (site,) = [s["with"] for s in steps if "upload-pages" in s.get("uses", "")]
    assert site["path"] == "book/_build/html"
    assert all(5 <= job["timeout-minutes"] <= 90 for job in PAGES["jobs"].values())
