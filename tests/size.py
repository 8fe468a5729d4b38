"""Counts the package's code: lines that are no docstring, no comment and not blank.

python -m tests.size            # the table that CI prints
"""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median

PACKAGE = Path(__file__).resolve().parents[1] / "dpgenerative"
_LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


@dataclass(frozen=True)
class Size:
    """Size of one module: lines of text, lines of code, and of every function body."""

    text: int
    code: int
    bodies: dict[str, int]


def measure(source: str) -> Size:
    """Return the size of a module's source."""
    tree = ast.parse(source)
    told = {line for node in ast.walk(tree) for line in _docstring_lines(node)}
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    bodies = {
        f"{node.name}:{node.lineno}": _body_length(node)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    return Size(source.count("\n"), len(lines - told), bodies)


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


@cache
def package() -> dict[str, Size]:
    """Return the size of every module by its path."""
    return {
        str(path.relative_to(PACKAGE)): measure(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


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


if __name__ == "__main__":
    main()
