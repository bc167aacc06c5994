"""Checks of single ports that hold for every op: dtypes, parameters that are fed, attributes that are connected."""

from __future__ import annotations

from mithril_nb.errors import UnknownOpError, short_repr
from mithril_nb.graph.spec import ITEM_BYTES, Dim, Spec, TensorSpec, Value
from mithril_nb.models.dims import MismatchError, agree
from mithril_nb.models.fields import fields_of, unmet_need
from mithril_nb.models.flat import FlatOp
from mithril_nb.models.op import OPS, Operator
from mithril_nb.models.registry import KINDS


def check_dtype(port: str, spec: TensorSpec, wanted: str, is_computed: bool) -> None:
    """Raise if an input receives another kind of numbers than its op takes.

    Args:
        port: The input.
        spec: The array that it receives.
        wanted: The dtype that the op takes, or `"any"`.
        is_computed: Whether a block computes the array; otherwise it is an input of the model.

    Raises:
        MismatchError: The kinds differ.
    """
    if wanted == "any":
        return
    kind = "whole" if "int" in wanted else "truth" if wanted == "bool" else "floating"
    found = "whole" if "int" in spec.dtype else "truth" if spec.dtype == "bool" else "floating"
    if found != kind or "complex" in spec.dtype:
        raise MismatchError(
            port,
            f"{kind} {'values' if kind == 'truth' else 'numbers'} ({wanted})",
            f'x.cast("{wanted}")  # or a Cast(dtype="{wanted}") before it'
            if is_computed
            else f'array.astype("{wanted}")  # or a separate input for this block',
            f"dtype {spec.dtype}",
        )


def check_fed(port: str, spec: Spec | None, needed: tuple[Dim, ...]) -> None:
    """Raise if a parameter that is connected receives an array of another shape.

    Raises:
        MismatchError: The shapes differ.
    """
    if isinstance(spec, TensorSpec) and not agree(spec.shape, needed):
        raise MismatchError(port, str(needed), "give it this shape, or leave the port open for a parameter.")


def check_option(kind: str, port: str, value: Value) -> None:
    """Raise if the value that is connected to an attribute is no number where the attribute takes only numbers.

    Args:
        kind: The kind of the block.
        port: Its port.
        value: The value. A text may name a size that is not known yet.

    Raises:
        MismatchError: The attribute cannot take it.
    """
    fields = fields_of(KINDS[kind]) if kind in KINDS else ()
    field = next((one for one in fields if one.name == port), None)
    if field is None or field.type not in ("int", "float") or (isinstance(value, str) and value not in ITEM_BYTES):
        return
    if need := unmet_need(field, value):
        raise MismatchError(port, need, f"connect a number, or leave {port!r} open.", f"{short_repr(value)} is none")


def rule_of(op: FlatOp) -> type[Operator]:
    """Return the rules of an op.

    Raises:
        UnknownOpError: No such op is registered.
    """
    if op.block.op not in OPS:
        raise UnknownOpError(
            f"block {op.path!r} is made of an op {op.block.op!r} that does not exist.",
            (("known", "list(mithril_nb.models.op.OPS)"),),
            "one of these.",
            block=op.path,
        )
    return OPS[op.block.op]
