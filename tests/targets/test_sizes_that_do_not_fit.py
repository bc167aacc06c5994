"""Costs at sizes that the model rejects: the error is the same as for inspecting with these numbers."""

from __future__ import annotations

from typing import Any

import jax
import pytest

import mithril_nb as ml
from mithril_nb.errors import CostBoundError, ShapeError, StageUnavailableError, UnknownOptionError
from mithril_nb.models import GPT, Add, Linear, MatrixMultiply, Model


def gpt(context: int = 64, layers: int = 2) -> GPT:
    return GPT(vocabulary=64, layers=layers, width=16, heads=4, context=context)


@pytest.mark.parametrize("options", [{}, {"optimizer": "adam"}])
def test_more_time_steps_than_positions_are_rejected(options: dict[str, Any]) -> None:
    cost = ml.inspect(gpt(), shapes={"input": ["B", "T"]}, **options).cost()
    with pytest.raises(ShapeError) as error:
        cost.at(B=3, T=100)
    assert str(error.value) == (
        "cannot connect 'tokens.output' to 'positions.input'.\n"
        "    output  (3, 100, 16) float32\n"
        "    input   at most 64 time steps      axis -2: 100 > 64\n"
        "    Try: LearnedPositions(100)  # or shorter inputs"
    )
    with pytest.raises(ShapeError) as numbers:
        ml.inspect(gpt(), shapes={"input": [3, 100]}, **options)
    assert str(numbers.value) == str(error.value)
    # All positions are read without a slice, which is cheaper than slicing a larger table.
    assert cost.at(B=3, T=64).total.flops == ml.inspect(gpt(), shapes={"input": [3, 64]}, **options).cost().total.flops


@pytest.mark.parametrize(
    ("model", "shapes", "sizes"),
    [
        (Linear(3, input_size=5), {"input": ["B", 5]}, {"B": 1}),
        (MatrixMultiply(), {"left": ["B", "I"], "right": ["I", "O"]}, {"B": 2, "I": 3, "O": 1}),
        (Add(), {"left": ["B", 4], "right": [1, 4]}, {"B": 3}),
        (gpt(), {"input": [2, "T"]}, {"T": 64}),
    ],
)
def test_sizes_that_fit_are_accepted(model: Model, shapes: dict[str, list[Any]], sizes: dict[str, int]) -> None:
    numbers = {name: [sizes.get(str(dim), dim) for dim in shape] for name, shape in shapes.items()}
    found = ml.inspect(model, shapes=shapes).cost().at(**sizes)
    assert found.total.flops == ml.inspect(model, shapes=numbers).cost().total.flops


def test_advised_numbers_fit_the_model() -> None:
    cost = ml.inspect(gpt(context=8), shapes={"input": ["B", "T"]}).cost()
    assert cost.notes[0] == "costs that depend on B, T have no number: see cost.at(B=8, T=8), cost.formula()"
    assert eval(cost.notes[0].partition("see ")[2].partition(", cost.formula")[0], {"cost": cost}).total.flops


def test_a_slider_traces_nothing() -> None:
    cost = ml.inspect(gpt(layers=12), shapes={"input": ["B", "T"]}).cost()
    with ml.watch() as watch:
        found = [cost.at(B=2, T=tokens).total.flops for tokens in (16, 32, 64)]
    report = watch.report()
    assert (report.traces, report.compilations) == (0, 0)
    assert found == sorted(set(found))


def test_a_program_with_other_arguments_is_checked_by_itself() -> None:
    found = ml.inspect(gpt(), shapes={"input": ["B", "T"]})
    (rows,) = jax.export.symbolic_shape("rows")
    other = found.altered(
        lambda args: jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct((rows, 8), leaf.dtype) if leaf.dtype == "int32" else leaf, args
        )
    )
    assert other.cost().at(rows=3).total.flops == found.cost().at(B=3, T=8).total.flops


def test_advice_of_a_bound_uses_sizes_that_fit() -> None:
    with pytest.raises(CostBoundError) as error:
        ml.assert_cost(gpt(context=8), shapes={"input": ["B", "T"]}, flops=1_000_000)
    assert error.value.diagnostics[0].advice == (
        "a number for B and T, or assert ml.inspect(...).cost().at(B=8, T=8).total.flops <= 1_000_000."
    )


def test_advice_of_stages_uses_sizes_that_fit() -> None:
    found = ml.inspect(gpt(context=4), shapes={"input": ["B", "T"]})
    with pytest.raises(StageUnavailableError) as error:
        found.cost("compiled")
    advice = error.value.diagnostics[0].advice
    assert advice == "inspection.cost().at(B=4, T=4)  # or inspect it with numbers"
    assert eval(advice.partition(", or")[0], {"inspection": found}).total.flops
    with pytest.raises(UnknownOptionError) as missing:
        found.cost().at(B=2)
    assert missing.value.diagnostics[0].advice == "cost.at(B=4, T=4)"


def test_error_has_the_path_of_a_composite_block() -> None:
    cost = ml.inspect(gpt(), shapes={"input": ["B", "T"]}).cost()
    with pytest.raises(UnknownOptionError) as error:
        cost.formula("block_0.attention", "bytes_accessed")
    assert error.value.diagnostics[0].advice == 'cost.formula("block_0/attention", "bytes_accessed")'
