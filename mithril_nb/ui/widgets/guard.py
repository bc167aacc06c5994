"""The decorator for all handlers of a widget.

Jupyter hides exceptions of handlers: they appear neither in the notebook nor in the server's log. The decorator adds
them to `wb.errors`, and shows them in the widget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mithril_nb.ui.session.design.analysis import problem_of


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
