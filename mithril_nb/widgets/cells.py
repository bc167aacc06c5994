"""The notebook cell that runs, and the widgets that its earlier runs made."""

from __future__ import annotations

import glob
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from IPython import get_ipython

from mithril_nb.session.autosave import FOLDER
from mithril_nb.widgets.twin import STILL


@dataclass(frozen=True)
class Cell:
    """A cell that runs.

    Attributes:
        notebook: The notebook's file, which may have been renamed since the kernel started; `None` if unknown.
        id: The cell's id in the notebook, the same each time it runs.
        run: Identifies this run of the cell.
    """

    notebook: Path | None
    id: str
    run: str

    def file(self, kind: type) -> Path:
        """Return the file for the next widget that this run makes; the same file for the same widget of each run.

        Args:
            kind: Class of the widget; widgets of other classes do not change the file.

        Examples:
            >>> Cell(Path("work/digits.ipynb"), "3f2a", "1").file(object).as_posix()
            'work/.mithril_nb/digits-3f2a.json'
        """
        folder = self.notebook.parent if self.notebook else Path.cwd()
        stem = self.notebook.stem if self.notebook else "notebook"
        number = sum(isinstance(one, kind) for one in _made_by(self))
        id = re.sub(r"[^\w-]", "_", self.id)[-40:]
        end = f"-{id}{f'-{number}' if number else ''}.json"
        exact = folder / FOLDER / f"{stem}{end}"
        if exact.exists():
            return exact
        # The notebook may have had another name when the file was written.
        found = [path for path in exact.parent.glob(f"*{glob.escape(end)}") if not self._is_of_other(path, end)]
        return found[0] if len(found) == 1 else exact

    def saved_output(self, mime: str) -> dict[str, Any] | None:
        """Return the data of a MIME type in the saved output of this cell, with the time of the save as `saved_at`.

        Args:
            mime: The MIME type.

        Returns:
            The data; `None` if the cell's output has none, or shows several widgets, or the notebook cannot be read.
        """
        if self.notebook is None:
            return None
        try:
            cells = json.loads(self.notebook.read_text(encoding="utf-8"))["cells"]
            outputs = next(one["outputs"] for one in cells if one.get("id") == self.id)
            (picture,) = [one["data"] for one in outputs if STILL in "".join(one.get("data", {}).get("text/html", ""))]
            return {**picture[mime], "saved_at": self.notebook.stat().st_mtime}
        except Exception:  # the file is the user's: anything may be in it
            return None

    def _is_of_other(self, file: Path, end: str) -> bool:
        """Return whether the notebook that a file is named after exists and contains this cell: a copy does."""
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
        """Free everything but the values that code may still read."""


_WIDGETS: dict[str, tuple[str, list[Replaceable]]] = {}
"""By cell: its latest run, and the open widgets that this run made."""


def current_cell() -> Cell | None:
    """Return the cell that runs; `None` outside a notebook, or where the host does not identify cells."""
    shell = get_ipython()
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)()
    header, metadata = parent.get("header") or {}, parent.get("metadata") or {}
    if shell is None or header.get("msg_type") != "execute_request" or not metadata.get("cellId"):
        return None
    # jupyter_server names the notebook in the environment, VS Code in the user's namespace.
    name = os.environ.get("JPY_SESSION_NAME") or shell.user_ns.get("__vsc_ipynb_file__")
    path = Path(str(name)) if name else None
    return Cell(path if path and path.parent.is_dir() else None, str(metadata["cellId"]), str(header.get("msg_id")))


def replace_older() -> list[Replaceable]:
    """Replace the widgets that earlier runs of the current cell made, and return them.

    Errors of a widget are kept in its `errors`.
    """
    cell = current_cell()
    run, widgets = _WIDGETS.get(cell.id, ("", [])) if cell else ("", [])
    if cell is None or run == cell.run:
        return []
    _WIDGETS[cell.id] = cell.run, []
    for older in widgets:
        try:
            older.replace()
        except Exception as error:  # the new widget and the other old ones do not depend on it
            older.errors.append(error)
    return widgets


def remember(widget: Replaceable) -> None:
    """Add a widget to those that the current run of the cell made."""
    replace_older()
    cell = current_cell()
    if cell is not None:
        _made_by(cell).append(widget)


def forget(widget: Replaceable) -> None:
    """Leave a widget out that has been closed."""
    for _, widgets in _WIDGETS.values():
        if widget in widgets:
            widgets.remove(widget)


def _made_by(cell: Cell) -> list[Replaceable]:
    run, widgets = _WIDGETS.get(cell.id, ("", []))
    return widgets if run == cell.run else []
