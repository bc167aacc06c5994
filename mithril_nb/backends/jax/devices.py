"""Devices by name, meshes of devices, the sharding of an array, the placement of a model's parts, and XLA flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import index
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mithril_nb.backends.backend import notice
from mithril_nb.errors import DeviceNotFoundError, ShapeError, UnknownBlockError, UnknownOptionError
from mithril_nb.models.model import Model

Device = Any
"""A `jax.Device`, which type checkers do not accept as a type."""


def find_device(text: str | Device) -> Device:
    """Return the device with a name such as `"cpu"` or `"gpu:1"`. A device is returned unchanged."""
    if isinstance(text, jax.Device):
        return text
    platform, _, number = str(text).partition(":")
    try:
        # int() would accept "-1" and " 1", and a negative index would count from the end.
        if number and not number.isdecimal():
            raise IndexError
        return jax.devices(platform)[int(number or 0)]
    except (RuntimeError, IndexError):
        raise DeviceNotFoundError(
            f"no device {text!r} on backend 'jax'.", (("present", ", ".join(present_devices())),)
        ) from None


def present_devices() -> list[str]:
    """Return the names of all devices, with JAX's default platform first."""
    # jax.devices() lists one platform only; look up the other platforms by name.
    devices = list(jax.devices())
    for platform in ("gpu", "tpu", "cpu"):
        try:
            devices += [device for device in jax.devices(platform) if device not in devices]
        except RuntimeError:
            continue  # the platform is not available
    return [device_name(device) for device in devices]


def device_name(device: Device) -> str:
    """Return the name of a device, such as `"cpu:0"`."""
    return f"{device.platform}:{device.id}"


def mesh_shape(device_mesh: Any) -> tuple[int, ...]:
    """Return the shape of a mesh, given as a number or a sequence of numbers.

    Examples:
        >>> mesh_shape(8), mesh_shape((2, 2))
        ((8,), (2, 2))
    """
    try:
        several = device_mesh if isinstance(device_mesh, tuple | list) else (device_mesh,)
        sizes = tuple(index(size) for size in several)
        if not sizes or min(sizes) < 1 or any(isinstance(size, bool) for size in several):
            raise TypeError
    except TypeError:
        raise UnknownOptionError(
            f"device_mesh={device_mesh!r} is not a mesh shape.",
            (("needs", "the number of devices along each axis"),),
        ) from None
    return sizes


def axis_names(shape: Sequence[int]) -> tuple[str, ...]:
    """Return the names of a mesh's axes. Batches are split over the first, parameters over the last.

    Examples:
        >>> axis_names((8,)), axis_names((2, 4)), axis_names((2, 2, 2))
        (('data',), ('data', 'model'), ('data', 'axis_1', 'model'))
    """
    middle = [f"axis_{axis}" for axis in range(1, len(shape) - 1)]
    return ("data", *middle, "model") if len(shape) > 1 else ("data",)


def make_mesh(shape: Sequence[int], platform: str | None = None, option: str = "device_mesh") -> Mesh:
    """Return a mesh of the first devices."""
    devices = jax.devices(platform) if platform else jax.devices()
    needed = prod(shape)
    if needed > len(devices):
        names, are = ", ".join(map(device_name, devices)), "is" if len(devices) == 1 else "are"
        requested = tuple(shape) if option == "device_mesh" else needed
        raise DeviceNotFoundError(
            f"{option}={requested} needs {needed} devices, but only {len(devices)} {are} available.",
            (("present", names),),
        )
    # With Auto axes, the compiler derives the sharding of intermediate values. JAX's default, Explicit axes, does not.
    grid = np.array(devices[:needed]).reshape(shape)
    return Mesh(grid, axis_names(shape), axis_types=(AxisType.Auto,) * len(shape))


def split_over(mesh: Mesh, shape: tuple[int, ...], tensor_split: Any = (0,)) -> NamedSharding:
    """Return the sharding of an array over a mesh."""
    axes = tuple(tensor_split) if isinstance(tensor_split, tuple | list) else (tensor_split,)
    rank = len(shape)
    # Not isinstance, because True would be axis 1.
    fits = all(axis is None or (type(axis) is int and -rank <= axis < rank) for axis in axes)
    split_axes = [axis % rank for axis in axes if axis is not None] if fits else []
    if not fits or len(axes) > len(mesh.axis_names) or len(set(split_axes)) < len(split_axes):
        raise UnknownOptionError(
            f"tensor_split={tensor_split!r} does not match an array of shape {shape} and a mesh {mesh.axis_sizes}.",
            (("needs", "for each mesh axis, a different axis of the array, or None"),),
        )
    # `tensor_split` has an array axis for each mesh axis; a PartitionSpec is the reverse.
    spec: list[str | None] = [None] * rank
    for name, axis in zip(mesh.axis_names, axes, strict=False):
        if axis is not None:
            check_even("an array", shape, axis % rank, mesh.shape[name])
            spec[axis % rank] = name
    return NamedSharding(mesh, PartitionSpec(*spec))


