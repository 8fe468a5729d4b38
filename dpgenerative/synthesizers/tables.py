"""Synthesizers of tables: what they read, how samples are chosen and returned."""

from collections.abc import Hashable, Iterable, Iterator, Mapping
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from sklearn.utils.validation import check_is_fitted

from dpgenerative._progress import watched
from dpgenerative._validation import Check, check_option, count, number, refuse
from dpgenerative.encoding.codecs import Codec
from dpgenerative.encoding.grid import computed
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.encoding.values import identifiers
from dpgenerative.exceptions import LostColumnWarning, SamplingError
from dpgenerative.fitting.clipping import Sparsified
from dpgenerative.fitting.domain import Domain, TableDomain
from dpgenerative.fitting.fit import Fitted
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.fitting.recipe import ModelRecipe
from dpgenerative.synthesizers import linked, notes, reading, writing
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.conditional import Candidates, check_given
from dpgenerative.synthesizers.session import in_fitted_zones, with_stated_levels
from dpgenerative.tables import containers
from dpgenerative.tables.arrow import in_pandas
from dpgenerative.tables.column import Column
from dpgenerative.tables.schema import Schema, check_schema
from dpgenerative.tables.sequences import one_table

SAMPLE_CHUNK = 2**16


def _sizes(n: int) -> Iterator[int]:
    """Yield the sizes of the parts in which n rows are drawn."""
    return (min(SAMPLE_CHUNK, n - start) for start in range(0, n, SAMPLE_CHUNK))


