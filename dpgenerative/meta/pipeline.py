"""Samples of a pipeline whose last step is a synthesizer, in the original columns."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from dpgenerative._validation import check_number
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.tables.arrow import in_pandas


def sample_from(
    pipeline: Pipeline, n_samples: int = 1, random_state: Any = None
) -> Any:
    """Sample from a fitted pipeline's synthesizer and undo the steps before it.

    The steps are undone last to first by their ``inverse_transform``; a
    `ColumnTransformer` by those of its transformers, whatever it passed through taken
    as it is, and a `FunctionTransformer` by its ``inverse_func``.

    A step that learned from the private rows (a scaler, an encoder, an imputer)
    released what it learned without noise, and its inverse writes that into the
    sample: the guarantee of the synthesizer does not cover it. Which steps learn is
    read off their types and tags, and a `PrivacyWarning` names them. Fit such steps to
    public rows and freeze them (`FrozenEstimator`), or leave them away: a synthesizer
    needs neither scaling nor encoding.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted, with a last step that has ``sample``.
    n_samples : int, default=1
        Number of rows, at least 1.
    random_state : int, RandomState instance or None, default=None
        As in the synthesizer's ``sample``.

    Returns
    -------
    X : DataFrame or ndarray of shape (n_samples, n_features)
        In the columns that the pipeline was fitted to; a DataFrame wherever their
        names are known. ``(X, y)`` where y was fitted too.

    Raises
    ------
    TypeError
        When `pipeline` is no pipeline, or its last step has no ``sample``.
    ValueError
        When a step cannot be undone; the text names it.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from dpgenerative import DPHFlowSynthesizer, sample_from
    >>> frame = pd.DataFrame({"income": np.random.default_rng(0).lognormal(size=500)})
    >>> logarithm = FunctionTransformer(
    ...     np.log1p, inverse_func=np.expm1, check_inverse=False
    ... )
    >>> pipeline = make_pipeline(logarithm, DPHFlowSynthesizer()).fit(frame)
    >>> sample_from(pipeline, 3).columns.tolist()
    ['income']
    """
    if not isinstance(pipeline, Pipeline):
        raise TypeError(
            f"sample_from takes a Pipeline; got {type(pipeline).__name__}. Call sample "
            "of a synthesizer itself."
        )
    last = pipeline[-1]
    if not hasattr(last, "sample"):
        raise TypeError(
            "sample_from needs a synthesizer as the last step of the pipeline; got "
            f"{type(last).__name__}."
        )
    check_is_fitted(last)
    check_number(
        "sample_from", "n_samples", n_samples, low=1, closed="left", integer=True
    )
    steps = [
        (name, step)
        for name, step in pipeline.steps[:-1]
        if step is not None and step != "passthrough"
    ]
    _warn_of_learned([name for name, step in steps if learns(step)])
    sample = last.sample(n_samples, random_state=random_state)
    rows, *target = sample if isinstance(sample, tuple) else (sample,)
    rows = in_pandas("sample_from", rows) if steps else rows
    for name, step in reversed(steps):
        rows = _undone(name, step, rows)
    return (rows, *target) if target else rows


def learns(step: Any) -> bool:
    """Tell whether a transformer learns from the rows it is fitted to.

    Known from its tags (``requires_fit``), or from those of its parts; what is frozen
    does not. What has no tags is taken to learn.
    """
    if step is None or isinstance(step, (str, FrozenEstimator)):
        return False
    if isinstance(step, Pipeline):
        return any(learns(part) for _, part in step.steps)
    if isinstance(step, FeatureUnion):
        return any(learns(part) for _, part in step.transformer_list)
    if isinstance(step, ColumnTransformer):
        parts = [part for _, part, _ in step.transformers]
        return any(learns(part) for part in [*parts, step.remainder])
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        return True


def _warn_of_learned(names: list[str]) -> None:
    if names:
        warnings.warn(
            f"The steps {names} of the pipeline learn from the rows they are fitted "
            "to, and what they learned is in this sample without noise: the guarantee "
            "of the synthesizer does not cover it. A synthesizer needs no scaling or "
            "encoding; leave them away, or fit them to public rows and freeze them.",
            PrivacyWarning,
            stacklevel=3,
        )


def _undone(name: str, step: Any, rows: Any) -> Any:
    """Return what the step was given, from what it made of it."""
    if isinstance(step, ColumnTransformer):
        return _undone_columns(name, step, rows)
    if isinstance(step, Pipeline):
        for inner, part in reversed(step.steps):
            if part is not None and part != "passthrough":
                rows = _undone(f"{name}__{inner}", part, rows)
        return rows
    is_function = isinstance(step, FunctionTransformer)
    if is_function and step.func is not None and step.inverse_func is None:
        _refuse_step(name, step, "has no inverse_func")
    if not hasattr(step, "inverse_transform"):
        _refuse_step(name, step, "has no inverse_transform")
    # What it was fitted to had other names, or none.
    try:
        undone = _inverse(step, _as_fitted(rows, step))
    except (ValueError, TypeError, LookupError, NotImplementedError) as error:
        reason = "cannot invert these rows"
        if isinstance(getattr(step, "estimator", step), SimpleImputer):
            reason = (
                "does not know which values were missing. Leave it away, since a "
                "synthesizer learns missing values, or give it add_indicator=True"
            )
        _refuse_step(name, step, reason, error)
    return _named(undone, step)


def _inverse(step: Any, rows: Any) -> Any:
    """Return a step's inverse; nothing but missing values where it takes none."""
    missing = pd.DataFrame(rows).isna().any(axis=1).to_numpy()
    try:
        with np.errstate(invalid="ignore"):
            undone = step.inverse_transform(rows)
    except (ValueError, IndexError):
        if not missing.any() or missing.all():
            raise
        undone = pd.DataFrame(step.inverse_transform(rows[~missing]))
        return undone.set_axis(np.flatnonzero(~missing)).reindex(range(len(rows)))
    return undone.toarray() if sparse.issparse(undone) else undone


