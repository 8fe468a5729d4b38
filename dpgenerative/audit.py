"""Audits: lower bounds on the epsilon that a configuration really has.

Each audit plays a game that differential privacy bounds. An adversary who knows all but
one thing - did a worst-case row take part? - guesses it from what was released; success
beyond what the claim allows disproves the claim, and success below it is a lower bound
on epsilon that holds with the confidence stated.

====================== ==================================== ============================
audit                  the adversary sees                   source
====================== ==================================== ============================
`audit_mechanism`      one noisy gradient of a batch that   Nasr et al. 2023; Gaussian
                       the row is known to be drawn into    DP of Dong, Roth, Su 2022
`audit_training`       every noisy gradient of whole        Nasr et al. 2021, 2023;
                       trainings, or of one training with   Steinke, Nasr, Jagielski
                       many canaries                        2023
`audit_release`        what `fit` leaves behind, and        Jagielski, Ullman, Oprea
                       samples                              2020
====================== ==================================== ============================

The package's own sampling, clipping, noise and accounting run in all of them. An audit
proves nothing beyond its bound: what it does not try may still leak. It runs on the
rows it is given and its figures describe the configuration, not those rows; give it
rows that are not private, such as a made-up table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import binom
from sklearn.base import clone
from torch import Tensor, nn

from dpgenerative._intervals import epsilon_of_rates, least_share
from dpgenerative._random import Streams
from dpgenerative._validation import check_number, check_option, refuse
from dpgenerative.fitting.loop import train
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.accounting import (
    GaussianRelease,
    epsilon_of,
    gaussian_epsilon,
    gaussian_multiplier,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan, row_budget
from dpgenerative.privacy.steps import Divergence, Objective, PrivateGradient
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.tables.column import Column
from dpgenerative.tables.dtypes import can_hold_missing, is_real_dtype
from dpgenerative.tables.schema import Schema

PAIRS = ("outlier", "category", "missing")
CANARY = "\N{SNOWMAN} a string that no other row holds"
_GAIN = 1e3
"""Input of a canary: its weight's gradient is this many times its bias's."""
_NEAR_ZERO = 0.05
"""An epsilon near 0 that the accountant can still tell from 0."""
_BLOCKS = 50
"""How often a gradient is computed anew among the trials of `audit_mechanism`."""


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on epsilon, beside what is claimed.

    Attributes
    ----------
    audit : str
        What was played.
    lower_bound : float
        Epsilon is at least this, at `delta`, with the confidence stated.
    confidence : float
        Probability, over the audit's own draws, that the bound holds.
    epsilon, delta : float
        What the configuration claims of a whole fit for one row: with
        `max_rows_per_unit`, each row's share of what is promised a person.
    best : float
        About what the strongest adversary of this game could show if the claim were
        exactly met: with as many trials, of one step (`audit_mechanism`) with endless
        ones.
    n_trials : int
        Number of guesses, or of trials to choose guesses from.
    """

    audit: str
    lower_bound: float
    confidence: float
    epsilon: float
    delta: float
    best: float
    n_trials: int

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
        """What was found, in words."""
        verdict = "within" if self.holds else "BEYOND"
        return (
            f"{self.audit}: with {100 * self.confidence:g} % confidence epsilon is at "
            f"least {self.lower_bound:.3f} at delta {self.delta:g} for one row, "
            f"{verdict} the claimed {self.epsilon:g} ({100 * self.share:.0f} % of it; "
            f"{self.n_trials} trials; an ideal adversary would show about "
            f"{self.best:.3f})."
        )

    def __str__(self) -> str:
        return self.sentence


# Bounds ---------------------------------------------------------------------------


def _least_mu(accuracy: float) -> float:
    """Return the mu that a Gaussian-DP mechanism needs for such accuracy.

    At mu no adversary is right more often than Phi(mu / 2), both worlds counted alike.
    """
    return max(0.0, 2 * float(ndtri(accuracy)))


def _steps_epsilon(mu: float, plan: PrivacyPlan) -> float:
    """Return epsilon of the plan's gradient steps if one of them were mu-GDP."""
    if mu <= 0:
        return 0.0
    steps = GaussianRelease(1 / mu, plan.sampling_rate, plan.n_steps)
    return epsilon_of([steps], plan.delta, plan.epsilon)


