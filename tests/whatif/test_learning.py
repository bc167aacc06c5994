"""What is told without tracing is what tracing gives: by formulas, by inferred sizes, by repeated blocks."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from whatif.programs import capped, convolutional, padded, perceptron, recurrent, spec, transformer

from mithril_nb.cost import Cost
from mithril_nb.targets import inspect
from mithril_nb.whatif import WhatIf, what_if
from mithril_nb.whatif.answers import FORMULA, LEARNED, TRACED
from mithril_nb.whatif.repeated import Repeated, whole


def prepared(make: Callable[..., Any]) -> WhatIf:
    found = what_if(make, learns=True)
    assert found.ready(120)
    return found


def traced(make: Callable[..., Any], **settings: Any) -> Cost:
    function, args = make(**settings)
    return inspect(function, *args).cost()


def same(one: Cost, other: Cost) -> bool:
    return (
        whole(one) == whole(other)
        and one.total == other.total
        and one.by_block == other.by_block
        and one.by_role == other.by_role
        and one.unattributed == other.unattributed
    )


@pytest.fixture(scope="module")
def deep() -> WhatIf:
    return prepared(transformer)


def test_all_sizes_of_a_train_step_are_told_exactly_together(deep: WhatIf) -> None:
    random = Random(7)
    assert {deep.ways[name] for name in ("batch", "tokens", "width", "depth", "heads")} == {LEARNED}
    for _ in range(4):
        heads = random.choice((2, 3, 4, 6))  # far from 24, at which a head has one place: another program
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


def test_one_size_alone_is_told_exactly(deep: WhatIf) -> None:
    for name, value in {"batch": 5, "tokens": 30, "width": 60, "depth": 11, "heads": 2}.items():
        change = deep(**{name: value})
        assert (change.way, list(change.settings)) == (LEARNED, [name])
        assert same(change.after, traced(transformer, **{name: value})), name


def test_beyond_what_was_looked_at_it_is_traced(deep: WhatIf) -> None:
    """At 64 tokens nothing is cut off the places any more: a program with other equations."""
    for settings in ({"tokens": 64}, {"batch": 1}, {"depth": 2}, {"batch": 100_000}, {"heads": 24}):
        change = deep(**settings)
        assert change.way == TRACED, settings
        assert same(change.after, traced(transformer, **settings)), settings


def test_a_setting_that_is_no_size_is_traced_ahead(deep: WhatIf) -> None:
    change = deep(remat=True)
    assert change.way == TRACED
    assert same(change.after, traced(transformer, remat=True))
    assert (change.delta.flops or 0) > 0


def test_sizes_at_which_there_is_no_program_are_refused_as_in_tracing(deep: WhatIf) -> None:
    """25 is no multiple of 4 heads: an answer by what was learned would be about a program that there is not."""
    with pytest.raises(Exception, match="cannot be traced"):
        deep(width=25)


def test_how_often_a_loop_goes_round_is_told_exactly() -> None:
    found = prepared(recurrent)
    assert set(found.ways.values()) <= {FORMULA, LEARNED}
    for settings in ({"tokens": 33}, {"batch": 7, "width": 10}, {"batch": 3, "tokens": 5, "width": 30}):
        change = found(**settings)
        assert change.way in (FORMULA, LEARNED)
        assert same(change.after, traced(recurrent, **settings)), settings


def test_formulas_are_exact_where_jax_takes_symbols() -> None:
    found = prepared(perceptron)
    assert {name: found.ways[name] for name in ("batch", "width")} == {"batch": FORMULA, "width": FORMULA}
    for settings in ({"batch": 1000}, {"width": 3}, {"batch": 77, "width": 5}):
        change = found(**settings)
        assert change.way == FORMULA
        assert change.after.rows == traced(perceptron, **settings).rows
        assert same(change.after, traced(perceptron, **settings))


def test_a_formula_is_verified_at_other_values() -> None:
    """A symbol is equal to no number: with one in its place, every `if` on a remainder goes the same way."""

    def paired(batch: int = 7, width: int = 16) -> Any:
        def run(x: Any, weight: Any) -> Any:
            return (x.reshape(-1, 2, width).sum(1) if batch % 2 == 0 else x) @ weight

        return run, (spec(batch, width), spec(width, width))

    found = prepared(paired)
    assert found.ways["batch"].startswith("traced: ")
    for batch in (2, 8, 9, 64):
        assert same(found(batch=batch).after, traced(paired, batch=batch)), batch


def test_a_size_that_is_rounded_up_is_not_told_by_rule() -> None:
    found = prepared(padded)
    assert found.ways["width"].startswith("traced: ")
    assert same(found(width=200).after, traced(padded, width=200))
    assert found(width=129).after.total == found(width=256).after.total


def test_a_size_that_is_capped_is_told_up_to_there_at_most() -> None:
    found = prepared(capped)
    for window in (20, 40, 47, 48, 49, 60, 64, 1000):
        assert same(found(window=window).after, traced(capped, window=window)), window


def test_an_image_that_is_halved_is_right_however_it_is_told() -> None:
    found = prepared(convolutional)
    for settings in ({"image": 10}, {"image": 31}, {"batch": 9}, {"channels": 7}, {"batch": 2, "image": 12}):
        assert same(found(**settings).after, traced(convolutional, **settings)), settings


def test_blocks_that_differ_with_their_place_are_not_repeated() -> None:
    """The second of three is twice as wide as that of four: depth cannot be told from shallow programs."""

    def uneven(batch: int = 4, depth: int = 6) -> Any:
        def run(weights: Any, x: Any) -> Any:
            for place, weight in enumerate(weights):
                with jax.named_scope(f"block_{place}"):
                    x = jnp.tanh(x @ weight) @ weight.T
            return x

        return run, ([spec(8, 8 * (place + 1)) for place in range(depth)], spec(batch, 8))

    found = prepared(uneven)
    assert found.ways["depth"] == "traced: at 6 the program is not what repeats at 3 and 4"
    assert same(found(depth=9).after, traced(uneven, depth=9))


def test_a_cost_that_is_told_is_refused_where_it_does_not_grow_evenly() -> None:
    shallow, deep, other = (traced(transformer, depth=depth) for depth in (3, 4, 7))
    repeated = Repeated((3, shallow), (4, deep))
    assert repeated.gives(7, other)
    assert not repeated.gives(8, other)
    assert not Repeated((3, shallow), (4, traced(transformer, depth=4, width=48))).gives(7, other)
