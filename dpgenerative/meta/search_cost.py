"""Privacy cost of a plain search: what all its fits spent together."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import model_selection as folds
from sklearn.base import clone, is_classifier
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils.validation import check_is_fitted

from dpgenerative._validation import check_delta, check_parameters, number
from dpgenerative.local.base import LocalRandomizer
from dpgenerative.meta.pipeline import learns, parts
from dpgenerative.meta.predictors import SyntheticClassifier, SyntheticRegressor
from dpgenerative.meta.search import PrivateSearch
from dpgenerative.privacy.accounting import epsilon_of_pairs
from dpgenerative.synthesizers import DPHFlowSynthesizer, session
from dpgenerative.synthesizers.base import Synthesizer

_SPLITTERS = (
    folds.KFold, folds.StratifiedKFold, folds.GroupKFold, folds.StratifiedGroupKFold,
    folds.PredefinedSplit,
)  # fmt: skip
"""Splitters that hold every row out in one fold, unless a PredefinedSplit says -1."""
_FIT_ONCE = (
    Pipeline, FeatureUnion, ColumnTransformer, TransformedTargetRegressor,
    VotingClassifier, VotingRegressor, LocalRandomizer,
)  # fmt: skip
"""Estimators that fit every estimator among their parameters once."""


_BUDGET = {
    "epsilon": number(low=0, high=math.inf, closed="right", also=[None]),
    "delta": number(low=0, high=1),
}


@dataclass(frozen=True)
class SearchPrivacy:
    """What the fits of a finished search spent together.

    Attributes
    ----------
    epsilon, delta : float
        Total: all fits together are (epsilon, delta)-DP for adding or removing one
        row. Infinite if one of them had no privacy.
    fits : tuple of (float, float)
        Epsilon and delta of every fit that one row took part in, the refit last.
    n_candidates : int
    n_folds : int
        Fits per candidate.
    folds_per_row : int
        Fits per candidate that one row took part in.
    refit : bool
        Whether the best candidate was fitted again to all rows.
    notes : tuple of str
        What the total leaves out and what it assumes.
    """

    epsilon: float
    delta: float
    fits: tuple[tuple[float, float], ...]
    n_candidates: int
    n_folds: int
    folds_per_row: int
    refit: bool
    notes: tuple[str, ...]

    def __str__(self) -> str:
        added = math.fsum(epsilon for epsilon, _ in self.fits)
        refit = " and a refit" if self.refit else ""
        how = "added up" if self.epsilon >= added else "optimal composition"
        lines = [
            f"The search spent ({self.epsilon:.4g}, {self.delta:.4g}) in all ({how}): "
            f"{self.n_candidates} candidates x {self.n_folds} folds{refit}, of which "
            f"one row took part in {len(self.fits)} fits.",
            "Please note:",
        ]
        return "\n".join([*lines, *(f"  - {note}" for note in self.notes)])

    __repr__ = __str__


def search_privacy(search: Any, delta: float | None = None) -> SearchPrivacy:
    """State what a finished search over a synthesizer spent, all fits together.

    Every candidate was fitted once per fold, and the best perhaps once more. In a
    k-fold search a row takes part in k - 1 fits per candidate. Their budgets, known
    before the search began, compose by the optimal theorem for (epsilon, delta) pairs.

    Parameters
    ----------
    search : GridSearchCV, RandomizedSearchCV or the like
        Fitted, over a synthesizer, classifier, regressor or private search of this
        package, alone or in a pipeline, a voting ensemble or the like.
    delta : float in (0, 1), optional
        Delta at which the total is stated. None is the sum of the fits' deltas, at
        which optimal composition gains next to nothing over adding epsilons; at ten
        times that sum it does.

    Returns
    -------
    SearchPrivacy
        To be printed.

    Raises
    ------
    NotFittedError
        If the search is not finished.
    TypeError
        If it fits no synthesizer, or inside an estimator that may fit it several times,
        such as a bagging ensemble, a calibration or another search, or is a
        `PrivateSearch`, which has a report of its own.
    ValueError
        If its estimator's cost has changed since the search. Only a best estimator
        that was fitted again can show this.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from dpgenerative import DPHFlowSynthesizer, search_privacy
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> grid = {"epsilon": [0.5, 1.0]}
    >>> flow = DPHFlowSynthesizer(n_steps=5)
    >>> search = GridSearchCV(flow, grid, cv=3, refit=False).fit(X)
    >>> round(search_privacy(search).epsilon, 2)
    3.0
    """
    if isinstance(search, PrivateSearch):
        raise TypeError("A PrivateSearch says itself what it costs: read its privacy_.")
    check_is_fitted(search, "cv_results_")
    if delta is not None:
        check_delta("search_privacy", delta)
    candidates = search.cv_results_["params"]
    cv = folds.check_cv(search.cv, classifier=is_classifier(search.estimator))
    n_folds, refitted = int(search.n_splits_), hasattr(search, "best_estimator_")
    if getattr(cv, "n_splits", n_folds) != n_folds:
        raise ValueError(
            "search_privacy: the search has been given other folds since; state those "
            f"of its {n_folds} fits per candidate."
        )
    # Whether every row is held out of one of a candidate's fits.
    is_partial = isinstance(cv, folds.PredefinedSplit) and np.min(cv.test_fold) < 0
    per_row = n_folds - (isinstance(cv, _SPLITTERS) and not is_partial)
    if not _cost(search.estimator):
        raise TypeError(
            f"search_privacy: {type(search.estimator).__name__} fits no synthesizer."
        )
    fits, open_parts = [], []
    for params in candidates:
        candidate = _candidate(search, params)
        fits += _cost(candidate) * per_row
        open_parts += _not_private(candidate)
    if refitted:
        refit = _cost(_candidate(search, search.best_params_))
        if refit != _cost(search.best_estimator_):
            raise ValueError(
                "search_privacy: the search's estimator, or its best one, has been "
                "given other parameters since; those of its fits are not known."
            )
        fits += refit
    failure = min(1.0, math.fsum(lost for _, lost in fits)) if delta is None else delta
    epsilon = epsilon_of_pairs(fits, failure)
    return SearchPrivacy(
        epsilon, failure, tuple(fits), len(candidates), n_folds, per_row,
        refitted, _notes(cv, list(dict.fromkeys(open_parts))),
    )  # fmt: skip


def _candidate(search: Any, params: Mapping[str, Any]) -> Any:
    """Return a candidate as the search has made it, of clones of what was listed."""
    cloned = {name: clone(value, safe=False) for name, value in params.items()}
    return clone(search.estimator).set_params(**cloned)


def _cost(estimator: Any) -> list[tuple[float, float]]:
    """Return epsilon and delta of every synthesizer that one fit would fit."""
    if isinstance(estimator, (PrivateSearch, Synthesizer)):
        # Refused before a row is read; what else is refused here and now need not have
        # been in the search: another device, a seed that copies do not keep.
        try:
            check_parameters(type(estimator).__name__, estimator, _BUDGET)
        except (ValueError, TypeError):
            return [(0.0, 0.0)]
    if isinstance(estimator, PrivateSearch):
        return [(float(estimator.epsilon), float(estimator.delta))]
    if isinstance(estimator, (SyntheticClassifier, SyntheticRegressor)):
        estimator = estimator.synthesizer or DPHFlowSynthesizer()
    if isinstance(estimator, Synthesizer):
        has_key = session.key_of(getattr(estimator, "schema", None)) is not None
        if has_key or estimator.max_rows_per_unit != 1:
            raise TypeError(
                "search_privacy counts for a row, and a person of several rows may be "
                "in all folds. Search inside an open PrivacyBudget: it counts all fits."
            )
        return [(session.stated_epsilon(estimator) or math.inf, estimator.delta)]
    if isinstance(estimator, FrozenEstimator):
        return []
    costs = [cost for part in parts(estimator) for cost in _cost(part)]
    if costs and not isinstance(estimator, _FIT_ONCE):
        raise TypeError(
            f"search_privacy: {type(estimator).__name__} may fit a synthesizer several "
            "times in one fit. Search inside an open PrivacyBudget, which counts fits, "
            "and draw no rows with replacement (bootstrap=False of a bagging ensemble)."
        )
    return costs


def _not_private(estimator: Any) -> list[str]:
    """Return the type names of all parts that learn from rows without privacy."""
    own = SyntheticClassifier, SyntheticRegressor, PrivateSearch, Synthesizer
    if isinstance(estimator, (*own, LocalRandomizer)):
        return []
    if isinstance(estimator, _FIT_ONCE):
        return [name for part in parts(estimator) for name in _not_private(part)]
    return [type(estimator).__name__] if learns(estimator) else []


def _notes(cv: Any, open_parts: list[str]) -> tuple[str, ...]:
    notes = [
        "The scores are computed on private rows without noise, and so is what was "
        "chosen by them: no total covers them. Do not release cv_results_.",
        "Scores improve with epsilon: a search over it mostly selects a large one.",
    ]
    if open_parts:
        notes.append(
            f"{', '.join(open_parts)} learned from private rows without noise: no "
            "total covers what they hold."
        )
    if not isinstance(cv, folds.PredefinedSplit):
        notes.append(
            f"{type(cv).__name__} assigns rows to folds by their number or values, so "
            "that one row can move others between folds. The total is for folds that "
            "are drawn for every row by itself, as in "
            "PredefinedSplit(rng.integers(k, size=n))."
        )
    return tuple(notes)
