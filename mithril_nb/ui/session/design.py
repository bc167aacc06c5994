"""The design of a workbench as a value, and its edits as pure functions. Undo keeps the previous designs."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any

import jax

from mithril_nb.errors import (
    ConnectionError,
    MithrilError,
    NameTakenError,
    UnexpectedInputError,
    UnknownBlockError,
    UnknownOptionError,
    listed,
    short_repr,
    similar,
)
from mithril_nb.graph import edit, parts
from mithril_nb.graph.boundary import INPUT, OUTPUT, FreeNames, automatic_name, infer_boundary, made_edges
from mithril_nb.graph.check import path_between
from mithril_nb.graph.edit import inside, placed, rename_inside
from mithril_nb.graph.paths import (
    checked_name,
    component,
    default_name,
    join_path,
    next_name,
    parameter_name,
    split_path,
)
from mithril_nb.graph.records import BOUNDARY, Block, Edge, Endpoint, LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype, check_rank
from mithril_nb.models.control import Repeat
from mithril_nb.models.fields import example, fields_of
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.models.naming import input_names, input_specs, written_shape
from mithril_nb.models.registry import KINDS, kind_named
from mithril_nb.models.saving.formats import to_source
from mithril_nb.models.saving.reading import from_source
from mithril_nb.models.saving.rewriting import updated_source, with_imports
from mithril_nb.models.shape_inference.flat import flat
from mithril_nb.targets import PROGRAMS
from mithril_nb.train.losses import resolve_loss
from mithril_nb.ui.session.commands import check_choice
from mithril_nb.ui.session.own_blocks import own_part
from mithril_nb.ui.session.train_settings import Settings

# Name of the design of a model without a name.
UNNAMED = "model"
# The edits by command name, which is the name of the function. `edit_command` fills it.
EDITS: dict[str, Callable[..., DesignChange]] = {}


@dataclass(frozen=True)
class Design:
    """A model, its input shapes, and the inspected program.

    Attributes:
        graph: The logical graph: the blocks of the model and their connections.
        shapes: Pairs of input name and shape. Dims are numbers or names.
        program: `"forward"`, `"forward+backward"` or `"train step"`.
        name: Name of the model.
        output: Name of the output to train on, for a model with several; `""` if none is chosen.
        loss: Name of the loss; `""` for the `loss=` of the workbench.
        losses: Pairs of output and loss for a model that trains on several outputs; `()` for one.
        training: Pairs of name and value: the choices of the Train tab.
        source: Python as the user wrote it, which builds the graph; `""` for the generated code.
        template: Name of the template on whose generated data it trains if the user passed none; `""` for none.
    """

    graph: LogicalGraph
    shapes: tuple[tuple[str, tuple[Dim, ...]], ...] = ()
    program: str = "train step"
    name: str = UNNAMED
    output: str = ""
    loss: str = ""
    losses: tuple[tuple[str, str], ...] = ()
    template: str = ""
    training: Settings = ()
    source: str = ""


@dataclass(frozen=True)
class DesignChange:
    """A new design, and the edit that produced it."""

    design: Design  # the design
    label: str  # text for the undo button: `"dimension of linear_0"`
    selection: tuple[str, ...] | None = None  # paths of the blocks to select; `None` keeps the selection
    renamed: tuple[str, str] | None = None  # old and new path of a renamed block
    is_gesture: bool = False  # true if a slider may have caused the change. Quick moves of a slider are one undo step
    edits: int = 1  # number of edits: 1, or the number of saved edits that the change restores
    # If the change restores saved edits, labels of the last ones, from oldest to newest; else `()`.
    restored: tuple[str, ...] = ()
    has_own_view: bool = False  # true if the design is another model, so that the view starts from scratch


def edit_command(function: Callable[..., DesignChange]) -> Callable[..., DesignChange]:
    """Register a function as an edit."""
    EDITS[function.__name__] = function
    return function


@edit_command
def add_block(design: Design, kind: str, after: str | None = None) -> DesignChange:
    """Insert a block after the block `after`, by default the last one."""
    names = split_path(after or "")
    parent, anchor = names[:-1], names[-1] if names else ""
    added = ""

    def insert(graph: LogicalGraph) -> LogicalGraph:
        nonlocal added
        before = edit.node_of(graph, anchor) if names else graph.nodes[-1] if graph.nodes else None
        if before is None or not before.block.outputs:
            graph, added = _added(graph, kind)
            return graph
        source = Endpoint(before.name, before.block.outputs[0].name)
        readers = [t for t in graph.targets_of.get(source, ()) if t.node != BOUNDARY]
        graph, added = _added(graph, kind, after=source)
        outputs = edit.node_of(graph, added).block.outputs
        for reader in readers if outputs else ():
            graph = edit.connect(graph, Endpoint(added, outputs[0].name), reader)
        return graph

    graph = _edited(design.graph, parent, insert)
    return DesignChange(replace(design, graph=graph), f"add {kind}", (_path(parent, added),))


@edit_command
def place_block(
    design: Design, kind: str, source: str = "", target: str = "", attributes: dict[str, Any] | None = None
) -> DesignChange:
    """Add a block that reads `source` and feeds `target`, if they are given; else without connections.

    With only `target`, the block is inserted before it: it reads what fed the target.
    """
    parent, start, end = _between(design.graph, source, target)
    added = ""

    def place(level: LogicalGraph) -> LogicalGraph:
        nonlocal added
        level, added = _added(level, kind, attributes or {})
        return _inserted(level, added, start, end)

    graph = _edited(design.graph, parent, place)
    return DesignChange(replace(design, graph=graph), f"add {kind}", (_path(parent, added),))


@edit_command
def insert(design: Design, path: str, source: str, target: str) -> DesignChange:
    """Insert an existing block into a connection."""
    _, start, end = _between(design.graph, source, target)
    parent, name = _place(design.graph, "insert", path)
    graph = _edited(design.graph, parent, lambda level: _inserted(level, name, start, end))
    return DesignChange(replace(design, graph=graph), f"insert {name}", (path,))


@edit_command
def replace_block(design: Design, path: str, kind: str) -> DesignChange:
    """Replace a block by one of another kind, with its connections, its name and the attributes that fit."""
    parent, old = _place(design.graph, "replace", path)
    own, name = own_part(kind), old
    block = own.nodes[0].block if own else fresh_block(kind)

    def change(level: LogicalGraph) -> LogicalGraph:
        nonlocal block, name
        before = edit.node_of(level, old).block
        for field in () if own else fields_of(kind_named(kind)):
            if field.name in before.options and field.name in block.options:
                with suppress(MithrilError):  # the new kind may not accept the value
                    model = with_attributes(Model.of_block(block), {field.name: before.options[field.name]})
                    block = model.block
        notes = edit.rename(own, own.nodes[0].name, old).notes if own else ()
        level = parts.replace_block(level, old, block, notes)
        if re.fullmatch(re.escape(default_name(before.kind, 0))[:-1] + "[0-9]+", old):
            count = sum(node.block.kind == kind for node in level.nodes) - 1
            name = parts.unused_name(own.nodes[0].name, level.by_name) if own else next_name(kind, count, level.by_name)
        return edit.rename(level, old, name)

    graph = _edited(design.graph, parent, change)
    return DesignChange(
        replace(design, graph=graph),
        f"replace {old} by {kind}",
        (_path(parent, name),),
        (_path(parent, old), _path(parent, name)),
    )


@edit_command
def group(design: Design, paths: Sequence[str], name: str = "") -> DesignChange:
    """Group blocks in a composite block. Its inputs and outputs are the connections with other blocks."""
    parent, names = _level(design.graph, "group", paths)

    def change(level: LogicalGraph) -> LogicalGraph:
        nonlocal name
        name = name or parts.unused_name("group_0", level.by_name)
        if name in {*level.by_name} - {*names}:
            raise NameTakenError(
                f"cannot group blocks as {name!r}: that name is taken.",
                (("blocks", listed(map(repr, level.by_name))),),
                f"name={parts.unused_name(name, level.by_name)!r}",
            )
        return parts.group(level, names, checked_name(name))

    graph = _edited(design.graph, parent, change)
    return DesignChange(_with_shapes_of(design, graph), f"group {_listed(names)}", (_path(parent, name),))


@edit_command
def ungroup(design: Design, path: str) -> DesignChange:
    """Replace a composite block by the blocks inside it."""
    parent, name = _place(design.graph, "ungroup", path)
    graph, selection = _edited_blocks(design.graph, parent, lambda level: parts.ungroup(level, name))
    return DesignChange(_with_shapes_of(design, graph), f"ungroup {name}", selection)


@edit_command
def repeat(design: Design, path: str, count: int, is_shared: bool = False) -> DesignChange:
    """Repeat a block several times in a row, each time with parameters of its own, or always with the same ones."""
    parent, name = _place(design.graph, "repeat", path)

    def change(level: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(level, name).block
        with placed(name):
            if block.kind == "Repeat":
                return edit.swap(
                    level, name, with_attributes(Model.of_block(block), {"count": count, "is_shared": is_shared}).block
                )
            return edit.swap(level, name, Repeat(Model.of_block(block), count, is_shared).block)

    graph = _edited(design.graph, parent, change)
    own = f"{'.'.join(map(component, (*parent, name)))}."
    arrays = (array for array in flat(design.graph).notes if isinstance(array, str) and array.startswith(own))
    graph = _with_notes(graph, design.graph, {array: f"{own}body.{array.removeprefix(own)}" for array in arrays})
    return DesignChange(replace(design, graph=graph), f"repeat {name}", (path,))


@edit_command
def duplicate(design: Design, paths: Sequence[str]) -> DesignChange:
    """Copy blocks, with their attributes and the connections among them."""
    parent, names = _level(design.graph, "duplicate", paths)
    part = part_at(design.graph, paths)
    return _included(design, parent, part, f"duplicate {_listed(names)}")


@edit_command
def paste(design: Design, text: str, path: str = "") -> DesignChange:
    """Add the blocks of a model in Python, which is read and not run, inside of the group `path`."""
    part = from_source(text).graph
    label = f"paste {_listed([node.name for node in part.nodes])}"
    return _included(design, split_path(path), part, label)


def part_at(graph: LogicalGraph, paths: Sequence[str]) -> LogicalGraph:
    """Return the graph of some blocks of one group, with the connections among them."""
    parent, names = _level(graph, "copy", paths)
    for name in parent:
        graph = edit.inner_graph(graph, name)
    return parts.part_of(graph, names)


def _included(design: Design, parent: tuple[str, ...], part: LogicalGraph, label: str) -> DesignChange:
    graph, selection = _edited_blocks(design.graph, parent, lambda level: parts.include(level, part))
    return DesignChange(replace(design, graph=graph), label, selection)


def _edited_blocks(
    graph: LogicalGraph, parent: tuple[str, ...], change: Callable[[LogicalGraph], tuple[LogicalGraph, tuple[str, ...]]]
) -> tuple[LogicalGraph, tuple[str, ...]]:
    """Return the graph after a change of one level, and the paths of the blocks that the change names."""
    names: tuple[str, ...] = ()

    def apply(level: LogicalGraph) -> LogicalGraph:
        nonlocal names
        level, names = change(level)
        return level

    return _edited(graph, parent, apply), tuple(_path(parent, name) for name in names)


@edit_command
def remove(design: Design, paths: Sequence[str]) -> DesignChange:
    """Remove blocks."""
    graph = design.graph
    # Remove inner blocks first, so that every path still exists when it is removed.
    for path in sorted(set(paths), key=lambda path: -path.count("/")):
        parent, name = _place(design.graph, "remove", path)
        graph = _edited(graph, parent, lambda level, name=name: edit.remove(level, [name], bridge=True))
    template = design.template if graph.nodes else ""  # an empty model replaces the template
    return DesignChange(replace(design, graph=graph, template=template), f"remove {_listed(paths)}", ())


@edit_command
def connect(design: Design, source: str, target: str) -> DesignChange:
    """Connect an output of a block to an input, or to an output of the model, which it then is."""
    parent, start, end = _ends(design.graph, source, target)

    def change(level: LogicalGraph) -> LogicalGraph:
        is_output = end in level.source_of and not end.node and start.node
        return edit.feed_output(level, start, end.port) if is_output else edit.connect(level, start, end)

    graph = _edited(design.graph, parent, change)
    return DesignChange(replace(design, graph=graph), f"connect {source} to {target}")


@edit_command
def reconnect(design: Design, source: str, target: str, to: str) -> DesignChange:
    """Move the end of a connection to another input."""
    parent, start, end = _ends(design.graph, source, target)
    _, _, new_end = _ends(design.graph, source, to)

    def change(level: LogicalGraph) -> LogicalGraph:
        return edit.connect(edit.disconnect(level, start, end), start, new_end)

    graph = _edited(design.graph, parent, change)
    return DesignChange(replace(design, graph=graph), f"reconnect {source} to {to}")


@edit_command
def disconnect(design: Design, source: str, target: str) -> DesignChange:
    """Remove a connection."""
    parent, start, end = _ends(design.graph, source, target)
    graph = _edited(design.graph, parent, lambda level: edit.disconnect(level, start, end))
    return DesignChange(replace(design, graph=graph), f"disconnect {target}")


@edit_command
def rename(design: Design, path: str, name: str) -> DesignChange:
    """Rename a block."""
    parent, old = _place(design.graph, "rename", path)
    graph = rename_inside(design.graph, (*parent, old), name)
    before, after = _path(parent, old), _path(parent, name)
    # A model input named after the block is renamed too, and keeps its shape.
    renamed = _with_shapes_of(design, graph)
    return DesignChange(renamed, f"rename {old}", (after,), (before, after))


@edit_command
def rename_input(design: Design, input: str, name: str) -> DesignChange:
    """Rename an input, or a shared parameter, of the model. It keeps its shape."""
    if input not in {port.name for port in design.graph.inputs}:
        raise _unknown_input(design.graph, input, f"input={{!r}}, name={name!r}")
    graph = edit.label(design.graph, Endpoint(BOUNDARY, input), name)
    shapes = tuple((name if port == input else port, shape) for port, shape in design.shapes)
    return DesignChange(replace(design, graph=graph, shapes=shapes), f"rename {input}")


@edit_command
def rename_output(design: Design, output: str, name: str) -> DesignChange:
    """Rename an output of the model."""
    _check_output(design, output)
    graph = edit.label(design.graph, design.graph.source_of[Endpoint(BOUNDARY, output)], name)
    chosen = name if design.output == output else design.output
    losses = tuple((name if port == output else port, loss) for port, loss in design.losses)
    return DesignChange(replace(design, graph=graph, output=chosen, losses=losses), f"rename {output}")


@edit_command
def set_order(design: Design, names: Sequence[str]) -> DesignChange:
    """Put inputs or outputs of the model before the others, in this order."""
    graph = Model.of(design.graph).set_order(*names).graph
    return DesignChange(replace(design, graph=graph), f"order of {_listed(names, 'names')}")


@edit_command
def hide_output(design: Design, output: str) -> DesignChange:
    """Remove an output of the model that a block reads too."""
    _check_output(design, output)
    source = design.graph.source_of[Endpoint(BOUNDARY, output)]
    readers = [target for target in design.graph.targets_of[source] if target.node]
    if not readers:
        raise ConnectionError(
            f"cannot remove the output {output!r}: no block reads it, so it is an output of the model.",
            (("output of", component(source.node)),),
            f"connect '{source}' to a block, or remove the block.",
            port=output,
        )
    graph = edit.annotate(design.graph, source, is_exposed=False)
    return DesignChange(replace(design, graph=graph), f"remove output {output}")


@edit_command
def expose(design: Design, source: str) -> DesignChange:
    """Make an output of a block, also inside groups, an output of the model, even if a block reads it."""
    graph, (parent, end) = design.graph, _end(design.graph, source, set())
    for at in range(len(parent), 0, -1):
        graph = _edited(graph, parent[:at], lambda level, end=end: edit.expose(level, end))
        targets = reduce(edit.inner_graph, parent[:at], graph).targets_of[end]
        end = Endpoint(parent[at - 1], next(target.port for target in targets if not target.node))
    end = end if parent else edit.find(graph, source)
    graph = _edited(graph, (), lambda level: edit.expose(level, end))
    return DesignChange(replace(design, graph=graph), f"output of {source}")


@edit_command
def set_attribute(design: Design, path: str, name: str, value: Any) -> DesignChange:
    """Set an attribute of a block."""
    parent, block_name = _place(design.graph, f"set {name!r} of", path)

    def change(graph: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(graph, block_name).block
        if block.graph is not None and not block.attributes:
            having = [node.name for node in block.graph.nodes if name in dict(node.block.attributes)]
            raise UnknownOptionError(
                f"block {path!r} is a model composed of blocks and has no attribute {name!r}.",
                (("inside", ", ".join(repr(node.name) for node in block.graph.nodes) or "nothing"),),
                f'path="{path}/{_part(having[0])}"' if having else f'wb.do("expand", path="{path}")',
                block=_part(block_name),
            )
        with placed(block_name):
            changed = with_attributes(Model.of_block(block), {name: _read(block, name, value)})
        return edit.swap(graph, block_name, changed.block)

    graph = _edited(design.graph, parent, change)
    return DesignChange(replace(design, graph=graph), f"{name} of {block_name}", is_gesture=True)


@edit_command
def set_trainable(design: Design, names: Sequence[str], is_trainable: bool) -> DesignChange:
    """Freeze parameters, or let training change them: `names` are parameters, or blocks for all that they contain."""
    arrays = [array for name in names for array in _arrays(design.graph, name)]
    model = Model.of(design.graph).set_differentiability(dict.fromkeys(arrays, is_trainable))
    label = f"{'unfreeze' if is_trainable else 'freeze'} {_listed(names, 'names')}"
    return DesignChange(replace(design, graph=model.graph), label)


@edit_command
def set_initializer(design: Design, parameter: str, initializer: str) -> DesignChange:
    """Choose the initializer of a parameter by its text; an empty one is the default of its block."""
    array, *more = _arrays(design.graph, parameter)
    if more:
        raise _no_parameter(parameter, [array, *more])
    if initializer:
        graph = Model.of(design.graph).set_initializers({array: initializer}).graph
    else:
        graph = edit.annotate(design.graph, Endpoint(BOUNDARY, array), initializer=None)
    return DesignChange(replace(design, graph=graph), f"initializer of {parameter}", is_gesture=True)


def _arrays(graph: LogicalGraph, name: str) -> list[str]:
    """Return the parameters of a block, or that of a port such as `linear_0.weight`, by their names in the model."""
    arrays: dict[str, str] = {}
    for op in flat(graph).ops:
        params = (port.name for port in op.block.inputs if port.role == "param" and port.name in op.arrays)
        arrays |= {parameter_name(op.path, port): op.arrays[port] for port in params}
        arrays |= {array: array for array in op.inner.values()}
    dotted = name.replace("/", ".")
    chosen = dict.fromkeys(
        array for own, array in arrays.items() if dotted == array or f"{own}.".startswith(f"{dotted}.")
    )
    if not chosen:
        raise _no_parameter(name, [*arrays])
    return [*chosen]


def _no_parameter(name: str, names: Sequence[str]) -> ConnectionError:
    near = (similar(name, names) or names or ["linear_0.weight"])[0]
    return ConnectionError(
        f"the model has no parameter {short_repr(name)}.", (("parameters", listed(names) or "none"),), repr(near)
    )


@edit_command
def share(design: Design, source: str, target: str) -> DesignChange:
    """Let the parameter port `target` read the parameter at the port `source`, such as `linear_0.weight`.

    Groups between the two blocks get a port for the parameter.
    """
    (left, start), (right, end) = (_parameter_port(design.graph, text) for text in (source, target))
    if (left, start) == (right, end):
        raise ConnectionError(
            f"{source!r} is the same parameter.", (("source", source), ("target", target)), "choose another."
        )
    [old], depth = _arrays(design.graph, source), _common_depth(left, right)
    graph, start = _outside(design.graph, left, start, depth)
    graph, end = _outside(graph, right, end, depth)

    def change(level: LogicalGraph) -> LogicalGraph:
        level, shared = edit.named_parameter(level, start)
        return edit.connect(level, shared, end)

    graph = _edited(graph, left[:depth], change)
    graph = _with_notes(graph, design.graph, {old: _arrays(graph, source)[0]})
    return DesignChange(replace(design, graph=graph), f"share {source} with {target}")


@edit_command
def unshare(design: Design, target: str) -> DesignChange:
    """Give a port that shares its parameter, such as `linear_1.weight`, a parameter of its own again."""
    parent, end = _parameter_port(design.graph, target)
    graph = _edited(design.graph, parent, lambda level: edit.unshare(level, end))
    return DesignChange(replace(design, graph=graph), f"unshare {target}")


def _parameter_port(graph: LogicalGraph, text: str) -> tuple[tuple[str, ...], Endpoint]:
    parent, end = _end(graph, text, set())
    level = reduce(edit.inner_graph, parent, graph)
    block = edit.node_of(level, end.node).block
    names = [port.name for port in block.inputs if port.role == "param"]
    if end.port not in names:
        raise ConnectionError(
            f"{text!r} is not a parameter of a block.",
            ((f"parameters of {end.node}", listed(names) or "none"),),
            repr(f"{_path(parent, end.node)}.{component(names[0])}") if names else "choose a block with parameters.",
            block=_path(parent, end.node),
        )
    return parent, end


def _outside(graph: LogicalGraph, parent: tuple[str, ...], end: Endpoint, depth: int) -> tuple[LogicalGraph, Endpoint]:
    """Return the port through which the groups deeper than `depth` read the parameter at a port inside them."""
    for at in range(len(parent), depth, -1):
        source = end

        def change(level: LogicalGraph, end: Endpoint = end) -> LogicalGraph:
            nonlocal source
            level, source = edit.named_parameter(level, end)
            return level

        graph = _edited(graph, parent[:at], change)
        if source.node:
            because = f"block {source.node!r} in the group computes it"
            summary = f"cannot share '{end}' outside of its group."
            raise ConnectionError(summary, (("because", because),), "disconnect it.")
        end = Endpoint(parent[at - 1], source.port)
    return graph, end


def _with_notes(graph: LogicalGraph, before: LogicalGraph, names: Mapping[str, str]) -> LogicalGraph:
    """Return a graph whose parameters have the notes that they had under the names before."""
    notes = flat(before).notes
    for old, new in names.items():
        if old in notes and flat(graph).notes.keys().isdisjoint((old, new)):
            graph = edit.annotate(graph, Endpoint(BOUNDARY, new), **vars(notes[old]))
    return graph


@edit_command
def set_shape(design: Design, name: str, shape: Sequence[Any]) -> DesignChange:
    """Set the shape of a model input."""
    inputs = input_names(design.graph)
    names = inputs or ("input",)  # a model without blocks can be given the shape of its first input
    if name not in names and not (name == "input" and len(names) == 1):
        raise _unknown_input(design.graph, name, f"name={{!r}}, shape={written_shape(shape) or '[32, 784]'}")
    return DesignChange(with_shape(design, name, shape, "shape=[32, 784]"), f"shape of {name}", is_gesture=True)


@edit_command
def set_dtype(design: Design, name: str, dtype: str) -> DesignChange:
    """Declare the dtype of a model input; an empty one leaves it to the blocks that read the input."""
    if name not in input_names(design.graph):
        raise _unknown_input(design.graph, name, f"name={{!r}}, dtype={dtype!r}")
    end = Endpoint(BOUNDARY, name)
    graph = edit.annotate(design.graph, end, dtype=str(as_dtype(dtype)) if dtype else None)
    return DesignChange(replace(design, graph=graph), f"dtype of {name}")


def with_shape(design: Design, name: str, shape: Sequence[Any], advice: str) -> Design:
    """Return the design with a shape for an input, which the model need not have."""
    if isinstance(shape, list | tuple):
        check_rank(name, shape)
    is_list = isinstance(shape, Sequence) and not isinstance(shape, str | bytes)
    wrong, sizes = ([], [*shape]) if is_list else (["it is not a list"], [32, 784])
    for axis, dim in enumerate(() if wrong else shape):
        is_number = isinstance(dim, int) and not isinstance(dim, bool) and dim >= (axis == 0)
        if not is_number and not (isinstance(dim, str) and _is_size_name(dim)):
            wrong.append(f"{short_repr(dim)} is neither a size nor a name")
            sizes[axis] = 32
    if wrong:
        raise UnknownOptionError(
            f"{short_repr(shape)} is not a shape for input {name!r}.",
            (("because", "; ".join(wrong)), ("needs", "integers, or names of sizes such as batch")),
            advice.replace("[32, 784]", str(sizes)),
            port=name,
        )
    shapes = {**dict(design.shapes), name: tuple(shape)}
    return replace(design, shapes=tuple(shapes.items()))


@edit_command
def set_program(design: Design, program: str) -> DesignChange:
    """Choose the inspected program."""
    check_choice("program", program, PROGRAMS)
    return DesignChange(replace(design, program=program), "program")


@edit_command
def use_data_of(design: Design, template: str) -> DesignChange:
    """Train on the generated data of a template if the user passed no data."""
    return DesignChange(replace(design, template=template), "generated data")


@edit_command
def set_output(design: Design, output: str) -> DesignChange:
    """Choose the output to train on."""
    _check_output(design, output)
    return DesignChange(replace(design, output=output, losses=()), "output to train on")


@edit_command
def set_source(design: Design, text: str) -> DesignChange:
    """Replace the model by that of Python code, which is read as syntax. Its format is kept.

    Raises:
        ModelFileError: The text is no Python that builds a model; a fact names the line.
    """
    model = from_source(text)
    is_other = not design.graph.by_name.keys() & model.graph.by_name.keys()  # another model has other data
    template = "" if is_other else design.template
    changed = replace(design, graph=model.graph, name=model.name or UNNAMED, template=template)
    return DesignChange(with_text(changed, with_imports(text, model)), "edit the code")


def with_text(design: Design, text: str) -> Design:
    """Return a design whose code is `text`, which builds its graph."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")  # the editor of the page has no other ends of lines
    return replace(design, source="" if text.strip() == source_of(replace(design, source="")).strip() else text)


