"""mithril_nb models with other settings: input sizes, dtype, remat, and the attributes of their blocks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from mithril_nb.analysis.whatif.settings import (
    NOT_SWEPT,
    Settings,
    checked,
    format_setting,
    make_call,
)
from mithril_nb.analysis.whatif.subjects import (
    NUMERICS,
    check_numerics,
    common_dtype,
    with_numerics,
)
from mithril_nb.compilation import PhysicalModel, compile, graph_of
from mithril_nb.errors import UnknownOptionError, alike, short_repr
from mithril_nb.graph import edit
from mithril_nb.graph.nesting import inside
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype
from mithril_nb.inspection import Inspection
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.targets import inspect
from mithril_nb.targets.entry_point import OPTIONS
from mithril_nb.targets.mithril_models import compiled_for, given_specs


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
        attributes = attributes_of(self._graph)
        if name in attributes:
            self.base[name] = attributes[name]
            return
        path = name.rpartition(".")[0]
        if not path and "/" not in name and not any(attribute.endswith(f".{name}") for attribute in attributes):
            return
        own = [attribute.removeprefix(f"{path}.") for attribute in attributes if attribute.rpartition(".")[0] == path]
        blocks = [node_path for node_path, _ in self._graph.walk()]
        raise UnknownOptionError(
            f"program {self.name!r} has no setting {name!r}.",
            (
                ("settings", ", ".join(self.base)),
                (f"of {path}", ", ".join(own) or "no attributes") if path in blocks else ("blocks", ", ".join(blocks)),
            ),
            self._advice(name, value, swept),
        )

    def _advice(self, name: str, value: Any, swept: Settings) -> str:
        """Return the code of a change of a similar attribute; if there is none, of a function that makes the model."""
        attributes, values = attributes_of(self._graph), swept.get(name, (value,))
        path, _, own = name.rpartition(".")
        same = [attribute for attribute in attributes if attribute.rpartition(".")[2] == own]
        exact = [attribute for attribute in attributes if attribute.replace("/", ".") == name.replace("/", ".")]
        near = exact or (alike(name, same) if path else same) or same or alike(name, attributes, 0.8)
        if near:
            return format_setting(near[0], values, name in swept)
        return make_call(name, values, name in swept, f"model, {short_repr(dict(self._shapes))}")


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
