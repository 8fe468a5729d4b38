"""Rows chosen for it do not move a clipped sum by more than C, rounding included."""

from __future__ import annotations

import pytest
import torch

from dpgenerative.models.cells import CellFacts, Cells, _CellLogProb
from dpgenerative.models.flow import AnchoredBlock
from dpgenerative.models.hflow import HFlow
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import VAE
from dpgenerative.privacy import clipping
from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.gradients import layer_gradients, record
from dpgenerative.privacy.gradients.core import BLOCK, LARGEST_SUM
from dpgenerative.privacy.gradients.linear import block_sum
from dpgenerative.privacy.steps import Clipper
from tests.privacy import adversary
from tests.privacy.oracle import Net

BOUND = 0.7


def check(strategy, layer, uses, n_rows, n_tried, seed=0):
    # Without sparsity the strategy draws nothing: its draws depend on a row's place.
    clipper = Clipper(strategy, BOUND, sparsity=0.0)
    found = adversary.search(clipper, layer, uses, n_rows, n_tried, seed)
    assert 0.5 * BOUND < found <= BOUND


@pytest.mark.thin(3)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "layer",
    [
        adversary.linear,
        adversary.masked,
        adversary.low_rank,
        adversary.triangular,
        adversary.convolution,
        adversary.generic,
    ],
    ids=lambda layer: layer.__name__,
)
def test_rows_whose_uses_cancel(strategy, layer):
    check(strategy, layer, uses=2, n_rows=30, n_tried=3)


@pytest.mark.thin(4)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_that_push_the_same_way(strategy):
    check(strategy, adversary.linear, uses=1, n_rows=300, n_tried=3)


