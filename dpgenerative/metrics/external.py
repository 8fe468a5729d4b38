"""Scores of the SDMetrics library, as its own reports compute them."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative.metrics.columns import (
    aligned,
    as_floats,
    comparable,
    is_number,
    origin_of,
    takes_tables,
    warn_if_few,
)
from dpgenerative.tables.times import temporal_kind, to_units
from dpgenerative.tables.values import as_objects

_NAMES = ("Column", "Column 1", "Column 2")  # columns of details that name columns


@dataclass(frozen=True, eq=False, repr=False)
class SDMetricsScore:
    """Scores that a report of SDMetrics gives two tables.

    Attributes
    ----------
    report : {"quality", "diagnostic"}
        Which report it was.
    score : float
        Overall score in [0, 1], higher is better: the mean over the properties that
        have a score. NaN if none has.
    properties : DataFrame
        Columns ``Property`` and ``Score``, as SDMetrics returns them.
    details : dict of str to DataFrame
        For every property, what it scores (columns, pairs of columns or the table) and
        by which metric, as SDMetrics returns them.
    """

    report: str
    score: float
    properties: pd.DataFrame
    details: dict[str, pd.DataFrame]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per column, pair or table scored, worst first.

        Returns
        -------
        DataFrame
            Columns ``property``, ``columns`` (tuple of names, empty for the table),
            ``metric`` and ``score``. Scores that SDMetrics could not or would not
            compute are NaN and stand last.
        """
        parts = [_flat(name, detail) for name, detail in self.details.items()]
        frame = pd.concat(parts, ignore_index=True)
        return frame.sort_values("score", ignore_index=True, kind="stable")

    def __repr__(self) -> str:
        scores = zip(self.properties["Property"], self.properties["Score"], strict=True)
        shown = "".join(f", {name}={score:.4f}" for name, score in scores)
        return f"SDMetricsScore({self.report!r}, score={self.score:.4f}{shown})"


@takes_tables
def sdmetrics_quality(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    metadata: Mapping[str, Any] | None = None,
) -> SDMetricsScore:
    """Quality score of SDMetrics: shapes of columns and trends of pairs.

    The score is that of ``sdmetrics.reports.single_table.QualityReport``, with two
    differences, so that it depends neither on chance nor on how a table is stored:
    contingency tables count all rows, whereas SDMetrics samples 50,000 rows of a larger
    table with numpy's global random state; and categorical columns are passed as plain
    objects, since SDMetrics scores no pair of a column with unused categories.

    Versions of SDMetrics differ: recent ones average only over pairs that are
    associated in the real table (the details have a column "Meets Threshold?"), older
    ones over all pairs. A table without any such pair is scored by its columns alone.

    Parameters
    ----------
    real, synthetic : DataFrame of shape (n_real, p) and (n_synthetic, p)
        Same columns, in any order; row counts may differ. Names need not be strings.
    metadata : mapping, optional
        SDMetrics' description of the table, ``{"columns": {name: {"sdtype": ...}}}``,
        of exactly these columns. None: inferred from the dtypes of `real`, where
        booleans are "boolean", other numeric dtypes "numerical", dates "datetime" and
        all others "categorical".

    Returns
    -------
    SDMetricsScore
        With the properties "Column Shapes" and "Column Pair Trends".

    Raises
    ------
    TypeError
        If a table is not a DataFrame.
    ValueError
        If the columns of the tables differ, a table is empty, a column holds numbers
        in one table and not in the other, or `metadata` does not describe exactly these
        columns or some of them have names that are not strings.

    Warns
    -----
    UserWarning
        If SDMetrics cannot score a column, such as one without any value, or a pair,
        such as one with a constant column; it leaves them out of the mean.
        If a table has fewer than 50 rows.

    References
    ----------
    DataCebo, "SDMetrics", https://docs.sdv.dev/sdmetrics.

    Examples
    --------
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0] * 20, "b": ["x", "y", "z"] * 20})
    >>> sdmetrics_quality(real, real)
    SDMetricsScore('quality', score=1.0000, Column Shapes=1.0000, \
Column Pair Trends=1.0000)
    """
    return _score("quality", real, synthetic, metadata)


@takes_tables
def sdmetrics_diagnostic(
    real: pd.DataFrame,
    synthetic: pd.DataFrame,
    metadata: Mapping[str, Any] | None = None,
) -> SDMetricsScore:
    """Diagnostic score of SDMetrics: whether synthetic values are valid at all.

    The score is that of ``sdmetrics.reports.single_table.DiagnosticReport``: the share
    of synthetic values within the real range or among the real levels, and whether the
    dtypes agree (whole numbers, other numbers, times and all else). A score below 1 is
    no defect of a private table: its ranges and levels need not be those of the rows.

    Parameters
    ----------
    real, synthetic, metadata
        As in `sdmetrics_quality`.

    Returns
    -------
    SDMetricsScore
        With the properties "Data Validity" and "Data Structure".

    Raises
    ------
    TypeError, ValueError
        As in `sdmetrics_quality`.

    Warns
    -----
    UserWarning
        As in `sdmetrics_quality`.

    Examples
    --------
    >>> real = pd.DataFrame({"a": [1.0, 2.0, 3.0] * 20, "b": ["x", "y", "z"] * 20})
    >>> sdmetrics_diagnostic(real, real.replace({"a": {3.0: 4.0}})).to_frame().round(2)
             property columns             metric  score
    0   Data Validity    (a,)  BoundaryAdherence   0.67
    1   Data Validity    (b,)  CategoryAdherence   1.00
    2  Data Structure      ()     TableStructure   1.00
    """
    return _score("diagnostic", real, synthetic, metadata)


