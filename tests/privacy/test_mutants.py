"""The suite catches every known mistake: each check fails where it is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpgenerative.exceptions import LedgerError
from tests.fits import forget
from tests.privacy.mutants import MUTANTS, page

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

CAUGHT = (AssertionError, LedgerError, pytest.fail.Exception)


@pytest.fixture(autouse=True)
def _fits_of_its_own():
    forget()
    yield
    forget()


def caught(mutant, monkeypatch):
    with monkeypatch.context() as patch:
        mutant.apply(patch)
        with pytest.raises(CAUGHT):
            mutant.check()


@pytest.mark.thin(3)
@pytest.mark.parametrize("mutant", [m for m in MUTANTS if m.fast], ids=lambda m: m.name)
def test_mutant_is_caught(mutant, monkeypatch):
    caught(mutant, monkeypatch)


@pytest.mark.audit
@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if not m.fast], ids=lambda m: m.name
)
def test_slow_mutant_is_caught(mutant, monkeypatch):
    caught(mutant, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.name)
def test_check_passes_on_the_true_code(mutant):
    mutant.check()


def test_the_page_lists_what_is_run():
    path = Path(__file__).parents[2] / "doc" / "mutants.rst"
    assert path.read_text(encoding="utf-8") == page()
    names = [m.name for m in MUTANTS]
    assert len(set(names)) == len(names)
