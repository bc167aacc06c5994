"""The time that each compiled instruction would take on a device, predicted from the compiler and the device's figures.

- TPU: the cycles that the compiler estimates for a fusion, at the clock of the device.
- Other instructions, and all of GPUs: a roofline. The larger of the time to compute, at the peak of the dtype, and the
  time to move the bytes, at the memory bandwidth; on GPUs plus the start of a kernel.
- The CPU of this machine: the same roofline, at the rates that `hardware.calibration` measures. They assume that
  results below 32 MB reuse memory of the process. If it gave that memory back, new pages can take longer than the work.
- Collectives: the bytes that one device sends, over its links.

Nothing overlaps in the sum, so it is rather too long where the device copies or sends while it computes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil, exp, log, prod

from numpy import interp

from mithril_nb.cost.formulas.sizes import nbytes, size
from mithril_nb.cost.hlo.instruction_costs import FUSIONS, NAMING, axes_of, keeps_place
from mithril_nb.cost.records import TICKS_PER_S, CostRow
from mithril_nb.hardware import Device
from mithril_nb.stages.hlo.module import Computation, HloModule
from mithril_nb.stages.records import Equation, Instruction, Stage

PRODUCTS = frozenset({"dot", "convolution", "custom-call", "ragged-dot"})
"""Opcodes of products and convolutions, with calls of libraries."""
_ONLY_THEIR_BODY = frozenset("call while conditional async-start async-update async-done call-start".split())


_NO_TIME, _UNKNOWN_TIME = (0.0, ""), (None, "")


def predicted(rows: Sequence[CostRow], stage: Stage, device: Device) -> tuple[tuple[CostRow, ...], tuple[str, ...]]:
    """Return the rows of the stage `"hlo"` with `predicted_s`, and notes on its source."""
    module = HloModule.of(stage)
    if module is None:
        return tuple(rows), ()
    by_id = {row.id: row for row in rows}
    fused = within_others(module)
    times: dict[str, tuple[float | None, str]] = {}
    for body in module.computations.values():
        for instruction in body.by_id.values():
            row = by_id.get(instruction.id)
            if row is not None:
                times[row.id] = _NO_TIME if body.name in fused else _time(instruction, row, body, module, by_id, device)
    parts = ((row, *times.get(row.id, _UNKNOWN_TIME)) for row in rows)
    timed = (replace(row, predicted_s=_on_ticks(time_s), limited_by=limit) for row, time_s, limit in parts)
    return tuple(timed), _notes(device)


def products_at_peak(rows: Sequence[CostRow], stage: Stage, device: Device) -> tuple[float, bool]:
    """Return the time that products and convolutions would take at the peaks of their dtypes, and if it is all known.

    The time leaves out calls of libraries without a rule, which may contain products.
    """
    module = HloModule.of(stage)
    bodies = [] if module is None else [*module.computations.values()]
    by_id = {row.id: row for row in rows}
    times = [
        _compute(part, body, by_id[part.id], device)
        for body in bodies
        for part in body.by_id.values()
        if part.opcode in PRODUCTS and part.id in by_id
    ]
    return sum(time for time in times if time is not None), None not in times


def within_others(module: HloModule) -> set[str]:
    """Return the names of the computations whose instructions do not run on their own, such as bodies of fusions."""
    inside: set[str] = set()
    for body in reversed(module.callers_last()):
        for instruction in body.by_id.values():
            called = module.called(instruction)
            if body.name not in inside and instruction.opcode in _ONLY_THEIR_BODY:
                # The host counts the iterations of a loop with a known number: XLA's WhileThunk skips the condition.
                is_counted = "known_trip_count" in dict(instruction.attributes)
                called = module.called(instruction, "condition") if is_counted else []
            inside |= {computation.name for computation in called}
    return inside


def _time(
    instruction: Instruction,
    row: CostRow,
    body: Computation,
    module: HloModule,
    rows: Mapping[str, CostRow],
    device: Device,
) -> tuple[float | None, str]:
    """Return the time of all runs of an instruction, and what limits it."""
    opcode = instruction.opcode
    if row.wire_bytes is None:  # of a branch that is not the most expensive, but may send more
        return _UNKNOWN_TIME
    if row.repeats == 0 or opcode in NAMING or opcode in _ONLY_THEIR_BODY or opcode.endswith("-done"):
        return _NO_TIME
    if row.repeats is None:
        return _UNKNOWN_TIME
    parts = [*_parts(instruction, body, module)]
    # TPUs fuse a reduce-scatter with what follows.
    sent = [rows[part.id].wire_bytes for part, _ in parts if part.id in rows]
    if any(size != 0 for size in sent):
        if device.hosts > 1 or None in sent:  # the network between hosts has no figure here
            return _UNKNOWN_TIME
        time_s = _over(sum(size or 0 for size in sent), device.link_bytes_per_s)
        return time_s, "links" if time_s else ""
    # XLA writes 0 cycles where it has no estimate.
    cycles = int(dict(instruction.attributes).get("estimated_cycles", 0))
    if cycles and device.clock_hz is not None:
        return cycles * row.repeats / device.clock_hz, "cycles"
    work = _measured if device.rates else _compute
    compute = _sum(work(part, home, rows[part.id], device) for part, home in parts if part.id in rows)
    moved, rate = row.bytes_accessed, device.bytes_per_s
    # A copy between two memories, such as a prefetch into VMEM, reads or writes each byte in the large one only once.
    if moved and opcode in ("copy-start", "slice-start") and len({*body.spaces.get(row.id, ())[:2]}) == 2:
        moved //= 2
    if moved and device.rates:
        # Arguments of the program were last used before everything else, so they are in the caches only if all is.
        is_old = body.is_entry and any(operand.opcode == "parameter" for operand in body.operands(instruction))
        arrays = [spec for each in module.entry.by_id.values() for spec in each.shapes if each.opcode != "tuple"]
        rate = _rate(
            device, "bytes", max(moved / row.repeats, sum(nbytes(spec) or 0 for spec in arrays) if is_old else 1)
        )
    move = _over(moved, rate)
    if compute is None or move is None:
        return _UNKNOWN_TIME
    pages = 0.0
    if device.rates and body.is_entry and body.root in (instruction, *body.users.get(instruction.id, ())):
        results = sum(nbytes(spec) or 0 for spec in instruction.shapes)
        pages = results / _rate(device, "results", results) if results else 0.0
    limits = {"FLOPs": compute, "bytes": move + pages, "launch": row.repeats * (device.launch_s or 0.0)}
    time_s = max(compute, move) + pages + limits["launch"]
    return time_s, max(limits, key=lambda limit: limits[limit]) if time_s else ""


def _parts(instruction: Instruction, body: Computation, module: HloModule) -> Iterable[tuple[Instruction, Computation]]:
    if instruction.opcode not in FUSIONS:
        return [(instruction, body)]
    parts: list[tuple[Instruction, Computation]] = []
    for called in module.called(instruction, "calls"):
        for part in called.by_id.values():
            parts += _parts(part, called, module)
    return parts


def _compute(part: Instruction, body: Computation, row: CostRow, device: Device) -> float | None:
    if row.flops is None or row.transcendentals is None:
        return None
    if part.opcode not in PRODUCTS:
        # Vector units of TPUs have no published rate. The compiler's cycles cover their work, except on tpu7x.
        rate = device.vector_flops_per_s
        if part.shapes and part.shapes[0].dtype == "float64" and rate is not None:
            rate = min(rate, device.flops_per_s.get("float64", rate))
        return 0.0 if rate is None and device.platform == "tpu" else _over(row.flops + row.transcendentals, rate)
    return _over(row.flops, device.flops_per_s.get(_peak_of(part, body, device)))


def _peak_of(part: Instruction, body: Computation, device: Device) -> str:
    operands, attributes = body.operands(part), dict(part.attributes)
    dtype = operands[0].shapes[0].dtype if operands and operands[0].shapes else ""
    return _peak(dtype, attributes.get("algorithm", ""), attributes.get("operand_precision", ""), device)


def _peak(dtype: str, algorithm: str, precision: str, device: Device) -> str:
    """Return the key of the peak of a product in the `flops_per_s` of a device; `""` if it is none of them."""
    if algorithm not in ("", "dot_f32_f32_f32"):
        return ""  # such as three products in bfloat16
    if dtype != "float32" or algorithm or "highest" in precision.lower():
        return dtype
    # JAX's default precision; TPUs then compute in bfloat16.
    return (
        "tensorfloat32" if "tensorfloat32" in device.flops_per_s else "bfloat16" if device.platform == "tpu" else dtype
    )


def peaks_of_instructions(stage: Stage, device: Device) -> set[str]:
    """Return the keys of the peaks of the products in a stage of HLO."""
    module = HloModule.of(stage)
    bodies = [] if module is None else [*module.computations.values()]
    products = ((part, body) for body in bodies for part in body.by_id.values() if part.opcode in PRODUCTS)
    return {_peak_of(part, body, device) for part, body in products}


def peaks_of_equations(equations: Iterable[Equation], device: Device) -> set[str]:
    """Return the keys of the peaks of the products in a jaxpr."""
    peaks: set[str] = set()
    for equation in equations:
        if equation.primitive in ("dot_general", "conv_general_dilated", "ragged_dot_general") and equation.inputs:
            precision = str(dict(equation.params).get("precision"))
            # The preset BF16_BF16_F32 is XLA's dot_bf16_bf16_f32.
            preset = precision.rpartition(".")[2].lower()
            algorithm = f"dot_{preset}" if "f32_" in preset or "f16_" in preset else ""
            peaks.add(_peak(equation.inputs[0].dtype, algorithm, precision, device))
    return peaks


def with_peaks(device: Device, used: Collection[str]) -> Device:
    """Return a device with only the peaks that products of a program can reach; with all if there are none."""
    peaks = {dtype: rate for dtype, rate in device.flops_per_s.items() if dtype in used}
    return replace(device, flops_per_s=peaks) if peaks else device


def _measured(part: Instruction, body: Computation, row: CostRow, device: Device) -> float | None:
    """Return the time to compute on the CPU of this machine, at the rates that were measured there."""
    if row.flops is None or row.transcendentals is None or not row.repeats:
        return None
    opcode, operands, out = part.opcode, body.operands(part), part.shapes[:1]
    if opcode in ("dot", "convolution") and row.flops and out:
        sizes = _sides(part, operands, row.flops // row.repeats)
        peaks, dtype = device.flops_per_s, operands[0].shapes[0].dtype
        if dtype not in peaks:
            return None
        rate = (
            min(_rate(device, f"dot {side}", length) for side, length in sizes.items())
            * peaks[dtype]
            / peaks["float32"]
        )
        # In a fusion XLA's own library convolves; Eigen, which does it alone, first copies the patches.
        features = _features(part, operands[1]) if opcode == "convolution" and row.bytes_accessed else 0
        patches = row.flops / (2 * sizes["n"] * features) / _rate(device, "patches", 1) if features else 0.0
        return row.flops / rate + patches
    if opcode in ("copy", "transpose") and not keeps_place(part, body):
        moved = 2 * (nbytes(out[0]) or 0)
        return row.repeats * moved / _rate(device, "transpose", moved)
    if opcode == "gather" and out:
        slices = size(out[0]) // prod(axes_of(part, "slice_sizes"))
        return row.repeats * slices / _rate(device, "gather", 1)
    amount = row.flops + row.transcendentals
    kind = opcode if opcode in device.rates else "flops" if row.flops else "power"
    return amount / _rate(device, kind, max(amount / row.repeats, 1))


def _sides(part: Instruction, operands: Sequence[Instruction], flops: int) -> dict[str, float]:
    """Return the sides m, n and k of one matrix product, or of the products that a convolution is."""
    left, right, out = (size(each.shapes[0]) for each in (*operands[:2], part))
    if part.opcode == "dot":
        batch = prod(int(operands[0].shapes[0].shape[axis]) for axis in axes_of(part, "lhs_batch_dims"))
        k = flops / (2 * out)
        return {"m": left / (batch * k), "n": right / (batch * k), "k": k}
    features = dict(part.attributes)["dim_labels"].partition("->")[2].index("f")
    return {"n": int(part.shapes[0].shape[features]), "k": flops / (2 * out)}


def _features(convolution: Instruction, kernel: Instruction) -> int:
    """Return the number of input features of a kernel."""
    labels = dict(convolution.attributes)["dim_labels"].partition("_")[2]
    return int(kernel.shapes[0].shape[labels.index("i")])


def _rate(device: Device, kind: str, size: float) -> float:
    """Return a measured rate, between the two sizes that are nearest."""
    sizes, rates = zip(*device.rates[kind], strict=True)
    return exp(interp(log(size), [log(each) for each in sizes], [log(each) for each in rates]))


def _over(amount: int | None, rate: float | None) -> float | None:
    if amount == 0:
        return 0.0
    return None if amount is None or not rate else amount / rate


def _sum(times: Iterable[float | None]) -> float | None:
    times = [*times]
    return None if None in times else sum(time for time in times if time is not None)


def _on_ticks(time_s: float | None) -> float | None:
    # Rounded up, because a time below that of the peak would be above 100 % of the roof.
    return None if time_s is None else ceil(time_s * TICKS_PER_S) / TICKS_PER_S


def _notes(device: Device) -> tuple[str, ...]:
    if device.platform == "tpu" and device.clock_hz is not None:
        source = f"cycles that the compiler estimates, at {device.clock_hz / 1e9:g} GHz; a roofline where it has none"
    else:
        start = f", plus {device.launch_s * 1e6:g} µs for each kernel" if device.launch_s else ""
        source = f"the larger of FLOPs at the peak and bytes at the memory bandwidth{start}"
    return (f"predicted_s: {source}; nothing overlaps; figures of {device}: {device.source}",)
