"""Classes corrected by mean embeddings: densities, draws, conditions, fits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch

from dpgenerative import Column, DPHFlowSynthesizer, Schema, forecast, load
from dpgenerative.fitting import workload
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.embedding import (
    ClassCorrection,
    draw_phases,
    features_of,
    fit_correction,
    heaviest,
    log_probs_of_classes,
)
from dpgenerative.models.hflow import HFlow
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.tables import TABLES
from tests.fits import shared

SIZES = (3, 4, 3)
CODES = torch.tensor(list(product(*map(range, SIZES))))


def facts(k, ordered=False):
    masses = torch.arange(1.0, k + 1) / (k * (k + 1) / 2)
    return CellFacts(masses, ordered, False, torch.zeros(k).bool())


def flow(sizes=SIZES, seed=0):
    """Return a flow whose columns depend on each other."""
    generator = torch.Generator().manual_seed(seed)
    model = HFlow(
        [facts(k) for k in sizes], n_basis=2, hidden_units=8, n_blocks=1,
        linear="none", dequantization="uniform", anchored=True, generator=generator,
    )  # fmt: skip
    with torch.no_grad():
        model.first.skip.weight.normal_(generator=generator)
    return model.requires_grad_(False)


def corrected(classes=(0, 1, 2), seed=0):
    """Return a flow with a large correction of some classes."""
    model, generator = flow(), torch.Generator().manual_seed(seed)
    phases = draw_phases([facts(k) for k in SIZES], generator)
    shape = 2 * phases[0].shape[1], len(classes)
    weights = 3 * torch.randn(shape, generator=generator)
    cells, shift = torch.tensor(classes), torch.zeros(len(classes))
    model.classes = ClassCorrection(cells, phases, weights, shift)
    return model


def frequencies(codes, weights=None):
    keys = torch.from_numpy(np.ravel_multi_index(codes.T.numpy(), SIZES))
    weights = torch.ones(len(codes)) if weights is None else weights
    counts = torch.zeros(len(CODES)).index_add_(0, keys, weights)
    return counts / counts.sum()


@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_the_density_adds_up_and_leaves_the_other_columns(classes):
    model, before = corrected(classes), flow()
    probs, old = model(CODES)[0].exp(), before(CODES)[0].exp()
    assert probs.sum().item() == pytest.approx(1, abs=1e-5)
    by_rest = probs.view(SIZES).sum(0), old.view(SIZES).sum(0)
    torch.testing.assert_close(*by_rest)
    assert (probs - old).abs().max() > 0.02
    if classes == (0, 2):  # what is not listed stays
        torch.testing.assert_close(probs.view(SIZES)[1], old.view(SIZES)[1])


@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_rows_follow_the_density(classes):
    model = corrected(classes)
    codes, _ = model.sample(100_000, torch.Generator().manual_seed(1))
    gaps = frequencies(codes) - model(CODES)[0].exp()
    assert gaps.abs().sum() / 2 < 0.02


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "given",
    [
        {0: [0, 1, 0]},  # a class
        {0: [0.5, 0, 1]},  # a part of some
        {0: [1, 0, 1], 2: [0, 1, 1]},
        {1: [0, 1, 0, 1]},
    ],
)
@pytest.mark.parametrize("classes", [(0, 1, 2), (0, 2)])
def test_rows_given_some_columns_follow_the_density(given, classes):
    model = corrected(classes)
    shares = {j: torch.tensor([part], dtype=torch.float) for j, part in given.items()}
    generator = torch.Generator().manual_seed(2)
    logs = {j: part.log() for j, part in shares.items()}
    codes, log_weights = model.sample_given(100_000, generator, logs)
    wanted = model(CODES)[0].exp()
    for j, part in shares.items():
        wanted = wanted * part[0, CODES[:, j]]
    drawn = frequencies(codes, (log_weights - log_weights.max()).exp())
    assert (drawn - wanted / wanted.sum()).abs().sum() / 2 < 0.02


def test_classes_given_all_other_columns_follow_the_density_without_weights():
    # Of candidates that differ in their class only, any may be taken.
    model = corrected()
    ones = {j: torch.eye(SIZES[j])[[1]].log() for j in (1, 2)}
    codes, _ = model.sample_given(20_000, torch.Generator().manual_seed(1), ones)
    shares = codes[:, 0].bincount(minlength=SIZES[0]) / len(codes)
    wanted = model(CODES)[0].exp().view(SIZES)[:, 1, 1]
    assert (shares - wanted / wanted.sum()).abs().sum() / 2 < 0.02


def fitted_to(model, of, std, n=50_000):
    """Return the correction of a model by the embeddings of another, and its rows."""
    parts = [facts(k) for k in SIZES]
    generator = torch.Generator().manual_seed(3)
    phases = draw_phases(parts, generator)
    rows = of.sample(n, generator)[0]
    member = torch.nn.functional.one_hot(rows[:, 0], SIZES[0]).float()
    sums = member.T @ features_of(rows, phases)
    sums += std * torch.randn(sums.shape, generator=generator)
    own = replace(parts[0], masses=member.mean(0))
    pool = model.sample(2**14, generator)[0]
    whole = sums.double().numpy()
    return fit_correction(model.first, pool, own, phases, whole, std, n)


def test_the_correction_learns_the_classes_of_another_model():
    model, other = flow(), corrected()
    aim = log_probs_of_classes(lambda x: other(x)[0], CODES, torch.arange(3)).exp()
    before = log_probs_of_classes(model.first, CODES, torch.arange(3)).exp()
    model.classes = fitted_to(model, other, 20.0)
    after = log_probs_of_classes(lambda x: model(x)[0], CODES, torch.arange(3)).exp()
    assert (after - aim).abs().mean() < 0.35 * (before - aim).abs().mean()


@pytest.mark.parametrize("std", [1.0, 1000.0, 1e6])
def test_a_model_that_is_right_stays_as_it_is(std):
    model = flow()
    before = model(CODES)[0].exp()
    model.classes = fitted_to(model, flow(), std)
    assert (model(CODES)[0].exp() - before).abs().sum() / 2 < 0.02


def is_odd(codes):
    return (codes[:, 1:] >= 8).sum(1) % 2


def test_classes_that_follow_from_the_rest_stay_as_they_are():
    # Which rows there are differs by chance; that is no reason to change classes.
    parts = [facts(2), *[facts(16, ordered=True)] * 3]
    generator = torch.Generator().manual_seed(0)
    phases = draw_phases(parts, generator)

    def drawn(n):
        codes = torch.randint(16, (n, 4), generator=generator)
        unlike = torch.rand(n, generator=generator) < 0.001
        codes[:, 0] = (is_odd(codes) + unlike) % 2
        return codes

    def log_prob(codes):
        return torch.where(codes[:, 0] == is_odd(codes), 0.999, 0.001).log()

    rows = drawn(5000)
    member = torch.nn.functional.one_hot(rows[:, 0], 2).double()
    sums = (member.T @ features_of(rows, phases).double()).numpy()
    own = replace(parts[0], masses=member.mean(0).float())
    made = fit_correction(log_prob, drawn(2**13), own, phases, sums, 1.0, 5000)
    probs = log_probs_of_classes(made.of(log_prob), rows, torch.arange(2)).exp()
    assert probs.gather(1, is_odd(rows)[:, None]).mean() > 0.998


def test_a_correction_of_nothing_changes_no_row():
    model, plain = corrected(), flow()
    nothing = torch.zeros_like(model.classes.weights)
    model.classes = replace(model.classes, weights=nothing)
    codes = [
        each.sample(500, torch.Generator().manual_seed(1))[0] for each in (model, plain)
    ]
    assert torch.equal(*codes)


def test_a_model_that_draws_no_class_has_no_correction():
    phases = draw_phases([facts(30), facts(3)], torch.Generator())
    none = torch.zeros(5, 2, dtype=torch.long)  # its lightest class
    sums = np.zeros((10, 2 * phases[0].shape[1]))
    args = facts(30), phases, sums, 1.0, 100
    assert fit_correction(flow((30, 3)).first, none, *args) is None


@pytest.mark.parametrize(
    "part",
    [
        {"classes": torch.tensor([0, 0, 1])},
        {"classes": torch.tensor([0.0, 1.0, 2.0])},
        {"shift": torch.zeros(1)},
        {"weights": torch.full((512, 3), np.nan)},
        {"weights": torch.zeros(512, 2)},
        {"weights": torch.zeros(510, 3)},
        {"phases": [torch.zeros(4, 256), torch.zeros(3, 256)]},
        {"phases": [torch.zeros(4, 256).short(), torch.zeros(3, 255).short()]},
    ],
)
def test_a_malformed_correction_is_refused(part):
    with pytest.raises(ValueError, match="correction"):
        replace(corrected().classes, **part)


def test_the_heaviest_of_many_classes_are_corrected():
    many = facts(40)
    assert heaviest(many).tolist() == list(range(30, 40))


def waves(n, seed=0):
    """Return four numbers, and a class that depends on all of them together."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.uniform(-1, 1, (n, 4)), columns=list("abcd"))
    return frame.assign(up=np.where(is_up(frame), "yes", "no"))


