"""Questions about the jaxpr: shapes and dtypes, roles, numbers of equations, and what a transform adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from mithril_nb.graph.spec import ITEM_BYTES, TensorSpec
from mithril_nb.inspection import Inspection
from mithril_nb.stages.jax_versions import is_literal
from mithril_nb.stages.records import ROLES, Equation
from mithril_nb.stages.trace.equations import Site, each_equation
from mithril_nb.stages.trace.tracing import shape_of_aval
from mithril_nb.stages.transforms.kinds import floats, with_zeros
from mithril_nb.stages.transforms.stepping import step_through
from mithril_nb.teach.answers import Choice, Number, Several, Spec, spec_text
from mithril_nb.teach.kinds.lines import code_of, jaxpr_lines, named, operands_text, sites_by_id
from mithril_nb.teach.question import Candidate

# Primitives whose params, which the question shows, contain the shape of the result.
_STATED = frozenset(
    "bitcast_convert_type broadcast_in_dim convert_element_type dynamic_slice iota random_bits random_seed "
    "reshape".split()
)
# Operations whose dtype is that of all their operands.
_ARITHMETIC = frozenset("add sub mul div rem max min pow neg sin cos tanh exp log sqrt integer_pow".split())
_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "is_finite"})
_WEAK = ("weakly typed", "not weakly typed")


def spec(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask for shape and dtype of the result of an equation, or whether it is weakly typed."""
    sites, lines = sites_by_id(program), jaxpr_lines(program)
    equations = [
        equation
        for equation in program.equations
        if not equation.is_call
        and len(equation.outputs) == 1
        and equation.outputs[0].is_concrete
        and equation.outputs[0].dtype in ITEM_BYTES
        and equation.primitive not in _STATED
    ]
    random.shuffle(equations)
    # Results that equal an operand come last: they teach least.
    equations.sort(key=lambda equation: equation.outputs[0] in equation.inputs)
    weak = [equation for equation in equations if _is_weak(sites[equation.id])]
    # An equation with a scalar, which may look like a Python number.
    mixed = [each for each in equations if _is_fixed(sites[each.id]) and any(not x.shape for x in each.inputs)]
    if weak and random.random() < 0.25:
        equation = random.choice([weak[0], *mixed[:1]])
        yield _weak_type(program, equation, sites[equation.id], lines)
    for equation in equations:
        truth = equation.outputs[0]
        right_side = lines.get(equation.id, "").partition(" = ")[2]
        yield Candidate(
            f"In `{program.name}`, {named(equation)}, has the operands {operands_text(equation)}. "
            "What are dtype and shape of its result?",
            Spec(),
            truth,
            _evaluated(sites[equation.id]),
            f"`{equation.primitive}` of {operands_text(equation)} is {spec_text(truth)}.{_why(equation)}",
            _near_specs(equation),
            code_of(program, equation, f"? = {right_side}" if right_side else ""),
            (("jaxpr", (equation.id,)),),
        )


def _is_weak(site: Site) -> bool:
    return bool(site.equation.outvars[0].aval.weak_type)


def _is_fixed(site: Site) -> bool:
    return not _is_weak(site) and not all(atom.aval.weak_type for atom in site.equation.invars)


def _weak_type(program: Inspection, equation: Equation, site: Site, lines: dict[str, str]) -> Candidate:
    is_weak = _is_weak(site)
    reason = "It has an operand that is no Python scalar and not weakly typed, so its dtype is fixed."
    if is_weak:
        reason = "All its operands are Python scalars or weakly typed, so its dtype gives way to the dtype of an array."
    return Candidate(
        f"In `{program.name}`, is the result of {named(equation)} weakly typed?",
        Choice(_WEAK),
        _WEAK[not is_weak],
        _WEAK[not _shape(site).weak_type],
        reason,
        code=code_of(program, equation, lines.get(equation.id, "")),
        marks=(("jaxpr", (equation.id,)),),
    )


