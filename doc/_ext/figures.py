"""Pictures of examples that `pyplot` does not know, for sphinx-gallery."""

from __future__ import annotations

from typing import Any
from weakref import WeakSet

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

SAVED: WeakSet[Figure] = WeakSet()


def save(block: Any, block_vars: dict[str, Any], gallery_conf: dict[str, Any]) -> str:
    """Save the figures that a block of code leaves behind in its variables."""
    paths = []
    for value in block_vars["example_globals"].values():
        own = isinstance(value, Figure) and not hasattr(value, "number")
        if own and value not in SAVED:
            SAVED.add(value)
            paths.append(next(block_vars["image_path_iterator"]))
            value.savefig(paths[-1])
    return figure_rst(paths, gallery_conf["src_dir"])


def _get_sg_image_scraper() -> Any:
    return save
