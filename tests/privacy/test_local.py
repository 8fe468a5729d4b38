"""Local randomizers: exact probabilities on small domains, and what they add up to.

Distributions are computed, not sampled: randomised responses by going through every
number that can be drawn, Laplace noise by its probabilities, whose sampler is compared
with them apart.
"""

from __future__ import annotations

import math
import pickle
import warnings
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPVAESynthesizer,
    ImagePixelizer,
    LaplaceRandomizer,
    PrivacyBudget,
    Schema,
    VAEPerturber,
)
from dpgenerative._random import SecureGenerator
from dpgenerative.exceptions import (
    BudgetExceededError,
    InfeasibleBudgetError,
    PrivacyWarning,
)
from dpgenerative.local import images, latents, mechanisms, tables
from dpgenerative.local.mechanisms import (
    FINENESS,
    laplace_noise,
    rate_of,
    respond,
    respond_missing,
)
from dpgenerative.privacy.accounting import (
    RENYI_ORDERS,
    GaussianRelease,
    classical_epsilon,
    epsilon_of,
    epsilon_of_curve,
    gaussian_delta,
    gaussian_epsilon,
    renyi_curve,
)
from tests import test_fuzz

EPSILONS = [0.1, 1.0, 3.0, 9.5]
exactly = 1 + 1e-12
"""Room for the rounding of floats in the tests' own sums."""


class Numbered:
    """Draws the numbers that it is claimed to, whatever it is asked for."""

    def __init__(self, draws):
        self.draws = draws
        self.highs = []

    def integers(self, low, high, size):
        self.highs.append(high)
        return np.broadcast_to(self.draws, size)


# Mechanisms ---------------------------------------------------------------------------


@pytest.mark.thin(2)
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


def test_values_outside_have_the_ratio_of_the_bounds():
    """Noise in whole steps of a seed: what an outlier adds would show."""
    randomizer = LaplaceRandomizer(
        1.0, bounds=(0, 1), clamp=False, noise="reproducible", random_state=0
    )
    inside, outside = (
        randomizer.fit(X).transform(X)
        for X in (np.full((50, 1), 1.0), np.full((50, 1), 100.0))
    )
    np.testing.assert_array_equal(inside, outside)


def test_what_is_read_of_rows_before_they_are_perturbed():
    """Rows of other ranges meet the same noise, and so does the first row of both."""
    schema = Schema([Column("x", "integer", lower=0, upper=1000)])
    randomizer = LaplaceRandomizer(
        50.0, schema=schema, noise="reproducible", random_state=0
    )
    one, other = (
        randomizer.fit(X).transform(X)["x"]
        for X in (pd.DataFrame({"x": [500, *[x] * 99]}) for x in (501, 1000))
    )
    assert one[0] == other[0]
    assert one.std() > 10


def test_missing_values_are_said_to_be_there():
    column = Column("x", "continuous", lower=0, upper=1, nullable=True)
    randomizer = LaplaceRandomizer(1.0, schema=Schema([column]))
    missing = pd.DataFrame({"x": np.full(400, np.nan)})
    assert 0.15 < randomizer.fit_transform(missing)["x"].isna().mean() < 0.5
    there = pd.DataFrame({"x": np.full(400, 0.5)})
    assert 0.03 < randomizer.fit_transform(there)["x"].isna().mean() < 0.25


def test_perturbed_numbers_are_grid_points():
    found = LaplaceRandomizer(bounds=(0, 64), clamp=False).fit_transform(
        np.linspace(0, 64, 99)[:, None]
    )
    places = found * (FINENESS / 64)
    np.testing.assert_array_equal(places, np.rint(places))


BOUNDS = [(0.0, 100.0), (-1e308, 1e308), (1e15, 1e15 + 1), (0, 1e-300), (5.0, 5.0)]


@pytest.mark.thin(2)
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
    claimed = {each.name: each.epsilon for each in randomizer.privacy_.features}
    assert math.fsum(claimed.values()) == pytest.approx(2.0, rel=1e-12)
    assert sorted(claimed.values()) == sorted(spent)
    if share != "equal":
        assert claimed["a"] == pytest.approx(3 * claimed["b"])
        assert claimed["c"] == pytest.approx(claimed["b"] / 2)