def _run_epsilon(accuracy: float, plan: PrivacyPlan) -> float:
    """Return epsilon of gradient steps that allow such accuracy over a whole run.

    What is sought is the largest noise at which guesses can be right so often: under
    (eps, delta)-DP the total variation between the two worlds is at most
    ``(e^eps - 1 + 2 delta) / (e^eps + 1)``, at any one pair.
    """
    if accuracy <= 0.5:
        return 0.0
    if plan.sampling_rate >= 1:
        return gaussian_epsilon(1 / _least_mu(accuracy), plan.delta)
    grown = math.exp(_NEAR_ZERO)
    delta = ((2 * accuracy - 1) * (grown + 1) - (grown - 1)) / 2
    if delta <= 0:
        return 0.0

    def excess(log_z: float) -> float:
        steps = GaussianRelease(math.exp(log_z), plan.sampling_rate, plan.n_steps)
        return epsilon_of([steps], delta) - _NEAR_ZERO

    # By the central limit theorem; from there up to the first noise that is too large.
    mu = _least_mu(accuracy) / plan.sampling_rate
    high = -0.5 * math.log(math.log1p(mu * mu / plan.n_steps)) - 0.4
    if excess(high) <= 0:
        return 0.0
    while excess(high) > 0:
        low, high = high, high + 0.1
    root = float(brentq(excess, low, high, xtol=1e-3))
    return _steps_epsilon(math.exp(-root - 1e-3), plan)


def one_run_p_value(
    n_canaries: int, n_guesses: int, n_correct: int, epsilon: float, delta: float
) -> float:
    """Return the probability of so many correct guesses at most under (eps, delta)-DP.

    Parameters
    ----------
    n_canaries : int
        Number of canaries, each included by a fair coin.
    n_guesses : int
        Number of canaries that the adversary guessed, fixed beforehand.
    n_correct : int
        Number of right guesses.
    epsilon, delta : float

    Returns
    -------
    float

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023,
    theorem 5.2 and appendix D.
    """
    rate = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(n_correct - 1, n_guesses, rate))
    below = binom.pmf(np.arange(n_correct - 1, -1, -1), n_guesses, rate).cumsum()
    slopes = below / np.arange(1, n_correct + 1)
    worst = float(slopes.max()) if n_correct else 0.0
    return min(1.0, tail + 2 * n_canaries * delta * worst)


def one_run_bound(
    n_canaries: int, n_guesses: int, n_correct: int, delta: float, confidence: float
) -> float:
    """Return the least epsilon that so many correct guesses leave standing.

    Parameters
    ----------
    n_canaries, n_guesses, n_correct : int
        See `one_run_p_value`.
    delta : float
    confidence : float in (0, 1)

    Returns
    -------
    float
        At least 0.

    Examples
    --------
    >>> round(one_run_bound(1000, 100, 100, 1e-5, 0.95), 2)
    3.47
    """
    p = 1 - confidence

    def excess(epsilon: float) -> float:
        return one_run_p_value(n_canaries, n_guesses, n_correct, epsilon, delta) - p

    if excess(0.0) >= 0:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high *= 2
    root = float(brentq(excess, 0.0, high, xtol=1e-4))
    return max(0.0, root - 1e-4)


