"""Flat minima: clients descend along gradients at perturbed weights (SAM).

fedsam     FedSAM: sharpness-aware steps, the same radius for all weights
plgu       what PLGU's three methods share: a perturbation layer by layer
plgu_lf    PLGU-LF: own layers, and a common model made flat
plgu_grep  PLGU-GRep: FedRep with a body made flat
plgu_ghn   PLGU-GHN: a hypernetwork whose models are made flat
"""
