"""Training, sampling and scoring on a device that is not the CPU, without having one.

Tensors are fake: they have a shape and a device, but no numbers, and an operation on
two devices raises. In a build without CUDA autograd takes no CUDA tensor, fake or not,
so that gradients are traced on "meta", the one other device that it knows. On a device
the host waits whenever it reads a number; the tests count what it reads and copies.
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpgenerative import (
    BatchTerm,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Sparsified,
)
from dpgenerative.fitting import loop
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.models import cells
from dpgenerative.models.factors import Correct, CountedTable
from dpgenerative.privacy import plan
from dpgenerative.privacy.precision import added_at
from dpgenerative.privacy.sampling import capacity
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.flow import FlowRecipe

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import cuda_device
import step

DEVICE = "meta"
aten = torch.ops.aten
BATCH, N_PARTITIONS = 20, 3
N_PLACES = capacity(BATCH)


class Generator(torch.Generator):
    """Says that it is on the device; nothing is drawn from it."""

    device = torch.device(DEVICE)


class Watch(TorchDispatchMode):
    """Count what crosses between host and device, and answer what the host asks.

    To the host all numbers are 1, truths are `truth`, masks select all rows, and of a
    batch all rows but a few are in the first partition.
    """

    truth = True

    def __init__(self):
        super().__init__()
        self.seen = Counter()
        self.answers = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket
        assert not has_no_order(name, args), f"{name} adds in an order of its own"
        if name is aten._local_scalar_dense:
            return self.number(args[0], func)
        if name in (aten.nonzero, aten._linalg_check_errors):
            self.seen["read"] += on_device(args[0])
        if name is aten.bincount:
            self.seen["read"] += on_device(args[0])
            n = kwargs.get("minlength", args[-1])
            return torch.zeros(n, dtype=torch.long, device=DEVICE)
        if name is aten.index:
            args = (args[0], [self.places(i) for i in args[1]])
        result = func(*args, **kwargs)
        if name in (aten._to_copy, aten.copy_):
            source = args[1] if name is aten.copy_ else args[0]
            if on_device(source) != on_device(result):
                self.seen["read" if on_device(source) else "copy"] += 1
                sizes = on_device(source) and result.dtype is torch.long
                if sizes and len(result) == N_PARTITIONS + 1:
                    self.answers = [N_PLACES - N_PARTITIONS] + [1] * N_PARTITIONS
        return result

    def number(self, x, func):
        if not isinstance(x, FakeTensor):
            with torch._subclasses.fake_tensor.unset_fake_temporarily():
                return func(x)
        self.seen["read"] += on_device(x)
        if x.dtype is torch.bool:
            return self.truth
        number = self.answers.pop(0) if self.answers else 1
        return float(number) if x.is_floating_point() else number

    def places(self, index):
        """Return the rows of a mask, all of them; the device is asked how many."""
        if index is None or index.dtype != torch.bool:
            self.seen["copy"] += index is not None and not on_device(index)
            return index
        self.seen["read"] += on_device(index)
        return torch.arange(len(index), device=index.device)


def has_no_order(name, args):
    """Tell whether the device's threads add floats to one place as they come."""
    x = args[0] if args else None
    if not isinstance(x, torch.Tensor) or not on_device(x):
        return False
    if name is aten.bincount:
        return len(args) > 1 and isinstance(args[1], torch.Tensor)
    if not x.is_floating_point():
        return False
    if name in (aten.scatter_add, aten.scatter_add_):
        return args[2].shape[args[1]] > 1
    if name is aten.cumsum:
        return x.ndim < 2  # of many rows every one is a thread's
    return name in (aten.index_add, aten.index_add_, aten.scatter_reduce, aten.histc)


class WatchLists(TorchFunctionMode):
    """Count the numbers of Python that go to the device, which no dispatcher sees."""

    def __init__(self, seen):
        super().__init__()
        self.seen = seen

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func in (torch.tensor, torch.Tensor.new_tensor):
            self.seen["copy"] += on_device(result)
        if func is torch.Tensor.__getitem__ and on_device(args[0]):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            self.seen["copy"] += sum(isinstance(part, list) for part in index)
        return result


def on_device(x):
    return x.device.type != "cpu"


class Traced(Exception):
    pass


