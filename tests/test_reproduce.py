"""The tables and figures of the papers: what is listed, judged and written."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import papers
import reproduce

BENCHMARKS = reproduce.HERE


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of results without any record."""
    for module in (papers, reproduce):
        monkeypatch.setattr(module, "OWN", tmp_path / "reproduce.jsonl")
        monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(papers, "ABLATION", tmp_path / "ablation.jsonl")
    return tmp_path


def test_every_table_and_figure_is_listed_and_found(capsys):
    assert reproduce.main(["--list"]) == 0
    listed = [line[:45].split() for line in capsys.readouterr().out.splitlines()]
    assert len(listed) == len(reproduce.ITEMS)
    for words, item in zip(listed, reproduce.ITEMS, strict=True):
        assert reproduce.chosen(reproduce.parse(words)) == [item]
    assert reproduce.main(["--paper", "mia", "--table", "7"]) == 2
    assert reproduce.main(["--paper", "hflow", "--table", "1"]) == 2
    assert "Give --data DIR" in capsys.readouterr().err
    for item in reproduce.ITEMS:
        for step in (*item.reduced, *item.full):
            assert callable(step) or (BENCHMARKS / step.split()[0]).exists()


def test_scores_are_judged_against_what_is_published(folder):
    def add(dataset, metrics, **facts):
        plan = {"privacy": {"plan": {"n_steps": 3}}, "metrics": metrics}
        config = {"mode": "private", "params": {"epsilon": 1.0, "delta": 1e-5}}
        record = {"dataset": dataset, **config, **plan, **facts}
        with (folder / "tabular.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")

    figures = {"macro_f1": 0.2, "auroc": 0.8, "average_precision": 0.4}
    add("covertype", figures | {"kendall_rmse": 0.07, "kendall_mae": 0.05})
    add("covertype", figures | {"kendall_rmse": 0.09, "kendall_mae": 0.05}, seed=1)
    add("covertype", figures | {"kendall_rmse": 0.01}, mode="nonprivate")
    add("covertype", figures | {"kendall_rmse": 0.071}, estimator="published")
    tau = papers.verdict("covertype", papers.KENDALL)
    assert tau == "default ahead in 0 of 1; published setup within .001"
    assert papers.verdict("covertype", papers.SCORES).startswith(
        "default ahead in 0 of 1"
    )
    assert papers.verdict("intrusion", papers.SCORES).startswith("not judged")
    lines = list(papers.tables_of(papers.SCORES)())
    assert lines[2][2].startswith("default .200, .800, .400 (2 fits, 3 steps)")
    assert lines[0][2] == "default not run; published setup not run"


def test_parts_of_the_ablation_are_judged(folder):
    name = "architecture__dequantization"
    records = [
        {"part": "default", "setting": {}, "log_likelihood": -5.0},
        {
            "part": "clipping",
            "setting": {"clipping": "per-layer"},
            "log_likelihood": -4.5,
        },
        {
            "part": "clipping",
            "setting": {"clipping": "per-unit"},
            "log_likelihood": -5.25,
        },
    ] + [
        {
            "part": "dequantization",
            "setting": {"epsilon": epsilon, name: kind},
            "log_likelihood": gain * (kind == "variational"),
        }
        for epsilon, gain in ((0.3, -1.0), (3.0, 0.5))
        for kind in ("uniform", "variational")
    ]
    lines = [json.dumps({"table": "numeric", **record}) for record in records]
    lines.append(json.dumps({"table": "other", **records[0]}))
    (folder / "ablation.jsonl").write_text("\n".join(lines))
    clipping, _, classifiers = papers.clipping_lines()
    assert clipping[2] == "flat -5.00, per-layer -4.50, per-unit -5.25"
    assert clipping[3].startswith("best: per-layer")
    assert clipping[3].endswith("-0.25 beside flat")
    assert classifiers[2].startswith("flat not run")
    (found,) = papers.dequantization_lines()
    assert found[2:] == (
        "-1.00 at 0.3, +0.50 at 3",
        "variational is ahead at 1 of 2 epsilons",
    )


def test_a_toy_figure_is_made_from_data_to_picture(folder, capsys):
    words = ["--paper", "hflow", "--figure", "2", "--rows", "60", "--steps", "1"]
    assert reproduce.main(words) == 0
    assert (folder / "reproduce_toys.png").stat().st_size > 10_000
    assert len((folder / "reproduce.jsonl").read_text().splitlines()) == 9
    out = capsys.readouterr().out
    assert "two spirals, 60 points, 2-way" in out
    assert "published setup, no privacy" in out


@pytest.mark.thorough
def test_noise_of_aggregations_and_epsilons_follow_the_formulas():
    assert all("holds" in verdict for *_, verdict in papers.noise_lines())
    told = list(papers.epsilon_lines())
    assert [line[3].startswith("reproduced") for line in told] == [True] * 3 + [
        False
    ] * 2


