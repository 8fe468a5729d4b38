"""Where tables are unlike the usual ones: few columns, high order, few rows, many rows.

Parts, at delta 1e-5 and with the bounds and levels of the whole table as public facts:

- ``few``: the pinwheel, a Gaussian copula of a million rows, and twenty projections of
  the four tables of ``tabular.py`` to 2 to 5 columns.
- ``order``: a label that is the parity of 2, 3 or 4 of eight fair bits, and Adult with
  one more column, the exclusive or of two others: the share of synthetic rows that obey
  the parity, and the accuracy on real test rows of gradient boosting that predicts the
  planted column, trained on synthetic rows.
- ``tiny``: 500 to 5,000 rows of seven tables at epsilon 0.3, 1 and 3.
- ``consistency``: Adult resampled by a Bayesian network, from 1,000 to a million rows
  and from epsilon 0.1 to 100, compared with a fresh sample of the network.
- ``clipping``: clipping norms from .25 to 64 on the copula and on Adult resampled.
- ``tables``: the four tables at epsilon 10, by every score of ``tabular.py``.

Beside ours: dpmm's MST and AIM (``--peer-python``, see ``peers.py``), which are given
30 minutes a fit; ``marginals``, our synthesizer with its budget spent on one-way
marginals and no gradient; ``independence``, the columns permuted; ``bootstrap``, rows
drawn with replacement; ``real``, the rows themselves; ``fresh``, another sample of the
network or the copula. Every fit appends one JSON line to a file; one that is there, or
in a file of ``--reuse``, is not run again. ::

    python benchmarks/regimes.py --data DIR --peer-python PEER/bin/python
    python benchmarks/regimes.py --data DIR --parts tiny --only "adult, 1,000 rows"
    python benchmarks/regimes.py --summary

Every run writes tables and verdicts (``bounds.py``), and returns 1 for a missed bound.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bounds import REFERENCES, Line, Scores, draw, label, summarise, verdicts
from generalization import CASES, copula
from peers import FitError, fit_peer, obeyed, parity_rows
from records import append, origin, read
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import mutual_info_score
from tabular import TASKS, fidelity, public_schema, setting, utility

from dpgenerative import DPHFlowSynthesizer, Schema
from dpgenerative.metrics import kendall_tau_distance, marginal_distance
from dpgenerative.metrics.fidelity import permuted

DEFAULT_OUT = Path(__file__).parent / "results" / "regimes.jsonl"
DELTA = 1e-5
FEW_ROWS, DRAWS = 5_000, 5  # up to so many rows, scores are means of so many tables
DRAWN, FRESH = 500_000, 1_000_000  # rows where a model is compared with its source
PEERS = ("mst", "aim")
NOTHING_LEARNED = {
    "marginal_budget": 0.98,
    "n_steps": 1,
    "optimizer__learning_rate": 1e-9,
    "optimizer__averaging": 0.0,
    "architecture__table_budget": 0.0,
}
METHODS = ("ours", "marginals", *PEERS, *REFERENCES)
NORMS = (0.25, 1.0, 4.0, 16.0, 64.0)
ROW_COUNTS = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = (0.1, 1.0, 10.0, 100.0)
SIZES, TINY_EPSILONS = (500, 1_000, 2_000, 5_000), (0.3, 1.0, 3.0)

Measure = Callable[[pd.DataFrame], dict[str, float]]
PLANTED: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "age, sex": lambda rows: (rows["age"] > 37) ^ (rows["sex"] == "Male"),
    "hours, education": lambda rows: (
        (rows["hours_per_week"] > 40) ^ (rows["education_num"] > 10)
    ),
}


@dataclass(frozen=True)
class Table:
    """Rows to fit, what is public about them, and how synthetic ones are scored."""

    train: pd.DataFrame
    schema: Schema
    measure: Measure
    fresh: pd.DataFrame | None = None
    drawn: int | None = None  # rows; as many as were fitted where None


@dataclass(frozen=True)
class Task:
    """One fit, or one reference, of one table."""

    part: str
    table: str
    rows: int | None
    epsilon: float | None
    method: str
    load: Callable[[], Table]
    params: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> Line:
        """Return its place in the tables of results."""
        return self.part, self.table, self.rows, self.epsilon

    def config(self, seed: int) -> dict[str, Any]:
        """Return what identifies the run."""
        names = ("part", "table", "rows", "epsilon", "method", "params")
        return {**{name: getattr(self, name) for name in names}, "seed": seed}


def tasks(
    part: str,
    table: str,
    load: Callable[[], Table],
    methods: Iterable[str],
    epsilons: Sequence[float | None] = (1.0,),
    rows: int | None = None,
    params: dict[str, Any] | None = None,
) -> Iterator[Task]:
    """List the methods at every epsilon; references have none."""
    for method in methods:
        for epsilon in (None,) if method in REFERENCES else epsilons:
            yield Task(part, table, rows, epsilon, method, load, dict(params or {}))


# Tables -------------------------------------------------------------------------------


@lru_cache
def fetched(name: str, data_home: str | None) -> Any:
    """Read one of the four tables once."""
    return TASKS[name].fetch(data_home=data_home)


def simulated(name: str) -> pd.DataFrame:
    """Make a table of ``generalization.py``, levels as text."""
    frame = CASES[name].make(np.random.default_rng(0))
    nominal = frame.select_dtypes("category")
    return frame.assign(
        **{c: nominal[c].cat.rename_categories(str) for c in nominal.columns}
    )


def distances(real: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
    """Two-way distance, and three-way and Kendall's where there are such columns."""
    orders = [k for k in (2, 3) if k <= real.shape[1]]
    scores = {f"tvd_{k}way": marginal_distance(real, synthetic, k).mean for k in orders}
    if not real.select_dtypes("number").empty:
        scores["kendall_rmse"] = kendall_tau_distance(real, synthetic).rmse
    return scores


