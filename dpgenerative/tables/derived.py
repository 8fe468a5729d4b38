"""Columns that are computed from others, in a small language of expressions.

A derived column is not learned: no row of it is read, nothing is spent on it, and in
every sampled row it is exactly what its expression says. An expression is text, so it
is saved with a schema; it is parsed to a tree of a few kinds of nodes, of which each
is computed here. No code in it is run.
"""

import ast
import datetime as dt
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from pandas.api import types

from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import Constraint, Facts, builtin, refuse_field
from dpgenerative.tables.dtypes import is_real_dtype
from dpgenerative.tables.times import PER_DAY, as_times, temporal_kind, to_units
from dpgenerative.tables.values import as_objects

LONGEST = 1000
"""Characters of an expression at most: Python's parser fails on far deeper ones."""
DEEPEST = 250
"""Levels of operations within operations at most: each is a call of a function."""
MOST_DIGITS = 15
"""Decimals to which numbers are rounded at most."""
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`([^`]+)`""")
"""Texts, and names of columns."""

Values = np.ndarray
"""Floats, NaN where missing; instants or durations in us; or texts, None as missing."""

# The language -------------------------------------------------------------------------


def _numbers(values: Values) -> Values:
    if values.dtype.kind != "f":
        raise TypeError("a text or a time stands where a number belongs")
    return values


def _truth(holds: Values, *operands: Values) -> Values:
    """Return 1 and 0, missing where an operand is."""
    return np.where(reduce(np.logical_or, map(pd.isna, operands)), np.nan, holds)


def _logical(values: Values) -> Values:
    return _truth(_numbers(values) != 0, values)


def _where(condition: Values, yes: Values, no: Values) -> Values:
    if (yes.dtype == object) != (no.dtype == object):
        raise TypeError("one of two alternatives is a text")
    chosen = np.where(condition != 0, yes, no)
    kind = chosen.dtype
    missing = np.array("NaT" if kind.kind in "mM" else None, dtype=kind)
    return np.where(np.isnan(_numbers(condition)), missing, chosen)


def _part(name: str) -> Callable[[Values], Values]:
    """Return a function that reads a part of instants, such as their hour."""
    return lambda times: getattr(pd.Series(np.ravel(times)).dt, name).to_numpy(float)


def _length(unit: str) -> Callable[[Values], Values]:
    """Return a function that counts a unit in durations."""
    length = np.timedelta64(PER_DAY["us"] // PER_DAY[unit], "us")
    return lambda durations: durations / length


def _round(values: Values, digits: Values | None = None) -> Values:
    wanted = np.array(0.0) if digits is None else _numbers(digits)
    if wanted.ndim or not abs(wanted) <= MOST_DIGITS:
        raise TypeError("the digits to round to are no number from -15 to 15")
    return np.round(values, int(wanted))


FUNCTIONS: dict[str, Callable[..., Values]] = {
    "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log,
    "floor": np.floor, "ceil": np.ceil, "round": _round,
    "min": lambda *values: reduce(np.minimum, values),
    "max": lambda *values: reduce(np.maximum, values),
    "where": _where,
    "year": _part("year"), "month": _part("month"), "day": _part("day"),
    "weekday": _part("day_of_week"), "hour": _part("hour"), "minute": _part("minute"),
    "days": _length("D"), "hours": _length("h"), "minutes": _length("min"),
    "seconds": _length("s"),
}  # fmt: skip
_OPERATORS: dict[type, Callable[..., Values]] = {
    ast.Add: np.add, ast.Sub: np.subtract, ast.Mult: np.multiply, ast.Pow: np.power,
    ast.Div: np.divide, ast.FloorDiv: np.floor_divide, ast.Mod: np.mod,
    ast.USub: np.negative, ast.UAdd: np.positive, ast.Not: lambda x: 1 - _logical(x),
    ast.Lt: np.less, ast.LtE: np.less_equal, ast.Gt: np.greater,
    ast.GtE: np.greater_equal, ast.Eq: np.equal, ast.NotEq: np.not_equal,
    ast.And: np.minimum, ast.Or: np.maximum,
}  # fmt: skip
_N_ARGUMENTS = {"min": range(1, LONGEST), "max": range(1, LONGEST), "where": [3]}
_N_ARGUMENTS["round"] = [1, 2]
"""Numbers of arguments of functions of other than one."""
_COMPARABLE = [("f", "f"), ("M", "M"), ("m", "m")]
_CHILDREN: dict[type, tuple[str, ...]] = {
    ast.BinOp: ("left", "right"), ast.UnaryOp: ("operand",), ast.BoolOp: ("values",),
    ast.Compare: ("left", "comparators"), ast.Call: ("args",),
}  # fmt: skip


class Expression:
    """A formula of columns.

    Parameters
    ----------
    text : str
        Numbers, texts in quotes, names of columns (in backticks where they are no
        names of Python), ``+ - * / // % **``, comparisons, ``and``, ``or``, ``not``,
        and the functions in `FUNCTIONS`. What is computed from a missing value is
        missing.

    Raises
    ------
    ValueError
        For text that is no such formula.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.names: dict[str, str] = {}
        if len(text) > LONGEST:
            raise ValueError(f"has more than {LONGEST} characters")
        try:
            tree = ast.parse(_QUOTED.sub(self._placeholder, text).strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ValueError("is no formula") from None
        self.body = tree.body
        level: list[ast.AST] = [self.body]
        for _ in range(DEEPEST):
            level = [child for node in level for child in ast.iter_child_nodes(node)]
        if level:
            raise ValueError(f"has more than {DEEPEST} operations within each other")
        try:
            self._check(self.body)
        except RecursionError:  # of what spells a part of it
            raise ValueError("is no formula") from None

    def _placeholder(self, match: re.Match[str]) -> str:
        if match[1] is None:
            return match[0]
        identifier = f"_column_{len(self.names)}"
        while identifier in self.text:  # a column of that name
            identifier = f"_{identifier}"
        self.names[identifier] = match[1]
        return identifier

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns in it, in order."""
        calls = {id(n.func) for n in ast.walk(self.body) if isinstance(n, ast.Call)}
        names = [
            self.names.get(node.id, node.id)
            for node in ast.walk(self.body)
            if isinstance(node, ast.Name) and id(node) not in calls
        ]
        return tuple(dict.fromkeys(names))

    def _check(self, node: ast.AST) -> None:
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", None)
            if name not in FUNCTIONS or node.keywords:
                what = ast.unparse(node)
                raise ValueError(f"calls {what}; functions are {', '.join(FUNCTIONS)}")
            if len(node.args) not in _N_ARGUMENTS.get(name, [1]):
                raise ValueError(f"calls {name!r} of {len(node.args)} values")
        elif isinstance(node, ast.Constant):
            is_huge = isinstance(node.value, int) and node.value > sys.float_info.max
            if is_huge or type(node.value) not in (int, float, str):
                raise ValueError(f"contains {ast.unparse(node)}")
        elif not isinstance(node, ast.Name):
            operators = [getattr(node, "op", None), *getattr(node, "ops", ())]
            are_operators = all(type(each) in _OPERATORS for each in operators if each)
            if type(node) not in _CHILDREN or not are_operators:
                raise ValueError(f"contains {ast.unparse(node)}")
        for child in _children(node):
            self._check(child)

    def evaluate(self, columns: Mapping[str, Values], n: int) -> Values:
        """Return its value in n rows.

        Raises
        ------
        TypeError
            For operands that do not go together, as a text and a number.
        """
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._evaluated(self.body, columns), n)

    def _evaluated(self, node: ast.AST, columns: Mapping[str, Values]) -> Values:
        if isinstance(node, ast.Name):
            return columns[self.names.get(node.id, node.id)]
        if isinstance(node, ast.Constant):
            is_text = isinstance(node.value, str)
            return np.array(node.value, object if is_text else float)
        values = [self._evaluated(child, columns) for child in _children(node)]
        if isinstance(node, ast.Compare):
            pairs = zip(node.ops, values, values[1:], strict=False)
            parts = [_compared(type(op), a, b) for op, a, b in pairs]
            return reduce(np.minimum, parts)
        if isinstance(node, ast.BoolOp):
            return reduce(_OPERATORS[type(node.op)], map(_logical, values))
        if isinstance(node, ast.Call) and node.func.id == "where":  # type: ignore[attr-defined]
            return _where(*values)
        if any(value.dtype == object for value in values):
            raise TypeError("a text stands in a calculation")
        if isinstance(node, ast.Call):
            return FUNCTIONS[node.func.id](*values)  # type: ignore[attr-defined]
        made = _OPERATORS[type(node.op)](*values)  # type: ignore[attr-defined]
        if made.dtype.kind == "i":  # which has no missing values
            raise TypeError("durations divide by /, not //")
        return made


def _compared(operator: type, first: Values, second: Values) -> Values:
    has_text = object in (first.dtype, second.dtype)
    if has_text and operator not in (ast.Eq, ast.NotEq):
        raise TypeError("texts have no order")
    if not has_text and (first.dtype.kind, second.dtype.kind) not in _COMPARABLE:
        raise TypeError("a time is compared with a number")
    return _truth(_OPERATORS[operator](first, second), first, second)


def _children(node: ast.AST) -> Iterator[ast.AST]:
    for field in _CHILDREN.get(type(node), ()):
        child = getattr(node, field)
        yield from child if isinstance(child, list) else [child]


def values_of(series: pd.Series) -> Values:
    """Return a column as an expression reads it: floats, times or texts."""
    is_object = series.dtype == object
    has_dates = is_object and any(isinstance(each, dt.date) for each in series)
    kind = "datetime" if has_dates else temporal_kind(series.dtype)
    if kind is not None:
        return as_times(to_units(series, "us"), kind)
    if types.is_bool_dtype(series.dtype) or is_real_dtype(series.dtype):
        return series.to_numpy(float, na_value=np.nan)
    return as_objects(series).to_numpy()


def _example(column: Column) -> Values:
    """Return two made-up values of a column, as an expression reads them."""
    if column.temporal:
        return as_times(np.ones(2), column.kind)
    if column.numeric or column.kind == "boolean":
        return np.ones(2)
    return np.array(["some", "text"], dtype=object)


# The constraint -----------------------------------------------------------------------


class Computed(Constraint):
    """A constraint that computes a column from others, after they are sampled."""

    name: Hashable

    @property
    @abstractmethod
    def reads(self) -> tuple[Hashable, ...]:
        """Names of the columns from which it is computed."""

    @abstractmethod
    def compute(self, frame: pd.DataFrame) -> Values:
        """Return its values in the rows of a table: floats, times or texts."""

    @property
    def columns(self) -> tuple[Hashable, ...]:
        return (*self.reads, self.name)

    @property
    def repairs(self) -> tuple[Hashable, ...]:
        return (self.name,)

    def repair(self, frame: pd.DataFrame) -> pd.DataFrame:
        mended = frame.copy(deep=False)
        mended[self.name] = self.compute(frame)
        return mended


@builtin
@dataclass(frozen=True)
class Derived(Computed):
    """A column that is computed from others.

    It is neither read nor learned, and nothing is spent on it. In sampled rows, and
    among conditions and constraints, it is what the expression says.

    Parameters
    ----------
    name : str
        The column; its dtype decides how the result is stored.
    expression : str
        A formula (`tables.derived.Expression`).
    digits : int, optional
        Decimals to which numbers are rounded. None: 0 for integers, else no rounding.

    Examples
    --------
    >>> import pandas as pd
    >>> bmi = Derived("bmi", "weight / (height / 100) ** 2", digits=1)
    >>> frame = pd.DataFrame({"weight": [70.0], "height": [175.0], "bmi": [22.9]})
    >>> bmi.holds(frame).tolist()
    [True]
    """

    takes_times: ClassVar[bool] = True

    name: str
    expression: str
    digits: int | None = None

    def __post_init__(self) -> None:
        for field in ("name", "expression"):
            if not isinstance(getattr(self, field), str):
                refuse_field(self, field, "must be text")
        check_digits(self, self.digits)
        try:
            formula = self.formula
        except ValueError as error:
            refuse_field(self, "expression", str(error))
        if not formula.columns or self.name in formula.columns:
            refuse_field(self, "expression", "must name columns, and none of its own")

    @cached_property
    def formula(self) -> Expression:
        """The expression, parsed."""
        return Expression(self.expression)

    @property
    def reads(self) -> tuple[Hashable, ...]:
        return self.formula.columns

    def check(self, facts: Facts, dtypes: Mapping[Hashable, Any]) -> None:
        super().check(facts, dtypes)
        try:
            made_up = {name: _example(facts[name]) for name in self.formula.columns}
            value = self.formula.evaluate(made_up, 2)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"{self!r} cannot be computed: {error}.") from None
        column = facts[self.name]
        kinds = _KINDS[value.dtype.kind]
        if column.kind not in kinds:
            raise ValueError(
                f"{self!r} needs a column of kind {' or '.join(kinds)}, but "
                f"{self.name!r} is {column.kind}."
            )

    def completed(self, facts: Facts) -> "Derived":
        is_whole = facts[self.name].kind in ("integer", "boolean")
        return replace(self, digits=0) if is_whole and self.digits is None else self

    def compute(self, frame: pd.DataFrame) -> Values:
        read = {name: values_of(frame[name]) for name in self.formula.columns}
        values = self.formula.evaluate(read, len(frame))
        if values.dtype.kind != "f":
            return values
        values = np.where(np.isfinite(values), values, np.nan)
        return values if self.digits is None else np.round(values, self.digits)

    def holds(self, frame: pd.DataFrame) -> np.ndarray:
        own, meant = values_of(frame[self.name]), self.compute(frame)
        if types.is_bool_dtype(frame[self.name].dtype):
            meant = _logical(meant)
        missing = pd.isna(own), pd.isna(meant)
        if meant.dtype.kind == "f":
            # Whichever way a half was rounded, and in single precision.
            room = 0.0 if self.digits is None else 0.5 * 10.0**-self.digits
            near = np.abs(own - meant) <= 1.001 * room + 1e-6 * np.abs(meant)
        else:
            near = own == meant
        return np.where(missing[0] | missing[1], missing[0] & missing[1], near)


_KINDS = {
    "f": ("continuous", "integer", "boolean"),
    "M": ("datetime",),
    "m": ("timedelta",),
    "O": ("categorical",),
}


def check_digits(owner: Computed, digits: Any) -> None:
    """Require None or a number of decimals."""
    is_whole = isinstance(digits, int) and not isinstance(digits, bool)
    if digits is not None and not (is_whole and abs(digits) <= MOST_DIGITS):
        refuse_field(owner, "digits", "must be None or an integer from -15 to 15")


def in_order(computed: Iterable[Computed]) -> tuple[Computed, ...]:
    """Return columns that are computed from others, each after those it needs.

    Raises
    ------
    ValueError
        Where one is derived twice, or from itself through others.
    """
    waiting = list(computed)
    names = [each.name for each in waiting]
    if twice := [x for x in dict.fromkeys(names) if names.count(x) > 1]:
        raise ValueError(f"Schema: more than one constraint computes {twice}.")
    order: list[Computed] = []
    while waiting:
        open_names = {each.name for each in waiting}
        ready = [e for e in waiting if open_names.isdisjoint(e.reads)]
        if not ready:
            raise ValueError(f"Schema: {waiting} need each other.")
        order += ready
        waiting = [each for each in waiting if each not in ready]
    return tuple(order)


def check_repairs(constraints: Iterable[Constraint]) -> None:
    """Require that no repair involves a computed column: those are made later.

    Raises
    ------
    ValueError
    """
    stated = list(constraints)
    names = {each.name for each in stated if isinstance(each, Computed)}
    for each in stated:
        used = [name for name in each.columns if name in names]
        if used and each.repairs and not isinstance(each, Computed):
            raise ValueError(
                f"Schema: {each!r} involves {used}, which other constraints compute "
                "only after it. State it of the columns that they are computed from."
            )
