"""Select, measure, correct: what the model shows after tables were counted."""

from __future__ import annotations

import functools
import pickle
from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
    load,
)
from dpgenerative.fitting import workload
from dpgenerative.fitting.workload import (
    MOST_LARGER,
    MOST_TABLES,
    PAIR_SIZES,
    SIZES,
)
from dpgenerative.models import factors
from dpgenerative.models.cells import RAKING_ROWS, CellFacts
from dpgenerative.models.factors import CountedTable, grouping, scales_of
from dpgenerative.models.hflow import HFlow
from dpgenerative.privacy.tables import TABLES, Comparison
from dpgenerative.synthesizers.latents import TUNING
from tests.test_flow import (
    all_codes,
    cell_probabilities,
    facts_of,
    make_flow,
    marginals,
)

BITS = [facts_of([0.5, 0.5]) for _ in range(4)]
PLAIN = (True, 1, "none", "uniform", 8)


def xor(n=6000, seed=0):
    """Return bits of which the first three add up to the label, modulo 2."""
    bits = np.random.default_rng(seed).integers(0, 2, (n, 5))
    frame = pd.DataFrame(bits, columns=list("abcde"))
    frame["y"] = frame.a ^ frame.b ^ frame.c
    return frame.astype(pd.CategoricalDtype([0, 1]))


def obeyed(frame):
    bits = frame.astype(int)
    return (bits.a ^ bits.b ^ bits.c == bits.y).mean()


@functools.cache
def fitted(kind=DPHFlowSynthesizer, **params):
    params = {"epsilon": 3.0, "n_steps": 60, "random_state": 0, **params}
    if params.pop("asks", False):
        params["workload"] = [("d", "e")]
    return kind().set_params(**params).fit(xor())


KINDS = pytest.mark.parametrize("kind", [DPHFlowSynthesizer, DPVAESynthesizer])


# Whole fits ---------------------------------------------------------------------------


@pytest.mark.thin(2)
@KINDS
def test_what_gradients_do_not_see_is_found_and_said(kind):
    synthesizer = fitted(kind)
    assert ("y", "a", "b", "c") in synthesizer.tables_
    assert "y x a x b x c" in str(synthesizer.privacy_)
    assert obeyed(synthesizer.sample(4000, random_state=0)) > 0.9
    units = {"architecture__hidden_units": 0} if kind is DPHFlowSynthesizer else {}
    without = fitted(kind, architecture__table_budget=0.0, **units)
    assert without.tables_ == []
    assert "counts of the tables" not in str(without.privacy_)
    assert obeyed(without.sample(4000, random_state=0)) < 0.6


@KINDS
@pytest.mark.parametrize(
    "given", [{"y": 1}, {"a": 0, "y": 1}, {"b": 1, "c": 1, "a": 0}]
)
def test_given_columns_and_found_tables_agree(kind, given):
    drawn = fitted(kind).sample(2000, given=given, random_state=0)
    assert all((drawn[name] == value).all() for name, value in given.items())
    assert obeyed(drawn) > 0.9


@KINDS
def test_the_density_is_that_of_the_rows_drawn(kind):
    synthesizer = fitted(kind)
    cells = pd.DataFrame(list(product([0, 1], repeat=6)), columns=list("abcdey"))
    draws = {"n_draws": 4000} if kind is DPVAESynthesizer else {}
    cells = cells.astype(xor(1).dtypes.to_dict())
    density = np.exp(synthesizer.score_samples(cells, **draws))
    within = 0.02 if draws else 1e-5  # an importance-weighted bound
    assert density.sum() == pytest.approx(1, abs=within)
    drawn = synthesizer.sample(2**16, random_state=0).astype(int)
    shares = drawn.value_counts(normalize=True).reindex(
        pd.MultiIndex.from_frame(cells.astype(int)), fill_value=0
    )
    assert 0.5 * np.abs(shares.to_numpy() - density).sum() < max(0.01, within)


@KINDS
def test_files_and_pickles_keep_what_was_found(tmp_path, kind):
    asks = kind is DPHFlowSynthesizer
    synthesizer = fitted(kind, **({"asks": True} if asks else {}))
    synthesizer.save(tmp_path / "model.dpg")
    rows = synthesizer.sample(500, random_state=1)
    for copy in (
        load(tmp_path / "model.dpg"),
        pickle.loads(pickle.dumps(synthesizer)),
    ):
        assert copy.tables_ == synthesizer.tables_ != []
        if asks:
            assert list(map(tuple, copy.workload)) == [("d", "e")]
        pd.testing.assert_frame_equal(copy.sample(500, random_state=1), rows)
        assert np.array_equal(
            copy.score_samples(xor(9)), synthesizer.score_samples(xor(9))
        )


