"""Interrupted fits: they go on as if nothing had been, and spend nothing twice."""

from __future__ import annotations

import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    Schema,
    load,
)
from dpgenerative._files import atomic_write, locked
from dpgenerative.cli import main
from dpgenerative.exceptions import BudgetExceededError, FileFormatError
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.fitting.loop import LoopState
from dpgenerative.models.priors import MixturePrior
from dpgenerative.persistence import checkpoint, manifest
from dpgenerative.persistence.checkpoint import Checkpoint
from dpgenerative.privacy.noise import Mechanisms

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

N_STEPS = 12
FAST = {"n_steps": N_STEPS, "batch_size": 64, "random_state": 3, "device": "cpu"}
rng = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "age": rng.normal(50, 10, 300),
        "visits": rng.integers(0, 5, 300),
        "ward": pd.Categorical(rng.choice(list("xyz"), 300)),
        "city": rng.choice(["Oslo", "Rome"], 300),
    }
)
IMAGES = rng.integers(0, 256, (200, 6, 6)).astype(np.uint8)


class Interruption(BaseException):
    """As a power cut: nothing catches it."""


class Counter(Mechanisms):
    """Counts releases by kind."""

    calls: list[str]

    def count(self, *args):
        self.calls.append("count")
        return super().count(*args)

    def gaussian(self, *args, **stated):
        self.calls.append("gaussian")
        return super().gaussian(*args, **stated)

    def thresholded(self, *args, **stated):
        self.calls.append("thresholded")
        return super().thresholded(*args, **stated)

    def choose(self, *args, **stated):
        self.calls.append("choose")
        return super().choose(*args, **stated)

    def gradient(self, *args, **stated):
        self.calls.append("gradient")
        return super().gradient(*args, **stated)


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Write the file after every step."""
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "unfinished.dpg"


def interrupt(synthesizer, rows, path, n_done=5, public=None):
    """Fit up to a step; the file of that step stays."""
    written = Checkpoint.after

    def after(self, done, loop):
        written(self, done, loop)
        if done == n_done:
            raise Interruption

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoint, "after", after)
        with pytest.raises(Interruption):
            synthesizer.fit(rows, public=public, checkpoint=path)


def refuses(make, rows, path, monkeypatch):
    """The fit is refused before a row is read, and the file stays."""
    kept = path.read_bytes()
    monkeypatch.setattr(PrivateFit, "run", lambda *_: pytest.fail("a row was read"))
    with pytest.raises(ValueError, match="another fit: its parameters, columns"):
        make().fit(rows, checkpoint=path)
    assert path.read_bytes() == kept


def flow(**params):
    return DPHFlowSynthesizer().set_params(
        **{**FAST, "noise": "reproducible", **params}
    )


def vae(**params):
    return DPVAESynthesizer().set_params(**{**FAST, "noise": "reproducible", **params})


def images(**params):
    return DPArrayVAESynthesizer().set_params(
        **{**FAST, "noise": "reproducible", **params}
    )


def scaled(scale):
    """Return a divergence that no other call returns."""

    def term(scale, latents, prior, generator):
        return scale * latents.mean.square().mean()

    return functools.partial(term, scale)


def prior(variance):
    means = torch.zeros(2, 3)
    return MixturePrior(means, torch.full_like(means, variance))


def projected(shape, latent_dim, generator):
    """An architecture that looks at random features."""
    n = shape[1] * shape[2]

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            features = torch.randn(n, 4, generator=generator)
            self.register_buffer("features", features)
            self.register_buffer("offset", torch.tensor(-1))
            self.mean = torch.nn.Linear(4, latent_dim)
            self.log_variance = torch.nn.Linear(4, latent_dim)

        def forward(self, images):
            seen = images.flatten(1) @ self.features + self.offset
            return self.mean(seen), self.log_variance(seen)

    decoder = torch.nn.Sequential(
        torch.nn.Linear(latent_dim, n), torch.nn.Unflatten(1, shape)
    )
    return Encoder(), decoder


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (flow, ROWS),
        (
            lambda: flow(
                architecture__n_blocks=2, optimizer="adabelief", divergence="mmd"
            ),
            ROWS,
        ),
        (lambda: flow(max_grad_norm="median", clipping="sparsified"), ROWS),
        (lambda: flow(epsilon=None, optimizer="sgd", optimizer__averaging=0.0), ROWS),
        (
            lambda: vae(divergence="mmd", architecture__latent_distribution="mixture"),
            ROWS,
        ),
        (lambda: images(architecture__hidden_units=8), IMAGES),
    ],
    ids=["flow", "blocks", "estimated norm", "no privacy", "vae", "images"],
)
def test_the_rest_of_a_fit_is_the_one_that_was_interrupted(make, rows, path):
    whole = make().fit(rows)
    interrupt(make(), rows, path)
    resumed = make().fit(rows, checkpoint=path)
    drawn = [fit.sample(40, random_state=1) for fit in (resumed, whole)]
    assert drawn[0].equals(drawn[1]) if rows is ROWS else (drawn[0] == drawn[1]).all()
    pairs = zip(
        resumed._model.state_dict().values(),
        whole._model.state_dict().values(),
        strict=True,
    )
    assert all(torch.equal(a, b) for a, b in pairs)
    assert resumed.privacy_ == whole.privacy_
    assert not path.exists()


@pytest.mark.thorough
def test_public_rows_train_once(path, monkeypatch):
    whole = flow().fit(ROWS, public=ROWS)
    interrupt(flow(), ROWS, path, public=ROWS)
    monkeypatch.delattr(PrivateFit, "_pretrain")
    resumed = flow().fit(ROWS, public=ROWS, checkpoint=path)
    assert resumed.sample(40, random_state=1).equals(whole.sample(40, random_state=1))


@pytest.mark.parametrize("secure", [False, True])
def test_nothing_is_released_twice(secure, path, monkeypatch):
    monkeypatch.setattr(Counter, "calls", [], raising=False)
    monkeypatch.setattr(
        DPHFlowSynthesizer, "_mechanisms", lambda _, s: Counter(s.counts, s.gradients)
    )
    make = {**FAST, "noise": "secure" if secure else "fresh", "max_grad_norm": "median"}
    interrupt(DPHFlowSynthesizer().set_params(**make), ROWS, path)
    first = Counter.calls.copy()
    assert {"count", "gaussian", "thresholded"} < set(first)
    assert first.count("gradient") == 5
    Counter.calls.clear()
    DPHFlowSynthesizer().set_params(**make).fit(ROWS, checkpoint=path)
    assert Counter.calls == ["gradient"] * (N_STEPS - 5)


def test_noise_without_a_seed_goes_on_where_it_stood(path):
    interrupt(flow(noise="fresh"), ROWS, path)
    kept = path.read_bytes()
    first = flow(noise="fresh").fit(ROWS, checkpoint=path)
    path.write_bytes(kept)
    path.chmod(0o600)
    second = flow(noise="fresh").fit(ROWS, checkpoint=path)
    third = flow(noise="fresh").fit(ROWS)
    samples = [s.sample(40, random_state=1) for s in (first, second, third)]
    assert samples[0].equals(samples[1])
    assert not samples[0].equals(samples[2])


def test_a_state_is_written_no_more_often_than_said(path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 3600.0)
    states = []
    monkeypatch.setattr(manifest, "write", lambda *args: states.append(args))
    flow().fit(ROWS, checkpoint=path)
    assert len(states) == 1
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    flow().fit(ROWS, checkpoint=path)
    assert len(states) == 1 + 1 + N_STEPS


def test_a_checkpoint_is_for_its_owner_alone(path):
    interrupt(flow(), ROWS, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert b"do not release" in path.read_bytes()
    with pytest.raises(FileFormatError, match="as private as the rows"):
        load(path)
    assert path.exists()


@pytest.mark.parametrize(
    ("make", "rows"),
    [
        (lambda: flow(epsilon=2.0), ROWS),
        (lambda: flow(divergence="mmd"), ROWS),
        (vae, ROWS),
        (flow, ROWS.iloc[:, ::-1]),
        (flow, ROWS.rename(columns={"age": "years"})),
        (flow, ROWS.astype({"visits": "int32"})),
    ],
)
def test_the_checkpoint_of_another_fit(make, rows, path, monkeypatch):
    interrupt(flow(), ROWS, path)
    refuses(make, rows, path, monkeypatch)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"divergence": scaled(1.0)}, {"divergence": scaled(2.0)}),
        ({"prior": prior(1.00001)}, {"prior": prior(1.00002)}),
        (
            {"categorical_features": pd.Series([False] * 50 + [True] + [False] * 49)},
            {"categorical_features": pd.Series([False] * 51 + [True] + [False] * 48)},
        ),
    ],
)
def test_parameters_are_compared_to_the_last_digit(first, then, path, monkeypatch):
    rows = pd.DataFrame(np.zeros((40, 100), dtype=int))
    make = {"n_steps": 6}
    interrupt(vae(**make, **first), rows, path)
    refuses(lambda: vae(**make, **then), rows, path, monkeypatch)


def test_the_checkpoint_of_another_version(path, monkeypatch):
    interrupt(flow(), ROWS, path)
    monkeypatch.setattr(checkpoint, "__version__", "0.0.1")
    refuses(flow, ROWS, path, monkeypatch)


def test_a_target_that_was_no_target(path):
    interrupt(flow(), ROWS, path)
    with pytest.raises(ValueError, match="another fit"):
        flow().fit(ROWS.drop(columns="city"), ROWS["city"], checkpoint=path)


@pytest.mark.parametrize("rows", [ROWS.iloc[1:], ROWS.replace("Oslo", "Rome")])
def test_the_checkpoint_of_other_rows(rows, path):
    interrupt(flow(), ROWS, path)
    kept = path.read_bytes()
    with pytest.raises(ValueError, match="a fit of other rows"):
        flow().fit(rows, checkpoint=path)
    assert path.read_bytes() == kept


@pytest.mark.thorough
def test_parts_of_cells_and_public_rows_are_compared_too(path):
    interrupt(flow(architecture__n_blocks=2), ROWS, path, public=ROWS)
    for rows, public in [
        (ROWS.assign(age=ROWS["age"] + 1e-4), ROWS),
        (ROWS, ROWS.iloc[1:]),
        (ROWS, None),
    ]:
        with pytest.raises(ValueError, match="the checkpoint of a"):
            flow(architecture__n_blocks=2).fit(rows, public=public, checkpoint=path)
    flow(architecture__n_blocks=2).fit(ROWS, public=ROWS, checkpoint=path)


def test_parameters_are_the_same_in_every_process(path):
    interrupt(vae(divergence=scaled(1.0)), ROWS, path)
    vae(divergence=scaled(1.0)).fit(ROWS, checkpoint=path)
    assert [*{0, 8}] != [*{8, 0}]
    interrupt(flow(categorical_features={0, 8}), np.ones((40, 9)), path)
    flow(categorical_features={8, 0}).fit(np.ones((40, 9)), checkpoint=path)


def test_tensors_that_are_drawn_once(path):
    make = {"architecture__networks": projected, "random_state": None}
    make["noise"] = "fresh"
    interrupt(images(**make), IMAGES, path)
    drawn = manifest.read(path)[1]["loop"]["tensors"]["encoder.features"]
    resumed = images(**make).fit(IMAGES, checkpoint=path)
    assert torch.equal(resumed._model.encoder.features, drawn)


def test_links_are_followed(path, tmp_path):
    real = tmp_path / "safe" / "state.dpg"
    real.parent.mkdir()
    path.symlink_to(real)
    interrupt(flow(), ROWS, path)
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    flow().fit(ROWS, checkpoint=path)
    assert not real.exists()


def test_drafts_that_were_killed_go_too(path):
    neighbour = path.with_name(f".{path.name}.bak.part")
    neighbour.touch()
    folder = path.with_name(f".{path.name}.a_folder.part")
    folder.mkdir()
    with atomic_write(path) as draft:
        draft.touch()
    draft.touch()  # as if that had not come to its end
    path.unlink()
    flow().fit(ROWS, checkpoint=path)
    assert {*path.parent.iterdir()} == {neighbour, folder}


def test_states_reach_the_disk_before_they_replace_others(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.exists()))
    interrupt(flow(), ROWS, path, n_done=1)
    assert synced == [False, True]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[["visits"]].set_axis([b"visits"], axis=1),
        pd.DataFrame({"root": pd.Categorical([1j, -1j])}),
    ],
)
def test_columns_that_a_file_cannot_hold(rows, path):
    with (
        PrivacyBudget(1.0, 1e-5) as budget,
        pytest.raises(TypeError, match="names, levels and dtypes a file can hold"),
    ):
        flow().fit(rows, checkpoint=path)
    assert not budget.fits


def test_a_folder_that_cannot_be_written(path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with PrivacyBudget(1.0, 1e-5) as budget, pytest.raises(PermissionError):
        flow().fit(ROWS, checkpoint=path)
    assert not budget.fits


def test_what_does_not_touch_the_guarantee_may_differ(path):
    whole = flow().fit(ROWS)
    interrupt(flow(), ROWS, path)
    other = flow(random_state=8, verbose=1).fit(ROWS, checkpoint=path)
    assert other.sample(9).equals(whole.sample(9))


def test_files_of_something_else_stay(path):
    path.write_text("name,age\n")
    with pytest.raises(FileFormatError, match="not a model file"):
        flow().fit(ROWS, checkpoint=path)
    assert path.read_text() == "name,age\n"
    flow().fit(ROWS).save(path)
    with pytest.raises(FileFormatError, match="a fitted DPHFlowSynthesizer"):
        flow().fit(ROWS, checkpoint=path)
    load(path)


def test_damaged_checkpoints(path):
    interrupt(flow(), ROWS, path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match="cut short"):
        flow().fit(ROWS, checkpoint=path)


@pytest.mark.parametrize("part", ["fit", "released", "streams", "loop"])
def test_checkpoints_of_a_missing_part(part, path):
    interrupt(flow(), ROWS, path)
    kind, state = manifest.read(path)
    state.pop(part)
    manifest.write(path, kind, state)
    with pytest.raises(FileFormatError, match="do not fit together"):
        flow().fit(ROWS, checkpoint=path)


def test_a_checkpoint_of_no_rows_is_planted(path):
    """Whoever interrupts a fit of rows of their own knows its noise."""
    interrupt(flow(), ROWS.iloc[::-1], path)
    kind, state = manifest.read(path)
    del state["fit"]["rows"]
    manifest.write(path, kind, state)
    with pytest.raises(FileFormatError, match="do not fit together"):
        flow().fit(ROWS, checkpoint=path)


def test_a_checkpoint_s_plan_is_that_of_the_parameters(path):
    interrupt(flow(), ROWS, path)
    kind, state = manifest.read(path)
    plan = replace(state["released"]["plan"], noise_multiplier=1e-3)
    state["released"]["plan"] = plan
    manifest.write(path, kind, state)
    with pytest.raises(ValueError, match="plan is not the one"):
        flow().fit(ROWS, checkpoint=path)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes of files")
@pytest.mark.parametrize("mode", [0o644, 0o620])
def test_a_checkpoint_that_others_read_or_write_is_refused(mode, path):
    interrupt(flow(), ROWS, path)
    path.chmod(mode)
    with pytest.raises(PermissionError, match="know the noise"):
        flow().fit(ROWS, checkpoint=path)
    path.chmod(0o600)
    flow().fit(ROWS, checkpoint=path)


@pytest.mark.skipif(sys.platform == "win32", reason="an open file stays there")
def test_a_checkpoint_is_what_its_owner_was_asked_of(path, monkeypatch):
    """Another file by its name, while it is read, is another's file all the same."""
    interrupt(flow(), ROWS, path)
    planted = path.with_name("planted")
    shutil.copy(path, planted)
    planted.chmod(0o644)
    read, aside = manifest.read, path.with_name("aside")
    path.rename(aside)
    planted.rename(path)

    def raced(name, *held):
        found = read(name, *held)
        path.rename(planted)
        aside.rename(path)
        return found

    monkeypatch.setattr(manifest, "read", raced)
    with pytest.raises(PermissionError, match="know the noise"):
        flow().fit(ROWS, checkpoint=path)


