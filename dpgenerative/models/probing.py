"""Tests of users' code on made-up numbers, before it is given private rows.

Priors, divergences and architectures can be the user's own. The guarantee needs more of
them than a type can state: that they keep nothing of the rows they are given, and that
priors and architectures treat rows independently, as gradients are clipped row by row.
What clipping makes of their gradients is tried by `privacy.trial`.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from dpgenerative.models.networks import Shape
from dpgenerative.models.priors import Prior

SIZES = (1, 2, 7, 100, 1000)
"""Numbers of points that a prior is tried on."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic)


def check_memory(owner: str, name: str, value: Any, use: Callable[[int], Any]) -> None:
    """Require code that stores nothing of the rows it is given.

    What it prepares at its first use, it may keep.

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
        If the state that can be reached from it changes from use to use.
    """
    use(5)
    before = snapshot(value)
    use(3)
    use(8)
    if snapshot(value) != before:
        refuse_memory(owner, name)


def refuse_memory(owner: str, name: str) -> NoReturn:
    """Raise ValueError for code that stores something of rows."""
    raise ValueError(
        f"{owner}: {name!r} must not remember what it saw: an attribute, a list, a "
        "buffer or a generator of its own that changes with the rows it is given would "
        "release them without noise."
    )


def check_divergence(owner: str, value: Any, use: Callable[[int], Any]) -> None:
    """Require a divergence that can be differentiated, and stores nothing.

    Raises
    ------
    ValueError
        If it returns anything but one number with a gradient; and see `check_memory`.
    """
    values = [use(n) for n in (5, 100)]  # for few rows it may be 0
    are_numbers = all(isinstance(x, Tensor) and x.numel() == 1 for x in values)
    if not (are_numbers and any(x.requires_grad for x in values)):
        raise ValueError(
            f"{owner}: 'divergence' must return a tensor of one number, computed by "
            f"torch from what it is given; got {type(values[0]).__name__}."
        )
    check_memory(owner, "divergence", value, use)


def check_prior(owner: str, prior: Prior) -> int:
    """Require a prior that treats points independently; return its width.

    Raises
    ------
    ValueError
        If it samples no tensor of points, or the log-density of a point, or its
        gradient, changes with the other points given, or from call to call; and see
        `check_memory`.
    """
    generator = torch.Generator().manual_seed(0)
    drawn = prior.sample(3, generator)
    if not (isinstance(drawn, Tensor) and drawn.ndim == 2 and len(drawn) == 3):
        raise ValueError(
            f"{owner}: sample(n, generator) of 'prior' must return a tensor of n "
            f"points, of shape (n, k); got {type(drawn).__name__} of shape "
            f"{np.shape(drawn)} for n=3."
        )
    width = int(drawn.shape[1])

    if any(p.requires_grad for p in getattr(prior, "parameters", list)()):
        raise ValueError(
            f"{owner}: 'prior' must have no parameters to train, as their gradients "
            "would not be clipped: freeze them by requires_grad_(False)."
        )

    def points(n: int) -> Tensor:
        sizes = 10 ** (3 * torch.rand(n, 1, 1, generator=generator) - 1)
        return sizes * torch.randn(n, 2, width, generator=generator)

    def log_prob(z: Tensor) -> Sequence[Tensor]:
        z = z.clone().requires_grad_()
        density = prior.log_prob(z)
        (slope,) = torch.autograd.grad(density.sum() + 0 * z.sum(), z)
        return density.detach(), slope

    def is_fine(z: Tensor) -> bool:
        return log_prob(z)[0].shape == z.shape[:-1] and _is_independent(log_prob, z)

    check_memory(owner, "prior", prior, lambda n: log_prob(points(n)))
    if not all(is_fine(points(n)) for n in SIZES):
        raise ValueError(
            f"{owner}: log_prob of 'prior' must return, for points of shape (n, L, "
            f"{width}), one number each, (n, L), that depends on this point alone: no "
            "bound of the gradient of one row would cover a number that changes with "
            f"the others, or from call to call; got {prior!r}."
        )
    return width


