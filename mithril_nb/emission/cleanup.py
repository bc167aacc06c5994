"""Remove redundant statements of a program without changing its results.

Each statement has the ids of the traced equations that it computes. The ids of a removed statement move to the
statements that use its results, or to an equal statement. The ids of statements with unused results are dropped.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mithril_nb.emission.params import expanded_shape, product_axes
from mithril_nb.emission.program import (
    ELEMENTWISE,
    KEEPDIMS,
    Function,
    Number,
    Operand,
    Statement,
    Value,
    arrays,
    substituted,
)

_UNCHANGED = frozenset("copy copy_p stop_gradient pvary pcast optimization_barrier".split())
_RESHAPES = frozenset("reshape squeeze expand_dims broadcast_in_dim".split())
_REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor".split())
_COMMUTATIVE = frozenset("add add_any mul max min and or xor eq ne".split())
_OF_SAME = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}
"""The comparison of an array with itself, if it has no NaN. C compilers warn about it."""
_EXACT = ("int", "uint", "bool")
"""Starts of the dtypes without NaN."""
_MOST_ROUNDS = 8
_NEUTRAL = {"mul": 1, "div": 1, "sub": 0, "max": -math.inf, "min": math.inf, "pow": 1}
"""The number that changes nothing as the second operand: x * 1 is x, even if x is NaN or -0."""
_COMMUTES = frozenset({"mul", "max", "min"})
_OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "add_any": operator.add, "sub": operator.sub, "mul": operator.mul,
    "max": np.maximum, "min": np.minimum, "neg": operator.neg, "abs": np.abs, "sqrt": np.sqrt, "square": np.square,
    "sign": np.sign, "floor": np.floor, "ceil": np.ceil, "not": np.logical_not, "and": np.bitwise_and,
    "or": np.bitwise_or, **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip
"""Operations that every library rounds in the same way, by primitive."""
_FOLDED = frozenset("bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64".split())


def clean(function: Function) -> Function:
    """Return a function without redundant statements, also in bodies of control flow."""
    for _ in range(_MOST_ROUNDS):
        before, cleaner = len(function.statements), _Pass(function)
        function = cleaner.run()
        live, statements = {*arrays(function.outputs)}, list[Statement]()
        for statement in reversed(function.statements):
            # A callback has no results, and no backend has source for it: it must stay, to be refused.
            if not statement.outputs or not live.isdisjoint(statement.outputs):
                live.update(statement.reads)
                statements.append(statement)
        function = replace(function, statements=tuple(reversed(statements)))
        if not cleaner.count and len(statements) == before:
            break
    return function


class _Pass:
    """One round over the statements of a function, from the first to the last.

    Attributes:
        instead: The operand that replaces each removed value.
        ids: Equation ids of each removed value. The statements that used this value get the ids.
        producers: For each value, the index in `statements` of the statement that computes it.
        statements: The statements so far.
        count: Number of changes.
        results: The results of each elementwise statement, by a key. Equal statements have equal keys.
    """

    def __init__(self, function: Function):
        self.function, self.uses = function, function.uses()
        self.instead: dict[Operand, Operand] = {}
        self.ids: dict[Operand, tuple[str, ...]] = {}
        self.producers: dict[Operand, int] = {}
        self.statements: list[Statement] = []
        self.results: dict[Any, tuple[Value, ...]] = {}
        self.count = 0

    def run(self) -> Function:
        for statement in self.function.statements:
            self._add(statement)
        outputs = self._now(self.function.outputs)
        for old, now in zip(self.function.outputs, outputs, strict=True):
            self._give(now, self._ids([old]))
        return replace(self.function, statements=tuple(self.statements), outputs=outputs)

    # A value may be replaced by one that is replaced later, so both functions follow chains.

    def _now(self, operands: Iterable[Operand]) -> tuple[Operand, ...]:
        now: list[Operand] = []
        for operand in operands:
            while operand in self.instead:
                operand = self.instead[operand]
            now.append(operand)
        return tuple(now)

    def _ids(self, operands: Iterable[Operand]) -> list[str]:
        ids: list[str] = []
        for operand in operands:
            while operand in self.instead:
                ids += self.ids.get(operand, ())
                operand = self.instead[operand]
        return ids

    def _add(self, statement: Statement) -> None:
        inputs = self._now(statement.inputs)
        if inputs != statement.inputs:
            statement = statement.also(self._ids(statement.inputs), inputs=inputs)
        if statement.bodies:
            now: dict[Operand, Operand] = dict(zip(statement.reads, self._now(statement.reads), strict=True))
            bodies = [clean(substituted(body, now)) for body in statement.bodies]  # they read values from around them
            statement = statement.also(self._ids(statement.reads), bodies=tuple(bodies))
        simpler = self._broadcasting(simplified(statement, self._producer))
        self.count += simpler is not statement
        statement = simpler
        same = _same(statement)
        if same is not None:
            return self._drop(statement, same, statement.equations)
        earlier = self._earlier_results(statement)
        if earlier is not statement.outputs:
            self._give(earlier[0], statement.equations)
            return self._drop(statement, earlier)
        if self._merge_into_reduction(statement) or self._merge_into_product(statement):
            return None
        self.producers.update(dict.fromkeys(statement.outputs, len(self.statements)))
        self.statements.append(statement)

    def _earlier_results(self, statement: Statement) -> tuple[Value, ...]:
        # Others are rarely computed twice, and their params may hold large arrays.
        if statement.primitive not in ELEMENTWISE:
            return statement.outputs
        operands = [  # the repr distinguishes -0.0 from 0.0, and equals itself for NaN
            (repr(operand.value), operand.dtype) if isinstance(operand, Number) else operand
            for operand in statement.inputs
        ]
        if statement.primitive in _COMMUTATIVE:
            operands.sort(key=hash)
        params = tuple(sorted((key, repr(value)) for key, value in statement.params.items()))
        # Within a block and role only: each block keeps the lines that it computes.
        key = (statement.primitive, statement.block, statement.role, params, *operands)
        return self.results.setdefault(key, statement.outputs)

    def _drop(self, statement: Statement, same: Sequence[Operand], ids: tuple[str, ...] = ()) -> None:
        self.count += 1
        self.instead.update(zip(statement.outputs, same, strict=True))
        self.ids.update(dict.fromkeys(statement.outputs, ids))

    def _give(self, operand: Operand, ids: Iterable[str]) -> None:
        if operand in self.producers:
            index = self.producers[operand]
            self.statements[index] = self.statements[index].also(ids)

    def _producer(self, operand: Operand) -> Statement | None:
        return self.statements[self.producers[operand]] if operand in self.producers else None

    def _broadcasting(self, statement: Statement) -> Statement:
        if statement.primitive not in ELEMENTWISE or len(statement.inputs) < 2:
            return statement
        inputs, ids = statement.inputs, list[str]()
        for index, operand in enumerate(inputs):
            producer = self._producer(operand)
            if producer is None or producer.primitive not in _RESHAPES or not _is_leading(producer):
                continue
            changed = (*inputs[:index], producer.operand, *inputs[index + 1 :])
            # JAX broadcasts explicitly, the libraries by themselves; another operand must have the full shape.
            if broadcast_shape([each.shape for each in changed]) == statement.shape:
                inputs = changed
                ids += producer.equations
        return statement.also(ids, inputs=inputs) if ids else statement

    def _merge_into_reduction(self, statement: Statement) -> bool:
        # Possible if every use of the reduction is a reshape to the shape with the other value of `keepdims`.
        if statement.primitive != "reshape":
            return False
        source, producer = statement.operand, self._producer(statement.operand)
        if producer is None or producer.primitive not in _REDUCTIONS:
            return False
        # JAX traces keepdims=True as a reduction and a reshape.
        axes, keepdims = producer["axes"], not producer.params.get(KEEPDIMS)
        sizes = enumerate(producer.operand.shape)
        shape = tuple([1 if axis in axes else size for axis, size in sizes if keepdims or axis not in axes])
        uses = self.uses[source]
        reshapes = [use for use in uses if use and use.primitive in _RESHAPES and use.shape == shape]
        if statement.shape != shape or len(reshapes) < len(uses):
            return False
        other = Value(source.name, shape, source.dtype)
        self._replace(producer, statement, other, params={**producer.params, KEEPDIMS: keepdims})
        self.uses[other] = list(self.uses[statement.output])
        # The other reshapes no longer change the shape, so `_same` drops them later.
        self.instead[source] = other
        self._drop(statement, [other])  # no ids: the reduction already has the equations
        return True

    def _merge_into_product(self, statement: Statement) -> bool:
        producer = self._producer(statement.operand) if statement.primitive == "transpose" else None
        if producer is None or producer.primitive != "dot_general" or len(self.uses[producer.output]) != 1:
            return False
        (left_batch, left_free, left_over), (right_batch, _, right_over) = product_axes(producer)
        batch, free, rank = len(left_batch), len(left_free), len(statement.shape)
        swapped = (*range(batch), *range(batch + free, rank), *range(batch, batch + free))
        if tuple(statement["permutation"]) != swapped:  # (y.T @ x.T).T is x @ y, also with batch axes
            return False
        numbers = ((right_over, left_over), (right_batch, left_batch))
        params = {**producer.params, "dimension_numbers": numbers}
        self._replace(producer, statement, statement.output, inputs=producer.inputs[::-1], params=params)
        self.count += 1
        return True

    def _replace(self, producer: Statement, statement: Statement, output: Value, **changes: Any) -> None:
        index = self.producers[output] = self.producers[producer.output]
        self.statements[index] = producer.also(statement.equations, outputs=(output,), **changes)


def simplified(statement: Statement, producer: Callable[[Operand], Statement | None]) -> Statement:
    """Return a simpler statement with the same results; the statement itself if no rule applies."""
    name, inputs, before = statement.primitive, statement.inputs, None
    if len(inputs) == 1 and isinstance(inputs[0], Value):
        # The broadcast of a number stays a broadcast, because emitters write it as a filled array.
        is_view = name in _RESHAPES - {"reshape"} or (
            name in _REDUCTIONS and not statement.params.get(KEEPDIMS) and statement["axes"]
        )
        if name == "transpose":  # one that only moves axes of size 1 keeps the order of the items
            moved = [axis for axis in statement["permutation"] if inputs[0].shape[axis] != 1]
            is_view = moved == sorted(moved)
        if is_view and inputs[0].size == statement.output.size:
            statement, name = _as_reshape(statement, statement.output), "reshape"
        before = producer(inputs[0])
    if before is not None and name == before.primitive and name in ("reshape", "transpose", "neg"):
        changes: dict[str, Any] = {"inputs": before.inputs}
        if name == "transpose":
            order = before["permutation"]
            changes["params"] = {"permutation": tuple([order[axis] for axis in statement["permutation"]])}
        elif name == "neg":
            changes |= {"primitive": "copy", "params": {}}
        statement = statement.also(before.equations, **changes)
        name, inputs = statement.primitive, statement.inputs
    if name in _OF_SAME and inputs[0] is inputs[-1] and inputs[0].dtype.startswith(_EXACT):
        params = {"shape": statement.shape, "broadcast_dimensions": (), "sharding": None}
        return replace(statement, primitive="broadcast_in_dim", inputs=(Number(_OF_SAME[name], "bool"),), params=params)
    if name == "integer_pow" and statement["y"] == 2:
        statement = replace(statement, primitive="square", params={})
    return _without_sign(statement, producer)


def _without_sign(statement: Statement, producer: Callable[[Operand], Statement | None]) -> Statement:
    # Zeros in the result have the same sign as before: -(x - y) would differ from y - x.
    negated = [before if (before := producer(x)) and before.primitive == "neg" else None for x in statement.inputs]
    name, inputs = statement.primitive, statement.inputs
    if name == "neg":
        product = producer(inputs[0])
        if product is not None and product.primitive == "mul" and (factor := _float_number(product.inputs)):
            return statement.also(product.equations, primitive="mul", inputs=_with_minus(product.inputs, factor))
    if not any(negated):
        return statement
    # Negations come from derivatives, such as that of a difference.
    if name == "square" and negated[0]:
        return statement.also(negated[0].equations, inputs=negated[0].inputs)
    if name in ("add", "add_any", "sub") and (minus := negated[1]) is not None:
        primitive = "add" if name == "sub" else "sub"
        return statement.also(minus.equations, primitive=primitive, inputs=(inputs[0], *minus.inputs))
    if name in ("add", "add_any") and (minus := negated[0]) is not None:
        return statement.also(minus.equations, primitive="sub", inputs=(inputs[1], *minus.inputs))
    if name == "mul" and (factor := _float_number(inputs)):
        minus = negated[0] or negated[1]
        assert minus is not None
        factors = [each if each is factor else minus.operand for each in inputs]
        return statement.also(minus.equations, inputs=_with_minus(factors, factor))
    return statement


def _float_number(inputs: Sequence[Operand]) -> Number | None:
    return next((x for x in inputs if isinstance(x, Number) and "float" in x.dtype), None)


def _with_minus(inputs: Sequence[Operand], factor: Number) -> tuple[Operand, ...]:
    return tuple([Number(-factor.value, factor.dtype) if x is factor else x for x in inputs])


def _same(statement: Statement) -> Sequence[Operand] | None:
    name, inputs, params = statement.primitive, statement.inputs, statement.params
    if name in _UNCHANGED:
        return inputs
    if len(statement.outputs) != 1 or not inputs:
        return None
    output, first = statement.output, inputs[0]

    def is_result(operand: Operand) -> bool:
        return (operand.shape, operand.dtype) == (output.shape, output.dtype)

    if is_result(first) and (
        name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type")
        or (name == "transpose" and tuple(params["permutation"]) == tuple(range(len(output.shape))))
        or (name in _REDUCTIONS and not params["axes"])
        or (name == "integer_pow" and params["y"] == 1)
    ):
        return [first]
    if name == "select_n":  # of `jnp.where` with equal cases, or after a comparison of numbers
        chosen = inputs[1 + int(first.value.real)] if isinstance(first, Number) else inputs[1]
        if chosen.shape == output.shape and (isinstance(first, Number) or all(x is chosen for x in inputs[1:])):
            return [chosen]
    if name in _NEUTRAL:
        for index, operand in enumerate(inputs):
            other = inputs[1 - index]
            if isinstance(operand, Number) and (index or name in _COMMUTES) and operand.value == _NEUTRAL[name]:
                if is_result(other):
                    return [other]
    number = _folded(statement)
    return None if number is None else [number]


def _folded(statement: Statement) -> Number | None:
    # Only numbers that every library computes equally are folded.
    # float16 and bfloat16 are missing in `_FOLDED`: libraries round them once or twice.
    name, dtype = statement.primitive, statement.dtype
    numbers = [x for x in statement.inputs if isinstance(x, Number)]
    dtypes = {dtype, *(x.dtype for x in numbers)}
    if statement.shape != () or len(numbers) != len(statement.inputs) or not dtypes <= _FOLDED:
        return None
    values = [np.dtype(x.dtype).type(x.value) for x in numbers]
    target = np.dtype(dtype)
    operation: Callable[..., Any] | None = _OPERATIONS.get(name)
    with np.errstate(all="ignore"):  # infinities and NaN are results like others
        if name in ("convert_element_type", "reshape", "squeeze", "broadcast_in_dim", "copy"):
            if name == "convert_element_type" and not _is_converted_equally(values[0], target):
                return None
            operation = lambda value: value.astype(target)  # noqa: E731
        elif name == "div" and target.kind == "f":
            operation = operator.truediv
        elif name == "select_n" and len(values) == 3:
            operation = lambda which, *cases: cases[int(which)]  # noqa: E731
        elif operation is None or (name == "not" and target.kind != "b"):
            return None
        return Number(target.type(operation(*values)).item(), dtype)


def _is_converted_equally(value: Any, dtype: np.dtype) -> bool:
    # Libraries differ for floats out of the range of integers.
    if value.dtype.kind == "f" and dtype.kind in "iu":
        return bool(np.isfinite(value)) and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    return value.dtype.kind != "f" or dtype.kind == "f" or dtype.kind == "b"


def _is_leading(view: Statement) -> bool:
    source, output = view.operand, view.output
    rank, source_rank = len(output.shape), len(source.shape)
    if not source_rank:
        return True
    if view.primitive == "broadcast_in_dim":  # NumPy adds axes in front only
        return tuple(view["broadcast_dimensions"]) == tuple(range(rank - source_rank, rank))
    return rank >= source_rank and output.shape == (1,) * (rank - source_rank) + source.shape


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape to which NumPy broadcasts some shapes, or `None` if NumPy cannot broadcast them.

    Examples:
        >>> broadcast_shape([(3,), (2, 1), ()]), broadcast_shape([(2,), (3,)])
        ((2, 3), None)
    """
    rank = max(map(len, shapes))
    axes = [{*sizes} - {1} for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)]
    return None if any(len(sizes) > 1 for sizes in axes) else tuple([next(iter(sizes), 1) for sizes in axes])


