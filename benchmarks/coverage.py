"""Coverage of the intervals of `dpgenerative.inference.bootstrap`, by simulation.

    python benchmarks/coverage.py --generators linear network --rows 3000 --epsilons 1

Tables are drawn again and again, fitted at delta 1e-5 with all defaults and
stated bounds, and analysed: 95 % intervals of refits, and the usual intervals as if the
synthetic rows were people (*naive*).

- *linear*: two numbers, of which one depends on the other and on a binary column.
- *network*: eight mixed columns of a survey, each given some of those before it.
- *adult*, *fair*, *health*: rows drawn with replacement from Adult (training and test
  rows, 15 columns), Fair's survey (9 columns) and the RAND health insurance experiment
  (statsmodels, 10 columns), which are the people; the truth is that of all rows.

With ``--copies``, intervals of `combine` from as many tables of `sample_copies` are
recorded beside them (*copies*), relations corrected by shuffled columns.

Widths (medians) are relative to those of an oracle: 3.92 standard deviations of the
estimates over all tables of a cell, as if their bias were known. *No ends* is the share
of intervals without any, of relations that are lost. Adds a record per table to
``results/coverage.jsonl`` and tabulates all of them in ``results/coverage.md``.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import records
import statsmodels.datasets
from loaders import fetch_adult

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.datasets import load_fair
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.inference import bootstrap, combine, sample_copies
from dpgenerative.inference.results import LEAST_RETAINED

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


def adult() -> tuple[pd.DataFrame, Schema]:
    """Return the rows of Adult, and its schema."""
    bunch = fetch_adult()
    return pd.concat([bunch.train, bunch.test], ignore_index=True), bunch.schema


def fair() -> tuple[pd.DataFrame, Schema]:
    """Return the rows of Fair's survey, and its schema."""
    bunch = load_fair()
    return bunch.data, bunch.schema


def health() -> tuple[pd.DataFrame, Schema]:
    """Return the rows of the RAND experiment, and its schema."""
    rows = statsmodels.datasets.randhie.load_pandas().data
    flags = ["idp", "hlthg", "hlthf", "hlthp"]
    rows[flags] = rows[flags].astype(bool)
    facts = [Column("mdvis", "integer", lower=0, upper=100), column("disea", 0, 60)]
    return rows, Schema([*facts, column("lncoins", 0, 5), column("physlm", 0, 1)])


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
POPULATIONS = {"adult": adult, "fair": fair, "health": health}
ENDS = ("lower", "upper")
ALONE = ("mean", "quantile", "proportion")
"""Kinds of results of one column."""
Results = tuple[pd.Series, pd.Series]


class Roles(NamedTuple):
    """What is analysed of a table.

    Attributes
    ----------
    numbers, quantiles : tuple of str
        For means; for quantiles of columns of more than a few values, on which an
        interval would be a step.
    y : str
        Number whose mean is compared between groups, and that is regressed on `others`
        and the group.
    group, outcome : tuple of str and function
        A column and what makes a flag of it; the outcome is regressed on `predictors`.
    """

    numbers: tuple[str, ...]
    quantiles: tuple[str, ...]
    y: str
    others: tuple[str, ...]
    group: tuple[str, Callable[[pd.Series], pd.Series]]
    outcome: tuple[str, Callable[[pd.Series], pd.Series]]
    predictors: tuple[str, ...]


def _is(level: str) -> Callable[[pd.Series], pd.Series]:
    return lambda series: series == level


def _above(bound: float) -> Callable[[pd.Series], pd.Series]:
    return lambda series: series > bound


ROLES = {
    "linear": Roles(
        ("x", "y"), ("x", "y"), "y", ("x",), ("group", _is("b")),
        ("group", _is("b")), ("x", "y"),
    ),
    "network": Roles(
        ("bmi", "income"), ("bmi", "income"), "pressure", ("age", "bmi"),
        ("smokes", _is("y")), ("ill", _is("y")), ("age", "bmi"),
    ),
    "adult": Roles(
        ("age", "hours_per_week"), ("age",), "hours_per_week", ("age", "education_num"),
        ("sex", _is("Male")), ("income", _is(">50K")), ("age", "education_num"),
    ),
    "fair": Roles(
        ("yrs_married", "children"), (), "rate_marriage", ("yrs_married", "religious"),
        ("affairs", _above(0)), ("affairs", _above(0)),
        ("rate_marriage", "yrs_married"),
    ),
    "health": Roles(
        ("mdvis", "disea"), ("disea",), "mdvis", ("disea", "lncoins"),
        ("hlthg", _above(0)), ("mdvis", _above(0)), ("disea", "lncoins"),
    ),
}  # fmt: skip


def analyses(roles: Roles, frame: pd.DataFrame) -> Results:
    """Return results by kind and name, and their usual standard errors."""
    y, numbers = roles.y, roles.numbers
    others = [frame[name].astype(float) for name in roles.others]
    flags = {name: flag(frame[name]) for name, flag in (roles.group, roles.outcome)}
    group, outcome = flags[roles.group[0]], flags[roles.outcome[0]]
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for name in numbers:
        found["mean", name] = _mean(frame[name])
        if name in roles.quantiles:
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
    predictors = [frame[name].astype(float) for name in roles.predictors]
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
def people(generator: str) -> tuple[pd.DataFrame, Schema]:
    """Return the rows of a law from which the truth is computed, and its schema."""
    if generator in POPULATIONS:
        return POPULATIONS[generator]()
    rng = np.random.default_rng(10**9)
    return LAWS[generator](rng, N_TRUE), SCHEMAS[generator]


