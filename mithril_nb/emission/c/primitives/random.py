"""Random numbers in C with the same bits as in JAX: threefry2x32 with partitionable counters."""

from __future__ import annotations

import jax

from mithril_nb.emission.c.arithmetic import flat
from mithril_nb.emission.c.rules import rule
from mithril_nb.emission.c.types import C_TYPES, bits
from mithril_nb.emission.c.writing import Body, Index, View
from mithril_nb.emission.program import Operand, Statement
from mithril_nb.emission.unsupported import unsupported


@rule("threefry2x32")
def threefry(to: Body, one: Statement) -> None:
    first, second = (to.reserve(value, one) for value in one.outputs)
    with to.loops(one.outputs[0].shape, one) as index:
        keys = [to.item(each, index[len(index) - len(each.shape) :]) for each in one.inputs]
        _write_words(to, one, (keys[0], keys[1]), (keys[2], keys[3]), (first.item(index), second.item(index)))


def _words(to: Body, one: Statement, key: tuple[str, str], counts: tuple[str, str]) -> tuple[str, str]:
    """Write variables with two random integers of 32 bits, computed from a key and two counts; return their names."""
    words = to.new_name("word_0"), to.new_name("word_1")
    to.add(f"uint32_t {words[0]} = {counts[0]}, {words[1]} = {counts[1]};", one)
    to.add(f"{to.helpers.use('threefry2x32')}({key[0]}, {key[1]}, &{words[0]}, &{words[1]});", one)
    return words


def _write_words(
    to: Body, one: Statement, key: tuple[str, str], counts: tuple[str, str], items: tuple[str, str]
) -> None:
    """Write the two integers of `_words` to two items."""
    for item, word in zip(items, _words(to, one, key, counts), strict=True):
        to.add(f"{item} = {word};", one)


def _key(to: Body, key: Operand, index: Index) -> tuple[str, str]:
    return to.item(key, (*index, "0")), to.item(key, (*index, "1"))


def _counts(place: str) -> tuple[str, str]:
    if place.isdigit():
        return str(int(place) >> 32), f"{int(place) & 0xFFFFFFFF}u"
    return "0", f"(uint32_t)({place})"


def _check(one: Statement) -> None:
    if not jax.config.jax_threefry_partitionable:  # pyright: ignore[reportAttributeAccessIssue]
        raise unsupported(one, "c", "random numbers with jax_threefry_partitionable=False")
    for value in (*one.inputs, *one.outputs):
        if value.dtype.startswith("key") and value.dtype != "key<fry>":
            raise unsupported(one, "c", f"random keys of dtype {value.dtype}")
        if value.size >= 2**31:
            raise unsupported(one, "c", "random arrays with 2**31 or more items")


@rule("random_bits")
def random_bits(to: Body, one: Statement) -> None:
    _check(one)
    (key,), (output,) = one.inputs, one.outputs
    form, width = to.reserve(output, one), one.params["bit_width"]
    shape = tuple(one.params["shape"])
    with to.loops(output.shape, one) as index:
        counts = _counts(flat(index[len(key.shape) :], shape))
        low, high = _words(to, one, _key(to, key, index[: len(key.shape)]), counts)
        text = f"(uint64_t){low} << 32 | {high}" if width == 64 else f"{low} ^ {high}"
        text = f"({C_TYPES[output.dtype]})({text})" if bits(output.dtype) < 32 else text
        to.touch(form)
        to.add(f"{form.item(index)} = {text};", one)


@rule("random_split")
def random_split(to: Body, one: Statement) -> None:
    _check(one)
    (key,), (output,) = one.inputs, one.outputs
    form, shape = to.reserve(output, one), tuple(one.params["shape"])
    with to.loops(output.shape, one) as index:
        counts = _counts(flat(index[len(key.shape) :], shape))
        into = (form.item((*index, "0")), form.item((*index, "1")))
        to.touch(form)
        _write_words(to, one, _key(to, key, index[: len(key.shape)]), counts, into)


@rule("random_fold_in")
def random_fold_in(to: Body, one: Statement) -> None:
    _check(one)
    (key, data), (output,) = one.inputs, one.outputs
    form = to.reserve(output, one)
    with to.loops(output.shape, one) as index:
        text = to.item(data, index[len(index) - len(data.shape) :])
        into = (form.item((*index, "0")), form.item((*index, "1")))
        to.touch(form)
        _write_words(to, one, _key(to, key, index), ("0", f"(uint32_t){text}"), into)


@rule("random_seed")
def random_seed(to: Body, one: Statement) -> None:
    _check(one)
    (seed,), (output,) = one.inputs, one.outputs
    form = to.reserve(output, one)
    is_wide = seed.dtype in ("int64", "uint64")
    with to.loops(output.shape, one) as index:
        text = to.item(seed, index)
        to.touch(form)
        high = f"(uint32_t)((uint64_t){text} >> 32)" if is_wide else "0"
        to.add(f"{form.item((*index, '0'))} = {high};", one)
        to.add(f"{form.item((*index, '1'))} = (uint32_t){text};", one)


@rule("random_wrap", "random_unwrap", "random_clone")
def random_wrap(to: Body, one: Statement) -> None:
    _check(one)
    source, (output,) = one.inputs[0], one.outputs
    if output.dtype == source.dtype or to.is_in_memory(output):
        form = to.reserve(output, one)
        return to.copy(source, form, one)
    to.forms[output] = View(lambda index: to.item(source, index))
    return None
