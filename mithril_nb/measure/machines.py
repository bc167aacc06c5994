"""What this machine can do at most: FLOP/s of a large matmul and bytes/s of going through a large array."""

from __future__ import annotations

import json
import os
import sys
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

from mithril_nb.atomic_write import write_text
from mithril_nb.errors import UnknownOptionError, short_repr

MATMUL = "float32"
"""What the matmul rate is measured with where a program has no matmul of its own."""
_MEMORY = "memory"
"""What `Machine.dates` calls the peak of bytes/s."""
_BUDGET_S = 0.25
"""How long each figure is measured for, after what compiling and finding a size take."""
_LONG_ENOUGH_S = 4e-3
_SIZES = (512, 1024, 2048, 4096, 8192)
_COPIED_BYTES = {"cpu": 1 << 27}
_COPIED_BYTES_ELSEWHERE = 1 << 29
"""Larger than the caches of CPUs, and than those of accelerators."""
_LOCK = threading.Lock()


@dataclass(frozen=True)
class Machine:
    """The peaks of a machine, as measured.

    Attributes:
        platform: `"cpu"`, `"gpu"` or `"tpu"`.
        device_kind: What JAX calls the device.
        cores: How many processors this process may use.
        jax_version: By which version of JAX.
        settings: What the environment tells XLA: `XLA_FLAGS` and `NPROC`.
        flops_per_s: FLOP/s of a large matmul, by dtype of its operands.
        bytes_per_s: Bytes/s read and written by going through a large array.
        measured_at: When the latest of these peaks was measured, in UTC.
        source: How it is known.
        dates: When each of them was, by dtype, and `"memory"`; what is not in it was then, too.

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

    def peak_of(self, dtype: str | None = None) -> float:
        """Return the FLOP/s that a dtype can reach: that of its matmul, or the highest if it was not measured."""
        rates = self.flops_per_s
        return rates[dtype] if dtype is not None and dtype in rates else max(rates.values())

    def peaks(self, dtype: str | None = None) -> dict[str, float]:
        """Return what a picture of the roofline takes: `flops_per_s` and `bytes_per_s`."""
        return {"flops_per_s": self.peak_of(dtype), "bytes_per_s": self.bytes_per_s}

    def to_dict(self) -> dict[str, Any]:
        """Return the same as plain data."""
        return {**asdict(self), "flops_per_s": dict(self.flops_per_s), "dates": dict(self.dates)}

    def __str__(self) -> str:
        rates = ", ".join(f"{rate / 1e9:,.1f} GFLOP/s {dtype} matmul" for dtype, rate in self.flops_per_s.items())
        cores = f", {self.cores} cores" if self.platform == "cpu" else ""
        first = min(self.dates.values(), default=self.measured_at)
        when = self.measured_at if first == self.measured_at else f"from {first} to {self.measured_at}"
        return (
            f"{self.device_kind}{cores}: {rates}, {self.bytes_per_s / 1e9:,.1f} GB/s "
            f"({self.source} {when}, jax {self.jax_version})"
        )


def machine(dtypes: Collection[str] = (MATMUL,), device: Any = None, anew: bool = False) -> Machine:
    """Return the peaks of this machine, measured now or before.

    What was measured before is kept in the user's cache folder, for each device, number of cores, version of JAX and
    setting of XLA. It takes less than two seconds on an idle CPU. Of several measurements the best is kept, with its
    date: nothing makes a machine quicker than it is. What is measured while others keep the machine busy is not kept,
    and its `source` says so.

    Args:
        dtypes: For which dtypes to have the matmul rate.
        device: The `jax.Device`; by default JAX's own default.
        anew: Whether to measure it now in any case: it may have been busy with something else before.

    Raises:
        UnknownOptionError: What is no list of dtypes, or no device.

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
        here = _described(device)
        file = cache_folder() / "machines.json"
        known = _read(file)
        before = known.get(_key(here))
        best = dict(before.flops_per_s) if before is not None else {}
        dates = {name: before.dates.get(name, before.measured_at) for name in (*best, _MEMORY)} if before else {}
        wanted = [dtype for dtype in dict.fromkeys(dtypes) if anew or dtype not in best]
        if before is not None and not wanted and not anew:
            return _from(file, before)
        copied = before.bytes_per_s if before is not None else 0.0
        now = _now()
        with jax.default_device(device):
            for dtype in wanted or ([] if best else [MATMUL]):
                rate = matmul_rate(dtype)
                if rate > best.get(dtype, 0.0):
                    best[dtype], dates[dtype] = rate, now
            if before is None or anew:
                rate = copy_rate(device.platform)
                if rate > copied:
                    copied, dates[_MEMORY] = rate, now
        latest = max(dates.values())
        found = replace(here, flops_per_s=best, bytes_per_s=copied, measured_at=latest, source="measured", dates=dates)
        if device.platform == "cpu" and _is_busy(here.cores):
            return replace(found, source="measured on a busy machine")
        _write(file, {**known, _key(found): found})
        return found


