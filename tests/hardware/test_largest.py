"""The largest batch that fits into a device."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError

pytestmark = pytest.mark.usefixtures("compilers")


def step(w, x):
    return jnp.tanh(x @ w) @ w


def spec(*shape):
    return jax.ShapeDtypeStruct(shape, "float32")


SMALL = ml.Device(
    "small-gpu", memory_bytes=2**20, bytes_per_s=1e12, target={"compute_capability": "8.0", "core_count": 108}
)


@pytest.mark.parametrize("make", [False, True])
def test_the_next_larger_batch_does_not_fit(make):
    def make_step(batch=8):
        return step, (spec(64, 64), spec(batch, 64))

    question = ml.what_if(make_step, device=SMALL) if make else ml.what_if(step, *make_step()[1], device=SMALL)
    largest = question.largest("batch")
    # Three arrays of batch × 64 numbers, and the weights.
    assert 2**20 - 3 * 64 * 4 * 4 < 64 * 64 * 4 + 3 * largest * 64 * 4 <= 2**20
    for batch, fits in ((largest, True), (largest + 1, False)):
        assert ml.inspect(step, *make_step(batch)[1], device=SMALL).memory.fits is fits
    assert question.largest("batch", multiple_of=100) == largest // 100 * 100


def test_progress(capsys):
    question, lines = ml.what_if(step, spec(64, 64), spec(8, 64), device=SMALL), []
    largest = question.largest("batch", report=lines.append)
    assert capsys.readouterr().out == ""
    *compiled, last = lines
    assert last == ""
    assert compiled[0] == "step with batch=8: compiling"
    assert compiled[-1].endswith(")")
    lower, upper = (
        int(re.search(text, compiled[-1])[1].replace(",", "")) for text in (r"([\d,]+) fits", r"([\d,]+) does")
    )
    assert lower <= largest < upper <= largest + 2
    assert question.largest("batch", multiple_of=100) == largest // 100 * 100
    printed = capsys.readouterr().out
    assert printed.startswith("\rstep with batch=100: compiling")
    assert printed.endswith(f"\r{'':79}\r")


def test_no_batch_fits_and_unknown_memory():
    large = spec(1024, 1024), spec(8, 1024)
    assert ml.what_if(step, *large, device=SMALL).largest() == 0
    with pytest.raises(UnknownOptionError, match="memory of its device is unknown"):
        ml.what_if(ml.inspect(step, spec(64, 64), spec(8, 64))).largest()
    with pytest.raises(UnknownOptionError, match="is not a size"):
        ml.what_if(ml.inspect(step, spec(64, 64), spec(8, 64), device=SMALL)).largest("dtype")


@pytest.mark.parametrize(("make", "rows"), [(False, 1), (True, 2)])
def test_a_batch_that_is_split_stays_a_multiple_of_its_parts(make, rows):
    device = SMALL.with_topology("4")
    split = NamedSharding(ml.device_mesh(device, data=4), P("data"))

    def make_step(batch=8):
        return step, (spec(64, 64), jax.ShapeDtypeStruct((batch * rows, 64), "float32", sharding=split))

    question = ml.what_if(make_step, device=device) if make else ml.what_if(step, *make_step()[1], device=device)
    largest, parts = question.largest("batch"), 4 // rows
    assert largest % parts == 0
    for batch, fits in ((largest, True), (largest + parts, False)):
        assert ml.inspect(step, *make_step(batch)[1], device=device).memory.fits is fits
    with pytest.raises(UnknownOptionError, match=f"a multiple of {parts}") as error:
        question.largest("batch", multiple_of=1)
    assert f'largest("batch", multiple_of={parts})' in str(error.value)
