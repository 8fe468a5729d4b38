"""Images as arrays: what is public about them, and the way to [0, 1] and back.

Nothing is released here. The shape, the range and the dtype of the pixels are public;
a value outside the range moves to the nearest end, and a missing one to the lower end.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np

from dpgenerative._validation import check_number, refuse
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.tables.schema import Schema


@dataclass(frozen=True)
class Pixels:
    """The public facts about a set of images.

    Attributes
    ----------
    shape : tuple of int
        Channels, height and width.
    row_shape : tuple of int
        Shape of one image in the array that was fitted.
    low, high : float
        Range of the pixels.
    dtype : dtype
        Of the array that was fitted.
    has_density : bool
        Whether scores are densities in the units of the pixels.
    """

    shape: tuple[int, int, int]
    row_shape: tuple[int, ...]
    low: float
    high: float
    dtype: np.dtype[Any]
    has_density: bool

    schema: ClassVar[Schema] = Schema([])
    is_named: ClassVar[bool] = False

    @classmethod
    def stated(
        cls,
        owner: str,
        X: Any,
        shape: Any,
        value_range: Any,
        has_density: bool = False,
    ) -> Self:
        """Return what is public about images, stated or read off their array."""
        check_kind(owner, X)
        if shape is None:
            if X.ndim not in (3, 4):
                refuse(owner, "image_shape", "is needed for arrays that are flat", None)
            shape = X.shape[1:]
            if X.ndim == 4 and X.shape[1] > 4 and X.shape[3] in (1, 3, 4):
                c, h, w = shape
                warnings.warn(
                    f"{owner} reads images of shape {shape} as {c} channels of {h} x "
                    f"{w}. If channels come last, move them: np.moveaxis(X, -1, 1); "
                    "else state image_shape.",
                    stacklevel=2,
                )
        ends = full_range(value_range, X.dtype)
        return cls(full_shape(owner, shape), X.shape[1:], *ends, X.dtype, has_density)

    @property
    def x_names(self) -> range:
        """Numbers of the pixels, channels included, or of a longest series' entries."""
        return range(math.prod(self.row_shape))

    @property
    def two_valued(self) -> bool:
        """Whether every pixel must be at one end of the range or the other."""
        return self.dtype.kind in "biu" and self.high - self.low == 1

    def read(self, owner: str, X: Any) -> "Images":
        """Return images in [0, 1].

        Raises
        ------
        TypeError
            For anything but a numpy array of numbers or bools.
        ValueError
            For other shapes, and for no images.
        """
        check_array(owner, X, self.shape)
        require_alike(owner, X.dtype, self.dtype)
        return Images(self._scaled(X).reshape(-1, *self.shape))

    def encode(self, images: "Images") -> np.ndarray:
        """Return what the model sees of images: themselves."""
        return images.values

    def arrays(self, images: "Images") -> list[np.ndarray]:
        """Return all that models may see of images: private."""
        return [self.encode(images)]

    def log_within(self, images: "Images") -> np.ndarray:
        """Return what to add to log-densities of [0, 1] for those of the range."""
        per_pixel = -math.log(self.high - self.low) if self.has_density else 0.0
        return np.full(len(images), per_pixel * len(self.x_names))

    def restore(self, values: np.ndarray) -> np.ndarray:
        """Return images of [0, 1] in the range, shape and dtype that were fitted."""
        return self._unscaled(values).reshape(-1, *self.row_shape)

    def _scaled(self, x: np.ndarray) -> np.ndarray:
        """Return numbers of the range in [0, 1], as float32."""
        with np.errstate(all="ignore"):
            x = np.clip(x.astype(np.float64), self.low, self.high)
            x = (x - self.low) / (self.high - self.low)
            return np.nan_to_num(x, copy=False, nan=0.0).astype(np.float32)

    def _unscaled(self, values: np.ndarray) -> np.ndarray:
        """Return numbers of [0, 1] in the range and dtype that were fitted."""
        x = self.low + (self.high - self.low) * values.astype(np.float64)
        if self.dtype.kind in "biu":
            x = x.round()
        return x.astype(self.dtype)


