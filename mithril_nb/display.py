"""Rich display: values declare that they are displayable; `mithril_nb.viz` renders them.

`renderer` registers a function that renders one kind of picture for some types. `mithril_nb.viz` imports the renderers
of a type when a value of this type is rendered for the first time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

UNATTRIBUTED_LABEL = "(unattributed)"
"""Label of costs and instructions that are not attributed to any block."""
AT_LEAST = "≥ "
"""Prefix of a number that is a lower bound, because part of it is unknown."""
BUNDLE = "bundle"
"""Kind of the renderers that return the MIME bundle of a value, for its rich display."""

# The characters that texts of this package use. `replace` makes all others a question mark.
_IN_ASCII = str.maketrans({"×": "x", "…": "...", "→": "->", "−": "-", "≥": ">=", "≤": "<=", "²": "^2", "—": "-"})

Render = TypeVar("Render", bound=Callable[..., Any])
viz: Any = None
"""A function that imports `mithril_nb.viz`; `mithril_nb/__init__.py` sets it."""
widgets: Any = None
"""A function that imports `mithril_nb.ui.widgets`, which registers the renderers of kind `"live"`."""
_RENDERERS: dict[tuple[type, str], Callable[..., Any]] = {}


def renderer(*types: type, kind: str = BUNDLE) -> Callable[[Render], Render]:
    """Return a decorator that registers a function as the renderer of some types.

    Examples:
        >>> class Temperature(Shown):
        ...     celsius = 20
        >>> @renderer(Temperature)
        ... def temperature(value):
        ...     return {"text/plain": f"{value.celsius} °C"}
        >>> print(Temperature())
        20 °C
    """

    def register(function: Render) -> Render:
        _RENDERERS.update(dict.fromkeys(((cls, kind) for cls in types), function))
        return function

    return register


def find_renderer(of: type, kind: str = BUNDLE) -> Callable[..., Any] | None:
    """Return the renderer registered for a type, or else for its nearest base class; `None` if none is registered."""
    for base in of.__mro__:
        viz().load_renderers(base)
        if (base, kind) in _RENDERERS:
            return _RENDERERS[base, kind]
    return None


def draw(value: Any, kind: str, **options: Any) -> Any:
    """Draw a value with the renderer that is registered for its type and a kind of picture."""
    render = find_renderer(type(value), kind)
    if render is None and kind == "live":
        widgets()
        render = find_renderer(type(value), kind)
    if render is None:
        raise LookupError(f"no renderer of kind {kind!r} for {type(value).__name__}")
    return render(value, **options)


def render(value: object) -> dict[str, str]:
    """Return the MIME bundle of a value: `text/plain`, and `image/svg+xml` or `text/html` if a picture exists."""
    return viz().bundle(value)


def for_stdout(text: str) -> str:
    """Return text without the characters that `sys.stdout` cannot encode, such as `×` on an ASCII terminal."""
    # With LANG=C, or a pipe on Windows, stdout encodes to ASCII or cp1252, and print would raise UnicodeEncodeError.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # of a StringIO, it is None
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_IN_ASCII).encode(encoding, "replace").decode(encoding)
    return text


class Shown:
    """Mixin: shows a value in notebooks with the renderer registered for its type.

    `print` and `str` use the `text/plain` part of that display.
    """

    def __str__(self) -> str:
        return for_stdout(self._repr_mimebundle_()["text/plain"])

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return render(self)


def finite(data: Any, most: float = math.inf) -> Any:
    """Return a copy of plain data for JSON: NaN, infinities and numbers that are too large become `None`.

    Examples:
        >>> finite({"time_s": float("nan"), "flops": [1, 10**400, float("inf")]}, 1e150)
        {'time_s': None, 'flops': [1, None, None]}
    """
    if isinstance(data, Mapping):
        named: Mapping[Any, Any] = data
        return {name: finite(value, most) for name, value in named.items()}
    if isinstance(data, list):
        elements: list[Any] = data
        return [finite(value, most) for value in elements]
    if isinstance(data, tuple):
        parts: tuple[Any, ...] = data
        return tuple(finite(value, most) for value in parts)
    # `abs(NaN) <= most` is false. An int may be larger than any float, and `math.isfinite` would raise OverflowError.
    if isinstance(data, int | float) and not (abs(data) <= most and abs(data) < math.inf):
        return None
    return data


def columns(rows: Sequence[tuple[str, ...]], right: Collection[int]) -> str:
    """Return rows as text in aligned columns. Columns that are empty in all rows are left out.

    Examples:
        >>> print(columns([("a", "", "10"), ("bcd", "", "5")], right={2}))
        a    10
        bcd   5
    """
    used = [at for at in range(len(rows[0])) if any(row[at] for row in rows)] if rows else []
    widths = {at: max(len(row[at]) for row in rows) for at in used}
    lines = (
        "  ".join(row[at].rjust(widths[at]) if at in right else row[at].ljust(widths[at]) for at in used)
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)
