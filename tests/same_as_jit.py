"""Comparison of inspections with `jax.jit`: jaxpr, StableHLO and optimized HLO of the same call."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import count
from types import MethodType
from typing import Any

import jax
from jax.extend import core

import mithril_nb as ml

_ADDRESS = re.compile(r"0x[0-9a-f]+")
_METADATA = re.compile(r", metadata=\{(?:[^{}\"]|\"(?:[^\"\\]|\\.)*\")*\}")
_FRAMES = re.compile(r"(?ms)^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n.*?\n\n")
_NAME = re.compile(r"%[\w.\-]+")


def differences(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    stages: tuple[str, ...] = ("jaxpr", "stablehlo", "hlo"),
    **static: Any,
) -> list[str]:
    """Return the stages in which the program of a call differs from that of `jax.jit`.

    The jaxprs must agree in primitives, params, types (weak types too), operands and order. The StableHLO texts must be
    equal. The HLO texts must be equal except for metadata and names of instructions: XLA derives a name from the last
    part of the op name, which is our tag if JAX gives an op no name. A difference in names only is `"hlo names"`.

    Args:
        fn: The function, perhaps jitted.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        stages: The stages to compare.
        **static: `static_argnums` and `static_argnames`.
    """
    kwargs = dict(kwargs or {})
    if isinstance(fn, MethodType) and hasattr(fn.__func__, "trace"):
        traced = fn.__func__.trace(fn.__self__, *args, **kwargs)
    else:
        jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn, **static)
        traced = jitted.trace(*args, **kwargs)
    found = ml.inspect(fn, *args, kwargs=kwargs, **static)
    different: list[str] = []
    if _jaxpr(traced.jaxpr) != _jaxpr(found._pipeline.traced.get().closed):
        different.append("jaxpr")
    lowered = traced.lower()
    if "stablehlo" in stages and lowered.as_text() != found.lowered.as_text():
        different.append("stablehlo")
    if "hlo" in stages:
        compiled = lowered.compile()
        wanted, made = _hlo(compiled.as_text()), _hlo(found.compiled.as_text())
        if wanted != made:
            different.append("hlo names" if _without_names(wanted) == _without_names(made) else "hlo")
        if _shardings(compiled) != _shardings(found.compiled):
            different.append("shardings")
    return different


def _shardings(compiled: jax.stages.Compiled) -> list[Any]:
    return jax.tree.leaves((compiled.input_shardings, compiled.output_shardings))


def _jaxpr(jaxpr: Any) -> Any:
    """Return a jaxpr as data that compares equal for equal programs: variables are numbered in order."""
    consts: tuple[Any, ...] = ()
    if isinstance(jaxpr, core.ClosedJaxpr):
        consts, jaxpr = tuple(_text(jax.typeof(one)) for one in jaxpr.consts), jaxpr.jaxpr
    numbers: dict[Any, int] = {}

    def atom(one: Any) -> tuple[Any, ...]:
        aval = _text(one.aval), bool(getattr(one.aval, "weak_type", False))
        return (
            (repr(one.val), *aval) if isinstance(one, core.Literal) else (numbers.setdefault(one, len(numbers)), *aval)
        )

    return (
        consts,
        [atom(one) for one in (*jaxpr.constvars, *jaxpr.invars)],
        [
            (
                one.primitive.name,
                [atom(each) for each in one.invars],
                [atom(each) for each in one.outvars],
                {key: _param(value) for key, value in one.params.items()},
                sorted(map(_text, one.effects)),
            )
            for one in jaxpr.eqns
        ],
        [atom(one) for one in jaxpr.outvars],
    )


def _param(value: Any) -> Any:
    if isinstance(value, core.Jaxpr | core.ClosedJaxpr):
        return _jaxpr(value)
    if isinstance(value, tuple | list):
        return [_param(one) for one in value]
    return _text(value)


def _text(value: Any) -> str:
    return _ADDRESS.sub("0x", repr(value))


def _hlo(text: str) -> str:
    return _FRAMES.sub("", _METADATA.sub("", text))


def _without_names(text: str) -> str:
    numbers, names = count(), dict[str, int]()
    return _NAME.sub(lambda found: f"%{names.setdefault(found[0], next(numbers))}", text)
