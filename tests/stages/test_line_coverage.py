"""Coverage of the user's lines: all equations and nearly all instructions have one."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import optax
import pytest
from flax import nnx
from fresh import run_fresh
from jax import lax
from jax_programs import cnn, programs, spec, train_step
from process import EIGHT_DEVICES

import mithril_nb as ml
from benchmarks.corpus import corpus
from benchmarks.corpus.modules import steps
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.models import GPT, BatchNorm2d, Conv2d, Dropout, Flatten, Linear, Model, Relu, Sequential
from mithril_nb.stages.jax_versions import library_of

Make = Callable[[], Inspection]
LEAST = 0.98
"""Share of the instructions with FLOPs that have a line of the user."""
KEY = jax.random.key(0)


# Modules as users write them


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(4, (3, 3))(x))
        x = nn.max_pool(x, (2, 2), (2, 2))
        x = nn.LayerNorm()(x.reshape(x.shape[0], -1))
        return nn.Dense(10)(nn.gelu(nn.Dense(16)(x)))


class LinenAttention(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.softmax(nn.MultiHeadDotProductAttention(num_heads=2)(x, x))


class Nnx(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.up, self.norm, self.down = (
            nnx.Linear(6, 8, rngs=rngs),
            nnx.BatchNorm(8, rngs=rngs),
            nnx.Linear(8, 3, rngs=rngs),
        )
        self.attention = nnx.MultiHeadAttention(2, 8, rngs=rngs, decode=False)

    def __call__(self, x):
        hidden = nnx.gelu(self.norm(self.up(x)))
        return nnx.log_softmax(self.down(self.attention(hidden)))


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    cell: eqx.nn.GRUCell
    norm: eqx.nn.LayerNorm

    def __init__(self, key):
        self.first, self.cell = eqx.nn.Linear(6, 8, key=key), eqx.nn.GRUCell(8, 8, key=key)
        self.norm = eqx.nn.LayerNorm(8)

    def __call__(self, x):
        def step(carry, one):
            return self.cell(jax.nn.silu(self.first(one)), carry), None

        last, _ = lax.scan(step, jnp.zeros(8), x)
        return self.norm(last)


def haiku_net(x):
    x = hk.Conv2D(4, 3)(x)
    x = hk.Flatten()(jax.nn.relu(x))
    return hk.nets.MLP([16, 10], activation=jax.nn.silu)(x)


def linen_step(module: nn.Module, x):
    params = jax.eval_shape(module.init, KEY, x)
    optimizer = optax.adamw(1e-3)

    def step(params, state, x):
        def loss(params):
            return optax.losses.squared_error(module.apply(params, x)).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    return inspect(step, params, jax.eval_shape(optimizer.init, params), x)


def haiku_step(x):
    net = hk.without_apply_rng(hk.transform(haiku_net))
    params = jax.eval_shape(net.init, KEY, x)

    def step(params, x):
        grads = jax.grad(lambda params: optax.l2_loss(net.apply(params, x)).sum())(params)
        return jax.tree.map(lambda one, grad: one - 0.1 * grad, params, grads)

    return inspect(step, params, x)


def equinox_gradient(x):
    arrays, rest = eqx.partition(
        eqx.filter_eval_shape(Equinox, KEY), lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct)
    )

    def gradient(arrays, x):
        return eqx.filter_grad(lambda model: jax.vmap(model)(x).sum())(eqx.combine(arrays, rest))

    return inspect(gradient, arrays, x)


# Code that mostly calls libraries


def linear_algebra(a, b):
    q, r = jnp.linalg.qr(a)
    x = jnp.linalg.solve(a, b) + jax.scipy.linalg.solve_triangular(r, q.T @ b)
    values, vectors = jnp.linalg.eigh(a + a.T)
    whole = jnp.linalg.det(a) + jnp.linalg.norm(x) + jnp.linalg.slogdet(a)[1]
    return jnp.linalg.inv(a) @ vectors * values + jax.scipy.linalg.expm(a) * whole


def statistics(x, key):
    noise = jax.random.normal(key, x.shape) + jax.random.gamma(key, 2.0, x.shape)
    x = jnp.where(x > jnp.median(x), jax.scipy.special.gammaln(x + noise), jax.scipy.stats.norm.logpdf(x))
    x = jnp.fft.irfft(jnp.fft.rfft(x)) + jnp.cumsum(jnp.sort(x, 0), 0)
    return jax.nn.logsumexp(jnp.interp(x, x[0], x[1]) + jnp.polyval(x[0], x))


def classifier(params, x, y):
    x = jax.nn.gelu(jnp.einsum("bi,io->bo", x, params["up"]))
    x = jax.nn.standardize(x) @ params["down"]
    return optax.softmax_cross_entropy_with_integer_labels(jax.nn.log_softmax(x), y).mean()


@jax.custom_vjp
def clipped(x):
    return jnp.clip(x, 0, 1)


def clipped_forward(x):
    return clipped(x), x


def clipped_backward(x, gradient):
    return (jnp.where((x > 0) & (x < 1), gradient, 0.1 * jnp.tanh(gradient)),)


clipped.defvjp(clipped_forward, clipped_backward)


def by_custom_vjp(x):
    return jnp.linalg.norm(clipped(jax.nn.softplus(x)))


def in_loops(x):
    x = lax.fori_loop(0, 3, lambda i, x: jax.nn.relu(x) + i, x)
    x = lax.while_loop(lambda x: jnp.linalg.norm(x) < 9, lambda x: jax.nn.elu(x) * 2 + 1, x)
    x = lax.map(jax.nn.softmax, x) + jax.vmap(jax.nn.sigmoid)(x)
    return lax.cond(x.sum() > 0, jax.nn.swish, jnp.sin, x) + lax.associative_scan(jnp.add, x)


def libraries() -> dict[str, Make]:
    """Return programs of this file by name; programs without a train step also as a gradient."""
    square, params = spec(5, 5), {"up": spec(6, 8), "down": spec(8, 3)}
    image, rows, many = spec(2, 8, 8, 1), spec(2, 6), spec(2, 7, 6)
    key = jax.eval_shape(lambda: jax.random.key(0))

    def gradient(fn, *args):
        return inspect(lambda *args: jax.grad(lambda *args: fn(*args).sum())(*args), *args, name="gradient")

    return {
        "linear algebra": partial(inspect, linear_algebra, square, square),
        "linear algebra, gradient": partial(
            gradient, lambda a, b: jnp.linalg.solve(a, b) + jnp.linalg.det(a), square, square
        ),
        "statistics": partial(inspect, statistics, spec(6, 6), key),
        "classifier": partial(inspect, jax.value_and_grad(classifier), params, rows, spec(2, dtype="int32")),
        "custom_vjp": partial(inspect, jax.grad(by_custom_vjp), square),
        "loops": partial(inspect, in_loops, square),
        "linen, forward": lambda: ml.inspect(Linen(), image),
        "linen, train step": partial(linen_step, Linen(), image),
        "linen attention, train step": partial(linen_step, LinenAttention(), many),
        "nnx, forward": lambda: ml.inspect(nnx.eval_shape(lambda: Nnx(nnx.Rngs(0))), many),
        "Equinox, forward": lambda: ml.inspect(eqx.filter_eval_shape(Equinox, KEY), spec(7, 6)),
        "Equinox, gradient": partial(equinox_gradient, many),
        "Haiku, forward": lambda: ml.inspect(hk.transform(haiku_net), image),
        "Haiku, train step": partial(haiku_step, image),
    }


def optimizers(count) -> dict[str, Make]:
    made = {
        "adam": optax.adam(1e-3),
        "adafactor": optax.adafactor(1e-3),
        "clipped adamw on a schedule": optax.chain(
            optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(1e-3, 100))
        ),
        "sgd with momentum": optax.sgd(0.1, momentum=0.9, nesterov=True),
        "lamb": optax.lamb(1e-3),
        "lion": optax.lion(1e-4),
        "rmsprop": optax.rmsprop(1e-3),
        "adagrad": optax.adagrad(1e-2),
        "radam": optax.radam(1e-3),
        "adabelief": optax.adabelief(1e-3),
        "novograd": optax.novograd(1e-3),
        "yogi": optax.yogi(1e-3),
    }
    params = {"weight": spec(6, 8), "bias": spec(8)}

    def step(optimizer):
        def forward(params, x):
            return jax.nn.relu(x @ params["weight"] + params["bias"])

        fn, args = train_step(forward, params, (spec(4, 6),), spec(4, 8), optimizer=optimizer)
        return inspect(fn, *args)

    return {f"optax, {name}": partial(step, one) for name, one in list(made.items())[:count]}


# Programs whose loss, gradient and optimizer are called by this package


def our_loss(outputs, targets):
    return jnp.mean(jnp.abs(outputs - targets))


def our_steps() -> dict[str, Make]:
    """Return programs that `ml.inspect` makes of modules of other libraries, by name."""
    image, many = spec(2, 8, 8, 1), spec(2, 7, 6)
    made, equinox = nnx.eval_shape(lambda: Nnx(nnx.Rngs(0))), eqx.filter_eval_shape(Equinox, KEY)
    return {
        "nnx, our train step": lambda: ml.inspect(made, many, optimizer="adam"),
        "nnx, our gradient": lambda: ml.inspect(made, many, loss="mean_squared_error"),
        "linen, our train step": lambda: ml.inspect(Linen(), image, optimizer=optax.adamw(1e-3)),
        "linen, our gradient": lambda: ml.inspect(Linen(), image, loss=our_loss),
        "Equinox, mithril_nb train step": lambda: ml.inspect(
            jax.vmap(equinox), many, loss="mean_squared_error", optimizer="sgd"
        ),
        "Haiku, our train step": lambda: ml.inspect(hk.transform(haiku_net), image, optimizer="rmsprop"),
        "a layer alone, our train step": lambda: ml.inspect(nn.Dense(4), spec(2, 3), optimizer="adam"),
    }


def composed() -> Model:
    model = Model()
    for block in (Conv2d(4, 3), BatchNorm2d(), Relu(), Flatten(), Dropout(0.5), Linear(3)):
        model += block
    return model


def our_models() -> dict[str, Make]:
    """Return programs of models of this package by name."""
    rows = {"input": [4, 8, 8, 1]}
    gpt = GPT(vocabulary=19, context=8, layers=2, heads=2, width=12)
    return {
        "ours, forward": lambda: ml.inspect(composed(), shapes=rows),
        "ours, train step": lambda: ml.inspect(composed(), shapes=rows, optimizer="adam"),
        "ours, gradient": lambda: ml.inspect(composed(), shapes=rows, loss=our_loss),
        "ours compiled, forward+backward": lambda: ml.compile(composed(), shapes=rows).inspect("forward+backward"),
        "ours compiled, train step": lambda: ml.inspect(ml.compile(composed(), shapes=rows), optimizer="lion"),
        "ours, GPT": lambda: ml.inspect(gpt, shapes={"input": [2, 5]}, optimizer="adam"),
    }


def sharded() -> dict[str, Make]:
    """Return programs for eight devices by name."""
    from test_shard_map import programs as mapped  # in the folder of this file, which pytest does not search

    own = ml.JaxBackend(device_mesh=(4, 2))
    shapes = {"input": [8, 6]}
    model = ml.compile(Sequential(Linear(8), Relu(), Linear(4)), own, shapes=shapes, parallelism="mixed")
    made = {name: partial(_inspected, make) for name, make in corpus().items() if name.startswith("sharded")}
    made |= {f"shard_map, {name}": partial(inspect, fn, *args) for name, (fn, *args) in mapped().items()}
    return made | {"sharded, mithril_nb": lambda: ml.inspect(model, optimizer="adam")}


def families(count) -> dict[str, Make]:
    """Return programs by name, the requested number of each family."""
    whole = {name: partial(_inspected, make) for name, make in corpus().items() if _is_users(name)}
    small = {f"tests: {name}": partial(inspect, fn, *args) for name, (fn, args) in programs().items()}
    made = {name: pair[0] for name, pair in steps(False).items() if "hand-written" in name}
    found = libraries() | optimizers(count)
    for family in (whole, small, made, our_steps(), our_models()):
        found |= dict(list(family.items())[:: max(1, len(family) // count)])
    return found


def _is_users(name):
    return not name.startswith(("mithril_nb", "sharded"))


def _inspected(make: Callable[[], Any]):
    fn, args = make()
    return inspect(fn, *args)


def coverage(found) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return the equations without a line, and for each stage the counts of instructions with FLOPs and a line."""
    lost = [f"{one.id} {one.primitive}" for one in found.equations if not one.source]
    worked = {row.id for row in found.cost().rows if row.flops}
    before = [one for one in found.stage("stablehlo").instructions if not worked.isdisjoint(one.equations)]
    counted = {row.id for row in found.cost("compiled").rows if row.flops}
    after = [one for one in found.stage("hlo").instructions if one.id in counted]
    stages = (("stablehlo", before), ("hlo", after))
    return lost, {name: (len(made), sum(bool(one.source) for one in made)) for name, made in stages}


