"""Emitted Python files, in any library: functions, calls, loops, comments, helper functions, arguments and results."""

from __future__ import annotations

import ast
import base64
import math
import re
import sys
import textwrap
import zlib
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import ModuleType
from typing import Any

import numpy as np

from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.params import product_axes
from mithril_nb.emission.program import EmittedProgram, Function, Number, Operand, Statement, Value, arrays
from mithril_nb.emission.rules import Context
from mithril_nb.emission.sizes import number
from mithril_nb.emission.source import Source, SourceLine, Writer
from mithril_nb.stages.patterns import DETACH
from mithril_nb.stages.trace.tracing import Leaf

_NUMBERS = count()
_LONGEST_LINE = 120
_SMALL = 16
"""Constants with at most this number of items are written as lists; larger constants as compressed base64 text."""
_MOST_GAPS = 16
_STEP = re.compile(r"""\[(-?\d+)\]|\[('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]|\.(\w+)""")
_CONSTANTS = {
    "1/sqrt(2)": 2**-0.5, "sqrt(2)": 2**0.5, "2/sqrt(pi)": 2 / math.pi**0.5, "sqrt(2/pi)": (2 / math.pi) ** 0.5,
    "1/sqrt(2 pi)": (2 * math.pi) ** -0.5, "log(2)": math.log(2), "1/log(2)": 1 / math.log(2), "pi": math.pi,
    "log(2 pi)/2": math.log(2 * math.pi) / 2,
}  # fmt: skip
Helpers = Mapping[str, tuple[str, tuple[str, ...]]]
"""A dict from the name of a helper function or class to its source and the names of the helpers that it uses."""


