"""A trial of a model that users wrote, on made-up rows, before any row is read.

Clipping relies on more than a type can state: that the gradient of one row's loss
depends on that row alone, and that the engine attributes it to that row. `check_model`
compares the engine with autograd, one row at a time.

What a trial shows of the rows, sizes and weights tried: a row's gradient is that of its
own loss, and the same beside other rows; clipped, by every strategy, it has norm at
most C, whatever an unusable row beside it holds; and the clipped sum of a batch is the
sum over any two parts of it. So one row more moves the sum by at most C. What it cannot
show is code that behaves otherwise for other numbers or sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.gradients.core import LayerGradients, layer_gradients
from dpgenerative.privacy.precision import full_precision
from dpgenerative.privacy.steps import (
    Clipper,
    Gradients,
    recorded,
    require_one_loss_each,
    trainable,
)

TOLERANCE = {torch.float64: 1e-6, torch.float32: 2e-3}
"""Differences that rounding explains, relative to a row's gradient."""
SEEDS = 6
"""Draws that losses which draw numbers are tried with."""
FEW = 10
"""Up to so many rows, sums are tried by all strategies, not by flat clipping alone."""
COUPLED = (
    "the loss of a row, or its gradient, changes with the other rows of its batch or "
    "table, as by batch normalisation, or a mean over the batch or the table"
)
MISTAKEN = (
    "a layer's rule of your own is wrong, or rows do not keep their places (a layer is "
    "given them sorted, shuffled or with another axis first), or a parameter is used "
    "by two layers, by keyword or outside of its layer's call, as by a penalty"
)

Losses = Callable[[Tensor, int], tuple[Tensor, Tensor | None]]
"""From indices of made-up rows, and a seed of all that is drawn, to losses (n,) and
latents or None."""


@dataclass(frozen=True)
class _Tried:
    """A model and the losses of made-up rows, twice as many as a batch has."""

    model: nn.Module
    objective: Losses
    n: int

    def losses(self, rows: Tensor, seed: int = 0) -> Tensor:
        """Return the losses of some rows."""
        losses, _ = self.objective(rows, seed)
        require_one_loss_each(losses, rows)
        return losses

    @property
    def rows(self) -> Tensor:
        """The batch."""
        return torch.arange(self.n)

    def beside_others(self, mine: Tensor) -> Tensor:
        """Return a batch in which some rows keep their places, and others are new."""
        return torch.where(mine, self.rows, self.rows + self.n)

    def gradient(self, rows: Tensor, weights: Tensor, seed: int = 0) -> Gradients:
        """Return autograd's gradient of weighted losses."""
        losses, params = self.losses(rows, seed), trainable(self.model)
        mine = weights != 0
        loss = (losses[mine] * weights[mine]).sum()
        grads = torch.autograd.grad(loss, params, allow_unused=True)
        pairs = zip(params, grads, strict=True)
        return {p: torch.zeros_like(p) if g is None else g for p, g in pairs}

    def layers(
        self, present: Tensor, unusable: Tensor | None = None
    ) -> list[LayerGradients]:
        """Return the engine's gradients of the rows present."""
        calls, loss, _ = recorded(
            self.model, lambda rows: self.objective(rows, 0), (self.rows, present)
        )
        if unusable is not None:
            calls = {
                module: [
                    (tuple(_filled(x, unusable) for x in c[0]), c[1]) for c in layer
                ]
                for module, layer in calls.items()
            }
        return layer_gradients(self.model, calls, loss, self.n)


def _filled(x: Tensor, rows: Tensor) -> Tensor:
    """Return an input of a layer with infinite numbers in some rows."""
    if not x.is_floating_point():
        return x
    return torch.where(rows.view(-1, *[1] * (x.ndim - 1)), torch.inf, x.detach())


def check_model(model: nn.Module, losses: Losses, n: int, has_latents: bool) -> None:
    """Require that the engine bounds what each row adds to a sum of gradients.

    Parameters
    ----------
    model : Module
        With weights at which no layer is silent.
    losses : callable
        Of made-up rows 0 to 2 n - 1.
    n : int
        Rows of a batch, at least 2.
    has_latents : bool
        Whether a batch-wise term sees latents.

    Raises
    ------
    ValueError
        One sentence that says what failed.
    """
    with full_precision(model):
        _check(_Tried(model, losses, n))
        if has_latents:
            _check(_Tried(model, _latents(losses), n))


def _latents(objective: Losses) -> Losses:
    """Return losses computed from a row's latents."""

    def losses(rows: Tensor, seed: int) -> tuple[Tensor, None]:
        latents = objective(rows, seed)[1]
        if latents is None or latents.shape[:1] != rows.shape:
            raise ValueError("its latents must have one entry per row, in their order")
        return torch.linalg.vector_norm(latents.flatten(1) - 1, dim=1), None

    return losses


