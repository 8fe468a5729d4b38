"""Privacy losses of one step of a Poisson-sampled Gaussian mechanism."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr


@dataclass(frozen=True)
class AddedRow:
    """Privacy loss of a Poisson-sampled Gaussian mechanism where a row is added.

    That of a removed one, with the tables in each other's place: ``-log(1 - q + q
    e^((2 x - 1) / (2 z^2)))`` with x from N(0, z^2), which ends at ``-log(1 - q)``.
    """

    sampling_rate: float
    noise_multiplier: float

    def cdf(self, t: Any) -> np.ndarray:
        """Return the probability of a loss of at most t."""
        q, z = self.sampling_rate, self.noise_multiplier
        odds = np.exp(np.minimum(-np.asarray(t), 700.0)) - (1 - q)
        is_inside = odds > 0
        place = z * np.log(np.where(is_inside, odds, 1.0) / q) + 0.5 / z
        return np.where(is_inside, ndtr(-place), 1.0)


def mean_losses(q: float, z: float) -> tuple[float, float]:
    """Return the mean loss of one step where a row is removed, and where one is added.

    ``E[(1 + u) log(1 + u) - u]`` and ``E[u - log(1 + u)]``, where ``u = q expm1((2 x -
    1) / (2 z^2))`` has mean 0 for x from N(0, z^2). An error counts once per step:
    Opacus' quadrature, right to 1e-8, is not enough for a million of them.
    """
    if q >= 1:
        return 0.5 / (z * z), 0.5 / (z * z)
    mass, u = loss_quadrature(q, z)
    log = np.log1p(u)
    removed, added = (1 + u) * log - u, u - log
    return float((mass * removed).sum()), float((mass * added).sum())


def loss_quadrature(q: float, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Return points of N(0, z^2) as their masses and their u (`mean_losses`)."""
    nodes, weights = np.polynomial.legendre.leggauss(20)
    ends = np.linspace(-12 * z, 12 * z + 1, 2001)
    half = np.diff(ends)[:, None] / 2
    x = ends[:-1, None] + half * (1 + nodes)
    mass = half * weights * np.exp(-0.5 * (x / z) ** 2) / (z * math.sqrt(2 * math.pi))
    return mass, q * np.expm1((2 * x - 1) / (2 * z * z))
