"""Series of different lengths as arrays of one shape: what is public, there and back.

A list of arrays (length, channels) becomes one array of (n, 1, T, channels + 1), T a
greatest length that is stated: the lengths in the data are private. The last feature of
a step is 1 where the series has that step, and 0, like all others, where it has not.

Series longer than T are cut there. One without steps counts as one of a missing step.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dpgenerative._validation import refuse
from dpgenerative.encoding.pixels import (
    Images,
    Pixels,
    check_kind,
    full_range,
    require_alike,
)


@dataclass(frozen=True)
class Series(Pixels):
    """The public facts about a list of series.

    `shape` is what models see, (1, T, channels + 1), and `row_shape` (T, channels).
    """

    @classmethod
    def stated(
        cls,
        owner: str,
        X: Any,
        shape: Any,
        value_range: Any,
        has_density: bool = False,
    ) -> Self:
        """Return the facts about series of at most as many steps as are stated."""
        dtype = series_dtype(owner, X)
        low, high = full_range(value_range, dtype)
        if shape is None or len(shape) != 2:
            rule = "must be (greatest length, channels) for a list of series"
            refuse(owner, "image_shape", rule, shape)
        n_steps, n_channels = map(int, shape)
        image, series = (1, n_steps, n_channels + 1), (n_steps, n_channels)
        return cls(image, series, low, high, dtype, has_density)

    def read(self, owner: str, X: Any) -> Images:
        """Return series in [0, 1], padded.

        Raises
        ------
        TypeError
            For anything but a list of numpy arrays of numbers or bools, of two axes
            and one dtype.
        ValueError
            For another number of channels.
        """
        n_steps, n_channels = self.row_shape
        if not is_series(X):
            raise TypeError(f"{owner} takes a list of series, as it was fitted to.")
        require_alike(owner, series_dtype(owner, X), self.dtype)
        if any(x.shape[1] != n_channels for x in X):
            rule = f"takes series of shape (length, {n_channels})"
            raise ValueError(f"{owner} {rule}; got other numbers of channels.")
        values = np.zeros((len(X), *self.shape), np.float32)
        for row, x in zip(values[:, 0], X, strict=True):
            row[: max(1, len(x)), -1] = 1
            row[: len(x), :-1] = self._scaled(x[:n_steps])
        return Images(values)

    def log_within(self, images: Images) -> np.ndarray:
        """Return what to add to log-densities of [0, 1] for those of the range."""
        per_step = super().log_within(images) / self.row_shape[0]
        return per_step * images.values[:, 0, :, -1].sum(1, dtype=np.float64)

    def restore(self, values: np.ndarray) -> Any:
        """Return a list of series in the range and dtype that were fitted."""
        whole = self._unscaled(values[:, 0, :, :-1])
        lengths = values[:, 0, :, -1].sum(1)
        return [x[: int(n)] for x, n in zip(whole, lengths, strict=True)]


def is_series(X: Any) -> bool:
    """Return whether this is a list of arrays of two axes."""
    is_list = isinstance(X, list) and len(X) > 0
    return is_list and all(isinstance(x, np.ndarray) and x.ndim == 2 for x in X)


def series_dtype(owner: str, X: Sequence[np.ndarray]) -> np.dtype[Any]:
    """Return the dtype of series, which must have one in common."""
    for x in X:
        check_kind(owner, x)
    if any(x.dtype != X[0].dtype for x in X):
        raise TypeError(f"{owner} takes series of one dtype.")
    return X[0].dtype
