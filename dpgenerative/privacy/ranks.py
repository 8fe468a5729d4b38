"""Processes that fit one model together: sums over all of them, and one noise.

Where torch's default process group is open, as in a script that `torchrun` starts, all
of its processes call ``fit`` with the same table, and each keeps a random part of it.
What one of them counts or sums goes through `Mechanisms`, which adds up all parts and
the noise of the first process, and hands the others what was released.

Formal guarantee: none of its own; that of a fit is as before. Every row is in one part
alone, so that sums over parts are the sums over rows, of the same sensitivity. A row
enters its process' batch with probability q, independently of all others: all batches
together are one Poisson batch. Rows go to parts independently of each other: tables
with and without a row can be coupled so that all other rows have their process. What
processes send to each other is as private as the rows.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, distributed

from dpgenerative.tables.rows import Rows

T = TypeVar("T")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a fit, as one of them addresses them.

    Attributes
    ----------
    size : int
        Number of processes.
    rank : int
        Number of this one.
    """

    size: int = 1
    rank: int = 0

    @classmethod
    def present(cls) -> Self:
        """Return the processes of torch's default group; one where there is none."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return cls()
        return cls(distributed.get_world_size(), distributed.get_rank())

    @property
    def is_first(self) -> bool:
        """Whether this is the process that adds noise, writes files and warns."""
        return self.rank == 0

    def share(self, rows: Any, seed: int) -> Any:
        """Return this process' part of a table that all of them have, or can read."""
        if self.size == 1:
            return rows
        n_own = 0
        if isinstance(rows, Rows):
            rows, n_own = rows.dealt(self.rank, self.size)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
        drawn = rng.integers(self.size, size=len(rows) - n_own) == self.rank
        return rows[np.concatenate([np.ones(n_own, dtype=bool), drawn])]

    def gathered(self, value: T) -> list[T]:
        """Return the values of all processes; outside the first one, its own alone."""
        if self.size == 1:
            return [value]
        values: list[Any] | None = [None] * self.size if self.is_first else None
        with _together():
            distributed.gather_object(value, values)
        return [value] if values is None else values

    def same(self, value: T) -> T:
        """Return the first process' value in all of them."""
        if self.size == 1:
            return value
        values = [value if self.is_first else None]
        with _together():
            distributed.broadcast_object_list(values)
        return cast(T, values[0])

    def once(self, work: Callable[[], T]) -> T:
        """Return the first process' result, or raise its error, in all of them."""
        if self.size == 1:
            return work()
        result: T | None = None
        error: Exception | None = None
        if self.is_first:
            try:
                result = work()
            except Exception as raised:
                error = raised
        result, error = self.same((result, error))
        if error is not None:
            raise error
        return cast(T, result)

    def refuse_difference(self, facts: str) -> None:
        """Require that all processes state the same."""
        stated = self.gathered(facts)

        def compare() -> None:
            if len(set(stated)) > 1:
                raise ValueError(
                    "The processes of a fit differ in their parameters, columns, "
                    "dtypes, device or version of dpgenerative, or in whether there "
                    "are public rows or a checkpoint. Call fit with the same table and "
                    "arguments in all of them."
                )

        self.once(compare)

    def total(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return the sums over all processes, the same bits in each of them.

        The tensors, of one dtype and device, are sent around at once.
        """
        if self.size == 1:
            return list(tensors)
        flat = torch.cat([x.flatten() for x in tensors])
        with _together():
            distributed.all_reduce(flat)
        pieces = torch.split(flat, [x.numel() for x in tensors])
        return [part.view_as(x) for part, x in zip(pieces, tensors, strict=True)]


ALONE = ProcessGroup()


@contextmanager
def _together() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "Another process of this fit has ended, failed or does something else, so "
            "that the fit cannot go on. See that process' own error; then start all of "
            f"them again, with a checkpoint if there is one. ({error})"
        ) from error
