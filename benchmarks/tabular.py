"""Fidelity and utility of synthetic tables on four public data sets.

Every configuration (data set, mode, seed, parameters) runs in a process of its own and
appends one JSON line to a file; one that is in the file already is not run again. ::

    python benchmarks/tabular.py --data DIR --real
    python benchmarks/tabular.py --data DIR --datasets adult --set clipping=per-unit
    python benchmarks/tabular.py --data DIR --estimator vae
    python benchmarks/tabular.py --summary

Modes: ``private`` takes dtypes, category levels and the training file's minima and
maxima as public; ``nonprivate`` does the same without privacy; ``discovery`` turns
categories into strings and gives no schema, so that levels and bounds are found inside
the budget. ``--real`` scores the real rows themselves, with what sampling noise and
independent columns would score, and compares them with known figures.
"""

from __future__ import annotations

import argparse
import ast
import json
import resource
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from loaders import fetch_adult, fetch_census, fetch_covertype, fetch_intrusion
from records import append, markdown_table, origin, read
from sklearn.utils import Bunch

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    Schema,
)
from dpgenerative.metrics import (
    independence_baseline,
    kendall_tau_distance,
    marginal_distance,
    sampling_floor,
    tstr,
)

MODES = ("private", "nonprivate", "discovery")
ESTIMATORS: dict[str, Any] = {
    "flow": DPHFlowSynthesizer,
    "published": DPHFlowSynthesizer.published,
    "vae": DPVAESynthesizer,
}
DEFAULT_OUT = Path(__file__).parent / "results" / "tabular.jsonl"
PUBLIC_BY_ASSUMPTION = {
    "private": "dtypes, category levels, training minimum and maximum of numerics",
    "nonprivate": "dtypes, category levels, training minimum and maximum of numerics",
    "discovery": "column names and dtypes",
}
TOLERANCE = 0.01  # within which the real rows must reproduce the known figures


@dataclass(frozen=True)
class Task:
    """A data set and what its real rows must score.

    `whole` names the file with all columns of the source, where `fetch` leaves some out
    and the known marginal figures were taken with them.
    """

    fetch: Callable[..., Bunch]
    known: dict[str, float]
    whole: str | None = None


def _known(utility: str, marginals: str = "", suffix: str = "") -> dict[str, float]:
    names = ["macro_f1", "auroc", "average_precision"]
    names += [f"floor_{k}way{suffix}" for k in (1, 2, 3)]
    names += [f"independence_{k}way{suffix}" for k in (2, 3)]
    figures = [float(figure) for figure in (utility + " " + marginals).split()]
    return dict(zip(names, figures, strict=False))


TASKS = {
    "adult": Task(fetch_adult, _known(".751 .882 .713", ".004 .012 .027 .079 .183")),
    "census": Task(
        fetch_census,
        _known(".661 .903 .498", ".002 .006 .011 .074 .167", "_whole"),
        whole="census_kdd_train.parquet",
    ),
    "covertype": Task(
        fetch_covertype, _known(".471 .903 .528", ".006 .023 .079 .160 .368")
    ),
    "intrusion": Task(fetch_intrusion, _known(".677 .883 .684")),
}


# Data ---------------------------------------------------------------------------------


def public_schema(train: pd.DataFrame) -> Schema:
    """State dtypes, category levels and the training range as public facts."""
    return Schema(_public_column(name, train[name]) for name in train.columns)


def _public_column(name: Any, series: pd.Series) -> Column:
    if isinstance(series.dtype, pd.CategoricalDtype):
        levels, ordered = tuple(series.cat.categories), bool(series.cat.ordered)
        return Column(name, "categorical", levels=levels, ordered=ordered)
    if pd.api.types.is_bool_dtype(series):
        return Column(name, "boolean")
    whole = pd.api.types.is_integer_dtype(series)
    as_number = int if whole else float
    lower, upper = as_number(series.min()), as_number(series.max())
    kind = "integer" if whole else "continuous"
    return Column(name, kind, lower=lower, upper=upper)


