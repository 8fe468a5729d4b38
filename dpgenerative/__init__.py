"""Differentially private synthetic tables by deep generative models.

What stands here is imported where it is first used: torch and its like take seconds.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpgenerative._version import __version__

if TYPE_CHECKING:
    from dpgenerative.fitting.options import BatchTerm, Optimizer, Sparsified
    from dpgenerative.fitting.recipe import ModelRecipe
    from dpgenerative.local import ImagePixelizer, LaplaceRandomizer, VAEPerturber
    from dpgenerative.meta.pipeline import sample_from
    from dpgenerative.meta.predictors import SyntheticClassifier, SyntheticRegressor
    from dpgenerative.meta.search import PrivateSearch
    from dpgenerative.meta.search_cost import SearchPrivacy, search_privacy
    from dpgenerative.privacy.budget import PrivacyBudget
    from dpgenerative.synthesizers import (
        DPArrayVAESynthesizer,
        DPHFlowSynthesizer,
        DPVAESynthesizer,
        TableSynthesizer,
        load,
    )
    from dpgenerative.synthesizers.arrays import ArrayArchitecture
    from dpgenerative.synthesizers.flow import FlowArchitecture
    from dpgenerative.synthesizers.forecast import Forecast, forecast
    from dpgenerative.synthesizers.vae import VAEArchitecture
    from dpgenerative.tables.column import Column
    from dpgenerative.tables.constraints import (
        Determines,
        FixedCombinations,
        Impossible,
        LessEqual,
    )
    from dpgenerative.tables.schema import Schema

__all__ = [
    "ArrayArchitecture",
    "BatchTerm",
    "Column",
    "DPArrayVAESynthesizer",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "Determines",
    "FixedCombinations",
    "FlowArchitecture",
    "Forecast",
    "ImagePixelizer",
    "Impossible",
    "LaplaceRandomizer",
    "LessEqual",
    "ModelRecipe",
    "Optimizer",
    "PrivacyBudget",
    "PrivateSearch",
    "Schema",
    "SearchPrivacy",
    "Sparsified",
    "SyntheticClassifier",
    "SyntheticRegressor",
    "TableSynthesizer",
    "VAEArchitecture",
    "VAEPerturber",
    "__version__",
    "forecast",
    "load",
    "sample_from",
    "search_privacy",
]
_NAMES = {
    "fitting.options": ["BatchTerm", "Optimizer", "Sparsified"],
    "fitting.recipe": ["ModelRecipe"],
    "local": ["ImagePixelizer", "LaplaceRandomizer", "VAEPerturber"],
    "meta.pipeline": ["sample_from"],
    "meta.predictors": ["SyntheticClassifier", "SyntheticRegressor"],
    "meta.search": ["PrivateSearch"],
    "meta.search_cost": ["SearchPrivacy", "search_privacy"],
    "privacy.budget": ["PrivacyBudget"],
    "synthesizers": [
        "DPArrayVAESynthesizer",
        "DPHFlowSynthesizer",
        "DPVAESynthesizer",
        "TableSynthesizer",
        "load",
    ],
    "synthesizers.arrays": ["ArrayArchitecture"],
    "synthesizers.flow": ["FlowArchitecture"],
    "synthesizers.forecast": ["Forecast", "forecast"],
    "synthesizers.vae": ["VAEArchitecture"],
    "tables.column": ["Column"],
    "tables.constraints": [
        "Determines",
        "FixedCombinations",
        "Impossible",
        "LessEqual",
    ],
    "tables.schema": ["Schema"],
}
"""Names by the module that they come from."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names}


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
