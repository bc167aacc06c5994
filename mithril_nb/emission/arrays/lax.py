"""The rules for JAX source, where it differs from NumPy source: functions of `jax.lax`, random keys, control flow."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from mithril_nb.emission.arrays.elementwise import is_float
from mithril_nb.emission.arrays.rules import RULES, Context, plain, sizes
from mithril_nb.emission.arrays.shapes import filled
from mithril_nb.emission.program import ELEMENTWISE, Function, Number, Operand, Statement, Value
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.sizes import Size, number

LAX: Rules[Context, str] = Rules()
"""The rules of JAX that replace NumPy's, by primitive."""
lax_rule = LAX.rule
LAX_NAMES = ("jax", "jnp", "carry", "items", "condition", "body")
"""Names that emitted JAX source uses besides the names of arrays."""
_MODES = {"FILL_OR_DROP": "fill", "CLIP": "clip", "PROMISE_IN_BOUNDS": "promise_in_bounds"}
_SAME = (
    "rsqrt rem erf erfc erf_inv lgamma digamma nextafter reduce_precision cumsum cumprod cummax cummin cumlogsumexp "
    "shift_left shift_right_logical shift_right_arithmetic population_count clz igamma igammac bessel_i0e bessel_i1e "
    "pad conv_general_dilated dynamic_slice dynamic_update_slice gather scatter sort top_k"
).split()
"""Primitives with a function of the same name in `jax.lax`."""
_SCATTERS = ("scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter-sub")
_LINEAR = {
    "cholesky": {"symmetrize_input": False}, "triangular_solve": {}, "qr": {}, "lu": {}, "svd": {},
    "eigh": {"symmetrize_input": False},
}  # fmt: skip
"""Primitives that have a function in `jax.lax.linalg`, each with further arguments of this function."""
_COMBINERS = {"add": "add", "mul": "mul", "max": "max", "min": "min", "and": "bitwise_and", "or": "bitwise_or"}
_POOLS = {"reduce_window_max": "max", "reduce_window_min": "min", "reduce_window_sum": "add"}


@lax_rule(*_SAME, *_SCATTERS)
def _same(to: Context, one: Statement) -> str:
    texts = to.arrays(one)
    if one.primitive in ELEMENTWISE and len({len(each.shape) for each in one.inputs} - {0}) > 1:
        texts = [f"*jnp.broadcast_arrays({', '.join(texts)})"]  # jax.lax does not add axes
    return _call(to, one, f"jax.lax.{one.primitive.replace('-', '_')}", texts)


@lax_rule(*_LINEAR)
def _linear(to: Context, one: Statement) -> str:
    text = _call(to, one, f"jax.lax.linalg.{one.primitive}", to.arrays(one), _LINEAR[one.primitive])
    if one.primitive == "svd" and one.params["compute_uv"]:
        return f"[({text})[place] for place in (1, 0, 2)]"  # the primitive returns the singular values first
    return text


def _call(to: Context, one: Statement, name: str, texts: list[str], more: dict[str, Any] | None = None) -> str:
    """Return a call of a JAX function with the arguments `texts`, the params of the statement, and `more` params.

    Params that equal the function's defaults are left out, and so is the precision.
    """
    function: Any = jax
    for part in name.split(".")[1:]:
        function = getattr(function, part)
    takes = inspect.signature(function).parameters
    if one.primitive in ("dynamic_slice", "dynamic_update_slice"):
        first = 2 if one.primitive == "dynamic_update_slice" else 1
        texts = [*texts[:first], f"({', '.join(texts[first:])},)"]
    if one.primitive == "sort" and len(texts) > 1:
        texts = [f"({', '.join(texts)})"]
    shown: list[str] = []
    for key, value in {**one.params, **(more or {})}.items():
        if key not in takes or value is None or value == takes[key].default or key in ("precision", "out_sharding"):
            continue
        if takes[key].default is None and key.endswith("dilation") and set(value) <= {1}:
            continue
        text = _shown(to, one, key, value)
        if text:
            shown.append(f"{key}={text}")
    return f"{name}({', '.join([*texts, *shown])})"


def _shown(to: Context, one: Statement, key: str, value: Any) -> str:
    """Return a param as Python, or `""` if the call must not or need not contain it."""
    if key == "preferred_element_type":
        return "" if str(value) == one.inputs[0].dtype else to.dtype(str(value))
    if key == "mode":
        return repr(_MODES[value.name])
    if key == "fill_value":
        return to.dialect.number(Number(value, one.inputs[0].dtype))
    if key == "dimension_numbers":
        kind = type(value).__name__
        if kind == "ConvDimensionNumbers":
            usual = tuple(range(len(value.lhs_spec)))
            if value.lhs_spec == value.rhs_spec == value.out_spec == usual:
                return ""
        fields = getattr(value, "_asdict", lambda: vars(value))()
        parts = [
            f"{name}={plain(field)}" for name, field in fields.items() if field not in ((), None) or _is_open(name)
        ]
        return f"jax.lax.{kind}({', '.join(parts)})"
    if isinstance(value, bool | np.bool_):
        return repr(bool(value))
    if isinstance(value, int | np.integer | tuple | list | Size):
        return plain(value)
    return ""


