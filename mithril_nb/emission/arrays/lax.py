"""The rules for JAX source, where it differs from NumPy source: functions of `jax.lax`, random keys, control flow."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from mithril_nb.emission.arrays.rules import RULES, ArrayContext, is_float, plain, sizes
from mithril_nb.emission.arrays.shapes import filled, in_tuple
from mithril_nb.emission.params import neutral
from mithril_nb.emission.program import ELEMENTWISE, POOLS, REDUCTIONS, Function, Number, Operand, Statement, Value
from mithril_nb.emission.python_text import PythonEmitter
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import NamedSize, number

LAX: Rules[ArrayContext, str] = Rules()
"""The rules of JAX that replace NumPy's, by primitive."""
lax_rule = LAX.rule
LAX_NAMES = ("jax", "jnp", "carry", "items", "condition", "body")
"""Names that emitted JAX source uses besides the names of arrays."""
_MODES = {"FILL_OR_DROP": "fill", "CLIP": "clip", "PROMISE_IN_BOUNDS": "promise_in_bounds"}
_SAME = (
    "rsqrt rem erf erfc erf_inv lgamma digamma nextafter reduce_precision cumsum cumprod cummax cummin cumlogsumexp "
    "shift_left shift_right_logical shift_right_arithmetic population_count clz igamma igammac bessel_i0e bessel_i1e "
    "pad conv_general_dilated dynamic_slice dynamic_update_slice gather scatter sort top_k scatter-add scatter-mul "
    "scatter-min scatter-max scatter-sub"
).split()
"""Primitives with a function of the same name in `jax.lax`."""
_LINEAR = {
    "cholesky": {"symmetrize_input": False}, "triangular_solve": {}, "qr": {}, "lu": {}, "svd": {},
    "eigh": {"symmetrize_input": False},
}  # fmt: skip
"""Primitives that have a function in `jax.lax.linalg`, each with further arguments of this function."""
_COMBINERS = {"add": "add", "mul": "mul", "max": "max", "min": "min", "and": "bitwise_and", "or": "bitwise_or"}


@lax_rule(*_SAME)
def _same(to: ArrayContext, op: Statement) -> str:
    texts = to.arrays(op)
    if op.primitive in ELEMENTWISE and len({len(operand.shape) for operand in op.inputs} - {0}) > 1:
        texts = [f"*jnp.broadcast_arrays({', '.join(texts)})"]  # jax.lax does not add axes
    return _call(to, op, f"jax.lax.{op.primitive.replace('-', '_')}", texts)


@lax_rule(*_LINEAR)
def _linear(to: ArrayContext, op: Statement) -> str:
    text = _call(to, op, f"jax.lax.linalg.{op.primitive}", to.arrays(op), _LINEAR[op.primitive])
    if op.primitive == "svd" and op["compute_uv"]:
        return f"[({text})[place] for place in (1, 0, 2)]"  # the primitive returns the singular values first
    return text


def _call(to: ArrayContext, op: Statement, name: str, texts: list[str], more: dict[str, Any] | None = None) -> str:
    # Params that equal the defaults of the function are left out, and so is the precision.
    function: Any = jax
    for part in name.split(".")[1:]:
        function = getattr(function, part)
    takes = inspect.signature(function).parameters
    if op.primitive in ("dynamic_slice", "dynamic_update_slice"):  # the functions take the starts as a tuple
        first = 2 if op.primitive == "dynamic_update_slice" else 1
        texts = [*texts[:first], f"({', '.join(texts[first:])},)"]
    if op.primitive == "sort" and len(texts) > 1:
        texts = [in_tuple(texts)]
    for key, value in {**op.params, **(more or {})}.items():
        # `out_sharding` refers to devices of this machine, and a precision to one kind of device.
        if key not in takes or value is None or value == takes[key].default or key in ("precision", "out_sharding"):
            continue
        if takes[key].default is None and key.endswith("dilation") and set(value) <= {1}:  # what None means
            continue
        text = _param(to, op, key, value)
        texts = [*texts, f"{key}={text}"] if text else texts
    return f"{name}({', '.join(texts)})"


