"""What a whole training draws and asks for, as the rows cannot choose it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpgenerative._random import Streams
from dpgenerative.fitting import loop
from dpgenerative.fitting.options import Optimizer
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.tables.private import opened
from tests.plans import make_plan
from tests.privacy import test_replay as replay
from tests.privacy import test_sampling as sampling

PARTITIONS = 4


def plan_of(n, q, steps):
    return PrivacyPlan(1.0, 1e-5, 0.01, n, 0.0, 1.0, q, steps, ())


def drawn(n, q, steps):
    """Return the rows of every batch of a training."""
    rng = np.random.default_rng()
    stream = loop.batches(
        plan_of(n, q, steps), range(n), rng, "cpu", whole=False, ledger=Ledger()
    )
    for chunks in stream:
        parts = [indices[present].numpy() for indices, present in chunks]
        yield np.concatenate(parts)


def test_the_batches_of_a_training_are_poisson():
    rows = sampling.inclusion(drawn(sampling.N, sampling.Q, sampling.STEPS))
    assert sampling.fair_rate(rows)
    assert sampling.binomial_sizes(rows)
    assert sampling.uncorrelated_pairs(rows)
    assert sampling.independent_steps(rows)


def test_empty_batches_are_steps_like_others():
    n, q, steps = 3, 0.1, 4000
    sizes = np.array([len(rows) for rows in drawn(n, q, steps)])
    assert len(sizes) == steps
    expected = (1 - q) ** n
    error = np.sqrt(expected * (1 - expected) / steps)
    assert abs((sizes == 0).mean() - expected) < 4.5 * error


@pytest.mark.parametrize("n", [40, 100, 250])
def test_the_rate_is_that_of_the_released_count(n):
    # The true count does not move it: 100 were released, with a batch size of 20.
    trials = 1000
    plan, ledger = plan_of(100, 0.2, trials), Ledger()
    rng = np.random.default_rng()
    stream = loop.batches(plan, range(n), rng, "cpu", whole=True, ledger=ledger)
    sizes = []
    for ((_, present),) in stream:
        ledger.gradient([1.0], [1.0], plan.batch_size)
        sizes.append(int(present.sum()))
    assert list(ledger.steps) == [(0.2, 1.0, 20.0)]
    deviation = np.sqrt(n * 0.2 * 0.8)
    assert abs(np.mean(sizes) - n * 0.2) < 4.5 * deviation / np.sqrt(trials)
    assert np.var(sizes) == pytest.approx(deviation**2, rel=4.5 * np.sqrt(2 / trials))


def test_no_row_of_a_large_batch_is_lost():
    n = 2 * loop.LARGEST_CHUNK + 5
    for rows in drawn(n, 1.0, 2):
        assert sorted(rows) == list(range(n))


def test_arrays_of_a_large_batch_are_public_and_nearly_full():
    n, q = 100_000, 0.05  # 5,000 rows, in arrays of at most 4,096
    stream = loop.batches(
        plan_of(n, q, 20), range(n), np.random.default_rng(), "cpu", False, Ledger()
    )
    shapes = {tuple(len(indices) for indices, _ in chunks) for chunks in stream}
    assert shapes == {(2642, 2642)}


def test_a_count_of_nobody_does_not_cut_batches_of_all_rows_to_pieces():
    # 1 row was released, 227 are there.
    stream = loop.batches(
        plan_of(1, 1.0, 3), range(227), np.random.default_rng(), "cpu", False, Ledger()
    )
    shapes = {tuple(len(indices) for indices, _ in chunks) for chunks in stream}
    assert shapes == {(128, 128)}


def test_partitions_are_drawn_not_cut():
    layer = MaskedLinear.dense(1, 1)
    model = torch.nn.ModuleList([layer])
    sizes = []

    def objective(rows):
        latents = layer(torch.ones(len(rows), 1))
        return latents.sum(1), latents

    def divergence(latents):
        sizes.append(len(latents))
        return latents.sum()

    gradient = PrivateGradient(
        Clipper("flat", 1.0, group_bound=1.0), 1.0, 512.0, PARTITIONS
    )
    streams = Streams.create(None, "fresh", "cpu")
    loop.train(
        model, objective, range(512), plan_of(512, 1.0, 200), gradient,
        Optimizer("sgd", 0.01, 0.0),
        Mechanisms(streams.counts, streams.gradients), streams, "cpu", divergence,
    )  # fmt: skip
    # Of 512 rows drawn into 4 partitions: E[size^2] = 128^2 + 96, and 128^2 + 15 if the
    # 603 places of rows and padding are cut. The mean over partitions is 128^2 and 32
    # chi^2 of 3 degrees of freedom: deviation 78.4.
    second = np.square(sizes).sum() / (200 * PARTITIONS)
    assert abs(second - 128**2 - 96) < 4.5 * 78.4 / np.sqrt(200)


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ({"momentum": 0.0, "schedule": "constant"}, 10.0),
        ({"momentum": 0.0}, 5.5),  # rates 1, .9, ..., .1
        ({"schedule": "constant"}, 10 * 10 - 90 * (1 - 0.9**10)),
        ({}, sum((1 - t / 10) * 10 * (1 - 0.9 ** (t + 1)) for t in range(10))),
    ],
)
def test_descent_can_be_plain(given, moved):
    layer = MaskedLinear.dense(1, 1)
    start = layer.weight.item()
    streams = Streams.create(None, "fresh", "cpu")
    plan = make_plan(
        epsilon=None, delta=1e-5, n_rows=16, sampling_rate=1.0, n_steps=10,
        marginal_budget=0.0, has_open_keys=False,
    )  # fmt: skip
    loop.train(
        torch.nn.ModuleList([layer]),
        lambda rows: (layer(torch.ones(len(rows), 1))[:, 0], None),
        range(16), plan,
        PrivateGradient(Clipper("flat", 1.0), 0.0, 16.0),
        Optimizer("sgd", 1.0, 0.0, **given),
        Mechanisms(streams.counts, streams.gradients), streams, "cpu",
    )  # fmt: skip
    assert start - layer.weight.item() == pytest.approx(moved, rel=1e-5)


class Asked(replay.Recorder):
    """Keeps the noise that was asked for, too."""

    def __init__(self, inner, tape, asked):
        super().__init__(inner, tape)
        self.asked = asked

    def count(self, rows, epsilon):
        self.asked.append(epsilon)
        return super().count(rows, epsilon)

    def gaussian(self, values, std, **stated):
        self.asked.append((opened(values).shape, std))
        return super().gaussian(values, std, **stated)

    def thresholded(self, counts, std, threshold, **stated):
        self.asked.append((std, threshold))
        return super().thresholded(counts, std, threshold, **stated)

    def choose(self, scores, multiplier, **stated):
        self.asked.append((opened(scores).shape, multiplier))
        return super().choose(scores, multiplier, **stated)

    def gradient(self, sums, stds, **stated):
        self.asked.append(list(stds))
        return super().gradient(sums, stds, **stated)


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["discovered", "tables"])
def test_neighbours_ask_for_the_same_noise(name):
    params = replay.CONFIGURATIONS[name]

    def asked(frame, inner):
        found = []
        replay.fit(frame, lambda s: Asked(inner(s), [], found), **params)
        return found

    tape = []

    def record(streams):
        plain = Mechanisms(streams.counts, streams.gradients)
        return replay.Recorder(plain, tape)

    first = asked(replay.table(), record)
    second = asked(
        replay.with_outlier(replay.table()), lambda streams: replay.Replayer(tape)
    )
    assert first == second
    assert len(first) > 10
