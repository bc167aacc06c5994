"""Folders whose program is a Python file, model.py: source for array libraries, and runners of model files."""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.arrays.rules import Library
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.ggml.gguf import gguf_bytes
from mithril_nb.emission.naming.names import identifier
from mithril_nb.emission.onnx.emit import OPSET, emit_onnx
from mithril_nb.emission.python_text import tree_of
from mithril_nb.errors import UnavailableBackendError, UnsupportedPrimitiveError
from mithril_nb.interop.exporting.folder import TESTED, Contents, export_format
from mithril_nb.interop.exporting.stored import StoredArray, StoredProgram, exported

WIDE = 'import jax\n\njax.config.update("jax_enable_x64", True)\n'
"""Lines that import JAX and turn on its x64 mode."""


@dataclass(frozen=True)
class Loading:
    """Source code that reads arrays with a library.

    Attributes:
        title: Name of the library.
        package: Packages to install, separated by spaces.
        imports: Import lines of the file test.py.
        load: Expression that returns a dict of the arrays in the file `path`.
        plain: Expression that converts the array `found` to NumPy.
        key: Expression that creates a random key, with `{}` instead of the array of its uint32 numbers.
    """

    title: str
    package: str
    imports: tuple[str, ...]
    load: str
    plain: str = "np.asarray(found)"
    key: str = "{}"


def python_contents(
    program: StoredProgram,
    text: str,
    function: str,
    loading: Loading,
    more: Mapping[str, tuple[str | bytes, str]] | None = None,
    notes: str = "",
    call: str = "",
    about: str = "the program: one function per block, and `{function}`, which calls them",
) -> Contents:
    """Return the files of a folder with a Python program."""
    call = call or f"{function}({', '.join(arguments(program, loading.key))})"
    names = "".join(f"    {entry.name!r},\n" for entry in program.outputs)
    test = _TEST.format(
        # An argument with attributes is written as a SimpleNamespace; see `tree_of`.
        standard="from pathlib import Path" + "\nfrom types import SimpleNamespace" * ("SimpleN" in call),
        libraries="\n".join(sorted({*loading.imports, "import numpy as np"}, key=lambda line: line.split()[1])),
        function=function,
        load=re.sub(r"\bpath\b", 'FOLDER / f"{name}.safetensors"', loading.load),
        plain=loading.plain,
        call=call,
        names=names,
    )
    files: dict[str, str | bytes] = {"model.py": text, "test.py": test}
    lines = {"model.py": about.format(function=function), "test.py": "runs the program with the stored inputs"}
    if program.sizes:
        stored = ", ".join(f"{name} = {number}" for name, number in program.sizes.items())
        names = (
            f"Sizes with names can be any number from 1 on that the program accepts; the stored inputs have {stored}."
        )
        notes = f"{names}\n\n{notes}".strip()
    for name, (content, line) in (more or {}).items():
        files[name], lines[name] = content, line
    return Contents(
        f"{program.name} in {loading.title}",
        files,
        lines,
        ((f"pip install {loading.package}", "once"), ("python test.py", TESTED)),
        notes,
    )


def arguments(program: StoredProgram, key: str = "{}") -> list[str]:
    """Return the source of each argument of the program, an expression with the dicts `weights` and `inputs`."""
    names = dict.fromkeys(entry.leaf.argument for entry in program.inputs)
    leaves = {name: [entry for entry in program.inputs if entry.leaf.argument == name] for name in names}
    return [_argument(name, own, program, key) for name, own in leaves.items()]


def _argument(name: str, own: Sequence[StoredArray], program: StoredProgram, key: str) -> str:
    texts = {
        entry.leaf: (key if entry.leaf.spec.dtype.startswith("key<") else "{}").format(f"{entry.file}[{entry.name!r}]")
        for entry in own
    }
    # Most programs take a dict per file, which the test passes as it is loaded.
    is_flat = all(len(entry.leaf.keys) == 1 and entry.leaf.name == f"{name}[{entry.name!r}]" for entry in own)
    file = own[0].file
    if is_flat and len(own) == len(program.arrays[file]):
        text = file
    else:
        text = tree_of([entry.leaf for entry in own], texts.__getitem__, False)
    return f"{name}={text}" if name.isidentifier() else text