def check_even(subject: str, shape: tuple[int | str, ...], axis: int, parts: int, port: str = "") -> None:
    """Check that an axis splits into equal parts."""
    size = shape[axis]
    assert isinstance(size, int)
    # JAX raises an IndivisibleError, which does not name the array.
    if size % parts:
        raise ShapeError(
            f"{subject} cannot be split evenly over {parts} devices.",
            (("shape", f"{shape}      axis {axis}: {size} = {size // parts} * {parts} + {size % parts}"),),
            port=port,
        )


class PlacedModel(Model):
    """A model whose blocks are placed on devices. `JaxBackend.place_model` returns it.

    Attributes:
        placement: The device of each placed block, by path of the block.
    """

    placement: Mapping[str, Device]

    def _seal(self) -> None:
        """Do nothing: the placed model keeps the block of the original model."""


def place(model: Model, placement: Mapping[str, int | str | Device], platform: str) -> Model:
    """Return a model with some blocks placed on devices. See `JaxBackend.place_model`."""
    if not isinstance(model, Model) or not isinstance(placement, Mapping):
        raise UnknownOptionError(
            f"cannot place {type(model).__name__} with {type(placement).__name__}.",
            (("needs", "a model, and a dict from block names to devices"),),
        )
    paths = [path for path, _ in model.graph.walk()]
    devices: dict[str, Any] = dict(devices_of(model))
    for name, device in placement.items():
        path = str(name).replace(".", "/")
        if path not in paths:
            raise UnknownBlockError(
                f"the model has no block {name!r}.",
                (("blocks", ", ".join(map(repr, paths)) or "none"),),
            )
        is_number = isinstance(device, int) and not isinstance(device, bool)
        devices[path] = find_device(f"{platform}:{device}" if is_number else device)
    placed = PlacedModel(model.name)
    placed._block, placed._members = model.block, dict(model._members)
    placed.placement = devices
    return placed


def devices_of(model: object) -> Mapping[str, Device]:
    """Return the device of each placed block of a model, by path of the block."""
    return model.placement if isinstance(model, PlacedModel) else {}


def put(array: jax.Array, device: Device | None) -> jax.Array:
    """Return the array on a device. If `device` is `None`, the array is unchanged."""
    return array if device is None else jax.device_put(array, device)


_KINDS = {"xla_gpu_": "gpu", "xla_tpu_": "tpu", "xla_cpu_": "cpu"}
"""Platform of an XLA flag, by the prefix of the flag."""
_AT_START = "xla_force_host_platform_device_count"
"""A flag that XLA reads only when it starts."""


def compiler_options(flags: Any, platform: str) -> dict[str, str]:
    """Return flags as a dict for `jax.jit(compiler_options=...)`. Warn about flags for other platforms.

    Examples:
        >>> compiler_options(["--xla_cpu_enable_fast_math=true"], "cpu")
        {'xla_cpu_enable_fast_math': 'True'}
    """
    if isinstance(flags, str) or not isinstance(flags, Sequence) or not all(isinstance(flag, str) for flag in flags):
        raise UnknownOptionError(
            f"xla_flags={flags!r} is not a list of flags.",
            (("needs", "a list of strings"),),
        )
    options: dict[str, str] = {}
    for flag in flags:
        name, is_set, value = flag.strip().removeprefix("--").partition("=")
        meant = next((kind for start, kind in _KINDS.items() if name.startswith(start)), platform)
        if name == _AT_START:
            raise UnknownOptionError(
                f"the XLA flag {name!r} comes too late: JAX reads it only at the start.",
            )
        if meant == platform:
            # XLA_FLAGS accepts "true", but a compiler option must be "True".
            is_bool = value.lower() in ("true", "false")
            options[name] = (value.capitalize() if is_bool else value) if is_set else "True"
            _try(name, options[name], flag)
        else:  # do not try it: XLA may accept such a flag only on its own platform
            notice(
                f"the XLA flag {name!r} has no effect: it is for {meant.upper()}s, and this backend runs on {platform}."
            )
    return options


def _try(name: str, value: str, flag: str) -> None:
    # XLA has no list of its flags, so a trivial program is compiled with the flag.
    try:
        jax.jit(lambda: 0, compiler_options={name: value}).lower().compile()
    except jax.errors.JaxRuntimeError as error:
        # Without the status code: the text is "INVALID_ARGUMENT: No such compile option: ...".
        because = str(error).partition(": ")[2] or str(error)
        raise UnknownOptionError(
            f"XLA rejects the flag {flag!r}.",
            (("because", because),),
        ) from None
