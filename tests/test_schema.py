"""Public facts: what may be stated, what dtypes say, and how the two are joined."""

from __future__ import annotations

import json
import math
import re
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpgenerative import (
    Determines,
    DPHFlowSynthesizer,
    FixedCombinations,
    Impossible,
    LessEqual,
    forecast,
)
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.local import LaplaceRandomizer
from dpgenerative.tables.column import KINDS, Column
from dpgenerative.tables.drafts import unmarked_schema
from dpgenerative.tables.dtypes import can_hold_missing, is_real_dtype
from dpgenerative.tables.foreign import kind_hint
from dpgenerative.tables.schema import Schema

AGE = Column("age", "integer", lower=0, upper=120)
SHARE = Column("share", "continuous", lower=0.0, upper=1.0, resolution=0.01)
GRADE = Column("grade", "categorical", levels=("low", "mid", "high"), ordered=True)
FLAG = Column("flag", "boolean", nullable=False)
ALL = Schema([AGE, SHARE, GRADE, FLAG])

ROWS = pd.DataFrame(
    {
        "age": [30, 40, 50],
        "share": [0.25, 0.5, np.nan],
        "grade": ["low", None, "high"],
        "flag": [True, False, True],
        "note": ["a", "b", "c"],
    }
)


# Columns ----------------------------------------------------------------------

CONTRADICTIONS = [
    ({"kind": "number"}, "kind", "'number'"),
    ({"kind": None}, "kind", "None"),
    ({"kind": "integer", "levels": (1, 2)}, "levels", "(1, 2)"),
    ({"kind": "continuous", "ordered": True}, "ordered", "True"),
    ({"kind": "integer", "lower": 3}, "lower and upper", "(3, None)"),
    ({"kind": "continuous", "upper": 2.5}, "lower and upper", "(None, 2.5)"),
    ({"kind": "integer", "lower": 5, "upper": 4}, "lower", "(5, 4)"),
    ({"kind": "continuous", "lower": 0, "upper": math.inf}, "bounds", "inf"),
    ({"kind": "continuous", "lower": math.nan, "upper": 1}, "bounds", "nan"),
    ({"kind": "integer", "resolution": 10}, "resolution", "10"),
    ({"kind": "continuous", "resolution": 0}, "resolution", "0"),
    ({"kind": "continuous", "resolution": -0.1}, "resolution", "-0.1"),
    ({"kind": "continuous", "resolution": math.inf}, "resolution", "inf"),
    ({"kind": "continuous", "resolution": math.nan}, "resolution", "nan"),
    ({"kind": "categorical", "lower": 7, "upper": 8}, "bounds", "(7, 8"),
    ({"kind": "categorical", "resolution": 0.5}, "resolution", "0.5"),
    ({"kind": "boolean", "lower": 7, "upper": 8}, "bounds", "(7, 8"),
    ({"kind": "categorical", "levels": ()}, "levels", "()"),
    ({"kind": "categorical", "levels": ("a", "b", "a")}, "levels", "('a', 'b', 'a')"),
    ({"kind": "categorical", "levels": ("a", None)}, "levels", "None"),
    ({"kind": "categorical", "levels": (1.0, math.nan)}, "levels", "nan"),
    ({"kind": "categorical", "levels": ("a", pd.NA)}, "levels", "<NA>"),
    ({"kind": "categorical", "levels": ("a", pd.NaT)}, "levels", "NaT"),
    ({"kind": "categorical", "ordered": True}, "ordered", "True"),
    ({"kind": "boolean", "levels": ["no", "yes"]}, "levels", "['no', 'yes']"),
]


@pytest.mark.parametrize(("facts", "field", "value"), CONTRADICTIONS)
def test_contradictions_are_refused_by_name_fact_and_value(facts, field, value):
    with pytest.raises(ValueError, match="'my column'") as caught:
        Column("my column", **facts)
    assert field in str(caught.value)
    assert value in str(caught.value)


