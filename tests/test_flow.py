"""The flow against enumeration, autograd, quadrature and its own samples."""

from __future__ import annotations

import copy
import functools
import math
from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from torch.func import jacrev, vmap

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.models.cells import (
    DECLINE,
    HEAVY,
    LEAST_SPREAD,
    TABLE_BLOCK,
    CellFacts,
    Cells,
    cell_basis,
    even_points,
    standardised,
)
from dpgenerative.models.divergences import CAUCHY_SCALES, DIVERGENCES, mmd
from dpgenerative.models.flow import AnchoredBlock
from dpgenerative.models.hflow import (
    Dequantizer,
    HFlow,
    SplineNetwork,
    logistic_mixture,
    rational_quadratic_spline,
)

ANCHORED = (True, False)
DEQUANTIZATIONS = ("uniform", "variational")
UNITS = (0, 8)
# Anchored, blocks, linear flow, dequantization, hidden units: each pair of settings is
# met, and so are all flows of one block without a linear flow.
GRID = [
    (True, 1, "none", "uniform", 0),
    (True, 1, "none", "variational", 8),
    (True, 1, "low-rank", "uniform", 8),
    (True, 2, "low-rank", "uniform", 0),
    (True, 2, "lu", "variational", 8),
    (True, 3, "low-rank", "variational", 8),
    (True, 3, "lu", "uniform", 0),
    (False, 1, "none", "uniform", 0),
    (False, 1, "lu", "variational", 0),
    (False, 2, "none", "variational", 0),
    (False, 2, "lu", "uniform", 8),
    (False, 3, "none", "uniform", 8),
    (False, 3, "low-rank", "variational", 0),
]


def name_of(config):
    first = "anchored" if config[0] else "paper"
    return "-".join([first, *map(str, config[1:])])


over_the_grid = pytest.mark.parametrize("config", GRID, ids=name_of)


def facts_of(masses, *, ordered=False, nullable=False, atoms=True):
    masses = torch.tensor(masses, dtype=torch.float64)
    flags = torch.full(masses.shape, atoms)
    if nullable:
        flags[-1] = True
    return CellFacts(masses / masses.sum(), ordered, nullable, flags)


# Cells of every kind: nominal, smooth with intervals and 'missing', ordered but few.
TWO = [
    facts_of([0.3, 0.1, 0.2, 0.15, 0.25], ordered=True, nullable=True, atoms=False),
    facts_of([0.5, 0.2, 0.3]),
]
THREE = [
    facts_of([0.5, 0.2, 0.3]),
    facts_of([0.3, 0.1, 0.2, 0.1, 0.1, 0.2], ordered=True, nullable=True, atoms=False),
    facts_of([0.35, 0.65], ordered=True),
]


def make_flow(facts, config, *, scale=0.0, seed=0):
    """Build a flow and move all its trainable weights by `scale` times a draw."""
    anchored, n_blocks, linear, dequantization, hidden_units = config
    generator = torch.Generator().manual_seed(seed)
    model = HFlow(
        facts,
        n_basis=2,
        hidden_units=hidden_units,
        n_blocks=n_blocks,
        linear=linear,
        dequantization=dequantization,
        anchored=anchored,
        generator=generator,
    )
    return perturb(model, scale, seed)


def perturb(module, scale, seed=0):
    """Move all trainable weights, away from the zeros that many start at."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.requires_grad:
                fan_in = weight.shape[-1] if weight.ndim == 2 else 1
                noise = torch.randn(weight.shape, generator=generator)
                weight.add_(noise, alpha=scale / math.sqrt(fan_in))
    return module


def all_codes(facts):
    return torch.tensor(list(product(*(range(len(f.masses)) for f in facts))))


def random_rows(facts, n, seed=0, dtype=torch.float64):
    """Draw codes, positions and draws, away from the ends of the cells."""
    generator = torch.Generator().manual_seed(seed)
    shape = (n, len(facts))
    columns = [torch.randint(len(f.masses), (n,), generator=generator) for f in facts]
    inside = torch.rand((2, *shape), generator=generator, dtype=dtype) * 0.98 + 0.01
    return torch.stack(columns, 1), inside[0], inside[1]


def product_of_masses(facts, codes):
    parts = [f.masses[codes[:, j]] for j, f in enumerate(facts)]
    return torch.stack(parts, 1).prod(1)


def quadrature(n):
    """Return points of the unit square and their weights, dense at its border.

    The trapezoidal rule on a grid of normal quantiles: a flow that narrows the normal
    distribution has an unbounded density at the border of the square.
    """
    t = torch.linspace(-5.5, 5.5, n, dtype=torch.float64)
    points = torch.special.ndtr(t)
    weights = torch.exp(-t.square() / 2)
    weights = torch.outer(weights, weights).flatten()
    return torch.cartesian_prod(points, points), weights / weights.sum()


@torch.no_grad()
def log_likelihoods(model, codes, points):
    """Return the log-likelihood of every row of codes at every point."""
    n, m = len(codes), len(points)
    rows, inside = codes.repeat_interleave(m, 0), points.repeat(n, 1)
    return model(rows, inside, inside)[0].view(n, m)


def cell_probabilities(model, facts, n=44):
    """Return the probability of every row of cells, by quadrature where needed."""
    model, codes = copy.deepcopy(model).double(), all_codes(facts)
    if model.exact:
        return model(codes)[0].exp().detach()
    points, weights = quadrature(n)
    return log_likelihoods(model, codes, points).exp() @ weights


@functools.cache
def perturbed(config):
    """Return a flow over TWO and the probability of every row of its cells."""
    model = make_flow(TWO, config, scale=0.12)
    return model, cell_probabilities(model, TWO)


def rank_of(facts, codes):
    sizes = [len(f.masses) for f in facts]
    return torch.from_numpy(np.ravel_multi_index(tuple(codes.T.numpy()), sizes))


def marginals(facts, probabilities):
    """Return every column's marginal of a table of probabilities of all rows."""
    sizes = [len(f.masses) for f in facts]
    table = probabilities.view(sizes)
    d = len(sizes)
    return [table.sum([i for i in range(d) if i != j]) for j in range(d)]


