"""Custom ops: register_op, register_primitive, Operator.compute, with shapes and gradients."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import mithril_nb as ml
from mithril_nb.backends.jax.custom import inferring_for
from mithril_nb.cli.ipython import StringCallRewriter, load, unload
from mithril_nb.errors import MithrilError
from mithril_nb.models import KINDS, Linear, Model, Operator, Relu
from mithril_nb.models import op as brought
from mithril_nb.models.naming import input_specs
from mithril_nb.models.shape_inference.infer import infer

X = np.linspace(-2, 2, 12, dtype="float32").reshape(4, 3)


def shapes(block: Model, **given: list) -> str:
    graph = block.graph
    return str(infer(graph, input_specs(graph, given)).outputs["output"])


def test_an_op_of_a_backend_runs_in_a_model_with_gradients_and_shapes():
    backend = ml.JaxBackend()

    @backend.register_op("cube")
    def cube(x):
        return x**3

    assert cube(2) == 8
    np.testing.assert_allclose(backend.cube(X), X**3, rtol=1e-6)
    model = Model() | Linear(5)(input="input", output="hidden")
    model += ml.op("cube")(input="hidden", output="cubed")
    model += Linear(2)
    pm = ml.compile(model, backend, shapes={"input": ["batch", 3]})
    assert str(pm.output_specs["output"]) == "('batch', 2) float32"
    params = pm.randomize_params(0)
    outputs, gradients = pm.evaluate(params, {"input": X}, {"output": np.ones((4, 2), "float32")})
    hidden = X @ params["linear_0.weight"] + params["linear_0.bias"]
    np.testing.assert_allclose(
        outputs["output"], hidden**3 @ params["linear_1.weight"] + params["linear_1.bias"], rtol=1e-4, atol=1e-5
    )
    by_hidden = np.ones((4, 2)) @ params["linear_1.weight"].T * 3 * hidden**2
    np.testing.assert_allclose(gradients["linear_0.weight"], X.T @ by_hidden, rtol=1e-4, atol=1e-4)


def test_op_belongs_to_its_backend_and_may_replace_ours():
    mine, other = ml.JaxBackend(), ml.JaxBackend()

    @mine.register_op("relu")
    def relu(x):
        return jnp.where(x > 0, x, 0.5 * x)

    found = [ml.compile(Relu(), one).evaluate({}, {"input": X})["output"] for one in (mine, other)]
    np.testing.assert_allclose(found[0], np.where(X > 0, X, 0.5 * X))
    np.testing.assert_allclose(found[1], np.maximum(X, 0))

    mine.register_op("only_mine")(lambda x: x)
    with pytest.raises(MithrilError, match="backend 'jax' has no kernel for op 'only_mine'"):
        ml.compile(ml.op("only_mine"), other)


def test_op_always_uses_the_backend_function():
    mine, other = ml.JaxBackend(), ml.JaxBackend()

    @mine.register_op("gelu")
    def gelu(x):
        return 5 * x

    assert mine.gelu(2.0) == 10
    assert abs(other.gelu(2.0) - 1.9546) < 1e-3


def test_two_backends_may_have_two_functions_of_one_name():
    first, second = ml.JaxBackend(), ml.JaxBackend()
    first.register_op("foo")(lambda x: x)
    second.register_op("foo")(lambda x: jnp.concatenate([x, x], -1))
    with inferring_for(first):
        assert shapes(ml.op("foo"), input=[4, 3]) == "(4, 3) float32"
    with inferring_for(second):
        assert shapes(ml.op("foo"), input=[4, 3]) == "(4, 6) float32"
    assert shapes(ml.op("foo"), input=[4, 3]) == "('...',) float32", "the function could belong to either backend"
    for backend, width in ((first, 3), (second, 6)):
        assert ml.compile(ml.op("foo"), backend).evaluate({}, {"input": X})["output"].shape == (4, width)
    del second, backend
    gc.collect()
    assert shapes(ml.op("foo"), input=[4, 3]) == "(4, 3) float32"


def test_several_inputs_are_named_by_the_arguments():
    backend = ml.JaxBackend()

    @backend.register_op("scaled_sum")
    def scaled_sum(left, right, scale=10.0):
        return scale * (left + right)

    block = ml.op("scaled_sum")
    assert [port.name for port in block.inputs] == ["left", "right"]
    found = ml.compile(block, backend).evaluate({}, {"left": X, "right": X})["output"]
    np.testing.assert_allclose(found, 20 * X, rtol=1e-6)


def test_symbolic_shapes_are_inferred_if_possible():
    backend = ml.JaxBackend()
    backend.register_op("doubled_rows")(lambda x: jnp.concatenate([x, x]))
    backend.register_op("gram")(lambda x: x @ x.T)
    backend.register_op("as_one_row")(lambda x: x.reshape(-1))
    backend.register_op("halves")(lambda x: x[: x.shape[0] // 2])
    backend.register_op("whole")(lambda x: x.astype("int32"))
    assert shapes(ml.op("doubled_rows"), input=["n", 3]) == "('2*n', 3) float32"
    assert shapes(ml.op("gram"), input=["n", 3]) == "('n', 'n') float32"
    assert shapes(ml.op("as_one_row"), input=["n", 3]) == "('3*n',) float32"
    assert shapes(ml.op("halves"), input=["n", 3]) == "('...',) float32", "not a sum of products, so unknown"
    assert shapes(ml.op("halves"), input=[6, 3]) == "(3, 3) float32"
    assert shapes(ml.op("gram")) == "('...',) float32"
    assert shapes(ml.op("whole"), input=["n"]) == "('n',) int32"


def test_primitive_has_its_registered_gradient():
    @ml.register_primitive("sin_times_x")
    def sin_times_x(backend, x):
        return backend.sin(x) * x

    plain = ml.compile(ml.op("sin_times_x"), ml.JaxBackend())

    @ml.register_primitive("sin_times_x_grad")
    def sin_times_x_grad(backend, x, grad):
        return 7 * grad * x

    backend = ml.JaxBackend()
    own = ml.compile(ml.op("sin_times_x"), backend)
    np.testing.assert_allclose(backend.sin_times_x(backend.array(X)), np.sin(X) * X, rtol=1e-5)

    by_hand = jax.grad(lambda x: backend.sin_times_x(x).sum())(jnp.asarray(X))
    np.testing.assert_allclose(by_hand, 7 * X, rtol=1e-6)
    assert backend.sin_times_x is backend.sin_times_x, "built and compiled once"

    def by_input(pm):
        return jax.grad(lambda x: pm.forward({}, {"input": x})["output"].sum())(jnp.asarray(X))

    np.testing.assert_allclose(by_input(own), 7 * X, rtol=1e-6)
    del brought.GRADIENTS["sin_times_x"]
    np.testing.assert_allclose(by_input(plain), np.sin(X) + X * np.cos(X), rtol=1e-4, atol=1e-6)


def test_a_gradient_for_each_of_several_inputs():
    @ml.register_primitive("taken")
    def taken(backend, rows, places):
        return rows[places]

    @ml.register_primitive("taken_grad")
    def taken_grad(backend, rows, places, grad):
        return 3 * jnp.zeros_like(rows).at[places].add(grad), jnp.zeros(places.shape)

    pm = ml.compile(Model() | Linear(2)(input="x", output="rows") | ml.op("taken")(rows="rows", places="places"))
    params = {"linear_0.weight": np.eye(3, 2, dtype="float32"), "linear_0.bias": np.zeros(2, "float32")}
    _, gradients = pm.evaluate(params, {"x": X, "places": np.array([1, 1])}, {"output": np.ones((2, 2), "float32")})
    np.testing.assert_allclose(gradients["linear_0.bias"], [6, 6])


def test_block_with_a_compute_method():
    backend = ml.JaxBackend()

    class SinTimeX(Operator):
        def compute(self, inputs):
            x = inputs["input"]
            return {"output": backend.sin(x) * x}

    class Shifted(Operator):
        """Adds a number, and returns the number of elements."""

        output_ports = ("output", "count")

        def __init__(self, by, name=None):
            super().__init__(name, by=by)

        def compute(self, inputs):
            return {"output": inputs["input"] + self.options["by"], "count": jnp.array(inputs["input"].size)}

    model = Model() | SinTimeX()
    model += Shifted(by=2.0)(output="shifted", count="count")
    pm = ml.compile(model, backend, shapes={"input": ["n", 3]})
    assert str(pm.output_specs["shifted"]) == "('n', 3) float32"
    found = pm.evaluate({}, {"input": X})
    np.testing.assert_allclose(found["shifted"], np.sin(X) * X + 2, rtol=1e-5)
    assert found["count"] == 12
    assert repr(Shifted(by=2.0)) == "Shifted(by=2.0)"
    assert "infer" not in vars(Operator) or Operator.infer.__func__ is not SinTimeX.infer.__func__


CELL = """
class Times(Operator):
    def compute(self, inputs):
        return {"output": factor * inputs["input"]}
"""


def test_a_cell_may_run_twice():
    for factor in (2.0, 3.0):
        namespace = {"Operator": Operator, "__name__": "__main__", "factor": factor}
        exec(CELL, namespace)
        found = ml.compile(namespace["Times"]()).evaluate({}, {"input": X})["output"]
        np.testing.assert_allclose(found, factor * X)
        backend = ml.JaxBackend()
        backend.register_op("times")(lambda x, factor=factor: factor * x)
        np.testing.assert_allclose(ml.compile(ml.op("times"), backend).evaluate({}, {"input": X})["output"], factor * X)
    assert KINDS["Times"] is namespace["Times"]


def test_op_returns_built_in_blocks_with_attributes():
    assert ml.op("linear", dimension=3) == Linear(3)
    assert ml.op("Linear", dimension=3) == Linear(3)


def test_the_extension_is_loaded_once_and_unloaded():
    shell = InteractiveShell()
    load(shell)
    ml.load_ipython_extension(shell)
    assert [type(one) for one in shell.ast_transformers] == [StringCallRewriter]
    assert "mithril_watch" in shell.magics_manager.magics["cell"]
    unload(shell)
    assert shell.ast_transformers == []
    assert "mithril_watch" not in shell.magics_manager.magics["cell"]
