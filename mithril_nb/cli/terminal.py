"""Printing for all commands: error messages, and text whose control characters are escaped."""

from __future__ import annotations

import ast
import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.display import for_stdout
from mithril_nb.errors import Diagnostic
from mithril_nb.viz.text import visible

FAILED = 2
"""Exit code of user errors, as in argparse."""


_COMMANDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r'(?:print\()?inspection\.stage\("(\w+)"\).*'), lambda match: f"--stage {match[1]}"),
    (re.compile(r'inspection\.cost\(source="\w+"\).*'), lambda match: "--stage cost"),
    (re.compile(r'static_argnames="(\w+)"'), lambda match: f"--static {match[1]}"),
    (re.compile(r'jax\.ShapeDtypeStruct\(\(([\d, ]*)\), "float32"\).*'), lambda match: _array(match[1])),
    (re.compile(r"ml\.compare\(ml\.inspect\(model, shapes=.*"), lambda match: "--shape input=32,784"),
    (re.compile(r"ml\.inspect\(('.*')\)"), lambda match: f"mithril-nb show {shlex.quote(ast.literal_eval(match[1]))}"),
)
"""Patterns of advice in Python, each with a function that returns the equivalent option or command."""


def complain(diagnostics: Sequence[Diagnostic]) -> None:
    """Print an error to stderr, with advice for the terminal."""
    for diagnostic in diagnostics:
        translated = replace(diagnostic, advice=_command(diagnostic.advice))
        print(f"{diagnostic.code}: {translated}", file=sys.stderr)


def _command(advice: str) -> str:
    matches = ((pattern.fullmatch(advice), command) for pattern, command in _COMMANDS)
    return next((command(match) for match, command in matches if match is not None), advice)


def _array(sizes: str) -> str:
    return f'--arg "f32[{",".join(re.findall(r"[0-9]+", sizes))}]"'


def with_commands(text: str) -> str:
    """Rewrite the advice after each `Try:` of a text from Python to options of the command line.

    Examples:
        >>> with_commands('Try: static_argnames="n"')
        'Try: --static n'
    """
    return re.sub(r"\bTry: (.*)", lambda match: f"Try: {_command(match[1])}", text)


def say(text: str) -> None:
    """Print text with control characters escaped."""
    print(for_stdout(visible(text.rstrip("\n"))))


def say_json(data: Any) -> None:
    """Print data as JSON, in ASCII."""
    print(json.dumps(data, allow_nan=False))
