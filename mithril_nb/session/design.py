"""What a person designs in a workbench, as a value, and the edits of it: each a pure function.

Undo is keeping the designs of before.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax

from mithril_nb.errors import ConnectionError, UnknownBlockError, UnknownOptionError, short_repr
from mithril_nb.graph import edit
from mithril_nb.graph.nesting import inside, placed, rename_inside
from mithril_nb.graph.paths import join_path, split_path
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import Dim, check_rank
from mithril_nb.models.fields import example, fields_of
from mithril_nb.models.files import from_dict, to_dict
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.models.naming import input_specs
from mithril_nb.models.registry import KINDS, kind_named
from mithril_nb.train.losses import resolve_loss

PROGRAMS = ("forward", "forward+backward", "train step")


@dataclass(frozen=True)
class Design:
    """A model, the shapes that it is looked at with, and the program that is looked at.

    Attributes:
        graph: The logical graph.
        shapes: Pairs of input name and shape, of numbers and names of sizes.
        program: `"forward"`, `"forward+backward"` or `"train step"`.
        name: Name of the model.
        output: Name of the output that is trained on, of a model with several; `""` while none is chosen.
        loss: Name of the loss; `""` for the loss that the workbench was opened with.
        uses_example_data: Whether it trains on the generated data of the example if the user gave no data.
    """

    graph: LogicalGraph
    shapes: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    program: str = "train step"
    name: str = "model"
    output: str = ""
    loss: str = ""
    uses_example_data: bool = False


@dataclass(frozen=True)
class Change:
    """A new design, and how it came about.

    Attributes:
        design: The design.
        label: What was done, for the undo button: `"dimension of linear_0"`.
        selection: Paths of the blocks that shall be selected; `None` leaves the selection.
        renamed: The path that changed, before and after.
        is_gesture: Whether it comes from a slider, whose many small moves are one step of undo.
        edits: Number of edits that it is: more than one if it restores edits.
        restored: Labels of the latest edits that it restores, oldest first.
    """

    design: Design
    label: str
    selection: tuple[str, ...] | None = None
    renamed: tuple[str, str] | None = None
    is_gesture: bool = False
    edits: int = 1
    restored: tuple[str, ...] = ()


def add_block(design: Design, kind: str, after: str | None = None) -> Change:
    """Add a block of a kind after another, or after the last one: it takes over the readers of its output.

    After a block without outputs, such as a composite with nothing inside, it is connected to nothing.

    Raises:
        UnknownBlockError: No such kind, or no such block.
    """
    block = _fresh(kind)
    names = split_path(after or "")
    parent, anchor = names[:-1], names[-1] if names else ""
    added = ""

    def insert(graph: LogicalGraph) -> LogicalGraph:
        nonlocal added
        before = edit.node_of(graph, anchor) if names else graph.nodes[-1] if graph.nodes else None
        if before is None or not before.block.outputs:
            graph, added = edit.add(graph, block)
            return graph
        source = Endpoint(before.name, before.block.outputs[0].name)
        readers = [t for t in graph.targets_of.get(source, ()) if t.node != BOUNDARY]
        graph, added = edit.add(graph, block, after=source)
        for reader in readers if block.outputs else ():
            graph = edit.connect(graph, Endpoint(added, block.outputs[0].name), reader)
        return graph

    graph = inside(design.graph, parent, insert)
    path = "/".join([*map(_part, parent), _part(added)])
    return Change(replace(design, graph=graph), f"add {kind}", (path,))


def place_block(design: Design, kind: str) -> Change:
    """Add a block of a kind that is connected to nothing yet."""
    graph, name = edit.add(design.graph, _fresh(kind))
    return Change(replace(design, graph=graph), f"add {kind}", (_part(name),))


def remove_blocks(design: Design, paths: Sequence[str]) -> Change:
    """Remove blocks; what fed a removed block then feeds what read it."""
    graph = design.graph
    # Inner ones first, so that a path is still there when its turn comes.
    for path in sorted(set(paths), key=lambda path: -path.count("/")):
        parent, name = _place(design.graph, "remove", path)
        graph = inside(graph, parent, lambda level, name=name: edit.remove(level, [name], bridge=True))
    what = paths[0] if len(paths) == 1 else f"{len(paths)} blocks"
    is_example = design.uses_example_data and bool(graph.nodes)  # a model built from nothing is another one
    return Change(replace(design, graph=graph, uses_example_data=is_example), f"remove {what}", ())


def connect(design: Design, source: str, target: str) -> Change:
    """Connect an output to an input, both given as `"path.port"`, or a model input by its name."""
    parent, start, end = _ends(design.graph, source, target)
    graph = inside(design.graph, parent, lambda level: edit.connect(level, start, end))
    return Change(replace(design, graph=graph), f"connect {source} to {target}")


def disconnect(design: Design, source: str, target: str) -> Change:
    """Take a connection away."""
    parent, start, end = _ends(design.graph, source, target)
    graph = inside(design.graph, parent, lambda level: edit.disconnect(level, start, end))
    return Change(replace(design, graph=graph), f"disconnect {target}")


def rename(design: Design, path: str, name: str) -> Change:
    """Give a block another name."""
    parent, old = _place(design.graph, "rename", path)
    graph = rename_inside(design.graph, (*parent, old), name)
    prefix = "/".join(map(_part, parent))
    before, after = join_path(prefix, old), join_path(prefix, name)
    # An input that is named after the block is renamed with it, and keeps its shape.
    names = {port.name: now.name for port, now in zip(design.graph.inputs, graph.inputs, strict=True)}
    shapes = tuple((names.get(port, port), shape) for port, shape in design.shapes)
    outputs = {port.name: now.name for port, now in zip(design.graph.outputs, graph.outputs, strict=True)}
    output = outputs.get(design.output, design.output)
    renamed = replace(design, graph=graph, shapes=shapes, output=output)
    return Change(renamed, f"rename {old}", (after,), (before, after))


def set_attribute(design: Design, path: str, name: str, value: Any) -> Change:
    """Set an attribute of a block; the block is made anew by its constructor, which checks the value."""
    parent, block_name = _place(design.graph, f"set {name!r} of", path)

    def change(graph: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(graph, block_name).block
        if block.graph is not None and not block.attributes:
            raise UnknownOptionError(
                f"block {path!r} is a model composed of blocks: it has no attribute {name!r}.",
                (("inside", ", ".join(repr(node.name) for node in block.graph.nodes) or "nothing"),),
                "select one of the blocks inside.",
                block=_part(block_name),
            )
        with placed(block_name):
            changed = with_attributes(Model.of_block(block), {name: _read(block, name, value)})
        return edit.swap(graph, block_name, changed.block)

    graph = inside(design.graph, parent, change)
    return Change(replace(design, graph=graph), f"{name} of {block_name}", is_gesture=True)


def set_shape(design: Design, name: str, shape: Sequence[Any]) -> Change:
    """Set the shape of a model input, of numbers and of names of sizes.

    Raises:
        UnknownOptionError: The shape is none, or has more than 64 axes.
    """
    return Change(_with_shape(design, name, shape, "shape=[32, 784]"), f"shape of {name}", is_gesture=True)


def _with_shape(design: Design, name: str, shape: Sequence[Any], advice: str) -> Design:
    if isinstance(shape, list | tuple):
        check_rank(name, shape)
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
    refused = [] if is_list else ["it is no list"]
    for dim in () if refused else shape:
        is_number = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0
        if not is_number and not (isinstance(dim, str) and _is_size_name(dim)):
            refused.append(f"{short_repr(dim)} is neither a whole number from 0 on nor a name")
    if refused:
        raise UnknownOptionError(
            f"{short_repr(shape)} is not a shape for input {name!r}.",
            (("because", "; ".join(refused)), ("needs", "whole numbers, or names of sizes such as batch")),
            advice,
            port=name,
        )
    shapes = {**dict(design.shapes), name: tuple(shape)}
    return replace(design, shapes=tuple(shapes.items()))


def set_program(design: Design, program: str) -> Change:
    """Look at another program.

    Raises:
        UnknownOptionError: There is no such program.
    """
    if program not in PROGRAMS:
        raise UnknownOptionError(
            f"unknown program {short_repr(program)}.", (("known", ", ".join(PROGRAMS)),), f'program="{PROGRAMS[0]}"'
        )
    return Change(replace(design, program=program), "program")


def set_output(design: Design, output: str) -> Change:
    """Choose the output that is trained on.

    Raises:
        UnknownOptionError: The model has no such output.
    """
    outputs = [port.name for port in design.graph.outputs]
    if output not in outputs:
        example = f'output="{outputs[-1]}"' if outputs else ""
        raise UnknownOptionError(
            f"the model has no output {output!r}.", (("outputs", ", ".join(map(repr, outputs)) or "none"),), example
        )
    return Change(replace(design, output=output), "output that is trained on")


def set_loss(design: Design, loss: str) -> Change:
    """Choose the loss by its name.

    Raises:
        UnknownOptionError: No loss has this name.
    """
    return Change(replace(design, loss=resolve_loss(loss).name), "loss")


EDITS: Mapping[str, Callable[..., Change]] = {
    "add_block": add_block,
    "place_block": place_block,
    "remove": remove_blocks,
    "connect": connect,
    "disconnect": disconnect,
    "rename": rename,
    "set_attribute": set_attribute,
    "set_shape": set_shape,
    "set_program": set_program,
    "set_output": set_output,
    "set_loss": set_loss,
}
"""The edits by name, as a front end asks for them."""


def _read(block: Block, name: str, value: Any) -> Any:
    """What somebody typed into a field for any plain data: `[1, 2]` and `0.5` are data, `same` is a text."""
    kind = KINDS.get(block.kind)
    is_typed = isinstance(value, str) and kind and any(f.name == name and f.type == "value" for f in fields_of(kind))
    if not is_typed:
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value


def _fresh(kind: str) -> Block:
    """A block of a kind with what it needs to start from."""
    constructor = kind_named(kind)
    needed = {field.name: example(field) for field in fields_of(constructor) if field.is_required}
    started = {field.name: field.start for field in fields_of(constructor) if field.start is not None}
    return constructor(**needed, **started).block


def _place(graph: LogicalGraph, change: str, path: str) -> tuple[tuple[str, ...], str]:
    """Return the names down to the level of a block, and its name there.

    Raises:
        UnknownBlockError: The path is that of the model.
    """
    *parent, name = split_path(path) or ("",)
    if not name and not parent:
        known = [_part(node.name) for node in graph.nodes]
        raise UnknownBlockError(
            f"cannot {change} the model: a block is needed.",
            (("path", repr(path)), ("blocks", ", ".join(map(repr, known)) or "none")),
            f"path={known[0]!r}" if known else "add a block first.",
        )
    return tuple(parent), name


def _ends(graph: LogicalGraph, source: str, target: str) -> tuple[tuple[str, ...], Endpoint, Endpoint]:
    """The level on which two texts lie, and the endpoints that they are there."""
    source_level, start = _end(graph, source, {port.name for port in graph.inputs})
    target_level, end = _end(graph, target, {port.name for port in graph.outputs})
    # Seen from inside, a port of the composite block around is a port of the graph's own boundary.
    if start.node == BOUNDARY or (*source_level, start.node) == target_level:
        source_level, start = target_level, Endpoint(BOUNDARY, start.port)
    elif (*target_level, end.node) == source_level:
        target_level, end = source_level, Endpoint(BOUNDARY, end.port)
    if source_level != target_level:
        raise ConnectionError(
            f"cannot connect {source!r} to {target!r}: they lie in different models.",
            (
                ("source in", "/".join(source_level) or "the model"),
                ("target in", "/".join(target_level) or "the model"),
            ),
            "connect to a port of the composite block around it.",
            edge=(source, target),
        )
    return target_level, start, end


def _end(graph: LogicalGraph, text: str, boundary: set[str]) -> tuple[tuple[str, ...], Endpoint]:
    if text in boundary:
        return (), Endpoint(BOUNDARY, text)
    path, _, _ = text.rpartition(".")
    parent = path.rpartition("/")[0]
    return split_path(parent), Endpoint.parse(text.removeprefix(f"{parent}/"))


def _is_size_name(text: str) -> bool:
    """Return whether JAX takes a text as the name of a size; it keeps some names, such as `max`, for itself."""
    try:
        return text.isidentifier() and len(jax.export.symbolic_shape(text)) == 1
    except ValueError:
        return False


def _part(name: str) -> str:
    return join_path("", name)


def design_to_dict(design: Design) -> dict[str, Any]:
    """Return a design as JSON-able data.

    Raises:
        MithrilError: A block cannot be written as data.

    Examples:
        >>> design = Design(LogicalGraph(), (("input", (2, 3)),), "forward", "net")
        >>> design_from_dict(design_to_dict(design)) == design
        True
    """
    shapes = {name: list(shape) for name, shape in design.shapes}
    chosen = {name: getattr(design, name) for name in ("program", "output", "loss", "uses_example_data")}
    return {"model": to_dict(design.graph, design.name), "shapes": shapes, **chosen}


def design_from_dict(data: Mapping[str, Any]) -> Design:
    """Return the design that `design_to_dict` wrote.

    Raises:
        MithrilError: The data is not a design.
    """
    model, shapes = from_dict(data.get("model", {})), data.get("shapes")
    design = Design(model.graph, name=model.name or "model")
    for port, shape in (shapes if isinstance(shapes, Mapping) else {}).items():
        design = set_shape(design, port, shape).design
    if data.get("loss"):
        design = set_loss(design, data["loss"]).design
    uses_example_data = data.get("uses_example_data") is True
    design = replace(design, output=str(data.get("output", "")), uses_example_data=uses_example_data)
    return set_program(design, data.get("program", design.program)).design


def design_of(model: Model | LogicalGraph | Block | None, shapes: Mapping[str, Sequence[Dim]] | None) -> Design:
    """Return the design that a workbench starts from.

    Raises:
        UnknownOptionError: The value is no model, or a shape is none.
    """
    if model is None:
        graph, name = LogicalGraph(), "model"
    elif isinstance(model, LogicalGraph):
        graph, name = model, "model"
    else:
        block = model.block if isinstance(model, Model) else model
        if not isinstance(block, Block):
            raise UnknownOptionError(
                f"cannot open a workbench on {short_repr(model)}.", (("needs", "a model"),), "ml.workbench(Linear(10))"
            )
        graph = block.graph if block.graph is not None and block.is_composite else edit.add(LogicalGraph(), block)[0]
        name = (model.name if isinstance(model, Model) else None) or "model"
    design = Design(graph, name=name)
    if not isinstance(shapes, Mapping | None):
        input_specs(graph, shapes)  # the message for shapes without names
    for port, shape in (shapes or {}).items():
        design = _with_shape(design, port, shape, f'shapes={{"{port}": [32, 784]}}')
    return design
