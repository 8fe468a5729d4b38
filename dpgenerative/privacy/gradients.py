"""Clipped sums of per-example gradients from one backward pass.

`record` keeps, for every layer that owns parameters, what went in and where in the
graph it came out while a per-example loss was computed. One call of autograd then
gives, for example i, the gradient ``e_i`` of its loss at every output; with the input
``a_i`` this determines the gradient with respect to the layer's parameters, and a
`LayerGradients` answers four questions about it, of a linear layer without forming it:

- ``squared_norms``: ``|g_i|^2``, and a margin that covers rounding;
- ``unit_norms``: L1 norm of every row of g_i, and its L2 norm over that;
- ``weighted_sum``: sum_i s_i g_i, with one factor per example or per (example, row);
- ``per_example``: g_i itself, for a few rows at a time.

Formal guarantees
-----------------
Rows whose factor is zero contribute exactly zero whatever they hold, inf and NaN
included. A row with an entry beyond `LARGEST` or not finite is not `finite`; callers
give it the factor zero. Norms never fall short of the true norm by more than their
margin and the relative margin of `clipping`.

Sums over rows are taken in float64. A clipped row adds its gradient, of norm at most C,
or the parts of it, one per use of the layer, which can cancel; margins keep the sum of
the parts' norms below `LARGEST_SUM` times C. In whatever order, a float64 sum of K
addends is off by less than K 2^-53 times the sum of their norms. At most `ADDENDS` are
added up at once, and these sums then, so that n rows of T parts are added up with an
error below ::

    n k (ADDENDS + n T / ADDENDS) 2^-53 C,    k = LARGEST_SUM, or 1 at T = 1:

2e-9 C for 4,096 rows at T = 1, 2e-7 C at T = 8. Clipping leaves 1e-5 C unused, which is
more than the errors of two sums of up to a million rows at T = 1, or 100,000 at T = 8.

Edge cases: no rows give zero sums; a layer used T times in one forward pass is one site
of T positions; a module with parameters and no rule goes through `torch.func`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call, vjp, vmap
from torch.nn.grad import conv2d_weight

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear

LARGEST = 1e10
LARGEST_SUM = 64.0
"""Norms of the parts of a clipped gradient, added up, over the clipping norm."""
ADDENDS = 4096
"""Products that are added up at once."""
_ROUNDING = 8 * 2.0**-24

Sums = dict[nn.Parameter, Tensor]


class Output:
    """Where a layer's output stands in the graph; its numbers can be freed."""

    def __init__(self, x: Tensor) -> None:
        self.edge = get_gradient_edge(x)
        self._like = x.shape, x.dtype, x.device

    def zeros(self) -> Tensor:
        """Return a gradient of zeros."""
        shape, dtype, device = self._like
        return torch.zeros(shape, dtype=dtype, device=device)


Call = tuple[tuple[Tensor, ...], tuple[Output, ...]]


