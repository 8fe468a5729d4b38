"""A trial of users' recipes and networks, before a fit spends anything or reads a row.

Rows are drawn from a made-up release: the domain's own, of no rows, with random counts.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import nn

from dpgenerative._random import Streams
from dpgenerative.fitting.domain import Domain
from dpgenerative.fitting.recipe import ModelRecipe, Scale
from dpgenerative.models.probing import check_memory
from dpgenerative.privacy.gradients.core import RULES
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import make_plan
from dpgenerative.privacy.trial import check_model
from dpgenerative.tables.private import Private

SIZES = {5: 1_000, 24: 100_000}
"""Rows of a batch, and rows that rules are told of."""
ROWS = 1_000.0


class _MadeUp(Mechanisms):
    """Releases random counts, of no rows."""

    def _noisy(self, values: np.ndarray, std: float) -> np.ndarray:
        return ROWS * np.asarray(self._rng.random(np.shape(values)))


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
    dtypes: Mapping[Hashable, Any],
    blank: Private[Any],
    epsilon: float | None,
) -> None:
    """Require a model whose gradients are bounded row by row, and that keeps no row.

    Parameters
    ----------
    owner : str
        Whose error it is.
    recipe : ModelRecipe
    domain : Domain
    dtypes : mapping
        By column; none of arrays.
    blank : Private of DataFrame or Images
        A table of these columns without a row, or an array of zeros.
    epsilon : float or None

    Raises
    ------
    ValueError
        One sentence that says what failed.
    """
    for n, n_rows in SIZES.items():
        rng = np.random.default_rng(0)
        plan = make_plan(
            epsilon=None, delta=0.5, n_rows=n_rows, sampling_rate=1.0, n_steps=1,
            marginal_budget=0.4, has_open_keys=False, moment_budget=0.4,
        )  # fmt: skip
        scale = Scale(n_rows, domain.schema, epsilon, domain.has_public)
        transformer = domain.made_up(dtypes).release(
            blank, plan, _MadeUp(rng, rng), anchored=recipe.anchored,
            n_bins=recipe.n_bins(scale),
        )  # fmt: skip
        _check(owner, recipe, domain, transformer, scale, n)


def _check(
    owner: str, recipe: ModelRecipe, domain: Domain, transformer: Any, scale: Scale,
    n: int,
) -> None:  # fmt: skip
    streams = Streams.create(0, "reproducible", "cpu")
    model = recipe.build(domain.facts(transformer), scale, streams.weights)
    recipe.require_parameters(model)
    with torch.no_grad():
        for p in model.parameters():  # weights of zero hide what comes before them
            p.add_(0.1 * torch.randn(p.shape, generator=streams.weights))
    rows = domain.drawn(transformer, 2 * n, np.random.default_rng(n))

    def objective(of: nn.Module, rows: Any) -> Callable[..., Any]:
        return recipe.objective(of, transformer, Private(rows), streams, "cpu")

    check_memory(
        owner, "recipe", (recipe, model),
        lambda k: objective(model, rows[:k])(torch.arange(k)),
    )  # fmt: skip
    exact = model
    with suppress(RuntimeError, TypeError):  # a model may insist on its dtype
        double = deepcopy(model).double()
        objective(double, rows)(torch.arange(n))
        exact = double
    try:
        check_model(exact, objective(exact, rows), n, streams.draws)
    except ValueError as error:
        raise ValueError(
            f"{owner}: the model of {type(recipe).__name__} must treat every row "
            "apart, or the noise does not cover what one row can change. Tried on "
            f"made-up rows: {str(error).rstrip('.')}."
        ) from None
