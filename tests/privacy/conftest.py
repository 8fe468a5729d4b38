"""Prints what the audits found, as one table, when a run has ended."""

from __future__ import annotations

import pytest

COLUMNS = ("configuration", "audit", "claim", "at least", "best", "share", "trials")
ROWS = pytest.StashKey[list]()


def pytest_configure(config):
    config.stash[ROWS] = []


@pytest.fixture
def tabled(request):
    """Return a function that puts one result into the table, and returns it."""

    def keep(configuration, result):
        rows = request.config.stash[ROWS]
        rows.append(
            (
                configuration,
                result.audit,
                f"{result.epsilon:g}",
                f"{result.lower_bound:.3f}",
                f"{result.best:.3f}",
                f"{100 * result.share:.0f} %",
                f"{result.n_trials}",
            )
        )
        return result

    return keep


def pytest_terminal_summary(terminalreporter, config):
    rows = config.stash.get(ROWS, [])
    if not rows:
        return
    terminalreporter.section("audits: lower bounds that hold together at 95 %")
    widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
    for row in (COLUMNS, *rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        terminalreporter.write_line("  ".join(cells).rstrip())
