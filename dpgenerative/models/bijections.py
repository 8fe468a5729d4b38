"""Elementwise monotone maps with exact inverses and log-derivatives."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

MIN_BIN = 1e-3
MIN_SLOPE = 1e-3
_UNIT_SLOPE = math.log(math.expm1(1 - MIN_SLOPE))


def n_spline_parameters(n_bins: int) -> int:
    """Return how many numbers describe one spline: widths, heights, inner slopes."""
    return 3 * n_bins - 1


def _knots(params: Tensor, n_bins: int, bound: float) -> tuple[Tensor, Tensor, Tensor]:
    widths, heights, slopes = params.split([n_bins, n_bins, n_bins - 1], dim=-1)

    def positions(raw: Tensor) -> Tensor:
        shares = MIN_BIN + (1 - MIN_BIN * n_bins) * raw.softmax(-1)
        inner = F.pad(shares.cumsum(-1)[..., :-1], (1, 0))
        return F.pad(2 * bound * inner - bound, (0, 1), value=bound)

    slopes = F.pad(MIN_SLOPE + F.softplus(slopes + _UNIT_SLOPE), (1, 1), value=1.0)
    return positions(widths), positions(heights), slopes


def rational_quadratic_spline(
    x: Tensor, params: Tensor, n_bins: int, bound: float, inverse: bool = False
) -> tuple[Tensor, Tensor]:
    """Monotone rational-quadratic spline with identity tails (Durkan et al. 2019).

    Parameters
    ----------
    x : Tensor of shape (...)
        Points, or images when `inverse`.
    params : Tensor of shape (..., 3 n_bins - 1)
        Unconstrained widths, heights and inner slopes; zeros give the identity.
    n_bins : int
    bound : float
        The spline acts on [-bound, bound] and is the identity elsewhere.
    inverse : bool, default=False

    Returns
    -------
    y, log_slope : Tensor of shape (...)
        Images and the log-derivative of the map applied.
    """
    xs, ys, slopes = _knots(params, n_bins, bound)
    inside = (x > -bound) & (x < bound)
    safe = torch.where(inside, x, torch.zeros_like(x))
    edges = ys if inverse else xs
    k = (safe.unsqueeze(-1) >= edges[..., 1:-1]).sum(-1, keepdim=True)

    def at(values: Tensor, shift: int = 0) -> Tensor:
        return values.gather(-1, k + shift).squeeze(-1)

    x0, y0 = at(xs), at(ys)
    width, height = at(xs, 1) - x0, at(ys, 1) - y0
    d0, d1, slope = at(slopes), at(slopes, 1), height / width
    t = (safe - x0) / width
    t = _solve_bin(safe - y0, height, d0, d1, slope) if inverse else t
    curve = t * (1 - t)
    base = slope + (d0 + d1 - 2 * slope) * curve
    rise = d1 * t.square() + 2 * slope * curve + d0 * (1 - t).square()
    log_slope = 2 * slope.log() + rise.log() - 2 * base.log()
    y = y0 + height * (slope * t.square() + d0 * curve) / base
    out = x0 + width * t if inverse else y
    log_slope = -log_slope if inverse else log_slope
    zeros = torch.zeros_like(log_slope)
    return torch.where(inside, out, x), torch.where(inside, log_slope, zeros)


def _solve_bin(dy: Tensor, height: Tensor, d0: Tensor, d1: Tensor, slope: Tensor):  # type: ignore[no-untyped-def]
    """Return the position in its bin at which the spline has risen by `dy`."""
    s = d0 + d1 - 2 * slope
    a = height * (slope - d0) + dy * s
    b = height * d0 - dy * s
    c = -slope * dy
    root = (b.square() - 4 * a * c).clamp(min=0).sqrt()
    return 2 * c / (-b - root)


def logistic_mixture(x: Tensor, params: Tensor) -> tuple[Tensor, Tensor]:
    """Map x to logit(CDF of a mixture of M logistics) (Ho et al. 2019).

    Parameters
    ----------
    x : Tensor of shape (...)
    params : Tensor of shape (..., 3 M)
        Unconstrained weights, locations and log-scales; zeros give the identity.

    Returns
    -------
    y, log_slope : Tensor of shape (...)
    """
    weights, locations, log_scales = params.chunk(3, dim=-1)
    log_weights = weights.log_softmax(-1)
    z = (x.unsqueeze(-1) - locations) * (-log_scales).exp()
    log_cdf = torch.logsumexp(log_weights + F.logsigmoid(z), -1)
    log_survival = torch.logsumexp(log_weights + F.logsigmoid(-z), -1)
    log_densities = log_weights - log_scales + F.logsigmoid(z) + F.logsigmoid(-z)
    log_pdf = torch.logsumexp(log_densities, -1)
    return log_cdf - log_survival, log_pdf - log_cdf - log_survival
