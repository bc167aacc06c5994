"""Transforms one at a time: each equation after a transform has its source before it, and the numbers agree."""

from __future__ import annotations

import functools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import io_callback
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.errors import UnknownOptionError
from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.params import plain_params
from mithril_nb.stages.transforms.stepping import step_through


def loss(w, x):
    return jnp.sum(jnp.sin(w @ x))


def everything(w, x):
    """Nested bodies of all kinds."""

    def body(carry, _):
        return jnp.tanh(w @ carry), None

    y, _ = jax.lax.scan(body, x, None, length=3)
    y = jax.nn.relu(y) + jax.nn.gelu(y)
    y = jax.lax.cond(y.sum() > 0, lambda a: a * 2, jnp.sin, y)
    return jnp.sum(jax.checkpoint(lambda z: jnp.exp(jnp.sin(z)))(y))


def marks(step) -> list[tuple[str, str, str | None]]:
    primitive = {made.id: made.opcode for made in step.after.instructions}
    return [(primitive[one.id], one.mark, one.source) for one in step.equations]


def agree(steps):
    assert [str(one) for one in steps.check() if one.agrees is False] == []


def test_the_first_step_is_the_trace():
    steps = step_through(loss, spec(4, 3), spec(3), through=())
    assert [step.name for step in steps] == ["trace"]
    assert steps[0].before is None
    assert [(one.id, one.mark) for one in steps[0].equations] == [("0", "new"), ("1", "new"), ("2", "new")]
    assert steps[0].explanation == "traces 'loss' once with shapes and records 3 equations."
    assert repr(steps) == "TransformSteps('loss': trace)"


def test_vmap_batches_dependent_equations():
    def scaled(w, x):
        return jnp.exp(w) * x

    in_axes = functools.partial(jax.vmap, in_axes=(None, 0))
    steps = step_through(scaled, spec(3), spec(3), through=(in_axes,))
    step = steps[1]
    assert step.name == "vmap"
    found = {(primitive, source): mark for primitive, mark, source in marks(step)}
    assert found["exp", "0"] == "kept"
    assert found["mul", "1"] == "changed"
    assert {one.note for one in step.equations if one.mark == "changed"} == {"adds a batch axis of 8"}
    assert step.explanation.startswith(
        "adds a batch axis of 8 to 1 of 2 equations; 1 is unchanged, as it does not depend on the batch"
    )
    agree(steps)


def test_grad_links_derivatives_to_forward_equations():
    step = step_through(loss, spec(4, 3), spec(3), through=("grad",))[1]
    assert marks(step) == [
        ("dot_general", "kept", "0"),
        ("sin", "kept", "1"),
        ("cos", "new", "1"),
        ("reduce_sum", "kept", "2"),
        ("broadcast_in_dim", "new", "2"),
        ("mul", "new", "1"),
        ("dot_general", "new", "0"),
    ]
    assert [one.via for one in step.equations] == [
        ("jvp",), ("jvp",), ("jvp",), ("jvp",), ("transpose", "jvp"), ("transpose", "jvp"), ("transpose", "jvp"),
    ]  # fmt: skip
    assert {one.origin for one in step.equations} == {"tagged"}
    assert [one.id for one in step.equations if one.source == "1"] == ["1", "2", "5"]
    assert step.explanation == (
        "keeps 3 of 3 equations as the forward pass and adds 4: 1 for local derivatives, 3 for the backward pass."
    )


@pytest.mark.parametrize(("name", "word"), [("remat", "a checkpoint"), ("jit", "a jit")])
def test_a_wrapper_keeps_all_and_adds_itself(name, word):
    steps = step_through(everything, spec(4, 4), spec(4), through=(name,))
    step = steps[1]
    assert [one.mark for one in step.equations] == ["new", *["kept"] * 25]
    assert [one.source for one in step.equations[1:]] == [one.id for one in step.equations_before]
    assert step.explanation.startswith(f"wraps all 25 equations in {word}: ")
    agree(steps)


