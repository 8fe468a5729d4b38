"""Threads of a fit: no more than there are processors that nothing else uses.

OpenMP's threads wait for each other in busy loops. Where more of them run than there
are processors, one that waits takes the time of the one it waits for, and a step of
milliseconds takes seconds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from joblib import cpu_count

LOADS = "/proc/loadavg"


def n_running() -> int:
    """Return how many threads run or could run on this machine; 0 where unknown."""
    try:
        with open(LOADS, encoding="ascii") as file:
            return int(file.read().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 0


@contextmanager
def idle_threads(one: bool) -> Iterator[Callable[[], None]]:
    """Give torch the threads that the machine has room for, and at least one.

    Parameters
    ----------
    one : bool
        Whether to take one thread whatever is free: how many there are decides in which
        order floating point adds up.

    Yields
    ------
    callable
        Adapts the number of threads, which never exceeds the number set before.
    """
    most, n_processors = torch.get_num_threads(), cpu_count()

    def adapt() -> None:
        if most == 1:
            return
        now = torch.get_num_threads()
        free = n_processors - max(0, n_running() - now)
        wanted = 1 if one else max(1, min(most, free))
        if wanted != now:
            torch.set_num_threads(wanted)

    try:
        adapt()
        yield adapt
    finally:
        torch.set_num_threads(most)
