"""Classifiers and regressors that see synthetic rows only.

Formal guarantee: the private rows are read by the synthesizer's fit alone. Everything
else - the classes, the learner, its predictions of any rows but the private ones - is
computed from synthetic rows and public facts, so that the whole fitted estimator is as
private as the synthesizer: (epsilon, delta)-DP for adding or removing one row.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
import pandas as pd
from numpy.random import Generator, RandomState
from pandas.api.types import is_bool_dtype, is_float_dtype
from sklearn import ensemble
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_classifier,
    is_regressor,
)
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dpgenerative._random import as_seed
from dpgenerative._validation import count, refuse
from dpgenerative.encoding.values import NO_LEVELS, floats, level_indices
from dpgenerative.meta.learners import default_learner
from dpgenerative.privacy.budget import Trial, refuse_workers
from dpgenerative.privacy.report import PrivacyReport
from dpgenerative.synthesizers import DPHFlowSynthesizer, session
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables import containers
from dpgenerative.tables.dtypes import can_hold, column_from_dtype, is_real_dtype
from dpgenerative.tables.schema import Schema

SPENT = "The synthesizer is fitted, its budget spent: synthesizer_ can go on to sample."
LEAST_ROWS = 1000
"""Smallest default number of synthetic rows, which cost no privacy."""


def _learner_has(name: str) -> Callable[[Any], bool]:
    def check(estimator: Any) -> bool:
        learner = getattr(estimator, "learner_", None)
        if learner is None:
            chosen = getattr(estimator, estimator._learner_name)
            learner = estimator._default_class if chosen is None else chosen
        return hasattr(learner, name)

    return check


class _SyntheticPredictor(BaseEstimator):
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
        return self._fit(X, y, public)

    def _fit(self, X: Any, y: Any, public: Any, trial: Trial | None = None) -> Self:
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
        try:
            self.learner_ = self._taught(*self._synthetic(self.synthesizer_))
        except Exception as error:
            error.add_note(SPENT)
            raise
        self.n_features_in_ = self.synthesizer_.n_features_in_
        containers.set_feature_names(self, session.layout_of(self.synthesizer_))
        return self

    @available_if(_learner_has("predict"))
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
        tags = containers.table_tags(super().__sklearn_tags__())
        tags.non_deterministic = True
        return tags

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
        X, y = self._read(X, y)
        return X, None if y is None else self._target(y)

    def _read(self, X: Any, y: Any) -> tuple[Any, Any]:
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


class SyntheticClassifier(ClassifierMixin, _SyntheticPredictor):
    """A classifier trained on the sample of a private synthesizer.

    Fits the synthesizer on (X, y), samples from it, and fits the classifier on the
    sample. Standard scorers and searches work: ``synthesizer__epsilon``,
    ``classifier__max_depth`` and the like are parameters.

    Parameters
    ----------
    synthesizer : Synthesizer, optional
        Unfitted; a clone is fitted. None is ``DPHFlowSynthesizer()``.
    classifier : classifier, optional
        Unfitted; a clone is fitted to synthetic rows. It sees X in the container and
        with the dtypes that were given, missing values included, so that strings must
        be encoded by the classifier itself, which may be a pipeline. A classifier that
        refuses missing values is fitted to the synthetic rows without any. None is
        gradient boosting after an encoding of levels, which handles any table.
    classes : array-like of shape (n_classes,), optional
        The labels, if they are public; any other label counts as missing. By default
        the dtype of y (category, bool) or the synthesizer's schema states them. If
        neither does, they are estimated privately, which misses rare ones. A level that
        stands for all others (`Column.other`) is not a class.
    n_samples : int, optional
        Number of synthetic rows. None takes the released row count, at least 1000.
    random_state : int, RandomState or Generator instance or None, default=None
        Seeds the sample and the default classifier. The noise of the fit follows the
        synthesizer's own parameters.

    Attributes
    ----------
    synthesizer_ : Synthesizer
    learner_ : classifier
        The classifier fitted to synthetic rows.
    classes_ : ndarray of shape (n_classes,)
        Labels that are public or were estimated privately, sorted. They are not read
        off y, since the set of its labels is private. A label that does not occur in
        the sample has probability 0.
    privacy_ : PrivacyReport
        What the fit released. It covers the classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if all column names are strings.

    Notes
    -----
    Scores on private rows, also in a search, are not covered by the guarantee:
    `search_privacy` states what the fits of a search spent, and `PrivateSearch` covers
    scores too. Labels of a float dtype are refused unless something public says that
    they are labels, since which numbers occur is private.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import DPHFlowSynthesizer, SyntheticClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> y = X[:, 0] > 0
    >>> flow = DPHFlowSynthesizer(epsilon=3.0)
    >>> model = SyntheticClassifier(flow, random_state=0).fit(X, y)
    >>> model.predict(X[:5]).dtype
    dtype('bool')
    """

    def __init__(
        self,
        synthesizer: BaseTableSynthesizer | None = None,
        classifier: Any = None,
        *,
        classes: Any = None,
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.synthesizer = synthesizer
        self.classifier = classifier
        self.classes = classes
        self.n_samples = n_samples
        self.random_state = random_state

    _learner_name = "classifier"
    _default_class = ensemble.HistGradientBoostingClassifier

    @property
    def classes_(self) -> np.ndarray:
        """Labels that are public or were estimated privately, sorted."""
        check_is_fitted(self)
        target = self.synthesizer_.schema_.columns[-1]
        levels = [level for level in target.levels or () if level != target.other]
        return np.unique(self._restored(pd.Series(levels, dtype=object)))

    @available_if(_learner_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class in `classes_`, of shape (n, k)."""
        return self._by_class(self._asked("predict_proba", X), 0.0)

    @available_if(_learner_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`."""
        return self._by_class(self._asked("predict_log_proba", X), -np.inf)

    @available_if(_learner_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the classifier's decision values, of shape (n,) or (n, k)."""
        values = self._asked("decision_function", X)
        if values.ndim == 1 and len(self.classes_) > 2:
            values = np.column_stack([-values, values])
        return self._by_class(values, -np.inf)

    def _by_class(self, values: np.ndarray, absent: float) -> np.ndarray:
        """Return a column per class; `absent` stands for those not learned."""
        if values.ndim == 1 or len(self.learner_.classes_) == len(self.classes_):
            return values
        spread = np.full((len(values), len(self.classes_)), absent)
        spread[:, np.searchsorted(self.classes_, self.learner_.classes_)] = values
        return spread

    def _taught(self, rows: Any, targets: np.ndarray) -> Any:
        if (targets == targets[0]).all():
            # Some classifiers refuse a single class, others invent a second.
            return DummyClassifier().fit(rows, targets)
        return super()._taught(rows, targets)

    def _of_list(self, y: list[Any]) -> pd.Series:
        return pd.Series(containers.objects(y), dtype=object)

    def _target(self, y: pd.Series) -> pd.Series:
        self._target_dtype = y.dtype
        if column_from_dtype(y.name or "target", y.dtype).temporal:
            self._refuse_labels(y.dtype)  # as objects, those far away may raise
        if self.classes is not None:
            labels = self._stated_classes()
            if not all(can_hold(y.dtype, label) for label in labels):
                rule = f"must be values of the dtype of y, {y.dtype}"
                refuse(self._owner, "classes", rule, self.classes)
            self._require_labels(labels)
            dtype = pd.CategoricalDtype(labels)
            # astype fails, or warns, at some values that are no level.
            codes = level_indices(y, dtype.categories.tolist())
            target = pd.Categorical.from_codes(codes, dtype=dtype)
            return pd.Series(target, index=y.index, name=y.name)
        if isinstance(y.dtype, pd.CategoricalDtype):
            self._require_labels(y.dtype.categories.tolist())
            return y
        if is_bool_dtype(y):
            return y
        schema = getattr(self.synthesizer, "schema", None)
        if isinstance(schema, Schema) and y.name in schema:
            if schema[y.name].numeric:
                raise ValueError(
                    f"{self._owner}: the schema says that the target {y.name!r} is "
                    f"{schema[y.name].kind}. State it as categorical, with its levels."
                )
            self._require_labels(schema[y.name].levels or ())
            return y
        if is_float_dtype(y.dtype):
            self._refuse_labels(y.dtype)
        return y.astype(object)

    def _require_labels(self, levels: Sequence[Any]) -> None:
        """Refuse public labels that scikit-learn would refuse, before a row is read."""
        if len(levels):
            labels = self._restored(pd.Series(levels, dtype=object))
            check_classification_targets(labels)

    def _refuse_labels(self, dtype: Any) -> NoReturn:
        raise ValueError(
            f"Unknown label type: {dtype}. {self._owner} takes labels as integers, "
            "booleans, strings or categories; if numbers are labels, state them with "
            "classes= or in a Schema."
        )

    def _stated_classes(self) -> list[Any]:
        given = self.classes
        is_list = isinstance(given, Iterable) and not isinstance(given, (str, bytes))
        listed = list(given) if is_list else []
        labels = [containers.plain(label) for label in listed]
        are_texts = {isinstance(label, str) for label in labels}
        if len(are_texts) != 1 or pd.isna(containers.objects(labels)).any():
            rule = "must be a list of labels, all of them texts or all numbers"
            refuse(self._owner, "classes", rule, given)
        return pd.unique(np.asarray(labels)).tolist()

    def _restored(self, targets: pd.Series) -> np.ndarray:
        values = np.array(targets.tolist())
        dtype = self._target_dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            return values.astype(dtype)
        return values


class SyntheticRegressor(RegressorMixin, _SyntheticPredictor):
    """A regressor trained on the sample of a private synthesizer.

    Fits the synthesizer on (X, y), samples from it, and fits the regressor on the
    sample.

    Parameters
    ----------
    synthesizer : Synthesizer, optional
        Unfitted; a clone is fitted. None is ``DPHFlowSynthesizer()``.
    regressor : regressor, optional
        Unfitted; a clone is fitted to synthetic rows. It sees X in the container and
        with the dtypes that were given, missing values included, so that strings must
        be encoded by the regressor itself, which may be a pipeline. A regressor that
        refuses missing values is fitted to the synthetic rows without any. None is
        gradient boosting after an encoding of levels, which handles any table.
    n_samples : int, optional
        Number of synthetic rows. None takes the released row count, at least 1000.
    random_state : int, RandomState or Generator instance or None, default=None
        Seeds the sample and the default regressor. The noise of the fit follows the
        synthesizer's own parameters.

    Attributes
    ----------
    synthesizer_ : Synthesizer
    learner_ : regressor
        The regressor fitted to synthetic rows.
    privacy_ : PrivacyReport
        What the fit released. It covers the regressor.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Only if all column names are strings.

    Notes
    -----
    The target is read as floating-point numbers, within the bounds that the
    synthesizer's schema states for a column of its name. Values that are not finite
    count as missing. Without privacy (``epsilon=None``) they raise, as elsewhere in
    scikit-learn: there is nothing to hide then.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import DPHFlowSynthesizer, SyntheticRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(2000, 2))
    >>> flow = DPHFlowSynthesizer(epsilon=3.0)
    >>> model = SyntheticRegressor(flow, random_state=0).fit(X, X[:, 0])
    >>> model.predict(X[:5]).shape
    (5,)
    """

    def __init__(
        self,
        synthesizer: BaseTableSynthesizer | None = None,
        regressor: Any = None,
        *,
        n_samples: int | None = None,
        random_state: Any = None,
    ) -> None:
        self.synthesizer = synthesizer
        self.regressor = regressor
        self.n_samples = n_samples
        self.random_state = random_state

    _learner_name = "regressor"
    _default_class = ensemble.HistGradientBoostingRegressor

    def _of_list(self, y: list[Any]) -> pd.Series:
        return pd.Series([containers.as_number(value) for value in y], dtype=float)

    def _target(self, y: pd.Series) -> pd.Series:
        if not is_real_dtype(y.dtype):
            raise ValueError(
                f"Unknown label type: {y.dtype}. {self._owner} takes a target of "
                "integers or floats."
            )
        target = pd.Series(floats(y), index=y.index, name=y.name)
        if (
            session.stated_epsilon(self._new_synthesizer()) is None
            and not np.isfinite(target).all()
        ):
            raise ValueError(
                f"Input y of {self._owner} contains NaN or infinity, which only a "
                "private fit reads as missing."
            )
        return target

    def _restored(self, targets: pd.Series) -> np.ndarray:
        return targets.to_numpy(float)


def _warn_of_a_table(y: Any) -> None:
    # As scikit-learn's column_or_1d, whose errors may quote values.
    if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected. Please change "
            "the shape of y to (n_samples,), for example using ravel().",
            DataConversionWarning,
            stacklevel=5,
        )
