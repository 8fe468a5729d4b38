"""How far one record moves a clipped sum, against what the clipper declares."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn
from torch.backends import cudnn

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.fitting import fit
from dpgenerative.fitting.loop import plain_gradient
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy import clipping
from dpgenerative.privacy import norm as norm_release
from dpgenerative.privacy.clipping import LARGEST_CHUNK, STRATEGIES, sparsify
from dpgenerative.privacy.gradients import LinearGradients, layer_gradients, record
from dpgenerative.privacy.gradients.core import RULES
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.norm import estimate_norm
from dpgenerative.privacy.precision import full_precision
from dpgenerative.privacy.sampling import capacity, padded_chunks, whole_pass
from dpgenerative.privacy.steps import (
    Clipper,
    PrivateGradient,
)
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks
from tests.privacy.oracle import Net, norm, per_example_gradients, sum_of_clipped

BOUND = 0.7


def clipped(clipper, model, x, present=None):
    present = torch.ones(len(x), dtype=torch.bool) if present is None else present
    with record(model) as calls:
        losses, _ = model(x)
    losses = torch.where(present, losses, torch.zeros_like(losses))
    layers = layer_gradients(model, calls, losses.sum(), len(x))
    generator = torch.Generator().manual_seed(3)
    return clipper.clipped_sums(layers, present, generator)


def distance(a, b):
    return norm({p: a[p].double() - b[p].double() for p in a})


def adversaries():
    torch.manual_seed(0)
    usual = torch.randn(6, 4)
    return {
        "usual": usual,
        "huge": usual * 1e4,
        "tiny": usual * 1e-12,
        "zero": torch.zeros(6, 4),
        "antiparallel": torch.cat([usual[:3], -usual[:3]]),
        "inf": torch.cat([usual[:5], torch.full((1, 4), math.inf)]),
        "nan": torch.cat([usual[:5], torch.full((1, 4), math.nan)]),
    }


@pytest.mark.thin(2)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("kind", adversaries())
@pytest.mark.parametrize("uses", [1, 2])
def test_one_record_moves_the_sum_by_at_most_the_bound(strategy, kind, uses):
    clipper = Clipper(strategy, BOUND)
    # What is left for rounding of many rows must not hide norms that are off.
    most = BOUND / (1 + clipping._MARGIN) * (1 + 1e-5)
    model, x = Net(uses, scale=3.0), adversaries()[kind]
    empty = clipped(clipper, model, x[:0])
    assert distance(empty, {p: torch.zeros_like(p) for p in empty}) == 0
    for record_ in x:
        alone = clipped(clipper, model, record_[None])
        assert distance(alone, empty) <= most
    if strategy == "sparsified":
        return  # Its draws depend on the row's place; each row alone is the bound.
    for rows in (x[:1], x[:2], x):
        without = clipped(clipper, model, rows[:-1])
        assert distance(clipped(clipper, model, rows), without) <= most


@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit"])
def test_the_bound_is_reached(strategy):
    # Two outputs and one input: the gradient of a huge record fills every group.
    model = nn.ModuleList([MaskedLinear.dense(1, 2)])
    x = torch.full((1, 1), 1e4)

    def objective(rows):
        return model[0](x[rows]).sum(1) * 1e3, None

    clipper = Clipper(strategy, BOUND)
    gradient = PrivateGradient(clipper, 0.0, batch_size=1.0)
    out = run(gradient, model, objective, [0])
    assert norm(out) >= 0.999 * BOUND


def run(
    gradient, model, objective, rows, divergence=None, partition=None, present=None
):
    rows = torch.tensor(rows, dtype=torch.long)
    present = torch.ones(len(rows), dtype=torch.bool) if present is None else present
    generator = torch.Generator().manual_seed(0)
    mechanisms = Mechanisms(np.random.default_rng(0), torch.Generator().manual_seed(0))
    return gradient(
        model,
        objective,
        [(rows, present)],
        mechanisms,
        generator,
        divergence,
        partition,
    )


def test_one_record_can_turn_its_group_round():
    # The bias sees no data: the group's gradient is +1 without the record, -2 with it,
    # so that what is left of it swings from +C to -C. Calibrating with C misses this.
    layer = MaskedLinear.dense(1, 1)
    model = nn.ModuleList([layer])
    data = torch.tensor([[0.0], [0.0]])
    sign = torch.tensor([1.0, -3.0])

    def objective(rows):
        latents = layer(data[rows]) * sign[rows, None]
        return latents.sum(1) * 0, latents

    gradient = PrivateGradient(Clipper("flat", 1e-9, group_bound=0.3), 0.0, 1.0)

    def group(n):
        return np.zeros(n, dtype=np.int64)

    def total(x):
        return x.sum()

    with_it = run(gradient, model, objective, [0, 1], total, group)
    without = run(gradient, model, objective, [0], total, group)
    assert distance(with_it, without) >= 0.999 * clipping.group_sensitivity(0.3)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_random_neighbours_with_a_batch_wise_term(n):
    torch.manual_seed(n)
    model, data = Net(2), torch.randn(n + 1, 4)
    places = np.random.default_rng(n).integers(0, 3, size=n + 1)

    def objective(rows):
        return model(data[rows])

    def spread(x):
        return x.square().mean() + x.mean().abs()

    gradient = PrivateGradient(Clipper("flat", 0.5, group_bound=0.2), 0.0, 10.0, 3)
    rows = list(range(n + 1))
    with_it = run(gradient, model, objective, rows, spread, lambda k: places[:k])
    without = run(gradient, model, objective, rows[:-1], spread, lambda k: places[:k])
    assert distance(with_it, without) <= gradient.sensitivity(True) * (1 + 1e-5)
    assert gradient.sensitivity(True) == pytest.approx(0.5 / 10 + 2 * 0.2 / 3)


@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit"])
def test_chunks_and_padding_change_nothing(strategy):
    torch.manual_seed(0)
    model = Net(2)
    data = torch.cat(
        [torch.randn(9, 4), torch.tensor([[math.inf] * 4, [math.nan] * 4])]
    )
    gradient = PrivateGradient(Clipper(strategy, 0.5), 0.0, batch_size=9.0)

    def total(chunks):
        mechanisms = Mechanisms(np.random.default_rng(0), torch.Generator())
        generator = torch.Generator().manual_seed(0)
        return gradient(model, lambda r: model(data[r]), chunks, mechanisms, generator)

    def chunk(rows, padding=()):
        present = torch.tensor([True] * len(rows) + [False] * len(padding))
        return torch.tensor([*rows, *padding], dtype=torch.long), present

    whole = total([chunk(range(9))])
    assert norm(whole) > 0.05
    cut = total([chunk(range(4), [9, 10]), chunk(range(4, 9), [10, 0])])
    assert distance(whole, cut) <= 1e-5


def test_flat_clipping_equals_the_oracle():
    torch.manual_seed(0)
    model, x = Net(2).double(), torch.randn(8, 4).double()
    sums = clipped(Clipper("flat", BOUND), model, x)
    rows = per_example_gradients(model, x)
    for p, total in sums.items():
        expected = sum_of_clipped(rows, p, BOUND)
        assert torch.allclose(total, expected, rtol=1e-4, atol=1e-8)


def test_wide_bounds_give_the_plain_gradient():
    torch.manual_seed(0)
    model, x = Net(2), torch.randn(8, 4)
    chunks = [(torch.arange(8), torch.ones(8, dtype=torch.bool))]
    plain = plain_gradient(model, lambda r: model(x[r]), chunks, 8.0)
    for strategy in ("flat", "per-layer", "per-unit"):
        gradient = PrivateGradient(Clipper(strategy, 1e6), 0.0, 8.0)
        out = run(gradient, model, lambda r: model(x[r]), list(range(8)))
        for p in plain:
            assert torch.allclose(out[p], plain[p], rtol=1e-3, atol=1e-5), strategy


def test_bounds_of_every_strategy_add_up():
    bounds = clipping.layer_bounds(1.5, [3, 50, 7])
    assert math.hypot(*bounds) == pytest.approx(1.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-30, 1e-3, 1.0, 1e18])
def test_per_unit_bounds_hold_at_any_size(size, dtype):
    l1 = torch.rand(50, 40, dtype=dtype) * size
    ratio = torch.rand(50, 40, dtype=dtype)
    l1[:5, 3] = 0
    l1[5] = 0
    rows = torch.arange(50) != 7
    scale = clipping.unit_factors(l1.sum(1), ratio.square() * l1, 0.1, rows)
    exact = l1.double()
    shares = exact / exact.sum(1, keepdim=True).clamp(min=1e-300)
    clipped = scale.double() * ratio.double() * l1.double()
    assert (clipped <= 0.1 * shares.sqrt() + 1e-300).all()
    assert (clipped.square().sum(1).sqrt() <= 0.1).all()
    assert (scale >= 0).all()
    assert (scale <= 1).all()
    assert not scale[7].any()
    assert (scale[5] == 1).all()
    if size == 1.0:
        big = shares[:5].sqrt() * 0.1 < (ratio * exact)[:5]
        assert big.any()
        assert torch.allclose(clipped[:5][big], 0.1 * shares[:5].sqrt()[big], rtol=1e-3)


def test_per_unit_bounds_hold_for_bounds_with_squares_beyond_float32():
    total, share = torch.tensor([9e19]), torch.tensor([[9e9, 1e9]]) * 9e9
    scale = clipping.unit_factors(total, share.clone(), 2e19, torch.ones(1).bool())
    l2 = (share.double() * torch.tensor([[8.1e19, 0.9e19]])).sqrt()
    assert (scale * l2).norm() <= 2e19
    assert scale.min() < 1


def test_factors_that_float32_cannot_hold_are_zero():
    norms = torch.tensor([1e29, 1e31, 1e37], dtype=torch.float64)
    scale = clipping.factors(norms, 1e-8, torch.zeros(3))
    assert (scale[:1] > 0).all()
    assert (scale.float().double() * norms <= 1e-8).all()


def test_groups_of_huge_gradients_stay_within_their_bound():
    torch.manual_seed(0)
    layer = MaskedLinear.dense(64, 64)
    x = torch.full((1, 64), 1e19)
    with record(nn.ModuleList([layer])) as calls:
        loss = (layer(x) * 3e19).sum()
    layers = layer_gradients(nn.ModuleList([layer]), calls, loss, 1)
    clipper = Clipper("flat", 1.0, group_bound=5e-5)
    sums = clipper.group_sums(layers, torch.zeros(1, dtype=torch.long), [1])
    assert norm(sums) <= 5e-5


@pytest.mark.parametrize("n_groups", [1, 2])
@pytest.mark.parametrize("strategy", ["flat", "per-unit"])
def test_wide_layers_swallow_nothing(strategy, n_groups):
    # One large input, and thousands that vanish beside it in float32, one by one.
    n = 16_384
    groups = torch.arange(n) % n_groups
    layer = MaskedLinear(
        groups, torch.zeros(1, dtype=torch.long), torch.ones(1, n_groups).bool()
    )
    x = torch.full((1, n), 2.0**-12.01)
    x[0, 0] = 1.0
    model = nn.ModuleList([layer])
    with record(model) as calls:
        loss = (layer(x) * 100).sum()
    layers = layer_gradients(model, calls, loss, 1)
    one = torch.ones(1, dtype=torch.bool)
    sums = Clipper(strategy, BOUND).clipped_sums(layers, one, torch.Generator())
    assert 0.99 * BOUND < norm(sums) <= BOUND * (1 + 1e-6)


def test_units_of_zeros_stay_zero_within_a_bound_that_float32_cannot_hold():
    layer = MaskedLinear.dense(1, 1)
    with record(nn.ModuleList([layer])) as calls:
        loss = 0 * layer(torch.zeros(1, 1)).sum()
    layers = layer_gradients(nn.ModuleList([layer]), calls, loss, 1)
    one = torch.ones(1, dtype=torch.bool)
    sums = Clipper("per-unit", 1e-46).clipped_sums(layers, one, torch.Generator())
    assert norm(sums) == 0


class Twice(MaskedLinear):
    """A layer whose rule is made of that of its parent."""

    def forward(self, x, precomputed=None):
        return 2 * super().forward(x, precomputed)


class TwiceGradients(LinearGradients):
    def squared_norms(self):
        squares, margins = super().squared_norms()
        return 4 * squares, 2 * margins

    def unit_norms(self):
        return [(2 * total, 2 * share) for total, share in super().unit_norms()]

    def weighted_sum(self, factors):
        return {p: 2 * x for p, x in super().weighted_sum(factors).items()}


@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit"])
def test_rules_made_of_the_linear_one_clip_by_their_own_norms(strategy, monkeypatch):
    monkeypatch.setitem(RULES, Twice, TwiceGradients)
    model = nn.ModuleList([Twice.dense(5, 3)])
    with record(model) as calls:
        loss = (100 * model[0](torch.ones(1, 5))).sum()
    layers = layer_gradients(model, calls, loss, 1)
    one = torch.ones(1, dtype=torch.bool)
    sums = Clipper(strategy, BOUND).clipped_sums(layers, one, torch.Generator())
    assert 0.99 * BOUND < norm(sums) <= BOUND


@pytest.mark.parametrize("broken", [math.inf, math.nan])
@pytest.mark.parametrize("where", ["total", "both", "share"])
def test_per_unit_factors_of_unusable_rows_are_zero(broken, where):
    total, share = torch.ones(3), torch.ones(3, 4)
    if where != "share":
        total[1] = broken
    if where != "total":
        share[1] = broken
    every = torch.ones(3, dtype=torch.bool)
    scale = clipping.unit_factors(total, share, 1.0, every)
    assert not scale[1].any()
    assert scale[[0, 2]].all()


def thinned(grads, sparsity, generator, *options):
    found, tau = sparsify(grads.clone(), sparsity, generator, *options)
    return found * tau


@pytest.mark.parametrize("ranked", [False, True])
@pytest.mark.parametrize("visible", [torch.ones(2, 2), torch.ones(2, 2).tril()])
def test_thinned_gradients_of_a_layer_are_right_on_average(visible, ranked):
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(40) // 20
    layer, n = MaskedLinear(groups, groups, visible.bool()), 4000
    x, e = torch.randn(2, 40, generator=generator)
    site = LinearGradients(layer, [(x.expand(n, -1),)], [(e.expand(n, -1),)])
    clipper = Clipper("sparsified", 1e6, 0.9, is_ranked=ranked)
    rows = torch.ones(n, dtype=torch.bool)
    sums = clipper.clipped_sums([site], rows, generator)
    for found, g in (
        (sums[layer.weight], torch.outer(e, x) * layer.mask),
        (sums[layer.bias], e),
    ):
        assert (found / n - g).norm() <= 0.05 * g.norm()


def test_sparsification_is_unbiased_and_thins():
    grads = torch.randn(3, 50, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    draws = torch.stack([thinned(grads, 0.8, generator) for _ in range(4000)])
    size = grads.abs()
    tau = size.sum(1, keepdim=True) / (0.2 * grads.shape[1])
    error = (size * (tau - size).clamp(min=0) / len(draws)).sqrt()
    assert ((draws.mean(0) - grads).abs() <= 6 * error + 1e-3).all()
    assert ((draws != 0).float().mean((0, 2)) <= 0.2 + 1e-3).all()
    assert (draws != 0).float().mean() > 0.1
    assert torch.equal(thinned(grads, 0.0, generator), grads)
    ranked = torch.stack([thinned(grads, 0.8, generator, True) for _ in range(4000)])
    tau = grads.abs().sort(1, descending=True)[0][:, round(0.2 * grads.shape[1]) - 1]
    stays = grads.abs() >= tau[:, None]
    kept = grads[stays].expand(4000, -1)
    assert torch.allclose(ranked[:, stays], kept, rtol=1e-6, atol=0)
    least = tau[:, None] * (1 - 1e-6)
    assert ((ranked == 0) | (ranked.abs() >= least)).all()
    error = ranked.std(0) / 4000**0.5
    assert ((ranked.mean(0) - grads).abs() <= 5 * error + 1e-6).all()
    assert not thinned(torch.zeros(2, 4), 0.5, generator).any()


@pytest.mark.parametrize(("sparsity", "bits"), [(0.5, torch.int8), (0.98, torch.int16)])
@pytest.mark.parametrize("is_ranked", [False, True])
def test_thinning_follows_its_draws(is_ranked, sparsity, bits):
    grads = torch.randn(5, 37, generator=torch.Generator().manual_seed(0))
    found, tau = sparsify(
        grads.clone(), sparsity, torch.Generator().manual_seed(1), is_ranked
    )
    generator = torch.Generator().manual_seed(1)
    words = torch.empty(math.ceil(185 * bits.itemsize / 8), dtype=torch.int64)
    words.random_(-(2**63), None, generator=generator)
    step = 2.0 ** (-8 * bits.itemsize)
    own = words.view(bits)[:185].view(5, 37) * step
    u = own + 0.5 + torch.rand(5, 1, generator=generator) * step
    sizes = grads.abs() / tau
    up = torch.where(grads > 0, u >= 1 - sizes, u < sizes)
    expected = torch.where(sizes >= 1, sizes, up.float()).copysign(grads)
    assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6)
    assert 0 < (found == 0).float().mean() < 1


def test_zeros_left_out_change_no_threshold():
    grads = torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([grads, torch.zeros(3, 20)], 1)
    for sparsity in (0.4, 0.6):
        for is_ranked in (False, True):
            given = sparsity, torch.Generator(), is_ranked
            _, tau = sparsify(grads.clone(), *given, 40)
            assert torch.allclose(tau, sparsify(padded.clone(), *given)[1])


class Steep(nn.Module):
    """A layer with no rule whose gradient overflows where its output does not."""

    def __init__(self):
        super().__init__()
        self.p = nn.Parameter(torch.full((1, 3), 0.1))

    def forward(self, x):
        return torch.tanh(self.p * x**40)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("is_padding", [False, True])
def test_gradients_that_overflow_count_as_zero(strategy, is_padding):
    model = nn.ModuleList([Steep()])
    x = torch.tensor([[0.5, 0.5, 0.5], [1e9, 1.0, 1.0]])
    gradient = PrivateGradient(Clipper(strategy, BOUND), 0.0, 1.0)

    def objective(rows):
        return model[0](x[rows]).sum(1), None

    present = torch.tensor([True, not is_padding])
    out = run(gradient, model, objective, [0, 1], present=present)
    assert all(torch.isfinite(g).all() for g in out.values())
    assert norm(out) <= BOUND * (1 + 1e-5)


def test_long_sums_do_not_round_a_row_away():
    # Many rows of one direction, and one fewer: the returned gradient is float32, the
    # sum that gets the noise is not.
    torch.manual_seed(0)
    layer = MaskedLinear.dense(8, 8)
    model, n = nn.ModuleList([layer]), 2**18
    x = torch.randn(n, 8)
    sums = []

    class Door(Mechanisms):
        def gradient(self, sums_, stds, **stated):
            sums.append({k: s.clone() for k, s in enumerate(sums_)})
            return super().gradient(sums_, stds, **stated)

    gradient = PrivateGradient(Clipper("flat", 1.0), 0.0, 1.0)
    for m in (n, n - 1):
        chunks = padded_chunks(np.arange(m), LARGEST_CHUNK, np.random.default_rng(0))
        door = Door(np.random.default_rng(0), np.random.default_rng(0))
        gradient(
            model,
            lambda rows: ((layer(x[rows]) * x[rows]).sum(1), None),
            chunks,
            door,
            torch.Generator(),
        )
    assert sums[0][0].dtype == torch.float64
    assert 0.99 < distance(*sums) <= 1 + 1e-4


def test_a_row_moves_a_chunk_of_any_size_by_its_own_gradient():
    # Rows that push the same way: a float32 sum of all would round a row by per cents.
    layer, n = MaskedLinear.dense(3, 2), 2**17
    x = torch.tensor([[0.3, -0.7, 0.9]]).repeat(n, 1)
    e = torch.tensor([[0.8, 0.6]]).repeat(n, 1)
    whole, without, alone = (
        Clipper("flat", BOUND).clipped_sums(
            [LinearGradients(layer, [(x[rows],)], [(e[rows],)])],
            torch.ones(len(x[rows]), dtype=torch.bool),
            torch.Generator(),
        )
        for rows in (slice(None), slice(1, None), slice(1))
    )
    moved = {p: whole[p] - without[p] for p in whole}
    assert distance(moved, alone) <= 1e-4 * BOUND


def test_ambient_autocast_does_not_touch_the_clip():
    torch.manual_seed(0)
    model, x = Net(1, scale=3.0), torch.randn(64, 4)
    gradient = PrivateGradient(Clipper("flat", BOUND), 0.0, 1.0)
    for row in range(64):
        with torch.autocast("cpu", torch.bfloat16):
            out = run(gradient, model, lambda rows: model(x[rows]), [row])
        assert norm(out) <= BOUND * (1 + 1e-5)


def test_full_precision_lasts_until_the_last_thread_leaves():
    model = Net(1)
    torch.set_float32_matmul_precision("medium")
    try:
        first, second = full_precision(model), full_precision(model)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "highest"
        assert (cudnn.allow_tf32, cudnn.deterministic) == (False, True)
        second.__exit__(None, None, None)
        assert torch.get_float32_matmul_precision() == "medium"
        assert (cudnn.allow_tf32, cudnn.deterministic) == (True, False)
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("kind", adversaries())
def test_one_row_moves_the_histogram_of_norms_by_one(kind):
    model, x, counts = Net(2, scale=3.0), adversaries()[kind], []

    class Door(Mechanisms):
        def gaussian(self, values, std, *, release, sensitivity):
            assert (release, std, sensitivity) == ("norm", 5.0, 1.0)
            counts.append(opened(values))
            return super().gaussian(
                values, std, release=release, sensitivity=sensitivity
            )

    for n in range(len(x) + 1):
        door = Door(np.random.default_rng(0), None)
        chunks = whole_pass(range(n), 4, np.random.default_rng(n))
        found = norm_release.estimate_norm(
            model, lambda i: model(x[i]), chunks, door, 5.0
        )
        assert 1e-4 <= found <= 1e4
    moved = [np.linalg.norm(b - a) for a, b in pairwise(counts)]
    is_usable = torch.isfinite(x).all(1)
    assert moved == is_usable.double().tolist()


@pytest.mark.thin(2)
@pytest.mark.parametrize("n", [40, 41, 150])
def test_norms_are_of_rows_at_random_places(n):
    seen, whole = [], fit.estimate_norm

    def watched(model, objective, chunks, *rest):
        seen.extend(opened(chunks.read)())
        kept = Chunks(Private(lambda: seen))
        return whole(model, objective, kept, *rest)

    def known(door, rows, epsilon):
        door.ledger.count(40, epsilon)
        return 40

    flow = DPHFlowSynthesizer(epsilon=20, max_grad_norm="median", n_steps=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit, "estimate_norm", watched)
        patch.setattr(Mechanisms, "count", known)
        flow.fit(np.random.default_rng(0).normal(size=(n, 2)))
    assert {len(part) for chunk in seen for part in chunk} == {capacity(40)}
    rows = torch.cat([indices[present] for indices, present in seen]).tolist()
    assert sorted(rows) == list(range(n)) != rows


@pytest.mark.parametrize("mixed", [False, True])
def test_ambient_matrix_precision_does_not_touch_the_clip(mixed):
    model, x, seen = Net(1), torch.randn(3, 4), []

    def objective(rows):
        seen.append(torch.get_float32_matmul_precision())
        return model(x[rows])

    gradient = PrivateGradient(Clipper("flat", BOUND), 0.0, 1.0)
    torch.set_float32_matmul_precision("medium")
    try:
        if mixed and hasattr(torch.backends.mkldnn, "matmul"):
            torch.backends.mkldnn.matmul.fp32_precision = "tf32"
        run(gradient, model, objective, [0, 1, 2])
        chunk = (torch.arange(3), torch.ones(3, dtype=torch.bool))
        mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
        chunks = Chunks(Private(lambda: [chunk]))
        estimate_norm(model, objective, chunks, mechanisms, 1.0)
        assert seen == ["highest", "highest"]
        if not mixed:
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


OPERATORS = [
    (owner, name)
    for owner, names in {
        "cuda": ["matmul"],
        "cudnn": ["conv", "rnn"],
        "mkldnn": ["matmul", "conv", "rnn"],
    }.items()
    for name in names
]


def precisions():
    parts = [getattr(getattr(torch.backends, o), name) for o, name in OPERATORS]
    return [part.fp32_precision for part in parts]


@pytest.mark.skipif(
    not hasattr(torch.backends, "fp32_precision"), reason="needs torch 2.9"
)
@pytest.mark.parametrize(
    ("part", "precision"),
    [
        (torch.backends, "tf32"),
        (cudnn, "tf32"),
        (cudnn, "ieee"),
        (getattr(cudnn, "conv", None), "ieee"),
        (getattr(cudnn, "rnn", None), "ieee"),
        (getattr(torch.backends.mkldnn, "conv", None), "bf16"),
    ],
)
def test_ambient_precision_of_operators_does_not_touch_the_clip(part, precision):
    model, x, seen = Net(1), torch.randn(3, 4), []

    def objective(rows):
        seen.append(precisions())
        return model(x[rows])

    before, settings = part.fp32_precision, precisions()
    part.fp32_precision = precision
    try:
        ambient = precisions()
        run(PrivateGradient(Clipper("flat", BOUND), 0.0, 1.0), model, objective, [0, 1])
        assert seen == [["ieee"] * len(OPERATORS)]
        assert precisions() == ambient
    finally:
        part.fp32_precision = before
        for (owner, name), value in zip(OPERATORS, settings, strict=True):
            getattr(getattr(torch.backends, owner), name).fp32_precision = value
        cudnn.allow_tf32 = True
