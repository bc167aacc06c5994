"""The jaxpr as text: JAX's own look, one equation a line, nested jaxprs as indented bodies, long things shortened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.equations import Site
from mithril_nb.stages.records import Equation, Instruction
from mithril_nb.stages.tracing import Trace

_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}
_LONGEST_PARAM = 60
_DULL = {
    "sharding", "out_sharding", "weak_type", "prevent_cse", "differentiated", "policy", "symbolic_zeros", "num_consts",
    "inline", "keep_unused", "donated_invars", "in_shardings", "out_shardings", "in_layouts", "out_layouts", "ctx_mesh",
    "compiler_options_kvs", "resource_env", "linear", "jaxpr", "call_jaxpr", "branches", "cond_jaxpr", "body_jaxpr",
    "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk", "bwd", "update_jaxpr", "update_consts", "_split_transpose",
    "ft_in", "ft_out", "num_carry", "accuracy", "out_dtype", "dimensions_are_sorted", "out_trees",
}  # fmt: skip
"""Params that say nothing to a reader, or whose jaxpr is printed as a body."""


def print_jaxpr(
    trace: Trace,
    top: list[Site],
    equations: dict[str, Equation],
    owner: Callable[[int], str],
) -> tuple[str, tuple[Instruction, ...]]:
    """Return the text of a jaxpr, and its instructions: its inputs, then its equations.

    Args:
        trace: The program.
        top: The sites of its equations.
        equations: Its equations by id.
        owner: Gives the block that an input belongs to, by the input's index.
    """
    return _Printer(equations).program(trace, top, owner)


def short_spec(spec: TensorSpec) -> str:
    """Return a spec as JAX writes it.

    Examples:
        >>> short_spec(TensorSpec((32, 64))), short_spec(TensorSpec((), "bool"))
        ('f32[32,64]', 'bool[]')
    """
    return f"{_short_dtype(spec.dtype)}[{','.join(map(str, spec.shape))}]"


def _short_dtype(dtype: str) -> str:
    name = dtype.rstrip("0123456789")
    return _SHORT[name] + dtype[len(name) :] if name in _SHORT else dtype


class _Printer:
    def __init__(self, equations: dict[str, Equation]):
        self._equations = equations
        self._names: dict[Any, str] = {}
        self._makers: dict[Any, str] = {}
        self._bound = 0
        self._specs: dict[TensorSpec, str] = {}
        self._lines: list[str] = []
        self._found: list[Instruction] = []

    def program(
        self, trace: Trace, top: list[Site], owner: Callable[[int], str]
    ) -> tuple[str, tuple[Instruction, ...]]:
        jaxpr = trace.closed.jaxpr
        self._lines.append("{ lambda")
        for var in jaxpr.constvars:
            self._lines.append(f"    {self._bind(var)}  # constant")
        for index, (var, leaf) in enumerate(zip(jaxpr.invars, trace.inputs, strict=True)):
            self._lines.append(f"    {self._bind(var)}  # {_one_line(leaf.name)}")
            block = owner(index)
            shares = ((block, 1.0),) if block else ()
            origin = "inferred" if block else None
            self._found.append(
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
            self._makers[var] = f"arg{index}"
        self._lines.append("  let")
        self._body(top, "    ")
        self._lines.append(f"  in ({', '.join(map(self._use, jaxpr.outvars))}) }}")
        return "\n".join(self._lines) + "\n", tuple(self._found)

    def _body(self, body: list[Site], indent: str) -> tuple[str, ...]:
        ids: list[str] = []
        for site in body:
            equation = site.equation
            place = len(self._found)
            self._found.append(Instruction(site.id, site.primitive, len(self._lines) + 1))
            results = " ".join("_" if jax_versions.is_dropped(var) else self._bind(var) for var in equation.outvars)
            operands = "".join(f" {self._use(atom)}" for atom in equation.invars)
            taken = tuple(map(self._maker, equation.invars))
            for jaxpr, _ in site.bodies:
                self._hand_in(site, jaxpr, taken)
            record = self._equations[site.id]
            head = f"{indent}{results}{' = ' if results else ''}{site.primitive}{_params(record)}{operands}"
            start = len(self._lines) + 1
            inner: tuple[str, ...] = ()
            if len(site.bodies) == 1:
                ((jaxpr, sites),) = site.bodies
                self._lines.append(f"{head} {{ lambda {self._binders(jaxpr)}")
                inner = self._body(sites, f"{indent}    ")
                self._lines.append(f"{indent}  in ({', '.join(map(self._use, jaxpr.outvars))}) }}")
            elif site.bodies:
                self._lines.append(f"{head} {{")
                for label, (jaxpr, sites) in zip(_labels(record, len(site.bodies)), site.bodies, strict=True):
                    self._lines.append(f"{indent}  {label}: lambda {self._binders(jaxpr)}")
                    inner += self._body(sites, f"{indent}      ")
                    self._lines.append(f"{indent}    in ({', '.join(map(self._use, jaxpr.outvars))})")
                self._lines.append(f"{indent}}}")
            else:
                self._lines.append(head)
            self._found[place] = Instruction(
                site.id,
                site.primitive,
                start,
                (site.id, *inner),
                ((record.block, 1.0),) if record.block else (),
                record.role,
                record.origin,
                len(self._lines) - start + 1,
                taken,
                record.outputs,
                tuple((key, _compact(value)) for key, value in record.params),
                record.transforms,
                (record.source,) if record.source else (),
            )
            self._makers.update(dict.fromkeys(equation.outvars, site.id))
            ids += (site.id, *inner)
        return tuple(ids)

    def _maker(self, atom: Any) -> str:
        """What gives a value: the id of an instruction, or the value's own name where it comes in from outside."""
        return self._use(atom) if jax_versions.is_literal(atom) else self._makers.get(atom) or self._use(atom)

    def _hand_in(self, site: Site, jaxpr: Any, taken: tuple[str, ...]) -> None:
        """The inputs of a body come from what its equation takes, where JAX says which is which."""
        count = len(jaxpr.invars)
        if site.primitive == "while":
            given = taken[-count:] if jaxpr is site.bodies[-1][0] else ()
        else:
            given = taken if len(taken) == count else taken[1:]  # the first that a `cond` takes says which branch
        same = len(given) == count
        self._makers.update((var, given[place] if same else "") for place, var in enumerate(jaxpr.invars))

    def _binders(self, jaxpr: Any) -> str:
        return " ".join([*map(self._bind, (*jaxpr.constvars, *jaxpr.invars)), "let"])

    def _bind(self, var: Any) -> str:
        name = self._names[var] = _letters(self._bound)  # a body that is shared binds the same variables again
        self._bound += 1
        spec = jax_versions.spec_of(var.aval)
        if spec not in self._specs:
            self._specs[spec] = short_spec(spec)
        return f"{name}:{self._specs[spec]}"

    def _use(self, atom: Any) -> str:
        if not jax_versions.is_literal(atom):
            return self._names.get(atom, "_")
        spec = jax_versions.spec_of(atom.aval)
        return f"{_number(atom.val) if spec.size == 1 else '...'}:{short_spec(spec)}"


