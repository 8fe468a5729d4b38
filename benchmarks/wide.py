"""Default fits of wide tables: time, memory, and how near the rows drawn come.

Four simulated tables of 100 columns or more, at (epsilon 1, delta 1e-5), each in a
process of its own. "Copula" has correlations .8^|i - j|; in "long range" a column
depends on the one 60 before it and no other; in "label" the last column depends on 40
others; "mixed" has numbers, integers, labels of 3 and 12 levels and bits. Distances are
those of 300 pairs of columns (two-way) and of all columns; correlations are Spearman's,
of all pairs. ::

    python benchmarks/wide.py
    python benchmarks/wide.py --only mixed
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from generalization import numbers
from records import append, markdown_table, origin, read
from tabular import public_schema

DEFAULT_OUT = Path(__file__).parent / "results" / "wide.jsonl"
STRONG = 0.4


def chain(n: int, d: int, lag: int, correlation: float) -> np.ndarray:
    """Return normal columns, each correlated with the one `lag` before it."""
    z = np.random.default_rng(0).standard_normal((n, d))
    for j in range(lag, d):
        z[:, j] *= np.sqrt(1 - correlation**2)
        z[:, j] += correlation * z[:, j - lag]
    return z


def _label(n: int, d: int) -> pd.DataFrame:
    z = chain(n, d - 1, 1, 0.5)
    told = z[:, :80:2].sum(1)
    told += 0.5 * told.std() * np.random.default_rng(1).standard_normal(n)
    return numbers(z).assign(label=pd.Categorical(np.where(told > 0, "yes", "no")))


def _mixed(n: int, d: int) -> pd.DataFrame:
    shapes: list[Callable[[np.ndarray], Any]] = [
        np.exp,
        lambda x: np.round(10 * x).astype(int),
        lambda x: pd.Categorical.from_codes(np.digitize(x, [-0.5, 0.8]), [*"abc"]),
        lambda x: pd.Categorical.from_codes(
            np.clip((2 * x + 6).astype(int), 0, 11), [*"abcdefghijkl"]
        ),
        lambda x: x > 1,
    ]
    columns = chain(n, d, 1, 0.8).T
    return pd.DataFrame({f"x{j}": shapes[j % 5](x) for j, x in enumerate(columns)})


CASES: dict[str, Callable[[], pd.DataFrame]] = {
    "copula, 100": lambda: numbers(chain(50_000, 100, 1, 0.8)),
    "long range, 100": lambda: numbers(chain(50_000, 100, 60, 0.8)),
    "label, 100": lambda: _label(50_000, 100),
    "mixed, 300": lambda: _mixed(50_000, 300),
    "mixed, 1,000": lambda: _mixed(20_000, 1_000),
}


def _correlations(frame: pd.DataFrame) -> np.ndarray:
    """Return Spearman's correlations; of labels, by their place in the list."""
    codes = frame.apply(lambda x: x.cat.codes if x.dtype == "category" else x)
    ranks = codes.astype(float).rank()  # missing where noise let some seem so
    return np.corrcoef(ranks.fillna(ranks.mean()).to_numpy().T)


def run(name: str) -> dict[str, Any]:
    """Fit a table, draw as many rows, and compare."""
    from dpgenerative import DPHFlowSynthesizer
    from dpgenerative.metrics import marginal_distance

    frame = CASES[name]()
    model = DPHFlowSynthesizer(schema=public_schema(frame), random_state=0)
    load = os.getloadavg()[0]
    times = [(time.perf_counter(), time.process_time())]
    model.fit(frame)
    times.append((time.perf_counter(), time.process_time()))
    drawn = model.sample(len(frame), random_state=0)
    times.append((time.perf_counter(), time.process_time()))
    fit, sample = np.diff(np.array(times), axis=0).tolist()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    real, found = _correlations(frame), _correlations(drawn)
    off = ~np.eye(len(real), dtype=bool)
    strong = off & (np.abs(real) > STRONG)
    gaps = (found - real) * np.sign(real)
    return {
        "table": name, "rows": len(frame), "columns": frame.shape[1],
        "steps": model.n_steps_, "fit_seconds": fit[0], "fit_cpu_seconds": fit[1],
        "sample_seconds": sample[0], "sample_cpu_seconds": sample[1],
        "peak_gib": peak, "load": load,
        "tvd_1way": marginal_distance(frame, drawn, 1, references=False).mean,
        "tvd_2way": marginal_distance(frame, drawn, 2, references=False).mean,
        "correlation_rmse": float(np.sqrt(np.square(gaps[off]).mean())),
        "strong_gap": float(gaps[strong].mean()),
    }  # fmt: skip


def summarise(records: list[dict[str, Any]]) -> str:
    """Return a markdown table, one line per fit."""
    head = ["table", "rows", "steps", "fit s (CPU)", "sample s (CPU)", "peak GiB"]
    head += ["load", "TVD 1", "TVD 2", "correlations' RMSE", "mean gap of strong ones"]
    head += ["revision"]
    rows = []
    for r in records:
        rows.append([
            r["table"], f"{r['rows']:,}", str(r["steps"]),
            f"{r['fit_seconds']:.0f} ({r['fit_cpu_seconds']:.0f})",
            f"{r['sample_seconds']:.0f} ({r['sample_cpu_seconds']:.0f})",
            f"{r['peak_gib']:.1f}", f"{r['load']:.1f}", f"{r['tvd_1way']:.4f}",
            f"{r['tvd_2way']:.4f}", f"{r['correlation_rmse']:.4f}",
            f"{r['strong_gap']:+.3f}", r["revision"],
        ])  # fmt: skip
    text = ["# Wide tables", "", *markdown_table(head, rows)]
    machines = "; ".join(sorted({r["machine"] for r in records}))
    dates = sorted({r["date"][:10] for r in records})
    text += [f"Machine: {machines}. Dates: {', '.join(dates)}."]
    text += ["Threads: " + ", ".join(sorted({str(r["threads"]) for r in records}))]
    text[-1] += "; load: other jobs beside it, at the beginning of a fit."
    text += ["Command: `python benchmarks/wide.py`."]
    return "\n".join(text) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run what is not in the results file yet."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""])
    parser.add_argument("--revision", default="", help="of the code, for the records")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    options = parser.parse_args(arguments)
    records = read(options.out)
    done = {(r["table"], r["revision"]) for r in records}
    for name in CASES:
        wanted = any(word in name for word in options.only)
        if not wanted or (name, options.revision) in done:
            continue
        with get_context("spawn").Pool(1) as pool:
            record = pool.apply(run, (name,))
        record |= origin() | {"revision": options.revision}
        record["threads"] = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
        records.append(record)
        append(options.out, record)
        print(json.dumps(record), flush=True)
    options.out.with_suffix(".md").write_text(summarise(records), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
