"""Pages of the documentation do what they say."""

from __future__ import annotations

import doctest
import io
import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from dpgenerative import Impossible, LessEqual, __version__
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


def test_the_version_to_cite_is_this_one():
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {__version__}\n" in text


def test_every_page_is_reached():
    reached = set().union(*(listed(name) for name in ("index", "guide")))
    assert reached | {"index"} == {page.stem for page in DOC.glob("*.rst")}


def test_rows_in_the_readme_fit_its_schema():
    pytest.importorskip("statsmodels")
    (code,), (printed,) = (blocks("../README.rst", x) for x in ("python", "text"))
    names = {}
    exec(code[: code.index("synth =")], names)
    rows = pd.read_csv(io.StringIO(printed), sep=r"\s+")
    assert rows.shape == (6, 3)
    assert names["schema"].check(rows).empty


def test_the_readme_is_short():
    assert len((ROOT / "README.rst").read_text(encoding="utf-8").split()) <= 900


@pytest.mark.parametrize("page", ["README.rst", "benchmarks/README.rst"])
def test_links_lead_to_files(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    paths = re.findall(r"<([\w./]+)>`__", text)
    assert len(paths) > 10
    for path in paths:
        assert (ROOT / page).parent.joinpath(path).is_file(), path


def test_naive_intervals_on_pages_are_those_of_the_records():
    lines = (ROOT / "benchmarks/results/coverage.md").read_text("utf-8").splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if "|" in line]
    found = pd.DataFrame(rows[2:], columns=rows[0]).astype({"naive": float})
    recorded = found.groupby(["law", "rows", "epsilon"])["naive"].mean().to_list()
    page = (DOC / "inference.rst").read_text("utf-8")
    stated = re.findall(
        r"(?:\.\d\d +){2}(\.\d\d) +(?:\d\.\d|none) +\.\d\d$", page, re.M
    )
    assert len(stated) > 10
    assert sorted(map(float, stated)) == pytest.approx(sorted(recorded), abs=0.006)
    low, high = min(stated)[1:], max(stated)[1:]
    for name in ("README.rst", "doc/faq.rst"):
        words = " ".join((ROOT / name).read_text("utf-8").split())
        assert f"{low} to {high} % of true results" in words


def test_every_picture_is_on_a_page():
    text = "".join(page.read_text("utf-8") for page in DOC.glob("*.rst"))
    for picture in (DOC / "_static").glob("*.png"):
        assert f"_static/{picture.name}" in text, picture


def test_every_trial_on_the_page_about_defaults_has_its_file():
    page = (DOC / "defaults.rst").read_text(encoding="utf-8")
    trials = ROOT / "benchmarks" / "results" / "trials"
    assert {path.name for path in trials.iterdir()} >= set(
        re.findall(r"``(\w+\.rst)``", page)
    )


def ways():
    """Return the files of every way from `fit` to the noise, with what they define."""
    text = (DOC / "design.rst").read_text("utf-8")
    text = text.split("A row's way from ")[1].split("These files are not steps")[0]
    start, *others = re.split(r"\n\*(?=The )", text)
    step = re.compile(r"^\d\. ``([\w/]+\.py)``: (.*(?:\n   .*)*)", re.M)
    return [step.findall(start) + step.findall(way) for way in others]


def test_a_way_to_the_noise_has_eight_files_at_most_each_once():
    assert len(ways()) == 8  # kinds of releases
    for way in ways():
        files = [file for file, _ in way]
        assert len(files) == len(set(files)) <= 8
        assert files[0] == "synthesizers/session.py"
        assert files[-1] == "privacy/noise.py"
        for file, words in way:
            source = (ROOT / "dpgenerative" / file).read_text("utf-8")
            named = [n.split(".")[-1] for n in re.findall(r"(?<!`)`([\w.]+)`", words)]
            assert any(f"def {n}(" in source or f"class {n}" in source for n in named)
