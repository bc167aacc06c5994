"""The cost of each HLO instruction in one run of the program, including instructions in fusions and loops."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType

from mithril_nb.cost.formulas.communication import sends_no_more
from mithril_nb.cost.formulas.rules import NO_RULE
from mithril_nb.cost.formulas.sizes import repeated, sum_of
from mithril_nb.cost.hlo.collectives import hlo_sent, pieces
from mithril_nb.cost.hlo.rules import NAMING, Work, fusion_bytes, hlo_bytes, hlo_work
from mithril_nb.cost.records import CostRow, Figures, Fusion
from mithril_nb.stages.hlo.module import Computation, HloModule, counted_rounds, rounds_of_loops
from mithril_nb.stages.records import Instruction, Stage

_ESTIMATED = re.compile(r"(\w+)=(-?\d+)")  # flops=64
_MARKS = frozenset(
    {
        *("Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape"),
        *("xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.FuncResultSharding"),
    }
)
"""Custom calls that only pass shardings to XLA's partitioner, which removes them."""


def hlo_costs(
    stage: Stage,
    trips: Mapping[str, int | None] = MappingProxyType({}),
    is_divided: Callable[[Instruction, int | None], bool] | None = None,
    devices: Callable[[Instruction], int] = lambda instruction: 1,
) -> tuple[tuple[CostRow, ...], tuple[Fusion, ...]]:
    """Return the cost of each instruction of a stage, and the fusions of the stage.

    The bytes of a fusion count for the fusion; the instructions inside it have 0 bytes. Only the most expensive branch
    of a conditional counts, as in XLA.

    Args:
        stage: The stage `"hlo_before"` or `"hlo"`.
        trips: A dict from the id of each loop equation in the jaxpr to its trip count; `None` if unknown. It is used
            for instructions without XLA's attribute for the trip count.
        is_divided: A function that takes an instruction and the bytes that it passes to a collective. It returns
            whether XLA's partitioner, which runs later, decides how much the instruction sends. `None` if no array is
            sharded.
        devices: A function that returns how many devices run an instruction, if the costs are those of all devices.
    """
    module = HloModule.of(stage)
    return ((), ()) if module is None else _Costs(module, trips, is_divided, devices).count()


_Sent = tuple[int | None, int | None]
_Run = tuple[Computation, int | None, int, int | None]
"""A called computation, and how often it counts for one run of its caller.

There are three counts: for costs, for costs with each loop counted as one iteration, and for communication. The last
one is `None` in a cheaper branch that may send more than the most expensive one.
"""


