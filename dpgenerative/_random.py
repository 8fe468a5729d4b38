"""Separate streams of randomness, none of which is read twice.

Initial weights and samples follow `random_state`; Poisson draws and noise come from
generators that the operating system seeds, or from its cryptographic generator itself,
unless the user asks for reproducibility and gives up the guarantee towards whoever
knows the seed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

N_GAUSSIANS = 4
"""Number of normals whose sum is one normal of `SecureGenerator`."""


def torch_generator(
    seed: np.random.SeedSequence, device: str = "cpu"
) -> torch.Generator:
    """Return a torch generator seeded by 64 bits of a seed sequence.

    On a CPU torch keeps 32 of them: enough for weights and samples, not for noise.
    """
    words = seed.generate_state(2, np.uint32)
    generator = torch.Generator(device=device)
    generator.manual_seed(int(words[0]) | int(words[1]) << 32)
    return generator


class SecureGenerator(np.random.Generator):
    """Draws from the operating system's cryptographic generator.

    Only the methods below are there. A normal is the sum of `N_GAUSSIANS` normals over
    the root of their number, each made of two uniforms (Box and Muller): to invert the
    floating-point sum an attacker would have to find all of them (Holohan and Braghin
    2021).

    Edge cases: arrays of no entries are empty; a rate of 1 makes every `geometric` 1.
    """

    def __init__(self) -> None:
        # Its own generator is never asked: the tests watch its state.
        super().__init__(np.random.PCG64())

    def _words(self, n: int) -> np.ndarray:
        return np.frombuffer(os.urandom(8 * n), dtype=np.uint64)

    def _uniforms(self, n: int) -> np.ndarray:
        """Return uniforms in (0, 1], multiples of 2^-53."""
        return ((self._words(n) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53

    def random(self, size: Any = None, *_: Any, **__: Any) -> Any:
        """Return uniforms in [0, 1)."""
        return _shaped(1 - self._uniforms(_count(size)), size)

    def standard_normal(self, size: Any = None, *_: Any, **__: Any) -> Any:
        """Return standard normals."""
        n = _count(size)
        half = (n * N_GAUSSIANS + 1) // 2
        radius = np.sqrt(-2 * np.log(self._uniforms(half)))
        angle = 2 * math.pi * self._uniforms(half)
        parts = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
        sums = parts[: n * N_GAUSSIANS].reshape(N_GAUSSIANS, n).sum(0)
        return _shaped(sums / math.sqrt(N_GAUSSIANS), size)

    def normal(self, loc: Any = 0.0, scale: Any = 1.0, size: Any = None) -> Any:
        """Return normals of a mean and a standard deviation."""
        return loc + scale * self.standard_normal(size)

    def geometric(self, p: Any, size: Any = None) -> Any:
        """Return the number of trials up to the first success, by inversion."""
        n = _count(size)
        if p >= 1:
            return _shaped(np.ones(n, dtype=np.int64), size)
        trials = np.ceil(np.log(self._uniforms(n)) / math.log1p(-p))
        return _shaped(np.clip(trials, 1, 2.0**62).astype(np.int64), size)

    def integers(  # type: ignore[override]
        self, low: Any, high: Any = None, size: Any = None, **_: Any
    ) -> Any:
        """Return integers in [low, high); the words that would favour some go."""
        low, high = (0, low) if high is None else (low, high)
        span, n = int(high) - int(low), _count(size)
        most = np.uint64(2**64 - 1 - 2**64 % span)
        words = self._words(n)
        while (words > most).any():
            words = np.where(words > most, self._words(n), words)
        return _shaped((words % np.uint64(span)).astype(np.int64) + int(low), size)


def _count(size: Any) -> int:
    return 1 if size is None else math.prod(np.atleast_1d(size).tolist())


def _shaped(values: np.ndarray, size: Any) -> Any:
    return values[0] if size is None else values.reshape(size)


def _state_of(generator: np.random.Generator | torch.Generator) -> Any:
    """Return the state of a generator as strings, numbers, lists and dictionaries."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes().hex()
    if isinstance(generator, SecureGenerator):
        return None
    return _listed(generator.bit_generator.state)


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _listed(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


@dataclass
class Streams:
    """Generators of one fit.

    Attributes
    ----------
    weights : torch.Generator
        Initial weights, drawn on the CPU.
    rows : torch.Generator
        The model's own rows, drawn for raking.
    batches : numpy.random.Generator
        Poisson draws, partitions, positions inside cells.
    draws : torch.Generator
        Dequantization and sparsification.
    counts : numpy.random.Generator
        Noise of counts and histograms.
    gradients : numpy.random.Generator or torch.Generator
        Noise of gradients: the latter on CUDA (not in secure mode), the former
        elsewhere.
    """

    weights: torch.Generator
    rows: torch.Generator
    batches: np.random.Generator
    draws: torch.Generator
    counts: np.random.Generator
    gradients: np.random.Generator | torch.Generator

    def state(self) -> dict[str, Any]:
        """Return where every generator stands; None for those without a state."""
        return {f.name: _state_of(getattr(self, f.name)) for f in fields(self)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take every generator back to where it stood."""
        for name, value in state.items():
            generator = getattr(self, name)
            if isinstance(generator, torch.Generator):
                words = np.frombuffer(bytes.fromhex(value), np.uint8)
                generator.set_state(torch.from_numpy(words.copy()))
            elif not isinstance(generator, SecureGenerator):
                generator.bit_generator.state = value

    @classmethod
    def create(
        cls,
        random_state: int | None,
        reproducible: bool,
        device: str,
        secure: bool = False,
    ) -> Streams:
        """Open all streams of one fit.

        Parameters
        ----------
        random_state : int or None
            Seed of the initial weights; None takes fresh entropy.
        reproducible : bool
            Whether batches and noise follow `random_state` too.
        device : str
            Where gradients live.
        secure : bool, default=False
            Whether batches and noise come from `SecureGenerator`.
        """
        public, private = np.random.SeedSequence(random_state).spawn(2)
        if not reproducible:
            private = np.random.SeedSequence()
        weights, rows = public.spawn(2)
        batches, draws, counts, gradients = private.spawn(4)
        on_cuda = device == "cuda"
        public_ones = torch_generator(weights), torch_generator(rows, device)
        if secure:
            return cls(
                *public_ones, SecureGenerator(), torch_generator(draws, device),
                SecureGenerator(), SecureGenerator(),
            )  # fmt: skip
        return cls(
            *public_ones,
            batches=np.random.default_rng(batches),
            draws=torch_generator(draws, device),
            counts=np.random.default_rng(counts),
            gradients=torch_generator(gradients, device)
            if on_cuda
            # The fastest of numpy's for normals: noise takes a tenth of a step.
            else np.random.Generator(np.random.SFC64(gradients)),
        )
