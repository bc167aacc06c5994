"""Sets of puzzles: what tracing records, what transforms make, what the compiler gets to do, and many devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.teach.puzzles import Puzzle, puzzle, require_devices

_ENTRIES: dict[str, list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]] = {
    "trace": [],
    "transform": [],
    "compile": [],
    "devices": [],
}


def _array(*shape: int, dtype: str = "float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def _in_set(name: str, *args: Any, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(reference: Callable[..., Any]) -> Callable[..., Any]:
        _ENTRIES[name].append((reference, args, options))
        return reference

    return add


def puzzles(name: str) -> tuple[Puzzle, ...]:
    """Return a set of puzzles, from easy to hard.

    Args:
        name: `"trace"`: scans instead of Python loops, values instead of static arguments. `"transform"`: gradients,
            batches and products with Jacobians at the least cost. `"compile"`: the order of products, memory and
            donation. Each has ten. `"devices"`: a network divided over eight devices.

    Raises:
        UnknownOptionError: There is no such set.
        DeviceNotFoundError: `"devices"` in a process with fewer than eight devices.

    Examples:
        >>> import mithril_nb as ml
        >>> print(ml.teach.puzzles("compile")[0])
        chain_of_products: Compute A B x.
          at most 20,000 FLOPs
        Write the function below the puzzle as its decorator.
    """
    if name not in _ENTRIES:
        near = nearest(str(name), _ENTRIES) or "trace"
        raise UnknownOptionError(
            f"there is no set of puzzles {short_repr(name)}.", (("sets", ", ".join(_ENTRIES)),), f'"{near}"'
        )
    if name == "devices":
        require_devices(8, 'the set of puzzles "devices"')
    return tuple(puzzle(reference, *args, **options) for reference, args, options in _ENTRIES[name])


@_in_set("trace", _array(8), _array(), traces=1)
def scaled(x: Any, rate: Any) -> Any:
    """Return x times rate. A new rate needs no new trace."""
    return x * rate


@_in_set("trace", _array(8), _array(dtype="int32"), traces=1, ranges={"n": (1, 9)})
def power(x: Any, n: Any) -> Any:
    """Return x to the power n, for n from 1 to 9. A new n needs no new trace."""
    return x**n


@_in_set("trace", _array(8), _array(dtype="bool"), traces=1)
def chosen(x: Any, is_sine: Any) -> Any:
    """Return sin(x) if the flag is set, else cos(x). A new flag needs no new trace."""
    return jnp.where(is_sine, jnp.sin(x), jnp.cos(x))


@_in_set("trace", _array(16, 4), _array(dtype="int32"), traces=1, ranges={"count": (1, 16)})
def mean_of_first(x: Any, count: Any) -> Any:
    """Return the mean of the first `count` of 16 rows, for counts from 1. A new count needs no new trace."""
    is_in = jnp.arange(16)[:, None] < count
    return jnp.where(is_in, x, 0).sum(axis=0) / count


@_in_set("trace", _array(4, 6), _array(6, 6), equations=8)
def fifty_steps(h: Any, w: Any) -> Any:
    """Apply h → tanh(h w) fifty times, and return h. The jaxpr is as short as that of one step."""
    return lax.fori_loop(0, 50, lambda _, h: jnp.tanh(h @ w), h)


@_in_set("trace", _array(64), equations=5)
def running_sums(x: Any) -> Any:
    """Return all running sums of x squared: x₀², x₀² + x₁², ..., without a loop in Python."""
    return jnp.cumsum(x * x)


@_in_set("trace", _array(40, 5), equations=12)
def decayed(x: Any) -> Any:
    """Start with h = 0, apply h → 0.9 h + row for each row of x, and return all 40 values of h."""

    def step(h: Any, row: Any) -> Any:
        h = 0.9 * h + row
        return h, h

    return lax.scan(step, jnp.zeros(5), x)[1]


@_in_set("trace", _array(dtype="int32"), traces=1, ranges={"n": (1, 2**30)})
def halvings(n: Any) -> Any:
    """Return how often n must be halved, rounded down, until it is 0. A new n needs no new trace."""
    return lax.while_loop(lambda state: state[0] > 0, lambda state: (state[0] // 2, state[1] + 1), (n, 0))[1]


@_in_set("trace", _array(9, 5), _array(32, dtype="int32"), equations=10, ranges={"ids": (1, 9)})
def rows_of_table(table: Any, ids: Any) -> Any:
    """Return the rows of the table with these ids, from 1 to 9, counted from 1."""
    return table[ids - 1]


@_in_set("trace", {"a": _array(3), "b": _array(2, 2)}, {"a": _array(3), "b": _array(2, 2)}, equations=6)
def stepped(params: Any, grads: Any) -> Any:
    """Return params − 0.1 grads, in the same structure."""
    return jax.tree.map(lambda param, grad: param - 0.1 * grad, params, grads)


@_in_set("transform", _array(6), flops=60)
def derivatives(x: Any) -> Any:
    """Return the derivative of sin(x²) at each x, without a matrix of derivatives."""
    return 2 * x * jnp.cos(x * x)


def _loss(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w).sum()


@_in_set("transform", _array(16, 8), _array(32, 16), flops=20_000)
def weight_gradient(w: Any, x: Any) -> Any:
    """Return the gradient of sum(tanh(x w)) by w, but not that by x."""
    return jax.grad(_loss)(w, x)


@_in_set("transform", _array(16, 8), _array(32, 16), flops=20_000)
def value_and_gradient(w: Any, x: Any) -> Any:
    """Return sum(tanh(x w)) and its gradient by w, with one forward pass."""
    return jax.value_and_grad(_loss)(w, x)


@_in_set("transform", _array(8), _array(12, 8), equations=24)
def gradients_by_row(w: Any, x: Any) -> Any:
    """Return the gradient by w of tanh(row · w)² for each row of x, without a loop in Python."""
    return jax.vmap(jax.grad(lambda w, row: jnp.tanh(row @ w) ** 2), (None, 0))(w, x)


@_in_set("transform", _array(64), _array(64), _array(64, 64), flops=40_000)
def along(x: Any, direction: Any, w: Any) -> Any:
    """Return the derivative of tanh(w x) along the direction, without its Jacobian."""
    return jax.jvp(lambda x: jnp.tanh(w @ x), (x,), (direction,))[1]


@_in_set("transform", _array(32), _array(32), _array(32, 32), flops=20_000)
def curvature_along(x: Any, direction: Any, w: Any) -> Any:
    """Return the Hessian of sum(tanh(w x)²) times the direction, without the Hessian."""
    gradient = jax.grad(lambda x: (jnp.tanh(w @ x) ** 2).sum())
    return jax.jvp(gradient, (x,), (direction,))[1]


@_in_set("transform", _array(5), _array(5))
def gradient_of_one_side(x: Any, target: Any) -> Any:
    """Return the gradient by x of sum((sin(x) − target)²), where target = target · sum(x) counts as a constant."""
    return 2 * (jnp.sin(x) - target * x.sum()) * jnp.cos(x)


@_in_set("transform", _array(7, 9), _array(3, 9), equations=3)
def all_dots(rows: Any, others: Any) -> Any:
    """Return the matrix of dot products of each row with each of the others, in one product."""
    return rows @ others.T


@_in_set("transform", _array(32), _array(16, 32), flops=4_000)
def pulled_back(x: Any, w: Any) -> Any:
    """Return the gradient of sum(y³) with y = w x by x, with two products."""
    return 3 * (w @ x) ** 2 @ w


@_in_set("transform", _array(256, 512), _array(512, 512), peak_bytes=14_800_000)
def deep_gradient(x: Any, w: Any) -> Any:
    """Return the gradient by w of the sum of twelve layers h → tanh(h w), and keep only h of each layer in memory."""

    def total(w: Any) -> Any:
        h = x
        for _ in range(12):
            h = jnp.tanh(h @ w)
        return h.sum()

    return jax.grad(total)(w)


@_in_set("compile", _array(64, 64), _array(64, 64), _array(64), flops=20_000)
def chain_of_products(a: Any, b: Any, x: Any) -> Any:
    """Compute A B x."""
    return (a @ b) @ x


@_in_set("compile", _array(48, 64), _array(64, 48), flops=10_000)
def trace_of_product(a: Any, b: Any) -> Any:
    """Compute the trace of A B."""
    return jnp.trace(a @ b)


@_in_set("compile", _array(64), _array(64, 64), flops=9_000)
def scaled_rows(d: Any, a: Any) -> Any:
    """Compute diag(d) A."""
    return jnp.diag(d) @ a


@_in_set("compile", _array(100, 4), _array(4, 100), _array(100, 8), flops=20_000)
def low_rank(u: Any, v: Any, x: Any) -> Any:
    """Compute (U V) X for matrices of rank 4."""
    return (u @ v) @ x


@_in_set("compile", _array(200, 16), _array(32, dtype="int32"), flops=100, ranges={"ids": (0, 199)})
def embedded(table: Any, ids: Any) -> Any:
    """Return the rows of the table with these ids, without a product with a matrix of zeros and ones."""
    return jax.nn.one_hot(ids, 200) @ table


@_in_set("compile", _array(64, 64), _array(64), _array(64), flops=13_000)
def rank_one_update(a: Any, u: Any, x: Any) -> Any:
    """Compute (A + u uᵀ) x with as few FLOPs as A x needs, and a few more."""
    return (a + jnp.outer(u, u)) @ x - 0 * x


@_in_set("compile", _array(1000, 8), _array(8, 1000), _array(1000, 4), peak_bytes=200_000)
def never_whole(u: Any, v: Any, x: Any) -> Any:
    """Compute (U V) X, where the matrix U V alone would take 4 MB."""
    return (u @ v) @ x


@_in_set("compile", _array(300, 16), _array(200, 16), flops=2_200_000)
def distances(x: Any, y: Any) -> Any:
    """Return the squared distance of each row of x to each row of y, with one matrix product."""
    return ((x[:, None] - y[None]) ** 2).sum(axis=-1)


@_in_set("compile", _array(512, 512), _array(512, 512), peak_bytes=2_200_000)
def updated_in_place(param: Any, grad: Any) -> Any:
    """Return param − 0.1 grad, in the memory of param: jit a function that donates it."""
    return param - 0.1 * grad


@_in_set("compile", _array(64, 32), bytes_accessed=50_000)
def second_moments(x: Any) -> Any:
    """Return the mean of the outer product of each row of x with itself, without an array of all outer products."""
    return (x[:, :, None] * x[:, None, :]).mean(axis=0)


@_in_set(
    "devices", _array(64, 256), _array(256, 1024), _array(1024, 256), collectives={"all-gather": 0}, peak_bytes=600_000
)
def divided_network(x: Any, up: Any, down: Any) -> Any:
    """Compute relu(x up) down on eight devices, each of which holds an eighth of both weights. Gather nothing."""
    return jax.nn.relu(x @ up) @ down