def largest_tvd(facts, found):
    return max(
        0.5 * (p.double() - f.masses).abs().sum().item()
        for f, p in zip(facts, found, strict=True)
    )


# The flow ---------------------------------------------------------------------


@over_the_grid
def test_shapes(config):
    model = make_flow(THREE, config, scale=0.3)
    codes, positions, draws = random_rows(THREE, 7, dtype=torch.float32)
    log_likelihood, z = model(codes, positions, draws)
    assert log_likelihood.shape == (7,)
    assert z.shape == (7, 3)
    assert log_likelihood.isfinite().all()
    assert z.isfinite().all()
    sampled, inside = model.sample(11, torch.Generator().manual_seed(1))
    assert sampled.shape == inside.shape == (11, 3)
    assert sampled.dtype == torch.long
    sizes = torch.tensor([len(f.masses) for f in THREE])
    assert ((sampled >= 0) & (sampled < sizes)).all()
    assert ((inside >= 0) & (inside < 1)).all()


@over_the_grid
def test_only_one_block_without_a_linear_flow_is_exact(config):
    anchored, n_blocks, linear, dequantization, _ = config
    model = make_flow(TWO, config)
    assert model.exact == (anchored and n_blocks == 1 and linear == "none")
    variational = dequantization == "variational" and not model.exact
    assert (model.dequantizer is not None) == variational
    codes, _, _ = random_rows(TWO, 5)
    if model.exact:
        assert model(codes)[1] is None


@pytest.mark.parametrize("n_columns", [2, 3])
@pytest.mark.parametrize("hidden_size", [None, 5.0])
def test_hidden_units_reach_their_size_and_no_more(n_columns, hidden_size):
    generator = torch.Generator().manual_seed(0)
    block = AnchoredBlock(
        THREE[:n_columns], 2, 8, generator, hidden_size=hidden_size
    ).requires_grad_(False)
    seen = []
    block.output.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    block.hidden.bias.fill_(100.0)
    block.coefficients(torch.zeros(1, n_columns, dtype=torch.long))
    size = 2 * math.sqrt(n_columns) if hidden_size is None else hidden_size
    assert float(seen[0].norm()) == pytest.approx(size)


@pytest.mark.parametrize("hidden_units", UNITS)
def test_exact_probabilities_sum_to_one(hidden_units):
    model = make_flow(THREE, (True, 1, "none", "uniform", hidden_units), scale=1.0)
    probabilities = cell_probabilities(model, THREE)
    assert probabilities.sum().item() == pytest.approx(1, abs=1e-5)
    untrained = product_of_masses(THREE, all_codes(THREE))
    assert (probabilities - untrained).abs().max() > 0.02


@over_the_grid
def test_untrained_flow_is_the_product_of_the_masses(config):
    model = make_flow(THREE, config)
    codes = all_codes(THREE)
    positions, draws = torch.rand(2, *codes.shape, generator=torch.Generator())
    log_likelihood, _ = model(codes, positions, draws)
    expected = product_of_masses(THREE, codes).log().float()
    if config[0]:
        assert torch.allclose(log_likelihood, expected, atol=2e-5)
    else:
        # The paper's flow starts at a normal density on [-3, 3] instead.
        assert torch.allclose(model.first(codes), expected, atol=2e-5)


@pytest.mark.thin(3)
@over_the_grid
def test_density_integrates_to_one_over_the_unit_square(config):
    model, probabilities = perturbed(config)
    total = probabilities.sum().item()
    z = torch.randn(40_000, 2, generator=torch.Generator().manual_seed(3))
    v = model._pull(z)
    # Without the anchor the base space is larger than what the unit square maps to.
    inside = ((v > 0) & (v < 1 - 2e-6)).all(1).double().mean().item()
    assert total == pytest.approx(1 if config[0] else inside, abs=6e-3)
    assert config[0] or 0.5 < inside < 1


