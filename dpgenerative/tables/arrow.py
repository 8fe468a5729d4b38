"""Tables and columns of other libraries (pyarrow, polars), to pandas and back.

Types alone decide, never values. In pandas the columns have Arrow's dtypes, so that
integers stay integers where some are missing. The levels of a dictionary are those
that occur, so they count as strings; those of a polars ``Enum`` belong to its type, as
those of a pandas ``category`` do.
"""

import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import pandas as pd
import pyarrow as pa

from dpgenerative.exceptions import UnsupportedColumnError

_ROW_LABELS = re.compile(r"__index_level_\d+__")

Written = tuple[tuple[Hashable, str], ...]
"""By column, the name of an Arrow type of text that pandas holds as another one."""
_IN_PANDAS = {
    "large_string": pa.string(), "string_view": pa.string(), "binary_view": pa.binary()
}  # fmt: skip
"""Types of text and bytes that pandas does not read, and those it reads instead."""


def is_foreign(data: Any) -> bool:
    """Whether this is a table or column of another library with Arrow's C interface.

    Raises
    ------
    TypeError
        For rows that are not in memory.
    """
    # By type: an object of private rows could run code of its own when it is asked.
    kind = type(data)
    if is_dataset(kind) or is_query(kind):
        refuse_unread(data)
    speaks = hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")
    return speaks and not issubclass(kind, (pd.DataFrame, pd.Series))


def refuse_unread(data: Any) -> None:
    """Raise TypeError for paths, datasets and queries: their rows are not in memory."""
    kind = type(data)
    if is_path(kind) or is_dataset(kind) or is_query(kind):
        raise TypeError(
            f"A {kind.__name__} is no table yet; fit alone reads one by chunks, as X. "
            "Read the rows first: collect(), to_table(), pandas.read_parquet or "
            "read_csv."
        )


def is_path(kind: type) -> bool:
    """Whether this type names files."""
    return issubclass(kind, (str, os.PathLike))


def is_dataset(kind: type) -> bool:
    """Whether this is a type of datasets of pyarrow."""
    return hasattr(kind, "get_fragments")


def is_query(kind: type) -> bool:
    """Whether this is a type of queries that have not been run yet (polars)."""
    return hasattr(kind, "collect_schema") and not hasattr(kind, "__arrow_c_stream__")


def in_pandas(owner: str, data: Any) -> Any:
    """Convert a table or column of another library to pandas; return others as is."""
    return from_container(owner, data)[0] if is_foreign(data) else data


def table_in_pandas(owner: str, data: Any) -> Any:
    """Convert a table that is in memory to pandas; raise TypeError for a path."""
    refuse_unread(data)
    return in_pandas(owner, data)


def from_container(owner: str, data: Any) -> tuple[Any, str, Written]:
    """Return a foreign table or column in pandas, its container, and its types of text.

    The container is "frame" or "series", preceded by the library where samples can be
    returned in it: "polars frame".
    """
    is_typed = hasattr(data, "dtype") or hasattr(data, "type")
    is_column = is_typed and not hasattr(data, "columns")
    table, levels = _table(data, is_column), {}
    names = names_without_labels(table.schema)
    require_distinct(owner, names)
    container = container_of(data, "series" if is_column else "frame")
    if container.startswith("polars"):
        levels = enums({data.name: data.dtype} if is_column else data.schema)
    frame: Any = as_frame(table.select(names), levels)
    if is_column:
        frame = frame.iloc[:, 0].rename(getattr(data, "name", None) or None)
    return frame, container, written(table.select(names).schema)


def require_distinct(owner: str, names: Iterable[Hashable]) -> None:
    """Require column names that differ."""
    names = list(names)
    if labels := [name for name in names if are_row_labels(name)]:
        raise ValueError(
            f"{owner} got row labels as a column, {labels[0]!r}, as pandas writes "
            "them to files, but no note of pandas that they are its index. Drop the "
            "column; if it holds data, rename it."
        )
    if repeated := [name for name, n in Counter(names).items() if n > 1]:
        raise ValueError(f"{owner} needs distinct column names; repeated: {repeated}.")


def are_row_labels(name: Hashable) -> bool:
    """Whether pandas names so what it writes of row labels without a name."""
    return _ROW_LABELS.fullmatch(str(name)) is not None


def names_without_labels(schema: pa.Schema) -> list[str]:
    """Return the names of columns but for row labels that pandas notes as its index.

    An index with a name stays a column.
    """
    index: Any = ()
    with suppress(ValueError, AttributeError):  # notes that pandas did not write
        index = (schema.pandas_metadata or {}).get("index_columns", ())
    return [
        name for name in schema.names if name not in index or not are_row_labels(name)
    ]


def container_of(data: Any, kind: str) -> str:
    """Return the name of a container, after that of a library that samples can have."""
    library = type(data).__module__.partition(".")[0]
    return f"{library} {kind}" if library in ("polars", "pyarrow") else kind


def written(schema: pa.Schema) -> Written:
    """Return the types of text that pandas has another dtype for, by column."""
    return tuple(
        (field.name, str(field.type))
        for field in schema
        if field.type != pa.string() and _plain_type(field.type) == pa.string()
    )


