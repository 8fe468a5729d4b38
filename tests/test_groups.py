"""Groups of parameters: set, listed and checked as ``group__name``."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from dpgenerative import (
    BatchTerm,
    DPHFlowSynthesizer,
    DPVAESynthesizer,
    FlowArchitecture,
    Optimizer,
    VAEArchitecture,
)

ROWS = np.random.default_rng(0).normal(size=(60, 2))


@pytest.mark.parametrize("wrong", [3, "wide", VAEArchitecture(), FlowArchitecture])
def test_what_is_no_architecture_is_refused(wrong):
    with pytest.raises(
        ValueError, match="'architecture' of DPHFlow.* FlowArchitecture"
    ):
        DPHFlowSynthesizer(architecture=wrong).fit(ROWS)


def test_short_and_long_forms_are_set_in_any_order():
    short = DPHFlowSynthesizer(optimizer="sgd", divergence="mmd")
    short.set_params(optimizer__averaging=0.5, divergence__weight=2.0)
    assert short.optimizer == Optimizer("sgd", averaging=0.5)
    assert short.divergence == BatchTerm("mmd", weight=2.0)
    short.set_params(optimizer__averaging=0.0, optimizer="adabelief")
    assert short.optimizer == Optimizer("adabelief", averaging=0.0)
    assert clone(short).get_params() == short.get_params()


def test_groups_are_listed_where_none_is_set():
    params = DPVAESynthesizer().get_params()
    assert params["architecture"] is None
    assert params["architecture__latent_dim"] == "auto"
    assert "architecture__latent_dim" not in DPVAESynthesizer().get_params(deep=False)
    with pytest.raises(ValueError, match="Invalid parameter 'depth' for FlowArch"):
        DPHFlowSynthesizer().set_params(architecture__depth=3)
