"""The autoencoder of images: heads, shapes, what is released and what is refused."""

from __future__ import annotations

import math
import pickle
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from dpgenerative import (
    ArrayArchitecture,
    DPArrayVAESynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
)
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.encoding.pixels import Pixels
from dpgenerative.exceptions import HopelessBudgetWarning, UnsupportedColumnError
from dpgenerative.models.divergences import mmd
from dpgenerative.models.networks import (
    ConvDecoder,
    ConvEncoder,
    Decoder,
    PixelEncoder,
)
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import ImageVAE
from dpgenerative.privacy.gradients import GenericGradients
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.tables.private import opened
from tests.privacy.oracle import (
    FixedNoise,
    Silent,
    are_clipped_one_by_one,
    layers_of,
    norm,
)
from tests.privacy.test_replay import Recorder, Replayer, dumped

FAST = {"n_steps": 5, "batch_size": 32, "random_state": 0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def halves(n=400, seed=0):
    """Images of 4 x 4 with the left or the right half lit."""
    rng = np.random.default_rng(seed)
    x = np.full((n, 4, 4), 0.1)
    left = rng.random(n) < 0.5
    x[left, :, :2] = 0.9
    x[~left, :, 2:] = 0.9
    return np.clip(x + rng.normal(0, 0.05, x.shape), 0, 1)


def fitted(x=None, **params):
    # Without privacy where it does not matter: calibrating takes most of a small fit.
    x = halves() if x is None else x
    given = {**FAST, "epsilon": None, "image_shape": (4, 4), **params}
    return DPArrayVAESynthesizer().set_params(**given).fit(x)


def perceptrons(shape, k, g):
    n = math.prod(shape)
    return PixelEncoder(n, n, 5, k, g), Decoder(k, 5, shape, g)


def convolutions(shape, k, g):
    return ConvEncoder(shape, k, g), ConvDecoder(shape, k, g)


def make_vae(make=perceptrons, shape=(1, 2, 2), k=1, **params):
    encoder, decoder = make(shape, k, generator())
    settings = {
        "head": "bernoulli",
        "std": 0.3,
        "two_valued": False,
        "beta": 1.0,
    }
    model = ImageVAE(
        encoder, decoder, image_shape=shape, latent_dim=k, prior=NormalPrior(k),
        **{**settings, **params},
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn(p.shape, generator=generator(1)))
    return model.double()


# Heads ----------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("head", ["bernoulli", "gaussian"])
def test_heads_are_those_of_torch(head):
    model = make_vae(shape=(3, 2, 4), k=2, head=head)
    images = torch.rand(5, 3, 2, 4, generator=generator(2)).double().round()
    z = torch.randn(5, 7, 2, generator=generator(3)).double()
    found = model._log_decoded(images, z)
    logits = torch.stack([model.decoder(part) for part in z.unbind(1)], 1)
    distribution = (
        torch.distributions.Bernoulli(logits=logits)
        if head == "bernoulli"
        else torch.distributions.Normal(logits.sigmoid(), 0.3)
    )
    expected = distribution.log_prob(images.unsqueeze(1)).sum((2, 3, 4))
    assert torch.allclose(found, expected)


@torch.no_grad()
def test_probabilities_of_all_images_add_up():
    model = make_vae()
    images = torch.tensor(list(product([0.0, 1.0], repeat=4))).view(-1, 1, 2, 2)
    line = torch.linspace(-9, 9, 2001, dtype=torch.float64)
    z = line.view(1, -1, 1).expand(len(images), -1, -1)
    log_joint = model._log_decoded(
        images.double(), z
    ) + model.latent_distribution.log_prob(z)
    exact = torch.logsumexp(log_joint, 1) + math.log(line[1] - line[0])
    assert float(exact.exp().sum()) == pytest.approx(1, abs=1e-6)
    draws = torch.randn(len(images), 2000, 1, generator=generator(4)).double()
    found = model.log_likelihood(images.double(), draws)
    assert (found - exact).abs().mean() < 0.1
    bound, latents = model(images.double(), draws)
    assert (bound < exact).all()
    assert latents.draws.shape == (len(images), 2000, 1)


@pytest.mark.parametrize("two_valued", [False, True])
def test_decoded_pixels_are_means_or_draws(two_valued, monkeypatch):
    from dpgenerative.models import vae

    model = make_vae(two_valued=two_valued).float()
    monkeypatch.setattr(vae, "DECODED", 4 * 1000)
    z = torch.full((5000, 1), 0.4)
    decoded = model.decode(z, generator())
    means = model.decoder(z[:1]).sigmoid()[0]
    assert set(decoded.unique().tolist()) <= {0.0, 1.0} or not two_valued
    assert torch.allclose(decoded.mean(0), means, atol=0.04 if two_valued else 1e-6)


# What one image can move ------------------------------------------------------------


def loss_of(make, n_draws):
    return FixedNoise(make_vae(make, shape=(1, 8, 8), k=3), n_draws)


def pixels(n):
    return torch.rand(n, 1, 8, 8, generator=generator(6)).double()


@pytest.mark.parametrize("n_draws", [1, 3])
@pytest.mark.parametrize("make", [perceptrons, convolutions])
def test_clipped_sums_are_those_of_one_image_at_a_time(make, n_draws):
    model, x = loss_of(make, n_draws), pixels(6)
    assert GenericGradients not in map(type, layers_of(model, x))
    assert are_clipped_one_by_one(model, x)


@pytest.mark.parametrize("n_draws", [1, 2])
@pytest.mark.parametrize("make", [perceptrons, convolutions])
def test_one_image_moves_the_gradient_by_its_sensitivity_at_most(make, n_draws):
    model, x = loss_of(make, n_draws), pixels(5)
    clipper = Clipper("flat", 0.05, group_bound=0.005)
    gradient = PrivateGradient(clipper, 1.0, 5, 2, batch_term_module="vae.encoder")
    partition = np.array([0, 1, 0, 1, 1])

    def released(present):
        return gradient(
            model, lambda i: model(x[i]), [(torch.arange(5), torch.tensor(present))],
            Silent(), generator(), lambda z: 100 * mmd(z), lambda n: partition[:n],
        )  # fmt: skip

    whole, without = released([True] * 5), released([True] * 4 + [False])
    moved = norm({p: whole[p] - without[p] for p in whole})
    assert 0.9 * 0.05 / 5 < moved <= gradient.sensitivity(True) * (1 + 1e-5)


# What is released ---------------------------------------------------------------------


def recorded(x, **params):
    tape = []
    synthesizer = DPArrayVAESynthesizer().set_params(
        **{**FAST, "image_shape": (4, 4), "noise": "reproducible", **params}
    )
    synthesizer._mechanisms = lambda streams: Recorder(
        Mechanisms(streams.counts, streams.gradients), tape
    )
    synthesizer.fit(x)
    del synthesizer._mechanisms
    return synthesizer, tape


@pytest.mark.thorough
def test_pixels_pay_for_no_marginals():
    synthesizer, tape = recorded(halves(), architecture__prior_budget=0)
    assert [name for name, *_ in tape] == ["count"] + ["gradient"] * 5
    plan = synthesizer.privacy_.plan
    assert plan.multiplier(MARGINALS) == plan.multiplier(LATENTS) == math.inf
    assert 0.99 < synthesizer.epsilon_ <= 1
    text = str(synthesizer.privacy_)
    assert "row count" in text
    assert "marginals" not in text
    assert "shape, dtype and range of the pixels (0 to 1)" in text
    with_law, tape = recorded(halves())
    assert [name for name, *_ in tape] == ["count"] + ["gradient"] * 5 + ["gaussian"]
    assert with_law.noise_multiplier_ > synthesizer.noise_multiplier_
    assert "marginals" not in str(fitted(epsilon=None).privacy_)


@pytest.mark.thin(4)
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"architecture__networks": "conv"},
        {
            "divergence": "mmd",
            "n_partitions": 3,
            "architecture__likelihood": "gaussian",
        },
        {"max_grad_norm": "median", "architecture__n_draws": 2, "prior": "sparse"},
    ],
)
def test_an_outlier_leaves_no_trace(params):
    x = halves(100)
    outlier = np.array([np.nan, np.inf, -np.inf, 1e300] * 4).reshape(1, 4, 4)
    a, tape = recorded(x, **params)
    b = DPArrayVAESynthesizer().set_params(
        **{**FAST, "image_shape": (4, 4), "noise": "reproducible", **params}
    )
    replayer = Replayer(tape)
    b._mechanisms = lambda streams: replayer
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Said of the released count, and the same of both.
        warnings.simplefilter("ignore", HopelessBudgetWarning)
        b.fit(np.concatenate([x, outlier]))
    del b._mechanisms
    assert next(replayer.tape, None) is None
    assert str(a.privacy_) == str(b.privacy_)
    assert np.array_equal(a.sample(20, random_state=1), b.sample(20, random_state=1))
    assert dumped(a) == dumped(b)


