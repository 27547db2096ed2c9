"""`python -m repro.claims`; called by the stage results of dvc.yaml."""

from repro.claims import main

main()
