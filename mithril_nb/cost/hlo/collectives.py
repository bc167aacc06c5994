"""Payload and wire bytes of collectives in HLO, and the original collectives of each collective that XLA combined."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from mithril_nb.cost.formulas.communication import UNKNOWN, sent
from mithril_nb.cost.formulas.sizes import nbytes, sum_of
from mithril_nb.cost.records import Piece
from mithril_nb.stages.hlo.module import Computation, HloModule
from mithril_nb.stages.records import Instruction

_GROUPED = frozenset({"all-reduce", "all-gather", "reduce-scatter"})
"""Collectives that may have kCrossReplicaAndPartition groups, see `_group`."""
_COMBINED = _GROUPED | {"collective-permute", "collective-broadcast"}
"""Kinds of collectives that XLA combines: the result of the combined collective is a tuple with their results."""
_KINDS = _COMBINED | {"all-to-all", "ragged-all-to-all", "send"}
_INNER = re.compile(r"\{([\d,]*)\}")  # {0,2} in replica_groups={{0,2},{1,3}}
_IOTA = re.compile(r"\[([\d,]+)\]<=")  # [2,4]<=[8], a short form of replica_groups
_MESH = re.compile(r"mesh\[([^\]]*)\].*\{([^}]*)\}$")  # mesh['a'=2,'b'=4] {'b'}
_AXIS = re.compile(r"([^=:,]+)(?:=(\d+)|:\(\d+\)(\d+))?(?:,|$)")  # 'a'=2, or 'b':(1)2, a part of size 2 of an axis


def hlo_sent(instruction: Instruction, body: Computation, module: HloModule) -> tuple[int | None, int | None]:
    """Return the bytes that one device passes to a collective (payload) and sends (wire) in one run of an instruction.

    Both are 0 for other instructions, and `None` if unknown. Of an asynchronous collective, the start instruction sends
    all bytes and the done instruction 0.
    """
    kind = instruction.opcode.removesuffix("-start")
    if kind not in _KINDS:
        return 0, 0
    attributes = dict(instruction.attributes)
    if kind == "send":  # point to point, or to the host, which is not a device of the mesh
        group, kind = (1 if attributes.get("is_host_transfer") == "true" else 2), "collective-permute"
    elif kind == "collective-permute":
        group = _senders(attributes.get("source_target_pairs"))
    else:
        group = _group(kind, attributes, module)
    # Sizes come from the operands, because the result of a start instruction contains the operands too.
    operands = body.operands(instruction)
    is_complete = len(operands) == len(instruction.operands) > 0
    payload, wire = sent(kind, [_bytes(operand) for operand in operands], group) if is_complete else UNKNOWN
    return None if payload is None else int(payload), None if wire is None else int(wire)


def pieces(instruction: Instruction, body: Computation) -> tuple[Piece, ...]:
    """Return the collectives that XLA combined into an instruction, each with its size in bytes; empty if none.

    XLA copies the metadata of each original collective to the `get-tuple-element` that reads its result. The block and
    the part of a training step of each collective come from this metadata.
    """
    kind = instruction.opcode.removesuffix("-start")
    operands = body.operands(instruction)
    if kind not in _COMBINED or len(operands) < 2:
        return ()
    users = body.users.get(instruction.id, ())
    # The result of an asynchronous collective is the result of its done instruction.
    if instruction.opcode != kind:
        users = tuple(item for done in users for item in body.users.get(done.id, ()))
    items = {dict(user.attributes).get("index"): user for user in users if user.opcode == "get-tuple-element"}
    parts: list[Piece] = []
    for index, operand in enumerate(operands):
        size, item = _bytes(operand), items.get(str(index), operand)
        if size is None:
            return ()
        parts.append((item.id, item.shares, item.role, size))
    return tuple(parts) if any(size for *_, size in parts) else ()


def group_size(text: str) -> int | None:
    """Return the number of devices in the largest group of a collective.

    The result is `None` if the text lists no groups or has an unknown form.

    Args:
        text: The groups of the collective in HLO text. There are three forms: lists of devices, a matrix of devices
            with one group in each row, and the axes of a mesh. The examples show them in this order.

    Examples:
        >>> group_size("{{0,1},{2,3}}"), group_size("{}")
        (2, None)
        >>> group_size("[2,4]<=[8]"), group_size("[4,2]<=[2,4]T(1,0)")
        (4, 2)
        >>> group_size("mesh['a'=2,'b'=4] {'b'}"), group_size("mesh['a'=2,'b'=4] {'a','b':(1)2}")
        (4, 4)
    """
    if iota := _IOTA.match(text):
        # The last axis is the size of a group.
        return int(iota[1].split(",")[-1])
    if mesh := _MESH.match(text):
        sizes = {name: int(size) for name, size, _ in _AXIS.findall(mesh[1])}
        parts = [(name, part) for name, _, part in _AXIS.findall(mesh[2])]
        if not all(name in sizes for name, _ in parts):
            return None
        return prod(int(part) if part else sizes[name] for name, part in parts)
    return max((len(group.split(",")) for group in _INNER.findall(text) if group), default=None)


def _group(kind: str, attributes: Mapping[str, str], module: HloModule) -> int | None:
    """Return the number of devices in a group of a collective; `None` if unknown.

    The comments name the modes of XLA's `CollectiveOpGroupMode`, and what the groups list in each mode.
    """
    listed = group_size(attributes.get("replica_groups", ""))
    if "channel_id" not in attributes:  # kCrossReplica: replicas
        return listed or module.replicas
    if attributes.get("use_global_device_ids") == "true":  # kFlattenedID: devices
        return listed or _times(module.replicas, module.partitions)
    if kind in _GROUPED:  # kCrossReplicaAndPartition: replicas; all partitions of a replica are in the group
        return _times(listed or module.replicas, module.partitions)
    return listed or module.partitions  # kCrossPartition: partitions


def _times(factor: int | None, other: int | None) -> int | None:
    return None if factor is None or other is None else factor * other


def _senders(pairs: str | None) -> int | None:
    """Return the argument `group` of `sent` for a collective-permute, given the pairs of source and target."""
    if pairs is None:
        return None
    ends = [pair.split(",") for pair in _INNER.findall(pairs) if pair]
    return 2 if any(source != target for source, target in ends) else 1


def _bytes(instruction: Instruction) -> int | None:
    return sum_of(*map(nbytes, instruction.shapes))
