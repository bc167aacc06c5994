"""The kinds of cost, such as FLOPs, with their titles and number formats. A kind of cost is called a field."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from mithril_nb.display import AT_LEAST
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.figures import FIGURES, OF_BLOCKS, SENT, Figure
from mithril_nb.viz import units
from mithril_nb.viz.text import one_line

# Note of pictures that show lower bounds.
OF_KNOWN = "≥: some costs are unknown; shares refer to the known part"
# Costs as data: `program`, `source`, `by_block`, `unattributed`, `total`, `notes`.
Data = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """One kind of cost, such as FLOPs."""

    name: str
    title: str
    short: Callable[[float | None], str]
    exact: Callable[[float | None], str]


def _field(figure: Figure) -> Field:
    def exact(value: float | None) -> str:
        if value is None:
            return units.UNKNOWN
        return f"{value:.9g} s" if figure.unit == "s" else f"{units.exact(value)} {figure.unit}"

    short = units.seconds if figure.unit == "s" else partial(units.si, unit=figure.symbol)
    return Field(figure.key, figure.title, short, exact)


FIELDS = {key: _field(figure) for key, figure in FIGURES.items()}
# Fields that are known for each block.
BLOCK_FIELDS = tuple(key for key in OF_BLOCKS if key not in SENT)


def unit_of(field: Field) -> str:
    """Return the unit of a field; `""` for counts, such as parameters."""
    return FIGURES[field.name].symbol


def field_of(name: str, allowed: tuple[str, ...] = tuple(FIELDS)) -> Field:
    """Return the field with a name."""
    if name not in allowed:
        raise UnknownOptionError(f"unknown cost field {short_repr(name)}.", (("fields", ", ".join(allowed)),))
    return FIELDS[name]


def notes_of(data: Data, field: str) -> tuple[str, ...]:
    """Return the notes about a field. They contain its name before the first colon."""
    return tuple(note for note in _notes(data) if re.search(rf"\b{field}\b", note.partition(":")[0]))


def is_bound(figures: Mapping[str, Any], field: str) -> bool:
    """Return whether a cost is a lower bound: above 0, but unknown in some operations. A formula is never a bound."""
    return FIGURES[field].is_bound(figures)


def at_least(text: str, is_least: bool) -> str:
    """Return a formatted number, with `≥` before it if `is_least`. `"< 0.1 %"` then becomes `"≥ 0 %"`."""
    return f"{AT_LEAST}{text.replace('< 0.1 %', '0 %')}" if is_least else text


def whole_text(data: Data, field: Field) -> str:
    """Format the total of a field over the whole program; a lower bound starts with `"≥"`."""
    total = data["total"]
    return at_least(field.short(total.get(field.name)), is_bound(total, field.name))


def reason_of(data: Data, field: Field) -> str:
    """Return sentences for the user that explain why a picture of the field would be empty."""
    if data["total"].get(field.name) is None:
        # Notes about other fields would not explain this one.
        named = {note for name in FIELDS for note in notes_of(data, name)}
        general = (note for note in _notes(data) if note not in named)
        reason = " ".join(notes_of(data, field.name) or general).removeprefix(f"{field.name}: ")
        return f"{field.title}: unknown. {reason or 'The source of these costs does not report it.'}"
    return f"{field.title}: 0 in all blocks. There is nothing to compare."


def _notes(data: Data) -> tuple[str, ...]:
    return tuple(one_line(str(note)) for note in data.get("notes") or ())
