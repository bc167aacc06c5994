"""Files with executables: loaded by JAX in a fresh process for this machine, read piece by piece for others."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.errors import ModelFileError, StageUnavailableError

MESH = ml.device_mesh("v5e:2x2", data=2, model=2)


def step(params, x):
    loss, gradients = jax.value_and_grad(lambda params: jnp.tanh(x @ params["w"]).sum())(params)
    return {"loss": loss, "params": jax.tree.map(lambda p, g: p - g, params, gradients)}


def arguments(mesh=None):
    def spec(shape, *axes):
        sharding = None if mesh is None else NamedSharding(mesh, P(*axes))
        return jax.ShapeDtypeStruct(shape, "float32", sharding=sharding)

    return {"w": spec((64, 32), None, "model")}, spec((16, 64), "data", None)


class _Memory(str):
    kind = "device"


class _Device:
    """What JAX asks of a device while it reads a sharding."""

    process_index, platform, device_kind = 0, "tpu", "TPU"

    def __init__(self, number):
        self.id, self.client = number, SimpleNamespace(process_index=lambda: 0, platform="tpu")

    def default_memory(self):
        return _Memory("device")

    def addressable_memories(self):
        return [self.default_memory()]


class _Parts(pickle.Unpickler):
    """Reads what `serialize_executable` wrote, with descriptions of the executable and the devices."""

    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.parts = []

    def persistent_load(self, pid):
        self.parts.append(pid)
        return _Device(pid[1]) if pid[0] == "device" else pid


def test_a_program_of_this_machine_runs_in_another_process(tmp_path):
    params, x = {"w": np.ones((64, 32), "float32") / 64}, np.linspace(0, 1, 1024, dtype="float32").reshape(16, 64)
    path = ml.inspect(step, params, x).save_executable(tmp_path / "step.bin")
    np.save(tmp_path / "x.npy", x)
    code = """
import pickle, sys, jax, numpy as np
from jax.experimental.serialize_executable import deserialize_and_load
with open(sys.argv[1] + "/step.bin", "rb") as file:
    step = deserialize_and_load(*pickle.load(file), execution_devices=jax.devices()[:1])
result = step({"w": np.ones((64, 32), "float32") / 64}, np.load(sys.argv[1] + "/x.npy"))
assert not any(name.startswith("mithril_nb") for name in sys.modules)
print(float(result["loss"]), float(result["params"]["w"].sum()))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert result.returncode == 0, result.stderr
    expected = jax.jit(step)(params, x)
    totals = [float(expected["loss"]), float(expected["params"]["w"].sum())]
    assert list(map(float, result.stdout.split())) == pytest.approx(totals, rel=1e-5)
    assert path == tmp_path / "step.bin"


@pytest.mark.parametrize("name", ["h100", "v5e", "v5e:2x2", "h100:4"])
def test_a_program_for_another_machine(name, compilers, tmp_path):
    """Without the device, nothing can run it: the parts that JAX reads there are compared with the program."""
    args = arguments(MESH if ":" in name else None)
    path = ml.inspect(jax.jit(step, donate_argnums=0), *args, device=name).save_executable(tmp_path / "step.bin")
    data, in_tree, out_tree = pickle.loads(path.read_bytes())
    assert in_tree == jax.tree.structure((args, {}))
    assert out_tree == jax.tree.structure(jax.eval_shape(step, *args))
    reader = _Parts(data)
    unloaded, described, _ = reader.load()
    assert in_tree.unflatten(described)[0][0]["w"].donated
    assert [aval.shape for aval in unloaded.input_avals] == [(64, 32), (16, 64)]
    (executable,) = [content for kind, *content in reader.parts if kind == "exec"]
    assert len(executable[0]) > 5_000
    devices = {content[0] for kind, *content in reader.parts if kind == "device"}
    assert devices == set(range(4 if ":" in name else 1))
    if ":" in name:
        assert [sharding.spec for sharding in unloaded.input_shardings] == [P(None, "model"), P("data", None)]


def test_programs_without_a_file(compilers, tmp_path):
    def hears(x):
        return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((3,), "float32"), x)

    x = jax.ShapeDtypeStruct((3,), "float32")
    for program, message in (
        (ml.inspect(hears, x), "has no file of its executable"),
        (ml.inspect(hears, x, device="h100"), "pure_callback of program 'hears' does not run on h100"),
        (
            ml.inspect("func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }"),
            "has no file",
        ),
    ):
        with pytest.raises(StageUnavailableError, match=message):
            program.save_executable(tmp_path / "no.bin")
    with pytest.raises(ModelFileError, match="cannot write"):
        ml.inspect(jnp.sin, x).save_executable(tmp_path / "missing" / "no.bin")
    assert not list(tmp_path.iterdir())


def test_a_mesh_in_the_body_alone_is_refused(compilers, tmp_path):
    def constrained(x):
        return jax.lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P("data")))

    program = ml.inspect(constrained, jax.ShapeDtypeStruct((8, 4), "float32"), device="v5e:2x2")
    with pytest.raises(StageUnavailableError, match="no argument of 'constrained' has a sharding"):
        program.save_executable(tmp_path / "no.bin")
