"""One fit of one method, by the interpreter of an environment that has its package.

``peers.py`` runs this file in a folder with ``task.json`` and ``train.csv``; it leaves
``synthetic0.csv`` and so on, and ``result.json`` with the seconds of `fit` alone. Every
method is given the same levels and bounds and the same total budget; other settings are
its package's defaults, but where its family says otherwise.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
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


def margnet(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of MargNet, or of PrivSyn or GEM as its authors ran them.

    Their settings for Adult and their bins of numbers, which take a tenth of the budget
    and, where a number has fewer than 100 values, these from the rows.
    """
    from unittest.mock import Mock

    import numpy as np
    import torch

    sys.path.insert(0, task["checkout"])
    os.symlink(f"{task['checkout']}/method", "method")  # where it reads its settings
    sys.modules["evaluator.eval_seeds"] = Mock()  # judges, with packages of their own
    torch.cuda.reset_peak_memory_stats = torch.cuda.max_memory_allocated = Mock()
    torch.cuda.max_memory_allocated.return_value = 0
    from preprocess_common.preprocess import discretizer
    from util.rho_cdp import cdp_rho
    from util.util import algo_method

    if task["model"] == "privsyn":
        share_records()
    rho = cdp_rho(task["epsilon"], task["delta"])
    levels, numbers = columns_of(task, train)
    options = margnet_options(task)
    Path(f"exp/adult/{options.method}/{options.epsilon}__").mkdir(parents=True)

    def fit() -> tuple[Draw, dict[str, Any]]:
        np.random.seed(task["seed"])  # noqa: NPY002
        torch.manual_seed(task["seed"])
        bins = discretizer("privtree", SHARE * rho)
        codes = [codes_of(train[name], known) for name, known in levels.items()]
        sizes = [*map(len, levels.values())]
        left = rho
        if numbers:
            counts = bins.fit_transform(train[numbers].to_numpy(float))
            codes, left = [*counts.T, *codes], (1 - SHARE) * rho
            sizes = [*map(len, bins.ord_encoder.categories_), *sizes]
        names = [*numbers, *list(levels)[:-1], "y_attr"]
        rows = pd.DataFrame(dict(zip(names, codes, strict=True))).astype(int)
        domain = dict(zip(names, sizes, strict=True))
        coder = Coder()
        [model] = algo_method(options)(
            options, rows, domain, left, parent_dir=".", preprocesser=coder
        ).values()

        def draw(seed: int) -> pd.DataFrame:
            if hasattr(model, "syn"):
                model.syn(len(train), coder, ".")
            else:
                model.sample(len(train), coder, ".")
            return values_of(np.asarray(coder.rows), levels, numbers, bins)

        return draw, {}

    return fit


def margnet_options(task: dict[str, Any]) -> SimpleNamespace:
    """Return what its command line would, for Adult on a CPU."""
    return SimpleNamespace(
        method=task["model"] or "marggan",
        dataset="adult",
        device="cpu",
        epsilon=10.0 if task["epsilon"] >= 10 else 1.0,  # of the settings alone
        num_preprocess="",
        rare_threshold="",
        **dict.fromkeys(("resample", "graph_sample", "test", "lr", "iter", "batch")),
    )


def values_of(
    drawn: Any, levels: dict[str, list[str | None]], numbers: list[str], bins: Any
) -> pd.DataFrame:
    """Turn rows of codes, numbers first, into values."""
    n = len(numbers)
    frame = pd.DataFrame(drawn[:, n:], columns=list(levels))
    for name, known in levels.items():
        frame[name] = levels_of(frame[name], known)
    if numbers:
        frame[numbers] = bins.inverse_transform(drawn[:, :n].astype(float))
    return frame


def share_records() -> None:
    """Let PrivSyn's updates reach the rows that it returns; in pandas 2 they do not."""
    from method.privsyn.lib_synthesize.records_update import RecordUpdate

    initialize = RecordUpdate.initialize_records

    def initialize_records(self: Any, *given: Any, **named: Any) -> None:
        initialize(self, *given, **named)
        self.records = self.df.to_numpy()
        self.df = pd.DataFrame(self.records, columns=self.df.columns, copy=False)

    RecordUpdate.initialize_records = initialize_records


