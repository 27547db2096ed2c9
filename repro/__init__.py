"""The reproduction: what papers/<paper> says, run, judged and put on pages.

fedlib knows nothing of it. repro knows no paper by name: repro.papers finds them.
"""
