"""Writes claims, deviations and effects; called by the stage results of dvc.yaml."""

from fedlib.cli import exits
from repro.claims import main

exits.program("python -m repro.claims", main)
