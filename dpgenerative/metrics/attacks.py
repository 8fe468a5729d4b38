"""Membership inference attacks on generative models and on synthetic tables.

The adversary holds records and asks of each whether it was among the training rows.
Every attack gives a score to records that were (``members``) and to records of the same
population that were not (``non_members``); `AttackResult` measures how well the scores
separate the two, and what the guarantee of the attacked run allows at most.

=========================== ======================================= ==================
attack                      the adversary sees                      source
=========================== ======================================= ==================
`reconstruction_attack`     encoder and decoder, as one callable    Hilprecht 2019
`likelihood_attack`         (log-)likelihoods or ELBOs, a callable  Hayes 2019
`monte_carlo_attack`        the synthetic table                     Hilprecht 2019
`domias_attack`             that and reference rows                 van Breugel 2023
`marginal_attack`           that, those, and what was counted       Golob 2024
`logan_attack`              that and reference rows                 Hayes 2019
=========================== ======================================= ==================

Members, non-members and reference rows must be disjoint samples of one population;
tables that share rows are refused. An attack that fails proves nothing, since others
may succeed: only the guarantee bounds them all.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin, clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.preprocessing import OneHotEncoder

from dpgenerative._validation import check_option, count
from dpgenerative.metrics.columns import aligned, takes_tables
from dpgenerative.metrics.distances import Embedding, Points, nearest, summarised
from dpgenerative.metrics.likelihood import row_scores
from dpgenerative.metrics.membership import AttackResult, Privacy, attack_result
from dpgenerative.metrics.records import Rows, disjoint, embedded

_TINY = 1e-12


@takes_tables
def likelihood_attack(
    log_likelihood: Callable[[Rows], np.ndarray],
    members: Rows,
    non_members: Rows,
    *,
    reference: Callable[[Rows], np.ndarray] | None = None,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by the model's own log-likelihood, alone or over another model's.

    Parameters
    ----------
    log_likelihood : callable
        Takes rows and returns one number each: `score_samples` of a flow (the exact
        log-likelihood), the ELBO of a VAE, or a classifier's log-probability.
    members, non_members : DataFrame or ndarray of shape (n, p)
        Rows of the training table, and rows that were held out.
    reference : callable, optional
        The same of a model of other rows of the population, whose log-likelihoods are
        subtracted: the likelihood ratio, which does not mistake common records for
        members.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the attacked model.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        If tables differ in their columns or share rows, or a score is NaN.

    References
    ----------
    Hayes, Melis, Danezis and De Cristofaro, "LOGAN" (2019), the white-box attack;
    Yeom et al. (2018). The ratio: Carlini et al., "Membership inference attacks from
    first principles" (2022), with one other model.

    Examples
    --------
    >>> members, non_members = np.zeros((50, 1)), np.ones((50, 1))
    >>> likelihood_attack(lambda rows: -rows[:, 0], members, non_members).auc.value
    1.0
    """
    tables = disjoint(members=members, non_members=non_members)
    scores = [row_scores("log_likelihood", log_likelihood, rows) for rows in tables]
    if reference is None:
        return attack_result("likelihood", scores, privacy)
    pairs = zip(scores, tables, strict=True)
    ratios = [score - row_scores("reference", reference, rows) for score, rows in pairs]
    return attack_result("likelihood ratio", ratios, privacy)


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
        If tables differ in their columns or members and non-members share rows.

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
    tables = disjoint(members=members, non_members=non_members)
    points, fake = embedded(tables, synthetic)
    closest = np.concatenate([nearest(each, fake)[:, 0] for each in points])
    radius = max(float(np.median(closest)), _TINY)

    def closeness(squares: np.ndarray) -> np.ndarray:
        near = np.clip(squares, _TINY * radius, radius)
        # Half of it, since the distances are squared.
        return 0.5 * np.log(radius / near).mean(axis=1)

    scores = [summarised(each, fake, closeness) for each in points]
    return attack_result("Monte Carlo", scores, privacy)


