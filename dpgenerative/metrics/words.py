"""How a report writes shares, and lists of columns."""

from collections.abc import Hashable, Iterable

import pandas as pd

from dpgenerative._files import encodable

LOST = "Columns that lost values"
RANGES = "Columns whose range differs from the real one"
MOST_NAMED = 12
"""Columns named at most, where more have the same fault."""


def percent(share: float) -> str:
    """Write a measured share."""
    if 0 < abs(share) < 5e-4:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def exact(share: float) -> str:
    """Write a share that is set, not measured."""
    return f"{100 * share:.3g}\u00a0%"


def listed(names: Iterable[Hashable]) -> str:
    """Enumerate columns, the first few of many."""
    several = [encodable(name) for name in names]
    if len(several) > MOST_NAMED:
        several[MOST_NAMED - 1 :] = [f"{len(several) - MOST_NAMED + 1} others"]
    return " and ".join(filter(None, [", ".join(several[:-1]), *several[-1:]]))


def losses(lost: pd.DataFrame) -> list[str]:
    """Write a line on each of the first columns in a table of losses."""
    lines = [encodable(f"{each.column} {each.loss}") for each in lost.itertuples()]
    rest = len(lines) - MOST_NAMED
    return lines if rest <= 0 else [*lines[:MOST_NAMED], f"and {rest} more"]
