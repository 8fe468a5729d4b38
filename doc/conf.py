import os
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "doc" / "_ext")]
# Processes that an example starts find the package too, and need no display.
os.environ["PYTHONPATH"] = str(ROOT)
os.environ["MPLBACKEND"] = "Agg"

from dpgenerative import __version__  # noqa: E402

project = "dpgenerative"
author = "the dpgenerative developers"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build"]

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"
autosummary_generate = False
default_role = "code"
toc_object_entries_show_parents = "hide"
# As a plain list: names like privacy_ keep their underscore.
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_google_docstring = False
napoleon_preprocess_types = False
napoleon_use_rtype = False

EXAMPLES = [
    "quickstart.py",
    "conditional.py",
    "visits.py",
    "intervals.py",
    "domains.py",
    "attack.py",
    "privacy_budget.py",
    "pipeline.py",
    "grid_search.py",
    "cluster.py",
    "images.py",
    "hospital.py",
    "labour.py",
    "houses.py",
    "network.py",
    "air.py",
]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    # All run that have their data, and one that fails fails the build.
    "filename_pattern": "/" if "DPGENERATIVE_DATA" in os.environ else "/(?!network)",
    "within_subsection_order": EXAMPLES.index,
    "backreferences_dir": "gallery/uses",
    "doc_module": ("dpgenerative",),
    "capture_repr": ("_repr_html_",),  # the report's page
    "image_scrapers": ("matplotlib", "figures"),
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
}

html_title = "dpgenerative"
html_theme = "pydata_sphinx_theme"
html_theme_options = {
    "footer_center": [],
    "footer_end": [],
    "footer_start": ["copyright"],
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    "pygments_dark_style": "github-dark",
    "pygments_light_style": "tango",
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
}
html_sidebars = {page: [] for page in ("changelog", "evidence", "index", "quickstart")}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["page.css"]
html_math_renderer = "mathml"


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
