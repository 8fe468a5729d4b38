"""Cells of a table as models see them: functions of cells, log-probabilities of rows.

A model that starts at the private marginals adds offsets to the log-masses of cells.
The offsets of a column lie in the span of a few functions of its cells. The same
functions, centred and scaled, are the features of a row that conditioners and encoders
take.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.polynomial.legendre import legvander
from torch import Tensor, nn
from torch.nn import functional as F
from torch.quasirandom import SobolEngine

from dpgenerative.encoding.codecs import LARGEST_POSITION
from dpgenerative.layers import MaskedLinear

HEAVY = 0.25
"""A cell of an ordered column with more mass than this gets an indicator of its own."""
DECLINE = 0.5
"""Functions of an ordered column are scaled by their degree to minus this power."""
LARGEST_OFFSET = 40.0
PLACE_GROUPS = 32
"""Groups of cells of places that have an indicator of their own."""
LEAST_WEIGHT = 1e-30
MOST_CELLS = 2048
"""Cells whose products are made once a step: the rows of a usual batch."""
LEAST_SPREAD = 0.3
"""Least root mean square by which the features of a column are divided."""
RAKING_ROWS = 2**15
"""Rows drawn from a model on which it is raked."""
EVEN_BLOCK = 2**14
"""Points of one Sobol sequence: of any, five dimensions may leave half of it empty."""
TABLE_BLOCK = 2**12
"""The same where tables of many columns are compared and corrected."""
LEAST_POINTS = 6
"""Per dimension: in sequences of fewer, some dimensions are the same, or opposites."""


@dataclass(frozen=True)
class CellFacts:
    """Released facts of one column, for a model.

    Attributes
    ----------
    masses : Tensor of shape (n_cells,)
        Released masses, or uniform ones.
    ordered : bool
        Whether the cells have an order.
    nullable : bool
        Whether the last cell is 'missing'.
    atoms : BoolTensor of shape (n_cells,)
        Cells within which positions have no meaning and are drawn uniformly.
    are_places : bool, default=False
        Whether the cells are boxes of several columns: neighbours without an order.
    is_given : bool, default=False
        Whether the column is known whenever rows are drawn: nothing of it is learned.
    """

    masses: Tensor
    ordered: bool
    nullable: bool
    atoms: Tensor
    are_places: bool = False
    is_given: bool = False

    @property
    def has_neighbours(self) -> bool:
        """Whether cells that follow each other are much alike."""
        return self.ordered or self.are_places

    @property
    def special(self) -> list[int]:
        """Cells of an ordered column with an indicator: heavy ones and 'missing'."""
        marked = self.masses > HEAVY
        marked[-1] |= self.nullable
        return [int(cell) for cell in marked.nonzero()]

    @property
    def plain_mass(self) -> float:
        """Mass of all other cells, which only the smooth functions distinguish."""
        return 1 - float(self.masses[self.special].sum())


def cell_basis(
    facts: CellFacts, n_basis: int, most_levels: int | None = None
) -> Tensor:
    """Return the functions of the cells of a column, shape (n_cells, m).

    Indicators of heavy cells and of 'missing'; for the others Legendre polynomials of
    ``2 u - 1``, where u is the middle of the cell on the scale of cumulative masses.
    Higher degrees are scaled down, so that smooth dependence is learned first. Nominal
    columns, and those of which the basis would not be smaller, have one indicator per
    cell, the identity. Of a nominal column with more than `most_levels` cells,
    the heaviest have an indicator. Places have one per group of neighbours.
    """
    k, special = len(facts.masses), facts.special
    if facts.are_places:
        groups = grouping(facts, min(PLACE_GROUPS, most_levels or k))
        return torch.eye(int(groups.max()) + 1)[groups]
    if not facts.ordered and most_levels is not None and k > most_levels:
        heaviest = facts.masses.argsort(descending=True, stable=True)[:most_levels]
        return torch.eye(k)[:, heaviest.sort().values]
    if not facts.ordered or k <= n_basis + max(len(special), 1):
        return torch.eye(k)
    plain = facts.masses.double().clone()
    plain[special] = 0
    plain /= plain.sum()
    x = 2 * plain.cumsum(0) - plain - 1
    polynomials = torch.from_numpy(legvander(x, n_basis)[:, 1:])
    degrees = torch.arange(1, n_basis + 1, dtype=torch.float64)
    weights = degrees**-DECLINE
    smooth = polynomials * (2 * degrees + 1).sqrt() * (weights / weights.norm())
    smooth[special] = 0
    indicators = F.one_hot(torch.tensor(special, dtype=torch.long), k).T
    return torch.cat([smooth, indicators], 1).float()


def grouping(facts: CellFacts, n_groups: int, cut: int | None = None) -> Tensor:
    """Return a group for every cell: n_groups or fewer, but for 'missing'.

    In a column with neighbours these form groups of like mass, below and above a cut
    (the first cell above it) if there is one, and 'missing' is a group of its own; in a
    nominal one the cells of least mass form one group. Each of 4, 8, 16, ... groups is
    two of twice as many.
    """
    k = len(facts.masses)
    if k <= n_groups:
        return torch.arange(k)
    masses = facts.masses.double().clone()
    if not facts.has_neighbours:
        groups = torch.full((k,), n_groups - 1)
        largest = masses.argsort(descending=True, stable=True)[: n_groups - 1]
        groups[largest] = torch.arange(n_groups - 1)
        return groups
    masses[-1] *= not facts.nullable
    masses.clamp_(max=max(float(masses.sum() - masses.max()), LEAST_WEIGHT))
    middle = (masses.cumsum(0) - masses / 2) / masses.sum()
    if cut is None:
        groups = (middle * n_groups).long().clamp(0, n_groups - 1)
    else:
        groups = _groups_beside(middle, masses, n_groups, cut)
    groups[-1] += n_groups * facts.nullable
    return groups.unique(return_inverse=True)[1]


def _groups_beside(middle: Tensor, masses: Tensor, n_groups: int, cut: int) -> Tensor:
    """Return groups of like mass below and above a cut, by quarters of them."""
    share = masses[:cut].sum() / masses.sum().clamp(min=LEAST_WEIGHT)
    quarters = min(max(round(4 * float(share)), 1), 3)
    n_below = 1 if n_groups < 4 else n_groups // 4 * quarters
    n_above = n_groups - n_below
    below = (middle / share * n_below).nan_to_num().long().clamp(0, n_below - 1)
    above = (middle - share) / (1 - share) * n_above
    above = above.nan_to_num().long().clamp(0, n_above - 1)
    return torch.where(torch.arange(len(middle)) < cut, below, n_below + above)


def standardised(table: Tensor, masses: Tensor) -> Tensor:
    """Return functions of the cells with mean 0 and, together, mean square 1.

    Centred features do not move the bias, and a common value has a small gradient: less
    of a record's clipped gradient repeats what the marginals say already.
    """
    masses = masses.to(table.dtype)
    centred = table - masses @ table
    spread = (masses @ centred.square()).sum().sqrt()
    return centred / spread.clamp(min=LEAST_SPREAD)


def even_points(n: int, d: int, generator: torch.Generator, block: int) -> Tensor:
    """Return points that fill the unit cube more evenly than independent ones, (n, d).

    Scrambled Sobol sequences of `block` points, all but the first with their dimensions
    in another order; of fewer than `LEAST_POINTS` a dimension, independent strata of
    all. The points are in random order.
    """
    on: dict[str, Any] = {"generator": generator, "device": generator.device}
    blocks = []
    for start in range(0, max(n, 1), block):
        size = min(block, n - start)
        if size < LEAST_POINTS * d or d > SobolEngine.MAXDIM:
            draws = torch.rand(2, size, d, **on).double()
            blocks.append(((draws[0].argsort(0) + draws[1]) / size).cpu())
            continue
        seed = int(torch.randint(2**31, (1,), **on))
        sobol = SobolEngine(d, scramble=True, seed=seed)
        points = sobol.draw(size, dtype=torch.float64)
        blocks.append(points[:, torch.randperm(d, **on).cpu()] if start else points)
    points = torch.cat(blocks)[torch.randperm(n, **on).cpu()]
    return points.clamp(max=LARGEST_POSITION).to(generator.device)


def invert_cdf(masses: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Return the cells that uniform numbers fall into, and their positions there.

    Parameters
    ----------
    masses : Tensor of shape (n, k)
        Masses of the cells of every row, in any unit.
    u : Tensor of shape (n,)
        Numbers in [0, 1).

    Returns
    -------
    cells : LongTensor of shape (n,)
    positions : Tensor of shape (n,)
        In [0, 1).
    """
    steps = masses.cumsum(1)
    target = u.unsqueeze(1) * steps[:, -1:]
    cells = torch.searchsorted(steps, target, right=True)
    cells.clamp_(max=masses.shape[1] - 1)
    lower = steps.gather(1, (cells - 1).clamp(min=0)) * (cells > 0)
    width = steps.gather(1, cells) - lower
    positions = (target - lower) / width.clamp(min=1e-12)
    return cells[:, 0], positions[:, 0].clamp(0, LARGEST_POSITION)


