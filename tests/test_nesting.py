"""Levels are drawn within their groups, which keep their own marginal."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import (
    Column,
    Determines,
    DPHFlowSynthesizer,
    FixedCombinations,
    Schema,
    load,
)
from dpgenerative.encoding.nesting import groups_first, nesting_rules
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.models.factors import TableFactor
from dpgenerative.privacy.noise import Mechanisms

N_CODES, N_GROUPS = 60, 4
CODES = [f"c{i}" for i in range(N_CODES)]
GROUPS = [f"g{i}" for i in range(N_GROUPS)]
GROUP_OF = {code: f"g{i % N_GROUPS}" for i, code in enumerate(CODES)}
LAW = Determines(["code"], "group", GROUP_OF)


def table(n=3000, seed=0):
    rng = np.random.default_rng(seed)
    shares = (1.0 + np.arange(N_CODES)) ** -1.2
    code = rng.choice(N_CODES, n, p=shares / shares.sum())
    return pd.DataFrame(
        {
            "code": pd.Categorical.from_codes(code, CODES),
            "age": 30 + 10 * (code % N_GROUPS) + rng.integers(-6, 7, n),
            "group": pd.Categorical.from_codes(code % N_GROUPS, GROUPS),
            "flag": pd.Categorical.from_codes(rng.integers(0, 2, n), ["no", "yes"]),
        }
    )  # fmt: skip


def schema(*constraints):
    return Schema([Column("age", "integer", lower=0, upper=110)], constraints)


def fitted(frame, multiplier=10.0, seed=0, *constraints):
    rng = np.random.default_rng(seed)
    return TableTransformer.fit(
        frame, schema(*constraints).resolve(frame), Mechanisms(rng, rng),
        n_rows=len(frame), multiplier=multiplier, delta=1e-6, n_bins=16,
    )  # fmt: skip


def pairs(constraint_names=("code", "group")):
    return FixedCombinations(constraint_names, list(GROUP_OF.items()))


@pytest.mark.parametrize("law", [LAW, pairs()])
def test_no_shared_cell_has_levels_of_two_groups(law):
    nested = fitted(table(), 10.0, 0, law)
    codec = nested.codecs[nested.place("code")]
    by_cell = pd.Series([GROUP_OF[code] for code in CODES]).groupby(codec.level_cells)
    assert (by_cell.nunique() == 1).all()
    assert by_cell.size().max() > 2  # there are shared cells, and one of each group
    assert by_cell.size().gt(1).sum() == N_GROUPS
    plain = fitted(table(), 10.0, 0)
    free = plain.codecs[plain.place("code")]
    assert pd.Series(free.level_cells).value_counts().gt(1).sum() == 1


@pytest.mark.parametrize("law", [LAW, pairs()])
def test_cells_allow_what_is_listed(law):
    (nesting,) = fitted(table(), 10.0, 0, law).nestings
    assert (nesting.name, nesting.within) == ("code", "group")
    assert (nesting.allowed.sum(0) == 1).all()


def test_what_is_not_listed_goes_with_any_group_or_with_none():
    partly = dict(list(GROUP_OF.items())[:2])
    (nesting,) = fitted(table(), 0.0, 0, Determines(["code"], "group", partly)).nestings
    assert nesting.allowed[:, 2:].all()
    assert (nesting.allowed[:, :2].sum(0) == 1).all()
    listed = FixedCombinations(["code", "group"], list(partly.items()))
    (nesting,) = fitted(table(), 0.0, 0, listed).nestings
    assert not nesting.allowed[:, 2:].any()


def test_missing_values_are_levels_too():
    frame = table()
    frame.loc[:200, "group"] = None
    frame.loc[:200, "code"] = None
    listed = FixedCombinations(["code", "group"], [*GROUP_OF.items(), (None, None)])
    (nesting,) = fitted(frame, 0.0, 0, listed).nestings
    assert nesting.allowed[-1].tolist() == [False] * N_CODES + [True]
    assert not nesting.allowed[:-1, -1].any()


def test_groups_come_first_and_circles_do_not_turn():
    frame = table().assign(block=lambda f: f["code"])
    chain = Determines(["code"], "block", {c: c for c in CODES})
    above = Determines(["block"], "group", GROUP_OF)
    back = Determines(["group"], "code", {"g0": "c0"})
    whole = schema(chain, above, back).resolve(frame)
    rules = nesting_rules(whole)
    assert {(r.name, r.within) for r in rules.values()} == {
        ("code", "block"), ("block", "group"),
    }  # fmt: skip
    order = [column.name for column in groups_first(whole).columns]
    assert order.index("group") < order.index("block") < order.index("code")
    assert sorted(order) == sorted(frame.columns)


def test_numbers_and_several_names_are_not_nested():
    frame = table()
    several = Determines(["code", "flag"], "group", {("c0", "no"): "g0"})
    numbers = Determines(["age"], "group", {30: "g0"})
    assert not nesting_rules(schema(several, numbers).resolve(frame))


def test_a_factor_rules_out_pairs_but_never_all_cells():
    allowed = torch.tensor([[True, False], [False, False]])
    factor = TableFactor.of_pairs((0, 1), allowed)
    shares = factor(torch.tensor([[0, 0], [1, 0]])).softmax(1)
    torch.testing.assert_close(shares, torch.tensor([[1.0, 0.0], [0.5, 0.5]]))


@pytest.fixture(scope="module")
def synthesizer():
    fit = DPHFlowSynthesizer(
        epsilon=3.0, schema=schema(LAW), noise="reproducible", random_state=0
    )
    return fit.fit(table())


def test_levels_lie_in_their_groups_and_groups_are_as_they_were(synthesizer, tmp_path):
    frame = table()
    drawn = synthesizer.sample(3000, random_state=0)
    assert (drawn["code"].map(GROUP_OF).astype(str) == drawn["group"].astype(str)).all()
    shares = [each["group"].value_counts(normalize=True) for each in (frame, drawn)]
    assert (shares[0] - shares[1]).abs().sum() / 2 < 0.02
    ages = [
        each.groupby("group", observed=True)["age"].mean() for each in (frame, drawn)
    ]
    assert (ages[0] - ages[1]).abs().max() < 5
    synthesizer.save(tmp_path / "model.dpg")
    again = load(tmp_path / "model.dpg").sample(3000, random_state=0)
    pd.testing.assert_frame_equal(drawn, again)


def test_conditions_hold_on_either_side(synthesizer):
    drawn = synthesizer.sample(200, given={"group": "g2"}, random_state=0)
    assert set(drawn["code"].map(GROUP_OF)) == {"g2"}
    drawn = synthesizer.sample(200, given={"code": "c3"}, random_state=0)
    assert set(drawn["group"]) == {"g3"}


def test_log_densities_rule_out_what_cannot_be(synthesizer):
    rows = table().head(50)
    wrong = rows.assign(group=np.roll(rows["group"].cat.codes, 1))
    wrong["group"] = pd.Categorical.from_codes(
        (rows["group"].cat.codes + 1) % N_GROUPS, GROUPS
    )
    gap = synthesizer.score_samples(rows) - synthesizer.score_samples(wrong)
    assert (gap > 20).all()
