"""One thread per process, hypothesis without chance, and what the tests cost."""

import os
import resource
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
always = {"deadline": None, "derandomize": True, "database": None}
always["suppress_health_check"] = list(HealthCheck)
settings.register_profile("fedlib", max_examples=20, **always)
settings.load_profile("fedlib")


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
    report = yield
    report.cpu = cpu() - STATE["before"]
    return report


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        STATE["tests"][report.nodeid] = report.cpu


def pytest_terminal_summary(terminalreporter):
    """What each layer and the ten dearest tests took, in CPU seconds."""
    tests, layers = STATE["tests"], Counter()
    for name, seconds in tests.items():
        layers[name.split("/")[1]] += seconds
    for name, seconds in (*layers.most_common(), *tests.most_common(10)):
        terminalreporter.write_line(f"{seconds:8.1f} CPU s  {name}")
    load = f"load of the machine {os.getloadavg()[0]:.1f}"
    terminalreporter.write_line(f"{cpu():8.1f} CPU s in all, collection too; {load}")
