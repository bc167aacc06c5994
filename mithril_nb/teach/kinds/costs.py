"""Questions about FLOPs, bytes and memory."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from random import Random
from typing import Any

import jax

from mithril_nb.cost.memory.liveness import ARGUMENTS, OUTPUTS, TEMPORARIES
from mithril_nb.graph.spec import ITEM_BYTES
from mithril_nb.inspection import Inspection
from mithril_nb.stages.records import Equation
from mithril_nb.stages.trace.equations import Site
from mithril_nb.stages.trace.tracing import shape_of_aval
from mithril_nb.teach.answers import Choice, Formula, Number, Order, arithmetic, spec_text
from mithril_nb.teach.kinds.lines import code_of, device_text, jaxpr_lines, named, operands_text, sites_by_id
from mithril_nb.teach.question import Candidate

_ONE_FLOP_FOR_TWO = "You counted a multiply and an add as one: they are two FLOPs."
_MARGIN = 1.05
"""Least ratio of two sizes that a question compares."""


def cost(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask for the FLOPs of an equation, or of all matrix products, or for the bytes that an equation moves."""
    sites, lines = sites_by_id(program), jaxpr_lines(program)
    rows = {row.id: row for row in program.cost("analytic").rows}
    equations = [
        equation
        for equation in program.equations
        if equation.id in rows
        and equation.is_used
        and equation.repeats
        and not equation.is_call
        and "cond" not in equation.transforms  # in a run, another branch may be taken
        and equation.primitive != "bitcast_convert_type"  # whether it costs FLOPs is a convention
        and all(spec.dtype in ITEM_BYTES for spec in (*equation.inputs, *equation.outputs))
    ]
    random.shuffle(equations)
    # Matrix products first: most of the work of most programs.
    equations.sort(key=lambda equation: equation.primitive != "dot_general" and random.random() < 0.7)
    products = [equation for equation in equations if equation.primitive == "dot_general"]
    # "All" is clear only if each product in the jaxpr counts: an unused one is there, and costs nothing.
    in_jaxpr = [equation for equation in program.equations if equation.primitive == "dot_general"]
    if len(products) > 1 and random.random() < 0.3 and len(products) == len(in_jaxpr):
        yield _all_products(program, products, [sites[each.id] for each in products], rows)
    for equation in equations:
        row, repeats = rows[equation.id], equation.repeats or 1
        by_xla = _of_xla(sites[equation.id])
        code = code_of(program, equation, lines.get(equation.id, ""))
        loop = f" Its loop runs {repeats} times." if repeats > 1 else ""
        about = f"{named(equation)}, with the operands {operands_text(equation)}, of `{program.name}`"
        marks = (("jaxpr", (equation.id,)),)
        if row.flops and random.random() < 0.75:
            letters = ", ".join(f"{letter} = {value}" for letter, value in row.letters)
            near: list[tuple[int, str]] = []
            if equation.primitive == "dot_general":
                near.append((row.flops // 2, _ONE_FLOP_FOR_TWO))
                output = equation.outputs[0].size or 0
                near.append((output * repeats, "That is the number of results; each is a sum of many products."))
            if repeats > 1:
                near.append((row.flops // repeats, "That is one iteration of the loop."))
            yield Candidate(
                f"How many FLOPs does {about} take in one run?{loop}",
                Number("FLOP"),
                row.flops,
                None if by_xla is None else by_xla[0] * repeats,
                f"The rule is {row.formula}{f' with {letters}' if letters else ''}: {row.flops // repeats:,} FLOP"
                + (f" in each of {repeats} iterations, {row.flops:,} FLOP in all." if repeats > 1 else "."),
                tuple(near),
                code,
                marks,
            )
        elif row.bytes_accessed:
            specs = (*equation.inputs, *equation.outputs)
            items = sum(spec.size or 0 for spec in specs) * repeats
            output = sum(spec.nbytes or 0 for spec in equation.outputs) * repeats
            yield Candidate(
                f"How many bytes does {about} read and write in one run, without fusion or caches?{loop}",
                Number("B"),
                row.bytes_accessed,
                None if by_xla is None else by_xla[1] * repeats,
                f"It reads {operands_text(equation)} and writes {' and '.join(map(spec_text, equation.outputs))}.",
                (
                    (items, "That is the number of elements; each has several bytes."),
                    (output, "It also reads its operands."),
                    (row.bytes_accessed - output, "It also writes its result."),
                ),
                code,
                marks,
            )


def _all_products(
    program: Inspection, equations: Sequence[Equation], sites: Sequence[Site], rows: dict[str, Any]
) -> Candidate:
    truth = sum(rows[equation.id].flops or 0 for equation in equations)
    by_xla = [_of_xla(site) for site in sites]
    forward = sum(rows[each.id].flops or 0 for each in equations if each.role == "forward")
    near = [(truth // 2, _ONE_FLOP_FOR_TWO)]
    if 0 < forward < truth:
        near += [
            (forward, "That is the forward pass alone."),
            (3 * forward, "The backward pass takes two products for each of the forward pass, but none for an input."),
        ]  # fmt: skip
    parts = " + ".join(f"{rows[each.id].flops:,}" for each in equations[:6])
    return Candidate(
        f"How many FLOPs do all `dot_general` equations of `{program.name}` take in one run?",
        Number("FLOP"),
        truth,
        None if None in by_xla
        else sum(each[0] * (equation.repeats or 0) for each, equation in zip(by_xla, equations, strict=True) if each),
        f"{len(equations)} products: {parts}{' + …' if len(equations) > 6 else ''} = {truth:,} FLOP.",
        tuple((wrong, why) for wrong, why in near if wrong != truth),
        marks=(("jaxpr", tuple(equation.id for equation in equations)),),
    )  # fmt: skip


_LETTERS = {
    "B": "the size of the batch",
    "M": "the size of the axes that only the left operand has",
    "N": "the size of the axes that only the right operand has",
    "K": "the size of the axes that are summed over",
}


def formula(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask for the FLOPs of a matrix product as a formula of its sizes."""
    sites, lines = sites_by_id(program), jaxpr_lines(program)
    rows = {row.id: row for row in program.cost("analytic").rows if dict(row.letters).keys() == _LETTERS.keys()}
    equations = [each for each in program.equations if each.primitive == "dot_general" and each.id in rows]
    random.shuffle(equations)
    for equation in equations:
        rule = rows[equation.id].formula.replace("·", "*")
        sizes = {letter: size for letter, size in rows[equation.id].letters if isinstance(size, int)}
        if len(sizes) < len(_LETTERS):  # symbolic sizes
            continue
        letters = tuple(letter for letter in _LETTERS if sizes[letter] > 1)
        if len(letters) < 2:
            continue
        truth = "*".join(("2", *letters))
        # XLA counts the equation with its own sizes, and with others.
        grown = {
            letter: prime if letter in letters else 1 for letter, prime in zip(_LETTERS, (3, 5, 7, 11), strict=True)
        }
        site = sites[equation.id]
        by_xla = ((_of_xla(site), sizes), (_of_xla(site, grown), grown))
        agrees = all(each and each[0] == arithmetic(truth, at) == arithmetic(rule, at) for each, at in by_xla)
        near = [("*".join(letters), _ONE_FLOP_FOR_TWO)]
        if "K" in letters:
            results = "*".join(letters[:-1]) or "1"
            near += [
                (results, "That is the number of results; each is a sum of many products."),
                (f"{results}*(2*K - 1)", "A sum of K products has K - 1 adds; the convention, also XLA's, counts K."),
            ]
        meanings = ", ".join(f"{letter} = {sizes[letter]} is {_LETTERS[letter]}" for letter in letters)
        yield Candidate(
            f"Which formula of its sizes gives the FLOPs of {named(equation)}, with the operands "
            f"{operands_text(equation)}, of `{program.name}`, each time it runs? {meanings}.",
            Formula(letters),
            truth,
            truth if agrees else None,
            f"Each result is a sum of products, and each product takes two FLOPs, a multiply and an add: {truth}.",
            tuple(near),
            code_of(program, equation, lines.get(equation.id, "")),
            (("jaxpr", (equation.id,)),),
        )


def _of_xla(site: Site, sizes: Mapping[str, int] | None = None) -> tuple[int, int] | None:
    """Return FLOPs and bytes of an equation as XLA counts them for a program of this equation alone.

    Args:
        site: The equation.
        sizes: Other sizes B, M, N and K of a matrix product.
    """
    equation = site.equation
    shapes = [shape_of_aval(atom.aval) for atom in equation.invars]
    if sizes is not None:
        shapes = _resized(shapes, equation.params["dimension_numbers"], sizes)
    try:
        lowered = jax.jit(lambda *operands: equation.primitive.bind(*operands, **equation.params)).lower(*shapes)
        figures: Any = lowered.cost_analysis() or {}
        return int(figures.get("flops", 0)), int(figures["bytes accessed"])
    except Exception:  # primitives that need the axes of a mesh or a loop around them, or that XLA does not count
        return None


def _resized(shapes: Sequence[Any], dimension_numbers: Any, sizes: Mapping[str, int]) -> list[jax.ShapeDtypeStruct]:
    """Return operands of a matrix product whose first axis of each letter has its size, and the others have 1."""
    resized: list[jax.ShapeDtypeStruct] = []
    for shape, free, contracted, batch in zip(shapes, "MN", *dimension_numbers, strict=True):
        axes = {"B": [*batch], "K": [*contracted]}
        axes[free] = [axis for axis in range(shape.ndim) if axis not in (*batch, *contracted)]
        dims = {axis: 1 for axis in range(shape.ndim)}
        dims |= {letter_axes[0]: sizes[letter] for letter, letter_axes in axes.items() if letter_axes}
        resized.append(jax.ShapeDtypeStruct(tuple(dims.values()), shape.dtype))
    return resized


_KINDS = {ARGUMENTS: "its arguments", OUTPUTS: "its results", TEMPORARIES: "temporary values"}


def memory(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask for the bytes of the arguments, what holds most of the memory, and whether the program fits."""
    use = program.memory
    if use.xla is None or use.source != "compiled":
        return
    by_xla = {ARGUMENTS: use.xla.argument, OUTPUTS: use.xla.output, TEMPORARIES: use.xla.temp}
    sizes = sorted(((use.kinds.get(kind, 0), kind) for kind in _KINDS), reverse=True)
    candidates: list[Candidate] = []
    # XLA's results have a table of pointers; a donated argument is in the memory of a result.
    slack = 8 * len(program.outputs) + 8
    if sizes[0][0] > _MARGIN * sizes[1][0] + slack and not use.xla.alias:
        most, second = sorted(by_xla, key=lambda kind: -(by_xla[kind] or 0))[:2]
        if (by_xla[most] or 0) <= _MARGIN * (by_xla[second] or 0) + slack:
            most = ""
        candidates.append(
            Candidate(
                f"What takes most of the memory of `{program.name}` at its peak ({device_text(program)})?",
                Choice(tuple(_KINDS.values())),
                _KINDS[sizes[0][1]],
                _KINDS.get(most),
                "At the peak there are "
                + ", ".join(f"{size:,} bytes of {_KINDS[kind].removeprefix('its ')}" for size, kind in sizes)
                + ".",
            )
        )
    arrays = [leaf.spec for leaf in program.inputs]
    is_counted = all(spec.is_concrete and spec.dtype in ITEM_BYTES for spec in arrays)
    if is_counted and not program.is_divided:
        items = sum(prod(int(size) for size in spec.shape) for spec in arrays)
        listing = ", ".join(f"{leaf.name}: {spec_text(leaf.spec)}" for leaf in program.inputs[:12])
        candidates.append(
            Candidate(
                f"How many bytes do the arguments of `{program.name}` take?",
                Number("B"),
                sum(spec.nbytes or 0 for spec in arrays),
                use.xla.argument,
                f"They have {items:,} elements, each with the bytes of its dtype.",
                ((items, "That is the number of elements; each has several bytes."),),
                code=listing + (", …" if len(program.inputs) > 12 else ""),
            )
        )
    if use.fits is not None and use.capacity_bytes and use.peak_bytes is not None:
        peak = sum(size or 0 for size in by_xla.values()) - (use.xla.alias or 0)
        candidates.append(
            Candidate(
                f"Does `{program.name}` fit into the {use.capacity_bytes / 2**30:.0f} GiB of {device_text(program)}?",
                Choice(("yes", "no")),
                "yes" if use.fits else "no",
                "yes" if peak <= use.capacity_bytes else "no",
                f"Its peak is {use.peak_bytes / 2**30:.2f} GiB.",
            )
        )
    yield from random.sample(candidates, len(candidates))


def memory_order(programs: Sequence[Inspection], random: Random) -> Iterator[Candidate]:
    """Ask for the order of several programs by peak memory."""
    uses = [program.memory for program in programs]
    names = [program.name for program in programs]
    peaks = {name: use.peak_bytes for name, use in zip(names, uses, strict=True)}
    xla = {
        name: sum(size or 0 for size in (use.xla.argument, use.xla.output, use.xla.temp)) - (use.xla.alias or 0)
        for name, use in zip(names, uses, strict=True)
        if use.xla is not None
    }
    if len(peaks) < len(programs) or len(xla) < len(programs) or None in peaks.values():
        return
    order = sorted(names, key=lambda name: peaks[name] or 0)
    if any((peaks[b] or 0) < _MARGIN * (peaks[a] or 0) for a, b in itertools.pairwise(order)):
        return
    yield Candidate(
        f"Order these programs by peak memory, the smallest first ({device_text(programs[0])}).",
        Order(tuple(random.sample(names, len(names)))),
        tuple(order),
        tuple(sorted(names, key=lambda name: xla[name])),
        "Their peaks: " + ", ".join(f"`{name}` {peaks[name]:,} bytes" for name in order) + ".",
    )
