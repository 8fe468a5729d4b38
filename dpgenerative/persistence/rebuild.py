"""Models that are built anew by their constructors and filled with tensors from a file.

Constructors take sizes, and a file could state any. So `Bounded` compares the numbers
that PyTorch is asked to make with those in the file, before it makes them.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from dpgenerative.fitting.loop import tensors_of

FACTOR, CONSTANT = 64, 2**24
"""Numbers that building a model may make: per number in its file, and in addition."""
OVERHEAD = 256
"""Memory of the objects around a tensor, counted in numbers."""


class Bounded(TorchDispatchMode):
    """Raises MemoryError where more numbers are made than a file's tensors explain.

    Parameters
    ----------
    tensors : iterable of Tensor
        What the file holds.
    """

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        super().__init__()
        self._left = FACTOR * sum(x.numel() for x in tensors) + CONSTANT

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # What depends on values has no shape on the meta device, and is counted below.
        with suppress(NotImplementedError, RuntimeError):
            self._check(_on_meta(func, args, kwargs))
        result = func(*args, **kwargs)
        self._left -= self._check(result) + OVERHEAD
        return result

    def _check(self, results: Any) -> int:
        tensors = [x for x in tree_leaves(results) if isinstance(x, Tensor)]
        n = sum(x.numel() for x in tensors)
        if n > self._left:
            raise MemoryError("larger than the file")
        return n


def _on_meta(func: Any, args: Any, kwargs: Any) -> Any:
    """Return an operation's results without their numbers."""
    made = {**kwargs}
    if any(argument.name == "device" for argument in func._schema.arguments):
        made["device"] = "meta"
    args, made = tree_map_only(torch.Generator, lambda _: None, (args, made))
    args, made = tree_map_only(Tensor, lambda x: x.to("meta"), (args, made))
    return func(*args, **made)


def fill(model: nn.Module, saved: Mapping[str, Tensor]) -> None:
    """Set a model's tensors to saved values; raise ValueError if they do not fit."""
    tensors = tensors_of(model)
    kinds = [{k: (x.shape, x.dtype) for k, x in t.items()} for t in (tensors, saved)]
    if kinds[0] != kinds[1]:
        raise ValueError("another model")
    for name, values in saved.items():
        tensors[name].copy_(values)
