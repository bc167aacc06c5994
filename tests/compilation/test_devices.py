"""Several devices give the same numbers as one, and reject invalid options. Uses 8 forced CPU devices."""

import textwrap

import pytest
from fresh import run_fresh
from process import EIGHT_DEVICES
from transcript import read_transcript, without_advice

START = """
import jax, numpy as np, optax
import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, Linear, Model
from mithril_nb.train.step import train_step

X = np.random.default_rng(0).standard_normal((16, 12)).astype("float32")
Y = np.arange(16) % 8

def refusal(call):
    try:
        call()
    except MithrilError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"
"""


def ran(code: str) -> str:
    return run_fresh(START + textwrap.dedent(code), **EIGHT_DEVICES)


def test_train_steps_on_many_devices_agree_with_one_device():
    out = ran("""
    def trained(backend, **options):
        pm = ml.compile(MLP(12, [16], 8), backend, shapes={"input": [16, 12]}, **options)
        params = pm.randomize_params(0)
        where = {name: len(one.devices()) for name, one in params.items()}
        parts = {name: one.addressable_shards[0].data.shape for name, one in params.items()}
        state = optax.adam(1.0).init(params)
        step = jax.jit(train_step(pm.forward, "cross_entropy", optax.adam(1.0)))
        for _ in range(3):
            params, state, metrics = step(params, state, 0.05, {"inputs": {"input": X}, "targets": Y})
        return jax.tree.map(np.asarray, (params, metrics)), where, parts

    alone, _, _ = trained(ml.JaxBackend())
    for kind, mesh in (("data", 8), ("data", (4,)), ("model", (1, 4)), ("model", (8,)), ("mixed", (2, 4))):
        found, where, parts = trained(ml.JaxBackend(device_mesh=mesh), parallelism=kind)
        far = max(np.abs(a - b).max() for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone)))
        assert far < 1e-5, (kind, mesh, far)
        print(kind, mesh, set(where.values()), parts["linear_0.weight"], parts["linear_1.bias"])
    """)
    assert out.splitlines() == [
        "data 8 {8} (12, 16) (8,)",
        "data (4,) {4} (12, 16) (8,)",
        "model (1, 4) {4} (12, 4) (2,)",
        "model (8,) {8} (12, 2) (1,)",
        "mixed (2, 4) {8} (12, 4) (2,)",
    ]


def test_evaluate_on_many_devices():
    out = ran("""
    ones = {"output": np.ones((16, 10), "float32")}
    plain = ml.compile(MLP(12, [16], 10), ml.JaxBackend())
    params = plain.randomize_params(0)
    alone = plain.evaluate(params, {"input": X}, ones)
    for kind, mesh in (("data", (8,)), ("model", (1, 4)), ("mixed", (2, 4)), (None, (2,))):
        pm = ml.compile(MLP(12, [16], 10), ml.JaxBackend(device_mesh=mesh), parallelism=kind)
        assert pm.__dict__["evaluate"] is pm._run, "no Python of ours in a call"
        own = pm.randomize_params(0)
        for one in (own, params):
            found = pm.evaluate(one, {"input": X}, ones)
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone)):
                np.testing.assert_allclose(a, b, atol=1e-4, rtol=1e-5)
        gradient = found[1]["linear_1.weight"]
        print(kind, found[0]["output"].addressable_shards[0].data.shape, gradient.addressable_shards[0].data.shape)
        print(*(own[f"linear_1.{name}"].addressable_shards[0].data.shape for name in ("weight", "bias")))
    wide = ml.compile(Linear(4), ml.JaxBackend(device_mesh=8), tpu_options={"replicate_inputs": True})
    print(len(wide(X).devices()))
    """)
    lines = out.splitlines()
    # 10 units are not a multiple of 4: the weight is sharded along its 16 inputs, the bias is replicated.
    assert lines[3] == "(4, 10) (10,)"
    assert lines[0].startswith("data (2, 10)")
    assert lines[1] == "(16, 10) (10,)"
    assert lines[5] == "(4, 10) (10,)"
    assert lines[7] == "(16, 10) (10,)"
    assert lines[8] == "8"


def test_arrays_on_meshes_placed_models_and_functions():
    out = ran("""
    from mithril_nb.backends.with_autograd.jax_backend.parallel import data_parallel
    backend = ml.JaxBackend()
    for made in (backend.ones, backend.zeros, backend.rand, backend.randn):
        array = made(8, 6, device_mesh=(2, 3), tensor_split=(0, 1))
        assert array.addressable_shards[0].data.shape == (4, 2) and len(array.devices()) == 6
    print(backend.ones(8, 6, device_mesh=2, tensor_split=1).addressable_shards[0].data.shape)
    print(backend.ones(8, 6, device_mesh=(2, 3), tensor_split=(None, 0 - 1)).addressable_shards[0].data.shape)
    sums = data_parallel(lambda x, y: {"sum": (x + y).sum(), "rows": x @ y.T}, backend=backend, num_devices=4)
    found = sums(X, 2 * X)
    np.testing.assert_allclose(found["sum"], 3 * X.sum(), rtol=1e-4)
    np.testing.assert_allclose(found["rows"], 2 * X @ X.T, rtol=1e-4, atol=1e-4)
    print(len(found["rows"].devices()))
    model = Model() | Linear(5, name="first")
    model += MLP(5, [4], 3)
    placed = backend.place_model(model, {"first": 1, "mlp_0": "cpu:2", "mlp_0.linear_1": 3})
    pm, plain = (ml.compile(one, backend, shapes={"input": [16, 12]}) for one in (placed, model))
    params, ones = pm.randomize_params(0), {"output": np.ones((16, 3), "float32")}
    print({name: f"cpu:{next(iter(one.devices())).id}" for name, one in params.items() if "weight" in name})
    found = pm.evaluate(params, {"input": X}, ones)
    alone = plain.evaluate(plain.randomize_params(0), {"input": X}, ones)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(alone)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    where = [next(iter(one.devices())).id for one in (found[0]["output"], found[1]["first.weight"])]
    print(pm.placement, pm.jit, where)
    print(model == placed, ml.compile(model, backend).placement)
    """)
    assert out.splitlines() == [
        "(8, 3)",
        "(8, 2)",
        "4",
        "{'first.weight': 'cpu:1', 'mlp_0.linear_0.weight': 'cpu:2', 'mlp_0.linear_1.weight': 'cpu:3'}",
        "{'first': 'cpu:1', 'mlp_0': 'cpu:2', 'mlp_0/linear_1': 'cpu:3'} False [3, 1]",
        "True {}",
    ]