class Cells(nn.Module):
    """Functions of the cells of every column, and log-probabilities made of them.

    Parameters
    ----------
    facts : sequence of CellFacts
        One per column.
    n_basis : int or sequence of int
        Number of smooth functions of an ordered column, of all or of each.
    most_levels : int, optional
        Number of cells of a nominal column that have an indicator.
    """

    log_masses: Tensor
    raking: Tensor

    def __init__(
        self,
        facts: Sequence[CellFacts],
        n_basis: int | Sequence[int],
        most_levels: int | None = None,
    ) -> None:
        super().__init__()
        d = len(facts)
        numbers = [n_basis] * d if isinstance(n_basis, int) else n_basis
        self.n_columns = d
        self.given = [j for j, fact in enumerate(facts) if fact.is_given]
        self.n_cells = [len(f.masses) for f in facts]
        pairs = zip(facts, numbers, strict=True)
        tables = [cell_basis(f, n, most_levels) for f, n in pairs]
        self.widths = [table.shape[1] for table in tables]
        self.starts = [sum(self.widths[:j]) for j in range(d)]
        self.cell_starts = [sum(self.n_cells[:j]) for j in range(d)]
        for j, (table, fact) in enumerate(zip(tables, facts, strict=True)):
            self.register_buffer(f"table_{j}", table)
            self.register_buffer(f"inputs_{j}", standardised(table, fact.masses))
        self.smooth = [table.shape[1] < len(table) for table in tables]
        self._largest = torch.cat([table.abs().amax(0) for table in tables]).numpy()
        log_masses = torch.cat([f.masses for f in facts]).log().float()
        self.register_buffer("log_masses", log_masses)
        self.register_buffer("raking", torch.zeros_like(log_masses))

    def table(self, j: int) -> Tensor:
        """Return the functions of column j's cells, (n_cells, m_j)."""
        return self.get_buffer(f"table_{j}")

    def inputs(self, j: int) -> Tensor:
        """Return the features that stand for column j's cells, (n_cells, m_j)."""
        return self.get_buffer(f"inputs_{j}")

    def columns(self, j: int) -> slice:
        """Return where column j stands among the features and coefficients."""
        return slice(self.starts[j], self.starts[j] + self.widths[j])

    def cells(self, j: int) -> slice:
        """Return where column j stands among the cells of all columns."""
        return slice(self.cell_starts[j], self.cell_starts[j] + self.n_cells[j])

    def features(self, codes: Tensor) -> Tensor:
        """Return the features of every row, (n, sum m_j)."""
        parts = [self.inputs(j).index_select(0, k) for j, k in enumerate(codes.T)]
        return torch.cat(parts, dim=1)

    @torch.no_grad()
    def precompute(
        self, codes: Tensor, layers: Sequence[MaskedLinear], scale: float = 1.0
    ) -> Sequence[Tensor | None]:
        """Return the outputs of layers, given scaled features of all columns.

        A row's outputs are sums over its cells: a tenth of the work where columns have
        many features and cells are few. None elsewhere, and wherever autograd computes
        the gradients of the weights. The number of rows does not decide, so that it
        changes no rounding. Hooks that change a layer's inputs do nothing here.
        """
        pays = sum(self.n_cells) <= MOST_CELLS
        pays &= sum(self.widths) > 4 * self.n_columns
        if not (pays and layers[0].recorded and codes.device.type == "cpu"):
            return [None for _ in layers]
        weight = scale * torch.cat([layer.masked_weight() for layer in layers])
        parts = weight.split(self.widths, 1)
        brought = [self.inputs(j) @ part.T for j, part in enumerate(parts)]
        brought[0] += torch.cat([layer.bias for layer in layers])
        places = codes + torch.tensor(self.cell_starts)
        outputs = F.embedding_bag(places, torch.cat(brought), mode="sum")
        return outputs.split([len(layer.bias) for layer in layers], 1)

    def free_offsets(self, coefficients: Tensor, j: int) -> Tensor:
        """Return the offsets of column j's cells before they are bounded."""
        return coefficients @ self.table(j).T if self.smooth[j] else coefficients

    def offsets(self, coefficients: Tensor, j: int) -> Tensor:
        """Return the bounded offsets of column j's cells, (n, n_cells)."""
        offsets = self.free_offsets(coefficients, j)
        return offsets.clamp(-LARGEST_OFFSET, LARGEST_OFFSET)

    def may_be_bounded(self, coefficients: Tensor) -> list[bool]:
        """Return of every column whether offsets of some rows may be at their bound.

        On a device, where asking makes the host wait, nobody asks.
        """
        if coefficients.device.type != "cpu" or not len(coefficients):
            return [True] * self.n_columns
        with np.errstate(all="ignore"):  # a warning would reveal one row
            sizes = coefficients.detach().abs().amax(0).numpy() * self._largest
            sums = np.add.reduceat(sizes, self.starts)
            most = np.where(self.smooth, sums, np.maximum.reduceat(sizes, self.starts))
        # Not-a-number is no less than anything.
        return [not size < 0.999 * LARGEST_OFFSET for size in most]

    def base(self, j: int) -> Tensor:
        """Return the logits that column j's offsets are added to, (n_cells,)."""
        return self.log_masses[self.cells(j)] + self.raking[self.cells(j)]

    def log_prob(self, coefficients: Tensor, codes: Tensor) -> Tensor:
        """Return the log-probability of every row's cells, (n,)."""
        with torch.autocast(coefficients.device.type, enabled=False):
            exact = coefficients.to(self.log_masses.dtype)
            return _CellLogProb.apply(exact, codes, self)

    def log_probs_of(self, coefficients: Tensor) -> list[Tensor]:
        """Return log-probabilities of every column's cells, each (n, n_cells)."""
        parts = coefficients.split(self.widths, dim=1)
        return [
            (self.offsets(part, j) + self.base(j)).log_softmax(1)
            for j, part in enumerate(parts)
        ]


