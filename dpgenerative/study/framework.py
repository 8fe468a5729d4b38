"""The framework of Bernau, Robl and Kerschbaum (2022), figure 1, for any generator."""

import json
import os
import re
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from dpgenerative import metrics
from dpgenerative._files import locked
from dpgenerative._progress import watched
from dpgenerative._validation import check_option, count, number, refuse
from dpgenerative.metrics.distances import WINDOW, structural_similarity
from dpgenerative.metrics.features import encode_features
from dpgenerative.study import generators
from dpgenerative.study.generators import Generator, Labelled, Rows, take
from dpgenerative.tables.arrow import table_in_pandas

OWNER = "privacy_utility_tradeoff"
REAL, PLAIN, CENTRAL = "real rows", "no privacy", "central"


@dataclass(frozen=True)
class Setting:
    """One fit of a study.

    Attributes
    ----------
    mechanism : str
        `REAL`, `PLAIN`, `CENTRAL`, or the name of a local mechanism.
    seed : int
    parameter : str
        What is set: "epsilon", "noise_multiplier", "sigma", or nothing.
    value : float
        What it is set to.
    local : transformer, optional
    """

    mechanism: str
    seed: int
    parameter: str = ""
    value: float = np.nan
    local: Any = None

    @property
    def epsilon(self) -> float:
        """The value that is set, if it is an epsilon; else NaN."""
        return self.value if self.parameter == "epsilon" else np.nan


