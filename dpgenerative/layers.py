"""Layers whose per-example gradients have closed forms (`privacy.gradients`)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEAST_HALF = 48
"""Outputs from which on two smaller products take less time than one."""


class MaskedLinear(nn.Module):
    """Linear map in which output group g sees input group h only where allowed.

    ``y = (M o W) x + b`` with ``M[u, v] = visible[out_groups[u], in_groups[v]]``: the
    masked layer of MADE (Germain et al. 2015) and, with one group on either side, an
    ordinary linear layer. Keeping the mask as groups makes the norm of a per-example
    gradient cost as much as reading its two factors.

    Parameters
    ----------
    in_groups, out_groups : LongTensor of shape (in_features,), (out_features,)
        Group of every input and output, counted from 0.
    visible : BoolTensor of shape (n_out_groups, n_in_groups)
        Which output group sees which input group.
    generator : torch.Generator, optional
        Source of the initial weights; None starts at zero.
    """

    mask: Tensor
    visible: Tensor
    out_groups: Tensor
    in_membership: Tensor
    out_membership: Tensor
    recorded = False
    """Whether gradients are formed from inputs and outputs, so that no graph of the
    weights is needed."""

    def __init__(
        self,
        in_groups: Tensor,
        out_groups: Tensor,
        visible: Tensor,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        n_out, n_in = visible.shape
        mask = visible[out_groups][:, in_groups].float()
        weight = torch.zeros_like(mask)
        if generator is not None:
            fan_in = mask.sum(1, keepdim=True).clamp(min=1)
            noise = torch.rand(mask.shape, generator=generator) * 2 - 1
            weight = noise * mask / fan_in.sqrt()
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(len(out_groups)))
        self.is_dense = bool(visible.all())
        self.n_free = int(mask.sum())
        # Two products, of half the outputs each, where one half sees the first inputs.
        (n_outputs, n_inputs), half = mask.shape, len(mask) // 2
        ends = mask[:half].any(0).nonzero().flatten() + 1
        width = int(ends[-1]) if len(ends) else 0
        self.parts = [(slice(n_outputs), n_inputs)]
        if half >= LEAST_HALF and width <= 0.75 * n_inputs:
            self.parts = [(slice(half), width), (slice(half, n_outputs), n_inputs)]
        self.register_buffer("mask", mask)
        self.register_buffer("out_groups", out_groups)
        self.register_buffer("visible", visible.float())
        self.register_buffer("in_membership", F.one_hot(in_groups, n_in).float())
        self.register_buffer("out_membership", F.one_hot(out_groups, n_out).float())

    @classmethod
    def dense(
        cls, n_in: int, n_out: int, generator: torch.Generator | None = None
    ) -> "MaskedLinear":
        """Build an ordinary linear layer."""
        zeros_in = torch.zeros(n_in, dtype=torch.long)
        zeros_out = torch.zeros(n_out, dtype=torch.long)
        return cls(zeros_in, zeros_out, torch.ones(1, 1, dtype=torch.bool), generator)

    def masked_weight(self) -> Tensor:
        """Return the weights, zero where an output must not see an input."""
        return self.weight if self.is_dense else self.weight * self.mask

    def forward(self, x: Tensor, precomputed: Tensor | None = None) -> Tensor:
        """Return the outputs, (..., out_features).

        They are `precomputed` where the caller has them already: then they become a
        leaf of autograd's graph.
        """
        if precomputed is not None:
            return precomputed.requires_grad_()
        return F.linear(x, self.masked_weight(), self.bias)


class LinearFlow(nn.Module):
    """Invertible linear map of rows; a call returns log-determinants, too."""

    def matrix(self) -> Tensor:
        """Return the d x d matrix of the map."""
        raise NotImplementedError

    def inverse(self, y: Tensor) -> Tensor:
        """Return the rows that the map takes to the rows of `y`."""
        return torch.linalg.solve(self.matrix(), y.T).T


class LowRankLinear(LinearFlow):
    """Invertible map ``y = s o x + A (B x) + b`` (DP-HFlow, linear flow of rank r).

    Starts at the identity. The determinant follows from the matrix determinant lemma.

    Parameters
    ----------
    n_features : int
        Width d of the map.
    rank : int, default=1
        Rank r of the correction.
    generator : torch.Generator, optional
        Source of the initial B; A starts at zero.
    bias : bool, default=False
        Whether there is a b; it starts at zero.
    """

    def __init__(
        self,
        n_features: int,
        rank: int = 1,
        generator: torch.Generator | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(n_features))
        self.left = nn.Parameter(torch.zeros(n_features, rank))
        right = torch.randn(rank, n_features, generator=generator)
        self.right = nn.Parameter(right / n_features**0.5)
        self.bias = nn.Parameter(torch.zeros(n_features)) if bias else None

    def matrix(self) -> Tensor:
        return torch.diag(self.scale) + self.left @ self.right

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what every row is mapped to, and the log-determinant for each."""
        y = x * self.scale + (x @ self.right.T) @ self.left.T
        y = y if self.bias is None else y + self.bias
        core = (self.right / self.scale) @ self.left
        small = torch.eye(len(core), dtype=x.dtype, device=x.device) + core
        log_det = self.scale.abs().log().sum() + torch.linalg.slogdet(small)[1]
        return y, log_det.expand(len(x))

    def inverse(self, y: Tensor) -> Tensor:
        return super().inverse(y if self.bias is None else y - self.bias)


class LULinear(LinearFlow):
    """Invertible map ``y = P L U x`` with a fixed permutation P (Kingma and Dhariwal).

    L is unit lower triangular, U upper triangular; both start at the identity.

    Parameters
    ----------
    n_features : int
        Width d of the map.
    generator : torch.Generator, optional
        Source of the permutation.
    """

    permutation: Tensor

    def __init__(
        self, n_features: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        self.lower = nn.Parameter(torch.zeros(n_features, n_features))
        self.upper = nn.Parameter(torch.eye(n_features))
        order = torch.randperm(n_features, generator=generator)
        self.register_buffer("permutation", torch.eye(n_features)[order])

    def factors(self) -> tuple[Tensor, Tensor]:
        """Return P L and U."""
        eye = torch.eye(len(self.lower), out=torch.empty_like(self.lower))
        return self.permutation @ (self.lower.tril(-1) + eye), self.upper.triu()

    def matrix(self) -> Tensor:
        left, upper = self.factors()
        return left @ upper

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return what every row is mapped to, and the log-determinant for each."""
        left, upper = self.factors()
        log_det = self.upper.diagonal().abs().log().sum()
        return (x @ upper.T) @ left.T, log_det.expand(len(x))
