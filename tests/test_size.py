"""The package stays small enough to read in an afternoon."""

from __future__ import annotations

from statistics import median

import pytest

from tests.size import measure, package

LONGEST_BODY = 45
MEDIAN_BODY = 6
LONGEST_MODULE = 600
SIZES = package()


@pytest.mark.parametrize("path", SIZES)
def test_modules_and_functions_are_short(path):
    size = SIZES[path]
    assert size.text <= LONGEST_MODULE
    assert max(size.bodies.values(), default=0) <= LONGEST_BODY


def test_most_functions_are_tiny():
    lengths = [n for size in SIZES.values() for n in size.bodies.values() if n]
    assert median(lengths) <= MEDIAN_BODY


def test_docstrings_comments_and_blanks_do_not_count():
    source = '"""Two\n\nlines."""\n\nx = 1  # one\n# none\n"""About x."""\n\n\n'
    source += 'def f():\n    """Say."""\n    y = (\n        2\n    )\n    return y\n'
    size = measure(source)
    assert (size.text, size.code) == (15, 6)
    assert size.bodies == {"f:10": 4}
