from __future__ import annotations

import sys

import pytest

from dpgenerative.datasets import load_fair


def test_fair_agrees_with_its_code_book():
    pytest.importorskip("statsmodels")
    fair = load_fair()
    assert fair.data.shape == (6_366, 9)
    assert fair.schema.names == tuple(fair.data.columns)
    assert fair.schema.check(fair.data).empty
    assert fair.schema["affairs"].upper > fair.data["affairs"].max()
    assert fair.target in fair.data
    assert not fair.schema["occupation"].is_ordered


def test_fair_without_statsmodels_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    with pytest.raises(ImportError, match=r"dpgenerative\[fair\]"):
        load_fair()
