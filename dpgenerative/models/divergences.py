"""Batch-wise divergences between the images of a partition and N(0, I)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CAUCHY_SCALES = (0.2, 0.4, 1.0, 2.0, 4.0, 10.0)
_N_NODES = 64


def mmd(z: Tensor) -> Tensor:
    """Squared maximum mean discrepancy to N(0, 1), summed over dimensions.

    Kernel: a sum of Cauchy kernels ``s / (s + (x - y)^2)`` over six scales (the scales
    of Takahashi et al. 2020, section 5.1). The normal law is represented by its
    quantiles at 64 equal masses, so that the value is deterministic.

    Parameters
    ----------
    z : Tensor of shape (m, d)
        Images of one partition, m >= 1.

    Returns
    -------
    Tensor of shape ()
    """
    masses = (torch.arange(_N_NODES, device=z.device, dtype=z.dtype) + 0.5) / _N_NODES
    nodes = torch.special.ndtri(masses)

    def kernel(squares: Tensor) -> Tensor:
        return sum(
            (s / (s + squares) for s in CAUCHY_SCALES), torch.zeros_like(squares)
        )

    own = kernel((z.unsqueeze(0) - z.unsqueeze(1)).square()).mean((0, 1))
    cross = kernel((z.unsqueeze(0) - nodes.view(-1, 1, 1)).square()).mean((0, 1))
    prior = kernel((nodes.unsqueeze(0) - nodes.unsqueeze(1)).square()).mean()
    return (own - 2 * cross + prior).sum()


DIVERGENCES: dict[str, Callable[[Tensor], Tensor]] = {"mmd": mmd}
