"""The autoencoder against enumeration and quadrature, and as its users meet it."""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2, multivariate_normal

from dpgenerative import DPVAESynthesizer
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.recipe import resolved
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.divergences import (
    CAUCHY_SCALES,
    LATENT_DIVERGENCES,
    Latents,
    latent_mmd,
    mmd,
    prior_kl,
    unbiased_mmd,
)
from dpgenerative.models.priors import (
    GaussianMixture,
    GaussianPrior,
    LatentCells,
    MixturePrior,
    NormalPrior,
    SparsePrior,
    gaussian_of_moments,
    mixture_of_moments,
)
from dpgenerative.models.vae import VAE
from dpgenerative.privacy.accounting import joint_multiplier
from dpgenerative.privacy.latents import (
    LATENTS,
    Refinement,
    ReleasedMoments,
    cell_moments,
    moments,
    release_distribution,
)
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers import session
from dpgenerative.tables.column import Column
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.schema import Schema
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FAST = {"n_steps": 5, "batch_size": 64, "random_state": 0}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def facts_of(masses, ordered=False):
    masses = torch.tensor(masses, dtype=torch.float64)
    return CellFacts(masses, ordered, False, torch.ones(len(masses)).bool())


FACTS = [
    facts_of([0.3, 0.1, 0.2, 0.15, 0.25], ordered=True),
    facts_of([0.5, 0.2, 0.3]),
]
CODES = torch.tensor(list(product(range(5), range(3))))


