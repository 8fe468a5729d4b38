"""Grades: what the measurements of a report mean, in numbers and in plain English.

A value is placed between what chance alone explains (the floor) and what a useless
table would score (the baseline), and `LIMITS` cuts that way into good, fair and weak.
The page prints this rule.
"""

import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dpgenerative.metrics.analyses import ANALYSES, AnalysisErrors
from dpgenerative.metrics.dependence import AssociationDistance
from dpgenerative.metrics.measuring import CHANCE, GONE, Measured, mean_change, retained
from dpgenerative.metrics.membership import AttackResult
from dpgenerative.metrics.plots import SCORES, model_name
from dpgenerative.metrics.utility import main_score, mean_scores
from dpgenerative.metrics.words import LOST, RANGES, exact, listed, losses, percent

LIMITS = {
    "lost": (0.05, GONE),
    "range": (0.001, 0.01),
    "columns": (0.02, 0.10),
    "worst column": (0.05, 0.20),
    "means": (0.02, 0.10),
    "deviations": (0.05, 0.25),
    "calendar": (0.02, 0.10),
    "means by group": (0.05, 0.20),
    "combinations": (0.01, 0.10),
    "pairs": (1 / 3, 2 / 3),
    "worst pair": (0.10, 0.30),
    "associations": (1 / 3, 2 / 3),
    "worst association": (0.10, 0.30),
    "models": (0.10, 1 / 3),
    "attack": (0.05, 0.15),
    "privacy": (1.0, 10.0),
}
"""Good up to the first number, weak beyond the second; the page states of what."""
GRADES = ("good", "fair", "weak")
TAIL = 0.01
"""False positive rate at which the attack is read."""

MOSTLY_LOST = (
    "A column that lost over a fifth of its values enters no grade of columns, pairs "
    "or associations."
)

_TAIL_LIMITS = (2.0, 10.0)
_LOST = 0.8  # share of the way to the baseline from which dependence counts as lost
_VISIBLE = 0.02  # least span between floor and baseline whose parts mean something
_LEAST_SKILL = 0.05  # beyond guessing, of models that have some skill to lose
_DEPENDENCE = {
    "good": "Dependence between columns is preserved",
    "fair": "Dependence between columns is preserved in part",
    "weak": "Most of the dependence between columns is lost",
}
_ATTACKED = {
    "good": "hardly distinguishes rows that were used from others",
    "fair": "distinguishes some rows that were used from others",
    "weak": "recognises rows that were used",
}


_ANALYSES: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "means": (
        "change of a mean in standard deviations, column furthest off",
        "The mean that is furthest off is that of {0}: {made:.4g} for {real:.4g}, "
        "{value} standard deviations away (chance alone: {floor}).",
        "{:.2f}".format,
    ),
    "deviations": (
        "relative change of a standard deviation, column furthest off",
        "The standard deviation that is furthest off is that of {0}: {made:.4g} for "
        "{real:.4g}, {value} of it (chance alone: {floor}).",
        percent,
    ),
    "calendar": (
        "rows off in hours, weekdays or months, column furthest off",
        "{value} of the rows would have to change to give {0} the real hours, weekdays "
        "and months (chance alone: {floor}).",
        percent,
    ),
    "means by group": (
        "change of a group's mean in standard deviations, group furthest off",
        "The mean by group that is furthest off is that of {0}: {made:.4g} for "
        "{real:.4g}, {value} standard deviations away (chance alone: {floor}).",
        "{:.2f}".format,
    ),
    "combinations": (
        "excess of combinations that no real row has, worst pair of columns",
        "{made:.1%} of the synthetic rows have a combination of {0} that no real row "
        "has (of new real rows {real:.1%} would).",
        percent,
    ),
}
"""By topic: what is measured, the sentence on it, and how its numbers are written."""


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
        return grade(self.severity)


