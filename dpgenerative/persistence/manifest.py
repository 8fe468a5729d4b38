"""Fitted estimators as files: a JSON manifest and tensors, and nothing that runs.

A file is in the safetensors format: tensors under their names, and three strings.
``dpgenerative`` is the version of what is described here, ``manifest`` says what the
estimator is made of, ``sha256`` is a checksum of the manifest and all tensors.

In the manifest, JSON's null, booleans, numbers, strings and lists stand for themselves.
An object has one key, which says what it stands for: a tuple, a dictionary, a tensor or
array by its name, a dtype, a number or time that JSON does not know, or an object of
one of the classes in `RECORDS`. Reading builds these and no others, and holds no more
memory than the file has tensors. Networks are not in the manifest: the constructor of
the model makes them, and tensors fill them (`persistence.rebuild`).
"""

import datetime as dt
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from dpgenerative._files import AnyPath, atomic_write, require_file
from dpgenerative.encoding.calendar import Calendar
from dpgenerative.encoding.classes import ClassGaussians, LabelledPixels
from dpgenerative.encoding.codecs import IntervalCodec, LevelCodec
from dpgenerative.encoding.increments import Increment
from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.encoding.nesting import Nesting
from dpgenerative.encoding.pixels import Pixels
from dpgenerative.encoding.places import PlaceColumn, Places
from dpgenerative.encoding.series import Series
from dpgenerative.encoding.stick_breaking import StickBreaking
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.exceptions import FileFormatError
from dpgenerative.fitting.clipping import Sparsified
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.models import priors
from dpgenerative.models.embedding import ClassCorrection
from dpgenerative.models.factors import TableFactor
from dpgenerative.persistence.registry import ESTIMATORS, RECORDS, storable
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.moments import MOMENTS
from dpgenerative.privacy.norm import NORM
from dpgenerative.privacy.plan import PrivacyPlan, Release
from dpgenerative.privacy.report import PrivacyReport
from dpgenerative.privacy.tables import TABLES
from dpgenerative.tables import constraints
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import TableFormat
from dpgenerative.tables.dtypes import decimal_scale
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import Sequences
from dpgenerative.tables.values import as_python

FORMAT, OLDEST = 4, 2
"""Version of the files that are written, and the oldest that are read."""
CHECKPOINT = "unfinished fit: private, do not release"
"""Kind that a file states if it holds a checkpoint."""


_RECORDS = (
    Column, Schema, TableFormat, Sequences, TableTransformer, LevelCodec, IntervalCodec,
    Increment, StickBreaking, Calendar, Nesting, PlaceColumn, Places,
    PrivacyPlan, Release, PrivacyReport, priors.NormalPrior, priors.SparsePrior,
    priors.MixturePrior, priors.GaussianPrior, priors.GaussianMixture, Pixels,
    Series, *constraints.KINDS.values(), Optimizer, BatchTerm, Sparsified,
    TableFactor, ClassCorrection, ClassGaussians, LabelledPixels,
)  # fmt: skip
for _record in _RECORDS:  # of rooms below this one; others register their own
    storable(_record)
