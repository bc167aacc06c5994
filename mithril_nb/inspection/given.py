"""`inspect` for a program that starts at a later stage than Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mithril_nb.inspection.inspection import Inspection
from mithril_nb.stages.given.program import Given
from mithril_nb.stages.inspect_options import InspectOptions
from mithril_nb.stages.param_names import DEFAULT


def inspect_given(
    given: Given,
    *,
    name: str | None = None,
    params: str | Sequence[str] = DEFAULT,
    device: Any | None = None,
    compiler_options: Mapping[str, Any] | None = None,
) -> Inspection:
    """Look at a program that starts at a later stage than Python.

    Args:
        given: The program.
        name: Name of the program; by default its own name.
        params: Name of the argument that holds the parameters, as in `inspect`.
        device: The `jax.Device` to compile for.
        compiler_options: Further XLA options.

    Raises:
        UnknownOptionError: `params` names an argument that does not exist.

    Examples:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from mithril_nb.stages.given.program import given_of_lowered
        >>> found = inspect_given(given_of_lowered(jax.jit(jnp.sin).lower(jnp.zeros(3))))
        >>> found.name, found.stage("jaxpr").unavailable
        ('sin', 'this program was given as a jax.stages.Lowered: it has no jaxpr')
    """
    holders = (params,) if isinstance(params, str) else tuple(params)
    if holders != (DEFAULT,):
        given.check_params(holders)
    given = replace(given, name=name or given.name)
    return Inspection(_not_a_function, (), InspectOptions(given.name, holders, device, compiler_options, given=given))


def _not_a_function(*_: Any) -> None:
    raise AssertionError("a program that starts at a later stage is not traced")
