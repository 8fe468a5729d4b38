"""Labelled arrays: their encoding, and one Gaussian per class from released moments.

Arrays are transformed to the cosines of every channel, slow ones first: a basis that is
public. What is computed of the releases of `privacy.moments` is processing.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy.fft import dctn, idctn

from dpgenerative.encoding.pixels import Images, Pixels
from dpgenerative.privacy import moments
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.tables.arrow import decode_series, in_pandas
from dpgenerative.tables.containers import plain
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Chunks

FREQUENCIES = 256
"""Most coefficients of which products are released."""
MOST_LATENTS = 128
"""Most principal components, unless more are asked for."""
CHUNK = 4096
LEAST_VARIANCE = 0.01
"""Least variance of a class along a component, that of all classes being 1."""


@dataclass(frozen=True)
class Frequencies:
    """Cosines of every channel, orthonormal, in ascending order of frequency.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width.
    """

    shape: tuple[int, int, int]

    @property
    def order(self) -> np.ndarray:
        """Places of the coefficients, slow ones first."""
        _, y, x = np.indices(self.shape)
        speed = (y / self.shape[1]) ** 2 + (x / self.shape[2]) ** 2
        return np.argsort(speed, axis=None, kind="stable")

    def of(self, arrays: np.ndarray) -> np.ndarray:
        """Return the coefficients (n, D) of arrays (n, D)."""
        waves = dctn(arrays.reshape(-1, *self.shape), axes=(2, 3), norm="ortho")
        return waves.reshape(arrays.shape)[:, self.order]

    def back(self, coefficients: np.ndarray) -> np.ndarray:
        """Return arrays (n, D) of coefficients (n, D)."""
        waves = np.empty_like(coefficients)
        waves[:, self.order] = coefficients
        arrays = idctn(waves.reshape(-1, *self.shape), axes=(2, 3), norm="ortho")
        return arrays.reshape(waves.shape)


@dataclass(frozen=True, eq=False)
class ClassGaussians:
    """What was released of every class: ``x = mean + components^T z + texture``.

    Attributes
    ----------
    shares : ndarray of shape (n_classes,)
        They add up to 1.
    means : ndarray of shape (n_classes, D)
    components : ndarray of shape (k, D)
        Principal components of the distances from the means, as long as their standard
        deviations.
    roots : ndarray of shape (n_classes, k, k)
        Cholesky factors of the covariances of z; their mean over rows is about I.
    texture : ndarray of shape (D,)
        Standard deviation of what components leave, by `Frequencies`.
    """

    shares: np.ndarray
    means: np.ndarray
    components: np.ndarray
    roots: np.ndarray
    texture: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelledImages(Images):
    """Private images and their labels.

    Attributes
    ----------
    labels : ndarray of shape (n,)
        Places in the list of classes, -1 for a label that is not there.
    """

    labels: np.ndarray


@dataclass(frozen=True, eq=False)
class LabelledPixels(Pixels):
    """The public facts about labelled images, and what was released of the classes.

    Attributes
    ----------
    gaussians : ClassGaussians
    """

    gaussians: ClassGaussians

    def encode(self, images: Images) -> np.ndarray:
        """Return what the model sees: pixels, and a 1 for the class, (n, D + m)."""
        assert isinstance(images, LabelledImages)
        member = images.labels[:, None] == np.arange(len(self.gaussians.shares))
        pixels = images.values.reshape(len(images), -1)
        return np.concatenate([pixels, member.astype(np.float32)], 1)


def codes(owner: str, y: Any, classes: Sequence[Hashable], n: int | None) -> np.ndarray:
    """Return the places of n labels in the list of classes; -1 where one is not there.

    Raises
    ------
    ValueError
        For anything but so many labels, and where the dtype is one of text and classes
        are not, or the other way round, or of times; whatever values they have.
    """
    y = in_pandas(owner, y)
    is_list = hasattr(y, "__len__") and getattr(y, "ndim", 1) == 1
    # A text would be read as letters, and a set in any order.
    is_list &= not isinstance(y, (str, bytes, Set, Mapping))
    if not is_list or not len(y) or n not in (None, len(y)):
        raise ValueError(
            f"{owner} takes one label for every array, of one or more: y, (n_samples,)."
        )
    kind = _kind(y)
    is_text = isinstance(classes[0], str)
    if kind in ("biufcmMN" if is_text else "SUmMN"):
        words = {"S": "text", "U": "text", "m": "times", "M": "times", "N": "records"}
        raise ValueError(
            f"{owner} takes labels of the type of its classes; got an array of "
            f"{words.get(kind, 'numbers')}."
        )
    if isinstance(getattr(y, "dtype", None), pd.api.extensions.ExtensionDtype):
        y = decode_series(pd.Series(y))
    places: dict[Any, int] = {label: k for k, label in enumerate(classes)}
    # As Python's own: methods of private objects may raise.
    return np.array([places.get(plain(label), -1) for label in y], np.int64)


def _kind(y: Any) -> str:
    """Return numpy's letter for the dtype of labels; N for values that hold others."""
    dtype = getattr(y, "dtype", None)
    if not isinstance(dtype, pd.ArrowDtype):
        return str(getattr(dtype, "kind", "O"))
    # Reading records, and times from a dictionary, may fail, by what they are.
    arrow = dtype.pyarrow_dtype
    arrow = arrow.value_type if pa.types.is_dictionary(arrow) else arrow
    return "N" if pa.types.is_nested(arrow) else str(pd.ArrowDtype(arrow).kind)


