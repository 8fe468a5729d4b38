"""Trials of a private search without side effects.

The number of trials, and which of them won, must stay secret: Theorem 2 of Papernot and
Steinke (2022) requires it. A learner that draws from a global generator, logs or prints
would reveal them, and so would hits of the package's caches. Not covered are caches of
other libraries, counters of the interpreter, memory and processor time.
"""

import ctypes
import logging
import os
import random
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import _lru_cache_wrapper

import numpy as np
import torch


@contextmanager
def without_side_effects() -> Iterator[None]:
    """Suppress every side effect of the code inside.

    It neither prints, logs nor warns. It draws from global generators of numpy, torch
    and Python that start from the system's entropy; their states are restored after.
    """
    # The seeds that learners store would show how many were drawn before them.
    level, pythons = logging.root.manager.disable, random.getstate()
    numpys = np.random.get_state()  # noqa: NPY002
    with (
        torch.random.fork_rng(),
        warnings.catch_warnings(action="ignore"),
        np.errstate(all="ignore"),
        _silenced(),
    ):
        np.random.seed()  # noqa: NPY002
        torch.seed()
        random.seed()
        logging.disable()
        try:
            yield
        finally:
            logging.disable(level)
            random.setstate(pythons)
            np.random.set_state(numpys)  # noqa: NPY002


@contextmanager
def clearing_caches() -> Iterator[None]:
    """Clear all caches of the package at the end, also after an error.

    Hits and misses would show how many trials ran inside.
    """
    try:
        yield
    finally:
        package, _, _ = __name__.partition(".")
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == package:
                for value in list(vars(module).values()):
                    if isinstance(value, _lru_cache_wrapper):
                        value.cache_clear()


@contextmanager
def _silenced() -> Iterator[None]:
    """Discard what is printed, also by compiled code."""
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        _flush()
        copies = {}
        for stream in (1, 2):
            with suppress(OSError):  # closed, as of a service
                copies[stream] = os.dup(stream)
                os.dup2(null.fileno(), stream)
        try:
            yield
        finally:
            _flush()
            for stream, copy in copies.items():
                os.dup2(copy, stream)
                os.close(copy)


def _flush() -> None:
    """Write what Python and the C library keep in their buffers."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    with suppress(OSError, TypeError, AttributeError):  # no such library by this name
        ctypes.CDLL(None).fflush(None)
