"""Attributes of a model's blocks as settings: list them, change them, and suggest corrections."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from mithril_nb.analysis.whatif.settings import format_literal, format_setting, is_size
from mithril_nb.errors import MithrilError, alike
from mithril_nb.graph import edit
from mithril_nb.graph.nesting import inside
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.fields import fields_of
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.models.naming import input_specs
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.targets.option_checks import options_written

_MOST_TRIED = 8
"""Most changes that are tried before one is suggested; each resolves the whole model."""
_MOST_LISTED = 3
"""Most blocks of a series that are listed one by one."""
Changes = Mapping[str, Any]


def attributes_of(graph: LogicalGraph) -> dict[str, Any]:
    """Return the attributes of all blocks by path and name: `{"mlp/linear_0.dimension": 64}`."""
    return {f"{path}.{name}": value for path, node in graph.walk() for name, value in node.block.attributes}


def with_attribute(graph: LogicalGraph, name: str, value: Any) -> LogicalGraph:
    """Return a graph with another value of a block's attribute.

    Raises:
        MithrilError: The block or the attribute does not exist, or the value is not valid.
    """
    path, _, attribute = name.rpartition(".")
    names = split_path(path)

    def change(level: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(level, names[-1]).block
        return edit.swap(level, names[-1], with_attributes(Model.of_block(block), {attribute: value}).block)

    return inside(graph, names[:-1], change)


def likely_change(graph: LogicalGraph, name: str, value: Any, works: Callable[[Changes], bool]) -> Changes | None:
    """Return a valid change that the user probably meant by an unknown setting; `None` if none is found.

    Args:
        graph: The model.
        name: The unknown setting.
        value: Its new value.
        works: Function that returns whether the model can be built with a change.
    """
    return next((one for one in islice(_likely(graph, name, value), _MOST_TRIED) if works(one)), None)


def examples(graph: LogicalGraph, works: Callable[[Changes], bool]) -> Changes | None:
    """Return a valid change of one attribute; `None` if the first ones tried all fail."""
    sizes = {name: value for name, value in attributes_of(graph).items() if is_size(value)}
    return next((one for one in islice(_doubled(sizes), _MOST_TRIED) if works(one)), None)


def _likely(graph: LogicalGraph, name: str, value: Any) -> Iterator[Changes]:
    known = attributes_of(graph)
    parts = _parts(name)
    same = [one for one in known if _parts(one) == parts]  # the same path with dots or slashes
    yield from ({one: value} for one in same)
    outer = _outermost(one for one in known if _parts(one)[-1] == parts[-1])
    if len(parts) == 1:
        yield from ([dict.fromkeys(outer, value)] if outer else [])
        yield from ({one: value} for one in outer)
        return
    by_path = {one.rpartition(".")[0]: one for one in known if _parts(one)[-1] == parts[-1]}
    near = [by_path[path] for path in alike("/".join(parts[:-1]), by_path, 0.4)]
    siblings = [one for one in known if _parts(one)[:-1] == parts[:-1]]
    near += alike(name.replace("/", "."), siblings)
    yield from ({one: value} for one in [*near, *outer])
    yield from _doubled({one: known[one] for one in siblings if is_size(known[one])})


def _doubled(sizes: Mapping[str, int]) -> Iterator[Changes]:
    return ({name: 2 * value or 1} for name, value in sizes.items())


def _parts(name: str) -> list[str]:
    return re.split(r"[./]", name)


def _outermost(names: Iterable[str]) -> list[str]:
    """Return the attributes of blocks that are not inside another block with the same attribute."""
    paths = {name.rpartition(".")[0]: name for name in names}
    return [name for path, name in paths.items() if not any(path.startswith(f"{other}/") for other in paths)]


def format_changes(changes: Changes, text: Callable[[Any], str]) -> str:
    """Format changes as Python code: a dict, or a dict comprehension for a long series of blocks.

    Args:
        changes: The changes.
        text: Function that formats a value.

    Examples:
        >>> format_changes({"a.heads": 2}, repr), format_changes({f"block_{n}.heads": 2 for n in range(12)}, repr)
        ('{"a.heads": 2}', '{f"block_{n}.heads": 2 for n in range(12)}')
    """
    first, value = next(iter(changes.items()))
    start, end = re.split(r"_0(?=[./])", first, maxsplit=1) if re.search(r"_0[./]", first) else (first, "")
    row = [f"{start}_{number}{end}" for number in range(len(changes))]
    if len(changes) > _MOST_LISTED and [*changes] == row:
        return f'{{f"{start}_{{n}}{end}": {text(value)} for n in range({len(row)})}}'
    return "{" + ", ".join(f'"{name}": {text(one)}' for name, one in changes.items()) + "}"


def rebuild_call(
    target: Any,
    name: str,
    values: Sequence[Any],
    is_swept: bool,
    shapes: Mapping[str, Sequence[Any]],
    options: Mapping[str, Any],
) -> str:
    """Return code that varies an argument of the model's constructor: it passes a function that builds the model.

    Args:
        target: The model.
        name: The argument.
        values: Its new values.
        is_swept: Whether the values are swept.
        shapes: Shapes of the model's inputs.
        options: Other arguments of `ml.inspect`.

    Returns:
        The code; `""` if the model has no such argument, or cannot be built with it.
    """
    made_with: dict[str, Any] = dict(target.block.attributes) if isinstance(target, Model) else {}
    before: Any = made_with.get(name)
    tries = [values, *([[2 * before]] if is_size(before) else [])] if name in made_with else []
    fitting = next((one for one in tries if _can_build(target, {name: one[0]}, shapes)), None)
    if fitting is None:
        return ""
    starts = {field.name: field.default for field in fields_of(type(target))}
    given = {key: value for key, value in made_with.items() if key == name or value != starts.get(key)}
    arguments = ", ".join(f"{key}={name if key == name else format_literal(value)}" for key, value in given.items())
    sizes = {port: [*shape] for port, shape in shapes.items()}
    arguments = ", ".join([f"{target.kind}({arguments})", *options_written({"shapes": sizes, **options})])
    make = f"lambda {name}={format_literal(before)}: ml.inspect({arguments})"
    setting = format_setting(name, fitting, is_swept)
    return f"ml.sweep({make}, {setting})" if is_swept else f"ml.what_if({make})({setting})"


def _can_build(model: Model, changes: Changes, shapes: Mapping[str, Sequence[Any]]) -> bool:
    try:
        infer(with_attributes(model, changes).graph, input_specs(model.graph, shapes)).raise_problems()
    except MithrilError:
        return False
    return True
