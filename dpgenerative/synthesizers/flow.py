"""DP-HFlow: a private normalizing flow as an estimator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import Streams
from dpgenerative._validation import check_option
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.divergences import DIVERGENCES
from dpgenerative.models.hflow import HFlow
from dpgenerative.models.probing import check_memory
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.report import FEW
from dpgenerative.privacy.steps import Divergence, Objective
from dpgenerative.synthesizers.base import (
    RAKING_ROWS,
    SAMPLE_CHUNK,
    Rule,
    Synthesizer,
    rows_per_column,
)
from dpgenerative.tables.schema import Schema

BOUND_DRAWS = 16
ROWS_PER_COEFFICIENT = 6
"""Least rows times epsilon per coefficient between ordered columns."""


class DPHFlowSynthesizer(Synthesizer):
    """Differentially private normalizing flow for mixed-type tables (DP-HFlow).

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables of the same columns and
    dtypes. All that `fit` leaves behind, and all that is drawn from it, is covered.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, > 0. None (or inf) fits without privacy.
    delta : float, default=1e-5
        Probability in (0, 1) with which the guarantee may fail: a constant, never 1/n.
    max_rows_per_unit : int, default=1
        Most rows that one person has; (epsilon, delta) then holds for adding or
        removing all of them. Whoever prepares the table must see to it.
    clipping : {"flat", "per-layer", "per-unit", "sparsified"}, default="flat"
        How the gradient of one record is bounded (`privacy.clipping`).
    max_grad_norm : float or "auto", default=1.0
        Clipping norm. "auto" estimates the median norm, paid for by 1 % of the budget.
    sparsity : float in [0, 1), default=0.5
        For ``clipping="sparsified"``: share of a gradient's entries that are thinned.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
    divergence : None, "mmd" or callable, default=None
        Batch-wise term: divergence of a partition's images in the base space from
        N(0, I). A callable takes a tensor (m, d) and returns a scalar.
    clip_batch : float, optional
        Clipping norm of one partition's gradient; None means `max_grad_norm` times
        ``n_partitions / (20 * batch size)``.
    schema : Schema, optional
        Public facts. What it leaves open is found privately, inside the budget.
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns to treat as categorical whatever their dtype: names, indices, or a mask.
    marginal_budget : float in (0, 1) or "auto", default="auto"
        Share of the budget for one-way marginals, in units of squared inverse noise.
    anchored : bool, default=True
        Start at the private marginals. False runs the paper's model.
    n_blocks : int, default=1
        Number of blocks.
    n_bins : int or "auto", default="auto"
        Number of intervals aimed at per numeric column.
    n_basis : int or "auto", default="auto"
        Degrees of freedom of an ordered column.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layer; 0 keeps the linear conditioner alone.
    linear : {"none", "low-rank", "lu"}, default="none"
        Linear flow at the end of every block.
    dequantization : {"uniform", "variational"}, default="uniform"
        How cells become points, where later blocks need points.
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
    Every `fit` spends again. `score` and `score_samples` on private rows are not
    covered. The flow takes the last column (y, where there is one) first and the others
    in their order, so that these are learned given what they are often to predict. The
    rows of one call of `sample` fill the model's space more evenly than
    independent ones (a scrambled Sobol sequence), so that their marginals lie closer to
    the model's.

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

    _divergences = DIVERGENCES

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        max_rows_per_unit: int = 1,
        clipping: str = "flat",
        max_grad_norm: float | str = 1.0,
        sparsity: float = 0.5,
        n_partitions: int = 16,
        divergence: str | Callable[[Tensor], Tensor] | None = None,
        clip_batch: float | None = None,
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        marginal_budget: float | str = "auto",
        anchored: bool = True,
        n_blocks: int = 1,
        n_bins: int | str = "auto",
        n_basis: int | str = "auto",
        hidden_units: int | str = "auto",
        linear: str = "none",
        dequantization: str = "uniform",
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
        self.clipping = clipping
        self.max_grad_norm = max_grad_norm
        self.sparsity = sparsity
        self.n_partitions = n_partitions
        self.divergence = divergence
        self.clip_batch = clip_batch
        self.schema = schema
        self.categorical_features = categorical_features
        self.marginal_budget = marginal_budget
        self.anchored = anchored
        self.n_blocks = n_blocks
        self.n_bins = n_bins
        self.n_basis = n_basis
        self.hidden_units = hidden_units
        self.linear = linear
        self.dequantization = dequantization
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

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-density of every row; not private if the rows are.

        Densities are in data units for numbers without a resolution, probabilities for
        integers, levels and missing values. With more than the first block this is an
        importance-sampled lower bound (16 draws).

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Needed where y was fitted.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        frame = self._joined(X, y)
        codes = self._codes(frame)
        rng = np.random.default_rng(0)
        positions = None
        if not self._model.exact:
            positions = torch.from_numpy(self._transformer.positions(frame, rng))
        parts = []
        with torch.no_grad():
            for start in range(0, len(codes), SAMPLE_CHUNK // 8):
                rows = slice(start, start + SAMPLE_CHUNK // 8)
                inside = None if positions is None else positions[rows]
                parts.append(_log_likelihood(self._model, codes[rows], inside, rng))
        return torch.cat(parts).double().numpy() + self._transformer.log_within(frame)

    # What the base class asks for -----------------------------------------------

    def _ordered(self, schema: Schema) -> Schema:
        """Take the last column before all others: often the one to predict."""
        columns = [*schema.columns[-1:], *schema.columns[:-1]]
        return Schema(columns, schema.constraints)

    @property
    def _rules(self) -> Mapping[str, Rule]:
        return _RULES

    @property
    def _informed(self) -> bool:
        return self.anchored

    def _check_own(self) -> None:
        owner = self._owner
        self._check_integers(n_blocks=1)
        check_option(owner, "linear", self.linear, ["none", "low-rank", "lu"])
        check_option(
            owner, "dequantization", self.dequantization, ["uniform", "variational"]
        )
        check_option(owner, "anchored", self.anchored, [True, False])

    def _build(
        self,
        facts: Sequence[CellFacts],
        n_rows: int,
        schema: Schema,
        generator: torch.Generator,
    ) -> HFlow:
        return HFlow(
            facts,
            n_basis=self._numbers_of_functions(facts, n_rows, schema),
            hidden_units=self._resolved("hidden_units", n_rows, schema),
            n_blocks=self.n_blocks,
            linear=self.linear,
            dequantization=self.dequantization,
            anchored=self.anchored,
            generator=generator,
        )

    def _numbers_of_functions(
        self, facts: Sequence[CellFacts], n_rows: int, schema: Schema
    ) -> list[int]:
        """Return how many smooth functions every column has, where it is ordered."""
        # Of a column that is mostly one value or missing, few rows say more than that.
        told = [max(1, round(n_rows * each.plain_mass)) for each in facts]
        numbers = [self._resolved("n_basis", n, schema) for n in told]
        if self.n_basis != "auto" or self._epsilon is None:
            return numbers
        # m columns of b functions each have (m b)^2 / 2 coefficients between them.
        m = max(1.0, sum(each.ordered * each.plain_mass for each in facts))
        most = [
            math.sqrt(2 * n * self._epsilon / ROWS_PER_COEFFICIENT) / m for n in told
        ]
        return [
            min(number, max(2, round(b)))
            for number, b in zip(numbers, most, strict=True)
        ]

    def _objective(
        self,
        model: HFlow,
        transformer: TableTransformer,
        frame: pd.DataFrame,
        streams: Streams,
        device: str,
    ) -> Objective:
        codes = torch.from_numpy(transformer.encode(frame)).to(device)
        if model.exact and self.divergence is None:
            return lambda rows: (-model(codes[rows].long())[0], None)
        positions = transformer.positions(frame, streams.batches)
        inside = torch.from_numpy(positions).to(device)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            shape = (len(rows), codes.shape[1])
            draws = torch.rand(shape, generator=streams.draws, device=device)
            log_likelihood, image = model(codes[rows].long(), inside[rows], draws)
            return -log_likelihood, image

        return objective

    def _check_schema(self, schema: Schema) -> None:
        divergence = self.divergence
        if callable(divergence):
            generator = torch.Generator().manual_seed(0)
            check_memory(
                self._owner, "divergence", divergence,
                lambda n: divergence(torch.randn(n, len(schema), generator=generator)),
            )  # fmt: skip

    def _batch_term(self, model: HFlow, streams: Streams) -> Divergence | None:
        if isinstance(self.divergence, str):
            return DIVERGENCES[self.divergence]
        return self.divergence

    def _finish(
        self,
        model: HFlow,
        transformer: TableTransformer,
        frame: pd.DataFrame,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        if self.anchored:
            model.rake(RAKING_ROWS, streams.rows)

    def _draw(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        codes, positions = self._model.sample(n, generator)
        if self._model.exact:
            return codes.numpy(), rng.random(codes.shape)
        return codes.numpy(), positions.double().numpy()

    @property
    def _can_clamp(self) -> bool:
        return bool(self._model.exact)

    def _draw_given(
        self,
        n: int,
        log_shares: Mapping[int, Tensor],
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if not self._model.exact:
            return super()._draw_given(n, log_shares, generator, rng)
        codes, weights = self._model.sample_given(n, generator, log_shares)
        inside = rng.random(codes.shape)
        return codes.numpy(), inside, weights.double().numpy()


def _log_likelihood(
    model: HFlow, codes: Tensor, positions: Tensor | None, rng: np.random.Generator
) -> Tensor:
    if positions is None:
        result: Tensor = model(codes)[0]
        return result
    bounds = []
    for _ in range(BOUND_DRAWS):
        draws = torch.from_numpy(rng.random(codes.shape, dtype=np.float32))
        bounds.append(model(codes, positions, draws)[0])
    return torch.logsumexp(torch.stack(bounds), 0) - math.log(BOUND_DRAWS)


def _auto_steps(n: int, schema: Schema, epsilon: float | None) -> int:
    most = 2000 if epsilon is None else 800
    return max(50, min(most, n // 10))


def _auto_basis(n: int, schema: Schema, epsilon: float | None) -> int:
    if epsilon is None:
        return 64
    rows = rows_per_column(n, schema, epsilon)
    return 16 if rows > 25_000 else 8 if rows > 1000 else 5 if rows > FEW else 2


def _auto_hidden(n: int, schema: Schema, epsilon: float | None) -> int:
    return 64 if rows_per_column(n, schema, epsilon) > 2400 else 0


def _auto_marginal_budget(n: int, schema: Schema, epsilon: float | None) -> float:
    return 0.4 if rows_per_column(n, schema, epsilon) > FEW else 0.6


_RULES: dict[str, Rule] = {
    "marginal_budget": _auto_marginal_budget,
    "n_bins": lambda n, schema, epsilon: 100 if epsilon is None else 64,
    "n_basis": _auto_basis,
    "hidden_units": _auto_hidden,
    "n_steps": _auto_steps,
    "batch_size": lambda n, schema, epsilon: min(2048, max(32, n)),
    "learning_rate": lambda n, schema, epsilon: 0.01 if epsilon is None else 0.03,
}
