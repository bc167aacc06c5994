"""Random edits of a design, valid and invalid, for property tests and stress tests."""

from __future__ import annotations

import math
from random import Random
from typing import Any

from mithril_nb.errors import MithrilError
from mithril_nb.graph.parts import part_of
from mithril_nb.graph.records import Endpoint, LogicalGraph
from mithril_nb.models import KINDS, Model
from mithril_nb.models.saving.formats import to_source
from mithril_nb.ui.session.design import EDITS, PROGRAMS, Design

MOST_BLOCKS = 24
"""Number of blocks above which most edits remove blocks, because the time of an edit grows with the design."""
PLAIN_KINDS = ("Linear", "Relu", "Add", "MLP", "Softmax", "Shape", "Concat", "Conv2d", "Reshape", "LayerNorm", "Value")
NAMES = (
    "a",
    "b/c",
    "d.e",
    "100%",
    "ü",
    "блок",
    " ",
    "input",
    "output",
    "relu_0",
    "\ud800",
    "x" * 300,
    "²",
    "..",
    "%2F",
)


def nested(levels: int) -> list[Any]:
    """Return an empty list nested in lists."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


WRONG = (
    None, 3, -1, 2.5, math.nan, math.inf, True, "", "x", b"x", [], {}, [1], [[1]], ["x", None], 10**400, object(),
    10**5_000,
    nested(5_000), "\ud800", "a" * 5_000, "блок", "a/b", "..", "%", "²", "\x00", {1: 2}, [10**30, 10**30], [0],
    [2] * 100, "[[1,", "[" * 3_000, ("a",), range(3), 1j, set(), len, [["", "batch", "²"]], [["", "input.²", 3]],
)  # fmt: skip
"""Values of wrong types, or that no edit accepts."""


def assert_explained(error: MithrilError) -> None:
    """Assert that each diagnostic has facts and advice."""
    for found in error.diagnostics:
        assert found.facts, str(found)
        assert found.advice, str(found)


def random_edit(random: Random, design: Design) -> tuple[str, dict[str, Any]]:
    """Return the name and arguments of an edit; one in eight has a wrong argument."""
    graph, paths = design.graph, [path for path, _ in design.graph.walk()]
    name = random.choice((*EDITS, "add_block", "connect", "connect"))
    if len(paths) > MOST_BLOCKS:
        tops = [path for path in paths if "/" not in path]
        name, args = "remove", {"paths": random.sample(tops, max(1, len(tops) - 8))}
    else:
        args = _arguments(random, name, design, graph, paths)
    if random.random() < 0.125:
        args[random.choice([*args])] = random.choice(WRONG)
    return name, args


def _arguments(random: Random, name: str, design: Design, graph: LogicalGraph, paths: list[str]) -> dict[str, Any]:
    path = random.choice([*paths, *NAMES]) if random.random() < 0.1 or not paths else random.choice(paths)
    match name:
        case "add_block" | "place_block":
            kind = random.choice([*KINDS]) if random.random() < 0.1 else random.choice(PLAIN_KINDS)
            after = {"after": random.choice([path, None])} if name == "add_block" else {}
            if name == "place_block" and random.random() < 0.5:
                after = {"source": _end(random, graph, "outputs"), "target": _end(random, graph, "inputs")}
                after.pop(random.choice(["source", "target", ""]), None)
            return {"kind": kind, **after}
        case "remove" | "duplicate" | "group":
            level = [other for other in paths if other.rpartition("/")[0] == path.rpartition("/")[0]]
            chosen = random.sample(level, min(len(level), random.randrange(1, 5)))
            named = {"name": random.choice(NAMES)} if name == "group" and random.random() < 0.5 else {}
            return {"paths": [path] if name == "remove" else chosen or [path], **named}
        case "ungroup":
            groups = [found for found, node in graph.walk() if node.block.is_composite]
            return {"path": random.choice([*groups, path])}
        case "repeat":
            return {"path": path, "count": random.randrange(1, 5)}
        case "replace_block":
            return {"path": path, "kind": random.choice(PLAIN_KINDS)}
        case "paste":
            part = Model.of(part_of(graph, random.sample([*graph.by_name], 1))) if graph.nodes else Model()
            return {"text": random.choice([to_source(part), "Linear(3)", "x = 1", "((", "a = Model()\na += Foo()"])}
        case "insert" | "reconnect" if graph.edges:
            edge, other = random.choice(graph.edges), random.choice(graph.edges)
            more = {"path": path} if name == "insert" else {"to": str(other.target)}
            return {"source": str(edge.source), "target": str(edge.target), **more}
        case "insert" | "reconnect":
            return {"source": "input", "target": "output", **({"path": path} if name == "insert" else {"to": path})}
        case "set_source":
            text = to_source(Model.of(graph)).replace("\n", "  # a\n", random.randrange(3))
            return {"text": random.choice([text, text, "Linear(3)", "x = 1"])}
        case "set_loss":
            names = [port.name for port in graph.outputs] or ["output"]
            loss = random.choice(["cross_entropy", "mean_squared_error", "", "x"])
            return {"loss": loss, "output": random.choice([*names, ""])}
        case "expose":
            return {"source": _end(random, graph, "outputs")}
        case "rename_input" | "rename_output" | "hide_output":
            side = name.partition("_")[2]
            names = [port.name for port in getattr(graph, f"{side}s")] or [side]
            return {side: random.choice(names), **({"name": random.choice(NAMES)} if name != "hide_output" else {})}
        case "disconnect" if graph.edges and random.random() < 0.8:
            edge = random.choice(graph.edges)
            return {"source": str(edge.source), "target": str(edge.target)}
        case "connect" | "disconnect":
            return {"source": _end(random, graph, "outputs"), "target": _end(random, graph, "inputs")}
        case "rename":
            return {"path": path, "name": random.choice(NAMES) if random.random() < 0.5 else f"b{random.randrange(99)}"}
        case "set_attribute":
            options = [one for found, node in graph.walk() if found == path for one in node.block.options]
            value = random.choice([random.randrange(1, 99), 0.5, True, "same", [1, 2], (0,), None])
            return {"path": path, "name": random.choice([*options, "dimension"]), "value": value}
        case "set_trainable":
            return {
                "names": [random.choice([path, _end(random, graph, "inputs")])],
                "is_trainable": random.random() < 0.5,
            }
        case "share":
            return {"source": _end(random, graph, "inputs"), "target": _end(random, graph, "inputs")}
        case "unshare":
            return {"target": _end(random, graph, "inputs")}
        case "set_initializer":
            text = random.choice(["", "zeros", "normal(0.02)", "nothing"])
            return {"parameter": _end(random, graph, "inputs"), "initializer": text}
        case "set_shape" | "set_dtype":
            known = [port.name for port in graph.inputs] or ["input"]
            if name == "set_dtype":
                return {"name": random.choice(known), "dtype": random.choice(["float32", "int32", "", "x"])}
            return {"name": random.choice(known), "shape": [random.randrange(9) for _ in range(random.randrange(4))]}
        case _:
            return {"program": random.choice(PROGRAMS)}


def _end(random: Random, graph: LogicalGraph, side: str) -> str:
    ends = [Endpoint("", port.name) for port in getattr(graph, side)]
    texts = [str(end) for end in ends]
    for path, node in graph.walk():
        texts += [f"{path}.{Endpoint('', port.name)}" for port in getattr(node.block, side)]
    return random.choice([*texts, random.choice(NAMES)])
