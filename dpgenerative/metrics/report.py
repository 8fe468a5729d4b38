"""One page on a synthetic table: privacy, closeness, use, attack, in plain words.

`report` measures, grades and writes a self-contained HTML page. A page computed from
real rows describes them and says so in a banner; ``public=True`` leaves out, and does
not compute, anything but the privacy statement and the synthetic table's own figures.

Every grade comes from the measurements by the rule printed on the page: a value is
placed between what chance alone explains (the floor) and what a useless table would
score (the baseline), and `LIMITS` cuts that way into good, fair and weak.
"""

from __future__ import annotations

import base64
import io
import math
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from tqdm.auto import tqdm

from dpgenerative.metrics.attacks import monte_carlo_attack
from dpgenerative.metrics.dependence import (
    AssociationDistance,
    association_distance,
    association_matrix,
)
from dpgenerative.metrics.fidelity import (
    aligned,
    independence_baseline,
    marginal_distance,
    sampling_floor,
)
from dpgenerative.metrics.membership import AttackResult
from dpgenerative.metrics.plots import (
    METRICS,
    model_name,
    plot_association,
    plot_marginal,
    plot_roc,
    plot_utility,
)
from dpgenerative.metrics.utility import tstr

ATTACK_ROWS = 2_000
"""Members and non-members attacked, each, at most."""
ATTACK_SYNTHETIC_ROWS = 20_000
"""Synthetic rows that the attack looks at, at most."""
UTILITY_ROWS = 10_000
"""Rows that each model is trained on, at most."""
MAX_PICTURES = 60
"""Columns drawn one by one, at most: those furthest off."""
LIMITS = {
    "columns": (0.02, 0.10),
    "worst column": (0.05, 0.20),
    "pairs": (1 / 3, 2 / 3),
    "worst pair": (0.10, 0.30),
    "associations": (1 / 3, 2 / 3),
    "models": (0.10, 1 / 3),
    "attack": (0.05, 0.15),
    "privacy": (1.0, 10.0),
}
"""Good up to the first number, weak beyond the second; `_RULES` says of what."""
TAIL = 0.01
"""False positive rate at which the attack is read."""

_TAIL_LIMITS = (2.0, 10.0)
_CHANCE = 1.5  # floors that pass as chance: two draws of one population are 1.41 apart
_LOST = 0.8  # of the way to the baseline from which dependence counts as lost
_VISIBLE = 0.02  # least span between floor and baseline that a share can be taken of
_N_WORST = 8  # rows of the tables of worst columns and pairs
_N_WEAKEST = 2  # findings called weakest, be they good
_PRIVATE = "Contains private statistics: not for release"
_GRADES = ("good", "fair", "weak")


@dataclass(frozen=True)
class Finding:
    """One thing that was measured, and what it means.

    Attributes
    ----------
    topic : str
        Key of `LIMITS`.
    measure : str
        What the value is, in a few words.
    value, redrawn, failed : float
        The measurement; what rows redrawn from the real ones score, and what a table
        that fails altogether, NaN where there is no such thing.
    severity : float
        0 for perfect; good up to 1, fair up to 2, weak beyond.
    text : str
        The finding in plain words.
    percent : bool
        Whether the values read best as percentages.
    """

    topic: str
    measure: str
    value: float
    redrawn: float
    failed: float
    severity: float
    text: str
    percent: bool = True

    @property
    def grade(self) -> str:
        """One of good, fair and weak."""
        return _grade(self.severity)


@dataclass(frozen=True, eq=False, repr=False)
class Report:
    """What `report` measured, and the page that it wrote.

    Attributes
    ----------
    public : bool
        Whether only the synthetic table and the privacy statement were read.
    findings : tuple of Finding
        What was measured and could be graded.
    privacy : dict or None
        `to_dict()` of the synthesizer's privacy report.
    columns, pairs : DataFrame or None
        Total variation distance of one- and two-way marginals: columns ``columns``,
        ``distance``, ``floor`` and ``baseline``, the worst first.
    synthetic_associations : DataFrame
        Associations in the synthetic table.
    associations : AssociationDistance or None
        Against the real table.
    utility : DataFrame or None
        As `tstr` returns it.
    attack : AttackResult or None
        The Monte-Carlo attack by synthetic rows.
    """

    public: bool
    findings: tuple[Finding, ...]
    privacy: dict[str, Any] | None
    columns: pd.DataFrame | None
    pairs: pd.DataFrame | None
    synthetic_associations: pd.DataFrame
    associations: AssociationDistance | None
    utility: pd.DataFrame | None
    attack: AttackResult | None
    html: str = field(repr=False)

    def to_html(self) -> str:
        """Return the page: one document without references to anything outside it."""
        return self.html

    def save(self, path: str | Path) -> None:
        """Write the page to a file, in UTF-8."""
        Path(path).write_text(self.html, encoding="utf-8")

    def summary(self) -> pd.DataFrame:
        """Return one row per finding.

        Returns
        -------
        DataFrame
            Columns ``topic``, ``measure``, ``value``, ``redrawn``, ``failed`` and
            ``grade``.
        """
        names = ["topic", "measure", "value", "redrawn", "failed", "grade"]
        rows = [[getattr(each, name) for name in names] for each in self.findings]
        return pd.DataFrame(rows, columns=names)

    def _repr_html_(self) -> str:
        # A frame of its own: the page's style must not reach the notebook's.
        return (
            f'<iframe srcdoc="{escape(self.html)}" title="Synthetic table report" '
            'style="width:100%;height:48rem;border:1px solid #ccc"></iframe>'
        )

    def __repr__(self) -> str:
        if self.public:
            return "Report(public=True)"
        weakest = max(self.findings, key=lambda each: each.severity)
        counts = [
            f"{sum(each.grade == grade for each in self.findings)} {grade}"
            for grade in _GRADES
        ]
        return f"Report({', '.join(counts)}; weakest: {weakest.topic})"


