"""Random numbers: JAX's default generator, Threefry, is plain integer arithmetic that costs more than people think."""

from __future__ import annotations

from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, as_size, count, length, of_items, rule, times
from mithril_nb.cost.formulas.symbols import FUNCTIONS, call
from mithril_nb.stages.records import Equation

_THREEFRY = "key<fry>"
"""Dtype of the default generator's keys; the others are one opaque op each, with no formula."""

# The loop that JAX writes on a CPU has five rounds of 23 operations each: four rounds of Threefry (add, two shifts, or,
# xor) and three additions of keys. XLA counts one round. Around it, 6 operations count, split the count in two words,
# make the first keys and join the words.


@rule(
    "random_bits",
    flops="(121 + 2·more)·n + 42", once="(29 + 2·more)·n + 10", note="20 rounds of Threefry; more axes than one",
)  # fmt: skip
def random_bits(equation: Equation) -> Letters | Formula | None:
    """Twenty rounds of Threefry for each item: `5·23 + 6`, two more for each axis after the first.

    On a CPU JAX writes the rounds as a loop of five, which XLA counts once.
    """
    if equation.inputs[0].dtype != _THREEFRY:
        return None
    out = equation.outputs[0]
    axes = as_size(0)
    for axis in range(len(out.shape)):
        axes = axes + call("is_not_one", length(out, axis))
    letters = {"n": count(out), "more": call("max", axes - 1, 0)}
    if equation.param["bit_width"] == 32:
        return letters
    return Formula(
        "(122 + 2·more)·n + 42", letters, once="(30 + 2·more)·n + 10",
        note="20 rounds of Threefry; more axes than one; bits cut off",
    )  # fmt: skip


@rule("random_split", flops="120·n + 42", once="28·n + 9", note="20 rounds of Threefry")
def random_split(equation: Equation) -> Letters | None:
    """Twenty rounds of Threefry for each new key."""
    if equation.inputs[0].dtype != _THREEFRY:
        return None
    shape: Any = equation.param["shape"]
    return {"n": times(map(as_size, shape))}


@rule("random_fold_in", flops="127·n", once="35·n", note="20 rounds of Threefry")
def random_fold_in(equation: Equation) -> Letters | None:
    """Twenty rounds of Threefry on each key."""
    return of_items(equation) if equation.inputs[0].dtype == _THREEFRY else None


@rule("random_seed", flops="2·n")
def random_seed(equation: Equation) -> Letters:
    """Splitting the seed in two words."""
    return of_items(equation)


FUNCTIONS["is_not_one"] = lambda length: int(length != 1)
