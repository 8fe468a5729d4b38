"""The report of a fit: what was released, with which noise, and what to expect of it.

Public and released numbers alone decide what it states.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any

from dpgenerative._files import encodable
from dpgenerative.privacy.plan import PrivacyPlan, count_std

HOPELESS = 20.0
"""Rows times epsilon per column below which even single columns are mostly noise."""
FEW = 150
"""Rows times epsilon per column up to which there is little beyond marginals, which
then get the larger share."""

NO_PRIVACY = 1000.0
"""Epsilon above which reports state that there is no privacy."""

UNTRAINED = (
    "Without training, the whole budget goes to noisy counts, above all "
    "to one-way marginals. Columns are independent unless a contingency table or "
    "public rows relate them."
)


class Report:
    """A headline and lists below it, as text and on a page."""

    def _headline(self) -> str:
        raise NotImplementedError

    def _lists(self) -> dict[str, Sequence[str]]:
        raise NotImplementedError

    def __str__(self) -> str:
        lines = [self._headline(), ""]
        for title, items in self._lists().items():
            lines += [f"{title}:", *(f"  - {item}" for item in items)] if items else []
        return encodable("\n".join(lines))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        lists = "".join(
            f"<p>{title}:</p><ul>{''.join(f'<li>{escape(i)}</li>' for i in items)}</ul>"
            for title, items in self._lists().items()
            if items
        )
        page = f"<p><strong>{escape(self._headline())}</strong></p>{lists}"
        return encodable(page)


@dataclass(frozen=True, repr=False)
class PrivacyReport(Report):
    """What one fit released, with which noise, and which facts are assumed public.

    Attributes
    ----------
    plan : PrivacyPlan
    epsilon_spent : float
        Upper bound of what the releases cost at delta, given the released row count;
        the guaranteed epsilon at most, whatever the count. Inf without privacy.
    clipping : str
        Strategy and norm.
    public : tuple of str
        Facts assumed public.
    notes : tuple of str
        What weakens or limits the statement.
    unit : str
        Whose addition or removal is protected, where it is one record.
    """

    plan: PrivacyPlan
    epsilon_spent: float
    clipping: str
    public: tuple[str, ...]
    notes: tuple[str, ...] = field(default=())
    unit: str = "one row"

    @property
    def epsilon(self) -> float:
        """Epsilon of the guarantee; inf without privacy."""
        return self.plan.guarantee[0]

    @property
    def delta(self) -> float:
        """Delta of the guarantee."""
        return self.plan.guarantee[1]

    def curve(self) -> tuple[tuple[float, float], ...]:
        """Return the guaranteed (epsilon, delta), then pairs of the released count.

        The guaranteed pair holds for all outcomes, the others for those with the row
        count that was released (`PrivacyPlan.curve` has the proof). An attack on one
        fit knows its count, and is compared with the least of their bounds. Empty
        without privacy.
        """
        return self.plan.curve()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for strict JSON; None stands for infinity.

        Beside the fields: the guaranteed pair, adjacency and releases in words.
        """
        adjacency = f"adding or removing {self._unit()}"
        words = {"adjacency": adjacency, "releases": self._releases()}
        pair = (self.epsilon, self.delta) if self.plan.private else (None, self.delta)
        return {"guarantee": pair, **words, **asdict(self, dict_factory=_strict)}

    def _lists(self) -> dict[str, Sequence[str]]:
        return {
            "Released": self._releases(),
            "Assumed public (nothing spent on them)": self.public,
            "Please note": self.notes,
        }

    def _headline(self) -> str:
        plan = self.plan
        if not plan.private:
            return "NO PRIVACY: fitted without noise (no epsilon). Do not release."
        epsilon, delta = plan.guarantee
        warning = "" if epsilon <= NO_PRIVACY else "NO PRIVACY, whatever its name: "
        return (
            f"{warning}({epsilon:g}, {delta:g})-differential privacy for adding or "
            f"removing {self._unit()}; the accountant computed epsilon "
            f"{self.epsilon_spent:.4f} at delta {delta:g}."
        )

    def _unit(self) -> str:
        plan = self.plan
        if plan.rows_per_unit == 1:
            return self.unit
        return (
            f"all rows of one person, at most {plan.rows_per_unit} "
            f"(group privacy from ({plan.epsilon:.4g}, {plan.delta:.4g}) for one row)"
        )

    def _releases(self) -> list[str]:
        plan = self.plan
        noise = f"geometric, epsilon {plan.count_epsilon:g}"
        noise = noise if plan.private else "exact"
        what = self.unit.removeprefix("one ").split(",")[0]
        lines = [f"{what} count {plan.n_rows} ({noise})"]
        if plan.mean_trials:
            lines.append(
                f"the best by noisy score of a random number of trials (logarithmic, "
                f"mean {plan.mean_trials:g}), each on its own part of the rows, with:"
            )
        lines += [str(each) for each in plan.releases if each.stage == "rows"]
        if plan.threshold_delta:
            lines.append(
                "unknown levels and frequent values (thresholded, "
                f"{plan.threshold_delta:g} of delta)"
            )
        lines += [str(each) for each in plan.releases if each.stage == "norm"]
        if plan.n_steps:
            lines.append(
                f"{plan.n_steps} gradient steps (Poisson sampling rate "
                f"{plan.sampling_rate:.4g}, noise multiplier "
                f"{plan.noise_multiplier:.4g}, {self.clipping})"
            )
        return lines + [str(each) for each in plan.releases if each.stage == "model"]


