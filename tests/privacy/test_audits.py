"""Audits of many configurations: no lower bound beyond its claim, and none toothless.

The slow ones play every game on every configuration and print a table
(``python -m pytest -m audit``). Their bounds hold *together* with 95 % confidence: the
probabilities of error add up to 0.05 (Bonferroni), so that some bound lies beyond a
claim that is met exactly in at most one of twenty seedings, however many rows the table
has. `ERRORS` says how they are shared. Seeds are the numbers of the rows.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import stats
from scipy.special import log_softmax

from dpgenerative import (
    Column,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    Schema,
    TableSynthesizer,
)
from dpgenerative._intervals import least_share
from dpgenerative._random import SecureGenerator
from dpgenerative.audit import (
    AuditResult,
    audit_mechanism,
    audit_release,
    audit_training,
    one_run_bound,
    one_run_p_value,
)
from dpgenerative.audit.bounds import (
    ideal_guesses,
    least_mu,
    run_epsilon,
    steps_epsilon,
)
from dpgenerative.audit.release import PAIRS
from dpgenerative.audit.training import _sampled
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.options import BatchTerm
from dpgenerative.privacy.accounting import gaussian_epsilon, gaussian_multiplier
from dpgenerative.privacy.embedding import EMBEDDING, release_embeddings
from dpgenerative.privacy.noise import Mechanisms, choice_rate
from dpgenerative.privacy.plan import row_budget
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers import session
from dpgenerative.tables.private import Private
from tests.privacy import mutants, test_embedding
from tests.privacy import test_tables as tables
from tests.toy_model import PairRecipe

# Of a tiny fit, most of the time is not what is audited.
pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

SCHEMA = Schema(
    [
        Column("size", "continuous", lower=-3, upper=3, nullable=False),
        Column("colour", "categorical", levels=("red", "blue"), nullable=False),
    ]
)
DECLARED = {"schema": SCHEMA}
TINY = {
    "architecture__n_bins": 4,
    "architecture__n_basis": 2,
    "architecture__hidden_units": 4,
}
STEPS = {"n_steps": 50, "batch_size": 50}
WHOLE = {"n_steps": 2, "batch_size": 10**6}  # sampling rate 1: one Gaussian mechanism


def table(n=40):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {"size": rng.normal(size=n), "colour": rng.choice(["red", "blue"], n)}
    )


def wider(n=40):
    rng = np.random.default_rng(1)
    return table(n).assign(
        visits=pd.array(rng.integers(0, 9, n), dtype="Int64"),
        label=pd.Categorical(rng.choice(["yes", "no"], n)),
    )


def by_hand(latents, prior, generator):
    return latents.draws.square().mean()


def squares(latents):
    return latents.square().mean()


FLOW, VAE = DPHFlowSynthesizer, DPVAESynthesizer
CONFIGURATIONS = {
    "flow, all found": (FLOW, {}),
    "flow, all declared": (FLOW, DECLARED),
    "flow, sgd": (FLOW, {"optimizer": "sgd", "epsilon": 0.5}),
    "flow, delta 1e-9": (FLOW, {"delta": 1e-9}),
    "flow, not anchored": (FLOW, {"architecture__anchored": False, **DECLARED}),
    "flow, norm estimated": (FLOW, {"max_grad_norm": "median"}),
    "flow, per-layer": (FLOW, {"clipping": "per-layer"}),
    "flow, per-unit": (FLOW, {"clipping": "per-unit", "epsilon": 2.0}),
    "flow, sparsified": (FLOW, {"clipping": "sparsified"}),
    "flow, mmd": (FLOW, {"divergence": "mmd", "n_partitions": 4}),
    "flow, mmd, per-layer": (FLOW, {"divergence": "mmd", "clipping": "per-layer"}),
    "flow, own divergence": (FLOW, {"divergence": squares, "clipping": "per-unit"}),
    "flow, two blocks, lu": (
        FLOW,
        {"architecture__n_blocks": 2, "architecture__linear": "lu"},
    ),
    "flow, variational": (
        FLOW,
        {
            "architecture__n_blocks": 2,
            "architecture__linear": "low-rank",
            "architecture__dequantization": "variational",
        },
    ),
    "vae, all found": (VAE, {}),
    "vae, all declared": (VAE, {"architecture__prior_budget": 0, **DECLARED}),
    "vae, many moments": (VAE, {"architecture__prior_budget": 0.3, "epsilon": 4.0}),
    "vae, sparse prior": (VAE, {"prior": "sparse", "architecture__n_draws": 3}),
    "vae, label": (VAE, {"conditional": "label", "clipping": "per-layer"}),
    "vae, per-unit": (VAE, {"clipping": "per-unit"}),
    "vae, sparsified, kl": (VAE, {"clipping": "sparsified", "divergence": "kl"}),
    "vae, term-wise mmd": (VAE, {"divergence": "mmd", "n_partitions": 4}),
    "vae, own divergence": (VAE, {"divergence": by_hand}),
    "vae, micro": (VAE, {"divergence": "mmd", "divergence__aggregation": "micro"}),
    "vae, batch": (VAE, {"divergence": "mmd", "divergence__aggregation": "batch"}),
    "vae, batch, no divergence": (
        VAE,
        {"divergence__aggregation": "batch", "delta": 1e-8},
    ),
}
EPSILONS = (1.0, 2.0, 4.0, 8.0)
RUNS = {1.0: 16_000, 2.0: 5000, 4.0: 2000, 8.0: 1000}
PAIRED = [(estimator, pair) for estimator in (FLOW, VAE) for pair in PAIRS]
N_OTHERS = 2 * len(CONFIGURATIONS) + len(PAIRED) + len(PAIRS)
# Rows that must also show a share of their claim get the most: 0.05 in all.
ERRORS = {
    "single": 0.02 / len(EPSILONS),
    "step": 0.018 / len(EPSILONS),
    "repeated": 0.006 / len(EPSILONS),
    "other": 0.006 / N_OTHERS,
}
TOGETHER = 1 - ERRORS["other"]


def configured(name, **changes):
    kind, params = CONFIGURATIONS[name]
    facts = {"delta": 1e-7, **TINY, **STEPS, **params, **changes}
    return kind().set_params(**facts)


def lean(epsilon, kind=FLOW, **steps):
    """Return a configuration that spends hardly anything but on gradients."""
    few = kind(epsilon, marginal_budget=0.02, **DECLARED, **steps)
    others = {"architecture__prior_budget": 0} if kind is VAE else {}
    return few.set_params(**TINY, architecture__table_budget=0, **others)


# The table ------------------------------------------------------------------------


@pytest.mark.audit
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_step_tells_more_than_is_claimed(name, tabled):
    seed = list(CONFIGURATIONS).index(name)
    result = audit_mechanism(configured(name), confidence=TOGETHER, random_state=seed)
    assert tabled(name, result).holds
    # The worst case comes near what the noise says, whatever clips.
    assert result.lower_bound >= 0.9 * result.best


@pytest.mark.audit
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_training_tells_more_than_is_claimed(name, tabled):
    seed = list(CONFIGURATIONS).index(name)
    # At an epsilon where a thousand canaries can show something at this confidence.
    result = audit_training(
        configured(name, epsilon=8.0), wider(), confidence=TOGETHER, random_state=seed
    )
    assert tabled(name, result).holds


@pytest.mark.audit
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_step_shows_most_of_the_claim(epsilon, tabled):
    result = audit_mechanism(
        lean(epsilon, **STEPS), confidence=1 - ERRORS["step"], random_state=int(epsilon)
    )
    assert result.holds
    assert tabled(f"one step, epsilon {epsilon:g}", result).share >= 0.9


@pytest.mark.audit
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_repeated_trainings_show_half_of_the_claim(epsilon, tabled):
    result = audit_training(
        lean(epsilon, **WHOLE), table(6), n_canaries=1, n_runs=RUNS[epsilon],
        confidence=1 - ERRORS["repeated"], random_state=int(epsilon),
    )  # fmt: skip
    assert result.holds
    assert tabled(f"repeated, epsilon {epsilon:g}", result).share >= 0.5


@pytest.mark.audit
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_one_training_shows_a_fifth_of_the_claim(epsilon, tabled):
    result = audit_training(
        lean(epsilon, VAE, **WHOLE), table(), n_canaries=6000,
        confidence=1 - ERRORS["single"], random_state=int(epsilon),
    )  # fmt: skip
    assert result.holds
    assert tabled(f"one run, epsilon {epsilon:g}", result).share >= 0.2


@pytest.mark.audit
@pytest.mark.parametrize(("kind", "pair"), PAIRED)
def test_no_release_tells_more_than_is_claimed(kind, pair, tabled):
    result = audit_release(
        kind(**WHOLE).set_params(**TINY), wider(), pair=pair, confidence=TOGETHER
    )
    name = "flow" if kind is FLOW else "vae"
    assert tabled(f"{name}, all found", result).holds


def of_people(n):
    """Return visits of n people, and the estimator of linked rows."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"key": np.repeat(np.arange(n), 3)})
    rows["born"] = np.repeat(rng.integers(1930, 2000, n), 3)
    rows["cost"] = rng.normal(50, 10, len(rows))
    rows["ward"] = pd.Series(rng.choice(["A", "B"], len(rows)), dtype="str")
    key = Column("key", "integer", role="unit")
    born = Column("born", "integer", lower=1900, upper=2010, per_unit=True)
    flow = FLOW(4.0, **WHOLE, schema=Schema([key, born]), max_rows_per_unit=3)
    return rows, flow.set_params(**TINY)


