"""Every program of the repository, `python -m ...`, with words that it does not know."""

import re
import runpy
import sys

import pytest
from where import ROOT

from fedlib.core import ends

INSIDE = {  # started by others, with words that nobody types
    "repro.warm",
    "fedlib",  # tests/fedlib/cli
}


def programs():
    """The modules that end with `if __name__ == "__main__":`, and __main__ of folders."""
    found = []
    for place in ("fedlib", "repro", "papers"):
        for path in sorted((ROOT / place).rglob("*.py")):
            guard = re.search(r'^if __name__ == "__main__":', path.read_text(), re.M)
            if guard or path.name == "__main__.py":
                parts = path.relative_to(ROOT).with_suffix("").parts
                found.append(".".join(p for p in parts if p != "__main__"))
    return [name for name in found if name not in INSIDE | {"repro.lab"}]


def ended(name, words, monkeypatch, capsys):
    """(exit status, stderr) of a program, in this process."""
    monkeypatch.setattr(sys, "argv", [name, *words])
    monkeypatch.delitem(sys.modules, name, raising=False)
    with pytest.raises(SystemExit) as e:
        runpy.run_module(name, run_name="__main__")
    return e.value.code, capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", programs())
@pytest.mark.parametrize("word", ["--nonsense", "nowhere/at/all"])
def test_nonsense_is_refused_without_a_traceback(name, word, monkeypatch, capsys):
    pytest.importorskip("dvc" if name == "repro.pipeline" else "torch")
    status, err = ended(name, [word, word], monkeypatch, capsys)
    assert status in (ends.FAILED, ends.MISTAKE) and err.strip()
    assert "Traceback" not in err


def test_there_are_programs():
    assert {"repro.ledger", "repro.claims", "repro.tier", "repro.facts"} < {*programs()}


# ---------------------------------------------------------------- how a program ends
def test_the_status_and_the_line_of_each_exception(capsys):
    def end(e):
        def act():
            raise e

        status = ends.ended("p", act)
        return status, capsys.readouterr().err

    assert end(ValueError("a = 1:\n give 2")) == (2, "p: a = 1: give 2\n")
    assert end(OSError(28, "No space left on device", "f")) == (
        1,
        "p: f: No space left on device\n",
    )
    assert end(FileNotFoundError(2, "No such file", "f")) == (2, "p: f: No such file\n")
    assert end(BrokenPipeError()) == (1, "")
    assert end(KeyboardInterrupt()) == (130, "p: stopped\n")
    assert end(KeyboardInterrupt("3 of 4 rounds are kept"))[1].endswith("are kept\n")
    assert end(MemoryError())[0] == end(RuntimeError("cannot allocate 9 bytes"))[0] == 2
    for defect in (KeyError("x"), TypeError("y"), RecursionError("z"), RuntimeError()):
        status, err = end(defect)
        assert status == 70 and "this is a defect of fedlib" in err and "\n" in err[-1:]


def test_a_line_stays_one_line_and_shows_both_ends():
    assert ends.one_line("a\n b\x1b[31m \udcff") == "a b\\x1b[31m \\udcff"
    long = ends.one_line("begin " + "x" * 5000 + " end")
    assert len(long) < 700 and long.startswith("begin") and long.endswith("end")


def test_a_status_is_kept_and_debug_raises():
    assert ends.ended("p", lambda: 3) == 3 and ends.ended("p", lambda: None) == 0
    with pytest.raises(KeyError):
        ends.ended("p", lambda: {}["x"], debug=True)
    assert ends.without_debug(["a", "--debug", "b"]) == (True, ["a", "b"])
