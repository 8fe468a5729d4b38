"""A product of the marginals with one pair: the last column follows the first."""

import torch
from torch import nn
from torch.nn import functional as F

from dpgenerative import ModelRecipe, TableSynthesizer
from dpgenerative.layers import MaskedLinear
from dpgenerative.persistence.registry import register


class Pair(nn.Module):
    """Log-masses of all columns, and offsets of the last given the first."""

    def __init__(self, facts):
        super().__init__()
        *self.masses, last = (fact.masses.float() for fact in facts)
        self.register_buffer("last", last)  # training needs it, on CUDA perhaps
        # Zero at first: the model begins as the product of the marginals.
        self.offsets = MaskedLinear.dense(len(self.masses[0]), len(last))

    def last_given(self, first):
        inputs = F.one_hot(first, len(self.masses[0])).float()
        return F.log_softmax(self.last.log() + self.offsets(inputs), 1)


class PairRecipe(ModelRecipe):
    """What `PrivateFit` asks of the model."""

    def make(self, facts, generator):
        return Pair(facts)

    def objective(self, model, transformer, rows, streams, device):
        codes = rows.map(transformer.encode).to(device)

        def losses(indices):
            batch = codes[indices].long()
            last = model.last_given(batch[:, 0]).gather(1, batch[:, -1:])
            return -last[:, 0], None  # of a row alone; no batch-wise term

        return losses

    def draw(self, model, n, generator, rng):
        drawn = [
            torch.multinomial(masses, n, replacement=True, generator=generator)
            for masses in model.masses
        ]
        last = model.last_given(drawn[0]).exp()
        drawn.append(torch.multinomial(last, 1, generator=generator)[:, 0])
        codes = torch.stack(drawn, 1).numpy()
        return codes, rng.random(codes.shape)  # cells, and places inside them


@register("pair")
class PairSynthesizer(TableSynthesizer):
    """The estimator, which the command line offers as "pair"."""

    def __init__(
        self, epsilon=1.0, delta=1e-5, *, schema=None, n_steps="auto", random_state=None
    ):
        super().__init__(
            epsilon=epsilon, delta=delta, schema=schema, n_steps=n_steps,
            random_state=random_state,
        )  # fmt: skip

    @property
    def _recipe(self):
        return PairRecipe()
