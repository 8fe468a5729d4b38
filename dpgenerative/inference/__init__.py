"""Intervals of analyses of synthetic rows, and their error, at no cost in privacy.

================== ===============================================================
`bootstrap`        `Bootstrap`: standard errors, biases and intervals of any
                   analysis, from refits to tables that the fitted synthesizer draws
`means_and_shares` the results of every column, to give to it
`sample_copies`    a synthetic table and tables of refits, for those who get only
                   files
`combine`          an estimate and its interval from results on these tables
================== ===============================================================

Everything here reads a fitted synthesizer, which is released already, and no private
row: post-processing, which spends nothing (:doc:`/inference`).
"""

from dpgenerative.inference.copies import combine, sample_copies
from dpgenerative.inference.refits import bootstrap
from dpgenerative.inference.results import Bootstrap
from dpgenerative.synthesizers.expected import means_and_shares

__all__ = ["Bootstrap", "bootstrap", "combine", "means_and_shares", "sample_copies"]
