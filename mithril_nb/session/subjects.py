"""What can be another of a program that is looked at, and the program that it would be then."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mithril_nb.backends.jax import JaxBackend
from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.session.analysis import Analysis
from mithril_nb.session.design import Change, Design, set_attribute, set_shape
from mithril_nb.stages import Inspection
from mithril_nb.whatif.arguments import batch_of
from mithril_nb.whatif.settings import PRECISIONS
from mithril_nb.whatif.subjects import Fixed

Changes = Sequence[tuple[str, str, Any]]
"""Path of a block, or `""` for the whole program; name of what is another; its value."""

DTYPES = ("float32", "bfloat16", "float16")
"""Dtypes of numbers with a fraction that every process has: 64 bits are a switch of all of JAX."""


class Subject(Protocol):
    """A program whose settings can be others."""

    @property
    def version(self) -> int:
        """Version of its design."""
        ...

    @property
    def hues(self) -> Mapping[str, int]:
        """Hue of each block that has one of its own, by path."""
        ...

    @property
    def inspection(self) -> Inspection:
        """The program as it is."""
        ...

    @property
    def settings(self) -> list[dict[str, Any]]:
        """What can be another of the whole, as fields of a form with the values now. May trace the program."""
        ...

    def altered(self, changes: Changes) -> Inspection:
        """Return the program with other settings; nothing of it is made.

        Raises:
            MithrilError: There is no such setting, or the program cannot be with it.
        """
        ...


@dataclass(frozen=True)
class DesignSubject:
    """A design in a workbench.

    Attributes:
        analysis: The design, looked at.
        backend: Where its programs run.
        training: Options of the loss and the optimizer.
        hues: Hue of each block that has one of its own, by path.
    """

    analysis: Analysis
    backend: JaxBackend
    training: Mapping[str, Any]
    hues: Mapping[str, int]

    @property
    def version(self) -> int:
        """Version of the design."""
        return self.analysis.version

    @property
    def inspection(self) -> Inspection:
        """The program as it is."""
        return self.analysis.inspection

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The number of samples, and the dtype."""
        batch, dtype = batch_size(self.analysis), str(self.backend.default_dtype)
        fields = [] if batch is None else [_batch_field(batch)]
        return [*fields, _choice("dtype", dtype, DTYPES, "Dtype of numbers with a fraction.")]

    def altered(self, changes: Changes) -> Inspection:
        """Return the program of the design with these changes."""
        design, backend = edited(self.analysis, changes), self.backend
        for path, name, value in changes:
            if (path, name) == ("", "dtype") and value != str(backend.default_dtype):
                check_choice(name, value, DTYPES)
                backend = copy.copy(backend)
                backend.default_dtype = value
        return Analysis(design, self.version, backend, self.training).inspection


@dataclass(frozen=True)
class ProgramSubject:
    """A program in an explorer: what it is given can have another size or dtype.

    Attributes:
        program: The program.
        hues: Hue of each block that has one of its own, by path.
    """

    program: Inspection
    hues: Mapping[str, int]

    @property
    def version(self) -> int:
        """Version of its design: there is one only."""
        return 1

    @property
    def inspection(self) -> Inspection:
        """The program as it is."""
        return self.program

    @property
    def settings(self) -> list[dict[str, Any]]:
        """The number of samples if it is clear which it is, the dtype if there is one, and the precision."""
        fields: list[dict[str, Any]] = []
        try:
            fields.append(_batch_field(batch_of(self.program).size))
        except MithrilError:  # which dim it is, or whether there is one, nobody can tell from outside
            pass
        dtype = Fixed(self.program).base.get("dtype")
        if dtype is not None:
            fields.append(_choice("dtype", dtype, DTYPES, "Dtype of all arrays of numbers with a fraction."))
        doc = "Precision of matrix products, as jax.default_matmul_precision has it."
        return [*fields, _choice("precision", "default", PRECISIONS, doc)]

    def altered(self, changes: Changes) -> Inspection:
        """Return the program for other arguments."""
        fixed = Fixed(self.program)
        for path, name, _ in changes:
            if path:
                raise UnknownOptionError(
                    f"{name!r} of {path!r} cannot be another: this program is no design of blocks.",
                    (("settings", "batch, dtype, precision"),),
                    "ml.what_if(make), where make(width=128) returns the function and its arguments.",
                )
        return fixed.inspection(fixed.settled({name: value for _, name, value in changes}))


def edited(analysis: Analysis, changes: Changes) -> Design:
    """Return a design with changes of blocks and of the number of samples.

    Raises:
        MithrilError: A change that cannot be made.
    """
    design = analysis.design
    for path, name, value in changes:
        if path:
            design = set_attribute(design, path, name, value).design
        elif name == "batch":
            for port, spec in analysis.inference.inputs.items():
                design = set_shape(design, port, [value, *spec.shape[1:]]).design
        elif name != "dtype":
            check_choice("setting", name, ("batch", "dtype"))
    return design


def change_of(analysis: Analysis, changes: Changes) -> Change:
    """Return changes as one edit.

    Raises:
        UnknownOptionError: Something that is no part of a design.
        MithrilError: A change that cannot be made.
    """
    if any((path, name) == ("", "dtype") for path, name, _ in changes):
        raise UnknownOptionError(
            "the dtype is not part of the model: it is the backend's.",
            advice='ml.workbench(model, backend=ml.JaxBackend(dtype="bfloat16"))',
        )
    told = ", ".join(f"{f'{path}.' if path else ''}{name}" for path, name, _ in changes)
    return Change(edited(analysis, changes), f"what-if: {told}")


def batch_size(analysis: Analysis) -> int | None:
    """Return the first dim that all inputs of a design share; `None` if they share none."""
    specs = list(analysis.inference.inputs.values())
    sizes = {spec.shape[0] for spec in specs if spec.is_concrete and spec.shape}
    if len(sizes) != 1 or not all(spec.is_concrete and spec.shape for spec in specs):
        return None
    size = sizes.pop()
    return size if isinstance(size, int) else None


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise if a value is none of some.

    Raises:
        UnknownOptionError: It is none of them.
    """
    if value not in choices:
        raise UnknownOptionError(f"unknown {name} {value!r}.", (("known", ", ".join(choices)),), f"{choices[0]!r}")


def _batch_field(size: int) -> dict[str, Any]:
    return _field("batch", "int", size, "Number of samples: the first dim of what the program is given.") | {
        "min": 1, "max": 1 << 20,
    }  # fmt: skip


def _choice(name: str, value: str, choices: Sequence[str], doc: str) -> dict[str, Any]:
    return _field(name, "choice", value, doc) | {"choices": list(dict.fromkeys((value, *choices)))}


def _field(name: str, type: str, value: Any, doc: str) -> dict[str, Any]:
    return {"name": name, "type": type, "value": value, "min": None, "max": None, "choices": None, "doc": doc,
            "optional": False}  # fmt: skip
