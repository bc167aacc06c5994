"""Signatures of calls as plain data, which keeps no array alive."""

from __future__ import annotations

import functools
import inspect
import re
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, SingleDeviceSharding

from mithril_nb.errors import short_repr
from mithril_nb.stages.jax_jit import Transform, depth_of, mesh_of, trace_context, transforms_of, type_of
from mithril_nb.stages.jax_versions import file_label
from mithril_nb.stages.jit_events import JitCall

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
LONGEST_TEXT = 20_000
"""Longest stored text of a static value, in characters."""
SHOWN_TEXT = 120
"""Longest shown text of a value, in characters."""
_EXACT = frozenset({"bool", "int", "float", "complex", "str", "bytes", "NoneType"})
"""Names of types whose values are equal if their texts and hashes are equal."""


class Leaf(NamedTuple):
    """An array in an argument, as its type and sharding; or a static value in an argument of `eqx.filter_jit`."""

    type: str
    is_weak: bool
    placement: str
    """The sharding of a committed array; `""` if JAX may place it."""
    mesh: str = ""
    """The mesh and the sharding in the array's type, which JAX's cache of traces compares; `""` if there is none."""
    transforms: tuple[str, ...] = ()
    """The JAX transformations of the value, such as `vmap`, the outermost first."""
    static: Static | None = None
    """The static value; `None` for an array."""


class Static(NamedTuple):
    """The value of a static argument, described for comparison with later calls.

    Attributes:
        kind: Name of the value's type.
        text: The `repr` of the value, without memory addresses; `""` if `repr` raises an error.
        hash: The hash of the value; `None` if `hash` raises an error.
        function: For a function, its name and the place of its definition; `""` for other values.
        reference: A weak reference to the value; `None` if the value does not support one.
    """

    kind: str
    text: str
    hash: int | None
    function: str
    reference: weakref.ref[Any] | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or self[:4] != other[:4]:
            return False
        ours, theirs = (static.reference and static.reference() for static in (self, other))
        try:
            return ours is None or theirs is None or ours is theirs or bool(ours == theirs)
        except Exception:  # raised by a class of the user; text and hash are equal
            return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def is_exact(self) -> bool:
        """True if equality can be tested: the type is simple, or there is a reference to the value."""
        return self.reference is not None or self.kind in _EXACT


class Argument(NamedTuple):
    """An argument of a call."""

    name: str
    label: str
    is_by_name: bool
    static: Static | None = None
    structure: str = ""
    structure_hash: int | None = None
    paths: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = ()
    nodes: tuple[tuple[str, str, weakref.ref[type] | None], ...] = ()
    """For each container of arrays, outer containers first: its path, the name of its class, and its class. A `None` in
    the argument is a container without a class."""
    attributes: tuple[tuple[str, Static], ...] = ()
    """Path and value of each attribute of an nnx module that is not an array."""

    def at(self, path: str) -> str:
        """Return the label of the argument, extended by the path of an array or container in it."""
        if not self.label.endswith("`"):
            return f"{self.label} {path}".rstrip()
        return f"{self.label[:-1]}{path}`"

    @property
    def kinds(self) -> Mapping[str, str]:
        """The name of the class of each container of arrays, and the type of each array, by path."""
        nodes = {path: name for path, name, _ in self.nodes}
        return {**nodes, **dict(zip(self.paths, (leaf.type for leaf in self.leaves), strict=True))}

    def describe(self) -> str:
        """Return the type of the argument if it is an array, else the structure of the container."""
        if self.paths == ("",):
            return self.leaves[0].type
        return self.structure


class Signature(NamedTuple):
    """The parts of a call that JAX compares with the entries of its caches."""

    arguments: tuple[Argument, ...]
    context: tuple[tuple[str, str, int | None], ...]
    options: tuple[tuple[str, str], ...]
    transforms: tuple[Transform, ...] = ()
    """The JAX transformations whose tracers the call receives, the outermost first."""


