"""Our own models with other settings: sizes of inputs, dtype, remat, and the attributes of their blocks."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jax

from mithril_nb.errors import MithrilError, UnknownOptionError, short_repr
from mithril_nb.graph import edit
from mithril_nb.graph.paths import split_path
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype
from mithril_nb.models.model import Model, with_attributes
from mithril_nb.physical import PhysicalModel, compile, graph_of
from mithril_nb.stages import Inspection
from mithril_nb.targets import inspect
from mithril_nb.targets.own import compiled_for, given_specs
from mithril_nb.targets.slips import OPTIONS
from mithril_nb.whatif.arguments import common_dtype
from mithril_nb.whatif.settings import Settings, checked
from mithril_nb.whatif.subjects import OUTSIDE, check_outside, outside


class OwnModel:
    """A model of ours.

    Its settings are `batch`, the first dim that its inputs share; their other dims as `"input.1"`; `dtype`,
    `precision`, `remat`; and the attributes of its blocks by path, as `"linear_0.dimension"`.

    Args:
        target: The model, compiled or not.
        args: Its inputs, or their shapes.
        shapes: Shapes of its inputs by name.
        options: What `ml.inspect` takes besides, and inputs by name.
    """

    makes = False

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
        self._model = model
        self._graph: LogicalGraph = target.graph if isinstance(target, PhysicalModel) else graph_of(target)
        self._shapes = {name: tuple(spec.shape) for name, spec in model.input_specs.items()}
        made = inspect(model, **self._options)
        self.name = made.name
        self.base: dict[str, Any] = {}
        firsts = {shape[0] for shape in self._shapes.values() if shape}
        if len(firsts) == 1 and isinstance(first := firsts.pop(), int):
            self.base["batch"] = first
        for name, shape in self._shapes.items():
            start = 1 if "batch" in self.base else 0
            self.base |= {f"{name}.{axis}": dim for axis, dim in enumerate(shape) if axis >= start}
        self.base |= {"dtype": common_dtype(made.arguments), "remat": False}

    def settled(self, changes: Settings) -> dict[str, Any]:
        """Return all settings, some of them changed."""
        for name in changes:
            if "." in name and name not in self.base:
                self.base[name] = self._attribute(name)
        check_outside({name: value for name, value in changes.items() if name in OUTSIDE})
        if not isinstance(changes.get("remat", False), bool):
            raise UnknownOptionError(
                f"remat must be True or False, not {short_repr(changes['remat'], 40)}.", advice="remat=True"
            )
        settings = checked({"precision": None, **self.base}, changes, f"program {self.name!r}", is_made=False)
        return {name: value for name, value in settings.items() if name in self.base or name in changes}

    def inspection(self, settings: Settings) -> Inspection:
        """Return the program for these settings; nothing of it is made."""
        model = self._model
        shapes = {name: self._shape(name, settings) for name in self._shapes}
        attributes = {
            name: value
            for name, value in settings.items()
            if "." in name and name.rpartition(".")[0] not in self._shapes and value != self.base[name]
        }
        dtype, backend = settings.get("dtype"), model.backend
        if dtype is not None and dtype != self.base.get("dtype"):
            # What it makes by itself, as constants, has the dtype of its backend: only to cast what it is given would
            # have it cast back at every block.
            backend = copy.copy(backend)
            backend.default_dtype = as_dtype(dtype)
        if attributes or shapes != self._shapes or backend is not model.backend:
            graph = self._graph
            for name, value in attributes.items():
                graph = _with_attribute(graph, name, value)
            model = compile(Model.of(graph), backend, shapes=shapes, jit=model.jit)
        if settings.get("remat"):
            model = rematerialized(model)
        # What the loss and the optimizer keep in another dtype stays in it, as with such a backend.
        return outside(lambda: inspect(model, **self._options), {"precision": settings.get("precision")})

    def _shape(self, name: str, settings: Settings) -> tuple[Any, ...]:
        shape = self._shapes[name]
        dims = [settings.get(f"{name}.{axis}", dim) for axis, dim in enumerate(shape)]
        return tuple(settings["batch"] if axis == 0 and "batch" in settings else dim for axis, dim in enumerate(dims))

    def _attribute(self, name: str) -> Any:
        """Return the value of an attribute of a block.

        Raises:
            UnknownOptionError: There is none.
        """
        path, _, attribute = name.rpartition(".")
        try:
            block = _block(self._graph, path)
        except MithrilError:
            block = None
        attributes = {} if block is None else dict(block.attributes)
        if attribute in attributes:
            return attributes[attribute]
        raise UnknownOptionError(
            f"program {self.name!r} has no setting {name!r}.",
            (
                ("settings", ", ".join(self.base)),
                ("blocks", ", ".join(found for found, _ in self._graph.walk()))
                if block is None
                else (f"of {path}", ", ".join(attributes) or "no attributes"),
            ),
            f'{{"{next(_examples(self._graph), "linear_0.dimension")}": 512}}',
        )


def rematerialized(model: PhysicalModel) -> PhysicalModel:
    """Return a model whose gradient computes again what the loss needed, and saves only its arguments."""
    other = copy.copy(model)

    def forward(params: Any, inputs: Any, *, state: Any = None, key: Any = None, training: bool = False) -> Any:
        def run(params: Any, inputs: Any, state: Any, key: Any) -> Any:
            return model.forward(params, inputs, state=state, key=key, training=training)

        return jax.checkpoint(run)(params, inputs, state, key)

    def forward_with_state(
        params: Any, inputs: Any, state: Any = None, *, key: Any = None, training: bool = False
    ) -> Any:
        def run(params: Any, inputs: Any, state: Any, key: Any) -> Any:
            return model.forward_with_state(params, inputs, state, key=key, training=training)

        return jax.checkpoint(run)(params, inputs, state, key)

    # As `evaluate` of a model: what stands in its own `__dict__` goes before what its class says.
    other.__dict__.update(forward=forward, forward_with_state=forward_with_state)
    return other


def _block(graph: LogicalGraph, path: str) -> Any:
    names = split_path(path)
    for name in names[:-1]:
        graph = edit.node_of(graph, name).block.graph or LogicalGraph()
    return edit.node_of(graph, names[-1]).block


def _with_attribute(graph: LogicalGraph, name: str, value: Any) -> LogicalGraph:
    path, _, attribute = name.rpartition(".")
    names = split_path(path)

    def change(inside: LogicalGraph) -> LogicalGraph:
        block = edit.node_of(inside, names[-1]).block
        return edit.swap(inside, names[-1], with_attributes(Model.of_block(block), {attribute: value}).block)

    return edit.inside(graph, names[:-1], change)


def _examples(graph: LogicalGraph) -> Any:
    for path, node in graph.walk():
        for name, value in node.block.attributes:
            if isinstance(value, int) and not isinstance(value, bool):
                yield f"{path}.{name}"
