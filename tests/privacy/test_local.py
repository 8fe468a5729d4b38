"""Local randomizers: exact probabilities on small domains, and what they add up to.

Distributions are computed, not sampled: randomised responses by going through every
number that can be drawn, Laplace noise by its probabilities, whose sampler is compared
with them apart.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from dpgenerative import Column, ImagePixelizer, LaplaceRandomizer, Schema
from dpgenerative._random import SecureGenerator
from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.local import images, mechanisms, tables
from dpgenerative.local.mechanisms import (
    FINENESS,
    laplace_noise,
    rate_of,
    respond,
    respond_missing,
)

EPSILONS = [0.1, 1.0, 3.0, 9.5]
exactly = 1 + 1e-12
"""Room for the rounding of floats in the tests' own sums."""


class Numbered:
    """Draws the numbers that it is told to, whatever it is asked for."""

    def __init__(self, draws):
        self.draws = draws
        self.highs = []

    def integers(self, low, high, size):
        self.highs.append(high)
        return np.broadcast_to(self.draws, size)


# Mechanisms ---------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n_options", [1, 2, 3, 17])
def test_randomised_response_has_the_ratio_it_states(epsilon, n_options, monkeypatch):
    monkeypatch.setattr(mechanisms, "FINENESS", 2**8)
    n = math.floor(2**8 * math.exp(epsilon) * (1 - 1e-15)) + (n_options - 1) * 2**8
    counts = []
    for code in range(n_options):
        rng = Numbered(np.arange(n))
        drawn = respond(np.full(n, code), n_options, epsilon, rng)
        assert rng.highs == [n]
        counts.append(np.bincount(drawn, minlength=n_options))
    ratio = np.max(counts) / np.min(counts)
    assert ratio <= math.exp(epsilon) * exactly
    if n_options > 1:
        assert ratio >= math.exp(epsilon) * (1 - 2**-8)
        assert len({*np.delete(counts[0], 0)}) == 1


def threshold(missing, epsilon, share):
    """Return how many of all numbers make an entry count as missing, by bisection."""
    low, high = 0, FINENESS**2
    while low < high:
        middle = (low + high) // 2
        said = respond_missing(np.array([missing]), epsilon, share, Numbered(middle))
        low, high = (middle + 1, high) if said[0] else (low, middle)
    return low


@pytest.mark.parametrize("epsilon", [1e-3, *EPSILONS, 27.0, 500.0])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.9])
def test_responses_to_missing_values_cost_what_they_state(epsilon, share):
    p, q = (threshold(missing, epsilon, share) for missing in (False, True))
    whole = FINENESS**2
    assert 0 < p <= q < whole
    assert math.log(q / p) <= epsilon * exactly
    assert math.log((whole - p) / (whole - q)) <= share * epsilon * exactly
    if epsilon < 20:
        assert math.log(q / p) > 0.999 * epsilon - 1e-6
        assert math.log((whole - p) / (whole - q)) > 0.999 * share * epsilon - 1e-6


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, math.pi, 1e3, 1e9])
@pytest.mark.parametrize("sensitivity", [1, 3, 255 * 4096, 2**30])
def test_rates_are_rounded_to_the_private_side(epsilon, sensitivity):
    s, t = rate_of(epsilon, sensitivity)
    exact = Fraction(epsilon) / sensitivity
    assert Fraction(s, t) <= exact
    if exact < 1:
        assert Fraction(s, t) > exact * Fraction(999, 1000)


def test_an_epsilon_that_leaves_nothing_is_refused():
    with pytest.raises(InfeasibleBudgetError, match="noise"):
        rate_of(1e-12, 2**20)


def laplace(rate, n):
    """Return P(k) of two-sided geometric noise, k = -n to n, the tails in the ends."""
    r = math.exp(-rate)
    k = np.abs(np.arange(-n, n + 1))
    p = (1 - r) / (1 + r) * r**k
    p[[0, -1]] = r**n / (1 + r)
    return p


@pytest.mark.parametrize("make", [SecureGenerator, partial(np.random.default_rng, 0)])
@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1, 1), (0.7, 5), (3, 2), (6, 1)])
def test_noise_has_its_distribution(make, epsilon, sensitivity):
    s, t = rate_of(epsilon, sensitivity)
    n = math.ceil(5 * t / s)
    drawn = laplace_noise((300, 100), epsilon, sensitivity, make())
    assert drawn.dtype == np.int64
    found = np.bincount(np.clip(drawn, -n, n).ravel() + n, minlength=2 * n + 1)
    expected = drawn.size * laplace(s / t, n)
    usual = expected > 5
    statistic = ((found - expected) ** 2 / expected)[usual].sum()
    assert chi2.sf(statistic, usual.sum()) > 1e-6


def test_no_sensitivity_no_noise():
    assert not laplace_noise((3, 2), 1.0, 0, SecureGenerator()).any()