@pytest.mark.audit
@pytest.mark.parametrize("pair", PAIRS)
def test_no_release_tells_more_of_a_person_than_is_claimed(pair, tabled):
    rows, flow = of_people(12)
    result = audit_release(flow, rows, pair=pair, confidence=TOGETHER)
    assert (result.epsilon, result.delta) == (4.0, 1e-5)
    assert tabled(f"a person, {pair}", result).holds


@pytest.mark.audit
def test_a_person_counted_row_by_row_is_betrayed(monkeypatch):
    """As many steps as rows, at the noise of one: beyond the claim."""
    mutants.every_row_of_a_person(monkeypatch)
    rows, flow = of_people(12)
    flow.set_params(max_rows_per_unit=60, epsilon=0.5)
    assert not audit_release(flow, rows, n_runs=100, n_samples=5).holds


# The same in seconds --------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("pair", PAIRS)
def test_whole_fits_of_people_within_their_claim(pair):
    rows, flow = of_people(12)
    result = audit_release(flow, rows, pair=pair, n_runs=8, n_samples=5)
    assert result.holds
    assert "for one person, within" in str(result)


QUICK = 1 - 1e-5


@pytest.mark.thin(2)
@pytest.mark.parametrize("clipping", ["flat", "per-layer", "per-unit", "sparsified"])
@pytest.mark.parametrize("divergence", [None, "mmd"])
def test_one_step_is_as_private_as_its_noise(clipping, divergence):
    synthesizer = FLOW(
        4.0, **WHOLE, **DECLARED, clipping=clipping, divergence=divergence
    )
    result = audit_mechanism(
        synthesizer, n_trials=20_000, confidence=QUICK, random_state=0
    )
    assert result.holds
    assert 0.9 * result.best <= result.lower_bound <= result.best


