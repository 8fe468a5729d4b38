"""Rows given something: they follow the model's own conditional distribution."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2_contingency

from dpgenerative import (
    Column,
    Determines,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    Impossible,
    Schema,
)
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import SamplingError
from dpgenerative.models.cells import Clamp
from dpgenerative.tables.conditions import satisfies

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

CITIES = ["Oslo", "Rome", "Bonn"]
SCHEMA = Schema(
    [
        Column("age", "integer", lower=18, upper=90),
        Column("income", "continuous", lower=0, upper=200_000),
        Column("joined", "datetime", lower="2020-01-01", upper="2021-12-31"),
        Column("label", "categorical", levels=["lo", "hi"], nullable=False),
    ]
)
LEVELS = {level: i for i, level in enumerate([*CITIES, "lo", "hi"])}
FALSE_ALARM = 1e-6
"""Of one comparison; there are under fifty of them."""


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 3, n)
    income = pd.Series(rng.lognormal(9.5 + 0.5 * a, 0.5, n))
    days = rng.integers(0, 240, n) + 240 * a
    return pd.DataFrame(
        {
            "city": pd.Categorical(np.array(CITIES)[a], categories=CITIES),
            "age": np.clip(rng.normal(35 + 12 * a, 10, n), 18, 90).astype(int),
            "income": income.mask(rng.random(n) < np.where(a == 1, 0.3, 0.05)),
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D"),
            "label": np.where(rng.random(n) < 0.15 + 0.3 * a, "hi", "lo"),
        }
    )


MAKERS = {
    "flow": lambda: DPHFlowSynthesizer(
        epsilon=None,
        n_steps=100,
        schema=SCHEMA,
        random_state=0,
        architecture=FlowArchitecture(hidden_units=8),
    ),
    "blocks": lambda: DPHFlowSynthesizer(
        epsilon=None,
        n_steps=30,
        schema=SCHEMA,
        random_state=0,
        architecture=FlowArchitecture(n_blocks=2),
        noise="reproducible",
    ),
    "vae": lambda: DPVAESynthesizer(
        epsilon=None, n_steps=50, schema=SCHEMA, random_state=0
    ),
    "vae label": lambda: DPVAESynthesizer(
        epsilon=None, n_steps=50, schema=SCHEMA, random_state=0, conditional="label"
    ),
}


@pytest.fixture(scope="module")
def models():
    """Return a fitted synthesizer and many of its rows, by name."""
    made = {}

    def get(name):
        if name not in made:
            synthesizer = MAKERS[name]().fit(table())
            made[name] = synthesizer, synthesizer.sample(100_000, random_state=1)
        return made[name]

    return get


def cells(frame, edges):
    """Return one label per row for the joint cell that it lies in."""
    parts = []
    for name, column in frame.items():
        if name in edges:
            numbers = column.astype("int64" if name == "joined" else float)
            numbers = np.where(column.isna(), np.nan, numbers)
            codes = np.searchsorted(edges[name], numbers)
        else:
            codes = column.astype(object).map(LEVELS).fillna(-1)
        parts.append(np.asarray(codes, dtype=int))
    return pd.Series(list(zip(*parts, strict=True)))


def p_value(found, reference):
    """Return the p-value of the hypothesis that two tables share a distribution."""
    edges = {}
    for name in ("age", "income", "joined"):
        held = reference[name].dropna()
        if not len(held):
            continue
        numbers = held.astype("int64" if name == "joined" else float)
        edges[name] = np.unique(np.quantile(numbers, [0.33, 0.67]))
    counts = pd.DataFrame(
        {
            "found": cells(found, edges).value_counts(),
            "reference": cells(reference, edges).value_counts(),
        }
    ).fillna(0)
    share = len(found) / (len(found) + len(reference))
    rare = counts.sum(axis=1) * min(share, 1 - share) < 5
    merged = pd.concat([counts[~rare], counts[rare].sum().to_frame().T])
    merged = merged[merged.sum(axis=1) > 0]
    return chi2_contingency(merged.to_numpy()).pvalue if len(merged) > 1 else 1.0


def those_of(rows, given):
    met = [satisfies(rows[name], condition) for name, condition in given.items()]
    return rows[np.logical_and.reduce(met)].reset_index(drop=True)


PREFIX = {
    "a level": {"label": "hi"},
    "two columns": {"label": "hi", "city": "Rome"},
    "levels": {"label": "lo", "city": ["Oslo", "Bonn"]},
    "a prefix and an interval": {"label": "hi", "city": "Bonn", "age": (40, 55)},
}
ELSEWHERE = {
    "levels first": {"label": ["hi", "lo"], "city": ["Oslo", "Rome"]},
    "an interval": {"age": (30, 44)},
    "an open interval": {"income": (40_000.5, None)},
    "an interval that cuts cells": {"income": (20_001.5, 24_999.25)},
    "missing": {"income": None},
    "missing or large": {"income": [None, (60_000, None)]},
    "numbers": {"age": [30, 40, 41]},
    "times": {"joined": ("2020-03-05", "2020-11-07T12:30")},
    "several": {"city": "Rome", "joined": ("2020-10-01", "2021-02-01")},
}
COMMON = ("a level", "an interval", "missing", "several")


def cases():
    for name, conditions in (PREFIX | ELSEWHERE).items():
        yield pytest.param("flow", conditions, id=f"flow {name}")
        if name in COMMON:
            for model in ("blocks", "vae", "vae label"):
                yield pytest.param(model, conditions, id=f"{model} {name}")


@pytest.mark.thin(8)
@pytest.mark.parametrize(("model", "conditions"), list(cases()))
def test_rows_follow_the_conditional_distribution(models, model, conditions):
    synthesizer, rows = models(model)
    found = synthesizer.sample(4000, random_state=2, given=conditions)
    assert len(found) == 4000
    for name, condition in conditions.items():
        assert satisfies(found[name], condition).all()
    pd.testing.assert_series_equal(found.dtypes, rows.dtypes)
    reference = those_of(rows, conditions)
    assert len(reference) > 500
    assert p_value(found, reference) > FALSE_ALARM


def test_the_comparison_has_teeth(models, monkeypatch):
    """Candidates that are not weighed do not follow the conditional distribution."""
    synthesizer, rows = models("flow")
    monkeypatch.setattr(
        Clamp,
        "log_weights",
        property(
            lambda self: self.kept * 0, lambda self, to: setattr(self, "kept", to)
        ),
        raising=False,
    )
    for conditions in ({"age": (30, 44)}, {"income": None}):
        found = synthesizer.sample(4000, random_state=2, given=conditions)
        assert p_value(found, those_of(rows, conditions)) < FALSE_ALARM


@pytest.mark.thorough
def test_values_inside_a_cut_cell(models):
    """Between two close numbers the density of a continuum is that of the model."""
    synthesizer, rows = models("flow")
    low, high = 21_000.0, 22_000.0
    inside = synthesizer.sample(3000, random_state=0, given={"income": (low, high)})
    reference = those_of(rows, {"income": (low, high)})["income"]
    assert len(reference) > 1000
    assert inside["income"].between(low, high).all()
    edges = np.linspace(low, high, 9)
    counts = [np.histogram(part, edges)[0] for part in (inside["income"], reference)]
    assert chi2_contingency(counts).pvalue > FALSE_ALARM
    assert inside["income"].nunique() > 2900


def drawn_for(synthesizer, monkeypatch, n, **options):
    """Return how many candidates n rows took."""
    sizes = []
    recipe = type(synthesizer._recipe)
    draw = recipe.draw_given

    def counted(self, model, size, *args):
        sizes.append(size)
        return draw(self, model, size, *args)

    with monkeypatch.context() as patch:
        patch.setattr(recipe, "draw_given", counted)
        synthesizer.sample(n, random_state=0, **options)
    return sum(sizes)


@pytest.mark.parametrize("conditions", PREFIX.values(), ids=PREFIX)
def test_a_prefix_of_the_order_wastes_nothing(models, monkeypatch, conditions):
    synthesizer, _ = models("flow")
    taken = drawn_for(synthesizer, monkeypatch, 5000, given=conditions)
    assert taken <= 6000
    assert drawn_for(synthesizer, monkeypatch, 5000, given={"age": (30, 44)}) > 9000


@pytest.mark.thorough
def test_the_condition_of_an_autoencoder_wastes_nothing(models, monkeypatch):
    for model, most in (("vae label", 6000), ("vae", math.inf)):
        synthesizer, _ = models(model)
        given = {"label": "hi"}
        assert drawn_for(synthesizer, monkeypatch, 5000, given=given) <= most
    assert drawn_for(synthesizer, monkeypatch, 5000, given=given) > 6000


@pytest.mark.thin(2)
@pytest.mark.parametrize("model", ["flow", "vae"])
def test_rare_conditions_are_weighed_by_the_largest_weight(models, monkeypatch, model):
    """Fewer tries than one row of the condition takes; then not exact, but close."""
    synthesizer, rows = models(model)
    given = {"age": (38, 39), "joined": ("2020-05-01", "2020-10-01")}
    reference = those_of(rows, given)
    rate = len(reference) / len(rows)
    assert rate < 1 / 20
    options = {"given": given, "max_tries": 20}
    found = synthesizer.sample(2000, random_state=3, **options)
    assert p_value(found, reference) > FALSE_ALARM
    taken = drawn_for(synthesizer, monkeypatch, 2000, **options)
    assert taken < 0.8 * 2000 / rate


# Partial rows -------------------------------------------------------------------------


@pytest.mark.thin(6)
@pytest.mark.parametrize(
    ("model", "row"),
    [
        ("flow", {"label": "hi"}),
        ("flow", {"city": "Rome", "age": 40}),
        ("flow", {"joined": pd.Timestamp("2020-09-03"), "city": "Rome"}),
        ("flow", {"label": "lo", "income": None}),
        ("vae", {"city": "Rome", "label": "lo"}),
        ("vae label", {"label": "hi"}),
    ],
)
def test_completions_follow_the_conditional_distribution(models, model, row):
    synthesizer, rows = models(model)
    part = pd.DataFrame([row] * 2500).astype({n: rows.dtypes[n] for n in row})
    found = synthesizer.sample(given=part, random_state=4)
    pd.testing.assert_frame_equal(found[list(row)], part)
    close = dict(row)
    if "joined" in row:  # a whole cell stands for an instant
        close["joined"] = ("2020-08-20", "2020-09-17")
        found = found.drop(columns="joined").assign(joined=pd.Timestamp("2020-09-03"))
    reference = those_of(rows, close)
    if "joined" in row:
        reference = reference.assign(joined=pd.Timestamp("2020-09-03"))
    assert len(reference) > 300
    found, reference = found[rows.columns], reference[rows.columns]
    assert p_value(found, reference) > FALSE_ALARM


@pytest.mark.thin(3)
@pytest.mark.parametrize("model", ["flow", "vae", "vae label"])
def test_partial_rows_keep_their_values_order_and_index(models, model):
    synthesizer, _ = models(model)
    part = table(60, seed=9)[["income", "city"]].set_axis(range(100, 160))
    whole = synthesizer.sample(given=part, random_state=0)
    assert whole.columns.tolist() == table(1).columns.tolist()
    pd.testing.assert_frame_equal(whole[["income", "city"]], part)
    assert part["income"].isna().any()
    again = synthesizer.sample(given=part, random_state=0)
    pd.testing.assert_frame_equal(whole, again)
    filled = synthesizer.sample(given=part, impute=True)
    assert filled["income"].notna().all()
    known = part["income"].notna()
    pd.testing.assert_series_equal(filled["income"][known], part["income"][known])
    assert filled.index.equals(part.index)
    pd.testing.assert_series_equal(filled.dtypes, table(1).dtypes)


def test_imputed_values_follow_the_row(models):
    synthesizer, rows = models("flow")
    part = table(3000, seed=5)[["city", "income"]]
    part = part[part["income"].isna() | (np.arange(3000) < 50)]
    filled = synthesizer.sample(given=part, impute=True, random_state=0)
    new = filled[part["income"].isna()]
    for city in CITIES:
        held = rows["income"][rows["city"] == city].dropna()
        found = new["income"][new["city"] == city]
        edges = np.quantile(held, np.linspace(0, 1, 6))
        edges[[0, -1]] = -np.inf, np.inf
        counts = [np.histogram(part, edges)[0] for part in (found, held)]
        assert chi2_contingency(counts).pvalue > FALSE_ALARM


def test_targets_and_arrays():
    frame = table(400)
    synthesizer = DPVAESynthesizer(n_steps=10, conditional="label", schema=SCHEMA)
    synthesizer.fit(frame.drop(columns="label"), frame["label"])
    X, y = synthesizer.sample(given=pd.DataFrame({"label": ["hi", "lo"]}, index=[7, 5]))
    assert y.tolist() == ["hi", "lo"]
    assert X.index.tolist() == [7, 5]
    X, y = synthesizer.sample(5, given={"label": "hi"})
    assert y.tolist() == ["hi"] * 5
    numbers = np.random.default_rng(0).normal(size=(300, 2))
    bounds = [Column(f"x{j}", "continuous", lower=-4, upper=4) for j in range(2)]
    flow = DPHFlowSynthesizer(n_steps=10, schema=Schema(bounds)).fit(numbers)
    X = flow.sample(20, given={"x0": (0, 1)})
    assert ((X[:, 0] >= 0) & (X[:, 0] <= 1)).all()
    assert flow.sample(given=pd.DataFrame({"x1": [0.25]}))[0, 1] == 0.25
    assert (flow.sample(3, given={"x1": 0.25})[:, 1] == 0.25).all()


# Errors -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"height": 1}, r"'given'.*must name columns among \['city', .*'height'"),
        (
            {"city": "Paris"},
            r"'Paris' on the column 'city' can never hold: it is none of .*\['",
        ),
        (
            {"city": ["Rome", "Paris"]},
            r"condition 'Paris' on the column 'city' .*: it is none",
        ),
        ({"city": []}, "it lists no value"),
        ({"city": ("Oslo", "Rome")}, "has levels, not intervals"),
        ({"age": (40, 30)}, "the interval is empty"),
        ({"age": (30,)}, "is a pair"),
        ({"age": (91, 99)}, r"outside the bounds \[18, 90\]"),
        (
            {"age": "forty"},
            "^The condition 'forty' on the column .* holds numbers only",
        ),
        ({"age": True}, "holds numbers only"),
        ({"age": 30.5}, "it is no multiple of the resolution"),
        ({"income": [30_000, 40_000]}, "one number of the continuum 'income'"),
        ({"age": (30.2, 30.8)}, "no value of the column 'age'"),
        ({"age": None}, "the column has no missing values"),
        ({"label": None}, "the column has no missing values"),
        ({"joined": ("2020-13-01", None)}, "holds datetimes only"),
        ({"joined": 3}, "holds datetimes only"),
        ({"joined": np.int64(3)}, "holds datetimes only"),
        ({"joined": np.float32(3)}, "holds datetimes only"),
        ({"joined": pd.Timestamp("2020", tz="UTC")}, "without a time zone"),
        ({"joined": ("2025-01-01", None)}, "outside the bounds"),
        ({"joined": "2020-05-01T12:00:00.5"}, "no multiple of the resolution 's'"),
        (
            {"joined": ("2020-05-01T12:00:00.2", "2020-05-01T12:00:00.8")},
            "no value of the column 'joined'",
        ),
        ("income", "'given'.*must be a mapping or a DataFrame"),
        (pd.DataFrame(), "needs at least one row"),
        (pd.DataFrame({"height": [1]}), "must name columns among"),
        (pd.DataFrame({"city": ["Paris"]}), "'Paris' given does not fit .*'city'"),
        (pd.DataFrame({"age": [30.5]}), "not a multiple"),
        (pd.DataFrame({"age": [np.nan]}), "not nullable"),
        (pd.DataFrame({"joined": ["soon"]}), "'joined'"),
    ],
)
def test_conditions_that_do_not_fit_are_refused(models, given, message):
    synthesizer, _ = models("flow")
    with pytest.raises(ValueError, match=message):
        synthesizer.sample(given=given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_tries": 0}, "'max_tries' of DPHFlowSynthesizer.sample"),
        ({"impute": "yes"}, "'impute' of DPHFlowSynthesizer.sample"),
        ({"impute": True, "given": {"age": 30}}, "'impute'.*needs a DataFrame"),
        ({"n_samples": 3, "given": pd.DataFrame({"age": [30]})}, "'n_samples'.*None"),
    ],
)
def test_bad_parameters_of_sample(models, options, message):
    synthesizer, _ = models("flow")
    with pytest.raises(ValueError, match=message):
        synthesizer.sample(**options)


@pytest.fixture(scope="module")
def narrow():
    """Return a model of columns whose dtypes hold less than Python's values."""
    rng = np.random.default_rng(0)
    x, i, t = rng.integers(0, 9, (3, 500))
    days = pd.Timestamp("2020-01-01", tz="Asia/Tokyo") + pd.to_timedelta(t, "D")
    frame = {"x": np.float32(x / 10), "i": i.astype(np.int8), "t": days}
    frame["day"] = pd.Series(days.date, dtype=object)
    facts = [
        Column("x", "continuous", lower=0, upper=1, resolution=0.1),
        Column("i", "integer", lower=0, upper=400),
        Column("t", "datetime", resolution="D"),
        Column("day", "datetime", resolution="D"),
    ]
    flow = DPHFlowSynthesizer(None, schema=Schema(facts), n_steps=10, random_state=0)
    return flow.fit(pd.DataFrame(frame))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("i", 300, "the column 'i' does not fit its dtype"),
        ("t", "soon", "the column 't': neither a time"),
        ("day", "soon", "the column 'day': neither a time"),
    ],
)
def test_values_that_a_dtype_cannot_hold(narrow, name, value, problem):
    kind = object if isinstance(value, str) else int
    with pytest.raises(ValueError, match=problem):
        narrow.sample(given=pd.DataFrame({name: [value]}, dtype=kind))


