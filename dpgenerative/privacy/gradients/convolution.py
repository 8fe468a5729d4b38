"""The rule of two-dimensional convolutions."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import unfold
from torch.nn.grad import conv2d_weight

from dpgenerative.privacy.gradients.core import (
    ROUNDING,
    LayerGradients,
    Tensors,
    added,
    by_group,
    register_rule,
)


@register_rule(nn.Conv2d, nn.ConvTranspose2d)
class ConvGradients(LayerGradients):
    """Closed forms for convolutions, unfolded into linear maps of T positions.

    With x unfolded into patches a_t and e_t the output gradient at position t, the
    weight's gradient is ``sum_t e_t a_t^T``; that of a transposed convolution, the
    adjoint of one, is ``sum_t x_t b_t^T`` with b_t the patches of the output gradient.

    Here T is large and a weight small: forming the gradients of `chunk_size` examples
    at a time costs less than products of all pairs of positions.
    """

    module: nn.Conv2d | nn.ConvTranspose2d
    chunk_size = 64

    @classmethod
    def serves(cls, module: nn.Module) -> bool:
        """Return whether the rule covers the settings of a layer."""
        return (
            isinstance(module, (nn.Conv2d, nn.ConvTranspose2d))
            and module.groups == 1
            and module.padding_mode == "zeros"
            and not isinstance(module.padding, str)
        )

    def _patches(self, x: Tensor) -> Tensor:
        layer = self.module
        assert not isinstance(layer.padding, str)
        patches: Tensor = unfold(
            x, layer.kernel_size, layer.dilation, layer.padding, layer.stride
        )
        return patches

    def _factors(self, inputs: Tensors, grads: Tensors) -> Tensors:
        """Return (n, p, T), (n, q, T) and the output gradient (n, out, T) of a call."""
        (x,), (e,) = inputs, grads
        if isinstance(self.module, nn.Conv2d):
            return e.flatten(2), self._patches(x), e.flatten(2)
        return x.flatten(2), self._patches(e), e.flatten(2)

    def _present(self, weight: Tensor, bias: Tensor) -> list[Tensor]:
        return [weight] if self.module.bias is None else [weight, bias]

    def of_call(self, inputs: Tensors, grads: Tensors) -> list[Tensor]:
        left, right, e = self._factors(inputs, grads)
        weight = left @ right.transpose(1, 2)
        shape = weight.shape[:-2] + self.module.weight.shape
        return self._present(weight.reshape(shape), e.sum(2))

    def squared_norms(self) -> tuple[Tensor, Tensor]:
        norms = [self._chunk_norms(rows) for rows in self.chunks()]
        squares, margins = zip(*norms, strict=True)
        return torch.cat(squares), torch.cat(margins)

    def _chunk_norms(self, rows: slice) -> tuple[Tensor, Tensor]:
        """Return squared norms of some examples, and their margins.

        In float32 T addends per entry lose at most ``T 2^-24`` of S, the sum of
        ``|left_t| sqrt(|right_t|^2 + 1)`` (positions may cancel), and the norm of q
        entries at most ``q 2^-24`` of itself.
        """
        factors = [self._factors(*call) for call in self.calls(rows)]
        grads = added(
            self._present(left @ right.transpose(1, 2), e.sum(2).unsqueeze(2))
            for left, right, e in factors
        )
        sizes = torch.zeros(1, dtype=torch.float64, device=grads[0].device)
        for left, right, e in factors:
            sizes = sizes + (_lengths(left) * _lengths(right)).sum(1)
            sizes = sizes + _lengths(e).sum(1)
        n_addends = sum(max(left.shape[2], e.shape[2]) for left, _, e in factors)
        squares = [
            torch.linalg.vector_norm(g, dim=2).double().square().sum(1) for g in grads
        ]
        total = torch.stack(squares).sum(0)
        margins = sizes * (ROUNDING + n_addends * 2.0**-24)
        return total, margins + total.sqrt() * grads[0].shape[2] * 2.0**-24

    def grouped(self, groups: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        # One product per group: no gradient of a single example is formed.
        return by_group(self._sum, groups, sizes)

    def _sum(self, rows: Tensor) -> list[Tensor]:
        """Return the sum of some examples' gradients."""
        return added(
            self._present(self._weight_sum(x, e), e.sum((0, 2, 3)))
            for (x,), (e,) in self.calls(rows)
        )

    def _weight_sum(self, x: Tensor, e: Tensor) -> Tensor:
        """Return the sum over examples of the weight's gradient."""
        layer = self.module
        if isinstance(layer, nn.ConvTranspose2d):
            x, e = e, x
        if x.device.type == "cpu" and len(x):
            sums: Tensor = conv2d_weight(
                x, layer.weight.shape, e, layer.stride, layer.padding, layer.dilation
            )
            return sums
        # cuDNN may take an algorithm that rounds more than the margins of norms allow.
        weight = torch.einsum("npt,nqt->pq", e.flatten(2), self._patches(x))
        return weight.view_as(layer.weight)


def _lengths(x: Tensor) -> Tensor:
    """Return the length of every position, (n, T), of (n, p, T)."""
    return x.square().sum(1).double().sqrt()
