"""Batch-wise divergences: of the latents of a partition from their distribution.

For the flow they are functions of a partition's latents, the points of the base space,
which are compared with N(0, I) (`DIVERGENCES`). For the autoencoder they are functions
of a partition's `Latents`, the prior, and a generator for draws (`LATENT_DIVERGENCES`).
A callable of the same arguments can take their place. Each returns a scalar that
autograd can differentiate with respect to the latents.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from dpgenerative.models.priors import Prior, log_normal

CAUCHY_SCALES = (0.2, 0.4, 1.0, 2.0, 4.0, 10.0)
_N_NODES = 64
_N_DRAWS = 256


@dataclass(frozen=True)
class Latents:
    """Posteriors of m records, as the encoder returns them, and draws from them.

    Attributes
    ----------
    draws : Tensor of shape (m, L, k)
        L reparameterised draws per record.
    mean, log_variance : Tensor of shape (m, k)
        Of the posterior q(z | x) of every record, a diagonal Gaussian.
    """

    draws: Tensor
    mean: Tensor
    log_variance: Tensor

    def log_posterior(self) -> Tensor:
        """Return log q(z | x) of every draw, (m, L)."""
        mean, log_variance = self.mean.unsqueeze(1), self.log_variance.unsqueeze(1)
        return log_normal(self.draws, mean, log_variance)


def mmd(z: Tensor) -> Tensor:
    """Squared maximum mean discrepancy to N(0, 1), summed over dimensions.

    Kernel: a sum of Cauchy kernels ``s / (s + (x - y)^2)`` over six scales (the scales
    of Takahashi et al. 2020, section 5.1).

    Parameters
    ----------
    z : Tensor of shape (m, d)
        Latents of one partition, m >= 1. N(0, 1) is represented by its quantiles at
        64 equal masses, so that the value is deterministic.

    Returns
    -------
    Tensor of shape ()
    """
    masses = torch.arange(_N_NODES, device=z.device, dtype=z.dtype) + 0.5
    nodes = torch.special.ndtri(masses / _N_NODES).unsqueeze(1)

    def mean(x: Tensor, y: Tensor) -> Tensor:
        return _kernel(x, y).mean((0, 1))

    return (mean(z, z) - 2 * mean(z, nodes) + mean(nodes, nodes)).sum()


def unbiased_mmd(draws: Tensor, nodes: Tensor) -> Tensor:
    """Estimate a discrepancy like that of `mmd`, without pairs of a record with itself.

    For partitions of two records or more, of whatever size, the expectation is the
    discrepancy of the distributions themselves; a single value can be negative. One
    record alone is compared with the nodes only.

    Parameters
    ----------
    draws : Tensor of shape (m, L, d)
        L draws of every record of one partition, m >= 1.
    nodes : Tensor of shape (n, d)
        Draws from the distribution to compare with, n >= 2.

    Returns
    -------
    Tensor of shape ()
    """
    cross = _kernel(draws.flatten(0, 1), nodes).mean((0, 1))
    within = _mean_of_pairs(draws) + _mean_of_pairs(nodes.unsqueeze(1))
    return (within - 2 * cross).sum()


def _kernel(x: Tensor, y: Tensor) -> Tensor:
    """Return the kernel of all pairs, (m, n, d), of (m, d) and (n, d)."""
    squares = (x.unsqueeze(1) - y.unsqueeze(0)).square()
    kernels = (s / (s + squares) for s in CAUCHY_SCALES)
    return sum(kernels, torch.zeros_like(squares))


def _mean_of_pairs(draws: Tensor) -> Tensor:
    """Return the mean kernel of draws of different records, (d,), of (m, L, d)."""
    m, n_draws, d = draws.shape
    if m == 1:
        return draws.new_zeros(d)
    z = draws.flatten(0, 1)
    owner = torch.arange(m, device=z.device).repeat_interleave(n_draws)
    apart = (owner.unsqueeze(1) != owner.unsqueeze(0)).unsqueeze(2)
    total = (_kernel(z, z) * apart).sum((0, 1))
    return total / (m * (m - 1) * n_draws**2)


def latent_mmd(
    latents: Latents, prior: Prior, generator: torch.Generator | None = None
) -> Tensor:
    """Return `unbiased_mmd` of a partition's draws to 64 draws from the prior."""
    nodes = prior.sample(_N_NODES, generator)
    return unbiased_mmd(latents.draws, nodes.to(latents.draws))


def prior_kl(
    latents: Latents, prior: Prior, generator: torch.Generator | None = None
) -> Tensor:
    """Estimate KL(p || q) on draws from the prior p (Takahashi et al., section 5.2).

    q is the partition's aggregate posterior, the mixture ``(1/m) sum_i q(z | x_i)``.

    Parameters
    ----------
    latents : Latents
        Of the m >= 1 records of one partition.
    prior : Prior
    generator : torch.Generator, optional
        Source of the 256 draws.

    Returns
    -------
    Tensor of shape ()
    """
    z = prior.sample(_N_DRAWS, generator).to(latents.mean)
    log_q = log_normal(z.unsqueeze(1), latents.mean, latents.log_variance)
    mixture = torch.logsumexp(log_q, 1) - math.log(len(latents.mean))
    return (prior.log_prob(z) - mixture).mean()


DIVERGENCES: dict[str, Callable[[Tensor], Tensor]] = {"mmd": mmd}
LatentDivergence = Callable[[Latents, Prior, torch.Generator | None], Tensor]
LATENT_DIVERGENCES: dict[str, LatentDivergence] = {"mmd": latent_mmd, "kl": prior_kl}
