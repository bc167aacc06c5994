"""Print a program as Python for ggml-python: functions for blocks, which add nodes to a GGML graph."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from mithril_nb.emission.build import build
from mithril_nb.emission.ggml import contractions, elementwise, shapes
from mithril_nb.emission.ggml.rules import MOST_AXES, RULES, GgmlContext, broadcasts, ne
from mithril_nb.emission.program import (
    CALL,
    ELEMENTWISE,
    EmittedProgram,
    Function,
    Number,
    Operand,
    Statement,
    Value,
    arrays,
)
from mithril_nb.emission.python_text import (
    Helpers,
    constant_text,
    is_encoded,
    listed,
    program_arguments,
    read_helpers,
)
from mithril_nb.emission.source import Source, SourceLine, Writer
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
# Upper bounds for the number of nodes that a line adds to the graph: _USUAL for each operand or result, and _MOST more
# for a primitive in _LONG. Unused nodes take address space, but no memory.
_USUAL, _MOST = 64, 192
_LONG = frozenset(
    "argmax argmin conv_general_dilated dynamic_slice dynamic_update_slice erfc expm1 gather log1p pad pow "
    "reduce_window reduce_window_max reduce_window_min reduce_window_sum scatter scatter-add scatter_add "
    "select_and_scatter_add sinh".split()
)
"""Primitives whose line may add more nodes than `_USUAL` for each operand."""
_REASONS = {"while": "a loop whose number of steps depends on the arrays"}


def emit_ggml(program: traced.Program) -> Source:
    """Return a traced program as Python source that uses ggml-python.

    The file needs only ggml-python, NumPy and Python's standard library. The function of a block adds the operations
    of the block to a GGML graph. The last function of the file computes the graph for the program's arguments.
    """
    return _GgmlEmitter().source(build(program, RESERVED))


@cache
def helper_sources() -> Helpers:
    return read_helpers([(Path(__file__).parent / "helpers" / "ggml_helpers.py").read_text(encoding="utf-8")])


RESERVED = frozenset((*helper_sources(), "ggml", "ctx", "graph", "built", "step", "functools", "threading", "decoded"))
"""Names of modules, helper functions and variables that an emitted file uses itself."""


class _GgmlEmitter(GgmlContext):
    first_arguments, has_notes = ("ctx",), False

    def source(self, program: EmittedProgram) -> Source:
        for op in program.walk():  # before a line is written, so that the first unsupported statement is named
            with self.writing(op):
                self._check(op)
        check_dtypes(program.functions, "ggml", _DTYPES.__contains__)
        self._constants = _constants_of(program)
        self.helpers.add("Graph")
        has_gradients = bool(program.gradient_notes)
        for function in program.functions[:-1]:
            self._function(function, has_gradients)
        self._main(program)
        body, self._out = self._out.lines, Writer()
        documentation = (
            f"{program.name!r} in GGML, written by mithril_nb from the program that JAX traced.",
            "",
            "A comment shows the shape of a result as NumPy writes it; GGML lists sizes from the last axis. In GGML,",
            "mul_mat(x, y) is y @ x.T, and out_prod(x, y) is y.T @ x.",
        )
        imports = ("import numpy as np", "from ggml import ggml")
        for text in self._header(documentation, program, helper_sources(), imports, [line.text for line in body]):
            self._out.add(f"\n\n{text}")
        return Source("python", (*self._out.lines, *body), f"{program.main.name}_ggml", program.main.name)

    def _check(self, op: Statement) -> None:
        if op.primitive not in RULES and op.primitive not in ("scan", "cond", CALL):
            raise self.unsupported(_REASONS.get(op.primitive, ""))
        for value in (*op.inputs, *op.outputs):
            if value.dtype.startswith("int") and op.primitive not in elementwise.WHOLE:
                if not (op.primitive == "pow" and value is op.inputs[1]):
                    raise self.unsupported("integers")
            if len(value.shape) > MOST_AXES and op.primitive not in _MERGING:
                raise self.unsupported(f"{len(value.shape)} axes; GGML has {MOST_AXES}")
            if op.primitive in ELEMENTWISE and not broadcasts(value.shape, op.shape):
                raise self.unsupported(f"broadcasting to {len(op.shape)} axes; GGML has {MOST_AXES}")
            if not value.size:
                raise self.unsupported("empty arrays")
        if op.primitive == "scan" and not op["length"]:
            raise self.unsupported("a scan of length 0")

    def more_arguments(self, function: Function, lines: Sequence[SourceLine]) -> Sequence[str]:
        # GGML's constants are tensors of one graph, so they are passed on, unlike arrays of NumPy.
        return [value.name for value in self._constants[function]]

    def _main(self, program: EmittedProgram) -> None:
        out, main = self._out, program.main
        out.add("\n\n@functools.cache\ndef built():")
        results = [value for value in arrays(main.outputs) if value not in program.constants]
        with out.indented():
            out.add('"""Build the graph of the whole program, which is computed for the arrays of each call."""')
            out.add(f"graph = Graph({_nodes(main)})")
            out.add("ctx = graph.ctx")
            # The graph is built for shapes, once; a call copies its arrays into the input tensors.
            for index, (value, leaf) in enumerate(zip(main.inputs, program.inputs, strict=True)):
                line = f"{value.name} = graph.input({', '.join(map(str, value.shape))})  # {leaf.name}"
                out.add(line, equations=(f"arg{index}",))
            for value in self._constants[main]:
                text = _constant(program.constants[value])
                out.add(f"{value.name} = graph.constant({text})  # {self.described(value)}")
            self._statements(main)
            # Constants need no graph, so results that are constants are written below.
            for result in results:
                dtype = _DTYPES[result.dtype] and f"dtype={_DTYPES[result.dtype]}"
                out.add(f"graph.output({', '.join(filter(None, [result.name, *map(str, result.shape), dtype]))})")
            out.add("return graph.allocate()")
        self._head(main.name, list(program_arguments(program)))
        with out.indented():
            self._main_title(program)
            arguments = listed("", [leaf.name for leaf in program.inputs], "", 40)
            targets = listed("(", [value.name for value in results], ")", 60)
            if results:
                out.add(f"{targets}{',' if len(results) == 1 else ''} = built()({arguments})")
            self._return(program, lambda operand: _result(operand, program))

    # Statements

    def expression(self, op: Statement) -> str:
        return RULES.write(self, op)

    def as_value(self, operand: Operand, value: Value) -> str:
        return self.shaped(operand, value.shape)

    def step_of(self, operand: Operand, value: Value) -> str:
        return self.helper("item", self.array(operand), "step", *value.shape)

    def stacked(self, items: str, value: Value, length: int) -> str:
        return self.helper("stacked", items, *value.shape[1:])

    def _cond(self, op: Statement) -> None:
        # GGML has no branches: the graph computes all of them, and selects the results of one.
        index, (first, *others) = self.array(op.operand), op.bodies
        for branch in op.bodies:  # in one scope of Python, which is why names are unique in a function
            self._statements(branch)
        for result, value in enumerate(op.outputs):
            if value.name == "_":
                continue
            text = self.shaped(first.outputs[result], value.shape)
            for number, branch in enumerate(others, 1):
                is_chosen = self.call("step", self.call("scale_bias", index, 1, 0.5 - number))
                mask = self.call("repeat_4d", is_chosen, *ne(value.shape))
                text = self.helper("where", mask, self.shaped(branch.outputs[result], value.shape), text)
            self.add(f"{value.name} = {text}  # {self.described(value)}")


def _result(operand: Operand, program: EmittedProgram) -> str:
    if isinstance(operand, Number):
        text = f"{operand.value!r}".replace("inf", "np.inf").replace("nan", "np.nan")
        return f"np.{np.dtype(operand.dtype).type.__name__}({text})"
    if operand.dtype == "float0":
        return f"np.zeros({operand.shape}, np.bool_)"
    return _constant(program.constants[operand]) if operand in program.constants else operand.name


def _constant(array: np.ndarray) -> str:
    text = constant_text(array, "np")
    return text if is_encoded(array) else f"np.array({text}, np.{array.dtype.type.__name__})"


def _constants_of(program: EmittedProgram) -> dict[Function, Sequence[Value]]:
    result: dict[Function, Sequence[Value]] = {}
    for function in program.functions:
        used = dict.fromkeys(value for value in function.free if value in program.constants)
        for op in function.walk():
            if op.function is not None:
                used.update(dict.fromkeys(result[op.function]))
        result[function] = [value for value in used if value.dtype != "float0"]
    return result


def _nodes(function: Function) -> int:
    # An upper bound: GGML ends the process if the graph has more nodes than it was allocated for.
    total = _USUAL * (len(function.inputs) + len(function.outputs) + 1)
    for op in function.statements:
        if op.function is not None:
            total += _nodes(op.function)
        elif op.primitive == "cond":
            total += sum(map(_nodes, op.bodies)) + _USUAL * len(op.outputs) * len(op.bodies)
        elif op.primitive == "scan":
            total += int(op["length"]) * _nodes(op.bodies[0])
        else:
            groups = int(op.params.get("feature_group_count", 1)) * int(op.params.get("batch_group_count", 1))
            parts = max(groups, len(op.inputs), len(op.outputs))
            total += (_MOST if op.primitive in _LONG else 0) + _USUAL * parts
    return total
