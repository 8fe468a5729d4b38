"""Slow, obvious versions: one example at a time, by autograd."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients import layer_gradients, record
from dpgenerative.privacy.steps import Clipper


class Net(nn.Module):
    """A masked layer used `uses` times, both linear flows and a layer with no rule."""

    def __init__(self, uses: int, d: int = 4, seed: int = 0, scale: float = 1.0):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        groups = torch.tensor([0, 0, 1, 2])[:d]
        visible = torch.ones(3, 3, dtype=torch.bool).tril()
        self.shared = MaskedLinear(groups, groups, visible, g)
        self.low_rank = LowRankLinear(d, rank=2, generator=g, bias=True)
        self.lu = LULinear(d, generator=g)
        self.free = nn.Conv1d(1, 2, 3, padding=1)
        self.head = MaskedLinear.dense(2 * d, 3, g)
        self.uses = uses
        with torch.no_grad():
            for p in self.parameters():
                noise = torch.randn(p.shape, generator=g)
                p.add_(0.3 * scale * noise)
            for layer in (self.shared, self.head):
                layer.weight.mul_(layer.mask)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for _ in range(self.uses):
            x = torch.tanh(self.shared(x))
        x, log_det1 = self.low_rank(x)
        x, log_det2 = self.lu(x)
        h = self.free(x.unsqueeze(1)).flatten(1)
        return self.head(torch.tanh(h)).square().sum(1) - log_det1 - log_det2, x


class FixedNoise(nn.Module):
    """An autoencoder in double precision, whose loss draws nothing."""

    def __init__(self, vae: nn.Module, n_draws: int):
        super().__init__()
        self.vae = vae.double()
        generator = torch.Generator().manual_seed(5)
        noise = torch.randn(1, n_draws, vae.latent_dim, generator=generator)
        self.noise = noise.double()

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        bound, latents = self.vae(rows, self.noise.expand(len(rows), -1, -1))
        return -bound, latents.draws.flatten(1)


class Silent:
    """Hands the gradient on without noise."""

    def gradient(self, parts, stds, **stated):
        return parts


def layers_of(model: nn.Module, x: Tensor) -> list:
    """Return what closed forms know of the gradients of all rows."""
    with record(model) as calls:
        losses, _ = model(x)
    return layer_gradients(model, calls, losses.sum(), len(x))


def per_example_gradients(model: nn.Module, x: Tensor) -> list[dict]:
    """Return one {parameter: gradient} per row."""
    params = list(model.parameters())
    rows = []
    for row in x:
        loss = model(row[None])[0].sum()
        grads = torch.autograd.grad(loss, params)
        rows.append(dict(zip(params, grads, strict=True)))
    return rows


def norm(gradient: dict) -> float:
    """Return the norm over all parameters, in float64."""
    squares = [g.double().square().sum() for g in gradient.values()]
    return float(torch.stack(squares).sum().sqrt())


def sum_of_clipped(rows, p, bound):
    """Return the sum of clipped gradients in p, less the margin for its rounding."""
    most = bound / (1 + clipping._MARGIN)
    return sum(row[p] * min(1, most / norm(row)) for row in rows)


def are_clipped_one_by_one(model: nn.Module, x: Tensor) -> bool:
    """Return whether sums of clipped gradients are those of one row at a time."""
    rows = per_example_gradients(model, x)
    bound = sorted(map(norm, rows))[len(rows) // 3]
    present = torch.ones(len(x), dtype=torch.bool)
    found = Clipper("flat", bound).clipped_sums(layers_of(model, x), present, None)
    expected = {p: sum_of_clipped(rows, p, bound) for p in found}
    return all(
        (total - expected[p]).norm() <= 1e-4 * expected[p].norm()
        for p, total in found.items()
    )
