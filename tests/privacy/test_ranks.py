"""Several processes fit one model: every row counts once, and so does the noise."""

from __future__ import annotations

import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import dataset as ds
from pyarrow import parquet

from dpgenerative import (
    BatchTerm,
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    PrivateSearch,
    Schema,
)
from dpgenerative._random import SecureGenerator, Streams
from dpgenerative.fitting.loop import batches
from dpgenerative.layers import MaskedLinear
from dpgenerative.persistence import checkpoint
from dpgenerative.persistence.checkpoint import Checkpoint
from dpgenerative.privacy import tables
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.norm import estimate_norm
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.privacy.tables import all_counts
from dpgenerative.tables import rows as chunked
from dpgenerative.tables.private import Private, opened
from tests.plans import make_plan
from tests.privacy.processes import fits_in_threads, in_threads

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

N = 600
FAST = {"n_steps": 12, "batch_size": 64, "random_state": 3, "noise": "reproducible"}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(50, 10, n)
    frame = pd.DataFrame(
        {
            "age": x,
            "visits": rng.integers(0, 5, n),
            "ward": pd.Categorical(rng.choice(list("xyz"), n)),
            "city": rng.choice(["Oslo", "Rome"], n),
            "cost": np.where(x > 50, 0.0, rng.exponential(30, n)),
        }
    )
    return frame.where(rng.random(frame.shape) > 0.02)


def flow(**params):
    return DPHFlowSynthesizer(5.0, device="cpu").set_params(**{**FAST, **params})


def vae(**params):
    return DPVAESynthesizer(5.0, device="cpu").set_params(**{**FAST, **params})


def images(**params):
    classes = list("ab")
    made = DPArrayVAESynthesizer(5.0, classes=classes, device="cpu")
    return made.set_params(**{**FAST, **params})


def drawn(seed=0, n=300):
    rng = np.random.default_rng(seed)
    y = rng.choice(list("ab"), n)
    bright = np.where(y == "a", 60, 180)[:, None, None]
    return np.clip(rng.normal(bright, 30, (n, 6, 6)), 0, 255).astype(np.uint8), y


def tensors(model):
    return {name: x.detach() for name, x in model.state_dict().items()}


def assert_equal_models(one, other):
    one, other = tensors(one._model), tensors(other._model)
    assert one.keys() == other.keys()
    for name, x in one.items():
        assert torch.equal(x, other[name]), name


def doors(ranks):
    rng = SecureGenerator()
    door = Mechanisms(rng, rng)
    door.ranks = ranks
    return door


class Noted(Mechanisms):
    """Notes what a process hands in."""

    def __init__(self, ranks):
        super().__init__(SecureGenerator(), SecureGenerator())
        self.ranks, self.seen = ranks, []

    def choose(self, scores, *args, **stated):
        self.seen.append(opened(scores))
        return super().choose(scores, *args, **stated)

    def gaussian(self, values, *args, **stated):
        self.seen.append(opened(values))
        return super().gaussian(values, *args, **stated)


# Mechanisms ---------------------------------------------------------------------------


def test_counts_are_added_up():
    found = in_threads(lambda r: doors(r).count(range(100 + r.rank), float("inf")), 3)
    assert found == [303] * 3


def test_row_counts_have_the_noise_of_one():
    def released(ranks):
        door = doors(ranks)
        return [door.count(range(500), 1.0) for _ in range(3000)]

    one, other = in_threads(released)
    assert one == other
    # Var = 2 e^-1 / (1 - e^-1)^2 = 1.84; of two noises, twice that.
    assert np.mean(one) == pytest.approx(1000, abs=0.15)
    assert 1.4 < np.var(one) < 2.4


def test_histograms_have_the_noise_of_one():
    def released(ranks):
        values = np.full(20_000, 7 + ranks.rank)
        return doors(ranks).gaussian(values, 3.0, release="tables", sensitivity=1.0)

    one, other = in_threads(released)
    assert np.array_equal(one, other)
    assert np.array_equal(one, one.round())
    assert one.mean() == pytest.approx(15, abs=0.1)
    assert one.std() == pytest.approx(3, rel=0.03)


