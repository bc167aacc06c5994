"""Rules for elementwise primitives."""

from __future__ import annotations

import numpy as np

from mithril_nb.emission.arrays.rules import RULES, ArrayContext, is_float, rule
from mithril_nb.emission.program import INFIX, Number, Statement
from mithril_nb.stages.patterns import DETACH

RULES.update({
    **dict.fromkeys(
        ("lt_to", "le_to", "eq_to", "threefry2x32", "random_seed", "random_fold_in", "cholesky", "lu"),
        lambda to, op: to.helper(op.primitive, *to.arrays(op)),
    ),
    **dict.fromkeys(
        # Without keys of its own, a library has the two words of a key as an array.
        ("copy", "random_wrap", "random_unwrap", "random_clone"),
        lambda to, op: to.array(op.operand),
    ),
    **dict.fromkeys(
        # The sign of NaN is NaN in JAX and NumPy, and 0 in PyTorch and MLX, whose dialects leave it to the helper.
        ("sign", "erf", "erfc", "erf_inv", "lgamma", "digamma", "cbrt", "exp2"),
        lambda to, op: (to.function if op.primitive in to.dialect.functions else to.helper)(
            op.primitive, to.array(op.operand)
        ),
    ),
    DETACH: lambda to, op: (
        f"mx.stop_gradient({to.array(op.operand)})" if to.library == "mlx" else f"{to.array(op.operand)}.detach()"
    ),
    # NumPy has no reciprocal square root.
    "rsqrt": lambda to, op: (
        f"1 / np.sqrt({to.array(op.operand)})" if to.library == "numpy" else to.function("rsqrt", to.array(op.operand))
    ),
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
    # `//` of the libraries rounds down, and XLA rounds towards zero.
    arrays = to.arrays(op)
    return f"jax.lax.div({', '.join(arrays)})" if to.library == "jax" else to.helper("int_divide", *arrays)


@rule("logistic", "expm1")
def _exponential(to: ArrayContext, op: Statement) -> str:
    text = to.array(op.operand)
    if to.library == "mlx" and op.operand.dtype == "complex64":  # `sigmoid` and `expm1` of MLX reject it
        raise to.unsupported("dtype complex64")
    if to.library == "numpy" and op.primitive == "logistic":
        return f"1 / (1 + np.exp(-{text}))"
    return to.function(op.primitive, text)


@rule("select_n")
def _select(to: ArrayContext, op: Statement) -> str:
    which, *cases = op.inputs
    texts = [*map(to.operand, cases)]
    # A choice between two Python numbers would have the default dtype of the library.
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
        name = "clamp"  # its bounds are two numbers or two tensors
        text = to.array if isinstance(least, Number) != isinstance(most, Number) else text
    return f"{to.module}.{name}({to.array(array)}, {text(least)}, {text(most)})"


@rule("max", "min")
def _maximum(to: ArrayContext, op: Statement) -> str:
    left, right = op.inputs
    if to.library == "torch" and isinstance(left, Number) != isinstance(right, Number):  # `maximum` takes no number
        array, number = (right, left) if isinstance(left, Number) else (left, right)
        if op.primitive == "max" and isinstance(number, Number) and number.value == 0 and is_float(array.dtype):
            return f"torch.relu({to.operand(array)})"  # its gradient at 0 equals jax.nn.relu's
        bound = "min" if op.primitive == "max" else "max"
        return f"torch.clamp({to.operand(array)}, {bound}={to.operand(number)})"
    return to.function(op.primitive, *to.operands(op))


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
    if int(op["rounding_method"]) != 0:  # halves become even, as in every library
        return f"{to.module}.round({text})"
    return f"jax.lax.round({text})" if to.library == "jax" else to.helper("round_away", text)


@rule("convert_element_type")
def _convert(to: ArrayContext, op: Statement) -> str:
    text, source, dtype = to.array(op.operand), op.operand.dtype, op.dtype
    if source.startswith("complex") and not dtype.startswith("complex"):
        if dtype == "bool":  # a number without a real part is true, too
            return f"{text} != 0"
        text = f"{text}.real" if to.library != "mlx" else f"mx.real({text})"
    # Libraries wrap around, or have undefined results, where a float does not fit; XLA has the nearest integer.
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
    # The operators of the libraries have undefined results for counts of all bits or more, and XLA has not.
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
    if to.library == "numpy":  # `left + 1j * right` would be NaN where `right` is infinite
        return f"np.stack([{arrays}], -1).view({to.dtype(op.dtype)})[..., 0]"
    return f"{'torch' if to.library == 'torch' else 'jax.lax'}.complex({arrays})"


@rule("reduce_precision")
def _reduce_precision(to: ArrayContext, op: Statement) -> str:
    bits = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    # A conversion to a dtype with these bits and back rounds in the same way.
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
