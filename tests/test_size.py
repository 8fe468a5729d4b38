"""The package stays small enough to read in an afternoon."""

from __future__ import annotations

from statistics import median

from tests.size import measure, named, package, sentences, sources

LONGEST_BODY = 45
MEDIAN_BODY = 6
LONGEST_MODULE = 500


def test_modules_and_functions_are_short():
    lengths = {path: size.text for path, size in package().items()}
    bodies = {
        f"{path}, {name}": length
        for path, size in package().items()
        for name, length in size.bodies.items()
    }
    assert not over(LONGEST_MODULE, lengths)
    assert not over(LONGEST_BODY, bodies)


def over(most, lengths):
    return {name: length for name, length in lengths.items() if length > most}


def test_most_functions_are_tiny():
    lengths = [n for size in package().values() for n in size.bodies.values() if n]
    assert median(lengths) <= MEDIAN_BODY


def test_docstrings_comments_and_blanks_do_not_count():
    source = '"""Two\n\nlines."""\n\nx = 1  # one\n# none\n"""About x."""\n\n\n'
    source += 'def f():\n    """Say."""\n    y = (\n        2\n    )\n    return y\n'
    size = measure(source)
    assert (size.text, size.code) == (15, 6)
    assert size.bodies == {"f:10": 4}


def test_words_to_avoid_are_counted_in_names_and_sentences():
    source = '"""Rows were kept. All others."""\n\n# held-out rows\nkept_rows = 1\n'
    source += 'def f(seen, n):\n    # one\n    # is found\n    raise E(f"{n} told")\n'
    assert named(source) == ["kept_rows", "seen"]
    assert sentences(source) == ["Rows were kept.", "_ told", "one is found"]


def test_names_and_sentences_use_the_words_of_the_field():
    left = {
        path: [*named(source), *sentences(source)] for path, source in sources().items()
    }
    assert not {path: lines for path, lines in left.items() if lines}