def with_source_of(design: Design, before: Design) -> Design:
    """Return a design with the user's code of the design `before`, changed where the model differs."""
    if not before.source or design.source != before.source or design.graph == before.graph:
        return design
    models = (Model.of(other.graph, None if other.name == UNNAMED else other.name) for other in (before, design))
    return with_text(design, updated_source(before.source, *models))


@edit_command
def set_loss(design: Design, loss: str, output: str = "") -> DesignChange:
    """Choose the loss by name; with `output`, that of one of several outputs to train on, or none for an empty name."""
    name = resolve_loss(loss).name if loss or not output else ""
    if not output:
        return DesignChange(replace(design, loss=name), "loss")
    _check_output(design, output)
    before = dict(design.losses) or ({design.output: design.loss} if design.output and design.loss else {})
    losses = {**before, output: name}
    order = [port.name for port in design.graph.outputs]
    pairs = tuple((port, losses[port]) for port in order if losses.get(port))
    return DesignChange(replace(design, losses=pairs), f"loss of {output}")


def _unknown_input(graph: LogicalGraph, name: str, advice: str) -> UnexpectedInputError:
    names = input_names(graph) or ("input",)
    facts = (("inputs", listed(map(repr, input_names(graph)))),)
    example = advice.format((similar(name, names) or names)[0])
    return UnexpectedInputError(f"the model has no input {name!r}.", facts, example, port=name)


