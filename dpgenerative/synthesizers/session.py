"""One fit of an estimator, from its parameters and rows to its fitted attributes.

`Synthesizer.fit` is `run`; searches, audits, forecasts and local mechanisms call the
steps that they need. Rows pass through `prepare`, which reads them, and
`PrivateFit.run`, which releases.
"""

import math
import os
import secrets
import warnings
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import clone
from sklearn.utils import resample

from dpgenerative._files import locked
from dpgenerative._random import Streams, as_seed
from dpgenerative._validation import refuse
from dpgenerative.encoding.values import identifiers
from dpgenerative.fitting.domain import Domain
from dpgenerative.fitting.fit import Fitted, PrivateFit, finite
from dpgenerative.fitting.options import BatchTerm
from dpgenerative.fitting.trial import check_recipe, is_custom
from dpgenerative.persistence.checkpoint import Checkpoint, settings_of
from dpgenerative.privacy.budget import Trial, charge, finished
from dpgenerative.privacy.ledger import Ledger
from dpgenerative.privacy.ranks import ProcessGroup
from dpgenerative.privacy.report import PrivacyReport, outlook
from dpgenerative.synthesizers import noisy
from dpgenerative.synthesizers.notes import NOISE_STATED, unit_notes
from dpgenerative.tables.column import Column
from dpgenerative.tables.containers import as_table, set_feature_names
from dpgenerative.tables.private import Private
from dpgenerative.tables.rows import require_order
from dpgenerative.tables.schema import Schema
from dpgenerative.tables.sequences import people_redrawn
from dpgenerative.tables.times import in_zones


@dataclass(frozen=True)
class Data:
    """The arguments of a fit, as it reads them.

    Attributes
    ----------
    rows : Private of DataFrame or Images
    layout : TableFormat or Pixels
        How the rows came, so that samples come back in it.
    schema : Schema
        What is public of the columns, identifiers included; none of arrays.
    domain : Domain
        What the fit learns.
    public : DataFrame or Images, optional
        Rows that need no protection.
    """

    rows: Private[Any]
    layout: Any
    schema: Schema
    domain: Domain
    public: Any = None


def check_parameters(estimator: Any) -> None:
    """Raise ValueError for a parameter out of its range."""
    estimator._check_parameters()


def stated_epsilon(estimator: Any) -> float | None:
    """Return epsilon: inf if it follows from the noise, None without privacy."""
    stated = estimator.noise_multiplier is None
    return finite(estimator.epsilon) if stated else math.inf


def device_of(estimator: Any) -> str:
    """Return the device on which a fit runs here."""
    here = "cuda" if torch.cuda.is_available() else "cpu"
    return here if estimator.device == "auto" else str(estimator.device)


def prepare(
    estimator: Any, X: Any, y: Any, public: Any = None, allow_empty: bool = False
) -> Data:
    """Check parameters, rows and users' models; return what was read."""
    estimator._check_parameters()
    with np.errstate(all="ignore"):  # np.seterr could expose a value
        data = estimator._read(X, y, public, allow_empty)
        if is_custom(estimator._recipe):
            sequences = getattr(data.domain, "sequences", None)
            learned = data.schema.modelled if sequences is None else sequences.schema
            facts = learned.names, data.rows, finite(estimator.epsilon)
            check_recipe(estimator._owner, estimator._recipe, data.domain, *facts)
    return data


def private_fit(
    estimator: Any, domain: Domain, streams: Streams, device: str
) -> PrivateFit:
    """Return the fit of this recipe to the rows of a domain."""
    mechanisms = estimator._mechanisms(streams)
    return PrivateFit(estimator, estimator._recipe, domain, streams, mechanisms, device)


def planned_fit(estimator: Any, domain: Domain) -> PrivateFit:
    """Return a fit that is planned but reads no rows, on the CPU."""
    return private_fit(estimator, domain, Streams.create(None, "fresh", "cpu"), "cpu")


