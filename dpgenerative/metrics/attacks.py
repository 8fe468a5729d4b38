"""Membership inference attacks on generative models and on synthetic tables.

The adversary holds records and asks of each whether it was among the training rows.
Every attack gives a score to records that were (``members``) and to records of the same
population that were not (``non_members``); `AttackResult` tells how well the scores
separate the two, and what the guarantee of the attacked run allows at most.

=========================== ======================================= ==================
attack                      the adversary sees                      source
=========================== ======================================= ==================
`reconstruction_attack`     encoder and decoder, as one callable    Hilprecht 2019
`likelihood_attack`         (log-)likelihoods or ELBOs, a callable  Hayes 2019
`monte_carlo_attack`        the synthetic table                     Hilprecht 2019
`domias_attack`             that and reference rows                 van Breugel 2023
`logan_attack`              that and reference rows                 Hayes 2019
=========================== ======================================= ==================

Members, non-members and reference rows must be disjoint samples of one population;
tables that share rows are refused. An attack that fails proves nothing, since others
may succeed: only the guarantee bounds them all.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import OneHotEncoder

from dpgenerative._intervals import clopper_pearson
from dpgenerative._progress import watched
from dpgenerative._validation import check_number, check_option
from dpgenerative.metrics.columns import (
    MIN_ROWS,
    aligned,
    as_floats,
    is_number,
    takes_tables,
)
from dpgenerative.metrics.distances import (
    Embedding,
    Points,
    blocks,
    nearest,
    structural_similarity,
)
from dpgenerative.metrics.membership import (
    AttackResult,
    Privacy,
    attack_result,
)

_TINY = 1e-12
_OVERLAP_CONFIDENCE = 1 - 1e-6

Rows = Any  # DataFrame or ndarray of shape (n, p)
Distance = Callable[[Rows, Rows], np.ndarray]


@takes_tables
def reconstruction_attack(
    reconstruct: Callable[[Rows], Rows],
    members: Rows,
    non_members: Rows,
    *,
    n_draws: int = 300,
    distance: str | Distance = "mse",
    image_shape: tuple[int, int] | None = None,
    privacy: Privacy | None = None,
    verbose: bool = False,
) -> AttackResult:
    """Score records by how closely the model reconstructs them.

    A record's score is minus its mean distance to `n_draws` reconstructions, each
    decoded from a fresh sample of the record's latent distribution.

    Parameters
    ----------
    reconstruct : callable
        Takes rows and returns one reconstruction of each, with the same shape and
        columns, from latents sampled anew at every call: of a fitted autoencoder of
        this package ``partial(synthesizer.reconstruct, sampled=True)``.
    members, non_members : DataFrame or ndarray of shape (n, ...)
        Rows of the training table, and rows that were held out; as many of each as
        published, so that guessing has an average precision of 1/2.
    n_draws : int, default=300
        Number N of reconstructions per record; 300 as published.
    distance : {"mse", "ssim", "mixed"} or callable, default="mse"
        "mse": mean squared difference of numbers. "ssim": one minus the structural
        similarity of grey images, of bytes or with values in [0, 1]. Both as published.
        "mixed", for tables: number of differing levels plus squared differences of
        ranks. A callable takes rows and reconstructions and returns one distance per
        row.
    image_shape : (int, int), optional
        Height and width, for "ssim"; None reads them from arrays that are not flat.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the attacked model, such as ``synthesizer.privacy_.curve()``.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        When tables differ in their columns, share rows, or a parameter is out of range.

    References
    ----------
    Hilprecht, Haerterich and Bernau, "Monte Carlo and Reconstruction Membership
    Inference Attacks against Generative Models" (2019), section 4.2; Bernau, Robl and
    Kerschbaum (2022), section 3.
    """
    check_number(
        "reconstruction_attack", "n_draws", n_draws, low=1, closed="left", integer=True
    )
    members, non_members = _disjoint(members=members, non_members=non_members)
    measure = _measure(distance, members, non_members, image_shape)
    totals = [np.zeros(len(members)), np.zeros(len(non_members))]
    for _ in watched(range(n_draws), "reconstruction attack", verbose):
        for total, rows in zip(totals, (members, non_members), strict=True):
            total += measure(rows, reconstruct(rows))
    scores = [-total / n_draws for total in totals]
    return attack_result("reconstruction", scores, privacy)


def _measure(
    distance: str | Distance,
    members: Rows,
    non_members: Rows,
    image_shape: tuple[int, int] | None,
) -> Distance:
    if callable(distance):
        return distance
    owner = "reconstruction_attack"
    check_option(owner, "distance", distance, ("mse", "ssim", "mixed"))
    if distance == "mse":
        return lambda one, other: ((_array(one) - _array(other)) ** 2).mean(1)
    if distance == "ssim":
        shape = image_shape or np.shape(members)[-2:]
        if image_shape is None and np.ndim(members) < 3:
            raise ValueError(f"{owner} needs image_shape with distance='ssim'.")
        largest = 255.0 if getattr(members, "dtype", None) == np.uint8 else 1.0
        return lambda x, y: (
            1 - structural_similarity(_array(x), _array(y), shape, data_range=largest)
        )
    if not isinstance(members, pd.DataFrame):
        raise TypeError(f"{owner} takes DataFrames with distance='mixed'.")
    embed = Embedding(pd.concat([members, non_members]))
    return lambda one, other: embed(one).squares(embed(other))


@takes_tables
def likelihood_attack(
    log_likelihood: Callable[[Rows], np.ndarray],
    members: Rows,
    non_members: Rows,
    *,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by the model's own log-likelihood, or a bound on it.

    Parameters
    ----------
    log_likelihood : callable
        Takes rows and returns one number each: `score_samples` of a flow (the exact
        log-likelihood), the ELBO of a VAE, or a classifier's log-probability.
    members, non_members : DataFrame or ndarray of shape (n, p)
        Rows of the training table, and rows that were held out.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the attacked model.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        When tables differ in their columns or share rows, or a score is NaN.

    References
    ----------
    Hayes, Melis, Danezis and De Cristofaro, "LOGAN" (2019), the white-box attack;
    Yeom et al. (2018).

    Examples
    --------
    >>> members, non_members = np.zeros((50, 1)), np.ones((50, 1))
    >>> likelihood_attack(lambda rows: -rows[:, 0], members, non_members).auc.value
    1.0
    """
    members, non_members = _disjoint(members=members, non_members=non_members)
    scores = [np.asarray(log_likelihood(rows)) for rows in (members, non_members)]
    return attack_result("likelihood", scores, privacy)


