"""Signatures of calls as plain data, which keeps no array alive, and their differences as clauses of a sentence."""

from __future__ import annotations

import functools
import inspect
import re
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest
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
# Names of types whose values are equal if their texts and hashes are equal.
_EXACT = frozenset({"bool", "int", "float", "complex", "str", "bytes", "NoneType"})


class ArgumentLeaf(NamedTuple):
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
        # The values may be gone by now, and most classes compare by identity.
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
    leaves: tuple[ArgumentLeaf, ...] = ()
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
    arguments = [_read(call, value, position) for position, value in enumerate(call.args)]
    arguments += [_read(call, value, None, name) for name, value in sorted(call.kwargs.items())]
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


def _read(call: JitCall, value: Any, position: int | None, name: str = "") -> Argument:
    is_by_name = position is None
    is_named = is_by_name or position < len(call.parameters)
    if position is not None:
        name = call.parameters[position] if is_named else f"{position}"
    elif name in call.parameters:
        position = call.parameters.index(name)
    is_static = position in call.static_positions or (is_named and name in call.static_names)
    # `eqx.filter_jit` takes each leaf that is no array as static.
    is_static |= call.is_filtered and not _is_array(value) and jax.tree_util.all_leaves([value])
    number = "" if position is None or (is_static and is_named) else f" {position + 1}"
    label = f"{'static ' if is_static else ''}argument{number}{f' `{name}`' if is_named else ''}"
    if is_static:
        return Argument(name, label, is_by_name, _static(value), attributes=tuple(_attributes([value])))
    # JAX drops `None` from a tree, but a `None` that becomes an array is a change of structure.
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
    data = tree.node_data()
    # By name, so that Flax is not imported: nnx passes the static part of a module as a `GraphDef` in a tree node.
    if data is not None and data[0].__name__ == "GraphDef":
        yield data[1]
    for child in tree.children():
        yield from _graph_definitions(child)


def _attributes(definitions: Iterable[Any]) -> Iterator[tuple[str, Static]]:
    # A `GraphDef` lists its nodes, and the attributes of all nodes, both in the order of a depth-first search.
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
    # A `None` in the argument is a container without a class.
    left = [(tree, 0, 0)]
    while left:
        node, depth, first = left.pop()
        if not node.num_leaves:
            continue
        path, leaf = leaves[first]
        data = node.node_data()
        if data is not None or leaf is None:
            # A class that is defined again in a notebook has the same name, and is another class for JAX.
            name, kind = ("None", None) if data is None else (data[0].__name__, weakref.ref(data[0]))
            yield jax.tree_util.keystr(path[:depth]), name, kind
        inner: list[tuple[Any, int, int]] = []
        for child in node.children():
            inner.append((child, depth + 1, first))
            first += child.num_leaves
        left += reversed(inner)


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _leaf(value: Any, is_static: bool) -> ArgumentLeaf:
    if is_static:
        return ArgumentLeaf(type(value).__name__, False, "", static=_static(value))
    try:
        transforms = tuple(f"{transform.text}{axis}" for transform, axis in reversed(transforms_of(value).values()))
        return ArgumentLeaf(*type_of(value), _placement(value), mesh_of(value), transforms)
    except TypeError:  # not a JAX type; JAX rejects it right after this
        return ArgumentLeaf(type(value).__name__, False, "")


def _placement(value: Any) -> str:
    # JAX may place an uncommitted array anywhere, so its device is not part of the key of its caches.
    if not isinstance(value, jax.Array) or isinstance(value, Tracer) or not value.committed:
        return ""
    if isinstance(value.sharding, SingleDeviceSharding):
        (device,) = value.sharding.device_set
        return f"{device.platform}:{device.id}"
    if isinstance(value.sharding, NamedSharding):
        return f"{value.sharding.spec} on the mesh {_axes(value.sharding.mesh.shape)}"
    return str(value.sharding)


def _static(value: Any) -> Static:
    # The repr of a function has only its name and address.
    function = function_text(value) if callable(value) and not isinstance(value, type) else ""
    try:
        # Most objects print their address, which differs for equal objects.
        text = _ADDRESS.sub("", repr(value))[:LONGEST_TEXT]
    except Exception:  # raised by a class of the user
        text = ""
    try:
        reference = weakref.ref(value)
    except TypeError:
        reference = None
    return Static(type(value).__name__, text, _hash(value), function, reference)


def _setting(value: Any) -> str:
    # A mesh prints all its devices, but only the names and sizes of its axes matter.
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


# Number of characters shown before the first difference of two long texts.
_AROUND = 40
# Number of parts that a changed structure counts as: calls with the same structure are always more similar.
_STRUCTURE = 1000
# Most differences that a sentence lists; further differences are only counted.
_MOST = 3
_MESH = "the mesh of the context"
_CONTEXT = {
    "mesh_context_manager": _MESH,
    "abstract_mesh_context_manager": _MESH,
    "axis_env_state": "the named axes of the context",
}