@pytest.mark.parametrize("aggregation", ["micro", "batch"])
def test_one_step_of_the_baselines(aggregation):
    synthesizer = VAE(
        4.0,
        n_steps=2,
        batch_size=20,
        divergence=BatchTerm("mmd", aggregation=aggregation),
    )
    result = audit_mechanism(
        synthesizer, n_rows=20, n_trials=20_000, confidence=QUICK, random_state=0
    )
    assert 0.9 * result.best <= result.lower_bound <= result.best


@pytest.mark.parametrize("batch_term_module", ["offsets", "inner.encoder"])
def test_one_step_of_a_recipe_of_ones_own(batch_term_module, monkeypatch):
    monkeypatch.setattr(PairRecipe, "batch_term_module", batch_term_module)
    monkeypatch.setattr(PairRecipe, "has_batch_term", True)
    synthesizer = TableSynthesizer(PairRecipe(), epsilon=4.0, **WHOLE)
    result = audit_mechanism(
        synthesizer, n_trials=20_000, confidence=QUICK, random_state=0
    )
    assert 0.9 * result.best <= result.lower_bound <= result.best


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "mistake",
    [
        mutants.no_clipping,
        mutants.c2_for_2c2,
        mutants.kappa_of_one,
        mutants.noise_over_batch_twice,
    ],
    ids=lambda mistake: mistake.__name__,
)
def test_one_step_betrays_a_mistake(mistake, monkeypatch):
    mistake(monkeypatch)
    synthesizer = FLOW(
        4.0, **WHOLE, **DECLARED, n_partitions=1, marginal_budget=0.02,
        divergence=BatchTerm("mmd", max_grad_norm=1e-4),
        architecture=FlowArchitecture(table_budget=0),
    )  # fmt: skip
    result = audit_mechanism(
        synthesizer, n_trials=20_000, confidence=QUICK, random_state=0
    )
    assert not result.holds
    assert "BEYOND" in str(result)


