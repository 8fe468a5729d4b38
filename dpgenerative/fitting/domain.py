"""What is public of the rows before a fit, and the encoding that a fit releases.

Formal guarantee: of a table, `TableDomain.release` alone releases something, by
`TableTransformer.fit`. An array's encoding depends on nothing but what was stated, and
`LabelledDomain.release` reads rows by `privacy.moments` alone. Rows that `padded`,
`blank` and `select` return are as private as those given.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from dpgenerative.encoding import classes
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.encoding.pixels import Pixels
from dpgenerative.encoding.shares import has_open_domain, has_open_keys
from dpgenerative.encoding.steps import counted
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.models.cells import CellFacts
from dpgenerative.privacy.moments import MOMENTS
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, Release, count_std
from dpgenerative.tables.dtypes import is_real_dtype
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import Rows
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import Sequences

MOMENT_SHARE = 0.5
"""Share of the budget for the moments of classes, where training follows."""


@dataclass(frozen=True)
class TableDomain:
    """Columns of a table.

    Attributes
    ----------
    schema : Schema
        Columns that are learned, in the model's order, with what is public of them.
    with_missing : frozenset of hashable
        Columns that the user's schema says have missing values.
    target : hashable, optional
        The last column as given, which is often the one to predict.
    has_public : bool
        Whether public rows train the model first.
    dtypes : sequence
        Of the columns as they came.
    sequences : Sequences, optional
        Of linked rows: a row of these stands for all rows of a person.
    """

    schema: Schema
    with_missing: frozenset[Hashable] = frozenset()
    target: Hashable = None
    has_public: bool = False
    dtypes: Sequence[Any] = ()
    sequences: Sequences | None = None

    @property
    def counted(self) -> Schema:
        """Columns of which marginals are released."""
        return counted(self.schema, self.sequences)

    def releases(self, anchored: bool, share: float) -> Mapping[Release, float]:
        """Return what `release` releases, and its share: the one given, or nothing.

        Marginals are where the model or an open end of a column needs them.
        """
        columns = learned_columns(self.counted).values()
        is_counted = anchored or any(map(has_open_domain, columns))
        return {MARGINALS: share} if is_counted else {}

    def has_open_keys(self, anchored: bool) -> bool:
        """Return whether any column's levels or spikes are open."""
        columns = learned_columns(self.counted).values()
        return any(has_open_keys(column, anchored) for column in columns)

    def release(
        self, rows: Private, plan: PrivacyPlan, mechanisms: Mechanisms, **cells: Any
    ) -> TableTransformer:
        """Release the marginals; return the way from rows to codes and back.

        `cells` are `n_bins` and `anchored` of `TableTransformer.fit`.
        """
        return TableTransformer.fit(
            rows, self.schema, mechanisms, n_rows=plan.n_rows,
            n_std=count_std(plan.count_epsilon),
            multiplier=plan.multiplier(MARGINALS), delta=plan.threshold_delta,
            with_missing=self.with_missing, target=self.target,
            sequences=self.sequences, **cells,
        )  # fmt: skip

    def made_up(self, dtypes: Mapping[Hashable, Any]) -> Self:
        """Return a domain with made-up levels and bounds where they are open."""
        columns = []
        for column in self.schema.columns:
            if not column.numeric and column.levels is None:
                is_real = is_real_dtype(dtypes[column.name])
                column = replace(column, levels=(0, 1, 2) if is_real else tuple("abc"))
            elif has_open_domain(column) and not column.temporal:
                column = column.bounded(0, 100)
            columns.append(column)
        return replace(self, schema=self.schema.completed(columns))

    @staticmethod
    def drawn(transformer: TableTransformer, n: int, rng: np.random.Generator) -> Any:
        """Return n rows whose cells are drawn at random: not private."""
        sizes = [codec.n_cells for codec in transformer.codecs]
        codes = rng.integers(0, sizes, (n, len(sizes)))
        return transformer.decode(codes, rng.random(codes.shape))

    @staticmethod
    def padded(rows: Any) -> Any:
        """Return the rows, or one of missing values: the first pads batches."""
        return rows if len(rows) else rows.reset_index(drop=True).reindex(range(1))

    @staticmethod
    def blank(rows: Any) -> Any:
        """Return columns and dtypes of rows."""
        return rows.head if isinstance(rows, Rows) else rows.iloc[:0]

    @staticmethod
    def select(rows: Any, places: Sequence[int]) -> Any:
        """Return some rows."""
        return rows.iloc[places].reset_index(drop=True)

    @staticmethod
    def facts(transformer: TableTransformer) -> Sequence[CellFacts]:
        """Return what was released of every column's cells."""
        return [
            CellFacts(
                torch.from_numpy(codec.masses),
                codec.column.is_ordered,
                bool(codec.column.nullable),
                torch.from_numpy(codec.atoms),
                codec.column.numeric and not codec.column.is_ordered,
                codec.column.name in transformer.given,
            )
            for codec in transformer.codecs
        ]