def report(
    real: pd.DataFrame | None,
    synthetic: pd.DataFrame,
    *,
    holdout: pd.DataFrame | None = None,
    target: Hashable | None = None,
    synthesizer: Any = None,
    public: bool = False,
    random_state: int = 0,
    verbose: bool = False,
) -> Report:
    """Describe a synthetic table on one page, for those who decide about its use.

    Parameters
    ----------
    real : DataFrame of shape (n_real, p) or None
        The rows that the synthesizer was fitted on. May be None if `public`.
    synthetic : DataFrame of shape (n_synthetic, p)
        Same columns, in any order.
    holdout : DataFrame of shape (n_holdout, p), optional
        Real rows of the same kind that the synthesizer has not seen: test rows of the
        models and non-members of the attack. None: neither is run.
    target : hashable, optional
        Column that the models predict. None: no models are trained.
    synthesizer : object, optional
        The fitted synthesizer. Its `privacy_` is read, nothing else, and that the
        table came out of it is taken on trust.
    public : bool, default=False
        Leave out everything that real rows would be needed for. `real`, `holdout` and
        `target` are then not looked at.
    random_state : int, default=0
        Seed of the references, the models and the draw of attacked rows.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    Report

    Raises
    ------
    TypeError
        When a table is not a DataFrame.
    ValueError
        When `real` is None and not `public`, the columns of the tables differ, a table
        is empty, `target` is none of the columns, rows of `holdout` are among those of
        `real`, or `synthesizer` is not fitted.

    Notes
    -----
    Unless `public`, the result and the page hold statistics of real rows, under no
    privacy guarantee. Publishing a public page spends nothing: it is made of what the
    guarantee already covers.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xxyy") * 15, "b": [True, False] * 30})
    >>> report(real, real)
    Report(5 good, 0 fair, 0 weak; weakest: columns)
    >>> report(None, real, public=True)
    Report(public=True)
    """
    statement = _statement(synthesizer)
    if public:
        real = holdout = target = None
    elif real is None:
        raise ValueError("report needs real unless public=True; got None.")
    synthetic = aligned(synthetic if real is None else real, synthetic)
    if target is not None and target not in synthetic.columns:
        raise ValueError(
            f"target must be one of {list(synthetic.columns)}; got {target!r}."
        )
    if holdout is not None:
        holdout = aligned(synthetic, holdout, ("synthetic", "holdout"))
    tables = _Tables(real, synthetic, holdout, target, random_state)
    stages: dict[str, Callable[[], Any]] = {
        "columns": lambda: _distances(tables, 1),
        "pairs": lambda: _distances(tables, 2),
        "associations": lambda: _associations(tables),
        "utility": lambda: _utility(tables),
        "attack": lambda: _attack(tables, statement),
    }
    measured: dict[str, Any] = {}
    with tqdm(total=len(stages) + 1, desc="report", disable=not verbose) as bar:
        for name, stage in stages.items():
            bar.set_postfix_str(name)
            measured[name] = stage()
            bar.update()
        bar.set_postfix_str("page")
        result = _conclude(tables, statement, measured)
        bar.update()
    return result


@dataclass(frozen=True)
class _Tables:
    real: pd.DataFrame | None
    synthetic: pd.DataFrame
    holdout: pd.DataFrame | None
    target: Hashable | None
    seed: int


@dataclass(frozen=True)
class _Statement:
    """What is known of a fit's privacy; epsilon is inf where nothing is promised."""

    text: str
    numbers: dict[str, Any]

    @property
    def epsilon(self) -> float:
        epsilon = self.numbers["plan"]["epsilon"]
        return math.inf if epsilon is None else float(epsilon)

    @property
    def delta(self) -> float:
        return float(self.numbers["plan"]["delta"])

    @property
    def private(self) -> bool:
        return math.isfinite(self.epsilon)

    @property
    def best_guess(self) -> float:
        """Most that a test of one row's presence can be right, both being as likely."""
        # (1 + (e - 1 + 2 delta) / (e + 1)) / 2, written so that exp cannot overflow.
        shrunk = math.exp(-self.epsilon)
        return min((1 + self.delta * shrunk) / (1 + shrunk), 1.0)


# Measuring


def _statement(synthesizer: Any) -> _Statement | None:
    if synthesizer is None:
        return None
    try:
        privacy = synthesizer.privacy_
    except AttributeError:
        raise ValueError(
            f"synthesizer must be fitted, with an attribute privacy_; this "
            f"{type(synthesizer).__name__} has none."
        ) from None
    return _Statement(str(privacy), privacy.to_dict())


def _distances(tables: _Tables, k: int) -> pd.DataFrame | None:
    real, seed = tables.real, tables.seed
    if real is None or real.shape[1] < k:
        return None
    found = marginal_distance(
        real, tables.synthetic, k, references=False, random_state=seed
    )
    frame = pd.DataFrame(
        {
            "columns": list(found.sets),
            "distance": found.values,
            "floor": sampling_floor(real, k, random_state=seed).values,
            "baseline": independence_baseline(real, k, random_state=seed).values,
        }
    )
    return frame.sort_values("distance", ascending=False, ignore_index=True)


@dataclass(frozen=True, eq=False)
class _Associations:
    found: AssociationDistance
    floor: float
    baseline: float


def _associations(tables: _Tables) -> _Associations | None:
    real = tables.real
    if real is None or real.shape[1] < 2:
        return None
    rng = np.random.default_rng(tables.seed)
    bootstrap = real.iloc[rng.integers(0, len(real), len(real))]
    permuted = pd.DataFrame(
        {name: real[name].array.take(rng.permutation(len(real))) for name in real}
    )
    return _Associations(
        association_distance(real, tables.synthetic),
        _mean_change(association_distance(real, bootstrap)),
        _mean_change(association_distance(real, permuted)),
    )


def _mean_change(distance: AssociationDistance) -> float:
    """Return the mean absolute difference over pairs of different columns."""
    values = np.abs(distance.difference.to_numpy())
    return float(values[~np.eye(len(values), dtype=bool)].mean())


def _utility(tables: _Tables) -> pd.DataFrame | None:
    if tables.real is None or tables.holdout is None or tables.target is None:
        return None
    return tstr(
        tables.real,
        tables.holdout,
        tables.synthetic,
        tables.target,
        n_rows=UTILITY_ROWS,
        random_state=tables.seed,
    )


