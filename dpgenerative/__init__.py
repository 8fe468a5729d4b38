"""Differentially private synthetic tables by deep generative models."""

from dpgenerative.pipeline import sample_from
from dpgenerative.predictors import SyntheticClassifier, SyntheticRegressor
from dpgenerative.privacy.budget import PrivacyBudget
from dpgenerative.schema import Column, Schema
from dpgenerative.search import PrivateSearchCV, SearchPrivacy, search_privacy
from dpgenerative.synthesizers import DPHFlowSynthesizer, DPVAESynthesizer, load

__version__ = "0.1.0"
__all__ = [
    "Column",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "PrivacyBudget",
    "PrivateSearchCV",
    "Schema",
    "SearchPrivacy",
    "SyntheticClassifier",
    "SyntheticRegressor",
    "__version__",
    "load",
    "sample_from",
    "search_privacy",
]
