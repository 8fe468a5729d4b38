"""One page on a synthetic table: privacy, closeness, use, attack, in plain words.

`report` measures, grades and writes a self-contained HTML page. A page computed from
real rows describes them and states so in a banner; ``public=True`` leaves out, and does
not compute, anything but the privacy statement and the synthetic table's own figures.

The way of a report: `measuring` (tables to measurements), `findings` (measurements to
grades and sentences), `page` (all of it to HTML).
"""

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from dpgenerative._files import require_place
from dpgenerative._validation import check_option
from dpgenerative.metrics import words
from dpgenerative.metrics.columns import aligned, takes_tables
from dpgenerative.metrics.findings import GRADES, Finding, judge
from dpgenerative.metrics.measuring import Measured, Tables, measure
from dpgenerative.metrics.page import write_page
from dpgenerative.metrics.records import require_disjoint
from dpgenerative.metrics.sequences import sequence_results
from dpgenerative.privacy.report import PrivacyReport
from dpgenerative.tables.containers import select_columns
from dpgenerative.tables.sequences import one_table


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Report(Measured):
    """What `report` measured, and the page that it wrote.

    Attributes
    ----------
    public : bool
        Whether only the synthetic table and the privacy statement were read.
    findings : tuple of Finding
        What was measured and could be graded.
    privacy : PrivacyReport or None
        The synthesizer's `privacy_`.
    lost, ranges : DataFrame or None
        Columns that lost values, and columns of numbers or times whose range differs
        from the real one: ``column``, ``share`` of rows, and ``loss`` in words, the
        largest share first.
    columns, pairs : DataFrame or None
        Total variation distance of one- and two-way marginals: columns ``columns``,
        ``distance``, ``floor`` and ``baseline``, the furthest beyond chance first.
        Pairs and associations leave out columns that lost over a fifth of their
        values, and so do the grades of single columns.
    analyses : AnalysisErrors or None
        Means, standard deviations, quantiles, means by group, slopes, hours, weekdays
        and months, as `analysis_errors` returns them.
    synthetic_associations : DataFrame
        Associations in the synthetic table; of more than 64 columns, of 64 drawn at
        random, as in `associations`.
    associations : AssociationDistance or None
        Against the real table.
    reference_changes : (float, ndarray, ndarray), or None
        Mean change of association in a bootstrap of the real table; of every pair the
        largest change in five, and that in the real columns, each permuted alone.
    utility : DataFrame or None
        As `tstr` returns it.
    attack : AttackResult or None
        The Monte-Carlo attack by synthetic rows.
    people : DataFrame or None
        What goes on within people, as `sequence_results` returns it, where the
        synthesizer was fitted to linked rows.
    html : str
        The page.
    """

    public: bool
    findings: tuple[Finding, ...]
    privacy: PrivacyReport | None
    people: pd.DataFrame | None
    html: str

    def to_html(self) -> str:
        """Return the page: one document without references to anything outside it."""
        return self.html

    def save(self, path: str | Path) -> None:
        """Write the page to a file, in UTF-8."""
        require_place(path).write_text(self.html, encoding="utf-8")

    def summary(self) -> pd.DataFrame:
        """Return the findings without their texts, one a row."""
        names = ["topic", "measure", "value", "redrawn", "failed", "grade"]
        rows = [[getattr(each, name) for name in names] for each in self.findings]
        return pd.DataFrame(rows, columns=names)

    def _repr_html_(self) -> str:
        # A frame of its own: the page's style must not reach the notebook's.
        return (
            f'<iframe srcdoc="{escape(self.html)}" title="Synthetic table report" '
            'style="width:100%;height:48rem;border:1px solid #ccc"></iframe>'
        )

    def __repr__(self) -> str:
        if self.public:
            return "Report(public=True)"
        weakest = min(self.findings, key=lambda each: each.order)
        name = f"{weakest.topic} ({words.listed(weakest.about)})".removesuffix(" ()")
        grades = Counter(each.grade for each in self.findings)
        counts = [f"{grades[grade]} {grade}" for grade in GRADES]
        return f"Report({', '.join(counts)}; weakest: {name})"

    def __str__(self) -> str:
        lines = [repr(self)]
        for title, lost in ((words.LOST, self.lost), (words.RANGES, self.ranges)):
            if lost is not None and len(lost):
                lines += [f"{title}:", *(f"  {line}" for line in words.losses(lost))]
        return "\n".join(lines)


