"""How few latents describe a record."""

import math
from typing import Any

import numpy as np


def hoyer_sparsity(latents: Any) -> float:
    """Return the mean Hoyer sparsity of latents, each over its standard deviation.

    Of a row y of k latents it is ``(sqrt(k) - |y|_1 / |y|_2) / (sqrt(k) - 1)``: 1 where
    one latent alone differs from 0, 0 where all are equally far from it.

    Parameters
    ----------
    latents : array-like of shape (n, k), k >= 2
        Such as what `encode` of an autoencoder returns. Latents that are constant count
        as 0; rows of zeros alone are left out.

    Returns
    -------
    float in [0, 1]

    Raises
    ------
    ValueError
        If `latents` are not finite numbers of that shape, or all the same.

    References
    ----------
    Takahashi, Takagi, Ono and Komatsu, "Differentially Private Variational Autoencoders
    with Term-wise Gradient Aggregation" (2020), equation (17); Mathieu et al. (2019).

    Examples
    --------
    >>> hoyer_sparsity([[1.0, 0.0], [0.0, 1.0]])
    1.0
    """
    values = np.asarray(latents, dtype=float)
    if values.ndim != 2 or values.shape[1] < 2 or not len(values):
        raise ValueError(
            "hoyer_sparsity takes latents of shape (n, k) with n >= 1 and k >= 2; got "
            f"shape {values.shape}."
        )
    if not np.isfinite(values).all():
        raise ValueError(
            "hoyer_sparsity takes latents without missing or infinite ones."
        )
    spread = np.ptp(values, axis=0) > 0
    y = values[:, spread] / values[:, spread].std(axis=0, ddof=1)
    length = np.linalg.norm(y, axis=1)
    if not length.any():
        raise ValueError("hoyer_sparsity takes latents that differ between rows.")
    ratios = np.abs(y[length > 0]).sum(axis=1) / length[length > 0]
    root = math.sqrt(values.shape[1])
    return float(((root - ratios) / (root - 1)).mean())
