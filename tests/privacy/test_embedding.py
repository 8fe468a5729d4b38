"""Embeddings of classes: how far one row moves them, and that nothing else leaks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpgenerative.models import embedding as models
from dpgenerative.models.cells import CellFacts
from dpgenerative.models.embedding import draw_phases, heaviest
from dpgenerative.privacy import embedding
from dpgenerative.privacy.embedding import (
    EMBEDDING,
    SCALE,
    class_sums,
    features,
    release_embeddings,
)
from dpgenerative.tables.private import Private
from tests.privacy import test_replay as replay
from tests.privacy.test_tables import Door, plan_of

pytestmark = pytest.mark.usefixtures("few_rows_to_rake")

SIZES, D = (4, 6, 3), 32
CLASSES = [0, 2, 3]
SENSITIVITY = SCALE * math.sqrt(D)


def drawn_phases(seed, dtype=np.int16):
    """Return phases of all sizes that their type can hold: more than are drawn."""
    info, rng = np.iinfo(dtype), np.random.default_rng(seed)
    shapes = [(k, D) for k in SIZES[1:]]
    return [rng.integers(info.min, info.max, x, dtype, endpoint=True) for x in shapes]


def drawn_rows(n, seed):
    return np.random.default_rng(seed).integers(0, SIZES, (n, len(SIZES)))


@settings(max_examples=60, deadline=None, database=None)
@given(st.integers(0, 50), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_one_row_moves_the_sums_by_no_more_than_stated(n, seed, other):
    phases, codes = drawn_phases(seed), drawn_rows(n, seed)
    row = drawn_rows(1, other)
    more = np.insert(codes, other % (n + 1), row, axis=0)
    sums, moved = (class_sums(each, phases, CLASSES) for each in (codes, more))
    moved = moved - sums
    own = [i for i, cell in enumerate(CLASSES) if cell == row[0, 0]]
    assert np.linalg.norm(moved) <= SENSITIVITY
    assert not np.delete(moved, own, 0).any()
    if own:
        assert np.linalg.norm(moved) > 0.999 * SENSITIVITY


def test_the_features_of_every_angle_are_within_the_circle():
    angles = np.arange(-(2**15), 2**15).astype(np.int16)[:, None]
    codes = np.stack([np.zeros(2**16, int), np.arange(2**16)], 1)
    whole = features(codes, [angles])
    assert (whole == np.trunc(whole)).all()
    squares = np.square(whole).sum(1)
    assert squares.max() == SCALE**2  # on the axes
    assert squares.min() > 0.999 * SCALE**2


def test_angles_are_sums_modulo_one_turn():
    phases = [np.array([[x]], np.int16) for x in (2**15 - 1, 2**15 - 1, 2)]
    assert features(np.zeros((1, 4), int), phases).tolist() == [[SCALE, 0]]


@pytest.mark.parametrize("chunk", [1, 7, 10**6])
def test_sums_are_exact_in_any_order(monkeypatch, chunk):
    phases, codes = drawn_phases(1), drawn_rows(40, 1)
    whole = class_sums(codes, phases, CLASSES)
    monkeypatch.setattr(embedding, "CHUNK", chunk)
    shuffled = np.random.default_rng(0).permutation(codes)
    assert whole.dtype == np.int64
    np.testing.assert_array_equal(class_sums(shuffled, phases, CLASSES), whole)


def test_no_rows_have_sums():
    assert not class_sums(drawn_rows(0, 0), drawn_phases(0), CLASSES).any()


def test_what_is_released_has_the_noise_that_was_planned():
    plan, door = plan_of(60, embedding_budget=0.1), Door()
    phases, codes = drawn_phases(2), drawn_rows(60, 2)
    sums, std = release_embeddings(Private(codes), phases, CLASSES, plan, door)
    ((exact, noise, stated),) = door.asked
    np.testing.assert_array_equal(exact, class_sums(codes, phases, CLASSES))
    assert stated == {"release": "embedding", "sensitivity": SENSITIVITY}
    assert noise == plan.multiplier(EMBEDDING) * SENSITIVITY
    assert std == plan.multiplier(EMBEDDING)
    assert door.ledger.total("embedding") == pytest.approx(
        plan.multiplier(EMBEDDING) ** -2, rel=1e-12
    )
    assert np.abs(sums * SENSITIVITY - exact).max() < 6 * noise
    assert sums.shape == (len(CLASSES), 2 * D)


def test_phases_and_classes_are_made_of_released_facts():
    masses = torch.tensor([0.1, 0.6, 0.3])
    own = CellFacts(masses, False, False, torch.zeros(3).bool())
    few = replace(own, masses=torch.full((30,), 1 / 30))
    assert heaviest(own).tolist() == [0, 1, 2]
    assert len(heaviest(few)) == 10
    first, again = (
        draw_phases([own, few, own], torch.Generator().manual_seed(0)) for _ in range(2)
    )
    assert [x.shape for x in first] == [(30, models.N_ANGLES), (3, models.N_ANGLES)]
    assert all(map(torch.equal, first, again))


def test_embeddings_are_released_where_they_are_replayed():
    (synthesizer, *_), tape, _ = replay.recording_of_an_outlier("classes")
    assert synthesizer._model.classes is not None
    assert sum("'embedding'" in declared for _, declared, *_ in tape) == 1
    params = replay.SIZES["flow, tables"][1]
    frames = replay.SIZES["flow, tables"][0]()
    with replay.quickly():
        _, tape, _ = replay.recorded(
            frames[0], replay.Fixed, **{**replay.AUTO, **params}
        )
    assert sum("'embedding'" in declared for _, declared, *_ in tape) == 1
