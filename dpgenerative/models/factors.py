"""Contingency tables in the model: offsets of a column by groups of cells before it.

A *factor* adds to the logits of a column a number for every pair of groups: of the
cells that a few earlier columns have, and of its own cells. Factors are fitted to
noisy counts on rows drawn from the model; no row of anybody is read.

Factors are fitted on coarse scales first. On every scale the squared deviations of the
counts from the model are compared with the variance of their noise. A cell moves to the
mean of its mass given its count, where cells of like size have the model's error, and
the share of them that is empty, in common (a hierarchical Bayes estimate). Where the
model is right, there is only noise, and the model stays.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from dpgenerative.models.cells import (
    LEAST_WEIGHT,
    CellFacts,
    Cells,
    Rake,
    grouping,
    invert_cdf,
)
from dpgenerative.privacy.precision import added_at

LARGEST_MOVE = 2.0
"""Most that one round may change the logarithm of a mass."""
N_ROUNDS, N_TURNS = 6, 3
"""Rounds on every scale of a table, and turns among tables of one column."""
LEAST_LEFT = 0.005
"""Least share of its mass that a cell keeps, whatever was counted."""
RULED_OUT = -60.0
"""Offset of a cell that does not go with one before; if none does, all do."""
SHARES_EMPTY = (0.0, 0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.97)
"""Shares of cells of like size that may be empty; none has half of the prior."""
ERRORS = (0.001, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Standard deviations of the others from the model, by their root mean square."""
LEAST_VARIANCE = 1e-14
"""Of the noise of a share."""
CHUNK = 2**15
"""Cells whose masses are expected at a time."""


@dataclass(frozen=True)
class TableFactor:
    """Offsets of a column's cells by groups of cells of columns before it.

    Attributes
    ----------
    columns : tuple of int
        In the order of the flow; the offsets are those of the last.
    groups : list of LongTensor of shape (n_cells,)
        The group of every cell, by column.
    offsets : Tensor of shape (n_groups of all columns before, n_groups of the last)
    """

    columns: tuple[int, ...]
    groups: list[Tensor]
    offsets: Tensor

    @classmethod
    def of_pairs(cls, columns: tuple[int, int], allowed: Tensor) -> "TableFactor":
        """Return the factor that rules out pairs of cells, by (n_above, n_cells)."""
        groups = [torch.arange(n) for n in allowed.shape]
        return cls(columns, groups, torch.where(allowed, 0.0, RULED_OUT))

    def __call__(self, codes: Tensor) -> Tensor:
        """Return the offsets of the last column's cells, (n, n_cells)."""
        here = self if self.offsets.device == codes.device else self.to(codes.device)
        keys = joint_groups(codes, here.columns[:-1], here.groups[:-1])
        return here.offsets.index_select(0, keys)[:, here.groups[-1]]

    def to(self, device: str | torch.device) -> "TableFactor":
        """Return the factor on a device."""
        groups = [group.to(device) for group in self.groups]
        return TableFactor(self.columns, groups, self.offsets.to(device))


def joint_groups(
    codes: Tensor, columns: Sequence[int], groups: Sequence[Tensor]
) -> Tensor:
    """Return the joint group of every row, that of the last column counted fastest."""
    keys = torch.zeros(len(codes), dtype=torch.long, device=codes.device)
    for j, group in zip(columns, groups, strict=True):
        keys = keys * _size(group) + group[codes[:, j]]
    return keys


def _size(group: Tensor) -> int:
    return int(group.max()) + 1


def scales_of(
    facts: Sequence[CellFacts],
    sizes: Sequence[int],
    cuts: Sequence[int | None],
) -> list[list[Tensor]]:
    """Return groups of cells from coarse to fine; the finest has the sizes given.

    Columns with neighbours are halved as long as their sizes are even; those with a cut
    have a power of 2 of groups on the scales before.
    """
    scales, sizes = [], list(sizes)
    while True:
        scales.append(list(map(grouping, facts, sizes, cuts)))
        halved = list(map(_coarser_size, facts, sizes, cuts))
        if halved == sizes:
            return scales[::-1]
        sizes = halved


def _coarser_size(facts: CellFacts, size: int, cut: int | None) -> int:
    if size == 2 or not facts.has_neighbours:
        return size
    if cut is not None:
        return 2 ** ((size - 1).bit_length() - 1)
    return size // 2 if size % 2 == 0 else size


