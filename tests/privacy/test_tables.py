"""Counted tables: how far one row moves them, what they cost, that nothing else leaks.

Scores are sums of distances to public whole numbers, and what a table shows is one less
others. Choices by it, its release and that of counts must have the sensitivity of the
worst neighbours, exactly.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.exceptions import LedgerError
from dpgenerative.fitting import workload
from dpgenerative.fitting.workload import Measurement
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.factors import grouping
from dpgenerative.privacy import tables as privacy
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.tables import (
    CHOICE_SHARE,
    CUT_SHARE,
    MOST_CUTS,
    NEWS_SHARE,
    TABLES,
    Candidate,
    Comparison,
    Table,
    all_counts,
    count_multiplier,
    halves,
    news,
    share_of_choices,
)
from dpgenerative.tables.private import Private, opened
from tests.plans import make_plan
from tests.privacy import test_replay as replay

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

D, CELLS, N = 4, 5, 60


def plan_of(n, **changes):
    facts = {
        "epsilon": 1.0, "delta": 1e-5, "n_rows": n, "sampling_rate": 1.0,
        "n_steps": 5, "marginal_budget": 0.2, "has_open_keys": False,
        "table_budget": 0.4,
    }  # fmt: skip
    return make_plan(**{**facts, **changes})


PLAN = plan_of(N)
SHARE = share_of_choices(True)


def multiplier(share):
    """Return that of a release that has a share of the tables' budget."""
    return PLAN.multiplier(TABLES) / math.sqrt(share)


def facts(k=CELLS, ordered=False, nullable=False, are_places=False):
    masses, atoms = torch.full((k,), 1 / k), torch.zeros(k).bool()
    return CellFacts(masses, ordered, nullable, atoms, are_places)


def tables(groups=3):
    """Return tables of two to four columns, coarse and fine."""
    coarse, fine = grouping(facts(), groups).numpy(), np.arange(CELLS)
    return [
        Table((0, 1), (coarse, coarse)),
        Table((1, 3), (fine, coarse)),
        Table((0, 1, 2), (coarse, fine, coarse)),
        Table((0, 1, 2, 3), (fine, fine, coarse, coarse)),
    ]


class Door(Mechanisms):
    """Notes what is handed in: of Gaussian releases, and of choices."""

    def __init__(self):
        super().__init__(np.random.default_rng(0), np.random.default_rng(0))
        self.asked, self.chosen = [], []

    def gaussian(self, values, std, **stated):
        self.asked.append((opened(values), std, stated))
        return super().gaussian(values, std, **stated)

    def choose(self, scores, multiplier, **stated):
        self.chosen.append((opened(scores), multiplier, stated))
        return super().choose(scores, multiplier, **stated)


def candidates(expected, chance=0):
    pairs = zip(tables(), expected, strict=True)
    return [Candidate(table, numbers, chance) for table, numbers in pairs]


def compared(codes, some, wanted, among, door):
    """Choose tables; return what was released of them."""
    comparison = Comparison(Private(codes), some, PLAN, door)
    return comparison.release(comparison.choose(wanted, among))


def exact_news(codes, expected, door=None):
    """Return what the first choice is made of, and how it is made."""
    door = door or Door()
    compared(codes, candidates(expected), [], [range(4)] * 2, door)
    return door.chosen[0]


def exact_counts(codes, chosen=None):
    door = Door()
    privacy.release_counts(Private(codes), chosen or tables(), SHARE, PLAN, door)
    return door.asked[0]


def neighbours(codes, seed):
    """Yield tables with a row removed, and with a row added (a new one, a copy)."""
    rng = np.random.default_rng(seed)
    if len(codes):
        yield np.delete(codes, rng.integers(len(codes)), axis=0)
        yield np.concatenate([codes, codes[:1]])
    yield np.concatenate([codes, rng.integers(0, CELLS, (1, D), dtype=codes.dtype)])


