"""Each room of the package imports only from rooms above it, and none in a circle."""

from __future__ import annotations

import ast
from functools import cache
from inspect import Parameter, isabstract, signature
from pathlib import Path

import pytest
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

import dpgenerative

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "dpgenerative"

# Top to bottom. A module imports from the lines above its own, and modules of a package
# import each other.
ORDER = (
    "_version",
    "exceptions",
    "_files",
    "_progress",
    "_validation",
    "_random",
    "_intervals",
    "tables",
    "datasets",
    "layers",
    "privacy",
    "encoding",
    "models",
    "fitting",
    "persistence",
    "synthesizers",
    "local",
    "metrics",
    "study",
    "inference",
    "audit",
    "meta",
    "_texts",
    "cli",
    "__main__",
)


def module_name(path):
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


MODULES = {
    module_name(path).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path != PACKAGE / "__init__.py"
}


def room(module):
    return module.partition(".")[0]


def is_allowed(importer, imported):
    if not {room(importer), room(imported)} <= set(ORDER):
        return False
    if room(importer) == room(imported):
        return True
    return ORDER.index(room(imported)) < ORDER.index(room(importer))


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


@cache
def package_imports():
    return {
        module: imports(path.read_text(encoding="utf-8"), module)
        for module, path in MODULES.items()
    }


def test_modules_import_only_from_above():
    homeless = {room(module) for module in MODULES} - set(ORDER)
    assert not homeless, f"{sorted(homeless)} have no place in ORDER: give them one"
    wrong = [
        f"{module} may not import {name}"
        for module, names in package_imports().items()
        for name in names
        if not is_allowed(module, name)
    ]
    assert not wrong, "; ".join(wrong)


def circle(graph):
    """Return modules that import each other in a circle; none if there is none."""
    left = {module: set(names) & set(graph) for module, names in graph.items()}
    while free := [module for module, names in left.items() if not names & set(left)]:
        left = {module: names for module, names in left.items() if module not in free}
    return sorted(left)


def test_no_modules_import_each_other_in_a_circle():
    assert not circle(package_imports())


@pytest.mark.parametrize(
    ("graph", "found"),
    [
        ({"a": ["b"], "b": []}, []),
        ({"a": ["b"], "b": ["a"], "c": []}, ["a", "b"]),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, ["a", "b", "c"]),
    ],
)
def test_the_rule_finds_circles(graph, found):
    assert circle(graph) == found


GUESTS = ("meta", "audit", "local", "metrics", "study", "inference", "cli")
BY_NAME = ("getattr", "hasattr", "setattr", "delattr", "attrgetter")


def private_reaches(tree, own):
    """Yield attributes with an underscore that are neither of self nor of `own`."""
    classes = {name for name in own if name.lstrip("_")[:1].isupper()}
    ours = {"self", "cls", "super", *classes}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in BY_NAME:
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from (t for t in texts if str(t).startswith("_") and t[1] != "_")
        if isinstance(node, ast.ImportFrom) and "dpgenerative" in str(node.module):
            names = [alias.name for alias in node.names]
            yield from (n for n in names if n.startswith("_") and n[1] != "_")
        if not isinstance(node, ast.Attribute) or node.attr.startswith("__"):
            continue
        owner = node.value.func if isinstance(node.value, ast.Call) else node.value
        is_own = isinstance(owner, ast.Name) and owner.id in ours
        if node.attr.startswith("_") and not is_own and node.attr not in own:
            yield node.attr