def measured(every: dict[str, Make]) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """Return the total and covered instructions of each stage, and the uncovered ones of each program."""
    totals = {"equations": [0, 0], "stablehlo": [0, 0], "hlo": [0, 0]}
    wrong: dict[str, Any] = {}
    for name, make in every.items():
        found = make()
        lost, stages = coverage(found)
        counts = {"equations": (len(found.equations), len(found.equations) - len(lost)), **stages}
        for stage, (count, known) in counts.items():
            totals[stage][0] += count
            totals[stage][1] += known
        if lost or any(known < LEAST * count for count, known in stages.values()):
            wrong[name] = lost[:5], stages
        foreign = [path for path in found.traced_program.labels if library_of(path) is not None]
        if foreign:
            wrong[f"{name}: files"] = foreign
    return totals, wrong


def test_equations_and_instructions_have_a_line_of_the_user(stress):
    every = families(stress.size(short=1, long=1000))
    totals, wrong = measured(every)
    stress.report(programs=len(every), **{stage: f"{known} of {count}" for stage, (count, known) in totals.items()})
    assert wrong == {}


def test_sharded_programs_have_lines_of_the_user(stress):
    start = 'import sys; sys.path[:0] = ["tests", "tests/stages"]; import test_line_coverage as test'
    printed = run_fresh(f"{start}; test.print_sharded()", timeout=300, **EIGHT_DEVICES)
    count, totals, wrong = json.loads(printed)
    stress.report(programs=count, **{stage: f"{known} of {count}" for stage, (count, known) in totals.items()})
    assert count > 10
    assert wrong == {}


