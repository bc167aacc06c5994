"""Predicted costs equal traced ones: by inferred sizes and by repeated blocks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from analysis.whatif.programs import capped, convolutional, padded, perceptron, recurrent, spec, transformer

from mithril_nb.analysis.whatif import WhatIf, what_if
from mithril_nb.analysis.whatif.cost_oracle import LEARNED, TRACED
from mithril_nb.analysis.whatif.learning import comparable, repeats
from mithril_nb.cost import Cost
from mithril_nb.targets import inspect


def prepared(make: Callable[..., Any]) -> WhatIf:
    found = what_if(make, learns=True)
    assert found.ready(120)
    return found


def traced(make: Callable[..., Any], **settings: Any) -> Cost:
    function, args = make(**settings)
    return inspect(function, *args).cost()


def same(one: Cost, other: Cost) -> bool:
    return (
        comparable(one) == comparable(other)
        and one.total == other.total
        and one.by_block == other.by_block
        and one.by_role == other.by_role
        and one.unattributed == other.unattributed
    )


@pytest.fixture(scope="module")
def deep() -> WhatIf:
    return prepared(transformer)


def test_all_sizes_of_a_train_step_are_predicted_exactly(deep: WhatIf) -> None:
    random = Random(7)
    assert {deep.ways[name] for name in ("batch", "tokens", "width", "depth", "heads")} == {LEARNED}
    for _ in range(4):
        heads = random.choice((2, 3, 4, 6))  # far from 24, where a head has width one and the program differs
        settings = {
            "batch": random.randint(2, 90),
            "tokens": random.randint(3, 31),
            "heads": heads,
            "width": 12 * random.randint(1, 9),
            "depth": random.randint(3, 9),
        }
        change = deep(**settings)
        assert change.way == LEARNED, settings
        assert same(change.after, traced(transformer, **settings)), settings


def test_a_single_size_is_predicted_exactly(deep: WhatIf) -> None:
    for name, value in {"batch": 5, "tokens": 30, "width": 60, "depth": 11, "heads": 2}.items():
        change = deep(**{name: value})
        assert (change.way, list(change.settings)) == (LEARNED, [name])
        assert same(change.after, traced(transformer, **{name: value})), name


def test_values_outside_the_verified_range_are_traced(deep: WhatIf) -> None:
    """At 64 tokens the position table is no longer sliced, so the equations differ."""
    for settings in ({"tokens": 64}, {"batch": 1}, {"depth": 2}, {"batch": 100_000}, {"heads": 24}):
        change = deep(**settings)
        assert change.way == TRACED, settings
        assert same(change.after, traced(transformer, **settings)), settings


def test_a_setting_that_is_not_a_size_is_traced_ahead(deep: WhatIf) -> None:
    change = deep(remat=True)
    assert change.way == TRACED
    assert same(change.after, traced(transformer, remat=True))
    assert (change.delta.flops or 0) > 0


def test_impossible_sizes_raise_as_in_tracing(deep: WhatIf) -> None:
    """25 is not a multiple of 4 heads, so a learned prediction would describe a program that does not exist."""
    with pytest.raises(Exception, match="cannot be traced"):
        deep(width=25)


def test_trip_counts_are_predicted_exactly() -> None:
    found = prepared(recurrent)
    assert set(found.ways.values()) == {LEARNED}
    for settings in ({"tokens": 33}, {"batch": 7, "width": 10}, {"batch": 3, "tokens": 5, "width": 30}):
        change = found(**settings)
        assert change.way == LEARNED
        assert same(change.after, traced(recurrent, **settings)), settings


def test_sizes_between_traced_ones_are_predicted_exactly() -> None:
    found = prepared(perceptron)
    assert {name: found.ways[name] for name in ("batch", "width")} == {"batch": LEARNED, "width": LEARNED}
    for settings in ({"batch": 500}, {"width": 3}, {"batch": 77, "width": 5}):
        change = found(**settings)
        assert change.way == LEARNED
        assert same(change.after, traced(perceptron, **settings))


def test_a_size_with_other_equations_at_some_values_is_traced() -> None:
    def paired(batch: int = 7, width: int = 16) -> Any:
        def run(x: Any, weight: Any) -> Any:
            return (x.reshape(-1, 2, width).sum(1) if batch % 2 == 0 else x) @ weight

        return run, (spec(batch, width), spec(width, width))

    found = prepared(paired)
    assert found.ways["batch"].startswith("traced: ")
    for batch in (2, 8, 9, 64):
        assert same(found(batch=batch).after, traced(paired, batch=batch)), batch


def test_a_rounded_size_is_not_predicted() -> None:
    found = prepared(padded)
    assert found.ways["width"].startswith("traced: ")
    assert same(found(width=200).after, traced(padded, width=200))
    assert found(width=129).after.total == found(width=256).after.total


def test_a_capped_size_is_predicted_at_most_up_to_the_cap() -> None:
    found = prepared(capped)
    for window in (20, 40, 47, 48, 49, 60, 64, 1000):
        assert same(found(window=window).after, traced(capped, window=window)), window


def test_a_halved_image_is_predicted_or_traced_correctly() -> None:
    found = prepared(convolutional)
    for settings in ({"image": 10}, {"image": 31}, {"batch": 9}, {"channels": 7}, {"batch": 2, "image": 12}):
        assert same(found(**settings).after, traced(convolutional, **settings)), settings


def test_blocks_that_differ_by_position_are_not_repeated() -> None:
    """The width of a block depends on the depth, so depth cannot be learned from shallow programs."""

    def uneven(batch: int = 4, depth: int = 6) -> Any:
        def run(weights: Any, x: Any) -> Any:
            for place, weight in enumerate(weights):
                with jax.named_scope(f"block_{place}"):
                    x = jnp.tanh(x @ weight) @ weight.T
            return x

        return run, ([spec(8, 8 * (place + 1)) for place in range(depth)], spec(batch, 8))

    found = prepared(uneven)
    assert found.ways["depth"] == "traced: at 6 the program does not repeat the blocks found at 3 and 4"
    assert same(found(depth=9).after, traced(uneven, depth=9))


def test_a_cost_that_does_not_grow_linearly_is_not_predicted() -> None:
    shallow, deep, other = (traced(transformer, depth=depth) for depth in (3, 4, 7))
    assert repeats((3, shallow), (4, deep), 7, other)
    assert not repeats((3, shallow), (4, deep), 8, other)
    assert not repeats((3, shallow), (4, traced(transformer, depth=4, width=48)), 7, other)
