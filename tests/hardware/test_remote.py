"""Programs compiled for devices that the machine does not have."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src.compiler import get_compile_options
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.errors import (
    DeviceNotFoundError,
    MithrilError,
    StageUnavailableError,
    UnavailableBackendError,
    UnknownOptionError,
)
from mithril_nb.hardware import compiler_of, remote
from mithril_nb.jobs import JobQueue
from mithril_nb.models import Linear, Model, Relu
from mithril_nb.stages import jax_jit

pytestmark = pytest.mark.usefixtures("compilers")


def spec(*shape, dtype="bfloat16", sharding=None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def loss(weights, x):
    with jax.named_scope("up"):
        hidden = jax.nn.gelu(x @ weights[0])
    with jax.named_scope("down"):
        return jnp.mean((hidden @ weights[1]).astype("float32") ** 2)


STEP = jax.jit(jax.value_and_grad(loss))
SPECS = ((spec(256, 512), spec(512, 256)), spec(128, 256))
PRODUCTS = 6 * 2 * 128 * 256 * 512 - 2 * 128 * 256 * 512  # forward twice, backward four times but for the inputs


@pytest.fixture(scope="module")
def here():
    return ml.inspect(STEP, *SPECS)


@pytest.fixture(scope="module", params=["h100", "v5e"])
def there(request, here, compilers):
    return here.on(request.param)


def test_stages_share_the_trace(here, there):
    assert there.stage("jaxpr") is here.stage("jaxpr")
    assert there.stage("hlo").unavailable is None
    assert there.stage("hlo").text != here.stage("hlo").text


def test_each_instruction_with_flops_is_linked(there):
    rows = there.cost("compiled").rows
    # A TPU v5e computes bfloat16 in float32: its compiler adds conversions, which have a block but no equation.
    free = {"convert"} if there.device.name == "v5e" else set()
    assert [row.id for row in rows if row.flops != 0 and not row.blocks] == []
    assert {row.opcode for row in rows if row.flops != 0 and not row.equations} <= free
    assert {block for row in rows if row.flops for block, _ in row.blocks} == {"up", "down"}


def test_products_have_the_flops_of_the_equations(here, there):
    def products(program, source, names):
        return sum(row.flops for row in program.cost(source).rows if row.opcode in names)

    assert products(here, "analytic", {"dot_general"}) == PRODUCTS
    assert products(there, "compiled", {"dot", "convolution"}) == PRODUCTS


def test_parts_add_up(there):
    cost = there.cost("compiled")
    assert cost.total.flops == sum(row.flops or 0 for row in cost.rows)
    assert there.memory.peak_bytes >= sum(2 * 256 * 512 * 2 for _ in range(2))


def test_kernels_of_a_gpu(here):
    program = here.on("h100")
    assert "ld.param" in program.stage("asm").text
    assert "define ptx_kernel" in program.stage("llvm").text
    assert len(program.passes) > 10
    assert "autotuning needs the device" in " ".join(program.cost("compiled").notes)


def test_tiles_and_memories_of_a_tpu(here):
    program = here.on("v5e")
    assert re.search(r"bf16\[128,256\]\{1,0:T\(8,128\)\(2,1\)", program.stage("hlo").text)
    assert "estimated_cycles" in {name for row in program.stage("hlo").instructions for name, _ in row.attributes}
    for stage in ("llvm", "asm"):
        assert "the compiler for TPUs writes no files" in program.stage(stage).unavailable
    with pytest.raises(StageUnavailableError, match="writes no files"):
        _ = program.passes


@pytest.mark.parametrize("device", ["h100:8", "v5e:2x4"])
def test_devices_of_a_mesh(device):
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def on(*axes):
        return NamedSharding(mesh, P(*axes))

    weights = spec(256, 512, sharding=on(None, "model")), spec(512, 256, sharding=on("model", None))
    program = ml.inspect(STEP, weights, spec(128, 256, sharding=on("data", None)), device=device)
    cost = program.cost("compiled")
    assert "counted for one of 8 devices, which all have the same costs" in cost.notes
    products = sum(row.flops for row in cost.rows if row.opcode in ("dot", "convolution"))
    assert products == PRODUCTS // 8
    # The hidden state is reduced over 4 devices, the gradients of both weights over 2. XLA may combine them.
    assert cost.total.payload_bytes == 64 * 256 * 2 + 2 * (256 * 128 * 2) + 4
    with pytest.raises(StageUnavailableError, match="8 devices"):
        _ = program.on(device.split(":")[0]).compiled


MESH = ml.device_mesh("v5e:2x4", data=2, model=4)
SPLIT = NamedSharding(MESH, P("data"))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, w: jax.lax.with_sharding_constraint(x, SPLIT) @ w,
        jax.shard_map(lambda x, w: x @ w, mesh=MESH, in_specs=(P("data"), P()), out_specs=P("data")),
        jax.jit(jnp.matmul, in_shardings=(SPLIT, None)),
    ],
    ids=["constraint", "shard_map", "in_shardings"],
)
def test_meshes_that_only_the_program_names(program):
    """JAX lowers the first two for one device."""
    x, w = spec(16, 128, dtype="float32"), spec(128, 64, dtype="float32")
    inspection = ml.inspect(program, x, w, device="v5e:2x4")
    assert inspection.cost("compiled").total.flops == 2 * 16 * 128 * 64 // 2
    assert "num_partitions = 8" in inspection.stage("stablehlo").text
    assert "mesh without devices" in ml.inspect(program, x, w).stage("stablehlo").unavailable
    assert "8 devices does not compile for v5e:8x8" in inspection.on("v5e:8x8").stage("hlo").unavailable


@pytest.mark.parametrize(("parallelism", "payload"), [
    ("data", (128 * 64 + 64 + 64 * 32 + 32) * 4),  # the gradients of all parameters
    ("model", 16 * 64 * 4 + 16 * 32 * 4),  # the hidden state in both directions
])  # fmt: skip
def test_models_on_a_mesh_without_devices(parallelism, payload):
    model = Model() + Linear(64) + Relu() + Linear(32)
    backend = ml.JaxBackend(device_mesh=MESH)
    pm = ml.compile(model, backend, shapes={"input": [16, 128]}, parallelism=parallelism)
    program = pm.inspect("forward+backward", device="v5e:2x4")
    assert program.cost("compiled").total.payload_bytes == payload
    with pytest.raises(DeviceNotFoundError, match="inspected, but not run"):
        pm.randomize_params()


def test_axes_of_a_mesh():
    assert ml.device_mesh("v5e:4x4", data=2, model=-1).shape == {"data": 2, "model": 8}
    assert ml.device_mesh("h100", data=3).size == 3
    for device, axes in (("v5e:4x4", {"data": 4}), ("v5e:4x4", {"a": 3, "b": -1}), ("h100", {"a": -1})):
        with pytest.raises(DeviceNotFoundError, match="does not cover"):
            ml.device_mesh(device, **axes)
    for axes in ({}, {"a": -1, "b": -1}, {"a": 0}, {"a": True}, {"a": "4"}):
        with pytest.raises(UnknownOptionError, match="cannot have the axes"):
            ml.device_mesh("v5e:4x4", **axes)


@pytest.mark.parametrize(("strides", "padding"), [((2, 1), "SAME"), ((1, 1), "VALID"), ((3, 2), ((1, 1), (2, 2)))])
def test_convolutions_of_a_library(strides, padding):
    def step(x, kernel):
        return jnp.sum(jax.lax.conv_general_dilated(x, kernel, strides, padding) ** 2)

    specs = spec(4, 8, 17, 12, dtype="float32"), spec(6, 8, 3, 3, dtype="float32")
    program = ml.inspect(jax.grad(step, (0, 1)), *specs, device="a100")
    calls = {row.id: row.flops for row in program.cost("compiled").rows if row.opcode == "custom-call"}
    convolutions = [row.flops for row in program.cost().rows if row.opcode == "conv_general_dilated"]
    assert sorted(calls.values()) == sorted(convolutions)
    assert {name.rpartition("-")[2].partition(".")[0] for name in calls} >= {"filter", "input"}


def test_products_of_a_library():
    program = ml.inspect(
        lambda x, y: x @ y + 1, spec(64, 48), spec(48, 80), device="h100",
        compiler_options={"xla_gpu_enable_triton_gemm": False, "xla_gpu_gemm_rewrite_size_threshold": 0},
    )  # fmt: skip
    (call,) = (row for row in program.cost("compiled").rows if row.opcode == "custom-call")
    assert call.flops == 2 * 64 * 48 * 80
    assert call.bytes_accessed >= 2 * (64 * 48 + 48 * 80 + 64 * 80)


def test_products_that_the_default_tiles_do_not_fit():
    program = ml.inspect(lambda x, y: (x.reshape(10, 12) @ y).reshape(5, 24), spec(2, 5, 12, dtype="float32"),
                         spec(12, 12, dtype="float32"), device="h100")  # fmt: skip
    assert program.stage("hlo").unavailable is None
    assert program.cost("compiled").total.flops == 2 * 10 * 12 * 12


def test_a_program_that_does_not_fit():
    def step(x, w):
        return jnp.tanh(x @ w) @ w

    program = ml.inspect(step, spec(60_000, 60_000), spec(60_000, 60_000), device="v5e")
    assert "RESOURCE_EXHAUSTED" in program.stage("hlo").unavailable


def test_callbacks_and_programs_that_run_nowhere():
    def step(x):
        jax.debug.print("x = {}", x)
        return x + 1

    assert ml.inspect(step, spec(3), device="h100").stage("hlo").unavailable is not None
    program = ml.inspect(jnp.sin, spec(3, dtype="float32"), device="h100")
    with pytest.raises(MithrilError, match="h100"):
        ml.profile(program)
    with pytest.raises(StageUnavailableError, match="cannot run on this machine"):
        program.compiled(jnp.zeros(3))


def test_equations_that_run_only_here_are_named():
    def callback(x):
        return jax.pure_callback(lambda value: value, x, x)

    for program, primitive in ((callback, "pure_callback"), (jax.scipy.linalg.schur, "schur")):
        reason = ml.inspect(program, spec(3, 3, dtype="float32"), device="v5e").stage("hlo").unavailable
        assert f"{primitive} of program" in reason
        assert "test_remote.py" in reason or primitive == "schur"


def test_programs_in_stablehlo():
    arguments = spec(64, 64, dtype="float32"), spec(64, 32, dtype="float32")
    text = jax.jit(jnp.matmul).lower(*arguments).as_text()
    for device in ("h100", "v5e"):
        program = ml.inspect(text, device=device)
        assert program.cost("predicted").total.predicted_s > 0
        assert sum(row.flops for row in program.cost("compiled").rows) >= 2 * 64 * 64 * 32
    exported = jax.export.export(jax.jit(jnp.matmul))(*arguments)
    assert "exported for cpu" in ml.inspect(exported, device="h100").stage("hlo").unavailable
    portable = jax.export.export(jax.jit(jnp.matmul), platforms=("cpu", "tpu"))(*arguments)
    assert ml.inspect(portable, device="v5e").stage("hlo").unavailable is None


def test_a_program_without_a_mesh_uses_one_device():
    program = ml.inspect(jnp.add, spec(8, 128), spec(8, 128), device="v5e:2x4")
    assert "it uses one of the 8 devices of v5e:2x4" in " ".join(program.cost("compiled").notes)


def test_float64_on_a_tpu():
    with jax.enable_x64(True):
        program = ml.inspect(jnp.add, *[spec(8, 128, dtype="float64")] * 2, device="v5e")
        assert "float64: TPUs have no unit for it" in " ".join(program.cost("compiled").notes)


def test_a_compiler_that_is_killed(monkeypatch, stress):
    worker = remote._worker("cuda")
    ml.inspect(jnp.sin, spec(3), device="h100").stage("hlo")  # the worker runs
    for count in range(stress.size(short=3, long=20)):
        worker._process.kill()
        worker._process.wait()
        assert ml.inspect(jnp.sin, spec(4 + count), device="h100").stage("hlo").unavailable is None  # a new one starts

    def killed(connection, timeout):
        worker._process.kill()
        worker._process.wait()
        return True

    slow = ml.inspect(
        lambda x: jax.lax.fori_loop(0, 9, lambda _, y: jnp.linalg.qr(y)[0], x),
        spec(64, 64, dtype="float32"),
        device="h100",
    )
    monkeypatch.setattr(remote.Connection, "poll", killed)  # called while the worker compiles
    assert "the compiler for cuda ended with status -9" in slow.stage("hlo").unavailable
    monkeypatch.undo()
    assert ml.inspect(jnp.cos, spec(3), device="h100").stage("hlo").unavailable is None


def test_settings_that_the_compiler_reads_reach_it():
    read = set(re.findall(r"config\.(\w+)\.value", inspect.getsource(get_compile_options)))
    names = {f"jax_{name.removeprefix('jax_')}" for name in read} - {"jax_enable_remat_opt_pass"}
    names |= {"jax_compiler_enable_remat_pass", "jax_disable_most_optimizations"}
    sent = jax_jit.compile_facts(jax.jit(jnp.sin).lower(1.0))["settings"]
    # No compilation cache is used.
    assert names - {"jax_compilation_cache_dir", "jax_persistent_cache_enable_xla_caches"} <= sent.keys()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_use_shardy_partitioner", False),
        ("jax_optimization_level", "O1"),
        ("jax_default_matmul_precision", "highest"),
        ("jax_enable_x64", True),
    ],
)
def test_settings_change_the_program(name, value):
    mesh = AbstractMesh((8,), ("data",), axis_types=(AxisType.Auto,))
    rows = spec(64, 128, dtype="float32", sharding=NamedSharding(mesh, P("data")))

    def program():
        return ml.inspect(lambda x: (x.T @ x).sum() * np.float64(2), rows, device="v5e:2x4")

    usual, setting = program(), getattr(jax.config, name)
    text = usual.stage("hlo").text
    jax.config.update(name, value)
    try:
        changed = program()
        assert changed.stage("hlo").text != text
    finally:
        jax.config.update(name, setting)
    assert changed.cost("compiled").total.payload_bytes == usual.cost("compiled").total.payload_bytes > 0


def test_a_compiler_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(remote, "TIMEOUT_S", 0.0)
    monkeypatch.setattr(remote.Connection, "poll", lambda self, timeout: False)
    reason = ml.inspect(jnp.tan, spec(3), device="h100").stage("hlo").unavailable
    assert "did not answer in 0 s" in reason
    assert remote._worker("cuda")._process is None


def slow(x):
    """A program that takes the compiler for GPUs long."""
    for _ in range(150):
        x = jnp.sort(jnp.sin(x) @ x, axis=0)
    return x


def test_a_compilation_that_nobody_wants_ends(monkeypatch):
    ml.inspect(jnp.sinh, spec(3), device="h100").stage("hlo")
    monkeypatch.setattr(remote, "_GIVE_UP_S", 1.0)
    worker = remote._worker("cuda")
    first = worker._process
    program, queue, started = ml.inspect(slow, spec(64, 64), device="h100"), JobQueue("test"), threading.Event()
    _ = program.lowered
    original = remote.Connection.poll

    def poll(connection, timeout):
        started.set()
        return original(connection, timeout)

    monkeypatch.setattr(remote.Connection, "poll", poll)
    queue.submit(lambda _: program.optimized)
    queue.submit(lambda _: ml.inspect(jnp.tanh, spec(7), device="h100").optimized, key="waits for the first")
    assert started.wait(30)
    queue.abandon()
    begin = time.monotonic()
    assert ml.inspect(jnp.cosh, spec(3), device="h100").stage("hlo").unavailable is None
    assert time.monotonic() - begin < 20
    assert first.poll() is not None
    assert queue.wait(20)
    assert not program.is_optimized
    assert not program._pipeline.optimized.has_failed  # wanted again, it is compiled


def test_an_interrupt_ends_the_compilation(monkeypatch):
    ml.inspect(jnp.sinh, spec(3), device="h100").stage("hlo")
    process = remote._worker("cuda")._process
    original = remote.Connection.poll

    def interrupted(connection, timeout):
        raise KeyboardInterrupt

    monkeypatch.setattr(remote.Connection, "poll", interrupted)
    question = ml.what_if(lambda x: jnp.tanh(x @ x.T), spec(8, 64), device="h100")
    with pytest.raises(KeyboardInterrupt):
        question.largest("batch")
    assert process.poll() is not None
    monkeypatch.setattr(remote.Connection, "poll", original)
    assert ml.inspect(jnp.cosh, spec(5), device="h100").stage("hlo").unavailable is None


def test_a_killed_process_leaves_no_compiler():
    code = """
