"""Tables that the benchmarks run on.

======================== ======================= ============= ======================
loader                   rows (train, test)      columns       where it comes from
======================== ======================= ============= ======================
`fetch_adult`            32,561 and 16,281       15            folder or scikit-learn
`fetch_census`           79,810 and 19,952       41            folder
`fetch_covertype`        74,370 and 18,592       13            folder or scikit-learn
`fetch_intrusion`        395,217 and 98,804      42            folder or scikit-learn
`motionsense_windows`    10,711 and 3,245        50 x 6        folder
`fashion_images`         60,000 and 10,000       28 x 28       folder
`olivetti_faces`         400                     64 x 64       folder or scikit-learn
`lfw_faces`              1,140 and more          62 x 47       scikit-learn
`make_pinwheel`          any                     2             drawn
======================== ======================= ============= ======================

The `fetch_*` functions read Parquet files from `data_home` or, where that is None, from
the folder that the environment variable ``DPGENERATIVE_DATA`` names. With neither they
fall back on scikit-learn's fetchers, which download once and keep a cache.
(scikit-learn has the whole Covertype table, 581,012 rows, of which the folder holds a
random 16 %.)

Notes
-----
The schemas state what a stranger to the rows can know: kinds; where the table is known
to have missing values; the dtypes' levels; and the bounds of those columns whose
*definition* has them (a share lies in [0, 1], a compass bearing in [0, 360]). No bound
is ever a minimum or maximum of the rows: the other numeric columns have none, so that a
synthesizer finds them privately. The level lists are those of the files, training and
test rows together, and public by declaration; their code books are published, and a
code that no row uses may be absent. Who wants levels found privately turns these
columns into strings and leaves them out of the schema.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import (
    fetch_covtype,
    fetch_kddcup99,
    fetch_lfw_people,
    fetch_olivetti_faces,
    fetch_openml,
)
from sklearn.utils import Bunch, check_random_state

from dpgenerative.tables.schema import Schema

FOLDER_VARIABLE = "DPGENERATIVE_DATA"

MOTION_CHANNELS = tuple(
    f"{name}_{axis}" for name in ("gravity", "userAcceleration") for axis in "xyz"
)
"""Channels of `motionsense_windows`."""

_ADULT_TEST_ROWS = 16_281  # scikit-learn's copy has the official test rows first

_SHARE = {"kind": "continuous", "lower": 0.0, "upper": 1.0, "resolution": 0.01}

_ADULT_FACTS: dict[str, dict[str, Any]] = {
    "education_num": {"lower": 1, "upper": 16},  # numbers the 16 levels of education
    "hours_per_week": {"lower": 0, "upper": 168},
}
_CENSUS_FACTS: dict[str, dict[str, Any]] = {
    "num_persons_worked_for_employer": {"lower": 0, "upper": 6},  # a code of seven
    "weeks_worked_in_year": {"lower": 0, "upper": 52},
}
_COVERTYPE_FACTS: dict[str, dict[str, Any]] = {
    "aspect": {"lower": 0, "upper": 360},  # degrees
    "slope": {"lower": 0, "upper": 90},  # degrees
    "hillshade_9am": {"lower": 0, "upper": 255},  # an index of one byte
    "hillshade_noon": {"lower": 0, "upper": 255},
    "hillshade_3pm": {"lower": 0, "upper": 255},
}
_INTRUSION_FACTS: dict[str, dict[str, Any]] = {
    "root_shell": {"lower": 0, "upper": 1},
}

# Columns of which it is known that values are missing.
_ADULT_NULLABLE = ("workclass", "occupation", "native_country")
_CENSUS_NULLABLE = (
    "state_of_previous_residence",
    "migration_code_change_in_msa",
    "migration_code_change_in_reg",
    "migration_code_move_within_reg",
    "migration_prev_res_in_sunbelt",
    "country_of_birth_father",
    "country_of_birth_mother",
    "country_of_birth_self",
)

_INTRUSION_CLASSES = {
    "normal": ("normal",),
    "dos": ("back", "land", "neptune", "pod", "smurf", "teardrop"),
    "probe": ("ipsweep", "nmap", "portsweep", "satan"),
    "r2l": (
        "ftp_write", "guess_passwd", "imap", "multihop", "phf", "spy", "warezclient",
        "warezmaster",
    ),
    "u2r": ("buffer_overflow", "loadmodule", "perl", "rootkit"),
}  # fmt: skip
_INTRUSION_NOMINAL = (
    "protocol_type", "service", "flag", "land", "logged_in", "is_host_login",
    "is_guest_login",
)  # fmt: skip

_ADULT_DESCR = """\
Adult (also 'Census Income'), UCI Machine Learning Repository, CC BY 4.0.