def is_up(frame):
    return np.cos(2 * frame[[*"abcd"]].sum(axis=1)) > 0


NUMBERS = [Column(name, "continuous", lower=-1, upper=1) for name in "abcd"]
WAVES = Schema([*NUMBERS, Column("up", "categorical", levels=["no", "yes"])])


@shared
def of_waves():
    flow = DPHFlowSynthesizer(4.0, schema=WAVES, n_steps=1, random_state=0)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("POOL", "RAKED"):
            patch.setattr(workload, name, 2**14)
        return flow.fit(waves(10_000))


def right_share(drawn):
    return (is_up(drawn) == (drawn["up"] == "yes")).mean()


def right(synthesizer):
    return right_share(synthesizer.sample(5000, random_state=0))


def test_a_fit_learns_classes_that_its_model_does_not():
    synthesizer = of_waves()
    assert np.isfinite(synthesizer.privacy_.plan.multiplier(EMBEDDING))
    with_it, classes = right(synthesizer), synthesizer._model.classes
    synthesizer._model.classes = None
    without = right(synthesizer)
    synthesizer._model.classes = classes
    assert 1 - with_it < 0.8 * (1 - without)
    assert "mean embeddings" in str(synthesizer.privacy_)


@pytest.mark.thorough
def test_rows_given_a_class_are_those_of_all_rows_with_it():
    # The correction raises weights beyond 1.
    synthesizer = of_waves()
    every = synthesizer.sample(60_000, random_state=1)
    own = synthesizer.sample(15_000, given={"up": "yes"}, random_state=2)
    rest = every[every["up"] == "yes"]
    assert (own["up"] == "yes").all()
    assert right_share(own) == pytest.approx(right_share(rest), abs=0.02)
    waves = (2 * frame[[*"abcd"]].sum(axis=1) for frame in (own, rest))
    shares = [np.histogram(w, np.linspace(-8, 8, 17))[0] / len(w) for w in waves]
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.03


