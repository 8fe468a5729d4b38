"""One column of two tables, drawn: a histogram of numbers and times, bars of levels.

Where a picture shows two tables, the real one is filled, the synthetic one an outline
over it; a synthetic table alone is filled with a tint of its own.
"""

import datetime as dt
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, num2date
from matplotlib.ticker import AsinhLocator, MaxNLocator, PercentFormatter
from matplotlib.transforms import IdentityTransform, Transform

from dpgenerative._files import encodable
from dpgenerative.metrics.columns import as_floats, common_codes, is_number
from dpgenerative.tables.times import temporal_kind

REAL = "#c9c9c9"
SYNTHETIC = "#c1440e"
TINT = "#f1d8cc"

MAX_BARS = 12  # levels, or distinct numbers, beyond which a column is summarised
MIN_SLOTS = 4  # bars of a column with fewer levels are no broader than with these
N_BINS = 30

_MAX_LABEL = 14  # characters of a level's name
_MAX_LABELS = 30  # characters of all labels of an axis that stand side by side
_DURATIONS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_INSTANTS = (-62_135_596_800, 253_402_300_799)  # the years 1 to 9999, in seconds
_LARGE = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))


def draw_column(axes: Axes, real: pd.Series | None, synthetic: pd.Series) -> None:
    """Draw the shares of a column's values in both tables."""
    fill = REAL
    if real is None:
        real, fill = synthetic, TINT
    if not is_number(real):
        _draw_bars(axes, *_levels(real, synthetic), fill)
        return
    values = [as_floats(real), as_floats(synthetic)]
    kind = temporal_kind(real.dtype)
    distinct = np.unique(values[0][np.isfinite(values[0])])
    if len(distinct) > MAX_BARS:
        _draw_histogram(axes, values, pd.api.types.is_integer_dtype(real), kind, fill)
        return
    edges = np.concatenate([[-np.inf], (distinct[1:] + distinct[:-1]) / 2, [np.inf]])
    labels = [f"{value:g}" for value in distinct]
    if kind is not None:
        labels = _times(distinct, kind, units="Dms")
    _draw_bars(axes, labels, [_binned(each, edges) for each in values], fill)


# Bars ---------------------------------------------------------------------------------


def _levels(real: pd.Series, made: pd.Series) -> tuple[list[str], list[np.ndarray]]:
    """Return the names of levels and the two tables' shares, missing values last."""
    codes, levels = common_codes(real, made)
    n = len(levels)
    # Missing values, with a code of -1, are the last.
    shares = [np.bincount(x % (n + 1), minlength=n + 1) / len(x) for x in codes]
    falling = order = np.argsort(-shares[0][:n], kind="stable")
    if isinstance(real.dtype, pd.CategoricalDtype) and real.dtype.ordered:
        order = np.arange(n)
    elif pd.api.types.is_bool_dtype(real):
        order = np.argsort(levels.to_numpy().astype(bool), kind="stable")
    shown, rest = order, order[:0]
    if n > MAX_BARS:
        shown = order[np.isin(order, falling[: MAX_BARS - 1])]
        rest = falling[MAX_BARS - 1 :]
    labels = [shortened(str(levels[level])) for level in shown]
    bars: list[Any] = list(shown)
    if len(rest):
        labels.append(f"{len(rest)} others")
        bars.append(rest)
    return labels, [np.array([x[bar].sum() for bar in (*bars, n)]) for x in shares]


def shortened(label: str, most: int = _MAX_LABEL) -> str:
    """Return a name short enough for an axis, of what fonts can be asked for."""
    label = encodable(label)
    return label if len(label) <= most else label[: most - 1] + "\u2026"


def _draw_bars(
    axes: Axes, labels: list[str], shares: list[np.ndarray], fill: str
) -> None:
    places = np.arange(len(labels), dtype=float)
    heights = [each[: len(labels)] for each in shares]
    if any(each[-1] > 0 for each in shares):
        places, labels = np.append(places, len(labels) + 0.8), [*labels, "missing"]
        pairs = zip(heights, shares, strict=True)
        heights = [np.append(height, each[-1]) for height, each in pairs]
    _bar(axes, places, heights, 0.8, fill)
    _finish(axes, places, labels)
    low, high = axes.get_xlim()
    room = max(MIN_SLOTS - (high - low), 0.0) / 2
    axes.set_xlim(low - room, high + room)


def _bar(
    axes: Axes, places: Any, heights: list[np.ndarray], width: float, fill: str
) -> None:
    axes.bar(places, heights[0], width, color=fill)
    axes.bar(places, heights[1], width, fill=False, edgecolor=SYNTHETIC, linewidth=1.1)


def _finish(axes: Axes, ticks: Any, labels: list[str]) -> None:
    slanted: Any = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    is_long = len("".join(labels)) > _MAX_LABELS
    axes.set_xticks(ticks, labels, parse_math=False, **(slanted if is_long else {}))
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))


# Histograms ---------------------------------------------------------------------------


