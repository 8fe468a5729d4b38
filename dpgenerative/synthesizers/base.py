"""What all synthesizers share: checks, the steps of a fit, samples, scores, report.

A subclass states its parameters and its model: `_build`, `_objective`, `_batch_term`,
`_finish`, `_draw`, `score_samples`, `_check_own` and `_rules`.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from dpgenerative._random import Streams, torch_generator
from dpgenerative._validation import check_number, check_option, refuse
from dpgenerative.encoding.codecs import Codec
from dpgenerative.encoding.increments import learned_columns
from dpgenerative.encoding.marginals import has_open_keys
from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.encoding.values import NO_LEVELS, NO_NUMBERS, identifiers
from dpgenerative.exceptions import (
    HopelessBudgetWarning,
    LostColumnWarning,
    SamplingError,
)
from dpgenerative.fitting.loop import OPTIMIZERS, TrainingOptions, train
from dpgenerative.fitting.public import domain_of, public_table
from dpgenerative.models.cells import CellFacts
from dpgenerative.persistence.checkpoint import Checkpoint
from dpgenerative.persistence.manifest import write
from dpgenerative.privacy.budget import (
    charge,
    finished,
    known_count,
    refuse_workers,
)
from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import (
    PrivacyPlan,
    count_epsilon,
    make_plan,
)
from dpgenerative.privacy.report import PrivacyReport, cautions, outlook
from dpgenerative.privacy.sampling import capacity, padded_chunks
from dpgenerative.privacy.steps import (
    LARGEST_CHUNK,
    Clipper,
    Divergence,
    Objective,
    PrivateGradient,
    estimate_norm,
)
from dpgenerative.synthesizers.conditional import Candidates
from dpgenerative.tables.arrow import in_pandas
from dpgenerative.tables.containers import TableFormat, as_table, labels, select_columns
from dpgenerative.tables.schema import Schema

SAMPLE_CHUNK = 2**16
RAKING_ROWS = 2**15
MOSTLY_MISSING = 0.5
"""Released share of missing values, and of those too rare to be found, from which a
column without known levels is lost."""
NEARLY_MISSING = 0.95
"""The same for columns of numbers, times and stated levels."""
LOST = (
    "No value was frequent enough to be found in {}: what is sampled there means "
    "nothing.",
    "Most values in {} are missing or too rare to be found: most that are sampled say "
    "no more.",
    "Most values in {} are missing, or neither dates nor texts in ISO 8601.",
    "Nearly all values in {} are missing, or not of the kind or levels stated.",
)
LOST_ADVICE = (
    'State levels or a kind in a Schema ("datetime" reads Python\'s dates), declare '
    'identifiers (role="id"), derive levels or numbers from texts, lists and times of '
    "day, or leave such columns out."
)
PRETRAINING_EPOCHS = 100
PRETRAINING_RATE = 0.01
"""Learning rate on public rows, and at most on the private ones after them: a larger
one forgets in its first noisy steps."""


Rule = Callable[[int, Schema, float | None], Any]
"""From the released row count, the schema and epsilon to a parameter's value."""


def rows_per_column(n: int, schema: Schema, epsilon: float | None) -> float:
    """Return how much the data can say: rows times epsilon, per column."""
    return math.inf if epsilon is None else n * epsilon / len(schema)


