"""One fit of one method, by the interpreter of an environment that has its package.

``peers.py`` runs this file in a folder with ``task.json`` and ``train.csv``; it leaves
``synthetic0.csv`` and so on, and ``result.json`` with the seconds of `fit` alone. Every
method is given the same levels and bounds and the same total budget; other settings are
its package's defaults, but where its family says otherwise.
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

SHARE = 0.1  # of epsilon, for the bins or the ranges of values: dpmm's default
EPOCHS = 20  # over which mostlyai-engine's noise makes the budget last

Draw = Callable[[int], pd.DataFrame]
Fit = Callable[[], tuple[Draw, dict[str, Any]]]


def ours(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the default synthesizer's fit; its rows and schema are pickled."""
    from dpgenerative import DPHFlowSynthesizer

    rows, schema = pd.read_pickle("train.pkl")
    budget = {name: task[name] for name in ("epsilon", "delta")}
    model = DPHFlowSynthesizer(**budget, schema=schema, random_state=task["seed"])

    def fit() -> tuple[Draw, dict[str, Any]]:
        model.fit(rows)
        return lambda seed: model.sample(len(rows), random_state=seed), {}

    return fit


def dpmm(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of a pipeline of dpmm, its bins from the same budget."""
    from dpmm import pipelines

    names = {"mst": "MSTPipeline", "aim": "AIMPipeline"}
    pipeline = getattr(pipelines, names.get(task["model"], "PrivBayesPipeline"))
    model = pipeline(
        epsilon=(1 - SHARE) * task["epsilon"],
        proc_epsilon=SHARE * task["epsilon"],
        delta=task["delta"],
        n_jobs=task["threads"],
    )

    def fit() -> tuple[Draw, dict[str, Any]]:
        model.fit(train, domain=task["domain"], random_state=task["seed"])
        return lambda seed: model.generate(len(train), random_state=seed), {}

    return fit


def smartnoise(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of a synthesizer of smartnoise-synth, with known bounds."""
    import numpy as np
    from snsynth import Synthesizer
    from snsynth.transform import (
        BinTransformer,
        ChainTransformer,
        LabelTransformer,
        MinMaxTransformer,
        OneHotEncoder,
        TableTransformer,
    )

    counted = task["model"] in ("mst", "aim")
    columns = []
    for name, facts in task["domain"].items():
        nullable = bool(train[name].isna().any())
        if "categories" not in facts:
            kind = BinTransformer if counted else MinMaxTransformer
            columns.append(kind(**facts, nullable=nullable))
        elif counted:
            columns.append(LabelTransformer(nullable=nullable))
        else:
            label = LabelTransformer(nullable=nullable)
            columns.append(ChainTransformer([label, OneHotEncoder()]))
    model = Synthesizer.create(
        task["model"], epsilon=task["epsilon"], delta=task["delta"], verbose=False
    )

    def fit() -> tuple[Draw, dict[str, Any]]:
        np.random.seed(task["seed"])  # noqa: NPY002
        if not counted:
            import torch

            torch.manual_seed(task["seed"])
        model.fit(train, transformer=TableTransformer(columns))
        spent = [float(each) for each in getattr(model, "epsilon_list", [])]
        return lambda seed: model.sample(len(train)), {"epsilons": spent[-2:]}

    return fit


def mostlyai(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of mostlyai-engine's network, its ranges from the same budget."""
    from mostlyai.engine import TabularARGN
    from mostlyai.engine.domain import DifferentialPrivacyConfig
    from opacus.accountants.utils import get_noise_multiplier

    batch = 512
    noise = get_noise_multiplier(
        target_epsilon=(1 - SHARE) * task["epsilon"],
        target_delta=task["delta"],
        sample_rate=1 / max(1, int(0.9 * len(train)) // batch),
        epochs=EPOCHS,
        accountant="rdp",
    )
    kinds = {True: "TABULAR_CATEGORICAL", False: "TABULAR_NUMERIC_AUTO"}
    model = TabularARGN(
        tgt_encoding_types={
            name: kinds["categories" in facts] for name, facts in task["domain"].items()
        },
        differential_privacy=DifferentialPrivacyConfig(
            max_epsilon=task["epsilon"],
            delta=task["delta"],
            noise_multiplier=noise,
            value_protection_epsilon=SHARE * task["epsilon"],
        ),
        batch_size=batch,
        random_state=task["seed"],
        device="cpu",
    )

    def fit() -> tuple[Draw, dict[str, Any]]:
        model.fit(train)
        return lambda seed: model.sample(len(train)), {"noise_multiplier": noise}

    return fit


def dp_merf(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of DP-MERF, which is written here."""
    from merf import MERF

    model = MERF(task["domain"], seed=task["seed"])

    def fit() -> tuple[Draw, dict[str, Any]]:
        model.fit(train, task["epsilon"], task["delta"])
        return lambda seed: model.sample(len(train), seed), {}

    return fit


PACKAGES = {
    "dpmm": (dpmm, "dpmm"),
    "smartnoise": (smartnoise, "smartnoise-synth"),
    "mostlyai": (mostlyai, "mostlyai-engine"),
    "dp-merf": (dp_merf, "torch"),
    "ours": (ours, "dpgenerative"),
}


def main() -> None:
    """Fit and draw what the task says."""
    task = json.loads(Path("task.json").read_text(encoding="utf-8"))
    resource.setrlimit(resource.RLIMIT_DATA, (task["memory"], task["memory"]))
    nominal = [name for name, facts in task["domain"].items() if "categories" in facts]
    types = dict.fromkeys(nominal, str)
    train = pd.read_csv("train.csv", dtype=types, **task["missing"])
    prepare, package = PACKAGES[task["package"]]
    fit = prepare(task, train)
    start, began = time.perf_counter(), time.process_time()
    draw, facts = fit()
    facts["fit_seconds"] = time.perf_counter() - start
    facts["fit_cpu_seconds"] = time.process_time() - began
    for i in range(task["draws"]):
        draw(task["seed"] + i).to_csv(f"synthetic{i}.csv", index=False)
    facts["version"] = f"{package} {version(package)}"
    Path("result.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
