"""The framework of Bernau, Robl and Kerschbaum (2022), figure 1, for any generator."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split
from sklearn.utils import get_tags

from dpgenerative._progress import watched
from dpgenerative._validation import check_number, check_option, refuse
from dpgenerative.metrics.distances import structural_similarity
from dpgenerative.metrics.tradeoff import bounded_phi, phi
from dpgenerative.metrics.utility import encode_features
from dpgenerative.study.generators import (
    ATTACKS,
    ClassGenerator,
    Generator,
    Labelled,
    Rows,
    TableGenerator,
    attack,
    take,
)

OWNER = "privacy_utility_tradeoff"
REAL, PLAIN, CENTRAL = "real rows", "no privacy", "central"
_WINDOW = 7  # side of the smallest image that has a structural similarity


@dataclass(frozen=True)
class Setting:
    """One fit of a study.

    Attributes
    ----------
    mechanism : str
        `REAL`, `PLAIN`, `CENTRAL`, or the name of a local mechanism.
    seed : int
    parameter : str
        What is set: "epsilon", "noise_multiplier", or nothing.
    value : float
        What it is set to; of a local mechanism its epsilon.
    local : transformer, optional
    """

    mechanism: str
    seed: int
    parameter: str = ""
    value: float = np.nan
    local: Any = None

    @property
    def label(self) -> str:
        """The setting, seed included, in words that tell it from all others."""
        local = "" if self.local is None else described(self.local)
        return f"{self.mechanism} {self.parameter} {self.value!r} {self.seed} {local}"


@dataclass(frozen=True)
class Study:
    """What all fits of a study have in common."""

    estimator: Any
    classifier: Any
    X: Rows
    y: np.ndarray
    classes: tuple[str, ...]
    target: str
    attack: str
    n_draws: int
    n_attacked: int
    distance: str
    test_size: float
    n_synthetic: int | None

    def fingerprint(self) -> str:
        """Return what tells this study from others, whatever their settings."""
        rows = self.X
        if isinstance(rows, pd.DataFrame):
            rows = pd.util.hash_pandas_object(rows, index=False).to_numpy()
        digest = sha256(np.ascontiguousarray(rows).tobytes() + self.y.tobytes())
        rest = (
            self.classes, self.target, self.attack, self.n_draws, self.n_attacked,
            self.distance, self.test_size, self.n_synthetic,
        )  # fmt: skip
        models = described(self.estimator), described(self.classifier)
        return f"{digest.hexdigest()} {models} {rest}"

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return places of members, of as many others, and of test rows."""

        def halves(places: np.ndarray, size: float) -> tuple[np.ndarray, np.ndarray]:
            one, other = train_test_split(
                places, test_size=size, stratify=self.y[places], random_state=seed
            )
            return one, other

        rest, test = halves(np.arange(len(self.y)), self.test_size)
        members, others = halves(rest, 0.5)
        return members, others[: len(members)], test

    def generator(self, setting: Setting) -> Generator:
        """Return the generator of a setting, not fitted."""
        estimator, names = clone(self.estimator), self.estimator.get_params()
        changes: dict[str, Any] = {"epsilon": None, "random_state": setting.seed}
        # A study releases nothing: its noise may be drawn again.
        changes |= {"noise": "reproducible", "noise_multiplier": None}
        if setting.parameter:
            changes[setting.parameter] = setting.value
        estimator.set_params(**{k: v for k, v in changes.items() if k in names})
        if isinstance(self.X, pd.DataFrame):
            return TableGenerator(estimator, self.classes, self.target)
        return ClassGenerator(estimator, len(self.classes))

    def accuracy(self, train: Labelled, test: Labelled, seed: int) -> float:
        """Return the share of test rows whose label the classifier finds."""
        if len(np.unique(train[1])) < 2:
            return float(np.isin(test[1], train[1]).mean())
        model = _seeded(self.classifier, seed)
        x_train, x_test = self._features(train, test)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="sklearn")
            model.fit(x_train, train[1])
        return float((model.predict(x_test) == test[1]).mean())

    def _features(self, train: Labelled, test: Labelled) -> tuple[Any, Any]:
        if isinstance(self.X, pd.DataFrame):
            fake, real = (rows.assign(**{self.target: 0}) for rows, _ in (train, test))
            return encode_features(fake, real, self.target)
        if get_tags(self.classifier).input_tags.three_d_array:
            return train[0], test[0]
        return _flat(train[0]), _flat(test[0])

    def similarity(self, generator: Generator, rows: Labelled, seed: int) -> float:
        """Return how alike images and their reconstructions are; NaN of other rows."""
        shape = np.shape(rows[0])[-2:]
        is_image = getattr(rows[0], "dtype", None) == np.uint8 and rows[0].ndim == 3
        if not is_image or min(shape) < _WINDOW or self.attack != "reconstruction":
            return np.nan
        (given,), reconstruct = generator.open([rows], seed)
        pair = _flat(given), _flat(reconstruct(given))
        return float(structural_similarity(*pair, shape, data_range=255.0).mean())


