"""A traced program as functions and statements with readable names: what every emitter prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.tracing import Leaf

CALL = "call"
"""Primitive of a statement that calls a function of the program."""
DETACH = "detach"
"""Primitive of a `stop_gradient` that the source keeps, because its library may differentiate it."""
KEEPDIMS = "keepdims"
"""Param of a reduction whose reduced axes stay, with size 1."""
ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp conj "
    "convert_element_type cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma imag "
    "integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul ne neg nextafter not or "
    "polygamma population_count pow real reduce_precision rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor".split()
)
"""Primitives that compute each item from the items at its place. Their operands broadcast as NumPy's do."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array that a statement, a function or the program receives or computes. Each is equal only to itself.

    Attributes:
        name: Its name in the source, unique in its function; within the passes, what it should be named after.
        shape: Its shape.
        dtype: Its dtype: `"float32"`, `"bool"`, or `"key<fry>"` for random keys.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of items."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size


@dataclass(frozen=True)
class Number:
    """A number written into the source.

    Attributes:
        value: A Python `bool`, `int`, `float` or `complex`, already rounded to the dtype.
        dtype: Its dtype. Like a Python number, it never changes the dtype of the array that it meets.
    """

    value: bool | int | float | complex
    dtype: str

    shape: ClassVar[tuple[int, ...]] = ()
    size: ClassVar[int] = 1

    @property
    def text(self) -> str:
        """Source of the number, as short as possible: it is equal to the value when rounded to the dtype.

        Examples:
            >>> Number(0.10000000149011612, "float32").text, Number(True, "bool").text, Number(2, "int32").text
            ('0.1', 'True', '2')
        """
        if isinstance(self.value, float) and self.dtype in ("float16", "float32"):
            text = str(np.dtype(self.dtype).type(self.value))
            # The text of the largest float32 is above it as a float64, and PyTorch refuses it.
            if abs(float(text)) <= abs(self.value) or abs(self.value) < np.finfo(self.dtype).max:
                return text
        return repr(self.value)


Operand = Value | Number


@dataclass(frozen=True, eq=False)
class Statement:
    """One operation, or one call of a function.

    Attributes:
        primitive: JAX's primitive; `"call"` for a call of `function`.
        inputs: Its operands.
        outputs: Its results; an unused result has the name `"_"`.
        params: JAX's params without jaxprs. Reductions may have `"keepdims"`; a `scan` has `num_carry`.
        equations: Ids of the equations that it computes, of each call if its function is shared.
        block: Path of the block that caused it, in the first call; `"(loss)"`, `"(optimizer)"` or `""`.
        role: The part of a training step that it belongs to; `None` if unknown.
        source: The line of Python that caused it, as `"file.py:12"`, or `""`.
        bodies: Bodies of control flow, which may also read every value before the statement. `scan`: the body, from
            carry and items to carry and results; `while`: condition and body, from the carry; `cond`: the branches,
            without inputs; `reduce`, `reduce_window`, ...: the function that combines two items. `inputs` are the
            initial carry and the arrays of a `scan`, the initial carry of a `while`, the index of a `cond`.
        function: The function that a call runs.
        note: A comment on it, or `""`.
    """

    primitive: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Value, ...]
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    equations: tuple[str, ...] = ()
    block: str = ""
    role: Role | None = None
    source: str = ""
    bodies: tuple[Function, ...] = ()
    function: Function | None = None
    note: str = ""

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        """The values that it needs: its operands, and what its bodies read from outside."""
        own = [one for one in self.inputs if isinstance(one, Value)]
        return tuple(dict.fromkeys([*own, *(one for body in self.bodies for one in body.free)]))


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the program, or a body of control flow.

    Attributes:
        name: Its name, unique in the program; `""` for a body.
        inputs: The arrays that it receives.
        outputs: The arrays that it returns.
        statements: Its statements, in the order of execution.
        block: Path of its block, in the first call; `""` for the whole program.
        role: Its part of a training step; `None` for the whole program.
        blocks: Paths of all blocks that share it; `()` for the whole program and for bodies.
        ports: Names, in the forward function, of the arrays that its block receives from others and returns.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Operand, ...]
    statements: tuple[Statement, ...]
    block: str = ""
    role: Role | None = None
    blocks: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()

    @cached_property
    def free(self) -> tuple[Value, ...]:
        """The values that it reads but neither receives nor computes: of a body, values of the function around."""
        known = set(self.inputs)
        found: dict[Value, None] = {}
        for statement in self.statements:
            found.update(dict.fromkeys(one for one in statement.reads if one not in known))
            known.update(statement.outputs)
        found.update(dict.fromkeys(one for one in self.outputs if isinstance(one, Value) and one not in known))
        return tuple(found)

    def is_result(self, output: Operand) -> bool:
        """Return whether an output of a forward function is one of its block; others are only for the gradients."""
        return isinstance(output, Number) or output.name.startswith("output") or output.name in self.ports

    def walk(self) -> Iterator[Statement]:
        """Yield its statements, and those of bodies of control flow after the statement that contains them."""
        for statement in self.statements:
            yield statement
            for body in statement.bodies:
                yield from body.walk()


@dataclass(frozen=True)
class Program:
    """A program that emitters print.

    Attributes:
        name: Name of the program.
        functions: Its functions, each after the functions that it calls; the last is the whole program.
        constants: Arrays that the program contains (NumPy arrays), by the value that every function may use.
        inputs: The leaves of its arguments, in the order of the inputs of the last function.
        outputs: The leaves of its results, in the order of the outputs of the last function.
    """

    name: str
    functions: tuple[Function, ...]
    constants: Mapping[Value, Any]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]

    @property
    def main(self) -> Function:
        """The whole program, which calls the other functions."""
        return self.functions[-1]

    @property
    def gradient_note(self) -> str:
        """A sentence on names such as `d_x`, for the head of a file; `""` for a program without gradients."""
        if not any(one.role == "backward" for function in self.functions for one in function.walk()):
            return ""
        if any(leaf.argument == "output_gradients" for leaf in self.inputs):
            return "d_x is the gradient of sum(output * d_output) with respect to x."
        return "d_x is d(loss)/d(x)."

    @cached_property
    def primitives(self) -> frozenset[str]:
        """The primitives that it uses."""
        found = {one.primitive for function in self.functions for one in function.walk()}
        return frozenset(found - {CALL})


def substituted(function: Function, instead: Mapping[Value, Operand]) -> Function:
    """Return a body in which other operands replace some values."""
    if instead.keys().isdisjoint(function.free):
        return function

    def now(one: Operand) -> Operand:
        return instead.get(one, one) if isinstance(one, Value) else one

    statements = [
        replace(
            one,
            inputs=tuple(map(now, one.inputs)),
            bodies=tuple([substituted(body, instead) for body in one.bodies]),
        )
        for one in function.statements
    ]
    return replace(function, statements=tuple(statements), outputs=tuple(map(now, function.outputs)))
