"""One thread per process, hypothesis without chance, and what the tests cost."""

import os
import resource
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, settings

DEAREST = 10  # tests that are named at the end
torch.set_num_threads(1)
settings.register_profile(
    "fedlib",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("fedlib")


# ---------------------------------------------------------------- what they cost
def cpu():
    """CPU seconds of this process and of its children that have ended."""
    both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(sum(resource.getrusage(who)[:2]) for who in both)


STATE = {"before": 0.0, "tests": Counter()}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    STATE["before"] = cpu()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """The report of the teardown, the last one, carries what the test took."""
    report = yield
    if report.when == "teardown":
        report.cpu = cpu() - STATE["before"]
    return report


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        STATE["tests"][report.nodeid] = report.cpu


def pytest_terminal_summary(terminalreporter):
    """The dearest tests, and those of each layer, in CPU seconds."""
    tests, line = STATE["tests"], terminalreporter.write_line
    if len(tests) <= DEAREST:
        return
    layers = Counter()
    for name, seconds in tests.items():
        layers[name.split("/")[1]] += seconds
    line("")
    for counts in (layers, tests):
        for name, seconds in counts.most_common(
            len(layers) if counts is layers else 10
        ):
            line(f"{seconds:8.1f} CPU s  {name}")
        line("")
    load, mine = os.getloadavg()[0], cpu()
    line(f"{mine:8.1f} CPU s in all, collection too; load of the machine {load:.1f}")
