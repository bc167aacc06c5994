"""Parts of emitted Python files: helper functions, lists of names, titles, comments."""

from __future__ import annotations

import ast
import base64
import math
import re
import sys
import textwrap
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.program import Function, Number, Program, Statement, Value
from mithril_nb.emission.source import Source
from mithril_nb.stages.patterns import DETACH

_NUMBERS = count()
LONGEST_LINE = 120
_CONSTANTS = {
    "1/sqrt(2)": 2**-0.5, "sqrt(2)": 2**0.5, "2/sqrt(pi)": 2 / math.pi**0.5, "sqrt(2/pi)": (2 / math.pi) ** 0.5,
    "1/sqrt(2 pi)": (2 * math.pi) ** -0.5, "log(2)": math.log(2), "1/log(2)": 1 / math.log(2), "pi": math.pi,
    "log(2 pi)/2": math.log(2 * math.pi) / 2,
}  # fmt: skip
Helpers = Mapping[str, tuple[str, tuple[str, ...]]]
"""A dict from the name of a helper function or class to its source and the names of the helpers that it uses."""


def read_helpers(texts: Iterable[str]) -> Helpers:
    """Return the top-level functions and classes of Python files, as `Helpers`; of two with one name, the last."""
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [(text, node) for text in texts for node in ast.parse(text).body if isinstance(node, kinds)]
    names = {one.name for _, one in nodes}
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for text, one in nodes:
        used = {node.id for node in ast.walk(one) if isinstance(node, ast.Name)} & names - {one.name}
        found[one.name] = (ast.get_source_segment(text, one) or "", tuple(sorted(used)))
    return found


def used_helpers(known: Helpers, wanted: Iterable[str]) -> list[str]:
    """Return the names of the wanted helpers and of all helpers that these need, in the order of `known`."""
    waiting, used = sorted(wanted), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in used:
            used.add(name)
            waiting += known[name][1]
    return [name for name in known if name in used]


def encoded(array: Any) -> str:
    """Return a Python expression for a large array: its items as compressed base64 text."""
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    decoded = f"np.frombuffer(zlib.decompress(base64.b64decode({data!r})), np.{array.dtype.name})"
    return f"{decoded}.reshape({array.shape})"


def program_arguments(program: Program) -> tuple[str, ...]:
    """Return the names of the program's arguments that contain arrays."""
    return tuple(dict.fromkeys(leaf.argument for leaf in program.inputs))


def listed(start: str, names: list[str], end: str, used: int) -> str:
    """Join names with commas. If they do not fit on the line, put them on new lines between `start` and `end`.

    Args:
        start: Text before the new lines, such as `"("`.
        names: The names.
        end: Text after the new lines, such as `")"`.
        used: Number of characters that other text needs on the line.
    """
    text = ", ".join(names)
    if len(text) + used <= LONGEST_LINE - 8:
        return text
    lines = textwrap.wrap(f"{text},", LONGEST_LINE - 12)
    return f"{start}\n    " + "\n    ".join(lines) + f"\n{end}"


def joined_shapes(shown: Iterable[str]) -> str:
    """Join the shapes of a statement's results for a comment. Equal shapes are written once.

    Examples:
        >>> joined_shapes(["(2, 3)", "(2, 3)"]), joined_shapes(["(2, 3)", "()"])
        ('(2, 3) each', '(2, 3), ()')
    """
    shapes = list(shown)
    return f"{shapes[0]} each" if len(shapes) > 1 and len(set(shapes)) == 1 else ", ".join(shapes)


def notes(function: Function) -> dict[Statement, str]:
    """Return comments for some statements, such as the formula of a number.

    Examples:
        >>> x, y = Value("x", (), "float32"), Value("y", (), "float32")
        >>> scale = Statement("mul", (x, Number(-0.7071067690849304, "float32")), (y,))
        >>> notes(Function("", (x,), (y,), (scale,)))[scale]
        '-0.70710677 is -1/sqrt(2)'
    """
    producers = {value: one for one in function.walk() for value in one.outputs}
    users: dict[Value, list[Statement]] = defaultdict(list)
    for one in function.walk():
        for value in one.reads:
            users[value].append(one)
    needed = {value for value in function.outputs if isinstance(value, Value) and function.is_result(value)}
    for one in reversed(function.statements):
        if not needed.isdisjoint(one.outputs):
            needed.update(one.reads)
    own = set(function.statements) if function.role == "forward" and needed else set[Statement]()
    found: dict[Statement, str] = {}
    for one in function.walk():
        texts = [*_numbers(one, producers), *([one.note] if one.note else [])]
        if one.primitive == "reduce_max" and _is_of_softmax(one, users):
            texts.append("avoids overflow of exp; softmax does not depend on it")
        if one.primitive == "erfc":
            texts.append("erfc(-x) is 1 + erf(x)")
        if len(one.outputs) == 1 and re.fullmatch(r"rsqrt_slope(_\d+)?", one.outputs[0].name):
            texts.append("the derivative of 1/sqrt(a) by a is -0.5 / (a * sqrt(a))")
        if one in own and needed.isdisjoint(one.outputs):
            texts.append("for the gradients")
        if texts:
            found[one] = "; ".join(dict.fromkeys(texts))
    return found


