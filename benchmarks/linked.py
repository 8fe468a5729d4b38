"""Tables with several rows per person, protected person by person.

    python benchmarks/linked.py
    python benchmarks/linked.py --people 10000 --methods linked --seeds 0 1 2
    python benchmarks/linked.py --methods mostlyai --peer-python PATH
    python benchmarks/linked.py --million FOLDER

People have 1 to 5 visits, in order: a number with a random intercept (intraclass
correlation .94), one that follows itself (autocorrelation .7), a state of a Markov
chain of five, a number that depends on all of these, a label of chance; and a sex and
a year of birth. Fits at delta 1e-5 per person, by the defaults:

- *linked*: rows are linked by a column of role "unit".
- *group privacy*: the same rows without a key, ``max_rows_per_unit=5``; synthetic rows
  get the keys of real people, so that what is within people can be computed.
- *owners*: the same rows, not linked, by a column of role "owner".
- *single*: a table of one visit of each of as many people, for single columns alone.
- *mostlyai*: mostlyai-engine's sequential model by its own differential privacy and
  defaults. It is given sex and year of birth of the real people, unprotected
  (``peer_linked.py``).

Adds a record per fit to ``results/linked.jsonl``; ``results/linked.md`` tabulates them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import records

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.metrics import marginal_distance, sequence_results

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
APART = [replace(column, role=None, per_unit=False) for column in SCHEMA]
LINKED = Schema([Column("person", "integer", role="unit"), *SCHEMA])


def visits(n: int, seed: int, always: bool = False) -> pd.DataFrame:
    """Return the visits of n people, in order; `always` five of each."""
    rng = np.random.default_rng(seed)
    sex, born = rng.random(n) < 0.5, rng.integers(1930, 2005, n)
    sizes = 1 + np.minimum(rng.poisson(1.6 + 0.6 * sex), MOST - 1)
    sizes = np.full(n, MOST) if always else sizes
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


def slopes(rows: pd.DataFrame) -> dict[str, float]:
    """Return slopes of y: on z and x, and on z within people."""
    design = np.column_stack([np.ones(len(rows)), rows["z"], rows["x"]])
    both = np.linalg.lstsq(design, rows["y"], rcond=None)[0][1:]
    z = rows["z"] - rows.groupby("person")["z"].transform("mean")
    within = z.cov(rows["y"]) / z.var()
    return {"slope of z": both[0], "slope of x": both[1], "slope within": within}


def chain(rows: pd.DataFrame) -> pd.DataFrame:
    """Return how often states follow each other."""
    rows = rows.sort_values(["person", "day"], kind="stable")
    before = rows.groupby("person")["state"].shift()
    counts = pd.crosstab(before, rows["state"], normalize="index")
    return counts.reindex(LEVELS, columns=LEVELS).fillna(0)


def scores(real: pd.DataFrame, made: pd.DataFrame) -> dict[str, list[float]]:
    """Return results of both tables, by name."""
    table = sequence_results(real, made, "person", "day")[["real", "synthetic"]]
    found = {
        " ".join(about).strip(): [*row]
        for about, row in zip(table.index, table.to_numpy(), strict=True)
    }
    pairs = zip(slopes(real).items(), slopes(made).values(), strict=True)
    found |= {name: [one, other] for (name, one), other in pairs}
    found["chain, mean difference"] = [
        0.0,
        (chain(real) - chain(made)).abs().mean(None),
    ]
    found["single columns"] = [0.0, single_columns(real, made)]
    found["two columns"] = [0.0, distances(real, made, 2)]
    return {name: [float(x) for x in pair] for name, pair in found.items()}


def distances(real: pd.DataFrame, made: pd.DataFrame, k: int) -> float:
    """Return the mean distance of k columns together."""
    columns = list(SCHEMA.names)
    return float(marginal_distance(real[columns], made[columns], k=k).mean)


def single_columns(real: pd.DataFrame, made: pd.DataFrame) -> float:
    """Return the mean distance of single columns."""
    return distances(real, made, 1)


def linked(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit linked rows; return as many people."""
    flow = DPHFlowSynthesizer(schema=LINKED, max_rows_per_unit=MOST, **params).fit(rows)
    return flow, flow.sample(rows["person"].nunique())


