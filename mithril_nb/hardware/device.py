"""Devices that programs are compiled for, whether or not the machine has them: figures, names and topologies."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import product
from math import isqrt, prod
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mithril_nb.display import Shown
from mithril_nb.errors import DeviceNotFoundError, UnknownOptionError, listed, nearest, short_repr
from mithril_nb.hardware.compilers import compiler_of
from mithril_nb.plugins import load_plugins

if TYPE_CHECKING:
    from jax.sharding import AbstractMesh

_TOPOLOGY = re.compile(r"\d{1,5}(x\d{1,5}){0,2}")
_registered: dict[str, Device] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Device:
    """A kind of device, or several of them, as the compiler and the cost tables see it.

    `ml.devices()` shows the devices that are known. Figures are those of the manufacturer and are never measured here;
    one that is not known is `None`.

    Attributes:
        name: The name that the option `device` of `ml.inspect` takes, such as `"h100"`.
        title: The manufacturer's name.
        platform: XLA's name of the platform: `"cuda"` or `"tpu"`.
        memory_bytes: Memory of one device in bytes.
        bytes_per_s: Memory bandwidth in bytes/s.
        flops_per_s: Peak FLOP/s of matrix products by dtype, without sparsity. `"tensorfloat32"` is the rate of float32
            products at JAX's default precision on NVIDIA GPUs.
        vector_flops_per_s: Peak FLOP/s of other float32 operations.
        link_bytes_per_s: Bytes/s that one device sends to others, over all its links.
        clock_hz: Clock in Hz, which converts the compiler's cycles to time.
        launch_s: Time to start one kernel in seconds.
        source: Where the figures come from.
        topology: How several devices are connected, such as `"4x4"`; `""` for one device.
        chip: For TPUs, XLA's name of the chip; `""` for `name`.
        per_chip: Number of devices, as JAX counts them, that one chip of the topology has. The figures are of a device.
        smallest: For TPUs, the smallest topology that the compiler accepts: the chips of one host. Sizes of others are
            multiples of its sizes. A program for one chip uses its first.
        rates: For the CPU of this machine, measured rates: for each kind of work, pairs of a size and the rate.
        target: For GPUs, further properties that XLA's compiler needs, such as `{"core_count": 132}`.

    Examples:
        >>> import mithril_nb as ml
        >>> my_gpu = ml.Device("my-gpu", platform="cuda", memory_bytes=48 * 2**30, bytes_per_s=9e11, target={
        ...     "core_count": 84, "compute_capability": "8.6"})
        >>> my_gpu.topology, my_gpu.count
        ('', 1)
    """

    name: str
    title: str = ""
    platform: str = "cuda"
    memory_bytes: int | None = None
    bytes_per_s: float | None = None
    flops_per_s: Mapping[str, float] = field(default_factory=dict[str, float])
    vector_flops_per_s: float | None = None
    link_bytes_per_s: float | None = None
    clock_hz: float | None = None
    launch_s: float | None = None
    source: str = "given by the user"
    topology: str = ""
    chip: str = ""
    per_chip: int = 1
    smallest: str = ""
    target: Mapping[str, Any] = field(default_factory=dict[str, Any])
    rates: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict[str, Sequence[tuple[float, float]]])

    def __post_init__(self) -> None:
        if self.platform not in ("cpu", "cuda", "tpu"):
            raise UnknownOptionError(
                f"device {self.name!r} has an unknown platform {short_repr(self.platform)}.",
                (("platforms", "'cuda', 'tpu'"),),
            )

    def __str__(self) -> str:
        return f"{self.name}:{self.topology}" if self.topology else self.name

    @classmethod
    def read(cls, path: str | PathLike[str]) -> Device:
        """Return the device that a TOML file describes, with the attributes of `Device` as keys.

        The files in `mithril_nb/hardware/table` are examples. The name is that of the file, unless the file has one.
        """
        file = Path(path)
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnknownOptionError(f"cannot read a device from {str(path)!r}.", (("because", str(error)),)) from None
        names = {each.name for each in fields(cls)}
        if unknown := sorted(values.keys() - names):
            raise UnknownOptionError(
                f"{str(path)!r} describes no device: it has the unknown key {unknown[0]!r}.",
                (("keys", ", ".join(sorted(names))),),
            )
        return cls(**{"name": file.stem, **values})

    @property
    def count(self) -> int:
        """Number of devices in the topology."""
        count = self.per_chip
        for size in filter(None, self.topology.split("x")):
            count *= int(size)
        return count

    def with_topology(self, topology: str) -> Device:
        """Return several devices of this kind, such as `"4x4"` chips of a TPU, or `"8"` GPUs of one host."""
        if not _TOPOLOGY.fullmatch(topology) or "0" in topology.split("x"):
            raise self._no_topology(topology, "numbers joined by 'x'", [self.smallest or "8"])
        sizes, host = [int(size) for size in topology.split("x")], self._host
        if self.smallest and not 2 <= len(sizes) <= len(host):
            chips = -(-prod(sizes) // prod(host)) * prod(host)
            valid = [self.topology_for(chips * self.per_chip)]
            raise self._no_topology(topology, f"{len(host)} numbers joined by 'x'", valid)
        if not _may_compile(sizes, host):
            steps = zip(sizes, host, strict=False)
            around = product(*[{max(step, size // step * step), -(-size // step) * step} for size, step in steps])
            near = sorted(around, key=lambda other: (abs(prod(other) - prod(sizes)), -prod(other)))
            needs = f"multiples of {self.smallest}, the chips of one host"
            raise self._no_topology(topology, needs, ["x".join(map(str, other)) for other in near])
        return replace(self, topology=topology)

    def _no_topology(self, topology: str, needs: str, near: Sequence[str]) -> DeviceNotFoundError:
        facts = [("needs", needs), *([("nearest", ", ".join(near))] if self.platform == "tpu" else [])]
        return DeviceNotFoundError(
            f"{topology!r} is not a topology of {self.name!r}.", tuple(facts), f'device="{self.name}:{near[0]}"'
        )

    @property
    def _host(self) -> list[int]:
        return [int(size) for size in filter(None, self.smallest.split("x"))] or [1]

    @property
    def topologies(self) -> tuple[str, ...]:
        """Topologies to choose from; there are others.

        Examples:
            >>> device_named("v5e").topologies
            ('2x2', '4x4', '8x8')
        """
        if self.platform == "cuda":
            return "2", "4", "8", "2x8", "4x8"
        squares = ("x".join([size] * (self.smallest.count("x") + 1)) for size in "248")
        return tuple(dict.fromkeys(filter(None, (self.smallest, *squares))))

    def topology_for(self, count: int) -> str:
        """Return a topology with a number of devices, of TPUs as cubic as possible; `""` if none compiles."""
        if self.platform == "cuda":
            return str(count)
        chips, host = max(1, count // self.per_chip), self._host
        small = [size for size in range(1, isqrt(chips) + 1) if chips % size == 0]
        first = product({*small, *(chips // size for size in small)}, repeat=len(host) - 1)
        full = [(*sizes, chips // prod(sizes)) for sizes in first if chips % prod(sizes) == 0]
        valid = [sizes for sizes in full if _may_compile(sizes, host)]
        best = min(valid, key=lambda sizes: (_partial(sizes, host), max(sizes), sizes), default=())
        return "x".join(map(str, best))

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**values, "flops_per_s": dict(self.flops_per_s), "target": dict(self.target)}

    @property
    def hosts(self) -> int:
        """For GPUs, number of hosts in the topology; 1 for TPUs, whose links do not end at a host."""
        first, times, _ = self.topology.rpartition("x")
        return int(first) if times and self.platform == "cuda" and first.isdigit() else 1

    @property
    def compiler_topology(self) -> str:
        """The topology in the form that XLA's compiler reads."""
        if self.platform == "tpu":
            return f"{self.chip or self.name}:{self.topology or self.smallest}"
        hosts, _, count = (self.topology or "1").rpartition("x")  # of GPUs: hosts, and devices of each
        return f"1x{hosts or 1}x{count}"

    @property
    def target_config(self) -> str:
        """For GPUs, the properties as text of XLA's `GpuTargetConfigProto`."""
        if self.platform != "cuda":
            return ""
        if unknown := [name for name in ("compute_capability", "core_count") if name not in self.target]:
            raise UnknownOptionError(
                f"no program compiles for {self.name!r}: its target has no {' and no '.join(unknown)}.",
                (),
                'target={"core_count": 84, "compute_capability": "8.6"}  # in ml.Device',
            )
        major, _, minor = str(self.target["compute_capability"]).partition(".")
        info = {
            **_GPU_LIMITS,
            "memory_bandwidth": int(self.bytes_per_s or 0),
            "device_memory_size": int(self.memory_bytes or 0),
            "clock_rate_ghz": (self.clock_hz or 0) / 1e9,
            **{name: value for name, value in self.target.items() if name != "compute_capability"},
        }
        lines = [f"  {name}: {value}" for name, value in info.items()]
        lines.append(f"  cuda_compute_capability {{ major: {int(major)} minor: {int(minor or 0)} }}")
        version = "dnn_version_info { major: 9 minor: 10 patch: 0 }"
        text = "\n".join(["gpu_device_info {", *lines, "}", 'platform_name: "CUDA"', version])
        return f"{text}\ndevice_description_str: {_quoted(self.title or self.name)}\n"


