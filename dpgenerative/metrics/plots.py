"""A picture of the one-way marginals of two tables."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator, PercentFormatter

from dpgenerative.metrics.fidelity import aligned, as_floats, is_number, level_codes

MAX_BARS = 12  # levels, or distinct numbers, beyond which a column is summarised
MIN_SLOTS = 4  # bars of a column with fewer levels are no broader than with these
N_BINS = 30

_MAX_LABEL = 14  # characters of a level's name
_REAL = "#c9c9c9"
_SYNTHETIC = "#c1440e"
_INK = "#404040"
_STYLE: Any = {
    "axes.edgecolor": _INK,
    "axes.linewidth": 0.6,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.ymargin": 0.02,
    "font.size": 8.5,
    "text.color": _INK,
    "xtick.color": _INK,
    "xtick.labelsize": 7,
    "xtick.major.size": 2,
    "xtick.major.width": 0.6,
    "ytick.color": _INK,
    "ytick.labelsize": 7,
    "ytick.major.size": 0,
}


def plot_marginals(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    columns: Sequence[Hashable] | None = None,
) -> Figure:
    """Draw the share of every level or bin: real filled in grey, synthetic outlined.

    A numeric column of more than 12 distinct real values is cut into about 30 bins over
    the real range, of equal width, or of equal width in asinh where nine tenths of the
    rows crowd in a tenth of the range. All other columns have one bar per level:
    numbers and ordered levels in their order, others by falling share, with those
    beyond the eleventh in one bar. Missing values have a bar of their own where there
    are any. Synthetic values that the bars lack count in the nearest one.

    The picture shows marginals of the real rows as they are. It is for the eyes of
    those who may see the rows: **do not release it**.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ.
    columns : sequence of hashable, optional
        Columns to draw, in this order. None: all of them.

    Returns
    -------
    Figure
        One panel per column, attached to no window: save it with its `savefig`.

    Raises
    ------
    ValueError
        When the columns of the tables differ, a table is empty, a column that is
        numeric in `real` is not in `synthetic`, or `columns` names none or one that the
        tables lack.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xxyy"), "b": [1.0, 2.0, 2.0, 3.0]})
    >>> figure = plot_marginals(real, real.sample(9, replace=True, random_state=0))
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['a', 'b']
    """
    synthetic = aligned(real, synthetic)
    names = list(real.columns) if columns is None else list(columns)
    if not names or any(name not in real.columns for name in names):
        raise ValueError(
            f"columns must name some of {list(real.columns)}; got {columns!r}."
        )
    with mpl.rc_context(_STYLE):
        figure, panels = _panels(len(names))
        for axes, name in zip(panels, names, strict=True):
            _draw(axes, real[name], synthetic[name])
            axes.set_title(str(name))
        handles = [
            Patch(color=_REAL, label="real"),
            Patch(facecolor="none", edgecolor=_SYNTHETIC, label="synthetic"),
        ]
        figure.legend(
            handles=handles, loc="outside upper right", ncols=2, frameon=False
        )
    return figure


def _panels(n: int) -> tuple[Figure, list[Axes]]:
    n_columns = min(n, 4 if n > 12 else 3)
    n_rows = math.ceil(n / n_columns)
    size = (2.9 * n_columns, 0.3 + 1.75 * n_rows)
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in grid[n:]:
        axes.remove()
    return figure, list(grid[:n])


def _draw(axes: Axes, real: pd.Series, synthetic: pd.Series) -> None:
    """Draw one column; bars stand at 0, 1, ... whatever they stand for."""
    if not is_number(real):
        labels, shares = _levels(real, synthetic)
    else:
        values = as_floats(real), as_floats(synthetic)
        distinct = np.unique(values[0][np.isfinite(values[0])])
        if len(distinct) > MAX_BARS:
            whole = pd.api.types.is_integer_dtype(real)
            edges = _edges(values[0][np.isfinite(values[0])], whole)
            _draw_histogram(axes, edges, [_binned(each, edges) for each in values])
            return
        middles = (distinct[1:] + distinct[:-1]) / 2
        edges = np.concatenate([[-np.inf], middles, [np.inf]])
        labels = [f"{value:g}" for value in distinct]
        shares = [_binned(each, edges) for each in values]
    _draw_bars(axes, labels, shares)


def _levels(
    real: pd.Series, synthetic: pd.Series
) -> tuple[list[str], list[np.ndarray]]:
    """Return the names of levels and the two tables' shares, missing values last."""
    codes, levels = level_codes(real, synthetic)
    n = len(levels)
    counts = [
        np.bincount(np.where(each < 0, n, each), minlength=n + 1) for each in codes
    ]
    shares = [each / each.sum() for each in counts]
    falling = np.argsort(-shares[0][:n], kind="stable")
    if isinstance(real.dtype, pd.CategoricalDtype) and real.dtype.ordered:
        order = np.arange(n)
    elif pd.api.types.is_bool_dtype(real):
        order = np.argsort(levels.to_numpy().astype(bool), kind="stable")
    else:
        order = falling
    shown, rest = order, order[:0]
    if n > MAX_BARS:
        shown = order[np.isin(order, falling[: MAX_BARS - 1])]
        rest = falling[MAX_BARS - 1 :]
    labels = [_shortened(str(levels[level])) for level in shown]
    if len(rest):
        labels.append(f"{len(rest)} others")
    return labels, [_gathered(each, shown, rest) for each in shares]