class LayerGradients:
    """Gradients of one layer's parameters, one per example.

    Parameters
    ----------
    module : Module
        The layer.
    inputs, grads : list of tuple of Tensor
        Its inputs, and the gradients of the summed loss at its outputs, call by call;
        the first axis of every tensor runs over the examples.
    """

    chunk_size = ADDENDS
    """Examples whose gradients are formed at a time for a sum."""

    def __init__(
        self,
        module: nn.Module,
        inputs: Sequence[tuple[Tensor, ...]],
        grads: Sequence[tuple[Tensor, ...]],
    ) -> None:
        self.module = module
        self.inputs = [tuple(x.detach() for x in call) for call in inputs]
        self.grads = list(grads)
        self.parameters = list(module.parameters(recurse=False))

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of the gradient that can differ from zero."""
        return sum(p.numel() for p in self.parameters)

    def finite(self) -> Tensor:
        """Return which examples hold usable numbers everywhere, shape (n,)."""
        tensors = [x for call in (*self.inputs, *self.grads) for x in call]
        flags = [_usable(x) for x in tensors if x.is_floating_point()]
        return torch.stack(flags).all(0)

    def keep(self, rows: Tensor) -> None:
        """Replace all other rows by zeros, so that no product can see them."""
        self.inputs = [tuple(_kept(x, rows) for x in call) for call in self.inputs]
        self.grads = [tuple(_kept(x, rows) for x in call) for call in self.grads]

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        """Return the gradients themselves, one (n, *shape) tensor per parameter."""
        raise NotImplementedError

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        """Return ``|g_i|^2``, and a margin for ``|g_i|``; float64 of shape (n,)."""
        squares = [g.double().flatten(1).square().sum(1) for g in self.per_example()]
        total = torch.stack(squares).sum(0)
        return total, total.sqrt() * _ROUNDING

    def unit_norms(self) -> list[tuple[Tensor, Tensor]]:
        """Return the L1 norm of every row, and its L2 norm divided by it.

        Returns
        -------
        list of tuple of Tensor
            For every parameter two tensors of shape (n, rows), or (n, 1) for the second
            where it is the same in all rows.
        """
        norms = []
        for g in self.per_example():
            rows = g.double().flatten(2) if g.ndim > 2 else g.double().unsqueeze(-1)
            norms.append(_with_ratio(rows.abs().sum(-1), rows.square().sum(-1).sqrt()))
        return norms

    def weighted_sum(self, factors: Tensor | list[Tensor]) -> Sums:
        """Return sum_i s_i g_i per parameter, in float64.

        Parameters
        ----------
        factors : Tensor of shape (n,), or list of tensors of shape (n, rows)
            One factor per example, or per example and row of every item of
            `unit_norms`.
        """
        sums = {p: torch.zeros_like(p, dtype=torch.float64) for p in self.parameters}
        for rows in _parts(len(self.inputs[0][0]), self.chunk_size):
            grads = self.per_example(rows)
            for k, (p, g) in enumerate(zip(self.parameters, grads, strict=True)):
                s = factors[rows] if isinstance(factors, Tensor) else factors[k][rows]
                s = s.double().view(s.shape + (1,) * (g.ndim - s.ndim))
                # 0 x inf is not 0: rows without weight are left out, not multiplied.
                sums[p] += torch.where(s > 0, s * g, 0.0).sum(0)
        return sums

    def grouped(self, groups: Tensor, n_groups: int) -> list[Tensor]:
        """Return sum of g_i over every group, one (n_groups, *shape) per parameter."""
        sums = []
        for g in self.per_example():
            zeros = g.new_zeros((n_groups, *g.shape[1:]))
            sums.append(zeros.index_add_(0, groups, g))
        return sums


class LinearGradients(LayerGradients):
    """Closed forms for `MaskedLinear`, used once (T = 1) or in T positions.

    With e_t, a_t the output gradient and input at position t, the weight's gradient is
    ``M o sum_t e_t a_t^T`` and its squared norm ``sum_{t,s} (e_t o e_s)^T M (a_t o
    a_s)``; the bias is one more input, of value 1, that every output sees.
    """

    module: MaskedLinear

    @property
    def n_coordinates(self) -> int:
        return self.module.n_free + self.module.bias.numel()

    def __init__(
        self,
        module: nn.Module,
        inputs: Sequence[tuple[Tensor, ...]],
        grads: Sequence[tuple[Tensor, ...]],
    ) -> None:
        super().__init__(module, inputs, grads)
        layer = self.module
        self.a = _joined([_three(call[0]) for call in self.inputs])
        self.e = _joined([_three(call[0]) for call in self.grads])
        self.single = self.a.shape[1] == 1
        # Sums of squares per group: they serve the norms, and tell unusable rows.
        self.a2 = _group_squares(self.a, layer.in_membership)
        self.e2 = _group_squares(self.e, layer.out_membership)

    def finite(self) -> Tensor:
        sizes = torch.maximum(self.a2.sum((1, 2)), self.e2.sum((1, 2)))
        return sizes <= LARGEST**2

    def keep(self, rows: Tensor) -> None:
        self.a, self.e = _kept(self.a, rows), _kept(self.e, rows)
        self.a2, self.e2 = _kept(self.a2, rows), _kept(self.e2, rows)

    @property
    def _slack(self) -> float:
        """What float32 sums over inputs and outputs can lose, relative to them."""
        return float(sum(self.module.weight.shape)) * 2.0**-24

    def _overlaps(self) -> Tensor:
        """Return sum over inputs of a_t o a_s, by group, (n, T, T, groups)."""
        return _group_products(self.a.double(), self.module.in_membership)

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        layer = self.module
        if self.single:
            # Nothing cancels: float32 loses no more than one digit per addend.
            seen = self.a2 @ layer.visible.T + 1
            total = (self.e2 * seen).sum((1, 2)).double()
            return total, total.sqrt() * (_ROUNDING + self._slack)
        seen = _group_products(self.e.double(), layer.out_membership)
        weight = ((seen @ layer.visible.double()) * self._overlaps()).sum((1, 2, 3))
        total = (weight + seen.sum((1, 2, 3))).clamp(min=0)
        sizes = self.e2.double().sum(2) * (self.a2.double().sum(2) + 1)
        return total, _margin(total.sqrt(), sizes.sqrt().sum(1))

    def unit_norms(self) -> list[tuple[Tensor, Tensor]]:
        layer = self.module
        seen = _group_sizes(self.a, layer.in_membership) @ layer.visible.T + 1
        l1 = self.e.abs() * self._by_unit(seen)
        if self.single:
            ratio = (self.a2 @ layer.visible.T + 1).sqrt() / seen
            ratio *= 1 + self._slack
            return [(l1[:, 0], self._by_unit(ratio)[:, 0])]
        l1 = l1.sum(1)
        e = self.e.double()
        given = self._overlaps() @ layer.visible.double().T + 1
        cross = torch.einsum("ntu,nsu,ntsu->nu", e, e, self._by_unit(given))
        l2 = cross.clamp(min=0).sqrt()
        lengths = (self.a2 @ layer.visible.T + 1).double().sqrt()
        sizes = (e.abs() * self._by_unit(lengths)).sum(1)
        return [_with_ratio(l1, l2 + _margin(l2, sizes) + l1 * _ROUNDING)]

    def _by_unit(self, by_group: Tensor) -> Tensor:
        """Spread values per output group over the units of each group."""
        if by_group.shape[-1] == 1:
            return by_group
        return by_group @ self.module.out_membership.T.to(by_group.dtype)

    def weighted_sum(self, factors: Tensor | list[Tensor]) -> Sums:
        layer = self.module
        s = factors.unsqueeze(1) if isinstance(factors, Tensor) else factors[0]
        weight = torch.zeros_like(layer.weight, dtype=torch.float64)
        bias = torch.zeros_like(layer.bias, dtype=torch.float64)
        for rows in _parts(len(self.e), ADDENDS // max(1, self.e.shape[1])):
            e = (self.e[rows] * s[rows].double().unsqueeze(1)).flatten(0, 1)
            weight += e.T @ self.a[rows].double().flatten(0, 1)
            bias += e.sum(0)
        if not layer.is_dense:
            weight *= layer.mask
        return {layer.weight: weight, layer.bias: bias}

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        a, e = self.a[rows], self.e[rows]
        return [torch.einsum("ntu,ntv->nuv", e, a) * self.module.mask, e.sum(1)]

    def grouped(self, groups: Tensor, n_groups: int) -> list[Tensor]:
        sums = [self._group_sum(groups == g) for g in range(n_groups)]
        return [torch.stack(parts) for parts in zip(*sums, strict=True)]

    def _group_sum(self, members: Tensor) -> tuple[Tensor, Tensor]:
        a, e = self.a[members].flatten(0, 1), self.e[members].flatten(0, 1)
        return (e.T @ a) * self.module.mask, e.sum(0)


class FlowGradients(LayerGradients):
    """A linear flow: gradients in float64, since those of several uses can cancel."""

    def _calls(self, rows: slice) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield input and both outputs' gradients of some examples, per call."""
        for (x,), (e, e_det) in zip(self.inputs, self.grads, strict=True):
            yield x[rows].double(), e[rows].double(), e_det[rows].double()