class PythonEmitter(Context, ABC):
    """Writes a program as a Python file. A subclass returns the expressions of its library.

    Attributes:
        helpers: Names of the helper functions that the source uses so far.
    """

    first_arguments: Sequence[str] = ()
    """Arguments of every function before its arrays."""
    has_notes = True
    """Whether calls have comments."""
    usual_dtype = "float32"
    """The dtype that comments leave out."""

    def __init__(self) -> None:
        self.helpers: set[str] = set()
        self._out = Writer()
        self._notes: dict[Statement, str] = {}
        self._more_arguments: dict[Function, Sequence[str]] = {}

    @abstractmethod
    def array(self, operand: Operand) -> str:
        """Return the expression of an operand as an array."""

    def operand(self, operand: Operand) -> str:
        """Return the expression of an operand; a number needs no dtype."""
        return self.array(operand)

    @abstractmethod
    def expression(self, op: Statement) -> str:
        """Return the expression that computes a statement."""

    @abstractmethod
    def stacked(self, items: str, value: Value, length: int) -> str:
        """Return the expression of the array `value` that contains the arrays in the list `items`."""

    # GGML overrides the next two: it has no numbers without a tensor, and no indexing.

    def as_value(self, operand: Operand, value: Value) -> str:
        return self.array(operand)

    def step_of(self, operand: Operand, value: Value) -> str:
        return f"{self.array(operand)}[step]"

    def more_arguments(self, function: Function, lines: Sequence[SourceLine]) -> Sequence[str]:
        """Return the arguments of a function after its arrays. `lines` are its lines."""
        return ()

    # The file

    def _header(
        self,
        documentation: Sequence[str],
        program: EmittedProgram,
        sources: Helpers,
        imports: Sequence[str],
        texts: Any = (),
    ) -> list[str]:
        waiting, used = [*self.helpers], set[str]()
        while waiting:
            name = waiting.pop()
            if name not in used:
                used.add(name)
                waiting += sources[name][1]
        helpers = [text for name, (text, _) in sources.items() if name in used]
        has_text = any(map(is_encoded, program.constants.values()))
        modules = ["base64", "zlib"] if has_text else []
        names = ("functools", "math", "threading")  # an import that nothing uses would be a warning of linters
        modules += [name for name in names if any(f"{name}." in text for text in (*helpers, *texts))]
        if has_text and "import numpy as np" not in imports:  # the text is decoded to NumPy arrays first
            imports = [*imports, "import numpy as np"]
        for line in ('"""' + documentation[0], *documentation[1:], '"""', ""):
            self._out.add(line)
        for module in sorted(modules):
            self._out.add(f"import {module}")
        if modules:
            self._out.add()
        for line in imports:
            self._out.add(line)
        return helpers

    def _function(self, function: Function, has_gradients: bool) -> None:
        out, self._out = self._out, Writer()
        with self._out.indented():
            self._out.add(f'"""{_title_of(function, has_gradients)}"""')
            self._statements(function)
            self._out.add(f"return {listed('(', [self.array(operand) for operand in function.outputs], ')', 7)}")
        # The head comes last, because the lines decide which sizes and constants the function receives.
        body, self._out = self._out.lines, out
        self._more_arguments[function] = more = self.more_arguments(function, body)
        self._head(function.name, [*self.first_arguments, *(value.name for value in function.inputs), *more])
        out.lines += body

    def _head(self, name: str, arguments: list[str], decorator: str = "\n") -> None:
        self._out.add(f"{decorator}\ndef {name}({listed('', arguments, '', 7 + len(name))}):")

    def _main_title(self, program: EmittedProgram) -> None:
        self._out.add(f'"""The whole program. Returns {tree_of(program.outputs, lambda _: "an array", True)}."""')

    def _return(self, program: EmittedProgram, text: Callable[[Operand], str]) -> None:
        results = dict(zip(program.outputs, program.main.outputs, strict=True))
        self._out.add(f"return {tree_of(program.outputs, lambda leaf: text(results[leaf]), False)}")

    # Statements

    def add(self, text: str) -> None:
        self._out.add(text, self.at)

    def _statements(self, function: Function) -> None:
        for op in function.statements:
            with self.writing(op):
                self._statement(op)

    def _statement(self, op: Statement) -> None:
        if op.primitive == "scan":
            self._scan(op)
        elif op.primitive == "while":
            self._while(op)
        elif op.primitive == "cond":
            self._cond(op)
        elif op.function is not None:
            self._call(op, op.function)
        else:
            target, text = ", ".join(value.name for value in op.outputs), self.expression(op)
            shapes = [self.described(value) for value in op.outputs]
            comment = f"{shapes[0]} each" if len(shapes) > 1 == len({*shapes}) else ", ".join(shapes)
            comment += f"; {self._notes[op]}" if op in self._notes else ""
            self.add(f"{f'{target} = {text}' if target else text}  # {comment}")

    def described(self, value: Operand) -> str:
        return f"{value.shape}{'' if value.dtype == self.usual_dtype else f' {value.dtype}'}"

    def _call(self, op: Statement, function: Function) -> None:
        arguments = [*self.first_arguments, *map(self.array, op.inputs), *self._more_arguments[function]]
        targets = listed("(", [value.name for value in op.outputs], ")", 0)
        text = listed("", arguments, "", len(function.name) + min(len(targets), 60))
        self.add(f"{targets} = {function.name}({text}){f'  # {op.note}' if op.note and self.has_notes else ''}")

    def _carry(self, targets: Iterable[Value], values: Iterable[Operand]) -> None:
        pairs = [(target.name, self.as_value(value, target)) for target, value in zip(targets, values, strict=True)]
        pairs = [(name, text) for name, text in pairs if name not in (text, "_")]
        if pairs:  # in one line, because the values may read each other's old numbers
            names, texts = zip(*pairs, strict=True)
            self.add(f"{', '.join(names)} = {', '.join(texts)}")

    def _scan(self, op: Statement) -> None:
        (body,), count, length = op.bodies, op["num_carry"], number(op["length"])
        pairs = zip(op.outputs[count:], body.outputs[count:], strict=True)
        stacks = [(value, item) for value, item in pairs if value.name != "_"]
        carry = body.inputs[:count]
        self._carry(carry, op.inputs[:count])
        for value, _ in stacks:
            self.add(f"{value.name} = []")
        self.add(f"for step in {f'reversed(range({length}))' if op['reverse'] else f'range({length})'}:")
        with self._out.indented():
            for value, array in zip(body.inputs[count:], op.inputs[count:], strict=True):
                self.add(f"{value.name} = {self.step_of(array, value)}  # {self.described(value)}")
            self._statements(body)
            for value, item in stacks:
                self.add(f"{value.name}.append({self.as_value(item, Value('', item.shape, item.dtype))})")
            self._carry(carry, body.outputs[:count])
            if not (body.statements or stacks or op.inputs):  # a loop that does nothing
                self.add("pass")
        self._carry(op.outputs[:count], carry)
        for value, _ in stacks:
            items = f"{value.name}[::-1]" if op["reverse"] else value.name
            self.add(f"{value.name} = {self.stacked(items, value, length)}  # {self.described(value)}")

    def _while(self, op: Statement) -> None:
        condition, body = op.bodies
        self._carry(condition.inputs, op.inputs)
        self.add("while True:")  # the condition may need lines of its own
        with self._out.indented():
            self._statements(condition)
            self.add(f"if not {self.operand(condition.outputs[0])}:")
            self.add("    break")
            self._carry(body.inputs, condition.inputs)
            self._statements(body)
            self._carry(condition.inputs, body.outputs)
        self._carry(op.outputs, condition.inputs)

    def _cond(self, op: Statement) -> None:
        index, last = self.operand(op.operand), len(op.bodies) - 1
        for position, branch in enumerate(op.bodies):
            test = f"{'elif' if position else 'if'} {index} == {position}:"
            self.add("else:" if position == last and position else test)  # XLA clamps the index, so the last is safe
            with self._out.indented():
                start = len(self._out.lines)
                self._statements(branch)
                self._carry(op.outputs, branch.outputs)
                if len(self._out.lines) == start:
                    self.add("pass")


