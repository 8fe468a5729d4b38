"""Checks of parameters; every message is made of public facts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np


def refuse(owner: str, name: str, rule: str, value: object) -> None:
    """Raise the error of a parameter that breaks its rule."""
    raise ValueError(f"The parameter {name!r} of {owner} {rule}; got {value!r}.")


def check_option(owner: str, name: str, value: object, options: Sequence[Any]) -> None:
    """Require one of a few values."""
    if not any(value is option or value == option for option in options):
        refuse(owner, name, f"must be one of {tuple(options)}", value)


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
    if any(
        value is option or (isinstance(option, str) and value == option)
        for option in also
    ):
        return
    kind = numbers.Integral if integer else numbers.Real
    inside = False
    if isinstance(value, kind) and not isinstance(value, (bool, np.bool_)):
        number = float(value)
        above = number >= low if closed in ("left", "both") else number > low
        below = number <= high if closed in ("right", "both") else number < high
        inside = above and below
    if not inside:
        left = "[" if closed in ("left", "both") else "("
        right = "]" if closed in ("right", "both") else ")"
        what = "an integer" if integer else "a number"
        others = "".join(f" or {option!r}" for option in also)
        rule = f"must be {what} in {left}{low:g}, {high:g}{right}{others}"
        refuse(owner, name, rule, value)
