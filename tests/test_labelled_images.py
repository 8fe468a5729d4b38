"""Labelled arrays: what is learned of every class, and what comes out again."""

import math
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from dpgenerative import ArrayArchitecture, DPArrayVAESynthesizer, load
from dpgenerative.audit import audit_mechanism, audit_training
from dpgenerative.encoding import classes as encoding
from dpgenerative.exceptions import HopelessBudgetWarning
from dpgenerative.models.priors import NormalPrior
from dpgenerative.privacy.gradients import GenericGradients
from tests.privacy.oracle import FixedNoise, are_clipped_one_by_one, layers_of

CLASSES = ["bar", "spot", "never"]


def labelled(n=600, seed=0, n_spots=0.3):
    """Arrays of 5 x 6: bars of any length from the left, or spots of any brightness."""
    rng = np.random.default_rng(seed)
    is_spot = rng.random(n) < n_spots
    x = np.zeros((n, 5, 6))
    lengths = rng.uniform(1, 6, n)
    bars = np.clip(lengths[:, None] - np.arange(6), 0, 1)
    x[:, 2] = bars * ~is_spot[:, None]
    x[is_spot, 1:4, 3:5] = rng.uniform(0.3, 1, is_spot.sum())[:, None, None]
    return np.clip(x + rng.normal(0, 0.02, x.shape), 0, 1), np.where(
        is_spot, "spot", "bar"
    )


def fitted(x=None, y=None, **params):
    if x is None:
        x, y = labelled()
    given = {"epsilon": None, "classes": CLASSES, "random_state": 0, **params}
    return DPArrayVAESynthesizer().set_params(**given).fit(x, y)


def test_samples_have_the_moments_of_their_class():
    x, y = labelled(4000)
    synthesizer = fitted(x, y)
    assert synthesizer.n_steps_ == 0
    drawn, labels = synthesizer.sample(4000, random_state=0)
    assert drawn.shape == x.shape
    assert drawn.dtype == x.dtype
    assert labels.dtype.kind == "U"
    assert (labels == "spot").mean() == pytest.approx((y == "spot").mean(), abs=0.03)
    assert set(labels) <= {"bar", "spot"}
    for label in ("bar", "spot"):
        real, fake = x[y == label], drawn[labels == label]
        # Cut to the range, which moves means of entries that are near its ends.
        assert np.abs(real.mean(0) - fake.mean(0)).max() < 0.08
        covariances = [np.cov(part.reshape(-1, 30).T) for part in (real, fake)]
        assert np.corrcoef(*(c.ravel() for c in covariances))[0, 1] > 0.95


def test_without_noise_the_gaussians_are_those_of_the_rows():
    x, y = labelled(3000, n_spots=0.5)
    pixels = fitted(x, y, architecture__latent_dim=30)._transformer
    found = pixels.gaussians
    assert found.components.shape == (30, 30)
    for k, label in enumerate(CLASSES[:2]):
        real = x[y == label].reshape(-1, 30)
        assert np.allclose(found.means[k], real.mean(0), atol=1e-3)
        root = found.components.T @ found.roots[k]
        # Distances above their mean are cut, so that scales shrink a little.
        similar = np.corrcoef((root @ root.T).ravel(), np.cov(real.T).ravel())[0, 1]
        assert similar > 0.98


@pytest.mark.parametrize("epsilon", [1.0, 10.0])
def test_a_classifier_learns_from_private_samples(epsilon):
    x, y = labelled(6000)
    test, truth = labelled(500, seed=1)
    synthesizer = fitted(x, y, epsilon=epsilon)
    drawn, labels = synthesizer.sample(2000, random_state=0)
    model = LogisticRegression(max_iter=500).fit(drawn.reshape(-1, 30), labels)
    assert model.score(test.reshape(-1, 30), truth) > 0.95


