"""The advice in errors of compiling and running a physical model works."""

from __future__ import annotations

import pytest
from advice import check

PM = """
        model, backend = Linear(3), ml.JaxBackend()
        pm = ml.compile(model, backend, shapes={"input": [5, 4]})
        params, inputs = pm.randomize_params(), {"input": jnp.ones((5, 4))}"""

CASES = {
    "compilation/compiling.py:compile_emitted": """
        model = Linear(3)
        ml.compile(model, ml.NumpyBackend(), jit=False)
        """,
    "compilation/binding.py:_value": 'ml.compile(Relu(), constants={"input": "one"}).evaluate({}, {})',
    "compilation/binding.py:with_training": """
        model, backend = Model() | Linear(3), ml.JaxBackend()
        ml.compile(model, frozen="linear_0")
        """,
    "compilation/binding.py:with_training#2": """
        model, backend = Model() | Linear(3), ml.JaxBackend()
        ml.compile(model, frozen=["linear_0"], trainable=["linear_0"])
        """,
    "compilation/torch_module.py:as_module": """
        model = Linear(3)
        ml.compile(model, ml.NumpyBackend(), shapes={"input": [5, 4]}).as_module()
        """,
    "compilation/torch_module.py:_loader.load": """
        import torch
        ml.register_primitive("twice_in_advice")(lambda backend, x: 2 * x)
        ml.register_primitive("twice_in_advice_grad")(lambda backend, x, grad: 2 * grad)
        pm = ml.compile(ml.op("twice_in_advice"), ml.TorchBackend(), shapes={"input": [2]})
        params, inputs, output_gradients = {}, {"input": np.ones(2)}, {"output": np.ones(2)}
        module = pm.as_module()
        module(torch.ones(2))
        # Try: {}
        """,
    "compilation/evaluating.py:EvaluatesAll._ones": f"""{PM}
        pm.evaluate_all(params, inputs)
        """,
    "compilation/calls.py:Calls.checked": f"""{PM}
        pm.evaluate({{}}, inputs)
        # Try: {{}}; pm.evaluate(params, inputs)
        """,
    "compilation/calls.py:Calls.checked#2": f"""{PM}
        pm.evaluate({{**params, "q": inputs["input"]}}, inputs)
        # Try: {{}}; pm.evaluate(params, inputs)
        """,
    "compilation/calls.py:Calls.checked#3": f"""{PM}
        params["bias"] = jnp.ones(3, int)
        pm.evaluate(params, inputs, {{"output": jnp.ones((5, 3))}})
        # Try: params["bias"] = {{}}; pm.evaluate(params, inputs, {{"output": jnp.ones((5, 3))}})
        """,
    "compilation/calls.py:Calls.inputs": f"""{PM}
        x = jnp.ones((5, 4))
        pm.evaluate(params, {{}})
        # Try: {{}}; pm.evaluate(params, inputs)
        # ...: x
        """,
    "compilation/calls.py:Calls.inputs#2": """
        model = Linear(3)
        pm = ml.compile(model, shapes={"input": [5, 4]}, static_shapes=True)
        pm.evaluate(pm.randomize_params(), {"input": jnp.ones((2, 4))})
        # Try: pm = ml.compile(model, shapes={"input": [5, 4]}, {}); pm.evaluate(pm.randomize_params(), {"input": jnp.ones((2, 4))})
        """,
    "compilation/calls.py:Calls._check_names": """
        model, backend = Add(), ml.JaxBackend()
        pm = ml.compile(model, shapes={"left": ["rows", 4], "right": ["rows", 4]})
        pm.evaluate(dict(), {"left": jnp.ones((6, 4)), "right": jnp.ones((1, 4))})
        # Try: pm = {}; pm.evaluate(dict(), {"left": jnp.ones((6, 4)), "right": jnp.ones((1, 4))})
        """,
    "compilation/calls.py:Calls._check_names | of one input": """
        model, backend = Relu(), ml.JaxBackend()
        pm = ml.compile(model, shapes={"input": ["n", "n"]})
        pm.evaluate(dict(), {"input": jnp.ones((6, 4))})
        # Try: pm = {}; pm.evaluate(dict(), {"input": jnp.ones((6, 4))})
        """,
    "compilation/calls.py:Calls._state": """
        pm = ml.compile(BatchNorm1d(), shapes={"input": [5, 4]})
        params, inputs = pm.randomize_params(), {"input": jnp.ones((5, 4))}
        pm.evaluate(params, inputs)
        """,
    "compilation/calls.py:Calls._state#2": f"""{PM}
        pm.evaluate(params, inputs, state={{"mean": jnp.ones(3)}})
        # Try: {{}}; pm.evaluate(params, inputs, state=state)
        """,
    "compilation/calls.py:Calls._check_shapes": f"""{PM}
        pm.evaluate(params, {{"input": jnp.ones((5, 7))}})
        # Try: {{}}; pm.evaluate(params, {{"input": jnp.ones((5, 7))}})
        """,
    "compilation/calls.py:Calls._check_shapes | parameters": """
        model, backend = Linear(3), ml.JaxBackend()
        pm = ml.compile(model, backend, shapes={"input": [5, 4]})
        params, inputs = pm.randomize_params(), {"input": jnp.ones((5, 4))}
        pm.evaluate({**params, "bias": jnp.ones(7)}, inputs)
        # Try: {}; pm.evaluate(params, inputs)
        """,
    "compilation/calls.py:Calls.check_concrete_inputs": """
        model, backend = Model() | Relu()(input="x"), ml.JaxBackend()
        ml.compile(model).inspect()
        # Try: {}.inspect()
        """,
    "compilation/calls.py:as_array": f"""{PM}
        values = 5 * [[1, 2, 3, 4]]
        pm.evaluate(params, {{"input": [[1], [2, 3]]}})
        # Try: pm.evaluate(params, {{"input": {{}}}})
        """,
    "compilation/compiling.py:compile": 'ml.compile(Linear(3), "jax")\n# Try: ml.compile(Linear(3), {})',
    "compilation/compiling.py:compile#2": """
        model = Model() | Linear(3, name="up")
        placed_model = ml.JaxBackend().place_model(model, {"up": 0})
        ml.compile(placed_model, ml.JaxBackend(device_mesh=1))
        """,
    "compilation/compiling.py:graph_of": "ml.compile(None)",
    "compilation/compiling.py:graph_of | a class": "ml.compile(Linear)",
    "compilation/inspecting.py:InspectedModel._check_concrete": """
        model, backend = Model() | Linear(3)(input="x"), ml.JaxBackend()
        ml.compile(model).randomize_params()
        # Try: {}.randomize_params()
        """,
    "compilation/model.py:PhysicalModel.forward_with_state": """
        pm, backend, inputs, params = ml.compile(Dropout(0.5)), ml.JaxBackend(), {"input": jnp.ones(3)}, {}
        pm.forward(params, inputs, training=True)
        """,
    "compilation/model.py:PhysicalModel._evaluate_backward": f"""{PM}
        outputs = pm.evaluate(params, inputs)
        pm.evaluate(params, inputs, {{"output": jnp.ones(3)}})
        # Try: pm.evaluate(params, inputs, {{"output": {{}}}})
        """,
    "compilation/inspecting.py:InspectedModel.inspect": f"""{PM}
        pm.inspect("backwards")
        """,
    "compilation/options.py:_check_parallelism": """
        ml.compile(Linear(3), ml.JaxBackend(device_mesh=1), parallelism="dta", shapes={"input": [2, 3]})
        """,
    "compilation/options.py:_check_parallelism#2": """
        model = Linear(3)
        ml.compile(model, ml.JaxBackend(), parallelism="data")
        """,
    "compilation/options.py:_check_parallelism#2 | parameters": """
        model = Linear(3)
        ml.compile(model, ml.JaxBackend(), parallelism="model")
        """,
    "compilation/options.py:_check_parallelism#2 | both": """
        model = Linear(3)
        ml.compile(model, ml.JaxBackend(device_mesh=1), parallelism="mixed")
        """,
    "compilation/options.py:_positions": 'ml.compile(Relu(), jit_options={"donate_argnums": (3,)})',
    "compilation/options.py:_tpu_options": """
        mesh = ml.JaxBackend(device_mesh=1)
        ml.compile(Relu(), mesh, parallelism="data", tpu_options={"replicate_inputs": True})
        """,
    "compilation/options.py:_checked": """
        ml.compile(Relu(), jit_options=["donate_argnums"])
        # ...: (0,)
        """,
    "compilation/options.py:_checked#2": """
        ml.compile(Relu(), jit_options={"donate_argnum": 0})
        # ...: (0,)
        """,
    "compilation/options.py:_checked#2 | like no other": """
        ml.compile(Relu(), jit_options={"zzz": 0})
        # ...: (0,)
        """,
}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
