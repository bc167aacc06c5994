"""Pure functions from data to text, SVG and HTML. Importing this package imports neither widgets nor JAX.

The files in `renderers/` register these functions as the notebook display of costs, graphs, stages and training runs.
"""

from __future__ import annotations

import importlib

from mithril_nb.viz.bundles import bundle

__all__ = ["bundle", "load_renderers"]

# For each package of mithril_nb, the file in `renderers/` for its types. Files are imported late: some import JAX.
_RENDERERS_OF_ROOM = {
    "analysis": "costs",
    "compilation": "stages",
    "cost": "costs",
    "graph": "graphs",
    "hardware": "costs",
    "inspection": "stages",
    "models": "graphs",
    "stages": "stages",
    "teach": "teaching",
    "train": "training",
    "viz": "graphs",
}


def load_renderers(of: type) -> None:
    """Import the file that registers the renderers of a type. Types from outside mithril_nb have no such file."""
    for room, name in _RENDERERS_OF_ROOM.items():
        if of.__module__.startswith(f"mithril_nb.{room}."):
            importlib.import_module(f"mithril_nb.viz.renderers.{name}")
