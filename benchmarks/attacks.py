"""Every attack against a planted leak, and against private tables of Adult.

    python benchmarks/attacks.py --data DIR [--seeds 5] [--epsilon 1]

2,000 rows of Adult, or 400 made-up canaries, enter the training table by a fair coin
each, beside 8,000 rows that are always there; 5,000 others are the adversary's
reference. Each attack tries to tell who entered, first from a release that leaks on
purpose, then from `DPHFlowSynthesizer` (or, for reconstructions, `DPVAESynthesizer`) at
the epsilon asked for:

- a synthetic table of copies, drawn with replacement from those who entered;
- for counted tables, the exact counts of all quadruples of eight columns of 300 rows;
- for attacks on models, kernels around those who entered, and the closest of them as a
  reconstruction;
- bounds read off the rows, of which the canary has the least (*raw minimum*).

The cap is what the guarantee allows. Writes ``benchmarks/results/attacks.md`` and
``doc/_static/attacks.png``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from loaders import fetch_adult
from records import machine, markdown_table, revision
from tabular import public_schema

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer, metrics
from dpgenerative.metrics.distances import Embedding, blocks
from dpgenerative.metrics.membership import attack_result
from dpgenerative.metrics.plots import plot_roc

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "doc" / "_static" / "attacks.png"
COINS, ALWAYS, KNOWN, CANARIES, TRIALS = 2_000, 8_000, 5_000, 400, 300
COUNTED = ["age", "workclass", "education", "occupation", "relationship", "fnlwgt",
           "hours_per_week", "income"]  # fmt: skip

Result = metrics.AttackResult
Sides = tuple[pd.DataFrame, pd.DataFrame]  # those who entered, and the others


class Kernels:
    """A model that has learned its rows by heart."""

    def __init__(self, rows: pd.DataFrame, others: pd.DataFrame) -> None:
        self.rows, self.embed = rows, Embedding([rows], [others])
        self.centres = self.embed(rows)

    def score_samples(self, X: pd.DataFrame) -> np.ndarray:
        """Return log-densities, up to a constant."""
        parts = blocks(self.embed(X), self.centres)
        return np.log(np.concatenate([np.exp(-50 * d).sum(1) for d in parts]) + 0.5)

    def reconstruct(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the closest row of each."""
        parts = [d.argmin(1) for d in blocks(self.embed(X), self.centres)]
        return self.rows.iloc[np.concatenate(parts)].reset_index(drop=True)


def split(rows: pd.DataFrame, rng: np.random.Generator) -> Sides:
    """Return those who enter and those who do not, by a fair coin each."""
    entered = rng.random(len(rows)) < 0.5
    return rows[entered], rows[~entered]


def table_attacks(
    fake: pd.DataFrame, sides: Sides, known: pd.DataFrame, tables, **facts
) -> Iterator[tuple[str, Result]]:
    """Attack by the synthetic table alone."""
    yield "synthetic rows nearby", metrics.monte_carlo_attack(fake, *sides, **facts)
    yield "DOMIAS, neighbours", metrics.domias_attack(fake, *sides, known, **facts)
    yield (
        "DOMIAS, kernels",
        metrics.domias_attack(fake, *sides, known, density="kde", **facts),
    )
    yield "LOGAN", metrics.logan_attack(fake, *sides, known, **facts)
    yield (
        "counted tables",
        metrics.marginal_attack(fake, *sides, known, tables=tables, **facts),
    )


