"""What every part of the default flow adds: one setting changed at a time.

Adult, Covertype (bounds public by assumption) and a numeric table of 10,000 rows (a
Gaussian copula of six columns), at (epsilon 1, delta 1e-5) unless the setting says
otherwise; one seed. Scores: mean 1-, 2- and 3-way total variation, Kendall RMSE, and
the mean log-likelihood of rows that were not fitted. ::

    python benchmarks/ablation.py --data DIR
    python benchmarks/ablation.py --data DIR --tables numeric --only clipping linear
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from generalization import CASES
from loaders import fetch_adult, fetch_covertype
from records import append, markdown_table, origin, read
from tabular import public_schema

from dpgenerative import DPHFlowSynthesizer, Sparsified
from dpgenerative.metrics import kendall_tau_distance, marginal_distance
from dpgenerative.models import cells, hflow

DEFAULT_OUT = Path(__file__).parent / "results" / "ablation.jsonl"

SETTINGS: dict[str, list[dict[str, Any]]] = {
    "default": [{}],
    "anchoring": [{"architecture__anchored": False}],
    "inputs": [{"inputs": "as they are"}],
    "degrees of freedom": [{"architecture__n_basis": n} for n in (3, 5, 12)],
    "hidden units": [{"architecture__hidden_units": n} for n in (0, 64, 256)],
    "blocks": [{"architecture__n_blocks": n} for n in (2, 3)],
    "linear": [{"architecture__linear": name} for name in ("low-rank", "lu")],
    "clipping": [
        {"clipping": name} for name in ("per-layer", "per-unit", "sparsified")
    ],
    "sparsity": [{"clipping": "sparsified", "share": s} for s in (0.1, 0.9)],
    "dequantization": [
        {
            "architecture__n_blocks": 2,
            "architecture__dequantization": name,
            "epsilon": epsilon,
        }
        for epsilon in (0.3, 1.0, 3.0)
        for name in ("uniform", "variational")
    ],
    "marginal budget": [{"marginal_budget": b} for b in (0.1, 0.2, 0.4, 0.6)],
    "bins": [{"architecture__n_bins": n} for n in (16, 32, 128)],
    "raking": [{"raking": "none"}],
    "learning rate": [{"optimizer__learning_rate": r} for r in (0.01, 0.1)],
    "optimizer": [
        {"optimizer": "adabelief"},
        {"optimizer": "sgd", "optimizer__learning_rate": 0.6},
    ],
    "averaging": [{"optimizer__averaging": 0.0}],
}


def load(table: str, data: str | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows to fit and others of the same kind."""
    if table == "numeric":
        case = CASES["copula 10,000"]
        return case.make(np.random.default_rng(0)), case.make(np.random.default_rng(1))
    fetch = {"adult": fetch_adult, "covertype": fetch_covertype}
    bunch = fetch[table](data_home=data)
    return bunch.train, bunch.test


def run(
    train: pd.DataFrame, test: pd.DataFrame, setting: dict[str, Any], seed: int
) -> dict[str, float]:
    """Fit with one setting and score the sample."""
    params = dict(setting)
    patches: list[Any] = []
    if params.pop("inputs", None):
        patches.append(mock.patch.object(cells, "standardised", lambda table, _: table))
    if params.pop("raking", None):
        patches.append(mock.patch.object(hflow.HFlow, "rake"))
    if share := params.pop("share", None):
        params["clipping"] = Sparsified(share)
    model = DPHFlowSynthesizer(schema=public_schema(train), random_state=seed)
    model.set_params(**params)
    start = time.perf_counter()
    for patch in patches:
        patch.start()
    try:
        model.fit(train)
        seconds = time.perf_counter() - start
        synthetic = model.sample(len(train), random_state=seed)
        held_out = float(model.score(test.iloc[:5000]))
    finally:
        for patch in patches:
            patch.stop()
    return {
        **{
            f"tvd_{k}way": marginal_distance(train, synthetic, k).mean
            for k in (1, 2, 3)
        },
        "kendall_rmse": kendall_tau_distance(train, synthetic).rmse,
        "log_likelihood": held_out,
        "fit_seconds": seconds,
    }


def summarise(records: list[dict[str, Any]]) -> str:
    """Return one markdown table per data set."""
    text = ["# Ablation", ""]
    names = ["tvd_1way", "tvd_2way", "tvd_3way", "kendall_rmse", "log_likelihood"]
    for table in dict.fromkeys(r["table"] for r in records):
        head = ["part", "setting", "TVD 1", "TVD 2", "TVD 3", "tau RMSE", "log-lik."]
        head += ["fit s"]
        rows = []
        for r in (r for r in records if r["table"] == table):
            setting = ", ".join(f"{k}={v}" for k, v in r["setting"].items()) or "-"
            scores = [f"{r[name]:.4f}" for name in names[:-1]]
            scores += [f"{r[names[-1]]:.2f}", f"{r['fit_seconds']:.0f}"]
            rows.append([r["part"], setting, *scores])
        text += [f"## {table}", "", *markdown_table(head, rows)]
    machines = "; ".join(sorted({r["machine"] for r in records}))
    dates = ", ".join(sorted({r["date"][:10] for r in records}))
    text += [f"Machine: {machines}. Dates: {dates}. One seed."]
    text += ["Command: `python benchmarks/ablation.py --data DIR`."]
    return "\n".join(text) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run what is not in the results file yet and write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tables = ["adult", "covertype", "numeric"]
    parser.add_argument("--data", metavar="DIR", help="folder of the data files")
    parser.add_argument("--tables", nargs="+", choices=tables, default=tables)
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args(arguments)
    records = read(options.out)
    done = {(r["table"], r["part"], str(r["setting"])) for r in records}
    for table in options.tables:
        train, test = load(table, options.data)
        for part in options.only:
            for setting in SETTINGS[part]:
                if (table, part, str(setting)) in done:
                    continue
                record = {
                    "table": table, "part": part, "setting": setting,
                    **run(train, test, setting, options.seed), **origin(),
                }  # fmt: skip
                records.append(record)
                append(options.out, record)
                print(json.dumps(record), flush=True)
    options.out.with_suffix(".md").write_text(summarise(records), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
