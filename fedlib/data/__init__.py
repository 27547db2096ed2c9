"""Data: one file per source, and `partition`, which cuts any source into clients.

Every source returns a `fedlib.core.pool.Pool`: plain tensors, no loader object. Where
the files of a real data set live is the argument `root`; without it the environment
variable FEDLIB_DATA, without that the folder `data` of the current directory.
"""