People in the United States census survey of 1994, with the question whether
their income exceeds 50,000 dollars a year. Split: the official one. Missing
values occur in workclass, occupation and native_country. Target: income.
"""
_CENSUS_DESCR = """\
Census-Income (KDD), UCI Machine Learning Repository, CC BY 4.0.

People in the United States census surveys of 1994 and 1995, with the question
whether their income exceeds 50,000 dollars a year. The rows are those of UCI's
test file (99,762), itself a random third of the data, split at random into
80 % and 20 %. The survey weight (instance_weight) is left out, as the
publishers advise. Target: income.
"""
_COVERTYPE_DESCR = """\
Covertype, UCI Machine Learning Repository, CC BY 4.0; copyright Jock A. Blackard
and Colorado State University.

Cartographic variables of 30 by 30 metre cells in four wilderness areas of
Colorado, with the kind of forest that covers them. The 4 and 40 indicator
columns of area and soil are folded into two categorical ones. Split at random into
80 % and 20 %. Target: cover_type.
"""
_INTRUSION_DESCR = """\
KDD Cup 1999 ('Intrusion'), the 10 % file, UCI Machine Learning Repository,
CC BY 4.0.

Network connections, normal or of 22 kinds of attack, which are grouped into the
five classes of the contest: normal, dos, probe, r2l and u2r. Most rows are
repeats of others. Split at random into 80 % and 20 %. Target: label.
"""


def fetch_adult(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load Adult: 15 columns of a census survey; predict a high income.

    Parameters
    ----------
    data_home : path-like, optional
        Folder of the Parquet files. None: ``DPGENERATIVE_DATA``, else scikit-learn's
        copy, kept in scikit-learn's own cache.

    Returns
    -------
    Bunch
        With `train` and `test` (DataFrames, the official split), `schema` (`Schema`),
        `target` (the name of the column to predict) and `DESCR`.

    Raises
    ------
    FileNotFoundError
        When a folder is named that lacks the files.
    OSError
        When none is named and the download fails.
    """
    train, test = _read_folder("adult", data_home) or _download(_download_adult)
    schema = _schema(train, _ADULT_FACTS, _ADULT_NULLABLE)
    return _bunch(train, test, schema, "income", _ADULT_DESCR)


