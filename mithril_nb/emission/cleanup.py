"""Remove redundant statements of a program without changing its results.

Each statement has the ids of the traced equations that it computes. The ids of a removed statement move to the
statements that use its results, or to an equal statement. The ids of statements with unused results are dropped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.emission.folding import fold
from mithril_nb.emission.narrowing import as_reshape
from mithril_nb.emission.program import ELEMENTWISE, KEEPDIMS, Function, Number, Operand, Statement, Value, substituted

_UNCHANGED = frozenset("copy copy_p stop_gradient pvary pcast optimization_barrier".split())
_RESHAPES = frozenset("reshape squeeze expand_dims broadcast_in_dim".split())
_REDUCTIONS = frozenset("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor".split())
_COMMUTATIVE = frozenset("add add_any mul max min and or xor eq ne".split())
_OF_SAME = {"eq": True, "le": True, "ge": True, "ne": False, "lt": False, "gt": False}
"""The comparison of an array with itself, if it has no NaN. C compilers warn about it."""
_EXACT = ("int", "uint", "bool")
_MOST_ROUNDS = 8


def clean(function: Function) -> Function:
    """Return a function without redundant statements, also in bodies of control flow."""
    for _ in range(_MOST_ROUNDS):
        before, one = len(function.statements), _Pass(function)
        function = without_unused(one.run())
        if not one.count and len(function.statements) == before:
            break
    return function


def without_unused(function: Function) -> Function:
    """Return a function without statements whose results are unused. A statement that has no results stays."""
    live = {one for one in function.outputs if isinstance(one, Value)}
    kept: list[Statement] = []
    for statement in reversed(function.statements):
        if statement.outputs and live.isdisjoint(statement.outputs):
            continue
        live.update(statement.reads)
        kept.append(statement)
    return replace(function, statements=tuple(reversed(kept)))


@dataclass
class _Pass:
    """One round over the statements of a function, from the first to the last.

    Attributes:
        function: The function.
        instead: The operand that replaces each removed value.
        ids: Equation ids of each removed value. The statements that used this value get the ids.
        producers: For each value, the index in `found` of the statement that computes it.
        found: The statements so far.
        count: Number of changes.
        known: The results of each elementwise statement, by a key. Equal statements have equal keys.
    """

    function: Function
    instead: dict[Value, Operand] = field(default_factory=dict[Value, Operand])
    ids: dict[Value, tuple[str, ...]] = field(default_factory=dict[Value, tuple[str, ...]])
    producers: dict[Value, int] = field(default_factory=dict[Value, int])
    found: list[Statement] = field(default_factory=list[Statement])
    count: int = 0
    known: dict[Any, tuple[Value, ...]] = field(default_factory=dict[Any, tuple[Value, ...]])

    def run(self) -> Function:
        self.uses = self.function.uses()
        for statement in self.function.statements:
            self._add(statement)
        outputs = tuple([self._now(one) for one in self.function.outputs])
        for one, now in zip(self.function.outputs, outputs, strict=True):
            self._give(now, self._ids([one]))
        return replace(self.function, statements=tuple(self.found), outputs=outputs)

    def _now(self, one: Operand) -> Operand:
        while isinstance(one, Value) and one in self.instead:
            one = self.instead[one]
        return one

    def _ids(self, operands: Iterable[Operand]) -> tuple[str, ...]:
        found: list[str] = []
        for one in operands:
            while isinstance(one, Value) and one in self.instead:
                found += self.ids.get(one, ())
                one = self.instead[one]
        return tuple(found)

    def _add(self, statement: Statement) -> None:
        inputs = tuple([self._now(one) for one in statement.inputs])
        if inputs != statement.inputs:
            statement = replace(
                statement, inputs=inputs, equations=_joined(statement.equations, self._ids(statement.inputs))
            )
        if statement.bodies:
            now = {one: self._now(one) for one in statement.reads}
            bodies = [clean(substituted(body, now)) for body in statement.bodies]
            equations = _joined(statement.equations, self._ids(statement.reads))
            statement = replace(statement, bodies=tuple(bodies), equations=equations)
        statement = self._changed(statement, simplified(statement, self._producer))
        statement = self._changed(statement, self._broadcasting(statement))
        same = _same(statement)
        if same is not None:
            return self._drop(statement, same, statement.equations)
        known = self._known_results(statement)
        if known is not None:
            self._give(known[0], statement.equations)
            return self._drop(statement, known)
        if self._merge_into_reduction(statement) or self._merge_into_product(statement):
            return None
        self.producers.update(dict.fromkeys(statement.outputs, len(self.found)))
        self.found.append(statement)

    def _changed(self, old: Statement, new: Statement) -> Statement:
        self.count += new is not old
        return new

    def _known_results(self, statement: Statement) -> tuple[Value, ...] | None:
        """Return the results of an earlier equal elementwise statement of the same block and role, or `None`."""
        if statement.primitive not in ELEMENTWISE:
            return None
        operands = [one if isinstance(one, Value) else (repr(one.value), one.dtype) for one in statement.inputs]
        if statement.primitive in _COMMUTATIVE:
            operands.sort(key=lambda one: hash(one))
        params = tuple(sorted((key, repr(value)) for key, value in statement.params.items()))
        key = (statement.primitive, statement.block, statement.role, params, *operands)
        known = self.known.setdefault(key, statement.outputs)
        return None if known is statement.outputs else known

    def _drop(self, statement: Statement, same: Sequence[Operand], ids: tuple[str, ...] = ()) -> None:
        """Replace the results of a statement by the operands `same`. Statements that use the results get the `ids`."""
        self.count += 1
        for output, one in zip(statement.outputs, same, strict=True):
            self.instead[output] = one
            self.ids[output] = ids

    def _give(self, one: Operand, ids: tuple[str, ...]) -> None:
        """Add equation ids to the statement that computes an operand, if there is one."""
        producer = self._producer(one)
        if producer is not None and isinstance(one, Value):
            self.found[self.producers[one]] = replace(producer, equations=_joined(producer.equations, ids))

    def _producer(self, one: Operand) -> Statement | None:
        return self.found[self.producers[one]] if isinstance(one, Value) and one in self.producers else None

    def _broadcasting(self, statement: Statement) -> Statement:
        """Skip reshapes and broadcasts before an elementwise statement if NumPy broadcasts in the same way."""
        if statement.primitive not in ELEMENTWISE or len(statement.inputs) < 2:
            return statement
        inputs, ids = list(statement.inputs), list[str]()
        for place, one in enumerate(inputs):
            producer = self._producer(one)
            if producer is None or producer.primitive not in _RESHAPES or not _is_leading(producer):
                continue
            changed = [*inputs[:place], producer.inputs[0], *inputs[place + 1 :]]
            if broadcast_shape([each.shape for each in changed]) == statement.outputs[0].shape:
                inputs = changed
                ids += producer.equations
        if not ids:
            return statement
        return replace(statement, inputs=tuple(inputs), equations=_joined(statement.equations, ids))

    def _merge_into_reduction(self, statement: Statement) -> bool:
        """Merge a reshape into the reduction before it by changing `keepdims`, and return whether that is possible.

        It is possible if every use of the reduction is a reshape to the shape with the other value of `keepdims`.
        """
        if statement.primitive != "reshape":
            return False
        (source,), (output,) = statement.inputs, statement.outputs
        producer = self._producer(source)
        if producer is None or producer.primitive not in _REDUCTIONS or not isinstance(source, Value):
            return False
        axes, given = producer.params["axes"], producer.inputs[0].shape
        keepdims = not producer.params.get(KEEPDIMS)
        shape = tuple([1 if axis in axes else size for axis, size in enumerate(given) if keepdims or axis not in axes])
        uses = self.uses[source]
        reshapes = [use for use in uses if use and use.primitive in _RESHAPES and use.outputs[0].shape == shape]
        if output.shape != shape or len(reshapes) < len(uses):
            return False
        other = Value(source.name, shape, source.dtype)
        at = self.producers[source]
        self.found[at] = replace(
            producer,
            outputs=(other,),
            params={**producer.params, KEEPDIMS: keepdims},
            equations=_joined(producer.equations, statement.equations),
        )
        self.producers[other] = at
        self.uses[other] = list(self.uses[output])
        # The other reshapes no longer change the shape, so `_same` drops them later.
        self.instead[source] = other
        self._drop(statement, [other])  # no ids: the reduction already has the equations
        return True

    def _merge_into_product(self, statement: Statement) -> bool:
        """Swap the operands of a matrix product instead of transposing its result. Return whether it is possible."""
        if statement.primitive != "transpose":
            return False
        (source,), (output,) = statement.inputs, statement.outputs
        producer = self._producer(source)
        if producer is None or producer.primitive != "dot_general" or len(self.uses[producer.outputs[0]]) != 1:
            return False
        left, right = producer.inputs
        (left_over, right_over), (left_batch, right_batch) = producer.params["dimension_numbers"]
        batch = len(left_batch)
        free = len(left.shape) - batch - len(left_over)
        rank = len(output.shape)
        swapped = (*range(batch), *range(batch + free, rank), *range(batch, batch + free))
        if tuple(statement.params["permutation"]) != swapped:
            return False
        numbers = ((right_over, left_over), (right_batch, left_batch))
        params = {**producer.params, "dimension_numbers": numbers}
        at = self.producers[producer.outputs[0]]
        self.found[at] = replace(
            producer,
            inputs=(right, left),
            outputs=(output,),
            params=params,
            equations=_joined(producer.equations, statement.equations),
        )
        self.producers[output] = at
        self.count += 1
        return True


def simplified(statement: Statement, producer: Any) -> Statement:
    """Return a simpler statement with the same results; the statement itself if no rule applies.

    Args:
        statement: The statement.
        producer: Function from an operand to the statement that computes it, or to `None` for inputs and numbers.
    """
    one = statement
    if one.primitive in _RESHAPES and one.primitive != "reshape" and one.inputs[0].size == one.outputs[0].size:
        # The broadcast of a number stays a broadcast, because emitters write it as a filled array.
        if isinstance(one.inputs[0], Value) and len(one.inputs) == 1:
            one = as_reshape(one, one.outputs[0])
    if one.primitive in _REDUCTIONS and not one.params.get(KEEPDIMS) and len(one.inputs) == 1:
        if one.params["axes"] and one.inputs[0].size == one.outputs[0].size and isinstance(one.inputs[0], Value):
            one = as_reshape(one, one.outputs[0])
    if one.primitive == "transpose" and _keeps_order(one) and isinstance(one.inputs[0], Value):
        one = as_reshape(one, one.outputs[0])
    before = producer(one.inputs[0]) if len(one.inputs) == 1 else None
    if before is not None and one.primitive == before.primitive and one.primitive in ("reshape", "transpose", "neg"):
        equations = _joined(one.equations, before.equations)
        if one.primitive == "transpose":
            order = before.params["permutation"]
            permutation = tuple([order[axis] for axis in one.params["permutation"]])
            one = replace(one, inputs=before.inputs, params={"permutation": permutation}, equations=equations)
        elif one.primitive == "reshape":
            one = replace(one, inputs=before.inputs, equations=equations)
        else:
            one = replace(one, primitive="copy", inputs=before.inputs, params={}, equations=equations)
    inputs = one.inputs
    if one.primitive in _OF_SAME and inputs[0] is inputs[-1] and inputs[0].dtype.startswith(_EXACT):
        params = {"shape": one.outputs[0].shape, "broadcast_dimensions": (), "sharding": None}
        return replace(
            one, primitive="broadcast_in_dim", inputs=(Number(_OF_SAME[one.primitive], "bool"),), params=params
        )
    if one.primitive == "integer_pow" and one.params["y"] == 2:
        one = replace(one, primitive="square", params={})
    return _without_sign(one, producer)


def _without_sign(one: Statement, producer: Any) -> Statement:
    """Return an equal statement without a negation: x - y for x + (-y), x * -2 for (-x) * 2.

    Zeros in the result have the same sign as before.
    """
    negated = [before if (before := producer(x)) and before.primitive == "neg" else None for x in one.inputs]
    name, inputs = one.primitive, one.inputs
    if name == "neg":
        before = producer(inputs[0])
        place = None if before is None or before.primitive != "mul" else _float_index(before.inputs)
        if before is not None and place is not None:
            swapped = [_minus(x) if at == place and isinstance(x, Number) else x for at, x in enumerate(before.inputs)]
            equations = _joined(one.equations, before.equations)
            return replace(one, primitive="mul", inputs=tuple(swapped), equations=equations)
    if not any(negated):
        return one
    if name == "square" and negated[0]:
        return replace(one, inputs=negated[0].inputs, equations=_joined(one.equations, negated[0].equations))
    if name in ("add", "add_any", "sub") and (minus := negated[1]) is not None:
        primitive = "add" if name == "sub" else "sub"
        equations = _joined(one.equations, minus.equations)
        return replace(one, primitive=primitive, inputs=(inputs[0], *minus.inputs), equations=equations)
    if name in ("add", "add_any") and (minus := negated[0]) is not None:
        equations = _joined(one.equations, minus.equations)
        return replace(one, primitive="sub", inputs=(inputs[1], *minus.inputs), equations=equations)
    place = _float_index(inputs) if name == "mul" else None
    if place is not None and (minus := negated[1 - place]) is not None:
        number = inputs[place]
        assert isinstance(number, Number)
        both = (minus.inputs[0], _minus(number)) if place else (_minus(number), minus.inputs[0])
        return replace(one, inputs=both, equations=_joined(one.equations, minus.equations))
    return one


def _float_index(inputs: Sequence[Operand]) -> int | None:
    """Return the index of the first operand that is a float `Number`, or `None`."""
    return next((at for at, one in enumerate(inputs) if isinstance(one, Number) and "float" in one.dtype), None)


def _minus(number: Number) -> Number:
    return Number(-number.value, number.dtype)


def _keeps_order(transpose: Statement) -> bool:
    """Return whether a transpose only moves axes of size 1."""
    shape = transpose.inputs[0].shape
    moved = [axis for axis in transpose.params["permutation"] if shape[axis] != 1]
    return moved == sorted(moved)


def _same(statement: Statement) -> Sequence[Operand] | None:
    """Return operands or a number that equal the results of a statement: x for x * 1. Return `None` if unknown."""
    name, inputs, outputs = statement.primitive, statement.inputs, statement.outputs
    if name in _UNCHANGED:
        return inputs
    if len(outputs) != 1:
        return None
    (output,) = outputs
    first = inputs[0] if inputs else None
    if first is None:
        return None
    is_same = first.shape == output.shape and first.dtype == output.dtype
    if is_same and name in ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type"):
        return [first]
    if is_same and name == "transpose" and tuple(statement.params["permutation"]) == tuple(range(len(output.shape))):
        return [first]
    if is_same and name in _REDUCTIONS and not statement.params["axes"]:
        return [first]
    if is_same and name == "integer_pow" and statement.params["y"] == 1:
        return [first]
    if name == "select_n":
        chosen = inputs[1 + int(first.value.real)] if isinstance(first, Number) else inputs[1]
        if chosen.shape == output.shape and (isinstance(first, Number) or all(one is chosen for one in inputs[1:])):
            return [chosen]
    if name in _NEUTRAL:
        for place, one in enumerate(inputs):
            other = inputs[1 - place]
            if isinstance(one, Number) and (place or name in _COMMUTES) and one.value == _NEUTRAL[name]:
                if other.shape == output.shape and other.dtype == output.dtype:
                    return [other]
    number = fold(statement)
    return None if number is None else [number]


_NEUTRAL = {"mul": 1, "div": 1, "sub": 0, "max": -math.inf, "min": math.inf, "pow": 1}
"""The number that changes nothing as the second operand: x * 1 is x, even if x is NaN or -0."""
_COMMUTES = frozenset({"mul", "max", "min"})


def _is_leading(view: Statement) -> bool:
    """Return whether a reshape or broadcast only adds axes in front, as NumPy's broadcasting does."""
    source, output = view.inputs[0], view.outputs[0]
    rank, given = len(output.shape), len(source.shape)
    if isinstance(source, Number) or not given:
        return True
    if view.primitive == "broadcast_in_dim":
        return tuple(view.params["broadcast_dimensions"]) == tuple(range(rank - given, rank))
    return rank >= given and output.shape == (1,) * (rank - given) + source.shape


def broadcast_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape to which NumPy broadcasts some shapes, or `None` if NumPy cannot broadcast them.

    Examples:
        >>> broadcast_shape([(3,), (2, 1), ()]), broadcast_shape([(2,), (3,)])
        ((2, 3), None)
    """
    rank = max(map(len, shapes))
    axes = [{*sizes} - {1} for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)]
    return None if any(len(sizes) > 1 for sizes in axes) else tuple([next(iter(sizes), 1) for sizes in axes])


def _joined(equations: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*equations, *more)))
