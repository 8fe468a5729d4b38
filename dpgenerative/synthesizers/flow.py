"""DP-HFlow: a private normalizing flow as an estimator."""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from dpgenerative._random import Streams
from dpgenerative._validation import Check, check_option, count
from dpgenerative.encoding.nesting import groups_first
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting.clipping import Sparsified
from dpgenerative.fitting.embedding import correct_classes
from dpgenerative.fitting.fit import Fitted
from dpgenerative.fitting.growth import raked_on_new_people
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.fitting.recipe import RULES, FitSize, GroupedRecipe, Rule
from dpgenerative.fitting.workload import (
    MOST_TABLES,
    check_names,
    check_workload,
    count_tables,
    factors_of_nestings,
)
from dpgenerative.models.cells import RAKING_ROWS, CellFacts
from dpgenerative.models.divergences import DIVERGENCES
from dpgenerative.models.hflow import HFlow, likelihood_bound
from dpgenerative.models.probing import check_divergence
from dpgenerative.persistence.registry import register
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.gradients import free_coordinates
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.steps import Divergence, Objective
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers import flow_rules, notes
from dpgenerative.synthesizers.architecture import FlowArchitecture
from dpgenerative.synthesizers.flow_rules import TUNING
from dpgenerative.synthesizers.tables import BaseTableSynthesizer
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema

SCORED = 2**13
"""Rows that are scored at a time."""


