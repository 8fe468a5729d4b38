"""Pictures: what is drawn, in which order, and how axes are labelled."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from dpgenerative.metrics import plots
from dpgenerative.metrics.dependence import association_matrix
from dpgenerative.metrics.membership import attack_result, roc_cap
from tests.test_report import table

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")


def scores(metric="auroc"):
    rows = [
        {"model": model, "trained_on": source, "repeat": 0, metric: value + shift}
        for model, value in (("bad", 0.6), ("mlp", 0.9), ("so_so", 0.7))
        for source, shift in (("real", 0.05), ("synthetic", 0.0))
    ]
    return pd.DataFrame(rows)


def names(axes):
    return [label.get_text() for label in axes.get_yticklabels()]


def labels_of(legend):
    return [text.get_text() for text in legend.get_texts()]


def test_plot_utility_ranks_models():
    assert names(plots.plot_utility(scores())) == ["bad", "so so", "neural network"]
    assert names(plots.plot_utility(scores("rmse"), metric="rmse"))[-1] == "bad"
    for source in ("real", "synthetic"):
        axes = plots.plot_utility(scores().query("trained_on == @source"))
        assert labels_of(axes.get_legend()) == [f"trained on {source} rows"]
    repeated = pd.concat([scores(), scores().assign(repeat=1)])
    assert names(plots.plot_utility(repeated)) == names(axes)
    with pytest.raises(ValueError, match="'metric' of plot_utility must be one of"):
        plots.plot_utility(scores(), metric="r2")


def test_plot_association_blanks_the_diagonal_and_takes_axes():
    matrix = association_matrix(table(100, 0))
    given = Figure().subplots()
    axes = plots.plot_association(matrix, ax=given, title="$a_b")
    assert axes is given
    assert axes.get_title(loc="left") == "$a_b"
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    assert np.isnan(np.diag(shown)).all()
    assert axes.images[0].get_clim() == (0.0, 1.0)
    assert names(axes) == list(matrix)
    signed = plots.plot_association(matrix - 0.5, signed=True, limit=0.5)
    assert signed.images[0].get_clim() == (-0.5, 0.5)
    wide = pd.DataFrame(np.eye(50))
    assert names(plots.plot_association(wide)) == []


def test_plot_roc_draws_curve_diagonal_and_cap():
    rng = np.random.default_rng(0)
    pair = rng.normal(0.2, 1, 400), rng.normal(0, 1, 400)
    bounded = attack_result("one", pair, ((1.0, 1e-5),))
    axes = plots.plot_roc(bounded)
    assert axes.get_xscale() == axes.get_yscale() == "log"
    labels = labels_of(axes.get_legend())
    assert labels[0] == "guessing"
    assert labels[1].startswith("ruled out by")
    assert labels[2].startswith("one (AUC 0.")
    cap = axes.lines[1].get_xydata()
    np.testing.assert_allclose(cap[:, 1], roc_cap(cap[:, 0], ((1.0, 1e-5),)))
    x, y = axes.lines[2].get_data()
    assert (np.diff(x) >= 0).all()
    assert (np.diff(y) >= -1e-12).all()
    free = attack_result("two", pair)
    assert len(plots.plot_roc([free, free]).lines) == 3
    assert len(plots.plot_roc([bounded, bounded]).collections) == 1
    with pytest.raises(ValueError, match="results must hold"):
        plots.plot_roc([])


def test_plot_precision_draws_guessing_and_a_curve_per_attack():
    result = attack_result("one", [[3.0, 2.0], [2.5, 1.0, 0.5, 0.0]])
    axes = plots.plot_precision([result, result])
    guess, curve, _ = axes.lines
    np.testing.assert_allclose(guess.get_ydata(), 1 / 3)
    np.testing.assert_allclose(curve.get_xdata(), result.precision_recall()[1])
    labels = labels_of(axes.get_legend())
    assert labels[:2] == ["guessing", "one (average precision 0.833)"]
    with pytest.raises(ValueError, match="results must hold"):
        plots.plot_precision([])


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        (pd.date_range("2014-03-01", "2019-10-01"), ["2015", "2017", "2019"]),
        (pd.date_range("2020-01-05", periods=90), ["2020-02", "2020-03", "2020-04"]),
        (pd.date_range("2020-01-05", periods=4), ["2020-01-05", "2020-01-08"]),
        (pd.to_timedelta(np.arange(40), unit="D"), ["0 d", "30 d"]),
        (pd.to_timedelta([0, 90, 150], unit="min"), ["0 h", "1.5 h", "2.5 h"]),
        (pd.date_range("2020-01-05", periods=2, freq="h"), ["2020-01-05 01:00"]),
        (np.linspace(-62135596800, 253402214400, 50).astype("M8[s]"), ["2001", "8001"]),
        (np.array(["12000-01-01", "12001-05-05"], "M8[s]"), ["12000-01-01"]),
        (
            pd.to_datetime([1, 2], unit="ms"),
            ["1970-01-01 00:00:00.001", "1970-01-01 00:00:00.002"],
        ),
        (
            np.array([5, 253402300799 * 10**6]).astype("M8[us]"),
            ["1970-01-01 00:00:00.000005", "9999-12-31 23:59:59.000000"],
        ),
    ],
)
def test_times_are_written_as_times(times, labels):
    """In seconds since 1970 an axis of dates said 1.395G."""
    axes = plots.plot_marginal(pd.Series(times), pd.Series(times))
    shown = [label.get_text() for label in axes.get_xticklabels()]
    assert set(labels) <= set(shown)
    assert len({len(label) for label in shown}) == 1 or " " in shown[0]


@pytest.mark.parametrize("whole", [False, True])
def test_crowded_numbers_stand_on_an_asinh_axis(whole):
    values = pd.Series(100 * np.random.default_rng(0).pareto(0.7, 500))
    values = values.astype(int if whole else float).astype("Int64" if whole else float)
    values[:50] = None
    axes = plots.plot_marginal(values, values)
    assert axes.get_xscale() == "asinh"
    filled, outlined = (patch.get_data() for patch in axes.patches[:2])
    np.testing.assert_array_equal(filled.values, outlined.values)
    bars = axes.patches[2:]
    assert [bar.get_height() for bar in bars] == [0.1, 0.1]
    assert filled.values.sum() == pytest.approx(0.9)
    assert filled.edges[-1] < bars[0].get_x()
    *labels, last = [label.get_text() for label in axes.get_xticklabels()]
    assert last == "missing"
    assert {"1000", "100k"} <= set(labels)


def test_plot_marginals_of_one_table_draws_it_alone():
    frame = table(200, 0)
    figure = plots.plot_marginals(None, frame)
    assert len(figure.axes) == frame.shape[1]
    assert labels_of(figure.legends[0]) == ["synthetic"]
    both = plots.plot_marginals(frame, frame)
    assert labels_of(both.legends[0]) == ["real", "synthetic"]
    greys = {patch.get_facecolor() for axes in figure.axes for patch in axes.patches}
    real_greys = {patch.get_facecolor() for axes in both.axes for patch in axes.patches}
    assert greys != real_greys


def test_columns_without_a_value_are_missing_whole():
    empty = pd.Series([np.nan] * 50, name="a")
    axes = plots.plot_marginal(empty, empty)
    assert [patch.get_height() for patch in axes.patches] == [1.0, 1.0]


def test_the_legend_of_models_is_inside_the_picture():
    axes = plots.plot_utility(scores().replace("bad", "gaussian_nb"))
    figure = axes.figure
    figure.draw_without_rendering()
    box = axes.get_legend().get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width


@pytest.mark.parametrize("given", [None, 3, "a", [3], pd.DataFrame(np.ones((2, 3)))])
def test_what_cannot_be_drawn_is_named(given):
    with pytest.raises(TypeError, match="matrix must be a square DataFrame; got"):
        plots.plot_association(given)
    with pytest.raises(TypeError, match="scores must be a DataFrame of models"):
        plots.plot_utility(given)
    for draw in (plots.plot_roc, plots.plot_precision):
        with pytest.raises(TypeError, match="results must hold AttackResults; got"):
            draw(given)
    with pytest.raises(TypeError, match="synthetic must be a Series; got"):
        plots.plot_marginal(None, given)


def test_a_scale_of_colours_without_length_is_refused():
    matrix = pd.DataFrame(np.eye(2), list("ab"), list("ab"))
    for limit in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="limit must be positive"):
            plots.plot_association(matrix, limit=limit)


def test_long_names_stay_over_their_panel():
    name = "the number of visits to a doctor in the year before"
    rows = pd.DataFrame({name: np.arange(50.0), "b": np.arange(50.0)})
    titles = [a.get_title(loc="left") for a in plots.plot_marginals(rows, rows).axes]
    assert titles == ["the number of visits to a d\u2026", "b"]
