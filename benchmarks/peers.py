"""Time of a default fit of Adult against the marginal-based methods of dpmm.

dpmm pins old versions and so needs an environment of its own (Python 3.10 or 3.11),
whose interpreter is given::

    python -m venv PEER && PEER/bin/pip install dpmm
    python benchmarks/peers.py --data DIR --peer-python PEER/bin/python

One run fits `DPHFlowSynthesizer` here and dpmm's pipelines there, one after the other,
with as many threads each (``OMP_NUM_THREADS``), on the same rows with the same public
facts at the same total budget. dpmm's own share for cutting numeric columns into bins
counts towards that budget; its other settings are its defaults. As many rows as were
fitted are drawn and compared with the real ones, so that the times can be read beside
what they bought. Seconds are those of `fit` alone; only their ratios carry over to
another machine. Returns 1 where a ratio is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from loaders import fetch_adult
from sklearn.utils import Bunch
from tabular import machine, public_schema, read, utility

from dpgenerative import DPHFlowSynthesizer, Schema
from dpgenerative.metrics import marginal_distance

DEFAULT_OUT = Path(__file__).parent / "results" / "peers.jsonl"
OURS = "dpgenerative"
LIMITS = {"mst": 1 / 4, "aim": 1 / 60}  # of a peer's seconds, for a fit of ours
EPSILON, DELTA = 1.0, 1e-5
BINNING = 0.1  # share of epsilon: dpmm's default `proc_epsilon`, spent beside its own
SEED = 0
COMMAND = "python benchmarks/peers.py --data DIR --peer-python PATH --methods "

# What the other interpreter runs, in a folder with `task.json` and `train.csv`.
PEER = """
import json, time
from importlib.metadata import version
import pandas as pd
from dpmm.pipelines import AIMPipeline, MSTPipeline

task = json.load(open("task.json"))
nominal = [name for name, facts in task["domain"].items() if "categories" in facts]
train = pd.read_csv("train.csv", dtype=dict.fromkeys(nominal, str), **task["missing"])
model = {"mst": MSTPipeline, "aim": AIMPipeline}[task["method"]](**task["params"])
start = time.perf_counter()
model.fit(train, domain=task["domain"], random_state=task["seed"])
seconds = time.perf_counter() - start
for i in range(task["draws"]):
    synthetic = model.generate(n_records=len(train), random_state=task["seed"] + i)
    synthetic.to_csv(f"synthetic{i}.csv", index=False)