@pytest.mark.parametrize("n", [1, 63, 65, 512, 513, 2229])
def test_a_row_moves_a_sum_by_blocks_by_what_is_stated(n):
    generator = torch.Generator().manual_seed(n)
    # Positive numbers: sums are as large as they can be.
    e, a = (0.1 + torch.rand(n, k, generator=generator) for k in (5, 4))
    without = e.clone()
    without[n // 2] = 0
    whole = block_sum(e, a)
    assert torch.allclose(whole, e.double().T @ a.double(), rtol=1e-6)
    own = torch.outer(e[n // 2].double(), a[n // 2].double())
    largest = (e.norm(dim=1) * a.norm(dim=1)).max()
    in_block = sum((j * BLOCK) ** 0.5 for j in range(2, BLOCK + 1))
    stated = 2 * (in_block + BLOCK + 14 * BLOCK) * 2.0**-24
    assert 2 * stated < clipping._MARGIN
    assert (whole - block_sum(without, a) - own).norm() <= stated * largest


def test_sums_of_wide_layers_share_the_space_of_their_products():
    e, a = torch.ones(2048, 256), torch.ones(2048, 256)
    with torch.profiler.profile(profile_memory=True) as profile:
        total = block_sum(e, a)
    assert (total == 2048).all()
    taken = sum(max(0, each.self_cpu_memory_usage) for each in profile.events())
    # Eight products in float32 at a time, of four times as many.
    assert taken <= (8 * 4 + 5 * 8) * total.numel()


@pytest.mark.audit
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize(
    "layer", [adversary.linear, adversary.masked], ids=lambda layer: layer.__name__
)
def test_a_long_search(strategy, layer, seed):
    check(strategy, layer, uses=1, n_rows=2048, n_tried=3, seed=seed)
    check(strategy, layer, uses=2, n_rows=400, n_tried=6, seed=seed)
    check(strategy, layer, uses=4, n_rows=200, n_tried=6, seed=seed)


def cancelling(strategy):
    """Return clipped sizes of the parts of every row, and of their sum."""
    rows = adversary.candidates(100, 3, seed=0)
    layer = adversary.linear(rows)
    parts = torch.stack(
        [
            (e.unsqueeze(2) * torch.cat([x, torch.ones(100, 1)], 1).unsqueeze(1))
            for x, e in rows
        ]
    ).double()
    if strategy == "flat":
        squares, margins = layer.squared_norms()
        scale = clipping.factors(squares.sqrt(), BOUND, margins).unsqueeze(1)
    else:
        everyone = torch.ones(100, dtype=torch.bool)
        (scale,) = layer.unit_factors(BOUND, everyone)
    clipped = parts * scale.unsqueeze(2)
    sizes = clipped.norm(dim=3).sum(0).norm(dim=1)
    return sizes, clipped.sum(0).norm(dim=(1, 2))


@pytest.mark.parametrize("strategy", ["flat", "per-unit"])
def test_parts_that_cancel_are_bounded_too(strategy):
    sizes, wholes = cancelling(strategy)
    assert (sizes <= LARGEST_SUM * BOUND * (1 + 1e-6)).all()
    assert sizes.max() > 0.5 * LARGEST_SUM * BOUND
    assert (wholes <= BOUND).all()


def facts():
    return [
        CellFacts(torch.full((k,), 1 / k), True, True, torch.ones(k) > 0)
        for k in (5, 9, 7)
    ]


def flow_and_losses():
    model = HFlow(
        facts(), n_basis=4, hidden_units=8, n_blocks=1, linear="none",
        dequantization="uniform", anchored=True, generator=torch.Generator(),
    )  # fmt: skip
    return model, lambda rows: -model(rows)[0], torch.randint(0, 5, (130, 3))


def autoencoder_and_losses():
    model = VAE(
        facts(), n_basis=4, hidden_units=8, latent_dim=2, prior=NormalPrior(2),
        beta=1.0, generator=torch.Generator(),
    )  # fmt: skip
    noise = torch.randn(64, 1, 2)
    return model, lambda rows: -model(rows, noise)[0], torch.randint(0, 5, (130, 3))


def net_and_losses():
    model = Net(2)
    return model, lambda rows: model(rows)[0], torch.randn(130, 4)


@pytest.mark.parametrize(
    "case", [flow_and_losses, autoencoder_and_losses, net_and_losses]
)
def test_a_row_at_its_place_is_the_same_in_any_company(case):
    torch.manual_seed(0)
    model, losses, data = case()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape))

    def gradients(rows):
        with record(model) as calls:
            total = losses(rows).sum()
        layers = layer_gradients(model, calls, total, len(rows))
        return [g for layer in layers for g in layer.per_example()]

    batch, others = data[:64].clone(), data[64:128].clone()
    others[7] = batch[7]
    for g, h in zip(gradients(batch), gradients(others), strict=True):
        assert torch.equal(g[7], h[7])
        assert not torch.equal(g, h)


@pytest.mark.parametrize("shape", [(9, 30, 8, 64, 512), (5, 100, 50, 33, 701)])
def test_outputs_that_are_looked_up_are_the_same_in_any_company(shape):
    d, k, n_basis, hidden_units, n = shape
    generator = torch.Generator().manual_seed(0)
    kinds = [(j % 2 > 0, j % 3 > 0, torch.ones(k).bool()) for j in range(d)]
    facts = [CellFacts(torch.full((k,), 1 / k), *kind) for kind in kinds]
    model = AnchoredBlock(facts, n_basis, hidden_units, generator)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator), alpha=0.3)
    for row in (0, 7, n // 2, n - 1):
        codes, others = torch.randint(k, (2, n, d), generator=generator)
        others[row] = codes[row]
        found = []
        for rows in (codes, others):
            with record(model):
                found.append(model.precompute(rows, [model.skip, model.hidden]))
        for one, other in zip(*found, strict=True):
            assert torch.equal(one[row], other[row])
            assert not torch.equal(one, other)


@pytest.mark.parametrize("n_far", [1, 2, 3, 5, 9])
def test_rows_at_the_bound_do_not_change_how_others_are_computed(n_far):
    """Not in the last bit: they are computed in an array of one shape."""
    facts = CellFacts(torch.full((100,), 0.01), True, False, torch.ones(100) > 0)
    block = Cells([facts, facts], 5)
    generator = torch.Generator().manual_seed(0)
    coefficients = 0.1 * torch.randn(64, sum(block.widths), generator=generator)
    coefficients[:n_far] *= 100
    codes = torch.randint(100, (64, 2), generator=generator)

    def computed():
        own = coefficients.clone().requires_grad_()
        total = _CellLogProb.apply(own, codes, block)
        return total.detach(), *torch.autograd.grad(total.sum(), own)

    before = computed()
    coefficients[0] = 0.0
    for x, y in zip(before, computed(), strict=True):
        assert torch.equal(x[1:], y[1:])