def _check_output(design: Design, output: str) -> None:
    outputs = [port.name for port in design.graph.outputs]
    if output not in outputs:
        example = f'output="{outputs[-1]}"' if outputs else 'wb.do("add_block", kind="Linear")  # add a block first'
        raise UnknownOptionError(
            f"the model has no output {output!r}.", (("outputs", ", ".join(map(repr, outputs)) or "none"),), example
        )


def _edited(graph: LogicalGraph, names: tuple[str, ...], change: edit.Edit) -> LogicalGraph:
    after = inside(graph, names[:1], lambda level: _edited(level, names[1:], change)) if names else change(graph)
    return _with_names_of(graph, after)


def _with_names_of(before: LogicalGraph, after: LogicalGraph) -> LogicalGraph:
    edges, labels = made_edges(after), dict(after.labels)
    named, ends = dict(before.labels), {edge.target: edge.source for edge in before.edges if not edge.source.node}
    first = next((target for target, source in ends.items() if source.port == INPUT), None)
    fed = {edge.target for edge in after.edges if edge.source.node}
    for edge in after.edges:
        source = ends.get(edge.target, edge.source)
        is_before = (
            first is not None
            and edge.source.port == INPUT
            and first in fed
            and path_between(after, edge.target.node, first.node)
        )
        is_generated = not edge.source.node and not {edge.source.port, source.port} & {*labels, *named}
        if is_generated and source != edge.source and not is_before:
            edges.append(Edge(source, edge.target))
            labels[source.port] = source
    was, now = (
        {edge.source: edge.target.port for edge in graph.edges if not edge.target.node} for graph in (before, after)
    )
    owner = next((end for end, name in was.items() if name == OUTPUT), None)
    heirs = [end for end in now if owner and owner not in now and path_between(after, owner.node, end.node)]
    free = FreeNames({*labels, *(port.name for port in after.inputs)})
    for end, name in now.items():
        usual, is_plain = automatic_name(end), name not in named | dict(after.labels)
        if name == usual and labels.get(name) == end and (end in heirs[-1:] or not (heirs or owner in now)):
            del labels[name]  # it was given below
        elif is_plain and end not in (owner, *heirs[-1:]) and (heirs or owner in now) and was.get(end, usual) != name:
            labels[free.take(was.get(end, usual))] = end
    if labels == dict(after.labels):
        return after
    # The generated name may have gone to another output of the same block.
    return _with_names_of(before, infer_boundary(after.nodes, edges, labels, after.note_at))


