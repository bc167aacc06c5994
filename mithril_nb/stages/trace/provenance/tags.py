"""Tags: the id of each equation in its name stack, which every later stage preserves.

A tag is relative to the jaxpr that contains its equation. Nested jaxprs that are shared stay shared, so the tagged
program is equivalent to the original. The compiler joins the names of calls and callees, so the joined tags of an HLO
instruction are the id of the equation: `.../step#12~/jit(gelu)/step#3~/tanh` is equation `12.3`.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Protocol

from mithril_nb.stages import jax_versions


class Marks(Protocol):
    """Marks of operations in the later stages of one program: `Tags`, or the operations' own names."""

    marker: str
    joint: str
    are_unique: bool
    most_callers: int

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the relative paths in an op name, from the outside in."""
        ...

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a mark."""
        ...


class Tags:
    """Tags of the equations of one program, with a marker that none of its own scopes contains.

    Args:
        names: Names that must not contain the marker: those of the program, its scopes and the functions it calls.

    Attributes:
        marker: Prefix of every tag.
        joint: Separates the parts of an id.
        are_unique: True if no two equations have the same mark.
        most_callers: Largest number of callers of one function that are followed: all.

    Examples:
        >>> Tags({"mnb"}).marker, Tags({"mnb#1~"}).marker
        ('mnb#', 'mnb1#')
    """

    joint = "."
    are_unique = True
    most_callers = sys.maxsize

    def __init__(self, names: set[str]):
        number = 0
        while any(f"mnb{number or ''}#" in name for name in names):
            number += 1
        self.marker = f"mnb{number or ''}#"
        self._pattern = re.compile(re.escape(self.marker) + r"([b\d.]+)~")

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the relative paths in an op name, from the outside in.

        Examples:
            >>> Tags(set()).path("jit(f)/transpose(jvp(mnb#12~))/cond/mnb#b1.3~/dot_general")
            ('12', 'b1.3')
        """
        return tuple(self._pattern.findall(op_name))

    def is_in(self, op_name: str) -> bool:
        """Return whether an op name contains a tag."""
        return self.marker in op_name

    def tag(self, closed: Any) -> Any:
        """Return the closed jaxpr with every equation tagged, nested ones too."""
        return closed.replace(jaxpr=self._tag(closed.jaxpr, "", {}))

    def _tag(self, jaxpr: Any, prefix: str, done: dict[tuple[int, str], tuple[Any, Any]]) -> Any:
        def rewrite(inner: str, body: Any) -> Any:
            if (id(body), inner) not in done:  # Keeps the body alive, so its id stays unique.
                plain = jax_versions.open_jaxpr(body)
                tagged = self._tag(plain, inner, done)
                done[id(body), inner] = (
                    body,
                    tagged if plain is body else body.replace(jaxpr=tagged),
                )
            return done[id(body), inner][1]

        equations = [
            jax_versions.with_scope(
                equation,
                f"{self.marker}{prefix}{index}~",
                jax_versions.map_bodies(equation, rewrite),
            )
            for index, equation in enumerate(jaxpr.eqns)
        ]
        return jaxpr.replace(eqns=equations)