EXPECTED = {
    "nothing": lambda counts, rng: np.zeros_like(counts),
    "everything": lambda counts, rng: np.full_like(counts, 2**40),
    "the rows": lambda counts, rng: counts,
    "next to the rows": lambda counts, rng: counts + rng.integers(-1, 2, counts.shape),
    "anything": lambda counts, rng: rng.integers(0, 10**6, counts.shape),
    # One row moves the score of a pair down, and that of a larger table up.
    "of pairs": lambda counts, rng: np.full_like(counts, 2**40 * (counts.ndim < 3)),
}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64"])
@pytest.mark.parametrize("what", EXPECTED)
@pytest.mark.parametrize("n", [0, 1, 2, N])
def test_one_row_moves_what_a_table_shows_by_two_at_most(what, n, dtype):
    rng = np.random.default_rng(n)
    codes = rng.integers(0, CELLS, (n, D)).astype(dtype)
    expected = [EXPECTED[what](all_counts([t], codes)[0], rng) for t in tables()]
    values, by_choice, stated = exact_news(codes, expected)
    assert values.dtype.kind == "i"  # nothing is rounded
    assert stated == {"release": "tables", "sensitivity": 2}
    assert by_choice == pytest.approx(multiplier(CHOICE_SHARE) * math.sqrt(2))
    assert (values[:2] % 2 == 0).all()  # those of pairs, which a row moves by 1
    for other in neighbours(codes, n):
        moved = np.abs(exact_news(other, expected)[0] - values)
        assert (moved <= 2).all()
        if what in ("nothing", "everything", "the rows", "of pairs"):
            assert (moved[:2] == 2).all()
        if what == "of pairs":
            assert (moved == 2).all()


@pytest.mark.parametrize("n", [0, 1, 2, N])
def test_one_row_moves_the_news_of_those_chosen_by_two_each(n):
    codes = np.random.default_rng(n).integers(0, CELLS, (n, D))
    counts = all_counts(tables(), codes)
    expected = [EXPECTED["of pairs"](each, None) for each in counts]

    def released(rows, wanted, among):
        door, some = Door(), candidates(expected)
        compared(rows, some, wanted, among, door)
        return door.asked

    every, apart = range(4), [(0, 1), (0, 1), (2, 3), (2, 3)]
    for wanted, among in (
        ([], [every] * 4), ([], apart), ([2], [every] * 3), ([3, 0], [(1,), (2,)]),
        ([0, 1, 2, 3], []),
    ):  # fmt: skip
        ((values, std, stated),) = released(codes, wanted, among)
        assert values.dtype.kind == "i"
        assert stated == {"release": "tables", "sensitivity": 4.0}  # of 4 tables
        assert std == pytest.approx(multiplier(NEWS_SHARE) * 4)
        for other in neighbours(codes, n):
            ((again, *_),) = released(other, wanted, among)
            # The order may differ: of these, every number is moved by 2.
            assert np.abs(np.sort(again) - np.sort(values)).max() <= 2
            if not among:
                assert np.linalg.norm(again - values) == pytest.approx(4)


@pytest.mark.parametrize("n_groups", [CELLS, CELLS - 1])  # all, or but for 'missing'
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("what", EXPECTED)
@pytest.mark.parametrize("n", [0, 1, 2, N])
def test_one_row_moves_the_score_of_a_cut_by_one_at_most(what, n, axis, n_groups):
    rng, fine = np.random.default_rng(n), np.arange(CELLS)
    codes, table = rng.integers(0, CELLS, (n, D)), Table((0, 1, 3), (fine,) * 3)
    (counts,) = all_counts([table], codes)
    expected = EXPECTED[what](halves(counts, axis, n_groups), rng)
    chances = rng.integers(-30, 30, n_groups - 1)

    def scores(rows):
        door = Door()
        comparison = Comparison(Private(rows), candidates([counts] * 4), PLAN, door)
        comparison.cut(table, axis, expected, chances)
        ((values, by_cut, stated),) = door.chosen
        assert values.dtype.kind == "i"
        assert stated == {"release": "tables", "sensitivity": 1}
        assert by_cut == pytest.approx(multiplier(CUT_SHARE) * math.sqrt(MOST_CUTS))
        return values

    for other in neighbours(codes, n):
        moved = np.abs(scores(other) - scores(codes))
        assert (moved <= 1).all()
        if what in ("nothing", "everything", "the rows") and n_groups == CELLS:
            assert (moved == 1).all()


