"""Columns that are computed: exact in samples, free, and nothing but formulas."""

from __future__ import annotations

import json
import re
from datetime import date

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgenerative import (
    Column,
    Composition,
    Derived,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Impossible,
    LessEqual,
    Schema,
    SyntheticClassifier,
    load,
)
from dpgenerative.exceptions import SamplingError
from dpgenerative.tables.derived import Expression
from dpgenerative.tables.drafts import ASK, draft_schema

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

ROWS = pd.DataFrame(
    {
        "a": [1.0, 4.0, np.nan],
        "b": [2, 3, 5],
        "sex": ["f", None, "m"],
        "from": pd.to_datetime(["2020-01-01 10:20", "2021-05-06 11:00", None]),
        "to": pd.to_datetime(
            ["2020-01-03 10:20", "2021-05-06 23:00", "2020-01-01 00:00"]
        ),
        "day": [date(2020, 1, 1), None, date(2020, 1, 3)],
        "two words": [1, 2, 3],
        "_column_0": [2, 3, 5],
        "flag": pd.array([True, None, False], "boolean"),
    }
)
DERIVED = [
    Derived("total", "a + price", digits=2),
    Derived("bmi", "weight / (height / 100) ** 2", digits=1),
    Derived("grown", "where(a >= 18, 'yes', 'no')"),
    Derived("clock", "hour(begin) * 100 + minute(begin)"),
    Derived("many", "a > 25"),
    Derived("stay", "end - begin"),
    Derived("twice", "total * 2"),
]
COLUMNS = [
    Column("a", "integer", lower=0, upper=50),
    Column("price", "continuous", lower=0, upper=200, resolution=0.01),
    Column("height", "continuous", lower=140, upper=210, resolution=1),
    Column("weight", "continuous", lower=30, upper=150, resolution=0.1),
    Column(
        "begin", "datetime", lower="2020-01-01", upper="2022-01-01", resolution="min"
    ),
    Column("end", "datetime", lower="2020-01-01", upper="2022-02-01", resolution="min"),
    Column("key", "categorical", role="id"),
]
SCHEMA = Schema(COLUMNS, [*DERIVED, LessEqual("begin", "end")])
FEW = {"n_steps": 5, "random_state": 0, "noise": "reproducible"}


def table(n=600):
    rng = np.random.default_rng(0)
    begin = pd.Timestamp("2020-01-01") + pd.to_timedelta(
        rng.integers(0, 10**6, n), "min"
    )
    frame = pd.DataFrame(
        {
            "a": rng.integers(0, 50, n),
            "price": rng.gamma(2, 10, n).round(2),
            "height": rng.normal(170, 9, n).round(),
            "weight": rng.normal(70, 12, n).round(1),
            "begin": begin,
            "end": begin + pd.to_timedelta(rng.integers(0, 10**4, n), "min"),
            "key": [f"k{i}" for i in range(n)],
        }
    )
    frame["total"] = (frame["a"] + frame["price"]).round(2)
    frame["bmi"] = (frame["weight"] / (frame["height"] / 100) ** 2).round(1)
    frame["grown"] = pd.Categorical(np.where(frame["a"] >= 18, "yes", "no"))
    frame["clock"] = begin.hour * 100 + begin.minute
    frame["many"] = frame["a"] > 25
    frame["stay"] = frame["end"] - begin
    frame["twice"] = (frame["total"] * 2).astype(np.float32)
    return frame


@pytest.fixture(scope="module")
def synthesizer():
    return DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(table())


