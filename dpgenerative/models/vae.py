"""PriVAE's model: a variational autoencoder over the cells of a mixed-type table.

The encoder sees every column by the functions of its cells that the flow's conditioner
sees, and returns a diagonal Gaussian q(z | x). The decoder returns, for a point z,
coefficients of the same functions, which are offsets to the released masses:
``P(cell k of column j | z) = softmax(log pi_j + o_j(z))_k``. Its last layers start at
zero, so that the untrained model is the product of the private marginals.

With a *condition*, one column keeps its released marginal, whatever z is, and the
decoder sees its cell beside z: ``p(x, y) = pi(y) E_z p(x | z, y)``.

Every layer treats its records apart, and has a closed form in `privacy.gradients`; the
L draws of a record are L positions of one record there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpgenerative.layers import MaskedLinear
from dpgenerative.models.cells import CellFacts, Cells, Clamp, Rake
from dpgenerative.models.divergences import Latents
from dpgenerative.models.priors import (
    GaussianMixture,
    GaussianPrior,
    NormalPrior,
    Prior,
    log_normal,
)
from dpgenerative.privacy.latents import ReleasedMoments

LOG_VARIANCE_BOUND = 5.0
"""Log-variances of the posterior lie within this distance of 0."""
FEATURE_GAIN = 2.0
"""Size of what the encoder sees of a row."""
HIDDEN_GAIN = 2.0
"""Size of a row's hidden activations."""
INITIAL_MEAN = 1.5
"""Size of every posterior mean before training, at most."""
LEAST_VARIANCE = 0.01
"""Least variance of a fitted prior in any direction."""
MAIN_AXES = 4
"""Axes of the latent space whose orthants have a Gaussian each, in a mixture."""


class Encoder(nn.Module):
    """From functions of the cells to mean and log-variance of the latents.

    Parameters
    ----------
    n_columns, n_features, hidden_units, latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        n_columns: int,
        n_features: int,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.hidden = MaskedLinear.dense(n_features, hidden_units)
        self.output = MaskedLinear.dense(hidden_units, 2 * latent_dim)
        self.scale = FEATURE_GAIN / math.sqrt(n_columns)
        self.gain = HIDDEN_GAIN / math.sqrt(hidden_units)
        with torch.no_grad():
            # The features of a column have size 1: so have the sums and the means.
            self.hidden.weight.normal_(0, 1 / FEATURE_GAIN, generator=generator)
            means = self.output.weight[:latent_dim]
            means.normal_(0, INITIAL_MEAN / HIDDEN_GAIN, generator=generator)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k)."""
        hidden = self.gain * self.hidden(self.scale * features).tanh()
        mean, raw = self.output(hidden).chunk(2, dim=1)
        return mean, LOG_VARIANCE_BOUND * (raw / LOG_VARIANCE_BOUND).tanh()


