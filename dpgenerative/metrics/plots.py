"""Pictures of two tables: marginals, associations, utility, attacks.

None of them touches pyplot or opens a window: each function draws on the axes it is
given, or on a figure of its own.

==================== ===============================================================
name                 draws
==================== ===============================================================
`plot_marginals`     the share of every level or bin of every column
`plot_association`   a heat map of the associations between columns
`plot_utility`       scores of models trained on real and on synthetic rows
`plot_roc`           ROC curves of attacks on log axes, and what the guarantee rules out
==================== ===============================================================

All but an association matrix of the synthetic table alone show facts about real rows.
"""

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

from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    is_number,
    level_codes,
    takes_tables,
)
from dpgenerative.metrics.membership import AttackResult, roc_cap
from dpgenerative.tables.times import temporal_kind

MAX_BARS = 12  # levels, or distinct numbers, beyond which a column is summarised
MIN_SLOTS = 4  # bars of a column with fewer levels are no broader than with these
N_BINS = 30

_MAX_LABEL = 14  # characters of a level's name
_REAL = "#c9c9c9"
_SYNTHETIC = "#c1440e"
_SYNTHETIC_TINT = "#f1d8cc"
_INK = "#404040"
_REAL_DOT = "#7a7a7a"  # the grey of areas is too faint for a dot
_CURVES = (_SYNTHETIC, "#1f5a92", "#5d7a1f", "#7b3f8c")
_RULED_OUT = "#e6edf5"
_DAY = 86_400.0  # seconds
_DURATIONS = (("d", _DAY), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
# Characters of an instant in ISO 8601 that tell those so many seconds apart.
_DATE_STEPS = (
    *(("s", step) for step in (1, 10, 30)),
    *(("m", step) for step in (1, 10, 30)),
    *(("h", step) for step in (1, 3, 6, 12)),
    *(("D", step) for step in (1, 2, 7, 14)),
    *(("M", step) for step in (1, 3, 6)),
    *(("Y", step) for step in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)),
)
_MOST_INSTANTS = 5
_DATE_LENGTHS = ((360 * _DAY, 4), (27 * _DAY, 7), (_DAY, 10), (60.0, 16), (0.0, 19))
_MOST_LABELS = 40  # columns named beside a heat map
_STYLE: Any = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.labelsize": 8,
    "axes.linewidth": 0.6,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "axes.ymargin": 0.02,
    "font.size": 8.5,
    "legend.fontsize": 7.5,
    "text.color": _INK,
    "xtick.color": _INK,
    "xtick.labelsize": 7,
    "xtick.major.size": 2,
    "xtick.major.width": 0.6,
    "ytick.color": _INK,
    "ytick.labelsize": 7,
    "ytick.major.size": 0,
}
_ERRORS = ("rmse", "mae")  # scores of which less is better
_MODELS = {
    "gaussian_nb": "Gaussian naive Bayes",
    "bernoulli_nb": "Bernoulli naive Bayes",
    "lda": "linear discriminant",
    "adaboost": "AdaBoost",
    "hist_gradient_boosting": "gradient boosting",
    "mlp": "neural network",
    "ridge": "ridge regression",
}
SCORES = {
    "macro_f1": "macro F1",
    "auroc": "area under the ROC curve",
    "average_precision": "average precision",
    "r2": "share of variance explained (R\u00b2)",
    "rmse": "root mean square error",
    "mae": "mean absolute error",
}
"""What to call the scores of `tstr`."""


