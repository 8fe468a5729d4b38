"""Rows read by chunks: the same fit, bit by bit, whatever they come from."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
from functools import partial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from dpgenerative import (
    Column,
    Composition,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    LessEqual,
    PrivateSearch,
    Schema,
    SyntheticClassifier,
)
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting import loop
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.synthesizers import tables
from dpgenerative.tables import files, rows
from dpgenerative.tables.arrow import in_pandas
from dpgenerative.tables.private import opened

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

N_ROWS = 300
SCHEMA = Schema(
    [
        Column("age", "integer", lower=0, upper=99),
        Column("ward", "categorical", levels=["a", "b", "c"]),
        Column("first", "integer", lower=0, upper=400),
        Column("last", "integer", lower=0, upper=400),
        Column("sand", "integer"),
        Column("silt", "integer"),
        Column("clay", "integer"),
    ],
    constraints=[
        LessEqual("first", "last"),
        Composition(["sand", "silt", "clay"], total=100),
    ],
)


def table(n=N_ROWS, seed=0):
    """Return a table with missing values, times, categories and a spike."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2020-01-01") + rng.integers(0, 900, n)
    first = rng.integers(0, 300, n)
    sand, silt = rng.integers(0, 50, (2, n))
    return pa.table(
        {
            "age": pa.array(rng.integers(18, 90, n), pa.int32(), mask=some(rng, n)),
            "weight": pa.array(rng.normal(50, 9, n), mask=some(rng, n)),
            "spend": pa.array(np.where(rng.random(n) < 0.5, 0, rng.exponential(9, n))),
            "ward": pa.array(rng.choice(["a", "b", "c"], n)).dictionary_encode(),
            "note": pa.array(rng.choice(["x", "y", None], n).tolist(), pa.string()),
            "ok": pa.array(rng.random(n) < 0.4, mask=some(rng, n)),
            "since": pa.array(days.astype("M8[us]"), mask=some(rng, n)),
            "first": pa.array(first),
            "last": pa.array(first + rng.poisson(6, n)),
            "sand": pa.array(sand),
            "silt": pa.array(silt, mask=some(rng, n)),
            "clay": pa.array(100 - sand - silt),
        }
    )


