"""Train on synthetic rows, test on real ones."""

import math
import numbers
import warnings
from collections.abc import Hashable, Mapping
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn import base, ensemble, linear_model, naive_bayes, neural_network, tree
from sklearn import metrics as figures
from sklearn.compose import TransformedTargetRegressor
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from dpgenerative._validation import check_option, count
from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    comparable_codes,
    is_number,
    origin_of,
    takes_tables,
    warn_if_few,
)
from dpgenerative.metrics.features import encode_features
from dpgenerative.tables.times import temporal_kind

TASKS = ("auto", "classification", "regression")

MIN_CLASS_COUNT = 2  # stratified early stopping cannot split a class of one row
EARLY_STOPPING_SHARE = 0.1  # of the training rows, scikit-learn's default
MAX_CLASSES_OF_INTEGERS = 20  # an integer target with more values is a quantity
_SMALL_NETWORK: Mapping[str, Any] = {
    "hidden_layer_sizes": (64,), "early_stopping": True, "max_iter": 30
}  # fmt: skip


def default_classifiers(random_state: int = 0) -> dict[str, base.ClassifierMixin]:
    """Return nine classifiers of different kinds, unfitted.

    Parameters
    ----------
    random_state : int, default=0
        Seed of those that draw random numbers.

    Returns
    -------
    dict of str to classifier
        Fresh scikit-learn estimators, each with `predict_proba`.

    Examples
    --------
    >>> sorted(default_classifiers())[:3]
    ['adaboost', 'bernoulli_nb', 'decision_tree']
    """
    seed = {"random_state": random_state}
    return {
        "logistic_regression": linear_model.LogisticRegression(max_iter=300, **seed),
        "gaussian_nb": naive_bayes.GaussianNB(),
        "bernoulli_nb": naive_bayes.BernoulliNB(),
        "lda": LinearDiscriminantAnalysis(),
        "decision_tree": tree.DecisionTreeClassifier(max_depth=10, **seed),
        "random_forest": ensemble.RandomForestClassifier(100, max_depth=12, **seed),
        "adaboost": ensemble.AdaBoostClassifier(**seed),
        "hist_gradient_boosting": ensemble.HistGradientBoostingClassifier(**seed),
        "mlp": neural_network.MLPClassifier(**_SMALL_NETWORK, **seed),
    }


def default_regressors(random_state: int = 0) -> dict[str, base.RegressorMixin]:
    """Return five regressors of different kinds, unfitted.

    Parameters
    ----------
    random_state : int, default=0
        Seed of those that draw random numbers.

    Returns
    -------
    dict of str to regressor
        Fresh scikit-learn estimators. Each standardizes the target and returns
        predictions in the target's units.

    Examples
    --------
    >>> len(default_regressors())
    5
    """
    seed = {"random_state": random_state}
    models = {
        "ridge": linear_model.Ridge(),
        "decision_tree": tree.DecisionTreeRegressor(max_depth=10, **seed),
        "random_forest": ensemble.RandomForestRegressor(
            100, max_depth=12, max_features=1 / 3, **seed
        ),
        "hist_gradient_boosting": ensemble.HistGradientBoostingRegressor(**seed),
        "mlp": neural_network.MLPRegressor(**_SMALL_NETWORK, **seed),
    }
    return {
        name: TransformedTargetRegressor(model, transformer=StandardScaler())
        for name, model in models.items()
    }


