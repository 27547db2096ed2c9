"""Writes claims, deviations and effects; called by the stage results of dvc.yaml."""

from repro.claims import main

main()