def without_levels(frame: pd.DataFrame) -> pd.DataFrame:
    """Turn categories into plain strings, so that no level list is given away."""
    nominal = frame.select_dtypes("category").columns
    return frame.astype(dict.fromkeys(nominal, object))


# Scores -------------------------------------------------------------------------------


def utility(train: pd.DataFrame, test: pd.DataFrame, target: str, n_jobs: int) -> dict:
    """Mean, best and individual scores of the nine classifiers."""
    scores = tstr(None, test, train, target, task="classification", n_jobs=n_jobs)
    numbers = scores.set_index("model").drop(columns=["trained_on", "repeat"])
    best = numbers.max().add_prefix("best_")
    rows = numbers.T.to_dict()
    return {**numbers.mean(), **best, "classifiers": rows}


def fidelity(train: pd.DataFrame, synthetic: pd.DataFrame) -> dict[str, float]:
    """Distances of one-, two- and three-way marginals and of Kendall's tau."""
    found = {k: marginal_distance(train, synthetic, k) for k in (1, 2, 3)}
    scores = {f"tvd_{k}way": found[k].mean for k in found}
    kendall = kendall_tau_distance(train, synthetic)
    return {
        **scores,
        "tvd_1way_max": found[1].max,
        "kendall_rmse": kendall.rmse,
        "kendall_mae": kendall.mae,
    }


def baselines(train: pd.DataFrame, suffix: str = "") -> dict[str, float]:
    """Marginal distances of a bootstrap and of independently permuted columns."""
    floors = {f"floor_{k}way{suffix}": sampling_floor(train, k).mean for k in (1, 2, 3)}
    independent = {
        f"independence_{k}way{suffix}": independence_baseline(train, k).mean
        for k in (2, 3)
    }
    return {**floors, **independent}


# One configuration --------------------------------------------------------------------


def run_real(task: Task, bunch: Bunch, options: argparse.Namespace) -> dict[str, Any]:
    """Score the real training rows."""
    metrics = utility(bunch.train, bunch.test, bunch.target, options.n_jobs)
    metrics |= baselines(bunch.train)
    if task.whole:
        whole = pd.read_parquet(Path(options.data) / task.whole)
        metrics |= baselines(whole, "_whole")
    gaps = {name: abs(metrics[name] - task.known[name]) for name in task.known}
    worst = max(gaps, key=gaps.__getitem__)
    return {
        "metrics": metrics,
        "known": task.known,
        "largest_gap": {"score": worst, "gap": gaps[worst]},
        "reproduced": gaps[worst] <= TOLERANCE,
    }


def run_synthesizer(
    bunch: Bunch, config: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any]:
    """Fit on the training file, draw as many rows, score them."""
    train, test = bunch.train, bunch.test
    schema: Schema | None = public_schema(train)
    if config["mode"] == "discovery":
        train, test, schema = without_levels(train), without_levels(test), None
    seed = config["seed"]
    estimator = ESTIMATORS[config.get("estimator", "flow")]
    model = estimator(schema=schema, random_state=seed).set_params(**config["params"])
    before, start = peak_rss_mib(), time.perf_counter()
    model.fit(train)
    fitted, peak = time.perf_counter(), peak_rss_mib()
    synthetic = model.sample(len(train), random_state=seed)
    sampled = time.perf_counter()
    metrics = fidelity(train, synthetic)
    metrics |= utility(synthetic, test, bunch.target, options.n_jobs)
    return {
        "metrics": metrics,
        "fit_seconds": fitted - start,
        "sample_seconds": sampled - fitted,
        "peak_rss_mib": peak,
        "peak_rss_before_fit_mib": before,
        "privacy": model.privacy_.to_dict(),
        "public_by_assumption": PUBLIC_BY_ASSUMPTION[config["mode"]],
    }


