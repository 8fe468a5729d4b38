"""DP-MERF, from its equations: no package offers it for tables.

Harder, Adamczewski and Park, "DP-MERF: Differentially Private Mean Embeddings with
Random Features for Practical Privacy-Preserving Data Generation", AISTATS 2021. Two
sums over the rows are released by Gaussian mechanisms: the counts of the label's
levels, and the rows' features for each of them. Features are random Fourier features
of all numbers and indicators of all other levels, each of norm 1; the label's kernel
weighs its levels by the inverse of their shares. A generator is trained until the
features of its rows agree with the noisy ones.

Where the paper's experiments read rows without paying for it, this does not: numbers
are scaled by their public bounds, the length scale of the kernel is the median distance
between points that are drawn evenly from there, and no rows are left out to balance the
label. Levels are drawn by a softmax for each column, and sensitivities are those for
adding or removing one row. The last column is the label; numbers must not be missing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.spatial.distance import pdist
from torch import Tensor, nn
from torch.nn import functional as F

from dpgenerative.privacy.accounting import gaussian_multiplier

N_FEATURES = 2000  # Fourier features; their grid: 500 to 100,000
N_STEPS = 2000  # theirs: 1,000 to 10,000
BATCH = 0.1  # of the rows, at most MOST: theirs .03 to .5
MOST = 2048
RATE = 0.01
N_DRAWN = 10  # numbers that the generator turns into a row, beside the label
LEAST_SHARE = 1e-3  # of a level of the label; theirs, of one with a negative count


class Generator(nn.Module):
    """Two hidden layers; a row's numbers in [0, 1], and shares of all other levels."""

    def __init__(self, n_labels: int, n_numbers: int, sizes: list[int]) -> None:
        super().__init__()
        self.sizes, self.n_numbers = sizes, n_numbers
        width, n_columns = n_numbers + sum(sizes), n_numbers + len(sizes)
        layers: list[nn.Module] = []
        n_in = N_DRAWN + n_labels
        for n_out in (4 * n_columns, 2 * n_columns):
            layers += [nn.Linear(n_in, n_out), nn.BatchNorm1d(n_out), nn.ReLU()]
            n_in = n_out
        self.layers = nn.Sequential(*layers, nn.Linear(n_in, width))

    def forward(self, labels: Tensor) -> tuple[Tensor, list[Tensor]]:
        z = torch.randn(len(labels), N_DRAWN)
        out = self.layers(torch.cat([z, labels], 1))
        levels = out[:, self.n_numbers :].split(self.sizes, 1)
        return out[:, : self.n_numbers].sigmoid(), [x.softmax(1) for x in levels]


class MERF:
    """A synthesizer of rows whose last column is their label."""

    def __init__(self, domain: dict[str, dict[str, Any]], *, seed: int) -> None:
        self.domain, self.seed = domain, seed
        self.levels: dict[str, list[Any]] = {}
        *columns, self.label = domain
        self.numbers = [c for c in columns if "categories" not in domain[c]]
        self.others = [c for c in columns if "categories" in domain[c]]

    def _indicators(self, column: pd.Series) -> Tensor:
        levels = self.domain[column.name]["categories"]
        self.levels[column.name] = [*levels, None][: len(levels) + column.isna().any()]
        codes = {level: k for k, level in enumerate(self.levels[column.name])}
        found = torch.tensor(column.map(codes).fillna(len(levels)).to_numpy(int))
        return F.one_hot(found, len(codes)).float()

    def _features(self, numbers: Tensor, levels: list[Tensor]) -> Tensor:
        """Return the features of rows, of norm sqrt(2) at most."""
        parts = [x / math.sqrt(len(levels)) for x in levels]
        if self.numbers:
            angles = numbers @ self.frequencies
            fourier = torch.cat([angles.cos(), angles.sin()], 1)
            parts.append(fourier * math.sqrt(2 / N_FEATURES))
        return torch.cat(parts, 1)

    def fit(self, train: pd.DataFrame, epsilon: float, delta: float) -> None:
        """Release counts and features, and train the generator on them."""
        torch.manual_seed(self.seed)
        sigma = math.sqrt(2) * gaussian_multiplier(epsilon, delta)  # of two releases
        points = np.random.default_rng(0).random((1000, max(1, len(self.numbers))))
        scale = float(np.median(pdist(points)))
        self.frequencies = torch.randn(len(self.numbers), N_FEATURES // 2) / scale
        bounds = [
            (self.domain[c]["lower"], self.domain[c]["upper"]) for c in self.numbers
        ]
        lower, upper = torch.tensor(bounds, dtype=torch.float64).reshape(-1, 2).T
        rows = torch.tensor(train[self.numbers].to_numpy(float))
        rows = ((rows - lower) / (upper - lower).clamp(min=1e-12)).clamp(0, 1).float()
        self.bounds = lower, upper
        levels = [self._indicators(train[c]) for c in self.others]
        labels = self._indicators(train[self.label])

        counts = labels.sum(0, dtype=torch.float64)
        counts += sigma * torch.randn(len(counts), dtype=torch.float64)
        n = float(counts.sum())
        shares = (counts / n).clamp(min=LEAST_SHARE).float()
        sums = []
        for i in (slice(i, i + MOST) for i in range(0, len(rows), MOST)):
            features = self._features(rows[i], [x[i] for x in levels])
            sums.append(features.T.double() @ labels[i].double())
        total = torch.stack(sums).sum(0)
        total += sigma * math.sqrt(2) * torch.randn(total.shape, dtype=torch.float64)
        wanted = (total / n).float() / shares

        self.shares = shares / shares.sum()
        self.generator = Generator(
            len(shares), len(self.numbers), [x.shape[1] for x in levels]
        )
        optimizer = torch.optim.Adam(self.generator.parameters(), lr=RATE)
        size = min(MOST, max(2, round(BATCH * n)))
        for _ in range(N_STEPS):
            drawn = self._labels(size)
            features = self._features(*self.generator(drawn))
            loss = (features.T @ drawn / size / shares - wanted).square().sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def _labels(self, n: int) -> Tensor:
        codes = torch.multinomial(self.shares, n, replacement=True)
        return F.one_hot(codes, len(self.shares)).float()

    @torch.no_grad()
    def sample(self, n: int, seed: int) -> pd.DataFrame:
        """Draw n rows."""
        torch.manual_seed(seed)
        labels = self._labels(n)
        numbers, levels = self.generator(labels)
        lower, upper = self.bounds
        values = lower + numbers * (upper - lower)
        found = dict(zip(self.numbers, values.T.numpy(), strict=True))
        codes = [torch.multinomial(x, 1)[:, 0] for x in levels] + [labels.argmax(1)]
        for name, each in zip([*self.others, self.label], codes, strict=True):
            found[name] = np.array(self.levels[name], object)[each.numpy()]
        return pd.DataFrame(found)[list(self.domain)]
