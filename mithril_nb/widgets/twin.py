"""The static twin of a live widget: a second output, which a page hides for as long as the widget lives.

Jupyter prefers a widget's own view to any picture beside it in the same output, also in a notebook that is opened again
with no kernel, where all it has to show is "model not found". A second output has a say of its own.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from IPython import get_ipython
from IPython.display import display, update_display

from mithril_nb.session.worker import Worker
from mithril_nb.stages.collector import paused_collector

_STILL_S = 2.0
"""For how long nothing must change before the twin is made anew: it is for those who come later, and is in no hurry."""
_LOOK_S = 0.1
_QUICK_S = 0.3
"""At least this long between two smaller pictures: a slider makes sixty changes a second."""
_NO_WAITING = (
    "<style>.jp-OutputArea-child:has(+ .jp-OutputArea-child .mnb-still) > "
    '.lm-Panel.jp-OutputArea-output:not(:has(.mnb-root, [role="alert"])) '
    "{ display: none; }</style>"
)
"""Where no kernel is, JupyterLab says "Loading widget..." above the twin for ever: nothing is on its way there."""
STILL = 'class="mnb-still"'
"""What the HTML of each static picture contains."""
_RUN = "A picture of what this cell showed. Run the cell to work with it."
_REPLACED = "Replaced: a newer run of the cell shows the current widget. This is a picture of the old one."


def _framed(html: str) -> str:
    """Return a picture that is hidden while its widget lives.

    The front end sets the variable; a variable also reaches into outputs in a shadow root.
    """
    return f'<div {STILL} style="display: var(--mnb-twin, block)">{_NO_WAITING}<p>{_RUN}</p>{html}</div>'


def _somebody_watches() -> bool:
    """Whether the cell was run in a page: pages can be asked for input, and nbconvert, papermill and nbval cannot."""
    parent = getattr(get_ipython(), "get_parent", dict)()
    return bool(parent.get("content", {}).get("allow_stdin"))


def live_bundle(found: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return data and metadata of a widget's own MIME bundle, in whichever of its forms it comes."""
    return found if isinstance(found, tuple) else (found or {}, {})


class Twin:
    """Shows a widget together with what remains of it in a saved notebook, and keeps that up to date.

    Args:
        bundle: Makes the static MIME bundle of the widget as it is now, on any thread.
        errors: Takes what goes wrong while nobody waits for the result.
        first: What stands there until the bundle is made, if making it takes long: somebody who watches wants the
            widget first. Nobody does when a whole notebook is run by a program, whose kernel ends with the last cell.
        quick: Makes a smaller bundle that is shown at once, while things change; `None` if it would show nothing new.
    """

    def __init__(
        self,
        bundle: Callable[[], Mapping[str, str]],
        errors: list[BaseException],
        first: Mapping[str, str] | None = None,
        quick: Callable[[], Mapping[str, Any] | None] = lambda: None,
    ):
        self._bundle, self._errors, self._id = bundle, errors, f"mithril-nb-{uuid.uuid4().hex}"
        self._first, self._quick = first, quick
        self._quick_due = 0.0
        self._worker = Worker("mithril-nb twin")
        self._shown: dict[str, Any] | None = None
        self._showing = threading.Lock()
        """Held while an update is sent: none follows after `replace` or `end`."""
        self._due = 0.0

    def show(self, live: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
        """Show the widget's own view, and its twin in an output of its own."""
        display(dict(live), metadata=dict(metadata), raw=True)
        is_later = self._first is not None and _somebody_watches()
        self._shown = dict(self._first or {}) if is_later else self._static(self._bundle)
        display(self._shown, raw=True, display_id=self._id)
        if is_later:
            self.refresh()

    def refresh(self) -> None:
        """Make the twin anew as soon as nothing has changed for a while; nothing is done before it is shown."""
        if self._shown is not None:
            self.put_off()
            self._worker.submit(self._update)

    def put_off(self) -> None:
        """Wait anew with what is to be made: somebody is at work, and making it takes Python's time from them."""
        self._due = time.monotonic() + _STILL_S

    def replace(self) -> None:
        """Label the picture as that of a replaced widget; a picture that is still being made is not shown."""
        with self._showing:
            shown, self._shown = self._shown, None
        if shown is not None and "text/html" in shown:
            html = shown["text/html"].replace(_RUN, _REPLACED, 1)
            update_display({**shown, "text/html": html}, raw=True, display_id=self._id)

    def end(self) -> None:
        """Leave the output unchanged from now on, without waiting for a picture that is being made."""
        with self._showing:
            self._shown = None
        self._worker.end(0)

    def _update(self, is_wanted: Callable[[], bool]) -> None:
        try:
            while time.monotonic() < self._due:
                if not is_wanted():
                    return
                self._show_quick()
                time.sleep(_LOOK_S)
            with (
                paused_collector()
            ):  # beside a large traced program it stops everything for as long as the picture takes
                fresh = self._static(self._bundle)
            if is_wanted():
                self._show(fresh)
        except Exception as error:  # an older picture is no reason to disturb anybody
            self._errors.append(error)

    def _show_quick(self) -> None:
        if time.monotonic() >= self._quick_due and (small := self._quick()) is not None:
            self._quick_due = time.monotonic() + _QUICK_S
            self._show(self._static(lambda: small))

    def _show(self, fresh: dict[str, Any]) -> None:
        with self._showing:
            if self._shown is not None and fresh != self._shown:
                self._shown = fresh
                update_display(fresh, raw=True, display_id=self._id)

    def _static(self, bundle: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        found = dict(bundle())
        html = found.get("text/html") or found.get("image/svg+xml")
        return found if html is None else {**found, "text/html": _framed(html)}
