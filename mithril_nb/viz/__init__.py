"""Pure renderers from data to text. They import neither a widget nor JAX.

Importing this package registers the renderers, so every `Shown` value has a picture and a text in a notebook.
"""

from __future__ import annotations

from mithril_nb.display import render
from mithril_nb.viz.bundles import bundle

render.register(object, bundle)
