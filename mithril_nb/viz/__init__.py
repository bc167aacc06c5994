"""Pure renderers: data in, text out. They know no widget and no JAX.

Importing this package registers them, so that every value that is `Shown` has a picture and a text in a notebook.
"""

from __future__ import annotations

from mithril_nb.display import render
from mithril_nb.viz.bundles import bundle

render.register(object, bundle)