def plain(train: pd.DataFrame, schema: Schema | None = None) -> Table:
    """Compare synthetic rows with the fitted ones."""
    return Table(train, schema or public_schema(train), partial(distances, train))


def toy(name: str) -> Table:
    """Make a simulated table."""
    return plain(simulated(name))


def projection(name: str, columns: Sequence[str], data_home: str | None) -> Table:
    """Keep some columns of all rows."""
    return plain(fetched(name, data_home).train[list(columns)])


def parity(order: int) -> Table:
    """Draw eight fair bits and a label, the parity of the first ones."""
    rows = parity_rows(order)

    def measure(synthetic: pd.DataFrame) -> dict[str, float]:
        return {"obeyed": obeyed(synthetic, order), **distances(rows, synthetic)}

    return Table(rows, public_schema(rows), measure)


def planted(name: str, data_home: str | None) -> Table:
    """Add the exclusive or of two columns to Adult, to be predicted from the others."""

    def add(rows: pd.DataFrame) -> pd.DataFrame:
        levels = PLANTED[name](rows).astype(int).astype(str).astype("category")
        return rows.assign(planted=levels)

    adult = fetched("adult", data_home)
    train, test = add(adult.train), add(adult.test)

    def measure(synthetic: pd.DataFrame) -> dict[str, float]:
        model = HistGradientBoostingClassifier(
            categorical_features="from_dtype", random_state=0
        )
        model.fit(synthetic.drop(columns="planted"), synthetic["planted"])
        accuracy = model.score(test.drop(columns="planted"), test["planted"])
        return {"accuracy": accuracy, **distances(train, synthetic)}

    return Table(train, public_schema(train), measure)


def few_rows(load: Callable[[], pd.DataFrame], n: int) -> Table:
    """Draw rows once; what is public is of the whole table."""
    whole = load()
    drawn = whole.sample(min(n, len(whole)), random_state=0).reset_index(drop=True)
    return plain(drawn, public_schema(whole))


def whole_train(name: str, data_home: str | None) -> pd.DataFrame:
    return fetched(name, data_home).train


@lru_cache
def network(data_home: str | None) -> tuple[pd.DataFrame, dict[str, list[str]]]:
    """Fit a Chow-Liu tree to coarse cells of Adult; parents are parent and its own."""
    train = fetched("adult", data_home).train
    cells = pd.DataFrame({
        name: pd.qcut(train[name], 8, labels=False, duplicates="drop")
        if train[name].dtype.kind in "iuf"
        else train[name].cat.codes + 1
        for name in train
    })  # fmt: skip
    shared = {
        frozenset(pair): mutual_info_score(cells[pair[0]], cells[pair[1]])
        for pair in combinations(cells, 2)
    }
    parents: dict[str, list[str]] = {cells.columns[-1]: []}
    while len(parents) < cells.shape[1]:
        others = [name for name in cells if name not in parents]
        pairs = product(parents, others)
        parent, child = max(pairs, key=lambda pair: shared[frozenset(pair)])
        parents[child] = [parent, *parents[parent][:1]]
    return cells, parents


def resampled_adult(n: int, seed: int, data_home: str | None) -> pd.DataFrame:
    """Draw rows from the network: each value of a row with the cells of its parents."""
    train = fetched("adult", data_home).train
    cells, parents = network(data_home)
    rng = np.random.default_rng(seed)
    sources: dict[str, np.ndarray] = {}
    for name, given in parents.items():
        keys, wanted = np.zeros(len(train), np.int64), np.zeros(n, np.int64)
        for parent in given:
            column = cells[parent].to_numpy(np.int64)
            keys, wanted = 64 * keys + column, 64 * wanted + column[sources[parent]]
        order = np.argsort(keys, kind="stable")
        start, stop = (
            np.searchsorted(keys[order], wanted, side) for side in ("left", "right")
        )
        sources[name] = order[rng.integers(start, stop)]
    return pd.DataFrame(
        {name: train[name].array.take(sources[name]) for name in train.columns}
    )


