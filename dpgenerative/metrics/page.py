"""The pictures of a report, and the rendering of its template.

What stands where, and in which words, is in ``page.html.jinja``. The template escapes
whatever is put into it.
"""

import base64
import io
import math
import warnings
from collections.abc import Sequence
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dpgenerative._files import encodable
from dpgenerative.metrics import plots, words
from dpgenerative.metrics.analyses import AnalysisErrors
from dpgenerative.metrics.findings import LIMITS, Finding, best_guess, strength
from dpgenerative.metrics.measuring import UTILITY_ROWS, Measured, Tables, retained
from dpgenerative.metrics.membership import FALSE_POSITIVE_RATES
from dpgenerative.metrics.utility import mean_scores
from dpgenerative.privacy.report import NO_PRIVACY, PrivacyReport

MAX_PICTURES = 60
"""Most columns that get a picture: those furthest beyond chance."""

_N_WEAKEST = 2  # findings called weakest, be they good


def write_page(
    tables: Tables,
    measured: Measured,
    findings: Sequence[Finding],
    privacy: PrivacyReport | None,
    intervals: Any = None,
    people: pd.DataFrame | None = None,
) -> str:
    """Return one HTML document without references to anything outside it."""
    ranked = sorted(findings, key=lambda each: each.order)
    graded = [each for each in ranked if each.topic != "lost"]
    n_weakest = max(_N_WEAKEST, sum(each.grade != "good" for each in graded))
    attack, utility = measured.attack, measured.utility
    names, lost = tables.synthetic.columns, measured.lost
    page = _template().render(
        tables=tables,
        measured=measured,
        privacy=privacy,
        findings=findings,
        ranked=ranked,
        weakest=graded[:n_weakest],
        others=graded[n_weakest:][::-1],
        limits=LIMITS,
        no_privacy=NO_PRIVACY,
        columns=_draw_columns(tables, measured),
        n_compared=len(names if lost is None else retained(lost, names)),
        numbers=[] if measured.analyses is None else _numbers(measured.analyses),
        intervals=[] if intervals is None else _intervals(intervals),
        cautions=[] if intervals is None else intervals.cautions(),
        people=people,
        maps=_draw_associations(measured),
        scores={} if utility is None else _draw_scores(utility),
        means=None if utility is None else _means(utility),
        roc=None if attack is None else _svg(plots.plot_roc(attack)),
        utility_rows=UTILITY_ROWS,
        false_positive_rates=FALSE_POSITIVE_RATES,
        words=words,
    )
    return encodable(page)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("dpgenerative.metrics", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "percent": words.percent,
        "exact": words.exact,
        "listed": words.listed,
        "figure": _figure,
        "strength": strength,
        "best_guess": best_guess,
        "capitalised": lambda text: text[:1].upper() + text[1:],
    }
    return environment.get_template("page.html.jinja")


def _figure(value: float, as_percent: bool) -> str:
    if math.isnan(value):
        return "\u2013"
    return words.percent(value) if as_percent else f"{value:.3f}"


def _draw_columns(tables: Tables, measured: Measured) -> list[dict[str, Any]]:
    """Draw columns that lost values first, then those furthest beyond chance."""
    real, synthetic = tables.real, tables.synthetic
    names, off, lost = list(synthetic.columns), {}, {}
    if measured.columns is not None and measured.lost is not None:
        off = {each.columns[0]: each for each in measured.columns.itertuples()}
        lost = dict(zip(measured.lost["column"], measured.lost["loss"], strict=True))
        names = list(dict.fromkeys([*lost, *off]))
    drawn = []
    for name in names[:MAX_PICTURES]:
        column = None if real is None else real[name]
        picture = _svg(plots.plot_marginal(column, synthetic[name]))
        facts = {"name": name, "off": off.get(name), "loss": lost.get(name)}
        drawn.append({**facts, "picture": picture})
    return drawn


def _numbers(errors: AnalysisErrors) -> list[tuple[str, ...]]:
    """Return a row of the table of means for every column of numbers."""
    table = errors.table
    means = table[table["analysis"] == "mean"].sort_values("error", key=abs)[::-1]
    results = {
        (row.analysis, *row.about): (f"{row.real:.4g}", f"{row.synthetic:.4g}")
        for row in table.itertuples()
    }
    rows = []
    for (name,) in means["about"].head(MAX_PICTURES):
        shares = (results["quantile", name, q] for q in (0.05, 0.5, 0.95))
        quantiles = map(", ".join, zip(*shares, strict=True))
        deviations = results.get(("standard deviation", name), ("", ""))
        rows.append((str(name), *results["mean", name], *deviations, *quantiles))
    return rows


def _intervals(bootstrap: Any) -> list[tuple[str, ...]]:
    """Return a row of the table of intervals for every result."""
    table = bootstrap.summary()
    table["estimate"] -= table["bias"]
    shown = ["estimate", "lower", "upper", "sampling", "noise", "bias"]
    return [
        (_title(about), *(f"{value:.4g}" for value in row))
        for about, row in zip(table.index, table[shown].to_numpy(), strict=True)
    ]


def _title(about: Any) -> str:
    parts = about if isinstance(about, tuple) else (about,)
    return ", ".join(str(part) for part in parts if part != "")


def _draw_associations(measured: Measured) -> dict[str, str]:
    own, both = measured.synthetic_associations, measured.associations
    if len(own) < 2:
        return {}
    maps = {"synthetic": plots.plot_association(own)}
    if both is not None:
        change = both.difference
        limit = max(0.1, math.ceil(10 * np.abs(change.to_numpy()).max()) / 10)
        maps["real"] = plots.plot_association(both.real)
        maps["difference"] = plots.plot_association(change, signed=True, limit=limit)
    return {name: _svg(axes) for name, axes in maps.items()}


def _draw_scores(utility: pd.DataFrame) -> dict[str, str]:
    pictures = {}
    for name, title in plots.SCORES.items():
        if name in utility:
            axes = plots.plot_utility(utility, metric=name)
            axes.legend(handles=[], frameon=False)  # the text has it, once for all
            pictures[title] = _svg(axes)
    return pictures


def _means(utility: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model, and their mean; each score on real rows first."""
    names = [name for name in plots.SCORES if name in utility]
    means = mean_scores(utility, names)
    means.loc["mean"] = means.mean()
    cells = [(name, source) for name in names for source in ("real", "synthetic")]
    return means[cells].rename(index=lambda model: plots.model_name(str(model)))


def _svg(axes: Axes) -> str:
    """Return the axes' figure as a data URI; text stays text, for any script."""
    figure, buffer = axes.figure, io.BytesIO()
    assert isinstance(figure, Figure)
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dpgenerative"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's font has it
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/svg+xml;base64,{encoded}"
