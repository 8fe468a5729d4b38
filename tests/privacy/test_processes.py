"""Real processes of one fit, which see nothing of what a test patches."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from scipy.stats import ks_2samp

from dpgenerative import load
from dpgenerative.persistence import checkpoint
from dpgenerative.persistence.checkpoint import Checkpoint
from dpgenerative.privacy.ranks import ProcessGroup
from tests.privacy.processes import fits_in_threads, in_processes, in_threads
from tests.privacy.test_ranks import Losses, assert_equal_models, flow, table
from tests.test_docs import ROOT, blocks

pytestmark = pytest.mark.slow


def work_of_a_group(rank, path):
    """Return what one of two processes of torch's group finds."""
    ranks = ProcessGroup.present()
    assert (ranks.rank, ranks.size) == (rank, 2)

    def fail():
        raise KeyError("no")

    with pytest.raises(KeyError):
        ranks.once(fail)
    with pytest.raises(ValueError, match="differ in their parameters"):
        flow(epsilon=1.0 + rank).fit(table())
    return Losses().of(ranks), flow().fit(table(), checkpoint=path)


def test_a_group_of_torch(tmp_path, monkeypatch):
    path = tmp_path / "unfinished.dpg"
    one, other = in_processes(tmp_path / "a", work_of_a_group, path)
    (whole,) = in_threads(Losses().of, 1)
    for parts in (one[0], other[0]):
        for x, y in zip(whole, parts, strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-7)
    assert_equal_models(one[1], other[1])
    assert one[1].privacy_ == other[1].privacy_
    assert not path.exists()
    # Threads do what processes do.
    assert_equal_models(one[1], fits_in_threads(monkeypatch, flow, table())[0])


def killed(rank, path, n_done):
    """Fit; the second process is killed at a step."""
    checkpoint.EVERY, written = 0.0, Checkpoint.after

    def after(self, done, loop):
        written(self, done, loop)
        if rank == 1 and done == n_done:
            os.kill(os.getpid(), signal.SIGKILL)

    Checkpoint.after = after
    try:
        return flow().fit(table(), checkpoint=path)
    except RuntimeError as error:
        return str(error)


def test_a_killed_process_ends_the_fit_and_leaves_the_checkpoint(tmp_path, monkeypatch):
    path = tmp_path / "unfinished.dpg"
    said, nothing = in_processes(tmp_path / "a", killed, path, 5)
    assert nothing is None
    assert said.startswith("Another process of this fit has ended")
    assert path.exists()
    one, other = in_processes(tmp_path / "b", killed, path, None)
    assert not path.exists()
    assert_equal_models(one, other)
    assert_equal_models(one, fits_in_threads(monkeypatch, flow, table())[0])


@pytest.mark.parametrize("is_sorted", [False, True])
def test_models_of_two_processes_are_distributed_as_those_of_one(
    is_sorted, tmp_path, monkeypatch
):
    held_out, rows = table(300, 9), table()
    if is_sorted:  # of unlike row groups
        path = tmp_path / "rows.parquet"
        rows.sort_values("age").to_parquet(path, index=False, row_group_size=130)
        rows = path

    def figures(make):
        made = [make() for _ in range(40)]
        weights = [
            sum(x.detach().double().square().sum() for x in each._model.parameters())
            for each in made
        ]
        return [each.score(held_out) for each in made], np.array(weights)

    def make():
        return flow(noise="fresh", random_state=None)

    alone = figures(lambda: make().fit(rows))
    pairs = figures(lambda: fits_in_threads(monkeypatch, make, rows)[0])
    for x, y in zip(alone, pairs, strict=True):
        assert ks_2samp(x, y).pvalue > 1e-3


def test_the_script_on_the_page_runs(tmp_path):
    table().to_parquet(tmp_path / "rows.parquet", row_group_size=70)
    (tmp_path / "fit.py").write_text(blocks("processes.rst", "python")[0])
    (command,) = blocks("processes.rst", "bash")
    program, *arguments = shlex.split(command, comments=True)
    assert program == "torchrun"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *arguments],
        cwd=tmp_path, env=environment, check=True, timeout=500,
    )  # fmt: skip
    assert len(load(tmp_path / "model.dpg").sample(20)) == 20
    assert not (tmp_path / "unfinished.dpg").exists()
