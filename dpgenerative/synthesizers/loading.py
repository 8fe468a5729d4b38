"""Saved synthesizers, read back."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

from dpgenerative.exceptions import FileFormatError
from dpgenerative.fitting.options import BatchTerm, Optimizer, Options, Sparsified
from dpgenerative.persistence.manifest import CHECKPOINT, CONTENT_ERRORS, damaged, read
from dpgenerative.synthesizers.arrays import ArrayArchitecture, DPArrayVAESynthesizer
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.flow import DPHFlowSynthesizer, FlowArchitecture
from dpgenerative.synthesizers.vae import DPVAESynthesizer, VAEArchitecture

_CLASSES = {
    cls.__name__: cls
    for cls in (DPHFlowSynthesizer, DPVAESynthesizer, DPArrayVAESynthesizer)
}
_ARCHITECTURES: dict[str, type[Options]] = {
    "DPHFlowSynthesizer": FlowArchitecture,
    "DPVAESynthesizer": VAEArchitecture,
    "DPArrayVAESynthesizer": ArrayArchitecture,
}
_RENAMED = {
    "architecture": "networks",
    "latent_law": "latent_distribution",
    "pixel_std": "std",
    "pixel_range": "value_range",
}
"""Parameters of format 1 that have other names now."""


def load(path: str | os.PathLike[str]) -> Synthesizer:
    """Read a fitted synthesizer from a file that its method `save` wrote.

    No code in a file is run, whoever wrote it, and no more memory is taken than its
    tensors fill. See :doc:`/persistence`.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    DPHFlowSynthesizer, DPVAESynthesizer or DPArrayVAESynthesizer
        Fitted: it samples the same rows for the same `random_state` and gives the same
        scores as the estimator saved. On a CPU, wherever it was fitted.

    Raises
    ------
    FileFormatError
        For a file that is foreign, damaged, or of a newer version of this package.
    OSError
        Where there is no such file, or it may not be read.

    Examples
    --------
    >>> import os, tempfile
    >>> import pandas as pd
    >>> import dpgenerative
    >>> frame = pd.DataFrame({"smokes": pd.Categorical(["yes", "no"] * 50)})
    >>> synthesizer = dpgenerative.DPHFlowSynthesizer(random_state=0).fit(frame)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "smokers.dpg")
    ...     synthesizer.save(path)
    ...     copy = dpgenerative.load(path)
    >>> copy.sample(9, random_state=1).equals(synthesizer.sample(9, random_state=1))
    True
    """
    kind, state = read(path)
    if kind == CHECKPOINT:
        raise FileFormatError(
            f"{path} is the checkpoint of an unfinished fit. It is as private as the "
            "rows: give it to fit(..., checkpoint=) with the same rows, and to nobody."
        )
    if kind not in _CLASSES:
        raise FileFormatError(
            f"{path} holds a {kind!r}, which this version of dpgenerative does not "
            f"know; it knows {list(_CLASSES)}."
        )
    try:
        if "reproducible" in state["parameters"]:
            kind, state = _of_format_1(kind, state)
        synthesizer = _CLASSES[kind]._restored_from(state)
        synthesizer.sample(1, random_state=0)
    except CONTENT_ERRORS as error:
        raise damaged(path, "its parts do not fit together") from error
    return synthesizer


def _of_format_1(
    kind: str, state: dict[str, dict[str, Any]]
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return kind and state with parameters in groups, and arrays apart from tables."""
    old = {_RENAMED.get(k, k): v for k, v in state["parameters"].items()}
    if old.get("image_shape") is not None:
        kind = "DPArrayVAESynthesizer"
    secure, seeded = old.pop("secure", False), old.pop("reproducible")
    old["noise"] = "secure" if secure else "reproducible" if seeded else "fresh"
    share = old.pop("sparsity")
    if old["clipping"] == "sparsified":
        old["clipping"] = Sparsified(share)
    old["optimizer"] = Optimizer(
        old["optimizer"], old.pop("learning_rate"), old.pop("averaging")
    )
    old["divergence"] = BatchTerm(
        old["divergence"], old.pop("alpha", 1.0), old.pop("clip_batch"),
        old.pop("aggregation", "term-wise"),
    )  # fmt: skip
    group = _ARCHITECTURES[kind]
    shape = {f.name: old.pop(f.name) for f in fields(group) if f.name in old}
    known = _CLASSES[kind]().get_params(deep=False)
    new = {name: value for name, value in old.items() if name in known}
    return kind, {**state, "parameters": {**new, "architecture": group(**shape)}}