def _may_compile(sizes: Sequence[int], host: Sequence[int]) -> bool:
    # Sizes of 1 are valid from libtpu 0.0.43 on (jax 0.12), but not for jax 0.10: the compiler refuses them itself.
    return all(size == 1 or size % step == 0 for size, step in zip(sizes, host, strict=False))


def _partial(sizes: Sequence[int], host: Sequence[int]) -> bool:
    return any(size % step for size, step in zip(sizes, host, strict=True))


# The same for all NVIDIA GPUs since Volta, or for most of them; `target` overrides them.
_GPU_LIMITS: Mapping[str, int] = {
    "threads_per_block_limit": 1024,
    "threads_per_warp": 32,
    "shared_memory_per_block": 49152,
    "shared_memory_per_core": 102400,
    "shared_memory_per_block_optin": 101376,
    "threads_per_core_limit": 1536,
    "fpus_per_core": 128,
    "block_dim_limit_x": 2**31 - 1,
    "block_dim_limit_y": 65535,
    "block_dim_limit_z": 65535,
    "l2_cache_size": 40 * 2**20,
    "registers_per_core_limit": 65536,
    "registers_per_block_limit": 65536,
}


def _quoted(text: str) -> str:
    return '"' + re.sub(r"[^ -!#-\[\]-~]", "?", text) + '"'


