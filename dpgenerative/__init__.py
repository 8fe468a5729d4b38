"""Differentially private synthetic tables by deep generative models."""

from dpgenerative.schema import Column, Schema
from dpgenerative.synthesizers import DPHFlowSynthesizer

__version__ = "0.1.0"
__all__ = ["Column", "DPHFlowSynthesizer", "Schema", "__version__"]