_TEST = '''\
"""Run model.py with the stored inputs, and compare its results with those that JAX computed."""

import sys
{standard}

{libraries}

from model import {function}

FOLDER = Path(__file__).parent
TOLERANCES = {{"float64": 1e-12, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-1, "complex64": 1e-4}}
NAMES = (  # of the results in expected.safetensors, in order
{names})


def load(name):
    """Return the arrays of a file by name."""
    return {load}


def flat(tree):
    """Return the arrays of nested dicts and tuples, in order."""
    if not isinstance(tree, (dict, tuple, list)):
        return [] if tree is None else [tree]
    return [one for inner in (tree.values() if isinstance(tree, dict) else tree) for one in flat(inner)]


def plain(found):
    """Return an array as a NumPy array."""
    return {plain}


def relative_error(found, wanted):
    """Return max|a - b| / max|b|; infinite or NaN if the shapes differ, or NaN and infinities are in other places."""
    if wanted.dtype.kind in "biu":
        return 0 if np.array_equal(found, wanted) else np.inf
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, wanted = np.asarray(found, kind), np.asarray(wanted, kind)
    is_finite = np.isfinite(wanted)
    if found.shape != wanted.shape or not np.array_equal(found[~is_finite], wanted[~is_finite], equal_nan=True):
        return np.inf
    difference = np.abs(found - wanted)[is_finite].max(initial=0)
    return difference / max(np.abs(wanted[is_finite]).max(initial=0), 1e-30) if difference > 0 else difference


weights, inputs, expected = load("weights"), load("inputs"), load("expected")
results = flat({call})
wrong = 0
for name, found in zip(NAMES, results):
    wanted = expected[name]
    error = relative_error(plain(found), plain(wanted))
    is_ok = error <= TOLERANCES.get(str(wanted.dtype).rpartition(".")[2], 0)
    wrong += not is_ok
    print(f"{{name:40}} {{error:9.2g}}  {{'ok' if is_ok else 'differs'}}")
sys.exit(wrong > 0 or len(results) != len(NAMES))
'''


_NUMPY = Loading("NumPy", "numpy safetensors", ("from safetensors.numpy import load_file",), "load_file(path)")
_TORCH = Loading(
    "PyTorch",
    "torch numpy safetensors",
    ("import torch", "from safetensors.torch import load_file"),
    # PyTorch does little arithmetic on uint32, so its values are kept in int64.
    "{key: one.to(torch.int64) if one.dtype == torch.uint32 else one for key, one in load_file(path).items()}",
    "found.detach().to(torch.float64).numpy()",
)
# NumPy has no bfloat16.
_PLAIN_MLX = "np.array(found.astype(mx.float32) if found.dtype == mx.bfloat16 else found)"
_MLX = Loading("MLX", '"mlx[cpu]" numpy', ("import mlx.core as mx",), "mx.load(str(path))", _PLAIN_MLX)


def _array_folder(program: StoredProgram, library: Library, loading: Loading) -> Contents:
    source = emit_arrays(program.traced, library)
    return python_contents(program, source.text, source.function, loading)


export_format("numpy", takes_names=True)(partial(_array_folder, library="numpy", loading=_NUMPY))
export_format("torch", takes_names=True)(partial(_array_folder, library="torch", loading=_TORCH))
export_format("mlx", takes_names=True)(partial(_array_folder, library="mlx", loading=_MLX))


_GGML = Loading(
    "GGML",
    "ggml-python numpy safetensors",
    ("from gguf_reader import read_gguf", "from safetensors.numpy import load_file"),
    'read_gguf(FOLDER / "weights.gguf") if name == "weights" else load_file(path)',
)
_GGML_NOTES = """pip compiles ggml-python, which takes minutes and a C++ compiler.
Programs based on GGML can read `weights.gguf`.

Differences from JAX: integers are float32 numbers, so they are exact up to 2**24 and do not wrap around. Where JAX
returns NaN for the maximum or minimum of NaN, GGML returns a number. A float that an integer cannot hold gives any
integer."""


@export_format("ggml")
def ggml_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program as a GGML graph, and the weights as a `.gguf` file."""
    arrays = program.arrays["weights"]
    shapes = {f"shape.{name}": list(map(int, array.shape)) for name, array in arrays.items() if array.shape}
    # GGML leaves out leading axes of size 1, so the metadata has the shapes.
    weights = gguf_bytes(arrays, {"general.name": program.name, **shapes})
    source = emit_ggml(program.traced)
    more = {
        "weights.gguf": (weights, "the parameters, in the format of GGML"),
        "gguf_reader.py": (_GGUF_READER, "reads the arrays of weights.gguf with ggml-python"),
    }
    contents = python_contents(program, source.text, source.function, _GGML, more, _GGML_NOTES)
    return replace(contents, replaced=("weights",))


_GGUF_READER = '''\
"""Read the arrays of a .gguf file with GGML's own reader."""

import ctypes
import os

import numpy as np
from ggml import ggml

DTYPES = {0: np.float32, 1: np.float16, 24: np.int8, 25: np.int16, 26: np.int32, 27: np.int64, 28: np.float64}


