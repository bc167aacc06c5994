"""The settings of a program that a what-if can change: fields of a form, and the edit that applies changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mithril_nb.analysis.whatif import WhatIf
from mithril_nb.analysis.whatif.settings import PRECISIONS
from mithril_nb.analysis.whatif.subjects import batch_of
from mithril_nb.errors import ShapeError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.ui.session.design.analysis import Analysis
from mithril_nb.ui.session.design.design import Change, set_attribute, set_shape

Changes = Sequence[tuple[str, str, Any]]
"""Path of a block, or `""` for the whole program; name of the setting; new value."""

DTYPES = ("float32", "bfloat16", "float16")
"""Floating-point dtypes available in every process. float64 needs JAX's x64 mode."""
_OUTSIDE = ("dtype", "precision", "remat")
_DOCS = {
    "batch": "Number of samples: the first dim of the program's inputs.",
    "dtype": "Dtype of all floating-point arrays.",
    "precision": "Precision of matrix products, as in jax.default_matmul_precision.",
    "remat": "Recompute values of the forward pass in the backward pass, to save memory.",
}


@dataclass(frozen=True)
class Subject:
    """The subject of what-if questions.

    Attributes:
        version: Version of its design.
        ask: Returns the `WhatIf` of the program.
        hues: Hue of each block that has its own, by path.
        program: The program, if it is not a design. Its batch size is then inferred.
    """

    version: int
    ask: Callable[[], WhatIf]
    hues: Mapping[str, int]
    program: Inspection | None = None


def settings_of(subject: Subject, what_if: WhatIf) -> list[dict[str, Any]]:
    """Return the settings of the whole program as fields of a form, with current values. May trace the program.

    Args:
        subject: The subject.
        what_if: Its `WhatIf`.
    """
    values = dict(what_if.settings)
    if subject.program is not None and "batch" not in values:
        with suppress(ShapeError):  # the batch dim cannot always be inferred
            values = {"batch": batch_of(subject.program).size, **values}
    values.setdefault("precision", "default")
    # Skip symbolic sizes: they have no current value to compare with.
    plain = {name: value for name, value in values.items() if isinstance(value, bool | int | str)}
    return [_field(name, value) for name, value in plain.items() if _is_of_whole(name)]


def _is_of_whole(name: str) -> bool:
    """Return whether a setting belongs to the whole program or to a dim of an input. Blocks have separate forms."""
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
        UnknownOptionError: A setting is not part of a design.
        MithrilError: A change failed.
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
    names = ", ".join(f"{f'{path}.' if path else ''}{name}" for path, name, _ in changes)
    return Change(design, f"what-if: {names}")