def test_gradients_have_the_noise_of_one():
    def released(ranks):
        sums = [torch.full((100, 100), 2.0 + ranks.rank, dtype=torch.float64)]
        door = doors(ranks)
        found = door.gradient(sums, [3.0], sensitivities=[1.5], divisor=8.0)
        return found[0], door.ledger.steps

    (one, steps), (other, same_steps) = in_threads(released)
    assert torch.equal(one, other)
    assert one.mean().item() == pytest.approx(5, abs=0.15)
    assert one.std().item() == pytest.approx(3, rel=0.03)
    assert steps == same_steps == {(None, 2.0, 8.0): 1}


def test_keys_of_all_processes_pass_one_threshold():
    """ "b" is frequent in the whole table alone; "c" is of one row in each part."""

    def released(ranks):
        counts = {("str", "a"): 50, ("str", "b"): 8, ("str", "c"): 1}
        if ranks.rank:
            counts = {("str", "b"): 8, ("str", "c"): 1, ("float", 1.0): 40}
        return doors(ranks).thresholded(counts, 0.1, 12.0, release="marginals")

    one, other = in_threads(released)
    assert one == other
    assert {key: round(n) for key, n in one.items()} == {
        ("float", 1.0): 40, ("str", "a"): 50, ("str", "b"): 16,
    }  # fmt: skip
    assert list(one) == list(other)


class Losses:
    """A layer, and losses of rows some of which are clipped."""

    def __init__(self):
        torch.manual_seed(0)
        self.layer = MaskedLinear.dense(5, 3)
        self.x = torch.randn(90, 5)
        self.chunks = torch.arange(90).split(40)

    def __call__(self, rows):
        return self.layer(self.x[rows]).square().sum(1), None

    def of(self, ranks, z=0.0):
        """Return the gradient of the rows that one process has."""
        gradient = PrivateGradient(Clipper("flat", 1.0), z, 64.0)
        mine = np.arange(90)[ranks.rank :: ranks.size]
        chunks = [(torch.from_numpy(mine), torch.ones(len(mine), dtype=torch.bool))]
        found = gradient(self.layer, self, chunks, doors(ranks), torch.Generator())
        return [x.detach() for x in found.values()]


def test_the_summed_gradient_is_that_of_one_process():
    (whole,) = in_threads(Losses().of, 1)
    for parts in in_threads(Losses().of, 3):
        for x, y in zip(whole, parts, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)


def test_choices_are_of_summed_scores():
    scores = [[500, 0, 300], [0, 500, 300]]

    def released(ranks):
        door = doors(ranks)
        stated = {"release": "tables", "sensitivity": 2}
        places = [door.choose(scores[ranks.rank], 0.05, **stated) for _ in range(3)]
        places += [door.choose(np.zeros(3, int), 1.0, **stated) for _ in range(200)]
        return places, door.ledger.losses

    one, other = in_threads(released)
    assert one == other
    assert one[0][:3] == [2, 2, 2]
    assert {*one[0][3:]} == {0, 1, 2}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_what_tables_show_is_of_all_rows_and_no_sum_of_parts(size):
    codes = np.random.default_rng(0).integers(0, 3, (400, 3))
    codes[1::2, 2] = (codes[::2, 2] + 1) % 3  # every process has other rows
    groups = (np.arange(3), np.arange(3))
    counted = [tables.Table(pair, groups) for pair in ((0, 1), (0, 2), (1, 2))]
    some = [tables.Candidate(each, np.full((3, 3), 44), 5) for each in counted]
    exact = tables.news(some, all_counts(counted, codes))

    def released(ranks):
        plan = SimpleNamespace(multiplier=lambda release: 1e-3)
        mine, door = Private(codes[ranks.rank :: ranks.size]), doors(ranks)
        comparison = tables.Comparison(mine, some, plan, door)
        found = comparison.release(comparison.choose([1], [[0, 2]]))
        return {i: value for i, (value, _) in found.items()}

    highest = max((0, 2), key=lambda i: exact[i])
    assert exact[0] != exact[2]
    for found in in_threads(released, size):
        assert found == {1: exact[1], highest: exact[highest]}


