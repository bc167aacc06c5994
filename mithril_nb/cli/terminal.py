"""What all commands print with: messages, and text that cannot steer the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.escape import visible

FAILED = 2
"""Exit code when something that the person asked for cannot be done; also argparse's own."""


def complain(diagnostics: Sequence[Diagnostic]) -> None:
    """Print what is wrong to stderr."""
    for diagnostic in diagnostics:
        print(f"{diagnostic.code}: {diagnostic}", file=sys.stderr)


def say(text: str) -> None:
    """Print a text; characters that a terminal acts on come out as escapes."""
    print(visible(text.rstrip("\n")))


def say_json(data: Any) -> None:
    """Print data as JSON, in ASCII."""
    print(json.dumps(data, allow_nan=False))
