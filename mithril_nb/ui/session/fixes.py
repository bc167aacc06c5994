"""Buttons that mend a problem: advice in Python, as a command of the workbench."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.paths import component
from mithril_nb.ui.session.analysis import Analysis
from mithril_nb.ui.session.commands import Fix, ProblemData, problem_data

# Label, command and its arguments.
Button = tuple[str, str, dict[str, Any]]


def problem_with_fix(problem: Diagnostic, analysis: Analysis) -> ProblemData:
    """Return a problem for a workbench: advice in Python becomes the button `fix`, or is left out."""
    data, code = problem_data(problem), problem.advice.partition("  #")[0]
    if not code and "shape of the labels does not match" in problem.summary:  # of images, not of tokens
        dtypes = [str(spec.dtype) for spec in analysis.inference.inputs.values()]
        code = "Flatten()" if all(dtype.startswith(("float", "bfloat")) for dtype in dtypes) else ""
    matches = ((pattern.search(code), button_of) for pattern, button_of in _BUTTONS)
    blocks = [(component(node.name), node.block.kind) for node in analysis.design.graph.nodes]
    linear = [path for path, kind in blocks if kind == "Linear"]
    buttons = (button_of(match, problem.block, linear) for match, button_of in matches if match)
    button = next(filter(None, buttons), None)
    fix = button and Fix(label=button[0], command=button[1], args=button[2])
    is_sentence = code.endswith(".") or "“" in code
    return {**data, "advice": data["advice"] if is_sentence else "", "fix": fix}


def _command(match: re.Match[str], block: str, linear: list[str]) -> Button | None:
    try:
        call = ast.parse(match[0], mode="eval").body
    except UnicodeEncodeError:  # a name with half of a surrogate pair, which JSON can hold
        return None
    assert isinstance(call, ast.Call)
    name = ast.literal_eval(call.args[0])
    args = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    if ... in args.values():  # advice with `...` for missing arguments
        return None
    if name == "set_shape":
        return _shape_button(**args)
    labels = {"connect": "Connect {source} to {target}", "expand": "Open {path}"}
    return (labels[name].format(**args), name, args) if name in labels else None


def _shape(match: re.Match[str], block: str, linear: list[str]) -> Button:
    return _shape_button(*next(iter(ast.literal_eval(match[1]).items())))


def _shape_button(name: str, shape: Any) -> Button:
    sizes = " × ".join(map(str, shape)) or "a scalar"
    return f"Set the shape to {sizes}", "set_shape", {"name": name, "shape": shape}


def _width(match: re.Match[str], block: str, linear: list[str]) -> Button | None:
    label = "Use 1 output" if match[1] == "1" else f"Use {match[1]} outputs"
    args = {"path": linear[-1], "name": "dimension", "value": int(match[1])} if linear else {}
    return (label, "set_attribute", args) if linear else None


def _flatten(match: re.Match[str], block: str, linear: list[str]) -> Button | None:
    args = {"kind": "Flatten", "target": f"{linear[0]}.input"} if linear else {}
    return (f"Insert Flatten before {linear[0]}", "place_block", args) if linear else None


def _attribute(match: re.Match[str], block: str, linear: list[str]) -> Button | None:
    args = {"path": block, "name": match[1], "value": ast.literal_eval(match[2])}
    return (f"Use {match[1]} = {match[2]}", "set_attribute", args) if block else None


# Patterns of advice in Python, each with a function that returns the button; the first button is used.
_BUTTONS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str, list[str]], Button | None]], ...] = (
    (re.compile(r"wb\.do\(.*\)$"), _command),
    (re.compile(r"\bshapes=(\{.*?\})"), _shape),
    (re.compile(r"^Linear\((\d+)\)$"), _width),
    (re.compile(r"^Flatten\(\)$"), _flatten),
    (
        re.compile(r'\bloss="(\w+)"'),
        lambda match, *_: (f"Use {match[1].replace('_', ' ')}", "set_loss", {"loss": match[1]}),
    ),
    (
        re.compile(r'^output="(\w+)"$'),
        lambda match, *_: (f"Train on {match[1]}", "set_output", {"output": match[1]}),
    ),
    (re.compile(r"^(\w+)=(-?\d+(?:\.\d+)?|True|False|None)$"), _attribute),
)
