"""Tables with several rows per person, protected person by person.

    python benchmarks/linked.py
    python benchmarks/linked.py --people 10000 --methods linked --seeds 0 1 2

People have 1 to 5 visits, in order: a number with a random intercept (intraclass
correlation .94), one that follows itself (autocorrelation .7), a state of a Markov
chain of five, a number that depends on all of these, a label of chance; and a sex and
a year of birth. Fits at delta 1e-5 per person, by the defaults:

- *linked*: rows are linked by a column of role "unit".
- *group privacy*: the same rows without a key, ``max_rows_per_unit=5``; synthetic rows
  get the keys of real people, so that what is within people can be computed.
- *single*: a table of one visit of each of as many people, for single columns alone.

Adds a record per fit to ``results/linked.jsonl``; ``results/linked.md`` tabulates them.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import records

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.metrics import marginal_distance

RESULTS = Path(__file__).parent / "results"
RECORDS = RESULTS / "linked.jsonl"
MOST = 5
LEVELS = list("ABCDE")
CHAIN = np.array(
    [
        [0.70, 0.20, 0.05, 0.03, 0.02],
        [0.20, 0.60, 0.10, 0.05, 0.05],
        [0.05, 0.15, 0.60, 0.10, 0.10],
        [0.00, 0.05, 0.10, 0.70, 0.15],
        [0.00, 0.00, 0.00, 0.05, 0.95],
    ]
)
DAYS: dict[str, Any] = {
    "lower": "2018-01-01",
    "upper": "2022-12-31",
    "resolution": "D",
    "cycles": (),
}
SCHEMA = Schema(
    [
        Column("day", "datetime", role="order", **DAYS),
        Column("sex", "categorical", levels=("f", "m"), per_unit=True),
        Column("born", "integer", lower=1920, upper=2010, per_unit=True),
        Column("x", "continuous", lower=0, upper=100, resolution=0.1),
        Column("z", "continuous", lower=-5, upper=5, resolution=0.01),
        Column("state", "categorical", levels=LEVELS),
        Column("y", "continuous", lower=50, upper=180, resolution=0.1),
        Column("label", "categorical", levels=("p", "q", "r")),
    ]
)
LINKED = Schema([Column("person", "integer", role="unit"), *SCHEMA])


def visits(n: int, seed: int) -> pd.DataFrame:
    """Return the visits of n people, in order."""
    rng = np.random.default_rng(seed)
    sex, born = rng.random(n) < 0.5, rng.integers(1930, 2005, n)
    sizes = 1 + np.minimum(rng.poisson(1.6 + 0.6 * sex), MOST - 1)
    level, ends = rng.normal(0, 1, n), CHAIN.cumsum(axis=1)
    z, day = rng.normal(0, 1, n), rng.integers(0, 700, n)
    state = rng.integers(0, 3, n)
    parts = []
    for place in range(MOST):
        if place:
            z = 0.7 * z + np.sqrt(0.51) * rng.normal(0, 1, n)
            state = (rng.random((n, 1)) > ends[state]).sum(axis=1).clip(0, 4)
            day = day + 1 + rng.exponential(60 + 40 * sex).astype(int)
        x = 50 + 10 * (0.97 * level + 0.243 * rng.normal(0, 1, n))
        y = 100 + 5 * state + 8 * (z + 0.5 * level) + rng.normal(0, 4, n)
        label = rng.choice(["p", "q", "r"], n, p=[0.5, 0.3, 0.2])
        rows = pd.DataFrame(
            {
                "person": np.arange(n), "day": DAY + pd.to_timedelta(day, "D"),
                "sex": np.where(sex, "m", "f"), "born": born, "x": x.round(1),
                "z": z.round(2), "state": np.array(LEVELS)[state], "y": y.round(1),
                "label": label,
            }
        )  # fmt: skip
        parts.append(rows[sizes > place])
    table = pd.concat(parts).sort_values(["person", "day"], ignore_index=True)
    dtypes = {n: pd.CategoricalDtype(LINKED[n].levels) for n in LABELS}
    return table.astype(dtypes)


DAY = pd.Timestamp("2018-01-01")
LABELS = ("sex", "state", "label")


def results(rows: pd.DataFrame) -> dict[str, Any]:
    """Return what a person computes of people with several rows."""
    rows = rows.sort_values(["person", "day"], kind="stable")
    by = rows.groupby("person")
    found: dict[str, Any] = {
        "rows": by.size().value_counts(normalize=True).reindex(range(1, MOST + 1)),
        "chain": pd.crosstab(by["state"].shift(), rows["state"], normalize="index"),
    }
    for name in ("x", "z", "y"):
        found[f"within {name}"] = _intraclass(rows["person"], rows[name])
        found[f"lag {name}"] = rows[name].corr(by[name].shift())
    design = np.column_stack([np.ones(len(rows)), rows["z"], rows["x"]])
    slopes = np.linalg.lstsq(design, rows["y"], rcond=None)[0][1:]
    found |= {"slope z": slopes[0], "slope x": slopes[1]}
    own = rows.assign(z=rows["z"] - by["z"].transform("mean"))
    found["slope within"] = own["z"].cov(own["y"]) / own["z"].var()
    gaps = by["day"].diff().dt.days.dropna()
    found |= {"gap": gaps.mean(), "in order": float((gaps >= 0).mean())}
    found["constant"] = float((by[["sex", "born"]].nunique() == 1).all(axis=1).mean())
    return found


def _intraclass(person: pd.Series, values: pd.Series) -> float:
    """Return the intraclass correlation, by analysis of variance (one way)."""
    by = values.groupby(person)
    sizes, means, n = by.size(), by.mean(), len(values)
    within = ((values - by.transform("mean")) ** 2).sum() / (n - len(sizes))
    between = (sizes * (means - values.mean()) ** 2).sum() / (len(sizes) - 1)
    size = (n - (sizes**2).sum() / n) / (len(sizes) - 1)
    return float((between - within) / (between + (size - 1) * within))


def scores(real: pd.DataFrame, made: pd.DataFrame) -> dict[str, float]:
    """Compare results, and single columns."""
    one, other = results(real), results(made)
    shares = (one.pop("rows") - other.pop("rows").fillna(0)).abs().sum() / 2
    chains = [
        each.pop("chain").reindex(LEVELS, columns=LEVELS) for each in (one, other)
    ]
    columns = list(SCHEMA.names)
    return {
        "rows per person, TVD": float(shares),
        "chain, mean difference": float(
            (chains[0] - chains[1].fillna(0)).abs().mean(None)
        ),
        **{name: float(other[name]) for name in other},
        **{f"real {name}": float(one[name]) for name in one},
        "single columns": marginal_distance(real[columns], made[columns], k=1).mean,
    }


def linked(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit linked rows; return as many people."""
    flow = DPHFlowSynthesizer(schema=LINKED, max_rows_per_unit=MOST, **params).fit(rows)
    return flow, flow.sample(rows["person"].nunique())