def _read(block: Block, name: str, value: Any) -> Any:
    kind = KINDS.get(block.kind)
    is_typed = isinstance(value, str) and kind and any(f.name == name and f.type == "value" for f in fields_of(kind))
    if not is_typed:
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value


def _added(
    level: LogicalGraph, kind: str, attributes: Mapping[str, Any] = MappingProxyType({}), after: Endpoint | None = None
) -> tuple[LogicalGraph, str]:
    part = own_part(kind)
    if part is None:
        return edit.add(level, with_attributes(Model.of_block(fresh_block(kind)), attributes).block, after=after)
    level, (name,) = parts.include(level, part)
    inputs = [port.name for port in part.nodes[0].block.inputs if port.role == "data"]
    return edit.connect(level, after, Endpoint(name, inputs[0])) if after and inputs else level, name


def fresh_block(kind: str) -> Block:
    """Return a block of a kind, with examples of the attributes that it needs."""
    constructor = kind_named(kind)
    fields = fields_of(constructor)
    return constructor(
        **{field.name: example(field) for field in fields if field.is_required or field.start is not None}
    ).block


def _place(graph: LogicalGraph, change: str, path: str) -> tuple[tuple[str, ...], str]:
    *parent, name = split_path(path) or ("",)
    if not name and not parent:
        names = [_part(node.name) for node in graph.nodes]
        raise UnknownBlockError(
            f"cannot {change} the whole model: choose a block.",
            (("path", repr(path)), ("blocks", ", ".join(map(repr, names)) or "none")),
            f"path={names[0]!r}" if names else 'wb.do("add_block", kind="Linear")  # add a block first',
        )
    return tuple(parent), name


