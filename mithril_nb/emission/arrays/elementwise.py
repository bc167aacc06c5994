"""Rules for elementwise primitives."""

from __future__ import annotations

import numpy as np

from mithril_nb.emission.arrays.rules import INFIX, RULES, ArrayContext, is_float, rule
from mithril_nb.emission.program import Number, Statement
from mithril_nb.stages.patterns import DETACH

RULES.update({
    "neg": lambda to, op: f"-{to.array(op.operand)}",
    "not": lambda to, op: f"~{to.array(op.operand)}",
    "integer_pow": lambda to, op: f"{to.array(op.operand)} ** {op['y']}",
})  # fmt: skip


@rule("pow")
def _power(to: ArrayContext, op: Statement) -> str:
    base, exponent = op.inputs
    text = to.operand(exponent)
    if exponent.dtype != base.dtype and not isinstance(exponent, Number):
        text = to.cast(text, base.dtype)  # an int exponent would widen the result
    return f"{to.operand(base)} ** {text}"


@rule("div")
def _divide(to: ArrayContext, op: Statement) -> str:
    left, right = to.operands(op)
    if is_float(op.dtype):
        return f"{left} / {to.right(right)}"
    name, arrays = "int_divide", to.arrays(op)
    return f"jax.lax.div({', '.join(arrays)})" if to.library == "jax" else to.helper(name, *arrays)


