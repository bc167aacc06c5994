"""Random models for property tests: any composition, any names, always with arrays of shape `(n, WIDTH)`."""

from __future__ import annotations

from functools import cache

from hypothesis import settings
from hypothesis import strategies as st

from mithril_nb.errors import ConnectionError, CycleError, NameTakenError
from mithril_nb.graph.records import Endpoint
from mithril_nb.models import MLP, Add, Dropout, Gelu, LayerNorm, Linear, Model, Relu, Softmax, Tanh

WIDTH = 4
modest = settings(max_examples=40)
"""Settings for tests whose examples are whole models with many small parts."""
HOSTILE = (
    "a/b", "a.b", "100%", "%2F", "%", "f(x)", "a[0]", "block:a", "it's \"so\"", "<script>alert(1)</script>", "блок",
    "line\nbreak", " ", "self", "input", "output", "Model", "Linear", "class", "relu_0", "relu_0_output",
    "...", "\\", "{x}",
)  # fmt: skip
"""Names that are special in paths, HTML, Python, JAX or mithril_nb."""

names = st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=6).filter(lambda text: text.strip("\x00"))


plain_names = st.sampled_from(("a", "b", "c"))
port_names = st.sampled_from(
    ("x", "y", "h", "hidden", "input", "output", "self", "a b", "100%", "<b>", "ü", "linear_0")
)


@cache  # building a strategy for each step costs more than the step
def leaf_blocks(hostile: bool = True) -> st.SearchStrategy[Model]:
    """Draw blocks whose inputs and outputs have shape `(n, WIDTH)`."""
    flags, named = st.booleans(), st.none() | (names if hostile else plain_names)
    return st.one_of(
        st.builds(Relu, name=named),
        st.builds(Tanh, name=named),
        st.builds(Gelu, flags, name=named),
        st.builds(Softmax, st.sampled_from((-1, 1, 0)), name=named),
        st.builds(Dropout, st.sampled_from((0.0, 0.5)), st.sampled_from((None, False)), name=named),
        st.builds(Add, name=named),
        st.builds(LayerNorm, flags, flags, name=named),
        st.builds(Linear, st.just(WIDTH), flags, st.sampled_from((None, WIDTH)), name=named),
        st.builds(MLP, st.none(), st.sampled_from(((), (3,), (3, 2))), st.just(WIDTH), name=named),
    )


@cache
def parts(depth: int, hostile: bool) -> st.SearchStrategy[Model]:
    """Draw a block, or a model drawn earlier, for the next step."""
    leaves = leaf_blocks(hostile)
    if not depth:
        return leaves
    inner = st.builds(
        lambda model, name: Model.of((model if model.graph.nodes else model + Relu()).graph, name),
        models(depth=depth - 1, most=3, hostile=hostile),
        st.none() | (names if hostile else plain_names),
    )
    return st.integers(0, 3).flatmap(lambda pick: leaves if pick else inner)  # one_of would weigh them otherwise


@st.composite
def models(draw: st.DrawFn, *, depth: int = 2, most: int = 6, hostile: bool = True) -> Model:
    """Draw a model composed in random steps; a rejected step leaves the model unchanged."""
    model = Model()
    for _ in range(draw(st.integers(0, most))):
        part = draw(parts(depth, hostile))
        connections = draw_connections(draw, model, part)
        before = model.graph
        try:
            if draw(st.booleans()):
                model += part(**connections)
            else:
                model |= part(**connections)
        except (ConnectionError, CycleError, NameTakenError):
            assert model.graph is before
    return model


def draw_connections(draw: st.DrawFn, model: Model, part: Model) -> dict[str, str]:
    """Draw names for some ports of a block: known names, new names, and endpoints."""
    graph = model.graph
    known = [str(Endpoint("", name)) for name, _ in graph.labels]
    known += [str(Endpoint("", port.name)) for port in (*graph.inputs, *graph.outputs)]
    known += [str(Endpoint(node.name, port.name)) for node in graph.nodes for port in node.block.outputs]
    anywhere = port_names | st.sampled_from(known) if known else port_names
    connections = {}
    for port in part.inputs:
        # A parameter port gets only new names, because a weight's shape is not (n, WIDTH).
        if port.role == "data" and draw(st.integers(0, 2)) == 0:
            connections[port.name] = draw(anywhere)
    for port in part.outputs:
        if draw(st.integers(0, 3)) == 0:
            connections[port.name] = draw(port_names)
    return connections
