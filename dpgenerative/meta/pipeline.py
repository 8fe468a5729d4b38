"""Samples of a pipeline whose last step is a synthesizer, in the original columns."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from dpgenerative.exceptions import LostColumnWarning, PrivacyWarning
from dpgenerative.tables.arrow import in_pandas

FAR = 100.0
"""Undone bounds explode if they exceed 99 % of the rows by this factor."""


def sample_from(
    pipeline: Pipeline, n_samples: int = 1, random_state: Any = None
) -> Any:
    """Sample from a fitted pipeline's synthesizer and undo the steps before it.

    The steps are undone last to first by their ``inverse_transform``; a
    `ColumnTransformer` by those of its transformers, with what it passed through left
    as it is, and a `FunctionTransformer` by its ``inverse_func``.

    A step that learned from the private rows (a scaler, an encoder, an imputer)
    released what it learned without noise, and its inverse writes that into the
    sample: the guarantee of the synthesizer does not cover it. A `PrivacyWarning` names
    the steps that learn by their types and tags. Fit such steps to
    public rows and freeze them (`FrozenEstimator`), or leave them out: a synthesizer
    needs neither scaling nor encoding.

    Bounds that the synthesizer finds privately are powers of two in the units that it
    reads; a step that is undone by an exponential makes orders of magnitude of the
    last one. A `LostColumnWarning` names the columns where this happens. State bounds.

    Parameters
    ----------
    pipeline : Pipeline
        Fitted, with a last step that has ``sample``.
    n_samples : int, default=1
        Number of rows, at least 1.
    random_state : int, RandomState or Generator instance or None, default=None
        As in the synthesizer's ``sample``.

    Returns
    -------
    X : DataFrame or ndarray of shape (n_samples, n_features)
        In the columns that the pipeline was fitted to; a DataFrame wherever their
        names are available. ``(X, y)`` where y was fitted too.

    Raises
    ------
    TypeError
        If `pipeline` is not a Pipeline, or its last step has no ``sample``.
    ValueError
        If a step cannot be undone; the text names it.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import FunctionTransformer
    >>> from dpgenerative import Column, DPHFlowSynthesizer, Schema, sample_from
    >>> frame = pd.DataFrame({"income": np.random.default_rng(0).lognormal(size=500)})
    >>> logarithm = FunctionTransformer(
    ...     np.log1p, inverse_func=np.expm1, check_inverse=False
    ... )
    >>> bounds = Column("income", "continuous", lower=0, upper=np.log1p(1e4))
    >>> flow = DPHFlowSynthesizer(schema=Schema([bounds]))
    >>> pipeline = make_pipeline(logarithm, flow).fit(frame)
    >>> sample_from(pipeline, 3).columns.tolist()
    ['income']
    """
    last = pipeline[-1] if isinstance(pipeline, Pipeline) else pipeline
    if last is pipeline or not hasattr(last, "sample"):
        raise TypeError(
            "sample_from takes a Pipeline whose last step is a synthesizer; got "
            f"{type(last).__name__}. A synthesizer alone has sample itself."
        )
    steps = pipeline.steps[:-1]
    if names := [name for name, step in steps if learns(step)]:
        warnings.warn(
            f"The steps {names} of the pipeline learn from the rows they are fitted "
            "to, and what they learned is in this sample without noise: the guarantee "
            "of the synthesizer does not cover it. A synthesizer needs no scaling or "
            "encoding; leave them out, or fit them to public rows and freeze them.",
            PrivacyWarning,
            stacklevel=2,
        )
    sample = last.sample(n_samples, random_state=random_state)
    rows, *target = sample if isinstance(sample, tuple) else (sample,)
    rows = in_pandas("sample_from", rows)
    whole = _all_undone(steps, rows)
    if steps and (names := _exploding(last, steps, rows, whole)):
        warnings.warn(
            f"Bounds of {names} were estimated privately, in the units that the "
            f"synthesizer reads. Undone, they lie more than {FAR:g} times as far "
            "beyond the rows, and a few sampled values there can dominate a mean. "
            "State bounds in the synthesizer's schema, in its units: np.log1p(upper) "
            "after np.log1p.",
            LostColumnWarning,
            stacklevel=2,
        )
    return (whole, *target) if target else whole


def _all_undone(steps: Sequence[tuple[str, Any]], rows: Any, within: str = "") -> Any:
    for name, step in reversed(steps):
        rows = _undone(within + name, step, rows)
    return rows


def _exploding(synthesizer: Any, steps: Any, rows: Any, whole: Any) -> list[Any]:
    """Return the columns whose estimated bounds explode when the steps are undone.

    Bounds are compared with 99 % of the sample, before and after.
    """
    bounds, frame = _estimated_bounds(synthesizer), pd.DataFrame(rows)
    if isinstance(rows, np.ndarray):
        frame.columns = synthesizer.schema_.names[: frame.shape[1]]
    bounds = bounds[bounds.columns.intersection(frame.columns)]
    if bounds.empty:
        return []
    ends = pd.concat([frame.iloc[:1]] * 2, ignore_index=True)
    ends[bounds.columns] = bounds
    with np.errstate(all="ignore"):
        is_array = isinstance(rows, np.ndarray)
        undone = _all_undone(steps, ends.to_numpy() if is_array else ends)
    before = _reach(bounds, frame)
    after = _reach(pd.DataFrame(undone), pd.DataFrame(whole))
    return after.index[after > FAR * max(before.max(), 1.0)].tolist()


def _estimated_bounds(synthesizer: Any) -> pd.DataFrame:
    """Return the bounds of the columns of numbers for which none were stated."""
    stated = getattr(synthesizer, "schema", None) or ()
    bounded = {column.name for column in stated if column.lower is not None}
    bounds = {}
    for column in getattr(synthesizer, "schema_", None) or ():
        if column.numeric and not column.temporal and column.name not in bounded:
            bounds[column.name] = [column.lower, column.upper]
    return pd.DataFrame(bounds)


def _reach(ends: pd.DataFrame, rows: pd.DataFrame) -> pd.Series:
    """Return the largest bound of every column over the 99 % quantile of its rows."""
    numbers = ends.select_dtypes("number").astype(float).abs()
    usual = rows[numbers.columns].astype(float).abs().quantile(0.99)
    return (numbers.max() / usual).fillna(1.0)


def learns(step: Any) -> bool:
    """Return whether a transformer learns from the rows it is fitted to.

    Its tags (``requires_fit``) or those of its parts decide. A frozen transformer
    learns nothing; one without tags counts as learning.
    """
    if step is None or isinstance(step, (str, FrozenEstimator)):
        return False
    if isinstance(step, (Pipeline, FeatureUnion, ColumnTransformer)):
        return any(learns(part) for part in parts(step))
    try:
        return bool(get_tags(step).requires_fit)
    except (AttributeError, TypeError):
        return True


def parts(estimator: Any) -> list[Any]:
    """Return the estimators among an estimator's parameters, also those in lists."""
    if not hasattr(estimator, "get_params"):
        return []
    return _estimators(list(estimator.get_params(deep=False).values()))


