"""`ask`: a question about a live program, asked only if two independent oracles agree on its answer."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from itertools import islice
from random import Random
from typing import Any

from mithril_nb.errors import UnknownOptionError, nearest, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.stages.failure import first_lines
from mithril_nb.teach.kinds import calls, compiler, costs, jaxpr
from mithril_nb.teach.question import Candidate, Question

KINDS: dict[str, Callable[[Inspection, Random], Iterator[Candidate]]] = {
    "retrace": calls.retrace,
    "stale": calls.stale,
    "spec": jaxpr.spec,
    "role": jaxpr.role,
    "count": jaxpr.count,
    "flow": jaxpr.flow,
    "fate": compiler.fate,
    "kernel": compiler.kernel,
    "cost": costs.cost,
    "formula": costs.formula,
    "memory": costs.memory,
    "transform": jaxpr.transform,
    "sharding": compiler.sharding,
}
"""The kinds of questions, with the functions that find candidates."""
MOST_TRIED = 40
"""Most candidates that are tried until both oracles agree."""

_NEEDS = {
    "retrace": "a function that runs with other arguments, and at most 64 MiB of arguments",
    "stale": "a function that reads a global number and runs with other arguments, and at most 64 MiB of arguments",
    "role": "a gradient: its equations then have several roles",
    "count": "a primitive that occurs more than once",
    "flow": "an equation whose result some later equations need, and others do not",
    "kernel": "two neighbouring equations that both have a kernel",
    "formula": "a matrix product",
    "memory": "a compiled program whose largest part of memory is clear, or several programs with different peaks",
    "transform": "a function that jax.vmap, jax.grad or jax.jvp takes",
    "sharding": "arguments on a mesh, and a collective",
}


def ask(program: Inspection | Sequence[Inspection], kind: str, seed: int = 0) -> Question:
    """Ask a question about a live program.

    The answer is computed twice, in independent ways, such as by the rules of this package and by XLA. A question whose
    answers differ is not asked. Equal programs, kinds and seeds give equal questions.

    Args:
        program: The result of `ml.inspect`. For the kind `"memory"`, also several, with different names.
        kind: One of these:

            - `"spec"`: shape and dtype of a value, or whether it is weakly typed;
            - `"role"`: forward, backward or update; `"count"`: how many equations;
            - `"flow"`: which equations read the result of another, or need it;
            - `"cost"`: FLOPs, or bytes; `"formula"`: FLOPs of a matrix product as a formula of its sizes;
            - `"memory"`: what takes most memory, or the order of several programs;
            - `"fate"`: kept, fused, merged, rewritten, removed; `"kernel"`: whether two equations share one;
            - `"transform"`: what `vmap`, `grad` or `jvp` adds; `"retrace"`: which calls trace the function again,
              and `"stale"`: which value of a changed global number they use; both run it;
            - `"sharding"`: the collective that XLA adds on a mesh, and its bytes.
        seed: Another seed gives another question, if the program has several.

    Returns:
        The question. If the program has no such question, its `unavailable` states why, and no answer is right.

    Raises:
        UnknownOptionError: The kind is unknown, or `program` is no inspection.

    Examples:
        >>> import jax.numpy as jnp, mithril_nb as ml
        >>> question = ml.teach.ask(ml.inspect(jnp.matmul, jnp.zeros((32, 784)), jnp.zeros((784, 64))), "cost")
        >>> result = question.predict("1.6 MFLOP")
        >>> result.right, result.reason.partition(":")[0]
        (False, 'You counted a multiply and an add as one')
    """
    programs = [program] if isinstance(program, Inspection) else _checked(program, kind)
    if kind not in KINDS:
        near = nearest(str(kind), KINDS) or "spec"
        raise UnknownOptionError(
            f"ml.teach.ask has no kind {short_repr(kind)}.", (("kinds", ", ".join(KINDS)),), f'kind="{near}"'
        )
    tried: list[Candidate] = []
    try:
        # What the program prints while it is traced is part of some answers.
        with redirect_stdout(io.StringIO()):
            for candidate in islice(candidates(programs, kind, seed), MOST_TRIED):
                if candidate.agrees:
                    return Question(kind, candidate, read=programs[0].stage)
                tried.append(candidate)
    except Exception as error:  # untraceable, no compiler for the device, or a call that fails: the lesson continues
        return Question(kind, None, str(error))
    names = " and ".join(f"`{each.name}`" for each in programs)
    reason = f"it needs {_NEEDS[kind]}." if kind in _NEEDS else "it has no suitable equation."
    if tried:
        reason = f"of {len(tried)} possible questions, none has an answer on which two independent counts agree."
    return Question(kind, None, f"There is no question of kind {kind!r} about {names}: {reason}")


def ask_calls(function: Callable[..., Any], codes: Sequence[str], seed: int = 0, **options: Any) -> Question:
    """Ask which calls trace a function that is jitted with options, such as static arguments.

    The calls are expressions of `f`, evaluated where the function was defined. They run.

    Args:
        function: The function, not jitted.
        codes: Calls of the jitted function `f`. The first comes first; up to three others are chosen, in any order.
        seed: Another seed gives another choice and order.
        **options: Options of `jax.jit`, such as `static_argnames`.

    Returns:
        The question. If a call fails, its `unavailable` states the error.

    Examples:
        >>> import jax.numpy as jnp, mithril_nb as ml
        >>> def power(x, n):
        ...     return x**n
        >>> codes = ["f(2.0, 3)", "f(5.0, 3)", "f(2.0, 4)"]
        >>> question = ml.teach.ask_calls(power, codes, static_argnames="n")
        >>> print(question.text.partition(". ")[0])
        `f = jax.jit(power, static_argnames='n')` is called 4 times
    """
    if len(codes) < 2:
        raise UnknownOptionError(
            f"ml.teach.ask_calls needs two or more calls, not {short_repr(codes)}.", (), 'codes=["f(x)", "f(x + 1)"]'
        )
    try:
        questions = calls.retrace_of_codes(function, codes, options, Random(f"calls:{seed}"))
        with redirect_stdout(io.StringIO()):
            candidate = next((each for each in questions if each.agrees), None)
    except Exception as error:  # of a call, or of an option
        return Question("retrace", None, f"a call fails with {type(error).__name__}: {first_lines(error)}")
    unavailable = None if candidate else "there is no such question: two counts of the traces differ."
    return Question("retrace", candidate, unavailable)


def candidates(programs: Sequence[Inspection], kind: str, seed: int = 0) -> Iterator[Candidate]:
    """Yield the possible questions of a kind, also those on which the oracles differ."""
    random = Random(f"{kind}:{seed}")
    if len(programs) > 1:
        return costs.memory_order(programs, random)
    return KINDS[kind](programs[0], random)


def _checked(programs: Any, kind: str) -> list[Inspection]:
    several: list[Any] = list(programs) if isinstance(programs, list | tuple) else []  # pyright: ignore
    if not several or not all(isinstance(each, Inspection) for each in several):
        raise UnknownOptionError(
            f"ml.teach.ask needs an inspection, not {short_repr(programs)}.",
            (),
            f'ml.teach.ask(ml.inspect(fn, *args), "{kind}")',
        )
    if len(several) > 1 and (kind != "memory" or len({each.name for each in several}) < len(several)):
        raise UnknownOptionError(
            "several programs are compared by memory, and need different names.",
            (("kind", kind), ("names", ", ".join(each.name for each in several))),
            'ml.teach.ask([ml.inspect(f, x, name="f"), ml.inspect(g, x, name="g")], "memory")',
        )
    return several
