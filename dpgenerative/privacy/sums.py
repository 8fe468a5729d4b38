"""Sums of clipped gradients: of one layer after the other, a few rows at a time."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients.core import BLOCK, LayerGradients, scaled

Gradients = dict[nn.Parameter, Tensor]
LARGEST_CHUNK = 4096
"""Rows whose losses are computed at a time."""
CHUNK_BYTES = {"cpu": 2**25, "cuda": 2**28}
"""Memory that materialised per-example gradients of one chunk may take: on a CPU, what
its caches hold."""


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
    is_ranked : bool
        For "sparsified": whether the threshold is an entry of the gradient.
    """

    strategy: str
    bound: float
    sparsity: float = 0.5
    group_bound: float = 0.0
    is_ranked: bool = False

    def clipped_sums(
        self,
        layers: Sequence[LayerGradients],
        present: Tensor,
        generator: torch.Generator,
    ) -> Gradients:
        """Return the sum of the present rows' clipped gradients, as float64.

        The sensitivity of all sums together is `bound`.
        """
        rows = present & without_unusable(layers)
        sizes = [layer.n_coordinates for layer in layers]
        bounds = clipping.layer_bounds(self.bound, sizes)
        if self.strategy == "sparsified":
            parts = [
                self._thinned_sum(layer, rows, bound, generator)
                for layer, bound in zip(layers, bounds, strict=True)
            ]
        else:
            factors = self._factors(layers, bounds, rows)
            parts = [
                layer.weighted_sum(scale)
                for layer, scale in zip(layers, factors, strict=True)
            ]
        return merged(parts)

    def _thinned_sum(
        self,
        layer: LayerGradients,
        rows: Tensor,
        bound: float,
        generator: torch.Generator,
    ) -> Gradients:
        """Return the sum of a layer's gradients, each of them thinned, then clipped.

        A few of them exist at a time: as many as the processor's own cache holds.
        """
        n_entries = sum(p.numel() for p in layer.parameters)
        taus = None
        if not self.is_ranked and self.sparsity:
            taus = layer.scaled_to((1 - self.sparsity) * n_entries)
        total = layer.flat(slice(0)).sum(0, dtype=torch.float64)
        on_cpu = rows.device.type == "cpu"
        for chunk in gradient_chunks(
            rows, 64 * len(total), BLOCK if on_cpu else LARGEST_CHUNK
        ):
            thinned, tau = clipping.sparsify(
                layer.flat(chunk),
                self.sparsity,
                generator,
                self.is_ranked,
                n_entries,
                None if taus is None else taus[chunk],
            )
            thinned, tau = thinned if on_cpu else thinned.double(), tau[:, 0].double()
            norms = clipping.lengths(thinned) * tau
            scale = clipping.factors(norms, bound, norms * 1e-5) * rows[chunk]
            # As in `without_unusable`; 0 x inf is not 0.
            finite = norms.isfinite()
            if not on_cpu or not bool(finite.all()):
                thinned = torch.where(finite.unsqueeze(1), thinned, 0.0)
                tau = torch.where(finite, tau, 0.0)
            total += (scale * tau).to(thinned.dtype) @ thinned
        return layer.of_flat(total)

    def _factors(
        self, layers: Sequence[LayerGradients], bounds: Sequence[float], rows: Tensor
    ) -> Sequence[Tensor | list[Tensor]]:
        """Return the factors of every layer's rows, or of the units of every row."""
        if self.strategy == "per-unit":
            pairs = zip(layers, bounds, strict=True)
            return [layer.unit_factors(bound, rows) for layer, bound in pairs]
        norms_of = zip(*(layer.squared_norms() for layer in layers), strict=True)
        squares, margins = map(torch.stack, norms_of)
        if self.strategy == "flat":
            norms, margin = squares.sum(0).sqrt(), margins.sum(0)
            return [clipping.factors(norms, self.bound, margin) * rows] * len(layers)
        limits = torch.stack([squares.new_full((1,), bound) for bound in bounds])
        return list(clipping.factors(squares.sqrt(), limits, margins) * rows)

    def group_sums(
        self, layers: Sequence[LayerGradients], groups: Tensor, sizes: Sequence[int]
    ) -> Gradients:
        """Return the sum of clipped partition gradients, per parameter.

        `sizes` states how many records every partition has.

        One record touches one partition, and can reverse its clipped gradient: the
        sensitivity is ``2 * group_bound``.
        """
        parts = [layer.grouped(groups, sizes) for layer in layers]
        squares = [g.double().flatten(1).square().sum(1) for p in parts for g in p]
        norms = torch.stack(squares).sum(0).sqrt()
        scale = clipping.factors(norms, self.group_bound, norms * 1e-6)
        return {
            p: scaled(g, scale).sum(0)
            for layer, part in zip(layers, parts, strict=True)
            for p, g in zip(layer.parameters, part, strict=True)
        }


def without_unusable(layers: Sequence[LayerGradients]) -> Tensor:
    """Zero the rows that hold unusable numbers anywhere; return the others.

    Padding needs no zeros: its numbers are finite and its factor is 0. On a CPU, where
    asking costs nothing, clean tables are left as they are.
    """
    finite = torch.stack([layer.finite() for layer in layers]).all(0)
    if finite.device.type != "cpu" or not bool(finite.all()):
        for layer in layers:
            layer.keep(finite)
    return finite


def gradient_chunks(
    rows: Tensor, n_bytes: int, most: int = LARGEST_CHUNK
) -> Iterator[slice]:
    """Yield the rows whose gradients exist at a time, each of `n_bytes` on the way."""
    size = min(most, max(1, CHUNK_BYTES.get(rows.device.type, 2**28) // n_bytes))
    return (slice(start, start + size) for start in range(0, len(rows), size))


def shifted_sum(
    layers: Sequence[LayerGradients], rows: Tensor, bound: float, shift: Gradients
) -> Gradients:
    """Return the sum of gradients that are shifted and then clipped, one by one.

    They are formed for a few rows at a time: an entry takes 32 bytes on the way.
    """
    params = [p for layer in layers for p in layer.parameters]
    flat = torch.cat([shift[p].flatten() for p in params])
    total = torch.zeros_like(flat)
    for chunk in gradient_chunks(rows, 32 * len(flat)):
        grads = [g.flatten(1) for layer in layers for g in layer.per_example(chunk)]
        shifted = torch.cat(grads, 1).double() + flat
        norms = torch.linalg.vector_norm(shifted, dim=1)
        scale = clipping.factors(norms, bound, norms * 1e-6) * rows[chunk]
        # 0 x inf is not 0: rows without weight are left out, not multiplied.
        total += scale @ torch.where(scale.unsqueeze(1) > 0, shifted, 0.0)
    pieces = torch.split(total, [p.numel() for p in params])
    return {p: x.view_as(p) for p, x in zip(params, pieces, strict=True)}


def merged(parts: Iterable[Gradients]) -> Gradients:
    """Return the sums of several layers as those of one model."""
    return {p: x for part in parts for p, x in part.items()}