@dataclass(frozen=True)
class Study:
    """What all fits of a study share; see `privacy_utility_tradeoff`."""

    estimator: Any
    X: Rows
    y: np.ndarray
    classes: tuple[str, ...]
    target: str
    classifier: Any
    attack: str
    n_draws: int
    distance: str
    n_attacked: int
    test_size: float
    n_synthetic: int | None

    def keys(self, settings: Sequence[Setting]) -> list[str]:
        """Return a key for every setting that no other has, in any study."""
        rows: Any = self.X
        if isinstance(rows, pd.DataFrame):
            rows = pd.util.hash_pandas_object(rows, index=False).to_numpy()
        data = sha256(np.ascontiguousarray(rows).tobytes() + self.y.tobytes())
        rest = {k: described(v) for k, v in vars(self).items() if k not in ("X", "y")}
        own = ([described(v) for v in vars(setting).values()] for setting in settings)
        texts = (f"{data.hexdigest()} {form_of(self.X)} {rest} {each}" for each in own)
        return [sha256(text.encode()).hexdigest()[:16] for text in texts]

    def split(self, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return indices of members, of as many non-members, and of test rows."""
        cut = partial(train_test_split, random_state=seed)
        places = np.arange(len(self.y))
        rest, test = cut(places, test_size=self.test_size, stratify=self.y)
        members, others = cut(rest, test_size=0.5, stratify=self.y[rest])
        return members, others[: len(members)], test

    def labelled(self, rows: Rows, places: np.ndarray) -> Labelled:
        """Return some of the rows with their labels."""
        return take(rows, places), self.y[places]

    def generator(self, setting: Setting) -> Generator:
        """Return the generator of a setting, not fitted."""
        changes: dict[str, Any] = {"epsilon": None, "noise_multiplier": None}
        if setting.mechanism == CENTRAL:
            # Where noise is stated, epsilon has to stay as it is by default.
            default = signature(type(self.estimator)).parameters["epsilon"].default
            changes |= {"epsilon": default, setting.parameter: setting.value}
        estimator = generators.seeded(self.estimator, setting.seed, **changes)
        if isinstance(self.X, pd.DataFrame):
            return generators.TableGenerator(estimator, self.classes, self.target)
        if getattr(estimator, "classes", None) is not None:
            return generators.LabelledGenerator(estimator, self.classes)
        return generators.ClassGenerator(estimator, len(self.classes))

    def perturbed(
        self, setting: Setting, members: np.ndarray
    ) -> tuple[Rows, float | None]:
        """Return all rows, perturbed by what was fitted to members, and its epsilon."""
        if setting.local is None:
            return self.X, None
        transformer = generators.seeded(setting.local, setting.seed)
        X = generators.shaped(transformer, self.X)
        made = transformer.fit(take(X, members)).transform(X)
        report = getattr(transformer, "privacy_", None)
        epsilon = getattr(report, "record_epsilon", setting.epsilon)
        if isinstance(made, pd.DataFrame):
            return made, epsilon
        out = np.asarray(made)
        if isinstance(X, pd.DataFrame):
            return pd.DataFrame(out, X.index, X.columns), epsilon
        if self.X.dtype == np.uint8 and out.dtype != np.uint8:
            out = out.round().clip(0, 255).astype(np.uint8)
        return out.reshape(self.X.shape), epsilon

    def accuracies(
        self, train: Labelled, tests: Sequence[Rows], y: np.ndarray, seed: int
    ) -> list[float]:
        """Return the classifier's accuracy on each version of the test rows."""
        if len(np.unique(train[1])) < 2:
            return [float(np.isin(y, train[1]).mean())] * len(tests)
        if isinstance(self.X, pd.DataFrame):
            label = {self.target: 0}
            tables = train[0].assign(**label), pd.concat(tests).assign(**label)
            x_train, x_test = encode_features(*tables, self.target)
        else:
            x_train = generators.shaped(self.classifier, train[0])
            x_test = generators.shaped(self.classifier, np.concatenate(tests))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="sklearn")
            model = generators.seeded(self.classifier, seed).fit(x_train, train[1])
        hits = model.predict(x_test).reshape(len(tests), -1) == y
        return [float(each) for each in hits.mean(axis=1)]

    def attacked(
        self, generator: Generator, sides: Sequence[Labelled], fake: Labelled, seed: int
    ) -> metrics.AttackResult:
        """Attack a fitted generator; `sides` are members and as many non-members."""
        table = generators.TableGenerator
        rows = [
            generator.labelled(side) if isinstance(generator, table) else side[0]
            for side in sides
        ]
        # Tables come back aligned, and so as other objects: they need no codes.
        codes: Any = {id(part): labels for part, labels in sides}
        rng = np.random.default_rng(seed)
        if self.attack == "reconstruction":
            return metrics.reconstruction_attack(
                lambda part: generator.reconstruct(part, codes.get(id(part)), rng),
                *rows, n_draws=self.n_draws, distance=self.distance,
            )  # fmt: skip
        assert isinstance(generator, table)
        if self.attack == "likelihood":
            return metrics.likelihood_attack(generator.models[0].score_samples, *rows)
        return metrics.monte_carlo_attack(generator.labelled(fake), *rows)

    def similarity(self, generator: Generator, rows: Labelled, seed: int) -> float:
        """Return the SSIM of images and their reconstructions; NaN for other rows."""
        shape = np.shape(rows[0])[1:]
        is_image = getattr(rows[0], "dtype", None) == np.uint8 and len(shape) == 2
        if not is_image or min(shape) < WINDOW:
            return np.nan
        again = generator.reconstruct(*rows, np.random.default_rng(seed))
        return float(structural_similarity(rows[0], again, shape, 255.0).mean())


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
    separates members from the others. Compared are real rows, no privacy, central
    differential privacy (`epsilons`, `noise_multipliers`), and perturbed rows that a
    generator learns from without further privacy (`local`). A local mechanism has two
    lines for each of its settings: LDP-Train, where only what the generator learns from
    is perturbed, and LDP-Full, where test rows and the adversary's records are too.

    **No figure is private**: a study is for data without privacy. Fits draw
    their noise from the seeds, so that studies repeat.

    Parameters
    ----------
    estimator : synthesizer
        With parameter `epsilon`, of which None is no privacy, `fit` and `sample`. The
        reconstruction attack needs ``reconstruct(X, random_state, sampled=True)``, as
        autoencoders here have it.
    X : DataFrame of shape (n, p), or ndarray of shape (n, ...)
        A table (an array of two axes is one), or arrays such as images or series. Of
        a table the label becomes a column; arrays go with their labels to a synthesizer
        that states `classes`, else to one for each class, at the full epsilon, since a
        record enters one of them.
    y : array-like of shape (n,)
        Labels, of which the names are public.
    epsilons, noise_multipliers : sequence of float
        Settings of central privacy.
    local : mapping from str to sequence of transformers, optional
        By the name of a mechanism, such as ``{"Laplace": [LaplaceRandomizer(epsilon=e)
        for e in (1, 10)]}``: with `epsilon`, `fit` and `transform`. They are fitted to
        members, see X alone (flat, as for classifiers), and leave labels as they are,
        as published; perturbed bytes are rounded and clipped to bytes.
    classifier : classifier, optional
        Tables reach it encoded as in `tstr`, arrays flat unless its scikit-learn tag
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
        are not repeated; those of other studies in it are left alone. One study at a
        time works with it.
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
        If the estimator, or a local mechanism, lacks what it needs.
    ValueError
        If a parameter is out of range, or there is nothing to compare.
    BlockingIOError
        For a record that another process works with.

    References
    ----------
    Bernau, Robl and Kerschbaum, "Assessing Differentially Private Variational
    Autoencoders under Membership Inference" (2022), figure 1.
    """
    X, y, classes, target = _read(X, y)
    number(low=0, high=1)(OWNER, "test_size", test_size)
    count()(OWNER, "n_draws", n_draws)
    count()(OWNER, "n_attacked", n_attacked)
    count(also=[None])(OWNER, "n_synthetic", n_synthetic)
    check_option(OWNER, "distance", distance, ("auto", "mse", "ssim", "mixed"))
    if distance == "auto":
        distance = "mixed" if isinstance(X, pd.DataFrame) else "mse"
    study = Study(
        estimator, X, y, classes, target, classifier or RandomForestClassifier(),
        _possible(estimator, X, attack), n_draws, distance, n_attacked, test_size,
        n_synthetic,
    )  # fmt: skip
    grid = {"epsilon": epsilons, "noise_multiplier": noise_multipliers}
    for name, values in {**grid, "seed": seeds}.items():
        if np.ndim(values) != 1:
            refuse(OWNER, f"{name}s", "must be a list of numbers", values)
        check = count(0) if name == "seed" else number(low=0)
        for each in values:
            check(OWNER, f"{name}s", each)
    if len(set(seeds)) < len(seeds):
        refuse(OWNER, "seeds", "must be different numbers", seeds)
    settings = _settings(estimator, grid, local or {}, seeds)
    with nullcontext() if record is None else locked(record):
        fits = _finished(study, settings, Path(record or os.devnull), n_jobs, verbose)
    return _with_phi(pd.DataFrame([line for lines in fits for line in lines]))


def _read(X: Any, y: Any) -> tuple[Rows, np.ndarray, tuple[str, ...], str]:
    """Return rows, the class indices of their labels, the classes, the label's name."""
    X = table_in_pandas(OWNER, X)
    if not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
        X = pd.DataFrame(X).rename(columns=str) if X.ndim < 3 else X
    names, codes = np.unique(np.asarray(y).astype(str), return_inverse=True)
    target = str(getattr(y, "name", None) or "target")
    if np.shape(y) != (len(X),) or len(names) < 2:
        raise ValueError(
            f"{OWNER} takes a label per row, of two classes at least; got {len(X)} "
            f"rows and y of shape {np.shape(y)} with {len(names)} classes."
        )
    if isinstance(X, pd.DataFrame) and target in X:
        raise ValueError(f"{OWNER}: X has a column {target!r}, the name of y, already.")
    return X, codes, tuple(names.tolist()), target


