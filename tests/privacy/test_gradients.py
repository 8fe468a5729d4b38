"""Every closed form against one-example-at-a-time autograd."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from dpgenerative.layers import LowRankLinear, LULinear, MaskedLinear
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.flow import AnchoredBlock
from dpgenerative.models.priors import NormalPrior
from dpgenerative.models.vae import VAE
from dpgenerative.privacy import steps
from dpgenerative.privacy.clipping import STRATEGIES, unit_factors
from dpgenerative.privacy.gradients import (
    ConvGradients,
    GenericGradients,
    LayerGradients,
    LinearGradients,
    core,
    free_coordinates,
    layer_gradients,
    record,
    register_rule,
)
from dpgenerative.privacy.gradients.core import rule_of
from dpgenerative.privacy.steps import Clipper
from tests.privacy.oracle import Net, norm, per_example_gradients

TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}


def layers_of(model, x):
    with record(model) as calls:
        losses, _ = model(x)
    return layer_gradients(model, calls, losses.sum(), len(x))


def case(uses, dtype, n=7):
    torch.manual_seed(1)
    model = Net(uses).to(dtype)
    x = torch.randn(n, 4, dtype=dtype)
    return model, x, layers_of(model, x), per_example_gradients(model, x)


def close(a, b, dtype):
    scale = b.abs().max().clamp(min=1e-30)
    assert ((a - b).abs().max() / scale) <= TOLERANCE[dtype]


@pytest.mark.thin(2)
@pytest.mark.parametrize("uses", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_per_example_gradients(uses, dtype):
    _, _, layers, oracle = case(uses, dtype)
    for layer in layers:
        for p, g in zip(layer.parameters, layer.per_example(), strict=True):
            close(g, torch.stack([row[p] for row in oracle]), dtype)


@pytest.mark.parametrize("uses", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_norms(uses, dtype):
    _, _, layers, oracle = case(uses, dtype)
    for layer in layers:
        squares, margins = layer.squared_norms()
        expected = [norm({p: row[p] for p in layer.parameters}) for row in oracle]
        expected = torch.tensor(expected, dtype=torch.float64)
        close(squares.sqrt(), expected, dtype)
        assert (squares.sqrt() + margins >= expected * (1 - 1e-12)).all()


@pytest.mark.parametrize("uses", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_norms(uses, dtype):
    _, _, layers, oracle = case(uses, dtype)
    for layer in layers:
        norms = layer.unit_norms()
        if isinstance(layer, LinearGradients):
            joint = [
                torch.cat(
                    [row[layer.parameters[0]], row[layer.parameters[1]][:, None]], 1
                )
                for row in oracle
            ]
            rows = [torch.stack(joint)]
        else:
            grads = [torch.stack([row[p] for row in oracle]) for p in layer.parameters]
            rows = [g.flatten(2) if g.ndim > 2 else g.unsqueeze(2) for g in grads]
        for (total, share), g in zip(norms, rows, strict=True):
            l1, l2 = g.double().abs().sum(2), g.double().square().sum(2).sqrt()
            # Factors are roots of 1 / (total share): their bounds add up to 1.
            squares = l2.square() / (total.unsqueeze(1) * share).clamp(min=1e-300)
            assert (squares.sum(1) <= 1 + TOLERANCE[dtype]).all()
            # Exact for one position; for several, sums of them stand for L1 norms.
            assert (total >= l1.sum(1) * (1 - TOLERANCE[dtype])).all()
            if uses == 1 or not isinstance(layer, LinearGradients):
                close(total, l1.sum(1), dtype)
                exact = l2.square() / l1.clamp(min=1e-300)
                error = (share - exact).abs().max() / exact.max()
                assert error <= max(TOLERANCE[dtype], 1e-5)


@pytest.mark.parametrize("uses", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_factors_are_those_of_the_norms(uses, dtype):
    _, x, layers, _ = case(uses, dtype)
    rows = torch.arange(len(x)) > 0
    for layer in layers:
        norms = layer.unit_norms()
        total = sum(sizes for sizes, _ in norms)
        # Half of the rows of all gradients are clipped.
        limits = [total.unsqueeze(1) * share for _, share in norms]
        bound = float(torch.cat([x.flatten() for x in limits]).median().sqrt())
        found = layer.unit_factors(bound, rows)
        for scale, (_, share) in zip(found, norms, strict=True):
            expected = unit_factors(total, share, bound, rows)
            close(scale, expected, torch.float32)
            assert not scale[0].any()


@pytest.mark.parametrize("n_inputs", [0, 3])
@pytest.mark.parametrize("n_blind", [99, 100])
def test_many_outputs_that_see_no_input(n_inputs, n_blind):
    groups = torch.zeros(n_inputs, dtype=torch.long), torch.arange(200) // n_blind
    layer = MaskedLinear(*groups, torch.tensor([[0], [1], [1]]).bool())
    x = torch.randn(70, n_inputs)
    with record(nn.ModuleList([layer])) as calls:
        loss = (layer(x) + 1).square().sum()
    (found,) = layer_gradients(nn.ModuleList([layer]), calls, loss, 70)
    factors = torch.rand(70, dtype=torch.float64)
    e = factors[:, None] * found.e[:, 0].double()
    sums = found.weighted_sum(factors)
    same = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-4)
    same(sums[layer.weight], e.T @ x.double() * layer.mask)
    same(sums[layer.bias], e.sum(0))


@pytest.mark.parametrize("uses", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_sums(uses, dtype):
    _, x, layers, oracle = case(uses, dtype)
    factors = torch.rand(len(x), dtype=torch.float64)
    for layer in layers:
        for p, total in layer.weighted_sum(factors).items():
            rows = torch.stack([row[p] for row in oracle])
            shape = (-1,) + (1,) * (rows.ndim - 1)
            close(total, (factors.to(dtype).view(shape) * rows).sum(0), dtype)
        per_unit = [
            torch.rand(share.shape, dtype=torch.float64)
            for _, share in layer.unit_norms()
        ]
        for k, (p, total) in enumerate(layer.weighted_sum(per_unit).items()):
            s = per_unit[min(k, len(per_unit) - 1)].to(dtype)
            rows = torch.stack([row[p] for row in oracle])
            s = s.view(s.shape + (1,) * (rows.ndim - s.ndim))
            close(total, (s * rows).sum(0), dtype)


@pytest.mark.parametrize("uses", [1, 2])
def test_flat_gradients(uses):
    _, _, layers, _ = case(uses, torch.float32)
    for layer in layers:
        check_flat(layer)


@pytest.mark.parametrize(
    ("visible", "m"),
    [
        ([[0, 0, 0], [1, 0, 0], [1, 1, 0]], 14),  # columns before, in any order
        ([[0, 1, 0], [0, 0, 1], [1, 0, 0]], 30),  # no order: zeros stay
        ([[1, 1, 1]] * 3, 30),
    ],
)
def test_masked_entries_are_left_out_of_flat_gradients(visible, m):
    torch.manual_seed(0)
    groups = torch.tensor([2, 0, 1, 1]), torch.tensor([1, 2, 0, 2, 0, 1])
    layer = MaskedLinear(*groups, torch.tensor(visible, dtype=torch.bool))
    rows = LinearGradients(layer, [(torch.randn(5, 4),)], [(torch.randn(5, 6),)])
    check_flat(rows)
    assert rows.flat(slice(2)).shape == (2, m)


def check_flat(layer):
    weights = torch.arange(1.0, 4.0)
    found = layer.of_flat(weights @ layer.flat(slice(1, 4)).float())
    for p, g in zip(layer.parameters, layer.per_example(slice(1, 4)), strict=True):
        expected = torch.tensordot(weights, g.float(), 1)
        assert torch.allclose(found[p].float(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("uses", [1, 2])
def test_grouped_gradients(uses):
    _, _, layers, oracle = case(uses, torch.float64, n=9)
    groups = torch.tensor([0, 2, 2, 0, 1, 2, 0, 1, 0])
    sizes = groups.bincount(minlength=4).tolist()
    for layer in layers:
        for p, total in zip(
            layer.parameters, layer.grouped(groups, sizes), strict=True
        ):
            for g in range(4):
                members = [
                    row[p] for row, h in zip(oracle, groups, strict=True) if h == g
                ]
                expected = sum(members, torch.zeros_like(p))
                assert torch.allclose(total[g], expected, rtol=1e-10, atol=1e-12)


def test_the_log_determinant_takes_part():
    # A loss of -log|det W| alone: its gradient is the same matrix for every example.
    for layer in (LowRankLinear(3, 2, torch.Generator().manual_seed(0)), LULinear(3)):
        with torch.no_grad():
            for p in layer.parameters():
                p.add_(
                    0.1
                    * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
                )
        model = nn.ModuleList([layer])
        x = torch.randn(5, 3)
        with record(model) as calls:
            _, log_det = layer(x)
        (site,) = layer_gradients(model, calls, -log_det.sum(), 5)
        matrix = layer.matrix()
        expected = torch.autograd.grad(
            -torch.linalg.slogdet(matrix)[1], layer.parameters()
        )
        for g, e in zip(site.per_example(), expected, strict=True):
            assert torch.allclose(g.float(), e.expand_as(g), atol=1e-5)


def test_cancelling_positions_never_pass_for_short():
    # Two positions that nearly cancel: the true norm is far below the two terms'.
    torch.manual_seed(0)
    layer = MaskedLinear.dense(64, 64)
    a = torch.randn(50, 64)
    e = torch.randn(50, 64) * 1e3
    tiny = 1e-6 * torch.randn(50, 64)
    site = LinearGradients(layer, [(a,), (a,)], [(e,), (-e * (1 + 1e-7) + tiny,)])
    squares, margins = site.squared_norms()
    weight, bias = site.per_example()
    true = (
        weight.double().flatten(1).square().sum(1) + bias.double().square().sum(1)
    ).sqrt()
    assert (squares.sqrt() + margins >= true * (1 - 1e-6)).all()


def test_rows_without_use_are_removed_whatever_they_hold():
    model, x, _, oracle = case(1, torch.float32)
    x = torch.cat([x, torch.full((2, 4), torch.inf), torch.full((1, 4), torch.nan)])
    layers = layers_of(model, x)
    keep = torch.arange(len(x)) < 7
    assert not torch.stack([layer.finite() for layer in layers]).all(0)[7:].any()
    for layer in layers:
        assert layer.finite()[:7].all()
        layer.keep(keep)
        for p, total in layer.weighted_sum(keep.double()).items():
            expected = torch.stack([row[p] for row in oracle]).sum(0)
            assert torch.allclose(total.float(), expected, rtol=1e-4, atol=1e-5)


def test_no_rows_give_zero_sums():
    model = Net(2)
    for layer in layers_of(model, torch.zeros(0, 4)):
        for p, total in layer.weighted_sum(torch.zeros(0, dtype=torch.float64)).items():
            assert total.shape == p.shape
            assert not total.any()


def test_a_parameter_outside_every_called_layer_is_refused():
    class Stray(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = MaskedLinear.dense(2, 1)
            self.stray = nn.Parameter(torch.ones(1))

    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Stray()

        def forward(self, x):
            return (self.inner.layer(x) * self.inner.stray).sum(1)

    model = Wrapped()
    with record(model) as calls:
        losses = model(torch.ones(3, 2))
    with pytest.raises(ValueError, match="stray"):
        layer_gradients(model, calls, losses.sum(), 3)


def test_the_generic_path_agrees_with_the_closed_form(monkeypatch):
    model, x, layers, _ = case(2, torch.float64)
    monkeypatch.setattr(core, "RULES", {nn.Module: GenericGradients})
    for closed, generic in zip(layers, layers_of(model, x), strict=True):
        assert isinstance(generic, GenericGradients)
        for a, b in zip(closed.per_example(), generic.per_example(), strict=True):
            assert torch.allclose(a, b, rtol=1e-9, atol=1e-11)


# Rules of one's own ---------------------------------------------------------------


class Triangle(nn.Module):
    """A layer that uses half of its weight, and that no rule of the package knows."""

    def __init__(self, n_features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_features, n_features))
        self.shift = nn.Parameter(torch.zeros(n_features))

    def forward(self, x):
        return x @ self.weight.tril().T + self.shift


class TriangleGradients(LayerGradients):
    @staticmethod
    def free_coordinates(module):
        return {module.weight: torch.ones_like(module.weight).tril()}

    def of_call(self, inputs, grads):
        (x,), (e,) = inputs, grads
        return [torch.einsum("nu,nv->nuv", e, x).tril(), e]


class TwoTriangles(nn.Module):
    """A layer with a user's rule, used twice, and one with the package's."""

    def __init__(self):
        super().__init__()
        self.own = Triangle(4)
        self.head = MaskedLinear.dense(4, 2, torch.Generator().manual_seed(0))

    def forward(self, x):
        h = self.own(torch.tanh(self.own(x)))
        return self.head(h).square().sum(1), h


@pytest.fixture
def own_rule(monkeypatch):
    monkeypatch.setattr(core, "RULES", dict(core.RULES))
    register_rule(Triangle)(TriangleGradients)


@pytest.mark.usefixtures("own_rule")
def test_a_rule_of_ones_own_agrees_with_one_example_autograd():
    torch.manual_seed(0)
    model, x = TwoTriangles().double(), torch.randn(6, 4).double()
    own, _ = layers = layers_of(model, x)
    assert type(own) is TriangleGradients
    oracle = per_example_gradients(model, x)
    factors = torch.rand(6).double()
    for layer in layers:
        rows = {p: torch.stack([row[p] for row in oracle]) for p in layer.parameters}
        for p, g in zip(layer.parameters, layer.per_example(), strict=True):
            close(g, rows[p], torch.float64)
        expected = sum(g.flatten(1).square().sum(1) for g in rows.values())
        close(layer.squared_norms()[0], expected, torch.float64)
        for p, total in layer.weighted_sum(factors).items():
            scale = factors.view((-1,) + (1,) * (rows[p].ndim - 1))
            close(total, (scale * rows[p]).sum(0), torch.float64)
    assert own.n_coordinates == 10 + 4
    assert free_coordinates(model)[model.own.weight].sum() == 10


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_rule_of_ones_own_is_clipped_like_any_other(strategy):
    torch.manual_seed(0)
    model, x = TwoTriangles(), 1e3 * torch.randn(1, 4)
    present = torch.ones(1, dtype=torch.bool)
    clipper = Clipper(strategy, 0.5)
    sums = clipper.clipped_sums(layers_of(model, x), present, torch.Generator())
    assert set(sums) == set(model.parameters())
    assert 0.25 < norm(sums) <= 0.5


@pytest.mark.usefixtures("own_rule")
def test_a_subclass_has_no_rule_by_its_parents():
    class Other(Triangle):
        def forward(self, x):
            return super().forward(x) + self.shift

    layer = Other(4)
    assert rule_of(layer) is GenericGradients
    # What its parent does not use of the weight gets no noise all the same.
    assert set(free_coordinates(layer)) == {layer.weight}


# Convolutions ---------------------------------------------------------------------


class ConvNet(nn.Module):
    """Convolutions of every setting that has a rule, one of them used twice."""

    def __init__(self, bias=True):
        super().__init__()
        self.first = nn.Conv2d(1, 3, 4, stride=2, padding=1, bias=bias)
        self.same = nn.Conv2d(3, 3, 3, padding=2, dilation=2, bias=bias)
        self.back = nn.ConvTranspose2d(
            3, 2, 4, stride=2, padding=1, output_padding=1, bias=bias
        )

    def forward(self, x):
        h = torch.tanh(self.first(x))
        h = torch.tanh(self.same(torch.tanh(self.same(h))))
        return self.back(h).square().sum((1, 2, 3)), h


def conv_case(dtype, n=5, bias=True):
    torch.manual_seed(2)
    model = ConvNet(bias).to(dtype)
    x = torch.randn(n, 1, 8, 6, dtype=dtype)
    return model, layers_of(model, x), per_example_gradients(model, x)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convolutions(dtype, bias, monkeypatch):
    monkeypatch.setattr(ConvGradients, "chunk_size", 2)
    _, layers, oracle = conv_case(dtype, bias=bias)
    factors = torch.rand(5, dtype=torch.float64)
    assert [type(layer) for layer in layers] == [ConvGradients] * 3
    for layer in layers:
        rows = {p: torch.stack([row[p] for row in oracle]) for p in layer.parameters}
        for p, g in zip(layer.parameters, layer.per_example(), strict=True):
            close(g, rows[p], dtype)
        squares, margins = layer.squared_norms()
        expected = [norm({p: row[p] for p in layer.parameters}) for row in oracle]
        expected = torch.tensor(expected, dtype=torch.float64)
        close(squares.sqrt(), expected, dtype)
        assert (squares.sqrt() + margins >= expected * (1 - 1e-12)).all()
        for p, total in layer.weighted_sum(factors).items():
            s = factors.to(dtype).view((-1,) + (1,) * (rows[p].ndim - 1))
            close(total, (s * rows[p]).sum(0), dtype)
        units = [torch.rand(s.shape).to(dtype) for _, s in layer.unit_norms()]
        for p, total, s in zip(
            layer.parameters, layer.weighted_sum(units).values(), units, strict=True
        ):
            s = s.view(s.shape + (1,) * (rows[p].ndim - s.ndim))
            close(total, (s * rows[p]).sum(0), dtype)


def test_convolutions_of_no_examples():
    model, _, _ = conv_case(torch.float32)
    for layer in layers_of(model, torch.zeros(0, 1, 8, 6)):
        assert layer.squared_norms()[0].shape == (0,)
        for total in layer.weighted_sum(torch.zeros(0)).values():
            assert not total.any()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 2, 3, groups=2),
        nn.Conv2d(2, 2, 3, padding="same"),
        nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"),
    ],
    ids=["groups", "same", "circular"],
)
def test_other_convolutions_go_the_general_way(layer):
    model, x = nn.ModuleList([layer]), torch.randn(4, 2, 5, 5)
    with record(model) as calls:
        loss = layer(x).square().sum()
    (site,) = layer_gradients(model, calls, loss, 4)
    assert type(site) is GenericGradients
    for i, row in enumerate(x):
        loss = layer(row[None]).square().sum()
        for g, e in zip(
            site.per_example(), torch.autograd.grad(loss, layer.parameters()),
            strict=True,
        ):  # fmt: skip
            assert torch.allclose(g[i], e, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("broken", [None, 3])
def test_layers_that_share_tensors_and_products_of_halves(broken):
    torch.manual_seed(0)
    cells = 9 * [CellFacts(torch.full((12,), 1 / 12), False, False, torch.ones(12) > 0)]
    model = AnchoredBlock(cells, 4, 16, torch.Generator().manual_seed(0))
    assert len(model.skip.parts) == 2
    codes = torch.randint(12, (150, 9))
    scale = torch.ones(150)
    if broken is not None:
        scale[broken] = math.inf
    with record(model) as calls:
        loss = (model(codes) * scale).sum()
    layers = layer_gradients(model, calls, loss, 150)
    usable = torch.stack([layer.finite() for layer in layers]).all(0)
    assert usable.sum() == 150 - (broken is not None)
    for layer in layers:
        layer.keep(usable)
        squares, _ = layer.squared_norms()
        total, share = layer.unit_norms()[0]
        weight, bias = (g.double() for g in layer.per_example())
        rows = torch.cat([weight, bias.unsqueeze(2)], 2)
        close(squares, rows.square().sum((1, 2)), torch.float32)
        close(total, rows.abs().sum((1, 2)), torch.float32)
        l1, l2 = rows.abs().sum(2), rows.square().sum(2)
        close(share, l2 / l1.clamp(min=1e-300), torch.float32)
        factors = torch.rand(150)
        sums = layer.weighted_sum(factors)
        close(
            sums[layer.module.weight],
            torch.einsum("n,nuv->uv", factors.double(), weight),
            torch.float32,
        )
        close(sums[layer.module.bias], factors.double() @ bias, torch.float32)


# Products that are looked up ------------------------------------------------------


@pytest.mark.parametrize("hidden_units", [0, 8])
def test_rows_that_add_up_what_cells_bring_have_the_same_gradients(hidden_units):
    facts = [
        CellFacts(torch.full((12,), 1 / 12), ordered, True, torch.ones(12).bool())
        for ordered in (True, False, True)
    ]
    generator = torch.Generator().manual_seed(0)
    model = AnchoredBlock(facts, 6, hidden_units, generator)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator), alpha=0.3)
    codes = torch.randint(12, (64, 3), generator=generator)
    layers = [model.skip, model.hidden] if hidden_units else [model.skip]
    plain = model(codes)
    expected = torch.autograd.grad(plain.sum(), list(model.parameters()))
    with record(model) as calls:
        assert model.precompute(codes, layers)[-1] is not None
        # Of however few rows: one more must not change how the others round.
        assert model.precompute(codes[:2], layers)[-1] is not None
        found = model(codes)
    torch.testing.assert_close(found, plain)
    sums = {}
    for layer in layer_gradients(model, calls, found.sum(), 64):
        sums |= layer.weighted_sum(torch.ones(64, dtype=torch.float64))
    used = free_coordinates(model)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        gradient = gradient * used.get(p, 1)
        torch.testing.assert_close(sums[p].float(), gradient, rtol=1e-4, atol=1e-5)
    # What autograd sees is whole again.
    assert model.precompute(codes, layers)[-1] is None
    again = torch.autograd.grad(model(codes).sum(), list(model.parameters()))
    assert all(map(torch.equal, again, expected))


def test_a_row_at_the_bound_of_offsets_changes_no_bit_of_another():
    generator = torch.Generator().manual_seed(0)
    cells = torch.ones(600).bool()
    facts = [CellFacts(torch.full((600,), 1 / 600), True, True, cells)] * 2
    model = AnchoredBlock(facts, 400, 0, generator)
    codes = torch.randint(600, (512, 2), generator=generator)
    coefficients = 0.01 * torch.randn(512, sum(model.widths), generator=generator)
    extreme = coefficients.clone()
    extreme[-1] = 1e4
    found = []
    for values in (coefficients, extreme):
        values.requires_grad_()
        model.log_prob(values, codes).sum().backward()
        found.append(values.grad[:-1])
    assert model.may_be_bounded(coefficients) != model.may_be_bounded(extreme)
    assert torch.equal(*found)
    # Nor does it warn where sums overflow.
    assert model.may_be_bounded(3e38 * torch.ones_like(coefficients)) == [True] * 2


def test_encoders_that_add_up_what_cells_bring_have_the_same_gradients():
    facts = [
        CellFacts(torch.full((12,), 1 / 12), ordered, True, torch.ones(12).bool())
        for ordered in (True, False, True)
    ]
    generator = torch.Generator().manual_seed(0)
    sizes = {"n_basis": 6, "hidden_units": 8, "latent_dim": 2}
    model = VAE(
        facts, **sizes, prior=NormalPrior(2), beta=1.0, generator=generator
    ).double()
    hidden = model.encoder.hidden
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator), alpha=0.3)
    codes = torch.randint(12, (64, 3), generator=generator)
    noise = torch.randn(64, 1, 2, generator=generator).double()
    plain, _ = model(codes, noise)
    expected = torch.autograd.grad(plain.sum(), list(model.parameters()))
    with record(model) as calls:
        assert model.cells.precompute(codes[:2], [hidden])[0] is not None
        found, _ = model(codes, noise)
    torch.testing.assert_close(found, plain)
    sums = {}
    for layer in layer_gradients(model, calls, found.sum(), 64):
        sums |= layer.weighted_sum(torch.ones(64, dtype=torch.float64))
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(sums[p], gradient)


def test_large_tables_of_outputs_are_not_made():
    facts = [CellFacts(torch.full((700,), 1 / 700), True, True, torch.ones(700) > 0)]
    for n_columns, pays in ((2, True), (3, False)):
        model = AnchoredBlock(facts * n_columns, 6, 0, torch.Generator())
        with record(model):
            codes = torch.zeros(4000, n_columns, dtype=int)
            (outputs,) = model.precompute(codes, [model.skip])
        assert (outputs is not None) == pays


def test_sums_are_in_double_precision_whatever_a_rule_returns():
    weight, total = nn.Parameter(torch.ones(2)), {}
    for _ in range(2):
        steps._accumulate(total, {weight: torch.full((2,), 0.1)}, 0.5)
    assert total[weight].dtype == torch.float64
