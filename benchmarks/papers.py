"""What DP-HFlow prints, and how our records stand beside it.

One function per table or figure, which ``reproduce.py`` lists, makes and prints. Each
yields lines: what is compared, what is published, ours, and a verdict, which is
computed: reproduced, contradicted or untested. The other papers are in `privae.py` and
`bernau.py`, published figures in `published.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from published import HFLOW_KENDALL, HFLOW_SCORES, HFLOW_SETUP
from records import read
from tabular import TASKS

from dpgenerative import DPHFlowSynthesizer, Sparsified

RESULTS = Path(__file__).parent / "results"
OWN = RESULTS / "reproduce.jsonl"
ABLATION = RESULTS / "reproduce_ablation.jsonl"
SUMMARIES = ("peers", "nist", "attacks")
KENDALL = {"kendall_rmse": "RMSE", "kendall_mae": "MAE"}
SCORES = {"macro_f1": "macro-F1", "auroc": "AUROC", "average_precision": "AP"}
MODELS = {"flow": "default", "published": "published setup", "dp-merf": "DP-MERF"}
TOLERANCE = 0.2
"""Of a figure of Table 1, which is printed without a spread."""
LITTLE = 0.02
"""Difference of AUROC that counts as little."""
LITTLE_NATS = 0.1
"""Difference of log-likelihoods that counts as little."""
Line = tuple[str, str, str, str]  # what, published, ours, verdict

# Verdicts -----------------------------------------------------------------------------


def verdict(holds: Sequence[bool], of: str = "") -> str:
    """Say whether a claim holds in all cases that were run."""
    if not holds:
        return "untested: not run"
    count = f"{sum(holds)} of {len(holds)}{of and ' '}{of}"
    if len(holds) == 1:
        return "reproduced" if holds[0] else "contradicted"
    return f"reproduced: {count}" if all(holds) else f"contradicted: holds in {count}"


def nothing(claimed: str, ours: str, says: str) -> Callable[[], Iterable[Line]]:
    """Return the line of what has no figures."""
    return lambda: [("", claimed, ours, says)]


def figure(value: float, digits: int = 3) -> str:
    """Write a figure without its leading zero."""
    return re.sub(r"^(-?)0\.", r"\1.", f"{value:.{digits}f}")


# Records ------------------------------------------------------------------------------


def scores(
    dataset: str, estimator: str, mode: str = "private", **more: Any
) -> dict[str, Any] | None:
    """Return mean scores of fits at (1, 1e-5), or None without any."""
    epsilon = None if mode == "nonprivate" else 1.0
    wanted = {"epsilon": epsilon, "delta": 1e-5, **more}
    found = [
        r
        for path in (RESULTS / "tabular.jsonl", OWN)
        for r in read(path)
        if r.get("dataset") == dataset
        and r.get("mode") == mode
        and r.get("estimator", "flow") == estimator
        and (
            mode == "real"
            or r["params"] == wanted
            or (estimator == "published" and not more)
        )
    ]
    if estimator == "dp-merf":
        facts = {"method": estimator, "table": dataset, "epsilon": epsilon}
        peers = read(RESULTS / "peers.jsonl")
        found = [r for r in peers if facts.items() <= r.items() and "metrics" in r]
    if not found:
        return None
    longest = max(map(steps_of, found))
    alike = [r for r in found if steps_of(r) == longest]
    mean = pd.DataFrame([r["metrics"] for r in alike]).mean(numeric_only=True)
    return {**mean, "n": len(alike), "steps": longest}


def steps_of(record: dict[str, Any]) -> int:
    """Return the number of gradient steps of a fit; 0 where none is recorded."""
    return record.get("privacy", {}).get("plan", {}).get("n_steps", 0)


def described(found: dict[str, Any] | None, names: Iterable[str]) -> str:
    """Return the scores of a model, with what was run."""
    if found is None:
        return "not run"
    numbers = ", ".join(figure(found[name]) for name in names)
    fits = "1 fit" if found["n"] == 1 else f"{found['n']} fits"
    steps = f", {found['steps']} steps" if found["steps"] else ""
    return f"{numbers} ({fits}{steps})"


def all_described(dataset: str, models: Iterable[str], names: Iterable[str]) -> str:
    """Return the scores of several models of one table."""
    names = list(names)
    return "; ".join(
        f"{MODELS[model]} {described(scores(dataset, model), names)}"
        for model in models
    )


# DP-HFlow ----------------------------------------------------------------------------


def setup_lines() -> Iterable[Line]:
    """Compare what the published setup is made of."""
    model = DPHFlowSynthesizer.published()
    parts = {**vars(model.architecture), **vars(model.optimizer)}
    parts["optimizer"] = parts.pop("name")
    claimed = ", ".join(f"{k} {v}" for k, v in HFLOW_SETUP.items())
    ours = ", ".join(f"{k} {parts[k]}" for k in HFLOW_SETUP)
    yield "", claimed, ours, verdict([parts[k] == v for k, v in HFLOW_SETUP.items()])


def close(dataset: str, cells: Mapping[str, tuple[float, float]], *spread: str) -> str:
    """Say whether the published setup is within the spread of published figures."""
    setup, default = scores(dataset, "published"), scores(dataset, "flow")
    says = within(setup, cells, *spread)
    if setup and default and "contra" in says and setup["steps"] < default["steps"]:
        gap = figure(max(abs(setup[k] - v) for k, (v, _) in cells.items()))
        says = f"untested in {default['steps']} steps: off by up to {gap} after "
        says += str(setup["steps"])
    return says


def kendall_lines() -> Iterable[Line]:
    """Return the lines of Table 1, which has Covertype alone."""
    claimed = HFLOW_KENDALL["DP-HFlow"]
    published = ", ".join(figure(v, 4) for v in claimed.values())
    cells = {k: (v, TOLERANCE * v) for k, v in claimed.items()}
    ours = all_described("covertype", ("flow", "published"), KENDALL)
    yield (
        "covertype: RMSE, MAE", published + " (no spread is printed)", ours,
        close("covertype", cells, "within a fifth"),
    )  # fmt: skip
    for dataset in sorted(TASKS, key=lambda name: name != "covertype"):
        published = "DP-HFlow ahead of DP-MERF as on covertype (text, no figures)"
        if dataset == "covertype":
            errors = {k: v["kendall_rmse"] for k, v in HFLOW_KENDALL.items()}
            published = ", ".join(f"{k} {figure(v, 4)}" for k, v in errors.items())
        yield (
            f"{dataset}: order by RMSE", published,
            all_described(dataset, ("flow", "published", "dp-merf"), KENDALL),
            ahead(dataset, "kendall_rmse", lower=True),
        )  # fmt: skip


def ahead(dataset: str, score: str, lower: bool = False, merf: bool = False) -> str:
    """Say whether the published setup is ahead of DP-MERF (or behind, if `merf`)."""
    pair = scores(dataset, "published"), scores(dataset, "dp-merf")
    setup, other, default = *pair, scores(dataset, "flow")
    if setup is None or other is None:
        return "untested: not run"
    gain = (setup[score] - other[score]) * (-1 if lower else 1)
    if gain < 0 and not merf and default and setup["steps"] < default["steps"]:
        return f"untested in {default['steps']} steps: not after {setup['steps']}"
    return verdict([(gain < 0) == merf]) + "; of the others DP-MERF alone was run"


def tables_of(names: Mapping[str, str]) -> Callable[[], Iterable[Line]]:
    """Return the lines of Table 2 or 3, whose scores are given."""

    def lines() -> Iterable[Line]:
        claimed = {key: row for key, row in HFLOW_SCORES.items() if key[0] in names}
        datasets = [name for name in TASKS if any(name == d for _, d in claimed)]
        for dataset in datasets:
            rows = {s: claimed[s, dataset]["DP-HFlow"] for s in names}
            published = with_spread(rows)
            yield (
                f"{dataset}: {', '.join(names.values())}", published,
                all_described(dataset, ("flow", "published"), names),
                close(dataset, rows),
            )  # fmt: skip
        for dataset in datasets:
            yield order_line(dataset, names, claimed)
        for title, mode, column in (
            ("without privacy", "nonprivate", "DP-HFlow, no privacy"),
            ("real rows", "real", "real rows"),
        ):
            for dataset in datasets:
                yield other_line(dataset, names, title, mode, column)

    return lines


def with_spread(cells: Mapping[str, tuple[float, float]]) -> str:
    """Write published figures with their spreads."""
    return ", ".join(f"{figure(v, 2)} ± {figure(d, 2)}" for v, d in cells.values())


def order_line(
    dataset: str, names: Mapping[str, str], claimed: Mapping[Any, Any]
) -> Line:
    """Return the order of the four private methods on a table, by the first score."""
    methods = "DP-HFlow", "DP-MERF", "DP-CGAN", "GS-WGAN"
    score = next(iter(names))
    figures = {m: claimed[score, dataset][m][0] for m in methods}
    published = ", ".join(f"{m} {figure(v, 2)}" for m, v in figures.items())
    merf = figures["DP-MERF"] > figures["DP-HFlow"]
    ours = all_described(dataset, ("flow", "published", "dp-merf"), [score])
    what = f"{dataset}: order by {names[score]}"
    return what, published, ours, ahead(dataset, score, merf=merf)


def other_line(
    dataset: str, names: Mapping[str, str], title: str, mode: str, column: str
) -> Line:
    """Return what is published without privacy or of real rows, and the default's."""
    found = scores(dataset, "flow", mode)
    cells = {s: HFLOW_SCORES[s, dataset][column] for s in names}
    published = with_spread(cells)
    what = f"{dataset}, {title}: {', '.join(names.values())}"
    if mode == "real":
        return what, published, described(found, names), within(found, cells)
    setup = scores(dataset, "published", mode)
    ours = f"default {described(found, names)}; "
    ours += f"published setup {described(setup, names)}"
    return what, published, ours, within(setup, cells)