def _is_of_softmax(one: Statement, users: Mapping[Value, Sequence[Statement]]) -> bool:
    """Return whether a statement computes the maximum in exp(x - max) / sum(exp(x - max))."""
    shifts = [*one.outputs, *(user.outputs[0] for user in users[one.outputs[0]] if user.primitive == DETACH)]
    differences = [user for shift in shifts for user in users.get(shift, ()) if user.primitive == "sub"]
    powers = [user for each in differences for user in users.get(each.outputs[0], ()) if user.primitive == "exp"]
    return any(
        ratio.primitive == "div" and ratio.inputs == (power.outputs[0], total.outputs[0])
        for power in powers
        for total in users.get(power.outputs[0], ())
        if total.primitive == "reduce_sum"
        for ratio in users.get(total.outputs[0], ())
    )


def _numbers(one: Statement, producers: Mapping[Value, Statement]) -> Iterator[str]:
    for number in one.inputs:
        if not isinstance(number, Number) or not isinstance(number.value, float) or not math.isfinite(number.value):
            continue
        size = abs(number.value)
        known = dict(_CONSTANTS)
        for value in one.reads:
            made = producers.get(value)
            if made is not None and made.primitive == "dot_general" and made.inputs[0].shape:
                (axes, _), _ = made.params["dimension_numbers"]
                count = math.prod(made.inputs[0].shape[axis] for axis in axes)
                if isinstance(count, int):
                    known[f"1/sqrt({count})"] = max(count, 1) ** -0.5
        name = next((name for name, exact in known.items() if math.isclose(size, exact, rel_tol=2e-7)), "")
        if name:
            yield f"{Number(number.value, number.dtype).text} is {'-' if number.value < 0 else ''}{name}"


def title_of(function: Function, has_gradients: bool) -> str:
    """Return the docstring of an emitted function, such as `"linear_0: gradients."`."""
    blocks = ", ".join(function.blocks[:4]) + (", ..." if len(function.blocks) > 4 else "")
    role = {"forward": "forward", "backward": "gradients", "update": "update"}.get(function.role or "", "")
    outputs = [one.name for one in function.outputs if isinstance(one, Value)]
    if has_gradients and function.role == "forward" and not all(map(function.is_result, function.outputs)):
        role += "; also returns what the gradients use"
    elif function.role == "backward" and not any(
        _is_of_input(name, function) or not name.startswith("d_") for name in outputs
    ):
        role += "; no result of the program needs the gradient of the input"
    elif any(one.name.startswith("d_input_so_far") for one in function.inputs):
        role += "; d_input includes d_input_so_far, the gradient from the other uses of the input"
    stem = re.sub(r"[_\d]", "", function.block.rpartition("/")[2]).lower()
    kind = f" ({function.kind})" if function.kind and function.kind.lower() != stem else ""
    return f"{comment(blocks + kind)}{f': {role}' if role else ''}."


def _is_of_input(name: str, function: Function) -> bool:
    """Return whether `name` is the gradient of an input of the function's block, such as `"d_input"`."""
    return re.sub(r"^d_(.*?)(_\d+)?$", r"\1", name) in ("input", *function.ports) or name[2:] in function.ports


def load(source: Source) -> Callable[..., Any]:
    """Execute an emitted Python file, and return the function that runs the whole program."""
    module = ModuleType(f"mithril_nb_emitted_{next(_NUMBERS)}")
    if source.name.endswith("_torch"):
        sys.modules[module.__name__] = module  # torch.compile imports the modules of the functions that it traces
    exec(compile(source.text, f"<{source.name}>", "exec"), module.__dict__)
    return getattr(module, source.function)
