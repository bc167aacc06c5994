"""Data that every emitter prints: a traced program as functions and statements with readable names."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from mithril_nb.stages.records import Role
from mithril_nb.stages.trace.tracing import Leaf

CALL = "call"
"""Primitive of a statement that calls a function of the program."""
REDUCTIONS = {
    "reduce_sum": "add", "reduce_prod": "mul", "reduce_max": "max", "reduce_min": "min", "reduce_and": "and",
    "reduce_or": "or", "reduce_xor": "xor",
}  # fmt: skip
POOLS = {"reduce_window_max": "max", "reduce_window_min": "min", "reduce_window_sum": "add"}
"""The primitive that combines two items, by reduction and by pooling."""
INFIX = {
    "add": "+", "add_any": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=",
    "gt": ">", "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
"""Operators by primitive. They are the same in every library and in C."""
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
    """An array that a statement, a function or the program receives or computes. It is only equal to itself."""

    name: str
    """Name in the source, unique in the function; `"_"` for an unused result. Before `build`, it is a suggestion."""
    shape: tuple[int, ...]
    dtype: str
    """Random keys have `"key<fry>"`."""

    @property
    def size(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Number:
    """A number written into the source, already rounded to the dtype."""

    value: bool | int | float | complex
    dtype: str

    name: ClassVar[str] = "number"
    shape: ClassVar[tuple[int, ...]] = ()
    size: ClassVar[int] = 1

    @property
    def text(self) -> str:
        """The number as Python, such as `"0.1"`. After rounding to the dtype, the text equals `value`.

        Examples:
            >>> Number(0.10000000149011612, "float32").text, Number(True, "bool").text, Number(2, "int32").text
            ('0.1', 'True', '2')
        """
        if isinstance(self.value, float) and self.dtype in ("float16", "float32"):
            text = str(np.dtype(self.dtype).type(self.value))
            # PyTorch rejects the shortest text of the largest float32: as a float64, it is larger than every float32.
            if abs(float(text)) <= abs(self.value) or abs(self.value) < np.finfo(self.dtype).max:
                return text
        return repr(self.value)


Operand = Value | Number


def arrays(operands: Iterable[Operand]) -> list[Value]:
    return [operand for operand in operands if isinstance(operand, Value)]


@dataclass(frozen=True, eq=False)
class Statement:
    """One operation, or one call of a function.

    Attributes:
        params: The parameters of JAX's primitive, without jaxprs. A reduction that keeps the reduced axes with size 1
            also has `keepdims`. A `scan` has `num_carry`, the number of carried arrays.
        equations: Ids of the traced equations that the statement computes. If several blocks share the function that
            contains the statement, these are the equations of all these blocks.
        block: Path of the block, or `"(loss)"`, or `"(optimizer)"`; `""` outside of blocks. If several blocks share
            the function that contains the statement, it is the path of the first of them.
        source: The user's line of Python, as `"file.py:12"`; `""` if unknown.
        bodies: The functions inside of a control-flow statement. They may also read earlier values.
            - `scan`: one body, (carry, items) -> (carry, results). `inputs` are the initial carry and arrays of items.
            - `while`: a condition, carry -> bool, and a body, carry -> carry. `inputs` are the initial carry.
            - `cond`: the branches, without inputs. `inputs` contain only the index of the branch.
            - `reduce`, `reduce_window`, ...: a function that combines two items.
        note: A comment for the source.
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

    def __getitem__(self, param: str) -> Any:
        return self.params[param]

    @property
    def operand(self) -> Operand:
        return self.inputs[0]

    @property
    def output(self) -> Value:
        return self.outputs[0]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.output.shape

    @property
    def dtype(self) -> str:
        return self.output.dtype

    @cached_property
    def reads(self) -> tuple[Value, ...]:
        """The arrays that the statement reads: operands, and arrays from outside that its bodies read."""
        return tuple(dict.fromkeys([*arrays(self.inputs), *(value for body in self.bodies for value in body.free)]))

    @property
    def combiner(self) -> str:
        """The primitive by which a reduction of one array combines two items, such as `"add"`; `""` for others."""
        # More statements, such as those of `argmax` by hand, combine pairs of items.
        names = [statement.primitive for body in self.bodies for statement in body.statements]
        return names[0] if len(names) == 1 and len(self.inputs) == 2 else ""

    def also(self, equations: Iterable[str], **changes: Any) -> Statement:
        """Return a statement that computes further equations."""
        return replace(self, equations=tuple(dict.fromkeys((*self.equations, *equations))), **changes)


