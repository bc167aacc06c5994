"""mithril_nb models with other settings: input sizes, dtype, remat, and the attributes of their blocks."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import jax

from mithril_nb.analysis.whatif.settings import (
    NOT_SWEPT,
    Settings,
    checked,
    format_literal,
    format_setting,
    is_size,
    make_call,
)
from mithril_nb.analysis.whatif.subjects import (
    NUMERICS,
    check_numerics,
    common_dtype,
    with_numerics,
)
from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.errors import MithrilError, UnknownOptionError, alike, short_repr
from mithril_nb.graph import edit
from mithril_nb.graph.nesting import inside
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype
from mithril_nb.inspection import Inspection
from mithril_nb.models.fields import fields_of
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.models.naming import input_specs
from mithril_nb.models.shape_inference.infer import infer
from mithril_nb.targets import inspect
from mithril_nb.targets.entry_point import OPTIONS, options_written
from mithril_nb.targets.mithril_models import compiled_for, given_specs

_MOST_TRIED = 8
"""Most changes that are tried before one is suggested, because each try infers the whole model."""
_MOST_LISTED = 3
"""Most blocks of a series that are listed one by one."""
Changes = Mapping[str, Any]


def attributes_of(graph: LogicalGraph) -> dict[str, Any]:
    """Return a dict of the attributes of all blocks, such as `{"mlp/linear_0.dimension": 64}`."""
    return {f"{path}.{name}": value for path, node in graph.walk() for name, value in node.block.attributes}


def with_attribute(graph: LogicalGraph, name: str, value: Any) -> LogicalGraph:
    """Return a graph with another value of a block's attribute, such as `"linear_0.dimension"`.

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

    `works` is a function that returns whether the model can be built with a change.
    """
    return next((one for one in islice(_likely(graph, name, value), _MOST_TRIED) if works(one)), None)


def examples(graph: LogicalGraph, works: Callable[[Changes], bool]) -> Changes | None:
    """Return a change that doubles one integer attribute; `None` if the model can be built with none of those tried."""
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
    """Return code that builds the model in a lambda, and varies an argument of the model's constructor.

    Args:
        target: The model.
        name: Name of the argument.
        values: The new values of the argument: several if it is swept, else one.
        is_swept: True for a call of `ml.sweep`, false for `ml.what_if`.
        shapes: Shapes of the inputs by name.
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


