"""The base of all widgets: the front end's code, commands and replies, and handlers whose errors are shown.

anywidget sends and saves the code, `_esm`, with every widget. In Jupyter, widgets can refer to each other: one hidden
widget holds the large bundle, and the others have a loader of a few hundred bytes. In other hosts of anywidget, such as
marimo, widgets cannot refer to each other, so each widget contains all code.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any

import anywidget
import traitlets
from IPython import get_ipython
from ipywidgets import widget_serialization

from mithril_nb.errors import Diagnostic
from mithril_nb.ui.session.commands import problem_data, problem_of
from mithril_nb.ui.widgets.cells import forget
from mithril_nb.ui.widgets.static_fallback import StaticFallback, live_bundle
from mithril_nb.viz.html_parts import built
from mithril_nb.viz.text import encodable


class Assets(anywidget.AnyWidget):
    """Holds the JavaScript bundle for all widgets of a kernel."""

    def __init__(self):
        self._esm = built("assets.js")
        super().__init__()


def is_jupyter() -> bool:
    """Return whether this process is a Jupyter kernel, so that widgets can refer to each other."""
    return getattr(get_ipython(), "kernel", None) is not None


class FrontEndWidget(anywidget.AnyWidget):
    """Base class of the widgets."""

    assets = traitlets.Instance(anywidget.AnyWidget, allow_none=True).tag(sync=True, **widget_serialization)
    # The widget's id, with which its front end creates a second view.
    own_id = traitlets.Unicode().tag(sync=True)

    def __init__(self, module: str, fallback: StaticFallback, **traits: Any):
        self._twin = fallback
        self._is_attended = False  # whether a page has sent a command
        self._unlisten: Callable[[], None] = lambda: None
        is_shared = is_jupyter()
        # Set this last: it may raise, and then the garbage collector closes the incomplete widget.
        self._esm = built(module) if is_shared else _with_bundle(module)
        super().__init__(assets=shared_assets() if is_shared else None, **traits)
        self.own_id = self.model_id or ""
        self.on_msg(self._receive)

    @property
    def errors(self) -> list[BaseException]:
        """Errors of handlers and threads, latest last."""
        return self._twin.errors

    def replace(self) -> None:
        """Close the widget because a newer run of its cell has created another one."""
        try:
            self.send({"type": "replaced"})
            self._twin.replace()
        finally:
            self._close(is_replaced=True)

    def close(self) -> None:
        """Cancel the widget's work and close it."""
        self._close(is_replaced=False)

    def _close(self, *, is_replaced: bool) -> None:
        forget(self)
        self._unlisten()
        self._end(is_replaced=is_replaced)
        self._twin.end()
        self.layout.close()  # a separate widget, which ipywidgets leaves open
        super().close()

    def _end(self, *, is_replaced: bool) -> None:
        """End the work of the widget."""

    def _receive(self, _widget: Any, content: Mapping[str, Any], _buffers: Sequence[Any]) -> None:
        if content.get("type") == "command":
            self._is_attended = True
            self._execute(content.get("id"), str(content.get("name")), content.get("args") or {})

    @abstractmethod
    def _execute(self, id: Any, name: str, args: Mapping[str, Any]) -> None:
        """Execute a command of the front end, and reply to it."""

    def _reply(self, id: Any, problem: Diagnostic | None) -> None:
        self.send({"type": "reply", "id": id, "ok": problem is None, "error": problem and problem_data(problem)})

    def get_state(self, key: Any = None, drop_defaults: bool = False) -> dict[str, Any]:
        """Return the state as UTF-8 can encode it, because a name may contain half of a surrogate pair."""
        state = super().get_state(key, drop_defaults)
        try:  # this takes a tenth of the time of a copy
            json.dumps(state, ensure_ascii=False).encode()
        except (TypeError, UnicodeEncodeError):
            return encodable(state)
        return state

    def _send(self, msg: Any, buffers: Any = None) -> None:
        # `get_state` has returned the state of an update.
        super()._send(msg if msg["method"] == "update" else encodable(msg), buffers)

    def _ipython_display_(self) -> None:
        self._twin.show(*live_bundle(super()._repr_mimebundle_()))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        live, metadata = live_bundle(super()._repr_mimebundle_(include=include, exclude=exclude))
        return {**live, **self._twin.bundle()}, metadata


@cache
def _with_bundle(module: str) -> str:
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
            self._show({**self.snapshot, "notice": problem_data(problem_of(error))})

    return guarded
