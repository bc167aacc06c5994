"""Measure how much of each stage is attributed, and how much of that is right, on the large programs of the corpus.

The checks do not use tags. They identify a matrix product or convolution by the element counts of its operands and its
result. A forward product and those of its derivative have the same three counts, but another one is the result's. The
forward program, which contains nothing else, shows which of them are forward.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from json import dumps, loads
from math import prod
from typing import Any

from rich.table import Table

from benchmarks.corpus import corpus
from benchmarks.corpus.modules import Make, steps
from benchmarks.corpus.own_widths import by_width, own_widths
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.hlo.optimized import CALLING, flops
from mithril_nb.stages.hlo.syntax import HloLine
from mithril_nb.stages.hlo.text import ComputationText, read_module
from mithril_nb.stages.records import Equation, Instruction

TRIVIAL = frozenset("parameter constant tuple get-tuple-element bitcast after-all".split())
_FRAMES = frozenset({"func.func", "return", "stablehlo.return"})
_PRODUCTS = frozenset(
    "dot_general conv_general_dilated stablehlo.dot_general stablehlo.convolution dot convolution".split()
)
_TYPES = re.compile(r"tensor<((?:\d+x)*)\w+>")
_BODIES = frozenset({"calls", "body", "condition", "branch", "true_computation", "false_computation"})
_CHECKED = ("jaxpr", "stablehlo", "hlo")
_CHECKS = ("products", "wrong role", "wrong link")
DEVICES = 8
_BARS = {"jaxpr equations": 1.0, "StableHLO ops": 0.99, "HLO FLOPs": 0.99, "HLO instructions": 0.95}


@dataclass(frozen=True)
class Attributed:
    """Measurements of one program.

    Attributes:
        name: Its name.
        equations: Share of the equations of the jaxpr with a block.
        ops: Share of the StableHLO ops with a block.
        flops: Share of the FLOPs of the optimized HLO with a block, counting every iteration of a loop.
        instructions: Share of its instructions with a block, without those that only name data.
        products: Number of matrix products and convolutions checked in all three stages.
        wrong_roles: Number of them whose role differs from the forward program's.
        wrong_links: Number of them linked to products of other sizes, or in a block that these are not in.
        missing: Number of unattributed instructions by opcode, without those that only name data.
    """

    name: str
    equations: float
    ops: float
    flops: float
    instructions: float
    products: int
    wrong_roles: int
    wrong_links: int
    missing: dict[str, int]


def programs(full: bool) -> dict[str, tuple[Make, Make]]:
    """Return, by name, functions that inspect a program and its forward program."""
    known = corpus(full)

    def of_corpus(name: str) -> Inspection:
        fn, args = known[name]()
        return inspect(fn, *args, name=name)

    found: dict[str, tuple[Make, Make]] = {}
    for name in (
        "mithril_nb GPT", "GPT-2 small", "GPT-2 small by scan", "GPT-2 small by scan and remat", "ResNet-50",
        "mixture of experts", "LSTM by scan", "sharded",
    ):  # fmt: skip
        forward = f"{name.removesuffix(' and remat')}, forward"
        found[f"{name}, train step"] = partial(of_corpus, f"{name}, train step"), partial(of_corpus, forward)
    forward = partial(of_corpus, "ResNet-50, forward")
    found["ResNet-50, forward"] = forward, forward
    return found | steps(full)


def attributed(full: bool, names: Sequence[str] = ()) -> Iterator[Attributed]:
    """Yield the measurements of all programs, or of the named ones."""
    for name, (step, forward) in programs(full).items():
        if not names or name in names:
            yield _elsewhere(name, full) if name.startswith("sharded") else measure(name, step(), forward())


def _elsewhere(name: str, full: bool) -> Attributed:
    """Measure in a new process with several devices."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"
    code = f"from benchmarks.attribution import measure_here; measure_here({name!r}, {full})"
    environment = {**os.environ, "XLA_FLAGS": flags}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return Attributed(**loads(done.stdout.splitlines()[-1]))


def measure_here(name: str, full: bool) -> None:
    """Print the measurements of a program as JSON."""
    step, forward = programs(full)[name]
    print(dumps(asdict(measure(name, step(), forward(), is_split=True))))


def measure(name: str, step: Inspection, forward: Inspection, is_split: bool = False) -> Attributed:
    """Compile a program and return its measurements.

    Args:
        name: Its display name.
        step: The program.
        forward: Its forward program.
        is_split: Whether it is split over devices. Then optimized HLO has other sizes than earlier stages, and is
            compared with the optimized HLO of the forward program.
    """
    instructions = step.stage("hlo").instructions
    lines, runs = _read(step)
    work = {name: runs[name] * flops(line, lines) for name, line in lines.items()}
    whole = {
        "jaxpr": _in_jaxpr(step),
        "stablehlo": _in_stablehlo(step),
        "hlo": _in_hlo(step, lines),
    }
    before = Counter(one.size for one in _in_jaxpr(forward))
    after = Counter(one.size for one in whole["jaxpr"]) - before
    wrong_roles = sum(
        _misjudged(found, before, after) for stage, found in whole.items() if stage != "hlo" or not is_split
    )
    if is_split:
        before = Counter(one.size for one in _in_hlo(forward, _read(forward)[0]))
        after = Counter(one.size for one in whole["hlo"]) - before
        wrong_roles += _misjudged(whole["hlo"], before, after)
    sources = {one.id: one for one in whole["jaxpr"]}
    checked = [one for stage in ("stablehlo", "hlo") for one in whole[stage]]
    return Attributed(
        name,
        _share((1.0, bool(one.block)) for one in step.equations),
        _share((1.0, bool(one.shares)) for one in step.stage("stablehlo").instructions if one.opcode not in _FRAMES),
        _share((work.get(one.id, 0.0), bool(one.shares)) for one in instructions),
        _share((1.0, bool(one.shares)) for one in instructions if one.opcode not in TRIVIAL),
        sum(map(len, whole.values())),
        wrong_roles,
        sum(not _is_right(one, sources, is_split) for one in checked),
        Counter(one.opcode for one in instructions if not one.shares and one.opcode not in TRIVIAL),
    )


