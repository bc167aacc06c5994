"""The advice in errors of backends works."""

from __future__ import annotations

import pytest
from advice import check

BACKEND = {
    "backends/backend.py:convert_params": "ml.compile(Linear(3)).convert_params({}, 3)",
    "backends/emitted.py:EmittedBackend.__init__#2": 'ml.NumpyBackend(dtype="int32")',
    "backends/emitted.py:EmittedBackend._set_device": 'ml.NumpyBackend(device="gpu")',
    "backends/emitted.py:check_grads": 'ml.TorchBackend(grads="numpy")',
    "backends/backend.py:Backend.toolkit": """
        from mithril_nb.backends.backend import Backend
        class Arrays(Backend):
            def ones(self, *shape, dtype=None): ...
            tensor = zeros = ones
        Arrays().toolkit
        """,
    "backends/backend.py:check_seed": 'ml.JaxBackend(seed="x")',
    "backends/backend.py:check_seed#2": "ml.JaxBackend(seed=2**63)",
    "backends/backend.py:check_switch": 'ml.JaxBackend(jit="no")',
    "backends/jax/arrays.py:ArrayMaker.randint": "ml.JaxBackend().randint(0, 2**40, 3)\n# Try: ml.JaxBackend().{}",
    "backends/jax/arrays.py:ArrayMaker.random_bernoulli": "ml.JaxBackend().random_bernoulli(p=2)",
    "backends/jax/arrays.py:ArrayMaker.split_key": """
        backend = ml.JaxBackend(); key = backend.get_random_key()
        backend.split_key(key, 0)
        # Try: backend.{}
        """,
    "backends/jax/arrays.py:_checked_key": """
        backend = ml.JaxBackend()
        backend.split_key(3)
        # Try: backend.split_key({})
        """,
    "backends/jax/arrays.py:_numpy": """
        backend = ml.JaxBackend()
        backend.full((2,), "x")
        """,
    "backends/jax/arrays.py:_shape": 'ml.JaxBackend().zeros("abc")\n# Try: ml.JaxBackend().{}',
    "backends/jax/arrays.py:_too_wide": """
        backend = ml.JaxBackend(); wide = np.array([1, 2**40 + 5])
        backend.tensor(wide)
        # Try: {}; found = np.asarray(backend.tensor(wide)); backend.enable_x64(False); assert (found == wide).all()
        """,
    "backends/jax/backend.py:JaxBackend.__init__": 'ml.JaxBackend(dtype="float16", precision="float32")',
    "backends/jax/backend.py:JaxBackend.__init__#2": 'ml.JaxBackend(dtype="int32")',
    "backends/jax/backend.py:JaxBackend.__init__#3": "ml.JaxBackend(jit=True, jit_compile=False)",
    "backends/jax/backend.py:JaxBackend.__init__#4": "ml.JaxBackend(device=3)",
    "backends/jax/backend.py:JaxBackend.__init__#5": 'ml.JaxBackend(device="cpu", platform="gpu")',
    "backends/jax/backend.py:JaxBackend.enable_x64": """
        backend = ml.JaxBackend(); backend.default_dtype = "float64"
        backend.enable_x64(False)
        """,
    "backends/jax/backend.py:JaxBackend.register_op": """
        backend = ml.JaxBackend()
        backend.register_op("grad")
        # Try: {}\\ndef my_grad(x): return x
        """,
    "backends/jax/backend.py:JaxBackend.grad": """
        backend, x = ml.JaxBackend(), jnp.ones(3)
        backend.grad(3)
        """,
    "backends/jax/backend.py:_checked_scalar": """
        backend, f, x = ml.JaxBackend(), lambda x: 2 * x, jnp.ones(3)
        backend.grad(f)(x)
        # Try: {}(x)
        """,
    "backends/jax/backend.py:_check_floating": """
        backend, x = ml.JaxBackend(), jnp.arange(3)
        backend.grad(lambda x: x.sum())(x)
        # Try: backend.grad(lambda x: x.sum())({})
        """,
    "backends/jax/backend.py:_check_ports": """
        register = ml.JaxBackend().register_op("add")
        register(lambda x: x)
        # Try: {}\\nregister(add)
        """,
    "backends/jax/backend.py:_checked_precision": 'ml.JaxBackend(precision="ultra")',
    "backends/jax/devices.py:find_device": 'ml.JaxBackend(device="cpu:99")',
    "backends/jax/devices.py:find_device | set later": """
        backend = ml.JaxBackend()
        backend.set_platform("tpu")
        """,
    "backends/jax/devices.py:mesh_shape": "ml.JaxBackend(device_mesh=True)",
    "backends/jax/devices.py:make_mesh": "ml.JaxBackend(device_mesh=99)",
    "backends/jax/devices.py:make_mesh | two axes": """
        model = Linear(3)
        ml.compile(model, ml.JaxBackend(device_mesh=(9, 9)), parallelism="mixed")
        """,
    "backends/jax/devices.py:compiler_options": 'ml.JaxBackend(xla_flags="--xla_foo")',
    "backends/jax/devices.py:compiler_options#2": """
        import os
        ml.JaxBackend(xla_flags=["--xla_force_host_platform_device_count=8"])
        # Try: {}; ml.JaxBackend()
        """,
    "backends/jax/devices.py:_try": 'ml.JaxBackend(xla_flags=["--xla_foo=1"])',
    "backends/jax/devices.py:place": """
        model = Model() | Linear(3, name="encoder") | Linear(3, name="decoder"); backend = ml.JaxBackend()
        backend.place_model(model, "cpu")
        # Try: {}
        """,
    "backends/jax/devices.py:place#2": """
        model, backend = Model() | Linear(3, name="encoder"), ml.JaxBackend()
        backend.place_model(model, {"encodr": 0})
        # Try: backend.place_model(model, {})
        """,
    "program.py:check_kernels": """
        ml.JaxBackend().register_op("thirds")(lambda x: x / 3); model = ml.op("thirds")
        ml.compile(model, ml.JaxBackend())
        # Try: ml.compile(Model() | Divide()(numerator="x", denominator=3.0))
        """,
}