@dataclass(frozen=True)
class FlowRecipe(GroupedRecipe):
    """DP-HFlow as a recipe.

    Attributes
    ----------
    architecture : FlowArchitecture
    term : BatchTerm
        Divergence of a partition's latents in the base space from N(0, I).
    workload : sequence of sequence of hashable
        Columns of tables that are counted in any case.
    """

    workload: Sequence[Sequence[Hashable]] = ()

    learned: ClassVar[Sequence[str]] = ("factors", "counted", "classes")

    @property
    def rules(self) -> Mapping[str, Rule]:  # type: ignore[override]
        """From parameters that may be "auto" to rules."""
        anchored, stated = self.anchored, self.architecture.table_budget

        def marginal_budget(scale: FitSize) -> float:
            is_auto = stated == "auto" or not anchored
            tables = flow_rules.table_budget(scale) if is_auto else float(stated)
            return flow_rules.share_of_rest(scale) * (1 - tables)

        return {
            **RULES,
            "marginal_budget": marginal_budget,
            "n_basis": lambda scale: 32 if scale.rows_per_column > 250_000 else 16,
            "hidden_units": flow_rules.hidden_units,
            "n_steps": flow_rules.steps_rule(anchored),
            "learning_rate": flow_rules.learning_rate,
            "table_budget": flow_rules.table_budget,
        }

    @property
    def anchored(self) -> bool:  # type: ignore[override]
        """Whether the flow starts at the released marginals."""
        return self.architecture.anchored

    @property
    def is_exact(self) -> bool:
        """Whether the anchored block stands alone, as where `HFlow.exact`."""
        blocks = self.architecture.n_blocks, self.architecture.linear
        return self.anchored and blocks == (1, "none")

    @property
    def reads_once(self) -> bool:  # type: ignore[override]
        """Whether the flow has no use for positions within cells."""
        return self.is_exact and self.term.divergence is None

    draws_in_order = is_exact  # type: ignore[assignment]

    def check(self, owner: str) -> None:
        divergence = self.term.divergence
        if not callable(divergence):
            options = [None, *DIVERGENCES]
            check_option(owner, "divergence", divergence, options, "a callable")

    def check_schema(self, owner: str, schema: Schema) -> None:
        super().check_schema(owner, schema)
        check_names(owner, self.workload, schema)
        divergence = self.term.divergence
        if callable(divergence):
            generator = torch.Generator().manual_seed(0)

            def use(n: int) -> Tensor:
                latents = torch.randn(n, len(schema), generator=generator)
                return divergence(latents.requires_grad_())

            check_divergence(owner, divergence, use)

    def ordered(self, schema: Schema) -> Schema:
        """Take the last column, often the one to predict, first; groups before them."""
        columns = [*schema.columns[-1:], *schema.columns[:-1]]
        return groups_first(Schema(columns, schema.constraints, schema.joint))

    def settings(self, facts: Sequence[CellFacts], scale: FitSize) -> dict[str, Any]:
        n_basis, most_levels = self._functions(facts, scale)
        blocks = "n_blocks", "linear", "rank", "bias", "dequantization"
        return {
            "ordered_only": self._ordered_only(scale),
            "evenly": bool(self.anchored) and scale.rows_per_column <= TUNING.noisy,
            "n_basis": n_basis,
            "most_levels": most_levels,
            "hidden_units": self.resolved("hidden_units", scale),
            "hidden_size": TUNING.hidden_size,
            "first_size": flow_rules.first_size(facts[0]) if self.anchored else 1.0,
            **{name: getattr(self.architecture, name) for name in blocks},
            "anchored": bool(self.anchored),
        }

    def make(self, facts: Any, generator: torch.Generator, **settings: Any) -> HFlow:
        return HFlow(facts, generator=generator, **settings)

    def _functions(
        self, facts: Sequence[CellFacts], scale: FitSize
    ) -> tuple[list[int], int | None]:
        """Return every column's smooth functions, and the most indicators of one."""
        numbers = self._n_functions(facts, scale)
        pairs = zip(facts, numbers, strict=True)
        sizes = [min(len(f.masses), n if f.ordered else math.inf) for f, n in pairs]
        if sum(sizes) <= TUNING.max_functions:
            return numbers, None
        most = max(1, TUNING.max_functions // len(facts))
        if self.architecture.n_basis == "auto":
            numbers = [min(n, most) for n in numbers]
        return numbers, most

    def _n_functions(self, facts: Sequence[CellFacts], scale: FitSize) -> list[int]:
        """Return how many smooth functions every column has, where it is ordered."""
        number = self.resolved("n_basis", scale)
        if self._ordered_only(scale) and self.architecture.n_basis == "auto":
            return [1] * len(facts)
        if self.architecture.n_basis != "auto" or scale.epsilon is None:
            return [number] * len(facts)
        m = flow_rules.columns_paired(facts)
        # Rows whose value is missing, or a heavy one, do not count for a column.
        effective = [scale.n_rows * scale.epsilon * each.plain_mass for each in facts]
        pairs = [2 * max(0, n) / TUNING.rows_per_coefficient for n in effective]
        most = [math.sqrt(n) / m for n in pairs]
        return [min(number, max(2, round(b))) for b in most]

    def _ordered_only(self, scale: FitSize) -> bool:
        return self.anchored and flow_rules.ordered_only(scale)

    def clipping_norm(self, model: HFlow, scale: FitSize) -> float:
        free = free_coordinates(model)
        learned = (p for p in model.parameters() if p.requires_grad)
        n = sum(int(free[p].sum()) if p in free else p.numel() for p in learned)
        return flow_rules.clipping_norm(n, scale)

    def releases(self, scale: FitSize, left: float) -> Mapping[Release, float]:
        has_tables = scale.epsilon is not None and len(scale.schema) > 1
        if not (has_tables and self.is_exact):
            return {}
        tables = max(flow_rules.table_budget(scale), 0.1 * bool(self.workload))
        of_classes = tables * flow_rules.embedded_share(scale)
        stated = self.architecture.table_budget
        if stated == "auto":
            part = min(1, left / 2 / (tables + of_classes)) if tables else 1
            tables, of_classes = part * tables, part * of_classes
        else:
            tables = float(stated)
            rest = (left - tables) / left  # nearly none where gradients get little
            of_classes *= rest**2 if 1e-6 < rest < 1 else 0
        return {TABLES: tables, EMBEDDING: of_classes}

    def objective(
        self,
        model: HFlow,
        transformer: TableTransformer,
        rows: Private[Any],
        streams: Streams,
        device: str,
    ) -> Objective:
        codes = rows.map(transformer.encode).to(device)
        if self.reads_once:
            return lambda rows: (-model(codes[rows].long())[0], None)
        positions = rows.map(lambda rows: transformer.positions(rows, streams.batches))
        inside = positions.to(device)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            cells = codes[rows].long()
            draws = torch.rand(cells.shape, generator=streams.draws, device=device)
            log_likelihood, latents = model(cells, inside[rows], draws)
            return -log_likelihood, latents

        return objective

    def batch_term(self, model: HFlow, streams: Streams) -> Divergence:
        divergence = self.term.function(DIVERGENCES)
        return lambda latents: self.term.weight * divergence(latents)

    def finish(
        self,
        model: Any,
        transformer: TableTransformer,
        rows: Private[Any],
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        if self.is_exact:
            model.factors = factors_of_nestings(transformer)
        if self.anchored:
            if model.first.ordered_only:
                model.first.denoise_weights()
            model.rake(RAKING_ROWS, streams.rows)
        given = raked_on_new_people(model, transformer, streams.rows)
        if plan.private and math.isfinite(plan.multiplier(TABLES)):
            tables = (*self.workload, *transformer.transitions[:MOST_TABLES])
            wanted = [tuple(sorted(map(transformer.place, table))) for table in tables]
            count_tables(
                model, transformer, rows, plan, mechanisms, streams.rows, wanted, given
            )
            raked_on_new_people(model, transformer, streams.rows)
        if plan.private and math.isfinite(plan.multiplier(EMBEDDING)):
            correct_classes(model, transformer, rows, plan, mechanisms, streams.rows)

    def draw(
        self, model: HFlow, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        codes, positions = model.sample(n, generator)
        if model.exact:
            return codes.numpy(), rng.random(codes.shape)
        return codes.numpy(), positions.double().numpy()

    def can_clamp(self, model: HFlow) -> bool:
        return bool(model.exact)

    @torch.no_grad()
    def log_density(
        self, model: HFlow, transformer: TableTransformer, rows: Any
    ) -> np.ndarray:
        """Return the log-probability; behind the first block, a lower bound of it."""
        codes = torch.from_numpy(transformer.encode(rows).astype(np.int64))
        chunks = codes.split(SCORED)
        if model.exact:
            parts = [model(chunk)[0] for chunk in chunks]
        else:
            rng = np.random.default_rng(0)
            positions = torch.from_numpy(transformer.positions(rows, rng))
            pairs = zip(chunks, positions.split(SCORED), strict=True)
            parts = [likelihood_bound(model, *pair, rng) for pair in pairs]
        return torch.cat(parts).double().numpy()


@register("flow")
class DPHFlowSynthesizer(BaseTableSynthesizer):
    """Differentially private normalizing flow for mixed-type tables (DP-HFlow).

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables with the same columns and
    dtypes. The guarantee covers everything that `fit` stores and everything that is
    sampled from it.

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
        Clipping norm. "auto" lets it grow with rows x epsilon per parameter; "median"
        estimates the median norm of per-example gradients privately, for 1 % of the
        budget.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
        Fewer partitions are larger and estimate the divergence better; with more, less
        noise hides one row.
    divergence : None, "mmd", callable or BatchTerm, default=None
        Batch-wise term: divergence of a partition's latents in the base space from N(0,
        I). A callable takes a tensor (m, d) and returns a scalar. A `BatchTerm` sets
        its weight and clipping norm, too.
    schema : Schema, optional
        Public facts about the columns. What it leaves open is estimated privately,
        within the budget.
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns to treat as categorical regardless of their dtype: names, indices or a
        mask. Where names are numbers, numbers are names.
    workload : sequence of sequences of column names, default=()
        Contingency tables that matter, by their columns: their counts are always
        measured, in addition to those that the trained model fits worst (`tables_`).
        Nothing is measured without privacy, with more than one block, or with
        ``architecture__table_budget=0``.
    marginal_budget : float in (0, 1) or "auto", default="auto"
        Share of the budget for one-way marginals, in units of squared inverse noise.
    architecture : FlowArchitecture, optional
        Bins, basis functions, hidden units, and the blocks of the paper.
    optimizer : {"adam", "adabelief", "sgd"} or Optimizer, optional
        Optimizer that is given the noisy gradients; an `Optimizer` sets its learning
        rate and averaging, too. None is ``Optimizer("adam")``.
    n_steps : int or "auto", default="auto"
        Number of gradient steps. With 0, columns are independent except for measured
        contingency tables, and the marginals get the rest of the budget.
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
        Noise multiplier of a gradient step; inf without any.
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
    Every call of `fit` spends the budget again. `score` and `score_samples` on private
    rows are not covered by the guarantee; with more than one block the latter is an
    importance-sampled lower bound (16 draws). The flow models the last column first (y,
    if there is one) and the others in their order, given the column that they are often
    used to predict. The rows of one call of `sample` are drawn from scrambled Sobol
    sequences, so that their marginals lie closer to the model's than those of
    independent rows.

    References
    ----------
    Lee, Kim, Jeong and Ro. Differentially Private Normalizing Flows for Synthetic
    Tabular Data Generation. AAAI 2022.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> frame = pd.DataFrame({"smokes": pd.Categorical(["yes", "no"] * 50)})
    >>> synthesizer = DPHFlowSynthesizer(epsilon=1.0, random_state=0).fit(frame)
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
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        workload: Sequence[Sequence[Hashable]] = (),
        marginal_budget: float | str = "auto",
        architecture: FlowArchitecture | None = None,
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
        self.workload = workload
        self.architecture = architecture

    _groups = BaseTableSynthesizer._groups | {"architecture": FlowArchitecture}
    _checks: ClassVar[Mapping[str, Check]] = {
        **BaseTableSynthesizer._checks,
        "workload": check_workload,
        "n_steps": count(0, also=["auto"]),
    }

    @classmethod
    def published(cls, **parameters: Any) -> Self:
        """Return the model of the paper, with its optimizer and its clipping.

        Three blocks of splines with a linear flow of rank 1 each (with a bias), not
        anchored at marginals, variational dequantization, AdaBelief at .001, and
        gradients thinned at random beyond the k-th largest of m entries, k = m (1 - s)
        with s = .5. What the paper leaves free (steps, batch size, clipping norm,
        hidden units, s) is as elsewhere.

        Parameters
        ----------
        **parameters
            Further parameters, or others in place of these, as `set_params` takes them.

        Examples
        --------
        >>> from dpgenerative import DPHFlowSynthesizer
        >>> paper = DPHFlowSynthesizer.published(epsilon=1.0, architecture__rank=2)
        >>> paper.architecture.n_blocks, paper.architecture.rank
        (3, 2)
        """
        architecture = FlowArchitecture(
            anchored=False, n_blocks=3, linear="low-rank",
            dequantization="variational", bias=True,
        )  # fmt: skip
        return cls(
            architecture=architecture,
            clipping=Sparsified(threshold="ranked"),
            optimizer=Optimizer("adabelief", 0.001, averaging=0, schedule="constant"),
        ).set_params(**parameters)

    @property
    def _recipe(self) -> FlowRecipe:
        architecture, term = self._group("architecture"), self._group("divergence")
        return FlowRecipe(architecture, term, self.workload)

    @property
    def tables_(self) -> list[tuple[Hashable, ...]]:
        """Column names of the tables that were counted after training."""
        return notes.named_tables(self)

    def _notes(self, schema: Schema, fitted: Fitted) -> tuple[str, ...]:
        learned = fitted.settings["ordered_only"] and fitted.plan.n_steps
        ordered = (notes.ORDERED_ONLY,) if learned else ()
        counted = notes.counted_tables(self.tables_, fitted.plan)
        return (*super()._notes(schema, fitted), *ordered, *counted)
