"""Fit a model to encoded rows: Poisson batches, gradients, optimizer, averaging."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dpgenerative._progress import watched
from dpgenerative._random import RandomSource, Streams
from dpgenerative.fitting.options import Optimizer
from dpgenerative.fitting.threads import idle_threads
from dpgenerative.privacy.clipping import LARGEST_CHUNK
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.privacy.ranks import ALONE, ProcessGroup
from dpgenerative.privacy.sampling import (
    capacity,
    draw_partitions,
    padded_chunks,
    poisson_indices,
)
from dpgenerative.privacy.steps import (
    Chunk,
    Divergence,
    Gradients,
    Objective,
    PrivateGradient,
    summed_loss,
    trainable,
    whole_term,
)
from dpgenerative.tables.private import Private

LEAST_PLACES = 128
"""Places of a chunk where every batch holds all rows: their released count may be 1."""


def _undecorated(method: Any) -> Any:
    return getattr(method, "__wrapped__", method)


class Adam(torch.optim.Adam):
    """torch's Adam, but for the decorators that import torch's compiler: a second."""

    add_param_group = _undecorated(torch.optim.Adam.add_param_group)
    step = torch.no_grad()(_undecorated(torch.optim.Adam.step))


class AdaBelief(torch.optim.Optimizer):
    """Adam with the variance of the gradient around its mean (Zhuang et al. 2020)."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter along its gradient."""
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    zeros = torch.zeros_like(p)
                    state.update(t=0, mean=zeros, spread=zeros.clone())
                state["t"] += 1
                mean, spread = state["mean"], state["spread"]
                mean.lerp_(p.grad, 1 - b1)
                spread.lerp_((p.grad - mean).square(), 1 - b2).add_(group["eps"])
                root = (spread / (1 - b2 ** state["t"])).sqrt_().add_(group["eps"])
                p.addcdiv_(mean / (1 - b1 ** state["t"]), root, value=-group["lr"])


