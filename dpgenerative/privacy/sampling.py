"""Poisson sampling of batches, padded to a static shape.

Formal guarantees: at every step every row enters the batch independently with
probability q, and steps are independent. Padding marks rows as absent; a batch larger
than the static shape comes in several chunks and is never cut. Rows stand at random
places: batches with and without a row can be coupled so that all others (all but one,
if there are several chunks) stand at the same places of arrays of one shape, where what
is computed of them is the same to the last bit. A batch that must not be parted, and is
larger than the static shape, has an array of its own size: there one row changes the
shape.

Edge cases: q = 1 takes every row; an empty batch is one chunk of padding alone.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpgenerative._random import RandomSource
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks


def poisson_indices(
    private: Private[Any], q: float, rng: RandomSource, ledger: Ledger
) -> np.ndarray:
    """Draw the rows of one batch: every row with probability q, independently.

    The rate is noted in the ledger.
    The gaps between successes of independent trials are geometric, so that the cost is
    that of the batch and not of the table.
    """
    n = len(opened(private))
    ledger.sample(q)
    if q >= 1:
        return np.arange(n)
    size = int(n * q + 6 * math.sqrt(n * q) + 16)
    parts: list[np.ndarray] = []
    last = -1
    while last < n:
        rows = last + np.cumsum(np.minimum(rng.geometric(q, size), n + 1))
        parts.append(rows)
        last = int(rows[-1])
    rows = np.concatenate(parts)
    return rows[rows < n]


def capacity(expected_batch_size: float) -> int:
    """Return the static shape that nearly all Poisson batches of this mean fit in."""
    return math.ceil(expected_batch_size + 4 * math.sqrt(expected_batch_size))


def padded_chunks(
    indices: np.ndarray, size: int, rng: RandomSource
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield (indices, present) of shape (size,) until all indices are spent."""
    order = indices[np.argsort(rng.random(len(indices)))]
    for start in range(0, max(1, len(order)), size):
        part = order[start : start + size]
        places = np.argsort(rng.random(size))[: len(part)]
        padded, present = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
        padded[places], present[places] = part, True
        yield torch.from_numpy(padded), torch.from_numpy(present)


def whole_pass(
    rows: Private[Any], size: int, rng: RandomSource
) -> Chunks[tuple[Tensor, Tensor]]:
    """Return all rows in chunks as of batches, at other random places in every pass.

    One row more must not move the others in their arrays.
    """

    def read() -> Iterator[tuple[Tensor, Tensor]]:
        return padded_chunks(np.arange(len(opened(rows))), size, rng)

    return Chunks(Private(read))


def draw_partitions(n: int, n_partitions: int, rng: RandomSource) -> np.ndarray:
    """Put each of n records into one of the partitions, independently, uniformly."""
    return np.asarray(rng.integers(0, n_partitions, size=n))
