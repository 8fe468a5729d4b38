"""What a fit or a search did is compared with its plan; where it differs, it fails."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from dpgenerative import (
    Column,
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    PrivacyBudget,
    PrivateSearch,
    Schema,
    TableSynthesizer,
)
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.exceptions import LedgerError
from dpgenerative.fitting import fit
from dpgenerative.fitting.loop import LoopState
from dpgenerative.meta import search as searches
from dpgenerative.persistence import checkpoint
from dpgenerative.persistence.registry import register
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms, threshold_for
from dpgenerative.privacy.norm import NORM
from dpgenerative.privacy.plan import PrivacyPlan, Release, make_plan
from dpgenerative.privacy.sampling import poisson_indices
from dpgenerative.privacy.tables import CUT_SHARE, TABLES
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.base import Synthesizer
from tests.privacy import test_replay as replay
from tests.toy_model import PairRecipe

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

KEPT = [
    "automatic norm", "noise multiplier", "workload", "public", "vae mixture",
    "vae term-wise", "vae micro",
]  # fmt: skip
# At a sampling rate of 1 calibration has a closed form.
FAST = {"n_steps": 4, "batch_size": 10**6, "random_state": 0}
GRID = {"architecture__n_bins": [4, 8]}


def fitted(name):
    """Return a fit, and its ledger."""
    ledgers = []

    def door(streams):
        ledgers.append(Mechanisms(streams.counts, streams.gradients))
        return ledgers[-1]

    synthesizer, _, _ = replay.fit(replay.table(), door, **replay.CONFIGURATIONS[name])
    return synthesizer, ledgers[0].ledger


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", KEPT)
def test_a_fit_releases_what_was_planned(name):
    synthesizer, ledger = fitted(name)
    plan = synthesizer.privacy_.plan
    plan.check(ledger)
    assert ledger.n_rows == plan.n_rows
    assert ledger.count_epsilon == plan.count_epsilon
    assert 0.4 < ledger.total("marginals") * plan.multiplier(MARGINALS) ** 2 < 1 + 1e-9
    assert ledger.key_delta == pytest.approx(plan.threshold_delta, rel=0.9)
    assert ledger.total("norm") == pytest.approx(plan.multiplier(NORM) ** -2)
    assert ledger.total("latents") == pytest.approx(plan.multiplier(LATENTS) ** -2)
    tables = plan.multiplier(TABLES) ** -2
    least = (1 - CUT_SHARE) * tables  # cuts may be fewer than planned
    assert least * (1 - 1e-9) <= ledger.total("tables") <= tables * (1 + 1e-9)
    ((key, n),) = ledger.steps.items()
    assert n == plan.n_steps
    assert key == pytest.approx(
        (plan.sampling_rate, plan.noise_multiplier, plan.batch_size)
    )


PLANNED = {
    MARGINALS: 9.0, NORM: 60.0, LATENTS: 12.0, TABLES: 15.0, EMBEDDING: 20.0,
}  # fmt: skip
PLAN = PrivacyPlan(
    1.0, 1e-5, 0.015, 400, 1e-6, 1.5, 0.1, 20,
    tuple(replace(each, multiplier=z) for each, z in PLANNED.items()),
)  # fmt: skip


def planned():
    """Return the ledger of a fit that keeps to `PLAN`."""
    ledger = Ledger()
    ledger.count(400, 0.015)
    ledger.gaussian("marginals", 9 * np.sqrt(2), 1.0)
    std = 9 * np.sqrt(2)
    ledger.keys("marginals", std, threshold_for(std, 1e-6, 1))
    ledger.gaussian("norm", 60.0, 1.0)
    ledger.gaussian("latents", 36.0, 3.0)
    ledger.gaussian("embedding", 80.0, 4.0)
    door = Mechanisms(np.random.default_rng(0), np.random.default_rng(0))
    door.ledger = ledger
    stated = {"release": "tables", "sensitivity": 2}
    door.choose(np.arange(3), 15 * np.sqrt(4), **stated)
    door.choose(np.arange(2), 15 * np.sqrt(4), **stated)
    ledger.gaussian("tables", 15 * np.sqrt(2), 1.0)
    for _ in range(20):
        ledger.sample(0.1)
        ledger.gradient([0.3, 0.15], [0.2, 0.1], 40.0)
    return ledger


DIFFERENCES = {
    "row count": {
        "another": lambda x: replace(x, n_rows=401),
        "none": lambda x: replace(x, n_rows=None),
        "twice": lambda x: x.count(400, 0.015),
    },
    "marginals": {
        "one more": lambda x: x.gaussian("marginals", 50.0, 1.0),
        "none": lambda x: x.losses.pop("marginals"),
        "no noise": lambda x: x.gaussian("marginals", 0.0, 1.0),
    },
    "keys": {"one more": lambda x: x.keys("marginals", 1e6, 1e6)},
    "norm": {
        "twice": lambda x: x.gaussian("norm", 60.0, 1.0),
        "none": lambda x: x.losses.pop("norm"),
    },
    "latents": {
        "half the noise": lambda x: x.losses.update(latents=[4 / 144]),
        "past the door": lambda x: x.losses.pop("latents"),
    },
    "embedding": {
        "twice": lambda x: x.gaussian("embedding", 80.0, 4.0),
        "none": lambda x: x.losses.pop("embedding"),
        "half the noise": lambda x: x.losses.update(embedding=[4 / 400]),
    },
    "tables": {
        "one more": lambda x: x.gaussian("tables", 1e3, 1.0),
        "unpaid scores": lambda x: x.losses.update(tables=[1 / 450, 1 / 225]),
        "unpaid choices": lambda x: x.losses.update(tables=[1 / 900] * 2 + [1 / 225]),
        "one more choice": lambda x: x.losses["tables"].append(1 / 900),
    },
    "gradients": {
        "one more": lambda x: (x.sample(0.1), x.gradient([0.3], [0.2], 40.0)),
        "one less": lambda x: x.steps.update({(0.1, 0.15 / 0.1, 40.0): 19}),
        "one batch twice": lambda x: (x.steps.clear(), again(x, None, 1.5, 40.0)),
        "rate": lambda x: (x.steps.clear(), again(x, 0.1001, 1.5, 40.0)),
        "noise": lambda x: (x.steps.clear(), again(x, 0.1, 1.49, 40.0)),
        "divisor": lambda x: (x.steps.clear(), again(x, 0.1, 1.5, 41.0)),
    },
    "others": {"one": lambda x: x.gaussian("score", 1e3, 1.0)},
}


def again(ledger, rate, multiplier, divisor):
    for _ in range(20):
        if rate is not None:
            ledger.sample(rate)
        ledger.gradient([multiplier], [1.0], divisor)


@pytest.mark.parametrize(
    ("part", "how"), [(part, how) for part, hows in DIFFERENCES.items() for how in hows]
)
def test_a_difference_is_an_error(part, how):
    ledger = planned()
    PLAN.check(ledger)
    changed = DIFFERENCES[part][how](ledger)
    ledger = changed if isinstance(changed, Ledger) else ledger
    with pytest.raises(LedgerError, match=part):
        PLAN.check(ledger)
    replace(PLAN, epsilon=np.inf).check(ledger)


@pytest.mark.parametrize("name", ["marginals", "tables"])
def test_halvings_and_tables_that_were_not_made_may_be_missing(name):
    ledger = planned()
    ledger.losses[name].pop()
    PLAN.check(ledger)


def test_a_batch_knows_the_rate_at_which_it_was_drawn():
    ledger = Ledger()
    poisson_indices(range(10), 0.25, np.random.default_rng(0), ledger)
    for _ in range(2):
        ledger.gradient([3.0, 1.0], [1.0, 0.5], 8.0)
    assert ledger.steps == {(0.25, 2.0, 8.0): 1, (None, 2.0, 8.0): 1}


@pytest.mark.parametrize("estimator", [DPHFlowSynthesizer, DPVAESynthesizer])
def test_a_fit_that_differs_leaves_nothing(estimator, monkeypatch):
    synthesizer = estimator(**FAST)
    before = dict(vars(synthesizer))
    monkeypatch.setattr(fit, "train", lambda *args, **options: None)
    with pytest.raises(LedgerError, match="gradients"):
        synthesizer.fit(replay.table())
    assert vars(synthesizer) == before


def test_an_interrupted_fit_carries_its_ledger(tmp_path, monkeypatch):
    class Interruption(BaseException):
        """Nothing catches it."""

    ledgers = []

    def door(_, streams):
        found = Mechanisms(streams.counts, streams.gradients)
        ledgers.append(found.ledger)
        return found

    state = LoopState.state

    def interrupted(self):
        if ledgers[-1].steps and sum(ledgers[-1].steps.values()) == 3:
            raise Interruption
        return state(self)

    monkeypatch.setattr(checkpoint, "EVERY", 0.0)
    monkeypatch.setattr(Synthesizer, "_mechanisms", door)
    with monkeypatch.context() as patch:
        patch.setattr(LoopState, "state", interrupted)
        with suppress(Interruption):
            DPVAESynthesizer(**FAST).fit(replay.table(), checkpoint=tmp_path / "kept")
    assert sum(ledgers[0].steps.values()) == 3
    synthesizer = DPVAESynthesizer(**FAST)
    synthesizer.fit(replay.table(), checkpoint=tmp_path / "kept")
    synthesizer.privacy_.plan.check(ledgers[1])
    assert ledgers[1].losses["marginals"] == ledgers[0].losses["marginals"]
    assert ledgers[1].count_epsilon == ledgers[0].count_epsilon


# Searches -----------------------------------------------------------------------------


TINY = DPHFlowSynthesizer(**FAST)


def searched():
    """Search among two candidates."""
    frame = replay.table(300)[["age", "smokes"]]
    return PrivateSearch(TINY, GRID, mean_trials=2).fit(frame)


def test_a_search_releases_what_was_planned():
    with PrivacyBudget(9.0, 1e-3) as budget:
        search = searched()
    # No fit but the trials: any other would have to pay for itself.
    assert [owner for owner, *_ in budget.fits] == ["PrivateSearch"]
    assert search.best_estimator_.privacy_.plan.mean_trials == 2
    assert search.epsilon_ <= 1.0


def test_a_search_that_differs_leaves_nothing(monkeypatch):
    search = PrivateSearch(TINY, GRID, mean_trials=2)
    best_of = searches.best_of
    monkeypatch.setattr(
        searches, "best_of", lambda run, key, n: best_of(run, key, n + 1)
    )
    before = dict(vars(search))
    with pytest.raises(LedgerError, match="trials"):
        search.fit(replay.table(300)[["age", "smokes"]])
    assert vars(search) == before


def test_a_fit_while_scoring_pays_for_itself():
    def fitting(estimator, X, y):
        clone(TINY).fit(X)
        return np.zeros(len(X))

    search = PrivateSearch(TINY, GRID, mean_trials=2, scoring=fitting)
    with PrivacyBudget(1000.0, 0.1) as budget:
        search.fit(replay.table(300)[["age", "smokes"]])
    first, *others = (owner for owner, *_ in budget.fits)
    assert first == "PrivateSearch"
    assert set(others) == {"DPHFlowSynthesizer"}


def test_a_trial_that_differs_ends_the_search(monkeypatch):
    # Other failures are scores of -inf.
    monkeypatch.setattr(fit, "train", lambda *args, **options: None)
    with pytest.raises(LedgerError, match="gradients"):
        searched()


def test_a_ledger_survives_its_file():
    ledger = planned()
    copy = Ledger()
    copy.restore(json.loads(json.dumps(ledger.state())))
    assert copy == ledger


@pytest.mark.parametrize(
    "stated",
    [
        {"name": "keys"}, {"name": "row count"}, {"name": "gradients"},
        {"name": "others"}, {"name": "score"}, {"stage": "hidden"}, {"spends": "ALL"},
    ],
)  # fmt: skip
def test_a_release_cannot_hide_from_the_ledger_or_the_report(stated):
    """These names would replace other checks; the report has three stages."""
    with pytest.raises(ValueError, match=f"'{next(iter(stated))}' of a Release"):
        Release(**{"name": "sums", "words": "sums ({noise})", **stated})


def test_words_of_a_release_are_not_evaluated():
    words = "{0} {noise.__class__} {noise:>9999} ({noise})"
    text = str(Release("sums", words, multiplier=2.0))
    assert text.startswith("{0} {noise.__class__} {noise:>9999} (Gaussian, ")


SUMS = Release("sums", "sums ({noise})")
PLANNED_WITH = {
    "epsilon": 1.0, "delta": 1e-5, "n_rows": 100, "sampling_rate": 0.1, "n_steps": 5,
}  # fmt: skip


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ({SUMS: -0.1}, "Shares of a budget"),
        ({SUMS: float("nan")}, "Shares of a budget"),
        ({SUMS: float("inf")}, "Shares of a budget"),
        ({SUMS: 0.6, MARGINALS: 0.4}, "Shares leave gradients nothing"),
        ({SUMS: 0.1, replace(SUMS, words="other"): 0.1}, "every release once"),
    ],
)
@pytest.mark.parametrize("noise_multiplier", [None, 3.0])
def test_shares_are_those_of_one_budget(shares, said, noise_multiplier):
    with pytest.raises(ValueError, match=said):
        make_plan(shares=shares, noise_multiplier=noise_multiplier, **PLANNED_WITH)


class Greedy(PairRecipe):
    def releases(self, scale, left):
        return {MARGINALS: 0.9}


def test_a_recipe_declares_no_release_of_its_container():
    frame = pd.DataFrame({"a": ["x", "y"] * 50, "b": ["x", "y"] * 50})
    columns = [Column(name, "categorical", levels=["x", "y"]) for name in "ab"]
    synthesizer = TableSynthesizer(Greedy(), schema=Schema(columns), n_steps=2)
    with pytest.raises(ValueError, match="cannot declare the container's"):
        synthesizer.fit(frame)


def test_audits_assume_the_releases_of_labelled_arrays():
    vae = DPArrayVAESynthesizer(classes=[0, 1], n_steps=5, image_shape=(2, 2))
    X, y = np.zeros((40, 2, 2)), np.arange(40) % 2
    domains = session.prepare(vae, X, y).domain, vae._assumed_domain()
    found, assumed = (session.planned_fit(vae, d).plan(500) for d in domains)
    assert found == assumed
    assert [each.name for each in assumed.releases] == ["moments"]


def test_a_name_is_registered_once():
    assert register("flow")(DPHFlowSynthesizer) is DPHFlowSynthesizer
    with pytest.raises(ValueError, match="'flow' is registered already"):
        register("flow")(type("Other", (DPHFlowSynthesizer,), {}))


def test_without_privacy_shares_leave_nothing_to_gradients_and_need_not():
    facts = {**PLANNED_WITH, "epsilon": None}
    plan = make_plan(shares={SUMS: 0.6, MARGINALS: 0.4}, **facts)
    assert plan.noise_multiplier == plan.multiplier(SUMS) == 0