@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"kind": "continuous", "lower": "a", "upper": "b"}, "lower"),
        ({"kind": "continuous", "resolution": "a"}, "resolution"),
        ({"kind": "datetime", "resolution": ["s"]}, "resolution"),
        ({"kind": "continuous", "lower": 0, "upper": 10**400}, "bounds"),
        ({"kind": "continuous", "lower": 0, "upper": math.nan}, "bounds"),
        (
            {"kind": "continuous", "lower": 0, "upper": 1e300, "resolution": 1e-30},
            "resolution",
        ),
        ({"kind": "categorical", "levels": 5}, "levels"),
        ({"kind": "categorical", "levels": "abc"}, "levels"),
        ({"kind": "categorical", "levels": {"a", "b"}}, "levels"),
        ({"kind": "categorical", "levels": [["a"], ["b"]]}, "levels"),
    ],
)
def test_facts_of_a_wrong_type_are_refused_by_name(facts, field):
    with pytest.raises((TypeError, ValueError), match="'my column'") as caught:
        Column("my column", **facts)
    assert field in str(caught.value)


@pytest.mark.parametrize("name", [None, ["a"], {}])
def test_names_that_no_column_has_are_refused(name):
    with pytest.raises(ValueError, match="name must be one"):
        Column(name, "integer")


@pytest.mark.parametrize(
    ("column", "numeric", "step", "is_ordered"),
    [
        (AGE, True, 1.0, True),
        (SHARE, True, 0.01, True),
        (Column("x", "continuous"), True, None, True),
        (GRADE, False, None, True),
        (Column("x", "categorical"), False, None, False),
        (FLAG, False, None, False),
    ],
)
def test_what_follows_from_the_facts(column, numeric, step, is_ordered):
    assert column.numeric == numeric
    assert column.step == step
    assert column.is_ordered == is_ordered


def test_columns_are_frozen_values():
    assert Column("a", "categorical", levels=["x", "y"]).levels == ("x", "y")
    assert Column("a", "boolean").levels == (False, True)
    assert Column("age", "integer", lower=0, upper=120) == AGE
    assert Column("age", "integer", lower=0, upper=121) != AGE
    assert len({AGE, SHARE, AGE}) == 2
    with pytest.raises(FrozenInstanceError):
        AGE.lower = 1
    assert Column("x", "integer", lower=4, upper=4).upper == 4


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (AGE, "Column('age', 'integer', lower=0, upper=120)"),
        (FLAG, "Column('flag', 'boolean', nullable=False)"),
        (Column(3, "continuous"), "Column(3, 'continuous')"),
        (
            GRADE,
            "Column('grade', 'categorical', levels=('low', 'mid', 'high'), "
            "ordered=True)",
        ),
        (
            Column("x", "categorical", levels=tuple("abcdefg")),
            "Column('x', 'categorical', levels=<7 levels>)",
        ),
    ],
)
def test_repr_of_a_column(column, expected):
    assert repr(column) == expected
    if "<" not in expected:
        assert eval(expected, {"Column": Column}) == column


# Schemas ----------------------------------------------------------------------


def test_a_schema_is_a_sequence_of_named_columns():
    assert ALL.names == ("age", "share", "grade", "flag")
    assert len(ALL) == 4
    assert list(ALL) == list(ALL.columns)
    assert ALL["grade"] is GRADE
    assert "share" in ALL
    assert "note" not in ALL
    assert Schema(iter([AGE])) == Schema((AGE,))
    assert Schema([AGE, SHARE]) != Schema([SHARE, AGE])
    assert hash(Schema([AGE])) == hash(Schema([AGE]))
    with pytest.raises(KeyError, match="note"):
        ALL["note"]
    with pytest.raises(FrozenInstanceError):
        ALL.columns = ()