def test_the_ledger_of_an_autoencoder_has_its_tables():
    synthesizer = DPVAESynthesizer(n_steps=2).fit(xor(4000))
    assert np.isfinite(synthesizer.privacy_.plan.multiplier(TABLES))
    stated = synthesizer.set_params(architecture__table_budget=0.0).fit(xor(4000))
    assert np.isinf(stated.privacy_.plan.multiplier(TABLES))


@pytest.mark.thorough
def test_an_autoencoder_chooses_among_more_pairs(monkeypatch):
    choose, numbers = Comparison.choose, []

    def noted(self, wanted, among):
        numbers.append(len(among))
        return choose(self, wanted, among)

    monkeypatch.setattr(Comparison, "choose", noted)
    bits = np.random.default_rng(0).integers(0, 2, (500, TUNING.pairs + 1)) > 0
    for kind in (DPHFlowSynthesizer, DPVAESynthesizer):
        synthesizer = kind(n_steps=1).set_params(architecture__table_budget=0.3)
        synthesizer.fit(pd.DataFrame(bits).add_prefix("b"))
    assert numbers == [MOST_TABLES + MOST_LARGER, TUNING.pairs + MOST_LARGER]


def test_tables_with_cuts_are_compared_as_one_table_is_counted(monkeypatch):
    # In more groups than are counted, a large table costs more than it shows.
    released, compared = [], []

    def replace(self, place, candidate, own=Comparison.replace):
        compared.append(candidate.table)
        own(self, place, candidate)

    def counted(codes, tables, *rest, own=workload.release_counts):
        released.extend(tables)
        return own(codes, tables, *rest)

    monkeypatch.setattr(Comparison, "replace", replace)
    monkeypatch.setattr(workload, "release_counts", counted)
    for name in ("POOL", "RAKED"):
        monkeypatch.setattr(workload, name, 2**14)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(-1, 1, (20_000, 6)), columns=list("abcdef"))
    frame["odd"] = (frame > -0.4).sum(axis=1) % 2 == 1
    numbers = [Column(name, "continuous", lower=-1, upper=1) for name in "abcdef"]
    schema = Schema([*numbers, Column("odd", "boolean")])
    DPHFlowSynthesizer(2.0, schema=schema, n_steps=1, random_state=0).fit(frame)
    whole = [table for table in released if len(table.columns) == 7]
    assert [table.shape for table in whole] == [(2,) * 7]
    assert (2,) * 7 in [table.shape for table in compared]


def test_fewer_rows_are_drawn_of_more_columns(monkeypatch):
    sizes, sample = [], HFlow.sample

    def noted(self, n, *args, **kwargs):
        sizes.append(n)
        return sample(self, n, *args, **kwargs)

    monkeypatch.setattr(HFlow, "sample", noted)
    monkeypatch.setattr(workload, "CELLS_DRAWN", 1200)
    DPHFlowSynthesizer(3.0, n_steps=1, random_state=0).fit(xor())
    # To rake; to compare tables, to correct them, and to correct classes.
    assert sizes == [RAKING_ROWS, 200, 200, 200]


@pytest.mark.thorough
def test_tables_asked_for_are_counted_in_any_case():
    synthesizer = fitted(asks=True)
    assert synthesizer.tables_[0] == ("d", "e")
    assert "d x e" in str(synthesizer.privacy_)
    # Even where nothing is compared, for want of rows.
    few = DPHFlowSynthesizer(workload=[["y", "a"]], n_steps=2).fit(xor(60))
    assert few.tables_[0] == ("y", "a")
    assert np.isfinite(few.privacy_.plan.multiplier(TABLES))


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "params",
    [
        {"epsilon": None},
        {"architecture__n_blocks": 2},
        {"architecture__linear": "lu"},
        {"architecture__anchored": False},
    ],
)
def test_nothing_is_counted_without_privacy_or_by_the_paper_s_blocks(params):
    synthesizer = DPHFlowSynthesizer(workload=[("a", "y")], n_steps=2)
    synthesizer.set_params(**params).fit(xor(500))
    assert synthesizer.tables_ == []


