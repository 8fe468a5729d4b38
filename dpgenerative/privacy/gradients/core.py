"""Recording a model, the gradients of a layer, and the registry of rules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy import clipping
from dpgenerative.privacy.precision import added_at

LARGEST = 1e10
"""Size of an input or of an output's gradient beyond which a row counts as zero."""
LARGEST_SUM = 64.0
"""Norms of the parts of a clipped gradient, added up, over the clipping norm."""
ADDENDS = 4096
"""Products that are added up at once, in float64."""
BLOCK = 64
"""Products that are added up at once, in float32."""
PAIRED = 8
"""Sums of blocks that are added up by pairs in float32."""
ROUNDING = 8 * 2.0**-24

Tensors = tuple[Tensor, ...]
Sums = dict[nn.Parameter, Tensor]


class Output:
    """Where a layer's output stands in the graph; its numbers can be freed."""

    def __init__(self, x: Tensor) -> None:
        self.edge = get_gradient_edge(x)
        self.shape, self._like = x.shape, (x.dtype, x.device)

    def zeros(self) -> Tensor:
        """Return a gradient of zeros."""
        dtype, device = self._like
        return torch.zeros(self.shape, dtype=dtype, device=device)


Call = tuple[Tensors, tuple[Any, ...]]
"""Inputs of a layer, and its outputs: each an `Output`, if gradients flow there."""


