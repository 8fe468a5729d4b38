"""A search that stays within a budget, scores included."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any, Self

import numpy as np
from sklearn import base
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpgenerative._progress import terminal_counter
from dpgenerative._random import RandomSource, SecureGenerator, as_seed
from dpgenerative._validation import check_delta, check_number, count, refuse
from dpgenerative.exceptions import InfeasibleBudgetError, LedgerError, SamplingError
from dpgenerative.fitting.domain import Domain
from dpgenerative.meta import scores
from dpgenerative.meta.calibration import Calibration, TrialBudget
from dpgenerative.meta.predictors import SyntheticClassifier, SyntheticRegressor
from dpgenerative.meta.side_effects import clearing_caches, without_side_effects
from dpgenerative.privacy.budget import Trial, charge
from dpgenerative.privacy.ledger import refuse_difference
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import count_epsilon
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.privacy.report import PrivacyReport
from dpgenerative.privacy.selection import TrialDistribution, best_of
from dpgenerative.synthesizers import DPHFlowSynthesizer, noisy, session
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables.arrow import in_pandas, table_in_pandas
from dpgenerative.tables.containers import set_feature_names
from dpgenerative.tables.private import Private

_SEARCHED = (
    "Chosen by a private search. Its parameters and its score are covered; how "
    "many trials there were, and how long they took, must stay secret."
)


def _best_has(name: str) -> Callable[[Any], bool]:
    return lambda it: hasattr(getattr(it, "best_estimator_", it.estimator), name)


class PrivateSearch(base.MetaEstimatorMixin, base.BaseEstimator):
    """Choose parameters by private scores, all within one (epsilon, delta).

    Runs a random number of trials and returns the best (Papernot and Steinke 2022). A
    trial draws a candidate, assigns every row independently to a training or a
    held-out part, fits the candidate to the former, and scores it on the latter with
    noise. What is released, the best trial's fitted estimator with its parameters and
    noisy score, is (epsilon, delta)-DP for adding or removing one row. Nothing else
    becomes public: neither the other trials nor their number.

    Parameters
    ----------
    estimator : TableSynthesizer, SyntheticClassifier or SyntheticRegressor
        Unfitted. Its own epsilon, delta and noise multiplier are ignored: the search
        sets epsilon and delta.
    param_distributions : dict or list of dict
        Parameters by name, as lists to choose from or distributions with ``rvs``.
        Epsilon and delta cannot be among them.
    epsilon : float, default=1.0
        Total epsilon, in (0, 100].
    delta : float, default=1e-5
        Total delta in (0, 1).
    mean_trials : float, default=8
        Expected number of trials, above 1. Their number follows a logarithmic
        distribution: often 1, now and then many times the mean. The noise of each
        trial grows slowly with the mean.
    holdout : float in (0, 1), default=0.2
        Probability with which a row is held out, independently in every trial.
    scoring : callable, optional
        ``scoring(estimator, X, y)`` returns one number in [0, 1] per row of X, larger
        for better, that depends on this row alone (y is None for a synthesizer fitted
        to X only). Numbers are clipped to [0, 1], and NaN counts as 0. None is the
        accuracy of a classifier and, for a synthesizer, one minus the mean total
        variation distance of all pairs of columns; a regressor needs a callable, since
        the scale of its errors must be public.
    n_candidates : int, default=20
        Number of candidates drawn, where `param_distributions` has distributions.
        Lists alone are searched completely.
    random_state : int, RandomState or Generator instance or None, default=None
        Seeds the draw of candidates. All that must be secret, including the choice of
        candidates in trials and of held-out rows, comes from the operating system.
    verbose : int, default=0
        Count finished trials in a terminal. The number is as secret as the time that
        the search takes: it is erased at the end, and shown neither in notebooks nor in
        files.

    Attributes
    ----------
    best_estimator_ : estimator
        The best trial's, fitted to about ``1 - holdout`` of the rows. Its `privacy_`
        states the cost of the search.
    best_params_ : dict
    best_score_ : float
        Its noisy score on held-out rows. As the largest of all trials, it is
        optimistically biased.
    score_std_ : float
        Standard deviation of that noise.
    trial_epsilon_, trial_delta_ : float
        Budget of one trial's fit. Its delta is far below the total one where keys are
        released, so that its epsilon does not compare with the total one then.
    privacy_ : PrivacyReport
    epsilon_, delta_ : float
        What the search cost: an upper bound of epsilon, at this delta.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if all column names are strings.

    Notes
    -----
    *Proof.* The row count is released once, with a pure guarantee of 1.5 % of epsilon,
    and everything below is conditional on it. Take tables D and D' = D + r, one trial
    and any fixed assignment of the rows of D to parts. With probability ``1 - holdout``
    the row r joins the training part: the fit is as private as its plan, the held-out
    part is the same, so that the score is post-processing. Otherwise the fits have the
    same distribution, and given the fit the score, a sum over rows of numbers in
    [-1/2, 1/2] (or a distance that one row moves as little) with Gaussian noise, has
    sensitivity 1/2. A trial on D' is a mixture of the two distributions, and the Renyi
    divergence of a mixture is at most the largest of its parts': no row is paid for
    twice. `privacy.selection` turns that bound into one of the best trial, by Theorem 2
    of the paper; noise is calibrated so that all candidates stay within it. Finally the
    pure epsilon of the count adds up.

    The number of trials must stay secret, and so must the time that a search takes.
    ``noise="reproducible"`` is refused: trials must be independent. A candidate whose
    learner fails on its synthetic rows, or whose rows cannot be drawn within the
    constraints, has the worst score. Scoring functions should not raise; where one
    does, rows are scored one by one and those that raise get 0.

    References
    ----------
    Papernot and Steinke. Hyperparameter Tuning with Renyi Differential Privacy. ICLR
    2022.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import DPHFlowSynthesizer, PrivateSearch
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> grid = {"architecture__n_bins": [16, 64], "clipping": ["flat", "per-layer"]}
    >>> flow = DPHFlowSynthesizer(n_steps=10)
    >>> search = PrivateSearch(flow, grid, epsilon=2.0, mean_trials=2).fit(X)
    >>> search.best_estimator_.epsilon_ <= 2.0
    True
    """

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        mean_trials: float = 8.0,
        holdout: float = 0.2,
        scoring: Callable[..., Any] | None = None,
        n_candidates: int = 20,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.param_distributions = param_distributions
        self.epsilon = epsilon
        self.delta = delta
        self.mean_trials = mean_trials
        self.holdout = holdout
        self.scoring = scoring
        self.n_candidates = n_candidates
        self.random_state = random_state
        self.verbose = verbose

    # Public methods -------------------------------------------------------------

    def fit(self, X: Any, y: Any = None, public: Any = None) -> Self:
        """Search and keep the best trial. Every call spends the budget again.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The private rows. One row is the privacy unit.
        y : Series, one-column DataFrame or ndarray of shape (n_samples,), optional
            The target, or one more column.
        public : DataFrame or ndarray, or (X, y), optional
            Rows that need no protection, for the fit of every trial. They are not
            scored. A pair where y is given.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a parameter out of its range, or a table of no rows or columns.
        InfeasibleBudgetError
            If no noise fits the budget.
        BudgetExceededError
            If an open `PrivacyBudget` cannot pay for the search.
        RuntimeError
            If learning or sampling failed in the best trial, and so in all.
        LedgerError
            If what was released is not what was planned.

        Warns
        -----
        PrivacyWarning
            If delta is below 1e-15.
        """
        self._check_parameters()
        if ProcessGroup.present().size > 1:
            raise RuntimeError(
                f"{type(self).__name__}.fit runs in one process: its trials and the "
                "parts held out are drawn there. Close torch's process group."
            )
        X, y = _containers(self.estimator, X, y)
        pair = public if isinstance(public, tuple) else (public,)
        pair = tuple(table_in_pandas("PrivateSearch", part) for part in pair)
        public = pair if isinstance(public, tuple) else pair[0]
        candidates = self._candidates()
        fits = [self._planned(params, X, y, public) for params in candidates]
        charge(type(self).__name__, self.epsilon, self.delta)
        rng = SecureGenerator()
        mechanisms = Mechanisms(rng, rng)
        pure = count_epsilon(self.epsilon)
        private = Private((X, y))
        n_rows = mechanisms.count(private.map(itemgetter(0)), pure)
        trials = TrialDistribution(self.mean_trials)
        budget = Calibration(
            fits, trials, n_rows, self.holdout, self.epsilon - pure, self.delta
        ).largest()
        if budget is None:
            raise InfeasibleBudgetError(
                f"{type(self).__name__}: no noise keeps a search of mean_trials="
                f"{self.mean_trials:g} within epsilon={self.epsilon:g}, "
                f"delta={self.delta:g}. Raise epsilon or delta, or lower mean_trials."
            )
        run = partial(self._trial, candidates, budget, private, rng, mechanisms, public)
        n_trials = trials.draw(rng)
        with clearing_caches():
            best = self._best_of(without_side_effects()(run), n_trials)
            with without_side_effects():
                self._state_cost(best, pure + budget.bound, pure)
        budget.check(mechanisms.ledger, pure, n_trials)
        self._keep(best, candidates[best.index], budget)
        return self

    def score(self, X: Any, y: Any = None) -> float:
        """Return the score of the best estimator, without noise: it is not private."""
        return float(self._best.score(X, y))

    @available_if(_best_has("sample"))
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw new rows from the best estimator."""
        return self._best.sample(n_samples, random_state)

    @available_if(_best_has("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predict with the best estimator."""
        return self._best.predict(X)

    @available_if(_best_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the best estimator's probabilities of classes."""
        return self._best.predict_proba(X)

    @available_if(_best_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the best estimator's decision values."""
        return self._best.decision_function(X)

    @property
    def classes_(self) -> np.ndarray:
        """Labels of the best estimator, where it is a classifier."""
        return self._best.classes_

    @property
    def privacy_(self) -> PrivacyReport:
        """What the search released."""
        return self._best.privacy_

    def __sklearn_tags__(self) -> Any:
        return noisy.tagged(get_tags(self.estimator))

    @property
    def _best(self) -> Any:
        check_is_fitted(self)
        return self.best_estimator_

    # Steps of a fit -------------------------------------------------------------

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        kinds = (BaseTableSynthesizer, SyntheticClassifier, SyntheticRegressor)
        if not isinstance(self.estimator, kinds):
            rule = "must be a table's synthesizer or a predictor made of one"
            refuse(owner, "estimator", rule, self.estimator)
        check_number(owner, "epsilon", self.epsilon, low=0, high=100, closed="right")
        check_delta(owner, self.delta, stacklevel=4)
        check_number(owner, "mean_trials", self.mean_trials, low=1)
        check_number(owner, "holdout", self.holdout, low=0, high=1)
        count()(owner, "n_candidates", self.n_candidates)
        is_default = self.scoring is None and not base.is_regressor(self.estimator)
        if not (is_default or callable(self.scoring)):
            rule = "must be a callable (or None, unless for a regressor)"
            refuse(owner, "scoring", rule, self.scoring)

    def _candidates(self) -> list[dict[str, Any]]:
        given = self.param_distributions
        grids = list(given) if isinstance(given, (list, tuple)) else [given]
        if not grids or not all(isinstance(grid, Mapping) for grid in grids):
            rule = "must be a dict of lists (or distributions), or a list of such"
            refuse(type(self).__name__, "param_distributions", rule, given)
        names = {name for grid in grids for name in grid}
        own = {"epsilon", "delta", "noise", "noise_multiplier"}
        own |= {f"synthesizer__{name}" for name in own}
        if reserved := sorted(own & names):
            rule = f"cannot have {reserved}: the search sets them"
            refuse(type(self).__name__, "param_distributions", rule, given)
        if any(hasattr(values, "rvs") for grid in grids for values in grid.values()):
            seed = self.random_state
            if isinstance(seed, np.random.Generator):  # unknown to scikit-learn
                seed = as_seed(seed)
            return list(ParameterSampler(given, self.n_candidates, random_state=seed))
        return list(ParameterGrid(given))

    def _clone(self, params: Mapping[str, Any], epsilon: float, delta: float) -> Any:
        """Return an unfitted candidate with a trial's budget."""
        estimator = base.clone(self.estimator)
        if getattr(estimator, "synthesizer", estimator) is None:
            estimator.set_params(synthesizer=DPHFlowSynthesizer())
        # Candidates that are estimators themselves stay as they were given.
        copies = {k: base.clone(v, safe=False) for k, v in params.items()}
        estimator.set_params(**copies)
        owner, inner = type(self).__name__, getattr(estimator, "synthesizer", estimator)
        if not isinstance(inner, BaseTableSynthesizer):
            rule = "must be a synthesizer of this package"
            refuse(type(estimator).__name__, "synthesizer", rule, inner)
        if inner.noise == "reproducible":
            rule = "must not be reproducible: trials of one seed are not independent"
            refuse(owner, "noise", rule, inner.noise)
        if session.key_of(inner.schema) is not None:
            refuse(owner, "schema", "must have no key of persons", inner.schema)
        if inner.max_rows_per_unit != 1:
            rule = "must be 1: rows of one person could be fitted and held out at once"
            refuse(owner, "max_rows_per_unit", rule, inner.max_rows_per_unit)
        inner.set_params(epsilon=epsilon, delta=delta)
        # Not every class of one's own has these for parameters.
        inner.noise_multiplier, inner.verbose = None, 0
        return estimator

    def _planned(
        self, params: Mapping[str, Any], X: Any, y: Any, public: Any
    ) -> tuple[BaseTableSynthesizer, Domain]:
        """Return a candidate's synthesizer and what is public about its table."""
        synthesizer = self._clone(params, epsilon=1.0, delta=1e-5)
        if not isinstance(synthesizer, BaseTableSynthesizer):
            synthesizer, X, y, public = synthesizer._inputs(X, y, public)
        return synthesizer, session.prepare(synthesizer, X, y, public).domain

    def _best_of(self, run: Callable[[], "_Trial"], n_trials: int) -> "_Trial":
        """Return the best of so many trials, counted in a terminal if `verbose`."""
        title = f"trials ({self.mean_trials:g} expected)"
        bar = terminal_counter(title, " trials", bool(self.verbose))

        def counted() -> _Trial:
            next(bar)
            return run()

        with closing(bar):
            best: _Trial = best_of(counted, lambda trial: trial.score, n_trials)
        return best

    def _trial(
        self,
        candidates: Sequence[Mapping[str, Any]],
        budget: TrialBudget,
        private: Private[Any],
        rng: RandomSource,
        mechanisms: Mechanisms,
        public: Any,
    ) -> "_Trial":
        """Fit a random candidate and score it; -inf where it fails."""
        index = int(rng.integers(len(candidates)))
        estimator = self._clone(candidates[index], budget.epsilon, budget.delta)
        paid = Trial(budget.n_train, mechanisms.ledger)
        fitted, scored = scores.split(private, self.holdout, rng)
        try:
            fitted.map(lambda pair: _fit(estimator, pair, public, paid))
        except LedgerError:
            raise
        except Exception:
            return _FAILED
        plan = _fitted(estimator).privacy_.plan
        refuse_difference({"a trial": plan == budget.plans[index]})
        deviation = partial(self._deviation, estimator, n_test=budget.n_test)
        try:
            value = scored.map(lambda pair: np.array([deviation(*pair)]))
        except SamplingError:
            return _FAILED
        std = scores.SCORE_SENSITIVITY * budget.score_multiplier
        noisy = mechanisms.gaussian(
            value, std, release="score", sensitivity=scores.SCORE_SENSITIVITY
        )
        return _Trial(index, estimator, 0.5 + float(noisy[0]) / budget.n_test)

    def _deviation(self, estimator: Any, X: Any, y: Any, n_test: float) -> float:
        """Return `n_test` times (score - 1/2), whose sensitivity is 1/2."""
        if self.scoring is None and not base.is_classifier(estimator):
            return scores.pairs_deviation(estimator, X, y, n_test)
        scoring = scores.hits if self.scoring is None else self.scoring
        return float(np.sum(scores.row_scores(scoring, estimator, X, y) - 0.5))

    def _state_cost(self, best: "_Trial", spent: float, pure: float) -> None:
        """Write the cost of the search into the best trial's report."""
        if best is _FAILED:
            raise RuntimeError(
                f"{type(self).__name__}: the learner failed on synthetic rows, or no "
                "rows satisfied the constraints. The budget is spent. Fit the "
                "estimator to public rows to see why."
            )
        inner = _fitted(best.estimator)
        report = inner.privacy_
        plan = replace(
            report.plan,
            epsilon=float(self.epsilon), delta=float(self.delta), count_epsilon=pure,
            mean_trials=float(self.mean_trials),
        )  # fmt: skip
        notes = (_SEARCHED, *report.notes)
        inner.privacy_ = replace(report, plan=plan, epsilon_spent=spent, notes=notes)
        inner.epsilon_, inner.delta_ = spent, float(self.delta)

    def _keep(
        self, best: "_Trial", params: Mapping[str, Any], budget: TrialBudget
    ) -> None:
        """Set the fitted attributes, all of them of the best trial."""
        inner = _fitted(best.estimator)
        self.best_estimator_ = best.estimator
        self.best_params_ = dict(params)
        self.best_score_ = best.score
        std = scores.SCORE_SENSITIVITY * budget.score_multiplier
        self.score_std_ = std / budget.n_test
        self.trial_epsilon_, self.trial_delta_ = budget.epsilon, budget.delta
        self.epsilon_, self.delta_ = inner.epsilon_, inner.delta_
        self.n_features_in_ = inner.n_features_in_
        set_feature_names(self, session.layout_of(inner))


@dataclass(frozen=True)
class _Trial:
    """What one trial returns. All but the best are discarded."""

    index: int
    estimator: Any
    score: float


_FAILED = _Trial(-1, None, -math.inf)


def _fit(estimator: Any, pair: tuple[Any, Any], public: Any, trial: Trial) -> None:
    """Fit a candidate to (X, y); the search has paid."""
    if isinstance(estimator, BaseTableSynthesizer):
        session.run(estimator, *pair, public, trial=trial)
    else:
        estimator._fit_paid(*pair, public, trial)


def _fitted(estimator: Any) -> BaseTableSynthesizer:
    """Return the fitted synthesizer of a fitted candidate."""
    return getattr(estimator, "synthesizer_", estimator)


def _containers(estimator: Any, X: Any, y: Any) -> tuple[Any, Any]:
    """Return X and y in containers whose parts all have one dtype, as in a fit.

    The values of a part would decide otherwise: what is planned for the whole has to
    hold for it, and one label must not change how the others are read.
    """
    if isinstance(estimator, BaseTableSynthesizer):
        owner = type(estimator).__name__
        return table_in_pandas(owner, X), in_pandas(owner, y)
    return estimator._table_of(X, y)
