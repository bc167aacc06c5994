"""`ml.register_cost`: cost rules that the user registers for primitives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

from jax.extend.core import Primitive

from mithril_nb.backends.backend import notice
from mithril_nb.cost.counting import forget_analytic
from mithril_nb.cost.formulas.rules import OF_COMPLEX, RULES, USER_RULES, Formula, Rule, all_bytes
from mithril_nb.cost.formulas.sizes import as_size
from mithril_nb.cost.formulas.structure import CALLS
from mithril_nb.cost.formulas.symbols import Expression, Polynomial, UndecidedError
from mithril_nb.errors import UnknownOptionError, alike, short_repr
from mithril_nb.figures import COUNTED, OF_XLA
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages.records import Equation

Result = float | Mapping[str, float]
"""The result of a user's rule: the FLOPs, or a dict from the name of a cost to its value."""


def register_cost(primitive: str | Primitive, rule: Callable[[Equation], Result | None] | None) -> None:
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
            bytes of all operands and results), and other figures that rules count, such as `"payload_bytes"` and
            `"wire_bytes"` (default: the built-in rule).

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
        raise _error(f"needs a primitive or its name, not {short_repr(primitive, 40)}", "ffi_call")
    if name in CALLS:
        # A rule would count the equations inside it twice.
        raise _error(f"cannot take {name!r}: its cost is the sum over the equations inside it", "ffi_call")
    if rule is None:
        USER_RULES.pop(name, None)
    elif callable(rule):
        near = alike(name, [primitive_name for primitive_name in RULES if not primitive_name.endswith(OF_COMPLEX)], 0.8)
        # No error: the user may define the primitive later.
        if isinstance(primitive, str) and name not in RULES and near:
            notice(f"ml.register_cost has a rule for the unknown primitive {name!r}; {near[0]!r} is similar.")
        USER_RULES[name] = _as_rule(name, rule)
    else:
        raise _error(f"needs a function as the rule of {name!r}, not {short_repr(rule, 40)}", name)
    forget_analytic()


def _error(problem: str, name: str) -> UnknownOptionError:
    code = f"ml.register_cost({name!r}, lambda equation: 1_000)  # FLOPs"
    return UnknownOptionError(f"ml.register_cost {problem}.", (), code)


def _as_rule(name: str, rule: Callable[[Equation], Result | None]) -> Rule:
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
        return costs.get("bytes_accessed", all_bytes(equation))

    def others(equation: Equation) -> Mapping[str, Expression]:
        costs = _figures(name, rule, equation) or {}
        return {key: value for key, value in costs.items() if key not in OF_XLA}

    return Rule(Formula("flops", {}, "calls", note="ml.register_cost"), find, moved, others=others)


def _figures(name: str, rule: Callable[[Equation], Any], equation: Equation) -> Mapping[str, Expression] | None:
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
        if is_named:  # it may work for numbers
            raise UndecidedError(f"the rule of {name!r} needs numbers") from error
        text = short_repr(str(error), 80)
        raise _error(f"called the rule of {name!r}, which raised {type(error).__name__}: {text}", name) from error
    if costs is None:
        return None
    figures: Any = costs if isinstance(costs, Mapping) else {"flops": costs}
    if not all(
        key in COUNTED
        and (
            isinstance(value, Polynomial)
            or (isinstance(value, Real) and not isinstance(value, bool) and 0 <= float(value) < math.inf)
        )
        for key, value in figures.items()
    ):
        keys = ", ".join(COUNTED)
        needs = f"a number of FLOPs of 0 or more, or a dict of such numbers with some of the keys {keys}"
        raise _error(f"called the rule of {name!r}, which returned {short_repr(costs, 60)}; it needs {needs}", name)
    # Rules may compute in floats. Counts are integers, so that sums are exact.
    return {key: value if isinstance(value, Polynomial) else round(value) for key, value in figures.items()}


def _with_sizes(spec: TensorSpec) -> TensorSpec:
    sizes: Any = tuple(map(as_size, spec.shape))
    return TensorSpec(sizes, spec.dtype)
