"""Saved synthesizers, read back."""

from typing import Any

from dpgenerative._files import AnyPath
from dpgenerative.exceptions import FileFormatError
from dpgenerative.persistence.manifest import CHECKPOINT, CONTENT_ERRORS, damaged, read
from dpgenerative.persistence.rebuild import Bounded
from dpgenerative.persistence.registry import ESTIMATORS
from dpgenerative.synthesizers.base import Synthesizer


def load(path: AnyPath) -> Synthesizer:
    """Read a fitted synthesizer from a file that its method `save` wrote.

    No code in a file is run, whoever wrote it, and memory grows in proportion to its
    tensors. See :doc:`/persistence`.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    Synthesizer
        A `DPHFlowSynthesizer`, `DPVAESynthesizer`, `DPArrayVAESynthesizer` or a class
        that was registered. It samples the same rows for the same `random_state` and
        gives the same scores as the estimator saved; on a CPU, wherever it was fitted.

    Raises
    ------
    FileFormatError
        For a file that is foreign, damaged, or of another format: written by a newer
        version of this package, or by one before its first release.
    OSError
        If there is no such file, or it may not be read.

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
    if kind not in ESTIMATORS:
        raise FileFormatError(
            f"{path} holds a {kind!r}, which this version of dpgenerative does not "
            f"know; it knows {list(ESTIMATORS)}."
        )
    cls: Any = ESTIMATORS[kind]
    try:
        with Bounded(state["tensors"].values()):
            synthesizer: Synthesizer = cls._restored_from(state)
            for learned in state["learned"].values():
                if hasattr(learned, "sample"):
                    learned.sample(1)
        synthesizer.sample(1, random_state=0)
    except CONTENT_ERRORS as error:
        raise damaged(path, "its parts do not fit together") from error
    return synthesizer
