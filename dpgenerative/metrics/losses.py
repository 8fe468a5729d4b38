"""Which columns of a synthetic table lost values, judged on the rows themselves.

A schema that a fit has completed lacks the levels that were not released: real rows
read through it have lost the same ones, and nothing seems amiss.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from dpgenerative.metrics.columns import as_floats, common_codes, is_number
from dpgenerative.metrics.words import percent
from dpgenerative.tables.times import spelled, temporal_kind

LEAST_LOSS = 0.05
"""Share of a column's rows from which their values count as lost."""
LEAST_GAP = 0.1
"""Share of the real range by which two ranges differ visibly."""
_LUCK = 1e-3  # probability up to which values beyond the other range are no chance


def lost_values(real: pd.DataFrame, synthetic: pd.DataFrame) -> pd.DataFrame:
    """List the columns that lost values.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in the same order.

    Returns
    -------
    DataFrame
        Columns ``column``, ``share`` (of the column's rows) and ``loss`` (what is true
        of the column, in words), the largest share first.
    """
    return _listed(real, synthetic, _losses)


def changed_ranges(real: pd.DataFrame, synthetic: pd.DataFrame) -> pd.DataFrame:
    """List columns of numbers or times whose range differs visibly from the real one.

    As `lost_values` does: ``share`` is that of the rows beyond the other table's range.
    """
    return _listed(real, synthetic, _ranges)


Judge = Callable[[pd.Series, pd.Series], Iterator[tuple[float, str]]]


def _listed(real: pd.DataFrame, synthetic: pd.DataFrame, judge: Judge) -> pd.DataFrame:
    rows = []
    for name in real.columns:
        if losses := list(judge(real[name], synthetic[name])):
            shares, texts = zip(*losses, strict=True)
            rows.append((name, max(shares), "; ".join(texts)))
    table = pd.DataFrame(rows, columns=["column", "share", "loss"])
    return table.sort_values("share", ascending=False, kind="stable", ignore_index=True)


def _losses(real: pd.Series, synthetic: pd.Series) -> Iterator[tuple[float, str]]:
    before, after = float(real.isna().mean()), float(synthetic.isna().mean())
    if after - before > LEAST_LOSS or before < after == 1:
        which = "all" if after == 1 else f"{percent(after)} of the"
        rows = f"{which} synthetic rows, in {percent(before)} of the real ones"
        yield after - before, f"is missing in {rows}"
    elif before > LEAST_LOSS and after == 0:
        yield before, f"is never missing, as {percent(before)} of the real rows are"
    if after < 1 - LEAST_LOSS:  # else there is nothing to add
        yield from (_numbers if is_number(real) else _levels)(real, synthetic)


def _levels(real: pd.Series, synthetic: pd.Series) -> Iterator[tuple[float, str]]:
    (codes, made), levels = common_codes(real, synthetic)
    shares = np.bincount(codes[codes >= 0], minlength=len(levels)) / len(codes)
    absent = np.bincount(made[made >= 0], minlength=len(levels)) == 0
    lost = float(shares[absent].sum())
    by_chance = float((shares * (1 - shares) ** len(made)).sum())
    if lost - by_chance <= LEAST_LOSS:
        return
    n_lost, n = np.count_nonzero(shares[absent]), np.count_nonzero(shares)
    rows = f"{percent(lost)} of the real rows"
    yield lost, f"lacks {n_lost:,} of {n:,} levels, those of {rows}"


def _numbers(real: pd.Series, synthetic: pd.Series) -> Iterator[tuple[float, str]]:
    values, made = (_finite(column) for column in (real, synthetic))
    if len(made) == 0 or len(values) == 0 or np.ptp(made) > 0:
        return
    lost = float((values != made[0]).mean())
    if lost > LEAST_LOSS:
        only = _written(made[0], real)
        yield lost, f"is always {only}, as {percent(1 - lost)} of the real ones are"


def _ranges(real: pd.Series, synthetic: pd.Series) -> Iterator[tuple[float, str]]:
    if not is_number(real):
        return
    values, made = (_finite(column) for column in (real, synthetic))
    if len(values) == 0 or len(made) == 0 or np.ptp(made) == 0:
        return
    for verb, sign, end in (("ends", 1, np.max), ("begins", -1, np.min)):
        if beyond := _beyond(sign * values, sign * made):
            share, whose = beyond
            place, wanted = (_written(end(each), real) for each in (made, values))
            between = f"{percent(share)} of the {whose} values lie between"
            yield share, f"{verb} at {place}, not {wanted} ({between})"


def _beyond(values: np.ndarray, made: np.ndarray) -> tuple[float, str] | None:
    """Return the share of rows beyond the other table's maximum, and whose they are."""
    top, reached = values.max(), made.max()
    if abs(top - reached) <= LEAST_GAP * max(np.ptp(values), 1e-300):
        return None
    whose, longer, end = "synthetic", made, top
    if top > reached:
        whose, longer, end = "real", values, reached
    n_beyond = int((longer > end).sum())
    # How often the largest values are all its own if both are of one population.
    if (len(longer) / (len(values) + len(made))) ** n_beyond > _LUCK:
        return None
    return n_beyond / len(longer), whose


def _finite(column: pd.Series) -> np.ndarray:
    values = as_floats(column)
    return values[np.isfinite(values)]


def _written(value: float, like: pd.Series) -> str:
    if (kind := temporal_kind(like.dtype)) is not None:
        return spelled(int(value), kind, "s")
    return f"{value:,.0f}" if 1e6 <= abs(value) < 1e15 else f"{value:,.6g}"
