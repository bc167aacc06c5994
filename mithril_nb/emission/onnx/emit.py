"""Emit a program as an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.build import check_sizes, flat_program
from mithril_nb.emission.onnx import contractions, control, elementwise, shapes
from mithril_nb.emission.onnx.graph import DTYPES, Graph, Node
from mithril_nb.emission.sizes import Size
from mithril_nb.emission.unsupported import check_dtypes
from mithril_nb.errors import UnsupportedPrimitiveError
from mithril_nb.stages.trace import traced

RULE_FILES = (contractions, control, elementwise, shapes)
"""The modules that register the rules."""
OPSET = 18
"""Version of the operators. It is the first version in which every reduction takes its axes as an input."""
_IR = 9


def emit_onnx(program: traced.Program, weights: dict[int, Any], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return a traced program as a serialized ONNX model.

    Args:
        program: The program.
        weights: A dict from the index of an input to its array. These inputs become constants of the model.
        inputs: Names of all inputs, in the order of the program.
        outputs: Names of the results.

    Raises:
        ImportError: The package `onnx` is not installed.
        UnsupportedPrimitiveError: ONNX cannot express a primitive or a dtype.
        StageUnavailableError: A size is a name, such as `"batch"`, and not the size of an axis of an input.
    """
    from onnx import checker, helper, numpy_helper

    check_sizes(program, takes_names=True)
    main, constants = flat_program(program)
    check_dtypes([main], "onnx", DTYPES.__contains__)
    graph = Graph()
    given = [(graph.new_name(name), value) for value, name in zip(main.inputs, inputs, strict=True)]
    for name, value in given:
        for axis, size in enumerate(value.shape):
            if str(size).isidentifier() and str(size) not in graph.sizes:
                graph.sizes[str(size)] = graph.add("Shape", name, start=axis, end=axis + 1)
    for name, value in given:  # the reshape fails if an array has another size
        is_named = any(isinstance(size, Size) for size in value.shape)
        graph.tensors[value] = graph.reshape(name, value.shape) if is_named else name
    for value, array in constants.items():
        graph.tensors[value] = graph.constant(array)
    names = [graph.new_name(name) for name in outputs]
    if not names:
        raise UnsupportedPrimitiveError(
            "backend 'onnx' cannot express a program without results.",
            (("program", program.trace.name),),
            "return an array from the function.",
        )
    graph.write(main)
    for name, value in zip(names, main.outputs, strict=True):
        graph.add("Identity", graph.tensor(value), outputs=[name])

    kinds = {dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in DTYPES}

    def info(name: str, value: Any) -> Any:
        shape = [str(size) if isinstance(size, Size) else size for size in value.shape]
        return helper.make_tensor_value_info(name, kinds[value.dtype], shape)

    def node(one: Node) -> Any:
        options: dict[str, Any] = {key: kinds[each] if key == "to" else each for key, each in one.attributes.items()}
        for key, body in one.bodies.items():
            inputs, outputs = ([info(*each) for each in part] for part in (body.inputs, body.outputs))
            options[key] = helper.make_graph([node(each) for each in body.nodes], key, inputs, outputs)
        return helper.make_node(one.op, one.inputs, one.outputs, one.name, one.source or None, **options)

    used = {name for one in _with_bodies(graph.nodes) for name in one.inputs}
    constants = {name: array for name, array in graph.constants.items() if name in used}
    tensors = {given[place][0]: np.asarray(array) for place, array in weights.items()}
    whole = helper.make_graph(
        [node(one) for one in graph.nodes],
        program.trace.name,
        [info(*each) for place, each in enumerate(given) if place not in weights],
        [info(name, value) for name, value in zip(names, main.outputs, strict=True)],
        [numpy_helper.from_array(array, name) for name, array in {**tensors, **constants}.items()],
    )
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR)
    model.producer_name = "mithril_nb"
    checker.check_model(model, full_check=False)
    return model.SerializeToString()


def _with_bodies(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield nodes, and the nodes in the bodies of loops and conditions."""
    for one in nodes:
        yield one
        for body in one.bodies.values():
            yield from _with_bodies(body.nodes)
