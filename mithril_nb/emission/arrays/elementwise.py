"""Rules for elementwise primitives."""

from __future__ import annotations

import numpy as np

from mithril_nb.emission.arrays.dialects import INFIX
from mithril_nb.emission.arrays.rules import Context, rule
from mithril_nb.emission.program import Number, Statement
from mithril_nb.stages.patterns import DETACH


def is_float(dtype: str) -> bool:
    """Return whether a dtype is floating-point or complex."""
    return dtype.startswith(("float", "bfloat", "complex")) and dtype != "float0"


@rule("neg")
def _neg(to: Context, one: Statement) -> str:
    return f"-{to.array(one.inputs[0])}"


@rule("not")
def _invert(to: Context, one: Statement) -> str:
    return f"~{to.array(one.inputs[0])}"


@rule("integer_pow")
def _integer_pow(to: Context, one: Statement) -> str:
    return f"{to.array(one.inputs[0])} ** {one.params['y']}"


@rule("pow")
def _power(to: Context, one: Statement) -> str:
    base, exponent = one.inputs
    text = to.operand(exponent)
    if exponent.dtype != base.dtype and not isinstance(exponent, Number):
        text = to.cast(text, base.dtype)  # an int exponent would widen the result
    return f"{to.operand(base)} ** {text}"


@rule("div")
def _divide(to: Context, one: Statement) -> str:
    left, right = to.operands(one)
    if is_float(one.outputs[0].dtype):
        return f"{left} / {to.right(right)}"
    return to.helper("int_divide", *to.arrays(one))


