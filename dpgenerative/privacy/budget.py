"""A budget of several fits, which refuses a fit that would exceed it.

Formal guarantee: everything that fits inside ``with PrivacyBudget(epsilon, delta)``
release together is (epsilon, delta)-DP for adding or removing one row, however each fit
was chosen from the results of those before it: epsilons and deltas of adaptively chosen
mechanisms add up (Rogers, Roth, Ullman and Vadhan 2016, Theorem 3.6). The tighter
composition theorems hold for budgets that are fixed in advance, and a with-block cannot
know that they were: `accounting.epsilon_of_pairs` is for those who do. Transforms of
local randomizers hide what a record holds, not that it is there: their sum holds for
replacing a record; in one of both kinds every fit's epsilon counts twice.
"""

from __future__ import annotations

import math
import os
import threading
from dataclasses import dataclass
from pickle import PicklingError
from types import TracebackType
from typing import NoReturn, Self

from dpgenerative._validation import check_delta, check_number
from dpgenerative.exceptions import BudgetExceededError
from dpgenerative.privacy.ledger import Ledger

_ROUNDING = 1e-12
"""Share by which sums of decimal fractions may miss their mark: 0.1 + 0.2 > 0.3."""

_lock = threading.RLock()
_open: list[PrivacyBudget] = []
_payers: dict[str, list[PrivacyBudget]] = {}
"""Budgets that have paid for a fit that is not finished, by its name."""


@dataclass(frozen=True)
class Trial:
    """A fit that charges no budget: a private search has paid, or no row is private.

    It may meet a table of no rows, and does not warn.

    Attributes
    ----------
    n_rows : int, optional
        The row count that a search released; None: the fit releases its own.
    ledger : Ledger
        Counts the fits: of a search, its own.
    """

    n_rows: int | None
    ledger: Ledger


