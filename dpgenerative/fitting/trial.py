"""A trial of users' recipes and networks, before a fit spends anything or reads a row.

Rows are drawn from a made-up release: the domain's own, of no rows, with random counts.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.fitting.domain import Domain
from dpgenerative.fitting.recipe import FitSize, ModelRecipe
from dpgenerative.models.probing import (
    check_divergence,
    check_memory,
    refuse_memory,
    snapshot,
)
from dpgenerative.privacy.gradients.core import RULES
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import check_shares, make_plan
from dpgenerative.privacy.trial import Losses, check_model
from dpgenerative.tables.private import Private

SIZES = {5: 1_000, 80: 100_000}
"""Rows of a batch, and number of rows by which rules choose."""
ROWS = 1_000.0
"""Most rows that are made up for a cell."""
REFUSED = (
    "must treat every row apart, or the noise does not cover what one row can change. "
    "Tried on made-up rows:"
)


class _MadeUp(Mechanisms):
    """Releases random counts, of no rows."""

    def _noisy(self, values: np.ndarray, std: float) -> np.ndarray:
        return ROWS * np.asarray(self._rng.random(np.shape(values)))


class _Even(Mechanisms):
    """Releases equal counts, of no rows."""

    def _noisy(self, values: np.ndarray, std: float) -> np.ndarray:
        return np.full(np.shape(values), ROWS)


def is_custom(recipe: ModelRecipe) -> bool:
    """Return whether a fit runs a model, or rules of layers, that users wrote."""
    kinds = [rule.__module__ for rule in RULES.values()]
    return recipe.is_custom or not all(map(_is_ours, kinds))


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]


def check_recipe(
    owner: str,
    recipe: ModelRecipe,
    domain: Domain,
    names: Iterable[Hashable],
    rows: Private[Any],
    epsilon: float | None,
) -> None:
    """Require a model whose gradients are bounded row by row, and that stores no row.

    Parameters
    ----------
    owner : str
        Whose error it is.
    recipe : ModelRecipe
    domain : Domain
    names : iterable of hashable
        Names of the rows' columns, in their order; none of arrays.
    rows : Private of DataFrame or Images
        Nothing but their columns and dtypes is read.
    epsilon : float or None

    Raises
    ------
    ValueError
        One sentence that says what failed.
    """
    blank, dtypes = rows.map(domain.blank), dict(zip(names, domain.dtypes, strict=True))
    for n, n_rows in SIZES.items():
        scale = FitSize(n_rows, domain.schema, epsilon, domain.has_public)
        check_shares(recipe.releases(scale, 0.6), 1)
        rng = np.random.default_rng(0)
        transformer = made_up_encoding(recipe, domain, blank, dtypes, scale, rng)
        _check(owner, recipe, domain, transformer, scale, n)


def made_up_encoding(
    recipe: ModelRecipe, domain: Domain, blank: Private[Any],
    dtypes: Mapping[Hashable, Any], scale: FitSize, rng: np.random.Generator,
    even: bool = False,
) -> Any:  # fmt: skip
    """Return an encoding of random or equal counts, made up where a domain is open."""
    plan = make_plan(
        epsilon=None, delta=0.5, n_rows=scale.n_rows, sampling_rate=1.0, n_steps=1,
        shares=domain.releases(True, 0.4),
    )  # fmt: skip
    return domain.made_up(dtypes).release(
        blank, plan, (_Even if even else _MadeUp)(rng, rng), anchored=recipe.anchored,
        n_bins=recipe.n_bins(scale),
    )  # fmt: skip


def _check(
    owner: str, recipe: ModelRecipe, domain: Domain, transformer: Any, scale: FitSize,
    n: int,
) -> None:  # fmt: skip
    rows = domain.drawn(transformer, 2 * n, np.random.default_rng(n))
    made = _Made(recipe, domain, transformer, scale, rows)
    kind = type(recipe)  # a built-in one runs networks, or rules of layers, of users
    name = (
        "the network" if _is_ours(kind.__module__) else f"the model of {kind.__name__}"
    )
    try:
        # What is tried must not move torch's own generator.
        with torch.random.fork_rng(devices=[]):
            _check_first_use(owner, made, n)
            model = made.model()
            with _moved(model):
                made.check_term(owner, model)
                exact = _in_double(model, lambda each: made.losses(each, rows[:n]))
                check_model(exact, made.of(exact), n, recipe.has_batch_term)
    except ValueError as error:
        if str(error).startswith(owner):
            raise
        raise ValueError(
            f"{owner}: {name} {REFUSED} {str(error).rstrip('.')}."
        ) from None
    except Exception as error:  # of code that met made-up rows alone
        text = f"{type(error).__name__}: {error}"
        raise ValueError(f"{owner}: {name} fails on made-up rows. {text}") from error


@dataclass(frozen=True)
class _Made:
    """A fit of made-up rows."""

    recipe: ModelRecipe
    domain: Domain
    transformer: Any
    scale: FitSize
    rows: Any

    def model(self) -> nn.Module:
        """Return the untrained model, the same in every call."""
        streams = _streams(0)
        facts = self.domain.facts(self.transformer)
        model: nn.Module = self.recipe.build(facts, self.scale, streams.weights)
        self.recipe.require_parameters(model)
        return model

    def losses(self, model: nn.Module, rows: Any, seed: int = 0) -> Any:
        """Return losses and latents of a table, whose rows the model meets at once."""
        streams, table = _streams(seed), Private(rows)
        losses = self.recipe.objective(model, self.transformer, table, streams, "cpu")
        return losses(torch.arange(len(rows)))

    def of(self, model: nn.Module) -> Losses:
        """Return the losses of any of the rows, each time in a table of their own.

        What is computed of a whole table would change with it. Indices are in another
        order than rows, as in a batch.
        """

        def losses(rows: Tensor, seed: int) -> tuple[Tensor, Tensor | None]:
            some = self.domain.select(self.rows, rows.flip(0).tolist())
            streams, table = _streams(seed), Private(some)
            objective = self.recipe.objective(
                model, self.transformer, table, streams, "cpu"
            )
            pair: tuple[Tensor, Tensor | None] = objective(
                torch.arange(len(rows)).flip(0)
            )
            return pair

        return losses

    def check_term(self, owner: str, model: nn.Module) -> None:
        """Require a batch-wise term that stores nothing, and whose submodule exists."""
        if not self.recipe.has_batch_term:
            return
        model.get_submodule(self.recipe.batch_term_module)
        streams = _streams(0)
        term = self.recipe.batch_term(model, streams)
        latents = self.losses(model, self.rows)[1].detach()

        def use(n: int) -> Tensor:
            streams.draws.manual_seed(0)  # the fit's own, which may move
            draws = torch.randn(n, *latents.shape[1:], generator=streams.draws)
            value = term(draws.to(latents).requires_grad_())
            streams.draws.manual_seed(0)
            return value

        check_divergence(owner, term, use)


def _streams(seed: int) -> Streams:
    """Open the streams of a seed; torch's own generator follows it, too."""
    torch.default_generator.manual_seed(seed)
    return Streams.create(seed, "reproducible", "cpu")