def release_gaussians(
    images: Private[LabelledImages],
    shape: tuple[int, int, int],
    n_classes: int,
    latent_dim: int | None,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> ClassGaussians:
    """Release the moments of every class; return Gaussians fitted to them.

    Parameters
    ----------
    images : Private of LabelledImages
    shape : tuple of int
        Channels, height and width.
    n_classes : int
    latent_dim : int, optional
        Number of components, `FREQUENCIES` at most; None keeps those whose variance
        exceeds what noise alone would show.
    plan : PrivacyPlan
    mechanisms : Mechanisms
    """
    basis = Frequencies(shape)
    chunks = Chunks(images.map(lambda images: partial(_chunks, images, basis)))
    width = math.prod(basis.shape)
    radius = math.sqrt(width) / 2
    sums, squares, std = moments.release_means(
        chunks, (n_classes, width), radius, plan, mechanisms
    )
    counts = np.maximum(sums[:, 0], max(1.0, std))
    shares = counts / counts.sum()
    centres = denoised(
        radius * sums[:, 1:] / counts[:, None], std * radius / counts, shares
    )
    means = np.clip(basis.back(centres) + 0.5, 0, 1)
    centres = basis.of(means - 0.5)
    spread = radius**2 * squares / counts.sum() - shares @ np.square(centres).sum(1)
    scale = math.sqrt(min(max(spread, 1e-4 * radius**2), radius**2))
    d = min(width, FREQUENCIES)
    products, squares_left, std = moments.release_seconds(
        chunks, centres, scale, d, plan, mechanisms
    )
    unit = scale**2 / counts
    components, roots, left = _factored(
        products * unit[:, None, None], std * unit / math.sqrt(2), shares, latent_dim
    )
    variances = np.concatenate([left, (shares * unit) @ squares_left])
    padded = np.pad(components, ((0, 0), (0, width - d)))
    texture = np.sqrt(np.maximum(variances, 0))
    return ClassGaussians(shares, means, basis.back(padded), roots, texture)


def _chunks(
    images: LabelledImages, basis: Frequencies
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for i in range(0, max(1, len(images)), CHUNK):
        part = images.values[i : i + CHUNK].astype(np.float64) - 0.5
        flat = part.reshape(len(part), math.prod(basis.shape))
        yield basis.of(flat), images.labels[i : i + CHUNK]


def denoised(values: np.ndarray, noise: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return statistics of classes, nearer to their mean the more of them is noise.

    Every entry's distance from the mean is multiplied by ``v / (v + s^2)``. Here s is
    the standard deviation of the noise of the class, and v the variance across classes
    less that of the noise.

    Parameters
    ----------
    values : ndarray of shape (n_classes, ...)
    noise : ndarray of shape (n_classes,)
    shares : ndarray of shape (n_classes,)
        They add up to 1.
    """
    free = 1 - np.square(shares).sum()
    if free <= 0:  # one class
        return values
    mean = np.tensordot(shares, values, 1)
    apart = values - mean
    across = np.tensordot(shares, np.square(apart), 1) / free
    v = np.maximum(across - shares @ noise**2, 0)
    s = (noise**2).reshape(-1, *[1] * mean.ndim)
    return mean + apart * (v / np.maximum(v + s, np.finfo(float).tiny))


def _factored(
    covariances: np.ndarray,
    noise: np.ndarray,
    shares: np.ndarray,
    latent_dim: int | None,
) -> tuple[np.ndarray, Any, np.ndarray]:
    """Return components of noisy covariances, roots by class, and variances left.

    `noise` holds the standard deviation of the noise of an entry, by class. That of
    their mean has eigenvalues up to 2 sqrt(d) times its own; larger ones are signal.
    """
    d = covariances.shape[1]
    pooled = np.tensordot(shares, covariances, 1)
    values, vectors = np.linalg.eigh(pooled)
    edge = 2 * math.sqrt(d) * math.sqrt(np.square(shares * noise).sum())
    if latent_dim is None:
        latent_dim = min(max(1, int((values > edge).sum())), MOST_LATENTS)
    values = np.maximum(values[::-1][:latent_dim], 1e-6)
    vectors = vectors[:, ::-1][:, :latent_dim]
    inside = denoised(vectors.T @ covariances @ vectors, noise, shares)
    inside /= np.sqrt(values)[:, None] * np.sqrt(values)
    own, turned = np.linalg.eigh(inside)
    own = np.maximum(own, LEAST_VARIANCE)
    roots = np.linalg.cholesky((turned * own[:, None]) @ turned.transpose(0, 2, 1))
    left = np.diag(pooled) - np.square(vectors) @ values
    return (vectors * np.sqrt(values)).T, roots, left