def within(
    found: Mapping[str, float] | None,
    cells: Mapping[str, tuple[float, float]],
    spread: str = "within the spread",
) -> str:
    """Say whether scores are within the spread of published ones."""
    if found is None:
        return "untested: not run"
    holds = [abs(found[k] - v) <= spread + 1e-9 for k, (v, spread) in cells.items()]
    return verdict(holds, spread if len(holds) > 1 else "")


def gradient_lines() -> Iterable[Line]:
    """Return the line of the sizes of gradients, by network."""
    runs = [r for r in read(OWN) if r.get("part") == "gradients"]
    frame = pd.DataFrame(runs, columns=["network", "layer", "median"])
    ranges = frame.groupby("network")["median"].agg(["min", "max"])
    ours = "; ".join(
        f"{name} {low:.2g} to {high:.2g}" for name, low, high in ranges.itertuples()
    )
    claimed = "per-example gradients differ by network and by layer (a log axis)"
    holds = [ranges["max"].max() > 10 * ranges["min"].min()] if runs else []
    says = verdict(holds)
    if runs:
        ratio = ranges["max"].max() / ranges["min"].min()
        says += f": {ratio:,.0f} times between layers"
    yield "adult, median norms of layers", claimed, ours or "not run", says


def marginal_lines() -> Iterable[Line]:
    """Return the lines of the marginals."""
    for dataset in ("covertype", "adult"):
        yield (
            f"{dataset}: 1-way distance", "nearer than DP-MERF (a picture)",
            all_described(dataset, ("flow", "published", "dp-merf"), ["tvd_1way"]),
            ahead(dataset, "tvd_1way", lower=True),
        )  # fmt: skip
    claimed = "Aspect has two modes, which DP-MERF averages (a picture)"
    says = "untested: records have distances, not samples of Covertype"
    yield "covertype: Aspect", claimed, "not stored", says


