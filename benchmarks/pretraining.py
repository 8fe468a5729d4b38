"""What public rows are worth: Adult, 5 % of it public, at epsilon 0.3.

Three ways to use the same rows: the private ones alone, public ones first and then the
private ones (``fit(public=)``), and the public ones alone, without noise. Bounds and
levels are stated in all three. ::

    python benchmarks/pretraining.py --data DIR
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from loaders import fetch_adult
from records import append, origin
from tabular import ESTIMATORS, public_schema

from dpgenerative.metrics import default_classifiers, marginal_distance, tstr

OUT = Path(__file__).parent / "results" / "pretraining.jsonl"
SHARE = 0.05
WAYS = ("private", "pretrained", "public")
CLASSIFIERS = ("logistic_regression", "adaboost", "hist_gradient_boosting")


def scores(real: pd.DataFrame, test: pd.DataFrame, fake: pd.DataFrame, target) -> dict:
    """Return distances to the private rows, and means over three classifiers."""
    models = {name: default_classifiers()[name] for name in CLASSIFIERS}
    found = tstr(None, test, fake, target, task="classification", classifiers=models)
    means = found[["macro_f1", "auroc", "average_precision"]].mean().to_dict()
    distances = {f"tvd_{k}way": marginal_distance(real, fake, k).mean for k in (1, 2)}
    return {**distances, **means}


def run(way: str, seed: int, options: argparse.Namespace) -> dict:
    """Fit one way and score it."""
    bunch = fetch_adult(data_home=options.data)
    order = np.random.default_rng(seed).permutation(len(bunch.train))
    n = round(SHARE * len(order))
    public, private = bunch.train.iloc[order[:n]], bunch.train.iloc[order[n:]]
    synthesizer = ESTIMATORS[options.estimator](
        epsilon=None if way == "public" else options.epsilon,
        schema=public_schema(bunch.train),
        random_state=seed,
    )
    start = time.perf_counter()
    if way == "public":
        synthesizer.fit(public)
    else:
        synthesizer.fit(private, public=public if way == "pretrained" else None)
    seconds = time.perf_counter() - start
    fake = synthesizer.sample(20_000, random_state=seed)
    return {
        "estimator": options.estimator,
        "way": way,
        "epsilon": options.epsilon,
        "seed": seed,
        **scores(private, bunch.test, fake, bunch.target),
        "fit_seconds": seconds,
        **origin(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="folder of Parquet files")
    parser.add_argument("--estimator", choices=list(ESTIMATORS), default="flow")
    parser.add_argument("--epsilon", type=float, default=0.3)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    options = parser.parse_args()
    for seed in options.seeds:
        for way in options.ways:
            record = run(way, seed, options)
            append(options.out, record)
            print(way, seed, {k: round(record[k], 4) for k in ("auroc", "tvd_2way")})


if __name__ == "__main__":
    main()