def test_equal_features_add_up():
    asked = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            tables, "laplace_noise", lambda shape, *given: asked.append(given) or 0
        )
        LaplaceRandomizer(2.0, bounds=(0, 1)).fit_transform(np.zeros((1, 5)))
    # Of two rows that are apart in all features, by the ratio of all together.
    assert math.fsum(epsilon for epsilon, *_ in asked) <= 2.0 * exactly


def test_scales_are_those_of_the_bounds():
    schema = Schema([Column("a", "integer", lower=0, upper=50)])
    frame = pd.DataFrame({"a": [1], "b": [0.5]})
    randomizer = LaplaceRandomizer(0.5, schema=schema, bounds=(-1, 1)).fit(frame)
    claimed = [each.mechanism for each in randomizer.privacy_.features]
    assert "scale 200 " in claimed[0]
    assert "scale 8 " in claimed[1]
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
    m = data.draw(st.integers(1, min(5, height * width)))
    cell = data.draw(st.integers(1, 10))
    is_float = data.draw(st.booleans())
    shape = 2, channels, height, width
    rng = np.random.default_rng(data.draw(st.integers(0, 2**20)))
    X = rng.integers(0, 256, shape).astype(np.uint8)
    X = rng.normal(0.5, 1, shape) if is_float else X
    X[1] = X[0]
    for place in rng.choice(height * width, m, replace=False):
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


def test_several_pixels_need_their_noise():
    asked = []
    exact, X = images.laplace_noise, np.zeros((2, 4, 4), np.uint8)
    X[1, 0, :3] = 255
    pixelizer = ImagePixelizer(cell=2, neighbours=3, output="cells", clamp=False).fit(X)
    try:
        images.laplace_noise = lambda shape, *given: asked.append(given) or 0
        a, b = pixelizer.transform(X)
    finally:
        images.laplace_noise = exact
    ((_, sensitivity, _),) = asked
    assert np.abs(a - b).sum() * 4 == sensitivity


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


# Latents ------------------------------------------------------------------------------


def trained(epsilon=None):
    rows = np.random.default_rng(0).integers(0, 256, (80, 4, 4)).astype(np.uint8)
    model = DPArrayVAESynthesizer(epsilon=epsilon, n_steps=3, random_state=0)
    return model.set_params(architecture__latent_dim=3).fit(rows), rows


def test_means_of_all_records_are_inside_the_bound():
    model, rows = trained()
    perturber = VAEPerturber(model, sigma=1.0, bound=2.0, public=True).fit(rows)
    ends = np.array([[np.inf] * 3, [-np.inf] * 3, [1e30, -1e30, 0], [np.nan] * 3])
    places = perturber._places(ends)
    assert np.abs(places).max() <= latents.FINENESS
    np.testing.assert_array_equal(
        places[2:], [[latents.FINENESS, -latents.FINENESS, 0], [0] * 3]
    )
    # Two records come as far apart as is accounted for, and no farther.
    reached = np.linalg.norm(places[0] - places[1]) * 2.0 / latents.FINENESS
    assert reached == pytest.approx(2 * 2.0 * math.sqrt(3), rel=1e-12)
    assert perturber._sensitivity == pytest.approx(reached, rel=1e-12)
    epsilon = perturber.privacy_.epsilon
    assert gaussian_delta(1.0 / reached, epsilon) <= 1e-5 * (1 + 1e-6)
    assert epsilon == pytest.approx(gaussian_epsilon(1.0 / reached, 1e-5), abs=1e-8)


def test_every_record_has_the_noise_of_every_other():
    """A deviation of its own, above any floor, would tell records apart."""
    model, rows = trained()
    perturber = VAEPerturber(
        model, sigma=0.7, public=True, output="latents", noise="reproducible",
        random_state=3,
    )  # fmt: skip
    step = 3.0 / latents.FINENESS
    noises = []
    for part in (rows[:40], rows[40:], np.zeros_like(rows[:40])):
        fitted = perturber.fit(rows)
        exact = fitted._places(model.encode(part))
        noises.append(np.rint(fitted.transform(part) / step) - exact)
    np.testing.assert_array_equal(noises[0], noises[1])
    np.testing.assert_array_equal(noises[0], noises[2])
    assert noises[0].std() * step == pytest.approx(0.7, rel=0.2)


