"""Fits that several tests read, each made once in a process."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dpgenerative.fitting import embedding, growth, workload
from dpgenerative.models import embedding as models_embedding
from dpgenerative.synthesizers import flow, latents

_made: dict[tuple, tuple[Any, bytes]] = {}


def shared(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let a factory work once for the same arguments, which are hashable.

    What it makes is for reading: the next caller fails if a test has changed it. Where
    the package is patched, the factory may not be called, or `forget` comes after.
    """

    @functools.wraps(make)
    def once(*args: Any, **kwargs: Any) -> Any:
        key = make, args, tuple(sorted(kwargs.items()))
        if key not in _made:
            made = make(*args, **kwargs)
            _made[key] = made, pickle.dumps(made)
        made, state = _made[key]
        assert pickle.dumps(made) == state, f"a test has changed {make.__name__}{args}"
        return made

    return once


def forget() -> None:
    """Let every factory work anew, as before and after the package is patched."""
    _made.clear()


@contextmanager
def few_rows_to_rake(n: int = 2**10) -> Iterator[None]:
    """Let models be corrected on few rows of their own: most of the time of a fit.

    For tests of what is released, stored or refused; not for those of distributions.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (flow, latents):
            patch.setattr(module, "RAKING_ROWS", n)
        patch.setattr(growth, "PEOPLE", n)
        for name in ("POOL", "RAKED"):
            patch.setattr(workload, name, n)
        patch.setattr(embedding, "FITTED", n)
        for name in ("MOST_COEFFICIENTS", "N_ANGLES"):
            patch.setattr(models_embedding, name, 32)
        yield
