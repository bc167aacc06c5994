"""Emit a program as an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from mithril_nb.emission.build import check_sizes, flat_program
from mithril_nb.emission.onnx import contractions, control, elementwise, shapes
from mithril_nb.emission.onnx.graph import DTYPES, OnnxGraph, OnnxNode
from mithril_nb.emission.sizes import NamedSize, has_names
from mithril_nb.emission.unsupported import check_dtypes
from mithril_nb.errors import UnsupportedPrimitiveError
from mithril_nb.stages.trace import traced

RULE_FILES = (contractions, control, elementwise, shapes)
"""The modules that register the rules."""
OPSET = 18
"""Version of the operators. It is the first version in which every reduction takes its axes as an input."""
_IR = 9


def emit_onnx(program: traced.Program, weights: dict[int, Any], inputs: Sequence[str], outputs: Sequence[str]) -> bytes:
    """Return a traced program as a serialized ONNX model. The inputs with `weights`, by index, are constants."""
    from onnx import checker, helper, numpy_helper

    check_sizes(program, takes_names=True)
    main, constants = flat_program(program)
    check_dtypes([main], "onnx", DTYPES.__contains__)
    graph = OnnxGraph()
    graph_inputs = [(graph.new_name(name), value) for value, name in zip(main.inputs, inputs, strict=True)]
    # A vector with each size, once, for all formulas that contain its name.
    for name, value in graph_inputs:
        for axis, size in enumerate(value.shape):
            if str(size).isidentifier() and str(size) not in graph.sizes:
                graph.sizes[str(size)] = graph.add("Shape", name, start=axis, end=axis + 1)
    for name, value in graph_inputs:  # the reshape fails if an array has another size
        graph.tensors[value] = graph.reshape(name, value.shape) if has_names(value.shape) else name
    for value, array in constants.items():
        graph.tensors[value] = graph.constant(array)
    names = [graph.new_name(name) for name in outputs]
    if not names:  # the checker rejects a graph without outputs
        raise UnsupportedPrimitiveError(
            "backend 'onnx' cannot express a program without results.",
            (("program", program.trace.name),),
            "return an array from the function.",
        )
    graph.write(main)
    for name, value in zip(names, main.outputs, strict=True):
        # A result may be an input or a constant, which has a name of its own.
        graph.add("Identity", graph.tensor(value), outputs=[name])

    kinds = {dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in DTYPES}

    def info(name: str, value: Any) -> Any:
        shape = [str(size) if isinstance(size, NamedSize) else size for size in value.shape]
        return helper.make_tensor_value_info(name, kinds[value.dtype], shape)

    def node(entry: OnnxNode) -> Any:
        options: dict[str, Any] = {key: kinds[each] if key == "to" else each for key, each in entry.attributes.items()}
        for key, body in entry.bodies.items():
            inputs, outputs = ([info(*each) for each in part] for part in (body.inputs, body.outputs))
            options[key] = helper.make_graph([node(each) for each in body.nodes], key, inputs, outputs)
        return helper.make_node(
            entry.operator, entry.inputs, entry.outputs, entry.name, entry.source or None, **options
        )

    # Some rules create a constant before a special case that does not read it.
    used = {name for entry in _with_bodies(graph.nodes) for name in entry.inputs}
    constants = {name: array for name, array in graph.constants.items() if name in used}
    tensors = {graph_inputs[index][0]: np.asarray(array) for index, array in weights.items()}
    main_graph = helper.make_graph(
        [node(entry) for entry in graph.nodes],
        program.trace.name,
        [info(*each) for index, each in enumerate(graph_inputs) if index not in weights],
        [info(name, value) for name, value in zip(names, main.outputs, strict=True)],
        [numpy_helper.from_array(array, name) for name, array in {**tensors, **constants}.items()],
    )
    model = helper.make_model(main_graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR)
    model.producer_name = "mithril_nb"
    checker.check_model(model, full_check=False)
    return model.SerializeToString()


def _with_bodies(nodes: Iterable[OnnxNode]) -> Iterator[OnnxNode]:
    for node in nodes:
        yield node
        for body in node.bodies.values():
            yield from _with_bodies(body.nodes)
