"""Read Python that builds a model, as `to_source` writes it. The code is parsed and not run."""

from __future__ import annotations

import ast
import io
import operator
from collections.abc import Callable, Mapping
from typing import Any

from mithril_nb.errors import MithrilError, ModelFileError, nearest, short_repr
from mithril_nb.models.connection import Connection
from mithril_nb.models.model import Model
from mithril_nb.models.registry import KINDS
from mithril_nb.models.saving.serialization import LoadLimits

MOST_CHARACTERS = 1_000_000
_SETTERS = ("set_shapes", "set_types", "set_differentiability", "set_initializers", "expose_keys", "set_order")
_OPERATORS: dict[type, tuple[Callable[..., Any], Callable[..., Any]]] = {
    ast.Add: (operator.add, operator.iadd),
    ast.BitOr: (operator.or_, operator.ior),
}


def from_source(text: str) -> Model:
    """Return the model that Python code builds: the model that its last statement assigns, extends or contains.

    The code is a sequence of assignments, `|=`, `+=`, and calls of methods such as `set_shapes`, as `to_source` writes
    them. It is read as syntax: only constructors of blocks are called, with plain values and other blocks.

    Raises:
        ModelFileError: The text is no Python, is too large, or contains other code. The message names the line.

    Examples:
        >>> from mithril_nb.models import Linear, Model, Relu
        >>> from mithril_nb.models.saving.formats import to_source
        >>> model = Model() + Linear(64) + Relu()
        >>> from_source(to_source(model)).graph == model.graph
        True
    """
    if len(text) > MOST_CHARACTERS:
        facts = (("has", f"{len(text):,} characters"), ("at most", f"{MOST_CHARACTERS:,} characters"))
        raise ModelFileError("the text is too long for a model.", facts, "ml.load(path)")
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = f": {error.msg}" if isinstance(error, SyntaxError) and error.msg else ""
        raise _refusal(f"the text is no Python{reason}", getattr(error, "lineno", None) or 1, text) from None
    reader = _Reader()
    for statement in body:
        try:
            reader.read(statement)
        except MithrilError:
            raise
        except _NotReadError:
            raise _refusal("the text is not only a model", statement.lineno, text) from None
        except Exception as error:
            raise _refusal(f"the model cannot be built: {short_repr(str(error))}", statement.lineno, text) from None
    model = reader.model
    if model is None:
        raise ModelFileError(
            "the text contains no model.", (("text", short_repr(text)),), "model = Model()\nmodel |= Linear(64)"
        )
    return model if model.kind == "Model" else Model() | model


def value_of(node: ast.expr, imports: Mapping[str, str]) -> Any:
    """Return the value of an expression without variables, such as a block.

    Args:
        node: The expression.
        imports: Kinds of blocks by their names in the expression, if these differ.
    """
    reader = _Reader()
    reader.names = dict(imports)
    return reader.value(node)


def lines_of(text: str) -> list[str]:
    """Return the lines of code with their ends, as `ast` counts them: a form feed or U+2028 begins none."""
    return list(io.StringIO(text, newline=""))


def _refusal(why: str, line: int, text: str) -> ModelFileError:
    code = lines[line - 1] if 0 < line <= len(lines := lines_of(text)) else ""
    return ModelFileError(f"{why}.", (("line", str(line)), ("code", short_repr(code.strip()))), "model |= Linear(64)")


class _NotReadError(Exception):
    """The code is none that builds a model."""


class _Reader:
    def __init__(self) -> None:
        self.model: Model | None = None
        self.values: dict[str, Any] = {}
        self.names: dict[str, str] = {}  # kinds by the name that an import gave them
        self.sizes: dict[str, int] = {}  # numbers of blocks: a model added to itself doubles with each line

    def read(self, statement: ast.stmt) -> None:
        match statement:
            case ast.ImportFrom(names=names):
                self.names |= {alias.asname or alias.name: alias.name for alias in names}
            case ast.Import() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.assign(name, value)
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=nodes)):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                if not len(names) == len(targets) == len(nodes):
                    raise _NotReadError
                for name, node in zip(names, nodes, strict=True):
                    self.count(name, node, 0)
                self.values |= dict(zip(names, [self.value(node) for node in nodes], strict=True))
            case ast.AugAssign(target=ast.Name(id=name), value=value) if type(statement.op) in _OPERATORS:
                self.count(name, value, self.sizes.get(name, 0))
                self.model = _OPERATORS[type(statement.op)][1](self.model_of(name), self.value(value))
                self.values[name] = self.model
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=setter)) as call) if (
                setter in _SETTERS
            ):
                args, keywords = self.arguments(call)
                getattr(self.model_of(name), setter)(*args, **keywords)
            case ast.Expr(value=value):
                self.assign("", value)
            case _:
                raise _NotReadError

    def assign(self, name: str, node: ast.expr) -> None:
        self.count(name, node, 0)
        self.values[name] = value = self.value(node)
        if not isinstance(value, Model):
            raise _NotReadError
        self.model = value

    def count(self, name: str, node: ast.expr, size: int) -> None:
        parts = [self.sizes.get(part.id, 0) for part in ast.walk(node) if isinstance(part, ast.Name)]
        self.sizes[name] = size + sum(parts) + 1
        LoadLimits().check("nodes", self.sizes[name], "blocks")

    def model_of(self, name: str) -> Model:
        if not isinstance(self.values.get(name), Model):
            raise _NotReadError
        return self.values[name]

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name) if name in self.values:
                return self.values[name]
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.Dict(keys=keys, values=values) if None not in keys:
                return {self.value(key): self.value(item) for key, item in zip(keys, values, strict=True) if key}
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.BinOp(left=left, right=right) if type(node.op) in _OPERATORS:
                first = self.value(left)
                if not isinstance(first, Model):
                    raise _NotReadError
                return _OPERATORS[type(node.op)][0](first, self.value(right))
            case ast.Attribute(value=ast.Name(id=name), attr=port) if name in self.values:
                return Connection(self.model_of(name), port)
            case ast.Call():
                return self.call(node)
            case _:
                raise _NotReadError

    def call(self, node: ast.Call) -> Any:
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="Model"), attr="of")):
                graph, *rest = node.args
                if (
                    not isinstance(graph, ast.Attribute)
                    or graph.attr != "graph"
                    or not isinstance(graph.value, ast.Name)
                ):
                    raise _NotReadError
                return Model.of(self.model_of(graph.value.id).graph, *map(self.value, rest))
            case ast.Call(func=ast.Name(id=name)) if name not in self.values:
                return self.construct(self.names.get(name, name), node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=kind)) if module not in self.values:
                return self.construct(kind, node)
        block = self.value(node.func)
        args, keywords = self.arguments(node)
        if not isinstance(block, Model) or args:
            raise _NotReadError
        return block(**keywords)

    def construct(self, kind: str, node: ast.Call) -> Any:
        args, keywords = self.arguments(node)
        if kind == "float" and len(args) == 1 and isinstance(args[0], str):
            return float(args[0])
        if kind == "from_dict":
            return Model.from_dict(*args)
        constructor = Model if kind == "Model" else KINDS.get(kind)
        if constructor is None:
            near = nearest(kind, KINDS)
            raise ModelFileError(
                f"the text uses a block that does not exist here: {short_repr(kind)}.",
                (("line", str(node.lineno)),),
                f"{near}()" if near else "Linear(64)",
            )
        return constructor(*args, **keywords)

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value)
            keywords |= value if keyword.arg is None else {keyword.arg: value}
        return [self.value(arg) for arg in node.args], keywords
