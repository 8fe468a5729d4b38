"""Estimators that learn rows under differential privacy and sample new ones."""

from dpgenerative.synthesizers.arrays import DPArrayVAESynthesizer
from dpgenerative.synthesizers.flow import DPHFlowSynthesizer
from dpgenerative.synthesizers.loading import load
from dpgenerative.synthesizers.tables import TableSynthesizer
from dpgenerative.synthesizers.vae import DPVAESynthesizer

__all__ = [
    "DPArrayVAESynthesizer",
    "DPHFlowSynthesizer",
    "DPVAESynthesizer",
    "TableSynthesizer",
    "load",
]
