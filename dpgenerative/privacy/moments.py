"""Moments of labelled arrays: counts, means and second moments of every class.

An array comes as its coefficients q in an orthonormal basis, measured from the middle
of the range, so that its norm is at most R, which is public.

Formal guarantee: the first release sums, by class, ``(1, q / R)``, and over all classes
``|q|^2 / R^2``. A row is in one class at most and moves this by sqrt(3): three parts of
norm at most 1. The second sums, by class, the second moments of ``r = (q - m) / s``,
cut to norm 1: all products among the first d coefficients, those of two different ones
once and times sqrt(2), and the squares of the others. Their norm is at most ``|r|^2 <=
1``: that is how far a row moves them. What is not finite counts as 0. The centre m of
a class and the scale s are made of the first release, and the noise of both is fixed
before it, so that they compose as Gaussian mechanisms of adaptively chosen sums do.
"""

import math

import numpy as np

from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.tables.rows import Chunks

MOMENTS = Release(
    "moments", "counts, means and second moments of every class ({noise})", "rows"
)
MEAN_SHARE = 0.15
"""Share of the moments' budget that counts and means get."""
MEAN_SENSITIVITY = math.sqrt(3)

Chunk = tuple[np.ndarray, np.ndarray]
"""Coefficients (n, D) of some rows, and their classes (n,), -1 for none."""


def multipliers(plan: PrivacyPlan) -> tuple[float, float]:
    """Return the noise multipliers of counts and means, and of second moments."""
    z = plan.multiplier(MOMENTS)
    return z / math.sqrt(MEAN_SHARE), z / math.sqrt(1 - MEAN_SHARE)


def release_means(
    chunks: Chunks[Chunk],
    shape: tuple[int, int],
    radius: float,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> tuple[np.ndarray, float, float]:
    """Release counts and sums by class, and the sum of squares of all.

    Parameters
    ----------
    chunks : Chunks
        All rows.
    shape : tuple of int
        Number of classes, and of coefficients.
    radius : float
        R.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    sums : ndarray of shape (n_classes, 1 + n_coefficients)
        Of ``(1, q / R)``.
    squares : float
        Sum of ``|q|^2 / R^2``.
    std : float
        Standard deviation of the noise of each of them.
    """
    n_classes, width = shape

    def sums(chunk: Chunk) -> np.ndarray:
        q = _cut(chunk[0] / radius)
        member = (chunk[1][:, None] == np.arange(n_classes)).astype(float)
        parts = np.column_stack([member.sum(0), member.T @ q])
        return np.append(parts, np.square(q).sum(1) @ member.sum(1))

    std = multipliers(plan)[0] * MEAN_SENSITIVITY
    noisy = mechanisms.gaussian(
        chunks.total(sums), std, release=MOMENTS.name, sensitivity=MEAN_SENSITIVITY
    )
    return noisy[:-1].reshape(n_classes, 1 + width), float(noisy[-1]), std


def release_seconds(
    chunks: Chunks[Chunk],
    centres: np.ndarray,
    scale: float,
    d: int,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Release second moments by class, about centres that are released.

    Parameters
    ----------
    chunks : Chunks
        All rows.
    centres : ndarray of shape (n_classes, n_coefficients)
    scale : float
        Distance from the centre to which rows are cut.
    d : int
        Number of coefficients of which products are summed.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    products : ndarray of shape (n_classes, d, d)
        Symmetric.
    squares : ndarray of shape (n_classes, n_coefficients - d)
        Of the other coefficients.
    std : float
        Standard deviation of the noise of a square; of a product, that over sqrt(2).
    """
    n_classes, width = centres.shape
    i, j = np.tril_indices(d)
    weights = np.where(i == j, 1.0, math.sqrt(2))
    factors = np.append(weights, np.ones(width - d))

    def sums(chunk: Chunk) -> np.ndarray:
        parts = []
        for k, centre in enumerate(centres):
            r = _cut((chunk[0][chunk[1] == k] - centre) / scale)
            products = r[:, :d].T @ r[:, :d]
            parts.append(np.append(products[i, j], np.square(r[:, d:]).sum(0)))
        return np.stack(parts)

    std = multipliers(plan)[1]
    values = chunks.total(sums).map(lambda sums: sums * factors)
    noisy = mechanisms.gaussian(values, std, release=MOMENTS.name, sensitivity=1.0)
    products = np.empty((n_classes, d, d))
    products[:, i, j] = products[:, j, i] = noisy[:, : len(i)] / weights
    return products, noisy[:, len(i) :], std


def _cut(x: np.ndarray) -> np.ndarray:
    """Return rows cut to norm 1; zero where one is not finite."""
    with np.errstate(all="ignore"):
        norm = np.linalg.norm(x, axis=1, keepdims=True)
        inside: np.ndarray = np.where(np.isfinite(norm), x / np.maximum(norm, 1), 0.0)
    return inside