@takes_tables
def tstr(
    real_train: pd.DataFrame | None,
    real_test: pd.DataFrame,
    synthetic: pd.DataFrame,
    target: Hashable,
    *,
    classifiers: Mapping[str, base.BaseEstimator] | None = None,
    task: str = "auto",
    n_repeats: int = 1,
    n_rows: int | None = 20_000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train on synthetic rows and on real ones, test both on other real rows.

    The gap between the scores of models trained on `synthetic` and those of the same
    models trained on `real_train` is the utility lost by synthesis.

    Parameters
    ----------
    real_train : DataFrame of shape (n_real, p) or None
        The real rows behind the synthetic table. None: train on `synthetic` alone.
    real_test : DataFrame of shape (n_test, p)
        Real rows that neither training table was made from. Their dtypes determine
        which columns are numeric.
    synthetic : DataFrame of shape (n_synthetic, p)
        The synthetic table. All tables have the same columns, in any order.
    target : hashable
        The column to predict. Rows without it (or, in a regression, with an infinite
        one) are left out of all tables.
    classifiers : mapping of str to estimator, optional
        Models to train; cloned, not changed. Classifiers with `predict_proba`, or, for
        a regression, regressors. None: those of `default_classifiers` or
        `default_regressors`.
    task : {"auto", "classification", "regression"}, default="auto"
        "auto" is a regression if the dtype of `target` in `real_test` is a float, or an
        integer with more than 20 distinct values; otherwise a classification, whose
        classes are the distinct values, whatever their dtype.
    n_repeats : int, default=1
        How often to draw rows and train, >= 1.
    n_rows : int or None, default=20000
        Train on this many rows, >= 1, of each training table, drawn without
        replacement; None, or a number beyond the table's, for all.
    random_state : int, default=0
        Seed, >= 0, of that draw and of the default models. Repeat r adds r to it, and
        to every integer `random_state` among the parameters of `classifiers`.
    n_jobs : int, optional
        Models trained at the same time, as in joblib; each on one thread.

    Returns
    -------
    DataFrame
        One row per repeat, training table and model, with columns ``model``,
        ``trained_on`` ("synthetic" or "real"), ``repeat`` (0, 1, ...) and the scores.

        Classification: ``macro_f1`` (over the classes present in `real_test`),
        ``auroc`` and ``average_precision``, all in [0, 1]; the latter two are those of
        the rarer class if `real_test` has two, otherwise one-versus-rest averages over
        the classes present in `real_test`. Regression: ``r2`` (at most 1, negative
        if the mean of `real_test` predicts better), and ``rmse`` and ``mae`` in units
        of the target.

    Raises
    ------
    TypeError
        If a table is not a DataFrame, or `classifiers` is no mapping.
    ValueError
        If the columns of the tables differ; `target` is not one of them or the only
        one; a column holds numbers in one table and strings in another;
        `real_test` has fewer than two classes or values of the target; a training table
        has no row with a target, no class with two rows, or no class that `real_test`
        has; a parameter is out of its range; or a model does not suit the task or
        fails, in which case the message names it and the table.

    Warns
    -----
    UserWarning
        If a training table has fewer than 50 rows: the scores are mostly noise.

    See Also
    --------
    make_synthesis_scorer : The same comparison as a score for a search.

    Notes
    -----
    Features with a numeric dtype in `real_test` are imputed with the median (infinite
    values count as missing) and standardized; all others are one-hot encoded, with
    missing as a level of its own. Levels with fewer than 5 training rows and those
    beyond the 99 most frequent are pooled, unknown levels are ignored. All of it is
    fitted on the training rows. No column is dropped: one without any training value is
    a constant. Standardized values are clipped at 1e15.

    A class with fewer than 2 training rows counts as absent, and an absent class gets
    probability zero, so a synthesizer that loses a class pays for it in every score.
    If only one class or value of the target is left, or no feature varies, the
    prediction is the class frequencies, or the mean, of the training rows. Early
    stopping is disabled if a tenth of the training rows could not contain every class.

    Repeats show the spread due to the draw of rows and to the models' seeds, but not
    the one due to fitting the synthesizer again: for that, compare tables of several
    fits. If all rows are used, models without a seed do not vary.

    None of it is private: the scores describe real rows.

    Examples
    --------
    >>> from sklearn.naive_bayes import GaussianNB
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"x": rng.normal(size=300), "z": rng.normal(size=300)})
    >>> real["y"] = real["x"] + rng.normal(size=300) > 0
    >>> train, test = real[:200], real[200:]
    >>> shuffled = train.assign(x=rng.permutation(train["x"]))
    >>> models = {"bayes": GaussianNB(), "lda": LinearDiscriminantAnalysis()}
    >>> scores = tstr(
    ...     train, test, shuffled, "y", classifiers=models, n_rows=150, n_repeats=3
    ... )
    >>> scores.shape
    (12, 6)

    Mean and spread of each model over the repeats, and of the mean over models:

    >>> names = ["macro_f1", "auroc", "average_precision"]
    >>> each = scores.groupby(["trained_on", "model"])[names].agg(["mean", "std"])
    >>> mean = scores.groupby(["trained_on", "repeat"])[names].mean()
    >>> overall = mean.groupby("trained_on").agg(["mean", "std"])
    >>> bool((overall.loc["real"] - overall.loc["synthetic"])["auroc", "mean"] > 0.1)
    True
    """
    count()("tstr", "n_repeats", n_repeats)
    count(also=[None])("tstr", "n_rows", n_rows)
    count(0)("tstr", "random_state", random_state)
    tables = {"synthetic": aligned(real_test, synthetic, ("real_test", "synthetic"))}
    if real_train is not None:
        tables["real"] = aligned(real_test, real_train, ("real_test", "real_train"))
    chosen = _choose_task(real_test, target, task)
    models = chosen.models(random_state) if classifiers is None else classifiers
    _check_models(models, chosen, real_test[target])
    test = real_test[chosen.has_target(real_test[target])]
    tables = {on: x[chosen.has_target(x[target])] for on, x in tables.items()}
    rows = []
    for repeat, trained_on in product(range(n_repeats), tables):
        train = tables[trained_on]
        if n_rows is not None and n_rows < len(train):
            train = train.sample(n_rows, random_state=random_state + repeat)
        split = _split(train, test, target, chosen, trained_on)
        if repeat == 0:
            warn_if_few({trained_on: len(split[0])})
        rows += Parallel(n_jobs=n_jobs)(
            delayed(_fit_and_score)(name, model, split, trained_on, chosen, repeat)
            for name, model in models.items()
        )
    return pd.DataFrame(rows)


def main_score(scores: pd.DataFrame) -> str:
    """Return the score that counts most among those of a task."""
    return "auroc" if "auroc" in scores else "r2"


def mean_scores(scores: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return a row per model, and a column per score and table trained on."""
    return scores.groupby(["model", "trained_on"], sort=False)[names].mean().unstack()


