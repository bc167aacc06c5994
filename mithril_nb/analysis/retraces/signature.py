"""Signatures of calls as plain data, and their differences as sentences. No array is kept alive."""

from __future__ import annotations

import functools
import inspect
import re
import weakref
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import takewhile, zip_longest
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, SingleDeviceSharding

from mithril_nb.errors import short_repr
from mithril_nb.stages.jax_versions import file_label
from mithril_nb.stages.jit_events import (
    JitCall,
    Transform,
    depth_of,
    mesh_of,
    trace_context,
    transforms_of,
    type_of,
)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_LONGEST = 20_000
"""Longest stored text of a static value, in characters."""
_SHOWN = 120
_AROUND = 40
"""Number of characters shown before the first difference of two long texts."""
_STRUCTURE = 1000
"""Number of parts that a changed structure counts for, so that a call with the same structure is more similar."""
_EXACT = frozenset({"bool", "int", "float", "complex", "str", "bytes", "NoneType"})
"""Types whose values are equal if their texts and hashes are equal."""
_MOST = 3
"""Largest number of differences in a sentence; the others are counted."""
_MESH = "the mesh of the context"
_CONTEXT = {
    "mesh_context_manager": _MESH,
    "abstract_mesh_context_manager": _MESH,
    "axis_env_state": "the named axes of the context",
}


class Leaf(NamedTuple):
    """Type and placement of an array in an argument; or a static value in an argument of `eqx.filter_jit`."""

    type: str
    is_weak: bool
    placement: str
    """The sharding of a committed array; `""` if JAX may place it."""
    mesh: str = ""
    """The mesh and the part of the sharding that belong to the type, and so to the key of the trace cache."""
    transforms: tuple[str, ...] = ()
    """The transformations of the value, the outermost first."""
    static: Static | None = None
    """The value, if it is static."""


class Static(NamedTuple):
    """A static value.

    Attributes:
        kind: Name of its type.
        text: Its `repr`; `""` if that fails.
        hash: Its hash; `None` if that fails.
        function: Description of a function; `""` for other values.
        reference: A weak reference; `None` if the value does not support one.
    """

    kind: str
    text: str
    hash: int | None
    function: str
    reference: weakref.ref[Any] | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Static) or self[:4] != other[:4]:
            return False
        ours, theirs = (one.reference and one.reference() for one in (self, other))
        try:
            return ours is None or theirs is None or ours is theirs or bool(ours == theirs)
        except Exception:  # raised by a class of the user; text and hash are equal
            return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    @property
    def is_exact(self) -> bool:
        """True if equality is certain, rather than inferred from text and hash."""
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
    """Path, name and class of each container of arrays, outer ones first; for each `None`, without a class."""

    def at(self, path: str) -> str:
        """Return the label of a part of the argument."""
        if not self.label.endswith("`"):
            return f"{self.label} {path}".rstrip()
        return f"{self.label[:-1]}{path}`"

    @property
    def kinds(self) -> Mapping[str, str]:
        """The class of each container of arrays, and the type of each array, by path."""
        nodes = {path: name for path, name, _ in self.nodes}
        return {**nodes, **dict(zip(self.paths, (one.type for one in self.leaves), strict=True))}

    def describe(self) -> str:
        """Return the type of a single array, or the structure of a container."""
        if self.paths == ("",):
            return self.leaves[0].type
        return self.structure


class Signature(NamedTuple):
    """The parts of a call that JAX compares with the entries of its caches."""

    arguments: tuple[Argument, ...]
    context: tuple[tuple[str, str, int | None], ...]
    options: tuple[tuple[str, str], ...]
    transforms: tuple[Transform, ...] = ()
    """The transformations around the call, the outermost first; without those inside an outer `jax.jit`."""


class Difference(NamedTuple):
    """A difference between two calls: a clause, and the number of differing parts, such as axes of a shape."""

    clause: str
    parts: int = 1


