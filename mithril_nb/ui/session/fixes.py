"""Buttons that mend a problem: advice in Python, as a command of the workbench."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.paths import component
from mithril_nb.ui.session.analysis import Analysis

Fix = dict[str, Any]
"""`label`, the text of the button, and `command` and `args`, which it sends."""


def problem_data(problem: Diagnostic, analysis: Analysis) -> dict[str, Any]:
    """Return a problem for a front end: advice in Python becomes the button `fix`, or is left out."""
    data, code = problem.to_dict(), problem.advice.partition("  #")[0]
    if not code and "shape of the labels does not match" in problem.summary:  # of images, not of tokens
        dtypes = [str(spec.dtype) for spec in analysis.inference.inputs.values()]
        code = "Flatten()" if all(dtype.startswith(("float", "bfloat")) for dtype in dtypes) else ""
    matches = ((pattern.search(code), fix_of) for pattern, fix_of in _FIXES)
    fixes = (fix_of(match, problem, analysis) for match, fix_of in matches if match)
    is_sentence = code.endswith(".") or "“" in code
    return {**data, "advice": data["advice"] if is_sentence else "", "fix": next(filter(None, fixes), None)}


def _command(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix | None:
    call = ast.parse(match[0], mode="eval").body
    assert isinstance(call, ast.Call)
    name = ast.literal_eval(call.args[0])
    args = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    labels: Mapping[str, Callable[[], str]] = {
        "set_shape": lambda: f"Set the shape to {_sizes(args['shape'])}",
        "connect": lambda: f"Connect {args['source']} to {args['target']}",
        "expand": lambda: f"Open {args['path']}",
    }
    return {"label": labels[name](), "command": name, "args": args} if name in labels else None


def _shape(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix | None:
    name, shape = next(iter(ast.literal_eval(match[1]).items()))
    return {
        "label": f"Set the shape to {_sizes(shape)}",
        "command": "set_shape",
        "args": {"name": name, "shape": shape},
    }


def _width(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix | None:
    path = next((path for path, kind in reversed(_blocks(analysis)) if kind == "Linear"), None)
    args = {"path": path, "name": "dimension", "value": int(match[1])}
    label = "Use 1 output" if match[1] == "1" else f"Use {match[1]} outputs"
    return {"label": label, "command": "set_attribute", "args": args} if path else None


def _flatten(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix | None:
    path = next((path for path, kind in _blocks(analysis) if kind == "Linear"), None)
    args = {"kind": "Flatten", "path": path}
    return {"label": f"Insert Flatten before {path}", "command": "insert_before", "args": args} if path else None


def _loss(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix:
    return {"label": f"Use {match[1].replace('_', ' ')}", "command": "set_loss", "args": {"loss": match[1]}}


def _output(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix:
    return {"label": f"Train on {match[1]}", "command": "set_output", "args": {"output": match[1]}}


def _attribute(match: re.Match[str], problem: Diagnostic, analysis: Analysis) -> Fix | None:
    if not problem.block:
        return None
    args = {"path": problem.block, "name": match[1], "value": ast.literal_eval(match[2])}
    return {"label": f"Use {match[1]} = {match[2]}", "command": "set_attribute", "args": args}


_FIXES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Diagnostic, Analysis], Fix | None]], ...] = (
    (re.compile(r"wb\.do\(.*\)$"), _command),
    (re.compile(r"\bshapes=(\{.*?\})"), _shape),
    (re.compile(r"^Linear\((\d+)\)$"), _width),
    (re.compile(r"^Flatten\(\)$"), _flatten),
    (re.compile(r'\bloss="(\w+)"'), _loss),
    (re.compile(r'^output="(\w+)"$'), _output),
    (re.compile(r"^(\w+)=(-?\d+(?:\.\d+)?|True|False|None)$"), _attribute),
)
"""Patterns of advice in Python, each with a function that returns the button; the first button is used."""


def _blocks(analysis: Analysis) -> list[tuple[str, str]]:
    return [(component(node.name), node.block.kind) for node in analysis.design.graph.nodes]


def _sizes(shape: Any) -> str:
    return " × ".join(map(str, shape)) or "a scalar"
