"""The current notebook cell, the widgets created by its earlier runs, and interrupts of the kernel."""

from __future__ import annotations

import asyncio
import glob
import json
import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from IPython import get_ipython

from mithril_nb.train.run.handle import note_interrupt
from mithril_nb.ui.session.autosave import FOLDER
from mithril_nb.ui.widgets.static_fallback import STILL


@dataclass(frozen=True)
class NotebookCell:
    """The running cell."""

    # Path of the notebook when the kernel started; `None` if unknown. The user may have renamed the file.
    notebook: Path | None
    id: str  # the cell's id in the notebook, the same for each run
    run: str  # identifies this run of the cell

    def file(self, kind: type) -> Path:
        """Return the file in which the next widget of this run saves edits."""
        folder = self.notebook.parent if self.notebook else Path.cwd()
        stem = self.notebook.stem if self.notebook else "notebook"
        number = sum(isinstance(widget, kind) for widget in _made_by(self))
        id = re.sub(r"[^\w-]", "_", self.id)[-40:]
        end = f"-{id}{f'-{number}' if number else ''}.json"
        exact = folder / FOLDER / f"{stem}{end}"
        if exact.exists():
            return exact
        # The notebook may have been renamed since the file was written.
        matches = [path for path in exact.parent.glob(f"*{glob.escape(end)}") if not self._is_of_other(path, end)]
        return matches[0] if len(matches) == 1 else exact

    def saved_output(self, mime: str) -> dict[str, Any] | None:
        """Return data from the output of this cell in the saved notebook, with the time of the save as `saved_at`."""
        if self.notebook is None:
            return None
        try:
            cells = json.loads(self.notebook.read_text(encoding="utf-8"))["cells"]
            outputs = next(cell["outputs"] for cell in cells if cell.get("id") == self.id)
            (picture,) = [
                output["data"] for output in outputs if STILL in "".join(output.get("data", {}).get("text/html", ""))
            ]
            return {**picture[mime], "saved_at": self.notebook.stat().st_mtime}
        except Exception:  # the user's file may contain anything
            return None

    def _is_of_other(self, file: Path, end: str) -> bool:
        other = file.parent.parent / f"{file.name.removesuffix(end)}.ipynb"
        try:
            return f'"{self.id}"' in other.read_text(encoding="utf-8")
        except (OSError, ValueError):
            return other.exists()


class Replaceable(Protocol):
    """A widget that a newer run of its cell replaces."""

    @property
    def errors(self) -> list[BaseException]:
        """Errors of handlers and threads, latest last."""
        ...

    def replace(self) -> None:
        """Free everything except values that the user's code may still read."""


# For each id of a cell: the latest run of the cell, and the open widgets of that run.
_WIDGETS: dict[str, tuple[str, list[Replaceable]]] = {}


def current_cell() -> NotebookCell | None:
    """Return the running cell; `None` outside a notebook, or if the host does not identify cells."""
    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    header, metadata = parent.get("header") or {}, parent.get("metadata") or {}
    if shell is None or header.get("msg_type") != "execute_request" or not metadata.get("cellId"):
        return None
    # jupyter_server names the notebook in the environment, VS Code in the user's namespace.
    name = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
    path = Path(str(name)) if name else None
    return NotebookCell(
        path if path and path.parent.is_dir() else None, str(metadata["cellId"]), str(header.get("msg_id"))
    )


def replace_older() -> list[Replaceable]:
    """Call `replace` of each widget from an earlier run of the current cell, and return these widgets."""
    cell = current_cell()
    run, widgets = _WIDGETS.get(cell.id, ("", [])) if cell else ("", [])
    if cell is None or run == cell.run:
        return []
    _WIDGETS[cell.id] = cell.run, []
    for older in widgets:
        try:
            older.replace()
        except Exception as error:  # it must not affect the new widget or other old widgets
            older.errors.append(error)
    return widgets


def remember(widget: Replaceable) -> None:
    """Add a widget to those of the current run of the cell."""
    replace_older()
    cell = current_cell()
    if cell is not None:
        _made_by(cell).append(widget)


def forget(widget: Replaceable) -> None:
    """Remove a closed widget."""
    for _, widgets in _WIDGETS.values():
        if widget in widgets:
            widgets.remove(widget)


def _made_by(cell: NotebookCell) -> list[Replaceable]:
    run, widgets = _WIDGETS.get(cell.id, ("", []))
    return widgets if run == cell.run else []


_LOOK_S = 0.2


def report_interrupts() -> None:
    """From the end of this cell on, report interrupts of the kernel to runs that train in threads."""
    shell = get_ipython()
    if shell is not None and hasattr(shell, "kernel"):
        shell.events.register("post_run_cell", _after_cell)  # ignores a function that is already registered


def _after_cell(result: Any) -> None:
    if isinstance(result.error_in_exec, KeyboardInterrupt) and note_interrupt():
        print("Training continues in its own thread. Press Stop in its widget, or call run.stop().", file=sys.stderr)
    # Check once after each cell. In a kernel with another handler, a repeating timer would never end.
    with suppress(RuntimeError):  # without an event loop, nothing can be interrupted between cells
        asyncio.get_running_loop().call_later(_LOOK_S, _listen_between_cells)


def _listen_between_cells() -> None:
    # ipykernel ignores SIGINT between cells: after each cell, it restores the previous handler.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: note_interrupt())
