"""Complex numbers: what XLA keeps counts as one operation, what it writes out in real numbers as those.

So XLA counts, and so do we, that all ways of counting say the same. It is a convention: in real numbers a complex sum
takes 2 operations and a product 6, and a product of matrices four times as many as are counted.
"""

from __future__ import annotations

from mithril_nb.cost.formulas.contractions import convolution, dot_general
from mithril_nb.cost.formulas.reductions import reduction, running
from mithril_nb.cost.formulas.rules import OF_COMPLEX, Formula, Letters, count, elementwise, rule
from mithril_nb.stages.records import Equation

_KEPT = "complex, each one operation as in XLA"


def _of_complex(*primitives: str) -> list[str]:
    return [f"{primitive}{OF_COMPLEX}" for primitive in primitives]


def _written_out(flops: int, transcendentals: int, *primitives: str) -> None:
    elementwise(flops, transcendentals, "complex, written out", *_of_complex(*primitives))


elementwise(1, 0, _KEPT, *_of_complex("add", "add_any", "sub", "mul", "div"))
# Measured on the lowered module, the same from JAX 0.10 to 0.12.
_written_out(9, 0, "max", "min")
_written_out(14, 0, "square")
_written_out(15, 4, "exp")
_written_out(16, 4, "exp2")
_written_out(62, 4, "log")
_written_out(79, 5, "log1p")
_written_out(18, 4, "logistic")
_written_out(14, 4, "sin")
_written_out(15, 4, "cos")
_written_out(86, 7, "sqrt")
_written_out(95, 12, "sinh", "cosh")
_written_out(105, 9, "asin", "acos", "acosh")
_written_out(104, 9, "asinh")
_written_out(47, 2, "atan")
_written_out(45, 2, "atanh")
elementwise(3, 1, "the root of re² + im²", *_of_complex("abs"))  # XLA: 1 operation until JAX 0.12, then 25 and a root


@rule(*_of_complex("dot_general"), flops="2·B·M·N·K", note=_KEPT)
def product(equation: Equation) -> Letters:
    """One complex multiply-add for each item of the result and each place along the contracted axes: `2·B·M·N·K`."""
    return dot_general(equation)


@rule(
    *_of_complex("conv_general_dilated"),
    flops="3·2·B·F·(C/G)·valid + 3·left + 4·kernel + 3·out", note="three real ones, padding left out",
)  # fmt: skip
def complex_convolution(equation: Equation) -> Formula:
    """JAX makes three real convolutions of it, and adds up their operands before and their results after."""
    (left, kernel), out = map(count, equation.inputs), count(equation.outputs[0])
    found = convolution(equation)
    flops, letters = (found.flops, found.letters) if isinstance(found, Formula) else ("2·B·F·(C/G)·valid", found)
    return Formula(
        f"3·{flops} + 3·left + 4·kernel + 3·out",
        {**letters, "left": left, "kernel": kernel, "out": out},
        note="three real ones, padding left out",
    )


@rule(*_of_complex("reduce_max", "reduce_min"), flops="9·(in - out)", note="complex, written out")
def extremum(equation: Equation) -> Letters:
    """Comparing real parts, then imaginary ones: `9·(in - out)`."""
    return reduction(equation)


@rule(*_of_complex("cummax", "cummin"), flops="9·(n - rows)", note="complex, written out")
def running_extremum(equation: Equation) -> Letters:
    """As a running maximum, comparing real parts, then imaginary ones: `9·(n - rows)`."""
    return running(equation)


@rule(
    *_of_complex("cumlogsumexp", "reduce_window_max", "reduce_window_min", "scatter-max", "scatter-min"), flops="0",
)  # fmt: skip
def unruled(equation: Equation) -> None:
    """Rare among complex numbers: unknown, and not 0, as it gives no letters; else the rule of real ones would hold."""