def test_instants_without_a_zone_are_read_on_the_clock_of_the_column(narrow):
    given = pd.DataFrame({"t": pd.to_datetime(["2020-01-03", "2020-01-05"])})
    rows = narrow.sample(given=given, random_state=0)
    assert rows["t"].dt.tz_localize(None).tolist() == given["t"].tolist()
    assert str(rows["t"].dt.tz) == "Asia/Tokyo"
    assert narrow.sample(given=rows[["t"]])["t"].tolist() == rows["t"].tolist()


def test_numbers_are_compared_as_their_column_holds_them(narrow):
    tenth = np.float32(0.1)
    assert set(narrow.sample(50, given={"x": 0.1})["x"]) == {tenth}
    rows = narrow.sample(400, given={"x": (0.1, 0.3)})
    assert set(rows["x"]) == {tenth, np.float32(0.2), np.float32(0.3)}


@pytest.mark.parametrize("end", [None, np.nan, pd.NA, pd.NaT])
def test_a_missing_end_of_an_interval_is_no_limit(narrow, end):
    assert narrow.sample(20, given={"i": (end, 4)})["i"].max() <= 4
    assert narrow.sample(20, given={"t": ("2020-01-03", end)})["t"].dt.day.min() >= 3


def test_an_interval_of_one_number_is_that_number(models):
    synthesizer, _ = models("blocks")
    asked = {"random_state": 0}
    rows = synthesizer.sample(20, given={"income": (30_000, 30_000)}, **asked)
    expected = synthesizer.sample(20, given={"income": 30_000}, **asked)
    pd.testing.assert_frame_equal(rows, expected)
    assert set(rows["income"]) == {30_000}


