"""Scores of synthesizers, for the searches of scikit-learn."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from dpgenerative._validation import check_option, count
from dpgenerative.metrics.dependence import kendall_tau_distance
from dpgenerative.metrics.fidelity import marginal_distance
from dpgenerative.metrics.utility import TASKS, main_score, tstr
from dpgenerative.tables.containers import as_table


def make_synthesis_scorer(
    metric: str = "tvd",
    *,
    k: int = 2,
    target: Hashable = None,
    classifiers: Mapping[str, BaseEstimator] | None = None,
    task: str = "auto",
    n_samples: int | None = None,
    random_state: int = 0,
) -> "SynthesisScorer":
    """Make a scikit-learn scorer for synthesizers from a metric of this package.

    The scorer samples rows from a fitted synthesizer and compares them with the
    held-out rows. Use it as ``scoring`` of `GridSearchCV`, `cross_val_score` etc.

    .. warning::
       A score is not covered by any privacy guarantee: it is computed from the held-out
       rows without noise. Moreover, a search spends one budget per fit, that is,
       candidates x folds of them, and one more for the refit. Search on public rows,
       and fit the private ones once.

    Parameters
    ----------
    metric : {"tvd", "kendall", "tstr"}, default="tvd"
        "tvd" is minus the mean of `marginal_distance` for `k`, in [-1, 0]; "kendall" is
        minus the RMSE of `kendall_tau_distance`, in [-2, 0]; "tstr" is the mean over
        models of the AUROC, in [0, 1], or of R2, at most 1, of `tstr`. Higher is
        better for all of them.
    k : int, default=2
        For "tvd": size of the sets of columns, at least 1.
    target : hashable, optional
        For "tstr": the column to predict. None: the column of y.
    classifiers : mapping of str to estimator, optional
        For "tstr": models to train, as in `tstr`. One or two fast ones often suffice.
    task : {"auto", "classification", "regression"}, default="auto"
        For "tstr": as in `tstr`. "auto" decides for each fold separately: set it for an
        integer target with about 20 distinct values.
    n_samples : int, optional
        Rows to sample, at least 1. None: as many as are held out. The score of more
        rows varies less.
    random_state : int, default=0
        Seed, >= 0, passed to `sample` and to the metric.

    Returns
    -------
    SynthesisScorer
        ``scorer(estimator, X, y=None)`` returns a float. It can be pickled where the
        classifiers can.

    Raises
    ------
    ValueError
        If a parameter is out of its range. The scorer itself raises what the metric
        raises, which `GridSearchCV` turns into `error_score`.

    See Also
    --------
    marginal_distance, kendall_tau_distance, tstr : The metrics.

    Notes
    -----
    The estimator, or the last step of a `Pipeline`, must have
    ``sample(n_samples, random_state=...)`` that returns a table like X, or ``(X, y)``
    where y is given; then y is one more column in the comparison. The other steps of a
    pipeline transform the held-out rows first. Arrays are read as tables with columns
    ``x0``, ``x1``, ..., and an unnamed y as column ``target``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import GridSearchCV
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> rng = np.random.default_rng(0)
    >>> public = pd.DataFrame({"a": rng.integers(0, 3, 200), "b": rng.random(200)})
    >>> search = GridSearchCV(
    ...     DPHFlowSynthesizer(n_steps=2, random_state=0),
    ...     {"epsilon": [0.5, 2.0]},
    ...     scoring=make_synthesis_scorer("tvd", k=1, n_samples=1000),
    ...     cv=2,
    ... )
    >>> bool(search.fit(public).best_score_ < 0)
    True
    """
    return SynthesisScorer(
        metric, k, target, classifiers, task, n_samples, random_state
    )


@dataclass(frozen=True, eq=False)
class SynthesisScorer:
    """What `make_synthesis_scorer` returns, which documents the fields."""

    metric: str
    k: int
    target: Hashable
    classifiers: Mapping[str, BaseEstimator] | None
    task: str
    n_samples: int | None
    random_state: int

    def __post_init__(self) -> None:
        owner = "make_synthesis_scorer"
        check_option(owner, "metric", self.metric, ("tvd", "kendall", "tstr"))
        check_option(owner, "task", self.task, TASKS)
        count()(owner, "k", self.k)
        count(also=[None])(owner, "n_samples", self.n_samples)
        count(0)(owner, "random_state", self.random_state)

    def __call__(self, estimator: Any, X: Any, y: Any = None) -> float:
        """Score a fitted synthesizer, or a pipeline that ends in one.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `sample`.
        X : DataFrame or ndarray of shape (n_samples, n_features)
            Held-out rows.
        y : Series, one-column DataFrame or ndarray of shape (n_samples,), optional
            One more column of them.

        Returns
        -------
        float
            Higher is better.
        """
        if isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if len(estimator) > 1 else X
            estimator = estimator[-1]
        real, layout = as_table("make_synthesis_scorer", X, y)
        synthetic = self._draw(estimator, len(real), layout.y_name)
        if self.metric == "tvd":
            options: Any = {"references": False, "random_state": self.random_state}
            return -marginal_distance(real, synthetic, self.k, **options).mean
        if self.metric == "kendall":
            return -kendall_tau_distance(real, synthetic).rmse
        target = layout.y_name if self.target is None else self.target
        if target is None:
            raise ValueError(
                "make_synthesis_scorer('tstr') needs `target`, or rows with y."
            )
        scores = tstr(
            None, real, synthetic, target, classifiers=self.classifiers, task=self.task,
            random_state=self.random_state,
        )  # fmt: skip
        return float(scores[main_score(scores)].mean())

    def _draw(self, estimator: Any, n_rows: int, y_name: Hashable) -> pd.DataFrame:
        """Return sampled rows as one table, with the column of y called `y_name`."""
        n_samples = n_rows if self.n_samples is None else self.n_samples
        drawn = estimator.sample(n_samples, random_state=self.random_state)
        pair = drawn if isinstance(drawn, tuple) else (drawn,)
        if len(pair) != (1 if y_name is None else 2):
            raise ValueError(
                "make_synthesis_scorer needs an estimator whose `sample` returns "
                f"{'X' if y_name is None else '(X, y)'}, like the rows held out; "
                f"{type(estimator).__name__} returned {len(pair)} object(s)."
            )
        frame, layout = as_table("make_synthesis_scorer", *pair)
        return frame.rename(columns={layout.y_name: y_name})
