"""Studies: grids of runs, named, computed once, stored, read many times.

    from fedlib.study.experiment import study
    study("fedga", "synthetic").seeds()

experiment    study(): a study's cells with their records, wherever these come from
studies       what params.yaml and papers/*/studies.yaml say, as cells: one run each
compute       jobs are run: here, or in other processes by joblib
lock          a run is computed by one process at a time
results       tables, arrays and tidy frames of a study; the csv that is written
store         finished runs as Parquet files, written and read
once          what a notebook measures once and keeps
audit         evidence of all studies: compute, pack, check, verify
identity      what names a run; code that is not that of the stored runs
compare       methods side by side on one task; comparison: what comes out, as a table
              and as a page
"""

TIERS = ("tiny", "small", "paper")  # sizes of a study, from seconds to the papers' own
