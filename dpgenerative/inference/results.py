"""Estimates of a synthetic table with their errors, and when not to trust them."""

from dataclasses import dataclass, field
from typing import Any

import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from dpgenerative._validation import number, option
from dpgenerative.metrics.plots import FRAMED, STYLE

METHODS = ("normal", "basic", "studentised")
MOST_BIASED = 2.0
"""Standard errors of bias beyond which an interval is called untrustworthy."""
MOST_UNDEFINED = 0.05
"""Share of refits without a result, likewise."""


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap:
    """An analysis of synthetic rows, and how it varies over refits.

    Attributes
    ----------
    estimate : Series
        Results on a sample of the synthesizer.
    error : Series
        Their standard errors by the usual formulas, NaN where the statistic has none.
    truth : Series
        Results on the rows that stand for the people in the refits.
    replicates : DataFrame of shape (n_refits, n_results)
        Results on samples of the refits.
    errors : DataFrame of shape (n_refits, n_results)
        Standard errors by the usual formulas on these.
    resampled : DataFrame of shape (n_refits, n_results)
        Results on the tables that were refitted.
    n_rows : int
        Rows of every sample.
    notes : tuple of str
        What the synthesizer has lost, so that no interval shows it.
    """

    estimate: pd.Series
    error: pd.Series
    truth: pd.Series
    replicates: pd.DataFrame
    errors: pd.DataFrame
    resampled: pd.DataFrame
    n_rows: int
    notes: tuple[str, ...] = field(default=())

    @property
    def bias(self) -> pd.Series:
        """Mean of the replicates less their truth: what a refit loses again."""
        return self.replicates.mean() - self.truth

    @property
    def standard_error(self) -> pd.Series:
        """Standard deviation of the replicates: sampling and noise together."""
        return self.replicates.std()

    def parts(self) -> pd.DataFrame:
        """Return what the error consists of, one row per result.

        Returns
        -------
        DataFrame
            ``sampling``: standard deviation over the tables that were refitted, as of
            other people. ``noise``: standard deviation of what a refit adds to that,
            by its noise and its draw of rows. ``bias``: the mean of it.
        """
        added = self.replicates - self.resampled
        columns = {"sampling": self.resampled.std(), "noise": added.std()}
        return pd.DataFrame({**columns, "bias": self.bias})

    def interval(self, level: float = 0.95, method: str = "normal") -> pd.DataFrame:
        """Return confidence intervals.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
            Share of repetitions of the whole survey in which intervals are to cover
            the truth.
        method : {"normal", "basic", "studentised"}, default="normal"
            "normal": the estimate less its bias, plus and minus a quantile of Student's
            distribution times the standard error. "basic": by quantiles of the
            replicates (Davison and Hinkley 1997, section 5.2), which take a few hundred
            refits. "studentised": by quantiles of their deviations in their own
            standard errors, if the statistic returns these.

        Returns
        -------
        DataFrame
            ``lower`` and ``upper``, one row per result.
        """
        number(low=0, high=1)("Bootstrap.interval", "level", level)
        option(*METHODS)("Bootstrap.interval", "method", method)
        tails = np.array([1 - level, 1 + level]) / 2
        off = self.replicates - self.truth
        if method == "normal":
            counts = self.replicates.count()
            quantiles = stats.t.ppf(tails[:, None], np.maximum(counts - 1, 1))
            spread = self.standard_error * np.sqrt(1 + 1 / np.maximum(counts, 1))
            deviations = [self.bias + q * spread for q in quantiles]
        elif method == "basic":
            deviations = [off.quantile(q) for q in tails]
        else:
            if self.error.isna().all():
                raise ValueError(
                    "Bootstrap.interval: studentised intervals need a statistic that "
                    "returns two things, results and their standard errors."
                )
            ratios = (off / self.errors).replace([np.inf, -np.inf], np.nan)
            deviations = [ratios.quantile(q) * self.error for q in tails]
        bounds = {"lower": deviations[1], "upper": deviations[0]}
        return pd.DataFrame({k: self.estimate - off for k, off in bounds.items()})

    def summary(self, level: float = 0.95, method: str = "normal") -> pd.DataFrame:
        """Return estimate, interval, and the parts of the error, one row per result."""
        parts = [self.estimate.rename("estimate"), self.interval(level, method)]
        return pd.concat(
            [*parts, self.standard_error.rename("error"), self.parts()], axis=1
        )

    def cautions(self) -> list[str]:
        """Return what speaks against trusting an interval, one sentence each."""
        bias, error = self.bias.abs(), self.standard_error
        undefined = self.replicates.isna().mean()
        flags = {
            "are undefined in over 5 % of the refits": undefined > MOST_UNDEFINED,
            "are the same in all refits: at a bound, or fixed by the schema": error
            == 0,
            "have a bias beyond two standard errors: refits lose what they measure": (
                (bias > MOST_BIASED * error) & (error > 0)
            ),
        }
        listed = [
            f"{', '.join(map(str, flag.index[flag]))} {what}."
            for what, flag in flags.items()
            if flag.any()
        ]
        return [*listed, *self.notes]

    def __repr__(self) -> str:
        return f"Bootstrap({len(self.estimate)} results, {len(self.replicates)} refits)"

    def __str__(self) -> str:
        lines = [self.summary().to_string(float_format="{:.4g}".format)]
        head = f"95 % intervals of {len(self.replicates)} refits, {self.n_rows:,} rows"
        return "\n".join([head, *lines, *(f"- {each}" for each in self.cautions())])

    def plot(self, level: float = 0.95, ax: Axes | None = None) -> Figure:
        """Draw estimates less their bias, with intervals and all replicates.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
        ax : Axes, optional
            None makes a figure of its own, attached to no window.

        Returns
        -------
        Figure
        """
        with matplotlib.style.context([STYLE, FRAMED]):
            if ax is None:
                ax = Figure((6.0, 0.8 + 0.3 * len(self.estimate))).subplots()
            self._draw(ax, level)
        figure = ax.get_figure(root=True)
        assert figure is not None
        return figure

    def _draw(self, axes: Any, level: float) -> None:
        places, bounds = np.arange(len(self.estimate)), self.interval(level)
        for place, name in enumerate(self.replicates):
            made = self.replicates[name]
            axes.plot(made, np.full(len(made), place), "|", color="0.8", ms=6)
        centre = self.estimate - self.bias
        lengths = np.abs(bounds.sub(centre, axis=0)).T.to_numpy()
        axes.errorbar(centre, places, xerr=lengths, fmt="o", ms=4, capsize=3)
        axes.set(yticks=places, yticklabels=list(map(str, self.estimate.index)))
        axes.set_ylim(len(places) - 0.5, -0.5)
        axes.set_xlabel(f"estimate, {100 * level:g} % interval; grey: refits")


def level_notes(synthesizer: Any, rows: tuple[Any, ...]) -> tuple[str, ...]:
    """Return a note on every column of which levels occur in no synthetic row."""
    notes = []
    table = rows[0]
    for column in getattr(synthesizer, "schema_", ()):
        if column.levels is None or column.name not in getattr(table, "columns", ()):
            continue
        lost = [x for x in column.levels if not (table[column.name] == x).any()]
        if lost:
            some = ", ".join(map(repr, lost[:3])) + (", ..." if len(lost) > 3 else "")
            notes.append(
                f"No synthetic row has these levels of {column.name!r}: {some}. "
                "Nothing can be said of them."
            )
    return tuple(notes)
