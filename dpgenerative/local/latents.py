"""Records rewritten by an autoencoder whose latents are perturbed (VAE-LDP)."""

import copy
import math
import warnings
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from dpgenerative._validation import Check, check_delta, number, option, refuse
from dpgenerative.exceptions import PrivacyWarning
from dpgenerative.local.base import PUBLIC, LocalRandomizer
from dpgenerative.local.report import Feature, LocalReport, usual_notes
from dpgenerative.privacy import accounting
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.synthesizers import session
from dpgenerative.synthesizers.arrays import DPArrayVAESynthesizer
from dpgenerative.synthesizers.vae import DPVAESynthesizer

FINENESS = 2**20
"""Steps from 0 to the bound of a latent, in which means are rounded and noise drawn."""
LEAK = (
    "The autoencoder was fitted without privacy: its weights, and every record that "
    "it decodes, may reveal the rows it was fitted to. Fit it to public rows and state "
    "public=True, or fit it with an epsilon."
)


class VAEPerturber(LocalRandomizer):
    """Rewrite every record under local differential privacy, by an autoencoder.

    The mean of a record's latents, squashed to ``bound tanh(mean / bound)``, gets
    Gaussian noise and is decoded. The noise of the latents is the whole mechanism:
    whatever the networks are, two means are at most ``2 bound sqrt(k)`` apart in k
    dimensions. All records get noise of the same standard deviation.

    Parameters
    ----------
    autoencoder : DPArrayVAESynthesizer or DPVAESynthesizer
        If fitted, it is used as it is; records that it was fitted to pay its epsilon,
        too. Otherwise `fit` fits a clone to X, at its own epsilon. It has no condition:
        latents leave that out.
    epsilon : float, optional
        Privacy cost of one record, > 0. Exactly one of `epsilon` and `sigma` is
        required.
    sigma : float, optional
        Standard deviation of the noise of a latent, > 0.
    delta : float, default=1e-5
        Probability in (0, 1) with which the guarantee may fail.
    bound : float, default=3.0
        Largest absolute mean of a latent, in (1e-6, 1e6).
    public : bool, default=False
        Declares that the rows of an autoencoder that was fitted without privacy are
        public.
    output : {"records", "latents"}, default="records"
        Decoded records, as the autoencoder samples them, or perturbed latents.
    random_state : int, RandomState or Generator instance or None, default=None
        Seed of the noise, and of what decoding draws, if `noise` is "reproducible";
        otherwise unused.
    noise : {"secure", "reproducible"}, default="secure"
        Source of the noise: the operating system's cryptographic generator, or
        `random_state`, in which case anyone who knows the seed can remove it.

    Attributes
    ----------
    privacy_ : LocalReport
        What a transform reveals of one record; epsilon of the exact Gaussian
        mechanism, and that of the classical formula beside it.
    autoencoder_ : DPArrayVAESynthesizer or DPVAESynthesizer
    sigma_ : float
        Standard deviation of the noise of a latent.
    n_features_in_ : int
        Number of entries of one record.

    Warns
    -----
    PrivacyWarning
        If the autoencoder was fitted without privacy and its rows are not declared
        public, or delta is below 1e-15.

    Notes
    -----
    Every `transform` of a record spends epsilon again. Where an encoder chooses every
    record's standard deviation above a floor, as in VAE-LDP, the floor does not bound
    epsilon: of two records with one mean the narrow one is likelier there by the ratio
    of the deviations to the power of k. Here the floor is the deviation of all.

    References
    ----------
    Weggenmann, Rublack, Andrejczuk, Mattern and Kerschbaum. DP-VAE: Human-Readable Text
    Anonymization for Online Reviews with Differentially Private Variational
    Autoencoders. WWW 2022. Balle and Wang. Improving the Gaussian Mechanism for
    Differential Privacy. ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from dpgenerative import DPArrayVAESynthesizer, VAEPerturber
    >>> public = np.zeros((60, 4, 4), dtype=np.uint8)
    >>> vae = DPArrayVAESynthesizer(epsilon=None, n_steps=5, random_state=0).fit(public)
    >>> VAEPerturber(vae, epsilon=8.0, public=True).fit_transform(public[:3]).shape
    (3, 4, 4)
    """

    def __init__(
        self,
        autoencoder: DPArrayVAESynthesizer | DPVAESynthesizer,
        *,
        epsilon: float | None = None,
        sigma: float | None = None,
        delta: float = 1e-5,
        bound: float = 3.0,
        public: bool = False,
        output: str = "records",
        random_state: Any = None,
        noise: str = "secure",
    ) -> None:
        self.autoencoder = autoencoder
        self.epsilon = epsilon
        self.sigma = sigma
        self.delta = delta
        self.bound = bound
        self.public = public
        self.output = output
        self.random_state = random_state
        self.noise = noise

    _checks: ClassVar[Mapping[str, Check]] = {
        **LocalRandomizer._checks,
        "epsilon": number(low=0, also=[None]),
        "sigma": number(low=0, also=[None]),
        "bound": number(low=1e-6, high=1e6),
        "public": option(True, False),
        "output": option("records", "latents"),
    }

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fix the noise; fit the autoencoder where it is not fitted.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, ...)
            Read where the autoencoder is not fitted.
        y : None
            Ignored; present for API consistency.

        Returns
        -------
        self
        """
        self._begin()
        check_delta(self._owner, self.delta)
        if (self.epsilon is None) == (self.sigma is None):
            rule = "must be given where sigma is not, and not beside it"
            refuse(self._owner, "epsilon", rule, self.epsilon)
        fitted = self._fitted(X)
        self._width = session.latent_dim_of(fitted)
        self._bound, self._delta = float(self.bound), float(self.delta)
        self._sensitivity = 2 * self._bound * math.sqrt(self._width)
        self.sigma_, self.autoencoder_ = self._sigma(), fitted
        self.privacy_ = self._report()
        self.n_features_in_ = fitted.n_features_in_
        return self

    def transform(self, X: Any) -> Any:
        """Rewrite every record; spends epsilon of each, every time.

        Parameters
        ----------
        X : DataFrame or ndarray of shape (n_samples, ...)
            As the autoencoder was fitted.

        Returns
        -------
        DataFrame or ndarray of shape (n_samples, ...), or (n_samples, latent_dim)
        """
        check_is_fitted(self)
        step = self._bound / FINENESS
        with np.errstate(all="ignore"):
            places = self._places(self.autoencoder_.encode(X))
        rng = self._spend()
        noisy = Mechanisms(rng, rng).gaussian(
            places, self.sigma_ / step,
            release="latents", sensitivity=self._sensitivity / step,
        )  # fmt: skip
        if self.output == "latents":
            return noisy * step
        decoding = None if self._sample_seed is None else rng
        records: Any = self.autoencoder_.decode(noisy * step, random_state=decoding)
        is_table = isinstance(X, pd.DataFrame) and isinstance(records, pd.DataFrame)
        return records.set_axis(X.index) if is_table else records

    def _sigma(self) -> float:
        if self.sigma is not None:
            return float(self.sigma)
        assert self.epsilon is not None
        # A sliver below, for the precision of what is stated afterwards.
        aim = self.epsilon * (1 - 1e-6) - 3e-9
        return self._sensitivity * accounting.gaussian_multiplier(aim, self._delta)

    def _places(self, means: np.ndarray) -> np.ndarray:
        """Return bounded means in whole steps; NaN becomes 0."""
        inside = np.tanh(means.astype(float) / self._bound)
        return np.rint(FINENESS * np.nan_to_num(inside)).astype(np.int64)

    def _fitted(self, X: Any) -> DPArrayVAESynthesizer | DPVAESynthesizer:
        """Return a fitted copy of the autoencoder, which nobody else can fit again."""
        autoencoder = getattr(self.autoencoder, "estimator", self.autoencoder)
        if not isinstance(autoencoder, (DPArrayVAESynthesizer, DPVAESynthesizer)):
            rule = "must be a DPArrayVAESynthesizer or a DPVAESynthesizer"
            refuse(self._owner, "autoencoder", rule, autoencoder)
        is_fitted = hasattr(autoencoder, "privacy_")
        layout = session.layout_of(autoencoder) if is_fitted else None
        has_y = getattr(layout, "y_name", None) is not None
        if has_y or getattr(autoencoder, "classes", None) is not None:
            rule = "must be of X alone, as records are: without y"
            refuse(self._owner, "autoencoder", rule, autoencoder)
        condition = session.condition_of(autoencoder) if is_fitted else None
        stated = getattr(autoencoder, "conditional", None)
        if condition is not None or stated not in (None, "auto"):
            rule = "must be fitted with conditional=None: latents leave a condition out"
            refuse(self._owner, "autoencoder", rule, autoencoder)
        if is_fitted:
            other = autoencoder  # A copy of this process, which a budget allows.
            autoencoder = object.__new__(type(other))
            autoencoder.__dict__.update(copy.deepcopy(vars(other)))
        else:
            autoencoder = clone(autoencoder)
            if isinstance(autoencoder, DPVAESynthesizer):
                autoencoder.set_params(conditional=None)
            autoencoder.fit(X)
        if not autoencoder.privacy_.plan.private and not self.public:
            warnings.warn(LEAK, PrivacyWarning, stacklevel=3)
        return autoencoder

    def _report(self) -> LocalReport:
        multiplier = self.sigma_ / self._sensitivity
        epsilon = accounting.gaussian_epsilon(multiplier, self._delta)
        usual = accounting.classical_epsilon(multiplier, self._delta)
        words = (
            f"Gaussian noise of standard deviation {self.sigma_:.6g} on {self._width} "
            f"means in [-{self._bound:g}, {self._bound:g}] (the classical formula, "
            f"valid below 1 only, gives {usual:.6g})"
        )
        facts = [PUBLIC, "dtypes and shape of the records; constructor parameters"]
        notes = list(usual_notes(self.noise, epsilon))
        plan = self.autoencoder_.privacy_.plan
        if plan.private:
            pair = "({:g}, {:g})".format(*plan.guarantee)
            notes.append(
                f"The autoencoder learned under {pair}-differential privacy: for "
                "records that it was fitted to, both guarantees add up."
            )
        elif self.public:
            facts.append("the rows that the autoencoder learned from")
        else:
            notes.insert(0, LEAK)
        return LocalReport(
            epsilon, self._delta, (Feature("latents", epsilon, words),), tuple(facts),
            "any two values of one record", epsilon, tuple(notes),
        )  # fmt: skip