# The two tasks ------------------------------------------------------------------------


class _Classification:
    """How classes are read, learned and scored."""

    name, values = "classification", "classes"
    least_rows = f"{MIN_CLASS_COUNT} training rows of some class"
    baseline = DummyClassifier(strategy="prior")
    models = staticmethod(default_classifiers)

    @staticmethod
    def suits(model: Any) -> bool:
        return base.is_classifier(model) and hasattr(model, "predict_proba")

    def has_target(self, column: pd.Series) -> np.ndarray:
        return column.notna().to_numpy()

    def read(self, test: pd.Series, train: pd.Series) -> tuple[np.ndarray, ...]:
        """Return codes of both, and which training rows have a class of enough rows."""
        (y_test, y_train), levels = comparable_codes(test, train)
        common = np.bincount(y_train, minlength=len(levels)) >= MIN_CLASS_COUNT
        return y_test, y_train, common[y_train]

    def score(self, fitted: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
        shares = np.zeros((len(x), 1 + max(fitted.classes_.max(), y.max())))
        shares[:, fitted.classes_] = fitted.predict_proba(x)  # 0 for absent classes
        present, counts = np.unique(y, return_counts=True)
        positives = [present[counts.argmin()]] if len(present) == 2 else present
        one_vs_rest = y[:, None] == np.array(positives), shares[:, positives]
        f1 = figures.f1_score(
            y, shares.argmax(axis=1), labels=present, average="macro", zero_division=0
        )
        return {
            "macro_f1": float(f1),
            "auroc": float(figures.roc_auc_score(*one_vs_rest)),
            "average_precision": float(figures.average_precision_score(*one_vs_rest)),
        }


class _Regression:
    """How quantities are read, learned and scored."""

    name, values = "regression", "values"
    least_rows = "training rows with a finite target"
    baseline = DummyRegressor()
    models = staticmethod(default_regressors)
    suits = staticmethod(base.is_regressor)

    def has_target(self, column: pd.Series) -> np.ndarray:
        return np.isfinite(as_floats(column))

    def read(self, test: pd.Series, train: pd.Series) -> tuple[np.ndarray, ...]:
        origin, every = origin_of(test), np.ones(len(train), dtype=bool)
        return as_floats(test, origin), as_floats(train, origin), every

    def score(self, fitted: Any, x: np.ndarray, y: np.ndarray) -> dict[str, float]:
        predicted = fitted.predict(x)
        return {
            "r2": float(figures.r2_score(y, predicted)),
            "rmse": float(figures.root_mean_squared_error(y, predicted)),
            "mae": float(figures.mean_absolute_error(y, predicted)),
        }


_Task = _Classification | _Regression


def _choose_task(real_test: pd.DataFrame, target: Hashable, task: str) -> _Task:
    """Check target and task against the test table; resolve "auto"."""
    check_option("tstr", "task", task, TASKS)
    check_option("tstr", "target", target, list(real_test.columns))
    if real_test.shape[1] < 2:
        raise ValueError(f"target {target!r} is the only column: nothing predicts it.")
    column = real_test[target]
    if temporal_kind(column.dtype):
        raise ValueError(
            f"target {target!r} holds times, which are neither classes nor predicted "
            "as numbers: derive one or the other from it in all tables."
        )
    if task == "regression" and not is_number(column):
        raise ValueError(
            f"task='regression' needs a target of numbers; {target!r} has dtype "
            f"{column.dtype} in real_test."
        )
    is_regression = task == "regression"
    if task == "auto":
        is_regression = pd.api.types.is_float_dtype(column)
        if pd.api.types.is_integer_dtype(column):
            is_regression = column.nunique() > MAX_CLASSES_OF_INTEGERS
    return _Regression() if is_regression else _Classification()


# Checks -------------------------------------------------------------------------------


def _check_models(
    models: Mapping[str, base.BaseEstimator], task: _Task, target: pd.Series
) -> None:
    if not isinstance(models, Mapping):
        raise TypeError(
            "classifiers must be a mapping from names to models; got "
            f"{type(models).__name__}."
        )
    if not models:
        raise ValueError("classifiers must hold at least one model, or be None.")
    for name, model in models.items():
        if not task.suits(model):
            raise ValueError(
                f"classifiers[{name!r}] is a {type(model).__name__}, which does not "
                f"suit the task: a {task.name} of target {target.name!r} (dtype "
                f"{target.dtype}). Pass `task` to choose the other one. Classifiers "
                "need `predict_proba`."
            )


# Features -----------------------------------------------------------------------------


_Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Encoded features and targets of a training table, then those of the test table."""


def _split(
    train: pd.DataFrame,
    test: pd.DataFrame,
    target: Hashable,
    task: _Task,
    trained_on: str,
) -> _Split:
    """Encode the rows to learn from; refuse targets that cannot be scored."""
    y_test, y_train, usable = task.read(test[target], train[target])
    y_train, n_distinct = y_train[usable], len(np.unique(y_test))
    if n_distinct < 2:
        raise ValueError(
            f"A {task.name} needs two {task.values} in real_test; target {target!r} "
            f"has {n_distinct}."
        )
    if len(y_train) == 0:
        raise ValueError(
            f"A {task.name} needs {task.least_rows}; target {target!r} leaves 0 "
            f"{trained_on} training rows."
        )
    if task.name == "classification" and not np.isin(y_train, y_test).any():
        raise ValueError(
            f"No class of target {target!r} in the {trained_on} training rows occurs "
            "in real_test: are they spelled alike?"
        )
    x_train, x_test = encode_features(train[usable], test, target)
    return x_train, y_train, x_test, y_test


# Models -------------------------------------------------------------------------------


def _fit_and_score(
    name: str, model: Any, split: _Split, trained_on: str, task: _Task, repeat: int
) -> dict[str, Any]:
    """Return a row of results: the scores of one model, and what it was fitted to."""
    about = {"model": name, "trained_on": trained_on, "repeat": repeat}
    x_train, y_train, x_test, y_test = split
    if (y_train == y_train[0]).all() or (x_train == x_train[0]).all():
        model = task.baseline
    model = _prepared(model, y_train, repeat)
    # One thread each: the scores are the same on any machine, and small fits faster.
    # Short training and collinear indicators are part of the comparison.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        try:
            model.fit(x_train, y_train)
            return {**about, **task.score(model, x_test, y_test)}
        except ValueError as error:
            raise ValueError(
                f"{name!r} failed on the {len(x_train)} {trained_on} training rows: "
                f"{error}"
            ) from error


def _prepared(model: Any, y_train: np.ndarray, repeat: int) -> Any:
    """Clone a model, shift its seeds, and make its early stopping possible."""
    model = base.clone(model)
    # The rows that scikit-learn holds out by default have to be scored.
    n_scored = math.ceil(len(y_train) * EARLY_STOPPING_SHARE)
    n_classes = len(np.unique(y_train)) if base.is_classifier(model) else 0
    can_stop = n_scored >= max(2, n_classes)
    changes: dict[str, Any] = {}
    for name, value in model.get_params().items():
        last = name.rpartition("__")[-1]
        if last == "random_state" and isinstance(value, numbers.Integral):
            changes[name] = value + repeat
        elif last == "early_stopping" and value is True and not can_stop:
            changes[name] = False
    return model.set_params(**changes)
