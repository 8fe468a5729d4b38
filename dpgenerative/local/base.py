"""What all local randomizers share: parameters, noise, what a transform spends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpgenerative._random import RandomSource, SecureGenerator
from dpgenerative._validation import (
    Check,
    check_parameters,
    number,
    option,
    refuse,
)
from dpgenerative.local.report import LocalReport
from dpgenerative.privacy.budget import charge, refuse_workers
from dpgenerative.synthesizers.base import as_seed

PUBLIC = "number, order and index of the records"
"""What is public of every table or array that is perturbed."""


class LocalRandomizer(TransformerMixin, BaseEstimator):
    """A transformer that perturbs every record by itself.

    `fit` reads public facts alone, and fixes all noise; parameters that are set later
    change nothing before the next `fit`. `transform` perturbs.
    """

    epsilon: Any
    random_state: Any
    noise: str
    privacy_: LocalReport
    _checks: ClassVar[Mapping[str, Check]] = {
        "epsilon": number(low=0),
        "noise": option("secure", "reproducible"),
    }

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _begin(self) -> None:
        """Check parameters; decide where noise comes from."""
        check_parameters(self._owner, self, self._checks)
        is_seeded = self.noise == "reproducible"
        if is_seeded and self.random_state is None:
            refuse(self._owner, "noise", "needs an integer random_state", self.noise)
        self._seed = as_seed(self.random_state) if is_seeded else None
        self._n_transforms = 0

    def _spend(self) -> RandomSource:
        """Charge open budgets for one transform; return its source of noise."""
        check_is_fitted(self)
        charge(self._owner, self.privacy_.record_epsilon, self.privacy_.delta)
        if self._seed is None:
            return SecureGenerator()
        self._n_transforms += 1
        return np.random.default_rng([self._seed, self._n_transforms])

    def __getstate__(self) -> dict[str, Any]:
        refuse_workers(self._owner)
        state: dict[str, Any] = dict(super().__getstate__())
        was_cloned = state.pop("_was_cloned", False)
        if self.noise == "reproducible" and ("_seed" in state or was_cloned):
            # The seed of the noise stays with whoever fitted: copies draw their own.
            state["random_state"] = state["_seed"] = None
        return state

    def __sklearn_clone__(self) -> Self:
        self._was_cloned = True
        clone: Self = super().__sklearn_clone__()
        return clone

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.input_tags.allow_nan = True
        return tags
