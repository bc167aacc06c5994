"""Parts of emitted Python files: helper functions that they contain, lists of names, titles."""

from __future__ import annotations

import ast
import base64
import re
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from mithril_nb.emission.names import comment
from mithril_nb.emission.program import Function, Program, Value
from mithril_nb.emission.source import Source

_NUMBERS = count()
LONGEST_LINE = 120
Helpers = Mapping[str, tuple[str, tuple[str, ...]]]
"""The source of functions and classes by name, with the names that each uses."""


def read_helpers(paths: Iterable[Path]) -> Helpers:
    """Return the functions and classes of some files."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [(text, node) for text in texts for node in ast.parse(text).body if isinstance(node, kinds)]
    names = {one.name for _, one in nodes}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for text, one in nodes:
        used = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)} & names - {one.name}
        found[one.name] = (ast.get_source_segment(text, one) or "", tuple(sorted(used)))
    return found


def used_helpers(known: Helpers, wanted: Iterable[str]) -> list[str]:
    """Return the names of helpers and of those that they use, in the order of their files."""
    waiting, used = sorted(wanted), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += known[name][1]
    return [name for name in known if name in used]


def encoded(array: Any) -> str:
    """Return an expression for the items of a large array, in one line of text."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    decoded = f"np.frombuffer(zlib.decompress(base64.b64decode({data!r})), np.{array.dtype.name})"
    return f"{decoded}.reshape({array.shape})"


def program_arguments(program: Program) -> tuple[str, ...]:
    """Return the names of the arguments of the last function of a file: those of the program that have arrays."""
    return tuple(dict.fromkeys(leaf.argument for leaf in program.inputs))


def listed(start: str, names: list[str], end: str, used: int) -> str:
    """Join names; many names get lines of their own, between `start` and `end`.

    Args:
        start: What opens them on several lines.
        names: The names.
        end: What closes them.
        used: Number of characters of the line around them.
    """
    text = ", ".join(names)
    if len(text) + used <= LONGEST_LINE - 8:
        return text
    lines = textwrap.wrap(f"{text},", LONGEST_LINE - 12)
    return f"{start}\n    " + "\n    ".join(lines) + f"\n{end}"


def joined_shapes(shown: Iterable[str]) -> str:
    """Return the shapes of some results for a comment.

    Examples:
        >>> joined_shapes(["(2, 3)", "(2, 3)"]), joined_shapes(["(2, 3)", "()"])
        ('(2, 3) each', '(2, 3), ()')
    """
    shapes = list(shown)
    return f"{shapes[0]} each" if len(shapes) > 1 and len(set(shapes)) == 1 else ", ".join(shapes)


def title_of(function: Function) -> str:
    """Return the first line of the docstring of a function: its blocks, its part of a step, notes on its results."""
    blocks = ", ".join(function.blocks[:4]) + (", ..." if len(function.blocks) > 4 else "")
    role = {"forward": "forward", "backward": "gradients", "update": "update"}.get(function.role or "", "")
    outputs = [one.name for one in function.outputs if isinstance(one, Value)]
    if function.role == "forward" and not all(map(function.is_result, function.outputs)):
        role += "; also returns what the gradients use"
    elif function.role == "backward" and not any(_is_of_input(name, function) for name in outputs):
        role += "; that of the input is not needed"
    elif any(one.name.startswith("d_input_so_far") for one in function.inputs):
        role += "; d_input_so_far is the gradient from the other uses of the input"
    return f"{comment(blocks)}{f': {role}' if role else ''}."


def _is_of_input(name: str, function: Function) -> bool:
    """Return whether a name is that of the gradient of an array that the block receives."""
    return re.sub(r"^d_(.*?)(_\d+)?$", r"\1", name) in ("input", *function.ports) or name[2:] in function.ports


def load(source: Source) -> Callable[..., Any]:
    """Return the last function of an emitted Python file: the whole program."""
    module = ModuleType(f"mithril_nb_emitted_{next(_NUMBERS)}")
    if source.name.endswith("_torch"):
        sys.modules[module.__name__] = module  # torch.compile imports the modules of the functions that it traces
    exec(compile(source.text, f"<{source.name}>", "exec"), module.__dict__)
    return getattr(module, source.function)
