"""Encoders and decoders: of the cells of a table, of images, and of series.

The convolutional networks are those of Mathieu et al. (2019, "Disentangling
disentanglement in variational autoencoders") for Fashion-MNIST: convolutions of 4 x 4
with stride 2 and padding 1, each of which halves the sides, leaky rectifiers, one dense
layer to the latents, and the reverse of all that. Group normalisation stands in for
their batch normalisation, which would make the gradient of one image depend on the
others; it has no parameters of its own, so that every layer with parameters has a
closed form in `privacy.gradients`. Sides that cannot be halved are padded by zeros, and
what is decoded there is cut off.

The recurrent networks are a long short-term memory (Hochreiter and Schmidhuber 1997)
that reads a series and one that writes it, given the latents at every step. A step uses
one `MaskedLinear`, so that the rule for layers used T times adds up a record's gradient
over the steps before it is clipped. Of an array (c, h, w) the h rows are the steps.

An architecture is a function of the image shape (c, h, w), the number of latents k and
a torch generator. It returns two modules: an encoder, from images (n, c, h, w) in
[0, 1] to mean and log-variance, both (n, k), and a decoder, from (n, k) to logits of
the pixels, (n, c, h, w). They must treat images independently, draw nothing, and keep
their parameters inside layers that they call.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative._validation import refuse
from dpgenerative.layers import MaskedLinear

Shape = tuple[int, int, int]
Architecture = Callable[[Shape, int, torch.Generator], tuple[nn.Module, nn.Module]]

LOG_VARIANCE_BOUND = 5.0
"""Log-variances of the posterior lie within this distance of 0."""
FEATURE_GAIN = 2.0
"""Size of the inputs of the encoder."""
HIDDEN_GAIN = 2.0
"""Size of the hidden activations of a row."""
INITIAL_MEAN = 1.5
"""Largest size of posterior means before training."""
STATE_GAIN = 4.0
"""Factor that gives states of a new memory size one."""
WIDTHS = (32, 64, 128)
_KERNEL, _STRIDE, _PADDING = 4, 2, 1
_GROUP = 8
"""Channels that are normalised together."""
_SLOPE = 0.2
"""Slope of the leaky rectifiers below zero."""


def posterior(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Return mean and bounded log-variance, both (n, k), of the encoder's (n, 2 k)."""
    mean, raw = numbers.chunk(2, dim=1)
    return mean, LOG_VARIANCE_BOUND * (raw / LOG_VARIANCE_BOUND).tanh()


class Encoder(nn.Module):
    """From functions of the cells to mean and log-variance of the latents.

    `generator` draws the initial weights.
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
            # The features of a column have size 1, and so have the sums and the means.
            self.hidden.weight.normal_(0, 1 / FEATURE_GAIN, generator=generator)
            means = self.output.weight[:latent_dim]
            means.normal_(0, INITIAL_MEAN / HIDDEN_GAIN, generator=generator)

    def forward(
        self, features: Tensor, precomputed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k).

        `precomputed` are the outputs of the hidden layer, as in `MaskedLinear`.
        """
        hidden = self.hidden(self.scale * features, precomputed=precomputed)
        return posterior(self.output(self.gain * hidden.tanh()))


class Decoder(nn.Module):
    """From latents to coefficients of the functions of the cells, or to logits.

    Parameters
    ----------
    latent_dim, hidden_units : int
    shape : tuple of int
        Of what is returned for one z: (n_features,), or that of an image.
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        latent_dim: int,
        hidden_units: int,
        shape: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape, n_features = shape, math.prod(shape)
        self.skip = MaskedLinear.dense(latent_dim, n_features)
        self.hidden = MaskedLinear.dense(latent_dim, hidden_units)
        self.output = MaskedLinear.dense(hidden_units, n_features)
        self.gain = HIDDEN_GAIN / math.sqrt(hidden_units)
        with torch.no_grad():
            scale = 1 / math.sqrt(latent_dim)
            self.hidden.weight.normal_(0, scale, generator=generator)
            self.hidden.bias.normal_(0, 0.5, generator=generator)

    def forward(self, z: Tensor) -> Tensor:
        """Return numbers of the shape stated for every z of (..., k)."""
        hidden = self.gain * self.hidden(z).tanh()
        return (self.skip(z) + self.output(hidden)).unflatten(-1, self.shape)


# Images ------------------------------------------------------------------------


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
        return posterior(self.output(images.flatten(1)))


class ConvDecoder(nn.Module):
    """From latents to one logit per channel and pixel.

    Its parameters are those of `ConvEncoder`: `widths` are the channels before every
    transposed convolution, last first.
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
        n_features = math.prod(self.core_shape)
        self.input = MaskedLinear.dense(latent_dim, n_features, generator)
        channels = (*reversed(widths), image_shape[0])
        layers = _layers(nn.ConvTranspose2d, channels, generator)
        self.convolutions = nn.ModuleList(layers)

    def forward(self, z: Tensor) -> Tensor:
        """Return (n, c, h, w) for z of (n, k)."""
        x: Tensor = self.input(z).view(-1, *self.core_shape)
        for layer in self.convolutions:
            x = layer(_activated(x))
        return F.pad(x, [-margin for margin in self.margins])


def check_widths(owner: str, name: str, value: Any) -> None:
    """Require at least one number of channels, all multiples of 8."""
    is_fine = isinstance(value, Sequence) and len(value) > 0
    if not is_fine or any(not isinstance(w, int) or w < 1 or w % _GROUP for w in value):
        refuse(owner, name, f"must be multiples of {_GROUP}, at least one", value)


