"""Rules for random numbers. JAX's default generator, Threefry, takes more than 100 integer operations per number."""

from __future__ import annotations

from typing import Any

from mithril_nb.cost.formulas.rules import Formula, Letters, of_items, rule, without_arithmetic
from mithril_nb.cost.formulas.sizes import as_size, count, length, times
from mithril_nb.cost.formulas.symbols import FUNCTIONS, call
from mithril_nb.stages.records import Equation

# Dtype of the keys of JAX's default generator.
_THREEFRY = "key<fry>"
# Dtype of `unsafe_rbg` keys, which XLA's generator splits. An `rbg` key is split as two Threefry keys.
_UNSAFE = "key<urbg>"
_PHILOX = "Philox, 10 rounds"
_TWO_KEYS = "each key is two Threefry keys"

# On CPU, JAX lowers Threefry to a loop of five iterations with 23 operations each: four rounds (add, two shifts, or,
# xor) and three additions of keys. XLA counts one iteration. Outside the loop there are 6 operations: counting,
# splitting the count into two words, making the first keys, and joining the words.


@rule(
    "random_bits",
    flops="(121 + 2·more)·n + 42", once="(29 + 2·more)·n + 10",
    note="20 rounds of Threefry; more: axes after the first",
)  # fmt: skip
def random_bits(equation: Equation) -> Letters | Formula:
    """Twenty rounds of Threefry: `5·23 + 6` operations for each element, and two more for each axis after the first.

    Axes of size 1 do not count. Keys of `rbg` and `unsafe_rbg` use XLA's generator instead, Philox: `25·n`.
    """
    if equation.inputs[0].dtype != _THREEFRY:
        return _of_philox(equation, equation.param["bit_width"])
    out = equation.outputs[0]
    axes = as_size(0)
    for axis in range(len(out.shape)):
        axes = axes + call("is_not_one", length(out, axis))
    letters = {"n": count(out), "more": call("max", axes - 1, 0)}
    if equation.param["bit_width"] == 32:
        return letters
    return Formula(
        "(122 + 2·more)·n + 42", letters, once="(30 + 2·more)·n + 10",
        note="20 rounds of Threefry; more: axes after the first; bits truncated",
    )  # fmt: skip


@rule("random_split", flops="120·n + 42", once="28·n + 9", note="20 rounds of Threefry")
def random_split(equation: Equation) -> Letters | Formula:
    """Twenty rounds of Threefry for each of the `n` new keys: `120·n + 42`.

    An `rbg` key is two Threefry keys and takes twice as many. For each new `unsafe_rbg` key, XLA's generator makes 40
    words of 25 operations and uses four of them.
    """
    shape: Any = equation.param["shape"]
    letters = {"n": times(map(as_size, shape))}
    if equation.inputs[0].dtype == _THREEFRY:
        return letters
    if equation.inputs[0].dtype == _UNSAFE:
        return Formula("1000·n", letters, once="0", note=_PHILOX, xla="0")
    return Formula("2·(120·n + 42)", letters, once="2·(28·n + 9)", note=_TWO_KEYS)


@rule("random_fold_in", flops="127·n", once="35·n", note="20 rounds of Threefry")
def random_fold_in(equation: Equation) -> Letters | Formula:
    """Twenty rounds of Threefry for each key: `127·n`. Keys of other generators are treated as in `random_split`."""
    if equation.inputs[0].dtype == _THREEFRY:
        return of_items(equation)
    if equation.inputs[0].dtype == _UNSAFE:
        return Formula("1005·n", of_items(equation), once="5·n", note=_PHILOX, xla="5·n")
    return Formula("254·n", of_items(equation), once="70·n", note=_TWO_KEYS)


# Source of the rounds: Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC11, §4.3.
rule("random_seed", flops="2·n")(of_items)  # splits the seed into two words
# For each pair of words: 20 rounds of 5 operations, 5 additions of keys with 3 operations each, and 2 before them.
rule("threefry2x32", flops="117·n", once="25·n", note="20 rounds of Threefry for two words")(of_items)
# 20 rounds of two mixes with 5 operations each, and 6 additions of keys with 8 operations each.
rule("threefry4x32", flops="248·n", note="20 rounds of Threefry for four words")(of_items)
# 10 rounds of one product (high and low word) and two xor, and 9 additions of keys.
rule("philox2x32", flops="48·n", note=f"{_PHILOX}, for two words")(of_items)
# 10 rounds of two products and four xor, and 9 times two additions of keys.
rule("philox4x32", flops="98·n", note=f"{_PHILOX}, for four words")(of_items)
# 25 operations for a random word, a product and a sum. XLA counts n transcendentals instead.
rule("rng_uniform", flops="27·n", xla="0", note=f"{_PHILOX}; then scaled")(of_items)
without_arithmetic("prng_random_bits", "prng_seed", "prng_split", "prng_join", note="the generator of the device")


@rule("rng_bit_generator", flops="25·n", xla="0", note=_PHILOX)
def generated_bits(equation: Equation) -> Formula:
    """Philox takes 98 operations for four words of 32 bits: `25·n` for `n` numbers, or `50·n` if they have 64 bits.

    If Threefry is requested, two words take 124 operations: `62·n`, or `124·n` for 64 bits. XLA counts `n`
    transcendentals instead.
    """
    bits = equation.outputs[1]
    is_long = "64" in bits.dtype
    if equation.param.get("algorithm") == "RNG_THREE_FRY":
        text = "124·n" if is_long else "62·n"
        return Formula(text, {"n": count(bits)}, once="0", xla="0", note="20 rounds of Threefry")
    return _of_philox(equation, 64 if is_long else 32, -1)


def _of_philox(equation: Equation, bits: object, output: int = 0) -> Formula:
    text = "50·n" if bits == 64 else "25·n"
    return Formula(text, {"n": count(equation.outputs[output])}, once="0", xla="0", note=_PHILOX)


FUNCTIONS["is_not_one"] = lambda length: int(length != 1)