def test_the_score_of_a_cut_is_that_of_the_table_of_both_sides():
    rng, fine = np.random.default_rng(0), np.arange(CELLS)
    codes, table = rng.integers(0, CELLS, (N, D)), Table((0, 1, 3), (fine,) * 3)
    (counts,), n_groups = all_counts([table], codes), CELLS
    both = halves(counts, 1, n_groups)
    for last in range(n_groups - 1):
        cut = Table((0, 1, 3), (fine, (fine > last).astype(int), fine))
        (expected,) = all_counts([cut], codes)
        assert np.array_equal(both[:, last], np.moveaxis(expected, 1, 0).reshape(2, -1))


def test_what_a_table_shows_after_its_cut_moves_by_two_at_most():
    codes = np.random.default_rng(0).integers(0, CELLS, (N, D))
    some = candidates([np.full(t.shape, 2) for t in tables()], 3)
    other = Table((0, 1, 2), (np.array([0, 0, 0, 1, 1]),) * 3)

    def released(rows):
        door = Door()
        comparison = Comparison(Private(rows), some, PLAN, door)
        comparison.replace(2, Candidate(other, np.full((2, 2, 2), 4), 1))
        comparison.release([3, 2, 0])
        ((values, *_),) = door.asked
        return values

    exact = all_counts([*tables()[:2], other, tables()[3]], codes)
    expected = [Candidate(other, np.full((2, 2, 2), 4), 1) if i == 2 else each
                for i, each in enumerate(some)]  # fmt: skip
    shown = news(expected, exact) * [2, 2, 1, 1]
    assert released(codes).tolist() == shown[[3, 2, 0]].tolist()
    for rows in neighbours(codes, 0):
        assert np.abs(released(rows) - released(codes)).max() <= 2


NUMBERS = st.lists(st.integers(-3, 40), min_size=8, max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(NUMBERS, st.integers(-20, 20)), min_size=11, max_size=11),
       st.lists(st.integers(0, 7), max_size=12), st.integers(0, 7))  # fmt: skip
def test_news_is_what_no_part_shows(stated, rows, more):
    # Eight cells each, whatever the number of columns: parts are known by columns.
    families = [c for k in (2, 3, 4) for c in combinations(range(4), k)]
    some = [
        Candidate(Table(columns, ()), np.array(numbers), chance)
        for columns, (numbers, chance) in zip(families, stated, strict=True)
    ]

    def slow(counts):
        scores = {c.table.columns: int(np.abs(counts - c.expected).sum()) - c.chance
                  for c in some}  # fmt: skip
        return [
            score - max([0, *(s for part, s in scores.items() if set(part) < set(c))])
            for c, score in scores.items()
        ]

    counts = np.bincount(rows, minlength=8)
    found = news(some, [counts] * len(some))
    assert found.tolist() == slow(counts)
    moved = found - news(some, [counts + np.eye(8, dtype=int)[more]] * len(some))
    assert (np.abs(moved) <= [each.reach for each in some]).all()


@pytest.mark.parametrize("wanted", [[], [3], [2, 0]])
def test_news_comes_back_in_rows_with_the_noise_that_is_stated(wanted):
    codes = np.random.default_rng(0).integers(0, CELLS, (N, D))
    # Of 60 rows none is expected, but of those of pairs 10.
    expected = [np.zeros(table.shape, int) for table in tables()]
    for numbers in expected[:2]:
        numbers.flat[0] = 10
    exact = news(candidates(expected), all_counts(tables(), codes))

    class Shift(Door):
        def gaussian(self, values, std, **stated):
            super().gaussian(values, std, **stated)
            return opened(values) + std

    door, among = Shift(), [range(4)] * (4 - len(wanted))
    some = candidates(expected)
    found = compared(codes, some, wanted, among, door)
    assert list(found)[: len(wanted)] == wanted
    assert sorted(found) == [0, 1, 2, 3]
    ((_, std, _),) = door.asked
    for i, (value, noise) in found.items():
        assert noise == pytest.approx(std / (2 if i < 2 else 1))
        assert value == pytest.approx(exact[i] + noise)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 40), st.integers(1, CELLS))
def test_one_row_moves_counts_by_one_in_every_table(seed, n, groups):
    codes = np.random.default_rng(seed).integers(0, CELLS, (n, D))
    chosen = tables(groups)
    counts, std, stated = exact_counts(codes, chosen)
    assert counts.dtype.kind == "i"
    assert stated == {"release": "tables", "sensitivity": math.sqrt(len(chosen))}
    assert std == count_multiplier(PLAN, SHARE) * stated["sensitivity"]
    for other in neighbours(codes, seed):
        moved = exact_counts(other, chosen)[0] - counts
        assert np.abs(moved).sum() == len(chosen)
        assert np.linalg.norm(moved) == pytest.approx(stated["sensitivity"])