@pytest.fixture
def traced(monkeypatch):
    watch, steps = Watch(), []

    def watched(numbers, *args, **kwargs):
        for t in numbers:
            watch.seen.clear()
            yield t
            steps.append(dict(watch.seen))

    def generator_of(seed, device="cpu"):
        return Generator() if device == DEVICE else torch.Generator()

    def run(self, rows, public=None, keeper=None, n_rows=None):
        released = self.release(rows)
        model = self.recipe.build(*self._facts(released), self.streams.weights)
        without_tables = replace(released.plan, releases=())
        with faked(watch):
            model = model.to(DEVICE)
            self.train(model, released, rows)
            self.recipe.finish(
                model, released.transformer, rows, without_tables, self.mechanisms,
                self.streams,
            )  # fmt: skip
        raise Traced(model)

    monkeypatch.setattr(loop, "watched", watched)
    monkeypatch.setattr(session, "device_of", lambda estimator: DEVICE)
    monkeypatch.setattr("dpgenerative._random.torch_generator", generator_of)
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    monkeypatch.setattr(FakeTensor, "numpy", as_ones)
    monkeypatch.setattr(plan, "calibrate", lambda *_, **__: 9.0)  # saves seconds
    monkeypatch.setattr(plan.PrivacyPlan, "spent", lambda _: 0.0)
    monkeypatch.setattr(PrivateFit, "run", run)
    monkeypatch.setattr("dpgenerative._random._fast_normals", generator_of)
    monkeypatch.setattr(cells, "SobolEngine", Sobol)

    def trace(kind, *rows, **parameters):
        with pytest.raises(Traced) as found:
            kind().set_params(**SMALL | parameters).fit(*rows)
        counted = steps[-1].get("read", 0), steps[-1].get("copy", 0)
        return counted, found.value.args[0]

    return trace


class Sobol:
    """Draws on the CPU, as the real one does."""

    MAXDIM = 21201

    def __init__(self, dimension, **kwargs):
        self.dimension = dimension

    def draw(self, n, dtype):
        return torch.empty(n, self.dimension, dtype=dtype)


def as_ones(x):
    assert not on_device(x), "numpy reads no tensor of a device"
    return np.ones(x.shape, str(x.dtype).removeprefix("torch."))


@contextmanager
def faked(watch):
    with FakeTensorMode(allow_non_fake_inputs=True), watch, WatchLists(watch.seen):
        yield


def table(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": rng.normal(size=n),
            "level": pd.Categorical(rng.choice(list("abc"), n)),
            "whole": rng.integers(0, 5, n),
            "holes": np.where(rng.random(n) < 0.2, np.nan, rng.random(n)),
        }
    )


SMALL = {
    "epsilon": 100.0, "n_steps": 1, "batch_size": BATCH, "n_partitions": N_PARTITIONS,
    "random_state": 0,
}  # fmt: skip


CLIPPINGS = [
    "flat",
    "per-layer",
    "per-unit",
    Sparsified(),
    Sparsified(threshold="ranked"),
]
PAPER = {
    "architecture__n_blocks": 2, "architecture__anchored": False,
    "architecture__dequantization": "variational",
}  # fmt: skip
LINEARS = [
    {},
    {**PAPER, "architecture__linear": "low-rank", "architecture__bias": True},
    {**PAPER, "architecture__linear": "lu"},
]
AGGREGATIONS = ["term-wise", "micro", "batch"]


def test_devices_do_not_mix():
    with faked(watch := Watch()):
        x = torch.zeros(3, device=DEVICE)
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.zeros(3)
        assert not watch.seen
        assert x.sum().item() == 1
        assert len(x[x > 0]) == 3
        x.cpu()
        assert watch.seen["read"] == 3
        torch.linalg.inv(torch.zeros(2, 2, device=DEVICE))
        assert watch.seen["read"] == 4
        x[torch.zeros(1, dtype=torch.long)]
        torch.zeros(3).to(DEVICE)
        assert watch.seen["copy"] == 2
        x[[0]]
        x.new_tensor(1.0)
        torch.tensor(1.0, device=DEVICE)
        assert watch.seen["copy"] == 5


def test_sums_have_an_order():
    with faked(Watch()):
        x = torch.zeros(3, 3, device=DEVICE)
        i, j = (torch.zeros(n, 3, dtype=torch.long, device=DEVICE) for n in (1, 2))
        x.cumsum(0)
        x.scatter_add(0, i, x)
        added_at(x, 1, j[0], x)
        for add in (
            lambda: x[0].cumsum(0),
            lambda: x.scatter_add_(0, j, x),
            lambda: x.index_add(0, i[0], x),
            lambda: x.index_add_(1, i[0], x),
            lambda: torch.bincount(i[0], weights=x[0]),
        ):
            with pytest.raises(AssertionError, match="an order of its own"):
                add()


@pytest.mark.thin(3)
@pytest.mark.parametrize("clipping", CLIPPINGS, ids=repr)
def test_a_private_step_reads_nothing(traced, clipping):
    read, copied = traced(DPHFlowSynthesizer, table(), clipping=clipping)[0]
    assert (read, copied) == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("linear", LINEARS, ids=["none", "low-rank", "lu"])
@pytest.mark.parametrize("clipping", ["per-unit", Sparsified()], ids=str)
def test_blocks(traced, clipping, linear):
    counted, model = traced(DPHFlowSynthesizer, table(), clipping=clipping, **linear)
    assert counted == (0, 1)
    with faked(Watch()):
        model.sample(8, Generator())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parameters", "copied"),
    [
        ({"epsilon": None}, 1),
        ({"architecture__hidden_units": 8}, 1),
        ({"max_grad_norm": "median"}, 1),
        ({"noise": "secure"}, 2),  # drawn by the system, on the CPU
    ],
    ids=str,
)
def test_flows(traced, parameters, copied):
    counted, model = traced(DPHFlowSynthesizer, table(), **parameters)
    assert counted == (0, copied)
    with faked(watch := Watch()):
        shares = torch.zeros(1, model.first.n_cells[1], device=DEVICE)
        model.sample_given(8, Generator(), {1: shares})
        codes = torch.zeros(8, 4, dtype=torch.long, device=DEVICE)
        watch.seen.clear()
        assert on_device(model(codes)[0])
        assert not +watch.seen


