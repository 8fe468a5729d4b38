"""The noise that is added is the noise that is claimed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer
from dpgenerative._random import SecureGenerator, Streams
from dpgenerative.layers import LULinear, MaskedLinear
from dpgenerative.privacy.noise import Mechanisms, threshold_for
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from tests.privacy import test_sampling as sampling


def mechanisms():
    streams = Streams.create(None, False, "cpu")
    return Mechanisms(streams.counts, streams.gradients)


def looks_like(draws, sigma):
    return stats.kstest(np.asarray(draws) / sigma, "norm").pvalue > 1e-5


def gradient_noise(std):
    sums = [torch.zeros(100, 50), torch.zeros(3000)]
    noisy = mechanisms().gradient(sums, [std, std])
    return torch.cat([x.flatten() for x in noisy]).numpy()


def histogram_noise(std):
    return mechanisms().gaussian(np.zeros(8000), std)


@pytest.mark.parametrize("draw", [gradient_noise, histogram_noise])
def test_the_standard_deviation_is_the_one_asked_for(draw):
    assert looks_like(draw(2.5), 2.5)
    assert not looks_like(draw(2.5), 2.5 * 2 / 3)
    assert not looks_like(draw(2.5), 2.5 * 3 / 2)


def test_every_parameter_gets_its_own_noise():
    a, b = mechanisms().gradient([torch.zeros(5000), torch.zeros(5000)], [1.0, 3.0])
    assert looks_like(a.numpy(), 1.0)
    assert looks_like(b.numpy(), 3.0)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.08


def test_noise_never_repeats():
    door = mechanisms()
    zeros = [torch.zeros(51, dtype=torch.float64), torch.zeros(50, dtype=torch.float64)]
    draws = torch.cat([x for _ in range(3) for x in door.gradient(zeros, [1.0, 1.0])])
    assert len(draws.unique()) == 303
    assert not np.intersect1d(
        mechanisms().gaussian(np.zeros(50), 1.0),
        mechanisms().gaussian(np.zeros(50), 1.0),
    ).size


def test_noise_does_not_depend_on_the_values():
    def noise(values):
        return (
            Mechanisms(
                np.random.default_rng(1), torch.Generator().manual_seed(1)
            ).gradient([values], [1.0])[0]
            - values
        )

    a, b = noise(torch.zeros(100)), noise(torch.full((100,), 3.0))
    assert torch.allclose(a, b, atol=1e-6)


def test_the_count_is_geometric():
    door, epsilon = mechanisms(), 0.5
    draws = np.array([door.count(10_000, epsilon) for _ in range(20_000)]) - 10_000
    decay = math.exp(-epsilon)
    support = np.arange(-6, 7)
    expected = (1 - decay) / (1 + decay) * decay ** np.abs(support)
    observed = np.array([(draws == k).mean() for k in support])
    assert np.abs(observed - expected).max() < 4.5 * 0.5 / math.sqrt(len(draws))
    ratio = expected[1:] / expected[:-1]
    assert np.allclose(np.abs(np.log(ratio)), epsilon)
    assert door.count(1, 1e-3) >= 1
    assert door.count(7, math.inf) == 7


def test_a_unique_string_survives_as_rarely_as_paid_for():
    std, delta = 5.0, 0.02
    threshold = threshold_for(std, delta, n_releases=4)
    p = stats.norm.sf((threshold - 1) / std)
    assert 1 - (1 - p) ** 4 == pytest.approx(delta)
    door = mechanisms()
    kept = sum("x" in door.thresholded({"x": 1}, std, threshold) for _ in range(20_000))
    assert abs(kept / 20_000 - p) < 4.5 * math.sqrt(p / 20_000)


def test_thresholded_keys_come_in_an_order_of_their_own():
    door = mechanisms()
    first = door.thresholded({"b": 100, "a": 100}, 1.0, 10.0)
    second = door.thresholded({"a": 100, "b": 100}, 1.0, 10.0)
    assert list(first) == list(second) == ["a", "b"]


def test_streams_follow_the_seed_only_where_allowed():
    def private(reproducible):
        streams = Streams.create(0, reproducible, "cpu")
        return (
            streams.counts.integers(2**60),
            streams.batches.integers(2**60),
            streams.gradients.integers(2**60),
            int(torch.randint(2**60, (), generator=streams.draws)),
        )

    weights = [
        torch.rand(3, generator=Streams.create(0, False, "cpu").weights) for _ in "ab"
    ]
    assert torch.equal(*weights)
    assert not set(private(False)) & set(private(False))
    assert private(True) == private(True)
    assert len(set(private(True))) == 4


def test_noise_keeps_more_of_its_seed_than_32_bits():
    # torch's generator on a CPU does not: whoever tries 2^32 seeds finds its noise.
    assert torch.equal(
        torch.rand(3, generator=torch.Generator().manual_seed(5)),
        torch.rand(3, generator=torch.Generator().manual_seed(5 + 2**32)),
    )
    streams = Streams.create(None, False, "cpu")
    assert isinstance(streams.gradients, np.random.Generator)
    assert streams.gradients.bit_generator.state["state"]["state"].nbytes >= 16


def test_secure_normals_are_normal():
    draws = SecureGenerator().standard_normal(40_000)
    assert looks_like(draws, 1.0)
    assert not looks_like(draws, 0.95)
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4.5 / 200
    # The halves come from one pair of uniforms each, and must not show it.
    assert abs(np.corrcoef(draws[:20_000], draws[20_000:])[0, 1]) < 4.5 / 141
    moved = SecureGenerator().normal(3.0, 2.0, (100, 80))
    assert moved.shape == (100, 80)
    assert looks_like(moved.ravel() - 3, 2.0)
    assert SecureGenerator().normal(0.0, 0.0, ()).shape == ()


def test_secure_counts_are_what_they_say():
    rng = SecureGenerator()
    p, k = 0.3, np.arange(1, 12)
    draws = rng.geometric(p, 40_000)
    observed = np.append([(draws == i).sum() for i in k], (draws > k[-1]).sum())
    expected = np.append(stats.geom.pmf(k, p), stats.geom.sf(k[-1], p)) * len(draws)
    assert stats.chisquare(observed, expected).pvalue > 1e-5
    assert (rng.geometric(1.0, 5) == 1).all()
    assert rng.geometric(1e-18, 3).min() > 10**6
    numbers = rng.integers(3, 10, size=40_000)
    assert stats.chisquare(np.bincount(numbers, minlength=10)[3:]).pvalue > 1e-5
    assert 0 <= rng.integers(2**62) < 2**62
    uniforms = rng.random((200, 100))
    assert stats.kstest(uniforms.ravel(), "uniform").pvalue > 1e-5
    assert uniforms.max() < 1
    assert rng.random(0).shape == (0,)


def test_secure_batches_are_poisson():
    rows = sampling.inclusion(sampling.poisson(SecureGenerator()))
    assert sampling.fair_rate(rows)
    assert sampling.binomial_sizes(rows)
    assert sampling.uncorrelated_pairs(rows)


@pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_a_secure_fit_draws_from_the_operating_system_alone(estimator, monkeypatch):
    opened = []
    create = Streams.create.__func__

    def watched(cls, *args):
        streams = create(cls, *args)
        private = (streams.batches, streams.counts, streams.gradients)
        opened.extend((rng, rng.bit_generator.state) for rng in private)
        return streams

    monkeypatch.setattr(Streams, "create", classmethod(watched))
    table = np.random.default_rng(0).normal(size=(50, 2))
    synthesizer = estimator(
        n_steps=3, batch_size=10**6, secure=True, random_state=0, divergence="mmd"
    ).fit(table)
    assert len({id(rng) for rng, _ in opened}) == 3
    for rng, before in opened:
        assert isinstance(rng, SecureGenerator)
        assert rng.bit_generator.state == before
    assert "cryptographic" in str(synthesizer.privacy_)
    plain = estimator(n_steps=3, batch_size=10**6).fit(table)
    assert "cryptographic" not in str(plain.privacy_)


def test_secure_excludes_reproducible():
    table = np.ones((5, 2))
    with pytest.raises(ValueError, match=r"secure.*excludes reproducible"):
        DPHFlowSynthesizer(secure=True, reproducible=True, random_state=0).fit(table)
    with pytest.raises(ValueError, match="secure"):
        DPHFlowSynthesizer(secure="yes").fit(table)


def test_coordinates_without_use_carry_no_noise():
    # Bare noise in the released model would be a key to the rest of it.
    groups = torch.arange(3)
    layer = MaskedLinear(groups, groups, torch.ones(3, 3).tril(-1).bool())
    model = nn.ModuleList([layer, LULinear(3)])
    gradient = PrivateGradient(Clipper("flat", 1.0), 1.0, 4.0)
    chunk = (torch.arange(4), torch.ones(4, dtype=torch.bool))

    def objective(rows):
        y, log_det = model[1](model[0](torch.ones(4, 3)))
        return y.square().sum(1) - log_det, None

    out = gradient(model, objective, [chunk], mechanisms(), torch.Generator())
    assert not out[layer.weight].triu().any()
    assert out[layer.weight].tril(-1).count_nonzero() == 3
    assert not out[model[1].lower].triu().any()
    assert not out[model[1].upper].tril(-1).any()
    assert out[layer.bias].all()
