"""One gradient step, with and without a row of the largest influence allowed."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from dpgenerative._intervals import clopper_pearson
from dpgenerative._random import Streams
from dpgenerative._validation import count
from dpgenerative.audit import result
from dpgenerative.audit.bounds import least_mu, steps_epsilon
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.steps import Divergence
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.tables.private import Private

_BLOCKS = 50
"""Number of times that the gradient is recomputed among the trials."""


def audit_mechanism(
    estimator: Synthesizer,
    *,
    n_rows: int = 10_000,
    n_trials: int = 500_000,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> result.AuditResult:
    """Play the one-step distinguishing game with a configuration's own noise.

    In either world one gradient is computed by `PrivateGradient`, with the clipping,
    the batch-wise term, the sensitivity and the noise of the configuration, on a model
    and a batch made for the purpose: the row in question puts all of its bound on one
    coordinate, and reverses the gradients that it shares with others, if there are any.
    The adversary knows everything except whether the row was there. How much more often
    they accuse the row when it is there, at its lower Clopper-Pearson bound, becomes
    the mu of a Gaussian mechanism (Dong, Roth and Su 2022), and the accountant extends
    that to the configuration's sampling rate and steps.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer, DPVAESynthesizer or any other synthesizer
        If fitted, its `privacy_` gives rate, steps and noise. If not, they are those
        for a table of `n_rows` rows with the columns of its `schema` (one column
        without a schema).
    n_rows : int, default=10000
        Released row count of an unfitted estimator.
    n_trials : int, default=500000
        Number of noisy gradients in either world.
    confidence : float in (0, 1), default=0.95
    random_state : int, optional
        Seed of the noise of the audit; None uses the operating system's entropy.

    Returns
    -------
    AuditResult
        Its claim is that of the whole fit. Gradients have a part of that budget:
        `best` is theirs.

    Raises
    ------
    TypeError
        If `estimator` is not a synthesizer of this package.
    ValueError
        For ``epsilon=None``, or a parameter out of its range.

    Notes
    -----
    Trial k of both worlds has the same standard normal draws, which leaves each world's
    distribution as it is. The difference of the two rates is then the rate of trials
    that distinguish the worlds less that of trials that confuse them, which few trials
    bound well. The number of independent trials of some kind is no likelier to be far
    from its mean than a binomial count (Hoeffding 1956), whatever their probabilities
    are. Sampling and composition are not audited here: the accountant adds them.

    References
    ----------
    Nasr, Hayes, Steinke, Balle, Tramer, Jagielski, Carlini and Terzis, "Tight auditing
    of differentially private machine learning", 2023.

    Examples
    --------
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> synthesizer = DPHFlowSynthesizer(epsilon=2.0, n_steps=50, batch_size=10_000)
    >>> audit_mechanism(synthesizer, n_trials=2000, random_state=0).holds
    True
    """
    owner = "audit_mechanism"
    result.check(owner, estimator, confidence, random_state)
    count()(owner, "n_rows", n_rows)
    count()(owner, "n_trials", n_trials)
    streams = result.streams_of(estimator, random_state, "cpu")
    fit, plan = _fit_and_plan(estimator, n_rows, streams)
    result.check_steps(owner, estimator, plan)
    worlds = _Worlds(fit, plan)
    without, noisy_without = worlds.draws(False, n_trials)
    with_row, noisy_with_row = worlds.draws(True, n_trials)
    line = (with_row - without) / worlds.variances
    middle = line @ (with_row + without) / 2
    accused, suspected = noisy_with_row @ line > middle, noisy_without @ line > middle
    n_right = int((accused & ~suspected).sum())
    n_wrong = int((suspected & ~accused).sum())
    gain = clopper_pearson(n_right, n_trials, confidence)[0]
    gain -= clopper_pearson(n_wrong, n_trials, confidence)[1]
    bound = steps_epsilon(least_mu((1 + gain) / 2), plan)
    best = steps_epsilon(1 / plan.noise_multiplier, plan)
    claim = float(confidence), plan.epsilon, plan.delta
    return result.AuditResult("One step", bound, *claim, best, 2 * n_trials)


def _fit_and_plan(
    estimator: Synthesizer, n_rows: int, streams: Streams
) -> tuple[PrivateFit, PrivacyPlan]:
    """Return the estimator's fit, and the plan of its steps."""
    plan_of = estimator
    if isinstance(estimator.max_grad_norm, str):
        # Every norm is audited at once: noise and bound grow together. A clone would
        # leave a mark on what is to be left as it is.
        estimator = type(estimator)(**estimator.get_params(deep=False))
        estimator.max_grad_norm = 1.0
    fit = session.assumed_fit(estimator, streams)
    if hasattr(plan_of, "privacy_"):
        return fit, plan_of.privacy_.plan
    return fit, replace(fit, parameters=plan_of).plan(n_rows)


