"""Saved estimators: what comes back, what is refused, what a file must not hold."""

from __future__ import annotations

import json
import os
import pickle
import random
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from sklearn.exceptions import NotFittedError

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
    load,
)
from dpgenerative.encoding.codecs import Codec
from dpgenerative.exceptions import FileFormatError
from dpgenerative.models.networks import Decoder, PixelEncoder
from dpgenerative.models.priors import MixturePrior
from dpgenerative.persistence import manifest
from dpgenerative.persistence.manifest import RECORDS, read, write
from dpgenerative.persistence.rebuild import CONSTANT, FACTOR, Bounded
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.tables.compositions import Composition
from dpgenerative.tables.constraints import (
    Determines,
    FixedCombinations,
    Impossible,
    LessEqual,
)
from dpgenerative.tables.private import opened

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FIXTURES = Path(__file__).parent / "fixtures"
FAST = {"n_steps": 5, "batch_size": 64, "device": "cpu"}
both = pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])


def mixed(n=200, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(50, 10, n)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "score": x,
            "small": (x / 10).astype(np.float32),
            "colour": pd.Categorical(rng.choice(["red", "green", "blue"], n)),
            "grade": pd.Categorical(
                rng.choice(["low", "mid"], n), ["low", "mid", "high"], ordered=True
            ),
            "band": pd.cut(x, [-1000.0, 40.0, 60.0, 1000.0]),
            "day": pd.Categorical(
                rng.choice(pd.date_range("2024-01-01", periods=3, tz="Europe/Oslo"), n)
            ),
            "city": rng.choice(["Oslo", "Rome"], n),
            ("visits", 2): pd.array(rng.integers(0, 9, n), dtype="Int64"),
            7: rng.random(n) < 0.5,
            "maybe": pd.array(rng.random(n) < 0.5, dtype="boolean"),
            "note": pd.array(rng.choice(["a", "b"], n), dtype="string"),
            "arrow": pd.array(rng.integers(0, 4, n), dtype="int16[pyarrow]"),
        }
    )


def there_and_back(synthesizer, tmp_path):
    synthesizer.save(tmp_path / "model.dpg")
    return load(tmp_path / "model.dpg")


def assert_same(one, two):
    parts = zip(*(x if isinstance(x, tuple) else (x,) for x in (one, two)), strict=True)
    for left, right in parts:
        assert type(left) is type(right)
        if isinstance(left, pd.DataFrame):
            pd.testing.assert_frame_equal(left, right, check_exact=True)
        elif isinstance(left, pd.Series):
            pd.testing.assert_series_equal(left, right, check_exact=True)
        else:
            np.testing.assert_array_equal(left, right)


# Without privacy, but where that matters: it is faster.
FLOWS = {
    "default": {"epsilon": 1.0},
    "no privacy": {},
    "infinite epsilon": {"epsilon": float("inf")},
    "as published": {
        "architecture__anchored": False,
        "architecture__n_blocks": 2,
        "architecture__linear": "low-rank",
    },
    "blocks": {
        "architecture__n_blocks": 2,
        "architecture__linear": "lu",
        "architecture__dequantization": "variational",
    },
    "hidden": {
        "architecture__hidden_units": 8,
        "clipping": "per-layer",
        "max_grad_norm": "median",
        "epsilon": 9,
    },
    "divergence": {"divergence": "mmd", "n_partitions": 4},
    "states": {
        "schema": Schema([Column("age", "integer", lower=0, upper=120)]),
        "categorical_features": ["age"],
    },
    "reproducible": {"noise": "reproducible"},
}
VAES = {
    "default": {"epsilon": 1.0},
    "no privacy": {},
    "conditional": {"conditional": "colour"},
    "conditional tuple": {"conditional": ("visits", 2)},
    "sparse prior": {
        "prior": "sparse",
        "divergence": "kl",
        "divergence__aggregation": "term-wise",
    },
    "no prior budget": {
        "architecture__prior_budget": 0,
        "architecture__hidden_units": 4,
    },
    "mixture": {"prior": MixturePrior(torch.eye(3), 0.1, torch.ones(3))},
}
CASES = [(DPHFlowSynthesizer, options) for options in FLOWS.values()]
CASES += [(DPVAESynthesizer, options) for options in VAES.values()]
NAMES = [f"flow, {name}" for name in FLOWS] + [f"vae, {name}" for name in VAES]