def _core_shape(image_shape: Shape, widths: Sequence[int]) -> Shape:
    """Return the shape of a padded image after all convolutions."""
    _, height, width = image_shape
    shrink = _STRIDE ** len(widths)
    return widths[-1], math.ceil(height / shrink), math.ceil(width / shrink)


def _margins(image_shape: Shape, widths: Sequence[int]) -> list[int]:
    """Return how many pixels to pad left, right, above and below."""
    _, height, width = image_shape
    missing = [-side % _STRIDE ** len(widths) for side in (width, height)]
    return [part for m in missing for part in (m // 2, m - m // 2)]


def _layers(
    kind: type[nn.Conv2d] | type[nn.ConvTranspose2d],
    channels: Sequence[int],
    generator: torch.Generator,
) -> Iterator[nn.Module]:
    """Yield convolutions, initialised to keep the size of their inputs."""
    for n_in, n_out in pairwise(channels):
        layer = nn.utils.skip_init(kind, n_in, n_out, _KERNEL, _STRIDE, _PADDING)
        # An output of the transposed layer depends on a part of the kernel only.
        n_taps = (_KERNEL if kind is nn.Conv2d else _KERNEL // _STRIDE) ** 2
        nn.init.normal_(layer.weight, 0, (n_in * n_taps) ** -0.5, generator)
        nn.init.zeros_(layer.bias)
        yield layer


def _activated(x: Tensor) -> Tensor:
    return F.leaky_relu(F.group_norm(x, x.shape[1] // _GROUP), _SLOPE)


class PixelEncoder(Encoder):
    """The encoder of tables, with pixels as features: one hidden layer."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return mean and log-variance, both (n, k), of images (n, c, h, w)."""
        return super().forward(2 * images.flatten(1) - 1)


# Series ------------------------------------------------------------------------


class LSTM(nn.Module):
    """Long short-term memory, of zeros before the first step.

    Parameters
    ----------
    n_inputs, hidden_units : int
    generator : torch.Generator
        Source of the initial weights; the forget gates' biases start at 1.
    """

    def __init__(
        self, n_inputs: int, hidden_units: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.hidden_units = hidden_units
        width = n_inputs + hidden_units
        self.gates = MaskedLinear.dense(width, 4 * hidden_units, generator)
        with torch.no_grad():
            self.gates.weight.mul_(2)
            self.gates.bias[:hidden_units] = 1

    def forward(self, x: Tensor) -> Tensor:
        """Return the states after every step, (n, T, hidden_units), for (n, T, inputs).

        Multiplied by `STATE_GAIN`.
        """
        state = cell = x.new_zeros(len(x), self.hidden_units)
        states = []
        for step in x.unbind(1):
            gates = self.gates(torch.cat([step, state], 1))
            forget, let_in, out = gates[:, : -self.hidden_units].sigmoid().chunk(3, 1)
            cell = forget * cell + let_in * gates[:, -self.hidden_units :].tanh()
            state = out * cell.tanh()
            states.append(state)
        return STATE_GAIN * torch.stack(states, 1)


class SeriesEncoder(nn.Module):
    """From series to mean and log-variance of the latents, by the mean of the states.

    Parameters
    ----------
    shape : tuple of int
        Channels, steps and features of a step: an image's, whose rows are the steps.
    hidden_units, latent_dim : int
    generator : torch.Generator
        Source of the initial weights.
    lengths_vary : bool, default=False
        Whether the last feature of a step says if it is there (`encoding.series`): the
        mean is that of these steps, and no other step can change it.
    """

    def __init__(
        self,
        shape: Shape,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
        lengths_vary: bool = False,
    ) -> None:
        super().__init__()
        self.lengths_vary = lengths_vary
        self.lstm = LSTM(shape[0] * shape[2] - lengths_vary, hidden_units, generator)
        self.output = MaskedLinear.dense(hidden_units, 2 * latent_dim)
        with torch.no_grad():
            scale = HIDDEN_GAIN / math.sqrt(hidden_units)
            self.output.weight[:latent_dim].normal_(0, scale, generator=generator)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance, both (n, k), of series (n, c, T, features)."""
        x = images.transpose(1, 2).flatten(2)
        present = torch.ones_like(x[..., :1])
        if self.lengths_vary:
            x, present = x[..., :-1], x[..., -1:]
        states = self.lstm(FEATURE_GAIN * (2 * x - 1)) * present
        return posterior(self.output(states.sum(1) / present.sum(1)))


class SeriesDecoder(nn.Module):
    """From latents, repeated at every step, to logits of the features of every step.

    Beside the memory there is a linear map from the latents to a series' level. Its
    parameters are those of `SeriesEncoder`.
    """

    def __init__(
        self,
        shape: Shape,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.lstm = LSTM(latent_dim, hidden_units, generator)
        self.output = MaskedLinear.dense(hidden_units, shape[0] * shape[2])
        self.skip = MaskedLinear.dense(latent_dim, shape[0] * shape[2])

    def forward(self, z: Tensor) -> Tensor:
        """Return (n, c, T, features) for z of (n, k)."""
        n_channels, n_steps, n_features = self.shape
        states = self.lstm(z.unsqueeze(1).expand(-1, n_steps, -1))
        out: Tensor = self.output(states) + self.skip(z).unsqueeze(1)
        return out.view(len(z), n_steps, n_channels, n_features).transpose(1, 2)
