"""The pictures of a study: accuracy, attack and phi over epsilon."""

from __future__ import annotations

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpgenerative.study.framework import CENTRAL, PLAIN, REAL

_STYLE = "dpgenerative.metrics.pictures"
_COLOURS = ("#c1440e", "#1f5a92", "#5d7a1f", "#7b3f8c", "#8a6d1d")
_GREY = "#7a7a7a"
_PANELS = {
    "accuracy": "test accuracy",
    "average_precision": "average precision of the attack",
    "phi": "phi: attack prevented per accuracy lost",
}
_PHI_LIMITS = (-0.5, 2.5)


def plot_tradeoff(results: pd.DataFrame, title: str | None = None) -> Figure:
    """Draw accuracy, average precision and phi over epsilon.

    Points are medians over seeds, whiskers the least and the greatest. Grey lines are
    the medians of real rows and of no privacy; dotted ones are guessing. phi below -0.5
    or above 2.5 is drawn at the edge.

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
    style = {"axes.spines.left": True, "ytick.major.size": 2}
    with matplotlib.style.context([_STYLE, style]):
        figure = Figure((9.0, 3.0))
        for axes, (measure, name) in zip(
            figure.subplots(1, 3), _PANELS.items(), strict=True
        ):
            _draw_references(axes, results, measure)
            _draw_mechanisms(axes, results, measure)
            axes.set(xscale="log", xlabel="epsilon", title=name)
        if title is not None:
            figure.suptitle(title, parse_math=False, fontsize=9.5)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def _draw_references(axes: Axes, results: pd.DataFrame, measure: str) -> None:
    if measure == "phi":
        axes.axhline(1, color=_GREY, lw=0.8, ls=":")
        axes.set_ylim(*_PHI_LIMITS)
        return
    guess = results["chance"].median() if measure == "accuracy" else 0.5
    axes.axhline(guess, color=_GREY, lw=0.8, ls=":", label="guessing")
    for name, dashes in {REAL: "-", PLAIN: "--"}.items():
        levels = results.loc[results["mechanism"] == name, measure].dropna()
        if len(levels):
            axes.axhline(levels.median(), color=_GREY, lw=0.9, ls=dashes, label=name)


def _draw_mechanisms(axes: Axes, results: pd.DataFrame, measure: str) -> None:
    private = results[~results["mechanism"].isin([REAL, PLAIN])]
    groups = private.groupby(["mechanism", "scope"], sort=False)
    colours = dict(zip(private["mechanism"].unique(), _COLOURS * 9, strict=False))
    for (mechanism, scope), lines in groups:
        shown = lines[measure]
        if measure == "phi":
            shown = shown.clip(*_PHI_LIMITS)
        points = (
            lines.assign(shown=shown)
            .dropna(subset="shown")
            .groupby(["parameter", "value"])
        )
        shown, x = points["shown"], points["epsilon"].median()
        middle = shown.median()
        spread = [middle - shown.min(), shown.max() - middle]
        order = np.argsort(x.to_numpy())
        label = "central privacy" if mechanism == CENTRAL else f"{mechanism}, {scope}"
        axes.errorbar(
            x.iloc[order], middle.iloc[order], [s.iloc[order] for s in spread],
            color=colours[mechanism], marker="s" if scope == "full" else "o", ms=3,
            lw=1.2, ls=":" if scope == "full" else "-", elinewidth=0.7, label=label,
        )  # fmt: skip
