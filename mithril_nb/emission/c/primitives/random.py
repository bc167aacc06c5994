"""Random numbers in C with the same bits as in JAX: threefry2x32 with partitionable counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax

from mithril_nb.emission.c.types import C_TYPES, bits, flat
from mithril_nb.emission.c.writing import CBody, Index, View, rule
from mithril_nb.emission.program import Statement

Words = tuple[str, str]
"""C expressions of two integers of 32 bits."""


@rule("threefry2x32")
def threefry(to: CBody, op: Statement) -> None:
    first, second = map(to.reserve, op.outputs)
    with to.loops(op.shape) as index:
        keys = [to.item(each, index[len(index) - len(each.shape) :]) for each in op.inputs]
        _assign(to, (first.item(index), second.item(index)), _words(to, (keys[0], keys[1]), (keys[2], keys[3])))


def _words(to: CBody, key: Words, counts: Words) -> Words:
    words = to.new_name("word_0"), to.new_name("word_1")
    to.add(f"uint32_t {words[0]} = {counts[0]}, {words[1]} = {counts[1]};")
    to.add(f"{to.helpers.use('threefry2x32')}({key[0]}, {key[1]}, &{words[0]}, &{words[1]});")
    return words


def _assign(to: CBody, items: Words, words: Words) -> None:
    for item, word in zip(items, words, strict=True):
        to.add(f"{item} = {word};")


def _both(item: Callable[[Index], str], index: Index) -> Words:
    return item((*index, "0")), item((*index, "1"))


def _counts(position: str) -> Words:
    if position.isdigit():  # a constant, such as the only item of an array
        return str(int(position) >> 32), f"{int(position) & 0xFFFFFFFF}u"
    return "0", f"(uint32_t)({position})"


def _check(to: CBody, op: Statement) -> None:
    # Without it, JAX computes the bits of an array from pairs of counters in its two halves.
    if not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        raise to.unsupported("random numbers with jax_threefry_partitionable=False")
    for value in (*op.inputs, *op.outputs):
        if value.dtype.startswith("key") and value.dtype != "key<fry>":
            raise to.unsupported(f"random keys of dtype {value.dtype}")
        if value.size >= 2**31:  # the counter of an item is its position, an `int` in C
            raise to.unsupported("random arrays with 2**31 or more items")


@rule("random_bits", "random_split")
def random_bits(to: CBody, op: Statement) -> None:
    _check(to, op)
    key, form = op.operand, to.reserve(op.output)
    rank = len(key.shape)
    with to.loops(op.shape) as index:
        counts = _counts(flat(index[rank:], tuple(op["shape"])))
        low, high = _words(to, _both(partial(to.item, key), index[:rank]), counts)
        if op.primitive == "random_split":
            _assign(to, _both(form.item, index), (low, high))
        else:
            text = f"(uint64_t){low} << 32 | {high}" if op["bit_width"] == 64 else f"{low} ^ {high}"
            text = f"({C_TYPES[op.dtype]})({text})" if bits(op.dtype) < 32 else text
            to.add(f"{form.item(index)} = {text};")


@rule("random_fold_in")
def random_fold_in(to: CBody, op: Statement) -> None:
    _check(to, op)
    key, data = op.inputs
    form = to.reserve(op.output)
    with to.loops(op.shape) as index:
        text = to.item(data, index[len(index) - len(data.shape) :])
        words = _words(to, _both(partial(to.item, key), index), ("0", f"(uint32_t){text}"))
        _assign(to, _both(form.item, index), words)


@rule("random_seed")
def random_seed(to: CBody, op: Statement) -> None:
    _check(to, op)
    form, is_wide = to.reserve(op.output), op.operand.dtype in ("int64", "uint64")
    with to.loops(op.shape) as index:
        text = to.item(op.operand, index)
        high = f"(uint32_t)((uint64_t){text} >> 32)" if is_wide else "0"  # also for negative seeds of 32 bits
        _assign(to, _both(form.item, index), (high, f"(uint32_t){text}"))


@rule("random_wrap", "random_unwrap", "random_clone")
def random_wrap(to: CBody, op: Statement) -> None:
    _check(to, op)
    if op.dtype == op.operand.dtype or to.is_in_memory(op.output):
        to.copy(op.operand, to.reserve(op.output))
    else:
        to.forms[op.output] = View(lambda index: to.item(op.operand, index))
