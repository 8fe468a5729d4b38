"""Models that users write are tried on made-up rows before a fit reads any row."""

from __future__ import annotations

import math
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from dpgenerative import (
    ArrayArchitecture,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    TableSynthesizer,
)
from dpgenerative.fitting.trial import check_recipe, is_custom
from dpgenerative.layers import MaskedLinear
from dpgenerative.privacy.gradients import (
    LinearGradients,
    layer_gradients,
    record,
    register_rule,
)
from dpgenerative.privacy.gradients.core import RULES
from dpgenerative.synthesizers import session
from tests.privacy.test_replay import CONFIGURATIONS, table
from tests.toy_model import PairRecipe

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

FAST = {"n_steps": 2, "batch_size": 20, "random_state": 0}
TIME = 8


# What a layer may be made to do with rows that nothing else shows ---------------------


class AxisBefore(nn.Module):
    """Time first: a layer sees (1, n, k)."""

    def forward(self, layer, x):
        return layer(x[None])[0]


class Sorted(nn.Module):
    def forward(self, layer, x):
        order = x.detach().flatten(1).sum(1).argsort()
        return layer(x[order])[order.argsort()]


class TimeFirst(nn.Module):
    """As many steps as rows in some batches: (T, n, k)."""

    def forward(self, layer, x):
        return layer(x.expand(TIME, *x.shape)).mean(0)


class MeanOfGradients(nn.Module):
    def forward(self, layer, x):
        return layer(x - x.mean(0) if torch.is_grad_enabled() else x)


class Companions(nn.Module):
    """Each row also sees its neighbour in the batch."""

    def forward(self, layer, x):
        return layer(x + 0.01 * x.roll(1, 0))


class Apart(nn.Module):
    """As it should be: one row after another."""

    def forward(self, layer, x):
        return layer(x)


BAD = {
    AxisBefore: "first axis is the batch",
    TimeFirst: "first axis is the batch",
    Sorted: "do not keep their places",
    MeanOfGradients: "other rows of its batch",
    Companions: "other rows of its batch",
}


def networks(way, linear):
    """Return an architecture whose encoder takes rows through a layer in some way."""

    def make(shape, k, generator):
        n = math.prod(shape)

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.way = linear(n, 2 * k), way()

            def forward(self, images):
                return self.way(self.layer, images.flatten(1)).tanh().chunk(2, 1)

        return Encoder(), nn.Sequential(linear(k, n), nn.Unflatten(1, shape))

    return make


def images():
    return np.random.default_rng(0).random((40, 2, 3), np.float32)


@pytest.mark.thin(3)
@pytest.mark.parametrize("linear", [nn.Linear, MaskedLinear.dense])
@pytest.mark.parametrize("way", BAD)
def test_networks_that_the_engine_cannot_bound_are_refused(way, linear):
    architecture = ArrayArchitecture(networks=networks(way, linear), latent_dim=2)
    model = DPArrayVAESynthesizer(architecture=architecture, **FAST)
    # Where outputs show that rows are not apart, they are what is refused.
    words = f"{BAD[way]}|treat every image apart"
    with PrivacyBudget(9.0, 0.1) as budget, pytest.raises(ValueError, match=words):
        model.fit(images())
    assert budget.fits == []


@pytest.mark.thin(2)
@pytest.mark.parametrize("linear", [nn.Linear, MaskedLinear.dense])
def test_networks_that_keep_rows_apart_are_taken(linear):
    architecture = ArrayArchitecture(networks=networks(Apart, linear), latent_dim=2)
    model = DPArrayVAESynthesizer(architecture=architecture, **FAST).fit(images())
    assert model.sample(3).shape == (3, 2, 3)


