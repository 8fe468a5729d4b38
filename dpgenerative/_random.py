"""Separate streams of randomness, none of which is read twice.

Initial weights and samples follow `random_state`. The noise of counts comes from the
operating system's cryptographic generator. So do Poisson draws and the noise of
gradients where noise is "secure"; where it is "fresh" they come from statistical
generators, each seeded by 128 bits of the system's entropy of its own (on CUDA, noise
of gradients by 64). Where noise is "reproducible" all of them follow `random_state`,
and there is no guarantee towards anyone who knows the seed.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from dpgenerative._validation import count

NOISES = ("fresh", "reproducible", "secure")
"""Where batches and noise come from."""
N_GAUSSIANS = 4
"""Number of normals whose sum is one normal of `SecureGenerator`."""


def torch_generator(
    seed: np.random.SeedSequence, device: str = "cpu"
) -> torch.Generator:
    """Return a torch generator seeded by 64 bits of a seed sequence.

    On a CPU torch keeps 32 of them: enough for weights and samples, not for noise.
    """
    (word,) = seed.generate_state(1, np.uint64).tolist()
    return torch.Generator(device).manual_seed(word)


class SecureGenerator:
    """numpy's generator as far as it is used, of the system's cryptographic numbers.

    A normal is the sum of `N_GAUSSIANS` normals over the root of their number, each
    made of two uniforms of its own (Box and Muller; the other normal of the two goes
    into another sum): to invert the floating-point sum an adversary would have to find
    all of them (Holohan and Braghin 2021).

    Edge cases: arrays of no entries are empty; a rate of 1 makes every `geometric` 1.
    """

    def bytes(self, length: int) -> bytes:
        """Return random bytes."""
        return os.urandom(length)

    def _words(self, n: int) -> np.ndarray:
        return np.frombuffer(self.bytes(8 * n), dtype=np.uint64)

    def _uniforms(self, n: int) -> np.ndarray:
        """Return uniforms in (0, 1], multiples of 2^-53."""
        return ((self._words(n) >> np.uint64(11)) + np.uint64(1)) * 2.0**-53

    def random(self, size: Any = None) -> Any:
        """Return uniforms in [0, 1)."""
        return _shaped(1 - self._uniforms(_count(size)), size)

    def standard_normal(self, size: Any = None) -> Any:
        """Return standard normals."""
        n = _count(size)
        # Of a pair's normals, which add up to another one of the pair, no sum has both.
        shape = N_GAUSSIANS // 2, max(n, 2)
        radius = np.sqrt(-2 * np.log(self._uniforms(math.prod(shape)))).reshape(shape)
        angle = 2 * math.pi * self._uniforms(math.prod(shape)).reshape(shape)
        cosines, sines = radius * np.cos(angle), radius * np.sin(angle)
        sums = (cosines + np.roll(sines, 1, axis=1)).sum(0)[:n]
        return _shaped(sums / math.sqrt(N_GAUSSIANS), size)

    def geometric(self, p: Any, size: Any = None) -> Any:
        """Return the number of trials up to the first success, by inversion."""
        n = _count(size)
        if p >= 1:
            return _shaped(np.ones(n, dtype=np.int64), size)
        trials = np.ceil(np.log(self._uniforms(n)) / math.log1p(-p))
        return _shaped(np.clip(trials, 1, 2.0**62).astype(np.int64), size)

    def integers(self, low: Any, high: Any = None, size: Any = None) -> Any:
        """Return integers in [low, high); the words that would favour some go."""
        low, high = (0, low) if high is None else (low, high)
        span, n = int(high) - int(low), _count(size)
        most = np.uint64(2**64 - 1 - 2**64 % span)
        words = self._words(n)
        while (words > most).any():
            words = np.where(words > most, self._words(n), words)
        return _shaped((words % np.uint64(span)).astype(np.int64) + int(low), size)


RandomSource = np.random.Generator | SecureGenerator
"""What noise, batches and searches draw from."""


def _count(size: Any) -> int:
    return 1 if size is None else int(np.prod(size))


def _shaped(values: np.ndarray, size: Any) -> Any:
    return values[0] if size is None else values.reshape(size)


def _state_of(generator: RandomSource | torch.Generator) -> Any:
    """Return the state of a generator as strings, numbers, lists and dictionaries."""
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes().hex()
    if isinstance(generator, np.random.Generator):
        return _listed(generator.bit_generator.state)
    return None


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
    batches : RandomSource
        Poisson draws, partitions, positions inside cells.
    draws : torch.Generator
        Dequantization and sparsification.
    counts : RandomSource
        Noise of counts, histograms and other sums over all rows.
    gradients : RandomSource or torch.Generator
        Noise of gradients: the latter on CUDA (unless noise is "secure"), the former
        elsewhere.
    is_seeded : bool, default=False
        Whether all of them follow a seed.
    """

    weights: torch.Generator
    rows: torch.Generator
    batches: RandomSource
    draws: torch.Generator
    counts: RandomSource
    gradients: RandomSource | torch.Generator
    is_seeded: bool = False

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
            elif isinstance(generator, np.random.Generator):
                generator.bit_generator.state = value

    @classmethod
    def create(
        cls, random_state: int | None, noise: str, device: str, rank: int = 0
    ) -> "Streams":
        """Open all streams of one fit.

        Parameters
        ----------
        random_state : int or None
            Seed of the initial weights; None takes fresh entropy.
        noise : {"fresh", "reproducible", "secure"}
            Whether batches and noise are seeded by the system's entropy, follow
            `random_state` too, or come from `SecureGenerator`, as the noise of counts
            always does unless "reproducible".
        device : str
            Where gradients live.
        rank : int, default=0
            Which of the processes of one fit this is: they share the weights and the
            model's own rows, and nothing else.
        """
        public, root = np.random.SeedSequence(random_state).spawn(2)
        weights, rows = public.spawn(2)
        is_seeded, is_secure = noise == "reproducible", noise == "secure"
        # Each takes 128 bits of the operating system's entropy of its own.
        fresh = [np.random.SeedSequence() for _ in range(4)]
        batches, draws, counts, gradients = (
            root.spawn(4 * rank + 4)[-4:] if is_seeded else fresh
        )
        secure = SecureGenerator()
        return cls(
            weights=torch_generator(weights),
            rows=torch_generator(rows, device),
            batches=secure if is_secure else np.random.default_rng(batches),
            draws=torch_generator(draws, device),
            counts=np.random.default_rng(counts) if is_seeded else secure,
            gradients=secure if is_secure else _fast_normals(gradients, device),
            is_seeded=is_seeded,
        )


def _fast_normals(
    seed: np.random.SeedSequence, device: str
) -> RandomSource | torch.Generator:
    if device == "cuda":
        return torch_generator(seed, device)
    # The fastest of numpy's for normals: noise takes a tenth of a step.
    return np.random.Generator(np.random.SFC64(seed))


def as_seed(random_state: Any) -> int | None:
    """Return an integer seed of what scikit-learn accepts as `random_state`."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    count(0)("a synthesizer", "random_state", random_state)
    return int(random_state)
