"""Searches for rows among which one more moves a clipped sum by more than it may.

Every sum is rounded, and the presence of one row changes how the others are. The search
has two parts: gradient ascent makes rows whose uses of a layer cancel, so that what is
added up is large beside what is left of it, and greedy choice collects the rows whose
rounding moves the most.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.privacy.gradients import (
    ConvGradients,
    GenericGradients,
    LayerGradients,
    LinearGradients,
    LowRankGradients,
    LUGradients,
)
from dpgenerative.privacy.steps import Clipper

WIDTH = 6
Rows = list[tuple[Tensor, ...]]
"""Inputs and output gradients of one layer, use by use; the first axis is the rows."""


def linear(rows: Rows) -> LayerGradients:
    """Return the gradients of a dense layer."""
    layer = MaskedLinear.dense(WIDTH, WIDTH)
    return LinearGradients(layer, [(x,) for x, _ in rows], [(e,) for _, e in rows])


def masked(rows: Rows) -> LayerGradients:
    """Return the gradients of a layer of two groups."""
    groups = torch.arange(WIDTH) % 2
    layer = MaskedLinear(groups, groups, torch.ones(2, 2).tril().bool())
    return LinearGradients(layer, [(x,) for x, _ in rows], [(e,) for _, e in rows])


def low_rank(rows: Rows) -> LayerGradients:
    """Return the gradients of a linear flow of rank one."""
    layer = LowRankLinear(WIDTH, 1, torch.Generator().manual_seed(0))
    return LowRankGradients(
        layer, [(x,) for x, _ in rows], [(e, torch.zeros(len(e))) for _, e in rows]
    )


def triangular(rows: Rows) -> LayerGradients:
    """Return the gradients of a linear flow of triangular factors."""
    layer = LULinear(WIDTH, torch.Generator().manual_seed(0))
    return LUGradients(
        layer, [(x,) for x, _ in rows], [(e, torch.zeros(len(e))) for _, e in rows]
    )


def convolution(rows: Rows) -> LayerGradients:
    """Return the gradients of a convolution, of two channels and three positions."""
    layer = nn.Conv2d(2, 2, 1)
    return ConvGradients(
        layer,
        [(x.view(-1, 2, 1, WIDTH // 2),) for x, _ in rows],
        [(e.view(-1, 2, 1, WIDTH // 2),) for _, e in rows],
    )


def generic(rows: Rows) -> LayerGradients:
    """Return the gradients of a layer that no rule knows."""
    layer = nn.Linear(WIDTH, WIDTH)
    return GenericGradients(layer, [(x,) for x, _ in rows], [(e,) for _, e in rows])


def _pushing(n: int, uses: int, generator: torch.Generator) -> Rows:
    """Draw rows whose gradients all point to one side, so that their sum grows."""
    shape = (n, WIDTH)
    return [
        tuple(0.1 + torch.rand(shape, generator=generator) for _ in range(2))
        for _ in range(uses)
    ]


def _cancelling(rows: Rows, generator: torch.Generator, n_steps: int = 150) -> Rows:
    """Make uses cancel, by ascent of the sum of their norms over the norm of the sum.

    How far differs between rows, so that they are rounded at different digits.
    """
    parts = [[x.double().requires_grad_() for x in use] for use in rows]
    parts[-1][1].data.neg_()
    least = 10 ** (-3 - 5 * torch.rand(len(rows[0][0]), generator=generator).double())
    optimizer = torch.optim.Adam([x for use in parts for x in use], lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(n_steps):
        whole = sum(e.unsqueeze(2) * x.unsqueeze(1) for x, e in parts)
        bias = sum(e for _, e in parts)
        norm = (whole.square().sum((1, 2)) + bias.square().sum(1)).sqrt()
        size = sum(x.norm(dim=1) * e.norm(dim=1) for x, e in parts)
        loss = ((norm + least * size).log() - size.log()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return [tuple((1e3 * x).detach().float() for x in use) for use in parts]


def candidates(n: int, uses: int, seed: int) -> Rows:
    """Return rows to choose from; the first one does not cancel."""
    generator = torch.Generator().manual_seed(seed)
    plain = _pushing(n, uses, generator)
    if uses == 1:
        return plain
    pairs = zip(plain, _cancelling(plain, generator), strict=True)
    return [
        tuple(torch.cat([x[:1], y[1:]]) for x, y in zip(*pair, strict=True))
        for pair in pairs
    ]


def moved(
    clipper: Clipper, site: Callable[[Rows], LayerGradients], rows: Rows
) -> float:
    """Return how far the first of some rows moves the clipped sum."""
    sums = []
    for first in (True, False):
        # All others stay at their places, as in batches.
        present = torch.ones(len(rows[0][0]), dtype=torch.bool)
        present[0] = first
        found = clipper.clipped_sums([site(rows)], present, torch.Generator())
        sums.append(torch.cat([x.double().flatten() for x in found.values()]))
    return float((sums[0] - sums[1]).norm())


def search(
    clipper: Clipper,
    site: Callable[[Rows], LayerGradients],
    uses: int,
    n_rows: int,
    n_tried: int = 6,
    seed: int = 0,
) -> float:
    """Return the farthest that one row moved the sum of rows chosen for it.

    Parameters
    ----------
    clipper : Clipper
    site : callable
        One of those above.
    uses : int
        How often the layer is used.
    n_rows : int
        Rows to be chosen, one after the other.
    n_tried : int, default=6
        Candidates for every place.
    seed : int, default=0
    """
    pool = candidates(n_rows * n_tried, uses, seed)
    chosen = [tuple(x[:1] for x in use) for use in pool]
    farthest = 0.0
    for start in range(1, len(pool[0][0]) - n_tried, n_tried):
        trials = [
            [
                tuple(torch.cat([y, x[k : k + 1]]) for y, x in zip(*pair, strict=True))
                for pair in zip(chosen, pool, strict=True)
            ]
            for k in range(start, start + n_tried)
        ]
        distances = [moved(clipper, site, rows) for rows in trials]
        best = max(range(n_tried), key=distances.__getitem__)
        chosen, farthest = trials[best], max(farthest, distances[best])
    return farthest