def defined(tree):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, (ast.AnnAssign, ast.Assign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (each.id for each in targets if isinstance(each, ast.Name))


@pytest.mark.parametrize("guest", GUESTS)
def test_rooms_reach_for_no_underscore_of_another(guest):
    trees = [
        ast.parse(MODULES[m].read_text("utf-8")) for m in MODULES if room(m) == guest
    ]
    own = {name for tree in trees for name in defined(tree)}
    # A name that another room has, too, may be that one.
    others = [path for m, path in MODULES.items() if room(m) != guest]
    own -= {n for path in others for n in defined(ast.parse(path.read_text("utf-8")))}
    own.add("_transformer_to_input_indices")  # of scikit-learn's ColumnTransformer
    assert not {name for tree in trees for name in private_reaches(tree, own)}


def test_a_private_reach_is_noticed():
    tree = ast.parse("def _mine(): self._a; other._b; super()._c(); x()._d; y._mine")
    assert set(private_reaches(tree, set(defined(tree)))) == {"_b", "_d"}


def declared():
    """Return every `Release` of the package: the constant that it is, and its name."""
    for path in MODULES.values():
        for node in ast.parse(path.read_text("utf-8")).body:
            call = node.value if isinstance(node, ast.Assign) else None
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "Release":
                yield node.targets[0].id, call.args[0].value


RELEASES = dict(declared())


@pytest.mark.parametrize(
    "module",
    [
        "privacy.plan", "privacy.report", "privacy.ledger", "synthesizers.forecast",
        "persistence.checkpoint", "audit.step", "audit.training", "audit.release",
    ],
)  # fmt: skip
def test_what_iterates_over_releases_names_none(module):
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    stages = {"rows", "norm", "model"}
    texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    names |= {n.name for n in ast.walk(tree) if isinstance(n, ast.alias)}
    assert len(RELEASES) > 5
    assert not texts & ({*RELEASES.values()} - stages)
    assert not names & RELEASES.keys()


def estimators():
    homes = dpgenerative, dpgenerative.local
    found = {getattr(home, name) for home in homes for name in home.__all__}
    return [
        each
        for each in found
        if isinstance(each, type) and issubclass(each, BaseEstimator)
    ]


@pytest.mark.parametrize("estimator", sorted(estimators(), key=lambda c: c.__name__))
def test_constructors_are_written_out(estimator):
    if isabstract(estimator):
        return
    assert "__init__" in vars(estimator)
    kinds = {p.kind for p in signature(estimator).parameters.values()}
    assert not kinds & {Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL}
    # As many as GaussianMixture; scikit-learn's own transformers have more.
    theirs = set(StandardScaler.__mro__)
    limit = 8 + len(theirs & set(estimator.__mro__) - set(BaseEstimator.__mro__))
    assert len(estimator.__mro__) <= limit


def test_a_namespace_shows_public_names():
    assert set(dir(dpgenerative)) == set(dpgenerative.__all__)


def test_no_import_hides_in_a_string():
    """Only the package's own front door imports by name, and its names are real.

    Accounting imports files of Opacus by name, the command line modules that its user
    names, and neither imports the package's.
    """
    hidden = [
        module
        for module, path in MODULES.items()
        if "import_module" in path.read_text(encoding="utf-8")
        or "__import__" in path.read_text(encoding="utf-8")
    ]
    assert hidden == ["cli", "privacy.accounting"]
    source = MODULES["cli"].read_text(encoding="utf-8")
    assert source.count("import_module(") == 1
    assert (
        "for module in options.modules:\n            importlib.import_module(module)"
        in (source)
    )
    source = MODULES["privacy.accounting"].read_text(encoding="utf-8")
    assert source.count("import_module(") == 1
    assert 'import_module(f"{name}.analysis.prv")' in source
    assert set(dpgenerative._HOMES.values()) <= set(MODULES)


@pytest.mark.parametrize(
    ("importer", "statement", "imported"),
    [
        ("tables.schema", "import dpgenerative.encoding", "encoding"),
        ("tables.schema", "from dpgenerative import layers", "layers"),
        ("tables.schema", "from dpgenerative import Schema", ""),
        ("tables.schema", "def f():\n    from .. import layers", "layers"),
        ("privacy.noise", "from ..encoding.grid import x", "encoding.grid"),
        ("models.flow", "from dpgenerative.fitting.loop import train", "fitting.loop"),
        ("metrics.fidelity", "import dpgenerative.audit as a", "audit"),
        ("datasets", "from dpgenerative.metrics.utility import x", "metrics.utility"),
        ("nowhere", "from dpgenerative.tables.schema import Schema", "tables.schema"),
        ("fitting.loop", "from dpgenerative.nowhere import x", "nowhere"),
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
        ("models.hflow", "models.flow"),
        ("models.flow", "privacy.plan"),
        ("synthesizers", "tables.schema"),
        ("metrics.plots", "metrics.fidelity"),
        ("datasets", "tables.schema"),
    ],
)
def test_the_rule_allows_what_it_should(importer, imported):
    assert is_allowed(importer, imported)


OPENERS = {
    "privacy.noise": "the door",
    "privacy.sampling": "the sampler",
    "tables.rows": "the reader of chunks",
    "encoding.transformer": "the encoder, of which dtypes are public",
    "persistence.checkpoint": "compares the rows of a fit that goes on by digests",
    "audit.training": "audits know the rows that they train on",
}
"""Modules that may read what is private, and why."""


def opens(source):
    """Return whether a source reads the value of a `Private`."""
    nodes = list(ast.walk(ast.parse(source)))
    imported = any(isinstance(n, ast.alias) and n.name == "opened" for n in nodes)
    read = (n.attr for n in nodes if isinstance(n, ast.Attribute))
    return imported or not {"opened", "_value"}.isdisjoint(read)


def test_private_rows_are_read_by_few_modules():
    found = {m for m, path in MODULES.items() if opens(path.read_text("utf-8"))}
    assert found == {"tables.private", *OPENERS}


@pytest.mark.parametrize(
    "source",
    [
        "from dpgenerative.tables.private import opened",
        "from dpgenerative.tables.private import opened as read",
        "from dpgenerative.tables import private\nn = len(private.opened(rows))",
        "n = len(rows._value)",
    ],
)
def test_reading_private_rows_is_noticed(source):
    assert opens(source)
    assert not opens("def opened():\n    return 1\n\nopened()")
