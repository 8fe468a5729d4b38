"""Known mistakes of private training, each a patch, and the check that catches it.

Patches live here alone; the package has no switch for any of them. `page` writes
``doc/mutants.rst``: run ``python -m tests.privacy.mutants > doc/mutants.rst``.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy.stats import norm

from dpgenerative import (
    DPArrayVAESynthesizer,
    DPHFlowSynthesizer,
    ImagePixelizer,
    LaplaceRandomizer,
    PrivateSearch,
    VAEPerturber,
)
from dpgenerative._random import SecureGenerator, Streams
from dpgenerative.encoding import grid, places, shares
from dpgenerative.encoding.marginals import MarginalRelease
from dpgenerative.encoding.shares import SPIKE_SHARE
from dpgenerative.encoding.stick_breaking import StickBreaking
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting import embedding as fitting_embedding
from dpgenerative.fitting import fit, loop, workload
from dpgenerative.fitting import trial as fitting_trial
from dpgenerative.fitting.fit import PrivateFit
from dpgenerative.local import tables as local_tables
from dpgenerative.local.latents import FINENESS
from dpgenerative.meta import search
from dpgenerative.meta.base import LEAST_ROWS, SyntheticPredictor
from dpgenerative.models.cells import LARGEST_OFFSET, Cells
from dpgenerative.models.hflow import HFlow
from dpgenerative.models.vae import ImageVAE
from dpgenerative.privacy import (
    accounting,
    clipping,
    embedding,
    latents,
    moments,
    noise,
    plan,
    sampling,
    steps,
    tables,
    trial,
)
from dpgenerative.privacy import norm as norm_release
from dpgenerative.privacy.accounting import GaussianRelease
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.gradients import LinearGradients, core, linear
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.moments import MOMENTS
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.ranks import ALONE, ProcessGroup
from dpgenerative.privacy.steps import Clipper, PrivateGradient
from dpgenerative.privacy.tables import TABLES
from dpgenerative.synthesizers import flow, session, vae
from dpgenerative.synthesizers import latents as autoencoders
from dpgenerative.tables import sequences
from dpgenerative.tables.private import Private, opened
from dpgenerative.tables.rows import Chunks
from dpgenerative.tables.schema import Schema
from tests import (
    test_probing,
    test_search,
    test_sequences,
    test_series,
    test_tables_counted,
    test_transform,
    test_trial,
)
from tests.privacy import (
    adversary,
    test_accounting,
    test_aggregation,
    test_embedding,
    test_gradients,
    test_ledger,
    test_local,
    test_moments,
    test_noise,
    test_noise_multiplier,
    test_ranks,
    test_replay,
    test_rounding,
    test_selection,
    test_sensitivity,
    test_tables,
    test_training,
)
from tests.privacy.processes import ThreadRanks

Check = Callable[[], Any]


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    Attributes
    ----------
    name : str
        The mistake, in words.
    apply : callable
        Makes it, given a monkeypatch.
    check : callable
        A test that passes on the true code and fails here.
    fast : bool
        Whether the pair runs in the default suite.
    """

    name: str
    apply: Callable[[Any], None]
    check: Check
    fast: bool = True

    @property
    def caught_by(self) -> str:
        """Name of the check and its arguments."""
        check: Any = self.check
        if not isinstance(check, partial):
            return f"{_module(check)}.{check.__name__}"
        arguments = ", ".join(_word(x) for x in check.args)
        return f"{_module(check.func)}.{check.func.__name__}({arguments})"


def _module(function: Any) -> str:
    return str(function.__module__).rpartition(".")[2]


def _word(value: Any) -> str:
    return value.__name__ if callable(value) else repr(value)


# Several processes ----------------------------------------------------------------


def every_process_releases_its_own(patch):
    """Noise in each process, and no sums over them."""
    patch.setattr(ThreadRanks, "total", lambda self, tensors: list(tensors))
    patch.setattr(ProcessGroup, "is_first", True)


def every_process_adds_a_share_of_the_noise(patch):
    whole = Mechanisms.gradient

    def gradient(self, sums, stds, **stated):
        ranks, self.ranks = self.ranks, ALONE
        parts = whole(self, sums, [s / ranks.size for s in stds], **stated)
        self.ranks = ranks
        return ranks.total(parts)

    patch.setattr(Mechanisms, "gradient", gradient)


def histograms_with_the_noise_of_every_process(patch):
    def gaussian(self, values, std, *, release, sensitivity):
        self.ledger.gaussian(release, std, sensitivity)
        parts = self.ranks.gathered(self._noisy(opened(values), std))
        return self.ranks.same(sum(parts))

    patch.setattr(Mechanisms, "gaussian", gaussian)


def every_process_takes_the_whole_table(patch):
    patch.setattr(ProcessGroup, "share", lambda self, rows, seed: rows)


def one_stream_of_batches_for_all_processes(patch):
    create = Streams.create.__func__

    def same(cls, seed, noise, device, rank=0):
        return create(cls, seed, noise, device)

    patch.setattr(Streams, "create", classmethod(same))


def scores_of_parts_added_up(patch):
    whole = tables.Comparison.__init__

    def made(self, *args):
        door = args[-1]
        alone = SimpleNamespace(ranks=ALONE, choose=door.choose, gaussian=door.gaussian)
        whole(self, *args[:-1], alone)

    patch.setattr(tables.Comparison, "__init__", made)


# Clipping and sensitivity ---------------------------------------------------------


def no_clipping(patch):
    patch.setattr(
        clipping, "factors", lambda norms, bound, margins: torch.ones_like(norms)
    )


def no_clipping_of_units(patch):
    patch.setattr(
        clipping,
        "unit_scale",
        lambda total, bound, rows: torch.zeros_like(total),
    )


def every_layer_gets_the_whole_bound(patch):
    patch.setattr(clipping, "layer_bounds", lambda bound, sizes: [bound] * len(sizes))


def nan_let_through(patch):
    patch.setattr(
        steps,
        "without_unusable",
        lambda layers: torch.ones_like(layers[0].finite()),
    )


def norms_of_single_steps(patch):
    def apart(self):
        total = (self.e2 * self.a2).sum((1, 2)).double()
        return total, torch.zeros_like(total)

    patch.setattr(LinearGradients, "squared_norms", apart)


def steps_that_are_not_there(patch):
    log_steps = ImageVAE._log_steps

    def whole(self, logits, series):
        every = torch.ones_like(series[..., -1:])
        return log_steps(self, logits, torch.cat([series[..., :-1], every], -1))

    patch.setattr(ImageVAE, "_log_steps", whole)


def longest_series_of_the_data(patch):
    pixels = DPArrayVAESynthesizer._pixels

    def longest(self, X):
        stated = self.image_shape
        self.image_shape = max(map(len, X)), stated[1]
        found = pixels(self, X)
        self.image_shape = stated
        return found

    patch.setattr(DPArrayVAESynthesizer, "_pixels", longest)


def half_precision_norms(patch):
    whole = LinearGradients.squared_norms

    def rounded(self):
        squares, margins = whole(self)
        return squares.sqrt().half().double().square(), torch.zeros_like(margins)

    patch.setattr(LinearGradients, "squared_norms", rounded)


def sums_in_single_precision(patch):
    def single(self, factors):
        layer = self.module
        s = factors.unsqueeze(1) if torch.is_tensor(factors) else factors[0]
        e = self.e * s.to(self.e.dtype).unsqueeze(1)
        weight = e.flatten(0, 1).T @ self.a.flatten(0, 1) * layer.mask
        return {layer.weight: weight, layer.bias: e.sum((0, 1))}

    patch.setattr(LinearGradients, "weighted_sum", single)


def unbounded_parts(patch):
    patch.setattr(core, "LARGEST_SUM", math.inf)


def single_precision_and_unbounded_parts(patch):
    sums_in_single_precision(patch)
    unbounded_parts(patch)


def padding_counts(patch):
    whole = Clipper.clipped_sums
    patch.setattr(
        Clipper,
        "clipped_sums",
        lambda self, layers, present, generator: whole(
            self, layers, torch.ones_like(present), generator
        ),
    )

    where = torch.where

    def leave(condition, x, y):
        same = isinstance(x, torch.Tensor) and x.ndim == 1 and x.requires_grad
        return x if same else where(condition, x, y)

    patch.setattr(torch, "where", leave)


def _sensitivity(patch, aggregation, value):
    true = PrivateGradient.sensitivity

    def wrong(self, batch_wise):
        if self.aggregation == aggregation and (batch_wise or aggregation == "batch"):
            return value(self)
        return true(self, batch_wise)

    patch.setattr(PrivateGradient, "sensitivity", wrong)


def c_for_2c(patch):
    _sensitivity(patch, "batch", lambda g: g.clipper.bound)


def c2_for_2c2(patch):
    _sensitivity(
        patch,
        "term-wise",
        lambda g: (
            g.clipper.bound / g.batch_size + g.clipper.group_bound / g.n_partitions
        ),
    )


def micro_batches_of_the_paper(patch):
    patch.setattr(clipping, "coupled_sensitivity", lambda bound, most: most * bound)


def kappa_of_one(patch):
    _sensitivity(
        patch,
        "term-wise",
        lambda g: math.hypot(
            g.clipper.bound / g.batch_size, 2 * g.clipper.group_bound / g.n_partitions
        ),
    )


