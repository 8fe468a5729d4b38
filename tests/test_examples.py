"""Every example runs from the command line, as the README tells its readers to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[1]


def run(script, *arguments, cwd):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    return subprocess.run(
        [sys.executable, ROOT / "examples" / script, *arguments],
        cwd=cwd,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_quickstart(tmp_path):
    pytest.importorskip("statsmodels")
    printed = run("quickstart.py", "--out", "here", cwd=tmp_path)
    assert "(1, 1e-05)-differential privacy" in printed
    assert "AUROC" in printed.upper()
    synthetic = pd.read_csv(tmp_path / "here" / "synthetic.csv")
    assert synthetic.shape[1] == 9
    assert (tmp_path / "here" / "marginals.png").stat().st_size > 10_000
    page = (tmp_path / "here" / "report.html").read_text(encoding="utf-8")
    assert "any_affair" in page
    assert "not for release" in page


def test_images(tmp_path):
    printed = run("images.py", "--out", "here", cwd=tmp_path)
    assert "shape, dtype and range of the pixels" in printed
    assert "marginals" not in printed
    assert (tmp_path / "here" / "digits.png").stat().st_size > 10_000


def test_conditional(tmp_path):
    printed = run("conditional.py", cwd=tmp_path)
    assert "(1, 1e-05)-differential privacy" in printed
    assert "Rows that cannot be, of 200000: 0" in printed
    assert printed.count("2,000 rows in") == 3
    assert printed.count("an older woman") == 3


def test_pipeline(tmp_path):
    printed = run("pipeline.py", cwd=tmp_path)
    assert "yrs_married  religious  affairs" in printed
    assert "Refused: DPHFlowSynthesizer.fit asks for epsilon=1" in printed
    assert "['standardscaler']" in printed


def test_grid_search(tmp_path):
    pytest.importorskip("statsmodels")
    printed = run("grid_search.py", "--jobs", "2", "--out", "here", cwd=tmp_path)
    # One row is in the training part of one of two folds: 0.1 + 0.3 + 1 + 3, and refit.
    chosen = float(re.search(r"prefers epsilon (\S+),", printed)[1])
    assert f"The search spent ({4.4 + chosen:.4g}, 5e-05) in all" in printed
    assert "Chosen within epsilon 1" in printed
    assert (tmp_path / "here" / "curve.png").stat().st_size > 5_000


def test_domains(tmp_path):
    pytest.importorskip("statsmodels")
    printed = run("domains.py", "--epsilon", "0.1", cwd=tmp_path)
    private, stated = re.search(r"2-way distance +(\S+) +(\S+)", printed).groups()
    # Measured .353 and .139.
    assert float(stated) < float(private) - 0.05
    assert re.search(r"rows without one .* 0.0%", printed)


def test_attack(tmp_path):
    pytest.importorskip("statsmodels")
    printed = run("attack.py", "--out", "here", cwd=tmp_path)
    plain, private = map(float, re.findall(r"AUC (\S+)", printed))
    cap = float(re.search(r"more than (\S+)\.$", printed, re.MULTILINE)[1])
    # The standard error of an AUC of 500 and 500 rows is .018 where scores say nothing.
    assert plain > 0.75
    assert private < cap + 0.1
    assert (tmp_path / "here" / "attack.png").stat().st_size > 5_000
