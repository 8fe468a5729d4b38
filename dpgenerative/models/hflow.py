"""The paper's flow: blocks of splines, linear flows and reversals of the columns.

The first block is the `AnchoredBlock`. Further blocks act on the points of the unit
cube that it returns, mapped through the normal quantile function: rational-quadratic
splines with parameters from one masked network that all blocks share, a linear flow,
and a reversal of the columns. They see dequantized cells, and the log-likelihood is
then the lower bound of variational dequantization.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.models.cells import (
    EVEN_BLOCK,
    TABLE_BLOCK,
    CellFacts,
    Clamp,
    Rake,
    even_points,
)
from dpgenerative.models.embedding import ClassCorrection
from dpgenerative.models.factors import Correct, CountedTable, TableFactor
from dpgenerative.models.flow import AnchoredBlock

SPLINE_BINS, SPLINE_BOUND = 8, 4.0
MIN_BIN, MIN_SLOPE = 1e-3, 1e-3
N_LOGISTICS, BOUND_DRAWS = 4, 16
LEAST_EVEN = 200
"""Number of rows from which their ranks are as good as marginal quantiles."""
DRAWN = 2**12
"""Rows that are drawn at a time: caches hold a column's cells of so many."""
_EDGE = 1e-6
_LOG_NORMAL = -0.5 * math.log(2 * math.pi)
_UNIT_SLOPE = math.log(math.expm1(1 - MIN_SLOPE))