@over_the_grid
def test_sampling_frequencies_agree_with_probabilities(config):
    model, expected = perturbed(config)
    n = 6_000
    generator = torch.Generator().manual_seed(5)
    if config[0]:
        codes, _ = model.sample(n, generator)
    else:
        # Points that leave the unit square are moved to its border: leave them out.
        v = model._pull(torch.randn(n, 2, generator=generator))
        codes, _ = model.first.invert(v[((v > 0) & (v < 1 - 2e-6)).all(1)])
    seen = torch.bincount(rank_of(TWO, codes), minlength=len(expected))
    assert p_value(seen, expected) > 1e-4
    # The untrained model has the same marginals at best, and is rejected.
    assert p_value(seen, product_of_masses(TWO, all_codes(TWO))) < 1e-6


def test_of_columns_that_are_given_nothing_is_learned():
    facts = [replace(f, is_given=j == 1) for j, f in enumerate([*TWO, TWO[0]])]
    generator = torch.Generator().manual_seed(0)
    block = AnchoredBlock(facts, 3, 8, generator)
    for p in block.parameters():
        torch.nn.init.normal_(p, generator=generator)
    codes, _ = block.invert(torch.rand(200, 3, generator=generator))
    whole = block.log_probs(codes)
    own = sum(whole[j].gather(1, codes[:, j : j + 1])[:, 0] for j in (0, 2))
    total = block(codes)
    assert torch.allclose(total, own, atol=1e-5)
    total.sum().backward()
    given = block.columns(1)
    assert not block.skip.mask[given].any()
    assert not block.skip.bias.grad[given].any()
    assert block.skip.weight.grad[block.columns(2), given].any()


def test_cells_that_are_clamped_are_not_drawn():
    """Those of hidden units that clamped columns are the first to feed count, too."""
    model = make_flow(THREE, (True, 1, "none", "uniform", 8), scale=1.0)
    n, generator = 20_000, torch.Generator().manual_seed(5)
    clamped = torch.full((n, 3), -1)
    for k, cells in enumerate(((1, 0), (0, 4), (2, 2))):
        clamped[k::3, :2] = torch.tensor(cells)
    codes, _ = model.sample(n, generator, clamped=clamped)
    assert torch.equal(codes[:, :2], clamped[:, :2])
    probs = model.first.log_probs(codes)[2].exp()
    for k in range(3):
        seen = torch.bincount(codes[k::3, 2], minlength=probs.shape[1])
        assert p_value(seen, probs[k].double()) > 1e-4


@pytest.mark.thorough
def test_every_row_of_a_sample_follows_the_model():
    """Rows drawn together depend on each other; one of them alone must not show it."""
    model, expected = perturbed((True, 1, "none", "uniform", 8))
    generator = torch.Generator().manual_seed(5)
    first = torch.cat([model.sample(3, generator)[0][:1] for _ in range(3000)])
    seen = torch.bincount(rank_of(TWO, first), minlength=len(expected))
    assert p_value(seen, expected) > 1e-4
    assert p_value(seen, product_of_masses(TWO, all_codes(TWO))) < 1e-4


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_samples_are_more_even_than_independent_rows(n_blocks):
    """Pearson's statistic of one sample lies far below what chance would leave."""
    model, expected = perturbed((True, n_blocks, "none", "uniform", 8))
    generator = torch.Generator().manual_seed(5)
    n = 2**14
    codes, _ = model.sample(n, generator)
    seen = torch.bincount(rank_of(TWO, codes), minlength=len(expected)).double()
    statistic = ((seen / n - expected).square() / expected).sum() * n
    assert chi2.cdf(statistic.item(), len(expected) - 1) < 0.01
    # In an order that says nothing of the row before.
    ranks = rank_of(TWO, codes).double()
    assert abs(torch.corrcoef(torch.stack([ranks[1:], ranks[:-1]]))[0, 1]) < 4 * n**-0.5


def test_no_five_columns_of_a_sample_depend_by_how_it_is_drawn():
    # Of one Sobol sequence of eleven dimensions, half the space of five is empty.
    n, sets = 2**17, [*combinations(range(11), 5)]
    places = (
        (even_points(n, 11, torch.Generator().manual_seed(0), TABLE_BLOCK) * 4)
        .long()
        .numpy()
    )
    keys = (places[:, c] @ 4 ** np.arange(5) for c in sets)
    counts = np.array([np.bincount(each, minlength=4**5) for each in keys])
    distances = np.abs(counts / (n / 4**5) - 1).mean(1)
    independent = math.sqrt(2 / math.pi * 4**5 / n)
    assert distances.max() < 2 * independent


def test_few_points_have_no_columns_alike():
    # Of 32 points of a Sobol sequence of 50 dimensions, 59 pairs are the same coins.
    for seed in range(3):
        points = even_points(32, 50, torch.Generator().manual_seed(seed), TABLE_BLOCK)
        strata = (points * 32).long().sort(0).values
        assert (strata == torch.arange(32).unsqueeze(1)).all()
        coins = np.corrcoef(points.T.numpy() < 0.5) - np.eye(50)
        assert np.abs(coins).max() < 0.87


def p_value(seen, probabilities):
    """Return the p-value of Pearson's test, rare cells taken together."""
    expected = (probabilities / probabilities.sum() * seen.sum()).double()
    rare = expected < 8
    seen = seen.double()
    pooled = [
        torch.cat([x[~rare], x[rare].sum().view(1)]) if rare.any() else x
        for x in (seen, expected)
    ]
    statistic = ((pooled[0] - pooled[1]).square() / pooled[1].clamp(min=1)).sum()
    return chi2.sf(statistic.item(), len(pooled[0]) - 1)


