"""The pictures of a study: accuracy, attack and phi over epsilon."""

from itertools import cycle
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpgenerative.metrics.plots import CURVES, DOT, FRAMED, STYLE
from dpgenerative.study.framework import PLAIN, REAL

_COLOURS = (*CURVES, "#8a6d1d")
_PANELS = {
    "accuracy": "test accuracy",
    "average_precision": "average precision of the attack",
    "phi": "phi: gain in privacy over loss",
}
_CENTRAL = {
    "epsilon": "central privacy",
    "noise_multiplier": "central privacy, stated noise",
}
_PHI_LIMITS = (-0.5, 2.5)


def plot_tradeoff(results: pd.DataFrame, title: str | None = None) -> Figure:
    """Draw accuracy, average precision and phi over epsilon.

    Points are medians over seeds, whiskers the least and the greatest; settings by
    epsilon and by noise have a curve each. Grey lines are the medians of real rows and
    of no privacy; dotted ones are guessing. phi below -0.5 or above 2.5 is drawn at the
    edge.

    Parameters
    ----------
    results : DataFrame
        As `privacy_utility_tradeoff` returns it.
    title : str, optional

    Returns
    -------
    Figure
        Three panels, attached to no window: save it with its `savefig`.
    """
    names = ["parameter", "scope"]  # files of text have nothing for empty text
    results = results.assign(**results[names].astype(object).fillna(""))
    with matplotlib.style.context([STYLE, FRAMED]):
        figure = Figure((9.0, 3.0))
        panels = zip(figure.subplots(1, 3), _PANELS.items(), strict=True)
        for axes, (measure, name) in panels:
            _draw(axes, results, measure)
            axes.set(xscale="log", xlabel="epsilon", title=name)
            axes.xaxis.set_major_formatter("{x:g}")
        if title is not None:
            figure.suptitle(title, parse_math=False, fontsize=9.5)
        keys: dict[str, Any] = {}
        for axes in figure.axes:
            handles, labels = axes.get_legend_handles_labels()
            keys |= zip(labels, handles, strict=True)
        figure.legend(keys.values(), keys, loc="outside lower center", ncols=4)
    return figure


def _draw(axes: Axes, results: pd.DataFrame, measure: str) -> None:
    shown, is_phi = results.dropna(subset=measure), measure == "phi"
    level = {"accuracy": results["chance"].median(), "phi": 1.0}.get(measure, 0.5)
    name, dots = ("gain equals loss", "-.") if is_phi else ("guessing", ":")
    axes.axhline(level, color=DOT, lw=0.8, ls=dots, label=name)
    if is_phi:
        axes.set_ylim(*_PHI_LIMITS)
        shown = shown.assign(phi=shown["phi"].clip(*_PHI_LIMITS))
    colours = cycle(_COLOURS)
    settings = shown.groupby(["mechanism", "parameter"], sort=False)
    for (mechanism, parameter), rows in settings:
        if mechanism in (REAL, PLAIN):
            dashes = "-" if mechanism == REAL else "--"
            middle = rows[measure].median()
            axes.axhline(middle, color=DOT, lw=0.9, ls=dashes, label=mechanism)
            continue
        colour = next(colours)
        for scope, lines in rows.groupby("scope", sort=False):
            points = lines.groupby("value")
            spread = points[measure].agg(["min", "median", "max"])
            spread = spread.assign(epsilon=points["epsilon"].median())
            low, middle, high, epsilon = spread.sort_values("epsilon").to_numpy().T
            # One array: Matplotlib 3.10 misreads a list of arrays of one point each.
            spans = np.array([middle - low, high - middle])
            axes.errorbar(
                epsilon, middle, spans, color=colour,
                ms=3, lw=1.2, elinewidth=0.7,
                marker="s" if scope == "full" else "o",
                ls=":" if scope == "full" else "-",
                label=f"{mechanism}, {scope}" if scope else _CENTRAL[parameter],
            )  # fmt: skip