# The language -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b", [3, 7, None]),
        ("-a ** 2 % 5", [-1 % 5, -16 % 5, None]),
        ("b // 2 - +b / 2", [0, -0.5, -0.5]),
        ("a / (b - 2)", [None, 4, None]),
        ("`two words` * 10", [10, 20, 30]),
        ("`two words` * _column_0", [2, 6, 15]),
        ("min(a, b, 2.5)", [1, 2.5, None]),
        ("max(abs(0 - b), 3)", [3, 3, 5]),
        ("round(sqrt(b), 2)", [1.41, 1.73, 2.24]),
        ("floor(exp(log(b)) + .5) + ceil(.2)", [3, 4, 6]),
        ("1 < a <= 4", [0, 1, None]),
        ("not a > 1", [1, 0, None]),
        ("a > 1 and b > 2 or b == 5", [0, 1, None]),
        ("sex == 'f'", [1, None, 0]),
        ("sex != 'f'", [0, None, 1]),
        ("flag * 2", [2, None, 0]),
        ("where(flag, a, b)", [1, None, 5]),
        ("where(b > 2, 'high', 'low')", ["low", "high", "high"]),
        ("where(a > 2, sex, 'none')", ["none", None, None]),
        ("days(to - `from`)", [2, 0.5, None]),
        ("hours(to - `from`) + minutes(to - to)", [48, 12, None]),
        ("seconds((to - `from`) * 2)", [2 * 172_800, 86_400, None]),
        ("year(to) * 100 + month(to)", [202001, 202105, 202001]),
        ("weekday(day)", [2, None, 4]),
        ("day(day) + 0 * hour(`from`) + minute(`from`)", [21, None, None]),
        ("where(to > `from`, 1, 0)", [1, 1, None]),
    ],
)
def test_expressions(expression, expected):
    values = Derived("new", expression).compute(ROWS)
    assert [None if pd.isna(v) else v for v in values] == expected


def test_times_are_computed_as_such():
    later = Derived("new", "`from` + (to - `from`)").compute(ROWS)
    assert pd.Series(later[:2]).tolist() == ROWS["to"][:2].tolist()
    assert np.isnat(later[2])
    zoned = ROWS.assign(to=ROWS["to"].dt.tz_localize("Asia/Tokyo"))
    assert Derived("new", "hour(to)").compute(zoned).tolist() == [10, 23, 0]


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os')", "a.__class__", "a[0]", "lambda: a", "f(a)", "a if b else c",
        "[a]", "a; b", "a = b", "", "a +", "a @ b", "a << 1", "~a", "a is b", "a in b",
        "f'{a}'", "None", "True + a", "1j * a", "min(a, key=b)", "(a := 2)", "round()",
        "1 + 1", "new + a", "a + `new`", "a" + "+a" * 600, "(" * 300 + "a" + ")" * 300,
        "print(a)", "round.__self__(a)", 3, None, "abs(a, b)", "sqrt(a, a)", "min()",
        "where(a)", "a + " + "9" * 400, "-" * 300 + "a", "~" + "-" * 900 + "a",
    ],
)  # fmt: skip
def test_what_is_no_formula_is_refused(expression):
    with pytest.raises(ValueError, match="Derived: expression"):
        Derived("new", expression)


@pytest.mark.parametrize("field", [{"name": 3}, {"digits": 1.5}, {"digits": True}])
def test_fields_are_checked(field):
    with pytest.raises(ValueError, match="Derived: "):
        Derived(**{"name": "new", "expression": "a", **field})


@settings(max_examples=200, deadline=None, database=None)
@given(st.text("ab+-*/%()<>=!'`,. 0129_[]{}:andotrwhe", max_size=40))
def test_any_text_is_a_formula_or_refused(text):
    try:
        made = Expression(text)
    except ValueError:
        return
    columns = {name: np.ones(2) for name in made.columns}
    try:
        assert len(made.evaluate(columns, 2)) == 2
    except TypeError:  # as of an operation on texts
        return


@pytest.mark.parametrize(
    "expression",
    [
        "grown + 1", "a + grown", "grown < 'x'", "begin + 1", "begin + end", "hour(a)",
        "a and begin", "not grown", "a < begin", "where(a, grown, a)",
        "round(a, price)", "round(a, 2000000000)", "round(a, 1e999)", "round(a, 0 / 0)",
        "(end - begin) // (end - begin)", "min(grown, grown)", "where(a, begin, 1)",
        "end - begin",
        "begin", "where(a > 1, 'x', 'y')", "where(grown, 1, 2)",
    ],
)  # fmt: skip
def test_what_columns_cannot_do_is_refused(expression):
    columns = [column for column in COLUMNS if column.name != "key"]
    schema = Schema(columns, [Derived("total", expression)])
    with pytest.raises(ValueError, match=r"cannot be computed|needs a column of kind"):
        schema.resolve(table().drop(columns="key"))