class PrivacyBudget:
    """A total that the fits inside a with-block may not exceed.

    A fit of a synthesizer (alone, in a pipeline, in a search or inside another
    estimator) asks before it counts a row, and raises where its epsilon or delta would
    take the sum over the budget; nothing is spent then. One that was let in counts as
    spent, even if it fails later. A transform of a local randomizer is charged like a
    fit, for each record: it hides what the record holds, not that it is there, and for
    replacing a record every fit's epsilon counts twice. Budgets can be nested; a fit
    must fit into all. The budget can be entered again, and goes on where it was.

    Parameters
    ----------
    epsilon : float
        Total epsilon, > 0 and finite.
    delta : float
        Total delta in (0, 1).

    Attributes
    ----------
    fits : list of (str, float, float)
        Name of the estimator, epsilon and delta of every fit let in, in order.

    Notes
    -----
    The budget holds in all threads of one process. Worker processes cannot share it,
    so that inside the block no synthesizer is sent to one, or pickled or copied
    otherwise: searches run with ``n_jobs=1`` or with joblib's threading backend. What
    a worker makes and fits itself is not counted, unless the process was forked: open
    a budget in every worker, for its part of the total. A search turns the refusal of a
    candidate into a score of NaN unless ``error_score="raise"``.

    A fit with a key of persons (:doc:`/persons`) counts for a person, another one for a
    row: the total holds for what all of them protect.

    Scores of private rows and other statistics that take no budget are not counted, nor
    is how often a fit is given a person: draws with replacement, as by a bagging
    ensemble unless ``bootstrap=False``, make several rows of one.

    Examples
    --------
    >>> from dpgenerative import PrivacyBudget
    >>> with PrivacyBudget(epsilon=2.0, delta=1e-5) as budget:
    ...     pass  # fits
    >>> budget.remaining
    (2.0, 1e-05)
    """

    def __init__(self, epsilon: float, delta: float) -> None:
        check_number("PrivacyBudget", "epsilon", epsilon, low=0)
        check_delta("PrivacyBudget", delta)
        self.epsilon = float(epsilon)
        self.delta = float(delta)
        self.fits: list[tuple[str, float, float]] = []
        self._process = os.getpid()
        self._refused: str | None = None

    def __enter__(self) -> Self:
        with _lock:
            _open.append(self)
        self._refused = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _lock:
            _open.remove(self)
        # joblib raises this one instead, of which the text says nothing.
        if isinstance(error, PicklingError) and self._refused:
            raise BudgetExceededError(self._refused) from error

    def __getstate__(self) -> NoReturn:
        _refuse(
            "A PrivacyBudget cannot be pickled or copied: two would count apart. Use "
            "threads, or open PrivacyBudget(*budget.remaining) in the other process "
            "and no longer this one."
        )

    def __repr__(self) -> str:
        (epsilon, delta), n = self.spent, len(self.fits)
        return (
            f"PrivacyBudget({self.epsilon:g}, {self.delta:g}): {epsilon:g} and "
            f"{delta:g} spent by {n} fit{'s' * (n != 1)}"
        )

    @property
    def spent(self) -> tuple[float, float]:
        """Epsilon and delta of all fits let in, by basic composition."""
        epsilons = math.fsum(epsilon for _, epsilon, _ in self.fits)
        return epsilons, math.fsum(delta for _, _, delta in self.fits)

    @property
    def remaining(self) -> tuple[float, float]:
        """Epsilon and delta that further fits may spend."""
        epsilon, delta = self.spent
        return max(0.0, self.epsilon - epsilon), max(0.0, self.delta - delta)

    def _check(self, call: str, epsilon: float, delta: float) -> None:
        if os.getpid() != self._process:
            raise BudgetExceededError(
                f"{call} runs in another process than its PrivacyBudget, which "
                "cannot count it. Use n_jobs=1 or joblib's threading backend."
            )
        total_epsilon = math.fsum([self.spent[0], epsilon])
        total_delta = math.fsum([self.spent[1], delta])
        enough = total_epsilon <= self.epsilon * (1 + _ROUNDING)
        if not enough or total_delta > self.delta * (1 + _ROUNDING):
            left = " and ".join(f"{number:g}" for number in self.remaining)
            why = " (inf is a fit that states no epsilon.)" * math.isinf(epsilon)
            raise BudgetExceededError(
                f"{call} asks for epsilon={epsilon:g} and delta={delta:g}; the "
                f"PrivacyBudget({self.epsilon:g}, {self.delta:g}) has {left} left. "
                f"Nothing was spent.{why}"
            )


def charge(
    owner: str,
    epsilon: float | None,
    delta: float,
    fit: str | None = None,
    method: str = "fit",
) -> None:
    """Charge a fit that is about to begin to all open budgets, or raise.

    A budget that has paid for the beginning of an interrupted `fit`, by its name, does
    not pay again for the rest.

    Raises
    ------
    BudgetExceededError
        If one of them cannot pay; none is charged then.
    """
    cost = math.inf if epsilon is None else epsilon
    with _lock:
        payers = [] if fit is None else _payers.setdefault(fit, [])
        charged = [budget for budget in _open if budget not in payers]
        for budget in charged:
            budget._check(f"{owner}.{method}", cost, delta)
        for budget in charged:
            budget.fits.append((owner, cost, delta))
        payers += charged


def finished(fit: str) -> None:
    """Let budgets charge what goes on from a copy of a finished fit's beginning.

    With noise of the system's generator its end would be another release.
    """
    with _lock:
        _payers.pop(fit, None)


def refuse_workers(owner: str) -> None:
    """Raise if a budget is open: a copy fitted elsewhere would not be counted."""
    if _open:
        _refuse(
            f"{owner} cannot be pickled or copied inside a PrivacyBudget, which counts "
            "no fits of other processes. Use n_jobs=1 or joblib's threading backend, "
            "or open a budget in every process for its part; clone instead of copying, "
            "and pickle what is fitted after the block."
        )


def _refuse(text: str) -> NoReturn:
    """Raise, and let open budgets repeat the error if joblib hides it."""
    for budget in list(_open):
        budget._refused = text
    raise BudgetExceededError(text)
