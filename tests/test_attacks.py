"""Attacks find what there is to find, and no more than the guarantee allows."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import mean_squared_error, roc_auc_score
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier
from torch import nn
from torch.nn import functional as F

from dpgenerative import DPArrayVAESynthesizer, DPHFlowSynthesizer
from dpgenerative._intervals import clopper_pearson
from dpgenerative._random import Streams
from dpgenerative.fitting.loop import train
from dpgenerative.fitting.options import Optimizer
from dpgenerative.layers import MaskedLinear
from dpgenerative.metrics.attacks import (
    domias_attack,
    likelihood_attack,
    logan_attack,
    marginal_attack,
    monte_carlo_attack,
)
from dpgenerative.metrics.distances import (
    Embedding,
    Points,
    nearest,
    structural_similarity,
)
from dpgenerative.metrics.membership import (
    attack_result,
    auc_cap,
    average_precision_cap,
    roc_cap,
)
from dpgenerative.metrics.reconstruction import _measure, reconstruction_attack
from dpgenerative.metrics.records import (
    closest_record,
    crafted_canaries,
    vulnerable_records,
)
from dpgenerative.metrics.sparsity import hoyer_sparsity
from dpgenerative.metrics.tradeoff import bounded_phi, phi
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.steps import Clipper, PrivateGradient

# Figures and caps ---------------------------------------------------------------------
from dpgenerative.synthesizers.latents import encoded, posterior
from dpgenerative.tables.private import Private
from tests.plans import make_plan

SLOW = pytest.mark.slow


def shifted(n, shift, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n), rng.normal(0, 1, n)


def test_auc_and_its_interval_cover_the_truth():
    truth = stats.norm.cdf(1 / math.sqrt(2))
    rates = [attack_result("x", shifted(300, 1.0, seed)).auc for seed in range(200)]
    member, other = shifted(300, 1.0, 0)
    labels = [1] * 300 + [0] * 300
    expected = roc_auc_score(labels, np.concatenate([member, other]))
    assert rates[0].value == pytest.approx(expected)
    covered = np.mean([rate.low <= truth <= rate.high for rate in rates])
    assert 0.9 <= covered <= 0.99


def test_clopper_pearson_inverts_the_binomial():
    low, high = clopper_pearson(7, 40, 0.95)
    assert stats.binom.sf(6, 40, low) == pytest.approx(0.025)
    assert stats.binom.cdf(7, 40, high) == pytest.approx(0.025)
    assert clopper_pearson(0, 5, 0.95)[0] == 0
    assert clopper_pearson(5, 5, 0.95)[1] == 1


def test_rates_at_a_false_positive_rate():
    result = attack_result("x", [np.arange(10.0), np.arange(10.0) - 5])
    assert result.tpr_at(0.0).value == pytest.approx(0.5)
    assert result.tpr_at(0.1).value == pytest.approx(0.6)
    assert result.tpr_at(1.0).value == 1
    assert result.tpr_at(0.05).low < 0.5 < result.tpr_at(0.05).high


def test_the_precision_recall_curve_is_that_of_average_precision():
    result = attack_result("x", [[5.0, 4.0, 2.0], [3.0, 1.0, 0.0]])
    precision, recall, thresholds = result.precision_recall()
    np.testing.assert_allclose(thresholds, [1, 2, 3, 4, 5, 6])  # ranks
    np.testing.assert_allclose(precision, [0.5, 0.6, 0.75, 2 / 3, 1, 1, 1])
    np.testing.assert_allclose(recall, [1, 1, 1, 2 / 3, 2 / 3, 1 / 3, 0])
    area = -(np.diff(recall) * precision[:-1]).sum()
    assert result.average_precision.value == pytest.approx(area)


def test_infinite_scores_rank_at_the_ends():
    result = attack_result("x", [[math.inf, 3.0], [-math.inf, 2.0]])
    assert result.auc.value == 1


@pytest.mark.parametrize(
    "scores", [([math.nan], [1.0]), ([], [1.0]), ([1.0], [])], ids=["nan", "a", "b"]
)
def test_scores_must_be_numbers(scores):
    with pytest.raises(ValueError, match="need a score each"):
        attack_result("x", scores)


@pytest.mark.parametrize("pair", [(-1, 0.1), (1, 1.0), (1, -0.1), (math.inf, 0.1)])
def test_guarantees_must_be_in_range(pair):
    with pytest.raises(ValueError, match="privacy must be pairs"):
        attack_result("x", ([1.0], [2.0]), [pair])


@pytest.mark.parametrize("given", [1.0, (0.3, 0.1, 0.2), [(0.3, 0.1, 0.2)] * 2])
def test_guarantees_are_pairs(given):
    with pytest.raises(ValueError, match="privacy must be pairs"):
        attack_result("x", ([1.0], [2.0]), given)


def test_no_guarantee_has_no_cap():
    for nothing in (None, ()):
        result = attack_result("x", ([1.0, 2.0], [2.0, 0.0]), nothing)
        assert math.isnan(result.auc.cap)
        assert math.isnan(result.tpr_at(0.1).cap)


def gaussian_curve(mu):
    """The exact privacy curve of a Gaussian mechanism, as many pairs."""
    epsilons = np.linspace(0, 8, 50)
    deltas = stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(
        -mu / 2 - epsilons / mu
    )
    return list(zip(epsilons, np.maximum(deltas, 0), strict=True))


@pytest.mark.parametrize("mu", [0.5, 1.5])
def test_caps_are_those_of_the_gaussian_mechanism(mu):
    # Dong, Roth and Su 2022: the best test of N(0, 1) against N(mu, 1).
    curve = gaussian_curve(mu)
    fpr = np.linspace(0.001, 0.999, 50)
    best = stats.norm.cdf(stats.norm.ppf(fpr) + mu)
    cap = roc_cap(fpr, curve)
    assert (cap >= best - 1e-9).all()
    assert np.abs(cap - best).max() < 3e-3
    assert auc_cap(curve) == pytest.approx(stats.norm.cdf(mu / 2**0.5), abs=3e-3)
    result = attack_result("x", shifted(100_000, mu), curve)
    figure = result.average_precision
    assert figure.value == pytest.approx(figure.cap, abs=6e-3)
    assert figure.cap == pytest.approx(average_precision_cap(curve, 0.5), abs=1e-4)
    assert result.tpr_at(0.01).low < result.tpr_at(0.01).cap + 1e-3


def test_one_pair_by_hand():
    pair = [(math.log(3), 0.0)]
    # Corner where 3 f = 1 - (1 - f) / 3: f = 1/4, t = 3/4.
    assert auc_cap(pair) == pytest.approx(0.5 * 0.25 * 0.75 + 0.75 * (0.75 + 1) / 2)
    assert roc_cap(0.25, pair) == pytest.approx(0.75)
    assert auc_cap([(0.0, 0.0)]) == pytest.approx(0.5)
    assert average_precision_cap([(0.0, 0.0)], 0.3) == pytest.approx(0.3, abs=1e-3)


def test_caps_at_the_ends():
    for epsilon in (30.0, 800.0):
        pair = [(epsilon, 0.0)]
        np.testing.assert_allclose(roc_cap([0.0, 0.5], pair), [0, 1], atol=1e-9)
        assert auc_cap(pair) == pytest.approx(1)
        assert average_precision_cap(pair, 0.5) == pytest.approx(1, abs=1e-3)
    assert roc_cap(0.0, [(800.0, 1e-5)]) == pytest.approx(1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("n", [50, pytest.param(1000, marks=SLOW)])
def test_guessing_stays_within_the_cap_of_guessing(n):
    rng, above, precision = np.random.default_rng(0), [], []
    for _ in range(300):
        result = attack_result("x", rng.random((2, n)), [(0.0, 0.0)])
        above.append([(r := result.tpr_at(f)).low > r.cap for f in (0.001, 0.01, 0.1)])
        precision.append(result.average_precision.value)
    assert (np.mean(above, axis=0) < 0.03).all()
    error = np.std(precision) / math.sqrt(300)
    assert abs(np.mean(precision) - result.average_precision.cap) < 4 * error + 1e-3


def test_ten_records_prove_little():
    rate = attack_result("x", [np.ones(10), np.zeros(10)]).auc
    assert rate.value == rate.high == 1
    assert rate.low < 0.75


def test_more_pairs_only_tighten():
    curve = gaussian_curve(1.0)
    assert auc_cap(curve) < auc_cap(curve[::8]) < auc_cap(curve[24:25])


def test_the_lower_bound_on_epsilon_is_one():
    # Randomised response of epsilon log 3, told apart without error.
    epsilon, bounds = math.log(3), []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        scores = rng.random(400) < 0.75, rng.random(400) < 0.25
        bounds.append(attack_result("x", scores).epsilon_lower_bound(random_state=seed))
    assert np.mean(np.array(bounds) > epsilon) <= 0.05
    assert np.median(bounds) > 0.5 * epsilon


def test_the_lower_bound_sees_both_sides():
    # Members are never below 0: their absence tells, their presence does not.
    rng = np.random.default_rng(0)
    scores = np.ones(2000), (rng.random(2000) < 0.8).astype(float)
    assert attack_result("x", scores).epsilon_lower_bound() > 3
    assert attack_result("x", scores).epsilon_lower_bound(delta=0.3) == 0
    assert attack_result("x", shifted(500, 0.0)).epsilon_lower_bound() < 0.3


def test_result_frame_and_repr():
    result = attack_result("x", shifted(100, 1.0), [(1.0, 1e-5)])
    frame = result.to_frame()
    assert frame.columns.tolist() == ["value", "low", "high", "cap"]
    assert frame.loc["epsilon, at least", "cap"] == 1.0
    assert frame.loc["TPR at 1 % FPR", "value"] == result.tpr_at(0.01).value
    assert "cap 0.731" in repr(result)


# Distances ----------------------------------------------------------------------------


def test_embedding_counts_differences():
    frame = pd.DataFrame({"a": ["x", "y", None], "b": [1.0, 2.0, 3.0]})
    embed = Embedding([frame])
    points = embed(frame)
    squares = [points.squares(embed(frame.iloc[[i]])) for i in range(3)]
    expected = [
        [0, 1 + 1 / 9, 1 + 4 / 9],
        [1 + 1 / 9, 0, 1 + 1 / 9],
        [1 + 4 / 9, 1 + 1 / 9, 0],
    ]
    np.testing.assert_allclose(squares, expected, rtol=1e-5)
    strange = pd.DataFrame({"a": ["new", "newer"], "b": [math.nan, 99.0]})
    others = embed(strange)
    assert points.squares(embed(strange.iloc[[0]])).min() >= 2 - 1e-6
    assert np.isfinite(others.numbers).all()


@pytest.mark.parametrize(("first", "second"), [(int, str), (str, int)])
@pytest.mark.filterwarnings("ignore:Few rows")
def test_tables_of_other_types_are_no_leak(first, second):
    # As levels none of them would be among the other's, and every row a member's.
    members, others = (
        pd.DataFrame({"a": np.arange(9).astype(t)}) for t in (first, second)
    )
    with pytest.raises(ValueError, match="Column 'a' "):
        monte_carlo_attack(members, others, members)
    with pytest.raises(ValueError, match="Column 'a' "):
        Embedding([members, others])


def test_points_do_not_grow_with_levels():
    """An indicator per level took minutes where strings hardly repeat."""
    frame = pd.DataFrame({"name": [f"person {i}" for i in range(500)], "x": range(500)})
    points = Embedding([frame])(frame)
    assert points.numbers.shape == (500, 2)
    assert points.levels.shape == (500, 1)


def test_nearest_equals_brute_force(monkeypatch):
    monkeypatch.setattr("dpgenerative.metrics.distances._BLOCK", 50)
    rng = np.random.default_rng(0)
    a, b = (
        Points(rng.normal(size=(n, 3)), rng.integers(0, 3, (n, 2))) for n in (17, 23)
    )
    rows = [Points(a.numbers[[i]], a.levels[[i]]) for i in range(17)]
    brute = np.sort([b.squares(row) for row in rows], axis=1)[:, :3]
    np.testing.assert_allclose(nearest(a, b, 3), brute, rtol=1e-4, atol=1e-5)
    assert (nearest(a, a) == 0).all()


def test_structural_similarity():
    rng = np.random.default_rng(0)
    image = rng.random((4, 100))
    np.testing.assert_allclose(structural_similarity(image, image, (10, 10)), 1)
    # Constant images: only the luminance term is left.
    a, b = np.full((1, 100), 0.2), np.full((1, 100), 0.8)
    luminance = (2 * 0.2 * 0.8 + 1e-4) / (0.04 + 0.64 + 1e-4)
    np.testing.assert_allclose(structural_similarity(a, b, (10, 10)), luminance)
    # One window: the formula by numpy.
    x, y = rng.random((2, 49))
    c1, c2 = 1e-4, 9e-4
    covariance = np.cov(x, y)
    expected = (2 * x.mean() * y.mean() + c1) * (2 * covariance[0, 1] + c2)
    expected /= (x.mean() ** 2 + y.mean() ** 2 + c1) * (np.trace(covariance) + c2)
    index = structural_similarity(x[None], y[None], (7, 7))
    np.testing.assert_allclose(index, expected)
    with pytest.raises(ValueError, match="smaller than the 7 window"):
        structural_similarity(x[None], y[None], (49, 1))


# Attacks with only the synthetic table ------------------------------------------------


def population(n, seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=n)
    return pd.DataFrame(
        {
            "age": np.round(40 + 12 * z + rng.normal(0, 4, n)),
            "income": np.exp(8 + z + rng.normal(0, 1, n)),
            "job": pd.Categorical.from_codes(
                rng.integers(0, 6, n), categories=list("abcdef")
            ),
            "owner": rng.random(n) < 0.3,
            "score": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
        }
    )


def leaky(share, seed=0, n=1000):
    """Members, others, reference and a table that copies a share of the members."""
    members, others, reference = (population(n, seed + 100 * k) for k in (1, 2, 3))
    fresh = population(n - int(share * n), seed + 400)
    copied = members.sample(int(share * n), random_state=seed)
    return members, others, reference, pd.concat([copied, fresh], ignore_index=True)


ATTACKS = {
    "Monte Carlo": lambda m, o, r, s, **k: monte_carlo_attack(s, m, o, **k),
    "DOMIAS": lambda m, o, r, s, **k: domias_attack(s, m, o, r, **k),
    "DOMIAS, kernels": lambda m, o, r, s, **k: domias_attack(
        s, m, o, r, density="kde", **k
    ),
    "LOGAN": lambda m, o, r, s, **k: logan_attack(s, m, o, r, **k),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ATTACKS)
def test_copied_rows_are_found(name):
    claimed = [(1.0, 1e-5)]
    result = ATTACKS[name](*leaky(0.1), privacy=claimed)
    assert result.name == name
    guessing = replace(result, privacy=((0.0, 0.0),))
    assert result.tpr_at(0.01).low > guessing.tpr_at(0.01).cap
    assert name == "LOGAN" or result.tpr_at(0.01).low > result.tpr_at(0.01).cap
    assert result.auc.low > 0.5
    innocent = ATTACKS[name](*leaky(0.0), privacy=claimed)
    innocent = replace(innocent, confidence=0.9999)
    assert innocent.auc.low < 0.5 < innocent.auc.high
    assert innocent.tpr_at(0.01).low < 0.02
    assert innocent.epsilon_lower_bound(1e-5) < 1


@pytest.mark.parametrize("n", [90, 200])
@pytest.mark.parametrize("dtype", [int, str])
def test_a_classifier_is_given_numbers_and_levels(dtype, n):
    rng = np.random.default_rng(0)
    members, others, reference = (
        pd.DataFrame({"a": rng.integers(low, low + 40, 100)}).astype(dtype)
        for low in (0, 40, 40)
    )
    fake, tree = pd.concat([members] * 2)[:n], DecisionTreeClassifier()
    found = logan_attack(fake, members, others, reference, classifier=tree)
    assert found.auc.value > 0.9


def test_counted_tables_betray_their_rows():
    members, others, _, _ = leaky(0.0, n=300)
    reference = population(5000, 9)
    counted = list(combinations(members.columns, 4))
    found = marginal_attack(members, members, others, reference, tables=iter(counted))
    assert found.tpr_at(0.01).value > 0.5
    single = [(name,) for name in members.columns]
    found = marginal_attack(members, members, others, reference, tables=single)
    assert found.tpr_at(0.01).value < 0.1
    # One column, counted by hand.
    sides = (["x"] * 3 + ["y"], ["x", "y", "y", "y"], ["x", "x", "y", "z"])
    made, member, other = (pd.DataFrame({"a": x * 20}) for x in sides)
    result = marginal_attack(made, member, other, other[:60].assign(a="w"), n_bins=2)
    assert (
        result.scores.tolist()
        == stats.rankdata(
            [{"x": 3, "y": 1, "z": 0}[x] for x in [*member["a"], *other["a"]]]
        ).tolist()
    )


def test_counted_tables_are_found_whatever_dtypes_hold_their_columns():
    rng = np.random.default_rng(0)
    members, others, reference, fake = (
        pd.DataFrame({"flag": rng.integers(0, 2, 200), "size": rng.normal(size=200)})
        for _ in "mors"
    )
    # Objects are levels, of all tables; the cells of `size` were read for `flag`.
    objects = others.astype({"flag": object})
    found = marginal_attack(fake, members, objects, reference, tables=[("flag",)])
    assert len(np.unique(found.scores)) == 2


def test_a_likelihood_ratio_does_not_take_common_records_for_members():
    rng = np.random.default_rng(0)
    members, others, reference = rng.normal(size=(3, 400, 3))
    tight, known = (stats.gaussian_kde(x.T, 0.3) for x in (members, reference))
    plain = likelihood_attack(lambda x: tight.logpdf(x.T), members, others)
    ratio = likelihood_attack(
        lambda x: tight.logpdf(x.T), members, others,
        reference=lambda x: known.logpdf(x.T),
    )  # fmt: skip
    assert ratio.name == "likelihood ratio"
    assert ratio.auc.low > plain.auc.value > 0.5


def test_records_at_risk_are_the_lonely_and_the_unlikely():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=200), "c": rng.choice([*"ab"], 200)})
    lonely = pd.DataFrame({"x": [0.0, 0.1], "c": ["y", "z"]})
    found = vulnerable_records(pd.concat([table, lonely], ignore_index=True), 2)
    assert sorted(found.index) == [200, 201]
    # The nearest other row alone counts: twins are no risk, however far the third is.
    few = pd.DataFrame([[level, *"uvwx"] for level in "pqr"] + [[*"efghi"]] * 2)
    assert vulnerable_records(few, 3, n_neighbors=1).index.tolist() == [0, 1, 2]
    assert len(vulnerable_records(few, 5, n_neighbors=4)) == 5
    with_c = pd.DataFrame({"x": [0, 0, 0, 1], "c": pd.Categorical([*"aaab"])})
    made = crafted_canaries(
        lambda rows: -(rows["x"] + (rows["c"] == "b")), with_c, 4, random_state=1
    )
    assert (made["x"] == 1).all()
    assert (made["c"] == "b").all()
    assert made.dtypes.equals(with_c.dtypes)


def test_records_at_risk_keep_their_dtypes():
    days = [dt.date(2020, 1, 1 + k) for k in range(20)]
    table = pd.DataFrame({"day": pd.Series(days, dtype=object), "x": range(20)})
    for rows in (
        vulnerable_records(table, 3),
        crafted_canaries(lambda rows: rows["x"], table, 3),
    ):
        assert rows.dtypes.equals(table.dtypes)
        assert set(rows["day"]) <= set(days)


@pytest.mark.parametrize("find", [
    lambda table: vulnerable_records(table, 2),
    lambda table: crafted_canaries(len, table, 2),
])  # fmt: skip
def test_records_at_risk_are_sought_in_tables(find):
    table = pd.DataFrame(np.eye(9), columns=[*"abcdefghi"])[[*"bc"]]
    with pytest.raises(TypeError, match="must be a DataFrame"):
        find(table.to_numpy())
    with pytest.raises(ValueError, match=r"repeated: \['a'\]"):
        find(table.set_axis([*"aa"], axis=1))


@pytest.mark.parametrize(
    "dtypes",
    [{"b": int}, {"b": float}, {"s": "string"}, {"s": "category", "b": "boolean"}],
)
def test_copies_are_found_however_they_are_stored(dtypes):
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"n": np.arange(400), "b": rng.random(400) < 0.5})
    rows["s"] = rng.choice(["x", "y", None], 400)
    one, other = rows.head(200), rows.tail(200)
    assert closest_record(one.astype(dtypes), one, other).copies == 1
    unsigned = one.astype({"n": float})
    signed = unsigned.assign(n=unsigned["n"].replace(0.0, -0.0))
    assert closest_record(signed, unsigned, other).copies == 1
    with pytest.raises(ValueError, match="rows"):
        monte_carlo_attack(other, one, one.astype(dtypes))


@pytest.mark.parametrize("word", ["None", "nan", "", "<NA>"])
def test_a_word_for_missing_is_no_copy_of_a_missing_value(word):
    rows = pd.DataFrame({"x": [word] * 50, "y": range(50)})
    other = rows.assign(x=None).astype({"x": object})
    assert closest_record(other, rows, rows.assign(y=-1)).copies == 0
    assert closest_record(rows, rows.copy(), other).copies == 1


def test_the_closest_record_shows_copies():
    members, others, _, fake = leaky(0.1)
    statistic = closest_record(fake, members, others)
    assert statistic.copies == pytest.approx(0.1)
    assert statistic.copies_by_chance == 0
    assert statistic.closer_to_training == pytest.approx(0.55, abs=0.04)
    assert "no privacy measure" in repr(statistic)
    rng = np.random.default_rng(0)
    alike = (pd.DataFrame({"x": rng.normal(size=1000)}) for _ in "abc")
    assert closest_record(*alike).copies == 0
    ties = (pd.DataFrame({"x": list(x) * 20}) for x in ("zzz", "abc", "abb"))
    assert closest_record(*ties).closer_to_training == 0.5
    innocent = closest_record(leaky(0.0)[3], members, others.head(700))
    assert innocent.n == 700
    assert innocent.closer_to_training == pytest.approx(0.5, abs=0.06)
    assert innocent.to_frame().loc["copies", "value"] == 0


# The likelihood attack ----------------------------------------------------------------


def test_likelihoods_of_a_kernel_density_betray_its_rows():
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(2, 200, 3))
    tight = stats.gaussian_kde(members.T, bw_method=0.1)
    result = likelihood_attack(lambda x: tight.logpdf(x.T), members, others)
    assert result.auc.low > 0.9
    flat = likelihood_attack(lambda x: np.zeros(len(x)), members, others)
    assert flat.auc.value == 0.5


# The reconstruction attack ------------------------------------------------------------


class VAE(nn.Module):
    """A small variational autoencoder, of layers that the private core knows."""

    def __init__(self, width, hidden, latent, generator):
        super().__init__()

        def layer(n_in, n_out):
            return MaskedLinear.dense(n_in, n_out, generator)

        self.encode1, self.encode2 = layer(width, hidden), layer(hidden, 2 * latent)
        self.decode1, self.decode2 = layer(latent, hidden), layer(hidden, width)

    def reconstruct(self, x, generator):
        mean, log_std = self.encode2(F.relu(self.encode1(x))).chunk(2, dim=1)
        noise = torch.randn(mean.shape, generator=generator)
        z = mean + log_std.clamp(-6, 2).exp() * noise
        return self.decode2(F.relu(self.decode1(z))), mean, log_std

    def losses(self, x, generator):
        output, mean, log_std = self.reconstruct(x, generator)
        kl = (mean**2 + (2 * log_std).exp() - 2 * log_std - 1).sum(1) / 2
        return ((output - x) ** 2).sum(1) + 0.01 * kl


def fitted_vae(rows, epsilon, seed, n_steps):
    """Return a fitted model's reconstructions, and the privacy curve of its fit."""
    n, generator = len(rows), torch.Generator().manual_seed(seed)
    model = VAE(rows.shape[1], 256, 8, generator)
    plan = make_plan(
        epsilon=epsilon, delta=1e-5, n_rows=n, sampling_rate=100 / n, n_steps=n_steps,
        marginal_budget=0.0, has_open_keys=False,
    )  # fmt: skip
    streams = Streams.create(seed, "fresh", "cpu")
    data = torch.from_numpy(rows).float()
    train(
        model,
        lambda indices: (model.losses(data[indices], generator), None),
        Private(rows),
        plan,
        PrivateGradient(Clipper("flat", 1.0), plan.noise_multiplier, plan.batch_size),
        Optimizer("adam", 2e-3, 0.0),
        Mechanisms(streams.counts, streams.gradients),
        streams,
        "cpu",
    )

    @torch.no_grad()
    def reconstruct(x):
        output = model.reconstruct(torch.from_numpy(x).float(), generator)[0]
        return output.double().numpy()

    return reconstruct, plan.curve()


