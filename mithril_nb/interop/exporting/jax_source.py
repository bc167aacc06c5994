"""The export format `jax`: the program in `jax.numpy`, and for a model a script that trains it with optax."""

from __future__ import annotations

from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.interop.exporting.formats import Contents, export_format
from mithril_nb.interop.exporting.python_folder import WIDE, Loading, arguments, python_contents
from mithril_nb.interop.exporting.stored import StoredProgram

_LOADING = Loading(
    "JAX",
    "jax optax safetensors",
    ("import jax", "from safetensors.flax import load_file"),
    "load_file(path)",
    "np.asarray(jax.random.key_data(found) if jax.dtypes.issubdtype(found.dtype, jax.dtypes.prng_key) else found)",
    "jax.random.wrap_key_data({})",
)


@export_format("jax", takes_names=True)
def jax_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program in JAX, and for a model's forward pass a training script."""
    source = emit_arrays(program.traced, "jax")
    text = source.text.replace("import jax\n", WIDE, 1) if program.is_wide else source.text
    train = _training(program, source.function)
    more = {} if train is None else {"train.py": (train, "trains the model; edit the loss, the optimizer and the data")}
    notes = "" if train is None else "`python train.py` trains the model with optax on the stored inputs."
    return python_contents(program, text, source.function, _LOADING, more, notes)


def _training(program: StoredProgram, function: str) -> str | None:
    """Return a training script; `None` unless all parameters are floats and the only output is a named float."""
    outputs = program.outputs
    args = arguments(program, _LOADING.key)
    is_forward = (
        "params=weights" in args and len(outputs) == 1 and outputs[0].leaf.keys and outputs[0].array.dtype.kind == "f"
    )
    if not is_forward or any(entry.array.dtype.kind != "f" for entry in program.inputs if entry.file == "weights"):
        return None
    rest = [text for text in args if not text.startswith("params=")]
    names = [text.partition("=")[0] for text in rest]
    shape, dtype = outputs[0].array.shape, outputs[0].array.dtype
    is_class = len(shape) > 1 and shape[-1] > 1
    return _SCRIPT.format(
        function=function,
        names="".join(f", {name}" for name in names),
        keywords="".join(f", {name}={name}" for name in names),
        batch="".join(f"    {text.replace('=', ' = ', 1)}\n" for text in rest if text != "inputs=inputs"),
        key=outputs[0].leaf.keys[-1],
        loss_name="cross entropy of logits and labels" if is_class else "square error",
        loss="optax.softmax_cross_entropy_with_integer_labels(outputs, targets)"
        if is_class
        else "jnp.square(outputs - targets)",
        targets=f"jnp.zeros({shape[:-1]}, dtype=jnp.int32)" if is_class else f"jnp.ones({shape}, dtype=jnp.{dtype})",
    )


_SCRIPT = '''\
"""Train the model of model.py with optax: edit the loss, the optimizer and the data.

Dropout and batch normalization work as in evaluation.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import optax
from safetensors.flax import load_file, save_file

from model import {function}

FOLDER = Path(__file__).parent
optimizer = optax.adam(1e-3)


def loss(params{names}, targets):
    """Return the mean {loss_name}."""
    outputs = {function}(params=params{keywords})[{key!r}]
    return {loss}.mean()


@jax.jit
def train_step(params, opt_state{names}, targets):
    """Return the parameters and the state of the optimizer after one step, and the loss before it."""
    value, gradients = jax.value_and_grad(loss)(params{names}, targets)
    updates, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, value


def main():
    """Train on the stored inputs with placeholder targets, and save the parameters."""
    params, inputs = (load_file(FOLDER / f"{{name}}.safetensors") for name in ("weights", "inputs"))
{batch}    targets = {targets}
    opt_state = optimizer.init(params)
    for step in range(20):
        params, opt_state, value = train_step(params, opt_state{names}, targets)
        print(f"step {{step:3}}  loss {{value:.4f}}")
    save_file(params, FOLDER / "trained.safetensors")


if __name__ == "__main__":
    main()
'''
