"""Full messages of errors, and transcripts: lines of code, each with the full message of the error that it raises."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from mithril_nb.errors import MithrilError

ERROR = re.compile(r"^\w+Error: ", re.MULTILINE)


def read_transcript(text: str) -> list[Any]:
    """Return the pairs of code and message in a transcript, in which a blank line separates the pairs.

    The message starts at the first line that starts with the name of an error.
    """
    pairs: list[Any] = []
    for paragraph in text.strip("\n").split("\n\n"):
        found = ERROR.search(paragraph)
        assert found, f"no message in {paragraph!r}"
        code = paragraph[: found.start()].strip()
        pairs.append(pytest.param(code, paragraph[found.start() :], id=code))
    return pairs


def message_of(run: str | Callable[[], object], names: dict[str, Any] | None = None) -> str:
    """Return the error that a function, or code with these names, raises: its type and its message."""
    with pytest.raises(MithrilError) as caught:
        exec(run, dict(names or {})) if isinstance(run, str) else run()
    return f"{type(caught.value).__name__}: {caught.value}"


def without_advice(text: str) -> str:
    """Return a message without the lines of its advice."""
    return "\n".join(line for line in text.splitlines() if line and not line.startswith("    Try: "))


def facts_of(run: str | Callable[[], object], names: dict[str, Any] | None = None) -> str:
    """Return the error that a function, or code with these names, raises: its type, and its message without advice."""
    return without_advice(message_of(run, names))
