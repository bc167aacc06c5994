"""The advice of errors is a call that runs, for every public function that accepts targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import flax
import haiku as hk
import jax
import jax.numpy as jnp
import pytest
from flax import nnx

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import GPT, Add, Linear
from mithril_nb.targets.entry_point import OPTIONS

X = jax.ShapeDtypeStruct((4, 5), "float32")
P = {"w": jax.ShapeDtypeStruct((5, 3), "float32")}
SHAPES = {"input": [4, 64]}


class Net(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.dense = nnx.Linear(5, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.dense(x)

    def twice(self, x: Any) -> Any:
        return 2 * self(x)


class Rows(eqx.Module):
    linear: eqx.nn.Linear

    def __init__(self, key: Any):
        self.linear = eqx.nn.Linear(5, 3, key=key)

    def __call__(self, x: Any) -> Any:
        return jax.vmap(self.linear)(x)


def predict(P: Any, X: Any) -> Any:
    return X @ P["w"]


def loss(P: Any, X: Any, *, scale: float) -> Any:
    return scale * predict(P, X).mean()


def scaled(scale: float, x: Any) -> Any:
    return scale * x


def counts(tokens: Any) -> Any:
    return tokens + 1


NET = Net(nnx.Rngs(0))
MODEL = Linear(3)
INSPECTION = ml.inspect(MODEL, shapes={"input": [4, 5]})
NO_OPTION = f"""takes no option 'optimiser', and the model has no input of this name.
    inputs   'input'
    options  {", ".join(OPTIONS)}
    Try: """
NEEDS = "a model, a function, a module of Flax, Equinox or Haiku, a traced, lowered or compiled program, or a file"
NO_OPTIMIZER = """takes no optimizer=.
    given              optimiser='adam'
    optimizer= is for  models, and modules of Flax, Equinox and Haiku
    Try: """
COST = INSPECTION.cost()
OF_COST = f"""cannot inspect {COST!r}.
    is     a Cost, which describes a program but does not contain it
    needs  {NEEDS}
    Try: """

CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "a class, with shapes": (
        lambda: ml.inspect(GPT, shapes={"input": [4, 64]}, optimizer="adam"),
        f"""cannot inspect the class 'GPT'.
    needs  {NEEDS}
    Try: ml.inspect(GPT(), shapes={{'input': [4, 64]}}, optimizer='adam')""",
    ),
    "a class, with nothing": (
        lambda: ml.inspect(Linear),
        f"""cannot inspect the class 'Linear'.
    needs  {NEEDS}
    Try: ml.inspect(Linear(dimension=64), shapes={{"input": [32, 784]}})""",
    ),
    "the cost of a class": (
        lambda: ml.sweep(Linear, shapes={"input": [4, 64]}, batch=[2, 4]),
        f"""cannot inspect the class 'Linear'.
    needs  {NEEDS}
    Try: ml.sweep(Linear(dimension=64), shapes={{'input': [4, 64]}}, batch=[2, 4])""",
    ),
    "a class of nnx": (
        lambda: ml.inspect(Net, X),
        f"""cannot inspect the class 'Net'.
    needs  {NEEDS}
    Try: ml.inspect(Net(rngs=flax.nnx.Rngs(0)), x)""",
    ),
    "a class of Equinox": (
        lambda: ml.inspect(Rows, X, optimizer="adam"),
        f"""cannot inspect the class 'Rows'.
    needs  {NEEDS}
    Try: ml.inspect(Rows(key=jax.random.key(0)), x, optimizer='adam')""",
    ),
    "a module, with shapes": (
        lambda: ml.inspect(NET, shapes={"x": [4, 5]}),
        """'Net' takes no shapes=.
    shapes= is for  models of mithril_nb
    Try: ml.inspect(module, jax.ShapeDtypeStruct((4, 5), "float32"))""",
    ),
    "a transform of Haiku, with shapes": (
        lambda: ml.inspect(hk.transform(lambda x: 2 * x), shapes={"x": [4, 5]}),
        """'Transformed' takes no shapes=.
    shapes= is for  models of mithril_nb
    Try: ml.inspect(transform, jax.ShapeDtypeStruct((4, 5), "float32"))""",
    ),
    "a method of a module, with too few arguments": (
        lambda: ml.inspect(NET.twice),
        """cannot inspect 'twice' with these arguments: missing a required argument: 'x'.
    takes  (x: 'Any') -> 'Any'
    given  nothing
    Try: ml.inspect(module.twice, x)  # with x, an array or a jax.ShapeDtypeStruct""",
    ),
    "a module, with params": (
        lambda: ml.profile(NET, X, params="x"),
        """'Net' takes no params=.
    params= is for  functions; inspect finds the parameters of 'Net' itself
    Try: ml.profile(module, x)""",
    ),
    "a number by its name": (
        lambda: ml.inspect(scaled, scale=2.0),
        """cannot inspect 'scaled' with these arguments: missing a required argument: 'x'.
    takes  (scale: 'float', x: 'Any') -> 'Any'
    given  scale=2.0
    Try: ml.inspect(scaled, scale=2.0, x=x)""",
    ),
    "a function without a name": (
        lambda: ml.inspect(lambda x: x + 1),
        """cannot inspect '<lambda>' with these arguments: missing a required argument: 'x'.
    takes  (x)
    given  nothing
    Try: ml.inspect(f, x)  # with f, your function, and x, an array or a jax.ShapeDtypeStruct""",
    ),
    "an optimizer of a function, misspelt": (
        lambda: ml.inspect(predict, P, X, optimiser="adam"),
        f"""'predict' {NO_OPTIMIZER}"""
        "ml.inspect(jax.grad(lambda *x: predict(*x).mean()), P, X)  # or a function that is the whole step",
    ),
    "an optimizer of a loss, misspelt": (
        lambda: ml.assert_cost(loss, P, X, scale=2.0, optimiser="adam", flops=10_000),
        f"""'loss' {NO_OPTIMIZER}"""
        "ml.assert_cost(jax.grad(loss), P, X, scale=2.0, flops=10000)  # or a function that is the whole step",
    ),
    "the cost with a misspelt option": (
        lambda: ml.what_if(MODEL, shapes=SHAPES, optimiser="adam"),
        f"ml.what_if {NO_OPTION}ml.what_if(model, shapes={{'input': [4, 64]}}, optimizer='adam')",
    ),
    "a misspelt option, swept": (
        lambda: ml.sweep(MODEL, X, optimiser="adam", batch=[2, 4]),
        f"ml.sweep {NO_OPTION}ml.sweep(model, input, optimizer='adam', batch=[2, 4])",
    ),
    "a misspelt option, with bounds": (
        lambda: ml.assert_cost(MODEL, X, optimiser="adam", flops=10_000),
        f"ml.assert_cost {NO_OPTION}ml.assert_cost(model, input, optimizer='adam', flops=10000)",
    ),
    "a misspelt option, measured": (
        lambda: ml.profile(MODEL, X, optimiser="adam"),
        f"ml.profile {NO_OPTION}ml.profile(model, input, optimizer='adam')",
    ),
    "a misspelt option, explored": (
        lambda: ml.explore(MODEL, X, optimiser="adam"),
        f"ml.explore {NO_OPTION}ml.explore(model, input, optimizer='adam')",
    ),
    "a tuple of sizes in the place of an input": (
        lambda: ml.inspect(MODEL, (4, 64)),
        """input 'input' must be an array, or a jax.ShapeDtypeStruct, not (4, 64).
    Try: ml.inspect(model, shapes={"input": [4, 64]})""",
    ),
    "costs, with bounds": (
        lambda: ml.assert_cost(COST, flops=200),
        f"{OF_COST}ml.assert_cost(inspection, flops=200)",
    ),
    "costs, measured": (lambda: ml.profile(COST), f"{OF_COST}ml.profile(inspection)"),
    "costs as a target of what_if": (lambda: ml.what_if(COST), f"{OF_COST}ml.what_if(inspection)"),
    "costs, swept": (lambda: ml.sweep(COST, batch=[2, 4]), f"{OF_COST}ml.sweep(inspection, batch=[2, 4])"),
    "an inspection": (
        lambda: ml.inspect(INSPECTION, X),
        """program 'forward' is already inspected: it takes no arguments and no options.
    Try: print(inspection)""",
    ),
}
NAMES = {
    "ml": ml, "jax": jax, "flax": flax, "GPT": GPT, "Linear": Linear, "Net": Net, "Rows": Rows, "predict": predict,
    "loss": loss, "scaled": scaled, "f": lambda x: x + 1, "module": NET, "model": MODEL, "inspection": INSPECTION,
    "transform": hk.transform(lambda x: 2 * x), "x": X, "input": X, "P": P, "X": X,
}  # fmt: skip