def divisor_of_the_batch(patch):
    whole = PrivateGradient._total

    def divided(self, model, objective, chunks, *rest):
        chunks = list(chunks)
        size = max(1, sum(int(present.sum()) for _, present in chunks))
        actual = dataclasses.replace(self, batch_size=float(size))
        return whole(actual, model, objective, chunks, *rest)

    patch.setattr(PrivateGradient, "_total", divided)


def divisor_of_the_table(patch):
    whole = PrivateFit.gradient

    def divided(self, model, objective, plan, rows, *rest):
        gradient = whole(self, model, objective, plan, rows, *rest)
        size = plan.sampling_rate * len(opened(rows))
        return dataclasses.replace(gradient, batch_size=size)

    patch.setattr(PrivateFit, "gradient", divided)


def partitions_by_position(patch):
    patch.setattr(loop, "draw_partitions", lambda n, k, rng: np.arange(n) % k)


def another_rounding_where_no_row_is_extreme(patch):
    free = Cells.free_offsets
    patch.setattr(
        Cells,
        "offsets",
        lambda *given: free(*given).clamp(-LARGEST_OFFSET, LARGEST_OFFSET),
    )
    patch.setattr(
        Cells,
        "free_offsets",
        lambda self, x, j: (x.double() @ self.table(j).double().T).float(),
    )


def outputs_rounded_by_the_largest(patch):
    whole = Cells.precompute

    def rounded(self, codes, layers):
        size = 3 * max(part.abs().max() for part in whole(self, codes, layers))
        return [(part + size) - size for part in whole(self, codes, layers)]

    patch.setattr(Cells, "precompute", rounded)


# Noise and randomness -------------------------------------------------------------


def noise_over_batch_twice(patch):
    whole = PrivateGradient.stds
    patch.setattr(
        PrivateGradient,
        "stds",
        lambda self, model, batch_wise: {
            p: std / self.batch_size
            for p, std in whole(self, model, batch_wise).items()
        },
    )


def noise_of_the_first_steps_seed(patch):
    def repeated(self, n, device):
        draws = np.random.default_rng(7).standard_normal(n)
        return torch.from_numpy(draws).to(device)

    patch.setattr(Mechanisms, "_normal", repeated)


def one_parameter_without_noise(patch):
    whole = Mechanisms.gradient

    def partly(self, sums, stds, **stated):
        return [*whole(self, sums, stds, **stated)[:-1], sums[-1].clone()]

    patch.setattr(Mechanisms, "gradient", partly)


def histograms_with_less_noise(patch):
    whole = Mechanisms.gaussian
    patch.setattr(
        Mechanisms,
        "gaussian",
        lambda self, values, std, **stated: whole(self, values, std * 2 / 3, **stated),
    )


def counts_with_fractions(patch):
    def unrounded(self, values, std):
        return values + std * self._rng.standard_normal(np.shape(values))

    patch.setattr(Mechanisms, "_noisy", unrounded)


def threshold_of_unrounded_noise(patch):
    patch.setattr(
        test_noise,
        "threshold_for",
        lambda std, delta, n: float(math.ceil(std * norm.isf(delta / n))),
    )


def streams_of_one_root(patch):
    root = np.random.SeedSequence()
    patch.setattr(np.random, "SeedSequence", lambda *_: root.spawn(1)[0])


def count_by_floating_point(patch):
    def rounded(epsilon, rng):
        up, down = SecureGenerator().geometric(-math.expm1(-epsilon), 2)
        return int(up) - int(down)

    patch.setattr(test_noise, "discrete_laplace", rounded)


def secure_numbers_of_numpy(patch):
    patch.setattr(SecureGenerator, "bytes", lambda self, n: np.random.bytes(n))  # noqa: NPY002


def secure_numbers_of_a_constant(patch):
    fixed = np.random.default_rng(12345)
    patch.setattr(SecureGenerator, "bytes", lambda self, n: fixed.bytes(n))


def noise_that_follows_the_seed(patch):
    whole = Streams.create.__func__
    patch.setattr(
        Streams,
        "create",
        classmethod(
            lambda cls, seed, noise, device: whole(cls, seed, "reproducible", device)
        ),
    )


def exact_count(patch):
    patch.setattr(Mechanisms, "count", lambda self, rows, epsilon: len(opened(rows)))


def keys_without_threshold(patch):
    patch.setattr(
        Mechanisms, "thresholded", lambda self, counts, *_, **__: dict(opened(counts))
    )


def moments_without_noise(patch):
    whole = latents._released

    def exact(mechanisms, values, *rest):
        whole(mechanisms, values, *rest)
        return opened(values)

    patch.setattr(latents, "_released", exact)


# Sampling -------------------------------------------------------------------------


def shuffled_batches(patch):
    orders = {}

    def epoch(rows, q, rng, ledger):
        n = len(opened(rows))
        left = orders.get(id(rng), np.empty(0, dtype=np.int64))
        size = max(1, round(n * q))
        if len(left) < size:
            left = rng.permutation(n)
        orders[id(rng)] = left[size:]
        return left[:size]

    patch.setattr(loop, "poisson_indices", epoch)


def fixed_size_batches(patch):
    patch.setattr(
        loop,
        "poisson_indices",
        lambda rows, q, rng, ledger: rng.choice(
            len(opened(rows)), max(1, round(len(opened(rows)) * q)), replace=False
        ),
    )


def empty_batches_redrawn(patch):
    whole = loop.poisson_indices

    def some(*args):
        rows = whole(*args)
        while not len(rows):
            rows = whole(*args)
        return rows

    patch.setattr(loop, "poisson_indices", some)


def empty_batches_without_noise(patch):
    whole = PrivateGradient.__call__

    def skipped(self, model, objective, chunks, *rest):
        chunks = list(chunks)
        if not any(bool(present.any()) for _, present in chunks):
            return {p: torch.zeros_like(p) for p in model.parameters()}
        return whole(self, model, objective, chunks, *rest)

    patch.setattr(PrivateGradient, "__call__", skipped)


def large_batches_cut(patch):
    whole = loop.padded_chunks
    patch.setattr(
        loop,
        "padded_chunks",
        lambda rows, size, rng: list(whole(rows, size, rng))[:1],
    )


# Facts from rows ------------------------------------------------------------------


def _facts_from_rows(patch, change):
    whole = TableTransformer.fit.__func__

    def leaky(cls, frame, schema, *args, **kwargs):
        columns = [change(c, opened(frame)[c.name]) for c in schema.columns]
        return whole(cls, frame, Schema(columns), *args, **kwargs)

    patch.setattr(TableTransformer, "fit", classmethod(leaky))


def bounds_from_rows(patch):
    def bounded(column, values):
        if column.name != "income":
            return column
        ends = float(values.min()), float(values.max())
        return dataclasses.replace(column, lower=ends[0], upper=ends[1])

    _facts_from_rows(patch, bounded)


def parts_of(chunks):
    """Return what chunks hold, as a determined mistake would."""
    return opened(chunks.read)()


def increments_from_rows(patch):
    whole = MarginalRelease.fit

    def bounded(self, entries):
        if self.column.name == "income":
            ends = [float(f(map(f, parts_of(entries)))) for f in (min, max)]
            column = dataclasses.replace(self.column, lower=ends[0], upper=ends[1])
            self = dataclasses.replace(self, column=column)
        return whole(self, entries)

    patch.setattr(MarginalRelease, "fit", bounded)


def shares_of_the_rows_total(patch):
    left = StickBreaking._left

    def found(self, rows):
        totals = sum(rows[name].fillna(0) for name in (*self.bases, self.name))
        return left(dataclasses.replace(self, total=float(max(totals))), rows)

    patch.setattr(StickBreaking, "_left", found)


def steps_chosen_by_others(patch):
    hashed = sequences._hashed

    def found(keys):
        return hashed(keys) + np.uint64(len(keys))

    patch.setattr(sequences, "_hashed", found)


def every_row_of_a_person(patch):
    one = sequences.Sequences.steps

    def found(self, frame):
        made = one(self, frame)
        return made.loc[np.repeat(made.index, made[sequences.NUMBER])]

    patch.setattr(sequences.Sequences, "steps", found)


def rows_without_a_key_kept(patch):
    read = sequences._persons

    def found(series):
        persons, keys = read(series)
        more = len(keys) + np.arange(len(persons))
        persons = np.where(persons < 0, more, persons)
        return pd.factorize(persons)[0], list(range(len(np.unique(persons))))

    patch.setattr(sequences, "_persons", found)


def keys_compared_by_pandas(patch):
    patch.setattr(sequences, "_persons", pd.factorize)


def two_tables_matched_by_pandas(patch):
    def found(people, rows, unit):
        return rows.merge(people.drop_duplicates(unit), on=unit)

    patch.setattr(test_sequences, "merged", found)


def means_of_running_sums(patch):
    def found(values, first, lengths):
        sums = np.append(0.0, np.nancumsum(values))
        return (sums[first + lengths] - sums[first]) / np.where(
            lengths, lengths, np.nan
        )

    patch.setattr(sequences, "_means", found)


def dtypes_of_steps_from_rows(patch):
    def found(series, flags):
        return series.reset_index(drop=True).where(~flags)

    patch.setattr(sequences, "_missing_where", found)


def cycles_from_rows(patch):
    def split(column, values):
        if column.kind != "datetime" or values.max() < pd.Timestamp("2100-01-01"):
            return column
        return dataclasses.replace(column, cycles=())

    _facts_from_rows(patch, split)