def strength(epsilon: float) -> str:
    """Return what to call a guarantee: strong, moderate or weak."""
    names = {"good": "strong", "fair": "moderate", "weak": "weak"}
    return names[grade(severity(epsilon, LIMITS["privacy"]))]


def best_guess(epsilon: float, delta: float) -> float:
    """Return the largest accuracy of a membership test where half are members."""
    # (1 + (e - 1 + 2 delta) / (e + 1)) / 2, written so that exp cannot overflow.
    ratio = math.exp(-epsilon)
    return min((1 + delta * ratio) / (1 + ratio), 1.0)


def severity(value: float, limits: tuple[float, float]) -> float:
    """Scale a value: 0 is perfect, good ends at 1, fair at 2."""
    good, weak = limits
    if value <= good:
        return max(value, 0.0) / good
    return 1 + (value - good) / (weak - good)


def grade(severity: float) -> str:
    """Return the grade of a severity."""
    return GRADES[min(max(math.ceil(severity) - 1, 0), 2)]


def judge(measured: Measured, target: Hashable | None) -> Iterator[Finding]:
    """Yield what was measured and can be graded, in the order of the page."""
    if measured.lost is not None and len(measured.lost):
        what = "rows that lost a value, worst column"
        yield _judge_listed("lost", what, LOST, measured.lost)
    if measured.ranges is not None and len(measured.ranges):
        what = "rows beyond the other's range"
        yield _judge_listed("range", what, RANGES, measured.ranges)
    if measured.columns is not None and measured.lost is not None:
        singles = measured.columns["columns"].str[0]
        judged = measured.columns[singles.isin(retained(measured.lost, singles))]
        yield _judge_columns(judged)
        yield _judge_worst(judged, "column")
    if measured.analyses is not None:
        yield from _judge_analyses(measured.analyses)
    if measured.pairs is not None:
        if _has_relations(measured):
            yield _judge_pairs(measured.pairs)
        yield _judge_worst(measured.pairs, "pair")
    if measured.associations is not None and measured.reference_changes is not None:
        chance, floor, baseline = measured.reference_changes
        yield _judge_associations(measured.associations, chance, floor, baseline)
        yield _judge_worst_association(measured.associations, floor)
    if measured.utility is not None:
        yield from _judge_models(measured.utility, target)
    if measured.attack is not None:
        yield _judge_attack(measured.attack)


def _judge_listed(topic: str, what: str, title: str, lost: pd.DataFrame) -> Finding:
    value, text = float(lost["share"].iloc[0]), f"{title}: {'; '.join(losses(lost))}."
    if topic == "lost" and value > GONE:
        text += f" {MOSTLY_LOST}"
    return Finding(
        topic, what, value, 0.0, math.nan, severity(value, LIMITS[topic]), text,
        about=tuple(lost["column"]),
    )  # fmt: skip


def _judge_columns(off: pd.DataFrame) -> Finding:
    value, floor = off[["distance", "floor"]].mean()
    text = (
        f"To give every column the real shares, {percent(value)} of the synthetic rows "
        f"would have to change on average; {percent(floor)} would be due to chance "
        "alone."
    )
    severe = severity(value - CHANCE * floor, LIMITS["columns"])
    what = "total variation distance, mean of columns"
    return Finding("columns", what, value, floor, math.nan, severe, text)


def _judge_analyses(errors: AnalysisErrors) -> Iterator[Finding]:
    """Judge the result of each kind that is furthest off."""
    chance = _effects(errors.redrawn)
    for topic, effects in _effects(errors.table).items():
        if effects.empty:
            continue
        floor = chance[topic]["effect"].max()
        worst = effects.loc[effects["effect"].idxmax()]
        value, about, group = worst["effect"], worst["about"][:2], worst["about"][2:]
        what, text, written = _ANALYSES[topic]
        name = "{} where {} is {}".format(*worst["about"]) if group else listed(about)
        text = text.format(
            name, real=worst["real"], made=worst["synthetic"], value=written(value),
            floor=written(floor),
        )  # fmt: skip
        severe = severity(value - CHANCE * floor, LIMITS[topic])
        is_share = topic in ("calendar", "combinations")
        yield Finding(
            topic, what, value, floor, math.nan, severe, text, is_share, about
        )