def _is_open(name: str) -> bool:
    """Return whether a field of dimension numbers must be written even if it is empty: it has no default."""
    return "batching" not in name


@lax_rule("reduce_window", *_POOLS)
def _reduce_window(to: Context, one: Statement) -> str:
    combine = _POOLS.get(one.primitive) or _combiner(to, one)
    start = _neutral(combine, one.inputs[0].dtype) if one.primitive in _POOLS else one.inputs[1]
    # JAX differentiates a pooling only if its initial value is a Python number.
    is_open = one.primitive in _POOLS and is_float(one.inputs[0].dtype)
    first = to.operand(start) if is_open else to.array(start)
    texts = [to.array(one.inputs[0]), first, f"jax.lax.{combine}"]
    steps = ("window_strides", "base_dilation", "window_dilation")
    params: dict[str, Any] = dict(one.params)
    for key in steps:
        if key in params and set(params[key] or [1]) == {1}:
            params[key] = None
    if not any(map(any, params["padding"])):
        params["padding"] = None
    kept = Statement(one.primitive, one.inputs, one.outputs, params, block=one.block, source=one.source)
    return _call(to, kept, "jax.lax.reduce_window", texts)


@lax_rule("reduce")
def _reduce(to: Context, one: Statement) -> str:
    texts = [*to.arrays(one), f"jax.lax.{_combiner(to, one)}"]
    return f"jax.lax.reduce({', '.join(texts)}, {sizes(one.params['dimensions'])})"


def _combiner(to: Context, one: Statement) -> str:
    if one.combiner not in _COMBINERS:
        raise to.unsupported(one, f"combining items by a function other than {', '.join(_COMBINERS)}")
    return _COMBINERS[one.combiner]


@lax_rule("select_and_scatter_add")
def _unpool(to: Context, one: Statement) -> str:
    """Return the gradient of a pooling by `jax.vjp`, because JAX has no public function for this primitive."""
    source, array = one.inputs
    if not one.selected:
        raise to.unsupported(one, "selection by a primitive other than ge and le")
    rank = len(array.shape)
    params = {"base_dilation": (1,) * rank, "window_dilation": (1,) * rank, **one.params}
    pooled = _reduce_window(to, Statement(f"reduce_window_{one.selected}", (array,), one.outputs, params))
    name = to.array(array)
    return f"jax.vjp(lambda {name}: {pooled}, {name})[1]({to.array(source)})[0]"


@lax_rule("reduce_max", "reduce_min")
def _largest(to: Context, one: Statement) -> str:
    if one.inputs[0].size:
        return RULES[one.primitive](to, one)
    start = _neutral(one.primitive.removeprefix("reduce_"), one.outputs[0].dtype)
    return filled(to, one.outputs[0], start)  # jnp.max rejects empty arrays


def _neutral(combine: str, dtype: str) -> Number:
    """Return the neutral number of a sum, a maximum or a minimum, such as 0 for a sum."""
    if combine == "add":
        return Number(0, dtype)
    if dtype.startswith(("float", "bfloat")):
        return Number(-math.inf if combine == "max" else math.inf, dtype)
    bounds = np.iinfo(dtype)
    return Number(int(bounds.min if combine == "max" else bounds.max), dtype)


@lax_rule("div")
def _divide(to: Context, one: Statement) -> str:
    left, right = to.operands(one)
    if is_float(one.outputs[0].dtype):
        return f"{left} / {to.right(right)}"
    return f"jax.lax.div({', '.join(to.arrays(one))})"


