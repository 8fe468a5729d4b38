"""Other packages beside this one, over epsilon, each in an environment of its own.

The four tables of ``tabular.py``, and two of 20,000 rows in which one bit is the parity
of two or three others; epsilon .1 to 10 at delta 1e-5. Every method is given the same
rows, levels and bounds (mostlyai-engine takes none: it finds its own inside the same
budget), and as many synthetic rows as were fitted are judged as in ``tabular.py``,
those of the parity tables by the share that obeys the parity. ::

    python -m venv A && A/bin/pip install dpmm               # Python 3.10 or 3.11
    python -m venv B && B/bin/pip install smartnoise-synth packaging
    python -m venv C && C/bin/pip install mostlyai-engine
    python benchmarks/peers.py --data DIR \
        --python dpmm=A/bin/python smartnoise=B/bin/python mostlyai=C/bin/python

Some methods are no packages. Of these give a clone too, as in
``--python tab-pe=D/bin/python --checkout tab-pe=DIR``:

- *margnet* (with PrivSyn and GEM): github.com/KaiChen9909/margnet, beside torch,
  "numpy<2", "pandas<3", scikit-learn, networkx, tqdm, matplotlib, tomli, tomli_w,
  category_encoders;
- *tab-pe*: github.com/microsoft/DPSDA, beside torch, pandas, scikit-learn, scipy,
  matplotlib, requests, generalimport, "omegaconf<2.4", tenacity, POT;
- *private-pgm*: github.com/ryan112358/private-pgm, beside dpmm, "jax<0.5",
  "jaxlib<0.5", chex, optax, attrs, matplotlib and "scipy==1.10.1";
- *adaptive-grid*: the same at 01f02f1, before mbi lost what this mechanism imports.

Fits run one after the other, each in a process of its own (``peer_fits.py``), with as
many threads as ``OMP_NUM_THREADS`` says. A crash, a fit past ``--time-limit`` and the
peak of memory are results like others. Each fit appends one JSON line to a file, and is
not run again. Every run writes tables and figures, and returns 1 where a peer is ahead
or a fit takes more than a tenth of AIM's time.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from peer_tables import (
    CHECKOUTS,
    MERF,
    METHODS,
    OURS,
    Means,
    compared,
    draw,
    page,
    summarise,
    timed,
)
from records import append, origin, read
from tabular import TASKS, fidelity, public_schema, utility

from dpgenerative import Schema
from dpgenerative.metrics import marginal_distance

DEFAULT_OUT = Path(__file__).parent / "results" / "peers.jsonl"
PROGRAM = Path(__file__).with_name("peer_fits.py")
PARITIES = {"parity of 2 bits": 2, "parity of 3 bits": 3}
TABLES = (*TASKS, *PARITIES)
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
DELTA = 1e-5
TIME_LIMIT = 1800.0  # seconds of a fit with its draws
MEMORY = 12 * 2**30  # bytes that a fit may take
MISSING = {"keep_default_na": False, "na_values": [""]}  # an empty field, nothing else

Measure = Callable[[pd.DataFrame], dict[str, float]]


class FitError(RuntimeError):
    """A fit that crashed or was ended; `facts` says which, and what it took."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(facts["failed"])
        self.facts = facts


# One fit, in another environment ------------------------------------------------------


def domain(schema: Schema) -> dict[str, dict[str, Any]]:
    """State the levels and bounds of a schema in plain words."""
    return {
        str(column.name): {"lower": column.lower, "upper": column.upper}
        if column.levels is None
        else {"categories": [str(level) for level in column.levels]}
        for column in schema.columns
    }


