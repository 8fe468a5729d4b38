"""Distributions of the latents: objects with a log-density and a sampler.

A prior is any object with the two methods of `Prior`: no base class, no registry. Its
numbers are public: nothing in it may be computed from private rows. The log-density of
a point must depend on this point alone, and the object must keep nothing of it; `fit`
tests both on made-up points. ::

    class Laplace:
        def __init__(self, dim):
            self.base = torch.distributions.Laplace(torch.zeros(dim), torch.ones(dim))

        def log_prob(self, z):
            return self.base.log_prob(z).sum(-1)

        def sample(self, n, generator=None):
            u = torch.rand(n, len(self.base.mean), generator=generator)
            return self.base.icdf(u)
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dpgenerative._validation import check_number
from dpgenerative.privacy.latents import ReleasedMoments

_LOG_2PI = math.log(2 * math.pi)
LEAST_VARIANCE = 0.01
"""Least variance of a fitted distribution in any direction."""
MAIN_AXES = 4
"""Axes of the latent space whose orthants have a Gaussian each, in a mixture."""
_SPREAD = 0.2
"""Variance of a Gaussian of `MixturePrior.on_axes`, along the axes that have some."""


class Prior(Protocol):
    """Interface of a distribution of the latents."""

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k), float32, on the generator's device."""


def log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the log-density of a diagonal Gaussian, summed over the last axis."""
    squares = (z - mean).square() * (-log_variance).exp()
    return -0.5 * (squares + log_variance + _LOG_2PI).sum(-1)


def normals(generator: torch.Generator | None, *shape: int) -> Tensor:
    """Return standard normals, on the generator's device."""
    device = "cpu" if generator is None else generator.device
    return torch.randn(shape, generator=generator, device=device)


