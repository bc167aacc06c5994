"""The static fallback of a live widget: a second output, which the page hides while the widget is live.

In one output, Jupyter prefers the widget's view to a picture. Without a kernel, a reopened notebook would only show
"model not found". A second output is shown independently.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from IPython import get_ipython
from IPython.display import display, update_display

from mithril_nb.jobs import JobQueue, rests
from mithril_nb.stages.once import paused_collector

# Seconds without changes before the fallback is rendered again. Users see the fallback only after the session.
_STILL_S = 2.0
# Or this multiple of the time that the latest one took, at most: rendering 1,000 blocks slows down an edit meanwhile.
_TIMES_AS_LONG, _LONGEST_S = 5, 10.0
# Seconds without changes before a quick picture: the answer to an edit and a slider come first.
_QUICK_S = 0.3
# Hides "Loading widget...", which JupyterLab shows above the fallback forever without a kernel.
_NO_WAITING = (
    "<style>.jp-OutputArea-child:has(+ .jp-OutputArea-child .mnb-still) > "
    '.lm-Panel.jp-OutputArea-output:not(:has(.mnb-root, [role="alert"])) '
    "{ display: none; }</style>"
)
# Marks the HTML of each static picture.
STILL = 'class="mnb-still"'
_RUN = "Static picture of this cell's output. Run the cell to use the widget."
_REPLACED = "Replaced: a newer run of the cell shows the current widget. This is a picture of the old one."


def live_bundle(bundle: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return data and metadata of a widget's own MIME bundle, which may be a tuple, a dict or `None`."""
    return bundle if isinstance(bundle, tuple) else (bundle or {}, {})


class StaticFallback:
    """Shows a widget, and a static picture of it that stays in the saved notebook."""

    def __init__(
        self,
        bundle: Callable[[], Mapping[str, str]],
        errors: list[BaseException],
        first: Mapping[str, str] | None = None,
        quick: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ):
        self.bundle, self.errors, self._id = bundle, errors, f"mithril-nb-{uuid.uuid4().hex}"
        self._first, self._quick = first, quick
        self._worker = JobQueue("mithril-nb twin")
        self._shown: dict[str, Any] | None = None
        # Held while an update is sent, so that none follows `replace` or `end`.
        self._showing = threading.Lock()
        self._due, self._took_s = 0.0, 0.0
        self._changed = 0.0  # time of the first change that no picture shows; 0 if there is none

    def show(self, live: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Show the widget's own view, and its fallback in a separate output."""
        display(dict(live), metadata=dict(metadata), raw=True)
        parent = getattr(get_ipython(), "get_parent", dict)()
        # Only a page that runs a cell can answer `input`; nbconvert and the like cannot.
        is_later = self._first is not None and bool(parent.get("content", {}).get("allow_stdin"))
        self._shown = dict(self._first or {}) if is_later else self._rendered()
        display(self._shown, raw=True, display_id=self._id)
        if is_later:
            self.refresh()

    def refresh(self) -> None:
        """Render the fallback again after a while without changes."""
        if self._shown is not None:
            self.postpone()
            self._changed = self._changed or time.monotonic()
            self._worker.submit(self._update)

    def postpone(self) -> None:
        """Delay the next rendering, because the user is active and rendering would slow down Python."""
        self._due = time.monotonic() + max(_STILL_S, min(_TIMES_AS_LONG * self._took_s, _LONGEST_S))

    def replace(self) -> None:
        """Label the picture as the picture of a replaced widget, and discard a picture in progress."""
        with self._showing:
            bundle, self._shown = self._shown, None
        if bundle is not None and "text/html" in bundle:
            html = bundle["text/html"].replace(_RUN, _REPLACED, 1)
            update_display({**bundle, "text/html": html}, raw=True, display_id=self._id)

    def end(self) -> None:
        """Keep the output unchanged from now on, without waiting for a picture in progress."""
        with self._showing:
            self._shown = None
        self._worker.end()

    def _update(self, is_wanted: Callable[[], bool]) -> None:
        try:
            while time.monotonic() < self._due:
                # A slider or a run may change the widget several times a second for minutes.
                is_late = 0 < self._changed < time.monotonic() - _STILL_S
                if not rests(is_wanted, _QUICK_S) and not is_late:
                    return
                self._changed = 0.0
                if (small := self._quick()) is not None:
                    self._show(_static(small))
            with paused_collector():  # with a large traced program in memory, a collection takes as long as the picture
                fresh = self._rendered()
            if is_wanted():
                self._show(fresh)
        except Exception as error:  # keep the older picture
            self.errors.append(error)

    def _show(self, fresh: dict[str, Any]) -> None:
        with self._showing:
            if self._shown is not None and fresh != self._shown:
                self._shown = fresh
                update_display(fresh, raw=True, display_id=self._id)

    def _rendered(self) -> dict[str, Any]:
        since = time.thread_time()
        fresh = _static(self.bundle())
        self._took_s = time.thread_time() - since
        return fresh


def _static(bundle: Mapping[str, Any]) -> dict[str, Any]:
    html = bundle.get("text/html") or bundle.get("image/svg+xml")
    if html is None:
        return dict(bundle)
    framed = f'<div {STILL} style="display: var(--mnb-twin, block)">{_NO_WAITING}<p>{_RUN}</p>{html}</div>'
    return {**bundle, "text/html": framed}
