"""Stages run in order, two at a time, with one line each;
stopping in the middle leaves nothing behind.
"""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from repro.pipeline import Plan, span

PIPELINE = """
stages:
  a:
    foreach: [x, y, z]
    do:
      cmd: python toy.py in.txt a-${item}
      deps: [in.txt, toy.py]
      outs: ["a-${item}"]
  b:
    cmd: python toy.py a-x b
    deps: [a-x, toy.py]
    outs: [b]
  end:
    cmd: python toy.py b end
    deps: [a-y, a-z, b]
    outs: [end]
"""
TOY = """
import pathlib, sys, time
source, to = map(pathlib.Path, sys.argv[1:])
text = source.read_text()
begun = time.time()
if "fail" in text and to.name == "b":
    sys.exit("no river here")
pathlib.Path(f"begun-{to}").touch()
if "sleep" in text:
    time.sleep(1000)
while to.name.startswith("a") and len([*pathlib.Path().glob("begun-a-*")]) < 2 and time.time() < begun + 60:
    time.sleep(0.01)                                       # the first of them waits for a second, however slow the machine
to.write_text(text)
with open("times", "a") as file:
    print(to, begun, time.time(), file=file)
"""
PLAN = Plan(
    {
        "long": set(),
        "short": set(),
        "next": {"short"},
        "end": {"long", "short", "next"},
    },
    False,
    {"long": 5, "short": 1, "next": 3, "end": 2},
)


def test_the_longest_way_goes_first_and_what_is_left_is_known():
    assert PLAN.way("short") == 1 + 3 + 2 and PLAN.way("long") == 5 + 2
    assert PLAN.ready(set(), set()) == ["long", "short"]
    assert PLAN.ready({"long", "short"}, set()) == []
    assert PLAN.ready({"long", "short"}, {"short"}) == ["next"]
    assert (
        PLAN.left(set(), 1) == 11
        and PLAN.left(set(), 2) == 7
        and PLAN.left({"long", "short", "next", "end"}, 2) == 0
    )
    # as most others
    assert Plan({"new": set()}, False, {"a": 1, "b": 3, "c": 8}).left(set(), 2) == 3


def test_durations_read_as_one_says_them():
    assert [span(s) for s in (0.4, 8, 59.6, 72, 3600 * 2 + 60 * 5)] == [
        "0 s",
        "8 s",
        "1 min 0 s",
        "1 min 12 s",
        "2 h 5 min",
    ]


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"dvc.yaml": PIPELINE, "toy.py": TOY, "in.txt": "one"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text(
        "[core]\n    no_scm = true\n    analytics = false\n    check_update = false\n"
    )
    return tmp_path


def begin():
    def as_in_a_terminal():
        signal.signal(signal.SIGINT, signal.default_int_handler)

    return subprocess.Popen(
        [sys.executable, "-m", "repro.pipeline", "--jobs", "2"],
        stdout=subprocess.PIPE,
        text=True,
        stderr=subprocess.STDOUT,
        preexec_fn=as_in_a_terminal,
        start_new_session=True,
    )


def make():
    process = begin()
    said, _ = process.communicate(timeout=120)
    return process.returncode, said


def finished(said):
    return re.findall(r"^\[ *\d/\d\] (\S+): (.*?),? ", said, re.M)


def test_all_stages_then_none_then_those_that_follow_a_change(toy):
    status, said = make()
    assert status == 0 and "5 stages to run, 2 at a time" in said, said
    assert [
        re.match(r"\[ *(\d)/5\]", line)[1]
        for line in said.splitlines()
        if line.startswith("[")
    ] == list("12345")
    assert {name for name, _ in finished(said)} == {"a@x", "a@y", "a@z", "b", "end"}
    spans = {
        name: (float(begun), float(ended))
        for name, begun, ended in map(str.split, open("times"))
    }
    assert spans["b"][0] >= spans["a-x"][1] and spans["end"][0] >= max(
        end for name, (_, end) in spans.items() if name != "end"
    )
    # two at a time
    assert any(
        p < q < e
        for n, (p, e) in spans.items()
        for m, (q, _) in spans.items()
        if n != m
    )
    assert (toy / "end").read_text() == "one" and "Running stage 'b'" in (
        toy / "runs/paper.log"
    ).read_text()
    lock = (toy / "dvc.lock").read_bytes()
    status, said = make()
    assert (
        status == 0
        and "Nothing to do" in said
        and not finished(said)
        and (toy / "dvc.lock").read_bytes() == lock
    )
    (toy / "b").write_text("damaged")
    status, said = make()
    assert (
        status == 0
        and "2 stages to run" in said
        and [name for name, _ in finished(said)] == ["b", "end"]
    )
    assert " as before, " in said and (toy / "dvc.lock").read_bytes() == lock


def test_a_failing_stage_is_named_with_what_it_said_and_others_keep_their_work(toy):
    (toy / "in.txt").write_text("fail")
    status, said = make()
    assert (
        status == 1
        and "b: FAILED" in said
        and "    no river here" in said
        and "dvc repro --single-item b" in said
    )
    assert not (toy / "end").exists() and "The book" not in said
    assert (
        re.search("a@x: done", said)
        and "no river here" in (toy / "runs/paper.log").read_text()
    )


def test_a_broken_pipeline_is_told_by_dvc(toy):
    (toy / "dvc.yaml").write_text("stages: [")
    status, said = make()
    assert status and "dvc.yaml" in said and "Traceback" not in said


@pytest.mark.parametrize(
    "how, expected",
    [(signal.SIGINT, 130), pytest.param(signal.SIGKILL, -9, marks=pytest.mark.full)],
)
def test_stopped_in_the_middle_it_leaves_nothing_and_goes_on(toy, how, expected):
    (toy / "in.txt").write_text("sleep")
    process = begin()
    while len(list(toy.glob("begun-*"))) < 2:
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.05)
    process.send_signal(how)
    assert process.wait(30) == expected
    said = process.stdout.read()
    assert "Traceback" not in said and ("goes on from there" in said) == (
        how == signal.SIGINT
    )
    (toy / "in.txt").write_text("two")
    status, said = make()
    assert status == 0 and (toy / "end").read_text() == "two"
    assert not [
        pid for pid in filter(str.isdigit, os.listdir("/proc")) if works_in(pid, toy)
    ]


def works_in(pid, folder):
    try:
        return (
            os.readlink(f"/proc/{pid}/cwd") == str(folder) and int(pid) != os.getpid()
        )
    except OSError:
        return False
