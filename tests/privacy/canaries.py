"""Searches bytes for values that must not be in them, however they were written."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np


def encodings(value: str | int | float) -> list[bytes]:
    """Return the bytes that a value can have in a file.

    Text in UTF-8 and UTF-16; numbers in 32 and 64 bits and both byte orders, as text,
    and whole numbers as pickles write them.
    """
    if isinstance(value, str):
        return [value.encode(name) for name in ("utf-8", "utf-16-le", "utf-16-be")]
    found = [repr(value).encode(), np.float32(value).tobytes()]
    found += [struct.pack(order + "d", value) for order in "<>"]
    found += [struct.pack(">f", np.float32(value))]
    if isinstance(value, int):
        found += [struct.pack(order + "q", value) for order in "<>"]
        found += [value.to_bytes((value.bit_length() + 8) // 8, "little", signed=True)]
    return found


def traces(data: bytes, values: Iterable[str | int | float]) -> list[str | int | float]:
    """Return the values that occur in the data in any encoding."""
    return [v for v in values if any(code in data for code in encodings(v))]
