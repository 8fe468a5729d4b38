"""Estimators that learn a table under differential privacy and sample new rows."""

from dpgenerative.synthesizers.flow import DPHFlowSynthesizer

__all__ = ["DPHFlowSynthesizer"]
