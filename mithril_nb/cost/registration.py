"""`ml.register_cost`: cost rules that the user registers for primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from jax.extend.core import Primitive

from mithril_nb.backends.backend import notice
from mithril_nb.cost.counting import forget_analytic, is_in_programs
from mithril_nb.cost.formulas.communication import sent_by
from mithril_nb.cost.formulas.rules import OF_COMPLEX, RULES, USER_RULES, Formula, Rule
from mithril_nb.cost.formulas.sizes import as_size, bytes_of, bytes_sum
from mithril_nb.cost.formulas.structure import CALLS
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, UndecidedError
from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation

Figures = float | Mapping[str, float]
"""The result of a user's rule: the FLOPs, or a dict from the name of a cost to its value."""

_FIGURES = ("flops", "transcendentals", "bytes_accessed", "payload_bytes", "wire_bytes")
_EXAMPLE = "ml.register_cost({}, lambda equation: 1_000)  # FLOPs"


def register_cost(primitive: str | Primitive, rule: Callable[[Equation], Figures | None] | None) -> None:
    """Register a function that returns the cost of each equation of a primitive.

    The function replaces the built-in rule of the primitive, also inside Pallas kernels. `inspection.cost()` then
    counts again; existing `Cost` objects do not change. If the name of the primitive is unknown but similar to a known
    one, `register_cost` warns.

    Args:
        primitive: The `jax.extend.core.Primitive`, or its name in the jaxpr: `"ffi_call"`.
        rule: A function that takes an equation and returns the cost of one run: a number of FLOPs, a dict of costs,
            or `None` if the cost is unknown. Pass `None` instead of a function to remove a registered function.

            The equation has the attributes `inputs` and `outputs`, lists of specs with `shape` and `dtype`, and
            `param`, a dict of the equation's params. Symbolic sizes in shapes support `+`, `-` and `*`.

            The dict may have the keys `"flops"` and `"transcendentals"` (default: 0), `"bytes_accessed"` (default: the
            bytes of all operands and results), and `"payload_bytes"` and `"wire_bytes"` (default: the built-in rule).

    Raises:
        UnknownOptionError: `primitive` or `rule` has the wrong type, or `primitive` is a call such as `scan`, whose
            cost is the sum over the equations inside it. `inspection.cost()` raises this error if the function raises
            an error or returns something that is not a cost.

    Examples:
        >>> import math
        >>> import jax, jax.numpy as jnp, mithril_nb as ml
        >>> from jax.extend.core import Primitive
        >>> smooth = Primitive("smooth")
        >>> _ = smooth.def_abstract_eval(lambda x: x)
        >>> program = ml.inspect(lambda x: smooth.bind(x) + 1, jnp.ones((8, 4)))
        >>> program.cost().unknown[0].reason
        'no rule'
        >>> ml.register_cost(smooth, lambda equation: 3 * math.prod(equation.inputs[0].shape))
        >>> program.cost().total.flops, program.cost().rows[0].explained
        (128, 'flops: ml.register_cost with flops=96')
        >>> ml.register_cost("smooth", None)
    """
    name = primitive if isinstance(primitive, str) else getattr(primitive, "name", None)
    if not isinstance(primitive, str | Primitive) or not isinstance(name, str) or not name:
        raise UnknownOptionError(
            f"ml.register_cost needs a primitive, not {short_repr(primitive, 40)}.",
            (("needs", "a jax.extend.core.Primitive, or its name"), ("given", type(primitive).__name__)),
            _EXAMPLE.format('"ffi_call"'),
        )
    if name in CALLS:
        raise UnknownOptionError(
            f"ml.register_cost cannot take {name!r}: its cost is already the sum over the equations inside it.",
            (("reason", "a rule would count these equations twice"),),
            _EXAMPLE.format('"ffi_call"') + f"; or another primitive inside {name!r}",
        )
    if rule is None:
        USER_RULES.pop(name, None)
    elif callable(rule):
        if isinstance(primitive, str):
            _warn_of_misspelt(name)
        USER_RULES[name] = _as_rule(name, rule)
    else:
        raise UnknownOptionError(
            f"ml.register_cost needs a function as the rule of {name!r}, not {short_repr(rule, 40)}.",
            (("needs", "a function of an equation that returns FLOPs"), ("given", type(rule).__name__)),
            _EXAMPLE.format(repr(name)),
        )
    forget_analytic()


