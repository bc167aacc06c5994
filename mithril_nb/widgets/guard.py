"""The one decorator that every handler of a widget goes through.

Exceptions in handlers are shown nowhere by Jupyter: not in the notebook, not in the server's log. Here they are kept in
`wb.errors`, and shown in the widget.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from mithril_nb.session.analysis import problem_of


def shown_in_widget(handler: Callable[..., None]) -> Callable[..., None]:
    """Return the handler; what it raises is kept in the session's errors and shown as a notice."""

    @wraps(handler)
    def guarded(self: Any, *args: Any) -> None:
        try:
            handler(self, *args)
        except Exception as error:
            self.session.errors.append(error)
            notice = {**problem_of(error).to_dict(), "kind": "error"}
            self.snapshot = {**self.snapshot, "notice": notice}

    return guarded