class LowRankGradients(FlowGradients):
    """``ds = e o x, dA = e (Bx)^T, dB = (A^T e) x^T``, log-determinant included."""

    module: LowRankLinear

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        layer = self.module
        inverse = torch.linalg.inv(layer.matrix().detach().double()).T
        left, right = layer.left.detach().double(), layer.right.detach().double()
        totals: list[Tensor] | None = None
        for x, e, e_det in self._calls(rows):
            k = e_det[:, None]
            parts = [
                e * x + k * inverse.diagonal(),
                _outer(e, x @ right.T) + k[:, None] * (inverse @ right.T),
                _outer(e @ left, x) + k[:, None] * (left.T @ inverse),
            ]
            totals = _add(totals, parts)
        return totals or []


class LUGradients(FlowGradients):
    """``dL = tril_-1((P^T e)(Ux)^T), dU = triu((P L)^T e x^T) + K``."""

    module: LULinear

    @property
    def n_coordinates(self) -> int:
        return self.module.lower.numel()

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        layer = self.module
        left, upper = (factor.detach().double() for factor in layer.factors())
        inverse = torch.diag(1 / upper.diagonal())
        order = layer.permutation.double()
        totals: list[Tensor] | None = None
        for x, e, e_det in self._calls(rows):
            k = e_det[:, None, None]
            parts = [
                _outer(e @ order, x @ upper.T).tril(-1),
                _outer(e @ left, x).triu() + k * inverse,
            ]
            totals = _add(totals, parts)
        return totals or []