def read_helpers(texts: Iterable[str]) -> Helpers:
    kinds = (ast.FunctionDef, ast.ClassDef)
    nodes = [(text, node) for text in texts for node in ast.parse(text).body if isinstance(node, kinds)]
    # A helper of a library replaces the shared one of the same name, because its file comes later.
    names = {inner.name for _, inner in nodes}
    helpers: dict[str, tuple[str, tuple[str, ...]]] = {}
    for text, node in nodes:
        used = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)} & names - {node.name}
        helpers[node.name] = (ast.get_source_segment(text, node) or "", tuple(sorted(used)))
    return helpers


def is_encoded(array: np.ndarray) -> bool:
    return array.size > _SMALL


def constant_text(array: np.ndarray, module: str) -> str:
    """Return the items of a constant in nested lists, or as an expression of a NumPy array."""
    if not is_encoded(array):
        # The repr of a Python float is the shortest text that gives the same number again.
        return re.sub(r"\b(nan|inf)\b", rf"{module}.\1", repr(array.tolist()))
    if array.dtype.kind == "V":  # bfloat16, float8 and int4, which NumPy does not have; float32 holds their values
        array = array.astype(np.float32)
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(array).tobytes())).decode()
    decoded = f"np.frombuffer(zlib.decompress(base64.b64decode({data!r})), np.{array.dtype.name})"
    return f"{decoded}.reshape({array.shape})"


def program_arguments(program: EmittedProgram) -> tuple[str, ...]:
    return tuple(dict.fromkeys(leaf.argument for leaf in program.inputs))


def listed(start: str, names: list[str], end: str, used: int) -> str:
    """Join names with commas. If they do not fit on the line, put them on new lines between `start` and `end`.

    `used` is the number of characters that other text needs on the line.
    """
    text = ", ".join(names)
    if len(text) + used <= _LONGEST_LINE - 8:
        return text
    lines = textwrap.wrap(f"{text},", _LONGEST_LINE - 12)
    return f"{start}\n    " + "\n    ".join(lines) + f"\n{end}"


def notes(function: Function) -> dict[Statement, str]:
    """Return comments for some statements, such as the formula of a number."""
    users: dict[Value, list[Statement]] = defaultdict(list)
    for op in function.walk():
        for value in op.reads:
            users[value].append(op)
    # Backwards: what no result of the block needs is only for its backward function.
    needed = {value for value in arrays(function.outputs) if function.is_result(value)}
    for op in reversed(function.statements):
        if not needed.isdisjoint(op.outputs):
            needed.update(op.reads)
    own = set(function.statements) if function.role == "forward" and needed else set[Statement]()
    comments: dict[Statement, str] = {}
    for op in function.walk():
        texts = [*_numbers(op, function.producers), *([op.note] if op.note else [])]
        if op.primitive == "reduce_max" and _is_of_softmax(op, users):
            texts.append("avoids overflow of exp; softmax does not depend on it")
        if op.primitive == "erfc":
            texts.append("erfc(-x) is 1 + erf(x)")
        if len(op.outputs) == 1 and re.fullmatch(r"rsqrt_slope(_\d+)?", op.output.name):
            texts.append("the derivative of 1/sqrt(a) by a is -0.5 / (a * sqrt(a))")
        if op in own and needed.isdisjoint(op.outputs):
            texts.append("for the gradients")
        if texts:
            comments[op] = "; ".join(dict.fromkeys(texts))
    return comments


def _is_of_softmax(statement: Statement, users: Mapping[Value, Sequence[Statement]]) -> bool:
    shifts = [
        *statement.outputs,
        *(user.output for user in users[statement.output] if user.primitive == DETACH),
    ]
    differences = [user for shift in shifts for user in users.get(shift, ()) if user.primitive == "sub"]
    powers = [user for each in differences for user in users.get(each.output, ()) if user.primitive == "exp"]
    return any(
        ratio.primitive == "div" and ratio.inputs == (power.output, total.output)
        for power in powers
        for total in users.get(power.output, ())
        if total.primitive == "reduce_sum"
        for ratio in users.get(total.output, ())
    )


