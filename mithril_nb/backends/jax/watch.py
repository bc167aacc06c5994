"""Kernels that know which block they run: what looks at each block's arrays, or moves them, hangs in here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import jax
import jax.numpy as jnp
from jax.core import Tracer

from mithril_nb.errors import MithrilError, ShapeError
from mithril_nb.graph.records import BlockSpecs
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.program import Arrays, Call, Kernel, Toolkit

Around = Callable[[str, Arrays, Callable[[Arrays], Arrays]], Arrays]
"""Gets the path of a block, its arrays, and what runs it."""


class NotANumberError(MithrilError, FloatingPointError):
    """A block made NaN."""


def around_blocks(toolkit: Toolkit, around: Around) -> Toolkit:
    """Return a toolkit that runs each block through a function that is told its path."""
    path: list[str] = []
    inside: list[None] = []  # a block that runs others is one: what is inside it has no arrays yet

    @contextmanager
    def scope(name: str) -> Iterator[None]:
        path.append(unquote(name.removeprefix("block:"), errors="surrogatepass"))
        try:
            with toolkit.scope(name):
                yield
        finally:
            path.pop()

    def wrapped(kernel: Kernel) -> Kernel:
        def run(call: Call, arrays: Arrays) -> Arrays:
            if inside:
                return kernel(call, arrays)
            inside.append(None)
            try:
                return around("/".join(path), arrays, lambda given: kernel(call, given))
            finally:
                inside.pop()

        return run

    return replace(toolkit, scope=scope, kernels={op: wrapped(kernel) for op, kernel in toolkit.kernels.items()})


def checking_shapes(toolkit: Toolkit, blocks: Mapping[str, BlockSpecs]) -> Toolkit:
    """Return a toolkit that holds what each block makes beside what was inferred of it."""

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        found = run(arrays)
        for port, spec in blocks[path].outputs.items() if path in blocks else ():
            if isinstance(spec, TensorSpec) and spec.is_concrete and jnp.shape(found[port]) != spec.shape:
                raise ShapeError(
                    f"'{path}.{port}' has another shape than was inferred.",
                    (("inferred", str(spec.shape)), ("made", str(jnp.shape(found[port])))),
                    "look into the function that computes it, or into the rule that infers its shape.",
                    block=path,
                    port=port,
                )
        return found

    return around_blocks(toolkit, around)


def looking_for_nan(toolkit: Toolkit) -> Toolkit:
    """Return a toolkit that raises at the first block which makes NaN. Only for programs that are not jitted.

    Raises:
        NotANumberError: From a block, that it names.
    """

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        with jax.debug_nans(False):
            found = run(arrays)
            for port, array in found.items():
                if _has_nan(array):
                    raise NotANumberError(
                        f"'{path}.{port}' is NaN.",
                        tuple((name, _range(one)) for name, one in arrays.items()),
                        "look at what comes in; JaxBackend(debug=False) runs on.",
                        block=path,
                        port=port,
                    )
        return found

    return around_blocks(toolkit, around)


def on_devices(toolkit: Toolkit, devices: Mapping[str, Any]) -> Toolkit:
    """Return a toolkit that runs each block on the device of the model it is in. Only for programs that are not jitted.

    Args:
        toolkit: What runs the blocks.
        devices: Device by path of a block or of a model that holds it.
    """

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        device = device_of(path, devices)
        return run({name: _moved(array, device) for name, array in arrays.items()})

    return around_blocks(toolkit, around)


def device_of(path: str, devices: Mapping[str, Any]) -> Any:
    """Return the device of a block: its own, or that of the innermost model around it which has one.

    Examples:
        >>> device_of("encoder/linear_0", {"encoder": 1}), device_of("decoder", {"encoder": 1})
        (1, None)
    """
    parts = path.split("/")
    around = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((devices[one] for one in around if one in devices), None)


def _moved(array: Any, device: Any) -> Any:
    return array if device is None or not isinstance(array, jax.Array) else jax.device_put(array, device)


def _has_nan(array: Any) -> bool:
    is_array = isinstance(array, jax.Array) and not isinstance(array, Tracer)
    return is_array and jnp.issubdtype(array.dtype, jnp.inexact) and bool(jnp.isnan(array).any())


def _range(array: Any) -> str:
    if not isinstance(array, jax.Array) or not array.size or array.dtype == bool:
        return str(getattr(array, "shape", array))
    found = f"{array.shape} from {jnp.nanmin(array):.4g} to {jnp.nanmax(array):.4g}"
    return f"{found}, NaN among them" if _has_nan(array) else found
