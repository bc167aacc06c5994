"""Kernels wrapped with the path of their block, to check or move the arrays of each block."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import jax
import jax.numpy as jnp
from jax.core import Tracer

from mithril_nb.backends.jax.devices import put
from mithril_nb.errors import MithrilError, ShapeError
from mithril_nb.graph.records import BlockSpecs
from mithril_nb.graph.spec import TensorSpec
from mithril_nb.program import Arrays, Call, Kernel, Toolkit

Around = Callable[[str, Arrays, Callable[[Arrays], Arrays]], Arrays]
"""A function of the path of a block, its input arrays, and the function that runs its kernel."""


class NotANumberError(MithrilError, FloatingPointError):
    """The output of a block, or a gradient of a model, contains NaN."""


def around_blocks(toolkit: Toolkit, around: Around) -> Toolkit:
    """Return a toolkit that calls `around` instead of the kernel of each block. `around` receives the kernel."""
    path: list[str] = []
    inside: list[None] = []  # inner blocks of a block such as a loop are not wrapped, because they receive tracers

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
                return around("/".join(path), arrays, lambda inputs: kernel(call, inputs))
            finally:
                inside.pop()

        return run

    return replace(toolkit, scope=scope, kernels={op: wrapped(kernel) for op, kernel in toolkit.kernels.items()})


def checking_shapes(toolkit: Toolkit, blocks: Mapping[str, BlockSpecs]) -> Toolkit:
    """Return a toolkit that compares the output shapes of each block with the inferred shapes."""

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        outputs = run(arrays)
        for port, spec in blocks[path].outputs.items() if path in blocks else ():
            if isinstance(spec, TensorSpec) and spec.is_concrete and jnp.shape(outputs[port]) != spec.shape:
                raise ShapeError(
                    f"the shape of '{path}.{port}' differs from the inferred shape.",
                    (
                        ("inferred", str(spec.shape)),
                        ("computed", str(jnp.shape(outputs[port]))),
                        ("cause", "the function that computes the output, or the rule that infers the shape"),
                    ),
                    block=path,
                    port=port,
                )
        return outputs

    return around_blocks(toolkit, around)


def looking_for_nan(toolkit: Toolkit) -> Toolkit:
    """Return a toolkit that raises an error at the first block that outputs NaN. The program must not be jitted."""

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        # Disable JAX's check, because it would raise an error without the name of the block.
        with jax.debug_nans(False):
            outputs = run(arrays)
            for port, array in outputs.items():
                if _has_nan(array):
                    raise NotANumberError(
                        f"'{path}.{port}' is NaN.",
                        tuple((name, range_text(operand)) for name, operand in arrays.items()),
                        block=path,
                        port=port,
                    )
        return outputs

    return around_blocks(toolkit, around)


def on_devices(toolkit: Toolkit, devices: Mapping[str, Any]) -> Toolkit:
    """Return a toolkit that runs each block on its device. The program must not be jitted."""

    def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        # An operation outside jit needs all its committed arrays on one device.
        device = device_of(path, devices)
        return run(
            {name: put(array, device) if isinstance(array, jax.Array) else array for name, array in arrays.items()}
        )

    return around_blocks(toolkit, around)


def device_of(path: str, devices: Mapping[str, Any]) -> Any:
    """Return the device of a block or of the innermost block around it that has a device. Return `None` otherwise.

    Examples:
        >>> device_of("encoder/linear_0", {"encoder": 1}), device_of("decoder", {"encoder": 1})
        (1, None)
    """
    parts = path.split("/")
    around = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((devices[block] for block in around if block in devices), None)


def _has_nan(array: Any) -> bool:
    # The values of a tracer, as in the body of a scan, are unknown.
    is_array = isinstance(array, jax.Array) and not isinstance(array, Tracer)
    return is_array and jnp.issubdtype(array.dtype, jnp.inexact) and bool(jnp.isnan(array).any())


def range_text(array: Any) -> str:
    """Return shape, smallest and largest element of an array as text."""
    if not isinstance(array, jax.Array) or not array.size or array.dtype == bool:
        return str(getattr(array, "shape", array))
    summary = f"{array.shape} from {jnp.nanmin(array):.4g} to {jnp.nanmax(array):.4g}"
    return f"{summary}, and NaN" if _has_nan(array) else summary