def vulnerable(sides: Sides) -> Sides:
    """Return the tenth of the records that lies farthest from the others."""
    everyone = pd.concat(sides)
    at_risk = metrics.vulnerable_records(everyone, len(everyone) // 10).index
    first, second = (side[side.index.isin(at_risk)] for side in sides)
    return first, second


def planted(train: pd.DataFrame, rng: np.random.Generator) -> dict[str, Result]:
    """Attack releases that leak."""
    drawn = train.sample(COINS + KNOWN, random_state=rng.integers(2**32))
    sides, known = split(drawn[:COINS], rng), drawn[COINS:]
    copies = sides[0].sample(KNOWN, replace=True, random_state=0)
    found = dict(table_attacks(copies, sides, known, None))
    small = [side[COUNTED][:300].drop_duplicates() for side in sides]
    few = known[COUNTED]
    tables = list(combinations(COUNTED, 4))
    found["counted tables"] = metrics.marginal_attack(
        small[0], small[0], small[1], few, tables=tables
    )
    heart, other = Kernels(sides[0], train), Kernels(known, train)
    found["likelihood ratio"] = metrics.likelihood_attack(
        heart.score_samples, *sides, reference=other.score_samples
    )
    found["reconstruction"] = metrics.reconstruction_attack(
        heart.reconstruct, *sides, n_draws=1, distance="mixed"
    )
    at_risk = vulnerable(sides)
    found["vulnerable records"] = metrics.domias_attack(copies, *at_risk, known)
    made = split(metrics.crafted_canaries(other.score_samples, known, CANARIES), rng)
    heart = Kernels(pd.concat([sides[0], made[0]]), train)
    found["crafted canaries"] = metrics.likelihood_attack(
        heart.score_samples, *made, reference=other.score_samples
    )
    found["raw minimum"] = minimum_attack(train, rng, lambda X: X["age"].min())
    return found


def private(
    train: pd.DataFrame, rng: np.random.Generator, epsilon: float
) -> dict[str, Result]:
    """Attack private releases; the likelihood ratio knows the generator."""
    drawn = train.sample(COINS + ALWAYS + KNOWN, random_state=rng.integers(2**32))
    sides, always = split(drawn[:COINS], rng), drawn[COINS : COINS + ALWAYS]
    known, schema = drawn[COINS + ALWAYS :], public_schema(train)
    other = DPHFlowSynthesizer(epsilon=100.0, schema=schema).fit(known)
    made = metrics.crafted_canaries(other.score_samples, known, CANARIES)
    canaries = split(made, rng)
    X = pd.concat([sides[0], canaries[0], always])
    flow = DPHFlowSynthesizer(epsilon=epsilon, schema=schema).fit(X)
    vae = DPVAESynthesizer(epsilon=epsilon, schema=schema).fit(X)
    facts: dict[str, Any] = {"privacy": flow.privacy_.curve()}
    fake = flow.sample(len(X))
    found = dict(table_attacks(fake, sides, known, list(flow.tables_) or None, **facts))
    ratio = partial(
        metrics.likelihood_attack, flow.score_samples, reference=other.score_samples
    )
    found["likelihood ratio"] = ratio(*sides, **facts)
    found["reconstruction"] = metrics.reconstruction_attack(
        partial(vae.reconstruct, sampled=True), *sides, n_draws=30, distance="mixed",
        privacy=vae.privacy_.curve(),
    )  # fmt: skip
    at_risk = vulnerable(sides)
    found["vulnerable records"] = ratio(*at_risk, **facts)
    found["crafted canaries"] = ratio(*canaries, **facts)
    flow = DPHFlowSynthesizer(epsilon=epsilon)
    found["raw minimum"] = minimum_attack(
        train, rng, lambda X: flow.fit(X).sample(200)["age"].min(), flow
    )
    return found


def minimum_attack(
    train: pd.DataFrame,
    rng: np.random.Generator,
    least: Callable[[pd.DataFrame], float],
    synth: DPHFlowSynthesizer | None = None,
) -> Result:
    """Tell from the least age released whether a row with the age -1000 was there."""
    scores: list[list[float]] = [[], []]
    for _ in range(TRIALS):
        X = train[["age", "sex"]].sample(200, random_state=rng.integers(2**32))
        absent = int(rng.random() < 0.5)
        if not absent:
            X = pd.concat([X, X[:1].assign(age=-1000)])
        scores[absent].append(-float(least(X)))
    privacy = None if synth is None else synth.privacy_.curve()
    return attack_result("minimum", scores, privacy)


def rows(runs: list[tuple[dict[str, Result], dict[str, Result]]]) -> list[list[str]]:
    """Return a row per attack: the planted leak, and the private release."""
    lines = []
    for name in runs[0][0]:
        leaks = [run[0][name] for run in runs]
        ours = [run[1][name] for run in runs]
        at = [[each.tpr_at(fpr) for each in ours] for fpr in (0.001, 0.01, 0.1)]
        beyond = sum(rate.low > rate.cap for rates in at for rate in rates)
        beyond += sum(each.auc.low > each.auc.cap for each in ours)
        found = [each.tpr_at(0.01).value for each in leaks]
        aucs = [each.auc for each in ours]
        lines.append(
            [
                name,
                f"{np.mean(found):.2f} ({min(found):.2f} to {max(found):.2f})",
                f"{np.mean([a.value for a in aucs]):.3f} (to "
                f"{max(a.value for a in aucs):.3f}; {aucs[0].cap:.3f})",
                *(
                    f"{np.mean([r.value for r in rates]):.3f} (to "
                    f"{max(r.value for r in rates):.3f}; "
                    f"{np.mean([r.cap for r in rates]):.3f})"
                    for rates in at
                ),
                str(beyond),
            ]
        )
    return lines


def draw(found: dict[str, Result]) -> None:
    """Draw the curves of attacks on all records that a coin decided about."""
    names = ["synthetic rows nearby", "LOGAN", "counted tables", "likelihood ratio"]
    axes = plot_roc([replace(found[name], name=name) for name in names])
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Run everything; write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    options = parser.parse_args()
    train = fetch_adult(data_home=options.data).train.drop_duplicates()
    train = train.reset_index(drop=True)
    start, runs = time.perf_counter(), []
    for seed in range(options.seeds):
        rng = np.random.default_rng(seed)
        runs.append((planted(train, rng), private(train, rng, options.epsilon)))
        print(f"seed {seed}: {time.perf_counter() - start:.0f} s", flush=True)
    figures = "mean (to largest; cap)"
    head = [
        "attack", "planted leak: TPR at 1 % FPR", f"AUC, {figures}", "TPR at 0.1 %",
        "TPR at 1 %", "TPR at 10 %", "beyond the cap",
    ]  # fmt: skip
    lines = [
        "# Attacks", "",
        f"`python benchmarks/attacks.py --seeds {options.seeds}`, "
        f"{dt.datetime.now(dt.UTC):%Y-%m-%d}; {machine()}. Adult at epsilon "
        f"{options.epsilon:g}, {options.seeds} seeds. Beyond the cap: figures "
        "whose whole 95 % interval lies above it, of four per seed.", "",
        *markdown_table(head, rows(runs)), "",
    ]  # fmt: skip
    lines[2] += f" Revision {revision()}."
    (RESULTS / "attacks.md").write_text("\n".join(lines))
    draw(runs[0][1])


if __name__ == "__main__":
    main()