def some(rng, n):
    return rng.random(n) < 0.1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write one table as one file, and as a folder of three."""
    place = tmp_path_factory.mktemp("rows")
    whole = table()
    pq.write_table(whole, place / "whole.parquet", row_group_size=70)
    (place / "parts").mkdir()
    for i, start in enumerate((0, 90, 200)):
        stop = (90, 200, N_ROWS)[i]
        part = whole.slice(start, stop - start)
        pq.write_table(part, place / "parts" / f"{i}.parquet", row_group_size=33)
    return place


def fitted(X, kind=DPHFlowSynthesizer, **parameters):
    common = {"epsilon": 2.0, "random_state": 7, "noise": "reproducible", "n_steps": 8}
    return kind(**{**common, **parameters}).fit(X)


def results(synthesizer):
    sample = in_pandas("test", synthesizer.sample(50, random_state=1))
    return str(synthesizer.privacy_), sample


def assert_same(one, other):
    (report, sample), (wanted, expected) = results(one), results(other)
    assert report == wanted
    pd.testing.assert_frame_equal(sample, expected)


INDEXES = {
    "range": lambda x: x,
    "filtered": lambda x: x[x["first"] > 100],
    "two levels": lambda x: x.set_index([x["age"].to_numpy(), x["age"].to_numpy()]),
    "one name": lambda x: x.set_index([x["age"].to_numpy(), x["first"].rename("k")]),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", INDEXES)
def test_the_index_of_pandas_is_no_column(name, tmp_path):
    frame = INDEXES[name](table().to_pandas()[["age", "first"]])
    path, names = tmp_path / "rows.parquet", ["age", "first"]
    names += ["k"] if name == "one name" else []
    frame.to_parquet(path)
    for read in (path, pq.read_table(path), ds.dataset(path)):
        fitted = DPHFlowSynthesizer(epsilon=None, n_steps=1).fit(read)
        assert fitted.feature_names_in_.tolist() == names
    assert len(files.stream_table(path, Schema([])).whole()) == len(frame)
    assert files.stream_table(path, Schema([])).columns.tolist() == names


@pytest.mark.parametrize("order", [1, -1])
def test_files_with_and_without_row_labels_are_read_together(order, tmp_path):
    frame = table().to_pandas()[["age", "first"]]
    parts = [frame[:100], frame[100:][frame["first"][100:] > 99]]
    for i, part in enumerate(parts[::order]):
        part.to_parquet(tmp_path / f"{i}.parquet")
    read = rows.streamed("T", str(tmp_path))
    assert read.whole()["first"].tolist() == pd.concat(parts[::order])["first"].tolist()


def test_row_labels_without_a_note_of_pandas_are_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(table().append_column("__index_level_0__", [range(N_ROWS)]), path)
    for read in (partial(rows.streamed, "T"), lambda p: files.stream_table(p, SCHEMA)):
        with pytest.raises(ValueError, match="no note of pandas"):
            read(str(path))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [DPHFlowSynthesizer, DPVAESynthesizer])
@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_chunks_change_nothing(kind, schema, folder, monkeypatch):
    expected = fitted(table(), kind, schema=schema)
    for chunk in (11, 70, 2**17):
        monkeypatch.setattr(rows, "CHUNK", chunk)
        assert_same(fitted(folder / "whole.parquet", kind, schema=schema), expected)
    for path in (folder / "parts", f"{folder}/parts/*.parquet"):
        assert_same(fitted(path, kind, schema=schema), expected)


@pytest.mark.thin(2)
@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_grad_norm": "median"},
        {"max_rows_per_unit": 3},
        {"epsilon": None},
        {"epsilon": 50.0, "n_steps": 2},  # of which tables are counted
        {"architecture": FlowArchitecture(n_blocks=2, anchored=False)},
    ],
    ids=repr,
)
def test_chunks_change_nothing_of_other_fits(parameters, folder, monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 50)
    one = fitted(folder / "whole.parquet", **parameters)
    assert_same(one, fitted(table(), **parameters))


@pytest.mark.parametrize("dtype", ["Int64", "Float64"])
def test_few_missing_values_are_counted_alike_by_chunks(dtype, tmp_path):
    """Once 'missing' was dropped, later passes read such rows at the lower bound."""
    rng = np.random.default_rng(0)
    x = pd.Series(rng.integers(0, 50_000, 20_000), dtype=dtype).where(lambda x: x > 2)
    pq.write_table(pa.table({"x": x}), tmp_path / "x.parquet")
    x = x.rename("x")
    kind = "integer" if dtype == "Int64" else "continuous"
    schema = Schema([Column("x", kind, lower=0, upper=50_000, nullable=True)])
    passes = []
    for each in (x.to_frame(), rows.streamed("T", tmp_path / "x.parquet")):
        counts = Counts(np.random.default_rng(1), np.random.default_rng(2))
        found = TableTransformer.fit(
            each, schema, counts, n_rows=len(x), n_std=1.0, multiplier=2.0,
            delta=1e-6, n_bins=64,
        )  # fmt: skip
        passes.append((found, counts.exact))
    (one, exact), (other, by_chunks) = passes
    assert x.isna().any()
    assert not one.codecs[0].column.nullable
    assert exact == by_chunks
    assert one.codecs[0].masses.tolist() == other.codecs[0].masses.tolist()


class Counts(Mechanisms):
    """Keeps what was counted."""

    def __init__(self, *generators):
        super().__init__(*generators)
        self.exact = []

    def gaussian(self, values, std, **facts):
        self.exact.append(opened(values).tolist())
        return super().gaussian(values, std, **facts)

    def thresholded(self, counts, std, threshold, **facts):
        self.exact.append(dict(opened(counts)))
        return super().thresholded(counts, std, threshold, **facts)


def test_a_dataset_comes_back_as_its_tables_do(folder):
    one, other = fitted(ds.dataset(folder / "parts")), fitted(table())
    assert one.sample(20, random_state=1).equals(other.sample(20, random_state=1))


def test_a_share_of_row_groups_is_a_dataset(folder):
    whole = ds.dataset(folder / "whole.parquet")
    groups = [g for f in whole.get_fragments() for g in f.split_by_row_group()]
    parts = whole.schema, whole.format, whole.filesystem
    share = ds.FileSystemDataset(groups[1::2], *parts)
    expected = pa.concat_tables([table().slice(70, 70), table().slice(210, 70)])
    assert_same(fitted(share), fitted(expected))


def test_queries_of_polars(folder, monkeypatch):
    pl = pytest.importorskip("polars")
    monkeypatch.setattr(rows, "CHUNK", 64)
    query = pl.scan_parquet(folder / "whole.parquet")
    enum = pl.Enum(["c", "a", "b", "d"])
    query = query.with_columns(ward=pl.col("ward").cast(pl.String).cast(enum))
    one, other = fitted(query), fitted(query.collect())
    assert one.schema_["ward"].levels == ("c", "a", "b", "d")
    assert_same(one, other)
    assert type(one.sample(3)) is pl.DataFrame


def test_relations_of_duckdb(folder, monkeypatch):
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(rows, "CHUNK", 64)
    relation = duckdb.read_parquet(str(folder / "whole.parquet"))
    assert_same(fitted(relation), fitted(table()))


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "parameters",
    [{"architecture__n_blocks": 2}, {"architecture__anchored": False},
     {"architecture__linear": "lu"}, {"divergence": "mmd"}],
)  # fmt: skip
def test_queries_are_read_in_one_order_or_refused(folder, parameters, monkeypatch):
    pl = pytest.importorskip("polars")
    # Codes of one pass and positions of another would be those of several persons.
    path = folder / "whole.parquet"
    synthesizer = DPHFlowSynthesizer(n_steps=2).set_params(**parameters)
    with pytest.raises(TypeError, match="rows are read twice"):
        synthesizer.fit(pl.scan_parquet(path))
    assert not hasattr(synthesizer, "privacy_")
    synthesizer.fit(path)
    plain = DPHFlowSynthesizer(n_steps=2)
    monkeypatch.delattr("dpgenerative.encoding.transformer.TableTransformer.positions")
    plain.fit(pl.scan_parquet(path))


def test_public_rows_may_be_a_file(folder):
    common = {"n_steps": 3, "noise": "reproducible", "random_state": 0}
    paths = folder / "whole.parquet", folder / "parts" / "0.parquet"
    one = DPHFlowSynthesizer(**common).fit(paths[0], public=paths[1])
    other = DPHFlowSynthesizer(**common).fit(table(), public=table().slice(0, 90))
    assert_same(one, other)


# Samples ------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_file_holds_the_rows_of_a_sample(suffix, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_CHUNK", 30)
    ids = Column("first", "integer", role="id")
    frame = in_pandas("test", table()).assign(target=1.0)
    synthesizer = DPHFlowSynthesizer(schema=Schema([ids]), n_steps=3)
    synthesizer.fit(frame.drop(columns="target"), frame["target"])
    path = tmp_path / f"out.{suffix}"
    synthesizer.sample_to(path, 100, random_state=4)
    expected = synthesizer.sample(100, random_state=4)
    expected = expected[0].assign(target=expected[1])
    if suffix == "csv":
        assert path.read_text() == expected.to_csv(index=False)
        return
    assert pq.ParquetFile(path).num_row_groups == 4
    found = in_pandas("test", pq.read_table(path))
    pd.testing.assert_frame_equal(found, expected.astype(found.dtypes.to_dict()))
    assert found["first"].tolist() == list(range(1, 101))


def test_conditions_and_constraints_hold_in_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_CHUNK", 30)
    synthesizer = fitted(table(), schema=SCHEMA)
    path = tmp_path / "out.parquet"
    synthesizer.sample_to(path, 70, random_state=0, given={"ward": "b"})
    found = pd.read_parquet(path)
    assert len(found) == 70
    assert set(found["ward"]) == {"b"}
    assert (found["first"] <= found["last"]).all()


def test_an_interrupted_file_leaves_what_was_there(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "SAMPLE_CHUNK", 30)
    synthesizer, path = fitted(table()), tmp_path / "out.csv"
    path.write_text("before")
    drawn = tables.BaseTableSynthesizer._drawn

    def interrupted(self, *arguments):
        yield next(drawn(self, *arguments))
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(tables.BaseTableSynthesizer, "_drawn", interrupted)
        with pytest.raises(KeyboardInterrupt):
            synthesizer.sample_to(path, 100, random_state=4)
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]
    assert path.read_text() == "before"
    synthesizer.sample_to(path, 100, random_state=4)
    expected = synthesizer.sample(100, random_state=4)
    assert path.read_text() == in_pandas("test", expected).to_csv(index=False)


def test_what_is_no_table_file_is_refused(tmp_path):
    synthesizer = fitted(table())
    with pytest.raises(ValueError, match="must end in"):
        synthesizer.sample_to(tmp_path / "out.txt", 10)
    with pytest.raises(ValueError, match="must be a mapping"):
        synthesizer.sample_to(tmp_path / "out.csv", 10, given=pd.DataFrame({"a": [1]}))
    drawing = synthesizer.sample, partial(synthesizer.sample_to, tmp_path / "out.csv")
    for refused in drawing:
        with pytest.raises(ValueError, match="given") as error:
            refused(10, given=pd.Series([271828]))
        assert "271828" not in str(error.value)
    with pytest.raises(FileNotFoundError, match="folder"):
        synthesizer.sample_to(tmp_path / "none" / "out.csv", 10)


# The command line ---------------------------------------------------------------------


@pytest.mark.parametrize("stated", [False, True])
def test_files_are_read_as_a_schema_says_by_chunks(stated, folder, monkeypatch):
    schema = Schema([*SCHEMA.columns, Column("note", "categorical", levels=["y"])])
    schema = schema if stated else Schema([])
    monkeypatch.setattr(rows, "CHUNK", 50)
    read = files.stream_table(folder / "parts", schema)
    expected = files.stream_table(folder / "whole.parquet", schema).whole()
    pd.testing.assert_frame_equal(read.whole(), expected)
    assert read.dtypes.equals(expected.dtypes)
    one, other = fitted(read, schema=schema), fitted(expected, schema=schema)
    assert_same(one, other)


ENTRIES = Schema(
    [
        Column(
            "id", "categorical", levels=["007", "7", "a,b", 'say "x"', "two\nlines"]
        ),
        Column("n", "integer", lower=0, upper=9),
        Column("x", "continuous"),
        Column("ok", "boolean"),
        Column("on", "datetime"),
        Column("took", "timedelta"),
        Column("note", "categorical"),
    ]
)
LINES = [
    '007,1,1.5,yes,2024-01-31,1 days,"a,b"',
    '"a,b",,,,,,',
    '"say ""x""",3,1e400,maybe,31.1.2024,soon," padded "',
    "7,1.0,2,no,2024-02-29T12:00:00+02:00,02:00:00,NA",
    "",
    '"two\nlines",99999999999999999999,-.5,1,9999-12-31,-1 days,007',
    "nothing,k. A.,k. A.,k. A.,k. A.,k. A.,k. A.",
]