def print_sharded():
    every = sharded()
    print(json.dumps((len(every), *measured(every))))


def test_called_modules_have_the_line_of_the_users_call():
    found = our_steps()["nnx, our train step"]()
    (line,) = {one.source for one in found.equations if one.role == "update"}
    assert line in {one.source for one in found.equations if one.role == "forward"}, "that of the loss"
    text = found.stage("python")
    (made,) = (one for one in text.instructions if one.id == line)
    assert 'optimizer="adam"' in text.text.splitlines()[made.line - 1]
    assert found.cost().by_line[line].flops > 0
    libraries = {one.library_source.partition("/")[0] for one in found.equations if one.source == line}
    assert {"optax", "mithril_nb"} <= libraries


def test_equations_outside_blocks_have_the_users_call():
    found = our_models()["ours, train step"]()
    blocks = {one.source for one in found.equations if not one.block.startswith("(")}
    (line,) = {one.source for one in found.equations} - blocks
    assert {one.partition(":")[0] for one in blocks} == {"model"}
    text = found.stage("python")
    at = {one.id: text.text.splitlines()[one.line - 1] for one in text.instructions}
    assert "Linear(3" in at[max(blocks, key=lambda one: int(one.partition(":")[2]))]
    assert "ml.inspect(composed(), shapes=rows, optimizer" in at[line]
    assert "" not in found.cost().by_line


