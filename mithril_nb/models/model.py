"""`Model`: a mutable handle on a frozen block, with operators that compose blocks.

`|=` and `+=` change the model, as they change a Python set or list. `|` and `+` return a new model.

Adding model A to model B copies the graph of A. So A can be added twice, and later changes of A do not change B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from mithril_nb import plugins
from mithril_nb.display import Shown
from mithril_nb.errors import ConnectionError, MithrilError, UnknownOptionError, listed, short_repr, similar
from mithril_nb.graph.edit import Draft, alone, composite
from mithril_nb.graph.paths import check_length
from mithril_nb.graph.records import ADD_BLOCK, Block, LogicalGraph, Port
from mithril_nb.graph.spec import Value
from mithril_nb.models.adding import Adding
from mithril_nb.models.annotations import AnnotationMethods
from mithril_nb.models.connection import Connection, IOKey, Tensorlike
from mithril_nb.models.fields import fields_of, is_constant
from mithril_nb.models.registry import KINDS, BlockMeta, with_attributes
from mithril_nb.models.saving.serialization import LoadLimits, graph_from_dict, load_graph
from mithril_nb.models.summary import Portable

_EMPTY = composite(LogicalGraph())


class Model(Shown, Portable, AnnotationMethods, metaclass=BlockMeta):
    """A model: one block, or several. `|=` adds a block; `+=` also connects it to the output of the block before it.

    Args:
        name: Name of the block when this model is added to another; by default its kind and a number, as in `relu_0`.

    Raises:
        UnknownOptionError: `name` is neither `None` nor a non-empty string.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> model = Model()
        >>> model |= Linear(dimension=64)
        >>> model += Relu()
        >>> model += Linear(dimension=10)
        >>> [node.name for node in model.graph.nodes]
        ['linear_0', 'relu_0', 'linear_1']
    """

    def __init__(self, name: str | None = None):
        if name is not None and (not isinstance(name, str) or not name):
            raise UnknownOptionError(
                f"a model cannot be named {name!r}.", (("needs", "a string, or None"),), 'Model(name="classifier")'
            )
        check_length(name or "")
        self.name = name
        self._block = _EMPTY
        # The added objects by `id`, each with the name of its block, so that `linear.output` can be resolved.
        self._members: dict[int, tuple[object, str]] = {}
        self._attributes: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, graph: LogicalGraph, name: str | None = None, kind: str = "Model") -> Model:
        """Return a model with the given graph, name and kind.

        Examples:
            >>> Model.of(Model().graph) == Model()
            True
        """
        return Model.of_block(composite(graph, kind), name)

    @classmethod
    def of_block(cls, block: Block, name: str | None = None) -> Model:
        """Return a block as a model.

        Examples:
            >>> from mithril_nb.models import Linear
            >>> Model.of_block(Linear(3).block) == Linear(3)
            True
        """
        model = Model(name)
        model._block = block
        return model

    @staticmethod
    def from_dict(data: Mapping[str, Any], *, limits: LoadLimits | None = None) -> Model:
        """Rebuild a model from the data of `to_dict`. Runs no code from the data.

        Args:
            data: The result of `to_dict`.
            limits: Maximum sizes of the model; by default `LoadLimits()`.

        Raises:
            ModelFileError: The data is not a model, is broken, exceeds a limit, or was written by a later version.
            UnknownOptionError: `limits` is not a `LoadLimits`.

        Examples:
            >>> from mithril_nb.models import MLP
            >>> Model.from_dict(MLP(4, [3], 2).to_dict()).graph == MLP(4, [3], 2).graph
            True
        """
        return Model.of(*graph_from_dict(data, limits))

    @staticmethod
    def load(path: str | Path, *, limits: LoadLimits | None = None) -> Model:
        """Load a model from a JSON file, or from a link of `share_link`. Runs no code from the file or link.

        Args:
            path: Path of the file, or the link.
            limits: Maximum sizes of the model; by default `LoadLimits()`.

        Raises:
            UnknownOptionError: `path` is not a path, or `limits` is not a `LoadLimits`.
            ModelFileError: The file cannot be read, is no valid model, exceeds a limit, or is from a later version.
        """
        return Model.of(*load_graph(path, limits))

    @property
    def block(self) -> Block:
        """The current frozen block."""
        return self._block

    @property
    def _block(self) -> Block:
        if self._frozen is None:
            assert self._draft is not None
            self._frozen = composite(self._draft.graph())
        return self._frozen

    @_block.setter
    def _block(self, block: Block) -> None:
        self._frozen: Block | None = block
        self._draft: Draft | None = None

    @property
    def graph(self) -> LogicalGraph:
        """The current logical graph. Later changes of the model do not change this graph."""
        return alone(self._block)

    @property
    def kind(self) -> str:
        """The kind of the block: `"Linear"`, `"MLP"`, or `"Model"` for a model composed with `|=` and `+=`."""
        return self._block.kind

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The input ports. Those of an op include its parameters and states."""
        return self._block.inputs

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The output ports."""
        return self._block.outputs

    @property
    def options(self) -> Mapping[str, Any]:
        """The attributes: the arguments of the constructor, with defaults for those that were left out."""
        return MappingProxyType(dict(self._attributes or self._block.attributes))

    def __call__(self, /, *unnamed: Any, **settings: Any) -> Placed:
        """Connect ports and set attributes, to add the block to a model.

        Args:
            unnamed: Not allowed: every connection is made by the name of its port.
            settings: Connections by port, and values by attribute. A connection is a name (`input="x"`), a connection
                of another block (`input=relu.output`), an expression (`input=a + b`), or an `IOKey`. An input also
                accepts a constant number or array. The value of an attribute replaces the constructor's:
                `Linear(10)(input_size=784)`.

        Returns:
            The block with its connections, for `|=` and `+=`. The model itself is unchanged.

        Raises:
            UnknownOptionError: A name is neither a port nor an attribute.
            ConnectionError: A value cannot be connected to its port, or an argument has no name.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> model = Model()
            >>> model |= Linear(64)(input="x", output="hidden")
            >>> model.inputs, model.outputs
            ((Port(name='x', role='data'),), (Port(name='hidden', role='data'),))
        """
        if unnamed:
            ports = ", ".join(port.name for port in self.inputs) or "none"
            first = self.inputs[0].name if self.inputs else self.outputs[0].name if self.outputs else "input"
            raise ConnectionError(
                f"cannot connect {self.kind} to {short_repr(unnamed[0])}: no port of {self.kind} is given.",
                (("inputs", ports), ("outputs", ", ".join(port.name for port in self.outputs) or "none")),
                f'{self._constructor_code()}({first}="x")',
                port=first,
            )
        roles = {**{port.name: "output" for port in self.outputs}, **{port.name: port.role for port in self.inputs}}
        attributes = dict(self._block.attributes)
        connections, changes = {}, {}
        for key, value in settings.items():
            if key in roles and (isinstance(value, Tensorlike | IOKey) or (isinstance(value, str) and value)):
                connections[key] = value
            elif key in attributes:
                changes[key] = value
            elif key in roles and roles[key] != "output" and is_constant(value):
                connections[key] = value
            elif key in roles:
                raise ConnectionError(
                    f"cannot connect port {key!r} of {self.kind} to {value!r}.",
                    (("needs", "a name" + ("" if roles[key] == "output" else ", a connection, or a number")),),
                    f'{self._constructor_code()}({key}="hidden")',
                    port=key,
                )
            else:
                names = [*(port.name for port in (*self.inputs, *self.outputs)), *attributes]
                near = (similar(key, names, 1, 0.6) or names or [""])[0]
                text = repr(value) if near in attributes and near not in roles else '"x"'
                raise UnknownOptionError(
                    f"{self.kind} has no port and no attribute {key!r}.",
                    (("ports", ", ".join(sorted(roles)) or "none"), ("attributes", ", ".join(attributes) or "none")),
                    f"{self._constructor_code()}({near}={text})" if roles else ADD_BLOCK,
                )
        model = with_attributes(self, changes) if changes else self
        return Placed(model, MappingProxyType(connections), self)

    def __getattr__(self, name: str) -> Connection:
        """Return the connection with this name: a port of the block, or a named connection inside the model.

        Without such a connection, return the value of the attribute with this name, such as `Linear(64).dimension`. A
        `Model` attribute hides a connection of the same name: `model["graph"]` returns the connection `graph`.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        if self._draft is not None and name in (values := dict(self._attributes)):
            return values[name]  # pyright: ignore[reportReturnType] - in `compose`, where listing connections is slow
        names = self._connection_names()
        if name in names:
            return Connection(self, name)
        if name in self.options:
            return self.options[name]
        near = similar(name, names, 1, 0.6)
        raise AttributeError(
            f"{self.kind} has no attribute and no connection {name!r}."
            + (f" Did you mean {near[0]!r}?" if near else f" Connections: {listed(names)}.")
        )

    def __getitem__(self, name: str) -> Connection:
        """Return the connection with this name, even if a `Model` attribute has the same name.

        Raises:
            ConnectionError: No connection has this name.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> model = Model() | Linear(3)(output="kind")
            >>> model.kind, model["kind"]
            ('Model', Model(...).kind)
        """
        names = self._connection_names()
        if name in names:
            return Connection(self, name)
        near = similar(str(name), names, 1, 0.6)
        raise ConnectionError(
            f"{self.kind} has no connection {short_repr(name)}.",
            (("connections", listed(names)),),
            f"model[{(near or names)[0]!r}]" if names else ADD_BLOCK,
        )

    __iter__ = None  # otherwise Python would iterate through __getitem__(0), (1), ...

    def _connection_names(self) -> list[str]:
        block = self._block
        labels = block.graph.labels if block.graph is not None else ()
        names = (*(port.name for port in (*block.outputs, *block.inputs)), *(name for name, _ in labels))
        return list(dict.fromkeys(names))

    def __ior__(self, other: Model | Placed) -> Self:
        """Add a block, and connect only the ports that its call names, such as `Relu()(input="x")`."""
        self._extend(other, chain=False)
        return self

    def __iadd__(self, other: Model | Placed) -> Self:
        """Add a block after the last one: the first input that is not connected reads the last block's output."""
        self._extend(other, chain=True)
        return self

    def __or__(self, other: Model | Placed) -> Model:
        """Return a copy of this model to which a block is added as by `|=`."""
        return self._copy().__ior__(other)

    def __add__(self, other: Model | Placed) -> Model:
        """Return a copy of this model to which a block is added as by `+=`."""
        return self._copy().__iadd__(other)

    def _seal(self) -> None:
        # Called after the constructor of a subclass.
        if type(self) is not Model and self._block.op == "":
            self._block = composite(self.graph, type(self).__name__, self._attributes)

    # A copy shares the frozen graph, and later changes of either do not affect the other. `_members` is keyed by `id`,
    # which differs after unpickling, so pickling omits it.

    def __copy__(self) -> Self:
        copied = _new_handle(type(self))
        copied.__dict__.update(self.__dict__, _frozen=self._block, _draft=None, _members=dict(self._members))
        return copied

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_handle, (type(self),), {**self.__dict__, "_frozen": self._block, "_draft": None, "_members": {}}

    def _copy(self) -> Model:
        model = Model(self.name)
        model._block, model._members = self._block, dict(self._members)
        return model

    def _extend(self, other: Model | Placed, chain: bool) -> None:
        if not isinstance(other, Model | Placed):
            raise UnknownOptionError(
                f"cannot add {other!r} to a model.",
                (("needs", "a block, or a block with connections"),),
                'model += Linear(64)  # or model |= Linear(64)(input="x")',
            )
        placed = other if isinstance(other, Placed) else Placed(other)
        block, name = placed.model.block, placed.model.name or ""  # a model added to itself is copied first
        if self._draft is None:
            graph = self._block.graph if self._block.is_composite else None
            self._draft = Draft(LogicalGraph() if graph is None else graph)
            if graph is None:  # an op becomes the first block of a model
                self._draft.add(self._block, name=self.name or "")
        last = self._draft.last_output() if chain else None
        adding = Adding(self, self._draft, self._members)
        try:
            connections = adding.connections(placed.connections)
            block = adding.typed(block, placed.connections)
            name = self._draft.add(block, name=name, connections=connections, after=last)
            adding.annotate(name, placed.connections)
        except MithrilError:
            adding.undo()
            raise
        for handle in (placed.model, placed.handle):
            if handle is not None:
                self._members[id(handle)] = (handle, name)
        self._frozen = None

    def compile(self, backend: Any = None, **options: Any) -> Any:
        """Bind the model to a backend: the same as `ml.compile(model, backend, ...)`.

        Returns:
            A `PhysicalModel`, which can run.
        """
        return plugins.public_name("compile")(self, backend, **options)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self._block == other._block

    # Mutable and compared by value, so it must not be in a set or a dict. `model.block` is hashable.
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _constructor_code(self) -> str:
        kind = KINDS.get(self.kind)
        if kind is None or (
            self._block.graph is not None and not (self._block.is_composite and self._block.attributes)
        ):
            return "block"
        usual = {field.name: field.default for field in fields_of(kind) if not field.is_required}
        changed = [(key, value) for key, value in self._block.attributes if key not in usual or value != usual[key]]
        text = f"{self.kind}({', '.join(f'{key}={value!r}' for key, value in changed)})"
        return text if len(text) <= 80 else "block"

    def __repr__(self) -> str:
        if self._block.graph is None or self._block.attributes:
            arguments = ", ".join(f"{key}={value!r}" for key, value in self._block.attributes)
            return f"{self.kind}({arguments})"
        names = (node.name if node.name.isprintable() else repr(node.name) for node in self.graph.nodes)
        return f"Model({', '.join(names)})"


def _new_handle(kind: type[Model]) -> Any:
    return object.__new__(kind)


@dataclass(frozen=True)
class Placed:
    """A block, and the connections to make when a model adds it: `Linear(64)(input="x", output="hidden")`.

    `model` is the block. `handle` is the object that the user called; the call does not change it.
    """

    model: Model
    connections: Mapping[str, Any] = field(default_factory=dict)
    handle: Model | None = None

    def __getattr__(self, name: str) -> Connection:
        """Return the connection of a port of the block: `placed.output`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.handle or self.model, name)


LogicalModel = Model
"""Mithril's name for `Model`."""
