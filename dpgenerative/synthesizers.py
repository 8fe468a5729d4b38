"""Estimators that learn a table under differential privacy and sample new rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import Streams, torch_generator
from dpgenerative._validation import (
    TableFormat,
    as_table,
    check_number,
    check_option,
    refuse,
)
from dpgenerative.models.divergences import DIVERGENCES
from dpgenerative.models.flow import CellFacts, HFlow
from dpgenerative.privacy.clipping import STRATEGIES
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import (
    PrivacyPlan,
    PrivacyReport,
    count_epsilon,
    make_plan,
)
from dpgenerative.privacy.steps import (
    Clipper,
    PrivateGradient,
    estimate_norm,
)
from dpgenerative.schema import Schema
from dpgenerative.training import OPTIMIZERS, TrainingOptions, train
from dpgenerative.transform import TableTransformer, has_open_keys

SAMPLE_CHUNK = 2**16
RAKING_ROWS = 2**15
BOUND_DRAWS = 16


class DPHFlowSynthesizer(BaseEstimator):
    """Differentially private normalizing flow for mixed-type tables (DP-HFlow).

    Learns the joint distribution of a table under (epsilon, delta)-differential privacy
    for adding or removing one row, and samples new tables of the same columns and
    dtypes. All that `fit` leaves behind, and all that is drawn from it, is covered.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, > 0. None (or inf) fits without privacy.
    delta : float, default=1e-5
        Probability in (0, 1) with which the promise may fail: a constant, never 1/n.
    clipping : {"flat", "per-layer", "per-unit", "sparsified"}, default="flat"
        How the gradient of one record is bounded (`privacy.clipping`).
    max_grad_norm : float or "auto", default=1.0
        Clipping norm. "auto" estimates the median norm, paid for by 1 % of the budget.
    sparsity : float in [0, 1), default=0.5
        For ``clipping="sparsified"``: share of a gradient's entries that are thinned.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
    divergence : None, "mmd" or callable, default=None
        Batch-wise term: divergence of a partition's images in the base space from
        N(0, I). A callable takes a tensor (m, d) and returns a scalar.
    clip_batch : float, optional
        Clipping norm of one partition's gradient; None means `max_grad_norm` times
        ``n_partitions / (20 * batch size)``.
    schema : Schema, optional
        Public facts. What it leaves open is found privately, inside the budget.
    categorical_features : "from_dtype" or array-like, default="from_dtype"
        Columns to treat as categorical whatever their dtype: names, indices, or a mask.
    marginal_budget : float in (0, 1) or "auto", default="auto"
        Share of the budget for one-way marginals, in units of squared inverse noise.
    anchored : bool, default=True
        Start at the private marginals. False runs the paper's model.
    n_blocks : int, default=1
        Number of blocks.
    n_bins : int or "auto", default="auto"
        Number of intervals aimed at per numeric column.
    n_basis : int or "auto", default="auto"
        Degrees of freedom of an ordered column.
    hidden_units : int or "auto", default="auto"
        Width of the hidden layer; 0 keeps the linear conditioner alone.
    linear : {"none", "low-rank", "lu"}, default="none"
        Linear flow at the end of every block.
    dequantization : {"uniform", "variational"}, default="uniform"
        How cells become points, where later blocks need points.
    optimizer : {"adam", "adabelief", "sgd"}, default="adam"
    learning_rate : float or "auto", default="auto"
    n_steps : int or "auto", default="auto"
    batch_size : int or "auto", default="auto"
        Expected batch size.
    averaging : float in [0, 1), default=0.995
        Decay of the exponential average of the weights.
    device : {"auto", "cpu", "cuda"}, default="auto"
        "auto" takes CUDA where there is one.
    random_state : int, RandomState instance or None, default=None
        Seeds the initial weights and `sample`. Not the noise: see `reproducible`.
    reproducible : bool, default=False
        Seed noise and batches by `random_state` too. Whoever knows the seed can then
        remove the noise; the report says so.
    verbose : int, default=0
        Show a progress bar.

    Attributes
    ----------
    privacy_ : PrivacyReport
        What was released, with which noise, and what was taken as public.
    epsilon_, delta_ : float
        What the fit cost: an upper bound of epsilon, at this delta.
    noise_multiplier_ : float
        Noise multiplier of a gradient step.
    n_steps_ : int
        Number of gradient steps.
    schema_ : Schema
        The schema completed by released bounds and levels.
    n_features_in_ : int
        Number of columns of X.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Column names of X, where all are strings.

    Notes
    -----
    Every `fit` spends again. `score` and `score_samples` on private rows are not
    covered.

    References
    ----------
    Lee, Kim, Jeong and Ro. Differentially Private Normalizing Flows for Synthetic
    Tabular Data Generation. AAAI 2022.

    Examples
    --------
    >>> import pandas as pd
    >>> from dpgenerative import DPHFlowSynthesizer
    >>> frame = pd.DataFrame({"smokes": pd.Categorical(["yes", "no"] * 50)})
    >>> synthesizer = DPHFlowSynthesizer(epsilon=1.0, random_state=0).fit(frame)
    >>> synthesizer.sample(3).columns.tolist()
    ['smokes']
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        clipping: str = "flat",
        max_grad_norm: float | str = 1.0,
        sparsity: float = 0.5,
        n_partitions: int = 16,
        divergence: str | Callable[[Tensor], Tensor] | None = None,
        clip_batch: float | None = None,
        schema: Schema | None = None,
        categorical_features: Any = "from_dtype",
        marginal_budget: float | str = "auto",
        anchored: bool = True,
        n_blocks: int = 1,
        n_bins: int | str = "auto",
        n_basis: int | str = "auto",
        hidden_units: int | str = "auto",
        linear: str = "none",
        dequantization: str = "uniform",
        optimizer: str = "adam",
        learning_rate: float | str = "auto",
        n_steps: int | str = "auto",
        batch_size: int | str = "auto",
        averaging: float = 0.995,
        device: str = "auto",
        random_state: Any = None,
        reproducible: bool = False,
        verbose: int = 0,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.clipping = clipping
        self.max_grad_norm = max_grad_norm
        self.sparsity = sparsity
        self.n_partitions = n_partitions
        self.divergence = divergence
        self.clip_batch = clip_batch
        self.schema = schema
        self.categorical_features = categorical_features
        self.marginal_budget = marginal_budget
        self.anchored = anchored
        self.n_blocks = n_blocks
        self.n_bins = n_bins
        self.n_basis = n_basis
        self.hidden_units = hidden_units
        self.linear = linear
        self.dequantization = dequantization
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.n_steps = n_steps
        self.batch_size = batch_size
        self.averaging = averaging
        self.device = device
        self.random_state = random_state
        self.reproducible = reproducible
        self.verbose = verbose

    # Public methods -------------------------------------------------------------

    def fit(
        self, X: Any, y: Any = None, sample_weight: None = None
    ) -> DPHFlowSynthesizer:
        """Learn a table under differential privacy; every call spends the budget again.

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
            The private rows. One row is the privacy unit.
        y : Series, one-column DataFrame or array-like of shape (n_samples,), optional
            One more column, modelled together with X.
        sample_weight : None
            Not supported: a weight would change how much one row can move the model.

        Returns
        -------
        DPHFlowSynthesizer

        Raises
        ------
        ValueError
            For a parameter out of its range, or a table of no rows or columns. No
            message depends on values.
        TypeError
            For a column dtype that no release covers.
        InfeasibleBudgetError
            When no noise fits the budget.
        """
        if sample_weight is not None:
            raise ValueError(
                f"{self._owner}.fit does not support sample_weight: a weight changes "
                "how far one row can move the model, which the noise would have to "
                "cover. Resample or drop rows before the fit instead."
            )
        self._check_parameters()
        frame, layout = as_table(self._owner, X, y)
        schema = (self.schema or Schema([])).resolve(
            frame, self._nominal(frame, layout)
        )
        seed = self._seed()
        device = self._device()
        streams = Streams.create(seed, self.reproducible, device)
        mechanisms = self._mechanisms(streams)
        fitted = self._fit(frame, schema, streams, mechanisms, device)
        for name, value in fitted.items():
            setattr(self, name, value)
        self._layout = layout
        self._sample_seed = seed
        self._n_sampled = 0
        self.n_features_in_ = len(layout.x_names)
        if layout.x_kind == "frame" and all(isinstance(c, str) for c in layout.x_names):
            self.feature_names_in_ = np.array(layout.x_names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        return self

    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Draw new rows.

        Every row follows the model. The rows of one call fill its space more evenly
        than independent ones (a scrambled Sobol sequence), so that their marginals lie
        closer to the model's.

        Parameters
        ----------
        n_samples : int, default=1
            Number of rows, at least 1.
        random_state : int, RandomState instance or None, default=None
            None gives fresh rows at every call; an int the same rows.

        Returns
        -------
        X : DataFrame or ndarray of shape (n_samples, n_features)
            In the container, columns and dtypes that were fitted; ``(X, y)`` where y
            was fitted too.
        """
        check_is_fitted(self)
        check_number(
            self._owner,
            "n_samples",
            n_samples,
            low=1,
            high=math.inf,
            closed="left",
            integer=True,
        )
        if random_state is None and self._sample_seed is not None:
            sequence = np.random.SeedSequence([self._sample_seed, 1 + self._n_sampled])
            self._n_sampled += 1
        else:
            sequence = np.random.SeedSequence(_as_seed(random_state))
        rows, places = sequence.spawn(2)
        generator = torch_generator(rows)
        rng = np.random.default_rng(places)
        parts = []
        for start in range(0, n_samples, SAMPLE_CHUNK):
            size = min(SAMPLE_CHUNK, n_samples - start)
            codes, positions = self._model.sample(size, generator)
            inside = (
                positions.double().numpy()
                if self._positioned
                else rng.random(codes.shape)
            )
            parts.append(self._transformer.decode(codes.numpy(), inside))
        frame = parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)
        return self._layout.restore(frame)

    def score_samples(self, X: Any, y: Any = None) -> np.ndarray:
        """Return the log-density of every row; not private if the rows are.

        Densities are in data units for numbers without a resolution, probabilities for
        integers, levels and missing values. With more than the first block this is an
        importance-sampled lower bound (16 draws).

        Parameters
        ----------
        X : DataFrame or array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), optional
            Needed where y was fitted.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        frame = self._joined(X, y)
        codes = torch.from_numpy(self._transformer.encode(frame).astype(np.int64))
        rng = np.random.default_rng(0)
        positions = None
        if self._positioned:
            positions = torch.from_numpy(self._transformer.positions(frame, rng))
        parts = []
        with torch.no_grad():
            for start in range(0, len(codes), SAMPLE_CHUNK // 8):
                rows = slice(start, start + SAMPLE_CHUNK // 8)
                inside = None if positions is None else positions[rows]
                parts.append(_log_likelihood(self._model, codes[rows], inside, rng))
        return torch.cat(parts).double().numpy() + self._transformer.log_within(frame)

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean of `score_samples`; not private if the rows are."""
        return float(np.mean(self.score_samples(X, y)))

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if self.reproducible and "_model" in state:
            # The seed of the noise stays with whoever fitted.
            state["random_state"] = state["_sample_seed"] = None
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.non_deterministic = True
        tags.target_tags.required = False
        return tags

    # Steps of a fit -------------------------------------------------------------

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _mechanisms(self, streams: Streams) -> Mechanisms:
        """Return the door of this fit's releases; tests put a recorder here."""
        return Mechanisms(streams.counts, streams.gradients)

    def _fit(
        self,
        frame: pd.DataFrame,
        schema: Schema,
        streams: Streams,
        mechanisms: Mechanisms,
        device: str,
    ) -> dict[str, Any]:
        """Return every attribute that a fit leaves behind."""
        n_rows = mechanisms.count(len(frame), count_epsilon(self._epsilon))
        plan = self._plan(n_rows, schema)
        transformer = TableTransformer.fit(
            frame, schema, mechanisms, n_rows=n_rows,
            multiplier=plan.marginal_multiplier, delta=plan.threshold_delta,
            n_bins=self._resolved("n_bins", n_rows, schema), informed=self.anchored,
        )  # fmt: skip
        model = self._build(transformer, n_rows, schema, streams.weights).to(device)
        objective = self._objective(model, transformer, frame, streams, device)
        gradient = self._gradient(
            model, objective, plan, len(frame), mechanisms, device
        )
        train(
            model, objective, len(frame), plan, gradient,
            self._options(n_rows, schema), mechanisms, streams, device,
            divergence=self._divergence(),
        )  # fmt: skip
        if self.anchored:
            model.rake(RAKING_ROWS, streams.rows)
        spent = plan.spent()
        return {
            "_transformer": transformer,
            "_model": model.cpu().requires_grad_(False),
            "_positioned": not model.exact,
            "schema_": transformer.schema,
            "epsilon_": spent,
            "delta_": self.delta,
            "noise_multiplier_": plan.noise_multiplier,
            "n_steps_": plan.n_steps,
            "privacy_": self._report(plan, spent, schema, gradient),
        }

    def _plan(self, n_rows: int, schema: Schema) -> PrivacyPlan:
        is_open = any(has_open_keys(c, self.anchored) for c in schema.columns)
        unbounded = any(c.lower is None for c in schema.columns if c.numeric)
        batch = self._resolved("batch_size", n_rows, schema)
        needs = self.anchored or is_open or unbounded
        return make_plan(
            epsilon=self._epsilon,
            delta=self.delta,
            n_rows=n_rows,
            sampling_rate=min(1.0, batch / n_rows),
            n_steps=self._resolved("n_steps", n_rows, schema),
            marginal_budget=self._resolved("marginal_budget", n_rows, schema) * needs,
            has_open_keys=is_open,
            estimates_norm=self.max_grad_norm == "auto",
        )

    def _build(
        self,
        transformer: TableTransformer,
        n_rows: int,
        schema: Schema,
        generator: torch.Generator,
    ) -> HFlow:
        facts = [
            CellFacts(
                torch.from_numpy(codec.masses),
                codec.ordered,
                bool(codec.column.nullable),
                torch.from_numpy(codec.atoms),
            )
            for codec in transformer.codecs
        ]
        return HFlow(
            facts,
            n_basis=self._resolved("n_basis", n_rows, schema),
            hidden_units=self._resolved("hidden_units", n_rows, schema),
            n_blocks=self.n_blocks,
            linear=self.linear,
            dequantization=self.dequantization,
            anchored=self.anchored,
            generator=generator,
        )

    def _objective(
        self,
        model: HFlow,
        transformer: TableTransformer,
        frame: pd.DataFrame,
        streams: Streams,
        device: str,
    ) -> Callable[[Tensor], tuple[Tensor, Tensor | None]]:
        """Return the loss of given rows, over codes that live on the device."""
        codes = torch.from_numpy(transformer.encode(frame)).to(device)
        if model.exact and self.divergence is None:
            return lambda rows: (-model(codes[rows].long())[0], None)
        inside = torch.from_numpy(transformer.positions(frame, streams.batches)).to(
            device
        )

        def objective(rows: Tensor) -> tuple[Tensor, Tensor | None]:
            shape = (len(rows), codes.shape[1])
            draws = torch.rand(shape, generator=streams.draws, device=device)
            log_likelihood, image = model(codes[rows].long(), inside[rows], draws)
            return -log_likelihood, image

        return objective

    def _gradient(
        self,
        model: HFlow,
        objective: Callable[[Tensor], tuple[Tensor, Tensor | None]],
        plan: PrivacyPlan,
        n: int,
        mechanisms: Mechanisms,
        device: str,
    ) -> PrivateGradient:
        if isinstance(self.max_grad_norm, str):
            rows = torch.arange(n, device=device).split(4096)
            chunks = ((part, torch.ones_like(part, dtype=torch.bool)) for part in rows)
            bound = estimate_norm(
                model, objective, chunks, mechanisms, plan.norm_multiplier
            )
        else:
            bound = float(self.max_grad_norm)
        default = bound * self.n_partitions / (20 * plan.batch_size)
        group = default if self.clip_batch is None else float(self.clip_batch)
        clipper = Clipper(self.clipping, bound, self.sparsity, group)
        return PrivateGradient(
            clipper, plan.noise_multiplier, plan.batch_size, self.n_partitions
        )

    def _divergence(self) -> Callable[[Tensor], Tensor] | None:
        if isinstance(self.divergence, str):
            return DIVERGENCES[self.divergence]
        return self.divergence

    def _options(self, n_rows: int, schema: Schema) -> TrainingOptions:
        rate = self._resolved("learning_rate", n_rows, schema)
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
        return _RULES[name](n_rows, schema, self._epsilon) if value == "auto" else value

    def _check_parameters(self) -> None:
        owner = self._owner
        if self.epsilon is not None:
            check_number(
                owner, "epsilon", self.epsilon, low=0, closed="right", also=[None]
            )
        check_number(owner, "delta", self.delta, low=0, high=1)
        check_option(owner, "clipping", self.clipping, STRATEGIES)
        check_number(
            owner, "max_grad_norm", self.max_grad_norm, low=1e-6, also=["auto"]
        )
        check_number(owner, "sparsity", self.sparsity, low=0, high=1, closed="left")
        for name, least in [("n_partitions", 1), ("n_blocks", 1)]:
            check_number(
                owner, name, getattr(self, name), low=least, closed="left", integer=True
            )
        if not callable(self.divergence):
            check_option(owner, "divergence", self.divergence, [None, *DIVERGENCES])
        check_number(owner, "clip_batch", self.clip_batch, low=0, also=[None])
        if self.schema is not None and not isinstance(self.schema, Schema):
            refuse(owner, "schema", "must be a Schema or None", self.schema)
        check_number(
            owner, "marginal_budget", self.marginal_budget, low=0, high=1, also=["auto"]
        )
        for name, least in [
            ("n_bins", 2),
            ("n_basis", 1),
            ("hidden_units", 0),
            ("n_steps", 1),
            ("batch_size", 1),
        ]:
            check_number(
                owner,
                name,
                getattr(self, name),
                low=least,
                closed="left",
                integer=True,
                also=["auto"],
            )
        check_option(owner, "linear", self.linear, ["none", "low-rank", "lu"])
        check_option(
            owner, "dequantization", self.dequantization, ["uniform", "variational"]
        )
        check_option(owner, "optimizer", self.optimizer, OPTIMIZERS)
        check_number(owner, "learning_rate", self.learning_rate, low=0, also=["auto"])
        check_number(owner, "averaging", self.averaging, low=0, high=1, closed="left")
        check_option(owner, "device", self.device, ["auto", "cpu", "cuda"])
        if self.device == "cuda" and not torch.cuda.is_available():
            refuse(owner, "device", "needs a CUDA device, and none is here", "cuda")
        for name in ("anchored", "reproducible"):
            check_option(owner, name, getattr(self, name), [True, False])
        if self.reproducible and self.random_state is None:
            refuse(owner, "reproducible", "needs an integer random_state", True)

    def _nominal(self, frame: pd.DataFrame, layout: TableFormat) -> list[Hashable]:
        """Return the names in `categorical_features`."""
        chosen = self.categorical_features
        if chosen is None or isinstance(chosen, str):
            check_option(
                self._owner, "categorical_features", chosen, ["from_dtype", None]
            )
            return []
        names = list(layout.x_names)
        chosen = np.asarray(chosen)
        if chosen.dtype == bool:
            if chosen.shape != (len(names),):
                refuse(
                    self._owner,
                    "categorical_features",
                    f"must have length {len(names)}",
                    chosen,
                )
            return [name for name, flag in zip(names, chosen, strict=True) if flag]
        by_index = chosen.dtype.kind in "iu" and layout.x_kind == "array"
        if (
            by_index
            and len(chosen)
            and (chosen.max() >= len(names) or chosen.min() < 0)
        ):
            refuse(
                self._owner,
                "categorical_features",
                f"must lie in [0, {len(names)})",
                chosen,
            )
        found = [names[i] for i in chosen] if by_index else list(chosen)
        unknown = [name for name in found if name not in names]
        if unknown:
            refuse(
                self._owner, "categorical_features", "must name columns of X", unknown
            )
        return found

    def _seed(self) -> int | None:
        return _as_seed(self.random_state)

    def _device(self) -> str:
        if self.device != "auto":
            return self.device
        return "cuda" if torch.cuda.is_available() else "cpu"

    def _joined(self, X: Any, y: Any) -> pd.DataFrame:
        """Return X and y as the fitted joint table, or say what does not fit."""
        frame, layout = as_table(self._owner, X, y)
        if (layout.y_name is None) != (self._layout.y_name is None):
            wanted = "needs y too" if self._layout.y_name is not None else "takes no y"
            raise ValueError(f"{self._owner} was fitted so that score {wanted}.")
        if layout.x_kind == "frame" and self._layout.x_kind == "frame":
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
        else:
            names = list(layout.x_names)
        joined = frame[names].set_axis(list(self._layout.x_names), axis=1)
        if layout.y_name is not None:
            joined = joined.assign(**{"__y": frame[layout.y_name]})
            joined = joined.rename(columns={"__y": self._layout.y_name})
        return joined

    def _report(
        self, plan: PrivacyPlan, spent: float, schema: Schema, gradient: PrivateGradient
    ) -> PrivacyReport:
        bound = gradient.clipper.bound
        clipping = f"{self.clipping} clipping to norm {bound:g}"
        if self.divergence is not None:
            clipping += (
                f", batch-wise term of {self.n_partitions} partitions clipped to "
                f"{gradient.clipper.group_bound:.3g} (sensitivity twice that)"
            )
        return PrivacyReport(
            plan, spent, clipping, _public_facts(schema), _notes(self.reproducible)
        )


def _as_seed(random_state: Any) -> int | None:
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


def _log_likelihood(
    model: HFlow, codes: Tensor, positions: Tensor | None, rng: np.random.Generator
) -> Tensor:
    if positions is None:
        result: Tensor = model(codes)[0]
        return result
    bounds = []
    for _ in range(BOUND_DRAWS):
        draws = torch.from_numpy(rng.random(codes.shape, dtype=np.float32))
        bounds.append(model(codes, positions, draws)[0])
    return torch.logsumexp(torch.stack(bounds), 0) - math.log(BOUND_DRAWS)


def _public_facts(schema: Schema) -> tuple[str, ...]:
    """Return what the schema and dtypes gave away for free."""
    facts = ["column names, order, dtypes and kinds; constructor parameters"]
    bounded = [c.name for c in schema.columns if c.numeric and c.lower is not None]
    levelled = [
        c.name for c in schema.columns if not c.numeric and c.levels is not None
    ]
    if bounded:
        facts.append(f"bounds of {_listed(bounded)}")
    stepped = [c.name for c in schema.columns if c.resolution is not None]
    complete = [c.name for c in schema.columns if not c.nullable]
    if stepped:
        facts.append(f"resolution of {_listed(stepped)}")
    if complete:
        facts.append(f"no missing values in {_listed(complete)}")
    if levelled:
        facts.append(f"levels of {_listed(levelled)}")
    return tuple(facts)


def _listed(names: list[Hashable]) -> str:
    return ", ".join(str(name) for name in names)


def _notes(reproducible: bool) -> tuple[str, ...]:
    notes = [
        "The privacy unit is one row: a person with k rows gets k times epsilon (and "
        "a larger delta). Aggregate to one row per person before fitting.",
        "Each call of fit on the same rows spends this much again.",
        "Not covered: score and score_samples on private rows, timing, memory.",
    ]
    if reproducible:
        notes.insert(
            0,
            "reproducible=True: noise and batches follow random_state; whoever knows "
            "the seed can remove the noise and undo the guarantee, and nothing is "
            "promised across two fits with one seed: their noise is the same.",
        )
    return tuple(notes)


def _auto_steps(n: int, schema: Schema, epsilon: float | None) -> int:
    most = 2000 if epsilon is None else 800
    return max(50, min(most, n // 10))


def _rows_per_column(n: int, schema: Schema, epsilon: float | None) -> float:
    """Return how much the data can say: rows times epsilon, per column."""
    return math.inf if epsilon is None else n * epsilon / len(schema)


def _auto_basis(n: int, schema: Schema, epsilon: float | None) -> int:
    if epsilon is None:
        return 64
    rows = _rows_per_column(n, schema, epsilon)
    return 16 if rows > 25_000 else 8 if rows > 1000 else 5


def _auto_hidden(n: int, schema: Schema, epsilon: float | None) -> int:
    return 64 if _rows_per_column(n, schema, epsilon) > 2400 else 0


_RULES: dict[str, Callable[[int, Schema, float | None], Any]] = {
    "marginal_budget": lambda n, schema, epsilon: 0.3,
    "n_bins": lambda n, schema, epsilon: 100 if epsilon is None else 64,
    "n_basis": _auto_basis,
    "hidden_units": _auto_hidden,
    "n_steps": _auto_steps,
    "batch_size": lambda n, schema, epsilon: min(2048, max(32, n)),
    "learning_rate": lambda n, schema, epsilon: 0.01 if epsilon is None else 0.03,
}
