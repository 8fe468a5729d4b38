"""Errors and warnings of the package; their texts depend on public facts only."""


class InfeasibleBudgetError(ValueError):
    """The budget cannot pay for what was asked; the text says what to change."""


class SamplingError(ValueError):
    """Too few rows drawn satisfy what was asked; the text gives the acceptance rate."""


class UnsupportedColumnError(TypeError):
    """A column has a dtype that is not supported; the text names it."""


class LedgerError(RuntimeError):
    """What was released is not what was planned; nothing of it may be shown."""


class FileFormatError(ValueError):
    """A file is foreign, of another format, or damaged; the text says which."""


class PrivacyWarning(UserWarning):
    """A choice of parameters that weakens or voids the guarantee."""


class LostColumnWarning(UserWarning):
    """Little of some columns was released, or bounds far beyond their rows.

    The text names the columns and says what to do.
    """


class HopelessBudgetWarning(UserWarning):
    """A fit whose budget leaves little but noise; the text says what to change."""


class BudgetExceededError(RuntimeError):
    """A fit would exceed an open `PrivacyBudget`, or could not be counted by it."""