@rule("rsqrt")
def _rsqrt(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    return f"1 / np.sqrt({text})" if to.library == "numpy" else to.function("rsqrt", text)


@rule("logistic", "expm1")
def _exponential(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    if to.library == "mlx" and one.inputs[0].dtype == "complex64":
        raise to.unsupported(one, "dtype complex64")
    if one.primitive == "expm1":
        return to.function("expm1", text)
    return f"1 / (1 + np.exp(-{text}))" if to.library == "numpy" else to.function("logistic", text)


@rule("select_n")
def _select(to: Context, one: Statement) -> str:
    which, *cases = one.inputs
    texts = [to.operand(case) for case in cases]
    if all(isinstance(case, Number) for case in cases):
        texts[0] = to.array(cases[0])
    if which.dtype == "bool":
        return f"{to.module}.where({to.array(which)}, {texts[1]}, {texts[0]})"
    found = texts[-1]
    for place in range(len(texts) - 2, -1, -1):
        found = f"{to.module}.where({to.operand(which)} == {place}, {texts[place]}, {found})"
    return found


@rule("clamp")
def _clamp(to: Context, one: Statement) -> str:
    least, array, most = one.inputs
    name = "clamp" if to.library == "torch" else "clip"
    bounds = [to.operand(least), to.operand(most)]
    if to.library == "torch" and isinstance(least, Number) != isinstance(most, Number):
        bounds = [to.array(least), to.array(most)]
    return f"{to.module}.{name}({to.array(array)}, {', '.join(bounds)})"


@rule("max", "min")
def _maximum(to: Context, one: Statement) -> str:
    left, right = one.inputs
    if to.library == "torch" and isinstance(left, Number) != isinstance(right, Number):
        array, number = (right, left) if isinstance(left, Number) else (left, right)
        if one.primitive == "max" and isinstance(number, Number) and number.value == 0 and is_float(array.dtype):
            return f"torch.relu({to.operand(array)})"  # its gradient at 0 equals jax.nn.relu's
        bound = "min" if one.primitive == "max" else "max"
        return f"torch.clamp({to.operand(array)}, {bound}={to.operand(number)})"
    return to.function(one.primitive, *to.operands(one))


@rule(DETACH)
def _detach(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    return f"mx.stop_gradient({text})" if to.library == "mlx" else f"{text}.detach()"


@rule("atan2", "nextafter")
def _of_arrays(to: Context, one: Statement) -> str:
    if one.primitive not in to.dialect.functions:
        raise to.unsupported(one)
    if to.library == "torch":
        return to.function(one.primitive, *to.arrays(one))
    return to.function(one.primitive, *to.operands(one))


@rule("rem")
def _remainder(to: Context, one: Statement) -> str:
    if not is_float(one.outputs[0].dtype):
        left, right = to.arrays(one)
        return f"{left} - {to.helper('int_divide', left, right)} * {right}"
    return to.helper("remainder", *to.arrays(one)) if to.library == "mlx" else _of_arrays(to, one)


@rule("round")
def _nearest(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    if int(one.params["rounding_method"]) == 0:
        return to.helper("round_away", text)
    return f"{to.module}.round({text})"


@rule("convert_element_type")
def _convert(to: Context, one: Statement) -> str:
    (given,), (output,) = one.inputs, one.outputs
    text = to.array(given)
    if given.dtype.startswith("complex") and not output.dtype.startswith("complex"):
        if output.dtype == "bool":
            return f"{text} != 0"
        text = f"{text}.real" if to.library != "mlx" else f"mx.real({text})"
    if to.library != "jax" and is_float(given.dtype) and output.dtype.startswith(("int", "uint")):
        limits = np.iinfo(output.dtype)
        return to.helper("to_integer", text, to.dtype(output.dtype), str(limits.min), str(limits.max))
    return to.cast(text, output.dtype)


@rule("bitcast_convert_type")
def _bitcast(to: Context, one: Statement) -> str:
    (given,), (output,) = one.inputs, one.outputs
    text = to.array(given)
    if to.library != "torch":
        return f"{text}.view({to.dtype(output.dtype)})"
    if given.dtype == "uint32":
        text = f"{text}.to(torch.int32)"
    if output.dtype == "uint32":
        return f"{text}.view(torch.int32).to(torch.int64)"
    return f"{text}.view({to.dtype(output.dtype)})"


@rule("shift_left", "shift_right_logical", "shift_right_arithmetic")
def _shift(to: Context, one: Statement) -> str:
    array, count = one.inputs
    bits, is_unsigned = int(array.dtype.lstrip("uint")), array.dtype.startswith("u")
    fits = isinstance(count, Number) and count.value in range(bits)
    if not fits or one.primitive == ("shift_right_arithmetic" if is_unsigned else "shift_right_logical"):
        # An int64 tensor may hold uint32, so PyTorch's helpers need the number of bits.
        more = [str(bits)] if to.library == "torch" else []
        return to.helper(one.primitive, *to.arrays(one), *more)
    sign = "<<" if one.primitive == "shift_left" else ">>"
    return f"{to.array(array)} {sign} {to.operand(count)}"


@rule("complex")
def _complex(to: Context, one: Statement) -> str:
    real, imaginary = to.arrays(one)
    if to.library == "mlx":
        raise to.unsupported(one)
    if to.library != "numpy":
        return f"{'torch' if to.library == 'torch' else 'jax.lax'}.complex({real}, {imaginary})"
    return f"np.stack([{real}, {imaginary}], -1).view({to.dtype(one.outputs[0].dtype)})[..., 0]"


@rule("erf", "erfc", "erf_inv", "lgamma", "digamma", "cbrt", "exp2")
def _special(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    if one.primitive in to.dialect.functions:
        return to.function(one.primitive, text)
    return to.helper(one.primitive, text)


@rule("reduce_precision")
def _reduce_precision(to: Context, one: Statement) -> str:
    bits = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    exponent, mantissa = one.params["exponent_bits"], one.params["mantissa_bits"]
    dtype = bits.get((exponent, mantissa))
    if dtype is None or to.dialect.dtype(dtype) is None:
        raise to.unsupported(one, f"{exponent} bits of exponent and {mantissa} bits of mantissa")
    return to.cast(to.cast(to.array(one.inputs[0]), dtype), one.outputs[0].dtype)


def infix(to: Context, one: Statement) -> str:
    """Return an expression with an operator, such as `x + y`."""
    left, right = to.operands(one)
    if to.library == "mlx" and one.primitive in ("and", "or", "xor"):
        left = to.array(one.inputs[0])  # MLX has no `True & array`
    return f"{left} {INFIX[one.primitive]} {to.right(right)}"


@rule("sign")
def _sign(to: Context, one: Statement) -> str:
    text = to.array(one.inputs[0])
    # The sign of NaN is NaN in JAX and NumPy, and 0 in PyTorch and MLX.
    return to.function("sign", text) if to.library in ("numpy", "jax") else to.helper("sign", text)


@rule("lt_to", "le_to", "eq_to", "threefry2x32", "random_seed", "random_fold_in", "cholesky", "lu")
def _helped(to: Context, one: Statement) -> str:
    return to.helper(one.primitive, *to.arrays(one))


@rule("copy", "random_wrap", "random_unwrap", "random_clone")
def _same(to: Context, one: Statement) -> str:
    return to.array(one.inputs[0])
