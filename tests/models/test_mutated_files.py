"""Randomly broken model files: each is read exactly or rejected, and no code in it runs."""

import copy
import json
import random
import re
import sys
import time
from collections.abc import Callable
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from mithril_nb.errors import LONGEST, MithrilError
from mithril_nb.graph.boundary import made_edges
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models import (
    GPT,
    KINDS,
    MLP,
    Add,
    Conv2d,
    IOKey,
    Linear,
    Model,
    Relu,
    Repeat,
    from_dict,
    load,
    to_dict,
)
from mithril_nb.models.fields import fields_of
from mithril_nb.models.initializers import initializer_text

LONGEST_S = 10
"""Time for one small file, on a busy machine."""
JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**64, 10**400, 0.5, 1e308, float("nan"), float("inf"), -float("inf"),
    "", "x", "input", "Linear", "Relu", "Model", "Repeat", "float32", "__import__('os').system('true')", "a.b", "a/b",
    "é\u202e\U0001f600", "\ud800", "\x00", "x" * 1_001, "x" * 5_000, [], {}, [[]], [1] * 5_000, {"a": {}}, ["x", -1],
    ["", "input", "linear_0", "input"],
)  # fmt: skip


def originals() -> list[dict]:
    """Return models that use every part of the format."""
    plain = Model(name="net") | Linear(3)(input="x", output="h")
    plain |= Relu()(input="h", output="y")
    noted = Model() | Linear(8)(input="x", weight=IOKey("w", differentiable=False))
    noted += Relu()
    noted += Linear(2)
    noted.set_shapes({"x": ["batch", 4]})
    noted.set_initializers({"linear_1.weight": "normal(0.02)"})
    nested = Model() | Model.of((noted + MLP(8, [4], 2)).graph, "inner")(x="input")
    nested |= Add()(left="input", right=[[1, 2.5], [3, -0.0]])
    loops = Model() | Repeat(Model() + Linear(3) + Relu(), 4)(input="x")
    images = Model() + Conv2d(3, 8) + Relu()
    text = Model() + GPT(20, 8, layers=1, heads=2, width=8)
    return [to_dict(model) for model in (plain, noted, nested, loops, images, text)]


def places(data: Any) -> list[tuple[Any, Any]]:
    """Return every container of the data with every key of it."""
    found, left = [], [data]
    while left:
        one = left.pop()
        keys = one if isinstance(one, dict) else range(len(one))
        found += [(one, key) for key in keys]
        left += [one[key] for key in keys if isinstance(one[key], dict | list)]
    return found


def mutated(data: dict, dice: random.Random) -> bytes:
    """Return the bytes of a file with the data after a few changes."""
    data = copy.deepcopy(data)
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        where, key = dice.choice(places(data))
        match dice.randrange(7):
            case 0:
                del where[key]
            case 1 if isinstance(where, list):
                where.insert(key, copy.deepcopy(where[key]))
            case 2:
                where[key] = copy.deepcopy(dice.choice(places(data))[0])
            case 3:
                where[key] = f"@{dice.choice((10, 70, 900, 5_000))}@"  # so many levels of lists
            case 4 if isinstance(where, dict):
                where[dice.choice(("attributes", "graph", "op", "notes", "shape", "more"))] = where.pop(key)
            case 5 if isinstance(where[key], str):
                where[key] += dice.choice(("_", " ", "\u0301", "é", ".", "\n"))
            case _:
                where[key] = copy.deepcopy(dice.choice(JUNK))
    text = json.dumps(data)
    text = re.sub(r'"@(\d+)@"', lambda found: "[" * int(found[1]) + "]" * int(found[1]), text).encode()
    for _ in range(dice.choice((0, 0, 1, 1, 4))):
        place, length = dice.randrange(max(len(text), 1)), dice.randrange(20)
        match dice.randrange(5):
            case 0:
                text = text[:place]
            case 1:
                text = text[:place] + text[place + length :]
            case 2:
                text = text[:place] + text[place : place + length] * 2 + text[place + length :]
            case 3:
                text = text[:place] + dice.choice((b"[", b"{", b'"', b"\\", b"\xff", b"9" * 500)) + text[place:]
            case _:
                changed = bytearray(text)
                if changed:
                    changed[place] ^= 1 << dice.randrange(8)
                text = bytes(changed)
    return text