class MithrilModel:
    """A mithril_nb model with settings.

    The settings are:

    - `batch`, the size of the first axis of all inputs; only if this is the same number for all of them;
    - the sizes of the other axes of inputs, such as `"input.1"`;
    - `dtype`, `precision` and `remat`;
    - the attributes of blocks by path, such as `"linear_0.dimension"`.

    Args:
        target: The model, compiled or not.
        args: The inputs of the model, or their shapes.
        shapes: Shapes of the inputs by name.
        options: Other arguments of `ml.inspect`, and inputs by name.
    """

    makes = False
    casts = "some of its blocks always compute in float32"

    def __init__(
        self,
        target: Any,
        args: Sequence[Any],
        shapes: Mapping[str, Sequence[Dim]] | None,
        options: Mapping[str, Any],
    ):
        self._options = {name: value for name, value in options.items() if name in OPTIONS and name != "kwargs"}
        named = {name: value for name, value in options.items() if name not in OPTIONS} | dict(
            options.get("kwargs") or {}
        )
        model = compiled_for(target, *given_specs(target, args, named, shapes))
        self._target, self._model = target, model
        self._graph: LogicalGraph = target.graph if isinstance(target, PhysicalModel) else graph_of(target)
        self._shapes = {name: tuple(spec.shape) for name, spec in model.input_specs.items()}
        inspection = inspect(model, **self._options)
        self.name = inspection.name
        self.base: dict[str, Any] = {}
        firsts = {shape[0] for shape in self._shapes.values() if shape}
        if len(firsts) == 1 and isinstance(first := firsts.pop(), int):
            self.base["batch"] = first
        for name, shape in self._shapes.items():
            start = 1 if "batch" in self.base else 0
            self.base |= {f"{name}.{axis}": dim for axis, dim in enumerate(shape) if axis >= start}
        self.base |= {"dtype": common_dtype(inspection.arguments), "remat": False}

    def with_changes(self, changes: Settings, swept: Settings = NOT_SWEPT) -> dict[str, Any]:
        """Return all settings with the changes applied."""
        for name, value in changes.items():
            if name not in self.base and name not in NUMERICS:
                self._add_attribute(name, value, swept)
        check_numerics({name: value for name, value in changes.items() if name in NUMERICS}, swept)
        if not isinstance(changes.get("remat", False), bool):
            raise UnknownOptionError(
                f"remat must be True or False, not {short_repr(changes['remat'], 40)}.",
                advice=format_setting("remat", (False, True), "remat" in swept),
            )
        program = f"program {self.name!r}"
        settings = checked({"precision": None, **self.base}, changes, program, is_made=False, swept=swept)
        return {name: value for name, value in settings.items() if name in self.base or name in changes}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings, without computing a stage."""
        model = self._model
        shapes = {name: self._shape(name, settings) for name in self._shapes}
        attributes = {
            name: value
            for name, value in settings.items()
            if "." in name and name.rpartition(".")[0] not in self._shapes and value != self.base[name]
        }
        dtype, backend = settings.get("dtype"), model.backend
        if dtype is not None and dtype != self.base.get("dtype"):
            # The parameters and constants of a model have the dtype of the backend. If only the inputs were cast,
            # blocks would cast them back.
            backend = copy.copy(backend)
            backend.default_dtype = as_dtype(dtype)
        if attributes or shapes != self._shapes or backend is not model.backend:
            model = self._made(attributes, shapes, backend)
        if settings.get("remat"):
            model = rematerialized(model)
        # `dtype` is not passed: the loss and the optimizer keep their dtypes, as for a model compiled in this dtype.
        return with_numerics(lambda: inspect(model, **self._options), {"precision": settings.get("precision")})

    def _made(self, attributes: Settings, shapes: Mapping[str, Any], backend: Any) -> PhysicalModel:
        graph = self._graph
        for name, value in attributes.items():
            graph = with_attribute(graph, name, value)
        return compile(Model.of(graph), backend, shapes=shapes, jit=self._model.jit)

    def _shape(self, name: str, settings: Settings) -> tuple[Any, ...]:
        shape = self._shapes[name]
        dims = [settings.get(f"{name}.{axis}", dim) for axis, dim in enumerate(shape)]
        return tuple(settings["batch"] if axis == 0 and "batch" in settings else dim for axis, dim in enumerate(dims))

    def _add_attribute(self, name: str, value: Any, swept: Settings) -> None:
        """Add an attribute of a block, such as `"linear_0.dimension"`, to the settings in `base`.

        A name is ignored if it has no path and no block has an attribute with this name, because it may be another
        setting, misspelled.

        Args:
            name: Name of the attribute, with the path of the block.
            value: The new value, for the error.
            swept: For a call of `ml.sweep`, the values of each swept setting, for the error.

        Raises:
            UnknownOptionError: There is no such block, or it has no such attribute. The advice is a similar change.
        """
        known = attributes_of(self._graph)
        if name in known:
            self.base[name] = known[name]
            return
        path = name.rpartition(".")[0]
        if not path and "/" not in name and not any(one.endswith(f".{name}") for one in known):
            return
        own = [one.removeprefix(f"{path}.") for one in known if one.rpartition(".")[0] == path]
        blocks = [found for found, _ in self._graph.walk()]
        raise UnknownOptionError(
            f"program {self.name!r} has no setting {name!r}.",
            (
                ("settings", ", ".join(self.base)),
                (f"of {path}", ", ".join(own) or "no attributes") if path in blocks else ("blocks", ", ".join(blocks)),
            ),
            self._advice(name, value, swept),
        )

    def _advice(self, name: str, value: Any, swept: Settings) -> str:
        """Return the code of a valid change that the user probably meant by an unknown setting."""
        is_swept, values = name in swept, swept.get(name, (value,))
        remade = rebuild_call(self._target, name, values, is_swept, self._shapes, self._options)
        if remade:
            return remade

        def works(changes: Settings) -> bool:
            # Several swept attributes would be combined with each other, so a sweep gets only one.
            return (len(changes) == 1 or not is_swept) and self._works(changes)

        found = likely_change(self._graph, name, value, works) or examples(self._graph, works)
        if found is None:
            shapes = short_repr(dict(self._shapes)) if self._shapes else "shapes"
            return make_call(name, values, is_swept, f"model, {shapes}")
        return "changes=" * is_swept + format_changes(
            found, lambda one: format_literal(one if not is_swept else [*values] if one is value else [one])
        )

    def _works(self, changes: Settings) -> bool:
        try:
            self._made(changes, self._shapes, self._model.backend)
        except MithrilError:
            return False
        return True


def rematerialized(model: PhysicalModel) -> PhysicalModel:
    """Return a copy of a model that saves only its arguments: the backward pass recomputes intermediate values."""
    other = copy.copy(model)

    def recomputed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(params: Any, inputs: Any, state: Any = None, *, key: Any = None, training: bool = False) -> Any:
            def run(params: Any, inputs: Any, state: Any, key: Any) -> Any:
                return method(params, inputs, state=state, key=key, training=training)

            return jax.checkpoint(run)(params, inputs, state, key)

        return call

    # An instance attribute overrides the method, as in `evaluate`.
    for name in ("forward", "forward_with_state"):
        other.__dict__[name] = recomputed(getattr(model, name))
    return other