def test_notebooks_show_a_schema_as_a_table():
    hostile = Column("<script>", "categorical", levels=("<b>", "&"))
    rule = LessEqual("<i>", "age")
    page = Schema([AGE, hostile], constraints=[rule])._repr_html_()
    assert [f"<th>{key}</th>" in page for key in ("name", "lower", "levels")] == [
        True, True, True
    ]  # fmt: skip
    assert "<td>120</td>" in page
    assert "&lt;script&gt;" in page
    assert "&lt;i&gt;" in page
    assert not re.search("<(script|b|i)>", page)
    assert "<th>role</th>" not in page
    assert "<table" in Schema([])._repr_html_()


def test_repr_of_a_schema():
    expected = (
        "Schema([\n"
        "    Column('age', 'integer', lower=0, upper=120),\n"
        "    Column('flag', 'boolean', nullable=False),\n"
        "])"
    )
    assert repr(Schema([AGE, FLAG])) == expected
    assert eval(repr(ALL), {"Column": Column, "Schema": Schema}) == ALL


def test_names_are_distinct():
    with pytest.raises(ValueError, match=r"distinct.*\['1', 'age'\]"):
        Schema([AGE, Column(1, "integer"), AGE, Column(1, "boolean")])


def test_one_fact_is_no_list_of_facts():
    with pytest.raises(ValueError, match="takes columns as a sequence; got Column"):
        Schema(AGE)
    with pytest.raises(ValueError, match="constraints as a sequence; got LessEqual"):
        Schema([AGE], LessEqual("age", "share"))


@pytest.mark.parametrize("wrong", ["age", {"name": "age"}, None])
def test_only_columns_are_taken(wrong):
    with pytest.raises(ValueError, match="columns as Column objects") as caught:
        Schema([AGE, wrong])
    assert repr(wrong) in str(caught.value)


# Dictionaries and JSON --------------------------------------------------------


def test_what_is_no_table_is_not_checked():
    with pytest.raises(TypeError, match="takes a DataFrame; got a list"):
        Schema([]).check([1])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"columns": [], "constraint": []}, "of 'columns' and.*'constraint'"),
        ("schema.json", "dictionary of 'columns'.*'schema.json'"),
        ({"columns": [{"name": "a", "lowr": 1}]}, "'lowr'. of the column 'a'; known"),
    ],
)
def test_dictionaries_that_are_no_schema(facts, said):
    with pytest.raises(ValueError, match=said):
        Schema.from_dict(facts)


levels = st.lists(
    st.text(max_size=5) | st.integers(-5, 5) | st.floats(-2, 2),
    min_size=1,
    max_size=8,
    unique_by=lambda level: level,
)
bounds = st.tuples(st.floats(-1e9, 1e9), st.floats(0, 1e9))
nullables = st.sampled_from([None, True, False])


@st.composite
def columns(draw, name):
    kind = draw(st.sampled_from(KINDS))
    facts = {"nullable": draw(nullables)}
    if kind in ("integer", "continuous") and draw(st.booleans()):
        lower, width = draw(bounds)
        # Wide enough for a multiple of any resolution drawn below.
        facts |= {"lower": lower, "upper": lower + width + 2000}
    if kind == "continuous" and draw(st.booleans()):
        facts["resolution"] = draw(st.floats(1e-9, 1e3))
    if kind == "categorical" and draw(st.booleans()):
        facts |= {"levels": draw(levels), "ordered": draw(st.booleans())}
    return Column(name, kind, **facts)


@given(
    st.lists(st.text(max_size=4) | st.integers(), unique=True, max_size=5), st.data()
)
def test_schemas_survive_json(names, data):
    schema = Schema(data.draw(columns(name)) for name in names)
    text = json.dumps(schema.to_dict(), allow_nan=False)
    assert Schema.from_dict(json.loads(text)) == schema