def test_one_training_stays_within_its_claim_and_a_leak_does_not(monkeypatch):
    def found(epsilon):
        return audit_training(
            lean(epsilon, **WHOLE), table(), n_canaries=500, confidence=0.999,
            random_state=0,
        )  # fmt: skip

    honest = found(4.0)
    assert honest.holds
    assert honest.lower_bound > 0.2
    whole = Mechanisms.gradient
    monkeypatch.setattr(
        Mechanisms,
        "gradient",
        lambda self, sums, stds, **stated: whole(
            self, sums, [std / 50 for std in stds], **stated
        ),
    )
    assert not found(0.5).holds


@pytest.mark.slow
def test_repeated_trainings_stay_within_their_claim_and_a_leak_does_not(monkeypatch):
    # At epsilon 8 four guesses of five are right: with 150 of them the bound lies
    # beyond 1 but for chances of one in ten thousand.
    def found():
        return audit_training(
            lean(8.0, **WHOLE), table(6), n_canaries=1, n_runs=150, confidence=0.999,
            random_state=0,
        )  # fmt: skip

    honest = found()
    assert honest.lower_bound > 1
    assert honest.holds
    monkeypatch.setattr(mutants.clipping, "factors", lambda n, b, m: 0 * n + 1)
    assert not found().holds


@pytest.mark.audit
def test_a_sampled_training_is_bounded_by_its_own_noise():
    # Guesses as good as they can be lead back to the epsilon of the steps.
    synthesizer = lean(2.0, n_steps=20, batch_size=10)
    plan = session.planned_fit(synthesizer, TableDomain(SCHEMA)).plan(50)
    rng = np.random.default_rng(0)
    q, z, n = plan.sampling_rate, plan.noise_multiplier, 100_000
    present = (rng.random((n, 20)) < q) + z * rng.standard_normal((n, 20))
    scores = _sampled((present - 0.5) / z**2, q).sum(1)
    accuracy = 0.5 * (scores > 0).mean()
    absent = z * rng.standard_normal((n, 20))
    scores = _sampled((absent - 0.5) / z**2, q).sum(1)
    accuracy += 0.5 * (scores <= 0).mean()
    bound = run_epsilon(accuracy, plan)
    steps = steps_epsilon(1 / z, plan)
    assert 0.85 * steps <= bound <= 1.02 * steps
    assert run_epsilon(0.5, plan) == 0


@pytest.mark.thin(2)
@pytest.mark.parametrize("pair", PAIRS)
def test_whole_fits_within_their_claim(pair):
    result = audit_release(
        FLOW(**WHOLE).set_params(**TINY), wider(12), pair=pair, n_runs=12, n_samples=5
    )
    assert result.holds
    assert result.n_trials == 24


def test_decimals_have_an_outlier():
    prices = pd.Series([1.25, 2.5, 9.99] * 4)
    X = pd.DataFrame({"price": prices.astype(pd.ArrowDtype(pa.decimal128(6, 2)))})
    result = audit_release(FLOW(**WHOLE).set_params(**TINY), X, n_runs=4, n_samples=5)
    assert result.holds


