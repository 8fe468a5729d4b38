"""The noise that is added is the noise that is claimed."""

from __future__ import annotations

import contextlib
import math
import random
from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import log_softmax, softmax
from torch import nn

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer, _random
from dpgenerative._random import SecureGenerator, Streams
from dpgenerative.layers import LULinear, MaskedLinear
from dpgenerative.privacy import noise
from dpgenerative.privacy.noise import (
    Mechanisms,
    choice_rate,
    discrete_laplace,
    exponential_choice,
    threshold_for,
)
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from tests.privacy import test_sampling as sampling


def mechanisms():
    streams = Streams.create(None, "fresh", "cpu")
    return Mechanisms(streams.counts, streams.gradients)


def released(values, std, door=None):
    door = door or mechanisms()
    return door.gaussian(values, std, release="marginals", sensitivity=1.0)


def noisy_gradient(door, sums, stds):
    return door.gradient(sums, stds, sensitivities=stds, divisor=1.0)


def looks_like(draws, sigma):
    return stats.kstest(np.asarray(draws) / sigma, "norm").pvalue > 1e-5


def gradient_noise(std):
    sums = [torch.zeros(100, 50), torch.zeros(3000)]
    noisy = noisy_gradient(mechanisms(), sums, [std, std])
    return torch.cat([x.flatten() for x in noisy]).numpy()


def histogram_noise(std):
    return released(np.zeros(8000), std)


@pytest.mark.parametrize("draw", [gradient_noise, histogram_noise])
def test_the_standard_deviation_is_the_one_asked_for(draw):
    assert looks_like(draw(2.5), 2.5)
    assert not looks_like(draw(2.5), 2.5 * 2 / 3)
    assert not looks_like(draw(2.5), 2.5 * 3 / 2)


@pytest.mark.parametrize("std", [0.3, 2.5])
def test_the_noise_of_counts_is_a_normal_rounded(std):
    draws = released(np.full(8000, 7), std)
    assert draws.dtype == float

    def looks_rounded(sigma):
        edges = np.arange(-6.5, 7)
        expected = np.diff(stats.norm.cdf(edges, scale=sigma))
        observed = np.histogram(draws - 7, edges)[0]
        kept = expected * len(draws) > 5
        least = observed[kept].sum() / expected[kept].sum()
        return stats.chisquare(observed[kept], expected[kept] * least).pvalue > 1e-5

    assert np.array_equal(draws, np.rint(draws))
    assert looks_rounded(std)
    assert not looks_rounded(std * 2 / 3)
    assert not looks_rounded(std * 3 / 2)


def test_low_bits_of_counts_say_nothing():
    # Beside floats near 0 those near a count are coarse, and their gaps tell it.
    values = np.array([0, 1, 3, 2**40 + 1])
    door = Mechanisms(np.random.default_rng(5), None)
    zeros = Mechanisms(np.random.default_rng(5), None)
    noise = released(values, 1e3, door) - values
    assert np.array_equal(noise, released(values * 0, 1e3, zeros))
    assert (released(values, 0.0, door) == values).all()
    assert released(np.zeros(0, int), 1.0, door).shape == (0,)


def test_every_parameter_gets_its_own_noise():
    zeros = [torch.zeros(5000), torch.zeros(5000)]
    a, b = noisy_gradient(mechanisms(), zeros, [1.0, 3.0])
    assert looks_like(a.numpy(), 1.0)
    assert looks_like(b.numpy(), 3.0)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.08


def test_noise_never_repeats():
    door = mechanisms()
    zeros = [torch.zeros(51, dtype=torch.float64), torch.zeros(50, dtype=torch.float64)]
    draws = torch.cat(
        [x for _ in range(3) for x in noisy_gradient(door, zeros, [1.0, 1.0])]
    )
    assert len(draws.unique()) == 303
    assert not np.intersect1d(
        released(np.zeros(50), 1.0),
        released(np.zeros(50), 1.0),
    ).size


def test_noise_does_not_depend_on_the_values():
    def noise(value):
        streams = Streams.create(1, "reproducible", "cpu")
        door = Mechanisms(streams.counts, streams.gradients)
        values = torch.full((100,), value, dtype=torch.float64)
        (noisy,) = noisy_gradient(door, [values], [1.0])
        counts = released(values.numpy(), 1.0, door)
        return np.concatenate([noisy - values, counts - values.numpy()])

    # As sums are rounded: 1024 takes ten bits from the noise.
    for value in (1e-9, 3.0, -1024.0):
        assert np.allclose(noise(0.0), noise(value), rtol=0, atol=1e-12)
    assert len(np.unique(noise(0.0))) == 200


