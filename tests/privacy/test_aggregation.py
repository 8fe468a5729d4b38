"""The three ways to bound a gradient with a batch-wise term, and their noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from dpgenerative.fitting.loop import plain_gradient
from dpgenerative.layers import MaskedLinear
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.divergences import LATENT_DIVERGENCES, Latents
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import VAE
from dpgenerative.privacy import clipping
from dpgenerative.privacy.gradients import layer_gradients, record
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import (
    AGGREGATIONS,
    Clipper,
    PrivateGradient,
)
from tests.privacy.oracle import norm, sum_of_clipped

BOUND, GROUP_BOUND, BATCH, PARTITIONS, CAP = 0.5, 0.2, 8.0, 3, 9
SLACK = 1 + 1e-5


class Pair(nn.Module):
    """One weight that the batch-wise term reaches, and one that it does not."""

    def __init__(self):
        super().__init__()
        self.encoder = MaskedLinear.dense(1, 1)
        self.decoder = MaskedLinear.dense(1, 1)


def make_vae(seed=0, latent_dim=2, prior=None):
    masses = [[0.3, 0.1, 0.2, 0.15, 0.25], [0.5, 0.2, 0.3]]
    facts = [
        CellFacts(torch.tensor(m).double(), i == 0, False, torch.ones(len(m)).bool())
        for i, m in enumerate(masses)
    ]
    generator = torch.Generator().manual_seed(seed)
    model = VAE(
        facts, n_basis=2, hidden_units=6, latent_dim=latent_dim,
        prior=prior or NormalPrior(latent_dim), beta=1.0, generator=generator,
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=generator))
    return model


def vae_objective(model, n=12, n_draws=2, seed=0):
    """Return losses and latents of fixed records with fixed draws."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.stack(
        [torch.randint(k, (n,), generator=generator) for k in model.cells.n_cells], 1
    )
    noise = torch.randn(n, n_draws, model.latent_dim, generator=generator)

    def objective(rows):
        bound, latents = model(codes[rows], noise[rows].to(model.cells.log_masses))
        posterior = torch.stack([latents.mean, latents.log_variance], 1)
        return -bound, torch.cat([latents.draws, posterior], 1)

    return objective


def divergence_of(model, name):
    def divergence(stacked):
        generator = torch.Generator().manual_seed(5)
        latents = Latents(stacked[:, :-2], stacked[:, -2], stacked[:, -1])
        return LATENT_DIVERGENCES[name](latents, model.prior, generator)

    return divergence


def make_gradient(aggregation, **changes):
    facts = {
        "clipper": Clipper("flat", BOUND, group_bound=GROUP_BOUND),
        "noise_multiplier": 0.0,
        "batch_size": BATCH,
        "n_partitions": PARTITIONS,
        "aggregation": aggregation,
        "batch_cap": CAP,
        "batch_term_module": "encoder",
    }
    return PrivateGradient(**{**facts, **changes})


def released(gradient, model, objective, rows, divergence, partition=None):
    rows = torch.tensor(list(rows), dtype=torch.long)
    chunks = [(rows, torch.ones(len(rows), dtype=torch.bool))]
    mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
    places = partition if callable(partition) else (lambda n: partition[:n])
    return gradient(
        model, objective, chunks, mechanisms, torch.Generator(), divergence, places
    )


def distance(gradient, model, a, b):
    """Return how far two gradients lie apart, in units of 1 / noise multiplier."""
    units = gradient.sensitivities(model, batch_wise=True)
    return norm({p: (a[p].double() - b[p].double()) / units[p] for p in a})


# Bounds ---------------------------------------------------------------------------


@pytest.mark.thin(2)
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("name", LATENT_DIVERGENCES)
@pytest.mark.parametrize("n", [0, 1, 2, 5, CAP - 1, CAP])
def test_one_record_moves_the_gradient_by_at_most_its_noise(aggregation, name, n):
    model = make_vae(n)
    objective, divergence = vae_objective(model), divergence_of(model, name)
    gradient = make_gradient(aggregation)
    places = np.random.default_rng(n).integers(0, PARTITIONS, size=n + 1)
    for scale in (1.0, 1e6):

        def term(latents, scale=scale):
            return scale * divergence(latents)

        more, less = (
            released(gradient, model, objective, range(m), term, places)
            for m in (n + 1, n)
        )
        assert distance(gradient, model, more, less) <= SLACK


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("broken", [math.inf, math.nan])
def test_unusable_numbers_stay_within_the_bound(aggregation, broken):
    model, gradient = Pair(), make_gradient(aggregation)
    x = torch.tensor([[1.0], [-2.0], [broken]])

    def objective(rows):
        latents = model.encoder(x[rows])
        return model.decoder(latents).sum(1) + latents.sum(1), latents

    more, less = (
        released(gradient, model, objective, range(m), torch.mean, np.zeros(3, int))
        for m in (3, 2)
    )
    assert all(torch.isfinite(g).all() for g in more.values())
    assert distance(gradient, model, more, less) <= SLACK


