"""Moments of labelled arrays: how far one row moves them, and what they cost.

Both releases are sums over rows, whose sensitivity must be that of the worst row, also
of one whose entries are huge, missing or outside the range, or whose label is unknown.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dpgenerative import DPArrayVAESynthesizer
from dpgenerative._intervals import least_share
from dpgenerative.audit.bounds import least_mu
from dpgenerative.encoding import classes as encoding
from dpgenerative.exceptions import HopelessBudgetWarning, LedgerError
from dpgenerative.privacy import moments
from dpgenerative.privacy.accounting import gaussian_epsilon
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.moments import MOMENTS
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks
from tests.plans import make_plan
from tests.privacy.test_replay import Recorder, Replayer, dumped

N_CLASSES, WIDTH, D, RADIUS = 3, 6, 4, 1.5
CENTRES = np.random.default_rng(5).normal(0, 0.3, (N_CLASSES, WIDTH))
SLACK = 1 + 1e-9


def plan_of(n=60, **changes):
    facts = {
        "epsilon": 1.0, "delta": 1e-5, "n_rows": n, "sampling_rate": 1.0, "n_steps": 0,
        "marginal_budget": 0.0, "has_open_keys": False, "moment_budget": 0.5,
    }  # fmt: skip
    return make_plan(**{**facts, **changes})


PLAN = plan_of()


class Door(Mechanisms):
    """Notes what is handed in."""

    def __init__(self):
        super().__init__(np.random.default_rng(0), np.random.default_rng(0))
        self.asked = []

    def gaussian(self, values, std, **stated):
        self.asked.append((opened(values), std, stated))
        return super().gaussian(values, std, **stated)


def chunks(*parts):
    return Chunks(Private(lambda: parts))


def handed_in(release, rows, scale=0.7):
    """Return what goes into a release, and how it is released."""
    door = Door()
    if release == "means":
        size = N_CLASSES, WIDTH
        moments.release_means(chunks(rows), size, RADIUS, PLAN, door)
    else:
        moments.release_seconds(chunks(rows), CENTRES, scale, D, PLAN, door)
    return door.asked[0]


ROWS = {
    "usual": lambda rng: rng.normal(0, 0.5, WIDTH),
    "at the end": lambda rng: np.full(WIDTH, RADIUS),
    "one of the first": lambda rng: 1e6 * np.eye(WIDTH)[0],
    "two of the first": lambda rng: 1e6 * (np.eye(WIDTH)[0] - np.eye(WIDTH)[2]),
    "one of the others": lambda rng: 1e6 * np.eye(WIDTH)[-1],
    "huge": lambda rng: rng.choice([-1e300, 1e300], WIDTH),
    "infinite": lambda rng: np.r_[rng.normal(0, 1, WIDTH - 1), np.inf],
    "missing": lambda rng: np.r_[np.nan, rng.normal(0, 1, WIDTH - 1)],
    "zero": lambda rng: np.zeros(WIDTH),
}
SENSITIVITY = {"means": math.sqrt(3), "seconds": 1.0}
TIGHT = {
    "means": {"at the end", "one of the first", "one of the others"},
    "seconds": {"one of the first", "two of the first", "one of the others"},
}


@pytest.mark.parametrize("release", SENSITIVITY)
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("label", [0, N_CLASSES - 1, -1])
@pytest.mark.parametrize("n", [0, 1, 40])
def test_one_row_moves_moments_no_further_than_stated(release, kind, label, n):
    rng = np.random.default_rng(n)
    q, labels = rng.normal(0, 0.5, (n, WIDTH)), rng.integers(-1, N_CLASSES, n)
    exact, std, stated = handed_in(release, (q, labels))
    more = np.vstack([q, ROWS[kind](rng)]), np.append(labels, label)
    moved = np.linalg.norm(handed_in(release, more)[0] - exact)
    assert stated == {"release": "moments", "sensitivity": SENSITIVITY[release]}
    share = moments.multipliers(PLAN)[release == "seconds"]
    assert std == pytest.approx(share * stated["sensitivity"])
    assert moved <= stated["sensitivity"] * SLACK
    if label >= 0 and kind in TIGHT[release]:
        assert moved >= 0.999 * stated["sensitivity"]
    if label < 0:
        assert moved == 0


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3), st.floats(1e-4, 1e2))
def test_any_row_in_any_class(seed, size, scale):
    rng = np.random.default_rng(seed)
    q, labels = rng.normal(0, 1, (5, WIDTH)), rng.integers(-1, N_CLASSES, 5)
    q[0] = size * rng.normal(0, 1, WIDTH) * (rng.random(WIDTH) < 0.5)
    for release, most in SENSITIVITY.items():
        both = [handed_in(release, (q[k:], labels[k:]), scale)[0] for k in (0, 1)]
        assert np.linalg.norm(both[0] - both[1]) <= most * SLACK


def test_products_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    q, labels = rng.normal(0, 0.3, (50, WIDTH)), rng.integers(-1, N_CLASSES, 50)
    free = plan_of(epsilon=None)
    products, squares, std = moments.release_seconds(
        chunks((q[:20], labels[:20]), (q[20:], labels[20:])), CENTRES, 9.0, D, free,
        Door(),
    )  # fmt: skip
    sums, total, _ = moments.release_means(
        chunks((q, labels)), (N_CLASSES, WIDTH), 9.0, free, Door()
    )
    assert std == 0
    for k in range(N_CLASSES):
        r = (q[labels == k] - CENTRES[k]) / 9
        assert np.allclose(products[k], r[:, :D].T @ r[:, :D])
        assert np.allclose(squares[k], np.square(r[:, D:]).sum(0))
        assert np.allclose(sums[k], [len(r), *q[labels == k].sum(0) / 9])
    assert total == pytest.approx(np.square(q[labels >= 0] / 9).sum())


def test_both_releases_cost_what_the_plan_says():
    spent = sum(z**-2 for z in moments.multipliers(PLAN))
    assert spent == pytest.approx(PLAN.multiplier(MOMENTS) ** -2, rel=1e-12)


# Whole fits ---------------------------------------------------------------------------


def arrays(n=60, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    x = rng.random((n, 4, 5)) * np.where(y, 0.3, 1)[:, None, None]
    return x, np.where(y, "dark", "light")


def fitted(x, y, door, **params):
    common = {
        "classes": ["dark", "light", "never"], "noise": "reproducible",
        "random_state": 0, "epsilon": 30.0,
    }  # fmt: skip
    synthesizer = DPArrayVAESynthesizer(**{**common, **params})
    synthesizer._mechanisms = door
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", HopelessBudgetWarning)
        synthesizer.fit(x, y)
    del synthesizer._mechanisms
    return synthesizer


STEPS = {"n_steps": 3, "batch_size": 10**6}
HOSTILE = {
    "huge": (np.full((1, 4, 5), 1e300), "dark"),
    "missing": (np.full((1, 4, 5), np.nan), "light"),
    "first of a class": (np.ones((1, 4, 5)), "never"),
    "label outside": (np.ones((1, 4, 5)), "\N{SNOWMAN}"),
    "label missing": (np.zeros((1, 4, 5)), None),
    "label a list": (np.zeros((1, 4, 5)), [1]),
}


@pytest.mark.parametrize("params", [{}, STEPS], ids=["moments", "gradients"])
@pytest.mark.parametrize("how", [*HOSTILE, "unrelated"])
def test_a_row_leaves_no_trace_but_in_what_is_released(how, params):
    x, y = arrays()
    if how == "unrelated":
        others = arrays(23, seed=9)
    else:
        row, label = HOSTILE[how]
        others = np.concatenate([x, row]), [*y, label]
    tape = []
    a = fitted(
        x, y, lambda s: Recorder(Mechanisms(s.counts, s.gradients), tape), **params
    )
    replayer = Replayer(tape)
    b = fitted(*others, lambda s: replayer, **params)
    assert next(replayer.tape, None) is None
    n_gradients = params.get("n_steps", 0)
    names = [name for name, *_ in tape]
    assert names == ["count", "gaussian", "gaussian", *["gradient"] * n_gradients]
    assert str(a.privacy_) == str(b.privacy_)
    for one, other in zip(*(s.sample(30, random_state=1) for s in (a, b)), strict=True):
        assert np.array_equal(one, other)
    assert dumped(a) == dumped(b)


@pytest.mark.parametrize("params", [{}, STEPS], ids=["moments", "gradients"])
def test_a_fit_spends_what_is_planned_for_moments(params):
    doors = []

    def door(streams):
        doors.append(Mechanisms(streams.counts, streams.gradients))
        return doors[-1]

    synthesizer = fitted(*arrays(), door, **params)
    plan, ledger = synthesizer.privacy_.plan, doors[0].ledger
    plan.check(ledger)
    assert 0.99 * 30 < synthesizer.epsilon_ <= 30
    assert ledger.total("moments") == pytest.approx(plan.multiplier(MOMENTS) ** -2)
    assert len(ledger.losses["moments"]) == 2
    assert "second moments of every class" in str(synthesizer.privacy_)
    assert math.isinf(plan.multiplier(LATENTS))


def door(streams):
    return Mechanisms(streams.counts, streams.gradients)


def test_a_fit_whose_moments_cost_more_leaves_nothing(monkeypatch):
    whole = moments.multipliers
    monkeypatch.setattr(moments, "multipliers", lambda plan: (whole(plan)[0],) * 2)
    with pytest.raises(LedgerError, match="moments"):
        fitted(*arrays(), door, n_steps=2)
    monkeypatch.setattr(
        moments, "multipliers", lambda plan: (plan.multiplier(MOMENTS),) * 2
    )
    with pytest.raises(LedgerError, match="moments"):
        fitted(*arrays(), door)


def test_a_plan_without_moments_pays_for_none():
    plan = plan_of(moment_budget=0.0, n_steps=5)
    assert math.isinf(plan.multiplier(MOMENTS))
    ledger = Ledger()
    ledger.gaussian("moments", 1e6, 1.0)
    with pytest.raises(LedgerError, match="others"):
        plan.check(ledger)


def test_every_array_of_a_fit_moves_them_no_further(monkeypatch):
    # Through reading and the cosines: the centre and scale of the second release are
    # frozen, as they are for both neighbours once they are released.
    x, y = arrays()
    tape = []
    fitted(x, y, lambda s: Recorder(Mechanisms(s.counts, s.gradients), tape))

    class Frozen(Replayer):
        def __init__(self):
            super().__init__(tape)
            self.asked = []

        def gaussian(self, values, std, **stated):
            self.asked.append((opened(values), stated["sensitivity"]))
            return super().gaussian(values, std, **stated)

    def asked(x, y):
        found = Frozen()
        fitted(x, y, lambda s: found)
        return found.asked

    first = asked(x, y)
    corners = np.random.default_rng(3).choice([-1e9, 1e9], (4, 5))
    for row, label in [*HOSTILE.values(), (corners[None], "dark"), (x[:1], y[0])]:
        again = asked(np.concatenate([x, row]), [*y, label])
        for (a, most), (b, _) in zip(first, again, strict=True):
            assert np.linalg.norm(a - b) <= most * SLACK
        if label == "dark" and abs(row[0, 0, 0]) > 1:
            # Corners of the range are as far from its middle as anything.
            assert np.linalg.norm(first[0][0] - again[0][0]) >= 0.999 * math.sqrt(3)


def told_of_a_row(is_with, plan, rng):
    """Return the log-likelihood ratio that both releases tell of one row."""
    rows = np.zeros((1, WIDTH)), np.array([0])
    rows[0][0, 0] = 9.0
    nobody = np.zeros((0, WIDTH)), np.zeros(0, int)
    ratio = 0.0

    class Noisy(Mechanisms):
        def gaussian(self, values, std, **stated):
            noisy = super().gaussian(values, std, **stated)
            self.seen = opened(values), noisy, std
            return noisy

    for release in (
        lambda r, d: moments.release_means(
            chunks(r), (N_CLASSES, WIDTH), RADIUS, plan, d
        ),
        lambda r, d: moments.release_seconds(chunks(r), CENTRES, 0.7, D, plan, d),
    ):
        door = Noisy(rng, rng)
        release(rows if is_with else nobody, door)
        here, noisy, std = door.seen
        release(nobody if is_with else rows, door)
        there = door.seen[0]
        with_row, without = (here, there) if is_with else (there, here)
        middle = (with_row + without) / 2
        ratio += ((noisy - middle) * (with_row - without)).sum() / std**2
    return ratio


def audited(n_trials, seed=0):
    plan, rng = plan_of(epsilon=4.0), np.random.default_rng(seed)
    correct = sum(
        (told_of_a_row(is_with, plan, rng) > 0) == is_with
        for is_with in (False, True)
        for _ in range(n_trials)
    )
    mu = least_mu(least_share(correct, 2 * n_trials, 0.99))
    claim = gaussian_epsilon(plan.multiplier(MOMENTS), plan.delta)
    return gaussian_epsilon(1 / mu, plan.delta) if mu > 0 else 0.0, claim


@pytest.mark.thorough
def test_moments_tell_what_they_may():
    found, claim = audited(2000)
    assert 0.7 * claim <= found <= claim


def test_moments_betray_rows_that_are_not_cut(monkeypatch):
    monkeypatch.setattr(moments, "_cut", lambda x: x)
    found, claim = audited(400)
    assert found > claim


def test_noise_is_that_of_the_plan():
    door, tape = Door(), []
    plan = plan_of()
    empty = np.zeros((0, WIDTH)), np.zeros(0, int)
    for _ in range(60):
        products, squares, std = moments.release_seconds(
            chunks(empty), CENTRES, 1.0, D, plan, door
        )
        assert np.array_equal(products, products.transpose(0, 2, 1))
        tape.append(
            np.concatenate(
                [products[:, 0, 1] * math.sqrt(2), products[:, 0, 0], squares[:, 0]]
            )
        )
    z = np.concatenate(tape) / moments.multipliers(plan)[1]
    assert std == moments.multipliers(plan)[1]
    assert stats.kstest(z, "norm").pvalue > 1e-4


# What is made of them -----------------------------------------------------------------


def test_statistics_of_mostly_noise_go_to_their_mean():
    rng = np.random.default_rng(0)
    shares, noise = np.full(10, 0.1), np.full(10, 2.0)
    signal = rng.normal(0, 30, (10, 1)) * np.ones((1, 500))
    noisy = np.concatenate([signal, np.zeros((10, 500))], 1)
    noisy += rng.normal(0, 2, noisy.shape)
    found = encoding.denoised(noisy, noise, shares)
    assert np.abs(found[:, :500] - signal).mean() < 2
    assert found[:, 500:].std(0).mean() < 0.6 < noisy[:, 500:].std(0).mean()
    assert np.allclose(found.mean(0), noisy.mean(0))
    assert np.array_equal(encoding.denoised(noisy, 0 * noise, shares), noisy) or (
        np.allclose(encoding.denoised(noisy, 0 * noise, shares), noisy)
    )
    assert np.array_equal(
        encoding.denoised(noisy[:1], noise[:1], np.ones(1)), noisy[:1]
    )


@pytest.mark.parametrize("shape", [(1, 4, 5), (3, 2, 7), (1, 1, 1)])
def test_cosines_keep_distances_and_come_back(shape):
    basis = encoding.Frequencies(shape)
    x = np.random.default_rng(0).normal(size=(9, math.prod(shape)))
    q = basis.of(x)
    assert np.allclose(np.square(q).sum(1), np.square(x).sum(1))
    assert np.allclose(basis.back(q), x)
    flat = basis.of(np.ones((1, math.prod(shape))))
    assert np.allclose(flat[0, shape[0] :], 0)  # the slowest of every channel
