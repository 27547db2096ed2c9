"""Flat minima: clients descend along gradients at perturbed weights (SAM)."""
