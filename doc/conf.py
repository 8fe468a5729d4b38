import ast
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dpgenerative import __version__  # noqa: E402

project = "dpgenerative"
author = "the dpgenerative developers"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
default_role = "code"
# As a plain list: names like privacy_ keep their underscore.
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_google_docstring = False
napoleon_preprocess_types = False
napoleon_use_rtype = False

html_theme = "alabaster"
html_theme_options = {
    "description": "Differentially private synthetic tables",
    "page_width": "1080px",
    "sidebar_width": "230px",
}
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_math_renderer = "mathml"


PICTURES = {
    "attack": "attack.png",
    "grid_search": "curve.png",
    "images": "digits.png",
    "quickstart": "marginals.png",
}


def write_gallery(app):
    """Write a page for every script in examples: what it says, a picture, its code."""
    folder = ROOT / "doc" / "gallery"
    folder.mkdir(exist_ok=True)
    for script in sorted((ROOT / "examples").glob("*.py")):
        tree = ast.parse(script.read_text(encoding="utf-8"))
        title, *paragraphs = ast.get_docstring(tree).split("\n\n")
        title = title.rstrip(".")
        parts = [title, "=" * len(title), ""]
        for text in paragraphs:
            # What is indented is a command.
            parts += [".. code-block:: bash", ""] if text.startswith(" ") else []
            parts += [text, ""]
        if script.stem in PICTURES:
            parts += [
                f".. image:: ../_static/{PICTURES[script.stem]}",
                f"   :alt: {title}",
                "",
            ]
        parts += [
            f".. literalinclude:: ../../examples/{script.name}",
            f"   :lines: {tree.body[0].end_lineno + 2}-",
            "",
        ]
        page, content = folder / f"{script.stem}.rst", "\n".join(parts)
        if not page.exists() or page.read_text(encoding="utf-8") != content:
            page.write_text(content, encoding="utf-8")


def write_inline_math(writer, node):
    writer.body.append(str(tex2mathml(node.astext(), as_block=False)))
    raise nodes.SkipNode


def write_math(writer, node):
    """Write MathML, which browsers show without scripts and without a network."""
    formula = str(tex2mathml(node.astext(), as_block=True))
    writer.body.append(f'<div class="math">{formula}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (write_inline_math, None), (write_math, None))
    app.connect("builder-inited", write_gallery)
