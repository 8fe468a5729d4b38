"""Latents: a release of their moments, and the distribution fitted to them.

Formal guarantee: every row has one draw z of its latents, cut to norm R (and 0 where it
is not finite). One row moves the sum of ``(1, z / R, z z^T / R^2)`` by at most sqrt(3):
three parts of norm at most 1. It moves the sums of ``(1, z / R)`` over the rows of
every cell by at most sqrt(2), as it is in one cell; cells depend on the rows through
what has been released alone. One release has the plan's noise multiplier. So have two
together, each of sqrt(2) times that, whatever the second asks for after the first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dpgenerative._random import RandomSource
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.precision import added_at
from dpgenerative.privacy.sampling import capacity, whole_pass
from dpgenerative.tables.private import Private

LATENTS = Release("latents", "moments of clipped latents ({noise})")
MOMENT_SENSITIVITY = math.sqrt(3)
CELL_SENSITIVITY = math.sqrt(2)
CHUNK = 4096
"""Rows whose latents are drawn at a time."""

Distribution = Any
"""Type of the distribution fitted to moments, which the caller chooses."""


class LatentCells(Protocol):
    """A partition of the latent space."""

    @property
    def count(self) -> int:
        """Number of cells."""

    def of(self, z: Tensor) -> Tensor:
        """Return the cell of every point of (n, k)."""


@dataclass(frozen=True)
class ReleasedMoments:
    """Noisy sums over all rows.

    Attributes
    ----------
    values : ndarray of shape (1 + k + k^2,), or (n_cells, 1 + k)
        Of ``(1, z / R, z z^T / R^2)``, or of ``(1, z / R)`` by cell.
    radius : float
        R, to which latents were cut.
    std : float
        Standard deviation of the noise of every value.
    n_rows : int
        The released row count.
    """

    values: np.ndarray
    radius: float
    std: float
    n_rows: int


@dataclass(frozen=True)
class Refinement:
    """What a second release adds to the distribution fitted to the first.

    Attributes
    ----------
    cells : callable
        From the distribution fitted first to the cells that are asked for.
    fit : callable
        From that distribution and the moments of its cells to the refined one.
    """

    cells: Callable[[Distribution], LatentCells]
    fit: Callable[[Distribution, ReleasedMoments], Distribution]


def release_distribution(
    draw: Callable[[Tensor], Tensor],
    codes: Private[Tensor],
    latent_dim: int,
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
    fit: Callable[[ReleasedMoments], Distribution],
    rng: RandomSource,
    refinement: Refinement | None,
) -> Distribution:
    """Release moments of the latents; return the distribution fitted to them.

    Parameters
    ----------
    draw : callable
        From some rows of `codes` to one draw of the latents of each, (n, latent_dim).
        A row's draw must not depend on other rows.
    codes : Private of Tensor of shape (n, ...)
        All rows.
    latent_dim : int
    plan : PrivacyPlan
    mechanisms : Mechanisms
    fit : callable
        From the moments released first to a distribution.
    rng : RandomSource
        Places of rows in the arrays of one shape in which latents are drawn.
    refinement : Refinement or None
        A second release, of moments by cell.
    """
    radius = math.sqrt(latent_dim) + 2
    multiplier = plan.multiplier(LATENTS) * math.sqrt(1 if refinement is None else 2)
    chunks = whole_pass(codes, min(capacity(plan.n_rows), CHUNK), rng)
    padded = codes.map(_padded)

    @torch.no_grad()
    def release(
        sums: Callable[[Tensor, float, Tensor], np.ndarray], sensitivity: float
    ) -> ReleasedMoments:
        def count(chunk: tuple[Tensor, Tensor]) -> np.ndarray:
            return sums(draw(padded[chunk[0]]), radius, chunk[1])

        std = multiplier * sensitivity
        noisy = _released(mechanisms, chunks.total(count), std, sensitivity)
        return ReleasedMoments(noisy, radius, std, plan.n_rows)

    fitted = fit(release(moments, MOMENT_SENSITIVITY))
    if refinement is None:
        return fitted
    by_cell = partial(cell_moments, cells=refinement.cells(fitted))
    return refinement.fit(fitted, release(by_cell, CELL_SENSITIVITY))


def _padded(codes: Tensor) -> Tensor:
    """Return the codes, or one row of zeros: arrays are padded with the first."""
    return codes if len(codes) else codes.new_zeros(1, *codes.shape[1:])


def moments(z: Tensor, radius: float, present: Tensor) -> np.ndarray:
    """Return the sum over rows of ``(1, z / R, z z^T / R^2)``, |z| cut to R; private.

    Parameters
    ----------
    z : Tensor of shape (n, k)
    radius : float
    present : Tensor of shape (n,)
        Whether a row is one; the others count for nothing.

    Returns
    -------
    ndarray of shape (1 + k + k^2,)
    """
    z = _inside(z, radius)
    ones = present.to(z)
    z = z * ones[:, None]
    parts = [ones.sum()[None], z.sum(0), (z.T @ z).flatten()]
    return torch.cat(parts).cpu().numpy()


def cell_moments(
    z: Tensor, radius: float, present: Tensor, cells: LatentCells
) -> np.ndarray:
    """Return the sums of ``(1, z / R)`` over the rows of every cell; private.

    Its parameters are those of `moments`, and the cells; the sums are of shape
    (n_cells, 1 + k).
    """
    z = _inside(z, radius)
    sums = z.new_zeros(cells.count, 1 + z.shape[1])
    parts = torch.cat([torch.ones_like(z[:, :1]), z], 1) * present.to(z)[:, None]
    return added_at(sums, 0, cells.of(radius * z), parts).cpu().numpy()


def _inside(z: Tensor, radius: float) -> Tensor:
    """Return latents over the radius, cut to norm 1, in float64; zero for NaN."""
    z = z.double() / radius
    length = z.norm(dim=1, keepdim=True)
    inside = z / length.clamp(min=1)
    return torch.where(length.isfinite(), inside, torch.zeros_like(z))


def _released(
    mechanisms: Mechanisms, exact: Private[np.ndarray], std: float, sensitivity: float
) -> np.ndarray:
    return mechanisms.gaussian(
        exact, std, release=LATENTS.name, sensitivity=sensitivity
    )
