"""PriVAE: a private variational autoencoder as an estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import Streams, torch_generator
from dpgenerative._validation import check_number, check_option, refuse
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.divergences import LATENT_DIVERGENCES, Latents
from dpgenerative.models.priors import NormalPrior, Prior, SparsePrior
from dpgenerative.models.vae import VAE, gaussian_of_moments
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.sampling import capacity
from dpgenerative.privacy.steps import AGGREGATIONS, Divergence, Objective
from dpgenerative.schema import Schema
from dpgenerative.synthesizers.base import (
    RAKING_ROWS,
    SAMPLE_CHUNK,
    Rule,
    Synthesizer,
    as_seed,
)
from dpgenerative.transform import TableTransformer

PRIORS: dict[str, Callable[[int], Prior]] = {
    "normal": NormalPrior,
    "sparse": SparsePrior,
}
MOMENT_SENSITIVITY = math.sqrt(3)
"""Of (1, z / R, z z^T / R^2): three parts of norm at most 1."""
SCORE_CELLS = 2**23
"""Logits that scoring holds at a time."""


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
        Probability in (0, 1) with which the promise may fail: a constant, never 1/n.
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
    prior : {"normal", "sparse"} or Prior, default="normal"
        Law of the latents (`models.priors`): N(0, I), spike and slab, or any object
        with `log_prob` and `sample`.
    prior_budget : float in [0, 1) or "auto", default="auto"
        Share of the budget for the moments of the trained latents; `sample` then draws
        them from the Gaussian of these moments (drawn towards N(0, I) where they are
        mostly noise). 0 draws from `prior` itself. "auto" is .05 for the normal prior
        and 0 for others.
    beta : float, default=1.0
        Weight of the divergence of every record's posterior from the prior.
    n_draws : int, default=1
        Draws from every record's posterior per step; they count as one record.
    conditional : hashable, optional
        Name of a column that the decoder is told, and that keeps its released marginal:
        a label, of which `sample_given` then draws rows.
    latent_dim : int or "auto", default="auto"
        Number of latents; "auto" with a Prior object is that of its samples.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layers of encoder and decoder, at least 1.
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
    learning_rate : float or "auto", default="auto"
    n_steps : int or "auto", default="auto"
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
        Draw noise and batches from the operating system's cryptographic generator, each
        normal as the sum of several (`_random.SecureGenerator`); excludes
        `reproducible`. Slower: see the guarantee's page.
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

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
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
        beta: float = 1.0,
        n_draws: int = 1,
        conditional: Hashable = None,
        latent_dim: int | str = "auto",
        hidden_units: int | str = "auto",
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
        self.beta = beta
        self.n_draws = n_draws
        self.conditional = conditional
        self.latent_dim = latent_dim
        self.hidden_units = hidden_units
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
        parts = []
        with torch.no_grad():
            for rows in self._chunks(len(codes), n_draws):
                noise = self._noise(len(codes[rows]), n_draws, generator)
                parts.append(self._model.log_likelihood(codes[rows], noise))
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
        """Draw one row for every point of the latent space.

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
        told = None if labels is None else self._told(labels)
        cells, places = np.random.SeedSequence(as_seed(random_state)).spawn(2)
        codes = self._model.decode(z, torch_generator(cells), told).numpy()
        return self._restored(codes, np.random.default_rng(places), labels)

    def reconstruct(self, X: Any, y: Any = None, random_state: Any = None) -> Any:
        """Draw a row from the decoder at every row's posterior mean; not private.

        With a `conditional` column, rows keep their labels.

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

    def sample_given(self, labels: Any, random_state: Any = None) -> Any:
        """Draw one row for every label of the column `conditional`.

        Parameters
        ----------
        labels : array-like of shape (n_samples,)
            Values of the column: its levels, or numbers.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            As `sample` returns it; ``(X, y)`` where y was fitted too.
        """
        check_is_fitted(self)
        labels = self._labels(labels)
        told = self._told(labels)
        cells, places = np.random.SeedSequence(as_seed(random_state)).spawn(2)
        generator = torch_generator(cells)
        parts = [
            self._model.sample(len(part), generator, part).numpy()
            for part in told.split(SAMPLE_CHUNK)
        ]
        codes = np.concatenate(parts)
        return self._restored(codes, np.random.default_rng(places), labels)

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
        frame = self._transformer.decode(codes, rng.random(codes.shape))
        if labels is not None:
            dtype = frame[self.conditional].dtype
            frame[self.conditional] = pd.Series(np.asarray(labels)).astype(dtype)
        return self._layout.restore(frame)

    # What the base class asks for -----------------------------------------------

    @property
    def _rules(self) -> Mapping[str, Rule]:
        return _RULES

    @property
    def _divergences(self) -> Mapping[str, Callable[..., Tensor]]:
        return LATENT_DIVERGENCES

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
        for name in ("alpha", "beta"):
            check_number(owner, name, getattr(self, name), low=0, closed="left")
        self._check_integers(n_draws=1)
        self._check_integers(["auto"], latent_dim=1, hidden_units=1)
        if self.prior_budget != 0:
            self._check_share("prior_budget")

    def _check_prior(self) -> None:
        if isinstance(self.prior, str):
            check_option(self._owner, "prior", self.prior, list(PRIORS))
            return
        for method in ("log_prob", "sample"):
            if not callable(getattr(self.prior, method, None)):
                refuse(self._owner, "prior", f"needs a method {method}", self.prior)
        width = self.prior.sample(1, torch.Generator()).shape[1]
        if self.latent_dim not in ("auto", width):
            rule = f"must be {width}, the width of the prior's samples, or 'auto'"
            refuse(self._owner, "latent_dim", rule, self.latent_dim)

    def _check_schema(self, schema: Schema) -> None:
        if self.conditional is not None and self.conditional not in schema.names:
            refuse(self._owner, "conditional", "must name a column", self.conditional)

    def _build(
        self,
        facts: Sequence[CellFacts],
        n_rows: int,
        schema: Schema,
        generator: torch.Generator,
    ) -> VAE:
        if isinstance(self.prior, str):
            latent_dim = self._resolved("latent_dim", n_rows, schema)
            prior = PRIORS[self.prior](latent_dim)
        else:
            prior = self.prior
            latent_dim = prior.sample(1, torch.Generator()).shape[1]
        condition = None
        if self.conditional is not None:
            condition = list(schema.names).index(self.conditional)
        return VAE(
            facts,
            n_basis=self._resolved("n_basis", n_rows, schema),
            hidden_units=self._resolved("hidden_units", n_rows, schema),
            latent_dim=latent_dim,
            prior=prior,
            beta=self.beta,
            generator=generator,
            condition=condition,
        )

    def _objective(
        self,
        model: VAE,
        transformer: TableTransformer,
        frame: pd.DataFrame,
        streams: Streams,
        device: str,
    ) -> Objective:
        codes = torch.from_numpy(transformer.encode(frame)).to(device)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            shape = (len(rows), self.n_draws, model.latent_dim)
            noise = torch.randn(shape, generator=streams.draws, device=device)
            bound, latents = model(codes[rows].long(), noise)
            if self.divergence is None:
                return -bound, None
            posterior = torch.stack([latents.mean, latents.log_variance], 1)
            return -bound, torch.cat([latents.draws, posterior], 1)

        return objective

    def _batch_term(self, model: VAE, streams: Streams) -> Divergence | None:
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
        model: VAE,
        transformer: TableTransformer,
        frame: pd.DataFrame,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        if math.isfinite(plan.prior_multiplier):
            radius = math.sqrt(model.latent_dim) + 2
            codes = torch.from_numpy(transformer.encode(frame))
            moments = self._moments(model, codes, radius, streams)
            std = plan.prior_multiplier * MOMENT_SENSITIVITY
            released = mechanisms.gaussian(moments, std)
            model.law = gaussian_of_moments(released, radius, std)
        model.rake(RAKING_ROWS, streams.rows)

    def _moments(
        self, model: VAE, codes: Tensor, radius: float, streams: Streams
    ) -> np.ndarray:
        """Return the sums of `VAE.moments` over all rows: private."""
        device = streams.draws.device
        k = model.latent_dim
        total = np.zeros(1 + k + k * k)
        for part in codes.split(4096):
            shape = (len(part), 1, k)
            noise = torch.randn(shape, generator=streams.draws, device=device)
            total += model.moments(part.long().to(device), noise, radius)
        return total

    def _draw(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        codes = self._model.sample(n, generator).numpy()
        return codes, rng.random(codes.shape)

    def _chunks(self, n: int, n_draws: int) -> Iterator[slice]:
        size = max(1, SCORE_CELLS // (n_draws * sum(self._model.cells.n_cells)))
        return (slice(start, start + size) for start in range(0, n, size))

    def _noise(self, n: int, n_draws: int, generator: torch.Generator) -> Tensor:
        return torch.randn(n, n_draws, self._model.latent_dim, generator=generator)


def _auto_steps(n: int, schema: Schema, epsilon: float | None) -> int:
    most = 2000 if epsilon is None else 1000
    return max(50, min(most, n // 10))


def _is_small(n: int, schema: Schema, epsilon: float | None) -> bool:
    """Return whether the rows can say little beyond their marginals."""
    return epsilon is not None and n * epsilon / len(schema) < 130


def _auto_latents(n: int, schema: Schema, epsilon: float | None) -> int:
    return min(4 if _is_small(n, schema, epsilon) else 16, 2 * len(schema))


def _auto_hidden(n: int, schema: Schema, epsilon: float | None) -> int:
    return 16 if _is_small(n, schema, epsilon) else 64


_RULES: dict[str, Rule] = {
    "marginal_budget": lambda n, schema, epsilon: 0.15,
    "prior_budget": lambda n, schema, epsilon: 0.05,
    "n_bins": lambda n, schema, epsilon: 100 if epsilon is None else 64,
    "n_basis": lambda n, schema, epsilon: 64 if epsilon is None else 8,
    "latent_dim": _auto_latents,
    "hidden_units": _auto_hidden,
    "n_steps": _auto_steps,
    "batch_size": lambda n, schema, epsilon: min(2048, max(32, n)),
    "learning_rate": lambda n, schema, epsilon: 0.003 if epsilon is None else 0.02,
}
