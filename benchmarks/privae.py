"""What PriVAE prints, and how our records stand beside it (`papers.py`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd
import sparsity
import torch
from papers import RESULTS, Line, figure, markdown_cells, verdict
from records import read
from torch import Tensor, nn

from dpgenerative._random import Streams
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.sampling import capacity

RATE = 0.001
"""The published learning rate."""


def noise_lines() -> Iterable[Line]:
    """Measure the noise of a released gradient, by aggregation, at multiplier 1."""
    a, c = sparsity.BOUND / sparsity.BATCH, sparsity.GROUP_BOUND / sparsity.PARTITIONS
    cap, coupled = capacity(sparsity.BATCH), sparsity.COUPLED_BOUND
    kappa = sparsity.KAPPA
    needed = {
        "micro": (2 * cap - 1) * coupled / sparsity.BATCH,
        "batch": 2 * coupled,
        "term-wise": a + 2 * c,
    }
    claimed = {
        "micro": [("sensitivity B C, noise C", coupled)],
        "batch": [("sensitivity C, noise C", coupled)],
        "term-wise": [
            ("sensitivity C1 + C2, noise kappa (C1 / B + C2 / b)", kappa * (a + c)),
            ("equation 16, whose two noises are independent", kappa * math.hypot(a, c)),
        ],
    }
    for name, formulas in claimed.items():
        expected, measured = needed[name], measured_noise(name)
        ours = f"{expected:.3g} needed, measured {measured:.3g}"
        holds = abs(measured / expected - 1) < 0.01
        check = "ours holds to 1 %" if holds else "OUR FORMULA IS BROKEN"
        for formula, value in formulas:
            ratio = expected / value
            says = f"{verdict([ratio <= 1])}: {ratio:.2f} times as much is needed"
            what = f"{name}: noise of the encoder"
            yield what, f"{formula}: {value:.3g}", ours, f"{says}; {check}"


def measured_noise(aggregation: str) -> float:
    """Return the standard deviation of a gradient released from an empty batch."""
    method = "privae+mmd" if aggregation == "term-wise" else aggregation
    run = sparsity.Run(method, None, 0, 0.001, 60_000, 10.0, 8)
    plan = dataclasses.replace(sparsity.make_plan(run), noise_multiplier=1.0)
    encoder, decoder = (MaskedLinear.dense(400, 400) for _ in range(2))
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def objective(rows: Tensor) -> tuple[Tensor, Tensor]:
        latents = encoder(torch.ones(len(rows), 400))
        return decoder(latents).sum(1), latents

    streams = Streams.create(0, "reproducible", "cpu")
    rows = torch.zeros(0, dtype=torch.long)
    out = sparsity.gradient_of(run, plan)(
        model, objective, [(rows, rows.bool())],
        Mechanisms(streams.counts, streams.gradients), streams.draws, torch.mean,
        lambda n: np.zeros(n, int),
    )  # fmt: skip
    return float(out[encoder.weight].double().std())


def sparsity_lines() -> Iterable[Line]:
    """Return the claims of Figure 1 by rate: what the divergence changes."""
    found = read(RESULTS / "sparsity.jsonl")
    frame = pd.DataFrame(found).fillna({"epsilon": math.inf})
    gaps = {
        (rate, epsilon): (gaps.mean(), sparsity.half_interval(gaps))
        for rate, epsilon, method, other, gaps in sparsity.paired(frame)
        if (method, other) == ("privae+mmd", "privae")
    }
    claims: dict[str, tuple[str, str, Callable[[float, float], bool]]] = {
        "hoyer": ("(a) Hoyer", "sparser with the MMD", lambda m, h: m > h),
        "mmd": ("(c) MMD", "smaller MMD with it", lambda m, h: -m > h),
        "log_likelihood": (
            "(b) likelihood",
            "no gain of likelihood",
            lambda m, h: m <= h,
        ),
    }
    for rate in dict.fromkeys(rate for rate, _ in gaps):
        for k, (label, claimed, holds) in claims.items():
            pairs = {e: (m[k], h[k]) for (r, e), (m, h) in gaps.items() if r == rate}
            ours = "; ".join(
                f"{m:+.2g} ({h:.2g}) at {e:g}" for e, (m, h) in pairs.items()
            )
            says = verdict([holds(*pair) for pair in pairs.values()], "epsilons")
            yield f"rate {rate:g}, {label}", claimed, ours, says
    yield non_private_line(frame)


def non_private_line(frame: pd.DataFrame) -> Line:
    """Return sparsity with the divergence, with and without privacy."""
    means = frame.groupby(["rate", "method", "epsilon"])["hoyer"].mean()
    free = means[RATE, "vae+mmd"].iloc[0]
    private = means[RATE, "privae+mmd"]
    ours = f"VAE+MMD {figure(free)}, PriVAE+MMD {figure(private.max())} at most"
    claimed = "without privacy sparser still"
    says = verdict([bool(free > each) for each in private], "epsilons")
    return f"rate {RATE:g}, (a) Hoyer", claimed, ours, says


def pinwheel_lines() -> Iterable[Line]:
    """Return reconstruction errors with and without the divergence."""
    rows = [
        markdown_cells(line)
        for line in (RESULTS / "pinwheel.md").read_text("utf-8").splitlines()
        if line.startswith(("| 1", "| 0"))
    ]
    for head in dict.fromkeys(row[0] for row in rows):
        texts = {loss: error for h, loss, error in rows if h == head}
        without, with_ = (float(t.split()[0]) for t in texts.values())
        ours = "; ".join(f"{loss} {text}" for loss, text in texts.items())
        ours = ours.replace(" || ", ", ")  # a column of markdown ends at a bar
        claimed = "good reconstructions with KL(p, q), poor ones without (pictures)"
        says = (
            f"{verdict([with_ < without])}: error {without / with_:.3g} times smaller"
        )
        yield f"head of {head}: reconstructions", claimed, ours, says
    claimed = "four clusters that fit the prior (pictures)"
    says = "untested: drawn in ``pinwheel.png``, not measured"
    yield "head of 1: latents", claimed, "a picture", says
