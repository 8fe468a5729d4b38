"""Audits: lower bounds on the epsilon that a configuration really has.

Each audit plays a game that differential privacy bounds. An adversary who knows all but
one thing - did a worst-case row take part? - guesses it from what was released; success
beyond what the claim allows disproves the claim, and success below it is a lower bound
on epsilon that holds with the confidence stated.

====================== ==================================== ============================
audit                  the adversary sees                   source
====================== ==================================== ============================
`audit_mechanism`      one noisy gradient of a batch that   Nasr et al. 2023; Gaussian
                       the row is known to be drawn into    DP of Dong, Roth, Su 2022
`audit_training`       every noisy gradient of whole        Nasr et al. 2021, 2023;
                       trainings, or of one training with   Steinke, Nasr, Jagielski
                       many canaries                        2023
`audit_release`        what `fit` leaves behind, and        Jagielski, Ullman, Oprea
                       samples                              2020
====================== ==================================== ============================

The package's own sampling, clipping, noise and accounting run in all of them. An audit
proves nothing beyond its bound: what it does not try may still leak. It runs on the
rows it is given and its figures describe the configuration, not those rows; give it
rows that are not private, such as a made-up table.
"""

from dpgenerative.audit.bounds import one_run_bound, one_run_p_value
from dpgenerative.audit.release import audit_release
from dpgenerative.audit.result import AuditResult
from dpgenerative.audit.step import audit_mechanism
from dpgenerative.audit.training import audit_training

__all__ = [
    "AuditResult",
    "audit_mechanism",
    "audit_release",
    "audit_training",
    "one_run_bound",
    "one_run_p_value",
]
