"""Shapes of the models of tables, as groups of parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpgenerative._validation import Check, dimension, number, option
from dpgenerative.fitting.options import Options
from dpgenerative.persistence.registry import storable
from dpgenerative.synthesizers.latents import LatentOptions


@storable
@dataclass(frozen=True, repr=False)
class FlowArchitecture(Options):
    """Shape of the flow: the resolution of columns, and the blocks of the paper.

    Parameters
    ----------
    n_bins : int or "auto", default="auto"
        Number of intervals aimed at per numeric column.
    n_basis : int or "auto", default="auto"
        Degrees of freedom of an ordered column.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layer; 0 keeps the linear conditioner alone.
    anchored : bool, default=True
        Start at the private marginals. False makes all blocks the paper's; its whole
        setup is `DPHFlowSynthesizer.published`.
    n_blocks : int, default=1
        Number of blocks.
    linear : {"none", "low-rank", "lu"}, default="none"
        Linear flow at the end of every block.
    dequantization : {"uniform", "variational"}, default="uniform"
        How cells become points, where later blocks need points.
    table_budget : float in [0, 1) or "auto", default="auto"
        Share of the budget, in units of squared inverse noise, that compares and counts
        tables of a few columns after training (`fitting.workload`). A quarter of the
        rule's share more corrects a last column of classes (`fitting.embedding`).
    rank : int, default=1
        Rank of the low-rank linear flow.
    bias : bool, default=False
        Whether the low-rank linear flow has a bias.
    """

    n_bins: int | str = "auto"
    n_basis: int | str = "auto"
    hidden_units: int | str = "auto"
    anchored: bool = True
    n_blocks: int = 1
    linear: str = "none"
    dequantization: str = "uniform"
    table_budget: float | str = "auto"
    rank: int = 1
    bias: bool = False

    checks: ClassVar[Mapping[str, Check]] = {
        "n_bins": dimension(2, ["auto"]),
        "n_basis": dimension(1, ["auto"]),
        "hidden_units": dimension(0, ["auto"]),
        "anchored": option(True, False),
        "n_blocks": dimension(),
        "linear": option("none", "low-rank", "lu"),
        "dequantization": option("uniform", "variational"),
        "table_budget": number(low=0, high=1, closed="left", also=["auto"]),
        "rank": dimension(),
        "bias": option(True, False),
    }


@storable
@dataclass(frozen=True, repr=False)
class VAEArchitecture(LatentOptions):
    """Latents of an autoencoder of tables, and the resolution of columns.

    It has the parameters of `LatentOptions`, which come first, and three of its own.

    Parameters
    ----------
    n_bins : int or "auto", default="auto"
        Number of intervals aimed at per numeric column.
    n_basis : int or "auto", default="auto"
        Degrees of freedom of an ordered column.
    table_budget : float in [0, 1) or "auto", default="auto"
        Share of the budget, in units of squared inverse noise, that compares and counts
        tables of a few columns after training (`fitting.workload`).
    """

    n_bins: int | str = "auto"
    n_basis: int | str = "auto"
    table_budget: float | str = "auto"

    checks: ClassVar[Mapping[str, Check]] = {
        **LatentOptions.checks,
        "n_bins": dimension(2, ["auto"]),
        "n_basis": dimension(1, ["auto"]),
        "table_budget": number(low=0, high=1, closed="left", also=["auto"]),
    }
