"""Time and memory of a private step against the same step without privacy.

    python benchmarks/step.py [--batch 2048] [--rounds 30] [--device cpu]

All steps run in one process, in turns; dense layers are compared with Opacus and vmap,
too. On a CPU one thread is timed by the processor's clock, which does not count what
other programs take. The memory of a step is that of a process of its own, over what it
held before its first step. Writes ``benchmarks/results/step.md`` (on a device,
``step-cuda.md``).
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from operator import truediv
from pathlib import Path

import torch
from records import markdown_table
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.fitting.loop import keep_freed_memory, make_optimizer, plain_gradient
from dpgenerative.fitting.options import Optimizer
from dpgenerative.layers import MaskedLinear
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.hflow import HFlow
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import VAE
from dpgenerative.privacy.clipping import LARGEST_CHUNK
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import (
    Clipper,
    PrivateGradient,
)

RESULTS = Path(__file__).parent / "results"
FAST = ("flat", "per-layer", "per-unit")

Case = tuple[nn.Module, Callable[[Tensor], Tensor], Tensor]


class MLP(nn.Module):
    """Three dense layers, 256 units wide, with a squared loss per row."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.net = nn.Sequential(
            MaskedLinear.dense(256, 256, generator),
            nn.ReLU(),
            MaskedLinear.dense(256, 256, generator),
            nn.ReLU(),
            MaskedLinear.dense(256, 256, generator),
        )

    def losses(self, x: Tensor) -> Tensor:
        return (self.net(x) - x).square().sum(1)


class PlainMLP(nn.Module):
    """The same network out of torch's own layers, which Opacus' hooks know."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Linear(256, 256) for _ in range(3)]
        self.net = nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), layers[2])

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


def adult_like() -> list[CellFacts]:
    """Return cells like those that Adult gets."""
    cells = [40, 16, 40, 17, 12, 8, 15, 7, 6, 3, 15, 13, 26, 16, 3]
    ordered = [True, False, True, *[False] * 7, True, True, True, False, False]
    return [
        CellFacts(torch.full((k,), 1 / k), o, True, torch.ones(k, dtype=torch.bool))
        for k, o in zip(cells, ordered, strict=True)
    ]


def flow(generator: torch.Generator, hidden_units: int) -> HFlow:
    """Return a flow of the size that a table like Adult gets."""
    return HFlow(
        adult_like(),
        n_basis=8,
        hidden_units=hidden_units,
        n_blocks=1,
        linear="none",
        dequantization="uniform",
        anchored=True,
        generator=generator,
    )


def our_steps(model: nn.Module, losses, data: Tensor, strategies) -> dict:
    """Return the plain step and one private step per strategy, on one model."""
    batch, device = len(data), data.device
    rows = torch.arange(batch, device=device)
    present = torch.ones(batch, dtype=torch.bool, device=device)
    # As a fit would have them.
    chunks = list(
        zip(rows.split(LARGEST_CHUNK), present.split(LARGEST_CHUNK), strict=True)
    )
    params = list(model.parameters())
    streams = Streams.create(None, "fresh", device.type)
    mechanisms = Mechanisms(streams.counts, streams.gradients)

    def objective(indices: Tensor) -> tuple[Tensor, None]:
        return losses(data[indices]), None

    def stepper(gradient):
        optimizer = make_optimizer(Optimizer("adam", 1e-3), params)

        def step() -> None:
            grads = gradient()
            for p in params:
                p.grad = grads[p]
            optimizer.step()

        return step

    def private(strategy):
        gradient = PrivateGradient(Clipper(strategy, 1.0), 1.0, float(batch))
        return lambda: gradient(model, objective, chunks, mechanisms, streams.draws)

    steps = {"plain": stepper(lambda: plain_gradient(model, objective, chunks, batch))}
    return steps | {name: stepper(private(name)) for name in strategies}


def opacus_step(data: Tensor):
    """Return a step of Opacus' hooks with its optimizer."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = GradSampleModule(PlainMLP().to(data.device))
    adam = torch.optim.Adam(model.parameters(), lr=1e-3)
    optimizer = DPOptimizer(
        adam, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=len(data)
    )

    def step() -> None:
        optimizer.zero_grad()
        (model(data) - data).square().sum(1).mean().backward()
        optimizer.step()

    return step


def vmap_step(data: Tensor, chunk: int = 128):
    """Return a step of per-example gradients by torch.func, in chunks."""
    model = PlainMLP().to(data.device)
    names = [name for name, _ in model.named_parameters()]
    params = [p.detach() for p in model.parameters()]
    optimizer = torch.optim.Adam(list(model.parameters()), lr=1e-3)

    def loss(values, x):
        out = torch.func.functional_call(
            model, dict(zip(names, values, strict=True)), x[None]
        )
        return (out - x).square().sum()

    per_example = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))

    def step() -> None:
        totals = [torch.zeros_like(p) for p in params]
        for x in data.split(chunk):
            grads = per_example(params, x)
            norms = (
                torch.stack([g.flatten(1).square().sum(1) for g in grads]).sum(0).sqrt()
            )
            scale = (1 / norms.clamp(min=1e-12)).clamp(max=1)
            for total, g in zip(totals, grads, strict=True):
                total += torch.einsum("n,n...->...", scale, g)
        for p, total in zip(model.parameters(), totals, strict=True):
            p.grad = (total + torch.randn_like(total)) / len(data)
        optimizer.step()

    return step