def _attack(tables: _Tables, statement: _Statement | None) -> AttackResult | None:
    if tables.real is None or tables.holdout is None:
        return None
    n = min(ATTACK_ROWS, len(tables.real), len(tables.holdout))
    result = monte_carlo_attack(
        _drawn(tables.synthetic, ATTACK_SYNTHETIC_ROWS, tables.seed),
        _drawn(tables.real, n, tables.seed),
        _drawn(tables.holdout, n, tables.seed),
    )
    if statement is None or not statement.private:
        return result
    return replace(result, privacy=((statement.epsilon, statement.delta),))


def _drawn(frame: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    return frame if n >= len(frame) else frame.sample(n, random_state=seed)


def _conclude(
    tables: _Tables, statement: _Statement | None, measured: dict[str, Any]
) -> Report:
    associations: _Associations | None = measured["associations"]
    findings = tuple(
        found
        for judge, name in _JUDGES
        if measured[name] is not None
        and (found := judge(measured[name], tables)) is not None
    )
    facts = measured | {
        "associations": None if associations is None else associations.found,
        "synthetic_associations": (
            association_matrix(tables.synthetic)
            if associations is None
            else associations.found.synthetic
        ),
    }
    result = Report(
        public=tables.real is None,
        findings=findings,
        privacy=None if statement is None else statement.numbers,
        html="",
        **facts,
    )
    return replace(result, html=_page(result, tables, statement))


# Judging


def _severity(value: float, limits: tuple[float, float]) -> float:
    """Place a value: 0 is perfect, 1 the end of good, 2 the end of fair."""
    good, weak = limits
    if value <= good:
        return max(value, 0.0) / good
    return 1 + (value - good) / (weak - good)


def _grade(severity: float) -> str:
    return _GRADES[min(max(math.ceil(severity) - 1, 0), 2)]


def _way(value: float, floor: float, baseline: float) -> float:
    """Return how far from chance to the baseline a value lies, 0 if below."""
    chance = _CHANCE * floor
    return max(value - chance, 0.0) / max(baseline - chance, _VISIBLE)


def _judge_columns(columns: pd.DataFrame, tables: _Tables) -> Finding:
    value, floor = columns["distance"].mean(), columns["floor"].mean()
    text = (
        f"To give every column the real shares, {_percent(value)} of the synthetic "
        f"rows would have to change on average; {_percent(floor)} would be due to "
        "chance alone."
    )
    severity = _severity(value - _CHANCE * floor, LIMITS["columns"])
    return Finding(
        "columns", "rows off, mean of columns", value, floor, math.nan, severity, text
    )


def _judge_worst_column(columns: pd.DataFrame, tables: _Tables) -> Finding:
    excess = columns["distance"] - _CHANCE * columns["floor"]
    worst = columns.loc[excess.idxmax()]
    text = (
        f"The column furthest off is {worst['columns'][0]}: {_percent(worst.distance)} "
        f"of its rows would have to change ({_percent(worst.floor)} by chance alone)."
    )
    severity = _severity(excess.max(), LIMITS["worst column"])
    return Finding(
        "worst column", "rows off, worst column", worst.distance, worst.floor, math.nan,
        severity, text,
    )  # fmt: skip


def _judge_pairs(pairs: pd.DataFrame, tables: _Tables) -> Finding:
    value, floor, baseline = pairs[["distance", "floor", "baseline"]].mean()
    way = _way(value, floor, baseline)
    text = (
        f"To give every pair of columns the real shares, {_percent(value)} of the rows "
        f"would have to change on average; {_percent(floor)} would be due to chance "
        f"alone, and {_percent(baseline)} if no column were related to any other."
    )
    if value >= baseline > floor + _VISIBLE:
        text += " That is no better than columns drawn separately."
    severity = _severity(way, LIMITS["pairs"])
    return Finding(
        "pairs", "rows off, mean of pairs", value, floor, baseline, severity, text
    )


def _judge_worst_pair(pairs: pd.DataFrame, tables: _Tables) -> Finding:
    excess = pairs["distance"] - _CHANCE * pairs["floor"]
    worst = pairs.loc[excess.idxmax()]
    text = (
        f"The pair furthest off is {_joined(worst['columns'])}: "
        f"{_percent(worst.distance)} of its rows would have to change "
        f"({_percent(worst.floor)} by chance alone)."
    )
    severity = _severity(excess.max(), LIMITS["worst pair"])
    return Finding(
        "worst pair", "rows off, worst pair", worst.distance, worst.floor,
        worst.baseline, severity, text,
    )  # fmt: skip


def _judge_associations(associations: _Associations, tables: _Tables) -> Finding:
    found = associations.found
    value = _mean_change(found)
    way = _way(value, associations.floor, associations.baseline)
    if associations.baseline < associations.floor + _VISIBLE:
        start = "The real columns are hardly related, so there is little to lose"
    elif way > _LOST:
        start = "Dependence between columns is lost"
    elif way > LIMITS["associations"][1]:
        start = "Most of the dependence between columns is lost"
    elif way > LIMITS["associations"][0]:
        start = "Dependence between columns is kept in part"
    else:
        start = "Dependence between columns is kept"
    text = (
        f"{start}: the strength of their associations, from 0 to 1, is off by "
        f"{value:.3f} on average (chance alone: {associations.floor:.3f}; unrelated "
        f"columns: {associations.baseline:.3f}). {_most_changed(found)}"
    )
    return Finding(
        "associations", "change of association, mean of pairs", value,
        associations.floor, associations.baseline,
        _severity(way, LIMITS["associations"]), text, percent=False,
    )  # fmt: skip


def _most_changed(found: AssociationDistance) -> str:
    change = np.triu(np.abs(found.difference.to_numpy()), 1)
    i, j = np.unravel_index(int(change.argmax()), change.shape)
    names = found.real.columns[[i, j]]
    before, after = found.real.iloc[i, j], found.synthetic.iloc[i, j]
    if abs(before - after) < 0.005:
        return "No pair changes visibly."
    return (
        f"It changes most for {_joined(names)}: {before:.2f} in the real table, "
        f"{after:.2f} in the synthetic one."
    )


def _judge_models(utility: pd.DataFrame, tables: _Tables) -> Finding | None:
    metric, chance = ("auroc", 0.5) if "auroc" in utility else ("r2", 0.0)
    # One model: an average would hide a loss behind models that real rows mislead, and
    # the best on synthetic rows may be so by luck.
    means = utility.groupby(["model", "trained_on"])[metric].mean().unstack()
    model = means["real"].idxmax()
    real, synthetic = float(means.loc[model, "real"]), means.loc[model, "synthetic"]
    if real - chance < 0.05:
        return None
    loss = (real - synthetic) / (real - chance)
    name, known = METRICS[metric], model_name(str(model))
    if loss <= 0:
        start = f"The best model ({known}) learns no less from synthetic rows"
    else:
        start = f"The best model ({known}) loses {_percent(loss)} of its skill"
    text = (
        f"{start}: predicting {tables.target} in rows never seen, its {name} is "
        f"{synthetic:.3f} after training on synthetic rows and {real:.3f} after "
        f"training on real ones ({chance:g} for guessing)."
    )
    return Finding(
        "models", f"{name}, best model", synthetic, real, chance,
        _severity(loss, LIMITS["models"]), text, percent=False,
    )  # fmt: skip


def _judge_attack(attack: AttackResult, tables: _Tables) -> Finding:
    auc, tail = attack.auc, attack.tpr_at(TAIL)
    severity = max(
        _severity(auc.value - 0.5, LIMITS["attack"]),
        _severity(tail.low / TAIL, _TAIL_LIMITS) if tail.low > TAIL else 0.0,
    )
    start = {
        "good": "The attack tried here hardly tells rows that were used from others",
        "fair": "The attack tried here tells some rows that were used from others",
        "weak": "The attack tried here recognises rows that were used",
    }[_grade(severity)]
    text = (
        f"{start}: of a used and an unused row it picks the used one "
        f"{_percent(auc.value)} of the time ({_round(0.5)} is guessing), and when it "
        f"may accuse {_round(TAIL)} of the unused rows it finds "
        f"{_percent(tail.value)} of the used ones (between {_percent(tail.low)} and "
        f"{_percent(tail.high)})."
    )
    broken = _broken(attack)
    return Finding(
        "attack", "area under the attack's ROC curve", auc.value, 0.5, 1.0,
        max(severity, 3.0) if broken else severity, f"{text}{broken}", percent=False,
    )  # fmt: skip


def _broken(attack: AttackResult) -> str:
    if attack.privacy is None:
        return ""
    epsilon, delta = attack.privacy[0]
    bound = attack.epsilon_lower_bound(delta)
    if bound <= epsilon:
        return ""
    return (
        f" That is more than the promise allows: it takes an epsilon of at least "
        f"{bound:.2f} to explain it, and {epsilon:g} was promised. Do not release."
    )


_JUDGES: tuple[tuple[Callable[[Any, _Tables], Finding | None], str], ...] = (
    (_judge_columns, "columns"),
    (_judge_worst_column, "columns"),
    (_judge_pairs, "pairs"),
    (_judge_worst_pair, "pairs"),
    (_judge_associations, "associations"),
    (_judge_models, "utility"),
    (_judge_attack, "attack"),
)
_TOPICS = {
    "columns": "single columns",
    "worst column": "the worst column",
    "pairs": "pairs of columns",
    "worst pair": "the worst pair of columns",
    "associations": "how columns depend on each other",
    "models": "models trained on the table",
    "attack": "resistance to an attack",
}
_ADVICE = {
    "columns": "Do not quote counts or shares of single columns from this table.",
    "worst column": "Do not rely on that column.",
    "pairs": "Do not cross-tabulate this table.",
    "worst pair": "Do not cross-tabulate that pair.",
    "associations": "Do not study relations between columns with this table.",
    "models": "Do not train models on this table.",
    "attack": "Do not release this table.",
}
_RULES = {
    "columns": "share of rows off, beyond 1.5 times chance alone",
    "worst column": "share of rows off, beyond 1.5 times chance alone",
    "pairs": "share of the way from 1.5 times chance alone to unrelated columns",
    "worst pair": "share of rows off, beyond 1.5 times chance alone",
    "associations": "share of the way from 1.5 times chance alone to unrelated columns",
    "models": "share of skill (score beyond guessing) lost",
    "attack": "area under the ROC curve beyond 0.5 (and, at 1 % false alarms, the "
    "lower end of the hit rate: good up to 2 %, weak beyond 10 %)",
}


# Words and numbers


def _percent(share: float) -> str:
    if 0 < abs(share) < 5e-4:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def _round(share: float) -> str:
    """Return a share that is set, not measured."""
    return f"{100 * share:.3g}\u00a0%"


def _delta(delta: float) -> str:
    return f"{delta:g}, or 1 in {1 / delta:,.0f}" if delta > 0 else "0"


def _joined(names: Iterable[Hashable]) -> str:
    return " and ".join(str(name) for name in names)


def _value(value: float, percent: bool) -> str:
    if math.isnan(value):
        return "\u2013"
    return _percent(value) if percent else f"{value:.3f}"


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _text(value: object) -> str:
    """Return any data-derived string, safe inside HTML text and attributes."""
    return escape(str(value))


# Building HTML: every builder takes HTML and returns HTML; strings from data have
# passed `_text` before.


def _paragraph(content: str, kind: str = "") -> str:
    return f'<p class="{kind}">{content}</p>' if kind else f"<p>{content}</p>"


def _list(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


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
    below = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure>{title}<img src="{_svg(axes)}" alt="{alt}">{below}</figure>'


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


def _section(key: str, title: str, *content: str) -> str:
    return (
        f'<section id="{key}" aria-labelledby="{key}-title">'
        f'<h2 id="{key}-title">{title}</h2>{"".join(content)}</section>'
    )


def _strip(finding: Finding) -> str:
    """Draw where a finding stands: three fields, good to weak, and a dot."""
    x = 6 + 108 * min(finding.severity, 3.0) / 3
    fields = "".join(
        f'<rect x="{6 + 36 * i}" y="4" width="35" height="8" fill="{colour}"/>'
        for i, colour in enumerate(("#cfe3d4", "#f3e6c0", "#f0c9bd"))
    )
    return (
        f'<span class="grade {finding.grade}">{finding.grade}</span>'
        f'<svg viewBox="0 0 120 16" width="120" height="16" role="img" '
        f'aria-label="{finding.grade}">{fields}'
        f'<circle cx="{x:.1f}" cy="8" r="4.5" fill="#1b2a41"/></svg>'
    )


# The page


def _page(result: Report, tables: _Tables, statement: _Statement | None) -> str:
    sections = {
        "verdict": ("Verdict", _verdict(result, statement)),
        "privacy": ("Privacy", _privacy(statement)),
        "columns": ("Column by column", _columns(result, tables)),
        "together": ("Columns together", _together(result)),
        "models": ("Training models", _models(result, tables)),
        "attack": ("An attack", _attacked(result)),
        "glossary": ("Glossary", _glossary(result)),
    }
    shown = {key: each for key, each in sections.items() if each[1]}
    links = "".join(
        f'<li><a href="#{key}">{title}</a></li>' for key, (title, _) in shown.items()
    )
    body = "".join(_section(key, *each) for key, each in shown.items())
    return _DOCUMENT.format(
        style=_STYLE,
        banner=_banner(result, statement),
        facts=_facts(result, tables, statement),
        lead=_lead(result),
        links=links,
        body=body,
    )


def _banner(result: Report, statement: _Statement | None) -> str:
    lines = []
    if statement is not None and not statement.private:
        lines.append("No privacy: the synthetic table itself was made without noise")
    if not result.public:
        lines.append(_PRIVATE)
    return "".join(f'<p class="banner" role="note">{line}</p>' for line in lines)


def _lead(result: Report) -> str:
    if result.public:
        return (
            "This page describes a synthetic table: rows made up by a computer program "
            "to stand in for a table of real rows that is not shown. It was written "
            "without reading the real table."
        )
    return (
        "This page compares a synthetic table, rows made up by a computer program, "
        "with the real table that it stands in for: how far it can be relied on, and "
        "what it may give away."
    )


def _facts(result: Report, tables: _Tables, statement: _Statement | None) -> str:
    facts = {"Synthetic rows": f"{len(tables.synthetic):,}"}
    if tables.real is not None:
        facts["Real rows"] = f"{len(tables.real):,}"
    facts["Columns"] = str(tables.synthetic.shape[1])
    facts["Privacy"] = _short_promise(statement)
    items = "".join(f"<div><dt>{k}</dt><dd>{v}</dd></div>" for k, v in facts.items())
    return f'<dl class="facts">{items}</dl>'


def _short_promise(statement: _Statement | None) -> str:
    if statement is None:
        return "unknown"
    if not statement.private:
        return "none"
    return f"\u03b5 = {statement.epsilon:g}, \u03b4 = {statement.delta:g}"


# Verdict


def _verdict(result: Report, statement: _Statement | None) -> str:
    privacy = _paragraph(_privacy_verdict(statement), "lead")
    if result.public:
        return privacy + _paragraph(
            "How close the table comes to the real one is not said here: that can be "
            "measured on the real rows only, and the answer would describe them."
        )
    ranked = sorted(result.findings, key=lambda each: -each.severity)
    n_weakest = max(_N_WEAKEST, sum(each.grade != "good" for each in ranked))
    weakest, others = ranked[:n_weakest], ranked[: n_weakest - 1 : -1]
    return "".join(
        [
            privacy,
            _paragraph(_quality_verdict(ranked), "lead"),
            '<div class="verdict">',
            f"<div><h3>What is good</h3>{_statements(others)}</div>",
            f"<div><h3>What is weakest</h3>{_statements(weakest)}</div></div>",
            _missing(result),
            _glance(result),
            _grading(),
        ]
    )


def _privacy_verdict(statement: _Statement | None) -> str:
    if statement is None:
        return (
            "<strong>Privacy is unknown.</strong> Nothing was said about how this "
            "table was made, so no protection can be claimed for it."
        )
    if not statement.private:
        return (
            "<strong>There is no privacy.</strong> The table was made without noise: "
            "treat it as you treat the real rows."
        )
    grade = _grade(_severity(statement.epsilon, LIMITS["privacy"]))
    strength = {"good": "strong", "fair": "moderate", "weak": "weak"}[grade]
    return (
        f"<strong>The privacy promise is {strength}</strong> (\u03b5 = "
        f"{statement.epsilon:g}): {_meaning(statement)}"
    )


def _meaning(statement: _Statement) -> str:
    return (
        "whoever knows every other row of the real table and tries to tell whether one "
        "more row was in it is right at most "
        f"{_percent(statement.best_guess)} of the time, where a coin is right "
        f"{_round(0.5)}."
    )


def _quality_verdict(ranked: Sequence[Finding]) -> str:
    weakest, grades = ranked[0], {each.grade for each in ranked}
    topic = _TOPICS[weakest.topic]
    if grades == {"good"}:
        return (
            "<strong>Everything that was measured is good.</strong> What stands "
            f"weakest, though still good: {topic}."
        )
    if "weak" not in grades:
        return (
            "<strong>The table is usable, with limits.</strong> What stands weakest: "
            f"{topic}."
        )
    advice = [_ADVICE[each.topic] for each in ranked if each.grade == "weak"]
    return (
        f"<strong>The table has a weak point: {topic}.</strong> "
        f"{' '.join(dict.fromkeys(advice))}"
    )


def _statements(findings: Sequence[Finding]) -> str:
    if not findings:
        return _paragraph("Nothing that was measured.")
    return _list(
        f"<strong>{_capitalised(_TOPICS[each.topic])} "
        f'<span class="grade {each.grade}">{each.grade}</span></strong><br>'
        f"{_text(each.text)}"
        for each in findings
    )


def _missing(result: Report) -> str:
    reasons = []
    if result.utility is None:
        reasons.append("models (needs a target column and held-out real rows)")
    elif all(each.topic != "models" for each in result.findings):
        reasons.append(
            "models (trained on real rows they hardly do better than guessing)"
        )
    if result.attack is None:
        reasons.append("resistance to an attack (needs held-out real rows)")
    if result.pairs is None:
        reasons.append("pairs of columns (there is one column)")
    return _paragraph(f"Not judged: {'; '.join(reasons)}.") if reasons else ""


def _glance(result: Report) -> str:
    rows = [
        (
            f"{_capitalised(_TOPICS[each.topic])}<br><small>{_text(each.measure)}"
            "</small>",
            f"<strong>{_value(each.value, each.percent)}</strong>",
            _value(each.redrawn, each.percent),
            _value(each.failed, each.percent),
            _strip(each),
        )
        for each in result.findings
    ]
    head = ("Measure", "This table", "Real rows redrawn", "Failed table", "Standing")
    return _table("All measures at a glance", head, rows) + _paragraph(
        "Real rows redrawn: what as many rows drawn from the real table, with "
        "replacement, would score (models: the real rows themselves; the attack: an "
        "attack that guesses). Failed table: every column right but none related to "
        "another; models that guess; an attack that is never wrong."
    )


def _grading() -> str:
    rows = [
        (_capitalised(_TOPICS[key]), rule, _round(good), _round(weak))
        for key, rule in _RULES.items()
        for good, weak in [LIMITS[key]]
    ]
    head = ("Measure", "What is graded", "Good up to", "Weak beyond")
    return (
        "<details><summary>How the grades are set</summary>"
        f"{_table('Limits of the grades', head, rows)}"
        "<p>The limits are conventions of this page. They suit descriptive work; "
        "decide for your own purpose whether they suit it.</p></details>"
    )


# Privacy


def _privacy(statement: _Statement | None) -> str:
    if statement is None:
        return _paragraph(
            "Nothing is known about how this table was made: no synthesizer was handed "
            "to this report. Unless its makers state a guarantee, assume that it may "
            "repeat real rows."
        )
    headline = statement.text.strip().split("\n", 1)[0]
    full = (
        "<details><summary>The statement in full</summary>"
        f"<pre>{_text(statement.text)}</pre></details>"
    )
    if not statement.private:
        return (
            '<p class="alarm"><strong>NO PRIVACY.</strong> This table was made without '
            "noise (epsilon=None). It may repeat real rows, and nothing limits what it "
            f"gives away. Do not release it.</p>{full}"
        )
    numbers = statement.numbers
    terms = {
        "Promise": _text(headline),
        "In plain words": _capitalised(_meaning(statement)),
        "Epsilon (\u03b5)": f"{statement.epsilon:g}; accounted for all releases "
        f"together: {float(numbers['epsilon_spent']):.4f}",
        "Delta (\u03b4)": _delta(statement.delta),
        "Taken as public": _list(map(_text, numbers["public"])),
        "Please note": _list(map(_text, numbers["notes"])),
        "Holds for": "the fitted synthesizer and everything drawn from it. That this "
        "table was drawn from it is taken on trust.",
    }
    items = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in terms.items())
    return f'<dl class="terms">{items}</dl>{full}'


# Column by column


def _columns(result: Report, tables: _Tables) -> str:
    off = result.columns
    names = list(tables.synthetic.columns)
    rows = {}
    if off is not None:
        rows = {each.columns[0]: each for each in off.itertuples()}
        if len(names) > MAX_PICTURES:
            names = list(rows)
    pictures = [
        _column_figure(name, tables, rows.get(name)) for name in names[:MAX_PICTURES]
    ]
    return "".join(
        [
            _columns_text(result.public),
            _shown(len(names), result.public),
            _figures(pictures, "small"),
            "" if off is None else _worst_table(off, "The columns furthest off"),
        ]
    )


def _columns_text(public: bool) -> str:
    if public:
        return _paragraph(
            "The share of every value, or range of values, in the synthetic table."
        )
    return _paragraph(
        'The share of every value, or range of values: <span class="key real"></span> '
        'real, filled; <span class="key synthetic"></span> synthetic, outlined. Where '
        "the outline follows the filling, the column is right. Under each: the share "
        "of rows that would have to change."
    )


def _shown(n: int, public: bool) -> str:
    if n <= MAX_PICTURES:
        return ""
    which = "first" if public else "furthest off"
    return _paragraph(f"Of {n} columns, the {MAX_PICTURES} {which} are drawn.")


def _column_figure(name: Hashable, tables: _Tables, row: Any) -> str:
    real = None if tables.real is None else tables.real[name]
    caption = ""
    alt = f"Shares of the values of {name} in the synthetic table"
    if row is not None:
        caption = f"{_percent(row.distance)} off (chance: {_percent(row.floor)})"
        alt = f"Shares of the values of {name}, real and synthetic: {caption}"
    axes = plot_marginal(real, tables.synthetic[name])
    return _figure(axes, _text(alt), caption, _text(name))


def _worst_table(off: pd.DataFrame, caption: str) -> str:
    single = len(off["columns"][0]) == 1
    order = (
        (off["distance"] - _CHANCE * off["floor"]).sort_values(ascending=False).index
    )
    rows = [
        (
            _text(_joined(each.columns)),
            _percent(each.distance),
            _percent(each.floor),
            *([] if single else [_percent(each.baseline)]),
        )
        for each in off.loc[order[:_N_WORST]].itertuples()
    ]
    head = ["Column" if single else "Pair", "Rows off", "By chance alone"]
    return _table(caption, head if single else [*head, "If unrelated"], rows)


# Columns together


def _together(result: Report) -> str:
    own = result.synthetic_associations
    if len(own) < 2:
        return ""
    found = result.associations
    if found is None:
        axes = plot_association(own)
        return _paragraph(_ASSOCIATION_TEXT) + _figures(
            [_figure(axes, "Heat map of associations in the synthetic table")], "large"
        )
    limit = max(0.1, math.ceil(10 * np.abs(found.difference.to_numpy()).max()) / 10)
    change = plot_association(found.difference, signed=True, limit=limit)
    maps = [
        _figure(plot_association(found.real), _map_alt("the real table"), head="Real"),
        _figure(
            plot_association(found.synthetic), _map_alt("the synthetic table"),
            head="Synthetic",
        ),
        _figure(
            change, "Heat map of the difference between the two",
            "blue: weaker in the synthetic table; red: stronger", "Difference",
        ),
    ]  # fmt: skip
    assert result.pairs is not None
    return "".join(
        [
            _paragraph(_ASSOCIATION_TEXT),
            _figures(maps, "large"),
            _worst_table(result.pairs, "The pairs of columns furthest off"),
            _drawn_pairs(result),
        ]
    )


def _map_alt(where: str) -> str:
    return f"Heat map of the associations between columns in {where}"


def _drawn_pairs(result: Report) -> str:
    assert result.pairs is not None
    n, p = len(result.pairs), len(result.synthetic_associations)
    total = math.comb(p, 2)
    if n == total:
        return ""
    return _paragraph(f"{n} of {total:,} pairs were measured, drawn at random.")


_ASSOCIATION_TEXT = (
    "How strongly two columns go together: 0 (light) where one says nothing about the "
    "other, 1 (dark) where it says everything. Compare a cell with the same cell of "
    "the other picture, not with its neighbours: kinds of columns differ in scale."
)


# Models and the attack


def _models(result: Report, tables: _Tables) -> str:
    scores = result.utility
    if scores is None:
        return ""
    metrics = [name for name in METRICS if name in scores]
    text = (
        f"Models that predict <strong>{_text(tables.target)}</strong> were trained "
        f"twice, on at most {UTILITY_ROWS:,} rows: once on real rows, once on "
        "synthetic ones. All were tested on the same held-out real rows. The closer "
        "the two scores, the better the table replaces the real one for this purpose: "
        '<span class="key dot real"></span> trained on real rows; '
        '<span class="key dot synthetic"></span> trained on synthetic rows.'
    )
    pictures = [
        _figure(
            _without_legend(plot_utility(scores, metric=name)),
            f"{_capitalised(METRICS[name])} of every model, trained on real and on "
            "synthetic rows; the numbers are in the table below",
        )
        for name in metrics
    ]
    return "".join(
        [
            _paragraph(text),
            _figures(pictures, "large"),
            _scores_table(scores, metrics),
        ]
    )


def _without_legend(axes: Axes) -> Axes:
    legend = axes.get_legend()
    assert legend is not None
    legend.remove()
    return axes


def _scores_table(scores: pd.DataFrame, metrics: list[str]) -> str:
    means = (
        scores.groupby(["model", "trained_on"], sort=False)[metrics].mean().unstack()
    )
    means.loc["mean"] = means.mean()
    rows = [
        (
            _text(model_name(str(model))),
            *(
                f"{means.loc[model, (metric, source)]:.3f}"
                for metric in metrics
                for source in ("real", "synthetic")
            ),
        )
        for model in means.index
    ]
    head = [
        f"{_capitalised(METRICS[metric])}, {source}"
        for metric in metrics
        for source in ("real", "synthetic")
    ]
    caption = "Scores on held-out real rows, by what the models were trained on"
    return _table(caption, ["Model", *head], rows)


def _attacked(result: Report) -> str:
    attack = result.attack
    if attack is None:
        return ""
    n_members = int(attack.members.sum())
    n_others = len(attack.members) - n_members
    text = (
        "Can somebody who has a person's row tell from the synthetic table whether it "
        "was among the real ones? A program tried: it counts a row as used when many "
        f"synthetic rows lie close to it. It was run on {n_members:,} rows that were "
        f"used and {n_others:,} that were not, drawn at random."
    )
    alt = "ROC curve of the attack on logarithmic axes; figures in the table below"
    return "".join(
        [
            _paragraph(text),
            f'<div class="beside">{_figure(plot_roc(attack), alt)}<div>',
            _paragraph(_ATTACK_SHOWS),
            _paragraph(_ATTACK_CAP if attack.privacy else _ATTACK_NO_CAP),
            "</div></div>",
            _attack_table(attack),
        ]
    )


def _attack_table(attack: AttackResult) -> str:
    rates = {"Area under the curve": (attack.auc, False, "0.500")}
    for fpr in (0.001, TAIL, 0.1):
        label = f"Used rows found at {100 * fpr:g} % false alarms"
        rates[label] = (attack.tpr_at(fpr), True, _round(fpr))
    rows = [
        (
            label,
            _value(rate.value, percent),
            f"{_value(rate.low, percent)} to {_value(rate.high, percent)}",
            guess,
            _value(rate.cap, percent),
        )
        for label, (rate, percent, guess) in rates.items()
    ]
    head = ("Figure", "This attack", "95 % interval", "Guessing", "Allowed at most")
    return _table("What the attack achieves", head, rows)


_ATTACK_SHOWS = (
    "<strong>What this shows, and what it does not.</strong> An attack that succeeds "
    "shows that rows leak. One that fails shows that this one attack fails, no more: a "
    "cleverer one may succeed, and one person may be easier to find than the average. "
    "Only a privacy guarantee limits every attack on every person."
)
_ATTACK_CAP = (
    "The shaded region is what the guarantee rules out for any attack, on average over "
    "runs, if chance decided row by row which rows were used. A curve from one run may "
    "touch it by chance; the intervals say how much chance there is."
)
_ATTACK_NO_CAP = (
    "No guarantee is known for this table, so there is no limit to draw: how well "
    "another attack would do is open."
)


# Glossary

_TERMS_ALWAYS = {
    "Synthetic table": "Rows drawn from a model of the real table. No row is meant to "
    "be a real person's.",
    "Differential privacy": "A mathematical promise: what is released is almost as "
    "likely whether or not any one row was in the real table. It holds against every "
    "attacker, whatever they know besides.",
    "Epsilon (\u03b5)": "How much 'almost as likely' allows: at most a factor of "
    "e<sup>\u03b5</sup>. Smaller is safer. This page calls up to 1 strong, up to 10 "
    "moderate, more weak, as Ponomareva et al. (2023) do in substance.",
    "Delta (\u03b4)": "A small allowance for the promise to fail.",
    "Adding or removing one row": "What the promise compares: two real tables that "
    "differ in one row. A person with several rows is protected less.",
    "Association": "A number from 0 to 1 for how much one column says about another, "
    "for columns of any kind.",
}
_TERMS_CLOSENESS = {
    "Rows off (total variation distance)": "Half the sum of the differences between "
    "two tables' shares: the share of rows that would have to change for the shares "
    "to agree. Numbers are first sorted into at most 20 ranges that hold about as many "
    "real rows each, so rare large values may share one range with all others.",
    "By chance alone (floor)": "The distance of a table drawn from the real rows "
    "themselves, with replacement: what the luck of "
    "one draw accounts for.",
    "If unrelated (baseline)": "The distance of the real columns, each shuffled on its "
    "own: every column right, every relation gone.",
}
_TERMS_MODELS = {
    "Area under the ROC curve (AUROC)": "Chance that a model ranks a row of the class "
    "above one that is not: 0.5 for guessing, 1 for perfect.",
    "Average precision": "How pure the top of a model's ranking is; the class's share "
    "for guessing, 1 for perfect.",
    "Macro F1": "Balance of hits and false alarms, averaged over classes; 1 for "
    "perfect.",
    "R\u00b2": "Share of a number's variance that a model explains: 0 for guessing the "
    "mean, 1 for perfect.",
}
_TERMS_ATTACK = {
    "Membership inference": "Attack that asks whether a given row was in the real "
    "table.",
    "False and true positive rate": "Share of the unused rows that the attack accuses "
    "wrongly, and of the used rows that it finds.",
    "ROC curve": "All pairs of these two rates, from cautious to reckless.",
}


def _glossary(result: Report) -> str:
    terms = dict(_TERMS_ALWAYS)
    if not result.public:
        terms |= _TERMS_CLOSENESS
    if result.utility is not None:
        terms |= _TERMS_MODELS
    if result.attack is not None:
        terms |= _TERMS_ATTACK
    items = "".join(f"<dt>{k}</dt><dd>{v}</dd>" for k, v in terms.items())
    return f'<dl class="terms">{items}</dl>'


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
  --accent: #c1440e; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0 auto; max-width: 66rem; padding: 0 1.25rem 3rem; background: #fff;
  color: var(--ink); font: 1rem/1.55 "Helvetica Neue", Arial, "Liberation Sans",
  sans-serif; overflow-wrap: break-word; }
