"""What code of the user's does with made-up numbers, before it sees private rows.

The guarantee needs more of such code than a type can say: that it treats rows apart,
where their gradients are clipped one by one, and that it keeps nothing of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpgenerative.models.priors import Prior

SIZES = (1, 2, 7, 100, 1000)
"""Points that a prior is tried on at a time."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic)


def held(value: Any) -> list[Any]:
    """Return all that can be reached from an object, to compare it with later.

    Followed are attributes (of its class too, if that is not one of torch's), items,
    what functions close over, and the states of generators; not global names.
    """
    return list(_leaves(value, {}))


def _leaves(value: Any, seen: dict[int, Any]) -> Iterator[Any]:
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if id(value) in seen:
        return
    # Kept, so that no other object gets this identity.
    seen[id(value)] = value
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().view(-1)
        yield tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield value.shape, value.tobytes()
    elif isinstance(value, torch.Generator):
        yield value.get_state().numpy().tobytes()
    elif isinstance(value, np.random.Generator):
        yield repr(value.bit_generator.state)
    for part in _parts(value):
        yield from _leaves(part, seen)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what an object consists of."""
    if isinstance(value, Mapping):
        yield len(value)
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield len(value)
        yield from value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from value.flat
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from (_content(cell) for cell in value.__closure__ or ())
    if not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).items()
        yield from _own_classes(type(value))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _own_classes(kind: type) -> Iterator[Any]:
    """Yield what classes hold that neither torch nor Python brought."""
    for part in kind.__mro__:
        if part.__module__.partition(".")[0] not in ("builtins", "torch", "typing"):
            yield from dict(vars(part)).values()


def check_memory(owner: str, name: str, value: Any, use: Callable[[int], Any]) -> None:
    """Require code that keeps nothing of the rows it is given.

    Parameters
    ----------
    owner, name : str
        For the message.
    value : object
        The code.
    use : callable
        Runs it on a number of made-up rows.

    Raises
    ------
    ValueError
        Where what is reached from it differs between two uses. What it prepares at
        its first use, it may keep.
    """
    use(5)
    before = held(value)
    use(3)
    use(8)
    if held(value) != before:
        raise ValueError(
            f"{owner}: {name!r} must not remember what it saw: an attribute, a list or "
            "a generator of its own that changes from call to call would release rows "
            f"without noise; got {value!r}."
        )


def check_prior(owner: str, prior: Prior) -> int:
    """Require a prior that treats points apart and keeps none; return its width.

    Raises
    ------
    ValueError
        Where the log-density of a point, or its gradient, changes with the other
        points given, or from call to call; and see `check_memory`.
    """
    generator = torch.Generator().manual_seed(0)
    width = int(prior.sample(1, generator).shape[1])

    def points(n: int) -> Tensor:
        sizes = 10 ** (3 * torch.rand(n, 1, 1, generator=generator) - 1)
        return sizes * torch.randn(n, 2, width, generator=generator)

    check_memory(owner, "prior", prior, lambda n: _log_prob(prior, points(n)))
    if not all(_is_apart(prior, points(n)) for n in SIZES):
        raise ValueError(
            f"{owner}: log_prob of 'prior' must return, for points of shape (n, L, "
            f"{width}), one number each, (n, L), that depends on this point alone: no "
            "bound of the gradient of one row would cover a number that changes with "
            f"the others, or from call to call; got {prior!r}."
        )
    return width


def _log_prob(prior: Prior, points: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-densities, and the gradient of their sum."""
    points = points.clone().requires_grad_()
    found = prior.log_prob(points)
    (slope,) = torch.autograd.grad(found.sum() + 0 * points.sum(), points)
    return found.detach(), slope


def _is_apart(prior: Prior, points: Tensor) -> bool:
    whole = _log_prob(prior, points)
    if whole[0].shape != points.shape[:-1]:
        return False
    places = {0, len(points) // 2, len(points) - 1}
    alone = {i: _log_prob(prior, points[i : i + 1]) for i in places}
    return all(
        torch.allclose(x[i], y[0], rtol=1e-3, atol=1e-4, equal_nan=True)
        for i, found in alone.items()
        for x, y in zip(whole, found, strict=True)
    )