@takes_tables
def monte_carlo_attack(
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    *,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by how many synthetic rows lie close to them, and how close.

    A record's score is the mean over synthetic rows of ``log(r / distance)`` for
    distances below r, and 0 for others; r is the median over records of the distance to
    the closest synthetic row (the median heuristic). Distances are "mixed" as in
    `reconstruction_attack`.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
        What was released.
    members, non_members : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the release.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        When tables differ in their columns or members and non-members share rows.

    References
    ----------
    Hilprecht, Haerterich and Bernau (2019), section 4.1, f_MC-d with the median
    heuristic. Takes O(n n_synthetic) time.

    Examples
    --------
    >>> members = pd.DataFrame({"a": np.arange(0.0, 50)})
    >>> non_members = members + 0.5
    >>> monte_carlo_attack(members, members, non_members).auc.value
    1.0
    """
    tables = _disjoint(members=members, non_members=non_members)
    points, fake = _embedded(tables, synthetic)
    closest = np.concatenate([nearest(each, fake)[:, 0] for each in points])
    radius = max(float(np.median(closest)), _TINY)
    scores = [_closeness(each, fake, radius) for each in points]
    return attack_result("Monte Carlo", scores, privacy)


def _closeness(points: Points, fake: Points, radius: float) -> np.ndarray:
    parts = []
    for distances in blocks(points, fake):
        rows, columns = np.nonzero(distances < radius)
        close = np.log(radius / np.maximum(distances[rows, columns], _TINY * radius))
        parts.append(np.bincount(rows, weights=close, minlength=len(distances)))
    # Half of it, since the distances are squared.
    return 0.5 * np.concatenate(parts) / len(fake)


@takes_tables
def domias_attack(
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    n_neighbors: int = 1,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by the density of synthetic rows over that of reference rows.

    Where synthetic rows are denser than the population, the model has overfitted. Both
    densities are nearest-neighbour estimates (Loftsgaarden and Quesenberry 1965): the
    score is the log-ratio of a record's distances to its `n_neighbors`-th nearest
    reference row and to its `n_neighbors`-th nearest synthetic row.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
        What was released.
    members, non_members : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out.
    reference : DataFrame of shape (n_reference, p)
        Further rows of the population that the adversary holds.
    n_neighbors : int, default=1
        1 finds copies of single rows, more find regions that are too dense.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the release.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        When tables differ in their columns or real tables share rows, or
        `n_neighbors` exceeds the rows of a table.

    References
    ----------
    Van Breugel, Sun, Qian and van der Schaar, "Membership inference attacks against
    synthetic data through overfitting detection" (2023), equation (2).

    Examples
    --------
    >>> members = pd.DataFrame({"a": np.arange(0.0, 50)})
    >>> non_members, reference = members + 0.5, members + 0.25
    >>> domias_attack(members, members, non_members, reference).auc.value
    1.0
    """
    tables = _disjoint(members=members, non_members=non_members, reference=reference)
    most = min(len(synthetic), len(reference))
    check_number(
        "domias_attack", "n_neighbors", n_neighbors, low=1, high=most, closed="both",
        integer=True,
    )  # fmt: skip
    (*known, others), fake = _embedded(tables, synthetic)

    def log_distance(each: Points, table: Points) -> np.ndarray:
        return np.asarray(np.log(nearest(each, table, n_neighbors)[:, -1] + _TINY))

    scores = [log_distance(each, others) - log_distance(each, fake) for each in known]
    return attack_result("DOMIAS", scores, privacy)


@takes_tables
def logan_attack(
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    classifier: ClassifierMixin | None = None,
    random_state: int = 0,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by a classifier that tells synthetic rows from reference rows.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
        What was released.
    members, non_members : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out.
    reference : DataFrame of shape (n_reference, p)
        Further rows of the population that the adversary holds.
    classifier : classifier with `predict_proba`, optional
        None: a random forest of 200 fully grown trees, which can memorize single rows.
    random_state : int, default=0
        Seed of that forest, and of the draw of equally many rows from both tables.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the release.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        When tables differ in their columns or real tables share rows.

    References
    ----------
    Hayes, Melis, Danezis and De Cristofaro, "LOGAN: Membership inference attacks
    against generative models" (2019), the black-box attack, with a classifier in place
    of a second generative adversarial network.
    """
    tables = _disjoint(members=members, non_members=non_members, reference=reference)
    points, fake = _embedded(tables, synthetic)
    *known, others, made = _one_hot([*points, fake])
    rng = np.random.default_rng(random_state)
    n = min(len(made), len(others))
    sides = [side[rng.permutation(len(side))[:n]] for side in (others, made)]
    if classifier is None:
        classifier = RandomForestClassifier(200, random_state=random_state)
    model: Any = clone(classifier)
    model.fit(np.concatenate(sides), np.repeat([0, 1], n))
    scores = [model.predict_proba(each)[:, 1] for each in known]
    return attack_result("LOGAN", scores, privacy)


@dataclass(frozen=True)
class ClosestRecord:
    """Distances from synthetic rows to the closest real ones: a sanity check.

    **It does not measure privacy.** A table can leak without a single close row, and
    rows can be close because the population is dense there. It finds gross copying.

    Attributes
    ----------
    copies, copies_by_chance : float
        Share of synthetic rows that equal a training row, and a held-out row.
    closer_to_training : float
        Share of synthetic rows closer to a training row than to a held-out one, ties
        counting half; fresh rows of the population would give 1/2.
    median_to_training, median_to_holdout : float
        Median squared distance ("mixed") to the closest row of each.
    n : int
        Rows drawn from each of the two real tables, so that neither is denser.
    """

    copies: float
    copies_by_chance: float
    closer_to_training: float
    median_to_training: float
    median_to_holdout: float
    n: int

    def to_frame(self) -> pd.DataFrame:
        """Return one row per statistic."""
        values = pd.Series(self.__dict__, name="value", dtype=float)
        return values.rename_axis("statistic").to_frame()

    def __repr__(self) -> str:
        return (
            f"ClosestRecord(copies={self.copies:.4f}, by chance "
            f"{self.copies_by_chance:.4f}, closer to training "
            f"{self.closer_to_training:.3f}; a sanity statistic, no privacy measure)"
        )


@takes_tables
def closest_record(
    synthetic: pd.DataFrame,
    training: pd.DataFrame,
    holdout: pd.DataFrame,
    *,
    random_state: int = 0,
) -> ClosestRecord:
    """Compare how close synthetic rows come to training rows and to held-out rows.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
    training, holdout : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out. As many rows are drawn
        from the longer one as the shorter one has.
    random_state : int, default=0
        Seed of that draw.

    Returns
    -------
    ClosestRecord

    Raises
    ------
    ValueError
        When tables differ in their columns or the real ones share rows.

    Examples
    --------
    >>> training = pd.DataFrame({"a": np.arange(0.0, 50)})
    >>> found = closest_record(training[:25], training, training + 0.5)
    >>> found.copies, found.closer_to_training
    (1.0, 1.0)
    """
    tables = _disjoint(training=training, holdout=holdout)
    synthetic = aligned(training, synthetic)
    n = min(map(len, tables))
    real = [frame.sample(n, random_state=random_state) for frame in tables]
    points, fake = _embedded(real, synthetic)
    near, far = (nearest(fake, each)[:, 0] for each in points)
    copies = [np.isin(_row_keys(synthetic), _row_keys(each)) for each in real]
    return ClosestRecord(
        copies=float(copies[0].mean()),
        copies_by_chance=float(copies[1].mean()),
        closer_to_training=float((near < far).mean() + (near == far).mean() / 2),
        median_to_training=float(np.median(near)),
        median_to_holdout=float(np.median(far)),
        n=n,
    )


def _embedded(
    real: Sequence[pd.DataFrame], synthetic: pd.DataFrame
) -> tuple[list[Points], Points]:
    """Return the points of real tables and of the synthetic one, ranks by the real."""
    synthetic = aligned(real[0], synthetic)
    embed = Embedding(pd.concat(real), [synthetic])
    return [embed(frame) for frame in real], embed(synthetic)


def _one_hot(tables: Sequence[Points]) -> list[np.ndarray]:
    """Return points as arrays for a classifier, with an indicator per level."""
    if not tables[0].levels.shape[1]:
        return [points.numbers for points in tables]
    encoder = OneHotEncoder(sparse_output=False)
    encoder.fit(np.concatenate([points.levels for points in tables]))
    parts = [(points.numbers, encoder.transform(points.levels)) for points in tables]
    return [np.column_stack(each) for each in parts]


def _array(rows: Rows) -> np.ndarray:
    return np.asarray(rows, dtype=float).reshape(len(rows), -1)


def _disjoint(**tables: Rows) -> list[Rows]:
    """Align real tables and refuse those that share more rows than chance explains."""
    first, *others = tables
    for name in others:
        tables[name] = _alike(tables[first], tables[name], (first, name))
    keys = {name: _row_keys(rows) for name, rows in tables.items()}
    for name, rows in keys.items():
        if len(rows) < MIN_ROWS:
            warnings.warn(
                f"{name} has {len(rows)} rows: with fewer than {MIN_ROWS}, the figures "
                "of an attack are mostly chance.",
                stacklevel=4,
            )
    for one, other in combinations(keys, 2):
        _refuse_overlap(one, keys[one], other, keys[other])
    return list(tables.values())


def _alike(first: Rows, other: Rows, names: tuple[str, str]) -> Rows:
    if isinstance(first, pd.DataFrame):
        return aligned(first, other, names)
    shapes = np.shape(first), np.shape(other)
    if any(len(s) < 2 or 0 in s for s in shapes) or shapes[0][1:] != shapes[1][1:]:
        raise ValueError(
            f"{names[0]} and {names[1]} must have rows of one shape; got shapes "
            f"{shapes[0]} and {shapes[1]}."
        )
    return other


def _row_keys(rows: Rows) -> np.ndarray:
    """Return a hash of each row: equal for equal rows, whatever their dtypes."""
    is_frame = isinstance(rows, pd.DataFrame)
    frame = rows if is_frame else pd.DataFrame(np.reshape(rows, (len(rows), -1)))
    plain = {
        j: as_floats(column) if is_number(column) else column.astype(object).astype(str)
        for j, (_, column) in enumerate(frame.items())
    }
    keys = pd.util.hash_pandas_object(pd.DataFrame(plain), index=False)
    return np.asarray(keys)


def _refuse_overlap(
    one: str, one_keys: np.ndarray, other: str, other_keys: np.ndarray
) -> None:
    """Refuse `other` if it repeats `one` more often than `one` itself, or wholly."""
    shared = np.isin(other_keys, one_keys)
    repeated = pd.Series(one_keys).duplicated(keep=False).to_numpy()
    most = clopper_pearson(int(repeated.sum()), len(repeated), _OVERLAP_CONFIDENCE)[1]
    least = clopper_pearson(int(shared.sum()), len(shared), _OVERLAP_CONFIDENCE)[0]
    if least > most or np.array_equal(np.sort(one_keys), np.sort(other_keys)):
        raise ValueError(
            f"{shared.mean():.1%} of the rows of {other} are rows of {one} too, which "
            f"repeats {repeated.mean():.1%} of its own: the two must be disjoint "
            "draws, or the attack has no meaning."
        )