def make_optimizer(
    options: Optimizer, params: Iterable[nn.Parameter]
) -> torch.optim.Optimizer:
    """Return the optimizer of these options, of which the learning rate is a number."""
    rate, momentum = float(options.learning_rate), float(options.momentum)
    if options.name == "adam":
        return Adam(params, lr=rate, betas=(momentum, 0.999), eps=1e-12)
    if options.name == "adabelief":
        return AdaBelief(params, {"lr": rate, "betas": (momentum, 0.999), "eps": 1e-8})
    return torch.optim.SGD(params, lr=rate, momentum=momentum)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Return parameters and buffers by name, also those that stay as initialised."""
    parameters = model.named_parameters(remove_duplicate=False)
    buffers = model.named_buffers(remove_duplicate=False)
    return {name: tensor.detach() for name, tensor in (*parameters, *buffers)}


@dataclass(frozen=True)
class LoopState:
    """State of the training loop without generators; as private as the rows."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR
    averaged: list[Tensor]

    def average(self, averaging: float, t: int) -> None:
        """Move the averages towards the weights after step t, less and less."""
        decay = min(averaging, (1 + t) / (10 + t)) if averaging else 0
        with torch.no_grad():
            for mean, p in zip(self.averaged, trainable(self.model), strict=True):
                mean.lerp_(p, 1 - decay)

    def state(self) -> dict[str, Any]:
        """Return the state as tensors, numbers, lists and dictionaries."""
        return {
            "tensors": tensors_of(self.model),
            "averaged": self.averaged,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go back to a state; the model has its weights already."""
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        for mean, saved in zip(self.averaged, state["averaged"], strict=True):
            mean.copy_(saved)


class Keeper(Protocol):
    """Stores an unfinished fit, so that it can go on (`persistence.checkpoint`)."""

    @property
    def released(self) -> Mapping[str, Any]:
        """What was released before an interruption; empty where a fit begins."""

    def restore(self, model: Any, streams: Streams) -> None:
        """Set a new model and generators to their stored state, if there is one."""

    def prepare(
        self, rows: Private[Any], ledger: Ledger, released: Mapping[str, Any]
    ) -> None:
        """Compare the rows with those of the beginning; note what was released."""

    def begin(self, loop: LoopState) -> int:
        """Restore the state that was stored; return the number of steps done."""

    def after(self, n_done: int, loop: LoopState) -> None:
        """Store the loop's state after a step, if it is time."""


def batches(
    plan: PrivacyPlan,
    private: Private[Any],
    rng: RandomSource,
    device: str,
    whole: bool,
    ledger: Ledger,
    n_parts: int = 1,
) -> Iterator[Iterator[tuple[Tensor, Tensor]]]:
    """Yield one Poisson batch per step, in padded chunks (one chunk if `whole`).

    The rows are one of `n_parts` parts of a table, each of which has its batches.
    """
    most = capacity(plan.batch_size / n_parts)
    if plan.sampling_rate == 1:
        most = max(most, LEAST_PLACES)
    size = math.ceil(most / math.ceil(most / LARGEST_CHUNK))  # nearly all are filled
    for _ in range(plan.n_steps):
        rows = poisson_indices(private, plan.sampling_rate, rng, ledger)
        shape = max(most, len(rows)) if whole else size
        chunks = padded_chunks(rows, shape, rng)
        # A host waits for every copy to a device: there is one, -1 stands for padding.
        padded = (torch.where(is_row, i, -1).to(device) for i, is_row in chunks)
        yield ((i.clamp(min=0), i >= 0) for i in padded)


def keep_freed_memory() -> None:
    """Let the C library reuse the memory of one step for the next one.

    glibc returns freed blocks to the system, and a step of a few megabytes then pays
    page faults for every tensor, a tenth of its time. Blocks up to the largest one ever
    freed, at most 32 MB, stay with glibc: freeing this unused block raises that limit.
    """
    torch.empty(2**23 - 2**14)


def plain_gradient(
    model: nn.Module,
    objective: Objective,
    chunks: Iterable[Chunk],
    batch_size: float,
    divergence: Divergence | None = None,
    ranks: ProcessGroup = ALONE,
) -> Gradients:
    """Return the mean gradient without clipping or noise, for `epsilon=None`."""
    params = trainable(model)
    total = {p: torch.zeros_like(p) for p in params}
    for chunk in chunks:
        loss, latents = summed_loss(objective, chunk)
        loss = loss / batch_size
        if (term := whole_term(divergence, latents, chunk[1])) is not None:
            loss = loss + term
        grads = torch.autograd.grad(loss, params)
        for p, grad in zip(params, grads, strict=True):
            total[p] += grad
    return dict(zip(params, ranks.total(list(total.values())), strict=True))


def train(
    model: nn.Module,
    objective: Objective,
    rows: Private[Any],
    plan: PrivacyPlan,
    gradient: PrivateGradient,
    options: Optimizer,
    mechanisms: Mechanisms,
    streams: Streams,
    device: str,
    divergence: Divergence | None = None,
    keeper: Keeper | None = None,
    verbose: bool = False,
) -> None:
    """Train a model in place; nothing but its parameters depends on the rows.

    Only the sampler sees how many rows there are; `plan.private` decides whether
    `gradient` is used; the learning rate of `options` is a number; `divergence` is the
    batch-wise term; a `keeper` keeps what the loop needs to go on when interrupted.
    """
    keep_freed_memory()
    params = trainable(model)
    optimizer = make_optimizer(options, params)
    end = plan.n_steps if options.schedule == "linear" else math.inf
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda t: 1 - t / end)
    averaged = [p.detach().clone() for p in params]

    def partition(size: int) -> np.ndarray:
        return draw_partitions(size, gradient.n_partitions, streams.batches)

    whole = divergence is not None or gradient.aggregation != "term-wise"
    ranks = mechanisms.ranks
    stream = batches(
        plan, rows, streams.batches, device, whole, mechanisms.ledger, ranks.size
    )
    loop = LoopState(model, optimizer, schedule, averaged)
    first = 0 if keeper is None else keeper.begin(loop)
    with idle_threads(streams.is_seeded) as adapt_threads:
        for t in watched(
            range(first, plan.n_steps), "training", verbose,
            initial=first, total=plan.n_steps,
        ):  # fmt: skip
            adapt_threads()
            chunks = next(stream)
            if plan.private:
                grads = gradient(
                    model, objective, chunks, mechanisms, streams.draws, divergence,
                    partition,
                )  # fmt: skip
            else:
                grads = plain_gradient(
                    model, objective, chunks, gradient.batch_size, divergence, ranks
                )
            for p in params:
                p.grad = grads[p]
            optimizer.step()
            schedule.step()
            loop.average(options.averaging, t)
            if keeper is not None:
                keeper.after(t + 1, loop)
    with torch.no_grad():
        for p, mean in zip(params, averaged, strict=True):
            p.copy_(mean)
            p.grad = None
