"""Resolve ``.[dev]`` without installing anything and write the pins to constraints.txt.

    make lock             keeps the present pins, adds what is new, drops what is no
                          longer needed
    make lock UPGRADE=1   takes the newest versions that pyproject.toml admits

pip does not say when a pin needs a later patch release of Python than the reader's: it
searches on, for hours. So a version that excludes the oldest Python of pyproject.toml
is never pinned, whatever runs this.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[1]
PINS = ROOT / "constraints.txt"
HEAD = """\
# One version of every package that `.[dev]` needs. Made by `make lock`; do not edit.
# No build is named: the machine picks torch's CPU or GPU build.
"""


def oldest_python() -> str:
    """The lower end of requires-python, such as "3.11"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return next(
        s.version
        for s in SpecifierSet(project["requires-python"])
        if s.operator == ">="
    )


def resolve(constraints: list[str]) -> list[dict]:
    """Metadata of every package pip would install, fedlib itself left out."""
    with tempfile.TemporaryDirectory() as tmp:
        limits, report = Path(tmp) / "limits.txt", Path(tmp) / "report.json"
        limits.write_text("\n".join(constraints))
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                "-qq",
                "--dry-run",
                "--ignore-installed",
                "--report",
                report,
                "-c",
                limits,
                f"{ROOT}[dev]",
            ],
            check=True,
        )
        found = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    return [m for m in found if m["name"] != "fedlib"]


def main() -> None:
    old = (
        []
        if "--upgrade" in sys.argv
        else [p for p in PINS.read_text().splitlines() if "==" in p]
    )
    python, below = oldest_python(), {}
    while True:
        kept = [p for p in old if p.partition("==")[0] not in below]
        found = resolve(kept + [f"{name}<{version}" for name, version in below.items()])
        late = [
            m
            for m in found
            if not SpecifierSet(m.get("requires_python", "")).contains(python)
        ]
        if not late:
            break
        for m in late:
            print(
                f"{m['name']} {m['version']} needs Python {m['requires_python']}: "
                "trying an older version"
            )
            below[m["name"]] = m["version"]
    pins = sorted(
        (f"{m['name']}=={m['version'].partition('+')[0]}" for m in found), key=str.lower
    )
    text = HEAD + "\n".join(pins) + "\n"
    if text != PINS.read_text():  # an untouched file does not set off an installation
        PINS.write_text(text)
    print(
        f"{PINS.name}: {len(pins)} pins; {len(set(pins) - set(old))} new or changed,"
        f" {len(set(old) - set(pins))} gone or changed"
    )


if __name__ == "__main__":
    main()
