"""Checks of single ports that hold for every op: dtypes, parameters that are fed, attributes that are connected."""

from __future__ import annotations

from mithril_nb.graph.spec import Dim, Spec, TensorSpec
from mithril_nb.models.dims import MismatchError, agree


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
            f'a Cast(dtype="{wanted}") before it, as in x.cast("{wanted}").'
            if is_computed
            else f'array.astype("{wanted}"), or an input of its own for this block.',
            f"dtype {spec.dtype}",
        )


def check_fed(port: str, spec: Spec | None, needed: tuple[Dim, ...]) -> None:
    """Raise if a parameter that is connected receives an array of another shape.

    Raises:
        MismatchError: The shapes differ.
    """
    if isinstance(spec, TensorSpec) and not agree(spec.shape, needed):
        raise MismatchError(port, str(needed), "give it this shape, or leave the port open for a parameter.")
