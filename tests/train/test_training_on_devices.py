"""Training on several devices and with a fixed batch size, in processes with 8 forced CPU devices."""

import textwrap

from fresh import run_fresh
from process import EIGHT_DEVICES
from transcript import without_advice

START = """
import numpy as np, jax, jax.numpy as jnp
import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.models import MLP, BatchNorm, Linear, Model

rng = np.random.default_rng(0)
X, Y = rng.standard_normal((10, 16)).astype("float32"), np.arange(10) % 4

def refusal(call):
    try:
        call()
    except MithrilError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"
"""


def ran(code: str) -> str:
    return run_fresh(START + textwrap.dedent(code), **EIGHT_DEVICES)


def test_models_with_restricted_batch_sizes_train():
    out = ran("""
    def scores(batch, backend=None, **options):
        pm = ml.compile(MLP(16, [8], 4), backend or ml.JaxBackend(), shapes={"input": [batch, 16]}, **options)
        run = ml.fit(pm, (X, Y), batch_size=4, epochs=3, validation=(X[:7], Y[:7])).wait()
        return [*run.history["loss"], run.history["validation_loss"][-1], *run.evaluate((X[:3], Y[:3])).values()]

    alone = scores("batch")
    for options in (
        {"batch": "batch", "backend": ml.JaxBackend(device_mesh=4), "parallelism": "data"},
        {"batch": "batch", "backend": ml.JaxBackend(device_mesh=(2, 4)), "parallelism": "mixed"},
        {"batch": 4, "static_shapes": True},
    ):
        np.testing.assert_allclose(scores(**options), alone, rtol=1e-4)
    print(len(alone))
    """)
    assert out == "12\n"


def test_unsupported_last_batch_is_rejected_early():
    out = ran("""
    def mean(prediction, targets):
        return jnp.mean(prediction)

    mesh = ml.JaxBackend(device_mesh=4)
    model = Model() | Linear(4)
    model += BatchNorm()
    norm = ml.compile(model, mesh, shapes={"input": ["batch", 16]}, parallelism="data")
    pm = ml.compile(Linear(4), ml.JaxBackend(), shapes={"input": [4, 16]}, static_shapes=True)
    print(refusal(lambda: ml.fit(norm, (X, Y), batch_size=4)))
    print(refusal(lambda: ml.fit(pm, (X, Y), loss=mean, batch_size=4)))
    print(refusal(lambda: ml.fit(pm, (X[:8], Y[:8]), loss=mean, batch_size=4, validation=(X[:7], Y[:7]))))
    run = ml.fit(pm, (X[:8], Y[:8]), loss=mean, batch_size=4, epochs=1).wait()
    print(run.step, refusal(lambda: run.evaluate((X[:3], Y[:3]))))
    print(list(run.evaluate((X[:8], Y[:8]))))
    print(repr(ml.fit(norm, (X[:8], Y[:8]), batch_size=4, epochs=1, validation=(X, Y)).wait()))
    """)
    assert (
        without_advice(out)
        == """\
DataError: data ends in a batch of 2 samples, which the model does not accept.
    samples  10, in batches of 4
    because  the batch of input 'input' cannot be split evenly over 4 devices.
DataError: data ends in a batch of 2 samples, which the model does not accept.
    samples  10, in batches of 4
    because  the shape of input 'input' differs from the compiled shape.
DataError: validation data ends in a batch of 3 samples, which the model does not accept.
    samples  7, in batches of 4
    because  the shape of input 'input' differs from the compiled shape.
2 DataError: data ends in a batch of 3 samples, which the model does not accept.
    samples  3, in batches of 4
    because  the shape of input 'input' differs from the compiled shape.
['accuracy', 'loss']
Run(done, step 2 of 2, 1 epochs)"""
    )


def test_model_placed_on_several_devices_is_rejected():
    out = ran("""
    backend = ml.JaxBackend()
    placed = backend.place_model(MLP(16, [8], 4), {"linear_0": 1, "linear_1": 2})
    print(refusal(lambda: ml.fit(placed, (X, Y), batch_size=5)))
    split = ml.compile(
        MLP(16, [8], 4), ml.JaxBackend(device_mesh=(1, 2)), parallelism="model", shapes={"input": ["batch", 16]}
    )
    print(repr(ml.fit(split, (X, Y), batch_size=5, epochs=1).wait()))
    beside = backend.place_model(MLP(16, [8], 4), {"linear_0": 1, "relu_0": 1, "linear_1": 1})
    print(repr(ml.fit(beside, (X, Y), batch_size=5, epochs=1).wait()))
    """)
    assert (
        without_advice(out)
        == """\
UnknownOptionError: cannot train a model whose blocks were placed on several devices.
    placed   'linear_0' on cpu:1, 'linear_1' on cpu:2
    devices  cpu:1, cpu:2
    instead  compile the model before place_model, with its parameters split over the devices
Run(done, step 2 of 2, 1 epochs)
Run(done, step 2 of 2, 1 epochs)"""
    )
