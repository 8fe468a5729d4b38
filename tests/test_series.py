"""Series: recurrent networks, missing steps, lengths, and what is released."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from dpgenerative import ArrayArchitecture, DPArrayVAESynthesizer, load
from dpgenerative.encoding.series import Series
from dpgenerative.models.networks import (
    LSTM,
    STATE_GAIN,
    SeriesDecoder,
    SeriesEncoder,
)
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import ImageVAE
from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.gradients import LinearGradients
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import Clipper
from tests.privacy.oracle import (
    FixedNoise,
    are_clipped_one_by_one,
    layers_of,
    norm,
    per_example_gradients,
)
from tests.privacy.test_replay import Recorder, Replayer, dumped

T, C, K = 9, 3, 2


def facts_of(size, low, high, dtype, has_density):
    series = [np.zeros((1, size[1]), dtype)]
    return Series.stated("owner", series, size, (low, high), has_density)


FACTS = facts_of((T, C), 0.0, 1.0, float, True)
FAST = {"n_steps": 4, "batch_size": 32, "random_state": 0, "image_shape": (T, C)}
LSTM_OPTIONS = ArrayArchitecture(
    networks="lstm", hidden_units=6, latent_dim=K, likelihood="gaussian"
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def recurrent(shape):
    """Return the networks of series whose lengths vary."""
    g = generator()
    return SeriesEncoder(shape, 5, K, g, True), SeriesDecoder(shape, 5, K, g)


def series(n=40, seed=0, least=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(least, T + 1, n)
    return [rng.random((length, C)) for length in lengths]


def padded(x):
    return torch.from_numpy(FACTS.read("test", x).values).double()


def make_model(head="gaussian", n_draws=1):
    """Return an autoencoder of series with fixed noise, as the oracle needs it."""
    networks = recurrent(FACTS.shape)
    vae = ImageVAE(
        *networks, image_shape=FACTS.shape, head=head, std=0.3, two_valued=False,
        latent_dim=K, prior=NormalPrior(K), beta=0.5, lengths_vary=True,
    )  # fmt: skip
    with torch.no_grad():
        for p in vae.parameters():
            p.add_(0.4 * torch.randn(p.shape, generator=generator(1)))
    return FixedNoise(vae, n_draws)


# Gradients ------------------------------------------------------------------------


@pytest.mark.parametrize("n_draws", [1, 2])
@pytest.mark.parametrize("head", ["bernoulli", "gaussian"])
def test_gradients_of_series_are_those_of_one_at_a_time(head, n_draws):
    model, x = make_model(head, n_draws), padded(series(8))
    oracle = per_example_gradients(model, x)
    layers = layers_of(model, x)
    assert {type(layer) for layer in layers} == {LinearGradients}
    total = torch.zeros(8).double()
    for layer in layers:
        for p, g in zip(layer.parameters, layer.per_example(), strict=True):
            expected = torch.stack([row[p] for row in oracle])
            assert torch.allclose(g, expected, rtol=1e-8, atol=1e-10)
        total += layer.squared_norms()[0]
    expected = torch.tensor([norm(row) for row in oracle], dtype=torch.float64)
    assert torch.allclose(total.sqrt(), expected, rtol=1e-8)


def test_clipped_sums_over_time_are_those_of_one_series_at_a_time():
    assert are_clipped_one_by_one(make_model(), padded(series(8)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_series_moves_the_gradient_by_the_clipping_norm_at_most(strategy):
    """Steps share weights: their gradients are added up before the norm is taken."""
    model, bound = make_model(), 0.05
    rows = series(6)
    # One direction at every step, so that a norm per step would let T of them through.
    rows += [np.ones((T, C)), np.full((T, C), np.nan), np.empty((0, C))]
    x = padded(rows)
    for i in range(len(x)):
        present = torch.arange(len(x)) == i
        sums = Clipper(strategy, bound).clipped_sums(
            layers_of(model, x), present, generator()
        )
        assert 0 < norm(sums) <= bound


@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit"])
def test_the_gradient_of_a_series_depends_on_it_alone(strategy):
    model, x = make_model(), padded(series(6))
    other = torch.cat([x[:1], padded([1e6 * row for row in series(5, seed=8)])])

    def alone(batch):
        present = torch.arange(6) == 0
        layers = layers_of(model, batch)
        return Clipper(strategy, 0.05).clipped_sums(layers, present, generator())

    first, second = alone(x), alone(other)
    for p, total in first.items():
        assert torch.allclose(total, second[p], rtol=1e-9, atol=1e-14)


def test_steps_that_are_not_there_have_no_part():
    model, x = make_model(), padded(series(6, least=2))
    losses = model(x)[0]
    oracle = per_example_gradients(model, x)
    hostile = torch.where(
        x[..., -1:] > 0, x, torch.rand(x.shape, generator=generator()).double()
    )
    hostile[..., -1] = x[..., -1]
    assert not torch.equal(hostile, x)
    assert torch.allclose(model(hostile)[0], losses)
    for row, again in zip(oracle, per_example_gradients(model, hostile), strict=True):
        assert all(torch.allclose(g, again[p]) for p, g in row.items())
    for row, layers in zip(x, [layers_of(model, row[None]) for row in x], strict=True):
        beyond = int(row[0, :, -1].sum())
        gates = next(s for s in layers if s.module is model.vae.encoder.lstm.gates)
        assert gates.e[0, :beyond].abs().sum(1).min() > 0
        assert not gates.e[0, beyond:].any()


def test_the_memory_is_that_of_torch():
    own, other = (
        LSTM(C, 4, generator()).double(),
        nn.LSTM(C, 4, batch_first=True).double(),
    )

    def sorted_gates(x):
        f, i, o, g = x.chunk(4)
        return torch.cat([i, f, g, o])

    with torch.no_grad():
        weight = sorted_gates(own.gates.weight)
        other.weight_ih_l0.copy_(weight[:, :C])
        other.weight_hh_l0.copy_(weight[:, C:])
        other.bias_ih_l0.copy_(sorted_gates(own.gates.bias))
        other.bias_hh_l0.zero_()
    x = torch.randn(5, T, C, generator=generator()).double()
    assert torch.allclose(own(x), STATE_GAIN * other(x)[0])


# Densities and samples --------------------------------------------------------------


@torch.no_grad()
def test_probabilities_of_all_series_add_up():
    facts = facts_of((3, 1), 0.0, 1.0, bool, False)
    networks = recurrent(facts.shape)
    vae = ImageVAE(
        *networks, image_shape=facts.shape, head="bernoulli", std=1.0, two_valued=True,
        latent_dim=K, prior=NormalPrior(K), beta=1.0, lengths_vary=True,
    )  # fmt: skip
    for p in vae.parameters():
        p.add_(torch.randn(p.shape, generator=generator(2)))
    every = [
        np.array(values, dtype=bool)[:, None]
        for length in (1, 2, 3)
        for values in itertools.product([0, 1], repeat=length)
    ]
    x = torch.from_numpy(facts.read("test", every).values)
    z = torch.randn(1, 1, K, generator=generator(3))
    shares = vae._log_decoded(x, z.expand(len(x), -1, -1)).exp()[:, 0]
    assert float(shares.sum()) == pytest.approx(1, abs=1e-5)
    drawn = facts.restore(vae.decode(z[0].expand(20_000, -1), generator()).numpy())
    for one, share in zip(every, shares, strict=True):
        n = sum(np.array_equal(row, one) for row in drawn)
        assert n / 20_000 == pytest.approx(float(share), abs=0.015)


def test_series_come_back_as_they_were_read():
    x = [np.array([[1.0, -3.0]]), np.empty((0, 2)), np.full((9, 2), 7.0)]
    facts = facts_of((4, 2), -5.0, 5.0, float, True)
    images = facts.read("test", x)
    assert images.values.shape == (3, 1, 4, 3)
    back = facts.restore(images.values)
    assert [len(row) for row in back] == [1, 1, 4]
    assert np.allclose(back[0], x[0], atol=1e-6)
    assert (back[1] == -5).all()
    assert (back[2] == 5).all()
    assert np.allclose(facts.log_within(images), -np.log(10) * 2 * np.array([1, 1, 4]))


def fitted(x=None, **params):
    given = {**FAST, "epsilon": None, "architecture": LSTM_OPTIONS, **params}
    return DPArrayVAESynthesizer(**given).fit(series() if x is None else x)


@pytest.mark.parametrize("networks", ["mlp", "conv", "lstm"])
def test_series_of_different_length(networks, tmp_path):
    x = series()
    synthesizer = fitted(
        x, architecture=ArrayArchitecture(networks=networks, widths=(8,))
    )
    drawn = synthesizer.sample(50, random_state=1)
    assert all(row.shape[1:] == (C,) and 1 <= len(row) <= T for row in drawn)
    assert len({len(row) for row in drawn}) > 1
    assert synthesizer.n_features_in_ == T * C
    assert synthesizer.encode(x).shape == (40, 16)
    assert np.isfinite(synthesizer.score_samples(x, n_draws=2)).all()
    assert len(synthesizer.reconstruct(x[:3], random_state=0)) == 3
    synthesizer.save(tmp_path / "series")
    again = load(tmp_path / "series").sample(50, random_state=1)
    assert all(np.array_equal(a, b) for a, b in zip(drawn, again, strict=True))


def test_lengths_are_learned():
    rng = np.random.default_rng(0)
    x = [rng.random((n, C)) for n in rng.choice([2, 7], 400)]
    synthesizer = fitted(
        x, n_steps=300, batch_size=200, architecture=ArrayArchitecture()
    )
    lengths = np.array([len(row) for row in synthesizer.sample(500, random_state=0)])
    assert np.isin(lengths, [2, 7]).mean() > 0.8
    assert 0.3 < (lengths == 2).mean() < 0.7


def test_series_of_one_length_are_one_array():
    x = np.random.default_rng(0).random((40, T, C))
    x[0, -2:] = np.nan  # a missing value, as in any other array
    synthesizer = fitted(x, image_shape=None)
    assert synthesizer.sample(5).shape == (5, T, C)
    pictures = np.random.default_rng(0).random((40, 2, T, C))
    assert fitted(pictures, image_shape=None).sample(5).shape == (5, 2, T, C)


# What is released ---------------------------------------------------------------------


def test_nothing_but_what_is_released_depends_on_the_lengths():
    x, tape, rest = series(), [], []

    def one(rows, make):
        synthesizer = DPArrayVAESynthesizer(
            **FAST, architecture=LSTM_OPTIONS, noise="reproducible"
        )
        synthesizer._mechanisms = make
        synthesizer.fit(rows)
        del synthesizer._mechanisms
        rest.append(dumped(synthesizer))
        return synthesizer

    first = one(x, lambda s: Recorder(Mechanisms(s.counts, s.gradients), tape))
    assert {name for name, *_ in tape} == {"count", "gradient", "gaussian"}
    # A neighbour with the longest series there is.
    second = one([*x, np.ones((99, C))], lambda s: Replayer(tape))
    assert rest[0] == rest[1]
    assert str(first.privacy_) == str(second.privacy_)


@pytest.mark.parametrize("shape", [None, (1, T, C)])
def test_the_greatest_length_is_public(shape):
    with pytest.raises(ValueError, match="greatest length, channels"):
        fitted(image_shape=shape)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([np.zeros((3, C)), np.zeros((3, C), int)], "one dtype"),
        ([np.zeros((3, C)), np.zeros((3, C + 1))], r"3\); got other numbers of"),
        ([np.zeros((3, C)), np.zeros(3)], "list of arrays .*; got list"),
        ([], "list of arrays .*; got list"),
    ],
)
def test_other_lists_are_refused(x, words):
    with pytest.raises((TypeError, ValueError), match=words):
        fitted(x)
    with pytest.raises(TypeError, match="list of series"):
        fitted().encode(np.zeros((4, T, C)))


@pytest.mark.parametrize("widths", [(), (12,), (0,), 32, (8.0,)])
def test_widths_that_cannot_be_normalised_are_refused(widths):
    with pytest.raises(ValueError, match="architecture__widths"):
        fitted(architecture=ArrayArchitecture(networks="conv", widths=widths))


def test_widths_serve_faces():
    faces = np.random.default_rng(0).integers(0, 256, (8, 64, 64)).astype(np.uint8)
    options = ArrayArchitecture(networks="conv", widths=(8, 8, 16, 16))
    synthesizer = fitted(faces, image_shape=None, architecture=options, n_steps=1)
    assert synthesizer._model.encoder.output.weight.shape[1] == 16 * 4 * 4
    assert synthesizer.sample(2).shape == (2, 64, 64)
