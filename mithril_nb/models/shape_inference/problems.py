"""Messages of ops whose shapes cannot be inferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mithril_nb.errors import Diagnostic
from mithril_nb.graph.paths import component
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.models.shape_inference.dims import MismatchError
from mithril_nb.models.shape_inference.flat import Flat, FlatOp

Absolute = Callable[[str], str]
"""Returns a path relative to the outermost model."""


def impossible_output(
    flat: Flat, at: Absolute, op: FlatOp, outputs: Mapping[str, TensorSpec], found: MismatchError
) -> Diagnostic:
    """Return the diagnostic of an op that cannot output a shape that other blocks require."""
    readers = [
        f"{at(one.path)}.{component(port)}"
        for one in flat.ops
        for port in (port for port, end in one.sources.items() if end.node == op.path)
    ]
    return Diagnostic(
        f"{op.block.kind} at {at(op.path)!r} cannot output the required shape.",
        (
            ("required by", ", ".join(readers) or "set_shapes"),
            *((port, str(spec.shape)) for port, spec in outputs.items()),
            (found.port, found.need + (f"      {found.detail}" if found.detail else "")),
        ),
        f"connect another output to {readers[0]!r}." if readers else found.advice,
        block=at(op.path),
        port=found.port,
        code="ShapeError",
    )


def invalid_attribute(at: Absolute, op: FlatOp, found: MismatchError) -> Diagnostic:
    """Return the diagnostic of a missing or invalid attribute."""
    value = op.block.options.get(found.port)
    return Diagnostic(
        f"{op.block.kind} at {at(op.path)!r} cannot use {found.port}={value!r}.",
        ((found.port, found.need + (f"      {found.detail}" if found.detail else "")),),
        found.advice,
        block=at(op.path),
        port=found.port,
        code="ShapeError",
    )
