"""Every table and figure of the three papers that the package follows, beside ours.

    python benchmarks/reproduce.py --list
    python benchmarks/reproduce.py --paper hflow --table 1 --data DIR
    python benchmarks/reproduce.py --paper privae --figure 2 --data DIR [--full]
    python benchmarks/reproduce.py --summary

``hflow`` is Lee, Kim, Jeong and Ro (AAAI 2022), ``privae`` Takahashi, Takagi, Ono and
Komatsu (arXiv:2006.11204), ``mia`` Bernau, Robl and Kerschbaum (arXiv:2204.07877). A
table or figure is made by the other scripts of this folder, whose records it reads;
they do not repeat what is recorded (but for toy densities, marginals and pinwheel,
which take minutes). The settings are reduced, to less than half an hour on two cores
(Tables 1 to 3 of ``hflow``: some three hours); ``--full`` has more seeds, tables and
steps. Verdicts are computed from the records.
``--summary`` writes ``results/reproduce.md``, and the same as one
file of CSV per paper, which the documentation includes.

Every row is a figure or a claim of a paper, and its verdict says that the records
reproduce it, contradict it, or that it is untested, and why.
"""

from __future__ import annotations

import argparse
import csv
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import membership
import numpy as np
import pandas as pd
import torch
from bernau import (
    classifier_lines,
    confusion_lines,
    epsilon_lines,
    framework_lines,
    image_lines,
    phi_lines,
    series_lines,
)
from loaders import fetch_adult, make_pinwheel
from papers import (
    ABLATION,
    OWN,
    RESULTS,
    SCORES,
    Line,
    beyond,
    clipping_lines,
    dequantization_lines,
    gradient_lines,
    kendall_lines,
    marginal_lines,
    nothing,
    setup_lines,
    tables_of,
    toy_lines,
)
from privae import noise_lines, pinwheel_lines, sparsity_lines
from published import MIA_CENTRAL
from records import append, markdown_table, origin, revision
from sklearn.base import clone
from sklearn.metrics import recall_score
from sklearn.model_selection import train_test_split
from tabular import public_schema

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.metrics import marginal_distance, sampling_floor
from dpgenerative.metrics.plots import plot_marginals
from dpgenerative.privacy.gradients import layer_gradients, record

HERE = Path(__file__).parent
COMMANDS = {
    "toys": "python benchmarks/reproduce.py --paper own --figure toys",
    "gradients": "python benchmarks/reproduce.py --paper hflow --figure 2 --data DIR",
    "marginals": "python benchmarks/reproduce.py --paper hflow --figure 3 --data DIR",
    "confusion": "python benchmarks/reproduce.py --paper mia --figure 7 --data DIR",
}
PAPERS = {
    "hflow": "DP-HFlow (Lee et al. 2022)",
    "privae": "PriVAE (Takahashi et al. 2020)",
    "mia": "Membership inference (Bernau et al. 2022)",
}


@dataclass(frozen=True)
class Item:
    """A table or figure: what makes it, and how its lines follow from records."""

    paper: str
    name: str
    title: str
    lines: Callable[[], Iterable[Line]]
    reduced: tuple[str | Callable[[argparse.Namespace], None], ...] = ()
    full: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """Return the command that makes it."""
        kind, number = self.name.split()[:2]
        return f"--paper {self.paper} --{kind.lower().rstrip('s,')} {number}"


# Own runs -----------------------------------------------------------------------------


def keep(part: str, **found: Any) -> None:
    """Append a record of a part of this script."""
    append(OWN, {"part": part, **found, **origin(), "command": COMMANDS[part]})


def flows(**parameters: Any) -> dict[str, DPHFlowSynthesizer]:
    """Return the default flow and the published setup."""
    return {
        "default": DPHFlowSynthesizer(1.0, random_state=0, **parameters),
        "published setup": DPHFlowSynthesizer.published(
            epsilon=1.0, random_state=0, **parameters
        ),
        "published setup, no privacy": DPHFlowSynthesizer.published(
            epsilon=None, random_state=0, **parameters
        ),
    }


