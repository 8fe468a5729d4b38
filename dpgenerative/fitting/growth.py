"""Steps of new people, for the correction of a model of linked rows.

A model says how a row follows from the one before. Which rows come before is what it
says itself, so that it is corrected on steps of people whom it has drawn: all rows of
each of them, of which one is a step. Nobody's rows are read.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgenerative.encoding.transformer import TableTransformer

PEOPLE = 2**14
"""People drawn, with all of their rows."""


def steps_of_new_people(
    model: Any, transformer: TableTransformer, generator: torch.Generator
) -> Callable[[int], Tensor]:
    """Return a function from n to the cells of n steps, -1 where a row holds them.

    Parameters
    ----------
    model : HFlow
        An exact one.
    transformer : TableTransformer
        Of linked rows.
    generator : torch.Generator
    """
    sequences = transformer.sequences
    assert sequences is not None
    varying = {*sequences.varying}
    learned = [codec.column.name for codec in transformer.codecs]
    parts = {name for own in varying for name in transformer.parts(own)}
    now = torch.tensor([name in parts for name in learned])

    def drawn(known: Tensor | None, n: int) -> tuple[np.ndarray, np.ndarray]:
        codes, _ = model.sample(n, generator, known=known)
        places = torch.rand(codes.shape, generator=generator, device=codes.device)
        return codes.cpu().numpy(), places.double().cpu().numpy()

    def complete(given: pd.DataFrame) -> pd.DataFrame:
        full = people.loc[given.index].assign(**{c: given[c] for c in given})
        known = torch.from_numpy(transformer.encode(full).astype(np.int64))
        codes, positions = drawn(known.masked_fill(now, -1), len(given))
        values = {c: given[c].reset_index(drop=True) for c in given}
        rows, _ = transformer.rows(codes, positions, values)
        return rows.set_axis(given.index)

    people = transformer.decode(*drawn(None, PEOPLE))
    steps = sequences.steps(sequences.grown(people, complete))
    known = torch.from_numpy(transformer.encode(steps).astype(np.int64))
    known.masked_fill_(now, -1)

    def some(n: int) -> Tensor:
        return known[torch.randint(len(known), (n,), generator=generator)]

    return some