def test_dictionaries_hold_what_was_stated():
    assert Schema([AGE, GRADE]).to_dict() == {
        "columns": [
            {"name": "age", "kind": "integer", "lower": 0, "upper": 120},
            {
                "name": "grade",
                "kind": "categorical",
                "levels": ["low", "mid", "high"],
                "ordered": True,
            },
        ]
    }


@pytest.mark.parametrize(
    "column",
    [
        Column(np.int64(3), "integer", lower=np.int64(0), upper=np.int64(9)),
        Column("x", "continuous", lower=np.float32(0), upper=np.float32(0.5)),
        Column("x", "continuous", resolution=np.float32(0.5)),
        Column("x", "categorical", levels=np.array([3, 1, 2]), ordered=True),
        Column("x", "categorical", levels=np.array(["a", "b"])),
        Column("x", "categorical", levels=np.array([True, False])),
        Column("x", "boolean", nullable=np.bool_(True)),
    ],
)
def test_numpy_facts_become_plain(column):
    schema = Schema([column])
    text = json.dumps(schema.to_dict())
    assert Schema.from_dict(json.loads(text)) == schema


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({}, "'columns'"),
        ({"columns": [], "rows": 3}, "'columns'"),
        ({"columns": [{"name": "a", "kind": "integer", "mean": 3}]}, "'mean'"),
        ({"columns": [{"name": "a", "kind": "integer", "lower": 3}]}, "'a'"),
        ({"columns": [{"name": "a"}]}, "kind"),
        ({"columns": [{"kind": "integer"}]}, "name"),
        ({"columns": [], "constraints": [5]}, "'constraints'"),
        ({"columns": [], "constraints": {"a": 1}}, "'constraints'"),
        ({"columns": [], "constraints": None}, "list of dictionaries"),
        ({"columns": None}, "list of dictionaries"),
        ({"columns": ["a"]}, "list of dictionaries"),
    ],
)
def test_dictionaries_of_other_shapes_are_refused(facts, match):
    with pytest.raises(ValueError, match=match):
        Schema.from_dict(facts)


# Dtypes -----------------------------------------------------------------------

KIND_OF_DTYPE = {
    **{f"{u}int{bits}": "integer" for u in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"{u}Int{bits}": "integer" for u in ("", "U") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("float16", "float32", "float64"), "continuous"),
    **dict.fromkeys(("Float32", "Float64"), "continuous"),
    "bool": "boolean",
    "boolean": "boolean",
    "object": "categorical",
    "string": "categorical",
    "string[pyarrow]": "categorical",
    "int64[pyarrow]": "integer",
    "double[pyarrow]": "continuous",
    "bool[pyarrow]": "boolean",
}
NEVER_MISSING = [f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)] + ["bool"]


@pytest.mark.parametrize("dtype", KIND_OF_DTYPE)
def test_dtypes_say_the_kind_and_whether_values_can_miss(dtype):
    frame = pd.DataFrame({"x": pd.Series([], dtype=dtype)})
    column = Schema.from_dtypes(frame)["x"]
    assert column.kind == KIND_OF_DTYPE[dtype]
    assert column.nullable is (False if dtype in NEVER_MISSING else None)
    assert can_hold_missing(frame["x"].dtype) == (dtype not in NEVER_MISSING)
    assert is_real_dtype(frame["x"].dtype) == column.numeric
    assert (column.lower, column.upper, column.resolution) == (None, None, None)
    assert column.levels == ((False, True) if column.kind == "boolean" else None)
    nominal = Schema.from_dtypes(frame, nominal=["x"])["x"]
    assert nominal.kind == ("boolean" if column.kind == "boolean" else "categorical")
    is_code = dtype in NEVER_MISSING and dtype != "bool"  # it may be no level
    assert nominal.nullable == (None if is_code else column.nullable)


