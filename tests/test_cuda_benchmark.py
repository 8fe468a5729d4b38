"""The benchmark of a CUDA device: its parts run, and its page shows the records."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import cuda_device
import cuda_page
import loaders
from records import read

ROOT = Path(__file__).parents[1]
HAS_TABLES = loaders.FOLDER_VARIABLE in os.environ
FACTS = {
    "run": "now", "device": "cpu", "is_try": True, "name": "CPU", "machine": "a CPU",
    "date": "today", "revision": "abc", "command": "sh benchmarks/cuda.sh",
}  # fmt: skip
TINY = SimpleNamespace(
    batches=(4,), seconds=0.0, rows=300, pictures=64, scored=4,
    fit={"n_steps": 1, "batch_size": 8},
)  # fmt: skip


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(cuda_device, "RESULTS", tmp_path)
    monkeypatch.setitem(cuda_device.SIZES, "cpu", TINY)
    return lambda: read(tmp_path / "cuda.jsonl")


@pytest.mark.slow
def test_steps_of_every_model_and_strategy(records):
    assert cuda_device.run_part("steps", "cpu", 600.0, FACTS) == 0
    assert len(records()) == 5 * 4 + 1
    assert all(each["ratio"] > 0 for each in records())


def test_an_error_is_a_result_and_stops_no_other(records, monkeypatch):
    def broken(data):
        raise MemoryError("too large")

    monkeypatch.setattr(cuda_device.step, "opacus_step", broken)
    code = cuda_device.run_part("steps", "cpu", 600.0, FACTS)
    assert code == cuda_device.RECORDED
    errors = [each["error"] for each in records() if "error" in each]
    assert errors == ["MemoryError: too large"]
    assert len(records()) == 5 * 4 + 1
    assert "MemoryError: too large" in cuda_page.page(records())


def test_memory_is_what_a_case_adds(monkeypatch):
    for name in ("empty_cache", "reset_peak_memory_stats"):
        monkeypatch.setattr(cuda_device.torch.cuda, name, lambda: None)
    for name, size in (("memory_allocated", 2**20), ("max_memory_allocated", 2**22)):
        monkeypatch.setattr(cuda_device.torch.cuda, name, lambda size=size: size)
    assert cuda_device.attempt("cuda", {}, dict) == {"peak_mib": 3.0}
    assert cuda_device.attempt("cpu", {}, dict) == {}


def test_what_the_time_does_not_allow_is_an_error(records):
    assert cuda_device.run_part("steps", "cpu", -1.0, FACTS) == cuda_device.RECORDED
    assert {x["error"] for x in records()} == {"TimeoutError: no time was left"}


@pytest.mark.slow
def test_tests_pass_or_are_an_error(records, tmp_path):
    for word, line in (("passes", "assert 1"), ("fails", "assert 0"), ("none", "")):
        body = f"def test_it():\n    {line}\n" if line else ""
        (tmp_path / f"test_{word}.py").write_text(body)
    TINY.tests = {
        w: [str(tmp_path / f"test_{w}.py")] for w in ("passes", "fails", "none")
    }
    assert cuda_device.run_part("tests", "cpu", 600.0, FACTS) == cuda_device.RECORDED
    passes, fails, none = records()
    assert passes["passed"] == 1
    assert "test_fails.py::test_it" in fails["error"]
    assert "no tests ran" in none["error"]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TABLES, reason="needs the folder of tables")
@pytest.mark.parametrize("part", ["processes", "adult", "images"])
def test_fits(part, records):
    assert cuda_device.run_part(part, "cpu", 600.0, FACTS) == 0
    scores = {"processes": ["sum_ms"], "adult": ["tvd_2way", "macro_f1"],
              "images": ["log_likelihood"]}[part]  # fmt: skip
    assert all(score in each for each in records() for score in scores)


@pytest.mark.thorough
def test_parts_that_end_early_are_records(records, monkeypatch, capsys):
    # A process that ends by itself, and one that takes more than its share.
    script = "import sys, time; time.sleep(60 * ('steps' in sys.argv)); sys.exit(7)"
    path = cuda_device.RESULTS / "part.py"
    path.write_text(script)
    monkeypatch.setattr(cuda_device, "__file__", str(path))
    words = ["--device", "cpu", "--parts", "tests", "steps", "--minutes", ".05"]
    start = time.monotonic()
    assert cuda_device.main(words) == 1
    assert time.monotonic() - start < 30
    errors = [(each["part"], each["error"]) for each in records()]
    assert errors[0] == ("tests", "ended with exit code 7")
    assert errors[1][0] == "steps"
    assert "took more than" in errors[1][1]
    assert "Failed: ['tests', 'steps']" in capsys.readouterr().out
    assert cuda_page.NEVER in (cuda_device.RESULTS / "cuda.md").read_text()


def of_device(part, **values):
    return {**FACTS, "part": part, "device": "cuda", "is_try": False, **values}


MEASURED = [
    of_device("steps", case="Flow", batch=8, step="flat", ratio=1.2),
    of_device("steps", case="Flow", batch=8, step="per-layer", ratio=1.2),
    of_device("steps", case="Other", batch=8, step="per-layer", error="no memory"),
    of_device("steps", case="Flow", batch=8, step="per-unit", ratio=1.3),
    of_device("adult", case="Adult", where="cuda", fit_seconds=6.0, tvd_2way=0.03),
    of_device("adult", case="Adult", where="cuda", fit_seconds=4.0, tvd_2way=0.02),
    of_device("adult", case="Adult", where="cpu", fit_seconds=9.0, tvd_2way=0.024),
    of_device("tests", case="replay", passed=3),
]


def verdicts(records):
    text = cuda_page.page(records)
    cells = [line[2:].split(" | ") for line in text.splitlines() if "| " in line]
    return text, {x[0]: x[2].removesuffix(" |") for x in cells if len(x) == 3}


def test_goals_are_those_of_a_device():
    text, found = verdicts([{**MEASURED[0], **FACTS}, *MEASURED])
    assert cuda_page.NEVER not in text
    assert "1 of 2; worst 1.20 (Flow, 8)" in text
    assert list(found.values())[1:] == [
        "---", "met", "missed", "missed", "met", "met", "not measured",
        "not measured", "met", "not measured",
    ]  # fmt: skip


def test_a_try_on_a_cpu_meets_no_goal():
    text, found = verdicts([{**each, **FACTS} for each in MEASURED])
    assert cuda_page.NEVER in text
    assert set(list(found.values())[2:]) == {"not measured"}


def test_pages_say_that_it_was_never_run_while_there_is_no_record():
    records = read(ROOT / "benchmarks" / "results" / "cuda.jsonl")
    is_new = all(each["is_try"] for each in records)
    pages = [f"doc/{name}.rst" for name in ("design", "faq", "processes")]
    for page in ["benchmarks/README.rst", *pages]:
        words = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert (cuda_page.NEVER in words) == is_new, page