def test_a_pickle_holds_no_image():
    x = np.random.default_rng(0).random((50, 4, 4)).astype(np.float32)
    data = pickle.dumps(fitted(x, epsilon=1.0))
    assert x[7].tobytes() not in data
    assert x[7, 2].tobytes() not in data
    assert len(pickle.loads(data).sample(2)) == 2


# As its users meet it -----------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("likelihood", ["bernoulli", "gaussian"])
def test_it_learns_what_pixels_do_together(likelihood):
    x, test = halves(2000), halves(200, seed=1)
    common = {
        "epsilon": 8.0, "batch_size": 256, "architecture__likelihood": likelihood,
        "architecture__latent_dim": 2,
    }  # fmt: skip
    synthesizer = fitted(x, n_steps=200, **common)
    assert synthesizer.score(test) > fitted(x, n_steps=1, **common).score(test) + 2
    draws = synthesizer.sample(500)
    left, right = draws[:, :, :2].mean((1, 2)), draws[:, :, 2:].mean((1, 2))
    assert np.corrcoef(left, right)[0, 1] < -0.8
    assert 0.2 < (left > right).mean() < 0.8
    again = synthesizer.reconstruct(test)
    assert np.abs(again - test).mean() < 0.2
    assert np.allclose(again, synthesizer.decode(synthesizer.encode(test)))