class WayRecipe(PairRecipe):
    """The recipe of the contributors' page, with rows in some way."""

    def __init__(self, way=Apart):
        self.way = way

    def build(self, facts, scale, generator):
        model = super().build(facts, scale, generator)
        layer, way = model.offsets, self.way()

        class Through(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.way = layer, way

            def forward(self, x):
                return self.way(self.layer, x)

        model.offsets = Through()
        return model


class Drawing(PairRecipe):
    """A loss that draws numbers, some of which rows share."""

    def __init__(self, shares=False):
        self.shares = shares

    def objective(self, model, transformer, rows, streams, device):
        losses = super().objective(model, transformer, rows, streams, device)

        def drawn(indices):
            scale = torch.rand(len(indices), generator=streams.draws)
            values = losses(indices)[0]
            shared = values.mean() if self.shares else 0.0
            return (1 + scale) * values + 0.1 * shared, None

        return drawn


class WithLatents(PairRecipe):
    """Latents, which a divergence would take, centred over the batch or not."""

    has_batch_term = True

    def __init__(self, is_centred=True):
        self.is_centred = is_centred

    def batch_term(self, model, streams):
        return lambda latents: latents.square().mean()

    def objective(self, model, transformer, rows, streams, device):
        codes = rows.map(transformer.encode).to(device)

        def losses(indices):
            batch = codes[indices].long()
            log_masses = model.last_given(batch[:, 0])
            centre = log_masses.mean(0) if self.is_centred else 0
            return -log_masses.gather(1, batch[:, -1:])[:, 0], log_masses - centre

        return losses


def standardised(x):
    return (x - x.mean(0)) / (1 + x.std(0))


class OfTheTable(PairRecipe):
    """Weights of the losses follow from the whole table, before any batch."""

    def objective(self, model, transformer, rows, streams, device):
        losses = super().objective(model, transformer, rows, streams, device)
        codes = rows.map(transformer.encode)
        weights = codes.map(lambda x: standardised(x[:, 0].astype(float))).to(device)
        return lambda i: (losses(i)[0] * weights[i].float().exp(), None)


class LargeBatches(nn.Module):
    def forward(self, layer, x):
        return layer(standardised(x) if len(x) > 32 else x)


class Halves(nn.Module):
    """A layer meets a large batch in parts."""

    def forward(self, layer, x):
        return torch.cat([layer(part) for part in x.split(64)])


class FirstBatch(nn.Module):
    """Remembers the mean of the rows that it meets first."""

    def forward(self, layer, x):
        if not hasattr(self, "mean"):
            self.mean = x.detach().mean(0)
        return layer(x - self.mean)


class Sometimes(PairRecipe):
    """Batch statistics in one step of two."""

    def objective(self, model, transformer, rows, streams, device):
        losses = super().objective(model, transformer, rows, streams, device)

        def drawn(indices):
            values = losses(indices)[0]
            is_whole = torch.rand((), generator=streams.draws) < 0.5
            return values * values.mean() if is_whole else values, None

        return drawn


class Undefined(PairRecipe):
    """NaN for whatever is made up, and so nothing to compare."""

    def objective(self, *arguments):
        losses = super().objective(*arguments)
        return lambda indices: (losses(indices)[0] * torch.nan, None)


class Remembering(PairRecipe):
    def objective(self, model, transformer, rows, streams, device):
        losses = super().objective(model, transformer, rows, streams, device)
        rows.map(lambda rows: setattr(self, "codes_", transformer.encode(rows)))
        return losses


class FromElsewhere(PairRecipe):
    """What it draws does not follow any generator that a fit hands in."""

    def objective(self, model, transformer, rows, streams, device):
        losses = super().objective(model, transformer, rows, streams, device)
        rng = np.random.default_rng()
        return lambda i: (losses(i)[0] * float(rng.random()), None)


RECIPES = [
    *((WayRecipe(way), words) for way, words in BAD.items()),
    (Drawing(shares=True), "other rows of its batch"),
    (WithLatents(), "other rows of its batch"),
    (Remembering(), "'recipe' must not remember"),
    (WayRecipe(FirstBatch), "'recipe' must not remember"),
    (OfTheTable(), "other rows of its batch or table"),
    (WayRecipe(LargeBatches), "other rows of its batch"),
    (WayRecipe(Halves), "first axis is the batch"),
    (Sometimes(), "other rows of its batch"),
    (Undefined(), "is a finite number"),
    (FromElsewhere(), "from call to call"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("recipe", "words"), RECIPES, ids=lambda x: type(x).__name__)
def test_recipes_that_the_engine_cannot_bound_are_refused(recipe, words):
    model = TableSynthesizer(recipe, **FAST)
    with PrivacyBudget(9.0, 0.1) as budget, pytest.raises(ValueError, match=words):
        model.fit(table(60))
    assert budget.fits == []


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "recipe",
    [PairRecipe(), WayRecipe(), Drawing(), WithLatents(is_centred=False)],
    ids=lambda x: type(x).__name__,
)
def test_recipes_that_keep_rows_apart_are_taken(recipe):
    before = torch.get_rng_state()
    model = TableSynthesizer(recipe, **FAST).fit(table(60))
    assert torch.equal(before, torch.get_rng_state())
    assert len(model.sample(3)) == 3


class Frozen(WayRecipe):
    """Some weights are not trained, and some calls have no part in gradients."""

    def build(self, facts, scale, generator):
        model = super().build(facts, scale, generator)
        model.offsets.layer.bias.requires_grad_(False)
        return model

    def objective(self, model, *arguments):
        losses = super().objective(model, *arguments)

        def apart(indices):
            with torch.no_grad():
                losses(indices)
            return losses(indices)

        return apart


def test_frozen_weights_and_calls_without_gradients_are_taken():
    assert len(TableSynthesizer(Frozen(), **FAST).fit(table(60)).sample(3)) == 3


def test_a_trial_leaves_modules_and_generators_as_they_were():
    encoder, decoder = networks(Apart, nn.Linear)((1, 2, 3), 2, None)
    before = [p.detach().clone() for p in encoder.parameters()]

    def ready(shape, k, generator):
        nn.Linear(2, 2)  # draws from torch's own generator
        return encoder, decoder

    model = DPArrayVAESynthesizer(
        architecture=ArrayArchitecture(networks=ready, latent_dim=2), **FAST
    )
    state = torch.get_rng_state()
    session.prepare(model, images(), None)
    assert torch.equal(state, torch.get_rng_state())
    assert all(map(torch.equal, before, encoder.parameters()))


def test_models_that_fail_on_made_up_rows_are_named():
    class Failing(PairRecipe):
        def objective(self, model, transformer, rows, streams, device):
            raise KeyError("price")

    words = "model of Failing fails on made-up rows. KeyError: 'price'"
    with pytest.raises(ValueError, match=words):
        TableSynthesizer(Failing(), **FAST).fit(table(60))


def test_priors_with_parameters_are_refused_before_all():
    class Trained(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean = nn.Parameter(torch.zeros(2))

        def log_prob(self, z):
            return -0.5 * (z - self.mean).square().sum(-1)

        def sample(self, n, generator=None):
            return self.mean.detach() + torch.randn(n, 2, generator=generator)

    with PrivacyBudget(9.0, 0.1) as budget:
        with pytest.raises(ValueError, match="no parameters to train"):
            DPVAESynthesizer(prior=Trained(), **FAST).fit(table(60))
        assert budget.fits == []


# Rules of one's own -------------------------------------------------------------------


class Halved(LinearGradients):
    """Norms of half their size, so that twice as much is let through."""

    def squared_norms(self):
        squares, margins = super().squared_norms()
        return squares / 4, margins


class OfOthers(LinearGradients):
    """Every row has the gradient of the row before it."""

    def weighted_sum(self, factors):
        return super().weighted_sum(
            factors.roll(1) if torch.is_tensor(factors) else [factors[0].roll(1, 0)]
        )


class Unheeding(LinearGradients):
    """Rows that cannot be used stay in the sums."""

    def keep(self, rows):
        pass

    def finite(self):
        return torch.ones(len(self.e), dtype=torch.bool)


class InGroups(LinearGradients):
    """Sums by group count everything twice."""

    def grouped(self, groups, sizes):
        return [2 * g for g in super().grouped(groups, sizes)]


@contextmanager
def registered(rule):
    before = RULES[MaskedLinear]
    register_rule(MaskedLinear)(rule)
    try:
        yield
    finally:
        RULES[MaskedLinear] = before


@pytest.mark.thin(3)
@pytest.mark.parametrize("rule", [Halved, OfOthers, Unheeding, InGroups])
@pytest.mark.parametrize("synthesizer", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_rules_that_are_wrong_are_refused(synthesizer, rule):
    frame, words = (
        table(60)[["income", "member"]],
        "a layer's rule of your own is wrong",
    )
    with registered(rule), pytest.raises(ValueError, match=words):
        synthesizer(**FAST).fit(frame)


def test_sums_by_group_are_tried():
    test_rules_that_are_wrong_are_refused(DPHFlowSynthesizer, InGroups)


def test_rules_that_are_right_are_taken():
    class Same(LinearGradients):
        pass

    with registered(Same):
        assert len(DPHFlowSynthesizer(**FAST).fit(table(60)).sample(3)) == 3


# The package's own --------------------------------------------------------------------


def tried(synthesizer, X, y=None):
    data = session.prepare(synthesizer, X, y)
    assert not is_custom(synthesizer._recipe)
    facts = data.schema.modelled.names, data.rows, 1.0
    check_recipe("Owner", synthesizer._recipe, data.domain, *facts)


@pytest.mark.thin(8)
@pytest.mark.parametrize(
    "name",
    [
        "declared", "blocks", "published", "divergence", "vae mixture", "vae draws",
        "vae term-wise", "vae label",
    ],
)  # fmt: skip
def test_models_of_tables_keep_rows_apart(name):
    params = dict(CONFIGURATIONS[name])
    kind = params.pop("estimator", DPHFlowSynthesizer)
    tried(kind().set_params(**params), table(50))


@pytest.mark.thin(3)
@pytest.mark.parametrize("kind", ["mlp", "conv", "lstm", "labels"])
def test_models_of_arrays_keep_rows_apart(kind):
    if kind == "lstm":
        series = [np.random.default_rng(i).random((1 + i % 4, 2)) for i in range(9)]
        options = ArrayArchitecture(networks=kind)
        model = DPArrayVAESynthesizer(image_shape=(4, 2), architecture=options)
        return tried(model, series)
    if kind == "labels":
        model = DPArrayVAESynthesizer(classes=[0, 1], n_steps=2)
        return tried(model, images(), np.arange(40) % 2)
    options = ArrayArchitecture(networks=kind, widths=(8,))
    return tried(DPArrayVAESynthesizer(architecture=options), images())


def test_columns_of_unknown_levels_have_some_on_trial():
    # A model of one cell per column would pass whatever it does.
    frame = pd.DataFrame({"a": ["x", "y"] * 20, "b": ["u", "v"] * 20})
    with pytest.raises(ValueError, match="do not keep their places"):
        TableSynthesizer(WayRecipe(Sorted), **FAST).fit(frame)
    with pytest.raises(ValueError, match="other rows of its batch"):
        TableSynthesizer(WithLatents(), **FAST).fit(frame)


# The engine itself --------------------------------------------------------------------


def test_the_engine_refuses_layers_that_put_another_axis_first():
    layer = nn.Linear(3, 2)
    model = nn.ModuleList([layer])
    for x in (torch.ones(1, 5, 3), torch.ones(4, 5, 3)):
        with record(model) as calls:
            loss = layer(x).sum()
        with pytest.raises(ValueError, match="whose first axis is the batch") as error:
            layer_gradients(model, calls, loss, 5)
        assert not any(letter.isdigit() for letter in str(error.value))


def test_the_engine_refuses_inputs_by_name():
    layer = nn.Linear(3, 2)
    model = nn.ModuleList([layer])
    with record(model) as calls:
        loss = layer(input=torch.ones(5, 3)).sum()
    with pytest.raises(ValueError, match="must be called with tensors"):
        layer_gradients(model, calls, loss, 5)


@pytest.mark.parametrize("kind", [nn.Linear, MaskedLinear.dense, nn.Conv2d])
def test_sums_take_one_factor_per_example(kind):
    layer = kind(2, 2, 1) if kind is nn.Conv2d else kind(2, 2)
    model, x = nn.ModuleList([layer]), torch.ones(1, 2)
    with record(model) as calls:
        loss = layer(x[..., None, None] if kind is nn.Conv2d else x).sum()
    (found,) = layer_gradients(model, calls, loss, 1)
    for factors in (torch.ones(4), [torch.ones(4, 2)] * 2):
        with pytest.raises(ValueError, match="one factor per example"):
            found.weighted_sum(factors)
