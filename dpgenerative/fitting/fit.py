"""One private fit, from rows to a released model.

`fit`, the audits, searches and checkpoints all run `PrivateFit`. What rows give away
passes, in this order, `Mechanisms.count` (their number), `Domain.release` (marginals),
`estimate_norm` (where asked for), the noisy gradients of `loop.train`, and whatever
`ModelRecipe.finish` releases.

Formal guarantee: what `PrivateFit.run` returns, but for the rows' encoding inside the
call, is (epsilon, delta)-DP for adding or removing one row, or the up to
`max_rows_per_unit` rows of one person, with the epsilon that `Fitted.plan` spends. The
plan is computed from public numbers and the released row count, before any other
release, and is compared with the ledger of what was released at the end.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any

from dpgenerative._random import Streams
from dpgenerative.fitting.clipping import clipper_of
from dpgenerative.fitting.domain import Domain
from dpgenerative.fitting.loop import Keeper, tensors_of, train
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.fitting.recipe import FitSize, ModelRecipe, resolved
from dpgenerative.fitting.threads import idle_threads
from dpgenerative.privacy.clipping import LARGEST_CHUNK
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.norm import NORM, NORM_SHARE, estimate_norm
from dpgenerative.privacy.plan import (
    PrivacyPlan,
    count_epsilon,
    epsilon_of_noise,
    make_plan,
)
from dpgenerative.privacy.sampling import capacity, whole_pass
from dpgenerative.privacy.steps import (
    Chunk,
    Clipper,
    Divergence,
    Objective,
    PrivateGradient,
)
from dpgenerative.tables.private import Private

LEAST_STEPS = 50
"""Gradients where their noise is stated, and a rule would take none."""
PRETRAINING_EPOCHS = 100
PRETRAINING_RATE = 0.01
"""Learning rate on public rows, and at most on the private ones after them: a larger
one forgets in its first noisy steps."""


@dataclass(frozen=True)
class Released:
    """Releases of a fit before training.

    Attributes
    ----------
    plan : PrivacyPlan
    transformer : TableTransformer or Pixels
        Encodes rows.
    bound : float, optional
        Clipping norm, once it is released or stated.
    """

    plan: PrivacyPlan
    transformer: Any
    bound: float | None = None


@dataclass(frozen=True)
class Fitted:
    """The results of a fit, all of them released.

    Attributes
    ----------
    plan : PrivacyPlan
    transformer : TableTransformer or Pixels
    model : Module
        On the CPU, without gradients.
    settings : mapping
        Arguments from which the recipe made the model.
    clipping : str
        How gradients were bounded, in words; empty without training.
    """

    plan: PrivacyPlan
    transformer: Any
    model: Any
    settings: Mapping[str, Any]
    clipping: str


@dataclass(frozen=True)
class PrivateFit:
    """A fit of one recipe to the rows of one domain.

    Attributes
    ----------
    parameters : Synthesizer
        Its parameters are read; those "auto" follow its recipe.
    recipe : ModelRecipe
    domain : Domain
    streams : Streams
    mechanisms : Mechanisms
        The mechanisms of all releases.
    device : str
    """

    parameters: Any
    recipe: ModelRecipe
    domain: Domain
    streams: Streams
    mechanisms: Mechanisms
    device: str
    _epsilons: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    def run(
        self,
        rows: Private[Any],
        public: Any = None,
        keeper: Keeper | None = None,
        n_rows: int | None = None,
    ) -> Fitted:
        """Fit the model.

        Parameters
        ----------
        rows : Private of DataFrame or Images
        public : DataFrame or Images, optional
            Rows that nobody has to protect; they train the model first.
        keeper : Keeper, optional
        n_rows : int, optional
            Released row count, where a search has paid for it.

        Raises
        ------
        LedgerError
            Where what was released is not what was planned.
        """
        saved = keeper.released if keeper else {}
        released = Released(**saved) if saved else self.release(rows, n_rows)
        if saved and released.plan != self.plan(released.plan.n_rows):
            raise ValueError(
                "The checkpoint's plan is not the one that the parameters lead to. "
                "Delete the file to begin anew."
            )
        model = self.build(released)
        if public is not None and not saved:
            self._pretrain(model, released.transformer, public)
        self._share(model)
        plan, clipping = released.plan, ""
        if plan.n_steps:
            gradient = self.train(model, released, rows, public, keeper)
            clipping = gradient.describe(self.recipe.has_batch_term)
        with idle_threads(self.streams.is_seeded):
            self.recipe.finish(
                model, released.transformer, rows, plan, self.mechanisms, self.streams
            )
        plan.check(self.mechanisms.ledger)
        self._share(model)
        model = model.cpu().requires_grad_(False)
        settings = self.recipe.settings(*self._facts(released))
        return Fitted(plan, released.transformer, model, settings, clipping)

    # Steps, in their order ------------------------------------------------------

    def release(self, rows: Private[Any], n_rows: int | None = None) -> Released:
        """Release the row count, unless it is given, and the marginals."""
        if n_rows is None:
            k, z = self.rows_per_unit, self.parameters.noise_multiplier
            n_rows = self.mechanisms.count(rows, count_epsilon(self.epsilon, k, z))
        else:
            self.mechanisms.ledger.count(n_rows, 0.0)  # the search has paid
        plan = self.plan(n_rows)
        transformer = self.domain.release(
            rows, plan, self.mechanisms, anchored=self.recipe.anchored,
            n_bins=self.recipe.n_bins(self.scale(n_rows)),
        )  # fmt: skip
        return self.mechanisms.ranks.same(Released(plan, transformer))

    def build(self, released: Released) -> Any:
        """Return the untrained model, on the device."""
        facts, scale = self._facts(released)
        model = self.recipe.build(facts, scale, self.streams.weights)
        self.recipe.require_parameters(model)
        return model.to(self.device)

    def train(
        self,
        model: Any,
        released: Released,
        rows: Private[Any],
        public: Any = None,
        keeper: Keeper | None = None,
    ) -> PrivateGradient:
        """Train the model by noisy gradients; return how these were bounded."""
        plan, transformer = released.plan, released.transformer
        if keeper:
            keeper.restore(model, self.streams)
        objective = self.objective(model, transformer, rows.map(self.domain.padded))
        gradient = self.gradient(model, objective, plan, rows, released.bound)
        if keeper:
            noted = replace(released, bound=gradient.clipper.bound)
            others = () if public is None else transformer.arrays(public)
            arrays = rows.map(lambda rows: chain(transformer.arrays(rows), others))
            keeper.prepare(arrays, self.mechanisms.ledger, vars(noted))
        optimizer = self._optimizer(plan.n_rows, public is not None)
        verbose = bool(self.parameters.verbose) and self.mechanisms.ranks.is_first
        train(
            model, objective, rows, plan, gradient, optimizer, self.mechanisms,
            self.streams, self.device, self._batch_term(model), keeper, verbose,
        )  # fmt: skip
        return gradient

    # Parts of the steps ---------------------------------------------------------

    def _share(self, model: Any) -> None:
        """Copy the first process' model to all processes, bit by bit."""
        ranks, tensors = self.mechanisms.ranks, tensors_of(model).values()
        if ranks.size == 1:
            return
        first = ranks.same([tensor.cpu() for tensor in tensors])
        for mine, value in zip(tensors, first, strict=True):
            mine.copy_(value)
        for name in self.recipe.learned:
            setattr(model, name, ranks.same(getattr(model, name)))

    def _facts(self, released: Released) -> tuple[Any, FitSize]:
        """Return the facts and the size from which a model is built."""
        return self.domain.facts(released.transformer), self.scale(released.plan.n_rows)

    @property
    def rows_per_unit(self) -> int:
        """Rows that a person may have, of those that are released."""
        is_linked = getattr(self.domain, "sequences", None) is not None
        return 1 if is_linked else int(self.parameters.max_rows_per_unit)

    @property
    def epsilon(self) -> float | None:
        """Budget that was stated; None without privacy."""
        return finite(self.parameters.epsilon)

    def scale(self, n_rows: int) -> FitSize:
        """Return the public size of the fit."""
        domain, epsilons = self.domain, self._epsilons
        stated = FitSize(n_rows, domain.schema, self.epsilon, domain.has_public)
        if self.parameters.noise_multiplier is None:
            return stated
        if n_rows not in epsilons:
            epsilons[n_rows] = epsilon_of_noise(
                lambda epsilon: self._plan(replace(stated, epsilon=epsilon))
            )
        return replace(stated, epsilon=epsilons[n_rows])

    def plan(self, n_rows: int) -> PrivacyPlan:
        """Share the budget among the releases, from public numbers alone."""
        return self._plan(self.scale(n_rows))

    def _plan(self, scale: FitSize) -> PrivacyPlan:
        parameters, recipe, n_rows = self.parameters, self.recipe, scale.n_rows
        value = partial(resolved, parameters, rules=recipe.rules, scale=scale)
        batch, n_steps = value("batch_size"), value("n_steps")
        if parameters.noise_multiplier is not None:
            # Else the search for epsilon would raise it until a rule allows steps.
            n_steps = n_steps or LEAST_STEPS
        before = self.domain.releases(recipe.anchored, value("marginal_budget"))
        is_estimated = parameters.max_grad_norm == "median" and n_steps > 0
        norm = {NORM: NORM_SHARE} if is_estimated else {}
        after = recipe.releases(scale, 1 - sum(before.values()))
        if repeated := {r.name for r in before} & {r.name for r in after}:
            raise ValueError(f"A recipe cannot declare the container's {repeated}.")
        return make_plan(
            epsilon=scale.epsilon,
            noise_multiplier=parameters.noise_multiplier,
            delta=parameters.delta,
            rows_per_unit=self.rows_per_unit,
            n_rows=n_rows,
            sampling_rate=min(1.0, batch / n_rows),
            n_steps=n_steps,
            shares={**before, **norm, **after},
            has_open_keys=self.domain.has_open_keys(recipe.anchored),
        )

    def objective(self, model: Any, transformer: Any, rows: Private[Any]) -> Objective:
        """Return the recipe's losses of given rows."""
        return self.recipe.objective(
            model, transformer, rows, self.streams, self.device
        )

    def gradient(
        self,
        model: Any,
        objective: Objective,
        plan: PrivacyPlan,
        rows: Private[Any],
        bound: float | None = None,
    ) -> PrivateGradient:
        """Return how gradients are bounded; a norm "median" is released here."""
        norm = self.parameters.max_grad_norm
        if bound is None and norm == "median":
            size = min(capacity(plan.n_rows), LARGEST_CHUNK)
            chunks = whole_pass(rows, size, self.streams.batches).map(self._on_device)
            bound = estimate_norm(
                model, objective, chunks, self.mechanisms, plan.multiplier(NORM)
            )
        elif bound is None and norm == "auto":
            bound = self.recipe.clipping_norm(model, self.scale(plan.n_rows))
        elif bound is None:
            bound = float(norm)
        term = BatchTerm.of(self.parameters.divergence)
        return PrivateGradient(
            clipper_of(self.parameters.clipping, term, bound, plan.batch_size),
            plan.noise_multiplier,
            plan.batch_size,
            int(self.parameters.n_partitions),
            term.aggregation,
            capacity(plan.batch_size),
            self.recipe.batch_term_module,
        )

    def _on_device(self, chunk: Chunk) -> Chunk:
        return chunk[0].to(self.device), chunk[1].to(self.device)

    def _batch_term(self, model: Any) -> Divergence | None:
        recipe = self.recipe
        return recipe.batch_term(model, self.streams) if recipe.has_batch_term else None

    def _optimizer(self, n_rows: int, has_public: bool) -> Optimizer:
        """Return the optimizer with the learning rate on private rows."""
        optimizer = Optimizer.of(self.parameters.optimizer)
        rate = resolved(
            optimizer, "learning_rate", self.recipe.rules, self.scale(n_rows)
        )
        if has_public and optimizer.learning_rate == "auto":
            rate = min(rate, PRETRAINING_RATE)
        return replace(optimizer, learning_rate=rate)

    def _pretrain(self, model: Any, transformer: Any, public: Any) -> None:
        """Train the model on public rows, without noise; nothing private is read."""
        n, rows = len(public), Private(public)
        rules, scale = self.recipe.rules, self.scale(n)
        rate = min(1.0, resolved(self.parameters, "batch_size", rules, scale) / n)
        plan = make_plan(
            epsilon=None, delta=self.parameters.delta, n_rows=n, sampling_rate=rate,
            n_steps=PRETRAINING_EPOCHS * math.ceil(1 / rate), shares={},
        )  # fmt: skip
        optimizer = Optimizer.of(self.parameters.optimizer)
        train(
            model, self.objective(model, transformer, rows), rows, plan,
            PrivateGradient(Clipper("flat", 1.0), 0.0, plan.batch_size),
            replace(optimizer, learning_rate=PRETRAINING_RATE),
            Mechanisms(self.streams.counts, self.streams.gradients), self.streams,
            self.device, self._batch_term(model),
        )  # fmt: skip


def finite(epsilon: float | None) -> float | None:
    """Return a budget as a float; None where there is none."""
    return None if epsilon is None or math.isinf(epsilon) else float(epsilon)