def cases(batch: int, device: str) -> dict[str, Case]:
    """Return the models, their losses and a batch for each."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn(batch, 256, generator=generator).to(device)
    mlp = MLP(generator).to(device)
    found: dict[str, Case] = {
        "Three dense layers of 256 units": (mlp, mlp.losses, data)
    }
    flows = [flow(generator, units).to(device) for units in (0, 64)]
    cells = torch.tensor(flows[0].first.n_cells)
    codes = (torch.rand(batch, len(cells), generator=generator) * cells).long()
    for model, units in zip(flows, (0, 64), strict=True):
        found[f"Flow, {units} hidden units"] = (
            model, partial(lambda flow, x: -flow(x)[0], model), codes.to(device)
        )  # fmt: skip
    vae = VAE(
        adult_like(), n_basis=8, hidden_units=64, latent_dim=16, prior=NormalPrior(16),
        beta=1.0, generator=generator,
    ).to(device)  # fmt: skip
    noise = torch.randn(batch, 1, 16, generator=generator).to(device)
    found["Autoencoder, 64 hidden units"] = (
        vae, lambda x: -vae(x, noise[: len(x)])[0], codes.to(device)
    )  # fmt: skip
    return found


def timed(steps: dict, rounds: int, device: str) -> dict[str, tuple[float, float]]:
    """Return median seconds of every step, in turns, and of its ratio to plain."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    clock = time.process_time if device == "cpu" else time.perf_counter
    for _ in range(rounds + 2):
        for name, step in steps.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = clock()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(clock() - start)
    return {
        name: (
            statistics.median(values[2:]),
            statistics.median(map(truediv, values[2:], seconds["plain"][2:])),
        )
        for name, values in seconds.items()
    }


def resident() -> int:
    """Return the most memory that this process has held, in KiB."""
    # What `getrusage` says begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("VmHWM:")[1].split()[0])


def step_memory(batch: int, case: str, step: str) -> tuple[float, float]:
    """Return what ten steps add to a process of their own, and all it holds, in MiB."""
    strategies = [] if step == "plain" else [step]
    code = f"""
import step
found, before = step.cases({batch}, "cpu")[{case!r}], step.resident()
run = step.our_steps(*found, {strategies})[{step!r}]
for _ in range(10):
    run()
print(before, step.resident())
"""
    folder = Path(__file__).parent
    out = subprocess.check_output([sys.executable, "-c", code], cwd=folder, text=True)
    before, after = map(int, out.split())
    return (after - before) / 1024, after / 1024


def table(title: str, seconds: dict, memory: dict) -> list[str]:
    """Return a markdown table of times, ratios to the plain step, and memory if any."""
    head = ["step", "median ms", "ratio to plain"]
    head += ["MiB of the steps", "MiB in all"] if memory else []
    rows = []
    for name, (median, ratio) in seconds.items():
        held = [f"{each:.0f}" for each in memory.get(name, ())]
        cells = [name, f"{1e3 * median:.2f}", f"{ratio:.2f}", *held]
        rows.append(cells + [""] * (len(head) - len(cells)))
    return [f"## {title}", "", *markdown_table(head, rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    on_cpu = args.device == "cpu"
    if not on_cpu and not torch.cuda.is_available():
        sys.exit("There is no CUDA device: nothing is measured.")
    clock, device = "processor", "cpu"
    if not on_cpu:
        clock, device = "wall-clock", f"cuda ({torch.cuda.get_device_name()})"
    torch.set_num_threads(1)
    keep_freed_memory()
    revision = subprocess.check_output(
        ["git", "describe", "--always", "--dirty"], text=True
    )
    lines = [
        "# Time of a private step",
        "",
        f"{dt.date.today()}, {platform.machine()}, one thread, median of {clock} "
        f"time, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors, revision "
        f"{revision.strip()}, torch {torch.__version__}, device {device}, batch "
        f"{args.batch}; command: `python benchmarks/step.py {' '.join(sys.argv[1:])}`.",
        "",
    ]
    models = cases(args.batch, args.device)
    seconds = {
        name: timed(our_steps(*case, FAST), args.rounds, args.device)
        for name, case in models.items()
    }
    # Those that fill hundreds of megabytes come last, so that no other step pays.
    for name, case in models.items():
        steps = our_steps(*case, ["sparsified"])
        if isinstance(case[0], MLP):
            steps |= {"Opacus": opacus_step(case[2]), "vmap": vmap_step(case[2])}
        late = timed(steps, 5, args.device)
        seconds[name] |= {kind: late[kind] for kind in late if kind != "plain"}
        memory = {}
        if on_cpu:
            kinds = ["plain", *FAST, "sparsified"]
            memory = {kind: step_memory(args.batch, name, kind) for kind in kinds}
        lines += table(name, seconds[name], memory)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("step.md" if on_cpu else "step-cuda.md")
    path.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
