"""Rows in wide intervals decline as before them: means of money, and nothing else."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from dpgenerative import Column, Schema
from dpgenerative.encoding.estimates import Partition
from dpgenerative.encoding.slopes import decline, with_slopes
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.privacy.noise import Mechanisms

GRID = np.linspace(0, 16, 1601)


def partition(places, counts, heavy=None):
    n = len(counts)
    heavy = np.zeros(n, bool) if heavy is None else np.array(heavy)
    return Partition(
        np.array(places), np.array(counts, float), np.ones(n), heavy, np.empty(0)
    )


@pytest.mark.parametrize("rate", [0.1, 1.0, 5.0])
@pytest.mark.parametrize(("gap", "length"), [(1.0, 1.0), (0.5, 8.0), (3.0, 0.2)])
def test_an_exponential_decline_is_recovered(rate, gap, length):
    before = 1 - np.exp(-rate * gap)
    own = np.exp(-rate * gap) * (1 - np.exp(-rate * length))
    assert decline(before, own, gap, length) == pytest.approx(rate, rel=1e-6)


def test_what_does_not_decline_is_even():
    assert decline(10, 10, 1, 1) == decline(10, 90, 2, 1) == 0
    flat = partition([0, 400, 800, 1600], [10, 10, 20])
    cut = with_slopes(flat, GRID)
    np.testing.assert_array_equal(cut.places, flat.places)
    np.testing.assert_array_equal(cut.counts, flat.counts)


def test_pieces_share_what_was_counted_and_decline():
    parts = partition([0, 100, 200, 300, 1600], [300, 900, 200, 30])
    cut = with_slopes(parts, GRID)
    totals = np.add.reduceat(
        cut.counts, np.searchsorted(cut.places, [0, 100, 200, 300])
    )
    np.testing.assert_allclose(totals, parts.counts)
    tail = cut.places[:-1] >= 300
    density = cut.counts / np.diff(cut.places)
    assert tail.sum() > 4
    assert (np.diff(density[tail]) < 0).all()
    mirrored = partition([0, 1300, 1400, 1500, 1600], [30, 200, 900, 300])
    back = with_slopes(mirrored, GRID)
    np.testing.assert_allclose(back.counts[::-1], cut.counts)
    np.testing.assert_array_equal(1600 - back.places[::-1], cut.places)


def test_spikes_stay_what_they_are():
    parts = partition([0, 100, 101, 201, 1600], [100, 400, 100, 3], [0, 1, 0, 0])
    cut = with_slopes(parts, GRID)
    assert 400 in cut.counts
    assert cut.heavy.sum() == 1
    lone = partition([0, 100, 101, 1600], [100, 400, 3], [0, 1, 0])
    np.testing.assert_array_equal(with_slopes(lone, GRID).places, lone.places)


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