def narrow(function: Function) -> Function:
    """Return the function with broadcasts replaced by reshapes that insert axes of size 1, where that is enough."""
    # All statements that read it must be elementwise, and each must have another operand with the shape of the result.
    # These statements then broadcast the reshaped array.
    uses = function.uses()
    instead: dict[Operand, Operand] = {}
    statements: list[Statement] = []
    broadcasts = {statement.output for statement in function.statements if statement.primitive == "broadcast_in_dim"}
    for statement in function.statements:
        inputs = tuple([instead.get(operand, operand) for operand in statement.inputs])
        statement = replace(statement, inputs=inputs, bodies=tuple(map(narrow, statement.bodies)))
        small = _narrowed(statement, uses, broadcasts)
        if small is not None:
            instead[statement.output] = small.output
            statement = small
        statements.append(statement)
    return replace(function, statements=tuple(statements))


def _narrowed(
    statement: Statement, uses: Mapping[Operand, Sequence[Statement | None]], broadcasts: set[Value]
) -> Statement | None:
    if statement.primitive != "broadcast_in_dim" or isinstance(statement.operand, Number):
        return None
    output = statement.output
    small = Value(output.name, expanded_shape(statement), output.dtype)
    if small.shape == output.shape:
        return None
    for use in uses[output]:
        if use is None or use.primitive not in ELEMENTWISE:
            return None
        # The operand with the full shape must not be a broadcast, which may be replaced too.
        if not any(operand.shape == use.shape for operand in use.inputs if operand not in broadcasts):
            return None
    return _as_reshape(statement, small)


def _as_reshape(statement: Statement, output: Value) -> Statement:
    params = {"new_sizes": output.shape, "dimensions": None}
    return replace(statement, primitive="reshape", outputs=(output,), params=params)