def _ideal_guesses(
    n_canaries: int, epsilon: float, delta: float, confidence: float
) -> tuple[int, float]:
    """Return how many guesses serve the ideal adversary best, and what he shows.

    He faces one Gaussian mechanism that is exactly (epsilon, delta)-DP, and guesses at
    both ends of the scores.
    """
    mu = 1 / gaussian_multiplier(epsilon, delta)
    # Where he can show nothing, half of the canaries tell best that there is something.
    best = (max(2, n_canaries // 4 * 2), 0.0)
    for cut in np.linspace(0.0, 4.0, 41):
        # In scores centred between the worlds: right at +mu/2, wrong at -mu/2.
        right, wrong = ndtr(mu / 2 - cut), ndtr(-mu / 2 - cut)
        r = 2 * int(n_canaries * (right + wrong) / 2)
        if not 2 <= r <= n_canaries:
            continue
        v = math.floor(r * right / (right + wrong))
        bound = one_run_bound(n_canaries, r, v, delta, confidence)
        if bound > best[1]:
            best = (r, bound)
    return best


# What the audits share ------------------------------------------------------------


def _check(owner: str, estimator: Any, confidence: Any, random_state: Any) -> None:
    if not isinstance(estimator, Synthesizer):
        raise TypeError(
            f"{owner} takes a DPHFlowSynthesizer or a DPVAESynthesizer; got "
            f"{type(estimator).__name__}."
        )
    estimator._check_parameters()
    if estimator._epsilon is None:
        raise ValueError(
            f"{owner}: the estimator has epsilon={estimator.epsilon!r}, which promises "
            "nothing that could be audited. Set a finite epsilon."
        )
    check_number(owner, "confidence", confidence, low=0, high=1)
    check_number(
        owner, "random_state", random_state, low=0, closed="left", integer=True,
        also=[None],
    )  # fmt: skip


def _check_counts(owner: str, **counts: Any) -> None:
    for name, value in counts.items():
        check_number(owner, name, value, low=1, closed="left", integer=True)


def _streams(estimator: Synthesizer, random_state: int | None, device: str) -> Streams:
    noise = "secure" if estimator.secure else "fresh"
    noise = noise if random_state is None else "reproducible"
    return Streams.create(random_state, noise, device)


# One step -------------------------------------------------------------------------


def audit_mechanism(
    estimator: Synthesizer,
    *,
    n_rows: int = 10_000,
    n_trials: int = 20_000,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> AuditResult:
    """Play the one-step distinguishing game with a configuration's own noise.

    In either world one gradient is computed by `PrivateGradient`, at the clipping, the
    batch-wise term, the sensitivity and the noise of the configuration, on a model and
    a batch made for the purpose: the row in question puts all of its bound on one
    coordinate, and turns the gradients it shares round where there are such. The
    adversary knows everything but whether it was there. His rate of right guesses,
    at its lower Clopper-Pearson bound, becomes the mu of a Gaussian mechanism (Dong,
    Roth and Su 2022), and the accountant carries that over the configuration's sampling
    rate and steps.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer or DPVAESynthesizer
        Fitted: its `privacy_` gives rate, steps and noise. Unfitted: they are those of
        a table of `n_rows` rows with the columns of its `schema` (one column without).
    n_rows : int, default=10000
        Released row count of an unfitted estimator.
    n_trials : int, default=20000
        Number of noisy gradients in either world.
    confidence : float in (0, 1), default=0.95
    random_state : int, optional
        Seeds the noise of the audit; None takes the operating system's entropy.

    Returns
    -------
    AuditResult
        Its claim is that of the whole fit. Gradients have a part of that budget:
        `best` is theirs.

    Raises
    ------
    TypeError
        When `estimator` is no synthesizer of this package.
    ValueError
        For ``epsilon=None``, or a parameter out of its range.

    Notes
    -----
    The number of right guesses among independent trials with the mean success p is no
    likelier to be large than a binomial count (Hoeffding 1956), whatever p is in either
    world. Sampling and composition are not audited here but taken over.

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
    _check(owner, estimator, confidence, random_state)
    _check_counts(owner, n_rows=n_rows, n_trials=n_trials)
    plan = _plan_of(estimator, n_rows)
    streams = _streams(estimator, random_state, "cpu")
    worlds = _Worlds(estimator, plan, streams)
    without, noisy_without = worlds.draws(False, n_trials)
    with_row, noisy_with_row = worlds.draws(True, n_trials)
    line = (with_row - without) / worlds.variances
    middle = line @ (with_row + without) / 2
    correct = int((noisy_with_row @ line > middle).sum())
    correct += int((noisy_without @ line <= middle).sum())
    accuracy = least_share(correct, 2 * n_trials, confidence)
    return AuditResult(
        "One step",
        _steps_epsilon(_least_mu(accuracy), plan),
        float(confidence),
        plan.epsilon,
        plan.delta,
        _steps_epsilon(1 / plan.noise_multiplier, plan),
        2 * n_trials,
    )


def _plan_of(estimator: Synthesizer, n_rows: int) -> PrivacyPlan:
    if hasattr(estimator, "privacy_"):
        plan: PrivacyPlan = estimator.privacy_.plan
        return plan
    stated = estimator._stated()
    some = Schema([Column("x", "continuous", lower=0, upper=1)])
    return estimator._plan(n_rows, stated if len(stated) else some)


class _Repeated(Mechanisms):
    """Draws the noise of every gradient several times and keeps what comes out."""

    def __init__(self, streams: Streams, n: int) -> None:
        super().__init__(streams.counts, streams.gradients)
        self.n = n
        self.exact: list[np.ndarray] = []
        self.noisy: list[np.ndarray] = []

    def gradient(
        self, sums: Sequence[Tensor], stds: Sequence[float], **stated: Any
    ) -> list[Tensor]:
        self.exact.append(_flat(sums))
        for _ in range(self.n):
            released = super().gradient(sums, stds, **stated)
            self.noisy.append(_flat(released))
        return released


def _flat(tensors: Sequence[Tensor]) -> np.ndarray:
    return torch.cat([x.flatten() for x in tensors]).double().cpu().numpy()


class _Worlds:
    """A batch with and without a row that moves the gradient as far as it may."""

    width = 64

    def __init__(
        self, estimator: Synthesizer, plan: PrivacyPlan, streams: Streams
    ) -> None:
        self.model = nn.ModuleDict({"encoder": MaskedLinear.dense(1, self.width)})
        self.estimator, self.streams = estimator, streams
        fixed = estimator
        if isinstance(estimator.max_grad_norm, str):
            # Every norm is audited at once: noise and bound grow together.
            fixed = clone(estimator).set_params(max_grad_norm=1.0)
        self.gradient: PrivateGradient = fixed._gradient(
            self.model, self._objective, plan, 1, estimator._mechanisms(streams),
            streams, "cpu",
        )  # fmt: skip
        coupled = self.gradient.aggregation == "micro"
        self.n_others = self.gradient.batch_cap - 1 if coupled else 3
        stds = self.gradient.stds(self.model, self._coupled)
        sizes = [p.numel() for p in self.model.parameters()]
        self.variances = np.repeat(np.square(list(stds.values())), sizes)

    @property
    def _coupled(self) -> bool:
        return self.estimator.divergence is not None

    def _objective(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        image = self.model["encoder"](torch.full((len(rows), 1), _GAIN))[:, :1]
        own = torch.where(rows == self.n_others, 1e3, -1.0)
        return own * image[:, 0], image

    def _turning(self, image: Tensor) -> Tensor:
        sign = 1.0 if len(image) > self.n_others else -1.0
        return sign * 1e6 * image.mean()

    def draws(self, present: bool, n_trials: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean gradient with or without the row, and noisy ones, (n, p)."""
        rows = torch.arange(self.n_others + present)
        chunk = (rows, torch.ones(len(rows), dtype=torch.bool))
        exact: list[np.ndarray] = []
        noisy: list[np.ndarray] = []
        for part in np.array_split(np.arange(n_trials), min(_BLOCKS, n_trials)):
            door = _Repeated(self.streams, len(part))
            term: Divergence | None = self._turning if self._coupled else None
            self.gradient(
                self.model, self._objective, [chunk], door, self.streams.draws, term,
                lambda n: np.zeros(n, dtype=np.int64),
            )  # fmt: skip
            exact += door.exact
            noisy += door.noisy
        return np.mean(exact, axis=0), np.stack(noisy)


# Whole trainings ------------------------------------------------------------------


def audit_training(
    estimator: Synthesizer,
    X: Any,
    y: Any = None,
    *,
    n_canaries: int = 1000,
    n_runs: int = 1,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> AuditResult:
    """Hide canaries in trainings and guess from their gradients which took part.

    The configuration's own model is trained on the table by the package's own training,
    with one more layer whose weights no row but a canary touches, one per canary. A
    fair coin decides for each canary whether it is among the rows. The adversary sees
    every noisy gradient, and scores each canary by the log-likelihood ratio of a
    Poisson-sampled Gaussian mechanism.

    With several canaries he guesses those with the largest and the least scores; how
    many was fixed beforehand by the claim. The bound is that of Steinke, Nasr and
    Jagielski (2023), which holds for any mechanism and any number of canaries in one
    run; `n_runs` adds up independent runs. With ``n_canaries=1`` he guesses in every
    run, and his rate of right guesses, at its lower Clopper-Pearson bound, bounds the
    noise of the steps, and so epsilon: far sharper, but it takes thousands of runs and
    supposes that the steps are a Poisson-sampled Gaussian mechanism of some noise.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer or DPVAESynthesizer
        Configuration, fitted or not; it is left as it is.
    X : DataFrame or ndarray of shape (n_samples, n_features)
        Rows to train on beside the canaries. Their number is known here, and counted.
    y : array-like of shape (n_samples,), optional
    n_canaries : int, default=1000
    n_runs : int, default=1
        Number of trainings.
    confidence : float in (0, 1), default=0.95
    random_state : int, optional
        Seeds all draws of the audit; None takes the operating system's entropy.

    Returns
    -------
    AuditResult
        `best` is what an ideal adversary of one Gaussian mechanism that meets the claim
        exactly would expect to show with as many canaries and runs.

    Raises
    ------
    TypeError
        When `estimator` is no synthesizer of this package, or the table no table.
    ValueError
        For ``epsilon=None``, or a parameter out of its range.

    Notes
    -----
    Marginals are released once and used by all runs; they, the row count and the
    moments of latents have a part of the budget that this audit leaves alone.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", 2023.
    """
    owner = "audit_training"
    _check(owner, estimator, confidence, random_state)
    _check_counts(owner, n_canaries=n_canaries, n_runs=n_runs)
    device = estimator._device()
    streams = _streams(estimator, random_state, device)
    coins = np.random.default_rng(random_state)
    runs = _Trainings(estimator, X, y, n_canaries, streams, device)
    included = coins.random((n_runs, n_canaries)) < 0.5
    scores = np.stack([runs.scores(row) for row in included])
    plan = runs.plan
    if n_canaries == 1:
        correct = int(((scores > 0) == included).sum())
        bound = _run_epsilon(least_share(correct, n_runs, confidence), plan)
        ideal = ndtr(0.5 / gaussian_multiplier(plan.epsilon, plan.delta))
        least = least_share(int(n_runs * ideal), n_runs, confidence)
        mu = _least_mu(least)
        best = gaussian_epsilon(1 / mu, plan.delta) if mu > 0 else 0.0
        name = "Repeated trainings"
    else:
        total = included.size
        r, best = _ideal_guesses(total, plan.epsilon, plan.delta, confidence)
        order = np.argsort(scores, axis=None, kind="stable")
        told = included.ravel()[order]
        correct = int((~told[: r // 2]).sum() + told[total - r // 2 :].sum())
        bound = one_run_bound(total, r // 2 * 2, correct, plan.delta, confidence)
        name = "One training" if n_runs == 1 else "Trainings with many canaries"
    return AuditResult(
        name, bound, float(confidence), plan.epsilon, plan.delta, best, included.size
    )


class _Witness(Mechanisms):
    """Keeps the noisy gradient of the canaries' weights."""

    def __init__(self, streams: Streams, place: int) -> None:
        super().__init__(streams.counts, streams.gradients)
        self.place = place
        self.std = 0.0
        self.seen: list[np.ndarray] = []

    def gradient(
        self, sums: Sequence[Tensor], stds: Sequence[float], **stated: Any
    ) -> list[Tensor]:
        released = super().gradient(sums, stds, **stated)
        self.std = stds[self.place]
        self.seen.append(_flat([released[self.place]]))
        return released


class _Trainings:
    """Trainings of one configuration on one table, canaries included at will."""

    def __init__(
        self,
        estimator: Synthesizer,
        X: Any,
        y: Any,
        n_canaries: int,
        streams: Streams,
        device: str,
    ) -> None:
        self.estimator, self.streams, self.device = estimator, streams, device
        self.frame, _, schema, _ = estimator._prepare(X, y)
        self.schema = schema.modelled
        self.n_canaries = n_canaries
        self.n_rows = len(self.frame) + math.ceil(n_canaries / 2)
        self.plan = estimator._plan(self.n_rows, self.schema)
        self.inner = estimator._mechanisms(streams)
        self.size = 0.0
        self.transformer = estimator._transform(
            self.frame, self.schema, self.plan, self.inner
        )
        self.facts = estimator._facts(self.transformer)

    def scores(self, included: np.ndarray) -> np.ndarray:
        """Train with some of the canaries; return how present each of them looks."""
        estimator, plan, streams = self.estimator, self.plan, self.streams
        model = estimator._build(self.facts, self.n_rows, self.schema, streams.weights)
        layer = MaskedLinear.dense(self.n_canaries, 1)
        model.add_module("canaries", layer)
        model = model.to(self.device)
        present = np.flatnonzero(included)
        objective = self._objective(model, layer, present)
        n = len(self.frame) + len(present)
        gradient = estimator._gradient(
            model, objective, plan, n, self.inner, streams, self.device
        )
        if not self.size:
            self.size = self._size_of_one(model, layer, gradient)
        trained = [p for p in model.parameters() if p.requires_grad]
        place = next(k for k, p in enumerate(trained) if p is layer.weight)
        witness = _Witness(streams, place)
        train(
            model, objective, n, plan, gradient,
            estimator._options(self.n_rows, self.schema), witness, streams,
            self.device, divergence=estimator._batch_term(model, streams),
        )  # fmt: skip
        seen = np.stack(witness.seen)
        log_ratio = (seen - self.size / 2) * self.size / witness.std**2
        return _sampled(log_ratio, plan.sampling_rate).sum(0)

    def _objective(
        self, model: Any, layer: MaskedLinear, present: np.ndarray
    ) -> Objective:
        """Return the losses of rows, and of canaries behind them."""
        own = self.estimator._objective(
            model, self.transformer, self.frame, self.streams, self.device
        )
        n, k = len(self.frame), self.n_canaries
        places = torch.from_numpy(present).to(self.device)

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            late = rows >= n
            losses, images = own(torch.where(late, 0, rows))
            marks = torch.zeros(len(rows), k, device=self.device)
            marks[late, places[rows[late] - n]] = _GAIN
            return torch.where(late, _GAIN * layer(marks)[:, 0], losses), images

        return objective

    def _size_of_one(
        self, model: nn.Module, layer: MaskedLinear, gradient: PrivateGradient
    ) -> float:
        """Return what one canary adds to its weight's gradient, without noise."""
        objective = self._objective(model, layer, np.zeros(1, dtype=np.int64))
        row = torch.tensor([len(self.frame)], device=self.device)
        chunk = (row, torch.ones(1, dtype=torch.bool, device=self.device))
        quiet = replace(gradient, noise_multiplier=0.0)
        out = quiet(model, objective, [chunk], self.inner, self.streams.draws)
        return float(out[layer.weight][0, 0])


def _sampled(log_ratio: np.ndarray, rate: float) -> np.ndarray:
    """Return log-likelihood ratios of a mechanism that sees the row at this rate."""
    if rate >= 1:
        return log_ratio
    mixed: np.ndarray = np.logaddexp(math.log1p(-rate), math.log(rate) + log_ratio)
    return mixed


# Whole releases -------------------------------------------------------------------


def audit_release(
    estimator: Synthesizer,
    X: pd.DataFrame,
    *,
    pair: str = "outlier",
    n_runs: int = 200,
    n_samples: int = 100,
    confidence: float = 0.95,
) -> AuditResult:
    """Fit a table and its neighbour again and again, and tell the results apart.

    The neighbour has one row more: the table's first row with the worst values that its
    columns can take. The adversary looks at the released row count, at bounds, levels
    and masses, and at samples. One half of the fits chooses what to look at, and the
    threshold; the other half bounds the two rates by Clopper and Pearson.

    Parameters
    ----------
    estimator : DPHFlowSynthesizer or DPVAESynthesizer
        Configuration, fitted or not; it is left as it is. Few steps make it fast.
    X : DataFrame of shape (n_samples, n_features)
        A small table.
    pair : {"outlier", "category", "missing"}, default="outlier"
        The row's values: the largest number of every numeric column, a string that no
        other row holds, or a missing value wherever the dtype can hold one.
    n_runs : int, default=200
        Number of fits of either table, at least 4.
    n_samples : int, default=100
        Number of rows drawn from every fit.
    confidence : float in (0, 1), default=0.95

    Returns
    -------
    AuditResult
        `best` is what telling all fits apart would show.

    Raises
    ------
    TypeError
        When `estimator` is no synthesizer of this package, or X no DataFrame.
    ValueError
        For ``epsilon=None``, ``reproducible=True``, a table without a column for this
        pair, or a parameter out of its range.

    References
    ----------
    Jagielski, Ullman and Oprea, "Auditing differentially private machine learning: how
    private is private SGD?", 2020.
    """
    owner = "audit_release"
    _check(owner, estimator, confidence, None)
    check_option(owner, "pair", pair, PAIRS)
    check_number(owner, "n_runs", n_runs, low=4, closed="left", integer=True)
    _check_counts(owner, n_samples=n_samples)
    if estimator.reproducible:
        refuse(owner, "estimator", "must not be reproducible: every fit would be", True)
    if not isinstance(X, pd.DataFrame):
        raise TypeError(f"{owner} takes X as a DataFrame; got {type(X).__name__}.")
    tables = X, _neighbour(owner, X, pair)
    seen = [
        pd.DataFrame([_view(estimator, table, n_samples) for _ in range(n_runs)])
        for table in tables
    ]
    frame = pd.concat(seen, ignore_index=True).fillna(-math.inf)
    worlds = np.repeat([False, True], n_runs)
    claim = row_budget(
        float(estimator._epsilon or math.inf),
        float(estimator.delta),
        estimator.max_rows_per_unit,
    )
    bound = _split_bound(frame, worlds, claim[1], confidence)
    half = n_runs // 2
    best = epsilon_of_rates((half, half), (0, half), claim[1], confidence)
    return AuditResult(
        f"Whole fits ({pair})", bound, float(confidence), *claim, best, 2 * n_runs
    )


def _neighbour(owner: str, X: pd.DataFrame, pair: str) -> pd.DataFrame:
    """Return the table with the worst row of this pair."""
    values: dict[Any, Any] = {}
    for name, dtype in X.dtypes.items():
        if pair == "outlier" and is_real_dtype(dtype):
            kind = np.dtype(getattr(dtype, "numpy_dtype", dtype))
            info = np.iinfo(kind) if kind.kind in "iu" else np.finfo(kind)
            values[name] = info.max
        elif pair == "category" and _holds_strings(dtype):
            values[name] = CANARY
        elif pair == "missing" and can_hold_missing(dtype):
            values[name] = None
    if not values:
        raise ValueError(f"{owner}: X has no column for pair={pair!r}.")
    row = {
        name: pd.array([values.get(name, X[name].iloc[0])], dtype=dtype)
        for name, dtype in X.dtypes.items()
    }
    return pd.concat([X, pd.DataFrame(row)], ignore_index=True).astype(X.dtypes)


def _holds_strings(dtype: Any) -> bool:
    types = pd.api.types
    if isinstance(dtype, pd.CategoricalDtype):
        return False
    return bool(types.is_object_dtype(dtype) or types.is_string_dtype(dtype))


def _view(estimator: Synthesizer, X: pd.DataFrame, n_samples: int) -> dict[str, float]:
    """Return what an adversary measures of one fit."""
    fitted: Any = clone(estimator).fit(X)
    view = {"rows": float(fitted.privacy_.plan.n_rows)}
    sample = fitted.sample(n_samples)
    for j, codec in enumerate(fitted._transformer.codecs):
        column, drawn = codec.column, sample[codec.column.name]
        view[f"{j} missing"] = float(drawn.isna().sum())
        view[f"{j} missing mass"] = float(codec.masses[-1]) * bool(column.nullable)
        view[f"{j} cells"] = float(codec.n_cells)
        if column.numeric:
            view[f"{j} lower"], view[f"{j} upper"] = column.lower, column.upper
            view[f"{j} last mass"] = float(codec.masses[-1 - bool(column.nullable)])
            numbers = drawn.dropna().astype(float)
            view[f"{j} largest"] = float(numbers.max()) if len(numbers) else math.nan
        else:
            levels = column.levels or ()
            view[f"{j} levels"] = float(len(levels))
            view[f"{j} canary"] = float(CANARY in levels)
    return view


def _split_bound(
    frame: pd.DataFrame, worlds: np.ndarray, delta: float, confidence: float
) -> float:
    """Choose a region on one half of the fits, bound epsilon on the other."""
    first = np.arange(len(worlds)) % 2 == 0
    # Outcomes on one side of a threshold, likelier with the row, or without.
    regions = [
        (name, threshold, above, exchanged)
        for name in frame
        for threshold in np.unique(frame[name][first])
        for above in (True, False)
        for exchanged in (True, False)
    ]

    def bound(region: tuple[Any, float, bool, bool], half: np.ndarray) -> float:
        name, threshold, above, exchanged = region
        inside = (frame[name][half].to_numpy() >= threshold) == above
        likely = worlds[half] != exchanged
        often = int(inside[likely].sum()), int(likely.sum())
        seldom = int(inside[~likely].sum()), int((~likely).sum())
        return epsilon_of_rates(often, seldom, delta, confidence)

    return bound(max(regions, key=lambda region: bound(region, first)), ~first)