@over_the_grid
def test_pull_inverts_push(config):
    model = make_flow(THREE, config, scale=0.3).double()
    v = torch.rand(200, 3, generator=torch.Generator(), dtype=torch.float64)
    v = 0.001 + 0.998 * v
    z, _ = model._push(v)
    assert (model._pull(z) - v).abs().max() < 1e-8
    assert model.exact or (z.flip(1) - torch.special.ndtri(v)).abs().max() > 1e-2


@pytest.mark.parametrize("hidden_units", UNITS)
def test_invert_recovers_codes_and_positions(hidden_units):
    config = (True, 2, "low-rank", "uniform", hidden_units)
    model = make_flow(THREE, config, scale=0.7).double()
    codes, positions, _ = random_rows(THREE, 300)
    v = model.first.place(codes, positions, model.first.log_probs(codes))
    assert ((v > 0) & (v < 1)).all()
    found, inside = model.first.invert(v.detach())
    assert torch.equal(found, codes)
    assert (inside - positions).abs().max() < 1e-8


@over_the_grid
def test_push_density_is_that_of_the_jacobian(config):
    model = make_flow(THREE, config, scale=0.3).double()
    v = torch.rand(4, 3, generator=torch.Generator(), dtype=torch.float64)
    v = 0.02 + 0.96 * v
    z, log_density = model._push(v)
    jacobian = vmap(jacrev(lambda row: model._push(row.unsqueeze(0))[0][0]))(v)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    expected = normal + torch.linalg.slogdet(jacobian)[1]
    assert torch.allclose(log_density, expected, atol=1e-9)


@over_the_grid
def test_likelihood_is_the_change_of_variables_from_positions(config):
    facts = [
        facts_of([0.3, 0.1, 0.2, 0.4], ordered=True, atoms=False),
        facts_of([0.6, 0.4], ordered=True, atoms=False),
    ]
    model = make_flow(facts, config, scale=0.3).double()
    codes, positions, draws = random_rows(facts, 5)
    log_likelihood, z = model(codes, positions, draws)

    def latents(code, position, draw):
        rows = code.unsqueeze(0), position.unsqueeze(0), draw.unsqueeze(0)
        return model(*rows)[1][0]

    jacobian = vmap(jacrev(latents, argnums=1))(codes, positions, draws)
    normal = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    expected = normal + torch.linalg.slogdet(jacobian)[1]
    assert torch.allclose(log_likelihood, expected, atol=1e-9)


def test_dequantizer_knows_its_own_density():
    generator = torch.Generator().manual_seed(0)
    dequantizer = perturb(Dequantizer(3, 4, 8, generator), 1.0).double()
    features = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    draws = 0.05 + 0.9 * torch.rand(6, 3, generator=generator, dtype=torch.float64)
    positions, log_q = dequantizer(features, draws)
    assert ((positions > 0) & (positions < 1)).all()
    assert (positions - draws).abs().max() > 0.05

    def position(feature, draw):
        return dequantizer(feature.unsqueeze(0), draw.unsqueeze(0))[0][0]

    jacobian = vmap(jacrev(position, argnums=1))(features, draws)
    expected = -torch.linalg.slogdet(jacobian)[1]
    assert torch.allclose(log_q.sum(1), expected, atol=1e-9)


def test_untrained_dequantizer_is_uniform():
    dequantizer = Dequantizer(3, 4, 8, torch.Generator().manual_seed(0)).double()
    features = torch.randn(5, 4, generator=torch.Generator(), dtype=torch.float64)
    draws = 0.01 + 0.98 * torch.rand(5, 3, generator=torch.Generator()).double()
    positions, log_q = dequantizer(features, draws)
    assert torch.allclose(positions, draws, atol=1e-9)
    assert torch.allclose(log_q, torch.zeros_like(log_q), atol=1e-9)


@pytest.mark.parametrize("dequantization", DEQUANTIZATIONS)
def test_bound_lies_below_the_exact_probability(dequantization):
    """Later blocks that do nothing leave the exact probability known."""
    facts = [facts_of([0.3, 0.1, 0.6]), facts_of([0.5, 0.2, 0.3])]
    exact = make_flow(facts, (True, 1, "none", "uniform", 8), scale=0.7)
    bound = make_flow(facts, (True, 2, "low-rank", dequantization, 8))
    bound.first.load_state_dict(exact.first.state_dict())
    if bound.dequantizer is not None:
        perturb(bound.dequantizer, 0.3)
    codes = all_codes(facts)
    expected = exact(codes)[0].exp().detach()
    points, weights = quadrature(60)
    log_ratios = log_likelihoods(bound.double(), codes, points)
    assert torch.allclose(log_ratios.exp() @ weights, expected.double(), rtol=1e-3)
    gap = expected.log() - log_ratios @ weights
    assert (gap > -1e-4).all()
    assert (gap.max() > 0.01) == (dequantization == "variational")