def assumed_fit(estimator: Any, streams: Streams) -> PrivateFit:
    """Return the fit of the domain that the parameters state, without rows."""
    return private_fit(estimator, estimator._assumed_domain(), streams, "cpu")


def run(
    estimator: Any,
    X: Any,
    y: Any = None,
    public: Any = None,
    checkpoint: Any = None,
    trial: Trial | None = None,
) -> Any:
    """Fit; a private search has paid for its `trial`, which may have no rows."""
    data = prepare(estimator, X, y, public, allow_empty=trial is not None)
    noisy.note(estimator)
    ranks = ProcessGroup.present()
    _agree(estimator, ranks, data, public is not None, checkpoint is not None)
    seed = ranks.same(as_seed(estimator.random_state))
    quiet = np.errstate(all="ignore")
    with quiet, _checkpoint(estimator, checkpoint, data, seed, ranks) as saved:
        if trial is None:
            paid = saved.name if saved else None
            charge(estimator._owner, stated_epsilon(estimator), estimator.delta, paid)
        else:
            trial.ledger.n_fits += 1
        seed = saved.seed if saved else seed
        name = saved.name if saved else ranks.same(secrets.token_hex(16))
        start = int(name, 16) if seed is None else seed
        device = device_of(estimator)
        streams = Streams.create(start, estimator.noise, device, ranks.rank)
        fit = private_fit(estimator, data.domain, streams, device)
        fit.mechanisms.ranks = ranks
        # The split uses a fresh secret seed, unless all noise follows a known one.
        parts = start if streams.is_seeded else int(name, 16)
        rows = data.rows.map(lambda rows: ranks.share(rows, parts))
        n_rows = None if trial is None else trial.n_rows
        with torch.autocast(torch.device(device).type, enabled=False):
            fitted = fit.run(rows, data.public, saved, n_rows)
        if saved:
            # Delete the checkpoint first: a later failure must not leave it behind.
            ranks.once(saved.remove)
            finished(saved.name)
        before = dict(estimator.__dict__)
        try:
            _keep(estimator, fitted, data, seed)
        except BaseException:  # roll back on failure
            estimator.__dict__.clear()
            estimator.__dict__.update(before)
            raise
    # Nothing is released of trials that a search does not choose.
    if trial is None and ranks.is_first:
        for warning in estimator._warnings(data.domain.schema):
            warnings.warn(warning, stacklevel=3)
    return estimator


def _keep(estimator: Any, fitted: Fitted, data: Data, seed: int | None) -> None:
    """Set the fitted attributes."""
    plan = fitted.plan
    estimator._layout, estimator._has_public = data.layout, data.public is not None
    estimator._sample_seed, estimator._n_sampled = seed, 0
    estimator._transformer, estimator._model = fitted.transformer, fitted.model
    estimator._settings = fitted.settings
    estimator.schema_ = data.schema.completed(fitted.transformer.schema.columns)
    estimator.epsilon_, estimator.delta_ = plan.spent(), estimator.delta
    estimator.noise_multiplier_ = plan.noise_multiplier
    estimator.n_steps_ = plan.n_steps
    estimator.privacy_ = _report(estimator, data, fitted)
    estimator.n_features_in_ = len(data.layout.x_names)
    set_feature_names(estimator, data.layout)


def _report(estimator: Any, data: Data, fitted: Fitted) -> PrivacyReport:
    facts = estimator._public_facts(data.domain.schema)
    if data.public is not None:
        rows = f"{len(data.public)} rows given as public: they trained the model first"
        facts = (*facts, f"{rows}, and bounds and levels that were open are theirs")
    key = key_of(data.schema)
    general = unit_notes(estimator.noise, estimator.max_rows_per_unit, key)
    notes = (
        *estimator._notes(data.domain.schema, fitted),
        *(general if fitted.plan.private else ()),
        *([] if estimator.noise_multiplier is None else [NOISE_STATED]),
    )
    unit = "one row" if key is None else "one person, with all of their rows"
    spent = estimator.epsilon_
    return PrivacyReport(fitted.plan, spent, fitted.clipping, facts, notes, unit)