def test_a_condition_on_a_continuum_that_is_determined():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": rng.choice(["a", "b"], 500), "p": rng.random(500)})
    frame["p"] = frame["p"].mask(frame["c"] == "a", 1.5)
    facts = [
        Column("c", "categorical", levels=["a", "b"]),
        Column("p", "continuous", lower=0, upper=2, nullable=False),
    ]
    schema = Schema(facts, [Determines(["c"], "p", {"a": 1.5})])
    flow = DPHFlowSynthesizer(None, schema=schema, n_steps=20).fit(frame)
    assert set(flow.sample(50, given={"p": (0, 1.4)})["c"]) == {"b"}
    rows = flow.sample(200, given={"p": (1.4, 1.6)}, random_state=0)
    assert set(rows["p"][rows["c"] == "a"]) == {1.5}
    assert rows["p"].between(1.4, 1.6).all()


def test_too_few_rows_that_fit_say_so(models):
    synthesizer, _ = models("blocks")
    given = {"age": 80, "label": "hi", "city": "Oslo"}
    with pytest.raises(SamplingError, match=r"acceptance rate .*max_tries=5"):
        synthesizer.sample(50, given=given, max_tries=5)


def test_rough_completions_are_warned_of(models):
    synthesizer, _ = models("blocks")
    part = pd.DataFrame({"city": ["Rome"], "age": [60], "label": ["hi"]})
    part = part.loc[[0] * 10].reset_index(drop=True)
    part["city"] = part["city"].astype(table(1)["city"].dtype)

    def sampled(seed):  # of some seeds a row has no candidate, of few all have enough
        with suppress(SamplingError):
            return synthesizer.sample(given=part, max_tries=2000, random_state=seed)

    with pytest.warns(UserWarning, match=r"for \d+ of the 10 rows given"):
        wholes = [whole for whole in map(sampled, range(5)) if whole is not None]
    assert wholes
    for whole in wholes:
        assert whole.loc[0, ["city", "age", "label"]].tolist() == ["Rome", 60, "hi"]