@takes_tables
def domias_attack(
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    density: str = "neighbors",
    n_neighbors: int = 1,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by the density of synthetic rows over that of reference rows.

    Where synthetic rows are denser than the population, the model has overfitted. By
    nearest neighbours (Loftsgaarden and Quesenberry 1965) the score is the log-ratio of
    a record's distances to its `n_neighbors`-th nearest reference row and to its
    `n_neighbors`-th nearest synthetic row.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
        What was released.
    members, non_members : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out.
    reference : DataFrame of shape (n_reference, p)
        Further rows of the population that the adversary holds.
    density : {"neighbors", "kde"}, default="neighbors"
        How densities are estimated. "kde": by Gaussian kernels, with half a row more
        everywhere, so that records far from all rows do not count. Their width is a
        fifth of the median distance of a record to that neighbour among reference rows.
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
        If tables differ in their columns or real tables share rows, or
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
    tables = disjoint(members=members, non_members=non_members, reference=reference)
    most = min(len(synthetic), len(reference))
    count(high=most, closed="both")("domias_attack", "n_neighbors", n_neighbors)
    check_option("domias_attack", "density", density, ("neighbors", "kde"))
    (*records, others), fake = embedded(tables, synthetic)
    apart = [nearest(each, others, n_neighbors)[:, -1] + _TINY for each in records]
    if density == "neighbors":
        near = [nearest(each, fake, n_neighbors)[:, -1] + _TINY for each in records]
        ratios = [np.log(far / close) for far, close in zip(apart, near, strict=True)]
        return attack_result("DOMIAS", ratios, privacy)
    variance = float(np.median(np.concatenate(apart))) / 25

    def kernels(squares: np.ndarray) -> np.ndarray:
        return np.exp(-squares / (2 * variance)).sum(axis=1)

    sums = [[summarised(x, rows, kernels) for rows in (fake, others)] for x in records]
    share = len(fake) / len(others)
    scores = [np.log((made + 0.5) / (share * real + 0.5)) for made, real in sums]
    return attack_result("DOMIAS, kernels", scores, privacy)


@takes_tables
def marginal_attack(
    synthetic: pd.DataFrame,
    members: pd.DataFrame,
    non_members: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    tables: Sequence[Sequence[Any]] | None = None,
    n_bins: int = 20,
    privacy: Privacy | None = None,
) -> AttackResult:
    """Score records by the density of the cells they lie in over the population's.

    Most private generators count tables of a few columns and add noise. A record's
    score is the sum over such tables of the share of synthetic rows in its cell over
    that of reference rows, of which every cell gets one more.

    Parameters
    ----------
    synthetic : DataFrame of shape (n_synthetic, p)
        What was released.
    members, non_members : DataFrame of shape (n, p)
        Rows of the training table, and rows that were held out.
    reference : DataFrame of shape (n_reference, p)
        Further rows of the population that the adversary holds.
    tables : sequence of sequences of column names, optional
        What the generator counted, such as ``synthesizer.tables_``. None: all pairs of
        columns.
    n_bins : int, default=20
        Cells of a numeric column, of equal shares of the real rows.
    privacy : sequence of (epsilon, delta), optional
        Guarantee of the release.

    Returns
    -------
    AttackResult

    Raises
    ------
    ValueError
        If tables differ in their columns or real tables share rows, or `tables` is
        empty or names a column that is not there.

    References
    ----------
    Golob, Pentyala, Maratkhan and De Cock, "Privacy vulnerabilities in marginals-based
    synthetic data" (2024), MAMA-MIA, without its generators' own ways to choose tables.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members, non_members, reference = (
    ...     pd.DataFrame(rng.normal(size=(500, 5)), columns=list("abcde"))
    ...     for _ in range(3)
    ... )
    >>> marginal_attack(members, members, non_members, reference).auc.value > 0.9
    True
    """
    count(2)("marginal_attack", "n_bins", n_bins)
    synthetic = aligned(members, synthetic)
    names = list(members.columns)
    if tables is None:
        tables = list(combinations(names, min(2, len(names))))
    tables = [tuple(table) for table in tables]
    if not tables:
        raise ValueError("marginal_attack: tables must hold one at least, or be None.")
    if unknown := [name for table in tables for name in table if name not in names]:
        raise ValueError(f"marginal_attack: tables names {unknown}, not in {names}.")
    real = disjoint(members=members, non_members=non_members, reference=reference)
    embed = Embedding(real, [synthetic])
    cells = [_cells(embed(rows), n_bins) for rows in (*real, synthetic)]
    sizes = [len(each) for each in cells]
    together, total = np.concatenate(cells), np.zeros(sum(sizes))
    for table in tables:
        columns = together[:, [embed.names.index(name) for name in table]]
        total += _density_ratio(columns, sizes)
    scores = np.split(total, np.cumsum(sizes)[:-1])[:2]
    return attack_result("marginals", scores, privacy)


def _cells(points: Points, n_bins: int) -> np.ndarray:
    ranks, missing = points.numbers[:, ::2], points.numbers[:, 1::2]
    bins = np.minimum((ranks * n_bins).astype(np.int32), n_bins - 1)
    return np.column_stack([np.where(missing > 0, n_bins, bins), points.levels])


def _density_ratio(cells: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Return each row's share among synthetic over that among reference rows."""
    _, cell = np.unique(cells, axis=0, return_inverse=True)
    *_, reference, fake = np.split(cell.ravel(), np.cumsum(sizes)[:-1])
    n_cells = cell.max() + 1
    counted, made = (np.bincount(x, minlength=n_cells) for x in (reference, fake))
    # One more reference row in every cell: none is empty.
    ratio = (made / len(fake)) / ((counted + 1) / (len(reference) + 1))
    return np.asarray(ratio[cell.ravel()])


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
    """Score records by a classifier of synthetic and reference rows.

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
    TypeError
        If `classifier` has no `predict_proba`.
    ValueError
        If tables differ in their columns or real tables share rows.

    References
    ----------
    Hayes, Melis, Danezis and De Cristofaro, "LOGAN: Membership inference attacks
    against generative models" (2019), the black-box attack, with a classifier in place
    of a second generative adversarial network.
    """
    if classifier is None:
        classifier = RandomForestClassifier(200, random_state=random_state)
    if not hasattr(classifier, "predict_proba"):
        raise TypeError(f"classifier must have predict_proba; got {classifier!r}.")
    tables = disjoint(members=members, non_members=non_members, reference=reference)
    points, fake = embedded(tables, synthetic)
    *records, others, made = _one_hot([*points, fake])
    rng = np.random.default_rng(random_state)
    n = min(len(made), len(others))
    sides = [side[rng.permutation(len(side))[:n]] for side in (others, made)]
    model: Any = clone(classifier)
    model.fit(np.concatenate(sides), np.repeat([0, 1], n))
    scores = [model.predict_proba(each)[:, 1] for each in records]
    return attack_result("LOGAN", scores, privacy)


def _one_hot(tables: Sequence[Points]) -> list[np.ndarray]:
    """Return points as arrays for a classifier, with an indicator per level."""
    if not tables[0].levels.shape[1]:
        return [points.numbers for points in tables]
    encoder = OneHotEncoder(sparse_output=False)
    encoder.fit(np.concatenate([points.levels for points in tables]))
    parts = [(points.numbers, encoder.transform(points.levels)) for points in tables]
    return [np.column_stack(each) for each in parts]
