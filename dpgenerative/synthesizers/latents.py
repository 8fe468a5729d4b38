"""What autoencoders of tables and of arrays share: loss, latents, and their release."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import Streams, as_seed
from dpgenerative._validation import (
    BUDGET_SHARE,
    check_option,
    count,
    dimension,
    number,
    option,
    refuse,
)
from dpgenerative.fitting.options import Options, parameter
from dpgenerative.fitting.recipe import RULES, FitSize, GroupedRecipe, Rule
from dpgenerative.models import priors
from dpgenerative.models.cells import RAKING_ROWS
from dpgenerative.models.divergences import LATENT_DIVERGENCES, Latents
from dpgenerative.models.probing import check_divergence, check_prior
from dpgenerative.models.vae import Autoencoder
from dpgenerative.privacy.latents import LATENTS, Refinement, release_distribution
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.steps import Divergence, Objective
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.tables.private import Private

PRIORS: dict[str, Callable[[int], priors.Prior]] = {
    "normal": priors.NormalPrior,
    "mixture": priors.MixturePrior.on_axes,
    "sparse": priors.SparsePrior,
}
SCORE_CELLS = 2**23
"""Logits that scoring holds at a time."""


@dataclass(frozen=True)
class LatentTuning:
    """Numbers of the rules of autoencoders, of tables where no others are stated.

    What decided them is in ``benchmarks/results/trials/autoencoder.rst``. "Rows per
    column" are rows times epsilon over columns.

    Attributes
    ----------
    beta : float
        Weight of the divergence from the prior: below 1, classifiers learn more from
        samples, and cells are a little less accurate.
    n_draws : int
        Draws from every posterior per step: more take longer and add little.
    latents, least_latents : int
        Most and fewest latents: more of them learn noise.
    hidden_units, few_units : int
        Width of hidden layers, and where rows per column are few.
    n_basis, free_basis : int
        Functions of an ordered column, and without privacy.
    batch_size : int
        Largest expected batch, in rows.
    steps, free_steps : int
        Most steps, and without privacy.
    rate, free_rate : float
        Step size at the start, and without privacy.
    prior_budget : float
        Share of the budget for the moments of the latents.
    marginals : float
        Largest share of the marginals: of few rows, too, gradients learn something.
    pairs : int
        Pairs of columns that are counted at most: latents leave more of them to see
        than the flow does.
    """

    beta: float = 0.7
    n_draws: int = 2
    latents: int = 16
    least_latents: int = 4
    hidden_units: int = 64
    few_units: int = 16
    n_basis: int = 8
    free_basis: int = 64
    batch_size: int = 2048
    steps: int = 1000
    free_steps: int = 2000
    rate: float = 0.02
    free_rate: float = 0.003
    prior_budget: float = 0.05
    marginals: float = 0.6
    pairs: int = 20


TUNING = LatentTuning()
OF_ARRAYS = LatentTuning(beta=1.0, n_draws=1, batch_size=1024)
"""Of arrays, which have no columns to compute more from."""


@dataclass(frozen=True, repr=False)
class LatentOptions(Options):
    """Latents of an autoencoder: their number, their loss, and their distribution.

    Parameters
    ----------
    latent_dim : int or "auto", default="auto"
        Number of latents; "auto" with a Prior object is that of its samples.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layers of encoder and decoder, at least 1.
    beta : float or "auto", default="auto"
        Weight of the divergence of every record's posterior from the prior. Below 1,
        latents carry more information on a record; `prior_budget` pays for fitting the
        distribution that rows are sampled from to them.
    n_draws : int or "auto", default="auto"
        Draws from every record's posterior per step, clipped together as one record.
        "auto" is 2 for tables, 1 for arrays.
    prior_budget : float in [0, 1) or "auto", default="auto"
        Share of the budget for the moments of the trained latents; `sample` then draws
        them from `latent_distribution`, fitted to these moments (and shrunk towards
        N(0, I) if they are mostly noise). 0 draws from `prior` itself. "auto" is .05
        for the normal prior and 0 for others.
    latent_distribution : {"gaussian", "mixture"}, default="gaussian"
        Distribution of the trained latents that `prior_budget` pays for: one Gaussian;
        or one per orthant of its four main axes, of their own means and weights and one
        covariance.
    """

    latent_dim: int | str = parameter("auto", dimension(1, ["auto"]))
    hidden_units: int | str = parameter("auto", dimension(1, ["auto"]))
    beta: float | str = parameter("auto", number(low=0, closed="left", also=["auto"]))
    n_draws: int | str = parameter("auto", dimension(1, ["auto"]))
    prior_budget: float | str = parameter("auto", BUDGET_SHARE)
    latent_distribution: str = parameter("gaussian", option("gaussian", "mixture"))


@dataclass(frozen=True)
class AutoencoderRecipe(GroupedRecipe):
    """PriVAE as a recipe, whatever its networks.

    Attributes
    ----------
    architecture : LatentOptions
    term : BatchTerm
        Divergence of a partition's latents from the prior.
    prior : str or Prior
    """

    prior: str | priors.Prior

    learned: ClassVar[Sequence[str]] = ("latent_distribution",)
    reads_once = True
    tuning: ClassVar[LatentTuning] = TUNING

    @property
    def rules(self) -> Mapping[str, Rule]:  # type: ignore[override]
        """From parameters that may be "auto" to rules."""
        tuning = self.tuning

        def n_steps(scale: FitSize) -> int:
            most = tuning.free_steps if scale.epsilon is None else tuning.steps
            return max(50, min(most, scale.n_rows // 10))

        def rate(scale: FitSize) -> float:
            return tuning.free_rate if scale.epsilon is None else tuning.rate

        return {
            **RULES,
            "batch_size": lambda s: min(tuning.batch_size, max(32, s.n_rows)),
            "n_steps": n_steps,
            "learning_rate": rate,
            "beta": lambda _: tuning.beta,
            "prior_budget": lambda _: tuning.prior_budget,
            "latent_dim": lambda _: tuning.latents,
            "hidden_units": lambda _: tuning.hidden_units,
        }

    @property
    def batch_term_module(self) -> str:  # type: ignore[override]
        """The encoder, on which alone the divergences of this package depend."""
        return "" if callable(self.term.divergence) else "encoder"

    def check(self, owner: str) -> None:
        self._check_prior(owner)
        self._check_divergence(owner)

    def _check_prior(self, owner: str) -> None:
        if isinstance(self.prior, str):
            check_option(owner, "prior", self.prior, list(PRIORS))
            return
        for name in ("log_prob", "sample"):
            if not callable(getattr(self.prior, name, None)):
                rule = f"must be one of {list(PRIORS)}; an object needs a method {name}"
                refuse(owner, "prior", rule, self.prior)
        width = check_prior(owner, self.prior)
        stated = self.architecture.latent_dim
        if stated not in ("auto", width):
            rule = f"must be {width}, the width of the prior's samples, or 'auto'"
            refuse(owner, "architecture__latent_dim", rule, stated)

    def _check_divergence(self, owner: str) -> None:
        divergence = self.term.divergence
        if not callable(divergence):
            options = [None, *LATENT_DIVERGENCES]
            check_option(owner, "divergence", divergence, options, "a callable")
            return
        width = self.latent_dim or 4
        prior, generator = self.prior_of(width), torch.Generator().manual_seed(0)

        def use(n: int) -> Tensor:
            draws = torch.randn(n, 4, width, generator=generator).requires_grad_()
            latents = Latents(draws[:, 2:], draws[:, 0], draws[:, 1])
            return divergence(latents, prior, generator)

        check_divergence(owner, divergence, use)

    def releases(self, scale: FitSize, left: float) -> Mapping[Release, float]:
        is_auto = self.architecture.prior_budget == "auto"
        if is_auto and self.prior != "normal":
            return {}
        return {LATENTS: float(self.resolved("prior_budget", scale))}

    @property
    def latent_dim(self) -> int | None:
        """Number of latents, where it is stated."""
        if not isinstance(self.prior, str):
            return self.prior.sample(1, torch.Generator()).shape[1]
        stated = self.architecture.latent_dim
        return None if stated == "auto" else int(stated)

    def prior_of(self, latent_dim: int) -> priors.Prior:
        """Return the distribution of so many latents that training assumes."""
        prior = self.prior
        return PRIORS[prior](latent_dim) if isinstance(prior, str) else prior

    def settings(self, facts: Any, scale: FitSize) -> dict[str, Any]:
        latent_dim = self.latent_dim or self.resolved("latent_dim", scale)
        return {
            "hidden_units": self.resolved("hidden_units", scale),
            "latent_dim": latent_dim,
            "prior": self.prior_of(latent_dim),
            "beta": self.resolved("beta", scale),
        }

    def objective(
        self,
        model: Autoencoder,
        transformer: Any,
        rows: Private[Any],
        streams: Streams,
        device: str,
    ) -> Objective:
        codes = rows.map(transformer.encode).to(device)
        k, n_draws = model.latent_dim, self.architecture.n_draws
        n_draws = self.tuning.n_draws if n_draws == "auto" else int(n_draws)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            noise = priors.normals(streams.draws, len(rows), n_draws, k)
            bound, latents = model(codes[rows], noise)
            if self.term.divergence is None:
                return -bound, None
            posterior = torch.stack([latents.mean, latents.log_variance], 1)
            return -bound, torch.cat([latents.draws, posterior], 1)

        return objective

    def batch_term(self, model: Autoencoder, streams: Streams) -> Divergence:
        divergence = self.term.function(LATENT_DIVERGENCES)

        def term(stacked: Tensor) -> Tensor:
            latents = Latents(stacked[:, :-2], stacked[:, -2], stacked[:, -1])
            with streams.draws.device:  # a prior of one's own need not know it
                value = divergence(latents, model.prior, streams.draws)
            return self.term.weight * value

        return term

    def finish(
        self,
        model: Any,
        transformer: Any,
        rows: Private[Any],
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        k = model.latent_dim

        def draw(codes: Tensor) -> Tensor:
            noise = priors.normals(streams.draws, len(codes), 1, k)
            return model.latents(codes.to(noise.device), noise).draws[:, 0]

        if math.isfinite(plan.multiplier(LATENTS)):
            codes = rows.map(transformer.encode).to("cpu")
            cells, refined = priors.LatentCells.of_gaussian, priors.mixture_of_moments
            is_mixture = self.architecture.latent_distribution == "mixture"
            model.latent_distribution = release_distribution(
                draw, codes, k, plan, mechanisms, priors.gaussian_of_moments,
                streams.batches, Refinement(cells, refined) if is_mixture else None,
            )  # fmt: skip
        model.rake(RAKING_ROWS, streams.rows)

    def log_density(
        self, model: Autoencoder, transformer: Any, rows: Any, n_draws: int = 64
    ) -> np.ndarray:
        """Return an importance-weighted lower bound of the log-probability."""
        codes = torch.from_numpy(transformer.encode(rows))
        generator = torch.Generator().manual_seed(0)
        size = max(1, SCORE_CELLS // (n_draws * model.n_numbers))
        parts = []
        with torch.no_grad():
            for part in codes.split(size):
                noise = priors.normals(generator, len(part), n_draws, model.latent_dim)
                parts.append(model.log_likelihood(part, noise))
        return torch.cat(parts).double().numpy()


def bounds(fitted: Synthesizer, X: Any, y: Any, n_draws: int) -> np.ndarray:
    """Return a lower bound of every row's log-density, by so many draws."""
    count()(fitted._owner, "n_draws", n_draws)
    return fitted._scored(X, y, n_draws=n_draws)