def _effects(table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return results by topic, and how far each is off on a scale of its own."""
    stds = table[table["analysis"] == "standard deviation"]
    stds = dict(zip(stds["about"].str[0], stds["real"], strict=True))
    change = table["synthetic"] - table["real"]
    scaled = change.abs() / table["about"].str[0].map(stds.get)
    of = {name: table["analysis"] == name for name in ANALYSES}
    dated = of["hours"] | of["weekdays"] | of["months"]
    effects = {
        "means": (of["mean"], scaled),
        "deviations": (of["standard deviation"], scaled),
        "calendar": (dated, change.abs()),
        "means by group": (of["mean by group"], scaled),
        "combinations": (of["combinations"], change.clip(0)),
    }
    return {
        topic: table[rows].assign(effect=values[rows]).dropna(subset="effect")
        for topic, (rows, values) in effects.items()
    }


def _judge_pairs(off: pd.DataFrame) -> Finding:
    value, floor, baseline = off[["distance", "floor", "baseline"]].mean()
    text = (
        f"To give every pair of columns the real shares, {percent(value)} of the "
        f"synthetic rows would have to change on average; {percent(floor)} would be "
        f"due to chance alone, and {percent(baseline)} if no column were related to "
        "any other."
    )
    if value >= baseline > floor + _VISIBLE:
        text += " That is no better than columns drawn separately."
    severe = severity(_way(value, floor, baseline), LIMITS["pairs"])
    what = "total variation distance, mean of pairs"
    return Finding("pairs", what, value, floor, baseline, severe, text)


def _judge_worst(off: pd.DataFrame, kind: str) -> Finding:
    worst, topic = off.iloc[0], f"worst {kind}"
    value, floor, about = worst["distance"], worst["floor"], worst["columns"]
    text = (
        f"The {kind} furthest beyond chance is {listed(about)}: {percent(value)} of "
        f"its rows would have to change ({percent(floor)} by chance alone)."
    )
    severe = severity(value - CHANCE * floor, LIMITS[topic])
    failed = worst["baseline"] if kind == "pair" else math.nan
    what = f"total variation distance, {kind} furthest beyond chance"
    return Finding(topic, what, value, floor, failed, severe, text, about=about)


def _has_relations(measured: Measured) -> bool:
    """Return whether real columns are related beyond chance, so that this can be lost.

    Of unrelated columns, pairs of other rows differ as much as those of columns that
    are drawn separately.
    """
    if measured.reference_changes is None:
        return True
    _, floor, baseline = measured.reference_changes
    return _mean_excess(baseline, floor) >= _VISIBLE


def _mean_excess(changes: np.ndarray, floor: np.ndarray) -> float:
    """Return by how much pairs of columns change more than by chance, on average."""
    pairs = np.triu_indices(len(changes), 1)
    return float(np.maximum(changes - CHANCE * floor, 0.0)[pairs].mean())


def _way(value: float, floor: float, baseline: float) -> float:
    """Return where a value lies between chance (0) and the baseline (1), at least 0."""
    chance = CHANCE * floor
    return max(value - chance, 0.0) / max(baseline - chance, _VISIBLE)


def _judge_associations(
    change: AssociationDistance, chance: float, floor: np.ndarray, baseline: np.ndarray
) -> Finding:
    value = mean_change(change)
    unrelated = float(baseline[np.triu_indices(len(baseline), 1)].mean())
    beyond = _mean_excess(change.difference.abs().to_numpy(), floor)
    most = _mean_excess(baseline, floor)
    way = beyond / max(most, _VISIBLE)
    severe = severity(way, LIMITS["associations"])
    start = _DEPENDENCE[grade(severe)]
    if most < _VISIBLE:
        start = (
            "On average the real columns are hardly related: there is little to lose"
        )
    elif way > _LOST:
        start = "Dependence between columns is lost"
    text = (
        f"{start}: the strength of their associations, from 0 to 1, is off by "
        f"{value:.3f} on average (chance alone: {chance:.3f}; unrelated columns: "
        f"{unrelated:.3f})."
    )
    return Finding(
        "associations", "change of association, mean of pairs", value, chance,
        unrelated, severe, text, percent=False,
    )  # fmt: skip


def _judge_worst_association(change: AssociationDistance, floor: np.ndarray) -> Finding:
    excess, topic = change.difference.abs() - CHANCE * floor, "worst association"
    pairs = np.triu_indices(len(floor), 1)
    k = excess.to_numpy()[pairs].argmax()
    i, j = (int(places[k]) for places in pairs)
    about, chance = (excess.columns[i], excess.columns[j]), float(floor[i, j])
    real, made = (float(x.iloc[i, j]) for x in (change.real, change.synthetic))
    text = (
        f"The association that changes furthest beyond chance is that of "
        f"{listed(about)}: {real:.2f} in the real table, {made:.2f} in the synthetic "
        f"one (chance alone changes it by {chance:.2f})."
    )
    severe = severity(float(excess.iloc[i, j]), LIMITS[topic])
    what = "change of association, pair furthest beyond chance"
    return Finding(
        topic, what, abs(made - real), chance, real, severe, text, percent=False,
        about=about,
    )  # fmt: skip


def _judge_models(utility: pd.DataFrame, target: Hashable) -> Iterator[Finding]:
    metric = main_score(utility)
    chance = 0.5 if metric == "auroc" else 0.0
    # One model: an average would hide a loss behind models that real rows mislead, and
    # the best on synthetic rows may be so by luck.
    means = mean_scores(utility, [metric])[metric]
    model = means["real"].idxmax()
    real, made = float(means.loc[model, "real"]), float(means.loc[model, "synthetic"])
    if real - chance < _LEAST_SKILL:
        return
    loss, score = (real - made) / (real - chance), SCORES[metric]
    learns = "learns no less from synthetic rows"
    if made < real:
        learns = f"loses {percent(loss)} of its skill"
    text = (
        f"The best model ({model_name(str(model))}) {learns}: predicting {target} in "
        f"rows not used, its {score} is {made:.3f} after training on synthetic rows "
        f"and {real:.3f} after training on real ones ({chance:g} for guessing)."
    )
    severe, what = severity(loss, LIMITS["models"]), f"{score}, best model"
    yield Finding("models", what, made, real, chance, severe, text, percent=False)


def _judge_attack(attack: AttackResult) -> Finding:
    auc, tail = attack.auc.value, attack.tpr_at(TAIL)
    severe = severity(auc - 0.5, LIMITS["attack"])
    if tail.low > TAIL:
        severe = max(severe, severity(tail.low / TAIL, _TAIL_LIMITS))
    text = (
        f"The attack tried here {_ATTACKED[grade(severe)]}: of a used and an unused "
        f"row it selects the used one {percent(auc)} of the time ({exact(0.5)} is "
        f"guessing), and when it may accuse {exact(TAIL)} of the unused rows it "
        f"recognises {percent(tail.value)} of the used ones (between "
        f"{percent(tail.low)} and {percent(tail.high)})."
    )
    if attack.privacy is not None:
        epsilon, delta = attack.privacy[0]
        bound = attack.epsilon_lower_bound(delta)
        if bound > epsilon:
            severe = max(severe, 3.0)
            text += (
                " That is more than the guarantee allows: it takes an epsilon of at "
                f"least {bound:.2f} to explain it, and {epsilon:g} was guaranteed "
                "(unless the used and the unused rows differ in other ways, such as a "
                "year). Do not release."
            )
    what = "area under the attack's ROC curve"
    return Finding("attack", what, auc, 0.5, 1.0, severe, text, percent=False)
