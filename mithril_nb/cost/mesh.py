"""A program on a mesh of devices: the slice of each array that a device holds, and what the devices send.

Slices are those of the compiled program. Of arguments without a sharding, XLA has chosen them. Devices have the numbers
of XLA's partitions: their positions in the mesh, not the ids of `jax.Device`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from mithril_nb.cost.counting import PREDICTED, cost_of
from mithril_nb.cost.hlo.instruction_costs import REDUCE_SCATTER, groups_of
from mithril_nb.cost.records import CostRow
from mithril_nb.display import UNATTRIBUTED_LABEL, Shown
from mithril_nb.errors import StageUnavailableError, UnknownOptionError, listed, nearest
from mithril_nb.graph.spec import ITEM_BYTES
from mithril_nb.hardware import Device
from mithril_nb.stages import jax_jit
from mithril_nb.stages.hlo.module import HloModule
from mithril_nb.stages.hlo.syntax import read_line, sharding_in
from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.trace.params import COLLECTIVES
from mithril_nb.stages.trace.tracing import Leaf

if TYPE_CHECKING:
    from mithril_nb.stages.program_stages import ProgramStages

_MESH = re.compile(r"sdy\.mesh @\S+ = <\[([^\]]*)\](?:, device_ids=\[([\d, ]*)\])?>")
_AXIS = re.compile(r'"([^"]+)"=(\d+)')


@dataclass(frozen=True)
class Sliced:
    """An array of a program, and the slice that each device holds.

    Attributes:
        name: Its name, such as `"params['w']"`; of an activation, its block, primitive and equation, such as
            `"net/hidden: tanh 7"`.
        kind: `"argument"`, `"result"`, or `"activation"` for the result of an equation.
        shape: Its whole shape.
        dtype: Its dtype.
        counts: Number of parts along each dimension; `None` if unknown.
        axes: For each dimension, the axes of the mesh that divide it; `None` if no axes do it exactly.
        slices: For each device, the number of its part along each dimension; `None` if unknown.
        bytes: Bytes on one device; `None` if unknown.
    """

    name: str
    kind: str
    shape: tuple[Any, ...]
    dtype: str
    counts: tuple[int, ...] | None
    axes: tuple[tuple[str, ...], ...] | None
    slices: tuple[tuple[int, ...], ...] | None
    bytes: int | None

    def range_of(self, device: int) -> tuple[tuple[int, int], ...] | None:
        """Return first index and end of the slice of a device along each dimension; `None` if unknown."""
        if self.slices is None or self.counts is None:
            return None
        sizes = [-(-size // count) for size, count in zip(self.shape, self.counts, strict=True)]
        return tuple(
            (min(part * size, whole), min((part + 1) * size, whole))
            for part, size, whole in zip(self.slices[device], sizes, self.shape, strict=True)
        )


@dataclass(frozen=True)
class Exchange:
    """A collective of the compiled program, in one run of the program, for one device.

    Attributes:
        id: Id of the instruction in the stage `"hlo"`.
        opcode: Its opcode, such as `"all-reduce"`.
        axes: The axes of the mesh along which the devices of a group differ; `None` if unknown.
        blocks: Its blocks, with their shares.
        role: `"forward"`, `"backward"` or `"update"`; `None` if there is none.
        payload_bytes: Bytes of the buffers that one device passes to it; of an all-gather, those of its result; `None`
            if unknown.
        wire_bytes: Bytes that one device sends; `None` if unknown.
        predicted_s: Predicted time in seconds; `None` if unknown.
        reason: The decision about shardings that caused it.
        equations: Ids of the equations that it comes from.
    """

    id: str
    opcode: str
    axes: tuple[str, ...] | None
    blocks: tuple[tuple[str, float], ...]
    role: str | None
    payload_bytes: int | None
    wire_bytes: int | None
    predicted_s: float | None
    reason: str
    equations: tuple[str, ...]


@dataclass(frozen=True)
class MeshUse(Shown):
    """How a program uses a mesh of devices: the `mesh` of an inspection. It is drawn as a mesh for each array.

    Attributes:
        program: Name of the program.
        device: Name of the devices.
        axes: Size of each axis of the mesh by name.
        coordinates: For each device, its position along each axis.
        arrays: The arguments and results, then the results of equations. XLA's passes have those; the compiler for TPUs
            writes none, so there they are missing.
        collectives: The collectives of the compiled program, in its order.
        notes: Notes.
    """

    program: str
    device: str
    axes: Mapping[str, int]
    coordinates: tuple[tuple[int, ...], ...]
    arrays: tuple[Sliced, ...]
    collectives: tuple[Exchange, ...]
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Sliced:
        """Return an array by its name."""
        names = [array.name for array in self.arrays]
        if name not in names:
            near = nearest(name, names)
            raise UnknownOptionError(
                f"program {self.program!r} has no array {name!r}.",
                (("names", listed(names)),),
                f"mesh[{near!r}]" if near else "",
            )
        return self.arrays[names.index(name)]

    def to_dict(self) -> dict[str, Any]:
        """Return the use of the mesh as plain data."""
        return {**asdict(self), "axes": dict(self.axes)}

    def __repr__(self) -> str:
        axes = ", ".join(f"{name}={size}" for name, size in self.axes.items())
        return f"MeshUse({self.program!r} on {self.device}: {axes}; {len(self.collectives)} collectives)"


def mesh_of(inspection: ProgramStages) -> MeshUse:
    """Return how a program uses a mesh of devices. It is compiled on first use.

    Raises:
        StageUnavailableError: The program does not compile, or runs on one device.
    """
    if inspection.given is not None:
        raise inspection.given.error()
    if not inspection.is_optimized:
        inspection.want(machine_code=False, passes=True)  # for the activations: else XLA compiles twice
    stage = inspection.stage("hlo")
    if stage.unavailable is not None:
        raise StageUnavailableError(
            f"the mesh of {inspection.name!r} is not available: the program does not compile.",
            (("reason", stage.unavailable),),
        )
    leaves = [*((leaf, "argument") for leaf in inspection.traced_program.trace.inputs)]
    leaves += [(leaf, "result") for leaf in inspection.outputs]
    inputs = len(inspection.traced_program.trace.inputs)
    ranks = [len(leaf.spec.shape) for leaf, _ in leaves]
    lowered = inspection.lowered
    arguments, results = jax_jit.slices(inspection.optimized, lowered, (ranks[:inputs], ranks[inputs:]))
    count = jax_jit.compile_facts(lowered)["partitions"]
    if count == 1:
        raise StageUnavailableError(
            f"program {inspection.name!r} runs on one device: it has no mesh.",
            (),
            'ml.device_mesh("v5e:2x4", data=2, model=4)  # and arguments with jax.sharding.NamedSharding(mesh, ...)',
        )
    axes, coordinates = _mesh(inspection.stage("stablehlo").text, count)
    arrays = [
        _sliced(leaf, kind, parts, axes, coordinates)
        for (leaf, kind), parts in zip(leaves, [*arguments, *results], strict=True)
    ]
    cost = cost_of(inspection, PREDICTED if isinstance(inspection.device, Device) else "compiled")
    attributes = {line.id: dict(line.attributes) for line in stage.instructions}
    by_id = {line.id: line for line in stage.instructions}
    operands = {line.id: line.operands for line in stage.instructions}
    users: dict[str, list[str]] = {}
    for line in stage.instructions:
        for operand in line.operands:
            users.setdefault(operand, []).append(line.id)
    equations = inspection.traced_program.by_id
    rows, around = {row.id: row for row in cost.rows}, _fusions_around(HloModule.of(stage))
    collectives: list[Exchange] = []
    for row in cost.rows:
        if row.payload_bytes != 0 or row.wire_bytes != 0:
            outer, body = around.get(row.id, (row.id, ""))
            # A collective in a fusion takes the time of the fusion, which has its equations.
            own = rows.get(outer, row)
            exchange = replace(
                row,
                opcode="reduce-scatter" if body.startswith(REDUCE_SCATTER) else row.opcode.removesuffix("-start"),
                predicted_s=own.predicted_s,
                equations=tuple(id for id in row.equations or own.equations if id in equations),
                blocks=row.blocks or own.blocks,
                role=row.role or own.role,
            )
            # XLA keeps those of combined collectives at the instructions that read their results. On GPUs it
            # concatenates the arrays, and keeps them only at the instructions before. With JAX 0.12 on CPUs, an
            # all-gather of an argument has only the argument; its causes are the instructions that read its result.
            ids = {*exchange.equations, *(id for part, *_ in row.pieces for id in by_id[part].equations)} & {*equations}
            ids = ids or _nearest_equations(row.id, by_id, operands) or _nearest_equations(row.id, by_id, users)
            causes = [equations[id] for id in sorted(ids)]
            collectives.append(_exchange(exchange, attributes.get(row.id, {}), axes, coordinates, causes))
    notes = [note for note in cost.notes if note.startswith("predicted_s:")]
    if len({*_MESH.findall(inspection.stage("stablehlo").text)}) > 1:
        notes.append(f"the program has several meshes: axes are those of {', '.join(axes)}")
    if any(array.slices is None for array in arrays):
        notes.append("unknown slices are those of arguments that the program does not use, or of other kinds")
    activations, why = _activations(inspection, axes, coordinates)
    arrays += activations
    notes += [why] if why else []
    device = "this machine" if inspection.device is None else str(inspection.device)
    return MeshUse(inspection.name, device, axes, coordinates, tuple(arrays), tuple(collectives), tuple(notes))


def _nearest_equations(
    id: str, instructions: Mapping[str, Instruction], neighbours: Mapping[str, Sequence[str]]
) -> set[str]:
    """Return the equations of the nearest instructions with equations, from an instruction to its neighbours."""
    equations, seen, waiting = set[str](), {id}, [*neighbours.get(id, ())]
    while waiting:
        near = instructions.get(waiting.pop())
        if near is None or near.id in seen or near.opcode == "parameter":  # parameters have ids of arguments
            continue
        seen.add(near.id)
        equations |= {*near.equations}
        waiting += () if near.equations else neighbours.get(near.id, ())
    return equations


# The passes after which each instruction has a sharding, with Shardy and without.
_DIVIDING = ("shardy-xla", "sharding-propagation")


def _activations(
    inspection: ProgramStages, axes: Mapping[str, int], coordinates: Sequence[tuple[int, ...]]
) -> tuple[list[Sliced], str]:
    """Return the results of equations as XLA divides them, and why there are none."""
    unknown = "the slices of activations are unknown"
    try:
        passes = [each for each in inspection.passes if each.name in _DIVIDING]
    except StageUnavailableError as error:
        reasons = [value for _, value in error.diagnostics[0].facts] or [error.diagnostics[0].summary]
        return [], f"{unknown}: {reasons[0]}"
    if not passes:
        return [], f"{unknown}: XLA wrote no pass that divides them"
    program = inspection.traced_program
    tags, equations = program.tags, program.by_id
    shardings: dict[str, str] = {}
    for text in passes[-1].raw_texts[1].splitlines():
        sharding = sharding_in(text)
        line = read_line(text) if sharding else ""
        if isinstance(line, str):
            continue
        id = tags.joint.join(tags.path(line.op_name.partition(";")[0]))
        outputs = equations[id].outputs if id in equations else ()
        # The last instruction of an equation with its shape is its result.
        if len(outputs) == 1 and outputs[0].shape and [each.shape for each in line.specs] == [outputs[0].shape]:
            shardings[id] = sharding
    activations: list[Sliced] = []
    for id, sharding in shardings.items():
        equation = equations[id]
        spec = equation.outputs[0]
        parts = jax_jit.parts_in(sharding, len(spec.shape), len(coordinates))
        if parts is not None:
            name = f"{equation.block or UNATTRIBUTED_LABEL}: {equation.primitive} {id}"
            activations.append(_sliced(Leaf(name, "", spec), "activation", parts, axes, coordinates))
    return activations, ""


def _fusions_around(module: HloModule | None) -> dict[str, tuple[str, str]]:
    """Return for each fused instruction the outermost fusion that runs it, and the name of its own computation."""
    if module is None:
        return {}
    callers: dict[str, tuple[str, str]] = {}  # the fusion that calls a computation, and the computation of the fusion
    for body in module.computations.values():
        for instruction in body.by_id.values():
            for called in module.called(instruction, "calls") if instruction.opcode == "fusion" else ():
                callers[called.name] = instruction.id, body.name
    around: dict[str, tuple[str, str]] = {}
    for body in module.computations.values():
        if body.name in callers:
            outer, home = callers[body.name]
            while home in callers:
                outer, home = callers[home]
            around |= dict.fromkeys(body.by_id, (outer, body.name))
    return around


def _mesh(stablehlo: str, count: int) -> tuple[dict[str, int], tuple[tuple[int, ...], ...]]:
    for axes_text, order in _MESH.findall(stablehlo):
        axes = {name: int(size) for name, size in _AXIS.findall(axes_text)}
        if axes and prod(axes.values()) == count:
            devices = [int(number) for number in order.split(",")] if order else [*range(count)]
            return axes, _unravelled(devices, [*axes.values()])
    # A program that was lowered without Shardy does not name its axes.
    return {"devices": count}, tuple((device,) for device in range(count))


def _unravelled(devices: Sequence[int], sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the coordinates of each device, given the devices in the order of the mesh."""
    coordinates: list[tuple[int, ...]] = [()] * len(devices)
    for position, device in enumerate(devices):
        coordinates[device] = tuple(int(number) for number in np.unravel_index(position, sizes))
    return tuple(coordinates)


