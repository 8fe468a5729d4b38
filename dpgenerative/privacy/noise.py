"""Noise: every number that leaves the private rows passes through `Mechanisms`.

Formal guarantees
-----------------
`count` is epsilon-DP for adding or removing one row. `gaussian` adds independent
N(0, std^2) to every entry, whatever the entries are; with std = z * sensitivity it is
the Gaussian mechanism of noise multiplier z. `thresholded` is that mechanism on counts
whose *keys* are private: a key present in one row only survives with probability
P(N(0, std^2) > threshold - 1).

Edge cases: empty arrays come back empty; std = 0 means no privacy and adds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

Key = tuple[str, str | bool | int | float]
"""Type name and value of a string or number found in a column."""


class Mechanisms:
    """The one door through which statistics of the rows are released.

    Parameters
    ----------
    rng : numpy.random.Generator
        Noise of counts and histograms.
    gradients : numpy.random.Generator or torch.Generator
        Noise of gradients. On a CPU the former: torch's generator there keeps 32 bits
        of its seed, which an adversary can search. On CUDA the latter, which keeps 64.
    """

    def __init__(
        self,
        rng: np.random.Generator,
        gradients: np.random.Generator | torch.Generator,
    ) -> None:
        self._rng = rng
        self._gradients = gradients

    def count(self, n: int, epsilon: float) -> int:
        """Release a row count by the two-sided geometric mechanism; at least 1."""
        if math.isinf(epsilon):
            return max(1, n)
        p = -math.expm1(-epsilon)
        up, down = self._rng.geometric(p, size=2)
        return max(1, n + int(up) - int(down))

    def gaussian(self, values: np.ndarray, std: float) -> np.ndarray:
        """Release an array with independent Gaussian noise on every entry."""
        return np.asarray(values, float) + self._rng.normal(0.0, std, np.shape(values))

    def thresholded(
        self, counts: Mapping[Key, int], std: float, threshold: float
    ) -> dict[Key, float]:
        """Release the keys whose noisy count exceeds a threshold, in sorted order."""
        keys = sorted(counts, key=lambda key: (type(key).__name__, str(key)))
        noisy = self.gaussian(np.array([counts[key] for key in keys], float), std)
        pairs = zip(keys, noisy.tolist(), strict=True)
        return {key: value for key, value in pairs if value > threshold}

    def gradient(self, sums: Sequence[Tensor], stds: Sequence[float]) -> list[Tensor]:
        """Release gradient sums; parameter k gets N(0, stds[k]^2) on every entry."""
        noises = self._normal(sum(x.numel() for x in sums), sums[0].device)
        pieces = torch.split(noises, [x.numel() for x in sums])
        return [
            torch.add(x, noise.view_as(x).to(x.dtype), alpha=std)
            for x, std, noise in zip(sums, stds, pieces, strict=True)
        ]

    def _normal(self, n: int, device: torch.device) -> Tensor:
        """Draw n standard normals in float64."""
        if isinstance(self._gradients, torch.Generator):
            draws = torch.empty(n, dtype=torch.float64, device=device)
            return draws.normal_(0.0, 1.0, generator=self._gradients)
        return torch.from_numpy(self._gradients.standard_normal(n)).to(device)


def threshold_for(std: float, delta: float, n_releases: int) -> float:
    """Return the threshold of `Mechanisms.thresholded` that costs `delta` in all.

    With k releases of which one row touches one key each, the cost is
    ``1 - (1 - p)^k`` with ``p = P(N(0, std^2) > threshold - 1)``.
    """
    from scipy.stats import norm

    p = -math.expm1(math.log1p(-delta) / n_releases)
    return float(1 + std * norm.isf(p))
