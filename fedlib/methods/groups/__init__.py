"""Fairness between groups of people: equal treatment by a sensitive attribute.

At the clients:

reweight    Reweight: row weights under which group and outcome are independent
regular     Regular: a bias penalty in the loss
blind       Blind: the sensitive column hidden, a control
flinear     FLinear: inputs without linear traces of the group

In the aggregation:

fairfed     FairFed: less weight where a client's gap differs from that of all
fedfb       FedFB: row weights that the server learns

At the server, around any method:

calibrated  Gaussian-update, Uniform-update: an update of the server's own, here noise
collecting  what EquFL does first: collect global models
equfl       EquFL: rows condensed from those models show the bias to correct
"""