class Decoder(nn.Module):
    """From latents to coefficients of the functions of the cells.

    Parameters
    ----------
    latent_dim, hidden_units, n_features : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        latent_dim: int,
        hidden_units: int,
        n_features: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.skip = MaskedLinear.dense(latent_dim, n_features)
        self.hidden = MaskedLinear.dense(latent_dim, hidden_units)
        self.output = MaskedLinear.dense(hidden_units, n_features)
        self.gain = HIDDEN_GAIN / math.sqrt(hidden_units)
        with torch.no_grad():
            scale = 1 / math.sqrt(latent_dim)
            self.hidden.weight.normal_(0, scale, generator=generator)
            self.hidden.bias.normal_(0, 0.5, generator=generator)

    def forward(self, z: Tensor) -> Tensor:
        """Return coefficients, (..., sum m_j)."""
        hidden = self.gain * self.hidden(z).tanh()
        out: Tensor = self.skip(z) + self.output(hidden)
        return out


class Autoencoder(nn.Module):
    """Bound of the density, from an encoder and the density of what is decoded.

    A model of something in particular (`VAE`, `models.images.ImageVAE`) states `encode`
    and `_log_decoded`.

    Parameters
    ----------
    latent_dim : int
        Number of latents k.
    prior : Prior
        Law of the latents that training assumes.
    beta : float
        Weight of the divergence of a record's posterior from the prior.
    """

    def __init__(self, latent_dim: int, prior: Prior, beta: float) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.prior = prior
        self.law = prior
        self.beta = beta

    @property
    def n_numbers(self) -> int:
        """How many numbers the decoder says of one record."""
        raise NotImplementedError

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of every row, both (n, k)."""
        raise NotImplementedError

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        """Return log p(x | z) of every row and draw, (n, L), for z of (n, L, k)."""
        raise NotImplementedError

    def latents(self, rows: Tensor, noise: Tensor) -> Latents:
        """Return posteriors, and a draw for every standard normal in (n, L, k)."""
        mean, log_variance = self.encode(rows)
        spread = (log_variance / 2).exp().unsqueeze(1)
        return Latents(mean.unsqueeze(1) + spread * noise, mean, log_variance)

    def forward(self, rows: Tensor, noise: Tensor) -> tuple[Tensor, Latents]:
        """Return the bound of every row's log-probability, and its latents.

        Parameters
        ----------
        rows : Tensor of shape (n, ...)
        noise : Tensor of shape (n, L, k)
            Standard normals, one per draw.

        Returns
        -------
        bound : Tensor of shape (n,)
            ``E_q[log p(x | z)] - beta KL(q(z | x) || p(z))`` over the L draws; in
            closed form what has one.
        latents : Latents
        """
        latents = self.latents(rows, noise)
        decoded = self._log_decoded(rows, latents.draws).mean(1)
        return decoded - self.beta * self._divergence(latents), latents

    def _divergence(self, latents: Latents) -> Tensor:
        """Return KL(q(z | x) || p(z)) of every row, from its draws if need be."""
        mean, log_variance = latents.mean, latents.log_variance
        if isinstance(self.prior, NormalPrior):
            terms = mean.square() + log_variance.exp() - 1 - log_variance
            return 0.5 * terms.sum(1)
        return (_log_posterior(latents) - self.prior.log_prob(latents.draws)).mean(1)

    def log_likelihood(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Return the importance-weighted bound (Burda et al. 2016), shape (n,).

        It rises with the number of draws towards the log-probability under the law
        that `sample` draws from.
        """
        latents = self.latents(rows, noise)
        weights = self._log_decoded(rows, latents.draws)
        weights = weights + self.law.log_prob(latents.draws) - _log_posterior(latents)
        return torch.logsumexp(weights, 1) - math.log(noise.shape[1])

    def _drawn(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw latents from the law."""
        return self.law.sample(n, generator).to(next(self.parameters()))


class VAE(Autoencoder):
    """Bound of the density, encoder and sampler of rows of cells.

    Parameters
    ----------
    facts : sequence of CellFacts
        One per column.
    n_basis : int
        Number of smooth functions per ordered column.
    hidden_units : int
        Width of the hidden layers of encoder and decoder.
    latent_dim : int
        Number of latents k.
    prior : Prior
        Law of the latents that training assumes.
    beta : float
        Weight of the divergence of a record's posterior from the prior.
    generator : torch.Generator
        Source of the initial weights.
    condition : int, optional
        Column that the decoder is told.
    """

    free: Tensor

    def __init__(
        self,
        facts: Sequence[CellFacts],
        *,
        n_basis: int,
        hidden_units: int,
        latent_dim: int,
        prior: Prior,
        beta: float,
        generator: torch.Generator,
        condition: int | None = None,
    ) -> None:
        super().__init__(latent_dim, prior, beta)
        self.cells = Cells(facts, n_basis)
        self.condition = condition
        n_features = sum(self.cells.widths)
        n_told = 0 if condition is None else self.cells.widths[condition]
        self.encoder = Encoder(
            len(facts), n_features, hidden_units, latent_dim, generator
        )
        self.decoder = Decoder(latent_dim + n_told, hidden_units, n_features, generator)
        free = torch.ones(len(facts))
        if condition is not None:
            free[condition] = 0
        widths = torch.tensor(self.cells.widths)
        self.register_buffer("free", free.repeat_interleave(widths))

    @property
    def n_numbers(self) -> int:
        """How many cells there are."""
        return sum(self.cells.n_cells)

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of every row of cells, (n, k)."""
        mean, log_variance = self.encoder(self.cells.features(rows.long()))
        return mean, log_variance

    def _coefficients(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Return what the decoder says of every z in (..., k), told the cells given."""
        if self.condition is not None:
            told = self.cells.inputs(self.condition)[labels]
            z = torch.cat([z, told], -1)
        out: Tensor = self.decoder(z) * self.free
        return out

    def log_probs(self, z: Tensor, labels: Tensor | None = None) -> list[Tensor]:
        """Return log p(cell | z) of every column, (n, n_cells), for z of (n, k).

        `labels` are cells of the condition, shape (n,), where there is one.
        """
        return self.cells.log_probs_of(self._coefficients(z, labels))

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        n, n_draws, _ = z.shape
        codes = rows.long()
        labels = None
        if self.condition is not None:
            labels = codes[:, [self.condition]].expand(n, n_draws)
        coefficients = self._coefficients(z, labels).flatten(0, 1)
        codes = codes.repeat_interleave(n_draws, 0)
        return self.cells.log_prob(coefficients, codes).view(n, n_draws)

    # Samples --------------------------------------------------------------------

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the cells of n rows, (n, d)."""
        return self.decode(self._drawn(n, generator), generator)

    @torch.no_grad()
    def sample_given(
        self, n: int, generator: torch.Generator, given: Mapping[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw the cells of n rows, some columns of which are given.

        Parameters
        ----------
        n : int
        generator : torch.Generator
        given : mapping from column to Tensor of shape (n or 1, n_cells)
            Log of the part of every cell that is allowed.

        Returns
        -------
        codes : Tensor of shape (n, d)
        log_weights : Tensor of shape (n,)
            See `Clamp`; 0 if no column but the condition is given.
        """
        z = self._drawn(n, generator)
        labels = None
        if self.condition is not None and self.condition in given:
            allowed = self.cells.base(self.condition) + given[self.condition]
            masses = allowed.softmax(1).expand(n, -1)
            labels = torch.multinomial(masses, 1, generator=generator)[:, 0]
            given = {j: each for j, each in given.items() if j != self.condition}
        clamp = Clamp(given, is_constant=False)
        return self.decode(z, generator, labels, clamp), clamp.log_weights

    def _labels(self, n: int, generator: torch.Generator) -> Tensor | None:
        """Draw cells of the condition from its released marginal."""
        if self.condition is None:
            return None
        masses = self.cells.base(self.condition).exp()
        return torch.multinomial(masses, n, replacement=True, generator=generator)

    @torch.no_grad()
    def decode(
        self,
        z: Tensor,
        generator: torch.Generator,
        labels: Tensor | None = None,
        clamp: Clamp | None = None,
    ) -> Tensor:
        """Draw the cells of one row per point z, (n, d): drawn, not the likeliest."""
        if labels is None:
            labels = self._labels(len(z), generator)
        draws = torch.rand(
            len(z), self.cells.n_columns, generator=generator, device=z.device
        )
        codes = []
        for j, log_probs in enumerate(self.log_probs(z, labels)):
            if clamp is not None:
                log_probs = clamp(self.cells, j, log_probs)
            steps = log_probs.exp().cumsum(1)
            u = draws[:, j : j + 1] * steps[:, -1:]
            codes.append((u >= steps[:, :-1]).sum(1))
        if self.condition is not None and labels is not None:
            codes[self.condition] = labels
        return torch.stack(codes, 1)

    @torch.no_grad()
    def rake(self, n: int, generator: torch.Generator) -> None:
        """Bring the model's marginals back to the released ones, on n own latents."""
        rake = Rake(soft=True)
        z = self._drawn(n, generator)
        labels = self._labels(n, generator)
        for j, log_probs in enumerate(self.log_probs(z, labels)):
            rake(self.cells, j, log_probs)


@dataclass(frozen=True)
class LatentCells:
    """Cells of the latent space: the orthants of the main axes of a released law.

    Attributes
    ----------
    centre : Tensor of shape (k,)
    axes : Tensor of shape (k, a)
        The directions of largest variance.
    """

    centre: Tensor
    axes: Tensor

    @classmethod
    def of_law(cls, law: GaussianPrior) -> LatentCells:
        """Return the cells of the first `MAIN_AXES` axes, or of fewer latents."""
        root = law.root.double()
        _, vectors = torch.linalg.eigh(root @ root.T)
        return cls(law.mean.double(), vectors.flip(1)[:, :MAIN_AXES])

    @property
    def count(self) -> int:
        """Number of cells."""
        return 2 ** int(self.axes.shape[1])

    def of(self, z: Tensor) -> Tensor:
        """Return the cell of every point of (n, k)."""
        sides = (z - self.centre.to(z)) @ self.axes.to(z) > 0
        places = 2 ** torch.arange(sides.shape[1], device=z.device)
        return (sides * places).sum(1)


def _log_posterior(latents: Latents) -> Tensor:
    """Return log q(z | x) of every draw, (n, L)."""
    mean, log_variance = latents.mean.unsqueeze(1), latents.log_variance.unsqueeze(1)
    return log_normal(latents.draws, mean, log_variance)


def gaussian_of_moments(released: ReleasedMoments) -> GaussianPrior:
    """Return the Gaussian of released moments, nearer to N(0, I) the more noise.

    Mean and covariance are drawn towards 0 and I by the factor ``1 / (1 + s^2)``, s the
    standard deviation of the noise of their entries; no spread is below
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
    law: GaussianPrior, released: ReleasedMoments
) -> GaussianMixture:
    """Return one Gaussian per cell, of the released means and one covariance.

    What the means leave of the law's covariance is shared by all cells. A mean is drawn
    towards the law's by the factor ``1 / (1 + s^2)``, s the standard deviation of its
    noise, so that cells of mostly noise leave the law as it is.

    Parameters
    ----------
    law : GaussianPrior
        `gaussian_of_moments` of all rows.
    released : ReleasedMoments
        By cell of the law; none has more rows than the released row count.
    """
    moments, radius, std = released.values, released.radius, released.std
    counts = np.clip(moments[:, :1], 1.0, released.n_rows)
    centre, root = law.mean.double().numpy(), law.root.double().numpy()
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
