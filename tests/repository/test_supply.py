"""What `make` installs is what lock/ names, file by file; and who is told, and asked,
about the packages below.
"""

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_repo import PYTHONS, pins
from where import ROOT

LOCKS = {path.stem: path for path in sorted((ROOT / "lock").glob("*.txt"))}
INSTALLED = ("build", "cpu", "packages", "cuda")
HASH = r" \\\n    --hash=sha256:[0-9a-f]{64}"
made_by_make = pytest.mark.skipif(
    not (Path(sys.prefix) / ".installed").exists(),
    reason="this environment was not installed by make",
)


def entries(name: str) -> dict[str, Requirement]:
    """The pins of a lock file by name, their checksums left out."""
    text = re.sub(HASH, "", LOCKS[name].read_text())
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {canonicalize_name(r.name): r for r in map(Requirement, lines)}
    assert len(found) == len(lines), "a package stands twice"
    return found


def locked(*names: str) -> dict[str, str]:
    """Name to version of what is wanted on this machine."""
    return {
        key: str(r.specifier).removeprefix("==")
        for name in names
        for key, r in entries(name).items()
        if r.marker is None or r.marker.evaluate()
    }


def recipe(*args: str) -> list[str]:
    """The commands that make would run."""
    asked = ["make", "--no-print-directory", "-n", "MAKEFLAGS=", *args]
    said = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    return said.stdout.replace("\\\n", " ").splitlines()


# ---------------------------------------------------------------- the files of lock/
@pytest.mark.parametrize("name", LOCKS)
def test_every_line_is_one_version_with_its_checksums(name):
    head, _, body = LOCKS[name].read_text().partition("\n")
    assert head.startswith("#") and "make lock" in head
    line = r"[a-z0-9-]+==[\w.+]+(?: ; [^\\\n]+)?"
    assert re.fullmatch(f"(?:{line}(?:{HASH})+\n)+", body)


def test_the_lock_has_the_versions_of_the_constraints():
    every = [r for name in ("build", "packages") for r in entries(name).values()]
    assert {canonicalize_name(r.name): str(r.specifier)[2:] for r in every} == pins()


def test_what_torch_needs_for_gpus_is_apart_and_for_linux():
    """A machine whose torch does not ask for it is spared the gigabytes."""
    cuda = entries("cuda")
    assert cuda and not set(cuda) & (set(entries("packages")) | set(entries("build")))
    for r in cuda.values():
        assert r.name.startswith(("nvidia-", "cuda-", "triton")), r
        systems = [r.marker.evaluate({"sys_platform": s}) for s in ("linux", "darwin")]
        assert systems == [True, False], r


def test_a_build_for_processors_is_of_the_locked_version():
    """It is taken first, and packages.txt finds its torch there."""
    for name, r in entries("cpu").items():
        assert "+" in str(r.specifier)
        public = str(r.specifier).partition("+")[0]
        assert public == str(entries("packages")[name].specifier)


@pytest.mark.parametrize("system", ["linux", "darwin"])
def test_every_python_finds_every_requirement(system):
    """No marker hides a direct requirement on a system or a Python that is admitted."""
    from test_repo import wanted

    rows = entries("packages")
    for python in [f"3.{k}" for k in range(30) if PYTHONS.contains(f"3.{k}")]:
        at = {"sys_platform": system, "python_version": python}
        at["python_full_version"] = f"{python}.0"
        for need in wanted():
            marker = rows[canonicalize_name(need.name)].marker
            assert marker is None or marker.evaluate(at), (need.name, at)


# ---------------------------------------------------------------- what is installed
@made_by_make
def test_the_environment_has_the_locked_versions():
    want = locked("build", "packages")
    have = {name: version(name).partition("+")[0] for name in want}
    assert have == want


