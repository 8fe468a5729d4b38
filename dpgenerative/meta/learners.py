"""The learner of a predictor that states none: boosting, for a table of any dtypes."""

from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder

from dpgenerative.encoding.values import floats
from dpgenerative.tables import containers, values
from dpgenerative.tables.conditions import on_line
from dpgenerative.tables.dtypes import is_real_dtype
from dpgenerative.tables.times import temporal_kind

MOST_LEVELS = 254
"""Largest number of levels that the default learner distinguishes in a column."""


def default_learner(rows: Any, boosting: Any) -> Any:
    """Return a pipeline for a table of any dtypes."""
    frame = pd.DataFrame(rows)
    # Boosting refuses a column of numbers that are all missing.
    has_values = frame.notna().any().to_numpy()
    if isinstance(rows, np.ndarray) and rows.dtype.kind in "biuf" and has_values.all():
        return boosting
    if not has_values.any():
        return make_pipeline(FunctionTransformer(_nothing), boosting)
    dtypes = frame.dtypes
    numeric = np.array(
        [is_real_dtype(d) or is_bool_dtype(d) or bool(temporal_kind(d)) for d in dtypes]
    )
    encoder = OrdinalEncoder(
        handle_unknown="use_encoded_value",
        unknown_value=np.nan,
        max_categories=MOST_LEVELS,
    )
    columns = make_column_transformer(
        (make_pipeline(FunctionTransformer(_as_levels), encoder), ~numeric),
        (FunctionTransformer(_as_floats), numeric & has_values),
    )
    boosting.set_params(categorical_features=list(range(sum(~numeric))))
    return make_pipeline(columns, boosting)


def _nothing(rows: Any) -> np.ndarray:
    """Return one constant feature."""
    return np.zeros((len(rows), 1))


def _as_levels(rows: Any) -> np.ndarray:
    """Return a table of any values as strings, None where they are missing."""
    frame = pd.DataFrame(rows)
    texts = np.empty(frame.shape, dtype=object)
    for j, (_, column) in enumerate(frame.items()):
        # Other objects than texts and numbers are missing: none of their code runs.
        has_objects = values.holds_objects(column.dtype)
        own = map(containers.plain, column) if has_objects else column.astype(object)
        texts[:, j] = [None if pd.isna(value) else str(value) for value in own]
    return texts


def _as_floats(rows: Any) -> np.ndarray:
    series = [column for _, column in pd.DataFrame(rows).items()]
    columns = [on_line(x) if temporal_kind(x.dtype) else floats(x) for x in series]
    return np.column_stack(columns) if columns else np.empty((len(rows), 0))