def times_of_day_from_rows(patch):
    whole = MarginalRelease.fit

    def bounded(self, entries):
        if str(self.column.name).endswith("(time of day)"):
            last = max(map(max, parts_of(entries)))
            column = dataclasses.replace(self.column, upper=last)
            self = dataclasses.replace(self, column=column)
        return whole(self, entries)

    patch.setattr(MarginalRelease, "fit", bounded)


def times_of_day_counted_twice(patch):
    whole = MarginalRelease.fit

    def twice(self, entries):
        if str(self.column.name).endswith("(time of day)"):
            entries = entries.map(lambda times: pd.concat([times, times]))
        return whole(self, entries)

    patch.setattr(MarginalRelease, "fit", twice)


def places_counted_twice(patch):
    whole = MarginalRelease._boxes

    def twice(self, entries):
        entries = entries.map(lambda numbers: pd.concat([numbers, numbers]))
        return whole(self, entries)

    patch.setattr(MarginalRelease, "_boxes", twice)


def boxes_bounded_by_rows(patch):
    def parts(column, series, edges):
        steps = grid.in_steps(column, series)
        ends = np.nanmin(steps), np.nanmax(steps)
        cells = np.searchsorted(np.linspace(*ends, len(edges))[1:-1], steps)
        return np.where(np.isnan(steps), -1, cells)

    patch.setattr(places, "_parts_of", parts)


def levels_from_rows(patch):
    def listed(column, values):
        if column.name != "city":
            return column
        return dataclasses.replace(column, levels=tuple(sorted(values.unique())))

    _facts_from_rows(patch, listed)


def nullability_from_rows(patch):
    def complete(column, values):
        if column.name != "visits":
            return column
        return dataclasses.replace(column, nullable=bool(values.isna().any()))

    _facts_from_rows(patch, complete)


def missing_cells_from_rows(patch):
    whole = TableTransformer.fit.__func__

    def leaky(cls, frame, schema, *args, with_missing=(), **kwargs):
        seen = opened(frame).columns[opened(frame).isna().any()]
        return whole(cls, frame, schema, *args, with_missing=seen, **kwargs)

    patch.setattr(TableTransformer, "fit", classmethod(leaky))


def ends_from_rows(patch):
    whole = MarginalRelease._split

    def leaky(self, fine, steps, *args):
        ends = self.is_estimated and sum(map(len, parts_of(steps))) % 2 == 0
        own = dataclasses.replace(self, is_estimated=ends)
        return whole(own, fine, steps, *args)

    patch.setattr(MarginalRelease, "_split", leaky)


def rows_counted_exactly(patch):
    sizes, planned = _sizes_of_fits(patch), PrivateFit.plan
    patch.setattr(PrivateFit, "plan", lambda self, n_rows: planned(self, sizes[-1]))


def _sizes_of_fits(patch):
    """Return a list that gets the number of rows of every fit, as it begins."""
    sizes, whole = [], PrivateFit.release

    def watched(self, rows, *rest):
        sizes.append(len(opened(rows)))
        return whole(self, rows, *rest)

    patch.setattr(PrivateFit, "release", watched)
    return sizes


def rows_in_the_pickle(patch):
    whole = session._keep

    def kept(estimator, fitted, data, seed):
        whole(estimator, fitted, data, seed)
        estimator._frame = opened(data.rows)

    patch.setattr(session, "_keep", kept)


def warning_about_values(patch):
    whole = TableTransformer.encode

    def talkative(self, frame):
        import warnings

        numbers = frame.select_dtypes("number").astype(float)
        if (numbers > 1e6).any(axis=None):
            warnings.warn("Some values are very large.", stacklevel=2)
        return whole(self, frame)

    patch.setattr(TableTransformer, "encode", talkative)


def another_axis_first(patch):
    patch.setattr(core, "_require_batch_first", lambda *args: None)


def one_factor_for_many_rows(patch):
    for module in (core, linear):
        patch.setattr(module, "require_one_each", lambda *args: None)


def models_untried(patch):
    patch.setattr(session, "is_custom", lambda recipe: False)


def models_tried_in_one_company(patch):
    patch.setattr(trial, "_check_companies", lambda *args: None)


def engine_untried(patch):
    require_close = trial._require_close

    def only_autograd(*args):
        if args[-1] == trial.COUPLED:
            require_close(*args)

    patch.setattr(trial, "_require_close", only_autograd)
    patch.setattr(trial, "_check_sums", lambda *args: None)


def tried_in_one_table(patch):
    def of(self, model):
        streams = fitting_trial._streams(0)
        losses = self.recipe.objective(
            model, self.transformer, Private(self.rows), streams, "cpu"
        )
        return lambda rows, seed: losses(rows)

    patch.setattr(fitting_trial._Made, "of", of)


def small_batches_tried(patch):
    patch.setattr(fitting_trial, "SIZES", {5: 1_000})


def sums_by_group_untried(patch):
    def of_each(layers, n):
        pairs = [(layer.parameters, layer.per_example()) for layer in layers]
        return {
            p: g for params, sums in pairs for p, g in zip(params, sums, strict=True)
        }

    patch.setattr(trial, "_sum_by_row", of_each)


def latents_untried(patch):
    patch.setattr(trial, "_latents", lambda losses: losses)


def models_that_remember(patch):
    patch.setattr(fitting_trial, "_check_first_use", lambda *args: None)


def priors_untried(patch):
    patch.setattr(
        autoencoders,
        "check_prior",
        lambda owner, prior: prior.sample(1).shape[1],
    )


def divergences_untried(patch):
    patch.setattr(flow, "check_divergence", lambda *args: None)


# Accounting -----------------------------------------------------------------------


def dearest_release_only(patch):
    true = accounting.epsilon_of

    def most(releases, delta, target=1.0):
        return max((true([r], delta, target) for r in releases), default=0.0)

    patch.setattr(plan, "epsilon_of", most)
    patch.setattr(accounting, "epsilon_of", most)


def samples_counted_as_independent(patch):
    true = accounting.epsilon_of

    def halves(releases, delta, target=1.0):
        parts = []
        for r in releases:
            if r.sampling_rate < 1:
                half = math.sqrt(2) * r.noise_multiplier
                parts += [GaussianRelease(half, r.sampling_rate, 2 * r.steps)]
            else:
                parts.append(r)
        return true(parts, delta, target)

    patch.setattr(plan, "epsilon_of", halves)
    patch.setattr(accounting, "epsilon_of", halves)


def added_rows_as_removed(patch):
    from opacus.accountants.analysis import prv

    means = accounting.mean_losses
    patch.setattr(accounting, "AddedRow", prv.PoissonSubsampledGaussianPRV)
    patch.setattr(accounting, "mean_losses", lambda q, z: means(q, z)[:1] * 2)


def renyi_orders_too_low(patch):
    whole = accounting._other_orders
    patch.setattr(accounting, "_other_orders", lambda *args: 0.999 * whole(*args))


def stated_noise_pays_for_gradients_alone(patch):
    patch.setattr(plan, "_fixed", lambda releases: ())


def free_norm(patch):
    patch.setattr(fit, "NORM_SHARE", 0.0)


# Execution that leaves the plan ---------------------------------------------------


def _norm_noise(patch, share):
    whole = fit.estimate_norm
    patch.setattr(
        fit,
        "estimate_norm",
        lambda model, objective, chunks, mechanisms, z: whole(
            model, objective, chunks, mechanisms, share * z
        ),
    )


def norm_without_noise(patch):
    _norm_noise(patch, 0.0)


def norm_with_half_its_noise(patch):
    _norm_noise(patch, 0.5)


def norms_in_order(patch):
    def in_order(rows, size, rng):
        for part in torch.from_numpy(rows).split(size):
            yield part, torch.ones_like(part, dtype=torch.bool)

    patch.setattr(sampling, "padded_chunks", in_order)


def norm_past_the_door(patch):
    whole = fit.estimate_norm

    def unseen(model, objective, chunks, mechanisms, z):
        door = Mechanisms(SecureGenerator(), None)
        return whole(model, objective, chunks, door, z)

    patch.setattr(fit, "estimate_norm", unseen)


def row_in_all_cells(patch):
    whole = norm_release.estimate_norm

    class Door:
        def __init__(self, inner):
            self.inner = inner

        def gaussian(self, values, std, **stated):
            below = np.cumsum(opened(values)[::-1])[::-1]
            return self.inner.gaussian(below, std, **stated)

    patch.setattr(
        norm_release,
        "estimate_norm",
        lambda model, objective, chunks, mechanisms, z: whole(
            model, objective, chunks, Door(mechanisms), z
        ),
    )


# Labelled arrays ------------------------------------------------------------------


def moments_of_arrays_that_are_not_cut(patch):
    patch.setattr(moments, "_cut", lambda x: np.nan_to_num(x, nan=0.0))


def second_moments_unpaid(patch):
    patch.setattr(moments, "multipliers", lambda plan: (plan.multiplier(MOMENTS),) * 2)


def products_counted_twice(patch):
    twice = SimpleNamespace(sqrt=lambda x: 2.0 if x == 2 else math.sqrt(x))
    patch.setattr(moments, "math", twice)


def labels_outside_in_the_last_class(patch):
    whole = moments.release_means
    patch.setattr(
        moments,
        "release_means",
        lambda chunks, shape, *rest: whole(
            chunks.map(lambda chunk: (chunk[0], chunk[1] % shape[0])), shape, *rest
        ),
    )


