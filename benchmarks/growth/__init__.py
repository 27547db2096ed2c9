"""How time and memory grow with clients, cohort, parameters and seeds.

    python -m benchmarks.growth
            all axes, several minutes
    python -m benchmarks.growth --axes cohort --cohort 10 30 --clients-of-cohort 30 \\
        --reps 2 --seconds 0.05 --out growth.csv

Writes results/benchmarks-growth.csv (the points), -growth-fit.csv (fitted exponents),
-growth.json (what it ran on) and benchmarks-million.csv (what a million clients
would need).

    points    federations and runs of several seeds, in processes, timed when asked
    fit       exponents: log y against log x over the upper range; what they say of a
              million clients
    picture   the curves with their slopes
"""

from .fit import fits, needed
from .picture import figure

__all__ = ["figure", "fits", "needed"]