@pytest.mark.thin(8)
@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
def test_csv_files_are_read_by_chunks_as_they_are_whole(
    suffix, chunk, tmp_path, monkeypatch
):
    path, form = tmp_path / f"rows{suffix}", files.CsvFormat(na=("k. A.",))
    opened = gzip.open if suffix == ".csv.gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("\n".join([",".join(ENTRIES.names), *LINES * 3]))
    text = files.read_text(path, form)
    expected = files._in_dtypes(text, ENTRIES, form)
    monkeypatch.setattr(files, "CHUNK", chunk)
    read = files.stream_table(path, ENTRIES, form)
    assert read.dtypes.equals(expected.dtypes)
    assert len(read) == len(expected) == 3 * 6
    pd.testing.assert_frame_equal(read.whole(), expected)
    for part in read.parts(["note", "id"]):
        assert list(part.columns) == ["note", "id"]
        assert len(part) <= chunk
    one, other = (fitted(rows, schema=ENTRIES) for rows in (read, expected))
    assert_same(one, other)


def test_fit_takes_a_csv_file(tmp_path, monkeypatch):
    path = tmp_path / "rows.CSV"
    frame = table().to_pandas().drop(columns=["weight", "spend", "note", "ok", "since"])
    frame.to_csv(path, index=False)
    expected = fitted(files.stream_table(path, SCHEMA).whole(), schema=SCHEMA)
    assert_same(fitted(str(path), schema=SCHEMA), expected)
    monkeypatch.setattr(files, "CHUNK", 70)
    assert_same(fitted(path, schema=SCHEMA), expected)
    with pytest.raises(ValueError, match="lacks the columns"):
        fitted(path)


