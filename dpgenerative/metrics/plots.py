"""Pictures of two tables: marginals, associations, utility, attacks.

None of them touches pyplot or opens a window: each function draws on the axes it is
given, or on a figure of its own, in matplotlib's style sheet
``dpgenerative.metrics.pictures``.

==================== ===============================================================
name                 draws
==================== ===============================================================
`plot_marginals`     the share of every level or bin of every column
`plot_marginal`      the same of one column
`plot_association`   a heat map of the associations between columns
`plot_utility`       scores of models trained on real and on synthetic rows
`plot_roc`           ROC curves of attacks on log axes, and what the guarantee rules out
`plot_precision`     precision of attacks over recall
==================== ===============================================================

Pictures of the synthetic table alone are as public as it is; all others show facts
about real rows.
"""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from dpgenerative._validation import check_option
from dpgenerative.metrics import histograms
from dpgenerative.metrics.columns import aligned, takes_tables
from dpgenerative.metrics.membership import AttackResult, roc_cap
from dpgenerative.metrics.utility import main_score, mean_scores

DOT = "#7a7a7a"  # the grey of areas is too faint for a dot
CURVES = (
    histograms.SYNTHETIC, "#1f5a92", "#5d7a1f", "#7b3f8c", "#b8860b", "#2a8c82"
)  # fmt: skip
_RULED_OUT = "#e6edf5"
_MOST_LABELS = 40  # columns named beside a heat map
_MOST_OF_NAME = 28  # characters over a panel
STYLE = "dpgenerative.metrics.pictures"
FRAMED = {"axes.spines.left": True, "ytick.major.size": 2}
"""Changes to that style for plots whose heights are read off an axis."""
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
        If the columns of the tables differ, a table is empty, a column that is
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
    with matplotlib.style.context(STYLE):
        figure = _panels(names)
        for axes, name in zip(figure.axes, names, strict=True):
            column = None if real is None else real[name]
            histograms.draw_column(axes, column, synthetic[name])
        keys = [] if real is None else [Patch(color=histograms.REAL, label="real")]
        inside = histograms.TINT if real is None else "none"
        edge = histograms.SYNTHETIC
        keys.append(Patch(facecolor=inside, edgecolor=edge, label="synthetic"))
        figure.legend(handles=keys, loc="outside upper right", ncols=2)
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

    Raises
    ------
    TypeError
        If either is not a Series.
    """
    given = {"synthetic": synthetic} | ({} if real is None else {"real": real})
    for name, column in given.items():
        if not isinstance(column, pd.Series):
            raise TypeError(f"{name} must be a Series; got {_described(column)}.")
    with drawn_on(None, (2.9, 1.6)) as axes:
        histograms.draw_column(axes, real, synthetic)
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

    Raises
    ------
    TypeError
        If `matrix` is not a square DataFrame.
    ValueError
        If `limit` is not positive.

    Examples
    --------
    >>> matrix = pd.DataFrame(np.eye(2), index=["a", "b"], columns=["a", "b"])
    >>> plot_association(matrix, title="real").get_title(loc="left")
    'real'
    """
    if not isinstance(matrix, pd.DataFrame) or len(set(matrix.shape)) > 1:
        raise TypeError(f"matrix must be a square DataFrame; got {_described(matrix)}.")
    if not limit > 0:
        raise ValueError(f"limit must be positive; got {limit}.")
    n = len(matrix)
    values = np.where(np.eye(n, dtype=bool), np.nan, matrix.to_numpy(dtype=np.float64))
    with drawn_on(ax, (3.5, 3.2), {"axes.spines.bottom": False}) as axes:
        colours, low = ("RdBu_r", -limit) if signed else ("YlOrBr", 0.0)
        image = axes.imshow(values, colours, vmin=low, vmax=limit)
        _name_cells(axes, [str(name) for name in matrix.columns])
        ticks = MaxNLocator(4)
        bar = axes.figure.colorbar(image, ax=axes, shrink=0.7, aspect=24, ticks=ticks)
        bar.outline.set_visible(False)  # type: ignore[operator]
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
    TypeError
        If `scores` is not a DataFrame with columns ``model`` and ``trained_on``.
    ValueError
        If `scores` lacks the column `metric`.
    """
    named = {"model", "trained_on"}
    if not isinstance(scores, pd.DataFrame) or not named <= set(scores):
        rule = "scores must be a DataFrame of models, as of tstr"
        raise TypeError(f"{rule}; got {_described(scores)}.")
    if metric is None:
        metric = main_score(scores)
    check_option("plot_utility", "metric", metric, list(scores))
    means = mean_scores(scores, [metric])[metric]
    best_last = means["real" if "real" in means else "synthetic"]
    means = means.loc[best_last.sort_values(ascending=metric not in _ERRORS).index]
    with drawn_on(ax, (3.5, 0.8 + 0.22 * len(means))) as axes:
        axes.hlines(
            range(len(means)), means.min(axis=1), means.max(axis=1),
            color=histograms.REAL, linewidth=1.5, zorder=1,
        )  # fmt: skip
        for source in means.columns:
            colour = {"real": DOT, "synthetic": histograms.SYNTHETIC}[source]
            single = scores[scores["trained_on"] == source]
            if len(single) > len(means):
                rows = means.index.get_indexer(single["model"])
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
    TypeError
        If a result is no AttackResult.
    ValueError
        If there is no result.
    """
    several = _several(results)
    least = 1 / max(len(each.scores) for each in several)
    with drawn_on(ax, (4.4, 4.2), FRAMED) as axes:
        axes.set(xscale="log", yscale="log", xlim=(least, 1), ylim=(least, 1))
        axes.plot([least, 1], [least, 1], color=DOT, lw=0.8, ls="--",
                  label="guessing")  # fmt: skip
        for privacy in dict.fromkeys(each.privacy for each in several if each.privacy):
            _draw_cap(axes, privacy, least)
        for each, colour in zip(several, cycle(CURVES), strict=False):
            label = f"{each.name} (AUC {each.auc.value:.3f})"
            axes.plot(*_curve(each, least), color=colour, linewidth=1.4, label=label)
        axes.set_aspect("equal")
        axes.set_xlabel("false positive rate: share of unused rows accused")
        axes.set_ylabel("true positive rate: share of used rows accused")
        axes.legend(loc="lower right")
    return axes