def test_tables_of_the_largest_shapes_count_every_row_in_its_cell():
    most = max(workload.SIZES) + 1  # and 'missing'
    n = max(workload.SCORED_GROUPS)
    largest = Table(tuple(range(n)), (np.arange(most),) * n)
    assert largest.keys(np.full((n, 1), most - 1, np.uint8)) == most**n - 1
    wide = Table((0, 1, 2), (np.arange(most),) * 3)
    last = most - 1
    codes = np.array([[last, last, last], [0, 0, 1], [last, 0, 0]], np.uint8)
    counts = all_counts([wide], codes)[0]
    assert counts.sum() == 3
    assert counts[last, last, last] == counts[0, 0, 1] == counts[last, 0, 0] == 1


# What it costs ------------------------------------------------------------------------


@pytest.mark.parametrize("has_cuts", [False, True])
def test_all_releases_cost_what_the_plan_says(has_cuts):
    share = share_of_choices(has_cuts)
    parts = [CHOICE_SHARE, NEWS_SHARE] + [CUT_SHARE] * has_cuts
    multipliers = [*map(multiplier, parts), count_multiplier(PLAN, share)]
    spent = sum(z**-2 for z in multipliers)
    assert spent == pytest.approx(PLAN.multiplier(TABLES) ** -2, rel=1e-12)
    assert count_multiplier(PLAN, 0.0) == PLAN.multiplier(TABLES)


def test_all_columns_of_the_tables_that_are_cut_have_a_share_each():
    assert workload.MOST_CUT * max(workload.SCORED_GROUPS) == MOST_CUTS


class Uniform:
    """A model of independent columns; notes the tables that it is given."""

    def __init__(self, sizes=(CELLS,) * D):
        self.sizes, self.given = sizes, []

    def pool(self, n, generator, clamped=None):
        columns = [torch.randint(k, (n,), generator=generator) for k in self.sizes]
        return torch.stack(columns, 1)

    def correct(self, n, generator, tables, clamped):
        self.given = tables


def measured(codes, wanted=(), plan=PLAN, door=None, column=None):
    """Run all of it on a model of its own; return what was counted, and the door."""
    columns = [column or facts(ordered=True)] * codes.shape[1]
    model, door = Uniform([len(each.masses) for each in columns]), door or Door()
    measurement = Measurement(columns, Private(codes), plan, door)
    measurement.correct(model, torch.Generator().manual_seed(0), list(wanted))
    return model.given, door


def planted(n, d=D, seed=0):
    """Return codes of which the first three columns decide each other."""
    codes = np.random.default_rng(seed).integers(0, CELLS, (n, d))
    codes[:, 2] = (codes[:, 0] + codes[:, 1]) % CELLS
    return codes


LARGER = [c for k in (3, 4) for c in combinations(range(4), k)]
KINDS = {
    "nominal": facts(),
    "ordered": facts(ordered=True),
    "of three": facts(3, ordered=True),
    "of two": facts(2, ordered=True),
    "nullable": facts(ordered=True, nullable=True),
    "of two, or missing": facts(3, ordered=True, nullable=True),
    "places": facts(are_places=True),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [[], [(0, 1), (1, 2, 3), (0, 1)], LARGER])
@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("n", [0, 1, 5000])
def test_no_more_is_released_than_planned(wanted, d, n, kind):
    wanted = [columns for columns in wanted if max(columns) < d]
    plan, column = plan_of(max(n, 1)), KINDS[kind]
    codes = planted(n, max(d, 3))[:, :d] % len(column.masses)
    found, door = measured(codes, wanted, plan, column=column)
    assert len(door.asked) <= 2
    n_candidates, n_pairs = 2**d - d - 1, d * (d - 1) // 2
    sizes = [len(columns) for columns in set(wanted)]
    n_larger = n_candidates - n_pairs - len(sizes) + sizes.count(2)
    n_choices = min(d, n_pairs - sizes.count(2)) + min(d, n_larger)
    is_choice = n_candidates > max(1, len(sizes))
    cuts = [stated for *_, stated in door.chosen if stated["sensitivity"] == 1]
    assert len(door.chosen) - len(cuts) == (n_choices if is_choice else 0)
    n_cut = min(2, n_larger) * is_choice * (not kind.startswith(("nom", "of two")))
    assert 3 * n_cut <= len(cuts) <= min(d, 4) * n_cut <= MOST_CUTS
    spent = door.ledger.total("tables")
    planned = plan.multiplier(TABLES) ** -2
    assert spent <= planned * (1 + 1e-12)
    asked = list(dict.fromkeys(wanted))
    assert [t.columns for t in found[: len(asked)]] == asked
    assert len({t.columns for t in found}) == len(found)
    if n == 5000 and d > 2 and len(column.masses) == CELLS:
        assert any(t.columns == (0, 1, 2) for t in found)
    if found:
        unused = CUT_SHARE * (1 - len(cuts) / MOST_CUTS) * bool(cuts)
        assert spent == pytest.approx(planned * (1 - unused))