def _sliced(
    leaf: Leaf,
    kind: str,
    slices: jax_jit.Parts | None,
    axes: Mapping[str, int],
    coordinates: Sequence[tuple[int, ...]],
) -> Sliced:
    shape, dtype = tuple(map(int, leaf.spec.shape)), str(leaf.spec.dtype)  # a mesh needs numbers
    if slices is None:
        return Sliced(leaf.name, kind, shape, dtype, None, None, None, None)
    counts = tuple(max(parts) + 1 for parts in zip(*slices, strict=True))
    by_dim = [_dividing([parts[dim] for parts in slices], counts[dim], axes, coordinates) for dim in range(len(shape))]
    divided = None if None in by_dim else tuple(names for names in by_dim if names is not None)
    sizes = [-(-size // count) for size, count in zip(shape, counts, strict=True)]
    item = ITEM_BYTES.get(dtype)
    size = None if item is None else int(prod(sizes) * item)
    return Sliced(leaf.name, kind, shape, dtype, counts, divided, slices, size)


def _dividing(
    parts: Sequence[int], count: int, axes: Mapping[str, int], coordinates: Sequence[tuple[int, ...]]
) -> tuple[str, ...] | None:
    """Return the axes, the first with the largest steps, whose coordinates number the parts; `None` if none do."""
    if count == 1:
        return ()
    names = [*axes]
    for length in range(1, len(names) + 1):
        for chosen in permutations(range(len(names)), length):
            sizes = [axes[names[axis]] for axis in chosen]
            if prod(sizes) == count and all(
                part == np.ravel_multi_index([position[axis] for axis in chosen], sizes)
                for part, position in zip(parts, coordinates, strict=True)
            ):
                return tuple(names[axis] for axis in chosen)
    return None


# Collectives


def _exchange(
    row: CostRow,
    attributes: Mapping[str, str],
    axes: Mapping[str, int],
    coordinates: Sequence[tuple[int, ...]],
    equations: Sequence[Equation],
) -> Exchange:
    opcode = row.opcode
    text = attributes.get("source_target_pairs") or attributes.get("replica_groups", "")
    is_all = attributes.get("replica_groups") == "{}" and "source_target_pairs" not in attributes
    groups = [[*range(len(coordinates))]] if is_all else groups_of(text)
    if "channel_id" in attributes and attributes.get("use_global_device_ids") != "true" and not is_all:
        # Without global ids, the groups list replicas or partitions. JAX uses one replica, so {{0}} lists replicas.
        groups = None if groups == [[0]] else groups
    along = _along(groups, axes, coordinates)
    return Exchange(
        row.id,
        opcode,
        along,
        row.blocks,
        row.role,
        row.payload_bytes,
        row.wire_bytes,
        row.predicted_s,
        _reason(opcode, along, equations, len(row.pieces)),
        row.equations,
    )


def _along(
    groups: Iterable[Sequence[int]] | None, axes: Mapping[str, int], coordinates: Sequence[tuple[int, ...]]
) -> tuple[str, ...] | None:
    if groups is None:
        return None
    names, differing = [*axes], set[int]()
    for group in groups:
        if max(group) >= len(coordinates):
            return None
        for axis in range(len(names)):
            if len({coordinates[device][axis] for device in group}) > 1:
                differing.add(axis)
    return tuple(names[axis] for axis in sorted(differing))


_REASONS = {
    "all-reduce": "the parts of a sum over {axes} are added: {what} over a dimension that is split",
    "reduce-scatter": "the parts of a sum over {axes} are added, and each device keeps a part: {what}",
    "all-gather": "the parts along {axes} are collected: for {what}, a device needs more of the array than it holds",
    "all-to-all": "the array is split along another dimension over {axes}: {what}",
    "collective-permute": "slices move to other devices along {axes}: {what}",
}


_SUMMING = ("dot_general", "conv_general_dilated", "ragged_dot", "reduce", "scatter", "cum", "arg")
"""Starts of the names of primitives that reduce over a dimension."""
_SELECTING = ("reduce_max", "reduce_min", "reduce_and", "reduce_or", "arg", "cummax", "cummin")
"""Starts of the names of reductions that select an element or a truth value, and sum nothing."""


def _reason(opcode: str, axes: tuple[str, ...] | None, equations: Sequence[Equation], combined: int) -> str:
    own = [equation for equation in equations if equation.primitive in COLLECTIVES]
    if own:
        return f"the program's own {', '.join(dict.fromkeys(equation.primitive for equation in own))}"
    is_sum = opcode in ("all-reduce", "reduce-scatter")
    # Other equations of the instruction, such as a transpose of the result, did not cause it.
    causes = [each for each in equations if each.primitive.startswith(_SUMMING)] if is_sum else []
    names = ", ".join(dict.fromkeys(equation.primitive for equation in causes or equations))
    along = "unknown axes" if axes is None else " and ".join(axes) or "no axis"
    reason = _REASONS.get(opcode, "{what} moves data over {axes}").format(axes=along, what=names or "an equation")
    if causes and all(each.primitive.startswith(_SELECTING) for each in causes):
        reason = reason.replace("a sum", "a reduction").replace("added", "combined")
    return f"{reason}; XLA combines {combined} of them" if combined else reason