def _score(
    report: str, real: pd.DataFrame, synthetic: pd.DataFrame, metadata: Any
) -> SDMetricsScore:
    synthetic = aligned(real, synthetic)
    for name in real.columns:
        comparable(real[name], synthetic[name])  # refuses those that are not
    if metadata is None:
        metadata = {"columns": {n: {"sdtype": _sdtype(real[n])} for n in real.columns}}
    else:
        _check_metadata(metadata, real)
    # SDMetrics takes strings for names.
    is_text = all(isinstance(name, str) for name in real)
    names = {n if is_text else f"column {j}": n for j, n in enumerate(real)}
    columns = {new: metadata["columns"][old] for new, old in names.items()}
    origins = {old: origin_of(real[old]) for old in names.values()}
    tables = [
        pd.DataFrame({new: _plain(each[n], origins[n]) for new, n in names.items()})
        for each in (real, synthetic)
    ]
    # SDMetrics turns exceptions into missing scores, including warnings that a filter
    # raises as errors: its scores would depend on the caller's warning filters.
    with warnings.catch_warnings(action="ignore"):
        from sdmetrics.reports import single_table  # seconds: it loads plotly

        made = getattr(single_table, f"{report.title()}Report")()
        made.num_rows_subsample = None
        made.generate(*tables, {**metadata, "columns": columns}, verbose=False)
    properties, details = made.get_properties(), {}
    for name in properties["Property"]:
        detail = made.get_details(name)
        own = {each: detail[each].map(names) for each in _NAMES if each in detail}
        details[name] = detail.assign(**own)
    _warn_unscored(details)
    warn_if_few({"real": len(real), "synthetic": len(synthetic)}, stacklevel=5)
    return SDMetricsScore(report, float(made.get_score()), properties, details)


def _sdtype(column: pd.Series) -> str:
    if temporal_kind(column.dtype) == "datetime":
        return "datetime"
    if pd.api.types.is_bool_dtype(column):
        return "boolean"
    return "numerical" if pd.api.types.is_numeric_dtype(column) else "categorical"


def _check_metadata(metadata: Mapping[str, Any], real: pd.DataFrame) -> None:
    """Require metadata that describe exactly the columns of the table."""
    described = metadata.get("columns") if isinstance(metadata, Mapping) else None
    if not isinstance(described, Mapping) or set(described) != set(real.columns):
        raise ValueError(
            "metadata must have an entry 'columns' that describes exactly the columns "
            f"{list(real.columns)}."
        )
    if others := [name for name in real.columns if not isinstance(name, str)]:
        raise ValueError(
            f"metadata can name columns by strings only; got {others}. Rename them in "
            "both tables, or leave metadata at None."
        )


def _plain(column: pd.Series, origin: float) -> Any:
    """Return times, numbers or other values in one dtype each, without an index."""
    if temporal_kind(column.dtype) == "datetime":
        counts = to_units(column, "us")
        missing = float(np.iinfo(np.int64).min)
        counts = np.where(np.isnan(counts), missing, counts)
        return counts.astype(np.int64).view("datetime64[us]")
    is_integer = pd.api.types.is_integer_dtype(column)
    if is_integer and not origin and not column.isna().any():
        return column.to_numpy(np.int64)
    if is_number(column):
        return as_floats(column, origin)
    return as_objects(column).to_numpy()


def _flat(name: str, detail: pd.DataFrame) -> pd.DataFrame:
    naming = [each for each in _NAMES if each in detail]
    columns = list(map(tuple, detail[naming].to_numpy(dtype=object)))
    facts = {"property": name, "columns": columns, "metric": detail["Metric"]}
    return pd.DataFrame({**facts, "score": detail["Score"].astype(float)})


def _warn_unscored(details: Mapping[str, pd.DataFrame]) -> None:
    """Name the columns, and count the pairs, that SDMetrics leaves out of the mean."""
    for name, detail in details.items():
        failed = detail["Score"].isna()
        if "Column" in detail:
            which = f"the columns {list(detail.loc[failed, 'Column'])}"
        else:
            # A pair without a score and without an error is skipped on purpose.
            failed &= detail["Error"].notna() if "Error" in detail else False
            which = f"{failed.sum()} of {len(failed)} entries"
        if failed.any():
            warnings.warn(
                f"SDMetrics gives no score to {which} and leaves them out of {name!r}.",
                stacklevel=5,
            )