def ablated(part: str, path: Path | None = None) -> pd.DataFrame:
    """Return the records of one part of the ablation, one line per setting."""
    found = [r for r in read(path or ABLATION) if r["part"] in (part, "default")]
    return pd.DataFrame([r | r["setting"] for r in found])


def clipping_lines() -> Iterable[Line]:
    """Return a line per table: likelihood by clipping; classifiers; sparsity levels."""
    frame = ablated("clipping")
    for table, rows in frame.groupby("table") if len(frame) else ():
        names = rows["clipping"].fillna("flat") if "clipping" in rows else ["flat"]
        found = dict(zip(names, rows["log_likelihood"], strict=True))
        ours = ", ".join(f"{name} {value:.2f}" for name, value in found.items())
        flat = found.pop("flat", math.nan)
        holds = [value - flat > LITTLE_NATS for value in found.values()]
        claimed = "flat clipping far below the other three (Adult, left)"
        what = f"{table}, default flow: log-likelihood"
        yield what, claimed, ours, verdict(holds, "strategies")
    found = {
        name: scores("adult", "flow", **more)
        for name in ("flat", "per-layer", "per-unit", "sparsified")
        for more in [{} if name == "flat" else {"clipping": name}]
    }
    ours = "; ".join(f"{k} {described(v, SCORES)}" for k, v in found.items())
    known = [v["auroc"] for v in found.values() if v]
    gap = max(known, default=0) - min(known, default=0)
    says = verdict([gap <= LITTLE] if len(known) > 1 else [])
    what = "adult, default flow: macro-F1, AUROC, AP"
    claimed = "classifiers differ little between the four (left)"
    yield what, claimed, ours, f"{says}: AUROC within {figure(gap)}" if known else says
    yield sparsity_level_line()


