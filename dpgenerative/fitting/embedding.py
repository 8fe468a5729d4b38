"""Mean embeddings of classes: released, and a model corrected by them."""

from typing import Any, cast

import numpy as np
import torch

from dpgenerative.encoding.transformer import TableTransformer
from dpgenerative.fitting.domain import TableDomain
from dpgenerative.fitting.workload import rows_drawn
from dpgenerative.models.embedding import (
    FITTED,
    draw_phases,
    fit_correction,
    heaviest,
)
from dpgenerative.privacy.embedding import release_embeddings
from dpgenerative.privacy.noise import Mechanisms
from dpgenerative.privacy.plan import PrivacyPlan
from dpgenerative.tables.private import Private


def correct_classes(
    model: Any,
    transformer: TableTransformer,
    rows: Private[Any],
    plan: PrivacyPlan,
    mechanisms: Mechanisms,
    generator: torch.Generator,
) -> None:
    """Release the embeddings of the first column's classes, and correct the model."""
    facts = TableDomain.facts(transformer)
    phases = mechanisms.ranks.same(draw_phases(facts, generator))
    classes, device = heaviest(facts[0]), model.first.log_masses.device
    codes: Private[np.ndarray] = rows.map(transformer.encode)
    arrays = [part.numpy() for part in phases]
    sums, std = release_embeddings(codes, arrays, classes.tolist(), plan, mechanisms)
    drawn = model.pool(rows_drawn(FITTED, facts), generator).cpu()

    def log_prob(codes: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, model.first(codes.to(device)).cpu())

    model.classes = fit_correction(
        log_prob, drawn, facts[0], phases, sums, std, plan.n_rows
    )
