"""What a fit would release, and with which noise, before anything is spent."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._files import encodable
from dpgenerative._validation import check_number, check_option, count, refuse
from dpgenerative.encoding import shares
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.persistence.registry import MODELS
from dpgenerative.privacy.plan import PrivacyPlan, count_std
from dpgenerative.privacy.report import cautions, outlook, weak_outlook
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.expected import expected_errors
from dpgenerative.tables.compositions import with_bounds
from dpgenerative.tables.schema import Schema, check_schema

MOST_ROWS = 10**9
"""Accounting takes minutes for more rows, whose batches are a tiny part of them."""
EXPECT = {
    "good": "Single columns and relations between them can be learned.",
    "marginals only": "Single columns can be learned, and little of how they go "
    "together.",
    "hopeless": "Even single columns would be mostly noise. Rows of more people, fewer "
    "columns or a larger epsilon would help.",
}


@dataclass(frozen=True)
class Forecast:
    """The forecast of a fit, from public numbers alone.

    Attributes
    ----------
    plan : PrivacyPlan
        What a fit whose released count is `n_rows` plans: steps, sampling rate, noise.
    outlook : {"good", "marginals only", "hopeless"}
        What to expect (`privacy.report.outlook`).
    count_std : float
        Standard deviation of the noise of the row count.
    columns : DataFrame
        A row per column: its name and `kind`; `cells`, how many it may have (levels
        or intervals, as far as they are public); `noise_rows`, the standard deviation
        of the count of a cell, and `noise_share`, that over the number of rows;
        `cells_above_noise`, how many cells of one size would stand out from the
        noise, by five standard deviations each.
    """

    plan: PrivacyPlan
    outlook: str
    count_std: float
    columns: pd.DataFrame
    _fit: PrivateFit = field(repr=False)

    def expected_errors(
        self, n_trials: int = 20, random_state: Any = None, verbose: int = 1
    ) -> pd.DataFrame:
        """Return standard errors to expect of means and shares, by simulation.

        The rows that are simulated are spread evenly over cells of what the schema
        states, which are narrower near 0, and their columns are independent. Bounds
        are often wider than real rows need: then errors are smaller. Those of shares
        are smaller by up to a half, as samples are drawn more evenly.

        Parameters
        ----------
        n_trials : int, default=20
            Tables that are made up and released, at least 2.
        random_state : int, RandomState or Generator instance or None, default=None
        verbose : int, default=1
            Above 0 shows a progress bar in terminals and notebooks.

        Returns
        -------
        DataFrame
            A row per column and kind of result: ``of`` ("mean" of numbers and of times,
            in days; "share" of a level, the root of the mean square over levels),
            ``people`` (standard error of as many real rows) and ``error`` (of as many
            synthetic ones, with the privacy noise). Of more than 50,000 rows, both are
            scaled by the root of their number: `error` is an upper bound.

        Examples
        --------
        >>> from dpgenerative import Column, Schema, forecast
        >>> schema = Schema([Column("age", "integer", lower=0, upper=120)])
        >>> ahead = forecast(schema, 1000, epsilon=1.0)
        >>> ahead.expected_errors(5, random_state=0, verbose=0)["of"][0]
        'mean'
        """
        fit, n_rows = self._fit, self.plan.n_rows
        return expected_errors(fit, n_rows, n_trials, random_state, verbose)

    def __str__(self) -> str:
        plan, n_columns = self.plan, len(self.columns)
        n_weak = len(weak_outlook(plan, n_columns))
        lines = [
            f"Outlook: {self.outlook}. {EXPECT[self.outlook]}",
            *cautions(plan, n_columns)[n_weak:],
            "Guarantee: epsilon {:.4g}, delta {:.4g}.".format(*plan.guarantee),
            f"Row count: {plan.n_rows}, with noise of standard deviation "
            f"{self.count_std:.3g}.",
            f"Training: {plan.n_steps} steps, sampling rate {plan.sampling_rate:.4g}, "
            f"noise multiplier {plan.noise_multiplier:.4g}.",
            "Columns (cells: levels or intervals, and one for 'missing'; noise: "
            "standard deviation of the count of a cell):",
            self.columns.to_string(index=False, float_format="{:.3g}".format),
        ]
        return encodable("\n".join(lines))


@np.errstate(all="ignore")  # as in a fit
def forecast(
    schema: Schema,
    n_rows: int,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    model: str = "flow",
    **parameters: Any,
) -> Forecast:
    """Say what a fit would release, and with which noise; nothing is spent.

    Parameters
    ----------
    schema : Schema
        Public facts, of all columns. A column that leaves `nullable` open counts as
        nullable.
    n_rows : int
        About how many rows there are: a public number, such as a target. A billion at
        most.
    epsilon : float, default=1.0
        Left alone where a parameter `noise_multiplier` is stated.
    delta : float, default=1e-5
    model : {"flow", "vae"} or another registered name, default="flow"
    **parameters
        Further parameters of the synthesizer, as its `set_params` takes them.

    Returns
    -------
    Forecast
        Printed, it can be read.

    Raises
    ------
    InfeasibleBudgetError
        If no noise fits the budget.
    ValueError
        For a parameter out of its range, or a constraint that a fit would refuse.

    Examples
    --------
    >>> from dpgenerative import Column, Schema, forecast
    >>> schema = Schema([Column("age", "integer", lower=0, upper=120)])
    >>> forecast(schema, 20, epsilon=0.1).outlook
    'hopeless'
    """
    check_option("forecast", "model", model, list(MODELS))
    count(high=MOST_ROWS, closed="both")("forecast", "n_rows", n_rows)
    check_number("forecast", "epsilon", epsilon, low=0, high=math.inf)
    check_schema("forecast", "schema", schema)
    if not isinstance(schema, Schema) or not schema.modelled.columns:
        refuse("forecast", "schema", "must be a Schema with columns", schema)
    synthesizer: Any = MODELS[model](epsilon=epsilon, delta=delta, schema=schema)
    synthesizer.set_params(**parameters)
    synthesizer._check_parameters()
    recipe = synthesizer._recipe
    if not recipe.anchored:
        rule = "must leave cells to be counted: anchored=True"
        refuse("forecast", "parameters", rule, parameters)
    facts = {
        c.name: replace(c, nullable=True) if c.nullable is None else c for c in schema
    }
    # Those on columns that are not stated change nothing here.
    valid = [each for each in schema.constraints if facts.keys() >= set(each.columns)]
    facts = with_bounds(facts, valid)
    for constraint in valid:
        constraint.check(facts, dict.fromkeys(facts, np.dtype(object)))
    stated = Schema(facts.values(), valid, schema.joint)
    recipe.check_schema("forecast", stated.modelled)
    domain = synthesizer._domain(stated)
    whole = domain.counted if domain.sequences else stated.modelled
    fit = session.planned_fit(synthesizer, domain)
    plan = fit.plan(int(n_rows))
    n_bins = recipe.n_bins(fit.scale(plan.n_rows))
    prospect, std = outlook(plan, len(whole)), count_std(plan.count_epsilon)
    return Forecast(plan, prospect, std, _columns(whole, plan, n_bins), fit)


def _columns(schema: Schema, plan: PrivacyPlan, n_bins: int) -> pd.DataFrame:
    """Return the cells of every column, and the noise of their counts."""
    counts = next(each for each in plan.releases if each.stage == "rows")
    wholes = shares.column_stds(schema, counts.multiplier, n_bins, plan.n_rows)
    learned = learned_columns(schema).values()
    pairs = zip(learned, wholes, strict=True)
    facts = [(column.name, column.kind) for column in learned]
    table = pd.DataFrame(facts, columns=["column", "kind"])
    table["cells"] = [int(shares.expected_cells(column, n_bins)) for column in learned]
    table["noise_rows"] = [
        shares.cell_std(column, n_bins, plan.n_rows, whole) for column, whole in pairs
    ]
    table["noise_share"] = table["noise_rows"] / plan.n_rows
    most = plan.n_rows / (shares.POOL_NOISE * table["noise_rows"])
    table["cells_above_noise"] = np.minimum(table["cells"], most.astype(int))
    return table
