"""Mean embeddings of classes: sums of random Fourier features of the rows of a class.

A row's cell in every column has D whole numbers, its *phases*. Added up modulo one
turn they are D angles, of which cosine and sine, in whole numbers again, are the row's
2 D features. Phases are drawn from public randomness and released masses (Rahimi and
Recht 2007; as private releases of all rows, Harder et al. 2021).

Formal guarantee: the squares of the two features of an angle add up to at most
`SCALE`^2 (`_CIRCLE` is rounded towards 0), so that a row's features have a norm of at
most `SCALE` sqrt(D). A row adds them to the sums of its class alone, and nothing if its
class is not listed. Sums of whole numbers are exact in any order. So a row more or less
moves all sums together by at most `SCALE` sqrt(D).
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.tables.private import Private

EMBEDDING = Release(
    "embedding",
    "mean embeddings of the classes of the column that the model takes first, by "
    "random features of the other columns ({noise})",
)
SCALE = 2**14
"""The length that stands for 1."""
TURN = 2**10
"""The angle that stands for a whole turn: it divides that of `int16`, 2^16, so that
sums which wrap around stay what they are, modulo one turn."""
CHUNK = 2**12
"""Rows whose features are made at a time."""
_ANGLES = np.arange(TURN) * (2 * math.pi / TURN)
_CIRCLE = np.trunc(SCALE * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)]))

Phases = Sequence[np.ndarray]
"""Of every column but the first: int16 arrays (n_cells, D), from 0 to TURN - 1."""


def features(codes: np.ndarray, phases: Phases) -> np.ndarray:
    """Return features of rows of cells, whole numbers of shape (n, 2 D).

    Parameters
    ----------
    codes : ndarray of shape (n, d)
    phases : sequence of ndarray of int16
        Of the d - 1 columns after the first, each of shape (n_cells, D).
    """
    angles = np.zeros((len(codes), phases[0].shape[1]), np.int16)
    for j, own in enumerate(phases, 1):
        angles += own[codes[:, j]]
    places = angles & (TURN - 1)
    return np.concatenate([part[places] for part in _CIRCLE], axis=1)


def class_sums(codes: np.ndarray, phases: Phases, classes: Sequence[int]) -> np.ndarray:
    """Return the sums of features over the rows of every class; private.

    Parameters
    ----------
    codes : ndarray of shape (n, d)
    phases : sequence of ndarray
    classes : sequence of int
        Different cells of the first column.

    Returns
    -------
    ndarray of int64 of shape (n_classes, 2 D)
    """
    total = np.zeros((len(classes), 2 * phases[0].shape[1]), np.int64)
    for start in range(0, len(codes), CHUNK):
        part = codes[start : start + CHUNK]
        member = part[:, :1] == np.asarray(classes)
        # Whole numbers below 2^53: exact.
        total += (member.T.astype(float) @ features(part, phases)).astype(np.int64)
    return total


def release_embeddings(
    codes: Private[np.ndarray],
    phases: Phases,
    classes: Sequence[int],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
) -> tuple[np.ndarray, float]:
    """Release the sums of all classes.

    Parameters
    ----------
    codes : Private of ndarray of shape (n, d)
        Cells of all rows.
    phases, classes
        See `class_sums`.
    plan : PrivacyPlan
    mechanisms : Mechanisms

    Returns
    -------
    sums : ndarray of shape (n_classes, 2 D)
        Of features of norm 1.
    std : float
        Standard deviation of the noise of every entry.
    """
    exact = codes.map(partial(class_sums, phases=phases, classes=classes))
    sensitivity = SCALE * math.sqrt(phases[0].shape[1])
    z = plan.multiplier(EMBEDDING)
    noisy = mechanisms.gaussian(
        exact, z * sensitivity, release=EMBEDDING.name, sensitivity=sensitivity
    )
    return noisy / sensitivity, z
