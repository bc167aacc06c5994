"""The export formats `stablehlo`, `onnx` and `iree`: a model file for another tool, and Python that runs it."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Mapping

from mithril_nb.emission.naming.names import identifier
from mithril_nb.emission.onnx.emit import OPSET, emit_onnx
from mithril_nb.errors import UnavailableBackendError, UnsupportedPrimitiveError
from mithril_nb.interop.exporting.formats import Contents, export_format
from mithril_nb.interop.exporting.python_folder import WIDE, Loading, python_contents
from mithril_nb.interop.exporting.stored import StoredProgram, exported

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
    """Load an ONNX model. If onnxruntime is not installed, warn.

    Raises:
        UnsupportedPrimitiveError: onnxruntime does not load the model.
    """
    if not _is_installed("onnxruntime"):
        warnings.warn("ml.export did not load model.onnx, because onnxruntime is not installed.", stacklevel=2)
        return
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model, options)
    except Exception as error:  # its exceptions have no common base
        raise UnsupportedPrimitiveError(
            "backend 'onnx' cannot express the program: onnxruntime does not load the model.",
            (("because", str(error).splitlines()[0]),),
            'ml.export(model, "folder", to="stablehlo")  # contains every primitive',
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
    """Return the contents of a folder with a model file, and a `model.py` that passes weights and inputs to it."""
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
    """Raise an `UnavailableBackendError` if the module that the format `name` needs is not installed."""
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
