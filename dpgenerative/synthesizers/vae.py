"""PriVAE: a private variational autoencoder of tables as an estimator."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgenerative._random import Streams, as_seed, torch_generator
from dpgenerative._validation import refuse, shown
from dpgenerative.encoding.increments import increments_of, learned_columns
from dpgenerative.encoding.stick_breaking import stick_breaks_of
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting.clipping import Sparsified
from dpgenerative.fitting.fit import Fitted
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.fitting.recipe import FitSize, Rule
from dpgenerative.fitting.workload import count_tables, factors_of_nestings
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.priors import Prior
from dpgenerative.models.vae import VAE
from dpgenerative.persistence.registry import register
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.report import FEW
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers import flow_rules, latents, notes
from dpgenerative.synthesizers.architecture import VAEArchitecture
from dpgenerative.synthesizers.latents import AutoencoderRecipe
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema, misfits


def _unfit(name: Hashable, schema: Schema) -> str | None:
    """Return the rule that a condition breaks, if it breaks one."""
    if name in increments_of(schema):
        return "must not be the second column of a LessEqual"
    if name in stick_breaks_of(schema):
        return "must not be learned as a share of what is left of a Composition"
    if any(name in names for names in schema.joint):
        return "must not be a column of joint"
    return None


@dataclass(frozen=True)
class VAERecipe(AutoencoderRecipe):
    """PriVAE of tables as a recipe.

    Attributes
    ----------
    architecture : VAEArchitecture
    term : BatchTerm
    prior : str or Prior
    conditional : hashable
        Column on which the decoder is conditioned; "auto" is the last, where tables are
        counted.
    """

    conditional: Hashable = "auto"

    learned = (*AutoencoderRecipe.learned, "factors", "counted")

    @property
    def rules(self) -> Mapping[str, Rule]:  # type: ignore[override]
        """From parameters that may be "auto" to rules."""
        tuning = self.tuning

        def latent_dim(scale: FitSize) -> int:
            root = min(scale.rows_per_column**0.25, tuning.latents)
            return min(round(max(tuning.least_latents, root)), 2 * len(scale.schema))

        def hidden_units(scale: FitSize) -> int:
            has_few = scale.rows_per_column <= FEW
            return tuning.few_units if has_few else tuning.hidden_units

        def n_basis(scale: FitSize) -> int:
            return tuning.free_basis if scale.epsilon is None else tuning.n_basis

        return {
            **super().rules,
            "marginal_budget": self._marginal_budget,
            "latent_dim": latent_dim,
            "hidden_units": hidden_units,
            "n_basis": n_basis,
        }

    def _table_budget(self, scale: FitSize) -> float:
        stated = self.architecture.table_budget if scale.epsilon else 0
        return flow_rules.table_budget(scale) if stated == "auto" else float(stated)

    def _marginal_budget(self, scale: FitSize) -> float:
        others = self._table_budget(scale) + sum(super().releases(scale, 1.0).values())
        share = min(self.tuning.marginals, flow_rules.share_by_rows(scale))
        return share * max(0.0, 1 - others)

    def check_schema(self, owner: str, schema: Schema) -> None:
        super().check_schema(owner, schema)
        name = self.conditional
        if name is None or name == "auto":
            return
        if name not in schema.names:
            refuse(owner, "conditional", "must name a column, or be 'auto'", name)
        if rule := _unfit(name, schema):
            refuse(owner, "conditional", rule, name)

    def ordered(self, schema: Schema) -> Schema:
        """Take the condition first, since measured tables change columns after it."""
        is_last = self.conditional == "auto" and "auto" not in schema.names
        name = schema.names[-1] if is_last else self.conditional
        columns = sorted(schema.columns, key=lambda column: column.name != name)
        return Schema(columns, schema.constraints, schema.joint)

    def _condition(self, scale: FitSize) -> int | None:
        """Return the place of the condition among columns in the model's order."""
        schema, own = scale.schema, self.conditional
        if own == "auto":
            first = schema.columns[0]
            is_class = first.kind in ("categorical", "boolean")
            is_class &= len(schema) > 1 and not _unfit(first.name, schema)
            return 0 if is_class and self._table_budget(scale) > 0 else None
        return None if own is None else list(learned_columns(schema)).index(own)

    def settings(self, facts: Sequence[CellFacts], scale: FitSize) -> dict[str, Any]:
        return {
            **super().settings(facts, scale),
            "n_basis": self.resolved("n_basis", scale),
            "condition": self._condition(scale),
        }

    def releases(self, scale: FitSize, left: float) -> Mapping[Release, float]:
        releases = super().releases(scale, left)
        if scale.epsilon is None or len(scale.schema) < 2:
            return releases
        share = self._table_budget(scale)
        if self.architecture.table_budget == "auto":
            share = max(0.0, min(share, (left - sum(releases.values())) / 2))
        return {**releases, TABLES: share}

    def finish(
        self,
        model: VAE,
        transformer: TableTransformer,
        rows: Private[Any],
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        model.factors = factors_of_nestings(transformer)
        super().finish(model, transformer, rows, plan, mechanisms, streams)
        if plan.private and math.isfinite(plan.multiplier(TABLES)):
            count_tables(
                model, transformer, rows, plan, mechanisms, streams.rows,
                most_pairs=self.tuning.pairs,
            )  # fmt: skip

    def make(self, facts: Any, generator: torch.Generator, **settings: Any) -> VAE:
        return VAE(facts, generator=generator, **settings)

    def draw(
        self, model: VAE, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        codes = model.sample(n, generator).numpy()
        return codes, rng.random(codes.shape)

    def can_clamp(self, model: VAE) -> bool:
        return True


@register("vae")
class DPVAESynthesizer(BaseTableSynthesizer):
    """Differentially private variational autoencoder for mixed-type tables (PriVAE).

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables with the same columns and
    dtypes. The guarantee covers everything that `fit` stores and everything that is
    sampled from it. The loss is ``-E[log p(x | z)] + beta KL(q(z | x) || p(z)) + alpha
    D(q(z), p(z))``, with any divergence D of whole sets of latents, trained by
    term-wise DP-SGD.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, > 0. None (or inf) fits without privacy.
    delta : float, default=1e-5
        Probability in (0, 1) with which the guarantee may fail: a constant, since 1/n
        would reveal the number of rows.
    noise_multiplier : float, optional
        Ratio of the noise of a gradient step to its sensitivity, in place of `epsilon`,
        which keeps its default; the epsilon that results is `epsilon_`
        (:ref:`noise-multiplier`).
    max_rows_per_unit : int, default=1
        Maximum number of rows of one person; (epsilon, delta) then holds for adding or
        removing all of them. This is not checked: prepare the table accordingly.
    clipping : {"flat", "per-layer", "per-unit", "sparsified"} or Sparsified, \
            default="flat"
        How per-example gradients are clipped (`privacy.clipping`).
    max_grad_norm : float, "auto" or "median", default="auto"
        Clipping norm. "auto" is 1; "median" estimates the median norm of per-example
        gradients privately, for 1 % of the budget.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
        Fewer partitions are larger and estimate the divergence better; with more, less
        noise hides one row.
    divergence : None, "mmd", "kl", callable or BatchTerm, default=None
        Batch-wise term D (`models.divergences`): squared maximum mean discrepancy, or
        KL(p || q). A callable takes the `Latents` of one partition, the prior and a
        torch generator, and returns a scalar; it must not raise for any values. A
        `BatchTerm` sets its weight alpha, clipping norm and aggregation, too.
    prior : {"normal", "mixture", "sparse"} or Prior, default="normal"
        Distribution of the latents (`models.priors`): N(0, I), Gaussians around points
        of the first four axes (`MixturePrior.on_axes`), spike and slab, or any object
        with `log_prob` and `sample`.
    conditional : hashable or None, default="auto"
        Name of a column, such as a label, on which the decoder is conditioned. It keeps
        its released marginal, and `sample` draws rows given its values without
        importance weights. Latents then leave it out: `decode` keeps it only if it is
        given labels. "auto" is the last column, y if there is one, where tables are
        counted and it is categorical or boolean (a column named "auto", if there is
        one); None is no column.
    schema : Schema, optional
        Public facts about the columns. What it leaves open is estimated privately,
        within the budget.
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns to treat as categorical regardless of their dtype: names, indices or a
        mask. Where names are numbers, numbers are names.
    marginal_budget : float in (0, 1) or "auto", default="auto"
        Share of the budget for one-way marginals, in units of squared inverse noise.
    architecture : VAEArchitecture, optional
        Bins, basis functions, hidden units, latents and their loss.
    optimizer : {"adam", "adabelief", "sgd"} or Optimizer, optional
        Optimizer that is given the noisy gradients; an `Optimizer` sets its learning
        rate and averaging, too. None is ``Optimizer("adam")``.
    n_steps : int or "auto", default="auto"
        Number of gradient steps.
    batch_size : int or "auto", default="auto"
        Expected batch size.
    device : {"auto", "cpu", "cuda"}, default="auto"
        "auto" uses CUDA if it is available.
    random_state : int, RandomState or Generator instance or None, default=None
        Seeds the initial weights and `sample`, but not the noise unless `noise` is
        "reproducible".
    noise : {"fresh", "reproducible", "secure"}, default="fresh"
        Source of noise and batches: generators seeded by the operating system ("fresh")
        or by `random_state` ("reproducible": anyone who knows the seed can then remove
        the noise, and the report says so); "secure" draws all of them, not only the
        noise of counts, from the operating system's cryptographic generator
        (:ref:`secure`).
    verbose : int, default=0
        Show a progress bar.

    Attributes
    ----------
    privacy_ : PrivacyReport
        What was released, with which noise, and which facts are assumed public.
    epsilon_, delta_ : float
        Privacy cost of the fit: an upper bound on epsilon, at this delta.
    noise_multiplier_ : float
        Noise multiplier of a gradient step.
    n_steps_ : int
        Number of gradient steps.
    schema_ : Schema
        The schema, completed with released bounds and levels.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of X, if all are strings.
    tables_ : list of tuple
        Column names of the tables that were counted after training.

    Notes
    -----
    Every call of `fit` spends the budget again. `score`, `score_samples`, `encode` and
    `reconstruct` on private rows are not covered by the guarantee.

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
        noise_multiplier: float | None = None,
        max_rows_per_unit: int = 1,
        clipping: str | Sparsified = "flat",
        max_grad_norm: float | str = "auto",
        n_partitions: int = 16,
        divergence: str | Callable[..., Tensor] | BatchTerm | None = None,
        prior: str | Prior = "normal",
        conditional: Hashable = "auto",
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        marginal_budget: float | str = "auto",
        architecture: VAEArchitecture | None = None,
        optimizer: str | Optimizer | None = None,
        n_steps: int | str = "auto",
        batch_size: int | str = "auto",
        device: str = "auto",
        random_state: Any = None,
        noise: str = "fresh",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier,
            max_rows_per_unit=max_rows_per_unit, clipping=clipping,
            max_grad_norm=max_grad_norm, n_partitions=n_partitions,
            divergence=divergence, optimizer=optimizer, n_steps=n_steps,
            batch_size=batch_size, device=device, random_state=random_state,
            noise=noise, verbose=verbose, schema=schema,
            categorical_features=categorical_features, marginal_budget=marginal_budget,
        )  # fmt: skip
        self.prior = prior
        self.conditional = conditional
        self.architecture = architecture

    _groups = BaseTableSynthesizer._groups | {"architecture": VAEArchitecture}

    @property
    def _recipe(self) -> VAERecipe:
        architecture, term = self._group("architecture"), self._group("divergence")
        return VAERecipe(architecture, term, self.prior, self.conditional)

    @property
    def tables_(self) -> list[tuple[Hashable, ...]]:
        """Column names of the tables that were counted after training."""
        return notes.named_tables(self)

    @property
    def _condition(self) -> Hashable:
        """Name of the column on which the fitted decoder is conditioned, or None."""
        place = self._model.condition
        return None if place is None else self._transformer.names[place]

    def _notes(self, schema: Schema, fitted: Fitted) -> tuple[str, ...]:
        counted = notes.counted_tables(self.tables_, fitted.plan)
        return (*super()._notes(schema, fitted), *counted)

    # Points of the latent space -------------------------------------------------

    def score_samples(self, X: Any, y: Any = None, n_draws: int = 64) -> np.ndarray:
        """Return a lower bound of every row's log-density; not private if the rows are.

        Densities are in data units for numbers without a resolution, probabilities for
        integers, levels and missing values. The bound is importance-weighted (Burda et
        al. 2016): it rises with the number of draws towards the log-density.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
        y : Series or ndarray of shape (n_samples,), optional
            Required if the synthesizer was fitted with y.
        n_draws : int, default=64
            Draws from every row's posterior.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return latents.bounds(self, X, y, n_draws)

    def encode(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the posterior mean of every row's latents; not private if rows are.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
        y : Series or ndarray of shape (n_samples,), optional
            Required if the synthesizer was fitted with y.

        Returns
        -------
        ndarray of shape (n_samples, latent_dim)
        """
        return latents.posterior(self, X, y)[0]

    def decode(self, Z: Any, random_state: Any = None, labels: Any = None) -> Any:
        """Draw one row for every point of the latent space, constraints aside.

        Parameters
        ----------
        Z : array-like of shape (n_samples, latent_dim)
        random_state : int, RandomState or Generator instance or None, default=None
        labels : array-like of shape (n_samples,), optional
            Values of the column of the condition; None draws them from its marginal.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            As `sample` returns it; ``(X, y)`` where y was fitted too.
        """
        z = latents.points(self, Z)
        labels = None if labels is None else self._labels(labels)
        if labels is not None and len(labels) != len(z):
            raise ValueError(
                f"{self._owner}.decode needs one label per point; got {len(labels)} "
                f"and {len(z)}."
            )
        return self._decoded(z, random_state, labels)

    def _decoded(self, z: Tensor, random_state: Any, labels: pd.Series | None) -> Any:
        """Draw one row for every point, of these labels if they are given."""
        cells, places = np.random.SeedSequence(as_seed(random_state)).spawn(2)
        rng, classes, given = np.random.default_rng(places), None, {}
        if labels is not None:
            codec = self._transformer.codecs[self._model.condition]
            labels = labels.reset_index(drop=True)
            if isinstance(codec.dtype, pd.CategoricalDtype):
                is_level = labels.isin(codec.dtype.categories)
                labels = labels.astype(object).where(is_level)
            labels = labels.astype(codec.dtype)
            classes = torch.from_numpy(codec.encode(labels).astype(np.int64))
            given[self._condition] = labels.dropna()
        codes = self._model.decode(z, torch_generator(cells), classes).numpy()
        frame, _ = self._transformer.rows(codes, rng.random(codes.shape), given)
        return self._layout.restore(self._completed(frame, rng, None))

    def reconstruct(
        self, X: Any, y: Any = None, random_state: Any = None, *, sampled: bool = False
    ) -> Any:
        """Draw a row from the decoder at every row's posterior mean; not private.

        Constraints of the schema are not enforced. With a condition, rows keep
        their labels.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
        y : Series or ndarray of shape (n_samples,), optional
            Required if the synthesizer was fitted with y.
        random_state : int, RandomState or Generator instance or None, default=None
        sampled : bool, default=False
            Decode a draw from every row's posterior in place of its mean.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            As `sample` returns it; ``(X, y)`` where y was fitted too.
        """
        z = torch.from_numpy(latents.encoded(self, X, y, random_state, sampled))
        labels = None
        if self._condition is not None:
            labels = self._as_fitted(X, y)[self._condition]
        return self._decoded(z, random_state, labels)

    def _labels(self, labels: Any) -> pd.Series:
        """Return labels of the condition, or raise ValueError."""
        if self._condition is None:
            raise ValueError(
                f"{self._owner} takes labels only with 'conditional': this one was "
                "fitted without a condition."
            )
        if np.ndim(labels) != 1 or not len(labels):
            rule = f"{self._owner} takes a list of at least one label"
            raise ValueError(f"{rule}; got {shown(labels)}.")
        series = pd.Series(np.asarray(labels), name=self._condition)
        column = self._transformer.codecs[self._model.condition].column
        for _, problem, values in misfits(Schema([column]), series.to_frame()):
            raise ValueError(
                f"{self._owner}: the label {values.iloc[0]!r} does not fit the "
                f"column {self._condition!r}: {problem}."
            )
        return series
