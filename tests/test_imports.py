"""What an import loads: torch and its like only where they are used."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dpgenerative

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch", "torch._dynamo", "opacus", "sdmetrics", "matplotlib", "sklearn", "scipy",
)  # fmt: skip


def loaded_by(code):
    """Return the heavy packages that a fresh interpreter has loaded after `code`."""
    last = f"print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{last}"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1].split()


def test_help_loads_nothing_heavy():
    code = "from dpgenerative.cli import main\nmain(['--help'])\nmain(['fit', '-h'])"
    assert loaded_by(code) == []


def test_a_schema_loads_nothing_heavy():
    code = "import dpgenerative as d\nd.Schema([d.Column('a', 'integer')])"
    code += "\nassert d.LessEqual"  # without an import of its own
    assert loaded_by(code) == []


@pytest.mark.thorough
def test_metrics_do_without_torch():
    code = "from dpgenerative.metrics import marginal_distance"
    assert not {"torch", "opacus", "sdmetrics"} & set(loaded_by(code))


@pytest.mark.thorough
def test_loading_and_sampling_do_without_the_accountant():
    code = "from dpgenerative import load, DPHFlowSynthesizer, DPVAESynthesizer"
    found = loaded_by(code)
    assert "torch" in found
    assert not {"opacus", "sdmetrics", "matplotlib"} & set(found)


@pytest.mark.thorough
def test_a_fit_loads_neither_a_compiler_nor_all_of_opacus():
    code = """
import pandas as pd
from dpgenerative import DPHFlowSynthesizer
rows = pd.DataFrame({"a": [0.5] * 2000, "b": [True, False] * 1000})
DPHFlowSynthesizer(n_steps=3).fit(rows)
"""
    assert not {"torch._dynamo", "opacus", "sdmetrics"} & set(loaded_by(code))


def test_every_name_is_there():
    names = set(dpgenerative.__all__)
    assert names <= set(dir(dpgenerative))
    things = {name: getattr(dpgenerative, name) for name in names - {"__version__"}}
    copies = {name: pickle.loads(pickle.dumps(thing)) for name, thing in things.items()}
    assert [name for name in things if copies[name] is not things[name]] == []


def test_type_checkers_see_the_same_names():
    tree = ast.parse(Path(dpgenerative.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.asname: line.module for line in block.body for alias in line.names}
    homes = dpgenerative._HOMES.items()
    assert seen == {name: f"dpgenerative.{home}" for name, home in homes}


def test_files_that_are_no_code_are_installed():
    package = ROOT / "dpgenerative"
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = stated["tool"]["setuptools"]["package-data"]["dpgenerative"]
    installed = {path for pattern in patterns for path in package.glob(pattern)}
    assert package / "py.typed" in installed
    files = {path for path in package.rglob("*") if path.is_file()}
    assert installed == {path for path in files if path.suffix not in (".py", ".pyc")}


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match=r"'dpgenerative' has no .* 'nowhere'"):
        _ = dpgenerative.nowhere