class GenericGradients(LayerGradients):
    """Any module that treats its examples apart, through `torch.func`."""

    chunk_size = 64

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        params = dict(self.module.named_parameters(recurse=False))
        names = list(params)
        if not len(self.inputs[0][0][rows]):
            return [p.detach().new_zeros((0, *p.shape)) for p in params.values()]
        frozen = {name: p.detach() for name, p in params.items()}

        def pull_back(x: tuple[Tensor, ...], e: tuple[Tensor, ...]) -> list[Tensor]:
            def run(values: dict[str, Tensor]) -> tuple[Tensor, ...]:
                args = tuple(v.unsqueeze(0) for v in x)
                out = functional_call(self.module, values, args)
                return tuple(v.squeeze(0) for v in _tuple(out))

            grads = vjp(run, frozen)[1](e)[0]
            return [grads[name] for name in names]

        mapped = vmap(pull_back, chunk_size=self.chunk_size)
        totals: list[Tensor] | None = None
        for x, e in zip(self.inputs, self.grads, strict=True):
            parts = mapped(tuple(v[rows] for v in x), tuple(v[rows] for v in e))
            totals = _add(totals, parts)
        return totals or []


class ConvGradients(LayerGradients):
    """Closed forms for convolutions, unfolded into linear maps of T positions.

    With x unfolded into patches a_t and e_t the output gradient at position t, the
    weight's gradient is ``sum_t e_t a_t^T``; that of a transposed convolution, the
    adjoint of one, is ``sum_t x_t b_t^T`` with b_t the patches of the output gradient.
    Norms materialise the gradients of `chunk_size` examples at a time.
    """

    module: nn.Conv2d | nn.ConvTranspose2d
    chunk_size = 64

    @staticmethod
    def serves(module: nn.Module) -> bool:
        """Return whether the rule covers a layer's settings."""
        return (
            isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))
            and module.groups == 1
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )

    def _patches(self, x: Tensor) -> Tensor:
        layer = self.module
        assert not isinstance(layer.padding, str)
        patches: Tensor = torch.nn.functional.unfold(
            x, layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        return patches

    def _factors(self, rows: slice | Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield (n, p, T), (n, q, T) and the output gradient (n, out, T), per call."""
        for (x,), (e,) in zip(self.inputs, self.grads, strict=True):
            x, e = x[rows], e[rows]
            if isinstance(self.module, nn.Conv2d):
                yield e.flatten(2), self._patches(x), e.flatten(2)
            else:
                yield x.flatten(2), self._patches(e), e.flatten(2)

    def _shaped(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        shape = weight.shape[:-2] + self.module.weight.shape
        return self._present([weight.reshape(shape), bias])

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        totals: list[Tensor] | None = None
        for left, right, e in self._factors(rows):
            weight = left @ right.transpose(1, 2)
            totals = _add(totals, self._shaped(weight, e.sum(2)))
        return totals or []

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        chunks = _parts(len(self.inputs[0][0]), self.chunk_size)
        parts = [self._chunk_norms(rows) for rows in chunks]
        squares, margins = zip(*parts, strict=True)
        return torch.cat(squares), torch.cat(margins)

    def _chunk_norms(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return squared norms of some examples, and their margins.

        In float32 T addends per entry lose at most ``T 2^-24`` of S, the sum of
        ``|left_t| sqrt(|right_t|^2 + 1)`` (positions may cancel), and the norm of q
        entries at most ``q 2^-24`` of itself.
        """
        totals: list[Tensor] | None = None
        sizes = torch.zeros(1, dtype=torch.float64, device=self.inputs[0][0].device)
        n_addends = 0
        for left, right, e in self._factors(rows):
            weight = left @ right.transpose(1, 2)
            totals = _add(totals, [weight, e.sum(2).unsqueeze(2)])
            sizes = sizes + (_lengths(left) * _lengths(right)).sum(1)
            sizes = sizes + _lengths(e).sum(1)
            n_addends += max(left.shape[2], e.shape[2])
        squares = [
            torch.linalg.vector_norm(g, dim=2).double().square().sum(1)
            for g in self._present(totals or [])
        ]
        total = torch.stack(squares).sum(0)
        margins = sizes * (_ROUNDING + n_addends * 2.0**-24)
        return total, margins + total.sqrt() * right.shape[1] * 2.0**-24

    def _present(self, parts: list[Tensor]) -> list[Tensor]:
        return parts if self.module.bias is not None else parts[:1]

    def grouped(self, groups: Tensor, n_groups: int) -> list[Tensor]:
        # One product per group: no gradient of a single example is formed.
        sums = [self._sum(groups == g) for g in range(n_groups)]
        return [torch.stack(parts) for parts in zip(*sums, strict=True)]

    def _sum(self, rows: Tensor) -> list[Tensor]:
        """Return the sum of some examples' gradients."""
        totals: list[Tensor] | None = None
        for (x,), (e,) in zip(self.inputs, self.grads, strict=True):
            x, e = x[rows], e[rows]
            parts = self._present([self._weight_sum(x, e), e.sum((0, 2, 3))])
            totals = _add(totals, parts)
        return totals or []

    def _weight_sum(self, x: Tensor, e: Tensor) -> Tensor:
        """Return the sum over examples of the weight's gradient."""
        layer = self.module
        if isinstance(layer, nn.ConvTranspose2d):
            x, e = e, x
        if x.device.type == "cpu" and len(x):
            sums: Tensor = conv2d_weight(  # type: ignore[no-untyped-call]
                x, layer.weight.shape, e, layer.stride, layer.padding, layer.dilation
            )
            return sums
        # cuDNN may take an algorithm that rounds more than the margins of norms allow.
        weight = torch.einsum("npt,nqt->pq", e.flatten(2), self._patches(x))
        return weight.view_as(layer.weight)


RULES: dict[type[nn.Module], type[LayerGradients]] = {
    MaskedLinear: LinearGradients,
    LowRankLinear: LowRankGradients,
    LULinear: LUGradients,
    nn.Conv2d: ConvGradients,
    nn.ConvTranspose2d: ConvGradients,
}


def _rule_of(module: nn.Module) -> type[LayerGradients]:
    rule = RULES.get(type(module), GenericGradients)
    return (
        GenericGradients if rule is ConvGradients and not rule.serves(module) else rule
    )


def free_coordinates(model: nn.Module) -> dict[nn.Parameter, Tensor]:
    """Return masks of the coordinates that a parameter uses, where it does not use all.

    What is not used has no gradient; noise there would be released bare.
    """
    masks = {}
    for module in model.modules():
        if isinstance(module, MaskedLinear) and not module.is_dense:
            masks[module.weight] = module.mask
        elif isinstance(module, LULinear):
            ones = torch.ones_like(module.lower)
            masks[module.lower], masks[module.upper] = ones.tril(-1), ones.triu()
    return masks


@contextmanager
def record(model: nn.Module) -> Iterator[dict[nn.Module, list[Call]]]:
    """Record inputs and outputs of every layer that owns parameters.

    Parameters
    ----------
    model : Module
        Every parameter must belong to a module that is *called* during the forward
        pass; `sites` refuses others.

    Yields
    ------
    dict
        From layer to the list of its calls, filled while the model runs.
    """
    calls: dict[nn.Module, list[Call]] = {}

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        outputs = tuple(Output(x) for x in _tuple(output))
        calls.setdefault(module, []).append((_tuple(args), outputs))

    owners = [
        m for m in model.modules() if any(p.requires_grad for p in m.parameters(False))
    ]
    handles = [m.register_forward_hook(keep) for m in owners]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def sites(
    model: nn.Module,
    calls: dict[nn.Module, list[Call]],
    loss: Tensor,
    retain_graph: bool = False,
) -> list[LayerGradients]:
    """Run the one backward pass and return a site per layer.

    Parameters
    ----------
    model : Module
        The model that was recorded.
    calls : dict
        What `record` kept.
    loss : Tensor of shape ()
        Sum of one loss per example, each of which depends on its own row alone (or, for
        `LayerGradients.grouped`, of one loss per group).
    retain_graph : bool, default=False
        Whether a second loss of the same forward pass will follow.

    Raises
    ------
    ValueError
        When a parameter belongs to no recorded layer: its gradient would escape
        clipping.
    """
    outputs = [out for layer in calls.values() for call in layer for out in call[1]]
    grads = torch.autograd.grad(
        loss,
        [out.edge for out in outputs],
        allow_unused=True,
        retain_graph=retain_graph,
    )
    stream = iter(
        out.zeros() if g is None else g for out, g in zip(outputs, grads, strict=True)
    )
    found: list[LayerGradients] = []
    for module, layer in calls.items():
        rule = _rule_of(module)
        upstream = [tuple(next(stream) for _ in call[1]) for call in layer]
        found.append(rule(module, [call[0] for call in layer], upstream))
    covered = {id(p) for site in found for p in site.parameters}
    missing = [
        name
        for name, p in model.named_parameters()
        if p.requires_grad and id(p) not in covered
    ]
    if missing:
        raise ValueError(
            f"Parameters {missing} belong to no layer that was called: their "
            "gradients cannot be clipped, so no guarantee would cover them. Use "
            "them inside the forward method of the module that owns them."
        )
    return found


def _parts(n: int, size: int) -> Iterator[slice]:
    """Cut n examples into slices, one of which is empty if n is 0."""
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, max(1, n), size))


