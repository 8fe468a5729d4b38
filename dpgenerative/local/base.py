"""What all local randomizers share: parameters, noise, what a transform spends."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from dpgenerative._random import RandomSource, SecureGenerator, as_seed
from dpgenerative._validation import Check, check_parameters, number, option, refuse
from dpgenerative.local.report import LocalReport
from dpgenerative.privacy.budget import charge
from dpgenerative.synthesizers import noisy

PUBLIC = "number, order and index of the records"
"""What is public of every table or array that is perturbed."""


class LocalRandomizer(TransformerMixin, BaseEstimator):
    """A transformer that perturbs every record by itself.

    `fit` reads public facts alone, and fixes all noise: parameters of it that are set
    later change nothing before the next `fit`. `transform` perturbs.
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

    def __getstate__(self) -> dict[str, Any]:
        return noisy.state_for_workers(self, super().__getstate__())

    def __sklearn_clone__(self) -> Self:
        return noisy.noted(self, super().__sklearn_clone__())

    def _begin(self) -> None:
        """Check parameters; decide where noise comes from."""
        check_parameters(self._owner, self, self._checks)
        # What a fit that fails has set must not work under the report of another.
        self.__dict__.pop("privacy_", None)
        is_seeded = self.noise == "reproducible"
        if is_seeded and self.random_state is None:
            refuse(self._owner, "noise", "needs an integer random_state", self.noise)
        noisy.note(self)
        self._sample_seed = as_seed(self.random_state) if is_seeded else None
        self._n_transforms = 0

    def _spend(self) -> RandomSource:
        """Charge open budgets for one transform; return its source of noise."""
        report = self.privacy_
        charge(self._owner, report.record_epsilon, report.delta, method="transform")
        if self._sample_seed is None:
            return SecureGenerator()
        self._n_transforms += 1
        return np.random.default_rng([self._sample_seed, self._n_transforms])

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    def __sklearn_tags__(self) -> Any:
        tags = noisy.tagged(super().__sklearn_tags__())
        tags.input_tags.allow_nan = True
        return tags
