"""One page on a synthetic table: privacy, closeness, use, attack, in plain words.

`report` measures, grades and writes a self-contained HTML page. A page computed from
real rows describes them and says so in a banner; ``public=True`` leaves out, and does
not compute, anything but the privacy statement and the synthetic table's own figures.

Every grade comes from the measurements by the rule printed on the page: a value is
placed between what chance alone explains (the floor) and what a useless table would
score (the baseline), and `LIMITS` cuts that way into good, fair and weak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from dpgenerative._progress import watched
from dpgenerative.metrics.attacks import monte_carlo_attack
from dpgenerative.metrics.columns import aligned, takes_tables
from dpgenerative.metrics.dependence import (
    AssociationDistance,
    association_distance,
    association_matrix,
)
from dpgenerative.metrics.fidelity import (
    independence_baseline,
    marginal_distance,
    sampling_floor,
)
from dpgenerative.metrics.losses import changed_ranges, lost_values
from dpgenerative.metrics.membership import AttackResult
from dpgenerative.metrics.page import (
    LOST,
    RANGES,
    described,
    exact,
    joined,
    percent,
    write_page,
)
from dpgenerative.metrics.plots import METRICS, model_name
from dpgenerative.metrics.utility import tstr

if TYPE_CHECKING:
    from dpgenerative.privacy.plan import PrivacyReport

ATTACK_ROWS = 2_000
"""Members and non-members attacked, each, at most."""
ATTACK_SYNTHETIC_ROWS = 20_000
"""Synthetic rows that the attack looks at, at most."""
UTILITY_ROWS = 10_000
"""Rows that each model is trained on, at most."""
LIMITS = {
    "lost": (0.05, 0.20),
    "range": (0.001, 0.01),
    "columns": (0.02, 0.10),
    "worst column": (0.05, 0.20),
    "pairs": (1 / 3, 2 / 3),
    "worst pair": (0.10, 0.30),
    "associations": (1 / 3, 2 / 3),
    "models": (0.10, 1 / 3),
    "attack": (0.05, 0.15),
    "privacy": (1.0, 10.0),
}
"""Good up to the first number, weak beyond the second; the page says of what."""
TAIL = 0.01
"""False positive rate at which the attack is read."""

_TAIL_LIMITS = (2.0, 10.0)
_CHANCE = 1.5  # floors that pass as chance: two draws of one population are 1.41 apart
_LOST = 0.8  # of the way to the baseline from which dependence counts as lost
_VISIBLE = 0.02  # least span between floor and baseline that a share can be taken of
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
    about : tuple of hashable
        Columns that it is about; empty for all of them.
    """

    topic: str
    measure: str
    value: float
    redrawn: float
    failed: float
    severity: float
    text: str
    percent: bool = True
    about: tuple[Hashable, ...] = ()

    @property
    def order(self) -> tuple[bool, float]:
        """Key that sorts what weighs most first: lost values, then by severity."""
        return self.topic != "lost", -self.severity

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
    privacy : PrivacyReport or None
        The synthesizer's `privacy_`.
    lost, ranges : DataFrame or None
        Columns that lost values, and columns of numbers or times that end elsewhere
        than the real ones: ``column``, ``share`` of rows, and ``loss`` in words, the
        largest share first.
    columns, pairs : DataFrame or None
        Total variation distance of one- and two-way marginals: columns ``columns``,
        ``distance``, ``floor`` and ``baseline``, the furthest beyond chance first.
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
    privacy: PrivacyReport | None
    lost: pd.DataFrame | None
    ranges: pd.DataFrame | None
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
        """Return the findings without their texts, one a row."""
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
        weakest = min(self.findings, key=lambda each: each.order)
        name = f"{weakest.topic} ({joined(weakest.about)})".removesuffix(" ()")
        counts = [
            f"{sum(each.grade == grade for each in self.findings)} {grade}"
            for grade in _GRADES
        ]
        return f"Report({', '.join(counts)}; weakest: {name})"

    def __str__(self) -> str:
        lines = [repr(self)]
        for title, found in ((LOST, self.lost), (RANGES, self.ranges)):
            if found is not None and len(found):
                lines += [f"{title}:", *(f"  {line}" for line in described(found))]
        return "\n".join(lines)


