"""Private series: windows of MotionSense, synthesised per activity, judged by use.

    python benchmarks/series.py --data DIR [--epsilon 8] [--seeds 3]

Windows of two seconds, 50 steps of six channels, that do not overlap
(`loaders.motionsense_windows`). **One window is the privacy unit**: a person has about
450 of them here, so that nothing of this protects a person.

One synthesizer is fitted to the windows of each activity, with the whole budget. The
list of activities is public; how many windows there are of each is not. Every window
enters one fit, so that all of them together are (epsilon, delta)-DP for adding or
removing one window: parallel composition. Each draws as many windows as its own
released count says, and these carry its label. With ``classes`` there is one fit, which
is told the activities and starts at their released moments.

A small convolutional classifier is trained on synthetic windows and tested on the real
windows of other trials; beside it stand the same classifier trained on real windows,
and the share of the commonest activity of the test windows.

Writes ``benchmarks/results/series.md`` and a figure for each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from loaders import motionsense_windows
from sklearn.utils import Bunch
from torch import nn
from torch.nn import functional as F

from dpgenerative import ArrayArchitecture, DPArrayVAESynthesizer, Optimizer

RESULTS = Path(__file__).parent / "results"
RANGE = (-1.5, 1.5)
"""Of all channels, in g: gravity has length 1, most accelerations are below."""


def synthesizer(networks: str, epsilon: float, seed: int) -> DPArrayVAESynthesizer:
    """Return the synthesizer of one activity."""
    return DPArrayVAESynthesizer(
        epsilon,
        value_range=RANGE,
        n_steps=150,
        batch_size=512,
        optimizer=Optimizer("adam", learning_rate=0.02, averaging=0.9),
        architecture=ArrayArchitecture(
            networks=networks,
            likelihood="gaussian",
            std=0.05,
            latent_dim=8,
            hidden_units=32,
        ),
        random_state=seed,
    )


def synthetic(
    table: Bunch, networks: str, epsilon: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Fit one synthesizer per activity, or of all; return their windows and labels."""
    if networks == "classes":
        classes = table.target_names
        fitted = DPArrayVAESynthesizer(
            epsilon, value_range=RANGE, classes=classes, random_state=seed
        ).fit(table.X_train, table.y_train)
        return fitted.sample(len(table.X_test), random_state=seed)
    windows, labels = [], []
    for activity in table.target_names:
        rows = table.X_train[table.y_train == activity]
        fitted = synthesizer(networks, epsilon, seed).fit(rows)
        n = fitted.privacy_.plan.n_rows  # released
        windows.append(fitted.sample(n, random_state=seed))
        labels += [activity] * n
    return np.concatenate(windows), np.array(labels)


def accuracy(
    X: np.ndarray, y: np.ndarray, table: Bunch, seed: int, n_steps: int = 500
) -> float:
    """Return the accuracy on real test windows of a classifier of these windows."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv1d(X.shape[2], 32, 5, 2), nn.ReLU(),
        nn.Conv1d(32, 32, 5, 2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(2), nn.Flatten(),
        nn.Linear(64, len(table.target_names)),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 0.003)
    x, codes = _signals(X), torch.from_numpy(np.searchsorted(table.target_names, y))
    for _ in range(n_steps):
        rows = torch.randint(len(x), (256,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), codes[rows]).backward()
        optimizer.step()
    with torch.no_grad():
        found = net(_signals(table.X_test)).argmax(1).numpy()
    return float((np.array(table.target_names)[found] == table.y_test).mean())


def _signals(X: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.clip(X, *RANGE).astype(np.float32)).transpose(1, 2)


def draw(table: Bunch, X: np.ndarray, y: np.ndarray, path: Path, n: int = 3) -> None:
    """Draw a few real and synthetic windows of every activity."""
    names = table.target_names
    figure, axes = plt.subplots(
        len(names), 2 * n, figsize=(11, 8), sharex=True, sharey=True, squeeze=False
    )
    for row, name in zip(axes, names, strict=True):
        real, made = table.X_test[table.y_test == name], X[y == name]
        picks = np.linspace(0, len(real) - 1, n).astype(int)
        for ax, window in zip(row, [*real[picks], *made[:n]], strict=True):
            ax.plot(window, lw=0.8)
            ax.set(ylim=RANGE, xticks=[], yticks=[])
        row[0].set_ylabel(name)
    for k, word in ((0, "real"), (n, "synthetic")):
        axes[0, k].set_title(word)
    figure.legend(axes[0, 0].lines, table.channels, ncol=6, loc="lower center")
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(
    table: Bunch, rows: Sequence[tuple[str, list[float], float]], epsilon: float
) -> str:
    """Return the results as a page."""
    _, counts = np.unique(table.y_test, return_counts=True)
    head = (
        "# Private series: MotionSense\n\n"
        f"Accuracy on {len(table.y_test):,} real test windows of a classifier trained "
        f"on windows of {len(table.y_train):,} (50 steps, six channels, six "
        f"activities); epsilon {epsilon:g} and delta 1e-5 for one window, one fit per "
        "activity, or one of all classes. The commonest activity is "
        f"{counts.max() / counts.sum():.1%} of the test windows.\n\n"
        "| trained on | accuracy, by seed | mean | seconds of a seed |\n"
        "|---|---|---|---|\n"
    )
    lines = [
        f"| {name} | {', '.join(f'{x:.1%}' for x in found)} | {np.mean(found):.1%} | "
        f"{seconds:.0f} |\n"
        for name, found, seconds in rows
    ]
    return head + "".join(lines)


def main() -> None:
    """Fit, judge, and write the page and the figure."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--networks", nargs="+", default=["lstm", "mlp", "classes"])
    options = parser.parse_args()
    table = motionsense_windows(data_home=options.data)
    seeds = range(options.seeds)
    real = [accuracy(table.X_train, table.y_train, table, seed) for seed in seeds]
    rows = [("real windows", real, 0.0)]
    for networks in options.networks:
        found, start = [], time.perf_counter()
        for seed in seeds:
            X, y = synthetic(table, networks, options.epsilon, seed)
            found.append(accuracy(X, y, table, seed))
            print(networks, seed, found[-1], flush=True)
        seconds = (time.perf_counter() - start) / len(seeds)
        rows.append((f"synthetic, {networks}", found, seconds))
        draw(table, X, y, RESULTS / f"series_{networks}.png")
    text = page(table, rows, options.epsilon)
    (RESULTS / "series.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
