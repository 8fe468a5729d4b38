"""The class given all other columns, corrected by released mean embeddings.

A model says how likely every class is, given a row's other cells x. The *correction*
multiplies these probabilities by exp(f_y(x)), with f_y linear in random features of x,
and leaves the distribution of x as it is. It is fitted on rows drawn from the model, so
that the mean features of every class become those released.

What is released differs from the model's for three reasons: noise, another distribution
of x, and other classes given x. So drawn rows first get weights by which the mean of
all classes agrees; then f is fitted on weighted rows. In the eigenvectors of the
information matrix, of eigenvalues h, a coefficient of variance t^2 shows as a deviation
of variance ``h^2 t^2 + v``, with v that of noise and of finitely many rows, of which x
differ as classes do. So its mean is the deviation times ``s / h``, with
``s = h^2 t^2 / (h^2 t^2 + v)`` averaged over the posterior of t, where none has half of
the prior: where the model is right, it stays. What is maximised
is concave: the likelihood, less ``h (1 - s) / 2 s`` times the square of every
coefficient. Near the model this gives that mean. Directions along which features move
as they do with the classes' shares are left out, and shares are brought to those
released: marginals show them better.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from dpgenerative.models.cells import CellFacts, Rake, invert_cdf
from dpgenerative.privacy.embedding import SCALE, TURN, features

MOST_CLASSES = 10
"""The heaviest are corrected: each costs a pass when rows are drawn."""
N_ANGLES = 256
FREQUENCY = 2.0
"""Root mean square of the angles of a row, in radians."""
MOST_COEFFICIENTS = 600
"""Of all classes together, for leading principal components of the features."""
FITTED, INFORMED = 2**15, 2**14
"""Rows drawn for the fit, and those of them for matrices of second moments."""
LARGEST_SCORE = 3.0
"""Standard deviations that stand for the ends of an ordered column."""
ROWS = 2**12
"""Rows whose classes are drawn at a time."""
N_ITERATIONS = 60
LEAST_GAIN = 1e-8
"""In nats per row: less is beyond single precision."""
LEAST_INFORMATION = 1e-7
"""Of the largest eigenvalue: smaller ones are rounding."""
SPREADS = torch.logspace(-2, 1, 31)
"""Values of t beside none, which has half of the prior."""

LogProb = Callable[[Tensor], Tensor]
"""From rows of cells to the logarithms of their probabilities."""


@dataclass(frozen=True)
class ClassCorrection:
    """What is added to the logits of classes, by the other columns.

    Attributes
    ----------
    classes : LongTensor of shape (n_classes,)
        Cells of the first column.
    phases : list of Tensor of int16
        Of the other columns; see `privacy.embedding`.
    weights : Tensor of shape (n_features, n_classes)
    shift : Tensor of shape (n_classes,)
        Brings the classes' shares to the released ones.
    """

    classes: Tensor
    phases: list[Tensor]
    weights: Tensor
    shift: Tensor

    def __post_init__(self) -> None:
        k = len(self.classes)
        shapes = self.weights.shape[1:] == self.shift.shape == (k,)
        values = torch.cat([self.weights, self.shift.unsqueeze(0)]) if shapes else None
        are_cells = self.classes.dtype == torch.long and len(self.classes.unique()) == k
        are_phases = all(
            part.dtype == torch.int16 and part.shape[1:] == (len(self.weights) / 2,)
            for part in self.phases
        )
        is_finite = values is not None and values.isfinite().all()
        if not (is_finite and are_cells and are_phases):
            raise ValueError("no correction of classes")

    def offsets(self, codes: Tensor) -> Tensor:
        """Return what is added to the logits of a row's classes, (n, n_classes)."""
        return features_of(codes, self.phases) @ self.weights + self.shift

    def of(self, log_prob: LogProb) -> LogProb:
        """Return the log-probability of rows of a corrected model."""

        def corrected(codes: Tensor) -> Tensor:
            before, after = self._both(log_prob, codes)
            own = codes[:, :1] == self.classes
            return log_prob(codes) + torch.where(own, after - before, 0).sum(1)

        return corrected

    def redraw(
        self,
        log_prob: LogProb,
        codes: Tensor,
        generator: torch.Generator,
        shares: Tensor | None = None,
        *,
        afresh: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Draw the classes of rows again: all, or as few as can be.

        In the latter case a row's class stays with the ratio of its probabilities after
        and before, at most 1; otherwise it is one of those that gain, in proportion.

        Parameters
        ----------
        log_prob : callable
            Of the model that drew the rows.
        codes : LongTensor of shape (n, d)
            Rows that may have other classes keep theirs.
        generator : torch.Generator
        shares : Tensor of shape (n or 1, n_cells), optional
            Log of the part of every cell of the first column that is allowed.
        afresh : bool, default=False
            Whether no class depends on the one before, so that of rows that differ in
            their class alone any can be chosen.

        Returns
        -------
        codes : LongTensor of shape (n, d)
        log_weights : Tensor of shape (n,)
            What correction and allowed classes change in the rows' weights.
        """
        is_own = torch.isin(codes[:, 0], self.classes)
        own = codes[is_own]
        before, after = self._both(log_prob, own)
        if shares is not None:
            allowed = shares.expand(len(codes), -1)[is_own][:, self.classes]
            before, after = before + allowed, after + allowed
        old, new = before.softmax(1), after.softmax(1)
        u, v = torch.rand(2, len(own), generator=generator)
        drawn, gains = own[:, :1] == self.classes, (new - old).clamp(min=0)
        moves = u * (old * drawn).sum(1) > (new * drawn).sum(1)
        moves = moves & (gains.sum(1) > torch.finfo(gains.dtype).eps) | afresh
        again = self.classes[invert_cdf(new if afresh else gains, v)[0]]
        codes, log_weights = codes.clone(), torch.zeros(len(codes))
        codes[is_own, 0] = torch.where(moves, again, own[:, 0])
        if shares is not None:  # else both are 0
            log_weights[is_own] = after.logsumexp(1) - before.logsumexp(1)
        return codes, log_weights

    def _both(self, log_prob: LogProb, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Return log-probabilities of classes before and after, both (n, n_classes)."""
        before = log_probs_of_classes(log_prob, codes, self.classes)
        after = torch.cat([self.offsets(part) for part in codes.split(ROWS)])
        return before, (before + after).log_softmax(1)


def log_probs_of_classes(log_prob: LogProb, codes: Tensor, classes: Tensor) -> Tensor:
    """Return log-probabilities of the classes given all other columns."""
    rows = []
    for part in codes.split(ROWS):
        columns = []
        for cell in classes.tolist():
            other = part.clone()
            other[:, 0] = cell
            columns.append(log_prob(other))
        rows.append(torch.stack(columns, 1).log_softmax(1))
    return torch.cat(rows)


def features_of(codes: Tensor, phases: Sequence[Tensor]) -> Tensor:
    """Return the features of rows, of norm 1, (n, n_features)."""
    arrays = [part.numpy() for part in phases]
    length = SCALE * math.sqrt(arrays[0].shape[1])
    parts = (features(part.numpy(), arrays) for part in codes.split(ROWS))
    return torch.cat([torch.from_numpy(part / length).float() for part in parts])


def heaviest(facts: CellFacts) -> Tensor:
    """Return the classes to correct: cells of most mass, in their order."""
    order = facts.masses.argsort(descending=True, stable=True)
    return order[:MOST_CLASSES].sort().values


def draw_phases(facts: Sequence[CellFacts], generator: torch.Generator) -> list[Tensor]:
    """Draw the phases of all columns but the first, from released masses.

    An ordered column has a normal score times a random frequency; every other cell, and
    'missing', a random angle of its own.
    """
    size = FREQUENCY / math.sqrt(len(facts) - 1) * TURN / (2 * math.pi)
    phases = []
    for each in facts[1:]:
        shape = len(each.masses), N_ANGLES
        angles = torch.randn(shape, generator=generator, device=generator.device).cpu()
        if each.ordered:
            score = _normal_scores(each)
            scored = score.isfinite()
            angles[scored] = score[scored].unsqueeze(1) * angles[:1]
        phases.append((size * angles).round().long().remainder(TURN).short())
    return phases


def _normal_scores(facts: CellFacts) -> Tensor:
    """Return the normal scores of an ordered column's cells; of 'missing' NaN."""
    masses = facts.masses.double().clone()
    masses[-1] *= not facts.nullable
    middle = (masses.cumsum(0) - masses / 2) / masses.sum()
    scores = torch.special.ndtri(middle).clamp(-LARGEST_SCORE, LARGEST_SCORE)
    if facts.nullable:
        scores[-1] = math.nan
    return scores.float()


@torch.no_grad()
def fit_correction(
    log_prob: LogProb,
    codes: Tensor,
    facts: CellFacts,
    phases: Sequence[Tensor],
    sums: np.ndarray,
    std: float,
    n_rows: int,
) -> ClassCorrection | None:
    """Fit the correction to released embeddings; None if the model draws no class.

    Parameters
    ----------
    log_prob : callable
        Of the model.
    codes : LongTensor of shape (n, d)
        Rows drawn from it.
    facts : CellFacts
        Of the first column.
    phases : sequence of Tensor
    sums : ndarray of shape (n_classes, n_features)
        Released sums of the features of the rows of every class.
    std : float
        Standard deviation of their noise.
    n_rows : int
        Released row count.
    """
    classes = heaviest(facts)
    masses = facts.masses[classes].float()
    codes = codes[torch.isin(codes[:, 0], classes)]
    if not len(codes):
        return None
    log_probs = log_probs_of_classes(log_prob, codes, classes)
    inputs = features_of(codes, phases)
    _, axes = torch.linalg.eigh(inputs[:INFORMED].T @ inputs[:INFORMED])
    axes = axes[:, -(MOST_COEFFICIENTS // len(classes)) :]
    inputs = inputs @ axes
    n = n_rows * float(masses.sum())
    released = torch.from_numpy(sums / n).float() @ axes
    noise = (std / n) ** 2
    even = torch.full((len(codes),), 1 / len(codes))
    one = torch.zeros(len(codes), 1)
    total = released.sum(0, True)
    tilt = _fit(inputs, one, even, total, len(classes) * noise, n, True)
    weights = (inputs @ tilt)[:, 0].softmax(0)
    own = _fit(inputs, log_probs, weights, released, noise, n, False)
    aims = (masses / masses.sum()).log()
    shift = Rake(soft=True).correction(aims, log_probs + inputs @ own, even)
    return ClassCorrection(classes, list(phases), axes @ own, shift)


def _fit(
    inputs: Tensor,
    log_probs: Tensor,
    weights: Tensor,
    released: Tensor,
    noise: float,
    n_rows: float,
    of_rows: bool,
) -> Tensor:
    """Return coefficients by which means become those released, (m, n_classes).

    Those of classes given a row; or, if `of_rows`, one column for the distribution of
    rows.

    Parameters
    ----------
    inputs : Tensor of shape (n, m)
    log_probs : Tensor of shape (n, n_classes)
        Of the classes of every row.
    weights : Tensor of shape (n,)
        Of the rows; their sum is 1.
    released : Tensor of shape (n_classes, m)
    noise : float
        Variance of what is released, by noise.
    n_rows : float
        Of which the released means are.
    of_rows : bool
    """
    means = ((log_probs.exp() * weights.unsqueeze(1)).T @ inputs).flatten().double()
    some = slice(INFORMED)
    share = weights[some] / weights[some].sum()
    information, between = _information(
        inputs[some], log_probs[some].exp(), share, of_rows
    )
    h, vectors = torch.linalg.eigh(information)
    informed = h > LEAST_INFORMATION * h[-1]
    h, vectors = h[informed], vectors[:, informed]
    chance = (vectors * (between @ vectors)).sum(0).clamp(min=0)
    v = noise + chance * weights.square().sum()
    v += (chance if of_rows else chance + h) / n_rows
    deviations = vectors.T @ (released.flatten().double() - means)
    spreads = torch.cat([torch.zeros(1), SPREADS]).double().unsqueeze(1)
    variances = (h * spreads).square() + v
    fits = -(deviations.square() / variances + variances.log()).sum(1) / 2
    prior = torch.full_like(fits, 0.5 / len(SPREADS))
    prior[0] = 0.5
    posterior = (fits + prior.log()).softmax(0)
    rest = posterior @ (v / variances)
    # Scaled so that the second derivatives at 0 are about 1.
    scaled = (vectors * ((1 - rest).clamp(min=0) / h).sqrt()).float()
    rest = rest.float()

    def objective(coefficients: np.ndarray) -> tuple[float, np.ndarray]:
        """Return what is minimised, and its gradient."""
        steps = torch.from_numpy(coefficients).float()
        own = (scaled @ steps).view(released.shape)
        logits = log_probs + inputs @ own.T
        totals = logits.logsumexp(1).double()
        if of_rows:
            total = (totals + weights.log()).logsumexp(0)
            shares = weights * (totals - total).exp().float()
        else:
            total, shares = weights.double() @ totals, weights
        gaps = (shares.unsqueeze(1) * logits.softmax(1)).T @ inputs - released
        penalty = rest * steps
        loss = total - (own * released).sum() + penalty @ steps / 2
        return loss.item(), (scaled.T @ gaps.flatten() + penalty).double().numpy()

    options = {"maxiter": N_ITERATIONS, "ftol": LEAST_GAIN}
    start = np.zeros(len(h))
    best = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
    return (scaled @ torch.from_numpy(best).float()).view(released.shape).T


def _information(
    inputs: Tensor, probs: Tensor, weights: Tensor, of_rows: bool
) -> tuple[Tensor, Tensor]:
    """Return information on all coefficients, class by class.

    And the covariance, over rows, of the means of what a row adds to the sums: that
    of a row is the sum of both, or one of them for coefficients `of_rows`.
    """
    k, m = probs.shape[1], inputs.shape[1]
    shared = torch.zeros(k, m, k, m, dtype=torch.float64)
    for a, b in combinations_with_replacement(range(k), 2):
        share = (probs[:, a] * probs[:, b] * weights).unsqueeze(1)
        part = (inputs * share).T @ inputs
        shared[a, :, b], shared[b, :, a] = part, part.T
    mean = ((probs * weights.unsqueeze(1)).T @ inputs).flatten().double()
    between = shared.view(k * m, k * m) - torch.outer(mean, mean)
    if of_rows:
        return between, between
    own = -shared
    for a in range(k):
        share = (probs[:, a] * (1 - probs[:, a]) * weights).unsqueeze(1)
        own[a, :, a] = (inputs * share).T @ inputs
    # Along these, features move as they do with the classes' shares.
    moves = torch.zeros(k, m, k)
    for b in range(k):
        share = -probs * probs[:, b : b + 1]
        share[:, b] += probs[:, b]
        moves[:, :, b] = (share * weights.unsqueeze(1)).T @ inputs
    along, _ = torch.linalg.qr(moves[:, :, 1:].reshape(k * m, k - 1).double())
    apart = torch.eye(k * m, dtype=torch.float64) - along @ along.T
    return apart @ own.view(k * m, k * m) @ apart, between
