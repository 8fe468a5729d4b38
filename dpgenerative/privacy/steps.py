"""One private gradient: record, clip, add up, add noise.

Formal guarantee: `PrivateGradient.__call__` is a Gaussian mechanism of the plan's noise
multiplier on the rows of the batch. Its sensitivity is C / B for the per-example term
and 2 C_2 / b for the batch-wise term (B the public expected batch size, b the number of
partitions); both come from one sample and reach the same coordinates, so that they are
one release of sensitivity C / B + 2 C_2 / b. An empty batch is released like any other.

Rounding: chunks of at most `training.LARGEST_CHUNK` rows are summed in float32, chunks
and noise in float64. Whoever chose all rows of a chunk could make one more row change
how the others are rounded: by at most n^2 2^-24 C; measured in an 8-unit layer, by 6 %
of C at n = 2048 and 25 % at n = 4096. Rows not chosen for it stayed within 1e-4 C.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients import Site, free_coordinates, record, sites
from dpgenerative.privacy.noise import Mechanisms

Objective = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""From row indices to losses of shape (n,) and images of shape (n, k), if needed."""
Divergence = Callable[[Tensor], Tensor]
"""From the images of one partition, shape (m, k), m >= 1, to a scalar."""
CHUNK_BYTES = 2**28
"""Memory that materialised per-example gradients of one chunk may take."""


class _FullPrecision:
    """The one setting of matrix products that all threads share, and who needs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = "highest"

    def enter(self) -> None:
        with self._lock:
            if self._users == 0:
                try:
                    self._before = torch.get_float32_matmul_precision()
                except RuntimeError:  # a mix of torch's interfaces has no one answer
                    self._before = "highest"
                torch.set_float32_matmul_precision("highest")
            self._users += 1

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                torch.set_float32_matmul_precision(self._before)


_FULL_PRECISION = _FullPrecision()


@contextmanager
def full_precision(model: nn.Module) -> Iterator[None]:
    """Keep autocast, TF32 and bfloat16 away: the margins of norms cover float32."""
    device = next(model.parameters()).device.type
    _FULL_PRECISION.enter()
    try:
        with torch.autocast(device, enabled=False):
            yield
    finally:
        _FULL_PRECISION.leave()


@dataclass(frozen=True)
class Clipper:
    """How per-example and per-partition gradients are bounded.

    Attributes
    ----------
    strategy : {"flat", "per-layer", "per-unit", "sparsified"}
    bound : float
        Clipping norm C of one record's gradient.
    sparsity : float
        For "sparsified".
    group_bound : float
        Clipping norm C_2 of one partition's gradient.
    """

    strategy: str
    bound: float
    sparsity: float = 0.5
    group_bound: float = 0.0

    def clipped_sums(
        self, layers: Sequence[Site], present: Tensor, generator: torch.Generator
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of the present rows' clipped gradients, per parameter.

        The sensitivity of all sums together is `bound`.
        """
        rows = present & _without_unusable(layers)
        bounds = clipping.layer_bounds(
            self.bound, [layer.n_coordinates for layer in layers]
        )
        if self.strategy == "sparsified":
            parts = [
                _sparsified_sum(layer, rows, bound, self.sparsity, generator)
                for layer, bound in zip(layers, bounds, strict=True)
            ]
        else:
            factors = self._factors(layers, bounds, rows)
            parts = [
                layer.weighted_sum(scale)
                for layer, scale in zip(layers, factors, strict=True)
            ]
        return {p: x for part in parts for p, x in part.items()}

    def _factors(
        self, layers: Sequence[Site], bounds: Sequence[float], rows: Tensor
    ) -> Sequence[Tensor | list[Tensor]]:
        if self.strategy == "per-unit":
            return [
                _layer_unit_factors(layer.unit_norms(), bound, rows)
                for layer, bound in zip(layers, bounds, strict=True)
            ]
        norms = [layer.squared_norms() for layer in layers]
        if self.strategy == "flat":
            total = torch.stack([square for square, _ in norms]).sum(0).sqrt()
            margin = torch.stack([margin for _, margin in norms]).sum(0)
            return [clipping.factors(total, self.bound, margin) * rows] * len(layers)
        return [
            clipping.factors(square.sqrt(), bound, margin) * rows
            for (square, margin), bound in zip(norms, bounds, strict=True)
        ]

    def group_sums(
        self, layers: Sequence[Site], groups: Tensor, n_groups: int
    ) -> dict[nn.Parameter, Tensor]:
        """Return the sum of clipped partition gradients, per parameter.

        One record touches one partition, and can turn its clipped gradient round: the
        sensitivity is ``2 * group_bound``.
        """
        parts = [layer.grouped(groups, n_groups) for layer in layers]
        squares = [g.double().flatten(1).square().sum(1) for p in parts for g in p]
        norms = torch.stack(squares).sum(0).sqrt()
        scale = clipping.factors(norms, self.group_bound, norms * 1e-6)
        sums = {}
        for layer, part in zip(layers, parts, strict=True):
            for p, g in zip(layer.parameters, part, strict=True):
                s = scale.to(g.dtype).view((-1,) + (1,) * (g.ndim - 1))
                sums[p] = (s * torch.where(s > 0, g, torch.zeros_like(g))).sum(0)
        return sums


