"""Poisson sampling: each test also rejects shuffled batches of a fixed size."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.sampling import (
    capacity,
    draw_partitions,
    padded_chunks,
    poisson_indices,
)

N, Q, STEPS = 50, 0.1, 20_000


def poisson(rng):
    for _ in range(STEPS):
        yield poisson_indices(range(N), Q, rng, Ledger())


def shuffled(rng):
    """Batches as ordinary data loaders cut them: an epoch at a time."""
    while True:
        order = rng.permutation(N)
        yield from order.reshape(-1, int(N * Q))


def inclusion(batches):
    rows = np.zeros((STEPS, N))
    for t, batch in zip(range(STEPS), batches, strict=False):
        rows[t, batch] += 1
    return rows


def fair_rate(rows):
    z = (rows.mean(0) - Q) / np.sqrt(Q * (1 - Q) / STEPS)
    return stats.kstest(z, "norm").pvalue > 1e-4 and rows.max() == 1


def binomial_sizes(rows):
    sizes = rows.sum(1)
    cut = np.arange(2, 10)
    observed = [np.mean(sizes <= k) for k in cut]
    expected = stats.binom.cdf(cut, N, Q)
    return np.abs(np.array(observed) - expected).max() < 4.5 * 0.5 / np.sqrt(STEPS)


def uncorrelated_pairs(rows):
    covariance = np.cov(rows, rowvar=False)
    pairs = covariance[np.triu_indices(N, 1)]
    error = Q * (1 - Q) / np.sqrt(STEPS * len(pairs))
    return abs(pairs.mean()) < 4.5 * error


def independent_steps(rows):
    lagged = np.mean((rows[1:] - Q) * (rows[:-1] - Q))
    return abs(lagged) < 4.5 * Q * (1 - Q) / np.sqrt(STEPS * N)


def test_every_row_is_drawn_with_probability_q():
    assert fair_rate(inclusion(poisson(np.random.default_rng())))


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "check", [binomial_sizes, uncorrelated_pairs, independent_steps]
)
def test_poisson_and_not_shuffled(check):
    assert check(inclusion(poisson(np.random.default_rng())))
    assert not check(inclusion(shuffled(np.random.default_rng(0))))


def test_edges():
    rng = np.random.default_rng(0)
    assert np.array_equal(poisson_indices(range(5), 1.0, rng, Ledger()), np.arange(5))
    assert len(poisson_indices(range(5), 1e-12, rng, Ledger())) == 0
    assert len(poisson_indices(range(0), 0.5, rng, Ledger())) == 0


def test_padding_keeps_every_row_once():
    rows = np.arange(17)
    chunks = list(padded_chunks(rows, 8, np.random.default_rng()))
    assert [len(i) for i, _ in chunks] == [8, 8, 8]
    kept = torch.cat([i[present] for i, present in chunks])
    assert torch.equal(kept.sort()[0], torch.arange(17))


@pytest.mark.parametrize("n", [3, 4, 7])
def test_rows_stand_at_random_places(n):
    rng, size = np.random.default_rng(), 4
    counts = np.zeros((n, size * -(-n // size)))
    for _ in range(4000):
        chunks = list(padded_chunks(np.arange(n), size, rng))
        indices, present = (torch.cat(x).numpy() for x in zip(*chunks, strict=True))
        counts[indices[present], np.flatnonzero(present)] += 1
    # Whole chunks first: at their places a row is as likely as any other.
    places = counts.sum(0)
    assert (places[: size * (n // size)] == 4000).all()
    expected = np.outer(counts.sum(1), places) / counts.sum()
    assert stats.chisquare(counts, expected, axis=None, ddof=n + size).pvalue > 1e-5


def test_an_empty_batch_is_one_chunk_of_padding():
    nothing = np.array([], dtype=np.int64)
    ((indices, present),) = padded_chunks(nothing, 4, np.random.default_rng())
    assert len(indices) == 4
    assert not present.any()


def test_capacity_holds_nearly_all_batches():
    assert stats.binom.sf(capacity(2048), 10**6, 2048 / 10**6) < 1e-4


def test_partitions_are_uniform_and_independent():
    groups = draw_partitions(80_000, 16, np.random.default_rng())
    counts = np.bincount(groups, minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-5
    pairs = np.bincount(groups[1:] * 16 + groups[:-1], minlength=256)
    assert stats.chisquare(pairs).pvalue > 1e-5
