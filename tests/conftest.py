"""One thread for each process, draws that repeat, and what a run found and cost."""

from __future__ import annotations

import os
import random
from types import SimpleNamespace

# Two processes run the tests: more threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

from dpgenerative import _random
from tests import fits

COLUMNS = ("configuration", "audit", "claim", "at least", "best", "share", "trials")

SYSTEM = ("slow", "audit", "fuzz")
source = random.SystemRandom()


def pytest_addoption(parser):
    parser.addoption(
        "--draws",
        default="0",
        help="any word seeds other draws of noise; `system` leaves them to the system",
    )


def pytest_configure():
    """Let all that would be the operating system's entropy come from one source."""
    _random.os = SimpleNamespace(urandom=lambda length: source.randbytes(length))
    np.random.bit_generator.randbits = lambda bits: source.getrandbits(bits)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Leave some cases of tests marked `thin` to the thorough runs.

    Which ones is drawn by the test's name: every second case of a product of
    parameters could have one of them in common.
    """
    cases = {}
    for item in items:
        if item.get_closest_marker("thin"):
            cases.setdefault(item.nodeid.split("[")[0], []).append(item)
    for name, some in cases.items():
        (every,) = some[0].get_closest_marker("thin").args
        stay = random.Random(name).sample(range(len(some)), -(-len(some) // every))
        for place in set(range(len(some))) - set(stay):
            some[place].add_marker(pytest.mark.thorough)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Seed that source by the test's name, so that a run can be repeated."""
    global source
    draws = item.config.getoption("--draws")
    fresh = draws == "system" or any(map(item.get_closest_marker, SYSTEM))
    source = random.SystemRandom() if fresh else random.Random(f"{draws} {item.nodeid}")
    np.random.seed(source.getrandbits(32))  # noqa: NPY002, libraries draw from it
    torch.manual_seed(source.getrandbits(32))


@pytest.fixture(scope="module")
def few_rows_to_rake():
    """Spare the tests of a module most of the time of their fits."""
    with fits.few_rows_to_rake():
        yield


@pytest.fixture
def tabled(request):
    """Return a function that puts one result into the table, and returns it."""

    def keep(configuration, result):
        row = [
            configuration,
            result.audit,
            f"{result.epsilon:g}",
            f"{result.lower_bound:.3f}",
            f"{result.best:.3f}",
            f"{100 * result.share:.0f} %",
            f"{result.n_trials}",
        ]
        # Reports carry it from the process of the test to that of the summary.
        request.node.user_properties.append(("audit", row))
        return result

    return keep


def pytest_terminal_summary(terminalreporter):
    write_audits(terminalreporter)
    user, system, *of_children, _ = os.times()
    seconds = user + system + sum(of_children)
    terminalreporter.write_line(f"{seconds:.0f} seconds of processor time")


def write_audits(terminalreporter):
    reports = terminalreporter.getreports("passed")
    reports += terminalreporter.getreports("failed")
    rows = [
        row
        for report in reports
        for name, row in report.user_properties
        if name == "audit"
    ]
    if not rows:
        return
    terminalreporter.section("audits: lower bounds that hold together at 95 %")
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        terminalreporter.write_line("  ".join(cells).rstrip())