def test_whole_fits_of_times():
    days = pd.Series(pd.date_range("2020-01-01", periods=12, tz="UTC"))
    X = table(12).assign(day=days, stay=days - days[0])
    estimator = FLOW(**WHOLE).set_params(**TINY)
    assert audit_release(estimator, X, n_runs=4, n_samples=5).holds


def test_whole_fits_betray_bounds_of_the_rows(monkeypatch):

    def bounded(column, values):
        if column.name != "size":
            return column
        return dataclasses.replace(
            column, lower=-5.0, upper=min(float(values.max()), 1e9)
        )

    mutants._facts_from_rows(monkeypatch, bounded)
    result = audit_release(
        FLOW(0.5, **WHOLE).set_params(**TINY), wider(12), n_runs=16, n_samples=5
    )
    assert not result.holds
    assert result.lower_bound == pytest.approx(result.best)


# Counted tables -------------------------------------------------------------------


class Seen(tables.Door):
    """Keeps what is released, and what it was before its noise."""

    def __init__(self):
        super().__init__()
        self._rng = SecureGenerator()
        self.noisy, self.places = [], []

    @property
    def tape(self):
        return [*self.places, *self.noisy]

    def gaussian(self, values, std, **stated):
        self.noisy.append(super().gaussian(values, std, **stated))
        return self.noisy[-1]

    def choose(self, scores, multiplier, **stated):
        self.places.append(super().choose(scores, multiplier, **stated))
        return self.places[-1]


def told_of_a_row(is_with, worlds, plan):
    """Return the log-likelihood ratio of a row, given choices, news and counts.

    The adversary knows all other rows; what is chosen because of the rows of this
    world is released of both.
    """
    seen = Seen()
    tables.measured(worlds[is_with], plan=plan, door=seen)
    frozen = tables.Frozen(seen.tape)
    tables.measured(worlds[not is_with], plan=plan, door=frozen)
    ratio = 0.0
    for noisy, (a, std, _), (b, *_) in zip(
        seen.noisy, seen.asked, frozen.asked, strict=True
    ):
        ratio += float(((noisy - (a + b) / 2) * (a - b)).sum()) / std**2
    for place, (a, multiplier, stated), (b, *_) in zip(
        seen.places, seen.chosen, frozen.chosen, strict=True
    ):
        rate = choice_rate(multiplier) / stated["sensitivity"]
        ratio += log_softmax(rate * a)[place] - log_softmax(rate * b)[place]
    return ratio if is_with else -ratio


def audited_tables(n_trials, monkeypatch):
    """Return what both releases tell of one row at least, and what they may."""
    monkeypatch.setattr(tables.workload, "POOL", 256)
    plan = tables.plan_of(400, epsilon=8.0, marginal_budget=0.02, table_budget=0.9)
    without = tables.planted(400, 3)
    worlds = without, np.concatenate([without, without[:1]])
    correct = sum(
        (told_of_a_row(is_with, worlds, plan) > 0) == is_with
        for is_with in (False, True)
        for _ in range(n_trials)
    )
    mu = least_mu(least_share(int(correct), 2 * n_trials, QUICK))
    claim = gaussian_epsilon(plan.multiplier(TABLES), plan.delta)
    return gaussian_epsilon(1 / mu, plan.delta) if mu > 0 else 0.0, claim


@pytest.mark.slow
def test_counted_tables_tell_what_they_may(monkeypatch):
    # Choices tell less than they are counted for.
    found, claim = audited_tables(4000, monkeypatch)
    assert 0.55 * claim <= found <= claim


@pytest.mark.audit
def test_counted_tables_tell_most_of_what_they_may(monkeypatch):
    found, claim = audited_tables(10_000, monkeypatch)
    assert 0.65 * claim <= found <= claim


@pytest.mark.slow
def test_tables_betray_a_row_in_two_cells(monkeypatch):
    mutants.rows_in_two_cells(monkeypatch)
    found, claim = audited_tables(1500, monkeypatch)
    assert found > claim


# Embeddings of classes ------------------------------------------------------------


