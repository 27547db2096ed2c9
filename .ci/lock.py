"""Write down what `make` installs: the version of every package, and the SHA-256 of
every file that a system or a Python may take of it.

    make lock             keeps the present versions, adds what is new, drops what is no
                          longer needed
    make lock UPGRADE=1   takes the newest versions that pyproject.toml admits

constraints.txt     the versions alone, for who installs a part: pip install -c
lock/build.txt      setuptools and wheel, to build packages that come as source
lock/cpu.txt        torch's build for processors, taken by a machine that has this file
lock/packages.txt   the rest of `.[dev]`
lock/cuda.txt       what torch's build for GPUs asks for on Linux
lock/audit.txt      pip-audit, of `make audit`, in an environment of its own

uv resolves for every system and every Python from the oldest of pyproject.toml on, and
takes the checksums from the package index. torch's build for processors comes from
another place: the file that pip would install here is locked. A checksum that lock/ has
for the same version stays.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PINS, LOCK = ROOT / "constraints.txt", ROOT / "lock"
BUILD, AUDIT = ("setuptools", "wheel"), ("pip-audit",)
BUILDS = ("torch", "torchvision")  # for processors, for GPUs: one version, many files
CUDA = ("cuda-", "nvidia-", "triton")
MADE = "Made by `make lock`; do not edit."


@dataclass(frozen=True)
class Pin:
    """One package: its version, on which machines it is wanted, its files' SHA-256."""

    name: str
    version: str
    marker: str
    hashes: frozenset[str]

    def __str__(self) -> str:
        marker = f" ; {self.marker}" if self.marker else ""
        lines = [f"--hash=sha256:{h}" for h in sorted(self.hashes)]
        return " \\\n    ".join([versioned(self) + marker, *lines])


def versioned(pin: Pin) -> str:
    return f"{pin.name}=={pin.version}"


def read(text: str) -> list[Pin]:
    """The pins of a file of lock/, or of what uv writes."""
    pins = []
    for entry in re.findall(r"^[a-z0-9].*(?:\n .*)*", text, re.M):
        head, *_ = entry.partition("\\")
        pin, _, marker = (part.strip() for part in head.partition(";"))
        hashes = frozenset(re.findall(r"--hash=sha256:(\w{64})", entry))
        pins.append(Pin(*pin.split("=="), marker, hashes))
    return pins


def oldest_python() -> str:
    """The lower end of requires-python, such as "3.11"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(
        s.version
        for s in SpecifierSet(project["requires-python"])
        if s.operator == ">="
    )


def resolve(
    wanted: list[str], lines: tuple, old: list[str], upgrade: bool
) -> list[Pin]:
    """What uv chooses for its arguments `wanted` and the requirements `lines`; versions
    stay as in `old` where they can.
    """
    command = [sys.executable, "-m", "uv", "pip", "compile", "-q", "--universal"]
    command += ["--fork-strategy", "fewest", "--python-version", oldest_python()]
    command += ["--generate-hashes", "--no-annotate", "--no-header"]
    command += ["--upgrade"] if upgrade else []
    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "pins.txt"
        out.write_text("\n".join(old))
        subprocess.run(
            [*command, *wanted, "-", "-o", out],
            input="\n".join(lines),
            text=True,
            check=True,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
        )
        return read(out.read_text())


def offered_here(pins: list[Pin]) -> list[Pin]:
    """Those that pip would install here as a build of its own, such as 2.13.0+cpu.

    Such a file needs a line of its own: where the index tells checksums and a folder
    does not, pip prefers what is in the index.
    """
    with tempfile.TemporaryDirectory() as tmp:
        report = Path(tmp) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "-qq", "--dry-run"]
        command += ["--ignore-installed", "--no-deps", "--report", report]
        subprocess.run([*command, *map(versioned, pins)], check=True)
        found = json.loads(report.read_text())["install"]
    archive = {
        (i["metadata"]["name"], i["metadata"]["version"]): i["download_info"]
        for i in found
    }
    return [
        Pin(name, version, "", frozenset([a["archive_info"]["hashes"]["sha256"]]))
        for (name, version), a in archive.items()
        if "+" in version
    ]


def joined(pins: list[Pin], known: dict[str, frozenset]) -> list[Pin]:
    """The pins with the checksums, too, that lock/ has for the same version."""
    return [replace(p, hashes=p.hashes | known.get(versioned(p), set())) for p in pins]


def write(path: Path, about: str, entries: list) -> None:
    """An untouched file does not set off an installation."""
    text = "".join(f"{e}\n" for e in [f"# {about} {MADE}", *entries])
    if not path.exists() or text != path.read_text():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def main() -> None:
    upgrade, files = "--upgrade" in sys.argv, sorted(LOCK.glob("*.txt"))
    before = {f.stem: read(f.read_text()) for f in files}
    known = {versioned(p): p.hashes for pins in before.values() for p in pins}
    old = [line for line in PINS.read_text().splitlines() if "==" in line]
    gpu = [versioned(p) for p in before.get("cuda", [])]
    dev = resolve(["pyproject.toml", "--extra", "dev"], BUILD, old + gpu, upgrade)
    tool = [versioned(p) for p in before.get("audit", [])]
    audit = resolve([], AUDIT, tool, upgrade)

    public = {versioned(p) for p in dev}
    kept = [p for p in before.get("cpu", []) if versioned(p).split("+")[0] in public]
    cpu = offered_here([p for p in dev if p.name in BUILDS]) or kept

    dev, audit, cpu = (joined(pins, known) for pins in (dev, audit, cpu))
    build = [p for p in dev if p.name in BUILD]
    cuda = [p for p in dev if p.name.startswith(CUDA)]
    rest = [p for p in dev if p not in build + cuda]

    pins = sorted(map(versioned, build + rest))
    write(PINS, "One version of every package that `.[dev]` needs.", pins)
    write(
        LOCK / "build.txt", "What packages that come as source are built with.", build
    )
    write(LOCK / "packages.txt", "The rest of `.[dev]`: versions and checksums.", rest)
    write(LOCK / "cuda.txt", "What torch's build for GPUs asks for on Linux.", cuda)
    write(LOCK / "cpu.txt", "torch's build for processors, where there is one.", cpu)
    write(LOCK / "audit.txt", "pip-audit, for `make audit`.", audit)
    new, gone = set(pins) - set(old), set(old) - set(pins)
    files = sum(len(p.hashes) for p in dev + audit)
    print(f"{len(dev + audit)} pins of {files} files; {len(new)} new, {len(gone)} gone")


if __name__ == "__main__":
    main()