@cache
def truth(generator: str) -> pd.Series:
    """Return the results of a law."""
    return analyses(ROLES[generator], people(generator)[0])[0]


def drawn(generator: str, seed: int, n: int) -> pd.DataFrame:
    """Return n rows of a law."""
    rng = np.random.default_rng(seed)
    if generator in LAWS:
        return LAWS[generator](rng, n)
    rows = people(generator)[0]
    return rows.iloc[rng.integers(0, len(rows), n)].reset_index(drop=True)


def of_copies(
    fit: DPHFlowSynthesizer, statistic: Callable[..., Results], n: int, n_copies: int
) -> pd.DataFrame:
    """Return intervals from a table and its copies."""
    rng, results, shuffled = np.random.default_rng(0), [], []
    for rows in sample_copies(fit, n_copies, n, verbose=0):
        mixed = {name: rng.permutation(rows[name]) for name in rows}
        results.append(statistic(rows)[0])
        shuffled.append(statistic(pd.DataFrame(mixed).astype(rows.dtypes))[0])
    return combine(pd.DataFrame(results), pd.DataFrame(shuffled))


def one(
    generator: str, n: int, epsilon: float, seed: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Return what a table's intervals are made of, by result."""
    rows, schema = drawn(generator, seed, n), SCHEMAS.get(generator)
    schema = people(generator)[1] if schema is None else schema
    fit = DPHFlowSynthesizer(epsilon=epsilon, schema=schema).fit(rows)
    statistic = partial(analyses, ROLES[generator])
    refits, jobs = options.refits, options.jobs
    result = bootstrap(fit, statistic, refits, n_jobs=jobs, verbose=0)
    bounds = result.interval()
    columns = {
        "estimate": result.estimate, "naive": result.error, "lower": bounds["lower"],
        "upper": bounds["upper"], "mean": result.replicates.mean(),
        "std": result.replicates.std(), "retained": result.retained,
    }  # fmt: skip
    if options.copies:
        bounds = of_copies(fit, statistic, n, refits)
        columns |= {f"copies {name}": bounds[name] for name in ENDS}
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
            record |= one(*cell, seed, options)
            records.append(RECORDS, record | records.origin())
            print(*case, flush=True)


def covered(generator: str, some: list[dict[str, Any]]) -> pd.DataFrame:
    """Return coverage and relative width by kind of result, least over results."""
    true = truth(generator).to_numpy()
    estimate, naive, lower, upper, retained = (
        np.array([each[name] for each in some], float)
        for name in ("estimate", "naive", *ENDS, "retained")
    )
    # Some records are older than the rules that these have no ends, and that results
    # of one column are no relations.
    is_alone = np.isin(truth(generator).index.get_level_values(0), ALONE)
    is_lost = (retained <= LEAST_RETAINED) & ~is_alone
    lower, upper = np.where(is_lost, -np.inf, lower), np.where(is_lost, np.inf, upper)
    table = pd.DataFrame(
        {
            "covered": ((lower <= true) & (true <= upper)).mean(axis=0),
            "naive": (np.abs(estimate - true) <= 1.96 * naive).mean(axis=0),
            # A result that a synthetic table does not have has no width.
            "width": np.nanmedian(upper - lower, axis=0)
            / (3.92 * np.nanstd(estimate, axis=0, ddof=1)),
            "no ends": np.isinf(upper).mean(axis=0),
        },
        index=truth(generator).index,
    )
    copies = [each for each in some if "copies lower" in each]
    if copies:
        low, high = (np.array([each[f"copies {k}"] for each in copies]) for k in ENDS)
        table["copies"] = ((low <= true) & (true <= high)).mean(axis=0)
    else:
        table["copies"] = np.nan
    rules = dict.fromkeys(["covered", "naive", "width", "no ends", "copies"], "mean")
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
                f"{part['naive']:.3f}", f"{part['width']:.2f}",
                f"{part['no ends']:.2f}",
                f"{part['copies']:.3f}".replace("nan", ""), revisions,
            ])  # fmt: skip
    head = ["law", "rows", "epsilon", "tables x refits", "kind", "covered", "least"]
    head += ["naive", "width / oracle's", "no ends", "copies", "revision"]
    text = (__doc__ or "").split("\n\n", 2)[2]
    lines = ["# Coverage of 95 % intervals", "", text]
    lines += records.markdown_table(head, rows)
    machines = sorted({each["machine"] for each in records.read(RECORDS)})
    lines += ["", "Machines: " + "; ".join(machines)]
    (RESULTS / "coverage.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--generators", nargs="+", default=list(LAWS), choices=list(ROLES), help="laws")
    add("--rows", nargs="+", type=int, default=[1000, 3000, 10_000], help="of a table")
    add("--epsilons", nargs="+", type=float, default=[0.5, 1.0, 3.0], help="budgets")
    add("--tables", type=int, default=200, help="of every cell")
    add("--refits", type=int, default=20, help="of every table")
    add("--copies", action="store_true", help="also intervals from copies")
    add("--jobs", type=int, default=1, help="refits at the same time")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments)
    write()
