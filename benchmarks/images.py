"""Classifiers of clothes that have seen synthetic pictures only: Fashion-MNIST.

    python benchmarks/images.py --data DIR [--epsilons 1 10] [--seeds 3]

`DPArrayVAESynthesizer` with its defaults learns the 60,000 training pictures with their
ten labels (delta 1e-5, no public data); 60,000 pictures and labels drawn from it train
a small convolutional classifier (two convolutions of 16 and 32 channels, one hidden
layer of 64, four passes, Adam with one cycle of its learning rate), whose accuracy on
the 10,000 real test pictures counts. Nothing is chosen by test pictures: no stopping,
no seed. ``real`` is the same classifier on the real pictures; ``inf`` the model without
privacy.

Appends to ``benchmarks/results/images.jsonl``, writes ``images.md`` from all of it, and
draws ``doc/_static/images.png``: a row per class, real pictures and those of seed 0.
"""

import argparse
import math
import platform
import sys
import time
from datetime import date
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from loaders import fashion_images
from records import append, read, revision
from torch import nn
from torch.nn import functional as F

from dpgenerative import DPArrayVAESynthesizer

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "benchmarks/results", ROOT / "doc/_static/images.png"
PASSES, BATCH, RATE, SHOWN = 4, 128, 4e-3, 8
PUBLISHED = {
    "DP-MERF": (66, 61),
    "DP-Kernel": (69, 70),
    "DP-GAN": (73, 70),
    "DPDM": (76, 86),
    "DP-FETA": (82, 87),
}
"""Accuracy in per cent at epsilon 1 and 10, as DPImageBench (Gong et al. 2025) has it;
its classifiers are larger than this one."""


def network() -> nn.Module:
    """Return the classifier, untrained."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(32 * 49, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def inputs(images: np.ndarray) -> torch.Tensor:
    """Return pictures as the classifier takes them."""
    return torch.from_numpy(np.array(images, np.float32)).view(-1, 1, 28, 28) / 255


def accuracy(train: tuple, test: tuple, seed: int) -> tuple[float, list[float]]:
    """Train a classifier; return the share of right answers, in all and by class."""
    torch.manual_seed(seed)
    x, y = inputs(train[0]), torch.from_numpy(np.array(train[1]))
    model, n_batches = network(), len(x) // BATCH
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=PASSES * n_batches + 1
    )
    for _ in range(PASSES):
        for rows in torch.randperm(len(x))[: n_batches * BATCH].view(-1, BATCH):
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()
            cycle.step()
    model.eval()
    with torch.no_grad():
        guesses = torch.cat(
            [model(part).argmax(1) for part in inputs(test[0]).split(1000)]
        )
    right = guesses.numpy() == test[1]
    return float(right.mean()), [float(right[test[1] == k].mean()) for k in range(10)]


def synthetic(train: tuple, epsilon: float, seed: int) -> tuple[tuple, dict]:
    """Return as many synthetic pictures, and what it took."""
    start = time.process_time()
    synthesizer = DPArrayVAESynthesizer(
        epsilon, 1e-5, classes=range(10), random_state=seed
    ).fit(*train)
    fitted = time.process_time()
    drawn = synthesizer.sample(len(train[0]), random_state=seed)
    return drawn, {
        "epsilon_spent": synthesizer.epsilon_,
        "latents": synthesizer._model.latent_dim,
        "fit_cpu_seconds": fitted - start,
        "sample_cpu_seconds": time.process_time() - fitted,
    }


def chosen(data: tuple) -> np.ndarray:
    """Return the first pictures of every class, (10, SHOWN, 28, 28)."""
    return np.stack([data[0][data[1] == k][:SHOWN] for k in range(10)])


def draw(panels: dict[str, np.ndarray]) -> None:
    """Write a picture of all panels, a row per class."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 3.9))
    for axis, (title, images) in zip(np.atleast_1d(axes), panels.items(), strict=True):
        tiled = images.transpose(0, 2, 1, 3).reshape(280, 28 * SHOWN)
        axis.imshow(tiled, cmap="gray", vmin=0, vmax=255)
        axis.set_title(title, fontsize=10)
        axis.axis("off")
    figure.tight_layout(pad=0.4)
    figure.savefig(PICTURE, dpi=90, bbox_inches="tight")


def words(epsilon: float | str) -> str:
    """Return a title for an epsilon, or for the real pictures."""
    if epsilon == "real":
        return "real pictures"
    return "no privacy" if epsilon == "inf" else f"epsilon {float(epsilon):g}"


def table(records: list[dict]) -> str:
    """Return all records as a page."""
    lines = [
        "# Fashion-MNIST: classifiers trained on synthetic pictures",
        "",
        "Written by `benchmarks/images.py`, which says how. Accuracy on the real test "
        "pictures in per cent, mean and range over seeds; CPU seconds of one fit.",
        "",
        "| pictures | seeds | accuracy | least | most | latents | fit |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for epsilon in dict.fromkeys(record["epsilon"] for record in records):
        found = [r for r in records if r["epsilon"] == epsilon]
        scores = [100 * r["accuracy"] for r in found]
        fit = np.mean([r.get("fit_cpu_seconds", math.nan) for r in found])
        latents = "/".join(str(r.get("latents", "")) for r in found)
        lines.append(
            f"| {words(epsilon)} | {len(found)} | {np.mean(scores):.1f} | "
            f"{min(scores):.1f} | {max(scores):.1f} | {latents.strip('/')} | "
            f"{'' if math.isnan(fit) else f'{fit:.1f}'} |"
        )
    lines += ["", "Published (DPImageBench), epsilon 1 and 10:", ""]
    lines += [f"- {name}: {a} and {b}" for name, (a, b) in PUBLISHED.items()]
    last = records[-1]
    lines += ["", f"Last: {last['date']}, revision {last['revision']}, "]
    lines[-1] += f"{last['machine']}; `{last['command']}`."
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epsilons", nargs="+", default=["real", "1", "10", "inf"])
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    train, test = (
        fashion_images(name, data_home=args.data) for name in ("train", "t10k")
    )
    common = {
        "date": date.today().isoformat(),
        "revision": revision(),
        "machine": f"{platform.machine()}, torch {torch.__version__}, "
        f"numpy {np.__version__}, {torch.get_num_threads()} thread",
        "command": f"python benchmarks/images.py --data DIR {' '.join(sys.argv[3:])}",
    }
    path, panels = RESULTS / "images.jsonl", {"real pictures": chosen(train)}
    for epsilon in args.epsilons:
        for seed in range(args.seeds):
            drawn, costs = train, dict[str, float]()
            if epsilon != "real":
                drawn, costs = synthetic(train, float(epsilon), seed)
                if seed == 0:
                    panels[words(epsilon)] = chosen(drawn)
            score, by_class = accuracy(drawn, test, seed)
            record = {
                "epsilon": epsilon, "seed": seed, "accuracy": score,
                "by_class": by_class, **costs, **common,
            }  # fmt: skip
            append(path, record)
            print(words(epsilon), seed, f"{score:.4f}", flush=True)
    if len(panels) > 2:
        draw(panels)
    (RESULTS / "images.md").write_text(table(read(path)))


if __name__ == "__main__":
    main()
