"""Estimators that learn a table under differential privacy and sample new rows."""

from dpgenerative.synthesizers.flow import DPHFlowSynthesizer
from dpgenerative.synthesizers.loading import load
from dpgenerative.synthesizers.vae import DPVAESynthesizer

__all__ = ["DPHFlowSynthesizer", "DPVAESynthesizer", "load"]
