"""Random numbers: JAX's default generator, Threefry, is plain integer arithmetic that costs more than people think."""

from __future__ import annotations

from typing import Any

from mithril_nb.cost.rules import Work, rule, size
from mithril_nb.stages.records import Equation

_THREEFRY = "key<fry>"
"""Dtype of the default generator's keys; the others are one opaque op each, with no formula."""

_ROUND_GROUP = 23
"""Four rounds (add, two shifts, or, xor) and three additions of keys."""
_GROUPS = 5
_AROUND = 6
"""Counting, splitting the count in two words, the first keys, and joining the words."""


@rule("random_bits", formula="(121 + 2·(axes - 1))·n: 20 rounds of Threefry")
def random_bits(equation: Equation) -> Work | None:
    """Twenty rounds of Threefry for each item: `5·23 + 6`, two more for each axis after the first.

    On a CPU JAX writes the rounds as a loop of five, which XLA counts once.
    """
    if equation.inputs[0].dtype != _THREEFRY:
        return None
    out = equation.outputs[0]
    count = size(out)
    axes = sum(1 for dim in out.shape if dim != 1)
    each = _AROUND + 2 * max(axes - 1, 0) + (equation.param["bit_width"] != 32)
    return Work((each + _GROUPS * _ROUND_GROUP) * count + 42, once=(each + _ROUND_GROUP) * count + 10)


@rule("random_split", formula="120·n: 20 rounds of Threefry")
def random_split(equation: Equation) -> Work | None:
    """Twenty rounds of Threefry for each new key."""
    if equation.inputs[0].dtype != _THREEFRY:
        return None
    shape: Any = equation.param["shape"]
    count = 1
    for dim in shape:
        count *= dim
    return Work(120 * count + 42, once=28 * count + 9)


@rule("random_fold_in", formula="120: 20 rounds of Threefry")
def random_fold_in(equation: Equation) -> Work | None:
    """Twenty rounds of Threefry on one key."""
    if equation.inputs[0].dtype != _THREEFRY:
        return None
    count = size(equation.outputs[0])
    return Work(127 * count, once=35 * count)


@rule("random_seed", formula="2")
def random_seed(equation: Equation) -> Work | None:
    """Splitting the seed in two words."""
    return Work(2 * size(equation.outputs[0]))
