"""Every block of Mithril in the user's documents, in a fresh process each: as printed, and mended where it is wrong.

A process sees 8 forced CPU devices, and torch and mlx only if the block needs them. `mithril` is read as `mithril_nb`.
What a block takes from the text before it, what is wrong in it, and what it must have done stand below, as data.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE

import pytest
from process import EIGHT_DEVICES

pytestmark = [pytest.mark.timeout(400), pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")]
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
DOCUMENTS = {"000": "000_jax_backend.txt", "002": "002_migrating.txt", "004": "004_backends.txt"}
BAR = 30
"""Blocks of the 40 that must run as printed; of the others each names what is wrong in it."""


@dataclass(frozen=True)
class Mend:
    """Something wrong in a block as printed.

    Attributes:
        wrong: The text.
        right: What stands in its place.
        because: Why.
    """

    wrong: str
    right: str
    because: str


@dataclass(frozen=True)
class Seed:
    """What belongs to a block.

    Attributes:
        before: Names that the text before it has defined, as code.
        after: Numbers of blocks of the same document that run before it, in the same process.
        mends: What is wrong in it; empty if it must run as printed.
        check: What must hold when it has run.
        says: What it is warned about: the start of each warning.
        libraries: Libraries of other backends that it needs; no other block sees them.
    """

    before: str = ""
    after: tuple[int, ...] = ()
    mends: tuple[Mend, ...] = ()
    check: str = ""
    says: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


NO_GPU = "the machine of the tests has no GPU"
NO_TPU = "the machine of the tests has no TPU"
ML = "import mithril as ml"
BACKEND = "import mithril as ml\nbackend = ml.JaxBackend()"
BLOCKS = "import mithril as ml\nfrom mithril.models import Model, Linear, Relu\nbackend = ml.JaxBackend()"
RUNS = """
pm = ml.compile(model, backend, shapes={"input": [4, 8]})
assert pm.evaluate(pm.randomize_params(), {"input": backend.randn(4, 8)})["output"].shape == (4, 10)
"""

SEEDS: dict[tuple[str, int], Seed] = {
    ("000", 1): Seed(
        mends=(Mend('device="gpu"', 'device="cpu"', NO_GPU),), check='assert backend.device_name == "cpu:0"'
    ),
    ("000", 2): Seed(
        BACKEND,
        check="""
        for tensor in (zeros, ones, randn, rand, jax_tensor):
            assert tensor.shape == (3, 4) and tensor.dtype == "float32"
        assert float16_tensor.dtype == "float16" and int32_tensor.dtype == "int32"
        assert (zeros == 0).all() and (ones == 1).all() and (arange == np.arange(10)).all()
        assert np.allclose(jax_tensor, numpy_array, rtol=1e-6)
        assert (rand >= 0).all() and (rand < 1).all() and (randn < 0).any()
        """,
    ),
    ("000", 3): Seed(
        BACKEND,
        check="""
        for found in (mul, div, relu):
            assert (found == 1).all()
        assert (add == 2).all() and (sub == 0).all() and (matmul == np.full((3, 5), 4.0)).all()
        assert sum_all == 12 and (sum_axis == np.full(4, 3.0)).all() and mean == max_val == 1
        assert np.allclose(sigmoid, 1 / (1 + np.exp(-1)), 1e-6) and np.allclose(tanh, np.tanh(1), 1e-6)
        """,
    ),
    ("000", 4): Seed(
        BACKEND, check="assert (reshaped.shape, transposed.shape, concatenated.shape) == ((3, 4), (4, 3), (6, 4))"
    ),
    ("000", 5): Seed(check="assert compiled_model.jit"),
    ("000", 6): Seed(
        after=(5,),
        check="""
        wanted = np.asarray(inputs["input"]) @ np.asarray(params["weight"]) + np.asarray(params["bias"])
        assert output_tensor.shape == (32, 64) and np.allclose(output_tensor, wanted, rtol=1e-4, atol=1e-5)
        """,
    ),
    ("000", 7): Seed(
        after=(5, 6),
        check="""
        wanted = np.asarray(inputs["input"]).T @ np.ones((32, 64))
        assert np.allclose(weight_grad, wanted, rtol=1e-4, atol=1e-4) and (bias_grad == np.full(64, 32.0)).all()
        """,
    ),
    ("000", 8): Seed(after=(5,), check="assert compiled_model.jit"),
    ("000", 9): Seed(ML, check='assert dict(backend.mesh.shape) == {"data": 2, "model": 2}'),
    ("000", 10): Seed(BACKEND, check="assert len(sharded_tensor.devices()) == 2 and (sharded_tensor == 1).all()"),
    ("000", 11): Seed(
        ML,
        check='assert outputs["output"].shape == (128, 1024) and len(params["linear_0.weight"].devices()) == 2',
    ),
    ("000", 12): Seed(
        BACKEND,
        mends=(Mend('"gelu"(input', 'ml.op("gelu")(input', "a text cannot be called outside a notebook"),),
        check=RUNS,
    ),
    ("000", 13): Seed(BACKEND, check="assert random_numbers.shape == (3, 4)"),
    ("000", 14): Seed(
        "import jax\n" + ML,
        mends=(Mend('platform="gpu"', 'platform="cpu"', NO_GPU),),
        check='assert backend.precision == "highest" and backend.debug',
    ),
    ("000", 15): Seed(
        """
        import numpy as np
        import mithril as ml
        num_epochs, X_batch, y_batch = 2, np.ones((4, 784), "float32"), np.array([0, 1, 2, 3])
        def compute_loss_gradient(logits, labels):
            return backend.cross_entropy_grad(logits, labels)
        """,
        mends=(
            Mend(
                "    outputs, gradients",
                "    outputs = compiled_model.evaluate(params, inputs)\n    outputs, gradients",
                "outputs is read before anything is assigned to it",
            ),
        ),
        check='assert (params["linear_0.bias"] != 0).any()',
    ),
    ("000", 16): Seed(ML, check='assert backend.default_dtype == "float16"'),
    ("000", 17): Seed(after=(5,), check="assert compiled_model"),
    ("000", 18): Seed(after=(5,), check="assert compiled_model.jit"),
    ("000", 19): Seed("import jax\n" + ML, mends=(Mend('"gpu:0"', '"cpu:0"', NO_GPU),)),
    ("002", 1): Seed(
        check="""
        assert list(params) == [f"linear_{i}.{name}" for i in range(3) for name in ("weight", "bias")]
        assert [params[f"linear_{i}.weight"].shape for i in range(3)] == [(784, 512), (512, 256), (256, 10)]
        hidden = np.asarray(inputs["input"])
        for i in range(3):
            hidden = hidden @ np.asarray(params[f"linear_{i}.weight"]) + np.asarray(params[f"linear_{i}.bias"])
            hidden = np.maximum(hidden, 0) if i < 2 else hidden
        assert output.shape == (32, 10) and np.allclose(output, hidden, rtol=1e-4, atol=1e-4)
        """,
    ),
    ("002", 2): Seed(
        'grads = {"output": backend.ones(32, 10)}',
        after=(1,),
        check="""
        for compiled in (data_parallel, model_parallel, mixed_parallel):
            some = {name: backend.array(array) for name, array in params.items()}
            found = compiled.evaluate(some, inputs, grads)
            for one, other in zip(jax.tree.leaves(found), jax.tree.leaves((outputs, gradients))):
                assert np.allclose(one, other, rtol=1e-5, atol=1e-4)
            assert len(found[0]["output"].devices()) == compiled.backend.mesh.size > 1
        """,
    ),
    ("002", 3): Seed(BLOCKS, check='assert outputs["output"].shape == (32, 10)'),
    ("002", 4): Seed(
        'import numpy as np\ndata_loader = [(np.ones((32, 784), "float32"), np.arange(32) % 10)] * 2',
        after=(1,),
        check='assert loss < 3 and (params["linear_2.bias"] != 0).any()',
    ),
    ("002", 5): Seed(
        "from mithril.models import Dropout",
        after=(1,),
        check=RUNS + 'assert params["linear_0.weight"].shape == (784, 512)',
    ),
    ("002", 6): Seed(
        BLOCKS,
        check=RUNS
        + textwrap.dedent("""
        import jax
        pm = ml.compile(ml.op("sin_times_x"), backend)
        x = backend.array([0.5, -2.0])
        given = jax.grad(lambda x: pm.forward({}, {"input": x})["output"].sum())(x)
        assert np.allclose(given, np.sin(x) + x * np.cos(x), atol=1e-6)
        """),
    ),
    ("002", 7): Seed(
        "import jax",
        after=(1,),
        check="""
        assert backend.default_dtype == "float64" and compiled_model.options.donated == (0,)
        known = ml.compile(model, backend, shapes={"input": [2, 784]}, jit_options={"xla_computation": True})
        assert known.xla_computation.startswith("module @")
        """,
        says=("the XLA flag 'xla_gpu_autotune_level' has no effect", "jit_options['static_argnums'] has no effect"),
    ),
    ("002", 8): Seed(
        after=(1,),
        mends=(
            Mend("devices = jax.devices('tpu')\n", "", NO_TPU),
            Mend("sharded_params = jax.device_put_replicated(params, devices)\n", "", "JAX has it no more"),
            Mend(
                "results = jax.pmap(forward_fn)(sharded_params, sharded_inputs)\n", "", "forward_fn is defined nowhere"
            ),
            Mend('device="tpu"', 'device="cpu"', NO_TPU),
        ),
        check="""
        out = compiled_model.evaluate(compiled_model.randomize_params(), {"input": backend.ones(32, 784)})["output"]
        assert len(out.devices()) == 8
        """,
    ),
    ("002", 9): Seed(
        after=(1,),
        mends=(Mend('device="tpu"', 'device="cpu"', NO_TPU),),
        check='assert backend.default_dtype == "bfloat16" and compiled_model.options.static_shapes',
    ),
    ("002", 10): Seed(
        BLOCKS,
        check="""
        sizes = (784, 512, 256, 10)
        haiku = {
            f"mlp/linear_{i}": {"w": np.random.randn(*size).astype("float32"), "b": np.random.randn(size[1])}
            for i, size in enumerate(zip(sizes, sizes[1:]))
        }
        pm = ml.compile(create_mlp(), backend, shapes={"input": [3, 784]})
        x = y = np.random.randn(3, 784).astype("float32")
        for i in range(3):
            y = y @ haiku[f"mlp/linear_{i}"]["w"] + haiku[f"mlp/linear_{i}"]["b"]
            y = np.maximum(y, 0) if i < 2 else y
        found = pm.evaluate(import_haiku_params(haiku, pm), {"input": x})["output"]
        assert np.allclose(found, y, rtol=1e-3, atol=1e-1)
        """,
    ),
    ("004", 1): Seed(
        ML,
        check="""
        assert (JaxBackend, TorchBackend, MlxBackend) == (ml.JaxBackend, ml.TorchBackend, ml.MlxBackend)
        assert JaxBackend()
        """,
    ),
    ("004", 2): Seed(
        ML,
        check="assert (NumpyBackend, CBackend, GGMLBackend) == (ml.NumpyBackend, ml.CBackend, ml.GGMLBackend)",
    ),
    ("004", 3): Seed("from abc import ABC, abstractmethod", check='assert "ones" in Backend.__abstractmethods__'),
    ("004", 4): Seed(
        'import numpy as np\ninput_data = np.ones((2, 4), "float32")',
        mends=(
            Mend(
                "# ... define your model ...",
                "from mithril.models import Linear\nmodel |= Linear(3)",
                "the model is left out, and an empty one has no input",
            ),
        ),
        check="assert output.shape == (2, 3)",
    ),
    ("004", 5): Seed(
        mends=(
            Mend('platform="gpu"', 'platform="cpu"', NO_GPU),
            Mend('device="cuda"', 'device="cpu"', NO_GPU),
        ),
        check="""
        assert backend.default_dtype == "float16" and str(backend.ones(2).dtype) == "mlx.core.float16"
        torch_backend = TorchBackend(device="cpu", use_amp=True)
        pm = ml.compile(ml.models.Linear(3), torch_backend, shapes={"input": [2, 4]})
        outputs, gradients = pm.evaluate(pm.randomize_params(), {"input": np.ones((2, 4))}, {"output": np.ones((2, 3))})
        assert {one.dtype for one in (*outputs.values(), *gradients.values())} == {torch.float32}
        """,
        before=ML + "\nimport torch",
        libraries=("torch", "mlx"),
    ),
    ("004", 6): Seed(
        """
        from mithril.backends.with_autograd.jax_backend import JaxBackend
        from mithril.backends.with_autograd.mlx_backend import MlxBackend
        from mithril.backends.with_autograd.torch_backend import TorchBackend
        """,
        mends=(
            Mend('jax_backend.set_platform("gpu")', 'jax_backend.set_platform("cpu")', NO_GPU),
            Mend('torch_backend.set_device("cuda:0")', 'torch_backend.set_device("cpu")', NO_GPU),
            Mend('mlx_backend.set_default_device("gpu")', 'mlx_backend.set_default_device("cpu")', NO_GPU),
        ),
        libraries=("torch", "mlx"),
        check='assert jax_backend.ones(2, dtype="float64").dtype == "float64"',
    ),
    ("004", 7): Seed(
        BACKEND,
        check="""
        assert z.tolist() == a.tolist() == [5, 7, 9] and (w, c) == (32, 21)
        assert np.allclose((b, d), 1)
        """,
    ),
    ("004", 8): Seed(BACKEND + "\ntensor = backend.ones(3, 4)", check='assert shape == (3, 4) and dtype == "float32"'),
    ("004", 9): Seed("import numpy as np", check="assert np.allclose(grad_x, [2, 4, 6])"),
    ("004", 10): Seed(
        """
        import mithril as ml
        jax_backend = backend = ml.JaxBackend()
        model = ml.models.Model() | ml.models.Linear(4, name="layer1")
        model += ml.models.Linear(2, name="layer2")
        fn, data_batch = lambda x: x.sum(axis=1), jax_backend.ones(8, 3)
        """,
        check="""
        assert len(results.devices()) == 4 and (results == 3).all()
        pm = ml.compile(placed_model, backend)
        assert len(pm(data_batch).devices()) == 1 and pm.params["layer1.weight"].devices() != pm(data_batch).devices()
        """,
    ),
    ("004", 11): Seed(check="assert MyCustomBackend.tensor"),
}


def code(document: str, number: int) -> str:
    """A block, as printed."""
    text = (HERE / DOCUMENTS[document]).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.S | re.M)[number - 1]


def program(document: str, number: int, mended: bool) -> str:
    """What one process runs."""
    seed = SEEDS[document, number]
    block = code(document, number)
    for mend in seed.mends if mended else ():
        assert block.count(mend.wrong) == 1, mend
        block = block.replace(mend.wrong, mend.right)
    parts = [*(code(document, one) for one in seed.after), textwrap.dedent(seed.before), block]
    whole = "\n".join([*parts, "import numpy as np, jax", *map(textwrap.dedent, seed.check.split("\n\n\n"))])
    visible = f"import sys\nfor name in {seed.libraries!r}: sys.modules.pop(name, None)\n"
    return visible + re.sub(r"\bmithril\b", "mithril_nb", START + whole)


START = """
import warnings
from mithril_nb.backends.backend import MithrilWarning
warnings.simplefilter("error")
warnings.simplefilter("always", MithrilWarning)
"""

FORKING = """
import json, os, signal, sys, tempfile, traceback
sys.modules["torch"] = sys.modules["mlx"] = None
import numpy, jax, optax, mithril_nb, mithril_nb.models, mithril_nb.compilation