@pytest.mark.parametrize(
    "workload",
    [
        "ab", None, ["ab"], [("a",)], [("a", "a")], [{"a", "b"}], [("a", ["b"])],
        [tuple("abcdefgy")], [("a", (["b"],))],
    ],
)  # fmt: skip
def test_a_workload_is_a_list_of_lists_of_names(workload):
    with pytest.raises(ValueError, match=r"'workload'.*2 to 7 different column"):
        DPHFlowSynthesizer(workload=workload).fit(xor(20))


def test_names_of_a_workload_are_those_of_learned_columns():
    frame = xor(20).assign(id=range(20))
    schema = Schema([Column("id", "integer", role="id")])
    for name in ("typo", "id"):
        with pytest.raises(ValueError, match="must name columns that are learned"):
            DPHFlowSynthesizer(workload=[("a", name)], schema=schema).fit(frame)


# The correction -----------------------------------------------------------------------


def table_of(facts, columns, probabilities, sizes, std=1e-6, seed=None):
    """Return the counts that rows of these probabilities would have, with noise."""
    scales = scales_of([facts[j] for j in columns], sizes, [None] * len(sizes))
    shares = torch.zeros([int(g.max()) + 1 for g in scales[-1]], dtype=torch.float64)
    codes = all_codes(facts)
    keys = tuple(g[codes[:, j]] for g, j in zip(scales[-1], columns, strict=True))
    shares.index_put_(keys, probabilities.double(), accumulate=True)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        shares += std * torch.randn(shares.shape, generator=generator)
    return CountedTable(columns, scales, shares.float(), std)


def tvd(first, second):
    return 0.5 * (first.double() - second.double()).abs().sum().item()


def corrected(model, *tables, seed=0):
    model.correct(2**14, torch.Generator().manual_seed(seed), tables)
    return model


def test_exact_counts_are_met():
    model = make_flow(BITS, PLAIN, scale=0.3)
    codes = all_codes(BITS)
    odd = codes[:, [0, 2, 3]].sum(1) % 2
    wanted = torch.where(odd == 1, 0.95, 0.05).double() / 8
    corrected(model, table_of(BITS, (0, 2, 3), wanted, [2, 2, 2]))
    found = cell_probabilities(model, BITS)
    shares = [p[odd == 1].sum().item() for p in (found, wanted)]
    assert shares[0] == pytest.approx(shares[1], abs=0.01)
    assert found.sum().item() == pytest.approx(1)
    for p in marginals(BITS, found):
        assert p.tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert model.counted == [(0, 2, 3)]
    assert {factor.columns for factor in model.factors} <= {(0, 2), (0, 2, 3)}


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_pull_one_column_both_ways_are_met_in_turns(seed):
    facts, pairs = BITS[:3], [(0, 1), (0, 2), (1, 2)]
    codes = all_codes(facts)
    a, b, c = codes.T
    wanted = torch.where(a == b, 0.35, 0.15).double()
    wanted *= torch.where(c == 1, 0.1 + 0.4 * (a + b), 0.9 - 0.4 * (a + b))
    tables = [table_of(facts, pair, wanted, [2, 2]) for pair in pairs]
    model = corrected(make_flow(facts, PLAIN), *tables, seed=seed)
    found = cell_probabilities(model, facts)
    for i, j in pairs:
        cells = 2 * codes[:, i] + codes[:, j]
        sums = [torch.bincount(cells, p) for p in (found, wanted)]
        assert tvd(*sums) < 0.002  # 0.02 with the first of them met once


def ridge(k=12, missing=0.1):
    """Return two ordered columns with 'missing', and a joint distribution of them."""
    masses = [(1 - missing) / k] * k + [missing]
    facts = [facts_of(masses, ordered=True, nullable=True) for _ in range(2)]
    codes = all_codes(facts)
    distance = (codes[:, 0] - codes[:, 1]).abs()
    is_missing = codes == k
    joint = torch.where(distance <= 1, 1.0, 0.1).double()
    joint[is_missing.any(1)] = 0
    joint[is_missing.all(1)] = 1
    for _ in range(50):  # to its marginals
        for j in range(2):
            shape = [k + 1, k + 1]
            sums = joint.view(shape).sum(1 - j)
            joint *= (facts[j].masses / sums)[codes[:, j]]
    return facts, joint


