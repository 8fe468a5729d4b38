"""Rules of linear layers: masked ones, and the flows made of one matrix."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients.core import (
    ADDENDS,
    BLOCK,
    LARGEST,
    PAIRED,
    ROUNDING,
    LayerGradients,
    Sums,
    Tensors,
    by_group,
    margin,
    masked,
    parts,
    register_rule,
    require_one_each,
    with_share,
)

T = TypeVar("T")

PAIRS = 2**20
"""Pairs of positions whose products are computed at a time."""
CACHED = 2**19
"""Numbers that the processor's own cache holds beside others."""


@register_rule(MaskedLinear)
class LinearGradients(LayerGradients):
    """Closed forms for `MaskedLinear`, used once (T = 1) or in T positions.

    With e_t, a_t the output gradient and input at position t, the weight's gradient is
    ``M o sum_t e_t a_t^T`` and its squared norm ``sum_{t,s} (e_t o e_s)^T M (a_t o
    a_s)``; the bias is one more input, of value 1, that every output sees.

    No gradient of a single example is formed: it has as many entries as the weight,
    its factors as many as a row and a column. M is constant on groups of inputs and
    outputs, so that the norm needs sums by group alone (`_group_squares`).
    """

    module: MaskedLinear

    def __init__(
        self, module: nn.Module, inputs: Sequence[Tensors], grads: Sequence[Tensors]
    ) -> None:
        super().__init__(module, inputs, grads)
        self.a = _positions([call[0] for call in self.inputs])
        self.e = _positions([call[0] for call in self.grads])
        self.single = self.a.shape[1] == 1
        self.whole = self.module.is_dense and self.module.visible.numel() == 1

    @staticmethod
    def free_coordinates(module: nn.Module) -> dict[nn.Parameter, Tensor]:
        assert isinstance(module, MaskedLinear)
        return {} if module.is_dense else {module.weight: module.mask}

    @property
    def n_coordinates(self) -> int:
        return self.module.n_free + self.module.bias.numel()

    @cached_property
    def _reach(self) -> Tensors:
        """Which group of outputs depends on which input, where there are groups."""
        layer = self.module
        return () if self.whole else (layer.in_membership @ layer.visible.T,)

    @property
    def _groups(self) -> Tensors:
        """Which output is in which group, where there are groups."""
        return () if self.whole else (self.module.out_membership,)

    @cached_property
    def a2(self) -> Tensor:
        """Sums of squares of the inputs of every group of outputs, and 1."""
        return self._once(_squares, self.a, *self._reach) + 1

    @cached_property
    def e2(self) -> Tensor:
        """Sums of squares of the outputs' gradients by group."""
        return self._once(_squares, self.e, *self._groups)

    def _once(self, of: Callable[..., T], x: Tensor, *others: Tensor) -> T:
        """Return ``of(x, *others)``, once for all layers that share the memory of x."""
        if x.device.type != "cpu":  # Comparing makes the host wait.
            return of(x, *others)
        # Hold a reference, since addresses are reused.
        place = of, len(others), x.data_ptr(), x.shape, x.stride()
        for _, same, result in self.shared.get(place, []):
            if all(map(torch.equal, same, others)):
                return cast(T, result)
        result = of(x, *others)
        self.shared.setdefault(place, []).append((x, others, result))
        return result

    def finite(self) -> Tensor:
        e2 = self._once(_squares, self.e)
        # Where asking costs nothing, all rows at once.
        if e2.is_cpu and float(self.a2.sum() + e2.sum()) <= LARGEST**2:
            return e2.new_ones(len(e2), dtype=torch.bool)
        return torch.maximum(self.a2.amax((1, 2)), e2.sum((1, 2))) <= LARGEST**2

    def keep(self, rows: Tensor) -> None:
        self.a, self.e = masked(self.a, rows), masked(self.e, rows)
        self.a2, self.e2 = masked(self.a2, rows, 1.0), masked(self.e2, rows)

    @property
    def _slack(self) -> float:
        """What float32 sums over inputs and outputs can lose, relative to them."""
        return float(sum(self.module.weight.shape)) * 2.0**-24

    def _overlaps(self, rows: slice = slice(None)) -> Tensor:
        """Return sum over inputs of a_t o a_s, by group, (n, T, T, groups)."""
        return _group_products(self.a[rows].double(), self.module.in_membership)

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        if self.single:
            # Nothing cancels: float32 loses no more than one digit per addend.
            total = (self.e2 * self.a2).sum((1, 2))
            return total.double(), total.sqrt() * (ROUNDING + self._slack)
        # Positions may cancel: products of pairs in float64, and a margin of the size
        # of what was added up.
        chunks = parts(len(self.e), PAIRS // self.e.shape[1] ** 2)
        total = torch.cat([self._products(rows) for rows in chunks]).clamp(min=0)
        sizes = (self.e2.double() * self.a2.double()).sum(2)
        return total, margin(total.sqrt(), sizes.sqrt().sum(1))

    def _products(self, rows: slice) -> Tensor:
        """Return squared norms of some examples, by products of all pairs."""
        layer = self.module
        products = _group_products(self.e[rows].double(), layer.out_membership)
        weight = (products @ layer.visible.double()) * self._overlaps(rows)
        return weight.sum((1, 2, 3)) + products.sum((1, 2, 3))

    def _magnitudes(self) -> Tensors:
        """Return sums of the inputs' sizes of every group of outputs, and 1.

        And sizes of the outputs' gradients, and their sums by group.
        """
        _, inputs = self._once(_magnitudes, self.a, *self._reach)
        return inputs + 1, *self._once(_magnitudes, self.e, *self._groups)

    def unit_norms(self) -> list[tuple[Tensor, Tensor]]:
        # With several positions the L1 norm is that of the parts, an upper bound, and
        # the L2 norm comes from products of pairs.
        layer = self.module
        inputs, sizes, _ = self._magnitudes()
        l1 = (sizes * self._by_unit(inputs)).sum(1)
        e = self.e.double()
        given = self._overlaps() @ layer.visible.double().T + 1
        # As one product of matrices where all units see the same: T is large in series.
        cross = e * torch.einsum("ntsu,nsu->ntu", self._by_unit(given), e)
        l2 = cross.sum(1).clamp(min=0).sqrt()
        lengths = self.a2.double().sqrt()
        added = (sizes * self._by_unit(lengths)).sum(1)
        return [with_share(l1, l2 + margin(l2, added) + l1 * ROUNDING)]

    def unit_factors(self, bound: float, rows: Tensor) -> list[Tensor]:
        if not self.single or type(self).unit_norms is not LinearGradients.unit_norms:
            return super().unit_factors(bound, rows)
        # Row u of the gradient is e_u times the inputs that u sees and 1: its norms are
        # |e_u| times a number of u's group, and its factor is a product of two roots.
        inputs, sizes, by_group = self._magnitudes()
        scale = clipping.unit_scale((by_group * inputs).sum((1, 2)), bound, rows)
        share = self.a2 / inputs * (1 + 2 * self._slack) * scale.view(-1, 1, 1)
        roots, others = self._once(_roots, sizes), self._by_unit(_roots(share))
        out = others if others.shape == roots.shape else None
        return [torch.mul(roots, others, out=out)[:, 0].clamp_(max=1)]

    def _by_unit(self, by_group: Tensor) -> Tensor:
        """Spread values per output group over the units of each group."""
        if by_group.shape[-1] == 1:
            return by_group
        groups = self.module.out_groups
        flat = by_group.flatten(0, -2).index_select(1, groups)
        return flat.view(*by_group.shape[:-1], len(groups))

    def weighted_sum(self, factors: Tensor | list[Tensor]) -> Sums:
        layer = self.module
        require_one_each(factors, self.e)
        s = factors.view(-1, 1) if isinstance(factors, Tensor) else factors[0]
        if self.single and s.device.type == "cpu":
            e, bias = self._once(_weighted, self.e[:, 0], s)
            sums = [block_sum(e[:, u], self.a[:, 0, :w]) for u, w in layer.parts]
            wide = [pad(x, (0, layer.weight.shape[1] - x.shape[1])) for x in sums[:-1]]
            weight = torch.cat([*wide, sums[-1]]) if wide else sums[0]
        else:
            weight, bias = self._exact_sum(s)
        if not layer.is_dense:  # Inputs that nobody sees may be infinite.
            weight = torch.where(layer.mask > 0, weight, 0.0)
        return {layer.weight: weight, layer.bias: bias}

    def _exact_sum(self, s: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sums of weight and bias, computed in float64 throughout."""
        weight = torch.zeros_like(self.module.weight, dtype=torch.float64)
        bias = torch.zeros_like(self.module.bias, dtype=torch.float64)
        for rows in parts(len(self.e), ADDENDS // max(1, self.e.shape[1])):
            e = self.e[rows].to(torch.float64, copy=True)
            e = e.mul_(s[rows].unsqueeze(1)).flatten(0, 1)
            weight += e.T @ self.a[rows].double().flatten(0, 1)
            bias += e.sum(0)
        return weight, bias

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        a, e = self.a[rows], self.e[rows]
        return [torch.einsum("ntu,ntv->nuv", e, a) * self.module.mask, e.sum(1)]

    @cached_property
    def _stairs(self) -> list[tuple[Tensor, Tensor]]:
        """Return blocks of outputs and the inputs that they see, where that is cheap.

        Empty where a gradient is no outer product, where outputs are not sorted by the
        inputs that they see, and on a device, where a comparison makes the host wait.
        """
        mask = self.module.mask
        if not self.single or mask.device.type != "cpu":
            return []
        widths = mask.sum(1).long()
        outputs, inputs = widths.argsort(), mask.sum(0).argsort(descending=True)
        stairs = torch.arange(mask.shape[1]) < widths[outputs].unsqueeze(1)
        if not torch.equal(mask[outputs][:, inputs].bool(), stairs):
            return []
        blocks = enumerate(torch.split(outputs, torch.bincount(widths).tolist()))
        return [(block, inputs[:width]) for width, block in blocks if len(block)]

    @cached_property
    def _factors(self) -> list[tuple[Tensor, Tensor]]:
        """Return gradients at the outputs, and inputs, of every block of `_stairs`."""
        # Blocks follow one another, and the last one sees what any of them sees.
        outputs, (*_, (_, inputs)) = [u for u, _ in self._stairs], self._stairs
        e = self.e[:, 0].index_select(1, torch.cat(outputs)).unsqueeze(2)
        a = self.a[:, 0].index_select(1, inputs).unsqueeze(1)
        blocks = torch.split(e, [len(u) for u in outputs], 1)
        pairs = zip(blocks, self._stairs, strict=True)
        return [(block, a[..., : len(v)]) for block, (_, v) in pairs]

    def scaled_to(self, size: float) -> Tensor | None:
        if not self._stairs:
            return None
        # Unit u of an example has norm |e_u| times what its group sees of |a|, and 1.
        inputs, _, by_group = self._magnitudes()
        norms = (inputs * by_group).sum(2, keepdim=True)
        scale = norms / size
        self.e = self.e / scale.clamp(min=torch.finfo(scale.dtype).tiny)
        return scale[:, 0]

    def flat(self, rows: slice) -> Tensor:
        if not self._stairs:
            return super().flat(rows)
        e = self.e[rows, 0]
        flat, start = e.new_empty(len(e), self.n_coordinates), e.shape[1]
        flat[:, :start] = e
        for left, right in self._factors:
            n, m = left.shape[1], right.shape[2]
            part = flat[:, start : start + n * m].view(len(e), n, m)
            torch.mul(left[rows], right[rows], out=part)
            start += n * m
        return flat

    def of_flat(self, total: Tensor) -> Sums:
        if not self._stairs:
            return super().of_flat(total)
        layer = self.module
        sizes = [len(u) * len(v) for u, v in self._stairs]
        bias, *blocks = torch.split(total, [len(layer.bias), *sizes])
        weight = total.new_zeros(layer.weight.shape)
        for (u, v), block in zip(self._stairs, blocks, strict=True):
            weight[u.unsqueeze(1), v] = block.view(len(u), len(v))
        return {layer.weight: weight, layer.bias: bias}

    def grouped(self, groups: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        return by_group(self._sum, groups, sizes)

    def _sum(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of some examples' gradients."""
        a, e = self.a[rows].flatten(0, 1), self.e[rows].flatten(0, 1)
        return (e.T @ a) * self.module.mask, e.sum(0)


@register_rule(LowRankLinear)
class LowRankGradients(LayerGradients):
    """``ds = e o x, dA = e (Bx)^T, dB = (A^T e) x^T``, log-determinant included.

    That of the log-determinant is the transposed inverse W^-T, through ``W = diag(s) +
    A B``. In float64, as gradients of several calls can cancel.
    """

    module: LowRankLinear

    @cached_property
    def _factors(self) -> list[Tensor]:
        """Return W^-T, A and B."""
        layer = self.module
        inverse = torch.linalg.inv_ex(layer.matrix().detach().double())[0].T
        return [inverse, layer.left.detach().double(), layer.right.detach().double()]

    def of_call(self, inputs: Tensors, grads: Tensors) -> list[Tensor]:
        inverse, left, right = self._factors
        x, e, e_det = (part.double() for part in (*inputs, *grads))
        k = e_det[:, None]
        return [
            e * x + k * inverse.diagonal(),
            _outer(e, x @ right.T) + k[:, None] * (inverse @ right.T),
            _outer(e @ left, x) + k[:, None] * (left.T @ inverse),
            *([] if self.module.bias is None else [e]),
        ]


@register_rule(LULinear)
class LUGradients(LayerGradients):
    """``dL = tril_-1((P^T e)(Ux)^T), dU = triu((P L)^T e x^T) + K``.

    K, of the log-determinant ``sum log|U_kk|``, is diagonal: ``1 / U_kk``. In float64,
    as gradients of several calls can cancel.
    """

    module: LULinear

    @staticmethod
    def free_coordinates(module: nn.Module) -> dict[nn.Parameter, Tensor]:
        assert isinstance(module, LULinear)
        ones = torch.ones_like(module.lower)
        return {module.lower: ones.tril(-1), module.upper: ones.triu()}

    @property
    def n_coordinates(self) -> int:
        return self.module.lower.numel()  # the masks share them out between them

    @cached_property
    def _factors(self) -> list[Tensor]:
        """Return P L and U."""
        return [factor.detach().double() for factor in self.module.factors()]

    def of_call(self, inputs: Tensors, grads: Tensors) -> list[Tensor]:
        left, upper = self._factors
        order = self.module.permutation.double()
        x, e, e_det = (part.double() for part in (*inputs, *grads))
        inverse = torch.diag(1 / upper.diagonal())
        return [
            _outer(e @ order, x @ upper.T).tril(-1),
            _outer(e @ left, x).triu() + e_det[:, None, None] * inverse,
        ]


def block_sum(e: Tensor, a: Tensor) -> Tensor:
    """Return the sum of outer products of rows, by blocks in float32, in float64.

    At most `BLOCK` products are added up at once; the sums of `PAIRED` blocks are added
    up by pairs, and then in float64.
    """
    (left, last), (right, others) = _blocks(e), _blocks(a)
    groups = CACHED // max(1, PAIRED * e.shape[1] * a.shape[1])
    most = PAIRED * max(1, min(groups, -(-len(left) // PAIRED)))
    space = e.new_empty(most, e.shape[1], a.shape[1])
    total = (last.T @ others).double() if len(last) or not len(left) else None
    for start in range(0, len(left), most):
        part = left[start : start + most].mT
        torch.bmm(part, right[start : start + most], out=space[: len(part)])
        if len(part) < most:
            space[len(part) :].zero_()
        half, size = space, most
        while size * PAIRED > most:
            size //= 2
            half = half[:size].add_(half[size:])
        partial = half.sum(0, dtype=torch.float64)
        total = partial if total is None else total.add_(partial)
    assert total is not None
    return total


def _blocks(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return whole blocks of rows, (blocks, BLOCK, width), and all other rows."""
    rest = len(x) // BLOCK * BLOCK
    return x[:rest].view(rest // BLOCK, BLOCK, x.shape[1]), x[rest:]


def _weighted(e: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return weighted rows, and their sum by blocks in float32, in float64."""
    e = e * s.to(e.dtype)
    blocks, rest = _blocks(e)
    total = blocks.sum(1).sum(0, dtype=torch.float64)
    return e, total + rest.sum(0) if len(rest) else total


def _positions(calls: Sequence[Tensor]) -> Tensor:
    """Return the positions of all calls, (n, T, width)."""
    deep = [x.unsqueeze(1) if x.ndim == 2 else x for x in calls]
    return deep[0] if len(deep) == 1 else torch.cat(deep, 1)


def _group_products(x: Tensor, membership: Tensor) -> Tensor:
    """Return inner products of positions by group, (n, T, T, groups)."""
    if membership.shape[1] == 1:
        return (x @ x.transpose(1, 2)).unsqueeze(3)
    return torch.einsum("ntv,nsv,vg->ntsg", x, x, membership.to(x.dtype))


def _squares(x: Tensor, membership: Tensor | None = None) -> Tensor:
    """Return sums of squares, in all or by group, (n, T, groups)."""
    if membership is not None:
        return _group_sums(x.square(), membership)
    norms: Tensor = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    return norms.square()


def _magnitudes(x: Tensor, membership: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return magnitudes, and their sums, in all or by group, (n, T, groups)."""
    sizes = x.abs()
    return sizes, _group_sums(sizes, membership)


def _roots(x: Tensor) -> Tensor:
    """Return inverse square roots, finite at 0."""
    return x.clamp(min=torch.finfo(x.dtype).tiny).rsqrt_()


def _group_sums(x: Tensor, membership: Tensor | None) -> Tensor:
    """Return sums, in all or by group, (n, T, groups)."""
    if membership is None:
        return x.sum(2, keepdim=True)
    # Products of a width that registers hold whole take half as long: the last groups
    # have no members.
    n = membership.shape[1]
    return x @ (pad(membership, (0, -n % 16)) if n > 11 else membership)


def _outer(e: Tensor, x: Tensor) -> Tensor:
    return e.unsqueeze(2) * x.unsqueeze(1)
