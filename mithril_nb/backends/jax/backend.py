"""`JaxBackend`: arrays, random numbers, devices and gradients, as the user's documents name them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import jax
import jax.numpy as jnp

from mithril_nb.backends.backend import check_seed, check_switch
from mithril_nb.backends.jax import custom, kernels
from mithril_nb.backends.jax.arrays import ArrayMaker
from mithril_nb.backends.jax.devices import (
    Device,
    device_name,
    find_device,
    make_mesh,
    mesh_shape,
)
from mithril_nb.backends.jax.flags import compiler_options
from mithril_nb.backends.jax.initializers import Wanted, drawn, stream
from mithril_nb.backends.jax.operations import OPERATIONS, SPELLINGS
from mithril_nb.backends.jax.placing import place
from mithril_nb.errors import NameTakenError, ShapeError, UnknownOptionError, refuse_unknown, short_repr
from mithril_nb.graph.spec import ITEM_BYTES, as_dtype
from mithril_nb.models.custom import PRIMITIVES, check_name, define, ports_of
from mithril_nb.models.infer import Parameter
from mithril_nb.models.model import Model
from mithril_nb.models.op import OPS
from mithril_nb.program import Kernel, Toolkit

_PRECISIONS = {"default": "default", "high": "high", "highest": "highest"}


class JaxBackend(ArrayMaker):
    """Runs models with JAX.

    Args:
        dtype: Dtype of parameters and of arrays made here. `"float64"` switches JAX's x64 mode on for the whole
            process: arrays made elsewhere by JAX are then 64 bits wide too.
        jit: Whether programs are jitted where `compile` does not say.
        jit_compile: The same under its other name.
        device: `"cpu"`, `"gpu"`, `"gpu:0"`, `"tpu"`, or one of `jax.devices()`; by default JAX's own default device.
        platform: The same for those who name only the kind.
        precision: Of matrix products: a `jax.lax.Precision`, or `"default"`, `"high"`, `"highest"`; a dtype's name
            (`"bfloat16"`) sets the dtype instead.
        seed: Seed of the random numbers that it draws.
        debug: Whether to raise where a number is NaN, and to hold what each block makes beside what was inferred of
            it. Programs are then slower. Only what this backend runs is checked.
        device_mesh: How many devices there are along each axis of a mesh, as `(2, 4)`, or one number; `compile` splits
            batches over the first axis and parameters over the last. It may be fewer than the machine has.
        xla_flags: Texts as in the variable XLA_FLAGS, for the programs that run on this backend alone.

    Raises:
        UnknownDtypeError: A dtype that does not exist.
        UnknownOptionError: Options that contradict each other, or that make no sense.
        DeviceNotFoundError: A device that the machine does not have.

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
                    advice=f"JaxBackend(dtype={precision!r})",
                )
            dtype, precision = precision, None
        self.default_dtype = as_dtype("float32" if dtype is None else dtype)
        if "float" not in self.default_dtype:
            raise UnknownOptionError(
                f"cannot compute gradients in dtype {str(self.default_dtype)!r}.",
                (("needs", "float16, bfloat16, float32 or float64"),),
                'JaxBackend(dtype="float32")  # array(data, dtype="int32") creates arrays of other dtypes',
            )
        if self.default_dtype == "float64":
            jax.config.update("jax_enable_x64", True)
        self.precision = _checked_precision(precision)
        for option, value in (("jit", jit), ("jit_compile", jit_compile), ("debug", debug)):
            check_switch(option, value, f"JaxBackend({option}=False)")
        self.jit = True if jit is None and jit_compile is None else bool(jit if jit is not None else jit_compile)
        if jit is not None and jit_compile is not None and jit != jit_compile:
            raise UnknownOptionError(
                f"jit={jit} and jit_compile={jit_compile} contradict each other: they are one option.",
                advice=f"JaxBackend(jit={jit})",
            )
        for option, value in (("device", device), ("platform", platform)):
            if value is not None and not isinstance(value, jax.Device) and not (isinstance(value, str) and value):
                raise UnknownOptionError(
                    f"{option}={value!r} is no device.",
                    (("needs", "a name such as 'cpu' or 'gpu:1', or one of jax.devices()"),),
                    'JaxBackend(device="cpu")',
                )
        if device and platform and str(getattr(device, "platform", device)).partition(":")[0] != platform:
            raise UnknownOptionError(
                f"device={device!r} and platform={platform!r} contradict each other.",
                advice=f"JaxBackend(device={device!r})",
            )
        self.device = find_device(device or platform) if device or platform else None
        self.debug = bool(debug)
        platform = self.device.platform if self.device else None
        self.mesh = None if device_mesh is None else make_mesh(mesh_shape(device_mesh), platform)
        self.compiler_options = compiler_options(xla_flags, platform or jax.default_backend()) if xla_flags else {}
        self._own: dict[str, Kernel] = {}
        self._primitives: dict[str, tuple[Any, Callable[..., Any]]] = {}
        self.set_seed(seed)

    def __repr__(self) -> str:
        return f"JaxBackend(dtype={str(self.default_dtype)!r}, device={self.device_name!r})"

    @property
    def device_name(self) -> str:
        """The device that programs run on, as `"cpu:0"`."""
        return device_name(self.device or jax.devices()[0])

    @property
    def toolkit(self) -> Toolkit:
        """Kernels and scopes with which it runs a graph."""
        brought = custom.kernels(self)
        known = {**kernels.KERNELS, **brought} if brought else kernels.KERNELS
        return Toolkit(self.name, known, jax.named_scope, jax.random.fold_in, kernels.draws, str(self.default_dtype))

    # Devices

    def set_platform(self, platform: str) -> None:
        """Run what comes from now on another kind of device: `"cpu"`, `"gpu"` or `"tpu"`.

        Raises:
            DeviceNotFoundError: The machine has none.
        """
        device = find_device(platform, 'backend.set_platform("{}")')
        if self.mesh is not None:
            self.mesh = make_mesh(tuple(self.mesh.shape.values()), device.platform)
        self.device = device

    def enable_x64(self, enabled: bool = True) -> None:
        """Let arrays be 64 bits wide, for the whole process, as JAX has it; the backend's own dtype stays.

        Raises:
            UnknownOptionError: It shall be switched off, and the backend's own dtype needs it.
        """
        check_switch("enabled", enabled, "backend.enable_x64()")
        if enabled is False and self.default_dtype == "float64":
            raise UnknownOptionError(
                "cannot switch 64 bits off for a backend of dtype 'float64'.",
                (("because", "JAX would make arrays of float32 where float64 is asked for"),),
                'ml.JaxBackend(dtype="float32").enable_x64(False)',
            )
        jax.config.update("jax_enable_x64", enabled)

    def place_model(self, model: Model, placement: Mapping[str, int | str | Device]) -> Model:
        """Return the model with devices for some of its parts: parameters lie there, and the part runs there.

        A model on several devices is not jitted as a whole.

        Args:
            model: The model; it stays as it is. What is placed in it already stays placed.
            placement: By name of a block in it (`"encoder"`, `"encoder/linear_0"`), a number of a device or its name.

        Raises:
            UnknownBlockError: A name that is no block of it.
            DeviceNotFoundError: A device that the machine does not have.

        Examples:
            >>> from mithril_nb.models import MLP
            >>> placed = JaxBackend().place_model(MLP(4, [3], 2), {"linear_0": 0})
            >>> placed.compile(JaxBackend()).placement
            {'linear_0': 'cpu:0'}
        """
        return place(model, placement, self.device.platform if self.device else jax.default_backend())

    # Ops of your own

    def register_op(self, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a JAX function as an op of this backend: `ml.op(name)` is a block, `backend.<name>` the function.

        The inputs of the block have the names of the function's arguments; one alone is called `"input"`. A name of an
        op of ours replaces what runs it, on this backend alone.

        Returns:
            A decorator, that leaves the function as it is.

        Raises:
            UnknownOptionError: A name that is none, or a function whose arguments are no inputs.
            NameTakenError: The name of something else that a backend has, as `"grad"`.

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
                f"cannot register the op {name!r}: a backend has something else of this name.",
                (("is", f"backend.{name}"),),
                f'@backend.register_op("my_{name}")',
            )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            ports = ports_of(function, "backend.register_op", name)
            if name not in kernels.KERNELS:
                define(name, ports)
                custom.REGISTERED.setdefault(name, WeakSet()).add(self)
            else:
                _check_ports(name, ports)
            self._own[name] = custom.plain(name, function)
            setattr(self, name, function)  # before what all backends have of that name
            return function

        return register

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a primitive that was registered, as a function of arrays."""
        if not name.startswith("_"):
            if name in PRIMITIVES:
                return custom.primitive(self, name)
            near = difflib.get_close_matches(name, [*dir(self), *PRIMITIVES], 1, 0.6)
            raise AttributeError(
                f"JaxBackend has no operation {name!r}."
                + (f" Did you mean {near[0]!r}?" if near else ' To add one: @backend.register_op("...").')
            )
        raise AttributeError(name)

    # Gradients

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the gradient of a function that gives one number, by its first argument.

        Raises:
            UnknownOptionError: No function; or, when it is called, an argument of whole numbers.
            ShapeError: When it is called: it gives something else than one number.

        Examples:
            >>> backend = JaxBackend()
            >>> backend.grad(lambda x: backend.reduce_sum(backend.power(x, 2)))(backend.tensor([1.0, 2.0, 3.0]))
            Array([2., 4., 6.], dtype=float32)
        """
        if not callable(function):
            raise UnknownOptionError(
                f"cannot differentiate {short_repr(function)}.",
                (("needs", "a function of arrays that gives one number"),),
                "backend.grad(lambda x: backend.sum(x * x))(x)",
            )
        # Checked around the function, so that its own errors stay its own.
        differentiated = jax.grad(lambda *given, **named: _one_number(function(*given, **named)))

        def gradient(*given: Any, **named: Any) -> Any:
            for leaf in jax.tree.leaves(given[:1]):
                _check_floating(leaf)
            return differentiated(*given, **named)

        return gradient

    def initial_params(self, parameters: tuple[Parameter, ...], seed: int | None = None) -> dict[str, jax.Array]:
        """Return starting values for parameters of known shapes, the same for the same seed.

        Raises:
            UnknownOptionError: The seed is no whole number.
        """
        if seed is None:
            start, self._drawn = (self._seed, self._drawn + 1), self._drawn + 1
        else:
            start = (check_seed(seed) % 2**64,)
        wanted = [
            Wanted(p.initializer, stream(start, p.name), tuple(map(int, p.spec.shape)), p.name, p.stacked)
            for p in parameters
        ]
        return {
            parameter.name: self._placed(jnp.asarray(array, self._dtype(parameter.spec.dtype)))
            for parameter, array in zip(parameters, drawn(wanted), strict=True)
        }


