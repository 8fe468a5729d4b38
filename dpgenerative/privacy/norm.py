"""The release of a clipping norm: the median norm of per-example gradients."""

import numpy as np
import torch
from torch import nn

from dpgenerative.privacy.gradients.core import layer_gradients
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import Release
from dpgenerative.privacy.precision import full_precision
from dpgenerative.privacy.steps import Chunk, Objective, recorded, without_unusable
from dpgenerative.tables.rows import Chunks

NORM = Release(
    "norm",
    "clipping norm (quantile of a noisy histogram, noise multiplier {multiplier})",
    "norm",
)
NORM_SHARE = 0.01
"""Share of the budget that estimates the clipping norm, where that is asked for."""


def estimate_norm(
    model: nn.Module,
    objective: Objective,
    chunks: Chunks[Chunk],
    mechanisms: Mechanisms,
    noise_multiplier: float,
) -> float:
    """Release the median of the norms of per-example gradients.

    One histogram over a fixed geometric grid; a row counts in one cell, so that the
    release is a Gaussian mechanism of the noise multiplier given.

    Parameters
    ----------
    chunks : Chunks of (indices, present)
        All private rows (`sampling.whole_pass`).
    noise_multiplier : float

    Returns
    -------
    float
        The upper end of a grid cell.
    """
    edges = np.geomspace(1e-4, 1e4, 81)

    def count(chunk: Chunk) -> np.ndarray:
        with full_precision(model):
            calls, loss, _ = recorded(model, objective, chunk)
            layers = layer_gradients(model, calls, loss, len(chunk[0]))
            usable = chunk[1] & without_unusable(layers)
            squares = torch.stack([layer.squared_norms()[0] for layer in layers]).sum(0)
        cells = np.searchsorted(edges, squares.sqrt()[usable].cpu().numpy())
        return np.bincount(cells, minlength=len(edges) + 1)

    released = mechanisms.gaussian(
        chunks.total(count), noise_multiplier, release=NORM.name, sensitivity=1.0
    )
    noisy = np.maximum(released, 0)
    shares = np.cumsum(noisy) / max(noisy.sum(), 1e-12)
    cell = int(np.searchsorted(shares, 0.5))
    return float(edges[min(cell, len(edges) - 1)])