class _Repeated(Mechanisms):
    """Adds the noise of many trials to a gradient and records the results."""

    n: int
    drawn: list[Tensor]

    def __init__(self, streams: Streams) -> None:
        super().__init__(streams.counts, streams.gradients)
        self.exact: list[np.ndarray] = []
        self.noisy: list[np.ndarray] = []

    def _normal(self, n: int, device: torch.device) -> Tensor:
        if not self.drawn:
            self.drawn.append(super()._normal(n, device))
        return self.drawn[0]

    def gradient(
        self, sums: Sequence[Tensor], stds: Sequence[float], **stated: Any
    ) -> list[Tensor]:
        self.exact.append(parameters_to_vector(sums).double().numpy())
        many = [x.expand(self.n, *x.shape) for x in sums]
        released = super().gradient(many, stds, **stated)
        self.noisy.append(np.hstack([x.reshape(self.n, -1).numpy() for x in released]))
        return [x[0] for x in released]


class _Worlds:
    """A batch with and without a row of the largest influence allowed."""

    width = 16

    def __init__(self, fit: PrivateFit, plan: PrivacyPlan) -> None:
        self.layer = MaskedLinear.dense(1, self.width)
        # The batch-wise term trains all of it, whatever the name of the submodule.
        self.model: nn.Module = self.layer
        for name in filter(None, fit.recipe.batch_term_module.split(".")[::-1]):
            self.model = nn.ModuleDict({name: self.model})
        self.streams = fit.streams
        self.has_term = fit.recipe.has_batch_term
        one = Private(range(1))
        self.gradient = fit.gradient(self.model, self._objective, plan, one)
        coupled = self.gradient.aggregation == "micro"
        self.n_others = self.gradient.batch_cap - 1 if coupled else 3
        stds = self.gradient.stds(self.model, self.has_term)
        sizes = [p.numel() for p in self.model.parameters()]
        self.variances = np.repeat(np.square(list(stds.values())), sizes)
        self.drawn: list[list[Tensor]] = [[] for _ in range(_BLOCKS)]

    def _objective(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        latents = self.layer(torch.full((len(rows), 1), result.GAIN))[:, :1]
        own = torch.where(rows == self.n_others, 1e3, -1.0)
        return own * latents[:, 0], latents

    def _turning(self, latents: Tensor) -> Tensor:
        sign = 1.0 if len(latents) > self.n_others else -1.0
        return sign * 1e6 * latents.mean()

    def draws(self, present: bool, n_trials: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean gradient with or without the row, and noisy ones, (n, p)."""
        rows = torch.arange(self.n_others + present)
        chunk = (rows, torch.ones(len(rows), dtype=torch.bool))
        door = _Repeated(self.streams)
        term: Divergence | None = self._turning if self.has_term else None
        parts = np.array_split(np.arange(n_trials), min(_BLOCKS, n_trials))
        for part, drawn in zip(parts, self.drawn, strict=False):
            door.n, door.drawn = len(part), drawn
            self.gradient(
                self.model, self._objective, [chunk], door, self.streams.draws, term,
                lambda n: np.zeros(n, dtype=np.int64),
            )  # fmt: skip
        return np.mean(door.exact, axis=0), np.concatenate(door.noisy)
