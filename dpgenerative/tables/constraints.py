"""Facts about several columns at once, which every sampled row satisfies.

They are stated in a `Schema`, so they are public: known from a form, a law or a code
book, never read off the private rows. Nothing is spent on them. The second column of
an order is learned as its distance from the first where possible (`increments`).
Models do not learn the others; `sample` draws rows that break them again, or repairs
them where only one value fits, and both are post-processing of what was released.
Conditions on single columns are explained in `tables.conditions`.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar, NoReturn

import numpy as np
import pandas as pd
from pandas.api.types import is_hashable

from dpgenerative._validation import shown
from dpgenerative.tables.column import Column
from dpgenerative.tables.conditions import (
    alternatives,
    check_condition,
    on_line,
    refuse_condition,
    satisfies,
)
from dpgenerative.tables.dtypes import can_hold, can_hold_missing
from dpgenerative.tables.times import count_of
from dpgenerative.tables.values import as_json, as_stored, is_missing

Facts = Mapping[Hashable, Column]


class Constraint(ABC):
    """A fact about rows: `holds` returns which rows satisfy it."""

    takes_times: ClassVar[bool] = False

    @property
    @abstractmethod
    def columns(self) -> tuple[Hashable, ...]:
        """Names of the columns that it involves."""

    @abstractmethod
    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Return which rows of a table satisfy it, bool of shape (n,)."""

    def repair(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows, repaired where only one value is possible."""
        return frame

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        """Names of the columns that `repair` may change."""
        return ()

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield the conditions on single columns that it names, to be checked."""
        yield from ()

    def check(self, facts: Facts, dtypes: Mapping[Hashable, Any]) -> None:
        """Require that its columns and values are those of a table.

        Parameters
        ----------
        facts, dtypes : mapping
            What is public of each column of the table, and its dtype.

        Raises
        ------
        ValueError
            For columns that it cannot speak of, or values that they cannot have.
        """
        for name in self.columns:
            if facts[name].is_key:
                raise ValueError(f"{self!r} speaks of the identifiers {name!r}.")
            if facts[name].temporal and not self.takes_times:
                raise ValueError(f"{self!r} takes no column of times; got {name!r}.")
        for name, condition in self.conditions_on():
            column, dtype = facts[name], dtypes[name]
            nullable = column.nullable and can_hold_missing(dtype)
            check_condition(replace(column, nullable=nullable), condition)
            is_set = (
                name in self.repairs and column.numeric and not is_missing(condition)
            )
            if is_set and not can_hold(dtype, as_stored(condition, dtype)):
                refuse_condition(column, condition, f"its dtype {dtype} cannot hold it")

    def completed(self, facts: Facts) -> "Constraint":
        """Return it with what follows from what is public of its columns."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers, fit for JSON."""
        facts: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {"constraint": type(self).__name__, **facts}


KINDS: dict[str, type[Constraint]] = {}
"""The constraints that a file of a schema can name."""


def builtin(kind: type[Constraint]) -> type[Constraint]:
    """Let files of schemas name a constraint."""
    KINDS[kind.__name__] = kind
    return kind


@builtin
@dataclass(frozen=True)
class LessEqual(Constraint):
    """One column is at most another: ``admitted <= discharged``.

    Rows in which either is missing satisfy it. The second column is learned as the
    first plus an increment, where both are of one grid: :ref:`order`.

    Parameters
    ----------
    low, high : hashable
        Names of two columns of numbers or of times.
    strict : bool, default=False
        Whether they must differ.

    Examples
    --------
    >>> import pandas as pd
    >>> LessEqual("a", "b").holds(pd.DataFrame({"a": [1, 2], "b": [1, 1]})).tolist()
    [True, False]
    """

    takes_times: ClassVar[bool] = True

    low: Hashable
    high: Hashable
    strict: bool = False

    def __post_init__(self) -> None:
        for field in ("low", "high"):
            if not is_hashable(getattr(self, field)):
                refuse_field(self, field, "must be the name of a column")
        if not isinstance(self.strict, bool):
            refuse_field(self, "strict", "must be True or False")

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (self.low, self.high)

    def check(self, facts: Facts, dtypes: Mapping[Hashable, Any]) -> None:
        super().check(facts, dtypes)
        low, high = (facts[name] for name in self.columns)
        for column in (low, high):
            if not column.numeric:
                raise ValueError(f"{self!r} needs numbers or times in {column.name!r}.")
        if self.low == self.high:
            raise ValueError(f"{self!r} compares {self.low!r} with itself.")
        kinds = {column.kind if column.temporal else "" for column in (low, high)}
        if len(kinds) > 1:
            both = " with ".join(f"{c.name!r}, {c.kind}" for c in (low, high))
            raise ValueError(f"{self!r} compares {both}.")
        self.check_bounds(facts)

    def check_bounds(self, facts: Facts) -> None:
        """Require that the bounds of its columns leave room for it."""
        low, high = (facts[name] for name in self.columns)
        if low.lower is None or high.lower is None:
            return
        first, last = low.lower, high.upper
        if low.temporal:
            first, last = (count_of(end, low.kind, "us") for end in (first, last))
        if first > last or self.strict and first == last:
            raise ValueError(
                f"{self!r} can never hold: {low.name!r} is at least {low.lower}, "
                f"{high.name!r} at most {high.upper}."
            )

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        low, high = (on_line(frame[name]) for name in self.columns)
        missing = np.isnan(low) | np.isnan(high)
        return missing | (low < high if self.strict else low <= high)


def check_orders(constraints: Iterable[Constraint], facts: Facts) -> list["LessEqual"]:
    """Return orders of columns and those that follow, if they can hold together.

    Raises
    ------
    ValueError
        If a column would have to be less than itself, or bounds leave no room.
    """
    stated = [each for each in constraints if isinstance(each, LessEqual)]
    implied = {each.columns: each.strict for each in stated}
    for middle in dict.fromkeys(name for each in stated for name in each.columns):
        for low in [a for a, b in implied if b == middle]:
            for high in [b for a, b in implied if a == middle]:
                strict = implied[low, middle] or implied[middle, high]
                implied[low, high] = strict or implied.get((low, high), False)
    for (low, high), strict in implied.items():
        if low == high and strict:
            raise ValueError(
                f"No row satisfies all of {stated}: {low!r} would be less than itself."
            )
    orders = [LessEqual(low, high, strict) for (low, high), strict in implied.items()]
    for each in orders:
        each.check_bounds(facts)
    return orders


@builtin
@dataclass(frozen=True)
class FixedCombinations(Constraint):
    """Only listed combinations of values occur.

    Parameters
    ----------
    names : sequence of hashable
        Columns of levels or numbers.
    combinations : sequence of sequences
        Values of these columns, in their order; None for a missing one.

    Examples
    --------
    >>> import pandas as pd
    >>> allowed = [["Oslo", "NO"], ["Rome", "IT"]]
    >>> frame = pd.DataFrame({"city": ["Oslo", "Oslo"], "land": ["NO", "IT"]})
    >>> FixedCombinations(["city", "land"], allowed).holds(frame).tolist()
    [True, False]
    """

    names: Sequence[Hashable]
    combinations: Sequence[Sequence[Any]]

    def __post_init__(self) -> None:
        names = distinct_names(self, self.names)
        listed = _tuples(self.combinations)
        if not listed or any(len(row) != len(names) for row in listed):
            refuse_field(self, "combinations", f"must hold a value of each of {names}")
        listed = tuple(tuple(map(_stated, row)) for row in listed)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "combinations", listed)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return tuple(self.names)

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        allowed = {_stored_values(row, frame, self.names) for row in self.combinations}
        return np.array([key in allowed for key in _keys(frame, self.names)], bool)

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        for values in self.combinations:
            yield from zip(self.names, values, strict=True)


