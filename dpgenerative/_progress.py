"""Progress bars in terminals and notebooks."""

from collections.abc import Iterable, Iterator
from typing import Any

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
