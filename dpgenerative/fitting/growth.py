"""Correction of a model of linked rows, on new people whom it has drawn.

A model says how a row follows from the one before, and which rows come before is what
it says itself. So it is corrected on new people, with all of their rows. Nobody's rows
are read.

Of a column, the released marginal t is that of rows at all places together; the model's
own, m, is the mean of those at every place, m_p. Rows at place p are brought to
m_p t / m, first rows first: what is corrected there moves those that follow.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dpgenerative.encoding.steps import shares_of_numbers
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.models.cells import LEAST_WEIGHT, Cells, Rake
from dpgenerative.models.factors import TableFactor
from dpgenerative.tables.sequences import NUMBER, PLACE, Sequences

PEOPLE, FEWEST, ROWS = 2**14, 2**11, 2**16
"""People drawn, with all of their rows: fewer of many rows each."""
LEAST_ROWS = 500
"""Rows at a place from which on it has a correction of its own."""

Clamped = Callable[[int], Tensor | None]
"""From a number of rows to their cells where these are given, -1 elsewhere."""


def nothing_clamped(n: int) -> Tensor | None:
    """Return that all cells of n rows are to be drawn."""
    return None


def raked_on_new_people(
    model: Any, transformer: TableTransformer, generator: torch.Generator
) -> Clamped:
    """Rake a model of linked rows; return what is given of steps of new people.

    Parameters
    ----------
    model : HFlow
        An exact one; not changed where rows are not linked.
    transformer : TableTransformer
    generator : torch.Generator
    """
    if (sequences := transformer.sequences) is None:
        return nothing_clamped
    growth = _Growth(model, transformer, sequences, generator)
    wanted = _wanted(model.first, growth.steps()[1])
    clamped, places = growth.steps(wanted)
    _add_factors(model, transformer.place(PLACE), places)

    def some(n: int) -> Tensor:
        size, device = (n,), generator.device
        chosen = torch.randint(len(clamped), size, generator=generator, device=device)
        return clamped[chosen]

    return some


class _AtPlace(Rake):
    """Note, or correct, the marginals of rows at one place.

    Attributes
    ----------
    chances : Tensor of shape (n,)
        How likely each row is its person's step.
    wanted : mapping from column to Tensor of shape (n_cells,)
        Marginals to which they are brought; none notes what they are.
    masses, moves : dict from column to Tensor of shape (n_cells,)
        Marginals, times the sum of chances, and corrections of logits.
    """

    def __init__(self, chances: Tensor, wanted: dict[int, Tensor]) -> None:
        super().__init__(soft=True)
        self.chances, self.wanted = chances, wanted
        self.masses: dict[int, Tensor] = {}
        self.moves: dict[int, Tensor] = {}

    def __call__(self, block: Cells, j: int, logits: Tensor, u: Tensor) -> Tensor:
        self.masses[j] = self.chances @ logits.softmax(1)
        if j not in self.wanted:
            return logits
        self.moves[j] = self.correction(self.wanted[j].log(), logits, u)
        return logits + self.moves[j]

    def _marginal(self, weights: Tensor, factors: Tensor, u: Tensor) -> Tensor:
        parts = self.chances / self.chances.sum() / (weights @ factors)
        return factors * (parts @ weights)


class _Growth:
    """New people of a model, drawn place by place."""

    def __init__(
        self,
        model: Any,
        transformer: TableTransformer,
        sequences: Sequences,
        generator: torch.Generator,
    ) -> None:
        self.model, self.transformer = model, transformer
        self.sequences, self.generator = sequences, generator
        varying = sequences.varying
        parts = {part for name in varying for part in transformer.parts(name)}
        self.now = torch.tensor([name in parts for name in transformer.names])

    def steps(
        self, wanted: Sequence[dict[int, Tensor]] = ()
    ) -> tuple[Tensor, list[_AtPlace]]:
        """Return the cells that are given of one step of each of some people.

        And the marginals at all places, the first one first.

        Parameters
        ----------
        wanted : sequence of dict
            For every place, marginals to which its rows are brought.
        """
        places: list[_AtPlace] = []
        people = self.transformer.decode(*self._drawn(self._n_people))

        def complete(steps: pd.DataFrame) -> pd.DataFrame:
            columns = {name: steps[name] for name in steps}
            others = people.loc[steps.index].drop(columns=[*columns])
            cells = self._given(pd.concat([steps, others], axis=1)[people.columns])
            aims = wanted[len(places)] if len(places) < len(wanted) else {}
            chances = 1 / steps[NUMBER].to_numpy(np.float32, na_value=1)
            places.append(_AtPlace(torch.from_numpy(chances).to(cells.device), aims))
            drawn = self._drawn(len(steps), places[-1], cells)
            values = {name: x.reset_index(drop=True) for name, x in columns.items()}
            return self.transformer.rows(*drawn, values)[0].set_axis(steps.index)

        rows = self.sequences.grown(people, complete)
        return self._given(self.sequences.steps(rows)), places

    @property
    def _n_people(self) -> int:
        place = self.transformer.place(NUMBER)
        shares = shares_of_numbers(self.transformer.codecs[place])
        mean = shares @ np.arange(1, len(shares) + 1)
        return min(PEOPLE, max(FEWEST, round(ROWS / float(mean))))

    def _given(self, steps: pd.DataFrame) -> Tensor:
        codes = torch.from_numpy(self.transformer.encode(steps).astype(np.int64))
        return codes.masked_fill(self.now, -1).to(self.generator.device)

    def _drawn(
        self, n: int, adjust: Rake | None = None, clamped: Tensor | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        codes, _ = self.model.sample(n, self.generator, adjust, clamped)
        shape, device = codes.shape, codes.device
        places = torch.rand(shape, generator=self.generator, device=device)
        return codes.cpu().numpy(), places.double().cpu().numpy()


def _wanted(block: Cells, drawn: Sequence[_AtPlace]) -> list[dict[int, Tensor]]:
    """Return the marginals that rows at each place should have."""
    many = [each for each in drawn if len(each.chances) >= LEAST_ROWS] or drawn[:1]
    wanted: list[dict[int, Tensor]] = [{} for _ in many]
    for j in drawn[0].masses:
        whole = torch.stack([each.masses[j] for each in drawn]).sum(0)
        ratio = block.log_masses[block.cells(j)].exp() / whole.clamp(min=LEAST_WEIGHT)
        for aims, each in zip(wanted, many, strict=True):
            masses = each.masses[j] * ratio
            aims[j] = (masses / masses.sum()).clamp(min=LEAST_WEIGHT)
    return wanted


def _add_factors(model: Any, place: int, made: Sequence[_AtPlace]) -> None:
    """Add the corrections of all places to a model, in one factor per column."""
    for j in [j for j in made[0].moves if j > place]:  # what comes after it
        moves = [each.moves[j] for each in made if each.moves]
        n = model.first.n_cells[place]
        offsets = torch.stack([moves[min(p, len(moves) - 1)] for p in range(n)])
        groups = [torch.arange(n), torch.arange(len(moves[0]))]
        new = TableFactor((place, j), groups, offsets.cpu())
        old = [each for each in model.factors if _are_alike(each, new)]
        for each in old:
            new = replace(new, offsets=new.offsets + each.offsets)
        model.factors = [f for f in model.factors if not _are_alike(f, new)] + [new]


def _are_alike(one: TableFactor, other: TableFactor) -> bool:
    """Return whether factors have offsets for the same cells."""
    sizes = one.offsets.shape == other.offsets.shape
    return one.columns == other.columns and sizes
