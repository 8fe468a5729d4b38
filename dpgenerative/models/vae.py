"""Autoencoders: PriVAE's over the cells of a mixed-type table, and one over images.

The encoder takes the features of a row's cells, as the flow's conditioner does, and
returns a diagonal Gaussian q(z | x). The decoder returns, for a point z, coefficients
of the same functions of the cells, which make offsets to the released masses:
``P(cell k of column j | z) = softmax(log pi_j + o_j(z))_k``. Its last layers start at
zero, so that the untrained model is the product of the private marginals.

With a *condition*, the first column keeps its released marginal, whatever z is, and the
decoder takes its cell beside z: ``p(x, y) = pi(y) E_z p(x | z, y)``.

Measured tables add offsets to the logits of a column by the cells of columns before it
(`models.factors`). Columns are then drawn in their order, given z.

Every layer treats records independently, and has a closed form in `privacy.gradients`;
the L draws of a record are L positions of one record there.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative.models.cells import (
    EVEN_BLOCK,
    CellFacts,
    Cells,
    Clamp,
    Rake,
    even_points,
    invert_cdf,
)
from dpgenerative.models.divergences import Latents
from dpgenerative.models.factors import Correct, CountedTable, TableFactor
from dpgenerative.models.networks import Decoder, Encoder, Shape
from dpgenerative.models.priors import NormalPrior, Prior, log_normal
from dpgenerative.models.probing import moved

HEADS = ("bernoulli", "gaussian")
DECODED = 2**20
"""Pixels that are decoded at a time."""
DRAWN = 2**13
"""Rows that are drawn at a time to compare tables with."""
FEW_RAKED = 100
"""Rows of which a sample's own correction is half of what brings its marginals to the
released ones."""


class RakeSample(Rake):
    """Bring the marginals of one sample near the released ones; the model stays.

    Of n rows it is ``n / (n + FEW_RAKED)`` of the correction: with all of it, the cells
    of a few rows would not depend on their latents.
    """

    def __init__(self) -> None:
        super().__init__(soft=True)

    def __call__(self, block: Cells, j: int, logits: Tensor, u: Tensor) -> Tensor:
        """Return the corrected logits of column j."""
        correction = self.correction(block.log_masses[block.cells(j)], logits, u)
        return logits + len(logits) / (len(logits) + FEW_RAKED) * correction


class Autoencoder(nn.Module):
    """Lower bound of a density, from an encoder and the density of what is decoded.

    Subclasses define `encode`, `decode` and `_log_decoded`, and set `n_numbers`.

    Parameters
    ----------
    latent_dim : int
        Number of latents k.
    prior : Prior
        Distribution of the latents that training assumes.
    beta : float
        Weight of the divergence of a record's posterior from the prior.

    Attributes
    ----------
    latent_distribution : Prior
        Distribution of the latents that samples and scores use: the prior, until one is
        fitted.
    n_numbers : int
        How many numbers the decoder returns for one record: cells, or pixels.
    """

    n_numbers: int

    def __init__(self, latent_dim: int, prior: Prior, beta: float) -> None:
        super().__init__()
        self.latent_dim = latent_dim
        self.prior = prior
        self.latent_distribution = prior
        self.beta = beta

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move the distributions of the latents with the parameters."""
        pair = moved([self.prior, self.latent_distribution], fn)
        self.prior, self.latent_distribution = pair
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of every row, both (n, k)."""
        raise NotImplementedError

    def decode(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return one record per point z."""
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
        """Return a lower bound of every row's log-probability, and its latents.

        Parameters
        ----------
        rows : Tensor of shape (n, ...)
        noise : Tensor of shape (n, L, k)
            Standard normals, one per draw.

        Returns
        -------
        bound : Tensor of shape (n,)
            ``E_q[log p(x | z)] - beta KL(q(z | x) || p(z))``, the mean over the L
            draws; the divergence in closed form where it has one.
        latents : Latents
        """
        latents = self.latents(rows, noise)
        decoded = self._log_decoded(rows, latents.draws).mean(1)
        return decoded - self.beta * self._divergence(latents), latents

    def _divergence(self, latents: Latents) -> Tensor:
        """Return KL(q(z | x) || p(z)) of every row, from its draws where needed."""
        mean, log_variance = latents.mean, latents.log_variance
        if isinstance(self.prior, NormalPrior):
            terms = mean.square() + log_variance.exp() - 1 - log_variance
            return 0.5 * terms.sum(1)
        return (latents.log_posterior() - self.prior.log_prob(latents.draws)).mean(1)

    def log_likelihood(self, rows: Tensor, noise: Tensor) -> Tensor:
        """Return the importance-weighted bound (Burda et al. 2016), shape (n,).

        It rises with the number of draws towards the log-probability under the
        distribution that `sample` draws from.
        """
        latents = self.latents(rows, noise)
        log_prior = self._log_latents(rows, latents.draws)
        weights = self._log_decoded(rows, latents.draws) + log_prior
        weights = weights - latents.log_posterior()
        return torch.logsumexp(weights, 1) - math.log(noise.shape[1])

    def _log_latents(self, rows: Tensor, z: Tensor) -> Tensor:
        """Return the log-density of the latents of every row and draw, (n, L)."""
        return self.latent_distribution.log_prob(z)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n records."""
        return self.decode(self._sample_latents(n, generator), generator)

    def _sample_latents(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n points of the latent space, (n, k)."""
        with generator.device:
            z = self.latent_distribution.sample(n, generator)
        return z.to(next(self.parameters()))

    def rake(self, n: int, generator: torch.Generator) -> None:
        """Rake the model to the released marginals, if any, on n rows drawn from it."""