@takes_tables
def report(
    real: pd.DataFrame | None,
    synthetic: pd.DataFrame,
    *,
    holdout: pd.DataFrame | None = None,
    target: Hashable | None = None,
    synthesizer: Any = None,
    intervals: Any = None,
    public: bool = False,
    random_state: int = 0,
    verbose: bool = False,
) -> Report:
    """Describe a synthetic table on one page, for those who decide about its use.

    Parameters
    ----------
    real : DataFrame of shape (n_real, p) or None
        The rows that the synthesizer was fitted on. May be None if `public`. People and
        their rows may be a pair, and so may those below.
    synthetic : DataFrame of shape (n_synthetic, p)
        Same columns, in any order.
    holdout : DataFrame of shape (n_holdout, p), optional
        Real rows of the same kind that the synthesizer has not read: test rows of the
        models and non-members of the attack. None: neither is run.
    target : hashable, optional
        Column that the models predict. None: no models are trained.
    synthesizer : object, optional
        The fitted synthesizer. Its `privacy_` is read, and from its `schema_` which
        columns are identifiers (these are generated, and are left out) and which
        numbers are codes without an order. That the table was sampled from it is not
        verified.
    intervals : Bootstrap, optional
        Of `inference.bootstrap`: results of the synthesizer with their intervals, such
        as those of `inference.means_and_shares`. Shown on public pages too.
    public : bool, default=False
        Leave out everything that needs real rows. `real`, `holdout` and `target` are
        then ignored.
    random_state : int, default=0
        Seed of the references, the models and the draw of attacked rows.
    verbose : bool, default=False
        Show a progress bar.

    Returns
    -------
    Report

    Raises
    ------
    TypeError
        If a table is not a DataFrame.
    ValueError
        If `real` is None and not `public`, the columns of the tables differ, a table
        is empty, `target` is none of the columns, rows of `holdout` are among those of
        `real`, or `synthesizer` is not fitted.

    Notes
    -----
    Unless `public`, the result and the page hold statistics of real rows, under no
    privacy guarantee. Publishing a public page spends nothing: it is made of what the
    guarantee already covers.

    Examples
    --------
    >>> real = pd.DataFrame({"a": list("xxyy") * 15, "b": [True, False] * 30})
    >>> report(real, real)
    Report(6 good, 0 fair, 0 weak; weakest: columns)
    >>> report(None, real, public=True)
    Report(public=True)
    """
    privacy: PrivacyReport | None = getattr(synthesizer, "privacy_", None)
    if synthesizer is not None and privacy is None:
        raise ValueError(
            f"synthesizer must be fitted, with an attribute privacy_; this "
            f"{type(synthesizer).__name__} has none."
        )
    if public:
        real = holdout = target = None
    elif real is None:
        raise ValueError("report needs real unless public=True; got None.")
    schema = getattr(synthesizer, "schema_", None)
    unit = getattr(schema, "unit", None)
    real, synthetic, holdout = (one_table(x, unit) for x in (real, synthetic, holdout))
    people = _within_people(real, synthetic, schema, random_state)
    real, synthetic, holdout = (_judged(schema, x) for x in (real, synthetic, holdout))
    synthetic = aligned(synthetic if real is None else real, synthetic)
    if holdout is not None:
        holdout = aligned(synthetic, holdout, ("synthetic", "holdout"))
        require_disjoint(real=real, holdout=holdout)
    check_option("report", "target", target, [*synthetic.columns, None])
    tables = Tables(real, synthetic, holdout, target, random_state)
    measured = measure(tables, privacy, verbose)
    findings = tuple(judge(measured, target))
    return Report(
        public=public,
        findings=findings,
        privacy=privacy,
        people=people,
        html=write_page(tables, measured, findings, privacy, intervals, people),
        **vars(measured),
    )


def _within_people(
    real: Any, synthetic: Any, schema: Any, random_state: int
) -> pd.DataFrame | None:
    """Return results within people, where both tables have the key of linked rows."""
    unit = getattr(schema, "unit", None)
    if unit is None or real is None or not all(unit in x for x in (real, synthetic)):
        return None
    order = next((c.name for c in schema if c.role == "order" and c.name in real), None)
    names = [n for n in schema.names if n in real and n in synthetic]
    real, synthetic = (select_columns(each, names) for each in (real, synthetic))
    return sequence_results(real, synthetic, unit, order, random_state=random_state)


def _judged(schema: Any, table: Any) -> Any:
    """Return a table without identifiers, numbers that are codes as levels."""
    if schema is None or not isinstance(table, pd.DataFrame):
        return table
    # They were made anew: numbers from 1 on are far from any real keys.
    keys = [column.name for column in schema if column.is_key]
    nominal = {c.name for c in schema if c.kind == "categorical" and not c.ordered}
    codes = [name for name in table.select_dtypes("number") if name in nominal]
    levels = table.astype(dict.fromkeys(codes, "category"))
    return levels.drop(columns=keys, errors="ignore")