def test_dates_among_objects_that_all_lack():
    rows = pd.DataFrame({"day": [date(2020, 1, 1), None] * 50, "year": 2020.0})
    day = Column("day", "datetime", "2020-01-01", "2024-01-01", resolution="D")
    schema = Schema([day], [Derived("year", "year(day)")])
    fit = DPHFlowSynthesizer(schema=schema, n_steps=2, random_state=0).fit(rows)
    assert fit.sample(9, random_state=0, given={"day": None})["year"].isna().all()
    part = pd.DataFrame({"day": [None]}, dtype=object)
    assert fit.sample(given=part)["year"].isna().all()
    assert not len(schema.check(rows.iloc[1:2].assign(year=np.nan)))


def test_backticks_within_texts_are_texts():
    made = Expression("""where(`it's` == 'a `b` c', "`", 'x')""")
    assert made.columns == ("it's",)
    values = made.evaluate({"it's": np.array(["a `b` c", "b"], dtype=object)}, 2)
    assert values.tolist() == ["`", "x"]


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_what_is_not_zero_is_true(dtype):
    rows = pd.DataFrame({"a": np.arange(-50, 50), "b": True}).astype({"b": dtype})
    schema = Schema([Column("a", "integer", -50, 50)], [Derived("b", "a")])
    fit = DPHFlowSynthesizer(schema=schema, n_steps=2, random_state=0).fit(rows)
    sample = fit.sample(500, random_state=0)
    assert sample["b"].equals((sample["a"] != 0).astype(dtype))
    assert not len(schema.check(sample))


def test_circles_are_refused():
    with pytest.raises(ValueError, match="need each other"):
        Schema([], [Derived("x", "y + 1"), Derived("y", "x - 1")])
    with pytest.raises(ValueError, match="more than one"):
        Schema([], [Derived("x", "y + 1"), Derived("x", "z")])


# Tables -------------------------------------------------------------------------------


def test_they_are_exact_in_every_row(synthesizer):
    sample = synthesizer.sample(2000, random_state=0)
    frame = table()
    assert sample.dtypes.equals(frame.dtypes)
    assert sample.columns.equals(frame.columns)
    assert SCHEMA.check(sample).empty
    assert SCHEMA.check(frame)["column"].isin(["height", "weight"]).all()
    assert (sample["total"] == (sample["a"] + sample["price"]).round(2)).all()
    assert (sample["many"] == (sample["a"] > 25)).all()
    assert (sample["clock"] % 100 < 60).all()
    assert (sample["stay"] == sample["end"] - sample["begin"]).all()
    assert (sample["twice"] == (2 * sample["total"]).astype(np.float32)).all()


def test_they_are_not_learned(synthesizer):
    names = {each.name for each in DERIVED}
    assert names.isdisjoint(synthesizer._transformer.names)
    assert "constraint Derived on a, price, total" in str(synthesizer.privacy_)


def test_their_rows_are_not_read(synthesizer):
    frame = table()
    for each in DERIVED:
        frame[each.name] = frame[each.name].iloc[::-1].array
    other = DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(frame)
    same = other.sample(50, random_state=0), synthesizer.sample(50, random_state=0)
    pd.testing.assert_frame_equal(*same)


def test_conditions(synthesizer):
    some = synthesizer.sample(100, given={"total": (60, None), "grown": "yes"})
    assert (some["total"] >= 60).all()
    assert (some["grown"] == "yes").all()
    long = {"stay": (pd.Timedelta("3D"), None), "many": False}
    some = synthesizer.sample(100, given=long)
    assert (some["end"] - some["begin"] >= pd.Timedelta("3D")).all()
    assert not some["many"].any()
    with pytest.raises(ValueError, match="can never hold"):
        synthesizer.sample(3, given={"many": 3})
    with pytest.raises(SamplingError):
        synthesizer.sample(3, given={"total": 1e6}, max_tries=2)
    with pytest.raises(ValueError, match="leave out what is computed"):
        synthesizer.sample(given=table().head(3)[["a", "total"]])
    partial = table().head(20)[["a", "price"]]
    done = synthesizer.sample(given=partial)
    assert (done["total"] == (partial["a"] + partial["price"]).round(2)).all()