def _param(to: ArrayContext, op: Statement, key: str, value: Any) -> str:
    if key == "preferred_element_type":  # the dtype of the operands, if it is missing
        return "" if str(value) == op.operand.dtype else to.dtype(str(value))
    if key == "mode":
        return repr(_MODES[value.name])
    if key == "fill_value":
        return to.number(Number(value, op.operand.dtype))
    if key == "dimension_numbers":
        kind = type(value).__name__
        if kind == "ConvDimensionNumbers" and {*value} == {tuple(range(len(value.lhs_spec)))}:  # the default: NCHW
            return ""
        fields = getattr(value, "_asdict", lambda: vars(value))()
        # Fields without a default must be written even if they are empty.
        parts = [
            f"{name}={plain(field)}"
            for name, field in fields.items()
            if field not in ((), None) or "batching" not in name
        ]
        return f"jax.lax.{kind}({', '.join(parts)})"
    if isinstance(value, bool | np.bool_):
        return repr(bool(value))
    return plain(value) if isinstance(value, int | np.integer | tuple | list | NamedSize) else ""


@lax_rule("reduce_window", *POOLS)
def _reduce_window(to: ArrayContext, op: Statement) -> str:
    combine, dtype = POOLS.get(op.primitive) or _COMBINERS[to.combiner(op, _COMBINERS)], op.operand.dtype
    start = Number(neutral(combine, dtype), dtype) if op.primitive in POOLS else op.inputs[1]
    # JAX differentiates a pooling only if its initial value is a Python number.
    is_open = op.primitive in POOLS and is_float(dtype)
    texts = [to.array(op.operand), (to.operand if is_open else to.array)(start), f"jax.lax.{combine}"]
    params: dict[str, Any] = {**op.params}
    for key in ("window_strides", "base_dilation", "window_dilation"):
        if key in params and set(params[key] or [1]) == {1}:
            params[key] = None
    if not any(map(any, params["padding"])):
        params["padding"] = None
    return _call(to, replace(op, params=params), "jax.lax.reduce_window", texts)


@lax_rule("reduce")
def _reduce(to: ArrayContext, op: Statement) -> str:
    texts = [*to.arrays(op), f"jax.lax.{_COMBINERS[to.combiner(op, _COMBINERS)]}", sizes(op["dimensions"])]
    return f"jax.lax.reduce({', '.join(texts)})"


@lax_rule("select_and_scatter_add")
def _unpool(to: ArrayContext, op: Statement) -> str:
    # JAX has no public function for this primitive, but `jax.vjp` of a pooling computes it.
    source, array = op.inputs
    unit = (1,) * len(array.shape)
    params = {"base_dilation": unit, "window_dilation": unit, **op.params}
    primitive = f"reduce_window_{to.selected(op)}"
    pooled = _reduce_window(to, Statement(primitive, (array,), op.outputs, params))
    name = to.array(array)
    return f"jax.vjp(lambda {name}: {pooled}, {name})[1]({to.array(source)})[0]"


@lax_rule("reduce_max", "reduce_min")
def _largest(to: ArrayContext, op: Statement) -> str:
    if op.operand.size:
        return RULES[op.primitive](to, op)
    return filled(to, op.output, Number(neutral(REDUCTIONS[op.primitive], op.dtype), op.dtype))  # jnp.max rejects it


_CALLS = {
    "logistic": "jax.nn.sigmoid", "random_wrap": "jax.random.wrap_key_data", "random_unwrap": "jax.random.key_data",
    "random_seed": "jax.random.key",
}  # fmt: skip
lax_rule(*_CALLS)(lambda to, op: f"{_CALLS[op.primitive]}({to.array(op.operand)})")
lax_rule("random_fold_in")(lambda to, op: f"{_each(op, 'jax.random.fold_in')}({', '.join(to.arrays(op))})")


