"""Clipping: how much one record may move the sum of gradients.

Every strategy cuts the coordinates into groups with a bound each, so that the squares
of the bounds sum to C^2. Whatever the gradient, what is left of it has norm at most C:
the sensitivity of the sum under adding or removing one record.

- ``flat``: one group.
- ``per-layer``: C_l = C sqrt(n_l / n), by number of coordinates.
- ``per-unit``: inside a layer, row u of the weight gets C_l sqrt(w_u / sum w), w_u the
  row's L1 norm (DP-HFlow). The split depends on the record; its squares sum to C_l^2
  for every record, which is all that privacy needs.
- ``sparsified``: a stochastic operator thins each record's layer gradient before the
  layer's clip (DP-HFlow).

Formal guarantees, for C of 1e-10 and more (squares of float32 hold no less): for every
row, ``sum of squared bounds <= C^2``; factors lie in [0, 1]; a row of norm inf or NaN,
or of more than 1e37 C, gets the factor 0; a row of norm 0 gets 1.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.functional import softshrink

_MARGIN = 9e-4
"""What sums of clipped gradients may lose to rounding (`gradients`)."""
_LEAST = torch.finfo(torch.float32).tiny
LARGEST_CHUNK = 4096
"""Rows whose losses are computed at a time."""
CHUNK_BYTES = {"cpu": 2**25, "cuda": 2**28}
"""Memory that materialised per-example gradients of one chunk may take: on a CPU, what
its caches hold."""
STRATEGIES = ("flat", "per-layer", "per-unit", "sparsified")


def group_sensitivity(bound: float) -> float:
    """Return the sensitivity of a sum of clipped *group* gradients.

    A record drawn into one group can turn that group's clipped gradient from +C to -C
    (Ponomareva et al. 2023, section 5.6): 2 C.
    """
    return 2 * bound


def coupled_sensitivity(bound: float, most: int) -> float:
    """Return the sensitivity of a sum of clipped gradients that all see the batch.

    In a batch of at most `most` records, one that is added brings its own gradient and
    can reverse all others: (2 M - 1) C.
    """
    return (2 * most - 1) * bound


def layer_bounds(bound: float, n_coordinates: Sequence[int]) -> list[float]:
    """Return C_l = C sqrt(n_l / n) for every layer."""
    total = sum(n_coordinates)
    return [bound * math.sqrt(n / total) for n in n_coordinates]


def lengths(x: Tensor) -> Tensor:
    """Return norms of rows as float64, off by ``256 2^-25`` of themselves at most."""
    n, whole = len(x), x.shape[1] // 256
    head, tail = x[:, : whole * 256], x[:, whole * 256 :]
    parts = head.reshape(n, whole, 256), tail.unsqueeze(1)
    sizes = torch.cat([torch.linalg.vector_norm(part, dim=2) for part in parts], 1)
    norms: Tensor = torch.linalg.vector_norm(sizes.double(), dim=1)
    return norms


def factors(norms: Tensor, bound: float | Tensor, margins: Tensor) -> Tensor:
    """Return min(1, C / (norm + margin)), and 0 where the norm is not finite.

    Parameters
    ----------
    norms, margins : Tensor
        Norms and what rounding may have hidden, of any one shape.
    bound : float or Tensor
        The bound of every norm.
    """
    padded = norms * (1 + _MARGIN) + margins
    scale = torch.clamp(bound / padded.clamp(min=torch.finfo(padded.dtype).tiny), max=1)
    # A factor that float32 holds with few digits could round up.
    is_usable = (padded < math.inf) & (scale >= _LEAST)
    return torch.where(is_usable, scale, torch.zeros_like(scale))


def unit_scale(total: Tensor, bound: float, rows: Tensor) -> Tensor:
    """Return sums of L1 norms over C_l^2, inf for the rows that do not count; (n,)."""
    # The margin covers the rounding of the sums and of the norms.
    most = bound * (1 - _MARGIN)
    # Its square may be too large for float32, and a tiny bound may be 0 there.
    scale = torch.where(rows, total / most / most, math.inf)
    return scale.nan_to_num_(math.inf, math.inf)


def unit_factors(total: Tensor, share: Tensor, bound: float, rows: Tensor) -> Tensor:
    """Return per-unit factors of one layer, 0 for the rows that do not count.

    With the bound ``C_l sqrt(l1_u / sum l1)`` of a row of norm l2_u, the factor is the
    root of ``C_l^2 / (sum l1 l2_u^2 / l1_u)``, at most 1.

    Parameters
    ----------
    total : Tensor of shape (n,)
        Sum of the L1 norms of all rows of every record's layer gradient.
    share : Tensor of shape (n, units)
        Squared L2 norms of rows over their L1 norms.
    bound : float
        C_l, the layer's bound.
    rows : BoolTensor of shape (n,)
        Which records count.

    Returns
    -------
    Tensor of shape (n, units)
    """
    scale = unit_scale(total, bound, rows).to(share.dtype).unsqueeze(1)
    return (share * scale).nan_to_num_(math.inf, math.inf).clamp_(min=1).rsqrt_()


def sparsify(
    grads: Tensor,
    sparsity: float,
    generator: torch.Generator,
    is_ranked: bool = False,
    size: int | None = None,
    tau: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Thin every record's gradient at random without changing its mean.

    With tau the record's own L1 norm over ``(1 - sparsity) p``, entries of at least tau
    stay; a smaller entry g becomes ``sign(g) tau`` with probability ``|g| / tau`` and 0
    otherwise. At most ``(1 - sparsity) p`` entries survive on average, the largest
    among them, and ``E[T(g)] = g`` (the operator T_{tau,gamma} of DP-HFlow, before the
    clip).

    Parameters
    ----------
    grads : Tensor of shape (n, m)
        One gradient per record; overwritten.
    sparsity : float in [0, 1)
        Share gamma of the entries to be dropped; 0 keeps the gradient.
    generator : torch.Generator
        Source of the draws.
    is_ranked : bool, default=False
        Whether tau is the k-th largest size, ``k = (1 - sparsity) p``, as in the paper:
        k entries stay, and more survive on average.
    size : int, optional
        Number of entries p, with those that are always zero and left out of `grads`;
        None counts the entries there are.
    tau : Tensor of shape (n, 1), optional
        The thresholds, by which `grads` has been divided then.

    Returns
    -------
    thinned : Tensor of shape (n, m)
        ``T(g) / tau``.
    tau : Tensor of shape (n, 1)
    """
    n, m = grads.shape
    if sparsity == 0:
        return grads, grads.new_ones(n, 1)
    y = grads
    if tau is None:
        most = (1 - sparsity) * (size or m)
        norm = grads.abs().sum(1, keepdim=True)
        tau = norm / most
        if is_ranked:
            k = max(1, round(most))
            ranked = grads.abs().kthvalue(m - k + 1, 1, True)[0] if k <= m else 0 * norm
            tau = torch.maximum(ranked, norm * 2.0**-60)  # some k-th sizes are zero
        y = grads.div_(tau.clamp(min=_LEAST))
    # What stays of entries beyond tau; of all others c, ``floor(c + u)`` is 1, 0 or -1
    # as they would have it. A uniform u takes 8 bits of its own, and the rest of its
    # record: random bits are what this takes longest for. Entries below 2^-8 tau then
    # stay or go together, so that it takes 16 where most may be that small.
    rest = softshrink(y, 1.0)
    n_bits, kind = (8, torch.int8) if sparsity <= 1 - 2**-5 else (16, torch.int16)
    step, n_words = 2.0**-n_bits, -(-n * m * n_bits // 64)
    words = torch.empty(n_words, dtype=torch.int64, device=y.device)
    words.random_(-(2**63), None, generator=generator)
    bits = words.view(kind)[: n * m].view(n, m)
    last = torch.rand(n, 1, generator=generator, device=y.device, dtype=y.dtype)
    u = torch.add(last.mul_(step).add_(0.5), bits, alpha=step)
    return u.add_(y.sub_(rest)).floor_().add_(rest), tau


def gradient_chunks(
    rows: Tensor, n_bytes: int, most: int = LARGEST_CHUNK
) -> Iterator[slice]:
    """Yield the rows whose gradients exist at a time, each of `n_bytes` on the way."""
    size = min(most, max(1, CHUNK_BYTES.get(rows.device.type, 2**28) // n_bytes))
    return (slice(start, start + size) for start in range(0, len(rows), size))
