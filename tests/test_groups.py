"""Groups of parameters, the noise, and synthesizers of any recipe."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from dpgenerative import (
    ArrayArchitecture,
    BatchTerm,
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    ModelRecipe,
    Optimizer,
    Schema,
    Sparsified,
    TableSynthesizer,
    VAEArchitecture,
)
from dpgenerative._random import SecureGenerator, Streams
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.flow import FlowRecipe
from tests.plans import make_plan

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

GROUPS = [
    ArrayArchitecture, BatchTerm, FlowArchitecture, Optimizer, Sparsified,
    VAEArchitecture,
]  # fmt: skip
SYNTHESIZERS = {
    DPHFlowSynthesizer: FlowArchitecture,
    DPVAESynthesizer: VAEArchitecture,
    DPArrayVAESynthesizer: ArrayArchitecture,
}
every_group = pytest.mark.parametrize("group", GROUPS)
every = pytest.mark.parametrize("estimator", SYNTHESIZERS)
FAST = {"n_steps": 3, "batch_size": 64, "random_state": 0}


def table(n=200):
    rng = np.random.default_rng(0)
    return pd.DataFrame({"a": rng.normal(size=n), "b": rng.random(n) < 0.5})


def flow_recipe(**architecture):
    return FlowRecipe(FlowArchitecture(**architecture), BatchTerm())


# Groups -------------------------------------------------------------------------------


@every_group
def test_a_group_is_frozen_and_cloned_as_itself(group):
    options = group()
    assert options == group()
    assert hash(options) == hash(group())
    assert clone(options) is options
    names = [field.name for field in fields(group)]
    assert list(options.get_params()) == list(options.get_params(deep=False)) == names
    with pytest.raises(FrozenInstanceError):
        setattr(options, names[0], 3)


@every_group
def test_the_group_of_a_parameter(group):
    assert group.of(None) == group()
    options = group()
    assert group.of(options) is options


def test_short_forms():
    def squares(z):
        return z.square().mean()

    assert Optimizer.of("sgd") == Optimizer(name="sgd")
    assert BatchTerm.of("mmd") == BatchTerm(divergence="mmd")
    assert BatchTerm.of(squares).divergence is squares


@every
def test_parameters_of_groups_are_set_where_there_is_none_or_a_name(estimator):
    architecture = SYNTHESIZERS[estimator]
    synthesizer = estimator(optimizer="sgd", divergence="mmd", clipping=Sparsified(0.1))
    changed = synthesizer.set_params(
        architecture__hidden_units=4,
        optimizer__learning_rate=0.1,
        divergence__weight=2.0,
        divergence__max_grad_norm=0.5,
        clipping__share=0.25,
    )
    assert changed is synthesizer
    assert synthesizer.architecture == architecture(hidden_units=4)
    assert synthesizer.optimizer == Optimizer("sgd", learning_rate=0.1)
    assert synthesizer.divergence == BatchTerm("mmd", 2.0, 0.5)
    assert synthesizer.clipping == Sparsified(0.25)
    # What was set before stays.
    synthesizer.set_params(optimizer__averaging=0.0, n_steps=7)
    assert synthesizer.optimizer == Optimizer("sgd", 0.1, 0.0)
    # A group and a part of it: the part is set in the new group.
    synthesizer.set_params(optimizer="adam", optimizer__averaging=0.5)
    assert synthesizer.optimizer == Optimizer("adam", averaging=0.5)


@every
def test_parameters_of_groups_are_listed_and_cloned(estimator):
    architecture = SYNTHESIZERS[estimator](hidden_units=4)
    synthesizer = estimator(architecture=architecture, divergence=BatchTerm("mmd"))
    deep, flat = synthesizer.get_params(), synthesizer.get_params(deep=False)
    # Those of the default groups are listed too.
    assert deep["optimizer__averaging"] == 0.995
    assert estimator().get_params()["architecture__hidden_units"] == "auto"
    for field in fields(architecture):
        name = f"architecture__{field.name}"
        assert deep[name] == getattr(architecture, field.name)
        assert name not in flat
    assert deep["divergence__divergence"] == "mmd"
    copy = clone(synthesizer)
    assert copy.architecture is architecture
    assert copy.get_params() == deep
    copy.set_params(architecture__hidden_units=5)
    assert synthesizer.architecture.hidden_units == 4
    assert estimator(**flat).get_params() == deep
    again = estimator().set_params(**deep).get_params()
    assert {k: v for k, v in deep.items() if "__" in k}.items() <= again.items()


@every
@pytest.mark.parametrize("wrong", [3, "wide", Optimizer(), FlowArchitecture])
def test_what_is_no_architecture_is_refused(estimator, wrong):
    said = f"'architecture' of {estimator.__name__} must be an? .*Architecture or None"
    with pytest.raises(ValueError, match=said):
        estimator(architecture=wrong).fit(table())


@every
@pytest.mark.parametrize(
    "name",
    ["architecture__n_bims", "optimizer__rate", "divergence__alpha", "clipping__name"],
)
def test_names_that_no_group_knows(estimator, name):
    synthesizer = estimator(clipping=Sparsified())
    before = synthesizer.get_params()
    _, last = name.split("__")
    with pytest.raises(ValueError, match=f"Invalid parameter '{last}'.*Valid param"):
        synthesizer.set_params(**{name: 1})
    assert synthesizer.get_params() == before


@every
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("architecture__hidden_units", -1),
        ("architecture__hidden_units", 10**30),
        ("optimizer", "lbfgs"),
        ("optimizer__name", "lbfgs"),
        ("optimizer__learning_rate", 0),
        ("optimizer__averaging", 1.0),
        ("divergence__weight", -1.0),
        ("divergence__max_grad_norm", 0),
        ("divergence__aggregation", "mean"),
        ("clipping", "sharp"),
        ("clipping__share", 1.0),
        ("noise", "loud"),
    ],
)
def test_bad_parameters_are_named_as_they_are_set(estimator, name, value):
    synthesizer = estimator(clipping=Sparsified(), **FAST).set_params(**{name: value})
    said = rf"'{name}(__name)?' of {estimator.__name__} "
    rows = table()
    if estimator is DPArrayVAESynthesizer:
        rows = np.zeros((50, 2, 2))
    with pytest.raises(ValueError, match=said) as error:
        synthesizer.fit(rows)
    assert repr(value) in str(error.value)


def test_a_search_over_groups():
    grid = {
        "architecture__n_blocks": [1, 2],
        "clipping": ["flat", Sparsified(0.25)],
        "optimizer__learning_rate": [0.01],
    }
    flow = DPHFlowSynthesizer(epsilon=None, **FAST)
    search = GridSearchCV(flow, grid, cv=2, error_score="raise").fit(table())
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_
    assert best.architecture.n_blocks == search.best_params_["architecture__n_blocks"]
    assert best.clipping == search.best_params_["clipping"]
    assert best.optimizer == Optimizer(learning_rate=0.01)


def test_the_share_of_thinned_entries_is_used():
    def weights(clipping):
        flow = DPHFlowSynthesizer(clipping=clipping, noise="reproducible", **FAST)
        return flow.fit(table(2000))._model.first.skip.weight

    named, default, other = map(weights, ("sparsified", Sparsified(), Sparsified(0.9)))
    assert named.equal(default)
    assert not named.equal(other)


# The batch-wise term of the flow ------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("aggregation", ["term-wise", "micro", "batch"])
def test_the_flow_bounds_both_terms_in_every_way(aggregation):
    term = BatchTerm("mmd", weight=2.0, aggregation=aggregation)
    flow = DPHFlowSynthesizer(divergence=term, n_partitions=4, **FAST).fit(table())
    text = str(flow.privacy_)
    assert ("4 partitions" in text) == (aggregation == "term-wise")
    assert (f"{aggregation} aggregation" in text) == (aggregation != "term-wise")
    assert 0.99 < flow.epsilon_ <= 1
    assert len(flow.sample(5)) == 5


def test_the_published_setup_is_one_of_parameters():
    flow = DPHFlowSynthesizer.published(epsilon=2.0, n_steps=3, clipping__share=0.25)
    assert clone(flow).get_params() == flow.get_params()
    assert flow.architecture == FlowArchitecture(
        anchored=False, n_blocks=3, linear="low-rank", bias=True,
        dequantization="variational",
    )  # fmt: skip
    assert flow.clipping == Sparsified(0.25, "ranked")
    flow.fit(table())
    assert len(flow.sample(5)) == 5
    facts = {"lower": -5, "upper": 5, "nullable": False}
    stated = Schema([Column("a", "continuous", **facts), Column("b", "boolean")])
    report = clone(flow).set_params(schema=stated).fit(table()).privacy_
    assert "expect single columns to be right" not in str(report)
    assert [layer.bias is not None for layer in flow._model.linears] == [True] * 3
    wide = clone(flow).set_params(architecture__rank=2).fit(table())
    assert wide._model.linears[0].left.shape[1] == 2


def test_few_partitions_are_paid_for_with_noise():
    layer = torch.nn.Linear(1, 1)

    def noise(n_partitions, **params):
        flow = DPHFlowSynthesizer(n_partitions=n_partitions, batch_size=50, **params)
        fit = session.planned_fit(flow, flow._assumed_domain())
        plan = make_plan(
            epsilon=1.0, delta=1e-5, n_rows=100, sampling_rate=0.5, n_steps=3,
            marginal_budget=0.3, has_open_keys=False,
        )  # fmt: skip
        gradient = fit.gradient(layer, None, plan, None, 2.0)
        stds = gradient.stds(layer, fit.recipe.has_batch_term).values()
        (std,) = set(stds)
        return std / (plan.noise_multiplier * 2.0 / 50)

    assert noise(1) == noise(64) == pytest.approx(1.0)
    found = [noise(b, divergence="mmd") for b in (1, 16, 64)]
    assert found == pytest.approx([2.6, 1.1, 1.025])
    stated = BatchTerm("mmd", max_grad_norm=0.04)
    assert noise(4, divergence=stated) == pytest.approx(1.5)


@pytest.mark.parametrize("aggregation", ["micro", "batch"])
def test_the_baselines_of_the_flow_clip_flat(aggregation):
    term = BatchTerm("mmd", aggregation=aggregation)
    for clipping in ("per-layer", Sparsified()):
        with pytest.raises(ValueError, match="'clipping' of DPHFlowSynthesizer"):
            DPHFlowSynthesizer(divergence=term, clipping=clipping).fit(table())


# The noise ----------------------------------------------------------------------------


@pytest.mark.thin(3)
@every
def test_where_noise_comes_from(estimator):
    rows = table()
    if estimator is DPArrayVAESynthesizer:
        rows = np.random.default_rng(0).random((100, 2, 2))

    def fitted(noise):
        return estimator(noise=noise, **FAST).fit(rows)

    def weights(fit):
        return np.concatenate([p.numpy().ravel() for p in fit._model.parameters()])

    fresh, same, again, secure = map(
        fitted, ("fresh", "reproducible", "reproducible", "secure")
    )
    assert np.array_equal(weights(same), weights(again))
    assert not np.array_equal(weights(fresh), weights(same))
    assert not np.array_equal(weights(secure), weights(same))
    assert "noise and batches follow random_state" in str(same.privacy_)
    assert "cryptographic generator" in str(secure.privacy_)
    for words in ("follow random_state", "cryptographic generator"):
        assert words not in str(fresh.privacy_)


def test_secure_noise_comes_from_the_operating_system():
    secure, fresh = (Streams.create(0, noise, "cpu") for noise in ("secure", "fresh"))
    for name in ("counts", "batches", "gradients"):
        assert isinstance(getattr(secure, name), SecureGenerator)
    # Few draws, so that these always are.
    assert isinstance(fresh.counts, SecureGenerator)
    assert not isinstance(fresh.gradients, SecureGenerator)
    seeded = Streams.create(0, "reproducible", "cpu")
    assert not isinstance(seeded.counts, SecureGenerator)


@every
def test_reproducible_noise_needs_a_seed(estimator):
    with pytest.raises(
        ValueError, match=r"'noise' of .* needs an integer random_state"
    ):
        estimator(noise="reproducible").fit(table())


# Synthesizers of any recipe -----------------------------------------------------------


@pytest.mark.parametrize("recipe", [None, "flow", FlowRecipe, FlowArchitecture()])
def test_what_is_no_recipe_is_refused(recipe):
    synthesizer = TableSynthesizer(recipe)
    said = "'recipe' of TableSynthesizer must be a ModelRecipe"
    with pytest.raises(ValueError, match=said):
        synthesizer.fit(table())
    assert not hasattr(synthesizer, "privacy_")


def test_a_recipe_of_the_package_is_its_synthesizer():
    params = {"noise": "reproducible", **FAST}
    named = DPHFlowSynthesizer(architecture=FlowArchitecture(n_bins=8), **params)
    plain = TableSynthesizer(flow_recipe(n_bins=8), **params)
    named, plain = named.fit(table()), clone(plain).fit(table())
    assert plain.privacy_ == named.privacy_
    expected = named.sample(20, random_state=0)
    pd.testing.assert_frame_equal(plain.sample(20, random_state=0), expected)
    assert plain.score(table()) == named.score(table())


@pytest.mark.parametrize(("own", "stated"), [("mmd", None), (None, "mmd")])
def test_the_report_tells_of_the_term_that_the_recipe_has(own, stated):
    recipe = FlowRecipe(FlowArchitecture(n_bins=8), BatchTerm(own))
    fit = TableSynthesizer(recipe, divergence=stated, **FAST).fit(table())
    assert ("batch-wise term" in fit.privacy_.clipping) == (own is not None)


def test_a_recipe_that_states_too_little():
    with pytest.raises(TypeError, match="abstract"):
        ModelRecipe()


def test_groups_show_what_differs_from_their_defaults():
    assert repr(FlowArchitecture(n_blocks=2, linear="lu")) == (
        "FlowArchitecture(n_blocks=2, linear='lu')"
    )
    assert repr(Optimizer()) == "Optimizer()"
    assert eval(repr(BatchTerm("mmd", 2.0))) == BatchTerm("mmd", 2.0)


@pytest.mark.parametrize("name", ["adam", "adabelief", "sgd"])
def test_a_momentum_of_0_is_a_number(name):
    optimizer = Optimizer(name, momentum=0)
    rows = pd.DataFrame({"a": range(50)})
    DPHFlowSynthesizer(None, n_steps=2, optimizer=optimizer).fit(rows)