REFUSALS = """
ml.compile(Linear(8), ml.JaxBackend(device_mesh=8), shapes={"input": [12, 4]}, parallelism="data")
ShapeError: the batch of input 'input' cannot be split evenly over 8 devices.
    shape  (12, 4)      axis 0: 12 = 1 * 8 + 4

ml.compile(Linear(8, input_size=12), ml.JaxBackend(device_mesh=8), parallelism="data")(X[:15])
ShapeError: the batch of input 'input' cannot be split evenly over 8 devices.
    shape  (15, 12)      axis 0: 15 = 1 * 8 + 7

ml.compile(Linear(3, input_size=5), ml.JaxBackend(device_mesh=(1, 4)), parallelism="model")
ShapeError: no parameter can be split evenly over 4 devices.
    weight  (5, 3)
    bias    (3,)

ml.compile(Linear(8), ml.JaxBackend(device_mesh=8), parallelism="mixed")
UnknownOptionError: parallelism='mixed' needs a mesh of devices with two axes.
    has      device_mesh=(8,)
    devices  8

ml.compile(Linear(8), ml.JaxBackend(), parallelism="data")
UnknownOptionError: parallelism='data' needs a mesh of devices.
    has      one device
    devices  8

ml.compile(Linear(8), ml.JaxBackend(device_mesh=2), parallelism="dta")
UnknownOptionError: unknown parallelism 'dta'.
    known  'data', 'model', 'mixed'

ml.compile(Linear(8), TWO, parallelism="data", tpu_options={"replicate_inputs": True})
UnknownOptionError: tpu_options['replicate_inputs']=True and parallelism='data' contradict each other.
    because  parallelism='data' splits each input over the devices

ml.JaxBackend(device_mesh=(3, 3))
DeviceNotFoundError: device_mesh=(3, 3) needs 9 devices, but only 8 are available.
    present  cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, cpu:7

ml.JaxBackend().ones(5, 4, device_mesh=(2,))
ShapeError: an array cannot be split evenly over 2 devices.
    shape  (5, 4)      axis 0: 5 = 2 * 2 + 1

ml.JaxBackend().ones(4, 4, device_mesh=(2,), tensor_split=(2,))
UnknownOptionError: tensor_split=(2,) does not match an array of shape (4, 4) and a mesh (2,).
    needs  for each mesh axis, a different axis of the array, or None

ml.JaxBackend().ones(4, device_mesh=0)
UnknownOptionError: device_mesh=0 is not a mesh shape.
    needs  the number of devices along each axis

ml.JaxBackend().place_model(MLP(4, [3], 2), {"linear_9": 1})
UnknownBlockError: the model has no block 'linear_9'.
    blocks  'linear_0', 'relu_0', 'linear_1'

ml.JaxBackend().place_model(MLP(4, [3], 2), {"linear_1": 8})
DeviceNotFoundError: no device 'cpu:8' on backend 'jax'.
    present  cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, cpu:7

ml.JaxBackend().place_model(MLP(4, [3], 2), [0, 1])
UnknownOptionError: cannot place MLP with list.
    needs  a model, and a dict from block names to devices

data_parallel(len, num_devices=9)
DeviceNotFoundError: num_devices=9 needs 9 devices, but only 8 are available.
    present  cpu:0, cpu:1, cpu:2, cpu:3, cpu:4, cpu:5, cpu:6, cpu:7

data_parallel(len, num_devices="2")
UnknownOptionError: num_devices='2' is not a number of devices.
    needs  an integer, 1 or more

data_parallel(lambda x: x, num_devices=4)(X[:6])
ShapeError: an array cannot be split evenly over 4 devices.
    shape  (6, 12)      axis 0: 6 = 1 * 4 + 2

data_parallel(lambda x: x, num_devices=4)(1.0)
ShapeError: an array without axes cannot be split over devices.

data_parallel(None)
UnknownOptionError: cannot run None on several devices.
    needs  a function of arrays, and a JaxBackend
"""


@pytest.fixture(scope="module")
def refusals() -> dict[str, str]:
    codes = [one.id for one in read_transcript(REFUSALS)]
    path = "from mithril_nb.backends.with_autograd.jax_backend.parallel import data_parallel\n"
    path += "TWO = ml.JaxBackend(device_mesh=2)"
    calls = "".join(f"\nprint(refusal(lambda: {code}), end='\\0')" for code in codes)
    return dict(zip(codes, run_fresh(START + path + calls, **EIGHT_DEVICES).split("\0"), strict=False))


@pytest.mark.parametrize(("code", "message"), read_transcript(REFUSALS))
def test_rejected_options(refusals: dict[str, str], code: str, message: str) -> None:
    assert without_advice(refusals[code]) == message