def make_vae(latent_dim=1, *, scale=1.0, prior=None, beta=1.0):
    model = VAE(
        FACTS, n_basis=2, hidden_units=6, latent_dim=latent_dim,
        prior=prior or NormalPrior(latent_dim), beta=beta, generator=generator(),
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.add_(scale * torch.randn(p.shape, generator=generator(1)))
    return model.double()


def grid(n=4001, reach=10.0):
    z = torch.linspace(-reach, reach, n, dtype=torch.float64)
    return z.unsqueeze(1), float(z[1] - z[0])


def log_probs(model, z, labels=None):
    """Return log p(cell | z) of every column, for a model without tables."""
    return model.cells.log_probs_of(model._coefficients(z, labels))


@torch.no_grad()
def log_decoded(model, z):
    """Return log p(x | z) of all rows of cells at all z, one at a time: (15, m)."""
    first, second = log_probs(model, z)
    return torch.stack([first[:, i] + second[:, j] for i, j in CODES.tolist()])


@torch.no_grad()
def exact(model, distribution=None):
    """Return log p(x) of all rows of cells, by quadrature over one latent."""
    z, step = grid()
    distribution = distribution or model.latent_distribution
    log_joint = log_decoded(model, z) + distribution.log_prob(z)
    return torch.logsumexp(log_joint, 1) + math.log(step)


def noise(n_draws, latent_dim=1, seed=0):
    shape = (len(CODES), n_draws, latent_dim)
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


class Plain:
    """A user's own prior: N(0, I), by the two methods alone."""

    def __init__(self, dim):
        self.dim = dim

    def log_prob(self, z):
        return torch.distributions.Normal(0, 1).log_prob(z).sum(-1)

    def sample(self, n, generator=None):
        return torch.randn(n, self.dim, generator=generator)


# The bound ------------------------------------------------------------------------


def test_probabilities_add_up():
    assert float(exact(make_vae()).exp().sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "wrong", [{"gamma": 0.0}, {"gamma": 1.0}, {"spike_variance": 0.0}]
)
def test_a_sparse_prior_is_of_two_gaussians(wrong):
    with pytest.raises(ValueError, match=rf"'{next(iter(wrong))}' of SparsePrior"):
        SparsePrior(2, **wrong)


@pytest.mark.thin(3)
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("prior", [None, Plain(1), SparsePrior(1)])
def test_the_bound_is_that_of_quadrature(beta, prior):
    model = make_vae(prior=prior, beta=beta)
    mean, log_variance = (x.detach() for x in model.encode(CODES))
    z, step = grid()
    log_q = -0.5 * ((z.T - mean).square() / log_variance.exp())
    log_q = log_q - 0.5 * (log_variance + math.log(2 * math.pi))
    gap = log_q - model.prior.log_prob(z)
    integrand = log_decoded(model, z) - beta * gap
    expected = (log_q.exp() * integrand).sum(1) * step
    found, latents = model(CODES, noise(60_000))
    assert torch.allclose(found, expected, atol=0.05)
    assert latents.draws.shape == (len(CODES), 60_000, 1)
    if beta == 1:
        assert (expected < exact(model)).all()


@torch.no_grad()
def test_importance_weights_close_the_gap():
    model = make_vae(scale=0.3)
    target = exact(model)
    draws = [noise(1, seed=seed) for seed in range(200)]
    few = torch.stack([model.log_likelihood(CODES, each) for each in draws])
    many = model.log_likelihood(CODES, noise(100_000))
    assert torch.allclose(many, target, atol=0.06)
    assert (few.mean(0) < target + 0.05).all()
    assert float(few.mean(0).mean()) < float(target.mean()) - 0.05


def test_importance_weights_follow_the_fitted_distribution():
    model = make_vae(scale=0.5)
    distribution = GaussianPrior(torch.tensor([0.7]), torch.tensor([[0.5]]))
    before = exact(model)
    model.latent_distribution = distribution
    target = exact(model)
    assert (before - target).abs().max() > 0.1
    assert torch.allclose(model.log_likelihood(CODES, noise(50_000)), target, atol=0.05)


def test_an_untrained_model_is_the_product_of_the_marginals():
    model = make_vae(scale=0.0)
    expected = [
        math.log(float(FACTS[0].masses[i] * FACTS[1].masses[j]))
        for i, j in CODES.tolist()
    ]
    assert torch.allclose(exact(model), torch.tensor(expected).double(), atol=1e-5)


def gap_of_shares(codes):
    """Return the largest distance of a cell's share from its released mass."""
    return max(
        (torch.bincount(part, minlength=len(f.masses)) / len(part) - f.masses)
        .abs()
        .max()
        for part, f in zip(codes.T, FACTS, strict=True)
    )


@pytest.mark.parametrize("latent_dim", [1, 3])
def test_samples_follow_the_model(latent_dim):
    model, n = make_vae(latent_dim).float(), 40_000
    z = model.prior.sample(200_000, generator(9))
    masses = log_decoded(model, z).exp().mean(1).double()
    codes = model.sample(n, generator(2))
    counts = np.bincount((codes[:, 0] * 3 + codes[:, 1]).numpy(), minlength=15)
    expected = n * masses.numpy()
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert statistic < chi2.isf(1e-4, 14)
    shifted = np.roll(expected, 1)
    assert ((counts - shifted) ** 2 / shifted).sum() > chi2.isf(1e-4, 14)


def test_cells_are_drawn_not_picked():
    model = make_vae().float()
    z = torch.zeros(20_000, 1)
    codes = model.decode(z, generator())
    expected = log_probs(model, z[:1])[0].exp()[0]
    shares = torch.bincount(codes[:, 0], minlength=5) / len(z)
    assert torch.allclose(shares, expected.detach(), atol=0.02)


def test_a_sample_of_a_raked_model_has_the_released_shares(monkeypatch):
    model = make_vae(3, scale=2.0).float()
    model.rake(20_000, generator(3))

    def mean_gap():
        samples = [model.sample(2_000, generator(seed)) for seed in range(9)]
        return np.mean([gap_of_shares(codes) for codes in samples])

    gap = mean_gap()
    monkeypatch.setattr("dpgenerative.models.vae.FEW_RAKED", math.inf)
    assert gap < mean_gap() / 2


def test_few_rows_of_a_raked_model_have_rare_cells():
    facts = [facts_of([0.5, *[0.5 / 400] * 400])]
    model = VAE(
        facts, n_basis=2, hidden_units=6, latent_dim=1, prior=NormalPrior(1), beta=1.0,
        generator=generator(),
    )  # fmt: skip
    model.cells.raking += 1e-6
    rows = torch.cat([model.sample(30, generator(seed)) for seed in range(100)])
    assert abs((rows > 0).float().mean() - 0.5) < 0.03


def test_cells_are_even_among_rows_of_one_latent():
    model, n = make_vae(3).float(), 2_000
    rows = model.decode(torch.ones(n, 3), generator(1))
    masses = [x.exp()[0] for x in log_probs(model, torch.ones(1, 3))]
    for part, mass in zip(rows.T, masses, strict=True):
        seen = torch.bincount(part, minlength=len(mass))
        assert (seen - n * mass).abs().max() < 6


def test_labels_follow_their_marginal():
    model = VAE(
        FACTS, n_basis=2, hidden_units=6, latent_dim=2, prior=NormalPrior(2), beta=1.0,
        generator=generator(), condition=0,
    )  # fmt: skip
    for n in (100, 5_000):
        seen = torch.bincount(model.sample(n, generator(2))[:, 0], minlength=5)
        assert (seen - n * FACTS[0].masses).abs().max() <= 3


def test_few_rows_of_a_raked_model_depend_on_their_latents():
    model, n = make_vae(1, scale=2.0).float(), 3_000
    model.rake(20_000, generator(3))
    z = model.prior.sample(100_000, generator(9))
    masses = log_decoded(model, z).exp().mean(1).double().numpy()
    rows = torch.cat([model.sample(3, generator(seed)) for seed in range(n // 3)])
    counts = np.bincount(rows @ torch.tensor([3, 1]), minlength=15)
    apart = np.outer(*(masses.reshape(5, 3).sum(axis) for axis in (1, 0))).ravel()
    near, far = (((counts - n * x) ** 2 / (n * x)).sum() for x in (masses, apart))
    assert near < chi2.isf(1e-4, 14) < far


def test_raking_returns_the_marginals():
    model = make_vae(2).float()

    @torch.no_grad()
    def gap():
        z = model.prior.sample(50_000, generator(7))
        return max(
            float((c.exp().mean(0) - f.masses).abs().max())
            for c, f in zip(log_probs(model, z), FACTS, strict=True)
        )

    assert gap() > 0.05
    model.rake(20_000, generator(3))
    assert gap() < 0.01


def test_log_variances_are_bounded():
    model = make_vae(scale=1e3)
    _, log_variance = model.encode(CODES)
    assert log_variance.abs().max() <= 5


# Priors ---------------------------------------------------------------------------

MIXTURE = MixturePrior(
    torch.tensor([[0.0, 1.0], [2.0, -1.0]]), torch.tensor([[0.3, 1.0], [0.1, 0.5]]),
    torch.tensor([1.0, 3.0]),
)  # fmt: skip
PRIORS = {
    "normal": NormalPrior(2),
    "sparse": SparsePrior(2),
    "mixture": MIXTURE,
    "even mixture": MixturePrior(torch.eye(2), 0.2),
    "on axes": MixturePrior.on_axes(2),
    "gaussian": GaussianPrior(
        torch.tensor([0.5, -0.5]), torch.tensor([[1.0, 0.0], [0.6, 0.7]])
    ),
    "gaussians": GaussianMixture(
        torch.tensor([[1.5, -0.5], [-1.0, 0.0], [0.0, 2.0]]),
        torch.tensor([[0.8, 0.0], [0.5, 0.6]]),
        torch.tensor([0.5, 0.3, 0.2]),
    ),
}


@pytest.mark.parametrize("name", PRIORS)
def test_priors_integrate_to_one_and_sample_what_they_say(name):
    prior = PRIORS[name]
    line = torch.arange(-7, 7, 0.02, dtype=torch.float64) + 0.01
    points, step = torch.cartesian_prod(line, line), float(line[1] - line[0])
    density = prior.log_prob(points).exp() * step**2
    assert float(density.sum()) == pytest.approx(1, abs=2e-3)
    draws = prior.sample(100_000, generator())
    assert draws.shape == (100_000, 2)
    edges = torch.tensor([-1.0, -0.2, 0.2, 1.0])
    for axis in (0, 1):
        cells = torch.bucketize(draws[:, axis].contiguous(), edges)
        found = torch.bincount(cells, minlength=5) / len(draws)
        where = torch.bucketize(points[:, axis].contiguous(), edges.double())
        masses = torch.zeros(5).double().index_add_(0, where, density)
        assert torch.allclose(found.double(), masses, atol=0.01)
    covariance = torch.cov(draws.T).double()
    mean = density @ points
    centred = points - mean
    assert torch.allclose(draws.mean(0).double(), mean, atol=0.02)
    assert torch.allclose(
        covariance, centred.T @ (density[:, None] * centred), atol=0.03
    )


@pytest.mark.parametrize("dim", [1, 3, 6])
def test_the_mixture_on_axes_has_the_moments_of_the_normal_distribution(dim):
    prior = MixturePrior.on_axes(dim)
    assert prior.means.shape == (2 * min(dim, 4), dim)
    assert torch.allclose(prior.means.mean(0), torch.zeros(dim), atol=1e-6)
    second = prior.means.T @ prior.means / len(prior.means)
    second += prior.variances.mean(0).diag()
    assert torch.allclose(second, torch.eye(dim), atol=1e-6)


def test_priors_against_scipy():
    z = torch.randn(5, 2, generator=generator()).double()
    mean, root = torch.tensor([0.5, -0.5]), torch.tensor([[1.0, 0.0], [0.6, 0.7]])
    distribution = multivariate_normal(mean.numpy(), (root @ root.T).numpy())
    found = GaussianPrior(mean, root).log_prob(z.unsqueeze(0))
    assert found.shape == (1, 5)
    assert np.allclose(found[0], distribution.logpdf(z.numpy()), atol=1e-5)
    parts = [
        0.25 * multivariate_normal([0, 1], np.diag([0.3, 1.0])).pdf(z.numpy()),
        0.75 * multivariate_normal([2, -1], np.diag([0.1, 0.5])).pdf(z.numpy()),
    ]
    assert np.allclose(MIXTURE.log_prob(z), np.log(sum(parts)), atol=1e-5)


# Divergences ----------------------------------------------------------------------


def some_latents(m=7, n_draws=2, k=2, shift=0.0, spread=0.0):
    mean = torch.randn(m, k, generator=generator(3)) + shift
    log_variance = torch.full((m, k), spread)
    noise = torch.randn(m, n_draws, k, generator=generator(4))
    draws = mean.unsqueeze(1) + (log_variance / 2).exp().unsqueeze(1) * noise
    return Latents(draws, mean, log_variance)


@pytest.mark.parametrize(("m", "n_draws"), [(7, 2), (5, 1), (1, 3)])
def test_latent_mmd_is_the_sum_over_pairs_of_different_records(m, n_draws):
    latents, prior = some_latents(m, n_draws), SparsePrior(2)
    x = latents.draws.numpy()
    y = prior.sample(64, generator(5)).numpy()

    def kernel(a, b):
        return sum(s / (s + (a - b) ** 2) for s in CAUCHY_SCALES)

    def pairs(a, d):
        n = len(a)
        values = [
            kernel(u, v)
            for i, k in product(range(n), repeat=2)
            if i != k
            for u in a[i, :, d]
            for v in a[k, :, d]
        ]
        return np.mean(values) if values else 0.0

    expected = sum(
        pairs(x, d)
        - 2 * np.mean([kernel(u, v) for u in x[..., d].ravel() for v in y[:, d]])
        + pairs(y[:, None], d)
        for d in (0, 1)
    )
    found = latent_mmd(latents, prior, generator(5))
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_unbiased_mmd_of_pairs_has_the_mean_of_the_whole():
    # 1000 pairs, and the same points as one partition.
    z = 0.5 * torch.randn(2000, 1, 1, generator=generator(6)).double()
    masses = (torch.arange(64).double() + 0.5) / 64
    nodes = torch.special.ndtri(masses).unsqueeze(1)  # those of mmd
    by_pairs = torch.stack([unbiased_mmd(pair, nodes) for pair in z.split(2)])
    whole = float(unbiased_mmd(z, nodes))
    error = float(by_pairs.std()) / 1000**0.5
    assert abs(float(by_pairs.mean()) - whole) < 5 * error
    with_itself = torch.stack([mmd(pair[:, 0]) for pair in z.split(2)])
    assert float(with_itself.mean()) > whole + 20 * error


def test_prior_kl_is_the_mean_over_draws_of_the_prior():
    latents, prior = some_latents(spread=-0.5), NormalPrior(2)
    z = prior.sample(256, generator(5)).numpy()
    q = np.mean(
        [
            multivariate_normal(m.numpy(), np.diag(v.exp().numpy())).pdf(z)
            for m, v in zip(latents.mean, latents.log_variance, strict=True)
        ],
        axis=0,
    )
    p = multivariate_normal([0, 0]).pdf(z)
    expected = np.mean(np.log(p) - np.log(q))
    found = prior_kl(latents, prior, generator(5))
    assert float(found) == pytest.approx(expected, rel=1e-4)


def test_prior_kl_is_that_of_gaussians():
    # One record: KL(N(0, 1) || N(1, e)) in closed form.
    one = Latents(torch.ones(1, 1, 1), torch.ones(1, 1), torch.ones(1, 1))
    draws = [prior_kl(one, NormalPrior(1), generator(s)) for s in range(400)]
    expected = 0.5 * (1 + 2 / math.e - 1)
    assert float(torch.stack(draws).mean()) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("name", LATENT_DIVERGENCES)
def test_divergences_grow_with_the_distance_and_pull_back(name):
    near, far = (some_latents(300, shift=s) for s in (0.0, 3.0))
    divergence = LATENT_DIVERGENCES[name]
    prior = NormalPrior(2)
    assert divergence(near, prior, generator()) < divergence(far, prior, generator())
    mean = far.mean.clone().requires_grad_()
    moved = Latents(far.draws - far.mean.unsqueeze(1) + mean.unsqueeze(1), mean,
                    far.log_variance)  # fmt: skip
    (pull,) = torch.autograd.grad(divergence(moved, prior, generator()), mean)
    assert (pull.sum(0) > 0).all()


# The distribution of the latents --------------------------------------------------


def all_of(z):
    """Return that all rows are ones."""
    return torch.ones(len(z)).bool()


def wide_latents():
    return make_vae(3, scale=5.0).latents(CODES, noise(1, 3)).draws[:, 0].detach()


def test_moments_of_one_record_have_norm_at_most_root_three():
    z = wide_latents()
    alone = np.stack([moments(each, 0.8, all_of(each)) for each in z.split(1)])
    norms = np.linalg.norm(alone, axis=1)
    assert (norms <= math.sqrt(3) * (1 + 1e-9)).all()
    assert norms.max() > 0.999 * math.sqrt(3)
    assert np.allclose(moments(z, 0.8, all_of(z)), alone.sum(0))
    broken = moments(z * math.nan, 0.8, all_of(z))
    assert broken[0] == len(z)
    assert not broken[1:].any()


def test_rows_that_pad_an_array_count_for_nothing():
    z, cells = wide_latents(), LatentCells.of_gaussian(STANDARD)
    present = torch.arange(len(z)) % 3 > 0
    for sums in (moments, partial(cell_moments, cells=cells)):
        found = sums(z, 0.8, present)
        assert np.allclose(found, sums(z[present], 0.8, all_of(z[present])))


@pytest.mark.parametrize("n", [0, 1, 3, 4097])
def test_latents_are_drawn_in_arrays_of_one_public_shape(n):
    """Else one row more rounds the others anew, in arrays of one to three rows."""
    plan = make_plan(
        epsilon=1.0, delta=1e-5, n_rows=5000, sampling_rate=0.1, n_steps=1,
        marginal_budget=0, has_open_keys=False, estimates_norm=False, prior_budget=0.5,
    )  # fmt: skip
    seen, found, rng = set(), [], np.random.default_rng(0)

    def draw(codes):
        seen.add(codes.shape)
        return codes.float()

    mechanisms = Mechanisms(rng, rng)
    mechanisms.gaussian = lambda values, *_, **__: (
        found.append(opened(values)) or found[-1]
    )
    codes = Private(torch.arange(2 * n).reshape(n, 2) + 1)
    refinement = Refinement(lambda _: LatentCells.of_gaussian(PLANE), lambda *_: None)
    release_distribution(
        draw, codes, 2, plan, mechanisms, lambda _: None, rng, refinement
    )
    assert seen == {(4096, 2)}
    assert found[0][0] == found[1][:, 0].sum() == n


def test_the_gaussian_of_moments():
    radius = 50.0
    root = np.array([[1.0, 0.0], [0.8, 0.5]])
    z = np.array([1.0, -2.0]) + np.random.default_rng(0).normal(size=(5000, 2)) @ root.T
    exact = moments(torch.from_numpy(z), radius, all_of(torch.from_numpy(z)))
    gaussian = gaussian_of_moments(ReleasedMoments(exact, radius, 0.0, len(z)))
    assert np.allclose(gaussian.mean, z.mean(0), atol=1e-4)
    covariance = (gaussian.root @ gaussian.root.T).numpy()
    assert np.allclose(covariance, np.cov(z.T, bias=True), atol=1e-3)


def test_moments_of_mostly_noise_give_way_to_the_normal_distribution():
    rng = np.random.default_rng(0)
    exact = np.concatenate([[200.0], np.full(3, 20.0), 100 * np.eye(3).ravel()])

    def gap(std):
        noisy = exact + rng.normal(0, std, exact.shape)
        gaussian = gaussian_of_moments(ReleasedMoments(noisy, 4.0, std, 200))
        off = (gaussian.root @ gaussian.root.T - torch.eye(3)).abs().max()
        return float(gaussian.mean.abs().max()), float(off)

    assert gap(1e-3)[0] == pytest.approx(0.4, rel=1e-3)
    assert gap(1e-3)[1] == pytest.approx(7 - 0.16, rel=1e-2)
    assert max(gap(1e3)) < 0.2


@pytest.mark.parametrize("seed", range(5))
def test_any_release_gives_a_gaussian(seed):
    # Few rows and much noise: negative counts and indefinite matrices.
    noise = np.random.default_rng(seed).normal(0, 100, 1 + 3 + 9)
    gaussian = gaussian_of_moments(ReleasedMoments(noise, 4.0, 0.0, 1))
    assert torch.isfinite(gaussian.sample(10, generator())).all()
    variances = torch.linalg.eigvalsh(gaussian.root @ gaussian.root.T)
    assert variances.min() >= 0.009
    assert variances.max() <= 16.1


PLANE = GaussianPrior(torch.zeros(2), torch.eye(2))
STANDARD = GaussianPrior(torch.zeros(3), torch.diag(torch.tensor([2.0, 1.0, 1.5])))


def test_cells_are_the_orthants_of_the_main_axes():
    cells = LatentCells.of_gaussian(STANDARD)
    assert cells.count == 8
    assert torch.allclose(cells.axes.abs(), torch.eye(3).double()[[0, 2, 1]].T)
    z = torch.randn(50, 3, generator=generator())
    of = cells.of(z)
    same = (of[:, None] == of[None]) == (z.sign()[:, None] == z.sign()[None]).all(2)
    assert same.all()
    assert set(of.tolist()) == set(range(8))
    wide = GaussianPrior(torch.zeros(6), torch.eye(6))
    assert LatentCells.of_gaussian(wide).count == 16


def test_one_record_is_in_one_cell_by_at_most_root_two():
    z, cells = wide_latents(), LatentCells.of_gaussian(STANDARD)
    alone = np.stack(
        [cell_moments(each, 0.8, all_of(each), cells) for each in z.split(1)]
    )
    norms = np.sqrt((alone**2).sum((1, 2)))
    assert (norms <= math.sqrt(2) * (1 + 1e-9)).all()
    assert norms.max() > 0.999 * math.sqrt(2)
    assert (alone.any(2).sum(1) == 1).all()
    whole = cell_moments(z, 0.8, all_of(z), cells)
    assert np.allclose(whole, alone.sum(0))
    assert np.allclose(whole.sum(0), moments(z, 0.8, all_of(z))[:4])
    broken = cell_moments(z * math.nan, 0.8, all_of(z), cells)
    assert broken[:, 0].sum() == len(z)
    assert not broken[:, 1:].any()


def two_clouds(n=4000):
    rng = np.random.default_rng(0)
    return rng.choice([-2.0, 2.0], (n, 1)) * [1, 0.5] + 0.5 * rng.normal(size=(n, 2))


def released(z, radius, std=0.0, seed=0):
    """Return what is fitted to points, as a release with this noise would have it."""
    rng = np.random.default_rng(seed)
    points = torch.from_numpy(z)

    def noisy(exact):
        values = exact + rng.normal(0, std, exact.shape)
        return ReleasedMoments(values, radius, std, len(z))

    gaussian = gaussian_of_moments(noisy(moments(points, radius, all_of(points))))
    cells = LatentCells.of_gaussian(gaussian)
    return gaussian, mixture_of_moments(
        gaussian, noisy(cell_moments(points, radius, all_of(points), cells))
    )


def test_the_mixture_of_moments_finds_clouds():
    z = two_clouds()
    gaussian, mixture = released(z, 10.0)
    points = torch.from_numpy(z).float()
    assert mixture.log_prob(points).mean() > gaussian.log_prob(points).mean() + 0.3
    draws = mixture.sample(20_000, generator())
    assert np.allclose(draws.mean(0), z.mean(0), atol=0.05)
    assert np.allclose(torch.cov(draws.T), np.cov(z.T), atol=0.1)
    assert (draws[:, 0].abs() < 0.7).float().mean() < 0.02
    assert float(mixture.weights.sum()) == pytest.approx(1)


def test_cells_of_mostly_noise_leave_the_gaussian():
    gaussian, mixture = released(two_clouds(50), 4.0, std=1e4)
    assert (mixture.means - gaussian.mean).abs().max() < 0.2
    points = torch.randn(50, 2, generator=generator())
    assert torch.allclose(gaussian.log_prob(points), mixture.log_prob(points), atol=0.3)


@pytest.mark.parametrize("seed", range(5))
def test_any_release_gives_a_mixture(seed):
    _, mixture = released(two_clouds(5), 4.0, std=30.0, seed=seed)
    assert torch.isfinite(mixture.sample(10, generator())).all()
    assert (mixture.weights > 0).all()


# The estimator --------------------------------------------------------------------


def table(n=1000, seed=0):
    rng = np.random.default_rng(seed)
    side = rng.random(n) < 0.5
    colours = np.where(side ^ (rng.random(n) < 0.05), "red", "blue")
    return pd.DataFrame(
        {
            "side": side,
            "colour": pd.Categorical(colours, categories=["blue", "red"]),
            "size": np.where(side, 10.0, 0.0) + rng.normal(size=n),
        }
    )


def fitted(frame=None, **params):
    frame = table() if frame is None else frame
    return DPVAESynthesizer().set_params(**{**FAST, **params}).fit(frame)


def agreement(frame):
    return float((frame["side"] == (frame["colour"] == "red")).mean())


@pytest.mark.thorough
def test_it_learns_what_depends_on_what():
    frame = table(4000)
    assert 0.4 < agreement(fitted(frame, n_steps=1, epsilon=None).sample(4000)) < 0.6
    synthesizer = fitted(frame, epsilon=8.0, n_steps=150, batch_size=512)
    sample = synthesizer.sample(4000)
    assert agreement(sample) > 0.8
    assert sample["size"].corr(sample["side"]) > 0.5
    some = frame[:1000]
    untrained = fitted(frame, n_steps=1, architecture__table_budget=0.0)
    assert synthesizer.score(some) - untrained.score(some) > 0.4


def test_codes_of_rows_lead_back_to_them():
    frame = table(4000)
    synthesizer = fitted(frame, epsilon=None, n_steps=200, batch_size=512)
    latents = synthesizer.encode(frame)
    assert latents.shape == (4000, synthesizer._model.latent_dim)
    again = synthesizer.reconstruct(frame, random_state=0)
    pd.testing.assert_series_equal(again.dtypes, frame.dtypes)
    assert float((again["side"] == frame["side"]).mean()) > 0.9
    pd.testing.assert_frame_equal(again, synthesizer.decode(latents, random_state=0))
    assert not again.equals(synthesizer.decode(latents, random_state=1))
    for wrong in (latents[:, :-1], frame, latents.astype(str)):
        with pytest.raises(ValueError, match=r"decode.*shape") as raised:
            synthesizer.decode(wrong)
        assert "left" not in str(raised.value)


def test_a_target_is_encoded_and_decoded_with_the_rest():
    frame = table()
    synthesizer = DPVAESynthesizer(**FAST).fit(frame[["side", "size"]], frame["colour"])
    X, y = synthesizer.reconstruct(frame[["side", "size"]], frame["colour"])
    assert X.columns.tolist() == ["side", "size"]
    assert y.name == "colour"


def test_more_draws_tighten_the_score():
    synthesizer = fitted(table(), epsilon=None, n_steps=200)
    frame = table(300, seed=1)
    few, many = (synthesizer.score_samples(frame, n_draws=n).mean() for n in (1, 200))
    assert few < many
    with pytest.raises(ValueError, match="n_draws"):
        synthesizer.score_samples(frame, n_draws=0)


@pytest.mark.thorough
def test_chunks_do_not_change_scores_in_kind(monkeypatch):
    from dpgenerative.synthesizers import latents

    frame = table()
    synthesizer = fitted(frame, epsilon=None)
    whole = synthesizer.score_samples(frame, n_draws=2000)
    monkeypatch.setattr(latents, "SCORE_CELLS", 400_000)
    parts = synthesizer.score_samples(frame, n_draws=2000)
    assert parts.shape == whole.shape
    # Other draws, the same bound.
    assert abs(parts.mean() - whole.mean()) < 0.02
    assert np.corrcoef(parts, whole)[0, 1] > 0.9


def test_the_moments_of_the_latents_are_reported_and_used():
    with_moments = fitted(architecture__prior_budget=0.1, noise="reproducible")
    without = fitted(architecture__prior_budget=0, noise="reproducible")
    words = "moments of clipped latents"
    assert words in str(with_moments.privacy_)
    assert words not in str(without.privacy_)
    assert math.isfinite(with_moments.privacy_.plan.multiplier(LATENTS))
    assert math.isinf(without.privacy_.plan.multiplier(LATENTS))
    assert isinstance(with_moments._model.latent_distribution, GaussianPrior)
    assert isinstance(without._model.latent_distribution, NormalPrior)
    assert 0.99 < with_moments.epsilon_ <= 1
    assert with_moments.noise_multiplier_ > without.noise_multiplier_


def test_a_mixture_is_paid_for_by_two_releases(monkeypatch):
    stds = []

    class Door(Mechanisms):
        def gaussian(self, values, std, **stated):
            if opened(values).shape in ((43,), (16, 7)):
                stds.append(std)
            return super().gaussian(values, std, **stated)

    monkeypatch.setattr(
        DPVAESynthesizer, "_mechanisms", lambda self, s: Door(s.counts, s.gradients)
    )
    mixture = {"architecture__latent_distribution": "mixture"}
    fit = fitted(**mixture, architecture__latent_dim=6)
    assert isinstance(fit._model.latent_distribution, GaussianMixture)
    multipliers = [stds[0] / math.sqrt(3), stds[1] / math.sqrt(2)]
    plan = fit.privacy_.plan
    assert joint_multiplier(multipliers) == pytest.approx(plan.multiplier(LATENTS))
    assert np.isfinite(fit.score(table(50)))
    stds.clear()
    fitted(architecture__latent_dim=6)
    assert stds[0] / math.sqrt(3) == pytest.approx(plan.multiplier(LATENTS))
    fitted(**mixture, architecture__latent_dim=6, architecture__prior_budget=0)
    assert len(stds) == 1


def test_other_priors_stay_unless_asked():
    assert isinstance(fitted(prior="sparse")._model.latent_distribution, SparsePrior)
    assert isinstance(fitted(prior="mixture")._model.latent_distribution, MixturePrior)
    fit = fitted(prior="sparse", architecture__prior_budget=0.05)
    assert isinstance(fit._model.latent_distribution, GaussianPrior)


def test_a_prior_of_ones_own():
    fit = fitted(prior=Plain(3))
    assert fit._model.latent_dim == 3
    assert len(fit.sample(5)) == 5
    assert np.isfinite(fit.score(table(50)))
    with pytest.raises(ValueError, match=r"'architecture__latent_dim' .* must be 3"):
        fitted(prior=Plain(3), architecture__latent_dim=4)
    with pytest.raises(ValueError, match="log_prob"):
        fitted(prior=object())


@pytest.mark.thin(3)
@pytest.mark.parametrize("aggregation", ["term-wise", "micro", "batch"])
@pytest.mark.parametrize("epsilon", [1.0, None])
def test_aggregations_run_and_say_so(aggregation, epsilon):
    fit = fitted(divergence__aggregation=aggregation, divergence="mmd", epsilon=epsilon)
    assert len(fit.sample(5)) == 5
    text = str(fit.privacy_)
    assert ("16 partitions" in text) == (aggregation == "term-wise")
    assert (f"{aggregation} aggregation" in text) == (aggregation != "term-wise")


def gradient_of(fit):
    """Return how the fit of a synthesizer bounds gradients."""
    private = session.planned_fit(fit, TableDomain(fit.schema_))
    return private.gradient(fit._model, None, fit.privacy_.plan, None)


def test_a_divergence_of_ones_own_reaches_everything():
    seen = set()

    def spread(latents, prior, generator):
        seen.add((latents.draws.shape[1:], type(prior), type(generator)))
        return latents.mean.square().mean()

    fit = fitted(divergence=spread, architecture__n_draws=2, architecture__latent_dim=3)
    assert seen == {((2, 3), NormalPrior, torch.Generator)}
    assert fit._recipe.batch_term_module == ""
    assert DPVAESynthesizer(divergence="kl")._recipe.batch_term_module == "encoder"
    found = gradient_of(fitted(divergence="kl"))
    assert found.batch_term_module == "encoder"
    assert gradient_of(fit).batch_term_module == ""


@pytest.mark.thorough
def test_the_divergence_pulls_the_latents_to_the_prior():
    def far(latents, prior, generator):
        return (latents.mean - 3).square().mean()

    frame = table()
    near, moved = (
        fitted(
            frame,
            epsilon=None,
            divergence=d,
            n_steps=200,
            divergence__weight=20.0,
            optimizer__learning_rate=0.02,
        ).encode(frame)
        for d in (None, far)
    )
    assert abs(near.mean()) < 1
    assert moved.mean() > 2


def test_partitions_have_no_effect_without_a_divergence():
    def weights(**params):
        return fitted(noise="reproducible", **params)._model.decoder.skip.weight

    assert torch.equal(
        weights(),
        weights(n_partitions=3, divergence__weight=9.0, divergence__max_grad_norm=2.0),
    )
    with_it = weights(divergence="mmd")
    assert not torch.equal(with_it, weights(divergence="mmd", n_partitions=3))
    weak = weights(divergence="mmd", divergence__weight=1e-3)
    assert not torch.equal(with_it, weak)


@pytest.mark.thorough
def test_beta_and_draws_do_what_they_say():
    frame = table()
    loose, tight = (
        fitted(frame, epsilon=None, n_steps=150, architecture__beta=beta).encode(frame)
        for beta in (0.0, 5.0)
    )
    assert loose.std() > 2 * tight.std()

    def weights(**params):
        return fitted(noise="reproducible", **params)._model.decoder.skip.weight

    assert torch.equal(
        weights(), weights(architecture__beta=0.7, architecture__n_draws=2)
    )
    assert not torch.equal(weights(), weights(architecture__n_draws=3))
    assert not torch.equal(weights(), weights(architecture__beta=1.0))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("divergence__aggregation", "mean"),
        ("divergence", "wasserstein"),
        ("prior", "cauchy"),
        ("architecture__prior_budget", 1.0),
        ("architecture__prior_budget", -0.1),
        ("divergence__weight", -1),
        ("architecture__beta", math.nan),
        ("architecture__n_draws", 0),
        ("architecture__latent_dim", 0),
        ("architecture__latent_distribution", "kernel"),
        ("architecture__hidden_units", 0),
        ("epsilon", 0),
        ("n_partitions", 0),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ValueError, match=f"parameter {name!r} of DPVAE") as error:
        fitted(**{name: value})
    assert repr(value) in str(error.value)


def test_the_share_for_the_latents_may_be_zero():
    with pytest.raises(ValueError, match=r"prior_budget.*in \[0, 1\) or 'auto'"):
        fitted(architecture__prior_budget=1.0)


def test_the_baselines_clip_flat():
    with pytest.raises(ValueError, match="clipping"):
        fitted(divergence__aggregation="micro", clipping="per-unit")


@pytest.mark.parametrize(
    ("n_rows", "epsilon", "units", "latents"),
    [(100, 1.0, 16, 4), (1000, 1.0, 64, 4), (1000, 2.0, 64, 5), (100, None, 64, 6)],
)
def test_the_size_follows_rows_and_epsilon(n_rows, epsilon, units, latents):
    model = fitted(table(n_rows), epsilon=epsilon)._model
    assert model.latent_dim == latents
    assert model.encoder.hidden.weight.shape[0] == units


def test_shares_beyond_the_budget_are_refused():
    with pytest.raises(ValueError, match="marginal_budget"):
        fitted(architecture__prior_budget=0.6, marginal_budget=0.6)


# A label --------------------------------------------------------------------------


def test_a_condition_keeps_its_marginal_and_the_rest_adds_up():
    model = VAE(
        FACTS, n_basis=2, hidden_units=6, latent_dim=1, prior=NormalPrior(1),
        beta=1.0, generator=generator(), condition=1,
    )  # fmt: skip
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.5 * torch.randn(p.shape, generator=generator(1)))
    z, step = grid()
    model = model.double()
    told = [torch.full((len(z),), k) for k in range(3)]
    joint = []
    for i, k in CODES.tolist():
        first, second = log_probs(model, z, told[k])
        density = (
            first[:, i] + second[:, k] + model.latent_distribution.log_prob(z)
        ).exp()
        joint.append(float(density.detach().sum()) * step)
    joint = torch.tensor(joint).double()
    assert float(joint.sum()) == pytest.approx(1, abs=1e-6)
    assert torch.allclose(joint.view(5, 3).sum(0), FACTS[1].masses, atol=1e-6)
    apart = torch.outer(joint.view(5, 3).sum(1), FACTS[1].masses)
    assert (joint.view(5, 3) - apart).abs().max() > 0.01
    with torch.no_grad():
        found = model.log_likelihood(CODES, noise(40_000))
    assert (found - joint.log()).abs().mean() < 0.03


@pytest.mark.thorough
def test_rows_of_a_given_label():
    frame = table(4000)
    synthesizer = fitted(
        frame, epsilon=8.0, n_steps=150, batch_size=512, conditional="colour"
    )
    labels = ["red"] * 300 + ["blue"] * 700
    given = pd.DataFrame({"colour": labels})
    rows = synthesizer.sample(given=given, random_state=0)
    pd.testing.assert_series_equal(rows.dtypes, frame.dtypes)
    assert rows["colour"].tolist() == labels
    assert rows["side"][:300].mean() > 0.8
    assert rows["side"][300:].mean() < 0.2
    again = synthesizer.decode(synthesizer.encode(frame), 0, labels=["red"] * 4000)
    assert (again["colour"] == "red").all()
    same = synthesizer.reconstruct(frame, random_state=0)
    assert same["colour"].tolist() == frame["colour"].tolist()
    free = synthesizer.sample(4000)
    assert abs((free["colour"] == "red").mean() - 0.5) < 0.05
    assert np.isfinite(synthesizer.score(frame))


def test_a_given_target_is_a_label():
    frame = table()
    synthesizer = DPVAESynthesizer(**FAST, conditional="colour")
    synthesizer.fit(frame[["side", "size"]], frame["colour"])
    X, y = synthesizer.sample(given=pd.DataFrame({"colour": ["blue", "red"]}))
    assert X.columns.tolist() == ["side", "size"]
    assert y.tolist() == ["blue", "red"]


def test_labels_need_a_conditional_column():
    with pytest.raises(ValueError, match="must name a column"):
        fitted(conditional="weight")
    synthesizer = fitted(conditional=None)
    with pytest.raises(ValueError, match="only with 'conditional'"):
        synthesizer.decode(np.zeros((1, synthesizer._model.latent_dim)), labels=["red"])
    told = fitted(conditional="colour")
    with pytest.raises(ValueError, match="'green' does not fit the column 'colour'"):
        told.decode(np.zeros((2, told._model.latent_dim)), labels=["red", "green"])
    with pytest.raises(ValueError, match="at least one label; got 'red'"):
        told.decode(np.zeros((1, told._model.latent_dim)), labels="red")
    strange = table().assign(colour=pd.Categorical(["green"] * len(table())))
    assert len(told.reconstruct(strange)) == len(strange)  # values never raise
    with pytest.raises(ValueError, match="one label per point"):
        told.decode(np.zeros((2, told._model.latent_dim)), labels=["red"])


def with_tables(**params):
    params = {**FAST, "architecture__table_budget": 0.1, **params}
    return DPVAESynthesizer().set_params(**params)


@pytest.mark.parametrize(
    ("kind", "conditional", "expected"),
    [
        (pd.CategoricalDtype(), "auto", "last"),
        (bool, "auto", "last"),
        (int, "auto", None),
        (int, "last", "last"),
        (bool, None, None),
        (bool, "colour", "colour"),
    ],
)
def test_the_last_column_is_the_condition_if_it_has_classes(
    kind, conditional, expected
):
    frame = table(50).assign(last=np.resize([0, 1], 50)).astype({"last": kind})
    synthesizer = with_tables(conditional=conditional).fit(frame)
    assert synthesizer._condition == expected
    if expected is not None:
        drawn = synthesizer.decode(
            np.zeros((3, synthesizer._model.latent_dim)),
            0,
            [frame[expected].iloc[0]] * 3,
        )
        assert (drawn[expected] == frame[expected].iloc[0]).all()


def test_a_column_by_the_name_auto_is_the_condition():
    frame = table(50).rename(columns={"colour": "auto"})
    frame["last"] = np.resize([True, False], 50)
    assert with_tables().fit(frame)._condition == "auto"
    places = table(50).assign(auto=1.0, other=np.arange(50.0))
    numbers = [
        Column(name, "continuous", lower=0, upper=50) for name in ("auto", "other")
    ]
    joint = Schema(numbers, joint=[["auto", "other"]])
    assert with_tables(schema=joint).fit(places)._condition is None


def test_what_cannot_be_a_condition_is_none():
    alone = table(50)[["colour"]]
    assert with_tables().fit(alone)._condition is None
    frame = alone.assign(last=np.resize([True, False], 50))
    for other in ({"architecture__table_budget": 0.0}, {"epsilon": None}):
        assert with_tables(**other).fit(frame)._condition is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("n_rows", "params"),
    [
        (20_000, {"marginal_budget": 0.9}),
        (20_000, {"marginal_budget": 0.88, "max_grad_norm": "median"}),
        (20_000, {"architecture__prior_budget": 0.5}),
        (20_000, {"architecture__prior_budget": 0.6, "marginal_budget": 0.3}),
        (20_000, {"noise_multiplier": 2.0, "marginal_budget": 0.9}),
        (20_000, {"architecture__table_budget": 0.9}),
        (40, {"architecture__prior_budget": 0.2}),
        (40, {}),
    ],
)
def test_shares_that_are_stated_leave_a_part_to_gradients(n_rows, params):
    schema = Schema(Column(f"c{j}", "boolean") for j in range(5))
    synthesizer = DPVAESynthesizer().set_params(**params)
    fit = session.planned_fit(synthesizer, TableDomain(schema))
    plan = fit.plan(n_rows)
    assert np.isfinite(plan.multiplier(TABLES)) == (n_rows > 40)
    assert np.isfinite(plan.noise_multiplier)


def test_few_rows_buy_marginals_first():
    schema = Schema(Column(f"c{j}", "boolean") for j in range(15))

    def share(n_rows, epsilon=1.0, **params):
        synthesizer = DPVAESynthesizer(epsilon).set_params(**params)
        fit = session.planned_fit(synthesizer, TableDomain(schema))
        rules = fit.recipe.rules
        return resolved(fit.parameters, "marginal_budget", rules, fit.scale(n_rows))

    few, some, many = map(share, (200, 4000, 200_000))
    assert few == pytest.approx(0.6 * 0.95)
    assert few > some > many == pytest.approx(0.75 * 0.4, abs=0.001)
    stated = share(200_000, architecture__table_budget=0.5)
    assert stated == pytest.approx(0.45 * 0.4, abs=0.001)