def turning(model, own=0.0):
    """Return losses and a divergence that one more record turns round."""

    def objective(rows):
        latents = model.encoder(torch.zeros(len(rows), 1))
        losses = own * latents.sum(1) + 0 * model.decoder(latents).sum(1)
        return losses, latents

    def divergence(latents):
        sign = 1.0 if len(latents) == 4 else -1.0
        return sign * 1e3 * latents.mean()

    return objective, divergence


def swing(aggregation, own=0.0, **changes):
    model = Pair()
    gradient = make_gradient(aggregation, batch_cap=4, **changes)
    objective, divergence = turning(model, own)
    more, less = (
        released(gradient, model, objective, range(m), divergence, np.zeros(4, int))
        for m in (4, 3)
    )
    moved = norm({p: more[p].double() - less[p].double() for p in more})
    return gradient, moved, distance(gradient, model, more, less)


def test_the_term_wise_bound_is_reached():
    # The record's own gradient and the turn of its partition point the same way.
    gradient, moved, units = swing("term-wise", own=1e3)
    a, c = BOUND / BATCH, 2 * GROUP_BOUND / PARTITIONS
    assert moved == pytest.approx(a + c, rel=1e-3)
    assert gradient.sensitivity(batch_wise=True) == pytest.approx(a + c)
    assert 0.999 <= units <= SLACK


def test_the_micro_bound_is_reached():
    # Three others turn from -C to +C, and the fourth brings its own C.
    gradient, moved, units = swing("micro")
    assert moved == pytest.approx((2 * 4 - 1) * BOUND / BATCH, rel=1e-3)
    assert 0.999 <= units <= SLACK
    assert gradient.sensitivity(True) == pytest.approx(7 * BOUND / BATCH)


def test_the_batch_bound_is_reached():
    gradient, moved, units = swing("batch")
    assert moved == pytest.approx(2 * BOUND, rel=1e-3)
    assert 0.999 <= units <= SLACK
    assert gradient.sensitivity(True) == 2 * BOUND


def test_the_worst_split_between_coordinates_is_covered():
    # A record may put any part of its bound on coordinates without the second noise.
    model, gradient = Pair(), make_gradient("term-wise", noise_multiplier=1.0)
    stds = gradient.stds(model, batch_wise=True)
    reached, other = stds[model.encoder.weight], stds[model.decoder.weight]
    a, c = BOUND / BATCH, 2 * GROUP_BOUND / PARTITIONS
    t = np.linspace(0, a, 1001)
    units = ((t + c) / reached) ** 2 + (a**2 - t**2) / other**2
    assert units.max() <= SLACK
    assert units[-1] == pytest.approx(1)
    # The two noises of z1 and z2 would give the reached coordinates the same.
    z1, z2 = math.sqrt((a + c) / a), math.sqrt((a + c) / c)
    assert reached == pytest.approx(math.hypot(z1 * a, z2 * c))
    assert other == pytest.approx(z1 * a)


