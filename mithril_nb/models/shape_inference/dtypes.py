"""Dtypes of model inputs, and type promotion of several inputs."""

from __future__ import annotations

from collections.abc import Sequence

from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.models.rules import OPS

_ORDER = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64",
    "bfloat16", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip

_WIDER = {("bfloat16", "float16"): "float32", ("float64", "complex64"): "complex128"}
"""The results that are neither of the two dtypes, because neither holds the values of the other."""


def promoted(dtypes: Sequence[str]) -> str:
    """Return the dtype of an operation on arrays with these dtypes, by JAX's type promotion in 32-bit mode.

    The result has 64 bits only if an operand has: `uint32` and `int32` give `int32`.

    Source: https://docs.jax.dev/en/latest/jep/9407-type-promotion.html

    Examples:
        >>> promoted(["int32", "float16"]), promoted(["bfloat16", "float16"]), promoted(["uint8", "int8"])
        ('float16', 'float32', 'int16')
    """
    result = dtypes[0]
    for dtype in dtypes[1:]:
        low, high = sorted((result, dtype), key=_ORDER.index)
        unsigned, signed = (low, high) if low.startswith("uint") else (high, low)
        if (low, high) in _WIDER:
            result = _WIDER[low, high]
        elif unsigned.startswith("uint") and signed.startswith("int"):
            bits = int(unsigned[4:])
            # No signed type holds all uint64. For uint32, JAX would need int64, which 32-bit mode does not have.
            wider = "float64" if bits == 64 else f"int{min(2 * bits, 32)}"
            result = signed if bits < int(signed[3:]) else wider
        else:
            result = high
    return result


def input_dtype(graph: LogicalGraph, port: str, dtype: str) -> str:
    """Return the dtype of the graph input `port`.

    This is the dtype that the user declares for it, else the dtype that the first block with a requirement needs, else
    `dtype`.
    """
    note = graph.note_at.get(Endpoint(BOUNDARY, port))
    if note and note.dtype:
        return note.dtype
    for target in graph.targets_of.get(Endpoint(BOUNDARY, port), ()):
        if target.node == BOUNDARY:
            continue
        block = graph.by_name[target.node].block
        if block.graph is not None and block.is_composite:
            needed = input_dtype(block.graph, target.port, dtype)
        else:
            needed = OPS[block.op].required_dtype(target.port, dtype) if block.op in OPS else dtype
            if block.graph is not None and needed in (dtype, "any"):
                inner = [f"{node.name}_{target.port}" for node in block.graph.nodes]
                required = {input_dtype(block.graph, name, dtype) for name in inner} - {dtype}
                needed = min(required, default=needed)
        if needed not in (dtype, "any"):
            return needed
    return dtype
