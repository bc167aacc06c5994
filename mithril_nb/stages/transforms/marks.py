"""Effect of a transform on each equation: kept, changed, new or gone.

Before the transform, each equation gets a tag with its id. JAX copies the tags to the equations that it creates from
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.records import Origin
from mithril_nb.stages.trace.equations import Site, Sites
from mithril_nb.stages.trace.jaxpr_text import short_spec
from mithril_nb.stages.trace.params import plain_params
from mithril_nb.stages.trace.provenance.scopes import Tags

Mark = Literal["kept", "changed", "new", "gone"]
Token = Any
"""Identity of a value, to compare operands before and after a transform; `None` if unknown.

Examples: `("input", 0)`, `("12", 0)` for the first result of equation 12, `("literal", "2.0")`.
"""

# Token of all values that exist only after the transform.
_NEW: Token = "new"


@dataclass(frozen=True)
class MarkedEquation:
    """One equation before or after a transform.

    Attributes:
        id: Id of the equation in its jaxpr.
        mark: `"kept"` if the equation is the same before and after, `"changed"` if the transform replaced it by a
            similar one. An equation that exists only after the transform is `"new"`, one that exists only before is
            `"gone"`.
        source: Id of the equation before the transform from which JAX created this equation. `None` if unknown, or if
            this equation is itself before the transform.
        via: The transforms that created the equation, the outermost first: `("vmap",)`, `("transpose", "jvp")` for
            reverse mode, ... Contains `"remat"` if a checkpoint recomputes the equation.
        note: Short description of the change or of the new equation, such as `"adds a batch axis of 4"`.
        is_batched: True if the results only got a batch axis.
        origin: Evidence for `source`: `"tagged"` if JAX copied a tag with the id of the source to this equation,
            `"inferred"` if the source comes from the equation around it, or from its position in a nested jaxpr.
            `None` without a source.
    """

    id: str
    mark: Mark
    source: str | None = None
    via: tuple[str, ...] = ()
    note: str = ""
    is_batched: bool = False
    origin: Origin | None = None


class Side:
    """The program before or after a transform.

    Attributes:
        jaxpr: The program as a jaxpr without its constants.
        top: A `Site` for each equation at the top level of the jaxpr.
        sites: A `Site` for each equation, including those in nested jaxprs.
        by_id: `sites` by the id of the equation.
    """

    def __init__(self, jaxpr: Any, top: Sites, sites: Sites):
        self.jaxpr, self.top, self.sites = jaxpr, top, sites
        self.by_id = {site.id: site for site in sites}


class Matching:
    """Matching of the equations before and after a transform.

    Args:
        before: The program before the transform.
        after: The program after the transform. JAX has copied tags to its equations: scope names that contain the id of
            an equation of `before`.
        tags: Reader of the ids in the tags.
        shared_inputs: Number of inputs of `before`, if the inputs of `after` start with the same ones; 0 if the
            transform is unknown.

    Attributes:
        after: A `MarkedEquation` for each equation after the transform.
        before: A `MarkedEquation` for each equation before the transform.
    """

    def __init__(self, before: Side, after: Side, tags: Tags, shared_inputs: int):
        self._before, self._after, self._tags = before, after, tags
        self._sources: dict[str, str | None] = {}
        self._via: dict[str, tuple[str, ...]] = {}
        for site in after.sites:
            self._read(site)
        self._is_tagged = {site.id for site in after.sites if self._tags_of(site)}
        for site in after.sites:
            source = self._source(site)
            if source is None or source.primitive != site.primitive or len(source.bodies) != len(site.bodies):
                continue
            for (_, body), (_, was) in zip(site.bodies, source.bodies, strict=True):
                # They lose tags if JAX traces the body again.
                if [inner.primitive for inner in body] == [inner.primitive for inner in was]:
                    pairs = zip(body, was, strict=True)
                    self._sources |= {inner.id: other.id for inner, other in pairs if inner.id not in self._is_tagged}
        self._same: dict[str, list[str]] = {}
        for site in after.sites:
            source = self._source(site)
            if source is not None and _is_equal(site, source):
                self._same.setdefault(source.id, []).append(site.id)
        self._operands: dict[str, tuple[Token, ...]] = {}
        self._record_operands(before.jaxpr, before.top, [("input", at) for at in range(len(before.jaxpr.invars))])
        self._marks: dict[str, MarkedEquation] = {}
        self._claims: dict[str, MarkedEquation] = {}
        # An unknown transform may reorder the arguments, so their tokens are unknown.
        inputs: list[Token] = [("input", at) if at < shared_inputs else _NEW for at in range(len(after.jaxpr.invars))]
        self._mark_body(after.jaxpr, after.top, inputs if shared_inputs else [None] * len(inputs))
        self.after = tuple(self._marks[site.id] for site in after.sites)
        self.before = tuple(
            MarkedEquation(site.id, "gone")
            if (claim := self._claims.get(site.id)) is None
            else MarkedEquation(site.id, claim.mark, note=claim.note, is_batched=claim.is_batched)
            for site in before.sites
        )

    def _read(self, site: Site) -> None:
        """Set `source` and `via` of an equation after the transform, from its name stack or the equation around it."""
        stack = jax_versions.name_stack(site.equation)
        # The name stack of a nested equation does not contain the names around its jaxpr.
        outer = self._via[site.parent.id] if site.parent is not None else ()
        positions = self._tags_of(site)
        if positions:
            source = self._tags.path(stack[positions[-1]][0])[-1]
            # The stack has the names of the transform, the names that the equation had before, and the tag.
            stack = stack[: positions[-1] - len(jax_versions.name_stack(self._before.by_id[source].equation))]
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
        return [at for at, (name, _) in enumerate(jax_versions.name_stack(site.equation)) if self._tags.path(name)]

    def _origin(self, id: str) -> Origin | None:
        return None if self._sources[id] is None else "tagged" if id in self._is_tagged else "inferred"

    def _source(self, site: Site) -> Site | None:
        source = self._sources[site.id]
        return None if source is None else self._before.by_id[source]

    def _record_operands(self, jaxpr: Any, body: Sequence[Site], inputs: Sequence[Token]) -> list[Token]:
        tokens: dict[Any, Token] = dict(zip(jaxpr.invars, inputs, strict=True))
        for site in body:
            operands = self._operands[site.id] = _tokens(site.equation.invars, tokens)
            results: list[Token] = [(site.id, at) for at in range(len(site.equation.outvars))]
            for at, (inner, sites) in enumerate(site.bodies):
                inner_inputs = _operands_of_call(site, inner, operands)
                leaving = self._record_operands(inner, sites, inner_inputs or _binders(site.id, at, inner))
                results = leaving if inner_inputs is not None else results
            tokens.update(zip(site.equation.outvars, results, strict=True))
        return list(_tokens(jaxpr.outvars, tokens))

    def _mark_body(self, jaxpr: Any, body: Sequence[Site], inputs: Sequence[Token]) -> list[Token]:
        tokens: dict[Any, Token] = dict(zip(jaxpr.invars, inputs, strict=True))
        for site in body:
            operands = _tokens(site.equation.invars, tokens)
            source = self._source(site)
            claims = False
            if source is not None and source.id not in self._claims and source.primitive == site.primitive:
                same = self._same.get(source.id, ())
                others = [other for other in same if other != site.id and other not in self._marks]
                # If several equations equal the source, the one with the same operands replaces it.
                is_exact = site.id in same and self._has_same_operands(source, operands)
                claims = (is_exact or not others) and "transpose" not in self._via[site.id]
            leaving: list[Token] | None = None
            for at, (inner, sites) in enumerate(site.bodies):
                inner_inputs = _operands_of_call(site, inner, operands)
                binders: list[Token] = [None] * len(inner.invars)
                if claims and source is not None and at < len(source.bodies):
                    is_same = len(source.bodies[at][0].invars) == len(binders)
                    binders = _binders(source.id, at, inner) if is_same else binders
                through = self._mark_body(inner, sites, inner_inputs or binders)
                leaving = through if inner_inputs is not None else leaving
            if claims and source is not None:
                made_by: list[Token] = [(source.id, at) for at in range(len(site.equation.outvars))]
                self._mark(site, source, operands)
            else:
                made_by = [_NEW] * len(site.equation.outvars)
                note, via = "", self._via[site.id]
                if source is not None:
                    again = _is_equal(site, source) and ("remat" in via or "transpose" not in via)
                    made = f"{'('.join(via)}{')' * (len(via) - 1)} of" if via else "for"
                    note = f"{made} {source.primitive}"
                    note = f"{source.primitive} again" if again and source.id in self._claims else note
                self._marks[site.id] = MarkedEquation(
                    site.id, "new", self._sources[site.id], via, note, origin=self._origin(site.id)
                )
            tokens.update(zip(site.equation.outvars, made_by if leaving is None else leaving, strict=True))
        return list(_tokens(jaxpr.outvars, tokens))

    def _has_same_operands(self, source: Site, operands: tuple[Token, ...]) -> bool:
        before = self._operands[source.id]
        # An unknown operand may be the same.
        return len(before) == len(operands) and not any(
            token is not None and other is not None and token != other
            for token, other in zip(before, operands, strict=True)
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
        was, now = _results(source), _results(site)
        if was != now:
            batch = _batch(was, now)
            return batch or f"returns {_listed(now)} instead of {_listed(was)}"
        if _takes(source) != _takes(site):
            return f"takes {_listed(_takes(site))} instead of {_listed(_takes(source))}"
        params, old = dict(plain_params(site.equation)), dict(plain_params(source.equation))
        others = [name for name in {**old, **params} if old.get(name) != params.get(name)]
        if others:
            return f"different {', '.join(others)}"
        if not self._has_same_operands(source, operands):
            return "different operands"
        inner = [child for _, body in source.bodies for child in body]
        here = [child for _, body in site.bodies for child in body]
        stay = [self._marks[child.id] for child in here]
        if [mark.source for mark in stay] != [child.id for child in inner] or any(mark.mark != "kept" for mark in stay):
            return "different body"
        return ""


def _results(site: Site) -> tuple[TensorSpec, ...]:
    return tuple(jax_versions.spec_of(var.aval) for var in site.equation.outvars)


def _takes(site: Site) -> tuple[TensorSpec, ...]:
    return tuple(jax_versions.spec_of(atom.aval) for atom in site.equation.invars)


def _listed(specs: Sequence[TensorSpec]) -> str:
    return ", ".join(map(short_spec, specs[:4])) + (", ..." if len(specs) > 4 else "") or "nothing"


def _is_equal(site: Site, source: Site) -> bool:
    return (
        site.primitive == source.primitive
        and _results(site) == _results(source)
        and _takes(site) == _takes(source)
        and plain_params(site.equation) == plain_params(source.equation)
    )


def _batch(was: Sequence[TensorSpec], now: Sequence[TensorSpec]) -> str:
    if len(was) != len(now) or was == now:
        return ""
    added: set[tuple[int | str, int]] = set()
    for old, new in zip(was, now, strict=True):
        if old == new:
            continue
        axes = [
            (new.shape[at], at)
            for at in range(len(new.shape))
            if old.dtype == new.dtype and new.shape[:at] + new.shape[at + 1 :] == old.shape
        ]
        if not axes:
            return ""
        added.add(axes[0])
    if len({size for size, _ in added}) != 1:
        return ""
    # The position is stated only if it is the same for all results, which `out_axes` decides.
    size, position = min(added, key=lambda pair: pair[1])
    return f"adds a batch axis of {size}" + (f" at position {position}" if len(added) == 1 and position else "")


def _tokens(atoms: Sequence[Any], tokens: Mapping[Any, Token]) -> tuple[Token, ...]:
    return tuple(
        ("literal", str(atom.val)) if jax_versions.is_literal(atom) else tokens.get(atom, None) for atom in atoms
    )


def _operands_of_call(site: Site, inner: Any, operands: Sequence[Token]) -> list[Token] | None:
    plain = site.primitive in jax_versions.CALL_NAMES and len(site.bodies) == 1
    fits = len(inner.invars) == len(operands) and len(inner.outvars) == len(site.equation.outvars)
    return list(operands) if plain and fits else None


def _binders(id: str, body: int, inner: Any) -> list[Token]:
    return [(id, f"body {body}", at) for at in range(len(inner.invars))]