COMPUTING = {
    "backends/jax/custom.py:_named": """
        class WrongNames(Operator):
            def compute(self, inputs): return {"out": inputs["input"]}
        ml.compile(WrongNames()).evaluate(dict(), {"input": jnp.ones(3)})
        # Try: def compute(self, inputs): {}\\nWrongNames.compute = compute\\nml.compile(WrongNames()).evaluate(dict(), {"input": jnp.ones(3)})
        # ...: inputs["input"]
        """,
    "backends/jax/custom.py:_named#2": """
        class ReturnsNoArray(Operator):
            def compute(self, inputs): return {"output": "x"}
        ml.compile(ReturnsNoArray()).evaluate(dict(), {"input": jnp.ones(3)})
        # Try: def compute(self, inputs): {}\\nReturnsNoArray.compute = compute\\nml.compile(ReturnsNoArray()).evaluate(dict(), {"input": jnp.ones(3)})
        # ...: inputs["input"]
        """,
    "backends/jax/custom.py:_gradients": """
        ml.register_primitive("halved")(lambda backend, x: x / 2); pm = ml.compile(ml.op("halved"))
        ml.register_primitive("halved_grad")(lambda backend, x, by_output: by_output.sum())
        gradient = jax.grad(lambda x: pm.evaluate(dict(), {"input": x})["output"].sum())
        gradient(jnp.ones(3))
        # Try: def halved_grad(backend, x, by_output): {}\\nml.register_primitive("halved_grad")(halved_grad)\\ngradient(jnp.ones(3))
        # ...: by_output / 2
        """,
    "backends/jax/custom.py:_specs#2": """
        backend = ml.JaxBackend(); backend.register_op("branching")(lambda x: x if x.sum() > 0 else -x)
        ml.compile(ml.op("branching"), backend, shapes={"input": [4, 3]})
        # Try: backend.register_op("branching")(lambda x: {}); ml.compile(ml.op("branching"), backend, shapes={"input": [4, 3]})
        """,
    "backends/jax/kernels/registry.py:_folded": """
        model = Model() | Relu()(input="h", output="x")
        model |= Arange()(stop=model.x.shape()[0] // model.x.shape()[1])
        x, pm = model.x, ml.compile(model)
        pm.evaluate(dict(), {"h": np.ones((4, 0), "float32")})
        # Try: model = Model() | Relu()(input="h", output="x"); x = model.x; model |= Arange()(stop={}); ml.compile(model).evaluate(dict(), {"h": np.ones((4, 0), "float32")})
        """,
    "backends/jax/operations.py:_checked": """
        backend, targets = ml.JaxBackend(), np.eye(3, dtype="int32")[:2]
        backend.cross_entropy(backend.ones(2, 3), targets)
        # Try: backend.cross_entropy(backend.ones(2, 3), {})
        """,
    "backends/with_autograd/jax_backend/parallel.py:data_parallel": """
        from mithril_nb.backends.with_autograd.jax_backend.parallel import data_parallel; fn = lambda x: 2 * x
        data_parallel(3)
        """,
    "backends/with_autograd/jax_backend/parallel.py:data_parallel#2": """
        from mithril_nb.backends.with_autograd.jax_backend.parallel import data_parallel
        data_parallel(lambda x: x, num_devices=0)
        """,
    "backends/with_autograd/jax_backend/parallel.py:data_parallel.placed": """
        from mithril_nb.backends.with_autograd.jax_backend.parallel import data_parallel
        fn, rate = lambda x, rate: rate * x, 2.0
        data_parallel(fn)(jnp.ones(4), rate)
        # Try: data_parallel({})(jnp.ones(4))
        """,
    "backends/jax/kernels/convolution.py:_windows": """
        model = Model() | ToTuple(2)(input1="a", input2="a", output="step") | MaxPool2D(2)(input="x", stride="step")
        ml.compile(model).evaluate(dict(), {"x": jnp.ones((1, 1, 4, 4)), "a": jnp.ones((), int)})
        # Try: ml.compile(Model() | MaxPool2D(2)(input="x", {})).evaluate(dict(), {"x": jnp.ones((1, 1, 4, 4))})
        """,
    "backends/jax/kernels/shaping.py:static": """
        model = Model() | BroadcastTo()(input="x", shape="s")
        ml.compile(model).evaluate(dict(), {"x": jnp.ones(3), "s": jnp.array([2, 3])})
        # Try: ml.compile(Model() | BroadcastTo()(input="x", {})).evaluate(dict(), {"x": jnp.ones(1)})
        """,
    "backends/jax/kernels/shaping.py:_inference_errors": """
        pm, x = ml.compile(Model() | Reshape()(input="x", shape="sizes"), jit=False), jnp.ones((4, 3))
        pm.evaluate(dict(), {"x": x, "sizes": jnp.array([5, 2])})
        # Try: pm.evaluate(dict(), {"x": x, "sizes": jnp.array([6, 2])})
        """,
    "backends/jax/initializers.py:_check_axes": """
        model = Model() | Linear(3)
        ml.compile(model.set_initializers({"linear_0.bias": "he_normal"}), shapes={"input": [2, 3]}).randomize_params()
        # Try: ml.compile({}, shapes={"input": [2, 3]}).randomize_params()
        """,
    "backends/jax/kernels/arithmetic.py:scalar": """
        model = Model() | Clamp()(input="x", min_val="low")
        ml.compile(model).evaluate(dict(), {"x": jnp.ones(3), "low": jnp.ones(3)})
        # Try: ml.compile(Model() | Clamp({})(input="x")).evaluate(dict(), {"x": jnp.ones(3)})
        """,
}

CASES = {**BACKEND, **COMPUTING}


@pytest.mark.parametrize("case", CASES)
def test_advice_works(case: str) -> None:
    check(CASES, case)
