"""The base of all widgets: the front end's code, and handlers whose errors are shown.

anywidget sends and saves `_esm` with every instance. Jupyter resolves references between widgets, so one hidden widget
holds the large bundle there, and the others have a loader of a few hundred bytes. Other hosts of anywidget, such as
marimo, do not resolve references and never create the hidden widget. There, each widget contains all code.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import anywidget
import traitlets
from IPython import get_ipython
from ipywidgets import widget_serialization

from mithril_nb.ui.session.analysis import problem_of
from mithril_nb.viz.built import built


class Assets(anywidget.AnyWidget):
    """Holds the bundle. It displays nothing itself."""

    def __init__(self):
        self._esm = built("assets.js")
        super().__init__()


def is_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel, whose pages resolve references between widgets."""
    return getattr(get_ipython(), "kernel", None) is not None


class FrontEndWidget(anywidget.AnyWidget):
    """Base class of the widgets, which adds their front-end code.

    Args:
        module: Name of the built module that renders it.
        traits: Initial values of its traits.
    """

    assets = traitlets.Instance(anywidget.AnyWidget, allow_none=True).tag(sync=True, **widget_serialization)

    def __init__(self, module: str, **traits: Any):
        is_shared = is_jupyter()
        self._esm = built(module) if is_shared else _with_bundle(module)
        super().__init__(assets=shared_assets() if is_shared else None, **traits)


@cache
def _with_bundle(module: str) -> str:
    """Return a module that loads the bundle before the module that renders a widget."""
    bundle, widget = (
        f'"data:text/javascript;base64,{b64encode(built(name).encode()).decode()}"' for name in ("assets.js", module)
    )
    load = "assets.initialize();\nexport default widget;\n"
    return f"import assets from {bundle};\nimport widget from {widget};\n{load}"


@cache
def shared_assets() -> Assets:
    """Return the assets widget of this kernel, created once."""
    return Assets()


def shown_in_widget(handler: Callable[..., None]) -> Callable[..., None]:
    """Wrap a handler: add its errors to the session's errors and show them as a notice."""

    @wraps(handler)
    def guarded(self: Any, *args: Any) -> None:
        try:
            handler(self, *args)
        except Exception as error:
            self.session.errors.append(error)
            notice = {**problem_of(error).to_dict(), "kind": "error"}
            self.snapshot = {**self.snapshot, "notice": notice}

    return guarded