@pytest.mark.slow
def test_ordered_columns_alone(traced, monkeypatch):
    monkeypatch.setattr(FlowRecipe, "_ordered_only", lambda *_: True)
    counted, model = traced(DPHFlowSynthesizer, table())
    assert model.first.ordered_only
    assert counted == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("truth", [True, False])
def test_counted_tables(traced, truth):
    model = traced(DPHFlowSynthesizer, table())[1]
    groups = [torch.arange(n) % 2 for n in model.first.n_cells[:3]]
    counted = CountedTable((0, 1, 2), [groups], torch.full((2, 2, 2), 0.125), 0.01)
    with faked(watch := Watch()):
        watch.truth = truth  # of whether the counts are nothing but noise
        correct = Correct([counted])
        model.sample(8, Generator(), correct)
        model.factors = [factor.to(DEVICE) for factor in correct.factors]
        assert len(model.factors) == 0 if truth else 2
        model.sample(8, Generator())
        model(torch.zeros(8, 4, dtype=torch.long, device=DEVICE))


@pytest.mark.slow
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("linear", LINEARS, ids=["none", "low-rank", "lu"])
def test_a_divergence_reads_once(traced, aggregation, linear):
    term = BatchTerm("mmd", aggregation=aggregation)
    counted, _ = traced(DPHFlowSynthesizer, table(), divergence=term, **linear)
    # The partitions are drawn on the CPU.
    assert counted == (1, 2 if aggregation == "term-wise" else 1)


class Laplace:
    def __init__(self, dim):
        zeros, ones = torch.zeros(dim), torch.ones(dim)
        self.base = torch.distributions.Laplace(zeros, ones, validate_args=False)

    def log_prob(self, z):
        return self.base.log_prob(z).sum(-1)

    def sample(self, n, generator=None):
        u = torch.rand(n, len(self.base.mean), generator=generator)
        return self.base.icdf(u)


def check_autoencoder(counted, model, rows, divergence):
    assert counted == (bool(divergence), 1 + bool(divergence))
    with faked(Watch()):
        noise = torch.zeros(8, 2, model.latent_dim, device=DEVICE)
        assert on_device(model.log_likelihood(rows.to(DEVICE), noise))
        assert on_device(model.sample(8, Generator()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prior", "divergence"),
    [
        ("normal", None),
        ("mixture", "kl"),
        ("sparse", "mmd"),
        pytest.param(Laplace(3), None, id="Laplace-None"),
        pytest.param(Laplace(3), "kl", id="Laplace-kl"),
        pytest.param(Laplace(3), "mmd", id="Laplace-mmd"),
    ],
    ids=str,
)
def test_tables(traced, prior, divergence):
    given = {"prior": prior, "divergence": divergence, "conditional": "level"}
    counted, model = traced(DPVAESynthesizer, table(), **given)
    rows = torch.zeros(8, 4, dtype=torch.long)
    check_autoencoder(counted, model, rows, divergence)


@pytest.mark.slow
@pytest.mark.parametrize("networks", ["mlp", "conv", "lstm"])
@pytest.mark.parametrize(
    ("clipping", "divergence"), [("flat", "mmd"), ("per-unit", None)]
)
def test_arrays(traced, networks, clipping, divergence):
    arrays = np.random.default_rng(0).random((60, 4, 4))
    counted, model = traced(
        DPArrayVAESynthesizer, arrays, value_range=(0, 1), clipping=clipping,
        architecture__networks=networks, divergence=divergence,
        architecture__likelihood="gaussian",
        architecture__latent_distribution="mixture",
    )  # fmt: skip
    check_autoencoder(counted, model, torch.zeros(8, 1, 4, 4), divergence)


@pytest.mark.slow
def test_series(traced):
    series = [np.full((1 + i % 3, 2), 0.5) for i in range(60)]
    counted, model = traced(
        DPArrayVAESynthesizer, series, value_range=(0, 1), image_shape=(3, 2),
        architecture__networks="lstm",
    )  # fmt: skip
    check_autoencoder(counted, model, torch.zeros(8, 1, 3, 3), None)


def test_classes(traced):
    arrays = np.random.default_rng(0).random((60, 4, 4))
    counted, _ = traced(
        DPArrayVAESynthesizer, arrays, np.arange(60) % 2, value_range=(0, 1),
        classes=[0, 1],
    )  # fmt: skip
    assert counted == (0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("case", range(5))
def test_steps_of_the_benchmark(traced, case):
    model, losses, data = list(cuda_device.cases(8, DEVICE).values())[case]
    with faked(watch := Watch()):
        steps = step.our_steps(model, losses, data, [*step.FAST, "sparsified"])
        for take in steps.values():
            watch.seen.clear()
            take()
            assert not +watch.seen