@over_the_grid
def test_gradients_reach_all_trainable_parameters(config):
    model = make_flow(THREE, config, scale=0.3)
    codes, positions, draws = random_rows(THREE, 200, dtype=torch.float32)
    model(codes, positions, draws)[0].sum().backward()
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, name
            assert weight.grad.isfinite().all(), name
            assert weight.grad.abs().sum() > 0, name
        else:
            assert name.startswith("first."), name
            assert not config[0]
    for module in model.modules():
        if isinstance(module, MaskedLinear) and module.weight.grad is not None:
            assert (module.weight.grad[module.mask == 0] == 0).all()


@pytest.mark.parametrize("hidden_units", UNITS)
@pytest.mark.parametrize("scale", [0.7, 30.0])  # the latter drives offsets to the bound
def test_closed_form_gradient_of_the_cells_is_that_of_autograd(hidden_units, scale):
    config = (True, 1, "none", "uniform", hidden_units)
    block = make_flow(THREE, config, scale=scale).double().first
    codes, _, _ = random_rows(THREE, 60)
    weights = torch.randn(60, dtype=torch.float64)
    select_columns = torch.cat(
        [p.gather(1, codes[:, [j]]) for j, p in enumerate(block.log_probs(codes))], 1
    ).sum(1)
    log_likelihood = block(codes)
    torch.testing.assert_close(log_likelihood, select_columns)
    parameters = list(block.parameters())
    for found, expected in zip(
        torch.autograd.grad(log_likelihood @ weights, parameters),
        torch.autograd.grad(select_columns @ weights, parameters),
        strict=True,
    ):
        torch.testing.assert_close(found, expected)


def test_rows_at_the_bound_change_no_other_row():
    block = make_flow(THREE, (True, 1, "none", "uniform", 0)).first
    codes, _, _ = random_rows(THREE, 20)
    coefficients = torch.randn(20, sum(block.widths))
    coefficients[::4] *= 1e3
    coefficients[1] = torch.nan
    together = block.log_prob(coefficients, codes)
    log_probs = block.log_probs_of(coefficients)
    apart = sum(p.gather(1, codes[:, [j]])[:, 0] for j, p in enumerate(log_probs))
    torch.testing.assert_close(together, apart, equal_nan=True)
    assert together.isfinite().sum() == 19


def test_probabilities_of_cells_round_alike_under_autocast():
    facts = facts_of([1 / 40] * 40, ordered=True)
    cells, generator = Cells([facts] * 2, 4), torch.Generator().manual_seed(0)
    coefficients = torch.randn(30, 8, generator=generator).requires_grad_()
    codes = torch.randint(40, (30, 2), generator=generator)

    def found():
        total = cells.log_prob(coefficients, codes)
        return total, *torch.autograd.grad(total.sum(), coefficients)

    with torch.autocast("cpu", torch.bfloat16):
        ambient = found()
    assert all(map(torch.equal, ambient, found()))


@pytest.mark.parametrize("hidden_units", UNITS)
@pytest.mark.parametrize("changed", range(3))
def test_cells_depend_on_earlier_columns_only(hidden_units, changed):
    model = make_flow(THREE, (True, 1, "none", "uniform", hidden_units), scale=0.7)
    codes, _, _ = random_rows(THREE, 40)
    other = codes.clone()
    other[:, changed] = (codes[:, changed] + 1) % len(THREE[changed].masses)
    pairs = zip(*(model.first.log_probs(c) for c in (codes, other)), strict=True)
    for j, (p, q) in enumerate(pairs):
        assert torch.equal(p, q) == (j <= changed)


@pytest.mark.parametrize("changed", range(4))
def test_splines_depend_on_earlier_columns_only(changed):
    generator = torch.Generator().manual_seed(0)
    network = perturb(SplineNetwork(4, 2, 8, generator), 1.0)
    z = torch.randn(20, 4, generator=generator)
    other = z.clone()
    other[:, changed] += 1
    for block in range(2):
        before, after = network(z, block), network(other, block)
        for j in range(4):
            assert torch.equal(before[:, j], after[:, j]) == (j <= changed)
    assert not torch.allclose(network(z, 0), network(z, 1))


@pytest.mark.thin(3)
@pytest.mark.parametrize("hidden_units", UNITS)
@pytest.mark.parametrize(
    ("n_blocks", "linear"), [(1, "none"), (1, "lu"), (2, "low-rank"), (3, "none")]
)
def test_raking_restores_the_released_marginals(n_blocks, linear, hidden_units):
    config = (True, n_blocks, linear, "uniform", hidden_units)
    model = make_flow(
        THREE, config, scale=0.15 if n_blocks > 1 or linear != "none" else 1.0
    )
    generator = torch.Generator().manual_seed(7)

    def found():
        if model.exact:
            return marginals(THREE, cell_probabilities(model, THREE))
        codes, _ = model.sample(40_000, generator)
        return [
            torch.bincount(codes[:, j], minlength=len(f.masses)) / len(codes)
            for j, f in enumerate(THREE)
        ]

    assert largest_tvd(THREE, found()) > 0.05
    model.rake(2**14, generator)
    assert largest_tvd(THREE, found()) < 0.015


