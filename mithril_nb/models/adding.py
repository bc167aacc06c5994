"""Add a block to a model: resolve the connections, expressions, `IOKey`s and constants that its call contains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from mithril_nb.errors import ConnectionError, short_repr
from mithril_nb.graph.edit import Draft, swap
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, Note
from mithril_nb.graph.spec import as_dtype, as_shape, exactly
from mithril_nb.models.connection import Connection, Expression, IOKey, Tensorlike
from mithril_nb.models.registry import kind_named
from mithril_nb.models.shape_inference.dims import meet


class Adding:
    """Adds one block to a model: changes the draft of its graph, and can undo the changes after an error.

    Args:
        model: The model.
        draft: The graph of the model under construction.
        members: A dict from the `id` of each model and expression that the user has added to a pair: the object, and
            the name of its block (for a model) or of its output (for an expression).
    """

    def __init__(self, model: object, draft: Draft, members: dict[int, tuple[object, str]]):
        self.model, self.draft, self.members = model, draft, members
        self.before = None

    def connections(self, values: Mapping[str, Any]) -> dict[str, str]:
        """Return a dict from each port to the name of its connection.

        Adds the blocks of expressions and constants to the draft. Omits ports whose `IOKey` has no name and no value.

        Args:
            values: The value that the user connected to each port, such as `{"input": a + b}`.
        """
        if any(not isinstance(value, str | Connection) for value in values.values()):
            self.before = self.draft.state(), dict(self.members)
        return {port: self.name(value) for port, value in values.items() if not _is_nameless(value)}

    def name(self, value: Any) -> str:
        """Return the name of one connection, as `connections` does."""
        if isinstance(value, str):
            return value
        if isinstance(value, Connection):
            return self.connected(value)
        if isinstance(value, Expression):
            return self.expression(value)
        if isinstance(value, IOKey):
            name = value.name or ""
            if value.value is None:
                return component(name)
            existing = self.known_constant(value) if name else None
            return self.constant(value.value, name, value.type) if existing is None else existing
        return self.constant(value)

    def connected(self, connection: Connection) -> str:
        """Return the name that a connection of a block has in this model."""
        if connection.model is self.model:
            return component(connection.port)
        block = self.member(connection.model)
        if block is None:
            raise ConnectionError(
                f"{connection!r} is not part of this model.",
                (("because", f"the {connection.model.kind} block was not added to it"),),
                "model |= block  # then connect to block.output",
                port=connection.port,
            )
        end = Endpoint(block, connection.port)
        if connection.port in {port.name for port in self.draft.node(block).block.outputs}:
            return str(end)
        if self.before is None:
            self.before = self.draft.state(), dict(self.members)
        return self.draft.shared(end)

    def member(self, value: object) -> str | None:
        """Return the name of an added model's block or expression's output; `None` if the object was not added."""
        added, name = self.members.get(id(value), (None, ""))
        return name if added is value else None

    def expression(self, root: Expression) -> str:
        """Return the name of an expression's output. Adds the expression if it was not added before."""
        waiting = [root]
        while waiting:  # no recursion: a sum of 10,000 terms is 10,000 expressions deep
            expression = waiting[-1]
            operands = [
                operand
                for operand in expression.inputs.values()
                if isinstance(operand, Expression) and self.member(operand) is None
            ]
            if operands:
                waiting.extend(operands)
                continue
            waiting.pop()
            if self.member(expression) is not None:
                continue
            model = kind_named(expression.kind)(**expression.options)
            data = {port.name for port in model.inputs if port.role != "option"}
            settings = {}
            connections = {}
            for port, value in expression.inputs.items():
                if _is_nameless(value):
                    continue
                if isinstance(value, Tensorlike | IOKey | str) or port in data:
                    connections[port] = self.member(value) or self.name(value)
                else:
                    settings[port] = value
            if settings:
                model = kind_named(expression.kind)(**{**expression.options, **settings})
            name = self.draft.add(model.block, connections=connections)
            self.members[id(expression)] = (expression, str(Endpoint(name, model.outputs[0].name)))
        return self.members[id(root)][1]

    def constant(self, value: Any, name: str = "", dtype: Any = None) -> str:
        """Add a `Constant`, and return the name of its output."""
        model = kind_named("Constant")(value, dtype)
        label = {model.outputs[0].name: component(name)} if name else {}
        return str(Endpoint(self.draft.add(model.block, connections=label), model.outputs[0].name))

    def known_constant(self, key: IOKey) -> str | None:
        """Return the output of the `Constant` that was added under the name of `key`; `None` if there is none."""
        graph = self.draft.graph()
        end = dict(graph.labels).get(key.name or "", Endpoint(BOUNDARY, ""))
        existing = graph.by_name[end.node].block if end.node else None
        if existing is None or existing.kind != "Constant":
            return None
        constant = kind_named("Constant")(key.value, existing.options["dtype"] if key.type is None else key.type).block
        now, before = constant.options, existing.options
        if exactly(now["value"]) != exactly(before["value"]):
            raise _contradiction(key, str(key.name), "value", before["value"], now["value"])
        if before["dtype"] is None:
            self.draft.restart(swap(graph, end.node, constant))
        elif now["dtype"] != before["dtype"]:
            raise _contradiction(key, str(key.name), "type", before["dtype"], now["dtype"])
        return str(end)

    def typed(self, block: Block, values: Mapping[str, Any]) -> Block:
        """Return the block with the dtypes that `IOKey`s in `values` declare for its outputs."""
        for port, key in values.items():
            if isinstance(key, IOKey) and key.type is not None:
                block = with_dtype(block, port, str(as_dtype(key.type)))
        return block

    def annotate(self, name: str, values: Mapping[str, Any]) -> None:
        """Annotate the connections of a block with the properties that `IOKey`s declare, such as shapes and dtypes.

        Args:
            name: Name of the block.
            values: The value that the user connected to each port. Values other than `IOKey`s are ignored.
        """
        for port, key in values.items():
            if not isinstance(key, IOKey):
                continue
            node = self.draft.node(name)
            is_output = port in {output.name for output in node.block.outputs}
            end = Endpoint(name, port) if is_output else self.draft.source(name, port)
            declared: dict[str, Any] = {}
            if key.shape is not None:
                declared["shape"] = as_shape(key.name or port, key.shape)
            if key.type is not None and key.value is None:  # a constant has its dtype already
                declared["dtype"] = str(as_dtype(key.type))
            if key.differentiable is not None:
                declared["is_trainable"] = bool(key.differentiable)
            if key.expose is not None and (end.node != BOUNDARY or key.expose):
                declared["is_exposed"] = key.expose and end.node != BOUNDARY
            if declared:
                connection = key.name or str(Endpoint(name, port))
                self.draft.note(end, partial(_merge_declared, key=key, connection=connection, declared=declared))

    def undo(self) -> None:
        """Remove the blocks that `connections` added to the draft."""
        if self.before is not None:
            state, members = self.before
            self.draft.restore(state)
            self.members.clear()
            self.members.update(members)