@pytest.mark.thin(4)
@pytest.mark.parametrize(("estimator", "options"), CASES, ids=NAMES)
def test_a_file_gives_the_estimator_back(estimator, options, tmp_path):
    frame = mixed()
    saved = estimator().set_params(
        **FAST, random_state=3, **{"epsilon": None, **options}
    )
    saved.fit(frame)
    loaded = there_and_back(saved, tmp_path)
    assert type(loaded) is estimator
    assert_same(loaded.sample(300, random_state=1), saved.sample(300, random_state=1))
    assert_same(loaded.score_samples(frame[:50]), saved.score_samples(frame[:50]))
    assert loaded.privacy_ == saved.privacy_
    assert str(loaded.privacy_) == str(saved.privacy_)
    assert loaded.schema_ == saved.schema_
    assert loaded.n_features_in_ == saved.n_features_in_
    assert not hasattr(loaded, "feature_names_in_")
    unlike = {"prior"} if isinstance(options.get("prior"), MixturePrior) else set()
    unlike |= {"random_state"} if saved.noise == "reproducible" else set()
    for name, value in saved.get_params().items():
        assert name in unlike or loaded.get_params()[name] == value


def test_constraints_times_and_identifiers_come_back(tmp_path):
    days = pd.date_range("2020-01-01", periods=100)
    level = ["x", "y"] * 50
    frame = pd.DataFrame(
        {
            "id": np.arange(100),
            "in": days,
            "out": days + pd.Timedelta("9D"),
            "c": level,
            "c2": pd.Categorical(["u", "v"] * 50),
            **dict.fromkeys(("p", "q"), np.arange(100) / 200),
            "r": 1 - np.arange(100) / 100,
        }
    )
    schema = Schema(
        [
            Column("id", "integer", role="id"),
            Column("c", "categorical", levels=list("xyz")),
        ],
        constraints=[
            LessEqual("in", "out"),
            FixedCombinations(("c",), (("x",), ("y",))),
            Impossible({"c": "z"}),
            Determines(["c"], "c2", {"x": "u", "y": "v"}),
            Composition(["p", "q", "r"]),
        ],
    )
    saved = (
        DPHFlowSynthesizer(None)
        .set_params(**FAST, schema=schema, random_state=0)
        .fit(frame)
    )
    loaded = there_and_back(saved, tmp_path)
    assert loaded.schema_ == saved.schema_
    assert_same(loaded.sample(100, random_state=1), saved.sample(100, random_state=1))


@pytest.mark.parametrize(
    "options",
    [
        {"epsilon": 1.0, "architecture__latent_distribution": "mixture"},
        {"architecture__networks": "conv", "architecture__likelihood": "gaussian"},
    ],
)
def test_images_come_back(options, tmp_path):
    images = np.random.default_rng(0).integers(256, size=(40, 8, 8)).astype(np.uint8)
    saved = (
        DPArrayVAESynthesizer()
        .set_params(**{"epsilon": None, "n_steps": 2, **options}, image_shape=(8, 8))
        .fit(images)
    )
    loaded = there_and_back(saved, tmp_path)
    assert_same(loaded.sample(9, random_state=1), saved.sample(9, random_state=1))
    np.testing.assert_allclose(
        loaded.score_samples(images), saved.score_samples(images), rtol=1e-6
    )


@pytest.mark.thin(3)
@both
@pytest.mark.parametrize("kind", ["array", "target"])
def test_containers_come_back(estimator, kind, tmp_path):
    frame = mixed()
    X = (
        frame[["age", "score"]].to_numpy()
        if kind == "array"
        else frame[["age", "city"]]
    )
    y = None if kind == "array" else frame["grade"]
    saved = estimator(None, **FAST, random_state=0).fit(X, y)
    loaded = there_and_back(saved, tmp_path)
    # Fresh draws go on where the saved estimator stood.
    assert_same(loaded.sample(20), saved.sample(20))
    assert_same(loaded.score_samples(X, y), saved.score_samples(X, y))
    if kind == "target":
        assert loaded.feature_names_in_.tolist() == ["age", "city"]