def privacy_utility_tradeoff(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    epsilons: Sequence[float] = (),
    noise_multipliers: Sequence[float] = (),
    local: Mapping[str, Sequence[Any]] | None = None,
    classifier: Any = None,
    attack: str = "auto",
    n_draws: int = 300,
    distance: str = "auto",
    n_attacked: int = 1000,
    test_size: float = 0.2,
    n_synthetic: int | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    n_jobs: int | None = None,
    record: str | Path | None = None,
    verbose: bool = False,
) -> pd.DataFrame:
    """Measure accuracy and membership inference at every setting of privacy noise.

    For every seed rows are split, by strata of y, into those that generators learn
    from (members), as many others, and test rows. Every generator draws labelled rows;
    a classifier learns from them and is tested on the real test rows; an adversary
    tells members from the others. Compared are real rows, no privacy, central
    differential privacy (`epsilons`, `noise_multipliers`), and perturbed rows that a
    generator learns from without further privacy (`local`). A local mechanism has two
    lines for each of its settings: LDP-Train, where only what the generator learns from
    is perturbed, and LDP-Full, where test rows and the adversary's records are too.

    **No figure is private**: a study is for data that may be looked at. Fits draw
    their noise from the seeds, so that studies repeat.

    Parameters
    ----------
    estimator : synthesizer
        With parameter `epsilon`, of which None is no privacy, `fit` and `sample`. The
        reconstruction attack needs ``reconstruct(X, random_state, sampled=True)``, as
        autoencoders here have it.
    X : DataFrame of shape (n, p), or ndarray of shape (n, ...)
        A table (an array of two axes is one), or arrays such as images or series. Of
        a table the label becomes a column; arrays get a synthesizer for each class, at
        the full epsilon, since a record enters one of them.
    y : array-like of shape (n,)
        Labels, of which the names are public.
    epsilons, noise_multipliers : sequence of float
        Settings of central privacy.
    local : mapping from str to sequence of transformers, optional
        By the name of a mechanism, such as ``{"Laplace": [LaplaceRandomizer(epsilon=e)
        for e in (1, 10)]}``: with `epsilon`, `fit` and `transform`. They are fitted to
        members, see X alone, and leave labels as they are, as published; perturbed
        bytes are rounded and clipped to bytes.
    classifier : classifier, optional
        Tables reach it encoded as in `tstr`, arrays flat, unless its scikit-learn tag
        ``three_d_array`` is set. None is a random forest.
    attack : {"auto", "reconstruction", "likelihood", "monte_carlo"}, default="auto"
        As in `dpgenerative.metrics`; "auto" is the first that the estimator has the
        method for. Arrays take the reconstruction attack.
    n_draws : int, default=300
        Reconstructions of every record.
    distance : str, default="auto"
        Of the reconstruction attack; "auto" is "mixed" for tables, else "mse".
    n_attacked : int, default=1000
        Most members, and others, that are attacked.
    test_size : float in (0, 1), default=0.2
        Share of the test rows. Half of the others are members.
    n_synthetic : int, optional
        Synthetic rows that the classifier learns from. None: as many as members.
    seeds : sequence of int, default=(0, 1, 2)
        Of splits, fits and attacks.
    n_jobs : int, optional
        Fits at a time, as in joblib.
    record : path, optional
        File to which every finished fit is added, as a line of JSON. Fits that it holds
        are not repeated; those of other studies in it are left alone.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    DataFrame
        A row per mechanism, setting and seed: `mechanism`; `scope` ("train" or "full"
        of local mechanisms); `parameter` and `value`, what was set; `epsilon`, what it
        came to; `seed`; `accuracy`; `chance` (share of the most frequent class among
        test rows); `average_precision` and `auc` with its interval, `auc_low` and
        `auc_high`; `ssim` of other images of bytes and their reconstructions; `phi`
        and `bounded_phi` against no privacy at the same seed; `n_members`, `n_test`;
        `seconds`.

    Raises
    ------
    TypeError
        When the estimator, or a local mechanism, lacks what it needs.
    ValueError
        When a parameter is out of range, or there is nothing to compare.

    References
    ----------
    Bernau, Robl and Kerschbaum, "Assessing Differentially Private Variational
    Autoencoders under Membership Inference" (2022), figure 1.
    """
    X, y, classes, target = _read(X, y)
    attack, distance = _checked(estimator, X, attack, distance)
    check_number(OWNER, "test_size", test_size, low=0, high=1)
    for name, value in {"n_draws": n_draws, "n_attacked": n_attacked}.items():
        check_number(OWNER, name, value, low=1, closed="left", integer=True)
    study = Study(
        estimator, RandomForestClassifier() if classifier is None else classifier, X, y,
        classes, target, attack, n_draws, n_attacked, distance, test_size, n_synthetic,
    )  # fmt: skip
    settings = _settings(estimator, epsilons, noise_multipliers, local or {}, seeds)
    found = _finished(study, settings, record, n_jobs, verbose)
    return _with_phi(pd.DataFrame([line for lines in found for line in lines]))


