"""The arithmetic that margins of norms, and fits that are repeated, count on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch
from torch import Tensor, nn
from torch.backends import cudnn


class _FullPrecision:
    """The settings of products and convolutions that all threads share, and who asks.

    The first thread to enter changes them, and the last to leave changes them back: one
    that leaves earlier must not take them from the others.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = "highest"

    def __enter__(self) -> None:
        with self._lock:
            if self._users == 0:
                # A mix of torch's interfaces has no one answer.
                with suppress(RuntimeError):
                    self._before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("highest")
                # Those of cuDNN have a TF32 of their own, and sums in any order.
                self._cudnn = cudnn.flags(
                    cudnn.enabled, benchmark=False, deterministic=True, allow_tf32=False
                )
                self._cudnn.__enter__()
            self._users += 1

    def __exit__(self, *details: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._cudnn.__exit__(None, None, None)
                torch.set_float32_matmul_precision(self._before)
                self._before = "highest"


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