def test_the_floor_of_a_deviation_bounds_no_epsilon():
    """Same means, deviations 1 and 3 in 20 dimensions: the floor promises epsilon 0."""
    log_ratio_at_the_mean = 20 * math.log(3.0)
    assert log_ratio_at_the_mean > gaussian_epsilon(1e9, 1e-5) + 20


def test_sigma_and_epsilon_say_the_same():
    model, rows = trained()
    by_epsilon = VAEPerturber(model, epsilon=2.5, public=True).fit(rows)
    by_sigma = VAEPerturber(model, sigma=by_epsilon.sigma_, public=True).fit(rows)
    assert 0.99999 * 2.5 < by_epsilon.privacy_.epsilon <= 2.5
    with PrivacyBudget(2.5, 1e-5):
        by_epsilon.transform(rows[:2])
    assert by_sigma.privacy_ == by_epsilon.privacy_
    for both in ({}, {"epsilon": 1.0, "sigma": 1.0}):
        with pytest.raises(ValueError, match="sigma"):
            VAEPerturber(model, **both).fit(rows)


def test_rows_of_the_autoencoder_are_public_or_paid_for():
    model, rows = trained()
    with pytest.warns(PrivacyWarning, match="without privacy"):
        leaking = VAEPerturber(model, epsilon=1.0).fit(rows)
    assert latents.LEAK in str(leaking.privacy_)
    declared = VAEPerturber(model, epsilon=1.0, public=True).fit(rows)
    assert "rows that the autoencoder learned from" in str(declared.privacy_)
    private = VAEPerturber(trained(epsilon=2.0)[0], epsilon=1.0).fit(rows)
    assert "(2, 1e-05)-differential privacy" in str(private.privacy_)
    # One that is not fitted learns from the rows, at its own price.
    unfitted = VAEPerturber(clone(model).set_params(epsilon=2.0), epsilon=1.0)
    assert "both guarantees add up" in str(unfitted.fit(rows).privacy_)
    frozen = clone(VAEPerturber(FrozenEstimator(model), epsilon=1.0, public=True))
    assert frozen.fit(rows).transform(rows[:2]).shape == (2, 4, 4)
    with pytest.raises(ValueError, match="DPVAESynthesizer"):
        VAEPerturber(LaplaceRandomizer(), epsilon=1.0).fit(rows)


def test_autoencoders_of_labels_too_are_refused():
    rows, labels = trained()[1], np.arange(80) % 2
    frame = pd.DataFrame(rows.reshape(80, -1)[:, :2].astype(float))
    labelled = [
        DPArrayVAESynthesizer(classes=[0, 1]),
        DPArrayVAESynthesizer(classes=[0, 1]).fit(rows, labels),
        DPVAESynthesizer(n_steps=2).fit(frame, labels),
    ]
    for model in labelled:
        with pytest.raises(ValueError, match="without y"):
            VAEPerturber(model, epsilon=1.0).fit(rows)


def test_latents_that_leave_out_a_condition_are_refused():
    frame = pd.DataFrame({"a": [True, False] * 50, "b": [False, True] * 50})
    model = DPVAESynthesizer(n_steps=2)
    model.set_params(architecture__table_budget=0.1)
    perturber = VAEPerturber(model, epsilon=4.0).fit(frame)
    assert perturber.autoencoder_._model.condition is None
    for other in (clone(model).set_params(conditional="a"), model.fit(frame)):
        with pytest.raises(ValueError, match="conditional=None"):
            VAEPerturber(other, epsilon=4.0).fit(frame)


def test_dtypes_without_missing_values_are_not_given_any():
    frame = pd.DataFrame({"whole": [1, 2] * 50, "true": [True, False] * 50})
    frame["code"] = 9  # no level
    schema = Schema([
        Column("whole", "integer", lower=0, upper=3, nullable=True),
        Column("true", "boolean", nullable=True),
        Column("code", "categorical", levels=[1, 2], nullable=True),
    ])  # fmt: skip
    out = LaplaceRandomizer(0.1, schema=schema).fit_transform(frame)
    assert out.dtypes.tolist() == frame.dtypes.tolist()


