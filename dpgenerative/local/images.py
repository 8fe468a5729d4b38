"""Images: sums of square cells, perturbed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpgenerative._random import RandomSource
from dpgenerative._validation import Check, count, option, refuse
from dpgenerative.encoding.pixels import Pixels, check_array, check_range
from dpgenerative.local.base import PUBLIC, LocalRandomizer
from dpgenerative.local.mechanisms import laplace_noise, rate_of
from dpgenerative.local.report import Feature, LocalReport, usual_notes

FINEST = 2**16 - 1
"""Steps of the range of pixels that are floats, or integers of a wider range."""
CHUNK = 1024
"""Images that are perturbed at a time."""


class ImagePixelizer(LocalRandomizer):
    """Perturb every image under local differential privacy: noisy averages of cells.

    The image is cut into squares of `cell` by `cell` pixels, smaller ones at the right
    and lower edge. Each is shown as its average plus Laplace noise of scale ``width m /
    (cell^2 epsilon)``, with the width of the range, 255 for uint8.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy cost of one image, > 0, for neighbouring values of it.
    cell : int, default=8
        Side of a cell in pixels.
    neighbours : int, default=1
        Number m of pixels, with all their channels, in which neighbouring images differ
        at most. Any two images of n pixels are indistinguishable up to epsilon n / m:
        with ``neighbours=n`` the whole image is protected.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of X of shape (n, c h w), (n, h, w)
        or (n, c, h, w); None reads it from an X that is not flat.
    value_range : tuple of float or "auto", default="auto"
        Minimum and maximum of a pixel, which are public. "auto" is (0, 255) for uint8,
        (0, 1) for floats and booleans, and an error for other integers. Before
        averaging, values outside are clipped, and missing ones become the minimum.
    output : {"pixels", "cells"}, default="pixels"
        Images of the original shape, with one value per cell, or one entry per cell.
    clamp : bool, default=True
        Clip noisy averages to the range, and return the dtype of X. False returns them
        unclipped, in float64.
    random_state : int, RandomState or Generator instance or None, default=None
        Seed of the noise if `noise` is "reproducible"; otherwise unused.
    noise : {"secure", "reproducible"}, default="secure"
        Source of the noise: the operating system's cryptographic generator, or
        `random_state`, in which case anyone who knows the seed can remove it.

    Attributes
    ----------
    privacy_ : LocalReport
        What a transform reveals of one image.
    n_features_in_ : int
        Number of entries of one image.

    Notes
    -----
    `fit` reads only shape and dtype. Every `transform` of an image spends epsilon
    again. Pixels are rounded to integer multiples of a step of the range, and so are
    their sums and the noise: the low bits of floats reveal nothing of the image.

    References
    ----------
    Fan. Image Pixelization with Differential Privacy. DBSec 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import ImagePixelizer
    >>> images = np.zeros((5, 28, 28), dtype=np.uint8)
    >>> ImagePixelizer(epsilon=2.0, cell=7, output="cells").fit_transform(images).shape
    (5, 4, 4)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        cell: int = 8,
        neighbours: int = 1,
        image_shape: Sequence[int] | None = None,
        value_range: Sequence[float] | str = "auto",
        output: str = "pixels",
        clamp: bool = True,
        random_state: Any = None,
        noise: str = "secure",
    ) -> None:
        self.epsilon = epsilon
        self.cell = cell
        self.neighbours = neighbours
        self.image_shape = image_shape
        self.value_range = value_range
        self.output = output
        self.clamp = clamp
        self.random_state = random_state
        self.noise = noise

    _checks: ClassVar[Mapping[str, Check]] = {
        **LocalRandomizer._checks,
        "cell": count(),
        "neighbours": count(),
        "output": option("pixels", "cells"),
        "clamp": option(True, False),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read shape and dtype; fix the noise.

        Parameters
        ----------
        X : ndarray of shape (n_samples, ...)
        y : None
            Ignored; present for API consistency.

        Returns
        -------
        self
        """
        self._begin()
        check_range(self._owner, self.value_range)
        pixels = Pixels.stated(self._owner, X, self.image_shape, self.value_range)
        check_array(self._owner, X, pixels.shape)
        width = pixels.high - pixels.low
        is_whole = pixels.dtype.kind in "biu" and width == round(width) <= FINEST
        steps = round(width) if is_whole else FINEST
        channels, height, length = pixels.shape
        if self.neighbours > height * length:
            rule = f"must be at most {height * length}, the pixels of an image"
            refuse(self._owner, "neighbours", rule, self.neighbours)
        self._pixels, self._steps = pixels, steps
        self._cell, self._epsilon = int(self.cell), float(self.epsilon)
        self._sensitivity = int(self.neighbours) * channels * steps
        rate_of(self._epsilon, self._sensitivity)
        self.n_features_in_ = math.prod(pixels.row_shape)
        self.privacy_ = self._report(width * channels, height * length)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Perturb every image; spends epsilon of each, every time.

        Parameters
        ----------
        X : ndarray of shape (n_samples, ...)

        Returns
        -------
        ndarray of shape (n_samples, ...)
        """
        check_is_fitted(self)
        images = self._pixels.read(self._owner, X).values
        rng = self._spend()
        parts = np.split(images, range(CHUNK, len(images), CHUNK))
        averages = np.concatenate([self._averages(part, rng) for part in parts])
        pixels = self._pixels
        if self.output == "pixels":
            _, height, length = pixels.shape
            averages = averages.repeat(self._cell, 2)[:, :, :height]
            averages = averages.repeat(self._cell, 3)[:, :, :, :length]
        else:
            shape = averages.shape[1:]
            rows = {1: (math.prod(shape),), 2: shape[1:], 3: shape}
            pixels = replace(pixels, shape=shape, row_shape=rows[len(pixels.row_shape)])
        if self.clamp:
            return pixels.restore(np.clip(averages, 0, 1))
        return replace(pixels, dtype=np.dtype(float)).restore(averages)

    def _averages(self, images: np.ndarray, rng: RandomSource) -> np.ndarray:
        """Return noisy averages of all cells, in parts of the range."""
        shape = images.shape[2:]
        starts = [np.arange(0, side, self._cell) for side in shape]
        sums = np.rint(images * self._steps).astype(np.int64)
        for axis, start in zip((2, 3), starts, strict=True):
            sums = np.add.reduceat(sums, start, axis)
        sums += laplace_noise(sums.shape, self._epsilon, self._sensitivity, rng)
        rows, columns = (np.diff([*x, n]) for x, n in zip(starts, shape, strict=True))
        return sums / (self._steps * np.outer(rows, columns))

    def _report(self, width: float, n_pixels: int) -> LocalReport:
        m, pixels = int(self.neighbours), self._pixels
        scale = width * m / (self._cell**2 * self._epsilon)
        words = (
            f"averages of {self._cell} x {self._cell} pixels, with Laplace noise of "
            f"scale {scale:.6g}"
        )
        if any(side % self._cell for side in pixels.shape[1:]):
            words += " (more in smaller cells at the edge)"
        facts = (
            PUBLIC,
            f"shape {pixels.shape}, dtype {pixels.dtype} and range "
            f"[{pixels.low:g}, {pixels.high:g}] of the images",
        )
        return LocalReport(
            self._epsilon, 0.0, (Feature("image", self._epsilon, words),), facts,
            f"two values of one image that differ in at most {m} of {n_pixels} pixels",
            self._epsilon * n_pixels / m, usual_notes(self.noise, self._epsilon),
        )  # fmt: skip

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags
