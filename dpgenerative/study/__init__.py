"""Where to put privacy noise, and what it costs per unit of attack that it prevents.

=========================== ======================================================
`privacy_utility_tradeoff`  DataFrame, a row per setting and seed: accuracy of a
                            classifier trained on synthetic rows, success of a
                            membership inference attack, phi
`plot_tradeoff`             the same as a picture, over epsilon
=========================== ======================================================

Nothing here is private: a study trains without privacy too, and measures on real rows.
"""

from dpgenerative.study.framework import privacy_utility_tradeoff
from dpgenerative.study.plots import plot_tradeoff

__all__ = ["plot_tradeoff", "privacy_utility_tradeoff"]
