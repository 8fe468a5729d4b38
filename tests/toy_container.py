"""A container, a release and a model of one's own: rows of as many bits each."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from dpgenerative import ModelRecipe
from dpgenerative.layers import MaskedLinear
from dpgenerative.persistence.registry import register, storable
from dpgenerative.privacy.plan import Release
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.session import Data
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema

ONES = Release("ones", "numbers of ones ({noise})", "rows")


@storable
@dataclass(frozen=True)
class Bits:
    """How rows came and are encoded; once released, with the shares of ones."""

    width: int
    shares: tuple[float, ...] = ()

    is_named: ClassVar = False
    schema: ClassVar = Schema([])

    @property
    def x_names(self):
        return range(self.width)

    def encode(self, rows):
        return rows.astype(np.float32)

    def log_within(self, rows):
        return np.zeros(len(rows))


@dataclass(frozen=True)
class BitDomain:
    """What is public of the rows, and what a fit releases of them."""

    bits: Bits

    schema: ClassVar = Schema([])
    has_public: ClassVar = False
    dtypes: ClassVar = ()

    def releases(self, anchored, share):
        return {ONES: 0.3}

    def has_open_keys(self, anchored):
        return False

    def release(self, rows, plan, mechanisms, **cells):
        sensitivity = np.sqrt(self.bits.width)
        exact = rows.map(lambda bits: bits.sum(0).astype(float))
        noisy = mechanisms.gaussian(
            exact, plan.multiplier(ONES) * sensitivity,
            release=ONES.name, sensitivity=sensitivity,
        )  # fmt: skip
        shares = np.clip(noisy / plan.n_rows, 0.01, 0.99)
        return replace(self.bits, shares=tuple(shares.tolist()))

    def made_up(self, dtypes):
        return self

    def drawn(self, transformer, n, rng):
        return rng.integers(0, 2, (n, self.bits.width))

    @staticmethod
    def padded(rows):
        return rows if len(rows) else np.zeros((1, rows.shape[1]), rows.dtype)

    @staticmethod
    def blank(rows):
        return rows[:0]

    @staticmethod
    def select(rows, places):
        return rows[places]

    @staticmethod
    def facts(transformer):
        return transformer


class Chain(nn.Module):
    """Every bit given the one before it, from the released shares on."""

    def __init__(self, facts):
        super().__init__()
        n = torch.arange(len(facts.shares))
        self.register_buffer("start", torch.logit(torch.tensor(facts.shares)))
        self.steps = MaskedLinear(n, n, n[:, None] == n + 1)

    def logits(self, bits):
        return self.start + self.steps(bits)


class ChainRecipe(ModelRecipe):
    anchored = False

    def make(self, facts, generator, **settings):
        return Chain(facts)

    def objective(self, model, transformer, rows, streams, device):
        bits = rows.map(transformer.encode).to(device)

        def losses(indices):
            batch = bits[indices]
            entropy = F.binary_cross_entropy_with_logits
            return entropy(model.logits(batch), batch, reduction="none").sum(1), None

        return losses


@register()
class BitSynthesizer(Synthesizer):
    """The estimator: its constructor, what it reads, and what it samples."""

    _domain_class = BitDomain

    def __init__(
        self, epsilon=1.0, delta=1e-5, *, n_steps=20, random_state=None, noise="fresh"
    ):
        super().__init__(
            epsilon=epsilon, delta=delta, noise_multiplier=None, max_rows_per_unit=1,
            clipping="flat", max_grad_norm="auto", n_partitions=16, divergence=None,
            optimizer=None, n_steps=n_steps, batch_size="auto", device="cpu",
            random_state=random_state, noise=noise, verbose=0,
        )  # fmt: skip

    @property
    def _recipe(self):
        return ChainRecipe()

    def _read(self, X, y, public, allow_empty):
        bits = Bits(X.shape[1])
        return Data(Private(X), bits, Schema([]), BitDomain(bits))

    def _as_fitted(self, X, y):
        return X

    def _assumed_domain(self):
        return BitDomain(Bits(3))

    def _public_facts(self, schema):
        return ("number of bits",)

    def sample(self, n_samples=1, random_state=None):
        generator, _ = self._sampling_streams(random_state)
        bits = torch.zeros(n_samples, self._layout.width)
        for j in range(self._layout.width):
            shares = torch.sigmoid(self._model.logits(bits)[:, j])
            bits[:, j] = torch.bernoulli(shares, generator=generator)
        return bits.numpy().astype(np.int64)