def test_latents_come_back(tmp_path):
    frame = mixed()
    saved = DPVAESynthesizer(None).set_params(**FAST, conditional="grade").fit(frame)
    loaded = there_and_back(saved, tmp_path)
    assert_same(loaded.encode(frame), saved.encode(frame))
    points = np.zeros((5, saved.encode(frame).shape[1]))
    assert_same(loaded.decode(points, 0), saved.decode(points, 0))
    given = {"grade": "high"}
    assert_same(loaded.sample(9, 0, given=given), saved.sample(9, 0, given=given))


@both
def test_a_loaded_estimator_is_an_estimator(estimator, tmp_path):
    frame = mixed()[["age", "grade"]]
    loaded = there_and_back(estimator(None, **FAST).fit(frame), tmp_path)
    again = there_and_back(loaded, tmp_path)
    unpickled = pickle.loads(pickle.dumps(loaded))
    expected = loaded.sample(50, random_state=0)
    assert_same(again.sample(50, random_state=0), expected)
    assert_same(unpickled.sample(50, random_state=0), expected)
    assert loaded.fit(frame).n_steps_ == 5


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(),
    st.datetimes().map(pd.Timestamp),
    st.integers(-(2**62), 2**62).map(pd.Timedelta),
    st.just(pd.Timestamp("2024-03-31 02:30", tz="UTC").as_unit("s")),
    st.just(pd.Interval(0.5, 2, closed="left")),
    st.dates(), st.times().map(lambda t: t.replace(fold=0)),
    st.decimals(allow_nan=False),
    st.sampled_from(["D", "W-SUN", "M", "Q-NOV"]).map(lambda f: pd.Period("2026", f)),
)  # fmt: skip
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(st.one_of(st.text(), st.tuples(st.integers())), inner),
    ),
)


@settings(deadline=None, max_examples=40)
@given(value=values)
def test_values_come_back(value, tmp_path_factory):
    path = tmp_path_factory.mktemp("values") / "file"
    write(path, "DPHFlowSynthesizer", {"part": {"value": value}})
    kind, state = read(path)
    assert kind == "DPHFlowSynthesizer"
    assert repr(state) == repr({"part": {"value": value}})


@pytest.mark.parametrize(
    "dtype",
    [
        *map(np.dtype, ["?", "i1", "u8", ">i4", "f4", "O", "U3", "M8[ns]", "m8[s]"]),
        pd.Int64Dtype(),
        pd.Float32Dtype(),
        pd.BooleanDtype(),
        pd.StringDtype("python"),
        pd.StringDtype("pyarrow"),
        pd.ArrowDtype(pa.string()),
        pd.ArrowDtype(pa.decimal32(5, 2)),
        pd.ArrowDtype(pa.decimal64(16, 4)),
        pd.ArrowDtype(pa.decimal128(5, 2)),
        pd.ArrowDtype(pa.decimal256(50, -2)),
        pd.DatetimeTZDtype("us", "Asia/Tokyo"),
        pd.PeriodDtype("M"),
        pd.CategoricalDtype(["b", "a"], ordered=True),
        pd.CategoricalDtype([3, 1]),
        pd.CategoricalDtype([0.5, float("inf")]),
        pd.CategoricalDtype([True, False]),
        pd.CategoricalDtype([("a", 1), ("b", 2)]),
        pd.CategoricalDtype([1, "a", 0.5]),
        pd.CategoricalDtype(pd.timedelta_range("1h", periods=2)),
        pd.CategoricalDtype(pd.period_range("2026-01", periods=2, freq="M")),
        pd.Series([], dtype="double[pyarrow]").dtype,
    ],
    ids=str,
)
def test_dtypes_come_back(dtype, tmp_path):
    write(tmp_path / "file", "DPHFlowSynthesizer", {"part": {"value": dtype}})
    found = read(tmp_path / "file")[1]["part"]["value"]
    assert found == dtype
    if isinstance(dtype, pd.CategoricalDtype):
        assert found.categories.dtype == dtype.categories.dtype
        assert list(map(type, found.categories)) == list(map(type, dtype.categories))
        assert found.ordered == dtype.ordered


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3).T,
        np.array([True, False]),
        np.zeros((0, 3), np.float32),
        np.array(["a", "bc"]),
        np.array(["a", 1, None], dtype=object),
        np.array(0.5),
    ],
)
def test_arrays_come_back(array, tmp_path):
    write(tmp_path / "file", "DPHFlowSynthesizer", {"part": {"value": array}})
    found = read(tmp_path / "file")[1]["part"]["value"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("kind", "mode"), [("DPVAESynthesizer", 0o640), (manifest.CHECKPOINT, 0o600)]
)
def test_who_may_read_a_file(kind, mode, tmp_path):
    """The system says so, not what writes tensors: that made files of its own."""
    mask = os.umask(0o027)
    try:
        write(tmp_path / "file", kind, {"part": {"value": np.zeros(3)}})
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def subclasses(cls):
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def test_files_can_hold_every_part_of_a_fitted_estimator():
    """A codec that is added must be named, or it could not be saved."""
    codecs = subclasses(Codec) - {Codec}
    assert codecs <= set(RECORDS.values())