@dataclass(frozen=True)
class NormalPrior:
    """N(0, I).

    Parameters
    ----------
    dim : int
        Number of latents k.

    Examples
    --------
    >>> NormalPrior(2).sample(3).shape
    torch.Size([3, 2])
    """

    dim: int

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        return -0.5 * (z.square() + _LOG_2PI).sum(-1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        return normals(generator, n, self.dim)


@dataclass(frozen=True)
class SparsePrior:
    """Spike and slab: ``prod_d (1 - gamma) N(0, 1) + gamma N(0, spike_variance)``.

    The defaults are those of Takahashi et al. (2020), section 5.1.

    Parameters
    ----------
    dim : int
        Number of latents k.
    gamma : float, default=0.8
        Probability of the spike, in (0, 1).
    spike_variance : float, default=0.05
        Positive.

    Raises
    ------
    ValueError
        If one of them is out of its range.

    Examples
    --------
    >>> draws = SparsePrior(1, gamma=0.8).sample(1000, torch.Generator().manual_seed(0))
    >>> bool(draws.abs().median() < 0.4)
    True
    """

    dim: int
    gamma: float = 0.8
    spike_variance: float = 0.05

    def __post_init__(self) -> None:
        check_number("SparsePrior", "gamma", self.gamma, low=0, high=1)
        check_number("SparsePrior", "spike_variance", self.spike_variance, low=0)

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        squares, v = z.square(), self.spike_variance
        slab = math.log1p(-self.gamma) - 0.5 * squares
        spike = math.log(self.gamma / math.sqrt(v)) - 0.5 * squares / v
        return (torch.logaddexp(slab, spike) - 0.5 * _LOG_2PI).sum(-1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        z = normals(generator, n, self.dim)
        spike = torch.rand(z.shape, generator=generator, device=z.device) < self.gamma
        return torch.where(spike, z * math.sqrt(self.spike_variance), z)


@dataclass(frozen=True, eq=False)
class MixturePrior:
    """Mixture of Gaussians with diagonal covariances.

    Parameters
    ----------
    means : Tensor of shape (c, k)
    variances : Tensor of shape (c, k) or float
    weights : Tensor of shape (c,), optional
        None gives all components the same weight.

    Examples
    --------
    >>> prior = MixturePrior(torch.tensor([[-9.0], [9.0]]), 0.01)
    >>> prior.sample(1000, torch.Generator().manual_seed(0)).abs().mean().round().item()
    9.0
    """

    means: Tensor
    variances: Tensor | float
    weights: Tensor | None = None

    @classmethod
    def on_axes(cls, dim: int) -> "MixturePrior":
        """Return two Gaussians on each of the first four axes, or on all of fewer.

        With m such axes, means lie at plus and minus ``sqrt(0.8 m)`` and variances are
        0.2 on these axes and 1 on others: the mixture has mean 0 and covariance I.

        Parameters
        ----------
        dim : int
            Number of latents k.
        """
        m = min(dim, 4)
        axes = math.sqrt((1 - _SPREAD) * m) * torch.eye(dim)[:m]
        variances = torch.ones(2 * m, dim)
        variances[:, :m] = _SPREAD
        return cls(torch.cat([axes, -axes]), variances)

    def _components(self) -> tuple[Tensor, Tensor, Tensor]:
        means = torch.as_tensor(self.means, dtype=torch.float32)
        variances = torch.as_tensor(self.variances, dtype=torch.float32)
        weights = means.new_ones(len(means)) if self.weights is None else self.weights
        weights = torch.as_tensor(weights, dtype=torch.float32)
        return means, variances.expand_as(means), weights / weights.sum()

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        means, variances, weights = (x.to(z) for x in self._components())
        parts = log_normal(z.unsqueeze(-2), means, variances.log())
        return torch.logsumexp(parts + weights.log(), -1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        z = normals(generator, n, self.means.shape[1])
        means, variances, weights = (x.to(z.device) for x in self._components())
        which = torch.multinomial(weights, n, True, generator=generator)
        return means[which] + variances[which].sqrt() * z


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """Gaussian of any mean and covariance, as fitted to released moments.

    Parameters
    ----------
    mean : Tensor of shape (k,)
    root : Tensor of shape (k, k)
        Lower triangular Cholesky factor of the covariance.

    Examples
    --------
    >>> prior = GaussianPrior(torch.zeros(1), torch.tensor([[2.0]]))
    >>> round(prior.log_prob(torch.zeros(1)).exp().item(), 4)
    0.1995
    """

    mean: Tensor
    root: Tensor

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        mean, root = self.mean.to(z), self.root.to(z)
        flat = (z - mean).reshape(-1, len(mean))
        white = torch.linalg.solve_triangular(root, flat.T, upper=False).T
        log_det = root.diagonal().log().sum()
        log_prob = -0.5 * (white.square() + _LOG_2PI).sum(-1) - log_det
        return log_prob.view(z.shape[:-1])

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        z = normals(generator, n, len(self.mean))
        return self.mean.to(z) + z @ self.root.to(z).T


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Mixture of Gaussians of one covariance, as fitted to released moments of cells.

    Parameters
    ----------
    means : Tensor of shape (c, k)
    root : Tensor of shape (k, k)
        Lower triangular Cholesky factor of the covariance.
    weights : Tensor of shape (c,)
        They add up to 1.
    """

    means: Tensor
    root: Tensor
    weights: Tensor

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        around = GaussianPrior(torch.zeros_like(self.root[0]), self.root)
        parts = around.log_prob(z.unsqueeze(-2) - self.means.to(z))
        return torch.logsumexp(parts + self.weights.to(z).log(), -1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        z = normals(generator, n, self.means.shape[1])
        weights = self.weights.to(z.device)
        which = torch.multinomial(weights, n, True, generator=generator)
        return self.means.to(z)[which] + z @ self.root.to(z).T


# Fitted to released moments ---------------------------------------------------


@dataclass(frozen=True)
class LatentCells:
    """Cells of the latent space: the orthants of the main axes of a released Gaussian.

    Attributes
    ----------
    centre : Tensor of shape (k,)
    axes : Tensor of shape (k, a)
        The directions of largest variance.
    """

    centre: Tensor
    axes: Tensor

    @classmethod
    def of_gaussian(cls, gaussian: GaussianPrior) -> "LatentCells":
        """Return the orthants of the first `MAIN_AXES` axes, or of all of fewer."""
        root = gaussian.root.double()
        _, vectors = torch.linalg.eigh(root @ root.T)
        return cls(gaussian.mean.double(), vectors.flip(1)[:, :MAIN_AXES])

    @property
    def count(self) -> int:
        """Number of cells."""
        return 2 ** int(self.axes.shape[1])

    def of(self, z: Tensor) -> Tensor:
        """Return the cell of every point of (n, k)."""
        sides = (z - self.centre.to(z)) @ self.axes.to(z) > 0
        places = 2 ** torch.arange(sides.shape[1], device=z.device)
        return (sides * places).sum(1)


def gaussian_of_moments(released: ReleasedMoments) -> GaussianPrior:
    """Return the Gaussian of released moments, nearer to N(0, I) the more noise.

    Mean and covariance are shrunk towards 0 and I by the factor ``1 / (1 + s^2)``, s
    the standard deviation of the noise of their entries; no variance is below
    `LEAST_VARIANCE`.

    Parameters
    ----------
    released : ReleasedMoments
        Of all rows.
    """
    moments, radius, std = released.values, released.radius, released.std
    k = math.isqrt(len(moments))
    count = max(moments[0], 1.0)
    noise = std / count
    mean = radius * moments[1 : k + 1] / count / (1 + (noise * radius) ** 2)
    second = radius**2 * moments[k + 1 :].reshape(k, k) / count
    covariance = (second + second.T) / 2 - np.outer(mean, mean)
    covariance += (np.eye(k) - covariance) * (1 - 1 / (1 + (noise * radius**2) ** 2))
    return GaussianPrior(torch.from_numpy(mean).float(), _root(covariance, radius))


def mixture_of_moments(
    gaussian: GaussianPrior, released: ReleasedMoments
) -> GaussianMixture:
    """Return one Gaussian per cell, of the released means and one covariance.

    The cells share what their means leave of the Gaussian's covariance. A mean is
    shrunk towards the Gaussian's by the factor ``1 / (1 + s^2)``, s the standard
    deviation of its noise, so that cells of mostly noise leave the Gaussian as it is.

    Parameters
    ----------
    gaussian : GaussianPrior
        `gaussian_of_moments` of all rows.
    released : ReleasedMoments
        By cell of that Gaussian; none has more rows than the released row count.
    """
    moments, radius, std = released.values, released.radius, released.std
    counts = np.clip(moments[:, :1], 1.0, released.n_rows)
    centre, root = gaussian.mean.double().numpy(), gaussian.root.double().numpy()
    drawn = 1 + (std * radius / counts) ** 2
    offsets = (radius * moments[:, 1:] / counts - centre) / drawn
    weights = counts[:, 0] / counts.sum()
    around = offsets - weights @ offsets
    covariance = root @ root.T - (weights[:, None] * around).T @ around
    shared = _root(covariance, radius)
    means = torch.from_numpy(centre + offsets).float()
    return GaussianMixture(means, shared, torch.from_numpy(weights).float())


def _root(covariance: np.ndarray, radius: float) -> Tensor:
    """Return the Cholesky factor of a covariance of bounded spreads."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.clip(values, LEAST_VARIANCE, radius**2)
    root = np.linalg.cholesky((vectors * values) @ vectors.T)
    return torch.from_numpy(root).float()