def fit_peer(
    method: str,
    train: pd.DataFrame,
    python: str,
    *,
    schema: Schema,
    epsilon: float,
    seed: int = 0,
    draws: int = 1,
    time_limit: float = TIME_LIMIT,
    checkout: str | None = None,
) -> tuple[dict[str, Any], list[pd.DataFrame]]:
    """Fit a method by its own interpreter; return its costs and tables of as many rows.

    Raises `FitError` where it crashed, took longer than `time_limit` seconds, or drew
    what is no table of these columns.
    """
    package, _, model = method.partition(" ")
    task = {
        "package": package,
        "model": model,
        "epsilon": epsilon,
        "delta": DELTA,
        "domain": domain(schema),
        "missing": MISSING,
        "seed": seed,
        "draws": draws,
        "threads": torch.get_num_threads(),
        "memory": MEMORY,
        "checkout": checkout,
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        train.to_csv(folder / "train.csv", index=False)
        if package == OURS:
            (folder / "train.pkl").write_bytes(pickle.dumps((train, schema)))
        isolated = [] if package in (OURS, MERF) else ["-I"]
        words = [python, *isolated, str(PROGRAM)]
        code, costs = _run(words, folder, time_limit)
        if code != 0:
            raise FitError({**costs, "failed": _reason(code, folder, time_limit)})
        costs |= json.loads((folder / "result.json").read_text(encoding="utf-8"))
        paths = [folder / f"synthetic{i}.csv" for i in range(draws)]
        try:
            return costs, [_restore(path, train, schema) for path in paths]
        except (ValueError, KeyError) as error:
            raise FitError({**costs, "failed": f"unreadable rows: {error}"}) from error


def _run(
    words: list[str], folder: Path, time_limit: float
) -> tuple[int | None, dict[str, float]]:
    """Return a program's exit code, None where it was ended, and what it took."""
    threads = str(torch.get_num_threads())
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads)
    eigen = f"--xla_cpu_multi_thread_eigen={str(threads != '1').lower()}"
    # Isolated interpreters ignore the path, by which ours finds this copy's package.
    path = str(PROGRAM.parents[1])
    environment = os.environ | limits | {"XLA_FLAGS": eigen, "PYTHONPATH": path}
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        deadline = time.monotonic() + time_limit
        ended = False
        while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
            if not ended and time.monotonic() > deadline:
                process.kill()
                ended = True
            time.sleep(0.05)
    _, status, usage = found
    process.returncode = os.waitstatus_to_exitcode(status)
    peak = usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    seconds = usage.ru_utime + usage.ru_stime
    costs = {"peak_rss_mib": peak, "process_cpu_seconds": seconds}
    return None if ended else process.returncode, costs


def _reason(code: int | None, folder: Path, time_limit: float) -> str:
    if code is None:
        return f"time-out after {time_limit:g} s"
    lines = (folder / "errors").read_text(errors="replace").strip().splitlines()
    said = lines[-1].strip()[:200] if lines else ""
    return f"crash, signal {-code}" if code < 0 else f"crash: {said}"