def sparsity_level_line() -> Line:
    """Return how the likelihood of Adult depends on the level of sparsity."""
    path = RESULTS / "ablation.jsonl"
    levels = {
        r["setting"].get("sparsity", Sparsified().share): r["log_likelihood"]
        for part in ("clipping", "sparsity")
        for r in read(path)
        if (r["table"], r["part"]) == ("adult", part)
        and r["setting"].get("clipping") == "sparsified"
    }
    ours = ", ".join(f"{v:.2f} at {s:g}" for s, v in sorted(levels.items()))
    gap = max(levels.values(), default=0) - min(levels.values(), default=0)
    says = verdict([gap <= LITTLE_NATS] if len(levels) > 1 else [])
    claimed = "hardly depends on the sparsity level (right)"
    what = "adult, default flow: log-likelihood by sparsity level"
    return what, claimed, ours or "not run", f"{says}: within {figure(gap)}"


def dequantization_lines() -> Iterable[Line]:
    """Return a line per table: the gain of variational dequantization over epsilon."""
    frame = ablated("dequantization")
    name = "architecture__dequantization"
    frame = frame.dropna(subset=[name]) if name in frame else frame[:0]
    for table, rows in frame.groupby("table") if len(frame) else ():
        pairs = rows.pivot_table("log_likelihood", "epsilon", name).dropna()
        gain = pairs["variational"] - pairs["uniform"]
        ours = ", ".join(
            f"{value:+.2f} at {epsilon:g}" for epsilon, value in gain.items()
        )
        holds = {"smallest": gain.iloc[0] < 0, "largest": gain.iloc[-1] > 0}
        what = f"{table}, two blocks: log-likelihood, variational less uniform"
        for k, is_so in holds.items():
            ahead_there = "uniform" if k == "smallest" else "variational"
            claimed = f"{ahead_there} ahead at the {k} epsilons (Adult, classifiers)"
            yield what, claimed, ours, verdict([bool(is_so)])