@pytest.mark.parametrize("what", CASES)
def test_advice_is_exact_and_runs(what: str) -> None:
    run, text = CASES[what]
    with pytest.raises(MithrilError) as caught:
        run()
    assert str(caught.value) == text
    advice = str(caught.value).rpartition("Try: ")[2].removesuffix("  # or a function that is the whole step")
    found = eval(advice, NAMES)
    if isinstance(found, ml.inspect(MODEL, X).__class__):
        assert found.stage("jaxpr").unavailable is None


def test_advice_for_a_cost_names_the_model() -> None:
    with pytest.raises(MithrilError) as caught:
        ml.inspect(COST)
    assert str(caught.value) == f"{OF_COST}ml.inspect(model, x)  # with the model itself"


def test_advice_for_a_function_without_gradient() -> None:
    with pytest.raises(MithrilError) as caught:
        ml.inspect(counts, jax.ShapeDtypeStruct((4,), "int32"), loss="mean_squared_error")
    assert str(caught.value) == (
        "'counts' takes no loss=.\n"
        "    loss= is for  models, and modules of Flax, Equinox and Haiku\n"
        "    Try: ml.inspect(step, x)  # with step, a function that is the whole step, and x, its argument"
    )


def test_entry_point_is_reset_after_an_error() -> None:
    with pytest.raises(MithrilError):
        ml.profile(MODEL, X, optimiser="adam")
    with pytest.raises(MithrilError) as caught:
        ml.inspect(Add(), X, X, X)
    assert str(caught.value).endswith("Try: ml.inspect(model, left, right)")


def test_nested_call_has_its_own_entry_point() -> None:
    def make(batch: int = 4) -> Any:
        return ml.inspect(MODEL, shapes={"input": [batch, 5]}, optimiser="adam")

    with pytest.raises(MithrilError) as caught:
        ml.what_if(make)
    assert str(caught.value).startswith("ml.inspect takes no option 'optimiser'")


def test_messages_describe_arguments_by_dtype_and_shape() -> None:
    with pytest.raises(MithrilError) as caught:
        ml.inspect(jnp.tanh, {"w": jnp.ones((3, 3))}, {1: X, "a": 2})
    assert "    given  {'w': float32[3, 3]}, {1: ShapeDtypeStruct(shape=(4, 5), dt...\n" in str(caught.value)
