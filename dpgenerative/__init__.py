"""Differentially private synthetic tables by deep generative models."""

from dpgenerative.schema import Column, Schema
from dpgenerative.synthesizers import DPHFlowSynthesizer, DPVAESynthesizer, load

__version__ = "0.1.0"
__all__ = [
    "Column",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "Schema",
    "__version__",
    "load",
]