def test_what_a_csv_file_holds_is_not_told(tmp_path, monkeypatch):
    path = tmp_path / "rows.csv"
    path.write_text("n\n1\n2\n3,271828\n")
    schema = Schema([Column("n", "integer")])
    with pytest.raises(ValueError, match="as many entries as the first") as error:
        files.stream_table(path, schema)
    assert "271828" not in str(error.value)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
@pytest.mark.parametrize(("last", "is_whole"), [('"x\ny";', True), ("x\ny;", False)])
def test_a_line_that_a_break_cuts_is_refused_whatever_the_packing(
    suffix, last, is_whole, tmp_path
):
    path = tmp_path / f"rows.csv{suffix}"
    opened = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(suffix, open)
    with opened(path, "wt") as file:
        file.write(f"a;b\n1;2\n \n\n3;\n{last}\n")
    schema = Schema([Column("a", "categorical"), Column("b", "integer")])
    form = files.CsvFormat(sep=";")
    for read in (files.read_text, partial(files.stream_table, schema=schema)):
        if is_whole:
            assert len(read(path, form=form)) == 3
            continue
        with pytest.raises(ValueError, match="as many entries as the first"):
            read(path, form=form)


def test_the_text_of_a_csv_file_is_on_disk_under_no_name(tmp_path, monkeypatch):
    path, folder, seen = tmp_path / "rows.csv", tmp_path / "temporary", []
    path.write_text("n\n1\n2\n3\n")
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    begin = pa.ipc.new_file

    def watched(file, schema):
        status = os.fstat(file.fileno())
        seen.append((stat.S_IMODE(status.st_mode), status.st_nlink))
        return begin(file, schema)

    monkeypatch.setattr(pa.ipc, "new_file", watched)
    read = files.stream_table(path, Schema([Column("n", "integer")]))
    path.unlink()
    assert read.whole()["n"].tolist() == read.whole()["n"].tolist() == [1, 2, 3]
    assert seen == [(0o600, 0)]
    assert not list(folder.iterdir())


