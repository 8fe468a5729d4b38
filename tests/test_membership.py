"""The small networks of the membership study, and its table."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

import membership


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "shape"), [("images", (28, 28)), ("images", (64, 64)), ("series", (25, 6))]
)
def test_small_networks_learn_and_repeat(kind, shape):
    rng = np.random.default_rng(0)
    y = np.arange(120) % 3
    X = rng.normal(size=(120, *shape))
    X[:, : shape[0] // 2] += y[:, None, None]
    train, test = slice(80), slice(80, None)
    fitted = [
        membership.SmallNetwork(kind, n_steps=40).fit(X[train], y[train] * 10)
        for _ in range(2)
    ]
    predicted = [each.predict(X[test]) for each in fitted]
    assert (predicted[0] == 10 * y[test]).mean() > 0.9
    np.testing.assert_array_equal(*predicted)


def test_the_table_has_a_line_per_setting():
    line = {"mechanism": "central", "scope": "", "parameter": "epsilon", "value": 1.0}
    figures = {"epsilon": 0.9, "average_precision": 0.6, "auc": 0.6, "phi": 1.0}
    found = pd.DataFrame(
        [
            line | figures | {"accuracy": accuracy, "ssim": np.nan}
            for accuracy in (0.5, 0.7, 0.9)
        ]
    )
    *_, last = membership.table(found).splitlines()
    assert last.startswith("| central | 0.9 | 0.700 (0.500 to 0.900) | 0.600")
    assert "nan" not in last
