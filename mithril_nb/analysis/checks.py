"""`assert_cost`: a test that fails when a program costs more than a bound."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from numbers import Real
from types import MappingProxyType
from typing import Any, NamedTuple

from mithril_nb.backends.backend import notice
from mithril_nb.cost.counting import SOURCES
from mithril_nb.cost.equations import unknown_params
from mithril_nb.cost.records import NO_TRIP_COUNT
from mithril_nb.display import UNATTRIBUTED_LABEL, columns
from mithril_nb.errors import CostBoundError, Diagnostic, UnknownOptionError, nearest, short_repr
from mithril_nb.graph.query import number_of
from mithril_nb.inspection import Inspection
from mithril_nb.stages.program_stages import first_source
from mithril_nb.stages.records import UNATTRIBUTED
from mithril_nb.targets import inspect
from mithril_nb.targets.inspection import has_argument
from mithril_nb.targets.options import OPTIONS, check_options

Bound = float | str | tuple[float | str | None, float | str | None] | None
"""The upper bound of a cost, or a pair of lower and upper bound; `None` for no bound. A text has a unit: `"16 GiB"`."""

UNKNOWN = ("fail", "ignore", "warn")
"""Actions if the known cost is within a bound, but the cost of some equations is unknown."""
_MOST_SHOWN = 5
_WORDS = {
    "flops": ("needs", "FLOPs"),
    "bytes_accessed": ("reads and writes", "bytes"),
    "params": ("has", "parameters"),
    "peak_bytes": ("holds", "bytes at once"),
}
# The units of a bound that is a text, and an example.
_UNITS = {
    "flops": (("FLOPs", "FLOP"), "2.5 GFLOP"),
    "bytes_accessed": (("B",), "500 MB"),
    "params": ((), "7M"),
    "peak_bytes": (("B",), "16 GiB"),
}


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
    the pair may be `None`. A value is a number, or a text with a unit: `peak_bytes="16 GiB"` (2^30 bytes each),
    `bytes_accessed="500 MB"` (10^6 bytes each), `flops="2.5 GFLOP"`, `params="7M"`.

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
    bounds = {"flops": flops, "bytes_accessed": bytes_accessed, "params": params, "peak_bytes": peak_bytes}
    pairs = {name: _pair(name, bound) for name, bound in bounds.items() if bound is not None}
    if not pairs:
        # A misspelled bound arrives in **options: `inspect` would pass it to the program as an argument.
        others = [name for name in options if name not in OPTIONS and has_argument(target, name) is False]
        raise UnknownOptionError(
            f"ml.assert_cost takes no argument {others[0]!r}."
            if others
            else "ml.assert_cost received no bound, so it would never fail.",
            (("bounds", ", ".join(bounds)),),
            "ml.assert_cost(program, *args, flops=1_000_000)",
        )
    for name, value, values in (("source", source, (None, *SOURCES)), ("unknown", unknown, UNKNOWN)):
        if value not in values:
            choices = [choice for choice in values if choice]
            raise UnknownOptionError(
                f"ml.assert_cost does not accept {name}={short_repr(value, 40)}.",
                (("takes", ", ".join(choices)),),
                f'{name}="{nearest(value, choices) or choices[0]}"',
            )
    if isinstance(target, Inspection) and (args or options):
        raise UnknownOptionError(f"program {target.name!r} already has its arguments; ml.assert_cost takes no others.")
    check_options(options)
    inspection = target if isinstance(target, Inspection) else inspect(target, *args, **options)
    source = source or first_source(inspection)
    problems = [_problem(inspection, name, source, *pair, unknown) for name, pair in pairs.items()]
    diagnostics = [problem for problem in problems if problem is not None]
    if diagnostics:
        raise CostBoundError(diagnostics[0], more=tuple(diagnostics[1:]))


def _pair(name: str, bound: Any) -> tuple[float | None, float | None]:
    pair: Any = bound if isinstance(bound, tuple | list) else (None, bound)
    pair = tuple(_value(name, end) if isinstance(end, str) else end for end in pair)
    ends = [end for end in pair if end is not None]
    # Any real number is a bound, also the NumPy scalar of another cost. `True` is one for Python, but a mistake here.
    is_pair = len(pair) == 2 and all(isinstance(end, Real) and not isinstance(end, bool) for end in ends)
    # NaN is neither above nor below a number, so such a bound would never fail.
    if not ends or not is_pair or any(math.isnan(end) or end < 0 for end in ends) or ends[0] > ends[-1]:
        raise UnknownOptionError(
            f"ml.assert_cost does not accept {name}={short_repr(bound)}.",
            (("needs", "an upper bound, or a pair of lower and upper bound, neither negative"),),
            f"{name}=1_000_000  # or {name}=(900_000, 1_000_000)",
        )
    return pair[0], pair[1]


def _value(name: str, text: str) -> float:
    units, example = _UNITS[name]
    amount = text.strip()
    for unit in units:
        amount = amount.removesuffix(unit)
    # Without its unit: a "B" that is left is no unit of this bound, and "b" means bits.
    number, *prefix = amount.split() or [""]
    is_one_number = len(prefix) <= 1 and not any(char.isdigit() for char in "".join(prefix))
    value = number_of(number + "".join(prefix)) if is_one_number and amount[-1:] not in ("b", "B") else None
    if value is None:
        needs = "a number, then k, M, G, T or P (powers of 1000) or Ki, Mi, Gi, ... (powers of 1024)"
        raise UnknownOptionError(
            f"ml.assert_cost does not accept {name}={short_repr(text)}.",
            (("needs", f"{needs}, then {units[-1]}" if units else needs),),
            f'{name}="{example}"',
        )
    return value


class _Measured(NamedTuple):
    value: int | None
    unknown: tuple[str, ...] = ()
    blocks: Mapping[str, int] = MappingProxyType({})
    formula: str = ""
    numbers: Mapping[str, int] = MappingProxyType({})
    advice: str = ""


def _measured(inspection: Inspection, name: str, source: str) -> _Measured:
    if name == "peak_bytes":
        memory = inspection.memory
        if memory.source == "compiled" and memory.peak_bytes is not None:
            return _Measured(memory.peak_bytes, blocks={path: size for path, size in memory.at_peak.items() if size})
        # An estimate cannot be checked.
        symbolic = None if inspection.given is not None else inspection.cost("analytic").symbolic
        numbers = {} if symbolic is None else symbolic.example
        return _Measured(
            None, memory.notes, numbers=numbers, advice="print(inspection.memory)  # and leave out peak_bytes="
        )
    cost = inspection.cost(source=source)
    unknown_argument = unknown_params(inspection.inputs) if name == "params" else None
    if unknown_argument is not None:
        why, option = unknown_argument
        return _Measured(None, (why,), advice=f"ml.inspect(program, *args, {option})  # or params=() if it has none")
    blocks = {path: getattr(figures, name) for path, figures in cost.by_block.items()}
    blocks[UNATTRIBUTED] = getattr(cost.unattributed, name)
    groups = Counter(
        f"{row.opcode}: {NO_TRIP_COUNT if row.repeats is None else row.formula}"
        # Parameters are counted from the inputs; rows have none.
        for row in (cost.rows if name != "params" else ())
        if getattr(row, name) is None
    )
    measured = _Measured(
        getattr(cost.total, name),
        tuple(f"{count} × {group}" for group, count in groups.items()),
        {path: value for path, value in blocks.items() if value},
    )
    # With symbolic sizes, some costs are still numbers: parameters in arrays without symbolic dims.
    if not cost.symbols or measured.value is not None or cost.symbolic is None:
        return measured
    return measured._replace(formula=cost.formula(field=name), numbers=cost.symbolic.example)


def _problem(
    inspection: Inspection, name: str, source: str, low: float | None, high: float | None, unknown: str
) -> Diagnostic | None:
    cost = _measured(inspection, name, source)
    is_peak = name == "peak_bytes"
    how, code = ("compiled", "inspection.memory") if is_peak else (source, f'inspection.cost("{source}")')

    def diagnostic(summary: str, advice: str = "") -> Diagnostic:
        code = CostBoundError.__name__
        return Diagnostic(f"program {inspection.name!r} {summary}", tuple(facts), advice, code=code)

    # If only the known part of a cost is within its bounds, this warns.
    value, (verb, noun) = cost.value, _WORDS[name]
    # A sum that leaves out unknown costs cannot be below a bound.
    is_over = value is not None and high is not None and value > high
    is_under = value is not None and low is not None and value < low and not cost.unknown
    if value is not None and not (is_over or is_under or cost.unknown):
        return None
    number = "unknown" if value is None else f"{'at least ' if cost.unknown else ''}{value:,}"
    facts = [(name, f"{cost.formula or number} ({how})"), ("bound", _bound_text(low, high))]
    advice = cost.advice
    if cost.numbers:
        names, sizes = ", ".join(cost.numbers), ", ".join(f"{each}={size}" for each, size in cost.numbers.items())
        summary = f"cannot be checked against its bound of {noun}: no number for {names}."
        advice = f"inspection.cost().at({sizes}).total.{name}" if cost.formula else ""
        return diagnostic(summary, advice or f"ml.inspect(program, *args)  # with a number for {names}")
    unknown_fact = [("unknown", "\n".join(cost.unknown))] if cost.unknown else []
    if cost.unknown and not (advice or is_over or unknown == "fail"):
        if unknown == "warn":
            facts += [*unknown_fact, ("no warning", 'unknown="fail" or unknown="ignore"')]
            notice(str(Diagnostic(f"program {inspection.name!r}: only the known {noun} are checked.", tuple(facts))))
        return None
    if value is not None and (is_over or is_under):
        summary = f"{verb} {'more' if is_over else 'fewer'} {noun} than {'allowed' if is_over else 'it should'}."
        end = (high if is_over else low) or 0
        share = f" ({100 * abs(value - end) / end:.1f} %)" if end else ""
        facts.append(("over by" if is_over else "under by", f"{_number(abs(value - end))}{share}"))
        advice = f"{name}={value:_}  # if that is intended"
    else:
        reason = "their number is unknown" if advice else f"some {noun} are unknown"
        summary = f"cannot be checked against its bound of {noun}: {reason}."
        advice = advice or f'unknown="warn"  # checks only the known {noun}'
    facts += unknown_fact
    if cost.blocks:
        facts += [("blocks", _most_expensive(cost.blocks)), ("details", f"print({code})")]
    return diagnostic(summary, advice)


def _number(value: float) -> str:
    # A bound may be written as a float, such as 1e9, and infinity has no integer.
    return f"{int(value):,}" if math.isfinite(value) and value == int(value) else f"{value:,}"


def _bound_text(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"exactly {_number(low)}" if low == high else f"from {_number(low)} to {_number(high)}"
    return f"at most {_number(high)}" if high is not None else f"at least {_number(low or 0)}"


def _most_expensive(blocks: Mapping[str, int]) -> str:
    total = sum(blocks.values())
    first = sorted(blocks.items(), key=lambda item: -item[1])[:_MOST_SHOWN]
    rows = [(path or UNATTRIBUTED_LABEL, f"{value:,}", f"{100 * value / total:.1f} %") for path, value in first]
    more = len(blocks) - len(first)
    return "\n".join([columns(rows, right={1, 2}), *((f"and {more} more",) if more > 0 else ())])
