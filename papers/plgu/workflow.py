"""A round of PLGU's three methods, as repro.workflow draws it: (who, what, x, y)."""

PLGU_LF = (
    ("server", "send $w$", 0.5, 0.9),
    ("clients", "$\\theta_i$: own layers kept,\nthe others from $w$", 0.84, 0.66),
    ("clients", "each batch: $g$ at $\\theta_i$,\n$e$ from $g$ and scores", 0.84, 0.3),
    (
        "clients",
        "$\\theta_i$ steps by $g$, a copy\nof $w$ by the slope at $e$",
        0.16,
        0.3,
    ),
    ("server", "average the copies;\n$\\theta_i$ stays at home", 0.16, 0.66),
)
PLGU_GREP = (
    ("server", "send the body $\\phi$", 0.5, 0.9),
    ("clients", "train the head $h_i$,\nthe body rests", 0.84, 0.66),
    ("clients", "each batch: $\\phi_i$ steps\nby $g$; $e$ from $g$", 0.84, 0.3),
    ("clients", "$\\phi_i$ steps again, by\nthe slope at $\\phi_i + e$", 0.16, 0.3),
    ("server", "average the $\\phi_i$;\n$h_i$ stays at home", 0.16, 0.66),
)
