"""
An attack on a model without privacy, and on one with it
========================================================

A coin decides for each of 1,000 rows of Fair's survey whether a model is trained on it.
The adversary, who has the model, sorts all rows by their likelihood: training rows
should come first. Without privacy a model that trains for long knows them by heart.
With it, the guarantee puts a cap on every attack, this one and those that nobody has
thought of.
"""

# %%
# The coin
# --------
import numpy as np

from dpgenerative.datasets import load_fair

EPSILON = 1.0
N_ROWS = 1000

fair = load_fair()
rows = fair.data.drop_duplicates().sample(N_ROWS, random_state=0)
trained_on = np.random.default_rng(0).random(N_ROWS) < 0.5
members, others = rows[trained_on], rows[~trained_on]

# %%
# Two models, the same attack
# ---------------------------
# An AUC of 0.5 is that of guessing. The privacy report knows the whole curve of
# (epsilon, delta) pairs that hold together, from which the cap follows.
import dataclasses

from dpgenerative import DPHFlowSynthesizer, FlowArchitecture
from dpgenerative.metrics import likelihood_attack

attacks = []
for name, epsilon in {"no privacy": None, f"epsilon {EPSILON:g}": EPSILON}.items():
    synth = DPHFlowSynthesizer(
        epsilon=epsilon,
        schema=fair.schema,
        architecture=FlowArchitecture(hidden_units=256),
        n_steps=800,
    ).fit(members)
    guarantee = None if epsilon is None else synth.privacy_.curve()
    attack = likelihood_attack(synth.score_samples, members, others, privacy=guarantee)
    attacks.append(dataclasses.replace(attack, name=name))
    auc = attack.auc
    print(f"{name}: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})")
print(f"At epsilon {EPSILON:g} no attack can expect more than {auc.cap:.3f}.")

# %%
# Curves describe private rows and are not for release.
import matplotlib.pyplot as plt

from dpgenerative.metrics.plots import plot_roc

_, axes = plt.subplots(figsize=(4.4, 4.2), layout="constrained")
plot_roc(attacks, axes)
plt.show()
