"""Every equation's path, written into its own name stack as data, so that each later stage carries it along.

A tag is relative to the jaxpr in which its equation stands; nested jaxprs that are shared stay shared, so the tagged
program is the program. The compiler joins the names of calls and callees, so in HLO the tags on the way from the
outside in, joined, are the id of the equation: `.../step#12~/jit(gelu)/step#3~/tanh` is equation `12.3`.
"""

from __future__ import annotations

import re
import sys
from typing import Any, Protocol

from mithril_nb.stages import jax_versions


class Marks(Protocol):
    """How operations are marked in the later stages of one program: by `Tags`, or by their own names."""

    marker: str
    joint: str
    are_unique: bool
    most_callers: int

    def path(self, op_name: str) -> tuple[str, ...]:
        """Return the relative paths in an op name, from the outside in."""
        ...

    def is_in(self, op_name: str) -> bool:
        """Whether an op name contains a mark."""
        ...


class Tags:
    """How equations are marked in one program, with a marker that none of its own scopes contains.

    Args:
        names: Names that no tag may look like: of the program, of its scopes, and of the functions that it calls.

    Attributes:
        marker: What every tag starts with.
        joint: Separates the parts of an id.
        are_unique: Whether no two equations have the same mark.
        most_callers: Number of different callers of one function that are followed: all.

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
        """Whether an op name contains a tag."""
        return self.marker in op_name

    def tag(self, closed: Any) -> Any:
        """Return the closed jaxpr with every equation tagged, nested ones too."""
        return closed.replace(jaxpr=self._tag(closed.jaxpr, "", {}))

    def _tag(self, jaxpr: Any, prefix: str, done: dict[tuple[int, str], tuple[Any, Any]]) -> Any:
        def rewrite(inner: str, body: Any) -> Any:
            if (id(body), inner) not in done:  # The body is kept beside its copy, so that its id stays taken.
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