def _warn_of_misspelt(name: str) -> None:
    """Warn if a name is unknown but similar to a known primitive. No error: the user may define the primitive later."""
    primitives = [name_ for name_ in RULES if not name_.endswith(OF_COMPLEX)]
    near = None if name in RULES or is_in_programs(name) else nearest(name, primitives)
    if near is not None:
        notice(
            f"ml.register_cost has a rule for {name!r}, an unknown primitive similar to {near!r}. The rule applies "
            f"only if a program has a primitive named {name!r}.\n    Try: {_EXAMPLE.format(repr(near))}"
        )


def _as_rule(name: str, rule: Callable[[Equation], Figures | None]) -> Rule:
    def find(equation: Equation) -> Formula | str | None:
        costs = _figures(name, rule, equation)
        if costs is None:
            return None
        letters, calls = {"flops": costs.get("flops", 0)}, costs.get("transcendentals", 0)
        # The FLOPs of another primitive may contain products.
        products = "flops" if name in RULES and RULES[name].general.products != "0" else None
        if calls == 0:
            return Formula("flops", letters, note="ml.register_cost", products=products)
        return Formula("flops", {**letters, "calls": calls}, "calls", note="ml.register_cost", products=products)

    def moved(equation: Equation) -> Expression | None:
        costs = _figures(name, rule, equation) or {}
        return costs.get("bytes_accessed", bytes_sum(*equation.inputs, *equation.outputs))

    def sent(equation: Equation) -> tuple[Expression | None, Expression | None]:
        costs = _figures(name, rule, equation) or {}
        payload, wire = sent_by(equation, bytes_of)
        return costs.get("payload_bytes", payload), costs.get("wire_bytes", wire)

    return Rule(Formula("flops", {}, "calls", note="ml.register_cost"), find, moved, sent=sent)


def _figures(name: str, rule: Callable[[Equation], Any], equation: Equation) -> Mapping[str, Expression] | None:
    """Call the user's rule for an equation and return the costs by name; `None` if the rule returns `None`.

    Raises:
        UnknownOptionError: The rule raises an error, or returns something that is not a cost.
        UndecidedError: The rule raises an error for symbolic sizes; it may work for numbers.
    """
    specs = (*equation.inputs, *equation.outputs)
    # A symbolic size is a string, which has no arithmetic, so the rule receives polynomials instead.
    is_named = not all(spec.is_concrete for spec in specs)
    shown_equation = equation if not is_named else replace(
        equation, inputs=tuple(map(_with_sizes, equation.inputs)), outputs=tuple(map(_with_sizes, equation.outputs))
    )  # fmt: skip
    try:
        costs = rule(shown_equation)
    # The rule is code of the user, which may raise anything.
    except Exception as error:
        if is_named:
            raise UndecidedError(f"the rule of {name!r} needs numbers") from error
        raise UnknownOptionError(
            f"the rule registered with ml.register_cost for {name!r} raised {type(error).__name__}.",
            (("error", short_repr(str(error), 80)), ("inputs", short_repr(equation.inputs, 80))),
            _EXAMPLE.format(repr(name)),
        ) from error
    if costs is None:
        return None
    figures: Any = costs if isinstance(costs, Mapping) else {"flops": costs}
    wrong = [key for key in figures if key not in _FIGURES]
    if wrong:
        raise UnknownOptionError(
            f"the rule registered with ml.register_cost for {name!r} returns an unknown cost: {short_repr(wrong[0])}.",
            (("costs", ", ".join(_FIGURES)),),
            f'ml.register_cost({name!r}, lambda equation: {{"{nearest(wrong[0], _FIGURES) or "flops"}": 1_000}})',
        )
    bad = [value for value in figures.values() if not _is_count(value)]
    if bad:
        raise UnknownOptionError(
            f"the rule registered with ml.register_cost for {name!r} returns {short_repr(bad[0], 40)}, "
            "which is not a valid count.",
            (("needs", "numbers, each 0 or more, or a dict of them"), ("given", type(bad[0]).__name__)),
            _EXAMPLE.format(repr(name)),
        )
    # Rules may compute in floats. Counts are integers, so that sums are exact.
    return {key: value if isinstance(value, Polynomial) else round(value) for key, value in figures.items()}


def _is_count(value: object) -> bool:
    if isinstance(value, Polynomial):
        return True
    return isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf


def _with_sizes(spec: TensorSpec) -> TensorSpec:
    sizes: Any = tuple(map(as_size, spec.shape))
    return TensorSpec(sizes, spec.dtype)
