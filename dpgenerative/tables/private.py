"""Private rows, sealed: a rule can ask for no number, length or value of them.

Formal guarantee: none of its own. What is made of private rows travels as `Private`,
and steps, sizes, rates and thresholds that need its length or a value end in an error.
`opened` is what reads it. Python lets any code call that, so a test lists the modules
that do: the door (`privacy.noise`), the sampler, the readers of chunks, the encoder,
and, with a reason each, few others. A function given to `map` sees everything, and must
return what it computes, and do nothing else.
"""

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

T = TypeVar("T")
S = TypeVar("S")


def _refused(*_: Any) -> NoReturn:
    raise TypeError(
        "The number and the values of private rows are private: transform them by "
        "map, select the sampled ones by indices, and release sums by Mechanisms."
    )


class Private(Generic[T]):
    """A value made from private rows.

    Parameters
    ----------
    value : object
        A table, an array, a tensor, counts.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def map(self, function: Callable[[T], S]) -> "Private[S]":
        """Return what a function makes of the value, private too."""
        return Private(function(self._value))

    def to(self, device: Any) -> "Private[Any]":
        """Return an array of numpy, or a tensor, as a tensor on a device."""
        import torch  # Schemas, which share this package, do without.

        return self.map(lambda value: torch.as_tensor(value).to(device))

    def __getitem__(self, indices: Any) -> Any:
        """Return the sampled rows of an array or tensor, by an array of integers."""
        dtype = str(getattr(indices, "dtype", None)).removeprefix("torch.")
        if not dtype.startswith("int"):  # of a slice or mask the length would show
            _refused()
        value: Any = self._value
        try:
            return value[indices]
        except IndexError:  # which states the length
            raise IndexError("An index is beyond the private rows.") from None

    def __repr__(self) -> str:
        return "Private(...)"

    __len__: Any = _refused
    __iter__: Any = _refused
    __bool__: Any = _refused
    __eq__: Any = _refused
    __array__: Any = _refused
    __reduce_ex__: Any = _refused


def opened(value: Any) -> Any:
    """Return the value of what is private, and anything else as it is."""
    return value._value if isinstance(value, Private) else value
