"""Each module imports only what stands above it in `ORDER`."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dpgenerative"

# Top to bottom. Modules of one line do not import each other, those of packages
# marked by a star may.
ORDER = (
    ("exceptions",),
    ("_arrow",),
    ("_validation",),
    ("_random", "_files", "_progress"),
    ("_temporal",),
    ("constraints",),
    ("schema",),
    ("increments",),
    ("tables",),
    ("layers",),
    ("privacy.ledger",),
    (
        "privacy.gradients",
        "privacy.clipping",
        "privacy.noise",
        "privacy.sampling",
        "privacy.accounting",
        "privacy.budget",
    ),
    ("privacy.plan", "privacy.steps", "privacy"),
    ("privacy.selection",),
    ("pixels", "transform"),
    ("models.*", "models"),
    ("training", "persistence", "public"),
    ("synthesizers.*", "synthesizers"),
    ("audit",),
    ("predictors", "pipeline"),
    ("search",),
    ("cli",),
    ("__main__",),
)
# The command line reaches everything but the tables to try.
TOP = ("cli",)
# Beside that order: only these, and modules of the same package.
APART = {
    "metrics": (
        "exceptions",
        "_arrow",
        "_validation",
        "_progress",
        "_temporal",
        "schema",
        "metrics",
        "privacy",
    ),
    "datasets": ("exceptions", "schema"),
}
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def module_name(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


MODULES = {
    module_name(path): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py"
}


def rank(module):
    """Return a module's line in ORDER; None for one that stands nowhere."""
    package = module.partition(".")[0]
    return RANK.get(module, RANK.get(f"{package}.*"))


def is_allowed(importer, imported):
    family, other = importer.partition(".")[0], imported.partition(".")[0]
    if family in APART:
        return other in APART[family]
    if importer in TOP and other == "metrics":
        return True
    if rank(importer) is None or rank(imported) is None:
        return False
    if family == other and f"{family}.*" in RANK:
        return True
    return rank(imported) < rank(importer)


def imports(source, importer):
    """Return modules of the package that a source imports; '' is the package itself."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {inner(alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                parents = ["dpgenerative", *importer.split(".")][: -node.level]
                origin = ".".join([*parents, *filter(None, [origin])])
            found |= {
                submodule(inner(origin), alias.name)
                for alias in node.names
                if inner(origin) is not None
            }
    return sorted(found - {None})


def inner(name):
    """Strip the package's name; None for another package's module."""
    top, _, rest = name.partition(".")
    return rest if top == "dpgenerative" else None


def submodule(module, name):
    """Tell `from package import module` from `from module import name`."""
    joined = f"{module}.{name}".lstrip(".")
    path = PACKAGE.joinpath(*joined.split("."))
    return joined if path.with_suffix(".py").exists() or path.is_dir() else module


@pytest.mark.parametrize("module", MODULES)
def test_module_imports_only_from_above(module):
    assert rank(module) is not None or module.partition(".")[0] in APART, (
        f"{module} has no place in ORDER: give it one"
    )
    source = MODULES[module].read_text(encoding="utf-8")
    wrong = [name for name in imports(source, module) if not is_allowed(module, name)]
    assert not wrong, f"{module} may not import {wrong}"


@pytest.mark.parametrize(
    ("importer", "statement", "imported"),
    [
        ("schema", "import dpgenerative.transform", "transform"),
        ("schema", "from dpgenerative import layers", "layers"),
        ("schema", "from dpgenerative import Schema", ""),
        ("schema", "def f():\n    from . import layers", "layers"),
        ("privacy.noise", "from .clipping import Flat", "privacy.clipping"),
        ("privacy.noise", "from dpgenerative.privacy import PrivacyPlan", "privacy"),
        ("privacy.noise", "from ..transform import x", "transform"),
        ("models.flow", "from dpgenerative.training import train", "training"),
        ("metrics.fidelity", "import dpgenerative.layers as l", "layers"),
        ("datasets", "from dpgenerative.metrics.utility import x", "metrics.utility"),
        ("nowhere", "from dpgenerative.schema import Schema", "schema"),
        ("training", "from dpgenerative.nowhere import x", "nowhere"),
    ],
)
def test_the_rule_finds_what_it_should(importer, statement, imported):
    assert imports(statement, importer) == [imported]
    assert not is_allowed(importer, imported)


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("privacy.noise", "layers"),
        ("privacy.plan", "privacy.noise"),
        ("models.flow", "models.bijections"),
        ("models.flow", "privacy.plan"),
        ("synthesizers", "schema"),
        ("metrics.plots", "metrics.fidelity"),
        ("datasets", "schema"),
    ],
)
def test_the_rule_allows_what_it_should(importer, imported):
    assert is_allowed(importer, imported)


def test_every_package_is_installed():
    with open(ROOT / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    found = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert found <= set(listed)