def _numbers(statement: Statement, producers: Mapping[Operand, Statement]) -> Iterator[str]:
    for operand in statement.inputs:
        if not isinstance(operand, Number) or not isinstance(operand.value, float) or not math.isfinite(operand.value):
            continue
        size = abs(operand.value)  # the clean-up may have merged a minus into it
        constants = dict(_CONSTANTS)
        for value in statement.reads:
            producer = producers.get(value)
            if producer is not None and producer.primitive == "dot_general" and producer.operand.shape:
                count = math.prod(producer.operand.shape[axis] for axis in product_axes(producer)[0][2])
                if isinstance(count, int):
                    constants[f"1/sqrt({count})"] = max(count, 1) ** -0.5
        # The number is rounded to float32, which has a relative error of 6e-8.
        name = next((name for name, exact in constants.items() if math.isclose(size, exact, rel_tol=2e-7)), "")
        if name:
            yield f"{operand.text} is {'-' if operand.value < 0 else ''}{name}"


def _title_of(function: Function, has_gradients: bool) -> str:
    blocks = ", ".join(function.blocks[:4]) + (", ..." if len(function.blocks) > 4 else "")
    role = {"forward": "forward", "backward": "gradients", "update": "update"}.get(function.role or "", "")
    outputs = [value.name for value in arrays(function.outputs)]

    def is_of_input(name: str) -> bool:
        # A number at the end is part of the name of a port, or makes the name unique.
        stems = (re.sub(r"^d_(.*?)(_\d+)?$", r"\1", name), name[2:])
        return not name.startswith("d_") or stems[0] == "input" or not {*stems}.isdisjoint(function.ports)

    if has_gradients and function.role == "forward" and not all(map(function.is_result, function.outputs)):
        role += "; also returns what the gradients use"
    elif function.role == "backward" and not any(map(is_of_input, outputs)):
        role += "; no result of the program needs the gradient of the input"
    elif any(value.name.startswith("d_input_so_far") for value in function.inputs):
        role += "; d_input includes d_input_so_far, the gradient from the other uses of the input"
    stem = re.sub(r"[_\d]", "", function.block.rpartition("/")[2]).lower()
    kind = f" ({function.kind})" if function.kind and function.kind.lower() != stem else ""
    return f"{comment(blocks + kind)}{f': {role}' if role else ''}."


def load(source: Source) -> Callable[..., Any]:
    """Execute an emitted Python file, and return the function that runs the whole program."""
    module = ModuleType(f"mithril_nb_emitted_{next(_NUMBERS)}")
    if source.name.endswith("_torch"):
        sys.modules[module.__name__] = module  # torch.compile imports the modules of the functions that it traces
    exec(compile(source.text, f"<{source.name}>", "exec"), module.__dict__)
    return getattr(module, source.function)


def tree_of(leaves: Sequence[Leaf], text: Callable[[Leaf], str], is_short: bool) -> str:
    """Return the results of a program, or one of its arguments, as an expression of tuples and dicts.

    An object with attributes is written as a dict in results, and as a `SimpleNamespace` in an argument. `None` is
    written between the items of a sequence. If `is_short` is true, return words such as `a dict with 'w'`.
    """
    # Leaves come flat; their names say where in the tree they belong.
    root: dict[Any, Any] = {}
    for leaf in leaves:
        node, steps = root, [("", ""), *_steps(leaf)]
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        node[steps[-1]] = leaf
    return _written(root[("", "")], text, is_short) if root else "()"


def _steps(leaf: Leaf) -> list[tuple[str, str]]:
    result: list[tuple[str, str]] = []
    # JAX's key paths: [0], ['w'] and .name.
    for index, key, attribute in _STEP.findall(leaf.name.removeprefix(leaf.argument)):
        if attribute and leaf.argument != "result":
            result.append(("attribute", attribute))
        else:
            result.append(("index", index) if index else ("key", key or repr(attribute)))
    return result


def _written(tree: Any, text: Callable[[Leaf], str], is_short: bool) -> str:
    if isinstance(tree, Leaf):
        return text(tree)
    parts = [(kind, key, _written(value, text, is_short)) for (kind, key), value in tree.items()]
    if is_short:
        kind = "a tuple" if parts[0][0] == "index" else "a dict"
        keys = [key for _, key, _ in parts]
        listed = ", ".join(keys if len(keys) < 4 else [*keys[:2], f"... ({len(keys)} in all)"])
        names = "" if kind == "a tuple" else f" with {listed}"
        inner = f" of {' and '.join(value for _, _, value in parts[:3])}" if kind == "a tuple" else names
        return f"{kind}{inner}"
    if parts[0][0] == "index":
        items = {int(key): value for _, key, value in parts}
        if min(items) >= 0 and max(items) < len(items) + _MOST_GAPS:  # else they are keys of a dict
            values = [items.get(index, "None") for index in range(max(items) + 1)]
            return f"({', '.join(values)}{',' if len(values) == 1 else ''})"
    if parts[0][0] == "attribute":
        return f"SimpleNamespace({', '.join(f'{name}={value}' for _, name, value in parts)})"
    items = [f"{key}: {value}" for _, key, value in parts]
    line = "{" + ", ".join(items) + "}"
    return line if len(line) < 100 else "{\n    " + ",\n    ".join(items) + ",\n}"
