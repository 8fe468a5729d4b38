"""What is public about one column."""

import math
import re
import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from string import Formatter
from typing import Any, NoReturn

import numpy as np

from dpgenerative._validation import shown
from dpgenerative.tables.foreign import KINDS, kind_hint
from dpgenerative.tables.times import PER_DAY, count_of, spelled
from dpgenerative.tables.values import as_python, is_missing

TEMPORAL = ("datetime", "timedelta")
ROLES = (None, "id", "unit", "owner", "order")
CYCLES = ("hour", "weekday")
"""Cycles that columns of instants can have."""
EXAMPLES = {"datetime": "2020-01-31", "timedelta": "36h"}
OTHER = "other"
"""Level that stands for all text too rare to be released."""


@dataclass(frozen=True)
class Column:
    """Public facts about one column.

    Parameters
    ----------
    name : hashable
        The column's name.
    kind : {"continuous", "integer", "categorical", "boolean", "datetime", "timedelta"}
        How its values are read.
    lower, upper : float or time, optional
        Bounds of a column of numbers or times, in data units, both or none. Values
        outside are moved to the nearest bound. None: estimated privately. Bounds of
        instants are what a clock of the column's own zone shows (``"2020-01-01"``).
    levels : sequence, optional
        Levels of a categorical column, in order. Any other value becomes `other` or,
        without one, missing; the first level with ``nullable=False``, and samples have
        other levels where the dtype holds no missing values. None: estimated privately.
    ordered : bool, default=False
        Whether the levels have an order (ordinal) or not (nominal).
    nullable : bool, optional
        Whether missing values can occur. None: whatever the dtype can hold, unless
        the noisy count of missing values is within the noise. Where false, a missing
        value is read as `lower`, as `other` or as the first level; where true, missing
        values are sampled as often as was counted, however few.
    resolution : float or {"D", "h", "min", "s", "ms", "us"}, optional
        Step of a continuous column's values (0.01 for percentages with two
        decimals), or the unit of times, which are rounded down to it; None means
        seconds for times. Integers have resolution 1.
    role : {None, "id", "unit", "owner", "order"}, optional
        "id" for an identifier, of kind "integer" or "categorical": it is never read
        nor learned, nothing is spent on it, and `sample` makes new ones. "unit" for the
        key of a person who may have several rows (:doc:`/persons`): it says whose a row
        is, and is made anew. "owner" for such a key where rows are not linked: of each
        person one row is read. "order" for the number or time by which a
        person's rows are ordered.
    format : str, optional
        How identifiers of kind "categorical" are written: "uuid", or a format of their
        number such as ``"P{:05d}"``. None: the number alone.
    other : str, int, float or bool, optional
        Level of a nominal column that stands for every value that is no level; one
        that `levels` lacks is added to them. None: ``"other"`` for text whose levels
        are estimated privately (``"(other)"`` where "other" is one), else nothing.

    per_unit : bool, default=False
        Whether a person has one value, as of a year of birth, where rows are linked.

    cycles : sequence of {"hour", "weekday"}, optional
        Of instants: what repeats, and is learned besides the date. None: hours where
        the unit is finer than a day, and weekdays where the bounds span two weeks; but
        of the second of two times in an order, its distance from the first.
        Empty: nothing, and nothing is spent on it; so too where a part, such as
        "x (weekday)", would have the name of another column.

    Raises
    ------
    ValueError
        If the facts contradict each other.

    Examples
    --------
    >>> Column("age", "integer", lower=0, upper=120)
    Column('age', 'integer', lower=0, upper=120)
    """

    name: Hashable
    kind: str
    lower: Any = None
    upper: Any = None
    levels: Sequence[Any] | None = None
    ordered: bool = False
    nullable: bool | None = None
    resolution: Any = None
    role: str | None = None
    format: str | None = None
    other: Any = None
    cycles: Sequence[str] | None = None
    per_unit: bool = False

    def __post_init__(self) -> None:
        if self.name is None or not isinstance(self.name, Hashable):
            self._refuse("name", "must be one that a column can have", self.name)
        if self.kind == "text":
            rule = "must not be text, which no model here can learn: drop the column, "
            self._refuse("kind", rule + "or derive levels or numbers", self.kind)
        if self.kind not in KINDS:
            hint = kind_hint(self.kind)
            here = f" (here {hint})" if hint else ""
            self._refuse("kind", f"must be one of {KINDS}{here}", self.kind)
        for field in set(self.__dataclass_fields__) - {"levels"}:
            self._set(field, as_python(getattr(self, field)))
        if self.nullable not in (None, True, False):
            self._refuse("nullable", "must be True, False or None", self.nullable)
        if self.nullable is not None:
            self._set("nullable", bool(self.nullable))
        for field in ("ordered", "per_unit"):
            if not isinstance(getattr(self, field), bool):
                self._refuse(field, "must be True or False", getattr(self, field))
        self._check_role()
        self._check_other()
        self._check_cycles()
        if self.numeric:
            self._check_numeric()
        else:
            self._check_levels()

    def _set(self, field: str, value: Any) -> None:
        object.__setattr__(self, field, value)

    def _refuse(self, field: str, rule: str, value: object) -> NoReturn:
        raise ValueError(f"Column {self.name!r}: {field} {rule}; got {shown(value)}.")

    @property
    def is_key(self) -> bool:
        """Whether it names rows or persons: it is not learned, but made anew."""
        return self.role in ("id", "unit", "owner")

    def _check_role(self) -> None:
        if self.role not in ROLES:
            self._refuse("role", f"must be one of {ROLES}", self.role)
        if self.per_unit and self.role is not None:
            self._refuse("per_unit", "belongs to no role", self.role)
        if self.role == "order" and not self.numeric:
            self._refuse("role", 'needs numbers or times for "order"', self.kind)
        if not self.is_key:
            if self.format is not None:
                self._refuse("format", 'belongs to role="id"', self.format)
            return
        if self.kind not in ("integer", "categorical"):
            self._refuse("role", 'needs kind "integer" or "categorical"', self.kind)
        learned = (self.lower, self.upper, self.levels, self.resolution)
        if any(fact is not None for fact in learned) or self.ordered:
            self._refuse("role", "goes with no bounds or levels", learned)
        is_text = self.kind == "categorical"
        if self.format is not None and not (is_text and _is_injective(self.format)):
            rule = 'must be "uuid" or a format of a number, for kind "categorical"'
            self._refuse("format", rule, self.format)

    def _check_other(self) -> None:
        if self.other is None:
            return
        if self.kind != "categorical" or self.ordered or self.role is not None:
            self._refuse("other", "belongs to levels without an order", self.other)
        if not isinstance(self.other, (str, int, float)) or is_missing(self.other):
            self._refuse("other", "must be text or a number", self.other)

    def _check_cycles(self) -> None:
        if self.cycles is None:
            return
        if self.kind != "datetime":
            self._refuse("cycles", "belong to instants", self.cycles)
        is_list = isinstance(self.cycles, (list, tuple))
        if not is_list or not set(map(str, self.cycles)) <= set(CYCLES):
            self._refuse("cycles", f"must be some of {CYCLES}", self.cycles)
        self._set("cycles", tuple(self.cycles))

    def _check_numeric(self) -> None:
        """Check what is stated of numbers or times."""
        if self.levels is not None or self.ordered:
            facts = self.levels, self.ordered
            self._refuse("levels and ordered", "belong to categorical columns", facts)
        if self.temporal:
            self._read_times()
        else:
            self._check_numbers()
        if (self.lower is None) != (self.upper is None):
            rule = "come together (a generous bound costs next to nothing)"
            self._refuse("lower and upper", rule, (self.lower, self.upper))
        if self.lower is None:
            return
        lower, upper = self._counts() if self.temporal else (self.lower, self.upper)
        if lower > upper:
            self._refuse("lower", "must not exceed upper", (self.lower, self.upper))
        if not self.temporal:
            self._check_bounds()

    def _read_times(self) -> None:
        """Write bounds as ISO 8601, so that they compare and survive JSON."""
        if self.resolution not in (None, *PER_DAY):
            rule = f"must be one of {tuple(PER_DAY)} for times"
            self._refuse("resolution", rule, self.resolution)
        for field in ("lower", "upper"):
            value = getattr(self, field)
            if value is None:
                continue
            try:
                count = count_of(value, self.kind, self.unit)
                self._set(field, spelled(count, self.kind, self.unit))
            except (ValueError, TypeError, OverflowError):
                example = EXAMPLES[self.kind]
                zone = " without a zone" if self.kind == "datetime" else ""
                rule = f"must be a {self.kind}{zone}, such as {example!r}"
                self._refuse(field, rule, value)

    def _check_numbers(self) -> None:
        for field in ("lower", "upper", "resolution"):
            value = getattr(self, field)
            if value is not None and not isinstance(value, (int, float)):
                self._refuse(field, "must be a number or None", value)
        if self.resolution is None:
            return
        if self.kind == "integer":
            self._refuse("resolution", "is 1 for integers", self.resolution)
        if not 1e-30 <= self.resolution <= 1e30:
            self._refuse("resolution", "must lie in [1e-30, 1e30]", self.resolution)

    def _check_bounds(self) -> None:
        bounds = (self.lower, self.upper)
        if not all(abs(end) <= sys.float_info.max for end in bounds):
            self._refuse("bounds", "must be finite", bounds)
        if self.step is None:
            return
        if math.isinf(max(map(abs, bounds)) / self.step):
            self._refuse("resolution", f"is too fine for {bounds}", self.resolution)
        # A bound that is a multiple except for rounding counts as one.
        first = math.ceil(self.lower / self.step - 1e-6)
        if first > math.floor(self.upper / self.step + 1e-6):
            rule = f"hold no multiple of {self.step:g} between them"
            self._refuse("bounds", rule, bounds)

    def _check_levels(self) -> None:
        numeric_facts = (self.lower, self.upper, self.resolution)
        if any(fact is not None for fact in numeric_facts):
            self._refuse("bounds and resolution", "belong to numbers", numeric_facts)
        if self.kind == "boolean":
            stated = (False, True) if self.levels is None else self.levels
            if set(self._read_levels(stated)) != {False, True}:
                self._refuse("levels", "of a boolean are False and True", stated)
            self._set("levels", (False, True))
        if self.levels is not None:
            self._set("levels", self._read_levels(self.levels))
        elif self.ordered:
            self._refuse("ordered", "needs levels", self.ordered)

    def _read_levels(self, given: Any) -> tuple[Any, ...]:
        # The order of a set differs from process to process.
        unordered = isinstance(given, (str, bytes, set, frozenset))
        if unordered or not isinstance(given, Iterable):
            self._refuse("levels", "must be a sequence of values", given)
        levels = tuple(map(as_python, given))
        if not all(isinstance(level, Hashable) for level in levels):
            self._refuse("levels", "must be hashable values", levels)
        if self.other is not None and self.other not in levels:
            levels = (*levels, self.other)
        if not levels:
            self._refuse("levels", "must not be empty", levels)
        # 1, 1.0 and True are equal, and may all be levels of an object column.
        if len({(type(level).__name__, level) for level in levels}) != len(levels):
            self._refuse("levels", "must be distinct", levels)
        if any(map(is_missing, levels)):
            self._refuse("levels", "must not hold missing values", levels)
        return levels

    @property
    def numeric(self) -> bool:
        """Whether values lie on a line, as numbers and times do."""
        return self.kind in ("continuous", "integer") or self.temporal

    @property
    def temporal(self) -> bool:
        """Whether values are instants or durations."""
        return self.kind in TEMPORAL

    @property
    def unit(self) -> str:
        """Unit in which times are counted: seconds where none is stated."""
        return self.resolution or "s"

    @cached_property
    def numbers(self) -> "Column":
        """The column itself; for times, the integer column of their counts of units."""
        if not self.temporal:
            return self
        lower, upper = self._counts()
        return Column(self.name, "integer", lower, upper, nullable=self.nullable)

    def _counts(self) -> list[Any]:
        """Return the bounds of times in units."""
        return [
            None if end is None else count_of(end, self.kind, self.unit)
            for end in (self.lower, self.upper)
        ]

    @property
    def step(self) -> float | None:
        """Spacing of a numeric column's values, in units; None for a continuum."""
        if self.kind == "integer" or self.temporal:
            return 1.0
        return float(self.resolution) if self.resolution else None

    @property
    def is_ordered(self) -> bool:
        """Whether cells of this column come in a meaningful order."""
        return self.numeric or self.ordered

    def misses_step(self, values: Any) -> Any:
        """Return whether numbers, or counts of units, are no multiples of the step."""
        if self.step is None:
            return np.zeros(np.shape(values), dtype=bool)
        steps = np.asarray(values) / self.step
        return np.abs(steps - np.round(steps)) > 1e-6

    def count(self, value: Any) -> float:
        """Return one value as a number; of a time, the count of units and their part.

        Raises
        ------
        ValueError, TypeError
            For what is no number, or no time.
        """
        if self.temporal:
            length = PER_DAY["us"] // PER_DAY[self.unit]
            return count_of(value, self.kind, "us") / length
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError("not a number")
        return float(value)

    def bounded(self, lower: float, upper: float) -> "Column":
        """Return the column with these bounds, in units where they are times."""
        ends: list[Any] = [lower, upper]
        if self.temporal:
            ends = [spelled(int(end), self.kind, self.unit) for end in ends]
        elif self.kind == "integer":
            ends = [int(end) if float(end).is_integer() else end for end in ends]
        return replace(self, lower=ends[0], upper=ends[1])

    def to_dict(self) -> dict[str, Any]:
        """Return the facts that are stated, fit for JSON where name and levels are."""
        facts = {key: value for key, value in asdict(self).items() if value is not None}
        for field in ("levels", "cycles"):
            if field in facts:
                facts[field] = list(getattr(self, field))
        for field in ("ordered", "per_unit"):
            if not facts[field]:
                del facts[field]
        return facts

    def __repr__(self) -> str:
        facts = self.to_dict()
        if self.kind == "boolean":
            del facts["levels"]
        shown = [repr(facts.pop("name")), repr(facts.pop("kind"))]
        for field in facts:
            value = getattr(self, field)
            is_long = field == "levels" and len(value) > 6
            text = f"<{len(value)} levels>" if is_long else repr(value)
            shown.append(f"{field}={text}")
        return f"Column({', '.join(shown)})"


def _is_injective(template: Any) -> bool:
    """Whether a format writes different numbers differently."""
    if template == "uuid":
        return True
    try:
        specs = [spec or "" for _, _, spec, _ in Formatter().parse(template)]
        if any(re.search(r"\d{4}|{", spec) for spec in specs):
            return False  # a width that fills the memory
        return bool(template.format(1) != template.format(2))
    except (AttributeError, ValueError, LookupError, TypeError):
        return False