@dataclass(frozen=True, eq=False)
class Function:
    """A function of the program, or a body of control flow, which has no name and no block.

    Attributes:
        block: Path of the first block that runs the function; `""` for the whole program.
        blocks: Paths of all blocks that run the function.
        ports: Names of the arrays that the forward function of the block receives, except parameters, and of the
            block's output ports.
        kind: Kind of the block, such as `"LayerNorm"`.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Operand, ...]
    statements: tuple[Statement, ...]
    block: str = ""
    role: Role | None = None
    blocks: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    kind: str = ""

    @cached_property
    def free(self) -> tuple[Value, ...]:
        """The values that the function reads but neither receives nor computes: constants, and values around a body."""
        own = set(self.inputs)
        values: dict[Value, None] = {}
        for statement in self.statements:
            values.update(dict.fromkeys(value for value in statement.reads if value not in own))
            own.update(statement.outputs)
        values.update(dict.fromkeys(value for value in arrays(self.outputs) if value not in own))
        return tuple(values)

    @cached_property
    def roles(self) -> Mapping[Value, Role | None]:
        """A dict from values to their part of a training step. Inputs other than gradients are missing.

        An input with a name such as `d_x` is a gradient. In the body of a `scan`, the carry has the role of the
        `scan`. An input of the body that is one item of an array has the role of the array.
        """
        roles: dict[Value, Role | None] = {
            operand: "backward" for operand in self.inputs if operand.name.startswith("d_")
        }
        for statement in self.walk():
            roles.update(dict.fromkeys(statement.outputs, statement.role))
            # A loop comes before its body, so the roles of its arrays are known.
            if statement.primitive == "scan":
                count, inputs = statement["num_carry"], statement.bodies[0].inputs
                roles.update(dict.fromkeys(inputs[:count], statement.role))
                arrays = zip(inputs[count:], statement.inputs[count:], strict=True)
                roles.update((item, roles.get(array)) for item, array in arrays if isinstance(array, Value))
        return roles

    @cached_property
    def producers(self) -> Mapping[Operand, Statement]:
        """The statement that computes each value, also in bodies."""
        return {value: statement for statement in self.walk() for value in statement.outputs}

    def uses(self) -> dict[Operand, list[Statement | None]]:
        """Return the statements that read each value; `None` means that the function returns the value."""
        uses: dict[Operand, list[Statement | None]] = defaultdict(list)
        for statement in self.statements:
            for value in statement.reads:
                uses[value].append(statement)
        for value in arrays(self.outputs):
            uses[value].append(None)
        return uses

    def is_result(self, output: Operand) -> bool:
        """Return whether an output of a forward function is an output of the block. Others are only for gradients."""
        return isinstance(output, Number) or output.name.startswith("output") or output.name in self.ports

    def walk(self) -> Iterator[Statement]:
        for statement in self.statements:
            yield statement
            for body in statement.bodies:
                yield from body.walk()


@dataclass(frozen=True)
class EmittedProgram:
    """A program that emitters print.

    Attributes:
        functions: The functions, each after the functions that it calls. The last one is `main`.
        constants: The NumPy array of each constant. Every function may read the constants.
        inputs: The arrays in the program's arguments, in the order of `main.inputs`.
        outputs: The arrays in the program's results, in the order of `main.outputs`.
    """

    name: str
    functions: tuple[Function, ...]
    constants: Mapping[Value, Any]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]

    @property
    def main(self) -> Function:
        return self.functions[-1]

    @property
    def gradient_notes(self) -> tuple[str, ...]:
        """Sentences for the emitted file that explain names such as `d_x`; empty if there are no gradients."""
        statements = [*self.walk()]
        if not any(statement.role == "backward" for statement in statements):
            return ()
        names = {value.name for statement in statements for value in statement.outputs}
        names |= {value.name for function in self.functions for value in function.inputs}
        is_vjp = any(leaf.argument == "output_gradients" for leaf in self.inputs)
        sentences = [
            "d_x is d(loss)/d(x)." + (" The caller passes d(loss)/d(output) for each output." if is_vjp else "")
        ]
        if any(re.match(r"part_(\d+_)?of_d_|d_.*_so_far", name) for name in names):
            sentences.append(
                "If x has several uses, d_x is a sum: part_of_d_x is one of its terms, d_x_so_far a sum of some terms."
            )
        if any(name.startswith("minus_") and "d_" in name for name in names):
            sentences.append("minus_d_x is -d_x.")
        if any(re.match(r"(minus_)?unsummed_d_", name) for name in names):
            sentences.append("unsummed_d_x must still be summed over the axes along which x is broadcast.")
        return tuple(sentences)

    def walk(self) -> Iterator[Statement]:
        for function in self.functions:
            yield from function.walk()


def substituted(function: Function, instead: Mapping[Operand, Operand]) -> Function:
    """Return a body in which the operands of the dict `instead` replace its keys, which are values from outside."""
    if instead.keys().isdisjoint(function.free):
        return function

    def now(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple([instead.get(operand, operand) for operand in operands])

    statements = [
        replace(
            statement,
            inputs=now(statement.inputs),
            bodies=tuple([substituted(body, instead) for body in statement.bodies]),
        )
        for statement in function.statements
    ]
    return replace(function, statements=tuple(statements), outputs=now(function.outputs))
