"""Threads of a fit, those that the machine has room for; fits in other processes."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.fitting import threads
from dpgenerative.fitting.threads import idle_threads, n_running
from dpgenerative.inference import bootstrap
from dpgenerative.models.flow import AnchoredBlock
from tests import test_inference as inference


@pytest.fixture
def four(monkeypatch):
    """Four processors and as many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    monkeypatch.setattr(threads, "cpu_count", lambda: 4)
    yield
    torch.set_num_threads(before)


def running(monkeypatch, n):
    monkeypatch.setattr(threads, "n_running", lambda: n)


@pytest.mark.parametrize(
    ("n", "free"), [(0, 4), (1, 4), (4, 4), (5, 3), (7, 1), (40, 1)]
)
def test_threads_of_others_are_left_to_them(four, monkeypatch, n, free):
    running(monkeypatch, n)
    with idle_threads(False):
        assert torch.get_num_threads() == free
    assert torch.get_num_threads() == 4


def test_the_machine_is_looked_at_again(four, monkeypatch):
    running(monkeypatch, 8)
    with idle_threads(False) as look:
        running(monkeypatch, 2)  # this one and another
        look()
        assert torch.get_num_threads() == 3
        running(monkeypatch, 9)
        look()
        assert torch.get_num_threads() == 1
        running(monkeypatch, 1)
        look()
        assert torch.get_num_threads() == 4


def test_no_more_threads_than_were_set(four, monkeypatch):
    running(monkeypatch, 1)
    torch.set_num_threads(2)
    with idle_threads(False):
        assert torch.get_num_threads() == 2


def test_threads_come_back_after_an_error(four, monkeypatch):
    running(monkeypatch, 8)
    with pytest.raises(ZeroDivisionError), idle_threads(False):
        raise ZeroDivisionError
    assert torch.get_num_threads() == 4


@pytest.mark.parametrize(
    ("text", "n"), [("0.1 0.2 0.3 5/70 99\n", 5), ("none", 0), (None, 0)]
)
def test_what_runs_on_the_machine(tmp_path, monkeypatch, text, n):
    path = tmp_path / "loadavg"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(threads, "LOADS", str(path))
    assert n_running() == n


@pytest.mark.parametrize(("noise", "n"), [("reproducible", 1), ("fresh", 2)])
def test_a_seeded_fit_takes_one_thread(four, monkeypatch, noise, n):
    monkeypatch.setattr(threads, "n_running", lambda: torch.get_num_threads() + 2)
    seen, whole = [], AnchoredBlock.forward

    def watched(self, codes):
        seen.append(torch.get_num_threads())
        return whole(self, codes)

    monkeypatch.setattr(AnchoredBlock, "forward", watched)
    rows = np.random.default_rng(0).normal(size=(50, 2))
    DPHFlowSynthesizer(epsilon=20, n_steps=2, noise=noise, random_state=0).fit(rows)
    assert set(seen) == {n}
    assert torch.get_num_threads() == 4


@pytest.mark.slow
def test_processes_refit_alike():
    # Other processes know nothing of what is patched here, so nothing is.
    fitted = DPHFlowSynthesizer(schema=inference.SCHEMA, **inference.FEW)
    fitted.fit(inference.table(800))
    expected, result = (
        bootstrap(fitted, inference.by_group, n_jobs=n, **inference.QUICK)
        for n in (None, 2)
    )
    pd.testing.assert_frame_equal(result.replicates, expected.replicates)
