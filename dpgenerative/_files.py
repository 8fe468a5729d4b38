"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: str | os.PathLike[str], private: bool = False) -> Iterator[Path]:
    """Yield a new file beside `path`, which takes its place where all went well.

    What was at `path` stays as it is until then, and for good where an error comes.
    Only its owner may read a `private` file.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, not a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist.")
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}.", suffix=".part"
    )
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        if not private:
            mask = os.umask(0)
            os.umask(mask)
            draft.chmod(0o666 & ~mask)
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