def test_a_saved_file_keeps_the_correction(tmp_path):
    synthesizer = of_waves()
    synthesizer.save(tmp_path / "model.dpg")
    again, rows = load(tmp_path / "model.dpg"), waves(50, seed=1)
    drawn = [each.sample(500, random_state=1) for each in (synthesizer, again)]
    assert drawn[0].equals(drawn[1])
    scores = [each.score_samples(rows) for each in (synthesizer, again)]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize(
    ("column", "is_embedded"),
    [
        (Column("last", "categorical", levels=["a", "b"]), True),
        (Column("last", "categorical"), True),
        (Column("last", "boolean"), True),
        (Column("last", "categorical", levels=["a", "b"], ordered=True), False),
        (Column("last", "integer", lower=0, upper=1), False),
    ],
)
def test_a_last_column_of_classes_is_embedded(column, is_embedded):
    plan = forecast(Schema([*NUMBERS, column]), 20_000).plan
    assert np.isfinite(plan.multiplier(EMBEDDING)) == is_embedded
    alone = forecast(Schema([column]), 20_000).plan
    assert np.isinf(alone.multiplier(EMBEDDING))
    none = {"architecture__table_budget": 0.0}
    plan = forecast(Schema([*NUMBERS, column]), 20_000, **none).plan
    assert np.isinf(plan.multiplier(EMBEDDING))


def test_linked_rows_have_no_embeddings():
    columns = [
        Column("who", "integer", role="unit"),
        Column("day", "integer", role="order", lower=0, upper=9),
        Column("sex", "categorical", levels=["f", "m"], per_unit=True),
    ]
    plan = forecast(Schema(columns), 20_000, max_rows_per_unit=3).plan
    assert np.isfinite(plan.multiplier(TABLES))
    assert np.isinf(plan.multiplier(EMBEDDING))
