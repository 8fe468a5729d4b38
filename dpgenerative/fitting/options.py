"""Groups of parameters: frozen objects that searches reach by ``group__name``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

from torch import Tensor

from dpgenerative._validation import Check, number, option
from dpgenerative.privacy.steps import AGGREGATIONS


def parameter(default: Any, check: Check) -> Any:
    """Return the field of a parameter, by its default and its check."""
    return field(default=default, metadata={"check": check})


@dataclass(frozen=True, repr=False)
class Options:
    """Base of parameter groups: fields are parameters, most by `parameter`.

    A group is frozen, so that clones share it. With `has_short_form` its first
    parameter stands for the whole group, as the name of an optimizer does.
    """

    has_short_form: ClassVar[bool] = False

    @classmethod
    def of(cls, value: Any) -> Self:
        """Return a group as it is, that of a short form, or the default for None."""
        if isinstance(value, cls):
            return value
        is_short = cls.has_short_form and value is not None
        return cls(value) if is_short else cls()  # type: ignore[call-arg]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name, as scikit-learn's searches ask for them."""
        return dict(vars(self))

    def __repr__(self) -> str:
        default = vars(type(self)())
        changed = [f"{k}={v!r}" for k, v in vars(self).items() if v != default[k]]
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_clone__(self) -> Self:
        return self

    def check(self, owner: str, group: str) -> None:
        """Raise ValueError for a parameter out of its range.

        Parameters
        ----------
        owner : str
            Name of the synthesizer, for the message.
        group : str
            Its parameter that this is.
        """
        for each in fields(self):
            if check := each.metadata.get("check"):
                check(owner, f"{group}__{each.name}", getattr(self, each.name))


@dataclass(frozen=True, repr=False)
class Optimizer(Options):
    """The optimizer of the noisy gradients; it does not affect the guarantee.

    Parameters
    ----------
    name : {"adam", "adabelief", "sgd"}, default="adam"
    learning_rate : float or "auto", default="auto"
        Step size at the start.
    averaging : float in [0, 1), default=0.995
        Decay of the exponential average of the weights; 0 keeps the last ones.
    momentum : float in [0, 1), default=0.9
        Momentum of "sgd"; of the others, the decay of the running mean of gradients
        (beta_1).
    schedule : {"linear", "constant"}, default="linear"
        Whether the step size falls to zero along a straight line, or stays.

    Examples
    --------
    Plain stochastic gradient descent:

    >>> from dpgenerative import Optimizer
    >>> plain = Optimizer("sgd", 0.1, averaging=0, momentum=0, schedule="constant")
    """

    name: str = parameter("adam", option("adam", "adabelief", "sgd"))
    learning_rate: float | str = parameter("auto", number(low=0, also=["auto"]))
    averaging: float = parameter(0.995, number(low=0, high=1, closed="left"))
    momentum: float = parameter(0.9, number(low=0, high=1, closed="left"))
    schedule: str = parameter("linear", option("linear", "constant"))

    has_short_form: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class BatchTerm(Options):
    """A divergence of whole sets of latents, and how its gradient is bounded.

    Parameters
    ----------
    divergence : None, str or callable, default=None
        As the synthesizer's parameter `divergence`, of which this is the long form.
    weight : float, default=1.0
        Weight of the divergence in the loss (the paper's alpha).
    max_grad_norm : float, optional
        Clipping norm of one partition's gradient; None means that of records times
        ``0.8 / batch size``, whatever the number b of partitions: the term adds noise
        of ``1.6 / b`` times that of the records (a tenth at 16).
    aggregation : {"term-wise", "micro", "batch"}, default="term-wise"
        How the gradient of both terms is bounded (`privacy.steps`). The last two are
        the paper's baselines, with far more noise; they clip flat.

    References
    ----------
    Takahashi, Takagi, Ono and Komatsu. Differentially Private Variational Autoencoders
    with Term-wise Gradient Aggregation. arXiv:2006.11204, 2020.
    """

    divergence: str | Callable[..., Tensor] | None = None
    weight: float = parameter(1.0, number(low=0, closed="left"))
    max_grad_norm: float | None = parameter(None, number(low=0, also=[None]))
    aggregation: str = parameter("term-wise", option(*AGGREGATIONS))

    has_short_form: ClassVar[bool] = True

    def function(self, by_name: Mapping[str, Callable[..., Tensor]]) -> Any:
        """Return the divergence as a function; a name selects one of `by_name`."""
        chosen = self.divergence
        return by_name[chosen] if isinstance(chosen, str) else chosen
