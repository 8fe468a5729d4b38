"""What the fits of ``regimes.py`` must reach, and the tables and figures of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from peer_tables import plain_ticks
from records import markdown_table

FIGURES = Path(__file__).parents[1] / "doc" / "_static"
REFERENCES = ("bootstrap", "independence", "real", "fresh")
TVD, KENDALL = "tvd_2way", "kendall_rmse"
SHOWN = {
    "few": (TVD, "tvd_3way", KENDALL),
    "order": ("obeyed", "accuracy", TVD),
    "tiny": (TVD, KENDALL),
    "consistency": (TVD, KENDALL),
    "clipping": (TVD, KENDALL),
    "tables": (
        "tvd_1way", TVD, "tvd_3way", KENDALL, "macro_f1", "auroc", "average_precision",
        "best_macro_f1",
    ),
}  # fmt: skip
HIGHER_IS_BETTER = ("macro_f1", "auroc", "average_precision", "best_macro_f1")
TIE = 0.001  # fits of one setting differ by as much
MOST = {"pinwheel": 0.095, "copula 1,000,000": 0.015}
OBEYED = {"parity of 2 bits": 0.97, "parity of 3 bits": 0.9}
# Bias when every gradient was clipped to norm 1 (one seed, at bd47518); a third of it
# is allowed, and what is within noise.
BIAS_ONCE = {"copula": 0.0338, "adult resampled": 0.0}

Line = tuple[str, str, Any, Any]  # part, table, rows and epsilon, if any
# By how much a bound is missed, where positive, and of what.
Excess = list[tuple[float, str]]


class Scores:
    """Means over seeds, by line, method and score."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        found: dict[tuple[Line, str, str], list[float]] = {}
        self.sizes: dict[Line, tuple[int, int]] = {}
        for record in records:
            line = tuple(record[name] for name in ("part", "table", "rows", "epsilon"))
            params = [f"{name}={value}" for name, value in record["params"].items()]
            method = " ".join([record["method"], *params])
            if method not in REFERENCES:
                self.sizes[line] = record["n_rows"], record["n_columns"]
            scores = record["metrics"] | {"seconds": record.get("fit_seconds", np.nan)}
            for name, value in scores.items():
                found.setdefault((line, method, name), []).append(value)
        self.means = {name: float(np.mean(values)) for name, values in found.items()}

    def lines(self, part: str) -> list[Line]:
        """Return the tables of a part, with every number of rows and epsilon."""
        return [line for line in self.sizes if line[0] == part]

    def methods(self, part: str, score: str) -> list[str]:
        """Return what was measured by a score in a part."""
        listed = (key[1] for key in self.means if (key[0][0], key[2]) == (part, score))
        return list(dict.fromkeys(listed))

    def get(self, line: Line, method: str, score: str) -> float:
        """Return a mean; NaN where nothing was measured. References have no epsilon."""
        part, table, rows, _ = line
        if method not in REFERENCES:
            return self.means.get((line, method, score), np.nan)
        for each in (rows, None):
            found = self.means.get(((part, table, each, None), method, score))
            if found is not None:
                return found
        return np.nan

    def excess(self, part: str, score: str, other: str, slack: float = 0.0) -> Excess:
        """Return by how much our score is worse than another method's, by line."""
        sign = -1 if score in HIGHER_IS_BETTER else 1
        found = []
        for line in self.lines(part):
            gap = self.get(line, "ours", score) - self.get(line, other, score)
            found.append((sign * gap - slack, f"{score}, {label(line)}"))
        return found

    def bias(self, table: str) -> float:
        """Return how much farther a fit at epsilon 1 is, of ten times the rows."""
        found = partial(self.get, method="ours", score=TVD)
        private = found(("clipping", table, 1_000_000, 1.0))
        return private - found(("clipping", table, 100_000, None))


