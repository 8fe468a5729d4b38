"""Processes of one fit, real ones and threads that stand in for them."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing

from dpgenerative.privacy.ranks import ProcessGroup


@dataclass(frozen=True)
class ThreadRanks(ProcessGroup):
    """Threads that exchange values at a barrier; they see what a test patches."""

    slots: list[Any] = field(default_factory=list)
    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1))

    def _all(self, value):
        self.slots[self.rank] = value
        self.barrier.wait(60)
        found = copy.deepcopy(self.slots)  # processes share nothing
        self.barrier.wait(60)
        return found

    def gathered(self, value):
        found = self._all(value)
        return found if self.is_first else [value]

    def same(self, value):
        found = self._all(value if self.is_first else None)[0]
        return value if self.is_first else found

    def total(self, tensors):
        parts = self._all([x.clone() for x in tensors])
        return [sum(each[1:], each[0]) for each in zip(*parts, strict=True)]


def threads(size: int) -> list[ThreadRanks]:
    slots, barrier = [None] * size, threading.Barrier(size)
    return [ThreadRanks(size, rank, slots, barrier) for rank in range(size)]


def in_threads(work: Callable[[ProcessGroup], Any], size: int = 2) -> list[Any]:
    """Return what `work` returns in several threads, or raise what one raises."""

    def run(ranks):
        torch.set_num_threads(1)
        try:
            return work(ranks)
        except BaseException:
            ranks.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(run, ranks) for ranks in threads(size)]
        errors = [f.exception() for f in futures]
    real = [e for e in errors if e and not isinstance(e, threading.BrokenBarrierError)]
    if any(errors):
        raise (real or [e for e in errors if e])[0]
    return [f.result() for f in futures]


def fits_in_threads(patch, make: Callable[[], Any], *args: Any, size=2, **kwargs: Any):
    """Return what is fitted by each of several threads that fit together."""
    mine = threading.local()
    patch.setattr(
        ProcessGroup, "present", classmethod(lambda cls: getattr(mine, "ranks", cls()))
    )

    def work(ranks):
        mine.ranks = ranks
        return make().fit(*args, **kwargs)

    return in_threads(work, size)


def _joined(rank, folder, work, args):
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", 2)
    wait = timedelta(seconds=60)
    distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=2, timeout=wait
    )
    torch.save(work(rank, *args), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def in_processes(folder: Path, work: Callable[..., Any], *args: Any) -> list[Any]:
    """Return what a module's function returns in two processes; None where one died."""
    folder.mkdir()
    start = multiprocessing.get_context("spawn").Process
    running = [start(target=_joined, args=(i, folder, work, args)) for i in range(2)]
    for process in running:
        process.start()
    for process in running:
        process.join(300)
        process.kill()
    files = [folder / f"{rank}.pt" for rank in range(2)]
    return [torch.load(f, weights_only=False) if f.exists() else None for f in files]