@pytest.mark.parametrize(
    "constraint",
    [
        Impossible({"k": None, "b": "x"}),
        Determines(["b"], "k", {"x": None}),
        FixedCombinations(["b", "k"], [["x", None], ["y", None]]),
    ],
)
def test_no_constraint_speaks_of_missing_integers(constraint):
    columns = [Column("k", "categorical", levels=[1]), Column("b", "categorical")]
    with pytest.raises(ValueError, match="has no missing values"):
        Schema(columns, [constraint]).resolve(pd.DataFrame({"k": [9], "b": ["x"]}))


def test_a_schema_of_a_fit_keeps_values_that_are_no_level_apart():
    frame = pd.DataFrame({"k": [1, 9]})
    stated = Column("k", "categorical", levels=[1], nullable=True)
    assert Schema([stated]).resolve(frame)["k"].nullable
    never = Schema([replace(stated, nullable=False)]).resolve(frame)["k"]
    assert not never.nullable


def test_a_nullable_of_0_is_false():
    column = Column("share", "continuous", nullable=0)
    assert column.nullable is False
    assert not Schema([column]).resolve(ROWS)["share"].nullable


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("categories", [["b", "a"], [3, 1, 2], [True, False], [1.5]])
def test_categories_are_public(categories, ordered):
    dtype = pd.CategoricalDtype(categories, ordered=ordered)
    frame = pd.DataFrame({"x": pd.Series([None], dtype=dtype)})
    expected = Column("x", "categorical", levels=categories, ordered=ordered)
    assert Schema.from_dtypes(frame)["x"] == expected


def test_no_categories_leave_missing_only():
    frame = pd.DataFrame({"x": pd.Categorical([None, None])})
    assert Schema.from_dtypes(frame)["x"].levels == ("",)


def test_no_value_is_looked_at():
    """The same dtypes give the same schema, whatever the rows."""
    others = ROWS.iloc[:0]
    assert Schema.from_dtypes(ROWS) == Schema.from_dtypes(others)
    assert ALL.resolve(ROWS) == ALL.resolve(others)