def _estimators(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in _estimators(item)]
    return [value] if hasattr(value, "fit") and not isinstance(value, type) else []


def _undone(name: str, step: Any, rows: Any) -> Any:
    """Return the input of a step, given its output."""
    if step is None or step == "passthrough":
        return rows
    if isinstance(step, Pipeline):
        return _all_undone(step.steps, rows, f"{name}__")
    rows = in_pandas("sample_from", rows)
    if isinstance(step, ColumnTransformer):
        return _undone_columns(name, step, rows)
    if isinstance(step, FunctionTransformer) and step.func and not step.inverse_func:
        # Its inverse_transform would change nothing.
        raise _refusal(name, step, "has no inverse_func")
    if not hasattr(step, "inverse_transform"):
        raise _refusal(name, step, "has no inverse_transform")
    try:
        undone = _inverse(step, rows)
    except (ValueError, TypeError, LookupError, NotImplementedError) as error:
        raise _refusal(name, step, f"cannot invert these rows ({error})") from error
    names = getattr(step, "feature_names_in_", None)
    if names is None:
        return undone
    if not isinstance(undone, pd.DataFrame):
        undone = pd.DataFrame(undone).infer_objects()
    return undone.set_axis(list(names), axis=1)


def _undone_columns(name: str, step: ColumnTransformer, rows: Any) -> Any:
    """Undo a column transformer, which has no inverse, by undoing its parts."""
    table = rows if isinstance(rows, np.ndarray) else rows.iloc
    columns: dict[int, Any] = {}
    for part_name, part, _ in step.transformers_:
        label = f"{name}__{part_name}"
        # The user's choice may be names, a mask, a slice or a callable.
        places = step._transformer_to_input_indices[part_name]
        if part == "drop" and places:
            raise _refusal(label, step, f"drops {len(places)} columns")
        if places:
            made = table[:, step.output_indices_[part_name]]
            undone = pd.DataFrame(_undone(label, part, made))
            columns |= {p: undone.iloc[:, k].array for k, p in enumerate(places)}
    names = getattr(step, "feature_names_in_", range(step.n_features_in_))
    frame = pd.DataFrame({name: columns[place] for place, name in enumerate(names)})
    return frame if hasattr(step, "feature_names_in_") else frame.to_numpy()


def _inverse(step: Any, rows: Any) -> Any:
    """Invert a step; if it takes no missing values, such rows come back missing."""
    # Inverses were fitted to arrays or to other names; functions may use the names.
    if isinstance(rows, pd.DataFrame) and not isinstance(step, FunctionTransformer):
        rows = rows.to_numpy()
    try:
        with np.errstate(invalid="ignore"):
            return step.inverse_transform(rows)
    except (ValueError, IndexError):
        complete = ~pd.DataFrame(rows).isna().any(axis=1).to_numpy()
        undone = pd.DataFrame(step.inverse_transform(rows[complete]))
        return undone.set_axis(np.flatnonzero(complete)).reindex(range(len(rows)))


def _refusal(name: str, step: Any, reason: str) -> ValueError:
    return ValueError(
        f"sample_from cannot undo the step {name!r}: {type(step).__name__} {reason}. "
        "For rows as the last step saw them, sample from it: pipeline[-1].sample(n)."
    )
