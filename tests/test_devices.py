"""What a device owes to a fit, on the CPU and, where there is one, on a CUDA device."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch.backends import cudnn

from dpgenerative import (
    BatchTerm,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Sparsified,
    load,
)
from dpgenerative.fitting import fit, loop
from dpgenerative.persistence import checkpoint
from dpgenerative.privacy.gradients import GenericGradients, layer_gradients, record
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.precision import added_at, full_precision
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from tests.fits import few_rows_to_rake
from tests.privacy.oracle import Net, norm
from tests.privacy.test_rounding import autoencoder_and_losses, flow_and_losses
from tests.test_checkpoint import interrupt

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import step

KINDS = ("plain", *step.FAST, "sparsified", "Opacus", "vmap")
HAS_CUDA = torch.cuda.is_available()
BOUND = 0.01
CUDA = pytest.param(
    "cuda",
    marks=[
        pytest.mark.gpu,
        pytest.mark.skipif(not HAS_CUDA, reason="needs a CUDA device"),
    ],
)


@pytest.fixture(params=["cpu", CUDA])
def device(request):
    with few_rows_to_rake(2048):
        yield request.param


def table(n=300):
    rng = np.random.default_rng(0)
    x = rng.normal(size=n)
    return pd.DataFrame(
        {
            "number": x,
            "level": pd.Categorical(np.where(x > 0, rng.choice(list("bc"), n), "a")),
            "whole": rng.integers(0, 5, n),
            "holes": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        }
    )


def images(n=100):
    return np.random.default_rng(0).integers(0, 256, (n, 6, 6)).astype(np.uint8)


def unfitted(device, kind=DPHFlowSynthesizer, **parameters):
    given = {"random_state": 3, "noise": "reproducible", "n_steps": 6, "batch_size": 64}
    return kind().set_params(**given | parameters, device=device)


def fitted(device, kind=DPHFlowSynthesizer, rows=table, **parameters):
    return unfitted(device, kind, **parameters).fit(rows())


def tensors(synthesizer):
    return list(loop.tensors_of(synthesizer._model).values())


def same_samples(one, two):
    drawn = [synthesizer.sample(50, random_state=0) for synthesizer in (one, two)]
    if isinstance(drawn[0], pd.DataFrame):
        return drawn[0].equals(drawn[1])
    return np.array_equal(*drawn)


FITS = {
    "flow": {},
    "tables": {"epsilon": 50.0, "batch_size": 10**6, "architecture__hidden_units": 8},
    "per unit": {"clipping": "per-unit", "max_grad_norm": "median"},
    "no privacy": {"epsilon": None},
    "sparsified": {"clipping": Sparsified()},
    "lu": {
        "architecture__n_blocks": 2, "architecture__linear": "lu", "divergence": "mmd",
    },
    "micro": {"divergence": BatchTerm("mmd", aggregation="micro")},
    "autoencoder": {"kind": DPVAESynthesizer, "conditional": "level"},
    "mixture": {
        "kind": DPVAESynthesizer, "divergence": "kl",
        "architecture__latent_distribution": "mixture",
    },
    "images": {
        "kind": DPArrayVAESynthesizer, "rows": images, "batch_size": 16,
        "architecture__networks": "conv",
    },
    "lstm": {
        "kind": DPArrayVAESynthesizer, "rows": images, "divergence": "mmd",
        "architecture__networks": "lstm",
    },
}  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", FITS)
def test_a_fit_reports_what_one_on_the_cpu_does(device, name, monkeypatch):
    ledgers, check = [], PrivacyPlan.check

    def noted(plan, ledger):
        ledgers.append(ledger)
        check(plan, ledger)

    monkeypatch.setattr(PrivacyPlan, "check", noted)
    here, there = (fitted(where, **FITS[name]) for where in (device, "cpu"))
    for kept in ("plan", "epsilon_spent", "clipping", "public"):
        assert getattr(here.privacy_, kept) == getattr(there.privacy_, kept)
    for ledger in ledgers:  # which tables are worth counting depends on the model
        assert (ledger.losses.pop("tables", 0) != 0) == (name == "tables")
    assert ledgers[0] == ledgers[1]
    assert sum(ledgers[0].steps.values()) == (0 if name == "no privacy" else 6)
    rows = FITS[name].get("rows", table)()
    assert np.isfinite(here.score_samples(rows)).all()
    assert len(here.sample(50, random_state=0)) == 50


@pytest.mark.thin(4)
@pytest.mark.parametrize("name", FITS)
def test_reproducible_noise_repeats_to_the_last_bit(device, name):
    first, second, other = (
        fitted(device, **FITS[name], random_state=seed) for seed in (3, 3, 4)
    )
    pairs = zip(tensors(first), tensors(second), strict=True)
    assert all(x.equal(y) for x, y in pairs)
    assert same_samples(first, second)
    assert not same_samples(first, other)
    assert name != "tables" or first.tables_


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_places_that_many_values_share(device, dim):
    g = torch.Generator().manual_seed(0)
    values = torch.randn(50, 50, 50, generator=g).to(device)
    index = torch.randint(0, 3, (50,), generator=g).to(device)
    expected = values.cpu().double()
    slices = [
        expected.index_select(dim, (index.cpu() == k).nonzero()[:, 0]) for k in range(3)
    ]
    expected = torch.stack([part.sum(dim) for part in slices], dim)
    shape = [3 if d == dim else 50 for d in range(3)]
    sums = [
        added_at(torch.zeros(shape, device=device), dim, index, values)
        for _ in range(3)
    ]
    torch.testing.assert_close(sums[0].cpu().double(), expected, rtol=0, atol=1e-4)
    assert sums[0].equal(sums[1])
    assert sums[0].equal(sums[2])


def test_products_are_whole_while_norms_are_taken(device):
    g = torch.Generator().manual_seed(0)
    x, w = (torch.randn(256, 256, generator=g).to(device) for _ in range(2))
    pictures = torch.randn(4, 32, 16, 16, generator=g).to(device)
    kernel = torch.randn(32, 32, 3, 3, generator=g).to(device)
    model, errors, convolved = Net(1).to(device), [], torch.nn.functional.conv2d

    def off(a, b):
        return float(((a - b).abs().max() / b.abs().max()).cpu())

    def objective(rows):
        errors.append(off(x @ w, (x.double() @ w.double()).float()))
        whole = convolved(pictures.double(), kernel.double()).float()
        errors.append(off(convolved(pictures, kernel), whole))
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not cudnn.allow_tf32
        return model(x[rows, :4])

    gradient = PrivateGradient(Clipper("flat", BOUND), 0.0, 1.0)
    rows = torch.arange(5, device=device)
    streams = fit.Streams.create(0, "reproducible", device)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast(device, torch.bfloat16):
            gradient(
                model, objective, [(rows, rows >= 0)],
                Mechanisms(streams.counts, streams.gradients), streams.draws,
            )  # fmt: skip
    finally:
        torch.set_float32_matmul_precision("highest")
    assert max(errors) < 3e-5  # those of TF32 are ten times that


def net_and_losses():
    model = Net(2, scale=3.0)
    return model, lambda x: model(x)[0], torch.randn(130, 4)


MODELS = [flow_and_losses, autoencoder_and_losses, net_and_losses]


def layers_on(device, case):
    """Return the gradients of 64 rows, layer by layer, and the model's parameters."""
    torch.manual_seed(0)
    model, losses, data = case()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    model.to(device)
    if case is autoencoder_and_losses:
        noise = torch.randn(64, 1, 2).to(device)
        losses = lambda x: -model(x, noise)[0]  # noqa: E731
    with full_precision(model):
        with record(model) as calls:
            total = losses(data[:64].to(device)).sum()
        return layer_gradients(model, calls, total, 64)


