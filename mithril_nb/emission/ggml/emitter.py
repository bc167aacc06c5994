"""Print a program as Python for ggml-python: functions for blocks, which add nodes to a GGML graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.emission.arrays.results import tree_of
from mithril_nb.emission.build import build
from mithril_nb.emission.ggml import contractions, elementwise, shapes
from mithril_nb.emission.ggml.rules import MOST_AXES, RULES, Context, broadcasts, ne
from mithril_nb.emission.program import CALL, ELEMENTWISE, Function, Number, Operand, Program, Statement, Value
from mithril_nb.emission.python_loops import PythonLoops
from mithril_nb.emission.python_text import (
    Helpers,
    encoded,
    joined_shapes,
    listed,
    program_arguments,
    read_helpers,
    title_of,
    used_helpers,
)
from mithril_nb.emission.source import Line, Source, Writer
from mithril_nb.emission.unsupported import check_dtypes
from mithril_nb.stages.trace import traced

RULE_FILES = (contractions, elementwise, shapes)
"""The modules that register the rules."""
_DTYPES = {"float32": "", "bool": "np.bool_", "int32": "np.int32", "int8": "np.int8", "int16": "np.int16"}
_MERGING = ELEMENTWISE | set(
    "reshape squeeze expand_dims transpose broadcast_in_dim reduce_sum reduce_max reduce_min reduce_and reduce_or copy "
    "call empty empty2".split()
)
"""Primitives that allow more than four axes, because GGML may merge all axes before the last three to one."""
_USUAL, _MOST = 64, 192
"""Upper bounds for the number of nodes that a line adds to the graph: `_USUAL` for each operand or result, and `_MOST`
more for a primitive in `_LONG`. Unused nodes take address space, but no memory.
"""
_LONG = frozenset(
    "argmax argmin conv_general_dilated dynamic_slice dynamic_update_slice erfc expm1 gather log1p pad pow "
    "reduce_window reduce_window_max reduce_window_min reduce_window_sum scatter scatter-add scatter_add "
    "select_and_scatter_add sinh".split()
)
"""Primitives whose line may add more nodes than `_USUAL` for each operand."""
_SMALL = 16
"""Constants with at most this number of items are written as lists; larger constants as compressed base64 text."""


def emit_ggml(program: traced.Program) -> Source:
    """Return a traced program as Python source that uses ggml-python.

    The file needs only ggml-python, NumPy and Python's standard library. The function of a block adds the operations
    of the block to a GGML graph. The last function of the file computes the graph for the program's arguments.

    Raises:
        UnsupportedPrimitiveError: GGML cannot express a primitive, a dtype or a number of axes.
        StageUnavailableError: A size is a name, such as `"batch"`, and not a number.
    """
    return _Emitter().source(build(program, RESERVED))


@cache
def helper_sources() -> Helpers:
    """Return the helper functions of GGML source."""
    folder = Path(__file__).parent / "helpers"
    return read_helpers((folder / f"{name}.py").read_text(encoding="utf-8") for name in ("graphs", "numbers", "places"))


RESERVED = frozenset((*helper_sources(), "ggml", "ctx", "graph", "built", "step", "functools", "threading", "decoded"))
"""Names of modules, helper functions and variables that an emitted file uses itself."""


class _Emitter(Context, PythonLoops):
    def __init__(self) -> None:
        super().__init__()
        self._out = Writer()
        self.helpers.add("Graph")

    def source(self, program: Program) -> Source:
        for function in program.functions:
            for one in function.walk():
                self._check(one)
        check_dtypes(program.functions, "ggml", _DTYPES.__contains__)
        self._needed = _constants_of(program)
        self._has_gradients = bool(program.gradient_notes)
        for function in program.functions[:-1]:
            self._function(function)
        self._main(program)
        body, self._out = self._out, Writer()
        self._header(program, body.lines)
        return Source("python", (*self._out.lines, *body.lines), f"{program.main.name}_ggml", program.main.name)

    def _check(self, one: Statement) -> None:
        """Raise if GGML cannot express a statement."""
        if one.primitive not in RULES and one.primitive not in ("scan", "cond", CALL):
            raise self.unsupported(one, _REASONS.get(one.primitive, ""))
        for value in (*one.inputs, *one.outputs):
            if value.dtype.startswith("int") and one.primitive not in elementwise.WHOLE:
                if not (one.primitive == "pow" and value is one.inputs[1]):
                    raise self.unsupported(one, "integers")
            if len(value.shape) > MOST_AXES and one.primitive not in _MERGING:
                raise self.unsupported(one, f"{len(value.shape)} axes; GGML has {MOST_AXES}")
            if one.primitive in ELEMENTWISE and not broadcasts(value.shape, one.outputs[0].shape):
                raise self.unsupported(one, f"broadcasting to {len(one.outputs[0].shape)} axes; GGML has {MOST_AXES}")
            if not value.size:
                raise self.unsupported(one, "empty arrays")

    # The file

    def _header(self, program: Program, body: Sequence[Line]) -> None:
        out = self._out
        for line in (
            f'"""{program.name!r} in GGML, written by mithril_nb from the program that JAX traced.',
            "",
            "A comment shows the shape of a result as NumPy writes it; GGML lists sizes from the last axis. In GGML,",
            "mul_mat(x, y) is y @ x.T, and out_prod(x, y) is y.T @ x.",
            '"""',
        ):
            out.add(line)
        out.add()
        known = helper_sources()
        names = used_helpers(known, self.helpers)
        is_encoded = any(np.size(array) > _SMALL for array in program.constants.values())
        texts = [known[name][0] for name in names]
        uses_math = any("math." in text for text in (*texts, *(line.text for line in body)))
        modules = [
            "functools",
            "threading",
            *(["base64", "zlib"] if is_encoded else []),
            *(["math"] if uses_math else []),
        ]
        for name in sorted(modules):
            out.add(f"import {name}")
        out.add()
        out.add("import numpy as np")
        out.add("from ggml import ggml")
        for text in texts:
            out.add()
            out.add()
            out.add(text)

    def _constant(self, value: Value, array: Any) -> None:
        self._out.add(f"{value.name} = graph.constant({_array(array)})  # {self._shown(value)}")

    # Functions

    def _function(self, function: Function) -> None:
        out = self._out
        out.add()
        out.add()
        names = ["ctx", *(one.name for one in function.inputs), *(one.name for one in self._needed[function])]
        out.add(f"def {function.name}({listed('', names, '', 7 + len(function.name))}):")
        with out.indented():
            out.add(f'"""{title_of(function, self._has_gradients)}"""')
            for statement in function.statements:
                self._statement(statement)
            out.add(f"return {listed('(', [self.tensor(one) for one in function.outputs], ')', 7)}")

    def _main(self, program: Program) -> None:
        out, main = self._out, program.main
        out.add()
        out.add()
        out.add("@functools.cache")
        out.add("def built():")
        made = [one for one in main.outputs if isinstance(one, Value) and one not in program.constants]
        with out.indented():
            out.add('"""Build the graph of the whole program, which is computed for the arrays of each call."""')
            out.add(f"graph = Graph({_nodes(main)})")
            out.add("ctx = graph.ctx")
            for place, (value, leaf) in enumerate(zip(main.inputs, program.inputs, strict=True)):
                line = f"{value.name} = graph.input({', '.join(map(str, value.shape))})  # {leaf.name}"
                out.add(line, equations=(f"arg{place}",))
            for value in self._needed[main]:
                self._constant(value, program.constants[value])
            for statement in main.statements:
                self._statement(statement)
            for one in made:
                dtype = f"dtype={_DTYPES[one.dtype]}" if _DTYPES[one.dtype] else ""
                out.add(f"graph.output({', '.join([one.name, *map(str, one.shape), *([dtype] if dtype else [])])})")
            out.add("return graph.allocate()")
        out.add()
        out.add()
        out.add(f"def {main.name}({', '.join(program_arguments(program))}):")
        with out.indented():
            out.add(f'"""The whole program. Returns {tree_of(program.outputs, lambda _: "an array", True)}."""')
            arguments = listed("", [leaf.name for leaf in program.inputs], "", 40)
            targets = listed("(", [one.name for one in made], ")", 60)
            if made:
                comma = "," if len(made) == 1 else ""
                out.add(f"{targets}{comma} = built()({arguments})")
            results = dict(zip(program.outputs, main.outputs, strict=True))
            out.add(f"return {tree_of(program.outputs, lambda leaf: _result(results[leaf], program), False)}")

    # Statements

    def _statement(self, one: Statement) -> None:
        if one.primitive == "scan" and not one.params["length"]:
            raise self.unsupported(one, "a scan of length 0")
        if one.primitive == "scan":
            self._scan(one)
        elif one.primitive == "cond":
            self._cond(one)
        elif one.function is not None:
            needed = [value.name for value in self._needed[one.function]]
            self._call(one, one.function.name, ["ctx", *map(self.tensor, one.inputs), *needed])
        else:
            targets = ", ".join(value.name for value in one.outputs)
            shown = joined_shapes(map(self._shown, one.outputs))
            self._out.add(f"{targets} = {RULES.write(self, one)}  # {shown}", one)

    def _as(self, operand: Operand, value: Value) -> str:
        return self.shaped(operand, value.shape)

    def _item(self, operand: Operand, value: Value) -> str:
        return self.helper("item", self.tensor(operand), "step", *value.shape)

    def _stacked(self, items: str, value: Value, length: int) -> str:
        return self.helper("stacked", items, *value.shape[1:])

    def _shown(self, value: Operand) -> str:
        return f"{value.shape}{'' if value.dtype == 'float32' else f' {value.dtype}'}"

    def _cond(self, one: Statement) -> None:
        """Write all branches, because GGML computes every branch. Then select the results of one branch."""
        index, (first, *others) = self.tensor(one.inputs[0]), one.bodies
        for branch in one.bodies:
            for statement in branch.statements:
                self._statement(statement)
        for place, value in enumerate(one.outputs):
            if value.name == "_":
                continue
            text = self.shaped(first.outputs[place], value.shape)
            for number, branch in enumerate(others, 1):
                is_chosen = self.call("step", self.call("scale_bias", index, 1, 0.5 - number))
                mask = self.call("repeat_4d", is_chosen, *ne(value.shape))
                text = self.helper("where", mask, self.shaped(branch.outputs[place], value.shape), text)
            self._out.add(f"{value.name} = {text}  # {self._shown(value)}", one)


