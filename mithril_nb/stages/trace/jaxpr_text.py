"""The jaxpr as text in JAX's format: one equation per line, indented nested jaxprs, long params shortened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, product
from string import ascii_lowercase
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.jax_versions import is_literal
from mithril_nb.stages.records import Equation, Ids, Instruction, Read
from mithril_nb.stages.trace.equations import Site, Sites, Wiring, wirings
from mithril_nb.stages.trace.params import (
    BLOCKS,
    COMBINER,
    DEVICES,
    ESTIMATE,
    GROUP,
    KERNEL,
    PARTITIONED,
    UNUSED,
)  # fmt: skip
from mithril_nb.stages.trace.tracing import Trace

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
_LONGEST_PARAM = 60
# Params that are not printed: they do not matter to the reader, or their jaxpr is printed as a body.
_HIDDEN = {
    "sharding", "out_sharding", "weak_type", "prevent_cse", "differentiated", "policy", "symbolic_zeros", "num_consts",
    "inline", "keep_unused", "donated_invars", "in_shardings", "out_shardings", "in_layouts", "out_layouts", "ctx_mesh",
    "compiler_options_kvs", "resource_env", "linear", "jaxpr", "call_jaxpr", "branches", "cond_jaxpr", "body_jaxpr",
    "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "update_jaxpr", "update_consts", "_split_transpose",
    "ft_in", "ft_out", "grid_mapping", "known_trip_count", "num_carry", "accuracy", "out_dtype",
    "dimensions_are_sorted", "out_trees",
}  # fmt: skip
# Params that this package adds for cost rules. JAX does not have them, so they are not printed.
_OURS = frozenset({COMBINER, DEVICES, UNUSED, GROUP, PARTITIONED, KERNEL, BLOCKS, ESTIMATE})


def print_jaxpr(trace: Trace, top: Sites, equations: dict[str, Equation], owner: Callable[[int], str]) -> Read:
    """Return the text of a jaxpr, and its instructions: first the inputs, then the equations.

    `equations`: All equations by id, nested ones included. `owner`: A function that returns the path of the block that
    an input belongs to, given the index of the input.
    """
    return _JaxprPrinter(equations).program(trace, top, owner)


def short_spec(spec: TensorSpec) -> str:
    """Return a spec in the notation of a jaxpr.

    Examples:
        >>> short_spec(TensorSpec((32, 64))), short_spec(TensorSpec((), "bool"))
        ('f32[32,64]', 'bool[]')
    """
    dtype, name = spec.dtype, spec.dtype.rstrip("0123456789")
    if name in _SHORT and dtype != "float0":  # the dtype of cotangents of integers, not a float
        dtype = _SHORT[name] + dtype[len(name) :]
    return f"{dtype}[{','.join(map(str, spec.shape))}]"


class _JaxprPrinter:
    def __init__(self, equations: dict[str, Equation]):
        self._equations = equations
        self._names: dict[Any, str] = {}
        self._producers: dict[Any, tuple[str, int]] = {}  # instruction, and index of its result
        self._carries: dict[Any, tuple[str, int]] = {}  # of bodies' inputs: loop, index of the next value
        self._loops: dict[str, Ids] = {}  # by id of a loop, the instructions that compute its results
        self._next: dict[tuple[str, int], Any] = {}
        self._carried: dict[str, list[tuple[str, int]]] = {}  # by id of an instruction, the carries that it uses
        self._letters = ("".join(letters) for size in count(1) for letters in product(ascii_lowercase, repeat=size))
        self._specs: dict[Any, str] = {}  # by abstract value, which JAX shares
        self._lines: list[str] = []
        self._instructions: list[Instruction] = []

    def program(self, trace: Trace, top: Sites, owner: Callable[[int], str]) -> Read:
        jaxpr = trace.closed.jaxpr
        self._lines.append("{ lambda")
        for var in jaxpr.constvars:
            self._lines.append(f"    {self._bind(var)}  # constant")
        for index, (var, leaf) in enumerate(zip(jaxpr.invars, trace.inputs, strict=True)):
            self._lines.append(f"    {self._bind(var)}  # {printable(leaf.name)}")
            block = owner(index)
            shares = ((block, 1.0),) if block else ()
            origin = "inferred" if block else None
            self._instructions.append(
                Instruction(
                    f"arg{index}",
                    "parameter",
                    len(self._lines),
                    (f"arg{index}",),
                    shares,
                    None,
                    origin,
                    shapes=(leaf.spec,),
                )
            )
            self._producers[var] = f"arg{index}", 0
        self._lines.append("  let")
        self._body(top, "    ")
        self._lines.append(f"  in ({', '.join(map(self._use, jaxpr.outvars))}) }}")
        if self._carried:
            next_values: dict[str, dict[str, None]] = {id: {} for id in self._carried}
            for id, key in ((id, key) for id, carries in self._carried.items() for key in carries):
                seen = set()
                value: Any = key
                while isinstance(value, tuple) and value not in seen:  # a next value may itself be another carry
                    seen.add(value)
                    value = self._next.get(value)
                if isinstance(value, str):
                    next_values[id][value] = None
            self._instructions = [
                replace(instruction, carried=tuple(next_values[instruction.id]))
                if instruction.id in self._carried
                else instruction
                for instruction in self._instructions
            ]
        return "\n".join(self._lines) + "\n", tuple(self._instructions)

    def _body(self, body: Sites, indent: str) -> Ids:
        ids: list[str] = []
        for site in body:
            equation = site.equation
            record = self._equations[site.id]
            results = " ".join(["_" if jax_versions.is_dropped(var) else self._bind(var) for var in equation.outvars])
            operands = [self._use(atom) for atom in equation.invars]
            makers = [self._producer(atom) for atom in equation.invars]
            operand_ids = tuple([id or name for (id, _), name in zip(makers, operands, strict=True)])
            picks = tuple([pick for _, pick in makers]) if any(pick for _, pick in makers) else ()
            if carries := [self._carries[atom] for atom in site.variables if atom in self._carries]:
                self._carried[site.id] = carries
            both = [(id, pick) for id, (_, pick) in zip(operand_ids, makers, strict=True)]
            for jaxpr, _ in site.bodies:
                count = len(jaxpr.invars)
                if site.primitive == "while":
                    # The operands of a `while`: constants of the condition, constants of the body, carries.
                    inputs = both[-count:] if jaxpr is site.bodies[-1][0] else []
                else:
                    # The first operand of a `cond` is the index of the branch.
                    inputs = both if len(both) == count else both[1:]
                self._producers.update(
                    zip(jaxpr.invars, inputs if len(inputs) == count else [("", 0)] * count, strict=True)
                )
            loops = wirings(site) if site.primitive in ("scan", "while") else []
            self._connect_rounds(site, loops)
            own_params = [(key, value, _compact(value)) for key, value in record.params if key not in _OURS]
            params = tuple([(key, text) for key, _, text in own_params])
            head = f"{indent}{results}{' = ' if results else ''}{site.primitive}"
            head = " ".join([head + _params(site.primitive, own_params), *operands])
            position, start = len(self._instructions), len(self._lines) + 1
            inner: Ids = ()
            if len(site.bodies) == 1:
                ((jaxpr, sites),) = site.bodies
                self._lines.append(f"{head} {{ lambda {self._binders(jaxpr)}")
                inner = self._body(sites, f"{indent}    ")
                self._lines.append(f"{indent}  in ({', '.join(map(self._use, jaxpr.outvars))}) }}")
            elif site.bodies:
                self._lines.append(f"{head} {{")
                # The condition comes before the body in the params of a `while`.
                is_while = site.primitive == "while" and len(site.bodies) == 2
                for index, (jaxpr, sites) in enumerate(site.bodies):
                    label = ("while", "do")[index] if is_while else f"branch {index}"
                    self._lines.append(f"{indent}  {label}: lambda {self._binders(jaxpr)}")
                    inner += self._body(sites, f"{indent}      ")
                    self._lines.append(f"{indent}    in ({', '.join(map(self._use, jaxpr.outvars))})")
                self._lines.append(f"{indent}}}")
            else:
                self._lines.append(head)
            instruction = Instruction(
                site.id,
                site.primitive,
                start,
                (site.id, *inner),
                record.shares,
                record.role,
                record.origin,
                len(self._lines) - start + 1,
                operand_ids,
                record.outputs,
                params,
                record.transforms,
                (record.source_lines,) if record.source else (),
                (record.library_source,) if record.library_source else (),
                picks,
                self._results(site, [loops[0].jaxpr] if loops else [jaxpr for jaxpr, _ in site.bodies]),
            )
            self._instructions.insert(position, instruction)  # before the instructions of its bodies
            self._producers.update((var, (site.id, index)) for index, var in enumerate(equation.outvars))
            ids += instruction.equations
        return tuple(ids)

    def _producer(self, atom: Any) -> tuple[str, int]:
        return ("", 0) if is_literal(atom) else self._producers.get(atom, ("", 0))

    def _connect_rounds(self, site: Site, loops: Sequence[Wiring]) -> None:
        """Record which inputs of the bodies are carries, and which variables hold their next values."""
        if not loops:
            for jaxpr, _ in site.bodies:
                operands = site.equation.invars[-len(jaxpr.invars) :] if jaxpr.invars else ()
                for var, atom in zip(jaxpr.invars, operands, strict=False):
                    self._carries.pop(var, None)  # a shared body binds the same variables again
                    if not is_literal(atom) and atom in self._carries:
                        self._carries[var] = self._carries[atom]
            return
        loop = loops[0]
        for wiring in loops:
            first = loop.carried[0][0] if wiring is loop and loop.carried else wiring.constants
            for number, var in enumerate(wiring.jaxpr.invars):
                self._carries.pop(var, None)
                atom = site.equation.invars[(wiring.operands or ())[number]]
                if 0 <= number - first < len(loop.carried):
                    key = site.id, loop.carried[number - first][1]
                    self._carries[var], self._next[key] = key, loop.jaxpr.outvars[key[1]]
                elif not is_literal(atom) and atom in self._carries:
                    self._carries[var] = self._carries[atom]

    def _results(self, site: Site, bodies: Sequence[Any]) -> Ids:
        """Return `Instruction.results`, and record the instructions that compute the next values of carries."""
        outvars = site.equation.outvars
        if site.primitive == "pallas_call" or not all(len(jaxpr.outvars) == len(outvars) for jaxpr in bodies):
            return ()
        inside = f"{site.id}."
        ids: list[str] = []
        for jaxpr in bodies:
            for index, atom in enumerate(jaxpr.outvars):
                id, pick = self._producer(atom)
                inner = self._loops.get(id, ())
                ids.append((inner[pick] if inner else id) if id.startswith(inside) else "")
                if (key := (site.id, index)) in self._next:
                    self._next[key] = ids[-1] or (None if is_literal(atom) else self._carries.get(atom))
        if site.primitive != "cond":
            self._loops[site.id] = tuple(ids)
        return tuple(ids)

    def _binders(self, jaxpr: Any) -> str:
        return " ".join([*map(self._bind, (*jaxpr.constvars, *jaxpr.invars)), "let"])

    def _bind(self, var: Any) -> str:
        name = self._names[var] = next(self._letters)  # a shared body binds the same variables again
        return f"{name}:{self._spec(var.aval)}"

    def _spec(self, aval: Any) -> str:
        spec = self._specs.get(aval)
        if spec is None:
            spec = self._specs[aval] = short_spec(jax_versions.spec_of(aval))
        return spec

    def _use(self, atom: Any) -> str:
        if not is_literal(atom):
            return self._names.get(atom, "_")
        spec = jax_versions.spec_of(atom.aval)
        return f"{_number(atom.val) if spec.size == 1 else '...'}:{self._spec(atom.aval)}"


def _number(value: Any) -> str:
    # NumPy's printing would take half of the time of printing a jaxpr.
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, int) and not isinstance(plain, bool):
        return int.__repr__(plain)  # JAX has a subclass of `int` that also prints its dtype
    return f"{plain:.7g}" if isinstance(plain, float) and plain % 1 else str(plain)[:24]


def _params(primitive: str, params: Sequence[tuple[str, Any, str]]) -> str:
    parts = []
    for key, value, text in params:
        if key in _HIDDEN or value is None or value is False:
            continue
        if primitive == "dot_general" and key == "dimension_numbers":
            (left, right), (left_batch, right_batch) = value
            text = f"{list(left)}x{list(right)}"
            text += f" batch {list(left_batch)}x{list(right_batch)}" if left_batch or right_batch else ""
        # The name of a function is never shortened.
        if len(text) > _LONGEST_PARAM and key != "name":
            text = text[: _LONGEST_PARAM - 3] + "..."
        parts.append(f"{key}={text}")
    return f"[{' '.join(parts)}]" if parts else ""


def _compact(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join([_compact(item) for item in value])}{',' if len(value) == 1 else ''})"
    return printable(value) if isinstance(value, str) else str(value)


def printable(text: str) -> str:
    """Escape line breaks and control characters, which names in the user's program may contain."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()