def with_dtype(block: Block, port: str, dtype: str) -> Block:
    """Return a block that creates an array, such as `Constant`, with its dtype set; return other blocks unchanged."""
    is_maker = port in {output.name for output in block.outputs} and all(
        output.role != "data" for output in block.inputs
    )
    if is_maker and block.options.get("dtype", "") is None:
        return kind_named(block.kind)(**{**block.options, "dtype": dtype}).block
    return block


def _merge_declared(note: Note, key: IOKey, connection: str, declared: dict[str, Any]) -> Note:
    for field, word in (("shape", "shape"), ("dtype", "type"), ("is_trainable", "differentiable")):
        now, before = declared.get(field), getattr(note, field)
        if now is None or before is None:
            continue
        both = meet(now, before, {}) if field == "shape" else now if now == before else None
        if both is None:
            raise _contradiction(key, connection, word, before, now)
        declared = {**declared, field: both}
    return replace(note, **declared)


def _contradiction(key: IOKey, connection: str, word: str, before: Any, now: Any) -> ConnectionError:
    again = f'IOKey("{key.name}_2", {word}={short_repr(now)})  # or IOKey("{key.name}") without {word}='
    return ConnectionError(
        f"IOKey({connection!r}) declares another {word}= than an earlier IOKey of this connection.",
        (("before", f"{word}={short_repr(before)}"), ("now", f"{word}={short_repr(now)}")),
        again if key.name else f"IOKey()  # without {word}=",
        port=connection,
    )


def _is_nameless(value: Any) -> bool:
    return isinstance(value, IOKey) and not value.name and value.value is None
