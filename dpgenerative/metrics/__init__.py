"""How close a synthetic table comes to a real one.

All scores compare two DataFrames with the same columns; none of them is private: they
read the real rows, and what they return describes them.

======================== =========================================================
name                     returns
======================== =========================================================
`marginal_distance`      `MarginalDistance`: total variation of k-way marginals
`sampling_floor`         `MarginalDistance` of a bootstrap of the real table
`independence_baseline`  `MarginalDistance` of its columns, each permuted alone
`kendall_tau_matrix`     DataFrame, tau-b of every pair of numeric columns
`kendall_tau_distance`   `KendallDistance`: RMSE and MAE between two such matrices
`tstr`                   DataFrame, one row per classifier trained on synthetic rows
`default_classifiers`    dict, the nine classifiers that `tstr` trains by default
======================== =========================================================
"""

from __future__ import annotations

from dpgenerative.metrics.dependence import (
    KendallDistance,
    kendall_tau_distance,
    kendall_tau_matrix,
)
from dpgenerative.metrics.fidelity import (
    MarginalDistance,
    independence_baseline,
    marginal_distance,
    sampling_floor,
)
from dpgenerative.metrics.utility import default_classifiers, tstr

__all__ = [
    "KendallDistance",
    "MarginalDistance",
    "default_classifiers",
    "independence_baseline",
    "kendall_tau_distance",
    "kendall_tau_matrix",
    "marginal_distance",
    "sampling_floor",
    "tstr",
]