def signature_of(call: JitCall, earlier: Signature | None = None) -> Signature:
    """Return the signature of a call.

    Args:
        call: The call.
        earlier: A signature whose equal parts are shared, which saves memory for large trees of parameters.
    """
    shared = {} if earlier is None else {one.name: one for one in earlier.arguments}
    arguments = [_argument(call, position, value) for position, value in enumerate(call.args)]
    arguments += [_named(call, name, value) for name, value in sorted(call.kwargs.items())]
    arguments = [shared[one.name] if shared.get(one.name) == one else one for one in arguments]
    context = tuple((name, _setting(value), _hash(value)) for name, value in trace_context().items())
    if earlier is not None and earlier.context == context:
        context = earlier.context
    leaves = jax.tree.leaves((call.args, dict(call.kwargs)))
    traces = {trace: found for one in leaves for trace, (found, _) in transforms_of(one).items()}
    transforms = tuple(traces[trace] for trace in sorted(traces, key=depth_of))
    return Signature(tuple(arguments), context, call.options, transforms)


def differences(old: Signature, new: Signature, *, is_compiled: bool = False) -> list[Difference]:
    """Return the differences between a call and an earlier one.

    Args:
        old: The earlier call.
        new: The later call.
        is_compiled: Compare like the cache of compiled programs: placement and options of `jax.jit` count too.
    """
    before = {one.name: one for one in old.arguments}
    found: list[Difference] = []
    for one in new.arguments:
        known = before.pop(one.name, None)
        if known is None:
            found.append(Difference(f"{one.label} was left out before and is given now"))
        elif known != one:
            found += _of_argument(known, one, is_compiled, old.transforms == new.transforms)
    found += [Difference(f"{one.label} was given before and is left out now") for one in before.values()]
    if old.context != new.context:
        were = {name: (text, key) for name, text, key in old.context}
        changed = (
            Difference(f"{_CONTEXT.get(name, name)} changed from {were[name][0]} to {text}")
            for name, text, key in new.context
            if name in were and were[name] != (text, key)
        )
        found += {one.clause.partition(" changed ")[0]: one for one in changed}.values()
    if is_compiled:
        options = dict(old.options)
        found += [
            Difference(f"the option {name} of jax.jit changed from {options[name]} to {text}")
            for name, text in new.options
            if options.get(name, text) != text
        ]
        found += _of_transforms(old.transforms, new.transforms)
    return found


def sentence(clauses: Sequence[str]) -> str:
    """Join clauses to one sentence; those after the third are counted.

    Examples:
        >>> sentence(["a changed", "b changed"]), sentence("abcde")
        ('a changed; b changed', 'a; b; c; and 2 more changes')
    """
    rest = len(clauses) - _MOST
    more = [f"and {rest:,} more change{'s' if rest > 1 else ''}"] if rest > 0 else []
    return "; ".join([*clauses[:_MOST], *more])


def function_text(function: Any) -> str:
    """Describe a function by its name and the place of its definition.

    Examples:
        >>> function_text(functools.partial(print, 1))
        'functools.partial of `print` with 1'
    """
    if isinstance(function, functools.partial):
        bound = [short_repr(one, 40) for one in function.args]
        bound += [f"{name}={short_repr(one, 40)}" for name, one in function.keywords.items()]
        return f"functools.partial of {function_text(function.func)} with {', '.join(bound) or 'no arguments'}"
    bound = "the bound method " if inspect.ismethod(function) else ""
    inner = inspect.unwrap(function)
    name = getattr(inner, "__qualname__", None)
    if name is None:
        return f"an instance of `{type(function).__qualname__}`"
    name = name.rpartition("<locals>.")[2] if inner.__name__ != "<lambda>" else "<lambda>"
    code = getattr(inner, "__code__", None)
    place = "" if code is None else f" at {file_label(code.co_filename)}:{code.co_firstlineno}"
    return f"{bound}`{name}`{place}"


