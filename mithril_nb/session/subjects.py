"""What can be another of what is looked at: fields of a form, and the edit that makes it so in a design."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import ShapeError, UnknownOptionError
from mithril_nb.session.analysis import Analysis
from mithril_nb.session.design import Change, set_attribute, set_shape
from mithril_nb.stages import Inspection
from mithril_nb.whatif import WhatIf
from mithril_nb.whatif.arguments import batch_of
from mithril_nb.whatif.settings import PRECISIONS

Changes = Sequence[tuple[str, str, Any]]
"""Path of a block, or `""` for the whole program; name of what is another; its value."""

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of numbers with a fraction that every process has: 64 bits are a switch of all of JAX."""
_OUTSIDE = ("dtype", "precision", "remat")
_DOCS = {
    "batch": "Number of samples: the first dim of what the program is given.",
    "dtype": "Dtype of all arrays of numbers with a fraction.",
    "precision": "Precision of matrix products, as jax.default_matmul_precision has it.",
    "remat": "Whether the backward pass computes values of the forward pass anew, to keep less in memory.",
}


@dataclass(frozen=True)
class Subject:
    """What is looked at, and may be another.

    Attributes:
        version: Version of its design.
        ask: Begins to ask what it would cost.
        hues: Hue of each block that has one of its own, by path.
        program: The program as it stands, if it is no design: its number of samples is to be found out.
    """

    version: int
    ask: Callable[[], WhatIf]
    hues: Mapping[str, int]
    program: Inspection | None = None


def settings_of(subject: Subject, what_if: WhatIf) -> list[dict[str, Any]]:
    """Return what can be another of the whole, as fields of a form with the values now. May trace the program.

    Args:
        subject: What is looked at.
        what_if: What is asked of it.
    """
    values = dict(what_if.settings)
    if subject.program is not None and "batch" not in values:
        with suppress(ShapeError):  # which dim it is, or whether there is one, cannot always be told from outside
            values = {"batch": batch_of(subject.program).size, **values}
    values.setdefault("precision", "default")
    # A size that is a name stands for any number: there is none that another would be compared with.
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | str)}
    return [_field(name, value) for name, value in plain.items() if _is_of_whole(name)]


def _is_of_whole(name: str) -> bool:
    """Whether a setting is one of the whole, or a dim of an input: those of blocks have forms of their own."""
    return name in _DOCS or name.rpartition(".")[2].isdigit()


def _field(name: str, value: Any) -> dict[str, Any]:
    choices = {"dtype": DTYPES, "precision": PRECISIONS}.get(name)
    kind = "choice" if choices else "bool" if isinstance(value, bool) else "int"
    least, most = (1, 1 << 20) if kind == "int" else (None, None)
    port, _, axis = name.rpartition(".")
    return {
        "name": name,
        "type": kind,
        "value": value,
        "min": least,
        "max": most,
        "choices": list(dict.fromkeys((value, *choices))) if choices else None,
        "doc": _DOCS.get(name) or f"Size of dim {axis} of the input {port}.",
        "optional": False,
    }


def change_of(analysis: Analysis, changes: Changes) -> Change:
    """Return changes of a design as one edit.

    Raises:
        UnknownOptionError: Something that is no part of a design.
        MithrilError: A change that cannot be made.
    """
    design = analysis.design
    shapes = {name: list(spec.shape) for name, spec in analysis.inference.inputs.items()}
    for path, name, value in changes:
        port, _, axis = name.rpartition(".")
        if path:
            design = set_attribute(design, path, name, value).design
        elif name == "batch":
            shapes = {one: [value, *shape[1:]] if shape else shape for one, shape in shapes.items()}
        elif port in shapes and axis in map(str, range(len(shapes[port]))):
            shapes[port][int(axis)] = value
        else:
            raise UnknownOptionError(
                f"{name!r} is not part of the model.",
                (("can be applied", ", ".join(["batch", *(f"{one}.0" for one in shapes), "attributes of blocks"])),),
                'ml.workbench(model, backend=ml.JaxBackend(dtype="bfloat16"))'
                if name in _OUTSIDE
                else 'changes=[["linear_0", "dimension", 512], ["", "batch", 64]]',
            )
    if any(not path for path, _, _ in changes):
        for port, shape in shapes.items():
            design = set_shape(design, port, shape).design
    told = ", ".join(f"{f'{path}.' if path else ''}{name}" for path, name, _ in changes)
    return Change(design, f"what-if: {told}")
