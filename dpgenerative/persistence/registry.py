"""Registry of names in files and commands: estimators and records of public facts."""

from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
ESTIMATORS: dict[str, type] = {}
"""Classes whose fitted objects files hold, by their own names."""
MODELS: dict[str, type] = {}
"""Synthesizers of tables by the names that forecasts and the command line take."""
RECORDS: dict[str, type] = {}
"""Dataclasses that a file may hold, by their own names."""


def register(model: str | None = None) -> Callable[[type[_T]], type[_T]]:
    """Let files hold the fitted objects of a class of synthesizers.

    Parameters
    ----------
    model : str, optional
        Name under which forecasts and the command line offer it: of tables only. Its
        constructor takes `epsilon`, `delta` and `schema`.

    Raises
    ------
    ValueError
        If another class has the name.

    Examples
    --------
    >>> from dpgenerative.persistence.registry import MODELS, register
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> MODELS["flow"] is DPHFlowSynthesizer
    True
    """

    def enter(cls: type[_T]) -> type[_T]:
        _enter(ESTIMATORS, cls.__name__, cls)
        if model is not None:
            _enter(MODELS, model, cls)
        return cls

    return enter


def storable(cls: type[_T]) -> type[_T]:
    """Let files hold a dataclass of public facts."""
    _enter(RECORDS, cls.__name__, cls)
    return cls


def _enter(registry: dict[str, type], name: str, cls: type) -> None:
    """Enter a class; a module that is imported anew replaces its own."""
    other = registry.setdefault(name, cls)
    if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
        raise ValueError(f"{name!r} is registered already, for {other.__module__}.")
    registry[name] = cls
