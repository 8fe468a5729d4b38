"""Membership inference by how well a model reconstructs records."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype as is_numeric

from dpgenerative._progress import watched
from dpgenerative._validation import check_option, count
from dpgenerative.metrics.columns import aligned, takes_tables
from dpgenerative.metrics.distances import Embedding, structural_similarity
from dpgenerative.metrics.likelihood import row_scores
from dpgenerative.metrics.membership import AttackResult, Privacy, attack_result
from dpgenerative.metrics.records import Rows, disjoint

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
        If tables differ in their columns, share rows, or a parameter is out of range;
        if `reconstruct` returns other shapes or columns, or `distance` not one number
        per row.

    References
    ----------
    Hilprecht, Haerterich and Bernau, "Monte Carlo and Reconstruction Membership
    Inference Attacks against Generative Models" (2019), section 4.2; Bernau, Robl and
    Kerschbaum (2022), section 3.
    """
    count()("reconstruction_attack", "n_draws", n_draws)
    tables = disjoint(members=members, non_members=non_members)
    measure = _measure(distance, tables, image_shape)
    totals = [np.zeros(len(rows)) for rows in tables]
    for _ in watched(range(n_draws), "reconstruction attack", verbose):
        for total, rows in zip(totals, tables, strict=True):
            again = _reconstructed(reconstruct, rows)
            total += row_scores("distance", partial(measure, rows), again)
        if any(np.isnan(total).any() for total in totals):
            break  # for good: `attack_result` refuses them
    scores = [-total / n_draws for total in totals]
    return attack_result("reconstruction", scores, privacy)


def _reconstructed(reconstruct: Callable[[Rows], Rows], rows: Rows) -> Rows:
    """Return reconstructions of rows, of a frame with its columns in its order."""
    again = reconstruct(rows)
    if isinstance(rows, pd.DataFrame) and isinstance(again, pd.DataFrame):
        again = aligned(rows, again, ("rows", "reconstruct(rows)"))
    wanted, got = np.shape(rows), np.shape(again)
    if got[:1] != wanted[:1] or math.prod(got) != math.prod(wanted):
        raise ValueError(
            f"reconstruct must return what it takes, of shape {wanted}; got {got}."
        )
    return again


def _measure(
    distance: str | Distance, tables: list[Rows], image_shape: tuple[int, int] | None
) -> Distance:
    if callable(distance):
        return distance
    owner, members = "reconstruction_attack", tables[0]
    check_option(owner, "distance", distance, ("mse", "ssim", "mixed"))
    is_frame = isinstance(members, pd.DataFrame)
    if distance == "mse":
        if is_frame and not all(members.dtypes.map(is_numeric)):
            raise TypeError(f"{owner} takes levels with distance='mixed' alone.")
        return lambda one, other: ((_array(one) - _array(other)) ** 2).mean(1)
    if distance == "ssim":
        shape = image_shape or np.shape(members)[-2:]
        if image_shape is None and np.ndim(members) < 3:
            raise ValueError(f"{owner} needs image_shape with distance='ssim'.")
        largest = 255.0 if getattr(members, "dtype", None) == np.uint8 else 1.0
        return lambda x, y: 1 - structural_similarity(x, y, shape, largest)
    if not is_frame:
        raise TypeError(f"{owner} takes DataFrames with distance='mixed'.")
    embed = Embedding(tables)

    def mixed(one: Rows, other: Rows) -> np.ndarray:
        if not isinstance(other, pd.DataFrame):
            got = type(other).__name__
            raise TypeError(f"{owner}: reconstruct must return a DataFrame; got {got}.")
        return embed(one).squares(embed(other))

    return mixed


def _array(rows: Rows) -> np.ndarray:
    if isinstance(rows, pd.DataFrame):
        return rows.to_numpy(float, na_value=np.nan)
    return np.asarray(rows, dtype=float).reshape(len(rows), -1)
