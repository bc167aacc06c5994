"""`ml.explain`: what a line of any stage computes, where it comes from, what became of it, its cost, what is cheaper.

Each clause is made from one datum of the rooms below, and names it. A clause whose datum is unknown is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, takewhile
from typing import Literal

from mithril_nb.cost.counting import cost_of
from mithril_nb.cost.hlo.instruction_costs import FUSIONS, groups_of
from mithril_nb.cost.records import CostRow
from mithril_nb.display import Shown
from mithril_nb.errors import MithrilError, StageUnavailableError
from mithril_nb.hardware import Device
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.finding import COST_SOURCES
from mithril_nb.stages.hlo.module import Computation, HloModule
from mithril_nb.stages.hlo.optimized import TRIVIAL
from mithril_nb.stages.hlo.stablehlo import result_specs
from mithril_nb.stages.instruction_history import STAGES_WITH_HISTORY
from mithril_nb.stages.program_stages import known_equations
from mithril_nb.stages.records import ROLES, Equation, Instruction, format_source
from mithril_nb.stages.xla.outcomes import HELPERS
from mithril_nb.stages.xla.passes import Outcome
from mithril_nb.teach.explain_cheaper import cheaper_ways
from mithril_nb.teach.explain_help import line_help, op_help
from mithril_nb.teach.explain_operations import Operation, array, describe, result
from mithril_nb.teach.fates import Fates

Kind = Literal["what", "from", "fate", "cost", "cheaper"]
KINDS: tuple[Kind, ...] = ("what", "from", "fate", "cost", "cheaper")
_NOTES = {
    "0: alias": "It computes nothing and moves no data.",
    "0: moves data": "It has no FLOPs: it only reads and writes data.",
    "its body": "Its FLOPs are those of the instructions inside.",
    "n": "Counting rule: one FLOP for each element.",
    "n: as for two devices": "Counting rule: one FLOP for each element, as for two devices.",
    "n transcendentals": "Counting rule: one call for each element.",
}
_INSIDE = "It has no FLOPs; only its fusion reads and writes memory."
# Operations that state where an array is.
_RESHARDING = frozenset({"sharding_constraint", "reshard", "device_put"})
# Calls, which XLA inlines.
_CALLS = ("jit", "pjit", "closed_call", "core_call")
# Custom calls that only the compiler reads.
_MARKS = {
    r"Sharding|xla\.sdy\.\w*Sharding": "Declares how an array is split over devices, for the compiler.",
    r"SPMD\w+Shape|xla\.sdy\.\w+Shape": "Marks where an array of all devices becomes the part of each, or the reverse.",
    r"AllocateBuffer": "Reserves memory.",
    r"ConcatBitcast": "An operation inside the compiler.",
}
# For example: array<i64: 1, 2>, dense<[[0, 0]]>, [1] x [0] or 3, after a name in StableHLO
_NESTED = r"\[(?:[^\[\]]|\[[^\[\]]*\])*\]"
_ATTRIBUTE = re.compile(rf"(\w+) = (?:array<\w+(?:: ([^>]*))?>|dense<([^>]*)>|({_NESTED}(?: x \[[^\[\]]*\])?)|(-?\d+))")
# Opcodes whose axes are stated for each instruction inside a fusion.
_WITH_AXES = ("dot", "reduce", "convolution", "scatter", "gather")
_WITH_SIDES = frozenset(
    "add sub mul div rem max min pow atan2 and or xor eq ne lt le gt ge nextafter shift_left shift_right_logical "
    "shift_right_arithmetic".split()
)
# Passes that only change names.
_RENAMING = re.compile(r"^(rename|sanitize)")
# Maximum number of blocks, or operations of a fusion that are listed.
_MOST = 4

_PARTS = {"forward": "forward pass", "backward": "backward pass", "update": "update of the parameters"}


@dataclass(frozen=True)
class Clause:
    """One statement about a line.

    Attributes:
        kind: `"what"` the line computes, `"from"` which line of Python, block and transform it comes, its `"fate"` in
            the compiler, its `"cost"`, or what would be `"cheaper"`.
        text: The statement.
        source: The datum that the statement is made from.
    """

    kind: Kind
    text: str
    source: str


@dataclass(frozen=True)
class Explanation(Shown):
    """The statements about one line of a stage, in the order of `KINDS`. `explanation["cost"]` is the text of one kind.

    Attributes:
        stage: Name of the stage.
        id: Id of the equation, op or instruction.
        code: Its first line in the text of the stage.
        clauses: The statements.
    """

    stage: str
    id: str
    code: str
    clauses: tuple[Clause, ...]

    def __getitem__(self, kind: Kind) -> str:
        """Return the statements of one kind as one text; `""` if there are none."""
        return " ".join(clause.text for clause in self.clauses if clause.kind == kind)


def explain(program: Inspection, stage: str, id: str | None = None, *, line: int | None = None) -> Explanation:
    """Explain a line of a stage: what it computes, where it comes from, its fate, its cost, and what is cheaper.

    Compiles the program, for the fate. Statements for which data is missing are left out.

    Args:
        program: The result of `ml.inspect`.
        stage: One of the stages in `every_stage` of the inspection.
        id: Id of the equation, op or instruction, such as `"3"` in the jaxpr or `"dot.3"` in HLO.
        line: Instead of `id`: a line of the stage's text, counted from 1.

    Raises:
        StageUnavailableError: The stage has no text, or no such instruction.

    Examples:
        >>> import jax.numpy as jnp, mithril_nb as ml
        >>> p = ml.inspect(lambda a, b, x: (a @ b) @ x, jnp.ones((8, 9)), jnp.ones((9, 8)), jnp.ones((8,)))
        >>> explanation = ml.explain(p, "jaxpr", "0")
        >>> print(explanation["what"].partition(". ")[2])
        The result is (8, 8) float32: 576 multiply-adds.
        >>> print(explanation["cheaper"].partition(", both")[2])
         products need 288 FLOPs instead of 1,280; the result is the same up to rounding.
    """
    return Explainer(program).explain(stage, id, line)


class Explainer:
    """Explains lines of one program, and keeps what several lines need.

    Args:
        program: The program.
        has_fate: If false, explanations lack the fate in XLA's passes, and nothing is compiled for it.
    """

    def __init__(self, program: Inspection, *, has_fate: bool = True):
        self._program, self._has_fate = program, has_fate
        self._equations = {equation.id: equation for equation in known_equations(program)}
        self._modules: dict[str, Mapping[str, tuple[HloModule, Computation]]] = {}
        self._rows: dict[str, tuple[Mapping[str, CostRow], int | None]] = {}

    def explain(self, stage: str, id: str | None, line: int | None = None) -> Explanation:
        """Return the explanation of an instruction; see `explain`."""
        instructions = self._program.stage(stage).instructions
        if id is None and line is not None:
            around = [each for each in instructions if each.line <= line < each.line + each.lines]
            instruction = max(around, key=lambda each: each.line, default=None)
        else:
            instruction = next((each for each in instructions if each.id == id), None)
        if instruction is None:
            name = f"line {line}" if id is None else f"instruction {id!r}"
            reason = self._program.stage(stage).unavailable
            raise StageUnavailableError(
                f"stage {stage!r} of program {self._program.name!r} has no {name}.",
                (("reason", reason),) if reason else (),
                f'ml.explain(p, "{stage}", p.stage("{stage}").instructions[0].id)',
            )
        return self.of(stage, instruction)

    def of(self, stage: str, instruction: Instruction) -> Explanation:
        """Return the explanation of an instruction of a stage."""
        code = self._lines(stage)[instruction.line - 1].strip()
        parts: tuple[tuple[Kind, Iterator[tuple[str, str]]], ...] = (
            ("what", self._what(stage, instruction, code)),
            ("from", self._origin(stage, instruction)),
            ("fate", self._fate(stage, instruction)),
            ("cost", self._cost(stage, instruction)),
            ("cheaper", self._cheaper(instruction)),
        )
        clauses = (Clause(kind, text, source) for kind, pairs in parts for text, source in pairs if text)
        return Explanation(stage, instruction.id, code, tuple(clauses))

    def _lines(self, stage: str) -> Sequence[str]:
        text = self._program.stage(stage).text
        if self._last[0] is not text:
            self._last = text, text.split("\n")
        return self._last[1]

    _last: tuple[str, Sequence[str]] = ("", ())

    @cached_property
    def _arguments(self) -> dict[str, str]:
        return {f"arg{at}": array.name for at, array in enumerate(self._program.inputs)}

    # What it computes

    def _what(self, stage: str, instruction: Instruction, code: str) -> Iterator[tuple[str, str]]:
        opcode, of = instruction.opcode, "attributes of the instruction"
        if stage == "launches" and (launched := self._home("hlo", instruction)):  # has the id of its HLO instruction
            yield from self._what("hlo", launched[1].by_id[instruction.id], code)
        home = self._home(stage, instruction)
        own = next(iter(instruction.equations), "")
        if opcode == "parameter":
            is_argument = own in self._arguments and (home is None or home[1].is_entry)
            name = f"Argument {self._arguments[own]} of the program" if is_argument else "An input of this computation"
            yield f"{name}: {', '.join(map(array, instruction.shapes))}.", "inputs of the program"
            return
        op = self._operation(stage, instruction, home, code)
        if stage == "asm" and (load := re.search(r";\s*(?:@!?%\w+\s+)?(ld\.\S+)", code)):
            opcode = load[1]  # inline PTX clears its registers before it loads them
        attributes = dict(instruction.attributes)
        target = attributes.get("custom_call_target") or "".join(re.findall(r"custom_call (@\S+?)\(", code))
        mark = next((text for names, text in _MARKS.items() if re.fullmatch(names, target.strip('"@'))), "")
        if opcode in FUSIONS and home is not None:
            yield from self._fused(instruction, *home)
        elif mark:
            yield mark, "target of the custom call"
        elif op is not None and (text := describe(op)):
            yield text, "params of the equation" if stage == "jaxpr" else of
        elif text := op_help(stage, opcode):
            yield text, "help text of the operation"
            if instruction.shapes:
                yield result(op or Operation("", (), instruction.shapes, {})), "shapes of the results"
        constant = (
            re.search(r"constant\(([^{}()]+)\)|dense<([^<>\[\]x\"]{1,40})>", code) if "constant" in opcode else None
        )
        if constant:
            yield f"The value is {constant[1] or constant[2]}.", "text of the line"
        equation = self._equations.get(instruction.id) if stage == "jaxpr" else None
        has_sides = equation is not None and equation.primitive in _WITH_SIDES
        for at, value in enumerate(equation.constants if equation is not None and has_sides else ()):
            if isinstance(value, float) and equation is not None:
                where = " in every element" if equation.inputs[at].shape else ""
                number = f"{value:.7g}" if "float" in equation.inputs[at].dtype else f"{value:.0f}"
                yield f"The {('left', 'right')[at]} operand is {number}{where}.", "constants of the equation"
        groups = groups_of(attributes.get("replica_groups", ""))
        # Other collectives list replicas, of which each may run on several devices.
        if groups and attributes.get("use_global_device_ids") == "true" and len({*map(len, groups)}) == 1:
            yield f"Groups of {len(groups[0])} devices exchange data; there are {len(groups)} groups.", of
        if target:
            yield f"{'Its target is' if mark else 'It calls'} {target}.", of
        for text in line_help(stage, code):
            yield text, "text of the line"

    def _home(self, stage: str, instruction: Instruction) -> tuple[HloModule, Computation] | None:
        if stage not in ("hlo", "hlo_before"):
            return None
        if stage not in self._modules:
            module = HloModule.of(self._program.stage(stage))
            bodies = [] if module is None else module.computations.values()
            self._modules[stage] = {id: (module, body) for body in bodies for id in body.by_id} if module else {}
        return self._modules[stage].get(instruction.id)

    def _operation(
        self, stage: str, instruction: Instruction, home: tuple[HloModule, Computation] | None, code: str
    ) -> Operation | None:
        """Return an equation or instruction in the form of all stages; `None` if its operands are unknown."""
        name = instruction.opcode.rpartition(".")[2].replace("-", "_")
        if stage == "jaxpr" and (equation := self._equations.get(instruction.id)):
            kind = "write" if name == "scatter" else name.rpartition("_")[2]
            combiner = {"sum": "add", "max": "maximum", "min": "minimum", "prod": "multiply", "mul": "multiply"}.get(
                kind, kind
            )
            trips = {key: value for key, value in instruction.attributes if key == "known_trip_count"}
            return Operation(name, equation.inputs, equation.outputs, {**equation.param, **trips}, combiner)
        if stage == "stablehlo":
            return self._stablehlo(name, instruction, code)
        if home is None:
            return None
        operands = home[1].operands(instruction)
        if len(operands) != len(instruction.operands):
            return None
        attributes = dict(instruction.attributes)
        names = {"size": "window_dimensions", "stride": "window_strides", "pad": "padding"}
        window: list[tuple[str, str]] = re.findall(r"(\w+)=([^\s{}]+)", attributes.get("window", ""))
        attributes |= {names.get(key, key): re.sub("[x_]", ",", value) for key, value in window}
        specs = tuple(spec for operand in operands for spec in operand.shapes[:1])
        return Operation(
            name, specs, instruction.shapes, attributes, _combiner(home[0].called(instruction, "to_apply"))
        )

    def _stablehlo(self, name: str, instruction: Instruction, code: str) -> Operation | None:
        lines = self._lines("stablehlo")[instruction.line - 1 : instruction.line + instruction.lines - 1]
        head = code.partition(f"{instruction.opcode}")[2]
        typed = lines[-1] if "({" in code[-2:] else head
        types = typed.rpartition(" : ")[2]
        before, arrow, _ = types.partition(" -> ")
        inputs, outputs = result_specs(f" : {before}"), result_specs(f" : {types}")
        if not arrow:
            count = len(re.findall(r"%\w+", head.partition(" : ")[0]))
            inputs = (*inputs[:1], *inputs[1:] * 2) if name == "select" else inputs[:1] * count
            outputs = outputs[-1:] if name == "select" else outputs
        attributes = {key: next(filter(None, values), "") for key, *values in _ATTRIBUTE.findall(head)}
        if labels := re.search(r"dim_numbers = (\S+(?:, \w+\]?\S*)*)->", head):
            attributes["dim_labels"] = f"{re.sub('[^a-wyz0-9x]', '', labels[1]).replace('x', '_')}->"
        if part := re.match(r" %\S+ \[([^\]]*)\]", head):
            attributes["slice"] = part[1]
        for key, pattern in (
            ("direction", " +([A-Z]{2}),"),
            ("to_apply", r" (@[^\s(]+)"),
            ("type", " type = ([A-Z]+)"),
        ):
            if match := re.search(pattern, head):
                attributes[key] = match[1]
        if "padding" in attributes and re.fullmatch(r"-?\d+", attributes["padding"]):
            attributes["padding"] = ",".join([attributes["padding"]] * 2 * len(inputs[0].shape)) if inputs else ""
        attributes |= {key: value for key, value in instruction.attributes if key == "known_trip_count"}
        inside = [re.findall(r"(?:stablehlo\.)(\w+)", line) for line in lines[2:-1]]
        ops = [names[0] for names in inside if names and names[0] != "return"]
        applied = re.findall(r" applies stablehlo\.(\w+)", head)
        return Operation(name, inputs, outputs, attributes, (applied or (ops if len(ops) == 1 else None) or [""])[0])

    def _fused(self, fusion: Instruction, module: HloModule, home: Computation) -> Iterator[tuple[str, str]]:
        bodies = module.called(fusion, "calls")
        inside = [each for body in bodies for each in body.by_id.values() if each.opcode not in TRIVIAL]
        counts = Counter(each.opcode for each in inside)
        names = ", ".join(name if count == 1 else f"{count} × {name}" for name, count in counts.most_common())
        inputs = [array(spec) for operand in home.operands(fusion) for spec in operand.shapes[:1]]
        operands = f"Its operands: {', '.join(inputs[:8])}{', …' if len(inputs) > 8 else ''}. " if inputs else ""
        many = "one operation" if len(inside) == 1 else f"{len(inside)} operations together"
        does = f"Computes {many}: {names}." if inside else "Computes nothing: it only gives its operands another form."
        yield f"{does} {operands}{result(Operation('', (), fusion.shapes, {}))}", "instructions of the fusion"
        for each in [each for each in inside if each.opcode in _WITH_AXES][:_MOST]:
            op = self._operation("hlo", each, (module, bodies[0]), "")
            if op is not None and (text := describe(op)):
                yield f"Its {each.opcode} {each.id}: {text}", "attributes of an instruction of the fusion"
        blocks = Counter(each.shares[0][0] for each in inside if len(each.shares) == 1 and each.shares[0][0])
        if len(blocks) > 1:
            yield (
                f"Operations by block: {_first([f'{block} {count}' for block, count in blocks.most_common()])}.",
                "blocks of the instructions",
            )

    # Where it comes from

    def _origin(self, stage: str, instruction: Instruction) -> Iterator[tuple[str, str]]:
        equations = [self._equations[id] for id in instruction.equations if id in self._equations]
        # An instruction without a link of its own has the equations of its neighbours, or of its whole kernel.
        of = (
            ""
            if stage == "jaxpr"
            else {"inferred": " of its neighbours", "kernel": " of its kernel"}.get(instruction.origin or "", "")
        )
        lines = [format_source(line) for line in (instruction.source or instruction.library_source)]
        if lines:
            library = "" if instruction.source else " of a library"
            yield f"Python{library}{of}: {_first(lines)}.", "traceback of its equations"
        if stage != "jaxpr" and equations:
            listed = _first([f"{equation.id} ({equation.primitive})" for equation in equations])
            yield f"Equation{'s' * (len(equations) > 1)}{of}: {listed}.", "link"
        # A loop has the transforms of its body, too, so only what is around all equations counts.
        levels = zip(*(equation.transforms for equation in equations if not of), strict=False)
        around = [names[0] for names in takewhile(lambda names: len({*names}) == 1, levels)]
        if around:
            yield f"It is inside of {', inside of '.join(reversed(around))}.", "transforms of its equations"
        shares = [(path, share) for path, share in instruction.shares if path and share >= 0.01]
        names = [path if share == 1 else f"{path} {min(share, 0.99):.0%}" for path, share in shares]
        if names:
            how = of or (", inferred from the data flow" if instruction.origin == "inferred" else "")
            yield f"Block{'s' * (len(names) > 1)}{how}: {_first(names)}.", "blocks of the instruction"
        # Not the role of most of its equations alone: two may have equal parts.
        roles = {equation.role for equation in equations} or {instruction.role}
        names = [_PARTS[role] for role in ROLES if role in roles]
        if instruction.role and names:
            whose = f"The work{of}" if of else "It"
            yield f"{whose} belongs to the {' and the '.join(names)}.", "roles of its equations"

    # What became of it

    def _fate(self, stage: str, instruction: Instruction) -> Iterator[tuple[str, str]]:
        equation = self._equations.get(instruction.id) if stage == "jaxpr" else None
        if equation is not None and not equation.is_used:
            yield (
                "No result of the program needs it, so JAX drops it when it lowers the program.",
                "uses of its results",
            )
            return
        if stage not in STAGES_WITH_HISTORY or not self._has_fate:
            return
        try:
            history = self._program.who_changed(stage, instruction.id)
        except MithrilError:  # the program does not compile, or its passes are unknown
            return
        if stage == "hlo":
            by = history.appeared
            if by is not None and _RENAMING.search(by.name):  # an earlier pass made it, under another name
                return
            first = (
                f"Under this name, it first appears in pass {by.number}, {by.name}."
                if by
                else "It is there from the first pass to the last."
            )
            yield first, "who_changed"
            return
        if (equation := self._alone(stage, instruction)) is None:
            return
        if equation.is_call:  # the body of a loop or of another transform is a call, too, but it is not the equation
            inlined = [outcome for outcome in history.outcomes if outcome.became == "inlined"]
            outcome = inlined[0] if inlined and equation.primitive in _CALLS else None
        else:
            outcome = self._fates.certain(equation, history.outcomes)
        if outcome is not None:
            text = self._fate_of(equation, replace(outcome, instruction=""))
            yield f"{text[0].upper()}{text[1:]}.", "who_changed, and the optimized HLO"

    def _fate_of(self, equation: Equation, outcome: Outcome) -> str:
        """Return the fate as text; an operation may be in several fusions, each with a copy or a part of it."""
        others = [] if outcome.became != "fused" else [*self._fates.fusions(equation)]
        if len(others) < 2:
            return str(outcome)
        if not self._fates.is_copied(equation):
            return f"fused; parts or copies of it are in {_first(others)}"
        others.remove(outcome.into)
        copies = "a copy of it is" if len(others) == 1 else "copies of it are"
        return f"{outcome}; {copies} in {_first(others)}"

    def _alone(self, stage: str, instruction: Instruction) -> Equation | None:
        """Return the equation of an instruction, if this instruction does all the work of the equation."""
        if stage == "jaxpr":
            return self._equations.get(instruction.id)
        if len(instruction.equations) != 1 or instruction.opcode.rpartition(".")[2] in HELPERS | {"return"}:
            return None
        others = [
            each for each in self._program.stage(stage).instructions if instruction.equations[0] in each.equations
        ]
        return self._equations.get(instruction.equations[0]) if others == [instruction] else None

    @cached_property
    def _fates(self) -> Fates:
        return Fates(self._program)

    # Its cost

    def _cost(self, stage: str, instruction: Instruction) -> Iterator[tuple[str, str]]:
        rows, total = self._rows_of(stage)
        row, of = rows.get(instruction.id), ""
        ids = [id for id in instruction.equations if id in self._equations]
        if row is None and stage == "stablehlo" and len(ids) == 1:
            name, primitive = instruction.opcode.rpartition(".")[2], self._equations[ids[0]].primitive
            # Not for ops that only prepare operands, such as the broadcast of a number.
            if primitive.startswith(name) or op_help(stage, name) == op_help("jaxpr", primitive):
                rows, total = self._rows_of("jaxpr")
                row, of = rows.get(ids[0]), f"Its equation {ids[0]} ({primitive}): "
        if row is None or instruction.opcode in ("parameter", "func.func"):
            return
        source = f"cost({COST_SOURCES.get(stage, 'analytic')!r}), row {row.id}"
        if row.repeats == 0:  # in a branch that is cheaper than another, or in a function that combines two elements
            return
        counts = [(row.flops, "FLOP", "s"), (row.transcendentals, "call", "s of exp, log, sqrt or the like")]
        counts.append((row.bytes_accessed, "byte", "s read and written"))
        texts = [f"{number:,} {unit}{rest[number == 1 :]}" for number, unit, rest in counts if number]
        share = row.flops / total if row.flops and total else 0
        texts += [f"{share:.0%} of all FLOPs of the program"] if share >= 0.01 else []
        texts += [f"FLOPs unknown ({row.unknown})"] if row.flops is None else []
        # Before the compiler divides the program, the costs of a `shard_map` are those of all devices.
        on = " on all devices" if stage != "hlo" and "shard_map" in instruction.transforms else ""
        runs = f"in {row.repeats:,} runs{on} together: " if row.repeats not in (None, 1) else ""
        runs += "if its branch runs: " if "cond" in instruction.transforms else ""
        if texts:
            text = f"{of}{runs}{', '.join(texts)}."
            yield text[0].upper() + text[1:], source
        if row.formula and row.flops is not None:
            letters = ", ".join(f"{letter}={value}" for letter, value in row.letters)
            rule = f"Counting rule: {row.formula}{f'; {letters}' if letters else ''}."
            free = f"No FLOPs count: {row.formula[3:]}." if row.formula.startswith("0: ") else ""
            moves = row.formula == "0: alias" and row.bytes_accessed  # a tuple, or axes that are permuted
            note = _NOTES.get(row.formula)
            if row.formula == "0: moves data" and row.bytes_accessed == 0:  # or a transpose that keeps all bytes
                note = _INSIDE if stage == "hlo" and row.id in self._fates.in_fusions else _NOTES["0: alias"]
            target = dict(instruction.attributes).get("custom_call_target", "")
            if instruction.opcode.rpartition(".")[2] in _RESHARDING or "Sharding" in target:
                note = "It has no FLOPs; the compiler may add communication between devices for it."
            yield "" if moves else note or free or rule, "rule of the cost"
        if row.wire_bytes:
            yield f"Each device sends {row.wire_bytes:,} bytes to others.", source
        if row.predicted_s:
            limit = f", limited by {row.limited_by}" if row.limited_by else ""
            time = f"{row.predicted_s * 1e6:.3g}" if row.predicted_s > 1e-8 else "less than 0.01"
            of = "" if row.repeats in (None, 1) else f" of {row.repeats:,} runs together"
            yield f"Predicted time{of}: {time} µs{limit}.", "cost('predicted')"

    def _rows_of(self, stage: str) -> tuple[Mapping[str, CostRow], int | None]:
        if stage not in self._rows:
            self._rows[stage] = {}, None
            source = (
                "predicted" if stage == "hlo" and isinstance(self._program.device, Device) else COST_SOURCES.get(stage)
            )
            try:
                cost = cost_of(self._program, source) if source else None
            except MithrilError:  # the program cannot be compiled
                cost = None
            if cost is not None:
                total = cost.total
                self._rows[stage] = {row.id: row for row in cost.rows}, None if total.unknown else total.flops
        return self._rows[stage]

    # What is cheaper

    def _cheaper(self, instruction: Instruction) -> Iterator[tuple[str, str]]:
        ids = [id for id in instruction.equations if id in self._equations]
        equation = self._equations.get(instruction.id) or (self._equations[ids[0]] if len(ids) == 1 else None)
        if equation is not None and equation.is_used:
            of = "" if equation.id == instruction.id else f"Of equation {equation.id}: "
            for text in cheaper_ways(self._program, equation, self._equations):
                yield f"{of}{text}", "params and uses of the equations"


def _first(parts: Sequence[str]) -> str:
    """Return the first parts as a list, and the number of the others."""
    more = f" and {len(parts) - _MOST:,} more" if len(parts) > _MOST else ""
    return f"{', '.join(parts[:_MOST])}{more}"


def _combiner(called: Sequence[Computation]) -> str:
    """Return the only operation of a computation that combines two elements; `""` if it has several, or is unknown."""
    ops = [
        each.opcode
        for each in chain.from_iterable(body.by_id.values() for body in called[:1])
        if each.opcode != "parameter"
    ]
    return ops[0] if len(ops) == 1 else "write" if called and not ops else ""