@takes_tables
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
        The fitted synthesizer. Its `privacy_` is read, and of its `schema_` which
        columns are identifiers: these were made anew, and are left out. That the
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
    real, synthetic, holdout = _without_identifiers(
        synthesizer, real, synthetic, holdout
    )
    synthetic = aligned(synthetic if real is None else real, synthetic)
    if target is not None and target not in synthetic.columns:
        raise ValueError(
            f"target must be one of {list(synthetic.columns)}; got {target!r}."
        )
    if holdout is not None:
        holdout = aligned(synthetic, holdout, ("synthetic", "holdout"))
    tables = Tables(real, synthetic, holdout, target, random_state)
    measured = {
        name: stage(tables, statement)
        for name, stage in watched(_STAGES.items(), "report", verbose)
    }
    return _conclude(tables, statement, measured)


@dataclass(frozen=True)
class Tables:
    """What is read; without `real`, a public page is made."""

    real: pd.DataFrame | None
    synthetic: pd.DataFrame
    holdout: pd.DataFrame | None
    target: Hashable | None
    seed: int

    @property
    def n_trained(self) -> int:
        """Rows that each model is trained on, at most."""
        return UTILITY_ROWS

    @property
    def n_attacked(self) -> int:
        """Synthetic rows that the attack looks at."""
        return min(ATTACK_SYNTHETIC_ROWS, len(self.synthetic))


@dataclass(frozen=True)
class Statement:
    """What a fit promises the unit of its privacy: one row, or a person."""

    report: PrivacyReport

    @property
    def epsilon(self) -> float:
        """Promised; inf where nothing is."""
        return self.report.plan.promise[0]

    @property
    def delta(self) -> float:
        return self.report.plan.promise[1]

    @property
    def private(self) -> bool:
        return self.report.plan.private

    @property
    def most_rows(self) -> int:
        """Rows that the promise protects together."""
        return self.report.plan.rows_per_unit

    @property
    def strength(self) -> str:
        grade = _grade(_severity(self.epsilon, LIMITS["privacy"]))
        return {"good": "strong", "fair": "moderate", "weak": "weak"}[grade]

    @property
    def best_guess(self) -> float:
        """Most that a test of the unit's presence is right, both being as likely."""
        # (1 + (e - 1 + 2 delta) / (e + 1)) / 2, written so that exp cannot overflow.
        shrunk = math.exp(-self.epsilon)
        return min((1 + self.delta * shrunk) / (1 + shrunk), 1.0)


# Measuring


def _statement(synthesizer: Any) -> Statement | None:
    if synthesizer is None:
        return None
    try:
        privacy = synthesizer.privacy_
    except AttributeError:
        raise ValueError(
            f"synthesizer must be fitted, with an attribute privacy_; this "
            f"{type(synthesizer).__name__} has none."
        ) from None
    return Statement(privacy)


def _without_identifiers(synthesizer: Any, *tables: Any) -> list[Any]:
    """Leave out what was made anew: numbers from 1 on are far from any real keys."""
    schema = getattr(synthesizer, "schema_", None)
    keys = () if schema is None else [c.name for c in schema.columns if c.role == "id"]
    return [
        table.drop(columns=[name for name in keys if name in table])
        if isinstance(table, pd.DataFrame)
        else table
        for table in tables
    ]


def _judged(
    tables: Tables, judge: Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]
) -> pd.DataFrame | None:
    return None if tables.real is None else judge(tables.real, tables.synthetic)


def _distances(tables: Tables, k: int) -> pd.DataFrame | None:
    real, seed = tables.real, tables.seed
    if real is None or real.shape[1] < k:
        return None
    found = marginal_distance(
        real, tables.synthetic, k, references=False, random_state=seed
    )
    off = pd.DataFrame(
        {
            "columns": list(found.sets),
            "distance": found.values,
            "floor": sampling_floor(real, k, random_state=seed).values,
            "baseline": independence_baseline(real, k, random_state=seed).values,
        }
    )
    excess = off["distance"] - _CHANCE * off["floor"]
    order = excess.sort_values(ascending=False, kind="stable").index
    return off.loc[order].reset_index(drop=True)


