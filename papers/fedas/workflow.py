"""A round of FedAS, as repro.workflow draws it: (who, what, x, y) of each box."""

FEDAS = (
    ("server", "send the body $\\theta$", 0.5, 0.9),
    ("clients", "align $\\theta$ to the\nold features of $\\theta_i$", 0.84, 0.66),
    ("clients", "train $\\theta_i$ and head $h_i$", 0.84, 0.3),
    ("clients", "Fisher trace $a_i$\nof what was learned", 0.16, 0.3),
    ("server", "average the $\\theta_i$\nby their share of $a$", 0.16, 0.66),
)