def check_architecture(owner: str, modules: Any, shape: Shape, k: int) -> None:
    """Require an encoder and a decoder that treat images independently.

    Raises
    ------
    ValueError
        For other numbers or shapes; for modules that draw random numbers, or couple the
        images of a batch: no bound of the gradient of one image would cover that; and
        see `check_memory`.
    """
    given = f"{owner}: the encoder and decoder of 'architecture'"
    is_pair = isinstance(modules, tuple) and len(modules) == 2
    if not is_pair or not all(isinstance(m, nn.Module) for m in modules):
        raise ValueError(f"{given} must be a tuple of two modules; got {modules!r}.")
    encoder, decoder = modules
    generator = torch.Generator().manual_seed(0)

    def moved(module: nn.Module) -> dict[str, Tensor]:
        return {
            name: p + 0.1 * torch.randn(p.shape, generator=generator)
            for name, p in module.named_parameters()
        }

    def made_up(n: int) -> tuple[Tensor, Tensor]:
        images = torch.rand(n, *shape, generator=generator)
        return images, torch.randn(n, k, generator=generator)

    @torch.no_grad()
    def use(
        images: Tensor, latents: Tensor, weights: Sequence[dict[str, Tensor]] = ({}, {})
    ) -> Sequence[Tensor]:
        posterior = functional_call(encoder, weights[0], images)
        return [*posterior, functional_call(decoder, weights[1], latents)]

    rows = made_up(3)
    shapes = [tuple(x.shape) for x in use(*rows)]
    if shapes != [(3, k), (3, k), (3, *shape)]:
        raise ValueError(
            f"{given} must return a mean and a log-variance of shape (n, {k}), and "
            f"logits of shape (n, {', '.join(map(str, shape))}); got {shapes} for n=3."
        )
    # Weights that start at zero hide what comes before them.
    elsewhere = partial(use, weights=(moved(encoder), moved(decoder)))
    if not all(_is_independent(each, *rows) for each in (use, elsewhere)):
        raise ValueError(
            f"{given} must treat every image apart and draw nothing: what they return "
            "for an image changes with the others in its batch, as by batch "
            "normalisation, or from call to call, as by dropout. GroupNorm does not."
        )
    check_memory(owner, "architecture", modules, lambda n: use(*made_up(n)))


def _is_independent(use: Callable[..., Sequence[Tensor]], *rows: Tensor) -> bool:
    """Whether a row's results are the same beside other rows, and again."""
    n = len(rows[0])
    whole = use(*rows)

    def is_same(i: int) -> bool:
        twice = use(*(x[[i, i]] for x in rows))
        return all(
            torch.allclose(x[i], y[0], rtol=1e-3, atol=1e-4, equal_nan=True)
            for x, y in zip(whole, twice, strict=True)
        )

    return all(is_same(i) for i in {0, n // 2, n - 1})


# What an object holds -----------------------------------------------------------------


def snapshot(value: Any) -> list[Any]:
    """Return all state that can be reached from an object, for comparison.

    Followed are attributes (of its class too, if that is not one of torch's), items,
    what functions close over, and the states of generators; not global names.
    """
    return list(_leaves(value, {}))


def moved(value: Any, move: Callable[[Tensor], Tensor]) -> Any:
    """Return an object with all its tensors moved: itself where they stay."""
    visited: dict[int, Any] = {}
    deque(_leaves(value, visited), maxlen=0)
    memo = {i: move(x) for i, x in visited.items() if isinstance(x, Tensor)}
    is_same = all(memo[i] is visited[i] for i in memo)
    return value if is_same else deepcopy(value, memo)


def _leaves(value: Any, visited: dict[int, Any]) -> Iterator[Any]:
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if id(value) in visited:
        return
    # Hold a reference, since ids are reused.
    visited[id(value)] = value
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().view(-1)
        yield tuple(value.shape), flat.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield value.shape, value.tobytes()
    for part in _parts(value):
        yield from _leaves(part, visited)


def _parts(value: Any) -> Iterator[Any]:
    """Yield the parts of an object."""
    if isinstance(value, Mapping):
        yield len(value)
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield len(value)
        yield from value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from value.flat
    elif isinstance(value, torch.Generator):
        yield value.get_state()
    elif isinstance(value, np.random.Generator):
        yield value.bit_generator.state
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, FunctionType):
        yield from (value.__defaults__, value.__kwdefaults__)
        yield from map(_content, value.__closure__ or ())
    if not isinstance(value, (type, ModuleType)):  # whose names are global
        yield from getattr(value, "__dict__", {}).items()
        yield from _own_classes(type(value))


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # empty
        return None


def _own_classes(kind: type) -> Iterator[Any]:
    """Yield the attributes of classes from outside torch and Python."""
    for part in kind.__mro__:
        if part.__module__.partition(".")[0] not in ("builtins", "torch", "typing"):
            yield from dict(vars(part)).values()