def test_constraints_and_bounds_of_them_hold():
    columns = [*COLUMNS[:-1], Column("total", "continuous", lower=20, upper=80)]
    rules = [DERIVED[0], LessEqual("a", "price"), Impossible({"total": (30, 40)})]
    frame = table()[[column.name for column in columns]]
    fitted = DPVAESynthesizer(schema=Schema(columns, rules), **FEW).fit(frame)
    total = fitted.sample(200)["total"]
    assert total.between(20, 80).all()
    assert not total.between(30, 40).any()


def test_what_cannot_be_computed_is_missing_or_drawn_again():
    frame = pd.DataFrame({"a": [0, 1, 2] * 50, "ratio": [1.0, 2.0, np.nan] * 50})
    column = Column("a", "integer", lower=0, upper=2)
    ratio = Derived("ratio", "2 / a")
    fitted = DPHFlowSynthesizer(schema=Schema([column], [ratio]), **FEW).fit(frame)
    some = fitted.sample(200)
    assert (some["ratio"].isna() == (some["a"] == 0)).all()
    columns = [column, Column("ratio", "continuous", nullable=False)]
    fitted = DPHFlowSynthesizer(schema=Schema(columns, [ratio]), **FEW).fit(frame)
    assert (fitted.sample(200)["a"] > 0).all()


def test_files(synthesizer, tmp_path):
    synthesizer.save(tmp_path / "model.dpg")
    again = load(tmp_path / "model.dpg")
    same = again.sample(70, random_state=1), synthesizer.sample(70, random_state=1)
    pd.testing.assert_frame_equal(*same)
    assert Schema.from_dict(json.loads(json.dumps(SCHEMA.to_dict()))) == SCHEMA
    synthesizer.sample_to(tmp_path / "rows.csv", 70, random_state=1)
    written = pd.read_csv(tmp_path / "rows.csv")
    assert (written["bmi"] == same[0]["bmi"]).all()


def test_drafts_ask_about_sums_and_products(tmp_path):
    frame = table()[["a", "price", "weight", "height"]]
    frame["total"] = (frame["a"] + frame["price"]).round(2)
    frame["area"] = frame["height"] * frame["weight"]
    frame["none"] = frame["area"] + 1
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame["early"] = frame["price"].where(frame.index < 300)
    frame["late"] = frame["price"].where(frame.index >= 300)  # never beside the other
    frame.to_csv(tmp_path / "rows.csv", index=False)
    columns = draft_schema(tmp_path / "rows.csv")["columns"]
    asked = {c["name"]: c[ASK] for c in columns if "Derived" in c.get(ASK, "")}
    assert set(asked) == {"total", "area"}
    assert "a + price in every row" in asked["total"]
    fact = re.search("{.*}", asked["area"])[0]
    assert Derived(**{k: v for k, v in json.loads(fact).items() if k != "constraint"})


def test_predictors_take_them_as_features_only():
    frame, schema = table().drop(columns="key"), Schema(COLUMNS[:-1], DERIVED)
    target = frame.pop("grown")
    few = DPHFlowSynthesizer(schema=schema, **FEW)
    with pytest.raises(ValueError, match="give the column in X"):
        SyntheticClassifier(few).fit(frame, target)
    schema = Schema(COLUMNS[:-1], [each for each in DERIVED if each.name != "grown"])
    few.set_params(schema=schema)
    fitted = SyntheticClassifier(few, random_state=0).fit(frame, target)
    assert len(fitted.predict(frame)) == len(frame)


def test_nothing_else_than_derived_columns_is_refused():
    schema = Schema(
        [Column("a", "integer", role="id")], [Derived("b", "where(c > 1, c, 1)")]
    )
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2], "c": [1, 2]})
    assert schema.resolve(frame).modelled.names == ("c",)
    with pytest.raises(ValueError, match="identifiers 'a'"):
        Schema(schema.columns, [Derived("b", "a")]).resolve(frame)


@pytest.mark.parametrize("names", [("x", "label"), ("label", "x")])
def test_repairs_of_computed_columns_are_refused(names):
    """They are made after all repairs: samples would fail when all is spent."""
    rule = Determines(names[:1], names[1], {1: 1})
    for computed in (Derived("x", "a * 2"), Composition(["a", "b", "x"])):
        with pytest.raises(ValueError, match=r"compute only after it|exclude each"):
            Schema([], [rule, computed])
