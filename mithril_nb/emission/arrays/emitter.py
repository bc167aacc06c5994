"""Print a program as the source of an array library: functions for blocks, and a line for each statement."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.emission.arrays import contractions, elementwise, fused, indexing, shapes
from mithril_nb.emission.arrays.dialects import DIALECTS, INFIX, Dialect, Library
from mithril_nb.emission.arrays.lax import LAX, LAX_NAMES, LaxControl
from mithril_nb.emission.arrays.results import tree_of
from mithril_nb.emission.arrays.rules import RULES, Context
from mithril_nb.emission.build import build
from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.program import CALL, Function, Operand, Program, Statement, Value
from mithril_nb.emission.python_loops import PythonLoops
from mithril_nb.emission.python_text import (
    Helpers,
    encoded,
    joined_shapes,
    listed,
    notes,
    program_arguments,
    read_helpers,
    title_of,
    used_helpers,
)
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import Size
from mithril_nb.emission.source import Line, Source, Writer
from mithril_nb.emission.unsupported import check_dtypes
from mithril_nb.stages.trace import traced

_CONTROL = frozenset({"scan", "while", "cond", CALL})
_MAY_EXCEED = frozenset(
    "add add_any sub mul neg not square integer_pow div rem shift_left convert_element_type bitcast_convert_type "
    "dot_general conv_general_dilated reduce_sum reduce_prod cumsum cumprod reduce_window_sum reduce_window reduce "
    "scatter-add scatter-mul scatter-sub scatter_add scatter_mul scatter_sub".split()
)
"""Primitives whose uint32 result is cut to 32 bits in PyTorch, where it is an int64."""
_SMALL = 16
"""Constants with at most this number of items are written as lists; larger constants as compressed base64 text."""
_WORDS: dict[str, dict[str, str]] = {
    "torch": {
        "np.take_along_axis": "torch.take_along_dim", "np.copy": "torch.clone", "np.": "torch.",
        'axis=axis, kind="stable"': "dim=axis, stable=True", ".astype(": ".to(", ".transpose(": ".permute(",
        ".max(": ".amax(", ".min(": ".amin(", "keepdims": "keepdim",
    },
    "mlx": {"np.copy": "mx.array", "np.": "mx.", ', kind="stable"': "", ".itemsize": ".size"},
}  # fmt: skip
"""The words of the libraries instead of those of NumPy in the file helpers/shared.py, applied in this order."""
RULE_FILES = (contractions, elementwise, fused, indexing, shapes)
"""The modules that register the rules."""


def emit_arrays(program: traced.Program, library: Library) -> Source:
    """Return a traced program as Python source that uses an array library.

    The file needs only the library, Python's standard library, and NumPy for large constants. If SciPy is installed,
    NumPy source uses SciPy's error function. The file contains helper functions, then the functions of the blocks. In
    a training step, a block has one function for its forward pass and one for its backward pass. The last function
    runs the whole program.

    Raises:
        UnsupportedPrimitiveError: The library cannot express a primitive or a dtype.
        StageUnavailableError: A size is a name, such as `"batch"`, and not the size of an axis of an input.
    """
    dialect = DIALECTS[library]
    emitter = _JaxEmitter if library == "jax" else _Emitter
    reserved = reserved_names(library)
    options: dict[str, Any] = {"fuse": fused.fuse} if library == "torch" else {}
    keeps_gradients = library in ("torch", "mlx")
    return emitter(dialect).source(build(program, reserved, keeps_gradients, takes_names=True, **options))


@cache
def helper_sources(library: Library) -> Helpers:
    """Return the helper functions of a library: those of all libraries in its words, and its own."""
    folder = Path(__file__).parent / "helpers"
    own = [path.read_text(encoding="utf-8") for path in sorted(folder.glob(f"{library}_*"))]
    shared = (folder / "shared.py").read_text(encoding="utf-8")
    for word, other in _WORDS.get(library, {}).items():
        shared = shared.replace(word, other)
    return read_helpers([shared, *own] if own else [])


def reserved_names(library: Library) -> set[str]:
    """Return the names of modules, helper functions and variables that an emitted file uses itself."""
    own = {"functools", "math", "np", "torch", "mx", "step", "base64", "zlib", "decoded", *LAX_NAMES}
    return own | helper_sources(library).keys()


class _Emitter(Context, PythonLoops):
    def __init__(self, dialect: Dialect):
        super().__init__(dialect)
        self._out = Writer()
        self._notes: dict[Statement, str] = {}
        self._size_names: dict[str, tuple[str, ...]] = {}
        """The names of sizes that each function receives."""

    def source(self, program: Program) -> Source:
        self._check(program)
        self._has_gradients = bool(program.gradient_notes)
        self._usual = "float64" if any(one.dtype == "float64" for one in program.main.inputs) else "float32"
        body = self._out
        axes = [(value, *each) for value in program.main.inputs for each in enumerate(value.shape)]
        axes = [(str(size), f"{value.name}.shape[{axis}]") for value, axis, size in axes if isinstance(size, Size)]
        self._named_axes = sorted(axes, key=lambda axis: not axis[0].isidentifier())
        for function in program.functions[:-1]:
            self._function(function)
        self._main(program)
        self._out = Writer()
        self._header(program)
        lines = (*self._out.lines, *body.lines)
        return Source("python", lines, f"{program.main.name}_{self.library}", program.main.name)

    # Checks

    def _check(self, program: Program) -> None:
        """Raise for the first statement that the library cannot express."""
        for function in program.functions:
            for one in function.walk():
                known = one.primitive in _CONTROL or one.primitive in self.rules or one.primitive in INFIX
                if not known and one.primitive not in self.dialect.functions:
                    raise self.unsupported(one)
        check_dtypes(program.functions, self.library, lambda dtype: self.dtype_or_none(dtype) is not None)

    def dtype_or_none(self, name: str) -> str | None:
        return self.dialect.dtype("uint32" if name == "key<fry>" else name)

    # The file

    def _header(self, program: Program) -> None:
        out = self._out
        used = used_helpers(helper_sources(self.library), self.helpers)
        title = f"'{comment(program.name)}' in {self.dialect.title}, written by mithril_nb from what JAX traced."
        for line in (
            '"""' + title,
            "",
            f"A comment shows the shape of the result, and its dtype if it is not {self._usual}.",
            *program.gradient_notes,
            '"""',
        ):
            out.add(line)
        out.add()
        texts = [helper_sources(self.library)[name][0] for name in used]
        is_encoded = any(array.size > _SMALL for array in program.constants.values())
        modules = ["base64", "zlib"] if is_encoded else []
        modules += [name for name in ("functools", "math") if any(f"{name}." in text for text in texts)]
        for name in sorted(modules):
            out.add(f"import {name}")
        if modules:
            out.add()
        for line in self.dialect.imports:
            out.add(line)
        if is_encoded and self.library != "numpy":
            out.add("import numpy as np")
        if program.constants:
            out.add()
        for value, array in program.constants.items():
            self._constant(value, array)
        for text in texts:
            out.add()
            out.add()
            out.add(text)

    def _constant(self, value: Value, array: Any) -> None:
        array = np.asarray(array)
        dtype = self.dtype_or_none(value.dtype)
        creator = f"{self.module}.{'tensor' if self.library == 'torch' else 'array'}"
        if value.dtype == "float0":
            self._out.add(f"{value.name} = {self.module}.zeros({value.shape}, dtype={dtype})")
        elif array.size <= _SMALL and array.dtype.kind != "V":
            text = re.sub(r"\b(nan|inf)\b", rf"{self.module}.\1", repr(array.tolist()))
            is_empty = not array.size
            shown = (
                f"{self.module}.zeros({value.shape}, dtype={dtype})"
                if is_empty
                else f"{creator}({text}, dtype={dtype})"
            )
            self._out.add(f"{value.name} = {shown}")
        else:
            decoded = encoded(array)
            if self.library == "torch":
                decoded = (
                    f"torch.tensor({decoded}.astype(np.int64))"
                    if array.dtype == np.uint32
                    else f"torch.tensor({decoded}.copy())"
                )
            elif self.library != "numpy":
                decoded = f"{self.module}.array({decoded}, dtype={dtype})"  # MLX would convert float64 to float32
            self._out.add(f"{value.name} = {decoded}")

    # Functions

    def _function(self, function: Function) -> None:
        out, self._out = self._out, Writer()
        with self._out.indented():
            self._out.add(f'"""{title_of(function, self._has_gradients)}"""')
            self._notes = notes(function)
            for statement in function.statements:
                self._statement(statement)
            self._out.add(f"return {listed('(', [self.array(one) for one in function.outputs], ')', 7)}")
        body, self._out = self._out.lines, out
        self._size_names[function.name] = names = self._names_of_sizes(body)
        out.add()
        out.add()
        self._signature(function.name, [*(one.name for one in function.inputs), *names])
        out.lines += body

    def _names_of_sizes(self, lines: Iterable[Line]) -> tuple[str, ...]:
        """Return the names of sizes that some lines read."""
        read = {name for line in lines for name in re.findall(r"\w+", line.text.partition("  # ")[0])}
        return tuple(dict.fromkeys(size for size, _ in self._named_axes if size in read))

    def _signature(self, name: str, names: list[str]) -> None:
        self._out.add(f"def {name}({listed('', names, '', 7 + len(name))}):")

    def _main(self, program: Program) -> None:
        out, main = self._out, program.main
        out.add()
        out.add()
        used = list(program_arguments(program))
        if self.library == "numpy":
            out.add('@np.errstate(all="ignore")  # no warnings about infinities and NaN')
        self._signature(main.name, used)
        with out.indented():
            out.add(f'"""The whole program. Returns {tree_of(program.outputs, lambda _: "an array", True)}."""')
            self._notes = notes(main)
            for place, (value, leaf) in enumerate(zip(main.inputs, program.inputs, strict=True)):
                if value.name != leaf.name:
                    out.add(f"{value.name} = {leaf.name}  # {self._shown(value)}", equations=(f"arg{place}",))
            start = len(out.lines)
            for statement in main.statements:
                self._statement(statement)
            results = dict(zip(program.outputs, main.outputs, strict=True))
            out.add(f"return {tree_of(program.outputs, lambda leaf: self.array(results[leaf]), False)}")
            body, out.lines[start:] = out.lines[start:], []
            known = set[str]()
            for size, text in self._named_axes if len(self._named_axes) > 1 or self._names_of_sizes(body) else ():
                is_new = size.isidentifier() and size not in known
                out.add(f"{size} = {text}" if is_new else f"assert {text} == {size}")
                known.add(size)
            out.lines += body

    # Statements

    def _statement(self, one: Statement) -> None:
        if one.primitive == "scan":
            self._scan(one)
        elif one.primitive == "while":
            self._while(one)
        elif one.primitive == "cond":
            self._cond(one)
        elif one.function is not None:
            name, note = one.function.name, f"  # {one.note}" if one.note else ""
            self._call(one, name, [*map(self.array, one.inputs), *self._size_names[name]], note)
        else:
            self._assign(one, self._expression(one))

    def _expression(self, one: Statement) -> str:
        name = one.primitive
        if name in self.rules:
            text = self.rules.write(self, one)
        elif name in INFIX:
            text = elementwise.infix(self, one)
        else:
            text = self.function(name, *self.operands(one))
        is_wide = self.library == "torch" and name in _MAY_EXCEED and one.outputs[0].dtype == "uint32"
        return f"({text}) & 0xFFFFFFFF" if is_wide else text

    def _assign(self, one: Statement, text: str) -> None:
        targets = ", ".join(value.name for value in one.outputs)
        line = f"{targets} = {text}" if targets else text
        note = f"; {self._notes[one]}" if one in self._notes else ""
        self._out.add(f"{line}  # {joined_shapes(map(self._shown, one.outputs))}{note}", one)

    def _shown(self, value: Operand) -> str:
        dtype = "" if value.dtype == self._usual else f" {value.dtype}"
        shape = str(value.shape) if isinstance(value, Value) else "()"
        return f"{shape}{dtype}"

    def _as(self, operand: Operand, value: Value) -> str:
        return self.array(operand)

    def _item(self, operand: Operand, value: Value) -> str:
        return f"{self.array(operand)}[step]"

    def _stacked(self, items: str, value: Value, length: int) -> str:
        if not length:
            return f"{self.module}.zeros({value.shape}, dtype={self.dtype(value.dtype)})"
        return f"{self.module}.stack({items})"

    def _while(self, one: Statement) -> None:
        out, (condition, body) = self._out, one.bodies
        self._carry(one, condition.inputs, one.inputs)
        out.add("while True:", one)
        with out.indented():
            for statement in condition.statements:
                self._statement(statement)
            out.add(f"if not {self.operand(condition.outputs[0])}:", one)
            out.add("    break", one)
            self._carry(one, body.inputs, condition.inputs)
            for statement in body.statements:
                self._statement(statement)
            self._carry(one, condition.inputs, body.outputs)
        self._carry(one, one.outputs, condition.inputs)

    def _cond(self, one: Statement) -> None:
        out = self._out
        index = self.operand(one.inputs[0])
        for place, branch in enumerate(one.bodies):
            is_last = place == len(one.bodies) - 1
            test = f"{'if' if not place else 'elif'} {index} == {place}:"
            out.add("else:" if is_last and place else test, one)
            with out.indented():
                for statement in branch.statements:
                    self._statement(statement)
                before = len(out.lines)
                self._carry(one, one.outputs, branch.outputs)
                if not branch.statements and len(out.lines) == before:
                    out.add("pass", one)


class _JaxEmitter(LaxControl, _Emitter):
    @cached_property
    def rules(self) -> Rules[Context, str]:
        return Rules({**RULES, **LAX})

    def _constant(self, value: Value, array: Any) -> None:
        super()._constant(value, array)
        if value.dtype.startswith("key<"):
            self._out.add(f"{value.name} = jax.random.wrap_key_data({value.name})")

    def _expression(self, one: Statement) -> str:
        text = super()._expression(one)
        if self.helpers:  # a rule of NumPy with a helper function, which JAX does not have
            raise self.unsupported(one)
        return text
