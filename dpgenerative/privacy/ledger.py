"""The ledger of a fit: what its mechanisms really did, in public numbers.

A plan says what a fit will cost; the ledger says what it did cost. The mechanisms and
the sampler write into it by themselves: the released row count and its epsilon, the
privacy loss of every Gaussian release on all rows, the risk of released keys, and for
every gradient the sampling rate, the noise multiplier and the divisor. No value of a
row is among them. `PrivacyPlan.check` compares both.

Edge cases: a release without noise has infinite loss, one of no sensitivity has none.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scipy.special import ndtr

from dpgenerative.exceptions import LedgerError

_ROUNDING = 1e-9
"""Relative rounding error allowed between spent and planned sums."""


@dataclass
class Ledger:
    """What was released, with the sensitivities that the callers declared.

    Attributes
    ----------
    n_rows : int or None
        The released row count.
    count_epsilon : float
        What it cost, pure.
    losses : dict of str to list of float
        By name, of every Gaussian release on all rows: the square of sensitivity over
        standard deviation, in which such releases add up.
    key_delta : float
        Bound of the probability that a key of one row was released.
    steps : dict of (float or None, float, float) to int
        Number of gradients by sampling rate (None: of no sampled batch), noise
        multiplier, and divisor of the sum.
    n_fits : int
        Fits that a private search has paid for.
    """

    n_rows: int | None = None
    count_epsilon: float = 0.0
    losses: dict[str, list[float]] = field(default_factory=dict)
    key_delta: float = 0.0
    steps: dict[tuple[float | None, float, float], int] = field(default_factory=dict)
    n_fits: int = 0
    _rate: float | None = field(default=None, repr=False)

    def count(self, n_rows: int, epsilon: float) -> None:
        """Note a released row count."""
        self.n_rows = n_rows
        self.count_epsilon += epsilon

    def gaussian(self, release: str, std: float, sensitivity: float) -> None:
        """Note a Gaussian release on all rows."""
        loss = (sensitivity / std) ** 2 if std else math.inf
        self.losses.setdefault(release, []).append(loss)

    def keys(self, release: str, std: float, threshold: float) -> None:
        """Note a release of keys, and the risk that the key of one row passes."""
        self.gaussian(release, std, 1.0)
        # Noise is rounded: a single row passes with as much as floor(threshold) - 1/2.
        least = math.floor(threshold) - 0.5
        risk = float(ndtr(-least / std)) if std else float(least <= 0)
        self.key_delta += (1 - self.key_delta) * risk

    def sample(self, rate: float) -> None:
        """Note the rate at which a batch is drawn."""
        self._rate = rate

    def gradient(
        self, stds: Sequence[float], sensitivities: Sequence[float], divisor: float
    ) -> None:
        """Note a gradient of the batch drawn last; a batch serves for one."""
        multiplier = min(s / d for s, d in zip(stds, sensitivities, strict=True))
        key = self._rate, multiplier, divisor
        self.steps[key] = self.steps.get(key, 0) + 1
        self._rate = None

    def total(self, release: str) -> float:
        """Return the privacy loss of all releases of a name."""
        return math.fsum(self.losses.get(release, ()))

    def state(self) -> dict[str, Any]:
        """Return the notes of a fit as plain numbers, lists and dictionaries."""
        return {
            "n_rows": self.n_rows, "count_epsilon": self.count_epsilon,
            "losses": {name: list(values) for name, values in self.losses.items()},
            "key_delta": self.key_delta,
            "steps": [[*key, n] for key, n in self.steps.items()],
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the notes of the beginning of a fit."""
        self.n_rows = state["n_rows"]
        self.count_epsilon = state["count_epsilon"]
        self.losses = {name: list(values) for name, values in state["losses"].items()}
        self.key_delta = state["key_delta"]
        self.steps = {(q, z, b): n for q, z, b, n in state["steps"]}


def within(spent: float, planned: float) -> bool:
    """Return whether a cost is at most what was planned, up to rounding."""
    return spent <= planned * (1 + _ROUNDING)


def equal(spent: float, planned: float) -> bool:
    """Return whether a number is what was planned, up to rounding."""
    return math.isclose(spent, planned, rel_tol=_ROUNDING)


def refuse_difference(agrees: Mapping[str, bool]) -> None:
    """Raise `LedgerError` if any part of a plan is not what was done."""
    if wrong := [name for name, holds in agrees.items() if not holds]:
        raise LedgerError(
            f"What was released ({', '.join(wrong)}) is not what was planned: nothing "
            "is guaranteed, and nothing was stored. Please report this error."
        )
