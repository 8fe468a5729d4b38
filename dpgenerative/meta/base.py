"""What predictors that are fitted to synthetic rows share: fits, samples, learners."""

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.random import Generator, RandomState
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from dpgenerative._random import as_seed
from dpgenerative._validation import count, refuse
from dpgenerative.encoding.values import NO_LEVELS
from dpgenerative.meta.learners import default_learner
from dpgenerative.privacy.budget import Trial, refuse_workers
from dpgenerative.privacy.report import PrivacyReport
from dpgenerative.synthesizers import DPHFlowSynthesizer, noisy, session
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables import containers

SPENT = "The synthesizer is fitted, its budget spent: synthesizer_ can go on to sample."
LEAST_ROWS = 1000
"""Smallest default number of synthetic rows, which cost no privacy."""


def learner_has(name: str) -> Callable[[Any], bool]:
    """Return a check of whether the learner of a predictor has a method."""

    def check(estimator: Any) -> bool:
        learner = getattr(estimator, "learner_", None)
        if learner is None:
            chosen = getattr(estimator, estimator._learner_name)
            learner = estimator._default_class if chosen is None else chosen
        return hasattr(learner, name)

    return check


class SyntheticPredictor(BaseEstimator):
    """Fit a synthesizer on private rows, and a learner on its sample."""

    synthesizer: BaseTableSynthesizer | None
    n_samples: int | None
    random_state: Any

    _learner_name: ClassVar[str]
    _default_class: ClassVar[type]

    # Public methods -------------------------------------------------------------

    def fit(self, X: Any, y: Any, public: Any = None) -> Self:
        """Fit a clone of the synthesizer, sample from it, and fit the learner.

        Every call spends the synthesizer's budget again.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The private rows. One row, with its target, is the privacy unit.
        y : Series, one-column DataFrame or array-like of shape (n_samples,)
            The target.
        public : (X, y), optional
            Rows and targets that need no protection, for the synthesizer's fit.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a parameter out of its range or a dtype of y that this kind of target
            does not take.
        """
        return self._fit_paid(X, y, public)

    def _fit_paid(
        self, X: Any, y: Any, public: Any, trial: Trial | None = None
    ) -> Self:
        """Fit; a private search has paid for its `trial`."""
        synthesizer, X, y, public = self._inputs(X, y, public)
        if synthesizer.noise == "reproducible":
            self._is_seeded = True  # whatever `noise` is set to later
        try:
            session.run(synthesizer, X, y, public, trial=trial)
        finally:
            if hasattr(synthesizer, "privacy_"):  # also where its warnings are errors
                self.synthesizer_ = synthesizer
                self.__dict__.pop("learner_", None)  # of another fit
                self.n_features_in_ = synthesizer.n_features_in_
                containers.set_feature_names(self, session.layout_of(synthesizer))
        try:
            self.learner_ = self._taught(*self._synthetic(self.synthesizer_))
        except Exception as error:
            error.add_note(SPENT)
            raise
        return self

    @available_if(learner_has("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predict the target of every row with the learner.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._asked("predict", X)

    def _asked(self, method: str, X: Any) -> np.ndarray:
        """Return what a method of the fitted learner returns for rows."""
        check_is_fitted(self, "learner_")
        rows = containers.as_container(self._owner, X)
        if np.ndim(rows) == 2:  # the learner itself refuses other shapes
            validate_data(self, rows, reset=False, skip_check_array=True)
        if isinstance(rows, pd.DataFrame):
            rows = session.in_fitted_zones(self.synthesizer_, rows)
        return getattr(self.learner_, method)(rows)

    def __getstate__(self) -> dict[str, Any]:
        refuse_workers(self._owner)  # also one that is to make its synthesizer
        state: dict[str, Any] = dict(super().__getstate__())
        if state.get("_is_seeded") and state["synthesizer"] is not None:
            # The seed of the noise stays with whoever fitted.
            copy = BaseEstimator.__sklearn_clone__(state["synthesizer"])
            state["synthesizer"] = copy.set_params(random_state=None)
        return state

    @property
    def privacy_(self) -> PrivacyReport:
        """The synthesizer's report, which covers the learner too."""
        check_is_fitted(self)
        return self.synthesizer_.privacy_

    def __sklearn_tags__(self) -> Any:
        return noisy.tagged(containers.table_tags(super().__sklearn_tags__()))

    def set_params(self, **params: Any) -> Self:
        """Set parameters, of the default synthesizer too where none is stated."""
        is_nested = any(name.startswith("synthesizer__") for name in params)
        if is_nested and params.get("synthesizer", self.synthesizer) is None:
            params["synthesizer"] = DPHFlowSynthesizer()
        return super().set_params(**params)

    # Steps of a fit -------------------------------------------------------------

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _inputs(
        self, X: Any, y: Any, public: Any
    ) -> tuple[BaseTableSynthesizer, Any, Any, Any]:
        """Return the synthesizer to fit, what to fit it on, and its public rows."""
        if y is None:
            lacks = "requires y to be passed, but the target y is None."
            raise ValueError(f"{self._owner} {lacks}")
        count(also=[None])(self._owner, "n_samples", self.n_samples)
        if not isinstance(self.synthesizer, (BaseTableSynthesizer, type(None))):
            rule = "must be a synthesizer of tables or None"
            refuse(self._owner, "synthesizer", rule, self.synthesizer)
        learner = getattr(self, self._learner_name)
        is_learner = hasattr(learner, "fit") and hasattr(learner, "get_params")
        if learner is not None and (isinstance(learner, type) or not is_learner):
            rule = "must be an estimator of scikit-learn, or None"
            refuse(self._owner, self._learner_name, rule, learner)
        other = is_regressor if self._learner_name == "classifier" else is_classifier
        is_other = hasattr(learner, "__sklearn_tags__") and other(learner)
        if learner is not None and (is_other or not hasattr(learner, "predict")):
            rule = f"must be a {self._learner_name}"
            refuse(self._owner, self._learner_name, rule, learner)
        if not isinstance(self.random_state, (RandomState, Generator)):
            as_seed(self.random_state)
        if isinstance(public, tuple) and len(public) == 2:
            public = self._converted(*public)
        return self._new_synthesizer(), *self._converted(X, y), public

    def _converted(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and targets as the synthesizer is to read them."""
        X, y = self._table_of(X, y)
        return X, None if y is None else self._target(y)

    def _table_of(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Return rows and targets in containers whose dtypes depend on no value."""
        if isinstance(y, (list, tuple)):
            y = self._of_list(list(y))
        elif y is not None:
            _warn_of_a_table(y)
            y = containers.as_series(self._owner, y)
        return containers.as_container(self._owner, X), y

    def _new_synthesizer(self) -> BaseTableSynthesizer:
        if self.synthesizer is None:
            return DPHFlowSynthesizer()
        # As `clone`, which would change the parameter: its pickles lose the seed.
        return BaseEstimator.__sklearn_clone__(self.synthesizer)

    def _synthetic(self, synthesizer: BaseTableSynthesizer) -> tuple[Any, np.ndarray]:
        """Return synthetic rows that have a target, and their targets."""
        n = self.n_samples or max(LEAST_ROWS, synthesizer.privacy_.plan.n_rows)
        rows, targets = synthesizer.sample(n, random_state=as_seed(self.random_state))
        column = synthesizer.schema_.columns[-1]
        has_target = targets.notna().to_numpy()
        if column.other is not None:
            has_target = has_target & (targets != column.other).to_numpy(bool)
        if not has_target.any() or column.levels == NO_LEVELS:
            raise ValueError(
                f"{self._owner}: no synthetic row has a target. Hardly a row has one, "
                "or the budget was too small to find the values that are there: state "
                "public classes, or bounds in a Schema."
            )
        return rows[has_target], self._restored(targets[has_target])

    def _taught(self, rows: Any, targets: np.ndarray) -> Any:
        """Fit the learner to synthetic rows, or if that fails to the complete ones."""
        try:
            return self._learner(rows).fit(rows, targets)
        except ValueError:
            complete = ~pd.DataFrame(rows).isna().any(axis=1).to_numpy()
            if complete.all() or not complete.any():
                raise
        return self._learner(rows).fit(rows[complete], targets[complete])

    def _learner(self, rows: Any) -> Any:
        chosen = getattr(self, self._learner_name)
        if chosen is not None:
            return clone(chosen)
        seed = as_seed(self.random_state)
        boosting = self._default_class(early_stopping=False, random_state=seed)
        return default_learner(rows, boosting)

    # What a subclass states -----------------------------------------------------

    def _of_list(self, y: list[Any]) -> pd.Series:
        """Return the target with a dtype that does not depend on its values."""
        raise NotImplementedError

    def _target(self, y: pd.Series) -> pd.Series:
        """Return the target as the synthesizer is to read it."""
        raise NotImplementedError

    def _restored(self, targets: pd.Series) -> np.ndarray:
        """Return synthetic targets, none missing, as the learner is to see them."""
        raise NotImplementedError


def _warn_of_a_table(y: Any) -> None:
    # As scikit-learn's column_or_1d, whose errors may quote values.
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change "
            "the shape of y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