@lru_cache(maxsize=1)
def source(name: str, n: int, data_home: str | None) -> Table:
    """Rows of a known distribution, with which models are compared."""
    if name == "adult resampled":
        schema = public_schema(fetched("adult", data_home).train)
        make: Callable = partial(resampled_adult, data_home=data_home)
    else:
        schema = public_schema(simulated("copula 1,000,000"))
        make = lambda n, seed: copula(n, 2)(np.random.default_rng(seed))  # noqa: E731

    target = make(FRESH, seed=1)
    measure = partial(distances, target)
    return Table(make(n, seed=0), schema, measure, make(DRAWN, seed=2), DRAWN)


# Parts --------------------------------------------------------------------------------


def few(data_home: str | None) -> Iterator[Task]:
    methods = ("ours", *PEERS, "bootstrap", "independence")
    for name in ("pinwheel", "copula 1,000,000"):
        yield from tasks("few", name, partial(toy, name), methods)
    rng = np.random.default_rng(0)
    for i in range(20):
        name = list(TASKS)[i % len(TASKS)]
        whole = fetched(name, data_home).train
        chosen = rng.choice(whole.shape[1], rng.integers(2, 6), replace=False)
        columns = tuple(whole.columns[np.sort(chosen)])
        load = partial(projection, name, columns, data_home)
        yield from tasks("few", f"{name}: {', '.join(columns)}", load, methods)


def order(data_home: str | None) -> Iterator[Task]:
    methods = ("ours", *PEERS, "real")
    for k in (2, 3, 4):
        yield from tasks("order", f"parity of {k} bits", partial(parity, k), methods)
    for name in PLANTED:
        load = partial(planted, name, data_home)
        yield from tasks("order", f"adult, planted {name}", load, methods)


def tiny(data_home: str | None) -> Iterator[Task]:
    methods = ("ours", "marginals", "mst", "bootstrap", "independence")
    tables: dict[str, Callable[[], pd.DataFrame]] = {
        name: partial(whole_train, name, data_home) for name in TASKS
    }
    for name in ("anes96", "breast cancer", "digits"):
        tables[name] = partial(simulated, name)
    for name, load in tables.items():
        most = len(load())
        for n in sorted({min(n, most) for n in SIZES}):
            table = partial(few_rows, load, n)
            yield from tasks("tiny", name, table, methods, TINY_EPSILONS, n)


def consistency(data_home: str | None) -> Iterator[Task]:
    name = "adult resampled"
    yield from tasks(
        "consistency", name, partial(source, name, 1_000, data_home), ["fresh"]
    )
    for n in ROW_COUNTS:
        load = partial(source, name, n, data_home)
        yield from tasks("consistency", name, load, ["ours"], EPSILONS, n)


def clipping(data_home: str | None) -> Iterator[Task]:
    for name in ("copula", "adult resampled"):
        listed = partial(tasks, "clipping", name)
        yield from listed(partial(source, name, 10_000, data_home), ["fresh"])
        for n in ROW_COUNTS[1:]:
            load = partial(source, name, n, data_home)
            # Without privacy nothing is clipped.
            free = [None] if n == ROW_COUNTS[-2] else []
            yield from listed(load, ["ours"], [1.0, *free], n)
            for norm in NORMS:
                yield from listed(load, ["ours"], [1.0], n, {"max_grad_norm": norm})


def tables(data_home: str | None) -> Iterator[Task]:
    def load(name: str) -> Table:
        bunch = fetched(name, data_home)

        def measure(synthetic: pd.DataFrame) -> dict[str, float]:
            scores = utility(synthetic, bunch.test, bunch.target, n_jobs=1)
            del scores["classifiers"]
            return fidelity(bunch.train, synthetic) | scores

        return Table(bunch.train, public_schema(bunch.train), measure)

    for name in TASKS:
        yield from tasks("tables", name, partial(load, name), ["ours", "mst"], [10.0])


PARTS = {
    part.__name__: part for part in (few, order, tiny, consistency, clipping, tables)
}


# One fit ------------------------------------------------------------------------------