def _possible(estimator: Any, X: Rows, attack: str) -> str:
    """Return the attack; refuse an estimator that lacks its method."""
    check_option(OWNER, "attack", attack, ("auto", *generators.ATTACKS))
    name, is_table = type(estimator).__name__, isinstance(X, pd.DataFrame)
    if not all(hasattr(estimator, k) for k in ("epsilon", "fit", "sample")):
        raise TypeError(
            f"{OWNER} takes a synthesizer with epsilon, fit and sample; got {name}."
        )
    methods = generators.ATTACKS if is_table else {"reconstruction": "reconstruct"}
    possible = [kind for kind, method in methods.items() if hasattr(estimator, method)]
    if not possible or attack not in ("auto", *possible):
        rows = "a table" if is_table else "arrays"
        raise TypeError(f"{name} and {rows}: {attack!r} is not among {possible}.")
    return possible[0] if attack == "auto" else attack


def _settings(
    estimator: Any,
    grid: Mapping[str, Sequence[float]],
    local: Mapping[str, Sequence[Any]],
    seeds: Sequence[int],
) -> list[Setting]:
    """Return the settings of all fits, seed by seed."""
    private: list[tuple[Any, ...]] = []
    for name, values in grid.items():
        if len(values) and not hasattr(estimator, name):
            raise TypeError(f"{type(estimator).__name__} has no parameter {name}.")
        private += [(CENTRAL, name, value, None) for value in values]
    if not isinstance(local, Mapping):
        raise TypeError(f"{OWNER}: local must be a mapping from names.")
    for mechanism, several in local.items():
        if not isinstance(several, Sequence):
            raise TypeError(f"local[{mechanism!r}] must be a list.")
        for each in several:
            if not all(hasattr(each, k) for k in ("epsilon", "fit", "transform")):
                rule = "must hold transformers with epsilon, fit and transform"
                raise TypeError(f"local[{mechanism!r}] {rule}; got {each!r}.")
            name = "sigma" if each.epsilon is None else "epsilon"
            private.append((mechanism, name, getattr(each, name), each))
    if not private or not len(seeds):
        kinds = "epsilons, noise_multipliers or local"
        raise ValueError(f"{OWNER} needs {kinds}; and seeds.")
    all_of = [(kind, "", np.nan, None) for kind in (REAL, PLAIN)] + private
    # Numbers as Python's own, which JSON takes.
    return [
        Setting(each[0], int(seed), each[1], np.array(each[2]).item(), each[3])
        for seed in seeds
        for each in all_of
    ]


