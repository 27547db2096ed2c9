"""Writes claims, deviations and effects; called by the stage results of dvc.yaml."""

from fedlib.core import ends
from repro.claims import main

ends.program("python -m repro.claims", main)