def test_the_autoencoder_is_the_perturbers_own():
    model, rows = trained()
    perturber = VAEPerturber(model, epsilon=1.0, public=True).fit(rows)
    before = perturber.autoencoder_.encode(rows[:3])
    model.fit(rows[:40])
    np.testing.assert_array_equal(perturber.autoencoder_.encode(rows[:3]), before)


def test_tables_are_rewritten_in_their_columns():
    frame = pd.DataFrame(
        {"a": np.linspace(0, 1, 90), "b": list("uvw") * 30}, index=range(5, 95)
    )
    model = DPVAESynthesizer(n_steps=2, random_state=0).fit(frame)
    perturber = VAEPerturber(model, epsilon=4.0).fit(frame)
    out = perturber.transform(frame.iloc[3:5])
    assert out.dtypes.tolist() == frame.dtypes.tolist()
    assert out.index.tolist() == [8, 9]
    latent = perturber.set_params(output="latents").transform(frame)
    assert latent.shape == (90, model._model.latent_dim)


def test_decoding_repeats_where_noise_does():
    rows = np.random.default_rng(0).random((60, 4, 4)) < 0.5
    model = DPArrayVAESynthesizer(n_steps=2, random_state=0).fit(rows)
    seeded = {"epsilon": 8.0, "noise": "reproducible", "random_state": 0}
    one, other = (VAEPerturber(model, **seeded).fit_transform(rows) for _ in "ab")
    np.testing.assert_array_equal(one, other)
    fresh = VAEPerturber(model, epsilon=8.0).fit(rows)
    assert (fresh.transform(rows) != fresh.transform(rows)).any()


# Table 2 of Bernau, Robl and Kerschbaum (2022) ----------------------------------------

# Printed: epsilons at sigma = .1 (and at 1 to 1,000, where 1 / sigma scales them),
# means in [-3, 3], so that two are 6 sqrt(k) apart, and delta, one over the records. k
# is 100 (faces) and 2 (motion) in the authors' configuration. The text has 70,610
# records of motion; the figures follow from 70,619.
TABLE_2 = [
    (2366.15, 100, 1 / 1906, 181_965.18),
    (2422.52, 100, 1 / 2773, 182_027.83),
    (404.96, 2, 1 / 70_619, 3_954.27),
]


@pytest.mark.parametrize(("claimed", "k", "delta", "exact"), TABLE_2)
def test_epsilons_of_vae_ldp(claimed, k, delta, exact):
    for sigma in (0.1, 0.5, 1.0, 10.0):
        multiplier = sigma / (6 * math.sqrt(k))
        classical = classical_epsilon(multiplier, delta)
        assert classical == pytest.approx(claimed * 0.1 / sigma, abs=0.00501)
        # The formula holds below 1. Far above, it says too little, by any factor.
        if classical > 10:
            assert gaussian_epsilon(multiplier, delta) > 1.5 * classical
    found = gaussian_epsilon(0.1 / (6 * math.sqrt(k)), delta)
    assert found == pytest.approx(exact, abs=0.01)


def test_reports_have_both_epsilons():
    model, rows = trained()
    report = VAEPerturber(model, sigma=0.1, delta=1e-4, public=True).fit(rows).privacy_
    multiplier = 0.1 / (6 * math.sqrt(3))
    assert f"{classical_epsilon(multiplier, 1e-4):.6g}" in report.features[0].mechanism
    assert report.epsilon == pytest.approx(gaussian_epsilon(multiplier, 1e-4))


# Of the column CDP of the same table: full batches of the rows trained on (half of the
# faces, a tenth of the series), batch, z, and epsilon as printed, after 1,000 epochs at
# delta one over those rows. All 15 are in `benchmarks/bernau.py`.
CDP = [
    (928, 32, 1.0, 56.41, 54.50, 50.54, 429.9),
    *(
        pytest.param(*figures, marks=pytest.mark.slow)
        for figures in (
            (1376, 32, 1.0, 43.31, 41.55, 38.50, 350.4),
            (7040, 32, 1.0, 15.73, 14.58, 13.45, 135.2),
        )
    ),
]


