"""Differentially private synthetic tables by deep generative models."""

from dpgenerative.predictors import SyntheticClassifier, SyntheticRegressor
from dpgenerative.privacy.budget import PrivacyBudget
from dpgenerative.schema import Column, Schema
from dpgenerative.synthesizers import DPHFlowSynthesizer, DPVAESynthesizer

__version__ = "0.1.0"
__all__ = [
    "Column",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "PrivacyBudget",
    "Schema",
    "SyntheticClassifier",
    "SyntheticRegressor",
    "__version__",
]