@pytest.mark.skipif(sys.platform == "win32", reason="links take rights")
def test_a_lock_follows_no_link(path):
    elsewhere = path.with_name("elsewhere")
    path.with_name(f".{path.name}.lock").symlink_to(elsewhere)
    with pytest.raises(OSError, match="symbolic"), locked(path):
        pass
    assert not elsewhere.exists()


@pytest.mark.parametrize("change", [lambda w: w[:1], torch.Tensor.double])
def test_checkpoints_of_other_weights(change, path):
    interrupt(flow(), ROWS, path)
    kind, state = manifest.read(path)
    weights = state["loop"]["tensors"]
    state["loop"]["tensors"] = {k: change(w) for k, w in weights.items()}
    manifest.write(path, kind, state)
    with pytest.raises(FileFormatError, match="do not fit together"):
        flow().fit(ROWS, checkpoint=path)


@pytest.mark.parametrize("wrong", [5, True])
def test_what_is_no_path(wrong):
    with pytest.raises((ValueError, TypeError), match="must be a path or None"):
        flow().fit(ROWS, checkpoint=wrong)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no_such"):
        flow().fit(ROWS, checkpoint=tmp_path / "no_such" / "x.dpg")


@contextmanager
def another_process(path):
    """Yield a process that holds the lock until it is killed."""
    code = (
        "import sys, time; from dpgenerative._files import locked\n"
        "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_two_processes_never_share_a_checkpoint(path):
    with another_process(path) as process:
        with PrivacyBudget(1.0, 1e-5) as budget, pytest.MonkeyPatch.context() as patch:
            patch.setattr(PrivateFit, "run", lambda *_: pytest.fail("a row was read"))
            with pytest.raises(BlockingIOError, match="in use: another process"):
                flow().fit(ROWS, checkpoint=path)
        assert not budget.fits
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert path.with_name(f".{path.name}.lock").exists()
        flow().fit(ROWS, checkpoint=path)  # nothing stale is in its way
    assert not list(path.parent.iterdir())


def test_two_threads_never_share_a_checkpoint_by_two_names(path):
    path.with_name("link.dpg").symlink_to(path)
    with locked(path), pytest.raises(BlockingIOError):
        flow().fit(ROWS, checkpoint=path.with_name("link.dpg"))


def test_an_interrupted_fit_gives_its_lock_back(path):
    interrupt(flow(), ROWS, path)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(ValueError, match="another fit"):
        flow(n_steps=7).fit(ROWS, checkpoint=path)
    with locked(path):
        assert path.exists()


def test_a_lock_that_was_deleted_meanwhile_is_none(path, monkeypatch):
    """Its holder ended between the moments when another opened and locked it."""
    opened = os.open

    def late(name, *args):
        file = opened(name, *args)
        os.unlink(name)
        return file

    monkeypatch.setattr(os, "open", late)
    with pytest.raises(BlockingIOError), locked(path):
        pass


def test_a_budget_pays_once(path):
    with PrivacyBudget(1.0, 1e-5) as budget:
        interrupt(flow(), ROWS, path)
        kept = path.read_bytes()
        assert budget.remaining[0] == 0
        flow().fit(ROWS, checkpoint=path)
        assert len(budget.fits) == 1
        path.write_bytes(kept)
        path.chmod(0o600)
        with pytest.raises(BudgetExceededError):
            flow().fit(ROWS, checkpoint=path)
    with PrivacyBudget(0.5, 1e-5), pytest.raises(BudgetExceededError):
        flow().fit(ROWS, checkpoint=path)


def test_a_budget_pays_for_what_goes_on_from_the_copy_of_a_finished_fit(path):
    with PrivacyBudget(1.0, 1e-5) as budget:
        interrupt(flow(), ROWS, path)
    kept = path.read_bytes()
    flow().fit(ROWS, checkpoint=path)
    path.write_bytes(kept)
    path.chmod(0o600)
    with budget, pytest.raises(BudgetExceededError):
        flow().fit(ROWS, checkpoint=path)


def test_what_can_go_on_has_released_nothing(path, monkeypatch):
    """Its end, of the system's noise, would be another release beside the first."""
    synthesizer = flow(noise="secure")
    with PrivacyBudget(1.0, 1e-5) as budget:
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "remove", lambda _: _raise(PermissionError))
            with pytest.raises(PermissionError):
                synthesizer.fit(ROWS, checkpoint=path)
        assert not hasattr(synthesizer, "privacy_")
        synthesizer.fit(ROWS, checkpoint=path)
        assert len(budget.fits) == 1
    assert not path.exists()