@dataclass(frozen=True)
class ArrayDomain:
    """Arrays of one shape and range, both public: nothing need be released."""

    pixels: Pixels

    schema: ClassVar[Schema] = Schema([])
    has_public: ClassVar[bool] = False
    dtypes: ClassVar[Sequence[Any]] = ()

    def releases(self, anchored: bool, share: float) -> Mapping[Release, float]:
        """Return what `release` releases: nothing."""
        return {}

    def has_open_keys(self, anchored: bool) -> bool:
        """Return whether levels or values are released as keys: there are none."""
        return False

    def release(
        self, rows: Private, plan: PrivacyPlan, mechanisms: Mechanisms, **cells: Any
    ) -> Pixels:
        """Return the way to [0, 1] and back, which is public."""
        return self.pixels

    def made_up(self, dtypes: Mapping[Hashable, Any]) -> Self:
        """Return the domain, which is stated completely."""
        return self

    def drawn(self, transformer: Pixels, n: int, rng: np.random.Generator) -> Any:
        """Return n arrays that are drawn at random: not private."""
        values = rng.random((n, *self.pixels.shape), np.float32)
        return self.pixels.read("", self.pixels.restore(values))

    @staticmethod
    def padded(rows: Any) -> Any:
        """Return the arrays, or one of zeros: the first pads batches."""
        return rows if len(rows) else rows.blank()

    @staticmethod
    def blank(rows: Any) -> Any:
        """Return one array of zeros, of the shape and dtype of these."""
        return rows.blank()

    @staticmethod
    def select(rows: Any, places: Sequence[int]) -> Any:
        """Return some arrays."""
        return rows[np.asarray(places)]

    @staticmethod
    def facts(transformer: Pixels) -> Pixels:
        """Return the public facts of arrays for a model."""
        return transformer


@dataclass(frozen=True)
class LabelledDomain(ArrayDomain):
    """Arrays of one shape and range, and of stated classes.

    Attributes
    ----------
    n_classes : int
    latent_dim : int or None
        Number of components, where it is stated.
    """

    n_classes: int
    latent_dim: int | None

    def releases(self, anchored: bool, share: float) -> Mapping[Release, float]:
        """Return the moments of classes, and their share where training follows."""
        return {MOMENTS: MOMENT_SHARE}

    def release(
        self, rows: Private, plan: PrivacyPlan, mechanisms: Mechanisms, **cells: Any
    ) -> classes.LabelledPixels:
        """Release the moments of every class; return the encoding, which holds them."""
        gaussians = classes.release_gaussians(
            rows, self.pixels.shape, self.n_classes, self.latent_dim, plan, mechanisms
        )
        return classes.LabelledPixels(**vars(self.pixels), gaussians=gaussians)

    def drawn(self, transformer: Pixels, n: int, rng: np.random.Generator) -> Any:
        arrays = super().drawn(transformer, n, rng)
        labels = rng.integers(0, self.n_classes, n)
        return classes.LabelledImages(arrays.values, labels)


Domain = TableDomain | ArrayDomain
"""Interface of a fit to the rows' container."""