def signature_of(call: JitCall, earlier: Signature | None = None) -> Signature:
    """Return the signature of a call: the parts that JAX compares with the entries of its caches.

    `earlier` is the signature of an earlier call. Arguments that are equal in both are stored once, which saves memory
    for large parameter trees.
    """
    shared = {} if earlier is None else {argument.name: argument for argument in earlier.arguments}
    arguments = [_argument(call, position, value) for position, value in enumerate(call.args)]
    arguments += [_named(call, name, value) for name, value in sorted(call.kwargs.items())]
    arguments = [shared[argument.name] if shared.get(argument.name) == argument else argument for argument in arguments]
    context = tuple((name, _setting(value), _hash(value)) for name, value in trace_context().items())
    if earlier is not None and earlier.context == context:
        context = earlier.context
    leaves = jax.tree.leaves((call.args, dict(call.kwargs)))
    traces = {trace: transform for leaf in leaves for trace, (transform, _) in transforms_of(leaf).items()}
    transforms = tuple(traces[trace] for trace in sorted(traces, key=depth_of))
    return Signature(tuple(arguments), context, call.options, transforms)


def function_text(function: Any) -> str:
    """Describe a function by its name and the place of its definition.

    Examples:
        >>> function_text(functools.partial(print, 1))
        'functools.partial of `print` with 1'
    """
    if isinstance(function, functools.partial):
        bound = [short_repr(value, 40) for value in function.args]
        bound += [f"{name}={short_repr(value, 40)}" for name, value in function.keywords.items()]
        return f"functools.partial of {function_text(function.func)} with {', '.join(bound) or 'no arguments'}"
    bound = "the bound method " if inspect.ismethod(function) else ""
    inner = inspect.unwrap(function)
    name = getattr(inner, "__qualname__", None)
    if name is None:
        return f"an instance of `{type(function).__qualname__}`"
    name = name.rpartition("<locals>.")[2] if inner.__name__ != "<lambda>" else "<lambda>"
    code = getattr(inner, "__code__", None)
    location = "" if code is None else f" at {file_label(code.co_filename)}:{code.co_firstlineno}"
    return f"{bound}`{name}`{location}"


def _argument(call: JitCall, position: int, value: Any) -> Argument:
    has_name = position < len(call.parameters)
    name = call.parameters[position] if has_name else f"{position}"
    is_static = position in call.static_positions or (has_name and name in call.static_names)
    return _read(call, name, position, has_name, False, is_static, value)


def _named(call: JitCall, name: str, value: Any) -> Argument:
    position = call.parameters.index(name) if name in call.parameters else None
    is_static = name in call.static_names or position in call.static_positions
    return _read(call, name, position, True, True, is_static, value)


def _read(
    call: JitCall, name: str, position: int | None, is_named: bool, is_by_name: bool, is_static: bool, value: Any
) -> Argument:
    is_static |= call.is_filtered and not _is_array(value) and jax.tree_util.all_leaves([value])
    number = "" if position is None or (is_static and is_named) else f" {position + 1}"
    label = f"{'static ' if is_static else ''}argument{number}{f' `{name}`' if is_named else ''}"
    if is_static:
        return Argument(name, label, is_by_name, _static(value), attributes=tuple(_attributes([value])))
    entries, shape = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda node: node is None)
    pairs, tree = [pair for pair in entries if pair[1] is not None], jax.tree.structure(value)
    paths = tuple(jax.tree_util.keystr(path) for path, _ in pairs)
    leaves = tuple(_leaf(leaf, call.is_filtered and not _is_array(leaf)) for _, leaf in pairs)
    structure = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    # The hash of a PyTreeDef ignores static data. Its text includes static data, but also addresses of functions, which
    # `shortened` removes.
    nodes = tuple(_nodes(entries, shape))
    attributes = tuple(_attributes(_graph_definitions(tree)))
    return Argument(
        name, label, is_by_name, None, shortened(structure), hash(structure), paths, leaves, nodes, attributes
    )


def _graph_definitions(tree: Any) -> Iterator[Any]:
    """Yield the static data of the nnx modules in a tree structure: all attributes except arrays."""
    data = tree.node_data()
    if data is not None and data[0].__name__ == "GraphDef":
        yield data[1]
    for child in tree.children():
        yield from _graph_definitions(child)