@pytest.mark.parametrize("networks", ["mlp", "conv"])
@pytest.mark.parametrize(
    ("image_shape", "row_shape", "dtype", "high"),
    [
        ((5, 7), (35,), np.float64, 1),
        ((5, 7), (5, 7), np.uint8, 255),
        ((5, 7), (1, 5, 7), np.float32, 1),
        ((3, 4, 4), (3, 4, 4), np.int32, 1),
        ((3, 4, 4), (48,), bool, 1),
    ],
)
def test_samples_look_like_what_was_fitted(
    networks, image_shape, row_shape, dtype, high
):
    x = np.random.default_rng(0).integers(0, high, (40, *row_shape), endpoint=True)
    x = x.astype(dtype)
    architecture = ArrayArchitecture(networks=networks)
    shape, levels = image_shape, "auto" if dtype != np.int32 else (0, high)
    facts = {"image_shape": shape, "value_range": levels, "architecture": architecture}
    fit = fitted(x, **facts, n_steps=2)
    draws = fit.sample(30)
    for found in (draws, fit.reconstruct(x[:30]), fit.decode(fit.encode(x[:30]))):
        assert found.shape == (30, *row_shape)
        assert found.dtype == dtype
        assert found.min() >= 0
        assert found.max() <= high
    assert fit.encode(x).shape == (40, 16)
    assert fit.n_features_in_ == math.prod(row_shape)
    scores = fit.score_samples(x, n_draws=3)
    assert scores.shape == (40,)
    assert np.isfinite(scores).all()
    flat = x.reshape(40, -1)
    assert np.allclose(scores, fit.score_samples(flat, n_draws=3), rtol=1e-5)
    if dtype in (bool, np.int32):
        assert set(np.unique(draws)) == {0, 1}


def test_draws_follow_random_state():
    fit = fitted(halves() > 0.5)
    assert np.array_equal(fit.sample(9, random_state=3), fit.sample(9, random_state=3))
    assert not np.array_equal(fit.sample(9), fit.sample(9))


