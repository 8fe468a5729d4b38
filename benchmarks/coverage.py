"""Coverage of the intervals of `dpgenerative.inference.bootstrap`, by simulation.

    python benchmarks/coverage.py --generators linear network --rows 3000 --epsilons 1

Tables of two laws are drawn again and again, fitted at delta 1e-5 with all defaults and
stated bounds, and analysed: 95 % intervals of refits, and the usual intervals as if the
synthetic rows were people (*naive*). The truth is that of four million rows.

- *linear*: two numbers, of which one depends on the other and on a binary column.
- *network*: eight mixed columns of a survey, each given some of those before it.

Widths are relative to those of an oracle: 3.92 standard deviations of the estimates
over all tables of a cell, as if their bias were known. Adds a record per table to
``results/coverage.jsonl`` and tabulates all of them in ``results/coverage.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import records

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.inference import bootstrap

RESULTS = Path(__file__).parent / "results"
RECORDS = RESULTS / "coverage.jsonl"
N_TRUE = 4_000_000


def linear(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return rows of two numbers and a binary column."""
    group = rng.random(n) < 0.4
    x = rng.normal(0.5 * group, 1)
    y = 0.5 * x + 0.4 * group + rng.normal(0, 1, n)
    return pd.DataFrame({"x": x, "y": y, "group": _levels(group, "ab")})


def network(rng: np.random.Generator, n: int) -> pd.DataFrame:
    """Return rows of a survey."""
    age = np.clip(rng.normal(47, 17, n), 18, 95).round()
    sex = rng.random(n) < 0.51
    region = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
    smokes = rng.random(n) < _logistic(-0.6 - 0.015 * (age - 47) + 0.4 * sex)
    bmi = 25 + 0.05 * (age - 47) + 0.8 * sex + rng.gamma(4, 1.2, n) - 4.8
    pressure = 122 + 0.45 * (age - 47) + 0.9 * (bmi - 25) + rng.normal(0, 12, n)
    income = np.exp(7.6 + 0.15 * region + 0.25 * sex + rng.normal(0, 0.5, n))
    ill = rng.random(n) < _logistic(-2.2 + 0.04 * (age - 47) + 0.12 * (bmi - 25))
    return pd.DataFrame(
        {
            "age": age.astype(int), "sex": _levels(sex, "fm"),
            "region": pd.Categorical(np.array(list("nesw"))[region]),
            "smokes": _levels(smokes, "ny"), "bmi": bmi.round(1),
            "pressure": pressure.round(), "income": income.round(-1),
            "ill": _levels(ill, "ny"),
        }
    )  # fmt: skip


def _levels(flags: np.ndarray, names: str) -> pd.Categorical:
    return pd.Categorical(np.where(flags, names[1], names[0]), list(names))


