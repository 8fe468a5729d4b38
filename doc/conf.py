import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from dpgenerative import __version__

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
