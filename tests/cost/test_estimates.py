"""Memory estimated from the equations against XLA's allocation, for programs of realistic sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import jax
import pytest
from jax_programs import spec
from stress import Stress

from benchmarks.corpus import corpus
from mithril_nb.analysis.whatif.subjects import batch_of, cast, common_dtype, resized
from mithril_nb.cost.memory.liveness import LiveRange, allocated_for
from mithril_nb.cost.memory.use import memory_of
from mithril_nb.errors import ShapeError
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.inspection.inspection import Inspection

QUICK = ("MLP, forward", "ensemble by vmap, forward", "mixture of experts, forward", "LeNet, forward")
LONG = (
    *QUICK, "MLP, train step", "MLP, hand-written SGD", "LSTM by scan, forward", "LSTM by scan, train step",
    "mixture of experts, train step", "ensemble by vmap, train step", "LeNet, train step", "mithril_nb MLP, forward",
    "mithril_nb MLP, train step", "mithril_nb GPT, forward", "GPT-2 small by scan, forward",
    "GPT-2 small by scan, train step",
)  # fmt: skip


def sizes(name: str) -> Iterator[tuple[str, int, int]]:
    """Return the estimates for a program and its variants, and XLA's allocation."""
    fn, args = corpus(full=True)[name]()
    program = inspect(fn, *args)
    yield "as it is", *both(program)
    with suppress(ShapeError):  # it has none
        batch = batch_of(program)
        yield "4 x batch", *both(inspect(fn, *resized(args, batch, 4 * batch.size)))
    if common_dtype(args) == "float32":
        yield "bfloat16", *both(inspect(fn, *cast(args, "bfloat16")))


def both(program: Inspection) -> tuple[int, int]:
    program.want(machine_code=False)
    found = memory_of(program, "analytic").peak_bytes, memory_of(program).peak_bytes
    assert found[0] is not None
    assert found[1] is not None
    return found[0], found[1]


def test_estimates_are_within_ten_percent_of_xla(stress: Stress) -> None:
    names = (QUICK, LONG)[stress.size(short=0, long=1)]
    errors: dict[str, float] = {}
    wrong: list[str] = []
    for name in names:
        base: tuple[int, int] | None = None
        for what, estimate, plan in sizes(name):
            errors[f"{name}, {what}"] = estimate / plan - 1
            base = base or (estimate, plan)
            if abs(plan / base[1] - 1) > 0.05 and (plan > base[1]) != (estimate > base[0]):
                wrong.append(f"{name}, {what}")
    off = {what: f"{error:+.0%}" for what, error in errors.items() if abs(error) > 0.1}
    stress.report(programs=len(errors), within=f"{1 - len(off) / len(errors):.0%}", off=off, wrong_sign=wrong)
    assert len(off) <= 0.2 * len(errors), off
    assert max(map(abs, errors.values())) < 0.5, off
    assert wrong == []


def test_temporaries_reuse_output_buffers() -> None:
    x, y = LiveRange("x", "arguments", "", 1000, 0, 3), LiveRange("y", "outputs", "", 640, 3, 3)
    first, second = LiveRange("a", "temporaries", "", 640, 0, 1), LiveRange("b", "temporaries", "", 320, 1, 2)
    assert allocated_for([x, y, first], 4) == 1640
    assert allocated_for([x, y, first, second], 4) == 1640 + 320
    assert allocated_for([x, y, LiveRange("c", "temporaries", "", 641, 0, 1)], 4) == 1640 + 11 * 64


def test_allocation_time_is_not_quadratic() -> None:
    read: list[str] = []

    class Told(LiveRange):
        def __getattribute__(self, name: str) -> Any:
            if name == "last":
                read.append(name)
            return super().__getattribute__(name)

    count = 400
    # Like the activations of many layers, and their updated weights at the end.
    activations = [Told(f"a{n}", "temporaries", "", 256, n, 2 * count - n) for n in range(count)]
    weights = [Told(f"w{n}", "outputs", "", 1024, 2 * count + n, 3 * count) for n in range(count)]
    assert allocated_for([*activations, *weights], 3 * count + 1) == count * (1024 + 8)
    assert len(read) <= 20 * 2 * count


