"""`JaxBackend`: arrays, random numbers, devices and gradients, with the names of the Mithril documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh

from mithril_nb.backends.backend import check_seed, check_switch
from mithril_nb.backends.jax import custom, kernels
from mithril_nb.backends.jax.arrays import ArrayMaker
from mithril_nb.backends.jax.devices import (
    Device,
    compiler_options,
    device_name,
    find_device,
    make_mesh,
    mesh_shape,
    place,
)
from mithril_nb.backends.jax.initializers import Request, drawn, stream
from mithril_nb.backends.jax.operations import OPERATIONS, SPELLINGS
from mithril_nb.errors import NameTakenError, ShapeError, UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.graph.spec import ITEM_BYTES, as_dtype
from mithril_nb.models.model import Model
from mithril_nb.models.op import OPS, PRIMITIVES, check_name, define, ports_of, set_shape_rule
from mithril_nb.models.shape_inference.infer import Parameter
from mithril_nb.program import Kernel, Toolkit


class JaxBackend(ArrayMaker):
    """Runs models with JAX.

    Args:
        dtype: Dtype of parameters and of arrays created here. `"float64"` enables JAX's x64 mode for the whole
            process, so other JAX code then also creates 64-bit arrays.
        jit: True to jit programs; `compile` can override it.
        jit_compile: Alias of `jit`.
        device: `"cpu"`, `"gpu"`, `"gpu:0"`, `"tpu"`, or one of `jax.devices()`; default: JAX's default device.
        platform: Alias of `device` for a platform name.
        precision: Precision of matrix products: a `jax.lax.Precision`, or `"default"`, `"high"`, `"highest"`. A dtype
            name (`"bfloat16"`) sets the dtype instead.
        seed: Seed of the random stream.
        debug: True to raise an error for NaN, and to compare the output shapes of each block with the inferred shapes.
            Only programs of this backend are checked. They run more slowly.
        device_mesh: Number of devices along each mesh axis, such as `(2, 4)`, or one number. `compile` splits batches
            over the first axis and parameters over the last. The mesh may use fewer devices than the machine has.
            Or a mesh of `ml.device_mesh`, for a model that is inspected for devices of another machine.
        xla_flags: List of flags as in the variable XLA_FLAGS, for the programs of this backend only.

    Raises:
        UnknownDtypeError: The dtype does not exist.
        UnknownOptionError: Options contradict each other or are invalid.
        DeviceNotFoundError: The machine does not have the device.

    Examples:
        >>> backend = JaxBackend(dtype="float32")
        >>> backend.zeros(2, 3).shape
        (2, 3)
    """

    name = "jax"

    def __init__(
        self,
        dtype: Any = None,
        *,
        jit: bool | None = None,
        jit_compile: bool | None = None,
        device: str | Device | None = None,
        platform: str | None = None,
        precision: Any = None,
        seed: int = 0,
        debug: bool = False,
        device_mesh: Any = None,
        xla_flags: Any = (),
        **unknown: Any,
    ):
        super().__init__()
        refuse_unknown("JaxBackend", unknown, JaxBackend.__init__)
        if isinstance(precision, str) and precision in ITEM_BYTES:
            if dtype is not None and as_dtype(dtype) != precision:
                raise UnknownOptionError(
                    f"dtype={str(as_dtype(dtype))!r} and precision={precision!r} contradict each other.",
                )
            dtype, precision = precision, None
        self.default_dtype = as_dtype("float32" if dtype is None else dtype)
        if "float" not in self.default_dtype:
            raise UnknownOptionError(
                f"cannot compute gradients in dtype {str(self.default_dtype)!r}.",
                (("needs", "float16, bfloat16, float32 or float64"),),
            )
        # JAX has no x64 mode per array: without this switch, it would truncate float64 to float32, with a warning.
        if self.default_dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        # A `jax.lax.Precision` has a name, and a text is one.
        self.precision = None if precision is None else str(getattr(precision, "name", precision)).lower()
        if self.precision not in (None, "default", "high", "highest"):
            raise UnknownOptionError(
                f"unknown precision {precision!r}.",
                (("known", "default, high, highest, a jax.lax.Precision, or a dtype's name"),),
            )
        for option, value in (("jit", jit), ("jit_compile", jit_compile), ("debug", debug)):
            check_switch(option, value)
        self.jit = True if jit is None and jit_compile is None else bool(jit if jit is not None else jit_compile)
        if jit is not None and jit_compile is not None and jit != jit_compile:
            raise UnknownOptionError(
                f"jit={jit} and jit_compile={jit_compile} contradict each other: they are one option.",
            )
        for option, value in (("device", device), ("platform", platform)):
            if value is not None and not isinstance(value, jax.Device) and not (isinstance(value, str) and value):
                raise UnknownOptionError(
                    f"{option}={value!r} is not a device.",
                    (("needs", "a name such as 'cpu' or 'gpu:1', or one of jax.devices()"),),
                )
        if device and platform and str(getattr(device, "platform", device)).partition(":")[0] != platform:
            raise UnknownOptionError(
                f"device={device!r} and platform={platform!r} contradict each other.",
            )
        self.device = find_device(device or platform) if device or platform else None
        self.debug = bool(debug)
        platform = self.device.platform if self.device else None
        is_mesh = device_mesh is None or isinstance(device_mesh, AbstractMesh)
        self.mesh = device_mesh if is_mesh else make_mesh(mesh_shape(device_mesh), platform)
        self.compiler_options = compiler_options(xla_flags, platform or jax.default_backend()) if xla_flags else {}
        self._own: dict[str, Kernel] = {}
        self._primitives: dict[str, tuple[Any, Callable[..., Any]]] = {}
        self.set_seed(seed)

    def __repr__(self) -> str:
        return f"JaxBackend(dtype={str(self.default_dtype)!r}, device={self.device_name!r})"

    @property
    def device_name(self) -> str:
        """Name of the device that programs run on, such as `"cpu:0"`."""
        return device_name(self.device or jax.devices()[0])

    @property
    def toolkit(self) -> Toolkit:
        """The kernels of the ops, and other functions with which the backend runs a graph."""
        own = custom.kernels(self)
        # Every trace reads this property, so the table of about 200 kernels is copied only if there are custom ops.
        table = {**kernels.KERNELS, **own} if own else kernels.KERNELS
        return Toolkit(self.name, table, jax.named_scope, jax.random.fold_in, kernels.draws, str(self.default_dtype))

    # Devices

    def set_platform(self, platform: str) -> None:
        """Use another platform from now on: `"cpu"`, `"gpu"` or `"tpu"`.

        Raises:
            DeviceNotFoundError: The machine has no such device.
        """
        device = find_device(platform)
        if isinstance(self.mesh, Mesh):
            self.mesh = make_mesh(tuple(self.mesh.shape.values()), device.platform)
        self.device = device

    def enable_x64(self, enabled: bool = True) -> None:
        """Enable or disable JAX's x64 mode for the whole process. The backend's dtype does not change.

        Raises:
            UnknownOptionError: `enabled` is False, but the backend's dtype needs the x64 mode.
        """
        check_switch("enabled", enabled)
        if enabled is False and self.default_dtype == "float64":
            raise UnknownOptionError(
                "cannot disable the x64 mode for a backend of dtype 'float64'.",
                (("because", "JAX would create float32 arrays instead of float64"),),
            )
        jax.config.update("jax_enable_x64", enabled)

    def place_model(self, model: Model, placement: Mapping[str, int | str | Device]) -> Model:
        """Return the model with some blocks placed on devices. Each device stores the parameters of its blocks.

        A model on several devices is not jitted as a whole.

        Args:
            model: The model, which does not change. Earlier placements are kept.
            placement: Number or name of a device, by path of a block (`"encoder"`, `"encoder/linear_0"`).

        Raises:
            UnknownOptionError: `model` is not a `Model`, or `placement` is not a dict.
            UnknownBlockError: A path is not a block of the model.
            DeviceNotFoundError: The machine does not have the device.

        Examples:
            >>> from mithril_nb.models import MLP
            >>> placed = JaxBackend().place_model(MLP(4, [3], 2), {"linear_0": 0})
            >>> placed.compile(JaxBackend()).placement
            {'linear_0': 'cpu:0'}
        """
        return place(model, placement, self.device.platform if self.device else jax.default_backend())

    # Custom ops

    def register_op(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a JAX function as an op of this backend.

        Then `ml.op(name)` is a block that runs the function, and `backend.<name>` is the function. The inputs of the
        block have the names of the function's arguments, but a single input is named `"input"`. If `name` is a built-in
        op, the function replaces the op's kernel on this backend.

        Returns:
            A decorator that returns the function unchanged.

        Raises:
            UnknownOptionError: The name is invalid, or the function's arguments cannot be inputs.
            NameTakenError: The name is another attribute of the backend, such as `"grad"`.

        Examples:
            >>> import mithril_nb as ml
            >>> backend = JaxBackend()
            >>> @backend.register_op("halve")
            ... def halve(x):
            ...     return x / 2
            >>> pm = ml.compile(ml.op("halve"), backend)
            >>> pm.evaluate({}, {"input": backend.ones(2)})["output"]
            Array([0.5, 0.5], dtype=float32)
        """
        check_name(name, "backend.register_op")
        is_ours = name in kernels.KERNELS or name in OPERATIONS or name in SPELLINGS
        if not is_ours and name not in self._own and name in dir(self):
            raise NameTakenError(
                f"cannot register the op {name!r}: the backend already has an attribute of this name.",
                (("attribute", f"backend.{name}"),),
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            ports = ports_of(function, "backend.register_op", name)
            if name not in kernels.KERNELS:
                define(name, ports)
                custom.REGISTERED.setdefault(name, WeakSet()).add(self)
            # A function with fewer arguments than a built-in op would fail only when the model runs.
            elif name in OPS and len(OPS[name].input_ports) > len(ports):
                raise UnknownOptionError(
                    f"the function has {len(ports)} argument{'s' * (len(ports) != 1)}, but the op {name!r} has more "
                    "inputs.",
                    (("inputs", ", ".join(OPS[name].input_ports)),),
                )
            self._own[name] = custom.plain(name, function)
            setattr(self, name, function)  # the instance attribute hides a built-in operation of that name
            return function

        return register

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a registered primitive as a function of arrays."""
        # `copy` and `pickle` look up names such as `__setstate__`. For these, do not search for similar names.
        if not name.startswith("_"):
            if name in PRIMITIVES:
                return custom.primitive(self, name)
            raise AttributeError(f"JaxBackend has no operation {name!r}. To add one: @backend.register_op({name!r}).")
        raise AttributeError(name)

    # Gradients

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the gradient of a scalar function with respect to its first argument.

        Raises:
            UnknownOptionError: `function` is not callable. The returned function raises this error for an argument
                that contains integers.
            ShapeError: Raised by the returned function if `function` does not return a scalar.

        Examples:
            >>> backend = JaxBackend()
            >>> backend.grad(lambda x: backend.reduce_sum(backend.power(x, 2)))(backend.tensor([1.0, 2.0, 3.0]))
            Array([2., 4., 6.], dtype=float32)
        """
        if not callable(function):
            raise UnknownOptionError(
                f"cannot differentiate {short_repr(function)}.",
                (("needs", "a function of arrays that returns a scalar"),),
            )
        # Check the result in a wrapper, so that errors of the function itself pass through.
        differentiated = jax.grad(lambda *args, **named: _checked_scalar(function(*args, **named)))

        def gradient(*args: Any, **named: Any) -> Any:
            for leaf in jax.tree.leaves(args[:1]):
                _check_floating(leaf)
            return differentiated(*args, **named)

        return gradient

    def initial_params(self, parameters: tuple[Parameter, ...], seed: int | None = None) -> dict[str, jax.Array]:
        """Return initial values for parameters of known shapes. The same seed gives the same values.

        Raises:
            UnknownOptionError: The seed is not an integer.
            ShapeError: An initializer needs an input axis and an output axis, and the parameter lacks one.
        """
        if seed is None:
            # Each call without a seed draws other values, so that two models do not start equal.
            start, self._drawn = (self._seed, self._drawn + 1), self._drawn + 1
        else:
            start = (check_seed(seed) % 2**64,)
        requests = [
            Request(p.initializer, stream(start, p.name), tuple(map(int, p.spec.shape)), p.name, p.stacked)
            for p in parameters
        ]
        return {
            parameter.name: self._placed(jnp.asarray(array, self._dtype(parameter.spec.dtype)))
            for parameter, array in zip(parameters, drawn(requests), strict=True)
        }


def _checked_scalar(x: Any) -> Any:
    shape = getattr(x, "shape", None if not isinstance(x, int | float) else ())
    if shape != () or not jnp.issubdtype(jnp.result_type(x), jnp.floating):
        raise ShapeError(
            "cannot differentiate a function that does not return a floating-point scalar.",
            (("returns", type(x).__name__ if shape is None else f"{shape} {as_dtype(jnp.result_type(x))!s}"),),
        )
    return x


def _check_floating(leaf: Any) -> None:
    dtype = getattr(leaf, "dtype", None) or (jnp.result_type(leaf) if isinstance(leaf, int | float | complex) else None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        raise UnknownOptionError(
            "cannot differentiate with respect to a value that is not floating point.",
            (("given", short_repr(leaf) if dtype is None else f"{jnp.shape(leaf)} {as_dtype(dtype)!s}"),),
        )


# Shape inference cannot import this package, so it receives the rule here. `cache` creates the default backend on first
# use. It creates only one backend, because the backend caches the functions of primitives.
set_shape_rule(partial(custom.shapes, default=cache(JaxBackend)))
