"""Sparse latents by a divergence: Fashion-MNIST, Takahashi et al. 2020, section 5.1.

    python benchmarks/sparsity.py --data DIR
    python benchmarks/sparsity.py --data DIR --rate 4 --methods privae+mmd privae
    python benchmarks/sparsity.py --data DIR --full

As published: images padded to 32 x 32; encoder, decoder and the spike-and-slab prior of
Mathieu et al. (2019) with 50 latents, gamma .8 and variance .05 of the spike;
Cauchy-MMD of scales {.2, .4, 1, 2, 4, 10} and weight alpha = 100; expected batch 256,
16 partitions, C1 = .05, C2 = .005, C = .0002 for ``micro`` and ``batch``; steps of
plain gradient descent at rate .001; epsilon 1, 10 and 100 at delta 1e-5. Chosen here:
one draw per image, Bernoulli pixels, group normalisation for batch normalisation, which
would couple the images, and the noise of this package. The number of images is public.

The paper makes ten passes. Without ``--full`` there are .4, which is 94 steps at the
same sampling rate, and a quarter of the channels.

Methods: ``privae+mmd`` clips the two terms apart (term-wise); ``privae`` has no
divergence; ``micro`` and ``batch`` are the paper's baselines for the sum of both;
``vae+mmd`` and ``vae`` have neither noise nor clipping; ``untrained`` is where all of
them start. Runs of one seed start at the same weights and are compared in pairs.

What came out is in ``doc/termwise.rst``. Records go to
``benchmarks/results/sparsity.jsonl``, runs recorded there are not repeated;
``sparsity.md`` and ``sparsity.png`` are made of all of them. Measures, on 1,000 test
images: Hoyer sparsity of the posterior means (equation 17 of the paper); the same of
means less their average over images, since a shift of a few latents passes for
sparsity; the importance-weighted bound of the log-likelihood with ten draws; the
squared MMD of one draw per image to as many from the prior. For comparison: draws from
the prior have sparsity .42, normal ones .23.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from loaders import fashion_images
from records import append, markdown_table, read
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative._random import Streams
from dpgenerative.fitting.loop import batches, plain_gradient
from dpgenerative.metrics import hoyer_sparsity
from dpgenerative.models.divergences import unbiased_mmd
from dpgenerative.models.networks import ConvDecoder, ConvEncoder
from dpgenerative.models.priors import SparsePrior, log_normal
from dpgenerative.privacy.accounting import (
    GaussianRelease,
    calibrate,
    epsilon_of,
    joint_multiplier,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.sampling import capacity, draw_partitions
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.tables.private import Private

RESULTS = Path(__file__).parent / "results"
SHAPE, LATENTS, BATCH, PARTITIONS, DELTA = (1, 32, 32), 50, 256, 16, 1e-5
BOUND, GROUP_BOUND, COUPLED_BOUND, ALPHA = 0.05, 0.005, 0.0002, 100.0
KAPPA = 2 * math.sqrt(math.log(2 / DELTA) / math.log(1 / DELTA))
RATE, N_IMAGES, PASSES, WIDTH, EPSILONS = 0.001, 60_000, 10.0, 32, (1.0, 10.0, 100.0)
N_TEST, N_DRAWS, N_NODES = 1000, 10, 64
PRIOR = SparsePrior(LATENTS)
PRIVATE = ("privae+mmd", "privae", "micro", "batch")
METHODS = (*PRIVATE, "vae+mmd", "vae", "untrained")
PAIRS = (
    *(("privae+mmd", other) for other in ("privae", "micro", "batch")),
    ("vae+mmd", "vae"),
    *((method, "untrained") for method in METHODS[:-1]),
)
MEASURES = {
    "hoyer": "Hoyer sparsity",
    "hoyer_centred": "the same, centred",
    "log_likelihood": "log-likelihood, at least",
    "mmd": "squared MMD(q, p)",
}


@dataclass(frozen=True)
class Run:
    """One line of the records."""

    method: str
    epsilon: float | None
    seed: int
    rate: float
    n_images: int
    passes: float
    width: int

    @property
    def sampling_rate(self) -> float:
        """Probability that an image enters a batch."""
        return BATCH / self.n_images

    @property
    def n_steps(self) -> int:
        """Number of gradient steps."""
        return round(self.passes / self.sampling_rate)

    @property
    def has_divergence(self) -> bool:
        """Whether the loss has the batch-wise term."""
        return self.method not in ("privae", "vae")


class Autoencoder(nn.Module):
    """Gaussian posterior of 50 latents, Bernoulli pixels."""

    def __init__(self, width: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = (width, 2 * width, 4 * width)
        self.encoder = ConvEncoder(SHAPE, LATENTS, generator, widths)
        self.decoder = ConvDecoder(SHAPE, LATENTS, generator, widths)

    def log_ratio(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return log p(x, z) - log q(z | x) of every image, and its draw z."""
        mean, log_variance = self.encoder(x)
        z = mean + (log_variance / 2).exp() * noise
        pixels = F.binary_cross_entropy_with_logits(
            self.decoder(z), x, reduction="none"
        )
        gap = PRIOR.log_prob(z) - log_normal(z, mean, log_variance)
        return gap - pixels.flatten(1).sum(1), z


