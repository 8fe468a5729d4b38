"""Records of an attack: real tables that share none, and those most at risk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._intervals import clopper_pearson
from dpgenerative._validation import count
from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    is_number,
    rounded_off,
    takes_tables,
    warn_if_few,
)
from dpgenerative.metrics.distances import Embedding, Points, nearest
from dpgenerative.tables.arrow import in_pandas, refuse_unread
from dpgenerative.tables.values import as_objects

_OVERLAP_CONFIDENCE = 1 - 1e-6

Rows = Any  # DataFrame or ndarray of shape (n, p)


def disjoint(**tables: Rows) -> list[Rows]:
    """Align real tables and refuse those that share more rows than chance explains."""
    first, *others = tables
    for rows in tables.values():
        refuse_unread(rows)
    for name in others:
        tables[name] = _alike(tables[first], tables[name], (first, name))
    warn_if_few({name: len(rows) for name, rows in tables.items()}, stacklevel=5)
    require_disjoint(**tables)
    return list(tables.values())


def require_disjoint(**tables: Rows) -> None:
    """Refuse tables of the same columns that share rows, as `disjoint`."""
    keys = {name: row_keys(rows) for name, rows in tables.items()}
    for one, other in combinations(keys, 2):
        _refuse_overlap(keys, one, other)


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


def row_keys(rows: Rows) -> np.ndarray:
    """Return a hash of each row: equal for equal rows, whatever their dtypes.

    Booleans are the numbers 0 and 1.
    """
    is_frame = isinstance(rows, pd.DataFrame)
    frame = rows if is_frame else pd.DataFrame(np.reshape(rows, (len(rows), -1)))
    plain = {j: _plain(column) for j, (_, column) in enumerate(frame.items())}
    keys = pd.util.hash_pandas_object(pd.DataFrame(plain), index=False)
    return np.asarray(keys)


def _plain(column: pd.Series) -> Any:
    if pd.api.types.is_bool_dtype(column):
        return pd.util.hash_array(column.to_numpy(dtype=np.float64, na_value=np.nan))
    if not is_number(column):
        texts = (None if x is None else str(x) for x in as_objects(column))
        return [x if x is None else x.encode("utf-8", "surrogatepass") for x in texts]
    values = as_floats(column) + 0.0  # which makes zeros of either sign one
    rest = rounded_off(column, values)
    keys = pd.util.hash_array(values)
    return np.where(rest == 0, keys, keys ^ pd.util.hash_array(rest))


def _refuse_overlap(keys: dict[str, np.ndarray], one: str, other: str) -> None:
    """Refuse `other` if it repeats `one` more often than `one` itself, or wholly."""
    shared = np.isin(keys[other], keys[one])
    repeated = pd.Series(keys[one]).duplicated(keep=False).to_numpy()
    most = clopper_pearson(int(repeated.sum()), len(repeated), _OVERLAP_CONFIDENCE)[1]
    least = clopper_pearson(int(shared.sum()), len(shared), _OVERLAP_CONFIDENCE)[0]
    if least > most or np.array_equal(np.sort(keys[one]), np.sort(keys[other])):
        raise ValueError(
            f"{shared.mean():.1%} of the rows of {other} are rows of {one} too, which "
            f"repeats {repeated.mean():.1%} of its own: the two must be disjoint "
            "draws, or the attack has no meaning."
        )


def embedded(
    real: Sequence[pd.DataFrame], synthetic: pd.DataFrame
) -> tuple[list[Points], Points]:
    """Return the points of real and synthetic tables, with ranks among real rows."""
    synthetic = aligned(real[0], synthetic)
    embed = Embedding(real, [synthetic])
    return [embed(frame) for frame in real], embed(synthetic)


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
        If tables differ in their columns or the real ones share rows.

    Examples
    --------
    >>> training = pd.DataFrame({"a": np.arange(0.0, 50)})
    >>> closest = closest_record(training[:25], training, training + 0.5)
    >>> closest.copies, closest.closer_to_training
    (1.0, 1.0)
    """
    tables = disjoint(training=training, holdout=holdout)
    synthetic = aligned(training, synthetic)
    n = min(map(len, tables))
    real = [frame.sample(n, random_state=random_state) for frame in tables]
    points, fake = embedded(real, synthetic)
    near, far = (nearest(fake, each)[:, 0] for each in points)
    copies = [np.isin(row_keys(synthetic), row_keys(each)) for each in real]
    return ClosestRecord(
        copies=float(copies[0].mean()),
        copies_by_chance=float(copies[1].mean()),
        closer_to_training=float((near < far).mean() + (near == far).mean() / 2),
        median_to_training=float(np.median(near)),
        median_to_holdout=float(np.median(far)),
        n=n,
    )


