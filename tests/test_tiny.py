"""One small model end to end: compose, compile, inspect, cost, display, train. Takes under 5 s: run it often."""

import numpy as np

import mithril_nb as ml
from mithril_nb.models import Linear, Model, Relu


def test_end_to_end():
    model = Model()
    model |= Linear(dimension=8)(input="input", output="hidden")
    model += Relu()
    model += Linear(dimension=3)
    pm = ml.compile(model, ml.JaxBackend(dtype=ml.float32), shapes={"input": [16, 4]})

    x = np.random.default_rng(0).normal(size=(48, 4)).astype("float32")
    labels = (x[:, 0] > 0).astype("int32") + (x[:, 1] > 0)
    params = pm.randomize_params(seed=0)
    outputs, gradients = pm.evaluate(params, {"input": x[:16]}, {"output": np.ones((16, 3), "float32")})
    assert outputs["output"].shape == (16, 3)
    assert {name: gradient.shape for name, gradient in gradients.items()} == {
        "linear_0.weight": (4, 8), "linear_0.bias": (8,), "linear_1.weight": (8, 3), "linear_1.bias": (3,),
    }  # fmt: skip

    inspection = pm.inspect()
    for stage in (pm.jaxpr, pm.stablehlo, pm.hlo):
        blocks = {block for instruction in stage.instructions for block in instruction.blocks}
        assert blocks >= {"linear_0", "relu_0", "linear_1"}, f"every block has its lines in {stage.name}"
    assert inspection is pm.inspect(), "the inspection is cached"

    cost = pm.cost
    assert sum(block.flops for block in cost.by_block.values()) + cost.unattributed.flops == cost.total.flops
    assert cost.by_block.keys() >= {"linear_0", "relu_0", "linear_1"}
    assert cost.total.flops >= 2 * 16 * (4 * 8 + 8 * 3)

    for shown in (model, pm, cost):
        bundle = shown._repr_mimebundle_()
        assert "text/plain" in bundle
        assert bundle.keys() & {"image/svg+xml", "text/html"}, (
            f"{type(shown).__name__} is shown as a picture or a table"
        )

    run = ml.fit(pm, (x, labels), epochs=1, batch_size=16, learning_rate=0.05, seed=0)
    losses = [event.loss for event in run if event.kind == "step"]
    assert len(losses) == 3
    assert np.isfinite(losses).all()
    assert not np.array_equal(run.params["linear_0.weight"], params["linear_0.weight"])
