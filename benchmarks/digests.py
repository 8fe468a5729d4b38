"""Digests of seeded fits, to show that a change of the code changes nothing else.

    python benchmarks/digests.py --write before.json     # at the revision before
    python benchmarks/digests.py --compare before.json   # at the revision after

Twenty configurations are fitted with ``noise="reproducible"`` to small made-up tables;
of each the privacy report, a sample, and a sample after saving and loading are
digested.
Floating point differs between machines and thread counts: compare on one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import dpgenerative
from dpgenerative import (
    BatchTerm,
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    LessEqual,
    Schema,
    VAEArchitecture,
)

N_ROWS = 400
COMMON: dict[str, Any] = {
    "epsilon": 2.0, "random_state": 7, "noise": "reproducible", "n_steps": 20
}  # fmt: skip
SCHEMA = Schema(
    [
        Column("age", "integer", lower=0, upper=99),
        Column("weight", "continuous", lower=0.0, upper=200.0, nullable=False),
        Column("first", "integer", lower=0, upper=400, nullable=False),
        Column("last", "integer", lower=0, upper=400, nullable=False),
        Column("ward", "categorical", levels=["a", "b", "c"]),
        Column("ill", "categorical", levels=[0, 1], nullable=False),
    ]
)
ORDERED = Schema(SCHEMA.columns, constraints=[LessEqual("first", "last")])


def table(n: int = N_ROWS, seed: int = 0) -> pd.DataFrame:
    """Return a table of mixed types with dependence, missing values and an order."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 90, n).astype(float)
    first = rng.integers(0, 300, n)
    frame = pd.DataFrame(
        {
            "age": age,
            "weight": rng.normal(50 + age / 4, 9),
            "first": first,
            "last": first + rng.poisson(6, n),
            "ward": rng.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1]),
            "ill": (rng.random(n) < age / 120).astype(int),
        }
    )
    frame.loc[rng.random(n) < 0.05, "age"] = np.nan
    return frame


def flow(**parameters: Any) -> DPHFlowSynthesizer:
    return DPHFlowSynthesizer(**{**COMMON, "schema": SCHEMA, **parameters})


def vae(**parameters: Any) -> DPVAESynthesizer:
    return DPVAESynthesizer(**{**COMMON, "schema": SCHEMA, **parameters})


def images(**parameters: Any) -> DPArrayVAESynthesizer:
    return DPArrayVAESynthesizer(**COMMON, **parameters)


CONFIGURATIONS: dict[str, Callable[[], Any]] = {
    "flow": flow,
    "flow, per-layer": lambda: flow(clipping="per-layer"),
    "flow, per-unit": lambda: flow(clipping="per-unit"),
    "flow, sparsified": lambda: flow(clipping="sparsified"),
    "flow, discovery": lambda: flow(schema=None),
    "flow, constraints": lambda: flow(schema=ORDERED),
    "flow, norm estimated": lambda: flow(max_grad_norm="median"),
    "flow, divergence": lambda: flow(divergence="mmd", n_partitions=4),
    "flow, blocks": lambda: flow(
        architecture=FlowArchitecture(
            n_blocks=2, linear="low-rank", dequantization="variational"
        )
    ),
    "flow, paper's": lambda: flow(
        architecture=FlowArchitecture(anchored=False, n_blocks=2, linear="lu")
    ),
    "flow, several rows": lambda: flow(max_rows_per_unit=3),
    "flow, no privacy": lambda: flow(epsilon=None),
    "vae": vae,
    "vae, conditional": lambda: vae(conditional="ill"),
    "vae, sparsified": lambda: vae(clipping="sparsified"),
    "vae, divergence": lambda: vae(divergence="mmd", n_partitions=4),
    "vae, mixtures": lambda: vae(
        prior="mixture", architecture=VAEArchitecture(latent_distribution="mixture")
    ),
    "vae, micro": lambda: vae(divergence=BatchTerm("kl", aggregation="micro")),
    "vae, batch": lambda: vae(divergence=BatchTerm("kl", aggregation="batch")),
    "vae, images": images,
}


def digests(name: str) -> dict[str, str]:
    """Return the digests of one configuration: report, sample, sample after load."""
    synth = CONFIGURATIONS[name]()
    if name.endswith("images"):
        X: Any = np.random.default_rng(0).random((N_ROWS, 6, 6))
    else:
        X = table()
    extra = {"public": table(100, 1)} if name == "flow, blocks" else {}
    with tempfile.TemporaryDirectory() as folder:
        if name == "flow, sparsified":
            extra["checkpoint"] = Path(folder, "fit.checkpoint")
        synth.fit(X, **extra)
        path = Path(folder, "model.dpg")
        synth.save(path)
        loaded = dpgenerative.load(path)
    given = {} if name.endswith("images") else {"given": {"ward": "a"}}
    return {
        "report": _digest(_in_old_words(str(synth.privacy_)).encode()),
        "sample": _of(synth.sample(300, random_state=3)),
        "given": _of(synth.sample(50, random_state=3, **given)),
        "loaded": _of(loaded.sample(300, random_state=3)),
    }


def _in_old_words(report: str) -> str:
    """Return a report as it was worded when the digests were recorded."""
    for now, before in WORDS.items():
        report = report.replace(now, before)
    return report


WORDS = {
    'noise="reproducible":': "reproducible=True:",
    "Assumed public (": "Taken as public (",
    "marginals, open bounds and levels": "marginals, domains included",
    "Contingency tables measured:": "Tables counted:",
    "the accountant computed epsilon": "accounted: epsilon",
    "Without training, the": "No gradients were taken: the",
    "the whole budget goes to": "the whole budget went to",
    " were estimated privately": " were found privately",
    "that are neither stated nor estimated": "that were not found or stated as",
}
"""Words of reports, and those before them."""


def _of(rows: Any) -> str:
    if isinstance(rows, np.ndarray):
        return _digest(rows.tobytes())
    dtypes = [str(dtype) for dtype in rows.dtypes]
    values = pd.util.hash_pandas_object(rows, index=False).to_numpy()
    return _digest(json.dumps([*map(str, rows.columns), *dtypes]).encode(), values)


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--write", type=Path, help="file for the digests")
    how.add_argument("--compare", type=Path, help="file of digests to be met")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.write:
        found = {name: digests(name) for name in CONFIGURATIONS}
        arguments.write.write_text(json.dumps(found, indent=1) + "\n")
        return
    wanted = json.loads(arguments.compare.read_text())
    found = {name: digests(name) for name in wanted}
    for name, parts in wanted.items():
        wrong = [part for part in parts if found[name][part] != parts[part]]
        print(f"{name}: {'differs in ' + ', '.join(wrong) if wrong else 'equal'}")
    sys.exit(found != wanted)


if __name__ == "__main__":
    main()