def _draw_histogram(
    axes: Axes, values: list[np.ndarray], whole: bool, kind: str | None, fill: str
) -> None:
    finite = values[0][np.isfinite(values[0])]
    unit = _asinh_unit(finite)
    if unit is not None:
        axes.set_xscale("asinh", linear_width=unit)
        axes.minorticks_off()
    scale = axes.xaxis.get_transform()
    edges = _edges(finite, whole, scale)
    shares = [_binned(each, edges) for each in values]
    axes.stairs(shares[0][:-1], edges, fill=True, color=fill)
    axes.stairs(shares[1][:-1], edges, color=SYNTHETIC, linewidth=1.1)
    ticks = _ticks(edges[0], edges[-1], kind, unit)
    ticks = _thinned(ticks, scale.transform(ticks), np.ptp(scale.transform(edges)) / 6)
    labels = list(map(_number, ticks)) if kind is None else _times(ticks, kind)
    if any(each[-1] > 0 for each in shares):
        low, high = scale.transform(edges[[0, -1]])
        places = high + np.array([-2, 1, 3]) * (high - low) / N_BINS
        clear, left, right = scale.inverted().transform(places)
        missing = [each[-1:] for each in shares]
        _bar(axes, [(left + right) / 2], missing, right - left, fill)
        labels = [*np.array(labels, dtype=object)[ticks < clear], "missing"]
        ticks = np.append(ticks[ticks < clear], (left + right) / 2)
    _finish(axes, ticks, labels)


def _asinh_unit(values: np.ndarray) -> float | None:
    """Return the unit of an asinh axis, a tenth of the median, if values crowd."""
    near, far = np.quantile(values, [0.05, 0.95])
    if far - near >= 0.1 * np.ptp(values):
        return None
    return float(np.median(np.abs(values[values != 0])) / 10)


def _edges(values: np.ndarray, whole: bool, scale: Transform) -> np.ndarray:
    """Return edges of bins of equal width on a scale; of integers, between them."""
    low, high = values.min(), values.max()
    if whole and isinstance(scale, IdentityTransform):
        step = math.ceil((high - low + 1) / N_BINS)
        return np.arange(low, high + step + 1, step) - 0.5
    start, end = map(float, scale.transform([low, high]))
    inner = scale.inverted().transform(np.linspace(start, end, N_BINS + 1)[1:-1])
    edges = np.array([low, *inner, high])
    return np.unique([*np.floor(edges), high + 1]) - 0.5 if whole else edges


def _binned(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the share of each bin, missing values last."""
    n = len(edges) - 1
    bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, n - 1)
    counts = np.bincount(np.where(np.isnan(values), n, bins), minlength=n + 1)
    return counts / counts.sum()


def _ticks(low: float, high: float, kind: str | None, unit: float | None) -> np.ndarray:
    """Return a few round numbers, or times in seconds, in a range."""
    if kind == "datetime":
        ticks = _instants(low, high)
    else:
        size = 1.0 if kind is None else _duration_unit([low, high])[1]
        scale = MaxNLocator(4) if unit is None else AsinhLocator(unit / size)
        ticks = np.asarray(scale.tick_values(low / size, high / size)) * size
    return ticks[(ticks >= low) & (ticks <= high)]


def _instants(low: float, high: float) -> np.ndarray:
    seconds = np.clip([low, high], *_INSTANTS).astype(np.int64)
    locator = AutoDateLocator(tz=dt.UTC, minticks=2, maxticks=6)
    days = locator.tick_values(*seconds.astype("M8[s]").astype(dt.datetime))
    return np.array([each.timestamp() for each in num2date(days)])


def _thinned(ticks: np.ndarray, places: np.ndarray, room: float) -> np.ndarray:
    """Drop ticks too close to others; zero comes first, then the largest numbers."""
    chosen: list[int] = []
    for i in np.lexsort((-np.abs(ticks), ticks != 0)):
        if all(abs(places[i] - places[j]) > room for j in chosen):
            chosen.append(i)
    return ticks[sorted(chosen)]


def _number(value: float) -> str:
    for least, unit, letter in _LARGE:
        if abs(value) >= least:
            return f"{value / unit:g}{letter}"
    return f"{value:g}"


def _times(seconds: np.ndarray, kind: str, units: str = "YMDms") -> list[str]:
    """Format times, no longer than is needed; instants in one of some numpy units."""
    if kind == "timedelta":
        unit, size = _duration_unit(seconds)
        return [f"{each / size:g} {unit}" for each in seconds]
    exact = np.rint(seconds * 1e6).astype(np.int64).astype("M8[us]")
    coarser = (exact.astype(f"M8[{unit}]") for unit in (*units, "ms", "us"))
    times = next(each for each in coarser if (each == exact).all())
    return [text.replace("T", " ") for text in times.astype(str)]


def _duration_unit(seconds: Sequence[float] | np.ndarray) -> tuple[str, float]:
    longest = np.abs(seconds).max(initial=0)
    return next(each for each in _DURATIONS if longest >= 2 * each[1] or each[1] == 1)
