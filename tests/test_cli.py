"""The command line: what it writes, what it refuses, what it must not look at."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    Schema,
    _progress,
    load,
    metrics,
)
from dpgenerative.cli import COMMANDS, main
from dpgenerative.exceptions import UnsupportedColumnError
from dpgenerative.metrics.losses import lost_values
from dpgenerative.synthesizers import tables, writing
from dpgenerative.tables import entries, files
from dpgenerative.tables.drafts import ASK, MARK, NOTE, draft_schema, unmarked_schema
from dpgenerative.tables.files import (
    CsvFormat,
    read_as_written,
    stream_table,
    write_table,
)

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

ROOT = Path(__file__).parents[1]
SCHEMA = Schema(
    [
        Column("age", "integer", lower=0, upper=120),
        Column("income", "continuous"),
        Column("member", "boolean"),
        Column("city", "categorical"),
        Column("pain", "categorical", levels=[0, 1, 2, 3], ordered=True),
        Column("ward", "categorical", levels=["A", "B", "01"]),
    ]
)
FIT = "fit data.parquet --epsilon 1 -o m"
FAST = ["--quiet", "--set", "n_steps=5", "--set", "batch_size=50"]


def patients(n=120, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.lognormal(7, 1, n).round(2),
            "member": rng.random(n) < 0.5,
            "city": rng.choice(["Oslo", "Rome"], n),
            "pain": rng.integers(0, 4, n),
            "ward": rng.choice(["A", "B", "01"], n),
        }
    )
    frame.loc[3, "city"] = None
    return frame


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    patients().to_csv("data.csv", index=False)
    patients().to_parquet("data.parquet")
    Path("schema.json").write_text(json.dumps(SCHEMA.to_dict()), encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    patients().to_csv(path / "data.csv", index=False)
    (path / "schema.json").write_text(json.dumps(SCHEMA.to_dict()), encoding="utf-8")
    arguments = ["fit", path / "data.csv", "--schema", path / "schema.json"]
    arguments += ["--epsilon", "2", "-o", path / "model.dpg", *FAST]
    assert main([str(a) for a in arguments]) == 0
    return str(path / "model.dpg")


def refused(capsys, arguments, code=2):
    """Run a command that must fail; return the one line that says why."""
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("dpgenerative")
    assert captured.err.count("\n") == 1
    return captured.err


class Fake:
    """Stand in for the page."""

    def save(self, path):
        Path(path).write_text("page")


def parts_left(folder):
    return sorted(p.name for p in folder.iterdir() if p.name.endswith(".part"))


# Commands -----------------------------------------------------------------------------


def test_fit_sample_and_report(folder, capsys):
    arguments = ["fit", "data.csv", "--schema", "schema.json", "--epsilon", "1.5"]
    arguments += ["--delta", "1e-6", "--model", "vae", "-o", "model.dpg", *FAST]
    arguments += ["--set", "architecture__hidden_units=3"]
    assert main([*arguments, "--set", "conditional=ward"]) == 0
    printed = capsys.readouterr().out
    assert "(1.5, 1e-06)-differential privacy" in printed
    synthesizer = load("model.dpg")
    assert type(synthesizer).__name__ == "DPVAESynthesizer"
    assert (synthesizer.epsilon, synthesizer.delta) == (1.5, 1e-6)
    assert (synthesizer.n_steps_, synthesizer.conditional) == (5, "ward")
    assert synthesizer.architecture.hidden_units == 3
    assert main(["report", "model.dpg"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["sample", "model.dpg", "-n", "7", "-o", "out.csv"]) == 0
    assert pd.read_csv("out.csv").shape == (7, 6)
    assert parts_left(folder) == []


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_sample_writes_what_sample_returns(model_file, suffix, tmp_path):
    out = tmp_path / f"out{suffix}"
    arguments = ["sample", model_file, "-n", "50", "-o", str(out)]
    assert main([*arguments, "--random-state", "3"]) == 0
    expected = load(model_file).sample(50, random_state=3)
    if suffix == ".parquet":
        # Parquet has no categories of numbers, and pandas 3 strings of its own.
        found = pd.read_parquet(out).astype(expected.dtypes[["pain", "city"]])
        pd.testing.assert_frame_equal(found, expected)
    else:
        assert out.read_text() == expected.to_csv(index=False)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_samples_are_written_part_by_part(
    model_file, suffix, tmp_path, monkeypatch
):
    written = []

    def recorded(parts, *rest):
        return write_table((written.append(len(p)) or p for p in parts), *rest)

    monkeypatch.setattr(writing, "write_table", recorded)
    monkeypatch.setattr(tables, "SAMPLE_CHUNK", 40)
    out = tmp_path / f"out{suffix}"
    arguments = ["sample", model_file, "-n", "100", "--random-state", "5"]
    assert main([*arguments, "-o", str(out)]) == 0
    assert written == [40, 40, 20]
    expected = load(model_file).sample(100, random_state=5)
    if suffix == ".parquet":
        assert pq.ParquetFile(out).num_row_groups == 3
        found = pd.read_parquet(out).astype(expected.dtypes[["pain", "city"]])
        pd.testing.assert_frame_equal(found, expected)
    else:
        assert out.read_text() == expected.to_csv(index=False)


def test_samples_are_fresh_without_a_seed(model_file, tmp_path):
    for name in ("one.csv", "two.csv"):
        arguments = ["sample", model_file, "-n", "50", "-o", str(tmp_path / name)]
        assert main(arguments) == 0
    assert (tmp_path / "one.csv").read_text() != (tmp_path / "two.csv").read_text()


def test_a_column_that_starts_without_values_is_text_in_parquet(tmp_path):
    parts = [pd.DataFrame({"a": [None, None]}), pd.DataFrame({"a": ["x", None]})]
    write_table(parts, tmp_path / "out.parquet", ".parquet")
    found = pd.read_parquet(tmp_path / "out.parquet")["a"]
    assert [None if pd.isna(v) else v for v in found] == [None, None, "x", None]


@pytest.mark.thorough
def test_report_compares_with_real_rows(folder, model_file, capsys):
    patients(seed=1).to_parquet("holdout.parquet")
    arguments = ["report", model_file, "--real", "data.csv", "--holdout"]
    arguments += ["holdout.parquet", "--target", "member", "-o", "page.html"]
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("Report(")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "not for release" in page
    assert "member" in page


def test_public_rows(folder):
    patients(seed=2).to_csv("public.csv", index=False)
    arguments = ["fit", "data.csv", "--schema", "schema.json", "--epsilon", "1"]
    assert main([*arguments, "--public", "public.csv", "-o", "m.dpg", *FAST]) == 0
    column = load("m.dpg").schema_["income"]
    public = patients(seed=2)["income"]
    assert (column.lower, column.upper) == (public.min(), public.max())


def test_no_privacy_is_said(folder, capsys):
    arguments = ["fit", "data.parquet", "--epsilon", "none", "-o", "m.dpg", *FAST]
    assert main(arguments) == 0
    assert "NO PRIVACY" in capsys.readouterr().out


def test_progress_is_shown_in_terminals_unless_it_is_not_wanted(
    folder, capsys, monkeypatch
):
    arguments = ["fit", "data.parquet", "--epsilon", "none", "-o", "m.dpg"]
    arguments += ["--set", "n_steps=3", "--force"]
    assert main(arguments) == 0
    assert capsys.readouterr().err == ""  # a log would keep every state of the bar
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(arguments) == 0
    assert "training" in capsys.readouterr().err
    assert main([*arguments, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", COMMANDS, ids=lambda run: run.__name__)
def test_every_command_has_help(command, capsys):
    assert main([command.__name__, "--help"]) == 0
    printed = capsys.readouterr().out
    assert all(names[-1] in printed for names, _ in COMMANDS[command])


def test_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "dpgenerative", "sample"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "-n/--n-samples" in done.stderr


@pytest.mark.thorough
def test_a_warning_is_one_line(folder):
    words = [f"word{i}" for i in range(60)]
    pd.DataFrame({"notes": words}).to_parquet("words.parquet")
    command = "fit words.parquet --epsilon 1 -o model.dpg --quiet --set n_steps=2"
    done = subprocess.run(
        [sys.executable, "-m", "dpgenerative", *command.split()],
        capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    lines = done.stderr.splitlines()
    assert all(line.startswith("dpgenerative: warning: ") for line in lines)
    assert any("to be released in notes" in line for line in lines)


def test_a_model_is_saved_where_its_warnings_are_errors(folder):
    pd.DataFrame({"n": range(9)}).to_parquet("few.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["fit", "few.parquet", "-o", "few.dpg", "--epsilon", "0.1"]) == 1
    assert main(["sample", "few.dpg", "-n", "3", "-o", "drawn.csv"]) == 0


def test_formats_of_warnings_are_put_back(capsys):
    usual = warnings.formatwarning
    assert main(["report", "missing.dpg"]) == 2
    assert warnings.formatwarning is usual


# Refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "required: command"),
        ("nope", "invalid choice: 'nope'"),
        ("fit data.csv -o m.dpg", "arguments --epsilon --noise-multiplier is required"),
        ("fit data.csv --epsilon x -o m", "invalid number value: 'x'"),
        ("fit data.csv --epsilon 1 -o m", "`dpgenerative schema` drafts"),
        ("fit no.csv --epsilon 1 -o m", "There is no file no.csv."),
        ("fit data.txt --epsilon 1 -o m", "must end in .csv or"),
        ("fit data.csv --epsilon 1 -o a/m", "folder a does not exist"),
        ("fit data.csv --epsilon 1 -o .", "is a folder"),
        ("fit data.csv --epsilon 1 -o data.csv", "--force replaces it"),
        ("fit data.parquet --epsilon -1 -o m", "must be a number in"),
        (f"{FIT} --set n_steps", "--set takes name=value"),
        (f"{FIT} --set architecture__n_blocks=0", "'architecture__n_blocks' of DP"),
        (f"{FIT} --set architecture__n_blocs=1", "--set takes name=value"),
        (f"{FIT} --set verbose=1", "--set takes name=value"),
        (f"{FIT} --schema data.csv", "is not a JSON file"),
        ("sample data.csv -n 5 -o o.csv", "is not a model file"),
        ("sample data.csv -n 5 -o o.txt", "must end in .csv or"),
        ("sample m -n x -o o.csv", "invalid int value: 'x'"),
        ("sample m -n 5 -o o.csv.gz", "must end in .csv or"),
        ("sample m -n 5 -o o.csv --random-state -1", "invalid seed value: '-1'"),
        ("schema data.csv -o o --sep ::", "must be one character or"),
        ("schema data.csv -o o --encoding x", "must be one of text that"),
        ("schema data.csv -o o --encoding base64", "must be one of text that"),
        ("schema data.csv -o schema.json", "--force replaces it"),
        ("report data.csv --target age", "--target needs --real"),
        ("report data.csv --refits 5", "--refits needs --real"),
        ("report data.csv --real data.csv", "--real needs --output"),
        ("report m --real data.csv -o p --target age", "--target needs --holdout"),
    ],
)
def test_wrong_usage_is_refused_in_one_line(command, said, folder, capsys):
    before = sorted(p.name for p in folder.iterdir())
    assert said in refused(capsys, command.split())
    assert sorted(p.name for p in folder.iterdir()) == before


def test_refusals_that_need_a_model(folder, model_file, capsys):
    sample = ["sample", model_file, "-n", "0", "-o", "o.csv"]
    assert "at least 1" in refused(capsys, sample)
    patients().drop(columns="age").to_parquet("narrow.parquet")
    report = ["report", model_file, "--real", "narrow.parquet", "-o", "page.html"]
    assert "lacks columns that were fitted: ['age']" in refused(capsys, report)
    for name, part in (("real.csv", patients()[:60]), ("holdout.csv", patients()[60:])):
        part.to_csv(name, index=False)
    rows = ["--real", "real.csv", "--holdout", "holdout.csv", "-o", "p"]
    target = ["report", model_file, *rows, "--target", "x"]
    assert "'x'" in refused(capsys, [*target, "--quiet"])
    assert not Path("p").exists()


def test_report_judges_the_rows_as_they_are(folder, capsys, monkeypatch):
    """Read by the levels found, zip codes would be missing in the real table too."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {
            "zip": [f"{code:05d}" for code in rng.integers(0, 300, 400)],
            "ward": rng.choice(["A", "B", "C"], 400),
            "well": rng.choice(["yes", "no", "perhaps"], 400),
        }
    )
    rows.to_csv("rows.csv", index=False)
    facts = Schema(
        [
            Column("zip", "categorical"),
            Column("ward", "categorical", levels=["A", "B"]),
            Column("well", "boolean"),
        ]
    )
    Path("facts.json").write_text(json.dumps(facts.to_dict()), encoding="utf-8")
    fit = ["fit", "rows.csv", "--schema", "facts.json", "--epsilon", "1", "-o", "m.dpg"]
    assert main([*fit, *FAST]) == 0
    seen = []
    monkeypatch.setattr(
        metrics, "report", lambda *tables, **_: seen.append(tables) or Fake()
    )
    report = ["report", "m.dpg", "--real", "rows.csv", "-o", "page.html", "--quiet"]
    assert main(report) == 0
    real, fake = seen[0]
    assert real["zip"].tolist() == rows["zip"].tolist()
    assert real["ward"].tolist() == rows["ward"].tolist()
    words = {True: "yes", False: "no", "perhaps": "perhaps"}
    assert [words[word] for word in real["well"]] == rows["well"].tolist()
    assert {"zip", "ward", "well"} == set(lost_values(real, fake)["column"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_report_leaves_out_columns_that_were_not_fitted(
    suffix, folder, model_file, capsys, monkeypatch
):
    seen = []

    def looked_at(real, fake, **_):
        seen.append(list(real.columns))
        return Fake()

    monkeypatch.setattr(metrics, "report", looked_at)
    rows = patients().assign(notes="free text")
    save = rows.to_parquet if suffix == "parquet" else rows.to_csv
    save(f"wide.{suffix}", index=False)
    arguments = ["report", model_file, "--real", f"wide.{suffix}", "-o", "page.html"]
    assert main(arguments) == 0
    assert seen == [list(patients().columns)]
    assert "Written to page.html, which describes real" in capsys.readouterr().out


@pytest.mark.parametrize("reached", [False, True])
def test_interrupted_fits_say_how_to_go_on(reached, folder, capsys, monkeypatch):
    def interrupted(self, X, public, checkpoint):
        if reached:
            Path(checkpoint).write_text("state")
        raise KeyboardInterrupt

    monkeypatch.setattr(DPHFlowSynthesizer, "fit", interrupted)
    arguments = ["fit", "data.parquet", "--epsilon", "1", "-o", "m.dpg", "--quiet"]
    line = refused(capsys, [*arguments, "--checkpoint", "kept"], code=130)
    assert ("goes on from kept" in line) == reached


def test_what_is_there_stays_where_a_command_fails(folder, model_file, capsys):
    Path("out.csv").write_text("old")
    arguments = ["sample", model_file, "-n", "5", "-o", "out.csv"]
    refused(capsys, arguments)
    refused(capsys, ["sample", "data.csv", *arguments[2:], "--force"])
    assert Path("out.csv").read_text() == "old"
    assert main([*arguments, "--force"]) == 0
    assert Path("out.csv").read_text() != "old"
    assert parts_left(folder) == []


def test_the_unexpected_says_no_values(folder, capsys, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a private value")

    monkeypatch.setattr(files, "stream_table", broken)
    arguments = ["fit", "data.csv", "--epsilon", "1", "-o", "m.dpg"]
    line = refused(capsys, arguments, code=1)
    assert "unexpected KeyError" in line
    assert "private" not in line
    with pytest.raises(KeyError):
        main(["--debug", *arguments])


# Checks -------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_check_counts_what_a_schema_would_change(suffix, folder, capsys):
    frame = patients().astype({"age": str})
    frame.loc[:9, "age"], frame.loc[5:7, "ward"] = "n/a", "Z"
    frame.loc[10:13, "age"], frame["income"] = "130", 0.123
    write = frame.to_csv if suffix == "csv" else frame.to_parquet
    write(f"odd.{suffix}", index=False)
    facts = [*SCHEMA.columns, Column("income", "continuous", resolution=0.1)]
    rounded = Schema({c.name: c for c in facts}.values()).to_dict()
    Path("schema.json").write_text(json.dumps(rounded), encoding="utf-8")
    arguments = ["check", f"odd.{suffix}", "--schema", "schema.json", "-o", "all.csv"]
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines() == [
        "age: no integer, so missing in 10 rows (8.33 %), such as 'n/a'",
        "ward: not among the levels, so missing in 3 rows (2.5 %), such as 'Z'",
        "age: above the upper bound in 4 rows (3.33 %), such as 130",
        "These are values of the rows: not for release.",
    ]
    cells = pd.read_csv("all.csv")
    assert cells["row"].tolist() == [*range(10), 5, 6, 7, *range(10, 14)]
    assert main(["check", "data.csv", "--schema", "schema.json"]) == 0
    assert capsys.readouterr().out == "All fits.\n"
    assert "--force replaces" in refused(capsys, arguments)


def test_a_share_of_all_rows_is_100_percent(folder, capsys):
    patients().assign(age="n/a").to_csv("odd.csv", index=False)
    Path("schema.json").write_text(json.dumps(SCHEMA.to_dict()), encoding="utf-8")
    assert main(["check", "odd.csv", "--schema", "schema.json"]) == 0
    assert "missing in 120 rows (100 %)," in capsys.readouterr().out


# Drafts -------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["data.csv", "data.parquet"])
def test_a_draft_is_refused_until_a_person_has_been_through(folder, data, capsys):
    assert main(["schema", data, "-o", "draft.json"]) == 0
    assert "as closely as the rows" in capsys.readouterr().out
    draft = json.loads(Path("draft.json").read_text())
    fit = f"fit {data} --schema draft.json --epsilon 1 -o m.dpg".split() + FAST
    assert "is a draft, in the columns ['age'" in refused(capsys, fit)
    for column in draft["columns"]:
        column.pop(MARK, None)
    Path("draft.json").write_text(json.dumps(draft))
    assert f"is a draft, but for its '{NOTE}'" in refused(capsys, fit)
    del draft[NOTE]
    Path("draft.json").write_text(json.dumps(draft))
    assert main(fit) == 0


def test_a_draft_marks_what_it_read_off_the_rows(folder):
    columns = {c["name"]: c for c in draft_schema("data.csv")["columns"]}
    assert columns["age"]["kind"] == "integer"
    assert (columns["age"]["lower"], columns["age"]["upper"]) == (18, 89)
    assert columns["age"][MARK] == ["kind", "lower", "upper"]
    assert columns["income"]["kind"] == "continuous"
    assert columns["member"]["kind"] == "boolean"
    assert columns["city"]["levels"] == ["Oslo", "Rome"]
    assert columns["city"][MARK] == ["kind", "levels"]
    by_dtype = {c["name"]: c for c in draft_schema("data.parquet")["columns"]}
    assert by_dtype["age"][MARK] == ["lower", "upper"]
    assert MARK not in by_dtype["member"]


def test_a_draft_of_many_levels_states_none(tmp_path):
    frame = pd.DataFrame({"name": [f"person {i}" for i in range(60)] * 2})
    frame.assign(empty=None).to_csv(tmp_path / "data.csv", index=False)
    name, empty = draft_schema(tmp_path / "data.csv")["columns"]
    assert name == {"name": "name", "kind": "categorical", MARK: ["kind"]}
    assert empty == {"name": "empty", "kind": "categorical", MARK: ["kind"]}


def test_a_draft_knows_dates_and_keys(tmp_path):
    days = pd.date_range("2019-01-31", periods=60).strftime("%Y-%m-%d")
    frame = pd.DataFrame(
        {
            "key": range(900, 960),
            "born": days,
            "seen": days.to_series().to_numpy() + " 12:30",
            "letter": [f"Dear {i}" for i in range(60)],
            "spent": np.arange(60) + 0.5,
            "due": ["2019-01-31"] * 59 + ["soon"],
        }
    )
    frame.loc[7, "born"] = None
    frame.to_csv(tmp_path / "data.csv", index=False)
    columns = draft_schema(tmp_path / "data.csv")["columns"]
    found = {
        c["name"]: (c["kind"], c.get("role"), c.get("resolution")) for c in columns
    }
    assert found == {
        "key": ("integer", "id", None),
        "born": ("datetime", None, "D"),
        "seen": ("datetime", None, "s"),
        "letter": ("categorical", "id", None),
        "spent": ("continuous", None, 0.1),
        "due": ("categorical", None, None),
    }
    assert '"soon"' in columns[-1].pop(ASK)
    for unique in (columns[0], columns[3]):
        assert "Hardly a value repeats" in unique.pop(ASK)
    assert all(set(c) == {"name", MARK, *c[MARK]} for c in columns)
    stated = [{k: v for k, v in c.items() if k != MARK} for c in columns]
    unmarked_schema({"columns": stated}, "draft.json")


@pytest.mark.parametrize("values", [["1st", "2nd", "3rd"], ["a1", "2b"], ["cm", "m"]])
def test_a_draft_asks_nothing_of_plain_text(values, tmp_path):
    pd.DataFrame({"a": values}).to_csv(tmp_path / "data.csv", index=False)
    (column,) = draft_schema(tmp_path / "data.csv")["columns"]
    assert ASK not in column
    assert column["levels"] == sorted(values)


@pytest.mark.parametrize(
    ("values", "kind", "asked"),
    [
        (["$538,000", "$ 1,200.50", "($950)"], "categorical", "signs of money"),
        (["538,000", "1,200,000", "950"], "categorical", "separators of thousands"),
        (["12 €", "1.200 €"], "categorical", "signs of money"),
        (["45%", "7.5 %"], "categorical", "the unit %"),
        (["50 km/h", "", "-7 km/h"], "categorical", "the unit km/h"),
        (["484200,00", "1.200,5", "7"], "categorical", "with --decimal ,"),
        (["09.12.2014", "31.01.2015"], "categorical", 'form[a-z]* "%d.%m.%Y"'),
        (["09/12/2014", "01/11/2015"], "categorical", '"%d/%m/%Y" or "%m/%d/%Y"'),
        (["9/30/1990 0:00:00"], "categorical", '-format "%m/%d/%Y %H:%M:%S"'),
        (["30/09/90 23:05"], "categorical", '-format "%d/%m/%y %H:%M"'),
        (["9/30/1990 8:05 PM"], "categorical", '-format "%m/%d/%Y %I:%M %p"'),
        (["Sep 30, 1990 8:05:00 pm"], "categorical", '"%b %d, %Y %I:%M:%S %p"'),
        (["2001.0", "", "1955.0"], "integer", "are they integers"),
        (["52.370216123456789", "1.5"], "continuous", "to which resolution"),
        (["0127", "9971", "0127"], "categorical", "keep their leading zeros"),
        (["0127", "n/a", "9971"], "categorical", "keep their leading zeros"),
        (["Y", "N", "Y"], "categorical", "come back as they are written"),
        (["7.5", "", "8", "n/a", "6"], "categorical", 'entries such as "n/a"'),
        (["2014-12-09", "-", "2015-01-31"], "categorical", 'Dates, except .* "-"'),
        (["09.12.2014", "-", "31.01.2015"], "categorical", '-format "%d.%m.%Y"'),
        (["09/12/2014", "-", "31/01/2015"], "categorical", '-format "%d/%m/%Y",'),
        (["red", "N/A", "blue"], "categorical", '^Does "N/A" mean missing'),
        (["red", "unknown", "NA"], "categorical", '"unknown" or "NA" mean missing'),
        (
            ["$538,000", "-", "($950)"],
            "categorical",
            'of money.* Does "-" mean missing',
        ),
        (["45%", "none", "none", "7.5 %"], "categorical", 'unit %.* Does "none" mean'),
        (["5", "NA", "NA", "7"], "categorical", '^Does "NA" mean missing'),
    ],
)
def test_a_draft_asks(values, kind, asked, tmp_path):
    pd.DataFrame({"a": values}).to_csv(tmp_path / "data.csv", index=False)
    (column,) = draft_schema(tmp_path / "data.csv")["columns"]
    assert column["kind"] == kind
    assert re.search(asked, column[ASK])
    answered = {"columns": [{k: v for k, v in column.items() if k != MARK}]}
    with pytest.raises(ValueError, match=r"is a draft, in the columns \['a'\]"):
        unmarked_schema(answered, "draft.json")


def drafted(frame, suffix, folder):
    """Return what a draft asks of every column of a table."""
    write = frame.to_csv if suffix == "csv" else frame.to_parquet
    write(folder / f"rows.{suffix}", index=False)
    columns = draft_schema(folder / f"rows.{suffix}")["columns"]
    return {column["name"]: column.get(ASK, "") for column in columns}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_draft_asks_about_clocks_that_are_numbers(suffix, tmp_path):
    hour, minute = np.divmod(np.arange(1440), 60)
    values = {
        "clock": 100 * hour + minute,
        "gaps": pd.Series(100 * hour + minute).where(minute % 7 > 0),
        "year": 2000 + hour,
        "age": minute,
        "amount": 50 * (np.arange(1440) % 49),
        "any": np.arange(1440) % 1000,
    }
    asked = drafted(pd.DataFrame(values), suffix, tmp_path)
    assert {n for n in asked if "Times of a clock" in asked[n]} == {"clock", "gaps"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_draft_asks_about_codes_that_begin_with_another_column(suffix, tmp_path):
    state = np.arange(40) % 4 + 11
    values = {
        "state": state,
        "county": 1000 * state + np.arange(40) % 31,
        "chapter": [f"K{i % 3}" for i in range(40)],
        "code": [f"K{i % 3}.{i % 23}" for i in range(40)],
        "year": 20,
        "near": [f"{s}x{i % 25}" for i, s in enumerate([*state[:-1], 99])],
    }
    frame = pd.DataFrame(values)
    frame.loc[[0, 7], "chapter"] = frame.loc[5, "code"] = None
    asked = drafted(frame, suffix, tmp_path)
    nested = {n: q for n, q in asked.items() if "Every entry begins" in q}
    assert set(nested) == {"county", "code"}
    assert 'begins with that of "state",' in nested["county"]
    assert 'begins with that of "chapter",' in nested["code"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_draft_asks_about_numbers_that_mean_missing(suffix, tmp_path):
    rng = np.random.default_rng(0)
    age, few = rng.integers(18, 95, 400), rng.integers(1, 5, 400)
    rare = np.arange(400) < 9
    values = {
        "age": np.where(rare, 999, age),
        "below": np.where(rare, -999, age),
        "answer": np.where(rare, 9, np.where(np.arange(400) % 50 == 10, 8, few)),
        "weight": np.where(rare, -1e4, age + 0.25),
        "once": np.where(np.arange(400) < 1, 999, age),
        "near": np.where(rare, 99, age),
        "dense": np.where(rare, 52_864.7, age),
        "change": age - 50,
        "signed": np.where(rare, -1, few),
        "flag": age % 2,
        "one": 7,
    }
    asked = drafted(pd.DataFrame(values), suffix, tmp_path)
    codes = {n: q for n, q in asked.items() if "counts in means" in q}
    assert set(codes) == {"age", "below", "answer", "weight", "signed"}
    assert "Does 999 mean missing?" in codes["age"]
    assert "--na=-999," in codes["below"]
    assert re.search(r"Does (8 or 9|9 or 8) mean", codes["answer"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_draft_asks_about_keys_of_persons_with_several_rows(suffix, tmp_path):
    rng = np.random.default_rng(0)
    patient = rng.integers(0, 100, 500)
    values = {
        "patient": patient,
        "label": [f"P{i}" for i in patient],
        "sex": patient % 2,
        "cost": rng.integers(0, 1000, 500),
        "age": rng.integers(0, 90, 500),
        "site": "A",
        "few": patient % 4,
    }
    frame = pd.DataFrame(values)
    frame.loc[3, "sex"] = None
    asked = drafted(frame, suffix, tmp_path)
    keys = {n: q for n, q in asked.items() if "with several rows?" in q}
    assert set(keys) == {"patient", "label"}
    assert 'agree in "label" and "sex" and "few".' in keys["patient"]
    assert '"role": "unit"' in keys["patient"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_draft_asks_about_free_text(suffix, tmp_path):
    notes = pd.Series([f"came on foot, {i}" for i in range(100)])
    values = {
        "notes": notes,
        "gaps": notes.where(notes.index % 9 > 0),
        "often": notes.where(notes.index % 3 > 0, "nothing to report"),
        "rarely": notes.where(notes.index % 3 < 1, "nothing to report"),
        "town": ["Oslo", "Rome"] * 50,
    }
    asked = drafted(pd.DataFrame(values), suffix, tmp_path)
    free = {n for n in asked if "Free text and names cannot be learned" in asked[n]}
    assert free == {"notes", "gaps", "often"}


def test_a_draft_reads_every_different_text_once(tmp_path, monkeypatch):
    """Of 336,776 flights it took three times as long as the fit."""
    read, instants_of = [], entries.instants_of

    def counted(series, form):
        read.append(len(series))
        return instants_of(series, form)

    monkeypatch.setattr(entries, "instants_of", counted)
    frame = pd.DataFrame({"a": ["x", "y"] * 2000, "b": ["1", "2", "NA", "4"] * 1000})
    frame["c"] = [f"note {i}" for i in range(4000)]
    drafted(frame, "csv", tmp_path)
    assert sum(read) < 5 * len(frame)


@pytest.mark.parametrize("quiet", [True, False])
def test_a_long_draft_has_a_progress_bar(quiet, folder, monkeypatch):
    bars = []

    def bar(items, description, **options):
        bars.append((description, options))
        return items

    monkeypatch.setattr(_progress, "tqdm", bar)
    arguments = ["schema", "data.csv", "-o", "draft.json", *["--quiet"] * quiet]
    assert main(arguments) == 0
    options = {"disable": True if quiet else None, "delay": 5}
    assert bars == [("parts read", options), ("draft", options)]


def test_a_draft_asks_whether_one_column_is_several(tmp_path):
    (tmp_path / "data.csv").write_text("a;b\n1;2\n")
    (column,) = draft_schema(tmp_path / "data.csv")["columns"]
    assert "--sep states it" in column[ASK]


def test_a_draft_asks_nothing_that_it_knows(tmp_path):
    values = {
        "a": ["0.25", "1.50"],
        "b": ["1", "2"],
        "c": ["x", "N"],
        "d": ["true", ""],
        "e": ["1", "x"],
    }
    pd.DataFrame(values).to_csv(tmp_path / "data.csv", index=False)
    columns = draft_schema(tmp_path / "data.csv")["columns"]
    assert not any(ASK in column for column in columns)
    assert columns[0]["resolution"] == 0.01
    assert columns[0][MARK] == ["kind", "lower", "upper", "resolution"]


@pytest.mark.parametrize(
    ("values", "resolution"),
    [
        (["1.5e-3", "2.5"], 1e-4),
        (["1E-5", "1e2"], 1e-5),
        (["2.125 ", "1.5"], 0.001),
        (["1.50", "200"], 0.1),
    ],
)
def test_a_draft_counts_decimals(values, resolution, tmp_path):
    pd.DataFrame({"a": values}).to_csv(tmp_path / "data.csv", index=False)
    (column,) = draft_schema(tmp_path / "data.csv")["columns"]
    assert column["resolution"] == resolution
    assert ASK not in column


GERMAN = CsvFormat(";", "latin-1", ",", ("NA", "k. A."), "%d.%m.%Y")


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz"])
def test_csv_files_of_other_forms(suffix, tmp_path, capsys):
    text = "Größe;Preis;am;x\n1,85;1.200,50;09.12.2014;NA\nk. A.;7;x;Käse\n"
    path = tmp_path / f"data.csv{suffix}"
    opened = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}[suffix]
    with opened(path, "wt", encoding="latin-1") as file:
        file.write(text)
    numbers = [Column(name, "continuous") for name in ("Größe", "Preis")]
    others = [Column("am", "datetime"), Column("x", "categorical")]
    frame = stream_table(path, Schema([*numbers, *others]), form=GERMAN).whole()
    assert frame["Größe"].tolist() == [1.85, pd.NA]
    assert frame["Preis"].tolist() == [1200.5, 7]
    assert frame["am"].tolist() == [pd.Timestamp("2014-12-09"), pd.NaT]
    assert frame["x"].tolist() == [None, "Käse"]
    options = ["--sep", ";", "--encoding", "latin-1", "--decimal", ",", "--na", "NA"]
    options += ["--na", "k. A.", "--date-format", "%d.%m.%Y"]
    out = tmp_path / "draft.json"
    assert main(["schema", str(path), "-o", str(out), *options]) == 0
    draft = out.read_text(encoding="utf-8")
    assert '"Größe"' in draft
    kinds = [column["kind"] for column in json.loads(draft)["columns"]]
    assert kinds == ["continuous", "continuous", "categorical", "categorical"]


def test_another_separator_is_asked_about(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("age;ward\n31;A\n")
    with pytest.raises(ValueError, match=r"single column, 'age;ward'.*--sep"):
        stream_table(path, Schema([Column("age", "integer")])).whole()


def test_points_are_thousands_in_groups_of_three_only(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("on;fee\n17.06.2014;1.200,50\n18.09.2014;-2,5e-05\n", "utf-8")
    days, fees = draft_schema(path, GERMAN)["columns"]
    assert (days["kind"], fees["kind"]) == ("datetime", "continuous")
    asked = draft_schema(path, CsvFormat(";", decimal=","))["columns"][0][ASK]
    assert '--date-format "%d.%m.%Y"' in asked
    path.write_text("on;fee\n2014-06-17;1,5\n2014-09-18;7\n", "utf-8")
    asked = draft_schema(path, GERMAN)["columns"][0][ASK]
    assert '--date-format "%Y-%m-%d"' in asked
    path.write_text("fee\n1.200,50\n-2,5e-05\n484.20\n,5\n", "utf-8")
    schema = Schema([Column("fee", "continuous")])
    fees = stream_table(path, schema, GERMAN).whole()["fee"]
    assert fees.tolist() == [1200.5, -2.5e-05, pd.NA, 0.5]


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_damaged_compressed_files_are_refused(suffix, tmp_path):
    (tmp_path / f"data.csv{suffix}").write_bytes(b"a\n1\n")
    with pytest.raises((ValueError, OSError)):
        stream_table(tmp_path / f"data.csv{suffix}", Schema([Column("a", "integer")]))


def test_fit_and_report_take_the_form_of_a_file(folder, capsys):
    patients().to_csv("data.tsv.csv", sep="\t", decimal=",", index=False)
    form = ["--sep", "tab", "--decimal", ","]
    fit = ["fit", "data.tsv.csv", "--schema", "schema.json", "--epsilon", "none", *form]
    assert main([*fit, "-o", "m.dpg", *FAST]) == 0
    real = ["report", "m.dpg", "--real", "data.tsv.csv", "-o", "page.html", *form]
    assert main([*real, "--quiet"]) == 0


def test_a_drafted_file_says_how_rows_are_written(folder, capsys):
    table = patients().assign(notes="x")
    table["on"] = "09.12.2014"
    table.loc[:9, "on"] = "24.12.2014"
    table.to_csv("t.csv", sep=";", decimal=",", index=False, na_rep="k. A.")
    form = ["--sep", ";", "--decimal", ",", "--date-format", "%d.%m.%Y"]
    assert main(["schema", "t.csv", "-o", "s.json", "--na", "k. A.", *form]) == 0
    draft = json.loads(Path("s.json").read_text(encoding="utf-8"))
    stated = {"sep": ";", "decimal": ",", "na": ["k. A."], "date_format": "%d.%m.%Y"}
    assert draft["csv"] == stated
    assert draft["without"] == []
    columns = [*SCHEMA.to_dict()["columns"], {"name": "on", "kind": "datetime"}]
    columns[-1] |= {"lower": "2014-01-01", "upper": "2014-12-31", "resolution": "D"}
    facts = {"csv": stated, "columns": columns, "without": ["notes"]}
    Path("s.json").write_text(json.dumps(facts), encoding="utf-8")
    capsys.readouterr()
    assert main(["check", "t.csv", "--schema", "s.json"]) == 0
    assert capsys.readouterr().out == "All fits.\n"
    fit = ["fit", "t.csv", "--schema", "s.json", "--epsilon", "none", "-o", "m.dpg"]
    assert main([*fit, *FAST]) == 0
    drawn = load("m.dpg").sample(20, random_state=0)
    assert drawn["on"].notna().all()
    assert "notes" not in drawn
    real = ["report", "m.dpg", "--real", "t.csv", "-o", "page.html", "--quiet"]
    assert main([*real, "--schema", "s.json"]) == 0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"csv": {"seperator": ";"}}, "'csv' .* must be a dictionary of"),
        ({"csv": ";"}, "'csv' .* must be a dictionary of"),
        ({"csv": {"sep": ";;"}}, "'sep' .* must be one character"),
        ({"csv": {"na": "NA"}}, "'na' .* must be a list"),
        ({"csv": {"decimal": ";"}}, "'decimal' .* must be a point or comma"),
        ({"csv": {"date_format": "d"}}, "must be one of datetime.strptime"),
        ({"without": "age"}, "'without' .* must be a list of names"),
        ({"without": ["age"]}, "leaves out columns that it states: .'age'"),
        ({"without": ["ages"]}, "lacks columns that are to be left out: .'ages'"),
    ],
)
def test_wrong_entries_of_a_schema_file_spend_nothing(entry, said, folder, capsys):
    facts = {**SCHEMA.to_dict(), **entry}
    Path("s.json").write_text(json.dumps(facts), encoding="utf-8")
    fit = ["fit", "data.csv", "--schema", "s.json", "--epsilon", "1", "-o", "m.dpg"]
    assert re.search(said, refused(capsys, fit))
    assert not Path("m.dpg").exists()


def test_types_of_parquet_that_pandas_has_not(tmp_path):
    table = pa.table(
        {
            "fee": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "count": pa.array([Decimal(1), None], pa.decimal128(9, 0)),
        }
    )
    pq.write_table(table, tmp_path / "data.parquet")
    for columns in ([], [Column("fee", "continuous"), Column("count", "integer")]):
        frame = stream_table(tmp_path / "data.parquet", Schema(columns)).whole()
        assert frame["fee"].dtype == pd.ArrowDtype(pa.decimal128(5, 2))
        assert frame["count"].dtype == pd.ArrowDtype(pa.decimal128(9, 0))
    pq.write_table(pa.table({"tags": [["a"]]}), tmp_path / "data.parquet")
    frame = stream_table(tmp_path / "data.parquet", Schema([])).whole()
    with pytest.raises(UnsupportedColumnError, match="'tags'"):
        Schema([]).resolve(frame)


def test_models_of_arrays_are_for_python(tmp_path, capsys):
    model, page = str(tmp_path / "model.dpg"), str(tmp_path / "page.html")
    squares = np.zeros((60, 2, 2), dtype=np.uint8)
    DPArrayVAESynthesizer(n_steps=1, random_state=0).fit(squares).save(model)
    said = refused(capsys, ["sample", model, "-n", "3", "-o", str(tmp_path / "a.csv")])
    assert "holds a DPArrayVAESynthesizer, no model of tables" in said
    said = refused(capsys, ["report", model, "--real", "a.csv", "-o", page])
    assert "holds a DPArrayVAESynthesizer, no model of tables" in said
    assert main(["report", model]) == 0


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_rows_without_levels_are_read_as_written(suffix, tmp_path):
    frame = pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, 2.5]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    facts = Schema([Column("b", "continuous"), Column("a", "integer")])
    read = read_as_written(tmp_path / f"a{suffix}", facts, CsvFormat())
    assert read.astype(float).equals(frame[["b", "a"]].astype(float))


def test_sample_given(model_file, tmp_path, capsys):
    out = tmp_path / "out.csv"
    sample = ["sample", model_file, "-n", "30", "-o", str(out), "--force"]
    given = ["--given", "age=(40, 50)", "--given", "ward=01", "--given", "pain=[0, 1]"]
    assert main([*sample, *given]) == 0
    rows = pd.read_csv(out, dtype={"ward": str})
    assert rows["age"].between(40, 50).all()
    assert set(rows["ward"]) == {"01"}
    assert set(rows["pain"]) <= {0, 1}
    for word, truth in (
        ("yes", True),
        ("F", False),
        ("True", True),
        ("'Yes'", True),
        ("0", False),
    ):
        assert main([*sample, "--given", f"member={word}"]) == 0
        assert (pd.read_csv(out)["member"] == truth).all()
    assert main([*sample, "--given", "ward=[01, 'B']"]) == 0
    assert set(pd.read_csv(out, dtype=str)["ward"]) == {"01", "B"}
    assert "'Z'" in refused(capsys, [*sample, "--given", "ward=[A, Z]"])
    assert main([*sample, "--given", "member=[yes]"]) == 0
    assert pd.read_csv(out)["member"].all()
    assert main([*sample, "--given", "member=[True, False]"]) == 0
    assert "has no missing values" in refused(
        capsys, [*sample, "--given", "member=None"]
    )
    assert "'Perhaps'" in refused(capsys, [*sample, "--given", "member=Perhaps"])
    said = refused(capsys, [*sample, "--given", "nowhere=1"])
    assert "--given takes name=value" in said
    assert "none of its levels" in refused(capsys, [*sample, "--given", "ward=Z"])
    said = refused(capsys, [*sample, *given, "--given", "ward=02"])
    assert "takes every name once; got 'ward' again" in said


def test_dates_of_an_interval_need_no_quotes(tmp_path):
    frame = pd.DataFrame({"on": pd.date_range("2020-01-01", periods=80)})
    schema = Schema([Column("on", "datetime", resolution="D")])
    synth = DPHFlowSynthesizer(epsilon=None, n_steps=0, schema=schema).fit(frame)
    synth.save(tmp_path / "m.dpg")
    out = tmp_path / "out.csv"
    sample = ["sample", str(tmp_path / "m.dpg"), "-n", "50", "-o", str(out)]
    assert main([*sample, "--given", "on=(2020-02-01, None)"]) == 0
    assert (pd.read_csv(out)["on"] >= "2020-02-01").all()


def test_levels_that_are_one_number_are_told_apart_by_their_text(tmp_path):
    codes = ["1.1", "1.10", "0", "00", "250.00"]
    frame = pd.DataFrame({"code": pd.Categorical(codes * 40)})
    DPHFlowSynthesizer(epsilon=None, n_steps=0).fit(frame).save(tmp_path / "m.dpg")
    out = tmp_path / "out.csv"
    sample = ["sample", str(tmp_path / "m.dpg"), "-n", "5", "-o", str(out), "--force"]
    for code in codes:
        for written in (code, repr(code), f"[{code!r}]", f"[{code}]"):
            assert main([*sample, "--given", f"code={written}"]) == 0
            assert set(pd.read_csv(out, dtype=str)["code"]) == {code}


def test_a_condition_may_name_a_column_with_an_equals_sign(tmp_path):
    frame = pd.DataFrame({"a": [0, 1] * 40, "a=b": [0, 1] * 40}).astype("category")
    DPHFlowSynthesizer(epsilon=None, n_steps=0).fit(frame).save(tmp_path / "m.dpg")
    out = tmp_path / "out.csv"
    sample = ["sample", str(tmp_path / "m.dpg"), "-n", "50", "-o", str(out)]
    assert main([*sample, "--given", "a=0", "--given", "a=b=1"]) == 0
    assert pd.read_csv(out).drop_duplicates().to_numpy().tolist() == [[0, 1]]


@pytest.mark.parametrize("facts", [[], {}, {"columns": {}}, {"columns": [1]}, "x"])
def test_facts_that_are_no_schema(facts):
    with pytest.raises(ValueError, match=r"here is no schema: it must be \{"):
        unmarked_schema(facts, "here")


# Reading tables -----------------------------------------------------------------------

NUMBER_LIKE = {
    "age": "Int64",
    "income": "Float64",
    "member": "boolean",
    "city": "object",
    "pain": "category",
    "ward": "category",
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_tables_are_read_as_the_schema_says(folder, suffix):
    frame = stream_table(f"data{suffix}", SCHEMA).whole()
    assert frame.dtypes.astype(str).to_dict() == NUMBER_LIKE
    expected = patients()
    assert frame["age"].tolist() == expected["age"].tolist()
    assert frame["income"].tolist() == expected["income"].tolist()
    assert frame["member"].tolist() == expected["member"].tolist()
    assert frame["pain"].tolist() == expected["pain"].tolist()
    assert frame["ward"].tolist() == expected["ward"].tolist()
    assert frame["pain"].cat.categories.tolist() == [0, 1, 2, 3]
    assert frame["pain"].cat.ordered
    assert frame["city"][3] is None
    assert frame["city"][:3].tolist() == expected["city"][:3].tolist()


@pytest.mark.parametrize("entry", ["", "abc", "1e400", "-3.5", "99999999999999999999"])
def test_no_entry_changes_a_dtype_or_raises(entry, tmp_path):
    frame = patients().astype(object)
    frame.loc[0] = entry
    frame.to_csv(tmp_path / "data.csv", index=False)
    found = stream_table(tmp_path / "data.csv", SCHEMA).whole()
    assert found.dtypes.astype(str).to_dict() == NUMBER_LIKE
    assert len(found) == len(frame)
    unreadable = found.iloc[0].isna().to_dict()
    assert unreadable["ward"]
    assert unreadable["member"]
    assert unreadable["age"] == (entry in ("", "abc", "1e400"))


def test_missing_numbers_change_no_dtype_in_parquet(tmp_path):
    whole = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": ["x", "y"]})
    gaps = pd.DataFrame(
        {
            "a": pd.array([1, None], "Int64"),
            "b": pd.array([True, None], "boolean"),
            "c": ["x", None],
        }
    )
    whole.to_parquet(tmp_path / "whole.parquet")
    gaps.to_parquet(tmp_path / "gaps.parquet")
    one, two = (
        stream_table(tmp_path / f"{name}.parquet", Schema([])).whole()
        for name in ("whole", "gaps")
    )
    assert one.dtypes.tolist() == two.dtypes.tolist()


def test_what_pandas_notes_in_parquet_hides_no_column(tmp_path):
    path = tmp_path / "data.parquet"
    frame = pd.DataFrame({"ward": list("xyx"), "a": [1, 2, 3]})
    frame.set_index("ward").to_parquet(path)
    named = stream_table(path, Schema([Column("ward", "categorical")])).whole()
    assert named.columns.tolist() == ["a", "ward"]
    assert named["ward"].tolist() == ["x", "y", "x"]
    pd.DataFrame({0: [1.5, None]}, index=[7, 3]).to_parquet(path)
    numbered = stream_table(path, Schema([])).whole()
    assert numbered.columns.tolist() == ["0"]
    assert numbered["0"].tolist() == [1.5, pd.NA]


def test_a_dictionary_in_parquet_gives_no_levels_away(tmp_path):
    frame = pd.DataFrame({"a": pd.Categorical(["x", "y"])})
    frame.to_parquet(tmp_path / "data.parquet")
    unstated = stream_table(tmp_path / "data.parquet", Schema([])).whole()["a"]
    assert unstated.dtype == object
    stated = Schema([Column("a", "categorical", levels=["z", "x"])])
    found = stream_table(tmp_path / "data.parquet", stated).whole()["a"]
    assert found.cat.categories.tolist() == ["z", "x"]
    assert found.isna().tolist() == [False, True]


def test_levels_are_found_by_their_text_or_their_number(tmp_path):
    schema = Schema([Column("a", "categorical", levels=[1, 2.5, "x", "True"])])
    (tmp_path / "data.csv").write_text("a\n1\n1.0\n2.50\nx\nTrue\n3\n")
    found = stream_table(tmp_path / "data.csv", schema).whole()["a"].tolist()
    assert found[:5] == [1, 1, 2.5, "x", "True"]
    assert pd.isna(found[5])


def test_truth_has_several_words(tmp_path):
    schema = Schema([Column("a", "boolean")])
    (tmp_path / "data.csv").write_text("a\ntrue\nFALSE\n1\n0\nyes\nn\nmaybe\n")
    found = stream_table(tmp_path / "data.csv", schema).whole()["a"]
    assert found[:6].tolist() == [True, False, True, False, True, False]
    assert found.isna().tolist() == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"a,a\n1,2\n", r"names columns twice: \['a'\]"),
        (b"a,b\n1,2,3\n", "as many entries as the first, which names 2 columns"),
        (b"a,b\n1,2\n1,2,3\n", "as many entries as the first, which names 2 columns"),
        (b"a,b\n1,2\n1\n3,4\n", "as many entries as the first, which names 2 columns"),
        (b"a,b\n1,\nx\n", "as many entries as the first, which names 2 columns"),
        (b"\xff\xfe\x00", "not a CSV table in UTF-8"),
        (b"a,b\n\xff,1\n", "not a CSV table in UTF-8"),
    ],
)
def test_files_that_are_no_csv_table(content, said, tmp_path):
    (tmp_path / "data.csv").write_bytes(content)
    schema = Schema([Column("a", "categorical"), Column("b", "categorical")])
    with pytest.raises(ValueError, match=said) as caught:
        stream_table(tmp_path / "data.csv", schema).whole()
    behind = caught.value.__context__
    assert not getattr(behind, "object", b"")
    assert behind is None or not behind.args[:1]


def test_a_file_that_is_no_parquet(tmp_path):
    (tmp_path / "data.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(ValueError, match="is not a Parquet file"):
        stream_table(tmp_path / "data.parquet", SCHEMA).whole()


def test_check_of_people_and_their_rows(folder, capsys):
    people = pd.DataFrame({"id": [1, 2], "born": [1950, 2050]})
    rows = pd.DataFrame({"id": [1, 1, 2], "cost": [5, -1, 7]})
    people.to_csv("people.csv", index=False)
    rows.to_csv("rows.csv", index=False)
    facts = Schema(
        [
            Column("id", "integer", role="unit"),
            Column("born", "integer", lower=1900, upper=2020, per_unit=True),
            Column("cost", "integer", lower=0, upper=10),
        ]
    )
    Path("facts.json").write_text(json.dumps(facts.to_dict()), encoding="utf-8")
    arguments = ["check", "rows.csv", "--people", "people.csv", "--schema"]
    assert main([*arguments, "facts.json", "-o", "all.csv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "born: above the upper bound in 1 rows (50 %), such as 2050",
        "cost: below the lower bound in 1 rows (33.3 %), such as -1",
        "These are values of the rows: not for release.",
    ]
    assert pd.read_csv("all.csv")["column"].tolist() == ["born", "cost"]