def _check_first_use(owner: str, made: _Made, n: int) -> None:
    """Require models that store neither the first rows they get nor later ones."""
    states = []
    for first in (made.rows[:n], made.rows[n:]):
        recipe, model = deepcopy(made.recipe), made.model()
        replace(made, recipe=recipe).losses(model, first)
        states.append(snapshot((recipe, model)))
    if states[0] != states[1]:
        refuse_memory(owner, "recipe")
    model = made.model()
    value = made.recipe, model
    check_memory(owner, "recipe", value, lambda k: made.losses(model, made.rows[:k]))


@contextmanager
def _moved(model: nn.Module) -> Iterator[None]:
    """Move weights for a while: those of zero hide what comes before them."""
    generator = torch.Generator().manual_seed(0)
    params = list(model.parameters())
    before = [p.detach().clone() for p in params]
    with torch.no_grad():
        for p in params:
            noise = torch.randn(p.shape, generator=generator, dtype=torch.float64)
            p.add_((0.1 * noise).to(p))
    try:
        yield
    finally:
        with torch.no_grad():
            for p, value in zip(params, before, strict=True):
                p.copy_(value)


def _in_double(model: nn.Module, works: Callable[[nn.Module], Any]) -> nn.Module:
    """Return the model in double precision, or as it is where it insists on another."""
    with suppress(Exception):
        exact = deepcopy(model).double()
        for module in exact.modules():
            module.register_forward_pre_hook(_cast)
        works(exact)
        return exact
    return model


def _cast(module: nn.Module, args: Any) -> Any:
    """Return inputs of a layer in double precision."""
    return tuple(
        x.double() if isinstance(x, Tensor) and x.is_floating_point() else x
        for x in args
    )