@lax_rule("random_split", "random_bits")
def _of_key(to: ArrayContext, op: Statement) -> str:
    dtype = f", {to.dtype(op.dtype)}" if op.primitive == "random_bits" else ""
    rest = f", {sizes(op['shape'])}{dtype})"
    function = f"jax.random.{op.primitive.removeprefix('random_')}("
    name = to.array(op.operand)
    return f"{_each(op, f'lambda key: {function}key{rest}')}({name})" if op.operand.shape else function + name + rest


def _each(op: Statement, function: str) -> str:
    # The functions of jax.random take one key.
    rank = len(op.operand.shape)
    return "jax.vmap(" * rank + function + ")" * rank


_TOTAL = {
    "lt_to": "({0} < {1}) | (~jnp.isnan({0}) & jnp.isnan({1}))", "le_to": "({0} <= {1}) | jnp.isnan({1})",
    "eq_to": "({0} == {1}) | (jnp.isnan({0}) & jnp.isnan({1}))",
}  # fmt: skip
"""Comparisons in which NaN is the largest number, as in sorting. JAX has no public function for these primitives."""
lax_rule(*_TOTAL)(lambda to, op: _TOTAL[op.primitive].format(*to.arrays(op)))


@lax_rule("threefry2x32", "select_and_gather_add")
def _refused(to: ArrayContext, op: Statement) -> str:
    raise to.unsupported("a primitive without a public function in JAX")


# Loops of Python would be unrolled under `jax.jit`, and branches would fail there.
class LaxControl(PythonEmitter):
    """Write control flow that JAX can compile: `jax.lax.scan`, `while_loop` and `switch`, with local functions."""

    def _define(self, name: str, function: Function, arguments: dict[str, Iterable[Value]], results: str) -> None:
        self._out.add(f"def {name}({', '.join(arguments)}):")
        with self._out.indented():
            for argument, values in arguments.items():
                if names := [value.name for value in values]:
                    self._out.add(f"{in_tuple(names)} = {argument}")
            self._statements(function)
            self._out.add(f"return {results}")

    def _arrays(self, values: Iterable[Operand]) -> str:
        return in_tuple([*map(self.array, values)])

    def _scan(self, op: Statement) -> None:
        (body,), count = op.bodies, op["num_carry"]
        results = f"{self._arrays(body.outputs[:count])}, {self._arrays(body.outputs[count:])}"
        self._define("body", body, {"carry": body.inputs[:count], "items": body.inputs[count:]}, results)
        targets = [self._arrays(part) for part in (op.outputs[:count], op.outputs[count:])]
        left = ", ".join("_" if each == "()" else each for each in targets)
        arrays = f"{self._arrays(op.inputs[:count])}, {self._arrays(op.inputs[count:])}"
        reverse = ", reverse=True" if op["reverse"] else ""
        self.add(f"{left} = jax.lax.scan(body, {arrays}, length={number(op['length'])}{reverse})")

    def _while(self, op: Statement) -> None:
        condition, body = op.bodies
        self._define("condition", condition, {"carry": condition.inputs}, self.array(condition.outputs[0]))
        self._define("body", body, {"carry": body.inputs}, self._arrays(body.outputs))
        targets = self._arrays(op.outputs)
        self.add(f"{targets} = jax.lax.while_loop(condition, body, {self._arrays(op.inputs)})")

    def _cond(self, op: Statement) -> None:
        names = [f"branch_{index}" for index in range(len(op.bodies))]
        for name, branch in zip(names, op.bodies, strict=True):
            self._define(name, branch, {}, self._arrays(branch.outputs))
        target = f"{self._arrays(op.outputs)} = " if op.outputs else ""
        self.add(f"{target}jax.lax.switch({self.array(op.operand)}, [{', '.join(names)}])")
