"""Hand-written JAX programs with the scopes that mithril_nb emits, for the tests of `stages` and `cost`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from mithril_nb.cost import Cost
from mithril_nb.cost.formulas.rules import counted
from mithril_nb.inspection import Inspection
from mithril_nb.stages.xla.dump import Dump

Program = tuple[Callable[..., Any], tuple[Any, ...]]


@contextmanager
def block(path) -> Iterator[None]:
    """Open the scopes of a block as program.py does: one for each component of its path."""
    with ExitStack() as stack:
        for component in path.split("/"):
            stack.enter_context(jax.named_scope(f"block:{quote(component, safe='')}"))
        yield


def spec(*shape: int, dtype="float32") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


def check_links(inspection: Inspection, source, target) -> dict[str, frozenset[str]]:
    """Assert that the links between two stages agree in both directions; return those from the source."""
    there, back = inspection.links(source, target), inspection.links(target, source)
    assert {(a, b) for a in there for b in there[a]} == {(a, b) for b in back for a in back[b]}
    assert there.keys() == {one.id for one in inspection.stage(source).instructions}
    return there


def equations_of(inspection: Inspection, primitive):
    """Return the equations of a primitive."""
    return [one for one in inspection.equations if one.primitive == primitive]


def ops_of(inspection: Inspection, stage, opcode):
    """Return the instructions of a stage with an opcode."""
    return [one for one in inspection.stage(stage).instructions if one.opcode == opcode]


def by_id(inspection: Inspection, stage):
    """Return the instructions of a stage by id."""
    return {one.id: one for one in inspection.stage(stage).instructions}


def dump_of(**files) -> Dump:
    """Return a dump with files of these names, as if XLA had written them."""

    def write(options):
        for name, text in files.items():
            (Path(options["xla_dump_to"]) / f"module_0001.jit_f.{name}").write_text(text)

    dump = Dump()
    dump.compile(write, {})
    return dump


def arrays(tree, seed: int = 0):
    """Return arrays for a pytree of specs: small numbers, the same on every call."""
    random = np.random.default_rng(seed)

    def array(leaf):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.asarray(random.uniform(0.1, 0.9, leaf.shape), leaf.dtype)
        return jnp.asarray(random.integers(0, 7, leaf.shape), leaf.dtype)

    return jax.tree.map(array, tree)


def linear_params(widths: Sequence[int]) -> dict[str, jax.ShapeDtypeStruct]:
    params = {}
    for index, (left, right) in enumerate(pairwise(widths)):
        params[f"linear_{index}.weight"] = spec(left, right)
        params[f"linear_{index}.bias"] = spec(right)
    return params


def mlp(widths: Sequence[int], activation: Callable[[Any], Any] = jax.nn.relu) -> Callable[..., Any]:
    last = len(widths) - 2

    def forward(params, x):
        for index in range(last + 1):
            with block(f"linear_{index}"):
                x = x @ params[f"linear_{index}.weight"] + params[f"linear_{index}.bias"]
            if index < last:
                with block(f"act_{index}"):
                    x = activation(x)
        return x

    return forward


def mean_square(out, target):
    return ((out - target) ** 2).mean()


def cross_entropy(out, labels):
    return optax.softmax_cross_entropy_with_integer_labels(out, labels).mean()


def train_step(
    forward: Callable[..., Any],
    params,
    inputs: Sequence[Any],
    target,
    loss: Callable[..., Any] = mean_square,
    optimizer: optax.GradientTransformation | None = None,
) -> Program:
    """Return a train step with the roles that program.py emits, and arguments for it."""
    optimizer = optimizer or optax.adam(1e-3)

    def total(params, inputs, target):
        out = forward(params, *inputs)
        with jax.named_scope("role:loss"):
            return loss(out, target)

    def step(params, state, inputs, target):
        value, gradients = jax.value_and_grad(total)(params, inputs, target)
        with jax.named_scope("role:update"):
            updates, state = optimizer.update(gradients, state, params)
            params = optax.apply_updates(params, updates)
        return params, state, value

    return step, (params, jax.eval_shape(optimizer.init, params), tuple(inputs), target)


def cnn(params, x):
    for index in range(2):
        with block(f"conv_{index}"):
            padding = "SAME" if index == 0 else "VALID"
            order = ("NHWC", "HWIO", "NHWC")
            x = lax.conv_general_dilated(x, params[f"conv_{index}.weight"], (1, 1), padding, dimension_numbers=order)
            x = x + params[f"conv_{index}.bias"]
        with block(f"relu_{index}"):
            x = jax.nn.relu(x)
        with block(f"pool_{index}"):
            x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    with block("flatten"):
        x = x.reshape(x.shape[0], -1)
    with block("linear"):
        return x @ params["linear.weight"] + params["linear.bias"]


CNN_PARAMS = {
    "conv_0.weight": spec(5, 5, 1, 6), "conv_0.bias": spec(6), "conv_1.weight": spec(5, 5, 6, 16),
    "conv_1.bias": spec(16), "linear.weight": spec(400, 10), "linear.bias": spec(10),
}  # fmt: skip


def attention(params, tokens):
    with block("embed"):
        x = params["embed.weight"][tokens]
    with block("norm"):
        x = (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
        x = x * params["norm.scale"] + params["norm.bias"]
    with block("attention"):
        split = jnp.split(x @ params["attention.weight"], 3, -1)
        query, key, value = (part.reshape(*part.shape[:2], 4, -1).transpose(0, 2, 1, 3) for part in split)
        scores = query @ key.swapaxes(-1, -2) / 8.0
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
        x = x + (jax.nn.softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
    with block("mlp/up"):
        y = x @ params["mlp.up.weight"]
    with block("mlp/gelu"):
        y = jax.nn.gelu(y)
    with block("mlp/down"):
        x = x + y @ params["mlp.down.weight"]
    with block("head"):
        return x @ params["head.weight"]


ATTENTION_PARAMS = {
    "embed.weight": spec(101, 64), "norm.scale": spec(64), "norm.bias": spec(64), "attention.weight": spec(64, 192),
    "mlp.up.weight": spec(64, 256), "mlp.down.weight": spec(256, 64), "head.weight": spec(64, 101),
}  # fmt: skip


def dropout(params, x, words):
    with block("linear_0"):
        x = x @ params["linear_0.weight"]
    with block("dropout"):
        keep = jax.random.bernoulli(jax.random.wrap_key_data(words), 0.9, x.shape)
        x = jnp.where(keep, x / 0.9, 0)
    with block("linear_1"):
        return x @ params["linear_1.weight"]


def everything(params, x):
    """Return a forward pass with nested jits, custom_jvp, remat, scan, while, cond and vmap."""
    with block("relu"):
        x = jax.nn.relu(x)
    with block("gelu"):
        x = jax.nn.gelu(x)
    with block("remat"):
        x = jax.checkpoint(lambda x, w: jnp.sin(x @ w))(x, params["remat.weight"])
    with block("scan"):
        x, _ = lax.scan(lambda x, _: (_cell(params, x), None), x, None, length=3)
    with block("vmap"):
        x = jax.vmap(lambda row: jax.nn.softmax(row * 2))(x)
    with block("cond"):
        x = lax.cond(x.sum() > 0, lambda x: x @ params["cond.weight"], lambda x: x * 2, x)
    return x


def _cell(params, x):
    with block("cell"):
        return jnp.tanh(x @ params["scan.cell.weight"])


EVERYTHING_PARAMS = {"remat.weight": spec(7, 9), "scan.cell.weight": spec(9, 9), "cond.weight": spec(9, 9)}


def programs() -> dict[str, Program]:
    """Return whole programs by name: a forward pass and a train step of each model."""
    widths = (784, 512, 256, 10)
    drop = {"linear_0.weight": spec(64, 128), "linear_1.weight": spec(128, 10)}
    labels = spec(128, dtype="int32")
    tokens = spec(8, 32, dtype="int32")
    words = spec(2, dtype="uint32")
    models: dict[str, tuple[Any, ...]] = {
        "mlp": (mlp(widths), linear_params(widths), (spec(128, 784),), labels, cross_entropy),
        "cnn": (cnn, CNN_PARAMS, (spec(32, 28, 28, 1),), spec(32, dtype="int32"), cross_entropy),
        "attention": (attention, ATTENTION_PARAMS, (tokens,), tokens, cross_entropy),
        "dropout": (dropout, drop, (spec(32, 64), words), spec(32, 10), mean_square),
    }
    found: dict[str, Program] = {}
    for name, (forward, params, inputs, target, loss) in models.items():
        found[f"{name} forward"] = forward, (params, *inputs)
        found[f"{name} train step"] = train_step(forward, params, inputs, target, loss)
    return found


def on_host(x):
    """Return the result of a Python callback on the host: an equation with unknown cost."""
    return jax.pure_callback(lambda given: given, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def flops_by_xla(cost: Cost) -> int:
    """Return the FLOPs of analytic costs under XLA's conventions, with each loop counted once."""
    assert cost.symbolic is not None
    total = 0
    for row, (equation, _) in zip(cost.rows, cost.symbolic.kinds.members, strict=True):
        rule = counted(equation).rule
        assert row.once is not None
        by_rule = rule is None or rule.xla is None or row.repeats == 0
        total += (row.once.flops or 0) if by_rule else int(rule.value(rule.xla))
    return total