# Tables -------------------------------------------------------------------------------


def enumerated(monkeypatch, module=tables):
    """Make noise go through all values; return what it was asked for."""
    asked = []

    def noise(shape, epsilon, sensitivity, rng):
        asked.append((epsilon, sensitivity))
        k = np.arange(math.prod(shape)) - math.prod(shape) // 2
        return k.reshape(shape) if sensitivity else np.zeros(shape, int)

    monkeypatch.setattr(module, "laplace_noise", noise)
    return asked


def distribution(randomizer, value, n, asked):
    """Return the exact probabilities of the places 0 to n of a value that is there."""
    frame = pd.DataFrame({"x": np.full(2 * n + 1, value)})
    places = randomizer.transform(frame)["x"].to_numpy() - randomizer.schema_["x"].lower
    epsilon, sensitivity = asked[-1]
    s, t = rate_of(epsilon, sensitivity)
    return np.bincount(
        places.astype(int), laplace(s / t, n), minlength=n + 1
    )  # fmt: skip


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_whole_numbers_have_the_ratio_they_state(epsilon, n, monkeypatch):
    asked = enumerated(monkeypatch)
    schema = Schema([Column("x", "integer", lower=-2, upper=n - 2)])
    randomizer = LaplaceRandomizer(epsilon, schema=schema)
    randomizer.fit(pd.DataFrame({"x": [0]}))
    values = [*range(-2, n - 1), -(10**9), 10**9]
    p = np.array([distribution(randomizer, value, n, asked) for value in values])
    np.testing.assert_allclose(p.sum(1), 1)
    ratio = np.max(p.max(0) / p.min(0))
    assert ratio <= math.exp(epsilon) * exactly
    assert ratio >= math.exp(epsilon) * 0.999
    # What is outside has the distribution of the nearest bound.
    np.testing.assert_array_equal(p[-2:], p[[0, n]])


BOUNDS = [(0.0, 100.0), (-1e308, 1e308), (1e15, 1e15 + 1), (0, 1e-300), (5.0, 5.0)]


@pytest.mark.parametrize("clamp", [True, False])
@pytest.mark.parametrize("bounds", BOUNDS)
def test_outputs_lie_on_a_grid_that_values_do_not_shift(bounds, clamp, monkeypatch):
    asked = enumerated(monkeypatch)
    randomizer = LaplaceRandomizer(bounds=bounds, clamp=clamp).fit(np.zeros((1, 1)))
    low, high = bounds
    hostile = [*np.linspace(0, 1, 50) * (high / 2) + low / 2, np.inf, -np.inf, np.nan]
    outputs = {}
    for value in hostile:
        found = randomizer.transform(np.full((9, 1), value))
        assert np.isfinite(found).all()
        outputs[value] = found
    n = asked[-1][1]
    assert n == (FINENESS if high > low else 0)
    if bounds == (0.0, 100.0):
        places = np.concatenate(list(outputs.values())) / (100 / FINENESS)
        np.testing.assert_array_equal(places, np.rint(places))


@pytest.mark.parametrize("share", ["equal", {"a": 3.0, "c": 0.5}])
def test_the_features_of_a_record_add_up(share, monkeypatch):
    asked = enumerated(monkeypatch)
    responses = []
    monkeypatch.setattr(
        tables,
        "respond",
        lambda codes, n, epsilon, rng: responses.append(epsilon) or codes,
    )
    frame = pd.DataFrame({"a": [1], "b": [0.5], "c": [True], "d": ["u"]})
    levels = Column("d", "categorical", levels=("u", "v"))
    randomizer = LaplaceRandomizer(
        2.0, schema=Schema([levels]), bounds=(0, 1), shares=share
    ).fit(frame)
    randomizer.transform(frame)
    spent = [epsilon for epsilon, _ in asked] + responses
    assert len(spent) == 4
    assert math.fsum(spent) == pytest.approx(2.0, rel=1e-12)
    told = {each.name: each.epsilon for each in randomizer.privacy_.features}
    assert math.fsum(told.values()) == pytest.approx(2.0, rel=1e-12)
    assert sorted(told.values()) == sorted(spent)
    if share != "equal":
        assert told["a"] == pytest.approx(3 * told["b"])
        assert told["c"] == pytest.approx(told["b"] / 2)


def test_scales_are_those_of_the_bounds():
    schema = Schema([Column("a", "integer", lower=0, upper=50)])
    frame = pd.DataFrame({"a": [1], "b": [0.5]})
    randomizer = LaplaceRandomizer(0.5, schema=schema, bounds=(-1, 1)).fit(frame)
    told = [each.mechanism for each in randomizer.privacy_.features]
    assert "scale 200 " in told[0]
    assert "scale 8 " in told[1]
    drawn = (
        randomizer.set_params(clamp=False)
        .fit(frame)
        .transform(pd.concat([frame] * 20_000, ignore_index=True))
    )
    assert drawn["a"].std() == pytest.approx(200 * math.sqrt(2), rel=0.05)
    assert drawn["b"].std() == pytest.approx(8 * math.sqrt(2), rel=0.05)
    assert drawn["b"].mean() == pytest.approx(0.5, abs=0.5)


