"""Code of one's own that couples rows, or keeps them, is refused before it sees any."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import DPHFlowSynthesizer, DPVAESynthesizer, PrivacyBudget
from dpgenerative.models.priors import (
    GaussianMixture,
    GaussianPrior,
    MixturePrior,
    NormalPrior,
    SparsePrior,
)
from dpgenerative.models.probing import check_prior, snapshot

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FAST = {"n_steps": 3, "batch_size": 20, "random_state": 0}


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60)})


class Own:
    """N(0, I), as a user would write it; subclasses do what they should not."""

    def log_prob(self, z):
        return -0.5 * z.square().sum(-1)

    def sample(self, n, generator=None):
        return torch.randn(n, 2, generator=generator)


class Batch(Own):
    def log_prob(self, z):
        return super().log_prob(z - z.mean(0))


class LargeBatch(Own):
    def log_prob(self, z):
        return super().log_prob(z - z.mean(0) if len(z) > 64 else z)


class Neighbours(Own):
    def log_prob(self, z):
        return super().log_prob(z) - 1e-3 * z.roll(1, 0).abs().sum(-1)


class HiddenCoupling(Own):
    """What it says is right, what autograd makes of it is not."""

    def log_prob(self, z):
        square = z.mean(0).square().sum(-1)
        return super().log_prob(z) + square - square.detach()


class Draws(Own):
    def log_prob(self, z):
        return super().log_prob(z) + torch.rand(z.shape[:-1])


class Sums(Own):
    def log_prob(self, z):
        return super().log_prob(z).sum()


class Attribute(Own):
    def log_prob(self, z):
        self.last = z.detach()
        return super().log_prob(z)


class Listed(Own):
    def __init__(self):
        self.seen = {"rows": [[]]}

    def log_prob(self, z):
        self.seen["rows"][0].append(z.mean().item())
        return super().log_prob(z)


class Running(Own):
    def __init__(self):
        self.mean = np.zeros(2)

    def log_prob(self, z):
        self.mean += z.detach().numpy().mean((0, 1))
        return super().log_prob(z)


class OfItsClass(Own):
    seen: ClassVar = []

    def log_prob(self, z):
        self.seen.append(z.detach())
        return super().log_prob(z)


class Generator(Own):
    def __init__(self):
        self.rng = torch.Generator()

    def log_prob(self, z):
        return super().log_prob(z) + 0 * torch.rand((), generator=self.rng)


class Prepares(Own):
    """Computes a constant when it is needed first, as distributions of torch do."""

    def log_prob(self, z):
        if not hasattr(self, "base"):
            self.base = torch.distributions.MultivariateNormal(
                torch.zeros(2), precision_matrix=torch.eye(2)
            )
        return self.base.log_prob(z)


def closing_over():
    seen = []

    def log_prob(z):
        seen.append(z.sum().item())
        return Own().log_prob(z)

    prior = Own()
    prior.log_prob = log_prob
    return prior


@pytest.mark.parametrize(
    "make", [Batch, LargeBatch, Neighbours, HiddenCoupling, Draws, Sums]
)
def test_priors_that_couple_points_are_refused(make):
    with pytest.raises(ValueError, match="depends on this point alone"):
        DPVAESynthesizer(prior=make(), **FAST).fit(frame())


@pytest.mark.parametrize(
    "make", [Attribute, Listed, Running, OfItsClass, Generator, closing_over]
)
def test_priors_that_remember_are_refused(make):
    with pytest.raises(ValueError, match="'prior' must not remember"):
        DPVAESynthesizer(prior=make(), **FAST).fit(frame())


@pytest.mark.parametrize(
    "prior",
    [
        Own(),
        Prepares(),
        NormalPrior(3),
        SparsePrior(3),
        MixturePrior.on_axes(5),
        GaussianPrior(torch.ones(2), torch.eye(2)),
        GaussianMixture(torch.ones(3, 2), torch.eye(2), torch.full((3,), 1 / 3)),
    ],
    ids=lambda prior: type(prior).__name__,
)
def test_priors_that_do_neither_pass(prior):
    assert check_prior("Owner", prior) == prior.sample(1).shape[1]


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x["list"].append(1),
        lambda x: x["array"].__setitem__(0, 2.0),
        lambda x: x["tensor"].add_(1),
        lambda x: x["nan"].fill_(1),
        lambda x: x["module"].bias.data.add_(1),
        lambda x: x["generator"].random(),
        lambda x: x["partial"].keywords.update(a=2),
        lambda x: setattr(x["prior"], "new", None),
    ],
)
def test_every_change_shows(change):
    things = {
        "list": [1, (2, {3})],
        "array": np.zeros(2),
        "tensor": torch.zeros((), dtype=torch.bfloat16),
        "nan": torch.tensor(float("nan")),
        "module": torch.nn.Linear(2, 2),
        "generator": np.random.default_rng(0),
        "partial": functools.partial(len, a=1),
        "prior": Own(),
        "of itself": [],
    }
    things["of itself"].append(things)
    before = snapshot(things)
    assert snapshot(things) == before
    change(things)
    assert snapshot(things) != before


def keeping(seen):
    def divergence(*args):
        seen.append(args[0])
        first = args[0] if torch.is_tensor(args[0]) else args[0].draws
        return first.square().mean()

    return divergence


class Keeps:
    def __call__(self, *args):
        self.last = args[0]
        first = args[0] if torch.is_tensor(args[0]) else args[0].draws
        return first.square().mean()

    def method(self, *args):
        return self(*args)


def with_default(*args, seen=[]):  # noqa: B006
    seen.append(len(args))
    first = args[0] if torch.is_tensor(args[0]) else args[0].draws
    return first.square().mean()


@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
@pytest.mark.parametrize(
    "make",
    [
        lambda: keeping([]),
        Keeps,
        lambda: Keeps().method,
        lambda: functools.partial(Keeps()),
        lambda: with_default,
    ],
)
def test_divergences_that_remember_are_refused(synthesizer, make):
    with pytest.raises(ValueError, match="'divergence' must not remember"):
        synthesizer(divergence=make(), **FAST).fit(frame())


@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
@pytest.mark.parametrize(
    "value", [lambda z: z.mean().item(), lambda z: z.mean(1), lambda z: z.mean().data]
)
def test_divergences_without_a_gradient_are_refused_before_all(synthesizer, value):
    def divergence(first, *rest):
        return value(first if torch.is_tensor(first) else first.mean)

    model = synthesizer(divergence=divergence, **FAST)
    with PrivacyBudget(9.0, 0.1) as budget, pytest.raises(ValueError, match="one num"):
        model.fit(frame())
    assert budget.fits == []


@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_divergences_of_few_rows_may_be_zero(synthesizer):
    def divergence(first, *rest):
        z = first if torch.is_tensor(first) else first.mean
        return z.square().mean() if len(z) > 9 else torch.zeros(())

    model = synthesizer(divergence=divergence, n_partitions=1, **FAST)
    assert len(model.set_params(batch_size=40).fit(frame()).sample(4)) == 4


@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_divergences_may_couple(synthesizer):
    def spread(first, *rest):
        z = first if torch.is_tensor(first) else first.mean
        return (z - z.mean(0)).square().mean()

    assert len(synthesizer(divergence=spread, **FAST).fit(frame()).sample(4)) == 4


@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_code_may_close_over_modules(synthesizer):
    """Looked into, numpy has objects that cannot be looked into."""
    from torch.nn import functional

    def divergence(first, *rest):
        z = first if torch.is_tensor(first) else first.mean
        return functional.relu(z).square().mean() + np.float64(0)

    model = synthesizer(divergence=divergence, **FAST)
    assert len(model.fit(frame()).sample(4)) == 4


def test_priors_that_sample_no_tensor_are_refused_before_all():
    class Numpy(NormalPrior):
        def sample(self, n, generator):
            return super().sample(n, generator).numpy()

    with PrivacyBudget(1.0, 1e-5) as budget:
        with pytest.raises(ValueError, match="must return a tensor of n points"):
            DPVAESynthesizer(prior=Numpy(2), **FAST).fit(frame())
        assert budget.spent == (0, 0)