def _refuse_step(
    name: str, step: Any, reason: str, cause: Exception | None = None
) -> NoReturn:
    raise ValueError(
        f"sample_from cannot undo the step {name!r}: {type(step).__name__} {reason}. "
        "Sample from the last step, pipeline[-1].sample(n), for rows as that step saw "
        "them."
    ) from cause


def _as_fitted(rows: Any, step: Any) -> Any:
    """Return rows for a step's inverse: arrays, but for functions of frames."""
    if isinstance(rows, pd.DataFrame) and not isinstance(step, FunctionTransformer):
        return rows.to_numpy()
    return rows


def _named(rows: Any, step: Any) -> Any:
    """Return rows with the names that the step was fitted to, where it knows them."""
    names = getattr(step, "feature_names_in_", None)
    if names is None:
        return rows
    if isinstance(rows, pd.DataFrame):
        return rows.set_axis(list(names), axis=1)
    return pd.DataFrame(rows, columns=list(names)).infer_objects()


def _undone_columns(name: str, step: ColumnTransformer, rows: Any) -> Any:
    """Undo a column transformer by undoing its parts, side by side."""
    found: dict[int, Any] = {}
    for part_name, part, places in _parts(step):
        if not places:
            continue
        select_columns = rows if isinstance(rows, np.ndarray) else rows.iloc
        out = select_columns[:, step.output_indices_[part_name]]
        label = f"{name}__{part_name}"
        if part == "drop":
            _refuse_step(label, step, f"drops {len(places)} columns")
        undone = out if part == "passthrough" else _undone(label, part, out)
        columns = pd.DataFrame(undone)
        for k, place in enumerate(places):
            found[place] = columns.iloc[:, k].to_numpy()
    names = _names(step)
    frame = pd.DataFrame({name: found[place] for place, name in enumerate(names)})
    return frame if hasattr(step, "feature_names_in_") else frame.to_numpy()


def _names(step: Any) -> list[Any]:
    return list(getattr(step, "feature_names_in_", range(step.n_features_in_)))


def _parts(step: ColumnTransformer) -> Iterator[tuple[str, Any, list[int]]]:
    """Yield the fitted parts of a column transformer and the columns they took."""
    for name, part, chosen in step.transformers_:
        if isinstance(chosen, (str, int)):
            chosen = [chosen]
        yield name, part, _places(chosen, _names(step))


def _places(chosen: Any, names: list[Any]) -> list[int]:
    """Return the places of chosen columns: names, places, a mask or a slice."""
    places = pd.Series(range(len(names)), index=names)
    if isinstance(chosen, slice):
        ends = [chosen.start, chosen.stop]
    else:
        ends = chosen = list(chosen)
    by_name = any(isinstance(end, str) for end in ends)
    return (places.loc if by_name else places.iloc)[chosen].tolist()
