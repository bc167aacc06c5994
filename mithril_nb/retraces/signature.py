"""Signatures of calls as plain data, and how two of them differ, in sentences. No array is kept."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
from jax.sharding import NamedSharding, SingleDeviceSharding

from mithril_nb.errors import short_repr
from mithril_nb.stages.jax_versions import file_label
from mithril_nb.stages.jit_events import JitCall, mesh_of, trace_context, type_of

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MOST = 3
"""Differences in a sentence; the rest is counted."""
_MESH = "the mesh of the context"
_CONTEXT = {
    "mesh_context_manager": _MESH,
    "abstract_mesh_context_manager": _MESH,
    "axis_env_state": "the named axes of the context",
}


class Leaf(NamedTuple):
    """An array of an argument: its type, and where it is."""

    type: str
    is_weak: bool
    placement: str
    """The sharding of a committed array; `""` if JAX may place it."""
    mesh: str = ""
    """The mesh and the part of the sharding that belong to the type, and so to the key of the trace cache."""


class Static(NamedTuple):
    """A static value: text and hash, and the function if it is one."""

    text: str
    hash: int | None
    function: str


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

    def at(self, path: str) -> str:
        """Return the label of a part of the argument."""
        if not self.label.endswith("`"):
            return f"{self.label} {path}".rstrip()
        return f"{self.label[:-1]}{path}`"

    def described(self) -> str:
        """Return the type of a single array, or the structure."""
        if self.paths == ("",):
            return self.leaves[0].type
        return self.structure


class Signature(NamedTuple):
    """All of a call that JAX compares with the entries of its caches."""

    arguments: tuple[Argument, ...]
    context: tuple[tuple[str, str, int | None], ...]
    options: tuple[tuple[str, str], ...]
    is_transformed: bool


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
    return Signature(tuple(arguments), context, call.options, any(_is_transformed(one) for one in leaves))


def differences(old: Signature, new: Signature, *, is_compiled: bool = False) -> list[str]:
    """Return how one call differs from an earlier one, a clause for each difference.

    Args:
        old: The earlier call.
        new: The later call.
        is_compiled: Compare as the cache of compiled programs does: placement and options of `jax.jit` count too.
    """
    before = {one.name: one for one in old.arguments}
    found: list[str] = []
    for one in new.arguments:
        known = before.pop(one.name, None)
        if known is None:
            found.append(f"{one.label} was left out before and is given now")
        elif known != one:
            found += _of_argument(known, one, is_compiled)
    found += [f"{one.label} was given before and is left out now" for one in before.values()]
    if old.context != new.context:
        were = {name: (text, key) for name, text, key in old.context}
        changed = (
            f"{_CONTEXT.get(name, name)} changed from {were[name][0]} to {text}"
            for name, text, key in new.context
            if name in were and were[name] != (text, key)
        )
        found += {clause.partition(" changed ")[0]: clause for clause in changed}.values()
    if is_compiled:
        options = dict(old.options)
        found += [
            f"the option {name} of jax.jit changed from {options[name]} to {text}"
            for name, text in new.options
            if options.get(name, text) != text
        ]
        if old.is_transformed != new.is_transformed:
            inside, before_it = ("inside", "not") if new.is_transformed else ("outside", "inside")
            found.append(f"the call is {inside} a transformation such as jax.grad, the earlier call was {before_it}")
    return found


def sentence(clauses: Sequence[str]) -> str:
    """Return clauses as one sentence; many are counted.

    Examples:
        >>> sentence(["a changed", "b changed"]), sentence("abcde")
        ('a changed; b changed', 'a; b; c; and 2 more changes')
    """
    rest = len(clauses) - _MOST
    more = [f"and {rest:,} more change{'s' if rest > 1 else ''}"] if rest > 0 else []
    return "; ".join([*clauses[:_MOST], *more])


def function_text(function: Any) -> str:
    """Return which function an object is: its name, and where it is defined.

    Examples:
        >>> function_text(functools.partial(print, 1))
        'functools.partial of `print`'
    """
    if isinstance(function, functools.partial):
        return f"functools.partial of {function_text(function.func)}"
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
    return _read(name, position, known, False, is_static, value)


def _named(call: JitCall, name: str, value: Any) -> Argument:
    position = call.parameters.index(name) if name in call.parameters else None
    is_static = name in call.static_names or position in call.static_positions
    return _read(name, position, True, True, is_static, value)


def _read(name: str, position: int | None, is_named: bool, is_by_name: bool, is_static: bool, value: Any) -> Argument:
    number = "" if position is None or (is_static and is_named) else f" {position + 1}"
    label = f"{'static ' if is_static else ''}argument{number}{f' `{name}`' if is_named else ''}"
    if is_static:
        is_function = callable(value) and not isinstance(value, type)
        return Argument(
            name,
            label,
            is_by_name,
            Static(_cut(short_repr(value, 200)), _hash(value), function_text(value) if is_function else ""),
        )
    found, tree = jax.tree_util.tree_flatten_with_path(value)
    paths = tuple(jax.tree_util.keystr(path) for path, _ in found)
    leaves = tuple(_leaf(one) for _, one in found)
    structure = str(tree).removeprefix("PyTreeDef(").removesuffix(")")
    # The hash of a PyTreeDef leaves out static data; its text shows it, functions with their addresses.
    return Argument(name, label, is_by_name, None, _cut(structure), hash(structure), paths, leaves)


def _leaf(value: Any) -> Leaf:
    try:
        return Leaf(*type_of(value), _placement(value), mesh_of(value))
    except TypeError:  # no type of JAX, which refuses it right after this
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


def _is_transformed(leaf: Any) -> bool:
    """Whether a value comes from a transformation that compiles its own program: not from an outer `jax.jit`."""
    return isinstance(leaf, Tracer) and not type(leaf).__name__.startswith(("DynamicJaxpr", "Jit"))


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
    return text if len(text) <= 120 else text[:117] + "..."


def _hash(value: Any) -> int | None:
    try:
        return hash(value)
    except Exception:  # a class of the user; JAX refuses it too, or compares it in another way
        return None


def _of_argument(old: Argument, new: Argument, is_compiled: bool) -> Iterator[str]:
    if old.is_by_name != new.is_by_name:
        was, now = ("name", "position") if old.is_by_name else ("position", "name")
        yield f"{new.label} was given by {was} before and is given by {now} now"
    if (old.static is None) != (new.static is None):
        yield f"{new.label} is now static" if new.static else f"{new.label} is no longer static"
    elif old.static is not None and new.static is not None:
        if old.static != new.static:
            yield f"{new.label} {_of_static(old.static, new.static)}"
    elif old.structure_hash != new.structure_hash or old.structure != new.structure:
        yield _of_structure(old, new)
    elif old.leaves != new.leaves:
        for path, was, now in zip(new.paths, old.leaves, new.leaves, strict=True):
            if was.type != now.type:
                before, after = was.type, now.type
                if was.is_weak != now.is_weak:
                    before, after = (f"{'weak ' if one.is_weak else ''}{one.type}" for one in (was, now))
                yield f"{new.at(path)} changed from {before} to {after}"
            elif was.is_weak != now.is_weak:
                change = "weak type became strong" if was.is_weak else "strong type became weak"
                yield f"{new.at(path)}: {change} ({now.type})"
            moved = is_compiled or (was.mesh != now.mesh and was.type == now.type)
            if moved and was.placement != now.placement:
                yield f"{new.at(path)} {_of_placement(was.placement, now.placement)}"


def _of_static(old: Static, new: Static) -> str:
    if new.function and old.text == new.text:
        return f"is a new function object: {new.function}"
    if old.text == new.text:
        return f"is another object that prints the same, {new.text}, but is not equal to the earlier one"
    return f"changed from {old.function or old.text} to {new.function or new.text}"


def _of_structure(old: Argument, new: Argument) -> str:
    single = {("",), ()}
    added = [path for path in new.paths if path not in set(old.paths)]
    missing = [path for path in old.paths if path not in set(new.paths)]
    if (added or missing) and old.paths not in single and new.paths not in single:
        parts = [f"{what} {_few(paths)}" for what, paths in (("new", added), ("missing", missing)) if paths]
        return f"{new.label} changed its structure: {', '.join(parts)}"
    before, after = old.described(), new.described()
    if before == after:
        return f"{new.label} changed the static data in its structure {after}"
    return f"{new.label} changed from {before} to {after}"


def _few(paths: Sequence[str]) -> str:
    rest = len(paths) - _MOST
    return ", ".join([*(f"`{path}`" for path in paths[:_MOST]), *([f"and {rest:,} more"] if rest > 0 else [])])


def _of_placement(old: str, new: str) -> str:
    if not old:
        return f"became committed to {new}"
    return f"changed its sharding from {old} to {new}" if new else f"is no longer committed to {old}"