def grouped(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit rows under group privacy; give them the keys of real ones."""
    frame = rows.drop(columns="person")
    columns = [replace(c, role=None, per_unit=False) for c in SCHEMA]
    flow = DPHFlowSynthesizer(
        schema=Schema(columns), max_rows_per_unit=MOST, **params
    ).fit(frame)
    return flow, flow.sample(len(rows)).assign(person=rows["person"].to_numpy())


def single(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit one visit of every person, drawn at random."""
    frame = rows.sample(frac=1, random_state=0).drop_duplicates("person")
    frame = frame.drop(columns="person")
    flow = DPHFlowSynthesizer(schema=SCHEMA, **params).fit(frame)
    made = flow.sample(len(frame))
    return flow, made.assign(person=np.arange(len(made)))


METHODS = {"linked": linked, "group privacy": grouped, "single": single}


def run(options: argparse.Namespace) -> None:
    """Add records of what has none yet."""
    keys = ("method", "people", "epsilon", "seed")
    made = {tuple(each[key] for key in keys) for each in records.read(RECORDS)}
    for seed in options.seeds:
        for n in options.people:
            for method in options.methods:
                case = (method, n, options.epsilon, seed)
                if case in made:
                    continue
                rows, start = visits(n, seed), time.perf_counter()
                drawn = METHODS[method](rows, epsilon=options.epsilon)[1]
                record: dict[str, Any] = dict(zip(keys, case, strict=True))
                record["seconds"] = time.perf_counter() - start
                if method == "single":
                    first = rows.sample(frac=1, random_state=0)
                    rows = first.drop_duplicates("person")
                    columns = list(SCHEMA.names)
                    distance = marginal_distance(
                        rows[columns], drawn[columns], k=1
                    ).mean
                    record["scores"] = {"single columns": distance}
                else:
                    record["scores"] = scores(rows, drawn)
                records.append(RECORDS, record | records.origin())
                print(*case, flush=True)


def write() -> None:
    """Tabulate all records."""
    table = pd.DataFrame(records.read(RECORDS))
    found = pd.json_normalize(table["scores"].tolist())
    names = [name for name in found if not name.startswith("real ")]
    head = ["result", "real"]
    cells = table.groupby(["method", "people", "epsilon"], sort=False)
    head += [f"{m}, {n:,} people, epsilon {e:g}" for (m, n, e), _ in cells]
    real = found.filter(like="real ").mean()
    rows = []
    for name in names:
        shown = [name, f"{real.get(f'real {name}', np.nan):.3f}".replace("nan", "")]
        for _, part in cells:
            values = found.loc[part.index, name].dropna()
            shown.append(", ".join(f"{value:.3f}" for value in values))
        rows.append(shown)
    seconds = [", ".join(f"{x:.0f}" for x in part["seconds"]) for _, part in cells]
    rows.append(["seconds", "", *seconds])
    text = (__doc__ or "").split("\n\n", 2)[2]
    lines = ["# Linked rows", "", text, *records.markdown_table(head, rows), ""]
    origins = table[["machine", "revision", "date"]].astype(str).agg("; ".join, axis=1)
    lines += [
        f"- {each}"
        for each in dict.fromkeys(origins.str.replace(r"T.*", "", regex=True))
    ]
    (RESULTS / "linked.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--people", nargs="+", type=int, default=[10_000])
    add("--epsilon", type=float, default=1.0)
    add("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments)
    write()
