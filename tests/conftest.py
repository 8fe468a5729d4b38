"""One thread for each process of the tests, and a table of what the audits found."""

from __future__ import annotations

import os

import pytest

# Two processes run the tests: more threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

COLUMNS = ("configuration", "audit", "claim", "at least", "best", "share", "trials")


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