# What a file must not hold ------------------------------------------------------------


class Replay(Mechanisms):
    """Releases noise alone: whatever the rows are, the same comes out."""

    def __init__(self, streams):
        super().__init__(streams.counts, streams.gradients)

    def count(self, rows, epsilon):
        return super().count(range(200), epsilon)

    def gaussian(self, values, std, **stated):
        zeros = np.zeros_like(opened(values), float)
        return super().gaussian(zeros, std, **stated)

    def choose(self, scores, multiplier, **stated):
        return super().choose(np.zeros_like(opened(scores)), multiplier, **stated)

    def thresholded(self, counts, std, threshold, *, release):
        self.ledger.keys(release, std, threshold)
        return (
            {("str", "Oslo"): 90.0}
            if any(k[0] == "str" for k in opened(counts))
            else {}
        )

    def gradient(self, sums, stds, **stated):
        return super().gradient([torch.zeros_like(s) for s in sums], stds, **stated)


def content(path):
    """Return all that a file holds, in order."""
    strings = manifest._contents(path)[0]
    return strings["manifest"], repr(
        {k: v.tolist() for k, v in load_file(path).items()}
    )


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (
            DPHFlowSynthesizer,
            {
                "architecture__n_blocks": 2,
                "architecture__dequantization": "variational",
            },
        ),
        (DPVAESynthesizer, {"divergence": "mmd"}),
        (DPVAESynthesizer, {"public": mixed(50, seed=1).drop(columns=["maybe"])}),
    ],
)
def test_a_file_depends_on_the_rows_through_releases_alone(
    estimator, options, tmp_path
):
    class Frozen(estimator):
        @property
        def _owner(self):
            return estimator.__name__

        def _mechanisms(self, streams):
            return Replay(streams)

    frame = mixed().drop(columns=["maybe"])
    other = pd.concat([frame[:-2], frame[:1]], ignore_index=True)
    other.loc[0, ["age", "city", "score"]] = [10**6, "Atlantis", -1e9]
    params = {**FAST, **options, "random_state": 1, "noise": "reproducible"}
    public = params.pop("public", None)
    found = []
    for name, table in (("one", frame), ("two", other)):
        Frozen().set_params(**params).fit(table, public=public).save(tmp_path / name)
        found.append(content(tmp_path / name))
    assert found[0] == found[1]
    assert "Atlantis" not in found[0][0]


@pytest.mark.parametrize("reproducible", [True, False])
def test_the_seed_of_the_noise_stays_out(reproducible, tmp_path):
    seed = 1_234_567_891
    synthesizer = (
        DPHFlowSynthesizer(None)
        .set_params(
            **FAST, random_state=seed, noise="reproducible" if reproducible else "fresh"
        )
        .fit(mixed())
    )
    loaded = there_and_back(synthesizer, tmp_path)
    inside = str(seed).encode() in (tmp_path / "model.dpg").read_bytes()
    assert inside == (not reproducible)
    assert loaded.random_state == (None if reproducible else seed)
    assert synthesizer.random_state == seed


# What cannot be saved -----------------------------------------------------------------


@both
def test_only_a_fitted_estimator_is_saved(estimator, tmp_path):
    with pytest.raises(NotFittedError):
        estimator().save(tmp_path / "model.dpg")
    assert not list(tmp_path.iterdir())


class Laplace:
    def log_prob(self, z):
        return -z.abs().sum(-1)

    def sample(self, n, generator=None):
        return torch.rand(n, 2, generator=generator)