def test_plain_samples_are_what_they_were(models, monkeypatch):
    """Nothing given, nothing constrained: no candidates are drawn."""
    synthesizer, _ = models("flow")
    monkeypatch.setattr(type(synthesizer._recipe), "draw_given", None)
    assert len(synthesizer.sample(10)) == 10
    assert len(synthesizer.sample()) == 1


def test_segments_place_positions_where_they_may_lie(models):
    transformer: TableTransformer = models("flow")[0]._transformer
    rng = np.random.default_rng(0)
    conditions = {
        "age": [(25, 31), 40],
        "income": [(30_000, 30_500), None, (90_000, None)],
        "joined": ("2020-02-01", "2020-02-02"),
        "city": ["Rome", None],
    }
    for codec in transformer.codecs:
        if codec.column.name not in conditions:
            continue
        condition = conditions[codec.column.name]
        segments = codec.segments(condition)
        shares = segments.shares(codec.n_cells)
        assert ((shares >= 0) & (shares <= 1 + 1e-12)).all()
        codes = np.repeat(np.flatnonzero(shares), 300)
        places = segments.place(codes, rng.random(len(codes)))
        values = codec.decode(codes, places)
        assert satisfies(values, condition).mean() > 0.999  # but for rounding
        everywhere = np.repeat(np.arange(codec.n_cells), 2000)
        met = satisfies(
            codec.decode(everywhere, rng.random(len(everywhere))), condition
        )
        by_cell = met.reshape(-1, 2000).mean(1)
        # Five standard deviations of a share, over under 200 cells.
        assert (np.abs(by_cell - shares) < 5 * 0.5 / math.sqrt(2000)).all()