def test_the_count_is_geometric():
    door, epsilon = mechanisms(), 0.5
    draws = (
        np.array([door.count(range(10_000), epsilon) for _ in range(20_000)]) - 10_000
    )
    decay = math.exp(-epsilon)
    support = np.arange(-6, 7)
    expected = (1 - decay) / (1 + decay) * decay ** np.abs(support)
    observed = np.array([(draws == k).mean() for k in support])
    assert np.abs(observed - expected).max() < 4.5 * 0.5 / math.sqrt(len(draws))
    assert door.count(range(1), 1e-3) >= 1
    assert door.count(range(7), math.inf) == 7


class Restart(Exception):
    pass


def every_way(run):
    """Return the chances of all results of a function that draws.

    The function is given `pick`, which takes the chances of some outcomes and returns
    one of them; ways less likely than 10^-12, or that end in `Restart`, are left out.
    """
    found = defaultdict(float)
    waiting = [()]
    while waiting:
        script, widths, chance = waiting.pop(), [], 1.0

        def pick(chances, script=script, widths=widths):
            nonlocal chance
            choice = script[len(widths)] if len(widths) < len(script) else 0
            widths.append(len(chances))
            chance *= chances[choice]
            if chance < 1e-12:
                raise Restart
            return choice

        with contextlib.suppress(Restart):
            found[run(pick)] += chance
        for k in range(len(script), len(widths)):
            start = (*script, *[0] * (k - len(script)))
            waiting += [(*start, choice) for choice in range(1, widths[k])]
    return found


@pytest.mark.parametrize("epsilon", [0.25, 0.75, 1.0])
def test_every_probability_of_the_count_is_exact(epsilon, monkeypatch):
    t = epsilon.as_integer_ratio()[1]

    def run(pick):
        began = []

        def below(n, rng):
            if n == t and began:
                raise Restart  # and what comes then is as at the beginning
            began.append(n)
            return pick([1 / n] * n)

        def decays(a, b, rng):
            yes = math.exp(-a / b)
            return bool(pick([1 - yes, yes]))

        monkeypatch.setattr(noise, "_below", below)
        monkeypatch.setattr(noise, "_decays", decays)
        return discrete_laplace(epsilon, None)

    found = every_way(run)
    decay, whole = math.exp(-epsilon), sum(found.values())
    for k in range(-20, 21):
        exact = (1 - decay) / (1 + decay) * decay ** abs(k)
        assert found[k] / whole == pytest.approx(exact, rel=1e-6)


# Choices ------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.75, 1.5])
@pytest.mark.parametrize("scores", [[4], [3, 3, 3], [0, 3, -2, 3, 5]])
def test_every_probability_of_a_choice_is_exact(scores, rate, monkeypatch):
    def run(pick):
        began = []

        def below(n, rng):
            if began:
                raise Restart  # and what comes then is as at the beginning
            began.append(n)
            return pick([1 / n] * n)

        def decays(a, b, rng):
            assert 0 <= a <= b
            yes = math.exp(-a / b)
            return bool(pick([1 - yes, yes]))

        monkeypatch.setattr(noise, "_below", below)
        monkeypatch.setattr(noise, "_decays", decays)
        return exponential_choice(scores, rate, None)

    found = every_way(run)
    whole = sum(found.values())
    exact = softmax(rate * np.array(scores))
    for place, probability in enumerate(exact):
        assert found[place] / whole == pytest.approx(probability, rel=1e-6)


def chosen(scores, multiplier, sensitivity=2, n=1, door=None):
    door, stated = door or mechanisms(), {"release": "tables"}
    stated["sensitivity"] = sensitivity
    return [door.choose(np.array(scores), multiplier, **stated) for _ in range(n)]


def looks_drawn(places, scores, rate):
    """Return whether places were drawn at a rate; wrong once in 100,000 times."""
    exact = softmax(rate * np.array(scores, float))
    observed = np.bincount(places, minlength=len(scores))
    return stats.chisquare(observed, exact * len(places)).pvalue > 1e-5


