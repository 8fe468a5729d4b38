"""A trial of a model that users wrote, on made-up rows, before any row is read.

Clipping relies on more than a type can state: that the gradient of one row's loss
depends on that row alone, and that the engine attributes it to that row. `check_model`
compares the engine with autograd, one row at a time.

What a trial shows of the rows, sizes and weights tried, for every strategy: a row's
clipped gradient is that of its own loss, has norm at most C, and is the same beside
other rows; the clipped sum of a batch is the sum over any two parts of it. So one row
more moves the sum by at most C. What it cannot show is code that behaves otherwise for
other numbers or sizes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.gradients.core import LayerGradients, layer_gradients
from dpgenerative.privacy.precision import full_precision
from dpgenerative.privacy.steps import (
    Clipper,
    Gradients,
    Objective,
    recorded,
    require_one_loss_each,
    trainable,
)

TOLERANCE = {torch.float64: 1e-5, torch.float32: 2e-3}
"""Differences that rounding explains, relative to a row's gradient."""
COUPLED = (
    "the loss of a row, or its gradient, changes with the other rows of its batch, as "
    "by batch normalisation or a mean over the batch"
)
MISTAKEN = (
    "its rows do not keep their places (a layer is given them sorted, shuffled or with "
    "another axis first), a parameter is used by two layers, or a layer's rule of your "
    "own is wrong"
)


@dataclass(frozen=True)
class _Tried:
    """A model and the loss of made-up rows, of which there are twice as many as tried.

    Attributes
    ----------
    model : Module
    objective : callable
        From indices to losses (n,) and None.
    n : int
        Rows of a batch.
    generator : torch.Generator
        What the losses draw from.
    """

    model: nn.Module
    objective: Objective
    n: int
    generator: torch.Generator

    def seeded(self, seed: int = 0) -> None:
        """Let whatever the model draws be what it was before."""
        self.generator.manual_seed(seed)
        torch.manual_seed(seed)

    def losses(self, rows: Tensor, seed: int = 0) -> Tensor:
        """Return the losses of some rows."""
        self.seeded(seed)
        losses = self.objective(rows)[0]
        require_one_loss_each(losses, rows)
        return losses

    @property
    def rows(self) -> Tensor:
        """The batch."""
        return torch.arange(self.n)

    def beside_others(self, i: int) -> Tensor:
        """Return a batch in which row i has its place, and all others are new."""
        return torch.where(self.rows == i, i, self.rows + self.n)

    def alone(self, rows: Tensor, i: int) -> Gradients:
        """Return autograd's gradient of the loss at one place."""
        params = trainable(self.model)
        loss = self.losses(rows)[i]
        grads = torch.autograd.grad(loss, params, allow_unused=True)
        pairs = zip(params, grads, strict=True)
        return {p: torch.zeros_like(p) if g is None else g for p, g in pairs}

    def layers(self, present: Tensor) -> list[LayerGradients]:
        """Return what the engine knows of the gradients of the rows present."""
        self.seeded()
        calls, loss, _ = recorded(self.model, self.objective, (self.rows, present))
        return layer_gradients(self.model, calls, loss, self.n)


def check_model(
    model: nn.Module, objective: Objective, n: int, generator: torch.Generator
) -> None:
    """Require that the engine bounds what each row adds to a sum of gradients.

    Parameters
    ----------
    model : Module
        With weights at which no layer is silent.
    objective : callable
        From indices of made-up rows, 0 to 2 n - 1, to their losses, and latents or
        None, as for `PrivateGradient`.
    n : int
        Rows of a batch, at least 2.
    generator : torch.Generator
        The one that the losses draw from.

    Raises
    ------
    ValueError
        One sentence that says what failed.
    """
    terms = _losses(objective), _latents(objective)
    # What is tried must not move torch's own generator.
    with torch.random.fork_rng(devices=[]), full_precision(model):
        has_latents = objective(torch.arange(n))[1] is not None
        for term in terms[: 1 + has_latents]:
            _check(_Tried(model, term, n, generator))