def _without_unusable(layers: Sequence[Site]) -> Tensor:
    """Zero the rows that hold unusable numbers anywhere; return the others.

    Padding needs no zeros: its numbers are finite and its factor is 0. On a CPU, where
    asking costs nothing, clean tables are left as they are.
    """
    finite = torch.stack([layer.finite() for layer in layers]).all(0)
    if finite.device.type != "cpu" or not bool(finite.all()):
        for layer in layers:
            layer.keep(finite)
    return finite


def _layer_unit_factors(
    norms: list[tuple[Tensor, Tensor]], bound: float, rows: Tensor
) -> list[Tensor]:
    """Return per-unit factors of a layer, the units of all its parameters together."""
    if len(norms) == 1:
        return [clipping.unit_factors(*norms[0], bound, rows)]
    l1 = torch.cat([sizes for sizes, _ in norms], 1)
    ratio = torch.cat([ratio.expand_as(sizes) for sizes, ratio in norms], 1)
    widths = [sizes.shape[1] for sizes, _ in norms]
    return list(torch.split(clipping.unit_factors(l1, ratio, bound, rows), widths, 1))


def _sparsified_sum(
    layer: Site,
    rows: Tensor,
    bound: float,
    sparsity: float,
    generator: torch.Generator,
) -> dict[nn.Parameter, Tensor]:
    sums = {p: torch.zeros_like(p) for p in layer.parameters}
    size = max(1, CHUNK_BYTES // (16 * sum(p.numel() for p in layer.parameters)))
    for start in range(0, len(rows), size):
        chunk = slice(start, start + size)
        grads = layer.per_example(chunk)
        flat = torch.cat([g.flatten(1) for g in grads], 1)
        thin = clipping.sparsify(flat, sparsity, generator)
        norms = thin.double().norm(dim=1)
        scale = clipping.factors(norms, bound, norms * 1e-6) * rows[chunk]
        scale = scale.to(flat.dtype)
        thin = torch.where(scale.unsqueeze(1) > 0, thin, torch.zeros_like(thin))
        total = scale @ thin
        pieces = torch.split(total, [p.numel() for p in layer.parameters])
        for p, piece in zip(layer.parameters, pieces, strict=True):
            sums[p] += piece.view_as(p)
    return sums


@dataclass(frozen=True)
class PrivateGradient:
    """The gradient that the optimizer sees.

    Attributes
    ----------
    clipper : Clipper
    noise_multiplier : float
    batch_size : float
        Expected batch size B, public.
    n_partitions : int
        Number of partitions b of the batch-wise term.
    """

    clipper: Clipper
    noise_multiplier: float
    batch_size: float
    n_partitions: int = 1

    def sensitivity(self, batch_wise: bool) -> float:
        """Return how far one record can move the gradient."""
        total = self.clipper.bound / self.batch_size
        if batch_wise:
            group = clipping.group_sensitivity(self.clipper.group_bound)
            total += group / self.n_partitions
        return total

    def __call__(
        self,
        model: nn.Module,
        objective: Objective,
        chunks: Iterable[tuple[Tensor, Tensor]],
        mechanisms: Mechanisms,
        generator: torch.Generator,
        divergence: Divergence | None = None,
        partition: Callable[[int], np.ndarray] | None = None,
    ) -> dict[nn.Parameter, Tensor]:
        """Return the noisy mean gradient, per parameter.

        Parameters
        ----------
        model : Module
        objective : callable
            Per-example losses of given rows.
        chunks : iterable of (indices, present)
            The batch; with a divergence in one chunk, so that no partition is cut.
        mechanisms : Mechanisms
        generator : torch.Generator
            Draws of the sparsified strategy.
        divergence : callable, optional
            Batch-wise term of one partition.
        partition : callable, optional
            Draws the partition of every row of the batch.
        """
        with full_precision(model):
            total = self._total(
                model, objective, chunks, generator, divergence, partition
            )
        std = self.noise_multiplier * self.sensitivity(divergence is not None)
        noisy = mechanisms.gradient(list(total.values()), [std] * len(total))
        masks = free_coordinates(model)
        return {
            p: (x * masks[p] if p in masks else x).to(p.dtype)
            for p, x in zip(total, noisy, strict=True)
        }

    def _total(
        self,
        model: nn.Module,
        objective: Objective,
        chunks: Iterable[tuple[Tensor, Tensor]],
        generator: torch.Generator,
        divergence: Divergence | None,
        partition: Callable[[int], np.ndarray] | None,
    ) -> dict[nn.Parameter, Tensor]:
        """Return the clipped mean gradient before noise, in float64."""
        params = [p for p in model.parameters() if p.requires_grad]
        # In float64: one row must not change how the other rows' sum is rounded.
        total = {p: torch.zeros_like(p, dtype=torch.float64) for p in params}
        for indices, present in chunks:
            with record(model) as calls:
                losses, images = objective(indices)
            loss = torch.where(present, losses, torch.zeros_like(losses)).sum()
            layers = sites(model, calls, loss, retain_graph=divergence is not None)
            sums = self.clipper.clipped_sums(layers, present, generator)
            _accumulate(total, sums, 1 / self.batch_size)
            if divergence is not None and images is not None and partition is not None:
                rows = torch.from_numpy(partition(len(present))).to(images.device)
                # Padding goes to a partition of its own, which is left out.
                rows = torch.where(present, rows, self.n_partitions)
                groups = [images[rows == g] for g in range(self.n_partitions)]
                terms = [divergence(members) for members in groups if len(members)]
                if terms:
                    layers = sites(model, calls, torch.stack(terms).sum())
                    sums = self._group_sums(layers, rows)
                    _accumulate(total, sums, 1 / self.n_partitions)
        return total

    def _group_sums(
        self, layers: Sequence[Site], rows: Tensor
    ) -> dict[nn.Parameter, Tensor]:
        present = rows < self.n_partitions
        for layer in layers:
            layer.keep(present)
        return self.clipper.group_sums(
            layers, rows.clamp(max=self.n_partitions - 1), self.n_partitions
        )


def _accumulate(
    total: dict[nn.Parameter, Tensor], sums: dict[nn.Parameter, Tensor], scale: float
) -> None:
    for p, x in sums.items():
        total[p].add_(x, alpha=scale)


def plain_gradient(
    model: nn.Module,
    objective: Objective,
    chunks: Iterable[tuple[Tensor, Tensor]],
    batch_size: float,
    divergence: Divergence | None = None,
) -> dict[nn.Parameter, Tensor]:
    """Return the mean gradient without clipping or noise, for `epsilon=None`."""
    params = [p for p in model.parameters() if p.requires_grad]
    total = {p: torch.zeros_like(p) for p in params}
    for indices, present in chunks:
        losses, images = objective(indices)
        loss = torch.where(present, losses, torch.zeros_like(losses)).sum() / batch_size
        if divergence is not None and images is not None and bool(present.any()):
            loss = loss + divergence(images[present])
        grads = torch.autograd.grad(loss, params)
        _accumulate(total, dict(zip(params, grads, strict=True)), 1.0)
    return total


def estimate_norm(
    model: nn.Module,
    objective: Objective,
    chunks: Iterable[tuple[Tensor, Tensor]],
    mechanisms: Mechanisms,
    noise_multiplier: float,
    quantile: float = 0.5,
) -> float:
    """Release a quantile of the norms of per-example gradients.

    One histogram over a fixed geometric grid; a row counts in one cell, so that the
    release is a Gaussian mechanism of the noise multiplier given.

    Parameters
    ----------
    chunks : iterable of (indices, present)
        All private rows.
    noise_multiplier : float
    quantile : float, default=0.5

    Returns
    -------
    float
        The upper end of a grid cell.
    """
    edges = np.geomspace(1e-4, 1e4, 81)
    counts = np.zeros(len(edges) + 1)
    for indices, present in chunks:
        with full_precision(model):
            with record(model) as calls:
                losses, _ = objective(indices)
            loss = torch.where(present, losses, torch.zeros_like(losses)).sum()
            layers = sites(model, calls, loss)
            usable = present & _without_unusable(layers)
            squares = torch.stack([layer.squared_norms()[0] for layer in layers]).sum(0)
        cells = np.searchsorted(edges, squares.sqrt()[usable].cpu().numpy())
        counts += np.bincount(cells, minlength=len(counts))
    noisy = np.maximum(mechanisms.gaussian(counts, noise_multiplier), 0)
    shares = np.cumsum(noisy) / max(noisy.sum(), 1e-12)
    cell = int(np.searchsorted(shares, quantile))
    return float(edges[min(cell, len(edges) - 1)])