# Records at risk ----------------------------------------------------------------------


def vulnerable_records(
    X: pd.DataFrame, n: int, *, n_neighbors: int = 5
) -> pd.DataFrame:
    """Return the rows that lie farthest from their neighbours.

    Numbers count by their ranks, as in the attacks: a number far beyond all others is
    as far from them as the next one, and levels are 0 or 1 apart.

    Attacks find outliers first. Split what this returns into members and non-members by
    a coin each, fit, and attack these records alone.

    Parameters
    ----------
    X : DataFrame of shape (n_rows, p)
    n : int
        Number of records to return.
    n_neighbors : int, default=5
        Number of neighbours whose mean distance counts; 5 as published.

    Returns
    -------
    DataFrame of shape (n, p)
        The farthest row first.

    Raises
    ------
    TypeError
        If `X` is not a table.
    ValueError
        If `n` or `n_neighbors` exceeds the rows that there are, or `X` has no row or a
        repeated column.

    References
    ----------
    Meeus, Guepin, Cretu and de Montjoye, "Achilles' Heels: Vulnerable record
    identification in synthetic data publishing" (2023).

    Examples
    --------
    >>> X = pd.DataFrame({"a": ["x"] * 98 + ["y", "z"]})
    >>> sorted(vulnerable_records(X, 2)["a"])
    ['y', 'z']
    """
    owner = "vulnerable_records"
    X = in_pandas(owner, X)
    most = len(aligned(X, X, ("X", "X")))
    count(high=most, closed="both")(owner, "n", n)
    count(high=most - 1, closed="both")(owner, "n_neighbors", n_neighbors)
    return X.iloc[np.argsort(-_apart(X, n_neighbors), kind="stable")[:n]]


@takes_tables
def _apart(X: pd.DataFrame, n_neighbors: int) -> np.ndarray:
    """Return each row's mean distance to its nearest neighbours."""
    points = Embedding([X])(X)
    # A row is its own nearest one.
    distances = np.sqrt(nearest(points, points, n_neighbors + 1)[:, 1:])
    return np.asarray(distances.mean(1))


def crafted_canaries(
    log_likelihood: Callable[[pd.DataFrame], np.ndarray],
    reference: pd.DataFrame,
    n: int,
    *,
    n_candidates: int = 20,
    random_state: int = 0,
) -> pd.DataFrame:
    """Return made-up rows that a model of other rows finds least likely.

    Put each into the training table by a coin, fit, and attack these records by the
    likelihood ratio of both models: what is fitted to such a row shows.

    Parameters
    ----------
    log_likelihood : callable
        Of the auxiliary model, fitted to `reference`: takes rows and returns a number
        each, such as `score_samples`.
    reference : DataFrame of shape (n_reference, p)
        Rows of the population. Every value of a candidate is drawn uniformly from the
        distinct values of its column here.
    n : int
        Number of canaries.
    n_candidates : int, default=20
        Rows made for each canary; the least likely ones are returned.
    random_state : int, default=0

    Returns
    -------
    DataFrame of shape (n, p)
        With the dtypes of `reference`; the least likely row first.

    Raises
    ------
    TypeError
        If `reference` is not a table.
    ValueError
        If it has no row, no column or a repeated column.

    Examples
    --------
    >>> reference = pd.DataFrame({"a": [0, 1, 2, 3, 4]})
    >>> crafted_canaries(lambda rows: rows["a"], reference, 3)["a"].tolist()
    [0, 0, 0]
    """
    count()("crafted_canaries", "n", n)
    count()("crafted_canaries", "n_candidates", n_candidates)
    reference = in_pandas("crafted_canaries", reference)
    aligned(reference, reference, ("reference", "reference"))
    rng = np.random.default_rng(random_state)
    made = {}
    for name, column in reference.items():
        distinct = column.drop_duplicates().reset_index(drop=True)
        places = rng.integers(len(distinct), size=n * n_candidates)
        made[name] = distinct.take(places).reset_index(drop=True)
    rows = pd.DataFrame(made).set_axis(reference.columns, axis=1)
    likely = np.asarray(log_likelihood(rows))
    return rows.iloc[np.argsort(likely, kind="stable")[:n]].reset_index(drop=True)