def label(line: Line) -> str:
    """Name a line in words."""
    _, table, rows, epsilon = line
    return f"{table}, {f'{rows:,} rows, ' if rows else ''}epsilon {epsilon}"


# Bounds -------------------------------------------------------------------------------


def bounds(scores: Scores) -> Iterator[tuple[str, Excess]]:
    """List every bound with what is measured against it."""
    yield from few_bounds(scores)
    yield from order_bounds(scores)
    listed = partial(scores.excess, "tiny")
    yield "tiny: 2-way at most .005 above marginals'", listed(TVD, "marginals", 0.005)
    yield "tiny: 2-way not above MST's", listed(TVD, "mst")
    yield "tiny: Kendall not above independence's", listed(KENDALL, "independence")
    found = scores.get(("tiny", "adult", 1_000, 1.0), "ours", TVD)
    yield "tiny: 1,000 rows of Adult at most .125", [(found - 0.125, "")]
    yield "consistency: falls with rows and with epsilon", rises(scores)
    for table, bias in BIAS_ONCE.items():
        most = max(bias / 3, TIE)
        yield f"clipping: bias at most {most:.4f}", [(scores.bias(table) - most, table)]
    worse = (scores.excess("tables", score, "mst") for score in SHOWN["tables"])
    yield "tables: ahead of MST by every score", [*chain.from_iterable(worse)]
    late = []
    for line in scores.lines("tables"):
        ours, its = (scores.get(line, method, "seconds") for method in ("ours", "mst"))
        late.append((ours / its - 1 / 4, label(line)))
    yield "tables: a quarter of MST's time", late


def few_bounds(scores: Scores) -> Iterator[tuple[str, Excess]]:
    projected = []
    for line in scores.lines("few"):
        found = partial(scores.get, line, score=TVD)
        if line[1] in MOST:
            most = MOST[line[1]]
            yield f"few: {line[1]} at most {most}", [(found("ours") - most, "")]
        else:
            peers = [found(each) for each in ("mst", "aim")]
            best = min((each for each in peers if each == each), default=np.nan)
            most = np.maximum(best, 1.1 * found("bootstrap"))
            projected.append((found("ours") - most, label(line)))
    yield "few: ahead of MST and AIM, or within 10 % of the floor", projected


def order_bounds(scores: Scores) -> Iterator[tuple[str, Excess]]:
    for line in scores.lines("order"):
        found = partial(scores.get, line, "ours")
        if line[1] in OBEYED:
            least = OBEYED[line[1]]
            yield f"order: {line[1]} at least {least}", [(least - found("obeyed"), "")]
        elif not line[1].startswith("parity"):
            share = found("accuracy") / scores.get(line, "real", "accuracy")
            yield f"order: {line[1]}, .9 of the accuracy", [(0.9 - share, "")]


def rises(scores: Scores) -> Excess:
    """Return every step to ten times the rows or epsilon, and how much it adds."""
    found = []
    for line in scores.lines("consistency"):
        part, table, rows, epsilon = line
        here = scores.get(line, "ours", TVD)
        more = (part, table, 10 * rows, epsilon), (part, table, rows, 10 * epsilon)
        for other in more:
            step = scores.get(other, "ours", TVD) - here
            found.append((step - TIE, f"{label(line)} to {label(other)}"))
    return found


def verdicts(scores: Scores) -> Iterator[tuple[bool, str]]:
    """Say of every bound whether it is kept, where it was measured."""
    for name, found in bounds(scores):
        measured = [each for each in found if not np.isnan(each[0])]
        if measured:
            missed = sum(each[0] > 0 for each in measured)
            verdict = f"MISSED {missed} of" if missed else "kept"
            excess, what = max(measured)
            text = f"{verdict} {len(measured)}; worst {excess:+.4f} {what}"
            yield not missed, f"{name}: {text}"


# Tables and figures -------------------------------------------------------------------


