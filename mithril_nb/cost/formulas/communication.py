"""Payload and wire bytes of collectives on one device, by ring algorithms.

The payload is the size of the operand on one device; for an all-gather it is the size of the result, as in nccl-tests.
The wire bytes are the bytes that one device sends to others. In a ring of `N` devices, for an operand of `S` bytes on
each device:

| collective | payload | wire |
|---|---|---|
| all-reduce | S | 2·(N - 1)/N·S |
| all-gather | N·S | (N - 1)·S |
| reduce-scatter | S | (N - 1)/N·S |
| all-to-all | S | (N - 1)/N·S |
| collective-permute | S | S |
| collective-broadcast | S | S |

Sources: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, J. Parallel
Distrib. Comput. 69 (2009), shows that no all-reduce sends less. NVIDIA, nccl-tests, doc/PERFORMANCE.md, has the same
factors.

If devices send different amounts, the largest amount counts. Fractions of a byte are rounded up. A group of one device
sends nothing. Both numbers are unknown if the group or a size is unknown. They are also unknown for a ragged
all-to-all, because they depend on values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mithril_nb.cost.formulas.symbols import Expression, UndecidedError
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.params import COLLECTIVES, GROUP, PARTITIONED

Sent = tuple[Expression | None, Expression | None]
"""Payload and wire bytes of one device; `None` if unknown."""
NOTHING: Sent = (0, 0)
UNKNOWN: Sent = (None, None)
SENDS_MORE = "in a branch that has fewer FLOPs but may send more than the counted branch"


def sent(kind: str, operands: Sequence[Expression | None], group: int | None) -> Sent:
    """Return the bytes that one device passes to a collective (payload), and the bytes that it sends (wire).

    Examples:
        >>> sent("all-reduce", [1024], 8), sent("all-gather", [128], 8), sent("reduce-scatter", [1024], 8)
        ((1024, 1792), (1024, 896), (1024, 896))
        >>> sent("all-reduce", [1024], 1), sent("all-reduce", [1024], None)
        ((0, 0), (None, None))
    """
    if group == 1:
        return NOTHING
    if group is None or None in operands or kind == "ragged-all-to-all":
        return UNKNOWN
    sizes = [size for size in operands if size is not None]
    payload: Expression = sum(sizes)
    # The operands of an all-to-all are parts of one buffer, so only their sum is rounded up.
    parts = [payload] if kind == "all-to-all" else sizes
    if kind == "all-reduce":
        return payload, sum([_rounded_up(2 * (group - 1) * size, group) for size in parts])
    if kind == "all-gather":
        return group * payload, (group - 1) * payload
    if kind in ("reduce-scatter", "all-to-all"):
        return payload, sum([_rounded_up((group - 1) * size, group) for size in parts])
    return payload, payload


def sends_no_more(ours: Sent, other: Sent) -> bool:
    """Return whether `ours` certainly sends at most as many payload and wire bytes as `other`.

    If a number of bytes is unknown, the result is `False`, except that 0 bytes are at most any number.

    Examples:
        >>> sends_no_more((8, 14), (8, 14)), sends_no_more((8, 14), (16, 8)), sends_no_more((8, 14), (None, None))
        (True, False, False)
        >>> sends_no_more((0, 0), (None, None))
        True
    """
    try:
        return all(
            mine == 0 or (mine is not None and its is not None and mine <= its)
            for mine, its in zip(ours, other, strict=True)
        )
    except UndecidedError:
        return False


def sent_by(equation: Equation, bytes_of: Callable[[TensorSpec], Expression | None]) -> Sent:
    """Return the payload and the wire bytes (see `sent`) of one device for one run of an equation.

    They are unknown for an equation on sharded arrays, because XLA's partitioner may add collectives to it. Other
    equations that are not collectives send 0 bytes.
    """
    if (PARTITIONED, True) in equation.params:
        return UNKNOWN
    kind = COLLECTIVES.get(equation.primitive)
    if kind is None:
        return NOTHING
    params: Any = equation.param
    group = params.get(GROUP)
    if kind == "collective-permute" and params.get("perm") is not None:
        group = 2 if any(source != target for source, target in params["perm"]) else 1
    operands = equation.inputs[:1] if kind == "collective-broadcast" else equation.inputs
    return sent(kind, [bytes_of(spec) for spec in operands], group)


def _rounded_up(value: Expression, parts: int) -> Expression:
    # `math.ceil` does not support polynomials.
    return -(-value // parts)
