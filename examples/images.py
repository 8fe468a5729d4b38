"""Private images: handwritten digits of 8 x 8 pixels.

scikit-learn's digits are 1,797 images, a small set, so that epsilon is 10 here: what a
private fit learns follows from the number of images times epsilon. The range of the
pixels is public, 0 to 16, and nothing is spent on it.

    python examples/images.py --out DIR
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dpgenerative import DPVAESynthesizer

N_COLUMNS = 16


def draw(rows: dict[str, np.ndarray], path: Path) -> None:
    """Save two lines of images per name."""
    size = (0.5 * N_COLUMNS, 1.3 * len(rows))
    figure, axes = plt.subplots(2 * len(rows), N_COLUMNS, figsize=size)
    for axis in axes.flat:
        axis.axis("off")
    for k, (name, images) in enumerate(rows.items()):
        lines = axes[2 * k : 2 * k + 2]
        lines[0, 0].set_title(name, loc="left", fontsize=9)
        for axis, image in zip(lines.flat, images, strict=False):
            axis.imshow(image, cmap="gray_r", vmin=0, vmax=16)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    """Fit, print the guarantee, and draw real digits beside synthetic ones."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("images"))
    out = parser.parse_args().out
    train, test = train_test_split(load_digits().images, test_size=300, random_state=0)

    synth = DPVAESynthesizer(
        epsilon=10.0, image_shape=(8, 8), pixel_range=(0, 16), random_state=0
    ).fit(train)
    print(synth.privacy_)
    # Scores of real images are not covered by the guarantee: not for release.
    print(f"Bound of the log-likelihood of held-out digits: {synth.score(test):.1f}")
    print(f"The same where every pixel is a coin: {-64 * np.log(2):.1f}")

    n = 2 * N_COLUMNS
    out.mkdir(parents=True, exist_ok=True)
    rows = {
        "real (not for release)": test[:n],
        "the same, encoded and decoded (not for release)": synth.reconstruct(test[:n]),
        "synthetic, epsilon 10": synth.sample(n, random_state=0),
    }
    draw(rows, out / "digits.png")
    print(f"Pictures: {out / 'digits.png'}")


if __name__ == "__main__":
    main()