@cache
def _table() -> dict[str, Device]:
    files = sorted((Path(__file__).parent / "table").glob("*.toml"))
    return {device.name: device for device in map(Device.read, files)}


class Devices(Shown):
    """The devices that programs can be compiled for, by name; shown as a table."""

    def __init__(self, devices: Mapping[str, Device], missing: Mapping[str, str]):
        self._devices, self.missing = devices, missing

    def __iter__(self) -> Iterator[Device]:
        return iter(self._devices.values())

    def __len__(self) -> int:
        return len(self._devices)

    def __getitem__(self, name: str) -> Device:
        return device_named(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._devices)})"


def devices() -> Devices:
    """Return the devices that `ml.inspect` can compile for, by its option `device`, with their figures.

    None of them needs to be in the machine. The last column has "ready", the command that installs the compiler, or why
    there is none.

    Examples:
        >>> import mithril_nb as ml
        >>> ml.devices()["v5e:4x4"].count
        16
    """
    known = known_devices()
    missing = dict[str, str]()
    for platform in {device.platform for device in known.values()}:
        compiler = compiler_of(platform)
        if (problem := compiler.problem) is not None:
            installs = f"mithril-nb devices install {platform}"
            missing[platform] = installs if compiler.requirements else problem.diagnostics[0].summary
    return Devices(known, missing)