def test_counts_of_ordered_columns_are_met_from_coarse_to_fine():
    facts, joint = ridge()
    model = make_flow(facts, PLAIN)
    before = tvd(cell_probabilities(model, facts), joint)
    corrected(model, table_of(facts, (0, 1), joint, [12, 12]))
    assert before > 0.3
    assert tvd(cell_probabilities(model, facts), joint) < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_where_the_model_is_right_noise_moves_it_little(seed):
    facts, joint = ridge()
    model = make_flow(facts, PLAIN)  # of independent columns
    right = cell_probabilities(model, facts)
    noisy = table_of(facts, (0, 1), right, [12, 12], std=3e-3, seed=seed)
    noise = 0.5 * 3e-3 * noisy.shares.numel() * 0.8
    corrected(model, noisy)
    assert tvd(cell_probabilities(model, facts), right) < 0.25 * noise
    # The same noise on counts of another truth is worth it.
    noisy = table_of(facts, (0, 1), joint, [12, 12], std=3e-3, seed=seed)
    model = corrected(make_flow(facts, PLAIN), noisy)
    assert tvd(cell_probabilities(model, facts), joint) < 0.6 * tvd(right, joint)


def noisy(truth, std, seed):
    """Return noisy shares, masses of a model of independent columns, and variances."""
    generator = torch.Generator().manual_seed(seed)
    masses = truth.sum(1, keepdim=True) * truth.sum(0, keepdim=True)
    shares = truth + std * torch.randn(truth.shape, generator=generator)
    return shares, masses, torch.full_like(truth, std**2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("k", "std"), [(4, 5e-3), (8, 2e-3), (20, 1e-4), (20, 1e-3), (40, 5e-4)]
)
def test_cells_that_no_row_can_be_in_are_expected_empty(k, std, seed):
    # One column decides on the other; a model of independent columns is far off.
    truth = torch.eye(k) / k
    shares, masses, noise = noisy(truth, std, seed)
    expected = factors._posterior_means(shares, masses, noise)
    impossible = truth == 0
    assert expected[impossible].clamp(min=0).sum() <= 0.01
    assert expected.sum().item() == pytest.approx(1, abs=0.05)
    assert (expected - truth)[~impossible].abs().sum() < 0.05


@pytest.mark.parametrize("seed", range(3))
def test_factors_of_impossible_cells_vanish(seed):
    k, std = 8, 2e-3
    facts = [facts_of([1 / k] * k) for _ in range(2)]
    codes = all_codes(facts)
    is_possible = codes[:, 0] == codes[:, 1]
    table = table_of(facts, (0, 1), is_possible / k, [k, k], std, seed)
    found = cell_probabilities(corrected(make_flow(facts, PLAIN), table), facts)
    assert found[~is_possible].sum() < 0.01  # 7 of 8, of independent columns


@pytest.mark.parametrize("seed", range(3))
def test_counts_that_are_noise_leave_the_masses_as_they_are(seed):
    generator = torch.Generator().manual_seed(seed)
    masses = torch.rand(20, 20, generator=generator) + 0.1
    masses /= masses.sum()
    noise = torch.ones_like(masses)  # of standard deviation 1, for masses of 1 in all
    agreeing = factors._posterior_means(masses, masses, noise)
    torch.testing.assert_close(agreeing, masses, rtol=5e-3, atol=0)
    signs = (torch.rand(20, 20, generator=generator) - 0.5).sign()
    expected = factors._posterior_means(masses + signs, masses, noise)
    assert (expected - masses).abs().max() < masses.max()
    assert expected.sum().item() == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("seed", range(3))
def test_counts_with_hardly_any_noise_are_met(seed):
    generator = torch.Generator().manual_seed(seed)
    truth = torch.rand(20, 20, generator=generator).square()
    truth /= truth.sum()
    shares, masses, noise = noisy(truth, 1e-6, seed)
    expected = factors._posterior_means(shares, masses, noise)
    assert (expected - shares).abs().sum() < 1e-3
    assert expected.sum().item() == pytest.approx(shares.sum().item(), abs=1e-3)
    # A model of no row in most cells has no say in them.
    masses[1:] = 0
    expected = factors._posterior_means(shares, masses, noise)
    assert expected.isfinite().all()


