"""Write a traced program as plain Python: an array is a flat list. For models of Linear and Relu, and gradients."""

from mithril_nb.emission.build import build
from mithril_nb.emission.program import Number
from mithril_nb.emission.rules import Rules
from mithril_nb.emission.source import Source, Writer
from mithril_nb.emission.unsupported import check_supported, unsupported

RULES = Rules()
"""Returns the text of a statement, by JAX's primitive."""
OWN_NAMES = ("i", "j", "k")
"""Names that the rules use within expressions."""
FORMULAS = {"add": "a + b", "mul": "a * b", "max": "max(a, b)", "gt": "a > b", "select_n": "c if a else b"}


@RULES.rule(*FORMULAS)
def elementwise(emitter, one):
    """Compute each item from the items at its place."""
    size, texts = one.outputs[0].size, []
    for operand in one.inputs:
        if isinstance(operand, Number):
            texts.append(f"[{operand.text}] * {size}")
        elif operand.shape in (one.outputs[0].shape, one.outputs[0].shape[1:]):
            repeats = size // max(operand.size, 1)  # above 1 for a bias, which each row adds
            texts.append(operand.name if repeats == 1 else f"{operand.name} * {repeats}")
        else:
            raise unsupported(one, "lists", f"shape {operand.shape} beside {one.outputs[0].shape}")
    names = ", ".join("abc"[: len(texts)])
    return f"[{FORMULAS[one.primitive]} for {names} in zip({', '.join(texts)})]"


@RULES.rule("dot_general")
def product(emitter, one):
    """Multiply matrices; one may be transposed, as in gradients."""
    left, right = one.inputs
    (summed, batched) = one.params["dimension_numbers"]
    if len(left.shape) != 2 or len(right.shape) != 2 or batched != ((), ()):
        raise unsupported(one, "lists", "products of other arrays than matrices")
    ((a,), (b,)), width, columns = summed, left.shape[1], right.shape[1]
    at_left = f"i * {width} + k" if a == 1 else f"k * {width} + i"
    at_right = f"k * {columns} + j" if b == 0 else f"j * {columns} + k"
    terms = f"{left.name}[{at_left}] * {right.name}[{at_right}] for k in range({left.shape[a]})"
    rows, columns = one.outputs[0].shape
    return f"[sum({terms}) for i in range({rows}) for j in range({columns})]"


@RULES.rule("reduce_sum")
def total(emitter, one):
    """Sum the rows of a matrix."""
    if tuple(one.params["axes"]) != (0,):
        raise unsupported(one, "lists", "sums along other axes than the first")
    (array,), (output,) = one.inputs, one.outputs
    return f"[sum({array.name}[i::{output.size}]) for i in range({output.size})]"


def written(operands):
    """Return operands as text: an array by its name, a number as a list."""
    return ", ".join(f"[{one.text}]" if isinstance(one, Number) else one.name for one in operands)


def emit_lists(traced):
    """Return a traced program as plain Python: one function per block, one line per equation."""
    program, out = build(traced, reserved=OWN_NAMES), Writer()
    check_supported(program, "lists", RULES)
    for value, array in program.constants.items():
        out.add(f"{value.name} = {array.ravel().tolist()}")
    for function in program.functions:
        out.add(f"def {function.name}({written(function.inputs)}):")
        with out.indented():
            for one in function.statements:
                text = f"{one.function.name}({written(one.inputs)})" if one.function else RULES.write(None, one)
                out.add(f"{written(one.outputs)} = {text}  # {one.outputs[0].shape}", one)
            out.add(f"return {written(function.outputs)}")
        out.add()
    return Source("python", tuple(out.lines), "lists", program.main.name)