def _margin(norms: Tensor, sizes: Tensor) -> Tensor:
    """Return what to add to norms of sums of parts whose norms add up to `sizes`.

    It covers rounding, and keeps parts that cancel from being large after clipping.
    """
    return torch.maximum(sizes * _ROUNDING, sizes / LARGEST_SUM - norms)


def _lengths(x: Tensor) -> Tensor:
    """Return the length of every position, (n, T), of (n, p, T)."""
    return x.square().sum(1).double().sqrt()


def _usable(x: Tensor) -> Tensor:
    small = x.abs() <= LARGEST
    whole: Tensor = small.flatten(1).all(1) if x.ndim > 1 else small
    return whole


def _kept(x: Tensor, rows: Tensor) -> Tensor:
    return torch.where(rows.view((-1,) + (1,) * (x.ndim - 1)), x, torch.zeros_like(x))


def _group_products(x: Tensor, membership: Tensor) -> Tensor:
    """Return inner products of positions by group, (n, T, T, groups)."""
    if membership.shape[1] == 1:
        return (x @ x.transpose(1, 2)).unsqueeze(3)
    return torch.einsum("ntv,nsv,vg->ntsg", x, x, membership.to(x.dtype))


def _group_squares(x: Tensor, membership: Tensor) -> Tensor:
    """Return sums of squares by group, (n, T, groups)."""
    if membership.shape[1] == 1:
        norms: Tensor = torch.linalg.vector_norm(x, dim=2, keepdim=True)
        return norms.square()
    return x.square() @ membership


def _group_sizes(x: Tensor, membership: Tensor) -> Tensor:
    """Return sums of magnitudes by group, (n, T, groups)."""
    sizes = x.abs()
    one = membership.shape[1] == 1
    return sizes.sum(2, keepdim=True) if one else sizes @ membership


def _with_ratio(l1: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    return l1, l2 / l1.clamp(min=torch.finfo(l1.dtype).tiny)


def _three(x: Tensor) -> Tensor:
    return x.unsqueeze(1) if x.ndim == 2 else x


def _joined(positions: Sequence[Tensor]) -> Tensor:
    return positions[0] if len(positions) == 1 else torch.cat(list(positions), 1)


def _outer(e: Tensor, x: Tensor) -> Tensor:
    return e.unsqueeze(2) * x.unsqueeze(1)


def _tuple(value: Any) -> tuple[Tensor, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _add(totals: list[Tensor] | None, parts: Sequence[Tensor]) -> list[Tensor]:
    if totals is None:
        return list(parts)
    return [t + p for t, p in zip(totals, parts, strict=True)]
