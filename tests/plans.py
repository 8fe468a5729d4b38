"""Plans whose shares are given by short names."""

from __future__ import annotations

from dpgenerative.encoding.marginals import MARGINALS
from dpgenerative.privacy import plan
from dpgenerative.privacy.embedding import EMBEDDING
from dpgenerative.privacy.latents import LATENTS
from dpgenerative.privacy.moments import MOMENTS
from dpgenerative.privacy.norm import NORM, NORM_SHARE
from dpgenerative.privacy.tables import TABLES

BUDGETS = {
    "marginal_budget": MARGINALS, "moment_budget": MOMENTS, "prior_budget": LATENTS,
    "table_budget": TABLES, "embedding_budget": EMBEDDING,
}  # fmt: skip


def make_plan(*, estimates_norm=False, **facts):
    """Return a plan; budgets are shares of the releases that they name."""
    shares = {BUDGETS[n]: facts.pop(n) for n in list(facts) if n in BUDGETS}
    if estimates_norm:
        shares[NORM] = NORM_SHARE
    return plan.make_plan(shares=shares, **facts)
