"""PriVAE: a private variational autoencoder as an estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import Streams, torch_generator
from dpgenerative._validation import check_number, check_option, refuse
from dpgenerative.encoding.increments import increments_of
from dpgenerative.encoding.pixels import (
    Pixels,
    check_array,
    check_range,
    full_range,
    full_shape,
)
from dpgenerative.models.divergences import LATENT_DIVERGENCES, Latents
from dpgenerative.models.networks import Architecture, convolutions, perceptrons
from dpgenerative.models.priors import (
    LatentCells,
    MixturePrior,
    NormalPrior,
    Prior,
    SparsePrior,
    gaussian_of_moments,
    mixture_of_moments,
)
from dpgenerative.models.probing import check_architecture, check_memory, check_prior
from dpgenerative.models.vae import HEADS, VAE, Autoencoder, ImageVAE
from dpgenerative.privacy.latents import Refinement, release_distribution
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.report import FEW
from dpgenerative.privacy.sampling import capacity
from dpgenerative.privacy.steps import AGGREGATIONS, Divergence, Objective
from dpgenerative.synthesizers.base import (
    RAKING_ROWS,
    Rule,
    Synthesizer,
    as_seed,
    rows_per_column,
)
from dpgenerative.tables.schema import Schema

PRIORS: dict[str, Callable[[int], Prior]] = {
    "normal": NormalPrior,
    "mixture": MixturePrior.on_axes,
    "sparse": SparsePrior,
}
LATENT_DISTRIBUTIONS = ("gaussian", "mixture")
SCORE_CELLS = 2**23
"""Logits that scoring holds at a time."""
ARCHITECTURES = ("mlp", "conv")
TABLE_DRAWS = 2
"""Draws of the latents of a row per step."""
SOME = 400
"""Rows times epsilon per column up to which marginals get more than a small share."""
TABLE_ONLY: dict[str, Any] = {
    "schema": None, "categorical_features": "from_dtype", "conditional": None,
    "marginal_budget": "auto", "n_bins": "auto", "n_basis": "auto",
}  # fmt: skip
"""Parameters that speak of columns, and what they are where there are none."""
IMAGE_ONLY: dict[str, Any] = {
    "architecture": "mlp", "likelihood": "bernoulli", "pixel_range": "auto",
    "pixel_std": 0.1,
}  # fmt: skip
"""Parameters that speak of pixels, and what they are where there are none."""


class DPVAESynthesizer(Synthesizer):
    """Differentially private variational autoencoder for mixed-type tables (PriVAE).

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables of the same columns and
    dtypes. All that `fit` leaves behind, and all that is drawn from it, is covered. The
    loss is ``-E[log p(x | z)] + beta KL(q(z | x) || p(z)) + alpha D(q(z), p(z))``, with
    any divergence D of whole sets of latents, trained by term-wise DP-SGD.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, > 0. None (or inf) fits without privacy.
    delta : float, default=1e-5
        Probability in (0, 1) with which the guarantee may fail: a constant, never 1/n.
    max_rows_per_unit : int, default=1
        Most rows that one person has; (epsilon, delta) then holds for adding or
        removing all of them. Whoever prepares the table must see to it.
    aggregation : {"term-wise", "micro", "batch"}, default="term-wise"
        How the gradient with a batch-wise term is bounded (`privacy.steps`). The last
        two are the paper's baselines, with far more noise; they clip flat.
    clipping : {"flat", "per-layer", "per-unit", "sparsified"}, default="flat"
        How the gradient of one record is bounded (`privacy.clipping`).
    max_grad_norm : float or "auto", default=1.0
        Clipping norm. "auto" estimates the median norm, paid for by 1 % of the budget.
    sparsity : float in [0, 1), default=0.5
        For ``clipping="sparsified"``: share of a gradient's entries that are thinned.
    divergence : None, "mmd", "kl" or callable, default=None
        Batch-wise term D (`models.divergences`): squared maximum mean discrepancy, or
        KL(p || q). A callable takes the `Latents` of one partition, the prior and a
        torch generator, and returns a scalar; it must not raise, whatever they hold.
    alpha : float, default=1.0
        Weight of the divergence.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
    clip_batch : float, optional
        Clipping norm of one partition's gradient; None means `max_grad_norm` times
        ``n_partitions / (20 * batch size)``.
    prior : {"normal", "mixture", "sparse"} or Prior, default="normal"
        Law of the latents (`models.priors`): N(0, I), Gaussians around points of the
        first four axes (`MixturePrior.on_axes`), spike and slab, or any object with
        `log_prob` and `sample`.
    prior_budget : float in [0, 1) or "auto", default="auto"
        Share of the budget for the moments of the trained latents; `sample` then draws
        them from `latent_distribution`, fitted to these moments (and drawn towards
        N(0, I) where they are mostly noise). 0 draws from `prior` itself. "auto" is .05
        for the normal prior and 0 for others.
    latent_distribution : {"gaussian", "mixture"}, default="gaussian"
        Law of the trained latents that `prior_budget` pays for: one Gaussian; or one
        per orthant of its four main axes, of their own means and weights and one
        covariance. No effect where `prior_budget` is 0.
    beta : float or "auto", default="auto"
        Weight of the divergence of every record's posterior from the prior. Below 1
        latents say more of a record; the law that rows are drawn from is fitted to them
        by `prior_budget`.
    n_draws : int or "auto", default="auto"
        Draws from every record's posterior per step; they count as one record. "auto"
        is 2 for tables, 1 for images.
    conditional : hashable, optional
        Name of a column that the decoder is told, and that keeps its released marginal:
        a label, given which `sample` then draws rows of weight 1.
    latent_dim : int or "auto", default="auto"
        Number of latents; "auto" with a Prior object is that of its samples.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layers of encoder and decoder, at least 1.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width): X is then an array of images, of
        shape (n, c h w), (n, h, w) or (n, c, h, w), and samples come in the shape and
        dtype fitted. Nothing is spent on marginals: the range of the pixels is public.
        Parameters that speak of columns must keep their defaults, and y cannot be
        fitted.
    architecture : {"mlp", "conv"} or callable, default="mlp"
        Encoder and decoder of images (`models.networks`): one hidden layer each; three
        convolutions of 32, 64 and 128 channels (Mathieu et al. 2019); or a function of
        (c, h, w), the number of latents and a torch generator that returns two modules.
    likelihood : {"bernoulli", "gaussian"}, default="bernoulli"
        Law of a pixel x in [0, 1], given its mean p: ``p^x (1 - p)^(1 - x)``, or a
        normal of standard deviation `pixel_std`.
    pixel_range : tuple of float or "auto", default="auto"
        Least and greatest value of a pixel, taken as public. "auto" is (0, 255) for
        uint8 and (0, 1) for all else. Values outside move to the nearest end, missing
        ones to the lower one.
    pixel_std : float, default=0.1
        Standard deviation of the Gaussian law, in shares of the range.
    n_basis : int or "auto", default="auto"
        Degrees of freedom of an ordered column.
    n_bins : int or "auto", default="auto"
        Number of intervals aimed at per numeric column.
    schema : Schema, optional
        Public facts. What it leaves open is found privately, inside the budget.
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns to treat as categorical whatever their dtype: names, indices, or a mask.
    marginal_budget : float in (0, 1) or "auto", default="auto"
        Share of the budget for one-way marginals, in units of squared inverse noise.
    optimizer : {"adam", "adabelief", "sgd"}, default="adam"
        What takes the noisy gradients.
    learning_rate : float or "auto", default="auto"
        Step size at the start; it falls to zero along a straight line.
    n_steps : int or "auto", default="auto"
        Number of gradient steps.
    batch_size : int or "auto", default="auto"
        Expected batch size.
    averaging : float in [0, 1), default=0.995
        Decay of the exponential average of the weights.
    device : {"auto", "cpu", "cuda"}, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights and `sample`. Not the noise: see `reproducible`.
    reproducible : bool, default=False
        Seed noise and batches by `random_state` too. Whoever knows the seed can then
        remove the noise; the report says so.
    secure : bool, default=False
        Draw batches and all noise (by default that of counts alone) from the operating
        system's cryptographic generator; excludes `reproducible`. See :ref:`secure`.
    verbose : int, default=0
        Show a progress bar.

    Attributes
    ----------
    privacy_ : PrivacyReport
        What was released, with which noise, and what was taken as public.
    epsilon_, delta_ : float
        What the fit cost: an upper bound of epsilon, at this delta.
    noise_multiplier_ : float
        Noise multiplier of a gradient step.
    n_steps_ : int
        Number of gradient steps.
    schema_ : Schema
        The schema completed by released bounds and levels.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of X, where all are strings.

    Notes
    -----
    Every `fit` spends again. `score`, `score_samples`, `encode` and `reconstruct` on
    private rows are not covered.

    An image comes as the means of its pixels, which carry no noise of their own, except
    that pixels of two values (bools, or integers of a range of width 1) are drawn.

    References
    ----------
    Takahashi, Takagi, Ono and Komatsu. Differentially Private Variational Autoencoders
    with Term-wise Gradient Aggregation. arXiv:2006.11204, 2020.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpgenerative import DPVAESynthesizer
    >>> frame = pd.DataFrame({"smokes": pd.Categorical(["yes", "no"] * 50)})
    >>> synthesizer = DPVAESynthesizer(epsilon=1.0, random_state=0).fit(frame)
    >>> synthesizer.sample(3).columns.tolist()
    ['smokes']
    """

    _divergences = LATENT_DIVERGENCES

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        max_rows_per_unit: int = 1,
        aggregation: str = "term-wise",
        clipping: str = "flat",
        max_grad_norm: float | str = 1.0,
        sparsity: float = 0.5,
        divergence: str | Callable[..., Tensor] | None = None,
        alpha: float = 1.0,
        n_partitions: int = 16,
        clip_batch: float | None = None,
        prior: str | Prior = "normal",
        prior_budget: float | str = "auto",
        latent_distribution: str = "gaussian",
        beta: float | str = "auto",
        n_draws: int | str = "auto",
        conditional: Hashable = None,
        latent_dim: int | str = "auto",
        hidden_units: int | str = "auto",
        image_shape: Sequence[int] | None = None,
        architecture: str | Architecture = "mlp",
        likelihood: str = "bernoulli",
        pixel_range: Sequence[float] | str = "auto",
        pixel_std: float = 0.1,
        n_basis: int | str = "auto",
        n_bins: int | str = "auto",
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        marginal_budget: float | str = "auto",
        optimizer: str = "adam",
        learning_rate: float | str = "auto",
        n_steps: int | str = "auto",
        batch_size: int | str = "auto",
        averaging: float = 0.995,
        device: str = "auto",
        random_state: Any = None,
        reproducible: bool = False,
        secure: bool = False,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.max_rows_per_unit = max_rows_per_unit
        self.aggregation = aggregation
        self.clipping = clipping
        self.max_grad_norm = max_grad_norm
        self.sparsity = sparsity
        self.divergence = divergence
        self.alpha = alpha
        self.n_partitions = n_partitions
        self.clip_batch = clip_batch
        self.prior = prior
        self.prior_budget = prior_budget
        self.latent_distribution = latent_distribution
        self.beta = beta
        self.n_draws = n_draws
        self.conditional = conditional
        self.latent_dim = latent_dim
        self.hidden_units = hidden_units
        self.image_shape = image_shape
        self.architecture = architecture
        self.likelihood = likelihood
        self.pixel_range = pixel_range
        self.pixel_std = pixel_std
        self.n_basis = n_basis
        self.n_bins = n_bins
        self.schema = schema
        self.categorical_features = categorical_features
        self.marginal_budget = marginal_budget
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.averaging = averaging
        self.device = device
        self.random_state = random_state
        self.reproducible = reproducible
        self.secure = secure
        self.verbose = verbose

    # Public methods -------------------------------------------------------------

    def score_samples(self, X: Any, y: Any = None, n_draws: int = 64) -> np.ndarray:
        """Return a lower bound of every row's log-density; not private if the rows are.

        Densities are in data units for numbers without a resolution, probabilities for
        integers, levels and missing values. The bound is importance-weighted (Burda et
        al. 2016): it rises with the number of draws towards the log-density.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Needed where y was fitted.
        n_draws : int, default=64
            Draws from every row's posterior.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        self._check_count("n_draws", n_draws)
        frame = self._joined(X, y)
        codes = self._codes(frame)
        generator = torch.Generator().manual_seed(0)
        size = max(1, SCORE_CELLS // (n_draws * self._model.n_numbers))
        parts = []
        with torch.no_grad():
            for rows in codes.split(size):
                shape = (len(rows), n_draws, self._model.latent_dim)
                noise = torch.randn(shape, generator=generator)
                parts.append(self._model.log_likelihood(rows, noise))
        inside = self._transformer.log_within(frame)
        return torch.cat(parts).double().numpy() + inside

    def encode(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the posterior mean of every row's latents; not private if rows are.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Needed where y was fitted.

        Returns
        -------
        ndarray of shape (n_samples, latent_dim)
        """
        check_is_fitted(self)
        with torch.no_grad():
            mean, _ = self._model.encode(self._codes(self._joined(X, y)))
        return mean.numpy()

    def decode(self, Z: Any, random_state: Any = None, labels: Any = None) -> Any:
        """Draw one row for every point of the latent space, constraints aside.

        Parameters
        ----------
        Z : array-like of shape (n_samples, latent_dim)
        random_state : int, RandomState instance or None, default=None
        labels : array-like of shape (n_samples,), optional
            Values of the column `conditional`; None draws them from its marginal.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            As `sample` returns it; ``(X, y)`` where y was fitted too.
        """
        check_is_fitted(self)
        z = torch.as_tensor(np.asarray(Z, dtype=np.float32))
        k = self._model.latent_dim
        if z.ndim != 2 or z.shape[1] != k:
            raise ValueError(
                f"{self._owner}.decode takes points of shape (n_samples, {k}); got "
                f"shape {tuple(z.shape)}."
            )
        labels = None if labels is None else self._labels(labels)
        if labels is not None and len(labels) != len(z):
            raise ValueError(
                f"{self._owner}.decode needs one label per point; got {len(labels)} "
                f"and {len(z)}."
            )
        return self._decoded(z, random_state, labels)

    def _decoded(self, z: Tensor, random_state: Any, labels: pd.Series | None) -> Any:
        """Draw one row for every point, of these labels if told."""
        cells, places = np.random.SeedSequence(as_seed(random_state)).spawn(2)
        generator = torch_generator(cells)
        if self._has_images:
            return self._layout.restore(self._model.decode(z, generator).numpy())
        told = None if labels is None else self._told(labels)
        codes = self._model.decode(z, generator, told).numpy()
        return self._restored(codes, np.random.default_rng(places), labels)

    def reconstruct(self, X: Any, y: Any = None, random_state: Any = None) -> Any:
        """Draw a row from the decoder at every row's posterior mean; not private.

        Constraints of the schema are not enforced. With a `conditional` column, rows
        keep their labels.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Needed where y was fitted.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            As `sample` returns it; ``(X, y)`` where y was fitted too.
        """
        latents = torch.from_numpy(self.encode(X, y))
        labels = None
        if self.conditional is not None:
            labels = self._joined(X, y)[self.conditional]
        return self._decoded(latents, random_state, labels)

    def _labels(self, labels: Any) -> pd.Series:
        """Return labels of the column `conditional`, or say what does not fit it."""
        if self.conditional is None:
            raise ValueError(
                f"{self._owner} takes labels only with the parameter 'conditional'."
            )
        if np.ndim(labels) != 1 or not len(labels):
            raise ValueError(
                f"{self._owner} takes a list of at least one label; got {labels!r}."
            )
        series = pd.Series(np.asarray(labels), name=self.conditional)
        column = self._transformer.codecs[self._model.condition].column
        unfit = Schema([column]).check(series.to_frame())
        if len(unfit):
            raise ValueError(
                f"{self._owner}: the label {unfit['value'][0]!r} does not fit the "
                f"column {self.conditional!r}: {unfit['problem'][0]}."
            )
        return series

    def _told(self, labels: pd.Series) -> Tensor:
        """Return the cells of given labels."""
        codec = self._transformer.codecs[self._model.condition]
        codes = codec.encode(labels.astype(codec.dtype))
        return torch.from_numpy(codes.astype(np.int64))

    def _restored(
        self, codes: np.ndarray, rng: np.random.Generator, labels: Any
    ) -> Any:
        """Return rows of given cells, with the labels themselves where told."""
        told = {}
        if labels is not None:
            codec = self._transformer.outer[self._model.condition]
            held = pd.Series(np.asarray(labels)).astype(codec.dtype)
            told[self.conditional] = held.dropna()
        frame, _ = self._transformer.rows(codes, rng.random(codes.shape), told)
        return self._returned(frame, rng, None)

    # Images ---------------------------------------------------------------------

    @property
    def _has_images(self) -> bool:
        return self.image_shape is not None

    def _read(self, X: Any, y: Any, public: Any) -> tuple[Any, Any, Schema, Any]:
        if not self._has_images:
            return super()._read(X, y, public)
        self._refuse_target(y)
        shape = full_shape(self._owner, self.image_shape)
        check_array(self._owner, X, shape)
        low, high = full_range(self.pixel_range, X.dtype)
        has_density = self.likelihood == "gaussian"
        pixels = Pixels(shape, X.shape[1:], low, high, X.dtype, has_density)
        images = pixels.read(self._owner, X)
        if public is not None:
            check_array(self._owner, public, shape)
            public = pixels.read(self._owner, public)
        return images, pixels, Schema([]), public

    def _transform(
        self,
        frame: Any,
        schema: Schema,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
    ) -> Any:
        if self._has_images:
            return frame.pixels
        return super()._transform(frame, schema, plan, mechanisms)

    def _joined(self, X: Any, y: Any) -> Any:
        if not self._has_images:
            return super()._joined(X, y)
        self._refuse_target(y)
        return self._transformer.read(self._owner, X)

    def _refuse_target(self, y: Any) -> None:
        if y is not None:
            raise ValueError(
                f"{self._owner} takes no y with image_shape. Where labels are public, "
                "fit one synthesizer to the images of each label."
            )

    def _check_given(self, given: Any, impute: Any, max_tries: Any) -> None:
        if self._has_images and given is not None:
            rule = "must be None with image_shape: pixels have no conditions"
            refuse(f"{self._owner}.sample", "given", rule, given)
        super()._check_given(given, impute, max_tries)

    def _rows(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> Any:
        if self._has_images:
            return self._model.sample(n, generator).numpy()
        return super()._rows(n, generator, rng)

    def _codes(self, frame: Any) -> Tensor:
        return torch.from_numpy(self._transformer.encode(frame))

    def _facts(self, transformer: Any) -> Any:
        return transformer if self._has_images else super()._facts(transformer)

    def _image_model(
        self,
        pixels: Pixels,
        hidden_units: int,
        latent_dim: int,
        generator: torch.Generator,
    ) -> dict[str, Any]:
        """Return what an `ImageVAE` needs beside the law of its latents."""
        if isinstance(self.architecture, str):
            mlp = partial(perceptrons, hidden_units=hidden_units)
            make = mlp if self.architecture == "mlp" else convolutions
            encoder, decoder = make(pixels.shape, latent_dim, generator)
        else:
            modules = self.architecture(pixels.shape, latent_dim, generator)
            check_architecture(self._owner, modules, pixels.shape, latent_dim)
            encoder, decoder = modules
        return {
            "encoder": encoder, "decoder": decoder, "image_shape": pixels.shape,
            "head": self.likelihood, "std": self.pixel_std,
            "two_valued": pixels.two_valued,
        }  # fmt: skip

    # What the base class asks for -----------------------------------------------

    @property
    def _rules(self) -> Mapping[str, Rule]:
        return _IMAGE_RULES if self._has_images else _RULES

    @property
    def _informed(self) -> bool:
        return not self._has_images

    def _public(self, schema: Schema) -> tuple[str, ...]:
        if self._has_images:
            return ("shape, dtype and range of the pixels; constructor parameters",)
        return super()._public(schema)

    def _latent_share(self, n_rows: int, schema: Schema) -> float:
        if self.prior_budget == "auto" and self.prior != "normal":
            return 0.0
        return float(self._resolved("prior_budget", n_rows, schema))

    def _coupling(self, plan: PrivacyPlan) -> dict[str, Any]:
        declared = not callable(self.divergence)
        return {
            "aggregation": self.aggregation,
            "batch_cap": capacity(plan.batch_size),
            "reach": "encoder" if declared else "",
        }

    def _check_own(self) -> None:
        owner = self._owner
        check_option(owner, "aggregation", self.aggregation, AGGREGATIONS)
        if self.aggregation != "term-wise":
            check_option(owner, "clipping", self.clipping, ["flat"])
        self._check_prior()
        self._check_divergence()
        check_number(owner, "alpha", self.alpha, low=0, closed="left")
        check_number(owner, "beta", self.beta, low=0, closed="left", also=["auto"])
        check_option(
            owner, "latent_distribution", self.latent_distribution, LATENT_DISTRIBUTIONS
        )
        self._check_integers(["auto"], n_draws=1, latent_dim=1, hidden_units=1)
        check_number(
            owner, "prior_budget", self.prior_budget, low=0, high=1, closed="left",
            also=["auto"],
        )  # fmt: skip
        self._check_images()

    def _check_images(self) -> None:
        owner = self._owner
        if not callable(self.architecture):
            check_option(owner, "architecture", self.architecture, ARCHITECTURES)
        check_option(owner, "likelihood", self.likelihood, HEADS)
        check_range(owner, self.pixel_range)
        check_number(owner, "pixel_std", self.pixel_std, low=0)
        if self._has_images:
            full_shape(owner, self.image_shape)
        fixed = TABLE_ONLY if self._has_images else IMAGE_ONLY
        for name, default in fixed.items():
            value = getattr(self, name)
            if not isinstance(value, type(default)) or value != default:
                with_it = "with" if self._has_images else "without"
                rule = f"must be {default!r} {with_it} image_shape"
                refuse(owner, name, rule, value)

    def _check_prior(self) -> None:
        if isinstance(self.prior, str):
            check_option(self._owner, "prior", self.prior, list(PRIORS))
            return
        for method in ("log_prob", "sample"):
            if not callable(getattr(self.prior, method, None)):
                refuse(self._owner, "prior", f"needs a method {method}", self.prior)
        width = check_prior(self._owner, self.prior)
        if self.latent_dim not in ("auto", width):
            rule = f"must be {width}, the width of the prior's samples, or 'auto'"
            refuse(self._owner, "latent_dim", rule, self.latent_dim)

    def _check_divergence(self) -> None:
        divergence, prior, width = self.divergence, self.prior, 4
        if not callable(divergence):
            return
        generator = torch.Generator().manual_seed(0)
        if isinstance(self.latent_dim, int):
            width = self.latent_dim
        law = PRIORS[prior](width) if isinstance(prior, str) else prior
        width = law.sample(1, generator).shape[1]

        def use(n: int) -> Tensor:
            draws = torch.randn(n, 4, width, generator=generator)
            latents = Latents(draws[:, 2:], draws[:, 0], draws[:, 1])
            return divergence(latents, law, generator)

        check_memory(self._owner, "divergence", divergence, use)

    def _check_schema(self, schema: Schema) -> None:
        if self.conditional is not None and self.conditional not in schema.names:
            refuse(self._owner, "conditional", "must name a column", self.conditional)
        if self.conditional in increments_of(schema):
            rule = "must not be the second column of a LessEqual"
            refuse(self._owner, "conditional", rule, self.conditional)

    def _build(
        self,
        facts: Any,
        n_rows: int,
        schema: Schema,
        generator: torch.Generator,
    ) -> Autoencoder:
        if isinstance(self.prior, str):
            latent_dim = self._resolved("latent_dim", n_rows, schema)
            prior = PRIORS[self.prior](latent_dim)
        else:
            prior = self.prior
            latent_dim = prior.sample(1, torch.Generator()).shape[1]
        hidden_units = self._resolved("hidden_units", n_rows, schema)
        beta = self._resolved("beta", n_rows, schema)
        if self._has_images:
            parts = self._image_model(facts, hidden_units, latent_dim, generator)
            return ImageVAE(**parts, latent_dim=latent_dim, prior=prior, beta=beta)
        condition = None
        if self.conditional is not None:
            condition = list(schema.names).index(self.conditional)
        return VAE(
            facts,
            n_basis=self._resolved("n_basis", n_rows, schema),
            hidden_units=hidden_units,
            latent_dim=latent_dim,
            prior=prior,
            beta=beta,
            generator=generator,
            condition=condition,
        )

    def _objective(
        self,
        model: Autoencoder,
        transformer: Any,
        frame: Any,
        streams: Streams,
        device: str,
    ) -> Objective:
        codes = torch.from_numpy(transformer.encode(frame)).to(device)
        n_draws = 1 if self._has_images else TABLE_DRAWS
        if self.n_draws != "auto":
            n_draws = int(self.n_draws)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            shape = (len(rows), n_draws, model.latent_dim)
            noise = torch.randn(shape, generator=streams.draws, device=device)
            bound, latents = model(codes[rows], noise)
            if self.divergence is None:
                return -bound, None
            posterior = torch.stack([latents.mean, latents.log_variance], 1)
            return -bound, torch.cat([latents.draws, posterior], 1)

        return objective

    def _batch_term(self, model: Autoencoder, streams: Streams) -> Divergence | None:
        if self.divergence is None:
            return None
        divergence: Callable[..., Tensor] = (
            LATENT_DIVERGENCES[self.divergence]
            if isinstance(self.divergence, str)
            else self.divergence
        )

        def term(image: Tensor) -> Tensor:
            latents = Latents(image[:, :-2], image[:, -2], image[:, -1])
            return self.alpha * divergence(latents, model.prior, streams.draws)

        return term

    def _finish(
        self,
        model: Autoencoder,
        transformer: Any,
        frame: Any,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        if math.isfinite(plan.prior_multiplier):
            codes = torch.from_numpy(transformer.encode(frame))
            model.latent_distribution = self._law(
                model, codes, plan, mechanisms, streams
            )
        if isinstance(model, VAE):
            model.rake(RAKING_ROWS, streams.rows)

    def _law(
        self,
        model: Autoencoder,
        codes: Tensor,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> Prior:
        """Release moments of the latents; return the distribution fitted to them."""
        k, device = model.latent_dim, streams.draws.device

        def draw(rows: Tensor) -> Tensor:
            shape = (len(rows), 1, k)
            noise = torch.randn(shape, generator=streams.draws, device=device)
            return model.latents(rows.to(device), noise).draws[:, 0]

        is_mixture = self.latent_distribution == "mixture"
        refinement = Refinement(LatentCells.of_gaussian, mixture_of_moments)
        return release_distribution(
            draw, codes, k, plan, mechanisms, gaussian_of_moments,
            refinement if is_mixture else None,
        )  # fmt: skip

    def _draw(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        codes = self._model.sample(n, generator).numpy()
        return codes, rng.random(codes.shape)

    @property
    def _can_clamp(self) -> bool:
        return True

    def _draw_given(
        self,
        n: int,
        log_shares: Mapping[int, Tensor],
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        codes, weights = self._model.sample_given(n, generator, log_shares)
        inside = rng.random(codes.shape)
        return codes.numpy(), inside, weights.double().numpy()


def _auto_steps(n: int, schema: Schema, epsilon: float | None) -> int:
    most = 2000 if epsilon is None else 1000
    return max(50, min(most, n // 10))


def _auto_latents(n: int, schema: Schema, epsilon: float | None) -> int:
    few = rows_per_column(n, schema, epsilon) <= FEW
    return min(4 if few else 16, 2 * len(schema))


def _auto_hidden(n: int, schema: Schema, epsilon: float | None) -> int:
    return 16 if rows_per_column(n, schema, epsilon) <= FEW else 64


def _auto_marginal_budget(n: int, schema: Schema, epsilon: float | None) -> float:
    rows = rows_per_column(n, schema, epsilon)
    return 0.6 if rows <= FEW else 0.4 if rows <= SOME else 0.15


_IMAGE_RULES: dict[str, Rule] = {
    "marginal_budget": lambda n, schema, epsilon: 0.0,
    "prior_budget": lambda n, schema, epsilon: 0.05,
    "beta": lambda n, schema, epsilon: 1.0,
    "latent_dim": lambda n, schema, epsilon: 16,
    "hidden_units": lambda n, schema, epsilon: 64,
    "n_steps": _auto_steps,
    "batch_size": lambda n, schema, epsilon: min(1024, max(32, n)),
    "learning_rate": lambda n, schema, epsilon: 0.003 if epsilon is None else 0.02,
}
_RULES: dict[str, Rule] = {
    **_IMAGE_RULES,
    "marginal_budget": _auto_marginal_budget,
    "beta": lambda n, schema, epsilon: 0.7,
    "n_bins": lambda n, schema, epsilon: 100 if epsilon is None else 64,
    "n_basis": lambda n, schema, epsilon: 64 if epsilon is None else 8,
    "latent_dim": _auto_latents,
    "hidden_units": _auto_hidden,
    "batch_size": lambda n, schema, epsilon: min(2048, max(32, n)),
}
