"""Fits in other interpreters: their costs and failures, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import highorder
import merf
import peer_fits
import peer_tables
import peers
from tabular import public_schema

ROWS = pd.DataFrame({
    "level": pd.Categorical(["a", "b", None, "a"] * 40, ["a", "b", "never"]),
    "count": np.arange(160) % 7,
    "amount": np.linspace(-1, 1, 160),
})  # fmt: skip


def fit(method, rows=ROWS, **options):
    schema = public_schema(rows)
    return peers.fit_peer(
        method, rows, sys.executable, schema=schema, epsilon=1.0, **options
    )


@pytest.mark.slow
def test_a_fit_has_costs_and_rows_of_the_same_dtypes():
    costs, drawn = fit("ours", draws=2)
    assert 0 < costs["fit_cpu_seconds"] <= costs["process_cpu_seconds"]
    assert costs["peak_rss_mib"] > 50
    for each in drawn:
        assert each.dtypes.equals(ROWS.dtypes)
        assert each.shape == ROWS.shape
    assert not drawn[0].equals(drawn[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "limit", "said"),
    [("dpmm mst", 60.0, "crash: ModuleNotFoundError"), ("ours", 0.2, "time-out")],
)
def test_crashes_and_time_outs_are_results(method, limit, said):
    with pytest.raises(peers.FitError, match=said) as raised:
        fit(method, time_limit=limit)
    assert set(raised.value.facts) == {"failed", "peak_rss_mib", "process_cpu_seconds"}


@pytest.mark.slow
def test_the_grid_is_resumed(tmp_path, monkeypatch):
    measured = []

    def load(table, data_home):
        return ROWS, lambda rows: measured.append(len(rows)) or {"auroc": 0.5}

    monkeypatch.setattr(peers, "load", load)
    out = tmp_path / "peers.jsonl"
    words = ["--tables", "adult", "--methods", "ours", "dpmm mst", "--epsilons", "1"]
    words += ["--python", f"dpmm={sys.executable}", "--out", str(out)]
    for _ in range(2):
        assert peers.main(words) == 0
    ours, failed = map(json.loads, out.read_text().splitlines())
    assert ours["metrics"] == {"auroc": 0.5}
    assert failed["failed"].startswith("crash")
    assert measured == [len(ROWS)]
    assert "crash" in out.with_suffix(".md").read_text()


def test_rows_that_cannot_be_read_or_judged_are_results(tmp_path, monkeypatch):
    def measure(rows):
        raise ValueError("one class")

    def run(words, folder, time_limit):
        (folder / "result.json").write_text("{}")
        (folder / "synthetic0.csv").write_text(drawn.pop())
        return 0, {}

    monkeypatch.setattr(peers, "load", lambda table, data_home: (ROWS, measure))
    monkeypatch.setattr(peers, "_run", run)
    out = tmp_path / "peers.jsonl"
    words = ["--tables", "adult", "--methods", "ours", "--out", str(out), "--epsilons"]
    drawn = ["level\na\n", ROWS.to_csv(index=False)]
    assert peers.main([*words, "1", "3"]) == 0
    judged, read = (json.loads(line)["failed"] for line in out.read_text().splitlines())
    assert judged == "not judged: one class"
    assert read.startswith("unreadable rows: ")


def record(method, epsilon=1.0, seconds=1.0, **scores):
    return {
        "table": "adult", "method": method, "epsilon": epsilon, "seed": 0,
        "metrics": scores, "fit_seconds": 9.0, "fit_cpu_seconds": seconds,
        "revision": "r", "machine": "m", "version": method,
    }  # fmt: skip


def test_a_peer_ahead_stands_in_bold():
    records = [
        record("ours", auroc=0.8, tvd_2way=0.02),
        record("dpmm aim", auroc=0.9, tvd_2way=0.03, seconds=5.0),
        {**record("mostlyai", 3.0), "failed": "crash: x", "metrics": {}},
    ]
    means = peer_tables.Means(records)
    assert [kept for kept, _ in peer_tables.compared(means)] == [False, True]
    assert [kept for kept, _ in peer_tables.timed(means)] == [False]
    text = peer_tables.page(records)
    assert "- **adult, epsilon 1, AUROC: dpmm aim 0.9000, ours 0.8000**" in text
    assert "- **adult, epsilon 1: 1 s, AIM 5 s**" in text
    lines = text.splitlines()
    assert lines[lines.index("   * - mostlyai") + 2] == "     - crash"
    assert "Not run: dpmm mst, dpmm privbayes" in text


def test_the_overview_says_where_each_method_is_nearest():
    records = [
        record("ours", auroc=0.8, macro_f1=0.5, tvd_2way=0.02),
        record("dpmm mst", auroc=0.7, macro_f1=0.4, tvd_2way=0.03),
        record("tab-pe", auroc=0.9, macro_f1=0.3, tvd_2way=0.08),
        record("tab-pe", 3.0, auroc=1.0, macro_f1=1.0, tvd_2way=0.0),
        {**record("margnet"), "failed": "time-out after 300 s"},
    ]
    text = peer_tables.overview(peer_tables.Means(records))
    assert "best at 2 of 3 scores" in text
    assert "by most at adult 2-way TVD (0.020, the next 0.030)" in text
    assert "dpmm mst at adult AUROC 0.700, ours 0.800;" in text
    assert "tab-pe at **adult AUROC 0.900, ours 0.800**." in text
    assert text.endswith("Without a score: margnet.")


def test_levels_are_numbered_and_read_back():
    task = {"domain": peers.domain(public_schema(ROWS))}
    levels, numbers = peer_fits.columns_of(task, ROWS)
    assert numbers == ["count", "amount"]
    assert levels == {"level": ["a", "b", "never", None]}
    codes = peer_fits.codes_of(ROWS["level"], levels["level"])
    assert codes[:4].tolist() == [0, 1, 3, 0]
    read = peer_fits.levels_of(pd.Series(codes), levels["level"])
    assert read[:4].tolist() == ["a", "b", None, "a"]


def test_every_method_has_a_fit_and_says_where_it_came_from():
    packages = {method.partition(" ")[0] for method in peer_tables.METHODS}
    assert packages == set(peer_fits.PACKAGES)
    unnamed = {name for name, (_, package) in peer_fits.PACKAGES.items() if not package}
    assert unnamed == set(peer_tables.CHECKOUTS)
    config = {"table": "adult", "method": "margnet gem", "epsilon": 1.0, "seed": 0}
    assert "--checkout margnet=DIR" in peers.command(config, peers.TIME_LIMIT)


def test_tables_of_high_order_are_those_of_the_records():
    made = pd.DataFrame(highorder.records.read(highorder.RECORDS))
    made["method"] = made["method"].fillna(peer_tables.OURS)
    path = highorder.RECORDS.with_suffix(".rst")
    assert highorder.beside(made) == path.read_text("utf-8")


def test_tables_are_those_of_the_records():
    path = peers.DEFAULT_OUT
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert peer_tables.page(records) == path.with_suffix(".rst").read_text("utf-8")
    assert peer_tables.summarise(records) == path.with_suffix(".md").read_text("utf-8")


@pytest.mark.parametrize("order", [2, 3])
def test_parity_rows_obey_and_others_do_not(order):
    rows = peers.parity_rows(order)
    assert peers.obeyed(rows, order) == 1
    turned = rows.assign(label=rows["label"].cat.codes.map({0: "1", 1: "0"}))
    assert peers.obeyed(turned, order) == 0


@pytest.mark.slow
def test_dp_merf_learns_numbers_and_levels_of_every_label(monkeypatch):
    monkeypatch.setattr(merf, "N_STEPS", 300)
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 20_000)
    rows = pd.DataFrame({
        "amount": np.where(label, 5.0, -5.0) + rng.normal(size=20_000),
        "level": np.where(rng.random(20_000) < 0.2, None, np.where(label, "a", "b")),
        "label": np.where(label, "yes", "no"),
    })  # fmt: skip
    domain = {
        "amount": {"lower": -10.0, "upper": 10.0},
        "level": {"categories": ["a", "b", "never"]},
        "label": {"categories": ["no", "yes"]},
    }
    model = merf.MERF(domain, seed=0)
    model.fit(rows, 3.0, 1e-5)
    drawn = model.sample(5000, seed=1)
    assert list(drawn) == list(domain)
    assert abs(drawn["level"].isna().mean() - 0.2) < 0.05
    yes, known = drawn["label"] == "yes", drawn["level"].notna()
    assert (drawn["level"] == np.where(yes, "a", "b"))[known].mean() > 0.9
    assert abs(drawn["amount"][yes].mean() - 5) < 1.5
    assert abs(drawn["amount"][~yes].mean() + 5) < 1.5
    numbers, levels = torch.rand(50, 1), [torch.eye(4)[:1].expand(50, 4)]
    norms = model._features(numbers, levels).norm(dim=1)
    torch.testing.assert_close(norms, torch.full((50,), 2**0.5))
