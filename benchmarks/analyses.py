"""What a person computes first: means, deviations, hours, groups, slopes and places.

    python benchmarks/analyses.py --peer-python PEER/bin/python [--only tables]

Fits of the flow at epsilon 1, delta 1e-5, by the defaults; bounds are stated.

- *money*: 10,000 lognormal amounts (mean of the logarithm 3), one column, cents, upper
  bounds of 1e4 to 1e6: mean and standard deviation of as many sampled rows over those
  of the real rows.
- *admissions*: 20,000 and 60,000 simulated stays of four years, on workdays between 7
  and 19 h but for 4 % on weekends, at hours that depend on one of three wards; three
  more columns. Total variation distances of hours and weekdays, from real rows.
- *tables*: six simulated tables (``analysis_tables.py``), three seeds, beside dpmm's
  MST and AIM (given the same levels and bounds, times as numbers of days or minutes),
  rows redrawn from the real ones, and the flow without what the schema says of groups
  and places (*apart*). Errors are in standard errors of the real result, the 90 %
  quantile over all results of a kind. *limit* are private means alone, of the whole
  budget, clipped at real quantiles.

Adds records to ``results/analyses.jsonl`` and tabulates all of them in
``results/analyses.md`` and a picture; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import warnings
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import analysis_tables
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import records
from analysis_tables import Simulated
from peers import FitError, fit_peer

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.metrics import analysis_errors, marginal_distance
from dpgenerative.privacy.accounting import gaussian_multiplier

RESULTS = Path(__file__).parent / "results"
PICTURE = Path(__file__).parents[1] / "doc" / "_static" / "analyses.png"
RECORDS = RESULTS / "analyses.jsonl"
N_AMOUNTS = 10_000
PEERS, LIMIT = ("mst", "aim"), 900
"""Methods of dpmm, and the seconds that a fit may take."""
METHODS = ("ours", "apart", "redrawn", "limit", *PEERS)
DRAWN = ("mean", "standard deviation", "quantile", "mean by group", "slope")
MARKS = {
    "redrawn": ("real rows redrawn", "|", "black"),
    "limit": ("private means alone", "x", "tab:grey"),
    "ours": ("DPHFlowSynthesizer", "o", "tab:blue"),
    "mst": ("MST", "s", "tab:orange"),
    "aim": ("AIM", "^", "tab:red"),
}
"""Labels, markers and colours of methods in the picture."""
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


def admissions(n: int, seed: int) -> dict[str, Any]:
    """Return shares and distances of the hours and weekdays of a sample."""
    made = analysis_tables.admissions(seed, n)
    frame, schema = made.frame, made.schema
    fit = DPHFlowSynthesizer(schema=schema, random_state=seed).fit(frame)
    drawn = fit.sample(n, random_state=seed)
    table = analysis_errors(frame, drawn).table
    distance = dict(zip(table["analysis"], table["synthetic"], strict=True))
    hours, weekdays = drawn["admitted"].dt.hour, drawn["admitted"].dt.day_of_week
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


def as_numbers(made: Simulated) -> tuple[pd.DataFrame, Schema]:
    """Return a table with times as whole numbers of days or minutes, for peers."""
    frame, columns = made.frame.copy(), []
    whole = made.schema.resolve(made.frame)
    for column in whole.columns:
        if column.kind == "datetime":
            unit = {"D": "D"}.get(column.unit, "m")
            ends = (
                pd.Timestamp(end).to_numpy() for end in (column.lower, column.upper)
            )
            lower, upper = (end.astype(f"M8[{unit}]").astype(int) for end in ends)
            times = frame[column.name].to_numpy().astype(f"M8[{unit}]")
            frame[column.name] = times.astype(int)
            column = Column(column.name, "integer", lower=int(lower), upper=int(upper))
        columns.append(column)
    return frame, Schema(columns)


def with_times(drawn: pd.DataFrame, made: Simulated) -> pd.DataFrame:
    """Return numbers of days or minutes as the times that they were."""
    drawn = drawn.copy()
    for column in made.schema.resolve(made.frame).columns:
        if column.kind == "datetime":
            unit = {"D": "D"}.get(column.unit, "m")
            counts = drawn[column.name].to_numpy().astype(np.int64)
            drawn[column.name] = counts.astype(f"M8[{unit}]").astype("M8[us]")
    return drawn


def synthesized(
    made: Simulated, method: str, seed: int, python: str | None
) -> pd.DataFrame:
    """Return as many rows by a method."""
    n = len(made.frame)
    if method == "redrawn":
        return made.frame.sample(n, replace=True, random_state=seed)
    if method in PEERS:
        frame, schema = as_numbers(made)
        _, (drawn,) = fit_peer(
            f"dpmm {method}", frame, str(python), schema=schema, epsilon=1.0, seed=seed,
            time_limit=LIMIT,
        )  # fmt: skip
        return with_times(drawn[list(frame)], made)
    if method == "apart":  # what the schema says of groups and places is not used
        made = replace(made, schema=Schema(made.schema.columns))
    fit = DPHFlowSynthesizer(schema=made.schema, random_state=seed).fit(made.frame)
    return fit.sample(n, random_state=seed)


def tables(name: str, method: str, seed: int, python: str | None) -> dict[str, Any]:
    """Return what the first analyses of a table come to, in standard errors."""
    made = analysis_tables.TABLES[name](seed)
    if method == "limit":
        return limit(made, seed)
    try:
        drawn = synthesized(made, method, seed, python)
    except FitError as error:
        return {"failed": error.facts["failed"]}
    errors = analysis_errors(made.frame, drawn)
    results = errors.summary()["synthetic"].to_dict()
    stds = errors.table[errors.table["analysis"] == "standard deviation"]
    ratios = stds["synthetic"] / stds["real"]
    pairs = marginal_distance(made.frame, drawn, 2, references=False, max_sets=200)
    return {
        **results, "least deviation": ratios.min(), "most deviation": ratios.max(),
        "pairs": pairs.mean, **laws(made, drawn),
    }  # fmt: skip


LAWS = [("kind", "category"), ("state", "region"), ("group", "class"),
        ("route", "origin"), ("code", "chapter")]  # fmt: skip


def laws(made: Simulated, drawn: pd.DataFrame) -> dict[str, float]:
    """Return shares of sampled rows that break what all real rows obey."""
    found = {}
    for names in made.laws:
        pairs = [each[list(names)].astype(str).agg("|".join, axis=1) for each in
                 (made.frame, drawn)]  # fmt: skip
        found[" ".join(names)] = (~pairs[1].isin(pairs[0].unique())).mean()
    if len(made.towns):
        places = drawn[["lat", "long"]].to_numpy(float)[:, None] - made.towns
        off = np.sqrt(((places / analysis_tables.TOWN_SIZE) ** 2).sum(2)).min(1)
        found["places"] = (off > 5).mean()
    return found


def limit(made: Simulated, seed: int) -> dict[str, float]:
    """Return errors of private means alone, by the whole budget, in standard errors.

    Every numeric column is clipped at its real 0.1 and 99.9 % quantiles, which is more
    than private quantiles would allow; all means are one Gaussian release.
    """
    rng, numbers = np.random.default_rng(seed), made.frame.select_dtypes("number")
    noise = gaussian_multiplier(1.0, 1e-5) * np.sqrt(numbers.shape[1])
    low, high = numbers.quantile(0.001), numbers.quantile(0.999)
    clipped = numbers.clip(low, high, axis=1)
    off = clipped.mean() - numbers.mean()
    off += rng.normal(0, 1, len(off)) * noise * (high - low) / 2 / len(numbers)
    errors = off / (numbers.std() / np.sqrt(len(numbers)))
    return {"mean": errors.abs().quantile(0.9)}


def run(options: argparse.Namespace) -> None:
    """Run all cases that have no record yet, and add their records."""
    made = [[x["case"], x["setting"], x["seed"]] for x in records.read(RECORDS)]
    settings = [[name, method] for name in options.tables for method in options.methods]
    cases: dict[str, tuple[Any, list[list[Any]], int]] = {
        "money": (money, [[s, u] for s in SIGMAS for u in UPPERS], options.seeds),
        "admissions": (admissions, [[n] for n in STAYS], 3),
        "tables": (partial(tables, python=options.peer_python), settings, 3),
    }
    for name, (measure, settings, n_seeds) in cases.items():
        for seed in range(n_seeds if options.only in (None, name) else 0):
            for setting in settings:
                if [name, setting, seed] in made:
                    continue
                record = {"case": name, "setting": setting, "seed": seed}
                record |= measure(*setting, seed=seed)
                print(record, flush=True)
                records.append(RECORDS, record | records.origin())


def revisions(some: list[dict[str, Any]]) -> str:
    """Return the commits that were checked out while records were made."""
    return ", ".join(dict.fromkeys(each["revision"] for each in some))


def write() -> None:
    """Tabulate all records."""
    groups = defaultdict(list)
    made = records.read(RECORDS)
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
    lines += tabulated(made)
    lines += ["Machines: " + "; ".join(sorted({each["machine"] for each in made}))]
    (RESULTS / "analyses.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    draw(made)


def tabulated(made: list[dict[str, Any]]) -> list[str]:
    """Return lines of the means over seeds, by table and method."""
    some = pd.DataFrame([each for each in made if each["case"] == "tables"])
    if not len(some):
        return []
    some[["table", "method"]] = some["setting"].tolist()
    shown = [
        "mean", "standard deviation", "least deviation", "most deviation", "quantile",
        "mean by group", "slope", "hours", "weekdays", "pairs",
    ]  # fmt: skip
    broken = some.columns.intersection([" ".join(x) for x in LAWS] + ["places"])
    some["broken"] = some[broken].max(axis=1)
    rows = []
    for (table, method), part in some.groupby(["table", "method"], sort=False):
        cells = [_cell(part, name) for name in [*shown, "broken"]]
        failed = part["failed"].dropna().tolist() if "failed" in part else []
        rows.append([table, method, f"{len(part)}", *cells, "; ".join(set(failed))])
    head = ["table", "method", "fits", *shown, "laws broken", "failed"]
    return ["", *records.markdown_table(head, rows)]


def draw(made: list[dict[str, Any]]) -> None:
    """Draw the errors of every table and method, of a method that has any."""
    some = pd.DataFrame([each for each in made if each["case"] == "tables"])
    some[["table", "method"]] = some["setting"].tolist()
    means = some.groupby(["table", "method"])[list(DRAWN)].mean()
    figure, axes = plt.subplots(
        2, 3, figsize=(10, 5.6), sharex=True, sharey=True, layout="constrained"
    )
    for axis, name in zip(axes.flat, analysis_tables.TABLES, strict=True):
        for method, (label, marker, color) in MARKS.items():
            if (name, method) in means.index:
                errors = means.loc[(name, method)].clip(0.1, 300)
                places = range(len(DRAWN))
                axis.plot(errors, places, marker, color=color, label=label, alpha=0.85)
        axis.set(title=name, xscale="log", yticks=range(len(DRAWN)))
        axis.set_yticklabels(DRAWN)
        axis.grid(axis="x", alpha=0.3)
    axes[0, 0].invert_yaxis()
    for axis in axes[1]:
        axis.set_xlabel("standard errors")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center",
                  ncols=len(MARKS))  # fmt: skip
    figure.savefig(PICTURE, dpi=90)


def _cell(part: pd.DataFrame, name: str) -> str:
    if name not in part or part[name].isna().all():
        return ""
    worst = {"least deviation": part[name].min(), "most deviation": part[name].max()}
    return f"{worst.get(name, part[name].mean()):.3g}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=20, help="fits of each amount")
    add("--only", choices=["money", "admissions", "tables"], help="one case")
    add("--tables", nargs="+", default=[*analysis_tables.TABLES], help="some tables")
    add("--methods", nargs="+", default=METHODS, choices=METHODS, help="some methods")
    add("--peer-python", metavar="PATH", help="interpreter with dpmm")
    arguments = parser.parse_args()
    if arguments.peer_python is None:
        arguments.methods = [x for x in arguments.methods if x not in PEERS]
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments)
    write()
