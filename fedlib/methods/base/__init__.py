"""The baselines: averaging, the controls beside it, and fine-tuning before use."""
