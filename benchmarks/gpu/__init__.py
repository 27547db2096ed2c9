"""One script for a lent GPU: the tests on it, then every way to run a round, each
against the engine's loop and the floor.

    python -m benchmarks.gpu --budget 540
            results/benchmarks-gpu.csv and .json
    python -m benchmarks.gpu --small --reps 2 --seconds 0.02 --out gpu.csv
            a try-out on a CPU

It needs torch, numpy, pandas and fedlib, and fetches nothing. After --budget seconds
the variants that are left become rows that say so. On a CPU the same code runs,
variants that need CUDA become rows that say so, and nothing is written without --out.

    setups    cases, what a round draws, how a time is taken
    engine    fedlib.run: loop, vmap, seeds stacked
    hand      linear layers with a leading client dimension, gradient written out
    step      one client after another, or all under vmap, one step at a time
    graph     a step as a CUDA graph
    floor     what the device reaches, and what a round would take at that rate
    variants  which of these suit a case
    measure   the rows of a case
    checks    the tests; is a variant the loop, in float64 and in float32
"""
