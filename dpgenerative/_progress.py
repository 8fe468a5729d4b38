"""Progress bars in terminals and notebooks."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm.auto import tqdm
from tqdm.notebook import tqdm_notebook


def watched(
    items: Iterable[Any], description: str, verbose: bool, **counts: int
) -> Iterator[Any]:
    """Yield the items, and show a bar if `verbose` in a terminal or a notebook.

    Standard error that goes to a file keeps every state of a bar: thousands of lines.

    Parameters
    ----------
    items : iterable
    description : str
    verbose : bool
    **counts
        ``total`` and ``initial``, as in tqdm.
    """
    seen = issubclass(tqdm, tqdm_notebook) or sys.stderr.isatty()
    yield from tqdm(items, description, disable=not (verbose and seen), **counts)