def densities(n: int, seed: int) -> dict[str, np.ndarray]:
    """Draw points of three densities of the plane."""
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, 4, n)
    row = 2 * rng.integers(0, 2, n) + cell % 2
    board = np.column_stack([cell, row]) + rng.random((n, 2)) - 2
    angle = 3 * np.pi * np.sqrt(rng.random(n))
    side = rng.choice([-1, 1], n)[:, None]
    spirals = side * np.column_stack([np.cos(angle), np.sin(angle)])
    spirals = spirals * angle[:, None] / 4 + 0.08 * rng.standard_normal((n, 2))
    wheel = make_pinwheel(n, random_state=seed)[0]
    return {"checkerboard": board, "two spirals": spirals, "pinwheel": wheel}


def toys(options: argparse.Namespace) -> None:
    """Fit the toy densities, record distances and draw them."""
    n = options.rows or 10_000
    schema = Schema([Column(x, "continuous", -3.0, 3.0, nullable=False) for x in "xy"])
    points = {
        k: pd.DataFrame(v, columns=list("xy")) for k, v in densities(n, 0).items()
    }
    figure_, axes = plt.subplots(3, 4, figsize=(10, 7.6), layout="constrained")
    for line, (name, real) in zip(axes, points.items(), strict=True):
        drawn = {"rows": real}
        for model, flow in flows(schema=schema).items():
            flow.set_params(n_steps=options.steps or "auto").fit(real)
            drawn[model] = flow.sample(n, random_state=0)
            keep(
                "toys", density=name, model=model, rows=n, steps=flow.n_steps_,
                tvd=marginal_distance(real, drawn[model], 2).mean,
                floor=sampling_floor(real, 2).mean,
            )  # fmt: skip
        for axis, (title, table) in zip(line, drawn.items(), strict=True):
            axis.hist2d(table["x"], table["y"], 90, range=[(-3, 3)] * 2, cmap="magma")
            axis.set(
                xticks=[], yticks=[], title=title if name == "checkerboard" else ""
            )
    figure_.savefig(RESULTS / "reproduce_toys.png", dpi=90)
    plt.close(figure_)


def gradients(options: argparse.Namespace) -> None:
    """Record the norms of per-example gradients of the published setup, by layer."""
    bunch = fetch_adult(data_home=options.data)
    train = bunch.train.sample(options.rows or 6_000, random_state=0)
    flow = flows(schema=public_schema(bunch.train))["published setup"]
    flow.set_params(n_steps=options.steps or 20).fit(train)
    model, transformer = flow._model, flow._transformer
    networks = {
        name: getattr(model, name) for name in ("dequantizer", "splines", "linears")
    }
    for network in networks.values():
        network.requires_grad_(True)
    rows, generator = train.iloc[:256], torch.Generator().manual_seed(0)
    codes = torch.from_numpy(transformer.encode(rows).astype(np.int64))
    inside = transformer.positions(rows, np.random.default_rng(0))
    draws = torch.rand(codes.shape, generator=generator)
    with record(model) as calls:
        loss = -model(codes, torch.from_numpy(inside), draws)[0].sum()
    layers = layer_gradients(model, calls, loss, len(rows))
    for found in layers:
        name, layer = next(
            (name, path)
            for name, network in networks.items()
            for path, module in network.named_modules()
            if module is found.module
        )
        norms = found.squared_norms()[0].sqrt()
        keep(
            "gradients", network=name, layer=layer, median=float(norms.median()),
            rows=len(train), steps=flow.n_steps_,
        )  # fmt: skip


def confusion(options: argparse.Namespace) -> None:
    """Record what a classifier of private rows recognises of MotionSense."""
    part = membership.motion(options.data)
    epsilon, names = MIA_CENTRAL["MotionSense"][1][-1], np.unique(part.y)
    for seed in range(3):
        cut = {"random_state": seed, "test_size": part.options["test_size"]}
        X, X_test, y, y_test = train_test_split(part.X, part.y, stratify=part.y, **cut)
        drawn = []
        for name in names:
            model = clone(part.estimator).set_params(epsilon=epsilon, random_state=seed)
            drawn.append(model.fit(X[y == name]).sample(100, random_state=seed))
        network = clone(part.classifier).set_params(random_state=seed)
        network.fit(np.concatenate(drawn), names.repeat(100))
        recalls = recall_score(y_test, network.predict(X_test), average=None)
        keep(
            "confusion", seed=seed, epsilon=epsilon, rows=len(X),
            recalls=dict(zip(map(str, names), recalls.tolist(), strict=True)),
        )  # fmt: skip


