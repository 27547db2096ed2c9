"""A round of FedGA, as repro.workflow draws it: (who, what, x, y) of each box."""

FEDGA = (
    ("server", "send w", 0.5, 0.9),
    ("clients", "measure $a_i$ on\nvalidation rows", 0.84, 0.66),
    ("clients", "train: $w_i$", 0.84, 0.3),
    ("server", "Gini of all $a_i$,\nask the trigger", 0.16, 0.3),
    ("server", "average by size, or,\nonce on, by error", 0.16, 0.66),
)
