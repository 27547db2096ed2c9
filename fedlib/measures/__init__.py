"""Measures: from accuracies, counts, curves and models to the numbers of a table.

metrics      from clients' accuracies to one number: mean, worst tenth, Gini
bias         from counts of groups and outcomes to bias: EO, DP, CAL, CON
selection    which evaluations count: the last, the best validation, ...
runs         the measures of one run, at the evaluations that count
curves       numbers of a whole run, from its curves
statistics   how sure a number is: intervals, paired differences, ranks, densities
verdicts     when a difference is decided
landscape    the loss around a model, along lines and on planes
sharpness    how sharp a minimum is: rise, largest eigenvalue, area
fisher       which parameters of a model matter
"""
