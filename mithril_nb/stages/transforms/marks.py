"""What a transform did to each equation: kept, changed or new, and which equation before it came from.

The equations before are tagged with their ids, so JAX itself carries to each equation after the one that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Origin
from mithril_nb.stages.trace.equations import Site, plain_params
from mithril_nb.stages.trace.jaxpr_text import short_spec
from mithril_nb.stages.trace.tags import Tags

Mark = Literal["kept", "changed", "new", "gone"]
Token = Any
"""Who made an operand, in the words of the program before: an input, a result of an equation; `None` if unknown."""

_NEW: Token = "new"


@dataclass(frozen=True)
class MarkedEquation:
    """One equation before or after a transform.

    Attributes:
        id: Its id in the jaxpr that it stands in.
        mark: After: `"kept"` if it equals one before, `"changed"` if it stands in the place of one, else `"new"`.
            Before: `"kept"` or `"changed"` if one after stands in its place, else `"gone"`.
        source: After: id of the equation before that it came from, or `None` if it came from none. Before: `None`.
        via: Which parts of the transform made it, from the outside in: `("transpose", "jvp")`, `("vmap",)`, ...;
            with `"remat"` if a checkpoint computes it again.
        note: What is different or new, in a few words.
        is_batched: Whether it gives what it gave before with a batch axis.
        origin: How sure `source` is: `"tagged"` if JAX carried the tag, `"inferred"` if it was passed on from the
            equation around it, or if both stand at the same place of two bodies that look the same.
    """

    id: str
    mark: Mark
    source: str | None = None
    via: tuple[str, ...] = ()
    note: str = ""
    is_batched: bool = False
    origin: Origin | None = None


def tagged(closed: Any, marker: str) -> Any:
    """Return the closed jaxpr with its id written into every equation, so that the innermost tag is the equation."""

    def tag(jaxpr: Any, prefix: str) -> Any:
        def rewrite(inner: str, body: Any, outer: str) -> Any:
            plain = jax_versions.open_jaxpr(body)
            made = tag(plain, f"{outer}.{inner}")
            return made if plain is body else body.replace(jaxpr=made)

        equations = []
        for index, equation in enumerate(jaxpr.eqns):
            own = f"{prefix}{index}"
            bodies = jax_versions.map_bodies(equation, lambda inner, body, own=own: rewrite(inner, body, own))
            equations.append(jax_versions.with_scope(equation, f"{marker}{own}~", bodies))
        return jaxpr.replace(eqns=equations)

    return closed.replace(jaxpr=tag(closed.jaxpr, ""))


class Side:
    """One side of a transform, as the matching sees it.

    Attributes:
        jaxpr: The open jaxpr.
        top: The sites of its equations.
        sites: All sites, parents before their bodies.
        by_id: The same by id.
    """

    def __init__(self, jaxpr: Any, top: list[Site], sites: list[Site]):
        self.jaxpr, self.top, self.sites = jaxpr, top, sites
        self.by_id = {site.id: site for site in sites}


class Matching:
    """Which equation after a transform came from which one before.

    Args:
        before: The program that was tagged.
        after: What the transform made of it.
        tags: How `before` was tagged.
        shared_inputs: How many inputs, the first ones, are the same on both sides; none if the transform is unknown.

    Attributes:
        after: A mark for each equation after.
        before: A mark for each equation before.
    """

    def __init__(self, before: Side, after: Side, tags: Tags, shared_inputs: int):
        self._before, self._after, self._tags = before, after, tags
        self._sources: dict[str, str | None] = {}
        self._via: dict[str, tuple[str, ...]] = {}
        for site in after.sites:
            self._read(site)
        self._is_tagged = {site.id for site in after.sites if self._tags_of(site)}
        for site in after.sites:
            self._adopt(site)
        self._same: dict[str, list[str]] = {}
        for site in after.sites:
            source = self._source(site)
            if source is not None and _looks_same(site, source):
                self._same.setdefault(source.id, []).append(site.id)
        self._operands: dict[str, tuple[Token, ...]] = {}
        self._tell_operands(before.jaxpr, before.top, [("input", at) for at in range(len(before.jaxpr.invars))])
        self._marks: dict[str, MarkedEquation] = {}
        self._claims: dict[str, MarkedEquation] = {}
        inputs: list[Token] = [("input", at) if at < shared_inputs else _NEW for at in range(len(after.jaxpr.invars))]
        self._walk(after.jaxpr, after.top, inputs if shared_inputs else [None] * len(inputs))
        self.after = tuple(self._marks[site.id] for site in after.sites)
        self.before = tuple(self._seen_from_before(site.id) for site in before.sites)

    def _read(self, site: Site) -> None:
        """Read from the names around an equation where it came from and what made it; else as the one around it."""
        stack = jax_versions.name_stack(site.equation)
        outer = self._via[site.parent.id] if site.parent is not None else ()
        places = self._tags_of(site)
        if places:
            source = self._tags.path(stack[places[-1]][0])[-1]
            # The names that the equation had before stand between what the transform wrote and the tag.
            stack = stack[: places[-1] - len(jax_versions.name_stack(self._before.by_id[source].equation))]
        else:
            source = self._sources[site.parent.id] if site.parent is not None else None
        self._sources[site.id] = source
        made_by = (
            "remat" if name == jax_versions.REMATTED else name
            for name, is_transform in stack
            if is_transform or name == jax_versions.REMATTED
        )
        self._via[site.id] = tuple(dict.fromkeys((*outer, *made_by)))

    def _tags_of(self, site: Site) -> list[int]:
        """Return the places of tags among the names of an equation."""
        return [at for at, (name, _) in enumerate(jax_versions.name_stack(site.equation)) if self._tags.path(name)]

    def _adopt(self, site: Site) -> None:
        """A rule that is written in Python is traced anew, without tags: find the equations of its body by place."""
        source = self._source(site)
        if source is None or source.primitive != site.primitive or len(source.bodies) != len(site.bodies):
            return
        for (_, body), (_, was) in zip(site.bodies, source.bodies, strict=True):
            if [one.primitive for one in body] == [one.primitive for one in was]:
                for one, other in zip(body, was, strict=True):
                    if one.id not in self._is_tagged:
                        self._sources[one.id] = other.id

    def _origin(self, id: str) -> Origin | None:
        return None if self._sources[id] is None else "tagged" if id in self._is_tagged else "inferred"

    def _source(self, site: Site) -> Site | None:
        source = self._sources[site.id]
        return None if source is None else self._before.by_id[source]

    def _tell_operands(self, jaxpr: Any, body: Sequence[Site], inputs: Sequence[Token]) -> list[Token]:
        """Note for each equation before who made its operands; return who makes the results."""
        made: dict[Any, Token] = dict(zip(jaxpr.invars, inputs, strict=True))
        for site in body:
            operands = self._operands[site.id] = _tokens(site.equation.invars, made)
            results: list[Token] = [(site.id, at) for at in range(len(site.equation.outvars))]
            for at, (inner, sites) in enumerate(site.bodies):
                passed = _passed(site, inner, operands)
                leaving = self._tell_operands(inner, sites, passed or _binders(site.id, at, inner))
                results = leaving if passed is not None else results
            made.update(zip(site.equation.outvars, results, strict=True))
        return list(_tokens(jaxpr.outvars, made))

    def _walk(self, jaxpr: Any, body: Sequence[Site], inputs: Sequence[Token]) -> list[Token]:
        """Mark the equations of one jaxpr after, in the order in which they run; return who makes the results."""
        made: dict[Any, Token] = dict(zip(jaxpr.invars, inputs, strict=True))
        for site in body:
            operands = _tokens(site.equation.invars, made)
            source = self._source(site)
            claims = source is not None and self._may_stand_for(site, source, operands)
            leaving: list[Token] | None = None
            for at, (inner, sites) in enumerate(site.bodies):
                passed = _passed(site, inner, operands)
                stands = source if claims and source is not None and _binds_alike(source, at, inner) else None
                binders = [None] * len(inner.invars) if stands is None else _binders(stands.id, at, inner)
                through = self._walk(inner, sites, passed or binders)
                leaving = through if passed is not None else leaving
            if claims and source is not None:
                made_by: list[Token] = [(source.id, at) for at in range(len(site.equation.outvars))]
                self._mark(site, source, operands)
            else:
                made_by = [_NEW] * len(site.equation.outvars)
                self._mark_new(site, source)
            made.update(zip(site.equation.outvars, made_by if leaving is None else leaving, strict=True))
        return list(_tokens(jaxpr.outvars, made))

    def _may_stand_for(self, site: Site, source: Site, operands: tuple[Token, ...]) -> bool:
        """Whether an equation after stands in the place of its source, rather than being added because of it."""
        if source.id in self._claims or source.primitive != site.primitive or "transpose" in self._via[site.id]:
            return False
        others = [one for one in self._same.get(source.id, ()) if one != site.id and one not in self._marks]
        is_exact = site.id in self._same.get(source.id, ()) and self._takes_same(source, operands)
        return is_exact or not others

    def _takes_same(self, source: Site, operands: tuple[Token, ...]) -> bool:
        before = self._operands[source.id]
        return len(before) == len(operands) and not any(
            one is not None and other is not None and one != other for one, other in zip(before, operands, strict=True)
        )

    def _mark(self, site: Site, source: Site, operands: tuple[Token, ...]) -> None:
        note = self._difference(site, source, operands)
        is_batched = bool(_batch(_results(source), _results(site)))
        mark = MarkedEquation(
            site.id,
            "changed" if note else "kept",
            source.id,
            self._via[site.id],
            note,
            is_batched,
            self._origin(site.id),
        )
        self._marks[site.id] = self._claims[source.id] = mark

    def _difference(self, site: Site, source: Site, operands: tuple[Token, ...]) -> str:
        """Return what is different between an equation and the one in whose place it stands; `""` if nothing is."""
        was, now = _results(source), _results(site)
        if was != now:
            batch = _batch(was, now)
            return batch or f"gives {_listed(now)}, not {_listed(was)}"
        if _takes(source) != _takes(site):
            return f"takes {_listed(_takes(site))}, not {_listed(_takes(source))}"
        params, old = dict(plain_params(site.equation)), dict(plain_params(source.equation))
        others = [name for name in {**old, **params} if old.get(name) != params.get(name)]
        if others:
            return f"other {', '.join(others)}"
        if not self._takes_same(source, operands):
            return "takes other operands"
        inner = [child for _, body in source.bodies for child in body]
        here = [child for _, body in site.bodies for child in body]
        stay = [self._marks[child.id] for child in here]
        if [mark.source for mark in stay] != [child.id for child in inner] or any(mark.mark != "kept" for mark in stay):
            return "its body is not the same"
        return ""

    def _mark_new(self, site: Site, source: Site | None) -> None:
        note, via = "", self._via[site.id]
        if source is not None:
            again = _looks_same(site, source) and ("remat" in via or "transpose" not in via)
            if again and source.id in self._claims:
                note = f"once more {source.primitive}"
            else:
                note = (
                    f"{'('.join(via)}{')' * (len(via) - 1)} of {source.primitive}" if via else f"for {source.primitive}"
                )
        self._marks[site.id] = MarkedEquation(
            site.id, "new", self._sources[site.id], via, note, origin=self._origin(site.id)
        )

    def _seen_from_before(self, id: str) -> MarkedEquation:
        claim = self._claims.get(id)
        return (
            MarkedEquation(id, "gone")
            if claim is None
            else MarkedEquation(id, claim.mark, note=claim.note, is_batched=claim.is_batched)
        )


def _results(site: Site) -> tuple[TensorSpec, ...]:
    return tuple(jax_versions.spec_of(var.aval) for var in site.equation.outvars)


def _takes(site: Site) -> tuple[TensorSpec, ...]:
    return tuple(jax_versions.spec_of(atom.aval) for atom in site.equation.invars)


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(short_spec, specs[:4])) + (", ..." if len(specs) > 4 else "") or "nothing"


def _looks_same(site: Site, source: Site) -> bool:
    return (
        site.primitive == source.primitive
        and _results(site) == _results(source)
        and _takes(site) == _takes(source)
        and plain_params(site.equation) == plain_params(source.equation)
    )


def _batch(was: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> str:
    """Return what is to say if results differ by one added axis of one size and nothing else, else `""`."""
    if len(was) != len(now) or was == now:
        return ""
    added: set[tuple[int | str, int]] = set()
    for old, new in zip(was, now, strict=True):
        if old == new:
            continue
        found = [
            (new.shape[at], at)
            for at in range(len(new.shape))
            if old.dtype == new.dtype and new.shape[:at] + new.shape[at + 1 :] == old.shape
        ]
        if not found:
            return ""
        added.add(found[0])
    if len({size for size, _ in added}) != 1:
        return ""
    size, place = min(added, key=lambda pair: pair[1])
    return f"a batch axis of {size}" + (f" at {place}" if len(added) == 1 and place else "")


def _tokens(atoms: Sequence[Any], made: Mapping[Any, Token]) -> tuple[Token, ...]:
    """Return who made each operand; of a literal its number, of a constant nothing is known."""
    return tuple(
        ("literal", str(atom.val)) if jax_versions.is_literal(atom) else made.get(atom, None) for atom in atoms
    )


def _passed(site: Site, inner: Any, operands: Sequence[Token]) -> list[Token] | None:
    """Return what the body of a plain call is given, or `None` if the equation is none."""
    plain = site.primitive in jax_versions.CALL_NAMES and len(site.bodies) == 1
    fits = len(inner.invars) == len(operands) and len(inner.outvars) == len(site.equation.outvars)
    return list(operands) if plain and fits else None


def _binders(id: str, body: int, inner: Any) -> list[Token]:
    return [(id, f"body {body}", at) for at in range(len(inner.invars))]


def _binds_alike(source: Site, body: int, inner: Any) -> bool:
    return body < len(source.bodies) and len(source.bodies[body][0].invars) == len(inner.invars)