h1, h2, h3 { color: var(--head); line-height: 1.2; }
h1 { font-size: 2rem; margin: 2rem 0 .75rem; letter-spacing: -.01em; }
h2 { font-size: 1.4rem; margin: 0 0 .9rem; }
h3 { font-size: 1rem; margin: 0 0 .35rem; }
p, dd, li { max-width: 44rem; }
.lead { font-size: 1.1rem; }
small { color: var(--soft); }
a { color: #1f5a92; }
.banner { max-width: none; margin: 1rem 0; padding: .6rem 1rem; background: #8f1d14;
  color: #fff; font-weight: 700; text-align: center; }
.alarm { max-width: none; padding: 1rem; border: 3px solid #8f1d14; font-size: 1.15rem;
  color: #8f1d14; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem 2.5rem; margin: 1.25rem 0;
  padding: .9rem 0; border-top: 3px solid var(--head);
  border-bottom: 1px solid var(--line); }
.facts dt { color: var(--soft); font-size: .85rem; }
.facts dd { margin: 0; font-size: 1.3rem; font-weight: 600; color: var(--head); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none;
  margin: 0; padding: 0; }
section { margin-top: 2.25rem; padding-top: 1.5rem; border-top: 1px solid var(--line); }
.verdict { display: grid; gap: 0 2.5rem; margin: 1.25rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.verdict > div { border-top: 2px solid var(--head); padding-top: .75rem; }
.verdict ul { list-style: none; margin: 0; padding: 0; }
.verdict li { margin-bottom: .8rem; }
.grade { display: inline-block; min-width: 2.9rem; padding: 0 .4rem;
  border-radius: .2rem; font-size: .8rem; font-weight: 600; text-align: center; }
.grade.good { background: #cfe3d4; color: #123d1f; }
.grade.fair { background: #f3e6c0; color: #4d3a00; }
.grade.weak { background: #f0c9bd; color: #6b1405; }
td svg { margin-left: .6rem; vertical-align: middle; }
.wide { overflow-x: auto; margin: 1.25rem 0; }
table { border-collapse: collapse; min-width: min(100%, 40rem); font-size: .93rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; color: var(--head); padding: 0 0 .4rem; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line);
  text-align: right; vertical-align: top; }
thead th { border-bottom: 2px solid var(--head); vertical-align: bottom;
  font-size: .85rem; }
th:first-child { text-align: left; }
tbody th { font-weight: 400; }
td { white-space: nowrap; }
details td:nth-child(2) { white-space: normal; text-align: left; }
details th:nth-child(2) { text-align: left; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: #1f5a92; }
pre { white-space: pre-wrap; font-size: .85rem; background: #f5f6f8; padding: 1rem; }
.terms { display: grid; gap: .5rem 1.5rem; margin: 0;
  grid-template-columns: minmax(9rem, 13rem) 1fr; }
.terms dt { font-weight: 600; color: var(--head); }
.terms dd { margin: 0; }
.terms ul { margin: 0; padding-left: 1.1rem; }
.figures { display: grid; gap: 1.25rem 1.5rem; margin: 1.25rem 0; }
.figures.small { grid-template-columns:
  repeat(auto-fill, minmax(min(100%, 15rem), 1fr)); }
.figures.large { grid-template-columns:
  repeat(auto-fit, minmax(min(100%, 18.5rem), 1fr)); }
figure { margin: 0; max-width: 32rem; break-inside: avoid; }
figure h3 { overflow: hidden; text-overflow: ellipsis; }
img { display: block; width: 100%; height: auto; }
.beside { display: grid; gap: 1rem 2rem; align-items: center; margin: 1.25rem 0;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
figcaption { color: var(--soft); font-size: .85rem; }
.key { display: inline-block; width: 1.1em; height: .75em; }
.key.real { background: #c9c9c9; }
.key.synthetic { border: 1.5px solid var(--accent); }
.key.dot { width: .7em; height: .7em; border-radius: 50%; }
.key.dot.real { background: #7a7a7a; }
.key.dot.synthetic { background: var(--accent); }
@media (max-width: 40rem) {
  h1 { font-size: 1.5rem; }
  .terms { grid-template-columns: 1fr; gap: .1rem; }
  .terms dd { margin-bottom: .75rem; }
  th, td { padding-right: .5rem; }
}
@media print {
  @page { margin: 16mm; }
  body { max-width: none; padding: 0; font-size: 9.5pt; }
  nav { display: none; }
  .wide { overflow: visible; }
  .figures.small { grid-template-columns: repeat(3, 1fr); }
  .figures.large { grid-template-columns: repeat(3, 1fr); }
  .beside { grid-template-columns: 1fr 1fr; }
  h2, h3, caption { break-after: avoid; }
  tr, li { break-inside: avoid; }
  .banner, .grade, svg, .key { -webkit-print-color-adjust: exact;
    print-color-adjust: exact; }
}
"""
