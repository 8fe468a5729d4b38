"""Differentially private synthetic tables by deep generative models.

What stands here is imported where it is first used: torch and its like take seconds.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from dpgenerative._version import __version__

if TYPE_CHECKING:  # for type checkers
    from dpgenerative.fitting.clipping import Sparsified as Sparsified
    from dpgenerative.fitting.options import BatchTerm as BatchTerm
    from dpgenerative.fitting.options import Optimizer as Optimizer
    from dpgenerative.fitting.recipe import ModelRecipe as ModelRecipe
    from dpgenerative.local import ImagePixelizer as ImagePixelizer
    from dpgenerative.local import LaplaceRandomizer as LaplaceRandomizer
    from dpgenerative.local import VAEPerturber as VAEPerturber
    from dpgenerative.meta.pipeline import sample_from as sample_from
    from dpgenerative.meta.predictors import SyntheticClassifier as SyntheticClassifier
    from dpgenerative.meta.predictors import SyntheticRegressor as SyntheticRegressor
    from dpgenerative.meta.search import PrivateSearch as PrivateSearch
    from dpgenerative.meta.search_cost import SearchPrivacy as SearchPrivacy
    from dpgenerative.meta.search_cost import search_privacy as search_privacy
    from dpgenerative.privacy.budget import PrivacyBudget as PrivacyBudget
    from dpgenerative.synthesizers import DPArrayVAESynthesizer as DPArrayVAESynthesizer
    from dpgenerative.synthesizers import DPHFlowSynthesizer as DPHFlowSynthesizer
    from dpgenerative.synthesizers import DPVAESynthesizer as DPVAESynthesizer
    from dpgenerative.synthesizers import TableSynthesizer as TableSynthesizer
    from dpgenerative.synthesizers import load as load
    from dpgenerative.synthesizers.architecture import (
        FlowArchitecture as FlowArchitecture,
    )
    from dpgenerative.synthesizers.architecture import (
        VAEArchitecture as VAEArchitecture,
    )
    from dpgenerative.synthesizers.arrays import ArrayArchitecture as ArrayArchitecture
    from dpgenerative.synthesizers.forecast import Forecast as Forecast
    from dpgenerative.synthesizers.forecast import forecast as forecast
    from dpgenerative.tables.column import Column as Column
    from dpgenerative.tables.compositions import Composition as Composition
    from dpgenerative.tables.constraints import Determines as Determines
    from dpgenerative.tables.constraints import FixedCombinations as FixedCombinations
    from dpgenerative.tables.constraints import Impossible as Impossible
    from dpgenerative.tables.constraints import LessEqual as LessEqual
    from dpgenerative.tables.derived import Derived as Derived
    from dpgenerative.tables.schema import Schema as Schema
    from dpgenerative.tables.sequences import NoReturnAfter as NoReturnAfter

_NAMES = {
    "fitting.clipping": ["Sparsified"],
    "fitting.options": ["BatchTerm", "Optimizer"],
    "fitting.recipe": ["ModelRecipe"],
    "local": ["ImagePixelizer", "LaplaceRandomizer", "VAEPerturber"],
    "meta.pipeline": ["sample_from"],
    "meta.predictors": ["SyntheticClassifier", "SyntheticRegressor"],
    "meta.search": ["PrivateSearch"],
    "meta.search_cost": ["SearchPrivacy", "search_privacy"],
    "privacy.budget": ["PrivacyBudget"],
    "synthesizers": [
        "DPArrayVAESynthesizer", "DPHFlowSynthesizer", "DPVAESynthesizer",
        "TableSynthesizer", "load",
    ],
    "synthesizers.architecture": ["FlowArchitecture", "VAEArchitecture"],
    "synthesizers.arrays": ["ArrayArchitecture"],
    "synthesizers.forecast": ["Forecast", "forecast"],
    "tables.column": ["Column"],
    "tables.compositions": ["Composition"],
    "tables.constraints": [
        "Determines", "FixedCombinations", "Impossible", "LessEqual",
    ],
    "tables.derived": ["Derived"],
    "tables.schema": ["Schema"],
    "tables.sequences": ["NoReturnAfter"],
}  # fmt: skip
"""Public names by module, as above."""
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
__all__ = ["__version__", *sorted(_HOMES)]


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
    return __all__
