"""The HTML of a report: sections, pictures as data URIs, glossary, style.

`write_page` shows what `dpgenerative.metrics.report` measured and graded; it draws,
and decides nothing. Every builder takes and returns HTML: strings that come from data
have passed `_text`.
"""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from dpgenerative.metrics.membership import FALSE_POSITIVE_RATES, AttackResult
from dpgenerative.metrics.plots import (
    METRICS,
    model_name,
    plot_association,
    plot_marginal,
    plot_roc,
    plot_utility,
)

if TYPE_CHECKING:
    from dpgenerative.metrics.reporting import Finding, Report, Statement, Tables

Limits = tuple[float, float]

MAX_PICTURES = 60
"""Columns drawn one by one, at most: those furthest off."""

LOST = "Columns that lost values"
RANGES = "Columns that end elsewhere than the real ones"

_MOST_NAMED = 12  # columns named at most, where more have the same fault
_N_WORST = 8  # rows of the tables of worst columns and pairs
_N_WEAKEST = 2  # findings called weakest, be they good


def write_page(
    result: Report,
    tables: Tables,
    statement: Statement | None,
    limits: Mapping[str, Limits],
) -> str:
    """Return one HTML document without references to anything outside it."""
    sections = {
        ("verdict", "Verdict"): _verdict(result, statement, limits),
        ("privacy", "Privacy"): _privacy(statement),
        ("columns", "Column by column"): _columns(result, tables),
        ("together", "Columns together"): _together(result),
        ("models", "Training models"): _models(result, tables),
        ("attack", "An attack"): _attack(result, tables, statement),
        ("glossary", "Glossary"): _glossary(result, statement),
    }
    shown = {title: content for title, content in sections.items() if content}
    return _DOCUMENT.format(
        style=_STYLE,
        banner=_banner(result, statement),
        lead=_LEAD_PUBLIC if result.public else _LEAD,
        facts=_facts(tables, statement),
        links="".join(f'<li><a href="#{key}">{title}</a></li>' for key, title in shown),
        body="".join(
            f'<section id="{key}" aria-labelledby="{key}-title">'
            f'<h2 id="{key}-title">{title}</h2>{content}</section>'
            for (key, title), content in shown.items()
        ),
    )


# Words and numbers


def percent(share: float) -> str:
    """Return a measured share in words."""
    if 0 < abs(share) < 5e-4:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def exact(share: float) -> str:
    """Return a share that is set, not measured, in words."""
    return f"{100 * share:.3g}\u00a0%"


def joined(names: Iterable[Hashable]) -> str:
    """Return the names of columns in words, the first few of many."""
    several = [str(name) for name in names]
    if len(several) > _MOST_NAMED:
        rest = len(several) - _MOST_NAMED + 1
        several[_MOST_NAMED - 1 :] = [f"{rest} others"]
    return " and ".join(filter(None, [", ".join(several[:-1]), *several[-1:]]))


def described(found: pd.DataFrame) -> list[str]:
    """Return a line on each of the first columns in such a table of losses."""
    lines = [f"{each.column} {each.loss}" for each in found.itertuples()]
    rest = len(lines) - _MOST_NAMED
    return lines if rest <= 0 else [*lines[:_MOST_NAMED], f"and {rest} more"]


def _value(value: float, as_percent: bool) -> str:
    if math.isnan(value):
        return "\u2013"
    return percent(value) if as_percent else f"{value:.3f}"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _text(value: object) -> str:
    """Return any data-derived string, safe inside HTML text and attributes."""
    return escape(str(value))


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _definitions(kind: str, items: Mapping[str, str]) -> str:
    inner = "".join(
        f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in items.items()
    )
    return f'<dl class="{kind}">{inner}</dl>'