def test_labels_can_be_asked_for():
    synthesizer = fitted()
    wanted = np.array(["spot", "bar"] * 20)
    drawn = synthesizer.sample(y=wanted, random_state=1)
    assert drawn.shape == (40, 5, 6)
    assert drawn[::2, 1:4, 3:5].mean() > 3 * drawn[1::2, [1, 3], 3:5].mean()
    again = synthesizer.sample(y=list(wanted), random_state=1)
    assert np.array_equal(drawn, again)
    assert len(synthesizer.sample(y=["never"])) == 1
    with pytest.raises(ValueError, match="knows the classes"):
        synthesizer.sample(y=["bar", "circle"])
    with pytest.raises(ValueError, match="n_samples=3, but y has 1 labels"):
        synthesizer.sample(3, y=["bar"])
    # No label is no sample, a text would be read as letters, and a set has no order.
    nothing = [], (), np.array([]), pd.Series([], dtype=object)
    for wrong in (*nothing, wanted.reshape(2, -1), "bar", b"bar", {"bar"}, {"bar": 1}):
        with pytest.raises(ValueError, match="one label for every array, of one or"):
            synthesizer.sample(y=wrong)


def test_latents_are_there_and_back():
    x, y = labelled()
    synthesizer = fitted(x, y)
    z = synthesizer.encode(x, y)
    assert z.shape == (600, synthesizer._model.latent_dim)
    # Whitened over the classes.
    assert np.square(z[:, 0]).mean() == pytest.approx(1, abs=0.4)
    again = synthesizer.reconstruct(x, y)
    assert np.abs(again - x).mean() < 0.03
    assert np.array_equal(synthesizer.decode(z, y=y), again)
    swapped = np.where(y == "bar", "spot", "bar")
    assert synthesizer.score(x, y) > synthesizer.score(x, swapped) + 5
    for use in (synthesizer.encode, synthesizer.score, synthesizer.reconstruct):
        with pytest.raises(ValueError, match="one label for every array"):
            use(x, y[:-1])
    with pytest.raises(ValueError, match="one label for every array"):
        synthesizer.decode(z[:3], y=y[:2])
    with pytest.raises(ValueError, match="decode takes numbers of shape"):
        synthesizer.decode(z[:, 1:], y=y)
    with pytest.raises(ValueError, match="one or more points"):
        synthesizer.decode(z[:0], y=y[:0])
    with pytest.raises(ValueError, match="decode takes no NaN"):
        synthesizer.decode(np.full_like(z, np.nan), y=y)
    with pytest.raises(ValueError, match="one label for every array"):
        synthesizer.score_samples(x)


def test_an_encoder_is_the_posterior_of_the_linear_model():
    model = fitted(architecture__std=0.3, architecture__latent_dim=3)._model.double()
    weights = model.decoder.skip.weight[:, :3].numpy()
    mean = model.decoder.skip.weight[:, 3].numpy()
    x = np.random.default_rng(0).random(30)
    row = torch.from_numpy(np.r_[x, 1, 0, 0])[None]
    found, log_variance = model.encode(row)
    precision = weights.T @ weights / 0.09 + np.eye(3)
    expected = np.linalg.solve(precision, weights.T @ (x - mean) / 0.09)
    assert np.allclose(found.numpy()[0], expected, atol=1e-5)
    spreads = np.diag(np.linalg.inv(precision))
    assert np.allclose(log_variance.exp().numpy()[0], spreads, rtol=1e-4)


def test_gradients_train_from_the_moments():
    x, y = labelled(2000)
    start = fitted(x, y, architecture__std=0.03)
    params = {
        "n_steps": 300, "batch_size": 256, "architecture__hidden_units": 16,
        "architecture__std": 0.03,
    }  # fmt: skip
    trained = fitted(x, y, **params)
    assert trained.n_steps_ == 300
    test, truth = labelled(300, seed=1)
    assert trained.score(test, truth) > start.score(test, truth) + 1
    private = fitted(x, y, **{**params, "n_steps": 5, "epsilon": 2.0})
    plan = private.privacy_.plan
    assert 1.9 < private.epsilon_ <= 2
    assert 0 < plan.noise_multiplier < math.inf
    assert np.isfinite(private.sample(50)[0]).all()


def test_clipped_sums_are_those_of_one_array_at_a_time():
    synthesizer = fitted(n_steps=2, batch_size=32)
    images = synthesizer._as_fitted(*labelled(6, seed=2))
    codes = synthesizer._transformer.encode(images)
    model = FixedNoise(synthesizer._model.requires_grad_(True), 2)
    rows = torch.from_numpy(codes).double()
    assert GenericGradients not in map(type, layers_of(model, rows))
    assert are_clipped_one_by_one(model, rows)