def _logistic(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


def column(name: str, lower: float, upper: float, step: float | None = None) -> Column:
    """Return a column of numbers."""
    return Column(name, "continuous", lower=lower, upper=upper, resolution=step)


SCHEMAS = {
    "linear": Schema([column("x", -8, 8), column("y", -8, 8)]),
    "network": Schema(
        [
            Column("age", "integer", lower=18, upper=95),
            column("bmi", 12, 70, 0.1),
            column("pressure", 50, 250, 1),
            column("income", 0, 100_000, 10),
        ]
    ),
}
LAWS = {"linear": linear, "network": network}
Results = tuple[pd.Series, pd.Series]


def analyses(frame: pd.DataFrame) -> Results:
    """Return results by kind and name, and their usual standard errors."""
    if "x" in frame:
        y, group, others = "y", frame["group"] == "b", [frame["x"]]
        outcome, numbers = group, ["x", "y"]
        flags = {"group": group}
    else:
        y, group, numbers = "pressure", frame["smokes"] == "y", ["bmi", "income"]
        others, outcome = [frame["age"], frame["bmi"]], frame["ill"] == "y"
        flags = {"smokes": group, "ill": outcome}
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for name in numbers:
        found["mean", name] = _mean(frame[name])
        found["quantile", name] = _quantile(frame[name].to_numpy(float), 0.75)
    for name, flag in flags.items():
        found["proportion", name] = _mean(flag)
    parts = [_mean(frame[y][is_in]) for is_in in (group, ~group)]
    error = np.hypot(parts[0][1], parts[1][1])
    found["group difference", y] = parts[0][0] - parts[1][0], error
    r = np.corrcoef(others[-1], frame[y])[0, 1]
    found["correlation", y] = r, (1 - r**2) / np.sqrt(len(frame))
    for i, pair in enumerate(_regression([*others, group], frame[y].to_numpy(float))):
        found["least squares", f"{i}"] = pair
    predictors = [*others, frame[y]] if "x" in frame else others
    for i, pair in enumerate(_logit(predictors, outcome.to_numpy(float))):
        found["logistic", f"{i}"] = pair
    index = pd.MultiIndex.from_tuples(found)
    values, errors = np.array(list(found.values())).T
    return pd.Series(values, index), pd.Series(errors, index)


def _mean(values: Any) -> tuple[float, float]:
    values = np.asarray(values, float)
    return values.mean(), values.std() / np.sqrt(len(values))


def _quantile(values: np.ndarray, q: float) -> tuple[float, float]:
    n = len(values)
    reach = np.sqrt(q * (1 - q) / n)
    low, middle, high = np.quantile(values, [q - reach, q, q + reach])
    return middle, (high - low) / 2


def _design(columns: list[Any]) -> np.ndarray:
    return np.column_stack([np.ones(len(columns[0])), *columns]).astype(float)


def _regression(columns: list[Any], y: np.ndarray) -> list[tuple[float, float]]:
    """Return coefficients of least squares and their standard errors."""
    design = _design(columns)
    inverse = np.linalg.inv(design.T @ design)
    slopes = inverse @ design.T @ y
    variance = np.mean((y - design @ slopes) ** 2)
    errors = np.sqrt(np.diag(inverse) * variance)
    return list(zip(slopes[1:], errors[1:], strict=True))


def _logit(columns: list[Any], y: np.ndarray) -> list[tuple[float, float]]:
    """Return coefficients of a logistic regression, by Newton's method."""
    design = _design(columns)
    design[:, 1:] -= design[:, 1:].mean(axis=0)
    slopes = np.zeros(design.shape[1])
    for _ in range(25):
        p = _logistic(design @ slopes)
        hessian = (design.T * (p * (1 - p))) @ design
        slopes = slopes + np.linalg.solve(hessian, design.T @ (y - p))
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return list(zip(slopes[1:], errors[1:], strict=True))


@cache
def truth(generator: str) -> pd.Series:
    """Return the results of a law."""
    return analyses(LAWS[generator](np.random.default_rng(10**9), N_TRUE))[0]


def one(
    generator: str, n: int, epsilon: float, seed: int, n_refits: int, n_jobs: int
) -> dict[str, Any]:
    """Return what a table's intervals are made of, by result."""
    rows = LAWS[generator](np.random.default_rng(seed), n)
    fit = DPHFlowSynthesizer(epsilon=epsilon, schema=SCHEMAS[generator]).fit(rows)
    result = bootstrap(fit, analyses, n_refits, n_jobs=n_jobs, verbose=0)
    bounds = result.interval()
    columns = {
        "estimate": result.estimate, "naive": result.error, "lower": bounds["lower"],
        "upper": bounds["upper"], "mean": result.replicates.mean(),
        "std": result.replicates.std(), "retained": result.retained,
    }  # fmt: skip
    return {name: series.tolist() for name, series in columns.items()}


def run(options: argparse.Namespace) -> None:
    """Add records of tables that have none yet."""
    keys = ("generator", "rows", "epsilon", "seed", "refits")
    made = {tuple(each[key] for key in keys) for each in records.read(RECORDS)}
    cells = [
        (generator, n, epsilon)
        for generator in options.generators
        for n in options.rows
        for epsilon in options.epsilons
    ]
    for seed in range(options.tables):
        for cell in cells:
            case = (*cell, seed, options.refits)
            if case in made:
                continue
            record = dict(zip(keys, case, strict=True))
            record |= one(*cell, seed, options.refits, options.jobs)
            records.append(RECORDS, record | records.origin())
            print(*case, flush=True)


def covered(generator: str, some: list[dict[str, Any]]) -> pd.DataFrame:
    """Return coverage and relative width by kind of result, least over results."""
    true = truth(generator).to_numpy()
    estimate, naive, lower, upper = (
        np.array([each[name] for each in some])
        for name in ("estimate", "naive", "lower", "upper")
    )
    table = pd.DataFrame(
        {
            "covered": ((lower <= true) & (true <= upper)).mean(axis=0),
            "naive": (np.abs(estimate - true) <= 1.96 * naive).mean(axis=0),
            "width": (upper - lower).mean(axis=0)
            / (3.92 * estimate.std(axis=0, ddof=1)),
        },
        index=truth(generator).index,
    )
    rules = {"covered": "mean", "naive": "mean", "width": "mean"}
    by_kind = table.groupby(level=0, sort=False).agg(rules)
    by_kind["least"] = table["covered"].groupby(level=0, sort=False).min()
    return by_kind


def write() -> None:
    """Tabulate all records."""
    cells = defaultdict(list)
    for each in records.read(RECORDS):
        key = each["generator"], each["rows"], each["epsilon"], each["refits"]
        cells[key].append(each)
    rows = []
    for (generator, n, epsilon, refits), some in cells.items():
        revisions = ", ".join(dict.fromkeys(each["revision"] for each in some))
        for kind, part in covered(generator, some).iterrows():
            rows.append([
                generator, f"{n:,}", f"{epsilon:g}", f"{len(some)} x {refits}", kind,
                f"{part['covered']:.3f}", f"{part['least']:.3f}",
                f"{part['naive']:.3f}", f"{part['width']:.2f}", revisions,
            ])  # fmt: skip
    head = ["law", "rows", "epsilon", "tables x refits", "kind", "covered", "least"]
    head += ["naive", "width / oracle's", "revision"]
    text = (__doc__ or "").split("\n\n", 2)[2]
    lines = ["# Coverage of 95 % intervals", "", text]
    lines += records.markdown_table(head, rows)
    machines = sorted({each["machine"] for each in records.read(RECORDS)})
    lines += ["", "Machines: " + "; ".join(machines)]
    (RESULTS / "coverage.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--generators", nargs="+", default=list(LAWS), choices=list(LAWS), help="laws")
    add("--rows", nargs="+", type=int, default=[1000, 3000, 10_000], help="of a table")
    add("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0], help="budgets")
    add("--tables", type=int, default=200, help="of every cell")
    add("--refits", type=int, default=20, help="of every table")
    add("--jobs", type=int, default=1, help="refits at the same time")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments)
    write()