def _associations(tables: Tables) -> AssociationDistance | None:
    if tables.real is None or tables.real.shape[1] < 2:
        return None
    return association_distance(tables.real, tables.synthetic)


def _utility(tables: Tables) -> pd.DataFrame | None:
    real, holdout, target = tables.real, tables.holdout, tables.target
    if real is None or holdout is None or target is None:
        return None
    return tstr(
        real, holdout, tables.synthetic, target,
        n_rows=tables.n_trained, random_state=tables.seed,
    )  # fmt: skip


def _attack(tables: Tables, statement: Statement | None) -> AttackResult | None:
    real, holdout, seed = tables.real, tables.holdout, tables.seed
    if real is None or holdout is None:
        return None
    n = min(ATTACK_ROWS, len(real), len(holdout))
    return monte_carlo_attack(
        _drawn(tables.synthetic, tables.n_attacked, seed),
        _drawn(real, n, seed),
        _drawn(holdout, n, seed),
        privacy=None if statement is None else statement.report.curve(),
    )


def _drawn(frame: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    return frame if n >= len(frame) else frame.sample(n, random_state=seed)


_STAGES: dict[str, Callable[[Tables, Statement | None], Any]] = {
    "lost": lambda tables, _: _judged(tables, lost_values),
    "ranges": lambda tables, _: _judged(tables, changed_ranges),
    "columns": lambda tables, _: _distances(tables, 1),
    "pairs": lambda tables, _: _distances(tables, 2),
    "associations": lambda tables, _: _associations(tables),
    "utility": lambda tables, _: _utility(tables),
    "attack": _attack,
}


def _conclude(
    tables: Tables, statement: Statement | None, measured: dict[str, Any]
) -> Report:
    judged = (
        judge(measured[name], tables)
        for name, judge in _JUDGES
        if measured[name] is not None
    )
    found = measured["associations"]
    result = Report(
        public=tables.real is None,
        findings=tuple(each for each in judged if each is not None),
        privacy=None if statement is None else statement.report,
        synthetic_associations=association_matrix(tables.synthetic)
        if found is None
        else found.synthetic,
        html="",
        **measured,
    )
    return replace(result, html=write_page(result, tables, statement, LIMITS))


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


def _judge_lost(found: pd.DataFrame, tables: Tables) -> Finding | None:
    return _judge_listed(found, "lost", "rows that lost a value, worst column", LOST)


def _judge_ranges(found: pd.DataFrame, tables: Tables) -> Finding | None:
    return _judge_listed(found, "range", "rows beyond the other's range", RANGES)


def _judge_listed(
    found: pd.DataFrame, topic: str, measure: str, title: str
) -> Finding | None:
    if found.empty:
        return None
    value = float(found["share"].iloc[0])
    return Finding(
        topic, measure, value, 0.0, math.nan, _severity(value, LIMITS[topic]),
        f"{title}: {'; '.join(described(found))}.",
        about=tuple(found["column"]),
    )  # fmt: skip


def _judge_mean(off: pd.DataFrame, tables: Tables) -> Finding:
    value, floor, baseline = off[["distance", "floor", "baseline"]].mean()
    single = len(off["columns"][0]) == 1
    text = (
        f"To give every {'column' if single else 'pair of columns'} the real shares, "
        f"{percent(value)} of the synthetic rows would have to change on average; "
        f"{percent(floor)} would be due to chance alone"
    )
    if single:
        severity = _severity(value - _CHANCE * floor, LIMITS["columns"])
        return Finding(
            "columns", "rows off, mean of columns", value, floor, math.nan, severity,
            f"{text}.",
        )  # fmt: skip
    text += f", and {percent(baseline)} if no column were related to any other."
    if value >= baseline > floor + _VISIBLE:
        text += " That is no better than columns drawn separately."
    severity = _severity(_way(value, floor, baseline), LIMITS["pairs"])
    return Finding(
        "pairs", "rows off, mean of pairs", value, floor, baseline, severity, text
    )


def _judge_worst(off: pd.DataFrame, tables: Tables) -> Finding:
    worst = off.iloc[0]
    single = len(worst["columns"]) == 1
    kind = "column" if single else "pair"
    text = (
        f"The {kind} furthest off is {joined(worst['columns'])}: "
        f"{percent(worst.distance)} of its rows would have to change "
        f"({percent(worst.floor)} by chance alone)."
    )
    excess = worst.distance - _CHANCE * worst.floor
    return Finding(
        f"worst {kind}", f"rows off, worst {kind}", worst.distance, worst.floor,
        math.nan if single else worst.baseline,
        _severity(excess, LIMITS[f"worst {kind}"]), text, about=worst["columns"],
    )  # fmt: skip


def _judge_associations(found: AssociationDistance, tables: Tables) -> Finding:
    value, (floor, baseline) = _mean_change(found), _references(tables)
    way = _way(value, floor, baseline)
    if baseline < floor + _VISIBLE:
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
        f"{value:.3f} on average (chance alone: {floor:.3f}; unrelated columns: "
        f"{baseline:.3f}). {_most_changed(found)}"
    )
    return Finding(
        "associations", "change of association, mean of pairs", value, floor, baseline,
        _severity(way, LIMITS["associations"]), text, percent=False,
    )  # fmt: skip


