"""An attack on a model without privacy, and on one with it.

A coin decides for each of 1,000 rows of Fair's survey whether a model is trained on
it. The attacker, who has the model, sorts all rows by their likelihood: training rows
should come first. Without privacy a model that trains for long knows them by heart.
With it, the guarantee puts a cap on every attack, this one and those that nobody has
thought of.

    python examples/attack.py --out attack-output

draws both curves with the cap. They describe private rows and are not for release.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from dpgenerative import DPHFlowSynthesizer
from dpgenerative.datasets import load_fair
from dpgenerative.metrics import likelihood_attack
from dpgenerative.metrics.plots import plot_roc

N_ROWS = 1000


def main(epsilon: float, out: Path) -> None:
    fair = load_fair()
    rows = fair.data.drop_duplicates().sample(N_ROWS, random_state=0)
    trained_on = np.random.default_rng(0).random(N_ROWS) < 0.5
    members, others = rows[trained_on], rows[~trained_on]

    attacks = []
    for name, budget in {"no privacy": None, f"epsilon {epsilon:g}": epsilon}.items():
        synth = DPHFlowSynthesizer(
            epsilon=budget, schema=fair.schema, hidden_units=256, n_steps=800
        ).fit(members)
        guarantee = None if budget is None else synth.privacy_.curve()
        attack = likelihood_attack(
            synth.score_samples, members, others, privacy=guarantee
        )
        attack = dataclasses.replace(attack, name=name)
        attacks.append(attack)
        auc = attack.auc
        print(f"{name}: AUC {auc.value:.3f} ({auc.low:.3f} to {auc.high:.3f})")
    print(f"At epsilon {epsilon:g} no attack can expect more than {auc.cap:.3f}.")
    print("Guessing has 0.5.")

    out.mkdir(parents=True, exist_ok=True)
    plot_roc(attacks).figure.savefig(out / "attack.png", dpi=120)
    print(f"Curves: {out / 'attack.png'}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epsilon", type=float, default=1.0, help="default: 1")
    parser.add_argument("--out", type=Path, default=Path("attack-output"))
    main(**vars(parser.parse_args()))
