"""Checks of parameters; every message is made of public facts."""

import math
import numbers
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dpgenerative.exceptions import PrivacyWarning

_MOST_SHOWN, _LONGEST_SHOWN = 8, 60


def shown(value: object) -> str:
    """Return what an error quotes of a value: what may be rows, by its type alone."""
    kind = f"an object of type {type(value).__name__}"
    return repr(value) if _is_small(value) else kind


def _is_small(value: object) -> bool:
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, (list, tuple)):
        return len(value) <= _MOST_SHOWN and all(map(_is_small, value))
    is_scalar = pd.api.types.is_scalar(value) or isinstance(value, type)
    return is_scalar and len(str(value)) <= _LONGEST_SHOWN


def refuse(owner: str, name: str, rule: str, value: object) -> NoReturn:
    """Raise the error of a parameter that breaks its rule."""
    raise ValueError(f"The parameter {name!r} of {owner} {rule}; got {shown(value)}.")


def refuse_arguments(call: str, unsupported: Mapping[str, Any]) -> None:
    """Refuse keyword arguments that `fit` lacks; weights of None are none."""
    if unsupported.get("sample_weight") is not None:
        raise ValueError(
            f"{call} does not support sample_weight: a weight changes how far one row "
            "can move the model, which the noise would have to cover. Nor resample "
            "rows with replacement, which gives a person several. Fit at most one row "
            "per person, or state max_rows_per_unit; weights can be one more column."
        )
    if unknown := sorted(set(unsupported) - {"sample_weight"}):
        raise TypeError(f"{call} got unknown arguments: {unknown}.")


def check_option(
    owner: str, name: str, value: object, options: Sequence[Any], other: str = ""
) -> None:
    """Require one of a few values; `other` names what else the caller takes."""
    # What has no hash may be rows, which compare cell by cell; NA equals neither way.
    if not isinstance(value, Hashable) or value not in set(options):
        rule = f"must be one of {tuple(options)}"
        refuse(owner, name, f"{rule} or {other}" if other else rule, value)


def check_number(
    owner: str,
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    closed: str = "neither",
    integer: bool = False,
    also: Sequence[Any] = (),
) -> None:
    """Require a number in an interval, or one of the values in `also`."""
    if (value is None or isinstance(value, str)) and value in also:
        return
    # Torch takes no fractions, and arithmetic with halves and singles is theirs.
    kinds = (numbers.Integral, *(() if integer else (float,)))
    if isinstance(value, kinds) and not isinstance(value, bool):
        number = float(value)
        above = number >= low if closed in ("left", "both") else number > low
        below = number <= high if closed in ("right", "both") else number < high
        if above and below:
            return
    left = "[" if closed in ("left", "both") else "("
    right = "]" if closed in ("right", "both") else ")"
    what = "an integer" if integer else "a number"
    is_float = isinstance(value, np.floating) and not integer
    what += " (of Python, or of 64 bits: float(x))" if is_float else ""
    others = "".join(f" or {option!r}" for option in also)
    rule = f"must be {what} in {left}{low:g}, {high:g}{right}{others}"
    refuse(owner, name, rule, value)


LEAST_DELTA = 1e-15
"""Below it the tails of normals in floating point are not exact."""


def check_delta(owner: str, delta: Any, stacklevel: int = 3) -> None:
    """Require a delta of one row in (0, 1), and warn of one that noise cannot keep."""
    check_number(owner, "delta", delta, low=0, high=1)
    if float(delta) < LEAST_DELTA:
        warnings.warn(
            f"{owner}: a delta of {delta:g} for one row is below {LEAST_DELTA:g}, "
            "where the tails of noise in floating point are not exact, so that the "
            "guarantee need not hold. State a larger delta.",
            PrivacyWarning,
            stacklevel=stacklevel,
        )


def check_instance(owner: str, name: str, value: object, kind: type) -> None:
    """Require an object of a class, or None."""
    if value is not None and not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        refuse(owner, name, f"must be {article} {kind.__name__} or None", value)


Check = Callable[[str, str, Any], None]
"""From owner, name and value of a parameter; raises ValueError if it does not fit."""


LARGEST_SIZE = 100_000
"""Of a part of a model: what is beyond fits no memory, which shows only when a budget
is spent."""


def number(**limits: Any) -> Check:
    """Return the check of a number (`check_number`)."""
    return partial(check_number, **limits)


def count(low: int = 1, also: Sequence[Any] = (), **limits: Any) -> Check:
    """Return the check of an integer that is at least `low`, or one of `also`."""
    usual: dict[str, Any] = {"low": low, "also": also, "closed": "left"}
    return number(integer=True, **usual | limits)


def dimension(low: int = 1, also: Sequence[Any] = ()) -> Check:
    """Return the check of how large a part of a model is (`count`)."""
    return count(low, also, high=LARGEST_SIZE, closed="both")


def option(*options: Any) -> Check:
    """Return the check of one of a few values."""
    return partial(check_option, options=options)


BUDGET_SHARE = number(low=0, high=1, closed="left", also=["auto"])
"""The check of the share of a budget that something may get, or nothing of it."""


def check_parameters(owner: str, holder: Any, declared: Mapping[str, Check]) -> None:
    """Check the parameters of an object by a table of checks."""
    for name, check in declared.items():
        check(owner, name, getattr(holder, name))
