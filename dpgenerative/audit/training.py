"""Whole trainings, with canaries that may or may not take part."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from scipy.special import ndtr
from torch import Tensor

from dpgenerative._intervals import least_share
from dpgenerative._random import Streams
from dpgenerative._validation import count
from dpgenerative.audit import bounds, result
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.fitting.recipe import FitSize, ModelRecipe
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import Objective, trainable
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.tables.private import Private, opened


def audit_training(
    estimator: Synthesizer,
    X: Any,
    y: Any = None,
    *,
    n_canaries: int = 1000,
    n_runs: int = 1,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> result.AuditResult:
    """Hide canaries in trainings and guess from their gradients which took part.

    The configuration's own model is trained on the table by the package's own training,
    with one more layer whose weights no row but a canary touches, one per canary. A
    fair coin decides for each canary whether it is among the rows. The adversary sees
    every noisy gradient, and scores each canary by the log-likelihood ratio of a
    Poisson-sampled Gaussian mechanism.

    With several canaries they guess those with the largest and the least scores; how
    many was fixed beforehand by the claim. The bound is that of Steinke, Nasr and
    Jagielski (2023), which holds for any mechanism and any number of canaries in one
    run; `n_runs` adds up independent runs. With ``n_canaries=1`` they guess in every
    run, and their rate of right guesses, at its lower Clopper-Pearson bound, bounds the
    noise of the steps, and so epsilon: far sharper, but it takes thousands of runs and
    supposes that the steps are a Poisson-sampled Gaussian mechanism of some noise.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer, DPVAESynthesizer or any other synthesizer
        Configuration, fitted or not; it is left as it is.
    X : DataFrame or ndarray of shape (n_samples, n_features)
        Rows to train on beside the canaries. Their number is known here, and counted.
    y : Series or ndarray of shape (n_samples,), optional
    n_canaries : int, default=1000
    n_runs : int, default=1
        Number of trainings.
    confidence : float in (0, 1), default=0.95
    random_state : int, optional
        Seed of all draws of the audit; None uses the operating system's entropy.

    Returns
    -------
    AuditResult
        `best` is what an ideal adversary of one Gaussian mechanism that meets the claim
        exactly would expect to show with as many canaries and runs.

    Raises
    ------
    TypeError
        If `estimator` is not a synthesizer of this package, or X not a table.
    ValueError
        For ``epsilon=None``, or a parameter out of its range.

    Notes
    -----
    Marginals are released once and used by all runs; they, the row count, the moments
    of latents and contingency tables have a part of the budget that this audit leaves
    alone.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023.
    """
    owner = "audit_training"
    result.check(owner, estimator, confidence, random_state)
    count()(owner, "n_canaries", n_canaries)
    count()(owner, "n_runs", n_runs)
    device = session.device_of(estimator)
    streams = result.streams_of(estimator, random_state, device)
    coins = np.random.default_rng(random_state)
    data = session.prepare(estimator, X, y)
    fit = session.private_fit(estimator, data.domain, streams, device)
    rows = opened(data.rows)
    plan = fit.plan(len(rows) + math.ceil(n_canaries / 2))
    result.check_steps(owner, estimator, plan)
    runs = _Trainings(fit, rows, n_canaries)
    included = coins.random((n_runs, n_canaries)) < 0.5
    scores = np.stack([runs.scores(row) for row in included])
    plan = runs.released.plan
    if n_canaries == 1:
        correct = int(((scores > 0) == included).sum())
        bound = bounds.run_epsilon(least_share(correct, n_runs, confidence), plan)
        ideal = ndtr(0.5 / gaussian_multiplier(plan.epsilon, plan.delta))
        mu = bounds.least_mu(least_share(int(n_runs * ideal), n_runs, confidence))
        best = gaussian_epsilon(1 / mu, plan.delta) if mu > 0 else 0.0
        name = "Repeated trainings"
    else:
        total = included.size
        r, best = bounds.ideal_guesses(total, plan.epsilon, plan.delta, confidence)
        by_score = included.ravel()[np.argsort(scores, axis=None, kind="stable")]
        correct = int((~by_score[: r // 2]).sum() + by_score[total - r // 2 :].sum())
        bound = bounds.one_run_bound(total, r // 2 * 2, correct, plan.delta, confidence)
        name = "One training" if n_runs == 1 else "Trainings with many canaries"
    return result.AuditResult(
        name, bound, float(confidence), plan.epsilon, plan.delta, best, included.size
    )


class _Witness(Mechanisms):
    """Records the noisy gradients of the canaries' weights."""

    def __init__(self, streams: Streams, place: int) -> None:
        super().__init__(streams.counts, streams.gradients)
        self.place = place
        self.std = 0.0
        self.noisy: list[np.ndarray] = []

    def gradient(
        self, sums: Sequence[Tensor], stds: Sequence[float], **stated: Any
    ) -> list[Tensor]:
        released = super().gradient(sums, stds, **stated)
        self.std = stds[self.place]
        noisy = released[self.place].flatten()
        self.noisy.append(noisy.double().cpu().numpy())
        return released