def marginals(options: argparse.Namespace) -> None:
    """Draw marginals of Adult side by side, of the default and the published setup."""
    bunch = fetch_adult(data_home=options.data)
    train = bunch.train.sample(options.rows or 6_000, random_state=0)
    columns = ["age", "education", "hours_per_week", "capital_gain", "income"]
    for model, flow in list(flows(schema=public_schema(bunch.train)).items())[:2]:
        flow.set_params(n_steps=options.steps or "auto").fit(train)
        drawn = flow.sample(len(train), random_state=0)
        keep(
            "marginals", model=model, rows=len(train), steps=flow.n_steps_,
            tvd=marginal_distance(train, drawn, 1).mean,
            floor=sampling_floor(train, 1).mean,
        )  # fmt: skip
        name = f"reproduce_marginals_{model.split()[0]}.png"
        plot_marginals(train, drawn, columns).savefig(RESULTS / name, dpi=90)


# All of them --------------------------------------------------------------------------

FITS = "tabular.py --data DIR --out OWN --seeds "
PUBLISHED_FITS = (
    (
        "tabular.py --data DIR --seeds 0",
        FITS + "0 --estimator published --datasets adult covertype",
        FITS + "0 --estimator published --datasets census --set n_steps=200",
        FITS + "0 --estimator published --datasets intrusion --set n_steps=200",
        FITS + "0 --estimator published --modes nonprivate",
    ),
    ("tabular.py --data DIR", FITS + "0 1 2 --estimator published"),
)
ABLATE = "ablation.py --data DIR --out ABLATION --only "
CLIPS = tuple(
    FITS + f"0 --datasets adult --set clipping={name}"
    for name in ("per-layer", "per-unit", "sparsified")
)
STUDY = ("membership.py --data DIR --jobs 2",)
ITEMS = [
    Item("hflow", "Figure 1", "what the model is made of", setup_lines),
    Item("hflow", "Table 1", "Kendall's tau", kendall_lines, *PUBLISHED_FITS),
    Item(
        "hflow", "Table 2", "classifiers trained on synthetic rows",
        tables_of({"macro_f1": SCORES["macro_f1"]}), *PUBLISHED_FITS,
    ),
    Item(
        "hflow", "Table 3", "classifiers trained on synthetic rows",
        tables_of({k: v for k, v in SCORES.items() if k != "macro_f1"}),
        *PUBLISHED_FITS,
    ),
    Item("hflow", "Figure 2", "sizes of gradients", gradient_lines, (gradients,)),
    Item("hflow", "Figure 3", "marginals", marginal_lines, (marginals,)),
    Item(
        "hflow", "Figure 4", "clipping strategies", clipping_lines,
        (ABLATE + "default clipping --tables numeric adult", *CLIPS),
        (ABLATE + "default clipping", *CLIPS),
    ),
    Item(
        "hflow", "Figure 5", "dequantization over epsilon", dequantization_lines,
        (ABLATE + "dequantization --tables numeric adult",),
        (ABLATE + "dequantization",),
    ),
    Item("privae", "Table 1", "noise of the aggregations", noise_lines),
    Item(
        "privae", "Figure 1", "sparse latents (section 5.1)", sparsity_lines,
        ("sparsity.py --data DIR",), ("sparsity.py --data DIR --full",),
    ),
    Item(
        "privae", "Figure 2", "clusters (section 5.2)", pinwheel_lines,
        ("pinwheel.py",),
    ),
    Item("mia", "Figure 1", "the framework", framework_lines, STUDY),
    Item(
        "mia", "Figure 2", "architectures",
        nothing(
            "diagrams of a convolutional network and of an LSTM", "smaller networks",
            "untested: the study's are one hidden layer and an LSTM of 32 units",
        ),
    ),
    Item("mia", "Figure 3", "accuracy and attack, images", image_lines, STUDY),
    Item("mia", "Figure 4", "accuracy and attack, series", series_lines, STUDY),
    Item("mia", "Figure 5", "phi", phi_lines, STUDY),
    Item(
        "mia", "Figure 6", "pictures",
        nothing(
            "VAE-LDP leaves faces and greys the background", "no pictures",
            "untested: records have scores, not pictures",
        ),
    ),
    Item("mia", "Figure 7", "confusion, series", confusion_lines, (confusion,)),
    Item("mia", "Table 1", "the target classifier", classifier_lines, STUDY),
    Item("mia", "Table 2", "epsilons and gaps", epsilon_lines),
    Item("own", "Figure toys", "toy densities", toy_lines, (toys,)),
]  # fmt: skip


