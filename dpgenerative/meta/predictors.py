"""Classifiers and regressors that see synthetic rows only.

Formal guarantee: the private rows are read by the synthesizer's fit alone. Everything
else - the classes, the learner, its predictions of any rows but the private ones - is
computed from synthetic rows and public facts, so that the whole fitted estimator is as
private as the synthesizer: (epsilon, delta)-DP for adding or removing one row.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_float_dtype
from sklearn import ensemble
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.dummy import DummyClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpgenerative._validation import refuse
from dpgenerative.encoding.values import floats, level_indices
from dpgenerative.meta.base import SyntheticPredictor, learner_has
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables import containers
from dpgenerative.tables.dtypes import can_hold, column_from_dtype, is_real_dtype
from dpgenerative.tables.schema import Schema


class SyntheticClassifier(ClassifierMixin, SyntheticPredictor):
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
    >>> X = rng.normal(size=(500, 2))
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

    @available_if(learner_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of every class in `classes_`, of shape (n, k)."""
        return self._by_class(self._asked("predict_proba", X), 0.0)

    @available_if(learner_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithm of `predict_proba`."""
        return self._by_class(self._asked("predict_log_proba", X), -np.inf)

    @available_if(learner_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the classifier's decision values, of shape (n,) or (n, k)."""
        values = self._asked("decision_function", X)
        n_learned = len(self.learner_.classes_)
        if values.ndim == 2 and values.shape[1] != n_learned:
            raise ValueError(
                f"{self._owner}: the classifier's decision values are of "
                f"{values.shape[1]} pairs of classes. State "
                "decision_function_shape='ovr'."
            )
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
        labels = targets.tolist()
        if len({isinstance(label, str) for label in labels}) > 1:  # as in scikit-learn
            raise ValueError(
                f"{self._owner}: labels are texts and numbers, which no array holds "
                "together. Make all of them texts."
            )
        values = np.array(labels)
        dtype = self._target_dtype
        if isinstance(dtype, np.dtype) and dtype.kind in "biuf":
            return values.astype(dtype)
        return values


class SyntheticRegressor(RegressorMixin, SyntheticPredictor):
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
    >>> X = rng.normal(size=(500, 2))
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
        epsilon = session.stated_epsilon(self._new_synthesizer())
        if epsilon is None and not np.isfinite(target).all():
            raise ValueError(
                f"Input y of {self._owner} contains NaN or infinity, which only a "
                "private fit reads as missing."
            )
        return target

    def _restored(self, targets: pd.Series) -> np.ndarray:
        return targets.to_numpy(float)
