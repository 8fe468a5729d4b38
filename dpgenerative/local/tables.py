"""Tables: numbers with public bounds and levels, perturbed entry by entry."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import OneToOneFeatureMixin
from sklearn.utils.validation import check_is_fitted

from dpgenerative._random import RandomSource
from dpgenerative._validation import Check, check_number, option, refuse
from dpgenerative.encoding.grid import ends_of, from_steps, in_steps
from dpgenerative.encoding.values import dtype_with_levels, level_codes, restored_levels
from dpgenerative.local.base import PUBLIC, LocalRandomizer
from dpgenerative.local.mechanisms import (
    FINENESS,
    laplace_noise,
    rate_of,
    respond,
    respond_missing,
)
from dpgenerative.local.report import Feature, LocalReport, usual_notes
from dpgenerative.synthesizers.notes import listed, public_facts
from dpgenerative.tables import containers
from dpgenerative.tables.arrow import is_foreign
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import can_hold_missing
from dpgenerative.tables.schema import Schema, check_schema
from dpgenerative.tables.times import in_zones

MISSING_SHARE = 0.25
"""Share of a nullable numeric column's epsilon spent on whether a value is missing."""
LARGEST = 1e307
"""Largest size of numbers that are not clamped."""


@dataclass(frozen=True)
class LaplaceNoise:
    """Perturbation of numbers, or times, between public bounds.

    A value is clipped to the bounds, moved to the nearest of `n_steps` + 1 points that
    are evenly spread between them, and gets noise in whole steps: it moves by
    `n_steps` at most, so that these are of rate epsilon / n_steps.
    """

    column: Column
    dtype: Any
    epsilon: float

    @property
    def n_steps(self) -> int:
        """Distance of the bounds in steps of noise: the column's own steps if few."""
        low, high = ends_of(self.column)
        if not high / 2 - low / 2 > 0:
            return 0
        is_fine = self.column.step is None or high - low > FINENESS
        return FINENESS if is_fine else round(high - low)

    @property
    def value_epsilon(self) -> float:
        """Epsilon of the value: all, or what missing values leave."""
        return self.epsilon * (1 - MISSING_SHARE * bool(self.column.nullable))

    @property
    def mechanism(self) -> str:
        """The perturbation in words."""
        column = self.column
        spread = f"[{column.lower}, {column.upper}]"
        if not self.n_steps:
            return f"the one value of {spread}"
        low, high = ends_of(column)
        scale = (high - low) * (column.step or 1.0) / self.value_epsilon
        unit = f" {column.unit}" if column.temporal else ""
        words = f"Laplace noise of scale {scale:.6g}{unit} after clipping to {spread}"
        return words + ", and whether it is missing" * bool(column.nullable)

    def perturb(self, series: pd.Series, clamp: bool, rng: RandomSource) -> pd.Series:
        """Return every value perturbed, in the dtype of the column."""
        steps, n = in_steps(self.column, series), self.n_steps
        low, high = ends_of(self.column)
        missing = np.isnan(steps)
        if n:
            steps = (steps / 2 - low / 2) / (high / 2 - low / 2)
            places = np.rint(n * np.nan_to_num(steps)).astype(np.int64)
        else:
            places = np.zeros(len(steps), dtype=np.int64)
        if self.column.nullable:
            # A missing value that is reported as present is drawn blindly.
            blind = rng.integers(0, n + 1, len(places))
            places = np.where(missing, blind, places)
            missing = respond_missing(missing, self.epsilon, MISSING_SHARE, rng)
        places = places + laplace_noise(places.shape, self.value_epsilon, n, rng)
        return self._written(np.clip(places, 0, n) if clamp else places, missing, clamp)

    def _written(self, places: np.ndarray, missing: np.ndarray, clamp: bool) -> Any:
        column, (low, high) = self.column, ends_of(self.column)
        share = places / max(1, self.n_steps)
        with np.errstate(over="ignore"):
            steps = 2 * (low / 2 + share * (high / 2 - low / 2))
        steps = np.nan_to_num(steps)  # the largest float for one beyond it
        if column.step is not None:
            steps = np.round(steps)
        if not clamp and not column.temporal:
            far = LARGEST * min(1.0, column.step or 1.0)
            column = replace(column, lower=-far, upper=far)
        return from_steps(column, self.dtype, steps, missing)