# Beyond the papers --------------------------------------------------------------------


def beyond() -> Iterable[tuple[str, str, str, str, str]]:
    """Return what other benchmarks ask, from their summaries, and their commands."""
    texts = {k: (RESULTS / f"{k}.md").read_text("utf-8") for k in SUMMARIES}
    claimed = re.search(r"ahead in (\d+) of (\d+)", texts["peers"])
    count, total = claimed.groups() if claimed else ("0", "0")
    yield (
        "Other packages over epsilon", "ahead of each: AUROC, macro-F1, 2-way",
        f"{count} of {total} comparisons", yes(count == total), "``peers.py``",
    )  # fmt: skip
    cells = {c[0]: c for c in map(markdown_cells, texts["nist"].splitlines())}
    names = "DPHFlowSynthesizer", "best private entry of the archive, any epsilon"
    ours, best = (
        [float(c.split()[0]) for c in cells.get(name, [])[1:6]] for name in names
    )
    both = list(zip(cells.get("rows", [])[1:6], ours, best, strict=False))
    won = sum(a > b for _, a, b in both)
    yield (
        "NIST's excerpts, k-marginal", "ahead of the archive's private entries",
        ", ".join(f"{name} {a:.0f} ({b:.0f})" for name, a, b in both),
        f"ahead in {won} of {len(both)} sets", "``nist.py``",
    )  # fmt: skip
    lines = map(markdown_cells, texts["attacks"].splitlines())
    found = [c for c in lines if c[-1].isdigit()]
    finds = sum(float(c[1].split()[0]) >= 0.5 for c in found)
    passed = sum(int(c[-1]) for c in found)
    yield (
        "Attacks", "each finds its planted leak, none passes the cap on ours",
        f"{finds} of {len(found)} find it; {passed} figures beyond the cap",
        yes(finds == len(found) and not passed), "``attacks.py``",
    )  # fmt: skip
    for line in toy_lines():
        yield *line, "``reproduce.py --paper own --figure toys``"
    runs = [r for r in read(OWN) if r.get("part") == "marginals"]
    command = "``reproduce.py --paper hflow --figure 3``"
    yield *pictured("Adult", "rows, 1-way distance", runs), command
    last = max(read(RESULTS / "scale.jsonl"), key=lambda r: r["rows"])
    yield (
        "Size", "rows that do not fit into memory",
        f"{last['rows']:,} rows: fit {last['fit']['seconds']:.0f} s, "
        f"{last['fit']['peak']:,} MiB", "runs", "``scale.py``",
    )  # fmt: skip


def toy_lines() -> Iterable[Line]:
    """Return a line per toy density, which no paper has."""
    for name in ("checkerboard", "two spirals", "pinwheel"):
        if runs := [r for r in read(OWN) if r.get("density") == name]:
            yield pictured(name, "points, 2-way distance", runs)


def pictured(name: str, what: str, runs: list[dict[str, Any]]) -> Line:
    """Return the line of a picture: the distance of each model from the rows."""
    found = {r["model"]: r for r in runs}
    ours = [f"{m} {figure(r['tvd'])} ({r['steps']} steps)" for m, r in found.items()]
    ours.append(f"resampled rows {figure(runs[-1]['floor'])}")
    best = min(found, key=lambda model: found[model]["tvd"])
    what = f"{name}, {runs[-1]['rows']:,} {what}"
    return what, "default nearest", "; ".join(ours), yes(best == "default")


def yes(holds: bool) -> str:
    """Say whether all that was asked holds."""
    return "yes" if holds else "not in all"


def markdown_cells(line: str) -> list[str]:
    """Return the cells of a line of a markdown table."""
    return [cell.strip() for cell in line.strip("| ").split(" | ")]
