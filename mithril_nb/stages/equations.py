"""A jaxpr as a flat list of equations, parents before their bodies, with place, scopes and trip count of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import NameStack
from mithril_nb.stages.records import Param


@dataclass
class Site:
    """One equation at its place in a program.

    Attributes:
        id: Path to it, as in `Equation.id`.
        equation: JAX's own object.
        parent: The site in whose body it stands, or `None` at the top.
        stack: All names around it, those of the callers first.
        repeats: How often it runs per run of the program, or `None` if unknown.
        bodies: The nested jaxprs (open) with the sites of their equations.
    """

    id: str
    equation: Any
    parent: Site | None
    stack: NameStack
    repeats: int | None
    bodies: list[tuple[Any, list[Site]]] = field(default_factory=list)

    @property
    def primitive(self) -> str:
        """Name of the primitive."""
        return self.equation.primitive.name

    @property
    def is_call(self) -> bool:
        """Whether it only calls nested jaxprs."""
        return bool(self.bodies)


def sites_of(jaxpr: Any) -> tuple[list[Site], list[Site]]:
    """Return the sites of the equations at the top of a jaxpr, and of all equations, parents before their bodies."""
    everything: list[Site] = []

    def walk(
        jaxpr: Any,
        prefix: str,
        parent: Site | None,
        stack: NameStack,
        repeats: int | None,
    ) -> list[Site]:
        here = []
        for index, equation in enumerate(jaxpr.eqns):
            own = jax_versions.name_stack(equation)
            site = Site(
                f"{prefix}{index}",
                equation,
                parent,
                stack + own if own else stack,
                repeats,
            )
            here.append(site)
            everything.append(site)
            bodies = jax_versions.bodies(equation)
            if bodies:
                trips = jax_versions.trip_count(equation)
                times = None if repeats is None or trips is None else repeats * trips
                for inner, body in bodies:
                    plain = jax_versions.open_jaxpr(body)
                    site.bodies.append(
                        (
                            plain,
                            walk(plain, f"{site.id}.{inner}", site, site.stack, times),
                        )
                    )
        return here

    return walk(jaxpr, "", None, (), 1), everything


def plain_params(equation: Any) -> tuple[tuple[str, Param], ...]:
    """Return the params of an equation that are plain data, or whose names say all, such as dtypes."""
    found = []
    for key, value in equation.params.items():
        plain = _plain(value)
        if plain is not _NOT_PLAIN:
            found.append((key, plain))
    return tuple(found)


_NOT_PLAIN: Any = object()


def _plain(value: Any) -> Any:
    name = getattr(value, "name", None)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        items = tuple(_plain(item) for item in value)
        return _NOT_PLAIN if _NOT_PLAIN in items else items
    if jax_versions.is_jaxpr(value) or (callable(value) and not hasattr(value, "dtype")):
        return _NOT_PLAIN
    if name is not None:  # dtypes and enums
        return str(name)
    if hasattr(value, "dtype") or not type(value).__repr__ is not object.__repr__:
        return _NOT_PLAIN
    return str(value)