def told_by_embeddings(is_with, worlds, phases, plan):
    """Return the log-likelihood ratio of a row, given all that is released."""
    seen, other = Seen(), Seen()
    for door, codes in (seen, worlds[is_with]), (other, worlds[not is_with]):
        release_embeddings(Private(codes), phases, [0, 1], plan, door)
    ((own, std, _),), ((others, *_),) = seen.asked, other.asked
    ratio = ((seen.noisy[0] - (own + others) / 2) * (own - others)).sum() / std**2
    return float(ratio)


def audited_embeddings(n_trials):
    """Return what embeddings tell of one row at least, and what they may."""
    facts = {"table_budget": 0.0, "embedding_budget": 0.7, "epsilon": 2.0}
    plan = tables.plan_of(60, **facts)
    phases = test_embedding.drawn_phases(0)
    without = test_embedding.drawn_rows(60, 0) % [2, 6, 3]
    worlds = without, np.concatenate([without, without[:1]])
    correct = sum(
        told_by_embeddings(is_with, worlds, phases, plan) > 0
        for is_with in (False, True)
        for _ in range(n_trials)
    )
    mu = least_mu(least_share(correct, 2 * n_trials, QUICK))
    claim = gaussian_epsilon(plan.multiplier(EMBEDDING), plan.delta)
    return gaussian_epsilon(1 / mu, plan.delta) if mu > 0 else 0.0, claim


@pytest.mark.audit
def test_embeddings_tell_most_of_what_they_may():
    found, claim = audited_embeddings(20_000)
    assert 0.75 * claim <= found <= claim


@pytest.mark.audit
def test_embeddings_betray_a_row_in_every_class(monkeypatch):
    mutants.features_in_every_class(monkeypatch)
    found, claim = audited_embeddings(10_000)
    assert found > claim


# Parts ----------------------------------------------------------------------------


def test_the_one_run_p_value_is_that_of_its_definition():
    # Without delta: a binomial tail. With it: the worst slope below, by brute force.
    assert one_run_p_value(100, 50, 40, 1.0, 0.0) == pytest.approx(
        stats.binom.sf(39, 50, 1 / (1 + math.exp(-1)))
    )
    m, r, v, epsilon, delta = 80, 30, 24, 0.7, 1e-3
    rate = 1 / (1 + math.exp(-epsilon))
    mass = [stats.binom.pmf(k, r, rate) for k in range(r + 1)]
    worst = max(sum(mass[v - i : v]) / i for i in range(1, v + 1))
    expected = sum(mass[v:]) + 2 * m * delta * worst
    assert one_run_p_value(m, r, v, epsilon, delta) == pytest.approx(expected)
    assert one_run_p_value(10, 5, 0, 1.0, 0.1) == 1.0


def test_the_one_run_bound_covers_randomized_response():
    # Whoever answers truthfully with probability e^eps / (1 + e^eps) meets the claim.
    rng = np.random.default_rng(0)
    epsilon, m = 1.0, 200
    counts = rng.binomial(m, 1 / (1 + math.exp(-epsilon)), 2000)
    bounds = {v: one_run_bound(m, m, v, 0.0, 0.95) for v in np.unique(counts)}
    beyond = np.mean([bounds[v] > epsilon for v in counts])
    assert 0.02 < beyond < 0.05 + 4.5 * math.sqrt(0.05 * 0.95 / 2000)


def test_a_bound_of_impossible_counts_is_refused():
    with pytest.raises(ValueError, match="n_correct"):
        one_run_bound(100, 10, 20, 1e-5, 0.95)
    with pytest.raises(ValueError, match="confidence"):
        one_run_bound(100, 20, 10, 1e-5, 95)


def test_mu_and_epsilon_of_a_run_agree():
    epsilon, delta = 3.0, 1e-5
    mu = 1 / gaussian_multiplier(epsilon, delta)
    accuracy = stats.norm.cdf(mu / 2)
    assert least_mu(accuracy) == pytest.approx(mu)
    assert gaussian_epsilon(1 / least_mu(accuracy), delta) == pytest.approx(
        epsilon, rel=1e-6
    )


