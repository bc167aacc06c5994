"""CPU times of composing large models, and of composing and tracing GPT-2 small, in new processes."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

BATCH, TIME = 2, 128
_START = "import time, jax, jax.numpy as jnp; jax.devices()\n"
_TOKENS = f"jax.ShapeDtypeStruct(({BATCH}, {TIME}), jnp.int32)"
_NAMES = "GPT, Embedding, LayerNorm, Linear, Model, Relu, TransformerBlock"
_OURS = f"import mithril_nb as ml\nfrom mithril_nb.models import {_NAMES}\nimport mithril_nb.compilation\n"
_LOOP = (
    "model = Model()\nmodel += Embedding(50257, 768)\n"
    "for _ in range({blocks}):\n    model += TransformerBlock(768, 12)\n"
    "model += LayerNorm()\nmodel += Linear(50257)\nmodel.graph"
)

COMPOSING = {
    "compose an MLP of 100 layers": (
        _OURS,
        "model = Model()\nfor _ in range(100):\n    model += Linear(64)\n    model += Relu()\nmodel.graph",
        0.2,
    ),
    "compose GPT(layers=12), which adds the same block repeatedly": (_OURS, "GPT().graph", 0.5),
    "compose a GPT of 12 blocks, each created separately": (_OURS, _LOOP.format(blocks=12), 0.5),
    "compose a GPT of 24 blocks, each created separately": (_OURS, _LOOP.format(blocks=24), None),
}
"""By name: the imports, the timed code, and its bar in seconds."""

TRACING = {
    "ours": (
        _OURS,
        f"pm = ml.compile(GPT(), shapes={{'input': [{BATCH}, {TIME}]}})\n"
        "params = {one.name: jax.ShapeDtypeStruct(one.spec.shape, one.spec.dtype) for one in pm.parameters}\n"
        f"jax.make_jaxpr(pm.forward)(params, {{'input': {_TOKENS}}})",
    ),
    "plain JAX": (
        "from benchmarks.gpt import plain_forward, plain_shapes",
        "params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in plain_shapes().items()}\n"
        f"jax.make_jaxpr(plain_forward)(params, {_TOKENS})",
    ),
    "Equinox": (
        "import equinox as eqx\nfrom benchmarks.gpt import equinox_model",
        "model = eqx.filter_eval_shape(equinox_model, jax.random.key(0))\n"
        f"eqx.filter_make_jaxpr(lambda model, tokens: jax.vmap(model)(tokens))(model, {_TOKENS})",
    ),
    "Flax nnx": (
        "from flax import nnx\nfrom benchmarks.gpt import nnx_model",
        "model, state = nnx.split(nnx.eval_shape(nnx_model))\n"
        f"jax.make_jaxpr(lambda state, tokens: nnx.merge(model, state)(tokens))(state, {_TOKENS})",
    ),
}
"""Code that composes and traces the forward pass of GPT-2 small, by library."""


def composing_times(repeats: int) -> Iterator[tuple[str, float, float | None]]:
    """Yield names, median CPU seconds, and bars."""
    found = _medians({name: (imports, body) for name, (imports, body, _) in COMPOSING.items()}, repeats)
    for name, seconds in found.items():
        yield name, seconds, COMPOSING[name][2]


def tracing_times(repeats: int) -> Iterator[tuple[str, float, float]]:
    """Yield names, median CPU seconds of composing and tracing GPT-2 small, and the ratio to plain JAX."""
    found = _medians(TRACING, repeats)
    for name, seconds in found.items():
        yield name, seconds, seconds / found["plain JAX"]


def _medians(programs: dict[str, tuple[str, str]], repeats: int) -> dict[str, float]:
    """Return the median CPU seconds of each program, measured in turns."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(repeats):
        for name, (imports, body) in programs.items():
            times[name].append(_cold_s(imports, body))
    return {name: statistics.median(found) for name, found in times.items()}


def _cold_s(imports: str, body: str) -> float:
    """Return the CPU seconds of a program in a new process, after imports and JAX's device discovery."""
    code = f"{_START}{imports}\nsince = time.process_time()\n{body}\nprint(time.process_time() - since)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def compose_tables(repeats: int) -> Iterator[Table]:
    """Yield both results as tables."""
    times = {name: (seconds, bar) for name, seconds, bar in composing_times(repeats)}
    twelve, more = (times[f"compose a GPT of {blocks} blocks, each created separately"][0] for blocks in (12, 24))
    twice = more / twelve
    table = Table("composing, CPU time in a new process", "median", "bar")
    for name, (seconds, bar) in times.items():
        table.add_row(name, f"{seconds * 1e3:.3g} ms", "" if bar is None else f"{bar * 1e3:.3g} ms")
    table.add_row("24 blocks over 12", _marked(twice, 2.2), "2.2")
    yield table
    table = Table("composing and tracing GPT-2 small, CPU time", "median", "over plain JAX", "bar")
    for name, seconds, ratio in tracing_times(repeats):
        bar = 2.0 if name == "ours" else float("inf")
        table.add_row(name, f"{seconds * 1e3:.3g} ms", _marked(ratio, bar), "2.0" if name == "ours" else "")
    yield table


def _marked(ratio: float, bar: float) -> str:
    return f"[red]{ratio:.2f} over[/red]" if ratio > bar else f"{ratio:.2f}"


if __name__ == "__main__":
    for each in compose_tables(5):
        Console().print(each)
