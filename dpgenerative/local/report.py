"""The privacy report of a local randomizer."""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpgenerative.privacy.report import Report, weak_epsilon


@dataclass(frozen=True)
class Feature:
    """How one transform perturbs a feature.

    Attributes
    ----------
    name : hashable
    epsilon : float
    mechanism : str
    """

    name: Hashable
    epsilon: float
    mechanism: str


@dataclass(frozen=True, repr=False)
class LocalReport(Report):
    """What every `transform` reveals of each record, and what is assumed public.

    Attributes
    ----------
    epsilon, delta : float
        For all values u, v of a record that are neighbours and all sets S of outcomes,
        ``P(S | u) <= e^epsilon P(S | v) + delta``. The sum over the features.
    features : tuple of Feature
        How each is perturbed, and what it costs.
    public : tuple of str
        Facts assumed public.
    neighbours : str
        Which values of a record are neighbours.
    record_epsilon : float
        Epsilon for any two values of a record.
    notes : tuple of str
        What weakens or limits the statement.
    """

    epsilon: float
    delta: float
    features: tuple[Feature, ...]
    public: tuple[str, ...]
    neighbours: str
    record_epsilon: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return asdict(self)

    def _headline(self) -> str:
        pair = f"{self.epsilon:g}" + (f", {self.delta:g}" if self.delta else "")
        any_two = f"; any two values: epsilon {self.record_epsilon:g}"
        return (
            f"({pair})-local differential privacy between {self.neighbours}, towards "
            "everybody who sees what a transform returns"
            f"{any_two if self.record_epsilon != self.epsilon else ''}."
        )

    def _lists(self) -> dict[str, Sequence[str]]:
        total = sum(feature.epsilon for feature in self.features)
        lines = [
            f"{each.name}: {each.mechanism} (epsilon {each.epsilon:.4g})"
            for each in self.features
        ]
        if len(lines) > 1:
            lines.append(f"all {len(lines)} features of a record: epsilon {total:.4g}")
        return {
            "Perturbed, record by record": lines,
            "Assumed public (nothing spent on them)": self.public,
            "Please note": self.notes,
        }


def usual_notes(noise: str, epsilon: float) -> tuple[str, ...]:
    """Return what holds of every randomizer, and of the noise and epsilon chosen."""
    notes = [
        "Every transform of a record spends this much again, that of a pipeline that "
        "predicts included: perturb once, and keep the result.",
        "A person with k records gets k times epsilon.",
        "y is not read and not perturbed: a private target belongs into X.",
        "Not covered: timing, memory.",
        *weak_epsilon(epsilon),
    ]
    if noise == "reproducible":
        notes.insert(
            0,
            'noise="reproducible": noise follows random_state; whoever knows the seed '
            "can remove it, and the same noise comes again after every fit: the "
            "difference of two records that share it is exact. Never for a release.",
        )
    return tuple(notes)
