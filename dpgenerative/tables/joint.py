"""Sets of columns that a schema states to belong together, and what they require."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

from pandas.api.types import is_hashable

from dpgenerative._validation import shown
from dpgenerative.tables.column import Column
from dpgenerative.tables.constraints import Constraint, LessEqual

Sets = tuple[tuple[Hashable, ...], ...]


def checked_joint(
    given: Any, columns: Sequence[Column], constraints: Iterable[Constraint]
) -> Sets:
    """Return sets of names of columns.

    Raises
    ------
    ValueError
        If a set is not one of two or three columns that can be learned as one.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        _refuse(given)
    joint = tuple(map(_names, given))
    facts = {column.name: column for column in columns}
    named = [name for names in joint for name in names]
    for name in named:
        _check_column(name, facts, named.count(name))
    for constraint in constraints:
        _check_constraint(constraint, set(named))
    return joint


def _names(each: Any) -> tuple[Hashable, ...]:
    is_set = isinstance(each, (tuple, list)) and len(each) in (2, 3)
    if not is_set or not all(map(is_hashable, each)):
        _refuse(each)
    return tuple(each)


def _refuse(value: Any) -> NoReturn:
    raise ValueError(
        "Schema takes joint as a list of sets of two or three names of columns, such "
        f'as [("lat", "long")]; got {shown(value)}.'
    )


def _check_column(name: Hashable, facts: Mapping[Hashable, Column], n: int) -> None:
    column = facts.get(name)
    if column is None:
        raise ValueError(
            f"Schema: joint names {name!r}, which is no column of the schema. State it "
            "with its bounds."
        )
    if n > 1:
        raise ValueError(f"Schema: joint names the column {name!r} more than once.")
    if not column.numeric or column.temporal or column.is_key:
        raise ValueError(
            "Schema: columns of joint hold numbers (kind 'continuous' or 'integer', no "
            f"identifiers); got {column!r}."
        )
    if column.lower is None:
        raise ValueError(
            f"Schema: columns of joint need bounds; state those of {name!r}."
        )


def _check_constraint(constraint: Constraint, names: set[Hashable]) -> None:
    """Require that a constraint neither orders nor sets columns of joint."""
    is_order = isinstance(constraint, LessEqual)
    involved = constraint.columns if is_order else constraint.repairs
    if clash := [name for name in involved if name in names]:
        raise ValueError(
            f"Schema: joint and {constraint!r} exclude each other, as both decide how "
            f"{clash} are made. Leave out one of them."
        )


def check_missing(
    joint: Sets, stated: Mapping[Hashable, Column], facts: Mapping[Hashable, Column]
) -> None:
    """Require that columns of a set can be missing together where one is stated to be.

    Raises
    ------
    ValueError
        If missing values are stated of one column, and another can have none.
    """
    for names in joint:
        never = [name for name in names if not facts[name].nullable]
        if never and any(stated[name].nullable for name in names):
            raise ValueError(
                f"Schema: the columns {list(names)} of joint are missing together, but "
                f"{never} cannot be missing. State nullable=False for all of them, or "
                "give them a dtype that holds missing values."
            )
