"""Tables, verdicts and figures of the fits of ``peers.py``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import LogLocator
from records import markdown_table, read

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "doc" / "_static"
OURS, MERF, AIM = "ours", "dp-merf", "dpmm aim"
METHODS = (
    OURS,
    "dpmm mst",
    AIM,
    "dpmm privbayes",
    "smartnoise mst",
    "smartnoise aim",
    "smartnoise dpctgan",
    "smartnoise patectgan",
    "mostlyai",
    MERF,
    "margnet",
    "margnet privsyn",
    "margnet gem",
    "tab-pe",
    "private-pgm aim",
    "private-pgm jam",
    "adaptive-grid",
)
CHECKOUTS = ("margnet", "tab-pe", "private-pgm", "adaptive-grid")
SCORES = {
    "auroc": "AUROC",
    "macro_f1": "macro-F1",
    "obeyed": "rows that obey",
    "tvd_2way": "2-way TVD",
}
SECONDS = "seconds"
# The first that a record has is the fit's seconds: a failed one has its process's.
COSTS = ("fit_cpu_seconds", "fit_seconds", "process_cpu_seconds", "peak_rss_mib")
LOWER_IS_BETTER = ("tvd_2way", SECONDS)
TENTH = 0.1  # of AIM's processor seconds, at most
OVERVIEW = ("auroc", "macro_f1", "tvd_2way")  # of real tables at epsilon 1
MARK = ".. The comparisons"  # where the page's overview ends
RECORDS = "Records: ``benchmarks/results/peers.jsonl``, each with its command."

Line = tuple[str, str, float]  # table, method, epsilon


class Means:
    """Means over seeds by table, method and epsilon, and what failed."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        found: dict[Line, dict[str, list[float]]] = {}
        self.failed: dict[Line, str] = {}
        self.counts: dict[Line, int] = {}
        for record in records:
            line = record["table"], record["method"], record["epsilon"]
            self.counts[line] = self.counts.get(line, 0) + 1
            if "failed" in record:
                self.failed[line] = record["failed"]
            costs = {name: record[name] for name in COSTS if name in record}
            for name, value in {**record["metrics"], **costs}.items():
                found.setdefault(line, {}).setdefault(name, []).append(value)
        self.means = {
            line: {name: float(np.mean(values)) for name, values in scores.items()}
            for line, scores in found.items()
        }
        for scores in self.means.values():
            known = [scores[name] for name in COSTS[:-1] if name in scores]
            scores[SECONDS] = next(iter(known), np.nan)
        self.tables = sorted({table for table, _, _ in found})
        self.epsilons = sorted({epsilon for _, _, epsilon in found})

    def get(self, line: Line, score: str) -> float:
        """Return a mean; NaN where there is none."""
        return self.means.get(line, {}).get(score, np.nan)

    def shown(self, table: str) -> list[str]:
        """Return the scores that a table is judged by."""
        lines = [scores for line, scores in self.means.items() if line[0] == table]
        return [name for name in SCORES if any(name in scores for scores in lines)]


# Verdicts -----------------------------------------------------------------------------


def compared(means: Means) -> Iterator[tuple[bool, str]]:
    """Say of every score of every peer whether ours is at least as good."""
    for table, method, epsilon in means.means:
        for score in means.shown(table):
            ours = means.get((table, OURS, epsilon), score)
            its = means.get((table, method, epsilon), score)
            gap = (its - ours) * (-1 if score in LOWER_IS_BETTER else 1)
            if method != OURS and not np.isnan(gap):
                text = f"{table}, epsilon {epsilon:g}, {SCORES[score]}: {method}"
                yield gap <= 0, f"{text} {its:.4f}, ours {ours:.4f}"


def timed(means: Means) -> Iterator[tuple[bool, str]]:
    """Compare our seconds with AIM's, ended ones included."""
    for table, method, epsilon in means.means:
        ours = means.get((table, OURS, epsilon), SECONDS)
        if method == AIM and not np.isnan(ours):
            its = means.get((table, method, epsilon), SECONDS)
            failed = means.failed.get((table, method, epsilon), "")
            if not failed.startswith("crash"):
                text = f"{table}, epsilon {epsilon:g}: {ours:.0f} s, AIM {its:.0f} s"
                yield ours <= TENTH * its, text + (f" ({failed})" if failed else "")


# Tables -------------------------------------------------------------------------------