def _argument(call: JitCall, position: int, value: Any) -> Argument:
    known = position < len(call.parameters)
    name = call.parameters[position] if known else f"{position}"
    is_static = position in call.static_positions or (known and name in call.static_names)
    return _read(call, name, position, known, False, is_static, value)


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
        return Argument(name, label, is_by_name, _static(value))
    every, shape = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda one: one is None)
    found, tree = [pair for pair in every if pair[1] is not None], jax.tree.structure(value)
    paths = tuple(jax.tree_util.keystr(path) for path, _ in found)
    leaves = tuple(_leaf(one, call.is_filtered and not _is_array(one)) for _, one in found)
    structure = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    # The hash of a PyTreeDef ignores static data; its text includes it, with the addresses of functions.
    nodes = tuple(_nodes(every, shape))
    return Argument(name, label, is_by_name, None, _cut(structure), hash(structure), paths, leaves, nodes)


def _nodes(leaves: Sequence[tuple[Any, Any]], tree: Any) -> Iterator[tuple[str, str, weakref.ref[type] | None]]:
    """Yield path, name and class of each container with leaves; for each leaf `None`, without a class."""
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
        transforms = tuple(f"{one.text}{axis}" for one, axis in reversed(transforms_of(value).values()))
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
        text = _ADDRESS.sub("", repr(value))[:_LONGEST]
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
    return "none" if value is None or value == () else _cut(short_repr(value, 200))


def _axes(shape: Mapping[str, int]) -> str:
    return f"({', '.join(f'{name}: {size}' for name, size in shape.items())})"


def _cut(text: str) -> str:
    text = _ADDRESS.sub("", text)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _hash(value: Any) -> int | None:
    try:
        return hash(value)
    except Exception:  # raised by a class of the user; JAX rejects it too, or compares it differently
        return None


def _of_argument(old: Argument, new: Argument, is_compiled: bool, is_transformed_alike: bool) -> Iterator[Difference]:
    if old.is_by_name != new.is_by_name:
        was, now = ("name", "position") if old.is_by_name else ("position", "name")
        yield Difference(f"{new.label} was given by {was} before and is given by {now} now")
    if (old.static is None) != (new.static is None):
        yield Difference(f"{new.label} is now static" if new.static else f"{new.label} is no longer static")
    elif old.static is not None and new.static is not None:
        if old.static != new.static:
            yield Difference(f"{new.label} {_of_static(old.static, new.static)}")
    elif any(getattr(old, name) != getattr(new, name) for name in ("structure_hash", "structure", "nodes")):
        yield Difference(_of_structure(old, new), _STRUCTURE + len(old.kinds.items() ^ new.kinds.items()))
    elif old.leaves != new.leaves:
        for path, was, now in zip(new.paths, old.leaves, new.leaves, strict=True):
            yield from _of_leaf(new.at(path), was, now, is_compiled, is_transformed_alike)


def _of_leaf(at: str, was: Leaf, now: Leaf, is_compiled: bool, is_transformed_alike: bool) -> Iterator[Difference]:
    if was.static is not None and now.static is not None:
        if was.static != now.static:
            yield Difference(f"{at} {_of_static(was.static, now.static)}")
    elif was.type != now.type:
        before, after = was.type, now.type
        if was.is_weak != now.is_weak:
            before, after = (f"{'weak ' if one.is_weak else ''}{one.type}" for one in (was, now))
        parts = _parts(was.type, now.type) + (was.is_weak != now.is_weak)
        yield Difference(f"{at} changed from {before} to {after}", parts)
    elif was.is_weak != now.is_weak:
        change = "weak type became strong" if was.is_weak else "strong type became weak"
        yield Difference(f"{at}: {change} ({now.type})")
    moved = is_compiled or (was.mesh != now.mesh and was.type == now.type)
    if moved and was.placement != now.placement:
        yield Difference(f"{at} {_of_placement(was.placement, now.placement)}")
    if is_compiled and is_transformed_alike and was.transforms != now.transforms:
        before, after = (" and ".join(one.transforms) or "not transformed" for one in (was, now))
        yield Difference(f"{at} is {after}, in the earlier call it was {before}")