def _references(tables: Tables) -> tuple[float, float]:
    """Return the mean change of association by chance alone, and if all is lost."""
    real = tables.real
    assert real is not None
    rng = np.random.default_rng(tables.seed)
    bootstrap = real.iloc[rng.integers(0, len(real), len(real))]
    permuted = pd.DataFrame(
        {name: real[name].array.take(rng.permutation(len(real))) for name in real}
    )
    floor, baseline = (
        association_distance(real, each) for each in (bootstrap, permuted)
    )
    return _mean_change(floor), _mean_change(baseline)


def _mean_change(distance: AssociationDistance) -> float:
    """Return the mean absolute difference over pairs of different columns."""
    values = np.abs(distance.difference.to_numpy())
    return float(values[~np.eye(len(values), dtype=bool)].mean())


def _most_changed(found: AssociationDistance) -> str:
    change = np.triu(np.abs(found.difference.to_numpy()), 1)
    i, j = np.unravel_index(int(change.argmax()), change.shape)
    names = found.real.columns[[i, j]]
    before, after = found.real.iloc[i, j], found.synthetic.iloc[i, j]
    if abs(before - after) < 0.005:
        return "No pair changes visibly."
    return (
        f"It changes most for {joined(names)}: {before:.2f} in the real table, "
        f"{after:.2f} in the synthetic one."
    )


def _judge_models(utility: pd.DataFrame, tables: Tables) -> Finding | None:
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
        start = f"The best model ({known}) loses {percent(loss)} of its skill"
    text = (
        f"{start}: predicting {tables.target} in rows never seen, its {name} is "
        f"{synthetic:.3f} after training on synthetic rows and {real:.3f} after "
        f"training on real ones ({chance:g} for guessing)."
    )
    return Finding(
        "models", f"{name}, best model", synthetic, real, chance,
        _severity(loss, LIMITS["models"]), text, percent=False,
    )  # fmt: skip


def _judge_attack(attack: AttackResult, tables: Tables) -> Finding:
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
        f"{percent(auc.value)} of the time ({exact(0.5)} is guessing), and when it "
        f"may accuse {exact(TAIL)} of the unused rows it finds "
        f"{percent(tail.value)} of the used ones (between {percent(tail.low)} and "
        f"{percent(tail.high)})."
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
        f"{bound:.2f} to explain it, and {epsilon:g} was promised (unless the used and "
        "the unused rows differ in other ways, such as a year). Do not release."
    )


_JUDGES: tuple[tuple[str, Callable[[Any, Tables], Finding | None]], ...] = (
    ("lost", _judge_lost),
    ("ranges", _judge_ranges),
    ("columns", _judge_mean),
    ("columns", _judge_worst),
    ("pairs", _judge_mean),
    ("pairs", _judge_worst),
    ("associations", _judge_associations),
    ("utility", _judge_models),
    ("attack", _judge_attack),
)