@dataclass(frozen=True)
class CountedTable:
    """Noisy counts of rows over groups of cells of a few columns.

    Attributes
    ----------
    columns : tuple of int
        Ascending.
    scales : list of list of LongTensor
        From coarse to fine: the group of every cell, by column.
    shares : Tensor
        Noisy counts on the finest scale, divided by their sum; an axis per
        column.
    std : float
        Standard deviation of the noise of every share.
    """

    columns: tuple[int, ...]
    scales: list[list[Tensor]]
    shares: Tensor
    std: float

    def first(self, k: int) -> "CountedTable":
        """Return the table of the first k columns."""
        rest = tuple(range(k, len(self.columns)))
        merged = math.prod(self.shares.shape[k:])
        return CountedTable(
            self.columns[:k],
            [scale[:k] for scale in self.scales],
            self.shares.sum(rest) if rest else self.shares,
            self.std * math.sqrt(merged),
        )


class Correct(Rake):
    """Rake the model, and bring it nearer to measured tables, column by column.

    Parameters
    ----------
    tables : sequence of CountedTable
        Those of the first two, three, ... columns of each follow from it.

    Attributes
    ----------
    factors : list of TableFactor
        What was fitted, once all columns were drawn.
    """

    def __init__(self, tables: Sequence[CountedTable]) -> None:
        super().__init__(soft=True)
        self.tables = [t.first(k) for t in tables for k in range(2, len(t.columns) + 1)]
        self.factors: list[TableFactor] = []
        self.drawn: list[Tensor] = []

    def note(self, codes: Tensor) -> None:
        self.drawn.append(codes)

    def __call__(self, block: Cells, j: int, logits: Tensor, u: Tensor) -> Tensor:
        """Update column j's correction and factors; return its corrected logits."""
        logits = super().__call__(block, j, logits, u)
        if mine := [table for table in self.tables if table.columns[-1] == j]:
            fits = [_TableFit(table, torch.stack(self.drawn, 1)) for table in mine]
            logits = super().__call__(block, j, _refined(fits, logits), u)
            self.factors += [fit.factor() for fit in fits if fit.aim is not None]
        self.drawn.append(invert_cdf(logits.softmax(1), u)[0])
        return logits


def _refined(fits: list["_TableFit"], logits: Tensor) -> Tensor:
    """Fit tables of one column; return the column's logits with their factors."""
    weights = logits.softmax(1)
    for fit in fits:
        fit.refine(weights)
    for fit in fits * (N_TURNS if len(fits) > 1 else 0):
        fit.repeat(weights)
    return weights.clamp(min=LEAST_WEIGHT).log()


