"""Time of a term-wise private step against the same step without privacy.

Both form the gradient of the autoencoder's loss and of a divergence averaged over 16
partitions of the batch, in one process, in turns:

    python benchmarks/termwise.py [--batch 2048] [--rounds 30]

Writes ``benchmarks/results/termwise.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from step import adult_like, table, timed
from torch import Tensor

from dpgenerative._random import Streams
from dpgenerative.fitting.loop import keep_freed_memory
from dpgenerative.models.divergences import LATENT_DIVERGENCES, Latents
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import VAE
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.sampling import draw_partitions
from dpgenerative.privacy.steps import Clipper, PrivateGradient

RESULTS = Path(__file__).parent / "results"
N_PARTITIONS = 16
LATENTS = 16


def autoencoder(generator: torch.Generator) -> tuple[VAE, list[int]]:
    """Return an autoencoder of the size that a table like Adult gets, and its cells."""
    model = VAE(
        adult_like(), n_basis=8, hidden_units=64, latent_dim=LATENTS,
        prior=NormalPrior(LATENTS), beta=1.0, generator=generator,
    )  # fmt: skip
    return model, model.cells.n_cells


def steps(model: VAE, codes: Tensor, name: str) -> dict[str, Callable]:
    """Return the plain and the private step with one divergence, or with none."""
    streams = Streams.create(None, "fresh", "cpu")
    rows = torch.arange(len(codes))
    present = torch.ones(len(codes), dtype=torch.bool)
    params = list(model.parameters())

    def objective(indices: Tensor) -> tuple[Tensor, Tensor]:
        shape = (len(indices), 1, LATENTS)
        noise = torch.randn(shape, generator=streams.draws)
        bound, latents = model(codes[indices], noise)
        posterior = torch.stack([latents.mean, latents.log_variance], 1)
        return -bound, torch.cat([latents.draws, posterior], 1)

    def divergence(image: Tensor) -> Tensor:
        latents = Latents(image[:, :-2], image[:, -2], image[:, -1])
        return LATENT_DIVERGENCES[name](latents, model.prior, streams.draws)

    def partition(n: int) -> np.ndarray:
        return draw_partitions(n, N_PARTITIONS, streams.batches)

    def plain() -> None:
        losses, images = objective(rows)
        loss = losses.mean()
        if name:
            places = torch.from_numpy(partition(len(rows)))
            groups = [images[places == j] for j in range(N_PARTITIONS)]
            parts = [divergence(members) for members in groups if len(members)]
            loss = loss + torch.stack(parts).sum() / N_PARTITIONS
        torch.autograd.grad(loss, params)

    gradient = PrivateGradient(
        Clipper("flat", 1.0, group_bound=0.01), 1.0, float(len(codes)), N_PARTITIONS,
        batch_term_module="encoder",
    )  # fmt: skip
    mechanisms = Mechanisms(streams.counts, streams.gradients)

    def private() -> None:
        gradient(
            model, objective, [(rows, present)], mechanisms, streams.draws,
            divergence if name else None, partition,
        )  # fmt: skip

    return {"plain": plain, "term-wise": private}


def main() -> int:
    """Time all divergences and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    keep_freed_memory()
    generator = torch.Generator().manual_seed(0)
    model, cells = autoencoder(generator)
    draws = torch.rand(options.batch, len(cells), generator=generator)
    codes = (draws * torch.tensor(cells)).long()
    lines = [
        "# Time of a term-wise step",
        "",
        f"{dt.date.today()}, {platform.machine()}, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}, batch {options.batch}, {N_PARTITIONS} partitions; "
        f"command: `python benchmarks/termwise.py {' '.join(sys.argv[1:])}`.",
        "",
    ]
    for name in ("", *LATENT_DIVERGENCES):
        found = timed(steps(model, codes, name), options.rounds, "cpu")
        lines += table(f"Divergence: {name or 'none'}", found, memory={})
    (RESULTS / "termwise.md").write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
