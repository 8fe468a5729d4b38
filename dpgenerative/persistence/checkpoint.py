"""Checkpoints, from which an interrupted fit resumes without spending again.

A checkpoint holds all that a fit has drawn and released so far, the states of its
generators and of its optimizer. So the rest of training is that which was interrupted,
bit by bit, and what comes out of both parts costs what one fit costs. Whoever reads the
file can take the noise away, and whoever writes it can choose the noise: it is as
private as the rows, readable by its owner only, refused where it is not, and deleted
when the fit is done.

Formal guarantee: none of its own. An interrupted fit has released nothing, as long as
nobody sees the checkpoint; the rows and parameters of its continuation are compared
with salted digests, so that one mechanism runs on one table. The system's generator has
no state: what it draws after the last checkpoint (noise of latents' moments and counted
tables; in secure mode, of all steps) is drawn anew.
"""

import glob
import hashlib
import os
import re
import secrets
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from dpgenerative._files import AnyPath
from dpgenerative._random import Streams
from dpgenerative._version import __version__
from dpgenerative.exceptions import FileFormatError
from dpgenerative.fitting.loop import LoopState
from dpgenerative.persistence import manifest
from dpgenerative.persistence.rebuild import fill
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.ranks import ALONE, ProcessGroup
from dpgenerative.tables.private import Private, opened

EVERY = 10.0
"""Seconds of training between two states of one checkpoint."""
FREE = ("random_state", "verbose")
"""Parameters that may differ: the states include all that the seed decides."""


class Checkpoint:
    """The file of one interrupted fit, or of one that begins.

    Whoever opens one holds the lock of its file (`dpgenerative._files.locked`). Where
    several processes fit, the first of them does, and the others have copies.

    Parameters
    ----------
    path : path-like
        A file written by an interrupted fit, or one that does not exist yet.
    owner : str
        Name of the estimator's class.
    parameters : mapping
        The estimator's, with the device that it takes.
    domain : sequence
        What is public of the table: its format, schema, dtypes.
    seed : int or None
        Seed of the estimator.

    Raises
    ------
    FileFormatError
        For a file that is no checkpoint, damaged, or of a newer format.
    ValueError
        For the checkpoint of a fit with other parameters or columns, or by another
        version of the package.
    OSError
        If the file cannot be read, or is not its reader's alone.
    TypeError
        For names, levels or dtypes of columns that a file cannot hold.

    Attributes
    ----------
    name : str
        One that no other fit has.
    seed : int or None
        Seed of the estimator when the fit began.
    released : mapping
        What was released before training; empty where a fit begins.
    """

    ranks: ProcessGroup = ALONE
    """The processes of the fit."""

    def __init__(
        self,
        path: AnyPath,
        owner: str,
        parameters: Mapping[str, Any],
        domain: Sequence[Any],
        seed: int | None,
    ) -> None:
        # A link stays one, and what it leads to is written and deleted.
        self._path = Path(path).resolve()
        settings = settings_of(owner, parameters, _as_text(domain))
        self._parts = self._read() if self._path.exists() else {}
        self._saved = -EVERY
        salt = secrets.token_hex(16)
        begun = {
            "name": secrets.token_hex(16), "salt": salt, "seed": seed,
            "settings": _digest(salt, [settings.encode()]),
        }  # fmt: skip
        self._fit: dict[str, Any] = self._parts.get("fit", begun)
        if self._fit["settings"] != _digest(self._fit["salt"], [settings.encode()]):
            raise ValueError(
                f"{path} is the checkpoint of another fit: its parameters, columns, "
                "device, number of processes or version of dpgenerative differ. "
                "Restore them, or delete the file to begin anew."
            )
        self.name, self.seed = str(self._fit["name"]), self._fit["seed"]
        self.released: Mapping[str, Any] = self._parts.get("released", {})

    def restore(self, model: Any, streams: Streams) -> None:
        """Set a new model and generators to their stored state, if there is one."""
        if self._parts:
            try:
                fill(model, self._parts["loop"]["tensors"])
                streams.restore(self._parts["streams"][str(self.ranks.rank)]["before"])
            except manifest.CONTENT_ERRORS as error:
                raise self._damaged() from error
        self._streams, self._before = streams, streams.state()

    def prepare(
        self, rows: Private[Any], ledger: Ledger, released: Mapping[str, Any]
    ) -> None:
        """Compare the rows with those of the beginning; note what was released."""
        parts = (
            part
            for array in opened(rows)
            for part in (repr(array.shape).encode(), np.ascontiguousarray(array))
        )
        digests = self.ranks.gathered(_digest(self._fit["salt"], parts))

        def compare() -> None:
            if self._fit.setdefault("rows", digests) != digests:
                raise ValueError(
                    f"{self._path} is the checkpoint of a fit of other rows. Restore "
                    "them, or delete the file to begin anew."
                )

        self.ranks.once(compare)
        self._ledger, self._noted = ledger, dict(released)

    def begin(self, loop: LoopState) -> int:
        """Return the number of steps that are done."""
        if not self._parts:
            self.after(0, loop)
            return 0
        try:
            loop.restore(self._parts["loop"])
            self._streams.restore(self._parts["streams"][str(self.ranks.rank)]["now"])
            self._ledger.restore(self._parts["ledger"])
            return int(self._parts["loop"]["n_done"])
        except manifest.CONTENT_ERRORS as error:
            raise self._damaged() from error

    def after(self, n_done: int, loop: LoopState) -> None:
        """Write the file where the last one is `EVERY` seconds old."""
        if not self.ranks.same(time.monotonic() - self._saved >= EVERY):
            return
        streams = {"before": self._before, "now": self._streams.state()}
        by_place = {str(i): s for i, s in enumerate(self.ranks.gathered(streams))}
        if self.ranks.is_first:
            state = {
                "fit": self._fit, "released": self._noted, "streams": by_place,
                "ledger": self._ledger.state(),
                "loop": {"n_done": n_done, **loop.state()},
            }  # fmt: skip
            manifest.write(self._path, manifest.CHECKPOINT, state)
        self._saved = time.monotonic()

    def remove(self) -> None:
        """Delete the file, and drafts of it that were killed: the fit is done."""
        name = f".{glob.escape(self._path.name)}.????????.part"
        self._path.unlink(missing_ok=True)
        for draft in self._path.parent.glob(name):
            with suppress(OSError):  # not ours
                draft.unlink()

    def _read(self) -> dict[str, dict[str, Any]]:
        with self._path.open("rb") as file:
            kind, parts = manifest.read(self._path, file)
            facts = os.fstat(file.fileno())
        if kind != manifest.CHECKPOINT:
            raise FileFormatError(
                f"{self._path} holds a fitted {kind}, no checkpoint. Name another "
                "file: this one would be overwritten."
            )
        _require_own(self._path, facts)
        lacks = {"fit", "released", "streams", "ledger", "loop"} - set(parts)
        if lacks or {"name", "salt", "seed", "settings", "rows"} - set(parts["fit"]):
            raise self._damaged()
        return parts

    def _damaged(self) -> FileFormatError:
        return manifest.damaged(self._path, "its parts do not fit together")


