"""Autoencoders of images: heads, and encoders and decoders of two architectures.

The convolutional architecture is that of Mathieu et al. (2019, "Disentangling
disentanglement in variational autoencoders") for Fashion-MNIST: convolutions of 4 x 4
with stride 2 and padding 1, each of which halves the sides, leaky rectifiers, one dense
layer to the latents, and the mirror image of all that. Group normalisation stands for
their batch normalisation, which would make the gradient of one image depend on the
others; it has no parameters of its own, so that every layer with parameters has a
closed form in `privacy.gradients`. Sides that do not halve are padded by zeros, and
what is decoded there is cut away.

An architecture is a function of image shape (c, h, w), number of latents k and torch
generator that returns two modules: an encoder, from images (n, c, h, w) in [0, 1] to
mean and log-variance, both (n, k), and a decoder, from (n, k) to logits of the pixels,
(n, c, h, w). They must treat images apart, without draws of their own, and keep their
parameters inside layers that they call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative.layers import MaskedLinear
from dpgenerative.models.priors import Prior, log_normal
from dpgenerative.models.probing import held
from dpgenerative.models.vae import LOG_VARIANCE_BOUND, Autoencoder, Decoder, Encoder

Shape = tuple[int, int, int]
Architecture = Callable[[Shape, int, torch.Generator], tuple[nn.Module, nn.Module]]

HEADS = ("bernoulli", "gaussian")
DECODED = 2**20
"""Pixels that decoding holds at a time."""
WIDTHS = (32, 64, 128)
_KERNEL, _STRIDE, _PADDING = 4, 2, 1
_GROUP = 8
"""Channels that are normalised together."""
_SLOPE = 0.2
"""Of the leaky rectifiers below zero."""


class ConvEncoder(nn.Module):
    """From images to mean and log-variance of the latents.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width.
    latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    widths : sequence of int, default=(32, 64, 128)
        Channels after every convolution, multiples of 8.
    """

    def __init__(
        self,
        image_shape: Shape,
        latent_dim: int,
        generator: torch.Generator,
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
        self.margins = _margins(image_shape, widths)
        channels = (image_shape[0], *widths)
        self.convolutions = nn.ModuleList(_layers(nn.Conv2d, channels, generator))
        n_features = math.prod(_core_shape(image_shape, widths))
        self.output = MaskedLinear.dense(n_features, 2 * latent_dim)
        with torch.no_grad():
            means = self.output.weight[:latent_dim]
            means.normal_(0, 1 / math.sqrt(n_features), generator=generator)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k), of images (n, c, h, w)."""
        images = F.pad(images, self.margins)
        for layer in self.convolutions:
            images = _activated(layer(images))
        mean, raw = self.output(images.flatten(1)).chunk(2, dim=1)
        return mean, LOG_VARIANCE_BOUND * (raw / LOG_VARIANCE_BOUND).tanh()


