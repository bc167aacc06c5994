"""The peaks of this machine: FLOP/s of a large matmul, and bytes/s of updating a large array."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from mithril_nb.atomic_write import cache_folder, write_text
from mithril_nb.errors import UnknownOptionError, short_repr

MATMUL = "float32"
"""Dtype of the matmul that is measured for programs without a matmul."""
_ON_BUSY = " on a busy machine"
# Key of the bytes/s peak in `Machine.dates`.
_MEMORY = "memory"
# Length of one measurement round, without compiling and finding a size.
_ROUND_S = 0.05
# Least and most rounds for each peak. Measuring ends after the least if the best three rounds agree.
_ROUNDS = 8, 24
# The best rounds agree if they differ by at most this fraction, as on an idle machine.
_ALIKE = 0.03
# JAX dispatches a call in about 11 µs (0.10.2 on two cores), which is 0.3 % of a matmul of this length.
_LONG_ENOUGH_S = 4e-3
_SIZES = (512, 1024, 2048, 4096, 8192)
_COPIED_BYTES = {"cpu": 1 << 27}
# Sizes of the updated array, larger than the caches of CPUs and accelerators.
_COPIED_BYTES_ELSEWHERE = 1 << 29
# Held while measuring: two measurements at once would halve each other's rate.
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Machine:
    """The measured peaks of a machine: its highest rates of computing and of memory access.

    Attributes:
        platform: `"cpu"`, `"gpu"` or `"tpu"`.
        device_kind: JAX's name for the device.
        cores: Number of processors that this process may use.
        jax_version: JAX version of the latest measurement.
        settings: Text of the environment variables `XLA_FLAGS` and `NPROC`, which change XLA's speed; `""` if both are
            unset.
        flops_per_s: FLOP/s of a large matmul, by dtype of its operands.
        bytes_per_s: Bytes/s read and written while updating a large array in place.
        measured_at: Time of the latest measurement, in UTC.
        source: A text that describes how the peaks were obtained, such as `"measured"`.
        dates: Time of each peak's measurement. The keys are dtypes for FLOP/s, and `"memory"` for bytes/s. A missing
            key means `measured_at`.
        busy: The keys, as in `dates`, of peaks that were measured on a busy machine. The true peaks may be higher.
        processor: Model name of the CPU; `""` for other devices.
        jax_versions: JAX version of each peak's measurement, with the keys of `dates`. A missing key means
            `jax_version`.

    Examples:
        >>> peaks = Machine("cpu", "cpu", 2, "0.10.2", "", {"float32": 2e11}, 6e10, "2026-11-22 07:35 UTC")
        >>> print(peaks)
        cpu, 2 cores: 200.0 GFLOP/s float32 matmul, 60.0 GB/s (measured 2026-11-22 07:35 UTC, jax 0.10.2)
        >>> peaks.peak_of("float32")
        200000000000.0
    """

    platform: str
    device_kind: str
    cores: int
    jax_version: str
    settings: str
    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    measured_at: str
    source: str = "measured"
    dates: Mapping[str, str] = field(default_factory=dict[str, str])
    busy: tuple[str, ...] = ()
    processor: str = ""
    jax_versions: Mapping[str, str] = field(default_factory=dict[str, str])

    def peak_of(self, dtype: str | None = None) -> float:
        """Return the peak FLOP/s of a dtype; the highest peak of all dtypes if it was not measured or is `None`."""
        # The highest rate of all keeps the share of the roofline a lower bound.
        rates = self.flops_per_s
        return rates[dtype] if dtype is not None and dtype in rates else max(rates.values())

    def peaks(self, dtype: str | None = None) -> dict[str, float]:
        """Return the peaks of a roofline plot: `flops_per_s`, as in `peak_of`, and `bytes_per_s`."""
        return {"flops_per_s": self.peak_of(dtype), "bytes_per_s": self.bytes_per_s}

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data."""
        return asdict(self)

    def __str__(self) -> str:
        rates = ", ".join(f"{rate / 1e9:,.1f} GFLOP/s {dtype} matmul" for dtype, rate in self.flops_per_s.items())
        cores = f", {self.cores} cores" if self.platform == "cpu" else ""
        first = min(self.dates.values(), default=self.measured_at)
        when = self.measured_at if first == self.measured_at else f"from {first} to {self.measured_at}"
        versions = dict.fromkeys(self.jax_versions.get(name, self.jax_version) for name in (*self.flops_per_s, _MEMORY))
        return (
            f"{self.device_kind}{cores}: {rates}, {self.bytes_per_s / 1e9:,.1f} GB/s "
            f"({self.source} {when}, jax {' and '.join(versions)})"
        )