def fetch_census(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load Census-Income (KDD): 41 columns of a survey; predict a high income.

    scikit-learn has no copy, so that a folder must be named.

    Parameters
    ----------
    data_home : path-like, optional
        Folder of the Parquet files. None: ``DPGENERATIVE_DATA``.

    Returns
    -------
    Bunch
        With `train` and `test` (DataFrames), `schema` (`Schema`), `target` (the name
        of the column to predict) and `DESCR`.

    Raises
    ------
    FileNotFoundError
        When no folder is named, or one that lacks the files.
    """
    parts = _read_folder("census_kdd", data_home)
    if parts is None:
        raise FileNotFoundError(
            "fetch_census has nowhere to download from. Set the environment variable "
            f"{FOLDER_VARIABLE} to a folder with census_kdd_train.parquet and "
            "census_kdd_test.parquet."
        )
    train, test = (part.drop(columns="instance_weight") for part in parts)
    schema = _schema(train, _CENSUS_FACTS, _CENSUS_NULLABLE)
    return _bunch(train, test, schema, "income", _CENSUS_DESCR)


def fetch_covertype(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load Covertype: 13 columns about patches of forest; predict the kind of trees.

    Parameters
    ----------
    data_home : path-like, optional
        Folder of the Parquet files. None: ``DPGENERATIVE_DATA``, else scikit-learn's
        copy, kept in scikit-learn's own cache.

    Returns
    -------
    Bunch
        With `train` and `test` (DataFrames), `schema` (`Schema`), `target` (the name
        of the column to predict) and `DESCR`.

    Raises
    ------
    FileNotFoundError
        When a folder is named that lacks the files.
    OSError
        When none is named and the download fails.
    """
    train, test = _read_folder("covertype", data_home) or _download(_download_covertype)
    schema = _schema(train, _COVERTYPE_FACTS)
    return _bunch(train, test, schema, "cover_type", _COVERTYPE_DESCR)


def fetch_intrusion(*, data_home: str | os.PathLike[str] | None = None) -> Bunch:
    """Load KDD Cup 1999, the 10 % file: 42 columns; predict the class of attack.

    The 23 labels are grouped into the contest's five classes, in this order: normal,
    dos, probe, r2l, u2r.

    Parameters
    ----------
    data_home : path-like, optional
        Folder of the Parquet files. None: ``DPGENERATIVE_DATA``, else scikit-learn's
        copy, kept in scikit-learn's own cache.

    Returns
    -------
    Bunch
        With `train` and `test` (DataFrames), `schema` (`Schema`), `target` (the name
        of the column to predict) and `DESCR`.

    Raises
    ------
    FileNotFoundError
        When a folder is named that lacks the files.
    OSError
        When none is named and the download fails.
    """
    parts = _read_folder("intrusion", data_home) or _download(_download_intrusion)
    train, test = (part.assign(label=_attack_class(part["label"])) for part in parts)
    shares = {name: _SHARE for name in train.columns if name.endswith("_rate")}
    schema = _schema(train, _INTRUSION_FACTS | shares)
    return _bunch(train, test, schema, "label", _INTRUSION_DESCR)


def motionsense_windows(
    n_steps: int = 50,
    channels: Sequence[str] = MOTION_CHANNELS,
    *,
    data_home: str | os.PathLike[str] | None = None,
) -> Bunch:
    """Cut the recordings of MotionSense into windows that do not overlap.

    24 people carried a phone in six activities (25 samples a second here, so that a
    window of 50 steps takes two seconds); the trials of the test part are others of the
    same people. Every sample is in one window, or, at the end of a recording, in none.

    Parameters
    ----------
    n_steps : int, default=50
        Steps of a window.
    channels : sequence of str
        Columns; by default the direction of gravity and the user's acceleration.
    data_home : path-like, optional
        Folder of the Parquet files.

    Returns
    -------
    Bunch
        ``X_train``, ``X_test`` : float32 arrays (n, n_steps, channels); ``y_train``,
        ``y_test`` : activities; ``subject_train``, ``subject_test`` : people, 1 to 24;
        ``target_names``, ``channels`` : lists.
    """
    found = _read_folder("motionsense", data_home)
    if found is None:
        raise FileNotFoundError(
            f"Point data_home, or the environment variable {FOLDER_VARIABLE}, at the "
            "folder with motionsense_train.parquet and motionsense_test.parquet."
        )
    table = Bunch(channels=list(channels))
    for part, frame in zip(("train", "test"), found, strict=True):
        windows, labels, people = [], [], []
        recordings = frame.groupby(["trial", "subject", "activity"], observed=True)
        for (_, person, activity), rows in recordings:
            n = len(rows) // n_steps
            values = rows[list(channels)].to_numpy(np.float32)[: n * n_steps]
            windows.append(values.reshape(n, n_steps, len(channels)))
            labels += [str(activity)] * n
            people += [person] * n
        table[f"X_{part}"] = np.concatenate(windows)
        table[f"y_{part}"] = np.array(labels)
        table[f"subject_{part}"] = np.array(people)
    table.target_names = sorted(set(table.y_train))
    return table


def fashion_images(
    part: str = "train", *, data_home: str | os.PathLike[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Load Fashion-MNIST: grey images of ten kinds of clothing.

    Parameters
    ----------
    part : {"train", "t10k"}, default="train"
        60,000 images or the 10,000 of the test part.
    data_home : path-like, optional
        Folder that holds the official files in ``fashion_mnist``.

    Returns
    -------
    X : ndarray of uint8, shape (n, 28, 28)
    y : ndarray of shape (n,)
        Labels, 0 to 9.
    """
    folder = _folder(data_home) / "fashion_mnist"
    parts = []
    for name, offset in (("images-idx3", 16), ("labels-idx1", 8)):
        with gzip.open(folder / f"{part}-{name}-ubyte.gz") as file:
            parts.append(np.frombuffer(file.read(), np.uint8, offset=offset))
    return parts[0].reshape(-1, 28, 28), parts[1].astype(int)


def olivetti_faces(
    *, data_home: str | os.PathLike[str] | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Load the Olivetti faces: ten grey pictures of each of 40 people.

    Parameters
    ----------
    data_home : path-like, optional
        Folder with ``olivetti_faces.npz``. None: ``DPGENERATIVE_DATA``, else
        scikit-learn's copy.

    Returns
    -------
    X : ndarray of uint8, shape (400, 64, 64)
    y : ndarray of shape (400,)
        People, 0 to 39.
    """
    if data_home or os.environ.get(FOLDER_VARIABLE):
        with np.load(_folder(data_home) / "olivetti_faces.npz") as found:
            return found["images"], found["labels"].astype(int)
    faces = _download(fetch_olivetti_faces)
    return (faces.images * 255).round().astype(np.uint8), faces.target


def lfw_faces(least: int = 70) -> tuple[np.ndarray, np.ndarray]:
    """Load Labeled Faces in the Wild by scikit-learn's fetcher, which keeps a cache.

    Parameters
    ----------
    least : int, default=70
        People with fewer pictures are left out; 70 leaves 7 of them, 20 leaves 62.

    Returns
    -------
    X : ndarray of uint8, shape (n, 62, 47)
    y : ndarray of shape (n,)
        People, from 0.
    """
    faces = _download(lambda: fetch_lfw_people(min_faces_per_person=least))
    # Versions of scikit-learn differ in the scale.
    scale = 255 if faces.images.max() <= 1 else 1
    return (faces.images * scale).round().astype(np.uint8), faces.target


def make_pinwheel(
    n_samples: int = 400,
    n_arms: int = 4,
    *,
    radial_std: float = 0.3,
    tangential_std: float = 0.05,
    twist: float = 0.25,
    random_state: int | np.random.RandomState | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw points of a pinwheel: Gaussian arms, bent more the further out.

    Parameters
    ----------
    n_samples : int, default=400
        Number of points, dealt evenly to the arms.
    n_arms : int, default=4
        Number of arms, at equal angles.
    radial_std, tangential_std : float, default=0.3 and 0.05
        Standard deviation along and across an arm, whose centre lies at distance 1.
    twist : float, default=0.25
        How fast the angle grows, in radians, with the exponential of the distance
        along the arm.
    random_state : int, RandomState instance or None, default=None
        Seed of the draw.

    Returns
    -------
    X : ndarray of shape (n_samples, 2)
        The points, in random order.
    y : ndarray of shape (n_samples,)
        The arm of each point, from 0.

    Raises
    ------
    ValueError
        When `n_samples` or `n_arms` is below 1.

    Examples
    --------
    >>> points, arms = make_pinwheel(8, random_state=0)
    >>> points.shape, sorted(arms.tolist())
    ((8, 2), [0, 0, 1, 1, 2, 2, 3, 3])
    """
    for name, value in {"n_samples": n_samples, "n_arms": n_arms}.items():
        if value < 1:
            raise ValueError(f"make_pinwheel: {name} must be at least 1; got {value}.")
    rng = check_random_state(random_state)
    arms = rng.permutation(np.arange(n_samples) % n_arms)
    along = 1.0 + radial_std * rng.standard_normal(n_samples)
    across = tangential_std * rng.standard_normal(n_samples)
    angle = 2.0 * np.pi * arms / n_arms + twist * np.exp(along)
    cosine, sine = np.cos(angle), np.sin(angle)
    points = np.column_stack(
        [cosine * along - sine * across, sine * along + cosine * across]
    )
    return points, arms


def _bunch(
    train: pd.DataFrame, test: pd.DataFrame, schema: Schema, target: str, descr: str
) -> Bunch:
    return Bunch(train=train, test=test, schema=schema, target=target, DESCR=descr)


def _schema(
    frame: pd.DataFrame,
    facts: Mapping[Any, Mapping[str, Any]],
    nullable: Collection[str] = (),
) -> Schema:
    """Kinds and levels by dtype, completed with what the documentation states."""
    return Schema(
        replace(column, nullable=column.name in nullable, **facts.get(column.name, {}))
        for column in Schema.from_dtypes(frame).columns
    )


def _folder(data_home: str | os.PathLike[str] | None) -> Path:
    folder = data_home or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise FileNotFoundError(
            f"Point data_home, or the environment variable {FOLDER_VARIABLE}, at the "
            "folder with the files."
        )
    return Path(folder)


def _read_folder(
    name: str, data_home: str | os.PathLike[str] | None
) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Read train and test of one table; None where no folder is named."""
    folder = data_home or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return None
    paths = [Path(folder) / f"{name}_{part}.parquet" for part in ("train", "test")]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        raise FileNotFoundError(
            f"The folder {os.fspath(folder)!r} lacks {absent}. Point data_home, or the "
            f"environment variable {FOLDER_VARIABLE}, at the folder with these files."
        )
    train, test = (pd.read_parquet(path) for path in paths)
    return train, test


def _download(fetcher: Callable[[], Any]) -> Any:
    try:
        return fetcher()
    except OSError as error:
        raise OSError(
            "The table is not in scikit-learn's cache and could not be downloaded. "
            f"Set the environment variable {FOLDER_VARIABLE} to a folder with its "
            "Parquet files, or run once with access to the network."
        ) from error


def _split(frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split at random, 80 % and 20 %, seed 0, both parts in the order of the source."""
    order = np.random.default_rng(0).permutation(len(frame))
    cut = round(0.8 * len(frame))
    train, test = (
        frame.iloc[np.sort(part)].reset_index(drop=True)
        for part in (order[:cut], order[cut:])
    )
    return train, test


def _download_adult() -> tuple[pd.DataFrame, pd.DataFrame]:
    frame = fetch_openml("adult", version=2, as_frame=True).frame
    frame = frame.rename(columns={"class": "income"})
    frame.columns = frame.columns.str.replace("-", "_")
    for name in frame.columns:
        if isinstance(frame[name].dtype, pd.CategoricalDtype):
            frame[name] = _sorted_levels(frame[name])
        else:
            frame[name] = frame[name].astype(np.int64)
    test, train = frame[:_ADULT_TEST_ROWS], frame[_ADULT_TEST_ROWS:]
    return train.reset_index(drop=True), test.reset_index(drop=True)


def _download_covertype() -> tuple[pd.DataFrame, pd.DataFrame]:
    frame = fetch_covtype(as_frame=True).frame
    frame.columns = frame.columns.str.lower()
    areas = [f"wilderness_area_{i}" for i in range(4)]
    soils = [f"soil_type_{i}" for i in range(40)]
    numbers = frame.drop(columns=[*areas, *soils, "cover_type"]).astype(np.int64)
    return _split(
        numbers.assign(
            wilderness_area=_numbered_levels(frame[areas].to_numpy().argmax(1) + 1),
            soil_type=_numbered_levels(frame[soils].to_numpy().argmax(1) + 1),
            cover_type=_numbered_levels(frame["cover_type"].to_numpy()),
        )
    )


def _download_intrusion() -> tuple[pd.DataFrame, pd.DataFrame]:
    frame = fetch_kddcup99(percent10=True, as_frame=True).frame
    frame = frame.rename(columns={"labels": "label"})
    for name in frame.columns:
        if name == "label" or name in _INTRUSION_NOMINAL:
            frame[name] = _sorted_levels(frame[name].map(_text))
        elif name.endswith("_rate"):
            frame[name] = frame[name].astype(np.float64)
        else:
            frame[name] = frame[name].astype(np.int64)
    return _split(frame)


def _text(value: object) -> str:
    text = value.decode() if isinstance(value, bytes) else str(value)
    return text.rstrip(".")


def _sorted_levels(column: pd.Series) -> pd.Series:
    """Return strings as a category dtype whose levels are in alphabetical order."""
    return column.astype(object).astype("category")


def _numbered_levels(numbers: np.ndarray) -> pd.Categorical:
    return pd.Categorical(numbers.astype(np.int64).astype(str))


def _attack_class(labels: pd.Series) -> pd.Series:
    groups = {
        label: group for group, labels in _INTRUSION_CLASSES.items() for label in labels
    }
    names = labels.astype(object).map(groups)
    return names.astype(pd.CategoricalDtype(list(_INTRUSION_CLASSES)))
