"""Arithmetic settings that margins of norms and repeated fits depend on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import cudnn

_EXACT: list[tuple[Any, str, Any]] = [
    # A TF32 of its own, and sums in any order.
    (cudnn, "benchmark", False),
    (cudnn, "deterministic", True),
    (cudnn, "allow_tf32", False),
    # From torch 2.9 on, whatever is set for all of them together.
    *(
        (getattr(owner, name), "fp32_precision", "ieee")
        for owner in (torch.backends.cuda, cudnn, torch.backends.mkldnn)
        for name in ("matmul", "conv", "rnn")
        if hasattr(getattr(owner, name, None), "fp32_precision")
    ),
]


class _FullPrecision:
    """The settings of products and convolutions that all threads share, and who asks.

    The first thread to enter changes them, and the last to leave changes them back: one
    that leaves earlier must not take them from the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before, self._settings = "highest", []
                # A mix of torch's interfaces has no one answer.
                with suppress(RuntimeError):
                    self._before = torch.get_float32_matmul_precision()
                for part, name, _ in _EXACT:
                    with suppress(RuntimeError):
                        self._settings.append((part, name, getattr(part, name)))
                torch.set_float32_matmul_precision("highest")
                for setting in _EXACT:
                    setattr(*setting)
            self._users += 1

    def __exit__(self, *details: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                torch.set_float32_matmul_precision(self._before)
                for setting in self._settings:
                    setattr(*setting)


_FULL_PRECISION = _FullPrecision()


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Keep autocast, TF32 and bfloat16 away: the margins of norms cover float32."""
    device = next(model.parameters()).device.type
    with _FULL_PRECISION, torch.autocast(device, enabled=False):
        yield


def added_at(x: Tensor, dim: int, index: Tensor, values: Tensor) -> Tensor:
    """Add values to x at places of one of its axes, in an order that repeats itself."""
    if x.device.type == "cpu":
        return x.index_add_(dim, index, values)
    # `index_add_` would add in whatever order the device's threads come.
    x.movedim(dim, 0).index_put_((index,), values.movedim(dim, 0), accumulate=True)
    return x