@pytest.mark.parametrize("aggregation", ["micro", "batch"])
def test_the_baselines_see_the_whole_batch(aggregation):
    # Wide bounds leave the plain gradient of losses and divergence.
    model = make_vae()
    objective, divergence = vae_objective(model, n=8), divergence_of(model, "mmd")
    gradient = make_gradient(aggregation, clipper=Clipper("flat", 1e6))
    found = released(gradient, model, objective, range(8), divergence)
    chunks = [(torch.arange(8), torch.ones(8, dtype=torch.bool))]
    plain = plain_gradient(model, objective, chunks, BATCH, divergence)
    for p, g in plain.items():
        assert torch.allclose(found[p], g, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("chunk_bytes", [1, 2**24])
def test_micro_equals_one_record_at_a_time(monkeypatch, chunk_bytes):
    monkeypatch.setitem(clipping.CHUNK_BYTES, "cpu", chunk_bytes)
    model = make_vae()
    objective, divergence = vae_objective(model, n=5), divergence_of(model, "kl")
    gradient = make_gradient("micro")
    found = released(gradient, model, objective, range(5), divergence)
    params = list(model.parameters())
    total = {p: torch.zeros_like(p) for p in params}
    for i in range(5):
        losses, latents = objective(torch.arange(5))
        grads = torch.autograd.grad(losses[i] + divergence(latents), params)
        one = dict(zip(params, grads, strict=True))
        for p in params:
            total[p] += min(1, BOUND / norm(one)) * one[p] / BATCH
    for p in params:
        assert torch.allclose(found[p], total[p], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("chunk_bytes", [1, 2**24])
def test_thinning_nothing_is_clipping_per_layer(monkeypatch, chunk_bytes):
    monkeypatch.setitem(clipping.CHUNK_BYTES, "cpu", chunk_bytes)
    model = make_vae()
    objective, divergence = vae_objective(model), divergence_of(model, "mmd")
    thinned, layered = (
        released(
            make_gradient("term-wise", clipper=clipper),
            model, objective, range(7), divergence, np.zeros(7, dtype=int),
        )
        for clipper in (Clipper("sparsified", BOUND, 0.0), Clipper("per-layer", BOUND))
    )  # fmt: skip
    for p in model.parameters():
        assert torch.allclose(thinned[p], layered[p], rtol=1e-4, atol=1e-7)
    assert norm(layered) > 0


def test_a_batch_beyond_the_cap_counts_as_zero():
    model = make_vae()
    objective, divergence = vae_objective(model), divergence_of(model, "mmd")
    gradient = make_gradient("micro")
    full = released(gradient, model, objective, range(CAP), divergence)
    over = released(gradient, model, objective, range(CAP + 1), divergence)
    assert norm(full) > 0
    assert norm(over) == 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_an_empty_batch_is_zero_and_noise(aggregation):
    model = make_vae()
    objective, divergence = vae_objective(model), divergence_of(model, "mmd")
    places = np.zeros(1, int)
    silent = released(
        make_gradient(aggregation), model, objective, [], divergence, places
    )
    assert norm(silent) == 0
    noisy = make_gradient(aggregation, noise_multiplier=1.0)
    out = released(noisy, model, objective, [], divergence, places)
    assert all((g != 0).all() for g in out.values())


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_padding_changes_nothing(aggregation):
    model = make_vae()
    objective, divergence = vae_objective(model), divergence_of(model, "mmd")
    gradient = make_gradient(aggregation)
    places = np.random.default_rng(0).integers(0, PARTITIONS, 12)
    whole = released(gradient, model, objective, range(6), divergence, places)
    rows = torch.tensor([*range(6), 7, 8])
    chunk = (rows, torch.arange(8) < 6)
    mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
    padded = gradient(
        model, objective, [chunk], mechanisms, torch.Generator(), divergence,
        lambda n: places[:n],
    )  # fmt: skip
    assert norm(whole) > 0.01
    for p in whole:
        assert torch.allclose(whole[p], padded[p], atol=1e-6)


# Where the batch-wise term may reach ----------------------------------------------


def test_what_is_not_declared_is_left_out():
    # A divergence that looks at the decoder too: its gradient there is never formed.
    model = Pair()

    def objective(rows):
        latents = model.encoder(torch.ones(len(rows), 1))
        return 0 * latents.sum(1), torch.cat([latents, model.decoder(latents)], 1)

    def run(module):
        gradient = make_gradient("term-wise", batch_term_module=module)
        return released(gradient, model, objective, [0, 1], torch.sum, np.zeros(2, int))

    declared, everywhere = run("encoder"), run("")
    assert not declared[model.decoder.bias].any()
    assert everywhere[model.decoder.bias].all()
    assert float(declared[model.encoder.bias]) == pytest.approx(
        GROUP_BOUND / PARTITIONS / math.sqrt(2), rel=1e-3
    )


def test_the_flow_declares_nothing():
    gradient = make_gradient("term-wise", batch_term_module="", noise_multiplier=1.0)
    assert len(set(gradient.stds(Pair(), batch_wise=True).values())) == 1
    alone = make_gradient("term-wise", noise_multiplier=1.0)
    assert set(alone.stds(Pair(), batch_wise=False).values()) == {BOUND / BATCH}


# Table 1 of the paper, corrected --------------------------------------------------


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_measured_noise_is_that_of_the_formula(aggregation):
    z, side = 1.7, 400
    model = nn.ModuleDict(
        {
            "encoder": MaskedLinear.dense(side, side),
            "decoder": MaskedLinear.dense(side, side),
        }
    )

    def objective(rows):
        latents = model["encoder"](torch.ones(len(rows), side))
        return model["decoder"](latents).sum(1), latents

    gradient = make_gradient(aggregation, noise_multiplier=z)
    out = released(gradient, model, objective, [], torch.mean, np.zeros(1, int))
    a, c = BOUND / BATCH, 2 * GROUP_BOUND / PARTITIONS
    expected = {
        "term-wise": (z * (a + c), z * math.sqrt(a * (a + c))),
        "micro": (z * (2 * CAP - 1) * BOUND / BATCH,) * 2,
        "batch": (z * 2 * BOUND,) * 2,
    }[aggregation]
    for name, std in zip(("encoder", "decoder"), expected, strict=True):
        measured = float(out[model[name].weight].double().std())
        assert measured == pytest.approx(std, rel=0.01)


# L draws --------------------------------------------------------------------------


@pytest.mark.parametrize("n_draws", [1, 3])
def test_the_draws_of_a_record_are_one_unit(n_draws):
    torch.manual_seed(0)
    model = make_vae().double()
    objective = vae_objective(model, n=6, n_draws=n_draws)
    params = list(model.parameters())
    oracle = []
    for i in range(6):
        loss = objective(torch.tensor([i]))[0].sum()
        grads = torch.autograd.grad(loss, params)
        oracle.append(dict(zip(params, grads, strict=True)))
    with record(model) as calls:
        losses, _ = objective(torch.arange(6))
    layers = layer_gradients(model, calls, losses.sum(), 6)
    for layer in layers:
        for p, g in zip(layer.parameters, layer.per_example(), strict=True):
            expected = torch.stack([row[p] for row in oracle])
            assert torch.allclose(g, expected, rtol=1e-9, atol=1e-12)
        squares, margins = layer.squared_norms()
        expected = [norm({p: row[p] for p in layer.parameters}) for row in oracle]
        expected = torch.tensor(expected, dtype=torch.float64)
        assert torch.allclose(squares.sqrt(), expected, rtol=1e-9, atol=1e-12)
        assert (squares.sqrt() + margins >= expected * (1 - 1e-12)).all()
    sums = Clipper("flat", 0.1).clipped_sums(
        layers, torch.ones(6, dtype=torch.bool), torch.Generator()
    )
    for p in params:
        expected = sum_of_clipped(oracle, p, 0.1)
        assert torch.allclose(sums[p], expected, rtol=1e-4, atol=1e-8)


# What an adversary sees -----------------------------------------------------------


@pytest.mark.audit
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_the_worst_neighbours_are_as_far_apart_as_the_noise_says(aggregation):
    # Releases of two neighbouring batches, projected on their difference, are two
    # normal laws whose distance is 1 / z: no more (privacy), no less (the test sees).
    z, n = 0.5, 2000
    model = Pair()
    gradient = make_gradient(aggregation, batch_cap=4, noise_multiplier=z)
    objective, divergence = turning(model, own=1e3 * (aggregation == "term-wise"))
    mechanisms = Mechanisms(np.random.default_rng(0), np.random.default_rng(1))
    units = gradient.stds(model, batch_wise=True)
    line = model.encoder.bias

    def draws(m):
        rows = torch.arange(m)
        chunk = (rows, torch.ones(m, dtype=torch.bool))
        for _ in range(n):
            out = gradient(
                model, objective, [chunk], mechanisms, torch.Generator(), divergence,
                lambda k: np.zeros(k, int),
            )  # fmt: skip
            yield float(out[line]) / units[line]

    more, less = np.fromiter(draws(4), float), np.fromiter(draws(3), float)
    spread = math.sqrt((more.var() + less.var()) / 2)
    assert spread == pytest.approx(1, rel=0.05)
    assert abs(more.mean() - less.mean()) / spread * z == pytest.approx(1, rel=0.06)


def test_noise_of_the_first_term_alone_elsewhere_is_too_little():
    # z a on the coordinates that the second term does not reach: a record that splits
    # its bound between both kinds is not covered.
    a, c = BOUND / BATCH, 2 * GROUP_BOUND / PARTITIONS
    t = np.linspace(0, a, 1001)
    units = ((t + c) / (a + c)) ** 2 + (a**2 - t**2) / a**2
    assert units.max() > 1.05