def _share(counted: Iterable[tuple[float, bool]]) -> float:
    total = part = 0.0
    for weight, is_known in counted:
        total, part = total + weight, part + weight * is_known
    return part / total if total else 1.0


@dataclass(frozen=True)
class Product:
    """A matrix product or a convolution in any stage.

    Attributes:
        id: Its id.
        size: Element counts of its operands and result, sorted; and the count of its result.
        blocks: Its blocks.
        role: Its role.
        equations: Ids of its equations.
    """

    id: str
    size: tuple[tuple[int, ...], int]
    blocks: frozenset[str]
    role: str | None
    equations: tuple[str, ...]


def _product(one: Equation | Instruction, operands: Iterable[int], result: int) -> Product:
    is_equation = isinstance(one, Equation)
    return Product(
        one.id,
        (tuple(sorted((*operands, result))), result),
        frozenset({one.block} if is_equation else one.blocks),
        one.role,
        (one.id,) if is_equation else one.equations,
    )


def _count(spec: TensorSpec) -> int:
    return prod(size for size in spec.shape if isinstance(size, int))


def _in_jaxpr(inspection: Inspection) -> list[Product]:
    return [
        _product(one, map(_count, one.inputs), _count(one.outputs[0]))
        for one in inspection.equations
        if one.primitive in _PRODUCTS and one.is_used
    ]


def _in_stablehlo(inspection: Inspection) -> list[Product]:
    stage = inspection.stage("stablehlo")
    lines = stage.text.splitlines()
    found = []
    for one in stage.instructions:
        if one.opcode in _PRODUCTS:
            *_, left, right, result = (
                prod(int(size) for size in sizes.split("x") if size) for sizes in _TYPES.findall(lines[one.line - 1])
            )
            found.append(_product(one, (left, right), result))
    return found


def _in_hlo(inspection: Inspection, lines: Mapping[str, HloLine]) -> list[Product]:
    return [
        _product(one, (lines[name].elements for name in lines[one.id].operands[:2]), lines[one.id].elements)
        for one in inspection.stage("hlo").instructions
        if one.opcode in _PRODUCTS
    ]


def _misjudged(found: Sequence[Product], before: Counter[Any], after: Counter[Any]) -> int:
    """Count the products that exceed the expected number of their role."""
    roles = {role: Counter(one.size for one in found if one.role == role) for role in ("forward", "backward")}
    excess = roles["forward"] - before + (roles["backward"] - after)
    return excess.total() + sum(one.role not in roles for one in found)


def _is_right(one: Product, sources: Mapping[str, Product], is_split: bool) -> bool:
    """Return whether a product is linked to one of the same sizes, and has the blocks of its linked products."""
    linked = [sources[id] for id in one.equations if id in sources and (is_split or sources[id].size == one.size)]
    return bool(linked) and one.blocks == frozenset(block for each in linked for block in each.blocks)


def _read(inspection: Inspection) -> tuple[dict[str, HloLine], dict[str, float]]:
    """Return the instructions of the optimized HLO by name, and how often each runs in one run of the program."""
    _, computations = read_module(inspection.compiled.as_text() or "")
    by_name = {computation.name: computation for computation in computations}
    runs: Counter[str] = Counter()

    def visit(computation: ComputationText, times: int) -> None:
        for line in computation.instructions:
            runs[line.name] += times
            for how, callee in line.calls:
                if callee in by_name and (how in _BODIES or line.opcode in CALLING):
                    visit(by_name[callee], times * (line.trips or 1))

    for computation in computations:
        if computation.is_entry:
            visit(computation, 1)
    lines = {line.name: line for computation in computations for line in computation.instructions}
    return lines, {name: float(runs[name]) for name in lines}


def attribution_tables(full: bool) -> Iterator[Table]:
    """Yield tables of the attributed share and of its errors; values that miss their bar are red."""
    bars = tuple(_BARS.values())
    table = Table("attributed", *(f"{what}, {bar:.0%}" for what, bar in _BARS.items()), *_CHECKS)
    for one in attributed(full):
        shares = (one.equations, one.ops, one.flops, one.instructions)
        table.add_row(
            one.name,
            *(_marked(f"{share:.2%}", share < bar) for share, bar in zip(shares, bars, strict=True)),
            *(str(one.products), _marked(str(one.wrong_roles), one.wrong_roles > 0)),
            _marked(str(one.wrong_links), one.wrong_links > 0),
        )
    yield _numbers_right(table)
    table = Table("lines with the width of a block", *(f"{stage}, wrong" for stage in _CHECKED))
    for name, make in own_widths().items():
        inspection = make()
        judged = [by_width(inspection.stage(stage).instructions) for stage in _CHECKED]
        wrong = [sum(not is_right for _, is_right in found) for found in judged]
        table.add_row(
            name,
            *(_marked(f"{count} of {len(found)}", count > 0) for count, found in zip(wrong, judged, strict=True)),
        )
    yield _numbers_right(table)


def _numbers_right(table: Table) -> Table:
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def _marked(text: str, is_under: bool) -> str:
    return f"[red]{text}[/red]" if is_under else text
