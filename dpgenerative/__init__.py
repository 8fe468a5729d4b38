"""Differentially private synthetic tables by deep generative models.

What stands here is imported where it is first used: torch and its like take seconds.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpgenerative.pipeline import sample_from
    from dpgenerative.predictors import SyntheticClassifier, SyntheticRegressor
    from dpgenerative.privacy.budget import PrivacyBudget
    from dpgenerative.schema import Column, Schema
    from dpgenerative.search import PrivateSearchCV, SearchPrivacy, search_privacy
    from dpgenerative.synthesizers import DPHFlowSynthesizer, DPVAESynthesizer, load
    from dpgenerative.synthesizers.forecast import Forecast, forecast

__version__ = "0.1.0"
__all__ = [
    "Column",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "Forecast",
    "PrivacyBudget",
    "PrivateSearchCV",
    "Schema",
    "SearchPrivacy",
    "SyntheticClassifier",
    "SyntheticRegressor",
    "__version__",
    "forecast",
    "load",
    "sample_from",
    "search_privacy",
]
_HOMES = {
    "Column": "schema",
    "DPHFlowSynthesizer": "synthesizers",
    "DPVAESynthesizer": "synthesizers",
    "Forecast": "synthesizers.forecast",
    "PrivacyBudget": "privacy.budget",
    "PrivateSearchCV": "search",
    "Schema": "schema",
    "SearchPrivacy": "search",
    "SyntheticClassifier": "predictors",
    "SyntheticRegressor": "predictors",
    "forecast": "synthesizers.forecast",
    "load": "synthesizers",
    "sample_from": "pipeline",
    "search_privacy": "search",
}
"""Module of every name above."""


def __getattr__(name: str) -> Any:
    """Import a name, or a module of the package, at its first use (PEP 562)."""
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("__") and find_spec(f"{__name__}.{name}"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
