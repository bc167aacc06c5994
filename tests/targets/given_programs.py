"""A small program at every step of JAX's ahead-of-time pipeline, and the error of `ml.inspect` for a broken one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_programs import spec

import mithril_nb as ml
from mithril_nb.errors import ModelFileError, UnknownOptionError


def step(params: Any, x: Any) -> Any:
    with jax.named_scope("body"):
        hidden = jax.nn.relu(x @ params["w"])
    with jax.named_scope("head"):
        return jnp.tanh(hidden @ params["v"]).sum()


ARGS = {"w": spec(4, 8), "v": spec(8, 3)}, spec(2, 4)


def lowered(fn: Callable[..., Any] = step, args: tuple[Any, ...] = ARGS) -> jax.stages.Lowered:
    jitted: Any = fn if hasattr(fn, "lower") else jax.jit(fn)
    return jitted.lower(*args)


def hlo_proto(made: jax.stages.Lowered) -> bytes:
    ir: Any = made.compiler_ir("hlo")
    return ir.as_serialized_hlo_module_proto()


def file(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(target: Any, *args: Any, **options: Any) -> str:
    with pytest.raises((ModelFileError, UnknownOptionError)) as caught:
        ml.inspect(target, *args, **options)
    return str(caught.value)


def at_every_step(fn: Callable[..., Any] = step, args: tuple[Any, ...] = ARGS) -> dict[str, Callable[[Path], Any]]:
    """Return functions of a folder for files that return the program at a step of the pipeline."""

    def exported() -> Any:
        return jax.export.export(jax.jit(fn))(*args)

    def made() -> jax.stages.Lowered:
        return lowered(fn, args)

    def hlo() -> str:
        return made().compile().as_text() or ""

    return {
        "lowered": lambda _: made(),
        "compiled": lambda _: made().compile(),
        "exported": lambda _: exported(),
        "StableHLO file": lambda folder: file(folder, "a.mlir", made().as_text(debug_info=True)),
        "StableHLO text": lambda _: made().as_text(),
        "StableHLO in .txt": lambda folder: str(file(folder, "a.txt", made().as_text())),
        "HLO file": lambda folder: str(file(folder, "a.hlo", hlo())),
        "HLO bytes": lambda _: hlo().encode(),
        "HLO before": lambda folder: file(folder, "a.txt", made().as_text("hlo", debug_info=True)),
        "HLO proto": lambda folder: file(folder, "a.pb", hlo_proto(made())),
        "MLIR bytecode": lambda _: exported().mlir_module_serialized,
    }
