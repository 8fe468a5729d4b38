"""The page of ``cuda_device.py``: goals, and tables of the last records by part."""

from __future__ import annotations

from statistics import mean
from typing import Any

from records import markdown_table

NEVER = "prepared, never run on a device"
RATIO, ADULT_SECONDS = 1.25, 5.0
SAME = {"tvd_2way": 0.002, "macro_f1": 0.015, "log_likelihood": 10.0}
"""How far apart scores of fits on the device and on the CPU may be: three standard
deviations or so of the difference of fits on one CPU, by three seeds of
``tabular.jsonl`` and by four fits of the pictures in few steps (-351.5 to -357.2)."""
EXPLAINED = """\
A ratio is the median over rounds of a step's time to that of the plain step before it.
Both get chunks of at most 4,096 rows, as in a fit; no CUDA graph is captured. Memory is
what a case added on the device at its peak."""
COLUMNS = {
    "steps": ["batch", "case", "step", "ms", "plain_ms", "ratio", "peak_mib"],
    "adult": ["where", "seed", "fit_seconds", "tvd_2way", "macro_f1", "peak_mib"],
    "images": ["case", "where", "fit_seconds", "log_likelihood", "peak_mib"],
    "processes": ["case", "sum_ms", "peak_mib"],
    "tests": ["case", "passed", "seconds"],
}

Record = dict[str, Any]


def page(records: list[Record]) -> str:
    """Return the page: of a device if there ever was one, else of a CPU's try."""
    on_device = [each for each in records if not each["is_try"]]
    chosen = on_device or records
    last = {each["part"]: each["run"] for each in chosen}
    shown = [each for each in chosen if each["run"] == last[each["part"]]]
    lines = ["# CUDA", "", "Written by `benchmarks/cuda_device.py`; it says how.", ""]
    if not on_device:
        lines += [f"State: **{NEVER}**. The tables are of a CPU's try of the same code"]
        lines += ["with small sizes, which says nothing about a device.", ""]
    lines += ["## Goals, on a device", ""]
    lines += markdown_table(["goal", "measured", "verdict"], goals(on_device and shown))
    for part, names in COLUMNS.items():
        rows = [each for each in shown if each["part"] == part]
        if rows:
            cells = [[text(each.get(name, "")) for name in names] for each in rows]
            errors = [[text(each.get("error", "")).replace("|", "/")] for each in rows]
            table = [a + b for a, b in zip(cells, errors, strict=True)]
            lines += [f"## {part.capitalize()}", ""]
            lines += markdown_table([*names, "error"], table)
            lines += [origin(rows[-1]), ""]
    return "\n".join([*lines, EXPLAINED, ""])


def text(value: Any) -> str:
    """Return a cell: numbers with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else " ".join(str(value).split())


def origin(record: Record) -> str:
    """Return where and of what code a part's records are."""
    facts = (record[x] for x in ("name", "machine", "date", "revision"))
    return f"{', '.join(facts)}; `{record['command']}`"


def goals(shown: list[Record]) -> list[list[str]]:
    """Return every goal, what was measured, and whether it was met."""
    rows = [of_steps(shown, kind) for kind in ("flat", "per-layer", "per-unit")]
    fits = [x for x in shown if x["part"] == "adult" and x.get("where") == "cuda"]
    seconds = [x["fit_seconds"] for x in fits[-1:] if "error" not in x]
    goal = f"fit of Adult, kernels loaded, in at most {ADULT_SECONDS:g} s"
    rows.append(row(goal, seconds, [x <= ADULT_SECONDS for x in seconds]))
    for name, most in SAME.items():
        scored = [x for x in shown if name in x and "default" not in x["case"]]
        sides = [[x[name] for x in scored if x["where"] == w] for w in ("cuda", "cpu")]
        gap = [abs(mean(sides[0]) - mean(sides[1]))] if all(sides) else []
        goal = f"{name} of the device within {most} of the CPU's"
        rows.append(row(goal, gap, [x <= most for x in gap]))
    for part in ("tests", "processes"):
        tried = [x for x in shown if x["part"] == part]
        failed = [x.get("case", "all") for x in tried if "error" in x]
        rows.append(row(f"{part}: no failure", failed or ["none"] * bool(tried),
                        [not failed] * bool(tried)))  # fmt: skip
    return rows


def of_steps(shown: list[Record], kind: str) -> list[str]:
    """Return the goal of one strategy's steps, over all models and batches."""
    tried = [x for x in shown if x["part"] == "steps" and x.get("step") == kind]
    measured = [x for x in tried if "ratio" in x]
    met = [x["ratio"] <= RATIO for x in measured]
    worst = sorted(measured, key=lambda x: x["ratio"])[-1:]
    values = [f"{sum(met)} of {len(tried)}"] * bool(tried)
    values += [f"worst {x['ratio']:.2f} ({x['case']}, {x['batch']})" for x in worst]
    met += [False] * (len(tried) - len(measured))
    return row(f"{kind} step at most {RATIO} x plain", values, met)


def row(goal: str, values: list[Any], met: list[bool]) -> list[str]:
    """Return a goal's row, by what was measured and what of it meets the goal."""
    verdict = ("met" if all(met) else "missed") if met else "not measured"
    return [goal, "; ".join(map(text, values)), verdict]