def read_gguf(path):
    """Return the arrays of a file by name.

    GGML leaves out leading axes of size 1 and shortens long names, so the metadata has shapes and whole names.
    """
    data = ggml.ggml_context_p_ctypes()
    params = ggml.gguf_init_params(no_alloc=False, ctx=ctypes.pointer(data))
    context = ggml.gguf_init_from_file(os.fsencode(path), params)
    if not context:
        raise OSError(f"{path} is not a .gguf file")
    arrays = {}
    for place in range(ggml.gguf_get_n_tensors(context)):
        name = ggml.gguf_get_tensor_name(context, place)
        tensor = ggml.ggml_get_tensor(data, name)
        key = ggml.gguf_find_key(context, b"name." + name)
        name = ggml.gguf_get_val_str(context, key) if key >= 0 else name
        key = ggml.gguf_find_key(context, b"shape." + name)
        shape = ()
        if key >= 0:
            axes = ggml.gguf_get_arr_n(context, key)
            shape = tuple(ctypes.cast(ggml.gguf_get_arr_data(context, key), ctypes.POINTER(ctypes.c_int32))[:axes])
        dtype = np.dtype(DTYPES[tensor.contents.type])
        count = ggml.ggml_nelements(tensor) * dtype.itemsize
        items = ctypes.string_at(ggml.ggml_get_data(tensor), count)
        arrays[name.decode()] = np.frombuffer(items, dtype).reshape(shape)
    ggml.gguf_free(context)
    ggml.ggml_free(data)
    return arrays
'''


_JAX = Loading(
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
    # Before the first array: JAX reads the setting when it creates one.
    text = source.text.replace("import jax\n", WIDE, 1) if program.is_wide else source.text
    train = _training(program, source.function)
    more = {} if train is None else {"train.py": (train, "trains the model; edit the loss, the optimizer and the data")}
    notes = "" if train is None else "`python train.py` trains the model with optax on the stored inputs."
    return python_contents(program, text, source.function, _JAX, more, notes)


def _training(program: StoredProgram, function: str) -> str | None:
    outputs = program.outputs
    args = arguments(program, _JAX.key)
    is_forward = (
        "params=weights" in args and len(outputs) == 1 and outputs[0].leaf.keys and outputs[0].array.dtype.kind == "f"
    )
    # JAX differentiates by floats only, and outputs without a name or of other dtypes have no usual loss.
    if not is_forward or any(entry.array.dtype.kind != "f" for entry in program.inputs if entry.file == "weights"):
        return None
    rest = [text for text in args if not text.startswith("params=")]
    names = [text.partition("=")[0] for text in rest]
    shape, dtype = outputs[0].array.shape, outputs[0].array.dtype
    # Several numbers per item are most often the logits of a classifier.
    is_class = len(shape) > 1 and shape[-1] > 1
    return _TRAINING_SCRIPT.format(
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


_TRAINING_SCRIPT = '''\
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


_LOADING = {
    "imports": ("from safetensors.numpy import load_file",),
    "load": "load_file(path)",
}


@export_format("stablehlo", takes_names=True)
def stablehlo_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with StableHLO: text, bytecode, and a file for `jax.export.deserialize`."""
    _check_installed("stablehlo", "flatbuffers", "flatbuffers")  # jax.export serializes with it
    program_of_jax = exported(program.traced)
    files = {
        "model.mlir": (
            program_of_jax.mlir_module(),
            "the program as StableHLO; its inputs are in the order of `model.py`",
        ),
        "model.mlirbc": (program_of_jax.mlir_module_serialized, "the same as portable bytecode"),
        "model.jax": (bytes(program_of_jax.serialize()), "the same for `jax.export.deserialize`"),
    }
    imports = f"{WIDE if program.is_wide else ''}from jax import export"
    load = 'program = export.deserialize(bytearray((FOLDER / "model.jax").read_bytes()))'
    notes = _NAMES if program.sizes else ""
    return _runner(program, "StableHLO", "jax flatbuffers", files, imports, load, "program.call", notes=notes)


@export_format("iree")
def iree_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program, compiled by IREE for the CPU of this machine."""
    _check_installed("iree", "iree.compiler", "mithril-nb[iree]")
    from iree import compiler  # pyright: ignore

    # `host`: else IREE compiles for a generic processor, without the vectors of this one.
    text = exported(program.traced).mlir_module()
    options = {"input_type": "stablehlo", "target_backends": ["llvm-cpu"]}
    compiled = compiler.compile_str(text, **options, extra_args=["--iree-llvmcpu-target-cpu=host"])
    files = {
        "model.vmfb": (bytes(compiled), "the program, compiled by IREE"),
        "model.mlir": (text, "the StableHLO that IREE compiled"),
    }
    load = 'program = runtime.load_vm_flatbuffer_file(str(FOLDER / "model.vmfb"), driver="local-task")'
    return _runner(program, "IREE", "iree-base-runtime", files, "from iree import runtime", load, "_results", _IREE)