@rule("rsqrt")
def _rsqrt(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    return f"1 / np.sqrt({text})" if to.library == "numpy" else to.function("rsqrt", text)


@rule("logistic", "expm1")
def _exponential(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    if to.library == "mlx" and op.operand.dtype == "complex64":
        raise to.unsupported("dtype complex64")
    if to.library == "numpy" and op.primitive == "logistic":
        return f"1 / (1 + np.exp(-{text}))"
    return to.function(op.primitive, text)


@rule("select_n")
def _select(to: ArrayContext, op: Statement) -> str:
    which, *cases = op.inputs
    texts = [*map(to.operand, cases)]
    if all(isinstance(case, Number) for case in cases):
        texts[0] = to.array(cases[0])
    if which.dtype == "bool":
        return f"{to.module}.where({to.array(which)}, {texts[1]}, {texts[0]})"
    result = texts[-1]
    for index in range(len(texts) - 2, -1, -1):
        result = f"{to.module}.where({to.operand(which)} == {index}, {texts[index]}, {result})"
    return result


@rule("clamp")
def _clamp(to: ArrayContext, op: Statement) -> str:
    least, array, most = op.inputs
    name, text = "clip", to.operand
    if to.library == "torch":
        name = "clamp"
        text = to.array if isinstance(least, Number) != isinstance(most, Number) else text
    return f"{to.module}.{name}({to.array(array)}, {text(least)}, {text(most)})"


@rule("max", "min")
def _maximum(to: ArrayContext, op: Statement) -> str:
    left, right = op.inputs
    if to.library == "torch" and isinstance(left, Number) != isinstance(right, Number):
        array, number = (right, left) if isinstance(left, Number) else (left, right)
        if op.primitive == "max" and isinstance(number, Number) and number.value == 0 and is_float(array.dtype):
            return f"torch.relu({to.operand(array)})"  # its gradient at 0 equals jax.nn.relu's
        bound = "min" if op.primitive == "max" else "max"
        return f"torch.clamp({to.operand(array)}, {bound}={to.operand(number)})"
    return to.function(op.primitive, *to.operands(op))


@rule(DETACH)
def _detach(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    return f"mx.stop_gradient({text})" if to.library == "mlx" else f"{text}.detach()"


@rule("atan2", "nextafter")
def _of_arrays(to: ArrayContext, op: Statement) -> str:
    if op.primitive not in to.dialect.functions:
        raise to.unsupported()
    return to.function(op.primitive, *(to.arrays if to.library == "torch" else to.operands)(op))


@rule("rem")
def _remainder(to: ArrayContext, op: Statement) -> str:
    if not is_float(op.dtype):
        left, right = to.arrays(op)
        return f"{left} - {to.helper('int_divide', left, right)} * {right}"
    return to.helper("remainder", *to.arrays(op)) if to.library == "mlx" else _of_arrays(to, op)


@rule("round")
def _nearest(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    if int(op["rounding_method"]) != 0:
        return f"{to.module}.round({text})"
    return f"jax.lax.round({text})" if to.library == "jax" else to.helper("round_away", text)


@rule("convert_element_type")
def _convert(to: ArrayContext, op: Statement) -> str:
    text, source, dtype = to.array(op.operand), op.operand.dtype, op.dtype
    if source.startswith("complex") and not dtype.startswith("complex"):
        if dtype == "bool":
            return f"{text} != 0"
        text = f"{text}.real" if to.library != "mlx" else f"mx.real({text})"
    if to.library != "jax" and is_float(source) and dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        return to.helper("to_integer", text, to.dtype(dtype), str(limits.min), str(limits.max))
    return to.cast(text, dtype)


@rule("bitcast_convert_type")
def _bitcast(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    if to.library == "torch":  # which has int64 for uint32
        text = f"{text}.to(torch.int32)" if op.operand.dtype == "uint32" else text
        if op.dtype == "uint32":
            return f"{text}.view(torch.int32).to(torch.int64)"
    return f"{text}.view({to.dtype(op.dtype)})"


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(to: ArrayContext, op: Statement) -> str:
    array, count = op.inputs
    bits, is_unsigned = int(array.dtype.lstrip("uint")), array.dtype.startswith("u")
    fits = isinstance(count, Number) and count.value in range(bits)
    if not fits or op.primitive == ("shift_right_arithmetic" if is_unsigned else "shift_right_logical"):
        # An int64 tensor may hold uint32, so PyTorch's helpers need the number of bits.
        return to.helper(op.primitive, *to.arrays(op), *[str(bits)] * (to.library == "torch"))
    sign = "<<" if op.primitive == "shift_left" else ">>"
    return f"{to.array(array)} {sign} {to.operand(count)}"


@rule("complex")
def _complex(to: ArrayContext, op: Statement) -> str:
    arrays = ", ".join(to.arrays(op))
    if to.library == "mlx":
        raise to.unsupported()
    if to.library == "numpy":
        return f"np.stack([{arrays}], -1).view({to.dtype(op.dtype)})[..., 0]"
    return f"{'torch' if to.library == 'torch' else 'jax.lax'}.complex({arrays})"


@rule("erf", "erfc", "erf_inv", "lgamma", "digamma", "cbrt", "exp2")
def _special(to: ArrayContext, op: Statement) -> str:
    is_known = op.primitive in to.dialect.functions
    return (to.function if is_known else to.helper)(op.primitive, to.array(op.operand))


@rule("reduce_precision")
def _reduce_precision(to: ArrayContext, op: Statement) -> str:
    bits = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    exponent, mantissa = op["exponent_bits"], op["mantissa_bits"]
    dtype = bits.get((exponent, mantissa), "")
    if to.dtype_or_none(dtype) is None:
        raise to.unsupported(f"{exponent} bits of exponent and {mantissa} bits of mantissa")
    return to.cast(to.cast(to.array(op.operand), dtype), op.dtype)


@rule(*INFIX)
def _infix(to: ArrayContext, op: Statement) -> str:
    left, right = to.operands(op)
    if to.library == "mlx" and op.primitive in ("and", "or", "xor"):
        left = to.array(op.operand)  # MLX has no `True & array`
    return f"{left} {INFIX[op.primitive]} {to.right(right)}"


@rule("sign")
def _sign(to: ArrayContext, op: Statement) -> str:
    # The sign of NaN is NaN in JAX and NumPy, and 0 in PyTorch and MLX.
    return (to.function if to.library in ("numpy", "jax") else to.helper)("sign", to.array(op.operand))


@rule("lt_to", "le_to", "eq_to", "threefry2x32", "random_seed", "random_fold_in", "cholesky", "lu")
def _helped(to: ArrayContext, op: Statement) -> str:
    return to.helper(op.primitive, *to.arrays(op))


@rule("copy", "random_wrap", "random_unwrap", "random_clone")
def _same(to: ArrayContext, op: Statement) -> str:
    return to.array(op.operand)
