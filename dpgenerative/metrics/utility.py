"""Train on synthetic rows, test on real ones; choose a synthesizer by such scores."""

from __future__ import annotations

import math
import numbers
import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_classifier,
    is_regressor,
)
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    AdaBoostClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import (
    average_precision_score,
    f1_score,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from dpgenerative._validation import check_number, check_option
from dpgenerative.metrics.columns import (
    MIN_ROWS,
    aligned,
    as_floats,
    comparable_codes,
    is_number,
    takes_tables,
)
from dpgenerative.metrics.dependence import kendall_tau_distance
from dpgenerative.metrics.fidelity import marginal_distance
from dpgenerative.tables.containers import as_table

TASKS = ("auto", "classification", "regression")
METRICS = ("tvd", "kendall", "tstr")

MIN_LEVEL_COUNT = 5  # levels with fewer training rows share one indicator
MAX_INDICATORS = 100  # of a column; levels beyond those of most rows share the last
MIN_CLASS_COUNT = 2  # stratified early stopping cannot split a class of one row
EARLY_STOPPING_SHARE = 0.1  # of the training rows, scikit-learn's default
MAX_CLASSES_OF_INTEGERS = 20  # an integer target with more values is a quantity
LARGEST_RAW = 1e100  # whose square is finite
LARGEST_SCALED = 1e15  # whose square is a finite float32


def default_classifiers(random_state: int = 0) -> dict[str, ClassifierMixin]:
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
        "logistic_regression": LogisticRegression(max_iter=300, **seed),
        "gaussian_nb": GaussianNB(),
        "bernoulli_nb": BernoulliNB(),
        "lda": LinearDiscriminantAnalysis(),
        "decision_tree": DecisionTreeClassifier(max_depth=10, **seed),
        "random_forest": RandomForestClassifier(100, max_depth=12, **seed),
        "adaboost": AdaBoostClassifier(**seed),
        "hist_gradient_boosting": HistGradientBoostingClassifier(**seed),
        "mlp": MLPClassifier((64,), early_stopping=True, max_iter=30, **seed),
    }