def _parts(old: str, new: str) -> int:
    """Return the number of differing parts of two types: dtype, rank, and each axis of the shape.

    Examples:
        >>> _parts("f32[2,3]", "f32[4,3]"), _parts("f32[3]", "bf16[4]"), _parts("f32[3]", "f32[]")
        (1, 2, 2)
    """
    (dtype, _, axes), (new_dtype, _, new_axes) = old.partition("["), new.partition("[")
    before, after = (tuple(filter(None, one.rstrip("]").split(","))) for one in (axes, new_axes))
    differing = sum(was != now for was, now in zip_longest(before, after))
    return (dtype != new_dtype) + (len(before) != len(after)) + differing


def _of_transforms(old: Sequence[Transform], new: Sequence[Transform]) -> Iterator[Difference]:
    if [one.text for one in old] == [one.text for one in new]:
        for was, now in zip(old, new, strict=True):
            if was.size != now.size:
                yield Difference(f"the call is {now.text} over {now.size:,} instead of {was.size:,}")
    else:
        before, after = (
            ", then ".join(one.text if one.size is None else f"{one.text} over {one.size:,}" for one in each)
            or "not transformed"
            for each in (old, new)
        )
        yield Difference(f"the call is {after}, the earlier call was {before}", abs(len(old) - len(new)) or 1)


def _of_static(old: Static, new: Static) -> str:
    if not (old.text and new.text):
        return f"is a {new.kind} that cannot be printed, and is not equal to the earlier {old.kind}"
    if new.function and old.text == new.text:
        return f"is a new function object: {new.function}"
    if old.text == new.text:
        beginning = f" in its first {_LONGEST:,} characters" if len(new.text) == _LONGEST else ""
        return (
            f"is another object that prints the same{beginning}, {_cut(new.text)}, but is not equal to the earlier one"
        )
    before, after = old.function or old.text, new.function or new.text
    if len(before) <= _SHOWN and len(after) <= _SHOWN:
        return f"changed from {before} to {after}"
    first = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))
    start = max(0, first - _AROUND)
    before, after = (_cut(f"{'...' if start else ''}{text[start:]}") for text in (before, after))
    return f"changed at character {first + 1:,} of its text, from {before} to {after}"


def _of_structure(old: Argument, new: Argument) -> str:
    before, after = old.describe(), new.describe()
    were, are = old.kinds, new.kinds
    if were == are:
        for (path, name, earlier), (_, _, later) in zip(old.nodes, new.nodes, strict=True):
            if earlier != later:
                return f"{new.at(path)} is of a class {name} that was defined again"
    if were and are and ("",) not in (old.paths, new.paths):
        arrays = {*old.paths} & {*new.paths}  # their types may change as well, but not their structure
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
        parts += [f"{what} {_few(some)}" for what, some in (("new", added), ("missing", missing)) if some]
        if parts:
            return f"{new.label} changed its structure: {', '.join(parts)}"
    if before == after:
        return f"{new.label} changed the static data in its structure {after}"
    return f"{new.label} changed from {before} to {after}"


def _is_in(path: str, outer: Collection[str]) -> bool:
    """Return whether a path is one of some others, or inside one."""
    return any(path[:end] in outer for end in range(len(path) + 1) if path[end : end + 1] in ("", ".", "["))


def _few(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST
    return ", ".join([*parts[:_MOST], *([f"and {rest:,} more"] if rest > 0 else [])])


def _of_placement(old: str, new: str) -> str:
    if not old:
        return f"became committed to {new}"
    return f"changed its sharding from {old} to {new}" if new else f"is no longer committed to {old}"