def _require_own(path: Path, facts: os.stat_result) -> None:
    """Require a file that nobody else can have read or written: it has the noise."""
    if sys.platform != "win32":
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o077:
            raise PermissionError(
                f"{path} may have been written or read by others, who then know the "
                "noise of the fit that it would continue. Only its owner may "
                "have access to a checkpoint (chmod 600). Delete it to begin anew."
            )


def _as_text(domain: Sequence[Any]) -> str:
    """Return what is public of a table as text, if a file can hold it."""
    try:
        return manifest.text_of(list(domain))
    except TypeError as error:
        raise TypeError(
            "fit takes a checkpoint only for columns whose names, levels and dtypes "
            "a file can hold, as save does. Rename or convert the others, as to "
            "strings or times of pandas."
        ) from error


def settings_of(owner: str, parameters: Mapping[str, Any], domain: Any) -> str:
    """Return what states a fit, except the parameters `FREE`, as text to compare."""
    fixed = sorted((k, v) for k, v in parameters.items() if k not in FREE)
    return stated([owner, __version__, fixed, domain])


def stated(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, (set, frozenset)):
        return repr(sorted(map(stated, value)))
    with suppress(TypeError):
        return manifest.text_of(value)
    if isinstance(value, (list, tuple)):
        return repr([stated(part) for part in value])
    # Functions and other objects show where they lie in memory.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _digest(salt: str, parts: Iterable[Any]) -> str:
    digest = hashlib.sha256(salt.encode())
    for part in parts:
        digest.update(part)
    return digest.hexdigest()
