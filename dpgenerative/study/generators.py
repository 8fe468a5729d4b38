"""A common interface to generators of labelled tables and labelled arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils import get_tags

Rows = Any  # DataFrame, or array of shape (n, ...)
Labelled = tuple[Rows, np.ndarray]
"""Rows, and the class index of each row's label."""


def take(rows: Rows, places: np.ndarray) -> Rows:
    """Return some of the rows."""
    return rows.iloc[places] if isinstance(rows, pd.DataFrame) else rows[places]


class TableGenerator:
    """An estimator of tables in which the label is one of the columns.

    Attributes
    ----------
    models : list of estimator
        The estimator alone.
    classes : sequence of str
    target : str
        Name of that column.
    """

    def __init__(self, estimator: Any, classes: Sequence[str], target: str) -> None:
        self.models, self.classes, self.target = [estimator], classes, target

    def labelled(self, rows: Labelled) -> pd.DataFrame:
        """Return rows with their labels as a column."""
        labels = pd.Categorical.from_codes(rows[1], categories=self.classes)
        return rows[0].assign(**{self.target: labels})

    def fit(self, rows: Labelled) -> None:
        """Fit the estimator to labelled rows."""
        self.models[0].fit(self.labelled(rows))

    def sample(self, n: int, seed: int) -> Labelled:
        """Draw labelled rows, without those whose label is none of the classes."""
        rows = self.models[0].sample(n, random_state=seed)
        codes = pd.Index(self.classes).get_indexer(rows.pop(self.target))
        return rows[codes >= 0], codes[codes >= 0]

    def reconstruct(self, rows: Rows, codes: Any, rng: np.random.Generator) -> Rows:
        """Reconstruct labelled rows from posterior draws."""
        return self.models[0].reconstruct(rows, random_state=rng, sampled=True)


class ClassGenerator:
    """Estimators of arrays, one for each class.

    Every record enters one fit, so that all fits together cost it no more than its own.
    Labels are drawn by the row counts that private fits released, or else evenly: no
    exact count of a class is used.

    Attributes
    ----------
    models : list of estimator
        In the order of the classes.
    """

    def __init__(self, estimator: Any, n_classes: int) -> None:
        self.models = [clone(estimator) for _ in range(n_classes)]

    def fit(self, rows: Labelled) -> None:
        """Fit one estimator per class."""
        for label, model in enumerate(self.models):
            model.fit(rows[0][rows[1] == label])

    def sample(self, n: int, seed: int) -> Labelled:
        """Draw labelled rows."""
        reports = [getattr(model, "privacy_", None) for model in self.models]
        counts = np.array([1 if r is None else max(r.plan.n_rows, 1) for r in reports])
        draw = np.random.default_rng(seed).choice
        labels = np.sort(draw(len(counts), n, p=counts / counts.sum()))
        drawn, sizes = np.unique(labels, return_counts=True)
        parts = [
            self.models[label].sample(int(size), random_state=seed)
            for label, size in zip(drawn, sizes, strict=True)
        ]
        return np.concatenate(parts), labels

    def reconstruct(
        self, rows: Rows, codes: np.ndarray, rng: np.random.Generator
    ) -> Rows:
        """Reconstruct rows from posterior draws, by the models of their classes."""
        out = np.empty_like(rows)
        for label in np.unique(codes):
            chosen, own = codes == label, self.models[label]
            out[chosen] = own.reconstruct(rows[chosen], random_state=rng, sampled=True)
        return out


class LabelledGenerator:
    """An estimator of arrays that takes their labels, by its parameter `classes`.

    Attributes
    ----------
    models : list of estimator
        The estimator alone.
    labels : ndarray
        What it calls the classes.
    """

    def __init__(self, estimator: Any, classes: Sequence[str]) -> None:
        called = {str(label): label for label in estimator.classes}
        self.models = [estimator]
        self.labels = np.array([called.get(name, name) for name in classes])

    def fit(self, rows: Labelled) -> None:
        """Fit the estimator to labelled rows."""
        self.models[0].fit(rows[0], self.labels[rows[1]])

    def sample(self, n: int, seed: int) -> Labelled:
        """Draw labelled rows."""
        X, y = self.models[0].sample(n, random_state=seed)
        return X, pd.Index(self.labels).get_indexer(y)

    def reconstruct(
        self, rows: Rows, codes: np.ndarray, rng: np.random.Generator
    ) -> Rows:
        """Reconstruct rows from posterior draws, given their labels."""
        return self.models[0].reconstruct(rows, self.labels[codes], rng, sampled=True)


Generator = TableGenerator | ClassGenerator | LabelledGenerator

ATTACKS = {
    "reconstruction": "reconstruct",
    "likelihood": "score_samples",
    "monte_carlo": "sample",
}
"""Attacks, and the method that each of them needs."""


def shaped(estimator: Any, rows: Rows) -> Rows:
    """Return arrays as an estimator takes them: flat, or with axes by its tags."""
    if np.ndim(rows) < 3 or get_tags(estimator).input_tags.three_d_array:
        return rows
    return rows.reshape(len(rows), -1)


def seeded(estimator: Any, seed: int, **changes: Any) -> Any:
    """Return a clone with this seed, and those changes that it has parameters for."""
    # A study releases nothing: its noise may be drawn again.
    changes |= {"random_state": seed, "noise": "reproducible"}
    copy, names = clone(estimator), estimator.get_params()
    return copy.set_params(**{k: v for k, v in changes.items() if k in names})