def _read(X: Any, y: Any) -> tuple[Rows, np.ndarray, tuple[str, ...], str]:
    """Return rows, the places of their labels, the classes, and the label's name."""
    if not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
        if X.ndim < 2:
            raise ValueError(f"{OWNER} takes rows; got X of shape {X.shape}.")
        if X.ndim == 2:
            X = pd.DataFrame(X).rename(columns=str)
    names, codes = np.unique(np.asarray(y).astype(str), return_inverse=True)
    if np.ndim(y) != 1 or len(X) != len(codes):
        raise ValueError(
            f"{OWNER} takes one label per row; got {len(X)} rows and y of shape "
            f"{np.shape(y)}."
        )
    if len(names) < 2:
        raise ValueError(f"{OWNER} needs two classes in y; got {names.tolist()}.")
    target = str(getattr(y, "name", None) or "target")
    if isinstance(X, pd.DataFrame) and target in X:
        raise ValueError(f"{OWNER}: X has a column {target!r}, the name of y, already.")
    return X, codes, tuple(names.tolist()), target


def _checked(estimator: Any, X: Rows, attack: str, distance: str) -> tuple[str, str]:
    """Return attack and distance, or say what the estimator lacks."""
    lacks = [name for name in ("fit", "sample", "set_params") if not
             hasattr(estimator, name)]  # fmt: skip
    if lacks or "epsilon" not in estimator.get_params():
        raise TypeError(
            f"{OWNER} takes a synthesizer with fit, sample and a parameter epsilon; "
            f"got {type(estimator).__name__}."
        )
    check_option(OWNER, "attack", attack, ("auto", *ATTACKS))
    is_table = isinstance(X, pd.DataFrame)
    possible = [
        name for name, method in ATTACKS.items()
        if hasattr(estimator, method) and (is_table or name == "reconstruction")
    ]  # fmt: skip
    if not possible or attack not in ("auto", *possible):
        raise TypeError(
            f"{type(estimator).__name__} cannot be attacked by {attack!r} on "
            f"{'a table' if is_table else 'arrays'}: possible is {possible}."
        )
    default = "mixed" if is_table else "mse"
    return (
        possible[0] if attack == "auto" else attack,
        default if distance == "auto" else distance,
    )


def _settings(
    estimator: Any,
    epsilons: Sequence[float],
    noise_multipliers: Sequence[float],
    local: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
) -> list[Setting]:
    """Return all fits, by seed."""
    for name, transformers in local.items():
        for each in transformers:
            if not all(hasattr(each, k) for k in ("epsilon", "fit", "transform")):
                raise TypeError(
                    f"local[{name!r}] must hold transformers with epsilon, fit and "
                    f"transform; got {each!r}."
                )
    if len(noise_multipliers) and "noise_multiplier" not in estimator.get_params():
        raise TypeError(f"{type(estimator).__name__} has no noise_multiplier.")
    grid = {"epsilon": epsilons, "noise_multiplier": noise_multipliers}
    private: list[dict[str, Any]] = [
        {"mechanism": CENTRAL, "parameter": parameter, "value": float(value)}
        for parameter, values in grid.items() for value in values
    ] + [
        {"mechanism": name, "value": float(each.epsilon), "local": each}
        for name, transformers in local.items() for each in transformers
    ]  # fmt: skip
    if not private or not len(seeds):
        refuse(OWNER, "epsilons", "or noise_multipliers, local; and seeds, are needed",
               epsilons)  # fmt: skip
    always = [{"mechanism": REAL}, {"mechanism": PLAIN}]
    return [Setting(seed=seed, **each) for seed in seeds for each in always + private]


def _finished(
    study: Study,
    settings: Sequence[Setting],
    record: str | Path | None,
    n_jobs: int | None,
    verbose: bool,
) -> list[list[dict[str, Any]]]:
    """Return the lines of all settings, run or read from the record."""
    common = study.fingerprint()
    keys = [sha256(f"{common} {s.label}".encode()).hexdigest()[:16] for s in settings]
    known = dict(_recorded(record))
    left = [i for i, key in enumerate(keys) if key not in known]
    run = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    done = run(delayed(_run)(i, study, settings[i]) for i in left)
    for i, lines in watched(done, "study", verbose, total=len(left)):
        known[keys[i]] = lines
        if record is not None:
            with Path(record).open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": keys[i], "lines": lines}) + "\n")
    return [known[key] for key in keys]