def device_mesh(device: str | Device, /, **axes: int) -> AbstractMesh:
    """Return a mesh over devices that this machine need not have, for shardings of programs that are inspected.

    It is an `AbstractMesh` with Auto axes: XLA chooses the shardings of all values that have none.

    Args:
        device: The devices, such as `"v5e:4x4"`. Without a topology, such as `"h100"`, any number of them.
        **axes: The axes by name with their sizes. One of them may be -1: the devices that are left.

    Raises:
        DeviceNotFoundError: There is no such device, or the topology has another number of devices.
        UnknownOptionError: A size is not a positive number.

    Examples:
        A product whose weights are split over 4 chips, and the bytes that each chip sends:

        >>> import jax, mithril_nb as ml
        >>> from jax.sharding import NamedSharding, PartitionSpec as P
        >>> mesh = ml.device_mesh("v5e:4x4", data=4, model=4)
        >>> w = jax.ShapeDtypeStruct((1024, 512), "bfloat16", sharding=NamedSharding(mesh, P("model", None)))
        >>> x = jax.ShapeDtypeStruct((64, 1024), "bfloat16", sharding=NamedSharding(mesh, P("data", "model")))
        >>> p = ml.inspect(lambda w, x: x @ w, w, x, device="v5e:4x4")
        >>> p.cost("compiled").total.wire_bytes  # doctest: +SKIP
        24576
    """
    from jax.sharding import AbstractMesh, AxisType

    kind = device_named(device) if isinstance(device, str) else device
    needs = ("needs", "positive numbers, at most one of them -1")
    free = [name for name, size in axes.items() if size == -1]
    sizes = [size for size in axes.values() if size != -1]
    if not axes or len(free) > 1 or not all(type(size) is int and size > 0 for size in sizes):
        raise UnknownOptionError(f"a mesh over {kind} cannot have the axes {_arguments(axes) or '()'}.", (needs,))
    rest, remainder = divmod(kind.count, prod(sizes)) if kind.topology else (1, bool(free))
    if remainder or (rest > 1 and not free):
        near = kind.topology_for(prod(sizes))
        raise DeviceNotFoundError(
            f"a mesh with axes {_arguments(axes)} does not cover {kind}.",
            (("devices", str(kind.count) if kind.topology else "any number: the name has no topology"),),
            f'ml.device_mesh("{kind.name}:{near}", {_arguments(axes)})' if near else "",
        )
    axes |= dict.fromkeys(free, rest)
    return AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def _arguments(axes: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={short_repr(size)}" for name, size in axes.items())


def register_device(device: Device) -> None:
    """Make `device=name` work for a device, in `ml.inspect` and everywhere else; it replaces one of the same name.

    Raises:
        UnknownOptionError: No option can name it: `"cpu"` is this machine, and a topology follows `":"`.
    """
    if device.name in ("", "cpu") or ":" in device.name:
        raise UnknownOptionError(
            f"a device cannot have the name {device.name!r}.", (("needs", "a name without ':', and not 'cpu'"),)
        )
    with _lock:
        _registered[device.name] = device


def known_devices() -> dict[str, Device]:
    """Return all devices by name, those of plugins included."""
    load_plugins()
    return {**_table(), **_registered}


def as_device(device: Any) -> Any:
    """Return the `Device` or `jax.Device` with a name; devices and `None` are returned unchanged.

    `"cpu"` is the CPU of this machine. Every other name is that of `devices()`.
    """
    import jax

    if device is None or isinstance(device, Device | jax.Device):
        return device
    if not isinstance(device, str):
        raise UnknownOptionError(
            f"the option device={short_repr(device)} is not valid.",
            (("needs", "a jax.Device, an ml.Device or its name"),),
        )
    if device == "cpu":
        return jax.devices("cpu")[0]
    return device_named(device)


def device_named(name: str) -> Device:
    """Return a device by name: `"h100"`, or several with their topology, such as `"v5e:4x4"` or `"h100:8"`.

    Examples:
        >>> device_named("v5e:4x4").count
        16
    """
    devices = known_devices()
    kind, _, topology = name.partition(":")
    if kind not in devices:
        near = nearest(kind, devices)
        raise DeviceNotFoundError(
            f"no device {short_repr(name)}.",
            (("devices", listed(devices)),),
            f'device="{near or "h100"}"',
        )
    return devices[kind].with_topology(topology) if topology else devices[kind]