def peak_rss_mib() -> float:
    """Largest resident size of this process so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def work(config: dict[str, Any], options: argparse.Namespace) -> None:
    """Run one configuration in this process and append its line to the file."""
    task, start = TASKS[config["dataset"]], time.perf_counter()
    bunch = task.fetch(data_home=options.data)
    if config["mode"] == "real":
        result = run_real(task, bunch, options)
    else:
        result = run_synthesizer(bunch, config, options)
    record = {
        **config,
        **result,
        "total_seconds": time.perf_counter() - start,
        "version": version("dpgenerative"),
        **origin(),
        "command": command(config),
    }
    append(options.out, record, default=_plain)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)


def command(config: dict[str, Any]) -> str:
    """Return the command line that runs this one configuration."""
    words = ["python", "benchmarks/tabular.py", "--data", "DIR"]
    words += ["--datasets", config["dataset"]]
    if config["mode"] == "real":
        return shlex.join([*words, "--real", "--modes"])
    words += ["--modes", config["mode"], "--seeds", str(config["seed"])]
    if "estimator" in config:
        words += ["--estimator", config["estimator"]]
    params = dict(config["params"])
    for name in ("epsilon", "delta"):
        value = params.pop(name)
        if value is not None:
            words += [f"--{name}", str(value)]
    if params:
        words += ["--set", *(f"{name}={value}" for name, value in params.items())]
    return shlex.join(words)


# All configurations -------------------------------------------------------------------


def configurations(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    """List what the command line asks for, real rows first."""
    if options.real:
        for name in options.datasets:
            yield {"dataset": name, "mode": "real", "seed": 0, "params": {}}
    for name, mode, seed in product(options.datasets, options.modes, options.seeds):
        epsilon = None if mode == "nonprivate" else options.epsilon
        params = {"epsilon": epsilon, "delta": options.delta, **dict(options.set)}
        config = {"dataset": name, "mode": mode, "seed": seed, "params": params}
        # Records of the flow name no estimator.
        other = {} if options.estimator == "flow" else {"estimator": options.estimator}
        yield config | other


def key(record: dict[str, Any]) -> str:
    """Identify a configuration."""
    names = ("dataset", "mode", "seed", "params", "estimator")
    parts = {name: record[name] for name in names if name in record}
    return json.dumps(parts, sort_keys=True)


def run_all(options: argparse.Namespace) -> int:
    """Run what is not in the results file yet; return how many runs failed."""
    done = {key(record) for record in read(options.out)}
    failed = 0
    for config in configurations(options):
        label = key(config)
        if label in done:
            print(f"done already: {label}", flush=True)
            continue
        print(f"running: {label}", flush=True)
        failed += not _run_apart(label, options)
    return failed


def _run_apart(label: str, options: argparse.Namespace) -> bool:
    """Run one configuration in a new process, so that its peak memory is its own."""
    words = [sys.executable, __file__, "--worker", label, "--data", options.data]
    words += ["--out", str(options.out), "--n-jobs", str(options.n_jobs)]
    if subprocess.run(words, check=False).returncode:
        print(f"FAILED: {label}", file=sys.stderr, flush=True)
        return False
    _report(next(each for each in read(options.out) if key(each) == label))
    return True


def _report(record: dict[str, Any]) -> None:
    metrics = record["metrics"]
    shown = [f"{n} {v:.4f}" for n, v in metrics.items() if isinstance(v, float)]
    print("  " + ", ".join(shown))
    if "reproduced" in record:
        gap = record["largest_gap"]
        verdict = "reproduced" if record["reproduced"] else "NOT REPRODUCED"
        print(f"  {verdict}: largest gap {gap['gap']:.4f} ({gap['score']})", flush=True)


# Summary ------------------------------------------------------------------------------

SCORES = {
    "macro-F1": "macro_f1",
    "AUROC": "auroc",
    "AP": "average_precision",
    "best F1": "best_macro_f1",
}
SYNTHETIC_COLUMNS = {
    **SCORES,
    "TVD 1": "tvd_1way",
    "1 max": "tvd_1way_max",
    "TVD 2": "tvd_2way",
    "TVD 3": "tvd_3way",
    "tau RMSE": "kendall_rmse",
    "tau MAE": "kendall_mae",
}
REAL_COLUMNS = {
    **SCORES,
    "floor 1": "floor_1way",
    "floor 2": "floor_2way",
    "floor 3": "floor_3way",
    "indep. 2": "independence_2way",
    "indep. 3": "independence_3way",
}
COSTS = {
    "fit s": "fit_seconds",
    "sample s": "sample_seconds",
    "peak MiB": "peak_rss_mib",
}


def summarise(records: list[dict[str, Any]]) -> str:
    """Return markdown tables: real rows, then mean and range over seeds."""
    real = [record for record in records if record["mode"] == "real"]
    fitted = [record for record in records if record["mode"] != "real"]
    text = ["# Tabular benchmark", ""]
    if real:
        text += ["Real rows, sampling floors and independent columns:", ""]
        head = ["data", *REAL_COLUMNS, "largest gap"]
        text += markdown_table(head, map(_real_row, real))
    if fitted:
        text += ["Synthetic rows: mean over seeds (lowest to highest).", ""]
        head = [
            "data",
            "model",
            "mode",
            "parameters",
            "seeds",
            *SYNTHETIC_COLUMNS,
            *COSTS,
        ]
        text += markdown_table(head, map(_synthetic_row, _by_parameters(fitted)))
        text += ["Public by assumption:", ""]
        text += [f"- {mode}: {facts}" for mode, facts in PUBLIC_BY_ASSUMPTION.items()]
        text += [""]
    text += ["Machines: " + "; ".join(sorted({each["machine"] for each in records}))]
    return "\n".join(text) + "\n"


def _real_row(record: dict[str, Any]) -> list[str]:
    scores = [f"{record['metrics'][name]:.3f}" for name in REAL_COLUMNS.values()]
    return [record["dataset"], *scores, f"{record['largest_gap']['gap']:.4f}"]


def _by_parameters(records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault(key({**record, "seed": None}), []).append(record)
    return [groups[name] for name in sorted(groups)]


def _synthetic_row(runs: list[dict[str, Any]]) -> list[str]:
    first = runs[0]
    params = ", ".join(f"{name}={value}" for name, value in first["params"].items())
    seeds = " ".join(str(run["seed"]) for run in sorted(runs, key=lambda r: r["seed"]))
    scores = [
        _mean_and_range([run["metrics"][name] for run in runs], 3)
        for name in SYNTHETIC_COLUMNS.values()
    ]
    costs = [_mean_and_range([run[name] for run in runs], 0) for name in COSTS.values()]
    model = first.get("estimator", "flow")
    return [first["dataset"], model, first["mode"], params, seeds, *scores, *costs]


def _mean_and_range(values: list[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) == 1:
        return mean
    return f"{mean} ({min(values):.{digits}f} to {max(values):.{digits}f})"


# Command line -------------------------------------------------------------------------


def setting(text: str) -> tuple[str, Any]:
    name, separator, value = text.partition("=")
    if not separator or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"expected name=value; got {text!r}")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder of the data files; nothing runs without")
    add("--datasets", nargs="+", choices=TASKS, default=list(TASKS))
    add("--modes", nargs="*", default=["private"], metavar=f"{{{','.join(MODES)}}}")
    add("--estimator", choices=ESTIMATORS, default="flow")
    add("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add("--epsilon", type=float, default=1.0)
    add("--delta", type=float, default=1e-5)
    add("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE")
    add("--out", type=Path, default=DEFAULT_OUT, help="results file (JSON lines)")
    add("--real", action="store_true", help="score the real rows first")
    add("--summary", action="store_true", help="write the results as markdown tables")
    add("--n-jobs", type=int, default=1, help="classifiers trained at the same time")
    add("--worker", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.modes) - set(MODES))
    if unknown:
        parser.error(f"--modes must be among {MODES}; got {unknown}")
    if options.data is None and not options.summary:
        parser.error("give --data DIR to run, or --summary")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run, summarise, or both; return 1 when a run failed."""
    options = parse(arguments)
    if options.worker is not None:
        work(options.worker, options)
        return 0
    failed = run_all(options) if options.data is not None else 0
    if options.summary:
        target = options.out.with_suffix(".md")
        target.write_text(summarise(read(options.out)), encoding="utf-8")
        print(f"wrote {target}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
