"""Writes claims, deviations and effects; called by the stage results of dvc.yaml."""

from fedlib.cli.program import program
from repro.claims import main

program(main)
