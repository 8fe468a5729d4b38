"""Pages of the documentation do what they say."""

from __future__ import annotations

import doctest
import json
import re
import shlex
from pathlib import Path

import pytest

from dpgenerative import Impossible, LessEqual
from dpgenerative.cli import _parser
from dpgenerative.tables.constraints import constraint_from_dict
from dpgenerative.tables.drafts import MARK, unmarked_schema

ROOT = Path(__file__).parents[1]
DOC = ROOT / "doc"


def blocks(page, language):
    """Return the code blocks of one language on a page."""
    found = []
    lines = (DOC / page).read_text(encoding="utf-8").splitlines()
    for i, line in enumerate(lines):
        if line == f".. code-block:: {language}":
            code = []
            for text in lines[i + 2 :]:
                if text and not text.startswith("    "):
                    break
                code.append(text[4:])
            found.append("\n".join(code))
    return found


PAGES = sorted(p.name for p in DOC.glob("*.rst") if ">>> " in p.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES)
def test_examples_on_pages(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(DOC / page), module_relative=False)
    assert tried
    assert not failed


def test_every_command_on_the_page_is_one():
    commands = [
        line
        for code in blocks("cli.rst", "bash")
        for line in code.replace("\\\n", "").splitlines()
        if line
    ]
    assert len(commands) > 8
    for command in commands:
        program, *arguments = shlex.split(command, comments=True)
        assert program == "dpgenerative"
        _parser().parse_args(arguments)


def test_schemas_on_the_page():
    whole, draft, constraints = (json.loads(code) for code in blocks("cli.rst", "json"))
    assert len(unmarked_schema(whole, "page")) == 4
    assert MARK in draft
    assert [constraint_from_dict(each) for each in constraints["constraints"]] == [
        LessEqual("admitted", "discharged"),
        Impossible({"age": (None, 15), "licence": "yes"}),
    ]
    with pytest.raises(ValueError, match="is a draft"):
        unmarked_schema({"columns": [draft]}, "page")


def listed(name):
    """Return the pages that the tables of contents of a page list."""
    page = (DOC / f"{name}.rst").read_text(encoding="utf-8")
    blocks = re.findall(r"^\.\. toctree::\n((?: .*\n|\n)*)", page, re.MULTILINE)
    return set(re.findall(r"^   (?:.* <)?(\w+)>?$", "".join(blocks), re.MULTILINE))


def test_every_page_is_reached():
    reached = set().union(*(listed(name) for name in ("index", "guide", "depth")))
    assert reached | {"index"} == {page.stem for page in DOC.glob("*.rst")}