UNSUPPORTED = {
    "period": pd.Series(pd.period_range("2020", periods=2, freq="M")),
    "interval": pd.Series(pd.interval_range(0, 2)),
    "complex": pd.Series([1j, 2.0]),
    "complex64": pd.Series([1, 2], dtype="complex64"),
    "sparse float": pd.Series(pd.arrays.SparseArray([0.0, 1.0])),
    "sparse integer": pd.Series(pd.arrays.SparseArray([0, 1])),
    "sparse boolean": pd.Series(pd.arrays.SparseArray([False, True])),
    "sparse object": pd.Series(
        pd.arrays.SparseArray(np.array(["a", "b"], dtype=object))
    ),
    "arrow list": pd.Series([None], dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "arrow dictionary": pd.Series(
        [None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
    ),
    "arrow time of day": pd.Series([None], dtype=pd.ArrowDtype(pa.time32("s"))),
    "arrow bytes": pd.Series([None], dtype=pd.ArrowDtype(pa.binary())),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_other_dtypes_are_refused_by_name_and_dtype(name):
    frame = pd.DataFrame({"fine": [1, 2][: len(UNSUPPORTED[name])]})
    frame["odd one"] = UNSUPPORTED[name]
    for build in (Schema.from_dtypes, Schema([]).resolve):
        with pytest.raises(UnsupportedColumnError, match="'odd one'") as caught:
            build(frame)
        assert str(frame["odd one"].dtype) in str(caught.value)
        assert "Supported" in str(caught.value)


def test_unsupported_dtypes_are_type_errors():
    assert issubclass(UnsupportedColumnError, TypeError)


# Resolution -------------------------------------------------------------------


def test_resolve_puts_stated_facts_before_those_of_the_dtype():
    resolved = ALL.resolve(ROWS)
    assert resolved.names == tuple(ROWS.columns)
    assert resolved["age"] == Column(
        "age", "integer", lower=0, upper=120, nullable=False
    )
    assert resolved["share"].nullable
    assert resolved["share"].resolution == 0.01
    assert resolved["grade"].levels == GRADE.levels
    note = Column("note", "categorical", nullable=True, other="other")
    assert resolved["note"] == note
    assert resolved.resolve(ROWS) == resolved


def test_resolve_follows_the_order_of_the_table():
    names = list(ROWS.columns[::-1])
    assert ALL.resolve(ROWS[names]).names == tuple(names)


@pytest.mark.parametrize(
    ("dtype", "stated", "expected"),
    [
        ("float64", None, True),
        ("float64", False, False),
        ("int64", None, False),
        ("int64", True, False),
        ("Int64", None, True),
    ],
)
def test_missing_values_need_a_dtype_that_holds_them(dtype, stated, expected):
    frame = pd.DataFrame({"x": pd.Series([1, 2], dtype=dtype)})
    schema = Schema([Column("x", "integer", nullable=stated)])
    assert schema.resolve(frame)["x"].nullable == expected


def test_levels_come_from_the_dtype_where_the_schema_leaves_them_open():
    frame = pd.DataFrame(
        {"x": pd.Categorical(["b", "a"], categories=["b", "a"]), "y": [True, False]}
    )
    schema = Schema([Column("x", "categorical"), Column("y", "categorical")])
    resolved = schema.resolve(frame)
    assert resolved["x"].levels == ("b", "a")
    assert resolved["y"].levels == (False, True)
    assert resolved["y"].nullable is False  # nothing else fits into the dtype


def test_nominal_columns_keep_what_the_schema_says():
    frame = pd.DataFrame({"x": [1, 2], "y": [1, 2], "z": [1.0, 2.0]})
    resolved = Schema([Column("x", "integer")]).resolve(frame, nominal=["x", "y"])
    assert [c.kind for c in resolved.columns] == [
        "integer",
        "categorical",
        "continuous",
    ]


def test_resolve_names_absent_columns():
    with pytest.raises(ValueError, match=r"lacks: \['grade', 'flag'\]"):
        ALL.resolve(ROWS[["age", "share"]])


@pytest.mark.parametrize("kind", ["integer", "continuous"])
@pytest.mark.parametrize("values", [["1", "2"], [True, False]])
@pytest.mark.parametrize("dtype", ["object", "category", None])
def test_numbers_are_not_read_from_other_dtypes(kind, values, dtype):
    frame = pd.DataFrame({"my column": pd.Series(values, dtype=dtype)})
    with pytest.raises(ValueError, match="'my column'") as caught:
        Schema([Column("my column", kind)]).resolve(frame)
    assert kind in str(caught.value)
    assert str(frame["my column"].dtype) in str(caught.value)


@pytest.mark.parametrize("levels", [("x", "y"), (1, 1.5)])
def test_levels_that_the_dtype_cannot_hold_are_refused(levels):
    """They could not be put into a sample."""
    frame = pd.DataFrame({"my column": [1, 2]})
    schema = Schema([Column("my column", "categorical", levels=levels)])
    with pytest.raises(ValueError, match="'my column'"):
        schema.resolve(frame)


# Check ------------------------------------------------------------------------


UNFIT = pd.DataFrame(
    {
        "age": [-1, 0, 121, 120],
        "share": [0.25, 0.255, np.nan, 1.01],
        "grade": ["low", "best", None, "high"],
        "flag": pd.array([True, None, False, True], dtype="boolean"),
    },
    index=["p", "q", "r", "s"],
)


def test_check_lists_every_cell_that_does_not_fit():
    found = ALL.check(UNFIT, cells=True)
    assert found.columns.tolist() == ["column", "row", "value", "problem"]
    problems = {
        (column, row): problem
        for column, row, _, problem in found.itertuples(index=False)
    }
    assert problems == {
        ("age", "p"): "below the lower bound",
        ("age", "r"): "above the upper bound",
        ("share", "s"): "above the upper bound",
        ("grade", "q"): "not among the levels",
        ("flag", "q"): "missing in a column that is not nullable",
    }
    assert found["value"].tolist()[:2] == [-1, 121]


def test_check_counts_by_column_and_problem():
    rows = pd.concat([UNFIT] * 50).assign(age=[*range(-50, 50), *range(100, 200)])
    rule = LessEqual("share", "age")
    found = Schema(ALL.columns, [rule]).check(rows)
    names = ["column", "problem", "count", "share", "examples"]
    assert found.columns.tolist() == names
    assert len(found) == 6
    counts = {row.problem: list(row)[3:] for row in found.itertuples()}
    assert counts["below the lower bound"] == [50, 0.25, [-50, -49, -48]]
    assert counts["not among the levels"] == [50, 0.25, ["best"]]
    assert counts[f"breaks {rule!r}"][0] == (~rule.holds(rows)).sum()
    assert found["column"].iloc[-1] == ("share", "age")
    assert found["count"].sum() == len(
        Schema(ALL.columns, [rule]).check(rows, cells=True)
    )


@pytest.mark.parametrize(
    "column", [SHARE, Column("share", "integer"), Column("share", "continuous")]
)
def test_rounding_to_the_resolution_is_no_problem(column):
    """Of flights, 24,571 lines said that they would be rounded."""
    frame = pd.DataFrame({"share": [0.123, 0.1234, 0.5]})
    assert Schema([column]).check(frame).empty


def test_check_finds_nothing_where_all_fits():
    assert ALL.check(ROWS).empty
    found = ALL.check(ROWS, cells=True)
    assert len(found) == 0
    assert found.columns.tolist() == ["column", "row", "value", "problem"]


def test_check_finds_infinite_numbers():
    frame = pd.DataFrame({"age": [1.0, np.inf, -np.inf], "share": [0.1, np.inf, 0.2]})
    found = Schema([AGE, SHARE]).check(frame)
    assert found["column"].tolist() == ["age", "share"]
    assert found["count"].tolist() == [2, 1]
    assert set(found["problem"]) == {"not finite"}


def test_check_reads_categories():
    frame = pd.DataFrame({"grade": pd.Categorical(["low", "odd", None])})
    found = Schema([GRADE]).check(frame)
    assert found["examples"].tolist() == [["odd"]]


def test_check_refuses_what_resolve_refuses():
    with pytest.raises(ValueError, match="lacks"):
        ALL.check(ROWS[["age"]])


def test_bounds_found_of_integers_are_shown_as_integers():
    found = Column("a", "integer").bounded(-1.0, 7.0)
    assert repr(found) == "Column('a', 'integer', lower=-1, upper=7)"
    assert repr(Column("a", "continuous").bounded(-1.0, 7.0)).endswith("upper=7.0)")


# Words of other tools -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("numerical", '"continuous", or "integer" for whole numbers'),
        ("float", '"continuous"'),
        (np.float32, '"continuous"'),
        ("double[pyarrow]", '"continuous"'),
        ("decimal128(5, 2)", '"continuous"'),
        ("int", '"integer"'),
        (int, '"integer"'),
        (pd.Int64Dtype(), '"integer"'),
        ("Integer", '"integer"'),
        ("uint8", '"integer"'),
        ("category", '"categorical"'),
        (str, '"categorical"'),
        ("ordinal", '"categorical" with levels and ordered=True'),
        ("postcode", '"categorical"'),
        ("bool", '"boolean"'),
        ("datetime64", '"datetime"'),
        ("datetime64[ns, UTC]", '"datetime"'),
        ("date", '"datetime"'),
        ("timestamp[us][pyarrow]", '"datetime"'),
        (np.dtype("m8[s]"), '"timedelta"'),
        ("id", '"categorical" (or "integer") with role="id"'),
        ("unknown", "none: leave the column out"),
        ("pii", "none: leave the column out"),
        ("email", "none: leave the column out"),
        ("ipv4_address", "none: leave the column out"),
    ],
)
def test_kinds_of_other_tools_get_the_word_of_this_one(kind, hint):
    with pytest.raises(ValueError, match=re.escape(f"(here {hint}")):
        Column("a", kind)
    with pytest.raises(ValueError, match=re.escape(f"(here {hint}")):
        Schema.from_dict({"columns": [{"name": "a", "kind": kind}]})


@pytest.mark.parametrize("kind", ["nonsense", None, 3, ["int"], len])
def test_other_kinds_get_no_hint(kind):
    with pytest.raises(ValueError, match="timedelta'\\); got"):
        Column("a", kind)


HOTEL = {
    "columns": {
        "guest": {"sdtype": "id", "regex_format": "G[0-9]{4}"},
        "rate": {"sdtype": "numerical"},
        "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
        "member": {"sdtype": "boolean"},
        "arrival": {"sdtype": "datetime", "datetime_format": "%Y-%m-%d"},
        "room": {"sdtype": "categorical"},
        "mail": {"sdtype": "email", "pii": True},
        "job": {"sdtype": "job_of_faker", "pii": True},
        "booking": {"sdtype": "numerical"},
    },
    "primary_key": "booking",
    "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
}
KINDS_OF_HOTEL = (
    '"categorical" (or "integer") with role="id" for guest, booking; "continuous", or '
    '"integer" for whole numbers for rate; "integer" for nights; "boolean" for member; '
    '"datetime" for arrival; "categorical" for room; none: leave the column out, or '
    'state "categorical" (or "integer") with role="id" for mail, job.'
)
FRAME = pd.DataFrame({"rate": [1.0, 2.0]})


class Metadata:
    """Looks like SDV's."""

    __module__ = "sdv.metadata.metadata"

    def to_dict(self):
        return {"tables": {"hotel": HOTEL}, "relationships": []}


@pytest.mark.parametrize("metadata", [HOTEL, {"tables": {"h": HOTEL}}, Metadata()])
@pytest.mark.parametrize(
    ("take", "who"),
    [
        (Schema, "'columns' of Schema"),
        (Schema.from_dict, "Schema.from_dict"),
        (lambda it: DPHFlowSynthesizer(schema=it).fit(FRAME), "'schema' of DPHFlow"),
        (lambda it: LaplaceRandomizer(schema=it).fit(FRAME), "'schema' of Laplace"),
        (lambda it: forecast(it, 100), "'schema' of forecast"),
        (lambda it: unmarked_schema(it, "facts.json"), "facts.json"),
    ],
)
def test_metadata_of_sdv_are_refused_with_the_kinds_to_state(take, who, metadata):
    with pytest.raises(ValueError, match=re.escape(KINDS_OF_HOTEL)) as error:
        take(metadata)
    assert who in str(error.value)


def test_of_several_tables_one_is_learned():
    hotels = {"columns": {"stars": {"sdtype": "numerical"}}}
    with pytest.raises(ValueError, match=r"of one table.* for guests.rate") as error:
        Schema.from_dict({"tables": {"guests": HOTEL, "hotels": hotels}})
    assert "hotels.stars" in str(error.value)


def test_the_page_has_the_same_words():
    page = (Path(__file__).parents[1] / "doc" / "data.rst").read_text(encoding="utf-8")
    start = page.index("sdtype of SDV")
    lines = page[start : page.index("\n\n", start)].splitlines()[2:-1]
    rows = [re.split(r"\s{2,}", line, maxsplit=1) for line in lines]
    assert len(rows) > 6
    for words, stated in rows:
        for word in re.findall("``(.*?)``", words):
            hints = re.findall('"([a-z]+)"', kind_hint(word))
            assert re.findall('"([a-z]+)"', stated) == hints