class _Costs:
    def __init__(
        self,
        module: HloModule,
        trips: Mapping[str, int | None],
        is_divided: Callable[[Instruction, int | None], bool] | None,
        devices: Callable[[Instruction], int],
    ):
        self._module, self._is_divided, self._devices = module, is_divided, devices
        self._trips = rounds_of_loops(module, trips) if trips else {}
        self._runs: dict[str, int | None] = dict.fromkeys(module.computations, 0)
        self._once: dict[str, int] = dict.fromkeys(module.computations, 0)
        self._sends: dict[str, int | None] = dict.fromkeys(module.computations, 0)
        self._fused: dict[str, str] = {}  # the fusion that contains each computation
        self._alone: dict[str, list[int | None]] = {}  # for each fusion, the bytes of its instructions without fusion
        self._counts: dict[str, int] = {}  # for each fusion, the number of its instructions that compute something
        # Without a cache, a computation that is called twice at each of 40 levels would be visited 2⁴⁰ times.
        self._sums = cache(self._sum_of_body)
        self._is_known = cache(self._is_body_known)
        self._sent = cache(self._sent_by_body)

    def count(self) -> tuple[tuple[CostRow, ...], tuple[Fusion, ...]]:
        entry = self._module.entry.name
        self._runs[entry] = self._once[entry] = self._sends[entry] = 1
        # Callers come before callees, so the number of runs is final before it is passed to callees.
        for body in reversed(self._module.callers_last()):
            for instruction in body.by_id.values():
                for callee, runs, once, sends in self._run_by(instruction, body):
                    self._runs[callee.name] = sum_of(self._runs[callee.name], repeated(runs, self._runs[body.name]))
                    # A computation may have several callers, so the counts are summed.
                    self._once[callee.name] += once * self._once[body.name]
                    self._sends[callee.name] = sum_of(self._sends[callee.name], repeated(sends, self._sends[body.name]))
                    if instruction.opcode == "fusion" or body.name in self._fused:
                        self._fused[callee.name] = self._fused.get(body.name, instruction.id)
        rows = tuple(
            self._row(instruction, body)
            for body in self._module.computations.values()
            for instruction in body.by_id.values()
        )
        return rows, tuple(
            Fusion(
                row.id,
                row.blocks,
                row.role,
                self._counts[row.id],
                repeated(sum_of(*self._alone[row.id]), row.repeats),
                row.bytes_accessed,
            )
            for row in rows
            if row.id in self._alone
        )

    def _run_by(self, instruction: Instruction, home: Computation) -> list[_Run]:
        """Return the computations that an instruction calls, and how often each counts for one run of it."""
        module = self._module
        if instruction.opcode == "while":
            body = self._rounds(instruction, home)
            # The condition runs once more than the body.
            check = None if body is None else body + 1
            return [
                *((callee, body, 1, body) for callee in module.called(instruction, "body")),
                *((callee, check, 1, check) for callee in module.called(instruction, "condition")),
            ]
        if instruction.opcode == "conditional":
            branches = module.branches(instruction)
            most_expensive = max(branches, key=lambda branch: self._weight(branch.name), default=None)
            return [
                (branch, 1, 1, 1) if branch is most_expensive else self._other_branch(branch, most_expensive)
                for branch in branches
                if most_expensive is not None
            ]
        if instruction.opcode in ("fusion", "call", "async-start"):
            return [
                (callee, 1, 1, 1) for callee in module.called(instruction, "calls", "to_apply", "called_computations")
            ]
        return []

    def _other_branch(self, branch: Computation, most_expensive: Computation) -> _Run:
        """Return a branch that is not the most expensive one: it counts 0 times, or `None` if its cost is unknown."""
        if not self._is_known(branch.name):
            return branch, None, 0, None
        return branch, 0, 0, 0 if sends_no_more(self._sent(branch.name), self._sent(most_expensive.name)) else None

    def _rounds(self, loop: Instruction, home: Computation) -> int | None:
        """Return the trip count of a loop from XLA's attribute, from the jaxpr, or from the condition of the loop.

        The result is `None` if it is unknown.
        """
        text = dict(loop.attributes).get("known_trip_count")
        trips = int(text) if text and text.isdigit() else self._trips.get(loop.id)
        return counted_rounds(loop, home, self._module) if trips is None else trips

    def _row(self, instruction: Instruction, body: Computation) -> CostRow:
        work, moved, formula = self._each(instruction, body)
        flops, transcendentals = (None, None) if work is None else (work.flops, work.transcendentals)
        payload, wire = self._sent_each(instruction, body)
        fusion = self._fused.get(body.name)
        if fusion is not None:
            if instruction.opcode != "fusion":
                self._alone.setdefault(fusion, []).append(moved)
                self._counts[fusion] = self._counts.get(fusion, 0) + (instruction.opcode not in NAMING)
            moved = 0
        runs, once, sends = self._runs[body.name], self._once[body.name], self._sends[body.name]
        runs = repeated(self._devices(instruction), runs)
        return CostRow(
            instruction.id,
            instruction.opcode,
            instruction.shares,
            instruction.role,
            repeated(flops, runs),
            repeated(transcendentals, runs),
            repeated(moved, runs),
            runs,
            formula,
            None,
            Figures(repeated(flops, once), repeated(transcendentals, once), repeated(moved, once)),
            instruction.equations,
            (),
            "",
            repeated(payload, sends),
            repeated(wire, sends),
            pieces(instruction, body),
        )

    def _each(self, instruction: Instruction, body: Computation) -> tuple[Work | None, int | None, str]:
        """Return work, bytes and formula of one run of an instruction, without the computations that it calls."""
        if instruction.opcode == "fusion":
            inner = self._module.called(instruction, "calls")
            return Work(0), sum_of(*(fusion_bytes(callee) for callee in inner)), "its body"
        if instruction.opcode in ("call", "while", "conditional", "async-start", "async-update", "async-done"):
            return Work(0), 0, "its body"
        if instruction.opcode == "custom-call":
            target = dict(instruction.attributes).get("custom_call_target", "").strip('"')
            # XLA counts -1 for these, its code for unknown, but nothing runs for them.
            if target in _MARKS:
                return Work(0), 0, "0: alias"
            estimate = dict(_ESTIMATED.findall(dict(instruction.attributes).get("cost_estimate", "")))
            if not estimate:
                # The name depends on the kind of callback and the platform: `xla_buffer_python_cpu_callback`.
                is_python = "python" in target and "callback" in target
                return None, None, f"{NO_RULE}: {'Python on the host' if is_python else 'a library call'}"
            work = Work(int(estimate.get("flops", 0)), int(estimate.get("transcendentals", 0)))
            return work, int(estimate.get("bytes_accessed", 0)), "its cost_estimate"
        operands = body.operands(instruction)

        def combiner(attribute: str) -> Work:
            called = self._module.called(instruction, attribute)
            return self._sums(called[0].name) if called else Work(1)

        work, formula = hlo_work(instruction, operands, combiner)
        return work, hlo_bytes(instruction, body), formula

    def _weight(self, name: str) -> int:
        work = self._sums(name)
        return work.flops + work.transcendentals

    def _sum_of_body(self, name: str) -> Work:
        """Return the work of one run of a computation. Unknown work counts 0."""
        body = self._module.computations[name]
        flops = transcendentals = 0
        for instruction in body.by_id.values():
            work, _, _ = self._each(instruction, body)
            flops += work.flops if work is not None else 0
            transcendentals += work.transcendentals if work is not None else 0
            for callee, runs, *_ in self._run_by(instruction, body):
                # A loop with an unknown trip count counts as one iteration, as in XLA.
                inner, times = self._sums(callee.name), 1 if runs is None else runs
                flops += times * inner.flops
                transcendentals += times * inner.transcendentals
        return Work(flops, transcendentals)

    def _is_body_known(self, name: str) -> bool:
        """Return whether the work of one run of a computation is fully known."""
        body = self._module.computations[name]
        for instruction in body.by_id.values():
            if self._each(instruction, body)[0] is None:
                return False
            for callee, runs, *_ in self._run_by(instruction, body):
                if runs != 0 and (runs is None or not self._is_known(callee.name)):
                    return False
        return True

    def _sent_each(self, instruction: Instruction, body: Computation) -> _Sent:
        payload, wire = hlo_sent(instruction, body, self._module)
        is_open = self._is_divided is not None and self._is_divided(instruction, payload)
        return (None, None) if is_open else (payload, wire)

    def _sent_by_body(self, name: str) -> _Sent:
        """Return the payload and wire bytes of one run of a computation."""
        body = self._module.computations[name]
        payloads: list[int | None] = []
        wires: list[int | None] = []
        for instruction in body.by_id.values():
            sums = [(self._sent_each(instruction, body), 1)]
            sums += [(self._sent(callee.name), sends) for callee, _, _, sends in self._run_by(instruction, body)]
            payloads += [repeated(payload, sends) for (payload, _), sends in sums]
            wires += [repeated(wire, sends) for (_, wire), sends in sums]
        return sum_of(*payloads), sum_of(*wires)