def same(option: Any, value: Any) -> bool:
    """Return whether an attribute has the value in the file."""
    if isinstance(option, tuple):
        if isinstance(value, str):
            value = [int(part) for part in value.replace(",", " ").strip("()[] ").split()]
        values = value if isinstance(value, list) else [value]
        values = values * len(option) if len(values) == 1 else values
        return len(option) == len(values) and all(map(same, option, values))
    if isinstance(option, float) and isinstance(value, float) and isnan(option):
        return isnan(value)
    return option == value or (isinstance(option, int | float) and isinstance(value, str) and option == float(value))


def agrees(graph: LogicalGraph, data: dict) -> bool:
    """Return whether a graph has exactly the content of its data."""
    nodes = {node.name: node.block for node in graph.nodes}
    edges = sorted([*edge.source, *edge.target] for edge in made_edges(graph))
    inputs = {name: ["", name] for node, name, *_ in data["edges"] if not node}
    labels = inputs | {name: end for name, *end in data["labels"]}
    notes = {(note["node"], note["port"]): note for note in data.get("notes", ())}
    shown = {tuple(end): note for end, note in graph.notes}
    return (
        sorted(nodes) == sorted(node["name"] for node in data["nodes"])
        and edges == sorted(data["edges"])
        and {name: [*end] for name, end in graph.labels} == labels
        and all(_agrees_with_note(shown.get(end), note) for end, note in notes.items())
        and len(shown) <= len(notes)
        and all(_agrees_with_node(nodes[node["name"]], node) for node in data["nodes"])
    )


def _agrees_with_note(note: Any, data: dict) -> bool:
    declared = {key: value for key, value in data.items() if key not in ("node", "port") and value not in (None, False)}
    declared |= {"is_trainable": False} if data.get("is_trainable") is False else {}
    if "initializer" in declared:
        declared["initializer"] = initializer_text(declared["initializer"])
    return not declared if note is None else all(same(getattr(note, key), value) for key, value in declared.items())


def _agrees_with_node(block: Any, data: dict) -> bool:
    return (
        block.kind == data["kind"]
        and block.op == data.get("op", block.op)
        and all(same(block.options[key], value) for key, value in data.get("attributes", {}).items())
        and ("graph" not in data or agrees(block.graph, data["graph"]))
    )


@pytest.fixture
def events() -> Any:
    """Record events that run, import or change something while a file is read. A hook cannot be removed."""
    for kind in KINDS.values():
        fields_of(kind)  # evaluates the annotations of our own signatures, once
    seen: list[str] = []
    watched = {"exec", "compile", "import", "os.system", "subprocess.Popen", "pickle.find_class", "os.remove"}
    active = False

    def switch(state: bool) -> None:
        nonlocal active
        active = state

    sys.addaudithook(lambda event, args: seen.append(event) if active and event in watched else None)
    yield seen, switch
    switch(False)


def read(path: Path, switch: Callable[[bool], None]) -> tuple[Model | None, str, float]:
    """Return the model of a file or the error, and the elapsed time."""
    started = time.monotonic()
    switch(True)
    try:
        return load(path), "", time.monotonic() - started
    except MithrilError as error:
        return None, str(error), time.monotonic() - started
    finally:
        switch(False)


def test_mutated_files_load_exactly_or_are_rejected(stress, tmp_path, events):
    count = stress.size(short=60, long=1_500)
    seen, switch = events
    sources, path, loaded, slowest = originals(), tmp_path / "model.json", 0, 0.0
    for source in sources:
        path.write_text(json.dumps(source))
        assert read(path, lambda state: None)[0] == from_dict(source)  # imports what it needs
    for number in range(count):
        dice = random.Random(number)
        text = mutated(sources[number % len(sources)], dice)
        path.write_bytes(text)
        model, message, seconds = read(path, switch)
        slowest = max(slowest, seconds)
        if model is None:
            assert message
            assert len(message) <= LONGEST, number
            assert "Try: " in message, number
        else:
            loaded += 1
            data = json.loads(text)
            assert agrees(model.graph, data["graph"]), number
            assert (model.name or "") == data["name"], number
            assert from_dict(model.to_dict()) == model, number
    stress.report(files=count, loaded=loaded, refused=count - loaded, escaped=0, slowest_s=round(slowest, 2))
    assert seen == []
    assert slowest < LONGEST_S