def split(seed, n=1000, width=30):
    """Draw rows of which each takes part by a coin of its own."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, width))
    inside = rng.random(n) < 0.5
    return rows[inside], rows[~inside]


@pytest.mark.thorough
def test_an_overfitted_vae_gives_its_rows_away():
    members, others = split(0)
    reconstruct, curve = fitted_vae(members, None, 0, n_steps=1000)
    assert curve == ()
    result = reconstruction_attack(reconstruct, members, others, n_draws=30)
    assert result.average_precision.value >= 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("seeds", [[0], pytest.param(range(1, 5), marks=SLOW)])
def test_a_private_vae_stays_within_its_cap_and_its_twin_does_not(seeds):
    caps, private, open_ = [], [], []
    for seed in seeds:
        members, others = split(seed)
        reconstruct, curve = fitted_vae(members, 1.0, seed, n_steps=100)
        attack = {"n_draws": 10, "privacy": curve}
        private.append(reconstruction_attack(reconstruct, members, others, **attack))
        reconstruct, _ = fitted_vae(members, None, seed, n_steps=500)
        open_.append(reconstruction_attack(reconstruct, members, others, **attack))
        caps.append(private[-1].auc.cap)
    assert max(caps) < 0.65
    assert all(r.auc.value <= r.auc.cap for r in private)
    assert all(r.average_precision.value <= r.average_precision.cap for r in private)
    assert all(r.epsilon_lower_bound(1e-5) <= 1 for r in private)
    assert all(r.auc.low > r.auc.cap for r in open_)
    assert all(r.tpr_at(0.1).low > r.tpr_at(0.1).cap for r in open_)


def test_distances_of_the_reconstruction_attack():
    rng = np.random.default_rng(0)
    members, others = rng.random((2, 60, 64))

    def reconstruct(rows):
        # A model that remembers its members.
        return rows if rows is members else rng.random(rows.shape)

    for kind in ({"distance": "mse"}, {"distance": "ssim", "image_shape": (8, 8)}):
        result = reconstruction_attack(reconstruct, members, others, n_draws=3, **kind)
        assert result.auc.value == 1
    frames = [population(80, seed) for seed in (0, 1)]
    result = reconstruction_attack(
        lambda rows: rows if rows is frames[0] else rows.sample(frac=1, random_state=0),
        *frames,
        n_draws=2,
        distance="mixed",
    )
    assert result.auc.value > 0.95
    with pytest.raises(TypeError, match="must return a DataFrame; got ndarray"):
        reconstruction_attack(
            lambda rows: rows.to_numpy(), *frames, n_draws=1, distance="mixed"
        )
    own = reconstruction_attack(
        reconstruct, members, others, n_draws=1, distance=lambda x, y: x[:, 0]
    )
    assert own.auc.value == pytest.approx(
        roc_auc_score([1] * 60 + [0] * 60, -np.concatenate([members, others])[:, 0])
    )


def test_reconstructions_are_rows_like_those_they_are_of():
    frames = [population(60, seed)[["age", "income"]] for seed in (0, 1)]

    def reconstruct(rows):
        return rows[rows.columns[::-1]]

    found = reconstruction_attack(reconstruct, *frames, n_draws=1)
    assert found.auc.value == 0.5  # all are at no distance
    arrays = [frame.to_numpy() for frame in frames]
    for wrong in (lambda rows: rows[:, :1], lambda rows: rows[:1], np.mean):
        with pytest.raises(ValueError, match=r"must return what it takes, .*\(60, 2\)"):
            reconstruction_attack(wrong, *arrays, n_draws=1)
    with pytest.raises(ValueError, match=r"lacks \['age'\]"):
        reconstruction_attack(lambda rows: rows[["income"]], *frames, n_draws=1)
    with pytest.raises(ValueError, match="distance must return one number per row"):
        reconstruction_attack(
            lambda rows: rows, *arrays, n_draws=1, distance=mean_squared_error
        )


def test_images_are_compared_as_images():
    rng = np.random.default_rng(0)
    members, others = rng.integers(0, 256, (2, 60, 8, 8)).astype(np.uint8)

    def reconstruct(rows):
        noise = rng.normal(0, 8 if rows is members else 12, rows.shape)
        return (rows + noise).clip(0, 255).astype(np.uint8)

    flat = [rows.reshape(60, -1) / 255 for rows in (members, others)]
    for distance in ("mse", "ssim"):
        found = reconstruction_attack(
            reconstruct, members, others, n_draws=9, distance=distance
        )
        assert found.auc.value > 0.95
    # Bytes are on the scale of shares: constants of the index would vanish otherwise.
    seen = []
    for rows, pair in ((members, [members, others]), (flat[0], flat)):
        measure = _measure("ssim", pair, (8, 8))
        seen.append(measure(rows, rows[::-1]))
    np.testing.assert_allclose(*seen)


def test_sampled_reconstructions_are_draws_of_the_posterior():
    images = np.random.default_rng(0).integers(0, 256, (60, 4, 4)).astype(np.uint8)
    model = DPArrayVAESynthesizer(epsilon=None, n_steps=20, random_state=0).fit(images)
    draw = partial(model.reconstruct, images, sampled=True)
    assert not np.array_equal(draw(), draw())
    np.testing.assert_array_equal(draw(random_state=1), draw(random_state=1))
    drawn = np.stack([encoded(model, images, None, i, True) for i in range(300)])
    mean, std = posterior(model, images, None)
    assert np.abs((drawn.mean(0) - mean) / std).max() < 6 / 300**0.5
    np.testing.assert_allclose(drawn.std(0) / std, 1, atol=0.3)


def test_more_draws_sharpen_the_attack():
    rng = np.random.default_rng(0)
    members, others = rng.normal(size=(2, 400, 4))

    def reconstruct(rows):
        spread = 1.0 if rows is members else 1.1
        return rows + rng.normal(0, spread, rows.shape)

    few, many = (
        reconstruction_attack(reconstruct, members, others, n_draws=k).auc.value
        for k in (1, 100)
    )
    assert few < 0.65
    assert many > 0.9


# Bad input ----------------------------------------------------------------------------


def test_likelihoods_are_one_number_per_row():
    rows = np.random.default_rng(0).random((60, 2))
    for wrong in (lambda x: np.zeros(3), lambda x: np.zeros((len(x), 3))):
        with pytest.raises(ValueError, match="log_likelihood must return one number"):
            likelihood_attack(wrong, rows, rows + 1)
        with pytest.raises(ValueError, match="reference must return one number per"):
            likelihood_attack(lambda x: x[:, 0], rows, rows + 1, reference=wrong)


@pytest.mark.parametrize("missing", ["rows", "reconstructions"])
def test_distances_that_are_no_numbers_are_noticed_at_the_first_draw(missing):
    calls = []
    rows = np.random.default_rng(0).random((60, 2))
    if missing == "rows":
        rows[3, 1] = np.nan

    def reconstruct(given):
        calls.append(given)
        return given * (np.nan if missing == "reconstructions" else 1.0)

    with pytest.raises(ValueError, match="a score each that is not NaN"):
        reconstruction_attack(reconstruct, rows, rows + 1)
    assert len(calls) == 2


def test_a_privacy_report_is_a_guarantee():
    rows = np.random.default_rng(0).random((60, 2))
    model = DPHFlowSynthesizer(2.0, n_steps=1).fit(pd.DataFrame(rows))
    found = likelihood_attack(lambda x: x[:, 0], rows, rows + 1, privacy=model.privacy_)
    assert found.privacy == model.privacy_.curve()


def test_levels_have_no_squared_differences():
    members = pd.DataFrame({"a": list("xyz") * 20, "b": np.arange(60.0)})
    others = members.assign(b=members["b"] + 0.5)
    with pytest.raises(TypeError, match="takes levels with distance='mixed' alone"):
        reconstruction_attack(lambda x: x, members, others)


def test_a_classifier_without_probabilities_is_refused():
    members, others, reference, fake = leaky(0.1)
    with pytest.raises(TypeError, match=r"predict_proba; got LinearSVC\(\)"):
        logan_attack(fake, members, others, reference, classifier=LinearSVC())


def test_tables_that_share_rows_are_refused():
    members, others, reference, fake = leaky(0.1)
    mixed = pd.concat([others, members.head(100)])
    with pytest.raises(ValueError, match="rows of non_members are rows of members"):
        monte_carlo_attack(fake, members, mixed)
    with pytest.raises(ValueError, match="rows of reference are rows of non_members"):
        domias_attack(fake, members, others, pd.concat([reference, others]))
    with pytest.raises(ValueError, match="must be disjoint draws"):
        logan_attack(fake, members, others, members)
    repeating = pd.DataFrame({"a": list("xyz") * 30})
    with pytest.raises(ValueError, match="must be disjoint draws"):
        monte_carlo_attack(repeating, repeating, repeating.copy())
    array = np.random.default_rng(0).random((60, 3))
    with pytest.raises(ValueError, match="must be disjoint draws"):
        likelihood_attack(lambda x: x[:, 0], array, array)


def test_rows_that_repeat_by_nature_are_not_refused():
    rng = np.random.default_rng(0)
    members, others = (
        pd.DataFrame({"a": rng.integers(0, 5, 300), "b": rng.random(300) < 0.5})
        for _ in "mo"
    )
    result = monte_carlo_attack(members.sample(200), members, others)
    assert 0.3 < result.auc.value < 0.7


def test_small_tables_get_a_warning():
    rows = population(80, 0)
    with pytest.warns(UserWarning, match=r"Few rows \(members: 30\)"):
        likelihood_attack(lambda x: np.arange(len(x)), rows[:30], rows[30:])


def test_columns_must_agree():
    members, others, reference, fake = leaky(0.0)
    with pytest.raises(ValueError, match="non_members must have the columns"):
        monte_carlo_attack(fake, members, others.drop(columns="age"))
    with pytest.raises(ValueError, match="must have the columns"):
        domias_attack(fake.drop(columns="age"), members, others, reference)
    with pytest.raises(ValueError, match="rows of one shape"):
        likelihood_attack(len, np.zeros((60, 2)), np.zeros((60, 3)))


def test_bad_parameters_of_attacks():
    members, others, reference, fake = leaky(0.0)
    with pytest.raises(ValueError, match="n_draws"):
        reconstruction_attack(lambda x: x, members, others, n_draws=0)
    with pytest.raises(ValueError, match="'distance'"):
        reconstruction_attack(lambda x: x, members, others, distance="cosine")
    with pytest.raises(ValueError, match="image_shape"):
        reconstruction_attack(lambda x: x, members, others, distance="ssim")
    with pytest.raises(TypeError, match="DataFrames"):
        reconstruction_attack(
            lambda x: x, *np.random.default_rng(0).random((2, 60, 2)), distance="mixed"
        )
    with pytest.raises(ValueError, match="n_neighbors"):
        domias_attack(fake, members, others, reference, n_neighbors=1001)
    with pytest.raises(ValueError, match="'density'"):
        domias_attack(fake, members, others, reference, density="flow")
    with pytest.raises(ValueError, match=r"names \['missing'\]"):
        marginal_attack(fake, members, others, reference, tables=[("missing",)])
    with pytest.raises(ValueError, match="n_bins"):
        marginal_attack(fake, members, others, reference, n_bins=1)
    with pytest.raises(ValueError, match="'n_neighbors'"):
        vulnerable_records(members, 5, n_neighbors=1000)
    with pytest.raises(ValueError, match="'n'"):
        vulnerable_records(members, 1001)
    with pytest.raises(ValueError, match="'n_candidates'"):
        crafted_canaries(len, members, 5, n_candidates=0)


# The trade-off ------------------------------------------------------------------------


@pytest.mark.parametrize("function", [phi, bounded_phi])
def test_phi_is_gain_over_loss(function):
    # Half of the attack's advantage for a quarter of the accuracy's.
    assert function(0.9, 0.7, 0.9, 0.7, 0.1) == pytest.approx(0.5 / 0.25)
    assert function(0.9, 0.5, 0.9, 0.7, 0.1) == pytest.approx(1)
    assert function(0.9, 0.1, 0.9, 0.7, 0.1) == pytest.approx(0.5)
    # Unbalanced records: guessing is the members' share.
    assert function(0.9, 0.5, 0.9, 0.5, 0.1, atk_base=0.1) == pytest.approx(1)


@pytest.mark.parametrize(
    ("figures", "uncut", "bounded"),
    [
        ((0.9, 0.9, 0.9, 0.5, 0.1), 2, 2),  # no loss, some gain
        ((0.9, 0.95, 0.9, 0.5, 0.1), 2, 2),
        ((0.9, 0.5, 0.9, 0.95, 0.1), -0.25, 0),  # the attack is stronger
        ((0.9, 0.5, 0.5, 0.4, 0.1), math.nan, 0),  # the attack had no advantage
        ((0.1, 0.05, 0.9, 0.5, 0.1), math.nan, 2),  # accuracy had nothing to lose
        ((0.9, 0.9, 0.9, 0.9, 0.1), 2, 1),  # neither
        ((0.9, 0.05, 0.9, 0.6, 0.1), 12 / 17, 0.75),  # accuracy below guessing
        ((0.9, 0.05, 0.9, 0.3, 0.1), 24 / 17, 1),  # both below guessing
        ((0.9, 0.89, 0.9, 0.5, 0.1), 80, 2),  # a tiny loss
    ],
)
def test_edges_of_phi(figures, uncut, bounded):
    assert phi(*figures) == pytest.approx(uncut, nan_ok=True)
    assert bounded_phi(*figures) == pytest.approx(bounded)


@pytest.mark.parametrize("function", [phi, bounded_phi])
def test_phi_takes_shares(function):
    with pytest.raises(ValueError, match=f"'acc_orig' of {function.__name__}"):
        function(90, 0.5, 0.9, 0.5, 0.1)


# Latents ------------------------------------------------------------------------------


def test_hoyer_sparsity_is_equation_17():
    latents = np.random.default_rng(0).normal(size=(50, 4)) * [1, 10, 0.1, 3]
    y = latents / latents.std(axis=0, ddof=1)
    by_hand = [(2 - abs(row).sum() / (row @ row) ** 0.5) / (2 - 1) for row in y]
    assert hoyer_sparsity(latents) == pytest.approx(np.mean(by_hand))
    assert hoyer_sparsity(latents * [5, 1, 1, 1]) == pytest.approx(np.mean(by_hand))
    assert hoyer_sparsity([[1, 1], [-1, 1], [1, -1]]) == pytest.approx(0)
    # A latent that never changes is no use of it, however large.
    constant = np.column_stack([[1.0, -1.0, 2.0], np.full(3, 9.0)])
    assert hoyer_sparsity(constant) == 1
    with pytest.raises(ValueError, match="differ between rows"):
        hoyer_sparsity(np.ones((3, 2)))
    for bad in (np.ones(3), np.ones((3, 1)), np.ones((0, 3))):
        with pytest.raises(ValueError, match="latents of shape"):
            hoyer_sparsity(bad)
    with pytest.raises(ValueError, match="without missing or infinite"):
        hoyer_sparsity([[math.nan, 1.0]])


def test_counted_tables_are_of_data_frames():
    rows = np.zeros((60, 2))
    with pytest.raises(TypeError, match=r"must be a DataFrame; got ndarray"):
        marginal_attack(rows, rows, rows + 1, rows + 2)
    rows, others = pd.DataFrame(rows), pd.DataFrame(rows + 1)
    with pytest.raises(ValueError, match="tables must hold one at least"):
        marginal_attack(rows, rows, others, others + 1, tables=[])
