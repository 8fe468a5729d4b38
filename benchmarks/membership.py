"""Where privacy noise enters, and what it costs: Bernau, Robl and Kerschbaum (2022).

    python benchmarks/membership.py --data DIR
    python benchmarks/membership.py --data DIR --sets faces --seeds 1

The framework of the paper's figure 1 (`dpgenerative.study`) on Fashion-MNIST, Olivetti
faces and MotionSense: variational autoencoders, one for each class, without privacy,
under central differential privacy, and learning from rows that were perturbed locally,
by noise on the rows and by a perturbing autoencoder (VAE-LDP). Of every generator: the
accuracy of a small network trained on its rows and tested on real ones, the average
precision of the reconstruction attack, and phi.

Settings are reduced (`SETS`): a few hundred members, small networks, few draws per
attacked record where the paper has 300, three levels of noise. The perturbing
autoencoder learns from rows that are declared public and are in no other part: other
images, other people, and the test trials of MotionSense.

Local epsilons are for any two values of a whole record: neighbours of images may differ
in all pixels, and the entries of a series share epsilon. The paper states epsilon for
some pixels or one entry, and sums it up elsewhere.

Finished fits are in ``benchmarks/results/membership.jsonl`` and are not repeated;
``membership.md`` and the pictures in ``doc/_static`` are made of those asked for.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import loaders
import numpy as np
import pandas as pd
import torch
from records import markdown_table
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from torch import nn
from torch.nn import functional as F

from dpgenerative import (
    ArrayArchitecture,
    DPArrayVAESynthesizer,
    ImagePixelizer,
    LaplaceRandomizer,
    Optimizer,
    VAEPerturber,
)
from dpgenerative.study import plot_tradeoff, privacy_utility_tradeoff

RESULTS = Path(__file__).parent / "results"
PICTURES = Path(__file__).parents[1] / "doc" / "_static"
EPSILONS = (1.0, 10.0, 100.0)
VAE_EPSILONS = (10.0, 100.0)


class SmallNetwork(ClassifierMixin, BaseEstimator):
    """A convolutional classifier of images (like VGG) or of series (like HARCNN).

    Parameters
    ----------
    kind : {"images", "series"}
    n_steps, batch_size : int
        Steps of Adam, and rows of each.
    random_state : int
    """

    def __init__(
        self, kind: str, n_steps: int = 250, batch_size: int = 64, random_state: int = 0
    ) -> None:
        self.kind = kind
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def fit(self, X: np.ndarray, y: np.ndarray) -> SmallNetwork:
        """Train on arrays (n, height, width) or (n, steps, channels)."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self._mean, self._std = float(X.mean()), float(X.std()) + 1e-6
        x, target = self._tensor(X), torch.from_numpy(codes)
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state)
            make = _vgg if self.kind == "images" else _harcnn
            self._network = make(x.shape, len(self.classes_))
            optimizer = torch.optim.Adam(self._network.parameters(), lr=0.002)
            for _ in range(self.n_steps):
                rows = torch.randint(len(x), (self.batch_size,))
                loss = F.cross_entropy(self._network(x[rows]), target[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the likeliest class of every array."""
        with torch.no_grad():
            parts = [self._network(part) for part in self._tensor(X).split(256)]
        return self.classes_[torch.cat(parts).argmax(1).numpy()]

    def _tensor(self, X: np.ndarray) -> torch.Tensor:
        x = torch.from_numpy((X.astype(np.float32) - self._mean) / self._std)
        return x.unsqueeze(1) if self.kind == "images" else x.transpose(1, 2)


def _vgg(shape: Sequence[int], n_classes: int) -> nn.Module:
    """Return pairs of 3 x 3 convolutions, each followed by a maximum of 2 x 2.

    Images of more than 32 pixels a side are halved first, which saves most of the time.
    """
    layers: list[nn.Module] = [nn.AvgPool2d(2)] if min(shape[2:]) > 32 else []
    for n_in, n_out in pairwise((1, 8, 16)):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU()]
        layers += [nn.Conv2d(n_out, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    flat = nn.Sequential(*layers, nn.Flatten())
    n_features = flat(torch.zeros(1, *shape[1:])).shape[1]
    return nn.Sequential(
        flat, nn.Linear(n_features, 64), nn.ReLU(), nn.Linear(64, n_classes)
    )


def _harcnn(shape: Sequence[int], n_classes: int) -> nn.Module:
    """Return two convolutions over time, and their mean and maximum over time."""
    return nn.Sequential(
        nn.Conv1d(shape[1], 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2),
        nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(), nn.AdaptiveAvgPool1d(3),
        nn.Flatten(), nn.Linear(96, n_classes),
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """One data set: what is studied, what is public, and how.

    Attributes
    ----------
    X, y : ndarray
    public : ndarray
        Arrays that the perturbing autoencoder learns from.
    estimator : DPArrayVAESynthesizer
    classifier : SmallNetwork
    local : dict
        Transformers of the rows by name, VAE-LDP aside.
    options : dict
        Of `privacy_utility_tradeoff`.
    """

    X: np.ndarray
    y: np.ndarray
    public: np.ndarray
    estimator: DPArrayVAESynthesizer
    classifier: SmallNetwork
    local: dict[str, list[Any]]
    options: dict[str, Any]


def fashion(folder: Path) -> Part:
    """Return images of clothing: 500 members, as many others and test images."""
    X, y = loaders.fashion_images(data_home=folder)
    return Part(
        X[:1500], y[:1500], X[1500:3000],
        autoencoder(150, hidden_units=128, latent_dim=32, beta=0.1),
        SmallNetwork("images"),
        {"pixels": [ImagePixelizer(e, cell=4, neighbours=784) for e in (300.0, 3e3)]},
        {"n_draws": 30, "test_size": 1 / 3},
    )  # fmt: skip


def faces(folder: Path) -> Part:
    """Return 20 people, of four pictures each as members; the others are public."""
    X, y = loaders.olivetti_faces(data_home=folder)
    return Part(
        X[:200], y[:200], X[200:],
        autoencoder(50, hidden_units=64, latent_dim=16, beta=0.1),
        SmallNetwork("images", batch_size=32),
        {"pixels": [ImagePixelizer(e, cell=8, neighbours=4096) for e in (300.0, 3e3)]},
        {"n_draws": 10, "test_size": 0.2},
    )  # fmt: skip


def motion(folder: Path) -> Part:
    """Return a second of movement each, of six activities."""
    table = loaders.motionsense_windows(25, data_home=folder)
    chosen, public = (
        np.random.default_rng(0).permutation(len(table[f"X_{part}"]))
        for part in ("train", "test")
    )
    bounds = (-2.0, 2.0)
    return Part(
        table.X_train[chosen[:900]], table.y_train[chosen[:900]],
        table.X_test[public[:900]],
        autoencoder(
            60, networks="lstm", hidden_units=32, latent_dim=8,
            likelihood="gaussian", std=0.05,
        ).set_params(value_range=bounds),
        SmallNetwork("series"),
        {"entries": [LaplaceRandomizer(e, bounds=bounds) for e in (300.0, 3e3)]},
        {"n_draws": 30, "test_size": 1 / 3},
    )  # fmt: skip


def autoencoder(n_steps: int, **architecture: Any) -> DPArrayVAESynthesizer:
    """Return the generator of a class."""
    return DPArrayVAESynthesizer(
        n_steps=n_steps,
        batch_size=32,
        architecture=ArrayArchitecture(**architecture),
        optimizer=Optimizer("adam", learning_rate=0.01),
    )


SETS: dict[str, Callable[[Path], Part]] = {
    "fashion": fashion,
    "faces": faces,
    "motion": motion,
}


def run(name: str, options: argparse.Namespace) -> pd.DataFrame:
    """Study one data set, as far as it is not recorded."""
    part = SETS[name](options.data)
    perturbing = part.estimator.set_params(
        epsilon=None, random_state=0, noise="reproducible"
    )
    public = FrozenEstimator(perturbing.fit(part.public))
    local = part.local | {
        "VAE-LDP": [VAEPerturber(public, epsilon=e, public=True) for e in VAE_EPSILONS]
    }
    found = privacy_utility_tradeoff(
        part.estimator, part.X, part.y, classifier=part.classifier, local=local,
        epsilons=EPSILONS, seeds=range(options.seeds), n_jobs=options.jobs,
        record=RESULTS / "membership.jsonl", verbose=True, **part.options,
    )  # fmt: skip
    plot_tradeoff(found).savefig(PICTURES / f"membership_{name}.png", dpi=110)
    return found


def table(found: pd.DataFrame) -> str:
    """Return medians over seeds, with the least and the greatest, as markdown."""
    measures = ["accuracy", "average_precision", "auc", "ssim", "phi"]
    rows = []
    keys = ["mechanism", "scope", "parameter", "value"]
    for (mechanism, scope, *_), part in found.groupby(keys, sort=False, dropna=False):
        label = f"{mechanism}, {scope}" if scope else mechanism
        epsilon = part["epsilon"].median()
        cells = [label, "" if np.isnan(epsilon) else f"{epsilon:.4g}"]
        for measure in measures:
            values = part[measure].dropna()
            text = f"{values.median():.3f} ({values.min():.3f} to {values.max():.3f})"
            cells.append(text if len(values) else "")
        rows.append(cells)
    return "\n".join(markdown_table(["noise", "epsilon", *measures], rows)[:-1])


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time")
    return parser.parse_args()


def main() -> int:
    """Run what is not recorded yet, write tables and pictures."""
    options = parse()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    parts = ["# Membership inference and noise, median (least to greatest) of seeds"]
    for name in options.sets:
        found = run(name, options)
        seconds = found.groupby(["mechanism", "value", "seed"], dropna=False)["seconds"]
        sizes = f"{found['n_members'].iloc[0]} members, {found['n_test'].iloc[0]} test"
        parts += [
            f"## {name}",
            f"{sizes} rows, {found['seed'].nunique()} seeds, chance "
            f"{found['chance'].median():.3f}; {seconds.max().sum() / 60:.1f} minutes.",
            table(found),
        ]
    text = "\n\n".join(parts) + "\n"
    (RESULTS / "membership.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