def load(folder: Path, name: str, n: int) -> Tensor:
    """Return the first n images, padded to 32 x 32, in [0, 1]."""
    images, _ = fashion_images(name, data_home=folder)
    padded = F.pad(torch.from_numpy(images[:n, None].copy()), (2, 2, 2, 2))
    return padded.float() / 255


# Noise ----------------------------------------------------------------------------


def make_plan(run: Run) -> PrivacyPlan:
    """Return the plan of a run: all of the budget goes to the gradients."""
    q, steps = run.sampling_rate, run.n_steps
    multiplier = 0.0
    if run.epsilon is not None:
        multiplier = calibrate([], q, steps, run.epsilon, DELTA)
    return PrivacyPlan(
        epsilon=math.inf if run.epsilon is None else run.epsilon, delta=DELTA,
        count_epsilon=0.0, n_rows=run.n_images, threshold_delta=0.0,
        noise_multiplier=multiplier, sampling_rate=q, n_steps=steps, releases=(),
    )  # fmt: skip


def gradient_of(run: Run, plan: PrivacyPlan) -> PrivateGradient:
    """Return how a run's gradients are bounded."""
    is_coupled = run.method in ("micro", "batch")
    clipper = Clipper(
        "flat", COUPLED_BOUND if is_coupled else BOUND, group_bound=GROUP_BOUND
    )
    return PrivateGradient(
        clipper, plan.noise_multiplier, BATCH, PARTITIONS,
        run.method if is_coupled else "term-wise",
        batch_cap=capacity(BATCH), batch_term_module="encoder",
    )  # fmt: skip


def noise_table(epsilons: Sequence[float]) -> list[str]:
    """Compare this package's noise with the paper's, at its size, as markdown."""
    rows = [
        [f"{epsilon:g}", name, *(f"{each:.3g}" for each in (*stds, true))]
        for epsilon in epsilons
        for name, stds, true in noises(epsilon)
    ]
    head = ["epsilon", "noise", "decoder", "encoder", "true epsilon"]
    return markdown_table(head, rows)


def noises(epsilon: float) -> Iterator[tuple[str, tuple[float, float], float]]:
    """Yield noises that promise epsilon, and what they cost."""
    q = BATCH / N_IMAGES
    steps = round(PASSES / q)

    def cost(*multipliers: float) -> float:
        release = GaussianRelease(joint_multiplier(multipliers), q, steps)
        return epsilon_of([release], DELTA, epsilon)

    z = calibrate([], q, steps, epsilon, DELTA)
    each = KAPPA * z
    alone, group = each * BOUND / BATCH, each * GROUP_BOUND / PARTITIONS
    true = cost(each, each / 2)
    same = calibrate([], q, steps, true, DELTA)
    yield "joint, optimal split", joint_stds(z), cost(z)
    yield "kappa, as published", (alone, math.hypot(alone, group)), true
    yield "joint, at that true epsilon", joint_stds(same), cost(same)
    yield "kappa, for 2 C2", (alone, math.hypot(alone, 2 * group)), cost(each, each)


def joint_stds(multiplier: float) -> tuple[float, float]:
    """Return this package's noise of decoder and encoder."""
    a, c = BOUND / BATCH, 2 * GROUP_BOUND / PARTITIONS
    return multiplier * math.sqrt(a * (a + c)), multiplier * (a + c)


# One run --------------------------------------------------------------------------


