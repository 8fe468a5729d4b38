"""Estimates of a synthetic table with their errors, and when not to trust them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats

from dpgenerative._validation import number, option
from dpgenerative.metrics.plots import FRAMED, drawn_on
from dpgenerative.synthesizers import session

METHODS = ("normal", "basic", "studentised")
MOST_BIASED = 2.0
"""Standard errors of bias beyond which an interval is called untrustworthy."""
MOST_UNDEFINED = 0.05
"""Share of refits without a result, likewise."""
LEAST_RETAINED = 0.25
"""Least share of a relation by which an estimate is divided: below, it is lost. One
over it is the largest."""
UNRELATED = (
    "The budget was too small for relations between columns: differences between "
    "groups, correlations and slopes may well lie outside of their intervals."
)


@dataclass(frozen=True, eq=False, repr=False)
class Bootstrap:
    """An analysis of synthetic rows, and how it varies over refits.

    Attributes
    ----------
    estimate : Series
        Results on a sample of the synthesizer, which stands for the people in refits.
    error : Series
        Their standard errors by the usual formulas, NaN where the statistic has none.
    replicates : DataFrame of shape (n_refits, n_results)
        Results on samples of the refits.
    errors : DataFrame of shape (n_refits, n_results)
        Standard errors by the usual formulas on these.
    resampled : DataFrame of shape (n_refits, n_results)
        Results on the tables that were refitted.
    alone : Series
        As `estimate`, on the same rows after each column was shuffled.
    alone_replicates : DataFrame of shape (n_refits, n_results)
        As `replicates`, likewise.
    n_rows : int
        Size of every sample: rows, or people where rows are linked.
    notes : tuple of str
        What the synthesizer has lost, so that no interval shows it.
    is_related : bool
        Whether it has learned how columns go together; if not, nothing is known of it.
    """

    estimate: pd.Series
    error: pd.Series
    replicates: pd.DataFrame
    errors: pd.DataFrame
    resampled: pd.DataFrame
    alone: pd.Series
    alone_replicates: pd.DataFrame
    n_rows: int
    notes: tuple[str, ...] = ()
    is_related: bool = True

    @property
    def retained(self) -> pd.Series:
        """Share of a relation between columns that refits retain, from .25 to 4.

        The relation is what a result differs by from that on shuffled columns. A share
        that chance can explain is drawn towards 1 (James and Stein 1961). Above 1,
        refits exaggerate it.
        """
        own, made = self._relations()
        variance = (made.var() / made.count()).fillna(0.0)
        share = (own * made.mean() + variance) / (own**2 + variance)
        return share.fillna(1.0).clip(LEAST_RETAINED, 1 / LEAST_RETAINED)

    @property
    def _is_lost(self) -> pd.Series:
        """Whether so much of a relation is lost that nothing is known of it."""
        is_relation = self._relations()[0] != 0
        return is_relation & ~(self.is_related & (self.retained > LEAST_RETAINED))

    def _relations(self) -> tuple[pd.Series, pd.DataFrame]:
        """Return what relations add to results: to the estimate, and in refits.

        Shuffled columns are added up in another order: what differs by rounding alone
        is no relation.
        """
        rounding = np.maximum(1e-9 * self.estimate.abs(), 1e-6 * self.replicates.std())
        own = (self.estimate - self.alone).fillna(0.0)
        own = own.mask(own.abs() <= rounding, 0.0)
        made = self.replicates - self.alone_replicates
        return own, made.mask(np.broadcast_to(own == 0, made.shape), 0.0)

    def _corrected(self) -> tuple[pd.Series, pd.Series]:
        """Return estimates with relations restored, and their standard errors."""
        own, made = self._relations()
        share, counts = self.retained, np.maximum(self.replicates.count(), 2)
        single, replicates = self.estimate - own, self.replicates - made
        # Of the fit, of the bias, and of the share (by the delta method). What is
        # exaggerated is no more certain for that.
        lost = share.clip(upper=1.0)
        variance = (replicates + made / lost).var()
        variance += (replicates.var() + made.var() / lost**4) / counts
        return 2 * single - replicates.mean() + own / share, np.sqrt(variance)

    @property
    def bias(self) -> pd.Series:
        """What the estimate is off by, as refits show it.

        The mean of what a refit adds to results of single columns. What refits retain
        of a relation is the share that the fit itself has retained, so that it is
        divided by that share.
        """
        return self.estimate - self._corrected()[0]

    @property
    def standard_error(self) -> pd.Series:
        """Standard deviation of the replicates: sampling and noise together.

        Intervals of relations are wider, by one over the share `retained` if below 1.
        """
        return self.replicates.std()

    def parts(self) -> pd.DataFrame:
        """Return what the error consists of, one row per result.

        Returns
        -------
        DataFrame
            ``sampling``: standard deviation over the tables that were refitted, as of
            other people. ``noise``: standard deviation of what a refit adds to that,
            by its noise and its draw of rows. ``bias``: as the attribute says.
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
            distribution times the standard error (over the share `retained` of a
            relation; without bounds where it is lost, or three quarters of it).
            "basic": by quantiles of the replicates (Davison and Hinkley 1997, section
            5.2), which take a few hundred refits. "studentised": by quantiles of their
            deviations in their own standard errors, if the statistic returns these.

        Returns
        -------
        DataFrame
            ``lower`` and ``upper``, one row per result.
        """
        number(low=0, high=1)("Bootstrap.interval", "level", level)
        option(*METHODS)("Bootstrap.interval", "method", method)
        tails = np.array([1 - level, 1 + level]) / 2
        off = self.replicates - self.estimate
        if method == "normal":
            centre, error = self._corrected()
            counts = np.maximum(self.replicates.count(), 2)
            reach = stats.t.ppf(tails[1], counts - 1) * error
            reach = reach.mask(self._is_lost, np.inf)
            return pd.DataFrame({"lower": centre - reach, "upper": centre + reach})
        if method == "basic":
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
        parts += [self.standard_error.rename("error"), self.parts()]
        return pd.concat(parts, axis=1)

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
            "are relations that are lost, or three quarters of them: nothing can be "
            "said": self._is_lost,
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
        n_refits = len(self.replicates)
        head = f"95 % intervals of {n_refits} refits, samples of {self.n_rows:,}"
        return "\n".join([head, *lines, *(f"- {each}" for each in self.cautions())])

    def plot(self, level: float = 0.95, ax: Axes | None = None) -> Figure:
        """Draw estimates less their bias, with intervals and all replicates.

        A dotted line is an interval without ends.

        Parameters
        ----------
        level : float in (0, 1), default=0.95
        ax : Axes, optional
            None makes a figure of its own, attached to no window.

        Returns
        -------
        Figure
        """
        places, bounds = np.arange(len(self.estimate)), self.interval(level)
        centre = self.estimate - self.bias
        lengths = np.abs(bounds.sub(centre, axis=0)).replace(np.inf, np.nan)
        spans = lengths.T.to_numpy()
        with drawn_on(ax, (6.0, 0.8 + 0.3 * len(places)), FRAMED) as axes:
            for place, name in enumerate(self.replicates):
                made = self.replicates[name]
                axes.plot(made, np.full(len(made), place), "|", color="0.8", ms=6)
            for place in places[np.isinf(bounds).any(axis=1)]:
                axes.axhline(place, color="C0", lw=1.5, ls=":")
            axes.errorbar(centre, places, xerr=spans, fmt="o", ms=4, capsize=3)
            axes.set(yticks=places, yticklabels=list(map(str, self.estimate.index)))
            axes.set_ylim(len(places) - 0.5, -0.5)
            axes.set_xlabel(f"estimate, {100 * level:g} % interval; grey: refits")
        figure = axes.get_figure(root=True)
        assert figure is not None
        return figure


def lost_notes(synthesizer: Any, rows: tuple[Any, ...]) -> tuple[str, ...]:
    """Return notes on what a synthesizer has lost: relations, and levels of columns."""
    notes = [] if session.learns_relations(synthesizer) else [UNRELATED]
    drawn = {name: rows[0][name] for name in getattr(rows[0], "columns", ())}
    drawn |= {getattr(each, "name", None): each for each in rows[1:]}
    n = min(len(rows[0]), synthesizer.privacy_.plan.n_rows)
    least = len(rows[0]) / max(n, 1)
    for column in getattr(synthesizer, "schema_", ()):
        if column.levels is None or column.name not in drawn:
            continue
        lost = [x for x in column.levels if (drawn[column.name] == x).sum() < least]
        if lost:
            some = ", ".join(map(repr, lost[:3])) + (", ..." if len(lost) > 3 else "")
            notes.append(
                f"Fewer than one of {n} synthetic rows has these levels of "
                f"{column.name!r}, since noise hides them: {some}. Nothing can be said "
                "of them, nor of how many rows they have."
            )
    return tuple(notes)