@takes_tables
def plot_marginals(
    real: pd.DataFrame | None,
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
    those who may see the rows: **do not release it**. Without a real table the
    synthetic one stands alone, cut by its own values.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ. `real` may be None.
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
    synthetic = aligned(synthetic if real is None else real, synthetic)
    names = list(synthetic.columns) if columns is None else list(columns)
    if not names or any(name not in synthetic.columns for name in names):
        raise ValueError(
            f"columns must name some of {list(synthetic.columns)}; got {columns!r}."
        )
    with mpl.rc_context(_STYLE):
        figure, panels = _panels(len(names))
        for axes, name in zip(panels, names, strict=True):
            draw_marginal(axes, None if real is None else real[name], synthetic[name])
            axes.set_title(str(name), parse_math=False)
        outlined = Patch(
            facecolor="none" if real is not None else _SYNTHETIC_TINT,
            edgecolor=_SYNTHETIC,
            label="synthetic",
        )
        filled = [] if real is None else [Patch(color=_REAL, label="real")]
        figure.legend(
            handles=[*filled, outlined],
            loc="outside upper right",
            ncols=2,
            frameon=False,
        )
    return figure


@takes_tables
def plot_marginal(real: pd.Series | None, synthetic: pd.Series) -> Axes:
    """Draw one column as `plot_marginals` does, without title and legend.

    Parameters
    ----------
    real, synthetic : Series
        The column in both tables; `real` may be None.

    Returns
    -------
    Axes
        The only ones of their figure.
    """
    with mpl.rc_context(_STYLE):
        axes = _own_axes((2.9, 1.6))
        draw_marginal(axes, real, synthetic)
    return axes


def plot_association(
    matrix: pd.DataFrame,
    ax: Axes | None = None,
    title: str | None = None,
    *,
    signed: bool = False,
    limit: float = 1.0,
) -> Axes:
    """Draw a matrix of associations between columns as a heat map.

    Parameters
    ----------
    matrix : DataFrame of shape (p, p)
        Associations in [0, 1], as `association_matrix` returns them, or signed values:
        a difference of two such matrices, or Kendall's tau. The diagonal is left blank.
    ax : Axes, optional
        Where to draw. None: a figure of its own, reached as the axes' `figure`.
    title : str, optional
    signed : bool, default=False
        Whether the colours run from `-limit` to `limit`, white at 0, not from 0.
    limit : float, default=1.0
        Value that gets the deepest colour, > 0.

    Returns
    -------
    Axes

    Examples
    --------
    >>> matrix = pd.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"])
    >>> plot_association(matrix, title="real").get_title(loc="left")
    'real'
    """
    n = len(matrix)
    values = np.where(np.eye(n, dtype=bool), np.nan, matrix.to_numpy(dtype=np.float64))
    with mpl.rc_context(_STYLE | {"axes.spines.bottom": False}):
        axes = _own_axes((3.5, 3.2)) if ax is None else ax
        image = axes.imshow(
            values,
            cmap="RdBu_r" if signed else "YlOrBr",
            vmin=-limit if signed else 0.0,
            vmax=limit,
        )
        _name_cells(axes, [str(name) for name in matrix.columns])
        figure = axes.get_figure()
        assert figure is not None
        bar = figure.colorbar(image, ax=axes, shrink=0.7, aspect=24)
        bar.outline.set_visible(False)  # type: ignore[operator]
        bar.locator = MaxNLocator(4)
        bar.update_ticks()
        if title is not None:
            axes.set_title(title, parse_math=False)
    return axes


def plot_utility(
    scores: pd.DataFrame, ax: Axes | None = None, *, metric: str | None = None
) -> Axes:
    """Draw one score of every model: trained on real rows, and on synthetic ones.

    A dot plot: the length of a bar would ask to be read from zero, where no model ends;
    the gap between two dots is what counts. Repeats are faint dots around their mean.

    Parameters
    ----------
    scores : DataFrame
        As `tstr` returns it.
    ax : Axes, optional
        Where to draw. None: a figure of its own, reached as the axes' `figure`.
    metric : str, optional
        Column to draw. None: ``auroc`` where there is one, else ``r2``.

    Returns
    -------
    Axes
        One row per model, the best on real rows uppermost.

    Raises
    ------
    ValueError
        When `scores` lacks the column `metric`.
    """
    if metric is None:
        metric = main_score(scores)
    if metric not in scores:
        raise ValueError(f"metric must be one of {list(scores)}; got {metric!r}.")
    means = scores.groupby(["model", "trained_on"])[metric].mean().unstack()
    best_last = means.get("real", means["synthetic"])
    means = means.loc[best_last.sort_values(ascending=metric not in _ERRORS).index]
    place = {model: row for row, model in enumerate(means.index)}
    with mpl.rc_context(_STYLE):
        axes = _own_axes((3.5, 0.8 + 0.22 * len(means))) if ax is None else ax
        if len(means.columns) > 1:
            axes.hlines(
                range(len(means)), means.min(axis=1), means.max(axis=1),
                color=_REAL, linewidth=1.5, zorder=1,
            )  # fmt: skip
        for source, colour in (("real", _REAL_DOT), ("synthetic", _SYNTHETIC)):
            if source not in means:
                continue
            single = scores[scores["trained_on"] == source]
            rows = single["model"].map(place)
            if len(single) > len(means):
                axes.scatter(single[metric], rows, s=8, color=colour, alpha=0.35)
            axes.scatter(
                means[source], range(len(means)), s=32, color=colour, zorder=2,
                label=f"trained on {source} rows",
            )  # fmt: skip
        _finish_dots(axes, [str(model) for model in means.index], metric)
    return axes


def plot_roc(
    results: AttackResult | Sequence[AttackResult], ax: Axes | None = None
) -> Axes:
    """Draw ROC curves of attacks on logarithmic axes, with what privacy rules out.

    Logarithmic axes show the corner that matters: few false alarms. On the diagonal the
    attack guesses. The shaded region above the cap is out of reach, in expectation, of
    any attack on a run with the guarantee that the results carry.

    Parameters
    ----------
    results : AttackResult or sequence of AttackResult
        One curve each; the cap is drawn once for every guarantee among them.
    ax : Axes, optional
        Where to draw. None: a figure of its own, reached as the axes' `figure`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        When there is no result.
    """
    several = [results] if isinstance(results, AttackResult) else list(results)
    if not several:
        raise ValueError("results must hold an AttackResult; got none.")
    least = 1 / max(len(each.scores) for each in several)
    with mpl.rc_context(_STYLE | {"axes.spines.left": True, "ytick.major.size": 2}):
        axes = _own_axes((4.4, 4.2)) if ax is None else ax
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        axes.plot([least, 1], [least, 1], color=_REAL_DOT, lw=0.8, ls="--",
                  label="guessing")  # fmt: skip
        for privacy in dict.fromkeys(each.privacy for each in several if each.privacy):
            _draw_cap(axes, privacy, least)
        for i, each in enumerate(several):
            label = f"{each.name} (AUC {each.auc.value:.3f})"
            colour = _CURVES[i % len(_CURVES)]
            axes.plot(*_curve(each, least), color=colour, linewidth=1.4, label=label)
        axes.set_aspect("equal")
        axes.set_xlabel("false positive rate: share of unused rows accused")
        axes.set_ylabel("true positive rate: share of used rows found")
        axes.legend(loc="lower right", frameon=False)
    return axes


def model_name(name: str) -> str:
    """Return what to call a model: the defaults of `tstr` in words."""
    return _MODELS.get(name, name.replace("_", " "))


def main_score(scores: pd.DataFrame) -> str:
    """Return the score that counts most among those of a task."""
    return "auroc" if "auroc" in scores else "r2"


def _own_axes(size: tuple[float, float]) -> Axes:
    figure = Figure(figsize=size, dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.subplots()


def _name_cells(axes: Axes, names: list[str]) -> None:
    axes.tick_params(length=0)
    if len(names) > _MOST_LABELS:
        axes.set_xticks([])
        axes.set_yticks([])
        axes.set_xlabel(f"{len(names)} columns, in the table's order")
        return
    places, labels = range(len(names)), [_shortened(name) for name in names]
    axes.set_xticks(places, labels, rotation=90, parse_math=False)
    axes.set_yticks(places, labels, parse_math=False)


def _finish_dots(axes: Axes, names: list[str], metric: str) -> None:
    labels = [model_name(name) for name in names]
    axes.set_yticks(range(len(names)), labels, parse_math=False)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(axis="x", color="#ececec", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(SCORES.get(metric, metric))
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)


def _curve(result: AttackResult, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a ROC curve, with points enough to cross ties on log axes."""
    fpr, tpr = result.roc()
    between = np.geomspace(least, 1.0, 300)
    x = np.concatenate([fpr, between])
    y = np.concatenate([tpr, np.interp(between, fpr, tpr)])
    order = np.lexsort((y, x))
    return x[order], y[order]


def _draw_cap(axes: Axes, privacy: Any, least: float) -> None:
    fpr = np.geomspace(least, 1.0, 200)
    cap = roc_cap(fpr, privacy)
    label = "ruled out by the guarantee"
    axes.fill_between(fpr, cap, 1.0, color=_RULED_OUT, linewidth=0, label=label)
    axes.plot(fpr, cap, color=_CURVES[1], linewidth=0.9)


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


def draw_marginal(axes: Axes, real: pd.Series | None, synthetic: pd.Series) -> None:
    """Draw one column; bars stand at 0, 1, ... whatever they stand for."""
    fill = _REAL
    if real is None:
        real, fill = synthetic, _SYNTHETIC_TINT
    kind = temporal_kind(real.dtype)
    if not is_number(real):
        labels, shares = _levels(real, synthetic)
    else:
        values = as_floats(real), as_floats(synthetic)
        distinct = np.unique(values[0][np.isfinite(values[0])])
        if len(distinct) > MAX_BARS:
            whole = pd.api.types.is_integer_dtype(real)
            edges = _edges(values[0][np.isfinite(values[0])], whole)
            binned = [_binned(each, edges) for each in values]
            _draw_histogram(axes, edges, binned, fill, kind)
            return
        middles = (distinct[1:] + distinct[:-1]) / 2
        edges = np.concatenate([[-np.inf], middles, [np.inf]])
        labels = [f"{value:g}" for value in distinct]
        if kind is not None:
            labels = _times(distinct, kind, 1.0 if (distinct % _DAY).any() else _DAY)
        shares = [_binned(each, edges) for each in values]
    _draw_bars(axes, labels, shares, fill)


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


def _draw_histogram(
    axes: Axes,
    edges: np.ndarray,
    shares: list[np.ndarray],
    fill: str,
    kind: str | None,
) -> None:
    position = np.arange(len(edges))
    real, synthetic = (each[:-1] for each in shares)
    axes.stairs(real, position, fill=True, color=fill)
    axes.stairs(synthetic, position, color=_SYNTHETIC, linewidth=1.1)
    if kind is None:
        ticks = _ticks(edges)
        labels = [_number(tick) for tick in ticks]
    else:
        ticks, labels = _time_ticks(edges, kind)
    _finish(axes, np.interp(ticks, edges, position), labels, shares, 2.0, fill)


def _draw_bars(
    axes: Axes, labels: list[str], shares: list[np.ndarray], fill: str
) -> None:
    position = np.arange(len(labels))
    _bar(axes, position, [each[:-1] for each in shares], 0.8, fill)
    _finish(axes, position, labels, shares, 0.8, fill)
    low, high = axes.get_xlim()
    room = max(MIN_SLOTS - (high - low), 0.0) / 2
    axes.set_xlim(low - room, high + room)


def _bar(
    axes: Axes,
    position: np.ndarray,
    heights: list[np.ndarray],
    width: float,
    fill: str,
) -> None:
    axes.bar(position, heights[0], width, color=fill)
    axes.bar(
        position, heights[1], width, fill=False, edgecolor=_SYNTHETIC, linewidth=1.1
    )


def _finish(
    axes: Axes,
    ticks: np.ndarray,
    labels: list[str],
    shares: list[np.ndarray],
    width: float,
    fill: str,
) -> None:
    """Add the bar of missing values, if any, and the labels of both axes."""
    missing = [each[-1:] for each in shares]
    if np.any(missing):
        end = len(shares[0]) - 1 + width
        _bar(axes, np.array([end]), missing, width, fill)
        clear = end - ticks > 2 * width
        ticks = np.append(ticks[clear], end)
        labels = [*np.array(labels, dtype=object)[clear], "missing"]
    slanted: Any = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(
        ticks,
        labels,
        parse_math=False,
        **(slanted if len("".join(labels)) > 30 else {}),
    )
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


def _time_ticks(edges: np.ndarray, kind: str) -> tuple[np.ndarray, list[str]]:
    """Return a few round times, in seconds, inside the range of some edges; names."""
    if kind == "timedelta":
        size = _duration_unit(edges)[1]
        ticks = _ticks(edges / size) * size
        return ticks, _times(ticks, kind, size)
    ticks = _instants(edges[0], edges[-1])
    step = np.diff(ticks, append=np.inf).min()
    kept = _thinned(ticks, np.interp(ticks, edges, np.arange(len(edges))))
    return kept, _times(kept, kind, step)


def _instants(low: float, high: float) -> np.ndarray:
    """Return a few beginnings of years, months, days and so on in a range."""
    ends = np.array([low, high]).astype(np.int64).astype("M8[s]")
    for unit, step in _DATE_STEPS:
        before_1970 = 1970 if unit == "Y" else 0
        first, last = ends.astype(f"M8[{unit}]").astype(int) + before_1970
        if last // step - first // step <= _MOST_INSTANTS:
            break
    counts = np.arange(-(-first // step), last // step + 1) * step - before_1970
    times = counts.astype(f"M8[{unit}]").astype("M8[s]").astype(float)
    return np.asarray(times[(times >= low) & (times <= high)])


def _times(seconds: np.ndarray, kind: str, step: float) -> list[str]:
    """Write times that are a step or more apart."""
    if kind == "timedelta":
        unit, size = _duration_unit(seconds)
        return [f"{each / size:g} {unit}" for each in seconds]
    texts = np.datetime_as_string(seconds.astype(np.int64).astype("M8[s]"))
    length = next(length for least, length in _DATE_LENGTHS if step >= least)
    return [text[:length].replace("T", " ") for text in texts]


def _duration_unit(seconds: np.ndarray) -> tuple[str, float]:
    longest = np.abs(seconds).max(initial=0)
    return next(each for each in _DURATIONS if longest >= 2 * each[1] or each[1] == 1)


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