@pytest.mark.full
@made_by_make
def test_nothing_that_a_package_asks_for_is_missing():
    """pip was told to look for no dependencies: the lock has them all."""
    ask = [sys.executable, "-m", "pip", "check"]
    said = subprocess.run(ask, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout


def test_make_installs_nothing_without_a_checksum(tmp_path):
    """Besides fedlib itself, from the folder, and a pip where there is none."""
    stamp = f"{tmp_path}/.installed"
    lines = [s for s in recipe(f"VENV={tmp_path}", stamp) if "pip install" in s]
    packages = [s for s in lines if "-e ." not in s]
    for line, name in zip(packages, INSTALLED, strict=True):
        assert "install -qq --require-hashes --no-deps" in line, line
        assert f"-r lock/{name}.txt" in line
    (own,) = [s for s in lines if "-e ." in s]
    assert "--no-deps --no-build-isolation -e ." in own
    assert "--no-build-isolation" in packages[2]


def test_other_builds_are_installed_on_purpose_only(tmp_path):
    stamp = f"{tmp_path}/.installed"
    lines = recipe(f"VENV={tmp_path}", "HASHES=", stamp)
    (line,) = [s for s in lines if "-e '.[dev]'" in s]
    assert "-c constraints.txt" in line and "--require-hashes" not in "".join(lines)


def test_a_changed_lock_sets_off_an_installation(tmp_path):
    text = (ROOT / "Makefile").read_text()
    assert re.search(r"^\$\(STAMP\): .*\$\(LOCK\)$", text, re.M)
    (files,) = re.findall(r"^LOCK +:= (.+)$", text, re.M)
    assert files.split() == [f"lock/{name}.txt" for name in INSTALLED]


def wheel(folder: Path) -> Path:
    """A package of one empty module."""
    path, info = folder / "toy-1-py3-none-any.whl", "toy-1.dist-info"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("toy.py", "")
        z.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.parametrize("given", ["its own", "another's", "none"])
def test_a_file_with_another_checksum_is_refused(tmp_path, given):
    """With pip's options as the Makefile has them."""
    own = sha256(wheel(tmp_path).read_bytes()).hexdigest()
    other = ("0" if own[0] != "0" else "1") + own[1:]
    end = {"its own": own, "another's": other}.get(given)
    lock, to = tmp_path / "lock.txt", tmp_path / "site"
    lock.write_text("toy==1" + (f" --hash=sha256:{end}" if end else "") + "\n")
    (options,) = re.findall(
        r"^LOCKED := .* -m pip install (.+)$", (ROOT / "Makefile").read_text(), re.M
    )
    ask = [sys.executable, "-m", "pip", "install", *options.split()]
    ask += ["--no-index", "--find-links", tmp_path, "--target", to, "-r", lock]
    said = subprocess.run(ask, capture_output=True, text=True)
    assert (said.returncode == 0, (to / "toy.py").exists()) == (end == own, end == own)
    assert end == own or "hash" in said.stderr.lower()


# ---------------------------------------------------------------- how it is written
@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("lock", ROOT / ".ci/lock.py")
    module = sys.modules["lock"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["lock"]


@pytest.mark.parametrize("name", LOCKS)
def test_what_is_written_is_what_is_read(writer, name):
    head, _, body = LOCKS[name].read_text().partition("\n")
    assert "".join(f"{pin}\n" for pin in writer.read(body)) == body


def test_an_untouched_file_is_not_written(writer, tmp_path):
    path, pin = tmp_path / "lock/a.txt", writer.Pin("toy", "1", "", frozenset("ab"))
    writer.write(path, "Toys.", [pin])
    os.utime(path, (1, 1))
    writer.write(path, "Toys.", [pin])
    assert path.stat().st_mtime == 1
    writer.write(path, "Toys.", [])
    assert path.stat().st_mtime > 1 and "toy" not in path.read_text()


def test_checksums_of_a_version_are_kept_and_those_of_an_old_one_are_not(
    writer, tmp_path, monkeypatch
):
    """A build that another machine was given stays locked; the next version begins
    anew.
    """
    pin = lambda name, version, *hashes: writer.Pin(
        name, version, "", frozenset(h * 64 for h in hashes)
    )
    monkeypatch.setattr(writer, "PINS", tmp_path / "constraints.txt")
    monkeypatch.setattr(writer, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(sys, "argv", ["lock.py"])
    (tmp_path / "constraints.txt").write_text("torch==1\ntoy==1\n")
    old = [pin("torch", "1", "a"), pin("toy", "1", "b")]
    writer.write(tmp_path / "lock/packages.txt", "Old.", old)
    new = [pin("setuptools", "1", "f"), pin("torch", "1", "c"), pin("toy", "2", "d")]
    new += [pin("nvidia-x", "1", "e")]
    monkeypatch.setattr(writer, "resolve", lambda wanted, *_: list(wanted and new))
    here = []
    monkeypatch.setattr(writer, "offered_here", lambda pins: here)
    writer.write(tmp_path / "lock/cpu.txt", "Old.", [pin("torch", "1+cpu", "8")])
    writer.main()
    read = lambda name: writer.read((tmp_path / f"lock/{name}.txt").read_text())
    assert read("packages") == [pin("torch", "1", "a", "c"), new[2]]
    assert read("cpu") == [pin("torch", "1+cpu", "8")]
    assert read("build") == [new[0]] and read("cuda") == [new[3]]
    said = (tmp_path / "constraints.txt").read_text().splitlines()
    assert said[1:] == ["setuptools==1", "torch==1", "toy==2"]
    here.append(pin("torch", "1+cpu", "9"))
    writer.main()
    assert read("cpu") == [pin("torch", "1+cpu", "8", "9")]


# ---------------------------------------------------------------- known vulnerabilities
AUDIT = yaml.safe_load((ROOT / ".github/workflows/audit.yml").read_text())


def test_the_audit_asks_about_every_file_and_is_locked_itself():
    install, ask = recipe("audit")[-2:]
    assert "--require-hashes" in install and "-r lock/audit.txt" in install
    assert "pip-audit" in entries("audit") and "bin/pip-audit" in ask
    asked = re.findall(r"-r lock/(\w+)\.txt", ask)
    assert asked == [name for name in INSTALLED if name != "cpu"]
    assert "--require-hashes" in ask and "--disable-pip" in ask  # it installs nothing


def test_the_audit_is_made_every_week_and_when_the_lock_changes():
    on = AUDIT[True]  # YAML reads the word on as true
    assert set(on) == {"schedule", "push", "workflow_dispatch"}
    assert on["push"] == {"branches": ["main"], "paths": ["lock/**"]}
    minute, hour, day, month, weekday = on["schedule"][0]["cron"].split()
    assert (day, month) == ("*", "*") and weekday.isdigit()
    (job,) = AUDIT["jobs"].values()
    assert [s["run"] for s in job["steps"] if "run" in s] == ["make audit"]
    assert AUDIT["permissions"] == {"contents": "read"} and "permissions" not in job
    assert 5 <= job["timeout-minutes"] <= 90


# ---------------------------------------------------------------- what people are told
def test_a_weakness_is_reported_in_private_and_to_no_invented_address():
    text = (ROOT / "SECURITY.md").read_text()
    assert "private vulnerability reporting" in text
    assert not re.search(r"\w@\w", text)
    parts = re.findall(r"^## (.+)$", text, re.M)
    assert {"Report a weakness", "Supported versions", "What we defend"} <= set(parts)


def test_what_to_trust_is_found():
    toc = yaml.safe_load((ROOT / "book/_toc.yml").read_text())
    assert {"file": "trust"} in [c for p in toc["parts"] for c in p["chapters"]]
    for page in ("README.md", "SECURITY.md"):
        assert "book/trust.md" in (ROOT / page).read_text(), page
    assert "{doc}`trust`" in (ROOT / "book/deploy.md").read_text()
    assert "SECURITY.md" in (ROOT / "book/trust.md").read_text()


def test_what_to_trust_names_targets_and_files_that_exist():
    targets = {
        t for t in re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)
    }
    for name in ("book/trust.md", "SECURITY.md"):
        text = (ROOT / name).read_text()
        words = " ".join(re.findall(r"`make ([^`]+)`", text)).split()
        called = {w for w in words if w.isalpha() and w.islower()}
        assert called and called <= targets, name
        paths = re.findall(r"`((?:lock|evidence|book|\.ci|\.github)/[\w./-]*)`", text)
        assert paths and not [p for p in paths if not (ROOT / p).exists()], name