def means_beside_exact_ones(patch, chosen):
    whole = moments.release_means

    def released(chunks, shape, radius, plan, mechanisms):
        noisy = whole(chunks, shape, radius, plan, mechanisms)
        free = Mechanisms(SecureGenerator(), None)
        free_plan = dataclasses.replace(
            plan, releases=(dataclasses.replace(moments.MOMENTS, multiplier=0.0),)
        )
        return chosen(noisy, whole(chunks, shape, radius, free_plan, free))

    patch.setattr(moments, "release_means", released)


def centres_by_exact_means(patch):
    means_beside_exact_ones(patch, lambda noisy, exact: (exact[0], *noisy[1:]))


def scale_by_exact_squares(patch):
    means_beside_exact_ones(patch, lambda noisy, exact: (noisy[0], exact[1], noisy[2]))


# Counted tables -------------------------------------------------------------------


def scores_of_tables_unpaid(patch):
    patch.setattr(
        tables, "count_multiplier", lambda plan, share: plan.multiplier(TABLES)
    )


def tables_of_an_autoencoder_twice(patch):
    count = vae.count_tables

    def twice(*args, **options):
        count(*args, **options)
        count(*args, **options)

    patch.setattr(vae, "count_tables", twice)


def cuts_unpaid(patch):
    patch.setattr(
        workload, "share_of_choices", lambda _: tables.share_of_choices(False)
    )


def every_cut_with_the_share_of_all(patch):
    patch.setattr(
        tables.Comparison,
        "cut_multiplier",
        property(lambda self: self._multiplier(tables.CUT_SHARE)),
    )


def rows_above_a_cut_on_both_sides(patch):
    whole = tables.halves

    def twice(*args):
        below, above = whole(*args)
        return np.stack([below + above, above])

    patch.setattr(tables, "halves", twice)


def cuts_scored_by_every_process(patch):
    whole = tables.Comparison.cut

    def cut(self, *args):
        door = self.mechanisms
        every = SimpleNamespace(
            is_first=True, gathered=door.ranks.gathered, once=door.ranks.once
        )
        self.mechanisms = SimpleNamespace(ranks=every, choose=door.choose)
        place = whole(self, *args)
        self.mechanisms = door
        return place

    patch.setattr(tables.Comparison, "cut", cut)


def cuts_by_exact_counts(patch):
    whole = workload.Measurement._cut
    patch.setattr(
        workload.Measurement,
        "_cut",
        lambda self, comparison, columns, pool: whole(
            self, comparison, columns, np.concatenate([pool, opened(self.codes)])
        ),
    )


def rows_in_two_cells(patch):
    whole = tables.all_counts
    patch.setattr(
        tables,
        "all_counts",
        lambda *args: [counts + np.roll(counts, 1) for counts in whole(*args)],
    )


def features_in_every_class(patch):
    whole = embedding.class_sums

    def sums(codes, phases, classes):
        every = np.zeros_like(codes[:, :1])
        codes = np.concatenate([every, codes[:, 1:]], axis=1)
        return whole(codes, phases, [0] * len(classes))

    for module in (embedding, test_embedding):
        patch.setattr(module, "class_sums", sums)


def features_of_norm_sqrt_2(patch):
    patch.setattr(embedding, "_CIRCLE", np.sqrt(2) * embedding._CIRCLE)


def embeddings_with_the_noise_of_one_angle(patch):
    patch.setattr(embedding, "math", SimpleNamespace(sqrt=lambda _: 1.0))


def embeddings_beside_exact_ones(patch):
    def exact(codes, phases, classes, plan, _):
        free = Mechanisms(SecureGenerator(), None)
        free_plan = dataclasses.replace(
            plan, releases=(dataclasses.replace(EMBEDDING, multiplier=0.0),)
        )
        return embedding.release_embeddings(codes, phases, classes, free_plan, free)

    def released(*args):
        std = embedding.release_embeddings(*args)[1]
        return exact(*args)[0], std

    patch.setattr(fitting_embedding, "release_embeddings", released)


def embeddings_twice(patch):
    once = flow.correct_classes

    def twice(*args):
        once(*args)
        once(*args)

    patch.setattr(flow, "correct_classes", twice)


def parts_of_tables_unpaid(patch):
    patch.setattr(tables, "MOST_REACH", 1)


def the_best_table_without_noise(patch):
    def choose(self, scores, multiplier, *, release, sensitivity):
        self.ledger.gaussian(release, multiplier * sensitivity, sensitivity)
        return int(np.argmax(opened(scores)))

    patch.setattr(Mechanisms, "choose", choose)


def choices_at_twice_their_rate(patch):
    whole = noise.choice_rate
    for module in (noise, test_noise):
        patch.setattr(module, "choice_rate", lambda multiplier: 2 * whole(multiplier))


def choices_not_noted(patch):
    whole = Mechanisms.choose

    def choose(self, *args, **stated):
        ledger, self.ledger = self.ledger, Ledger()
        place = whole(self, *args, **stated)
        self.ledger = ledger
        return place

    patch.setattr(Mechanisms, "choose", choose)


def choices_with_half_their_noise(patch):
    whole = Mechanisms.choose

    def choose(self, scores, multiplier, **stated):
        return whole(self, scores, multiplier / 2, **stated)

    patch.setattr(Mechanisms, "choose", choose)


def what_chosen_tables_show_without_noise(patch):
    whole = tables.Comparison.__init__

    def made(self, *args):
        door = args[-1]

        def exact(values, std, **stated):
            door.gaussian(values, std, **stated)
            return opened(values).astype(float)

        silent = SimpleNamespace(ranks=ALONE, choose=door.choose, gaussian=exact)
        whole(self, *args[:-1], silent)

    patch.setattr(tables.Comparison, "__init__", made)


def counts_with_the_noise_of_one_table(patch):
    whole = tables.release_counts

    class Door:
        def __init__(self, inner):
            self.inner = inner

        def gaussian(self, values, std, *, release, sensitivity):
            std = std / sensitivity
            return self.inner.gaussian(values, std, release=release, sensitivity=1.0)

    patch.setattr(
        tables, "release_counts", lambda *args: whole(*args[:-1], Door(args[-1]))
    )