def _check(dtypes: Any, device: Any) -> None:
    is_list = isinstance(dtypes, Collection) and not isinstance(dtypes, str)
    unknown = [name for name in dtypes if not _is_dtype(name)] if is_list else [dtypes]
    if unknown:
        near = [name for name in unknown if not is_list and _is_dtype(name)] or [MATMUL]
        raise UnknownOptionError(
            f"ml.machine cannot take dtypes={' '.join(short_repr(dtypes, 60).split())}.",
            (("needs", "a list of names of dtypes"),),
            f'ml.machine(["{near[0]}"])',
        )
    if device is not None and not isinstance(device, jax.Device):
        raise UnknownOptionError(
            f"ml.machine cannot take device={' '.join(short_repr(device, 60).split())}.",
            (("needs", "a jax.Device"), ("present", ", ".join(f"{one.platform}:{one.id}" for one in jax.devices()))),
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
    """Return the peaks of this machine as they were measured before; `None` if nobody has. Nothing is measured.

    Args:
        device: The `jax.Device`; by default JAX's own default.
    """
    file = cache_folder() / "machines.json"
    found = _read(file).get(_key(_described(jax.devices()[0] if device is None else device)))
    return None if found is None else _from(file, found)


def _from(file: Path, found: Machine) -> Machine:
    return replace(found, source=f"measured before, {file.name}")


def matmul_rate(dtype: str) -> float:
    """Return the FLOP/s of the quickest matmul of two large square matrices."""
    size, run = _SIZES[0], _matmul(_SIZES[0], dtype)
    for larger in _SIZES[1:]:
        if _quickest(run, 0.0) > _LONG_ENOUGH_S:
            break
        size, run = larger, _matmul(larger, dtype)
    return 2 * size**3 / _quickest(run, _BUDGET_S)


def _matmul(size: int, dtype: str) -> Callable[[], Any]:
    with jax.enable_x64(True):  # else there are no matrices of 64 bits
        square = jnp.full((size, size), 1 / size, jnp.dtype(dtype))
        multiply = jax.jit(jnp.matmul).lower(square, square).compile()
    multiply(square, square).block_until_ready()
    return lambda: multiply(square, square)


def copy_rate(platform: str) -> float:
    """Return the bytes/s of going once through an array larger than the caches, which is read and written in place."""
    count = _COPIED_BYTES.get(platform, _COPIED_BYTES_ELSEWHERE)
    held = [jnp.ones(count // 4, jnp.float32)]
    negate = jax.jit(jnp.negative, donate_argnums=0).lower(held[0]).compile()

    def run() -> Any:
        # In place, for new memory has to be given by the system page by page, which takes longer than writing to it.
        held.append(negate(held.pop()))
        return held[0]

    run().block_until_ready()
    return 2 * count / _quickest(run, _BUDGET_S)


def cache_folder() -> Path:
    """Return the folder in which this package keeps what it may measure anew."""
    if sys.platform == "win32":
        given, usual = os.environ.get("LOCALAPPDATA"), Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        given, usual = os.environ.get("XDG_CACHE_HOME"), Path.home() / "Library" / "Caches"
    else:
        given, usual = os.environ.get("XDG_CACHE_HOME"), Path.home() / ".cache"
    return (Path(given) if given else usual) / "mithril_nb"


def _quickest(run: Callable[[], Any], budget_s: float) -> float:
    """Return the shortest of the times that it took: what another process takes away is not this machine's limit."""
    best, begun = float("inf"), time.perf_counter()
    while True:
        start = time.perf_counter()
        run().block_until_ready()
        now = time.perf_counter()
        best = min(best, now - start)
        if now - begun >= budget_s:
            return best


def _is_busy(cores: int) -> bool:
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > cores


def _described(device: Any) -> Machine:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    settings = " ".join(
        [os.environ.get("XLA_FLAGS", ""), *(f"NPROC={os.environ[name]}" for name in ("NPROC",) if name in os.environ)]
    ).strip()
    return Machine(device.platform, device.device_kind, cores, jax.__version__, settings, {}, 0.0, "")


def _key(one: Machine) -> str:
    return "|".join([one.platform, one.device_kind, str(one.cores), one.jax_version, one.settings])


def _read(file: Path) -> dict[str, Machine]:
    """Return what the file holds; a file, or an entry, that cannot be read is measured anew."""
    found: dict[str, Machine] = {}
    with suppress(OSError, ValueError, AttributeError):
        for key, entry in json.loads(file.read_text(encoding="utf-8")).items():
            with suppress(TypeError, ValueError, AttributeError):
                one = Machine(**entry)
                rates = {str(dtype): float(rate) for dtype, rate in one.flops_per_s.items()}
                if rates and min(*rates.values(), float(one.bytes_per_s)) > 0 and _key(one) == key:
                    dates = {str(name): str(date) for name, date in one.dates.items()}
                    found[key] = replace(one, flops_per_s=rates, bytes_per_s=float(one.bytes_per_s), dates=dates)
    return found


def _write(file: Path, known: Mapping[str, Machine]) -> None:
    """Write the file; where that is not possible, the peaks are measured in each process."""
    text = json.dumps({key: one.to_dict() for key, one in known.items()}, indent=1, allow_nan=False)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, text)