@pytest.mark.parametrize(
    ("estimator", "options", "named"),
    [
        (DPHFlowSynthesizer, {"divergence": lambda z: z.square().mean()}, "divergence"),
        (
            DPVAESynthesizer,
            {"prior": Laplace(), "architecture__prior_budget": 0},
            "prior",
        ),
        (
            DPHFlowSynthesizer,
            {"random_state": np.random.RandomState(0)},
            "random_state",
        ),
        (
            DPHFlowSynthesizer,
            {"categorical_features": pd.Index(["age"])},
            "categorical",
        ),
    ],
)
def test_a_parameter_that_no_file_can_hold_is_named(
    estimator, options, named, tmp_path
):
    synthesizer = estimator(None).set_params(**FAST, **options).fit(mixed())
    path = tmp_path / "model.dpg"
    path.write_text("what was here before")
    with pytest.raises(TypeError, match=f"save cannot store the parameter '{named}"):
        synthesizer.save(path)
    assert path.read_text() == "what was here before"
    assert list(tmp_path.iterdir()) == [path]


def test_what_sampling_does_not_need_can_be_replaced(tmp_path):
    synthesizer = DPHFlowSynthesizer(None).set_params(
        **FAST, divergence=lambda z: z.square().mean()
    )
    synthesizer.fit(mixed()).set_params(divergence=None)
    loaded = there_and_back(synthesizer, tmp_path)
    assert_same(loaded.sample(9, random_state=0), synthesizer.sample(9, random_state=0))


def test_what_is_set_after_a_fit_does_not_change_the_model(tmp_path):
    synthesizer = DPVAESynthesizer(None, **FAST).fit(mixed())
    expected = synthesizer.sample(9, random_state=0)
    synthesizer.set_params(architecture__latent_dim=3, conditional="grade", epsilon=9.0)
    loaded = there_and_back(synthesizer, tmp_path)
    assert_same(loaded.sample(9, random_state=0), expected)


def test_networks_of_ones_own_are_not_saved(tmp_path):
    def networks(shape, latent_dim, generator):
        encoder = PixelEncoder(16, 16, 2, latent_dim, generator)
        return encoder, Decoder(latent_dim, 2, shape, generator)

    images = np.random.default_rng(0).random((40, 4, 4))
    synthesizer = DPArrayVAESynthesizer(None, n_steps=2)
    synthesizer.set_params(architecture__networks=networks).fit(images)
    with pytest.raises(TypeError, match=r"the parameter 'architecture\.networks'"):
        synthesizer.save(tmp_path / "model.dpg")


def test_subclasses_are_not_saved(tmp_path):
    class Mine(DPHFlowSynthesizer):
        pass

    with pytest.raises(TypeError, match="got an estimator of type 'Mine'"):
        Mine(None, **FAST).fit(mixed()).save(tmp_path / "model.dpg")