def test_more_cuts_than_planned_are_refused():
    table, codes = Table((0, 1), (np.arange(CELLS),) * 2), np.zeros((3, D), int)
    some = candidates([np.zeros(each.shape, int) for each in tables()])
    comparison = Comparison(Private(codes), some, PLAN, Door())
    stated = table, 0, np.zeros((2, CELLS - 1, CELLS), int), np.zeros(CELLS - 1, int)
    for _ in range(MOST_CUTS):
        comparison.cut(*stated)
    with pytest.raises(LedgerError, match="More cuts"):
        comparison.cut(*stated)


def test_columns_are_cut_where_the_rows_say_and_counted_so():
    rng, n, k = np.random.default_rng(0), 20_000, 40
    codes = np.column_stack([np.zeros((n, 1), int), rng.integers(0, k, (n, 3))])
    codes[:, 0] = (codes[:, 1] >= 10) ^ (codes[:, 2] >= 24)
    columns = [facts(2)] + [facts(k, ordered=True)] * 3
    model, plan = Uniform((2, k, k, k)), plan_of(n, epsilon=50.0)
    measurement = Measurement(columns, Private(codes), plan, Door())
    measurement.correct(model, torch.Generator().manual_seed(0), [])
    (table,) = [each for each in model.given if each.columns == (0, 1, 2)]
    _, one, other = table.scales[0]
    assert one.tolist() == [0] * 10 + [1] * 30
    assert other.tolist() == [0] * 24 + [1] * 16
    groups = tuple(each.numpy() for each in table.scales[-1])
    (counts,) = all_counts([Table((0, 1, 2), groups)], codes)
    assert np.abs(table.shares.numpy() - counts / n).max() < 6 * table.std


def test_where_nothing_is_seen_half_of_the_cuts_are_at_the_median():
    n, k = 20_000, 40
    codes = np.random.default_rng(0).integers(0, k, (n, 3))
    columns, plan = [facts(k, ordered=True)] * 3, plan_of(n, epsilon=1e-3)
    pool = Uniform((k,) * 3).pool(2**17, torch.Generator().manual_seed(0)).numpy()
    door = Door()
    measurement = Measurement(columns, Private(codes), plan, door)
    cuts = []
    for _ in range(30):
        comparison = Comparison(Private(codes), [], plan, door)
        cuts += measurement._cut(comparison, (0, 1, 2), pool)
    assert 0.3 < np.mean(np.array(cuts) == 20) < 0.7
    assert len(set(cuts)) > 10
    # But for what chance makes, the others show nothing.
    by_chance = workload._by_chance(np.full(32, 1 / 32), n, len(pool))
    for scores, *_ in door.chosen:
        assert np.abs(np.delete(scores, 19)).max() < 0.4 * by_chance
        assert scores[19] > by_chance


@pytest.mark.parametrize("released", [4000, 5000, 6500])
def test_counts_are_divided_by_their_sum_whatever_was_released(released):
    (table, *rest), door = measured(planted(5000), plan=plan_of(released))
    noisy = door.asked[1][0]  # before its noise
    assert noisy[: table.shares.numel()].sum() == 5000
    assert float(table.shares.sum()) == pytest.approx(1)
    by_counts = count_multiplier(plan_of(released), SHARE)
    std = by_counts * math.sqrt(1 + len(rest))
    total = std / table.std
    assert abs(total - 5000) < 6 * std * math.sqrt(table.shares.numel())


