"""Tables of many columns: bounded weights, one answer however rows are drawn."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
    synthesizers,
)
from dpgenerative.fitting import workload
from dpgenerative.fitting.recipe import FitSize
from dpgenerative.fitting.workload import (
    MOST_CANDIDATES,
    MOST_TABLES,
    Comparison,
    Measurement,
)
from dpgenerative.metrics import measuring
from dpgenerative.metrics.reporting import report
from dpgenerative.models import flow, hflow
from dpgenerative.models.cells import CellFacts, Cells
from dpgenerative.models.hflow import HFlow
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.synthesizers.flow_rules import TUNING
from dpgenerative.tables.private import Private
from tests.plans import make_plan

D = 150


def facts(k=6, ordered=False):
    masses = torch.arange(1, k + 1).double()
    atoms = torch.zeros(k, dtype=torch.bool)
    return CellFacts(masses / masses.sum(), ordered, False, atoms)


def model_of(columns, **settings):
    generator = torch.Generator().manual_seed(0)
    defaults = {"n_basis": 2, "hidden_units": 0, "n_blocks": 1, "linear": "none"}
    others = {"dequantization": "uniform", "anchored": True, "generator": generator}
    model = HFlow(columns, **{**defaults, **others, **settings})
    with torch.no_grad():
        model.first.skip.weight.normal_(0, 0.5, generator=generator)
    return model.requires_grad_(False)


def table(n, d):
    """Return a table of numbers, labels and bits, each like the column before."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(n, d)).cumsum(1) / np.sqrt(np.arange(1, d + 1))
    kinds = [
        lambda x: x,
        lambda x: pd.Categorical.from_codes(np.digitize(x, [-1, 0, 1]), [*"abcd"]),
        lambda x: x > 0,
    ]
    return pd.DataFrame({f"x{j}": kinds[j % 3](z[:, j]) for j in range(d)})


def schema(d):
    kinds = [
        {"kind": "continuous", "lower": -5.0, "upper": 5.0},
        {"kind": "categorical", "levels": [*"abcd"]},
        {"kind": "categorical", "levels": [False, True]},
    ]
    return Schema([Column(f"x{j}", nullable=False, **kinds[j % 3]) for j in range(d)])


@pytest.mark.parametrize("together", [1, 4, 64])
@pytest.mark.parametrize("hidden_units", [0, 8])
def test_rows_do_not_depend_on_how_many_columns_are_taken_together(
    monkeypatch, together, hidden_units
):
    columns = [facts(12, ordered=True), facts(), facts(2)] * 5
    model = model_of(columns, hidden_units=hidden_units)
    monkeypatch.setattr(flow, "TOGETHER", together)
    codes, positions = model.sample(500, torch.Generator().manual_seed(1))
    placed = model.first.place(codes, positions, model.first.log_probs(codes))
    again, _ = model.first.invert(placed)
    assert (again == codes).float().mean() > 0.999  # but for rounding at an edge
    assert len(codes.unique()) == 12


def test_rows_do_not_depend_on_how_many_are_drawn_at_a_time(monkeypatch):
    model = model_of([facts(), facts(9, ordered=True)] * 4)
    whole = model.sample(100, torch.Generator().manual_seed(1))
    monkeypatch.setattr(hflow, "DRAWN", 7)
    parts = model.sample(100, torch.Generator().manual_seed(1))
    for one, other in zip(whole, parts, strict=True):
        torch.testing.assert_close(one, other)


def test_the_heaviest_levels_have_an_indicator():
    cells = Cells([facts(6), facts(3), facts(12, ordered=True)], 2, most_levels=4)
    assert cells.widths == [4, 3, 2]
    expected = torch.zeros(6, 4)
    expected[2:] = torch.eye(4)
    assert torch.equal(cells.table(0), expected)


@pytest.mark.parametrize(
    ("cells", "ordered", "size"),
    [(2, False, 1), (17, False, 2), (40, False, 2), (1, False, 1), (17, True, 1)],
)
def test_more_levels_of_a_label_have_larger_features(cells, ordered, size):
    columns = [facts(cells, ordered=ordered), facts(9)]
    names = [Column(name, "continuous") for name in "xy"]
    scale, recipe = FitSize(1000, Schema(names), 1.0), DPHFlowSynthesizer()._recipe
    settings = recipe.settings(columns, scale)
    assert settings["first_size"] == size
    paper = DPHFlowSynthesizer.published()._recipe.settings(columns, scale)
    assert paper["first_size"] == 1
    built = recipe.build(columns, scale, torch.Generator().manual_seed(0)).first
    plain = Cells(columns, settings["n_basis"])
    assert torch.equal(built.inputs(0), size * plain.inputs(0))
    assert torch.equal(built.inputs(1), plain.inputs(1))


