"""What privacy costs: accuracy lost relative to attack success prevented."""

import math

from dpgenerative._validation import check_number


def phi(
    acc_orig: float,
    acc_eps: float,
    atk_orig: float,
    atk_eps: float,
    acc_base: float,
    atk_base: float = 0.5,
) -> float:
    """Return the relative privacy-accuracy trade-off of a private model, as published.

    The relative gain in privacy ``(atk_orig - atk_eps) / (atk_orig - atk_base)`` over
    the relative loss of accuracy ``(acc_orig - acc_eps) / (acc_orig - acc_base)``.
    Above 1, the attack has lost more of its advantage than the model; below 1, less;
    below 0, the attack has become stronger.

    Parameters
    ----------
    acc_orig, acc_eps : float in [0, 1]
        Test accuracy (or any utility in [0, 1]) without and with privacy.
    atk_orig, atk_eps : float in [0, 1]
        Success of one attack, such as its average precision, without and with privacy.
    acc_base : float in [0, 1]
        Accuracy of guessing, such as 1 / number of classes.
    atk_base : float in [0, 1], default=0.5
        Success of guessing: the share of members among the records.

    Returns
    -------
    float
        2 where accuracy did not fall, the bound of the paper. NaN where the attack had
        no advantage over guessing, or accuracy fell from no better than guessing: then
        there is nothing to share out. No other value is cut: a small loss makes phi
        large.

    Raises
    ------
    ValueError
        If an argument lies outside [0, 1].

    See Also
    --------
    bounded_phi : Cut to [0, 2], and defined everywhere.

    References
    ----------
    Bernau, Robl and Kerschbaum, "Assessing Differentially Private Variational
    Autoencoders under Membership Inference" (2022), equation (2).

    Examples
    --------
    >>> phi(acc_orig=0.9, acc_eps=0.5, atk_orig=1.0, atk_eps=0.875, acc_base=0.1)
    0.5

    Accuracy below guessing is a loss of more than all:

    >>> phi(acc_orig=1.0, acc_eps=0.0, atk_orig=1.0, atk_eps=0.5, acc_base=0.5)
    0.5
    """
    _check_shares("phi", locals())
    if atk_orig <= atk_base:
        return math.nan
    if acc_eps >= acc_orig:
        return 2.0
    if acc_orig <= acc_base:
        return math.nan
    gain = (atk_orig - atk_eps) / (atk_orig - atk_base)
    return gain / ((acc_orig - acc_eps) / (acc_orig - acc_base))


def bounded_phi(
    acc_orig: float,
    acc_eps: float,
    atk_orig: float,
    atk_eps: float,
    acc_base: float,
    atk_base: float = 0.5,
) -> float:
    """Return `phi` of gain and loss that are each cut to [0, 1], at most 2.

    A figure for tables of many runs: no accident of a run below guessing, or of a tiny
    loss, outweighs the others.

    Parameters
    ----------
    acc_orig, acc_eps, atk_orig, atk_eps, acc_base, atk_base : float in [0, 1]
        As in `phi`.

    Returns
    -------
    float in [0, 2]

    Raises
    ------
    ValueError
        If an argument lies outside [0, 1].

    Notes
    -----
    The loss is 0 if accuracy did not fall, or was no better than guessing; the gain is
    0 if the attack did not weaken, or was no better than guessing. Some gain for no
    loss is 2, no gain for some loss is 0, no gain for no loss is 1.

    Examples
    --------
    >>> bounded_phi(acc_orig=0.9, acc_eps=0.8, atk_orig=0.9, atk_eps=0.5, acc_base=0.1)
    2.0
    """
    _check_shares("bounded_phi", locals())
    gain = _share(atk_orig - atk_eps, atk_orig - atk_base)
    loss = _share(acc_orig - acc_eps, acc_orig - acc_base)
    if loss == 0:
        return 2.0 if gain > 0 else 1.0
    return min(2.0, gain / loss)


def _check_shares(owner: str, given: dict[str, float]) -> None:
    for name, value in given.items():
        check_number(owner, name, value, low=0, high=1, closed="both")


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