@dataclass(frozen=True)
class Images:
    """Private images that were read.

    Attributes
    ----------
    values : ndarray of shape (n, c, h, w)
        Float32, in [0, 1].
    """

    values: np.ndarray

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, rows: np.ndarray) -> Self:
        return self._of_each(lambda array: array[rows])

    def blank(self) -> Self:
        """Return one image of zeros."""
        return self._of_each(lambda x: np.zeros((1, *x.shape[1:]), x.dtype))

    def _of_each(self, change: Callable[[np.ndarray], np.ndarray]) -> Self:
        arrays = (getattr(self, each.name) for each in fields(self))
        return type(self)(*map(change, arrays))


def check_kind(owner: str, X: Any) -> None:
    """Require a numpy array of numbers or bools, whatever its shape."""
    if not isinstance(X, np.ndarray) or isinstance(X, np.ma.MaskedArray):
        kind = type(X).__name__
        raise TypeError(
            f"{owner} takes images as one numpy array, and series as a list of arrays "
            f"(length, channels); got {kind}."
        )
    if X.dtype.kind not in "biuf":
        raise UnsupportedColumnError(f"{owner} cannot read images of {X.dtype}.")


def check_array(owner: str, X: Any, shape: tuple[int, int, int]) -> None:
    """Require a numpy array of at least one image of this shape."""
    check_kind(owner, X)
    flat, plain = (math.prod(shape),), [shape[1:]] if shape[0] == 1 else []
    allowed = [flat, *plain, shape]
    if X.shape[1:] not in allowed:
        options = " or ".join(f"(n_samples, {', '.join(map(str, s))})" for s in allowed)
        # The number of images is private.
        got = f"(n_samples, {', '.join(map(str, X.shape[1:]))})" if X.ndim else "()"
        raise ValueError(f"{owner} takes images of shape {options}; got {got}.")
    if len(X) == 0:
        raise ValueError(
            f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is "
            f"required by {owner}."
        )


def require_alike(owner: str, given: np.dtype[Any], fitted: np.dtype[Any]) -> None:
    """Require whole numbers where there were such: their range may be another one."""
    if (given.kind == "f") != (fitted.kind == "f"):
        raise ValueError(
            f"{owner} was fitted to arrays of {fitted}; got {given}. Convert the "
            "arrays, and their range."
        )


def full_shape(owner: str, image_shape: Any) -> tuple[int, int, int]:
    """Return channels, height and width of (h, w) or (c, h, w)."""
    rule = "must be (height, width) or (channels, height, width), all at least 1"
    if not isinstance(image_shape, Sequence) or len(image_shape) not in (2, 3):
        refuse(owner, "image_shape", rule, image_shape)
    for side in image_shape:
        check_number(owner, "image_shape", side, low=1, closed="left", integer=True)
    c, h, w = map(int, image_shape if len(image_shape) == 3 else (1, *image_shape))
    return c, h, w


def full_range(value_range: Any, dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the ends of the range of the pixels; "auto" follows the dtype."""
    if isinstance(value_range, str):
        if dtype.kind in "iu" and dtype != np.uint8:
            raise ValueError(
                f"Images of dtype {dtype} have no usual range of pixels: state "
                "value_range, such as (0, 255)."
            )
        return (0.0, 255.0) if dtype == np.uint8 else (0.0, 1.0)
    low, high = value_range
    whole: Any = np.uint8 if dtype.kind == "b" else dtype
    limits = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(whole)
    if low < limits.min or high > limits.max:
        raise ValueError(
            f"Images of dtype {dtype} hold no values from {low} to {high}: state a "
            "value_range inside the dtype's, or convert the images."
        )
    return float(low), float(high)


def check_range(owner: str, value_range: Any) -> None:
    """Require "auto" or two finite numbers in order."""
    if isinstance(value_range, str) and value_range == "auto":
        return
    rule = "must be two numbers in ascending order, a finite way apart, or 'auto'"
    if not isinstance(value_range, Sequence) or len(value_range) != 2:
        refuse(owner, "value_range", rule, value_range)
    for end in value_range:
        check_number(owner, "value_range", end)
    if not 0 < float(value_range[1]) - float(value_range[0]) < math.inf:
        refuse(owner, "value_range", rule, value_range)
