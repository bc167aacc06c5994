"""The cost formula of every kind of block equals the cost traced with numbers, at three settings each."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transcript import facts_of, without_advice

import mithril_nb as ml
from mithril_nb.cost import Cost
from mithril_nb.errors import StageUnavailableError
from mithril_nb.figures import LOCAL
from mithril_nb.models import GPT, MLP, Flatten, Glu, Length, Linear, Model, Relu
from mithril_nb.targets.mithril_models import block_formula, inspect_with_names
from tests.blocks.case import Arrays, Case, all_cases

CASES = {case.name: case for case in all_cases()}
FIELDS = (*LOCAL, "params")
OTHERWISE = "JAX traces other equations"
"""As a gather for `x[0]` and `x[:3]`, slices where sizes are numbers, and two operations more for `arange`."""

NOT_EVERY_SIZE = {
    "AUC", "AUCCore", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BatchNorm",
    "BatchNorm1d", "BatchNorm2D", "BatchNorm2d", "BroadcastTo", "CNN", "ClassesSeen", "Conv1d", "Conv2d", "Conv3d",
    "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Convolution2D", "CrossEntropy",
    "CrossEntropy, probabilities", "Eigvalsh", "F1", "GPRAlpha", "GPRVOuter", "GPT", "GRUCell",
    "GaussProcessRegressionCore", "Glu", "Indexer", "InfoNCE", "LSTMCell", "LearnedPositions", "Length", "MaxPool1D",
    "MaxPool1d", "MaxPool2D", "MaxPool2d", "MaxPool3d", "MultiHeadAttention", "PolynomialFeatures",
    "PolynomialRegression", "PositionalEncoding", "Precision", "PrimitiveConvolution1D", "PrimitiveConvolution2D",
    "PrimitiveMaxPool1D", "PrimitiveMaxPool2D", "RNNCell", "Recall", "Reshape", "Residual", "RotaryEmbedding",
    "ScaledDotProduct", "Slice", "SoftCrossEntropy", "Split", "SplitHeads", "TSNE", "TensorToList", "TopKAccuracy",
    "TopKHits", "TransformerBlock", "TransformerEncoder", "TransposedDiagonal", "Trapezoid", "TsnePJoint", "Unique",
}  # fmt: skip
"""Kinds of blocks that may need numbers for some sizes: for a NumPy array or a Python loop of that length, an attribute
that must divide or bound the size, a comparison; or because JAX then traces other equations."""


class DiffersError(Exception):
    """JAX traces different equations with symbolic sizes than with numbers."""


@pytest.mark.parametrize("name", CASES)
def test_block_formula_equals_the_cost_at_numbers(name: str) -> None:
    model, inputs = richest(CASES[name])
    _, why = symbols_that_work(model, inputs)
    wrong = [error for error in why.values() if isinstance(error, AssertionError)]
    if wrong:
        raise wrong[0]
    assert not why or name in NOT_EVERY_SIZE, {reason: str(error) for reason, error in why.items()}


@pytest.mark.parametrize(
    ("block", "shape", "needs", "because", "names"),
    [
        (
            Glu(), ["batch", "width"], "(batch, width)",
            "ValueError: array split does not result in an equal division: rest is mod(width, 2)", "batch or width",
        ),
        (
            Length(), ["batch", 3], "(batch, 3)",
            "TypeError: '_DimExpr' object cannot be interpreted as an integer", "batch",
        ),
    ],
    ids=lambda value: getattr(value, "kind", None),
)  # fmt: skip
def test_error_names_the_block_that_needs_a_number(
    block: Model, shape: list[int | str], needs: str, because: str, names: str
) -> None:
    name, program = block.kind.lower(), ml.inspect(block, shapes={"input": shape})
    with pytest.raises(StageUnavailableError) as error:
        program.cost()
    assert without_advice(str(error.value)) == (
        f"block {name!r} needs a number for a size of its input 'input'.\n    input    {needs}\n    because  {because}"
    )
    assert (error.value.diagnostics[0].block, error.value.diagnostics[0].port) == (name, "input")


@pytest.mark.parametrize("options", [{}, {"loss": "cross_entropy"}, {"optimizer": "adam"}], ids=str)
def test_symbolic_shapes_give_formulas_for_every_program(options: dict[str, str]) -> None:
    model = GPT(vocabulary=16, context=8, layers=1, heads=2, width=8)
    named = ml.inspect(model, shapes={"input": ["batch", "time"]}, **options)
    cost, traced = named.cost(), ml.inspect(model, shapes={"input": [3, 5]}, **options).cost()
    found = cost.at(batch=3, time=5)
    assert (named.name, cost.symbols) == (traced.program, ("batch", "time"))
    assert (found.total, found.by_block, found.by_role) == (traced.total, traced.by_block, traced.by_role)


def test_symbolic_sizes_of_arrays_keep_their_constraints() -> None:
    batch, time = jax.export.symbolic_shape("batch, time", constraints=["time <= 8"])
    tokens = jax.ShapeDtypeStruct((batch, time), "int32")
    model = GPT(vocabulary=16, context=8, layers=1, heads=2, width=8)
    whole = ml.inspect(model, shapes={"input": ["batch", "time"]}).cost().formula()
    assert ml.inspect(model, tokens).cost().formula() == whole
    assert ml.inspect(ml.compile(model, ml.JaxBackend()), tokens).cost().formula() == whole
    assert ml.inspect(Flatten(1), shapes={"input": ["B", "H", "W"]}).cost().formula() == "0"


def test_block_formula_in_the_names_of_all_sizes() -> None:
    shapes = {"input": ["B", "I"], "weight": ["I", "O"], "bias": ["O"]}
    assert block_formula(Linear(), shapes) == "2·B·I·O + B·O"
    assert block_formula(Linear(), shapes, "bytes_accessed") == "4·B·I + 12·B·O + 4·I·O + 12·O"
    assert block_formula(Linear(10), {"input": ["B", "I"]}) == "20·B·I + 10·B"
    assert block_formula(Linear(10), {"input": ["B", "I"]}, "params") == "10·I + 10"
    model = MLP([Relu(), Relu()], [64, 10])
    assert block_formula(model, {"input": ["B", "I"]}) == "128·B·I + 1428·B"
    assert block_formula(model, {"input": ["B", "I"]}, path="layer_0/linear_0") == "128·B·I + 64·B"


def test_undetermined_shapes_are_rejected() -> None:
    assert facts_of(lambda: inspect_with_names(Linear(10), {})) == (
        "ShapeError: the shape of 'input' does not follow from the shapes of the inputs.\n"
        "    so far  ('...',) float32\n"
        "    sizes   none"
    )


def test_kinds_are_listed_once_and_exist() -> None:
    assert CASES.keys() >= NOT_EVERY_SIZE


def symbols_that_work(model: Model, inputs: Arrays) -> tuple[Cost | None, dict[str, Exception]]:
    """Make as many sizes symbolic as possible; return the costs, and the errors of the other sizes."""
    sizes = sizes_of(inputs)
    if not sizes or any(not array.size for array in inputs.values()):  # JAX traces other equations for empty arrays
        return None, {}
    try:
        return compared(model, inputs, sizes), {}
    except Exception as error:
        why = {reason(error): error}
    named, kept = None, list[int]()
    for size in sizes if len(sizes) > 1 else ():
        try:
            named = compared(model, inputs, [*kept, size])
            kept.append(size)
        except Exception as error:
            why[reason(error)] = error
    return named, why


def compared(model: Model, inputs: Arrays, sizes: Sequence[int]) -> Cost:
    """Return the costs with these sizes symbolic, after comparing them with numbers at three settings.

    Raises:
        DiffersError: JAX traces another program.
    """
    named = cost(model, inputs, {size: f"s{size}" for size in sizes})
    # A size that an attribute of the block declares is that number, whatever its name.
    sizes = [size for size in sizes if f"s{size}" in named.symbols]
    assert len(sizes) == len(named.symbols)
    for numbers in settings_of(sizes):
        try:
            traced = cost(model, inputs, numbers)
        except Exception:  # windows, heads and groups must divide the sizes: multiples of the random sizes work
            numbers = {size: size * max(numbers.values(), default=1) for size in sizes}
            traced = cost(model, inputs, numbers)
        given = {f"s{size}": number for size, number in numbers.items()}
        found = named.at(**given)
        if opcodes(found) != opcodes(traced):
            raise DiffersError(OTHERWISE)
        # JAX 0.12 has `call_hi_primitive`, whose cost is counted in its StableHLO: unknown with names for sizes.
        if "call_hi_primitive" in opcodes(found) and found.total.unknown:
            raise DiffersError(OTHERWISE)
        assert found.total == traced.total
        assert found.by_block == traced.by_block
        assert found.by_role == traced.by_role
        assert named.symbolic is not None
        for field in FIELDS:
            polynomial, unknown = named.symbolic.polynomial("", field)
            if not unknown:
                # FLOPs of a row are whole: formulas with thirds and logarithms are rounded in each.
                value, rows = Fraction(polynomial.value(given)), len(traced.rows)
                most = Fraction(0 if value.denominator == 1 else rows, 2)
                assert abs(value - getattr(traced.total, field)) <= most, (field, polynomial, given)
    return named


def cost(model: Model, inputs: Arrays, dims: Mapping[int, int | str]) -> Cost:
    shapes = {port: [dims.get(size, size) for size in array.shape] for port, array in inputs.items()}
    dtypes = {port: {"f": "float32", "b": "bool"}.get(array.dtype.kind, "int32") for port, array in inputs.items()}
    return inspect_with_names(model, shapes, dtypes).cost()


def opcodes(cost: Cost) -> Counter[str]:
    return Counter(row.opcode for row in cost.rows)


def settings_of(sizes: Sequence[int]) -> Iterator[dict[int, int]]:
    draw = random.Random(0)
    yield {size: size * draw.choice((2, 3)) for size in sizes}
    for _ in range(2):
        yield {size: size * draw.choice((1, 2, 3)) + draw.randrange(4) for size in sizes}


def reason(error: Exception) -> str:
    """Return the error as text, without the random sizes."""
    return OTHERWISE if isinstance(error, DiffersError) else type(error.__cause__ or error).__name__


def sizes_of(inputs: Arrays) -> list[int]:
    return sorted({size for array in inputs.values() for size in array.shape if size > 1})


def richest(case: Case) -> tuple[Model, Arrays]:
    """Return the example with the most different sizes, so that each can have its own name."""
    found: list[tuple[Model, Arrays]] = []

    @settings(max_examples=3, database=None, derandomize=True)
    @given(st.composite(case.draw)())
    def take(drawn: tuple[Model, Arrays]) -> None:
        found.append(drawn)

    take()

    def wealth(drawn: tuple[Model, Arrays]) -> tuple[bool, int, int]:
        arrays = drawn[1].values()
        return all(np.size(a) for a in arrays), len(sizes_of(drawn[1])), sum(np.ndim(a) for a in arrays)

    return max(found, key=wealth)