def posterior(fitted: Synthesizer, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return means and standard deviations of every row's latents."""
    check_is_fitted(fitted)
    codes = torch.from_numpy(fitted._transformer.encode(fitted._as_fitted(X, y)))
    with torch.no_grad():
        mean, log_variance = fitted._model.encode(codes)
    return mean.numpy(), (log_variance / 2).exp().numpy()


def encoded(
    fitted: Synthesizer, X: Any, y: Any, random_state: Any, sampled: bool
) -> np.ndarray:
    """Return every row's posterior mean, or a draw from its posterior."""
    mean, std = posterior(fitted, X, y)
    if not sampled:
        return mean
    # The third stream: `decode` takes the first two of the same seed.
    stream = np.random.SeedSequence(as_seed(random_state)).spawn(3)[2]
    noise = np.random.default_rng(stream).standard_normal(mean.shape, np.float32)
    return np.asarray(mean + std * noise)


def points(fitted: Synthesizer, Z: Any) -> Tensor:
    """Return points of the latent space, or say what does not fit."""
    check_is_fitted(fitted)
    z, k, owner = np.asarray(Z), fitted._model.latent_dim, fitted._owner
    if z.dtype.kind not in "iuf" or z.ndim != 2 or z.shape[1] != k or not len(z):
        raise ValueError(
            f"{owner}.decode takes numbers of shape (n_samples, {k}), one or more "
            f"points of the latent space; got {z.dtype} of shape {z.shape}."
        )
    if not np.isfinite(z).all():
        raise ValueError(f"{owner}.decode takes no NaN or infinity.")
    return torch.as_tensor(z.astype(np.float32))