def test_code_without_a_file_has_the_line_from_python():
    code = """
        import mithril_nb as ml
        from mithril_nb.models import Linear

        found = ml.inspect(Linear(3), shapes={"input": [2, 4]}, optimizer="sgd")
        print(sorted({one.source for one in found.equations}))
        print(found.stage("python").text)
    """
    printed = run_fresh(textwrap.dedent(code))
    assert printed.splitlines()[0] == "['<string>:5', 'model:4']"
    assert printed.endswith("# <string>:5\n# the source is not available\n\n")


def test_a_single_layer_has_the_lines_of_its_library():
    for made in (
        ml.inspect(nnx.eval_shape(lambda: nnx.Linear(3, 4, rngs=nnx.Rngs(0))), spec(2, 3)),
        ml.inspect(eqx.filter_eval_shape(eqx.nn.Linear, 3, 4, key=KEY), spec(3)),
        ml.inspect(nn.Dense(4), spec(2, 3)),
    ):
        assert all(one.source.startswith(("flax/", "equinox/")) for one in made.equations)
        assert {one.library_source for one in made.equations} == {""}


def test_a_convolution_has_the_line_in_the_users_call():
    found = inspect(cnn, *programs()["cnn forward"][1])
    (line,) = {one.source for one in found.equations if one.primitive == "max"}
    text = found.stage("python")
    (made,) = (one for one in text.instructions if one.id == line)
    assert "jax.nn.relu(x)" in text.text.splitlines()[made.line - 1]


@pytest.mark.parametrize("module", ["linen, forward", "nnx, forward", "Equinox, forward", "Haiku, forward"])
def test_the_python_stage_of_a_module_shows_its_call(module):
    text = libraries()[module]().stage("python").text
    assert "__call__" in text or "def haiku_net" in text
    assert "scopes.py" not in text
