"""Facts about several columns at once, which every sampled row satisfies.

They are stated in a `Schema`, so they are public: known from a form, a law or a code
book, never read off the private rows. Nothing is spent on them. The second column of
an order is learned as its distance from the first where that can be (`increments`).
Models do not learn the others; `sample` draws anew what breaks them, or repairs it
where only one value fits, and both are post-processing of what was released.

A *condition* on one column, here and in ``sample(given=...)``, is

- a value: equal to it, as Python has it (1, 1.0 and True are equal), and as the column
  holds it (.1 is the nearest number of 32 bits where the column has such);
- a list (or set) of values: equal to one of them;
- a tuple ``(low, high)``: between them, both included, None for no limit;
- None (or NaN): missing.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

import numpy as np
import pandas as pd

from dpgenerative.tables.times import count_of, temporal_kind, to_units


def is_missing(value: Any) -> bool:
    """Return whether one value is None or a NaN of some kind."""
    return value is None or bool(np.ndim(value) == 0 and pd.isna(value))


def alternatives(condition: Any) -> list[Any]:
    """Return the values, intervals and missing values that a condition lists."""
    if isinstance(condition, (list, set, frozenset, np.ndarray, pd.Series, pd.Index)):
        return list(condition)
    return [condition]


def satisfies(series: pd.Series, condition: Any) -> np.ndarray:
    """Return which values of a column satisfy a condition.

    Parameters
    ----------
    series : Series of length n
    condition : object
        See the module's text.

    Returns
    -------
    ndarray of bool of shape (n,)
    """
    found = np.zeros(len(series), dtype=bool)
    values = []
    for part in alternatives(condition):
        if isinstance(part, tuple):
            found |= _between(series, part)
        elif is_missing(part):
            found |= series.isna().to_numpy(bool)
        else:
            values.append(part)
    return found | _equal(series, values) if values else found


def _equal(series: pd.Series, values: list[Any]) -> np.ndarray:
    kind = temporal_kind(series.dtype)
    if kind is not None:
        times = [count_of(value, kind, "us") for value in values]
        return np.isin(to_units(series, "us"), times)
    held = [_as_held(value, series.dtype) for value in values]
    found = series.isin(held).to_numpy(bool)
    if series.dtype == object and any(isinstance(each, dt.date) for each in series):
        asked = to_units(pd.Series(values, dtype=object), "us")
        found |= np.isin(to_units(series, "us"), asked)
    return found


def _between(series: pd.Series, interval: tuple[Any, ...]) -> np.ndarray:
    kind, values = _line_of(series), _on_line(series)
    found = ~np.isnan(values)
    for end, reaches in zip(interval, (np.greater_equal, np.less_equal), strict=True):
        if not is_missing(end):
            limit = count_of(end, kind, "us") if kind else _as_held(end, series.dtype)
            found &= reaches(values, limit)
    return found


def _as_held(value: Any, dtype: Any) -> Any:
    """Return a number as a column of floats holds it, all else as it is."""
    if not (isinstance(value, (int, float)) and pd.api.types.is_float_dtype(dtype)):
        return value
    with np.errstate(over="ignore"):
        return getattr(dtype, "numpy_dtype", dtype).type(value).item()


def _line_of(series: pd.Series) -> str | None:
    """Return the kind of times of an ordered column, None for numbers.

    Numbers have dtypes of their own: what is ordered among objects are dates.
    """
    return "datetime" if series.dtype == object else temporal_kind(series.dtype)


def _on_line(series: pd.Series) -> np.ndarray:
    if _line_of(series) is not None:
        return to_units(series, "us")
    return pd.to_numeric(series).to_numpy(float, na_value=np.nan)


class Constraint(ABC):
    """A fact about rows: `holds` says which rows satisfy it."""

    @property
    @abstractmethod
    def columns(self) -> tuple[Hashable, ...]:
        """Names of the columns that it speaks of."""

    @abstractmethod
    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        """Return which rows of a table satisfy it, bool of shape (n,)."""

    def repair(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the rows, mended where only one value can be meant."""
        return frame

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        """Names of the columns that `repair` may change."""
        return ()

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield the conditions on single columns that it names, to be checked."""
        yield from ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, strings and numbers, fit for JSON."""
        facts: dict[str, Any] = asdict(self)  # type: ignore[call-overload]
        return {"constraint": type(self).__name__, **facts}


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

    low: Hashable
    high: Hashable
    strict: bool = False

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (self.low, self.high)

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        low, high = (_on_line(frame[name]) for name in self.columns)
        missing = np.isnan(low) | np.isnan(high)
        return missing | (low < high if self.strict else low <= high)


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

    names: tuple[Hashable, ...]
    combinations: tuple[tuple[Any, ...], ...]

    def __post_init__(self) -> None:
        names = _names(self, self.names)
        listed = tuple(tuple(map(_plain, row)) for row in self.combinations)
        if not listed or any(len(row) != len(names) for row in listed):
            _refuse(self, "combinations", f"must hold a value of each of {names}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "combinations", listed)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return self.names

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        allowed = {_held(row, frame, self.names) for row in self.combinations}
        return np.array([key in allowed for key in _keys(frame, self.names)], bool)

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        for values in self.combinations:
            yield from zip(self.names, values, strict=True)


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

    conditions: Any

    def __post_init__(self) -> None:
        given = self.conditions
        pairs = given.items() if isinstance(given, Mapping) else given
        read = tuple((name, _part(p)) for name, c in pairs for p in alternatives(c))
        object.__setattr__(self, "conditions", read)
        if not read:
            _refuse(self, "conditions", "must name a column")

    def _by_name(self) -> dict[Hashable, list[Any]]:
        found: dict[Hashable, list[Any]] = {}
        for name, part in self.conditions:
            found.setdefault(name, []).append(part)
        return found

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
        conditions = [[name, _part_to_json(part)] for name, part in self.conditions]
        return {"constraint": type(self).__name__, "conditions": conditions}


@dataclass(frozen=True)
class Determines(Constraint):
    """Some columns determine another through a public mapping.

    Sampled rows are repaired: the determined column is set to what the mapping says.
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

    names: tuple[Hashable, ...]
    determined: Hashable
    mapping: Any

    def __post_init__(self) -> None:
        names = _names(self, self.names)
        given = self.mapping
        pairs = tuple(given.items() if isinstance(given, Mapping) else given)
        read = tuple((_key(key), _plain(value)) for key, value in pairs)
        if not read or any(len(key) != len(names) for key, _ in read):
            _refuse(self, "mapping", f"must map a value of each of {names}")
        if self.determined in names:
            _refuse(self, "determined", f"must be none of {names}")
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "mapping", read)

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.names, self.determined)

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        return (self.determined,)

    def _wanted(self, frame: pd.DataFrame) -> list[tuple[Any, Any]]:
        """Return pairs of the value held and the value meant, one per row."""
        wanted = {
            _held(key, frame, self.names): _held((value,), frame, (self.determined,))[0]
            for key, value in self.mapping
        }
        held = (value for (value,) in _keys(frame, (self.determined,)))
        keys = _keys(frame, self.names)
        return [
            (own, wanted.get(key, own)) for own, key in zip(held, keys, strict=True)
        ]

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        return np.array([own == meant for own, meant in self._wanted(frame)], bool)

    def repair(self, frame: pd.DataFrame) -> pd.DataFrame:
        column = frame[self.determined]
        broken = ~self.holds(frame)
        meant = [value for _, value in self._wanted(frame)]
        values = column.astype(object).mask(
            broken, pd.Series(meant, column.index, object)
        )
        mended = frame.copy(deep=False)
        mended[self.determined] = values.astype(column.dtype)
        return mended

    def conditions_on(self) -> Iterator[tuple[Hashable, Any]]:
        for key, value in self.mapping:
            yield from zip(self.columns, (*key, value), strict=True)


KINDS: dict[str, type[Constraint]] = {
    kind.__name__: kind
    for kind in (LessEqual, FixedCombinations, Impossible, Determines)
}


def constraint_from_dict(facts: Mapping[str, Any]) -> Constraint:
    """Build a constraint from the output of `Constraint.to_dict`.

    Raises
    ------
    ValueError
        For a constraint or facts that are not known.
    """
    rest = dict(facts)
    name = rest.pop("constraint", None)
    if name not in KINDS:
        raise ValueError(
            f"constraint_from_dict: the key 'constraint' must be one of {list(KINDS)}; "
            f"got {dict(facts)}."
        )
    if name == "Impossible":
        rest["conditions"] = [
            (column, _part_from_json(part))
            for column, part in rest.get("conditions", ())
        ]
    try:
        return KINDS[name](**rest)
    except TypeError as error:
        raise ValueError(f"constraint_from_dict: {name}: {error}.") from None


# Values -------------------------------------------------------------------------------


def _refuse(constraint: Constraint, field: str, rule: str) -> NoReturn:
    got = getattr(constraint, field)
    raise ValueError(f"{type(constraint).__name__}: {field} {rule}; got {got!r}.")


def _names(constraint: Constraint, names: Any) -> tuple[Hashable, ...]:
    if isinstance(names, (str, bytes)) or not isinstance(names, Iterable):
        _refuse(constraint, "names", "must be a sequence of names")
    found = tuple(names)
    if not found or len(set(found)) < len(found):
        _refuse(constraint, "names", "must be distinct names")
    return found


def _plain(value: Any) -> Any:
    """Return one value as JSON can hold it, None where it is missing."""
    if is_missing(value):
        return None
    if isinstance(value, (dt.datetime, dt.date, np.datetime64)):
        return pd.Timestamp(value).isoformat()
    if isinstance(value, (dt.timedelta, np.timedelta64)):
        return str(pd.Timedelta(value))
    return value.item() if isinstance(value, np.generic) else value


def _key(values: Any) -> tuple[Any, ...]:
    return tuple(map(_plain, values if isinstance(values, (tuple, list)) else [values]))


def _keys(frame: pd.DataFrame, names: Sequence[Hashable]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of some columns row by row, None where they are missing."""
    columns = [map(_plain, frame[name].astype(object)) for name in names]
    return zip(*columns, strict=True)


def _held(
    values: Iterable[Any], frame: pd.DataFrame, names: Sequence[Hashable]
) -> tuple[Any, ...]:
    """Return values as the columns of a table hold them."""
    pairs = zip(values, names, strict=True)
    return tuple(_as_held(value, frame[name].dtype) for value, name in pairs)


def _part(part: Any) -> Any:
    return tuple(map(_plain, part)) if isinstance(part, tuple) else _plain(part)


def _part_to_json(part: Any) -> Any:
    return {"between": list(part)} if isinstance(part, tuple) else part


def _part_from_json(part: Any) -> Any:
    return tuple(part["between"]) if isinstance(part, Mapping) else part
