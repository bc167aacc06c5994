"""Matrix products whose op name XLA dropped: recovered from the pass that created them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from jax_programs import block, spec

from mithril_nb.inspection import inspect
from mithril_nb.stages.xla.recover_op_names import nameless


def one_by_one(weights, x):
    for name in ("first", "second"):
        with block(name):
            x = jax.lax.conv_general_dilated(
                x, weights[name], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
    return (x**2).sum()


def vector(weights, x):
    for name in ("first", "second"):
        with block(name):
            x = jnp.tanh(weights[name] @ x)
    return (x**2).sum()


ORDER = ("NHWC", "HWIO", "NHWC")
IMAGES = {"first": spec(1, 1, 5, 7), "second": spec(1, 1, 7, 11)}, spec(2, 8, 8, 5)
VECTORS = {"first": spec(7, 5), "second": spec(11, 7)}, spec(5)


@pytest.mark.parametrize(("fn", "args"), [(one_by_one, IMAGES), (vector, VECTORS)])
def test_recovered_products_have_one_block_role_and_equation(fn, args) -> None:
    found = inspect(jax.value_and_grad(fn), *args)
    equations = {one.id: one for one in found.equations}
    products = [one for one in found.stage("hlo").instructions if one.opcode in ("dot", "convolution")]
    assert products
    for one in products:
        (block,) = one.blocks
        sources = [equations[id] for id in one.equations]
        assert {source.block for source in sources} == {block}
        assert {source.role for source in sources} == {one.role}
        assert any(source.primitive in ("dot_general", "conv_general_dilated") for source in sources)
        widths = {"first": {5, 7}, "second": {7, 11}}[block]
        assert widths & {size for shape in one.shapes for size in shape.shape}, "a wrong link: not its widths"
    lost = set(nameless(found.compiled.as_text()))
    assert {one.origin for one in products if one.id in lost} <= {"inferred"}
    assert {one.origin for one in products if one.id not in lost} <= {"tagged"}
