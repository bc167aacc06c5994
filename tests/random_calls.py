"""Random calls of random functions: numbers, containers, keywords and static arguments, the same for the same seed."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass(frozen=True)
class Call:
    """A function, its arguments, which of them are static, and their kinds."""

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    static: dict[str, Any]
    kinds: frozenset[str]


_NUMBERS: tuple[Callable[[random.Random], Any], ...] = (
    lambda draw: draw.randint(-9, 9),
    lambda draw: round(draw.uniform(-3, 3), 2),
    lambda draw: draw.random() < 0.5,
    lambda draw: complex(draw.randint(-3, 3), 1),
    lambda draw: np.float32(draw.randint(1, 4)),
    lambda draw: np.int64(draw.randint(1, 4)),
    lambda draw: np.float16(draw.randint(1, 4)),
    lambda draw: np.bool_(draw.random() < 0.5),
)
_STATIC: tuple[Callable[[random.Random], Any], ...] = (
    lambda draw: draw.randint(0, 3),
    lambda draw: draw.choice(("up", "down")),
    lambda draw: (draw.randint(1, 3), 2),
    lambda draw: None,
)
_BINARY = (jnp.add, jnp.multiply, jnp.subtract, lambda x, y: jnp.where(x == y, x, y), lambda x, y: (x, y)[1] + 1)
_UNARY = (jnp.sin, jnp.tanh, jnp.abs, lambda x: x, lambda x: x * 2, lambda x: jnp.exp(1.0 - x), lambda x: jnp.sum(x))


def _value(draw: random.Random, kinds: set[str], depth: int = 0) -> Any:
    kind = draw.random()
    if kind < 0.35 or depth > 2:
        kinds.add("number")
        return draw.choice(_NUMBERS)(draw)
    if kind < 0.6:
        kinds.add("array")
        shape = draw.choice(((), (1,), (4,), (3, 4)))
        return np.ones(shape, draw.choice(("float32", "int32", "bool", "float16", "complex64")))
    if kind < 0.65:
        return None
    kinds.add("container")
    parts = [_value(draw, kinds, depth + 1) for _ in range(draw.randint(1, 3))]
    make = draw.choice((list, tuple, lambda parts: dict(zip("cab", parts, strict=False)), lambda parts: Pair(parts, 1)))
    return make(parts)


def random_call(seed: int) -> Call:
    """Return the call for a seed."""
    draw, kinds = random.Random(seed), set[str]()
    binary, unary = ([draw.choice(one) for _ in range(12)] for one in (_BINARY, _UNARY))
    result = draw.randrange(4)

    def compute(values: Any, static: tuple[Any, ...]) -> Any:
        found = jnp.float32(1)
        for place, leaf in enumerate(jax.tree.leaves(values)):
            found = binary[place % 12](found, unary[place % 12](leaf))
        for one in static:  # Python decides by their values
            for _ in range(one if isinstance(one, int) else 0):
                found = jnp.cos(found)
            found = (
                found * 2
                if one == "up"
                else jnp.broadcast_to(found, (*one, *jnp.shape(found)))
                if isinstance(one, tuple)
                else found
            )
        return (found, (found, None), {"a": found, "n": 3, "none": [None]}, {"all": values, "found": found})[result]

    def plain(a: Any, b: Any = 2, how: Any = 0) -> Any:
        return compute((a, b), (how,))

    def keyword(a: Any, *, scale: Any = 1.5, how: Any = 0) -> Any:
        return compute((a, scale), (how,))

    def many(*parts: Any, how: Any = 0, **more: Any) -> Any:
        return compute((parts, more), (how,))

    def mixed(a: Any, how: Any, *parts: Any, offset: Any = 0, **more: Any) -> Any:
        return compute((a, parts, offset, more), (how,))

    fn: Any = draw.choice((plain, keyword, many, mixed))
    how = draw.choice(_STATIC)(draw)
    value = functools.partial(_value, draw, kinds)
    args: tuple[Any, ...] = (value(),)
    kwargs: dict[str, Any] = {}
    if fn is plain and draw.random() < 0.5:
        args = (*args, value())
    if fn is keyword and draw.random() < 0.7:
        kwargs["scale"] = value()
    if fn in (many, mixed):
        args = (*args, *(value() for _ in range(draw.randint(0, 2))))
        kwargs |= {name: value() for name in draw.sample(("z", "x_0", "count", "b"), draw.randint(0, 2))}
    if fn is mixed:
        args = (args[0], how, *args[1:])
        static = draw.choice(({"static_argnums": 1}, {"static_argnums": (1,), "static_argnames": ()}))
    elif fn is plain and len(args) == 2 and draw.random() < 0.5:
        args, static = (
            (*args, how),
            draw.choice(({"static_argnums": 2}, {"static_argnums": -1}, {"static_argnames": "how"})),
        )
    else:
        kwargs["how"], static = how, {"static_argnames": draw.choice(("how", ("how",)))}
    kinds.add("static")
    if kwargs.keys() - {"how"}:
        kinds.add("keyword")
    around = draw.random()
    if around < 0.2 and fn is not many:
        kinds.add("partial")
        bound = {name: kwargs.pop(name) for name in [*kwargs][:1] if name != "how"}
        if fn is keyword:
            bound["how"] = kwargs.pop("how")
            static = {}
        fn = functools.partial(fn, **bound)
    elif around < 0.35 and not static.get("static_argnums"):
        kinds.add("jitted")
        fn = jax.jit(fn, **static)
        static = {}
    return Call(fn, args, kwargs, static, frozenset(kinds))
