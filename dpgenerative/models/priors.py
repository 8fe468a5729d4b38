"""Laws of the latent space: objects with a log-density and a sampler.

A prior is any object that satisfies `Prior`: two methods, no base class, no registry.
Its numbers are public: nothing in it may be computed from private rows. The log-density
of a point depends on this point alone, and nothing is kept of it: `probing` tries. ::

    class Laplace:
        def __init__(self, dim):
            self.law = torch.distributions.Laplace(torch.zeros(dim), torch.ones(dim))

        def log_prob(self, z):
            return self.law.log_prob(z).sum(-1)

        def sample(self, n, generator=None):
            u = torch.rand(n, len(self.law.mean), generator=generator)
            return self.law.icdf(u)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_LOG_2PI = math.log(2 * math.pi)
_SPREAD = 0.2
"""Variance of a Gaussian of `MixturePrior.on_axes`, along the axes that have some."""


class Prior(Protocol):
    """What a law of the latent space must be able to do."""

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k), float32, on the generator's device."""


def log_normal(z: Tensor, mean: Tensor, log_variance: Tensor) -> Tensor:
    """Return the log-density of a diagonal Gaussian, summed over the last axis."""
    squares = (z - mean).square() * (-log_variance).exp()
    return -0.5 * (squares + log_variance + _LOG_2PI).sum(-1)


def _normals(n: int, k: int, generator: torch.Generator | None) -> Tensor:
    device = "cpu" if generator is None else generator.device
    return torch.randn(n, k, generator=generator, device=device)


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
        return _normals(n, self.dim, generator)


@dataclass(frozen=True)
class SparsePrior:
    """Spike and slab: ``prod_d (1 - gamma) N(0, 1) + gamma N(0, spike_variance)``.

    The defaults are those of Takahashi et al. (2020), section 5.1.

    Parameters
    ----------
    dim : int
        Number of latents k.
    gamma : float, default=0.8
        Probability of the spike.
    spike_variance : float, default=0.05

    Examples
    --------
    >>> draws = SparsePrior(1, gamma=0.8).sample(1000, torch.Generator().manual_seed(0))
    >>> bool(draws.abs().median() < 0.4)
    True
    """

    dim: int
    gamma: float = 0.8
    spike_variance: float = 0.05

    def log_prob(self, z: Tensor) -> Tensor:
        """Return the log-density of every point, shape (...) for (..., k)."""
        squares, v = z.square(), self.spike_variance
        slab = math.log1p(-self.gamma) - 0.5 * squares
        spike = math.log(self.gamma / math.sqrt(v)) - 0.5 * squares / v
        return (torch.logaddexp(slab, spike) - 0.5 * _LOG_2PI).sum(-1)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n points, shape (n, k)."""
        z = _normals(n, self.dim, generator)
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
        None weighs all components alike.

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
    def on_axes(cls, dim: int) -> MixturePrior:
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
        z = _normals(n, self.means.shape[1], generator)
        means, variances, weights = (x.to(z.device) for x in self._components())
        which = torch.multinomial(weights, n, replacement=True, generator=generator)
        return means[which] + variances[which].sqrt() * z


@dataclass(frozen=True, eq=False)
class GaussianPrior:
    """Gaussian of any mean and covariance: what is fitted to released moments.

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
        z = _normals(n, len(self.mean), generator)
        return self.mean.to(z) + z @ self.root.to(z).T


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """Mixture of Gaussians of one covariance: fitted to released moments of cells.

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
        z = _normals(n, self.means.shape[1], generator)
        weights = self.weights.to(z.device)
        which = torch.multinomial(weights, n, replacement=True, generator=generator)
        return self.means.to(z)[which] + z @ self.root.to(z).T
