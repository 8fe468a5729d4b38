"""PriVAE of arrays of one shape, such as images, as recipes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from dpgenerative._validation import check_option, number, option
from dpgenerative.encoding.pixels import Pixels
from dpgenerative.encoding.series import Series
from dpgenerative.fitting.options import parameter
from dpgenerative.fitting.recipe import FitSize, Rule
from dpgenerative.models import networks as nets
from dpgenerative.models.classes import ClassVAE
from dpgenerative.models.probing import check_architecture
from dpgenerative.models.vae import HEADS, ImageVAE
from dpgenerative.persistence.registry import storable
from dpgenerative.privacy.plan import Release
from dpgenerative.synthesizers.latents import (
    OF_ARRAYS,
    AutoencoderRecipe,
    LatentOptions,
)

NETWORKS = ("mlp", "conv", "lstm")


@storable
@dataclass(frozen=True, repr=False)
class ArrayArchitecture(LatentOptions):
    """Latents, networks and likelihood of an autoencoder of arrays.

    It has the parameters of `LatentOptions`, which come first, and four of its own.

    Parameters
    ----------
    networks : {"mlp", "conv", "lstm"} or callable, default="mlp"
        Encoder and decoder (`models.networks`): one hidden layer each; convolutions
        (Mathieu et al. 2019); for series, one long short-term memory each, of
        `hidden_units`, the decoder's given the latents at every step; or a function of
        (c, h, w), the number of latents and a torch generator that returns two modules.
    widths : sequence of int, default=(32, 64, 128)
        Channels after every convolution of "conv", multiples of 8. Each halves the
        sides: faces of 64 x 64 pixels take ``(32, 64, 128, 256)``.
    likelihood : {"bernoulli", "gaussian"}, default="bernoulli"
        Distribution of an entry x in [0, 1], given its mean p:
        ``p^x (1 - p)^(1 - x)``, or a normal of standard deviation `std`.
    std : float, default=0.1
        Standard deviation of the Gaussian likelihood, in shares of the range.
    """

    networks: str | nets.Architecture = "mlp"
    widths: Sequence[int] = parameter(nets.WIDTHS, nets.check_widths)
    likelihood: str = parameter("bernoulli", option(*HEADS))
    std: float = parameter(0.1, number(low=0))

    def check(self, owner: str, group: str) -> None:
        super().check(owner, group)
        if not callable(self.networks):
            check_option(owner, f"{group}__networks", self.networks, NETWORKS)


@dataclass(frozen=True)
class ArrayVAERecipe(AutoencoderRecipe):
    """PriVAE of arrays as a recipe; `owner` names the estimator in errors.

    Attributes
    ----------
    architecture : ArrayArchitecture
    term : BatchTerm
    prior : str or Prior
    owner : str
    """

    owner: str = ""

    anchored: ClassVar[bool] = False  # type: ignore[misc]
    tuning = OF_ARRAYS

    @property
    def is_custom(self) -> bool:
        return super().is_custom or callable(self.architecture.networks)

    def settings(self, facts: Pixels, scale: FitSize) -> dict[str, Any]:
        return {
            **super().settings(facts, scale),
            "networks": self.architecture.networks,
            "widths": tuple(self.architecture.widths),
            "head": self.architecture.likelihood,
            "std": self.architecture.std,
        }

    def make(self, facts: Any, generator: torch.Generator, **settings: Any) -> ImageVAE:
        networks, hidden_units = settings.pop("networks"), settings.pop("hidden_units")
        widths, vary = settings.pop("widths", nets.WIDTHS), isinstance(facts, Series)
        shape, k, n = facts.shape, settings["latent_dim"], math.prod(facts.shape)
        if callable(networks):
            modules = networks(shape, k, generator)
            check_architecture(self.owner, modules, shape, k)
            encoder, decoder = modules
        elif networks == "mlp":
            encoder = nets.PixelEncoder(n, n, hidden_units, k, generator)
            decoder = nets.Decoder(k, hidden_units, shape, generator)
        elif networks == "lstm":
            encoder = nets.SeriesEncoder(shape, hidden_units, k, generator, vary)
            decoder = nets.SeriesDecoder(shape, hidden_units, k, generator)
        else:
            encoder = nets.ConvEncoder(shape, k, generator, widths)
            decoder = nets.ConvDecoder(shape, k, generator, widths)
        return ImageVAE(
            encoder, decoder, image_shape=shape, two_valued=facts.two_valued,
            lengths_vary=vary, **settings,
        )  # fmt: skip


@dataclass(frozen=True)
class ClassVAERecipe(ArrayVAERecipe):
    """Autoencoder of labelled arrays as a recipe: moments first, gradients if asked."""

    @property
    def rules(self) -> Mapping[str, Rule]:  # type: ignore[override]
        """As of all arrays, but without steps."""
        return {**super().rules, "n_steps": lambda scale: 0}

    def releases(self, scale: FitSize, left: float) -> Mapping[Release, float]:
        return {}

    def settings(self, facts: Any, scale: FitSize) -> dict[str, Any]:
        return {
            "hidden_units": self.resolved("hidden_units", scale),
            "prior": self.prior_of(len(facts.gaussians.components)),
            "beta": self.resolved("beta", scale),
            "std": self.architecture.std,
        }

    def make(self, facts: Any, generator: torch.Generator, **settings: Any) -> Any:
        return ClassVAE(
            facts.gaussians, image_shape=facts.shape, two_valued=facts.two_valued,
            generator=generator, **settings,
        )  # fmt: skip