class CallDifference(NamedTuple):
    """A difference between two calls of a jitted function.

    Attributes:
        clause: The difference as part of a sentence: `"argument 1 changed from f32[2] to f32[3]"`.
        parts: Number of parts that differ, such as axes of a shape. The most similar calls differ in the fewest parts.
    """

    clause: str
    parts: int = 1


def differences(old: Signature, new: Signature, *, is_compiled: bool = False) -> list[CallDifference]:
    """Return the differences between two calls of a jitted function."""
    before = {argument.name: argument for argument in old.arguments}
    changes: list[CallDifference] = []
    for argument in new.arguments:
        earlier = before.pop(argument.name, None)
        if earlier is None:
            changes.append(CallDifference(f"{argument.label} was left out before and is given now"))
        elif earlier != argument:
            changes += _of_argument(earlier, argument, is_compiled, old.transforms == new.transforms)
    changes += [
        CallDifference(f"{argument.label} was given before and is left out now") for argument in before.values()
    ]
    if old.context != new.context:
        were = {name: (text, key) for name, text, key in old.context}
        changed = (
            CallDifference(f"{_CONTEXT.get(name, name)} changed from {were[name][0]} to {text}")
            for name, text, key in new.context
            if name in were and were[name] != (text, key)
        )
        # Two settings of JAX hold the mesh, and change together: one clause is enough.
        changes += {change.clause.partition(" changed ")[0]: change for change in changed}.values()
    if is_compiled:
        options = dict(old.options)
        changes += [
            CallDifference(f"the option {name} of jax.jit changed from {options[name]} to {text}")
            for name, text in new.options
            if options.get(name, text) != text
        ]
        changes += _of_transforms(old.transforms, new.transforms)
    return changes


def sentence(clauses: Sequence[str]) -> str:
    """Join clauses to one sentence. It contains the first three clauses and the number of further ones.

    Examples:
        >>> sentence(["a changed", "b changed"]), sentence("abcde")
        ('a changed; b changed', 'a; b; c; and 2 more changes')
    """
    return _few(clauses, "; ", " change")


def _of_argument(
    old: Argument, new: Argument, is_compiled: bool, is_transformed_alike: bool
) -> Iterator[CallDifference]:
    if old.is_by_name != new.is_by_name:
        was, now = ("name", "position") if old.is_by_name else ("position", "name")
        yield CallDifference(f"{new.label} was given by {was} before and is given by {now} now")
    if (old.static is None) != (new.static is None):
        yield CallDifference(f"{new.label} is now static" if new.static else f"{new.label} is no longer static")
    elif old.static is not None and new.static is not None:
        if old.static != new.static:
            of_value = [f"{new.label} {_of_static(old.static, new.static)}"]
            yield from map(CallDifference, [*_of_attributes(old, new)] or of_value)
    elif any(getattr(old, name) != getattr(new, name) for name in ("structure_hash", "structure", "nodes")):
        yield CallDifference(
            "; ".join(_of_attributes(old, new)) or _of_structure(old, new),
            _STRUCTURE + len(old.kinds.items() ^ new.kinds.items()),
        )
    elif old.leaves != new.leaves:
        for path, was, now in zip(new.paths, old.leaves, new.leaves, strict=True):
            yield from _of_leaf(new.at(path), was, now, is_compiled, is_transformed_alike)


def _of_attributes(old: Argument, new: Argument) -> Iterator[str]:
    before = dict(old.attributes)
    for path, static in new.attributes:
        if path in before and before[path] != static:
            yield f"{new.at(path)} {_of_static(before[path], static)}"


def _of_leaf(
    at: str, was: ArgumentLeaf, now: ArgumentLeaf, is_compiled: bool, is_transformed_alike: bool
) -> Iterator[CallDifference]:
    if was.static is not None and now.static is not None:
        if was.static != now.static:
            yield CallDifference(f"{at} {_of_static(was.static, now.static)}")
    elif was.type != now.type:
        before, after = was.type, now.type
        if was.is_weak != now.is_weak:
            before, after = (f"{'weak ' if leaf.is_weak else ''}{leaf.type}" for leaf in (was, now))
        parts = _parts(was.type, now.type) + (was.is_weak != now.is_weak)
        yield CallDifference(f"{at} changed from {before} to {after}", parts)
    elif was.is_weak != now.is_weak:
        change = "weak type became strong" if was.is_weak else "strong type became weak"
        yield CallDifference(f"{at}: {change} ({now.type})")
    # The mesh is part of the type, so JAX traces again; another device alone only compiles again.
    moved = is_compiled or (was.mesh != now.mesh and was.type == now.type)
    if moved and was.placement != now.placement:
        before, after = was.placement, now.placement
        yield CallDifference(
            f"{at} became committed to {after}"
            if not before
            else f"{at} changed its sharding from {before} to {after}"
            if after
            else f"{at} is no longer committed to {before}"
        )
    if is_compiled and is_transformed_alike and was.transforms != now.transforms:
        before, after = (" and ".join(leaf.transforms) or "not transformed" for leaf in (was, now))
        yield CallDifference(f"{at} is {after}, in the earlier call it was {before}")