def as_frame(table: pa.Table, levels: Mapping[str, Any] | None = None) -> pd.DataFrame:
    """Return a table in pandas, columns of stated levels as ``category``."""
    columns = {name: _plain(table[name]) for name in table.column_names}
    frame = pa.table(columns).to_pandas(types_mapper=pd.ArrowDtype)
    for name, stated in (levels or {}).items():
        if name in frame.columns:
            dtype = pd.CategoricalDtype(stated)
            frame[name] = frame[name].astype(object).astype(dtype)
    return frame


def _table(data: Any, is_column: bool) -> Any:
    if not is_column:
        try:
            return data if isinstance(data, pa.Table) else pa.table(data)
        except pa.ArrowInvalid as error:
            dtypes = getattr(data, "schema", "columns of another library")
            raise UnsupportedColumnError(
                f"Arrow cannot read {dtypes}: {error}."
            ) from None
    column = [pa.array(data)] if hasattr(data, "__arrow_c_array__") else data
    name = str(getattr(data, "name", None) or "")
    return pa.table({name: pa.chunked_array(column)})


def _plain_type(kind: Any) -> Any:
    """Return the type of the values that a column of this type stands for."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return _IN_PANDAS.get(str(plain), plain)


def decode_utf8_lossy(column: Any) -> Any:
    """Return a column of Arrow with U+FFFD for bytes of text that are no UTF-8.

    Readers of files and buffers do not validate text. Python does, and its error quotes
    the whole text.
    """
    if _plain_type(column.type) != pa.string():
        return column
    parts = map(_decode_array, column.chunks)
    return pa.chunked_array(list(parts), column.type)


def _decode_array(text: Any) -> Any:
    if isinstance(text, pa.DictionaryArray):
        levels, is_ordered = _decode_array(text.dictionary), text.type.ordered
        return pa.DictionaryArray.from_arrays(text.indices, levels, ordered=is_ordered)
    with suppress(pa.ArrowInvalid):
        text.validate(full=True)
        return text
    plain = text.cast(pa.large_string()).cast(pa.large_binary()).to_pylist()
    read = [None if each is None else each.decode(errors="replace") for each in plain]
    return pa.array(read, text.type)


def decode_series(series: pd.Series) -> pd.Series:
    """Apply `decode_utf8_lossy` to a column of pandas that stores Arrow's text."""
    if not _is_text(series.dtype):
        return series
    text = decode_utf8_lossy(pa.chunked_array(pa.array(series.array)))
    array = series.dtype.__from_arrow__(text)
    return pd.Series(array, index=series.index, name=series.name)


def decode_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Apply `decode_series` to every column of a frame."""
    places = [i for i, dtype in enumerate(frame.dtypes) if _is_text(dtype)]
    frame = frame.copy(deep=False) if places else frame
    for i in places:
        frame.isetitem(i, decode_series(frame.iloc[:, i]))
    return frame


def _is_text(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):
        return bool(_plain_type(dtype.pyarrow_dtype) == pa.string())
    return str(getattr(dtype, "storage", None)).startswith("pyarrow")


def _plain(column: Any) -> Any:
    """Return a column decoded, with text in the one type that pandas has."""
    column, plain = decode_utf8_lossy(column), _plain_type(column.type)
    if not pa.types.is_dictionary(column.type):
        return column.cast(plain)
    # Arrow decodes no dictionary of some types of text.
    parts = [part.dictionary.cast(plain).take(part.indices) for part in column.chunks]
    return pa.chunked_array(parts, plain)


def enums(types: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the levels of polars' types that are an Enum, by name."""
    return {
        name: dtype.categories.to_list()
        for name, dtype in types.items()
        if type(dtype).__name__ == "Enum"
    }


def to_container(data: Any, container: str, written: Written) -> Any:
    """Return a frame or series in a library's container, its text of the types given.

    Other columns have the types of their dtypes: a ``category`` becomes polars' Enum.
    """
    library = container.rpartition(" ")[0]
    if not library:
        return data
    is_column = isinstance(data, pd.Series)
    frame = data.to_frame("" if data.name is None else data.name) if is_column else data
    names = [str(name) for name in frame.columns]
    frame = frame.set_axis(names, axis=1)
    table = pa.Table.from_pandas(frame, preserve_index=False)
    table = table.replace_schema_metadata(None)
    texts = {"" if name is None else str(name): text for name, text in written}
    if library == "polars":
        converted = _in_polars(table, frame, texts)
        return converted.to_series() if is_column else converted
    for place, name in enumerate(names):
        if name in texts:
            column = table.column(place).cast(_type_named(texts[name]))
            table = table.set_column(place, name, column)
    return table.column(0) if is_column else table


def _in_polars(table: Any, frame: pd.DataFrame, texts: dict[str, str]) -> Any:
    import polars as pl

    types: dict[str, Any] = {
        name: pl.Categorical
        for name, text in texts.items()
        if text.startswith("dictionary") and name in table.column_names
    }
    for name, dtype in frame.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            types[str(name)] = pl.Enum([str(level) for level in dtype.categories])
    converted: Any = pl.from_arrow(table)
    return converted.cast(types)


def _type_named(text: str) -> Any:
    pattern = r"dictionary<values=(\w+), indices=(\w+), ordered=([01])>"
    match = re.fullmatch(pattern, text)
    if match is None:
        return pa.type_for_alias(text)
    values, indices = map(pa.type_for_alias, match.groups()[:2])
    return pa.dictionary(indices, values, ordered=match[3] == "1")