def _finished(
    study: Study, settings: Sequence[Setting], record: Path, n_jobs: Any, verbose: bool
) -> list[list[dict[str, Any]]]:
    """Run all settings, or read them from the record; return their result rows."""
    keys, results = study.keys(settings), {}
    if record.exists():
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        # The last one may be of a study that was stopped while it wrote.
        whole = [line for line in lines if line.endswith("\n")]
        if whole != lines:
            record.write_text("".join(whole), encoding="utf-8")
        results = {line["key"]: line["lines"] for line in map(json.loads, whole)}
    left = [i for i, key in enumerate(keys) if key not in results]
    run = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    done = run(delayed(_run)(i, study, settings[i]) for i in left)
    for i, figures in watched(done, "study", verbose, total=len(left)):
        results[keys[i]] = figures
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": keys[i], "lines": figures}) + "\n")
    return [results[key] for key in keys]


def _run(i: int, study: Study, setting: Setting) -> tuple[int, list[dict[str, Any]]]:
    """Run one setting; return its result rows: two of a local mechanism, else one."""
    start, seed = time.perf_counter(), setting.seed
    members, others, test = study.split(seed)
    line: dict[str, Any] = {
        "mechanism": setting.mechanism, "scope": "", "parameter": setting.parameter,
        "value": setting.value, "epsilon": np.nan, "seed": seed,
        "chance": float(np.bincount(study.y[test]).max() / len(test)),
        "n_members": len(members), "n_test": len(test),
    }  # fmt: skip
    if setting.mechanism == REAL:
        train, tests = study.labelled(study.X, members), [take(study.X, test)]
        line["accuracy"] = study.accuracies(train, tests, study.y[test], seed)[0]
        return i, [line | {"seconds": time.perf_counter() - start}]
    shown, spent = study.perturbed(setting, members)
    generator = study.generator(setting)
    generator.fit(study.labelled(shown, members))
    fake = generator.sample(study.n_synthetic or len(members), seed)
    line["epsilon"] = _epsilon(generator, setting) if spent is None else spent
    is_local = setting.local is not None
    scopes = {"train": study.X, "full": shown} if is_local else {"": study.X}
    tests = [take(rows, test) for rows in scopes.values()]
    accuracies = study.accuracies(fake, tests, study.y[test], seed)
    parts, lines = [part[: study.n_attacked] for part in (members, others)], []
    for (scope, rows), accuracy in zip(scopes.items(), accuracies, strict=True):
        sides = [study.labelled(rows, part) for part in parts]
        result = study.attacked(generator, sides, fake, seed)
        auc, precision = result.auc, result.average_precision.value
        lines.append({
            **line, "scope": scope, "accuracy": accuracy,
            "average_precision": precision, "auc": auc.value,
            "auc_low": auc.low, "auc_high": auc.high,
            "ssim": study.similarity(generator, sides[1], seed),
            "seconds": time.perf_counter() - start,
        })  # fmt: skip
    return i, lines


def _epsilon(generator: Generator, setting: Setting) -> float:
    """Return the epsilon that a fit spent: the largest of any class."""
    if setting.mechanism == PLAIN:
        return np.inf
    spent = [getattr(m, "epsilon_", None) or setting.epsilon for m in generator.models]
    return float(max(spent))


def form_of(rows: Rows) -> str:
    """Return as a text what the values of rows leave open: shape, names and dtypes."""
    if not isinstance(rows, pd.DataFrame):
        return f"{rows.shape} {rows.dtype}"
    dtypes = rows.dtypes.items()
    # pandas abbreviates long lists of levels.
    return str([(k, str(d), [*getattr(d, "categories", ())]) for k, d in dtypes])


def described(thing: Any) -> str:
    """Return a text for any object that is the same in every run."""
    # Whole, and without parameters at their defaults, so that new ones change nothing.
    is_estimator = hasattr(thing, "get_params")
    text = thing.__repr__(N_CHAR_MAX=10**7) if is_estimator else repr(thing)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def _with_phi(results: pd.DataFrame) -> pd.DataFrame:
    """Add the trade-off of every result against no privacy at the same seed."""
    names = ["accuracy", "average_precision"]
    plain = results[results["mechanism"] == PLAIN].set_index("seed")[names]
    for function in (metrics.phi, metrics.bounded_phi):
        values = []
        for line in results.itertuples():
            best, attacked = plain.loc[line.seed]
            given = best, line.accuracy, attacked, line.average_precision, line.chance
            is_reference = line.mechanism in (REAL, PLAIN)
            values.append(np.nan if is_reference else function(*given))
        results[function.__name__] = values
    last = ["n_members", "n_test", "seconds"]
    return results[[*results.columns.drop(last), *last]]