@pytest.mark.parametrize(
    ("order", "copies"),
    [("bhtd,bhsd->bhts", 0), ("bthd,bshd->bhts", 2), ("bhdt,bhds->bhts", 0)],
)
def test_products_copy_operands_in_another_axis_order(order: str, copies: int) -> None:
    """Uses arguments, because intermediate values are written directly in the needed axis order."""
    shapes = [[dict(b=2, h=3, t=64, s=64, d=16)[axis] for axis in one] for one in order.partition("->")[0].split(",")]
    left, right = (jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)

    def product(left: Any, right: Any) -> Any:
        return jax.numpy.einsum(order, left, right)

    estimate, plan = both(inspect(product, left, right))
    whole = 4 * 2 * 3 * 64 * (16 + 16 + 64)
    assert estimate == pytest.approx(whole + copies * 4 * 2 * 3 * 64 * 16, rel=0.02)
    assert estimate == pytest.approx(plan, rel=0.02)


def crossed(x: Any) -> Any:
    """A program whose number of paths from end to start is exponential in its length."""
    for _ in range(40):
        x = (x + 1.0) * (x - 2.0)
    return x


def long(x: Any) -> Any:
    for _ in range(5000):
        x = x + 1.0
    return x @ x.T


@pytest.mark.parametrize(("program", "needed"), [(crossed, 2 * 4 * 64), (long, 4 * (64 + 64 + 64))])
def test_fused_values_are_visited_once(program: Any, needed: int) -> None:
    assert memory_of(inspect(program, spec(8, 8)), "analytic").peak_bytes == needed


def layers(weights: Any, x: Any) -> Any:
    for weight in weights:
        x = jax.nn.relu(x @ weight)
    return x


def adam(weights: Any, means: Any, squares: Any, x: Any) -> Any:
    gradients = jax.grad(lambda weights: (layers(weights, x) ** 2).mean())(weights)
    means = [0.9 * mean + 0.1 * one for mean, one in zip(means, gradients, strict=True)]
    squares = [0.99 * square + 0.01 * one**2 for square, one in zip(squares, gradients, strict=True)]
    steps = [mean / (square**0.5 + 1e-8) for mean, square in zip(means, squares, strict=True)]
    return [weight - 0.01 * step for weight, step in zip(weights, steps, strict=True)], means, squares


def descent(w: Any, g: Any) -> Any:
    return w - 0.1 * g


def turned(w: Any, g: Any) -> Any:
    return jax.numpy.concatenate([w, g]).T


WEIGHTS = [spec(128, 128)] * 4
BATCH = spec(64, 128)


@pytest.mark.parametrize(
    ("step", "donated", "args"),
    [
        (adam, (0, 1, 2), (WEIGHTS, WEIGHTS, WEIGHTS, BATCH)),
        (adam, (1,), (WEIGHTS, WEIGHTS, WEIGHTS, BATCH)),
        (descent, (0,), (WEIGHTS[0], WEIGHTS[0])),
        (descent, (0, 1), (WEIGHTS[0], WEIGHTS[0])),
        (turned, (0, 1), (WEIGHTS[0], WEIGHTS[0])),
        (lambda w, x: w - 0.1 * (x.T @ jax.numpy.tanh(x @ w)), (0,), (WEIGHTS[0], BATCH)),
        (lambda w: w @ w, (0,), (WEIGHTS[0],)),
        (lambda w: w.sum(), (0,), (WEIGHTS[0],)),
        (lambda w: w.T, (0,), (WEIGHTS[0],)),
        (lambda w: w.reshape(-1) * 2, (0,), (WEIGHTS[0],)),
        (lambda w: w.astype("int32"), (0,), (WEIGHTS[0],)),
        (lambda i, w: w * 2 + i, (0,), (WEIGHTS[0].update(dtype="int32"), WEIGHTS[0])),
        (lambda w: (w + 1, w * 2), (0,), (WEIGHTS[0],)),
    ],
)
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_donated_argument_and_the_output_in_its_place_are_counted_once(step: Any, donated: Any, args: Any) -> None:
    estimate, plan = both(inspect(jax.jit(step, donate_argnums=donated), *args))
    assert estimate == pytest.approx(plan, rel=0.1)


NUMBERS = jax.numpy.arange(4096.0)


