"""How good and how safe a synthetic table is, whichever tool made it.

All functions compare tables with the same columns (attacks on models take the model as
a callable). None of the figures is private: they describe real rows.

Fidelity

=========================== ======================================================
`marginal_distance`         `MarginalDistance`: total variation, Jensen-Shannon or
                            Wasserstein distance of k-way marginals, with floor and
                            baseline
`sampling_floor`            `MarginalDistance` of a bootstrap of the real table
`independence_baseline`     `MarginalDistance` of its columns, permuted independently
`log_likelihood`            `LogLikelihood` of rows under a fitted model
`sdmetrics_quality`         `SDMetricsScore` of SDMetrics' quality report
`sdmetrics_diagnostic`      `SDMetricsScore` of its diagnostic report
=========================== ======================================================

Analyses

=========================== ======================================================
`analysis_errors`           `AnalysisErrors`: means, deviations, quantiles, means by
                            group, slopes, hours, weekdays and months, in standard
                            errors
`rows_with_before`          DataFrame, rows of people, each beside the row before it
`sequence_results`          DataFrame, what goes on within people who have several
                            rows, in both tables
=========================== ======================================================

Dependence

=========================== ======================================================
`kendall_tau_matrix`        DataFrame, tau-b of every pair of numeric columns
`kendall_tau_distance`      `KendallDistance`: RMSE and MAE between two of them
`association_matrix`        DataFrame, association of every pair of mixed columns
`association_distance`      `AssociationDistance` between two of them
=========================== ======================================================

Latents

=========================== ======================================================
`hoyer_sparsity`            float, how few latents differ from 0 in a record
=========================== ======================================================

Utility

=========================== ======================================================
`tstr`                      DataFrame, a row per model, table trained on and repeat
`default_classifiers`       dict, the nine classifiers of `tstr`
`default_regressors`        dict, its five regressors
`make_synthesis_scorer`     a scikit-learn scorer, for searches over synthesizers
=========================== ======================================================

Attacks

=========================== ======================================================
`reconstruction_attack`     `AttackResult`, on an encoder and decoder
`likelihood_attack`         `AttackResult`, on likelihoods or their bounds
`monte_carlo_attack`        `AttackResult`, on a synthetic table
`domias_attack`             `AttackResult`, on that and reference rows
`marginal_attack`           `AttackResult`, on those and what was counted
`logan_attack`              `AttackResult`, on that and reference rows
`vulnerable_records`        DataFrame, rows far from all others
`crafted_canaries`          DataFrame, made-up rows that a model finds least likely
`closest_record`            `ClosestRecord`, a sanity check, no measure of privacy
`phi`                       float, relative trade-off of privacy and accuracy
`bounded_phi`               float, the same cut to [0, 2]
=========================== ======================================================

All of it on one page

=========================== ======================================================
`report`                    `Report`: a page of HTML with a verdict in plain words
=========================== ======================================================

Plots are in `dpgenerative.metrics.plots`.
"""

from dpgenerative.metrics.analyses import AnalysisErrors, analysis_errors
from dpgenerative.metrics.attacks import (
    domias_attack,
    likelihood_attack,
    logan_attack,
    marginal_attack,
    monte_carlo_attack,
)
from dpgenerative.metrics.dependence import (
    AssociationDistance,
    KendallDistance,
    association_distance,
    association_matrix,
    kendall_tau_distance,
    kendall_tau_matrix,
)
from dpgenerative.metrics.external import (
    SDMetricsScore,
    sdmetrics_diagnostic,
    sdmetrics_quality,
)
from dpgenerative.metrics.fidelity import (
    MarginalDistance,
    independence_baseline,
    marginal_distance,
    sampling_floor,
)
from dpgenerative.metrics.likelihood import LogLikelihood, log_likelihood
from dpgenerative.metrics.membership import AttackResult
from dpgenerative.metrics.reconstruction import reconstruction_attack
from dpgenerative.metrics.records import (
    ClosestRecord,
    closest_record,
    crafted_canaries,
    vulnerable_records,
)
from dpgenerative.metrics.reporting import Report, report
from dpgenerative.metrics.scorer import make_synthesis_scorer
from dpgenerative.metrics.sequences import rows_with_before, sequence_results
from dpgenerative.metrics.sparsity import hoyer_sparsity
from dpgenerative.metrics.tradeoff import bounded_phi, phi
from dpgenerative.metrics.utility import default_classifiers, default_regressors, tstr

__all__ = [
    "AnalysisErrors", "AssociationDistance", "AttackResult", "ClosestRecord",
    "KendallDistance", "LogLikelihood", "MarginalDistance", "Report", "SDMetricsScore",
    "analysis_errors", "association_distance", "association_matrix", "bounded_phi",
    "closest_record", "crafted_canaries", "default_classifiers", "default_regressors",
    "domias_attack", "hoyer_sparsity", "independence_baseline", "kendall_tau_distance",
    "kendall_tau_matrix", "likelihood_attack", "log_likelihood", "logan_attack",
    "make_synthesis_scorer", "marginal_attack", "marginal_distance",
    "monte_carlo_attack", "phi", "reconstruction_attack", "report", "rows_with_before",
    "sampling_floor", "sdmetrics_diagnostic", "sdmetrics_quality", "sequence_results",
    "tstr", "vulnerable_records",
]  # fmt: skip