def test_raking_leaves_dependence_alone():
    """A correction per cell keeps the odds ratios of a two-column table."""
    facts = [facts_of([0.3, 0.7]), facts_of([0.5, 0.5])]
    model = make_flow(facts, (True, 1, "none", "uniform", 0), scale=0.8)

    def log_odds_ratio():
        log_p = cell_probabilities(model, facts).log()
        return (log_p[0] + log_p[3] - log_p[1] - log_p[2]).item()

    before = log_odds_ratio()
    model.rake(2**14, torch.Generator().manual_seed(0))
    assert abs(before) > 0.1
    assert log_odds_ratio() == pytest.approx(before, abs=1e-4)


def test_same_generator_gives_the_same_rows():
    model = make_flow(THREE, (True, 2, "lu", "uniform", 8), scale=0.3)
    first, again, other = (
        model.sample(50, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[1], other[1])


@pytest.mark.parametrize("anchored", ANCHORED)
@pytest.mark.parametrize("n_blocks", [1, 2])
@pytest.mark.parametrize("hidden_units", UNITS)
def test_one_column_of_one_cell(anchored, n_blocks, hidden_units):
    facts = [facts_of([1.0])]
    model = make_flow(facts, (anchored, n_blocks, "none", "uniform", hidden_units))
    codes, _ = model.sample(9, torch.Generator())
    assert (codes == 0).all()
    draws = torch.rand(9, 1, generator=torch.Generator())
    assert model(codes, draws, draws)[0].isfinite().all()


# What stands for a cell -------------------------------------------------------


@pytest.mark.parametrize("heavy", [0.0, 9000.0])
def test_basis_is_orthogonal_and_smaller_with_the_degree(heavy):
    """Whatever share of the rows one value and 'missing' have."""
    masses = np.linspace(1, 3, 3000)
    masses[[1000, -1]] += heavy
    facts = facts_of(masses.tolist(), ordered=True, nullable=heavy > 0)
    n_basis = 5
    columns = cell_basis(facts, n_basis)[:, :n_basis].double()
    weights = torch.arange(1, n_basis + 1, dtype=torch.float64) ** -DECLINE
    weights /= weights.norm()
    plain = facts.masses.clone()
    plain[facts.special] = 0
    assert (plain == 0).sum() == 2 * (heavy > 0)
    assert plain.sum() == pytest.approx(facts.plain_mass)
    plain /= plain.sum()
    gram = columns.T @ (plain.unsqueeze(1) * columns)
    assert torch.allclose(gram, weights.square().diag(), atol=1e-2)
    assert (plain @ columns).abs().max() < 1e-2


def test_basis_marks_heavy_cells_and_missing_ones():
    masses = [0.1, 0.5, 0.1, 0.1, 0.1, 0.1]
    assert masses[1] > HEAVY
    facts = facts_of(masses, ordered=True, nullable=True)
    before = facts.masses.clone()
    basis = cell_basis(facts, 3)
    assert torch.equal(facts.masses, before)
    assert basis.shape == (6, 5)
    assert basis[:, 3].tolist() == [0, 1, 0, 0, 0, 0]
    assert basis[:, 4].tolist() == [0, 0, 0, 0, 0, 1]
    assert (basis[[1, -1], :3] == 0).all()
    assert (basis[[0, 2, 3, 4], :3] != 0).any(1).all()


def test_few_cells_beside_the_heavy_ones_have_an_indicator_each():
    # Two functions and the indicators of 'missing' and of three, or of one, heavy cell.
    for masses in ([0.33, 0.33, 0.33, 0.01], [0.8, 0.1, 0.09, 0.01]):
        basis = cell_basis(facts_of(masses, ordered=True, nullable=True), 2)
        assert torch.equal(basis, torch.eye(4))
    many = facts_of([0.8, 0.05, 0.05, 0.09, 0.01], ordered=True, nullable=True)
    assert cell_basis(many, 2).shape == (5, 4)


@pytest.mark.parametrize("masses", [[0.5, 0.2, 0.3], [0.8, 0.1, 0.1]])
def test_inputs_have_mean_zero_and_one_size(masses):
    masses = torch.tensor(masses, dtype=torch.float64)
    inputs = standardised(torch.eye(3, dtype=torch.float64), masses)
    assert (masses @ inputs).abs().max() < 1e-12
    assert (masses @ inputs.square()).sum() == pytest.approx(1)


def test_inputs_of_a_nearly_constant_column_stay_small():
    """A rare value must not take all of its row's clipped gradient."""
    masses = torch.tensor([1 - 1e-5, 1e-5], dtype=torch.float64)
    inputs = standardised(torch.eye(2, dtype=torch.float64), masses)
    assert inputs.square().sum(1).sqrt().max() < 1.5 / LEAST_SPREAD
    assert (standardised(torch.ones(1, 1), torch.ones(1)) == 0).all()


@pytest.mark.parametrize(("k", "ordered"), [(20, False), (4, True), (3, True)])
def test_small_and_nominal_columns_have_one_indicator_per_cell(k, ordered):
    basis = cell_basis(facts_of([1.0] * k, ordered=ordered), 3)
    assert torch.equal(basis, torch.eye(k))


# Bijections -------------------------------------------------------------------


def spline_inputs(n_bins, scale, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (60, 3 * n_bins - 1)
    params = scale * torch.randn(shape, generator=generator, dtype=torch.float64)
    x = torch.linspace(-2.99, 2.99, 60, dtype=torch.float64)
    return x, params


def slope_of(function, x):
    """Return the derivative of an elementwise function, by autograd."""
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


@pytest.mark.parametrize("n_bins", [1, 2, 8])
@pytest.mark.parametrize("inverse", [False, True])
def test_spline_of_zeros_is_the_identity(n_bins, inverse):
    x, params = spline_inputs(n_bins, 0.0)
    y, log_slope = rational_quadratic_spline(x, params, n_bins, 3.0, inverse)
    assert torch.allclose(y, x, atol=1e-12)
    assert log_slope.abs().max() < 1e-12


@pytest.mark.parametrize("scale", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("n_bins", [2, 8])
def test_spline_is_monotone_and_inverts(n_bins, scale):
    _, params = spline_inputs(n_bins, scale)
    x = torch.linspace(-3.5, 3.5, 501, dtype=torch.float64).unsqueeze(1)
    rows = params[:10].expand(501, 10, -1)
    y, log_slope = rational_quadratic_spline(x.expand(-1, 10), rows, n_bins, 3.0)
    assert (y.diff(dim=0) > 0).all()
    assert (y - x).abs().max() > 0.1
    back, log_back = rational_quadratic_spline(y, rows, n_bins, 3.0, inverse=True)
    assert (back - x).abs().max() < 1e-8
    assert torch.allclose(log_back, -log_slope, atol=1e-5)


@pytest.mark.parametrize("inverse", [False, True])
def test_spline_slope_is_that_of_autograd(inverse):
    x, params = spline_inputs(8, 2.0)
    _, log_slope = rational_quadratic_spline(x, params, 8, 3.0, inverse)
    slope = slope_of(
        lambda u: rational_quadratic_spline(u, params, 8, 3.0, inverse)[0], x
    )
    assert torch.allclose(log_slope, slope.log(), atol=1e-9)


def test_spline_tails_are_the_identity_and_join_smoothly():
    x, params = spline_inputs(8, 3.0)
    far = torch.cat([x[:30] - 3.0, x[30:] + 3.0]).clamp(-1e6, 1e6)
    far = torch.where(far.abs() >= 3, far, 1e9 * far.sign())
    for inverse in (False, True):
        y, log_slope = rational_quadratic_spline(far, params, 8, 3.0, inverse)
        assert torch.equal(y, far)
        assert (log_slope == 0).all()
    for end in (-3.0, 3.0):
        near = torch.full_like(x, end * (1 - 1e-13))
        y, log_slope = rational_quadratic_spline(near, params, 8, 3.0)
        assert (y - end).abs().max() < 1e-7
        assert log_slope.abs().max() < 1e-4


@pytest.mark.parametrize("n_logistics", [1, 4])
def test_logistic_mixture_of_zeros_is_the_identity(n_logistics):
    x = torch.linspace(-30, 30, 50, dtype=torch.float64)
    zeros = torch.zeros(50, 3 * n_logistics, dtype=torch.float64)
    y, log_slope = logistic_mixture(x, zeros)
    assert torch.allclose(y, x, atol=1e-9)
    assert log_slope.abs().max() < 1e-9


def test_logistic_mixture_slope_is_that_of_autograd():
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-8, 8, 50, dtype=torch.float64)
    params = torch.randn(50, 12, generator=generator, dtype=torch.float64)
    y, log_slope = logistic_mixture(x, params)
    slope = slope_of(lambda u: logistic_mixture(u, params)[0], x)
    assert torch.allclose(log_slope, slope.log(), atol=1e-9)
    weights, locations, log_scales = params.chunk(3, -1)
    z = (x.unsqueeze(1) - locations) / log_scales.exp()
    cdf = (weights.softmax(-1) * z.sigmoid()).sum(-1)
    assert torch.allclose(y, cdf.logit(), atol=1e-9)


# Linear flows -----------------------------------------------------------------


def random_linear(kind, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if kind == "lu":
        layer = LULinear(d, generator)
    else:
        layer = LowRankLinear(d, kind, generator, bias=kind > 1)
    start = layer.matrix().detach().double()
    return perturb(layer, 0.7).double(), start


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("kind", [1, 2, 3, "lu"])
def test_linear_flow_is_its_matrix(kind, d):
    layer, start = random_linear(kind, d)
    # It starts as a permutation of the columns: the identity, unless LU.
    assert torch.equal(start @ start.T, torch.eye(d, dtype=start.dtype))
    assert kind == "lu" or torch.equal(start, torch.eye(d, dtype=start.dtype))
    x = torch.randn(6, d, generator=torch.Generator(), dtype=torch.float64)
    y, log_det = layer(x)
    assert log_det.shape == (6,)
    jacobian = vmap(jacrev(lambda row: layer(row.unsqueeze(0))[0][0]))(x)
    assert torch.allclose(jacobian, layer.matrix().expand_as(jacobian))
    assert torch.allclose(log_det, torch.linalg.slogdet(jacobian)[1], atol=1e-9)
    assert torch.allclose(layer.inverse(y), x, atol=1e-8)


def test_masked_linear_sees_what_it_may():
    groups = torch.tensor([0, 0, 1, 2])
    visible = torch.tensor([[True, False, False], [True, True, False]])
    layer = MaskedLinear(
        groups, torch.tensor([0, 1, 1]), visible, torch.Generator().manual_seed(0)
    )
    x = torch.randn(4, generator=torch.Generator())
    seen = jacrev(lambda row: layer(row))(x) != 0
    assert torch.equal(seen, visible[torch.tensor([0, 1, 1])][:, groups])


# Divergence -------------------------------------------------------------------


def normal_quantiles(n):
    return torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)


def slow_mmd(z):
    """Return the divergence with loops over pairs."""

    def kernel(x, y):
        return sum(s / (s + (x - y) ** 2) for s in CAUCHY_SCALES)

    def mean(a, b):
        return sum(kernel(x, y) for x, y in product(a, b)) / (len(a) * len(b))

    nodes = normal_quantiles(64).tolist()
    columns = z.T.tolist()
    return sum(mean(c, c) - 2 * mean(c, nodes) + mean(nodes, nodes) for c in columns)


def test_mmd_is_the_mean_over_pairs():
    z = torch.randn(5, 2, generator=torch.Generator(), dtype=torch.float64) + 0.5
    assert mmd(z).item() == pytest.approx(slow_mmd(z), abs=1e-10)
    assert DIVERGENCES["mmd"] is mmd


@pytest.mark.parametrize("m", [64, 100, 1000])
def test_mmd_vanishes_at_the_normal_quantiles(m):
    z = torch.stack([normal_quantiles(m), -normal_quantiles(m)], 1)
    assert abs(mmd(z).item()) < (1e-10 if m == 64 else 1e-3)


@pytest.mark.parametrize("moved", ["shift", "narrow", "wide", "point", "skewed"])
def test_mmd_is_positive_elsewhere(moved):
    z = normal_quantiles(200).unsqueeze(1)
    other = {
        "shift": z + 0.5,
        "narrow": 0.5 * z,
        "wide": 2 * z,
        "point": z[:1] * 0,
        "skewed": z.exp() - math.exp(0.5),
    }[moved]
    assert mmd(other).item() > 0.01


def test_mmd_does_not_depend_on_the_order_of_rows():
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(30, 3, generator=generator, dtype=torch.float64)
    shuffled = z[torch.randperm(30, generator=generator)]
    assert mmd(shuffled).item() == pytest.approx(mmd(z).item(), abs=1e-12)
    apart = sum(mmd(z[:, j : j + 1]).item() for j in range(3))
    assert mmd(z).item() == pytest.approx(apart, abs=1e-12)


@settings(deadline=None, max_examples=25)
@given(m=st.integers(1, 12), d=st.integers(1, 3), seed=st.integers(0, 2**31))
def test_mmd_is_never_negative(m, d, seed):
    generator = torch.Generator().manual_seed(seed)
    z = 3 * torch.randn(m, d, generator=generator, dtype=torch.float64)
    assert mmd(z).item() > -1e-9


def test_weights_within_the_noise_of_the_biases_are_dropped():
    facts = [CellFacts(torch.full((8,), 1 / 8), True, False, torch.zeros(8).bool())] * 3
    block = AnchoredBlock(facts, 1, 0, torch.Generator(), ordered_only=True)
    with torch.no_grad():
        block.skip.bias.fill_(0.1)
        block.skip.weight.copy_(torch.tensor([[0, 0, 0], [0.14, 0, 0], [0.05, 1, 0]]))
    block.denoise_weights()
    expected = torch.tensor([[0, 0, 0], [0, 0, 0], [0, 0.98, 0]])
    torch.testing.assert_close(block.skip.weight.data, expected)
    assert (block.skip.bias == 0).all()


def test_rows_of_ordered_columns_alone_are_spread_evenly_and_keep_their_ranks():
    facts = [CellFacts(torch.full((8,), 1 / 8), True, False, torch.zeros(8).bool())] * 3
    shape = {"n_basis": 1, "hidden_units": 0, "n_blocks": 1, "linear": "none"}
    model = HFlow(
        facts, **shape, dequantization="uniform", anchored=True,
        generator=torch.Generator(), ordered_only=True,
    )  # fmt: skip
    with torch.no_grad():
        model.first.skip.weight.copy_(torch.tensor([[0, 0, 0], [1, 0, 0], [1, 1, 0]]))
    model.rake(2**14, torch.Generator().manual_seed(1))
    codes, _ = model.sample(800, torch.Generator().manual_seed(0))
    counts = torch.stack([column.bincount(minlength=8) for column in codes.T])
    assert (counts == 100).all()
    model.evenly = False
    drawn, _ = model.sample(800, torch.Generator().manual_seed(0))
    assert (drawn.T[2].bincount(minlength=8) != 100).any()
    assert torch.corrcoef(codes.T.float()) == pytest.approx(
        torch.corrcoef(drawn.T.float()), abs=0.03
    )
