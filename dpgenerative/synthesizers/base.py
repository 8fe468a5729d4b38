"""What all synthesizers share: parameters, one private fit, files, the report."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from dpgenerative._random import NOISES, Streams, as_seed, torch_generator
from dpgenerative._validation import (
    Check,
    check_delta,
    check_instance,
    check_parameters,
    count,
    number,
    option,
    refuse,
    refuse_arguments,
)
from dpgenerative.exceptions import HopelessBudgetWarning
from dpgenerative.fitting.clipping import Sparsified, check_clipping
from dpgenerative.fitting.domain import Domain
from dpgenerative.fitting.fit import Fitted, finite
from dpgenerative.fitting.loop import tensors_of
from dpgenerative.fitting.options import BatchTerm, Optimizer, Options
from dpgenerative.fitting.recipe import ModelRecipe
from dpgenerative.persistence.manifest import write
from dpgenerative.persistence.rebuild import fill
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import row_budget
from dpgenerative.privacy.report import cautions, outlook
from dpgenerative.synthesizers import noisy, session
from dpgenerative.tables.containers import set_feature_names
from dpgenerative.tables.schema import Schema


class Synthesizer(BaseEstimator):
    """Parameters that every synthesizer has, and the steps that it takes.

    Subclasses write out their constructor, with parameters of their own.
    """

    def __init__(
        self,
        *,
        epsilon: float | None,
        delta: float,
        noise_multiplier: float | None,
        max_rows_per_unit: int,
        clipping: str | Sparsified,
        max_grad_norm: float | str,
        n_partitions: int,
        divergence: Any,
        optimizer: str | Optimizer | None,
        n_steps: int | str,
        batch_size: int | str,
        device: str,
        random_state: Any,
        noise: str,
        verbose: int,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.max_rows_per_unit = max_rows_per_unit
        self.clipping = clipping
        self.max_grad_norm = max_grad_norm
        self.n_partitions = n_partitions
        self.divergence = divergence
        self.optimizer = optimizer
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.device = device
        self.random_state = random_state
        self.noise = noise
        self.verbose = verbose

    _domain_class: ClassVar[type[Domain]]
    _groups: ClassVar[dict[str, type[Options]]] = {
        "optimizer": Optimizer,
        "divergence": BatchTerm,
    }
    """Parameters that are groups of parameters."""
    _checks: ClassVar[Mapping[str, Check]] = {
        "epsilon": number(low=0, closed="right", also=[None]),
        "noise_multiplier": number(low=1e-6, closed="left", high=1e6, also=[None]),
        "delta": number(low=0, high=1),
        "max_rows_per_unit": count(),
        "max_grad_norm": number(low=1e-6, also=["auto", "median"]),
        "n_partitions": count(),
        "n_steps": count(also=["auto"]),
        "batch_size": count(also=["auto"]),
        "device": option("auto", "cpu", "cuda"),
        "noise": option(*NOISES),
    }

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def __getstate__(self) -> dict[str, Any]:
        return noisy.state_for_workers(self, super().__getstate__())

    def __sklearn_clone__(self) -> Self:
        return noisy.noted(self, super().__sklearn_clone__())

    def __sklearn_tags__(self) -> Any:
        return noisy.tagged(super().__sklearn_tags__())

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

        If torch's process group is initialized, its processes fit together
        (:doc:`/processes`).

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            The private rows. The privacy unit is one row, or the up to
            `max_rows_per_unit` rows of one person. Tables may be larger than memory: a
            Parquet file, a folder or glob of them, a pyarrow dataset, a polars
            ``LazyFrame`` or a DuckDB relation is read in chunks
            (:ref:`larger-than-memory`); so is a CSV file whose columns the schema
            describes.
        y : Series, one-column DataFrame or ndarray of shape (n_samples,), optional
            One more column, modelled jointly with X.
        public : DataFrame or ndarray, or (X, y), optional
            Rows with the same columns and dtypes that need no protection, such as an
            older release; a pair if y is given. They determine the bounds and levels
            that the schema leaves open, and pretrain the model without noise.
        checkpoint : path-like, optional
            File for this fit alone, written every ten seconds of training. After an
            interruption, the same call resumes from it and spends nothing twice; it is
            deleted at the end. **As private as the rows**: it holds the noise.
        **unsupported
            Raise an error. There is no ``sample_weight``, since a weight would change
            how much one row can move the model.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter is out of its range, the table has no rows or columns, or the
            checkpoint belongs to another fit. No message depends on values, except that
            a checkpoint of other rows is refused.
        TypeError
            If a column has a dtype that is not supported, or that a checkpoint cannot
            hold.
        InfeasibleBudgetError
            If no amount of noise fits the budget.
        BudgetExceededError
            If an open `PrivacyBudget` cannot pay for the fit.
        RuntimeError
            If another process of torch's group, with which this one fits, has ended.
        FileFormatError
            If the checkpoint is damaged, or the file is something else.
        BlockingIOError
            If another process is using the checkpoint.
        LedgerError
            If what was released is not what was planned: a bug in the package.

        Warns
        -----
        HopelessBudgetWarning
            If the released row count and epsilon leave little but noise.
        LostColumnWarning
            If little or nothing of a table's column could be released.
        PrivacyWarning
            If delta, or one row's part of it, is below 1e-15.
        """
        refuse_arguments(f"{self._owner}.fit", unsupported)
        return session.run(self, X, y, public, checkpoint)

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-density of every row; not private if the rows are."""
        raise NotImplementedError

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`; not private if the rows are.

        If levels of text are estimated privately, all others count as `other`: scores
        of fits with different levels cannot be compared.
        """
        return float(np.mean(self.score_samples(X, y)))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to one file, which `dpgenerative.load` reads.

        The file holds what a pickle would, but no code: parameters, schema, released
        marginals, network and privacy report. All of it is covered by the guarantee.
        See :doc:`/persistence`.

        Parameters
        ----------
        path : path-like
            An existing file is replaced.

        Raises
        ------
        NotFittedError
            If called before `fit`.
        TypeError
            If a parameter cannot be stored in a file, such as a function.
        """
        check_is_fitted(self)
        state = noisy.without_seed(self, super().__getstate__())
        names = self.get_params(deep=False)
        apart = {"_sklearn_version", "feature_names_in_", "_model", "_settings", *names}
        parts = {
            "parameters": {name: state[name] for name in names},
            "fitted": {k: v for k, v in state.items() if k not in apart},
            "settings": self._settings,
            "learned": {k: getattr(self._model, k) for k in self._recipe.learned},
            "tensors": tensors_of(self._model),
        }
        write(path, self._owner, parts)

    @classmethod
    def _restored_from(cls, state: Mapping[str, Mapping[str, Any]]) -> Self:
        """Return the estimator that was saved: built anew, and filled."""
        estimator = cls(**state["parameters"])
        for name, value in state["fitted"].items():
            is_other = name in state["parameters"] or hasattr(cls, name)
            if name.startswith("__") or is_other:
                raise ValueError(f"{name} is no fitted attribute")
            setattr(estimator, name, value)
        set_feature_names(estimator, estimator._layout)
        recipe, estimator._settings = estimator._recipe, state["settings"]
        facts = cls._domain_class.facts(estimator._transformer)
        model = recipe.make(facts, torch.Generator(), **state["settings"])
        fill(model, state["tensors"])
        for name, value in state["learned"].items():
            if name not in recipe.learned:
                raise ValueError(f"{name} is no attribute that a fit sets")
            setattr(model, name, value)
        estimator._model = model.requires_grad_(False)
        return estimator

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return parameters by name, those of groups as ``group__name`` if `deep`."""
        params: dict[str, Any] = super().get_params(deep)
        for name in self._groups if deep else ():
            if name in params:  # a subclass need not take every group
                group = self._group(name).get_params()
                params |= {f"{name}__{part}": value for part, value in group.items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters, those of groups as ``group__name``.

        Returns
        -------
        self
        """
        grouped: dict[str, dict[str, Any]] = {}
        own = self.get_params(deep=False)
        for key in list(params):
            group, _, name = key.partition("__")
            if not name or group not in own:
                continue
            options = params.get(group, getattr(self, group, None))
            if group in self._groups or isinstance(options, Options):
                grouped.setdefault(group, {})[name] = params.pop(key)
        super().set_params(**params)
        for group, values in grouped.items():
            short = getattr(self, group)
            options = self._groups.get(group, type(short)).of(short)
            if unknown := sorted(set(values) - set(options.get_params())):
                raise ValueError(
                    f"Invalid parameter {unknown[0]!r} for {type(options).__name__}. "
                    f"Valid parameters are: {sorted(options.get_params())}."
                )
            setattr(self, group, replace(options, **values))
        return self

    def _group(self, name: str) -> Any:
        """Return a group of parameters, that of a short form, or the default."""
        return self._groups[name].of(getattr(self, name))

    # What a subclass states -----------------------------------------------------

    @property
    def _recipe(self) -> ModelRecipe:
        """The model, with the parameters that are its own."""
        raise NotImplementedError

    def _read(self, X: Any, y: Any, public: Any, allow_empty: bool) -> session.Data:
        """Check and read the arguments of a fit."""
        raise NotImplementedError

    def _as_fitted(self, X: Any, y: Any) -> Any:
        """Return rows as the fit read them; raise ValueError if they do not fit."""
        raise NotImplementedError

    def _assumed_domain(self) -> Domain:
        """Return the domain that the parameters state, without rows."""
        raise NotImplementedError

    def _public_facts(self, schema: Schema) -> tuple[str, ...]:
        """Return the public facts, for the report."""
        raise NotImplementedError

    def _notes(self, schema: Schema, fitted: Fitted) -> tuple[str, ...]:
        """Return the report's notes on the released domain and the plan."""
        return cautions(fitted.plan, len(schema), session.has_people(self))

    def _warnings(self, schema: Schema) -> Iterator[UserWarning]:
        """Yield warnings of what could not be learned, which `privacy_` notes too."""
        plan, n_columns = self.privacy_.plan, len(schema.modelled)
        if outlook(plan, n_columns) == "hopeless":
            of_people = session.has_people(self)
            yield HopelessBudgetWarning(cautions(plan, n_columns, of_people)[0])

    # One fit --------------------------------------------------------------------

    def _mechanisms(self, streams: Streams) -> Mechanisms:
        """Return the mechanisms of this fit's releases; tests record them here."""
        return Mechanisms(streams.counts, streams.gradients)

    def _scored(self, X: Any, y: Any, **options: Any) -> np.ndarray:
        """Return what `score_samples` does, by the recipe's `log_density`."""
        check_is_fitted(self)
        rows, transformer = self._as_fitted(X, y), self._transformer
        cells = self._recipe.log_density(self._model, transformer, rows, **options)
        return cells + transformer.log_within(rows)

    # Checks ---------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_parameters(self._owner, self, self._checks)
        if (epsilon := finite(self.epsilon)) is not None:
            k = 1 if session.is_linked(self) else self.max_rows_per_unit
            row = row_budget(epsilon, self.delta, k)
            check_delta(self._owner, row[1], stacklevel=6)
        if self.noise_multiplier is not None:
            k = self.max_rows_per_unit if session.is_linked(self) else 1
            for name, only in {"epsilon": 1.0, "max_rows_per_unit": k}.items():
                if getattr(self, name) != only:
                    rule = f"must be left at {only} where noise_multiplier is stated"
                    refuse(self._owner, name, rule, getattr(self, name))
            if self.n_steps == 0:
                rule = "must not be 0 where noise_multiplier, that of steps, is stated"
                refuse(self._owner, "n_steps", rule, self.n_steps)
        facts = dict(vars(self))
        for name, group in self._groups.items():
            if not group.has_short_form:
                check_instance(self._owner, name, getattr(self, name), group)
            self._group(name).check(self._owner, name)
            facts |= vars(self._group(name))
        shares = {k: v for k, v in facts.items() if k.endswith("_budget")}
        stated = {k: v for k, v in shares.items() if v != "auto"}
        if self.n_steps != 0 and sum(stated.values()) > 1 - 1e-6:
            rule = "and other shares must leave gradients 1e-6 of the budget or more"
            refuse(self._owner, "marginal_budget", rule, stated)
        check_clipping(self._owner, self.clipping, self._group("divergence"))
        if self.device == "cuda" and not torch.cuda.is_available():
            rule = "needs a CUDA device, and none is here"
            refuse(self._owner, "device", rule, "cuda")
        if self.noise == "reproducible" and self.random_state is None:
            refuse(self._owner, "noise", "needs an integer random_state", self.noise)
        self._recipe.check(self._owner)

    def _sampling_streams(
        self, random_state: Any
    ) -> tuple[torch.Generator, np.random.Generator]:
        """Return the generators of a sample's cells, and of positions inside them."""
        if random_state is None and self._sample_seed is not None:
            sequence = np.random.SeedSequence([self._sample_seed, 1 + self._n_sampled])
            self._n_sampled += 1
        else:
            sequence = np.random.SeedSequence(as_seed(random_state))
        cells, places = sequence.spawn(2)
        return torch_generator(cells), np.random.default_rng(places)