def test_values_outside_the_range_move_to_its_ends():
    facts = Pixels((1, 2, 2), (4,), -1.0, 3.0, np.dtype(float), False)
    x = np.array([[-np.inf, -5.0, np.nan, -1.0], [0.0, 1.0, 3.0, 1e300]])
    images = facts.read("Owner", x)
    assert images.values.ravel().tolist() == [0, 0, 0, 0, 0.25, 0.5, 1, 1]
    back = facts.restore(images.values)
    assert back.tolist() == [[-1, -1, -1, -1], [0, 1, 3, 3]]


def test_the_range_follows_the_dtype_unless_told():
    x = (halves() * 255).astype(np.uint8)
    auto, told = fitted(x), fitted(x, value_range=(0, 255))
    other = fitted(x, value_range=(0, 100))
    assert np.array_equal(auto.encode(x), auto.encode(x.astype(np.int64)))
    assert (auto._layout.low, auto._layout.high) == (0, 255)
    assert told._layout == auto._layout
    assert other.sample(50).max() <= 100
    assert fitted(halves())._layout.high == 1
    with pytest.raises(ValueError, match="int64 have no usual range of pixels"):
        fitted(x.astype(np.int64))
    assert fitted(x.astype(np.int64), value_range=(0, 255))._layout.high == 255


def test_gaussian_scores_are_densities_of_the_units():
    x = halves()
    params = {"architecture__likelihood": "gaussian", "noise": "reproducible"}
    unit, percent = fitted(x, **params), fitted(100 * x, value_range=(0, 100), **params)
    shift = unit.score_samples(x) - percent.score_samples(100 * x)
    assert np.allclose(shift, 16 * math.log(100), atol=1e-2)
    bits = {**params, "architecture__likelihood": "bernoulli"}
    same = fitted(x, **bits).score(x), fitted(100 * x, value_range=(0, 100), **bits)
    assert same[0] == pytest.approx(same[1].score(100 * x), abs=1e-3)


def test_the_standard_deviation_is_that_of_the_law():
    assert (
        fitted(architecture__likelihood="gaussian", architecture__std=0.3)._model.std
        == 0.3
    )
    assert fitted(architecture__likelihood="gaussian")._model.std == 0.1


def test_images_have_one_draw_of_full_weight():
    def weights(**params):
        model = fitted(noise="reproducible", **params)._model
        return next(model.decoder.parameters())

    assert torch.equal(
        weights(), weights(architecture__beta=1.0, architecture__n_draws=1)
    )
    assert not torch.equal(weights(), weights(architecture__beta=0.7))
    assert not torch.equal(weights(), weights(architecture__n_draws=2))


def plain(shape, k, generator):
    """An architecture of one's own, through layers without a closed form."""
    n = math.prod(shape)

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.spread = nn.Linear(n, k), nn.Linear(n, k)

        def forward(self, images):
            return self.mean(images.flatten(1)), self.spread(images.flatten(1))

    return Both(), nn.Sequential(nn.Linear(k, n), nn.Unflatten(1, shape))


def test_an_architecture_of_ones_own():
    fit = fitted(architecture__networks=plain, divergence="mmd")
    assert fit.sample(3).shape == (3, 4, 4)
    assert fitted(architecture__networks=plain, epsilon=1.0).epsilon_ <= 1
    assert isinstance(fit._model.encoder.mean, nn.Linear)


def with_encoder(*layers):
    def make(shape, k, generator):
        encoder, decoder = plain(shape, k, generator)

        class Before(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.then = nn.Sequential(*layers), encoder

            def forward(self, images):
                return self.then(self.first(images))

        return Before(), decoder

    return make


def hidden_behind_zeros(shape, k, generator):
    """A batch statistic that no output shows until its weights have moved."""
    encoder, decoder = plain(shape, k, generator)
    nn.init.zeros_(decoder[0].weight)
    nn.init.zeros_(decoder[0].bias)
    norm = nn.BatchNorm1d(k, affine=False, track_running_stats=False)
    return encoder, nn.Sequential(norm, *decoder)


class Keeping(nn.Module):
    """Keeps an image where `state_dict` does not look, and a pickle does."""

    def __init__(self, where):
        super().__init__()
        self.where, self.all = where, []
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, images):
        if self.where == "buffer":
            self.seen = images.mean()
        elif self.where == "list":
            self.all.append(images.mean().item())
        else:
            self.last = images
        return images


