"""What a report measures: distances, associations, models and an attack."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from dpgenerative._progress import watched
from dpgenerative.metrics import dependence, fidelity
from dpgenerative.metrics.analyses import REDRAWN, AnalysisErrors, analysis_errors
from dpgenerative.metrics.attacks import monte_carlo_attack
from dpgenerative.metrics.losses import changed_ranges, lost_values
from dpgenerative.metrics.membership import AttackResult
from dpgenerative.metrics.utility import tstr
from dpgenerative.privacy.report import PrivacyReport

ATTACK_ROWS = 2_000
"""Most members, and most non-members, that are attacked."""
ATTACK_SYNTHETIC_ROWS = 20_000
"""Most synthetic rows that the attack uses."""
UTILITY_ROWS = 10_000
"""Most rows that each model is trained on."""
MOST_ASSOCIATED = 64
"""Most columns of which all pairs are compared; of more, so many are drawn."""
GONE = 0.2
"""Share of a column's rows beyond which lost values are weak, and enter no pairs."""
CHANCE = 1.5
"""Distances up to this many floors pass as chance; fresh samples are 1.41 apart."""


@dataclass(frozen=True)
class Tables:
    """The tables of a report; without `real`, the page is public."""

    real: pd.DataFrame | None
    synthetic: pd.DataFrame
    holdout: pd.DataFrame | None
    target: Hashable | None
    seed: int

    @property
    def n_attacked(self) -> int:
        """Number of synthetic rows that the attack uses."""
        return min(ATTACK_SYNTHETIC_ROWS, len(self.synthetic))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Measured:
    """The measurements of a report; `Report` describes them."""

    lost: pd.DataFrame | None = None
    ranges: pd.DataFrame | None = None
    columns: pd.DataFrame | None = None
    analyses: AnalysisErrors | None = None
    pairs: pd.DataFrame | None = None
    synthetic_associations: pd.DataFrame
    associations: dependence.AssociationDistance | None = None
    reference_changes: tuple[float, np.ndarray, np.ndarray] | None = None
    utility: pd.DataFrame | None = None
    attack: AttackResult | None = None


def measure(tables: Tables, privacy: PrivacyReport | None, verbose: bool) -> Measured:
    """Measure what the given tables allow; without real rows, next to nothing."""
    real, synthetic, seed = tables.real, tables.synthetic, tables.seed
    if real is None:
        own = dependence.association_matrix(synthetic[_some_columns(synthetic, seed)])
        return Measured(synthetic_associations=own)
    results: dict[str, Any] = {}

    def together(compare: Callable[..., Any]) -> Any:
        """Compare the columns that did not lose their values."""
        names = retained(results["lost"], real.columns)
        return compare(real[names], synthetic[names], random_state=seed)

    stages: dict[str, Callable[[], Any]] = {}
    # First what may refuse its rows.
    holdout, target = tables.holdout, tables.target
    if holdout is not None:
        n = min(ATTACK_ROWS, len(real), len(holdout))
        stages["attack"] = partial(
            monte_carlo_attack,
            _drawn(synthetic, tables.n_attacked, seed),
            *(_drawn(rows, n, seed) for rows in (real, holdout)),
            privacy=None if privacy is None else privacy.curve(),
        )
        if target is not None:
            stages["utility"] = partial(
                tstr, real, holdout, synthetic, target,
                n_rows=UTILITY_ROWS, random_state=seed,
            )  # fmt: skip
    stages |= {
        "lost": partial(lost_values, real, synthetic),
        "ranges": partial(changed_ranges, real, synthetic),
        "columns": partial(_distances, real, synthetic, k=1, random_state=seed),
        "analyses": partial(together, analysis_errors),
        "associations": partial(together, _associations),
        "pairs": partial(together, _distances),
        "reference_changes": partial(together, _reference_changes),
    }
    for name, take in watched(stages.items(), "report", verbose):
        results[name] = take()
    return Measured(synthetic_associations=results["associations"].synthetic, **results)


def retained(lost: pd.DataFrame, names: Iterable[Hashable]) -> list[Hashable]:
    """Return the columns that did not lose most of their values; all, if none is left.

    Parameters
    ----------
    lost : DataFrame
        As `lost_values` returns it.
    names : iterable of hashable
    """
    every, gone = list(names), set(lost["column"][lost["share"] > GONE])
    return [name for name in every if name not in gone] or every


def _some_columns(frame: pd.DataFrame, seed: int) -> list[Hashable]:
    """Return the names of the columns of which all pairs are compared."""
    n_all, rng = frame.shape[1], np.random.default_rng(seed)
    drawn = rng.choice(n_all, min(n_all, MOST_ASSOCIATED), replace=False)
    return list(frame.columns[np.sort(drawn)])


def mean_change(distance: dependence.AssociationDistance) -> float:
    """Return the mean absolute difference over pairs of different columns."""
    n = len(distance.difference)
    return distance.mae * n / (n - 1)


def _associations(
    real: pd.DataFrame, synthetic: pd.DataFrame, random_state: int
) -> dependence.AssociationDistance:
    some = _some_columns(real, random_state)
    return dependence.association_distance(real[some], synthetic[some])


def _distances(
    real: pd.DataFrame, synthetic: pd.DataFrame, random_state: int, k: int = 2
) -> pd.DataFrame | None:
    """Return the distances of k-way marginals, the furthest beyond chance first."""
    if real.shape[1] < k:
        return None
    shared: Any = {"k": k, "random_state": random_state}
    distance = fidelity.marginal_distance(real, synthetic, references=False, **shared)
    off = pd.DataFrame({"columns": list(distance.sets), "distance": distance.values})
    off["floor"] = fidelity.sampling_floor(real, **shared).values
    off["baseline"] = fidelity.independence_baseline(real, **shared).values
    excess = off["distance"] - CHANCE * off["floor"]
    return off.iloc[np.argsort(-excess, kind="stable")].reset_index(drop=True)


def _reference_changes(
    real: pd.DataFrame, _: pd.DataFrame, random_state: int
) -> tuple[float, np.ndarray, np.ndarray] | None:
    """Return the mean change of association in a bootstrap, and changes of pairs.

    The largest ones in several bootstraps, and those in permuted columns. Pairs differ:
    columns of many levels are associated by chance.
    """
    if real.shape[1] < 2:
        return None
    real = real[_some_columns(real, random_state)]
    rng = np.random.default_rng(random_state)
    others = [fidelity.resampled(real, rng) for _ in range(REDRAWN)]
    others.append(fidelity.permuted(real, rng))
    changes = [dependence.association_distance(real, each) for each in others]
    sizes = [each.difference.abs().to_numpy() for each in changes]
    return mean_change(changes[0]), np.max(sizes[:-1], axis=0), sizes[-1]


def _drawn(frame: pd.DataFrame, n: int, seed: int) -> pd.DataFrame:
    return frame if n >= len(frame) else frame.sample(n, random_state=seed)
