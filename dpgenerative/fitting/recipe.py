"""Recipes of models, so that one private fit serves all of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import BaseEstimator
from torch import Tensor

from dpgenerative._random import Streams
from dpgenerative._validation import refuse
from dpgenerative.fitting.options import BatchTerm
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.steps import Divergence, Objective
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.values import as_python


@dataclass(frozen=True)
class FitSize:
    """The public size of a fit, from which rules compute parameters that are "auto".

    Attributes
    ----------
    n_rows : int
        Released number of rows.
    schema : Schema
        Columns that are learned; none where the data are arrays.
    epsilon : float or None
        Budget; None without privacy.
    has_public : bool, default=False
        Whether public rows train the model of a table first.
    """

    n_rows: int
    schema: Schema
    epsilon: float | None
    has_public: bool = False

    @property
    def rows_per_column(self) -> float:
        """Effective sample size: rows times epsilon, per column."""
        if self.epsilon is None:
            return math.inf
        return self.n_rows * self.epsilon / len(self.schema)


Rule = Callable[[FitSize], Any]
"""From the size of a fit to the value of a parameter that is "auto"."""


def resolved(holder: Any, name: str, rules: Mapping[str, Rule], scale: FitSize) -> Any:
    """Return a parameter of `holder`, or of its rule where it is "auto" or absent."""
    value = getattr(holder, name, "auto")
    is_auto = isinstance(value, str) and value == "auto"
    value = rules[name](scale) if is_auto else value
    return as_python(value)  # no small integer


RULES: Mapping[str, Rule] = {
    "marginal_budget": lambda scale: 0.4,
    "n_bins": lambda scale: 100 if scale.epsilon is None else 64,
    "n_steps": lambda scale: max(50, min(800, scale.n_rows // 10)),
    "batch_size": lambda scale: min(2048, max(32, scale.n_rows)),
    "learning_rate": lambda scale: 0.01 if scale.epsilon is None else 0.03,
}
"""Rules for the parameters of every fit; recipes add to them or replace them."""


class ModelRecipe(BaseEstimator, ABC):
    """How a model is built, trained and drawn from; a model is one recipe.

    A recipe holds public settings alone: the parameters of its constructor, with
    `get_params` as in scikit-learn, so that searches reach them (``recipe__rank``).
    It gets rows in `objective` and `finish` alone. Of the former `PrivateFit` uses the
    per-example losses, whose gradients it clips and noises; of the latter, what passes
    `Mechanisms`. Neither the recipe nor the model may store anything of the rows.

    A subclass writes `build`, `objective` and, for tables, `draw`; the other methods
    have defaults. If files are to hold its models, it writes `settings` and `make` in
    place of `build`.
    """

    rules: ClassVar[Mapping[str, Rule]] = RULES
    """From parameters that may be "auto", training included, to rules: functions of
    `FitSize`. Extend it: ``{**ModelRecipe.rules, "rank": rule}``."""
    anchored: bool = True
    """Whether the model starts at the released marginals."""
    has_batch_term: bool = False
    """Whether there is a batch-wise term; otherwise `batch_term` is not called."""
    batch_term_module: str = ""
    """Submodule that the batch-wise term trains; "" is the whole model."""
    reads_once: bool = False
    """Whether training reads the cells of rows and nothing else of them: one pass, so
    that queries, whose rows may come in another order each time, can be learned."""
    draws_in_order: bool = False
    """Whether columns are drawn in their order, each given those before it."""
    learned: ClassVar[Sequence[str]] = ()
    """Attributes of a model, other than tensors, that a fit sets."""

    def resolved(self, name: str, scale: FitSize) -> Any:
        """Return a parameter, or its rule's value where it is "auto"."""
        return resolved(self, name, self.rules, scale)

    @property
    def is_custom(self) -> bool:
        """Whether users wrote the model: it is tried before a fit reads a row."""
        return not type(self).__module__.startswith("dpgenerative.")

    def check(self, owner: str) -> None:
        """Raise ValueError for settings out of their range, before a row is read."""

    def check_schema(self, owner: str, schema: Schema) -> None:
        """Raise ValueError for settings that do not fit the columns."""
        if schema.joint and not self.anchored:
            rule = (
                "must not be stated for a model that counts no cells (anchored=False)"
            )
            refuse(owner, "joint", rule, schema.joint)

    def ordered(self, schema: Schema) -> Schema:
        """Return the columns in the order in which the model takes them."""
        return schema

    def n_bins(self, scale: FitSize) -> int:
        """Return how many intervals a numeric column is to have."""
        return int(self.rules["n_bins"](scale))

    def releases(self, scale: FitSize, left: float) -> Mapping[Release, float]:
        """Return what `finish` releases of all rows, and its share of the budget.

        `left` is the share that the releases before training leave. `finish` must
        release what is declared, with the noise of `PrivacyPlan.multiplier`, or the fit
        ends in a `LedgerError`.
        """
        return {}

    def build(self, facts: Any, scale: FitSize, generator: torch.Generator) -> Any:
        """Return the model before training, on the CPU.

        Parameters
        ----------
        facts : list of CellFacts, or Pixels
            Released facts of the columns, in the model's order, or of the arrays.
        scale : FitSize
        generator : torch.Generator
            Source of the initial weights.

        Returns
        -------
        Module
            With at least one parameter. Other tensors must be buffers, so that they
            move to a GPU with the model.
        """
        return self.make(facts, generator, **self.settings(facts, scale))

    def require_parameters(self, model: Any) -> None:
        """Raise ValueError for a model without parameters to train."""
        if not any(p.requires_grad for p in model.parameters()):
            raise ValueError(
                f"{type(self).__name__}.build returned a model without parameters to "
                "train."
            )

    def settings(self, facts: Any, scale: FitSize) -> dict[str, Any]:
        """Return the arguments of `make` beside the facts: plain values, none "auto".

        A saved file holds them, so that rules may change and files stay readable.
        """
        return {}

    def make(self, facts: Any, generator: torch.Generator, **settings: Any) -> Any:
        """Return the model of `build`, from its settings."""
        raise NotImplementedError

    def clipping_norm(self, model: Any, scale: FitSize) -> float:
        """Return the norm of ``max_grad_norm="auto"``, given the untrained model."""
        return 1.0

    @abstractmethod
    def objective(
        self,
        model: Any,
        transformer: Any,
        rows: Private[Any],
        streams: Streams,
        device: str,
    ) -> Objective:
        """Return the loss of given rows, over codes that live on the device.

        Parameters
        ----------
        model : Module
        transformer : TableTransformer or Pixels
            Encodes rows: its `encode` returns, for each row, the cell of every column,
            (n, n_columns).
        rows : Private of DataFrame or Images
            Without length or values. ``codes = rows.map(transformer.encode)`` are their
            cells, ``codes.to(device)`` a tensor, and ``codes[indices]`` sampled rows.
        streams : Streams
            A random loss draws from ``streams.draws``, a torch generator.
        device : str

        Returns
        -------
        callable
            From row indices (n,) to a pair: losses (n,), and latents for the batch-wise
            term or None. The loss of a row depends on that row alone.
        """

    def batch_term(self, model: Any, streams: Streams) -> Divergence:
        """Return the batch-wise term of one partition's latents."""
        raise NotImplementedError

    def finish(
        self,
        model: Any,
        transformer: Any,
        rows: Private[Any],
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        """Finish the model after training; read rows through `mechanisms` only."""

    def draw(
        self, model: Any, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return cells of new rows, and positions inside them, both (n, n_columns).

        Arrays of numpy: cells are counted from 0, positions lie in [0, 1) and are
        uniform unless the model says more. `generator` is for torch's draws.
        """
        raise NotImplementedError(f"{type(self).__name__} draws no rows.")

    def log_density(self, model: Any, transformer: Any, rows: Any) -> np.ndarray:
        """Return the log-probability of the cells of given rows, shape (n,).

        Without it there is no `score`. A model that says where inside its cell a number
        lies adds the log-density of the position.
        """
        raise NotImplementedError(f"{type(self).__name__} states no density.")

    def can_clamp(self, model: Any) -> bool:
        """Whether the model draws given columns among the allowed cells only.

        It then has a method ``sample_given(n, generator, log_shares)``, which returns
        cells (n, n_columns) and log-weights (n,) as tensors (`draw_given`); positions
        inside cells are free. Without it conditions are met by rejection.
        """
        return False

    def draw_given(
        self,
        model: Any,
        n: int,
        log_shares: Mapping[int, Tensor],
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return cells, positions and log-weights of candidates for given columns.

        `log_shares` holds, by column, the log of the part of every cell that is
        allowed, of shape (n or 1, n_cells). The weight of a candidate of a model that
        can clamp is the probability of what was allowed, given the columns drawn
        before; otherwise what is not allowed has weight 0, all else weight 1.
        """
        if self.can_clamp(model):
            clamped, weights = model.sample_given(n, generator, log_shares)
            inside = rng.random(clamped.shape)
            return clamped.numpy(), inside, weights.double().numpy()
        codes, inside = self.draw(model, n, generator, rng)
        log_weights = np.zeros(n)
        for j, shares in log_shares.items():
            log_share = shares.expand(n, -1).numpy()[np.arange(n), codes[:, j]]
            log_weights[np.isinf(log_share)] = -np.inf
        return codes, inside, log_weights


@dataclass(frozen=True)
class GroupedRecipe(ModelRecipe):
    """A recipe of parameters that stand in groups.

    Attributes
    ----------
    architecture : Options
    term : BatchTerm
    """

    architecture: Any
    term: BatchTerm

    @property
    def has_batch_term(self) -> bool:  # type: ignore[override]
        """Whether a divergence is stated."""
        return self.term.divergence is not None

    def resolved(self, name: str, scale: FitSize) -> Any:
        return resolved(self.architecture, name, self.rules, scale)

    def n_bins(self, scale: FitSize) -> int:
        return int(self.resolved("n_bins", scale))
