"""Clustering with a divergence: the pinwheel of Takahashi et al. 2020, section 5.2.

    python benchmarks/pinwheel.py [--seeds 10]

400 points of four bent arms; an autoencoder of one hidden layer of 100 units on either
side and two latents, whose prior is a mixture of four Gaussians with means in {0, 1}^2
and variance .03; 20 draws per record, expected batch 20, one partition, clipping norms
.05 and .0005, learning rate .01 (Adam), noise multiplier 1. With the divergence
KL(p || q) the record's own divergence is left out (beta 0), without it beta is 1, as in
the paper. Not stated there, chosen here: 100 passes, no averaging, and the standard
deviation of the decoder's Gaussian head, once 1 (half the squared error) and once .1.
The number of points is public here.

Writes ``benchmarks/results/pinwheel.md`` and ``pinwheel.png``: reconstruction error of
both over seeds, with a paired test, and pictures like the paper's Figure 2 at a head of
standard deviation 1.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from loaders import make_pinwheel
from records import markdown_table
from scipy.stats import ttest_rel
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.fitting.loop import train
from dpgenerative.fitting.options import Optimizer
from dpgenerative.models.divergences import Latents, prior_kl
from dpgenerative.models.networks import Decoder, Encoder
from dpgenerative.models.priors import MixturePrior, log_normal
from dpgenerative.privacy.accounting import GaussianRelease, epsilon_of
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.tables.private import Private

RESULTS = Path(__file__).parent / "results"
N_POINTS, BATCH, EPOCHS, N_DRAWS, HIDDEN, DELTA = 400, 20, 100, 20, 100, 1e-3
STDS, LOSSES = (1.0, 0.1), ("without divergence", "with KL(p || q)")
PRIOR = MixturePrior(torch.tensor(list(product([0.0, 1.0], repeat=2))), 0.03)


class Autoencoder(nn.Module):
    """Gaussian posterior of two latents, Gaussian head of fixed standard deviation."""

    def __init__(self, std: float, beta: float, generator: torch.Generator) -> None:
        super().__init__()
        self.std = std
        self.beta = beta
        self.encoder = Encoder(2, 2, HIDDEN, 2, generator)
        self.decoder = Decoder(2, HIDDEN, (2,), generator)

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of every record, and its draws, mean and log-variance."""
        mean, log_variance = self.encoder(x)
        spread = (log_variance / 2).exp().unsqueeze(1)
        z = mean.unsqueeze(1) + spread * noise
        gaps = (self.decoder(z) - x.unsqueeze(1)).square().sum(2)
        loss = (0.5 * gaps / self.std**2).mean(1)
        if self.beta:
            log_q = log_normal(z, mean.unsqueeze(1), log_variance.unsqueeze(1))
            loss = loss + self.beta * (log_q - PRIOR.log_prob(z)).mean(1)
        return loss, torch.cat([z, torch.stack([mean, log_variance], 1)], 1)

    @torch.no_grad()
    def reconstruct(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return posterior means, and where the decoder puts them."""
        mean, _ = self.encoder(x)
        return mean, self.decoder(mean)


def make_plan() -> PrivacyPlan:
    """Return the plan of noise multiplier 1, and what it costs."""
    steps = GaussianRelease(1.0, BATCH / N_POINTS, EPOCHS * N_POINTS // BATCH)
    return PrivacyPlan(
        epsilon=epsilon_of([steps], DELTA, 10.0),
        delta=DELTA,
        count_epsilon=0.0,
        n_rows=N_POINTS,
        threshold_delta=0.0,
        noise_multiplier=steps.noise_multiplier,
        sampling_rate=steps.sampling_rate,
        n_steps=steps.steps,
        releases=(),
    )


def fit(x: Tensor, seed: int, std: float, with_divergence: bool) -> Autoencoder:
    """Train one autoencoder by term-wise DP-SGD."""
    streams = Streams.create(seed, "reproducible", "cpu")
    model = Autoencoder(std, 0.0 if with_divergence else 1.0, streams.weights)

    def objective(rows: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.randn(len(rows), N_DRAWS, 2, generator=streams.draws)
        return model(x[rows], noise)

    def divergence(image: Tensor) -> Tensor:
        latents = Latents(image[:, :-2], image[:, -2], image[:, -1])
        return prior_kl(latents, PRIOR, streams.draws)

    plan = make_plan()
    clipper = Clipper("flat", 0.05, group_bound=0.0005)
    train(
        model, objective, Private(x), plan,
        PrivateGradient(
            clipper, plan.noise_multiplier, BATCH, 1, batch_term_module="encoder"
        ),
        Optimizer("adam", 0.01, 0.0),
        Mechanisms(streams.counts, streams.gradients), streams, "cpu",
        divergence if with_divergence else None,
    )  # fmt: skip
    return model


def error(model: Autoencoder, x: Tensor) -> float:
    """Return the mean squared distance of the points from their reconstructions."""
    _, found = model.reconstruct(x)
    return float((found - x).square().sum(1).mean())


def draw(models: dict[str, Autoencoder], x: Tensor, arms: np.ndarray) -> None:
    """Draw points, latents and reconstructions, one row per model."""
    figure, axes = plt.subplots(len(models), 3, figsize=(9, 6))
    for row, (name, model) in zip(axes, models.items(), strict=True):
        latents, found = model.reconstruct(x)
        parts = {"points": x, "latents": latents, "reconstructions": found}
        for axis, (title, points) in zip(row, parts.items(), strict=True):
            axis.scatter(*points.T, c=arms, s=5, cmap="tab10")
            axis.set_title(f"{title}, {name}", fontsize=9)
            axis.set_aspect("equal", "datalim")
    figure.tight_layout()
    figure.savefig(RESULTS / "pinwheel.png", dpi=110)


def report(errors: dict[tuple[float, str], list[float]], plan: PrivacyPlan) -> str:
    """Return the results as markdown."""
    measured = "mean squared reconstruction error (lowest to highest)"
    rows = [
        [f"{std:g}", name, f"{np.mean(x):.4f} ({min(x):.4f} to {max(x):.4f})"]
        for (std, name), x in errors.items()
    ]
    lines = [
        "# Pinwheel",
        "",
        f"Noise multiplier 1, sampling rate {plan.sampling_rate:g}, {plan.n_steps} "
        f"steps: epsilon {plan.epsilon:.1f} at delta {plan.delta:g}.",
        "",
        *markdown_table(["head", "loss", measured], rows),
    ]
    for std in STDS:
        pair = [np.log(errors[std, name]) for name in LOSSES]
        lines.append(
            f"Head of {std:g}: {len(pair[0])} seeds, paired t-test of the logarithms "
            f"p = {ttest_rel(*pair).pvalue:.2g}."
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run all seeds, write results and pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    errors: dict[tuple[float, str], list[float]] = {
        key: [] for key in product(STDS, LOSSES)
    }
    for seed in range(options.seeds):
        points, arms = make_pinwheel(N_POINTS, random_state=seed)
        x = torch.from_numpy(points).float()
        models = {}
        for (std, name), found in errors.items():
            models[std, name] = fit(x, seed, std, name == LOSSES[1])
            found.append(error(models[std, name], x))
            print(f"seed {seed}, {std:g}, {name}: {found[-1]:.4f}", flush=True)
        if seed == 0:
            draw({name: models[STDS[0], name] for name in LOSSES}, x, arms)
    text = report(errors, make_plan())
    (RESULTS / "pinwheel.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