def exact_gradients(layers):
    """Return every row's gradient by layer and parameter, in float64 on the CPU.

    They are formed one by one, without the closed forms: of the numbers that the layer
    saw on the device, to which the margins refer.
    """
    found = []
    for layer in layers:
        twin = GenericGradients(
            layer.module.cpu().double(),
            [tuple(as_double(x) for x in call) for call in layer.inputs],
            [tuple(as_double(x) for x in call) for call in layer.grads],
        )
        found.append(twin.per_example())
    return found


def as_double(x):
    x = x.cpu()
    return x.double() if x.is_floating_point() else x


@pytest.mark.parametrize("case", MODELS)
def test_norms_and_their_margins_cover_those_of_float64(device, case):
    layers = layers_on(device, case)
    with full_precision(layers[0].module):
        norms = [layer.squared_norms() for layer in layers]
    for (squares, margin), exact in zip(norms, exact_gradients(layers), strict=True):
        true = sum(g.flatten(1).square().sum(1) for g in exact).sqrt()
        size, margin = squares.sqrt().cpu(), margin.cpu()
        assert (true <= size + margin + 1e-12).all()
        torch.testing.assert_close(size, true, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit"])
@pytest.mark.parametrize("case", MODELS)
def test_sums_are_those_of_the_cpu(device, case, strategy):
    sums = []
    for where in (device, "cpu"):
        layers = layers_on(where, case)
        present = torch.arange(64, device=where) % 3 > 0
        with full_precision(layers[0].module):
            sums.append(Clipper(strategy, BOUND).clipped_sums(layers, present, None))
    for x, y in zip(*(each.values() for each in sums), strict=True):
        torch.testing.assert_close(x.cpu(), y.cpu(), rtol=1e-4, atol=1e-4 * BOUND)


@pytest.mark.thin(3)
@pytest.mark.parametrize("strategy", ["flat", "per-layer", "per-unit", "sparsified"])
@pytest.mark.parametrize("case", MODELS)
def test_no_row_moves_the_sum_by_more_than_its_bound(device, case, strategy):
    reached = 0.0
    for row in range(8):
        layers = layers_on(device, case)
        present = torch.arange(64, device=device) == row
        generator = torch.Generator(device=device).manual_seed(row)
        with full_precision(layers[0].module):
            moved = Clipper(strategy, BOUND).clipped_sums(layers, present, generator)
        assert {x.device.type for x in moved.values()} == {device}
        reached = max(reached, norm(moved))
    assert reached <= BOUND * (1 + 1e-6)
    assert reached > (0.5 if strategy == "per-unit" else 0.99) * BOUND


@contextmanager
def no_waiting(device):
    """Let whatever makes the host wait for the device raise."""
    if device == "cpu":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("clipping", ["flat", "per-layer", "per-unit", Sparsified()])
def test_a_private_step_does_not_wait(device, clipping, monkeypatch):
    whole, n_seen = PrivateGradient.__call__, []

    def watched(self, model, objective, chunks, *rest):
        chunks = list(chunks)  # the one copy of a step
        with no_waiting(device):
            n_seen.append(len(chunks))
            return whole(self, model, objective, chunks, *rest)

    monkeypatch.setattr(PrivateGradient, "__call__", watched)
    fitted(device, clipping=clipping, noise="fresh")
    assert len(n_seen) == 6


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["flow", "tables", "autoencoder", "images"])
def test_what_was_fitted_loads_on_the_cpu(device, name, tmp_path):
    saved = fitted(device, **FITS[name], noise="secure")
    saved.save(tmp_path / "model.dpg")
    loaded = load(tmp_path / "model.dpg")
    assert {x.device.type for x in tensors(saved) + tensors(loaded)} == {"cpu"}
    assert same_samples(saved, loaded)


