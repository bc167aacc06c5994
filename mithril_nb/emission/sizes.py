"""Sizes that depend on names instead of numbers, such as `2*batch`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax


class NamedSize:
    """A size that depends on names. Its text is Python, such as `"2 * batch"`.

    Two sizes are equal only if they are equal for all values of the names. Whatever needs a number raises
    `jax.errors.InconclusiveDimensionOperation`: a conversion to `int`, or a comparison that depends on the names.
    `names` are the names in the source of those in `dim`, the symbolic dimension of JAX.
    """

    def __init__(self, dim: Any, names: Mapping[str, str]):
        self.dim, self.names = dim, names

    @property
    def tree(self) -> ast.expr:
        return _AsPython(self.names).visit(ast.parse(str(self.dim).strip().replace("^", "**"), mode="eval").body)

    def __repr__(self) -> str:
        return ast.unparse(self.tree)

    def __hash__(self) -> int:
        return hash(self.dim)

    def __index__(self) -> int:
        return int(self.dim)  # raises


# JAX prints `floordiv(batch + 1, 2)`, `mod(batch, 2)` and `batch^2`; `max` and `min` are Python's.
class _AsPython(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]):
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._names.get(node.id, node.id))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        operation = {"floordiv": ast.FloorDiv(), "mod": ast.Mod()}.get(ast.unparse(node.func))
        left, right = map(self.visit, node.args)
        return ast.Call(node.func, [left, right], []) if operation is None else ast.BinOp(left, operation, right)


def sized(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value, or a tuple or list of values, with a `NamedSize` for each symbolic dimension of JAX."""
    if type(value) in (tuple, list):
        return type(value)(sized(item, names) for item in value)
    return NamedSize(value, names) if jax.export.is_symbolic_dim(value) else value


def has_names(sizes: Iterable[Any]) -> bool:
    return any(isinstance(size, NamedSize) for size in sizes)


def number(size: Any) -> Any:
    """Return a size as a Python `int`, or as it is if it depends on names."""
    return size if isinstance(size, NamedSize) else int(size)


def example(size: Any) -> int:
    """Return a size where each name is 97, which is not the number of another size as a rule."""
    return eval(str(size), dict.fromkeys(size.names.values(), 97)) if isinstance(size, NamedSize) else size


def _delegated(operator: str) -> Callable[..., Any]:
    def method(self: NamedSize, other: Any) -> Any:
        return sized(getattr(self.dim, operator)(other.dim if isinstance(other, NamedSize) else other), self.names)

    return method


# JAX's dimensions compute and compare; they would show their own names, which may be taken in the source.
for _name in "add radd sub rsub mul rmul floordiv rfloordiv mod rmod eq ne lt le gt ge".split():
    setattr(NamedSize, f"__{_name}__", _delegated(f"__{_name}__"))
