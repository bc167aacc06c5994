"""The export formats `numpy`, `torch` and `mlx`: one Python file that does not import JAX."""

from __future__ import annotations

from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.arrays.rules import Library
from mithril_nb.interop.exporting.formats import Contents, export_format
from mithril_nb.interop.exporting.python_folder import Loading, python_contents
from mithril_nb.interop.exporting.stored import StoredProgram

_NUMPY = Loading("NumPy", "numpy safetensors", ("from safetensors.numpy import load_file",), "load_file(path)")
_TORCH = Loading(
    "PyTorch",
    "torch numpy safetensors",
    ("import torch", "from safetensors.torch import load_file"),
    # PyTorch does little arithmetic on uint32, so its values are kept in int64.
    "{key: one.to(torch.int64) if one.dtype == torch.uint32 else one for key, one in load_file(path).items()}",
    "found.detach().to(torch.float64).numpy()",
)
_MLX = Loading("MLX", '"mlx[cpu]" numpy', ("import mlx.core as mx",), "mx.load(str(path))", "np.array(found)")


@export_format("numpy", takes_names=True)
def numpy_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program in NumPy."""
    return _contents(program, "numpy", _NUMPY)


@export_format("torch", takes_names=True)
def torch_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program in PyTorch."""
    return _contents(program, "torch", _TORCH)


@export_format("mlx", takes_names=True)
def mlx_folder(program: StoredProgram) -> Contents:
    """Return the contents of a folder with the program in MLX."""
    return _contents(program, "mlx", _MLX)


def _contents(program: StoredProgram, library: Library, loading: Loading) -> Contents:
    source = emit_arrays(program.traced, library)
    return python_contents(program, source.text, source.function, loading)
