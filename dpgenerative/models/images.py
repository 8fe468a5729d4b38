"""Convolutional encoder and decoder of square images.

Architecture of Mathieu et al. (2019, "Disentangling disentanglement in variational
autoencoders") for Fashion-MNIST: convolutions of 4 x 4 with stride 2 and padding 1,
each of which halves the sides, leaky rectifiers, one dense layer to the latents, and
the mirror image of all that. Group normalisation stands for their batch normalisation,
which would make the gradient of one image depend on the others; it has no parameters
of its own, so that every layer with parameters has a closed form in
`privacy.gradients`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative.layers import MaskedLinear
from dpgenerative.models.vae import LOG_VARIANCE_BOUND

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
        Channels, height and width; the sides are multiples of ``2 ** len(widths)``.
    latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    widths : sequence of int, default=(32, 64, 128)
        Channels after every convolution, multiples of 8.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        latent_dim: int,
        generator: torch.Generator,
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
        channels = (image_shape[0], *widths)
        self.convolutions = nn.ModuleList(_layers(nn.Conv2d, channels, generator))
        n_features = math.prod(_core_shape(image_shape, widths))
        self.output = MaskedLinear.dense(n_features, 2 * latent_dim)
        with torch.no_grad():
            means = self.output.weight[:latent_dim]
            means.normal_(0, 1 / math.sqrt(n_features), generator=generator)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k), of images (n, c, h, w)."""
        for layer in self.convolutions:
            images = _activated(layer(images))
        mean, raw = self.output(images.flatten(1)).chunk(2, dim=1)
        return mean, LOG_VARIANCE_BOUND * (raw / LOG_VARIANCE_BOUND).tanh()


class ConvDecoder(nn.Module):
    """From latents to one number per channel and pixel.

    Parameters
    ----------
    image_shape : tuple of int
        Channels, height and width; the sides are multiples of ``2 ** len(widths)``.
    latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    widths : sequence of int, default=(32, 64, 128)
        Of the encoder: channels before every transposed convolution, last one first.
    """

    def __init__(
        self,
        image_shape: tuple[int, int, int],
        latent_dim: int,
        generator: torch.Generator,
        widths: Sequence[int] = WIDTHS,
    ) -> None:
        super().__init__()
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
        return x


def _core_shape(
    image_shape: tuple[int, int, int], widths: Sequence[int]
) -> tuple[int, int, int]:
    """Return what is left of an image after all convolutions."""
    _, height, width = image_shape
    shrink = _STRIDE ** len(widths)
    if height % shrink or width % shrink:
        raise ValueError(
            f"image_shape: the sides must be multiples of {shrink} for {len(widths)} "
            f"convolutions; got {image_shape}. Pad the images."
        )
    return widths[-1], height // shrink, width // shrink


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