def test_intervals_that_overlap_count_once(models):
    transformer: TableTransformer = models("flow")[0]._transformer
    income = transformer.codecs[transformer.place("income")]
    several = [(12_000, 31_000), (20_500, 21_500), (20_000, 50_000), (21_000, 30_000)]
    whole, parts = map(income.segments, ((12_000, 50_000), several))
    np.testing.assert_allclose(
        parts.shares(income.n_cells), whole.shares(income.n_cells), atol=1e-12
    )


def test_few_rows_of_few_candidates_are_returned_with_a_warning():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.random(2000), "b": rng.random(2000)})
    bounded = [Column(name, "continuous", lower=0, upper=1) for name in frame]
    never = Impossible({"a": (0.1, None)})
    schema = Schema(bounded, [never])
    synthesizer = DPHFlowSynthesizer(epsilon=None, n_steps=0, schema=schema).fit(frame)
    asked = {"given": {"a": (0.0, 0.3)}, "max_tries": 2, "random_state": 0}
    with pytest.warns(UserWarning, match=r"only \d+ satisfy .* 500 are needed") as seen:
        rows = synthesizer.sample(20, **asked)
    assert seen[0].filename == __file__
    assert len(rows) == 20
    assert not rows.duplicated().any()
    assert rows["a"].max() < 0.1
    with pytest.raises(SamplingError, match="; 480 are needed"):
        synthesizer.sample(480, **asked)


def test_rows_whose_first_candidate_fails_alone_are_drawn_again():
    """Others keep the first, and all of them the values given."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"b": rng.choice(list("pq"), 600), "a": rng.choice(3, 600)})
    rules = [Impossible({"a": 0, "b": "p"})]
    facts = [
        Column("b", "categorical", levels=("p", "q")),
        Column("a", "categorical", levels=(0, 1, 2)),
    ]
    flow = DPHFlowSynthesizer(epsilon=None, n_steps=5, schema=Schema(facts, rules))
    given = pd.DataFrame({"a": np.arange(600) % 3})
    drawn = flow.fit(frame).sample(given=given, random_state=0, max_tries=100)
    assert (drawn["a"] == given["a"]).all()
    assert (drawn["b"][drawn["a"] == 0] == "q").all()
    others = drawn["b"][drawn["a"] > 0] == "p"
    assert 0.3 < others.mean() < 0.7
