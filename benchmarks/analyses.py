"""What a person computes first: means of money, hours and weekdays of admissions.

    python benchmarks/analyses.py [--seeds 20] [--only money]

Fits of the flow at epsilon 1, delta 1e-5, by the defaults; bounds are stated.

- *money*: 10,000 lognormal amounts (mean of the logarithm 3), one column, cents, upper
  bounds of 1e4 to 1e6: mean and standard deviation of as many sampled rows over those
  of the real rows.
- *admissions*: 20,000 and 60,000 simulated stays of four years, on workdays between 7
  and 19 h but for 4 % on weekends, at hours that depend on one of three wards; three
  more columns. Total variation distances of hours and weekdays, from real rows.

Adds records to ``results/analyses.jsonl`` and tabulates all of them in
``results/analyses.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import records

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.metrics import analysis_errors

RESULTS = Path(__file__).parent / "results"
N_AMOUNTS = 10_000
SIGMAS, UPPERS, STAYS = (1.5, 2.0), (1e4, 1e5, 1e6), (20_000, 60_000)


def money(sigma: float, upper: float, seed: int) -> dict[str, Any]:
    """Return how a sample's mean and deviation compare with the clipped real ones."""
    rng = np.random.default_rng(seed)
    amounts = pd.DataFrame({"x": np.exp(rng.normal(3, sigma, N_AMOUNTS)).round(2)})
    column = Column("x", "continuous", lower=0, upper=upper, resolution=0.01)
    fit = DPHFlowSynthesizer(schema=Schema([column]), random_state=seed).fit(amounts)
    drawn, real = fit.sample(N_AMOUNTS, random_state=seed)["x"], amounts["x"]
    real = real.clip(0, upper)
    return {"mean": drawn.mean() / real.mean(), "std": drawn.std() / real.std()}


def stays(n: int, seed: int) -> tuple[pd.DataFrame, Schema]:
    """Return simulated admissions and what a hospital would state of them."""
    rng = np.random.default_rng(seed)
    days = rng.integers(0, 1461, 2 * n)
    is_workday = (days + 2) % 7 < 5  # 2020 began on a Wednesday
    days = days[is_workday | (rng.random(2 * n) < 0.1)][:n]
    ward = rng.choice(["day", "night", "emergency"], n, p=[0.5, 0.2, 0.3])
    middle = pd.Series(ward).map({"day": 10.0, "night": 17.0, "emergency": 13.0})
    hours = rng.normal(middle, 1.5).clip(7, 18.99)
    admitted = pd.Timestamp("2020-01-01") + pd.to_timedelta(days, "D")
    admitted += pd.to_timedelta((hours * 60).astype(int), "min")
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 100, n),
            "admitted": admitted,
            "ward": ward,
            "cost": rng.lognormal(7, 1, n).round(),
        }
    )
    columns = [
        Column("age", "integer", lower=0, upper=110),
        Column(
            "admitted", "datetime", lower="2020-01-01", upper="2023-12-31T23:59",
            resolution="min",
        ),
        Column("cost", "integer", lower=0, upper=1_000_000),
    ]  # fmt: skip
    return frame, Schema(columns)


def admissions(n: int, seed: int) -> dict[str, Any]:
    """Return shares and distances of the hours and weekdays of a sample."""
    frame, schema = stays(n, seed)
    fit = DPHFlowSynthesizer(schema=schema, random_state=seed).fit(frame)
    drawn = fit.sample(n, random_state=seed)
    table = analysis_errors(frame, drawn).table
    distance = dict(zip(table["analysis"], table["synthetic"], strict=True))
    hours, weekdays = drawn["admitted"].dt.hour, drawn["admitted"].dt.weekday
    late = {
        name: each["admitted"].dt.hour.groupby(each["ward"]).mean()
        for name, each in (("real", frame), ("drawn", drawn))
    }
    return {
        "by day": hours.between(7, 18).mean(),
        "weekends": (weekdays >= 5).mean(),
        "hours": distance["hours"],
        "weekdays": distance["weekdays"],
        "ward": (late["drawn"] - late["real"]).abs().max(),
    }


def run(seeds: int, only: str | None) -> None:
    """Run all cases and add their records."""
    cases: dict[str, tuple[Any, list[Any], int]] = {
        "money": (money, [(s, u) for s in SIGMAS for u in UPPERS], seeds),
        "admissions": (admissions, [(n,) for n in STAYS], 3),
    }
    for name, (measure, settings, n_seeds) in cases.items():
        for setting in settings if only in (None, name) else ():
            for seed in range(n_seeds):
                results = {k: float(v) for k, v in measure(*setting, seed).items()}
                record = {"case": name, "setting": setting, "seed": seed, **results}
                records.append(RESULTS / "analyses.jsonl", record | records.origin())


def revisions(some: list[dict[str, Any]]) -> str:
    """Return the commits that were checked out while records were made."""
    return ", ".join(dict.fromkeys(each["revision"] for each in some))


def write() -> None:
    """Tabulate all records."""
    groups = defaultdict(list)
    made = records.read(RESULTS / "analyses.jsonl")
    for each in made:
        groups[each["case"], tuple(each["setting"])].append(each)
    lines = ["# What a person computes first", "", (__doc__ or "").split("\n\n", 2)[2]]
    rows = []
    for (case, setting), some in groups.items():
        if case != "money":
            continue
        mean, std = (np.array([each[k] for each in some]) for k in ("mean", "std"))
        rows.append([
            f"{setting[0]}", f"{setting[1]:.0e}", f"{len(some)}",
            " ".join(f"{q:.2f}" for q in np.quantile(mean, [0.05, 0.5, 0.95])),
            f"{(np.abs(mean - 1) < 0.25).sum()}",
            " ".join(f"{q:.2f}" for q in np.quantile(std, [0.05, 0.5, 0.95])),
            f"{((std < 1.6) & (std > 1 / 1.6)).sum()}", revisions(some),
        ])  # fmt: skip
    head = ["sigma", "upper bound", "fits", "mean, ratio (5, 50, 95 %)", "within 25 %"]
    head += ["deviation, ratio", "within 1.6", "revision"]
    lines += records.markdown_table(head, rows)
    names = ["by day", "weekends", "hours", "weekdays", "ward"]
    rows = [
        [f"{setting[0]}", revisions(some)]
        + [", ".join(f"{each[name]:.4f}" for each in some) for name in names]
        for (case, setting), some in groups.items()
        if case == "admissions"
    ]
    head = ["rows", "revision", "7 to 19 h", "weekends", "hours, TVD", "weekdays, TVD"]
    head += ["mean hour of a ward, largest error"]
    lines += records.markdown_table(head, rows)
    lines += ["Machines: " + "; ".join(sorted({each["machine"] for each in made}))]
    (RESULTS / "analyses.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="fits of each amount")
    parser.add_argument("--only", choices=["money", "admissions"], help="one case")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments.seeds, arguments.only)
    write()
