"""A container of one's own, in one file: all rooms work with it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from dpgenerative import load
from dpgenerative.audit import audit_mechanism, audit_training
from dpgenerative.cli import main
from dpgenerative.exceptions import LedgerError
from dpgenerative.privacy.noise import Mechanisms
from tests.toy_container import ONES, BitDomain, BitSynthesizer


def bits(n=3000):
    rng = np.random.default_rng(0)
    first = rng.random(n) < 0.3
    return np.column_stack([first, first ^ (rng.random(n) < 0.05), rng.random(n) < 0.8])


@pytest.fixture(scope="module")
def fitted():
    return BitSynthesizer(epsilon=3.0, n_steps=300, random_state=0).fit(bits())


def test_it_learns_rows_under_a_guarantee(fitted):
    sample = fitted.sample(4000, random_state=0)
    np.testing.assert_allclose(sample.mean(0), bits().mean(0), atol=0.05)
    assert (sample[:, 0] == sample[:, 1]).mean() > 0.75  # 0.58 if independent
    assert 0.99 * 3 < fitted.epsilon_ <= 3


def test_report_and_plan_state_its_release(fitted):
    (release,) = fitted.privacy_.plan.releases
    assert release.name == ONES.name
    assert f"numbers of ones (Gaussian, noise multiplier {release.multiplier:.4g}" in (
        str(fitted.privacy_)
    )


def test_a_release_that_is_not_the_one_planned_ends_the_fit(monkeypatch):
    whole = Mechanisms.gaussian

    def twice(self, *args, **stated):
        whole(self, *args, **stated)
        return whole(self, *args, **stated)

    monkeypatch.setattr(Mechanisms, "gaussian", twice)
    with pytest.raises(LedgerError, match="ones"):
        BitSynthesizer(n_steps=2).fit(bits(200))
    monkeypatch.setattr(Mechanisms, "gaussian", whole)
    monkeypatch.setattr(BitDomain, "releases", lambda *_: {})
    with pytest.raises(LedgerError, match="others"):
        BitSynthesizer(n_steps=2).fit(bits(200))


def test_files_searches_and_audits_work_without_another_line(fitted, tmp_path):
    path = tmp_path / "bits.dpg"
    fitted.save(path)
    again = load(path)
    assert type(again) is BitSynthesizer
    drawn = again.sample(50, random_state=3)
    np.testing.assert_array_equal(drawn, fitted.sample(50, random_state=3))
    search = GridSearchCV(
        BitSynthesizer(n_steps=2), {"epsilon": [1.0, 9.0]}, cv=2,
        scoring=lambda s, X: s.epsilon,
    )  # fmt: skip
    assert search.fit(bits(200)).best_params_ == {"epsilon": 9.0}
    few = BitSynthesizer(n_steps=5)
    assert audit_mechanism(few, n_trials=200, random_state=0).holds
    assert audit_training(few, bits(100), n_canaries=20, random_state=0).holds


def test_the_command_line_reports_its_files(fitted, tmp_path, capsys):
    path, out = str(tmp_path / "bits.dpg"), str(tmp_path / "rows.csv")
    fitted.save(path)
    assert main(["--import", "tests.toy_container", "report", path]) == 0
    assert capsys.readouterr().out == f"{fitted.privacy_}\n"
    assert main(["sample", path, "-n", "3", "-o", out]) == 2
    assert "holds a BitSynthesizer, no model of tables" in capsys.readouterr().err