def _attributes(definitions: Iterable[Any]) -> Iterator[tuple[str, Static]]:
    """Yield path and value of each attribute in nnx's `GraphDef`s; nothing for other values.

    A `GraphDef` lists its nodes, and the attributes of all nodes, both in the order of a depth-first search.
    """

    def walk(nodes: Iterator[Any], attributes: Iterator[Any], path: str) -> Iterator[tuple[str, Static]]:
        for _ in range(getattr(next(nodes, None), "num_attributes", 0)):
            name, value = next(attributes)
            at = f"{path}.{name}" if isinstance(name, str) else f"{path}[{name}]"
            if type(value).__name__ == "NodeAttr":
                yield from walk(nodes, attributes, at)
            elif hasattr(value, "value") and not str(name).startswith("_pytree__"):
                yield at, _static(value.value)

    for definition in definitions:
        if type(definition).__name__ == "GraphDef":
            yield from walk(iter(definition.nodes), iter(definition.attributes), "")


def _nodes(leaves: Sequence[tuple[Any, Any]], tree: Any) -> Iterator[tuple[str, str, weakref.ref[type] | None]]:
    """Yield path, name of the class, and class of each container of arrays in an argument, outer containers first.

    A `None` in the argument is a container without a class.

    Args:
        leaves: Path and value of each leaf of the argument.
        tree: The tree structure of the argument, in which a `None` is a leaf.
    """
    left = [(tree, 0, 0)]
    while left:
        node, depth, first = left.pop()
        if not node.num_leaves:
            continue
        path, leaf = leaves[first]
        data = node.node_data()
        if data is not None or leaf is None:
            name, kind = ("None", None) if data is None else (data[0].__name__, weakref.ref(data[0]))
            yield jax.tree_util.keystr(path[:depth]), name, kind
        inner: list[tuple[Any, int, int]] = []
        for child in node.children():
            inner.append((child, depth + 1, first))
            first += child.num_leaves
        left += reversed(inner)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _leaf(value: Any, is_static: bool) -> Leaf:
    if is_static:
        return Leaf(type(value).__name__, False, "", static=_static(value))
    try:
        transforms = tuple(f"{transform.text}{axis}" for transform, axis in reversed(transforms_of(value).values()))
        return Leaf(*type_of(value), _placement(value), mesh_of(value), transforms)
    except TypeError:  # not a JAX type; JAX rejects it right after this
        return Leaf(type(value).__name__, False, "")


def _placement(value: Any) -> str:
    if not isinstance(value, jax.Array) or isinstance(value, Tracer) or not value.committed:
        return ""
    if isinstance(value.sharding, SingleDeviceSharding):
        (device,) = value.sharding.device_set
        return f"{device.platform}:{device.id}"
    if isinstance(value.sharding, NamedSharding):
        return f"{value.sharding.spec} on the mesh {_axes(value.sharding.mesh.shape)}"
    return str(value.sharding)


def _static(value: Any) -> Static:
    function = function_text(value) if callable(value) and not isinstance(value, type) else ""
    try:
        text = _ADDRESS.sub("", repr(value))[:LONGEST_TEXT]
    except Exception:  # raised by a class of the user
        text = ""
    try:
        reference = weakref.ref(value)
    except TypeError:
        reference = None
    return Static(type(value).__name__, text, _hash(value), function, reference)


def _setting(value: Any) -> str:
    attribute = {"AxisEnv": "axis_sizes", "Mesh": "shape", "AbstractMesh": "shape"}.get(type(value).__name__, "")
    axes: Any = getattr(value, attribute, None)
    if axes is not None:
        return _axes(axes) if axes else "none"
    return "none" if value is None or value == () else shortened(short_repr(value, 200))


def _axes(shape: Mapping[str, int]) -> str:
    return f"({', '.join(f'{name}: {size}' for name, size in shape.items())})"


def shortened(text: str) -> str:
    """Return a text without memory addresses, cut off after `SHOWN_TEXT` characters."""
    text = _ADDRESS.sub("", text)
    return text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 3] + "..."


def _hash(value: Any) -> int | None:
    try:
        return hash(value)
    except Exception:  # raised by a class of the user; JAX rejects it too, or compares it differently
        return None
