"""The parameter `clipping`: what it may be, and what bounds gradients then.

The bounds themselves, and what they guarantee, are in `privacy.clipping`.
"""

from dataclasses import dataclass
from typing import Any

from dpgenerative._validation import check_option, number, option
from dpgenerative.fitting.options import BatchTerm, Options, parameter
from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.steps import Clipper


@dataclass(frozen=True, repr=False)
class Sparsified(Options):
    """The sparsified clipping strategy with its own share of thinned entries.

    Parameters
    ----------
    share : float in [0, 1), default=0.5
        Share s of a gradient's m entries that are thinned.
    threshold : {"mean", "ranked"}, default="mean"
        Size below which entries are thinned: the mean over ``m (1 - s)`` entries of the
        sum of all sizes, or the size of the ``m (1 - s)``-th largest (the paper's).
    """

    share: float = parameter(0.5, number(low=0, high=1, closed="left"))
    threshold: str = parameter("mean", option("mean", "ranked"))


def check_clipping(owner: str, clipping: Any, term: BatchTerm) -> None:
    """Raise ValueError for anything but a strategy that suits the batch-wise term."""
    if isinstance(clipping, Sparsified):
        clipping.check(owner, "clipping")
    else:
        check_option(owner, "clipping", clipping, STRATEGIES, "a Sparsified")
    if term.aggregation != "term-wise":
        check_option(owner, "clipping", clipping, ["flat"])


def clipper_of(
    clipping: Any, term: BatchTerm, bound: float, batch_size: float
) -> Clipper:
    """Return what bounds gradients: of a row by `bound`, of a partition by its own."""
    group = term.max_grad_norm
    if group is None:
        group = bound * 16 / (20 * batch_size)
    strategy = "sparsified" if isinstance(clipping, Sparsified) else clipping
    thinned = Sparsified.of(clipping)
    is_ranked = thinned.threshold == "ranked"
    return Clipper(strategy, bound, thinned.share, float(group), is_ranked)