def test_a_fitted_estimator_knows_nothing_of_its_checkpoint(path):
    interrupt(flow(), ROWS, path)
    fitted = flow().fit(ROWS, checkpoint=path)
    assert vars(fitted).keys() == vars(flow().fit(ROWS)).keys()


def test_the_command_line_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("rows.csv", index=False)
    kinds = dict(
        zip(ROWS, ["continuous", "integer", *["categorical"] * 2], strict=True)
    )
    schema = Schema(Column(name, kind) for name, kind in kinds.items())
    Path("schema.json").write_text(json.dumps(schema.to_dict()), encoding="utf-8")
    command = [
        "fit", "rows.csv", "--epsilon", "1", "--schema", "schema.json", "--quiet",
        "--checkpoint", "unfinished.dpg", "--set", f"n_steps={N_STEPS}",
        "-o", "model.dpg",
    ]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(LoopState, "state", lambda _: _raise(KeyboardInterrupt))
        assert main(command) == 130
    assert capsys.readouterr().err == "dpgenerative: interrupted\n"
    assert not Path("unfinished.dpg").exists()
    written = Checkpoint.after

    def after(self, done, loop):
        written(self, done, loop)
        if done == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "after", after)
        assert main(command) == 130
    assert Path("unfinished.dpg").exists()
    assert main(command) == 0
    assert not Path("unfinished.dpg").exists()
    assert len(load("model.dpg").sample(5)) == 5
    assert main([*command, "--force", "--checkpoint", "./model.dpg"]) == 2
    assert "must name two files" in capsys.readouterr().err


def _raise(error):
    raise error
