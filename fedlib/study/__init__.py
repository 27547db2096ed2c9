"""Studies: grids of runs, named, computed once, stored, read many times.

from fedlib.study.experiment import study
study("fedga", "synthetic").seeds()
"""

TIERS = ("tiny", "small", "paper")  # sizes of a study, from seconds to the papers' own