def test_where_a_file_cannot_be(tmp_path):
    synthesizer = DPHFlowSynthesizer(None).set_params(**FAST).fit(mixed()[["age"]])
    with pytest.raises(FileNotFoundError, match="does not exist"):
        synthesizer.save(tmp_path / "nowhere" / "model.dpg")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        synthesizer.save(tmp_path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing.dpg")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        load(tmp_path)
    for name in (None, 3, b"model.dpg"):
        for use in (synthesizer.save, load):
            with pytest.raises(TypeError, match=r"str.* os\.PathLike object"):
                use(name)


# Files that are not what they should be -----------------------------------------------


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.dpg"
    frame = mixed()[["age", "city", "grade", "score"]]
    DPHFlowSynthesizer(None).set_params(**FAST, architecture__hidden_units=2).fit(
        frame
    ).save(path)
    return path


@pytest.mark.parametrize(
    "foreign",
    [
        b"",
        b"abc",
        b"age,city\n30,Oslo\n",
        b"PAR1" + bytes(100),
        pickle.dumps({"a": np.arange(100)}),
        b"\xff" * 1000,
        (10**15).to_bytes(8, "little") + b'{"a": 1}',
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b'{"a": 1} ',
    ],
)
def test_files_of_something_else(foreign, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(foreign)
    with pytest.raises(FileFormatError, match="is not a model file of dpgenerative"):
        load(path)


def test_tensors_of_something_else(tmp_path):
    save_file({"weight": torch.ones(2)}, tmp_path / "file", {"format": "pt"})
    with pytest.raises(FileFormatError, match="is not a model file of dpgenerative"):
        load(tmp_path / "file")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short(share, model_file, tmp_path):
    whole = model_file.read_bytes()
    (tmp_path / "file").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(FileFormatError, match="but incomplete: it was cut short"):
        load(tmp_path / "file")


def test_a_changed_byte_is_noticed(model_file, tmp_path):
    whole = model_file.read_bytes()
    path, places = tmp_path / "file", random.Random(0)
    for place in [*range(64), *places.sample(range(64, len(whole)), 150)]:
        changed = bytearray(whole)
        changed[place] ^= 1 << places.randrange(8)
        path.write_bytes(changed)
        with pytest.raises(FileFormatError):
            load(path)


def changed_file(model_file, path, **strings):
    """Write a copy whose checksum is right and whose strings are those given."""
    old, tensors = manifest._contents(model_file)
    new = {**old, **strings}
    new["sha256"] = manifest._checksum(new["manifest"], tensors)
    save_file(tensors, path, new)


def test_a_file_of_a_newer_format(model_file, tmp_path):
    changed_file(model_file, tmp_path / "file", dpgenerative="5", manifest="?")
    with pytest.raises(FileFormatError, match=r"has format 5, and .* up to 4. Install"):
        load(tmp_path / "file")


def test_a_file_of_format_1(model_file, tmp_path):
    changed_file(model_file, tmp_path / "file", dpgenerative="1", manifest="?")
    told = r"has format 1: .* development version before the first release\. Fit again"
    with pytest.raises(FileFormatError, match=told):
        load(tmp_path / "file")


@pytest.mark.parametrize("version", ["", "one", "-1", "1.5", "²", "9" * 5000])
def test_a_format_that_is_no_number(version, model_file, tmp_path):
    changed_file(model_file, tmp_path / "file", dpgenerative=version)
    with pytest.raises(FileFormatError, match="its version cannot be read"):
        load(tmp_path / "file")


def test_an_estimator_that_is_not_known(model_file, tmp_path):
    tree = json.loads(manifest._contents(model_file)[0]["manifest"])
    tree["estimator"] = "system"
    changed_file(model_file, tmp_path / "file", manifest=json.dumps(tree))
    with pytest.raises(FileFormatError, match="holds a 'system', which this version"):
        load(tmp_path / "file")


def edited(tree, path, value):
    *parents, last = path
    for name in parents:
        tree = tree[name]
    tree[last] = value


CODEC = ("fitted", "_transformer", "TableTransformer", "codecs", "tuple", 0)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("settings",), {"os.system": "true"}),
        (("settings",), {}),
        (("settings", "forward"), 5),
        (("settings", "n_blocks"), 10**15),
        (("settings", "n_blocks"), 10**5),
        (("settings", "hidden_units"), 10**15),
        (("settings", "hidden_units"), 10**5),
        (("settings", "hidden_units"), 3),
        (("settings", "n_basis"), 10**15),
        (("settings", "n_basis"), [10**15] * 4),
        (("settings", "anchored"), False),
        (("settings", "linear"), "lu"),
        (("learned", "forward"), 5),
        (("tensors",), {}),
        (("tensors", "atoms"), 3),
        (("tensors", "atoms"), {"tensor": "nothing"}),
        (("tensors", "first.skip.weight"), {"tensor": "tensors.atoms"}),
        (("tensors", "more"), {"tensor": "tensors.atoms"}),
        (("fitted", "sample"), 5),
        (("fitted", "__class__"), "str"),
        (("fitted", "_layout"), None),
        (("fitted", "_transformer"), {"tuple": []}),
        (("parameters", "colour"), "red"),
        (("parameters", "epsilon"), {"number": "huge"}),
        ((*CODEC, "IntervalCodec", "dtype"), {"dtype": ["numpy", "V100"]}),
        ((*CODEC, "IntervalCodec", "dtype"), {"dtype": ["pandas", "__import__('os')"]}),
        ((*CODEC, "IntervalCodec", "dtype"), {"dtype": "category"}),
        (("fitted", "sample_seed"), {"objects": [["a"], "numpy", "<U200000000"]}),
        ((*CODEC, "IntervalCodec", "column"), {"Column": {"name": "a", "kind": "b"}}),
        (CODEC, {"IntervalCodec": {}}),
    ],
)  # fmt: skip
def test_a_manifest_made_to_harm(where, value, model_file, tmp_path):
    tree = json.loads(manifest._contents(model_file)[0]["manifest"])
    if where[0] == CODEC[0] and where[: len(CODEC)] == CODEC:
        codecs = tree["fitted"]["_transformer"]["TableTransformer"]["codecs"]["tuple"]
        assert "IntervalCodec" in codecs[0]
    edited(tree, where, value)
    changed_file(model_file, tmp_path / "file", manifest=json.dumps(tree))
    with pytest.raises(FileFormatError, match=r"is a model file .* but its"):
        load(tmp_path / "file")