def _recorded(record: str | Path | None) -> Iterator[tuple[str, Any]]:
    if record is None or not Path(record).exists():
        return
    for line in Path(record).read_text(encoding="utf-8").splitlines():
        try:
            found = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line that was being written when a study was stopped
        yield found["key"], found["lines"]


def _run(i: int, study: Study, setting: Setting) -> tuple[int, list[dict[str, Any]]]:
    """Return the lines of one setting: two of a local mechanism, else one."""
    start, seed = time.perf_counter(), setting.seed
    members, others, test = study.split(seed)
    chance = np.bincount(study.y[test]).max() / len(test)

    def labelled(rows: Rows, places: np.ndarray) -> Labelled:
        return take(rows, places), study.y[places]

    shown = perturbed(study.X, members, setting) if setting.local else study.X
    line = {
        "mechanism": setting.mechanism, "scope": "", "parameter": setting.parameter,
        "value": setting.value, "epsilon": np.nan, "seed": seed,
        "chance": float(chance), "n_members": len(members), "n_test": len(test),
    }  # fmt: skip
    if setting.mechanism == REAL:
        real = labelled(study.X, members), labelled(study.X, test)
        line["accuracy"] = study.accuracy(*real, seed)
        return i, [line | {"seconds": time.perf_counter() - start}]
    generator = study.generator(setting)
    generator.fit(labelled(shown, members))
    fake = generator.sample(study.n_synthetic or len(members), seed)
    line["epsilon"] = _epsilon(generator, setting)
    attacked = [part[: study.n_attacked] for part in (members, others)]
    scopes = {"train": study.X, "full": shown} if setting.local else {"": study.X}
    lines = []
    for scope, rows in scopes.items():
        result = attack(
            study.attack, generator, [labelled(rows, part) for part in attacked], fake,
            n_draws=study.n_draws, distance=study.distance, seed=seed,
        )  # fmt: skip
        auc = result.auc
        lines.append(
            line
            | {
                "scope": scope,
                "accuracy": study.accuracy(fake, labelled(rows, test), seed),
                "average_precision": result.average_precision.value,
                "auc": auc.value, "auc_low": auc.low, "auc_high": auc.high,
                "ssim": study.similarity(generator, labelled(rows, attacked[1]), seed),
                "seconds": time.perf_counter() - start,
            }
        )  # fmt: skip
    return i, lines


def perturbed(X: Rows, members: np.ndarray, setting: Setting) -> Rows:
    """Return all rows, perturbed by a local mechanism that was fitted to members."""
    transformer = _seeded(setting.local, setting.seed, noise="reproducible")
    out = transformer.fit(take(X, members)).transform(X)
    if isinstance(X, pd.DataFrame):
        return pd.DataFrame(out, columns=X.columns)
    out = np.asarray(out).reshape(X.shape)
    if X.dtype == np.uint8 and out.dtype != np.uint8:
        return out.round().clip(0, 255).astype(np.uint8)
    return out


def described(estimator: Any) -> str:
    """Return an estimator with all its parameters in words, the same in all runs."""
    parameters = sorted(estimator.get_params().items())
    text = f"{type(estimator).__qualname__} {parameters!r}"
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _seeded(estimator: Any, seed: int, **changes: Any) -> Any:
    """Return a copy with its seed, and other parameters that it may have."""
    changes["random_state"] = seed
    copy, names = clone(estimator), estimator.get_params()
    return copy.set_params(**{k: v for k, v in changes.items() if k in names})


def _flat(rows: np.ndarray) -> np.ndarray:
    return rows.reshape(len(rows), -1)


def _epsilon(generator: Generator, setting: Setting) -> float:
    """Return what the fit came to: the largest epsilon of any class."""
    if setting.mechanism == PLAIN:
        return np.inf
    if setting.local is not None:
        return setting.value
    asked = setting.value if setting.parameter == "epsilon" else np.nan
    return float(max(getattr(m, "epsilon_", None) or asked for m in generator.models))


def _with_phi(found: pd.DataFrame) -> pd.DataFrame:
    """Return lines with their trade-off against the plain one of the same seed."""
    plain = found[found["mechanism"] == PLAIN].set_index("seed")
    for name, function in {"phi": phi, "bounded_phi": bounded_phi}.items():
        found[name] = [
            np.nan
            if line.mechanism in (REAL, PLAIN)
            else function(
                plain.accuracy[line.seed], line.accuracy,
                plain.average_precision[line.seed], line.average_precision, line.chance,
            )
            for line in found.itertuples()
        ]  # fmt: skip
    last = ["n_members", "n_test", "seconds"]
    return found[[*found.columns.drop(last), *last]]
