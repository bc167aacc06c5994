"""What is said of functions that give no arrays, and what may stand beside arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import StageUnavailableError

X = jax.ShapeDtypeStruct((4, 5), "float32")
NO_ARRAY = "    Try: return the arrays that it computes: one, or a tuple, a list or a dict of them."


class Answer:
    def __init__(self, mean: Any):
        self.mean = mean
        self.unit = "m"


class Silent(eqx.Module):
    def __call__(self, x: Any) -> None:
        jnp.tanh(x)


class Told(eqx.Module):
    def __call__(self, x: Any) -> str:
        return f"{x.shape}"


def forgetful(x: Any) -> None:
    jnp.tanh(x)


def closing_over(module: Any) -> Callable[[Any], None]:
    def function(x: Any) -> None:
        module(x)

    return function


SAID: dict[str, tuple[Callable[[Any], Any], str]] = {
    "text": (lambda x: "done", f"'<lambda>' gives no array.\n    gives  'done' (str)\n{NO_ARRAY}"),
    "a set": (lambda x: {1}, f"'<lambda>' gives no array.\n    gives  {{1}} (set)\n{NO_ARRAY}"),
    "an array of text": (
        lambda x: np.array(["a"]),
        f"'<lambda>' gives no array.\n    gives  array(['a'], dtype='<U1') (ndarray)\n{NO_ARRAY}",
    ),
    "a function": (lambda x: forgetful, f"'<lambda>' gives no array.\n    gives  a function\n{NO_ARRAY}"),
    "an object that JAX cannot look into": (
        lambda x: Answer(x.mean()),
        "'<lambda>' gives no array.\n    gives  an Answer\n"
        '    Try: return {"mean": result.mean}  # or jax.tree_util.register_dataclass(Answer), if it is a dataclass',
    ),
    "a generator": (
        lambda x: (row.sum() for row in x),
        "'<lambda>' gives what is not computed before somebody goes through it.\n    gives  a generator\n"
        "    Try: return list(...)  # which JAX takes",
    ),
    "an iterator beside an array": (
        lambda x: {"sum": x.sum(), "rows": map(jnp.sin, x)},
        "'<lambda>' gives what is not computed before somebody goes through it.\n    gives  a map\n"
        "    Try: return list(...)  # which JAX takes",
    ),
    "nothing": (
        forgetful,
        "'forgetful' gives nothing back, so nothing that it computes is used.\n    gives  None\n"
        "    Try: return what it computes, at its end.",
    ),
    "nothing, with a module": (
        closing_over(eqx.nn.Linear(5, 3, key=jax.random.key(0))),
        "'function' gives nothing back, so nothing that it computes is used.\n    gives  None\n"
        "    Try: return what it computes, at its end.",
    ),
    "nothing, as a module": (
        Silent(),
        "'Silent' gives nothing back, so nothing that it computes is used.\n    gives  None\n"
        "    Try: return what it computes, at its end.",
    ),
    "text, as a module": (Told(), f"'Told' gives no array.\n    gives  '(5,)' (str)\n{NO_ARRAY}"),
}


@pytest.mark.parametrize("what", SAID)
def test_what_gives_no_array_says_so(what: str) -> None:
    function, text = SAID[what]
    found = ml.inspect(function, jax.ShapeDtypeStruct((5,), "float32"))
    with pytest.raises(StageUnavailableError) as caught:
        found.cost()
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (3, 'jax.numpy.asarray(3)  # or jax.ShapeDtypeStruct((), "int32")'),
        (2.5, 'jax.numpy.asarray(2.5)  # or jax.ShapeDtypeStruct((), "float32")'),
        (True, 'jax.numpy.asarray(True)  # or jax.ShapeDtypeStruct((), "bool")'),
        (1j, 'jax.numpy.asarray(1j)  # or jax.ShapeDtypeStruct((), "complex64")'),
        (2**40, 'jax.ShapeDtypeStruct((), "float32")  # int32 has no room for 1099511627776'),
        (float("inf"), 'jax.ShapeDtypeStruct((), "float32")  # instead of inf'),
    ],
)
def test_what_python_computes_is_no_program(number: complex, advice: str) -> None:
    with pytest.raises(StageUnavailableError) as caught:
        ml.inspect(lambda x: x + 1, number).cost()
    assert str(caught.value) == (
        "'<lambda>' was given numbers and no array: Python has computed the result, and nothing is left for JAX.\n"
        f"    given  {number}\n"
        f"    gives  {number + 1} ({type(number + 1).__name__})\n"
        f"    Try: {advice}"
    )
    for written in advice.split("  # or "):
        found = ml.inspect(lambda x: x * 2.0, eval(written, {"jax": jax})).cost()
        assert found.total.bytes_accessed


def test_numbers_beside_arrays_or_for_sizes_are_a_program() -> None:
    assert ml.inspect(lambda n: jnp.tanh(jnp.ones(n)), 3).cost().total.bytes_accessed == 4 + 12 + 2 * 12
    assert ml.inspect(lambda x: x.shape[0], X).cost().total.flops == 0


def test_the_jaxpr_shows_what_was_computed_for_nothing() -> None:
    stage = ml.inspect(forgetful, X).stage("jaxpr")
    assert "tanh a" in stage.text
    assert "'forgetful' gives nothing back, so nothing that it computes is used." in (stage.unavailable or "")


def test_what_does_something_may_give_nothing() -> None:
    def telling(x: Any) -> None:
        jax.debug.print("{}", x.sum())

    assert ml.inspect(telling, X).cost().total.flops == 19


def test_what_changes_its_module_may_give_nothing() -> None:
    def update(model: nnx.Linear, x: Any) -> None:
        model.kernel[...] = model.kernel[...] + x.sum()

    assert (ml.inspect(update, nnx.Linear(5, 3, rngs=nnx.Rngs(0)), X).cost().total.flops or 0) > 0


def test_an_empty_result_that_is_given_back_is_one() -> None:
    assert ml.inspect(lambda params: jax.tree.map(jnp.tanh, params), {}).cost().total.flops == 0


def test_text_beside_arrays_is_left_out() -> None:
    found = ml.inspect(lambda x: (x + 1, "label", None), X)
    assert [one.name for one in found.outputs] == ["result[0]"]
    assert found.cost().total.flops == 20