def default_regressors(random_state: int = 0) -> dict[str, RegressorMixin]:
    """Return five regressors of different kinds, unfitted.

    Parameters
    ----------
    random_state : int, default=0
        Seed of those that draw random numbers.

    Returns
    -------
    dict of str to regressor
        Fresh scikit-learn estimators. Each standardizes the target and puts its
        predictions back into the target's units.

    Examples
    --------
    >>> len(default_regressors())
    5
    """
    seed = {"random_state": random_state}
    models = {
        "ridge": Ridge(),
        "decision_tree": DecisionTreeRegressor(max_depth=10, **seed),
        "random_forest": RandomForestRegressor(
            100, max_depth=12, max_features=1 / 3, **seed
        ),
        "hist_gradient_boosting": HistGradientBoostingRegressor(**seed),
        "mlp": MLPRegressor(
            hidden_layer_sizes=(64,), early_stopping=True, max_iter=30, **seed
        ),
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
    classifiers: Mapping[str, BaseEstimator] | None = None,
    task: str = "auto",
    n_repeats: int = 1,
    n_rows: int | None = 20_000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Train on synthetic rows and on real ones, test both on other real rows.

    How far the scores of models trained on `synthetic` fall behind those of the same
    models trained on `real_train` is what the synthetic table costs its user.

    Parameters
    ----------
    real_train : DataFrame of shape (n_real, p) or None
        The real rows behind the synthetic table. None: train on `synthetic` alone.
    real_test : DataFrame of shape (n_test, p)
        Real rows that neither training table was made from. Their dtypes decide which
        columns are numbers.
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
        "auto" is a regression where `target` has in `real_test` a float dtype, or an
        integer one with more than 20 distinct values; else a classification, whose
        classes are the distinct values, whatever their dtype.
    n_repeats : int, default=1
        How often to draw rows and train, >= 1.
    n_rows : int, optional
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
        the rarer class where `real_test` has two, else one-versus-rest averages over
        the classes present in `real_test`. Regression: ``r2`` (at most 1, negative
        where the mean of `real_test` predicts better), and ``rmse`` and ``mae`` in
        units of the target.

    Raises
    ------
    TypeError
        When a table is not a DataFrame.
    ValueError
        When the columns of the tables differ; `target` is not one of them or the only
        one; a column holds numbers in one table and strings in another;
        `real_test` has fewer than two classes or values of the target; a training table
        has no row with a target, no class with two rows, or no class that `real_test`
        has; a parameter is out of its range; or a model does not suit the task or
        fails, in which case the message names it and the table.

    Warns
    -----
    UserWarning
        Where fewer than 50 rows are trained on: the scores are then mostly noise.

    See Also
    --------
    make_synthesis_scorer : The same comparison as a score for a search.

    Notes
    -----
    Features that are numbers by their dtype in `real_test` get median imputation
    (infinite values count as missing) and standard scaling; all others one indicator
    per level, with missing as a level, levels of fewer than 5 training rows and those
    beyond the 99 most frequent pooled, and unknown levels ignored. All of it is fitted
    on the training rows. No column is left out: one without any value in training is a
    constant. A scaled value is cut at 1e15 standard deviations.

    A class with fewer than 2 training rows counts as absent, and an absent class gets
    probability zero, so a synthesizer that loses a class pays for it in every score.
    Where one class or one value of the target is left, or no feature varies, every row
    is predicted the shares of the classes, or the mean, in training. Early stopping is
    switched off where a tenth of the training rows could not hold every class.

    Repeats tell the spread that comes from the draw of rows and from the models' seeds,
    not the one that comes from fitting the synthesizer again: for that, compare tables
    of several fits. Where all rows are used, models without a seed do not vary.

    None of it is private: the scores describe real rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> real = pd.DataFrame({"x": rng.normal(size=300), "z": rng.normal(size=300)})
    >>> real["y"] = real["x"] + rng.normal(size=300) > 0
    >>> train, test = real[:200], real[200:]
    >>> shuffled = train.assign(x=rng.permutation(train["x"]))
    >>> models = {"tree": DecisionTreeClassifier(max_depth=2), "bayes": GaussianNB()}
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
    _check_numbers(n_repeats, n_rows, random_state)
    tables = {"synthetic": aligned(real_test, synthetic, ("real_test", "synthetic"))}
    if real_train is not None:
        tables["real"] = aligned(real_test, real_train, ("real_test", "real_train"))
    chosen = _choose_task(real_test, target, task)
    models = chosen.models(random_state) if classifiers is None else classifiers
    _check_models(models, chosen, real_test[target])
    real_test = _with_target(real_test, target, chosen)
    tables = {on: _with_target(frame, target, chosen) for on, frame in tables.items()}
    rows = []
    for repeat, trained_on in product(range(n_repeats), tables):
        drawn = _draw_rows(tables[trained_on], n_rows, random_state + repeat)
        split = _split(drawn, real_test, target, chosen, trained_on)
        if repeat == 0:
            _warn_of_few_rows(len(split.y_train), trained_on)
        scores = Parallel(n_jobs=n_jobs)(
            delayed(_fit_and_score)(name, model, split, chosen, trained_on, repeat)
            for name, model in models.items()
        )
        rows += [
            {"model": name, "trained_on": trained_on, "repeat": repeat, **each}
            for name, each in zip(models, scores, strict=True)
        ]
    return pd.DataFrame(rows)


# What the two tasks do differently ----------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """How a task reads targets, and trains and scores models."""

    name: str
    has_classes: bool
    values: str
    least_rows: str
    models: Callable[[int], Mapping[str, BaseEstimator]]
    suits: Callable[[Any], bool]
    has_target: Callable[[pd.Series], np.ndarray]
    read: Callable[[pd.Series, pd.Series], tuple[np.ndarray, np.ndarray, np.ndarray]]
    baseline: BaseEstimator
    score: Callable[[Any, np.ndarray, np.ndarray], dict[str, float]]


def _is_present(column: pd.Series) -> np.ndarray:
    return column.notna().to_numpy()


def _is_finite(column: pd.Series) -> np.ndarray:
    return np.isfinite(as_floats(column))


def _read_classes(
    test: pd.Series, train: pd.Series
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number the classes alike; keep training rows of classes large enough to learn."""
    (y_test, y_train), levels = comparable_codes(test, train)
    common = np.bincount(y_train, minlength=len(levels)) >= MIN_CLASS_COUNT
    return y_test, y_train, common[y_train]


def _read_numbers(
    test: pd.Series, train: pd.Series
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return as_floats(test), as_floats(train), np.ones(len(train), dtype=bool)


def _score_classes(
    fitted: Any, x_test: np.ndarray, y_test: np.ndarray
) -> dict[str, float]:
    n_classes = 1 + max(fitted.classes_.max(), y_test.max())
    # Zero for classes absent from training.
    probabilities = np.zeros((len(x_test), n_classes))
    probabilities[:, fitted.classes_] = fitted.predict_proba(x_test)
    present, counts = np.unique(y_test, return_counts=True)
    positives = [present[counts.argmin()]] if len(present) == 2 else present
    one_vs_rest = [(y_test == label, probabilities[:, label]) for label in positives]
    predicted = probabilities.argmax(axis=1)
    macro_f1 = f1_score(
        y_test, predicted, labels=present, average="macro", zero_division=0
    )
    aurocs = [roc_auc_score(*pair) for pair in one_vs_rest]
    precisions = [average_precision_score(*pair) for pair in one_vs_rest]
    return {
        "macro_f1": float(macro_f1),
        "auroc": float(np.mean(aurocs)),
        "average_precision": float(np.mean(precisions)),
    }


def _score_numbers(
    fitted: Any, x_test: np.ndarray, y_test: np.ndarray
) -> dict[str, float]:
    predicted = fitted.predict(x_test)
    return {
        "r2": float(r2_score(y_test, predicted)),
        "rmse": float(root_mean_squared_error(y_test, predicted)),
        "mae": float(mean_absolute_error(y_test, predicted)),
    }


_CLASSIFICATION = _Task(
    name="classification",
    has_classes=True,
    values="classes",
    least_rows=f"{MIN_CLASS_COUNT} training rows of some class",
    models=default_classifiers,
    suits=is_classifier,
    has_target=_is_present,
    read=_read_classes,
    baseline=DummyClassifier(strategy="prior"),
    score=_score_classes,
)
_REGRESSION = _Task(
    name="regression",
    has_classes=False,
    values="values",
    least_rows="training rows with a finite target",
    models=default_regressors,
    suits=is_regressor,
    has_target=_is_finite,
    read=_read_numbers,
    baseline=DummyRegressor(),
    score=_score_numbers,
)


# Checks -------------------------------------------------------------------------------


def _check_numbers(n_repeats: Any, n_rows: Any, random_state: Any) -> None:
    rule: Any = {"closed": "left", "integer": True}
    check_number("tstr", "n_repeats", n_repeats, low=1, **rule)
    check_number("tstr", "n_rows", n_rows, low=1, also=(None,), **rule)
    check_number("tstr", "random_state", random_state, low=0, **rule)


def _choose_task(real_test: pd.DataFrame, target: Hashable, task: str) -> _Task:
    """Check target and task against the test table; settle "auto"."""
    check_option("tstr", "task", task, TASKS)
    if target not in real_test.columns:
        raise ValueError(
            f"target must be one of {list(real_test.columns)}; got {target!r}."
        )
    if real_test.shape[1] < 2:
        raise ValueError(f"target {target!r} is the only column: nothing predicts it.")
    column = real_test[target]
    if task == "regression" and not is_number(column):
        raise ValueError(
            f"task='regression' needs a target of numbers; {target!r} has dtype "
            f"{column.dtype} in real_test."
        )
    if task == "auto":
        return _REGRESSION if _is_quantity(column) else _CLASSIFICATION
    return _CLASSIFICATION if task == "classification" else _REGRESSION


def _is_quantity(column: pd.Series) -> bool:
    if pd.api.types.is_integer_dtype(column):
        return column.nunique() > MAX_CLASSES_OF_INTEGERS
    return pd.api.types.is_float_dtype(column)


def _check_models(
    models: Mapping[str, BaseEstimator], task: _Task, target: pd.Series
) -> None:
    if not models:
        raise ValueError("classifiers must hold at least one model, or be None.")
    for name, model in models.items():
        if not task.suits(model):
            raise ValueError(
                f"classifiers[{name!r}] is a {type(model).__name__}, which does not "
                f"suit the task: a {task.name} of target {target.name!r} (dtype "
                f"{target.dtype}). Pass `task` where the other one is meant."
            )


def _check_targets(
    y_test: np.ndarray,
    y_train: np.ndarray,
    target: Hashable,
    task: _Task,
    trained_on: str,
) -> None:
    """Refuse targets that nothing can be learned from, or nothing scored on."""
    n_distinct = len(np.unique(y_test))
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
    if task.has_classes and not np.isin(y_train, y_test).any():
        raise ValueError(
            f"No class of target {target!r} in the {trained_on} training rows occurs "
            "in real_test: are they written alike?"
        )


def _warn_of_few_rows(n_rows: int, trained_on: str) -> None:
    if n_rows < MIN_ROWS:
        warnings.warn(
            f"tstr trains on {n_rows} {trained_on} rows; with fewer than "
            f"{MIN_ROWS} the scores are mostly noise.",
            stacklevel=4,
        )


# Rows and features --------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """Encoded rows of a training table and of the test table."""

    x_train: np.ndarray
    y_train: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def _with_target(frame: pd.DataFrame, target: Hashable, task: _Task) -> pd.DataFrame:
    return frame[task.has_target(frame[target])]


def _draw_rows(
    frame: pd.DataFrame, n_rows: int | None, random_state: int
) -> pd.DataFrame:
    if n_rows is None or n_rows >= len(frame):
        return frame
    return frame.sample(n_rows, random_state=random_state)


def _split(
    train: pd.DataFrame,
    test: pd.DataFrame,
    target: Hashable,
    task: _Task,
    trained_on: str,
) -> _Split:
    """Check the targets, leave out what cannot be learned, encode the rest."""
    y_test, y_train, kept = task.read(test[target], train[target])
    _check_targets(y_test, y_train[kept], target, task, trained_on)
    x_train, x_test = _encode(train[kept], test, target)
    return _Split(x_train, y_train[kept], x_test, y_test)


def _encode(
    train: pd.DataFrame, test: pd.DataFrame, target: Hashable
) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features of both tables, fitted on the training table."""
    numeric, nominal, columns = [], [], []
    for position, name in enumerate(test.columns.drop(target)):
        pair = test[name], train[name]
        if is_number(test[name]):
            numeric.append(position)
            columns.append([_finite(as_floats(column)) for column in pair])
        else:
            nominal.append(position)
            columns.append(comparable_codes(*pair)[0])
    raw_test, raw_train = map(np.column_stack, zip(*columns, strict=True))
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    indicators = OneHotEncoder(
        handle_unknown="ignore", min_frequency=MIN_LEVEL_COUNT,
        max_categories=MAX_INDICATORS, sparse_output=False,
    )  # fmt: skip
    encoder = make_column_transformer(
        (make_pipeline(imputer, StandardScaler()), numeric), (indicators, nominal)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")
        encoded = encoder.fit_transform(raw_train), encoder.transform(raw_test)
    x_train, x_test = (np.clip(x, -LARGEST_SCALED, LARGEST_SCALED) for x in encoded)
    return x_train, x_test


def _finite(values: np.ndarray) -> np.ndarray:
    cut = np.clip(values, -LARGEST_RAW, LARGEST_RAW)
    return np.where(np.isfinite(values), cut, np.nan)


# Models -------------------------------------------------------------------------------


def _fit_and_score(
    name: str,
    model: BaseEstimator,
    split: _Split,
    task: _Task,
    trained_on: str,
    repeat: int,
) -> dict[str, float]:
    x_train, y_train = split.x_train, split.y_train
    if (y_train == y_train[0]).all() or (x_train == x_train[0]).all():
        model = task.baseline
    model = _prepared(model, split, task, repeat)
    # One thread each: the same scores on any machine, and small loops run faster so.
    with threadpool_limits(1), warnings.catch_warnings():
        # Short training and collinear indicators are part of the comparison.
        warnings.simplefilter("ignore")
        try:
            model.fit(x_train, y_train)
            return task.score(model, split.x_test, split.y_test)
        except ValueError as error:
            raise ValueError(
                f"{name!r} failed on the {len(x_train)} {trained_on} training rows: "
                f"{error}"
            ) from error


def _prepared(model: Any, split: _Split, task: _Task, repeat: int) -> Any:
    """Clone a model, shift its seeds, and make its early stopping possible."""
    model = clone(model)
    changes: dict[str, Any] = {}
    for name, value in model.get_params().items():
        last = name.rpartition("__")[-1]
        if last == "random_state" and isinstance(value, numbers.Integral):
            changes[name] = value + repeat
        elif last == "early_stopping" and value is True and not _can_stop(split, task):
            changes[name] = False
    return model.set_params(**changes)


def _can_stop(split: _Split, task: _Task) -> bool:
    """Whether the rows that scikit-learn holds out by default can be scored."""
    n_classes = len(np.unique(split.y_train)) if task.has_classes else 0
    return math.ceil(len(split.y_train) * EARLY_STOPPING_SHARE) >= max(2, n_classes)


# Scores for a search ------------------------------------------------------------------


def make_synthesis_scorer(
    metric: str = "tvd",
    *,
    k: int = 2,
    target: Hashable = None,
    classifiers: Mapping[str, BaseEstimator] | None = None,
    task: str = "auto",
    n_samples: int | None = None,
    random_state: int = 0,
) -> SynthesisScorer:
    """Make a scikit-learn scorer of synthesizers out of a metric of this package.

    The scorer draws rows from a fitted synthesizer and compares them with the rows
    held out. Use it as ``scoring`` of `GridSearchCV`, `cross_val_score` and the like.

    .. warning::
       A score is not covered by any privacy guarantee: it is read off the held-out
       rows without noise. And a search spends one budget per fit, that is, candidates
       x folds of them, and one more for the refit. Search on rows that are public, and
       fit the private ones once.

    Parameters
    ----------
    metric : {"tvd", "kendall", "tstr"}, default="tvd"
        "tvd" is minus the mean of `marginal_distance` for `k`, in [-1, 0]; "kendall"
        minus the RMSE of `kendall_tau_distance`, in [-2, 0]; "tstr" the mean over
        models of the AUROC, in [0, 1], or of R2, at most 1, of `tstr`. Higher is
        better for all of them.
    k : int, default=2
        For "tvd": size of the sets of columns, at least 1.
    target : hashable, optional
        For "tstr": the column to predict. None: the column of y.
    classifiers : mapping of str to estimator, optional
        For "tstr": models to train, as in `tstr`. One or two quick ones will often do.
    task : {"auto", "classification", "regression"}, default="auto"
        For "tstr": as in `tstr`. "auto" looks at each fold: state it for an integer
        target with about 20 distinct values.
    n_samples : int, optional
        Rows to draw, at least 1. None: as many as are held out. With more the score
        varies less.
    random_state : int, default=0
        Seed, >= 0, handed to `sample` and to the metric.

    Returns
    -------
    SynthesisScorer
        ``scorer(estimator, X, y=None)`` returns a float. It can be pickled where the
        classifiers can.

    Raises
    ------
    ValueError
        When a parameter is out of its range. The scorer itself raises what the metric
        raises, which `GridSearchCV` turns into `error_score`.

    See Also
    --------
    marginal_distance, kendall_tau_distance, tstr : The metrics.

    Notes
    -----
    The estimator, or the last step of a `Pipeline`, must have
    ``sample(n_samples, random_state=...)`` that returns a table like X, or ``(X, y)``
    where y is given; then y is one more column in the comparison. The other steps of a
    pipeline transform the held-out rows before. Arrays are read as frames with columns
    ``x0``, ``x1``, ..., and an unnamed y as column ``target``.

    Examples
    --------
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
        rule: Any = {"closed": "left", "integer": True}
        check_option(owner, "metric", self.metric, METRICS)
        check_option(owner, "task", self.task, TASKS)
        check_number(owner, "k", self.k, low=1, **rule)
        check_number(owner, "n_samples", self.n_samples, low=1, also=(None,), **rule)
        check_number(owner, "random_state", self.random_state, low=0, **rule)

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
            X, estimator = _last_step(estimator, X)
        real, layout = as_table("make_synthesis_scorer", X, y)
        synthetic = self._draw(estimator, len(real), layout.y_name)
        if self.metric == "tvd":
            distance = marginal_distance(
                real,
                synthetic,
                self.k,
                references=False,
                random_state=self.random_state,
            )
            return -distance.mean
        if self.metric == "kendall":
            return -kendall_tau_distance(real, synthetic).rmse
        target = layout.y_name if self.target is None else self.target
        return self._utility(real, synthetic, target)

    def _draw(self, estimator: Any, n_rows: int, y_name: Hashable) -> pd.DataFrame:
        """Return drawn rows as one table, with the column of y called `y_name`."""
        n_samples = n_rows if self.n_samples is None else self.n_samples
        drawn = estimator.sample(n_samples, random_state=self.random_state)
        pair = drawn if isinstance(drawn, tuple) else (drawn,)
        wanted = "X" if y_name is None else "(X, y)"
        if len(pair) != wanted.count(",") + 1:
            raise ValueError(
                f"make_synthesis_scorer needs an estimator whose `sample` returns "
                f"{wanted}, like the rows held out; {type(estimator).__name__} "
                f"returned {len(pair)} object(s)."
            )
        frame, layout = as_table("make_synthesis_scorer", *pair)
        return frame.rename(columns={layout.y_name: y_name})

    def _utility(
        self, real: pd.DataFrame, synthetic: pd.DataFrame, target: Hashable
    ) -> float:
        if target is None:
            raise ValueError(
                "make_synthesis_scorer('tstr') needs `target`, the column to predict, "
                "or rows with y."
            )
        scores = tstr(
            None,
            real,
            synthetic,
            target,
            classifiers=self.classifiers,
            task=self.task,
            random_state=self.random_state,
        )
        headline = "auroc" if "auroc" in scores else "r2"
        return float(scores[headline].mean())


def _last_step(pipeline: Pipeline, X: Any) -> tuple[Any, Any]:
    """Return rows as the last step of a fitted pipeline sees them, and that step."""
    return pipeline[:-1].transform(X) if len(pipeline) > 1 else X, pipeline[-1]