@pytest.mark.parametrize("multiplier", [0.4, 1.0, 20.0])
def test_choices_have_the_rate_of_their_multiplier(multiplier):
    step = math.ceil(2 * multiplier)
    scores = [0, step, 2 * step, 4 * step, 4 * step]
    places = chosen(scores, multiplier, n=8000)
    half = stats.norm.cdf(1 / (2 * multiplier))
    rate = math.log(half / (1 - half)) / 2
    assert looks_drawn(places, scores, rate)
    assert not looks_drawn(places, scores, rate * 2 / 3)
    assert not looks_drawn(places, scores, rate * 3 / 2)


def test_equal_scores_are_chosen_equally_often():
    scores = [7, 7, 7, 7, 7, 7]
    for multiplier in (0.0, 1.0, math.inf):
        assert looks_drawn(chosen(scores, multiplier, n=3000), scores, 1.0)
    # All scores are equal at infinite noise, and only the highest without any.
    assert looks_drawn(chosen([0, 50, 99], math.inf, n=3000), scores[:3], 1.0)
    places = chosen([9, 3, 9], 0.0, n=3000)
    assert looks_drawn(np.array(places) // 2, scores[:2], 1.0)
    assert set(places) == {0, 2}


def test_the_choice_of_one_is_none():
    assert chosen([-5], 1.0) == [0]


@pytest.mark.parametrize("multiplier", [0.0, 1e-150, 1e-3, 1.0])
def test_gaps_of_any_size_are_drawn_at_once(multiplier):
    scores = [0, 2**62, -(2**62), *range(500)]
    assert set(chosen(scores, multiplier, n=20)) == {1}


def test_scores_that_are_no_whole_numbers_are_refused():
    with pytest.raises(TypeError, match="integer"):
        chosen([1.0, 2.0], 1.0)
    with pytest.raises(ValueError, match="empty"):
        chosen(np.zeros(0, int), 1.0)


def test_a_choice_is_noted_as_the_release_that_costs_as_much():
    door = mechanisms()
    chosen([1, 2], 4.0, door=door)
    chosen([1, 2], 0.5, sensitivity=3, door=door)
    chosen([1, 2], 0.0, door=door)
    assert door.ledger.losses == {"tables": [1 / 16, 4.0, math.inf]}


def test_choices_draw_from_the_system_alone(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        SecureGenerator, "bytes", lambda _, n: drawn.append(n) or random.randbytes(n)
    )
    door = Mechanisms(SecureGenerator(), None)
    assert len(chosen([3, 3], 1.0, n=5, door=door)) == 5
    assert len(drawn) >= 5


def most_power(one, other, multiplier):
    """Return by how much a test beats all of a Gaussian release, at any level.

    The best tests of two laws are those of the largest ratios; between these, power is
    linear in the level, and that of the Gaussian release is concave.
    """
    order = np.argsort(other - one, kind="stable")
    power, level = (np.exp(x[order]).cumsum()[:-1] for x in (one, other))
    allowed = stats.norm.cdf(stats.norm.ppf(level.clip(0, 1)) + 1 / multiplier)
    return float((power - allowed).max(initial=-1.0))


SCORES = st.lists(
    st.tuples(st.integers(-60, 60), st.integers(-3, 3)), min_size=2, max_size=9
)


@settings(max_examples=400, deadline=None, report_multiple_bugs=False)
@given(SCORES, st.floats(0.05, 100))
@example([(2, -3), (-1, 3)], 1.0)  # the most that a choice shows
def test_no_test_of_a_choice_has_more_power_than_of_its_release(pairs, multiplier):
    scores, moves = np.array(pairs).T
    laws = [
        log_softmax(choice_rate(multiplier) / 3 * each)
        for each in (scores, scores + moves)
    ]
    both = (most_power(*each, multiplier) for each in (laws, laws[::-1]))
    assert max(both) <= 1e-9


@pytest.mark.parametrize("multiplier", [0.1, 0.5, 1.0, 10.0, 1000.0])
def test_the_power_of_a_choice_is_reached(multiplier):
    # One score is moved up by 1, the other down.
    rate = choice_rate(multiplier)
    one, other = (log_softmax(rate * np.array([s, -s]) / 2) for s in (1, -1))
    assert most_power(one, other, multiplier) == pytest.approx(0, abs=1e-9)
    ends = stats.norm.isf(np.exp([one[1], other[1]]))
    assert ends[0] - ends[1] == pytest.approx(1 / multiplier, rel=1e-6)
    # With a hundredth more the release would not cover it.
    one, other = (log_softmax(1.01 * rate * np.array([s, -s]) / 2) for s in (1, -1))
    least = 1e-3 * stats.norm.pdf(0.5 / multiplier) / multiplier
    assert most_power(one, other, multiplier) > least


@pytest.mark.thin(2)
@pytest.mark.parametrize("ratio", [(0, 1), (1, 1), (1, 2), (2, 3)])
def test_a_decay_has_its_exact_probability(ratio, monkeypatch):
    def run(pick):
        monkeypatch.setattr(noise, "_below", lambda n, _: pick([1 / n] * n))
        return noise._decays(*ratio, None)

    found = every_way(run)
    assert found[True] == pytest.approx(math.exp(-ratio[0] / ratio[1]), abs=1e-8)


@pytest.mark.parametrize("n", [1, 2, 5, 256])
def test_whole_numbers_below_another_are_all_alike(n):
    class Byte:
        def __init__(self, *values):
            self.values = values

        def bytes(self, length):
            return bytes([self.values[0]][:length])

    rejected = [b for b in range(256) if b >> -(n - 1).bit_length() % 8 >= n]
    kept = [noise._below(n, Byte(b)) for b in range(256) if b not in rejected]
    assert len(set(np.bincount(kept, minlength=n))) == 1
    large = [noise._below(3 * 2**70, SecureGenerator()) for _ in range(500)]
    assert 0 <= min(large) < 2**70 < max(large) < 3 * 2**70


@pytest.mark.parametrize("epsilon", [1e-300, 0.015, 3.7, 1e300])
def test_counts_of_any_epsilon_are_whole_numbers(epsilon):
    draws = [discrete_laplace(epsilon, SecureGenerator()) for _ in range(9)]
    assert all(type(k) is int for k in draws)
    assert max(map(abs, draws)) < 1e3 / epsilon + 1
    # No float's range or precision ends them.
    assert epsilon > 1 or max(map(abs, draws)) > 1e-3 / epsilon


@pytest.mark.parametrize("std", [0.04, 1.0, 2.3, 37.7])
@pytest.mark.parametrize("n", [1, 4])
def test_the_threshold_is_the_least_that_is_paid_for(std, n):
    def cost(threshold):
        # 1 + round(N) exceeds a whole threshold where N is at least threshold - 1/2.
        p = stats.norm.sf((threshold - 0.5) / std)
        return 1 - (1 - p) ** n

    threshold = threshold_for(std, 1e-6, n)
    assert threshold == int(threshold)
    assert cost(threshold) <= 1e-6 < cost(threshold - 1)


def test_a_unique_string_survives_as_rarely_as_paid_for():
    std, delta = 5.0, 0.02
    threshold = threshold_for(std, delta, n_releases=4)
    p = stats.norm.sf((threshold - 0.5) / std)
    assert 0.01 < 1 - (1 - p) ** 4 <= delta
    door = mechanisms()

    def passes(door):
        return door.thresholded({"x": 1}, std, threshold, release="marginals")

    kept = sum("x" in passes(door) for _ in range(20_000))
    assert abs(kept / 20_000 - p) < 4.5 * math.sqrt(p / 20_000)


def test_thresholded_keys_come_in_an_order_of_their_own():
    door = mechanisms()
    for counts in ({"b": 100, "a": 100}, {"a": 100, "b": 100}):
        released = door.thresholded(counts, 1.0, 10.0, release="marginals")
        assert list(released) == ["a", "b"]


def test_streams_follow_the_seed_only_where_allowed():
    def private(noise):
        streams = Streams.create(0, noise, "cpu")
        return (
            streams.counts.integers(2**60),
            streams.batches.integers(2**60),
            streams.gradients.integers(2**60),
            int(torch.randint(2**60, (), generator=streams.draws)),
        )

    weights = [
        torch.rand(3, generator=Streams.create(0, "fresh", "cpu").weights) for _ in "ab"
    ]
    assert torch.equal(*weights)
    assert not set(private("fresh")) & set(private("fresh"))
    assert not set(private("secure")) & set(private("secure"))
    assert private("reproducible") == private("reproducible")
    assert len(set(private("reproducible"))) == 4


def test_every_stream_has_entropy_of_its_own():
    streams = Streams.create(0, "fresh", "cpu")
    assert isinstance(streams.counts, SecureGenerator)
    seeds = [rng.bit_generator.seed_seq for rng in (streams.batches, streams.gradients)]
    assert seeds[0].entropy != seeds[1].entropy
    assert all(seed.spawn_key == () for seed in seeds)
    assert all(seed.entropy.bit_length() > 64 for seed in seeds)
    assert all(seed.pool_size * 32 == 128 for seed in seeds)


def test_the_secure_generator_draws_from_the_system_and_nothing_else():
    """What the system gave is what it returns, and decides all else that it draws."""
    given = []

    def recorded(length):
        given.append(source.randbytes(length))
        return given[-1]

    def drawn():
        rng = SecureGenerator()
        draws = [
            rng.bytes(20), rng.random(9), rng.standard_normal(9), rng.geometric(0.1, 9),
            rng.integers(1000, size=9),
        ]  # fmt: skip
        assert draws[:1] == given[:1]
        return [np.asarray(each).tolist() for each in draws]

    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_random.os, "urandom", recorded)
        for seed in (0, 0, 1):
            source = random.Random(seed)
            given.clear()
            found.append(drawn())
    assert found[0] == found[1]
    assert all(one != other for one, other in zip(*found[1:], strict=True))