@pytest.mark.parametrize("size", [1, 2, 3])
def test_cuts_are_of_all_rows_and_no_sum_of_parts(size):
    rng, fine = np.random.default_rng(0), np.arange(5)
    codes, table = rng.integers(0, 5, (90, 3)), tables.Table((0, 1, 2), (fine,) * 3)
    half = tables.Table((0, 1, 2), (np.array([0, 0, 1, 1, 1]),) * 3)
    some = [tables.Candidate(table, np.full((5, 5, 5), 2), 3)]
    expected = np.full((2, 4, 25), 2)
    plan = SimpleNamespace(multiplier=lambda release: 1.0)

    def handed_in(rows, size):
        def released(ranks):
            door = Noted(ranks)
            mine = Private(rows[ranks.rank :: ranks.size])
            comparison = tables.Comparison(mine, some, plan, door)
            cut = comparison.cut(table, 1, expected, np.zeros(4, int))
            comparison.replace(0, tables.Candidate(half, np.full((2, 2, 2), 9), 1))
            comparison.release([0])
            return cut, door.seen

        every = in_threads(released, size)
        assert len({cut for cut, _ in every}) == 1
        return [sum(parts) for parts in zip(*(seen for _, seen in every), strict=True)]

    whole = handed_in(codes, 1)
    for parts, one in zip(handed_in(codes, size), whole, strict=True):
        assert np.array_equal(parts, one)
    for more in range(3):  # a row of each process
        other = np.concatenate([codes, codes[:more], [[0, 4, 2]]])
        less = handed_in(other[:-1], size)
        for one, two, reach in zip(handed_in(other, size), less, (1, 2), strict=True):
            assert np.abs(one - two).max() <= reach


def test_the_median_norm_is_that_of_all_rows():
    def released(ranks):
        losses = Losses()
        mine = torch.arange(90)[ranks.rank :: ranks.size]
        chunk = mine, torch.ones(len(mine), dtype=torch.bool)
        chunks = chunked.Chunks(Private(lambda: [chunk]))
        return estimate_norm(losses.layer, losses, chunks, doors(ranks), 1e-6)

    assert in_threads(released, 2) == in_threads(released, 1) * 2


# Shares -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pd.DataFrame, np.asarray])
def test_every_row_has_one_process(kind):
    rows = kind(np.arange(1000).reshape(-1, 1))
    groups = [ProcessGroup(3, rank) for rank in range(3)]
    parts = [np.asarray(group.share(rows, 7)).ravel() for group in groups]
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert all(280 < len(part) < 390 for part in parts)
    again = ProcessGroup(3, 1).share(rows, 8)
    assert set(np.asarray(again).ravel()) != set(parts[1])


def test_streams_of_processes_share_what_is_public():
    first, alone, other = (
        Streams.create(5, "reproducible", "cpu", rank) for rank in (0, 0, 1)
    )
    for name in ("weights", "rows"):
        x, y = (torch.rand(4, generator=getattr(s, name)) for s in (first, other))
        assert torch.equal(x, y)
    for name in ("batches", "counts", "gradients"):
        x, y, z = (getattr(s, name).random(4) for s in (first, alone, other))
        assert np.array_equal(x, y)
        assert not np.isin(z, x).any()
    x, z = (torch.rand(4, generator=s.draws) for s in (first, other))
    assert not torch.isin(x, z).any()


def test_rows_of_two_processes_do_not_enter_batches_together(monkeypatch):
    seen, create = {}, Streams.create

    def watched(seed, noise, device, rank=0):
        streams = create(seed, noise, device, rank)
        seen.setdefault(rank, streams.batches.random(1000))
        return streams

    monkeypatch.setattr(Streams, "create", watched)
    fits_in_threads(monkeypatch, flow, table())
    assert abs(np.corrcoef(seen[0], seen[1])[0, 1]) < 0.15


def test_all_batches_together_are_one_poisson_batch():
    n, q, n_steps = 30, 0.3, 6000
    plan = make_plan(
        epsilon=None, delta=1e-5, n_rows=n, sampling_rate=q, n_steps=n_steps,
        marginal_budget=0, has_open_keys=False, estimates_norm=False,
    )  # fmt: skip

    def taken(ranks):
        """Return which rows are in the batches of one process."""
        mine = ranks.share(np.arange(n), 0)
        rng, ledger = np.random.default_rng(), Ledger()
        found = np.zeros((n_steps, n), bool)
        stream = batches(plan, mine, rng, "cpu", False, ledger, ranks.size)
        for row, chunks in zip(found, stream, strict=True):
            for indices, present in chunks:
                row[mine[indices[present].numpy()]] = True
        return found

    one, other = in_threads(taken)
    assert not (one & other).any()
    whole = one | other
    bound = 5 / np.sqrt(n_steps)
    assert np.abs(whole.mean(0) - q).max() < bound
    assert np.abs(np.corrcoef(whole.T) - np.eye(n)).max() < bound
    assert np.abs(np.corrcoef(whole[1:, 0], whole[:-1, 0])[0, 1]) < bound


