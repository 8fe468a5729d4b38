"""Time and memory of fits, samples and a full evaluation: Adult and a million rows.

    python benchmarks/evaluation.py --data DIR [--rows 1000000]

``DIR`` is the folder of the data files. Adult's 32,561 training rows are compared with
as many synthetic ones; then as many rows as asked for, drawn from Adult with
replacement, with as many synthetic ones. Every part runs on all rows but for what its
documentation says: `tstr` trains on 20,000 rows a table, the attacks below and the
report say how many they look at. Writes ``benchmarks/results/evaluation.md``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import resource
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from loaders import fetch_adult

from dpgenerative import DPHFlowSynthesizer, metrics

RESULTS = Path(__file__).parent / "results"
ATTACKED = 5_000  # members, non-members and reference rows, each
TARGET = "income"

Parts = dict[str, Callable[[], object]]


def parts(
    real: pd.DataFrame,
    fake: pd.DataFrame,
    test: pd.DataFrame,
    synth: DPHFlowSynthesizer,
) -> Parts:
    """Return the parts of a full evaluation, by name."""
    members = real.drop_duplicates().sample(ATTACKED, random_state=0)
    others, reference = test.iloc[:ATTACKED], test.iloc[ATTACKED : 2 * ATTACKED]
    curve = synth.privacy_.curve()
    return {
        **{
            f"{k}-way marginals, floor and baseline": partial(
                metrics.marginal_distance, real, fake, k
            )
            for k in (1, 2, 3)
        },
        "Kendall's tau": lambda: metrics.kendall_tau_distance(real, fake),
        "mixed associations": lambda: metrics.association_distance(real, fake),
        "nine classifiers, synthetic and real": lambda: metrics.tstr(
            real, test, fake, TARGET, n_jobs=-1
        ),
        f"Monte-Carlo attack, {ATTACKED:,} members and others": lambda: (
            metrics.monte_carlo_attack(
                fake.iloc[:50_000], members, others, privacy=curve
            )
        ),
        f"DOMIAS, {ATTACKED:,} members, others and reference rows": lambda: (
            metrics.domias_attack(
                fake.iloc[:50_000], members, others, reference, privacy=curve
            )
        ),
        "report": lambda: metrics.report(
            real, fake, holdout=test, target=TARGET, synthesizer=synth
        ),
    }


def timed(title: str, evaluation: Parts) -> list[str]:
    """Run all parts; return a markdown table of their seconds."""
    lines = [f"## {title}", "", "| part | seconds |", "|---|---|"]
    total = 0.0
    for name, part in evaluation.items():
        start = time.perf_counter()
        part()
        seconds = time.perf_counter() - start
        total += seconds
        lines.append(f"| {name} | {seconds:.1f} |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return [*lines, f"| **all** | **{total:.1f}** |", "", f"Peak {peak:.2f} GiB.", ""]


def speed(adult: pd.DataFrame, grown: pd.DataFrame) -> list[str]:
    """Time default fits and samples; return a markdown table."""
    synth = DPHFlowSynthesizer(epsilon=1.0)
    steps: Parts = {
        f"fit of {len(adult):,} rows": lambda: synth.fit(adult),
        f"sample of {len(grown):,} rows": lambda: synth.sample(len(grown)),
        f"fit of {len(grown):,} rows": lambda: synth.fit(grown),
    }
    return timed("Fits and samples at epsilon 1", steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--rows", type=int, default=1_000_000)
    args = parser.parse_args()
    os.environ["DPGENERATIVE_DATA"] = args.data
    adult = fetch_adult()
    grown = adult.train.sample(
        args.rows, replace=True, random_state=0, ignore_index=True
    )
    lines = [
        "# Time of fits, samples and evaluations",
        "",
        f"{dt.date.today()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{torch.get_num_threads()} torch threads; command: `python "
        f"benchmarks/evaluation.py --data DIR --rows {args.rows}`.",
        "",
    ]
    lines += speed(adult.train, grown)
    synth = DPHFlowSynthesizer(epsilon=1.0, random_state=0).fit(adult.train)
    for real in (adult.train, grown):
        fake = synth.sample(len(real), random_state=0)
        title = f"Evaluation of {len(real):,} rows against as many"
        lines += timed(title, parts(real, fake, adult.test, synth))
    (RESULTS / "evaluation.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