class ConvDecoder(nn.Module):
    """From latents to one number per channel and pixel.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width.
    latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    widths : sequence of int, default=(32, 64, 128)
        Of the encoder: channels before every transposed convolution, last one first.
    """

    def __init__(
        self,
        image_shape: Shape,
        latent_dim: int,
        generator: torch.Generator,
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
        self.margins = _margins(image_shape, widths)
        self.core_shape = _core_shape(image_shape, widths)
        self.input = MaskedLinear.dense(
            latent_dim, math.prod(self.core_shape), generator
        )
        channels = (*reversed(widths), image_shape[0])
        layers = _layers(nn.ConvTranspose2d, channels, generator)
        self.convolutions = nn.ModuleList(layers)

    def forward(self, z: Tensor) -> Tensor:
        """Return (n, c, h, w) for z of (n, k)."""
        x: Tensor = self.input(z).view(-1, *self.core_shape)
        for layer in self.convolutions:
            x = layer(_activated(x))
        return F.pad(x, [-margin for margin in self.margins])


def _core_shape(image_shape: Shape, widths: Sequence[int]) -> Shape:
    """Return what is left of a padded image after all convolutions."""
    _, height, width = image_shape
    shrink = _STRIDE ** len(widths)
    return widths[-1], math.ceil(height / shrink), math.ceil(width / shrink)


def _margins(image_shape: Shape, widths: Sequence[int]) -> list[int]:
    """Return how many pixels are missing left, right, above and below."""
    _, height, width = image_shape
    missing = [-side % _STRIDE ** len(widths) for side in (width, height)]
    return [part for m in missing for part in (m // 2, m - m // 2)]


def _layers(
    kind: type[nn.Conv2d] | type[nn.ConvTranspose2d],
    channels: Sequence[int],
    generator: torch.Generator,
) -> Iterator[nn.Module]:
    """Yield convolutions that keep the size of what they see."""
    for n_in, n_out in pairwise(channels):
        layer = nn.utils.skip_init(kind, n_in, n_out, _KERNEL, _STRIDE, _PADDING)
        # An output of the transposed layer sees only a part of the kernel.
        seen = (_KERNEL if kind is nn.Conv2d else _KERNEL // _STRIDE) ** 2
        nn.init.normal_(layer.weight, 0, (n_in * seen) ** -0.5, generator)
        nn.init.zeros_(layer.bias)
        yield layer


def _activated(x: Tensor) -> Tensor:
    return F.leaky_relu(F.group_norm(x, x.shape[1] // _GROUP), _SLOPE)


# Images as what they are ------------------------------------------------------------


class PixelEncoder(Encoder):
    """The encoder of tables, over pixels: one hidden layer.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width.
    hidden_units, latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        image_shape: Shape,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
    ) -> None:
        n_pixels = math.prod(image_shape)
        super().__init__(n_pixels, n_pixels, hidden_units, latent_dim, generator)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k), of images (n, c, h, w)."""
        return super().forward(2 * images.flatten(1) - 1)


class PixelDecoder(Decoder):
    """The decoder of tables, over pixels: a linear map beside one hidden layer.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width.
    hidden_units, latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        image_shape: Shape,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(latent_dim, hidden_units, math.prod(image_shape), generator)
        self.image_shape = image_shape

    def forward(self, z: Tensor) -> Tensor:
        """Return (n, c, h, w) for z of (n, k)."""
        return super().forward(z).view(-1, *self.image_shape)


def perceptrons(
    image_shape: Shape, latent_dim: int, generator: torch.Generator, hidden_units: int
) -> tuple[nn.Module, nn.Module]:
    """Return an encoder and a decoder of one hidden layer each."""
    return (
        PixelEncoder(image_shape, hidden_units, latent_dim, generator),
        PixelDecoder(image_shape, hidden_units, latent_dim, generator),
    )


def convolutions(
    image_shape: Shape, latent_dim: int, generator: torch.Generator
) -> tuple[nn.Module, nn.Module]:
    """Return the convolutional encoder and decoder."""
    return (
        ConvEncoder(image_shape, latent_dim, generator),
        ConvDecoder(image_shape, latent_dim, generator),
    )


class ImageVAE(Autoencoder):
    """Bound of the density, encoder and sampler of images in [0, 1].

    Parameters
    ----------
    encoder, decoder : Module
        What an architecture returns.
    image_shape : tuple of int
        Channels, height and width.
    head : {"bernoulli", "gaussian"}
        Law of a pixel x, given the decoder's logit o: ``p^x (1 - p)^(1 - x)`` or
        ``N(p, std^2)``, with ``p = sigmoid(o)``.
    std : float
        Of the Gaussian head.
    two_valued : bool
        Whether decoded pixels are drawn, 0 or 1; otherwise they are the mean p.
    latent_dim : int
        Number of latents k.
    prior : Prior
        Law of the latents that training assumes.
    beta : float
        Weight of the divergence of an image's posterior from the prior.
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
    ) -> None:
        super().__init__(latent_dim, prior, beta)
        self.encoder = encoder
        self.decoder = decoder
        self.image_shape = image_shape
        self.head = head
        self.std = std
        self.two_valued = two_valued

    @property
    def n_numbers(self) -> int:
        """How many pixels there are, channels included."""
        return math.prod(self.image_shape)

    def encode(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of q(z | x) of images, both (n, k)."""
        mean, log_variance = self.encoder(rows)
        return mean, log_variance

    def _log_pixels(self, logits: Tensor, images: Tensor) -> Tensor:
        """Return log p(x | z) of every image, (n,)."""
        if self.head == "gaussian":
            log_variance = images.new_tensor(2 * math.log(self.std))
            means = logits.sigmoid().flatten(1)
            return log_normal(images.flatten(1), means, log_variance)
        losses = F.binary_cross_entropy_with_logits(logits, images, reduction="none")
        return -losses.flatten(1).sum(1)

    def _log_decoded(self, rows: Tensor, z: Tensor) -> Tensor:
        # Draw by draw: the first axis of every layer runs over the images, and a layer
        # that is called L times is one of L positions.
        parts = [self._log_pixels(self.decoder(part), rows) for part in z.unbind(1)]
        return torch.stack(parts, 1)

    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n images, (n, c, h, w)."""
        return self.decode(self._drawn(n, generator), generator)

    @torch.no_grad()
    def decode(self, z: Tensor, generator: torch.Generator) -> Tensor:
        """Return one image per point z, (n, c, h, w): means, or drawn pixels."""
        size = max(1, DECODED // self.n_numbers)
        means = torch.cat([self.decoder(part).sigmoid() for part in z.split(size)])
        return torch.bernoulli(means, generator=generator) if self.two_valued else means


def check_architecture(owner: str, modules: Any, shape: Shape, k: int) -> None:
    """Require an encoder and a decoder that treat public images apart.

    Raises
    ------
    ValueError
        For other numbers or shapes; for modules with draws of their own, that remember
        what they saw, or that couple the images of a batch: no bound of the gradient
        of one image would cover that.
    """
    given = f"{owner}: the encoder and decoder of 'architecture'"
    is_pair = isinstance(modules, tuple) and len(modules) == 2
    if not is_pair or not all(isinstance(m, nn.Module) for m in modules):
        raise ValueError(f"{given} must be a tuple of two modules; got {modules!r}.")
    encoder, decoder = modules
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(3, *shape, generator=generator)
    latents = torch.randn(3, k, generator=generator)

    def said(rows: list[int]) -> list[Tensor]:
        with torch.no_grad():
            return [*encoder(images[rows]), decoder(latents[rows])]

    def is_apart() -> bool:
        pairs = zip(said([0, 1, 2]), said([0, 1, 1]), strict=True)
        return all(
            torch.allclose(x[:2], y[:2], rtol=1e-3, atol=1e-4, equal_nan=True)
            for x, y in pairs
        )

    before = held(modules)
    shapes = [tuple(x.shape) for x in said([0, 1, 2])]
    if shapes != [(3, k), (3, k), (3, *shape)]:
        raise ValueError(
            f"{given} must return a mean and a log-variance of shape (n, {k}), and "
            f"logits of shape (n, {', '.join(map(str, shape))}); got {shapes} for n=3."
        )
    apart = is_apart()
    # Weights that start at zero hide what comes before them.
    with _moved(modules, generator):
        apart = is_apart() and apart
    if not apart:
        raise ValueError(
            f"{given} must treat every image apart and draw nothing: what they say of "
            "an image changes with the others in its batch, as by batch normalisation, "
            "or from call to call, as by dropout. torch.nn.GroupNorm does not."
        )
    if held(modules) != before:
        raise ValueError(
            f"{given} must not remember what they saw: a running statistic, or an "
            "attribute that keeps images, would release it without noise."
        )


@contextmanager
def _moved(
    modules: tuple[nn.Module, nn.Module], generator: torch.Generator
) -> Iterator[None]:
    """Add noise to all parameters for a while."""
    parameters = [p for module in modules for p in module.parameters()]
    before = [p.detach().clone() for p in parameters]
    with torch.no_grad():
        for p in parameters:
            p.add_(0.1 * torch.randn(p.shape, generator=generator))
        try:
            yield
        finally:
            for p, x in zip(parameters, before, strict=True):
                p.copy_(x)
