"""An autoencoder of labelled arrays that starts at released moments of every class.

Encoder and decoder are given the class. The decoder returns ``mean + components^T z``
of the class and, from one hidden layer that starts at zero, what training adds to it;
the untrained encoder is the exact posterior of that linear model under N(0, I) (Tipping
and Bishop 1999). The latents of a class are drawn from its own released Gaussian.
"""

import math

import numpy as np
import torch
from torch import Tensor

from dpgenerative.encoding.classes import ClassGaussians, Frequencies
from dpgenerative.layers import MaskedLinear
from dpgenerative.models.networks import LOG_VARIANCE_BOUND, Decoder, Shape, posterior
from dpgenerative.models.priors import GaussianPrior, Prior, log_normal
from dpgenerative.models.vae import DECODED, Autoencoder


class ClassVAE(Autoencoder):
    """Autoencoder of rows of entries in [0, 1], followed by a 1 for the class.

    Parameters
    ----------
    gaussians : ClassGaussians
        Where it starts.
    image_shape : tuple of int
        Channels, height and width.
    two_valued : bool
        Whether decoded entries are drawn, 0 or 1.
    hidden_units : int
    std : float
        Standard deviation of an entry, given its mean.
    prior : Prior
    beta : float
        As of `Autoencoder`.
    generator : torch.Generator
        Source of the initial weights of the hidden layer.
    """

    shares: Tensor
    roots: Tensor
    texture: Tensor
    relief: Tensor

    def __init__(
        self,
        gaussians: ClassGaussians,
        *,
        image_shape: Shape,
        two_valued: bool,
        hidden_units: int,
        std: float,
        prior: Prior,
        beta: float,
        generator: torch.Generator,
    ) -> None:
        latent_dim, width = gaussians.components.shape
        n_classes = len(gaussians.shares)
        super().__init__(latent_dim, prior, beta)
        self.image_shape, self.two_valued, self.std = image_shape, two_valued, std
        self.n_numbers = math.prod(image_shape)
        self.encoder = MaskedLinear.dense(width + n_classes, 2 * latent_dim)
        self.decoder = Decoder(
            latent_dim + n_classes, hidden_units, (width,), generator
        )
        for name in ("shares", "roots", "texture"):
            values = torch.from_numpy(getattr(gaussians, name)).float()
            self.register_buffer(name, values)
        spread = np.square(gaussians.components).sum(0)
        relief = np.sqrt(spread / max(spread.mean(), np.finfo(float).tiny))
        self.register_buffer("relief", torch.from_numpy(relief).float())
        self._start(gaussians)

    @torch.no_grad()
    def _start(self, gaussians: ClassGaussians) -> None:
        """Give encoder and decoder the weights of the linear model."""
        components, means = gaussians.components, gaussians.means
        k = self.latent_dim
        inverse = np.linalg.inv(components @ components.T / self.std**2 + np.eye(k))
        weights = inverse @ components / self.std**2
        log_variance = np.log(np.diag(inverse)) / LOG_VARIANCE_BOUND
        raw = LOG_VARIANCE_BOUND * np.arctanh(np.clip(log_variance, -0.98, 0.98))
        self.encoder.weight[:k] = torch.from_numpy(
            np.concatenate([weights, -weights @ means.T], 1)
        )
        self.encoder.bias[k:] = torch.from_numpy(raw)
        skip = np.concatenate([components, means]).T
        self.decoder.skip.weight.copy_(torch.from_numpy(skip))

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x, y) of every row, both (n, k)."""
        return posterior(self.encoder(rows))

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        labels = rows[:, None, self.n_numbers :].expand(*z.shape[:2], -1)
        means = self.decoder(torch.cat([z, labels], -1))
        x = rows[:, None, : self.n_numbers]
        return log_normal(x, means, rows.new_full((), 2 * math.log(self.std)))

    def _log_latents(self, rows: Tensor, z: Tensor) -> Tensor:
        parts = [
            GaussianPrior(root.new_zeros(len(root)), root).log_prob(z)
            for root in self.roots
        ]
        labels = rows[:, self.n_numbers :]
        return (torch.stack(parts, 2) * labels.unsqueeze(1)).sum(2)

    # Samples --------------------------------------------------------------------

    def draw_labels(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw classes of n records, by their released shares."""
        return torch.multinomial(self.shares, n, True, generator=generator)

    @torch.no_grad()
    def sample_of(self, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one array for every class in (n,), with its texture."""
        z = torch.randn(len(labels), self.latent_dim, generator=generator)
        for k, root in enumerate(self.roots):
            z[labels == k] = z[labels == k] @ root.T
        return self.decode(z, generator, labels, self.relief)

    @torch.no_grad()
    def decode(
        self,
        z: Tensor,
        generator: torch.Generator,
        labels: Tensor | None = None,
        relief: Tensor | float = 0.0,
    ) -> Tensor:
        """Return one array per point and class, (n, c, h, w): means, or drawn entries.

        Parameters
        ----------
        z : Tensor of shape (n, k)
        generator : torch.Generator
        labels : LongTensor of shape (n,)
        relief : Tensor of shape (D,) or float, default=0
            How much of the texture there is in every entry.
        """
        inputs = torch.cat([z, torch.eye(len(self.shares))[labels]], 1)
        parts = []
        for part in inputs.split(max(1, DECODED // self.n_numbers)):
            means = self.decoder(part)
            noise = self.texture * torch.randn(means.shape, generator=generator)
            texture = Frequencies(self.image_shape).back(noise.numpy())
            parts.append((means + relief * torch.from_numpy(texture)).clamp(0, 1))
        arrays = torch.cat(parts).view(-1, *self.image_shape)
        return (
            torch.bernoulli(arrays, generator=generator) if self.two_valued else arrays
        )