class Synthesizer(BaseEstimator):
    """Steps that every synthesizer takes; public parameters belong to subclasses."""

    epsilon: float | None
    delta: float
    max_rows_per_unit: int
    clipping: str
    max_grad_norm: float | str
    sparsity: float
    n_partitions: int
    divergence: str | Callable[..., Tensor] | None
    clip_batch: float | None
    schema: Schema | None
    categorical_features: Any
    marginal_budget: float | str
    n_bins: int | str
    n_basis: int | str
    hidden_units: int | str
    optimizer: str
    learning_rate: float | str
    n_steps: int | str
    batch_size: int | str
    averaging: float
    device: str
    random_state: Any
    reproducible: bool
    secure: bool
    verbose: int
    _divergences: Mapping[str, Callable[..., Tensor]]
    _model: Any

    # Public methods -------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any = None,
        public: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
        **unsupported: Any,
    ) -> Self:
        """Learn a table under differential privacy; every call spends the budget again.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The private rows. One row is the privacy unit, or the up to
            `max_rows_per_unit` rows of one person.
        y : Series, one-column DataFrame or array-like of shape (n_samples,), optional
            One more column, modelled together with X.
        public : DataFrame or array-like, or (X, y), optional
            Rows of the same columns and dtypes that nobody has to protect, as of an
            older release; a pair where y is given. They say which bounds and levels
            the schema leaves open, and train the model, without noise, before the
            private rows do.
        checkpoint : path-like, optional
            File of this fit alone, written every ten seconds of training. After an
            interruption the same call goes on from it and spends nothing twice; at
            the end it is deleted. **As private as the rows**: it holds the noise.
        **unsupported
            Only to say why there is no ``sample_weight``: a weight would change how
            much one row can move the model.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            For a parameter out of its range, or a table of no rows or columns, or the
            checkpoint of another fit. No message depends on values, except that a
            checkpoint of other rows is refused.
        TypeError
            For a column dtype that no release covers, or a checkpoint cannot hold.
        InfeasibleBudgetError
            When no noise fits the budget.
        BudgetExceededError
            When a `PrivacyBudget` is open that cannot pay for the fit.
        FileFormatError
            For a checkpoint that is damaged, or a file of something else.
        LedgerError
            Where what was released is not what was planned: an error of the package.

        Warns
        -----
        HopelessBudgetWarning
            When the released row count and epsilon leave little but noise.
        """
        self._refuse_arguments(unsupported)
        rows, layout, schema, public = self._prepare(X, y, public)
        seed = as_seed(self.random_state)
        domain = [layout, schema, *getattr(rows, "dtypes", ())]
        kept = self._checkpoint(checkpoint, domain, seed)
        charge(self._owner, self._epsilon, self.delta, kept.name if kept else None)
        seed = kept.seed if kept else seed
        device = self._device()
        noise = "secure" if self.secure else "fresh"
        noise = "reproducible" if self.reproducible else noise
        streams = Streams.create(seed, noise, device)
        mechanisms = self._mechanisms(streams)
        learned = self._ordered(schema.modelled)
        fitted = self._fit(rows, learned, streams, mechanisms, device, public, kept)
        if kept:
            finished(kept.name)
        for name, value in fitted.items():
            setattr(self, name, value)
        self.schema_ = schema.completed(fitted["schema_"].columns)
        self._layout = layout
        self._sample_seed = seed
        self._n_sampled = 0
        self.n_features_in_ = len(layout.x_names)
        self._set_feature_names(layout)
        if kept:
            kept.remove()
        # Of a trial that a search does not choose nothing is released.
        if known_count() is None:
            self._warn(schema)
        return self

    def sample(
        self,
        n_samples: int | None = None,
        random_state: Any = None,
        *,
        given: Mapping[Hashable, Any] | pd.DataFrame | None = None,
        impute: bool = False,
        max_tries: int = 1000,
    ) -> Any:
        """Draw new rows, each of which follows the model.

        Parameters
        ----------
        n_samples : int, optional
            Number of rows, at least 1. None means 1, or one per row of a table given.
        random_state : int, RandomState instance or None, default=None
            None gives fresh rows at every call; an int the same rows.
        given : mapping or DataFrame, optional
            Conditions by column name (`tables.conditions`): a value, a list of
            values, an interval ``(low, high)`` with its ends, or None for missing. A
            table instead asks for one completion of every row: columns that it lacks
            are drawn given those that it has; values beyond its bounds, and levels
            that were not found, count as the nearest bound and as `other`. **Where
            its rows are private, so are their completions.** Columns are named as in
            `schema_`.
        impute : bool, default=False
            Fill in the missing values of a table given, by values. False takes them
            for what is given: missing.
        max_tries : int, default=1000
            Most candidates drawn per row (and for no fewer than 500 rows) where those
            that break a condition or constraint are drawn again.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            In the container, columns and dtypes that were fitted; ``(X, y)`` where y
            was fitted too. Rows of a table given keep its order and index.

        Raises
        ------
        ValueError
            For conditions that do not fit their columns.
        SamplingError
            When too few candidates satisfy what is asked; the text gives the rate.

        Notes
        -----
        Sampling only reads what `fit` released: it spends nothing. How rows are had
        from candidates, and when exactly: :doc:`/conditional`.
        """
        check_is_fitted(self)
        given = in_pandas(f"{self._owner}.sample", given)
        self._check_given(given, impute, max_tries)
        n_samples = self._n_wanted(n_samples, given)
        if random_state is None and self._sample_seed is not None:
            sequence = np.random.SeedSequence([self._sample_seed, 1 + self._n_sampled])
            self._n_sampled += 1
        else:
            sequence = np.random.SeedSequence(as_seed(random_state))
        rows, places = sequence.spawn(2)
        generator = torch_generator(rows)
        rng = np.random.default_rng(places)
        if given is None and not self.schema_.constraints:
            frame = self._rows(n_samples, generator, rng)
        else:
            candidates = Candidates(
                self._owner, self._transformer, self.schema_,
                lambda n, shares: self._draw_given(n, shares, generator, rng),
                self._can_clamp, rng, max_tries, self._open_levels(),
            )  # fmt: skip
            if isinstance(given, pd.DataFrame):
                frame = candidates.completing(given, impute)
            else:
                frame = candidates.satisfying(n_samples, given or {})
        return self._returned(frame, rng, given)

    def _rows(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> pd.DataFrame:
        parts = []
        for start in range(0, n, SAMPLE_CHUNK):
            size = min(SAMPLE_CHUNK, n - start)
            codes, inside = self._draw(size, generator, rng)
            parts.append(self._transformer.decode(codes, inside))
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-density of every row; not private if the rows are."""
        raise NotImplementedError

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`; not private if the rows are."""
        return float(np.mean(self.score_samples(X, y)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which `dpgenerative.load` reads.

        The file holds what a pickle would and no code: parameters, schema, released
        marginals, network and privacy report. So it is covered by the guarantee, and
        by it alone. See :doc:`/persistence`.

        Parameters
        ----------
        path : path-like
            A file that is there is replaced.

        Raises
        ------
        NotFittedError
            Before `fit`.
        TypeError
            For a parameter that a file cannot hold, such as a function.
        """
        check_is_fitted(self)
        state = self.__getstate__()
        names = self.get_params(deep=False)
        left_out = {"_sklearn_version", "feature_names_in_", *names}
        fitted = {k: v for k, v in state.items() if k not in left_out}
        parameters = {name: state[name] for name in names}
        write(path, self._owner, {"parameters": parameters, "fitted": fitted})

    @classmethod
    def _restored_from(cls, state: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the estimator that was saved."""
        estimator = cls(**state["parameters"])
        for name, value in state["fitted"].items():
            if name.startswith("__") or hasattr(cls, name):
                raise ValueError(f"{name} is no fitted attribute")
            setattr(estimator, name, value)
        estimator._set_feature_names(estimator._layout)
        return estimator

    def __getstate__(self) -> dict[str, Any]:
        if not hasattr(self, "_model"):
            refuse_workers(self._owner)
        state: dict[str, Any] = dict(super().__getstate__())
        was_cloned = state.pop("_was_cloned", False)
        if self.reproducible and ("_model" in state or was_cloned):
            # The seed of the noise stays with whoever fitted.
            state["random_state"] = state["_sample_seed"] = None
        return state

    def __sklearn_clone__(self) -> Self:
        # Searches, predictors and their like fit clones, whose noise follows the seed,
        # and hold on to what they cloned.
        self._was_cloned = True
        clone: Self = super().__sklearn_clone__()
        return clone

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = True
        tags.target_tags.required = False
        return tags

    def _warn(self, schema: Schema) -> None:
        """Warn of a budget or of columns that came to nothing, as `privacy_` notes."""
        lost = _lost_columns(schema, self._transformer.codecs)
        if lost:
            warnings.warn(lost, LostColumnWarning, stacklevel=3)
        plan, n_columns = self.privacy_.plan, len(schema.modelled)
        if outlook(plan, n_columns) == "hopeless":
            caution = cautions(plan, n_columns)[0]
            warnings.warn(caution, HopelessBudgetWarning, stacklevel=3)

    # Steps of a fit -------------------------------------------------------------

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _mechanisms(self, streams: Streams) -> Mechanisms:
        """Return the door of this fit's releases; tests put a recorder here."""
        return Mechanisms(streams.counts, streams.gradients)

    def _read(self, X: Any, y: Any, public: Any) -> tuple[Any, Any, Schema, Any]:
        """Return the private rows, their containers, their schema, and public rows."""
        in_search = known_count() is not None
        frame, layout = as_table(self._owner, X, y, allow_empty=in_search)
        schema = self._stated().resolve(frame, self._nominal(frame, layout))
        names = list(schema.modelled.names)
        if not names:
            raise ValueError(f"{self._owner} needs a column that is no identifier.")
        self._check_schema(schema.modelled)
        ids = [c.name for c in schema.columns if c.role == "id"]
        layout = replace(layout, ids=tuple((n, frame.dtypes[n]) for n in ids))
        if public is not None:
            public = public_table(self._owner, public, frame, layout)
            public = select_columns(public, names)
            schema = domain_of(schema, public)
        return select_columns(frame, names), layout, schema, public

    def _transform(
        self,
        frame: Any,
        schema: Schema,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
    ) -> Any:
        """Release the marginals; return the way from rows to codes and back."""
        return TableTransformer.fit(
            frame, schema, mechanisms, n_rows=plan.n_rows,
            multiplier=plan.marginal_multiplier, delta=plan.threshold_delta,
            n_bins=self._resolved("n_bins", plan.n_rows, schema),
            anchored=self._informed, with_missing=self._stated().with_missing,
        )  # fmt: skip

    def _fit(
        self,
        frame: Any,
        schema: Schema,
        streams: Streams,
        mechanisms: Mechanisms,
        device: str,
        public: pd.DataFrame | None = None,
        kept: Checkpoint | None = None,
    ) -> dict[str, Any]:
        """Return every attribute that a fit leaves behind."""
        resumed = kept.released if kept else {}
        found = resumed or self._marginals(frame, schema, mechanisms)
        plan, transformer = found["plan"], found["transformer"]
        model = self._build(
            self._facts(transformer), plan.n_rows, schema, streams.weights
        ).to(device)
        if public is not None and not resumed:
            self._pretrain(model, transformer, public, schema, streams, device)
        if kept:
            kept.restore(model, streams)
        # Batches are padded with the first row, so that there must be one to pad with.
        padded = frame if len(frame) else frame.reset_index(drop=True).reindex(range(1))
        objective = self._objective(model, transformer, padded, streams, device)
        gradient = self._gradient(
            model, objective, plan, len(frame), mechanisms, streams, device,
            found.get("bound"),
        )  # fmt: skip
        if kept:
            facts = {**found, "bound": gradient.clipper.bound}
            tables = [frame] if public is None else [frame, public]
            arrays = (x for table in tables for x in transformer.arrays(table))
            kept.prepare(arrays, streams, mechanisms.ledger, facts)
        train(
            model, objective, len(frame), plan, gradient,
            self._options(plan.n_rows, schema, public), mechanisms, streams, device,
            divergence=self._batch_term(model, streams), keeper=kept,
        )  # fmt: skip
        self._finish(model, transformer, frame, plan, mechanisms, streams)
        plan.check(mechanisms.ledger)
        spent = plan.spent()
        return {
            "_transformer": transformer,
            "_model": model.cpu().requires_grad_(False),
            "schema_": transformer.schema,
            "epsilon_": spent,
            "delta_": self.delta,
            "noise_multiplier_": plan.noise_multiplier,
            "n_steps_": plan.n_steps,
            "privacy_": self._report(
                plan, spent, schema, gradient, public, transformer.codecs
            ),
        }

    def _marginals(
        self, frame: Any, schema: Schema, mechanisms: Mechanisms
    ) -> dict[str, Any]:
        """Release the row count and the marginals."""
        plan = self._plan(self._counted(frame, mechanisms), schema)
        transformer = self._transform(frame, schema, plan, mechanisms)
        return {"plan": plan, "transformer": transformer}

    def _counted(self, frame: Any, mechanisms: Mechanisms) -> int:
        """Release the number of rows, where no search has."""
        known = known_count()
        if known is not None:
            mechanisms.ledger.count(known, 0.0)  # the search has paid
            return known
        share = count_epsilon(self._epsilon, self.max_rows_per_unit)
        return mechanisms.count(len(frame), share)

    def _checkpoint(
        self, path: Any, domain: Sequence[Any], seed: int | None
    ) -> Checkpoint | None:
        if path is None:
            return None
        if not isinstance(path, (str, os.PathLike)):
            refuse(f"{self._owner}.fit", "checkpoint", "must be a path or None", path)
        parameters = {**self.get_params(deep=False), "device": self._device()}
        return Checkpoint(path, self._owner, parameters, domain, seed)

    def _pretrain(
        self,
        model: Any,
        transformer: TableTransformer,
        public: pd.DataFrame,
        schema: Schema,
        streams: Streams,
        device: str,
    ) -> None:
        """Train the model on public rows, without noise; nothing private is read."""
        n = len(public)
        rate = min(1.0, self._resolved("batch_size", n, schema) / n)
        plan = make_plan(
            epsilon=None, delta=self.delta, n_rows=n, sampling_rate=rate,
            n_steps=PRETRAINING_EPOCHS * math.ceil(1 / rate), marginal_budget=0,
            has_open_keys=False, estimates_norm=False,
        )  # fmt: skip
        objective = self._objective(model, transformer, public, streams, device)
        gradient = PrivateGradient(Clipper("flat", 1.0), 0.0, plan.batch_size)
        train(
            model, objective, n, plan, gradient,
            TrainingOptions(self.optimizer, PRETRAINING_RATE, self.averaging),
            Mechanisms(streams.counts, streams.gradients), streams, device,
            divergence=self._batch_term(model, streams),
        )  # fmt: skip

    # What a subclass states -----------------------------------------------------

    @property
    def _rules(self) -> Mapping[str, Rule]:
        """Rules of the parameters that may be "auto"."""
        raise NotImplementedError

    @property
    def _informed(self) -> bool:
        """Whether the model starts at the private marginals."""
        return True

    def _facts(self, transformer: Any) -> Any:
        """Return what the model must know of the columns."""
        return [
            CellFacts(
                torch.from_numpy(codec.masses),
                codec.column.is_ordered,
                bool(codec.column.nullable),
                torch.from_numpy(codec.atoms),
            )
            for codec in transformer.codecs
        ]

    def _ordered(self, schema: Schema) -> Schema:
        """Return the columns in the order in which the model takes them."""
        return schema

    def _public(self, schema: Schema) -> tuple[str, ...]:
        """Return what the schema, dtypes and parameters gave away for free."""
        columns, stated = schema.columns, self._stated()
        told = {
            "bounds of": [c for c in columns if c.numeric and c.lower is not None],
            "resolution of": [c for c in columns if c.resolution is not None],
            "no missing values in": [c for c in columns if not c.nullable],
            "levels of": [c for c in columns if not c.numeric and c.levels is not None],
            "identifiers, which are not read:": [
                c for c in stated.columns if c.role == "id"
            ],
        }
        facts = ["column names, order, dtypes and kinds; constructor parameters"]
        for fact, found in told.items():
            if found:
                facts.append(f"{fact} {_listed([c.name for c in found])}")
        for each in stated.constraints:
            kind = type(each).__name__
            facts.append(f"constraint {kind} on {_listed(each.columns)}")
        return tuple(facts)

    def _latent_share(self, n_rows: int, schema: Schema) -> float:
        """Share of the budget for the moments of the latents."""
        return 0.0

    def _coupling(self, plan: PrivacyPlan) -> dict[str, Any]:
        """Return the parameters of `PrivateGradient` that only some models need."""
        return {}

    def _check_own(self) -> None:
        """Check the parameters that no other synthesizer has."""
        raise NotImplementedError

    def _check_schema(self, schema: Schema) -> None:
        """Check the parameters that speak of columns."""

    def _build(
        self,
        facts: Any,
        n_rows: int,
        schema: Schema,
        generator: torch.Generator,
    ) -> Any:
        """Return the model before training."""
        raise NotImplementedError

    def _objective(
        self,
        model: Any,
        transformer: Any,
        frame: Any,
        streams: Streams,
        device: str,
    ) -> Objective:
        """Return the loss of given rows, over codes that live on the device."""
        raise NotImplementedError

    def _batch_term(self, model: Any, streams: Streams) -> Divergence | None:
        """Return the batch-wise term of one partition's images."""
        raise NotImplementedError

    def _finish(
        self,
        model: Any,
        transformer: Any,
        frame: Any,
        plan: PrivacyPlan,
        mechanisms: Mechanisms,
        streams: Streams,
    ) -> None:
        """Do what is left to do after training."""
        raise NotImplementedError

    def _draw(
        self, n: int, generator: torch.Generator, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the cells of new rows, and positions inside them."""
        raise NotImplementedError

    @property
    def _can_clamp(self) -> bool:
        """Whether `_draw_given` clamps cells, with positions inside them free."""
        return False

    def _draw_given(
        self,
        n: int,
        log_shares: Mapping[int, Tensor],
        generator: torch.Generator,
        rng: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return cells, positions and log-weights of candidates for given columns.

        `log_shares` holds, by column, the log of the part of every cell that is
        allowed, of shape (n or 1, n_cells). Without clamping, what is not allowed has
        weight 0 and all else weight 1.
        """
        codes, inside = self._draw(n, generator, rng)
        log_weights = np.zeros(n)
        for j, shares in log_shares.items():
            held = shares.expand(n, -1).numpy()[np.arange(n), codes[:, j]]
            log_weights[np.isinf(held)] = -np.inf
        return codes, inside, log_weights

    # Parts of a fit -------------------------------------------------------------

    def _prepare(
        self, X: Any, y: Any, public: Any = None
    ) -> tuple[Any, Any, Schema, Any]:
        """Check parameters and table; return what `_read` does."""
        self._check_parameters()
        return self._read(X, y, public)

    def _refuse_arguments(self, unsupported: Mapping[str, Any]) -> None:
        if unsupported.get("sample_weight") is not None:
            raise ValueError(
                f"{self._owner}.fit does not support sample_weight: a weight changes "
                "how far one row can move the model, which the noise would have to "
                "cover. Resample or drop rows before the fit instead."
            )
        unknown = sorted(set(unsupported) - {"sample_weight"})
        if unknown:
            raise TypeError(f"{self._owner}.fit got unknown arguments: {unknown}.")

    def _plan(self, n_rows: int, schema: Schema) -> PrivacyPlan:
        columns = learned_columns(schema).values()
        is_open = any(has_open_keys(c, self._informed) for c in columns)
        unbounded = any(c.lower is None for c in columns if c.numeric)
        batch = self._resolved("batch_size", n_rows, schema)
        needs = self._informed or is_open or unbounded
        return make_plan(
            epsilon=self._epsilon,
            delta=self.delta,
            rows_per_unit=self.max_rows_per_unit,
            n_rows=n_rows,
            sampling_rate=min(1.0, batch / n_rows),
            n_steps=self._resolved("n_steps", n_rows, schema),
            marginal_budget=self._resolved("marginal_budget", n_rows, schema) * needs,
            has_open_keys=is_open,
            estimates_norm=self.max_grad_norm == "auto",
            prior_budget=self._latent_share(n_rows, schema),
        )

    def _gradient(
        self,
        model: nn.Module,
        objective: Objective,
        plan: PrivacyPlan,
        n: int,
        mechanisms: Mechanisms,
        streams: Streams,
        device: str,
        bound: float | None = None,
    ) -> PrivateGradient:
        """Return how gradients are bounded; release their norm if it is not known."""
        if bound is None and isinstance(self.max_grad_norm, str):
            # As in a batch: one row more must not move the others in their arrays.
            size = min(capacity(plan.n_rows), LARGEST_CHUNK)
            parts = padded_chunks(np.arange(n), size, streams.batches)
            chunks = ((i.to(device), present.to(device)) for i, present in parts)
            bound = estimate_norm(
                model, objective, chunks, mechanisms, plan.norm_multiplier
            )
        elif bound is None:
            bound = float(self.max_grad_norm)
        default = bound * self.n_partitions / (20 * plan.batch_size)
        group = default if self.clip_batch is None else float(self.clip_batch)
        clipper = Clipper(self.clipping, bound, self.sparsity, group)
        return PrivateGradient(
            clipper,
            plan.noise_multiplier,
            plan.batch_size,
            self.n_partitions,
            **self._coupling(plan),
        )

    def _options(
        self, n_rows: int, schema: Schema, public: pd.DataFrame | None = None
    ) -> TrainingOptions:
        rate = self._resolved("learning_rate", n_rows, schema)
        if public is not None and self.learning_rate == "auto":
            rate = min(rate, PRETRAINING_RATE)
        return TrainingOptions(self.optimizer, rate, self.averaging, bool(self.verbose))

    # Rules and checks -----------------------------------------------------------

    @property
    def _epsilon(self) -> float | None:
        if self.epsilon is None or math.isinf(self.epsilon):
            return None
        return float(self.epsilon)

    def _resolved(self, name: str, n_rows: int, schema: Schema) -> Any:
        """Return a parameter, or its rule of public quantities where it is "auto"."""
        value = getattr(self, name)
        if not isinstance(value, str) or value != "auto":
            return value
        return self._rules[name](n_rows, schema, self._epsilon)

    def _check_parameters(self) -> None:
        self._check_budget()
        self._check_clipping()
        self._check_table_and_model()
        self._check_training()
        self._check_own()

    def _check_budget(self) -> None:
        owner = self._owner
        if self.epsilon is not None:
            check_number(
                owner, "epsilon", self.epsilon, low=0, closed="right", also=[None]
            )
        check_number(owner, "delta", self.delta, low=0, high=1)
        self._check_integers(max_rows_per_unit=1)
        check_number(
            owner, "marginal_budget", self.marginal_budget, low=0, high=1, also=["auto"]
        )

    def _check_clipping(self) -> None:
        owner = self._owner
        check_option(owner, "clipping", self.clipping, STRATEGIES)
        check_number(
            owner, "max_grad_norm", self.max_grad_norm, low=1e-6, also=["auto"]
        )
        check_number(owner, "sparsity", self.sparsity, low=0, high=1, closed="left")
        self._check_integers(n_partitions=1)
        if not callable(self.divergence):
            options = [None, *self._divergences]
            check_option(owner, "divergence", self.divergence, options)
        check_number(owner, "clip_batch", self.clip_batch, low=0, also=[None])

    def _check_table_and_model(self) -> None:
        if self.schema is not None and not isinstance(self.schema, Schema):
            refuse(self._owner, "schema", "must be a Schema or None", self.schema)
        self._check_integers(
            ["auto"], n_bins=2, n_basis=1, hidden_units=0, n_steps=1, batch_size=1
        )

    def _check_training(self) -> None:
        owner = self._owner
        check_option(owner, "optimizer", self.optimizer, OPTIMIZERS)
        check_number(owner, "learning_rate", self.learning_rate, low=0, also=["auto"])
        check_number(owner, "averaging", self.averaging, low=0, high=1, closed="left")
        check_option(owner, "device", self.device, ["auto", "cpu", "cuda"])
        if self.device == "cuda" and not torch.cuda.is_available():
            refuse(owner, "device", "needs a CUDA device, and none is here", "cuda")
        check_option(owner, "reproducible", self.reproducible, [True, False])
        if self.reproducible and self.random_state is None:
            refuse(owner, "reproducible", "needs an integer random_state", True)
        check_option(owner, "secure", self.secure, [True, False])
        if self.secure and self.reproducible:
            refuse(owner, "secure", "excludes reproducible=True: no seed is used", True)

    def _check_integers(self, also: Sequence[str] = (), **least: int) -> None:
        for name, low in least.items():
            self._check_count(name, getattr(self, name), low, also)

    def _check_given(self, given: Any, impute: Any, max_tries: Any) -> None:
        owner = f"{self._owner}.sample"
        is_table = isinstance(given, pd.DataFrame)
        if not is_table and not isinstance(given, (Mapping, type(None))):
            refuse(owner, "given", "must be a mapping or a DataFrame", given)
        if is_table and (not len(given) or given.columns.has_duplicates):
            rule = "needs rows and distinct column names"
            refuse(owner, "given", rule, given.columns.tolist())
        check_option(owner, "impute", impute, [True, False])
        if impute and not is_table:
            refuse(owner, "impute", "needs a DataFrame given", impute)
        check_number(owner, "max_tries", max_tries, low=1, closed="left", integer=True)

    def _n_wanted(self, n_samples: Any, given: Any) -> int:
        if isinstance(given, pd.DataFrame):
            if n_samples is not None and n_samples != len(given):
                rule = f"must be None or {len(given)}, the number of rows given"
                refuse(self._owner, "n_samples", rule, n_samples)
            return len(given)
        if n_samples is None:
            return 1
        self._check_count("n_samples", n_samples)
        return int(n_samples)

    def _stated(self) -> Schema:
        """Return what the schema states; one of constraints alone has no columns."""
        return Schema([]) if self.schema is None else self.schema

    def _open_levels(self) -> list[Hashable]:
        """Return the columns whose levels nobody stated: others occur."""
        stated = {c.name for c in self._stated().columns if c.levels is not None}
        return [
            codec.column.name
            for codec in self._transformer.codecs
            if codec.column.kind == "categorical"
            and not isinstance(codec.dtype, pd.CategoricalDtype)
            and codec.column.name not in stated
        ]

    def _returned(self, frame: Any, rng: np.random.Generator, given: Any) -> Any:
        """Return sampled rows, identifiers included, as the table was that was fitted.

        Whatever made them: a column that is not nullable has no missing value.
        """
        frame = self._with_ids(frame, rng, given)
        complete = [c.name for c in self.schema_.columns if not c.nullable]
        broken = [name for name in complete if frame[name].isna().any()]
        if broken:
            raise SamplingError(
                f"{self._owner}: values are missing in {_listed(broken)}, where the "
                "schema has none. What is given, or a constraint's repair, puts them "
                "there."
            )
        return self._layout.restore(frame)

    def _with_ids(
        self, frame: pd.DataFrame, rng: np.random.Generator, given: Any
    ) -> pd.DataFrame:
        """Return sampled rows with new identifiers, or those of the rows given."""
        for name, dtype in self._layout.ids:
            if isinstance(given, pd.DataFrame) and name in given.columns:
                frame[name] = given[name].astype(dtype)
            else:
                made = identifiers(self.schema_[name], len(frame), dtype, rng)
                frame[name] = made.set_axis(frame.index)
        return frame

    def _check_count(
        self, name: str, value: object, low: int = 1, also: Sequence[str] = ()
    ) -> None:
        check_number(
            self._owner, name, value, low=low, closed="left", integer=True, also=also
        )

    def _nominal(self, frame: pd.DataFrame, layout: TableFormat) -> list[Hashable]:
        """Return the names in `categorical_features`."""
        chosen = self.categorical_features
        about = self._owner, "categorical_features"
        if chosen is None or isinstance(chosen, str):
            check_option(*about, chosen, ["from_dtype", None])
            return []
        names = list(layout.x_names)
        chosen = labels(list(chosen))
        if chosen.dtype == bool:
            if len(chosen) != len(names):
                refuse(*about, f"must have length {len(names)}", chosen.tolist())
            return [name for name, flag in zip(names, chosen, strict=True) if flag]
        by_index = chosen.dtype.kind in "iu" and not layout.is_named
        if by_index and not all(0 <= i < len(names) for i in chosen):
            refuse(*about, f"must lie in [0, {len(names)})", chosen.tolist())
        found = [names[i] for i in chosen] if by_index else chosen.tolist()
        unknown = [name for name in found if name not in names]
        if unknown:
            refuse(*about, "must name columns of X", unknown)
        return found

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _set_feature_names(self, layout: TableFormat) -> None:
        if layout.is_named and all(isinstance(c, str) for c in layout.x_names):
            self.feature_names_in_ = np.array(layout.x_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _codes(self, frame: pd.DataFrame) -> Tensor:
        return torch.from_numpy(self._transformer.encode(frame).astype(np.int64))

    def _joined(self, X: Any, y: Any) -> pd.DataFrame:
        """Return X and y as the fitted joint table, or say what does not fit."""
        frame, layout = as_table(self._owner, X, y)
        if (layout.y_name is None) != (self._layout.y_name is None):
            wanted = "needs y too" if self._layout.y_name is not None else "takes no y"
            raise ValueError(f"{self._owner} was fitted so that score {wanted}.")
        names = list(layout.x_names)
        if layout.is_named and self._layout.is_named:
            unseen = [c for c in layout.x_names if c not in self._layout.x_names]
            absent = [c for c in self._layout.x_names if c not in layout.x_names]
            if unseen or absent:
                raise ValueError(
                    f"{self._owner} was fitted on other columns; unseen: {unseen}, "
                    f"absent: {absent}."
                )
            names = list(self._layout.x_names)
        elif len(layout.x_names) != self.n_features_in_:
            raise ValueError(
                f"X has {len(layout.x_names)} features, but {self._owner} is expecting "
                f"{self.n_features_in_} features as input."
            )
        joined = select_columns(frame, names).set_axis(
            labels(self._layout.x_names), axis=1
        )
        if layout.y_name is not None:
            joined = joined.assign(**{"__y": frame[layout.y_name]})
            joined = joined.rename(columns={"__y": self._layout.y_name})
        # By dtype: what fails to convert a value would name it.
        Schema(c for c in self.schema_.modelled.columns if c.numeric).resolve(joined)
        return joined

    def _report(
        self,
        plan: PrivacyPlan,
        spent: float,
        schema: Schema,
        gradient: PrivateGradient,
        public: pd.DataFrame | None,
        codecs: Sequence[Codec],
    ) -> PrivacyReport:
        clipping = gradient.describe(self.divergence is not None)
        facts = self._public(schema)
        if public is not None:
            rows = f"{len(public)} rows given as public: they trained the model first"
            facts = (*facts, f"{rows}, and bounds and levels that were open are theirs")
        notes = (
            *filter(None, [_lost_columns(schema, codecs)]),
            *cautions(plan, len(schema)),
            *_domain_notes(schema, codecs),
            *_notes(self.reproducible, self.secure, self.max_rows_per_unit),
        )
        return PrivacyReport(plan, spent, clipping, facts, notes)


def _lost_columns(schema: Schema, codecs: Sequence[Codec]) -> str:
    """Say of which columns little or nothing was released, and what to do."""
    empty, rare, undated, unread = [], [], [], []
    for codec in codecs:
        column = schema[codec.column.name]
        found = codec.column
        mostly_missing = codec.unnamed_mass > MOSTLY_MISSING
        nothing = (NO_LEVELS, NO_NUMBERS, (found.other,))
        if column.levels is None and found.levels in nothing:
            empty.append(column.name)
        elif column.kind == "categorical" and column.levels is None and mostly_missing:
            rare.append(column.name)
        elif pd.api.types.is_object_dtype(codec.dtype) and column.temporal:
            undated += [column.name] if mostly_missing else []
        elif codec.unnamed_mass > NEARLY_MISSING:
            unread.append(column.name)
    said = [
        text.format(_listed(names))
        for text, names in zip(LOST, (empty, rare, undated, unread), strict=True)
        if names
    ]
    return " ".join([*said, LOST_ADVICE]) if said else ""


def as_seed(random_state: Any) -> int | None:
    """Return an integer seed of what scikit-learn accepts as `random_state`."""
    if random_state is None:
        return None
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(np.iinfo(np.int32).max))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**31))
    check_number(
        "sampling", "random_state", random_state, low=0, closed="left", integer=True
    )
    return int(random_state)


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(str(name) for name in names)


def _domain_notes(schema: Schema, codecs: Sequence[Codec]) -> Iterator[str]:
    """Yield what the domain that was found leaves out, and how to state it."""
    pairs = [(schema[codec.column.name], codec.column) for codec in codecs]
    others = [a.name for a, b in pairs if a.levels is None and b.other is not None]
    if others:
        yield (
            f"Levels of {_listed(others)} were found privately; all values that are "
            "too rare to be found share one level, `other` of the column. Where the "
            "list of levels is public, state it in a Schema: none is lost then."
        )
    if names := [a.name for a, b in pairs if a.numeric and a.lower is None]:
        yield (
            f"Bounds of {_listed(names)} were found privately, from noisy counts: "
            "values beyond those of schema_ were moved to them. State bounds in a "
            "Schema: no tail is cut then, and nothing is spent on finding them."
        )
    if names := [a.name for a, b in pairs if a.nullable and not b.nullable]:
        yield (
            f"Missing values of {_listed(names)}, if there are any, are too few to be "
            "told from noise: none is sampled. State nullable=True in a Schema to have "
            "them as they were counted, or nullable=False to spend nothing on them."
        )


def _notes(reproducible: bool, secure: bool, rows_per_unit: int) -> tuple[str, ...]:
    unit = (
        "The privacy unit is one row: a person with k rows gets k times epsilon (and "
        "a larger delta). Aggregate to one row per person before fitting, or state "
        "max_rows_per_unit."
    )
    if rows_per_unit > 1:
        unit = (
            f"The privacy unit is a person with at most {rows_per_unit} rows. Nothing "
            "here counts them: whoever prepared the table answers for it."
        )
    notes = [
        unit,
        "Each call of fit on the same rows spends this much again.",
        "Not covered: what a fitted model says of private rows (score_samples, encode "
        "and the like), timing, memory.",
    ]
    if secure:
        notes.append(
            "secure=True: noise and batches came from the operating system's "
            "cryptographic generator, every normal the sum of several."
        )
    if reproducible:
        notes.insert(
            0,
            "reproducible=True: noise and batches follow random_state; whoever knows "
            "the seed can remove the noise and undo the guarantee, and nothing is "
            "promised across two fits with one seed: their noise is the same.",
        )
    return tuple(notes)