def fit(run: Run, x: Tensor) -> Autoencoder:
    """Train one autoencoder by plain gradient steps."""
    streams = Streams.create(run.seed, "reproducible", "cpu")
    model = Autoencoder(run.width, streams.weights)
    if run.method == "untrained":
        return model

    def objective(rows: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.randn(len(rows), LATENTS, generator=streams.draws)
        bound, z = model.log_ratio(x[rows], noise)
        return -bound, z

    def divergence(z: Tensor) -> Tensor:
        nodes = PRIOR.sample(N_NODES, streams.draws)
        return ALPHA * unbiased_mmd(z.unsqueeze(1), nodes)

    def partition(size: int) -> np.ndarray:
        return draw_partitions(size, PARTITIONS, streams.batches)

    plan = make_plan(run)
    gradient = gradient_of(run, plan)
    term = divergence if run.has_divergence else None
    mechanisms = Mechanisms(streams.counts, streams.gradients)
    ledger = mechanisms.ledger
    for chunks in batches(plan, Private(x), streams.batches, "cpu", True, ledger):
        if plan.private:
            grads = gradient(
                model, objective, chunks, mechanisms, streams.draws, term, partition
            )
        else:
            grads = plain_gradient(model, objective, chunks, BATCH, term)
        with torch.no_grad():
            for parameter, grad in grads.items():
                parameter.sub_(grad, alpha=run.rate)
    return model


@torch.no_grad()
def measure(model: Autoencoder, x: Tensor, seed: int) -> dict[str, float]:
    """Return all measures on test images."""
    generator = torch.Generator().manual_seed(seed)
    ratios = []
    for _ in range(N_DRAWS):
        noise = torch.randn(len(x), LATENTS, generator=generator)
        ratio, z = model.log_ratio(x, noise)
        ratios.append(ratio)
    bound = torch.logsumexp(torch.stack(ratios), 0) - math.log(N_DRAWS)
    nodes = PRIOR.sample(len(x), generator)
    # Latent by latent: all pairs of all latents at once would take gigabytes.
    pairs = zip(z.split(1, 1), nodes.split(1, 1), strict=True)
    means, _ = model.encoder(x)
    return {
        "hoyer": hoyer_sparsity(means),
        "hoyer_centred": hoyer_sparsity(means - means.mean(0)),
        "log_likelihood": float(bound.mean()),
        "mmd": float(sum(unbiased_mmd(a.unsqueeze(1), b) for a, b in pairs)),
    }


def runs(options: argparse.Namespace) -> list[Run]:
    """Return what the options ask for, seed by seed."""
    common = (options.images, options.passes, options.width)
    return [
        Run(method, epsilon, seed, options.rate, *common)
        for seed in range(options.seeds)
        for method in options.methods
        for epsilon in (options.epsilons if method in PRIVATE else [None])
    ]


# Records --------------------------------------------------------------------------


def key_of(record: dict[str, Any]) -> tuple[Any, ...]:
    """Return what tells runs apart."""
    return tuple(record[name] for name in Run.__dataclass_fields__)


def report(frame: pd.DataFrame) -> str:
    """Return the results as markdown: means, and differences of pairs of runs."""
    lines = ["# Sparse latents on Fashion-MNIST", ""]
    for (images, passes, width), part in frame.groupby(["n_images", "passes", "width"]):
        lines += [
            f"## {images} images, {passes:g} passes, width {width}",
            "",
            "Mean over seeds (standard deviation).",
            "",
            *table("method", means(part)),
            "Differences of runs of one seed: mean, and half of the 95 % interval.",
            "",
            *table("difference", differences(part)),
        ]
    lines += [
        "## Noise",
        "",
        "Standard deviation of the noise of a coordinate at the paper's size, 60,000 "
        f"images and ten passes. `kappa`: either term has {KAPPA:.3f} times the noise "
        "multiplier that the whole budget would take; `as published` for a sensitivity "
        "C2 of the partitions. True epsilons are upper bounds, by joint accounting for "
        "adding or removing one image.",
        "",
        *noise_table(EPSILONS),
    ]
    return "\n".join(lines)


def table(name: str, rows: Iterator[tuple[Any, ...]]) -> list[str]:
    """Return a table of all measures as markdown."""
    head = ["rate", "epsilon", name, "seeds", *MEASURES.values()]
    cells = ([f"{rate:g}", f"{eps:g}", *map(str, rest)] for rate, eps, *rest in rows)
    return markdown_table(head, cells)


def means(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the mean and the deviation of every measure of every method."""
    for (rate, epsilon, method), part in frame.groupby(["rate", "epsilon", "method"]):
        values = part[list(MEASURES)]
        cells = zip(values.mean(), values.std(), strict=True)
        texts = (f"{mean:.5g}{in_brackets(std)}" for mean, std in cells)
        yield rate, epsilon, method, len(part), *texts


def differences(frame: pd.DataFrame) -> Iterator[tuple[Any, ...]]:
    """Yield the differences of pairs of methods over seeds, with intervals."""
    for rate, epsilon, method, other, gaps in paired(frame):
        cells = zip(gaps.mean(), half_interval(gaps), strict=True)
        texts = (f"{mean:+.2g}{in_brackets(half)}" for mean, half in cells)
        yield rate, epsilon, f"{method} - {other}", len(gaps), *texts


def in_brackets(spread: float) -> str:
    """Return a spread in brackets; of one seed there is none."""
    return "" if math.isnan(spread) else f" ({spread:.2g})"


def paired(
    frame: pd.DataFrame,
) -> Iterator[tuple[float, float, str, str, pd.DataFrame]]:
    """Yield rate, epsilon and the two methods of a pair, and their gaps by seed."""
    start = frame[frame["method"] == "untrained"].set_index("seed")[list(MEASURES)]
    for (rate, epsilon), part in frame.groupby(["rate", "epsilon"]):
        found = {
            name: runs_of.set_index("seed")[list(MEASURES)]
            for name, runs_of in part.groupby("method")
        } | {"untrained": start}
        for method, other in PAIRS:
            if method in found and other in found:
                gaps = (found[method] - found[other]).dropna()
                yield float(rate), float(epsilon), method, other, gaps


def half_interval(gaps: pd.DataFrame) -> pd.Series:
    """Return half the width of a 95 % interval of the mean, by Student's t."""
    return gaps.sem() * stats.t.ppf(0.975, max(1, len(gaps) - 1))


def draw(frame: pd.DataFrame) -> None:
    """Draw what training changed of every measure against epsilon, a row per rate."""
    found = [
        (rate, epsilon, method, gaps)
        for rate, epsilon, method, other, gaps in paired(frame)
        if other == "untrained" and method in PRIVATE
    ]
    rates = sorted({rate for rate, *_ in found})
    figure, axes = plt.subplots(
        len(rates), len(MEASURES), figsize=(14, 3.2 * len(rates)), squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for line, rate in zip(axes, rates, strict=True):
        for k, method in enumerate(PRIVATE):
            points = [(e, g) for r, e, m, g in found if (r, m) == (rate, method)]
            if points:
                _draw_line(line, points, f"C{k}", method, 1.05 ** (k - 1.5))
        line[0].set_ylabel(f"rate {rate:g}: change by training")
    for axis, title in zip(axes[0], MEASURES.values(), strict=True):
        axis.set_title(title, fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(PRIVATE))
    figure.savefig(RESULTS / "sparsity.png", dpi=110)
    plt.close(figure)


def _draw_line(
    axes: np.ndarray,
    points: list[tuple[float, pd.DataFrame]],
    color: str,
    label: str,
    shift: float,
) -> None:
    """Draw all measures of one method, a little beside the others."""
    for axis, name in zip(axes, MEASURES, strict=True):
        axis.errorbar(
            [epsilon * shift for epsilon, _ in points],
            [gaps[name].mean() for _, gaps in points],
            [half_interval(gaps)[name] for _, gaps in points],
            color=color, marker="o", capsize=3, label=label,
        )  # fmt: skip
        axis.set_xscale("log")
        axis.set_xlabel("epsilon")
        axis.ticklabel_format(axis="y", scilimits=(-3, 4))


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--images", type=int, default=N_IMAGES)
    parser.add_argument("--passes", type=float, default=0.4)
    parser.add_argument("--width", type=int, default=8, help="first layer's channels")
    parser.add_argument("--full", action="store_true", help="the paper's size")
    options = parser.parse_args()
    if options.full:
        options.passes, options.width = PASSES, WIDTH
    return options


def main() -> int:
    """Run what is not recorded yet, write records, summary and picture."""
    options = parse()
    path = RESULTS / "sparsity.jsonl"
    x = load(options.data, "train", options.images)
    test = load(options.data, "t10k", N_TEST)
    done = {key_of(record) for record in read(path)}
    for run in runs(options):
        if key_of(asdict(run)) in done:
            continue
        start = time.process_time()
        model = fit(run, x)
        seconds = time.process_time() - start
        record = asdict(run) | measure(model, test, run.seed) | {"seconds": seconds}
        print(record, flush=True)
        append(path, record)
    frame = pd.DataFrame(read(path)).fillna({"epsilon": math.inf})
    text = report(frame)
    (RESULTS / "sparsity.md").write_text(text, encoding="utf-8")
    draw(frame)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