@pytest.mark.parametrize(
    ("dtype", "high"), [(np.uint8, 255), (np.uint8, 1), (np.float32, 1.0), (bool, 1)]
)
def test_samples_come_as_they_were_fitted(dtype, high):
    x, y = labelled()
    x = (x > 0.5) if dtype is bool else np.round(high * x).astype(dtype)
    params = {"value_range": (0, 1)} if dtype is not bool and high == 1 else {}
    drawn, _ = fitted(x, y, **params).sample(100, random_state=0)
    assert drawn.dtype == dtype
    assert drawn.min() >= 0
    assert drawn.max() <= high
    if dtype is np.uint8 and high == 1:
        assert set(np.unique(drawn)) <= {0, 1}


@pytest.mark.parametrize("shape", [(5, 6), (30,), (1, 5, 6), (2, 5, 3)])
def test_shapes_are_those_that_were_fitted(shape):
    x, y = labelled()
    image_shape = (5, 6) if shape == (30,) else None
    synthesizer = fitted(x.reshape(-1, *shape), y, image_shape=image_shape)
    drawn, _ = synthesizer.sample(3)
    assert drawn.shape == (3, *shape)


@pytest.mark.parametrize(
    ("classes", "y"),
    [
        (range(3), np.array([0, 1, 2] * 20)),
        (np.arange(3), [0, 1, 2] * 20),
        ([0, 1], np.array([0.0, 1.0, 7.0] * 20)),
        ((False, True), pd.Series([True, False, True] * 20)),
        (["a", "b"], ["a", None, [2]] * 20),
        (["x"], ["x", "x", float("nan")] * 20),
    ],
)
def test_labels_may_be_anything(classes, y):
    x, _ = labelled(60)
    synthesizer = fitted(x, y, classes=classes)
    _, labels = synthesizer.sample(20, random_state=0)
    assert labels.dtype == np.array(classes).dtype
    assert set(labels) <= set(classes)


class Rude:
    """A label whose methods raise."""

    def __hash__(self):
        raise RuntimeError("hashed")