class _CellLogProb(torch.autograd.Function):
    """Log-probability of rows of cells, and its gradient in the same pass.

    With ``p`` the probabilities of a column's cells and ``t_k`` the functions of cell
    k, the gradient in the column's coefficients is ``t_k - sum_l p_l t_l``. Computed
    column by column, nothing leaves the processor's cache.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, coefficients: Tensor, codes: Tensor, block: Cells
    ) -> Tensor:
        total = coefficients.new_zeros(len(codes))
        slopes = torch.empty_like(coefficients)
        # Where no offset comes near its bound, the result is the same to the last bit
        # without it.
        bounded = block.may_be_bounded(coefficients)
        for j, part in enumerate(coefficients.split(block.widths, dim=1)):
            k, out = codes[:, j : j + 1], slopes[:, block.columns(j)]
            if j in block.given:
                out.zero_()
                continue
            total += _log_prob_and_slopes(part, k, block, j, bounded[j], out)
        ctx.save_for_backward(slopes)
        return total

    @staticmethod
    def backward(  # type: ignore[override]
        ctx: Any, upstream: Tensor
    ) -> tuple[Tensor, None, None]:
        return upstream.unsqueeze(1) * ctx.saved_tensors[0], None, None


def _log_prob_and_slopes(
    coefficients: Tensor, k: Tensor, block: Cells, j: int, bounded: bool, slopes: Tensor
) -> Tensor:
    """Return log-probabilities of cells of column j, (n,); fill in slopes, (n, m_j).

    `bounded` states whether offsets can be at their bound, where their slope is 0. Even
    unbounded ones are small here, so that no maximum is taken out before `exp`.
    """
    # One way of rounding for both: which of them it is depends on other rows.
    offset_of = block.offsets if bounded else block.free_offsets
    offsets = offset_of(coefficients, j)
    logits = offsets + block.base(j)
    chosen = logits.gather(1, k)
    pull = logits.exp_()
    mass = pull.sum(1, keepdim=True)
    push = torch.ones_like(chosen)
    if bounded:
        moves = offsets.abs() < LARGEST_OFFSET
        pull *= moves
        push *= moves.gather(1, k)
    if block.smooth[j]:
        table = block.table(j)
        own = push * table.index_select(0, k[:, 0])
        torch.sub(own, (pull @ table).div_(mass), out=slopes)
    else:
        torch.div(pull, -mass, out=slopes).scatter_add_(1, k, push)
    return (chosen - mass.log_())[:, 0]


class Rake:
    """Bring the model's own marginals back to the released ones, column by column.

    The correction is estimated on rows drawn from the model, never on real ones.

    Parameters
    ----------
    soft : bool
        Whether a marginal is the mean of the cells' probabilities over the rows, or the
        share of rows drawn in each cell.
    """

    n_rounds = 8

    def __init__(self, soft: bool) -> None:
        self.soft = soft

    def note(self, codes: Tensor) -> None:
        """Note the cells of a column that is not drawn."""

    def __call__(self, block: Cells, j: int, logits: Tensor, u: Tensor) -> Tensor:
        """Update column j's correction and return its corrected logits.

        `u` holds the uniform number of every row from which its cell is drawn.
        """
        correction = self.correction(block.log_masses[block.cells(j)], logits, u)
        block.raking[block.cells(j)] += correction
        return logits + correction

    def correction(self, target: Tensor, logits: Tensor, u: Tensor) -> Tensor:
        """Return what brings a column's marginal to the target, a logarithm."""
        weights = (logits - logits.amax(1, keepdim=True)).exp()
        least, correction = 0.1 / len(logits), torch.zeros_like(target)
        for _ in range(self.n_rounds):
            masses = self._marginal(weights, correction.exp(), u)
            gap = target.exp().clamp(min=least) / masses.clamp(min=least)
            correction += gap.log().clamp(-2, 2)
        return correction

    def _marginal(self, weights: Tensor, factors: Tensor, u: Tensor) -> Tensor:
        """Return the masses of the cells under corrected weights."""
        if self.soft:
            return factors * ((1 / (weights @ factors)) @ weights) / len(weights)
        cells, _ = invert_cdf(weights * factors, u)
        return torch.bincount(cells, minlength=len(factors)) / len(cells)