class _TableFit:
    """The offsets of one table, fitted on rows drawn from the model.

    `weights` (n, n_cells) are, up to a factor for each row, the probabilities of the
    last column's cells; every move changes them in place.
    """

    def __init__(self, table: CountedTable, codes: Tensor) -> None:
        self.table = table
        self.fine = [group.to(codes.device) for group in table.scales[-1]]
        sizes = [_size(group) for group in self.fine]
        shape = math.prod(sizes[:-1]), sizes[-1]
        self.shares = table.shares.reshape(shape).float().to(codes.device)
        self.offsets = torch.zeros_like(self.shares)
        self.keys = joint_groups(codes, table.columns[:-1], self.fine[:-1])
        self.order = self.keys.argsort(stable=True)
        sizes_above = torch.bincount(self.keys, minlength=shape[0])
        self.starts = sizes_above.cumsum(0) - sizes_above
        self.aim: tuple[Tensor, Tensor, Tensor] | None = None  # above, own, target

    def refine(self, weights: Tensor) -> None:
        """Fit the offsets to the counts, from coarse to fine."""
        probs, total = _merged(weights, self.fine[-1]), torch.zeros_like(self.offsets)
        for scale in self.table.scales:
            above, own = self._coarser(scale)
            merged = _merged(probs, own)
            target = self._target(self._masses(merged, above), above, own)
            if target is None:
                continue
            self.aim = above, own, target
            moves = self._moves(merged, N_ROUNDS)[:, own]
            total += moves
            probs *= moves.exp().index_select(0, self.keys)
        self._change(weights, total)
        weights /= weights.amax(1, keepdim=True)

    def repeat(self, weights: Tensor) -> None:
        """Move once towards the counts on the finest informative scale."""
        if self.aim is not None:
            own = self.aim[1]
            merged = _merged(weights, own[self.fine[-1]])
            self._change(weights, self._moves(merged, 1)[:, own])

    def _moves(self, merged: Tensor, n_rounds: int) -> Tensor:
        """Return the moves of all rounds, (n_groups above, n_groups of a scale).

        `merged` (n, n_groups of a scale) are the weights of groups that move together:
        nothing else is needed. They change in place.
        """
        assert self.aim is not None
        above, _, target = self.aim
        total = merged.new_zeros(len(above), merged.shape[1])
        for _ in range(n_rounds):
            masses = self._masses(merged, above)
            totals = masses.sum(1, keepdim=True)
            wanted = target * totals / target.sum(1, keepdim=True)
            moves = torch.where(totals > 0, wanted.log() - masses.log(), 0)
            moves = moves.nan_to_num().clamp(-LARGEST_MOVE, LARGEST_MOVE)[above]
            total += moves
            merged *= moves.exp().index_select(0, self.keys)
        return total

    def _change(self, weights: Tensor, moves: Tensor) -> None:
        self.offsets += moves
        weights *= moves.exp().index_select(0, self.keys)[:, self.fine[-1]]

    def factor(self) -> TableFactor:
        """Return the fitted factor."""
        return TableFactor(self.table.columns, self.fine, self.offsets)

    def _coarser(self, scale: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the group on a scale of every fine group, above and own."""
        maps = []
        for fine, coarse in zip(self.fine, scale, strict=True):
            groups = torch.zeros(_size(fine), dtype=torch.long, device=fine.device)
            groups[fine] = coarse.to(fine.device)
            maps.append(groups)
        above = maps[0][:0].new_zeros(1)
        for groups in maps[:-1]:
            above = (above.unsqueeze(1) * _size(groups) + groups).flatten()
        return above, maps[-1]

    def _masses(self, merged: Tensor, above: Tensor) -> Tensor:
        """Return the model's masses of the groups of a scale."""
        sums = embedding_bag(
            self.order, merged, self.starts, mode="sum",
            per_sample_weights=merged.sum(1).reciprocal_().index_select(0, self.order),
        )  # fmt: skip
        total = merged.new_zeros(_size(above), merged.shape[1])
        return added_at(total, 0, above, sums) / len(merged)

    def _target(self, masses: Tensor, above: Tensor, own: Tensor) -> Tensor | None:
        """Return target masses by the counts; None where they are noise."""
        cells = (above.unsqueeze(1) * masses.shape[1] + own).flatten()
        merged = masses.new_zeros(masses.numel())
        shares = added_at(merged, 0, cells, self.shares.flatten()).view_as(masses)
        parts = torch.bincount(cells, minlength=len(merged))
        noise = parts.view_as(masses) * self.table.std**2
        gaps = shares - masses
        excess = gaps.square() - noise
        if excess.sum() <= (2 * noise.square().sum()).sqrt():
            return None
        expected = _posterior_means(shares, masses, noise)
        return torch.maximum(expected, LEAST_LEFT * masses).clamp(min=1e-9)


def _posterior_means(shares: Tensor, masses: Tensor, noise: Tensor) -> Tensor:
    """Return the masses of cells to expect, given noisy shares and the model's masses.

    Those of cells of like size come from each other: groups of as many cells as there
    are groups, from the largest on.
    """
    expected = torch.empty_like(masses.flatten())
    order = masses.flatten().argsort(descending=True, stable=True)
    size = math.isqrt(len(order))
    whole = len(order) // size * size
    groups = order[:whole].view(-1, size).split(max(1, CHUNK // size))
    for alike in [*groups, order[whole:].view(1, -1)]:
        parts = (each.flatten()[alike] for each in (shares, masses, noise))
        expected[alike] = _means_of_alike(*parts)
    return expected.view_as(masses)


def _means_of_alike(shares: Tensor, masses: Tensor, noise: Tensor) -> Tensor:
    """Return the expected masses of cells (n_groups, n), a group of like size per row.

    A cell is empty, or its mass is normal; the mean of both is the model's mass. The
    probability of empty cells and the normal's variance are those of the group. Their
    posterior is the mean over a grid of both.
    """
    noise = noise.clamp(min=LEAST_VARIANCE)
    empty = masses.new_tensor(SHARES_EMPTY).view(-1, 1, 1, 1)
    filled = masses / (1 - empty)
    relative = masses.new_tensor(ERRORS).view(-1, 1, 1)
    errors = filled.square().mean(-1, keepdim=True) * relative**2
    gaps, total = shares - filled, errors + noise
    is_filled = (1 - empty).log() - (gaps.square() / total + total.log()) / 2
    is_empty = empty.log() - (shares.square() / noise + noise.log()) / 2
    either = torch.logaddexp(is_filled, is_empty)
    prior = torch.full_like(empty, 1 / (len(SHARES_EMPTY) - 1))
    prior[0] = 1
    posterior = (either.sum(-1, keepdim=True) + prior.log()).flatten(0, 1).softmax(0)
    means = (is_filled - either).exp() * (filled + errors / total * gaps)
    return (posterior * means.flatten(0, 1)).sum(0)


def _merged(weights: Tensor, groups: Tensor) -> Tensor:
    """Return the weights of groups of cells, row by row."""
    sums = weights.new_zeros(len(weights), _size(groups))
    return added_at(sums, 1, groups, weights)
