"""
Private images: handwritten digits of 8 x 8 pixels
==================================================

scikit-learn's digits are 1,797 images, a small set, so that epsilon is 10 here: what a
private fit learns follows from the number of images times epsilon. The range of the
pixels is public, 0 to 16, and nothing is spent on it.
"""

# %%
# Fit
# ---
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from dpgenerative import DPArrayVAESynthesizer

train, test = train_test_split(load_digits().images, test_size=300, random_state=0)
synth = DPArrayVAESynthesizer(epsilon=10.0, value_range=(0, 16), random_state=0).fit(
    train
)
print(synth.privacy_)

# %%
# Scores of real images are not covered by the guarantee, and not for release.
import numpy as np

bound = synth.score_samples(test).mean()
print(f"Bound of the log-likelihood of held-out digits: {bound:.1f}")
print(f"The same where every pixel is a coin: {-64 * np.log(2):.1f}")

# %%
# Real digits, their latents decoded, and synthetic digits
# --------------------------------------------------------
import matplotlib.pyplot as plt

N_COLUMNS = 16
N = 2 * N_COLUMNS

lines = {
    "real (not for release)": test[:N],
    "the same, encoded and decoded (not for release)": synth.reconstruct(test[:N]),
    "synthetic, epsilon 10": synth.sample(N, random_state=0),
}
figure = plt.figure(figsize=(0.5 * N_COLUMNS, 1.3 * len(lines)), layout="constrained")
for part, (name, digits) in zip(
    figure.subfigures(len(lines)), lines.items(), strict=True
):
    part.suptitle(name, x=0.01, ha="left", fontsize=9)
    for axes, digit in zip(part.subplots(2, N_COLUMNS).flat, digits, strict=True):
        axes.imshow(digit, cmap="gray_r", vmin=0, vmax=16)
        axes.axis("off")
plt.show()
