"""Files that are written completely or not at all, and by one process at a time."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

AnyPath = str | os.PathLike[str]


def require_file(path: AnyPath) -> Path:
    """Require that there is a file at `path`."""
    target = Path(path)
    if os.path.isdir(path):
        raise IsADirectoryError(f"{target} is a folder, not a file.")
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {target}.")
    return target


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


def encodable(text: object) -> str:
    """Return text as UTF-8 can hold it, with a question mark for lone surrogates."""
    return str(text).encode("utf-8", "replace").decode("utf-8")


def erase_error_details(error: BaseException) -> None:
    """Erase an error's message and chain, which tools show behind another error."""
    error.args, error.__context__, error.__cause__ = (), None, None
    if isinstance(error, UnicodeDecodeError):
        error.object = b""


@contextmanager
def atomic_write(path: AnyPath, private: bool = False) -> Iterator[Path]:
    """Yield a new file beside `path`, which replaces it if no error is raised.

    Until then, and after an error, whatever was at `path` stays as it is. Only its
    owner may read a `private` file.
    """
    target = require_place(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    draft.touch(0o600 if private else 0o666, exist_ok=False)
    try:
        yield draft
        with draft.open("rb+") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def locked(path: AnyPath) -> Iterator[None]:
    """Keep other processes, and other threads, away from a file; it need not exist.

    A file that is replaced when it is written loses its lock: an empty one beside it
    carries it. The system takes the lock from whoever ends, however that happens.

    Raises
    ------
    BlockingIOError
        At once, where another process has the lock.
    OSError
        If nothing can be written to the folder, or its file system has no locks.
    """
    target = require_place(Path(path).resolve())  # all names of a file, one lock
    beside = target.with_name(f".{target.name}.lock")
    # Not through a link that somebody else has put there.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(beside, flags, 0o600), "r+") as file:
        if not _try_lock(file):
            raise BlockingIOError(
                f"{path} is in use: another process works with it. Wait for its end, "
                "or name another file."
            )
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows: what is open stays
                beside.unlink(missing_ok=True)


def _try_lock(file: IO[str]) -> bool:
    """Lock an open file, unless somebody holds it or has deleted it since."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return os.fstat(file.fileno()).st_nlink > 0
