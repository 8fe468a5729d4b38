"""Transformers under local differential privacy: every record is perturbed on its own.

Nobody has to be trusted with the rows: what leaves a transformer reveals little of any
record that went in. It is paid for with far more noise than a private fit adds.
"""

from dpgenerative.local.images import ImagePixelizer
from dpgenerative.local.latents import VAEPerturber
from dpgenerative.local.report import LocalReport
from dpgenerative.local.tables import LaplaceRandomizer

__all__ = ["ImagePixelizer", "LaplaceRandomizer", "LocalReport", "VAEPerturber"]
