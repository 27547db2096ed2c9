"""The baselines: plain averaging, the controls beside it, and fine-tuning before use."""
