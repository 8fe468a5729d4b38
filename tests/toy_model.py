"""A product of the marginals with one pair: the second column follows the first."""

import torch
from torch import nn
from torch.nn import functional as F

from dpgenerative import ModelRecipe, TableSynthesizer
from dpgenerative.layers import MaskedLinear


class Pair(nn.Module):
    """Log-masses of all columns, and offsets of the last given the first."""

    def __init__(self, facts):
        super().__init__()
        self.masses = [fact.masses.float() for fact in facts]
        self.first = len(self.masses[0])
        # Zero at first: the model begins as the product of the marginals.
        self.offsets = MaskedLinear.dense(self.first, len(self.masses[-1]))

    def last_given(self, first):
        offsets = self.offsets(F.one_hot(first, self.first).float())
        return F.log_softmax(self.masses[-1].log() + offsets, 1)


class PairRecipe(ModelRecipe):
    """What `PrivateFit` asks of the model."""

    def build(self, facts, scale, generator):
        return Pair(facts)

    def objective(self, model, transformer, rows, streams, device):
        codes = torch.from_numpy(transformer.encode(rows)).long().to(device)

        def losses(indices):
            batch = codes[indices]
            last = model.last_given(batch[:, 0]).gather(1, batch[:, -1:])
            return -last[:, 0], None  # of a row alone; no batch-wise term

        return losses

    def draw(self, model, n, generator, rng):
        drawn = [
            torch.multinomial(masses, n, replacement=True, generator=generator)
            for masses in model.masses[:-1]
        ]
        last = model.last_given(drawn[0]).exp()
        drawn.append(torch.multinomial(last, 1, generator=generator)[:, 0])
        codes = torch.stack(drawn, 1).numpy()
        return codes, rng.random(codes.shape)  # cells, and places inside them


def pair_synthesizer(**parameters):
    return TableSynthesizer(PairRecipe(), **parameters)
