"""Facts about several columns: which rows satisfy them, and that all samples do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from itertools import product

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    Schema,
)
from dpgenerative.exceptions import SamplingError
from dpgenerative.synthesizers.flow import FlowRecipe
from dpgenerative.tables.conditions import satisfies
from dpgenerative.tables.constraints import (
    Constraint,
    Determines,
    FixedCombinations,
    Impossible,
    LessEqual,
    constraint_from_dict,
)
from dpgenerative.tables.contradictions import check_possible

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

ALL = (
    LessEqual("low", "high"),
    LessEqual("start", "end", strict=True),
    FixedCombinations(["city", "kind"], [["Oslo", 1], ["Rome", 2], [None, None]]),
    Impossible(
        {"city": ["Oslo", None], "low": (None, 2), "start": ("2020-01-05", None)}
    ),
    Impossible({"end": pd.Timestamp("2020-01-02")}),
    Determines(["city", "kind"], "land", {("Oslo", 1): "NO", ("Rome", 2): None}),
)
OF_DECIMALS = (
    FixedCombinations(["low"], [[Decimal("0.1")]]),
    Impossible({"low": [Decimal("0.1"), (Decimal("1.5"), None)]}),
    Determines(["low"], "high", {Decimal("0.1"): Decimal("0.2")}),
)
TENTHS = np.array([0.1, 0.2, 0.3], dtype=np.float32)
PRICES = pd.array(
    [Decimal("0.10"), None, Decimal("2.00")], pd.ArrowDtype(pa.decimal128(5, 2))
)
FLAGS = pd.Series([True, False])
DAYS = [date(2020, 1, 1), date(2020, 1, 2), None]
BUILDERS = {
    "Schema": Schema,
    "Column": Column,
    "LessEqual": LessEqual,
    "FixedCombinations": FixedCombinations,
    "Impossible": Impossible,
    "Determines": Determines,
}


# Conditions ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "condition", "expected"),
    [
        ([1, 2, 3], 2, [0, 1, 0]),
        ([1, 2, 3], [1, 3], [1, 0, 1]),
        ([1, 2, 3], (2, 3), [0, 1, 1]),
        ([1, 2, 3], (None, 2), [1, 1, 0]),
        ([1, 2, 3], (2, None), [0, 1, 1]),
        ([1, 2, 3], [(None, 1), 3], [1, 0, 1]),
        ([1.0, np.nan, 3.0], None, [0, 1, 0]),
        ([1.0, np.nan, 3.0], np.nan, [0, 1, 0]),
        ([1.0, np.nan, 3.0], (0, 9), [1, 0, 1]),
        ([1.0, np.nan, 3.0], [None, 3], [0, 1, 1]),
        (pd.array([1, None, 3], dtype="Int64"), (2, 9), [0, 0, 1]),
        (["a", "b", None], {"a", "b"}, [1, 1, 0]),
        (["a", "b", None], ["b", None], [0, 1, 1]),
        (pd.Categorical(["a", "b", None]), "a", [1, 0, 0]),
        ([True, False], True, [1, 0]),
        (pd.to_datetime(["2020-01-01", None, "2021-01-01"]), None, [0, 1, 0]),
        (pd.to_datetime(["2020-01-01", None, "2021-01-01"]), "2020-01-01", [1, 0, 0]),
        (
            pd.to_datetime(
                ["2020-01-01", "2020-06-01 12:00"], format="mixed"
            ).tz_localize("Asia/Tokyo"),
            ("2020-06-01 12:00", None),
            [0, 1],
        ),
        (pd.to_timedelta([1, 2, None], "D"), ("36h", None), [0, 1, 0]),
        (DAYS, ("2020-01-02", None), [0, 1, 0]),
        (DAYS, "2020-01-01", [1, 0, 0]),
        ([1, 2], np.array(2), [0, 1]),
        (["a", "b"], pd.Categorical(["a"]), [1, 0]),
        (DAYS, [DAYS[1], None], [0, 1, 1]),
        (["2020", DAYS[0], "no date"], "2020", [1, 0, 0]),
        (PRICES, 0.1, [1, 0, 0]),
        (PRICES, [2, 0.125], [0, 0, 1]),
        (PRICES, [True, (None, True)], [1, 0, 0]),
        (PRICES, [Decimal("0.1"), None], [1, 1, 0]),
        (PRICES, (0.1, 1), [1, 0, 0]),
        (pd.array([1, None], dtype="int64[pyarrow]"), [1.0, 10**30], [1, 0]),
    ],
)
def test_which_values_satisfy_a_condition(values, condition, expected):
    found = satisfies(pd.Series(values), condition)
    assert found.dtype == bool
    assert found.astype(int).tolist() == expected


# Constraints --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("constraint", "rows", "expected"),
    [
        (LessEqual("a", "b"), {"a": [1, 2, np.nan], "b": [1, 1, 0]}, [1, 0, 1]),
        (LessEqual("a", "b", strict=True), {"a": [1, 2], "b": [1, 3]}, [0, 1]),
        (
            LessEqual("a", "b"),
            {"a": pd.to_datetime(["2020", "2021"]), "b": pd.to_datetime(["2020"] * 2)},
            [1, 0],
        ),
        (LessEqual("a", "b"), {"a": DAYS, "b": DAYS[:1] * 3}, [1, 0, 1]),
        (
            FixedCombinations(["a", "b"], [[1, "x"], [2, None]]),
            {"a": [1, 2, 2, 1], "b": ["x", None, "x", None]},
            [1, 1, 0, 0],
        ),
        (
            Impossible({"a": 1, "b": ["x"]}),
            {"a": [1, 1, 2], "b": ["x", "y", "x"]},
            [0, 1, 1],
        ),
        (
            Determines(["a"], "b", {1: "x"}),
            {"a": [1, 1, 2], "b": ["x", "y", "y"]},
            [1, 0, 1],
        ),
        (Determines(["a"], "b", {1: None}), {"a": [1, 1], "b": ["x", None]}, [0, 1]),
        (
            Determines(["a"], "b", {0.1: 0.3}),
            {"a": TENTHS[[0, 0, 1]], "b": TENTHS[[2, 1, 1]]},
            [1, 0, 1],
        ),
        (
            FixedCombinations(["a", "b"], [[0.1, 1], [0.2, 2]]),
            {"a": pd.array(TENTHS, dtype="Float32"), "b": [1, 1, 1]},
            [1, 0, 0],
        ),
        (Impossible({"a": (0.1, 0.2)}), {"a": TENTHS}, [0, 0, 1]),
        (LessEqual("a", "b"), {"a": PRICES, "b": [0.1, 0, 1]}, [1, 1, 0]),
        (FixedCombinations(["a"], [[0.1], [None]]), {"a": PRICES}, [1, 1, 0]),
        (
            Determines(["a"], "b", {0.1: 0.2, 2: 2}),
            {"a": PRICES[[0, 0, 2, 1]], "b": PRICES[[0, 1, 2, 1]]},
            [0, 0, 1, 1],
        ),
        *(
            (Determines(["a"], "b", {1: 0.0}), {"a": [1, 1], "b": pd.array(b)}, [0, 1])
            for b in (FLAGS, FLAGS.astype("boolean"), FLAGS.astype("bool[pyarrow]"))
        ),
    ],
)
def test_which_rows_satisfy_a_constraint(constraint, rows, expected):
    frame = pd.DataFrame(rows)
    assert constraint.holds(frame).astype(int).tolist() == expected
    assert constraint.holds(frame.iloc[:0]).tolist() == []
    before = frame.copy()
    mended = constraint.repair(frame)
    pd.testing.assert_frame_equal(frame, before)
    if constraint.repairs:
        assert constraint.holds(mended).all()
        pd.testing.assert_series_equal(mended.dtypes, frame.dtypes)
    else:
        assert mended is frame


@pytest.mark.parametrize("dtype", ["category", "string", "object"])
def test_repairs_keep_the_dtype(dtype):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": pd.Series(["x", "y", "x"], dtype=dtype)})
    frame.index = [5, 3, 1]
    mended = Determines(["a"], "b", {1: "y", 3: "y"}).repair(frame)
    assert mended["b"].tolist() == ["y", "y", "y"]
    assert mended["b"].dtype == frame["b"].dtype
    assert mended.index.tolist() == [5, 3, 1]


@pytest.mark.parametrize("constraint", [*ALL, *OF_DECIMALS], ids=repr)
def test_constraints_survive_json_and_repr(constraint):
    text = json.dumps(constraint.to_dict(), allow_nan=False)
    assert constraint_from_dict(json.loads(text)) == constraint
    assert eval(repr(constraint), BUILDERS) == constraint
    assert replace(constraint) == constraint
    assert len({constraint, constraint_from_dict(json.loads(text))}) == 1


def test_schemas_with_constraints_survive_json_and_repr():
    schema = Schema([Column("low", "integer")], ALL)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema
    assert eval(repr(schema), BUILDERS) == schema
    assert schema != Schema([Column("low", "integer")])
    assert "constraints" not in Schema([Column("low", "integer")]).to_dict()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FixedCombinations("ab", [["x", "y"]]), "names must be a sequence"),
        (lambda: FixedCombinations(["a", "a"], [[1, 2]]), "distinct names"),
        (lambda: FixedCombinations(["a", "b"], [[1]]), "a value of each of"),
        (lambda: FixedCombinations(["a"], []), "a value of each of"),
        (lambda: Impossible({}), "must name a column"),
        (lambda: Determines(["a"], "b", {}), "must map a value of each"),
        (lambda: Determines(["a"], "b", {(1, 2): 3}), "must map a value of each"),
        # Two letters are no pair.
        (lambda: Determines(["a"], "b", ["NO", "IT"]), "must be a mapping, or pairs"),
        (
            lambda: Determines(["a"], "b", pd.Series({"Oslo": "NO"})),
            "must be a mapping, or pairs",
        ),
        (
            lambda: FixedCombinations(["a", "b"], ["NO", "IT"]),
            "must hold a value of each",
        ),
        (lambda: FixedCombinations(["a"], [1, 2]), "must hold a value of each"),
        (lambda: Determines(["a"], "a", {1: 2}), "must be none of"),
        (lambda: LessEqual("a", "b", strict="x"), "strict must be True or False"),
        (lambda: LessEqual((["a"],), "b"), "low must be the name of a column"),
        (lambda: FixedCombinations([["a"], "b"], [[1, 2]]), "distinct names"),
        (lambda: constraint_from_dict({"constraint": "Equal"}), "'Equal'"),
        (lambda: constraint_from_dict({"constraint": "LessEqual"}), "LessEqual"),
        (
            lambda: constraint_from_dict({"constraint": "LessEqual", "x": 1}),
            "LessEqual",
        ),
        (lambda: Schema([], ["a <= b"]), "takes constraints as Constraint objects"),
    ],
)
def test_contradictions_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("rules", "least", "message"),
    [
        ([("a", "b"), ("b", "c", True), ("c", "a")], 0, "'c' would be less than itse"),
        ([("c", "b"), ("b", "a")], 6, "low='c', high='a'.* 'c' is at least 6, 'a' at"),
        ([("a", "b"), ("b", "a"), ("a", "c", True)], 6, None),
    ],
)
def test_orders_that_cannot_hold_are_refused_before_a_fit(rules, least, message):
    bounds = {"a": (0, 5), "b": (0, 9), "c": (least, 9)}
    columns = [Column(n, "integer", lower=x, upper=y) for n, (x, y) in bounds.items()]
    schema = Schema(columns, [LessEqual(*rule) for rule in rules])
    frame = pd.DataFrame({"a": [1, 2], "b": [1, 2], "c": [6, 7]})
    if message is None:
        assert schema.resolve(frame).constraints == schema.constraints
        return
    with pytest.raises(ValueError, match=message):
        schema.resolve(frame)


COLUMNS = [
    Column("low", "integer", lower=0, upper=20),
    Column("high", "integer", lower=0, upper=20),
    Column("start", "datetime", lower="2020-01-01", upper="2020-12-31", resolution="D"),
    Column("end", "datetime", lower="2020-01-01", upper="2020-12-31", resolution="D"),
    Column("city", "categorical", levels=["Oslo", "Rome"], nullable=False),
    Column("kind", "categorical", levels=[1, 2, 3]),
    Column("land", "categorical", levels=["NO", "IT"]),
    Column("id", "integer", role="id"),
]


def table(n=1500, seed=0):
    rng = np.random.default_rng(seed)
    days = np.sort(rng.integers(0, 360, (n, 2)), axis=1)
    first = pd.Timestamp("2020-01-01")
    city = rng.choice(["Oslo", "Rome"], n)
    return pd.DataFrame(
        {
            "low": rng.integers(0, 12, n),
            "high": rng.integers(8, 21, n),
            "start": first + pd.to_timedelta(days[:, 0], "D"),
            "end": first + pd.to_timedelta(days[:, 1], "D"),
            "city": city,
            "kind": np.where(city == "Oslo", 1, rng.integers(2, 4, n)),
            "land": np.where(city == "Oslo", "NO", "IT"),
            "id": np.arange(n),
        }
    )


def test_a_schema_of_constraints_alone_counts():
    schema = Schema([], [LessEqual("low", "top")])
    with pytest.raises(ValueError, match=r"lacks: .'top'"):
        DPHFlowSynthesizer(schema=schema).fit(table(20))


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (LessEqual("low", "top"), "lacks: .'top'"),
        (LessEqual("low", "city"), "needs numbers or times in 'city'"),
        (LessEqual("low", "start"), "compares"),
        (LessEqual("low", "id"), "identifiers 'id'"),
        (
            FixedCombinations(["city"], [["Paris"]]),
            "'Paris' on the column 'city' can never",
        ),
        (FixedCombinations(["city"], [[None]]), "no missing values"),
        (FixedCombinations(["start"], [["2020-01-01"]]), "takes no column of times"),
        (Impossible({"low": (5, 3)}), "interval is empty"),
        (Impossible({"low": (50, None)}), "outside the bounds"),
        (Impossible({"city": ("Oslo", "Rome")}), "has levels, not intervals"),
        (Impossible({"start": ("spring", None)}), "holds datetimes only"),
        (
            Determines(["city"], "land", {"Oslo": "SE"}),
            "'SE' on the column 'land' .* none of its levels",
        ),
        (Determines(["city"], "high", {"Oslo": 3.5}), "no multiple of the resolution"),
        (FixedCombinations(["low"], [[3.5]]), "no multiple of the resolution"),
    ],
)
def test_constraints_that_do_not_fit_the_table_are_refused(constraint, message):
    with pytest.raises(ValueError, match=message):
        DPHFlowSynthesizer(schema=Schema(COLUMNS, [constraint])).fit(table(20))


@pytest.mark.parametrize(("interval", "end"), [((None, 0), 0), ((20, None), 20)])
def test_an_interval_may_share_one_number_with_the_bounds(interval, end):
    frame = table(5).assign(low=[5, 5, end, 5, 5])
    found = Schema(COLUMNS, [Impossible({"low": interval})]).check(frame, cells=True)
    assert found["row"][found["column"] == ("low",)].tolist() == [2]


def test_a_determined_value_that_the_dtype_cannot_hold_is_refused():
    facts = Schema([Column("high", "integer")], [Determines(["low"], "high", {1: 300})])
    frame = table(20)[["low", "high"]]
    assert facts.resolve(frame)["high"].upper is None
    with pytest.raises(ValueError, match=r"300 on .* 'high' .*: its dtype int8 cannot"):
        DPHFlowSynthesizer(schema=facts).fit(frame.astype("int8"))
    prices = frame.assign(high=PRICES[[0] * 20])
    for value in (0.1, 999):
        Schema([], [Determines(["low"], "high", {1: value})]).resolve(prices)
    with pytest.raises(ValueError, match=r"1000 on .* its dtype decimal128\(5, 2\)"):
        Schema([], [Determines(["low"], "high", {1: 1000})]).resolve(prices)


RULES = [
    LessEqual("low", "high"),
    LessEqual("start", "end"),
    Determines(["city"], "land", {"Oslo": "NO", "Rome": "IT"}),
    FixedCombinations(["city", "kind"], [["Oslo", 1], ["Rome", 2], ["Rome", 3]]),
    Impossible({"city": "Rome", "high": (15, None)}),
]


LANDS = {("Oslo", 1): "NO", ("Rome", 2): "IT"}


@pytest.fixture(scope="module", params=[DPHFlowSynthesizer, DPVAESynthesizer])
def constrained(request):
    synthesizer = request.param(
        schema=Schema(COLUMNS, RULES), n_steps=40, random_state=0
    )
    return synthesizer.fit(table())


def test_every_sampled_row_satisfies_every_constraint(constrained):
    for n in (1, 700):
        rows = constrained.sample(n, random_state=0)
        assert len(rows) == n
        assert rows.index.tolist() == list(range(n))
        for rule in RULES:
            assert rule.holds(rows).all(), rule
        pd.testing.assert_series_equal(rows.dtypes, table(1).dtypes)
    assert constrained.schema_.constraints == tuple(RULES)
    assert "constraint LessEqual on low, high" in str(constrained.privacy_)


def test_without_constraints_some_rows_break_them():
    free = DPHFlowSynthesizer(schema=Schema(COLUMNS), n_steps=40, random_state=0)
    rows = free.fit(table()).sample(700)
    assert all(not rule.holds(rows).all() for rule in RULES)


@pytest.mark.thin(2)
def test_constraints_hold_given_columns_too(constrained):
    given = {"low": (10, None), "land": "NO"}
    rows = constrained.sample(300, given=given, random_state=0)
    assert (rows["low"] >= 10).all()
    assert (rows["land"] == "NO").all()
    assert (rows["city"] == "Oslo").all()
    assert all(rule.holds(rows).all() for rule in RULES)
    part = table(80, seed=3)[["low", "city", "id"]]
    whole = constrained.sample(given=part, random_state=0)
    pd.testing.assert_frame_equal(whole[["low", "city", "id"]], part)
    assert all(rule.holds(whole).all() for rule in RULES)


def test_determined_columns_are_set_rather_than_drawn_again(monkeypatch):
    sizes, clamped = [], []
    draw = FlowRecipe.draw_given

    def counted(self, model, n, shares, *args):
        sizes.append(n)
        codecs = synthesizer._transformer.codecs
        clamped.extend(codecs[j].column.name for j in shares)
        return draw(self, model, n, shares, *args)

    monkeypatch.setattr(FlowRecipe, "draw_given", counted)
    rules = [Determines(["city"], "land", {"Oslo": "IT", "Rome": "NO"})]  # never so
    synthesizer = DPHFlowSynthesizer(schema=Schema(COLUMNS, rules), n_steps=5)
    rows = synthesizer.fit(table()).sample(2000)
    assert rules[0].holds(rows).all()
    assert sum(sizes) <= 2400
    # What is drawn for a determined column says nothing of the rows that come out.
    rows = synthesizer.sample(50, given={"land": "NO", "high": (12, None)})
    assert set(rows["city"]) == {"Rome"}
    assert set(clamped) == {"high"}


def test_a_row_that_no_completion_mends_is_an_error(constrained):
    part = pd.DataFrame({"city": ["Rome"], "high": [18]})
    with pytest.raises(SamplingError, match="1 of the 1 rows given have"):
        constrained.sample(given=part, max_tries=50)


def test_constraints_that_leave_hardly_anything_say_so():
    rules = [Impossible({"low": (1, None)}), Impossible({"high": (None, 19)})]
    synthesizer = DPHFlowSynthesizer(schema=Schema(COLUMNS, rules), n_steps=5)
    synthesizer.fit(table())
    with pytest.raises(SamplingError, match=r"acceptance rate .* are needed"):
        synthesizer.sample(400, max_tries=4)


def test_other_constraints_do_not_change_the_fit():
    params = {"n_steps": 10, "random_state": 0, "noise": "reproducible"}
    states = [
        DPHFlowSynthesizer(schema=Schema(COLUMNS, rules), **params)
        .fit(table(200))
        ._model.state_dict()
        for rules in ([], [Determines(["city", "kind"], "land", LANDS), RULES[-1]])
    ]
    for name, weights in states[0].items():
        assert weights.equal(states[1][name])


def test_check_lists_the_rows_that_break_a_constraint():
    frame = table(50)
    frame.loc[7, "low"], frame.loc[7, "high"] = 15, 9
    found = Schema(COLUMNS, RULES[:1]).check(frame, cells=True)
    expected = ~RULES[0].holds(frame)
    assert found["row"].tolist() == np.flatnonzero(expected).tolist()
    assert 7 in found["row"].tolist()
    assert set(found["column"]) == {("low", "high")}
    assert found.set_index("row").loc[7, "value"] == (15, 9)


def test_a_constraint_of_ones_own():
    class Even(Constraint):
        columns = ("low",)

        def holds(self, frame):
            return (frame["low"] % 2 == 0).to_numpy()

    synthesizer = DPHFlowSynthesizer(schema=Schema(COLUMNS, [Even()]), n_steps=5)
    assert (synthesizer.fit(table()).sample(100)["low"] % 2 == 0).all()


@pytest.mark.parametrize("wrong", ["a", ["a"], None, [("a", 1, 2)], {}])
def test_impossible_combinations_are_pairs(wrong):
    with pytest.raises(ValueError, match="Impossible: conditions must"):
        Impossible(wrong)


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        ("low", "end", "compares 'low', integer with 'end', datetime"),
        ("low", "low", "with itself"),
    ],
)
def test_what_cannot_be_compared(low, high, said):
    with pytest.raises(ValueError, match=said):
        Schema(COLUMNS, [LessEqual(low, high)]).check(table(5))


NEVER = [
    [FixedCombinations(["city"], [["Oslo"]]), Impossible({"city": "Oslo"})],
    [
        FixedCombinations(["city", "land"], [["Oslo", "NO"]]),
        FixedCombinations(["land", "kind"], [["IT", 2], ["IT", 3]]),
    ],
    [
        Determines(["city"], "land", {"Oslo": "NO", "Rome": "IT"}),
        Determines(["land"], "city", {"NO": "Rome", "IT": "Oslo"}),
    ],
    [Impossible({"low": (None, 10)}), Impossible({"low": (11, None)})],
    [
        Impossible({"low": (None, 14)}),
        LessEqual("low", "high"),
        Impossible({"high": (15, None)}),
    ],
    [
        Impossible({"start": (None, "2020-01-20")}),
        LessEqual("start", "end"),
        Impossible({"end": ("2020-01-10", None)}),
    ],
]


@pytest.mark.parametrize("rules", NEVER)
def test_constraints_that_no_row_satisfies_are_refused_before_a_fit(rules):
    columns = [replace(c, nullable=False) if c.role is None else c for c in COLUMNS]
    frame = table(20)
    with PrivacyBudget(1.0, 1e-5) as budget:
        with pytest.raises(ValueError, match="No row satisfies all of"):
            DPHFlowSynthesizer(schema=Schema(columns, rules)).fit(frame)
        for i in range(len(rules)):
            some = rules[:i] + rules[i + 1 :]
            Schema(columns, some).resolve(frame)
    assert budget.spent == (0.0, 0.0)


def test_missing_values_and_what_is_not_stated_may_satisfy_constraints():
    columns = [Column("a", "integer"), Column("b", "categorical")]
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    ends = [Impossible({"a": (None, 10)}), Impossible({"a": (12, None)})]
    levels = [Impossible({"b": ["x", "y"]}), Impossible({"b": [None]})]
    Schema(columns, [*ends, *levels]).resolve(frame)
    Schema(columns, [*ends, Impossible({"a": 11})]).resolve(
        frame.astype({"a": "Int64"})
    )
    with pytest.raises(ValueError, match="No row satisfies all of"):
        Schema(columns, [*ends, Impossible({"a": 11})]).resolve(frame)
    # Whole numbers that are one number in floating point are not compared.
    large = [FixedCombinations(["a"], [[2**62 + 1]]), Impossible({"a": 2**62})]
    Schema(columns, large).resolve(frame)


def drawn_rules(rng, values):
    """Draw a few constraints over two numbers and two columns of levels."""

    def value(name):
        return values[name][rng.integers(len(values[name]))]

    def rule(kind, one, two):
        if kind == 0:
            return LessEqual(
                *rng.permutation(["a", "b"]).tolist(), bool(rng.integers(2))
            )
        if kind == 1:
            pairs = [[value(one), value(two)] for _ in range(rng.integers(1, 3))]
            return FixedCombinations([one, two], pairs)
        if kind == 2:
            end = [(None, value("a")), (value("a"), None)][rng.integers(2)]
            return Impossible([("a", end), (two, value(two))][: rng.integers(1, 3)])
        return Determines([one], two, {value(one): value(two) for _ in range(3)})

    pairs = [rng.permutation(list(values))[:2].tolist() for _ in range(4)]
    return [rule(rng.integers(4), *pair) for pair in pairs]


def test_what_is_refused_is_what_no_row_satisfies():
    rng, n_refused, n_possible, n_never = np.random.default_rng(0), 0, 0, 0
    values = {"a": [0, 1, 2, 3], "b": [2, 3, 4], "u": ["x", "y"], "v": ["x", "y", "z"]}
    facts = {
        name: Column(name, "integer", lower=held[0], upper=held[-1], nullable=False)
        if name in "ab"
        else Column(name, "categorical", levels=held, nullable=False)
        for name, held in values.items()
    }
    rows = pd.DataFrame(list(product(*values.values())), columns=list(values))
    for _ in range(150):
        rules = drawn_rules(rng, values)
        is_possible = np.all([each.holds(rows) for each in rules], axis=0).any()
        n_possible += is_possible
        n_never += not is_possible
        try:
            check_possible(rules, facts)
        except ValueError:
            assert not is_possible, rules
            n_refused += 1
    assert min(n_possible, n_never) > 20
    assert n_refused >= 0.9 * n_never
