import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from dpgenerative import __version__  # noqa: E402

project = "dpgenerative"
author = "the dpgenerative developers"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
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
napoleon_preprocess_types = True
napoleon_use_rtype = False

html_theme = "alabaster"
html_theme_options = {"description": "Differentially private synthetic tables"}
html_static_path = ["_static"]


def write_gallery(app):
    """Write a page for every script in examples, with its picture if there is one."""
    folder = ROOT / "doc" / "gallery"
    folder.mkdir(exist_ok=True)
    for script in sorted((ROOT / "examples").glob("*.py")):
        tree = ast.parse(script.read_text(encoding="utf-8"))
        title = ast.get_docstring(tree).partition("\n")[0].rstrip(".")
        parts = [title, "=" * len(title), ""]
        if (ROOT / "doc" / "_static" / f"{script.stem}.png").exists():
            parts += [
                f".. image:: ../_static/{script.stem}.png",
                f"   :alt: {title}",
                "",
            ]
        parts += [f".. literalinclude:: ../../examples/{script.name}", ""]
        page, content = folder / f"{script.stem}.rst", "\n".join(parts)
        if not page.exists() or page.read_text(encoding="utf-8") != content:
            page.write_text(content, encoding="utf-8")


def setup(app):
    app.connect("builder-inited", write_gallery)
