"""Shapes of the models of tables, as groups of parameters."""

from dataclasses import dataclass

from dpgenerative._validation import BUDGET_SHARE, dimension, option
from dpgenerative.fitting.options import Options, parameter
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

    n_bins: int | str = parameter("auto", dimension(2, ["auto"]))
    n_basis: int | str = parameter("auto", dimension(1, ["auto"]))
    hidden_units: int | str = parameter("auto", dimension(0, ["auto"]))
    anchored: bool = parameter(True, option(True, False))
    n_blocks: int = parameter(1, dimension())
    linear: str = parameter("none", option("none", "low-rank", "lu"))
    dequantization: str = parameter("uniform", option("uniform", "variational"))
    table_budget: float | str = parameter("auto", BUDGET_SHARE)
    rank: int = parameter(1, dimension())
    bias: bool = parameter(False, option(True, False))


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

    n_bins: int | str = parameter("auto", dimension(2, ["auto"]))
    n_basis: int | str = parameter("auto", dimension(1, ["auto"]))
    table_budget: float | str = parameter("auto", BUDGET_SHARE)
