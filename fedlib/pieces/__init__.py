"""Pieces that several methods use, as plain functions of tensors.

align       distances between two clouds of features
condense    synthetic rows that retrace a trajectory of models (EquFL)
privacy     the epsilon of DP-SGD
robust      aggregation rules: trimmed mean, Multi-Krum, DeepSight; the table RULES
secure      sums of which no summand is seen: secure aggregation
simplex     steps of aggregation weights on the simplex, its nearest point
steps       sharpness-aware and private steps; the table STEPS
surrogates  differentiable bias between groups, and MGDA
"""