def _number(value: Any) -> str:
    """Return a literal in few characters; NumPy's own printing would take half of the time of the whole text."""
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, int) and not isinstance(plain, bool):
        return int.__repr__(plain)  # JAX has an `int` of its own that prints its dtype as well
    return f"{plain:.7g}" if isinstance(plain, float) and plain % 1 else str(plain)[:24]


def _letters(number: int) -> str:
    text = ""
    number += 1
    while number:
        number, digit = divmod(number - 1, 26)
        text = chr(ord("a") + digit) + text
    return text


def _labels(record: Equation, count: int) -> list[str]:
    if record.primitive == "while" and count == 2:
        return ["while", "do"]
    return [f"branch {index}" for index in range(count)]


def _params(record: Equation) -> str:
    shown = []
    for key, value in record.params:
        if key in _DULL or value is None or value is False:
            continue
        text = _dot_dims(value) if record.primitive == "dot_general" and key == "dimension_numbers" else _compact(value)
        if len(text) > _LONGEST_PARAM:
            text = text[: _LONGEST_PARAM - 3] + "..."
        shown.append(f"{key}={text}" if key != "name" else f"name={_one_line(str(value))}")
    return f"[{' '.join(shown)}]" if shown else ""


def _compact(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({','.join(map(_compact, value))}{',' if len(value) == 1 else ''})"
    return _one_line(str(value))


def _one_line(text: str) -> str:
    """Names are a person's own: one with a line break must not make two lines of one."""
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _dot_dims(value: Any) -> str:
    (left, right), (left_batch, right_batch) = value
    text = f"{list(left)}x{list(right)}"
    return text + (f" batch {list(left_batch)}x{list(right_batch)}" if left_batch or right_batch else "")
