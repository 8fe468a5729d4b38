"""The result of an audit, and the checks that all audits share."""

from dataclasses import dataclass
from typing import Any

from dpgenerative._random import Streams
from dpgenerative._validation import check_number, count
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.tables import BaseTableSynthesizer

GAIN = 1e3
"""Input of a canary: its weight's gradient is this many times its bias's."""


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon, and the epsilon that is claimed.

    Attributes
    ----------
    audit : str
        What was played.
    lower_bound : float
        Epsilon is at least this, at `delta`, with the confidence stated.
    confidence : float
        Probability, over the audit's own draws, that the bound holds.
    epsilon, delta : float
        What the configuration claims of a whole fit for `unit`: of a row, with
        `max_rows_per_unit`, its share of what is promised a person.
    best : float
        About what the strongest adversary of this game could show if the claim were
        exactly met: with as many trials, of one step (`audit_mechanism`) with endless
        ones.
    n_trials : int
        Number of guesses, or of trials to choose guesses from.
    unit : str, default="one row"
        What is protected: "one person" where rows have a key of persons.
    """

    audit: str
    lower_bound: float
    confidence: float
    epsilon: float
    delta: float
    best: float
    n_trials: int
    unit: str = "one row"

    @property
    def share(self) -> float:
        """Lower bound over claimed epsilon, at most 1 for a claim that holds."""
        return self.lower_bound / self.epsilon

    @property
    def holds(self) -> bool:
        """Whether the lower bound stays within the claim."""
        return self.lower_bound <= self.epsilon

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        verdict = "within" if self.holds else "BEYOND"
        return (
            f"{self.audit}: with {100 * self.confidence:g} % confidence epsilon is at "
            f"least {self.lower_bound:.3f} at delta {self.delta:g} for {self.unit}, "
            f"{verdict} the claimed {self.epsilon:g} ({100 * self.share:.0f} % of it; "
            f"{self.n_trials} trials; an ideal adversary would show about "
            f"{min(self.best, self.epsilon):.3f})."
        )

    def __str__(self) -> str:
        return self.sentence


def check(owner: str, estimator: Any, confidence: Any, random_state: Any) -> None:
    """Require a synthesizer with a guarantee, and parameters in their ranges."""
    if not isinstance(estimator, Synthesizer):
        raise TypeError(
            f"{owner} takes a synthesizer of this package; got "
            f"{type(estimator).__name__}."
        )
    session.check_parameters(estimator)
    if session.stated_epsilon(estimator) is None:
        raise ValueError(
            f"{owner}: the estimator has epsilon={estimator.epsilon!r}, which promises "
            "nothing that could be audited. Set a finite epsilon."
        )
    check_number(owner, "confidence", confidence, low=0, high=1)
    count(0, [None])(owner, "random_state", random_state)


def check_steps(owner: str, estimator: Synthesizer, plan: PrivacyPlan) -> None:
    """Require gradients, without which there is no training to audit."""
    if not plan.n_steps:
        or_else = ", or use audit_release" * isinstance(estimator, BaseTableSynthesizer)
        raise ValueError(
            f"{owner}: a fit of {plan.n_rows} rows takes no gradients. State n_steps"
            f"{or_else}."
        )


def streams_of(estimator: Synthesizer, seed: int | None, device: str) -> Streams:
    """Return the random streams of an audit, seeded if a seed is given."""
    noise = "reproducible" if seed is not None else estimator.noise
    return Streams.create(seed, noise, device)