def plot_precision(
    results: AttackResult | Sequence[AttackResult], ax: Axes | None = None
) -> Axes:
    """Draw the precision of attacks over their recall.

    Guessing keeps the share of members among the attacked records at every recall.

    Parameters
    ----------
    results : AttackResult or sequence of AttackResult
        One curve each; guessing is drawn for the first.
    ax : Axes, optional
        Where to draw. None: a figure of its own, reached as the axes' `figure`.

    Returns
    -------
    Axes

    Raises
    ------
    TypeError
        If a result is no AttackResult.
    ValueError
        If there is no result.
    """
    several = _several(results)
    with drawn_on(ax, (4.4, 4.2), FRAMED) as axes:
        axes.axhline(several[0].members.mean(), color=DOT, lw=0.8, ls="--",
                     label="guessing")  # fmt: skip
        for each, colour in zip(several, cycle(CURVES), strict=False):
            precision, recall, _ = each.precision_recall()
            value = each.average_precision.value
            label = f"{each.name} (average precision {value:.3f})"
            axes.step(
                recall, precision, color=colour, lw=1.4, where="post", label=label
            )
        axes.set(xlim=(0, 1), ylim=(0, 1.02))
        axes.set_xlabel("recall: share of used rows accused")
        axes.set_ylabel("precision: share of accused rows that were used")
        axes.legend(loc="lower left")
    return axes


def model_name(name: str) -> str:
    """Return what to call a model: the defaults of `tstr` in words."""
    return _MODELS.get(name, name.replace("_", " "))


def _several(results: AttackResult | Sequence[AttackResult]) -> list[AttackResult]:
    several = list(results) if isinstance(results, Iterable) else [results]
    if wrong := [each for each in several if not isinstance(each, AttackResult)]:
        raise TypeError(f"results must hold AttackResults; got {_described(wrong[0])}.")
    if not several:
        raise ValueError("results must hold an AttackResult; got none.")
    return several


def _described(given: object) -> str:
    """Return the type, and the shape, of an argument of a wrong kind."""
    of_shape = f" of shape {given.shape}" if isinstance(given, pd.DataFrame) else ""
    return type(given).__name__ + of_shape


@contextmanager
def drawn_on(
    ax: Axes | None, size: tuple[float, float], changes: Any = None
) -> Iterator[Axes]:
    """Yield the axes given, or those of a new figure, in this module's style."""
    with matplotlib.style.context([STYLE, changes or {}]):
        yield Figure(size).subplots() if ax is None else ax


def _panels(names: Sequence[Hashable]) -> Figure:
    """Return a figure of named axes, row by row."""
    n = len(names)
    n_columns = min(n, 4 if n > 12 else 3)
    n_rows = math.ceil(n / n_columns)
    figure = Figure((2.9 * n_columns, 0.3 + 1.75 * n_rows))
    for place, name in enumerate(names, start=1):
        axes = figure.add_subplot(n_rows, n_columns, place)
        axes.set_title(histograms.shortened(str(name), _MOST_OF_NAME), parse_math=False)
    return figure


def _name_cells(axes: Axes, names: list[str]) -> None:
    axes.tick_params(length=0)
    if len(names) > _MOST_LABELS:
        label = f"{len(names)} columns, in the table's order"
        axes.set(xticks=[], yticks=[], xlabel=label)
        return
    places, labels = range(len(names)), [histograms.shortened(name) for name in names]
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
    # To the right: names of models leave more room on the left.
    axes.legend(loc="upper right", bbox_to_anchor=(1.0, -0.12), ncols=2)


def _curve(result: AttackResult, least: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a ROC curve with points between ties, which log axes need."""
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
    axes.plot(fpr, cap, color=CURVES[1], linewidth=0.9)
