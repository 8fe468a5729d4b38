"""Features of models that are trained on one table and tested on another."""

from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from dpgenerative.metrics.columns import comparable

MIN_LEVEL_COUNT = 5  # levels with fewer training rows share one indicator
MAX_INDICATORS = 100  # of a column; levels beyond the most frequent share the last
LARGEST_RAW = 1e100  # whose square is finite
LARGEST_SCALED = 1e15  # whose square is a finite float32


def encode_features(
    train: pd.DataFrame, test: pd.DataFrame, target: Hashable
) -> tuple[np.ndarray, np.ndarray]:
    """Return dense features of both tables, fitted on the training table."""
    pairs = [comparable(test[name], train[name]) for name in test.columns.drop(target)]
    columns = zip(*(values for values, _ in pairs), strict=True)
    raw_test, raw_train = map(np.column_stack, columns)
    encoder = _encoder(np.array([levels is None for _, levels in pairs]))
    encoded = encoder.fit_transform(raw_train), encoder.transform(raw_test)
    x_train, x_test = (np.clip(x, -LARGEST_SCALED, LARGEST_SCALED) for x in encoded)
    return x_train, x_test


def _encoder(numeric: np.ndarray) -> Any:
    """Return a transformer that scales some columns and one-hot encodes the others."""
    scaled = make_pipeline(
        FunctionTransformer(_finite),
        SimpleImputer(strategy="median", keep_empty_features=True),
        StandardScaler(),
    )
    indicators = OneHotEncoder(
        handle_unknown="ignore", min_frequency=MIN_LEVEL_COUNT,
        max_categories=MAX_INDICATORS, sparse_output=False,
    )  # fmt: skip
    return make_column_transformer((scaled, numeric), (indicators, ~numeric))


def _finite(values: np.ndarray) -> np.ndarray:
    """Clip numbers so that their squares are finite; infinite ones become missing."""
    cut = np.clip(values, -LARGEST_RAW, LARGEST_RAW)
    return np.where(np.isfinite(values), cut, np.nan)