def _details(summary: str, content: str) -> str:
    return f"<details><summary>{summary}</summary>{content}</details>"


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>'
        + "".join(f"<td>{cell}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{caption}">'
        f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _figure(axes: Axes, alt: str, caption: str = "", head: str = "") -> str:
    title = f"<h3>{head}</h3>" if head else ""
    image = f'<img src="{_svg(axes)}" alt="{alt}">'
    return f"<figure>{title}{image}<figcaption>{caption}</figcaption></figure>"


def _figures(figures: Iterable[str], kind: str) -> str:
    return f'<div class="figures {kind}">{"".join(figures)}</div>'


def _svg(axes: Axes) -> str:
    """Return the axes' figure as a data URI; text stays text, for any script."""
    figure, buffer = axes.get_figure(root=True), io.BytesIO()
    assert figure is not None
    with (
        mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dpgenerative"}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph")  # the reader's font has it
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    encoded = base64.b64encode(buffer.getvalue()).decode("ascii")
    return f"data:image/svg+xml;base64,{encoded}"


# Head of the page


def _banner(result: Report, statement: Statement | None) -> str:
    unprotected = statement is not None and not statement.private
    lines = [_UNPROTECTED] * unprotected + [_PRIVATE] * (not result.public)
    return "".join(f'<p class="banner" role="note">{line}</p>' for line in lines)


def _facts(tables: Tables, statement: Statement | None) -> str:
    facts = {"Synthetic rows": f"{len(tables.synthetic):,}"}
    if tables.real is not None:
        facts["Real rows"] = f"{len(tables.real):,}"
    facts["Columns"] = str(tables.synthetic.shape[1])
    facts["Privacy"] = "unknown" if statement is None else "none"
    if statement is not None and statement.private:
        facts["Privacy"] = (
            f"\u03b5 = {statement.epsilon:g}, \u03b4 = {statement.delta:g}"
        )
        facts["Protected"] = _unit(statement)
    return _definitions("facts", facts)


# Verdict


def _verdict(
    result: Report, statement: Statement | None, limits: Mapping[str, Limits]
) -> str:
    privacy = f'<p class="lead">{_privacy_verdict(statement)}</p>'
    if result.public:
        return privacy + _NOT_MEASURED
    ranked = sorted(result.findings, key=lambda each: each.order)
    kept = [each for each in ranked if each.topic != "lost"]
    n_weakest = max(_N_WEAKEST, sum(each.grade != "good" for each in kept))
    weakest, others = kept[:n_weakest], kept[: n_weakest - 1 : -1]
    return (
        f'{privacy}<p class="lead">{_quality_verdict(ranked)}</p><div class="verdict">'
        f"{_lost(result)}"
        f"<h3>What is good</h3>{_statements(others)}"
        f"<h3>What is weakest</h3>{_statements(weakest)}</div>"
        f"{_missing(result)}{_glance(result)}{_grading(limits)}"
    )


def _lost(result: Report) -> str:
    """List the columns that lost values, before all else."""
    if result.lost is None or result.lost.empty:
        return ""
    items = [
        f"<strong>{_text(each.column)}</strong> {_text(each.loss)}."
        for each in result.lost.head(_MOST_NAMED).itertuples()
    ]
    rest = len(result.lost) - len(items)
    return f"<h3>{LOST}</h3>{_list([*items, *[f'And {rest} more.'] * (rest > 0)])}"


def _privacy_verdict(statement: Statement | None) -> str:
    if statement is None:
        return _UNKNOWN_VERDICT
    if not statement.private:
        return _NO_PRIVACY_VERDICT
    return (
        f"<strong>The privacy promise is {statement.strength}</strong> (\u03b5 = "
        f"{statement.epsilon:g}): {_meaning(statement)}"
    )


def _meaning(statement: Statement) -> str:
    known = "whoever knows every other row of the real table and tries to tell whether "
    known += "one more row was in it"
    if statement.most_rows > 1:
        known = "whoever knows all rows of everybody else and tries to tell whether "
        known += f"{_unit(statement)}, was in the real table"
    return (
        f"{known} is right at most {percent(statement.best_guess)} of the time, where "
        f"a coin is right {exact(0.5)}."
    )


def _unit(statement: Statement) -> str:
    if statement.most_rows == 1:
        return "one row"
    return f"one person, with up to {statement.most_rows} rows"


def _quality_verdict(ranked: Sequence[Finding]) -> str:
    topic, grades = _TOPICS[ranked[0].topic][0], {each.grade for each in ranked}
    if grades == {"good"}:
        return _ALL_GOOD.format(topic)
    if "weak" not in grades:
        return _USABLE.format(topic)
    advice = (
        _TOPICS[each.topic][2].format(_text(joined(each.about)))
        for each in ranked
        if each.grade == "weak"
    )
    return _WEAK.format(topic, " ".join(dict.fromkeys(advice)))


def _statements(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>Nothing that was measured.</p>"
    return _list(
        f"<strong>{_title(each)} {_badge(each)}</strong><br>{_text(each.text)}"
        for each in findings
    )


def _title(finding: Finding) -> str:
    return _capitalised(_TOPICS[finding.topic][0])


def _badge(finding: Finding) -> str:
    return f'<span class="grade {finding.grade}">{finding.grade}</span>'


def _missing(result: Report) -> str:
    judged = {each.topic for each in result.findings}
    reasons = {
        "models": _MODELS_GUESS if result.utility is not None else _MODELS_NEED,
        "attack": "resistance to an attack (needs held-out real rows)",
        "pairs": "pairs of columns (there is one column)",
    }
    said = "; ".join(why for topic, why in reasons.items() if topic not in judged)
    return f"<p>Not judged: {said}.</p>" if said else ""


def _glance(result: Report) -> str:
    rows = [
        (
            f"{_title(each)}<br><small>{_text(each.measure)}</small>",
            f"<strong>{_value(each.value, each.percent)}</strong>",
            _value(each.redrawn, each.percent),
            _value(each.failed, each.percent),
            _standing(each),
        )
        for each in result.findings
    ]
    head = ("Measure", "This table", "Real rows redrawn", "Failed table", "Standing")
    return _table("All measures at a glance", head, rows) + _GLANCE


def _standing(finding: Finding) -> str:
    """Draw where a finding stands: three fields, good to weak, and a dot."""
    x = 6 + 36 * min(finding.severity, 3.0)
    fields = "".join(
        f'<rect x="{6 + 36 * i}" y="4" width="35" height="8" fill="{colour}"/>'
        for i, colour in enumerate(("#cfe3d4", "#f3e6c0", "#f0c9bd"))
    )
    return (
        f'{_badge(finding)}<svg viewBox="0 0 120 16" width="120" height="16" '
        f'role="img" aria-label="{finding.grade}">{fields}'
        f'<circle cx="{x:.1f}" cy="8" r="4.5" fill="#1b2a41"/></svg>'
    )


def _grading(limits: Mapping[str, Limits]) -> str:
    rows = [
        (_capitalised(name), rule, *map(exact, limits[key]))
        for key, (name, rule, _) in _TOPICS.items()
    ]
    head = ("Measure", "What is graded", "Good up to", "Weak beyond")
    return _details(
        "How the grades are set",
        f"{_table('Limits of the grades', head, rows)}<p>The limits are conventions of "
        "this page for descriptive work: judge whether they suit your purpose.</p>",
    )


# Privacy


def _privacy(statement: Statement | None) -> str:
    if statement is None:
        return ""  # the verdict says all
    report = statement.report
    text = _text(report)
    full = _details("The statement in full", f"<pre>{text}</pre>")
    if not statement.private:
        return _NO_PRIVACY + full
    delta = statement.delta
    odds = f", or 1 in {1 / delta:,.0f}" if delta > 0 else ""
    terms = {
        "Promise": text.split("\n", 1)[0],
        "In plain words": _capitalised(_meaning(statement)),
        "Epsilon (\u03b5)": f"{statement.epsilon:g}; accounted for all releases "
        f"together: {report.epsilon_spent:.4f}",
        "Delta (\u03b4)": f"{delta:g}{odds}",
        "Taken as public": _list(map(_text, report.public)),
        "Please note": _list(map(_text, report.notes)),
        "Holds for": "the fitted synthesizer and everything drawn from it. That this "
        "table was drawn from it is taken on trust.",
    }
    return _definitions("terms", terms) + full


# Columns


def _columns(result: Report, tables: Tables) -> str:
    names, rows, lost = list(tables.synthetic.columns), {}, {}
    if result.columns is not None and result.lost is not None:
        rows = {each.columns[0]: each for each in result.columns.itertuples()}
        lost = dict(zip(result.lost["column"], result.lost["loss"], strict=True))
        names = list(dict.fromkeys([*lost, *rows]))
    pictures = [
        _column_figure(name, tables, rows.get(name), lost.get(name))
        for name in names[:MAX_PICTURES]
    ]
    text = _SHARES_PUBLIC if result.public else _SHARES
    if len(names) > MAX_PICTURES:
        which = "first" if result.public else "furthest off"
        text += f"<p>Of {len(names)} columns, the {MAX_PICTURES} {which} are drawn.</p>"
    return text + _figures(pictures, "small")


def _column_figure(name: Hashable, tables: Tables, row: Any, loss: str | None) -> str:
    real = None if tables.real is None else tables.real[name]
    caption = ""
    if row is not None:
        caption = f"{percent(row.distance)} off (chance: {percent(row.floor)})"
        caption += f". It {_text(loss)}." if loss else ""
    axes, title = plot_marginal(real, tables.synthetic[name]), _text(name)
    return _figure(axes, f"Shares of the values of {title}", caption, title)


def _worst_pairs(pairs: pd.DataFrame, n_columns: int) -> str:
    rows = [
        (_text(joined(row["columns"])), *map(percent, row.drop("columns")))
        for _, row in pairs.head(_N_WORST).iterrows()
    ]
    head = ("Pair", "Rows off", "By chance alone", "If unrelated")
    n, total = len(pairs), math.comb(n_columns, 2)
    drawn = f"<p>{n} of {total:,} pairs were measured, drawn at random.</p>"
    table = _table("The pairs of columns furthest off", head, rows)
    return table + (drawn if n < total else "")


def _together(result: Report) -> str:
    found, own = result.associations, result.synthetic_associations
    if len(own) < 2:
        return ""
    alt = "Heat map of the associations between columns in the {} table"
    synthetic = _figure(plot_association(own), alt.format("synthetic"), "", "Synthetic")
    if found is None:
        return _ASSOCIATIONS + _figures([synthetic], "large")
    limit = max(0.1, math.ceil(10 * np.abs(found.difference.to_numpy()).max()) / 10)
    change = _figure(
        plot_association(found.difference, signed=True, limit=limit),
        "Heat map of the difference between the two",
        "blue: weaker in the synthetic table; red: stronger",
        "Difference",
    )
    real = _figure(plot_association(found.real), alt.format("real"), "", "Real")
    assert result.pairs is not None
    maps = _figures([real, synthetic, change], "large")
    return _ASSOCIATIONS + maps + _worst_pairs(result.pairs, len(own))


# Models and the attack


def _models(result: Report, tables: Tables) -> str:
    scores = result.utility
    if scores is None:
        return ""
    metrics = [name for name in METRICS if name in scores]
    pictures = []
    for name in metrics:
        axes = plot_utility(scores, metric=name)
        axes.legend(handles=[], frameon=False)  # the text has it, once for all
        pictures.append(_figure(axes, _MODELS_ALT.format(_capitalised(METRICS[name]))))
    text = _MODELS.format(target=_text(tables.target), n=tables.n_trained)
    return text + _figures(pictures, "large") + _scores_table(scores, metrics)


def _scores_table(scores: pd.DataFrame, metrics: list[str]) -> str:
    means = scores.groupby(["model", "trained_on"], sort=False)[metrics].mean()
    means = means.unstack()
    means.loc["mean"] = means.mean()
    cells = [(name, source) for name in metrics for source in ("real", "synthetic")]
    rows = [
        (_text(model_name(str(model))), *(f"{row[cell]:.3f}" for cell in cells))
        for model, row in means.iterrows()
    ]
    head = [f"{_capitalised(METRICS[name])}, {source}" for name, source in cells]
    caption = "Scores on held-out real rows, by what the models were trained on"
    return _table(caption, ["Model", *head], rows)


def _attack(result: Report, tables: Tables, statement: Statement | None) -> str:
    attack = result.attack
    if attack is None:
        return ""
    n_members, n_rows = int(attack.members.sum()), len(tables.synthetic)
    text = _ATTACKED.format(
        n_members=n_members,
        n_others=len(attack.members) - n_members,
        n_synthetic=f"all {n_rows:,}"
        if tables.n_attacked == n_rows
        else f"{tables.n_attacked:,} of the {n_rows:,}",
    )
    axes, alt = plot_roc(attack), "ROC curve of the attack; figures in the table below"
    return (
        f'{text}<div class="beside">{_figure(axes, alt)}<div>{_SHOWS}'
        f"{_cap(attack, statement)}</div></div>{_attack_table(attack)}"
    )


def _cap(attack: AttackResult, statement: Statement | None) -> str:
    if statement is None or not attack.privacy:
        return _NO_CAP
    if statement.most_rows == 1:
        return _CAP.format(by="row by row which rows were used", two="two rows", own="")
    return _CAP.format(
        by="person by person whose rows were used", two="two persons",
        own=_CAP_OF_PERSONS.format(statement.most_rows),
    )  # fmt: skip


def _attack_table(attack: AttackResult) -> str:
    rates = {"Area under the curve": (attack.auc, False, "0.500")}
    for fpr in FALSE_POSITIVE_RATES:
        label = f"Used rows found at {100 * fpr:g} % false alarms"
        rates[label] = (attack.tpr_at(fpr), True, exact(fpr))
    rows = [
        (
            label,
            _value(rate.value, as_percent),
            f"{_value(rate.low, as_percent)} to {_value(rate.high, as_percent)}",
            guess,
            _value(rate.cap, as_percent),
        )
        for label, (rate, as_percent, guess) in rates.items()
    ]
    head = ("Figure", "This attack", "95 % interval", "Guessing", "Allowed at most")
    return _table("What the attack achieves", head, rows)


def _glossary(result: Report, statement: Statement | None) -> str:
    terms = _TERMS if result.public else _TERMS | _TERMS_REAL
    if statement is not None and statement.most_rows > 1:
        promise = _PROMISE_TO_PERSONS.format(statement.most_rows)
        terms = terms | {"Differential privacy": promise}
    if result.utility is not None:
        terms = terms | _TERMS_MODELS
    return _definitions("terms", terms)


# Texts, glossary, style: constants from here on

_OFF = "share of rows off, beyond 1.5 times chance alone"
_WAY = "share of the way from 1.5 times chance alone to unrelated columns"
# By topic: what it is called, what is graded, what not to do where it is weak.
_TOPICS = {
    "lost": (
        "values that were lost", "share of a column's rows that lost their value",
        "Leave out {}: values are lost there.",
    ),
    "range": (
        "how far numbers reach", "share of a column's rows beyond the other's range",
        "Do not rely on the largest and smallest values of {}.",
    ),
    "columns": (
        "single columns", _OFF,
        "Do not quote counts or shares of single columns from this table.",
    ),
    "worst column": ("the worst column", _OFF, "Do not rely on {}."),
    "pairs": ("pairs of columns", _WAY, "Do not cross-tabulate this table."),
    "worst pair": (
        "the worst pair of columns", _OFF, "Do not cross-tabulate {}.",
    ),
    "associations": (
        "how columns depend on each other", _WAY,
        "Do not study relations between columns with this table.",
    ),
    "models": (
        "models trained on the table", "share of skill (score beyond guessing) lost",
        "Do not train models on this table.",
    ),
    "attack": (
        "resistance to an attack",
        "area under the ROC curve beyond 0.5 (and, at 1 % false alarms, the lower end "
        "of the hit rate: good up to 2 %, weak beyond 10 %)",
        "Do not release this table.",
    ),
}  # fmt: skip
_UNPROTECTED = "No privacy: the synthetic table itself was made without noise"
_PRIVATE = "Contains private statistics: not for release"
_LEAD_PUBLIC = (
    "This page describes a synthetic table: rows made up by a computer program to "
    "stand in for a table of real rows that is not shown. It was written without "
    "reading the real table."
)
_LEAD = (
    "This page compares a synthetic table, rows made up by a computer program, with "
    "the real table that it stands in for: how far it can be relied on, and what it "
    "may give away."
)
_NOT_MEASURED = (
    "<p>How close the table comes to the real one is not said here: that can be "
    "measured on the real rows only, and the answer would describe them.</p>"
)
_UNKNOWN_VERDICT = (
    "<strong>Privacy is unknown.</strong> Nothing was said about how this table was "
    "made, so no protection can be claimed for it: unless its makers state a "
    "guarantee, assume that it may repeat real rows."
)
_NO_PRIVACY_VERDICT = (
    "<strong>There is no privacy.</strong> The table was made without noise: treat it "
    "as you treat the real rows."
)
_ALL_GOOD = (
    "<strong>Everything that was measured is good.</strong> What stands weakest, "
    "though still good: {}."
)
_USABLE = "<strong>The table is usable, with limits.</strong> What stands weakest: {}."
_WEAK = "<strong>The table has a weak point: {}.</strong> {}"
_MODELS_NEED = "models (needs a target column and held-out real rows)"
_MODELS_GUESS = "models (trained on real rows they hardly do better than guessing)"
_MODELS_ALT = "{} of every model, by training rows; the numbers are in the table below"
_GLANCE = (
    "<p>Real rows redrawn: what as many rows drawn from the real table, with "
    "replacement, would score (models: the real rows themselves; the attack: an "
    "attack that guesses). Failed table: every column right but none related to "
    "another; models that guess; an attack that is never wrong.</p>"
)
_NO_PRIVACY = (
    '<p class="alarm"><strong>NO PRIVACY.</strong> This table was made without noise '
    "(epsilon=None). It may repeat real rows, and nothing limits what it gives away. "
    "Do not release it.</p>"
)
_SHARES_PUBLIC = (
    "<p>The share of every value, or range of values, in the synthetic table.</p>"
)
_SHARES = (
    '<p>The share of every value, or range of values: <span class="key real"></span> '
    'real, filled; <span class="key synthetic"></span> synthetic, outlined. Where the '
    "outline follows the filling, the column is right. Under each: the share of rows "
    "that would have to change. Columns that lost values come first, then those "
    "furthest beyond chance.</p>"
)
_ASSOCIATIONS = (
    "<p>How strongly two columns go together: 0 (light) where one says nothing about "
    "the other, 1 (dark) where it says everything. Compare a cell with the same cell "
    "of the other picture, not with its neighbours: kinds of columns differ in "
    "scale.</p>"
)
_MODELS = (
    "<p>Models that predict <strong>{target}</strong> were trained twice, on at most "
    "{n:,} rows: once on real rows, once on synthetic ones. All were tested on the "
    "same held-out real rows. The closer the two scores, the better the table replaces "
    'the real one for this purpose: <span class="key dot real"></span> trained on real '
    'rows; <span class="key dot synthetic"></span> trained on synthetic rows.</p>'
)
_ATTACKED = (
    "<p>Can somebody who has a person's row tell from the synthetic table whether it "
    "was among the real ones? A program tried. It looked at {n_synthetic} synthetic "
    "rows, and counts a row as used when many of them lie close to it. It was run on "
    "{n_members:,} rows that were used and {n_others:,} that were not, drawn at "
    "random.</p>"
)
_SHOWS = (
    "<p><strong>What this shows, and what it does not.</strong> An attack that "
    "succeeds shows that rows leak. One that fails shows that this one attack fails, "
    "no more: a cleverer one may succeed, and one person may be easier to find than "
    "the average. Only a privacy guarantee limits every attack on every person.</p>"
)
_CAP = (
    "<p>The shaded region is what the guarantee, with every pair of \u03b5 and \u03b4 "
    "known to hold for this run, rules out for any attack, on average over runs that "
    "release the same row count, had a coin decided {by}. A curve from one run may "
    "enter it by chance; the intervals say how much chance there is.{own}</p>"
    "<p>No coin was thrown here: real and held-out rows come from one fixed split. "
    "If it was random, the limit that holds is a looser one, that for a change of "
    "{two}. If it was not (held-out rows of a later year, say), rows can be told apart "
    "without any leak.</p>"
)
_CAP_OF_PERSONS = (
    " The limit is the one for all of a person's rows, up to {}; for a single row a "
    "tighter one holds."
)
_NO_CAP = (
    "<p>No guarantee is known for this table, so there is no limit to draw: how well "
    "another attack would do is open. Where real and held-out rows were not split at "
    "random, they can be told apart without any leak.</p>"
)
_PROMISE = (
    "A mathematical promise: what is released is almost as likely whether or not "
)
_PROMISE_TO_PERSONS = (
    _PROMISE + "any one person, with up to {} rows, was in the real table, whatever an "
    "attacker knows besides. A person with more rows is protected less."
)
_TERMS = {
    "Differential privacy": _PROMISE + "any one row was in the real table, whatever an "
    "attacker knows besides. A person with several rows is protected less.",
    "Epsilon (\u03b5)": "How much 'almost as likely' allows: a factor of at most "
    "e<sup>\u03b5</sup>. Smaller is safer. This page calls up to 1 strong, up to 10 "
    "moderate, more weak, as Ponomareva et al. (2023) do in substance.",
    "Delta (\u03b4)": "A small allowance for the promise to fail.",
}
_TERMS_REAL = {
    "Rows off (total variation distance)": "The share of rows that would have to "
    "change for two tables' shares to agree: half the sum of the differences. Numbers "
    "are first sorted into at most 20 ranges that hold about as many real rows each, "
    "so rare large values may share one range with all others.",
    "By chance alone (floor)": "The distance of a table drawn from the real rows "
    "themselves, with replacement.",
    "If unrelated (baseline)": "The distance of the real columns, each shuffled on its "
    "own: every column right, every relation gone.",
    "ROC curve": "Of an attack or a model: share of true hits (true positive rate) "
    "against that of false alarms (false positive rate), from cautious to reckless. "
    "The area under it is 0.5 for guessing, 1 for perfect.",
}
_TERMS_MODELS = {
    "Average precision": "How pure the top of a model's ranking is; the class's share "
    "for guessing, 1 for perfect.",
    "Macro F1": "Balance of hits and false alarms, averaged over classes; 1: perfect.",
    "R\u00b2": "Share of a number's variance that a model explains; 0 for guessing the "
    "mean, 1 for perfect.",
}
_DOCUMENT = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>Synthetic table: quality and privacy</title>
<style>{style}</style>
</head>
<body>
{banner}
<header>
<h1>Synthetic table: quality and privacy</h1>
<p class="lead">{lead}</p>
{facts}
<nav aria-label="Sections"><ul>{links}</ul></nav>
</header>
<main>{body}</main>
{banner}
</body>
</html>
"""
_STYLE = """
:root { --ink: #1d2733; --head: #1b2a41; --line: #d5dae1; --soft: #5b6673;
  --link: #1f5a92; --alarm: #8f1d14; --accent: #c1440e; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 0 1.25rem 3rem; background: #fff;
  color: var(--ink); font: 1rem/1.55 "Helvetica Neue", Arial, "Liberation Sans",
  sans-serif; overflow-wrap: break-word; }
h1, h2, h3, caption { color: var(--head); line-height: 1.2; break-after: avoid; }
h1 { font-size: 2rem; margin: 2rem 0 .75rem; }
h2 { font-size: 1.4rem; margin: 0 0 .9rem; }
h3 { font-size: 1rem; margin: 0 0 .35rem; overflow: hidden; text-overflow: ellipsis; }
p, dd, li { max-width: 44rem; }
a, summary { color: var(--link); cursor: pointer; }
small, figcaption, .facts dt { color: var(--soft); font-size: .85rem; }
figure, tr, li { break-inside: avoid; }
dl, dd, ul { margin: 0; }
.lead { font-size: 1.1rem; }
.banner { max-width: none; padding: .6rem 1rem; background: var(--alarm); color: #fff;
  font-weight: 700; text-align: center; }
.alarm { max-width: none; padding: 1rem; border: 3px solid; color: var(--alarm); }
.facts, nav ul { display: flex; flex-wrap: wrap; gap: .5rem 2rem; }
.facts { padding: .9rem 0; margin: 1.25rem 0; border-top: 3px solid var(--head);
  border-bottom: 1px solid var(--line); }
.facts dd { font-size: 1.3rem; font-weight: 600; color: var(--head); }
nav ul, .verdict ul { list-style: none; padding: 0; }
section { margin-top: 2.25rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
.verdict h3 { border-top: 2px solid var(--head); padding: .75rem 0 .25rem; }
.verdict ul { columns: 2 20rem; column-gap: 2.5rem; }
.verdict li { padding-bottom: .8rem; }
.grade { display: inline-block; min-width: 2.9rem; padding: 0 .4rem; font-weight: 600;
  border-radius: .2rem; font-size: .8rem; text-align: center; }
.grade.good { background: #cfe3d4; color: #123d1f; }
.grade.fair { background: #f3e6c0; color: #4d3a00; }
.grade.weak { background: #f0c9bd; color: #6b1405; }
.wide { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; min-width: min(100%, 40rem); font-size: .93rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top; }
td { white-space: nowrap; }
td svg { margin-left: .6rem; vertical-align: middle; }
thead th { border-bottom: 2px solid var(--head); vertical-align: bottom; }
tbody th { font-weight: 400; min-width: 12rem; }
th:first-child, details :is(th, td):nth-child(2) { text-align: left; }
details td:nth-child(2) { white-space: normal; }
pre { white-space: pre-wrap; font-size: .85rem; background: #f5f6f8; padding: 1rem; }
.terms div { display: grid; grid-template-columns: 13rem 1fr; gap: .1rem 1.5rem;
  margin-bottom: .5rem; }
.terms dt { font-weight: 600; color: var(--head); }
.terms ul { padding-left: 1.1rem; }
.figures, .beside { display: grid; gap: 1.25rem 1.5rem; margin: 1.25rem 0; }
.small { grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
.large { grid-template-columns: repeat(auto-fit, minmax(min(100%, 18.5rem), 1fr)); }
.beside { align-items: center;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figure { margin: 0; max-width: 32rem; }
img { display: block; width: 100%; height: auto; }
.key { display: inline-block; width: 1.1em; height: .75em; background: #c9c9c9; }
.key.synthetic { background: none; border: 1.5px solid var(--accent); }
.key.dot { width: .7em; height: .7em; border-radius: 50%; background: #7a7a7a; }
.key.dot.synthetic { background: var(--accent); }
@media (max-width: 40rem) { .terms div { grid-template-columns: 1fr; } }
@media print {
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav { display: none; }
  .small, .large { grid-template-columns: repeat(3, 1fr); }
  .banner, .grade, svg, .key { print-color-adjust: exact; }
}
"""
