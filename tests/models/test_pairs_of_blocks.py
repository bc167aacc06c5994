"""Every pair of block kinds connects, or the error names the port that does not fit and the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from itertools import combinations
from random import Random

import pytest
from random_edits import assert_explained

import mithril_nb as ml
from mithril_nb.errors import MithrilError
from mithril_nb.graph.edit import add, connect
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.graph.spec import LEADING, StaticSpec, TensorSpec
from mithril_nb.models import (
    KINDS,
    Add,
    Clamp,
    Cond,
    EncoderDecoder,
    EncoderDecoderInference,
    Glu,
    Layer,
    Linear,
    MatrixMultiply,
    MaxPool2d,
    Model,
    PositionalEncoding,
    Relu,
    Repeat,
    RNNCell,
    ScaledDotProduct,
    Scan,
    TensorToList,
)  # fmt: skip
from mithril_nb.models.registry import example_call
from mithril_nb.models.shape_inference.infer import Inference, infer
from mithril_nb.ui.session.design import EDITS, Design

OF_BLOCKS: dict[str, Callable[[], Model]] = {
    "Cond": lambda: Cond(Relu(), Linear(4)),
    "Layer": lambda: Layer(activation=Relu(), dimension=4),
    "Repeat": lambda: Repeat(Linear(4), 2),
    "Scan": lambda: Scan(Add(), carry={"output": "left"}, axis=0),
    "EncoderDecoder": lambda: EncoderDecoder(RNNCell(4), 2, 2),
    "EncoderDecoderInference": lambda: EncoderDecoderInference(RNNCell(4), 2, 2),
}
"""Kinds that `example_call` leaves to the reader, as they take blocks."""
REGISTERED = [kind for kind, made in KINDS.items() if made.__module__.startswith("mithril_nb.")]
"""Kinds of the package; other tests register kinds of their own."""
DOORS = ("edit", "+=", "|=", "|", "session", "compile")


@cache
def example_of(kind: str) -> Model:
    """Return a block of a kind."""
    return OF_BLOCKS[kind]() if kind in OF_BLOCKS else eval(example_call(KINDS[kind]), dict(KINDS))


def joined(source: Model, output: str, target: Model, port: str, door: str) -> Inference | None:
    """Connect two blocks in one of the possible ways, and infer the shapes."""
    if door in ("edit", "session"):
        graph, first = add(LogicalGraph(), source.block, name="first")
        graph, second = add(graph, target.block, name="second")
        ends = Endpoint(first, output), Endpoint(second, port)
        if door == "edit":
            return infer(connect(graph, *ends), {})
        return infer(EDITS["connect"](Design(graph), *map(str, ends)).design.graph, {})
    named = {port: f"first.{component(output)}"}
    model = Model() | Model.of_block(source.block, "first")
    if door == "+=":
        model += target(**named)
    elif door == "|":
        model = model | target(**{port: getattr(model, output)} if hasattr(model, output) else named)
    else:
        model |= target(**named)
    if door == "compile":
        ml.compile(model)
        return None
    return infer(model.graph, {})


def assert_placed(found: Inference | None) -> None:
    for problem in found.problems if found else ():
        assert problem.block, str(problem)
        assert problem.facts, str(problem)
        assert problem.advice, str(problem)


def test_any_two_kinds_connect_or_explain_why_not(stress):
    sources, targets = (
        [kind for kind in REGISTERED if getattr(example_of(kind).block, side)] for side in ("outputs", "inputs")
    )
    pairs = [(source, target) for source in sources for target in targets]
    random, counts = Random(0), Counter[str]()
    tried = random.sample(pairs, stress.size(short=400, long=len(pairs)))
    for number, (source, target) in enumerate(tried):
        output = random.choice(example_of(source).block.outputs).name
        port = random.choice(example_of(target).block.inputs).name
        try:
            found = joined(example_of(source), output, example_of(target), port, DOORS[number % len(DOORS)])
        except MithrilError as error:
            assert_explained(error)
            counts["refused"] += 1
        else:
            assert_placed(found)
            counts["problems" if found and found.problems else "fine"] += 1
    stress.report(pairs=len(pairs), tried=len(tried), **counts)


@pytest.mark.parametrize("target", [Linear(4), MatrixMultiply(), MaxPool2d(2), ScaledDotProduct()], ids=repr)
def test_a_static_value_before_an_array_block(target):
    for port in target.inputs:
        if port.role == "data":
            assert_placed(joined(TensorToList(), "output", target, port.name, "|="))


SPECS = (
    *(TensorSpec(shape) for shape in ((), (4,), (0,), (2, 3, 4), (2, 3, 8, 8), (LEADING,), (LEADING, 3), ("n+1", "n"))),
    *(TensorSpec((4, 4), dtype) for dtype in ("int32", "bool", "complex64")),
    *(StaticSpec(value) for value in ((), (4, 4), (LEADING,), ("n", 3), 3, -5, 2.5, True, None, "n", "float32", "x y")),
    *(StaticSpec(value) for value in (10**30, float("nan"), ((1, 2), (3,)), ("slice", 0, "n", None), (-1,), (1.5,))),
    StaticSpec(is_known=False),
)


def test_any_spec_at_any_port_fits_or_is_explained(stress, monkeypatch):
    ports = [(kind, port) for kind in REGISTERED for port in example_of(kind).block.inputs]
    cases = [(kind, port, spec) for kind, port in ports for spec in SPECS]
    tried = Random(0).sample(cases, stress.size(short=500, long=len(cases)))
    value = KINDS["Value"](0)
    problems = 0
    for kind, port, spec in tried:
        graph, _ = add(LogicalGraph(), value.block, name="value")
        graph, _ = add(graph, example_of(kind).block, name="block", connections={port.name: "value.output"})
        # A block whose output has the spec.
        monkeypatch.setattr(type(value), "infer", lambda *_, spec=spec: spec)
        found = infer(graph, {})
        assert_placed(found)
        problems += bool(found.problems)
    stress.report(cases=len(cases), tried=len(tried), problems=problems)


def test_a_reader_needs_a_shape_that_a_block_cannot_output():
    model = Model() | Glu()
    model |= Clamp()(input="x", min_val="glu_0.output")
    (problem,) = infer(model.graph, {}).problems
    assert str(problem) == (
        "Glu at 'glu_0' cannot output the required shape.\n"
        "    required by  clamp_0.min_val\n"
        "    output       ()\n"
        "    input        needs an array that has axis -1\n"
        "    found        rank 0\n"
        "    Try: connect another output to 'clamp_0.min_val'."
    )


def test_a_connected_attribute_that_is_not_a_number():
    model = Model() | KINDS["Dtype"]()
    model |= PositionalEncoding(8)(input="x", hidden_dim="dtype_0.output")
    (problem,) = infer(model.graph, {}).problems
    assert str(problem) == (
        "cannot connect 'dtype_0.output' to 'positional_encoding_0.hidden_dim'.\n"
        "    output      static 'float32'\n"
        "    hidden_dim  needs a whole number from 1 to 1048576\n"
        "    found       'float32'\n"
        "    Try: connect a number, or leave 'hidden_dim' open."
    )


@pytest.mark.parametrize("kind", REGISTERED)
def test_two_ports_of_a_block_read_one_array(kind):
    block = example_of(kind)
    ports = [port.name for port in block.block.inputs if port.role != "option"]
    for one, other in combinations(ports, 2):
        with suppress(MithrilError):
            model = Model() | block(**{one: "input", other: "input"})
            assert all(problem.block for problem in infer(model.graph, {}).problems)
