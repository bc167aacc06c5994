"""Exported folders run their own tests where mithril_nb cannot be imported; nothing half-written remains."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen, nnx
from transcript import without_advice

import mithril_nb as ml
from mithril_nb import models
from mithril_nb.errors import (
    MissingParameterError,
    ModelFileError,
    ShapeError,
    StageUnavailableError,
    UnavailableBackendError,
    UnexpectedInputError,
    UnknownOptionError,
    UnsupportedPrimitiveError,
)
from mithril_nb.interop.exporting.folder import FORMATS, Contents, export_format
from tests.emission import test_program

Function = Callable[..., Any]


class State(NamedTuple):
    step: Any
    total: Any


def with_state(state: State, *more: Any) -> Any:
    return State(state.step + 1, state.total * more[0]), {"sum": more[1].sum()}


def odd_names() -> Any:
    odd = 'double "quoted" */ // é\n'
    model = ml.Model() | models.Linear(3, name="for")(input="lambda", output="int")
    return model | models.Linear(2, name=odd)(input="int", output="return")


MLP = models.MLP(4, [3], 2)
PROGRAMS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "mlp": lambda: (MLP, {"shapes": {"input": [8, 4]}, "program": "train step"}),
    "state": lambda: (ml.inspect(with_state, State(jnp.int32(3), jnp.ones(2)), 2.0, jnp.ones((2, 3))), {}),
    "names": lambda: (odd_names(), {"shapes": {"lambda": [2, 4]}}),
    "dropout": lambda: (
        ml.Model() + models.Linear(3) + models.Dropout(0.5)(training=True), {"shapes": {"input": [2, 4]}}
    ),
    "cnn": lambda: (models.CNN([4], 3), {"shapes": {"input": [2, 1, 8, 8]}}),
    "lstm": lambda: (models.LSTM(6), {"shapes": {"input": [2, 3, 4]}}),
    "gpt": lambda: (
        models.GPT(vocabulary=11, context=6, layers=2, width=8, heads=2), {"shapes": {"input": [2, 6]}}
    ),
    "loops": lambda: (test_program.PROGRAMS["loops"](), {}),
}  # fmt: skip
RUNS = {
    "numpy": ("mlp", "state", "names", "dropout", "cnn"),
    "torch": ("names", "dropout"),
    "mlx": ("mlp", "names", "dropout"),
    "c": ("mlp", "state", "names", "dropout"),
    "ggml": ("mlp", "names", "cnn"),
    "jax": ("mlp", "state", "names", "dropout", "loops"),
    "stablehlo": ("names", "dropout"),
    "onnx": ("names", "cnn", "lstm", "gpt"),
    "iree": ("names",),
}
WITHOUT = {
    "numpy": "mithril_nb jax torch mlx", "torch": "mithril_nb jax mlx", "mlx": "mithril_nb jax torch",
    "onnx": "mithril_nb jax torch mlx onnx", "ggml": "mithril_nb jax torch mlx",
}  # fmt: skip
"""Packages that a folder must not import."""


def is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # its parent
        return False


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], subprocess.CompletedProcess[str]]:
    """Return a function that runs the test of a folder, where some packages cannot be imported, and checks its code."""

    def run(folder: Path, to: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        hidden = tmp_path_factory.mktemp("hidden")
        for name in WITHOUT.get(to, "mithril_nb").split():
            (hidden / f"{name}.py").write_text(f"raise ImportError({name!r})")
        command = ["make", "test"] if to == "c" else [sys.executable, "test.py"]
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        found = importlib.util.find_spec("ggml") if to == "ggml" else None  # it may lie outside of this environment
        outside = [str(Path(found.origin).parents[1])] if found and found.origin else []
        path = os.pathsep.join([str(hidden), *outside])
        environment = {**kept, "PYTHONPATH": path, "CFLAGS": "-O1 -Wall -Wextra -Werror"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.mark.parametrize(("to", "name"), [(to, name) for to, names in RUNS.items() for name in names])
def test_a_folder_runs_its_test(to: str, name: str, tmp_path: Path, run_folder: Any) -> None:
    package = {"iree": "iree.compiler", "ggml": "ggml"}.get(to)  # the others are in the extra `test`
    if package and not is_installed(package):
        pytest.skip(f"{package} is not installed")
    target, options = PROGRAMS[name]()
    folder = ml.export(target, tmp_path / "folder", to=to, **options)
    done = run_folder(folder, to)
    assert " ok\n" in done.stdout
    readme = (folder / "README.md").read_text()
    assert all(path.name in readme for path in folder.iterdir() if path.suffix in (".py", ".c", ".bin", ".safetensors"))
    assert "use it under any license" in readme


@pytest.mark.parametrize("to", ["numpy", "onnx", "c"])
def test_results_of_any_name_are_compared(to: str, tmp_path: Path, run_folder: Any) -> None:
    def step(params: Any, x: Any) -> Any:
        pair = [None, x + 2, None, x + 3]
        return {
            **{name: one - x for name, one in params.items() if name != "l"},
            "": x + 1,
            "a": {"b": x},
            "l": pair,
            "i": {99: x},
        }

    params = {"w": jnp.arange(3.0), "a.b": jnp.ones(3), "l": None}
    folder = ml.export(step, tmp_path / "folder", params, jnp.full(3, 5.0), to=to)
    done = run_folder(folder, to)
    assert done.stdout.count(" ok\n") == 7


@pytest.mark.parametrize("to", ["numpy", "torch", "mlx", "jax", "onnx", "stablehlo"])
def test_numpy_scalars_keep_their_values(to: str, tmp_path: Path) -> None:
    params = {"scale": np.float32(0.02), "shift": np.int32(79), "inner": (np.float16(3), np.uint8(200))}
    folder = ml.export(lambda params, x: [*jax.tree.leaves(params), x], tmp_path / "a", params, np.float32(7), to=to)
    stored = ml.load_params(folder / "weights.safetensors").values()
    assert sorted(map(float, stored)) == [np.float32(0.02), 3, 79, 200]
    results = ml.load_params(folder / "expected.safetensors").values()
    assert sorted(map(float, results)) == [np.float32(0.02), 3, 7, 79, 200]


def fread(fabsf: Any, strlen: Any) -> Any:
    with jax.named_scope("signbit"):
        return jnp.fabs(fabsf) * 2 + strlen


def in_bfloat16(x: Any) -> Any:
    return x * jnp.linspace(-3, 3, x.size, dtype=jnp.bfloat16)


def cumulated(x: Any) -> Any:
    return jax.lax.cummax(x, 0), jax.lax.cummin(x, 0, reverse=True)


def convolved(dtype: str, **options: Any) -> Function:
    """Return a dilated convolution of integers, which PyTorch does not have."""
    config: dict[str, Any] = {"window_strides": (1,), "padding": [(1, 2)], "rhs_dilation": (2,)} | options
    return lambda x, kernel: jax.lax.conv_general_dilated(x, kernel, **config, preferred_element_type=jnp.dtype(dtype))


NUMBERS = np.array([1, -np.inf, 3], "f")
WITH_NAN = [1, np.nan, 3, -np.inf, 2]
BYTES = [np.arange(40, dtype="int8").reshape(2, 2, 10), np.arange(12, dtype="int8").reshape(2, 2, 3)]
FUNCTIONS: list[tuple[str, Function, list[Any], int]] = [
    # the format, the function, its arguments, the number of its results
    *[("c", function, [NUMBERS], 1) for function in (jnp.isnan, jnp.isfinite, jnp.signbit, jnp.sqrt)],
    ("c", fread, [NUMBERS, NUMBERS], 1),  # names of the C library
    *[(to, in_bfloat16, [jnp.ones(n, "bfloat16")], 1) for to in ("torch", "mlx", "jax") for n in (3, 200)],
    *[(to, lambda x: (x + 1, True, 3, 2.5, np.int8(4)), [NUMBERS], 5) for to in ("numpy", "torch", "stablehlo")],
    *[("mlx", cumulated, [jnp.array(WITH_NAN, dtype)], 2) for dtype in ("float16", "float32", "bfloat16")],
    *[
        ("torch", convolved(dtype, **options), BYTES, 1)
        for dtype in ("int32", "int8")
        for options in ({}, {"lhs_dilation": (2,)}, {"window_strides": (2,)})
    ],
    *[
        ("torch", convolved(dtype, feature_group_count=2), [BYTES[0], BYTES[1][:, :1]], 1)
        for dtype in ("int32", "int8")
    ],
]


@pytest.mark.parametrize(("to", "function", "arguments", "count"), FUNCTIONS)
def test_the_folder_of_a_function_runs(
    to: str, function: Function, arguments: list[Any], count: int, tmp_path: Path, run_folder: Any
) -> None:
    done = run_folder(ml.export(function, tmp_path / "a", *arguments, to=to), to)
    assert done.stdout.count(" ok\n") == count


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_maxima_in_which_mlx_drops_nan_are_refused(dtype: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedPrimitiveError, match="MLX drops NaN"):
        ml.export(lambda x: x.at[jnp.array([0, 0])].max(x[1:3]), tmp_path, jnp.array(WITH_NAN, dtype), to="mlx")


def test_an_onnx_model_that_does_not_load_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnsupportedPrimitiveError, match="without results"):
        ml.export(lambda x: (), tmp_path / "folder", jnp.ones(3), to="onnx")  # onnxruntime needs a result
    with monkeypatch.context() as patch:
        patch.setattr("mithril_nb.interop.exporting.python_folder.emit_onnx", lambda *_: b"broken")
        with pytest.raises(UnsupportedPrimitiveError, match="onnxruntime does not load the model"):
            ml.export(jnp.sin, tmp_path / "folder", jnp.ones(3), to="onnx")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.warns(UserWarning, match=r"did not load model\.onnx, because onnxruntime is not installed"):
        ml.export(jnp.sin, tmp_path / "folder", jnp.ones(3), to="onnx")


def test_a_missing_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for to, package in (("onnx", "onnx"), ("iree", "iree"), ("stablehlo", "flatbuffers")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UnavailableBackendError, match=f"needs the package '{package}.*\n.*pip install"):
            ml.export(MLP, tmp_path / "folder", to=to, shapes={"input": [8, 4]})
    assert list(tmp_path.iterdir()) == []


def test_the_jax_script_trains(tmp_path: Path, run_folder: Any) -> None:
    folder = ml.export(MLP, tmp_path / "folder", to="jax", shapes={"input": [8, 4]})
    (folder / "test.py").write_text((folder / "train.py").read_text())
    done = run_folder(folder, "jax")
    losses = [float(line.rpartition(" ")[2]) for line in done.stdout.splitlines()]
    assert losses[-1] < losses[0], done.stderr
    assert ml.load_params(folder / "weights.safetensors").keys() == {
        f"linear_{place}.{name}" for place in (0, 1) for name in ("bias", "weight")
    }


def test_a_wrong_weight_fails(tmp_path: Path, run_folder: Any) -> None:
    pm = ml.compile(MLP, shapes={"input": [8, 4]})
    folder = ml.export(pm, tmp_path / "folder", to="numpy")
    params = ml.load_params(folder / "weights.safetensors")
    ml.save_params({name: one + 1 for name, one in params.items()}, folder / "weights.safetensors")
    assert "differs" in run_folder(folder, "numpy", 1).stdout


def test_given_arrays_are_stored(tmp_path: Path) -> None:
    pm = ml.compile(MLP, shapes={"input": [8, 4]})
    params, x = pm.randomize_params(7), np.full((8, 4), 2.0, "float32")
    folder = ml.export(pm, tmp_path / "a", to="numpy", params=params, inputs={"input": x})
    found = ml.load_params(folder / "weights.safetensors")
    assert {name: one.tolist() for name, one in found.items()} == {name: one.tolist() for name, one in params.items()}
    expected = pm.evaluate(params, {"input": x})["output"]
    np.testing.assert_allclose(ml.load_params(folder / "expected.safetensors")["output"], expected, rtol=1e-6)
    nested = {"linear_0": {"weight": params["linear_0.weight"], "bias": params["linear_0.bias"]}}
    nested |= {"linear_1": {"weight": params["linear_1.weight"], "bias": params["linear_1.bias"]}}
    again = ml.export(pm.inspect(), tmp_path / "b", to="numpy", params=nested, inputs={"input": x})
    np.testing.assert_allclose(ml.load_params(again / "expected.safetensors")["output"], expected, rtol=1e-6)
    called = ml.export(jnp.multiply, tmp_path / "c", jnp.arange(3.0), jnp.full(3, 2.0), to="numpy")
    assert ml.load_params(called / "expected.safetensors")["result"].tolist() == [0, 2, 4]
    named = ml.export(
        lambda x, y: x * y, tmp_path / "d", jnp.ones(3), jnp.ones(3), to="numpy", inputs={"x": jnp.zeros(3)}
    )
    assert not ml.load_params(named / "expected.safetensors")["result"].any()


def test_modules_of_libraries_keep_their_parameters(tmp_path: Path) -> None:
    class Scaled(equinox.Module):
        w: Any

        def __call__(self, params: Any, x: Any) -> Any:
            return x @ params["w"] @ self.w

        def run(self, params: Any, x: Any) -> Any:
            return self(params, x) + 1

    x, params = jnp.ones((4, 3)), {"w": jnp.full((3, 3), 3.0)}
    scaled, norm = Scaled(jnp.full((3, 3), 7.0)), nnx.BatchNorm(3, use_running_average=True, rngs=nnx.Rngs(0))
    norm.mean[...] += 9
    other = linen.BatchNorm(use_running_average=True)
    variables = jax.tree.map(lambda one: one + 5, other.init(jax.random.key(0), x))
    state = (optax.sgd(0.1).init(params), (), None, [None, x])
    mlp, linear = equinox.nn.MLP(3, 2, 3, 1, key=jax.random.key(0)), nnx.Linear(3, 2, rngs=nnx.Rngs(0))
    dense = linen.Dense(2).init(jax.random.key(1), x)
    cases: dict[str, tuple[Any, tuple[Any, ...], Any, dict[str, Any]]] = {
        "equinox": (jax.vmap(mlp), (x,), jax.vmap(mlp)(x), {"params": mlp}),
        "linear": (linear, (x,), linear(x), {}),
        "dense": (linen.Dense(2), (x,), linen.Dense(2).apply(dense, x), {"variables": dense}),
        "module": (scaled, (params, x), scaled(params, x), {}),
        "method": (scaled.run, (params, x), scaled.run(params, x), {}),
        "jitted": (equinox.filter_jit(scaled), (params, x), scaled(params, x), {"params": params}),
        "nnx": (norm, (x,), norm(x), {}),
        "linen": (other, (x,), other.apply(variables, x), {"variables": variables}),
        "empty": (lambda params, state, x: state[3][1] + x @ params["w"], (params, state, x), x + x @ params["w"], {}),
    }
    for name, (target, args, expected, options) in cases.items():
        folder = ml.export(target, tmp_path / name, *args, to="onnx", **options)
        results = ml.load_params(folder / "expected.safetensors").values()  # nnx also returns its state
        (found,) = [one for one in results if one.shape == expected.shape]
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_inspect_opens_the_exported_files(tmp_path: Path) -> None:
    folder = ml.export(jnp.sin, tmp_path / "folder", jnp.ones(3), to="stablehlo")
    for name in ("model.mlir", "model.mlirbc", "model.jax"):
        assert "stablehlo.sine" in ml.inspect(str(folder / name)).stage("stablehlo").text


def test_a_model_of_another_backend_is_exported(tmp_path: Path, run_folder: Any) -> None:
    # The derivative of Tanh is a primitive of its own in JAX 0.12, which must stay in float64.
    pm = ml.compile(
        models.Model() + models.MLP(4, [3], 2) + models.Tanh(),
        ml.NumpyBackend(dtype="float64"),
        shapes={"input": [8, 4]},
    )
    folder = ml.export(pm, tmp_path / "folder", to="c", program="forward+backward")
    assert "double" in (folder / "model.c").read_text()
    run_folder(folder, "c")


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"to": "tensorrt"}, UnknownOptionError, "ml.export has no format 'tensorrt'"),
        ({"to": "numpy", "params": {}}, MissingParameterError, "params has no 'linear_0.bias'"),
        ({"to": "numpy", "inputs": {"x": 1, "y": 2}}, UnexpectedInputError, "no array 'x' among its inputs"),
        ({"to": "numpy", "inputs": {"input": np.ones((2, 4))}}, ShapeError, "does not have the shape"),
        ({"to": "numpy", "inputs": {"input": "text"}}, ShapeError, "does not have the shape"),
        ({"to": "numpy", "program": "inference"}, UnknownOptionError, "'inference'"),
        ({"to": "numpy", "shapes": {}}, ShapeError, "the shape of input 'input' is unknown"),
    ],
)
def test_bad_options_write_nothing(options: dict[str, Any], error: type, text: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=text.replace(".", r"\.")):
        ml.export(MLP, tmp_path / "folder", **{"shapes": {"input": [8, 4]}, **options})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("args", "options", "what"), [((2.0,), {}, "arguments"), ((), {"name": "f"}, "option 'name'")])
def test_an_inspection_takes_no_arguments(args: Any, options: Any, what: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownOptionError) as error:
        ml.export(ml.inspect(jnp.sin, 1.0), tmp_path / "out", *args, to="numpy", **options)
    assert without_advice(str(error.value)) == (
        f"ml.export takes no {what} for a program that is compiled or inspected already.\n"
        "    takes  to, params, inputs, overwrite"
    )


def test_an_existing_folder_stays(tmp_path: Path) -> None:
    options = {"to": "numpy", "shapes": {"input": [8, 4]}}
    (tmp_path / "notes.txt").write_text("mine")
    for target in (tmp_path, tmp_path / "notes.txt"):
        for overwrite in (False, True):
            with pytest.raises(ModelFileError, match="cannot export to"):
                ml.export(MLP, target, overwrite=overwrite, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    for folder in (tmp_path / "missing" / "folder", tmp_path / "notes.txt" / "folder"):
        with pytest.raises(ModelFileError, match="No such file or directory"):
            ml.export(MLP, folder, **options)
    (tmp_path / "empty").mkdir()
    folder = ml.export(MLP, tmp_path / "empty", **options)
    with pytest.raises(ModelFileError, match="it contains files"):
        ml.export(MLP, folder, **options)
    ml.export(MLP, folder, overwrite=True, **(options | {"to": "c"}))
    assert (folder / "model.c").exists()
    assert not (folder / "model.py").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "notes.txt"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"to": "numpy", "shapes": {"input": [8, 4]}}
    folder = ml.export(MLP, tmp_path / "folder", **options)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mithril_nb.interop.exporting.folder.save_params", fail)
    for overwrite, target in ((True, folder), (False, tmp_path / "new")):
        with pytest.raises(ModelFileError, match="No space left on device"):
            ml.export(MLP, target, overwrite=overwrite, **options)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_primitive_without_source_writes_nothing(tmp_path: Path) -> None:
    for to in ("c", "torch"):
        with pytest.raises(UnsupportedPrimitiveError, match="pure_callback"):
            ml.export(
                lambda x: jax.pure_callback(np.sin, x, x), tmp_path / "folder", jax.ShapeDtypeStruct((3,), "float32"),
                to=to, inputs={"x": np.ones(3)},
            )  # fmt: skip
    with pytest.raises(StageUnavailableError, match="pass numbers for the sizes, such as batch=32"):
        ml.export(MLP, tmp_path / "folder", to="c", shapes={"input": ["batch", 4]})
    (rows,) = jax.export.symbolic_shape("rows")
    with pytest.raises(StageUnavailableError, match=r"no number +rows"):  # no axis has this size
        ml.export(jnp.sin, tmp_path / "folder", jax.ShapeDtypeStruct((2 * rows,), "float32"), to="numpy")
    assert list(tmp_path.iterdir()) == []


def test_formats_are_a_registry(tmp_path: Path) -> None:
    @export_format("names")
    def names(program: Any) -> Contents:
        text = "\n".join(one.name for one in program.inputs)
        return Contents("names", {"names.txt": text}, {"names.txt": "names"}, (("cat names.txt", ""), ("true", "")))

    try:
        folder = ml.export(MLP, tmp_path / "folder", to="names", shapes={"input": [8, 4]})
    finally:
        del FORMATS["names"]
    assert (folder / "names.txt").read_text().splitlines()[0] == "linear_0.bias"