def test_scan_repeats_the_function():
    steps = step_through(lambda c, w: jnp.tanh(w @ c), spec(3), spec(3, 3), through=(("scan", 4), "sum", "grad"))
    assert marks(steps[1]) == [("scan", "new", None), ("dot_general", "kept", "0"), ("tanh", "kept", "1")]
    assert "into a loop of 4 iterations" in steps[1].explanation
    agree(steps)


def test_bodies_are_matched_and_removed_equations_are_gone():
    step = step_through(everything, spec(4, 4), spec(4), through=("grad",))[1]
    before = {one.id: one.mark for one in step.equations_before}
    assert before["0"] == "changed"  # the scan also returns residuals for the backward pass
    assert before["0.0"] == before["0.1"] == before["1.0.0"] == before["14.b0.0"] == "kept"
    assert before["15"] == "gone"  # the checkpoint is inlined in the forward pass
    assert {one.origin for one in step.equations} == {"tagged", "inferred"}  # relu's own rule is traced again
    assert [one.source for one in step.equations if one.source is None] == []


def test_recomputed_equations_are_counted_separately():
    step = step_through(loss, spec(4, 3), spec(3), through=("remat", "grad"))[2]
    again = [one for one in step.equations if "remat" in one.via]
    assert [(one.mark, one.source, one.note) for one in again] == [
        ("new", "0.0", "dot_general again"),
        ("new", "0.1", "transpose(jvp(remat)) of sin"),
    ]
    assert step.explanation == (
        "keeps 3 of 4 equations as the forward pass and adds 6: 0 for local derivatives, "
        "2 recomputed by a checkpoint, 4 for the backward pass; 1 is removed."
    )


@pytest.mark.parametrize(
    "through",
    [
        ("vmap", "mean", "grad", "remat", "jit"),
        ("grad", functools.partial(jax.vmap, in_axes=(None, 1), out_axes=-1), "jit"),
        ("jvp", ("vmap", 3)),
        (jax.vjp, "jit"),
        ("linearize",),
        ("jit", functools.partial(jax.value_and_grad, argnums=(0, 1))),
        ("remat", "grad"),
    ],
)
def test_both_sides_of_every_step_agree(through):
    steps = step_through(everything, spec(4, 4), spec(4), through=through)
    assert steps.problem is None
    assert [one.agrees for one in steps.check()] == [True] * (len(through) + 1)


def test_arguments_may_be_integers_keys_and_nested():
    def picked(key, params, index):
        return (params["w"][index] * jax.random.uniform(key, (2,))).sum()

    args = (jax.random.key(3), {"w": jnp.arange(6.0).reshape(3, 2), "b": jnp.ones(2)}, jnp.int32(1))
    agree(step_through(picked, *args, through=("jvp", "vmap")))
    agree(step_through(picked, *args, through=(functools.partial(jax.grad, argnums=1), "vmap")))
    key = jax.eval_shape(lambda: jax.random.key(0))
    agree(step_through(lambda key: jax.random.key_data(key), key, through=(("vmap", 2), "jit")))
    tangent = step_through(picked, *args, through=("jvp",))[1].after.text
    assert "# params['w']" in tangent
    assert "# tangent[1]" in tangent


def test_a_custom_transform_is_linked_but_not_compared():
    def twice(fn):
        return lambda x: fn(fn(x))

    steps = step_through(jnp.sin, spec(3), through=(twice,))
    assert marks(steps[1]) == [("sin", "kept", "0"), ("sin", "new", "0")]
    assert steps[1].equations[1].note == "sin again"
    assert str(steps.check()[1]) == "twice: not compared: its expected result is unknown"


def test_a_wrong_derivative_is_shown():
    @jax.custom_vjp
    def wrong(x):
        return jnp.sin(x)

    wrong.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (2 * g * jnp.cos(x),))
    found = step_through(lambda x: wrong(x).sum(), jnp.ones(3), through=("grad",)).check()[1]
    assert found.agrees is False
    assert found.how == "finite differences along a random direction"
    assert str(found).startswith("grad: DIFFERS from finite differences along a random direction: off by ")
    assert found.largest is not None
    assert found.largest > found.tolerance > 0