class Coder:
    """Keeps the rows that a model would turn back into values."""

    def reverse_data(self, rows: Any, path: str) -> None:
        """Keep rows of codes."""
        self.rows = rows


def columns_of(
    task: dict[str, Any], train: pd.DataFrame
) -> tuple[dict[str, list[str | None]], list[str]]:
    """Return levels, of the label last, None where some are missing; and numbers."""
    levels = {
        name: [*facts["categories"], *([None] if train[name].isna().any() else [])]
        for name, facts in task["domain"].items()
        if "categories" in facts
    }
    return levels, [name for name in task["domain"] if name not in levels]


def codes_of(column: pd.Series, levels: list[str | None]) -> Any:
    """Number the levels; a missing value is the last."""
    known = [level for level in levels if level is not None]
    return pd.Categorical(column, categories=known).codes.astype(int) % len(levels)


def levels_of(codes: pd.Series, levels: list[str | None]) -> Any:
    """Turn numbers back into levels."""
    return pd.Series(levels, dtype=object).iloc[codes.astype(int)].to_numpy()


def private_pgm(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of a mechanism in private-pgm's repository, on dpmm's bins.

    JAM's noise is that of replacing a row. As this moves counts twice as far in square
    as adding one, it gets twice the rho. Its public rows are uniform: there are none.
    """
    import numpy as np
    from dpmm.processing.table_binner import TableBinner

    folders = ("src", "mechanisms", "")
    sys.path[:0] = [f"{task['checkout']}/{folder}" for folder in folders]
    from mbi import Dataset, Domain

    mechanism = pgm_mechanism(task, len(train))

    def fit() -> tuple[Draw, dict[str, Any]]:
        np.random.seed(task["seed"])  # noqa: NPY002
        binner = TableBinner(
            binner_settings={"n_bins": "auto", "epsilon": SHARE * task["epsilon"]},
            domain=task["domain"],
            random_state=np.random.RandomState(task["seed"]),
        )
        rows, sizes = binner.fit_transform(train), binner.bin_domain
        drawn = mechanism(Dataset(rows, Domain(list(sizes), list(sizes.values())))).df
        drawn = drawn.sample(len(train), replace=True)
        return lambda seed: binner.inverse_transform(drawn.reset_index(drop=True)), {}

    return fit


def pgm_mechanism(task: dict[str, Any], n_rows: int) -> Callable[[Any], Any]:
    """Return a mechanism from data to synthetic data."""
    from itertools import combinations

    import numpy as np
    from mbi import Dataset

    budget = (1 - SHARE) * task["epsilon"], task["delta"]

    def jam(data: Any) -> Any:
        from jam import JAM, all_k_way

        mechanism = JAM(*budget, prng=np.random)
        mechanism.rho *= 2
        public = Dataset.synthetic(data.domain, n_rows)
        workload = all_k_way(data.domain.attrs, mechanism.degree)
        return mechanism.run(data, public, workload)[1]

    def aim(data: Any) -> Any:
        from aim import AIM, default_params

        most, domain = default_params()["max_cells"], data.domain
        pairs = [p for p in combinations(domain.attrs, 2) if domain.size(p) <= most]
        workload = [(pair, 1.0) for pair in pairs]
        return AIM(*budget, prng=np.random).run(data, workload, n_rows)[1]

    def adagrid(data: Any) -> Any:
        from adaptive_grid import adagrid, default_params

        known = default_params()
        names = ("warm_start", "metric", "threshold", "split_strategy")
        given = {name: known[name] for name in names}
        return adagrid(data, *budget, iters=known["pgm_iters"], **given)

    return {"aim": aim, "jam": jam}.get(task["model"], adagrid)


def tab_pe(task: dict[str, Any], train: pd.DataFrame) -> Fit:
    """Return the fit of Tab-PE; its model "1000x30" is rows and iterations.

    Its rows are drawn with replacement. It takes the shares of the label, the last
    column of levels, from the private rows.
    """
    from itertools import product
    from unittest.mock import Mock

    import numpy as np

    sys.path.insert(0, task["checkout"])
    for part in product(("api", "data", "embedding"), ("image", "text")):
        sys.modules[".".join(("pe", *part))] = Mock()  # needs packages of its own
    pd.options.mode.copy_on_write = True
    from pe.data import Data, TabularColumnType

    levels, numbers = columns_of(task, train)
    label, known = levels.popitem()
    kinds = {name: pd.api.types.is_integer_dtype(train[name]) for name in numbers}
    nominal = TabularColumnType("cat")
    info: dict[str, Any] = {
        name: {"categories": list(range(len(each))), "type": nominal}
        for name, each in levels.items()
    }
    for name in numbers:
        facts = task["domain"][name]
        kind = TabularColumnType("int" if kinds[name] else "float")
        info[name] = {"min": facts["lower"], "max": facts["upper"], "type": kind}
    metadata: dict[str, list[Any]] = {
        "label_columns": [label],
        "label_info": [{"name": each} for each in known],
        "cat_columns": list(levels),
        "int_columns": [name for name in numbers if kinds[name]],
        "float_columns": [name for name in numbers if not kinds[name]],
    }
    features = [*levels, *metadata["int_columns"], *metadata["float_columns"]]
    metadata["feature_columns"] = features

    def fit() -> tuple[Draw, dict[str, Any]]:
        np.random.seed(task["seed"])  # noqa: NPY002
        codes = {name: codes_of(train[name], each) for name, each in levels.items()}
        rows = train[features].assign(**codes).to_numpy(object).tolist()
        private = Data(
            pd.DataFrame({
                "PE.TABULAR": rows,
                "PE.LABEL_ID": codes_of(train[label], known),
            }),
            metadata,
        )  # fmt: skip
        made = evolve(task, private, info)
        made = made[made["PE.VARIATION_API_FOLD_ID"] == -1]
        drawn = made.sample(len(train), replace=True, random_state=task["seed"])
        frame = pd.DataFrame(drawn["PE.TABULAR"].tolist(), columns=features)
        for name, each in levels.items():
            frame[name] = levels_of(frame[name], each)
        frame[label] = levels_of(drawn["PE.LABEL_ID"], known)
        return lambda seed: frame, {}

    return fit


def evolve(task: dict[str, Any], private: Any, info: dict[str, Any]) -> pd.DataFrame:
    """Return the last rows of Tab-PE as its examples call it."""
    from pe.api import TabularAPI
    from pe.embedding import TabularEmbedding
    from pe.histogram import NearestNeighbors
    from pe.population import CompositePopulation, PEPopulation
    from pe.runner import PE

    n_rows, n_steps = (int(x) for x in (task["model"] or "1000x30").split("x"))
    api = TabularAPI(info=info, num_iterations=n_steps)
    first = PEPopulation(api=api, histogram_threshold=0)
    fold = {"initial_variation_api_fold": 3, "next_variation_api_fold": 3}
    then = PEPopulation(api=api, keep_selected=True, selection_mode="rank", **fold)
    runner = PE(
        priv_data=private,
        population=CompositePopulation([first] * 5 + [then] * (n_steps - 5)),
        histogram=NearestNeighbors(TabularEmbedding(info), "L2", 0, backend="torch"),
    )
    budget = {name: task[name] for name in ("epsilon", "delta")}
    made = runner.run([n_rows] * n_steps, save_checkpoint=False, **budget)
    return made.data_frame


PACKAGES = {
    "dpmm": (dpmm, "dpmm"),
    "smartnoise": (smartnoise, "smartnoise-synth"),
    "mostlyai": (mostlyai, "mostlyai-engine"),
    "dp-merf": (dp_merf, "torch"),
    "margnet": (margnet, ""),
    "private-pgm": (private_pgm, ""),
    "adaptive-grid": (private_pgm, ""),
    "tab-pe": (tab_pe, ""),
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
    if package:
        facts["version"] = f"{package} {version(package)}"
    else:
        git = ["git", "-C", task["checkout"], "rev-parse", "--short", "HEAD"]
        said = subprocess.run(git, check=True, capture_output=True, text=True).stdout
        facts["version"] = f"{task['package']} {said.strip()}"
    Path("result.json").write_text(json.dumps(facts), encoding="utf-8")


if __name__ == "__main__":
    main()
