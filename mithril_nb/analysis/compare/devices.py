"""One program, or several, on several devices: kernels, costs, memory and predicted time of each, by block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import jax

from mithril_nb.cost.costs import Cost
from mithril_nb.cost.counting import PREDICTED
from mithril_nb.cost.hlo.instruction_costs import MARKS, NAMING
from mithril_nb.cost.memory.use import MemoryUse, best_memory_of
from mithril_nb.cost.predicted import products_at_peak, within_others
from mithril_nb.display import Shown, draw
from mithril_nb.errors import UnknownOptionError
from mithril_nb.hardware import Device
from mithril_nb.inspection import Inspection
from mithril_nb.stages.hlo.module import HloModule

_GROUPS = {"fusion": "fusions", "custom-call": "library_calls"}
_COLLECTIVES = ("all-", "reduce-scatter", "collective-", "ragged-all-to-all")


class DeviceComparison(Shown):
    """Programs on several devices, side by side; `ml.compare` returns it for inspections on different devices.

    The programs are compiled on first use. A figure that is not known is `None`.

    Attributes:
        programs: The inspections.
        names: The device of each, such as `"h100"` or `"cpu"`; with a number if several have the same.
    """

    def __init__(self, programs: Sequence[Inspection]):
        self.programs = tuple(programs)
        devices = [device_name(program) for program in programs]
        seen = Counter[str]()
        names: list[str] = []
        for device in devices:
            seen[device] += 1
            names.append(f"{device} ({seen[device]})" if devices.count(device) > 1 else device)
        self.names = tuple(names)

    @cached_property
    def unavailable(self) -> Mapping[str, str]:
        """The reason why a program does not compile for its device, by name."""
        stages = {name: program.stage("hlo") for name, program in zip(self.names, self.programs, strict=True)}
        return {name: stage.unavailable for name, stage in stages.items() if stage.unavailable is not None}

    @cached_property
    def costs(self) -> Mapping[str, Cost]:
        """The costs of the compiled programs by name, with `predicted_s` where the figures of the device are known."""
        costs: dict[str, Cost] = {}
        for name, program in zip(self.names, self.programs, strict=True):
            if name not in self.unavailable:
                # Of the CPU of this machine, predictions need measurements, and nothing runs here.
                costs[name] = program.cost(PREDICTED if isinstance(program.device, Device) else "compiled")
        return costs

    @cached_property
    def memories(self) -> Mapping[str, MemoryUse]:
        """The memory of each program by name: of a program that does not compile, an estimate."""
        return {name: best_memory_of(program) for name, program in zip(self.names, self.programs, strict=True)}

    @cached_property
    def figures(self) -> Mapping[str, Mapping[str, Any]]:
        """The figures of each program by name, for one device of a mesh.

        - `instructions`, `fusions`, `library_calls`, `collectives`: instructions that run on their own, and collectives
          that are part of them;
        - `flops`, `bytes_accessed`, `wire_bytes` and the other figures of the compiled program, with the numbers of
          instructions in which they are unknown;
        - `peak_bytes`, `capacity_bytes`, `fits`: as in `inspection.memory`;
        - `predicted_s`: as in `inspection.cost("predicted")`;
        - `at_peak`: the time that products and convolutions would take at the peak of the device, divided by
          `predicted_s`: at most this part of the peak is reached;
        - `at_peak_bound`: `"≤"` if `at_peak` leaves out times that are unknown, `"≈"` if it leaves out products, too;
          else `""`.
        """
        return {name: self._figures(name, program) for name, program in zip(self.names, self.programs, strict=True)}

    def _figures(self, name: str, program: Inspection) -> dict[str, Any]:
        memory = self.memories[name]
        figures: dict[str, Any] = dict.fromkeys((*_COUNTS, *_FIGURES, "at_peak"))
        figures["at_peak_bound"] = ""
        if name in self.costs:
            stage, cost = program.stage("hlo"), self.costs[name]
            figures |= _counts(HloModule.of(stage))
            figures |= {**cost.total.to_dict(), **{key: getattr(cost.total, key) for key in _FIGURES}}
            if isinstance(program.device, Device) and cost.total.predicted_s:
                products_s, is_known = products_at_peak(cost.rows, stage, program.device)
                if products_s or is_known:
                    figures["at_peak"] = products_s / cost.total.predicted_s
                    figures["at_peak_bound"] = "≈" if not is_known else "≤" if cost.total.unknown_predicted else ""
        compiled = memory.source == "compiled"
        return {
            **figures,
            "peak_bytes": memory.peak_bytes if compiled else None,
            "capacity_bytes": memory.capacity_bytes,
            "fits": memory.fits,
        }

    @cached_property
    def blocks(self) -> Mapping[str, Mapping[str, Mapping[str, Any] | None]]:
        """The costs of each block by path, then by name of the program; `""` is what belongs to no block.

        A cost is `None` if no instruction of the program belongs to the block.
        """
        paths = dict.fromkeys(chain.from_iterable(cost.by_block for cost in self.costs.values()))
        rows = {path: {name: cost.by_block.get(path) for name, cost in self.costs.items()} for path in paths}
        rows[""] = {name: cost.unattributed for name, cost in self.costs.items()}
        return {
            path: {name: None if part is None else part.to_dict() for name, part in parts.items()}
            for path, parts in rows.items()
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the figures, the costs by block, and why programs do not compile, as plain data."""
        return {
            "programs": {
                name: {"program": program.name, **self.figures[name], "unavailable": self.unavailable.get(name)}
                for name, program in zip(self.names, self.programs, strict=True)
            },
            "blocks": {path: dict(parts) for path, parts in self.blocks.items()},
            "notes": {name: list(cost.notes) for name, cost in self.costs.items()},
        }

    def to_html(self, path: str | Path | None = None, stage: str = "hlo") -> str:
        """Return an HTML page with the tables, and a stage of all programs side by side; a block is lit in all.

        Args:
            path: The file to write; by default the page is only returned.
            stage: Name of the stage.
        """
        if any(stage not in program.every_stage for program in self.programs):
            raise UnknownOptionError(f"no stage {stage!r}.", (("stages", ", ".join(self.programs[0].every_stage)),))
        return draw(self, "page", path=path, stage=stage)

    def __repr__(self) -> str:
        return f"DeviceComparison({', '.join(self.names)})"


_COUNTS = ("instructions", "fusions", "library_calls", "collectives")
_FIGURES = ("flops", "bytes_accessed", "wire_bytes", "predicted_s")


def device_name(program: Inspection) -> str:
    """Return the name of a program's device: `"h100"`, or the platform of this machine's device, such as `"cpu"`."""
    device = program.device
    if isinstance(device, Device):
        return str(device)
    return jax.default_backend() if device is None else str(device.platform)


def _counts(module: HloModule | None) -> dict[str, int]:
    if module is None:
        return {}
    counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
    inside = within_others(module)
    for body in module.computations.values():
        for instruction in body.by_id.values():
            opcode = instruction.opcode
            if body.name in inside:  # TPUs fuse a collective with what follows
                counts["collectives"] += opcode.startswith(_COLLECTIVES) and not opcode.endswith("-done")
                continue
            # An asynchronous operation counts once, at its start. Calls and loops do not count: their bodies do.
            if opcode in NAMING or opcode.endswith("-done") or opcode in ("call", "while", "conditional"):
                continue
            if dict(instruction.attributes).get("custom_call_target", "").strip('"') in MARKS:
                continue
            counts["instructions"] += 1
            group = "collectives" if opcode.startswith(_COLLECTIVES) else _GROUPS.get(opcode)
            if group is not None:
                counts[group] += 1
    return counts
