"""What one trial of a private search may spend."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpgenerative.exceptions import InfeasibleBudgetError
from dpgenerative.fitting.domain import Domain
from dpgenerative.privacy import selection
from dpgenerative.privacy.accounting import gaussian_multiplier
from dpgenerative.privacy.ledger import Ledger, refuse_difference, within
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer

ENOUGH = 0.98
"""Share of the budget that is enough: there the search for a trial's budget stops."""


@dataclass(frozen=True)
class TrialBudget:
    """What one trial may spend, and the bound on the search that follows.

    Attributes
    ----------
    epsilon, delta : float
        Of a trial's fit.
    n_rows : int
        Row count as released.
    n_train : int
        What trials take for the row count of their training parts.
    n_test : float
        Expected number of rows held out.
    score_multiplier : float
        Noise multiplier of a score.
    bound : float
        Epsilon of the search, without its row count.
    plans : tuple of PrivacyPlan
        Of a trial's fit, one per candidate.
    """

    epsilon: float
    delta: float
    n_rows: int
    n_train: int
    n_test: float
    score_multiplier: float
    bound: float
    plans: tuple[PrivacyPlan, ...]

    def check(self, ledger: Ledger, pure: float, n_trials: int) -> None:
        """Raise `LedgerError` unless the search did what was planned.

        The fits of trials have ledgers of their own; this one has their number, the
        scores and the row count.
        """
        scores = ledger.losses.get("score", [])
        most = self.score_multiplier**-2
        refuse_difference(
            {
                "row count": ledger.n_rows == self.n_rows
                and within(ledger.count_epsilon, pure),
                "trials": max(ledger.n_fits, len(scores)) <= n_trials,
                "scores": bool(scores) and all(within(loss, most) for loss in scores),
                "others": set(ledger.losses) == {"score"}
                and not ledger.key_delta
                and not ledger.steps,
            }
        )


@dataclass(frozen=True)
class Calibration:
    """Public facts about all trials, which determine what one of them may spend.

    Attributes
    ----------
    fits : sequence of (Synthesizer, Domain)
        A candidate's synthesizer and table each.
    trials : TrialDistribution
    n_rows : int
        As released.
    holdout : float
    epsilon, delta : float
        Of the search, without the count of the rows.
    """

    fits: Sequence[tuple[Synthesizer, Domain]]
    trials: selection.TrialDistribution
    n_rows: int
    holdout: float
    epsilon: float
    delta: float

    def largest(self) -> TrialBudget | None:
        """Return the largest budget of a trial; None where not even a small one fits.

        The search's epsilon grows about in proportion to a trial's, so that a step in
        proportion usually lands within 2 % below the target; bisection catches the
        rest. A budget counts only if its own bound is within the target.
        """
        low, high = math.log(self.epsilon) - 5, math.log(self.epsilon) + 2
        guess = math.log(self.epsilon / 2)
        best = None
        for _ in range(14):
            budget = self.budget(math.exp(guess))
            used = math.inf if budget is None else budget.bound / self.epsilon
            if used <= 1:
                low, best = guess, budget
            else:
                high = guess
            if ENOUGH < used <= 1 or high - low < 0.01:
                break
            step = guess - math.log(used / 0.99)
            guess = step if low < step < high else (low + high) / 2
        return best

    def budget(self, epsilon: float) -> TrialBudget | None:
        """Return the budget of a trial of this epsilon; None if no noise can keep it.

        Keys that trials release cost the search their delta many times over
        (`privacy.selection`): a trial's delta is then a share of the search's.
        """
        try:
            budget = self._budget(epsilon, self.delta)
            if any(plan.threshold_delta for plan in budget.plans):
                share = selection.key_share(self.trials, self.epsilon)
                budget = self._budget(epsilon, self.delta * share)
        except InfeasibleBudgetError:
            return None
        return budget

    def _budget(self, epsilon: float, delta: float) -> TrialBudget:
        n_train = max(1, round((1 - self.holdout) * self.n_rows))
        n_test = max(1.0, self.holdout * self.n_rows)
        for synthesizer, _ in self.fits:
            synthesizer.set_params(epsilon=epsilon, delta=delta)
        plans = tuple(
            session.planned_fit(s, domain).plan(n_train) for s, domain in self.fits
        )
        multiplier = gaussian_multiplier(epsilon, delta)
        bound = selection.selection_epsilon(
            plans, multiplier, self.trials, self.epsilon, self.delta
        )
        return TrialBudget(
            epsilon, delta, self.n_rows, n_train, n_test, multiplier, bound, plans
        )
