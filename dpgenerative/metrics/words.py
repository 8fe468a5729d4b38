"""The sentences of a report: numbers and grades in, plain English out."""

from collections.abc import Hashable, Iterable, Sequence

import pandas as pd

LOST = "Columns that lost values"
RANGES = "Columns whose range differs from the real one"
MOST_NAMED = 12
"""Columns named at most, where more have the same fault."""


def percent(share: float) -> str:
    """Write a measured share."""
    if 0 < abs(share) < 5e-4:
        return "under 0.1\u00a0%"
    return f"{100 * share:.1f}\u00a0%"


def exact(share: float) -> str:
    """Write a share that is set, not measured."""
    return f"{100 * share:.3g}\u00a0%"


def joined(names: Iterable[Hashable]) -> str:
    """Enumerate columns, the first few of many."""
    several = [str(name) for name in names]
    if len(several) > MOST_NAMED:
        rest = len(several) - MOST_NAMED + 1
        several[MOST_NAMED - 1 :] = [f"{rest} others"]
    return " and ".join(filter(None, [", ".join(several[:-1]), *several[-1:]]))


def losses(found: pd.DataFrame) -> list[str]:
    """Write a line on each of the first columns in a table of losses."""
    lines = [f"{each.column} {each.loss}" for each in found.itertuples()]
    rest = len(lines) - MOST_NAMED
    return lines if rest <= 0 else [*lines[:MOST_NAMED], f"and {rest} more"]


def rows_off(value: float, floor: float) -> str:
    """Tell the mean distance of single columns."""
    return (
        f"To give every column the real shares, {percent(value)} of the synthetic rows "
        f"would have to change on average; {percent(floor)} would be due to chance "
        "alone."
    )


def rows_off_in_pairs(value: float, floor: float, baseline: float, futile: bool) -> str:
    """Tell the mean distance of pairs of columns."""
    text = (
        f"To give every pair of columns the real shares, {percent(value)} of the "
        f"synthetic rows would have to change on average; {percent(floor)} would be "
        f"due to chance alone, and {percent(baseline)} if no column were related to "
        "any other."
    )
    if futile:
        text += " That is no better than columns drawn separately."
    return text


def furthest_off(columns: Sequence[Hashable], value: float, floor: float) -> str:
    """Tell which column or pair is furthest from the real table."""
    kind = "column" if len(columns) == 1 else "pair"
    return (
        f"The {kind} furthest off is {joined(columns)}: {percent(value)} of its rows "
        f"would have to change ({percent(floor)} by chance alone)."
    )


def dependence(kept: str, value: float, floor: float, baseline: float) -> str:
    """Tell how much of the dependence between columns is kept."""
    start = {
        "none to keep": "The real columns are hardly related, so there is little to "
        "lose",
        "lost": "Dependence between columns is lost",
        "weak": "Most of the dependence between columns is lost",
        "fair": "Dependence between columns is kept in part",
        "good": "Dependence between columns is kept",
    }[kept]
    return (
        f"{start}: the strength of their associations, from 0 to 1, is off by "
        f"{value:.3f} on average (chance alone: {floor:.3f}; unrelated columns: "
        f"{baseline:.3f})."
    )


def most_changed(names: Iterable[Hashable], before: float, after: float) -> str:
    """Tell which pair's association changes most."""
    if abs(before - after) < 0.005:
        return "No pair changes visibly."
    return (
        f"It changes most for {joined(names)}: {before:.2f} in the real table, "
        f"{after:.2f} in the synthetic one."
    )


def skill(
    model: str, score: str, target: Hashable, real: float, made: float, chance: float
) -> str:
    """Tell what the best model loses by training on synthetic rows."""
    start = f"The best model ({model}) learns no less from synthetic rows"
    if made < real:
        loss = (real - made) / (real - chance)
        start = f"The best model ({model}) loses {percent(loss)} of its skill"
    return (
        f"{start}: predicting {target} in rows never seen, its {score} is {made:.3f} "
        f"after training on synthetic rows and {real:.3f} after training on real ones "
        f"({chance:g} for guessing)."
    )


def attacked(
    grade: str, auc: float, false_alarms: float, hits: tuple[float, float, float]
) -> str:
    """Tell how well an attack did; `hits` are a rate and the ends of its interval."""
    start = {
        "good": "The attack tried here hardly tells rows that were used from others",
        "fair": "The attack tried here tells some rows that were used from others",
        "weak": "The attack tried here recognises rows that were used",
    }[grade]
    rate, low, high = map(percent, hits)
    return (
        f"{start}: of a used and an unused row it picks the used one {percent(auc)} of "
        f"the time ({exact(0.5)} is guessing), and when it may accuse "
        f"{exact(false_alarms)} of the unused rows it finds {rate} of the used ones "
        f"(between {low} and {high})."
    )


def beyond_guarantee(bound: float, epsilon: float) -> str:
    """Tell that an attack succeeded more than the guarantee allows."""
    return (
        f" That is more than the guarantee allows: it takes an epsilon of at least "
        f"{bound:.2f} to explain it, and {epsilon:g} was guaranteed (unless the used "
        "and the unused rows differ in other ways, such as a year). Do not release."
    )