def machine(dtypes: Collection[str] = (MATMUL,), device: Any = None, anew: bool = False) -> Machine:
    """Return the peaks of this machine, its highest rates of computing and of memory access.

    They are measured now or read from the cache.
    Peaks are cached in the user's cache folder, for each device, number of cores and XLA settings. A measurement takes
    less than two seconds on an idle CPU. The cache keeps the best rate of all measurements, with its date, because
    other work on the machine can only lower a rate. If the machine was busy, the result's `source` contains "on a busy
    machine", and the next call on an idle machine measures the rate again.

    Args:
        dtypes: The dtypes whose peaks are needed. If some peaks are cached, the result may contain more.
        device: The `jax.Device`; by default JAX's default device.
        anew: True to measure again even if the peaks are cached.

    Raises:
        UnknownOptionError: `dtypes` is not a list of names of dtypes, or `device` is not a `jax.Device`.

    Examples:
        >>> import jax
        >>> import mithril_nb as ml
        >>> peaks = ml.machine()
        >>> peaks.platform == jax.devices()[0].platform, peaks.peak_of("float32") > 1e6, peaks.bytes_per_s > 1e6
        (True, True, True)
    """
    _check(dtypes, device)
    device = jax.devices()[0] if device is None else device
    with _LOCK:
        here = described(device)
        file = cache_folder() / "machines.json"
        before = _read(file).get(key_of(here))
        is_busy = device.platform == "cpu" and _is_busy(here.cores)
        peaks = {} if before is None else _peaks(before)
        requested = list(dict.fromkeys(dtypes)) or ([] if before else [MATMUL])
        # A busy machine would measure a low rate again.
        again = [name for name, peak in peaks.items() if peak.is_busy and not is_busy]
        needed = [name for name in (*requested, _MEMORY) if anew or name not in peaks or name in again]
        if before is not None and not needed:
            return _from(file, before)
        with jax.default_device(device):
            for name in needed:
                rounds = copy_rounds(device.platform) if name == _MEMORY else matmul_rounds(name)
                rate, is_quiet = _best(rounds)
                # The load may have risen during the measurement.
                is_busy = is_busy or (device.platform == "cpu" and _is_busy(here.cores))
                peaks[name] = _Peak(rate, _now(), is_busy, here.jax_version, is_quiet).after(peaks.get(name))
        return _kept(file, here, peaks)


def _check(dtypes: Any, device: Any) -> None:
    is_list = isinstance(dtypes, Collection) and not isinstance(dtypes, str)
    unknown = [name for name in dtypes if not _is_dtype(name)] if is_list else [dtypes]
    if unknown:
        near = [name for name in unknown if not is_list and _is_dtype(name)] or [MATMUL]
        raise UnknownOptionError(
            f"ml.machine does not accept dtypes={' '.join(short_repr(dtypes, 60).split())}.",
            (("needs", "a list of names of dtypes"),),
            f'ml.machine(["{near[0]}"])',
        )
    if device is not None and not isinstance(device, jax.Device):
        raise UnknownOptionError(
            f"ml.machine does not accept device={' '.join(short_repr(device, 60).split())}.",
            (
                ("needs", "a jax.Device"),
                ("present", ", ".join(f"{candidate.platform}:{candidate.id}" for candidate in jax.devices())),
            ),
            "ml.machine(device=jax.devices()[0])",
        )


def _is_dtype(name: Any) -> bool:
    try:
        return isinstance(name, str) and jnp.dtype(name).kind in "biufcV"
    except TypeError:
        return False


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")


def known_machine(device: Any = None) -> Machine | None:
    """Return the cached peaks of this machine without measuring; `None` if none are cached.

    Args:
        device: The `jax.Device`; by default JAX's default device.
    """
    file = cache_folder() / "machines.json"
    cached = _read(file).get(key_of(described(jax.devices()[0] if device is None else device)))
    return None if cached is None else _from(file, cached)


def _from(file: Path, cached: Machine) -> Machine:
    return replace(cached, source=f"measured before{_ON_BUSY if cached.busy else ''}, {file.name}")


@dataclass(frozen=True)
class _Peak:
    rate: float
    date: str
    is_busy: bool
    jax_version: str
    is_quiet: bool = True

    def after(self, before: _Peak | None) -> _Peak:
        """Return the higher of this rate and the rate of an earlier measurement.

        In the result, `is_busy` is true if the rate should be measured again: the machine was busy, or the rounds
        differ and this measurement raised the rate. But an earlier rate with a false `is_busy` keeps it, unless this
        measurement raised the rate. So measurements end even if the rounds always differ.
        """
        # Rates differ by a few percent between runs, so a slightly higher one is no news.
        is_new = before is None or self.rate > (1 + _ALIKE) * before.rate
        may_grow = self.is_busy or (is_new and not self.is_quiet)
        if before is None:
            return replace(self, is_busy=may_grow)
        best = self if self.rate > before.rate else before
        return replace(best, is_busy=may_grow and (is_new or before.is_busy))


def _peaks(machine: Machine) -> dict[str, _Peak]:
    rates = {**machine.flops_per_s, _MEMORY: machine.bytes_per_s}
    return {
        name: _Peak(
            rate,
            machine.dates.get(name, machine.measured_at),
            name in machine.busy,
            machine.jax_versions.get(name, machine.jax_version),
        )
        for name, rate in rates.items()
    }