def test_an_interrupted_fit_goes_on(device, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    path, kept = tmp_path / "unfinished.dpg", {"clipping": Sparsified()}
    whole = fitted(device, **kept)
    interrupt(unfitted(device, **kept), table(), path, n_done=3)
    resumed = unfitted(device, **kept).fit(table(), checkpoint=path)
    pairs = zip(tensors(whole), tensors(resumed), strict=True)
    assert all(x.equal(y) for x, y in pairs)


def test_the_benchmark_of_steps_runs(device, tmp_path, monkeypatch, capsys):
    argv = ["step.py", "--batch", "8", "--rounds", "1", "--device", device]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(step, "RESULTS", tmp_path)
    # What git says, and processes that measure memory.
    monkeypatch.setattr(step.subprocess, "check_output", lambda *_, **__: "1024 2048")
    step.main()
    (path,) = tmp_path.iterdir()
    assert path.name == ("step.md" if device == "cpu" else "step-cuda.md")
    rows = [line.split(" | ") for line in path.read_text().split("\n") if "| " in line]
    ratios = {name: float(ratio) for name, _, ratio, *_ in rows if name[2:] in KINDS}
    assert len(ratios) == len(KINDS)
    assert np.isfinite(list(ratios.values())).all()


@pytest.mark.skipif(HAS_CUDA, reason="would measure")
def test_the_benchmark_says_that_there_is_no_device(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["step.py", "--device", "cuda"])
    with pytest.raises(
        SystemExit, match="There is no CUDA device: nothing is measured"
    ):
        step.main()