class Alike(str):
    """A text that raises when it is compared."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other):
        raise RuntimeError("compared")


def test_labels_are_not_asked_for_anything():
    y = ["a", Rude(), Alike("b"), None]
    found = encoding.codes("owner", y, ["a", "b"], 4)
    np.testing.assert_array_equal(found, [0, -1, 1, -1])


def test_labels_of_other_libraries_are_read():
    y = pa.array(["a", None, "b"])
    np.testing.assert_array_equal(encoding.codes("owner", y, ["a", "b"], 3), [0, -1, 1])


FAR = pa.array([2**31 - 1, None], pa.int32()).cast(
    pa.date32()
)  # no year that Python has


@pytest.mark.parametrize(
    "labels",
    [
        FAR,
        FAR.dictionary_encode(),
        pa.ListArray.from_arrays([0, 1, 2], FAR),
        pa.StructArray.from_arrays([FAR], ["day"]),
    ],
    ids=lambda labels: str(labels.type),
)
def test_labels_that_cannot_all_be_read_are_refused_by_their_type(labels):
    for some in (labels, labels[1:]):
        with pytest.raises(ValueError, match="labels of the type of its classes"):
            encoding.codes("owner", some, ["a", "b"], len(some))


def test_files_hold_classes_that_are_a_range(tmp_path):
    x, y = labelled(60)
    fitted(x, y == y[0], classes=range(2)).save(tmp_path / "labelled")
    assert load(tmp_path / "labelled").classes == [0, 1]


@pytest.mark.parametrize("n_steps", ["auto", 2])
def test_files_hold_all_of_it(tmp_path, n_steps):
    synthesizer = fitted(n_steps=n_steps, batch_size=32)
    synthesizer.save(tmp_path / "labelled")
    again = load(tmp_path / "labelled")
    for one, other in zip(
        *(s.sample(20, random_state=3) for s in (synthesizer, again)), strict=True
    ):
        assert np.array_equal(one, other)
    x, y = labelled(20)
    assert np.array_equal(synthesizer.encode(x, y), again.encode(x, y))
    assert str(again.privacy_) == str(synthesizer.privacy_)


def test_checkpoints_go_on(tmp_path):
    path = tmp_path / "unfinished"
    x, y = labelled()
    params = {"noise": "reproducible", "epsilon": 2.0, "n_steps": 3, "batch_size": 600}
    plain = fitted(x, y, **params)
    synthesizer = DPArrayVAESynthesizer(classes=CLASSES, random_state=0, **params)
    kept = synthesizer.fit(x, y, checkpoint=path)
    assert not path.exists()
    assert np.array_equal(
        plain.sample(9, random_state=1)[0], kept.sample(9, random_state=1)[0]
    )


def test_parameters_are_scikit_learns():
    synthesizer = DPArrayVAESynthesizer(classes=CLASSES)
    assert clone(synthesizer).classes == CLASSES
    assert synthesizer.__sklearn_tags__().target_tags.required
    assert not DPArrayVAESynthesizer().__sklearn_tags__().target_tags.required


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"classes": []}, "'classes'"),
        ({"classes": ["a", "a"]}, "'classes'"),
        ({"classes": "ab"}, "'classes'"),
        ({"classes": [[1]]}, "'classes'"),
        ({"classes": 3}, "'classes'"),
        ({"classes": ["a", None]}, "'classes'"),
        ({"classes": [1, "a"]}, "'classes'"),
        ({"classes": np.zeros((2, 2))}, "'classes'"),
        ({"architecture__networks": "conv"}, "must be 'mlp' where classes"),
        ({"architecture__latent_dim": 31}, "must be at most 30"),
        ({"prior": NormalPrior(31)}, "must be at most 30"),
    ],
)
def test_bad_parameters_are_named(params, words):
    with pytest.raises(ValueError, match=words):
        fitted(**params)


def test_what_does_not_fit_is_refused():
    x, y = labelled(50)
    synthesizer = DPArrayVAESynthesizer(classes=CLASSES)
    for wrong in (None, 1, y[:-1], y[:, None], pd.DataFrame({"y": y})):
        with pytest.raises(ValueError, match="one label for every array"):
            synthesizer.fit(x, wrong)
    with pytest.raises(ValueError, match="neither public rows"):
        synthesizer.fit(x, y, public=(x, y))
    with pytest.raises(ValueError, match="got an array of numbers"):
        synthesizer.fit(x, np.arange(50))
    with pytest.raises(ValueError, match="got an array of text"):
        DPArrayVAESynthesizer(classes=range(3)).fit(x, np.full(50, "1"))
    with pytest.raises(ValueError, match="neither public rows"):
        synthesizer.fit(list(x), y)
    with pytest.raises(ValueError, match="'n_steps'"):
        DPArrayVAESynthesizer(noise_multiplier=1.0, classes=CLASSES).fit(x, y)


def test_audits_of_what_takes_no_gradients_name_what_arrays_have():
    x, y = labelled(50)
    synthesizer = DPArrayVAESynthesizer(classes=CLASSES)
    with pytest.raises(ValueError, match=r"no gradients\. State n_steps\.$"):
        audit_mechanism(synthesizer)
    with pytest.raises(ValueError, match=r"no gradients\. State n_steps\.$"):
        audit_training(synthesizer, x, y)


def test_priors_and_widths_are_taken():
    params = {"prior": "sparse", "architecture": ArrayArchitecture(latent_dim=4)}
    assert fitted(**params)._model.latent_dim == 4
    assert fitted(prior=NormalPrior(3))._model.latent_dim == 3


@pytest.mark.parametrize("n", [1, 2, 40])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, None])
def test_few_arrays_give_finite_samples(n, epsilon):
    x, y = labelled(n)
    synthesizer = DPArrayVAESynthesizer(epsilon, classes=CLASSES, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", HopelessBudgetWarning)
        synthesizer.fit(x, y)
    drawn, _ = synthesizer.sample(20)
    assert np.isfinite(drawn).all()
    assert drawn.min() >= 0
    assert drawn.max() <= 1


def test_notes_speak_of_no_columns():
    assert "column" not in " ".join(fitted(epsilon=1.0).privacy_.notes)


def test_frequencies_beyond_the_most_are_texture():
    rng = np.random.default_rng(0)
    x = rng.random((80, 20, 20))
    synthesizer = fitted(x, ["bar"] * 80)
    gaussians = synthesizer._transformer.gaussians
    assert math.prod(x.shape[1:]) > encoding.FREQUENCIES
    assert len(gaussians.components) == encoding.MOST_LATENTS
    found = gaussians.texture[encoding.FREQUENCIES :]
    assert found.mean() == pytest.approx(np.sqrt(1 / 12), rel=0.2)