def _losses(objective: Objective) -> Objective:
    return lambda rows: (objective(rows)[0], None)


def _latents(objective: Objective) -> Objective:
    """Return losses that are made of a row's latents, which a divergence may see."""

    def losses(rows: Tensor) -> tuple[Tensor, None]:
        latents = objective(rows)[1]
        assert latents is not None
        if latents.shape[:1] != rows.shape:
            raise ValueError("its latents must have one entry per row, in their order")
        return torch.linalg.vector_norm(latents.flatten(1) - 1, dim=1), None

    return losses


def _check(tried: _Tried) -> None:
    n, rows = tried.n, tried.rows
    whole = tried.losses(rows)
    if not torch.allclose(whole, tried.losses(rows), rtol=0, atol=0, equal_nan=True):
        raise ValueError(
            "the loss of a row changes from call to call: draw from streams.draws"
        )
    is_random = not torch.equal(whole, tried.losses(rows, seed=1))
    places = sorted({0, n // 2, n - 1})
    found = {i: tried.alone(rows, i) for i in places}
    found = {i: g for i, g in found.items() if bool(_norm(g).isfinite())}
    sizes = torch.stack([*map(_norm, found.values()), torch.tensor(0.0).double()])
    most = float(sizes.max())
    for i, gradient in found.items():
        others = [(tried.beside_others(i), i)]
        # Alone, a row draws other numbers.
        others += [] if is_random else [(rows[[i]], 0)]
        for company, place in others:
            _require_close(tried.alone(company, place), gradient, most, COUPLED)
    everyone, half = torch.ones_like(rows, dtype=torch.bool), rows % 2 == 0
    masks = [everyone, half, ~half, *(rows == i for i in found)]
    engine = [(tried.layers(present), present) for present in masks]
    sums = _sum_by_row(engine[0][0], n)
    free = Clipper("flat", 1e6 * (most + 1))
    for (i, gradient), (layers, one) in zip(found.items(), engine[3:], strict=True):
        alone = free.clipped_sums(layers, one, tried.generator)
        _require_close(alone, gradient, most, MISTAKEN)
        _require_close({p: g[i] for p, g in sums.items()}, gradient, most, MISTAKEN)
    for strategy in STRATEGIES:
        clipper = Clipper(strategy, most / 3 or 1.0, sparsity=0.0)
        _check_sums(
            [clipper.clipped_sums(*each, tried.generator) for each in engine],
            clipper.bound,
        )


def _sum_by_row(layers: list[LayerGradients], n: int) -> Gradients:
    """Return the sums of groups of one row each, (n, *shape) per parameter."""
    pairs = [(x.parameters, x.grouped(torch.arange(n), [1] * n)) for x in layers]
    return {p: g for params, sums in pairs for p, g in zip(params, sums, strict=True)}


def _check_sums(sums: list[Gradients], bound: float) -> None:
    """Require that single rows are bounded, and that a sum is that of its parts."""
    whole, one, other, *alone = sums
    if any(_norm(each) > bound * (1 + 1e-6) for each in alone):
        raise ValueError(f"a clipped gradient exceeds its bound: {MISTAKEN}")
    _require_close(whole, {p: one[p] + other[p] for p in one}, bound, MISTAKEN)


def _require_close(found: Gradients, wanted: Gradients, size: float, why: str) -> None:
    """Require equal gradients, but for rounding relative to a size."""
    gap = _norm({p: found[p] - wanted[p] for p in found})
    if gap > size * max(TOLERANCE[p.dtype] for p in found):
        raise ValueError(why)


def _norm(gradient: Gradients) -> Tensor:
    """Return the norm over all parameters, in float64."""
    squares = [g.double().square().sum() for g in gradient.values()]
    return torch.stack(squares).sum().sqrt()