def _parts(old: str, new: str) -> int:
    # A type prints as `f32[32,10]`, or as `f32[32@data,10]` with explicit sharding.
    # The dtype, the rank, and each axis of the shape.
    (dtype, _, axes), (new_dtype, _, new_axes) = old.partition("["), new.partition("[")
    before, after = (tuple(filter(None, shape.rstrip("]").split(","))) for shape in (axes, new_axes))
    differing = sum(was != now for was, now in zip_longest(before, after))
    return (dtype != new_dtype) + (len(before) != len(after)) + differing


def _of_transforms(old: Sequence[Transform], new: Sequence[Transform]) -> Iterator[CallDifference]:
    if [transform.text for transform in old] == [transform.text for transform in new]:
        for was, now in zip(old, new, strict=True):
            if was.size != now.size:
                yield CallDifference(f"the call is {now.text} over {now.size:,} instead of {was.size:,}")
    else:
        before, after = (
            ", then ".join(
                transform.text if transform.size is None else f"{transform.text} over {transform.size:,}"
                for transform in each
            )
            or "not transformed"
            for each in (old, new)
        )
        yield CallDifference(f"the call is {after}, the earlier call was {before}", abs(len(old) - len(new)) or 1)


def _of_static(old: Static, new: Static) -> str:
    if not (old.text and new.text):
        return f"is a {new.kind} that cannot be printed, and is not equal to the earlier {old.kind}"
    if new.function and old.text == new.text:
        return f"is a new function object: {new.function}"
    if old.text == new.text:
        beginning = f" in the first {LONGEST_TEXT:,} characters" if len(new.text) == LONGEST_TEXT else ""
        text = shortened(new.text)
        return f"is a new object, not equal to the earlier one, although both print the same{beginning}: {text}"
    before, after = old.function or old.text, new.function or new.text
    if len(before) <= SHOWN_TEXT and len(after) <= SHOWN_TEXT:
        return f"changed from {before} to {after}"
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    start = max(0, first - _AROUND)
    before, after = (shortened(f"{'...' if start else ''}{text[start:]}") for text in (before, after))
    return f"changed at character {first + 1:,} of its text, from {before} to {after}"


def _of_structure(old: Argument, new: Argument) -> str:
    before, after = old.describe(), new.describe()
    were, are = old.kinds, new.kinds
    if were == are:
        for (path, name, earlier), (_, _, later) in zip(old.nodes, new.nodes, strict=True):
            if earlier != later:
                return f"{new.at(path)} is of a class {name} that was defined again"
    if were and are and ("",) not in (old.paths, new.paths):
        arrays = {*old.paths} & {*new.paths}  # a changed type of an array is not a changed structure
        outer: set[str] = set()
        for path in sorted(were.keys() & are.keys() - arrays, key=len):
            if were[path] != are[path] and not _is_in(path, outer):
                outer.add(path)
        changed = [path for path in are if path in outer]
        added = [f"`{path}`" for path in new.paths if path not in were and not _is_in(path, outer)]
        missing = [f"`{path}`" for path in old.paths if path not in are and not _is_in(path, outer)]
        if len(changed) == 1 and not added and not missing:
            return f"{new.at(changed[0])} changed from {were[changed[0]]} to {are[changed[0]]}"
        parts = [_few([f"`{path}` from {were[path]} to {are[path]}" for path in changed])] if changed else []
        parts += [f"{label} {_few(some)}" for label, some in (("new", added), ("missing", missing)) if some]
        if parts:
            return f"{new.label} changed its structure: {', '.join(parts)}"
    if old.attributes and were == are:
        return f"{new.label} has other numbers in nnx, because the modules in another argument changed"
    if before == after:
        return f"{new.label} changed the static data in its structure {after}"
    return f"{new.label} changed from {before} to {after}"


def _is_in(path: str, outer: Collection[str]) -> bool:
    return any(path[:end] in outer for end in range(len(path) + 1) if path[end : end + 1] in ("", ".", "["))


def _few(parts: Sequence[str], separator: str = ", ", noun: str = "") -> str:
    rest = len(parts) - _MOST
    plural = "s" if noun and rest > 1 else ""
    return separator.join([*parts[:_MOST], *([f"and {rest:,} more{noun}{plural}"] if rest > 0 else [])])