def test_missing_values_are_perturbed_where_they_are_stated(monkeypatch):
    asked = enumerated(monkeypatch)
    column = Column("x", "continuous", lower=0, upper=3, nullable=True, resolution=1)
    randomizer = LaplaceRandomizer(2.0, schema=Schema([column]))
    randomizer.fit(pd.DataFrame({"x": [0.0]}))
    assert "missing" in randomizer.privacy_.features[0].mechanism
    randomizer.transform(pd.DataFrame({"x": [np.nan, 1.0]}))
    ((epsilon, sensitivity),) = asked
    assert (epsilon, sensitivity) == (2.0 * (1 - tables.MISSING_SHARE), 3)
    # The joint distribution: said to be missing, or a place.
    s, t = rate_of(epsilon, sensitivity)
    noise = laplace(s / t, 3)
    there = np.array(
        [np.bincount(np.clip(np.arange(-3, 4) + x, 0, 3), noise) for x in range(4)]
    )
    p, q = (
        threshold(missing, 2.0, tables.MISSING_SHARE) / FINENESS**2
        for missing in (False, True)
    )
    rows = [np.append((1 - p) * row, p) for row in there]
    rows.append(np.append((1 - q) * there.mean(0), q))
    ratio = np.max(np.max(rows, 0) / np.min(rows, 0))
    assert 0.99 * math.exp(2.0) < ratio <= math.exp(2.0) * exactly


# Images -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_pixels_move_the_sums_by_the_sensitivity_at_most(data):
    channels = data.draw(st.integers(1, 3))
    height, width = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9))
    m, cell = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 10))
    is_float = data.draw(st.booleans())
    shape = 2, channels, height, width
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    X = rng.integers(0, 256, shape).astype(np.uint8)
    X = rng.normal(0.5, 1, shape) if is_float else X
    X[1] = X[0]
    for place in rng.choice(height * width, min(m, height * width), replace=False):
        for c in range(channels):
            ends = (-np.inf, np.inf) if is_float else (0, 255)
            pair = ends if data.draw(st.booleans()) else ends[::-1]
            X[:, c, place // width, place % width] = pair
    asked, exact = [], images.laplace_noise
    try:
        images.laplace_noise = lambda shape, epsilon, sensitivity, rng: (
            asked.append((epsilon, sensitivity)) or np.zeros(shape, int)
        )
        pixelizer = ImagePixelizer(1.5, cell=cell, neighbours=m, output="cells")
        a, b = pixelizer.set_params(clamp=False).fit_transform(X)
    finally:
        images.laplace_noise = exact
    steps = images.FINEST if is_float else 255
    sizes = [
        np.minimum(cell, side - np.arange(0, side, cell)) for side in (height, width)
    ]
    top = 1 if is_float else 255
    moved = np.abs(a - b).sum(0) / top * steps * np.outer(*sizes)
    ((epsilon, sensitivity),) = asked
    assert epsilon == 1.5
    assert moved.sum() <= sensitivity * (1 + 1e-9)
    assert sensitivity == m * channels * steps


def test_one_pixel_reaches_the_sensitivity(monkeypatch):
    asked = enumerated(monkeypatch, images)
    X = np.zeros((2, 4, 4), np.uint8)
    X[1, 0, 0] = 255
    pixelizer = ImagePixelizer(2.0, cell=2, output="cells", clamp=False).fit(X)
    assert "scale 31.875" in str(pixelizer.privacy_)  # 255 / (4 * 2)
    monkeypatch.setattr(
        images, "laplace_noise", lambda shape, *others: asked.append(others) or 0
    )
    a, b = pixelizer.transform(X)
    assert (b - a)[0, 0] * 4 == asked[0][1] == 255


def test_scales_of_pixels_follow_fan():
    X = np.full((400, 16, 16), 100, np.uint8)
    pixelizer = ImagePixelizer(0.5, cell=8, neighbours=3, output="cells", clamp=False)
    drawn = pixelizer.fit_transform(X)
    scale = 255 * 3 / (8**2 * 0.5)
    assert drawn.std() == pytest.approx(math.sqrt(2) * scale, rel=0.15)
    assert drawn.mean() == pytest.approx(100, abs=5)
    report = pixelizer.privacy_
    assert f"scale {scale:.6g}" in report.features[0].mechanism
    # Two images can differ in every pixel.
    assert report.record_epsilon == pytest.approx(0.5 * 256 / 3)
