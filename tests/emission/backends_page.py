"""docs/backends.md: the backends, and which block runs on which. `python -m tests.emission.backends_page` writes it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import mithril_nb as ml
from mithril_nb.backends.emitted import EmittedBackend
from tests.emission.test_blocks import CANCELLING, CASES, NORMAL, REFUSED, step_of

PAGE = Path(__file__).resolve().parents[2] / "docs" / "backends.md"
KINDS: dict[str, Any] = {
    "numpy": ml.NumpyBackend, "torch": ml.TorchBackend, "mlx": ml.MlxBackend, "c": ml.CBackend, "ggml": ml.GGMLBackend,
}  # fmt: skip
TITLES = {"c": "C", "ggml": "GGML"}
DTYPES = ("float32", "float64")
DERIVED = {"autograd": "the library", "jax": "JAX, emitted"}
DEVICES = {"torch": "`cpu`, `cuda`, `mps`", "mlx": "`cpu`, `gpu`"}
RUNNING = {(library, dtype) for library in KINDS for dtype in DTYPES} - {("mlx", "float64"), ("ggml", "float64")}
"""Runs of the tests, also on a machine without some of the libraries."""

TEXT = """# Backends

A model can run with JAX or with another array library. For another library, JAX traces the model once, and mithril_nb
writes the jaxpr as source of that library. The source is readable: `pm.source()` returns it, and
`inspection.stage("numpy")` links its lines to blocks, jaxpr and Python.

```python
import mithril_nb as ml
import numpy as np

model = ml.models.MLP(4, [8], 3)
pm = ml.compile(model, ml.NumpyBackend(), shapes={{"input": [5, 4]}})
params = pm.randomize_params(seed=0)
outputs = pm.evaluate(params, {{"input": np.ones((5, 4), "float32")}})
run = ml.fit(model, (np.ones((20, 4)), np.zeros(20, int)), backend=ml.NumpyBackend(), batch_size=10).wait()
```

A seed gives the same parameters on every backend, and `pm.convert_params(params, other)` moves them. `ml.fit` runs the
whole training step as emitted source, optimizer included. The losses are those of JAX, and a checkpoint continues on
another backend.

## Availability

`ml.TorchBackend.available()` is true if the backend can be used. Otherwise it has the reason, and the command in the
last column. The column *gradients* shows what derives them: the library, or JAX, whose gradients are then emitted as
source.

| backend | dtypes | devices | gradients | install |
|---|---|---|---|---|
{backends}

- PyTorch: `grads="jax"` runs the gradients that JAX derives. `use_amp=True` runs matrix products and the addition of
  their bias in bfloat16. `compile=True` uses `torch.compile`. `pm.as_module()` returns an `nn.Module` with named
  parameters.
- If the equations of a block compute a function such as `layer_norm`, `gelu`, `softmax` or
  `scaled_dot_product_attention`, the PyTorch source calls that function. On a CPU, PyTorch has no second derivatives of
  attention, except inside `torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)`.
- MLX: `grads="jax"` as above. `compile=True` uses `mx.compile`.
- C: the first evaluation with new shapes runs the compiler, `$CC` or else `cc`.
- A custom op with a hand-written gradient runs that gradient on every backend. `pm.as_module()` rejects such an op.
- Some points have several valid gradients, such as ties of a maximum. There, a library may choose another one than JAX.

`mithril_nb.analysis.measure.time_backends(pm.inspect("forward+backward"))` returns FLOPs and times of each block with
XLA, NumPy, PyTorch and C; print it to see one table.

## Limits

- A program is emitted for the shapes and dtypes of its arguments. Each new combination costs one emission, and in C one
  compilation.
- If a primitive cannot be written as source, `UnsupportedPrimitiveError` states the block and the line of Python.
  `ml.compile` raises it if all shapes are known, else the first evaluation. A model whose gradients have no source
  still runs forward.
- {refused}
- PyTorch has no arithmetic on unsigned integers of 64 bits, so blocks that draw random numbers do not run in float64.
- MLX runs models in at most 32 bits. GGML computes in float32, on arrays of at most four axes, none of them empty.
- Draws from the normal distribution ({normal}) agree with JAX to 1e-6 in float64.

## Blocks

The tests compare each kind of block with JAX in float64: its outputs, and the gradients of all parameters and
floating-point inputs. The error max|a - b| / max|b| is at most 1e-12 in float64. In float32 it is at most 1e-5, or ten
times the change that rounding the inputs causes. Some examples subtract nearly equal numbers, and the tests allow
larger errors for them: {cancelling}.

Each cell shows float32, then float64. `fg`: the block runs forward, with gradients. `f`: it runs forward only, because
it has no gradients or its example has only integers. `-`: it does not run.

| block | {titles} |
|---|{lines}|
{rows}
"""


def row(name: str, has_gradients: bool) -> str:
    """Return the line of a kind of block."""
    cells = [
        " ".join(_mark(library, dtype, name, "fg" if has_gradients else "f") for dtype in DTYPES) for library in KINDS
    ]
    return f"| `{name}` | {' | '.join(cells)} |"


def _mark(library: str, dtype: str, name: str, mark: str) -> str:
    is_refused = name in REFUSED.get((library, dtype), ())
    return "-" if is_refused or (library, dtype) not in RUNNING else mark


def page(gradients: Mapping[str, bool]) -> str:
    """Return the text of the page.

    Args:
        gradients: Whether each kind of block has gradients.
    """
    lacking = sorted(REFUSED["c", "float32"])
    return TEXT.format(
        backends="\n".join(_backend(one) for one in KINDS.values()),
        refused=f"C has no eigenvalues, so {_listed(lacking)} do not run.",
        normal=_listed(sorted(NORMAL)),
        cancelling=_listed(sorted(CANCELLING)),
        titles=" | ".join(TITLES.get(one.name, one.title) for one in KINDS.values()),
        lines="|".join("---" for _ in KINDS),
        rows="\n".join(row(name, gradients[name]) for name in sorted(CASES)),
    )


def _backend(kind: type[EmittedBackend]) -> str:
    dtypes = ", ".join(f"`{one}`" for one in kind.dtypes)
    derived = DERIVED["autograd" if hasattr(kind, "set_device") or kind.name == "mlx" else "jax"]
    install = kind.install.partition("  #")[0]
    return f"| `{kind.__name__}` | {dtypes} | {DEVICES.get(kind.name, '`cpu`')} | {derived} | `{install}` |"


def _listed(names: list[str]) -> str:
    shown = [f"`{one}`" for one in names]
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def has_gradients(results: Any) -> bool:
    """Return whether a block has gradients: a floating output, and a parameter or floating input."""
    inexact, _, back = results
    return bool(inexact) and any(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(back))


def written() -> dict[str, bool]:
    """Return which blocks have gradients, as the page shows it."""
    rows = re.findall(r"^\| `([^`]+)` \| (f|fg) ", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {name: mark == "fg" for name, mark in rows}


def main() -> None:
    """Write the page."""
    with jax.enable_x64(True):
        step, arguments = step_of(CASES)
        found = jax.eval_shape(step, arguments("float64"))
    PAGE.write_text(page({name: has_gradients(found[name]) for name in CASES}), encoding="utf-8")


if __name__ == "__main__":
    main()
