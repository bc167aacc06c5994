"""Shapes that a block infers, with sizes as names and numbers."""

import pytest

from mithril_nb import models
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.shape_inference.infer import infer

SHAPES = """
Sum(): (batch, 3) -> ()
Sum(0): (batch, 3) -> (3,)
Sum([0, -1]): (batch, 3, 4) -> (3,)
Sum(-1, keepdim=True): (batch, 3) -> (batch, 1)
Sum(keepdim=True): (batch, 3) -> (1, 1)
Sum([]): (batch, 3) -> (batch, 3)
Sum(-1): (..., 3) -> (...,)
Sum(-2, keepdim=True): (..., n, 3) -> (..., 1, 3)
Sum(0): (..., 3) -> (...,)
Sum(): (..., 3) -> ()
Sum(keepdim=True): (..., 3) -> (...,)
Sum(0): (0, 3) -> (3,)
Max(1): (0, 3) -> (0,)
ArgMax(1, keepdim=True): (n, 3) -> (n, 1)
Cumsum(0): (n, 3) -> (n, 3)
Unique(5): (n, 3) -> (5,)
MatrixMultiply(): (3,) @ (3,) -> ()
MatrixMultiply(): (3,) @ (k, 4) -> (4,)
MatrixMultiply(): (b, 2, 3) @ (3,) -> (b, 2)
MatrixMultiply(): (b, 1, 2, 3) @ (5, 3, 4) -> (b, 5, 2, 4)
MatrixMultiply(): (..., 2, 3) @ (3, 4) -> (..., 2, 4)
MatrixMultiply(): (...,) @ (3, 4) -> (..., 4)
MatrixMultiply(): (...,) @ (3,) -> (...,)
MatrixMultiply(): (2, 3) @ (...,) -> (...,)
MatrixMultiply(): (0, 3) @ (3, 0) -> (0, 0)
RepeatItems(2, 1): (2, 3) -> (2, 6)
Flip(1): (2, 3) -> (2, 3)
Glu(): (2, 6) -> (2, 3)
Glu(): (n, m) -> (n, (m)//2)
Glu(): (..., 4) -> (..., 2)
Reshape((-1, 24)): (batch, 4, 6) -> (batch, 24)
Reshape(("batch", -1)): (batch, 4, 6) -> (batch, 24)
Reshape(("batch", 2, -1, 3)): (batch, 4, 6) -> (batch, 2, 4, 3)
Reshape(("batch", "time", 2, -1)): (batch, time, 6) -> (batch, time, 2, 3)
Reshape((-1, 6)): (batch, time, 6) -> (batch*time, 6)
Reshape((4, -1)): (batch, 6) -> (4, batch*6//4)
Reshape((4, 3)): (..., 6) -> (4, 3)
Reshape((4, -1)): (..., 6) -> (...,)
PolynomialFeatures(2): (n, d) -> (n, (d+1)*(d+2)//2-1)
PolynomialFeatures(3): (5, 2) -> (5, 9)
SquaredError(): (n, 2) @ (n, 2) -> (n, 2)
Conv2d(4, 3, stride=2, padding=1): (n, 3, h, 9) -> (n, 4, (h-1)//2+1, 5)
Conv2d(4, 3, dilation=2, padding="valid"): (n, 3, h, 9) -> (n, 4, h-4, 5)
ConvTranspose1d(4, 4, stride=2): (n, 3, t) -> (n, 4, (t)*2)
AvgPool2d(2): (n, c, h, w) -> (n, c, (h-2)//2+1, (w-2)//2+1)
AdaptiveAvgPool2d((2, 3)): (n, c, h, w) -> (n, c, 2, 3)
"""
"""Calls, with the shapes of the inputs and of the output."""


def _shape(text: str) -> tuple[int | str, ...]:
    dims = text.strip()[1:-1].split(",")
    return tuple(int(dim) if dim.strip().isdecimal() else dim.strip() for dim in dims if dim.strip())


@pytest.mark.parametrize("line", SHAPES.strip().splitlines())
def test_shapes(line: str):
    call, _, shapes = line.partition("): ")
    inputs, _, output = shapes.partition(" -> ")
    graph = eval(f"{call})", dict(vars(models))).graph
    data = [port.name for port in graph.inputs if port.role == "data"]
    specs = {port: TensorSpec(_shape(text)) for port, text in zip(data, inputs.split("@"), strict=True)}
    inference = infer(graph, specs)
    assert inference.problems == ()
    assert inference.outputs["output"].shape == _shape(output)