def summarise(records: list[dict[str, Any]]) -> str:
    """Return the verdicts, and a markdown table per part and score."""
    scores = Scores(records)
    text = ["# Regimes", "", "Means over seeds.", ""]
    text += [f"- {verdict}" for _, verdict in verdicts(scores)] + [""]
    for part, names in SHOWN.items():
        for name in names:
            if methods := scores.methods(part, name):
                text += [f"## {part}: {name}", ""]
                text += _score_table(scores, part, name, methods)
    for table in BIAS_ONCE:
        text += [f"Bias on {table}: {scores.bias(table):.4f}", ""]
    for record in records:
        if "failed" in record:
            line = json.dumps([record[name] for name in ("table", "rows", "epsilon")])
            text += [f"- {record['method']}, {line}: {record['failed']}"]
    runs = sorted({f"{r['revision']} ({r['machine']})" for r in records})
    return "\n".join([*text, "", f"Revisions: {'; '.join(runs)}"]) + "\n"


def _score_table(scores: Scores, part: str, name: str, methods: list[str]) -> list[str]:
    rows = []
    for line in scores.lines(part):
        found = [scores.get(line, method, name) for method in methods]
        if not np.isnan(found).all():
            size = [f"{n:,}" for n in scores.sizes[line]]
            shown = ["" if np.isnan(value) else f"{value:.4f}" for value in found]
            rows.append([line[1], *size, str(line[3]), *shown])
    return markdown_table(["table", "rows", "columns", "epsilon", *methods], rows)


def draw(scores: Scores) -> None:
    """Draw the figures of the parts that were measured."""
    figures = {"consistency": draw_consistency, "clipping": draw_clipping}
    for part, figure in figures.items():
        if scores.lines(part):
            path = FIGURES / f"{part}.png"
            figure(scores).savefig(path, dpi=110, bbox_inches="tight")


def draw_consistency(scores: Scores) -> plt.Figure:
    """Draw distance less floor over rows times epsilon, a line per number of rows."""
    figure, axis = plt.subplots(figsize=(5, 4))
    for n in sorted({line[2] for line in scores.lines("consistency")}):
        lines = [line for line in scores.lines("consistency") if line[2] == n]
        gaps = [
            scores.get(line, "ours", TVD) - scores.get(line, "fresh", TVD)
            for line in lines
        ]
        axis.loglog([n * line[3] for line in lines], gaps, "o-", label=f"{n:,} rows")
    plain_ticks(axis.yaxis)
    axis.set(xlabel="rows x epsilon", ylabel="two-way distance less the floor")
    axis.legend()
    return figure


def draw_clipping(scores: Scores) -> plt.Figure:
    """Draw the distance over the clipping norm, dashed by default, a panel a table."""
    tables = list(dict.fromkeys(line[1] for line in scores.lines("clipping")))
    size = 4.5 * len(tables), 4
    figure, axes = plt.subplots(
        1, len(tables), figsize=size, squeeze=False, layout="constrained"
    )
    methods = [m for m in scores.methods("clipping", TVD) if "=" in m]
    norms = [float(method.split("=")[1]) for method in methods]
    for axis, table in zip(axes[0], tables, strict=True):
        lines = [line for line in scores.lines("clipping") if line[1] == table]
        for i, line in enumerate(line for line in lines if line[3]):
            points = [scores.get(line, method, TVD) for method in methods]
            axis.loglog(norms, points, "o-", color=f"C{i}", label=f"{line[2]:,} rows")
            axis.axhline(scores.get(line, "ours", TVD), color=f"C{i}", ls="--", lw=1)
        free = [scores.get(line, "ours", TVD) for line in lines if line[3] is None]
        for each in free:
            axis.axhline(each, color="k", ls=":", lw=1, label="without privacy")
        plain_ticks(axis.yaxis)
        axis.set_xticks(norms, [f"{norm:g}" for norm in norms], minor=False)
        axis.set(title=table, xlabel="clipping norm", ylabel="two-way distance")
    axes[0, -1].legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure
