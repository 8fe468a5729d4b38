"""Trials of a private search that leave nothing behind but what they return.

How many trials there are, and which of them won, must stay unknown: Theorem 2 of
Papernot and Steinke (2022) counts on it. A learner that draws from a global generator,
logs or prints would tell, and so would hits of the package's caches. Not covered is
what counts like a clock: caches of other libraries, counters of the interpreter, memory
and processor time.
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
def secluded() -> Iterator[None]:
    """Let nothing show that the code inside has run, or how often.

    It neither prints, logs nor warns, and draws from global generators of numpy, torch
    and Python that start anew from the system's entropy; those of before come back.
    """
    # The seeds that learners keep would show how many were drawn before them.
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
def emptied_caches() -> Iterator[None]:
    """Empty all caches of the package in the end, however it comes.

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
    """Let nothing be printed, by compiled code either."""
    with open(os.devnull, "w") as null, redirect_stdout(null), redirect_stderr(null):
        _flush()
        held = {}
        for stream in (1, 2):
            with suppress(OSError):  # closed, as of a service
                held[stream] = os.dup(stream)
                os.dup2(null.fileno(), stream)
        try:
            yield
        finally:
            _flush()
            for stream, copy in held.items():
                os.dup2(copy, stream)
                os.close(copy)


def _flush() -> None:
    """Write what Python and the C library keep in their buffers."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()  # type: ignore[union-attr]
    with suppress(OSError, TypeError, AttributeError):  # no such library by this name
        ctypes.CDLL(None).fflush(None)
