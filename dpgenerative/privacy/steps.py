"""One private gradient: record, clip, add up, add noise.

Formal guarantee: `PrivateGradient.__call__` is a Gaussian mechanism of the plan's noise
multiplier z on the rows of the batch, which counts once however many terms it has; an
empty batch is released like any other. B is the public expected batch size.

``term-wise`` (Takahashi et al. 2020): one record moves the per-example part by at most
a = C / B, and the batch-wise part by at most c = 2 C_2 / b (b partitions: it is in one
of them, and can reverse its clipped gradient). The batch-wise part is computed for the
parameters of the submodule `batch_term_module` alone; these get noise z (a + c), all
others z sqrt(a (a + c)). For a part u of the first term on the submodule's coordinates,
and v on the others, ``(|u| + c)^2 / (a + c)^2 + |v|^2 / (a (a + c)) <= 1`` whenever
``|u|^2 + |v|^2 <= a^2``, with equality at v = 0: one mechanism of multiplier z, no
worse than z_1 = z sqrt((a + c) / a) and z_2 = z sqrt((a + c) / c) on one sample.

``micro`` and ``batch`` are that paper's baselines, in which every gradient sees the
whole batch. ``micro`` clips every record's gradient of its loss plus the batch-wise
term: a record that is added can reverse the m - 1 others, so that the sum moves by up
to (2 m - 1) C; with a public cap M on m, beyond which the sum is 0, by (2 M - 1) C.
``batch`` clips the batch's mean gradient as a whole, which can be reversed: 2 C.

Rounding: noise is added in float64. Whoever chooses all rows can make one more row
change how the others are rounded, by less than clipping leaves unused of C
(`gradients`): one row moves the computed sum by at most C too. This assumes that a
layer computes the same numbers of a row, at one place of an array of one shape, and the
same sum of the same rows, whatever others are; `sampling` keeps rows at their places.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients.core import (
    BLOCK,
    Call,
    LayerGradients,
    free_coordinates,
    free_places,
    layer_gradients,
    record,
    scaled,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.precision import full_precision

Objective = Callable[[Tensor], tuple[Tensor, Tensor | None]]
"""From row indices to losses of shape (n,) and latents of shape (n, ...), if needed: of
a flow, its points in the base space."""
Divergence = Callable[[Tensor], Tensor]
"""From the latents of one partition, shape (m, ...), m >= 1, to a scalar."""
Chunk = tuple[Tensor, Tensor]
"""Row indices, and which of them are present: the others are padding."""
AGGREGATIONS = ("term-wise", "micro", "batch")
Gradients = dict[nn.Parameter, Tensor]


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
        """Return the sum of a layer's gradients, each thinned, then clipped.

        A few exist at a time: as many as the processor's own cache holds.
        """
        n_entries = sum(p.numel() for p in layer.parameters)
        taus, on_cpu = None, rows.device.type == "cpu"
        if not self.is_ranked and self.sparsity:
            taus = layer.scaled_to((1 - self.sparsity) * n_entries)
        total = layer.flat(slice(0)).sum(0, dtype=torch.float64)
        most = BLOCK if on_cpu else clipping.LARGEST_CHUNK
        for chunk in clipping.gradient_chunks(rows, 64 * len(total), most):
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
    aggregation : {"term-wise", "micro", "batch"}
        How the two terms are bounded; the last two clip flat, and use no partitions.
    batch_cap : int
        For "micro": the largest batch whose gradients count.
    batch_term_module : str
        For "term-wise": name of the submodule that the batch-wise term trains; its
        gradient at all other parameters is left out. "" is the whole model.
    """

    clipper: Clipper
    noise_multiplier: float
    batch_size: float
    n_partitions: int = 1
    aggregation: str = "term-wise"
    batch_cap: int = 1
    batch_term_module: str = ""

    def sensitivity(self, batch_wise: bool) -> float:
        """Return how far one record can move the gradient."""
        bound = self.clipper.bound
        if self.aggregation == "micro":
            return clipping.coupled_sensitivity(bound, self.batch_cap) / self.batch_size
        if self.aggregation == "batch":
            return clipping.group_sensitivity(bound)
        total = bound / self.batch_size
        if batch_wise:
            group = clipping.group_sensitivity(self.clipper.group_bound)
            total += group / self.n_partitions
        return total

    def describe(self, batch_wise: bool) -> str:
        """Say how gradients are bounded, in words for a report."""
        clipper = self.clipper
        words = f"{clipper.strategy} clipping to norm {clipper.bound:g}"
        if self.aggregation != "term-wise":
            total = self.sensitivity(batch_wise)
            return f"{words}, {self.aggregation} aggregation of sensitivity {total:.3g}"
        if batch_wise:
            words += (
                f", batch-wise term of {self.n_partitions} partitions clipped to "
                f"{clipper.group_bound:.3g} (sensitivity twice that)"
            )
        return words

    def sensitivities(
        self, model: nn.Module, batch_wise: bool
    ) -> dict[nn.Parameter, float]:
        """Return the noise of every trained parameter at a noise multiplier of 1."""
        total, params = self.sensitivity(batch_wise), trainable(model)
        if not batch_wise or self.aggregation != "term-wise":
            return dict.fromkeys(params, total)
        alone = math.sqrt(self.clipper.bound / self.batch_size * total)
        reached = set(model.get_submodule(self.batch_term_module).parameters())
        return {p: total if p in reached else alone for p in params}

    def stds(self, model: nn.Module, batch_wise: bool) -> dict[nn.Parameter, float]:
        """Return the standard deviation of the noise of every trained parameter."""
        units = self.sensitivities(model, batch_wise)
        return {p: self.noise_multiplier * unit for p, unit in units.items()}

    def __call__(
        self,
        model: nn.Module,
        objective: Objective,
        chunks: Iterable[Chunk],
        mechanisms: Mechanisms,
        generator: torch.Generator,
        divergence: Divergence | None = None,
        partition: Callable[[int], np.ndarray] | None = None,
    ) -> Gradients:
        """Return the noisy mean gradient, per parameter.

        Parameters
        ----------
        model : Module
        objective : callable
            Per-example losses of given rows.
        chunks : iterable of (indices, present)
            The batch; in one chunk with a divergence, so that no partition is cut, and
            for "micro" and "batch".
        mechanisms : Mechanisms
        generator : torch.Generator
            Draws of the sparsified strategy.
        divergence : callable, optional
            Batch-wise term of one partition.
        partition : callable, optional
            Draws the partition of every row of the batch.
        """
        with full_precision(model):
            if self.aggregation == "term-wise":
                total = self._total(
                    model, objective, chunks, generator, divergence, partition
                )
            else:
                total = self._coupled_total(model, objective, chunks, divergence)
        # In the order in which noise is drawn, whatever is called first.
        units = self.sensitivities(model, divergence is not None)
        sums = {p: total[p] for p in units}
        free = free_places(model)
        masks = free_coordinates(model) if free is None else {}
        free = free or {}
        noisy = mechanisms.gradient(
            [
                x.flatten().index_select(0, free[p]) if p in free else x
                for p, x in sums.items()
            ],
            list(self.stds(model, divergence is not None).values()),
            sensitivities=list(units.values()),
            divisor=self.batch_size,
        )
        return {
            p: _at(free[p], x.to(p.dtype), p)
            if p in free
            else (x * masks[p] if p in masks else x).to(p.dtype)
            for p, x in zip(sums, noisy, strict=True)
        }

    def _total(
        self,
        model: nn.Module,
        objective: Objective,
        chunks: Iterable[Chunk],
        generator: torch.Generator,
        divergence: Divergence | None,
        partition: Callable[[int], np.ndarray] | None,
    ) -> Gradients:
        """Return the clipped mean gradient before noise, in float64."""
        total: Gradients = {}
        for indices, present in chunks:
            calls, loss, latents = recorded(model, objective, (indices, present))
            layers = layer_gradients(
                model, calls, loss, len(indices), divergence is not None
            )
            sums = self.clipper.clipped_sums(layers, present, generator)
            _accumulate(total, sums, 1 / self.batch_size)
            if divergence is not None and latents is not None and partition is not None:
                rows = torch.from_numpy(partition(len(latents))).to(latents.device)
                # Padding goes to a partition of its own, which is left out.
                rows = torch.where(present, rows, self.n_partitions)
                sums = self._batch_wise_sums(model, calls, latents, rows, divergence)
                _accumulate(total, sums, 1 / self.n_partitions)
        return total

    def _batch_wise_sums(
        self,
        model: nn.Module,
        calls: dict[nn.Module, list[Call]],
        latents: Tensor,
        rows: Tensor,
        divergence: Divergence,
    ) -> Gradients:
        """Return the sum of clipped partition gradients, of `batch_term_module` alone.

        A partition's term depends on its own rows alone: one backward pass of the sum
        of all terms leaves at every row the gradient of its partition's.
        """
        counts = rows.new_zeros(self.n_partitions + 1)
        counts = counts.scatter_add(0, rows, torch.ones_like(rows))
        *sizes, n_padding = counts.cpu().tolist()  # all that the host asks for
        members = latents[rows.argsort(stable=True)]
        *groups, _ = torch.split(members, [*sizes, n_padding])
        terms = [divergence(z) for z in groups if len(z)]
        if not terms:
            return {}
        part = model.get_submodule(self.batch_term_module)
        within = set(part.modules())
        calls = {module: each for module, each in calls.items() if module in within}
        layers = layer_gradients(part, calls, torch.stack(terms).sum(), len(rows))
        for layer in layers:
            layer.keep(rows < self.n_partitions)
        sizes[-1] += n_padding
        return self.clipper.group_sums(
            layers, rows.clamp(max=self.n_partitions - 1), sizes
        )

    def _coupled_total(
        self,
        model: nn.Module,
        objective: Objective,
        chunks: Iterable[Chunk],
        divergence: Divergence | None,
    ) -> Gradients:
        """Return the clipped gradient of a baseline before noise, in float64."""
        ((indices, present),) = chunks
        bound = self.clipper.bound
        calls, loss, latents = recorded(model, objective, (indices, present))
        term = whole_term(divergence, latents, present)
        layers = layer_gradients(model, calls, loss, len(indices), term is not None)
        # In float64: one row must not change how the other rows' sum is rounded.
        shared = {p: torch.zeros_like(p, dtype=torch.float64) for p in trainable(model)}
        if term is not None:
            coupled = layer_gradients(model, calls, term, len(indices))
            _accumulate(shared, _whole_sum(coupled, present), 1.0)
        if self.aggregation == "batch":
            _accumulate(shared, _whole_sum(layers, present), 1 / self.batch_size)
            return _clipped(shared, bound)
        rows = present & without_unusable(layers) & (present.sum() <= self.batch_cap)
        sums = shifted_sum(layers, rows, bound, shared)
        return {p: x * (1 / self.batch_size) for p, x in sums.items()}


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained."""
    return [p for p in model.parameters() if p.requires_grad]


def _at(places: Tensor, x: Tensor, like: Tensor) -> Tensor:
    """Return zeros like a tensor, with the numbers x at some places."""
    return torch.zeros_like(like).flatten().scatter_(0, places, x).view_as(like)


def recorded(
    model: nn.Module, objective: Objective, chunk: Chunk
) -> tuple[dict[nn.Module, list[Call]], Tensor, Tensor | None]:
    """Return what a model did with a chunk, the loss of its rows, and their latents."""
    with record(model) as calls:
        loss, latents = summed_loss(objective, chunk)
    return calls, loss, latents


def summed_loss(objective: Objective, chunk: Chunk) -> tuple[Tensor, Tensor | None]:
    """Return the summed loss of the rows present, and the latents of all."""
    indices, present = chunk
    losses, latents = objective(indices)
    require_one_loss_each(losses, indices)
    return torch.where(present, losses, torch.zeros_like(losses)).sum(), latents


def require_one_loss_each(losses: Tensor, indices: Tensor) -> None:
    """Raise ValueError for anything but one loss per index."""
    if losses.shape != indices.shape:
        # Without numbers: how many rows a batch has is private.
        raise ValueError(
            "An objective must return one loss per row, of shape (n,) for n indices, "
            "and latents or None: no mean or sum over the batch."
        )


def whole_term(
    divergence: Divergence | None, latents: Tensor | None, present: Tensor
) -> Tensor | None:
    """Return the batch-wise term of all rows present, if there is one."""
    if divergence is None or latents is None:
        return None
    members = latents[present]
    return divergence(members) if len(members) else None


def _whole_sum(layers: Sequence[LayerGradients], present: Tensor) -> Gradients:
    """Return the sum of the present rows' gradients, unclipped."""
    rows = (present & without_unusable(layers)).double()
    return merged([layer.weighted_sum(rows) for layer in layers])


def _clipped(total: Gradients, bound: float) -> Gradients:
    """Return one gradient, clipped as a whole."""
    norm = torch.stack([x.square().sum() for x in total.values()]).sum().sqrt()
    scale = clipping.factors(norm, bound, norm * 1e-6)
    return {p: scaled(x, scale) for p, x in total.items()}


def _accumulate(total: Gradients, sums: Gradients, scale: float) -> None:
    for p, x in sums.items():
        total[p] = total[p].add_(x, alpha=scale) if p in total else x.double() * scale


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


def shifted_sum(
    layers: Sequence[LayerGradients], rows: Tensor, bound: float, shift: Gradients
) -> Gradients:
    """Return the sum of gradients that are shifted and then clipped, one by one.

    They are formed for a few rows at a time: an entry takes 32 bytes on the way.
    """
    params = [p for layer in layers for p in layer.parameters]
    flat = torch.cat([shift[p].flatten() for p in params])
    total = torch.zeros_like(flat)
    for chunk in clipping.gradient_chunks(rows, 32 * len(flat)):
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