def test_the_pages_tables_have_every_item():
    with (BENCHMARKS / "results" / "reproduce_beyond.csv").open("rb") as file:
        assert len(file.readlines()) == 1 + len(list(papers.beyond()))
    for paper in reproduce.PAPERS:
        path = BENCHMARKS / "results" / f"reproduce_{paper}.csv"
        with path.open(encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        assert head == reproduce.HEAD
        expected = [f"``{i.command}``" for i in reproduce.ITEMS if i.paper == paper]
        assert [row[-1] for row in rows if row[-1]] == expected
        assert all(all(row[:4]) for row in rows)


@pytest.mark.thorough
@pytest.mark.parametrize("paper", ["hflow", "mia"])
def test_the_pages_tables_are_those_of_the_records(paper):
    path = BENCHMARKS / "results" / f"reproduce_{paper}.csv"
    with path.open(encoding="utf-8") as file:
        _, *rows = csv.reader(file)
    assert rows == reproduce.rows(i for i in reproduce.ITEMS if i.paper == paper)


def test_the_table_beyond_the_papers_is_that_of_the_records():
    path = BENCHMARKS / "results" / "reproduce_beyond.csv"
    with path.open(encoding="utf-8") as file:
        assert list(csv.reader(file))[1:] == list(map(list, papers.beyond()))
    assert "0 of 0" not in path.read_text(encoding="utf-8")


SCORES = {
    "macro-F1": "macro_f1",
    "AUROC": "auroc",
    "AP": "average_precision",
    "2-way": "tvd_2way",
    "3-way": "tvd_3way",
    "Kendall RMSE": "kendall_rmse",
}


def score_tables(page):
    """Return the tables of classifiers' scores on a page, each a list of rows."""
    text = (BENCHMARKS.parent / page).read_text(encoding="utf-8")
    simple = re.compile(r"^(=+(?: +=+)+)\n(.*macro-F1.*)\n\1\n((?:.+\n)*?)\1$", re.M)
    for ruler, head, body in simple.findall(text):
        spans = [slice(*m.span()) for m in re.finditer("=+", ruler)]
        names = [head[span].strip().removesuffix(" distance") for span in spans]
        yield [
            dict(zip(names, (line[span].strip() for span in spans), strict=True))
            for line in body.splitlines()
        ]


def recorded(table, model, mode):
    """Return the mean scores of the fits of a table by a model in a mode."""
    files = {"flow": "tabular", "vae": "vae"}
    name, wanted = files[model], {"delta": 1e-5, "epsilon": 1.0}
    if "epsilon" in mode:
        epsilon = float(mode.removeprefix("epsilon "))
        lines = read("peers", table=table, method="ours", epsilon=epsilon)
    elif mode == "real rows":
        lines = read(name, dataset=table, mode="real")
    else:
        modes = {"no privacy": "nonprivate", "open bounds": "discovery"}
        lines = read(name, dataset=table, mode=modes.get(mode, "private"))
        if not modes.get(mode):
            lines = [r for r in lines if ("conditional" in r["params"]) == bool(mode)]
            lines = [r for r in lines if wanted.items() <= r["params"].items()]
    assert lines
    scores = [r["metrics"] for r in lines]
    if mode == "real rows":  # distances of a bootstrap sample
        scores = [
            s | {f"tvd_{k}way": s[f"floor_{k}way"] for k in (2, 3)} for s in scores
        ]
    shared = set.intersection(*map(set, scores)) & set(SCORES.values())
    return {name: sum(s[name] for s in scores) / len(scores) for name in shared}


def read(name, **facts):
    path = BENCHMARKS / "results" / f"{name}.jsonl"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return [r for r in lines if facts.items() <= r.items()]


def rows_of_pages():
    tables = [*score_tables("README.rst"), *score_tables("doc/evidence.rst")]
    for table, model in zip(tables, ("flow", "flow", "vae"), strict=True):
        for row in table:
            name, _, mode = row["Table"].rstrip("*").partition(", ")
            yield name, model, mode, row
    (table,) = score_tables("doc/models.rst")
    for row in table:
        mode = "label" if "by label" in row["Model"] else ""
        yield row["Table"], "flow" if row["Model"] == "flow" else "vae", mode, row
    (table,) = score_tables("doc/epsilon.rst")
    for row in table:
        mode = row["Epsilon"]
        mode = "" if mode == "1" else f"epsilon {mode}" if mode[0].isdigit() else mode
        yield "Adult", "flow", mode, row


@pytest.mark.parametrize(("name", "model", "mode", "row"), [*rows_of_pages()])
def test_scores_on_pages_are_those_of_the_records(name, model, mode, row):
    found = recorded(name.removesuffix("-KDD").lower(), model, mode)
    assert len(found) >= 3
    for head, score in SCORES.items():
        if head in row and score in found:
            assert abs(float(row[head]) - found[score]) < 0.00051, head
