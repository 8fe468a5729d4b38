"""Time of a private step against the same step without privacy, Opacus and vmap.

Everything runs in one process, in turns, so that the ratios hold on a noisy machine:

    python benchmarks/step.py [--batch 2048] [--rounds 30] [--device cpu]

Writes ``benchmarks/results/step.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import resource
import statistics
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.fitting.loop import keep_freed_memory, make_optimizer
from dpgenerative.layers import MaskedLinear
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.hflow import HFlow
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import Clipper, PrivateGradient, plain_gradient

RESULTS = Path(__file__).parent / "results"
FAST = ("flat", "per-layer", "per-unit")


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
    params = list(model.parameters())
    generator = torch.Generator(device=device).manual_seed(0)
    streams = Streams.create(None, "fresh", device.type)
    mechanisms = Mechanisms(streams.counts, streams.gradients)

    def objective(indices: Tensor) -> tuple[Tensor, None]:
        return losses(data[indices]), None

    def stepper(gradient):
        optimizer = make_optimizer("adam", params, 1e-3)

        def step() -> None:
            grads = gradient()
            for p in params:
                p.grad = grads[p]
            optimizer.step()

        return step

    def private(strategy):
        gradient = PrivateGradient(Clipper(strategy, 1.0), 1.0, float(batch))
        return lambda: gradient(
            model, objective, [(rows, present)], mechanisms, generator
        )

    steps = {
        "plain": stepper(
            lambda: plain_gradient(model, objective, [(rows, present)], batch)
        )
    }
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


def timed(steps: dict, rounds: int, device: str) -> dict[str, float]:
    """Return the median seconds of every step, taken in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds + 2):
        for name, step in steps.items():
            if device == "cuda":
                torch.cuda.synchronize()
            start = time.perf_counter()
            step()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values[2:]) for name, values in seconds.items()}


def table(title: str, medians: dict[str, float]) -> list[str]:
    """Return a markdown table of times and of ratios to the plain step."""
    plain = medians["plain"]
    lines = [
        f"## {title}",
        "",
        "| step | median ms | ratio to plain |",
        "|---|---|---|",
    ]
    for name, value in medians.items():
        lines.append(f"| {name} | {1e3 * value:.2f} | {value / plain:.2f} |")
    if "Opacus" in medians:
        ratio = medians["Opacus"] / medians["flat"]
        lines += ["", f"Opacus over flat: {ratio:.1f} x."]
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    keep_freed_memory()
    generator = torch.Generator().manual_seed(0)
    lines = [
        "# Time of a private step",
        "",
        f"{dt.date.today()}, {platform.machine()}, {torch.get_num_threads()} "
        f"threads, torch {torch.__version__}, device {args.device}, batch "
        f"{args.batch}; command: `python benchmarks/step.py {' '.join(sys.argv[1:])}`.",
        "",
    ]
    data = torch.randn(args.batch, 256, generator=generator).to(args.device)
    mlp = MLP(generator).to(args.device)
    cases = {"Three dense layers of 256 units": (mlp, mlp.losses, data)}
    for hidden in (0, 64):
        model = flow(generator, hidden).to(args.device)
        cells = torch.tensor(model.first.n_cells)
        codes = (torch.rand(args.batch, len(cells), generator=generator) * cells).long()
        losses = lambda x, m=model: -m(x)[0]  # noqa: E731
        cases[f"Flow, {hidden} hidden units"] = (model, losses, codes.to(args.device))
    medians = {
        name: timed(our_steps(*case, FAST), args.rounds, args.device)
        for name, case in cases.items()
    }
    # Those that fill hundreds of megabytes come last, so that no other step pays.
    for name, case in cases.items():
        steps = our_steps(*case, ["sparsified"])
        if case[0] is mlp:
            steps |= {"Opacus": opacus_step(data), "vmap": vmap_step(data)}
        del steps["plain"]
        medians[name] |= timed(steps, 3, args.device)
        lines += table(name, medians[name])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    lines.append(f"Peak resident memory of the whole run: {peak} MiB.")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "step.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
