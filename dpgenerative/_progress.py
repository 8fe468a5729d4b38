"""Progress bars in terminals and notebooks."""

from collections.abc import Generator, Iterable, Iterator
from itertools import count
from typing import Any

from tqdm import tqdm as terminal
from tqdm.auto import tqdm


def watched(
    items: Iterable[Any], description: str, verbose: bool, **counts: int
) -> Iterator[Any]:
    """Yield the items, with a progress bar if `verbose`.

    A file that standard error goes to gets none: it would keep every state of the bar.

    Parameters
    ----------
    items : iterable
    description : str
    verbose : bool
    **counts
        ``total``, ``initial`` and ``delay``, as in tqdm.
    """
    # With None, tqdm shows a bar in terminals and notebooks only.
    yield from tqdm(items, description, disable=None if verbose else True, **counts)


def terminal_counter(
    description: str, unit: str, verbose: bool
) -> Generator[int, None, None]:
    """Yield 0, 1, 2, ..., with a count in a terminal that is erased at the end.

    For numbers that must stay secret: there is no total, and nothing in notebooks,
    which are files.
    """
    yield from terminal(
        count(), description, unit=unit, leave=False, mininterval=0, miniters=1,
        disable=None if verbose else True,
    )  # fmt: skip
