"""Files that are written completely or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

AnyPath = str | os.PathLike[str]


def require_place(path: AnyPath) -> Path:
    """Require that a file can be written at `path`."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder, not a file.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"The folder {target.parent} does not exist.")
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"Nothing can be written to the folder {target.parent}.")
    return target


@contextmanager
def atomic_write(path: AnyPath, private: bool = False) -> Iterator[Path]:
    """Yield a new file beside `path`, which replaces it if no error is raised.

    Until then, and after an error, whatever was at `path` stays as it is. Only its
    owner may read a `private` file.
    """
    target = require_place(path)
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
