"""A text file that another program, such as an editor, may change while a widget shows it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

_LOOK_S = 0.5


class FollowedFile:
    """Calls a method with the text of a file after each change of the text on disk, from a thread.

    Args:
        path: The file. While it is missing or unreadable, such as during a save, its last text counts.
        text: The text that was read last.
        apply: The method. The thread ends with its object.
    """

    def __init__(self, path: Path, text: str, apply: weakref.WeakMethod[Callable[[str], None]]):
        self._path, self._text, self._apply = path, text, apply
        self._ends = threading.Event()
        threading.Thread(target=self._look, name="mithril_nb file", daemon=True).start()

    def stop(self) -> None:
        """Follow the file no longer."""
        self._ends.set()

    def _look(self) -> None:
        seen: tuple[int, int] | None = None
        while not self._ends.wait(_LOOK_S) and self._apply() is not None:
            try:
                state = os.stat(self._path)
                if (state.st_mtime_ns, state.st_size) == seen:
                    continue
                text = self._path.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            seen = state.st_mtime_ns, state.st_size
            if text != self._text:
                self._text = text
                self._pass_on(text)

    def _pass_on(self, text: str) -> None:
        # In a function of its own: a variable of the loop would keep the object alive.
        if (apply := self._apply()) is not None:
            apply(text)