class LayerGradients:
    """Gradients of one layer's parameters, one per example.

    A rule for a layer states `of_call`; all else follows from it by forming the
    gradients, and is overridden where there is a cheaper way.

    Parameters
    ----------
    module : Module
        The layer.
    inputs, grads : list of tuple of Tensor
        Its inputs, and the gradients of the summed loss at its outputs, call by call;
        the first axis of every tensor runs over the examples.
    """

    chunk_size: ClassVar[int] = ADDENDS
    """Examples whose gradients are formed at a time for a sum."""

    def __init__(
        self, module: nn.Module, inputs: Sequence[Tensors], grads: Sequence[Tensors]
    ) -> None:
        self.module = module
        self.inputs = [tuple(x.detach() for x in call) for call in inputs]
        self.grads = list(grads)
        self.shared: dict[Any, list[Any]] = {}
        self.parameters = list(module.parameters(recurse=False))

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        """Return whether the rule covers the settings of a layer."""
        return True

    @staticmethod
    def free_coordinates(module: nn.Module) -> dict[nn.Parameter, Tensor]:
        """Return masks of what the layer uses of parameters, if not all of them."""
        return {}

    @property
    def n_coordinates(self) -> int:
        """Number of coordinates of the gradient that can differ from zero."""
        free = self.free_coordinates(self.module)
        used = [free[p].sum() if p in free else p.numel() for p in self.parameters]
        return int(sum(used))

    def of_call(self, inputs: Tensors, grads: Tensors) -> list[Tensor]:
        """Return what one call of the layer adds to the gradient of every example.

        Parameters
        ----------
        inputs, grads : tuple of Tensor
            Inputs of the call, and gradients at its outputs, of any n >= 0 examples.

        Returns
        -------
        list of Tensor
            One of shape ``(n, *shape)`` per parameter, in the order of `parameters`.
        """
        raise NotImplementedError

    def per_example(self, rows: slice = slice(None)) -> list[Tensor]:
        """Return the gradients of some examples, ``(n, *shape)`` per parameter."""
        return added(self.of_call(*call) for call in self.calls(rows))

    def flat(self, rows: slice) -> Tensor:
        """Return the gradients of some examples as rows, (n, m), for `of_flat`."""
        return torch.cat([g.flatten(1) for g in self.per_example(rows)], 1)

    def scaled_to(self, size: float) -> Tensor | None:
        """Scale all gradients to L1 norm `size`, where that is cheap.

        Returns what they were divided by, (n, 1), or None if nothing was done.
        """
        return None

    def of_flat(self, total: Tensor) -> Sums:
        """Return a sum of rows of `flat`, (m,), per parameter."""
        pieces = torch.split(total, [p.numel() for p in self.parameters])
        pairs = zip(self.parameters, pieces, strict=True)
        return {p: piece.view_as(p) for p, piece in pairs}

    def calls(self, rows: slice | Tensor) -> Iterator[tuple[Tensors, Tensors]]:
        """Yield inputs and outputs' gradients of some examples, call by call."""
        for inputs, grads in zip(self.inputs, self.grads, strict=True):
            yield tuple(x[rows] for x in inputs), tuple(e[rows] for e in grads)

    def chunks(self) -> Iterator[slice]:
        """Yield the examples whose gradients are formed at a time."""
        return parts(len(self.inputs[0][0]), self.chunk_size)

    def finite(self) -> Tensor:
        """Return which examples hold usable numbers everywhere, shape (n,)."""
        tensors = [x for call in (*self.inputs, *self.grads) for x in call]
        flags = [_usable(x) for x in tensors if x.is_floating_point()]
        return torch.stack(flags).all(0)

    def keep(self, rows: Tensor) -> None:
        """Replace all other rows by zeros, so that no product depends on them."""
        self.inputs = [tuple(masked(x, rows) for x in call) for call in self.inputs]
        self.grads = [tuple(masked(x, rows) for x in call) for call in self.grads]

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        """Return ``|g_i|^2``, and a margin for ``|g_i|``; float64 of shape (n,)."""
        squares = [g.double().flatten(1).square().sum(1) for g in self.per_example()]
        total = torch.stack(squares).sum(0)
        return total, total.sqrt() * ROUNDING

    def unit_norms(self) -> list[tuple[Tensor, Tensor]]:
        """Return sums of rows' L1 norms, and rows' squared L2 norms over L1 norms.

        Returns
        -------
        list of tuple of Tensor
            For every parameter tensors of shape (n,) and (n, rows).
        """
        norms = []
        for g in self.per_example():
            rows = g.double().flatten(2) if g.ndim > 2 else g.double().unsqueeze(-1)
            norms.append(with_share(rows.abs().sum(-1), rows.square().sum(-1).sqrt()))
        return norms

    def unit_factors(self, bound: float, rows: Tensor) -> list[Tensor]:
        """Return factors of the rows of gradients (`clipping.unit_factors`).

        Those of all parameters together keep an example within the bound.

        Parameters
        ----------
        bound : float
        rows : BoolTensor of shape (n,)
            Which examples count.

        Returns
        -------
        list of Tensor
            Of shape (n, rows), one for every item of `unit_norms`.
        """
        norms = self.unit_norms()
        (total,) = added([sizes] for sizes, _ in norms)
        return [clipping.unit_factors(total, share, bound, rows) for _, share in norms]

    def weighted_sum(self, factors: Tensor | list[Tensor]) -> Sums:
        """Return sum_i s_i g_i per parameter, in float64.

        Parameters
        ----------
        factors : Tensor of shape (n,), or list of tensors of shape (n, rows)
            One factor per example, or those of `unit_factors`.

        Raises
        ------
        ValueError
            For other numbers of factors than of examples.
        """
        require_one_each(factors, self.inputs[0][0])
        sums = {p: torch.zeros_like(p, dtype=torch.float64) for p in self.parameters}
        for rows in self.chunks():
            grads = self.per_example(rows)
            for k, (p, g) in enumerate(zip(self.parameters, grads, strict=True)):
                s = factors[rows] if isinstance(factors, Tensor) else factors[k][rows]
                sums[p] += scaled(g, s.double()).sum(0)
        return sums

    def grouped(self, groups: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Return sum of g_i over every group, ``(n_groups, *shape)`` per parameter.

        `sizes` states how many examples every group has.
        """
        return [
            added_at(g.new_zeros((len(sizes), *g.shape[1:])), 0, groups, g)
            for g in self.per_example()
        ]


Rule = TypeVar("Rule", bound=type[LayerGradients])
RULES: dict[type[nn.Module], type[LayerGradients]] = {}
"""By class of layer, subclasses excluded; that of `nn.Module` serves all others."""


def register_rule(*layers: type[nn.Module]) -> Callable[[Rule], Rule]:
    """Register a `LayerGradients` for layers of a class, as a decorator.

    Subclasses are not served: their forward pass may be another. A rule registered
    later replaces an earlier one. Clipping relies on what a rule returns, so that a
    wrong one voids the guarantee. Before a fit, synthesizers compare models with
    autograd on made-up rows (`privacy.trial`); in tests, compare your rule with
    `GenericGradients`, which takes the same arguments, in float64.

    Parameters
    ----------
    *layers : subclasses of Module
        Layers that treat their examples apart; the first axis runs over the examples.

    Examples
    --------
    >>> import torch
    >>> from dpgenerative.privacy.gradients import LayerGradients, register_rule
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self, n_features):
    ...         super().__init__()
    ...         self.scale = torch.nn.Parameter(torch.ones(n_features))
    ...
    ...     def forward(self, x):
    ...         return self.scale * x
    >>> @register_rule(Scale)
    ... class ScaleGradients(LayerGradients):
    ...     def of_call(self, inputs, grads):
    ...         (x,), (e,) = inputs, grads
    ...         return [e * x]
    """

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(layers, rule))
        return rule

    return register


PLACES: WeakKeyDictionary[nn.Module, dict[nn.Parameter, Tensor]] = WeakKeyDictionary()


def rule_of(module: nn.Module) -> type[LayerGradients]:
    """Return the rule of a layer: of its class, or the general one."""
    rule = RULES.get(type(module), RULES[nn.Module])
    return rule if rule.serves(module) else RULES[nn.Module]


def free_coordinates(model: nn.Module) -> dict[nn.Parameter, Tensor]:
    """Return masks of the coordinates that a parameter uses, where it does not use all.

    What is not used has no gradient; noise there would be released bare.
    """
    masks = {}
    for module in model.modules():
        # A subclass has its parent's parameters, if not its rule.
        kinds = (kind for kind in type(module).__mro__ if kind in RULES)
        masks.update(RULES[next(kinds)].free_coordinates(module))
    return masks


def free_places(model: nn.Module) -> dict[nn.Parameter, Tensor] | None:
    """Return `free_coordinates` as places, from a cache; on a device, None."""
    if next(model.parameters()).device.type != "cpu":
        return None
    if model not in PLACES:
        masks = free_coordinates(model).items()
        PLACES[model] = {p: mask.flatten().nonzero()[:, 0] for p, mask in masks}
    return PLACES[model]


@contextmanager
def record(model: nn.Module) -> Iterator[dict[nn.Module, list[Call]]]:
    """Record inputs and outputs of every layer that owns parameters.

    Parameters
    ----------
    model : Module
        Every parameter must belong to a module that is *called* during the forward
        pass; `layer_gradients` refuses others.

    Yields
    ------
    dict
        From layer to the list of its calls, filled while the model runs.
    """
    calls: dict[nn.Module, list[Call]] = {}

    def keep(module: nn.Module, args: Any, output: Any) -> None:
        if not torch.is_grad_enabled():  # nothing flows back through this call
            return
        outputs = tuple(
            Output(x) if isinstance(x, Tensor) and x.requires_grad else x
            for x in as_tuple(output)
        )
        calls.setdefault(module, []).append((as_tuple(args), outputs))

    owners = [
        m for m in model.modules() if any(p.requires_grad for p in m.parameters(False))
    ]
    handles = [m.register_forward_hook(keep) for m in owners]
    linear = [m for m in owners if isinstance(m, MaskedLinear)]
    try:
        for module in linear:
            module.recorded = True
        yield calls
    finally:
        for module in linear:
            module.recorded = False
        for handle in handles:
            handle.remove()


def layer_gradients(
    model: nn.Module,
    calls: dict[nn.Module, list[Call]],
    loss: Tensor,
    n: int,
    retain_graph: bool = False,
) -> list[LayerGradients]:
    """Run the one backward pass and return the gradients of every layer.

    Parameters
    ----------
    model : Module
        The model that was recorded.
    calls : dict
        What `record` recorded.
    loss : Tensor of shape ()
        Sum of one loss per example, each of which depends on its own row alone (or, for
        `LayerGradients.grouped`, of one loss per group).
    n : int
        Number of examples.
    retain_graph : bool, default=False
        Whether a second loss of the same forward pass will follow.

    Raises
    ------
    ValueError
        When a parameter belongs to no recorded layer, or a layer's first axis is not
        the batch: gradients would escape clipping.
    """
    for module, layer in calls.items():
        _require_batch_first(module, layer, n)
    outputs = [out for layer in calls.values() for call in layer for out in call[1]]
    edges = [out.edge for out in outputs]
    grads = torch.autograd.grad(
        loss, edges, allow_unused=True, retain_graph=retain_graph
    )
    stream = iter(
        out.zeros() if g is None else g for out, g in zip(outputs, grads, strict=True)
    )
    gradients: list[LayerGradients] = []
    shared: dict[Any, list[Any]] = {}
    for module, layer in calls.items():
        upstream = [tuple(next(stream) for _ in call[1]) for call in layer]
        gradients.append(rule_of(module)(module, [call[0] for call in layer], upstream))
        gradients[-1].shared = shared
    _refuse_uncovered(model, gradients)
    return gradients


def _require_batch_first(module: nn.Module, layer: Sequence[Call], n: int) -> None:
    """Require a first axis of n examples of all that a layer takes and returns."""
    sizes = [
        tuple(x.shape[:1]) if isinstance(x, (Tensor, Output)) else ()
        for inputs, outputs in layer
        for x in (*inputs, *outputs)
    ]
    if not all(inputs for inputs, _ in layer) or {*sizes} != {(n,)}:
        # Without numbers: how many rows a batch has is private.
        raise ValueError(
            f"{type(module).__name__}, a layer with parameters, must be called with "
            "tensors, and return tensors, whose first axis is the batch: it runs over "
            "the examples, in their order. Rows that share an entry of it would be "
            "clipped as one. Move that axis to the front."
        )


def _refuse_uncovered(model: nn.Module, layers: Sequence[LayerGradients]) -> None:
    covered = {id(p) for layer in layers for p in layer.parameters}
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


# For rules ------------------------------------------------------------------------


def parts(n: int, size: int) -> Iterator[slice]:
    """Cut n examples into slices, one of which is empty if n is 0."""
    size = max(1, size)
    return (slice(start, start + size) for start in range(0, max(1, n), size))


def added(terms: Iterable[Sequence[Tensor]]) -> list[Tensor]:
    """Add up lists of tensors, entry by entry."""
    return [reduce(torch.add, each) for each in zip(*terms, strict=True)]


def require_one_each(factors: Tensor | Sequence[Tensor], examples: Tensor) -> None:
    """Require as many factors as examples: one of several would be repeated."""
    each = [factors] if isinstance(factors, Tensor) else factors
    if any(len(s) != len(examples) for s in each):
        raise ValueError("A sum of gradients takes one factor per example.")


def scaled(gradients: Tensor, factors: Tensor) -> Tensor:
    """Multiply gradients by factors; what gets 0 is left out: 0 x inf is not 0."""
    s = factors.view(factors.shape + (1,) * (gradients.ndim - factors.ndim))
    return torch.where(s > 0, s * gradients, 0.0)


def by_group(
    total: Callable[[Tensor], Sequence[Tensor]], groups: Tensor, sizes: Sequence[int]
) -> list[Tensor]:
    """Return sums over every group by a function of its members' places."""
    sums = map(total, torch.split(groups.argsort(stable=True), list(sizes)))
    return [torch.stack(each) for each in zip(*sums, strict=True)]


def margin(norms: Tensor, sizes: Tensor) -> Tensor:
    """Return what to add to norms of sums of parts whose norms add up to `sizes`.

    It covers rounding, and keeps parts that cancel from being large after clipping.
    """
    return torch.maximum(sizes * ROUNDING, sizes / LARGEST_SUM - norms)


def with_share(l1: Tensor, l2: Tensor) -> tuple[Tensor, Tensor]:
    """Return the sum of rows' L1 norms, and squared L2 norms over L1 norms."""
    return l1.sum(1), l2.square() / l1.clamp(min=torch.finfo(l1.dtype).tiny)


def masked(x: Tensor, rows: Tensor, other: float = 0.0) -> Tensor:
    """Return a tensor with zeros, or another number, in all other rows."""
    where = rows.view((-1,) + (1,) * (x.ndim - 1))
    return torch.where(where, x, x.new_full((), other))


def as_tuple(value: Any) -> Tensors:
    """Return what a layer takes or returns as a tuple."""
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _usable(x: Tensor) -> Tensor:
    small = x.abs() <= LARGEST
    whole: Tensor = small.flatten(1).all(1) if x.ndim > 1 else small
    return whole