def _level(graph: LogicalGraph, change: str, paths: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the names of the group that contains some blocks, and their own names."""
    places = [_place(graph, change, path) for path in dict.fromkeys(paths)] or [_place(graph, change, "")]
    if len({parent for parent, _ in places}) > 1:
        groups = listed(dict.fromkeys(repr("/".join(map(_part, parent))) for parent, _ in places))
        example = f"paths={[path for path in paths if _place(graph, change, path)[0] == places[0][0]]!r}"
        raise UnknownBlockError(
            f"cannot {change} these blocks: they are in different groups.", (("groups", groups),), example
        )
    return places[0][0], [name for _, name in places]


def _path(parent: tuple[str, ...], name: str) -> str:
    return "/".join(map(_part, (*parent, name)))


def _listed(names: Sequence[str], what: str = "blocks") -> str:
    return names[0] if len(names) == 1 else f"{len(names)} {what}"


def _between(graph: LogicalGraph, source: str, target: str) -> tuple[tuple[str, ...], Endpoint | None, Endpoint | None]:
    """Return the level of two ends, which need not be given. Without a source it is what feeds the target."""
    if source and target:
        return _ends(graph, source, target)
    parent, end = _end(graph, source or target, {port.name for port in (graph.inputs if source else graph.outputs)})
    return (parent, end, None) if source else (parent, None, end if target else None)


def _inserted(level: LogicalGraph, name: str, start: Endpoint | None, end: Endpoint | None) -> LogicalGraph:
    block = edit.node_of(level, name).block
    inputs = [port.name for port in block.inputs if port.role == "data"]
    start = start or (level.source_of.get(end) if end else None)
    needs = "input" if start and not inputs else "output" if end and not block.outputs else ""
    if needs:
        raise ConnectionError(
            f"cannot insert {name!r}: it has no {needs}.",
            (("inputs", listed(inputs) or "none"), ("outputs", listed(port.name for port in block.outputs) or "none")),
            'kind="Relu"',
            block=_part(name),
        )
    if start:
        level = edit.connect(level, start, Endpoint(name, inputs[0]))
    # An output of the model follows the blocks: the inserted one is not read.
    return edit.connect(level, Endpoint(name, block.outputs[0].name), end) if end and end.node else level


def _with_shapes_of(design: Design, graph: LogicalGraph) -> Design:
    """Return the design with a graph whose generated names of inputs and outputs may differ; they keep their order."""
    inputs, outputs = (
        {port.name: now.name for port, now in zip(*ports, strict=False)} if len(ports[0]) == len(ports[1]) else {}
        for ports in ((design.graph.inputs, graph.inputs), (design.graph.outputs, graph.outputs))
    )
    shapes = tuple((inputs.get(port, port), shape) for port, shape in design.shapes)
    losses = tuple((outputs.get(port, port), loss) for port, loss in design.losses)
    output = outputs.get(design.output, design.output)
    return replace(design, graph=graph, shapes=shapes, output=output, losses=losses)


def _ends(graph: LogicalGraph, source: str, target: str) -> tuple[tuple[str, ...], Endpoint, Endpoint]:
    source_level, start = _end(graph, source, {port.name for port in graph.inputs})
    target_level, end = _end(graph, target, {port.name for port in graph.outputs})
    # From inside, a port of the enclosing composite block is a port on the boundary of its graph.
    if start.node == BOUNDARY or (*source_level, start.node) == target_level:
        source_level, start = target_level, Endpoint(BOUNDARY, start.port)
    elif (*target_level, end.node) == source_level:
        target_level, end = source_level, Endpoint(BOUNDARY, end.port)
    if source_level != target_level:
        raise ConnectionError(
            f"cannot connect {source!r} to {target!r}: they are in different models.",
            (
                ("source in", "/".join(source_level) or "the model"),
                ("target in", "/".join(target_level) or "the model"),
            ),
            f'source="{_on_level(graph, source, source_level, target_level, "outputs")}", '
            f'target="{_on_level(graph, target, target_level, source_level, "inputs")}"',
            edge=(source, target),
        )
    return target_level, start, end


def _common_depth(own: tuple[str, ...], other: tuple[str, ...]) -> int:
    differ = (at for at, (left, right) in enumerate(zip(own, other, strict=False)) if left != right)
    return next(differ, min(len(own), len(other)))


def _on_level(graph: LogicalGraph, text: str, own: tuple[str, ...], other: tuple[str, ...], side: str) -> str:
    depth = _common_depth(own, other)
    path = "/".join(map(_part, own[: depth + 1]))
    ports = next((getattr(node.block, side) for at, node in graph.walk() if at == path), ())
    return f"{path}.{ports[0].name}" if len(own) > depth and ports else text


def _end(graph: LogicalGraph, text: str, boundary: set[str]) -> tuple[tuple[str, ...], Endpoint]:
    if text in boundary:
        return (), Endpoint(BOUNDARY, text)
    path, _, _ = text.rpartition(".")
    parent = path.rpartition("/")[0]
    return split_path(parent), Endpoint.parse(text.removeprefix(f"{parent}/"))


def _is_size_name(text: str) -> bool:
    try:
        return text.isidentifier() and not keyword.iskeyword(text) and len(jax.export.symbolic_shape(text)) == 1
    except ValueError:
        return False


def _part(name: str) -> str:
    return join_path("", name)


def source_of(design: Design) -> str:
    """Return Python that builds the model of a design, with its name."""
    return design.source or to_source(Model.of(design.graph, None if design.name == UNNAMED else design.name))


def design_of(model: Model | LogicalGraph | Block | None, shapes: Mapping[str, Sequence[Dim]] | None) -> Design:
    """Return the initial design of a workbench.

    Raises:
        UnknownOptionError: The value is not a model, or a shape is invalid.
    """
    if model is None:
        graph, name = LogicalGraph(), UNNAMED
    elif isinstance(model, LogicalGraph):
        graph, name = model, UNNAMED
    else:
        block = model.block if isinstance(model, Model) else model
        if not isinstance(block, Block):
            raise UnknownOptionError(
                f"cannot open a workbench on {short_repr(model)}.", (("needs", "a model"),), "ml.workbench(Linear(10))"
            )
        graph = block.graph if block.graph is not None and block.is_composite else edit.add(LogicalGraph(), block)[0]
        name = (model.name if isinstance(model, Model) else None) or UNNAMED
    design = Design(graph, name=name)
    if not isinstance(shapes, Mapping | None):
        input_specs(graph, shapes)  # raises the error for shapes that are not a dict
    for port, shape in (shapes or {}).items():
        design = with_shape(design, port, shape, f'shapes={{"{port}": [32, 784]}}')
    return design
