"""Counts the package's code, and the words in it that have a standard term.

Lines of code are those that are no docstring, no comment and not blank.

python -m tests.size            # the table that CI prints
python -m tests.size words      # where names and sentences use such words
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).resolve().parents[1] / "dpgenerative"
WORDS = (
    "told", "tells", "tell", "found", "held", "kept", "taken", "joined", "picked",
    "seen", "look", "looks", "looked", "legible", "emptied", "secluded", "seclusion",
)  # fmt: skip
"""Words of everyday speech where the field has a term, in names and sentences."""
NAMES = {*WORDS, "said", "received", "sent", "shrunk", "known"}
"""Words that no name is made of."""
CLASSES = {"Known", "Line", "Ranks", "Scale"}
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b(?![ -]out\b| array with)", re.I)


@dataclass(frozen=True)
class Size:
    """Size of one module: lines of text, lines of code, and of every function body."""

    text: int
    code: int
    bodies: dict[str, int]


def measure(source: str) -> Size:
    """Return the size of a module's source."""
    tree = ast.parse(source)
    prose = {line for node in ast.walk(tree) for line in _docstring_lines(node)}
    lines = {
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.strip() and not line.lstrip().startswith("#")
    }
    bodies = {
        f"{node.name}:{node.lineno}": _body_length(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return Size(source.count("\n"), len(lines - prose), bodies)


def _docstring_lines(node: ast.AST) -> range:
    """Return the lines of a string that stands alone, as docstrings do."""
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return range(0)
    is_text = isinstance(node.value.value, str) and node.end_lineno is not None
    return range(node.lineno, node.end_lineno + 1) if is_text else range(0)


def _body_length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines from the first statement to the last, the docstring aside."""
    body = [statement for statement in node.body if not _docstring_lines(statement)]
    if not body or not body[-1].end_lineno:
        return 0
    return body[-1].end_lineno - body[0].lineno + 1


def named(source: str) -> list[str]:
    """Return the names a module defines that are made of words to avoid, once each."""
    defined: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            defined.add(node.attr)
    return sorted(n for n in defined if n in CLASSES or NAMES & {*n.lower().split("_")})


def sentences(source: str) -> list[str]:
    """Return the sentences of docstrings, comments and messages with such words."""
    if not _WORD.search(source):
        return []
    texts = [*_strings(ast.parse(source)), *_comments(source)]
    texts = [re.sub('"[^"]+"', '""', text) for text in texts]  # titles, examples
    pieces = (re.split(r"(?<=[.:;?!])\s|\n\s*\n", text) for text in texts)
    return [" ".join(s.split()) for piece in pieces for s in piece if _WORD.search(s)]


def _strings(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that are longer than a word."""
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    inside = {part for text in texts for part in text.values}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            parts = (getattr(part, "value", "") for part in node.values)
            text = "".join(part if isinstance(part, str) else "_" for part in parts)
        elif isinstance(node, ast.Constant) and node not in inside:
            text = node.value if isinstance(node.value, str) else ""
        if " " in text.strip():
            yield text


def _comments(source: str) -> Iterator[str]:
    """Yield comments, those on lines that follow each other as one."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    run, last = "", 0
    for token in tokens:
        if token.type == tokenize.COMMENT:
            follows = token.start[0] == last + 1
            if run and not follows:
                yield run
            run = (f"{run} " if follows else "") + token.string.lstrip("# ")
            last = token.start[0]
    yield run


@cache
def package() -> dict[str, Size]:
    """Return the size of every module by its path."""
    return {path: measure(source) for path, source in sources().items()}


def sources() -> dict[str, str]:
    """Return the source of every module by its path."""
    return {
        str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def words() -> None:
    """Print the names and sentences of every module that use words to avoid."""
    for path, source in sources().items():
        for line in [*named(source), *sentences(source)]:
            print(f"{path}: {line}")


def main() -> None:
    """Print modules by size, and the sums."""
    sizes = package()
    bodies = [n for size in sizes.values() for n in size.bodies.values() if n]
    for path, size in sorted(sizes.items(), key=lambda item: -item[1].code):
        print(f"{size.code:6} lines of code, {size.text:5} of text  {path}")
    print(
        f"{sum(size.code for size in sizes.values()):6} lines of code in "
        f"{len(sizes)} modules; {len(bodies)} functions, median body "
        f"{median(bodies):g} lines, longest {max(bodies)}"
    )
    n_names, n_sentences = (
        sum(len(find(source)) for source in sources().values())
        for find in (named, sentences)
    )
    print(f"{n_names:6} names and {n_sentences} sentences with words to avoid")


if __name__ == "__main__":
    words() if sys.argv[1:] == ["words"] else main()
