"""Saved synthesizers, read back."""

from dpgenerative._files import AnyPath
from dpgenerative.exceptions import FileFormatError
from dpgenerative.persistence.manifest import CHECKPOINT, CONTENT_ERRORS, damaged, read
from dpgenerative.persistence.rebuild import Bounded
from dpgenerative.synthesizers.arrays import DPArrayVAESynthesizer
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.flow import DPHFlowSynthesizer
from dpgenerative.synthesizers.vae import DPVAESynthesizer

_CLASSES: dict[str, type[Synthesizer]] = {
    cls.__name__: cls
    for cls in (DPHFlowSynthesizer, DPVAESynthesizer, DPArrayVAESynthesizer)
}


def load(path: AnyPath) -> Synthesizer:
    """Read a fitted synthesizer from a file that its method `save` wrote.

    No code in a file is run, whoever wrote it, and memory is taken in proportion to its
    tensors. See :doc:`/persistence`.

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
    if kind not in _CLASSES:
        raise FileFormatError(
            f"{path} holds a {kind!r}, which this version of dpgenerative does not "
            f"know; it knows {list(_CLASSES)}."
        )
    try:
        with Bounded(state["tensors"].values()):
            synthesizer = _CLASSES[kind]._restored_from(state)
            for learned in state["learned"].values():
                if hasattr(learned, "sample"):
                    learned.sample(1)
        synthesizer.sample(1, random_state=0)
    except CONTENT_ERRORS as error:
        raise damaged(path, "its parts do not fit together") from error
    return synthesizer