def make(item: Item, options: argparse.Namespace) -> int:
    """Run what makes an item; return how many scripts failed."""
    names = {"DIR": str(options.data), "OWN": str(OWN), "ABLATION": str(ABLATION)}
    failed = 0
    for step in item.full if options.full and item.full else item.reduced:
        if callable(step):
            step(options)
            continue
        script, *words = [names.get(word, word) for word in shlex.split(step)]
        print("running:", step, flush=True)
        failed += subprocess.run(
            [sys.executable, str(HERE / script), *words], check=False
        ).returncode != 0  # fmt: skip
    return failed


HEAD = ["table or figure", "published", "ours", "verdict", "command"]
OTHER = ["benchmark", "asked", *HEAD[2:]]


def rows(items: Iterable[Item]) -> list[list[str]]:
    """Return a row per line of the items; title and command stand in the first."""
    found = []
    for item in items:
        lines = list(item.lines()) or [("", "", "not run", "untested: not run")]
        for k, (what, *cells) in enumerate(lines):
            name = f"{item.name}, {item.title}" if k == 0 else ""
            what = ": ".join(filter(None, [name, what]))
            found.append([what, *cells, "" if k else f"``{item.command}``"])
    return found


def write(results: Path) -> None:
    """Write a table per paper: one page of markdown, and a file of CSV for each."""
    text = ["# Tables and figures of the papers", ""]
    text += [
        f"Written {datetime.now(UTC).date()} at revision {revision()} by "
        "`python benchmarks/reproduce.py --summary` from the records of this folder. "
        "A row is made by `python benchmarks/reproduce.py --data DIR` and its command.",
        "",
    ]
    tables = {k: rows(i for i in ITEMS if i.paper == k) for k in PAPERS}
    tables["beyond"] = list(map(list, beyond()))
    for paper, found in tables.items():
        title = PAPERS.get(paper, "Beyond the papers")
        head = HEAD if paper in PAPERS else OTHER
        text += [f"## {title}", "", *markdown_table(head, found)]
        path = results / f"reproduce_{paper}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([head, *found])
    (results / "reproduce.md").write_text("\n".join(text), encoding="utf-8")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--paper", choices=[*PAPERS, "own"])
    add("--table", metavar="N")
    add("--figure", metavar="N", help="a number, or `toys`")
    add("--data", metavar="DIR", help="folder of the data files")
    add("--full", action="store_true", help="more seeds, tables and steps")
    add("--rows", type=int, help="rows of Figures 2, 3 and toys")
    add("--steps", type=int, help="steps of Figures 2, 3 and toys")
    add("--list", action="store_true", help="list tables and figures")
    add("--summary", action="store_true", help="write the page's table")
    options = parser.parse_args(arguments)
    asked = [options.paper, options.table or options.figure]
    if not (options.list or options.summary or all(asked)):
        parser.error("give --paper with --table N or --figure N, --list, or --summary")
    return options


def chosen(options: argparse.Namespace) -> list[Item]:
    """Return the items that the command line names."""
    kind, number = (
        ("Table", options.table) if options.table else ("Figure", options.figure)
    )
    return [
        item
        for item in ITEMS
        if item.paper == options.paper
        and item.name.startswith(kind)
        and number in item.name.split()
    ]


def main(arguments: list[str] | None = None) -> int:
    """Make what is asked for, and print or write what came of it."""
    options = parse(arguments)
    if options.list:
        for item in ITEMS:
            print(f"{item.command:45} {item.title}")
        return 0
    if options.summary:
        write(RESULTS)
        return 0
    items = chosen(options)
    if not items:
        print("There is no such table or figure; see --list.", file=sys.stderr)
        return 2
    if options.data is None and any("DIR" in str(item.reduced) for item in items):
        print("Give --data DIR, the folder of the data files.", file=sys.stderr)
        return 2
    failed = sum(make(item, options) for item in items)
    print("\n".join(markdown_table(HEAD, rows(items))))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