def _gathered(shares: np.ndarray, shown: np.ndarray, rest: np.ndarray) -> np.ndarray:
    others = [shares[rest].sum()] if len(rest) else []
    return np.concatenate([shares[shown], others, shares[-1:]])


def _shortened(label: str) -> str:
    return label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + "\u2026"


def _edges(values: np.ndarray, whole: bool) -> np.ndarray:
    """Cut the range of some numbers; for integers, half-way between two of them."""
    low, high = values.min(), values.max()
    near, far = np.quantile(values, [0.05, 0.95])
    if far - near < 0.1 * (high - low):
        edges = _asinh_edges(values)
        return np.unique([*np.floor(edges), high + 1]) - 0.5 if whole else edges
    if whole:
        step = math.ceil((high - low + 1) / N_BINS)
        return np.arange(low, high + step + 1, step) - 0.5
    return np.linspace(low, high, N_BINS + 1)


def _asinh_edges(values: np.ndarray) -> np.ndarray:
    """Cut the range in equal parts of asinh(value / a tenth of the typical value)."""
    low, high = values.min(), values.max()
    unit = np.median(np.abs(values[values != 0])) / 10
    scaled = np.linspace(np.arcsinh(low / unit), np.arcsinh(high / unit), N_BINS + 1)
    return np.concatenate([[low], unit * np.sinh(scaled[1:-1]), [high]])


def _binned(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the share of each bin, missing values last."""
    n = len(edges) - 1
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n - 1)
    counts = np.bincount(np.where(np.isnan(values), n, bins), minlength=n + 1)
    return counts / counts.sum()


def _draw_histogram(axes: Axes, edges: np.ndarray, shares: list[np.ndarray]) -> None:
    position = np.arange(len(edges))
    real, synthetic = (each[:-1] for each in shares)
    axes.stairs(real, position, fill=True, color=_REAL)
    axes.stairs(synthetic, position, color=_SYNTHETIC, linewidth=1.1)
    ticks = _ticks(edges)
    labels = [_number(tick) for tick in ticks]
    _finish(axes, np.interp(ticks, edges, position), labels, shares, width=2.0)


def _draw_bars(axes: Axes, labels: list[str], shares: list[np.ndarray]) -> None:
    position = np.arange(len(labels))
    _bar(axes, position, [each[:-1] for each in shares], width=0.8)
    _finish(axes, position, labels, shares, width=0.8)
    low, high = axes.get_xlim()
    room = max(MIN_SLOTS - (high - low), 0.0) / 2
    axes.set_xlim(low - room, high + room)


def _bar(
    axes: Axes, position: np.ndarray, heights: list[np.ndarray], width: float
) -> None:
    axes.bar(position, heights[0], width, color=_REAL)
    axes.bar(
        position, heights[1], width, fill=False, edgecolor=_SYNTHETIC, linewidth=1.1
    )


def _finish(
    axes: Axes,
    ticks: np.ndarray,
    labels: list[str],
    shares: list[np.ndarray],
    width: float,
) -> None:
    """Add the bar of missing values, if any, and the labels of both axes."""
    missing = [each[-1:] for each in shares]
    if np.any(missing):
        end = len(shares[0]) - 1 + width
        _bar(axes, np.array([end]), missing, width)
        clear = end - ticks > 2 * width
        ticks = np.append(ticks[clear], end)
        labels = [*np.array(labels, dtype=object)[clear], "missing"]
    slanted: Any = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(ticks, labels, **(slanted if len("".join(labels)) > 30 else {}))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def _ticks(edges: np.ndarray) -> np.ndarray:
    """Return a few round numbers inside the range of some edges."""
    widths = np.diff(edges)
    if np.allclose(widths, widths[0], rtol=1e-6, atol=0.0):
        ticks = np.asarray(MaxNLocator(4).tick_values(edges[0], edges[-1]))
    else:
        least, most = np.log10(widths.min()), np.log10(np.abs(edges).max())
        powers = 10.0 ** np.arange(np.ceil(least), np.floor(most) + 1)
        ticks = np.concatenate([-powers[::-1], [0.0], powers])
    ticks = ticks[(ticks >= edges[0]) & (ticks <= edges[-1])]
    return _thinned(ticks, np.interp(ticks, edges, np.arange(len(edges))))


def _thinned(ticks: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Keep zero, then the largest numbers, as long as they stand clear of others."""
    kept: list[int] = []
    for i in np.lexsort((-np.abs(ticks), ticks != 0)):
        if all(abs(place[i] - place[j]) > N_BINS / 6 for j in kept):
            kept.append(i)
    return ticks[sorted(kept)]


def _number(value: float) -> str:
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if abs(value) >= least:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"