@lax_rule("round")
def _round(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    return f"jax.lax.round({text})" if int(one.params["rounding_method"]) == 0 else f"jnp.round({text})"


_CALLS = {
    "logistic": "jax.nn.sigmoid", "random_wrap": "jax.random.wrap_key_data", "random_unwrap": "jax.random.key_data",
    "random_seed": "jax.random.key",
}  # fmt: skip


@lax_rule(*_CALLS)
def _called(to: Context, one: Statement) -> str:
    return f"{_CALLS[one.primitive]}({to.array(one.inputs[0])})"


@lax_rule("random_fold_in")
def _fold_in(to: Context, one: Statement) -> str:
    return f"{_each(one, 'jax.random.fold_in')}({', '.join(to.arrays(one))})"


@lax_rule("random_split")
def _split(to: Context, one: Statement) -> str:
    return _of_key(to, one, f"jax.random.split(key, {sizes(one.params['shape'])})")


@lax_rule("random_bits")
def _bits(to: Context, one: Statement) -> str:
    dtype = to.dtype(f"uint{one.params['bit_width']}")
    return _of_key(to, one, f"jax.random.bits(key, {sizes(one.params['shape'])}, {dtype})")


def _of_key(to: Context, one: Statement, text: str) -> str:
    """Return the expression `text`, a function of `key`, for the key of a statement, or for each key in an array."""
    name = to.array(one.inputs[0])
    return (
        f"{_each(one, f'lambda key: {text}')}({name})" if one.inputs[0].shape else text.replace("key,", f"{name},", 1)
    )


def _each(one: Statement, function: str) -> str:
    """Return `function` with one `jax.vmap` for each axis of the statement's array of keys."""
    for _ in one.inputs[0].shape:
        function = f"jax.vmap({function})"
    return function


@lax_rule("lt_to", "le_to", "eq_to")
def _compare_total(to: Context, one: Statement) -> str:
    """Compare with NaN as the largest number, as sorting does."""
    left, right = to.arrays(one)
    if one.primitive == "lt_to":
        return f"({left} < {right}) | (~jnp.isnan({left}) & jnp.isnan({right}))"
    if one.primitive == "le_to":
        return f"({left} <= {right}) | jnp.isnan({right})"
    return f"({left} == {right}) | (jnp.isnan({left}) & jnp.isnan({right}))"


@lax_rule("threefry2x32", "select_and_gather_add")
def _refused(to: Context, one: Statement) -> str:
    raise to.unsupported(one, "a primitive without a public function in JAX")


class LaxControl:
    """Write control flow that JAX can compile: `jax.lax.scan`, `while_loop` and `switch`, with local functions."""

    _out: Any
    _statement: Any
    array: Any
    operand: Any

    def _define(self, name: str, function: Function, given: Iterable[tuple[str, Iterable[Value]]], parts: Any) -> None:
        """Write a local function.

        Args:
            name: Name of the local function.
            function: The loop body, loop condition or branch that it computes.
            given: For each argument, which is a tuple of arrays, a pair: its name, and the arrays in the tuple.
            parts: The expression that the local function returns.
        """
        pairs = [(argument, [value.name for value in values]) for argument, values in given]
        self._out.add(f"def {name}({', '.join(argument for argument, _ in pairs)}):")
        with self._out.indented():
            for argument, names in pairs:
                if names:
                    self._out.add(f"{_tuple(names)} = {argument}")
            for statement in function.statements:
                self._statement(statement)
            self._out.add(f"return {parts}")

    def _arrays(self, values: Iterable[Operand]) -> str:
        return _tuple([self.array(one) for one in values])

    def _scan(self, one: Statement) -> None:
        (body,), count, params = one.bodies, one.params["num_carry"], one.params
        given = (("carry", body.inputs[:count]), ("items", body.inputs[count:]))
        results = f"{self._arrays(body.outputs[:count])}, {self._arrays(body.outputs[count:])}"
        self._define("body", body, given, results)
        carry, items = self._arrays(one.inputs[:count]), self._arrays(one.inputs[count:])
        reverse = ", reverse=True" if params["reverse"] else ""
        targets = [_tuple([value.name for value in part]) for part in (one.outputs[:count], one.outputs[count:])]
        left = ", ".join("_" if each == "()" else each for each in targets)
        call = f"jax.lax.scan(body, {carry}, {items}, length={number(params['length'])}{reverse})"
        self._out.add(f"{left} = {call}", one)

    def _while(self, one: Statement) -> None:
        condition, body = one.bodies
        self._define("condition", condition, [("carry", condition.inputs)], self.array(condition.outputs[0]))
        self._define("body", body, [("carry", body.inputs)], self._arrays(body.outputs))
        targets = _tuple([value.name for value in one.outputs])
        self._out.add(f"{targets} = jax.lax.while_loop(condition, body, {self._arrays(one.inputs)})", one)

    def _cond(self, one: Statement) -> None:
        names = [f"branch_{place}" for place in range(len(one.bodies))]
        for name, branch in zip(names, one.bodies, strict=True):
            self._define(name, branch, [], self._arrays(branch.outputs))
        targets = _tuple([value.name for value in one.outputs])
        call = f"jax.lax.switch({self.array(one.inputs[0])}, [{', '.join(names)}])"
        self._out.add(f"{targets} = {call}" if one.outputs else call, one)


def _tuple(names: list[str]) -> str:
    return f"({', '.join(names)}{',' if len(names) == 1 else ''})"