# Temporary files ----------------------------------------------------------------------


def test_codes_are_on_disk_under_no_name(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen = []
    fill = os.posix_fallocate

    def watched(handle, *range_):
        fill(handle, *range_)
        status = os.fstat(handle)
        seen.append((stat.S_IMODE(status.st_mode), status.st_nlink))
        assert not list(tmp_path.iterdir())

    monkeypatch.setattr(os, "posix_fallocate", watched)
    fitted(folder / "whole.parquet")
    assert seen == [(0o600, 0)]


def test_a_full_disk_is_an_error(folder, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        fitted(folder / "whole.parquet")


# Interruptions ------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("when", ["marginals", "codes", "training"])
def test_an_interrupted_fit_goes_on_or_begins_anew(when, folder, tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "CHUNK", 50)
    monkeypatch.setattr("dpgenerative.persistence.checkpoint.EVERY", 0.0)
    expected = fitted(folder / "whole.parquet")
    kept, synthesizer = (
        tmp_path / "kept",
        DPHFlowSynthesizer(
            epsilon=2.0, random_state=7, noise="reproducible", n_steps=8
        ),
    )
    with monkeypatch.context() as patched:
        _interrupt(when, patched)
        with pytest.raises(KeyboardInterrupt):
            synthesizer.fit(folder / "whole.parquet", checkpoint=kept)
    assert kept.exists() == (when == "training")
    synthesizer.fit(folder / "whole.parquet", checkpoint=kept)
    assert not kept.exists()
    assert_same(synthesizer, expected)


def _interrupt(when, patched):
    if when == "training":
        step = loop.LoopState.state

        def state(self):
            if self.schedule.last_epoch == 5:
                raise KeyboardInterrupt
            return step(self)

        patched.setattr(loop.LoopState, "state", state)
        return
    parts = rows.Rows.parts

    def interrupted(self, names=None):
        for i, part in enumerate(parts(self, names)):
            if i == 3 and (names is None) == (when == "codes"):
                raise KeyboardInterrupt
            yield part

    patched.setattr(rows.Rows, "parts", interrupted)


def test_a_checkpoint_of_other_rows_is_refused(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("dpgenerative.persistence.checkpoint.EVERY", 0.0)
    synthesizer = DPHFlowSynthesizer(n_steps=8)
    with monkeypatch.context() as patched:
        _interrupt("training", patched)
        with pytest.raises(KeyboardInterrupt):
            synthesizer.fit(folder / "whole.parquet", checkpoint=tmp_path / "kept")
    pq.write_table(table(seed=1), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="of a fit of other rows"):
        synthesizer.fit(tmp_path / "other.parquet", checkpoint=tmp_path / "kept")


# Errors -------------------------------------------------------------------------------


def test_files_of_other_types_are_refused(folder, tmp_path):
    pq.write_table(table(20), tmp_path / "0.parquet")
    other = table(20).set_column(0, "age", pa.array(np.arange(20) + 0.5))
    pq.write_table(other, tmp_path / "1.parquet")
    with pytest.raises(ValueError, match=r"same columns and types.*\['age'\]"):
        fitted(tmp_path)


def test_what_a_query_says_of_values_is_left_out(folder):
    pl = pytest.importorskip("polars")
    query = pl.scan_parquet(folder / "whole.parquet")
    query = query.with_columns(note=pl.col("note").cast(pl.Int64))
    with pytest.raises(ValueError, match="cannot be read") as caught:
        fitted(query)
    assert not {"x", "y", "'x'", "'y'"} & set(str(caught.value).split())
    assert caught.value.__suppress_context__
    assert not str(caught.value.__context__)


def test_rows_that_change_on_the_way_are_refused(folder):
    read = rows.streamed("test", folder / "whole.parquet")
    for n in (N_ROWS - 1, N_ROWS + 1):
        read.n = n
        with pytest.raises(ValueError, match="has changed") as caught:
            list(read.parts())
        assert not any(word.isdigit() for word in str(caught.value).split())


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("none.parquet", "does not exist"),
        ("none*.parquet", "matches no file"),
        ("", "holds no .parquet file"),
    ],
)
def test_what_is_no_file_is_said_to_be_none(path, why, tmp_path):
    with pytest.raises(FileNotFoundError, match=why):
        fitted(tmp_path / path)


def test_what_is_no_parquet_is_said_to_be_none(tmp_path):
    (tmp_path / "a.parquet").write_text("secret")
    with pytest.raises(ValueError, match="not a Parquet file, or is damaged") as error:
        fitted(tmp_path / "a.parquet")
    assert "secret" not in str(error.value)


def test_an_empty_file_has_too_few_rows(tmp_path):
    pq.write_table(table().slice(0, 0), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="0 sample"):
        fitted(tmp_path / "a.parquet")


def test_what_reads_no_chunks_says_so(folder):
    path = folder / "whole.parquet"
    with pytest.raises(TypeError, match="y must be a column of X"):
        DPHFlowSynthesizer().fit(path, np.zeros(N_ROWS))
    with pytest.raises(TypeError, match="fit alone"):
        fitted(table()).score(path)
    with pytest.raises(TypeError, match="fit alone"):
        SCHEMA.check(ds.dataset(path))
    with pytest.raises(TypeError, match="fit alone"):
        PrivateSearch(DPHFlowSynthesizer(), {"n_steps": [3]}).fit(path)
    with pytest.raises(TypeError, match="fit alone"):
        SyntheticClassifier().fit(path, np.zeros(N_ROWS, dtype=int))


def test_a_parquet_file_that_repeats_a_name_is_no_damage(tmp_path):
    pq.write_table(
        pa.table([[1], [2], [3]], names=["a", "b", "a"]), tmp_path / "a.parquet"
    )
    for path in (tmp_path / "a.parquet", tmp_path):
        with pytest.raises(
            ValueError, match=r"distinct column names; repeated: \['a'\]"
        ):
            fitted(path)


def test_what_parquet_has_no_type_for_is_written_as_csv(tmp_path):
    frame = pd.DataFrame({"a": pd.Series(["p", 1, True] * 200, dtype=object)})
    model = DPHFlowSynthesizer(epsilon=20.0, n_steps=2).fit(frame)
    with pytest.raises(ValueError, match=r"Parquet has no type .* write a \.csv file"):
        model.sample_to(tmp_path / "a.parquet", 50)
    assert not any(tmp_path.iterdir())
    model.sample_to(tmp_path / "a.csv", 50)
    assert len(pd.read_csv(tmp_path / "a.csv")) == 50