import os, signal, jax, jax.numpy as jnp, mithril_nb as ml
from mithril_nb.hardware import remote
ml.inspect(jnp.sinh, jax.ShapeDtypeStruct((3,), "float32"), device="h100").stage("hlo")
worker = remote._worker("cuda")
print(worker._process.pid, flush=True)
def poll(connection, timeout):
    os.kill(os.getpid(), signal.SIGKILL)
remote.Connection.poll = poll
def slow(x):
    for _ in range(150):
        x = jnp.sort(jnp.sin(x) @ x, axis=0)
    return x
ml.inspect(slow, jax.ShapeDtypeStruct((64, 64), "bfloat16"), device="h100").optimized
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    pid, until = int(result.stdout), time.monotonic() + 20
    while time.monotonic() < until and _runs(pid):
        time.sleep(0.1)
    assert not _runs(pid)


def _runs(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"  # a container may have no process that collects orphans


def test_an_idle_compiler_ends(monkeypatch):
    monkeypatch.setattr(remote, "IDLE_S", 0.05)
    ml.inspect(jnp.sinh, spec(3), device="h100").stage("hlo")
    process = remote._worker("cuda")._process
    assert process is None or process.wait(timeout=10) is not None


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("MITHRIL_NB_COMPILERS", str(tmp_path))
    monkeypatch.setattr(remote, "_workers", {})
    compiler_of.cache_clear()
    program = ml.inspect(jnp.sin, spec(3), device="h100")
    try:
        assert "Try: mithril-nb devices install cuda" in program.stage("hlo").unavailable
        with pytest.raises(UnavailableBackendError):
            _ = program.compiled
    finally:
        compiler_of.cache_clear()


def test_the_process_of_the_user_stays_as_it_is(tmp_path):
    script = tmp_path / "user.py"
    script.write_text(
        "import os, sys, jax, jax.numpy as jnp, mithril_nb as ml\n"
        "before = dict(os.environ)\n"
        "program = ml.inspect(jnp.sin, jnp.zeros(3), device='h100')\n"
        "assert program.stage('hlo').unavailable is None\n"
        "assert dict(os.environ) == before and jax.devices()[0].platform == 'cpu'\n"
        "assert not [name for name in sys.modules if name.startswith(('jax_plugins.xla', 'libtpu'))]\n"
    )
    result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert (result.stdout, result.stderr) == ("", "")


def test_a_forked_process_starts_its_own_compiler():
    ml.inspect(jnp.sin, spec(5), device="h100").stage("hlo")
    worker = remote._workers["cuda"]
    remote._forget_workers()  # what a child does; tests must not fork JAX's threads
    try:
        assert remote._workers == {}
        assert ml.inspect(jnp.cosh, spec(5), device="h100").stage("hlo").unavailable is None
        assert remote._workers["cuda"]._process.pid != worker._process.pid
    finally:
        worker._stop()


def test_a_topology_with_a_number_of_devices():
    from mithril_nb.hardware import device_named

    for name, count, topology in (
        ("h100", 8, "8"), ("v5e", 8, "2x4"), ("v5e", 16, "4x4"), ("v4", 16, "2x2x4"), ("tpu7x", 8, "2x2x1"),
        ("v5e", 12, "2x6"), ("v5e", 2, "1x2"),
    ):  # fmt: skip
        device = device_named(name).with_topology(device_named(name).topology_for(count))
        assert (device.topology, device.count) == (topology, count)


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_topologies_that_are_refused_are_those_that_libtpu_refuses(name):
    from mithril_nb.errors import DeviceNotFoundError
    from mithril_nb.hardware import device_named

    compiled = {}
    for topology in ("2x3", "4x5", "4", "2x6", "4x2", "6x10", "2x2x3"):
        try:
            device_named(f"{name}:{topology}")
            accepted = True
        except DeviceNotFoundError:
            accepted = False
        device = replace(device_named(name), topology=topology)
        program = ml.inspect(jnp.tanh, spec(5), device=device)
        compiled[topology] = (accepted, program.stage("hlo").unavailable is None)
    # The compiler for v6e accepts a third axis, which the chips have not.
    assert all(compiles for accepted, compiles in compiled.values() if accepted)
    assert [topology for topology, (accepted, compiles) in compiled.items() if compiles and not accepted] in (
        [],
        ["2x2x3"],
    ), compiled
