"""What privacy costs: accuracy lost relative to attack success prevented."""

from __future__ import annotations

from dpgenerative._validation import check_number


def phi(
    acc_orig: float,
    acc_eps: float,
    atk_orig: float,
    atk_eps: float,
    acc_base: float,
    atk_base: float = 0.5,
) -> float:
    """Return the relative privacy-accuracy trade-off of a private model.

    With the relative gain in privacy ``(atk_orig - atk_eps) / (atk_orig - atk_base)``
    and the relative loss of accuracy ``(acc_orig - acc_eps) / (acc_orig - acc_base)``,
    both clipped to [0, 1], phi is gain over loss, at most 2. Above 1, the attack has
    lost more of its advantage than the model; below 1, less.

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
    float in [0, 2]

    Raises
    ------
    ValueError
        When an argument lies outside [0, 1].

    Notes
    -----
    Edge cases: the loss is 0 if accuracy did not fall, or was no better than guessing
    (``acc_orig <= acc_base``); the gain is 0 if the attack did not weaken, or was no
    better than guessing (``atk_orig <= atk_base``). Some gain for no loss is 2, no gain
    for some loss is 0, no gain for no loss is 1.

    References
    ----------
    Bernau, Robl and Kerschbaum, "Assessing Differentially Private Variational
    Autoencoders under Membership Inference" (2022), equation (2); it bounds phi at 2
    where accuracy does not fall, and leaves no gain for no loss open.

    Examples
    --------
    >>> phi(acc_orig=0.9, acc_eps=0.8, atk_orig=0.9, atk_eps=0.5, acc_base=0.1)
    2.0
    >>> phi(acc_orig=0.9, acc_eps=0.5, atk_orig=1.0, atk_eps=0.875, acc_base=0.1)
    0.5
    """
    given = locals().copy()
    for name, value in given.items():
        check_number("phi", name, value, low=0, high=1, closed="both")
    gain = _share(atk_orig - atk_eps, atk_orig - atk_base)
    loss = _share(acc_orig - acc_eps, acc_orig - acc_base)
    if loss == 0:
        return 2.0 if gain > 0 else 1.0
    return min(2.0, gain / loss)


def _share(part: float, whole: float) -> float:
    return min(max(part / whole, 0.0), 1.0) if whole > 0 else 0.0