def summarise(records: list[dict[str, Any]]) -> str:
    """Return verdicts and a markdown table per data set."""
    means = Means(records)
    found = [*compared(means)]
    text = ["# Peers over epsilon, delta 1e-5", ""]
    said = (
        "Means over seeds; seconds: processor time of `fit`, elapsed in older records."
    )
    text += [said, ""]
    text += [f"Ours is ahead in {sum(ok for ok, _ in found)} of {len(found)}.", ""]
    text += [f"- **{said}**" for ok, said in found if not ok]
    text += [f"- {'' if ok else 'MISSED '}time: {said}" for ok, said in timed(means)]
    for table in means.tables:
        scores = means.shown(table)
        titles = [SCORES[score] for score in scores]
        head = ["epsilon", "method", "seeds", *titles, "s", "MiB", ""]
        lines = sorted(
            (line for line in means.means if line[0] == table),
            key=lambda line: (line[2], METHODS.index(line[1])),
        )
        rows = [_row(means, line, scores) for line in lines]
        text += ["", f"## {table}", "", *markdown_table(head, rows)]
    versions = {r["version"] for r in records if r.get("version")}
    runs = {f"{r['revision']} ({r['machine']})" for r in records}
    text += [f"Packages: {', '.join(sorted(versions))}", ""]
    return "\n".join([*text, f"Revisions: {'; '.join(sorted(runs))}"]) + "\n"


def _row(means: Means, line: Line, scores: list[str]) -> list[str]:
    found = [means.get(line, score) for score in scores]
    costs = [means.get(line, SECONDS), means.get(line, COSTS[-1])]
    shown = ["" if np.isnan(x) else f"{x:.4f}" for x in found]
    shown += ["" if np.isnan(x) else f"{x:,.0f}" for x in costs]
    failed = means.failed.get(line, "").replace("|", "/")
    return [f"{line[2]:g}", line[1], str(means.counts[line]), *shown, failed]


def page(records: list[dict[str, Any]]) -> str:
    """Return what the documentation includes: exceptions, and a table."""
    means = Means(records)
    found, times = [*compared(means)], [*timed(means)]
    ahead = sum(ok for ok, _ in found)
    text = [overview(means), "", MARK, ""]
    text += [
        f"The flow is ahead in {ahead:,} of {len(found):,} comparisons with a peer's "
        "score that was measured"
        + ("." if ahead == len(found) else ". The exceptions:"),
        "",
    ]
    text += [f"- **{said}**" for ok, said in found if not ok] + [""]
    if times:
        kept = sum(ok for ok, _ in times)
        text += [f"A tenth of AIM's time or less in {kept} of {len(times)} fits:", ""]
        text += [f"- {said if ok else f'**{said}**'}" for ok, said in times] + [""]
    for table in means.tables:
        scores = " / ".join(SCORES[score] for score in means.shown(table))
        text += [f".. list-table:: {table}: {scores}", "   :header-rows: 1", ""]
        text += list_row(["epsilon", *(f"{e:g}" for e in means.epsilons)])
        run = [
            m for m in METHODS if any(line[:2] == (table, m) for line in means.means)
        ]
        for method in run:
            lines = [(table, method, epsilon) for epsilon in means.epsilons]
            text += list_row([method, *(_cell(means, line) for line in lines)])
        others = [method for method in METHODS if method not in run]
        text += ["", f"Not run: {', '.join(others)}." if others else "", ""]
    return "\n".join([*text, RECORDS]) + "\n"


def overview(means: Means) -> str:
    """Say where every method is nearest to ours at epsilon 1, in bold where ahead."""
    leads: dict[str, list[tuple[float, str]]] = {}
    best: dict[str, tuple[float, str]] = {}
    for table, method, epsilon in means.means:
        for score in OVERVIEW if epsilon == 1 and method != OURS else ():
            ours = means.get((table, OURS, epsilon), score)
            its = means.get((table, method, epsilon), score)
            gap = (its - ours) / ours * (-1 if score in LOWER_IS_BETTER else 1)
            if "auroc" in means.shown(table) and not np.isnan(gap):
                name = f"{table} {SCORES[score]}"
                pair = gap, f"{ours:.3f}, the next {its:.3f}"
                best[name] = max(pair, best.get(name, pair))
                text = f"{name} {its:.3f}, ours {ours:.3f}"
                leads.setdefault(method, []).append((gap, text))
    if not best:
        return "There is no comparison at epsilon 1."
    widest, (_, lead) = min(best.items(), key=lambda each: each[1])
    text = (
        f"At epsilon 1 ours is best at {sum(gap <= 0 for gap, _ in best.values())} of "
        f"{len(best)} scores of the four tables, by most at {widest} ({lead}). Each "
        "other method comes nearest here:"
    )
    nearest = [(m, max(leads[m])) for m in METHODS if m in leads]
    parts = [f"{m} at {f'**{t}**' if gap > 0 else t}" for m, (gap, t) in nearest]
    failed = {m for _, m, e in means.failed if e == 1} - leads.keys()
    none = ", ".join(m for m in METHODS if m in failed)
    return f"{text} {'; '.join(parts)}." + (
        f" Without a score: {none}." if none else ""
    )


