"""The pure programs of training: their results, and the scopes used by provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import mithril_nb as ml
from mithril_nb.train import LOSSES, Program, loss_function, programs, train_step


def scopes(jaxpr: Any) -> Iterator[tuple[str, str]]:
    """Yield primitive and name stack of every equation, nested ones included under their caller's stack."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name, str(equation.source_info.name_stack)


def test_specs_match_the_functions_without_running(mlp: Any) -> None:
    found = programs(mlp(4, 8, 3, dropout=0.5), batch_size=16)
    assert [program.name for program in found.values()] == ["forward", "forward+backward", "train step"]
    outputs = {name: jax.eval_shape(program.function, *program.specs) for name, program in found.items()}
    assert outputs["forward"]["output"].shape == (16, 3)
    loss, grads = outputs["forward+backward"]
    assert loss.shape == ()
    params, opt_state, batch = (found["train step"].specs[place] for place in (0, 1, 3))
    shapes = lambda tree: jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), tree)  # noqa: E731
    assert shapes(grads) == shapes(params)
    assert shapes(outputs["train step"][:2]) == shapes((params, opt_state))
    assert batch["targets"].shape == (16,)
    assert batch["targets"].dtype == jnp.int32
    assert found["train step"].donated == (0, 1)
    assert found["forward"].donated == ()


def test_no_param_is_drawn_for_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ml.compile(ml.models.Linear(3), ml.JaxBackend(), shapes={"input": ["n", 4]})
    drawn = {name: (array.shape, array.dtype) for name, array in model.randomize_params(0).items()}
    monkeypatch.setattr(type(model), "randomize_params", None)
    params = programs(model)["train step"].specs[0]
    assert {name: (spec.shape, spec.dtype) for name, spec in params.items()} == drawn


def test_roles_are_in_the_name_stacks(mlp: Any) -> None:
    program: Program = programs(mlp(4, 8, 3))["train step"]
    stacks = list(scopes(jax.make_jaxpr(program.function)(*program.specs)))
    dots = [stack for primitive, stack in stacks if primitive == "dot_general"]
    assert len(dots) == 5  # two forward, three backward: no gradient by the input
    assert sum("transpose" in stack for stack in dots) == 3
    assert all("block:linear_" in stack for stack in dots)
    assert not any("role:" in stack for stack in dots)
    assert any("role:loss" in stack and "transpose" not in stack for _, stack in stacks)
    assert any("role:loss" in stack and "transpose" in stack for _, stack in stacks)
    assert sum("role:update" in stack for _, stack in stacks) > 20
    assert all("block:" in stack or "role:" in stack for _, stack in stacks)


def test_leaves_have_the_names_that_provenance_reads(mlp: Any) -> None:
    program = programs(mlp(4, 3))["train step"]
    leaves, _ = jax.tree_util.tree_flatten_with_path(
        dict(zip(("params", "opt_state", "learning_rate", "batch"), program.specs, strict=True))
    )
    names = {"".join(map(str, path)) for path, _ in leaves}
    assert "['params']['linear_0.weight']" in names
    assert "['opt_state'][0].mu['linear_0.weight']" in names
    assert "['batch']['inputs']['input']" in names


@pytest.mark.parametrize("name", LOSSES)
def test_zero_weights_exclude_rows(name: str) -> None:
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.normal(size=(6, 3)), jnp.float32)
    targets = jnp.asarray(
        rng.integers(0, 3, 6) if name == "cross_entropy" else rng.integers(0, 2, (6, 3)).astype(np.float32)
    )
    compute = loss_function(lambda params, inputs, key, training: {"output": inputs["input"]}, name, accuracy=True)
    whole, metrics = compute({}, {"inputs": {"input": logits[:4]}, "targets": targets[:4]})
    weights = jnp.asarray([1.0, 1, 1, 1, 0, 0])
    masked, masked_metrics = compute({}, {"inputs": {"input": logits}, "targets": targets, "weights": weights})
    np.testing.assert_allclose(masked, whole, rtol=1e-6)
    assert metrics.keys() == masked_metrics.keys()
    for metric in metrics:
        np.testing.assert_allclose(metrics[metric], masked_metrics[metric], rtol=1e-6)


def test_tokens_count_the_same() -> None:
    rng = np.random.default_rng(0)
    logits, labels = jnp.asarray(rng.normal(size=(4, 5, 3)), jnp.float32), jnp.asarray(rng.integers(0, 3, (4, 5)))
    compute = loss_function(lambda params, inputs, key, training: {"output": inputs["input"]}, accuracy=True)
    _, metrics = compute({}, {"inputs": {"input": logits}, "targets": labels})
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()
    np.testing.assert_allclose(metrics["loss"], expected)
    np.testing.assert_allclose(metrics["accuracy"], (logits.argmax(axis=-1) == labels).mean(), rtol=1e-6)


def test_accuracy_is_that_of_argmax_with_ties() -> None:
    rng = np.random.default_rng(0)
    logits = jnp.asarray(rng.integers(0, 3, (500, 4)), jnp.bfloat16)
    labels = jnp.asarray(rng.integers(0, 4, 500))
    right = LOSSES["cross_entropy"].is_correct
    assert right is not None
    np.testing.assert_array_equal(right(logits, labels), logits.argmax(axis=-1) == labels)


def test_bfloat16_params_keep_their_dtype() -> None:
    params = {"weight": jnp.ones((4, 3), jnp.bfloat16)}
    step = jax.jit(
        train_step(
            lambda params, inputs, key, training: {"output": inputs["input"] @ params["weight"]}, "cross_entropy"
        )
    )
    state = optax.adam(1e-3).init(params)
    batch = {"inputs": {"input": jnp.ones((2, 4), jnp.bfloat16)}, "targets": jnp.zeros(2, jnp.int32)}
    after, state_after, _ = step(params, state, jnp.asarray(1e-3), batch)
    assert jax.tree.map(lambda leaf: leaf.dtype, (after, state_after)) == jax.tree.map(
        lambda leaf: leaf.dtype, (params, state)
    )
