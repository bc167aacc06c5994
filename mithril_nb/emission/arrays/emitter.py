"""Print a program as the source of an array library: functions for blocks, and a line for each statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from mithril_nb.emission.arrays import contractions, elementwise, fused, shapes
from mithril_nb.emission.arrays.lax import LAX, LAX_NAMES, LaxControl
from mithril_nb.emission.arrays.rules import RULES, ArrayContext, Library
from mithril_nb.emission.build import build
from mithril_nb.emission.naming.names import comment
from mithril_nb.emission.program import CALL, EmittedProgram, Function, Statement, Value
from mithril_nb.emission.python_text import Helpers, constant_text, is_encoded, notes, program_arguments, read_helpers
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import NamedSize
from mithril_nb.emission.source import Source, SourceLine, Writer
from mithril_nb.emission.unsupported import check_dtypes, check_supported
from mithril_nb.stages.trace import traced

_MAY_EXCEED = frozenset(
    "add add_any sub mul neg not square integer_pow div rem shift_left convert_element_type bitcast_convert_type "
    "dot_general conv_general_dilated reduce_sum reduce_prod cumsum cumprod reduce_window_sum reduce_window reduce "
    "scatter-add scatter-mul scatter-sub scatter_add scatter_mul scatter_sub".split()
)
"""Primitives whose uint32 result is cut to 32 bits in PyTorch, where it is an int64."""
_WORDS: dict[str, dict[str, str]] = {
    "torch": {
        "np.take_along_axis": "torch.take_along_dim", "np.copy(": "torch.clone(",
        "np.linalg.svd(x, compute_uv=False)": "torch.linalg.svdvals(x)", "np.": "torch.",
        'axis=axis, kind="stable"': "dim=axis, stable=True", ".astype(": ".to(", ".transpose(": ".permute(",
        ".max(": ".amax(", ".min(": ".amin(", "keepdims": "keepdim",
    },
    "mlx": {"np.copy(": "mx.array(", "np.": "mx.", ', kind="stable"': "", ".itemsize": ".size"},
}  # fmt: skip
"""The words of the libraries instead of those of NumPy in the file helpers/shared.py, applied in this order."""
RULE_FILES = (contractions, elementwise, fused, shapes)
"""The modules that register the rules."""


def emit_arrays(program: traced.Program, library: Library) -> Source:
    """Return a traced program as Python source that uses an array library.

    The file contains helper functions, then the functions of the blocks. In a training step, a block has one function
    for its forward pass and one for its backward pass. The last function runs the whole program.
    """
    emitter = _JaxEmitter if library == "jax" else _ArrayEmitter
    options: dict[str, Any] = {"fuse": fused.fuse} if library == "torch" else {}
    keeps_gradients = library in ("torch", "mlx")
    # Names that the file uses itself, which arrays and blocks may not have.
    reserved = {"functools", "math", "np", "torch", "mx", "step", "base64", "zlib", "decoded", *LAX_NAMES}
    reserved |= helper_sources(library).keys()
    return emitter(library).source(build(program, reserved, keeps_gradients, takes_names=True, **options))


@cache
def helper_sources(library: Library) -> Helpers:
    folder = Path(__file__).parent / "helpers"
    own = [path.read_text(encoding="utf-8") for path in folder.glob(f"{library}_*")]
    shared = (folder / "shared.py").read_text(encoding="utf-8")
    for word, other in _WORDS.get(library, {}).items():
        shared = shared.replace(word, other)
    return read_helpers([shared, *own] if own else [])


class _ArrayEmitter(ArrayContext):
    rules: Rules[ArrayContext, str] = RULES

    def source(self, program: EmittedProgram) -> Source:
        main = program.main
        supported = {"scan", "while", "cond", CALL, *self.rules, *self.dialect.functions}
        check_supported(program, self.library, supported)
        check_dtypes(program.functions, self.library, lambda dtype: self.dtype_or_none(dtype) is not None)
        self.usual_dtype = "float64" if any(value.dtype == "float64" for value in main.inputs) else "float32"
        axes = [(value, *each) for value in main.inputs for each in enumerate(value.shape)]
        axes = [(str(size), f"{value.name}.shape[{axis}]") for value, axis, size in axes if isinstance(size, NamedSize)]
        # Plain names first: `batch = x.shape[0]` comes before `assert y.shape[0] == 2 * batch`.
        self._named_axes = sorted(axes, key=lambda axis: not axis[0].isidentifier())
        has_gradients = bool(program.gradient_notes)
        for function in program.functions[:-1]:
            self._notes = notes(function)
            self._function(function, has_gradients)
        self._main(program)
        body, self._out = self._out, Writer()
        self._head_of_file(program)
        return Source("python", (*self._out.lines, *body.lines), f"{main.name}_{self.library}", main.name)

    def _head_of_file(self, program: EmittedProgram) -> None:
        documentation = (
            f"'{comment(program.name)}' in {self.dialect.title}, written by mithril_nb from what JAX traced.",
            "",
            f"A comment shows the shape of the result, and its dtype if it is not {self.usual_dtype}.",
            *program.gradient_notes,
        )
        texts = self._header(documentation, program, helper_sources(self.library), self.dialect.imports)
        if program.constants:
            self._out.add()
        for value, array in program.constants.items():
            self._out.add(f"{value.name} = {self.constant(value, array)}")
        for text in texts:
            self._out.add(f"\n\n{text}")

    def constant(self, value: Value, array: np.ndarray) -> str:
        dtype = self.dtype_or_none(value.dtype)
        if value.dtype == "float0" or not array.size:  # an empty list has no shape
            return f"{self.module}.zeros({value.shape}, dtype={dtype})"
        text = constant_text(array, self.module)
        if is_encoded(array):
            if self.library == "torch":
                conversion = ".astype(np.int64)" if array.dtype == np.uint32 else ".copy()"
                return f"torch.tensor({text}{conversion}{f', dtype={dtype}' if array.dtype.kind == 'V' else ''})"
            # MLX would convert float64 to float32.
            return text if self.library == "numpy" else f"{self.module}.array({text}, dtype={dtype})"
        return f"{self.module}.{'tensor' if self.library == 'torch' else 'array'}({text}, dtype={dtype})"

    def more_arguments(self, function: Function, lines: Sequence[SourceLine]) -> Sequence[str]:
        """Return the names of sizes that some lines read."""
        read = {name for line in lines for name in re.findall(r"\w+", line.text.partition("  # ")[0])}
        return tuple(dict.fromkeys(size for size, _ in self._named_axes if size in read))

    def _main(self, program: EmittedProgram) -> None:
        main = program.main
        arguments = list(program_arguments(program))
        decorator = '\n\n@np.errstate(all="ignore")  # no warnings about infinities and NaN'
        self._head(main.name, arguments, decorator if self.library == "numpy" else "\n")
        out = self._out
        with out.indented():
            self._main_title(program)
            self._notes = notes(main)
            for index, (value, leaf) in enumerate(zip(main.inputs, program.inputs, strict=True)):
                if value.name != leaf.name:
                    line = f"{value.name} = {leaf.name}  # {self.described(value)}"
                    out.add(line, equations=(f"arg{index}",))
            # The sizes are read before the statements, but only those that statements use.
            start = len(out.lines)
            self._statements(main)
            self._return(program, self.array)
            body, out.lines[start:] = out.lines[start:], []
            named = set[str]()
            for size, text in self._named_axes if len(self._named_axes) > 1 or self.more_arguments(main, body) else ():
                is_new = size.isidentifier() and size not in named
                out.add(f"{size} = {text}" if is_new else f"assert {text} == {size}")
                named.add(size)
            out.lines += body

    def expression(self, op: Statement) -> str:
        if op.primitive in self.rules:
            text = self.rules.write(self, op)
        else:
            text = self.function(op.primitive, *self.operands(op))
        is_wide = self.library == "torch" and op.primitive in _MAY_EXCEED and op.dtype == "uint32"
        return f"({text}) & 0xFFFFFFFF" if is_wide else text

    def stacked(self, items: str, value: Value, length: int) -> str:
        if not length:
            return f"{self.module}.zeros({value.shape}, dtype={self.dtype(value.dtype)})"
        return f"{self.module}.stack({items})"


class _JaxEmitter(LaxControl, _ArrayEmitter):
    rules = Rules({**RULES, **LAX})

    def constant(self, value: Value, array: np.ndarray) -> str:
        text = super().constant(value, array)
        if value.dtype.startswith("key<"):
            text += f"\n{value.name} = jax.random.wrap_key_data({value.name})"
        return text

    def expression(self, op: Statement) -> str:
        text = super().expression(op)
        if self.helpers:  # a rule of NumPy with a helper function, which JAX does not have
            raise self.unsupported()
        return text