@dataclass(frozen=True)
class _Rows:
    """The table's rows, followed by the canaries that take part."""

    own: Any
    canaries: np.ndarray

    def __len__(self) -> int:
        return len(self.own) + len(self.canaries)


_UNCHANGED = (
    "rules", "anchored", "batch_term_module", "has_batch_term", "n_bins", "releases",
    "clipping_norm", "batch_term",
)  # fmt: skip
"""Attributes that are copied from the recipe that is wrapped."""


class _CanaryRecipe(ModelRecipe):
    """A recipe with one more layer, whose weights no row but a canary touches."""

    def __init__(self, recipe: ModelRecipe, n_canaries: int, n_own: int) -> None:
        self.inner, self.n_canaries, self.n_own = recipe, n_canaries, n_own
        for name in _UNCHANGED:
            setattr(self, name, getattr(recipe, name))

    def build(self, facts: Any, scale: FitSize, generator: torch.Generator) -> Any:
        model = self.inner.build(facts, scale, generator)
        model.add_module("canaries", MaskedLinear.dense(self.n_canaries, 1))
        return model

    def objective(
        self,
        model: Any,
        transformer: Any,
        rows: Private[_Rows],
        streams: Streams,
        device: str,
    ) -> Objective:
        """Return the losses of rows, and of the canaries that follow them."""
        table, n = rows.map(attrgetter("own")), self.n_own
        own = self.inner.objective(model, transformer, table, streams, device)
        places = rows.map(attrgetter("canaries")).to(device)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            late = rows >= n
            losses, latents = own(torch.where(late, 0, rows))
            marks = torch.zeros(len(rows), self.n_canaries, device=device)
            marks[late, places[rows[late] - n]] = result.GAIN
            loss = result.GAIN * model.canaries(marks)[:, 0]
            return torch.where(late, loss, losses), latents

        return objective


class _Trainings:
    """Trainings of one fit on one table, with any of the canaries.

    First the marginals are released, and what one canary adds to its gradient measured.
    """

    def __init__(self, fit: PrivateFit, rows: Any, n_canaries: int) -> None:
        fit = replace(fit, recipe=_CanaryRecipe(fit.recipe, n_canaries, len(rows)))
        released = fit.release(Private(rows), len(rows) + math.ceil(n_canaries / 2))
        one = Private(_Rows(rows, np.zeros(1, dtype=np.int64)))
        model = fit.build(released)
        objective = fit.objective(model, released.transformer, one)
        gradient = fit.gradient(model, objective, released.plan, one)
        row = torch.tensor([len(rows)], device=fit.device)
        chunk = (row, torch.ones(1, dtype=torch.bool, device=fit.device))
        quiet = replace(gradient, noise_multiplier=0.0)
        out = quiet(model, objective, [chunk], fit.mechanisms, fit.streams.draws)
        self.size = float(out[model.canaries.weight][0, 0])
        self.fit, self.rows = fit, rows
        # The same for all runs, as the norm is released once in a fit.
        self.released = replace(released, bound=gradient.clipper.bound)

    def scores(self, included: np.ndarray) -> np.ndarray:
        """Train with some of the canaries; return a membership score of each."""
        model = self.fit.build(self.released)
        trained = enumerate(trainable(model))
        place = next(k for k, p in trained if p is model.canaries.weight)
        witness = _Witness(self.fit.streams, place)
        fit = replace(self.fit, mechanisms=witness)
        rows = Private(_Rows(self.rows, np.flatnonzero(included)))
        fit.train(model, self.released, rows)
        noisy = np.stack(witness.noisy)
        log_ratio = (noisy - self.size / 2) * self.size / witness.std**2
        return _sampled(log_ratio, self.released.plan.sampling_rate).sum(0)


def _sampled(log_ratio: np.ndarray, rate: float) -> np.ndarray:
    """Return log-likelihood ratios of a mechanism that samples rows at this rate."""
    if rate >= 1:
        return log_ratio
    return np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
