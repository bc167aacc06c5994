"""Costs of a program with symbolic sizes: as formulas, or for numbers that replace the sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from mithril_nb.cost.analytic import (
    COUNTS,
    IDLE,
    SENDS,
    UNDECIDED,
    branch_states,
    count_most_expensive_branches,
    moved_rows,
)
from mithril_nb.cost.by_name import with_outer
from mithril_nb.cost.formulas.communication import SENDS_MORE, Sent
from mithril_nb.cost.formulas.parsing import parse, written_with
from mithril_nb.cost.formulas.rules import NOT_SENT, Counted, counted
from mithril_nb.cost.formulas.sizes import count
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, constant, total
from mithril_nb.cost.kinds import Kinds, Numbers, kinds_of, row_of
from mithril_nb.cost.records import COMMUNICATION, NO_TRIP_COUNT, CostRow
from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.graph.paths import is_within
from mithril_nb.stages.inspect_options import fitting_numbers
from mithril_nb.stages.once import paused_collector
from mithril_nb.stages.param_names import example_of_params, why_unknown
from mithril_nb.stages.records import Equation

if TYPE_CHECKING:
    from mithril_nb.stages.records import Input


@dataclass(frozen=True)
class SymbolicProgram:
    """The equations of a program whose sizes may be symbolic.

    Attributes:
        name: Name of the program.
        equations: The equations. The equations inside a call, such as `jit`, follow the call.
        inputs: The inputs of the program.
        sizes: A dict from each symbolic size to a number; empty to keep the sizes symbolic.
        known_kinds: The result of `kinds_of` for the equations if it is known already, else `None`.
        check: A function that raises an error if the program cannot have the given sizes; `None` if all are valid.
    """

    name: str
    equations: tuple[Equation, ...]
    inputs: tuple[Input, ...]
    sizes: Mapping[str, int] = field(default_factory=dict[str, int])
    known_kinds: Kinds | None = None
    check: Callable[[Mapping[str, int]], None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The names of the symbolic sizes, in the order of the inputs; empty if numbers replace them."""
        if self.sizes:
            return ()
        names: dict[str, None] = {}
        for spec in (argument.spec for argument in self.inputs):
            for dim in spec.shape:
                if isinstance(dim, str):
                    names.update(dict.fromkeys(sorted(parse(dim).names)))
        return tuple(names)

    @cached_property
    def params(self) -> dict[str, int | None] | None:
        """A dict from each block with parameters to their number; `None` if it is unknown which inputs are parameters.

        A number is `None` if it depends on a symbolic size.
        """
        if unknown_params(self.inputs) is not None:
            return None
        params: dict[str, int | None] = {}
        put = Numbers(self.sizes)
        for argument in self.inputs:
            if argument.is_param:
                before, size = params.get(argument.block, 0), put.spec(argument.spec).size
                params[argument.block] = None if before is None or size is None else before + size
        return params

    def at(self, sizes: Mapping[str, int]) -> SymbolicProgram:
        """Return the same program with numbers for the symbolic sizes. `Cost.at` documents arguments and errors."""
        self._check(sizes)
        if self.check is not None and sizes:
            self.check(sizes)
        # The kinds do not depend on the numbers, so they are passed on.
        return SymbolicProgram(self.name, self.equations, self.inputs, dict(sizes), self.kinds)

    @cached_property
    def kinds(self) -> Kinds:
        """The equations grouped by kind."""
        return self.known_kinds or kinds_of(self.equations)

    def costs(self) -> tuple[CostRow, ...]:
        """Return the cost rows of all equations, then those of `moved_rows`.

        The cost of each kind of equation is computed only once.
        """
        put = Numbers(self.sizes)
        with paused_collector():
            pairs = zip(self.kinds.examples, self.counted, self.kinds.devices, strict=True)
            rows = [row_of(put, equation, times, each, devices) for (equation, times), each, devices in pairs]
            # Not with `dataclasses.replace`, which takes five times as long: a program has thousands of rows.
            costs = tuple(
                [
                    CostRow(
                        equation.id,
                        equation.primitive,
                        ((equation.block, 1.0),) if equation.block else (),
                        equation.role,
                        like.flops,
                        like.transcendentals,
                        like.bytes_accessed,
                        like.repeats,
                        like.formula,
                        None,
                        like.once,
                        (equation.id,),
                        like.letters,
                        like.rounds,
                        like.payload_bytes,
                        like.wire_bytes,
                        (),
                        like.macs,
                    )
                    for equation, index in self.kinds.members
                    for like in [rows[index]]
                ]
            )
        return (*count_most_expensive_branches(self.kinds.conditions, costs), *moved_rows(self.inputs))

    @cached_property
    def counted(self) -> tuple[Counted, ...]:
        """The cost of one run of an equation of each kind; costs that depend on symbolic sizes are polynomials."""
        put = Numbers(self.sizes)
        return tuple([counted(put.equation(equation, None)) for equation, _ in self.kinds.examples])

    def polynomial(self, path: str = "", field: str = "flops", role: str | None = None) -> tuple[Polynomial, list[str]]:
        """Return the total cost of a block, as a polynomial in the symbolic sizes.

        Args:
            path: The block; `""` is the whole program.
            field: `"flops"`, `"transcendentals"`, `"bytes_accessed"`, `"payload_bytes"`, `"wire_bytes"` or `"params"`.
            role: `"forward"`, `"backward"` or `"update"`; by default all.

        Returns:
            The polynomial, and a text for each group of unknown costs that it leaves out: `"2 × sort: no rule"`.

        Raises:
            UnknownOptionError: Unknown block, field or role.
        """
        self._check_names(path, field, role)
        if field == "params":
            why = unknown_params(self.inputs)
            if why is not None and not role:
                return total([]), [why[0]]
            own = [argument.spec for argument in self.inputs if argument.is_param and is_within(argument.block, path)]
            put = Numbers(self.sizes)
            return total([] if role else [count(put.spec(spec)) for spec in own]), []
        added, unknown = self._added(self._chosen(path, role), field)
        moved = [argument for argument in self.inputs if argument.is_moved and is_within(argument.block, path)]
        if moved and field in COMMUNICATION and not role:
            unknown = [*unknown, f"{len(moved)} × parameter: {NOT_SENT}"]
        return added, unknown

    def formulas_of(self, path: str) -> dict[str, str]:
        """Return the formulas of a block, with the blocks inside it: `{"flops": "2·B·I·O", "params": "I·O"}`.

        Costs that do not depend on symbolic sizes are left out.
        """
        fields = (*_FIELDS, "params") if self.symbols else ()
        return {field: text for field in fields if (text := _open(*self.polynomial(path, field, None)))}

    @cached_property
    def formulas(self) -> Mapping[str | None, Mapping[str, str]]:
        """The formulas of each block, without the blocks inside it: `{"net": {"flops": "2·B·I·O"}}`.

        The key `""` has the unattributed cost, `None` the whole program. Costs that do not depend on symbolic sizes are
        left out. A formula that leaves out unknown costs begins with `"≥ "`.
        """
        if not self.symbols:
            return {}
        params: dict[str | None, list[Expression]] = {}
        for argument in self.inputs:
            for path in (None, argument.block) if argument.is_param else ():
                params.setdefault(path, []).append(count(argument.spec))
        formulas = self.formulas_by(lambda equation: equation.block)
        for path, counts in params.items():
            if text := _open(total(counts), []):
                formulas.setdefault(path, {})["params"] = text
        return formulas

    def formulas_by(self, group_of: Callable[[Equation], str]) -> dict[str | None, dict[str, str]]:
        """Return formulas like `formulas`, without `"params"`, for groups that `group_of` assigns to equations."""
        chosen: dict[str | None, dict[_Kind, int]] = {None: self._chosen("", None)}
        for equation, index in self.kinds.members:
            kind = index, self._branches.get(equation.id, COUNTS)
            if kind in chosen[None]:
                own = chosen.setdefault(group_of(equation), {})
                own[kind] = own.get(kind, 0) + 1
        return {
            group: {field: text for field in _FIELDS if (text := _open(*self._added(kinds, field)))}
            for group, kinds in chosen.items()
        }

    def _added(self, chosen: Mapping[_Kind, int], field: str) -> tuple[Polynomial, list[str]]:
        """Return the result of `polynomial` for one cost of these equations, given their number by kind and state."""
        parts: list[Expression] = []
        unknown: dict[str, int] = {}
        for (index, state), times in chosen.items():
            equation, each = self.kinds.examples[index][0], self.counted[index]
            repeats = self._repeats(index)
            value = getattr(each, _FIELDS[field])
            if value == 0 or (state == SENDS and field not in COMMUNICATION):
                continue
            if state != COUNTS or value is None or repeats is None:
                why = NO_TRIP_COUNT if value is not None else each.why_unknown(field)
                reason = f"{equation.primitive}: {self._undecided(state) or why}"
                unknown[reason] = unknown.get(reason, 0) + times
            else:
                times *= 1 if field in COMMUNICATION else self.kinds.devices[index]
                parts.append(constant(value) * repeats * times)
        return total(parts), [f"{times} × {reason}" for reason, times in unknown.items()]

    def _undecided(self, state: str) -> str:
        if state != UNDECIDED:
            return SENDS_MORE if state == SENDS else ""
        return "the most expensive branch " + ("depends on sizes" if self.symbols else "is unknown")

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on unknown costs of a program with symbolic sizes."""
        numbers = ", ".join(f"{name}={number}" for name, number in self.example.items())
        symbolic = (
            f"costs that depend on {', '.join(self.symbols)} have no number: use cost.at({numbers}) or cost.formula()"
        )
        fields = ("flops", "transcendentals", "bytes_accessed")
        return (symbolic, *[f"{field} of {reason}" for field in fields for reason in self.polynomial("", field)[1]])

    @cached_property
    def example(self) -> Mapping[str, int]:
        """A dict from each symbolic size to an example number, such as `{"batch": 32}`."""
        return fitting_numbers(self.symbols, self.check)

    def in_numbers(self, path: str, field: str, role: str | None) -> str:
        """Return the total cost of a block as a sum of products of numbers: `"2·32·784·10 + 320"`; `""` if it is 0.

        The arguments are those of `polynomial`.
        """
        terms: dict[str, int] = {}
        values: dict[str, int] = {}
        for (index, state), times in self._chosen(path, role).items():
            rule, repeats = self.counted[index].rule, self._repeats(index)
            times *= self.kinds.devices[index]
            if rule is not None and state == COUNTS and isinstance(repeats, int) and repeats:
                text, value = getattr(rule, field), getattr(self.counted[index], field)
                if value:
                    term = written_with(text, rule.letters)
                    terms[term] = terms.get(term, 0) + times * repeats
                    values[term] = value
        ordered = sorted(terms, key=lambda term: (-values[term] * terms[term], term))
        texts = [_times(terms[term], term) for term in ordered]
        return " + ".join(texts)

    def _repeats(self, index: int) -> Expression | None:
        equation, repeats = self.kinds.examples[index]
        if not equation.is_used:
            return 0
        return repeats if repeats is None or not self.sizes else constant(repeats).evaluate(**self.sizes)

    def _chosen(self, path: str, role: str | None) -> dict[_Kind, int]:
        """Count the equations in a block and role by kind and state; equations in state `IDLE` are left out."""
        counts: dict[_Kind, int] = {}
        for equation, index in self.kinds.members:
            if is_within(equation.block, path) and role in (None, equation.role):
                key = index, self._branches.get(equation.id, COUNTS)
                if key[1] != IDLE:
                    counts[key] = counts.get(key, 0) + 1
        return counts

    @cached_property
    def _branches(self) -> Mapping[str, str]:
        """The result of `branch_states` for these equations."""
        return branch_states(self.kinds.conditions, self.kinds.members, self._weight, self._sent)

    def _sent(self, index: int) -> Sent:
        """Return the payload and wire bytes of an equation of a kind in all its runs."""
        each, repeats = self.counted[index], self._repeats(index)
        payload, wire = (
            0 if value == 0 else None if value is None or repeats is None else constant(value) * repeats
            for value in (each.payload, each.wire)
        )
        return payload, wire

    def _weight(self, index: int) -> Expression | None:
        """Return the FLOPs plus transcendentals of an equation of a kind in all its runs; `None` if unknown."""
        each, repeats = self.counted[index], self._repeats(index)
        if each.flops is None or each.transcendentals is None:
            return None
        operations = each.flops + each.transcendentals
        return 0 if operations == 0 else None if repeats is None else constant(operations) * repeats

    def _check_names(self, path: object, field: object, role: object) -> None:
        blocks = sorted(
            {equation.block for equation, _ in self.kinds.members}
            | {argument.block for argument in self.inputs if argument.is_param}
        )
        paths, figures = ["", *with_outer(blocks)], [*_FIELDS, "params"]
        roles = ["forward", "backward", "update"]
        for noun, name, names, listed in (
            ("block", path, paths, blocks),
            ("cost", field, figures, figures),
            ("role", role, [None, "", *roles], roles),
        ):
            if not isinstance(name, str | None) or name not in names:
                raise UnknownOptionError(
                    f"cannot write a formula: program {self.name!r} has no {noun} {short_repr(name)}.",
                    ((f"{noun}s", (", ".join(filter(None, listed[:20])) or "none") + ", ..." * (len(listed) > 20)),),
                )

    def _check(self, sizes: Mapping[str, int]) -> None:
        # `isinstance` would accept True, which is an int.
        wrong = {name: value for name, value in sizes.items() if type(value) is not int or value < 1}
        missing = [name for name in self.symbols if name not in sizes]
        unknown = [name for name in sizes if name not in self.symbols]
        if not (wrong or missing or unknown):
            return
        facts = [("symbolic sizes", ", ".join(self.symbols) or "none")]
        facts += [("missing", ", ".join(missing))] if missing else []
        facts += [("unknown", ", ".join(unknown))] if unknown else []
        facts += [("invalid", ", ".join(f"{name}={value!r}" for name, value in wrong.items()))] if wrong else []
        example = ", ".join(f"{name}={number}" for name, number in self.example.items())
        raise UnknownOptionError(
            f"the given sizes do not match the symbolic sizes of program {self.name!r}.",
            tuple(facts),
            f"cost.at({example})" if self.symbols else "cost.total  # this program has no symbolic sizes",
        )


_MOST_HOLDERS = 3
_Kind = tuple[int, str]
"""The index of a kind of equation in `Kinds.examples`, and a state such as `COUNTS`; see `branch_states`."""
_FIELDS = {
    "flops": "flops",
    "transcendentals": "transcendentals",
    "bytes_accessed": "bytes",
    "payload_bytes": "payload",
    "wire_bytes": "wire",
}


def unknown_params(inputs: Iterable[Input]) -> tuple[str, str] | None:
    """Return why it is unknown which inputs are parameters, and example code `params=...`; `None` if it is known."""
    all_inputs = tuple(inputs)
    if all(argument.is_param is not None for argument in all_inputs):
        return None
    arguments = list(dict.fromkeys(argument.argument for argument in all_inputs))
    first = [*likely_holders(all_inputs), *arguments]
    return why_unknown(arguments), example_of_params(first, [argument.name for argument in all_inputs])


def likely_holders(inputs: Iterable[Input]) -> list[str]:
    """Return the names of the first arguments that look like parameters: containers of several float arrays."""
    counts = Counter(
        argument.argument
        for argument in inputs
        if argument.name != argument.argument and "float" in argument.spec.dtype
    )
    return [name for name, count in counts.items() if count > 1][:_MOST_HOLDERS]


def _open(polynomial: Polynomial, unknown: Sequence[str]) -> str:
    """Return a polynomial as text if it depends on symbolic sizes, else `""`."""
    return f"{'≥ ' if unknown else ''}{polynomial}" if polynomial.names else ""


def _times(times: int, term: str) -> str:
    if times == 1 or term == "1":
        return term if times == 1 else str(times)
    return f"{times}·({term})" if " " in term else f"{times}·{term}"