@pytest.mark.parametrize("donated", [(), (0,)])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x,
        lambda x: (x, x),
        lambda x: (x, x * 2),
        lambda x: (x, x.reshape(-1)),
        lambda x: (x * 2,) * 3,
        lambda x: [jax.numpy.tanh(x @ x)] * 2,
        lambda x: (NUMBERS, x + 1),
        lambda x: (NUMBERS, NUMBERS, x + 1),
    ],
)
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_a_result_that_is_an_argument_or_another_result_is_copied(program: Any, donated: Any) -> None:
    estimate, plan = both(inspect(jax.jit(program, donate_argnums=donated), WEIGHTS[0]))
    assert estimate == pytest.approx(plan, rel=0.01)


SQUARE = spec(256, 256)
LONG_AXIS = spec(300, 10)
FLAG, TALL = spec(dtype="bool"), spec(256, 64)


def rounds(body: Any, count: int = 4) -> Any:
    return lambda x: jax.lax.scan(lambda carry, _: (body(carry), None), x, None, length=count)[0]


@pytest.mark.parametrize(
    ("program", "args"),
    [
        (rounds(lambda c: jax.numpy.tanh(c @ c)), (SQUARE,)),
        (rounds(lambda c: c @ c @ c), (SQUARE,)),
        (lambda x, w: rounds(lambda c: c @ w @ w)(x), (SQUARE, SQUARE)),
        (rounds(rounds(lambda c: c @ c)), (SQUARE,)),
        (lambda x: jax.lax.scan(lambda c, _: (c @ c, c), x, None, length=4)[1], (SQUARE,)),
        (lambda x: jax.lax.while_loop(lambda c: c[0, 0] < 9, lambda c: c @ x @ x, x), (SQUARE,)),
        (rounds(lambda c: c.at[0].set(c[1])), (SQUARE,)),
        (lambda x: jax.lax.fori_loop(0, 4, lambda i, c: c.at[i].set(jax.numpy.sin(c[i])), x), (SQUARE,)),
        (lambda x: jax.lax.fori_loop(0, 4, lambda i, c: c.at[i].multiply(2.0), x), (SQUARE,)),
        (lambda x: (x @ x).at[3].set(0.0), (SQUARE,)),
        (lambda p, x: jax.lax.cond(p, lambda x: x @ x, jax.numpy.sin, x), (FLAG, SQUARE)),
        (lambda p, x: jax.lax.cond(p, lambda x: x @ x @ x, lambda x: x @ x.T, x), (FLAG, SQUARE)),
        (lambda p, x: jax.lax.cond(p, lambda x: x @ x, lambda x: x * 2, x @ x) + 1, (FLAG, SQUARE)),
        (lambda p, x: jax.lax.cond(p, lambda x: (x @ x, x @ x.T), lambda x: (x * 3, x * 2), x), (FLAG, SQUARE)),
        *((lambda x, axis=axis: jax.numpy.cumsum(x, axis), (SQUARE,)) for axis in (0, 1)),
        (lambda x: jax.numpy.cumsum(x * 2) + 1, (SQUARE,)),
        *((jax.lax.cumlogsumexp, (one,)) for one in (LONG_AXIS, TALL)),
        (lambda x: jax.numpy.cumprod(x, 1), (LONG_AXIS,)),
        (lambda x: jax.lax.cummax(x @ x, reverse=True) @ x, (SQUARE,)),
        (jax.grad(lambda x: (jax.numpy.cumsum(x, 0) ** 2).sum()), (SQUARE,)),
        *((lambda x: jax.numpy.linalg.svd(x), (one,)) for one in (SQUARE, TALL, TALL.update(shape=(3, 64, 32)))),
        *((lambda x, of=of: jax.numpy.linalg.svd(x, full_matrices=False, compute_uv=of), (TALL,)) for of in (0, 1)),
        (jax.numpy.linalg.svd, (TALL,)),
        (jax.numpy.linalg.svdvals, (TALL,)),
    ],
)
def test_loops_branches_and_routines_are_estimated_as_in_xla(program: Any, args: Any) -> None:
    estimate, plan = both(inspect(program, *args))
    assert estimate == pytest.approx(plan, rel=0.03)
