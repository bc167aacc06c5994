"""Checks that apply to the ports of every op, and the messages of ops whose shapes cannot be inferred."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mithril_nb.errors import Diagnostic, UnknownOpError, short_repr
from mithril_nb.graph.paths import component
from mithril_nb.graph.spec import ITEM_BYTES, Dim, Spec, TensorSpec, Value
from mithril_nb.models.fields import fields_of, unmet_need
from mithril_nb.models.registry import KINDS
from mithril_nb.models.rules import OPS, OpRules
from mithril_nb.models.shape_inference.dims import MismatchError, agree
from mithril_nb.models.shape_inference.flat import Flat, FlatOp


def check_dtype(port: str, spec: TensorSpec, expected: str, is_computed: bool) -> None:
    """Raise if an input receives another kind of dtype than its op accepts, such as integers for floats.

    Args:
        port: The input.
        spec: Spec of the array that the input receives.
        expected: The dtype that the op accepts, or `"any"`. Any dtype of the same kind is accepted.
        is_computed: True if a block computes the array, false if it is an input of the model.

    Raises:
        MismatchError: The kinds differ, or the array is complex.
    """
    if expected == "any":
        return
    kind = _kind(expected)
    if _kind(spec.dtype) != kind or "complex" in spec.dtype:
        raise MismatchError(
            port,
            f"{kind} ({expected})",
            f'x.cast("{expected}")  # or a Cast(dtype="{expected}") before it'
            if is_computed
            else f'array.astype("{expected}")  # or a separate input for this block',
            str(spec.dtype),
        )


def _kind(dtype: str) -> str:
    return "whole numbers" if "int" in dtype else "booleans" if dtype == "bool" else "floating-point numbers"


def check_fed(port: str, spec: Spec | None, needed: tuple[Dim, ...]) -> None:
    """Raise a `MismatchError` if the array connected to a parameter has another shape than the parameter needs."""
    if isinstance(spec, TensorSpec) and not agree(spec.shape, needed):
        raise MismatchError(port, str(needed), f"connect an array of shape {needed}, or leave {port!r} open.")


def check_option(kind: str, port: str, value: Value) -> None:
    """Raise if a connected attribute that takes only numbers receives another value.

    Args:
        kind: The kind of the block.
        port: The port of the attribute.
        value: The value. A string is the name of an unknown size, unless it is a dtype.

    Raises:
        MismatchError: The attribute cannot take the value.
    """
    fields = fields_of(KINDS[kind]) if kind in KINDS else ()
    field = next((field for field in fields if field.name == port), None)
    if field is None or field.type not in ("int", "float") or (isinstance(value, str) and value not in ITEM_BYTES):
        return
    if need := unmet_need(field, value):
        raise MismatchError(port, need, f"connect a number, or leave {port!r} open.", short_repr(value))


def rule_of(op: FlatOp) -> type[OpRules]:
    """Return the rules of an op.

    Raises:
        UnknownOpError: No such op is registered.
    """
    if op.block.op not in OPS:
        raise UnknownOpError(
            f"block {op.path!r} has an unknown op {op.block.op!r}.",
            (("known ops", "list(mithril_nb.models.op.OPS)"),),
            "list(ml.models.op.OPS)  # one of these names",
            block=op.path,
        )
    return OPS[op.block.op]


Absolute = Callable[[str], str]
"""A function that returns a path relative to the outermost model."""


def impossible_output(
    flat: Flat, at: Absolute, op: FlatOp, outputs: Mapping[str, TensorSpec], error: MismatchError
) -> Diagnostic:
    """Return the diagnostic of an op that cannot output a shape that other blocks require.

    Args:
        flat: The ops of the model.
        at: Converts a path to one relative to the outermost model.
        op: The op.
        outputs: The required spec of each output, by port.
        error: The error that the shape rule of the op raised.
    """
    readers = [
        f"{at(reader.path)}.{component(port)}"
        for reader in flat.ops
        for port in (port for port, end in reader.sources.items() if end.node == op.path)
    ]
    return Diagnostic(
        f"{op.block.kind} at {at(op.path)!r} cannot output the required shape.",
        (
            ("required by", ", ".join(readers) or "set_shapes"),
            *((port, str(spec.shape)) for port, spec in outputs.items()),
            *error.facts,
        ),
        f"connect another output to {readers[0]!r}." if readers else error.advice,
        block=at(op.path),
        port=error.port,
        code="ShapeError",
    )


def invalid_attribute(at: Absolute, op: FlatOp, error: MismatchError) -> Diagnostic:
    """Return the diagnostic of a missing or invalid attribute."""
    value = op.block.options.get(error.port)
    return Diagnostic(
        f"{op.block.kind} at {at(op.path)!r} cannot use {error.port}={value!r}.",
        error.facts,
        error.advice,
        block=at(op.path),
        port=error.port,
        code="ShapeError",
    )


def contradiction(
    aspect: str, subject: str, declared: str, inferred: str, advice: str, block: str, port: str
) -> Diagnostic:
    """Return the diagnostic of an annotation that contradicts the inferred spec.

    Args:
        aspect: `"shape"` or `"dtype"`.
        subject: Name of the annotated connection or parameter, for the message.
        declared: The annotation.
        inferred: The inferred shape, dtype or spec.
        advice: Code that removes the contradiction.
        block: Path of the block; `""` for an input of the model.
        port: The port.
    """
    return Diagnostic(
        f"{subject}: declared {aspect} does not match the inferred {aspect}.",
        (("declared", declared), ("inferred", inferred)),
        advice,
        block=block,
        port=port,
        code="ShapeError",
    )