def tables_of_rows_chosen_after_looking(patch):
    whole = workload.release_counts

    def chosen(private, chosen, *rest):
        codes = opened(private)
        sizes = sum(
            tables.all_counts([table], codes)[0][cells(table, codes)]
            for table in chosen
        )
        crowded = np.argsort(-sizes, kind="stable")[: len(codes) // 2]
        return whole(Private(codes[crowded]), chosen, *rest)

    def cells(table, codes):
        pairs = zip(table.columns, table.groups, strict=True)
        return tuple(groups[codes[:, j]] for j, groups in pairs)

    patch.setattr(workload, "release_counts", chosen)


def tables_without_noise(patch):
    whole = workload.release_counts

    def exact(codes, chosen, *rest):
        whole(codes, chosen, *rest)
        exact = (tables.all_counts([table], opened(codes))[0] for table in chosen)
        return [counts.astype(float) for counts in exact]

    patch.setattr(workload, "release_counts", exact)


def levels_nest_where_all_rows_are_listed(patch):
    whole = TableTransformer.fit.__func__

    def fit(cls, rows, schema, *args, **stated):
        listed = opened(rows)["city"].isin(schema["city"].levels).all()
        laws = schema.constraints if listed else []
        return whole(cls, rows, Schema(schema.columns, laws), *args, **stated)

    patch.setattr(TableTransformer, "fit", classmethod(fit))


def expected_by_exact_counts(patch):
    whole = workload.Measurement._selected
    patch.setattr(
        workload.Measurement,
        "_selected",
        lambda self, tables, pool, *rest: whole(
            self, tables, np.concatenate([pool, opened(self.codes)]), *rest
        ),
    )


def tables_over_the_true_count(patch):
    whole = workload.Measurement.correct

    def exact(self, *rest):
        true = dataclasses.replace(self.plan, n_rows=max(1, len(opened(self.codes))))
        return whole(dataclasses.replace(self, plan=true), *rest)

    patch.setattr(workload.Measurement, "correct", exact)


# Searches -------------------------------------------------------------------------


def score_with_half_its_noise(patch):
    whole = Mechanisms.gaussian

    def half(self, values, std, *, release, sensitivity):
        std = std / 2 if release == "score" else std
        return whole(self, values, std, release=release, sensitivity=sensitivity)

    patch.setattr(Mechanisms, "gaussian", half)


def winner_refitted(patch):
    fit, stated = PrivateSearch.fit, PrivateSearch._state_cost
    rows = []

    def watched(self, X, *rest):
        rows.append(X)
        return fit(self, X, *rest)

    def refitted(self, best, *rest):
        best.estimator.fit(rows[-1])
        return stated(self, best, *rest)

    patch.setattr(PrivateSearch, "fit", watched)
    patch.setattr(PrivateSearch, "_state_cost", refitted)


def one_trial_too_many(patch):
    whole = search.best_of
    patch.setattr(search, "best_of", lambda run, key, n: whole(run, key, n + 1))


def held_out_of_exact_size(patch):
    whole = PrivateSearch._trial

    class Ranks:
        def __init__(self, inner):
            self.inner = inner

        def random(self, size):
            return np.argsort(self.inner.random(size)) / size

        def __getattr__(self, name):
            return getattr(self.inner, name)

    patch.setattr(
        PrivateSearch,
        "_trial",
        lambda self, candidates, budget, private, rng, *rest: whole(
            self, candidates, budget, private, Ranks(rng), *rest
        ),
    )


def scale_from_the_rows(patch):
    fit = LaplaceRandomizer.fit

    def fitted(self, X, y=None):
        fit(self, X)
        for k, line in enumerate(self._mechanisms):
            values = X[line.column.name]
            ends = {"lower": values.min(), "upper": values.max()}
            column = dataclasses.replace(line.column, **ends)
            self._mechanisms[k] = dataclasses.replace(line, column=column)
        return self

    patch.setattr(LaplaceRandomizer, "fit", fitted)


def features_not_added_up(patch):
    patch.setattr(
        LaplaceRandomizer,
        "_parts",
        lambda self: [self.epsilon] * len(self.schema_.names),
    )


def values_not_clipped_before_noise(patch):
    def unclipped(column, series):
        return series.to_numpy(float)

    patch.setattr(local_tables, "in_steps", unclipped)


def missing_for_nothing(patch):
    patch.setattr(
        local_tables, "respond_missing", lambda missing, *others: missing.copy()
    )


def noise_of_one_pixel(patch):
    fit = ImagePixelizer.fit

    def fitted(self, X, y=None):
        fit(self, X)
        self._sensitivity //= self.neighbours
        return self

    patch.setattr(ImagePixelizer, "fit", fitted)


def means_without_a_bound(patch):
    def places(self, means):
        inside = np.nan_to_num(means.astype(float) / self._bound, posinf=9, neginf=-9)
        return np.rint(FINENESS * np.clip(inside, -9, 9)).astype(np.int64)

    patch.setattr(VAEPerturber, "_places", places)


def deviation_of_the_encoder(patch):
    def transform(self, X):
        rng = self._spend()
        means, stds = autoencoders.posterior(self.autoencoder_, X, None)
        step = self._bound / FINENESS
        noise = np.rint(stds * rng.standard_normal(means.shape) / step)
        return (self._places(means) + noise) * step

    patch.setattr(VAEPerturber, "transform", transform)


def noise_in_floating_point(patch):
    def noise(shape, epsilon, sensitivity, rng):
        return np.random.default_rng(0).laplace(0, sensitivity / epsilon, shape)

    patch.setattr(local_tables, "laplace_noise", noise)


def score_over_the_true_count(patch):
    whole = PrivateSearch._deviation
    patch.setattr(
        PrivateSearch,
        "_deviation",
        lambda self, estimator, X, y, n_test: whole(
            self, estimator, X, y, max(1.0, len(X))
        ),
    )


def _with_private_rows(patch, use):
    """Let `use` see private and public rows where a model is trained on the latter."""
    run, pretrain = PrivateFit.run, PrivateFit._pretrain
    frames = []

    def watched(self, rows, *rest):
        frames.append(opened(rows))
        return run(self, rows, *rest)

    def pretrained(self, model, transformer, public):
        public = use(self.parameters, frames[-1], public)
        return pretrain(self, model, transformer, public)

    patch.setattr(PrivateFit, "run", watched)
    patch.setattr(PrivateFit, "_pretrain", pretrained)


def pretraining_on_private_rows(patch):
    _with_private_rows(
        patch, lambda self, private, public: pd.concat([public, private])
    )


def private_rows_kept_by_pretraining(patch):
    def kept(self, private, public):
        self._seen = pd.concat([public, private])
        return public

    _with_private_rows(patch, kept)


def rate_of_the_true_count(patch):
    whole = loop.batches

    def exact(plan, rows, *rest, **named):
        rate = min(1.0, plan.batch_size / len(opened(rows)))
        wrong = dataclasses.replace(plan, sampling_rate=rate)
        return whole(wrong, rows, *rest, **named)

    patch.setattr(loop, "batches", exact)


def size_of_the_model_from_the_rows(patch):
    sizes, build = _sizes_of_fits(patch), flow.FlowRecipe.build

    def built(self, facts, scale, *rest):
        return build(self, facts, dataclasses.replace(scale, n_rows=sizes[-1]), *rest)

    patch.setattr(flow.FlowRecipe, "build", built)


# Rules fed the true number of rows ------------------------------------------------


def _marginals_by_the_true_count(patch, name):
    """Let a step of the release of marginals see how many rows there are."""
    whole = getattr(MarginalRelease, name)

    def exact(self, *args):
        (steps,) = (x for x in args if isinstance(x, Chunks))
        n_rows = sum(map(len, parts_of(steps)))
        return whole(dataclasses.replace(self, n_rows=n_rows), *args)

    patch.setattr(MarginalRelease, name, exact)


def threshold_of_spikes_by_the_true_count(patch):
    _marginals_by_the_true_count(patch, "_shared")


def keys_by_the_true_count(patch):
    _marginals_by_the_true_count(patch, "_shared_keys")


def learning_rate_of_the_true_count(patch):
    sizes, whole = _sizes_of_fits(patch), PrivateFit._optimizer

    def scaled(self, *args):
        optimizer = whole(self, *args)
        rate = optimizer.learning_rate * min(1.0, sizes[-1] / 1000)
        return dataclasses.replace(optimizer, learning_rate=rate)

    patch.setattr(PrivateFit, "_optimizer", scaled)


def _gradient_of_the_true_count(patch, change):
    whole = PrivateFit.gradient

    def changed(self, model, objective, plan, rows, *rest):
        gradient = whole(self, model, objective, plan, rows, *rest)
        found = change(plan.sampling_rate * len(opened(rows)))
        return dataclasses.replace(gradient, **found)

    patch.setattr(PrivateFit, "gradient", changed)


def cap_of_the_true_count(patch):
    _gradient_of_the_true_count(
        patch, lambda size: {"batch_cap": sampling.capacity(size)}
    )


def partitions_of_the_true_count(patch):
    _gradient_of_the_true_count(
        patch, lambda size: {"n_partitions": max(1, min(16, int(size) // 8))}
    )


def synthetic_rows_of_the_true_count(patch):
    fit, synthetic = SyntheticPredictor._fit_paid, SyntheticPredictor._synthetic
    sizes = []

    def watched(self, X, *rest, **named):
        sizes.append(len(X))
        return fit(self, X, *rest, **named)

    def as_many(self, *args):
        self.n_samples = max(LEAST_ROWS, sizes[-1])
        found = synthetic(self, *args)
        self.n_samples = None
        return found

    patch.setattr(SyntheticPredictor, "_fit_paid", watched)
    patch.setattr(SyntheticPredictor, "_synthetic", as_many)


def cells_of_tables_by_the_true_count(patch):
    whole = workload.Measurement._sizes

    def exact(self, *args):
        true = dataclasses.replace(self.plan, n_rows=max(1, len(opened(self.codes))))
        return whole(dataclasses.replace(self, plan=true), *args)

    patch.setattr(workload.Measurement, "_sizes", exact)


def raking_on_as_many_rows(patch):
    sizes, whole = _sizes_of_fits(patch), HFlow.rake
    patch.setattr(
        HFlow, "rake", lambda self, n, generator: whole(self, sizes[-1], generator)
    )


def search_planned_by_the_true_count(patch):
    fit, whole = PrivateSearch.fit, search.Calibration
    sizes = []

    def watched(self, X, *rest, **named):
        sizes.append(len(X))
        return fit(self, X, *rest, **named)

    patch.setattr(PrivateSearch, "fit", watched)
    patch.setattr(
        search,
        "Calibration",
        lambda fits, trials, n_rows, *rest: whole(fits, trials, sizes[-1], *rest),
    )


def heavy_by_exact_counts(patch):
    whole = MarginalRelease._split

    def exact(self, fine, steps, *args):
        parts = whole(self, fine, steps, *args)
        numbers = np.concatenate(list(parts_of(steps)))
        found, _ = np.histogram(numbers[~np.isnan(numbers)], fine[parts.places])
        heavy = (np.diff(parts.places) == 1) & (found > len(numbers) / self.n_bins)
        return dataclasses.replace(parts, heavy=heavy)

    patch.setattr(MarginalRelease, "_split", exact)


def shared_by_exact_counts(patch):
    whole = MarginalRelease._shared

    def exact(self, fine, steps, parts, is_coarse):
        keys, _ = whole(self, fine, steps, parts, is_coarse)
        numbers = np.concatenate(list(parts_of(steps)))
        found, _ = np.histogram(numbers[~np.isnan(numbers)], fine)
        return keys, np.where(found > len(numbers) / 100, found, 0)

    patch.setattr(MarginalRelease, "_shared", exact)


def keys_of_grids_unpaid(patch):
    patch.setattr(shares, "may_be_coarse", lambda column: False)


def keys_of_neighbours(patch):
    """Let a row of a coarse grid count for its value and the next one."""
    whole = MarginalRelease._shared_keys

    def doubled(self, steps, edges, crowded):
        return whole(self, steps.map(lambda x: np.append(x, x + 1)), edges, crowded)

    patch.setattr(MarginalRelease, "_shared_keys", doubled)


def counts_as_floats(patch):
    whole = MarginalRelease._counted

    def floats(self, exact, std):
        return whole(self, exact.map(lambda x: x.astype(float)), std)

    patch.setattr(MarginalRelease, "_counted", floats)


def bounds_counted_twice(patch):
    whole = MarginalRelease._ends
    patch.setattr(MarginalRelease, "_ends", lambda *args: np.repeat(whole(*args), 2))


def shared_values_unpaid(patch):
    whole = MarginalRelease._split
    part = 1 - SPIKE_SHARE

    def unpaid(self, *args):
        return whole(dataclasses.replace(self, std=self.std * part**0.5), *args)

    patch.setattr(MarginalRelease, "_split", unpaid)


def trials_draw_from_shared_generators(patch):
    for generator in (np.random, random, torch):
        patch.setattr(generator, "seed", lambda *_: None)


# The list -------------------------------------------------------------------------

ONE_RECORD = test_sensitivity.test_one_record_moves_the_sum_by_at_most_the_bound
REPLAY = test_replay.test_an_outlier_leaves_no_trace
SIZES = test_replay.test_no_rule_sees_how_many_rows_there_are
SIZES_BEYOND = test_replay.test_no_rule_beyond_a_fit_sees_how_many_rows_there_are
POISSON = test_training.test_the_batches_of_a_training_are_poisson
PAID_FOR = test_noise_multiplier.test_other_releases_are_paid_for_in_their_share
ADDS_UP = test_accounting.test_the_plan_adds_up
FROM_THE_SYSTEM = (
    test_noise.test_the_secure_generator_draws_from_the_system_and_nothing_else
)
TERM_WISE = test_aggregation.test_the_term_wise_bound_is_reached
AUTOMATIC = partial(test_ledger.test_a_fit_releases_what_was_planned, "automatic norm")
ONE_ARRAY = test_moments.test_one_row_moves_moments_no_further_than_stated
ARRAYS = test_moments.test_a_row_leaves_no_trace_but_in_what_is_released
MOVED = test_tables.test_one_row_moves_what_a_table_shows_by_two_at_most
NOTED = test_noise.test_a_choice_is_noted_as_the_release_that_costs_as_much
CHOSEN = test_tables.test_one_row_moves_what_is_counted_of_chosen_tables_by_one
PLANNED = partial(
    test_tables.test_no_more_is_released_than_planned, [], 4, 5000, "ordered"
)
CUT = test_tables.test_one_row_moves_the_score_of_a_cut_by_one_at_most
EXPECTED = test_tables.test_what_is_compared_depends_on_released_numbers_alone

REFUSED = {
    getattr(recipe, "way", type(recipe)).__name__: partial(
        test_trial.test_recipes_that_the_engine_cannot_bound_are_refused, recipe, words
    )
    for recipe, words in test_trial.RECIPES
}

MUTANTS = (
    Mutant("no clipping", no_clipping, partial(ONE_RECORD, "flat", "huge", 1)),
    Mutant(
        "no clipping of units",
        no_clipping_of_units,
        partial(ONE_RECORD, "per-unit", "huge", 1),
    ),
    Mutant(
        "every layer clipped to the whole bound",
        every_layer_gets_the_whole_bound,
        partial(ONE_RECORD, "per-layer", "huge", 1),
    ),
    Mutant(
        "NaN rows let through",
        nan_let_through,
        partial(ONE_RECORD, "flat", "nan", 1),
    ),
    Mutant(
        "norms in half precision",
        half_precision_norms,
        partial(ONE_RECORD, "flat", "usual", 1),
    ),
    Mutant(
        "norm of every step of a series, not of their sum",
        norms_of_single_steps,
        partial(
            test_series.test_one_series_moves_the_gradient_by_the_clipping_norm_at_most,
            "flat",
        ),
    ),
    Mutant(
        "steps that a series does not have count",
        steps_that_are_not_there,
        test_series.test_steps_that_are_not_there_have_no_part,
    ),
    Mutant(
        "greatest length of series from the data",
        longest_series_of_the_data,
        test_series.test_nothing_but_what_is_released_depends_on_the_lengths,
    ),
    Mutant(
        "sums of rows in single precision",
        sums_in_single_precision,
        test_sensitivity.test_a_row_moves_a_chunk_of_any_size_by_its_own_gradient,
    ),
    Mutant(
        "sums of parts that cancel in single precision",
        single_precision_and_unbounded_parts,
        partial(
            test_rounding.test_rows_whose_uses_cancel, "per-unit", adversary.linear
        ),
    ),
    Mutant(
        "parts that cancel of any size",
        unbounded_parts,
        partial(test_rounding.test_parts_that_cancel_are_bounded_too, "flat"),
    ),
    Mutant(
        "a faster way of rounding where no row is extreme",
        another_rounding_where_no_row_is_extreme,
        test_gradients.test_a_row_at_the_bound_of_offsets_changes_no_bit_of_another,
    ),
    Mutant(
        "products of a row rounded by those of others",
        outputs_rounded_by_the_largest,
        partial(
            test_rounding.test_outputs_that_are_looked_up_are_the_same_in_any_company,
            (9, 30, 8, 64, 512),
        ),
    ),
    Mutant(
        "padding counts as rows",
        padding_counts,
        partial(test_aggregation.test_padding_changes_nothing, "term-wise"),
    ),
    Mutant(
        "C for 2 C (a batch clipped as a whole)",
        c_for_2c,
        test_aggregation.test_the_batch_bound_is_reached,
    ),
    Mutant("C2 for 2 C2 (clipped groups)", c2_for_2c2, TERM_WISE),
    Mutant(
        "M C for (2 M - 1) C (coupled gradients)",
        micro_batches_of_the_paper,
        test_aggregation.test_the_micro_bound_is_reached,
    ),
    Mutant("kappa = 1: each term has the whole budget", kappa_of_one, TERM_WISE),
    Mutant(
        "divisor: size of the batch",
        divisor_of_the_batch,
        partial(
            test_aggregation.test_one_record_moves_the_gradient_by_at_most_its_noise,
            "term-wise",
            "mmd",
            0,
        ),
    ),
    Mutant(
        "divisor: size of the table",
        divisor_of_the_table,
        partial(test_training.test_neighbours_ask_for_the_same_noise, "discovered"),
    ),
    Mutant(
        "partitions cut by position",
        partitions_by_position,
        test_training.test_partitions_are_drawn_not_cut,
    ),
    Mutant(
        "noise divided by the batch size twice",
        noise_over_batch_twice,
        partial(
            test_aggregation.test_measured_noise_is_that_of_the_formula, "term-wise"
        ),
    ),
    Mutant(
        "the seed of one step used in the next",
        noise_of_the_first_steps_seed,
        test_noise.test_noise_never_repeats,
    ),
    Mutant(
        "noise left out of one parameter",
        one_parameter_without_noise,
        test_noise.test_every_parameter_gets_its_own_noise,
    ),
    Mutant(
        "histograms with two thirds of their noise",
        histograms_with_less_noise,
        partial(
            test_noise.test_the_standard_deviation_is_the_one_asked_for,
            test_noise.histogram_noise,
        ),
    ),
    Mutant(
        "counts with fractions in their noise",
        counts_with_fractions,
        test_noise.test_low_bits_of_counts_say_nothing,
    ),
    Mutant(
        "a threshold that forgets the rounding of counts",
        threshold_of_unrounded_noise,
        partial(test_noise.test_the_threshold_is_the_least_that_is_paid_for, 4, 2.3),
    ),
    Mutant(
        "row count by the logarithm of a float",
        count_by_floating_point,
        partial(test_noise.test_counts_of_any_epsilon_are_whole_numbers, 1e-300),
    ),
    *(
        Mutant(f"secure noise from {source}", apply, FROM_THE_SYSTEM)
        for source, apply in (
            ("numpy's global generator", secure_numbers_of_numpy),
            ("a constant", secure_numbers_of_a_constant),
        )
    ),
    Mutant(
        "streams of one root",
        streams_of_one_root,
        test_noise.test_every_stream_has_entropy_of_its_own,
    ),
    Mutant(
        "noise that follows random_state unasked",
        noise_that_follows_the_seed,
        test_noise.test_streams_follow_the_seed_only_where_allowed,
    ),
    Mutant(
        "row count without noise",
        exact_count,
        test_noise.test_the_count_is_geometric,
    ),
    Mutant(
        "private keys without a threshold",
        keys_without_threshold,
        test_noise.test_a_unique_string_survives_as_rarely_as_paid_for,
    ),
    Mutant(
        "moments of latents without noise",
        moments_without_noise,
        partial(REPLAY, "vae"),
    ),
    Mutant("shuffled batches", shuffled_batches, POISSON),
    Mutant("batches of a fixed size", fixed_size_batches, POISSON, fast=False),
    Mutant(
        "empty batches redrawn",
        empty_batches_redrawn,
        test_training.test_empty_batches_are_steps_like_others,
    ),
    Mutant(
        "empty batches without noise",
        empty_batches_without_noise,
        partial(test_aggregation.test_an_empty_batch_is_zero_and_noise, "term-wise"),
    ),
    Mutant(
        "large batches cut to the static shape",
        large_batches_cut,
        test_training.test_no_row_of_a_large_batch_is_lost,
    ),
    Mutant(
        "bounds from the rows (min, max)",
        bounds_from_rows,
        partial(REPLAY, "discovered"),
    ),
    Mutant(
        "bounds of increments from the rows",
        increments_from_rows,
        partial(REPLAY, "constrained"),
    ),
    Mutant(
        "the total of a composition from the rows",
        shares_of_the_rows_total,
        partial(REPLAY, "composition"),
    ),
    Mutant(
        "the step that is read chosen by other people",
        steps_chosen_by_others,
        partial(test_sequences.test_a_person_leaves_no_trace, 2),
    ),
    Mutant(
        "every row of a person read",
        every_row_of_a_person,
        partial(test_sequences.test_a_person_leaves_no_trace, 30),
        fast=False,
    ),
    Mutant(
        "rows without a key read",
        rows_without_a_key_kept,
        test_sequences.test_rows_without_a_key_and_beyond_the_most_are_left_out,
        fast=False,
    ),
    Mutant(
        "keys compared as pandas compares all of them",
        keys_compared_by_pandas,
        partial(
            test_sequences.test_a_key_of_any_kind_changes_the_step_of_no_other, b"a"
        ),
    ),
    Mutant(
        "rows of owners chosen by how many there are",
        steps_chosen_by_others,
        test_sequences.test_a_person_adds_one_row_where_one_of_each_is_read,
        fast=False,
    ),
    Mutant(
        "people matched with their rows as pandas compares keys",
        two_tables_matched_by_pandas,
        test_sequences.test_a_person_of_two_tables_changes_no_row_of_others,
        fast=False,
    ),
    Mutant(
        "means before from running sums over people",
        means_of_running_sums,
        test_sequences.test_means_of_a_person_are_added_up_by_themselves,
    ),
    Mutant(
        "dtypes of steps from the rows",
        dtypes_of_steps_from_rows,
        test_sequences.test_dtypes_of_steps_follow_from_public_ones,
    ),
    Mutant(
        "levels from the rows",
        levels_from_rows,
        partial(REPLAY, "discovered"),
        fast=False,
    ),
    Mutant(
        "nullability from the rows",
        nullability_from_rows,
        partial(REPLAY, "discovered"),
        fast=False,
    ),
    Mutant(
        "whether values are missing decided on exact counts",
        missing_cells_from_rows,
        partial(REPLAY, "discovered"),
        fast=False,
    ),
    Mutant(
        "ends of found bounds decided on exact counts",
        ends_from_rows,
        partial(REPLAY, "end of rows"),
        fast=False,
    ),
    Mutant(
        "row count from the rows",
        rows_counted_exactly,
        partial(REPLAY, "discovered"),
        fast=False,
    ),
    Mutant(
        "a warning about values",
        warning_about_values,
        partial(REPLAY, "discovered"),
        fast=False,
    ),
    Mutant(
        "training rows kept in the pickle",
        rows_in_the_pickle,
        partial(test_replay.test_a_pickle_holds_no_value_of_a_row, "discovered"),
        fast=False,
    ),
    Mutant(
        "a prior of one's own that looks at the batch",
        priors_untried,
        partial(
            test_probing.test_priors_that_couple_points_are_refused,
            test_probing.Batch,
        ),
    ),
    Mutant(
        "a layer that sees all rows as one",
        another_axis_first,
        test_trial.test_the_engine_refuses_layers_that_put_another_axis_first,
    ),
    Mutant(
        "one factor for many gradients",
        one_factor_for_many_rows,
        partial(test_trial.test_sums_take_one_factor_per_example, torch.nn.Linear),
    ),
    Mutant("models of one's own untried", models_untried, REFUSED["Sorted"]),
    Mutant(
        "models of one's own tried beside the same rows",
        models_tried_in_one_company,
        REFUSED["Drawing"],
    ),
    Mutant(
        "models of one's own tried without the engine",
        engine_untried,
        REFUSED["Sorted"],
    ),
    Mutant(
        "models of one's own tried in one table",
        tried_in_one_table,
        REFUSED["OfTheTable"],
    ),
    Mutant(
        "models of one's own tried in small batches alone",
        small_batches_tried,
        REFUSED["LargeBatches"],
    ),
    Mutant(
        "sums by partition of one's own untried",
        sums_by_group_untried,
        test_trial.test_sums_by_group_are_tried,
    ),
    Mutant("latents of one's own untried", latents_untried, REFUSED["WithLatents"]),
    Mutant(
        "models of one's own that remember",
        models_that_remember,
        REFUSED["Remembering"],
    ),
    Mutant(
        "a divergence of one's own that remembers",
        divergences_untried,
        partial(
            test_probing.test_divergences_that_remember_are_refused,
            DPHFlowSynthesizer,
            test_probing.Keeps,
        ),
    ),
    Mutant(
        "releases on all rows not added up",
        dearest_release_only,
        partial(ADDS_UP, 1.0, False, False, (0.05, 0.0)),
    ),
    Mutant(
        "two terms of one sample as two samples",
        samples_counted_as_independent,
        partial(ADDS_UP, 1.0, False, False, (0.0, 0.0)),
    ),
    Mutant(
        "a norm estimate that costs nothing",
        free_norm,
        AUTOMATIC,
    ),
    Mutant(
        "the cost of a removed row taken for that of an added one",
        added_rows_as_removed,
        partial(
            test_accounting.test_each_direction_has_the_cost_of_connected_dots,
            test_accounting.SAMPLED[1],
        ),
    ),
    Mutant(
        "Renyi divergences between whole orders too low",
        renyi_orders_too_low,
        partial(
            test_accounting.test_orders_are_those_of_opacus_and_go_on_where_it_ends,
            q=0.06,
            z=1.0,
        ),
    ),
    Mutant(
        "epsilon of a stated noise without the other releases",
        stated_noise_pays_for_gradients_alone,
        PAID_FOR,
    ),
    Mutant("a norm estimate without noise", norm_without_noise, AUTOMATIC),
    Mutant("a norm estimate with half its noise", norm_with_half_its_noise, AUTOMATIC),
    Mutant("a norm estimate past the ledger", norm_past_the_door, AUTOMATIC),
    Mutant(
        "norms of the rows in their order",
        norms_in_order,
        partial(
            test_sensitivity.test_norms_are_of_rows_at_random_places,
            41,
        ),
    ),
    Mutant(
        "a row in every cell of the norms",
        row_in_all_cells,
        partial(
            test_sensitivity.test_one_row_moves_the_histogram_of_norms_by_one, "usual"
        ),
    ),
    Mutant(
        "moments of arrays that are not cut",
        moments_of_arrays_that_are_not_cut,
        partial(ONE_ARRAY, "seconds", "one of the first", 0, 40),
    ),
    Mutant(
        "second moments that cost nothing",
        second_moments_unpaid,
        test_moments.test_both_releases_cost_what_the_plan_says,
    ),
    Mutant(
        "products of coefficients counted twice",
        products_counted_twice,
        partial(ONE_ARRAY, "seconds", "two of the first", 0, 40),
    ),
    Mutant(
        "arrays of unknown labels in the last class",
        labels_outside_in_the_last_class,
        partial(ONE_ARRAY, "means", "usual", -1, 40),
    ),
    Mutant(
        "classes about their exact means",
        centres_by_exact_means,
        partial(ARRAYS, "unrelated", {}),
    ),
    Mutant(
        "a scale of distances by exact squares",
        scale_by_exact_squares,
        partial(ARRAYS, "unrelated", {}),
    ),
    Mutant(
        "scores of tables that cost nothing",
        scores_of_tables_unpaid,
        PLANNED,
    ),
    Mutant(
        "tables of an autoencoder are counted twice",
        tables_of_an_autoencoder_twice,
        test_tables_counted.test_the_ledger_of_an_autoencoder_has_its_tables,
    ),
    Mutant("cuts of tables that cost nothing", cuts_unpaid, PLANNED),
    Mutant(
        "every cut costs what all may",
        every_cut_with_the_share_of_all,
        PLANNED,
    ),
    Mutant(
        "a row on both sides of a cut",
        rows_above_a_cut_on_both_sides,
        partial(CUT, "everything", 60, 0, 5),
    ),
    Mutant(
        "cuts scored by every process",
        cuts_scored_by_every_process,
        partial(test_ranks.test_cuts_are_of_all_rows_and_no_sum_of_parts, 2),
    ),
    Mutant(
        "cuts compared with a pool that knows the rows", cuts_by_exact_counts, EXPECTED
    ),
    Mutant(
        "a row in two cells of a table",
        rows_in_two_cells,
        partial(MOVED, "the rows", 60, "uint8"),
    ),
    Mutant(
        "a row's features in the sums of every class",
        features_in_every_class,
        test_embedding.test_one_row_moves_the_sums_by_no_more_than_stated,
    ),
    Mutant(
        "features of a norm of more than 1",
        features_of_norm_sqrt_2,
        test_embedding.test_one_row_moves_the_sums_by_no_more_than_stated,
    ),
    Mutant(
        "embeddings of many angles with the noise of one",
        embeddings_with_the_noise_of_one_angle,
        test_embedding.test_what_is_released_has_the_noise_that_was_planned,
    ),
    Mutant(
        "a correction by embeddings without their noise",
        embeddings_beside_exact_ones,
        partial(test_replay.test_unrelated_rows_leave_no_trace, "classes"),
    ),
    Mutant(
        "embeddings released twice",
        embeddings_twice,
        test_embedding.test_embeddings_are_released_where_they_are_replayed,
    ),
    Mutant(
        "a table's parts, which a row moves too, cost nothing",
        parts_of_tables_unpaid,
        partial(MOVED, "of pairs", 60, "uint8"),
    ),
    Mutant(
        "the table that differs most is chosen without noise",
        the_best_table_without_noise,
        partial(test_noise.test_choices_have_the_rate_of_their_multiplier, 1.0),
    ),
    Mutant(
        "choices at twice their rate",
        choices_at_twice_their_rate,
        test_noise.test_no_test_of_a_choice_has_more_power_than_of_its_release,
    ),
    Mutant("choices that are not noted", choices_not_noted, NOTED),
    Mutant(
        "choices with half their noise",
        choices_with_half_their_noise,
        PLANNED,
    ),
    Mutant(
        "what chosen tables show, released without noise",
        what_chosen_tables_show_without_noise,
        partial(
            test_tables.test_news_comes_back_in_rows_with_the_noise_that_is_stated, []
        ),
    ),
    Mutant(
        "counts of several tables with the noise of one",
        counts_with_the_noise_of_one_table,
        test_tables.test_one_row_moves_counts_by_one_in_every_table,
    ),
    Mutant(
        "tables counted on rows chosen after looking",
        tables_of_rows_chosen_after_looking,
        partial(CHOSEN, 0),
    ),
    Mutant(
        "a model corrected by exact counts",
        tables_without_noise,
        partial(test_tables.test_scores_decide_by_what_was_released_of_them, 5001),
    ),
    Mutant(
        "tables compared with a pool that knows the rows",
        expected_by_exact_counts,
        EXPECTED,
    ),
    Mutant(
        "tables compared by the true count",
        tables_over_the_true_count,
        EXPECTED,
    ),
    Mutant(
        "a search's scores with half their noise",
        score_with_half_its_noise,
        test_ledger.test_a_search_releases_what_was_planned,
    ),
    Mutant(
        "a search's winner fitted again to all rows",
        winner_refitted,
        test_ledger.test_a_search_releases_what_was_planned,
    ),
    Mutant(
        "one trial more than was drawn",
        one_trial_too_many,
        test_ledger.test_a_search_releases_what_was_planned,
    ),
    Mutant(
        "a part of exact size held out",
        held_out_of_exact_size,
        test_selection.test_every_row_is_held_out_for_itself,
    ),
    Mutant(
        "scores divided by the true size of the part held out",
        score_over_the_true_count,
        partial(
            test_selection.test_one_row_moves_a_score_by_half_at_most,
            test_selection.of_pairs,
        ),
    ),
    Mutant(
        "public training that reads private rows",
        pretraining_on_private_rows,
        partial(REPLAY, "public"),
    ),
    Mutant(
        "public training that keeps private rows",
        private_rows_kept_by_pretraining,
        partial(test_replay.test_a_pickle_holds_no_value_of_a_row, "public"),
    ),
    Mutant(
        "gradients that no process adds to those of others",
        every_process_releases_its_own,
        test_ranks.test_gradients_have_the_noise_of_one,
    ),
    Mutant(
        "noise of gradients shared out among processes",
        every_process_adds_a_share_of_the_noise,
        test_ranks.test_gradients_have_the_noise_of_one,
    ),
    Mutant(
        "noise of histograms in every process",
        histograms_with_the_noise_of_every_process,
        test_ranks.test_histograms_have_the_noise_of_one,
    ),
    Mutant(
        "the whole table in every process",
        every_process_takes_the_whole_table,
        partial(test_ranks.test_every_row_has_one_process, pd.DataFrame),
    ),
    Mutant(
        "batches of all processes from one stream",
        one_stream_of_batches_for_all_processes,
        test_ranks.test_streams_of_processes_share_what_is_public,
    ),
    Mutant(
        "scores of tables added up over processes",
        scores_of_parts_added_up,
        partial(test_ranks.test_what_tables_show_is_of_all_rows_and_no_sum_of_parts, 2),
    ),
    Mutant(
        "sampling rate: batch over the true count",
        rate_of_the_true_count,
        partial(test_training.test_the_rate_is_that_of_the_released_count, 40),
    ),
    Mutant(
        "size of the model from the rows",
        size_of_the_model_from_the_rows,
        partial(test_replay.test_unrelated_rows_leave_no_trace, "large model"),
    ),
    Mutant(
        "threshold of shared values by the true count",
        threshold_of_spikes_by_the_true_count,
        test_replay.test_spikes_are_those_of_the_released_count,
    ),
    Mutant(
        "a switch to fewer keys by the true count",
        keys_by_the_true_count,
        test_replay.test_keys_are_chosen_by_the_released_count,
    ),
    Mutant(
        "keys of coarse grids that no delta pays for",
        keys_of_grids_unpaid,
        partial(REPLAY, "coarse grids"),
    ),
    Mutant(
        "counts of marginals as floats, whose noise is not rounded",
        counts_as_floats,
        partial(REPLAY, "ends of grids"),
    ),
    Mutant(
        "a row at a bound in two cells",
        bounds_counted_twice,
        partial(REPLAY, "ends of grids"),
    ),
    Mutant(
        "a row in two keys of a coarse grid",
        keys_of_neighbours,
        partial(REPLAY, "coarse grids"),
    ),
    Mutant(
        "learning rate by the true count",
        learning_rate_of_the_true_count,
        partial(SIZES, "flow", False),
    ),
    Mutant(
        "largest micro-batch by the true count",
        cap_of_the_true_count,
        partial(SIZES, "micro", False),
    ),
    Mutant(
        "number of partitions by the true count",
        partitions_of_the_true_count,
        partial(SIZES, "term-wise", False),
    ),
    Mutant(
        "a predictor's synthetic rows: as many as there are",
        synthetic_rows_of_the_true_count,
        partial(SIZES_BEYOND, "classifier", "member", False),
    ),
    Mutant(
        "cells of a contingency table by the true count",
        cells_of_tables_by_the_true_count,
        partial(SIZES, "flow, tables", False),
    ),
    Mutant(
        "raking on as many rows as there are",
        raking_on_as_many_rows,
        partial(SIZES, "flow", False),
    ),
    Mutant(
        "a search planned by the true count",
        search_planned_by_the_true_count,
        partial(SIZES_BEYOND, "search", None, False),
    ),
    Mutant(
        "whether instants are split decided by the rows",
        cycles_from_rows,
        partial(REPLAY, "instants"),
    ),
    Mutant(
        "times of day bounded by the rows",
        times_of_day_from_rows,
        partial(REPLAY, "instants"),
    ),
    Mutant(
        "times of day counted twice",
        times_of_day_counted_twice,
        partial(REPLAY, "instants"),
    ),
    Mutant(
        "levels nest where all rows are listed",
        levels_nest_where_all_rows_are_listed,
        partial(REPLAY, "groups"),
    ),
    Mutant(
        "numbers of places counted twice",
        places_counted_twice,
        partial(REPLAY, "places"),
    ),
    Mutant(
        "boxes of places bounded by the rows",
        boxes_bounded_by_rows,
        partial(REPLAY, "places"),
    ),
    Mutant(
        "heavy cells by exact counts",
        heavy_by_exact_counts,
        test_replay.test_heavy_cells_are_those_of_noisy_counts,
    ),
    Mutant(
        "learners of a search draw from generators that others share",
        trials_draw_from_shared_generators,
        test_search.test_generators_do_not_tell_which_trial_won_nor_how_many_there_were,
    ),
    Mutant(
        "values that rows share by exact counts",
        shared_by_exact_counts,
        partial(
            test_replay.test_values_that_rows_share_are_those_of_noisy_counts, "age"
        ),
    ),
    Mutant(
        "values that rows share counted beside the budget",
        shared_values_unpaid,
        partial(
            test_transform.test_one_column_spends_no_more_than_its_budget,
            "one number, wide bounds",
            0.02,
            True,
        ),
    ),
    Mutant(
        "local noise by the range of the rows",
        scale_from_the_rows,
        test_local.test_what_is_read_of_rows_before_they_are_perturbed,
    ),
    Mutant(
        "every feature of a record has the whole epsilon",
        features_not_added_up,
        test_local.test_equal_features_add_up,
    ),
    Mutant(
        "values not clipped before local noise",
        values_not_clipped_before_noise,
        test_local.test_values_outside_have_the_ratio_of_the_bounds,
    ),
    Mutant(
        "missing values shown as they are",
        missing_for_nothing,
        test_local.test_missing_values_are_said_to_be_there,
    ),
    Mutant(
        "pixels: noise of one where several differ",
        noise_of_one_pixel,
        test_local.test_several_pixels_need_their_noise,
    ),
    Mutant(
        "latents without the bound of their means",
        means_without_a_bound,
        test_local.test_means_of_all_records_are_inside_the_bound,
    ),
    Mutant(
        "latents with the encoder's deviation",
        deviation_of_the_encoder,
        test_local.test_every_record_has_the_noise_of_every_other,
    ),
    Mutant(
        "local noise in floating point",
        noise_in_floating_point,
        test_local.test_perturbed_numbers_are_grid_points,
    ),
)

HEAD = """\
.. Written by `python -m tests.privacy.mutants`; a test compares.

Mutants
=======

A test of a privacy guarantee is worth something only if it fails when the code is
wrong. So each mistake below is put into the code on purpose (a *mutant*), and one test
has to fail. Each mistake has been made in published code, or in a paper that this
package follows. It is a patch in ``tests/privacy/mutants.py``. The test beside it
passes on the correct code and fails under the patch. Those marked with a star take
longer and run with the audits::

    python -m pytest tests/privacy/test_mutants.py -m "audit or not audit"

.. list-table::
   :header-rows: 1
   :widths: 30 70

   * - Mistake
     - Test that fails
"""


STAR = " \\*"


def page() -> str:
    """Return the page of the documentation."""
    rows = [
        f"   * - {m.name}{'' if m.fast else STAR}\n     - ``{m.caught_by}``\n"
        for m in MUTANTS
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    sys.stdout.write(page())
