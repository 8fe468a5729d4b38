"""PriVAE of arrays of one shape, such as images, as an estimator."""

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from dpgenerative._random import as_seed, torch_generator
from dpgenerative._validation import count, refuse
from dpgenerative.encoding import classes as labelled
from dpgenerative.encoding.pixels import Images, Pixels, check_range, full_shape
from dpgenerative.encoding.series import Series, is_series
from dpgenerative.fitting.clipping import Sparsified
from dpgenerative.fitting.domain import ArrayDomain, Domain, LabelledDomain
from dpgenerative.fitting.options import BatchTerm, Optimizer
from dpgenerative.models.priors import Prior
from dpgenerative.persistence.registry import register
from dpgenerative.synthesizers.array_recipes import (
    ArrayArchitecture,
    ArrayVAERecipe,
    ClassVAERecipe,
)
from dpgenerative.synthesizers.base import Synthesizer
from dpgenerative.synthesizers.latents import bounds, encoded, points, posterior
from dpgenerative.synthesizers.session import Data
from dpgenerative.tables.private import Private
from dpgenerative.tables.schema import Schema


@register()
class DPArrayVAESynthesizer(Synthesizer):
    """Differentially private variational autoencoder for images and series (PriVAE).

    Learns arrays of one shape under (epsilon, delta)-differential privacy for adding or
    removing one array, and samples new ones of the same shape and dtype. Nothing is
    spent on marginals: the range of the entries is public.

    Parameters
    ----------
    epsilon : float or None, default=1.0
        Total privacy budget, > 0. None (or inf) fits without privacy.
    delta : float, default=1e-5
        Probability in (0, 1) with which the guarantee may fail: a constant, since 1/n
        would reveal the number of rows.
    noise_multiplier : float, optional
        Ratio of the noise of a gradient step to its sensitivity, in place of `epsilon`,
        which keeps its default; the epsilon that results is `epsilon_`
        (:ref:`noise-multiplier`).
    max_rows_per_unit : int, default=1
        Maximum number of arrays of one person; (epsilon, delta) then holds for adding
        or removing all of them. This is not checked: prepare the arrays accordingly.
    clipping : {"flat", "per-layer", "per-unit", "sparsified"} or Sparsified, \
            default="flat"
        How per-example gradients are clipped (`privacy.clipping`).
    max_grad_norm : float, "auto" or "median", default="auto"
        Clipping norm. "auto" is 1; "median" estimates the median norm of per-example
        gradients privately, for 1 % of the budget.
    n_partitions : int, default=16
        Number of partitions of the batch-wise term; no effect without `divergence`.
        Fewer partitions are larger and estimate the divergence better; with more, less
        noise hides one row.
    divergence : None, "mmd", "kl", callable or BatchTerm, default=None
        Batch-wise term D (`models.divergences`): squared maximum mean discrepancy, or
        KL(p || q). A callable takes the `Latents` of one partition, the prior and a
        torch generator, and returns a scalar; it must not raise for any values. A
        `BatchTerm` sets its weight alpha, clipping norm and aggregation, too.
    prior : {"normal", "mixture", "sparse"} or Prior, default="normal"
        Distribution of the latents (`models.priors`): N(0, I), Gaussians around points
        of the first four axes (`MixturePrior.on_axes`), spike and slab, or any object
        with `log_prob` and `sample`.
    image_shape : tuple of int, optional
        (height, width) or (channels, height, width) of X of shape (n, c h w), (n, h, w)
        or (n, c, h, w); None reads it from an X that is not flat. For a list of series,
        arrays of shape (length, channels), it is (maximum length, channels) and
        required, since lengths are private.
    value_range : tuple of float or "auto", default="auto"
        Public minimum and maximum of an entry. "auto" is (0, 255) for uint8 and (0, 1)
        for floats and booleans; other integers have none. Values outside are clipped,
        and missing ones become the minimum.
    classes : sequence of str, int, bool or float, optional
        Public list of the labels in y, of one type; an array with another label is
        learned as belonging to no class. `fit` then takes y and starts from released
        moments of every class (see Notes), and `sample` returns labels, too.
    architecture : ArrayArchitecture, optional
        Networks, likelihood, latents and their loss.
    optimizer : {"adam", "adabelief", "sgd"} or Optimizer, optional
        Optimizer that is given the noisy gradients; an `Optimizer` sets its learning
        rate and averaging, too. None is ``Optimizer("adam")``.
    n_steps : int or "auto", default="auto"
        Number of gradient steps.
    batch_size : int or "auto", default="auto"
        Expected batch size.
    device : {"auto", "cpu", "cuda"}, default="auto"
        "auto" uses CUDA if it is available.
    random_state : int, RandomState or Generator instance or None, default=None
        Seeds the initial weights and `sample`, but not the noise unless `noise` is
        "reproducible".
    noise : {"fresh", "reproducible", "secure"}, default="fresh"
        Source of noise and batches: generators seeded by the operating system ("fresh")
        or by `random_state` ("reproducible": anyone who knows the seed can then remove
        the noise, and the report says so); "secure" draws all of them, not only the
        noise of counts, from the operating system's cryptographic generator
        (:ref:`secure`).
    verbose : int, default=0
        Show a progress bar.

    Attributes
    ----------
    privacy_ : PrivacyReport
        What was released, with which noise, and which facts are assumed public.
    epsilon_, delta_ : float
        Privacy cost of the fit: an upper bound on epsilon, at this delta.
    noise_multiplier_ : float
        Noise multiplier of a gradient step; inf without any.
    n_steps_ : int
        Number of gradient steps.
    n_features_in_ : int
        Number of entries of one array.

    Notes
    -----
    Every call of `fit` spends the budget again. `score`, `score_samples`, `encode` and
    `reconstruct` on private rows are not covered by the guarantee.

    Series are truncated at the maximum length that `image_shape` states; the decoder
    learns the probability of a further step, and lengths are sampled.

    A sampled array consists of the means of its entries, without noise of their own,
    except that binary entries (bools, or integers of a range of width 1) are sampled.

    With `classes`, a fit first releases the number, the mean and the second moments of
    the arrays of every class. Their principal components, as far as they stand out
    from the noise, are the latents, of which every class has its own Gaussian; what
    they leave is texture (:doc:`/images`). By default that is all (``n_steps="auto"``
    takes no gradients); with `n_steps` it is half of the budget, and gradients train
    the decoder's hidden layer from there. The likelihood is Gaussian.

    References
    ----------
    Takahashi, Takagi, Ono and Komatsu. Differentially Private Variational Autoencoders
    with Term-wise Gradient Aggregation. arXiv:2006.11204, 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import DPArrayVAESynthesizer
    >>> squares = np.zeros((60, 4, 4), dtype=np.uint8)
    >>> squares[:, 1:3, 1:3] = 255
    >>> synthesizer = DPArrayVAESynthesizer(n_steps=5, random_state=0).fit(squares)
    >>> synthesizer.sample(2).shape
    (2, 4, 4)
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        noise_multiplier: float | None = None,
        max_rows_per_unit: int = 1,
        clipping: str | Sparsified = "flat",
        max_grad_norm: float | str = "auto",
        n_partitions: int = 16,
        divergence: str | Callable[..., Tensor] | BatchTerm | None = None,
        prior: str | Prior = "normal",
        image_shape: Sequence[int] | None = None,
        value_range: Sequence[float] | str = "auto",
        classes: Sequence[Any] | None = None,
        architecture: ArrayArchitecture | None = None,
        optimizer: str | Optimizer | None = None,
        n_steps: int | str = "auto",
        batch_size: int | str = "auto",
        device: str = "auto",
        random_state: Any = None,
        noise: str = "fresh",
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon, delta=delta, noise_multiplier=noise_multiplier,
            max_rows_per_unit=max_rows_per_unit, clipping=clipping,
            max_grad_norm=max_grad_norm, n_partitions=n_partitions,
            divergence=divergence, optimizer=optimizer, n_steps=n_steps,
            batch_size=batch_size, device=device, random_state=random_state,
            noise=noise, verbose=verbose,
        )  # fmt: skip
        self.prior = prior
        self.image_shape = image_shape
        self.value_range = value_range
        self.classes = classes
        self.architecture = architecture

    _domain_class: ClassVar[type[Domain]] = ArrayDomain
    _groups = Synthesizer._groups | {"architecture": ArrayArchitecture}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = True
        tags.target_tags.required = self.classes is not None
        return tags

    # Public methods -------------------------------------------------------------

    def sample(
        self, n_samples: int = 1, random_state: Any = None, *, y: Any = None
    ) -> Any:
        """Draw new arrays, each of which follows the model.

        Parameters
        ----------
        n_samples : int, default=1
            Number of arrays; the number of labels if `y` is given.
        random_state : int, RandomState or Generator instance or None, default=None
            None gives new arrays at every call; an int gives the same arrays.
        y : array-like of shape (n_samples,), optional
            Labels, one or more, if `classes` were fitted: one array is drawn for each.

        Returns
        -------
        X : ndarray of shape (n_samples, ...)
            In the shape and dtype of the fitted arrays; a list if a list was fitted.
        y : ndarray of shape (n_samples,)
            Labels, drawn with the released class frequencies. Only if `classes` were
            fitted and `y` is not given.
        """
        check_is_fitted(self)
        count()(self._owner, "n_samples", n_samples)
        generator, _ = self._sampling_streams(random_state)
        n = int(n_samples)
        if self.classes is None:
            self._refuse_target(y)
            return self._layout.restore(self._model.sample(n, generator).numpy())
        labels = self._model.draw_labels(n, generator) if y is None else self._code(y)
        if n not in (1, len(labels)):
            raise ValueError(
                f"{self._owner}: n_samples={n}, but y has {len(labels)} labels; leave "
                "n_samples out where y is given."
            )
        X = self._layout.restore(self._model.sample_of(labels, generator).numpy())
        return X if y is not None else (X, np.array(self._labels)[labels.numpy()])

    def decode(self, Z: Any, random_state: Any = None, *, y: Any = None) -> np.ndarray:
        """Draw one array for every point of the latent space.

        Parameters
        ----------
        Z : array-like of shape (n_samples, latent_dim)
        random_state : int, RandomState or Generator instance or None, default=None
        y : array-like of shape (n_samples,), optional
            Labels, required if `classes` were fitted.

        Returns
        -------
        ndarray of shape (n_samples, ...)
            As `sample` returns it.
        """
        z = points(self, Z)
        cells, _ = np.random.SeedSequence(as_seed(random_state)).spawn(2)
        if self.classes is None:
            self._refuse_target(y)
            drawn = self._model.decode(z, torch_generator(cells))
        else:
            drawn = self._model.decode(z, torch_generator(cells), self._code(y, len(z)))
        return self._layout.restore(drawn.numpy())

    def score_samples(self, X: Any, y: Any = None, n_draws: int = 64) -> np.ndarray:
        """Return lower bounds of log-densities; not private if the arrays are.

        Densities are in units of the entries, probabilities where an entry has two
        values. The bound is importance-weighted (Burda et
        al. 2016): it rises with the number of draws towards the log-density.

        Parameters
        ----------
        X : ndarray of shape (n_samples, ...)
        y : array-like of shape (n_samples,), optional
            Labels, required if `classes` were fitted.
        n_draws : int, default=64
            Draws from every array's posterior.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return bounds(self, X, y, n_draws)

    def encode(self, X: Any, y: Any = None) -> np.ndarray:
        """Return every array's posterior mean; not private if the arrays are.

        Parameters
        ----------
        X : ndarray of shape (n_samples, ...)
        y : array-like of shape (n_samples,), optional
            Labels, required if `classes` were fitted.

        Returns
        -------
        ndarray of shape (n_samples, latent_dim)
        """
        return posterior(self, X, y)[0]

    def reconstruct(
        self, X: Any, y: Any = None, random_state: Any = None, *, sampled: bool = False
    ) -> Any:
        """Draw an array from the decoder at every array's posterior mean; not private.

        Parameters
        ----------
        X : ndarray of shape (n_samples, ...)
        y : array-like of shape (n_samples,), optional
            Labels, required if `classes` were fitted.
        random_state : int, RandomState or Generator instance or None, default=None
        sampled : bool, default=False
            Decode a draw from every array's posterior instead of its mean.

        Returns
        -------
        ndarray of shape (n_samples, ...)
        """
        latents = encoded(self, X, y, random_state, sampled)
        return self.decode(latents, random_state, y=y)

    # What is read ---------------------------------------------------------------

    @property
    def _recipe(self) -> ArrayVAERecipe:
        kind = ArrayVAERecipe if self.classes is None else ClassVAERecipe
        architecture, term = self._group("architecture"), self._group("divergence")
        return kind(architecture, term, self.prior, self._owner)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_range(self._owner, self.value_range)
        if self.image_shape is not None:
            full_shape(self._owner, self.image_shape)
        if self.classes is not None:
            self._check_classes()

    def _check_classes(self) -> None:
        classes: Any = self.classes
        is_list = isinstance(classes, (list, tuple, range, np.ndarray))
        labels = self._labels if is_list else []
        of_one = {type(c) for c in labels} in ({str}, {bool}, {int}, {float})
        if not of_one or labels != list(classes) or len({*labels}) < len(labels):
            rule = "must be a list of different strings, whole numbers, bools or floats"
            refuse(self._owner, "classes", rule, classes)
        networks = self._group("architecture").networks
        if networks != "mlp":
            rule = "must be 'mlp' where classes are stated"
            refuse(self._owner, "architecture__networks", rule, networks)
        if self.noise_multiplier is not None and self.n_steps == "auto":
            rule = "must be stated where classes and noise_multiplier are"
            refuse(self._owner, "n_steps", rule, self.n_steps)

    def _read(self, X: Any, y: Any, public: Any, allow_empty: bool) -> Data:
        has_classes = self.classes is not None
        if has_classes and (public is not None or is_series(X)):
            raise ValueError(
                f"{self._owner} takes neither public rows nor series of different "
                "length where classes are stated."
            )
        pixels = self._pixels(X)
        images = self._images(pixels, X, y)
        if public is not None:
            public = pixels.read(self._owner, public)
        domain = self._labelled(pixels) if has_classes else ArrayDomain(pixels)
        return Data(Private(images), pixels, Schema([]), domain, public)

    def _labelled(self, pixels: Pixels) -> LabelledDomain:
        """Return the domain of arrays and their classes, if it can have the latents."""
        latent_dim = self._recipe.latent_dim
        most = min(math.prod(pixels.shape), labelled.FREQUENCIES)
        if latent_dim and latent_dim > most:
            rule = f"must be at most {most} for these arrays and classes"
            refuse(self._owner, "architecture__latent_dim", rule, latent_dim)
        return LabelledDomain(pixels, len(self._labels), latent_dim)

    @property
    def _labels(self) -> list[Any]:
        """The classes as plain values."""
        return np.array(self.classes).tolist()

    def _images(self, pixels: Pixels, X: Any, y: Any) -> Images:
        """Return arrays that were read, with their labels where classes are stated."""
        images = pixels.read(self._owner, X)
        if self.classes is None:
            self._refuse_target(y)
            return images
        labels = labelled.codes(self._owner, y, self._labels, len(images))
        return labelled.LabelledImages(images.values, labels)

    def _code(self, y: Any, n: int | None = None) -> Tensor:
        """Return the class codes of labels; raise ValueError for other labels."""
        places = labelled.codes(self._owner, y, self._labels, n)
        if (places < 0).any():
            raise ValueError(f"{self._owner} knows the classes {self._labels}.")
        return torch.from_numpy(places)

    def _pixels(self, X: Any) -> Pixels:
        """Return the public facts of arrays, or of a list of series."""
        has_density = self._group("architecture").likelihood == "gaussian"
        read = Series.stated if is_series(X) else Pixels.stated
        return read(self._owner, X, self.image_shape, self.value_range, has_density)

    def _assumed_domain(self) -> ArrayDomain:
        stated = (1, 1) if self.image_shape is None else self.image_shape
        shape = full_shape(self._owner, stated)
        pixels = Pixels(shape, shape, 0.0, 1.0, np.dtype(float), False)
        if self.classes is None:
            return ArrayDomain(pixels)
        return LabelledDomain(pixels, len(self._labels), None)

    def _as_fitted(self, X: Any, y: Any) -> Any:
        return self._images(self._transformer, X, y)

    def _refuse_target(self, y: Any) -> None:
        if y is not None:
            raise ValueError(
                f"{self._owner} takes y only where the list of labels is stated, as "
                "it is public: classes=[...]."
            )

    def _public_facts(self, schema: Schema) -> tuple[str, ...]:
        labels = "" if self.classes is None else "classes, and "
        low, high = self._layout.low, self._layout.high
        facts = f"shape, dtype and range of the pixels ({low:g} to {high:g})"
        return (f"{labels}{facts}; constructor parameters",)