def _strict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {name: None if value == math.inf else value for name, value in pairs}


def outlook(plan: PrivacyPlan, n_columns: int) -> str:
    """Return what a table of so many columns can be expected to show.

    A rule of public and released numbers: "hopeless" below `HOPELESS` rows times
    epsilon per column, or where the row count is within twice the standard deviation of
    its own noise; "marginals only" up to `FEW`, and without training; else "good".
    """
    if not plan.private:
        return "good"
    rows = _rows_per_column(plan, n_columns)
    if rows < HOPELESS or plan.n_rows < 2 * count_std(plan.count_epsilon):
        return "hopeless"
    return "marginals only" if rows <= FEW or not plan.n_steps else "good"


def _rows_per_column(plan: PrivacyPlan, n_columns: int) -> float:
    return plan.n_rows * plan.epsilon / max(1, n_columns)


def cautions(
    plan: PrivacyPlan, n_columns: int, of_people: bool = False
) -> tuple[str, ...]:
    """Return the cautions of a budget, from public and released numbers alone.

    What was counted are rows, or people.
    """
    if not plan.private:
        return ()
    untrained = [] if plan.n_steps or not n_columns else [UNTRAINED]
    weak = weak_outlook(plan, n_columns, of_people)
    return (*weak, *untrained, *_weak_guarantee(plan))


def weak_outlook(
    plan: PrivacyPlan, n_columns: int, of_people: bool = False
) -> list[str]:
    """Return the caution of a budget that leaves little to learn, if any."""
    prospect = outlook(plan, n_columns)
    noise = f"noise of standard deviation {count_std(plan.count_epsilon):.3g}"
    counted = ("person", "people") if of_people else ("row", "rows")
    rows = f"{plan.n_rows} {counted[plan.n_rows != 1]} (released, with {noise})"
    if not n_columns:  # arrays
        numbers = f"{rows} and epsilon {plan.epsilon:.3g}"
        advice = "Use rows of more people or a larger epsilon."
        few = f"Little but noise can be learned from {numbers}. {advice}"
        return [few] if prospect == "hopeless" else []
    columns = f"{n_columns} column{'s' * (n_columns != 1)}"
    numbers = f"{rows}, epsilon {plan.epsilon:.3g} and {columns}"
    singles = "expect single columns to be right, and little more."
    if all(each.stage != "rows" for each in plan.releases):
        singles = "not even single columns are counted; expect little."
    words = {
        "hopeless": f"Little but noise can be learned from {numbers}: even single "
        "columns are mostly noise. Use rows of more people, fewer columns or a larger "
        "epsilon; dpgenerative.forecast says beforehand what to expect.",
        "marginals only": f"Few relations between columns can be learned from "
        f"{numbers}: {singles}",
    }
    is_small = prospect == "hopeless" or _rows_per_column(plan, n_columns) <= FEW
    return [words[prospect]] if prospect in words and is_small else []


def _weak_guarantee(plan: PrivacyPlan) -> list[str]:
    epsilon, delta = plan.guarantee
    large = (
        f"delta {delta:g} should be below 1/n (about {1 / max(plan.n_rows, 1):.0e} "
        "here, by the released count): publishing one random record unchanged would "
        "satisfy it. Choose a smaller one."
    )
    return [*[large] * (delta * plan.n_rows > 1), *weak_epsilon(epsilon)]


def weak_epsilon(epsilon: float) -> list[str]:
    """Return the caution of a large epsilon, if any."""
    if epsilon > NO_PRIVACY:
        return [
            f"epsilon {epsilon:.3g} is no privacy: it allows an attacker to identify "
            "every row from what was released. Protect it like the rows themselves."
        ]
    if epsilon > 10:
        return [
            f"epsilon {epsilon:g} promises next to nothing by itself: an attacker can "
            "be almost certain whether a row took part. Below 10 is usual, about 1 is "
            "strong."
        ]
    return []