def test_same_generator_gives_the_same_factors():
    facts, joint = ridge()
    table = table_of(facts, (0, 1), joint, [12, 12], std=1e-3, seed=0)
    one, other = (corrected(make_flow(facts, PLAIN), table) for _ in range(2))
    assert len(one.factors) == len(other.factors) > 0
    for a, b in zip(one.factors, other.factors, strict=True):
        assert torch.equal(a.offsets, b.offsets)


# Groups of cells ----------------------------------------------------------------------

COLUMNS = st.builds(
    lambda masses, ordered, nullable: CellFacts(
        torch.tensor(masses) / sum(masses), ordered, nullable,
        torch.zeros(len(masses), dtype=torch.bool),
    ),
    st.lists(st.floats(1e-6, 1), min_size=1, max_size=30), st.booleans(), st.booleans(),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(COLUMNS, st.integers(1, 16))
def test_every_cell_has_a_group(facts, n):
    groups, k = grouping(facts, n), len(facts.masses)
    assert groups.shape == (k,)
    assert set(groups.tolist()) == set(range(int(groups.max()) + 1))
    alone = facts.ordered and facts.nullable
    assert int(groups.max()) + 1 <= min(k, n + alone)
    if facts.ordered:
        assert groups.tolist() == sorted(groups.tolist())
    elif k > n:
        joined = facts.masses[groups == groups.max()]
        apart = facts.masses[groups < groups.max()]
        assert not len(apart) or apart.min() >= joined.max()
    if alone and k > 1:
        assert (groups == groups[-1]).sum() == 1


@pytest.mark.parametrize("place", [0, 7, 20])
def test_a_heavy_cell_leaves_half_of_the_groups_to_all_others(place):
    masses = torch.full((21,), 0.005)
    masses[place] = 0.9
    groups = grouping(CellFacts(masses, True, False, torch.zeros(21).bool()), 8)
    assert (groups == groups[place]).sum() == 1
    assert 5 <= len(groups.unique()) <= 6


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(COLUMNS, st.sampled_from(SIZES + PAIR_SIZES),
                          st.integers(0, 40)), min_size=2, max_size=3))  # fmt: skip
def test_scales_are_nested(columns):
    facts, wanted, places = zip(*columns, strict=True)
    sizes = [min(n, len(f.masses)) for f, n in zip(facts, wanted, strict=True)]
    cuts = [
        place if 0 < place < len(fact.masses) - fact.nullable and n in SIZES else None
        for fact, place, n in zip(facts, places, wanted, strict=True)
    ]
    scales = scales_of(facts, sizes, cuts)
    parts = zip(facts, sizes, cuts, scales[-1], strict=True)
    for fact, size, cut, group in parts:
        assert torch.equal(group, grouping(fact, size, cut))
    for coarse, fine in pairwise(scales):
        for a, b in zip(coarse, fine, strict=True):
            pairs = set(zip(b.tolist(), a.tolist(), strict=True))
            assert len(pairs) == int(b.max()) + 1
    for fact, cut, group in zip(facts, cuts, scales[0], strict=True):
        if cut is not None and fact.ordered:
            assert group[cut - 1] < group[cut]


@settings(max_examples=200, deadline=None)
@given(COLUMNS, st.sampled_from(SIZES), st.integers(1, 40))
def test_groups_do_not_cross_a_cut(facts, n, cut):
    groups, k = grouping(facts, n, cut), len(facts.masses)
    assert set(groups.tolist()) == set(range(int(groups.max()) + 1))
    if facts.ordered and cut < k - facts.nullable:
        assert groups.tolist() == sorted(groups.tolist())
        assert groups[cut - 1] < groups[cut]
        assert int(groups.max()) + 1 <= min(k, n + facts.nullable)


@pytest.mark.parametrize(
    ("place", "sizes"),
    [(50, [25, 25, 25, 25]), (30, [30, 24, 23, 23]), (70, [24, 23, 23, 30]),
     (5, [5, 32, 32, 31]), (95, [32, 32, 31, 5])],
)  # fmt: skip
def test_both_sides_of_a_cut_have_groups_by_their_mass(place, sizes):
    uniform = CellFacts(torch.full((100,), 0.01), True, False, torch.zeros(100).bool())
    counts = torch.bincount(grouping(uniform, 4, place))
    assert sorted(counts.tolist()) == sorted(sizes)
    assert torch.bincount(grouping(uniform, 2, place)).tolist() == [place, 100 - place]
