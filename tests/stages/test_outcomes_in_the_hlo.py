"""What `who_changed` reports is in the texts of the passes and of the optimized HLO, which the tests here parse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax_programs import EVERYTHING_PARAMS, everything, programs, spec

from benchmarks.corpus import corpus
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect_function as inspect
from mithril_nb.stages.xla.passes import Outcome, Pass
from tests.stress import is_long

LINE = re.compile(r"\s+(?:ROOT )?%([\w.\-]+) = (\((?:[^()]|\([^()]*\))*\)|\S+) ([a-z][\w\-]*)\((.*)")
TAG = re.compile(r"mnb\d*#([b\d.]+)~")
PASSING = {"constant", "broadcast", "parameter", "tuple", "get-tuple-element"}
MOVING = {"reshape", "bitcast", "copy"}
AROUND = {"fusion", "call", "while", "conditional"}
SWAPS = {"add", "multiply", "maximum", "minimum", "and", "or", "xor"}
PRODUCTS = {"dot", "convolution"}


@dataclass
class Line:
    name: str
    type: str
    opcode: str
    operands: list[str]
    attributes: str
    callees: dict[str, str]
    literal: str
    home: str
    ids: frozenset[str]

    @property
    def elements(self) -> int:
        sizes = re.match(r"\w+\[([\d,]*)\]", self.type)
        return prod(int(size) for size in sizes[1].split(",") if size) if sizes else 0

    def is_of(self, ids: frozenset[str]) -> bool:
        """Return whether it works for equations: it has no tag, that of one of them, or that of a call around one."""
        ends = [(f".{id}.", f".{own}.") for id in ids for own in self.ids]
        return not self.ids or any(id.endswith(own) or own.endswith(id) or id.startswith(own) for id, own in ends)


def read_line(text: str, home: str) -> Line | None:
    match = LINE.match(text)
    if match is None:
        return None
    name, type, opcode, rest = match.groups()
    literal, _, attributes = rest.partition(")")
    op_name = re.search(r'op_name="([^"]*)"', attributes)
    parts = [TAG.findall(part) for part in op_name[1].split(";")] if op_name else []
    # XLA adds the op name of a call only at the start of a list.
    ids = frozenset(".".join(path) for part in parts for path in (part, parts[0][:-1] + part)) - {""}
    callees = dict(re.findall(r"(calls|to_apply|body|condition)=%([\w.\-]+)", attributes))
    own = re.sub(r"%[\w.\-]+", "%", re.sub(r", (metadata|backend_config|frontend_attributes)=\{.*", "", attributes))
    has_operands = opcode not in ("constant", "parameter")
    operands = re.findall(r"%([\w.\-]+)", literal) if has_operands else []
    type = re.sub(r"(?<=\])\{[^}]*\}", "", type)  # without the layout
    return Line(name, type, opcode, operands, own, callees, "" if has_operands else literal, home, ids)


class Module:
    def __init__(self, text: str):
        self.lines: dict[str, Line] = {}
        home = ""
        for row in text.splitlines():
            if row.endswith("{") and (head := re.match(r"(?:ENTRY )?%([\w.\-]+)", row)):
                home = head[1]
            elif line := read_line(row, home):
                self.lines[line.name] = line
        lines = self.lines.values()
        self.fusions = {line.callees["calls"]: line for line in lines if line.opcode == "fusion"}
        self.combiners = {
            callee
            for line in lines
            if line.opcode != "call"
            for how, callee in line.callees.items()
            if how == "to_apply"
        }

    def of(self, ids: frozenset[str]) -> list[Line]:
        return [line for line in self.lines.values() if line.ids & ids and line.home not in self.combiners]

    def sizes(self, line: Line) -> tuple[int, list[int]]:
        """Return the numbers of elements of result and operands, which transposed operands do not change."""
        return line.elements, sorted(self.lines[name].elements for name in line.operands)

    @cached_property
    def values(self) -> dict[str, object]:
        """For each instruction a key, equal for instructions that compute the same."""
        keys: dict[object, int] = {}
        values: dict[str, object] = {}

        def value(name: str) -> object:
            line = self.lines[name]
            if name not in values:
                fusion = self.fusions.get(line.home) if line.opcode == "parameter" else None
                if fusion is not None:
                    values[name] = value(fusion.operands[int(line.literal)])
                    return values[name]
                is_unique = line.opcode in ("parameter", "while", "custom-call") or "..." in line.literal
                bodies = [
                    (each.opcode, each.type, each.attributes)
                    for callee in line.callees.values()
                    for each in self.lines.values()
                    if each.home == callee
                ]
                operands = [*map(value, line.operands)]
                if line.opcode in SWAPS or "direction=EQ" in line.attributes or "direction=NE" in line.attributes:
                    operands.sort(key=str)
                own = name if is_unique else line.literal
                key = (line.opcode, line.type, line.attributes, own, *operands, *bodies)
                values[name] = keys.setdefault(key, len(keys))
            return values[name]

        for name in self.lines:
            value(name)
        return values


@dataclass
class Checker:
    """Compares outcomes with the texts of a program."""

    inspection: Inspection

    def __post_init__(self):
        passes = self.inspection.passes
        texts = [passes[0].raw_texts[0], *(each.raw_texts[1] for each in passes)] if passes else []
        self.modules = [*map(Module, texts)]

    def contradictions(self) -> Iterator[tuple[str, str, str, Outcome]]:
        """Yield the stage, the id and the outcome of what the texts contradict, and the reason."""
        if not self.modules:
            return
        first = self.modules[0]
        for equation in self.inspection.equations:
            if not equation.is_call:
                for reason, outcome in self._of("jaxpr", equation.id, frozenset({equation.id})):
                    yield "jaxpr", f"{equation.id} {equation.primitive}", reason, outcome
        for instruction in self.inspection.stage("hlo_before").instructions:
            line = first.lines.get(instruction.id)
            if line is not None and line.home not in first.combiners:
                for reason, outcome in self._of("hlo_before", instruction.id, frozenset(instruction.equations)):
                    yield "hlo_before", f"{instruction.id} {instruction.opcode}", reason, outcome

    def _of(self, stage: str, id: str, ids: frozenset[str]) -> Iterator[tuple[str, Outcome]]:
        outcomes = self.inspection.who_changed(stage, id).outcomes
        last = self.modules[-1]
        work = [line for line in last.of(ids) if line.opcode not in PASSING | MOVING | AROUND]
        kinds = {outcome.became for outcome in outcomes}
        if stage == "jaxpr" and work and not kinds & {"kept", "fused", "rewritten", "unknown"}:
            yield f"{work[0].name} does its work", outcomes[0]
        for outcome in outcomes:
            received = self.modules[0].lines.get(outcome.instruction)
            into = last.lines.get(outcome.into)
            if outcome.became in ("kept", "rewritten", "fused") and into is None:
                yield "it is not in the optimized HLO", outcome
            elif outcome.became in ("kept", "rewritten") and into is not None:
                yield from ((reason, outcome) for reason in self._of_instruction(outcome, received, into, ids, work))
            elif outcome.became == "fused" and into is not None:
                yield from ((reason, outcome) for reason in self._of_fusion(outcome, received, into, ids))
            elif outcome.became == "merged":
                yield from ((reason, outcome) for reason in self._of_merged(outcome, received, ids))
            for by in (outcome.by, outcome.rewritten):
                if by is not None and not self._is_changed(by, outcome, received, ids):
                    yield f"pass {by.number} did not change it", outcome

    def _of_instruction(
        self, outcome: Outcome, received: Line | None, into: Line, ids: frozenset[str], work: list[Line]
    ) -> Iterator[str]:
        first, last = self.modules[0], self.modules[-1]
        if into.home in last.fusions:
            yield "it is inside a fusion"
        is_swapped = (
            received is not None and into.opcode in PRODUCTS and first.sizes(received) == last.sizes(into)
        )  # XLA gives a product with swapped operands the op name of the transpose after it
        if into.opcode not in PASSING and not into.is_of(ids) and not outcome.equations and not is_swapped:
            yield "it is the work of another equation"
        if outcome.became == "rewritten":
            if into.opcode in MOVING and work:
                yield f"{work[0].name} does its work"
        elif received is None:
            form = (into.opcode, into.type, into.attributes)
            if not any((each.opcode, each.type, each.attributes) == form for each in first.lines.values()):
                yield "no instruction had this form"
        elif received.opcode != into.opcode:
            yield "it has another opcode"
        elif received.opcode not in AROUND | PASSING:
            if received.type != into.type:
                yield "it has another type"
            elif received.name != into.name and received.attributes != into.attributes:
                yield "it has other attributes"

    def _of_fusion(self, outcome: Outcome, received: Line | None, into: Line, ids: frozenset[str]) -> Iterator[str]:
        if into.opcode != "fusion":
            yield "it is no fusion"
            return
        inside = [line for line in self.modules[-1].lines.values() if line.home == into.callees["calls"]]
        own = [line for line in inside if line.is_of(ids | {*outcome.equations}) or line.opcode in PRODUCTS]
        opcode = outcome.opcode or (received.opcode if received else "")
        same = [line for line in own if line.opcode == opcode]
        if received is not None and received.opcode in ("constant", "broadcast") and not outcome.opcode:
            same = [
                line
                for line in inside
                if line.opcode == opcode and (line.elements, line.literal) == (received.elements, received.literal)
            ]
        if not own or (received is not None and opcode not in AROUND and not same):
            yield f"the fusion contains no {opcode} of it"

    def _of_merged(self, outcome: Outcome, received: Line | None, ids: frozenset[str]) -> Iterator[str]:
        assert outcome.by is not None
        assert received is not None
        before, after = self.modules[outcome.by.number], self.modules[outcome.by.number + 1]
        gone = [
            line
            for line in before.lines.values()
            if line.name not in after.lines and line.opcode == received.opcode and line.is_of(ids)
        ]
        values = before.values
        if outcome.into not in before.lines or not any(values[line.name] == values[outcome.into] for line in gone):
            yield "the other computes something else"

    def _is_changed(self, by: Pass, outcome: Outcome, received: Line | None, ids: frozenset[str]) -> bool:
        opcodes = {received.opcode if received else "", outcome.opcode} - {""}
        is_unnamed = received is not None and (not ids or not received.is_of(ids))
        is_loose = received is not None and (
            received.opcode in PRODUCTS or not received.ids or is_unnamed or bool(outcome.opcode)
        )

        def own(module: Module) -> set[tuple[str, str, str, bool]]:
            return {
                (line.name, line.opcode, line.type, line.home in module.fusions)
                for line in module.lines.values()
                if line.name == outcome.instruction
                or line.ids & (ids | {*outcome.equations})
                or (is_loose and line.opcode in opcodes and (is_unnamed or line.is_of(ids) or line.opcode in PRODUCTS))
            }

        before, after = own(self.modules[by.number]), own(self.modules[by.number + 1])
        is_changed = before != after
        if outcome.became == "fused" and by is outcome.by:
            return is_changed and any(is_inside for *_, is_inside in after - before)
        return is_changed


N = 24
A, V = spec(N, N), spec(N)
SMALL: dict[str, tuple[Callable[..., Any], *tuple[Any, ...]]] = {
    "sum": (jnp.cumsum, spec(512)),
    "two sums": (lambda x: jnp.cumsum(x, 1) * 2 + jnp.cumsum(x, 0), spec(40, 300)),
    "gradient of a sum": (jax.grad(lambda x: (jnp.cumsum(jnp.sin(x)) ** 2).sum()), spec(300)),
    "scan": (lambda x: lax.scan(lambda c, y: (jnp.tanh(c @ x) + y, c.sum()), x, jnp.ones((5, N, N))), A),
    "while": (
        lambda x: lax.while_loop(
            lambda c: (c[0] < 9) & (c[1].sum() < 99.0), lambda c: (c[0] + 1, c[1] * 2.0 + x), (0, x)
        ),
        V,
    ),
    "counter": (lambda x: lax.fori_loop(0, 10, lambda i, c: c.at[i].set(c[i - 1] * 2 + i), x), V),
    "two loops": (lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, 4, lambda j, d: d @ x + j, c), x), A),
    "branches": (lambda x, y: lax.cond(x.sum() > 0, lambda a, b: a @ b, lambda a, b: (b @ a).T, x, y), A, A),
    "remat": (jax.grad(lambda w, x: jax.checkpoint(lambda w, x: jnp.sin(jnp.sin(x @ w) @ w))(w, x).sum()), A, A),
    "remat in a scan": (
        jax.grad(
            lambda w, x: lax.scan(jax.checkpoint(lambda c, _: (jnp.tanh(c @ w), None)), x, None, length=4)[0].sum()
        ),
        A,
        spec(8, N),
    ),
    "transposed product": (lambda x, w: (x @ w).T, spec(8, 16), spec(16, 4)),
    "transposed operands": (lambda x, w: (w.T @ x.T, x.T @ w), A, A),
    "swapped product": (
        lambda x, w: lax.dot_general(w, x, (((0,), (1,)), ((), ()))).T, spec(8, 16), spec(16, 4)
    ),
    "reshaped product": (lambda x, w: (x @ w).reshape(-1), spec(8, 16), spec(16, 4)),
    "dense": (jax.grad(lambda w, x: (jnp.tanh(x @ w) ** 2).sum(), (0, 1)), spec(16, 4), spec(2, 8, 16)),
    "vectors": (lambda x, w: (x @ w, w @ x.T, jnp.outer(w, w), w @ w), spec(8, 16), spec(16)),
    "einsum": (lambda x, w: jnp.einsum("bhqd,khd->bqk", x, w), spec(2, 3, 8, 16), spec(4, 3, 16)),
    "constant products": (lambda x: (x @ jnp.ones((16, 4)), x @ jnp.zeros((16, 4)), x @ jnp.eye(16)), spec(8, 16)),
    "softmax": (lambda x: jax.nn.softmax(x) + jax.nn.softmax(x), spec(64, 64)),
    "convolution": (lambda x, w: jax.nn.relu(lax.conv(x, w, (2, 2), "VALID")), spec(2, 3, 8, 8), spec(4, 3, 3, 3)),
    "pooling": (
        jax.grad(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID").sum()), spec(8, 8)
    ),
    "sort": (lambda x: (jnp.sort(x), jnp.argsort(-x), lax.top_k(x, 3)), spec(50)),
    "statistics": (lambda x: (jnp.median(x, 0), jnp.argmax(x, 1), x.std(0), jax.nn.logsumexp(x, 1)), spec(9, 4)),
    "scatter": (lambda x, i: (x.at[i].add(1.0), x[i] * 2), spec(9, 4), spec(5, dtype="int32")),
    "shapes": (lambda x, y: jnp.concatenate([jnp.pad(x, 1), jnp.pad(y, 1)])[::2].T, spec(5, 4), spec(5, 4)),
    "algebra": (lambda x: (x * 1.0 + 0.0) / 2.0 - x * 0 + (x - x) ** 2 + x**0.5 + x**3, spec(64)),
    "swapped": (lambda x, y: jnp.sin(x + y) * jnp.cos(y + x) + jnp.sin(x * y) ** jnp.cos(y * x), V, V),
    "swapped results": (lambda x, y: jnp.tan(jnp.sin(x) * jnp.cos(y)) + jnp.exp(jnp.cos(y) * jnp.sin(x)), V, V),
    "integers": (lambda x: (x * 8 // 4 % 16) << 1 | x & 3, spec(64, dtype="int32")),
    "bfloat16": (lambda x: jax.nn.softmax(x * 2), spec(8, 16, dtype="bfloat16")),
    "random": (lambda w: jax.random.normal(jax.random.wrap_key_data(w), (8,)), spec(2, dtype="uint32")),
    "solve": (jnp.linalg.solve, spec(6, 6), spec(6)),
    "vmap": (jax.vmap(jax.grad(lambda w, x: jnp.tanh(w @ x).sum()), (None, 0)), spec(4, 16), spec(8, 16)),
    "hessian": (jax.hessian(lambda x: (jnp.sin(x) ** 3).sum()), spec(8)),
    "everything": (jax.grad(lambda p, x: everything(p, x).sum()), EVERYTHING_PARAMS, spec(4, 7)),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_texts_do_not_contradict(name):
    fn, *args = SMALL[name]
    assert [*Checker(inspect(fn, *args)).contradictions()] == []


SWAPPED = [jnp.add, jnp.multiply, jnp.maximum, jnp.minimum]


@pytest.mark.parametrize("operation", SWAPPED)
def test_equal_operations_with_swapped_operands_are_merged(operation):
    """XLA merges x + y and y + x: the optimized HLO has one of them, which is no simplification."""

    def fn(x, y):
        left = operation(jnp.sin(x), jnp.cos(y))
        return jnp.tan(left) - jnp.exp(operation(jnp.cos(y), jnp.sin(x)))

    program = inspect(fn, V, V)
    opcodes = [line.opcode for line in Module(program.passes[-1].raw_texts[1]).lines.values()]
    assert (opcodes.count("sine"), opcodes.count("cosine")) == (1, 1)
    merged = {
        equation.primitive: (outcome.equations, outcome.by.name)
        for equation in program.equations
        for outcome in program.who_changed("jaxpr", equation.id).outcomes
        if outcome.became != "fused" and outcome.by is not None
    }
    primitive = program.equations[2].primitive
    assert merged == {"cos": (("1",), "cse"), "sin": (("0",), "cse"), primitive: (("2",), "cse")}


@pytest.mark.parametrize("count", [1, 5, 6])
def test_a_constant_that_xla_creates_does_not_continue_the_move_of_data(count):
    """XLA replaces a sum of equal columns by a product with their number, a broadcast constant."""
    program = inspect(lambda x: jnp.broadcast_to(x[:, None], (24, count)).sum(1), V)
    last = Module(program.passes[-1].raw_texts[1])
    moves = [equation.id for equation in program.equations if equation.primitive == "broadcast_in_dim"]
    assert moves
    for id in moves:
        for outcome in program.who_changed("jaxpr", id).outcomes:
            into = [line for line in last.of(frozenset({id})) if line.opcode == outcome.opcode]
            operands = {last.lines[name].opcode for line in into for name in line.operands}
            assert operands != {"constant"}, outcome
            assert outcome.became in ("simplified", "unknown", "dropped"), outcome


LARGE = {name: make for name, make in corpus().items() if not name.startswith(("sharded", "ResNet", "GPT-2"))}
LARGE |= {f"tests, {name}": lambda program=program: program for name, program in programs().items()}


@pytest.mark.parametrize("name", LARGE if is_long() else ["LSTM by scan, train step", "LeNet, train step"])
def test_texts_of_models_do_not_contradict(name):
    fn, args = LARGE[name]()
    contradictions = Checker(inspect(fn, *args)).contradictions()
    # Constants without op name have no equation by which these tests tell them apart.
    assert [each for each in contradictions if not each[1].endswith(" constant")] == []
