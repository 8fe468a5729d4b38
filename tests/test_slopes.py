"""Counts of tails follow a fitted decline where they are noise, and rows do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares
from scipy.stats import norm

from dpgenerative import Column, Schema
from dpgenerative.encoding.estimates import Partition
from dpgenerative.encoding.slopes import (
    Decline,
    _closest,
    fitted,
    toward_declines,
    with_slopes,
)
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.privacy.noise import Mechanisms

GRID = np.linspace(0, 16, 1601)


def partition(places, counts, heavy=None, std=1.0):
    n, counts = len(counts), np.array(counts, float)
    heavy = np.zeros(n, bool) if heavy is None else np.array(heavy)
    return Partition(
        np.array(places), counts, np.full(n, std**2), heavy, np.empty(0), noisy=counts
    )


def lognormal(places, n=10_000):
    """Return rows between edges of the grid: on its line, normal of mean 4, std 2."""
    return n * np.diff(norm.cdf((GRID[places] - 4) / 2))


WIDE = np.array([0, 100, 200, 300, 400, 450, 500, 550, 600, 700, 800, 1200, 1600])


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("b", [0.0, 1.5])
@pytest.mark.parametrize("c", [0.0, 0.3])
def test_a_decline_is_recovered(mirrored, b, c):
    edges = (
        -np.array([0, 1, 2, 3, 5, 8.0]) if mirrored else np.array([0, 1, 2, 3, 5, 8.0])
    )
    starts, stops = np.sort([edges[:-1], edges[1:]], axis=0)
    true = Decline(5.0, b, c, 0.0, 1.0, -1 if mirrored else 1, 0.1)
    rows = true.rows(starts, stops)
    found = fitted(rows, np.full(5, 1e-4), starts, stops)
    np.testing.assert_allclose(found.rows(starts, stops), rows, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("seed", range(20))
def test_squares_are_least_beside_those_of_a_library(seed):
    rng = np.random.default_rng(seed)
    starts, stops = np.arange(6.0), np.arange(1, 7.0)
    start = Decline(5.0, 1.0, 1.0, 0.0, 5.0, 1, 1.0)
    true = replace(start, a=6.0, b=rng.uniform(-3, 6), c=rng.uniform(-2, 4))
    stds = np.full(6, rng.choice([0.1, 10.0]))
    rows = true.rows(starts, stops) + rng.normal(0, stds)

    def gaps(values):
        moved = replace(start, a=values[0], b=values[1], c=values[2])
        return (rows - moved.rows(starts, stops)) / stds

    ours = _closest(start, rows, stds, starts, stops)
    assert min(ours.b, ours.c) >= 0
    bounds = [-np.inf, 0, 0], np.inf
    theirs = least_squares(gaps, [5.0, 1.0, 1.0], bounds=bounds).x
    squares = [(gaps(x) ** 2).sum() for x in ([ours.a, ours.b, ours.c], theirs)]
    assert squares[0] <= squares[1] * (1 + 1e-3)


@pytest.mark.parametrize("rows", [[0.0] * 4, [1e300] * 4, [1e-300, 0, 0, 5], [-9] * 4])
def test_rows_that_no_decline_explains_end_in_finite_numbers(rows):
    with np.errstate(all="ignore"):
        found = fitted(np.array(rows), np.ones(4), np.arange(4.0), np.arange(1, 5.0))
    assert np.isfinite([found.a, found.b, found.c]).all()


def test_a_line_through_few_intervals_has_no_bend():
    found = fitted(
        np.array([90.0, 10.0]), np.ones(2), np.arange(2.0), np.arange(1, 3.0)
    )
    assert found.c == 0
    assert found.b / found.scale == pytest.approx(np.log(9), rel=0.05)


def test_counts_that_are_noise_follow_the_decline():
    exact, rng = lognormal(WIDE), np.random.default_rng(0)
    errors = []
    for _ in range(50):
        noisy = exact + rng.normal(0, 20, len(exact))
        parts = replace(partition(WIDE, noisy.clip(0), std=20.0), noisy=noisy)
        moved = toward_declines(parts, GRID).counts
        errors.append([abs(noisy.clip(0) - exact)[-1], abs(moved - exact)[-1]])
        assert moved.sum() == pytest.approx(parts.counts.sum())
    before, after = np.mean(errors, axis=0)
    assert after < before / 4  # in the last and widest interval, of 0.3 rows


def test_rows_that_noise_does_not_explain_stay():
    counts = lognormal(WIDE)
    counts[-1] = 400  # a second mode, far away
    moved = toward_declines(partition(WIDE, counts, std=5.0), GRID)
    assert moved.counts[-1] == pytest.approx(400, rel=0.05)


def test_well_known_counts_do_not_move():
    counts = lognormal(WIDE) * np.tile([0.97, 1.03], 6)
    moved = toward_declines(partition(WIDE, counts, std=0.1), GRID)
    np.testing.assert_allclose(moved.counts, counts, rtol=0.02, atol=0.1)


@pytest.mark.parametrize("counts", [[0.0] * 4, [5.0, 0, 0, 0], [1.0], [3.0, 1.0]])
def test_few_or_no_rows_are_left_alone_or_finite(counts):
    places = np.arange(len(counts) + 1) * 100
    parts = toward_declines(partition(places, counts), GRID)
    cut = with_slopes(parts, GRID)
    assert np.isfinite(cut.counts).all()
    assert cut.counts.sum() == pytest.approx(sum(counts))


def test_pieces_share_what_was_counted_and_decline():
    parts = toward_declines(partition(WIDE, lognormal(WIDE)), GRID)
    cut = with_slopes(parts, GRID)
    starts = np.searchsorted(cut.places, WIDE[:-1])
    np.testing.assert_allclose(np.add.reduceat(cut.counts, starts), parts.counts)
    tail = cut.places[:-1] >= 1200
    density = cut.counts / np.diff(cut.places)
    assert tail.sum() > 3
    assert (np.diff(density[tail]) < 0).all()
    edges = cut.places[:-1][tail]
    np.testing.assert_allclose(
        np.log10(density[tail][0] / density[tail][-1]),
        np.log10(norm.pdf(GRID[edges[0]], 4, 2) / norm.pdf(GRID[edges[-1]], 4, 2)),
        rtol=0.5,
    )
    last = len(GRID) - 1
    mirror = toward_declines(partition(last - WIDE[::-1], lognormal(WIDE)[::-1]), GRID)
    back = with_slopes(mirror, GRID)
    np.testing.assert_array_equal(last - back.places[::-1], cut.places)
    np.testing.assert_allclose(back.counts[::-1], cut.counts, rtol=1e-3, atol=1e-6)


def test_spikes_stay_what_they_are():
    counts = lognormal(WIDE)
    counts[4] = 4000
    heavy = np.arange(len(counts)) == 4
    parts = toward_declines(partition(WIDE, counts, heavy), GRID)
    cut = with_slopes(parts, GRID)
    assert cut.heavy.sum() == 1
    assert cut.counts[cut.heavy] == pytest.approx(4000, rel=0.01)


def test_spikes_that_their_interval_contradicts_are_noise():
    parts = partition([0, 100, 1600], [900, 19])
    rows = np.zeros(1600)
    rows[[50, 800]] = 300, 400  # of values; the second lies where 19 rows are
    spiked = parts.with_spikes(rows)
    np.testing.assert_array_equal(spiked.places, [0, 50, 51, 100, 1600])
    assert spiked.counts[1] == pytest.approx(300)


@pytest.mark.parametrize("upper", [1e4, 1e5, 1e6])
def test_means_of_money_do_not_follow_the_bounds(upper):
    """Sigma 1.5: with even intervals the mean was up to 2.4 times the real one."""
    ratios = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        amounts = np.exp(rng.normal(3, 1.5, 10_000)).round(2)
        column = Column("x", "continuous", lower=0, upper=upper, resolution=0.01)
        frame = pd.DataFrame({"x": amounts})
        fitted = TableTransformer.fit(
            frame, Schema([column]).resolve(frame), Mechanisms(rng, rng),
            n_rows=10_000, multiplier=6.3, delta=1e-6, n_bins=64,
        )  # fmt: skip
        (codec,) = fitted.codecs
        codes = rng.choice(codec.n_cells, 100_000, p=codec.masses)
        drawn = codec.decode(codes, rng.random(100_000))
        ratios.append(drawn.mean() / amounts.clip(0, upper).mean())
    assert np.mean(np.abs(np.array(ratios) - 1) < 0.25) > 0.8