def _kept(file: Path, here: Machine, peaks: Mapping[str, _Peak]) -> Machine:
    # Another process may have written higher peaks meanwhile; they are kept.
    stored = _read(file)
    other = stored.get(key_of(here))
    best = dict(peaks)
    for name, peak in ({} if other is None else _peaks(other)).items():
        if name not in best or peak.rate > best[name].rate:
            best[name] = peak
    latest = max(best.values(), key=lambda peak: peak.date)
    merged = replace(
        here,
        jax_version=latest.jax_version,
        flops_per_s={name: peak.rate for name, peak in best.items() if name != _MEMORY},
        bytes_per_s=best[_MEMORY].rate,
        measured_at=latest.date,
        dates={name: peak.date for name, peak in best.items()},
        jax_versions={name: peak.jax_version for name, peak in best.items()},
        busy=tuple(name for name, peak in best.items() if peak.is_busy),
    )
    _write(file, {**stored, key_of(merged): merged})
    return replace(merged, source=f"measured{_ON_BUSY if merged.busy else ''}")


def _best(rounds: Callable[[], float]) -> tuple[float, bool]:
    # The best rate counts, because other work on the machine only lowers a rate.
    least, most = _ROUNDS
    rates: list[float] = []
    while len(rates) < most:
        rates = sorted([*rates, rounds()])
        if len(rates) >= least and rates[-3] >= (1 - _ALIKE) * rates[-1]:
            return rates[-1], True
    return rates[-1], False


def matmul_rounds(dtype: str) -> Callable[[], float]:
    """Return a function that measures one round: the best FLOP/s of a matmul of large square matrices."""
    size, run = _SIZES[0], _matmul(_SIZES[0], dtype)
    for larger in _SIZES[1:]:
        if _quickest(run, 0.0) > _LONG_ENOUGH_S:
            break
        size, run = larger, _matmul(larger, dtype)
    return lambda: 2 * size**3 / _quickest(run, _ROUND_S)


def _matmul(size: int, dtype: str) -> Callable[[], Any]:
    # JAX truncates float64 to float32 by default, and the peak would be that of float32.
    with jax.enable_x64(True):  # for 64-bit matrices
        square = jnp.full((size, size), 1 / size, jnp.dtype(dtype))
        multiply = jax.jit(jnp.matmul).lower(square, square).compile()
    multiply(square, square).block_until_ready()
    return lambda: multiply(square, square)


def copy_rounds(platform: str) -> Callable[[], float]:
    """Return a function that measures one round: the best bytes/s of updating in place an array larger than caches."""
    count = _COPIED_BYTES.get(platform, _COPIED_BYTES_ELSEWHERE)
    # The list owns the array, because a donated array must have no other user.
    held = [jnp.ones(count // 4, jnp.float32)]
    negate = jax.jit(jnp.negative, donate_argnums=0).lower(held[0]).compile()

    def run() -> Any:
        # In place, because allocating new pages takes longer than writing to them.
        held.append(negate(held.pop()))
        return held[0]

    run().block_until_ready()
    return lambda: 2 * count / _quickest(run, _ROUND_S)


def _quickest(run: Callable[[], Any], budget_s: float) -> float:
    # Longer times include work of other processes.
    best, begun = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        run().block_until_ready()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begun >= budget_s:
            return best


def _is_busy(cores: int) -> bool:
    # Windows has no load average; its peaks never count as busy.
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > cores


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def described(device: Any) -> Machine:
    """Return a device without its peaks."""
    # XLA's CPU client reads NPROC as the size of its thread pool.
    nproc = os.environ.get("NPROC")
    settings = " ".join([os.environ.get("XLA_FLAGS", ""), *([f"NPROC={nproc}"] if nproc is not None else [])]).strip()
    processor = _processor() if device.platform == "cpu" else ""
    kind = device.device_kind
    return Machine(device.platform, kind, processors(), jax.__version__, settings, {}, 0.0, "", processor=processor)


def _processor() -> str:
    # Part of the cache key, because machines may share a folder.
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def key_of(machine: Machine) -> str:
    """Return the key of a machine in files of measurements."""
    return "|".join([machine.platform, machine.device_kind, machine.processor, str(machine.cores), machine.settings])


def _read(file: Path) -> dict[str, Machine]:
    # Unreadable files and entries are ignored, so their peaks are measured again.
    machines: dict[str, Machine] = {}
    with suppress(OSError, ValueError, AttributeError):
        for key, entry in json.loads(file.read_text(encoding="utf-8")).items():
            with suppress(TypeError, ValueError, AttributeError):
                machine = Machine(**entry)
                machine = replace(
                    machine,
                    busy=tuple(machine.busy),
                    dates=dict(machine.dates),
                    jax_versions=dict(machine.jax_versions),
                )
                # A rate of 0 would divide by zero in a roofline. A file that was copied from another machine has other
                # keys.
                if min(*machine.flops_per_s.values(), machine.bytes_per_s) > 0 and key_of(machine) == key:
                    machines[key] = machine
    return machines


def _write(file: Path, machines: Mapping[str, Machine]) -> None:
    # An error is ignored: without the file, each process measures the peaks.
    text = json.dumps({key: machine.to_dict() for key, machine in machines.items()}, indent=1, allow_nan=False)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