@pytest.mark.parametrize("manifest", ["", "[]", "5", "{", "[" * 10**5, "9" * 10**5])
def test_a_manifest_that_is_none(manifest, model_file, tmp_path):
    changed_file(model_file, tmp_path / "file", manifest=manifest)
    with pytest.raises(FileFormatError, match="its manifest cannot be read"):
        load(tmp_path / "file")


def test_indices_beyond_the_file_are_refused(model_file, tmp_path):
    strings, tensors = manifest._contents(model_file)
    for tensor in tensors.values():
        if tensor.dtype == torch.int64 and tensor.numel():
            tensor[0] = 2**40
    strings["sha256"] = manifest._checksum(strings["manifest"], tensors)
    save_file(tensors, tmp_path / "file", strings)
    with pytest.raises(FileFormatError, match="its manifest cannot be read"):
        load(tmp_path / "file")


def test_a_model_larger_than_its_file_is_not_built(model_file, tmp_path, monkeypatch):
    tree = json.loads(manifest._contents(model_file)[0]["manifest"])
    tree["settings"]["hidden_units"] = 10**6
    changed_file(model_file, tmp_path / "file", manifest=json.dumps(tree))
    made, dispatch = [], Bounded.__torch_dispatch__

    def watched(mode, func, types, args=(), kwargs=None):
        result = dispatch(mode, func, types, args, kwargs)
        made.extend(x.numel() for x in [result] if isinstance(x, torch.Tensor))
        return result

    monkeypatch.setattr(Bounded, "__torch_dispatch__", watched)
    with pytest.raises(FileFormatError, match="do not fit together"):
        load(tmp_path / "file")
    tensors = manifest._contents(model_file)[1].values()
    n_held = sum(tensor.numel() for tensor in tensors)
    assert 0 < max(made) < sum(made) <= FACTOR * n_held + CONSTANT


# Files written before -----------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("name", "released"),
    [("flow", ["marginals"]), ("vae", ["marginals", "latents"])],
)
def test_files_written_before_are_read(name, released, version):
    """The files must not be made anew."""
    synthesizer = load(FIXTURES / f"{name}-{version}.dpg")
    rows = synthesizer.sample(20, random_state=0)
    recorded = pd.read_csv(FIXTURES / f"{name}-2.csv", dtype=str, keep_default_na=False)
    assert rows.dtypes.astype(str).to_dict() == {
        "age": "int64",
        "income": "float64",
        "city": "object",
        "grade": "category",
        "visits": "Int64",
    }
    assert rows.columns.tolist() == recorded.columns.tolist()
    for column in rows:
        if column == "income":
            expected = pd.to_numeric(recorded[column]).to_numpy()
            np.testing.assert_allclose(rows[column], expected, rtol=1e-6)
        else:
            found = rows[column].astype(object).where(rows[column].notna(), "")
            assert found.astype(str).tolist() == recorded[column].tolist()
    assert [each.name for each in synthesizer.privacy_.plan.releases] == released
    assert synthesizer.privacy_.epsilon_spent == pytest.approx(synthesizer.epsilon_)
    assert synthesizer.schema_["grade"].levels == ("low", "mid", "high")
    assert np.isfinite(synthesizer.score(rows))


@pytest.mark.parametrize("version", [2, 3])
def test_arrays_written_before_are_read(version):
    """As above."""
    rows = load(FIXTURES / f"array-{version}.dpg").sample(20, random_state=0)
    assert rows.dtype == np.uint8
    recorded = pd.read_csv(FIXTURES / "array-2.csv").to_numpy()
    np.testing.assert_allclose(rows.reshape(20, -1).astype(int), recorded, atol=1)
