"""Convolutional autoencoders, and how far one image moves their gradient."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dpgenerative.models.divergences import mmd
from dpgenerative.models.networks import ConvDecoder, ConvEncoder
from dpgenerative.privacy.gradients import (
    ConvGradients,
    LinearGradients,
    layer_gradients,
    record,
)
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from tests.privacy.oracle import Silent, are_clipped_one_by_one, layers_of, norm

SHAPE, LATENTS, WIDTHS = (1, 8, 8), 3, (8, 16)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


class Autoencoder(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        self.encoder = ConvEncoder(SHAPE, LATENTS, generator(seed), WIDTHS)
        self.decoder = ConvDecoder(SHAPE, LATENTS, generator(seed + 1), WIDTHS)
        with torch.no_grad():
            for p in self.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=generator(seed + 2)))

    def forward(self, x):
        mean, log_variance = self.encoder(x)
        z = mean + (log_variance / 2).exp()
        return (self.decoder(z) - x).square().sum((1, 2, 3)), z


def images(n, seed=3):
    return torch.rand(n, *SHAPE, generator=generator(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("shape", "widths"), [((1, 32, 32), (32, 64, 128)), ((3, 8, 16), (8,))]
)
def test_shapes(shape, widths):
    encoder = ConvEncoder(shape, 5, generator(), widths)
    decoder = ConvDecoder(shape, 5, generator(), widths)
    mean, log_variance = encoder(torch.rand(4, *shape))
    assert mean.shape == log_variance.shape == (4, 5)
    assert decoder(mean).shape == (4, *shape)


def test_sides_that_do_not_halve_are_padded():
    shape = (2, 28, 30)
    encoder, decoder = (
        kind(shape, 5, generator()) for kind in (ConvEncoder, ConvDecoder)
    )
    x = torch.rand(3, *shape, generator=generator())
    padded = torch.nn.functional.pad(x, [1, 1, 2, 2])
    wide = ConvEncoder((2, 32, 32), 5, generator())
    assert torch.equal(encoder(x)[0], wide(padded)[0])
    z = torch.randn(3, 5, generator=generator())
    whole = ConvDecoder((2, 32, 32), 5, generator())(z)
    assert torch.equal(decoder(z), whole[:, :, 2:30, 1:31])


def test_initial_weights_come_from_the_generator():
    torch.manual_seed(0)
    first = Autoencoder().state_dict()
    torch.manual_seed(1)
    again, other = Autoencoder().state_dict(), Autoencoder(9).state_dict()
    for name, value in first.items():
        assert torch.equal(value, again[name])
    assert not torch.equal(
        first["encoder.convolutions.0.weight"], other["encoder.convolutions.0.weight"]
    )


@torch.no_grad()
def test_untrained_numbers_are_of_size_one():
    shape = (1, 32, 32)
    encoder, decoder = (
        kind(shape, 50, generator()) for kind in (ConvEncoder, ConvDecoder)
    )
    means, _ = encoder(torch.rand(64, *shape, generator=generator()))
    pixels = decoder(torch.randn(64, 50, generator=generator()))
    for x in (means, pixels):
        assert 0.4 < float(x.square().mean().sqrt()) < 1.6


def test_an_image_is_encoded_alone():
    model, x = Autoencoder().double(), images(6)
    together = model(x)[0]
    alone = torch.cat([model(row[None])[0] for row in x])
    assert torch.allclose(together, alone)


def test_every_layer_has_a_closed_form():
    layers = layers_of(Autoencoder(), images(2).float())
    assert {type(layer) for layer in layers} == {ConvGradients, LinearGradients}


def test_clipped_sums_are_those_of_one_image_at_a_time():
    assert are_clipped_one_by_one(Autoencoder().double(), images(7))


def test_partition_sums_are_those_of_one_partition_at_a_time():
    model, x = Autoencoder().double(), images(9)
    groups = torch.tensor([0, 2, 0, 3, 2, 2, 0, 3, 2])
    sizes = groups.bincount(minlength=4).tolist()
    with record(model) as calls:
        z = model(x)[1]
    terms = [mmd(z[groups == g]) for g in (0, 2, 3)]
    layers = layer_gradients(model, calls, torch.stack(terms).sum(), len(x))
    for site in layers:
        expected = torch.autograd.grad(
            mmd(model(x[groups == 2])[1]), site.parameters, allow_unused=True
        )
        for parts, e in zip(site.grouped(groups, sizes), expected, strict=True):
            alone = torch.zeros_like(parts[2]) if e is None else e
            assert torch.allclose(parts[2], alone)
            assert not parts[1].any()


@pytest.mark.parametrize("loud", [0.0, 1.0, 1e4, float("nan")])
def test_one_image_moves_the_gradient_by_its_sensitivity_at_most(loud):
    model = Autoencoder().double()
    x = images(6)
    x[5] *= loud
    gradient = PrivateGradient(
        Clipper("flat", 0.05, group_bound=0.005), 1.0, 6, 2, batch_term_module="encoder"
    )
    partition = torch.tensor([0, 1, 0, 1, 1, 0]).numpy()

    def released(present):
        rows = torch.arange(6)
        return gradient(
            model, lambda i: model(x[i]), [(rows, torch.tensor(present))], Silent(),
            generator(), lambda z: 100 * mmd(z), lambda size: partition[:size],
        )  # fmt: skip

    whole = released([True] * 6)
    without = released([True] * 5 + [False])
    moved = norm({p: whole[p] - without[p] for p in whole})
    assert moved <= gradient.sensitivity(batch_wise=True) * (1 + 1e-5)
    if loud == 1.0:
        # An image of the usual size is clipped, so that it counts in full.
        assert moved > 0.9 * 0.05 / 6
    assert all(x.isfinite().all() for x in whole.values())