def test_a_failure_at_run_time_is_shown():
    seen = []

    def leaks(x):
        seen.append(x)
        return x + seen[0]

    steps = step_through(leaks, jnp.ones(3), through=("jit",))
    first, second = steps.check()
    assert first.agrees is False
    assert str(first).startswith("trace: FAILS at run time: UnexpectedTracerError: Encountered an unexpected tracer.")
    assert second.agrees


def test_nan_and_infinity_on_both_sides_are_equal():
    steps = step_through(lambda x: jnp.log(x), jnp.array([-1.0, 0.0, 1.0]), through=("jit",))
    for one in steps.check():
        assert (one.agrees, one.largest, one.nans) == (True, 0.0, 1)
    assert "1 NaN on both sides" in str(steps.check()[1])


def test_grad_of_an_array_stops_the_chain():
    steps = ml.step_through(loss, spec(4, 3), spec(3))
    assert [step.name for step in steps] == ["trace", "vmap", "grad"]
    assert steps.left_out == ("remat", "jit")
    assert steps[1].problem is None
    assert steps[2].after is None
    assert steps[2].before == steps[1].after
    with pytest.raises(TypeError) as own:  # JAX 0.12 prints more
        jax.make_jaxpr(jax.grad(jax.vmap(loss)))(spec(8, 4, 3), spec(8, 3))
    assert str(steps[2].problem) == (
        "step 2 of 'loss', 'grad', cannot be applied.\n"
        f"    TypeError  {own.value}\n"
        "    takes      w (8, 4, 3) float32, x (8, 3) float32\n"
        "    returns    result (8,) float32"
    )
    assert steps.problem == steps[2].problem
    assert [one.agrees for one in steps.check()] == [True, True]
    assert step_through(loss, spec(4, 3), spec(3), through=("vmap", "mean", "grad", "remat", "jit")).problem is None


def test_options_of_a_transform_are_passed_on():
    def picked(index, x):
        return x[index] ** 2

    agree(step_through(picked, spec(dtype="int32"), spec(3), through=(functools.partial(jax.grad, argnums=1),)))
    agree(step_through(lambda x: (x.sum(), x), spec(3), through=(functools.partial(jax.grad, has_aux=True),)))


def test_vmap_over_a_missing_axis():
    steps = step_through(jnp.sin, spec(), through=(functools.partial(jax.vmap, in_axes=1), "jit"))
    assert str(steps.problem) == (
        "step 1 of 'sin', 'vmap', cannot be applied.\n"
        "    ValueError  vmap was requested to map its argument along axis 1, which implies that its rank should be at "
        "least 2, but is only 1 (its shape is (8,))\n"
        f"    takes       {steps[0].after.text.splitlines()[1].split('# ')[1]} () float32\n"
        "    returns     result () float32"
    )


def test_side_effects_keep_the_earlier_steps():
    def called(x):
        return io_callback(lambda v: v, spec(3), x, ordered=True).sum()

    steps = step_through(called, spec(3), through=("jit", "vmap", "grad"))
    assert [step.name for step in steps] == ["trace", "jit", "vmap"]
    assert steps.problem.facts[0] == ("ValueError", "Cannot `vmap` ordered IO callback.")
    assert [one.agrees for one in steps.check()] == [True, True]


def test_a_function_that_cannot_be_traced_has_one_step():
    def branches(x):
        return x if x > 0 else -x

    steps = step_through(branches, 1.0, through=("jit",))
    assert [step.name for step in steps] == ["trace"]
    assert steps.problem.summary == "'branches' cannot be traced."
    kind, message = steps.problem.facts[0]
    assert kind == "TracerBoolConversionError"
    assert message.startswith("Attempted boolean conversion of traced array with shape bool[].")
    assert steps.check() == ()
    assert steps.left_out == ("jit",)