def _restore(path: Path, train: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Read synthetic rows in the dtypes of the real ones, numbers within bounds."""
    numbers = {
        c.name: c for c in schema.columns if c.levels is None and c.kind != "boolean"
    }
    types = train.dtypes.to_dict()
    nominal = {name: kind for name, kind in types.items() if name not in numbers}
    rows = pd.read_csv(path, dtype=nominal, **MISSING)[list(train.columns)]
    for name, column in numbers.items():
        values = rows[name].clip(column.lower, column.upper)
        rows[name] = values.round() if column.kind == "integer" else values
    return rows.astype(types)


# Tables and their judges --------------------------------------------------------------


def parity_rows(order: int) -> pd.DataFrame:
    """Draw eight fair bits and a label, the parity of the first ones."""
    bits = np.random.default_rng(order).integers(0, 2, (20_000, 9))
    bits[:, 8] = bits[:, :order].sum(1) % 2
    names = [*(f"bit{i}" for i in range(8)), "label"]
    return pd.DataFrame(bits, columns=names).astype(str).astype("category")


def obeyed(rows: pd.DataFrame, order: int) -> float:
    """Return the share of rows whose label is the parity."""
    found = rows.astype(int)
    return float((found.iloc[:, :order].sum(axis=1) % 2 == found["label"]).mean())


@lru_cache(maxsize=1)
def load(table: str, data_home: str) -> tuple[pd.DataFrame, Measure]:
    """Return the rows to fit and how synthetic ones are scored."""
    if table in PARITIES:
        order = PARITIES[table]
        train = parity_rows(order)
        return train, lambda rows: {
            "obeyed": obeyed(rows, order),
            "tvd_2way": float(marginal_distance(train, rows, 2).mean),
        }
    bunch = TASKS[table].fetch(data_home=data_home)

    def measure(rows: pd.DataFrame) -> dict[str, float]:
        scores = utility(rows, bunch.test, bunch.target, n_jobs=1)
        del scores["classifiers"]
        found = fidelity(bunch.train, rows) | scores
        return {name: float(score) for name, score in found.items()}

    return bunch.train, measure


# The grid -----------------------------------------------------------------------------


def run(config: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Fit and score; what fails has costs and no scores."""
    train, measure = load(config["table"], options.data)
    package = config["method"].partition(" ")[0]
    try:
        facts, [synthetic] = fit_peer(
            config["method"],
            train,
            options.python[package],
            schema=public_schema(train),
            epsilon=config["epsilon"],
            seed=config["seed"],
            time_limit=options.time_limit,
            checkout=options.checkout.get(package),
        )
        metrics = measure(synthetic)
    except FitError as error:
        facts, metrics = error.facts, {}
    except ValueError as error:
        facts, metrics = facts | {"failed": f"not judged: {error}"}, {}
    return {
        **config,
        "n_rows": len(train),
        "n_columns": train.shape[1],
        **facts,
        "metrics": metrics,
        "threads": torch.get_num_threads(),
        **origin(),
        "command": command(config, options.time_limit),
    }


def command(config: dict[str, Any], time_limit: float) -> str:
    """Return a command line that runs this one."""
    package = config["method"].partition(" ")[0]
    words = ["python", "benchmarks/peers.py", "--data", "DIR"]
    words += [] if package == OURS else ["--python", f"{package}=PATH"]
    words += ["--checkout", f"{package}=DIR"] if package in CHECKOUTS else []
    words += ["--tables", config["table"], "--methods", config["method"]]
    words += ["--epsilons", f"{config['epsilon']:g}", "--seeds", str(config["seed"])]
    words += [] if time_limit == TIME_LIMIT else ["--time-limit", f"{time_limit:g}"]
    return shlex.join(words)


def key(record: dict[str, Any]) -> tuple[Any, ...]:
    """Identify a fit."""
    return tuple(record[name] for name in ("table", "method", "epsilon", "seed"))


def run_all(options: argparse.Namespace) -> None:
    """Run what was asked for, has an interpreter and is not there yet."""
    for line in product(
        options.tables, options.methods, options.epsilons, options.seeds
    ):
        config = dict(zip(("table", "method", "epsilon", "seed"), line, strict=True))
        # Read again each time: a second process may have run it meanwhile.
        done = {key(record) for record in read(options.out)}
        if line[1].partition(" ")[0] not in options.python or key(config) in done:
            continue
        record = run(config, options)
        append(options.out, record)
        shown = {name: f"{score:.4f}" for name, score in record["metrics"].items()}
        print(key(record), shown or record["failed"], flush=True)


# Command line -------------------------------------------------------------------------


def interpreter(text: str) -> tuple[str, str]:
    package, separator, path = text.partition("=")
    if not separator or not Path(path).exists():
        raise argparse.ArgumentTypeError(f"expected PACKAGE=PATH; got {text!r}")
    return package, str(Path(path).absolute())


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of the data files")
    add("--python", nargs="+", type=interpreter, default=[], metavar="PACKAGE=PATH")
    add("--checkout", nargs="+", type=interpreter, default=[], metavar="PACKAGE=DIR")
    add("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    add("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    add("--seeds", nargs="+", type=int, default=[0])
    add("--time-limit", type=float, default=TIME_LIMIT, help="seconds of a fit")
    add("--out", type=Path, default=DEFAULT_OUT, help="results file (JSON lines)")
    add("--summary", action="store_true", help="write tables and figures alone")
    options = parser.parse_args(arguments)
    options.checkout = dict(options.checkout)
    options.python = dict.fromkeys((OURS, MERF), sys.executable) | dict(options.python)
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run, write tables and figures; return 1 where a peer is ahead."""
    options = parse(arguments)
    if not options.summary:
        run_all(options)
    records = read(options.out)
    options.out.with_suffix(".md").write_text(summarise(records), encoding="utf-8")
    options.out.with_suffix(".rst").write_text(page(records), encoding="utf-8")
    if options.out == DEFAULT_OUT:
        draw(records)
    means = Means(records)
    found = [*compared(means), *timed(means)]
    print("\n".join(said for kept, said in found if not kept))
    return int(not all(kept for kept, _ in found))


if __name__ == "__main__":
    sys.exit(main())
