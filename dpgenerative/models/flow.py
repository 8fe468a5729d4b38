"""The default model: a flow over the cells of a table, anchored at private marginals.

With ``pi_j`` the released masses of column j, and offsets ``o_j`` computed from the
columns before it, ``P(cell k of column j | earlier) = softmax(log pi_j + o_j)_k``. As a
flow, this is a spline of the unit interval that is linear inside each cell, with its
knots at the cumulative masses. Zero offsets make it the identity: the untrained model
is the product of the marginals.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from dpgenerative.encoding.codecs import LARGEST_POSITION
from dpgenerative.layers import MaskedLinear
from dpgenerative.models.cells import CellFacts, Cells, Clamp, Rake, invert_cdf
from dpgenerative.models.factors import TableFactor

TOGETHER = 64
"""Columns whose share of all columns before them is computed in one product when rows
are drawn: one product per column would read all features of all rows each time."""


class AnchoredBlock(Cells):
    """Conditional cell probabilities of every column given the columns before it.

    Parameters
    ----------
    facts : sequence of CellFacts
        One per column, in the order of the flow.
    n_basis : int or sequence of int
        Number of smooth functions of an ordered column, of all or of each.
    hidden_units : int
        Width of the masked hidden layer; 0 keeps the linear conditioner alone.
    generator : torch.Generator
        Source of the initial weights.
    ordered_only : bool, default=False
        Whether the linear conditioner is one of ordered columns alone.
    most_levels : int, optional
        See `Cells`.
    hidden_size : float, optional
        Largest size of a row's hidden units together; by default twice that of its
        features.
    first_size : float, default=1
        Size of the first column's features; the others' is 1.
    """

    linked: Tensor

    def __init__(
        self,
        facts: Sequence[CellFacts],
        n_basis: int | Sequence[int],
        hidden_units: int,
        generator: torch.Generator,
        ordered_only: bool = False,
        most_levels: int | None = None,
        hidden_size: float | None = None,
        first_size: float = 1.0,
    ) -> None:
        super().__init__(facts, n_basis, most_levels)
        self.inputs(0).mul_(first_size)
        self.factors: list[TableFactor] = []
        d = self.n_columns
        group = torch.arange(d).repeat_interleave(torch.tensor(self.widths))
        is_learned = torch.tensor([[not f.is_given] for f in facts])
        before = torch.ones(d, d, dtype=torch.bool).tril(-1) & is_learned
        takes_part = torch.tensor([f.ordered or not ordered_only for f in facts])
        linked = takes_part[group].nonzero()[:, 0]
        if ordered_only:  # no tensor of files without it
            self.register_buffer("linked", linked, persistent=False)
        self.skip = MaskedLinear(group[linked], group[linked], before)
        self.ordered_only = ordered_only
        self.hidden_units = hidden_units
        if hidden_units:
            # A hidden unit of degree g sees columns before g; column j sees g <= j.
            degree = torch.arange(hidden_units) % max(d - 1, 1) + 1
            degree = degree.clamp(max=d - 1)
            sees = torch.ones(d, d, dtype=torch.bool).tril(-1)
            self.hidden = MaskedLinear(group, degree, sees, generator)
            with torch.no_grad():
                self.hidden.weight.normal_(generator=generator).mul_(self.hidden.mask)
                # The features of a column have size 1, and so has their sum here.
                self.hidden.weight.div_(degree.clamp(min=1).sqrt().unsqueeze(1))
                self.hidden.bias.normal_(0, 0.5, generator=generator)
            size = 2 * math.sqrt(d) if hidden_size is None else hidden_size
            self.gain = size / math.sqrt(hidden_units)
            upto = torch.ones(d, d, dtype=torch.bool).tril() & is_learned
            self.output = MaskedLinear(degree, group, upto)

    def coefficients(self, codes: Tensor) -> Tensor:
        """Return the coefficients of all offsets, (n, sum m_j)."""
        features = self.features(codes)
        layers = [self.skip, self.hidden] if self.hidden_units else [self.skip]
        given = [None, None] if self.ordered_only else self.precompute(codes, layers)
        if self.ordered_only:
            part = self.skip(features[:, self.linked])
            out = torch.zeros_like(features).index_copy(1, self.linked, part)
        else:
            out = self.skip(features, precomputed=given[0])
        if self.hidden_units:
            inner = self.hidden(features, precomputed=given[1])
            out = out + self.output(self.gain * inner.tanh())
        return out

    def forward(self, codes: Tensor) -> Tensor:
        """Return the log-probability of every row, (n,)."""
        if not self.factors:
            return self.log_prob(self.coefficients(codes), codes)
        pairs = enumerate(self.log_probs(codes))
        return torch.cat([p.gather(1, codes[:, j : j + 1]) for j, p in pairs], 1).sum(1)

    def log_probs(self, codes: Tensor) -> list[Tensor]:
        """Return log-probabilities of every column's cells, each (n, n_cells)."""
        columns = self.log_probs_of(self.coefficients(codes))
        for j, log_probs in enumerate(columns):
            if factors := self.factors_of(j):
                offsets = sum(factor(codes) for factor in factors)
                columns[j] = (log_probs + offsets).log_softmax(1)
        return columns

    def factors_of(self, j: int) -> list[TableFactor]:
        """Return the factors of column j: measured tables of which it is the last."""
        return [factor for factor in self.factors if factor.columns[-1] == j]

    def place(
        self, codes: Tensor, positions: Tensor, log_probs: Sequence[Tensor]
    ) -> Tensor:
        """Return the point of every row in the unit cube, (n, d)."""
        points = []
        for j, log_prob in enumerate(log_probs):
            probs = log_prob.exp()
            k = codes[:, j : j + 1]
            upper = probs.cumsum(1).gather(1, k)
            mass = probs.gather(1, k)
            points.append(upper - mass * (1 - positions[:, j : j + 1]))
        return torch.cat(points, 1)

    @torch.no_grad()
    def invert(
        self,
        points: Tensor,
        adjust: Rake | Clamp | None = None,
        clamped: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the codes and positions that `place` would put at given points.

        Parameters
        ----------
        points : Tensor of shape (n, d)
            Points of the unit cube.
        adjust : Rake or Clamp, optional
            Changes the logits of every column before its cells are drawn.
        clamped : LongTensor of shape (n, d), optional
            Cells of some columns, which are not drawn: -1 in those of the others.

        Returns
        -------
        codes : LongTensor of shape (n, d)
        positions : Tensor of shape (n, d)
        """
        is_clamped = [False] * self.n_columns
        if clamped is not None:
            is_clamped = (clamped >= 0).all(0).tolist()
        features = points.new_zeros(len(points), sum(self.widths))
        weight, bias = self._linear()
        units = points.new_zeros(len(points), self.hidden_units)
        codes = torch.zeros_like(points, dtype=torch.long)
        positions = torch.zeros_like(points)
        for j in range(self.n_columns):
            if j % TOGETHER == 0:
                first, rows = self.starts[j], self._together(j)
                base = features[:, :first] @ weight[rows, :first].T + bias[rows]
            here, recent = self.columns(j), slice(first, self.starts[j])
            out = features[:, recent] @ weight[here, recent].T
            out += base[:, here.start - first : here.stop - first]
            out = self._with_units(j, out, units, features)
            if clamped is not None and is_clamped[j]:
                codes[:, j] = clamped[:, j]
                if isinstance(adjust, Rake):
                    adjust.note(codes[:, j])
            else:
                logits = self.offsets(out, j) + self.base(j)
                for factor in self.factors_of(j):
                    logits = logits + factor(codes)
                u = points[:, j]
                if adjust is not None:
                    logits = adjust(self, j, logits, u)
                codes[:, j], positions[:, j] = invert_cdf(logits.softmax(1), u)
            features[:, here] = self.inputs(j).index_select(0, codes[:, j])
        return codes, positions

    @torch.no_grad()
    def even(
        self, codes: Tensor, positions: Tensor, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Return rows of the same ranks, spread evenly under the released masses.

        Points of the unit cube that are spread evenly give rows that are less so where
        columns depend on each other.
        """
        inside = torch.rand(codes.shape, generator=generator, device=codes.device)
        even = torch.empty_like(codes), torch.empty_like(positions)
        for j in range(self.n_columns):
            k, masses = codes[:, j], self.log_masses[self.cells(j)].exp()
            upper = masses.cumsum(0)
            points = upper[k] - masses[k] * (1 - positions[:, j])
            u = (points.argsort().argsort() + inside[:, j]) / len(k) * upper[-1]
            cells = torch.searchsorted(upper, u, right=True).clamp_(max=len(upper) - 1)
            within = 1 - (upper[cells] - u) / masses[cells].clamp(min=1e-12)
            even[0][:, j], even[1][:, j] = cells, within.clamp(0, LARGEST_POSITION)
        return even

    @torch.no_grad()
    def denoise_weights(self) -> None:
        """Reduce every weight of the linear conditioner by an estimate of its noise.

        Anchored at the marginals, biases have nothing to learn: they are noise of the
        same size as that of the weights. A weight becomes zero if its square is at most
        twice that of the noise.
        """
        noise = self.skip.bias.square().mean()
        weight = self.skip.weight
        weight.mul_((1 - 2 * noise / weight.square().clamp(min=1e-12)).clamp(min=0))
        self.skip.bias.zero_()

    def _linear(self) -> tuple[Tensor, Tensor]:
        """Return weights and bias of the linear conditioner, for all columns."""
        weight, bias = self.skip.weight, self.skip.bias
        if not self.ordered_only:
            return weight, bias
        n = sum(self.widths)
        every, linked = weight.new_zeros(n, n), self.linked
        every[linked.unsqueeze(1), linked] = weight
        return every, bias.new_zeros(n).index_copy(0, linked, bias)

    def _together(self, j: int) -> slice:
        """Return where `TOGETHER` columns from column j on stand."""
        last = min(j + TOGETHER, self.n_columns) - 1
        return slice(self.starts[j], self.columns(last).stop)

    def _with_units(
        self, j: int, out: Tensor, units: Tensor, features: Tensor
    ) -> Tensor:
        """Add the hidden units' part of column j's coefficients to the linear one.

        `units` (n, hidden_units) are those of the columns before; the ones that column
        j is the first to see are put in, and all others are still zero.
        """
        if not self.hidden_units:
            return out
        d, before = self.n_columns, slice(self.starts[j])
        new = slice(j - 1, None, d - 1) if j else slice(None if d == 1 else 0)
        weight = self.hidden.weight[new, before]
        inner = torch.addmm(self.hidden.bias[new], features[:, before], weight.T)
        units[:, new] = inner.tanh_()
        rows = self.columns(j)
        part = units @ self.output.weight[rows].T
        return out + self.gain * part + self.output.bias[rows]
