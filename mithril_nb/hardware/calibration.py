"""The rates of this machine's CPU by kind of work, measured with small programs: the figures of predicted times."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from mithril_nb.atomic_write import cache_folder, write_text
from mithril_nb.errors import StageUnavailableError
from mithril_nb.hardware.device import Device
from mithril_nb.hardware.machines import described, key_of, machine, processors

Rates = Mapping[str, Sequence[tuple[float, float]]]
"""For each kind of work, pairs of a size and the rate at that size."""

_FILE = "rates.json"
_SIDE = 512
_COUNT = 1 << 18
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "exponential": lambda x: jnp.exp(-x),
    "exponential-minus-one": lambda x: jnp.expm1(-x),
    "log": lambda x: jnp.log(x + 2),
    "log-plus-one": lambda x: jnp.log1p(x + 1),
    "logistic": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "sine": jnp.sin,
    "cosine": jnp.cos,
    "tan": jnp.tan,
    "erf": lax.erf,
    "sqrt": lambda x: jnp.sqrt(x + 1),
    "rsqrt": lambda x: lax.rsqrt(x + 1),
    "cbrt": lambda x: jnp.cbrt(x + 1),
    "power": lambda x: (x + 1) ** 0.3,
    "divide": lambda x: 1 / (x + 1),
}


def calibrated(device: Any, dtypes: Sequence[str]) -> Device:
    """Return the CPU of this machine as a device with measured figures; they are measured once, and cached.

    Args:
        device: The `jax.Device`.
        dtypes: The dtypes whose peaks are needed.
    """
    peaks, key = machine(("float32", *dtypes), device), f"{key_of(described(device))}|{jax.__version__}"
    file = cache_folder() / _FILE
    stored: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        stored = json.loads(file.read_text(encoding="utf-8"))
    if key not in stored:
        with jax.default_device(device):
            rates = measured_rates()
        stored[key] = {"rates": rates, "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")}
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_text(file, json.dumps(stored))
    entry = stored[key]
    return Device(
        device.device_kind,
        title=peaks.processor,
        platform="cpu",
        bytes_per_s=peaks.bytes_per_s,
        flops_per_s=peaks.flops_per_s,
        rates=entry["rates"],
        launch_s=1 / entry["rates"]["launch"][0][1],
        source=f"measured {entry['date']}, {_FILE}; {peaks.source}",
    )


def measured_rates() -> Rates:
    """Measure the rates of the CPU; takes about half a minute on an idle machine."""
    usual = jnp.full((_SIDE, _SIDE), 0.01)
    start = _seconds(lambda x: x * 0.5, jnp.ones(1024))
    rates: dict[str, list[tuple[float, float]]] = {"launch": [(1, 1 / start)]}

    def add(kind: str, size: float, amount: float, body: Callable[[Any], Any], x: Any) -> None:
        time_s = _seconds(body, x)
        # The start is measured too: of work that takes as long, the difference may be negative.
        rates.setdefault(kind, []).append((size, amount / max(time_s - start, time_s / 10)))

    for count in (1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24):
        other = jnp.ones(count)
        add("bytes", 12 * count, 12 * count, lambda x, other=other: other * 0.5 + x, jnp.ones(count))
    for count in (1 << 18, 1 << 22, 1 << 24):
        # A new array has new pages, which the operating system clears.
        rates.setdefault("results", []).append((4 * count, 4 * count / _seconds_of_pages(jnp.ones(count))))
    for side in (128, 512, 1024, 4096):
        square = jnp.ones((side, side))
        add("transpose", 8 * side**2, 8 * side**2, lambda x: lax.optimization_barrier(x.T) + 0.0, square)
    for small in (1, 4, 16, 64, 256, 1024):
        flops = 2 * _SIDE**2 * small
        add("dot m", small, flops, lambda x: x @ usual, jnp.ones((small, _SIDE)))
        add("dot n", small, flops, lambda x: usual @ x, jnp.ones((_SIDE, small)))
        thin = jnp.full((small, _SIDE), 0.01)
        add("dot k", small, flops, lambda y, thin=thin: (thin + y[:1, :1]).T @ thin, usual)
    images = jnp.ones((8, 28, 28, 3))

    def convolve(y: Any) -> Any:
        kernel = jnp.full((5, 5, 3, 8), 0.01)
        return lax.conv_general_dilated(
            images + y[:1, :1, :1, :1], kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    # Eigen copies a patch for each position of the kernel, however many channels it has.
    add("patches", 1, 8 * 28 * 28 * 25, convolve, jnp.ones((8, 28, 28, 8)))
    ones = jnp.full(_COUNT, 0.5)
    for opcode, function in _UNARY.items():
        add(opcode, 1, _COUNT, function, ones)
    add("flops", 1, 64 * _COUNT, lambda x: _chain(x, 32), ones)
    for count in (_COUNT, 32 * _COUNT):
        rows = jnp.ones((count // _SIDE, _SIDE))
        add("reduce", count, count, lambda x, rows=rows: (rows + x[:, None]).sum(1) * 1e-9, rows[:, 0])
    window = jnp.ones((8, 64, 64, 8))
    add("reduce-window", 1, 3 * window.size, lambda x: jnp.repeat(jnp.repeat(
        lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), 2, 1), 2, 2), window)  # fmt: skip
    indices = (jnp.arange(_COUNT) * 7919) % _COUNT
    add("gather", 1, _COUNT, lambda x: x[indices] + 1, ones)
    add("scatter", 1, _COUNT, lambda x: x.at[indices].add(x), ones)
    add("sort", 1, _COUNT * 18, lambda x: lax.sort(indices + x * 1e-9), ones)
    return rates


def _seconds_of_pages(x: Any) -> float:
    """Return a lower bound of the slowdown if a program writes a new array instead of reusing its argument."""
    fresh = jax.jit(lambda x: x * 0.5).lower(x).compile()
    reused = jax.jit(lambda x: x * 0.5, donate_argnums=0).lower(x).compile()
    times: tuple[list[float], list[float]] = [], []
    for _ in range(9):
        for run, each in zip((fresh, reused), times, strict=True):
            array = x + 0
            array.block_until_ready()
            begin = _clock()
            run(array).block_until_ready()
            each.append(_clock() - begin)
    return max(min(times[0]) - min(times[1]), 1e-9)


def _clock() -> float:
    # On one processor, the time that this process runs does not depend on other processes.
    return time.process_time() if processors() == 1 else time.perf_counter()


def _chain(x: Any, length: int) -> Any:
    for _ in range(length):
        x = x * 0.999 + 0.001
    return x


def _seconds(body: Callable[[Any], Any], x: Any) -> float:
    """Return the least time of one run of `body`: the difference of two loops, which have the same dispatch.

    Raises:
        StageUnavailableError: Other programs take so much of the CPU that the longer loop seems to take less time.
    """
    run = jax.jit(lambda x, count: lax.fori_loop(0, count, lambda _, x: body(x), x)).lower(x, 1).compile()

    def once(count: int) -> float:
        begin = _clock()
        run(x, count).block_until_ready()
        return _clock() - begin

    once(1)
    count = max(2, min(4096, round(4e-3 / once(2))))
    for _ in range(5):
        few, many = zip(*((once(count), once(3 * count)) for _ in range(7)), strict=True)
        if min(many) > min(few):
            return (min(many) - min(few)) / (2 * count)
    raise StageUnavailableError(
        "the rates of this CPU cannot be measured: other programs take its time.", (), "again when they have ended"
    )