@pytest.mark.parametrize(
    ("networks", "words"),
    [
        (with_encoder(nn.BatchNorm2d(1)), "treat every image apart"),
        (with_encoder(nn.BatchNorm2d(1, track_running_stats=False)), "apart"),
        (with_encoder(nn.Dropout(0.5)), "draw nothing"),
        (with_encoder(nn.InstanceNorm2d(1, track_running_stats=True)), "remember"),
        (hidden_behind_zeros, "treat every image apart"),
        (with_encoder(Keeping("attribute")), "remember"),
        (with_encoder(Keeping("buffer")), "remember"),
        (with_encoder(Keeping("list")), "remember"),
        (lambda *args: nn.Linear(2, 2), "tuple of two modules"),
        (lambda *args: (plain(*args)[0], len), "tuple of two modules"),
        (lambda s, k, g: (plain(s, k + 1, g)[0], plain(s, k, g)[1]), "logits of shape"),
    ],
)
def test_architectures_that_no_bound_covers_are_refused(networks, words):
    # Before anything is spent.
    with PrivacyBudget(9.0, 0.1) as budget, pytest.raises(ValueError, match=words):
        fitted(architecture__networks=networks, epsilon=1.0)
    assert budget.fits == []


@pytest.mark.parametrize(
    ("x", "error", "words"),
    [
        (np.zeros((9, 4, 5)), ValueError, r"\(n_samples, 4, 4\).*\(n_samples, 4, 5\)"),
        (np.zeros((9, 15)), ValueError, r"\(n_samples, 16\)"),
        (np.zeros((4, 4)), ValueError, "images of shape"),
        (np.zeros(16), ValueError, "images of shape"),
        (np.zeros((0, 4, 4)), ValueError, "0 sample"),
        (np.zeros((9, 4, 4), dtype=complex), UnsupportedColumnError, "complex"),
        (np.zeros((9, 4, 4), dtype=object), UnsupportedColumnError, "object"),
        (np.zeros((9, 16)).tolist(), TypeError, "list of arrays .*; got list"),
        (pd.DataFrame(np.zeros((9, 16))), TypeError, "DataFrame"),
    ],
)
def test_other_arrays_are_refused(x, error, words):
    with pytest.raises(error, match=words):
        fitted(x)
    if len(x):
        with pytest.raises(error, match=words):
            fitted().encode(x)


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"image_shape": 4}, "image_shape"),
        ({"image_shape": (16,)}, "image_shape"),
        ({"image_shape": (4, 0)}, "image_shape"),
        ({"image_shape": (4.0, 4)}, "image_shape"),
        ({"architecture__networks": "resnet"}, "'architecture__networks' of DPArray"),
        ({"architecture__likelihood": "poisson"}, "'architecture__likelihood'"),
        ({"value_range": (1, 0)}, "'value_range'"),
        ({"value_range": (0, math.inf)}, "'value_range'"),
        ({"value_range": (-1e308, 1e308)}, "'value_range'"),
        ({"value_range": "byte"}, "'value_range'"),
        ({"architecture__std": 0}, "'architecture__std'"),
    ],
)
def test_bad_parameters_are_named(params, words):
    with pytest.raises(ValueError, match=words):
        fitted(**params)


@pytest.mark.parametrize(
    "name", ["schema", "conditional", "categorical_features", "architecture__n_bins"]
)
def test_parameters_of_tables_are_unknown(name):
    with pytest.raises(ValueError, match="Invalid parameter"):
        DPArrayVAESynthesizer().set_params(**{name: None})


def test_a_synthesizer_of_tables_takes_no_images():
    with pytest.raises(ValueError, match="Invalid parameter 'image_shape'"):
        DPVAESynthesizer().set_params(image_shape=(4, 4))
    with pytest.raises(ValueError, match="2D"):
        DPVAESynthesizer(n_steps=1).fit(halves(50))