def _shape(site: Site) -> Any:
    equation = site.equation
    shapes = [shape_of_aval(atom.aval) for atom in equation.invars]
    constants = [atom.val if is_literal(atom) else None for atom in equation.invars]

    def run(*arrays: Any) -> Any:
        operands = [array if constant is None else constant for array, constant in zip(arrays, constants, strict=True)]
        return equation.primitive.bind(*operands, **equation.params)

    result = jax.eval_shape(run, *shapes)
    return result[0] if isinstance(result, list | tuple) else result


def _evaluated(site: Site) -> TensorSpec | None:
    try:
        shape = _shape(site)
    except Exception:  # primitives that need the axes of a mesh or a loop around them
        return None
    return TensorSpec(tuple(shape.shape), shape.dtype.name)


def _near_specs(equation: Equation) -> tuple[tuple[TensorSpec, str], ...]:
    truth, operands = equation.outputs[0], equation.inputs
    near: list[tuple[TensorSpec, str]] = []
    if equation.primitive in _COMPARISONS and operands:
        near.append((TensorSpec(truth.shape, operands[0].dtype), "The result of a comparison is bool."))
    if equation.primitive.startswith(("reduce_", "arg")) and operands:
        axes = equation.param.get("axes")
        if isinstance(axes, tuple):
            with_ones = tuple(1 if axis in axes else size for axis, size in enumerate(operands[0].shape))
            near.append(
                (TensorSpec(with_ones, truth.dtype), "A reduction drops its axes; `keepdims=True` would keep them.")
            )
    if equation.primitive == "dot_general" and len(truth.shape) >= 2:
        swapped = (*truth.shape[:-2], truth.shape[-1], truth.shape[-2])
        near.append(
            (TensorSpec(swapped, truth.dtype), "The axes of the first operand come before those of the second.")
        )
    if operands:
        near.append((operands[0], "That is its first operand."))
    return tuple((spec, rule) for spec, rule in near if spec != truth)


def _why(equation: Equation) -> str:
    axes = equation.param.get("axes")
    if equation.primitive == "dot_general":
        numbers = equation.param.get("dimension_numbers")
        return f" Its dimension numbers are {numbers}: contracted axes are not in the result." if numbers else ""
    if isinstance(axes, tuple):
        return f" Its axes {axes} are not in the result."
    return " Comparisons have bools." if equation.primitive in _COMPARISONS else ""


def role_by_jax(site: Site) -> str | None:
    """Return the role that JAX's own name stack states: in reverse mode, it has both `jvp` and `transpose`."""
    transforms = {name for name, is_transform in site.stack if is_transform}
    if "transpose" in transforms:
        return "backward"
    return "forward" if "jvp" in transforms else None


