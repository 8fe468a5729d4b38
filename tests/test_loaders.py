"""The tables of the benchmarks, which are no part of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dpgenerative.tables.schema import Schema

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import loaders

FETCHERS = {
    "fetch_adult": ((32_561, 15), (16_281, 15)),
    "fetch_census": ((79_810, 41), (19_952, 41)),
    "fetch_covertype": ((74_370, 13), (18_592, 13)),
    "fetch_intrusion": ((395_217, 42), (98_804, 42)),
}


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv(loaders.FOLDER_VARIABLE, raising=False)


@pytest.fixture
def fetch():
    """Load a table from the folder of the environment, once per run."""
    folder = os.environ.get(loaders.FOLDER_VARIABLE)
    if not folder:
        pytest.skip(f"{loaders.FOLDER_VARIABLE} is not set")
    return lambda name: _loaded(name, folder)


_cache: dict[tuple[str, str], object] = {}


def _loaded(name, folder):
    if (name, folder) not in _cache:
        _cache[name, folder] = getattr(loaders, name)()
    return _cache[name, folder]


@pytest.mark.parametrize("name", FETCHERS)
def test_fetched_tables_have_the_documented_shape(fetch, name):
    table = fetch(name)
    assert (table.train.shape, table.test.shape) == FETCHERS[name]
    assert table.train.dtypes.equals(table.test.dtypes)
    assert isinstance(table.train[table.target].dtype, pd.CategoricalDtype)
    assert table.target in table.DESCR


@pytest.mark.parametrize("name", FETCHERS)
def test_fetched_schema_describes_every_column_and_changes_no_cell(fetch, name):
    table = fetch(name)
    assert table.schema.names == tuple(table.train.columns)
    assert table.schema.check(table.train).empty
    assert table.schema.check(table.test).empty
    assert Schema.from_dict(table.schema.to_dict()) == table.schema


def test_bounds_are_definitions_and_not_read_off_the_rows(fetch):
    adult = fetch("fetch_adult")
    assert adult.schema["capital_gain"].lower is None
    assert adult.schema["age"].upper is None
    assert adult.schema["hours_per_week"].upper == 168
    assert adult.train["hours_per_week"].max() < 168


def test_census_drops_the_survey_weight(fetch):
    assert "instance_weight" not in fetch("fetch_census").train


def test_intrusion_has_the_five_classes_in_order(fetch):
    table = fetch("fetch_intrusion")
    labels = pd.concat([table.train["label"], table.test["label"]])
    assert list(labels.cat.categories) == ["normal", "dos", "probe", "r2l", "u2r"]
    counts = labels.value_counts()
    assert counts.to_dict() == {
        "dos": 391_458,
        "normal": 97_278,
        "probe": 4_107,
        "r2l": 1_126,
        "u2r": 52,
    }


@pytest.mark.parametrize("name", FETCHERS)
def test_a_folder_without_the_files_is_an_error(monkeypatch, tmp_path, name):
    monkeypatch.setenv(loaders.FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"_train\.parquet.*DPGENERATIVE_DATA"):
        getattr(loaders, name)()


def test_a_folder_is_read(monkeypatch, tmp_path):
    frame = pd.DataFrame({"age": [1, 2], "income": pd.Categorical(["a", "b"])})
    for part in ("train", "test"):
        frame.to_parquet(tmp_path / f"adult_{part}.parquet")
    monkeypatch.setenv(loaders.FOLDER_VARIABLE, "nowhere")
    pd.testing.assert_frame_equal(loaders.fetch_adult(data_home=tmp_path).test, frame)
    monkeypatch.setenv(loaders.FOLDER_VARIABLE, str(tmp_path))
    pd.testing.assert_frame_equal(loaders.fetch_adult().test, frame)


@pytest.mark.usefixtures("no_folder")
def test_census_says_what_to_set():
    with pytest.raises(FileNotFoundError, match="Set the environment variable DPGEN"):
        loaders.fetch_census()


@pytest.mark.usefixtures("no_folder")
@pytest.mark.parametrize(
    ("name", "fetcher"),
    [
        ("fetch_adult", "fetch_openml"),
        ("fetch_covertype", "fetch_covtype"),
        ("fetch_intrusion", "fetch_kddcup99"),
    ],
)
def test_a_failed_download_says_what_to_set(monkeypatch, name, fetcher):
    def fail(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(loaders, fetcher, fail)
    with pytest.raises(OSError, match=r"could not be downloaded.*DPGENERATIVE_DATA"):
        getattr(loaders, name)()


@pytest.mark.usefixtures("no_folder")
def test_adult_from_scikit_learn(monkeypatch):
    frame = pd.DataFrame(
        {
            "age": np.arange(6.0),
            "workclass": pd.Categorical(list("ba") * 3, categories=["b", "a"]),
            "education-num": [1, 2, 3, 4, 5, 6],
            "class": pd.Categorical(["<=50K", ">50K"] * 3),
        }
    )
    replace_fetcher(monkeypatch, "fetch_openml", frame, version=2)
    monkeypatch.setattr(loaders, "_ADULT_TEST_ROWS", 2)
    adult = loaders.fetch_adult()
    assert list(adult.train) == ["age", "workclass", "education_num", "income"]
    assert adult.test["age"].tolist() == [0, 1]
    assert adult.train["age"].dtype == np.int64
    assert list(adult.train["workclass"].cat.categories) == ["a", "b"]
    assert adult.schema.check(adult.train).empty


@pytest.mark.usefixtures("no_folder")
def test_covertype_from_scikit_learn_folds_the_indicators(monkeypatch):
    n = 80
    area, soil = np.arange(n) % 4, np.arange(n) % 40
    columns = {"Elevation": np.arange(n) + 2000.0, "Aspect": np.full(n, 90.0)}
    columns |= {f"Wilderness_Area_{i}": (area == i) * 1.0 for i in range(4)}
    columns |= {f"Soil_Type_{i}": (soil == i) * 1.0 for i in range(40)}
    frame = pd.DataFrame(columns | {"Cover_Type": np.arange(n, dtype=np.int32) % 7 + 1})
    replace_fetcher(monkeypatch, "fetch_covtype", frame)
    table = loaders.fetch_covertype()
    assert (len(table.train), len(table.test)) == (64, 16)
    both = pd.concat([table.train, table.test]).sort_values("elevation")
    expected = np.arange(n)
    assert both["elevation"].tolist() == (expected + 2000).tolist()
    assert both["wilderness_area"].astype(int).tolist() == (area + 1).tolist()
    assert both["soil_type"].astype(int).tolist() == (soil + 1).tolist()
    assert both["cover_type"].astype(int).tolist() == (expected % 7 + 1).tolist()


@pytest.mark.usefixtures("no_folder")
def test_intrusion_from_scikit_learn_decodes_bytes(monkeypatch):
    frame = pd.DataFrame(
        {
            "duration": [0, 1, 2, 3, 4],
            "protocol_type": [b"tcp", b"udp", b"tcp", b"icmp", b"tcp"],
            "logged_in": [0, 1, 0, 1, 0],
            "serror_rate": [0.0, 0.25, 0.5, 0.75, 1.0],
            "labels": [b"normal.", b"smurf.", b"nmap.", b"spy.", b"perl."],
        },
        dtype=object,
    )
    replace_fetcher(monkeypatch, "fetch_kddcup99", frame, percent10=True)
    table = loaders.fetch_intrusion()
    both = pd.concat([table.train, table.test]).sort_values("duration")
    assert both["label"].tolist() == ["normal", "dos", "probe", "r2l", "u2r"]
    assert both["protocol_type"].tolist() == ["tcp", "udp", "tcp", "icmp", "tcp"]
    assert both["logged_in"].tolist() == ["0", "1", "0", "1", "0"]
    assert [both[name].dtype.kind for name in ("duration", "serror_rate")] == ["i", "f"]
    assert table.schema["serror_rate"].upper == 1.0


def replace_fetcher(monkeypatch, name, frame, **expected):
    def fetcher(*args, as_frame, **options):
        assert as_frame
        assert options == expected
        return SimpleNamespace(frame=frame)

    monkeypatch.setattr(loaders, name, fetcher)


def test_windows_of_motion_do_not_overlap_or_cross_recordings(tmp_path):
    for part, trial in (("train", 1), ("test", 11)):
        parts = [
            pd.DataFrame(
                {
                    "activity": activity,
                    "trial": trial,
                    "subject": person,
                    "userAcceleration_x": np.arange(n) + 1000.0 * person,
                    "gravity_y": 0.5,
                }
            )
            for activity, person, n in [("wlk", 1, 11), ("sit", 2, 8), ("wlk", 2, 3)]
        ]
        pd.concat(parts).to_parquet(tmp_path / f"motionsense_{part}.parquet")
    channels = ["userAcceleration_x", "gravity_y"]
    table = loaders.motionsense_windows(4, channels, data_home=tmp_path)
    for part in ("train", "test"):
        windows, labels = table[f"X_{part}"], table[f"y_{part}"]
        assert windows.shape == (4, 4, 2)
        assert labels.tolist() == ["wlk", "wlk", "sit", "sit"]
        assert table[f"subject_{part}"].tolist() == [1, 1, 2, 2]
        starts = windows[:, 0, 0]
        assert starts.tolist() == [1000, 1004, 2000, 2004]
        assert (np.diff(windows[..., 0], axis=1) == 1).all()
    assert table.target_names == ["sit", "wlk"]


@pytest.mark.usefixtures("no_folder")
def test_motion_needs_a_folder():
    with pytest.raises(FileNotFoundError, match="motionsense_train"):
        loaders.motionsense_windows()


def test_faces_come_from_a_folder_or_scikit_learn(monkeypatch, tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (4, 3, 2)).astype(np.uint8)
    labels = np.arange(4, dtype=np.uint8)
    np.savez(tmp_path / "olivetti_faces.npz", images=images, labels=labels)
    found, people = loaders.olivetti_faces(data_home=tmp_path)
    np.testing.assert_array_equal(found, images)
    assert people.tolist() == [0, 1, 2, 3]
    monkeypatch.delenv(loaders.FOLDER_VARIABLE, raising=False)
    for scale in (1, 255):
        bunch = SimpleNamespace(images=images / np.float32(scale), target=labels)
        monkeypatch.setattr(
            loaders, "fetch_lfw_people", lambda min_faces_per_person, b=bunch: b
        )
        np.testing.assert_array_equal(loaders.lfw_faces()[0], images)
    monkeypatch.setattr(
        loaders,
        "fetch_olivetti_faces",
        lambda: SimpleNamespace(images=images / np.float32(255), target=labels),
    )
    np.testing.assert_array_equal(loaders.olivetti_faces()[0], images)
    with pytest.raises(FileNotFoundError, match="Point data_home"):
        loaders.fashion_images()


def test_images_of_clothing_are_the_official_ones():
    if not os.environ.get(loaders.FOLDER_VARIABLE):
        pytest.skip(f"{loaders.FOLDER_VARIABLE} is not set")
    X, y = loaders.fashion_images("t10k")
    assert X.shape == (10_000, 28, 28)
    assert (np.bincount(y) == 1000).all()
    assert y[:5].tolist() == [9, 2, 1, 1, 6]


def test_random_split_is_the_documented_one():
    frame = pd.DataFrame({"row": range(11)})
    train, test = loaders._split(frame)
    order = np.random.default_rng(0).permutation(11)
    assert train["row"].tolist() == sorted(order[:9])
    assert test["row"].tolist() == sorted(order[9:])


def test_pinwheel_arms_are_equal_turns_of_each_other():
    points, arms = loaders.make_pinwheel(20_000, 5, random_state=0)
    assert np.bincount(arms).tolist() == [4_000] * 5
    turn = np.exp(-2j * np.pi * arms / 5)
    unturned = (points[:, 0] + 1j * points[:, 1]) * turn
    centres = [unturned[arms == arm].mean() for arm in range(5)]
    np.testing.assert_allclose(centres, centres[0], atol=0.03)
    assert abs(np.abs(points[:, 0] + 1j * points[:, 1]).mean() - 1.0) < 0.02


def test_pinwheel_repeats_with_its_seed():
    first, again = (loaders.make_pinwheel(10, random_state=3)[0] for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, loaders.make_pinwheel(10, random_state=4)[0])


@pytest.mark.parametrize("name", ["n_samples", "n_arms"])
def test_pinwheel_refuses_none(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1; got 0"):
        loaders.make_pinwheel(**{name: 0})
