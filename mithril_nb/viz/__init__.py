"""Pure functions from data to text, SVG and HTML. Importing this package imports neither widgets nor JAX.

`renderers/` registers these functions for the types of the other rooms, in one file for each kind of value.
"""

from __future__ import annotations

import importlib

from mithril_nb.viz.bundles import bundle

__all__ = ["bundle", "load_renderers"]

_RENDERERS_OF_ROOM = {
    "analysis": "costs",
    "compilation": "stages",
    "cost": "costs",
    "graph": "graphs",
    "inspection": "stages",
    "models": "graphs",
    "stages": "stages",
    "train": "training",
    "viz": "graphs",
}
"""File in `renderers/` for the values of each room. It is imported on demand, because some rooms import JAX."""


def load_renderers(of: type) -> None:
    """Import the file that registers the renderers of a type; nothing for a type of another package."""
    for room, name in _RENDERERS_OF_ROOM.items():
        if of.__module__.startswith(f"mithril_nb.{room}."):
            importlib.import_module(f"mithril_nb.viz.renderers.{name}")