def list_row(cells: list[str]) -> list[str]:
    return [f"   {'* -' if i == 0 else '  -'} {cell}" for i, cell in enumerate(cells)]


def _cell(means: Means, line: Line) -> str:
    scores = [means.get(line, score) for score in means.shown(line[0])]
    if line not in means.means:
        return "not run"
    if np.isnan(scores).all():
        return means.failed[line].split(":")[0]
    return " / ".join("?" if np.isnan(x) else f"{x:.3f}".lstrip("0") for x in scores)


# Figures ------------------------------------------------------------------------------


def draw(records: list[dict[str, Any]]) -> None:
    """Draw a figure per data set, and one of the parity tables."""
    means = Means(records)
    parities = [table for table in means.tables if table.startswith("parity")]
    real = {
        each["dataset"]: each["metrics"] | {"tvd_2way": each["metrics"]["floor_2way"]}
        for each in read(RESULTS / "tabular.jsonl")
        if each["mode"] == "real"
    }
    for table in means.tables:
        if table not in parities:
            panels = [(table, score) for score in (*means.shown(table), SECONDS)]
            _figure(means, panels, real.get(table, {}), f"peers_{table}.png")
    if parities:
        panels = [(table, "obeyed") for table in parities]
        panels += [(table, SECONDS) for table in parities]
        _figure(means, panels, {"obeyed": 1.0}, "peers_parity.png")
    _draw_overview(means)


def _draw_overview(means: Means) -> None:
    """Draw scores at epsilon 1, a line per method and a mark per table."""
    tables = [table for table in means.tables if "auroc" in means.shown(table)]
    lines = {(t, m, 1.0): means.means[t, m, 1.0] for t, m, e in means.means if e == 1}
    methods = [m for m in METHODS if any((t, m, 1.0) in lines for t in tables)]
    figure, axes = plt.subplots(1, len(OVERVIEW), figsize=(10, 4), sharey=True)
    for axis, score in zip(axes, OVERVIEW, strict=True):
        for table, mark in zip(tables, "osD^", strict=False):
            values = [means.get((table, method, 1.0), score) for method in methods]
            axis.plot(values, range(len(methods)), mark, ms=5, label=table, alpha=0.8)
        axis.set_title(SCORES[score], fontsize=10)
        axis.grid(axis="y", alpha=0.3)
        if score in LOWER_IS_BETTER:
            axis.set_xscale("log")
            plain_ticks(axis.xaxis)
            axis.xaxis.set_major_locator(LogLocator())
    axes[0].set_yticks(range(len(methods)), methods)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), ncols=4, loc="lower center")
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(FIGURES / "peers.png", dpi=75)
    plt.close(figure)


def _figure(
    means: Means, panels: list[tuple[str, str]], real: dict[str, float], name: str
) -> None:
    """Draw scores over epsilon; dotted for the real rows or the sampling floor."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3 * len(panels), 2.8))
    labels: dict[str, Any] = {}
    for axis, (table, score) in zip(axes, panels, strict=True):
        for i, method in enumerate(METHODS):
            color = mpl.colormaps["tab20"](2 * i % 20 + i // 10)
            lines = [(table, method, epsilon) for epsilon in means.epsilons]
            for failed, mark in ((False, "o-"), (True, "x")):
                points = [
                    (line[2], means.get(line, score))
                    for line in lines
                    if (line in means.failed) == failed
                ]
                known = np.array([each for each in points if each[1] == each[1]])
                if len(known):
                    (drawn,) = axis.plot(*known.T, mark, ms=3 + 5 * failed, c=color)
                    labels.setdefault(method, drawn)
        if score in real:
            labels["real rows, floor"] = axis.axhline(real[score], c="k", ls=":", lw=1)
        title = SCORES.get(score, "fit, s")
        several = len({each for each, _ in panels}) > 1
        axis.set(xscale="log", xlabel="epsilon")
        axis.set_xticks(means.epsilons, [f"{epsilon:g}" for epsilon in means.epsilons])
        axis.xaxis.set_minor_formatter("")
        axis.set_title(f"{table}: {title}" if several else title, fontsize=10)
        if score in LOWER_IS_BETTER:
            axis.set_yscale("log")
            plain_ticks(axis.yaxis)
    figure.legend(
        labels.values(), labels, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 0)
    )
    figure.tight_layout()
    figure.savefig(FIGURES / name, dpi=75, bbox_inches="tight")
    plt.close(figure)


def plain_ticks(axis: Axis) -> None:
    """Write 1, 2, 5, 10, ... at a logarithmic axis, without powers of ten."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter("")