# Whole fits ---------------------------------------------------------------------------


@pytest.mark.parametrize("size", [2, 3])
def test_without_gradients_a_fit_is_that_of_one_process(size, monkeypatch):
    """Count, bounds, keys, marginals, scores and counted tables: to the last bit."""
    make = {"n_steps": 0, "workload": [["ward", "city"]]}
    alone = flow(**make).fit(table())
    for each in fits_in_threads(monkeypatch, lambda: flow(**make), table(), size=size):
        assert each.privacy_ == alone.privacy_
        assert each.schema_ == alone.schema_
        assert_equal_models(each, alone)
        assert each.sample(50, 0).equals(alone.sample(50, 0))


@pytest.mark.thin(2)
@pytest.mark.parametrize("make", [flow, vae])
@pytest.mark.parametrize("params", [{}, {"max_grad_norm": "median"}])
def test_processes_hold_one_model_and_one_report(make, params, monkeypatch):
    alone = make(**params).fit(table())
    one, other = fits_in_threads(monkeypatch, lambda: make(**params), table())
    assert_equal_models(one, other)
    assert one.privacy_ == other.privacy_
    assert one.privacy_.plan == alone.privacy_.plan
    assert one.schema_ == other.schema_ == alone.schema_
    assert one.sample(50).equals(other.sample(50))


def test_fits_without_seeds_share_weights_and_samples_of_one_seed(monkeypatch):
    params = {"random_state": None, "noise": "secure"}
    one, other = fits_in_threads(monkeypatch, lambda: flow(**params), table())
    assert_equal_models(one, other)
    assert one.sample(9, random_state=1).equals(other.sample(9, random_state=1))


def test_labelled_arrays_have_the_moments_of_all(monkeypatch):
    X, y = drawn()
    alone = images().fit(X, y)
    one, other = fits_in_threads(monkeypatch, images, X, y)
    assert_equal_models(one, other)
    found = [each._transformer.gaussians for each in (alone, one, other)]
    assert np.array_equal(found[1].means, found[2].means)
    np.testing.assert_allclose(found[0].means, found[1].means, atol=1e-9)


def test_without_privacy_every_row_counts_once(monkeypatch):
    alone = flow(epsilon=None).fit(table())
    one, other = fits_in_threads(monkeypatch, lambda: flow(epsilon=None), table())
    assert one.privacy_.plan.n_rows == alone.privacy_.plan.n_rows == N
    assert_equal_models(one, other)
    for x, y in zip(alone._transformer.codecs, one._transformer.codecs, strict=True):
        assert np.array_equal(x.masses, y.masses)


def test_who_knows_the_seed_does_not_know_the_parts(monkeypatch):
    seen, share = [], ProcessGroup.share

    def watched(self, rows, seed):
        seen.append(seed)
        return share(self, rows, seed)

    monkeypatch.setattr(ProcessGroup, "share", watched)
    for noise in ("fresh", "secure", "reproducible"):
        fits_in_threads(monkeypatch, lambda noise=noise: flow(noise=noise), table(9))
    assert seen[0] == seen[1] != seen[2] == seen[3]
    assert {3} == set(seen[4:]) == {3, *seen} - {*seen[:4]}


@pytest.mark.parametrize("n", [N, 1])
def test_one_row_group_is_shared_by_rows(n, tmp_path, monkeypatch):
    """A table in chunks gives what it gives in memory."""
    rows, path = table(n), tmp_path / "rows.parquet"
    rows.to_parquet(path)
    monkeypatch.setattr(chunked, "CHUNK", 200)
    whole, _ = fits_in_threads(monkeypatch, flow, parquet.read_table(path))
    one, other = fits_in_threads(monkeypatch, flow, path)
    assert_equal_models(one, whole)
    assert_equal_models(other, whole)