@dataclass(frozen=True)
class RandomizedResponse:
    """Randomised response over levels, of which 'missing' is one if values can be."""

    column: Column
    dtype: Any
    epsilon: float

    @property
    def n_options(self) -> int:
        """Number of levels, 'missing' included."""
        return len(self.column.levels or ()) + bool(self.column.nullable)

    @property
    def mechanism(self) -> str:
        """The perturbation in words."""
        keep = 1 / (1 + (self.n_options - 1) * np.exp(-self.epsilon))
        return (
            f"randomised response over {self.n_options} levels, the true one with "
            f"probability {keep:.4g}"
        )

    def perturb(self, series: pd.Series, clamp: bool, rng: RandomSource) -> pd.Series:
        """Return a level for every value, in the dtype of the column."""
        codes = level_codes(series, self.column)
        drawn = respond(codes, self.n_options, self.epsilon, rng)
        return restored_levels(self.column, self.dtype, drawn)


class LaplaceRandomizer(OneToOneFeatureMixin, LocalRandomizer):
    """Perturb every row of a table under local differential privacy.

    Numbers and times get Laplace noise of the width of their public bounds over their
    part of epsilon, levels and truth values generalised randomised response. A row's
    features together cost `epsilon`.

    Parameters
    ----------
    epsilon : float, default=1.0
        Privacy cost of one record, > 0, for any two values of the whole row.
    schema : Schema, optional
        Bounds and levels, as in synthesizers. Values outside the bounds are clipped
        before noise is added; values that are not levels become `other`, missing or the
        first level. Missing values are perturbed as such if the schema states
        ``nullable=True``; otherwise nothing is spent on them, and they count as the
        lower bound, as `other` or as the first level. Constraints are not enforced.
    bounds : (float, float), optional
        Bounds of the numeric columns for which the schema states none.
    shares : "equal" or mapping, default="equal"
        How features share epsilon: weights by name, in (1e-6, 1e6); 1 where none is
        given.
    clamp : bool, default=True
        Clip perturbed numbers to the bounds, which costs nothing but biases their mean
        inwards. False returns them unclipped, as far as the dtype allows.
    random_state : int, RandomState or Generator instance or None, default=None
        Seed of the noise if `noise` is "reproducible"; otherwise unused.
    noise : {"secure", "reproducible"}, default="secure"
        Source of the noise: the operating system's cryptographic generator, or
        `random_state`, in which case anyone who knows the seed can remove it.

    Attributes
    ----------
    privacy_ : LocalReport
        What a transform reveals of one record, feature by feature.
    schema_ : Schema
        The public facts that were used.
    n_features_in_ : int
        Number of columns.
    feature_names_in_ : ndarray of str
        Column names, if all are strings.

    Notes
    -----
    `fit` reads only names and dtypes. Every `transform` of a record spends epsilon
    again. Noise is two-sided geometric on a public grid, drawn in integers: the low
    bits of floats reveal nothing of the value.

    References
    ----------
    Duchi, Jordan and Wainwright. Local Privacy and Statistical Minimax Rates. FOCS
    2013. Kairouz, Oh and Viswanath. Extremal Mechanisms for Local Differential Privacy.
    NeurIPS 2014.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpgenerative import Column, LaplaceRandomizer, Schema
    >>> frame = pd.DataFrame({"age": [31, 47], "smokes": [False, True]})
    >>> schema = Schema([Column("age", "integer", lower=18, upper=99)])
    >>> randomizer = LaplaceRandomizer(epsilon=4.0, schema=schema)
    >>> randomizer.fit_transform(frame).dtypes.tolist()
    [dtype('int64'), dtype('bool')]
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        schema: Schema | None = None,
        bounds: Sequence[float] | None = None,
        shares: str | Mapping[Hashable, float] = "equal",
        clamp: bool = True,
        random_state: Any = None,
        noise: str = "secure",
    ) -> None:
        self.epsilon = epsilon
        self.schema = schema
        self.bounds = bounds
        self.shares = shares
        self.clamp = clamp
        self.random_state = random_state
        self.noise = noise

    _checks: ClassVar[Mapping[str, Check]] = {
        **LocalRandomizer._checks,
        "clamp": option(True, False),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        """Read names and dtypes; fix the noise of every column.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
        y : None
            Ignored; present for API consistency.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a column has no public bounds or levels (the message names it), or a
            parameter is out of its range.
        TypeError
            If a dtype is not supported.
        """
        self._begin()
        check_schema(self._owner, "schema", self.schema)
        frame, layout = self._table(X)
        stated = Schema([]) if self.schema is None else self.schema
        resolved = stated.resolve(frame)
        columns = [
            self._public(c, stated.with_missing, frame.dtypes[c.name])
            for c in resolved.columns
        ]
        self.schema_ = Schema(columns)
        dtypes = [dtype_with_levels(c, frame.dtypes[c.name]) for c in columns]
        facts = zip(columns, dtypes, self._parts(), strict=True)
        self._mechanisms = [
            (LaplaceNoise if column.numeric else RandomizedResponse)(column, *rest)
            for column, *rest in facts
        ]
        for each in self._mechanisms:
            if isinstance(each, LaplaceNoise) and each.n_steps:
                rate_of(each.value_epsilon, each.n_steps)
        self.privacy_ = self._report(resolved, stated)
        self._layout = layout
        self.n_features_in_ = len(columns)
        containers.set_feature_names(self, layout)
        return self

    def transform(self, X: Any) -> Any:
        """Perturb every row; spends epsilon of each, every time.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)

        Returns
        -------
        DataFrame or ndarray of shape (n_samples, n_features)
            In the container, dtypes and index that were given.
        """
        check_is_fitted(self)
        frame, layout = self._table(X)
        frame = containers.matched(self._owner, frame, layout, self._layout)
        Schema(c for c in self.schema_.columns if c.numeric).resolve(frame)
        dtypes = {each.column.name: each.dtype for each in self._mechanisms}
        frame = in_zones(frame, map(dtypes.get, frame.columns))
        rng = self._spend()
        with np.errstate(all="ignore"):
            parts = [
                each.perturb(frame[each.column.name], self.clamp, rng)
                for each in self._mechanisms
            ]
        perturbed = pd.DataFrame(dict(enumerate(parts))).set_axis(frame.index)
        perturbed = perturbed.set_axis(containers.labels(self.schema_.names), axis=1)
        kind, written = layout.x_kind, layout.written
        return replace(self._layout, x_kind=kind, written=written).restore(perturbed)

    def __sklearn_tags__(self) -> Any:
        return containers.table_tags(super().__sklearn_tags__())

    def _table(self, X: Any) -> tuple[pd.DataFrame, containers.TableFormat]:
        """Return a table and its container; lists are arrays of floats."""
        rows = X if is_foreign(X) else containers.as_container(self._owner, X)
        return containers.as_table(self._owner, rows)

    def _public(
        self, column: Column, with_missing: Collection[Hashable], dtype: Any
    ) -> Column:
        """Return a column with all public facts; refuse one that lacks some."""
        if column.is_key:
            rule = f"holds the identifier {column.name!r}: drop the column"
            refuse(self._owner, "schema", rule, column)
        nullable = column.name in with_missing and can_hold_missing(dtype)
        column = replace(column, nullable=nullable)
        is_open = column.numeric and column.lower is None and not column.temporal
        if is_open and self.bounds is not None:
            rule = "must be two numbers in ascending order"
            if not isinstance(self.bounds, Sequence) or len(self.bounds) != 2:
                refuse(self._owner, "bounds", rule, self.bounds)
            for end in self.bounds:
                check_number(self._owner, "bounds", end)
            column = replace(column, lower=self.bounds[0], upper=self.bounds[1])
        if (column.lower if column.numeric else column.levels) is None:
            fact = "bounds" if column.numeric else "levels"
            raise ValueError(
                f"{self._owner} needs public {fact} of column {column.name!r}, which "
                "must not come from the rows: state them in a Schema."
            )
        return column

    def _parts(self) -> list[float]:
        """Return the part of epsilon of every column, in order."""
        names = self.schema_.names
        is_equal = isinstance(self.shares, str) and self.shares == "equal"
        shares: Any = {} if is_equal else self.shares
        if not isinstance(shares, Mapping):
            refuse(self._owner, "shares", "must be 'equal' or a mapping", self.shares)
        if unknown := [name for name in shares if name not in names]:
            refuse(self._owner, "shares", "must name columns of X", unknown)
        for name, share in shares.items():
            check_number(self._owner, f"shares[{name!r}]", share, low=1e-6, high=1e6)
        weights = [float(shares.get(name, 1.0)) for name in names]
        return [self.epsilon * weight / sum(weights) for weight in weights]

    def _report(self, resolved: Schema, stated: Schema) -> LocalReport:
        features = tuple(
            Feature(m.column.name, m.epsilon, m.mechanism) for m in self._mechanisms
        )
        notes = usual_notes(self.noise, self.epsilon)
        both = zip(resolved.columns, self.schema_.columns, strict=True)
        if read := [a.name for a, b in both if a.nullable and not b.nullable]:
            notes += (
                f"Missing values of {listed(read)}, and those that are no level, count "
                "as the lower bound, `other` or the first level. State nullable=True "
                "in a Schema to have them perturbed as such.",
            )
        typed = [c.name for c in resolved.columns if c.kind == "categorical"]
        facts = PUBLIC, *public_facts(self.schema_, stated, typed)
        return LocalReport(
            self.epsilon, 0.0, features, facts, "any two values of one row",
            self.epsilon, notes,
        )  # fmt: skip
