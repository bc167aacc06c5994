"""Printing for all commands: error messages, and text whose control characters are escaped."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mithril_nb.atomic_write import write_text
from mithril_nb.display import for_stdout
from mithril_nb.errors import Diagnostic, ModelFileError
from mithril_nb.viz.text import visible

FAILED = 2
"""Exit code of user errors, as in argparse."""


def complain(diagnostics: Sequence[Diagnostic]) -> None:
    """Print an error to stderr."""
    for diagnostic in diagnostics:
        print(f"{diagnostic.code}: {diagnostic}", file=sys.stderr)


def check_output(path: str) -> None:
    """Raise if the folder of an output file does not exist, before a compilation, which may take long."""
    if not Path(path).parent.is_dir():
        raise _cannot_write(path, os.strerror(errno.ENOENT))


def write_output(path: str, text: str) -> None:
    """Write a file, and print its size."""
    try:
        write_text(path, text)
    except OSError as error:
        raise _cannot_write(path, error.strerror or str(error)) from error
    print(f"wrote {path}, {len(text.encode()) / 1000:.0f} kB")


def _cannot_write(path: str, reason: str) -> ModelFileError:
    return ModelFileError(f"cannot write {path!r}.", (("because", reason),))


def say(text: str) -> None:
    """Print text with control characters escaped."""
    # A name in a file may contain escape codes, which would move the cursor or rewrite earlier lines.
    print(for_stdout(visible(text.rstrip("\n"))))


def say_json(data: Any) -> None:
    """Print data as JSON, in ASCII."""
    print(json.dumps(data, allow_nan=False))  # NaN is no JSON, and `jq` and JavaScript reject it