class Clamp:
    """Draw only rows whose given columns lie in allowed parts of their cells.

    Parameters
    ----------
    given : mapping from column to Tensor of shape (n or 1, n_cells)
        Log of the share of every cell that is allowed; -inf for none.
    is_constant : bool
        Whether the columns of the model depend on each other alone, so that the weight
        of the first column is the same for all rows.

    Attributes
    ----------
    log_weights : Tensor of shape (n,)
        Log of the importance weights, up to a constant: weighted by them, the rows
        drawn follow the model given what is allowed.
    is_constant : bool
        Whether the weight of the next column is the same for all rows: so far, every
        column was given a single cell.
    """

    def __init__(self, given: Mapping[int, Tensor], is_constant: bool) -> None:
        self.given = given
        self.is_constant = is_constant
        self.log_weights = torch.zeros(())

    def __call__(self, block: Cells, j: int, logits: Tensor, u: Tensor) -> Tensor:
        """Return the logits of column j's cells, given what is allowed."""
        shares = self.given.get(j)
        if shares is None:
            self.is_constant = False
            self.log_weights = self.log_weights + logits.new_zeros(len(logits))
            return logits
        joint = logits.log_softmax(1) + shares
        log_weight = joint.logsumexp(1)
        self.log_weights = self.log_weights + log_weight * (not self.is_constant)
        self.is_constant &= bool((shares.isfinite().sum(1) == 1).all())
        return joint - log_weight.unsqueeze(1)
