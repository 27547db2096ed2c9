"""The size of every run, one line of params.yaml: ``python -m fedlib.tier tiny``."""
import re
import sys
from pathlib import Path

TIERS = ("tiny", "small", "paper")


def choose(tier: str, file: Path = Path("params.yaml")) -> None:
    """Write `tier` into the one line ``tier: ...`` of `file`; every other byte stays."""
    if tier not in TIERS:
        raise ValueError(f"no such tier: {tier!r}. Choose one of {', '.join(TIERS)}.")
    text = file.read_text()
    lines = re.findall(r"(?m)^tier:[ \t]*(\w+)", text)
    if len(lines) != 1:
        raise ValueError(f"{file} has {len(lines)} lines `tier: ...` at its left edge; it needs exactly one.")
    if lines != [tier]:
        file.write_text(re.sub(r"(?m)^(tier:[ \t]*)\w+", rf"\g<1>{tier}", text))
    print(f"{file}: tier {lines[0]}" + (f" -> {tier}" if lines != [tier] else ", as before"))


if __name__ == "__main__":
    try:
        choose(*sys.argv[1:2] or [""])
    except (OSError, ValueError) as error:
        sys.exit(f"fedlib.tier: {error}")
