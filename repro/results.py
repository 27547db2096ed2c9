"""All tables of results/, from what the notebooks have published; a stage of dvc.yaml.

python -m repro.results
"""

from __future__ import annotations

from benchmarks import tables
from fedlib.cli.program import program
from repro import facts, ledger, regimes
from repro.claims import report


def main() -> None:
    """Write them, in the order in which they read each other."""
    for step in (ledger, regimes, report, facts, tables):
        step.main()


if __name__ == "__main__":
    program(main)