@pytest.mark.parametrize(("n", "batch", "z", "claimed", "rdp", "prv", "micro"), CDP)
def test_epsilons_of_central_privacy(n, batch, z, claimed, rdp, prv, micro):
    """In micro-batches of 4 one record turns a clipped mean around: 2 C, half of z."""

    def releases(z):
        return [GaussianRelease(z, batch / n, 1000 * n // batch)]

    curve = renyi_curve(releases(z))
    assert epsilon_of_curve(curve, 1 / n) == pytest.approx(rdp, abs=0.01)
    # As printed: an older conversion, which is looser.
    older = np.min(curve + math.log(n) / (RENYI_ORDERS - 1))
    assert older == pytest.approx(claimed, abs=0.006)
    assert epsilon_of(releases(z), 1 / n, claimed) == pytest.approx(prv, abs=0.01)
    halved = epsilon_of_curve(renyi_curve(releases(z / 2)), 1 / n)
    assert halved == pytest.approx(micro, abs=0.1)
    assert halved > 7 * rdp


def test_totals_of_a_record_do_not_grow_with_the_records():
    """The paper adds up all records; the guarantee of one is over its features."""
    for n in (1, 500):
        frame = pd.DataFrame(np.zeros((n, 12)), columns=list("abcdefghijkl"))
        report = LaplaceRandomizer(6.0, bounds=(-1, 1)).fit(frame).privacy_
        assert report.record_epsilon == 6.0
        assert math.fsum(f.epsilon for f in report.features) == pytest.approx(6.0)
    # 64 x 64 pixels, neighbours in 64 of them, as in the authors' script.
    faces = np.zeros((1, 64, 64), np.uint8)
    with pytest.raises(ValueError, match="at most 4096, the pixels of an image"):
        ImagePixelizer(neighbours=4097).fit(faces)
    report = ImagePixelizer(1.0, cell=1, neighbours=64).fit(faces).privacy_
    assert report.record_epsilon == 64.0


# All of them -------------------------------------------------------------------------


def randomizers():
    model, _ = trained()
    X = np.random.default_rng(1).integers(0, 256, (6, 4, 4)).astype(np.uint8)
    flat = X.reshape(6, 16).astype(float)
    return [
        (LaplaceRandomizer(bounds=(0, 255)), flat),
        (ImagePixelizer(cell=2), X),
        (VAEPerturber(model, epsilon=1.0, public=True, output="latents"), X),
    ]


every = pytest.mark.parametrize("which", range(3), ids=["tables", "images", "latents"])


@every
def test_a_transform_is_charged_and_noise_is_never_the_same(which):
    randomizer, X = randomizers()[which]
    randomizer.fit(X)
    report = randomizer.privacy_
    with PrivacyBudget(1.5 * report.record_epsilon, 1e-4) as budget:
        first = randomizer.transform(X)
        assert budget.spent == (report.record_epsilon, report.delta)
        with pytest.raises(BudgetExceededError, match=r"\.transform asks for"):
            randomizer.transform(X)
        with pytest.raises(BudgetExceededError):
            pickle.dumps(randomizer)
    assert (randomizer.transform(X) != first).any()
    assert "spends this much again" in str(report)
    assert report.to_dict()["epsilon"] == report.epsilon
    assert "<strong>" in report._repr_html_()


@every
def test_rows_that_do_not_fit_are_refused_before_they_are_charged(which):
    randomizer, X = randomizers()[which]
    with PrivacyBudget(1e6, 0.1) as budget:
        with pytest.raises(NotFittedError):
            randomizer.transform(X)
        randomizer.fit(X)
        with pytest.raises(ValueError, match=r"features|images of shape"):
            randomizer.transform(X[:, :2])
    assert budget.fits == []


@every
def test_parameters_set_later_change_no_noise(which):
    randomizer, X = randomizers()[which]
    randomizer.set_params(noise="reproducible", random_state=7)
    expected = randomizer.fit(X).transform(X)
    randomizer.fit(X)
    later = {"epsilon": 1e6, "noise": "secure", "random_state": 8}
    later |= [{"bounds": (0, 1)}, {"neighbours": 9, "cell": 1}, {"bound": 99.0}][which]
    report = str(randomizer.privacy_)
    np.testing.assert_array_equal(randomizer.set_params(**later).transform(X), expected)
    assert str(randomizer.privacy_) == report


@every
def test_seeds_stay_with_whoever_fitted(which):
    randomizer, X = randomizers()[which]
    randomizer.set_params(noise="reproducible", random_state=987_654_321)
    first = randomizer.fit(X).transform(X)
    assert "Never for a release" in str(randomizer.privacy_)
    assert (randomizer.transform(X) != first).any()
    np.testing.assert_array_equal(randomizer.fit(X).transform(X), first)
    copy = pickle.loads(pickle.dumps(randomizer.fit(X)))
    assert copy.random_state is None
    assert (copy.transform(X) != first).any()
    changed = pickle.loads(pickle.dumps(randomizer.set_params(noise="secure")))
    assert "987654321" not in str(vars(changed))
    randomizer.set_params(noise="reproducible")
    with pytest.raises(ValueError, match="random_state"):
        randomizer.set_params(random_state=None).fit(X)


@every
def test_a_record_is_perturbed_by_itself(which):
    """With the noise fixed, what comes of a record follows from that record alone."""
    randomizer, X = randomizers()[which]
    randomizer.set_params(noise="reproducible", random_state=7)
    others = np.concatenate([X[:1], np.full_like(X[1:], 255)])
    first = randomizer.fit(X).transform(X)[0]
    np.testing.assert_allclose(randomizer.fit(others).transform(others)[0], first)
    assert len(randomizer.transform(X[:1])) == 1


def test_train_and_full():
    """LDP-Train and LDP-Full differ in the rows that are tested alone."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X.sum(1) > 0).astype(int)
    randomizer = LaplaceRandomizer(1000.0, bounds=(-4, 4))
    train = LogisticRegression().fit(randomizer.fit_transform(X), y)
    assert train.score(X, y) > 0.9
    full = make_pipeline(randomizer, LogisticRegression()).fit(X, y)
    assert full.score(X, y) > 0.9


def test_tables_of_other_libraries_come_back_as_they_are():
    frame = pl.DataFrame({"a": [1.0, 2.0], "n": [1, None], "b": [True, False]})
    for table in (frame, frame.to_arrow()):
        out = LaplaceRandomizer(bounds=(0, 3)).fit_transform(table)
        assert type(out) is type(table)
        assert out.schema == table.schema
        assert len(out) == 2


def test_names_and_containers_of_scikit_learn():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [True, False]}, index=["u", "v"])
    randomizer = LaplaceRandomizer(bounds=(0, 3)).fit(frame)
    assert randomizer.get_feature_names_out().tolist() == ["a", "b"]
    out = randomizer.transform(frame[["b", "a"]])
    assert out.columns.tolist() == ["a", "b"]
    assert out.index.tolist() == ["u", "v"]
    assert isinstance(randomizer.transform(frame.to_numpy(float)), np.ndarray)
    framed = randomizer.set_output(transform="pandas").transform(frame)
    assert framed.dtypes.tolist() == frame.dtypes.tolist()
    with pytest.raises(ValueError, match="other columns"):
        randomizer.transform(frame[["a"]])


@pytest.mark.parametrize(
    ("frame", "named"),
    [
        ({"a": [1.0], "free": ["x"]}, "levels of column 'free'"),
        ({"a": [1.0], "open": [2.0]}, "bounds of column 'open'"),
        ({"a": [1.0], "when": pd.to_datetime(["2020-01-01"])}, "column 'when'"),
    ],
)
def test_what_is_not_public_is_named(frame, named):
    schema = Schema([Column("a", "continuous", lower=0, upper=1)])
    with pytest.raises(ValueError, match=named):
        LaplaceRandomizer(schema=schema).fit(pd.DataFrame(frame))


@pytest.mark.parametrize(
    "parameters",
    [
        {"epsilon": 0.0}, {"epsilon": None}, {"epsilon": math.inf},
        {"epsilon": math.nan}, {"epsilon": True}, {"bounds": (1, 0)}, {"bounds": (0,)},
        {"bounds": (0, math.inf)}, {"bounds": 3}, {"shares": "all"},
        {"shares": {"x0": 0.0}}, {"shares": {"x0": 1e308}}, {"shares": {"x0": 1e-300}},
        {"shares": {"y": 1.0}}, {"clamp": 2},
        {"noise": "fresh"}, {"schema": "none"}, {"epsilon": 1e-12},
    ],
)  # fmt: skip
def test_parameters_out_of_range_are_refused(parameters):
    given = {"bounds": (0.0, 1.0), **parameters}
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        LaplaceRandomizer(**given).fit(np.zeros((2, 2)))
    assert test_fuzz.raised_by_us(caught.value)


# Hostile tables -----------------------------------------------------------------------

PUBLIC = [
    {"lower": -1e308, "upper": 1e308}, {"lower": 0, "upper": 0},
    {"lower": 0, "upper": 5e-324}, {"lower": -(2**62), "upper": 2**62},
    {"lower": -3, "upper": 3}, {"lower": -3, "upper": 3, "nullable": True},
]  # fmt: skip


def stated(data, frame):
    """Return public facts on every column that a dtype leaves open."""
    columns = []
    for column in Schema.from_dtypes(frame).columns:
        facts = {"kind": column.kind}
        if column.kind == "datetime":
            facts |= {"lower": "1990-01-01", "upper": "2030-01-01"}
        elif column.numeric:
            facts |= data.draw(st.sampled_from(PUBLIC))
        elif column.levels is None:
            facts["levels"] = data.draw(st.sampled_from([("a",), ("", "a", "1")]))
        else:
            continue
        columns.append(Column(column.name, **facts))
    return Schema(columns)


def outcome(randomizer, frame):
    """Return what can be seen of a transform, or raise what must not happen."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            return randomizer.fit(frame).transform(frame)
        except (ValueError, TypeError) as error:
            if not test_fuzz.raised_by_us(error):
                raise
            return f"{type(error).__name__}: {error}"


@pytest.mark.thorough
@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(st.data())
def test_hostile_tables_are_perturbed_row_by_row(data):
    perturb_row_by_row(data)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, database=None)
@given(st.data())
def test_many_hostile_tables_are_perturbed_row_by_row(data):
    perturb_row_by_row(data)


def perturb_row_by_row(data):
    rows = data.draw(test_fuzz.tables())
    n = len(rows) // 2
    one, other = rows.iloc[:n], rows.iloc[[0, *range(len(rows) - 1, n, -1)][:n]]
    try:
        schema = stated(data, rows)
    except (ValueError, TypeError):
        schema = None
    clamp, epsilon = data.draw(st.booleans()), data.draw(st.sampled_from([0.01, 1, 50]))
    randomizer = LaplaceRandomizer(
        epsilon, schema=schema, clamp=clamp, noise="reproducible", random_state=1
    )
    a, b = outcome(randomizer, one), outcome(randomizer, other)
    if isinstance(a, str) or isinstance(b, str):
        assert a == b
        return
    assert a.index.equals(one.index)
    assert list(map(type, a.columns)) == list(map(type, rows.columns))
    pd.testing.assert_frame_equal(
        a.iloc[:1].reset_index(drop=True), b.iloc[:1].reset_index(drop=True)
    )


@pytest.mark.parametrize(
    ("randomizer", "refused"),
    [
        (ImagePixelizer(cell=1, image_shape=(2, 2)), {"neighbours": 5}),
        (LaplaceRandomizer(bounds=(0, 1)), {"bounds": None}),
    ],
)
def test_a_fit_that_fails_leaves_no_report(randomizer, refused):
    """Noise that followed the seed came under the report of a secure fit."""
    records = np.linspace(0, 1, 20).reshape(5, 4)
    randomizer = clone(randomizer).fit(records)
    randomizer.set_params(noise="reproducible", random_state=0, **refused)
    with pytest.raises(ValueError, match=next(iter(refused))):
        randomizer.fit(records)
    with pytest.raises(NotFittedError):
        randomizer.transform(records)