class VAE(Autoencoder):
    """Autoencoder of rows of cells.

    Parameters
    ----------
    facts : sequence of CellFacts
        One per column.
    n_basis : int
        Number of smooth functions per ordered column.
    hidden_units : int
        Width of the hidden layers of encoder and decoder.
    latent_dim, prior, beta
        See `Autoencoder`.
    generator : torch.Generator
        Source of the initial weights.
    condition : int, optional
        Column whose cell the decoder is given.

    Attributes
    ----------
    factors : list of TableFactor
        What measured tables have added.
    counted : list of tuple of int
        Columns of the tables that `correct` was given.
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
        self.factors: list[TableFactor] = []
        self.counted: list[tuple[int, ...]] = []
        self.cells = Cells(facts, n_basis)
        self.n_numbers = sum(self.cells.n_cells)
        self.condition = condition
        n_features = sum(self.cells.widths)
        n_given = 0 if condition is None else self.cells.widths[condition]
        self.encoder = Encoder(
            len(facts), n_features, hidden_units, latent_dim, generator
        )
        self.decoder = Decoder(
            latent_dim + n_given, hidden_units, (n_features,), generator
        )
        free = torch.ones(n_features)
        if condition is not None:
            free[self.cells.columns(condition)] = 0
        self.register_buffer("free", free)

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of every row of cells, (n, k)."""
        codes, encoder = rows.long(), self.encoder
        (first,) = self.cells.precompute(codes, [encoder.hidden], encoder.scale)
        return encoder(self.cells.features(codes), first)

    def _coefficients(self, z: Tensor, labels: Tensor | None) -> Tensor:
        """Return coefficients for every z of (..., k) and cell of the condition."""
        if self.condition is not None:
            z = torch.cat([z, self.cells.inputs(self.condition)[labels]], -1)
        out = self.decoder(z)
        return out if self.condition is None else out * self.free

    def _logits(self, j: int, coefficients: Tensor, codes: Tensor) -> Tensor:
        """Return the logits of column j's cells, given the cells before, (n, n_cells).

        `coefficients` (n, m_j) are those of the column, `codes` (n, d) all cells.
        """
        logits = self.cells.offsets(coefficients, j) + self.cells.base(j)
        for factor in self.factors:
            if factor.columns[-1] == j:
                logits = logits + factor(codes)
        return logits

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        n, n_draws, _ = z.shape
        codes = rows.long()
        labels = None
        if self.condition is not None:
            labels = codes[:, self.condition].unsqueeze(1).expand(n, n_draws)
        coefficients = self._coefficients(z, labels).flatten(0, 1)
        codes = codes.repeat_interleave(n_draws, 0)
        if not self.factors:
            return self.cells.log_prob(coefficients, codes).view(n, n_draws)
        total = coefficients.new_zeros(len(codes))
        for j, part in enumerate(coefficients.split(self.cells.widths, 1)):
            log_probs = self._logits(j, part, codes).log_softmax(1)
            total += log_probs.gather(1, codes[:, j : j + 1])[:, 0]
        return total.view(n, n_draws)

    # Samples --------------------------------------------------------------------

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n rows; their marginals are those released if the model is raked."""
        z = self._sample_latents(n, generator)
        is_raked = bool(self.cells.raking.any())
        return self.decode(z, generator, adjust=RakeSample() if is_raked else None)

    @torch.no_grad()
    def decode(
        self,
        z: Tensor,
        generator: torch.Generator,
        labels: Tensor | None = None,
        adjust: Rake | Clamp | None = None,
    ) -> Tensor:
        """Draw the cells of one row per point z, (n, d): drawn, not the likeliest.

        Every row follows the model; together they are more even than independent ones.

        Parameters
        ----------
        z : Tensor of shape (n, k)
        generator : torch.Generator
        labels : LongTensor of shape (n,), optional
            Cells of the condition; None draws them.
        adjust : Rake or Clamp, optional
            Changes the logits of every column before its cells are drawn.
        """
        if labels is None:
            labels = self._sample_labels(len(z), generator)
        shape = len(z), self.cells.n_columns
        draws = even_points(*shape, generator, EVEN_BLOCK).to(z)
        codes = torch.zeros(shape, dtype=torch.long, device=z.device)
        if self.condition is not None and labels is not None:
            codes[:, self.condition] = labels
        parts = self._coefficients(z, labels).split(self.cells.widths, 1)
        for j, part in enumerate(parts):
            if j == self.condition:
                if isinstance(adjust, Rake):
                    adjust.note(codes[:, j])
                continue
            logits, u = self._logits(j, part, codes), draws[:, j]
            if adjust is not None:
                logits = adjust(self.cells, j, logits, u)
            codes[:, j] = invert_cdf(logits.softmax(1), u)[0]
        return codes

    @torch.no_grad()
    def sample_given(
        self, n: int, generator: torch.Generator, given: Mapping[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw as `HFlow.sample_given`; given the condition alone, weights are 1."""
        z = self._sample_latents(n, generator)
        others = {j: each for j, each in given.items() if j != self.condition}
        allowed = None if self.condition is None else given.get(self.condition)
        labels = self._sample_labels(n, generator, allowed)
        clamp = Clamp(others, is_constant=False)
        return self.decode(z, generator, labels, clamp), clamp.log_weights

    def _sample_labels(
        self, n: int, generator: torch.Generator, log_shares: Tensor | None = None
    ) -> Tensor | None:
        """Draw cells of the condition from its released marginal, or allowed shares."""
        if self.condition is None:
            return None
        base = self.cells.base(self.condition)
        if log_shares is None:
            u = even_points(n, 1, generator, EVEN_BLOCK)[:, 0].to(base)
            return invert_cdf(base.exp().expand(n, -1), u)[0]
        masses = (base + log_shares).softmax(1).expand(n, -1)
        return torch.multinomial(masses, 1, generator=generator)[:, 0]

    def rake(self, n: int, generator: torch.Generator) -> None:
        z = self._sample_latents(n, generator)
        self.decode(z, generator, adjust=Rake(soft=True))

    def pool(
        self, n: int, generator: torch.Generator, clamped: Tensor | None = None
    ) -> Tensor:
        """Draw the cells of n rows, some at a time; none can be `clamped`."""
        sizes = (min(DRAWN, n - start) for start in range(0, n, DRAWN))
        return torch.cat([self.sample(size, generator) for size in sizes])

    def correct(
        self,
        n: int,
        generator: torch.Generator,
        tables: Sequence[CountedTable],
        clamped: Tensor | None = None,
    ) -> None:
        """Rake and bring the model nearer to measured tables; see `Correct`."""
        correct = Correct(tables)
        self.decode(self._sample_latents(n, generator), generator, adjust=correct)
        self.factors = [*self.factors, *(f.to("cpu") for f in correct.factors)]
        self.counted = [table.columns for table in tables]


