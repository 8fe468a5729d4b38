"""Rules of the flow: what "auto" means, from the released size of a fit.

`FlowTuning` holds every number that trials decided. They are in
``benchmarks/results/trials``; the file that has one is named behind it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dpgenerative.fitting.recipe import FitSize, Rule
from dpgenerative.fitting.workload import MOST_CANDIDATES, MOST_TABLES
from dpgenerative.models.cells import CellFacts
from dpgenerative.privacy.report import HOPELESS
from dpgenerative.tables.sequences import PLACE


@dataclass(frozen=True)
class FlowTuning:
    """Numbers of the rules. "Rows" are rows times epsilon, "per column" over columns.

    Attributes
    ----------
    untrained, untrained_per_column : float
        Rows, in all and per column, up to which gradient steps cost more than they
        gain: marginals then get the whole budget (few_rows).
    min_rows_for_order : float
        Least rows per ordered column for steps to learn how these go together, where
        they learn no more (few_rows).
    order_steps, order_marginals : int, float
        Steps there, and the share of one-way marginals (few_rows).
    noisy : float
        Rows per column up to which steps times columns have a limit, and rows of
        samples are spread evenly (wide_tables, samples).
    column_steps : int
        The limit of steps times columns (wide_tables).
    halfway : float
        Rows per column at which the marginals' share is halfway down (marginals).
    rows_per_coefficient : float
        Least rows per coefficient between ordered columns (few_rows).
    max_norm : float
        Largest clipping norm of the rule, per root of the number of columns: beyond
        it hardly any gradient is clipped (clipping_norm).
    max_first_size : float
        Largest size of the features of the column that the flow takes first
        (size_of_units_and_steps).
    hidden_size : float
        Largest size of a row's hidden units together. That of its features grows with
        the root of their number: of many columns, units get less of a clipped gradient
        (size_of_units_and_steps).
    max_rate, max_path : float
        Step size of few steps; of more, maximum of step size times their number
        (size_of_units_and_steps).
    few_columns, rows_for_units : int, (float, float)
        Rows per column above which hidden units pay: in tables of up to so many
        columns, and in others (hidden_units).
    max_functions : int
        Functions of all columns together, whose square is the number of coefficients
        (wide_tables).
    table_share, least_share : float
        Share of contingency tables where rows are many, and least where they are few
        (counted_tables, first_analyses).
    embedded_share : float
        Share of mean embeddings of classes, over that of tables (class_embeddings).
    rows_for_tables, rows_for_few : float
        Least rows for each, over the difficulty of choosing tables (`_difficulty`) and
        per inverse root of the share (counted_tables, first_analyses).
    """

    untrained: float = 1400.0
    untrained_per_column: float = 100.0
    min_rows_for_order: float = 15.0
    order_steps: int = 100
    order_marginals: float = 0.9
    noisy: float = 1000.0
    column_steps: int = 40_000
    halfway: float = 100.0
    rows_per_coefficient: float = 20
    max_norm: float = 4.0
    max_first_size: float = 2.0
    hidden_size: float = 4.0
    max_rate: float = 0.03
    max_path: float = 16.0
    few_columns: int = 4
    rows_for_units: tuple[float, float] = (1000, 4000)
    max_functions: int = 4096
    table_share: float = 0.2
    embedded_share: float = 0.25
    least_share: float = 0.1
    rows_for_tables: float = 180
    rows_for_few: float = 80


TUNING = FlowTuning()


def table_budget(scale: FitSize) -> float:
    """Return the tables' share: small where choices are noisy, 0 where all is noise."""
    d, rows = len(scale.schema), scale.n_rows * (scale.epsilon or 0)
    few = min(0.5, max(TUNING.least_share, 2 / d**1.5))
    for share, least in (
        (max(TUNING.table_share, few), TUNING.rows_for_tables),
        (few, TUNING.rows_for_few),
    ):
        if d > 1 and rows > least * _difficulty(d) / math.sqrt(share):
            return share
    return 0.0


def embedded_share(scale: FitSize) -> float:
    """Return the share of embeddings of the first column, over that of tables by rule.

    They are of classes: of a nominal column, where rows are not linked.
    """
    first = scale.schema.columns[0]
    is_nominal = first.kind in ("categorical", "boolean") and not first.ordered
    is_linked = any(column.name == PLACE for column in scale.schema.columns)
    return TUNING.embedded_share if is_nominal and not is_linked else 0.0