_NAMED = {
    "marginal": MARGINALS, "moment": MOMENTS, "norm": NORM, "prior": LATENTS,
    "table": TABLES,
}  # fmt: skip
"""Releases by their names in plans of format 2."""
_STRINGS = ("dpgenerative", "manifest", "sha256")
_ARROW = ("string", "decimal32", "decimal64", "decimal128", "decimal256")
"""Types of Arrow that are made by the function of their name."""
CONTENT_ERRORS = (
    ArithmeticError, AttributeError, AssertionError, LookupError, MemoryError,
    RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors that contents which do not fit together may raise."""


# Writing ------------------------------------------------------------------------------


def write(path: AnyPath, kind: str, state: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the parts of an estimator to one file.

    Parameters
    ----------
    path : path-like
        The file to write; one that is there is replaced, as a whole or not at all.
    kind : str
        Name of the estimator's class, one of `ESTIMATORS`, or `CHECKPOINT`; that
        file is for its owner's eyes only.
    state : mapping of str to mapping
        Parts of the estimator by name, each with its values by name.

    Raises
    ------
    TypeError
        For an estimator of another class, or a value that a file cannot hold; the
        message says where it stands.
    """
    if kind not in (*ESTIMATORS, CHECKPOINT):
        raise TypeError(
            f"save knows {list(ESTIMATORS)}; got an estimator of type {kind!r}. "
            "Pickle others, and load pickles only from those whom you trust."
        )
    tensors: dict[str, Tensor] = {}
    parts = {part: _encode_items(v, part, tensors) for part, v in state.items()}
    manifest = json.dumps({"estimator": kind, **parts}, allow_nan=False)
    strings = str(FORMAT), manifest, _checksum(manifest, tensors)
    with atomic_write(path, private=kind == CHECKPOINT) as draft:
        # Not by `save_file`, which makes another draft, by permissions of its own.
        draft.write_bytes(save(tensors, dict(zip(_STRINGS, strings, strict=True))))


def text_of(value: Any) -> str:
    """Return text that is equal for values that a file stores alike.

    Raises
    ------
    TypeError
        For a value that a file cannot hold.
    """
    tensors: dict[str, Tensor] = {}
    return _checksum(json.dumps(_encode(value, "", tensors)), tensors)


def _checksum(manifest: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(manifest.encode())
    for name in sorted(tensors):
        digest.update(tensors[name].numpy().tobytes())
    return digest.hexdigest()


def _encode(value: Any, where: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value's entry of the manifest; put its tensors aside."""
    value = as_python(value)
    cls = type(value)
    if cls is float and not math.isfinite(value):
        return {"number": repr(value)}
    if value is None or cls in (bool, int, float, str):
        return value
    if cls in (list, range):
        return _encode_list(value, where, tensors)
    if cls is tuple:
        return {"tuple": _encode_list(value, where, tensors)}
    if cls is dict:
        return {"dict": _encode_list(map(list, value.items()), where, tensors)}
    if RECORDS.get(cls.__name__) is cls:
        facts = {f.name: getattr(value, f.name) for f in fields(value)}
        return {cls.__name__: _encode_items(facts, where, tensors)}
    if cls is Tensor:
        tensors[where] = value.detach().cpu().contiguous().clone()
        return {"tensor": where}
    if cls is np.ndarray and value.dtype.kind in "biuf":
        tensors[where] = torch.from_numpy(np.array(value, order="C"))
        return {"array": where}
    if cls is np.ndarray and value.dtype.kind in "OU":
        values = _encode_list(value.tolist(), where, tensors)
        return {"objects": [values, "numpy", value.dtype.str]}
    if isinstance(value, (np.dtype, pd.api.extensions.ExtensionDtype)):
        return _encode_dtype(value, where)
    return _encode_time(value, where)


def _encode_list(values: Any, where: str, tensors: dict[str, Tensor]) -> list[Any]:
    return [_encode(v, f"{where}.{i}", tensors) for i, v in enumerate(values)]


def _encode_items(
    items: Mapping[str, Any], where: str, tensors: dict[str, Tensor]
) -> dict[str, Any]:
    return {name: _encode(v, f"{where}.{name}", tensors) for name, v in items.items()}


def _encode_dtype(dtype: Any, where: str) -> dict[str, Any]:
    """Return the kind of a dtype, and the arguments that make it."""
    if isinstance(dtype, pd.CategoricalDtype):
        labels = dtype.categories
        levels = _encode_list(labels.tolist(), where, {})
        inner = _encode_dtype(labels.dtype, where)["dtype"]
        text = ["category", levels, inner, dtype.ordered]
    elif isinstance(dtype, pd.StringDtype):
        text = ["string", dtype.storage, getattr(dtype, "na_value", pd.NA) is pd.NA]
    elif isinstance(dtype, np.dtype):
        text = ["numpy", dtype.str]
    elif decimal_scale(dtype) is not None:
        inner = dtype.pyarrow_dtype
        text = ["arrow", f"decimal{inner.bit_width}", inner.precision, inner.scale]
    elif str(dtype) == "string[pyarrow]":  # which pandas reads as its own strings
        text = ["arrow", "string"]
    else:
        text = ["pandas", str(dtype)]
    return _if_it_comes_back("dtype", text, dtype, where)


def _encode_time(value: Any, where: str) -> dict[str, Any]:
    """Return a time, interval or decimal, as levels may be; refuse all else."""
    if isinstance(value, (pd.Timestamp, pd.Timedelta)):
        zone = str(value.tz) if getattr(value, "tz", None) is not None else None
        text = [type(value).__name__, int(value.asm8.astype(int)), value.unit, zone]
        return _if_it_comes_back("time", text, value, where)
    if isinstance(value, pd.Interval):
        ends = _encode_list([value.left, value.right], where, {})
        return {"interval": [*ends, value.closed]}
    if type(value) not in _TEXTS:
        return _refuse(value, where)
    tag = _TEXTS[type(value)]
    text = [str(value), *([value.freqstr] if tag == "period" else [])]
    return _if_it_comes_back(tag, text, value, where)


def _if_it_comes_back(tag: str, text: Any, value: Any, where: str) -> dict[str, Any]:
    """Return an entry of the manifest; refuse what it would not be read as."""
    with suppress(*CONTENT_ERRORS):
        if _decode({tag: text}, {}) == value:
            return {tag: text}
    return _refuse(value, where)


def _refuse(value: Any, where: str) -> NoReturn:
    part, _, name = where.partition(".")
    what = f"the parameter {name!r}" if part == "parameters" else repr(where)
    raise TypeError(
        f"save cannot store {what}: files hold no code, and it is {value!r} of type "
        f"{type(value).__name__}. What a fitted estimator does not need (a divergence, "
        "a random state) can be replaced by set_params before saving; a prior must be "
        "one of dpgenerative.models.priors."
    )


# Reading ------------------------------------------------------------------------------


def read(
    path: AnyPath, opened: IO[bytes] | None = None
) -> tuple[str, dict[str, dict[str, Any]]]:
    """Return the kind and the state that `write` was given.

    Parameters
    ----------
    path : path-like
    opened : file, optional
        The file, opened before: it is read even if the path leads elsewhere by now.

    Returns
    -------
    kind : str
    state : dict of str to dict

    Raises
    ------
    FileFormatError
        For a file of something else, of another format, or damaged.
    OSError
        If there is no such file, or it may not be read.
    """
    path = require_file(path)
    strings, tensors = _contents(path, opened)
    _check_format(path, strings)
    manifest = strings.get("manifest", "")
    if strings.get("sha256") != _checksum(manifest, tensors):
        raise damaged(path, "its checksum differs")
    try:
        tree = json.loads(manifest)
        kind = str(tree.pop("estimator"))
        if kind != CHECKPOINT:  # that may hold networks of the user's own
            _check_indices(tensors)
        return kind, {k: _decode_items(part, tensors) for k, part in tree.items()}
    except CONTENT_ERRORS as error:
        raise damaged(path, "its manifest cannot be read") from error


def _check_indices(tensors: Mapping[str, Tensor]) -> None:
    """Refuse indices beyond the file's contents: the largest one sets memory use."""
    for tensor in tensors.values():
        is_integer = not (tensor.is_floating_point() or tensor.dtype == torch.bool)
        if is_integer and tensor.numel():
            low, high = map(int, torch.aminmax(tensor))
            if low < 0 or high > sum(x.numel() for x in tensors.values()):
                raise ValueError("index out of range")


def damaged(path: AnyPath, why: str) -> FileFormatError:
    """Return the error of a file that began as one of ours."""
    return FileFormatError(
        f"{path} is a model file of dpgenerative, but {why}: it was cut short, changed "
        "or damaged. Copy it again, or save the estimator again."
    )


def _contents(
    path: Path, opened: IO[bytes] | None = None
) -> tuple[dict[str, str], dict[str, Tensor]]:
    source = path if opened is None else Path(f"/dev/fd/{opened.fileno()}")
    if not source.exists():  # Windows keeps others from replacing what is open
        source = path
    with source.open("rb") as file:
        start = file.read(64)
    try:
        with safe_open(source, framework="pt") as tensors:
            strings = tensors.metadata() or {}
            if "dpgenerative" not in strings:
                raise _foreign(path)
            names = list(tensors.keys())
            # Copies lie where others of their kind do: their sums round alike.
            return strings, {name: _copied(tensors.get_tensor(name)) for name in names}
    except (SafetensorError, *CONTENT_ERRORS) as error:
        if isinstance(error, FileFormatError):
            raise
        # The strings stand first, in any order.
        ours = any(f'"{name}":'.encode() in start for name in _STRINGS)
        raise (damaged(path, "incomplete") if ours else _foreign(path)) from error


def _copied(tensor: Tensor) -> Tensor:
    """Return a copy of all bytes: a copy of booleans would repair changed ones."""
    is_bool = tensor.dtype == torch.bool
    return (tensor.view(torch.uint8) if is_bool else tensor).clone().view(tensor.dtype)


def _foreign(path: Path) -> FileFormatError:
    return FileFormatError(
        f"{path} is not a model file of dpgenerative, nor a checkpoint: those are "
        "written by the method save of a fitted synthesizer and by fit(checkpoint=...)."
    )


def _check_format(path: Path, strings: Mapping[str, str]) -> None:
    text = strings["dpgenerative"]
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 9):
        raise damaged(path, "its version cannot be read")
    if int(text) < OLDEST:
        raise FileFormatError(
            f"{path} has format {text}: it was written by a development version before "
            "the first release. Fit again, or load it with the version that wrote it."
        )
    if int(text) > FORMAT:
        raise FileFormatError(
            f"{path} has format {text}, and this version of dpgenerative reads formats "
            f"up to {FORMAT}. Install a newer version."
        )


def _decode(code: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Return the value of an entry of the manifest, with its tensors."""
    if isinstance(code, list):
        return [_decode(v, tensors) for v in code]
    if not isinstance(code, dict):
        return code
    ((tag, content),) = code.items()
    if tag in RECORDS:
        facts = _decode_items(content, tensors)
        if tag == "TableTransformer":  # files of its first days name what is given
            facts.pop("given", None)
        return RECORDS[tag](**(_renewed(facts) if tag == "PrivacyPlan" else facts))
    if tag in ("tensor", "array"):
        return tensors[content] if tag == "tensor" else tensors[content].numpy()
    if tag == "objects":
        values, dtype = _decode(content[0], tensors), _decode_dtype(content[1:])
        longest = max((len(v) for v in values if isinstance(v, str)), default=1)
        if dtype.kind == "U" and dtype.itemsize > 4 * max(1, longest):
            raise ValueError("text is shorter than the space it is to take")
        return np.array(values, dtype=dtype)
    return _BUILDERS[tag](_decode(content, tensors))


def _renewed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a plan, which named every release in files of format 2."""
    named = {f"{name}_multiplier": facts.get(f"{name}_multiplier") for name in _NAMED}
    releases = tuple(
        replace(_NAMED[name.removesuffix("_multiplier")], multiplier=z)
        for name, z in named.items()
        if z is not None and math.isfinite(z)
    )
    others = {name: fact for name, fact in facts.items() if name not in named}
    is_older = any(z is not None for z in named.values())
    return {"releases": releases, **others} if is_older else others


def _decode_items(
    codes: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> dict[str, Any]:
    return {name: _decode(code, tensors) for name, code in codes.items()}


def _decode_dtype(code: list[Any]) -> Any:
    if code[0] == "category":
        _, levels, labels, ordered = code
        index = pd.Index(levels, dtype=_decode_dtype(labels), tupleize_cols=False)
        return pd.CategoricalDtype(index, ordered)
    if code[0] == "string":
        _, storage, has_na = code
        if has_na:
            return pd.StringDtype(storage)
        return pd.StringDtype(storage, na_value=np.nan)
    if code[0] == "arrow" and code[1] in _ARROW:
        return pd.ArrowDtype(getattr(pa, code[1])(*code[2:]))
    family, text = code
    dtype = np.dtype(text) if family == "numpy" else pd.api.types.pandas_dtype(text)
    if isinstance(dtype, np.dtype) and dtype.kind not in "biufOUmM":
        raise ValueError(f"dtype {dtype}")
    return dtype


def _decode_time(code: list[Any]) -> Any:
    kind, count, unit, zone = code
    if kind == "Timedelta":
        return pd.Timedelta(np.timedelta64(count, unit))
    moment = pd.Timestamp(np.datetime64(count, unit))
    return moment if zone is None else moment.tz_localize("UTC").tz_convert(zone)


_TEXTS = {dt.date: "date", dt.time: "clock", Decimal: "decimal", pd.Period: "period"}
_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "number": float,
    "tuple": tuple,
    "dict": dict,
    "dtype": _decode_dtype,
    "time": _decode_time,
    "interval": lambda parts: pd.Interval(*parts),
    "date": lambda parts: dt.date.fromisoformat(*parts),
    "clock": lambda parts: dt.time.fromisoformat(*parts),
    "decimal": lambda parts: Decimal(*parts),
    "period": lambda parts: pd.Period(*parts),
}