def grouped(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit rows under group privacy; give them the keys of real ones."""
    frame = rows.drop(columns="person")
    flow = DPHFlowSynthesizer(
        schema=Schema(APART), max_rows_per_unit=MOST, **params
    ).fit(frame)
    return flow, flow.sample(len(rows)).assign(person=rows["person"].to_numpy())


def owned(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit one row of every person; give as many rows the keys of real ones."""
    facts = Schema([Column("person", "integer", role="owner"), *APART])
    flow = DPHFlowSynthesizer(schema=facts, **params).fit(rows)
    return flow, flow.sample(len(rows)).assign(person=rows["person"].to_numpy())


def single(rows: pd.DataFrame, **params: Any) -> tuple[Any, pd.DataFrame]:
    """Fit one visit of every person, drawn at random."""
    frame = rows.sample(frac=1, random_state=0).drop_duplicates("person")
    frame = frame.drop(columns="person")
    flow = DPHFlowSynthesizer(schema=SCHEMA, **params).fit(frame)
    made = flow.sample(len(frame))
    return flow, made.assign(person=np.arange(len(made)))


def peer(rows: pd.DataFrame, epsilon: float) -> tuple[Any, pd.DataFrame]:
    """Return people by mostlyai-engine."""
    with TemporaryDirectory() as folder:
        files = [f"{folder}/{name}.parquet" for name in ("rows", "made")]
        rows.to_parquet(files[0])
        script = str(Path(__file__).with_name("peer_linked.py"))
        command = [PEER["python"], script, *files, "--epsilon", str(epsilon)]
        subprocess.run(command, check=True)
        made = pd.read_parquet(files[1])
    return None, made[list(rows.columns)].astype(rows.dtypes.drop("person").to_dict())


PEER: dict[str, str] = {}
"""The interpreter that has mostlyai-engine."""
METHODS: dict[str, Any] = {
    "linked": linked,
    "group privacy": grouped,
    "owners": owned,
    "single": single,
    "mostlyai": peer,
}


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
                    distance = single_columns(rows, drawn)
                    record["scores"] = {"single columns": [0.0, distance]}
                else:
                    record["scores"] = scores(rows, drawn)
                records.append(RECORDS, record | records.origin())
                print(*case, flush=True)


def million(folder: Path) -> None:
    """Print seconds and memory of a million people of five rows, in files."""
    source, target = folder / "visits.parquet", folder / "made.parquet"
    writer = None
    for part in range(10):
        rows = visits(100_000, part, always=True)
        rows["person"] += 100_000 * part
        table = pa.Table.from_pandas(rows, preserve_index=False)
        writer = writer or pq.ParquetWriter(source, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()
    work = (
        "import resource, sys, time; from linked import *;"
        "start = time.perf_counter(); flow = DPHFlowSynthesizer("
        "schema=LINKED, max_rows_per_unit=MOST).fit(sys.argv[1]);"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20;"
        "print(f'fit {time.perf_counter() - start:.0f} s, {peak():.2f} GiB');"
        "start = time.perf_counter(); flow.sample_to(sys.argv[2], 10**6);"
        "print(f'sample {time.perf_counter() - start:.0f} s, {peak():.2f} GiB')"
    )
    command = [sys.executable, "-c", work, str(source), str(target)]
    subprocess.run(command, check=True, cwd=Path(__file__).parent)


def write() -> None:
    """Tabulate all records."""
    table = pd.DataFrame(records.read(RECORDS))
    cells = table.groupby(["method", "people", "epsilon"], sort=False)
    head = ["result", "real"]
    head += [f"{m}, {n:,} people, epsilon {e:g}" for (m, n, e), _ in cells]
    rows = []
    for name in dict.fromkeys(name for each in table["scores"] for name in each):
        pairs = [each[name] for each in table["scores"] if name in each]
        shown = [name, f"{np.mean([real for real, _ in pairs]):.3f}"]
        for _, part in cells:
            made = [each[name][1] for each in part["scores"] if name in each]
            shown.append(", ".join(f"{value:.3f}" for value in made))
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
    ours = [name for name in METHODS if not name.startswith("mostlyai")]
    add("--methods", nargs="+", default=ours, choices=list(METHODS))
    add("--peer-python", metavar="PATH", help="interpreter with mostlyai-engine")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--million", type=Path, metavar="FOLDER", help="time a million people instead")
    arguments = parser.parse_args()
    if arguments.million:
        million(arguments.million)
        sys.exit()
    PEER["python"] = arguments.peer_python
    warnings.simplefilter("ignore", PrivacyWarning)
    run(arguments)
    write()