@contextmanager
def _checkpoint(
    estimator: Any, path: Any, data: Data, seed: int | None, ranks: ProcessGroup
) -> Iterator[Checkpoint | None]:
    """Open and lock the checkpoint of this fit, if there is to be one."""
    if path is None:
        yield None
        return
    if not isinstance(path, (str, os.PathLike)):
        refuse(f"{estimator._owner}.fit", "checkpoint", "must be a path or None", path)
    parameters = {**_stated_parameters(estimator), "n_processes": ranks.size}
    with ExitStack() as lock:

        def opened() -> Checkpoint:
            lock.enter_context(locked(path))
            facts = _public_parts(data)
            return Checkpoint(path, estimator._owner, parameters, facts, seed)

        saved = ranks.once(opened)
        saved.ranks = ranks
        yield saved


def _stated_parameters(estimator: Any) -> dict[str, Any]:
    """Return the parameters, with the device that is used."""
    return {**estimator.get_params(deep=False), "device": device_of(estimator)}


def _agree(estimator: Any, ranks: ProcessGroup, data: Data, *given: bool) -> None:
    """Require equal arguments of all processes, and a model that they can fit."""
    if ranks.size == 1:
        return
    facts = [*_public_parts(data), data.domain.schema, *given]
    parameters = _stated_parameters(estimator)
    ranks.refuse_difference(settings_of(estimator._owner, parameters, facts))
    data.rows.map(require_order)
    coupled = BatchTerm.of(estimator.divergence).aggregation != "term-wise"
    if coupled or estimator._recipe.has_batch_term:
        rule = "needs whole batches, which one process has: fit in one"
        refuse(estimator._owner, "divergence", rule, estimator.divergence)


def _public_parts(data: Data) -> list[Any]:
    """Return the public facts of a table."""
    return [data.layout, data.schema, *data.domain.dtypes]


def refit(fitted: Any, X: Any, y: Any = None, *, seed: int) -> Any:
    """Return its fit repeated with rows that it has drawn: nothing is charged.

    All parameters and the size of noise are the same; the noise follows the seed.

    Raises
    ------
    ValueError
        If the fit had public rows, without which it cannot be repeated.
    """
    if getattr(fitted, "_has_public", False):
        raise ValueError(
            f"{fitted._owner}: a fit with public rows cannot be repeated without them. "
            "Fit without public."
        )
    again = clone(fitted)
    # Not by `set_params`: a constructor of one's own need not take all of these.
    again.random_state, again.noise, again.verbose = seed, "reproducible", 0
    return run(again, X, y, trial=Trial(None, Ledger()))


# What a fitted estimator knows --------------------------------------------------------


def layout_of(fitted: Any) -> Any:
    """Return how the rows came, so that samples come back in it."""
    return fitted._layout


def is_linked(estimator: Any) -> bool:
    """Return whether its schema links the rows of a person."""
    schema = getattr(estimator, "schema", None)
    return schema is not None and schema.unit is not None


def has_people(estimator: Any) -> bool:
    """Return whether its schema has a key of persons, so that they are counted."""
    return key_of(getattr(estimator, "schema", None)) is not None


def key_of(schema: Schema | None) -> Column | None:
    """Return the column of persons' keys, of whom each is one record."""
    columns = () if schema is None else schema.columns
    return next((c for c in columns if c.role in ("unit", "owner")), None)


def drawn(fitted: Any, n: int, seed: Any) -> tuple[Any, ...]:
    """Return a sample as a tuple of X, or of X and y."""
    return _as_tuple(fitted.sample(n, random_state=seed))