result = {"seconds": seconds, "version": version("dpmm")}
json.dump(result, open("result.json", "w"))
"""
MISSING = {"keep_default_na": False, "na_values": [""]}  # an empty field, nothing else


def domain(schema: Schema) -> dict[str, dict[str, Any]]:
    """State the levels and bounds of a schema as dpmm reads them."""
    return {
        str(column.name): {"lower": column.lower, "upper": column.upper}
        if column.levels is None
        else {"categories": list(column.levels)}
        for column in schema.columns
    }


def fit_ours(train: pd.DataFrame) -> tuple[float, pd.DataFrame]:
    """Fit the default synthesizer; return its seconds and as many synthetic rows."""
    model = DPHFlowSynthesizer(
        epsilon=EPSILON, delta=DELTA, schema=public_schema(train), random_state=SEED
    )
    start = time.perf_counter()
    model.fit(train)
    seconds = time.perf_counter() - start
    return seconds, model.sample(len(train), random_state=SEED)


def fit_peer(
    method: str,
    train: pd.DataFrame,
    python: str,
    *,
    schema: Schema | None = None,
    epsilon: float = EPSILON,
    seed: int = SEED,
    draws: int = 1,
    time_limit: float | None = None,
) -> tuple[float, list[pd.DataFrame], str]:
    """Do the same with a method of dpmm; return the version of dpmm as well.

    The schema is that of the rows unless it is given; `draws` tables of as many rows
    are drawn from one fit, and `subprocess.TimeoutExpired` ends it past `time_limit`.
    """
    threads = torch.get_num_threads()
    shares = {"epsilon": (1 - BINNING) * epsilon, "proc_epsilon": BINNING * epsilon}
    task = {
        "method": method,
        "params": {**shares, "delta": DELTA, "n_jobs": threads},
        "domain": domain(schema or public_schema(train)),
        "missing": MISSING,
        "seed": seed,
        "draws": draws,
    }
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, str(threads))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        train.to_csv(folder / "train.csv", index=False)
        words = [python, "-I", "-c", PEER]
        subprocess.run(
            words, cwd=folder, env=environment, check=True, timeout=time_limit
        )
        result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
        types = train.dtypes.to_dict()
        drawn = [folder / f"synthetic{i}.csv" for i in range(draws)]
        synthetic = [pd.read_csv(path, dtype=types, **MISSING) for path in drawn]
    return result["seconds"], synthetic, result["version"]


def scores(bunch: Bunch, synthetic: pd.DataFrame) -> dict[str, float]:
    """Mean 2-way distance, and mean AUROC of nine classifiers on the test rows."""
    tvd = marginal_distance(bunch.train, synthetic, 2).mean
    auroc = utility(synthetic, bunch.test, bunch.target, n_jobs=1)["auroc"]
    return {"tvd_2way": float(tvd), "auroc": float(auroc)}


def run(bunch: Bunch, methods: Sequence[str], python: str) -> dict[str, Any]:
    """Fit and score every method; return their seconds, ratios and scores."""
    seconds, synthetic = fit_ours(bunch.train)
    fits = {OURS: {"fit_seconds": seconds, **scores(bunch, synthetic)}}
    print(OURS, fits[OURS], flush=True)
    record: dict[str, Any] = {"epsilon": EPSILON, "delta": DELTA, "seed": SEED}
    for method in methods:
        taken, [synthetic], record["dpmm"] = fit_peer(method, bunch.train, python)
        fits[method] = {"fit_seconds": taken, **scores(bunch, synthetic)}
        fits[method] |= {"ratio": seconds / taken, "limit": LIMITS[method]}
        print(method, fits[method], flush=True)
    return {**record, "threads": torch.get_num_threads(), "fits": fits}


def revision() -> str:
    """Return the abbreviated commit that the scripts belong to."""
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True).stdout.strip()


def missed(record: dict[str, Any]) -> bool:
    """Tell whether a fit of ours took more than its share of a peer's time."""
    peers = [fit for fit in record["fits"].values() if "ratio" in fit]
    return any(fit["ratio"] > fit["limit"] for fit in peers)


def summarise(records: list[dict[str, Any]]) -> str:
    """Return a markdown table, one line per fit."""
    head = ["run", "method", "fit s", "ours / its", "at most", "TVD 2", "AUROC"]
    lines = [head, ["---"] * len(head)]
    for r in records:
        for method, fit in r["fits"].items():
            ratio = [f"{fit[k]:.4f}" if k in fit else "" for k in ("ratio", "limit")]
            quality = [f"{fit[k]:.3f}" for k in ("tvd_2way", "auroc")]
            lines.append(
                [r["date"][:16], method, f"{fit['fit_seconds']:.1f}", *ratio, *quality]
            )
    text = ["# Time beside dpmm's MST and AIM: Adult, epsilon 1, delta 1e-5", ""]
    text += ["| " + " | ".join(line) + " |" for line in lines] + [""]
    text += [
        f"- {r['date'][:16]}: {r['machine']}, {r['threads']} thread(s), dpmm "
        f"{r['dpmm']}, revision {r['revision']}; `{r['command']}`"
        for r in records
    ]
    return "\n".join(text) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Run once, append the record, write the table; return 1 for a missed ratio."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--data", metavar="DIR", required=True, help="folder of the data files")
    add("--peer-python", metavar="PATH", required=True, help="interpreter with dpmm")
    add("--methods", nargs="+", choices=LIMITS, default=list(LIMITS))
    add("--out", type=Path, default=DEFAULT_OUT, help="results file (JSON lines)")
    options = parser.parse_args(arguments)
    bunch = fetch_adult(data_home=options.data)
    record = {
        "revision": revision(),
        **run(bunch, options.methods, options.peer_python),
        "machine": machine(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": COMMAND + " ".join(options.methods),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")
    summary = summarise(read(options.out))
    options.out.with_suffix(".md").write_text(summary, encoding="utf-8")
    print(summarise([record]))
    return int(missed(record))


if __name__ == "__main__":
    sys.exit(main())