def test_the_secure_generator_has_no_methods_but_its_own():
    # Those of numpy would draw from another generator.
    rng = SecureGenerator()
    assert not isinstance(rng, np.random.Generator)
    public = {name for name in dir(rng) if not name.startswith("_")}
    assert public == {"bytes", "random", "standard_normal", "geometric", "integers"}
    assert len(rng.bytes(20)) == 20


def test_noise_keeps_more_of_its_seed_than_32_bits():
    # torch's generator on a CPU does not: whoever tries 2^32 seeds finds its noise.
    assert torch.equal(
        torch.rand(3, generator=torch.Generator().manual_seed(5)),
        torch.rand(3, generator=torch.Generator().manual_seed(5 + 2**32)),
    )
    streams = Streams.create(None, "fresh", "cpu")
    assert isinstance(streams.gradients, np.random.Generator)
    assert streams.gradients.bit_generator.state["state"]["state"].nbytes >= 16


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_secure_normal_is_made_of_four_pairs(n, monkeypatch):
    # Both normals of one pair add up to what a single normal of the pair could be.
    rng, n_pairs = SecureGenerator(), 2 * max(n, 2)
    radii = np.eye(n_pairs) * 0.5 + (1 - np.eye(n_pairs))
    moved = []
    for radius in radii:
        drawn = iter([radius, np.full(n_pairs, 0.125)])
        monkeypatch.setattr(rng, "_uniforms", lambda size, drawn=drawn: next(drawn))
        moved.append(rng.standard_normal(n) != 0)
    assert np.sum(moved, axis=0).tolist() == [4] * n