def ran(code):
    out = tempfile.TemporaryFile("w+")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        out.seek(0)
        return status, out.read()
    signal.alarm(100)
    os.dup2(out.fileno(), 1), os.dup2(out.fileno(), 2)
    status = 1
    try:
        exec(compile(code, "<block>", "exec"), {"__name__": "__main__"})
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

for line in sys.stdin:
    print(json.dumps(ran(json.loads(line))), flush=True)
"""
"""Runs each program in a fork of a process that has imported, and done nothing else: JAX starts in each of them anew,
and what one does no other sees. To import costs more than most blocks."""
FLAGS = {"JAX_PLATFORMS": "cpu", **EIGHT_DEVICES}


def run(code: str) -> str:
    """Return what Python prints, in a process with 8 devices."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **FLAGS}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def fork() -> Iterator[Callable[[str], tuple[int, str]]]:
    """Runs a program in a process of its own, and gives its exit status and output."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKING], cwd=ROOT, env={**os.environ, **FLAGS}, stdin=PIPE, stdout=PIPE, text=True
    ) as server:

        def ran(code: str) -> tuple[int, str]:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(json.dumps(code) + "\n")
            server.stdin.flush()
            status, text = json.loads(server.stdout.readline())
            return status, text

        yield ran


def test_the_documents_have_40_blocks_and_each_has_its_data():
    count = {name: len(re.findall(r"^```python$", (HERE / file).read_text(), re.M)) for name, file in DOCUMENTS.items()}
    assert list(SEEDS) == [(name, number + 1) for name, blocks in count.items() for number in range(blocks)]
    assert len(SEEDS) == 40


def test_enough_blocks_run_as_printed() -> None:
    """Each that is not mended must run as it is, and each that is mended must need it: see `test_block`."""
    assert sum(not seed.mends for seed in SEEDS.values()) >= BAR


@pytest.mark.slow
@pytest.mark.parametrize(("document", "number"), SEEDS)
def test_block(fork, document: str, number: int) -> None:
    seed = SEEDS[document, number]
    for library in seed.libraries:
        pytest.importorskip(library)
    if seed.mends:
        status, text = fork(program(document, number, mended=False))
        assert status, f"it runs as printed:\n{text}"
    status, text = fork(program(document, number, mended=True))
    assert status == 0, text
    warnings = re.findall(r"MithrilWarning: (.*)", text)
    assert len(warnings) == len(seed.says), warnings
    assert [one for one, start in zip(warnings, seed.says, strict=True) if not one.startswith(start)] == []


@pytest.mark.slow
def test_the_block_that_calls_a_text_runs_as_printed_in_a_notebook() -> None:
    """IPython is what a notebook's kernel runs cells with."""
    cells = ["%load_ext mithril_nb", f"{BACKEND}\n{code('000', 12)}\n{RUNS}"]
    cells = [re.sub(r"\bmithril\b", "mithril_nb", cell) for cell in cells]
    whole = f"""
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for cell in {cells!r}:
    shell.run_cell(cell).raise_error()
print(len(shell.user_ns["model"].graph.nodes))
"""
    assert run(whole) == "3\n"
