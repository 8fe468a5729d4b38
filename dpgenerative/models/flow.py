"""DP-HFlow: an autoregressive flow over the cells of a mixed-type table.

Every row is a vector of cells (`transform`). The first block moves the private
marginals: with ``pi_j`` the released masses of column j and offsets ``o_j`` computed
from the columns before it, ``P(cell k of column j | earlier) = softmax(log pi_j +
o_j)_k``. It is a spline on the unit line with its x-knots at the cumulative masses,
linear inside each cell; zero offsets make it the identity, so that the untrained model
is the product of the marginals. Further blocks (rational-quadratic splines whose
parameters come from one masked network shared by all of them, linear flow, reversed
order) act on the positions that the first block returns, through the normal quantile;
they see dequantized cells, and the log-likelihood is then the bound of variational
dequantization.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.quasirandom import SobolEngine

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.models.bijections import (
    logistic_mixture,
    n_spline_parameters,
    rational_quadratic_spline,
)
from dpgenerative.models.cells import CellFacts, Cells, Clamp, Rake

SPLINE_BOUND = 4.0
SPLINE_BINS = 8
N_LOGISTICS = 4
HIDDEN_SCALE = 2.0
"""Size of the hidden units' activations next to the columns'."""
_EDGE = 1e-6
_LOG_NORMAL = -0.5 * math.log(2 * math.pi)


class AnchoredBlock(Cells):
    """Conditional cell probabilities of every column given the columns before it.

    Parameters
    ----------
    facts : sequence of CellFacts
    n_basis : int or sequence of int
        Number of smooth functions of an ordered column, of all or of each.
    hidden_units : int
        Width of the masked hidden layer; 0 leaves the linear part alone.
    generator : torch.Generator
        Source of the initial weights.
    """

    def __init__(
        self,
        facts: Sequence[CellFacts],
        n_basis: int | Sequence[int],
        hidden_units: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(facts, n_basis)
        d = self.n_columns
        group = torch.arange(d).repeat_interleave(torch.tensor(self.widths))
        before = torch.ones(d, d, dtype=torch.bool).tril(-1)
        self.skip = MaskedLinear(group, group, before)
        self.hidden_units = hidden_units
        if hidden_units:
            # A hidden unit of degree g sees columns before g; column j sees g <= j.
            degree = torch.arange(hidden_units) % max(d - 1, 1) + 1
            degree = degree.clamp(max=d - 1)
            self.hidden = MaskedLinear(group, degree, before, generator)
            with torch.no_grad():
                self.hidden.weight.normal_(generator=generator).mul_(self.hidden.mask)
                # The inputs of a column have size 1: so has their sum here.
                self.hidden.weight.div_(degree.clamp(min=1).sqrt().unsqueeze(1))
                self.hidden.bias.normal_(0, 0.5, generator=generator)
            self.gain = HIDDEN_SCALE * math.sqrt(d / hidden_units)
            upto = torch.ones(d, d, dtype=torch.bool).tril()
            self.output = MaskedLinear(degree, group, upto)

    def coefficients(self, features: Tensor) -> Tensor:
        """Return the coefficients of all offsets, (n, sum m_j)."""
        out = self.skip(features)
        if self.hidden_units:
            out = out + self.output(self.gain * self.hidden(features).tanh())
        return out

    def forward(self, codes: Tensor) -> Tensor:
        """Return the log-probability of every row, (n,)."""
        return self.log_prob(self.coefficients(self.features(codes)), codes)

    def log_probs(self, codes: Tensor) -> list[Tensor]:
        """Return log-probabilities of every column's cells, each (n, n_cells)."""
        return self.log_probs_of(self.coefficients(self.features(codes)))

    def place(
        self, codes: Tensor, positions: Tensor, log_probs: Sequence[Tensor]
    ) -> Tensor:
        """Return the image of every row on the unit cube, (n, d)."""
        images = []
        for j, log_prob in enumerate(log_probs):
            probs = log_prob.exp()
            k = codes[:, j : j + 1]
            upper = probs.cumsum(1).gather(1, k)
            mass = probs.gather(1, k)
            images.append(upper - mass * (1 - positions[:, j : j + 1]))
        return torch.cat(images, 1)

    @torch.no_grad()
    def invert(
        self, images: Tensor, adjust: Rake | Clamp | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the codes and positions whose images are the rows given.

        Parameters
        ----------
        images : Tensor of shape (n, d)
            Points of the unit cube.
        adjust : Rake or Clamp, optional
            Called for every column before its cells are drawn.
        """
        n = len(images)
        features = images.new_zeros(n, sum(self.widths))
        hidden = self.hidden.bias.expand(n, -1).clone() if self.hidden_units else None
        codes = torch.zeros_like(images, dtype=torch.long)
        positions = torch.zeros_like(images)
        for j in range(self.n_columns):
            logits = self._column_logits(j, features, hidden)
            if adjust is not None:
                logits = adjust(self, j, logits, images[:, j])
            steps = logits.softmax(1).cumsum(1)
            u = images[:, j : j + 1] * steps[:, -1:]
            k = (u >= steps[:, :-1]).sum(1, keepdim=True)
            low = F.pad(steps, (1, 0)).gather(1, k)
            width = steps.gather(1, k) - low
            codes[:, j : j + 1] = k
            positions[:, j : j + 1] = ((u - low) / width.clamp(min=1e-12)).clamp(
                0, 1 - 2.0**-24
            )
            part = self.inputs(j)[k[:, 0]]
            columns = slice(self.starts[j], self.starts[j] + self.widths[j])
            features[:, columns] = part
            if hidden is not None:
                hidden += part @ (self.hidden.weight * self.hidden.mask)[:, columns].T
        return codes, positions

    def _column_logits(self, j: int, features: Tensor, hidden: Tensor | None) -> Tensor:
        rows = slice(self.starts[j], self.starts[j] + self.widths[j])
        seen = slice(0, self.starts[j])
        out = features[:, seen] @ self.skip.weight[rows, seen].T + self.skip.bias[rows]
        if hidden is not None:
            weight = (self.output.weight * self.output.mask)[rows]
            out = out + self.gain * hidden.tanh() @ weight.T + self.output.bias[rows]
        return self.offsets(out, j) + self.base(j)


class SplineNetwork(nn.Module):
    """One masked network for the splines of all blocks, told which block it serves."""

    def __init__(
        self,
        n_columns: int,
        n_blocks: int,
        hidden_units: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_blocks = n_blocks
        d = n_columns
        degree = torch.arange(hidden_units) % d
        in_groups = torch.cat([torch.arange(d), torch.full((n_blocks,), d)])
        sees = torch.cat([torch.ones(d, d).tril(-1), torch.ones(d, 1)], 1).bool()
        self.hidden = MaskedLinear(in_groups, degree, sees, generator)
        outputs = torch.arange(d).repeat_interleave(n_spline_parameters(SPLINE_BINS))
        self.output = MaskedLinear(degree, outputs, torch.ones(d, d).tril().bool())

    def forward(self, z: Tensor, block: int) -> Tensor:
        """Return spline parameters, (n, d, p)."""
        tag = F.one_hot(torch.tensor(block), self.n_blocks).to(z).expand(len(z), -1)
        out = self.output(F.relu(self.hidden(torch.cat([z, tag], 1))))
        return out.view(len(z), z.shape[1], -1)


class Dequantizer(nn.Module):
    """q(position | row): a coupling flow of logistic mixtures, then a sigmoid."""

    def __init__(
        self,
        n_columns: int,
        n_features: int,
        hidden_units: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.n_first = (n_columns + 1) // 2
        n_second = n_columns - self.n_first
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
    dequantization : {"uniform", "variational"}
    anchored : bool
        False leaves the first block out: all blocks are rational-quadratic splines on
        the cells' positions under the masses given, scaled to [-3, 3] (the paper).
    generator : torch.Generator
        Source of the initial weights.
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
    ) -> None:
        super().__init__()
        d = len(facts)
        self.anchored = anchored
        self.n_blocks = n_blocks
        units = hidden_units if anchored else 0
        self.first = AnchoredBlock(facts, n_basis, units, generator)
        if not anchored:
            self.first.requires_grad_(False)
        n_splines = n_blocks - anchored
        width = hidden_units or 64
        self.splines = (
            SplineNetwork(d, n_splines, width, generator) if n_splines else None
        )
        makers: dict[str, Callable[[], LowRankLinear | LULinear]] = {
            "low-rank": lambda: LowRankLinear(d, generator=generator),
            "lu": lambda: LULinear(d, generator=generator),
        }
        n_linears = 0 if linear == "none" else n_blocks
        self.linears = nn.ModuleList(makers[linear]() for _ in range(n_linears))
        self.exact = anchored and n_blocks == 1 and linear == "none"
        self.dequantizer = None
        if dequantization == "variational" and not self.exact:
            n_features = sum(self.first.widths)
            self.dequantizer = Dequantizer(d, n_features, width, generator)
        most = max(len(f.masses) for f in facts)
        atoms = torch.stack([F.pad(f.atoms, (0, most - len(f.atoms))) for f in facts])
        self.register_buffer("atoms", atoms)

    def forward(
        self,
        codes: Tensor,
        positions: Tensor | None = None,
        draws: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the log-likelihood of every row and its image in the base space.

        Parameters
        ----------
        codes : LongTensor of shape (n, d)
        positions : Tensor of shape (n, d), optional
            Positions within intervals. Without them the model must be `exact`, and no
            image is returned.
        draws : Tensor of shape (n, d), optional
            Uniform draws that dequantize atoms.

        Returns
        -------
        log_likelihood : Tensor of shape (n,)
            Log-probability of the cells (a bound of it unless `exact`).
        image : Tensor of shape (n, d) or None
        """
        if positions is None or draws is None:
            return self.first(codes), None
        log_probs = self.first.log_probs(codes)
        log_q = torch.zeros_like(draws)
        if self.dequantizer is not None:
            draws, log_q = self.dequantizer(self.first.features(codes), draws)
        columns = torch.arange(codes.shape[1], device=codes.device)
        atom = self.atoms[columns, codes]
        inside = torch.where(atom, draws, positions)
        v = self.first.place(codes, inside, log_probs)
        z, log_det = self._push(v)
        log_q = (log_q * atom).sum(1)
        select_columns = [p.gather(1, codes[:, [j]]) for j, p in enumerate(log_probs)]
        return torch.cat(select_columns, 1).sum(1) + log_det - log_q, z

    def _push(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return images in the base space, and log-densities of v there."""
        if self.anchored:
            z = torch.special.ndtri(v.clamp(_EDGE, 1 - _EDGE))
            log_density = -_standard_normal(z)
        else:
            z = 6 * v - 3
            log_density = z.new_full((len(z),), z.shape[1] * math.log(6))
        for block in range(self.n_blocks):
            spline = block - self.anchored
            if spline >= 0 and self.splines is not None:
                params = self.splines(z, spline)
                z, slope = rational_quadratic_spline(
                    z, params, SPLINE_BINS, SPLINE_BOUND
                )
                log_density = log_density + slope.sum(1)
            if len(self.linears):
                z, log_det = self.linears[block](z)
                log_density = log_density + log_det
            z = z.flip(1)
        return z, log_density + _standard_normal(z)

    @torch.no_grad()
    def _pull(self, z: Tensor) -> Tensor:
        """Return the points of the unit cube whose images are the rows given."""
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
        assert self.splines is not None
        x = torch.zeros_like(y)
        for j in range(y.shape[1]):
            params = self.splines(x, block)[:, j]
            x[:, j], _ = rational_quadratic_spline(
                y[:, j], params, SPLINE_BINS, SPLINE_BOUND, inverse=True
            )
        return x

    @torch.no_grad()
    def sample(
        self, n: int, generator: torch.Generator, adjust: Rake | Clamp | None = None
    ) -> tuple[Tensor, Tensor]:
        """Draw rows: codes and positions, both of shape (n, d).

        Every row follows the model; together they fill the base space more evenly than
        independent ones (a scrambled Sobol sequence, in random order), so that what is
        counted over a sample lies closer to the model. A `Clamp` needs an `exact`
        model.
        """
        device = self.first.log_masses.device
        seed = torch.randint(2**31, (1,), generator=generator, device=device)
        sobol = SobolEngine(self.first.n_columns, scramble=True, seed=int(seed))
        order = torch.randperm(n, generator=generator, device=device)
        points = sobol.draw(n, dtype=torch.float64).clamp(max=1 - 2.0**-24)
        v = points.to(self.first.log_masses)[order]
        if not self.exact:
            v = self._pull(torch.special.ndtri(v.clamp(_EDGE, 1 - _EDGE)))
        return self.first.invert(v, adjust)

    def rake(self, n: int, generator: torch.Generator) -> None:
        """Correct the first block on `n` of the model's own rows."""
        self.sample(n, generator, Rake(soft=self.exact))


def _standard_normal(z: Tensor) -> Tensor:
    return (_LOG_NORMAL - 0.5 * z.square()).sum(1)