def role(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask for the part of a training step that an equation belongs to."""
    sites, lines = sites_by_id(program), jaxpr_lines(program)
    equations = [equation for equation in program.equations if not equation.is_call and equation.role]
    if len({equation.role for equation in equations}) < 2:
        return
    updates = _after_the_gradient(program)
    random.shuffle(equations)
    order = random.sample(ROLES, len(ROLES))
    # One role after the other, so that each is as likely.
    by_role = [[equation for equation in equations if equation.role == role] for role in order]
    for equation in (row[index] for index in range(len(equations)) for row in by_role if index < len(row)):
        site = sites[equation.id]
        stack = "/".join(f"{name}()" if is_transform else name for name, is_transform in site.stack)
        # Outside reverse mode, JAX states no role. An update depends on the gradient, unlike a learning rate.
        second = role_by_jax(site) or ("update" if equation.id in updates else None)
        yield Candidate(
            f"To which part of the training step `{program.name}` does {named(equation)}, belong?",
            Choice(ROLES),
            equation.role,
            second,
            f"JAX's name stack of the equation is `{stack}`."
            if stack
            else "No transform is around the equation, and it depends on the gradient.",
            code=code_of(program, equation, lines.get(equation.id, "")),
            marks=(("jaxpr", (equation.id,)),),
        )


def _after_the_gradient(program: Inspection) -> set[str]:
    """Return the ids of the outermost equations outside transforms that depend on the backward pass."""
    backward: set[Any] = set()
    after: set[str] = set()
    for site in program.traced_program.top:
        by_jax = role_by_jax(site)
        depends = any(not is_literal(atom) and atom in backward for atom in site.equation.invars)
        if by_jax == "backward" or depends:
            backward.update(site.equation.outvars)
        if depends and by_jax is None and not any(is_transform for _, is_transform in site.stack):
            after.add(site.id)
    return after


def count(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask how many equations have a primitive, or a primitive and a role."""
    trace = program.traced_program.trace
    by_jax = Counter(equation.primitive.name for equation in each_equation(trace.closed.jaxpr))
    roles_by_jax = Counter((site.primitive, role_by_jax(site)) for site in program.traced_program.sites)
    totals = Counter(equation.primitive for equation in program.equations)
    by_role = Counter((equation.primitive, equation.role) for equation in program.equations)
    ids = {
        key: tuple(equation.id for equation in program.equations if (equation.primitive, equation.role) == key)
        for key in by_role
    }
    used = Counter(equation.primitive for equation in program.equations if equation.is_used)
    groups: list[tuple[str, str | None]] = [(name, None) for name, number in totals.items() if number > 1]
    if len({role for _, role in by_role}) > 1:
        parts = ("forward", "backward")
        groups += [(name, role) for (name, role), number in by_role.items() if role in parts and number > 1]
    random.shuffle(groups)
    for name, role in groups:
        near = [(used[name], "JAX also lists equations whose results nothing uses.")]
        if role is not None:
            near = [(totals[name], "That is their number in all parts of the step.")]
        truth = totals[name] if role is None else by_role[name, role]
        yield Candidate(
            f"How many {f'{role} ' if role else ''}`{name}` equations has the jaxpr of `{program.name}`? "
            "Bodies of loops and calls count once.",
            Number(),
            truth,
            by_jax[name] if role is None else roles_by_jax[name, role],
            f"It has {totals[name]} `{name}` equations: "
            + ", ".join(
                f"{by_role[name, each]} {each or 'without a role'}" for each in (*ROLES, None) if by_role[name, each]
            )
            + ".",
            tuple((wrong, why) for wrong, why in near if wrong != truth),
            marks=(
                (
                    "jaxpr",
                    tuple(id for key, each in ids.items() if key[0] == name and role in (None, key[1]) for id in each),
                ),
            ),
        )


_MOST_LINES = 7
_LONGEST_LINE = 110


def flow(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which equations read the result of an equation, or need it."""
    # The outermost level alone: inside of a body, other letters are the same values.
    top, lines = program.traced_program.top, jaxpr_lines(program)
    jaxpr = program.traced_program.trace.closed.jaxpr
    starts = [*enumerate(top)]
    random.shuffle(starts)
    for start, site in starts:
        later = top[start + 1 :]
        results, readers, needing = set(site.equation.outvars), set[str](), set[str]()
        for each in later:
            if _operands(each) & set(site.equation.outvars):
                readers.add(each.id)
            if _operands(each) & results:
                needing.add(each.id)
                results |= set(each.equation.outvars)
        is_direct = random.random() < 0.5
        right, other = (readers, needing) if is_direct else (needing, readers)
        short = [each for each in (site, *later) if _is_whole(lines.get(each.id, ""))]
        if site not in short:
            continue
        shown = sorted(random.sample(range(1, len(short)), min(len(short) - 1, _MOST_LINES)))
        rows = [(short[index], lines[short[index].id]) for index in shown]
        marked = tuple(text for each, text in rows if each.id in right)
        if not 0 < len(marked) < len(rows):
            continue
        name = lines[site.id].partition(":")[0]
        if is_direct:
            verb, how = "read", "by an edge of the graph"
            second = tuple(text for _, text in rows if name in text.partition(" = ")[2].split())
            near = "These need it, but some only through others: no edge leads to them."
            reason = "they have it among their operands."
        else:
            verb, how = "need", "directly or through others"
            second = tuple(text for each, text in rows if _is_needed(jaxpr, site, each))
            near = "These read it. Equations that read their results need it too."
            reason = "they read it, or something that was computed from it."
        others = tuple(text for each, text in rows if each.id in other)
        yield Candidate(
            f"Which of these equations of `{program.name}` {verb} the result of equation {site.id}, {how}?",
            Several(tuple(text for _, text in rows)),
            marked,
            second,
            f"The result of equation {site.id} is `{name}`: {reason}",
            ((others, near),) if others and others != marked else (),
            lines[site.id],
            (("jaxpr", tuple(each.id for each, text in rows if text in marked)),),
        )


def _is_whole(line: str) -> bool:
    return 0 < len(line) <= _LONGEST_LINE and "{" not in line and line.count("[") == line.count("]")


def _operands(site: Site) -> set[Any]:
    return {atom for atom in site.equation.invars if not is_literal(atom)}


def _is_needed(jaxpr: Any, first: Site, later: Site) -> bool:
    """Return whether JAX keeps an equation if only the results of a later one are used."""
    kept, _ = dce_jaxpr(jaxpr.replace(outvars=later.equation.outvars), [True] * len(later.equation.outvars))
    results = set(first.equation.outvars)
    return any(results & set(equation.outvars) for equation in kept.eqns)


_OTHERS = ("while", "cond", "gather", "sort", "fft", "cumsum", "rng_bit_generator", "conv_general_dilated")


def transform(program: Inspection, random: Random) -> Iterator[Candidate]:
    """Ask which primitive a transform adds."""
    outputs = program.outputs
    is_scalar = len(outputs) == 1 and outputs[0].spec.shape == ()
    before = Counter(equation.primitive.name for equation in each_equation(program.traced_program.trace.closed.jaxpr))
    transforms = ["vmap", "grad" if is_scalar else "jvp"]
    random.shuffle(transforms)
    for name in transforms:
        steps = step_through(program.function, *program.arguments, through=(name,))
        if steps.problem is not None or len(steps) < 2 or steps[1].after is None:
            continue
        step = steps[1]
        primitives = {instruction.id: instruction.opcode for instruction in step.after.instructions}
        new = Counter(primitives.get(marked.id, "") for marked in step.equations if marked.mark == "new")
        after = _counts_after(program, name)
        added = [each for each in new if each and after[each] > before[each]]
        same = [each for each in {*before, *_OTHERS} if after[each] <= before[each] and each not in new]
        random.shuffle(added)
        for primitive in sorted(added, key=lambda each: before[each] > 0):
            if len(same) < 3:
                break
            wrong = random.sample(sorted(same), 3)
            choices = (primitive, *wrong)
            marked = next(
                each for each in step.equations if primitives.get(each.id) == primitive and each.mark == "new"
            )
            more = [each for each in choices if after[each] > before[each]]
            yield Candidate(
                f"Of which primitive has the jaxpr of `jax.{name}({program.name})` more equations than that of "
                f"`{program.name}`?",
                Choice(tuple(random.sample(choices, len(choices)))),
                primitive,
                more[0] if len(more) == 1 else None,
                f"`{name}` {step.explanation.rstrip('.')}. The jaxpr has {before[primitive]} `{primitive}` before and "
                f"{after[primitive]} after it{f': {marked.note}' if marked.note else ''}.",
            )


def _counts_after(program: Inspection, name: str) -> Counter[str]:
    def batched(leaf: Any) -> Any:
        array = jax.eval_shape(jnp.asarray, leaf)  # a Python number has no shape
        return jax.ShapeDtypeStruct((2, *array.shape), array.dtype)

    def function(*arguments: Any) -> Any:  # without the attributes of the original, such as a `trace` of its own
        return program.function(*arguments)

    args: Any = program.arguments
    if name == "vmap":
        closed = jax.make_jaxpr(jax.vmap(function))(*jax.tree.map(batched, args))
    elif name == "grad":
        closed = jax.make_jaxpr(jax.grad(function))(*args)
    else:
        tangents = floats(jax.eval_shape(lambda *leaves: leaves, *args))
        closed = jax.make_jaxpr(lambda args, tangents: jax.jvp(function, args, with_zeros(args, tangents)))(
            args, tangents
        )
    return Counter(equation.primitive.name for equation in each_equation(closed.jaxpr))