def test_ideal_guesses_grow_with_canaries_and_stay_below_the_claim():
    found = [ideal_guesses(m, 2.0, 1e-5, 0.95) for m in (100, 1000, 10_000)]
    bounds = [bound for _, bound in found]
    assert bounds == sorted(bounds)
    assert bounds[0] > 0
    assert bounds[-1] < 2.0
    assert all(
        2 <= r <= m and r % 2 == 0
        for (r, _), m in zip(found, (100, 1000, 10_000), strict=True)
    )


def test_results_say_what_they_are():
    result = AuditResult("One step", 0.5, 0.95, 2.0, 1e-5, 1.9, 100)
    assert result.share == 0.25
    assert result.holds
    assert str(result) == result.sentence
    assert "95 % confidence" in str(result)
    assert "at delta 1e-05 for one row, within the claimed 2 (25 % of" in str(result)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.lower_bound = 0.0


def test_claims_are_those_for_one_row():
    """One row is what audits put in: of a person's guarantee it has a share."""
    several = FLOW(4.0, **WHOLE, **DECLARED, max_rows_per_unit=4)
    several.set_params(**TINY)
    played = [
        audit_release(several, table(6), n_runs=4, n_samples=5),
        audit_mechanism(several, n_trials=10, random_state=0),
    ]
    for result in played:
        assert (result.epsilon, result.delta) == row_budget(4.0, 1e-5, 4)


def test_fitted_configurations_are_audited_as_they_were_fitted():
    fitted = FLOW(2.0, **WHOLE, random_state=0).set_params(**TINY).fit(table())
    before = dict(vars(fitted))
    result = audit_mechanism(fitted, n_trials=200, random_state=0)
    plan = fitted.privacy_.plan
    assert result.best == steps_epsilon(1 / plan.noise_multiplier, plan)
    assert (result.epsilon, result.delta) == (2.0, 1e-5)
    audit_training(fitted, table(), n_canaries=20, random_state=0)
    assert vars(fitted).keys() == before.keys()
    assert all(vars(fitted)[key] is before[key] for key in before)


def test_seeds_repeat_an_audit():
    results = [
        audit_training(lean(2.0, **WHOLE), table(), n_canaries=50, random_state=seed)
        for seed in (1, 1)
    ]
    assert results[0] == results[1]
    steps = [
        audit_mechanism(lean(2.0, **WHOLE), n_trials=500, random_state=seed)
        for seed in (1, 1, 2)
    ]
    assert steps[0] == steps[1]
    assert steps[0] != steps[2]


@pytest.mark.parametrize("audited", ["mechanism", "training", "release"])
def test_what_cannot_be_audited_is_refused(audited):
    def run(estimator, **params):
        if audited == "mechanism":
            return audit_mechanism(estimator, **params)
        function = audit_training if audited == "training" else audit_release
        return function(estimator, table(), **params)

    name = f"audit_{audited}"
    with pytest.raises(TypeError, match=f"{name} takes a synthesizer"):
        run(torch.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="promises nothing"):
        run(FLOW(epsilon=None))
    with pytest.raises(ValueError, match="confidence"):
        run(FLOW(), confidence=1.0)
    with pytest.raises(ValueError, match="'delta'"):
        run(FLOW(delta=2.0))


def test_bad_parameters_of_audits_are_named():
    with pytest.raises(ValueError, match="n_trials"):
        audit_mechanism(FLOW(), n_trials=0)
    with pytest.raises(ValueError, match="n_rows"):
        audit_mechanism(FLOW(), n_rows=1.5)
    with pytest.raises(ValueError, match="n_canaries"):
        audit_training(FLOW(), table(), n_canaries=0)
    with pytest.raises(ValueError, match="random_state"):
        audit_training(FLOW(), table(), random_state="one")
    with pytest.raises(ValueError, match="pair"):
        audit_release(FLOW(), table(), pair="typo")
    with pytest.raises(ValueError, match="n_runs"):
        audit_release(FLOW(), table(), n_runs=3)
    with pytest.raises(ValueError, match="reproducible"):
        audit_release(FLOW(noise="reproducible", random_state=0), table())
    with pytest.raises(TypeError, match="DataFrame"):
        audit_release(FLOW(), table().to_numpy())
    with pytest.raises(ValueError, match="no column for pair='category'"):
        audit_release(FLOW(), table()[["size"]], pair="category")
