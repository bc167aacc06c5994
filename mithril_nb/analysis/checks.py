"""`assert_cost`: a test that fails when a program costs more than a bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from mithril_nb.backends.backend import notice
from mithril_nb.cost import Cost
from mithril_nb.cost.counting import SOURCES
from mithril_nb.cost.memory.use import MemoryUse
from mithril_nb.cost.records import NO_TRIP_COUNT
from mithril_nb.cost.symbolic import unknown_params
from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.errors import CostBoundError, Diagnostic, UnknownOptionError, nearest, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.stages.program_stages import first_source
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.targets import inspect
from mithril_nb.targets.entry_point import OPTIONS, check_options
from mithril_nb.targets.unsupported import has_argument, refuse_misspelt

Bound = float | tuple[float | None, float | None] | None
"""The upper bound of a cost, or a pair of lower and upper bound; `None` for no bound."""

UNKNOWN = ("fail", "ignore", "warn")
"""Actions if the known cost is within a bound, but the cost of some equations is unknown."""
_MOST_SHOWN = 5
_WORDS = {
    "flops": ("needs", "FLOPs"),
    "bytes_accessed": ("reads and writes", "bytes"),
    "params": ("has", "parameters"),
    "peak_bytes": ("holds", "bytes at once"),
}


@dataclass(frozen=True)
class _Measured:
    """One kind of cost of a program, such as its FLOPs.

    Attributes:
        value: The sum of the known costs; `None` if it cannot be computed.
        source: How the cost was counted: `"analytic"`, `"lowered"` or `"compiled"`.
        unknown: Descriptions of the costs that `value` leaves out, with the reasons.
        blocks: The cost of each block, by path.
        option: Code for the option of `ml.inspect` that makes an unknown cost known; `""` if there is none.
        numbers: An example number for each symbolic size in the cost, for the advice of the error.
        formula: The cost as a formula of the symbolic sizes; `""` if unknown.
        is_of_rows: True if the cost is a sum over equations or instructions, which may leave out unknown ones.
    """

    value: int | None
    source: str
    unknown: tuple[str, ...]
    blocks: Mapping[str, int]
    option: str = ""
    numbers: Mapping[str, int] = field(default_factory=dict[str, int])
    formula: str = ""
    is_of_rows: bool = False

    def violated(self, low: float | None, high: float | None) -> float | None:
        """Return the bound that the cost violates, or `None`.

        A sum that leaves out unknown costs cannot violate a lower bound.
        """
        if self.value is None:
            return None
        if high is not None and self.value > high:
            return high
        return low if low is not None and self.value < low and not self.unknown else None


def assert_cost(
    target: Any,
    /,
    *args: Any,
    flops: Bound = None,
    bytes_accessed: Bound = None,
    peak_bytes: Bound = None,
    params: Bound = None,
    source: str | None = None,
    unknown: str = "warn",
    **options: Any,
) -> None:
    """Fail if a program costs more than a bound. Use it in a test to catch changes that make a program more expensive.

    Nothing runs. A bound is the largest allowed value, or a pair of the smallest and the largest value. One value of
    the pair may be `None`.

    If the cost of some equations is unknown, the known cost is compared: the check fails if the known cost is above the
    bound, else a warning lists the unknown equations. The check always fails in three other cases: a size is symbolic,
    `params` is checked but the argument with the parameters is unknown, or `peak_bytes` is checked but the program does
    not compile.

    Args:
        target: A program: the result of `ml.inspect`, or any target of `ml.inspect`.
        *args: Arguments of the program, as for `ml.inspect`.
        flops: Bound of the FLOPs.
        bytes_accessed: Bound of the bytes that the program reads and writes.
        peak_bytes: Bound of the peak memory in bytes. This check compiles the program.
        params: Bound of the number of parameters. For a function, name the argument with the parameters:
            `ml.assert_cost(ml.inspect(f, w, x, params="w"), params=1_000)`.
        source: How FLOPs and bytes are counted, as in `inspection.cost(source=...)`. The default is `"analytic"`, which
            only traces the program, and gives the same result on every machine. The default for a program without a
            jaxpr, such as a file of StableHLO or HLO, is `"lowered"` or `"compiled"`.
        unknown: Action if the known cost is within its bound, but the cost of some equations is unknown. `"warn"` warns
            with a `MithrilWarning`, `"fail"` fails, `"ignore"` does nothing. `ml.register_cost` adds missing costs.
        **options: Other arguments of `ml.inspect`.

    Raises:
        CostBoundError: A cost is outside its bounds, or unknown as described above. It is an `AssertionError`.
        UnknownOptionError: The value of `source` or `unknown` is not one of those above; there is no bound, or a bound
            is misspelled or invalid; or arguments are passed with an inspection, which already has them.
        StageUnavailableError: The program cannot be traced, or cannot be lowered or compiled if `source` needs that.

    Examples:
        In a file that pytest runs:

        >>> import jax, mithril_nb as ml
        >>> from mithril_nb.models import Linear
        >>> def test_the_model_stays_small():
        ...     ml.assert_cost(Linear(10), shapes={"input": [32, 784]}, flops=510_000, params=(7_850, 7_850))
        >>> test_the_model_stays_small()
        >>> ml.assert_cost(jax.nn.relu, jax.ShapeDtypeStruct((1000,), "float32"), flops=500)
        Traceback (most recent call last):
        mithril_nb.errors.CostBoundError: program 'relu' needs more FLOPs than allowed.
            flops    1,000 (analytic)
            bound    at most 500
            over by  500 (100.0 %)
            blocks   relu  1,000  100.0 %
            details  print(inspection.cost("analytic"))
            Try: flops=1_000  # if that is intended
    """
    refuse_misspelt("ml.assert_cost", options, assert_cost, target, "1_000_000")
    bounds = {"flops": flops, "bytes_accessed": bytes_accessed, "params": params, "peak_bytes": peak_bytes}
    pairs = {name: _pair(name, bound) for name, bound in bounds.items() if bound is not None}
    if not pairs:
        unknown_names = [name for name in options if name not in OPTIONS and has_argument(target, name) is False]
        raise UnknownOptionError(
            f"ml.assert_cost takes no argument {unknown_names[0]!r}."
            if unknown_names
            else "ml.assert_cost received no bound, so it would never fail.",
            (("bounds", ", ".join(bounds)),),
            "ml.assert_cost(program, *args, flops=1_000_000)",
        )
    if source is not None and source not in SOURCES:
        raise UnknownOptionError(
            f"ml.assert_cost does not accept source={short_repr(source, 40)}.",
            (("sources", ", ".join(SOURCES)),),
            f'source="{nearest(source, SOURCES) or "analytic"}"',
        )
    if unknown not in UNKNOWN:
        raise UnknownOptionError(
            f"ml.assert_cost does not accept unknown={short_repr(unknown, 40)}.",
            (("takes", ", ".join(UNKNOWN)),),
            f'unknown="{nearest(unknown, UNKNOWN) or "warn"}"',
        )
    if isinstance(target, Inspection) and (args or options):
        options_text = ", ".join((*("an argument" for _ in args[:1]), *options))
        raise UnknownOptionError(
            f"ml.assert_cost received {options_text} for program {target.name!r}, which already has its arguments.",
            (),
            "ml.assert_cost(inspection, flops=1_000_000)",
        )
    check_options(options)
    inspection = target if isinstance(target, Inspection) else inspect(target, *args, **options)
    measured = {name: _measured(inspection, name, source or first_source(inspection)) for name in pairs}
    diagnostics = [
        _problem(inspection, name, measured[name], low, high, unknown) for name, (low, high) in pairs.items()
    ]
    problems = [problem for problem in diagnostics if problem is not None]
    if problems:
        raise CostBoundError(problems[0], more=tuple(problems[1:]))


def _pair(name: str, bound: Any) -> tuple[float | None, float | None]:
    """Return the lower and the upper bound of a cost, each `None` if there is none. Raise if `bound` is not valid."""
    pair: Any = bound if isinstance(bound, tuple | list) else (None, bound)
    ends = [end for end in pair if end is not None]
    is_pair = len(pair) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)
    if not ends or not is_pair or any(math.isnan(end) or end < 0 for end in ends) or ends[0] > ends[-1]:
        raise UnknownOptionError(
            f"ml.assert_cost does not accept {name}={short_repr(bound)}.",
            (("needs", "an upper bound, or a pair of lower and upper bound, neither negative"),),
            f"{name}=1_000_000  # or {name}=(900_000, 1_000_000)",
        )
    return pair[0], pair[1]


def _measured(inspection: Inspection, name: str, source: str) -> _Measured:
    if name == "peak_bytes":
        memory: MemoryUse = inspection.memory
        if memory.source != "compiled" or memory.peak_bytes is None:  # an estimate cannot be checked
            numbers = {} if inspection.given is not None else _numbers(inspection.cost("analytic"))
            return _Measured(None, "compiled", memory.notes, {}, numbers=numbers)
        held = {path: size for path, size in memory.at_peak.items() if size}
        return _Measured(memory.peak_bytes, memory.source, (), held)
    cost: Cost = inspection.cost(source=source)
    unknown_argument = unknown_params(inspection.inputs) if name == "params" else None
    if unknown_argument is not None:
        why, option = unknown_argument
        return _Measured(None, source, (why,), {}, option)
    each = {path or UNATTRIBUTED: getattr(figures, name) for path, figures in cost.by_block.items()}
    each[UNATTRIBUTED] = getattr(cost.unattributed, name)
    blocks = {path: value for path, value in each.items() if value}
    value, unknown = getattr(cost.total, name), _unknown(cost, name)
    if not cost.symbols or value is not None:
        return _Measured(value, source, unknown, blocks, is_of_rows=name != "params")
    return _Measured(value, source, unknown, blocks, numbers=_numbers(cost), formula=cost.formula(field=name))


def _numbers(cost: Cost) -> Mapping[str, int]:
    """Return example numbers for the symbolic sizes of a program."""
    return {} if cost.symbolic is None else cost.symbolic.example


def _unknown(cost: Cost, name: str) -> tuple[str, ...]:
    """Return a text for each group of rows with an unknown cost, such as `"2 × sort: no rule"`."""
    groups: dict[tuple[str, str], int] = {}
    for row in cost.rows if name != "params" else ():
        if getattr(row, name) is None:
            why = NO_TRIP_COUNT if row.repeats is None else row.formula
            groups[row.opcode, why] = groups.get((row.opcode, why), 0) + 1
    return tuple(f"{count} × {opcode}: {why}" for (opcode, why), count in groups.items())


def _problem(
    inspection: Inspection,
    name: str,
    measured: _Measured,
    low: float | None,
    high: float | None,
    unknown: str,
) -> Diagnostic | None:
    """Return the error for a cost that is unknown or outside its bounds; `None` if the cost is within them.

    Warns if only the known part of the cost is within the bounds, and `unknown` is `"warn"`.
    """
    value, (verb, noun) = measured.value, _WORDS[name]
    end = measured.violated(low, high)
    is_over = value is not None and end is not None and value > end
    if end is None and value is not None and not measured.unknown:
        return None
    if measured.numbers:
        return _without_numbers(inspection.name, name, measured, low, high)
    shown_value = "unknown" if value is None else f"{'at least ' if measured.unknown else ''}{value:,}"
    facts = [(name, f"{shown_value} ({measured.source})"), ("bound", _bound_text(low, high))]
    if measured.unknown and measured.is_of_rows and not is_over and unknown != "fail":
        if unknown == "warn":
            notice(
                _only_known(f"program {inspection.name!r}: only the known {noun} are checked.", facts, measured.unknown)
            )
        return None
    code = f"print({_costs(name, measured.source)})"
    if value is not None and end is not None:
        summary = f"{verb} {'more' if is_over else 'fewer'} {noun} than {'allowed' if is_over else 'it should'}."
        facts.append(("over by" if is_over else "under by", _far(value, end)))
        advice = f"{name}={value:_}  # if that is intended"
    elif measured.is_of_rows:
        summary = f"cannot be checked against its bound of {noun}: some {noun} are unknown."
        advice = f'unknown="warn"  # checks only the known {noun}'
    else:
        summary = f"cannot be checked against its bound of {noun}: their number is unknown."
        advice = f"{code}  # and leave out {name}="
    if measured.option:
        advice = f"ml.inspect(program, *args, {measured.option})  # or params=() if it has none"
    if measured.unknown:
        facts.append(("unknown", "\n".join(measured.unknown)))
    if measured.blocks:
        facts.append(("blocks", _most_expensive(measured.blocks)))
        facts.append(("details", code))
    return Diagnostic(f"program {inspection.name!r} {summary}", tuple(facts), advice, code=CostBoundError.__name__)


def _only_known(summary: str, facts: list[tuple[str, str]], unknown: tuple[str, ...]) -> str:
    """Return the warning that a bound was compared only with the known part of a cost."""
    more = ("unknown", "\n".join(unknown)), ("no warning", 'unknown="fail" or unknown="ignore"')
    return str(Diagnostic(summary, (*facts, *more)))


def _without_numbers(program: str, name: str, measured: _Measured, low: float | None, high: float | None) -> Diagnostic:
    """Return the error for a cost that cannot be compared because of symbolic sizes."""
    names, sizes = (
        ", ".join(measured.numbers),
        ", ".join(f"{symbol}={number}" for symbol, number in measured.numbers.items()),
    )
    facts = [(name, f"{measured.formula or 'unknown'} ({measured.source})"), ("bound", _bound_text(low, high))]
    advice = f"ml.inspect(program, *args)  # with a number for {' and '.join(measured.numbers)}"
    if " + unknown" in measured.formula:  # even with numbers, part of the cost stays unknown
        advice = f"print({_costs(name, measured.source)})  # and leave out {name}="
    elif measured.formula:
        least, most = ("" if low is None else f"{_literal(low)} <= "), ("" if high is None else f" <= {_literal(high)}")
        advice = f"assert {least}inspection.cost().at({sizes}).total.{name}{most}"
    return Diagnostic(
        f"program {program!r} cannot be checked against its bound of {_WORDS[name][1]}: no number for {names}.",
        tuple(facts),
        advice,
        code=CostBoundError.__name__,
    )


def _costs(name: str, source: str) -> str:
    return "inspection.memory" if name == "peak_bytes" else f'inspection.cost("{source}")'


def _literal(bound: float) -> str:
    return f"{int(bound):_}" if math.isfinite(bound) and bound == int(bound) else str(bound)


def _far(value: float, end: float) -> str:
    far = abs(value - end)
    return f"{_number(far)} ({100 * far / end:.1f} %)" if end else _number(far)


def _number(value: float) -> str:
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) else f"{value:,}"


def _bound_text(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"exactly {_number(low)}" if low == high else f"from {_number(low)} to {_number(high)}"
    return f"at most {_number(high)}" if high is not None else f"at least {_number(low or 0)}"


def _most_expensive(blocks: Mapping[str, int]) -> str:
    """Return a table of the blocks with the largest costs, each with its share of the sum over all blocks."""
    total = sum(blocks.values())
    first = sorted(blocks.items(), key=lambda item: -item[1])[:_MOST_SHOWN]
    rows = [(path or UNATTRIBUTED_LABEL, f"{value:,}", f"{100 * value / total:.1f} %") for path, value in first]
    more = len(blocks) - len(first)
    return "\n".join([columns(rows, right={1, 2}), *((f"and {more} more",) if more > 0 else ())])