class Frozen(Door):
    """Answers from what another door let out, where that is left."""

    def __init__(self, tape):
        super().__init__()
        self.tape = iter(tape)

    def gaussian(self, values, std, **stated):
        fresh = super().gaussian(values, std, **stated)
        return next(self.tape, fresh)

    def choose(self, scores, multiplier, **stated):
        fresh = super().choose(scores, multiplier, **stated)
        return next(self.tape, fresh)


def taped(codes, plan, wanted=()):
    """Return what was counted, and what choices and two releases let out."""
    tape = []

    class Recorder(Door):
        def gaussian(self, *args, **stated):
            tape.append(super().gaussian(*args, **stated))
            return tape[-1]

        def choose(self, *args, **stated):
            tape.append(super().choose(*args, **stated))
            return tape[-1]

    return measured(codes, wanted, plan, Recorder())[0], tape


def plain(value):
    """Return a value in a form that can be compared."""
    if isinstance(value, Candidate | Table):
        value = list(vars(value).values())
    if isinstance(value, list | tuple | range):
        return [plain(each) for each in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_what_is_compared_depends_on_released_numbers_alone():
    asked = []

    class Watched(Comparison):
        def __init__(self, codes, candidates, *rest):
            asked.append(plain(candidates))
            super().__init__(codes, candidates, *rest)

        def choose(self, *stated):
            asked.append(plain(stated))
            return super().choose(*stated)

        def cut(self, *stated):
            asked.append(plain(stated))
            return super().cut(*stated)

        def replace(self, *stated):
            asked.append(plain(stated))
            super().replace(*stated)

    plan = plan_of(5000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workload, "Comparison", Watched)
        _, tape = taped(planted(5000), plan, [(0, 3)])
        first, among = asked.copy(), [[0, 1, 3, 4, 5]] * D + [[6, 7, 8, 9, 10]] * D
        assert first[1] == [[2], among]  # pairs, and larger tables
        assert len(first) >= 2 + 2 * (3 + 1)
        for codes in (planted(4999), planted(0), planted(7000, seed=3)):
            asked.clear()
            measured(codes, [(0, 3)], plan, Frozen(tape))
            assert asked == first


def test_candidates_of_fewer_columns_come_first():
    facts_of_many = [facts()] * 70  # of more than 63 columns no triple is compared
    measurement = Measurement(facts_of_many, None, PLAN, None)
    wanted = [(0, 1, 2, 9), (1, 69), (1, 2, 9), (0, 1), (0, 1, 2, 9)]
    columns = [each.columns for each in measurement._candidates(wanted)]
    assert columns[-3:] == [(1, 69), (1, 2, 9), (0, 1, 2, 9)]
    assert len(set(columns)) == len(columns)


@pytest.mark.parametrize(("cells", "most"), [(0, 2), (900, 3), (2200, 4), (10**4, 5)])
def test_larger_tables_are_compared_while_their_cells_are_few(cells, most, monkeypatch):
    monkeypatch.setattr(workload, "MOST_COMPARED", cells)
    measurement = Measurement([facts(ordered=True)] * 5, None, PLAN, None)
    found = measurement._candidates([])
    assert {len(each.columns) for each in found} == set(range(2, most + 1))


@pytest.mark.parametrize("concentration", [0.02, 0.3, 5.0])
def test_chance_makes_the_score_that_is_expected_of_it(concentration):
    rng, n, pool = np.random.default_rng(0), 3000, 2**17
    shares = rng.dirichlet(np.full(400, concentration))
    counts = rng.multinomial(n, shares, size=200)
    seen = rng.multinomial(pool, shares, size=200) / pool
    scores = np.abs(counts - np.rint(n * seen)).sum(1)
    chance = [workload._by_chance(each, n, pool) for each in seen]
    assert np.mean(chance) == pytest.approx(scores.mean(), rel=0.12)


def test_a_pair_of_many_levels_of_like_size_is_found():
    # Groups of the commonest levels would keep few of them.
    k, n = 20, 8000
    codes = np.random.default_rng(0).integers(0, k, (n, 4))
    codes[: n // 4, 1] = (7 * codes[: n // 4, 0] + 3) % k
    model = Uniform((k,) * 4)
    measurement = Measurement([facts(k)] * 4, Private(codes), plan_of(n), Door())
    measurement.correct(model, torch.Generator().manual_seed(0), [])
    assert [table.columns for table in model.given] == [(0, 1)]


@pytest.mark.parametrize("n", [5001, 4000, 9, 0])
def test_scores_decide_by_what_was_released_of_them(n):
    # Frozen releases lead to the same tables, whatever the rows are.
    plan = plan_of(5000)
    first, tape = taped(planted(5000), plan)
    assert [type(each) for each in tape[-2:]] == [np.ndarray] * 2
    assert {type(each) for each in tape[:-2]} == {int}
    assert len(tape) >= 2 * D + 6 + 2  # with cuts of three columns or more each
    again, _ = measured(planted(n, seed=1), plan=plan, door=Frozen(tape))
    assert [t.columns for t in again] == [t.columns for t in first]
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.shares, other.shares)
        assert one.std == other.std


@pytest.mark.parametrize("seed", range(4))
def test_one_row_moves_what_is_counted_of_chosen_tables_by_one(seed):
    plan, codes = plan_of(300, epsilon=60.0), planted(300, seed=seed)
    first, tape = taped(codes, plan)
    assert first
    counted, *_ = measured(codes, plan=plan, door=Frozen(tape[:-1]))[1].asked[1]
    for other in neighbours(codes, seed):
        again, *_ = measured(other, plan=plan, door=Frozen(tape[:-1]))[1].asked[1]
        assert np.abs(again - counted).sum() == len(first)
        assert np.abs(again - counted).max() == 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("released", [300, 10**21])
def test_one_row_moves_every_choice_by_its_sensitivity_at_most(seed, released):
    plan, codes = plan_of(released, epsilon=60.0), planted(300, seed=seed)
    _, tape = taped(codes, plan)
    whole = choices(codes, plan, tape)
    assert len(whole[2 * D - 1][0]) == 5 - D + 1  # of tables of three and four columns
    assert {len(values) for values, *_ in whole[2 * D :]} == {CELLS - 1}  # cuts
    for other in neighbours(codes, seed):
        for (one, *stated), (again, *same) in zip(
            whole, choices(other, plan, tape), strict=True
        ):
            assert stated == same
            assert np.abs(again - one).max() <= same[1]["sensitivity"]


def choices(codes, plan, tape):
    return measured(codes, plan=plan, door=Frozen(tape))[1].chosen


# Whole fits ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tables", "workload", "tables of a person"])
def test_a_fit_spends_all_that_is_planned_for_tables(name):
    doors = []

    def door(streams):
        doors.append(Mechanisms(streams.counts, streams.gradients))
        return doors[-1]

    params = replay.CONFIGURATIONS[name]
    synthesizer, _, _ = replay.fit(replay.table(), door, **params)
    plan, ledger = synthesizer.privacy_.plan, doors[0].ledger
    plan.check(ledger)
    assert len(synthesizer.tables_) >= 1
    d = synthesizer._model.first.n_columns  # parts of instants among them
    n_choices = min(d, workload.MOST_TABLES) + min(d, workload.MOST_LARGER)
    n_cuts = len(ledger.losses["tables"]) - n_choices - 2
    assert 2 <= n_cuts <= MOST_CUTS
    spent = plan.multiplier(TABLES) ** -2 * (1 - CUT_SHARE * (1 - n_cuts / MOST_CUTS))
    assert ledger.total("tables") == pytest.approx(spent)
    assert "contingency tables (listed below" in str(synthesizer.privacy_)
    assert " x ".join(synthesizer.tables_[0]) in str(synthesizer.privacy_)


def test_a_fit_whose_tables_cost_more_leaves_nothing(monkeypatch):
    monkeypatch.setattr(
        privacy, "count_multiplier", lambda plan, _: plan.multiplier(TABLES)
    )
    synthesizer = DPHFlowSynthesizer(**replay.CONFIGURATIONS["workload"], n_steps=2)
    before = dict(vars(synthesizer))
    with pytest.raises(LedgerError, match="tables"):
        synthesizer.fit(replay.table())
    assert vars(synthesizer) == before


def test_a_plan_without_tables_pays_for_none():
    plan = plan_of(N, table_budget=0.0)
    assert math.isinf(plan.multiplier(TABLES))
    ledger = Ledger()
    ledger.gaussian("tables", 1e6, 1.0)
    with pytest.raises(LedgerError, match="others"):
        plan.check(ledger)