def _check(tried: _Tried) -> None:
    whole = tried.losses(tried.rows)
    if not torch.allclose(whole, tried.losses(tried.rows), 0, 0, equal_nan=True):
        raise ValueError(
            "the loss of a row changes from call to call: it must follow from the row, "
            "the weights and the streams that a fit hands in"
        )
    fine = whole.isfinite().nonzero().flatten().tolist()
    if not fine:
        raise ValueError("no loss of a made-up row is a finite number")
    places = sorted({fine[0], fine[len(fine) // 2], fine[-1]})
    ones = [(tried.rows == i).to(whole) for i in places]
    alone = [tried.gradient(tried.rows, one) for one in ones]
    most = max(float(_norm(gradient)) for gradient in alone)
    _check_companies(tried, places, alone, most)
    _check_engine(tried, ones, alone, most)


def _check_companies(
    tried: _Tried, places: Sequence[int], alone: Sequence[Gradients], most: float
) -> None:
    """Require that rows have the same gradients beside others."""
    rows, one = tried.rows, torch.ones(1)
    whole = tried.losses(rows)
    seeds = [
        s for s in range(1, SEEDS) if not torch.equal(whole, tried.losses(rows, s))
    ]
    for i, gradient in zip(places, alone, strict=True):
        mine = rows == i
        for company in (tried.beside_others(mine), torch.full_like(rows, i)):
            beside = tried.gradient(company, mine.to(whole))
            _require_close(beside, gradient, most, COUPLED)
        if not seeds:  # alone, a row draws other numbers
            _require_close(tried.gradient(rows[[i]], one), gradient, most, COUPLED)
    half = rows % 2 == 0
    weights = torch.where(half & whole.isfinite(), 1 + rows, 0).to(whole)
    for seed in (0, *seeds):
        beside = tried.gradient(tried.beside_others(half), weights, seed)
        wanted = tried.gradient(rows, weights, seed)
        _require_close(beside, wanted, most * float(weights.sum()), COUPLED)


def _check_engine(
    tried: _Tried, ones: Sequence[Tensor], alone: Sequence[Gradients], most: float
) -> None:
    """Require that the engine clips these gradients, and adds them up."""
    rows, n = tried.rows, tried.n
    everyone, half = torch.ones(n, dtype=torch.bool), rows % 2 == 0
    masks = [everyone, half, ~half, *(one > 0 for one in ones)]
    engine = [(tried.layers(present), present) for present in masks]
    free = Clipper("flat", 1e6 * (most + 1))
    for each, gradient in zip(engine[3:], alone, strict=True):
        _require_close(_clipped(free, *each), gradient, most, MISTAKEN)
    strategies = STRATEGIES if n <= FEW else ("flat",)
    clippers = [Clipper(name, most / 3 or 1.0, sparsity=0.0) for name in strategies]
    for clipper in clippers:
        _check_sums([_clipped(clipper, *each) for each in engine], clipper.bound)
    if n > FEW:
        return
    sums = _sum_by_row(engine[0][0], n)
    for one, gradient in zip(ones, alone, strict=True):
        summed = {p: g[int(one.argmax())] for p, g in sums.items()}
        _require_close(summed, gradient, most, MISTAKEN)
    inputs = [x for layer in engine[0][0] for call in layer.inputs for x in call]
    has_numbers = any(x.is_floating_point() for x in inputs)
    spoilt = tried.layers(everyone, unusable=~half)
    for clipper in clippers if has_numbers else ():
        clean = _clipped(clipper, engine[0][0], half)
        _require_close(
            _clipped(clipper, spoilt, everyone), clean, clipper.bound, MISTAKEN
        )


def _clipped(
    clipper: Clipper, layers: list[LayerGradients], present: Tensor
) -> Gradients:
    return clipper.clipped_sums(layers, present, torch.Generator())


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


def _require_close(given: Gradients, wanted: Gradients, size: float, why: str) -> None:
    """Require equal gradients, but for rounding relative to a size."""
    gap = _norm({p: given[p] - wanted[p] for p in wanted})
    tolerance = max(TOLERANCE.get(p.dtype, 0.02) for p in wanted)
    if not gap <= size * tolerance:
        raise ValueError(why)


def _norm(gradient: Gradients) -> Tensor:
    """Return the norm over all parameters, in float64."""
    squares = [g.double().square().sum() for g in gradient.values()]
    return torch.stack(squares).sum().sqrt()