def test_secure_normals_are_normal():
    draws = SecureGenerator().standard_normal(40_000)
    assert looks_like(draws, 1.0)
    assert not looks_like(draws, 0.9)
    # Neighbours have pairs of uniforms in common, and must not show it.
    assert abs(np.corrcoef(draws[1:], draws[:-1])[0, 1]) < 4.5 / 200
    assert abs(np.corrcoef(draws[1:] ** 2, draws[:-1] ** 2)[0, 1]) < 4.5 / 200
    assert SecureGenerator().standard_normal((100, 80)).shape == (100, 80)
    assert SecureGenerator().standard_normal(()).shape == ()


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
        opened.extend((streams.batches, streams.counts, streams.gradients))
        return streams

    monkeypatch.setattr(Streams, "create", classmethod(watched))
    table = np.random.default_rng(0).normal(size=(50, 2))
    synthesizer = estimator(
        n_steps=3, batch_size=10**6, noise="secure", random_state=0, divergence="mmd"
    ).fit(table)
    assert [type(rng) for rng in opened] == [SecureGenerator] * 3
    assert "cryptographic" in str(synthesizer.privacy_)
    plain = estimator(n_steps=3, batch_size=10**6).fit(table)
    assert "cryptographic" not in str(plain.privacy_)


def test_other_kinds_of_noise_are_refused():
    with pytest.raises(ValueError, match="'fresh', 'reproducible', 'secure'"):
        DPHFlowSynthesizer(noise="yes").fit(np.ones((5, 2)))


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