def spoil(path, spared):
    """Overwrite the data of all row groups but some."""
    facts = parquet.read_metadata(path)
    with path.open("r+b") as file:
        for i in set(range(facts.num_row_groups)) - set(spared):
            for j in range(facts.num_columns):
                part = facts.row_group(i).column(j)
                starts = part.data_page_offset, part.dictionary_page_offset
                file.seek(min(start for start in starts if start is not None))
                file.write(b"\xff" * part.total_compressed_size)


@pytest.mark.parametrize(("n", "n_dealt"), [(10, 0), (30, 0), (40, 3), (61, 6)])
def test_processes_read_their_own_row_groups(n, n_dealt, tmp_path):
    """All data but that of its own groups, and of the last ones, can be spoiled."""
    rows, found = pd.DataFrame({"x": np.arange(n), "y": np.arange(n) % 7}), []
    for rank in range(3):
        path = tmp_path / f"{rank}.parquet"
        rows.to_parquet(path, row_group_size=10)
        read = ProcessGroup(3, rank).share(chunked.streamed("test", path), 7)
        own = range(rank, n_dealt, 3)
        spoil(path, [*own, *range(n_dealt, -(-n // 10))])
        part = read if isinstance(read, pd.DataFrame) else read.whole()
        x = part["x"].to_numpy(int)
        assert set(x[x < n_dealt * 10] // 10) == set(own)
        assert (part["y"] == x % 7).all()
        found += list(x)
    assert sorted(found) == list(range(n))
    spoil(path, [])
    with pytest.raises(ValueError, match="cannot be read"):
        read.whole()


def test_other_datasets_are_shared_by_rows(tmp_path):
    path, rows = tmp_path / "rows.parquet", pa.table({"x": range(60)})
    parquet.write_table(rows, path, row_group_size=10)
    files = ds.dataset(path)
    whole = list(range(60))
    for dataset, wanted in (
        (ds.dataset([files, files]), sorted(whole * 2)),
        (files.filter(ds.field("x") < 33), whole[:33]),
        (ds.dataset(rows), whole),
    ):
        read = chunked.streamed("test", dataset)
        parts = [ProcessGroup(2, rank).share(read, 7).whole()["x"] for rank in range(2)]
        assert sorted(pd.concat(parts)) == wanted
        assert all(len(part) > len(wanted) / 4 for part in parts)


def test_rows_that_a_mask_leaves_out_are_in_no_part(tmp_path):
    path = tmp_path / "rows.parquet"
    pd.DataFrame({"x": np.arange(40)}).to_parquet(path, row_group_size=10)
    some = chunked.streamed("test", path)[np.arange(40) % 3 > 0]
    parts = [ProcessGroup(2, rank).share(some, 7).whole()["x"] for rank in range(2)]
    assert sorted(pd.concat(parts)) == [x for x in range(40) if x % 3]


def test_files_of_row_groups_teach_what_one_table_does(tmp_path, monkeypatch):
    path = tmp_path / "rows.parquet"
    table().to_parquet(path, row_group_size=70)
    alone = flow().fit(path)
    one, other = fits_in_threads(monkeypatch, flow, path)
    assert_equal_models(one, other)
    assert one.privacy_.plan.noise_multiplier == alone.privacy_.plan.noise_multiplier
    free = flow(epsilon=None)
    whole = free.fit(path)
    one, other = fits_in_threads(monkeypatch, lambda: flow(epsilon=None), path)
    assert one.privacy_.plan.n_rows == other.privacy_.plan.n_rows == N
    for x, y in zip(whole._transformer.codecs, one._transformer.codecs, strict=True):
        assert np.array_equal(x.masses, y.masses)


def test_queries_are_refused(monkeypatch):
    polars = pytest.importorskip("polars")
    query = polars.DataFrame({"x": [1.0, 2.0]}).lazy()
    with (
        PrivacyBudget(50.0, 1e-3) as budget,
        pytest.raises(TypeError, match="no order of rows"),
    ):
        fits_in_threads(monkeypatch, flow, query)
    assert not budget.fits


@pytest.mark.parametrize(("make", "args"), [(flow, (table(1),)), (images, drawn(n=1))])
def test_a_process_may_have_no_rows(make, args, monkeypatch):
    one, *others = fits_in_threads(monkeypatch, make, *args, size=3)
    for other in others:
        assert_equal_models(one, other)


def test_public_rows_teach_one_model(monkeypatch):
    one, other = fits_in_threads(monkeypatch, flow, table(), public=table(200, 1))
    assert_equal_models(one, other)


def test_the_first_process_alone_warns(monkeypatch):
    seen = []
    monkeypatch.setattr(warnings, "warn", lambda *_, **__: seen.append(1))
    fits_in_threads(monkeypatch, lambda: flow(epsilon=0.01), table(30))
    n_seen = len(seen)
    seen.clear()
    flow(epsilon=0.01).fit(table(30))
    assert n_seen == len(seen) > 0


# What is refused ----------------------------------------------------------------------


def test_processes_that_differ_are_refused(monkeypatch):
    epsilons = iter([1.0, 2.0])
    with pytest.raises(ValueError, match="differ in their parameters"):
        fits_in_threads(monkeypatch, lambda: flow(epsilon=next(epsilons)), table())
    schemas = iter([Schema([]), Schema([Column("age", "integer", lower=0, upper=99)])])
    with pytest.raises(ValueError, match="differ in their parameters"):
        fits_in_threads(monkeypatch, lambda: flow(schema=next(schemas)), table())


@pytest.mark.parametrize("name", ["public", "checkpoint"])
def test_what_one_process_alone_is_given_is_refused(name, tmp_path, monkeypatch):
    number = {"kind": "continuous", "lower": 0, "upper": 99}
    schema = Schema(
        [
            *(Column(each, **number) for each in ("age", "visits", "cost")),
            Column("city", "categorical", levels=["Oslo", "Rome"]),
        ]
    )
    value = table() if name == "public" else tmp_path / "unfinished.dpg"
    given = iter([{name: value}, {}])

    def make():
        return SimpleNamespace(fit=partial(flow(schema=schema).fit, **next(given)))

    with pytest.raises(ValueError, match=r"differ .* public rows or a checkpoint"):
        fits_in_threads(monkeypatch, make, table())
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("term", ["mmd", BatchTerm(None, aggregation="micro")])
def test_batch_wise_terms_are_refused(term, monkeypatch):
    def make():
        return flow(divergence=term)

    with pytest.raises(ValueError, match="needs whole batches"):
        fits_in_threads(monkeypatch, make, table())


def test_private_searches_are_refused(monkeypatch):
    def make():
        return PrivateSearch(DPHFlowSynthesizer(), {"n_steps": [5, 9]})

    with pytest.raises(RuntimeError, match="runs in one process"):
        fits_in_threads(monkeypatch, make, table())


def test_an_error_of_the_first_process_is_one_of_all():
    def work(ranks):
        def fail():
            assert ranks.is_first
            raise PermissionError("no")

        with pytest.raises(PermissionError, match="no"):
            ranks.once(fail)
        return ranks.same(ranks.rank)

    assert in_threads(work) == [0, 0]


# Checkpoints --------------------------------------------------------------------------


class Interruption(BaseException):
    """As a power cut."""


@pytest.mark.parametrize("make", [flow, vae])
def test_an_interrupted_fit_goes_on(make, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    path, written = tmp_path / "unfinished.dpg", Checkpoint.after
    whole, _ = fits_in_threads(monkeypatch, make, table())

    def after(self, n_done, loop):
        written(self, n_done, loop)
        if n_done == 5:
            raise Interruption

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "after", after)
        with pytest.raises(Interruption):
            fits_in_threads(monkeypatch, make, table(), checkpoint=path)
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(ValueError, match="number of processes"):
        fits_in_threads(monkeypatch, make, table(), checkpoint=path, size=3)
    with pytest.raises(ValueError, match="other rows"):
        fits_in_threads(monkeypatch, make, table()[::-1], checkpoint=path)
    one, other = fits_in_threads(monkeypatch, make, table(), checkpoint=path)
    assert not list(tmp_path.iterdir())
    assert_equal_models(one, whole)
    assert_equal_models(one, other)
    assert one.privacy_ == whole.privacy_


def test_what_can_go_on_has_released_nothing(tmp_path, monkeypatch):
    made = [flow(noise="secure"), flow(noise="secure")]
    left, path = iter(made), tmp_path / "unfinished.dpg"

    def fail(self):
        raise PermissionError("no")

    monkeypatch.setattr(Checkpoint, "remove", fail)
    with pytest.raises(PermissionError, match="no"):
        fits_in_threads(monkeypatch, lambda: next(left), table(), checkpoint=path)
    assert not any(hasattr(each, "privacy_") for each in made)