def _one_number(found: Any) -> Any:
    """What a function gave that is differentiated."""
    shape = getattr(found, "shape", None if not isinstance(found, int | float) else ())
    if shape != () or not jnp.issubdtype(jnp.result_type(found), jnp.floating):
        raise ShapeError(
            "cannot differentiate a function that does not give one floating number.",
            (("gives", type(found).__name__ if shape is None else f"{shape} {as_dtype(jnp.result_type(found))!s}"),),
            "backend.grad(lambda x: backend.sum(f(x)))",
        )
    return found


def _check_floating(leaf: Any) -> None:
    dtype = getattr(leaf, "dtype", None) or (jnp.result_type(leaf) if isinstance(leaf, int | float | complex) else None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.inexact):
        raise UnknownOptionError(
            "cannot differentiate by what is no floating number.",
            (("given", short_repr(leaf) if dtype is None else f"{jnp.shape(leaf)} {as_dtype(dtype)!s}"),),
            'backend.array(x, dtype="float32")',
        )


def _check_ports(name: str, ports: tuple[str, ...]) -> None:
    """Raise if a function cannot stand in for the kernel of an op of ours: arrays come in the order of its ports."""
    data = OPS[name].input_ports if name in OPS else ports
    if len(data) > len(ports):
        raise UnknownOptionError(
            f"the function takes {len(ports)} arrays, the op {name!r} has the inputs {', '.join(map(repr, data))}.",
            advice=f"def {name}({', '.join(data)}): ...  # or register another name",
        )


def _checked_precision(precision: Any) -> str | None:
    if precision is None:
        return None
    name = str(getattr(precision, "name", precision)).lower()
    if name not in _PRECISIONS:
        raise UnknownOptionError(
            f"unknown precision {precision!r}.",
            (("known", "default, high, highest, a jax.lax.Precision, or a dtype's name"),),
            'precision="highest"',
        )
    return _PRECISIONS[name]
