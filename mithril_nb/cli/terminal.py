"""What all commands print with: messages, and text that cannot steer the terminal."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.viz.escape import visible

FAILED = 2
"""Exit code when something that the person asked for cannot be done; also argparse's own."""


_COMMANDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r'(?:print\()?inspection\.stage\("(\w+)"\).*'), lambda found: f"--stage {found[1]}"),
    (re.compile(r'inspection\.cost\(source="\w+"\).*'), lambda found: "--stage cost"),
    (re.compile(r"ml\.inspect\(('.*')\)"), lambda found: f"mithril-nb show {shlex.quote(ast.literal_eval(found[1]))}"),
)
"""Advice in Python, and the option or command that does the same."""


def complain(diagnostics: Sequence[Diagnostic]) -> None:
    """Print what is wrong to stderr, with advice for the terminal."""
    for diagnostic in diagnostics:
        print(f"{diagnostic.code}: {_in_terminal(diagnostic)}", file=sys.stderr)


def _in_terminal(diagnostic: Diagnostic) -> Diagnostic:
    for pattern, command in _COMMANDS:
        found = pattern.fullmatch(diagnostic.advice)
        if found is not None:
            return replace(diagnostic, advice=command(found))
    return diagnostic


def say(text: str) -> None:
    """Print a text; characters that a terminal acts on come out as escapes."""
    print(visible(text.rstrip("\n")))


def say_json(data: Any) -> None:
    """Print data as JSON, in ASCII."""
    print(json.dumps(data, allow_nan=False))
