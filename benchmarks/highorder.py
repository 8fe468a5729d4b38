"""Dependence of high order: parities of many numbers, and smooth classes of many.

    python benchmarks/highorder.py [--only parity structural]

Fits of the flow at epsilon 1, delta 1e-5, by the defaults, with bounds stated and the
class given as y.

- *parity*: uniform numbers and a class: whether an even number of the first 3 to 6 are
  above a quantile of theirs, with 0, 4 or 12 more numbers that mean nothing. The share
  of as many sampled rows in which the class is right.
- *structural*: 35,000 rows of 8 numbers, each a smooth random function of those before
  it and of noise, and a class that depends on all, in one of four draws of functions.
  F1 of gradient boosting on other real rows, trained on 5,000 sampled or real rows.
- *characters*: the same of 10,000 rows of 7 numbers, and of ten classes: the one whose
  smooth random score is the highest.

With ``--peer "tab-pe 1000x15" --python tab-pe=PATH --checkout tab-pe=DIR`` another
method's fits (``peers.py``), of tables of 10,000 rows and more without further numbers.

Adds records to ``results/highorder.jsonl`` and tabulates all of them in
``results/highorder.md``; those that are there are not made again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import peers
import records
from peer_tables import OURS, list_row
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import f1_score

from dpgenerative import Column, DPHFlowSynthesizer, Schema
from dpgenerative.metrics import marginal_distance

RECORDS = Path(__file__).parent / "results" / "highorder.jsonl"
CLASSES = ["even", "odd"]
N_ROWS, N_FEW, N_TRAINED = 35_000, 3_500, 5_000
N_NUMBERS, N_WAVES, BOUND = 8, 16, 5.0
PARITIES: list[dict[str, Any]] = [
    *({"order": k, "quantile": 0.5, "others": 0, "rows": N_ROWS} for k in (3, 4, 5, 6)),
    *({"order": k, "quantile": 0.3, "others": 0, "rows": N_ROWS} for k in (3, 4, 5, 6)),
    *({"order": k, "quantile": 0.5, "others": 4, "rows": N_ROWS} for k in (3, 4, 5, 6)),
    {"order": 3, "quantile": 0.5, "others": 12, "rows": N_ROWS},
    {"order": 4, "quantile": 0.5, "others": 12, "rows": N_ROWS},
    {"order": 3, "quantile": 0.5, "others": 0, "rows": N_FEW},
]
STRUCTURES: list[dict[str, Any]] = [{"draw": draw, "rows": N_ROWS} for draw in range(4)]
CHARACTERS: list[dict[str, Any]] = [
    {"draw": draw, "rows": 10_000, "numbers": 7, "classes": 10} for draw in range(2)
]
CONFIGURATIONS = {
    "parity": PARITIES,
    "structural": STRUCTURES,
    "characters": CHARACTERS,
}


Rows = tuple[pd.DataFrame, float]
FitRows = Callable[[pd.DataFrame, float, int], Rows]


def columns_of(frame: pd.DataFrame, bound: float) -> list[Column]:
    """Return public bounds, then levels."""
    numbers = [
        Column(name, "continuous", lower=-bound, upper=bound)
        for name in frame.columns[1:]
    ]
    levels = sorted(frame["class"].unique())
    return [*numbers, Column("class", "categorical", levels=levels)]


def peer_rows(
    options: argparse.Namespace, frame: pd.DataFrame, bound: float, seed: int
) -> Rows:
    """Return what another method makes of the same rows and public facts."""
    package = options.peer.partition(" ")[0]
    schema = Schema(columns_of(frame, bound))
    costs, [drawn] = peers.fit_peer(
        options.peer,
        frame[[column.name for column in schema.columns]],
        dict(options.python)[package],
        schema=schema,
        epsilon=1.0,
        seed=seed,
        checkout=dict(options.checkout).get(package),
    )
    return drawn[list(frame.columns)], costs["fit_seconds"]


def fitted_rows(frame: pd.DataFrame, bound: float, seed: int) -> Rows:
    """Return as many sampled rows, and the seconds of the fit."""
    *numbers, levels = columns_of(frame, bound)
    schema = Schema([levels, *numbers])
    start = time.perf_counter()
    flow = DPHFlowSynthesizer(1.0, 1e-5, schema=schema, random_state=seed)
    flow.fit(frame.drop(columns="class"), frame["class"])
    seconds = time.perf_counter() - start
    drawn, classes = flow.sample(len(frame), random_state=seed)
    drawn.insert(0, "class", classes)
    return drawn, seconds


def obeys(frame: pd.DataFrame, order: int, quantile: float) -> pd.Series:
    """Return the class that the first numbers of each row call for."""
    above = frame.iloc[:, 1 : order + 1] > 2 * quantile - 1
    return above.sum(axis=1).mod(2).map(dict(enumerate(CLASSES)))


def parity(
    order: int, quantile: float, others: int, rows: int, seed: int, fit: FitRows
) -> dict[str, float]:
    """Return the share of sampled rows that obey a parity."""
    rng = np.random.default_rng([seed, order])
    names = [f"x{j}" for j in range(order + others)]
    frame = pd.DataFrame(rng.uniform(-1, 1, (rows, len(names))), columns=names)
    frame.insert(0, "class", "")
    frame["class"] = obeys(frame, order, quantile)
    drawn, seconds = fit(frame, 1.0, seed)
    right = drawn["class"].astype(str) == obeys(drawn, order, quantile)
    return {"obey": float(right.mean()), **_shared(frame, drawn, seconds)}


def _wave(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """Return a smooth random function of each row, of about unit variance."""
    directions = rng.normal(0, 1, (x.shape[1], N_WAVES)) / np.sqrt(x.shape[1])
    waves = np.cos(1.5 * x @ directions + rng.uniform(0, 2 * np.pi, N_WAVES))
    return waves @ rng.normal(0, 1, N_WAVES) * np.sqrt(2 / N_WAVES)


def structural_table(
    draw: int, rows: int, seed: int, numbers: int = N_NUMBERS, classes: int = 2
) -> pd.DataFrame:
    """Draw rows of a law; the same draw is the same law for every seed."""
    law, rng = np.random.default_rng([draw]), np.random.default_rng([draw, seed])
    x = rng.normal(0, 1, (rows, 1))
    for _ in range(numbers - 1):
        new = _wave(law, x) + 0.5 * rng.normal(0, 1, rows)
        x = np.column_stack([x, new])
    names = [f"x{j}" for j in range(numbers)]
    frame = pd.DataFrame(x.clip(-BOUND, BOUND), columns=names)
    if classes > 2:
        scores = np.stack([_wave(law, x) + _wave(law, x) for _ in range(classes)], 1)
        best = (6 * scores + rng.gumbel(0, 1, scores.shape)).argmax(1)
        frame.insert(0, "class", np.array(list("abcdefghij"))[best])
        return frame
    score = _wave(law, x) + _wave(law, x)
    odds = 6 * (score - np.median(score))
    is_odd = rng.uniform(0, 1, rows) < 1 / (1 + np.exp(-odds))
    frame.insert(0, "class", np.array(CLASSES)[is_odd.astype(int)])
    return frame


def structural(
    draw: int, rows: int, seed: int, fit: FitRows, **law: int
) -> dict[str, float]:
    """Return F1 on real rows of boosting trained on sampled and on real ones."""
    frame = structural_table(draw, 2 * rows, seed, **law)
    train, test = frame.iloc[:rows], frame.iloc[rows:]
    drawn, seconds = fit(train, BOUND, seed)
    return {
        "f1": boosting_f1(drawn, test, seed),
        "f1 of real rows": boosting_f1(train, test, seed),
        **_shared(train, drawn, seconds),
    }


def boosting_f1(train: pd.DataFrame, test: pd.DataFrame, seed: int) -> float:
    """Return the macro F1 of boosting trained on a few rows."""
    some = train.sample(N_TRAINED, random_state=seed)
    model = HistGradientBoostingClassifier(random_state=seed)
    model.fit(some.drop(columns="class"), some["class"].astype(str))
    said = model.predict(test.drop(columns="class"))
    return float(f1_score(test["class"], said, average="macro"))


def _shared(
    real: pd.DataFrame, drawn: pd.DataFrame, seconds: float
) -> dict[str, float]:
    pairs = marginal_distance(real, drawn, 2, references=False)
    return {"pairs": pairs.mean, "fit_seconds": seconds}


RUNS: dict[str, Callable[..., dict[str, float]]] = {
    "parity": parity,
    "structural": structural,
    "characters": structural,
}
FACTS = ["order", "quantile", "others", "draw", "rows", "numbers", "classes"]


def write() -> None:
    """Tabulate all records, means over seeds with the lowest and the highest."""
    made = pd.DataFrame([{"method": OURS, **each} for each in records.read(RECORDS)])
    text = ["# Dependence of high order", ""]
    RECORDS.with_suffix(".rst").write_text(beside(made), encoding="utf-8")
    for (kind, method), some in made.groupby(["kind", "method"]):
        facts = [name for name in FACTS if name in some.dropna(axis=1)]
        scores = ["obey"] if kind == "parity" else ["f1", "f1 of real rows"]
        scores += ["pairs", "fit_seconds"]
        rows = [
            [*(f"{value:g}" for value in key), *(_range(part[s]) for s in scores),
             str(len(part))]
            for key, part in some.groupby(facts)
        ]  # fmt: skip
        text += [
            f"## {kind}" + (f", {method}" if method != OURS else ""),
            "",
            *records.markdown_table([*facts, *scores, "seeds"], rows),
        ]
    text += [
        "Epsilon 1, delta 1e-5, defaults. Revisions: "
        + ", ".join(sorted(set(made["revision"])))
    ]
    RECORDS.with_suffix(".md").write_text("\n".join(text) + "\n", encoding="utf-8")


def beside(made: pd.DataFrame) -> str:
    """Return scores and distances of methods, in bold where they are ahead."""
    some = made[(made["rows"] != N_FEW) & ~(made["others"] > 0)]
    some = some.assign(score=some["obey"].fillna(some["f1"]))
    text = []
    for kind, of_kind in some.groupby("kind"):
        seeds = of_kind.groupby("method")["seed"].nunique()
        score = "rows that obey" if kind == "parity" else "F1"
        text += [f".. list-table:: {kind}: {score} / 2-way TVD"]
        text += ["   :header-rows: 1", ""]
        text += list_row(["Table", *(f"{m}, seeds: {n}" for m, n in seeds.items())])
        index = ["order", "quantile"] if kind == "parity" else ["draw"]
        for key, part in of_kind.groupby(index):
            rows = (
                part.groupby("method")[["score", "pairs"]].mean().reindex(seeds.index)
            )
            cells = [f"{row.score:.3f} / {row.pairs:.3f}" for row in rows.itertuples()]
            ahead = rows["score"] > rows["score"][OURS]
            cells = [f"**{c}**" if a else c for c, a in zip(cells, ahead, strict=True)]
            facts = zip(index, key, strict=True)
            text += list_row([", ".join(f"{n} {x:g}" for n, x in facts), *cells])
        text += [""]
    return "\n".join([*text, f"Records: ``benchmarks/results/{RECORDS.name}``.", ""])


def _range(values: pd.Series) -> str:
    return f"{values.mean():.3f} ({values.min():.3f} to {values.max():.3f})"


def main(arguments: list[str] | None = None) -> None:
    """Make what is missing, and tabulate."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--peer", help="a method of peers.py")
    for name in ("--python", "--checkout"):
        parser.add_argument(name, nargs="+", type=peers.interpreter, default=[])
    options = parser.parse_args(arguments)
    fit = partial(peer_rows, options) if options.peer else fitted_rows
    keys = ["kind", "seed", "method", *FACTS]
    present = [[r.get(name) for name in keys] for r in records.read(RECORDS)]
    for kind in options.only:
        for facts in CONFIGURATIONS[kind]:
            others = facts["rows"] == N_FEW or facts.get("others")
            for seed in [] if options.peer and others else options.seeds:
                config = {"kind": kind, "seed": seed, **facts}
                config |= {"method": options.peer} if options.peer else {}
                if [config.get(name) for name in keys] not in present:
                    found = RUNS[kind](**facts, seed=seed, fit=fit)
                    records.append(RECORDS, config | found | records.origin())
                    print(config, found, flush=True)
    write()


if __name__ == "__main__":
    main()
