"""`evaluate`: outputs and gradients by name, for all forms of names and arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from fresh import run_fresh
from transcript import facts_of

import mithril_nb as ml
from mithril_nb.backends.backend import MithrilWarning
from mithril_nb.models import MLP, Add, Dropout, Dtype, Embedding, Flatten, Linear, Model, Relu

BACKEND = ml.JaxBackend()


@pytest.fixture(scope="module")
def pm() -> ml.PhysicalModel:
    return ml.compile(MLP(3, [4], 2), BACKEND, shapes={"input": ["batch", 3]})


@pytest.fixture(scope="module")
def params(pm):
    return pm.randomize_params(0)


X = np.linspace(-1, 1, 15, dtype="float32").reshape(5, 3)
ONES = {"output": np.ones((5, 2), "float32")}


def test_outputs_come_by_name(pm, params):
    outputs = pm.evaluate(params, {"input": X})
    assert list(outputs) == ["output"]
    assert outputs["output"].shape == (5, 2)


def test_gradients_come_with_the_outputs(pm, params):
    outputs, gradients = pm.evaluate(params, {"input": X}, ONES)
    np.testing.assert_array_equal(outputs["output"], pm.evaluate(params, {"input": X})["output"])
    expected = jax.grad(lambda params: pm.forward(params, {"input": X})["output"].sum())(params)
    assert gradients.keys() == params.keys()
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-6)


def test_output_gradients_by_place_and_by_name(pm, params):
    _, by_place = pm.evaluate(params, {"input": X}, ONES)
    _, by_name = pm.evaluate(params, {"input": X}, output_gradients=ONES)
    assert jax.tree.all(jax.tree.map(np.array_equal, by_place, by_name))
    assert pm.evaluate(params, {"input": X}, None).keys() == {"output"}


def test_output_gradients_are_linear(pm, params):
    _, once = pm.evaluate(params, {"input": X}, ONES)
    _, twice = pm.evaluate(params, {"input": X}, {"output": 2 * ONES["output"]})
    for name in once:
        np.testing.assert_allclose(twice[name], 2 * once[name], rtol=1e-6)
    _, none = pm.evaluate(params, {"input": X}, {})
    assert not any(np.any(gradient) for gradient in none.values()), "an output that is left out counts as zero"


def test_nested_params_give_nested_gradients(pm, params):
    nested = {"linear_0": {"weight": params["linear_0.weight"], "bias": params["linear_0.bias"]}}
    nested |= {name: params[name] for name in ("linear_1.weight", "linear_1.bias")}
    outputs, gradients = pm.evaluate(nested, {"input": X}, ONES)
    _, flat = pm.evaluate(params, {"input": X}, ONES)
    np.testing.assert_array_equal(outputs["output"], pm.evaluate(params, {"input": X})["output"])
    assert jax.tree.structure(gradients) == jax.tree.structure(nested)
    np.testing.assert_allclose(gradients["linear_0"]["weight"], flat["linear_0.weight"], rtol=1e-6)


def test_jit_and_no_jit_agree(pm, params):
    plain = ml.compile(MLP(3, [4], 2), BACKEND, jit=False)
    assert (pm.jit, plain.jit) == (True, False)
    jitted, by_hand = (one.evaluate(params, {"input": X}, ONES) for one in (pm, plain))
    for got, expected in zip(jax.tree.leaves(jitted), jax.tree.leaves(by_hand), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_jit_defaults_to_the_backend_setting():
    lazy = ml.JaxBackend(jit=False)
    assert not ml.compile(Relu(), lazy).jit
    assert ml.compile(Relu(), lazy, jit=True).jit
    assert not ml.compile(Relu(), ml.JaxBackend(), jit=False).jit
    assert not ml.JaxBackend(jit_compile=False).jit


def test_batch_may_differ_from_the_declared_one(params):
    fixed = ml.compile(MLP(3, [4], 2), BACKEND, shapes={"input": [5, 3]})
    with pytest.warns(MithrilWarning) as warned:
        assert fixed.evaluate(params, {"input": X[:2]})["output"].shape == (2, 2)
    assert [str(one.message) for one in warned] == [
        "input 'input' of shape (2, 3) causes a recompilation: the model was compiled for (5, 3). "
        "shapes={'input': ['batch', 3]} accepts any batch; static_shapes=True rejects other shapes."
    ]
    assert warned[0].filename == __file__
    # Once is enough.
    assert fixed.evaluate(params, {"input": X[None]})["output"].shape == (1, 5, 2)


def test_shapes_may_be_inferred_from_the_first_arrays():
    model = Flatten() + Linear(2)
    pm = ml.compile(model, BACKEND)
    assert not pm.inference.is_concrete
    pm = ml.compile(model, BACKEND, shapes={"input": ["n", 2, 3]})
    assert pm.randomize_params()["linear_0.weight"].shape == (6, 2)
    assert str(pm.output_specs["output"]) == "('n', 2) float32"
    assert ml.compile(MLP(input_size=4), BACKEND).randomize_params()["linear_0.weight"].shape == (4, 64)


def test_the_only_input_and_output_also_answer_to_input_and_output():
    pm = ml.compile(Model() | Linear(2)(input="image", output="logits"), BACKEND, shapes={"input": [5, 3]})
    params = pm.randomize_params(0)
    outputs, gradients = pm.evaluate(params, {"input": X}, ONES)
    assert list(outputs) == ["logits"]
    again, same = pm.evaluate(params, {"image": X}, {"logits": ONES["output"]})
    np.testing.assert_array_equal(outputs["logits"], again["logits"])
    np.testing.assert_array_equal(gradients["linear_0.weight"], same["linear_0.weight"])
    assert pm.input_names == ("image",)
    assert pm.output_names == ("logits",)


def test_several_outputs_and_a_gradient_for_one():
    model = Model()
    model |= Linear(2, use_bias=False, name="shared")(input="x", output="h")
    model |= Linear(2, use_bias=False, name="left")(input="h", output="a")
    model |= Linear(2, use_bias=False, name="right")(input="h", output="b")
    pm = ml.compile(model, BACKEND, shapes={"x": [5, 3]})
    outputs, gradients = pm.evaluate(pm.randomize_params(0), {"x": X}, {"a": ONES["output"]})
    assert list(outputs) == ["a", "b"]
    assert not np.any(gradients["right.weight"])
    assert np.any(gradients["left.weight"])
    assert np.any(gradients["shared.weight"])


def test_one_block_alone_has_bare_names():
    pm = ml.compile(Linear(2), BACKEND, shapes={"input": [5, 3]})
    assert list(pm.randomize_params()) == ["weight", "bias"]
    assert pm.get_layer_names() == ()
    assert ml.compile(MLP(3, [4], 2), BACKEND).get_layer_names() == ("linear_0", "linear_1")


def test_nested_names_are_dotted_and_allow_any_character():
    inner = Model() | Linear(3, use_bias=False, name="a.b/c")
    outer = Model() | Model.of(inner.graph, "50%")
    outer += Linear(2, name="<b>")
    pm = ml.compile(outer, BACKEND, shapes={"input": [5, 3]})
    params = pm.randomize_params(0)
    assert list(params) == ["50%25.a%2Eb%2Fc.weight", "<b>.weight", "<b>.bias"]
    _, gradients = pm.evaluate(params, {"input": X}, ONES)
    assert gradients.keys() == params.keys()
    assert pm.get_layer_names() == ("50%25.a%2Eb%2Fc", "<b>")


def test_shared_weight_receives_summed_gradients():
    model = Model()
    model |= Linear(3, use_bias=False)(input="x", weight="w", output="left")
    model |= Linear(3, use_bias=False)(input="x", weight="w", output="right")
    model |= Add()(left="left", right="right")
    pm = ml.compile(model, BACKEND, shapes={"x": [5, 3]})
    params = pm.randomize_params(0)
    assert list(params) == ["w"]
    out, gradients = pm.evaluate(params, {"x": X}, {"output": np.ones((5, 3), "float32")})
    np.testing.assert_allclose(out["output"], 2 * X @ np.asarray(params["w"]), rtol=1e-5)
    np.testing.assert_allclose(gradients["w"], 2 * X.T @ np.ones((5, 3)), rtol=1e-5, atol=1e-5)


def test_a_composite_twice_has_parameters_twice():
    block = MLP(3, [3], 3)
    model = Model()
    model += block
    model += block
    pm = ml.compile(model, BACKEND, shapes={"input": [5, 3]})
    params = pm.randomize_params(0)
    assert [name for name in params if name.endswith("weight")] == [
        "mlp_0.linear_0.weight", "mlp_0.linear_1.weight", "mlp_1.linear_0.weight", "mlp_1.linear_1.weight",
    ]  # fmt: skip
    assert not np.array_equal(params["mlp_0.linear_0.weight"], params["mlp_1.linear_0.weight"])


def test_physical_model_ignores_later_changes():
    model = Model() + Linear(2)
    pm = ml.compile(model, BACKEND, shapes={"input": [5, 3]})
    model += Relu()
    assert pm.graph != model.graph
    assert (np.asarray(pm.evaluate(pm.randomize_params(0), {"input": X})["output"]) < 0).any()


def test_graphs_and_blocks_compile_as_models_do():
    for what in (Linear(2), Linear(2).block, Linear(2).graph):
        assert ml.compile(what, BACKEND, shapes={"input": [5, 3]}).graph == Linear(2).graph
    empty = ml.compile(Model(), BACKEND)
    assert empty.evaluate({}, {}) == {}


def test_seeds_and_streams():
    pm = ml.compile(Linear(2), ml.JaxBackend(seed=3), shapes={"input": [5, 3]})
    weight = pm.randomize_params(7)["weight"]
    np.testing.assert_array_equal(weight, pm.randomize_params(7)["weight"])
    assert not np.array_equal(weight, pm.randomize_params(8)["weight"])
    first, second = pm.randomize_params()["weight"], pm.randomize_params()["weight"]
    assert not np.array_equal(first, second), "the stream continues"
    again = ml.compile(Linear(2), ml.JaxBackend(seed=3), shapes={"input": [5, 3]}).randomize_params()["weight"]
    np.testing.assert_array_equal(first, again)


def test_starting_values_are_scaled_to_their_blocks():
    pm = ml.compile(MLP(200, [300], 40), BACKEND, shapes={"input": [1, 200]})
    params = pm.randomize_params(0)
    for name, bound in (
        ("linear_0", np.sqrt(6 / 200)),  # He et al. 2015, of a uniform distribution, as a relu comes behind
        ("linear_1", np.sqrt(3 / 300)),  # LeCun et al. 1998, as none does
    ):
        assert np.abs(params[f"{name}.weight"]).max() <= bound
        assert np.std(params[f"{name}.weight"]) == pytest.approx(bound / np.sqrt(3), rel=0.02)
        assert not np.any(params[f"{name}.bias"])


def test_dropout_in_evaluate_follows_its_flag():
    x = jnp.ones((16, 16))
    still = ml.compile(Dropout(0.5), BACKEND)
    np.testing.assert_array_equal(still.evaluate({}, {"input": x})["output"], x)
    backend = ml.JaxBackend(seed=1)
    moving = ml.compile(Model() | Dropout(0.5)(training=True), backend)
    first, second = (moving.evaluate({}, {"input": x})["output"] for _ in range(2))
    assert np.any(first == 0)
    assert not np.array_equal(first, second), "each call draws new numbers"
    backend.set_seed(1)
    np.testing.assert_array_equal(moving.evaluate({}, {"input": x})["output"], first)
    outputs, gradients = moving.evaluate({}, {"input": x}, {"output": x})
    assert np.any(outputs["output"] == 0)
    assert gradients == {}


def test_forward_is_pure_and_can_be_transformed(pm, params):
    def by_row(row):
        return pm.forward(params, {"input": row})["output"]

    whole = pm.evaluate(params, {"input": X})["output"]
    np.testing.assert_allclose(jax.jit(jax.vmap(by_row))(X), whole, rtol=1e-5, atol=1e-6)
    assert jax.hessian(lambda x: by_row(x).sum())(jnp.asarray(X[0])).shape == (3, 3)


def test_integers_and_lists_are_cast_to_floats(pm, params):
    expected = pm.evaluate(params, {"input": np.eye(3, dtype="float32")})["output"]
    for same in (np.eye(3, dtype=int), np.eye(3, dtype=bool), np.eye(3, dtype="float16"), np.eye(3).tolist()):
        np.testing.assert_allclose(pm.evaluate(params, {"input": same})["output"], expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_dtypes_of_the_backend(dtype):
    for given in (dtype, getattr(ml, dtype)):
        pm = ml.compile(Embedding(5, 3) + Linear(2), ml.JaxBackend(dtype=given), shapes={"input": ["batch"]})
        params = pm.randomize_params(0)
        assert {str(array.dtype) for array in params.values()} == {dtype}
    outputs, gradients = pm.evaluate(params, {"input": np.array([1, 2])}, {"output": np.ones((2, 2), "float32")})
    assert str(outputs["output"].dtype) == dtype
    assert {str(array.dtype) for array in gradients.values()} == {dtype}


def test_float64_in_a_separate_process():
    out = run_fresh(
        "import mithril_nb as ml, numpy as np\n"
        "pm = ml.compile(ml.models.Linear(2), ml.JaxBackend(precision='float64'), shapes={'input': [5, 3]})\n"
        "params = pm.randomize_params(0)\n"
        "x = np.linspace(0, 1, 15).reshape(5, 3)\n"
        "outputs, gradients = pm.evaluate(params, {'input': x}, {'output': np.ones((5, 2))})\n"
        "exact = x @ np.asarray(params['weight']) + np.asarray(params['bias'])\n"
        "print(outputs['output'].dtype, gradients['weight'].dtype, np.abs(outputs['output'] - exact).max() < 1e-14)\n"
    )
    assert out == "float64 float64 True\n"


def test_verbose_prints_the_shapes(capsys):
    ml.compile(MLP(3, [4], 2), BACKEND, shapes={"input": ["batch", 3]}, verbose=True)
    assert capsys.readouterr().out == (
        "input                    ('batch', 3) float32\n"
        "linear_0                 ('batch', 4) float32\n"
        "relu_0                   ('batch', 4) float32\n"
        "linear_1                 ('batch', 2) float32\n"
        "linear_0.weight          (3, 4) float32\n"
        "linear_0.bias            (4,) float32\n"
        "linear_1.weight          (4, 2) float32\n"
        "linear_1.bias            (2,) float32\n"
    )
    ml.compile(MLP(3, [4], 2), BACKEND)
    assert capsys.readouterr().out == ""


def test_name_with_a_surrogate_survives_every_stage():
    pm = ml.compile(Model() | Linear(3, name="half \ud800/\x1b"), BACKEND, shapes={"input": [2, 4]})
    outputs = pm.evaluate(pm.randomize_params(0), {"input": np.ones((2, 4), "float32")})
    assert outputs["output"].shape == (2, 3)
    for stage in ("jaxpr", "stablehlo", "hlo"):
        blocks = {block for instruction in pm.inspect().stage(stage).instructions for block in instruction.blocks}
        assert blocks == {"half \ud800%2F\x1b"}


def test_text_output_next_to_arrays():
    model = Model()
    model |= Dtype()(input="x", output="dtype")
    model |= Relu()(input="x", output="y")
    pm = ml.compile(model, shapes={"x": [2, 3]})
    x = np.ones((2, 3), "float32")
    assert pm.evaluate({}, {"x": x})["dtype"] == "float32"
    outputs, gradients = pm.evaluate({}, {"x": x}, {"y": x})
    assert (list(outputs), outputs["dtype"], gradients) == (["dtype", "y"], "float32", {})


def test_own_parameters_outlive_a_traced_call():
    pm = ml.compile(Linear(2, input_size=3))
    x = np.ones((2, 3), "float32")
    traced = jax.jit(lambda x: pm(x))(x)
    np.testing.assert_allclose(pm(x), traced, 1e-6)


def test_long_list_causes_a_warning(params):
    pm = ml.compile(MLP(3, [4], 2), BACKEND, shapes={"input": ["batch", 3]})
    rows = np.ones((30, 3)).tolist()
    with pytest.warns(MithrilWarning) as warned:
        found = pm.evaluate(params, {"input": rows})["output"]
    assert str(warned[0].message) == (
        "input 'input' is a list of 90 numbers. Each number is a separate argument of the jitted program, which makes "
        "it slow. An array is one argument: np.asarray(values)."
    )
    np.testing.assert_allclose(found, pm.evaluate(params, {"input": np.asarray(rows)})["output"], 1e-6)


def test_integer_parameters_are_rejected(pm, params):
    whole = {**params, "linear_0.bias": np.zeros(4, int)}
    assert facts_of(lambda: pm.evaluate(whole, {"input": X}, ONES)) == (
        "UnknownOptionError: parameter 'linear_0.bias' cannot be trained: its dtype is not floating point.\n"
        "    given  (4,) of int32\n"
        "    needs  float32"
    )


def test_dim_name_has_one_size():
    pm = ml.compile(Add(), shapes={"left": ["rows", 4], "right": ["rows", 4]})
    arrays = {"left": np.ones((6, 4), "float32"), "right": np.ones((1, 4), "float32")}
    assert facts_of(lambda: pm.evaluate({}, arrays)) == (
        "ShapeError: the size 'rows' is 6 in input 'left' and 1 in input 'right'.\n    left   (6, 4)\n    right  (1, 4)"
    )
    for rows in (6, 1):
        x = np.ones((rows, 4), "float32")
        assert pm.evaluate({}, {"left": x, "right": x})["output"].shape == (rows, 4)