def synthesize(
    table: Table, config: dict[str, Any], python: str | None
) -> tuple[dict[str, Any], list[pd.DataFrame]]:
    """Fit a method; return what it cost, and the tables that are scored."""
    train, epsilon, seed = table.train, config["epsilon"], config["seed"]
    n_drawn = table.drawn or len(train)
    seeds = range(seed, seed + (DRAWS if n_drawn <= FEW_ROWS else 1))
    if config["method"] in PEERS:
        return fit_peer(
            f"dpmm {config['method']}", train, str(python), schema=table.schema,
            epsilon=epsilon, seed=seed, draws=len(seeds),
        )  # fmt: skip
    if config["method"] in REFERENCES:
        return {}, [reference(table, config["method"], each) for each in seeds]
    params = NOTHING_LEARNED if config["method"] == "marginals" else config["params"]
    # The same draws for all methods of tiny tables: what is compared is smaller than
    # what the noise of their marginals changes from fit to fit.
    noise = "reproducible" if config["part"] == "tiny" else "fresh"
    model = DPHFlowSynthesizer(
        epsilon=epsilon,
        delta=DELTA,
        schema=table.schema,
        random_state=seed,
        noise=noise,
    ).set_params(**params)
    start = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - start
    return {"fit_seconds": seconds}, [
        model.sample(n_drawn, random_state=each) for each in seeds
    ]


def reference(table: Table, method: str, seed: int) -> pd.DataFrame:
    """Return rows that no model has made."""
    if method == "fresh":
        assert table.fresh is not None
        return table.fresh
    if method == "real":
        return table.train
    if method == "bootstrap":
        return table.train.sample(frac=1, replace=True, random_state=seed)
    return permuted(table.train, seed)


def run(task: Task, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Fit and score; a peer that fails or takes too long has no scores."""
    config, table = task.config(seed), task.load()
    try:
        facts, drawn = synthesize(table, config, options.peer_python)
    except FitError as error:
        facts, drawn = error.facts, []
    scores = pd.DataFrame([table.measure(each) for each in drawn]).mean()
    return {
        **config,
        "n_rows": len(table.train),
        "n_columns": table.train.shape[1],
        **facts,
        "metrics": {name: float(score) for name, score in scores.items()},
        **origin(),
        "command": command(task, seed, options),
    }


def command(task: Task, seed: int, options: argparse.Namespace) -> str:
    """Return a command line that runs this one."""
    words = ["python", "benchmarks/regimes.py", "--data", "DIR"]
    words += ["--peer-python", "PATH"] if task.method in PEERS else []
    words += ["--parts", task.part, "--only", label(task.line)]
    words += ["--methods", task.method, "--seeds", str(seed)]
    if options.set and task.method == "ours":
        words += ["--set", *(f"{name}={value}" for name, value in options.set)]
    return shlex.join(words)


def key(record: dict[str, Any]) -> str:
    """Identify a run."""
    names = ("part", "table", "rows", "epsilon", "method", "params", "seed")
    return json.dumps([record[name] for name in names], sort_keys=True)


def run_all(options: argparse.Namespace, done: set[str]) -> None:
    """Run what was asked for and is not there yet."""
    for part, seed in product(options.parts, options.seeds):
        for task in PARTS[part](options.data):
            if task.method == "ours":
                task.params.update(options.set)
            if (
                task.method not in options.methods
                or (task.method in PEERS and options.peer_python is None)
                or not any(word in label(task.line) for word in options.only)
                or key(task.config(seed)) in done
            ):
                continue
            record = run(task, seed, options)
            done.add(key(record))
            append(options.out, record)
            shown = {name: f"{score:.4f}" for name, score in record["metrics"].items()}
            print(key(record), shown or record.get("failed"), flush=True)


# Command line -------------------------------------------------------------------------


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of the data files")
    add("--peer-python", metavar="PATH", help="interpreter with dpmm")
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add(
        "--only",
        nargs="+",
        metavar="WORD",
        default=[""],
        help="of a table, rows or epsilon",
    )
    add("--methods", nargs="+", choices=METHODS, default=METHODS)
    add("--seeds", nargs="+", type=int, default=[0])
    add("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE")
    add("--out", type=Path, default=DEFAULT_OUT, help="results file (JSON lines)")
    add("--reuse", nargs="+", type=Path, default=[], help="files of earlier records")
    add("--summary", action="store_true", help="write tables and verdicts alone")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Run, write tables, verdicts and figures; return 1 where a bound is missed."""
    options = parse(arguments)
    earlier = [record for path in options.reuse for record in read(path)]
    if not options.summary:
        run_all(options, {key(record) for record in [*earlier, *read(options.out)]})
    records = list({key(r): r for r in [*earlier, *read(options.out)]}.values())
    options.out.with_suffix(".md").write_text(summarise(records), encoding="utf-8")
    scores = Scores(records)
    if options.out == DEFAULT_OUT:
        draw(scores)
    found = list(verdicts(scores))
    print("\n".join(text for _, text in found))
    return int(not all(kept for kept, _ in found))


if __name__ == "__main__":
    sys.exit(main())
