"""Train on synthetic rows, test on real ones."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score
from sklearn.naive_bayes import BernoulliNB, GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from dpgenerative.metrics.fidelity import aligned, as_floats, is_number, level_codes

MIN_LEVEL_COUNT = 5  # levels with fewer training rows share one indicator
MIN_CLASS_COUNT = 2  # stratified early stopping cannot split a class of one row


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


def tstr(
    train: pd.DataFrame,
    test: pd.DataFrame,
    target: Hashable,
    *,
    classifiers: Mapping[str, ClassifierMixin] | None = None,
    n_rows: int | None = 20_000,
    random_state: int = 0,
    n_jobs: int | None = None,
) -> pd.DataFrame:
    """Score classifiers trained on one table, usually synthetic, on another, real one.

    Features that are numeric by their dtype in `test` get median imputation and
    standard scaling; all others one indicator per level, with missing as a level,
    levels of fewer than 5 training rows pooled and unknown levels ignored. All of it
    is fitted on the training rows. The mean over classifiers is
    ``tstr(...).mean(numeric_only=True)``, the best one ``tstr(...).max(...)``.

    Parameters
    ----------
    train, test : DataFrame of shape (n_train, p) and (n_test, p)
        Same columns, in any order.
    target : hashable
        The column to predict, read as classes whatever its dtype. Rows without it are
        left out of both tables.
    classifiers : mapping of str to classifier, optional
        Anything with `fit` and `predict_proba`; cloned, not changed. None: the nine of
        `default_classifiers`.
    n_rows : int, optional
        Train on this many rows, drawn without replacement; None, or a number beyond
        the table's, for all.
    random_state : int, default=0
        Seed of that draw and of the default classifiers.
    n_jobs : int, optional
        Classifiers trained at the same time, as in joblib; each on one thread.

    Returns
    -------
    DataFrame
        One row per classifier, with columns ``classifier``, ``macro_f1`` (over the
        classes present in `test`), ``auroc`` and ``average_precision``: those of the
        rarer class where `test` has two, else one-versus-rest averages over the classes
        present in `test`.

    Raises
    ------
    ValueError
        When the columns of the tables differ, `target` is not one of them or the only
        one, a table has no row with a target, or `test` holds fewer than two classes.

    Notes
    -----
    A class with fewer than 2 rows in `train` counts as absent from it, and an absent
    class gets probability zero, so a synthesizer that loses a class pays for it in
    every score. Where one class is left, or no feature varies, every row is predicted
    the shares of the classes in `train`.
    """
    train = aligned(test, train, ("test", "train"))
    _check_target(test, target)
    train = _draw_rows(train.dropna(subset=[target]), n_rows, random_state)
    test = test.dropna(subset=[target])
    (y_test, y_train), levels = level_codes(test[target], train[target])
    common = np.bincount(y_train, minlength=len(levels)) >= MIN_CLASS_COUNT
    kept = common[y_train]
    if not kept.any() or len(np.unique(y_test)) < 2:
        raise ValueError(
            f"tstr needs {MIN_CLASS_COUNT} training rows of some class and two classes "
            f"in test; target {target!r} has {len(train)} training rows and "
            f"{len(np.unique(y_test))} classes in test."
        )
    x_train, x_test = _encode(train[kept], test, target)
    if classifiers is None:
        classifiers = default_classifiers(random_state)
    probabilities = Parallel(n_jobs=n_jobs)(
        delayed(_probabilities)(model, x_train, y_train[kept], x_test, len(levels))
        for model in classifiers.values()
    )
    rows = [
        {"classifier": name, **_scores(y_test, each)}
        for name, each in zip(classifiers, probabilities, strict=True)
    ]
    return pd.DataFrame(rows)


def _check_target(test: pd.DataFrame, target: Hashable) -> None:
    if target not in test.columns:
        raise ValueError(f"target must be one of {list(test.columns)}; got {target!r}.")
    if test.shape[1] < 2:
        raise ValueError(f"target {target!r} is the only column: nothing predicts it.")


def _draw_rows(
    frame: pd.DataFrame, n_rows: int | None, random_state: int
) -> pd.DataFrame:
    if n_rows is None or n_rows >= len(frame):
        return frame
    return frame.sample(n_rows, random_state=random_state)


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
            columns.append(level_codes(*pair)[0])
    raw_test, raw_train = map(np.column_stack, zip(*columns, strict=True))
    imputer = SimpleImputer(strategy="median", keep_empty_features=True)
    indicators = OneHotEncoder(
        handle_unknown="ignore", min_frequency=MIN_LEVEL_COUNT, sparse_output=False
    )
    encoder = make_column_transformer(
        (make_pipeline(imputer, StandardScaler()), numeric), (indicators, nominal)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Found unknown categories")
        return encoder.fit_transform(raw_train), encoder.transform(raw_test)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


def _probabilities(
    classifier: Any,
    x_train: np.ndarray,
    y_train: np.ndarray,
    x_test: np.ndarray,
    n_classes: int,
) -> np.ndarray:
    """Fit a clone; return test probabilities, zero for classes absent from training."""
    if len(np.unique(y_train)) == 1 or (x_train == x_train[0]).all():
        classifier = DummyClassifier(strategy="prior")
    model = clone(classifier)
    probabilities = np.zeros((len(x_test), n_classes))
    # One thread each: the same scores on any machine, and small loops run faster so.
    with threadpool_limits(1), warnings.catch_warnings():
        # Short training and collinear indicators are part of the comparison.
        warnings.simplefilter("ignore")
        fitted = model.fit(x_train, y_train)
        probabilities[:, fitted.classes_] = fitted.predict_proba(x_test)
    return probabilities


def _scores(y_test: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    present, counts = np.unique(y_test, return_counts=True)
    positives = [present[counts.argmin()]] if len(present) == 2 else present
    one_vs_rest = [(y_test == label, probabilities[:, label]) for label in positives]
    predicted = probabilities.argmax(axis=1)
    macro_f1 = f1_score(
        y_test, predicted, labels=present, average="macro", zero_division=0
    )
    return {
        "macro_f1": float(macro_f1),
        "auroc": float(np.mean([roc_auc_score(*pair) for pair in one_vs_rest])),
        "average_precision": float(
            np.mean([average_precision_score(*pair) for pair in one_vs_rest])
        ),
    }