@pytest.mark.parametrize("through", [3, None, np.ones(3), (("vmap", True),), ("vmpa",), (("scan", -1),), (7,)])
def test_an_invalid_chain_is_rejected(through):
    with pytest.raises(UnknownOptionError, match="step_through has no transform"):
        step_through(jnp.sin, spec(3), through=through)


def test_the_steps_are_data():
    steps = step_through(loss, spec(4, 3), spec(3))
    data = json.loads(json.dumps(steps.to_dict()))
    assert data["through"] == ["vmap", "grad", "remat", "jit"]
    assert data["steps"][1]["equations"][0]["mark"] == "changed"
    assert data["steps"][2]["problem"]["code"] == "StageUnavailableError"


UNARY = (jnp.sin, jnp.tanh, jax.nn.relu, jax.nn.gelu, lambda x: x * 0.5, lambda x: jnp.cumsum(x) / 3, jnp.flip)
BINARY = (jnp.add, jnp.multiply, lambda x, y: jnp.where(x > y, x, y), lambda x, y: x @ y * jnp.ones(3))
INNER = (
    lambda fn: fn,
    jax.jit,
    jax.checkpoint,
    lambda fn: lambda x: jax.lax.fori_loop(0, 2, lambda _, y: fn(y), x),
    lambda fn: lambda x: jax.lax.cond(x[0] > 0, fn, jnp.cos, x),
)
CHAIN = ("vmap", ("vmap", 2), "grad", "value_and_grad", "jvp", "vjp", "linearize", "remat", "jit", ("scan", 2), "mean")


@st.composite
def functions(draw: st.DrawFn):
    """A small function of two vectors."""
    plan = [
        (draw(st.sampled_from(UNARY)), draw(st.sampled_from(INNER)), draw(st.sampled_from(BINARY)))
        for _ in range(draw(st.integers(1, 3)))
    ]
    is_number = draw(st.booleans())

    def made(x, y):
        for unary, wrap, binary in plan:
            x, y = binary(wrap(unary)(x), y), x
        return jnp.sum(x) if is_number else x

    return made


@pytest.mark.slow
@settings(max_examples=8)
@given(functions(), st.lists(st.sampled_from(CHAIN), min_size=1, max_size=3))
def test_random_functions_through_random_chains(made, through):
    steps = step_through(made, spec(3), spec(3), through=tuple(through))
    for step, (transform, before, after) in zip(steps[1:], steps._links, strict=False):
        assert transform.name == step.name
        assert [one.id for one in step.equations] == [site.id for site in after.side.sites]
        assert [one.id for one in step.equations_before] == [site.id for site in before.side.sites]
        claimed = [one.source for one in step.equations if one.mark != "new"]
        assert len(claimed) == len(set(claimed))
        assert {one.id for one in step.equations_before if one.mark != "gone"} == set(claimed)
        for one in step.equations:
            assert one.mark in ("kept", "new", "changed")
            assert bool(one.note) == (one.mark == "changed" or (one.source is not None and one.mark == "new"))
            if one.mark == "kept":
                assert looks(after.side.by_id[one.id]) == looks(before.side.by_id[one.source])
    agree(steps)


def looks(site):
    equation = site.equation
    specs = [[jax_versions.spec_of(atom.aval) for atom in atoms] for atoms in (equation.invars, equation.outvars)]
    bodies = [[looks(child) for child in body] for _, body in site.bodies]
    literals = [np.asarray(atom.val).tolist() for atom in equation.invars if jax_versions.is_literal(atom)]
    params = dict(plain_params(equation))  # the order depends on JAX
    return site.primitive, params, specs, literals, bodies


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize(
    "made",
    [lambda x: x * 1j, lambda x: (x * 2**30).astype("int32") * 3, lambda x: x > 0, lambda x: x.astype("bfloat16")],
)
def test_sums_of_every_kind_of_number_agree_with_numpy(name, made):
    with warnings.catch_warnings(action="error"):
        found = step_through(made, jnp.arange(4.0), through=(name,)).check()
    assert [one.agrees for one in found] == [True, True], [str(one) for one in found]
