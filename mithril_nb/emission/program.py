"""Data that every emitter prints: a traced program as functions and statements with readable names."""

from __future__ import annotations

import math
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
"""Key in the params of a reduction. If its value is true, the reduced axes stay, with size 1."""
ELEMENTWISE = frozenset(
    "abs acos acosh add add_any and asin asinh atan atan2 atanh bessel_i0e bessel_i1e cbrt ceil clamp conj "
    "convert_element_type cos cosh digamma div eq eq_to erf erf_inv erfc exp exp2 expm1 floor ge gt igamma imag "
    "integer_pow is_finite le le_to lgamma log log1p logistic lt lt_to max min mul ne neg nextafter not or "
    "polygamma population_count pow real reduce_precision rem round rsqrt select_n shift_left "
    "shift_right_arithmetic shift_right_logical sign sin sinh sqrt square sub tan tanh xor".split()
)
"""Primitives that compute each item from the items at the same index. Their operands broadcast by NumPy's rules."""


@dataclass(frozen=True, eq=False)
class Value:
    """An array that a statement, a function or the program receives or computes.

    Two values with equal attributes are different: a value is only equal to itself.

    Attributes:
        name: Name in the source, unique in the function; `"_"` for an unused result. Until `build` chooses it, the
            wanted name.
        shape: The shape.
        dtype: The dtype: `"float32"`, `"bool"`, or `"key<fry>"` for random keys.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        """Number of items."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Number:
    """A number written into the source.

    Attributes:
        value: A Python `bool`, `int`, `float` or `complex`, already rounded to the dtype.
        dtype: The dtype. In an operation with an array, the dtype of the array is kept, as for a Python number.
    """

    value: bool | int | float | complex
    dtype: str

    shape: ClassVar[tuple[int, ...]] = ()
    size: ClassVar[int] = 1

    @property
    def text(self) -> str:
        """Source of the number. Rounded to the dtype, it is equal to the value.

        Examples:
            >>> Number(0.10000000149011612, "float32").text, Number(True, "bool").text, Number(2, "int32").text
            ('0.1', 'True', '2')
        """
        if isinstance(self.value, float) and self.dtype in ("float16", "float32"):
            text = str(np.dtype(self.dtype).type(self.value))
            # Read as a float64, the shortest text of the largest float32 is above it, and PyTorch rejects it.
            if abs(float(text)) <= abs(self.value) or abs(self.value) < np.finfo(self.dtype).max:
                return text
        return repr(self.value)


Operand = Value | Number


@dataclass(frozen=True, eq=False)
class Statement:
    """One operation, or one call of a function.

    Attributes:
        primitive: JAX's primitive; `"call"` for a call of `function`.
        inputs: The operands.
        outputs: The results; an unused result has the name `"_"`.
        params: JAX's params without jaxprs. Reductions may have `"keepdims"`; a `scan` has `num_carry`.
        equations: Ids of the equations that it computes. In a shared function, those of all calls.
        block: Path of its block, or `"(loss)"`, `"(optimizer)"`; `""` without a block. In a shared function, the block
            of the first call.
        role: The part of a training step to which it belongs; `None` if unknown.
        source: The user's line of Python that caused it, as `"file.py:12"`; `""` if unknown.
        bodies: Bodies of control flow, which may also read values that are computed before the statement.
            - `scan`: the body, from carry and items to carry and results. `inputs` are the initial carry and arrays.
            - `while`: condition and body, from the carry. `inputs` are the initial carry.
            - `cond`: the branches, without inputs. `inputs` contain only the index of the branch.
            - `reduce`, `reduce_window`, ...: the function that combines two items.
        function: The function that a call runs.
        note: A comment, or `""`.
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
        """The values that it reads: its operands, and values from outside that its bodies read."""
        own = [one for one in self.inputs if isinstance(one, Value)]
        return tuple(dict.fromkeys([*own, *(one for body in self.bodies for one in body.free)]))


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the program, or a body of control flow.

    Attributes:
        name: The name, unique in the program; `""` for a body.
        inputs: The arrays that it receives.
        outputs: The arrays and numbers that it returns.
        statements: The statements, in the order of execution.
        block: Path of its block, of the first one if several share it; `""` for the whole program and for bodies.
        role: Its part of a training step; `None` for the whole program and for bodies, or if it is unknown.
        blocks: Paths of all blocks that share it; `()` for the whole program and for bodies.
        ports: Names that the inputs, except parameters, have in the forward function of the block, and names of the
            block's output ports.
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
        """The values that it reads but neither receives nor computes: constants, and for a body, values around it."""
        known = set(self.inputs)
        found: dict[Value, None] = {}
        for statement in self.statements:
            found.update(dict.fromkeys(one for one in statement.reads if one not in known))
            known.update(statement.outputs)
        found.update(dict.fromkeys(one for one in self.outputs if isinstance(one, Value) and one not in known))
        return tuple(found)

    def is_result(self, output: Operand) -> bool:
        """Return whether an output of a forward function is an output of the block, not only for the gradients."""
        return isinstance(output, Number) or output.name.startswith("output") or output.name in self.ports

    def walk(self) -> Iterator[Statement]:
        """Yield its statements; the statements of bodies follow the statement that contains the bodies."""
        for statement in self.statements:
            yield statement
            for body in statement.bodies:
                yield from body.walk()


@dataclass(frozen=True)
class Program:
    """A program that emitters print.

    Attributes:
        name: Name of the program.
        functions: The functions, each after the functions that it calls; the last is the whole program.
        constants: A dict from values that every function may read to the NumPy arrays that the program contains.
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
        """A sentence that explains names such as `d_x` in a file; `""` for a program without gradients."""
        if not any(one.role == "backward" for function in self.functions for one in function.walk()):
            return ""
        if any(leaf.argument == "output_gradients" for leaf in self.inputs):
            return "d_x is the gradient of sum(output * d_output) with respect to x."
        return "d_x is d(loss)/d(x)."

    @cached_property
    def primitives(self) -> frozenset[str]:
        """The primitives of all statements, except `"call"`."""
        found = {one.primitive for function in self.functions for one in function.walk()}
        return frozenset(found - {CALL})


def substituted(function: Function, instead: Mapping[Value, Operand]) -> Function:
    """Return a body in which the operands in `instead` replace values from outside the body."""
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
