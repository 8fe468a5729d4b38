"""How well an attack separates members from non-members, and how well any could.

Under (epsilon, delta)-differential privacy a test of "was this record used?" with false
positive rate f has a true positive rate of at most::

    min(e^epsilon f + delta, 1 - e^-epsilon (1 - delta - f))

(Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015). Given the row count that it
released, a run satisfies a whole curve of such pairs, and the smallest of their bounds
is the **cap** shown beside every figure here. It bounds expected rates over records and
over runs that release this count, given all other records, provided that an independent
coin decided for each record whether it took part. If a fixed number of records was
drawn instead, the two worlds differ in one more record, and the cap is that of two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import trapezoid
from scipy.stats import norm, rankdata
from sklearn import metrics as figures

from dpgenerative._intervals import clopper_pearson, epsilon_of_events
from dpgenerative._validation import check_number
from dpgenerative.privacy.report import PrivacyReport

Privacy = Sequence[tuple[float, float]]
"""Pairs (epsilon, delta) that all hold for one run, given the row count that it
released, as `privacy_.curve()` returns. With `max_rows_per_unit` they hold for all rows
of a person together; a single row is protected better."""

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)
_MAX_THRESHOLDS = 200
_MAX_EPSILON = 700.0  # whose exponential is finite


@dataclass(frozen=True)
class Rate:
    """A figure of an attack, with its uncertainty and the cap of the guarantee.

    Attributes
    ----------
    value : float
    low, high : float
        Ends of its confidence interval; NaN where none is known.
    cap : float
        Largest value that the guarantee allows; NaN without one.
    """

    value: float
    low: float
    high: float
    cap: float


@dataclass(frozen=True, eq=False, repr=False)
class AttackResult:
    """Scores of one membership inference attack, and figures computed from them.

    Attributes
    ----------
    name : str
    scores : ndarray of shape (n,)
        Larger for records that are likelier members; `attack_result` makes them ranks.
    members : ndarray of bool, shape (n,)
        Which records are members.
    privacy : tuple of (epsilon, delta) or None
        Guarantee of the attacked run.
    confidence : float
        Level of all intervals, 0.95 by default.
    """

    name: str
    scores: np.ndarray
    members: np.ndarray
    privacy: tuple[tuple[float, float], ...] | None = None
    confidence: float = 0.95

    @property
    def auc(self) -> Rate:
        """Area under the ROC curve, with DeLong's interval; 0.5 for guessing."""
        value = float(figures.roc_auc_score(self.members, self.scores))
        quantile = float(norm.ppf(0.5 + self.confidence / 2))
        reach = quantile * _auc_error(self.scores, self.members)
        # Where no pair is out of order, the error is not known to be 0 for that.
        least = min(self._sizes)
        reach = max(reach, 1 - clopper_pearson(least, least, self.confidence)[0])
        low, high = max(value - reach, 0.0), min(value + reach, 1.0)
        cap = auc_cap(self.privacy) if self.privacy else math.nan
        return Rate(value, low, high, cap)

    @property
    def average_precision(self) -> Rate:
        """Average precision, area under `precision_recall`; guessing: members' share.

        It depends on that share. Published figures have as many members as others.
        """
        value = float(figures.average_precision_score(self.members, self.scores))
        cap = math.nan
        if self.privacy:
            share = float(self.members.mean())
            excess = _guessed_precision(len(self.members), share) - share
            cap = min(1.0, average_precision_cap(self.privacy, share) + excess)
        return Rate(value, math.nan, math.nan, cap)

    def roc(self) -> tuple[np.ndarray, np.ndarray]:
        """Return false and true positive rates at every threshold, both ascending."""
        return figures.roc_curve(self.members, self.scores, drop_intermediate=False)[:2]

    def precision_recall(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the precision-recall curve, with thresholds in the units of `scores`.

        Returns
        -------
        precision, recall : ndarray of shape (n_thresholds + 1,)
            Of accusing all records that score at least the threshold, recall
            descending; the last point, (1, 0), accuses nobody.
        thresholds : ndarray of shape (n_thresholds,)
            Distinct scores, ascending.
        """
        return figures.precision_recall_curve(self.members, self.scores)

    def tpr_at(self, fpr: float) -> Rate:
        """Return the true positive rate at a false positive rate of at most `fpr`.

        Parameters
        ----------
        fpr : float in [0, 1]

        Returns
        -------
        Rate
            With a Clopper-Pearson interval. Since the false positive rate is only
            estimated, the cap is that at the upper end of its own Clopper-Pearson
            interval, which is wide for few non-members.
        """
        check_number("tpr_at", "fpr", fpr, low=0, high=1, closed="both")
        false, true = self.roc()
        best = int(np.flatnonzero(false <= fpr)[-1])
        n, others = self._sizes
        low, high = clopper_pearson(round(true[best] * n), n, self.confidence)
        cap = math.nan
        if self.privacy:
            accused = round(false[best] * others)
            upper = clopper_pearson(accused, others, self.confidence)[1]
            cap = float(roc_cap(max(upper, fpr), self.privacy))
        return Rate(float(true[best]), low, high, cap)

    def epsilon_lower_bound(self, delta: float = 0.0, random_state: int = 0) -> float:
        """Return a lower bound on the epsilon of the attacked mechanism.

        A threshold and a side of it are chosen on a random half of the records; on the
        other half, the two rates are bounded by Clopper-Pearson intervals, so that the
        bound holds with probability `confidence` for independent records. For any
        region S of scores, epsilon >= log((P(S | member) - delta) / P(S | other)), and
        the same with the two exchanged.

        Parameters
        ----------
        delta : float in [0, 1), default=0
        random_state : int, default=0
            Seed of the halves.

        Returns
        -------
        float
            At least 0.

        References
        ----------
        Jagielski, Ullman and Oprea, "Auditing differentially private machine learning"
        (2020); Nasr et al. (2021).
        """
        owner = "epsilon_lower_bound"
        check_number(owner, "delta", delta, low=0, high=1, closed="left")
        rng = np.random.default_rng(random_state)
        half = rng.permutation(len(self.scores)) % 2 == 0
        levels = np.linspace(0, 1, _MAX_THRESHOLDS)
        thresholds = np.quantile(self.scores[half], levels, method="nearest")
        regions = (
            ((self.scores >= threshold) == above, self.members == above)
            for threshold in np.unique(thresholds)
            for above in (True, False)
        )
        return epsilon_of_events(regions, half, delta, self.confidence)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per figure, with columns value, low, high and cap."""
        rates = {"AUC": self.auc, "average precision": self.average_precision}
        for fpr in FALSE_POSITIVE_RATES:
            rates[f"TPR at {100 * fpr:g} % FPR"] = self.tpr_at(fpr)
        claim = self.privacy[0] if self.privacy else (math.nan, 0.0)
        bound = self.epsilon_lower_bound(claim[1])
        rates["epsilon, at least"] = Rate(bound, math.nan, math.nan, claim[0])
        rows = {name: vars(rate) for name, rate in rates.items()}
        return pd.DataFrame.from_dict(rows, orient="index").rename_axis("figure")

    def __repr__(self) -> str:
        auc, (n_members, n_others) = self.auc, self._sizes
        cap = "" if self.privacy is None else f", cap {auc.cap:.3f}"
        return (
            f"AttackResult({self.name!r}, n_members={n_members}, n_others={n_others}, "
            f"AUC={auc.value:.3f} [{auc.low:.3f}, {auc.high:.3f}]{cap})"
        )

    @property
    def _sizes(self) -> tuple[int, int]:
        return int(self.members.sum()), int((~self.members).sum())


def attack_result(
    name: str, scores: Sequence[Any], privacy: Privacy | None = None
) -> AttackResult:
    """Build a result from the scores of members and of others.

    Parameters
    ----------
    name : str
        Of the attack.
    scores : two array-likes of shape (n_members,) and (n_others,)
        Of members and of others, larger for records that are likelier members; infinite
        scores rank above or below all others.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the attacked run, the main pair first. None or empty: no guarantee.

    Raises
    ------
    ValueError
        For NaN scores, an empty side or pairs out of range.
    """
    sides = [np.asarray(x, dtype=float).ravel() for x in scores]
    if any(len(side) == 0 or np.isnan(side).any() for side in sides):
        raise ValueError(
            f"{name}: members and non-members need a score each that is not NaN; got "
            f"{[len(side) for side in sides]} scores, "
            f"{[int(np.isnan(side).sum()) for side in sides]} of them NaN."
        )
    members = np.repeat([True, False], [len(side) for side in sides])
    # Ranks, since all figures depend on the order of scores alone.
    return AttackResult(name, rankdata(np.concatenate(sides)), members, _pairs(privacy))


def _pairs(privacy: Privacy | None) -> tuple[tuple[float, float], ...] | None:
    if isinstance(privacy, PrivacyReport):
        privacy = privacy.curve()
    given = np.asarray(() if privacy is None else privacy, dtype=float)
    if not given.size:
        return None
    pairs = np.atleast_2d(given)
    epsilon, delta = pairs[:, 0], pairs[:, -1]
    in_range = (epsilon >= 0) & (epsilon < np.inf) & (delta >= 0) & (delta < 1)
    if pairs.shape[1:] != (2,) or not in_range.all():
        raise ValueError(
            "privacy must be pairs (epsilon, delta) with 0 <= epsilon < inf and 0 <= "
            f"delta < 1, such as synthesizer.privacy_.curve(); got {privacy!r}."
        )
    return tuple((float(e), float(d)) for e, d in pairs)


def roc_cap(fpr: Any, privacy: Privacy) -> np.ndarray:
    """Return the largest true positive rate that a guarantee allows.

    Parameters
    ----------
    fpr : array-like
        False positive rates in [0, 1].
    privacy : sequence of (epsilon, delta)
        Pairs that all hold.

    Returns
    -------
    ndarray
        Of the shape of `fpr`.

    Examples
    --------
    >>> roc_cap([0.0, 0.1, 1.0], [(0.0, 0.05)]).round(3).tolist()
    [0.05, 0.15, 1.0]
    """
    rates = np.asarray(fpr, dtype=float)
    slopes, heights = _lines(privacy)
    return np.clip((slopes * rates[..., None] + heights).min(-1), 0.0, 1.0)


def _lines(privacy: Privacy) -> tuple[np.ndarray, np.ndarray]:
    """Return slopes and heights at 0 of the lines whose minimum is the cap."""
    pairs = np.asarray(privacy, dtype=float).reshape(-1, 2)
    epsilon = np.minimum(pairs[:, 0], _MAX_EPSILON)
    growth, shrink = np.exp(epsilon), np.exp(-epsilon)
    slopes = np.concatenate([growth, shrink, [0.0]])
    heights = np.concatenate([pairs[:, 1], 1 - shrink * (1 - pairs[:, 1]), [1.0]])
    return slopes, heights


def _corners(privacy: Privacy) -> np.ndarray:
    """Return false positive rates between which the cap is a straight line."""
    slopes, heights = _lines(privacy)
    with np.errstate(divide="ignore", invalid="ignore"):
        met = (heights[None] - heights[:, None]) / (slopes[:, None] - slopes[None])
    inside = met[np.isfinite(met) & (met > 0) & (met < 1)]
    return np.unique(np.concatenate([[0.0, 1.0], inside]))


def auc_cap(privacy: Privacy) -> float:
    """Return the largest area under an ROC curve that a guarantee allows."""
    fpr = _corners(privacy)
    return float(trapezoid(roc_cap(fpr, privacy), fpr))


def average_precision_cap(privacy: Privacy, share: float) -> float:
    """Return the largest average precision that a guarantee allows.

    Parameters
    ----------
    privacy : sequence of (epsilon, delta)
    share : float in (0, 1)
        Share of members among many records: few records score more by chance
        (`AttackResult.average_precision` allows for that).
    """
    fpr = np.unique(np.concatenate([_corners(privacy), np.geomspace(1e-12, 1, 4000)]))
    tpr = roc_cap(fpr, privacy)
    precision = np.ones(len(fpr))
    precision[1:] = share * tpr[1:] / (share * tpr[1:] + (1 - share) * fpr[1:])
    # Precision decreases along the curve: its value at the left end bounds each piece.
    return float(tpr[0] + (np.diff(tpr) * precision[:-1]).sum())


def _guessed_precision(n: int, share: float) -> float:
    """Return the expected average precision of a random order of n >= 2 records."""
    m, harmonic = n * share, float((1 / np.arange(1, n + 1)).sum())
    return (m - 1) / (n - 1) + (n - m) * harmonic / (n * (n - 1))


def _auc_error(scores: np.ndarray, members: np.ndarray) -> float:
    """Return the standard error of the AUC (DeLong, DeLong and Clarke-Pearson 1988)."""
    m, n = int(members.sum()), int((~members).sum())
    if min(m, n) < 2:
        return math.inf
    overall = rankdata(scores)
    above = (overall[members] - rankdata(scores[members])) / n
    below = 1 - (overall[~members] - rankdata(scores[~members])) / m
    return math.sqrt(above.var(ddof=1) / m + below.var(ddof=1) / n)