class ImageVAE(Autoencoder):
    """Autoencoder of images in [0, 1].

    Parameters
    ----------
    encoder, decoder : Module
        As an architecture returns them (`models.networks`).
    image_shape : tuple of int
        Channels, height and width.
    head : {"bernoulli", "gaussian"}
        Distribution of a pixel x, given the decoder's logit o:
        ``p^x (1 - p)^(1 - x)`` or ``N(p, std^2)``, with ``p = sigmoid(o)``.
    std : float
        Standard deviation of the Gaussian head.
    two_valued : bool
        Whether decoded pixels are drawn, 0 or 1; otherwise they are the mean p.
    latent_dim, prior, beta
        See `Autoencoder`.
    lengths_vary : bool, default=False
        Whether images are series, whose rows are steps, and the last feature of a step
        says if it is there (`encoding.series`). Steps that are not have no part in the
        density; the logit of that feature is the one of a further step, so that lengths
        have a density too, and are drawn.
    """

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        *,
        image_shape: Shape,
        head: str,
        std: float,
        two_valued: bool,
        latent_dim: int,
        prior: Prior,
        beta: float,
        lengths_vary: bool = False,
    ) -> None:
        super().__init__(latent_dim, prior, beta)
        self.encoder = encoder
        self.decoder = decoder
        self.image_shape = image_shape
        self.n_numbers = math.prod(image_shape)
        self.head = head
        self.std = std
        self.two_valued = two_valued
        self.lengths_vary = lengths_vary

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of images, both (n, k)."""
        return self.encoder(rows)

    def _log_pixels(self, logits: Tensor, images: Tensor) -> Tensor:
        """Return log p(x | z) of every image, (n,)."""
        return self._log_values(logits, images).flatten(1).sum(1)

    def _log_values(self, logits: Tensor, images: Tensor) -> Tensor:
        """Return log p(x | z) of every pixel."""
        if self.head == "gaussian":
            log_variance = images.new_full((), 2 * math.log(self.std))
            means = logits.sigmoid().unsqueeze(-1)
            return log_normal(images.unsqueeze(-1), means, log_variance)
        return -F.binary_cross_entropy_with_logits(logits, images, reduction="none")

    def _log_steps(self, logits: Tensor, series: Tensor) -> Tensor:
        """Return log p(x | z) of the steps that are there, and of their number."""
        values, present = series[..., :-1], series[..., -1:]
        log_values = present * self._log_values(logits[..., :-1], values)
        # After every step but the last possible one: does another follow?
        signs = 2 * present[..., 1:, :] - 1
        follows = F.logsigmoid(signs * logits[..., :-1, -1:])
        log_lengths = present[..., :-1, :] * follows
        return log_values.flatten(1).sum(1) + log_lengths.flatten(1).sum(1)

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        # Draw by draw, so that the first axis of every layer runs over the images; a
        # layer that is called L times counts as one of L positions.
        log = self._log_steps if self.lengths_vary else self._log_pixels
        return torch.stack([log(self.decoder(part), rows) for part in z.unbind(1)], 1)

    @torch.no_grad()
    def decode(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return one image per point z, (n, c, h, w): means, or drawn pixels."""
        size = max(1, DECODED // self.n_numbers)
        means = torch.cat([self.decoder(part).sigmoid() for part in z.split(size)])
        if not (self.two_valued or self.lengths_vary):
            return means
        draws = torch.bernoulli(means, generator=generator)
        values = draws if self.two_valued else means
        if not self.lengths_vary:
            return values
        follows = draws[..., :-1, -1:].cumprod(-2)
        present = F.pad(follows, (0, 0, 1, 0), value=1.0)
        return torch.cat([values[..., :-1], present], -1)
