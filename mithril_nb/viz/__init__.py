"""Pure renderers from data to text, SVG and HTML. They import neither a widget nor JAX.

`renderers/` registers them for the types of the rooms below, in one file for each kind of value.
"""

from __future__ import annotations

import importlib

from mithril_nb.viz.bundles import bundle

__all__ = ["bundle", "load_renderers"]

_RENDERERS_OF_ROOM = {
    "cost": "costs",
    "graph": "graphs",
    "inspection": "stages",
    "measure": "measured",
    "models": "graphs",
    "physical": "physical",
    "retraces": "retraces",
    "stages": "stages",
    "train": "training",
    "viz": "pictures",
    "whatif": "whatif",
}
"""File in `renderers/` for the values of a room. A file is imported on demand, because some rooms import JAX."""


def load_renderers(of: type) -> None:
    """Import the renderers of a type, so that they are registered."""
    package, _, rest = of.__module__.partition(".")
    name = _RENDERERS_OF_ROOM.get(rest.partition(".")[0]) if package == "mithril_nb" else None
    if name is not None:
        importlib.import_module(f"mithril_nb.viz.renderers.{name}")
