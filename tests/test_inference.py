"""Intervals of analyses: from refits to tables that the synthesizer drew itself."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    Schema,
    load,
)
from dpgenerative.cli import main
from dpgenerative.inference import (
    Bootstrap,
    bootstrap,
    combine,
    means_and_shares,
    sample_copies,
)
from dpgenerative.inference.results import lost_notes
from dpgenerative.metrics import report
from dpgenerative.synthesizers import session

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FEW = {"n_steps": 5, "random_state": 0, "noise": "reproducible"}
QUICK = {"n_refits": 4, "random_state": 0, "verbose": 0}


def table(n=400, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.4
    return pd.DataFrame(
        {"x": rng.normal(group, 1), "group": pd.Categorical(np.where(group, *"ab"))}
    )


SCHEMA = Schema([Column("x", "continuous", lower=-5, upper=5)])


@pytest.fixture(scope="module")
def fitted():
    return DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(table(800))


def by_group(frame):
    return frame.groupby("group", observed=True)["x"].mean()


def mean(frame):
    return frame["x"].mean()


def made(estimate, replicates, **facts):
    """Return a result of made-up numbers."""
    names = [f"r{i}" for i in range(len(estimate))]
    columns = {
        "estimate": pd.Series(estimate, names),
        "error": pd.Series(np.nan, names),
        "replicates": pd.DataFrame(replicates, columns=names),
        "errors": pd.DataFrame(np.nan, range(len(replicates)), names),
        "resampled": pd.DataFrame(replicates, columns=names),
        "n_rows": 100,
    }
    columns |= {
        "alone": columns["estimate"],
        "alone_replicates": columns["replicates"],
    }
    return Bootstrap(**columns | facts)


# Refits -------------------------------------------------------------------------------


def test_results_are_those_of_refits(fitted):
    result = bootstrap(fitted, by_group, **QUICK)
    assert result.replicates.shape == result.resampled.shape == (4, 2)
    assert list(result.estimate.index) == ["a", "b"]
    assert result.n_rows == 4 * fitted.privacy_.plan.n_rows
    # Refits see what was drawn, with noise of their own.
    apart = (result.replicates - result.resampled).std()
    assert (apart > 0).all()
    assert (result.resampled.std() > 0).all()


def test_a_refit_is_the_fit_itself(fitted):
    """On the private rows, with the seed of the fit, it is the fit."""
    again = session.refit(fitted, table(800), seed=0)
    pd.testing.assert_frame_equal(
        again.sample(50, random_state=1), fitted.sample(50, random_state=1)
    )
    assert again.privacy_.plan == fitted.privacy_.plan


def test_the_same_seed_gives_the_same_result_from_a_file(fitted, tmp_path):
    expected = bootstrap(fitted, by_group, **QUICK)
    fitted.save(tmp_path / "model.dpg")
    result = bootstrap(load(tmp_path / "model.dpg"), by_group, **QUICK)
    pd.testing.assert_frame_equal(result.replicates, expected.replicates)
    other = bootstrap(fitted, by_group, **QUICK | {"random_state": 1})
    assert (other.replicates != expected.replicates).all(axis=None)


def test_no_private_row_is_needed_and_nothing_is_spent():
    """The rows are gone; a budget is not charged, and the report stays."""
    rows = table()
    fitted = DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(rows)
    rows.iloc[:] = np.nan
    del rows
    before, state = str(fitted.privacy_), {**fitted.__dict__}
    with PrivacyBudget(1.0, 1e-5) as budget:
        result = bootstrap(fitted, mean, **QUICK)
    assert budget.spent == (0, 0)
    assert np.isfinite(result.replicates).all(axis=None)
    assert str(fitted.privacy_) == before
    assert fitted.__dict__.keys() == state.keys()
    assert all(fitted.__dict__[name] is state[name] for name in state)


def test_without_a_seed_the_synthesizer_counts_no_samples():
    fitted = DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(table())
    bootstrap(fitted, mean, 2, n_rows=10, verbose=0)
    list(sample_copies(fitted, 2, 10, verbose=0))
    assert fitted._n_sampled == 0


def test_samples_of_refits_are_drawn_independently():
    """With one seed for all, a row of them would be nearly the same."""
    fitted = DPVAESynthesizer(epsilon=None, schema=SCHEMA, n_steps=5).fit(table())

    def first(frame):
        return frame["x"].iloc[0]

    result = bootstrap(fitted, first, 12, n_rows=20, random_state=0, verbose=0)
    spread = fitted.sample(1000, random_state=0)["x"].std()
    assert result.replicates.std().item() > 0.5 * spread


def test_a_statistic_may_change_its_rows(fitted):
    def changes(frame):
        result = frame["x"].mean()
        frame["x"] = 0.0
        return result

    result = bootstrap(fitted, changes, **QUICK)
    assert (result.resampled != 0).all(axis=None)


def test_fresh_noise_stays_fresh_and_refits_know_no_seed_of_it():
    parameters = {**FEW, "noise": "fresh", "random_state": 3}
    fitted = DPHFlowSynthesizer(schema=SCHEMA, **parameters).fit(table())
    again = session.refit(fitted, table(), seed=3)
    sampled = (each.sample(50, random_state=1) for each in (again, fitted))
    assert not next(sampled).equals(next(sampled))
    assert fitted.noise == "fresh"


def test_y_arrays_and_images_are_given_as_they_are_sampled():
    frame = table()
    pair = DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(frame[["x"]], frame["group"])
    result = bootstrap(pair, lambda X, y: X["x"][y == "a"].mean(), **QUICK)
    assert result.estimate.index.tolist() == ["<lambda>"]
    assert result.standard_error.iloc[0] > 0
    pixels = np.random.default_rng(0).random((300, 4, 4))
    images = DPArrayVAESynthesizer(n_steps=3, random_state=0).fit(pixels)
    result = bootstrap(images, lambda X: X.mean(axis=0), **QUICK)
    assert len(result.estimate) == 16


def test_a_fit_with_public_rows_is_refused():
    fitted = DPHFlowSynthesizer(schema=SCHEMA, **FEW).fit(table(), public=table(50, 1))
    with pytest.raises(ValueError, match="cannot be repeated without them"):
        bootstrap(fitted, mean, **QUICK)
    assert not clone(fitted).fit(table())._has_public


# Statistics ---------------------------------------------------------------------------


def test_rows_of_a_size_of_ones_own(fitted):
    n = fitted.privacy_.plan.n_rows

    def totals(frame):
        return pd.Series({"rows": len(frame), "a": (frame["group"] == "a").sum()})

    result = bootstrap(fitted, totals, n_rows=50, **QUICK)
    assert result.n_rows == result.estimate["rows"] == 50
    assert (result.resampled["rows"] == n).all()
    assert (result.replicates["rows"] == 50).all()
    # Totals are those of so many people, and so are their intervals.
    assert result.interval().loc["rows"].tolist() == [50, 50]
    assert -60 < result.interval().loc["a", "lower"] < result.estimate["a"]
    assert abs(result.bias["a"]) < 50


@pytest.mark.parametrize(
    ("statistic", "names"),
    [
        (mean, ["mean"]),
        (lambda f: np.quantile(f["x"], [0.2, 0.5]), [0, 1]),
        (lambda f: f.groupby("group", observed=True).agg(["mean"]),
         [("a", ("x", "mean")), ("b", ("x", "mean"))]),
    ],
)  # fmt: skip
def test_results_of_several_forms(fitted, statistic, names):
    result = bootstrap(fitted, statistic, **QUICK)
    assert len(result.estimate) == len(names)
    if isinstance(names[0], (str, int)):
        assert result.estimate.index.tolist() == names


@pytest.mark.parametrize(
    "statistic",
    [lambda f: "text", lambda f: [], lambda f: None, lambda f: (1.0, 2.0, 3.0),
     lambda f: pd.Series([1.0, 2.0], ["same", "same"])],
)  # fmt: skip
def test_what_is_no_result_is_refused(fitted, statistic):
    with pytest.raises(ValueError, match="must return a number"):
        bootstrap(fitted, statistic, **QUICK)


def test_standard_errors_are_matched_by_index(fitted):
    def sized(frame):
        sizes = frame.groupby("group", observed=True).size()
        return sizes, sizes.iloc[::-1]

    result = bootstrap(fitted, sized, **QUICK)
    pd.testing.assert_series_equal(result.error, result.estimate)


def test_errors_of_a_statistic(fitted):
    with pytest.raises(ValueError, match="1 results and 2 standard errors"):
        bootstrap(fitted, lambda f: (1.0, [1.0, 2.0]), **QUICK)
    with pytest.raises(ValueError, match="the second must be standard errors"):
        bootstrap(fitted, lambda f: (1.0, "wide"), **QUICK)
    with pytest.raises(KeyError, match="absent"):
        bootstrap(fitted, lambda f: f["absent"].mean(), **QUICK)
    n = len(fitted.sample(1)) * 4 * fitted.privacy_.plan.n_rows

    def whole_only(frame):  # fails on what is refitted, and on nothing else
        if len(frame) < n:
            raise ZeroDivisionError
        return 1.0

    assert bootstrap(fitted, whole_only, **QUICK).resampled.isna().all(axis=None)


@pytest.mark.parametrize("other", [None, "text", make_pipeline(StandardScaler())])
def test_what_is_no_synthesizer_is_refused(other):
    with pytest.raises(ValueError, match="must be a fitted synthesizer"):
        bootstrap(other, mean, **QUICK)
    with pytest.raises(ValueError, match="must be a fitted synthesizer"):
        sample_copies(other, 2, 10)


@pytest.mark.parametrize(
    ("wrong", "name"), [({"n_refits": 1}, "n_refits"), ({"n_rows": 0}, "n_rows")]
)
def test_parameters_are_checked(fitted, wrong, name):
    with pytest.raises(ValueError, match=name):
        bootstrap(fitted, mean, **QUICK | wrong)


# Intervals ----------------------------------------------------------------------------


def test_intervals_by_their_formulas():
    rng = np.random.default_rng(0)
    draws = rng.normal([2.0, 5.0], [0.5, 1.0], (40, 2))
    result = made([1.5, 5.0], draws)
    bias, error = draws.mean(axis=0) - [1.5, 5.0], draws.std(axis=0, ddof=1)
    assert result.bias.to_numpy() == pytest.approx(bias)
    reach = stats.t.ppf(0.95, 39) * error * np.sqrt(1 + 1 / 40)
    normal = result.interval(0.9)
    assert normal["lower"].to_numpy() == pytest.approx([1.5, 5] - bias - reach)
    assert normal["upper"].to_numpy() == pytest.approx([1.5, 5] - bias + reach)
    basic = result.interval(0.9, "basic")
    upper = np.quantile(draws - [1.5, 5.0], 0.95, axis=0)
    assert basic["lower"].to_numpy() == pytest.approx([1.5, 5] - upper)


def test_studentised_intervals_take_each_tables_own_error():
    draws = np.random.default_rng(0).normal(0, 1, (50, 1))
    errors = pd.DataFrame(np.full((50, 1), 0.5), columns=["r0"])
    result = made([3.0], 3 + draws, error=pd.Series([1.0], ["r0"]), errors=errors)
    bounds = result.interval(0.9, "studentised").iloc[0]
    assert bounds["lower"] == pytest.approx(3 - 2 * np.quantile(draws, 0.95))
    with pytest.raises(ValueError, match="need a statistic that returns two things"):
        made([3.0], draws).interval(method="studentised")
    with pytest.raises(ValueError, match="method"):
        result.interval(method="percentile")


def test_normal_intervals_of_a_normal_estimate_cover():
    """Estimate and replicates differ from their truths by one distribution."""
    rng = np.random.default_rng(0)
    n = 4000
    off = rng.normal(0.3, 1, n)
    draws = rng.normal(0.3, 1, (10, n))
    bounds = made(off, off + draws).interval(0.9)
    covers = (bounds["lower"] < 0) & (bounds["upper"] > 0)
    assert 0.88 < covers.mean() < 0.92


@pytest.mark.parametrize(
    ("retained", "effect"), [(0.5, 10.0), (1.0, 10.0), (1.2, 10.0), (0.6, 0.0)]
)
def test_what_refits_lose_of_a_relation_is_restored(retained, effect):
    """Fits retain a share of it, and so do refits of what is left."""
    rng = np.random.default_rng(0)
    n = 3000
    fits = retained * effect + rng.normal(0, 1, n)
    draws = retained * fits + rng.normal(0, 1, (20, n))
    names = [f"r{i}" for i in range(n)]
    nothing = pd.Series(0.0, names)
    alone = {"alone": nothing}
    alone["alone_replicates"] = pd.DataFrame(0.0, range(20), names)
    result = made(fits, draws, **alone)
    if effect:
        assert result.retained.median() == pytest.approx(retained, abs=0.03)
        assert (fits - result.bias).median() == pytest.approx(effect, abs=0.2)
    bounds = result.interval()
    covers = (bounds["lower"] < effect) & (bounds["upper"] > effect)
    assert covers.mean() > 0.94
    if effect:
        assert covers.mean() < 0.985


def test_a_share_that_chance_explains_is_drawn_to_one():
    """By the variance of the mean: .94 here, where the plain ratio would be -1."""
    draws = pd.DataFrame({"r0": [-1.1, 0.9, -1.1, 0.9]})
    nothing = pd.Series({"r0": 0.0})
    alone = {"alone": nothing, "alone_replicates": draws * 0}
    variance = 4 / 3 / 4
    expected = (0.1 * -0.1 + variance) / (0.1**2 + variance)
    assert made([0.1], draws, **alone).retained.item() == pytest.approx(expected)


def test_lost_relations_are_named():
    draws = pd.DataFrame(
        np.random.default_rng(0).normal(0, 0.1, (20, 1)), columns=["r0"]
    )
    nothing = {"alone": draws.iloc[0] * 0}
    result = made([1.0], draws, **nothing, alone_replicates=draws * 0)
    assert result.retained.item() == 0.25
    assert "r0 are relations that are lost" in " ".join(result.cautions())


@pytest.mark.parametrize("spread", [0.1, 0.0])
def test_rounding_is_no_relation(spread):
    """Shuffled columns are added up in another order."""
    draws = pd.DataFrame({"r0": 1.0 + spread * np.array([-1.0, 0.5, 1.0])})
    rounded = {"alone": pd.Series({"r0": np.nextafter(1.0, 2.0)})}
    rounded["alone_replicates"] = draws * (1 - 2**-52)
    result = made([1.0], draws, **rounded)
    assert result.retained.item() == 1
    same = made([1.0], draws).interval()
    pd.testing.assert_frame_equal(result.interval(), same)


@pytest.mark.parametrize("n_steps", [0, 5])
def test_what_was_not_learned_has_no_ends(n_steps):
    def both(frame):
        gap = by_group(frame)
        return pd.Series({"mean": mean(frame), "gap": gap["b"] - gap["a"]})

    params = {**FEW, "n_steps": n_steps, "architecture__table_budget": 0.0}
    own = DPHFlowSynthesizer(schema=SCHEMA).set_params(**params).fit(table())
    bounds = bootstrap(own, both, **QUICK).interval()
    assert np.isfinite(bounds.loc["mean"]).all()
    assert np.isinf(bounds.loc["gap"]).all() == (n_steps == 0)
    draws = pd.DataFrame({"r0": [0.9, 1.0, 1.1]})
    alone = {"alone": pd.Series({"r0": 0.0}), "alone_replicates": draws * 0}
    gap = made([1.0], draws, **alone, is_related=n_steps > 0).interval()
    assert np.isinf(gap).all(axis=None) == (n_steps == 0)
    # Where rows are few, only ordered columns are learned to go together.
    few = DPHFlowSynthesizer(schema=SCHEMA, random_state=0).fit(table(120))
    assert not session.has_relations(few)


def test_shuffled_columns_keep_their_values_and_lose_each_other(fitted):
    rows = session.drawn(fitted, 500, 0)
    (mixed,) = session.shuffled(fitted, rows, 1)
    ordered = (x["x"].sort_values(ignore_index=True) for x in (mixed, rows[0]))
    pd.testing.assert_series_equal(*ordered)
    assert (mixed.dtypes == rows[0].dtypes).all()
    assert (mixed["group"] != rows[0]["group"]).any()
    pixels = (np.arange(60.0).reshape(20, 3),)
    (other,) = session.shuffled(fitted, pixels, 0)
    assert np.sort(other, axis=0).tolist() == pixels[0].tolist()
    assert (np.diff(other[:, 0]) != np.diff(other[:, 1])).any()


def test_parts_of_the_error():
    rng = np.random.default_rng(0)
    drawn = pd.DataFrame({"r0": rng.normal(0, 2, 2000)})
    draws = drawn.to_numpy() * 0.5 + rng.normal(1, 1, (2000, 1))
    parts = made([0.0], draws, resampled=drawn).parts().loc["r0"]
    assert parts["sampling"] == pytest.approx(2, rel=0.1)
    assert parts["noise"] == pytest.approx(np.sqrt(1 + 1), rel=0.1)
    assert parts["bias"] == pytest.approx(1, abs=0.1)


def test_arrays_of_another_length_say_nothing(fitted):
    def shares(frame):
        calls.append(len(frame))
        values = [0.2, 0.3, 0.5]
        return np.array(values[1:] if len(calls) == 4 else values)

    calls = []  # on rows and shuffled ones; then on every table, and two of its refit
    result = bootstrap(fitted, shares, **QUICK)
    assert result.replicates.isna().all(axis=1).sum() == 1
    assert (result.replicates.dropna() == [0.2, 0.3, 0.5]).all(axis=None)
    wide = bootstrap(
        fitted,
        lambda frame: frame.groupby("group", observed=True)[["x"]].agg(["mean", "min"]),
        **QUICK,
    )
    assert ("a", "x", "min") in wide.estimate.index


def test_levels_that_refits_lost_have_no_rows(fitted):
    facts = [SCHEMA["x"], Column("group", "categorical", levels=["a", "b"])]
    frame = table(400).astype({"group": object})
    own = DPHFlowSynthesizer(schema=Schema(facts), **FEW).fit(frame)
    # Of two rows, some have one level alone.
    result = bootstrap(own, means_and_shares, n_rows=2, **QUICK)
    for each in (result.replicates, result.resampled):
        assert each.notna().all(axis=None)
    assert result.errors.isna().all(axis=None)
    assert (result.replicates == 0).any(axis=None)
    # The mean of a column without a value is not 0.
    own = DPHFlowSynthesizer(**FEW).set_params(schema=Schema(facts))
    own.fit(frame.assign(x=frame["x"].where(np.arange(400) < 2)))
    rows = bootstrap(own, means_and_shares, n_rows=400, **QUICK).replicates
    assert (rows["x", "mean", ""] != 0).all()


# What not to trust --------------------------------------------------------------------


def test_cautions_name_what_is_undefined_biased_fixed_or_lost(fitted):
    draws = np.array([[1.0, 9.0, 0.0], [1.0, 9.1, 0.1], [1.0, np.nan, 0.2]])
    result = made([1.0, 5.0, 0.1], draws, notes=("lost",))
    text = " ".join(result.cautions())
    assert "r1 are undefined in over 5 %" in text
    assert "r0 are the same in all refits" in text
    assert "r1 have a bias beyond two standard errors" in text
    assert "r2" not in text
    assert result.cautions()[-1] == "lost"
    assert "- lost" in str(result)
    rows = fitted.sample(400)
    assert lost_notes(fitted, (rows,)) == ()
    (note,) = lost_notes(fitted, (rows.assign(group="a"),))
    assert "these levels of 'group', since noise hides them: 'b'" in note
    # A level that noise hides has a row of several tables all the same.
    n = fitted.privacy_.plan.n_rows
    few = fitted.sample(4 * n).assign(group=["b"] * 3 + ["a"] * (4 * n - 3))
    assert lost_notes(fitted, (few,)) == (note.replace("400", str(n)),)
    pair = rows[["x"]], rows["group"].where(rows["group"] == "a")
    assert lost_notes(fitted, pair) == (note,)
    untrained = clone(fitted).set_params(epsilon=0.02, n_steps="auto").fit(table())
    (note,) = lost_notes(untrained, (rows,))
    assert "too small for relations between columns" in note


def test_a_result_is_shown_and_drawn(fitted):
    result = bootstrap(fitted, by_group, **QUICK)
    assert "95 % intervals of 4 refits" in str(result)
    assert repr(result) == "Bootstrap(2 results, 4 refits)"
    (axes,) = result.plot(0.8).axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel().startswith("estimate, 80 % interval")
    assert result.plot(ax=axes) is axes.figure
    none = made([1.0], pd.DataFrame({"r0": [0.0, 0.1, 0.2]}), is_related=False)
    for alone, n_lines in ((1.0, 0), (0.0, 1)):  # a relation that was not learned
        (drawn,) = replace(none, alone=none.estimate * 0 + alone).plot().axes
        assert sum(line.get_linestyle() == ":" for line in drawn.lines) == n_lines


# Copies -------------------------------------------------------------------------------


def test_copies_are_samples_of_refits(fitted):
    tables = list(sample_copies(fitted, 3, 150, random_state=0, verbose=0))
    assert [len(each) for each in tables] == [150] * 4
    pd.testing.assert_frame_equal(tables[0], fitted.sample(150, random_state=0))
    assert not any(tables[0].equals(each) for each in tables[1:])
    assert inspect.isgenerator(sample_copies(fitted, 2, 10))
    with pytest.raises(ValueError, match="n_copies"):
        sample_copies(fitted, 1, 150)


def test_refits_of_copies_see_rows_of_the_first_table(fitted, monkeypatch):
    """Their results then vary around its own, as `combine` takes it."""
    seen, refit = [], session.refit

    def spy(model, rows, **facts):
        seen.append(rows)
        return refit(model, rows, **facts)

    monkeypatch.setattr(session, "refit", spy)
    first, *_ = sample_copies(fitted, 2, 30, random_state=0, verbose=0)
    assert [len(rows) for rows in seen] == [fitted.privacy_.plan.n_rows] * 2
    assert all(set(rows["x"]) <= set(first["x"]) for rows in seen)


def test_combine_is_the_rule_of_bootstrap():
    draws = np.random.default_rng(0).normal(0, 1, (20, 2))
    result = made([1.0, 2.0], draws)
    combined = combine(np.vstack([[1.0, 2.0], draws]), level=0.9)
    expected = result.interval(0.9)
    assert combined[["lower", "upper"]].to_numpy() == pytest.approx(expected.to_numpy())
    assert combined["estimate"].to_numpy() == pytest.approx(
        expected.mean(axis=1).to_numpy()
    )
    related = combine([4.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0])
    assert related["estimate"].item() == 8
    with pytest.raises(ValueError, match="three tables or more; got 2"):
        combine([1.0, 2.0])
    with pytest.raises(ValueError, match="differ in shape"):
        combine([1.0, 2.0, 3.0], [1.0])


def test_copies_on_the_command_line(fitted, tmp_path, capsys):
    fitted.save(tmp_path / "model.dpg")
    model, out = str(tmp_path / "model.dpg"), str(tmp_path / "rows.csv")
    command = ["sample", model, "-n", "60", "-o", out, "--random-state", "1"]
    assert main([*command, "--copies", "2"]) == 0
    names = ["rows.csv", "rows-1.csv", "rows-2.csv"]
    tables = [pd.read_csv(tmp_path / name) for name in names]
    assert all(each.shape == (60, 2) for each in tables)
    assert not tables[1].equals(tables[2])
    expected = list(sample_copies(fitted, 2, 60, random_state=1, verbose=0))
    for written, each in zip(tables, expected, strict=True):
        assert written["x"].to_numpy() == pytest.approx(each["x"].to_numpy())
    (tmp_path / "rows.csv").unlink()
    assert main([*command, "--copies", "2"]) == 2
    assert "rows-1.csv exists" in capsys.readouterr().err
    assert not (tmp_path / "rows.csv").exists()
    assert main([*command, "--copies", "1"]) == 2
    assert "at least 2" in capsys.readouterr().err


def test_a_report_shows_intervals(fitted):
    result = bootstrap(fitted, means_and_shares, 3, random_state=0, verbose=0)
    rows = fitted.sample(200, random_state=0)
    page = report(None, rows, synthesizer=fitted, intervals=result, public=True).html
    bounds = result.interval()
    for about, low, high in bounds.itertuples():
        title = ", ".join(part for part in about if part)
        cells = page.split(f'<th scope="row">{title}</th>')[1].split("</tr>")[0]
        assert f"<td>{low:.4g}</td><td>{high:.4g}</td>" in cells
    assert "How far to trust" not in report(None, rows, public=True).html


def test_a_report_on_the_command_line_has_intervals(fitted, tmp_path):
    model, real, page = tmp_path / "m.dpg", tmp_path / "real.csv", tmp_path / "p.html"
    fitted.save(model)
    fitted.sample(300, random_state=0).to_csv(real, index=False)
    command = ["report", str(model), "--real", str(real), "-o", str(page), "--quiet"]
    assert main([*command, "--refits", "2"]) == 0
    assert "How far to trust" in page.read_text(encoding="utf-8")


def test_keys_have_no_means():
    rows = table(200).assign(key=np.arange(200))
    flow = DPHFlowSynthesizer(schema=Schema([Column("key", "integer", role="id")]))
    flow.set_params(n_steps=2, random_state=0).fit(rows)
    result = bootstrap(flow, means_and_shares, 2, random_state=0, verbose=0)
    assert "key" not in result.estimate.index.get_level_values(0)