@builtin
@dataclass(frozen=True)
class Impossible(Constraint):
    """A combination that cannot occur (a structural zero).

    Parameters
    ----------
    conditions : mapping of name to condition, or sequence of such pairs
        Rows that satisfy all of them are ruled out. Pairs of one name are
        alternatives.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [12, 40], "licence": ["yes", "yes"]})
    >>> Impossible({"age": (None, 15), "licence": "yes"}).holds(frame).tolist()
    [False, True]
    """

    takes_times: ClassVar[bool] = True

    conditions: Any

    def __post_init__(self) -> None:
        given = self.conditions
        pairs = given.items() if isinstance(given, Mapping) else given
        is_list = isinstance(pairs, Iterable) and not isinstance(pairs, (str, bytes))
        pairs = tuple(pairs) if is_list else (None,)
        if any(not isinstance(p, (tuple, list)) or len(p) != 2 for p in pairs):
            rule = "must map names to conditions, or be pairs of both"
            refuse_field(self, "conditions", rule)
        read = tuple((name, _part(p)) for name, c in pairs for p in alternatives(c))
        object.__setattr__(self, "conditions", read)
        if not read:
            refuse_field(self, "conditions", "must name a column")

    def _by_name(self) -> dict[Hashable, list[Any]]:
        by_name: dict[Hashable, list[Any]] = {}
        for name, part in self.conditions:
            by_name.setdefault(name, []).append(part)
        return by_name

    def __repr__(self) -> str:
        return f"Impossible({self._by_name()})"

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return tuple(self._by_name())

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        met = [satisfies(frame[name], each) for name, each in self.conditions_on()]
        return ~np.logical_and.reduce(met)

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        yield from self._by_name().items()

    def to_dict(self) -> dict[str, Any]:
        conditions = [
            [name, {"between": list(part)} if isinstance(part, tuple) else part]
            for name, part in self.conditions
        ]
        return {"constraint": type(self).__name__, "conditions": conditions}