_REASONS = {"while": "a loop whose number of steps depends on the arrays"}


def _result(one: Operand, program: Program) -> str:
    if isinstance(one, Number):
        text = f"{one.value!r}".replace("inf", "np.inf").replace("nan", "np.nan")
        return f"np.{np.dtype(one.dtype).type.__name__}({text})"
    if one.dtype == "float0":
        return f"np.zeros({one.shape}, np.bool_)"
    return _array(program.constants[one]) if one in program.constants else one.name


def _array(array: Any) -> str:
    """Return an array as Python: a list of items, or compressed base64 text for a large array."""
    array = np.asarray(array)
    if array.size > _SMALL:
        return encoded(array)
    items = repr(array.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
    return f"np.array({items}, np.{array.dtype.type.__name__})"


def _constants_of(program: Program) -> dict[Function, Sequence[Value]]:
    """Return the constants that each function uses, directly or in a function that it calls."""
    found: dict[Function, Sequence[Value]] = {}
    for function in program.functions:
        used = dict.fromkeys(one for one in function.free if one in program.constants)
        for one in function.walk():
            if one.function is not None:
                used.update(dict.fromkeys(found[one.function]))
        found[function] = [one for one in used if one.dtype != "float0"]
    return found


def _nodes(function: Function) -> int:
    """Return an upper bound for the number of nodes that a function adds to the graph."""
    total = _USUAL * (len(function.inputs) + len(function.outputs) + 1)
    for one in function.statements:
        if one.function is not None:
            total += _nodes(one.function)
        elif one.primitive == "cond":
            total += sum(map(_nodes, one.bodies)) + _USUAL * len(one.outputs) * len(one.bodies)
        elif one.primitive == "scan":
            total += int(one.params["length"]) * _nodes(one.bodies[0])
        else:
            groups = int(one.params.get("feature_group_count", 1)) * int(one.params.get("batch_group_count", 1))
            parts = max(groups, len(one.inputs), len(one.outputs))
            total += (_MOST if one.primitive in _LONG else 0) + _USUAL * parts
    return total