class SplineNetwork(nn.Module):
    """One masked network for the splines of all blocks, which it takes as an input.

    Parameters
    ----------
    d : int
        Number of columns.
    n_blocks, hidden_units : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self, d: int, n_blocks: int, hidden_units: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.n_blocks = n_blocks
        degree = torch.arange(hidden_units) % d
        in_groups = torch.cat([torch.arange(d), torch.full((n_blocks,), d)])
        sees = torch.cat([torch.ones(d, d).tril(-1), torch.ones(d, 1)], 1).bool()
        self.hidden = MaskedLinear(in_groups, degree, sees, generator)
        outputs = torch.arange(d).repeat_interleave(3 * SPLINE_BINS - 1)
        self.output = MaskedLinear(degree, outputs, torch.ones(d, d).tril().bool())

    def forward(self, z: Tensor, block: int) -> Tensor:
        """Return spline parameters, (n, d, p)."""
        tag = z.new_zeros(len(z), self.n_blocks)
        tag[:, block] = 1
        out = self.output(F.relu(self.hidden(torch.cat([z, tag], 1))))
        return out.view(len(z), z.shape[1], -1)


class Dequantizer(nn.Module):
    """q(position | row): a coupling flow of logistic mixtures, then a sigmoid.

    Parameters
    ----------
    d : int
        Number of columns.
    n_features, hidden_units : int
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self, d: int, n_features: int, hidden_units: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.n_first = (d + 1) // 2
        n_second = d - self.n_first
        widths = [(n_features, self.n_first), (n_features + self.n_first, n_second)]
        self.hidden = nn.ModuleList(
            MaskedLinear.dense(n_in, hidden_units, generator) for n_in, _ in widths
        )
        self.output = nn.ModuleList(
            MaskedLinear.dense(hidden_units, 3 * N_LOGISTICS * n) for _, n in widths
        )

    def forward(self, features: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return positions in (0, 1) and log q of each, both (n, d)."""
        x = torch.logit(draws, eps=_EDGE)
        first, second = x[:, : self.n_first], x[:, self.n_first :]
        y1, slope1 = self._couple(0, features, first)
        y2, slope2 = self._couple(1, torch.cat([features, y1], 1), second)
        y, slopes = torch.cat([y1, y2], 1), torch.cat([slope1, slope2], 1)
        log_base = F.logsigmoid(x) + F.logsigmoid(-x)
        log_sigmoid = F.logsigmoid(y) + F.logsigmoid(-y)
        return y.sigmoid(), log_base - slopes - log_sigmoid

    def _couple(self, k: int, context: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        params = self.output[k](F.relu(self.hidden[k](context)))
        return logistic_mixture(x, params.view(*x.shape, 3 * N_LOGISTICS))


class HFlow(nn.Module):
    """Density and sampler of rows of cells.

    Parameters
    ----------
    facts : sequence of CellFacts
        One per column, in the order of the flow.
    n_basis, hidden_units
        See `AnchoredBlock`.
    n_blocks : int
        Number of blocks, the first included.
    linear : {"none", "low-rank", "lu"}
        Linear flow at the end of every block.
    rank : int, default=1
        Rank of "low-rank".
    bias : bool, default=False
        Whether "low-rank" has a bias.
    dequantization : {"uniform", "variational"}
        How cells become points, where later blocks need points.
    anchored : bool
        Whether the first block learns. Otherwise it only places cells under the masses
        given, and all blocks are the paper's: rational-quadratic splines on the unit
        cube scaled to [-3, 3].
    generator : torch.Generator
        Source of the initial weights.
    ordered_only : bool, default=False
        See `AnchoredBlock`.
    evenly : bool, default=False
        Whether samples are spread evenly under the released masses, column by column.
    most_levels : int, optional
        See `Cells`.
    hidden_size, first_size
        See `AnchoredBlock`.

    Attributes
    ----------
    exact : bool
        Whether the model is the anchored block alone, whose log-likelihood is exact.
    counted : list of tuple of int
        Columns of the tables that `correct` was given.
    classes : ClassCorrection or None
    """

    atoms: Tensor

    def __init__(
        self,
        facts: Sequence[CellFacts],
        *,
        n_basis: int | Sequence[int],
        hidden_units: int,
        n_blocks: int,
        linear: str,
        dequantization: str,
        anchored: bool,
        generator: torch.Generator,
        ordered_only: bool = False,
        evenly: bool = False,
        rank: int = 1,
        bias: bool = False,
        most_levels: int | None = None,
        hidden_size: float | None = None,
        first_size: float = 1.0,
    ) -> None:
        super().__init__()
        self.counted: list[tuple[int, ...]] = []
        self.classes: ClassCorrection | None = None
        d = len(facts)
        self.anchored = anchored
        self.n_blocks = n_blocks
        self.evenly = evenly or ordered_only
        units = hidden_units if anchored else 0
        sizes = hidden_size, first_size
        self.first = AnchoredBlock(
            facts, n_basis, units, generator, ordered_only, most_levels, *sizes
        )
        self.first.requires_grad_(anchored)
        n_splines = n_blocks - anchored
        width = hidden_units or 64
        self.splines = (
            SplineNetwork(d, n_splines, width, generator) if n_splines else None
        )
        n_linears = 0 if linear == "none" else n_blocks
        self.linears = nn.ModuleList(
            LowRankLinear(d, rank, generator, bias)
            if linear == "low-rank"
            else LULinear(d, generator)
            for _ in range(n_linears)
        )
        self.exact = anchored and n_blocks == 1 and linear == "none"
        self.dequantizer = None
        if dequantization == "variational" and not self.exact:
            n_features = sum(self.first.widths)
            self.dequantizer = Dequantizer(d, n_features, width, generator)
        atoms = nn.utils.rnn.pad_sequence([f.atoms for f in facts], batch_first=True)
        self.register_buffer("atoms", atoms)

    def forward(
        self,
        codes: Tensor,
        positions: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the log-likelihood of every row, and its latents.

        Parameters
        ----------
        codes : LongTensor of shape (n, d)
        positions : Tensor of shape (n, d), optional
            Positions within intervals. Without them the model must be `exact`, and no
            latents are returned.
        draws : Tensor of shape (n, d), optional
            Uniform draws that dequantize atoms.

        Returns
        -------
        log_likelihood : Tensor of shape (n,)
            Log-probability of the cells (a lower bound of it unless `exact`).
        latents : Tensor of shape (n, d) or None
            Points of the base space, whose distribution is N(0, I).
        """
        if positions is None or draws is None:
            own = self.first if self.classes is None else self.classes.of(self.first)
            return own(codes), None
        log_probs = self.first.log_probs(codes)
        log_q = torch.zeros_like(draws)
        if self.dequantizer is not None:
            draws, log_q = self.dequantizer(self.first.features(codes), draws)
        is_atom = self.atoms[torch.arange(codes.shape[1], device=codes.device), codes]
        inside = torch.where(is_atom, draws, positions)
        z, log_density = self._push(self.first.place(codes, inside, log_probs))
        chosen = [p.gather(1, codes[:, j : j + 1]) for j, p in enumerate(log_probs)]
        log_p = torch.cat(chosen, 1).sum(1)
        return log_p + log_density - (log_q * is_atom).sum(1), z

    def _push(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return latents of points of the unit cube, and the log-density at v."""
        if self.anchored:
            z = torch.special.ndtri(v.clamp(_EDGE, 1 - _EDGE))
            log_density = -_standard_normal(z)
        else:
            z = 6 * v - 3
            log_density = z.new_full((len(z),), z.shape[1] * math.log(6))
        for block in range(self.n_blocks):
            spline = block - self.anchored
            if spline >= 0 and self.splines is not None:
                z, slope = _spline(z, self.splines(z, spline))
                log_density = log_density + slope.sum(1)
            if len(self.linears):
                z, log_det = self.linears[block](z)
                log_density = log_density + log_det
            z = z.flip(1)
        return z, log_density + _standard_normal(z)

    @torch.no_grad()
    def _pull(self, z: Tensor) -> Tensor:
        """Return the points of the unit cube that have given latents."""
        for block in reversed(range(self.n_blocks)):
            z = z.flip(1)
            if len(self.linears):
                z = self.linears[block].inverse(z)  # type: ignore[operator]
            if block >= self.anchored:
                z = self._invert_spline(z, block - self.anchored)
        if self.anchored:
            return torch.special.ndtr(z)
        return ((z + 3) / 6).clamp(0, 1 - _EDGE)

    def _invert_spline(self, y: Tensor, block: int) -> Tensor:
        # Column by column: the spline of each depends on the columns before it.
        assert self.splines is not None
        x = torch.zeros_like(y)
        for j in range(y.shape[1]):
            x[:, j], _ = _spline(y[:, j], self.splines(x, block)[:, j], inverse=True)
        return x

    @torch.no_grad()
    def sample(
        self,
        n: int,
        generator: torch.Generator,
        adjust: Rake | Clamp | None = None,
        clamped: Tensor | None = None,
        block: int = EVEN_BLOCK,
    ) -> tuple[Tensor, Tensor]:
        """Draw rows: codes and positions, both of shape (n, d).

        Every row follows the model. Together they fill the base space more evenly than
        independent ones (`even_points`, of blocks), so that shares in a sample lie
        closer to the model's. A `Clamp` needs an `exact` model, and so do cells that
        are `clamped` (`AnchoredBlock.invert`).
        """
        v = even_points(n, self.first.n_columns, generator, block)
        v = v.to(self.first.log_masses)
        if not self.exact:
            v = self._pull(torch.special.ndtri(v.clamp(_EDGE, 1 - _EDGE)))
        if adjust is not None or clamped is not None:
            return self.first.invert(v, adjust, clamped)
        parts = [self.first.invert(part) for part in v.split(DRAWN)]
        codes, positions = map(torch.cat, zip(*parts, strict=True))
        stands_alone = self.exact and not (self.first.factors or self.classes)
        if self.evenly and stands_alone and n >= LEAST_EVEN:
            return self.first.even(codes, positions, generator)
        if self.classes is not None:
            codes, _ = self.classes.redraw(self.first, codes, generator)
        return codes, positions

    def sample_given(
        self, n: int, generator: torch.Generator, given: Mapping[int, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Draw the cells of n rows of which some columns are given; see `Clamp`.

        Parameters
        ----------
        n : int
        generator : torch.Generator
        given : mapping from column to Tensor of shape (n or 1, n_cells)
            Log of the share of every cell that is allowed.

        Returns
        -------
        codes : LongTensor of shape (n, d)
        log_weights : Tensor of shape (n,)
        """
        clamp = Clamp(given, is_constant=True)
        codes, _ = self.sample(n, generator, clamp)
        if self.classes is None:
            return codes, clamp.log_weights
        codes, more = self.classes.redraw(
            self.first, codes, generator, given.get(0), afresh=True
        )
        return codes, clamp.log_weights + more

    def pool(
        self, n: int, generator: torch.Generator, clamped: Tensor | None = None
    ) -> Tensor:
        """Draw the cells of n rows to compare tables with; see `sample`."""
        return self.sample(n, generator, clamped=clamped, block=TABLE_BLOCK)[0]

    def rake(self, n: int, generator: torch.Generator) -> None:
        """Correct the first block on `n` rows drawn from the model."""
        self.sample(n, generator, Rake(soft=self.exact))

    def correct(
        self,
        n: int,
        generator: torch.Generator,
        tables: Sequence[CountedTable],
        clamped: Tensor | None = None,
    ) -> None:
        """Rake and bring the model nearer to measured tables; see `Correct`."""
        correct = Correct(tables)
        self.sample(n, generator, correct, clamped, TABLE_BLOCK)
        self.factors = [*self.factors, *(f.to("cpu") for f in correct.factors)]
        self.counted = [table.columns for table in tables]

    @property
    def factors(self) -> list[TableFactor]:
        """What measured tables have added to the first block."""
        return self.first.factors

    @factors.setter
    def factors(self, factors: list[TableFactor]) -> None:
        self.first.factors = factors


def _standard_normal(z: Tensor) -> Tensor:
    """Return the log-density of N(0, I), (n,)."""
    return (_LOG_NORMAL - 0.5 * z.square()).sum(1)


def _spline(x: Tensor, params: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
    return rational_quadratic_spline(x, params, SPLINE_BINS, SPLINE_BOUND, inverse)


# Elementwise monotone maps, with their log-derivatives ----------------------------


def _knots(params: Tensor, n_bins: int, bound: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the arguments, values and slopes of a spline at its knots."""
    widths, heights, slopes = params.split([n_bins, n_bins, n_bins - 1], dim=-1)

    def positions(raw: Tensor) -> Tensor:
        shares = MIN_BIN + (1 - MIN_BIN * n_bins) * raw.softmax(-1)
        inner = F.pad(shares.cumsum(-1)[..., :-1], (1, 0))
        return F.pad(2 * bound * inner - bound, (0, 1), value=bound)

    slopes = F.pad(MIN_SLOPE + F.softplus(slopes + _UNIT_SLOPE), (1, 1), value=1.0)
    return positions(widths), positions(heights), slopes


def rational_quadratic_spline(
    x: Tensor, params: Tensor, n_bins: int, bound: float, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Monotone rational-quadratic spline with identity tails (Durkan et al. 2019).

    Parameters
    ----------
    x : Tensor of shape (...)
        Arguments of the spline, or its values when `inverse`.
    params : Tensor of shape (..., 3 n_bins - 1)
        Unconstrained widths, heights and inner slopes; zeros give the identity.
    n_bins : int
    bound : float
        The spline acts on [-bound, bound] and is the identity elsewhere.
    inverse : bool, default=False

    Returns
    -------
    y, log_slope : Tensor of shape (...)
        Results, and log-derivatives of the map applied.
    """
    xs, ys, slopes = _knots(params, n_bins, bound)
    inside = (x > -bound) & (x < bound)
    safe = torch.where(inside, x, torch.zeros_like(x))
    edges = ys if inverse else xs
    k = (safe.unsqueeze(-1) >= edges[..., 1:-1]).sum(-1, keepdim=True)

    def at(values: Tensor, shift: int = 0) -> Tensor:
        return values.gather(-1, k + shift).squeeze(-1)

    x0, y0 = at(xs), at(ys)
    width, height = at(xs, 1) - x0, at(ys, 1) - y0
    d0, d1, slope = at(slopes), at(slopes, 1), height / width
    t = (safe - x0) / width
    t = _solve(safe - y0, height, d0, d1, slope) if inverse else t
    curve = t * (1 - t)
    base = slope + (d0 + d1 - 2 * slope) * curve
    rise = d1 * t.square() + 2 * slope * curve + d0 * (1 - t).square()
    log_slope = 2 * slope.log() + rise.log() - 2 * base.log()
    y = y0 + height * (slope * t.square() + d0 * curve) / base
    out = x0 + width * t if inverse else y
    log_slope = -log_slope if inverse else log_slope
    zeros = torch.zeros_like(log_slope)
    return torch.where(inside, out, x), torch.where(inside, log_slope, zeros)


def _solve(dy: Tensor, height: Tensor, d0: Tensor, d1: Tensor, slope: Tensor) -> Tensor:
    """Return the position in its bin at which the spline has risen by `dy`.

    A root of a quadratic equation, in the form that does not cancel.
    """
    s = d0 + d1 - 2 * slope
    a = height * (slope - d0) + dy * s
    b = height * d0 - dy * s
    c = -slope * dy
    root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
    return 2 * c / (-b - root)


def logistic_mixture(x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    """Map x to logit(CDF of a mixture of M logistics) (Ho et al. 2019).

    Parameters
    ----------
    x : Tensor of shape (...)
    params : Tensor of shape (..., 3 M)
        Unconstrained weights, locations and log-scales; zeros give the identity.

    Returns
    -------
    y, log_slope : Tensor of shape (...)
    """
    weights, locations, log_scales = params.chunk(3, dim=-1)
    log_weights = weights.log_softmax(-1)
    z = (x.unsqueeze(-1) - locations) * (-log_scales).exp()
    log_cdf = torch.logsumexp(log_weights + F.logsigmoid(z), -1)
    log_survival = torch.logsumexp(log_weights + F.logsigmoid(-z), -1)
    log_densities = log_weights - log_scales + F.logsigmoid(z) + F.logsigmoid(-z)
    log_pdf = torch.logsumexp(log_densities, -1)
    return log_cdf - log_survival, log_pdf - log_cdf - log_survival


def likelihood_bound(
    model: HFlow, codes: Tensor, positions: Tensor, rng: np.random.Generator
) -> Tensor:
    """Return lower bounds of the log-likelihoods of rows."""
    bounds = []
    for _ in range(BOUND_DRAWS):
        draws = torch.from_numpy(rng.random(codes.shape, dtype=np.float32))
        bounds.append(model(codes, positions, draws)[0])
    return torch.logsumexp(torch.stack(bounds), 0) - math.log(BOUND_DRAWS)
