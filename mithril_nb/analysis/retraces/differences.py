"""Differences between the signatures of two calls, as clauses of a sentence."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile, zip_longest
from typing import NamedTuple

from mithril_nb.analysis.retraces.signature import (
    LONGEST_TEXT,
    SHOWN_TEXT,
    Argument,
    Leaf,
    Signature,
    Static,
    shortened,
)
from mithril_nb.stages.jax_jit import Transform

_AROUND = 40
"""Number of characters shown before the first difference of two long texts."""
_STRUCTURE = 1000
"""Number of parts that a changed structure counts as: calls with the same structure are always more similar."""
_MOST = 3
"""Most differences that a sentence lists; further differences are only counted."""
_MESH = "the mesh of the context"
_CONTEXT = {
    "mesh_context_manager": _MESH,
    "abstract_mesh_context_manager": _MESH,
    "axis_env_state": "the named axes of the context",
}


class Difference(NamedTuple):
    """A difference between two calls of a jitted function.

    Attributes:
        clause: The difference as part of a sentence: `"argument 1 changed from f32[2] to f32[3]"`.
        parts: Number of parts that differ, such as axes of a shape. The most similar calls differ in the fewest parts.
    """

    clause: str
    parts: int = 1


def differences(old: Signature, new: Signature, *, is_compiled: bool = False) -> list[Difference]:
    """Return the differences between two calls of a jitted function.

    Args:
        old: The earlier call.
        new: The later call.
        is_compiled: True to compare as JAX's cache of compiled programs does, where sharding, transformations and
            options of `jax.jit` count too. False to compare as JAX's cache of traces does.
    """
    before = {argument.name: argument for argument in old.arguments}
    changes: list[Difference] = []
    for argument in new.arguments:
        earlier = before.pop(argument.name, None)
        if earlier is None:
            changes.append(Difference(f"{argument.label} was left out before and is given now"))
        elif earlier != argument:
            changes += _of_argument(earlier, argument, is_compiled, old.transforms == new.transforms)
    changes += [Difference(f"{argument.label} was given before and is left out now") for argument in before.values()]
    if old.context != new.context:
        were = {name: (text, key) for name, text, key in old.context}
        changed = (
            Difference(f"{_CONTEXT.get(name, name)} changed from {were[name][0]} to {text}")
            for name, text, key in new.context
            if name in were and were[name] != (text, key)
        )
        changes += {change.clause.partition(" changed ")[0]: change for change in changed}.values()
    if is_compiled:
        options = dict(old.options)
        changes += [
            Difference(f"the option {name} of jax.jit changed from {options[name]} to {text}")
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
    rest = len(clauses) - _MOST
    more = [f"and {rest:,} more change{'s' if rest > 1 else ''}"] if rest > 0 else []
    return "; ".join([*clauses[:_MOST], *more])


def _of_argument(old: Argument, new: Argument, is_compiled: bool, is_transformed_alike: bool) -> Iterator[Difference]:
    if old.is_by_name != new.is_by_name:
        was, now = ("name", "position") if old.is_by_name else ("position", "name")
        yield Difference(f"{new.label} was given by {was} before and is given by {now} now")
    if (old.static is None) != (new.static is None):
        yield Difference(f"{new.label} is now static" if new.static else f"{new.label} is no longer static")
    elif old.static is not None and new.static is not None:
        if old.static != new.static:
            of_value = [f"{new.label} {_of_static(old.static, new.static)}"]
            yield from map(Difference, [*_of_attributes(old, new)] or of_value)
    elif any(getattr(old, name) != getattr(new, name) for name in ("structure_hash", "structure", "nodes")):
        yield Difference(
            "; ".join(_of_attributes(old, new)) or _of_structure(old, new),
            _STRUCTURE + len(old.kinds.items() ^ new.kinds.items()),
        )
    elif old.leaves != new.leaves:
        for path, was, now in zip(new.paths, old.leaves, new.leaves, strict=True):
            yield from _of_leaf(new.at(path), was, now, is_compiled, is_transformed_alike)


def _of_attributes(old: Argument, new: Argument) -> Iterator[str]:
    """Yield a clause for each attribute of an nnx module that changed."""
    before = dict(old.attributes)
    for path, static in new.attributes:
        if path in before and before[path] != static:
            yield f"{new.at(path)} {_of_static(before[path], static)}"


def _of_leaf(at: str, was: Leaf, now: Leaf, is_compiled: bool, is_transformed_alike: bool) -> Iterator[Difference]:
    if was.static is not None and now.static is not None:
        if was.static != now.static:
            yield Difference(f"{at} {_of_static(was.static, now.static)}")
    elif was.type != now.type:
        before, after = was.type, now.type
        if was.is_weak != now.is_weak:
            before, after = (f"{'weak ' if leaf.is_weak else ''}{leaf.type}" for leaf in (was, now))
        parts = _parts(was.type, now.type) + (was.is_weak != now.is_weak)
        yield Difference(f"{at} changed from {before} to {after}", parts)
    elif was.is_weak != now.is_weak:
        change = "weak type became strong" if was.is_weak else "strong type became weak"
        yield Difference(f"{at}: {change} ({now.type})")
    moved = is_compiled or (was.mesh != now.mesh and was.type == now.type)
    if moved and was.placement != now.placement:
        yield Difference(f"{at} {_of_placement(was.placement, now.placement)}")
    if is_compiled and is_transformed_alike and was.transforms != now.transforms:
        before, after = (" and ".join(leaf.transforms) or "not transformed" for leaf in (was, now))
        yield Difference(f"{at} is {after}, in the earlier call it was {before}")


def _parts(old: str, new: str) -> int:
    """Return the number of parts in which two types differ: the dtype, the rank, and each axis of the shape.

    Examples:
        >>> _parts("f32[2,3]", "f32[4,3]"), _parts("f32[3]", "bf16[4]"), _parts("f32[3]", "f32[]")
        (1, 2, 2)
    """
    (dtype, _, axes), (new_dtype, _, new_axes) = old.partition("["), new.partition("[")
    before, after = (tuple(filter(None, shape.rstrip("]").split(","))) for shape in (axes, new_axes))
    differing = sum(was != now for was, now in zip_longest(before, after))
    return (dtype != new_dtype) + (len(before) != len(after)) + differing


def _of_transforms(old: Sequence[Transform], new: Sequence[Transform]) -> Iterator[Difference]:
    if [transform.text for transform in old] == [transform.text for transform in new]:
        for was, now in zip(old, new, strict=True):
            if was.size != now.size:
                yield Difference(f"the call is {now.text} over {now.size:,} instead of {was.size:,}")
    else:
        before, after = (
            ", then ".join(
                transform.text if transform.size is None else f"{transform.text} over {transform.size:,}"
                for transform in each
            )
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
    """Return whether a path is in `outer`, or inside a path in it."""
    return any(path[:end] in outer for end in range(len(path) + 1) if path[end : end + 1] in ("", ".", "["))


def _few(parts: Sequence[str]) -> str:
    rest = len(parts) - _MOST
    return ", ".join([*parts[:_MOST], *([f"and {rest:,} more"] if rest > 0 else [])])


def _of_placement(old: str, new: str) -> str:
    if not old:
        return f"became committed to {new}"
    return f"changed its sharding from {old} to {new}" if new else f"is no longer committed to {old}"