class BaseTableSynthesizer(Synthesizer):
    """What synthesizers of tables share: what they read, and how rows are drawn."""

    def __init__(
        self,
        *,
        schema: Schema | None,
        categorical_features: Any,
        marginal_budget: float | str,
        **parameters: Any,
    ) -> None:
        super().__init__(**parameters)
        self.schema = schema
        self.categorical_features = categorical_features
        self.marginal_budget = marginal_budget

    _domain_class: ClassVar[type[Domain]] = TableDomain
    _checks: ClassVar[Mapping[str, Check]] = {
        **Synthesizer._checks,
        "schema": check_schema,
        "marginal_budget": number(low=0, high=1, also=["auto"]),
    }

    # Public methods -------------------------------------------------------------

    def sample(
        self,
        n_samples: int | None = None,
        random_state: Any = None,
        *,
        given: Mapping[Hashable, Any] | pd.DataFrame | None = None,
        impute: bool = False,
        max_tries: int = 1000,
    ) -> Any:
        """Draw new rows, each of which follows the model.

        Parameters
        ----------
        n_samples : int, optional
            Number of rows, at least 1. None means 1, or one per row of a table given.
        random_state : int, RandomState or Generator instance or None, default=None
            None gives new rows at every call; an int gives the same rows.
        given : mapping or DataFrame, optional
            Conditions by column name (`tables.conditions`): a value, a list of values,
            a closed interval ``(low, high)``, or None for missing. A table instead asks
            for one completion of every row: columns that it lacks are drawn given those
            that it has; values beyond the bounds count as the nearest bound, and levels
            that are not in `schema_` as `other`. **If its rows are private, so are
            their completions.** Columns are named as in `schema_`.
        impute : bool, default=False
            If `given` is a table, impute its missing values. False conditions on their
            being missing.
        max_tries : int, default=1000
            Maximum number of candidates drawn per row (and for no fewer than 500 rows)
            if those that violate a condition or constraint are drawn again.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            In the container, columns and dtypes of the fitted table; ``(X, y)`` if y
            was fitted too. If `given` is a table, in its order and with its index.

        Raises
        ------
        ValueError
            For conditions that do not fit their columns.
        SamplingError
            If too few candidates satisfy what is asked; the text gives the rate.

        Notes
        -----
        Sampling only reads what `fit` released, and spends nothing. :doc:`/conditional`
        explains how rows are selected from candidates, and when this is exact.
        """
        check_is_fitted(self)
        given = one_table(given, self.schema_.unit)
        given = in_pandas(f"{self._owner}.sample", given)
        check_given(f"{self._owner}.sample", given, impute, max_tries)
        n_samples = self._n_wanted(n_samples, given)
        generator, rng = self._sampling_streams(random_state)
        candidates = self._candidates(generator, rng, max_tries)
        if self._layout.sequences is not None:
            if impute:
                rule = "must be False where rows are linked"
                refuse(f"{self._owner}.sample", "impute", rule, impute)
            frame, given = linked.drawn(self, n_samples, given, candidates, rng), None
        elif isinstance(given, pd.DataFrame):
            frame = candidates.completing(given, impute)
        elif given is None and not self.schema_.constraints:
            frame = pd.concat(self._drawn(n_samples, generator, rng), ignore_index=True)
        else:
            frame = candidates.satisfying(n_samples, given or {})
        return self._layout.restore(self._completed(frame, rng, given))

    def sample_to(
        self,
        path: Any,
        n_samples: int,
        random_state: Any = None,
        *,
        given: Mapping[Hashable, Any] | None = None,
        max_tries: int = 1000,
    ) -> None:
        """Draw new rows and write them to a file, some at a time.

        They are the rows of ``sample(n_samples, random_state)``, with a target as the
        last column, except for identifiers that are UUIDs. If conditions are given, or
        the schema has constraints, rows are drawn and selected part by part: more than
        65,536 rows are then others of the same distribution. Linked rows are one part.

        The file appears when it is complete; until then, a previous file of that name
        stays. After an interruption, the same call starts over. `verbose` shows a
        progress bar.

        Parameters
        ----------
        path : path-like, or pair of these
            Ends in ``.parquet`` (row groups have 65,536 rows) or ``.csv``. People and
            their rows, where both were fitted, go to two files.
        n_samples : int
            Number of rows, at least 1.
        random_state, given, max_tries
            As in `sample`, except that `given` cannot be a table.

        Raises
        ------
        ValueError
            If the path ends otherwise, conditions do not fit their columns, or Parquet
            has no type for a column.
        OSError
            If the file cannot be written.
        SamplingError
            If too few candidates satisfy what is asked; the text gives the rate.
        """
        check_is_fitted(self)
        paths = writing.paths_of(f"{self._owner}.sample_to", path, self._layout.people)
        if not isinstance(given, (Mapping, type(None))):
            refuse(f"{self._owner}.sample_to", "given", "must be a mapping", given)
        check_given(f"{self._owner}.sample", given, False, max_tries)
        n_samples = self._n_wanted(n_samples, None)
        parts = self._finished(n_samples, random_state, given, max_tries)
        n_parts = -(-n_samples // SAMPLE_CHUNK)
        parts = watched(parts, "sampling", bool(self.verbose), total=n_parts)
        writing.write(self._owner, parts, paths, self._layout)

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-density of every row; not private if the rows are.

        Densities are in data units for numbers without a resolution, probabilities for
        integers, levels and missing values.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
        y : Series or ndarray of shape (n_samples,), optional
            Required if the synthesizer was fitted with y.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._scored(X, y)

    def __sklearn_tags__(self) -> Any:
        return containers.table_tags(super().__sklearn_tags__())

    # What is read ---------------------------------------------------------------

    _read = reading.read

    def _domain(self, schema: Schema) -> TableDomain:
        """Return what the fit learns of a table, in the model's order."""
        if schema.unit is not None:
            return linked.domain_of(self, schema)
        schema, with_missing = schema.modelled, self._stated().with_missing
        target = schema.names[-1]
        return TableDomain(self._recipe.ordered(schema), with_missing, target)

    def _assumed_domain(self) -> TableDomain:
        some = Schema([Column("x", "continuous", lower=0, upper=1)])
        stated = self._stated()
        return self._domain(stated if len(stated) else some)

    def _stated(self) -> Schema:
        """Return what the schema states; one of constraints alone has no columns."""
        return Schema([]) if self.schema is None else self.schema

    def _nominal(self, layout: containers.TableFormat) -> list[Hashable]:
        """Return the names in `categorical_features`."""
        chosen = self.categorical_features
        about = self._owner, "categorical_features"
        if chosen is None or isinstance(chosen, str):
            check_option(*about, chosen, ["from_dtype", None])
            return []
        names = list(layout.x_names)
        if not isinstance(chosen, Iterable):
            refuse(*about, "must list names, indices or flags of columns", chosen)
        chosen = containers.labels(list(chosen))
        if chosen.dtype == bool:
            if len(chosen) != len(names):
                refuse(*about, f"must have length {len(names)}", chosen.tolist())
            return [name for name, flag in zip(names, chosen, strict=True) if flag]
        named = layout.is_named and any(isinstance(name, Integral) for name in names)
        by_index = chosen.dtype.kind in "iu" and not named
        if by_index and not all(0 <= i < len(names) for i in chosen):
            refuse(*about, f"must lie in [0, {len(names)})", chosen.tolist())
        columns = [names[i] for i in chosen] if by_index else chosen.tolist()
        if unknown := [name for name in columns if name not in names]:
            refuse(*about, "must name columns of X", unknown)
        return columns

    def _as_fitted(self, X: Any, y: Any) -> pd.DataFrame:
        """Return X and y as one table like the fitted one, or raise ValueError."""
        if self._layout.sequences is not None:
            raise ValueError(f"{self._owner}: rows that are linked have no scores.")
        frame, layout = containers.as_table(self._owner, X, y)
        has_y = layout.y_name is not None
        if has_y != (self._layout.y_name is not None):
            wanted = "without y, and takes no" if has_y else "with y, and needs"
            raise ValueError(f"{self._owner} was fitted {wanted} y here.")
        table = containers.matched(self._owner, frame, layout, self._layout)
        if has_y:
            table[self._layout.y_name] = frame[layout.y_name]
        # By dtype: what fails to convert a value would name it.
        Schema(c for c in self.schema_.modelled.columns if c.numeric).resolve(table)
        return in_fitted_zones(self, table)

    # What the report says -------------------------------------------------------

    def _public_facts(self, schema: Schema) -> tuple[str, ...]:
        dtypes = {c.column.name: c.dtype for c in self._transformer.codecs}
        typed = [n for n, t in dtypes.items() if isinstance(t, pd.CategoricalDtype)]
        schema = schema.without(self._transformer.given)
        return notes.public_facts(schema, self._stated(), typed)

    def _notes(self, schema: Schema, fitted: Fitted) -> tuple[str, ...]:
        codecs, private = self._drawn_codecs(fitted.transformer), fitted.plan.private
        schema = schema.without(fitted.transformer.given)
        lost = notes.lost_columns(schema, codecs, private)
        domain = notes.domain_notes(schema, codecs) if private else ()
        increments = {each.name for each in fitted.transformer.increments}
        also = notes.lost_structure(schema, codecs, increments)
        return (*filter(None, [lost]), *super()._notes(schema, fitted), *domain, *also)

    @staticmethod
    def _drawn_codecs(transformer: TableTransformer) -> list[Codec]:
        """Return the codecs of columns, but for what is given of linked rows."""
        named = transformer.columns.items()
        return [codec for name, codec in named if name not in transformer.given]

    def _warnings(self, schema: Schema) -> Iterator[UserWarning]:
        codecs = self._drawn_codecs(self._transformer)
        private = self.privacy_.plan.private
        schema = schema.without(self._transformer.given)
        if lost := notes.lost_columns(schema, codecs, private):
            yield LostColumnWarning(lost)
        yield from super()._warnings(schema)

    # Samples --------------------------------------------------------------------

    def _drawn(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> Iterator[pd.DataFrame]:
        """Yield n rows in parts, without identifiers and derived columns."""
        for size in _sizes(n):
            codes, inside = self._recipe.draw(self._model, size, generator, rng)
            yield self._transformer.decode(codes, inside)

    def _finished(
        self, n: int, random_state: Any, given: Any, max_tries: int
    ) -> Iterator[pd.DataFrame]:
        """Yield n rows in parts, complete, as one table of X and y."""
        generator, rng = self._sampling_streams(random_state)
        (ids,) = rng.spawn(1)
        candidates = self._candidates(generator, rng, max_tries)
        if self._layout.sequences is not None:
            parts = iter([linked.drawn(self, n, given, candidates, rng)])
        elif given is None and not self.schema_.constraints:
            parts = self._drawn(n, generator, rng)
        else:
            parts = (candidates.satisfying(size, given or {}) for size in _sizes(n))
        layout = self._layout
        names = [*layout.x_names, *([] if layout.y_name is None else [layout.y_name])]
        n_before = 0
        for part in parts:
            rows = self._completed(part, ids, None, n_before)
            yield containers.select_columns(rows, names)
            n_before += len(part)

    def _candidates(
        self, generator: torch.Generator, rng: np.random.Generator, max_tries: int
    ) -> Candidates:
        recipe = self._recipe
        return Candidates(
            f"{self._owner}.sample", self._transformer, linked.learned_schema(self),
            lambda n, shares: recipe.draw_given(self._model, n, shares, generator, rng),
            recipe.can_clamp(self._model), rng, max_tries, self._open_levels(),
        )  # fmt: skip

    def _n_wanted(self, n_samples: Any, given: Any) -> int:
        if isinstance(given, pd.DataFrame):
            if n_samples is not None and n_samples != len(given):
                rule = f"must be None or {len(given)}, the number of rows given"
                refuse(self._owner, "n_samples", rule, n_samples)
            return len(given)
        if n_samples is None:
            return 1
        count()(self._owner, "n_samples", n_samples)
        return int(n_samples)

    def _open_levels(self) -> list[Hashable]:
        """Return the columns whose levels are estimated: others occur."""
        stated = with_stated_levels(self)
        return [
            codec.column.name
            for codec in self._transformer.columns.values()
            if codec.column.kind == "categorical"
            and not isinstance(codec.dtype, pd.CategoricalDtype)
            and codec.column.name not in stated
        ]

    def _completed(
        self,
        frame: pd.DataFrame,
        rng: np.random.Generator,
        given: Any,
        n_before: int = 0,
    ) -> pd.DataFrame:
        """Return sampled rows with derived columns in their dtypes, and identifiers.

        Identifiers are those given, or new ones, of which `n_before` are in use.
        """
        derived = {each.name for each in self.schema_.derived}
        for name, dtype in self._layout.ids:
            if name in derived:
                frame[name] = computed(self.schema_[name], dtype, frame[name])
            elif isinstance(given, pd.DataFrame) and name in given.columns:
                frame[name] = given[name].astype(dtype)
            else:
                made = identifiers(self.schema_[name], len(frame), dtype, rng, n_before)
                frame[name] = made.set_axis(frame.index)
        complete = [c.name for c in self.schema_.columns if not c.nullable]
        if broken := [name for name in complete if frame[name].isna().any()]:
            raise SamplingError(
                f"{self._owner}: values are missing in {notes.listed(broken)}, where "
                "the schema has none, by what is given or by a constraint's repair."
            )
        return frame


class TableSynthesizer(BaseTableSynthesizer):
    """Differentially private synthesizer of mixed-type tables, of any recipe.

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables with the same columns and
    dtypes. The guarantee covers everything that `fit` stores and everything that is
    sampled from it, as long as the recipe keeps the rules of :doc:`/contributing`: the
    loss of a row depends on this row alone, and nothing of the rows is stored. Methods
    are those of `DPHFlowSynthesizer`.

    Parameters
    ----------
    recipe : ModelRecipe
        The model; its parameters are available as ``recipe__name``.
    epsilon, delta, noise_multiplier, max_rows_per_unit, clipping, max_grad_norm, \
            n_partitions
        See `DPHFlowSynthesizer`.
    divergence : BatchTerm, optional
        Clipping norm and aggregation of the recipe's own batch-wise term
        (`ModelRecipe.batch_term`); its divergence is the recipe's.
    schema, categorical_features
        See `DPHFlowSynthesizer`.
    marginal_budget, optimizer, n_steps, batch_size
        See `DPHFlowSynthesizer`; the recipe's rules determine what "auto" means.
    device, random_state, noise, verbose
        See `DPHFlowSynthesizer`.
    """

    def __init__(
        self,
        recipe: ModelRecipe | None = None,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        noise_multiplier: float | None = None,
        max_rows_per_unit: int = 1,
        clipping: str | Sparsified = "flat",
        max_grad_norm: float | str = "auto",
        n_partitions: int = 16,
        divergence: BatchTerm | None = None,
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        marginal_budget: float | str = "auto",
        optimizer: str | Optimizer | None = None,
        n_steps: int | str = "auto",
        batch_size: int | str = "auto",
        device: str = "auto",
        random_state: Any = None,
        noise: str = "fresh",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier,
            max_rows_per_unit=max_rows_per_unit, clipping=clipping,
            max_grad_norm=max_grad_norm, n_partitions=n_partitions,
            divergence=divergence, optimizer=optimizer, n_steps=n_steps,
            batch_size=batch_size, device=device, random_state=random_state,
            noise=noise, verbose=verbose, schema=schema,
            categorical_features=categorical_features, marginal_budget=marginal_budget,
        )  # fmt: skip
        self.recipe = recipe

    @property
    def _recipe(self) -> ModelRecipe:
        """The model."""
        recipe = self.recipe
        if not isinstance(recipe, ModelRecipe):
            refuse(self._owner, "recipe", "must be a ModelRecipe", recipe)
        return recipe