@export_format("onnx", takes_names=True)
def onnx_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program and its weights as an ONNX model."""
    _check_installed("onnx", "onnx", "mithril-nb[onnx]")
    weights = {index: entry.array for index, entry in enumerate(program.inputs) if entry.file == "weights"}
    names = [entry.name for entry in program.inputs]
    output_names = [entry.name for entry in program.outputs]
    model = emit_onnx(program.traced, weights, names, output_names)
    # The checker of ONNX accepts operators and dtypes that onnxruntime does not have.
    _load(model)
    files = {"model.onnx": (model, f"the program with its weights: ONNX, opset {OPSET}")}
    input_names = [entry.name for entry in program.inputs if entry.file == "inputs"]
    text = _ONNX.format(function=identifier(program.name), inputs=_lines(input_names), outputs=_lines(output_names))
    return python_contents(
        program, text, identifier(program.name), Loading("ONNX", "onnxruntime numpy safetensors", **_LOADING), files,
        _ONNX_NOTES, f"{identifier(program.name)}(inputs)", "the runner: `{function}` runs model.onnx with onnxruntime",
    )  # fmt: skip


def _lines(names: Iterable[str]) -> str:
    return "\n".join(f"    {name!r}," for name in names)


def _load(model: bytes) -> None:
    if not _is_installed("onnxruntime"):  # the export needs only the package onnx
        warnings.warn("ml.export did not load model.onnx, because onnxruntime is not installed.", stacklevel=2)
        return
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # onnxruntime would also print the error that is raised
    try:
        onnxruntime.InferenceSession(model, options)
    except Exception as error:  # its exceptions have no common base
        raise UnsupportedPrimitiveError(
            "backend 'onnx' cannot express the program: onnxruntime does not load the model.",
            (("because", str(error).splitlines()[0]),),
        ) from error


def _runner(
    program: StoredProgram,
    title: str,
    package: str,
    files: Mapping[str, tuple[str | bytes, str]],
    imports: str,
    load: str,
    run: str,
    more: str = "",
    notes: str = "",
) -> Contents:
    function = identifier(program.name)
    text = _RUNNER.format(
        title=title,
        imports=imports,
        load=load,
        more=more,
        function=function,
        run=run,
        inputs="\n".join(f"    ({entry.file!r}, {entry.name!r}),  # {entry.leaf.spec}" for entry in program.inputs),
        outputs="\n".join(f"    {entry.name!r},  # {entry.leaf.spec}" for entry in program.outputs),
    )
    loading = Loading(title, f"{package} numpy safetensors", **_LOADING)
    about = "the runner: `{function}` passes arrays to the program"
    return python_contents(program, text, function, loading, files, notes, f"{function}(weights, inputs)", about)


def _check_installed(name: str, module: str, package: str) -> None:
    if not _is_installed(module):
        raise UnavailableBackendError(
            f"ml.export(to={name!r}) needs the package {module!r}, which is not installed.",
            advice=f'pip install "{package}"',
        )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or sys.modules has a module without a spec
        return False


_RUNNER = '''\
"""Run the {title} program of this folder."""

from pathlib import Path

{imports}

FOLDER = Path(__file__).parent
INPUTS = (  # file and name of each input, in the order of the program
{inputs}
)
OUTPUTS = (
{outputs}
)
{load}
{more}

def {function}(weights, inputs):
    """Return the results by name, for the weights and inputs by name."""
    arrays = {{"weights": weights, "inputs": inputs}}
    return dict(zip(OUTPUTS, {run}(*(arrays[file][name] for file, name in INPUTS))))
'''
_NAMES = """`jax.export` replaces the names by the sizes of the arrays at each call. Other tools need a compiler of
dynamic shapes for model.mlir and model.mlirbc."""
_IREE = """

def _results(*arrays):
    found = program.main(*arrays)
    return [each.to_host() for each in (found if isinstance(found, (list, tuple)) else [found])]
"""
_ONNX_NOTES = """The results are those of JAX on a CPU, except: erfc(x) is 1 - erf(x), with an error of 1e-7 also where
it is smaller, and the gradient of a max pooling over NaN goes to another item of the window."""
_ONNX = '''\
"""Run model.onnx with onnxruntime."""

from pathlib import Path

import onnxruntime

INPUTS = (  # names of the inputs, in the order of the model
{inputs}
)
OUTPUTS = (  # names of the results; if an input has the same name, the model appends a number
{outputs}
)
session = onnxruntime.InferenceSession(Path(__file__).parent / "model.onnx")


def {function}(inputs):
    """Return the results by name, for the inputs by name."""
    names = [one.name for one in session.get_inputs()]
    arrays = {{tensor: inputs[name] for tensor, name in zip(names, INPUTS)}}
    return dict(zip(OUTPUTS, session.run(None, arrays)))
'''