@pytest.mark.parametrize("epsilon", [1.0, None])
def test_the_number_of_weights_is_bounded(epsilon):
    recipe = DPHFlowSynthesizer()._recipe
    d = 800
    columns = [facts(30), facts(64, ordered=True)] * (d // 2)
    names = [Column(f"x{j}", "continuous") for j in range(d)]
    settings = recipe.settings(columns, FitSize(10**6, Schema(names), epsilon))
    settings |= {"hidden_units": 0}
    widths = Cells(columns, settings["n_basis"], settings["most_levels"]).widths
    assert TUNING.max_functions / 2 < sum(widths) <= TUNING.max_functions
    few = recipe.settings(columns[:40], FitSize(10**6, Schema(names[:40]), epsilon))
    assert few["most_levels"] is None
    assert settings["hidden_size"] == few["hidden_size"] == 4


def measurement(n_columns, mechanisms=None):
    plan = make_plan(
        epsilon=1.0, delta=1e-5, n_rows=10**6, sampling_rate=0.01, n_steps=5,
        marginal_budget=0.2, has_open_keys=False, estimates_norm=False,
        table_budget=0.1,
    )  # fmt: skip
    codes = np.zeros((1, n_columns), int)
    return Measurement([facts()] * n_columns, Private(codes), plan, mechanisms)


def test_tables_that_matter_are_not_drowned_by_others(monkeypatch):
    pairs = {(0, 1): 9000.0}  # rows that lie elsewhere; of all other pairs, 1,000

    class Known(Comparison):
        def choose(self, wanted, among):
            assert set(among[0]) == set(range(36)) - set(wanted)
            return [*wanted, *among[0]][: len(wanted) + len(among)]

        def release(self, places):
            columns = [self.candidates[i].table.columns for i in places]
            news = [(pairs.get(each, 1000.0), 10.0) for each in columns]
            return dict(zip(places, news, strict=True))

    monkeypatch.setattr(workload, "Comparison", Known)
    some = measurement(9, Mechanisms(*[np.random.default_rng(0)] * 2))
    tables, pool = some._candidates([(0, 1)])[:36], np.zeros((1, 9), int)
    free = [*some._selected(tables, pool, [], 0.1)]
    bound = [*some._selected(tables, pool, [(0, 1), (0, 2)], 0.1)]
    assert free[0] == (0, 1)
    assert bound[:2] == [(0, 1), (0, 2)]
    assert 2 <= len(bound) < len(free)


@pytest.mark.parametrize(
    ("columns", "cells", "expected"),
    [
        ([facts(30, ordered=True), facts(30, ordered=True)], 900, [30, 30]),
        ([facts(30, ordered=True), facts(30, ordered=True)], 899, [20, 20]),
        ([facts(30, ordered=True), facts(30)], 399, [10, 30]),
        ([facts(30), facts(30)], 399, [19, 19]),
        ([facts(6), facts(30, ordered=True)], 179, [6, 20]),
        ([facts(6), facts(60)], 239, [6, 39]),
        ([facts(6), facts(60)], 240, [6, 40]),
        ([facts(6), facts(60, ordered=True)], 29, [5, 5]),
        ([facts(6), facts(60)], 1, [2, 2]),
        ([facts(30, ordered=True)] * 3, 16**3, [16, 16, 16]),
        ([facts(30, ordered=True)] * 3, 16**3 - 1, [8, 8, 8]),
    ],
)
def test_nominal_columns_are_counted_as_finely_as_noise_allows(
    columns, cells, expected
):
    rows = workload.CELLS_PER_ROW * 10**6
    sizes = measurement(2)._sizes(columns, rows / (cells + 0.5))
    assert sizes == expected


def test_pairs_of_the_label_and_of_neighbours_are_compared():
    pairs = [each.columns for each in measurement(100)._candidates([(0, 1, 2)])]
    assert pairs.pop() == (0, 1, 2)
    assert len(pairs) == len(set(pairs)) == MOST_CANDIDATES
    assert {(0, j) for j in range(1, 100)} < set(pairs)
    assert {(i, j) for i in range(100) for j in range(i + 1, min(i + 18, 100))} < {
        *pairs
    }


def test_pairs_of_very_many_columns_are_compared():
    pairs = [each.columns for each in measurement(1500)._candidates([])]
    label = [(0, j) for j in range(1, 1500)]
    assert pairs == label + [(j, j + 1) for j in range(1, 502)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "synthesizer",
    [
        DPHFlowSynthesizer(1.0, n_steps=3, batch_size=64),
        DPHFlowSynthesizer(100.0, n_steps=3, batch_size=64),
        DPHFlowSynthesizer(None, n_steps=3, batch_size=64),
        DPVAESynthesizer(1.0, n_steps=3, batch_size=64),
    ],
    ids=["ordered", "whole", "no privacy", "autoencoder"],
)
@pytest.mark.filterwarnings("ignore")
def test_wide_tables_fit_and_their_report_is_short(monkeypatch, synthesizer):
    monkeypatch.setattr(synthesizers.flow, "RAKING_ROWS", 500)
    monkeypatch.setattr(synthesizers.latents, "RAKING_ROWS", 500)
    synthesizer.set_params(schema=schema(D), random_state=0)
    synthesizer.fit(table(300, D))
    drawn = synthesizer.sample(40, random_state=0)
    assert drawn.shape == (40, D)
    assert not drawn.isna().to_numpy().any()
    report = str(synthesizer.privacy_)
    assert len(report.splitlines()) < 30
    assert len(report) < 6000
    assert "x0, x1" in report or "and 100 more" in report


def test_a_report_compares_all_pairs_of_some_columns(monkeypatch):
    monkeypatch.setattr(measuring, "MOST_ASSOCIATED", 4)
    real, synthetic = table(120, 7), table(120, 7).sample(frac=1, random_state=0)
    found = report(real, synthetic.reset_index(drop=True))
    names = list(found.associations.real)
    assert len(names) == 4
    assert names == sorted(names)
    assert found.synthetic_associations.shape == (4, 4)
    assert len(found.columns) == 7
    assert "4 of 7 columns are" in found.html
    monkeypatch.undo()
    assert "columns are\ncompared" not in report(real, real).html


@pytest.mark.parametrize(
    ("default", "d", "n", "epsilon", "expected"),
    [
        ("n_steps", 50, 50_000, 1.0, 800),
        ("n_steps", 100, 50_000, 1.0, 400),
        ("n_steps", 160, 50_000, 1.0, 250),
        ("n_steps", 300, 50_000, 1.0, 133),
        ("n_steps", 900, 100_000, 1.0, 44),
        ("n_steps", 100, 100_000, 1.0, 400),
        ("n_steps", 100, 110_000, 1.0, 800),
        ("n_steps", 100, 1_000, 1.0, 0),
        ("n_steps", 300, 50_000, None, 1000),
        ("learning_rate", 3, 100_000, 1.0, 0.03),
        ("learning_rate", 4, 100_000, 1.0, 0.02),
        ("learning_rate", 4, 6_000, 1.0, 16 / 600),
        ("learning_rate", 100, 100_000, 1.0, 0.03),
        ("learning_rate", 4, 100_000, None, 0.016),
        ("learning_rate", 4, 10, 1.0, 0.03),
        ("hidden_units", 4, 4_000, 1.0, 0),
        ("hidden_units", 4, 4_001, 1.0, 64),
        ("hidden_units", 2, 25_000, 0.1, 64),
        ("hidden_units", 5, 20_000, 1.0, 0),
        ("hidden_units", 5, 20_001, 1.0, 64),
        ("hidden_units", 4, 1_000, None, 64),
    ],
)
def test_defaults_follow_the_columns(default, d, n, epsilon, expected):
    columns = [Column(f"x{j}", "categorical", levels=["a", "b"]) for j in range(d)]
    rule = DPHFlowSynthesizer()._recipe.rules[default]
    assert rule(FitSize(n, Schema(columns), epsilon)) == expected


@pytest.mark.parametrize("d", [1, 2, 3, 5, 9, 11, 100, 1500])
def test_tables_have_a_share_where_choices_are_not_noise(d):
    columns = [Column(f"x{j}", "categorical", levels=["a", "b"]) for j in range(d)]
    rule, schema = DPHFlowSynthesizer()._recipe.rules["table_budget"], Schema(columns)
    few = min(0.5, max(TUNING.least_share, 2 / d**1.5))
    many = max(TUNING.table_share, few)
    n_choices, n_candidates = min(d, MOST_TABLES), min(2**d, MOST_CANDIDATES)
    difficulty = math.sqrt(n_choices) * math.log(n_candidates)
    least = TUNING.rows_for_few * difficulty / math.sqrt(few)
    most = TUNING.rows_for_tables * difficulty / math.sqrt(many)
    for epsilon in (0.1, 1.0):
        rows = [0.99 * least, 1.01 * least, 0.99 * most, 1.01 * most]
        sizes = (FitSize(math.ceil(n / epsilon), schema, epsilon) for n in rows)
        expected = [0.0, few, few, many] if d > 1 else [0.0] * 4
        assert [rule(size) for size in sizes] == expected
    assert rule(FitSize(10**9, schema, None)) == 0.0
