"""Estimators that add noise: no copy of one may know the seed that its noise follows.

``_seeded_noise_of`` of an estimator says whose noise is known to follow `random_state`:
its "own", or its "origin's", where it is a clone.
"""

from typing import Any

from dpgenerative.privacy.budget import refuse_workers


def note(estimator: Any) -> None:
    """Remember that noise follows the seed, whatever `noise` is set to later."""
    if estimator.noise == "reproducible":
        estimator._seeded_noise_of = "own"


def noted(estimator: Any, clone: Any) -> Any:
    """Return a clone that records whether its seed determines its origin's noise.

    Searches, predictors and their like fit clones, and store what they cloned.
    """
    note(estimator)
    if hasattr(estimator, "_seeded_noise_of"):
        clone._seeded_noise_of = "origin's"
    return clone


def state_for_workers(estimator: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return the state to pickle; raise while a budget is open."""
    refuse_workers(type(estimator).__name__)
    return without_seed(estimator, state)


def without_seed(estimator: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Return a state without the seed, where it would reveal the noise."""
    whose = state.get("_seeded_noise_of")
    # A clone that will use it as its origin did may carry it, to a worker.
    if whose == "own" or (whose == "origin's" and estimator.noise != "reproducible"):
        state = {k: v for k, v in state.items() if k != "_seeded_noise_of"}
        state |= {"random_state": None, "_sample_seed": None}
    return state


def tagged(tags: Any) -> Any:
    """Return scikit-learn's tags: such an estimator is not deterministic."""
    tags.non_deterministic = True
    return tags