def _difficulty(d: int) -> float:
    """Return to what the noise in the choice of tables is proportional.

    That is the root of the number of choices, each of its own share, times the
    logarithm of the number of candidates, of which the luckiest counts.
    """
    # Of very many columns a power would overflow.
    by_number = min(d * math.log(2), math.log(MOST_CANDIDATES))
    return math.sqrt(min(d, MOST_TABLES)) * by_number


def share_of_rest(scale: FitSize) -> float:
    """Return the marginals' share of the rest: tables show marginals, too."""
    return TUNING.order_marginals if ordered_only(scale) else share_by_rows(scale)


def share_by_rows(scale: FitSize) -> float:
    """Return the marginals' share of the rest: less, the more rows."""
    return 0.4 + 0.5 / (1 + (scale.rows_per_column / TUNING.halfway) ** 2)


def first_size(label: CellFacts) -> float:
    """Return the size of the features of the column that is often the one to predict.

    Its levels share it: the more there are, the less would be learned of each.
    """
    n = 2 if label.ordered else len(label.masses)
    return min(TUNING.max_first_size, max(1, n - 1) ** 0.25)


def hidden_units(scale: FitSize) -> int:
    """Return the number of hidden units: none where rows are few."""
    if scale.epsilon is None:
        return max(64, min(256, scale.n_rows // 200))
    least = TUNING.rows_for_units[len(scale.schema) > TUNING.few_columns]
    return 64 if scale.rows_per_column > least else 0


def columns_paired(facts: Sequence[CellFacts]) -> float:
    """Return the m of which (m b)^2 / 2 coefficients join b functions of each column.

    Of ordered columns, in pairs of which the second is learned.
    """
    m = squared = 0.0
    for each in facts:
        weight = float(each.ordered * each.plain_mass)
        squared += weight * (2 * m + weight) * (not each.is_given)
        m += weight
    return max(math.sqrt(squared), math.sqrt(2 * len(facts)))


def _has_few_rows(scale: FitSize) -> bool:
    """Return whether gradient steps of a whole model cost more than they gain."""
    rows = scale.rows_per_column
    few = (
        rows <= TUNING.untrained_per_column
        and rows * len(scale.schema) <= TUNING.untrained
    )
    return few or rows <= HOPELESS


def ordered_only(scale: FitSize) -> bool:
    """Return whether only ordered columns are learned to depend on each other.

    Public rows can teach a whole model, which is then left as it is.
    """
    together = {name for names in scale.schema.joint for name in names}
    n = sum(c.is_ordered and c.name not in together for c in scale.schema.columns)
    rows = scale.rows_per_column * len(scale.schema)
    can_learn = n > 1 and rows > TUNING.min_rows_for_order * n and not scale.has_public
    return can_learn and _has_few_rows(scale)


def clipping_norm(n_parameters: int, scale: FitSize) -> float:
    """Return a norm that grows with rows times epsilon per parameter.

    Clipping moves what is learned from the mean of all gradients towards their median,
    an error that no number of rows removes; noise grows with the norm.
    """
    if scale.epsilon is None:
        return 1.0
    norm = math.sqrt(2 * scale.n_rows * scale.epsilon / n_parameters)
    most = TUNING.max_norm * math.sqrt(len(scale.schema))
    return float(f"{min(most, max(1.0, norm)):.3g}")


def n_steps(scale: FitSize) -> int:
    """Return the number of gradient steps: few or none where rows are few."""
    if ordered_only(scale):
        return TUNING.order_steps
    if _has_few_rows(scale):
        return 0
    steps = n_steps_of_training(scale)
    most = TUNING.column_steps // len(scale.schema)
    return min(steps, most) if scale.rows_per_column <= TUNING.noisy else steps


def learning_rate(scale: FitSize) -> float:
    """Return a step size that falls with the number of steps.

    What noise adds to the weights grows with both. In tables of very few columns,
    weights have to become large.
    """
    if len(scale.schema) < TUNING.few_columns:
        return TUNING.max_rate
    return min(TUNING.max_rate, TUNING.max_path / max(1, n_steps(scale)))


def steps_rule(anchored: bool) -> Rule:
    """Return the rule of steps; where nothing is anchored, nothing else is learned."""
    return n_steps if anchored else n_steps_of_training


def n_steps_of_training(scale: FitSize) -> int:
    """Return the number of steps of a model with enough rows."""
    steps = min(800, scale.n_rows // 10)
    if scale.epsilon is None:
        # Where no noise keeps a model from memorising few rows, fewer passes.
        steps = min(1000, max(scale.n_rows // 50, min(500, steps)))
    return max(50, steps)