def frame_drawn(fitted: Any, n: int, seed: Any) -> pd.DataFrame:
    """Return a sample as one table, whose last column is y."""
    parts = fitted._finished(n, seed, None, 1000)
    return pd.concat(parts, ignore_index=True)


def drawn_in_parts(fitted: Any, n: int, seed: Any) -> tuple[Any, ...]:
    """Return the rows of a table that `sample_to` writes, as `drawn` returns them."""
    return _as_tuple(fitted._layout.restore(frame_drawn(fitted, n, seed)))


def _as_tuple(sample: Any) -> tuple[Any, ...]:
    return sample if isinstance(sample, tuple) else (sample,)


def shuffled(fitted: Any, rows: tuple[Any, ...], seed: int) -> tuple[Any, ...]:
    """Return rows whose columns are permuted, each on its own: none is related."""
    rng = np.random.default_rng(seed)
    if isinstance(rows[0], np.ndarray):
        return tuple(rng.permuted(each, axis=0) for each in rows)
    frame = as_table(fitted._owner, *rows)[0]
    columns = [frame[name].iloc[rng.permutation(len(frame))] for name in frame]
    mixed = pd.concat([x.reset_index(drop=True) for x in columns], axis=1)
    return _as_tuple(fitted._layout.restore(mixed.set_axis(frame.columns, axis=1)))


def redrawn(fitted: Any, rows: tuple[Any, ...], n: int, seed: int) -> tuple[Any, ...]:
    """Return n rows, or people with all of their rows, drawn with replacement."""
    if (key := key_of(getattr(fitted, "schema_", None))) is not None:
        frame, rng = as_table(fitted._owner, *rows)[0], np.random.default_rng(seed)
        places, numbers = people_redrawn(pd.factorize(frame[key.name])[0], n, rng)
        keys = identifiers(key, n, frame.dtypes[key.name], rng).iloc[numbers].array
        drawn = frame.iloc[places].reset_index(drop=True)
        drawn[key.name] = keys
        return _as_tuple(fitted._layout.restore(drawn))
    drawn = resample(*rows, replace=True, n_samples=n, random_state=seed)
    return tuple(
        each.reset_index(drop=True) if hasattr(each, "reset_index") else each
        for each in (drawn if len(rows) > 1 else [drawn])
    )


def learns_relations(fitted: Any) -> bool:
    """Return whether the budget was enough for relations, as its report judges."""
    n_columns = len(fitted.schema_.modelled)
    return outlook(fitted.privacy_.plan, n_columns) == "good"


def has_relations(fitted: Any) -> bool:
    """Return whether a whole model was trained, or tables of columns counted."""
    is_whole = fitted.n_steps_ and not fitted._settings.get("ordered_only")
    return bool(is_whole or getattr(fitted, "tables_", ()))


def codecs_of(fitted: Any) -> Any:
    """Return how every column of a table is read and written."""
    return fitted._transformer.codecs


def latent_dim_of(fitted: Any) -> int:
    """Return the number of latents of an autoencoder."""
    return int(fitted._model.latent_dim)


def condition_of(fitted: Any) -> int | None:
    """Return the place of the column that the decoder is given; None without one."""
    place: int | None = getattr(fitted._model, "condition", None)
    return place


def read_again(fitted: Any, X: Any, y: Any) -> Any:
    """Return rows as the fit read its own, or raise ValueError."""
    return fitted._as_fitted(X, y)


def with_stated_levels(estimator: Any) -> set[Hashable]:
    """Return the names of columns of a table whose levels the schema states."""
    columns = estimator._stated().columns
    return {column.name for column in columns if column.levels is not None}


def in_fitted_zones(fitted: Any, rows: Any) -> Any:
    """Return rows with their instants in the time zones that were fitted."""
    dtypes = {c.column.name: c.dtype for c in fitted._transformer.outer}
    return in_zones(rows, map(dtypes.get, rows.columns))