def test_a_target_is_refused():
    x = halves(50)
    with pytest.raises(ValueError, match="takes y only where the list of labels"):
        DPArrayVAESynthesizer(image_shape=(4, 4)).fit(x, np.zeros(50))
    with pytest.raises(ValueError, match="takes y only where the list of labels"):
        fitted(x).score_samples(x, np.zeros(50))
    with pytest.raises(TypeError, match="given"):
        fitted(x).sample(2, given={0: 1})


# Without image_shape ------------------------------------------------------------------


@pytest.mark.parametrize("row_shape", [(4, 5), (3, 4, 5)])
def test_the_shape_is_read_from_arrays_that_are_not_flat(row_shape):
    x = np.random.default_rng(0).random((40, *row_shape))
    params = {"noise": "reproducible"}
    read, told = (fitted(x, image_shape=shape, **params) for shape in (None, row_shape))
    assert read.image_shape is None
    assert read.n_features_in_ == math.prod(row_shape)
    assert read._layout == told._layout
    draws = read.sample(5, random_state=1)
    assert draws.shape == (5, *row_shape)
    assert np.array_equal(draws, told.sample(5, random_state=1))
    # What is scored later may come flat: the shape is known.
    assert np.array_equal(read.encode(x.reshape(40, -1)), read.encode(x))


@pytest.mark.parametrize("shape", [(9, 16), (9,), (9, 1, 2, 2, 2)])
def test_flat_arrays_need_a_shape(shape):
    with pytest.raises(ValueError, match=r"'image_shape' of DPArray.* is needed"):
        fitted(np.zeros(shape), image_shape=None)
    for other in (np.zeros((9, 2, 2)).tolist(), pd.DataFrame(np.zeros((9, 4)))):
        with pytest.raises((ValueError, TypeError), match="DPArrayVAESynthesizer"):
            fitted(other, image_shape=None)


@pytest.mark.parametrize("n", [3, 4])
def test_lists_are_refused_whatever_they_hold(n):
    # Numpy's own words for lists of several lengths would tell how many there are.
    with pytest.raises(TypeError, match=r"series as a list of arrays .*; got list"):
        fitted([[1.0]] * (n - 1) + [[1.0, 2.0]], image_shape=None)


def test_cautions_of_arrays_speak_of_no_columns(monkeypatch):
    def exact(self, rows, epsilon):
        self.ledger.count(len(opened(rows)), epsilon)
        return len(opened(rows))

    monkeypatch.setattr(Mechanisms, "count", exact)
    with pytest.warns(HopelessBudgetWarning, match="Use rows of more people or"):
        fit = DPArrayVAESynthesizer(0.01, n_steps=2).fit(halves()[:40])
    assert "column" not in " ".join(fit.privacy_.notes)


@pytest.mark.parametrize(
    ("dtype", "value_range"),
    [("u1", (0, 300)), ("i1", (0, 255)), ("f2", (0, 1e6)), ("?", (-1, 1))],
)
def test_a_range_that_the_dtype_lacks_is_refused(dtype, value_range):
    """Beyond it, whole numbers began anew at the other end."""
    with pytest.raises(ValueError, match="hold no values from"):
        fitted(np.ones((40, 4, 4), dtype), value_range=value_range)


def test_floats_are_no_images_of_whole_numbers():
    """Of uint8, floats in [0, 1] were all but black, and nothing said so."""
    whole = (halves(40) * 255).astype(np.uint8)
    for x, other in ((whole, halves(40)), (halves(40), whole)):
        model, words = fitted(x), f"fitted to arrays of {x.dtype}; got {other.dtype}"
        for use in (model.score, model.encode, model.reconstruct):
            with pytest.raises(ValueError, match=words):
                use(other)
        assert np.isfinite(model.score(x))


def test_channels_that_come_last_are_told():
    x = np.random.default_rng(0).random((40, 8, 8, 3))
    with pytest.warns(UserWarning, match="as 8 channels of 8 x 3. If channels come"):
        fitted(x, image_shape=None)
    for quiet, shape in ((np.moveaxis(x, -1, 1), None), (x, (8, 8, 3))):
        assert fitted(quiet, image_shape=shape).sample(1).shape[1:] == quiet.shape[1:]