@builtin
@dataclass(frozen=True)
class Determines(Constraint):
    """Some columns determine another through a public mapping.

    Sampled rows are repaired: the determined column is set to the value of the mapping.
    Combinations that the mapping does not list are left alone.

    Parameters
    ----------
    names : sequence of hashable
        The determining columns, of levels or numbers.
    determined : hashable
        The column that they determine.
    mapping : mapping, or sequence of pairs
        From a tuple of values (or a value, where there is one name) to a value.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"city": ["Oslo", "Bonn"], "land": ["IT", "IT"]})
    >>> Determines(["city"], "land", {"Oslo": "NO"}).repair(frame)["land"].tolist()
    ['NO', 'IT']
    """

    names: Sequence[Hashable]
    determined: Hashable
    mapping: Any

    def __post_init__(self) -> None:
        names = distinct_names(self, self.names)
        given = self.mapping
        pairs = _tuples(given.items() if isinstance(given, Mapping) else given)
        if any(len(pair) != 2 for pair in pairs):
            refuse_field(self, "mapping", "must be a mapping, or pairs")
        read = tuple((_key(key), _stated(value)) for key, value in pairs)
        if not read or any(len(key) != len(names) for key, _ in read):
            refuse_field(self, "mapping", f"must map a value of each of {names}")
        if self.determined in names:
            refuse_field(self, "determined", f"must be none of {names}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "mapping", read)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.names, self.determined)

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        return (self.determined,)

    def _wanted(self, frame: pd.DataFrame) -> list[tuple[Any, Any]]:
        """Return pairs of the actual and the determined value, one per row."""
        names = self.columns
        rows = (_stored_values((*key, x), frame, names) for key, x in self.mapping)
        wanted = {row[:-1]: row[-1] for row in rows}
        return [(r[-1], wanted.get(r[:-1], r[-1])) for r in _keys(frame, names)]

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        return np.array([own == meant for own, meant in self._wanted(frame)], bool)

    def repair(self, frame: pd.DataFrame) -> pd.DataFrame:
        column = frame[self.determined]
        meant = [value for _, value in self._wanted(frame)]
        values = pd.Series(meant, column.index, object)
        values = column.astype(object).where(self.holds(frame), values)
        mended = frame.copy(deep=False)
        mended[self.determined] = values.astype(column.dtype)
        return mended

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        for key, value in self.mapping:
            yield from zip(self.columns, (*key, value), strict=True)


def constraint_from_dict(facts: Mapping[str, Any]) -> Constraint:
    """Build a constraint from the output of `Constraint.to_dict`.

    Raises
    ------
    ValueError
        For a constraint or facts that are not known.
    """
    rest = dict(facts) if isinstance(facts, Mapping) else {}
    name = rest.pop("constraint", None)
    if name not in KINDS:
        raise ValueError(
            "A constraint of a schema: the key 'constraint' must be one of "
            f"{list(KINDS)}; got {facts!r}."
        )
    try:
        return KINDS[name](**rest)
    except TypeError as error:
        raise ValueError(f"A constraint of a schema: {name}: {error}.") from None


# Values -------------------------------------------------------------------------------


def refuse_field(constraint: Constraint, field: str, rule: str) -> NoReturn:
    """Raise the error of a field that does not keep its rule."""
    got = getattr(constraint, field)
    raise ValueError(f"{type(constraint).__name__}: {field} {rule}; got {shown(got)}.")


def distinct_names(constraint: Constraint, names: Any) -> tuple[Hashable, ...]:
    """Return names of columns as a tuple; raise ValueError where they are none."""
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        refuse_field(constraint, "names", "must be a sequence of names")
    given = tuple(names)
    are_names = all(map(is_hashable, given))
    if not (given and are_names and len(set(given)) == len(given)):
        refuse_field(constraint, "names", "must be distinct names")
    return given


def _tuples(given: Any) -> tuple[tuple[Any, ...], ...]:
    """Return sequences as tuples, empty ones for all else: text is no sequence here."""
    listed = given if isinstance(given, Iterable) else ()
    kinds = (tuple, list, np.ndarray, pd.Series)
    return tuple(tuple(each) if isinstance(each, kinds) else () for each in listed)


def _key(values: Any) -> tuple[Any, ...]:
    """Return one or several values as a tuple, as JSON can hold them."""
    several = values if isinstance(values, (tuple, list)) else (values,)
    return tuple(map(_stated, several))


def _stated(value: Any) -> Any:
    """Return one value as JSON can hold it, a decimal as the number in floating point.

    Columns of decimals hold the decimal that is written alike (`as_stored`).
    """
    return as_json(float(value) if isinstance(value, Decimal) else value)


def _keys(frame: pd.DataFrame, names: Sequence[Hashable]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns row by row, None where they are missing."""
    columns = [map(as_json, frame[name].astype(object)) for name in names]
    return zip(*columns, strict=True)


def _stored_values(
    values: Iterable[Any], frame: pd.DataFrame, names: Sequence[Hashable]
) -> tuple[Any, ...]:
    """Return values as the columns of a table hold them."""
    pairs = zip(values, names, strict=True)
    return tuple(as_stored(value, frame[name].dtype) for value, name in pairs)


def _part(part: Any) -> Any:
    """Return a value or an interval, also one from JSON, where values are plain."""
    if isinstance(part, Mapping):
        part = tuple(part["between"])
    return _key(part) if isinstance(part, tuple) else _stated(part)
