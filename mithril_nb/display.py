"""The one door from a value up to its renderer: values know that they can be shown, never how.

`mithril_nb.viz` registers a renderer for each type; it is imported when something is shown for the first time.
"""

from __future__ import annotations

import importlib
from functools import singledispatch
from typing import Any


@singledispatch
def render(value: object) -> dict[str, str]:
    """Return the MIME bundle of a value: `text/plain`, and `image/svg+xml` or `text/html` where there is a picture."""
    return {"text/plain": repr(value)}


class Shown:
    """Mixin: gives a value a rich display in notebooks, made by the renderer that is registered for its type.

    `print` and `str` give the text of it.
    """

    def __str__(self) -> str:
        return self._repr_mimebundle_()["text/plain"]

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        importlib.import_module("mithril_nb.viz")
        return render(self)
