"""What a program starts on a GPU: kernels with their grids, calls of libraries, copies, collectives, loops."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.teach.explain_help import op_help
from tests.hardware.programs import programs

pytestmark = pytest.mark.usefixtures("compilers")


def spec(*shape, dtype="float32", sharding=None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


def loss(weights, x):
    with jax.named_scope("up"):
        hidden = jax.nn.gelu(x @ weights[0])
    with jax.named_scope("down"):
        return jnp.mean((hidden @ weights[1]) ** 2)


def loops(x, is_positive, index):
    def body(step, x):
        with jax.named_scope("factors"):
            x = jnp.sort(jnp.linalg.cholesky(x @ x.T + jnp.eye(64)), axis=0)
        with jax.named_scope("branches"):
            x = jax.lax.cond(is_positive, jnp.sin, lambda x: jnp.cumsum(x, axis=0), x)
        return jax.lax.switch(index, [jnp.tanh, jnp.cos, lambda x: jax.lax.fori_loop(0, step, halved, x)], x)

    def halved(step, x):
        with jax.named_scope("halves"):
            return x / 2 + step

    return jax.lax.fori_loop(0, 5, body, x)


LOOPS = loops, spec(64, 64), spec(dtype="bool"), spec(dtype="int32")
PROGRAMS = {
    "gradient": (jax.grad(loss), (spec(256, 512), spec(512, 256)), spec(128, 256)),
    "loops": LOOPS,
    "libraries": (
        lambda x, y, k: (jnp.fft.fft(x).real, jnp.linalg.qr(x), jnp.linalg.solve(x, y),
                         jax.lax.conv_general_dilated(x[None, None], k, (1, 1), "SAME")),
        spec(64, 64), spec(64, 3), spec(2, 1, 3, 3),
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=PROGRAMS)
def program(request, compilers):
    function, *args = PROGRAMS[request.param]
    return ml.inspect(function, *args, device="h100")


def facts(stage):
    return {row.id: dict(row.attributes) for row in stage.instructions}


def test_each_row_is_an_instruction_of_the_hlo(program):
    launches, hlo = program.stage("launches"), {row.id: row for row in program.stage("hlo").instructions}
    lines = launches.text.splitlines()
    for row in launches.instructions:
        assert lines[row.line - 1].split()[:2] == [row.id.partition("#")[0], row.opcode]
        if row.opcode in ("command-buffer", "sequential"):
            continue
        origin = hlo[row.id.partition("#")[0]]
        assert (row.equations, row.shares, row.role) == (origin.equations, origin.shares, origin.role)
    kernels = [row for row in launches.instructions if row.opcode == "kernel"]
    assert kernels
    assert all(row.shares or not hlo[row.id.partition("#")[0]].shares for row in kernels)
    assert {row.opcode for row in launches.instructions if op_help("launches", row.opcode) is None} == set()


def test_blocks_are_the_threads_of_the_kernels(program):
    threads = {}
    for kernel in program.kernels.values():
        code = kernel._dump.text(kernel._file, "ptx")
        threads |= dict(re.findall(r"\.entry (\w+)\([^)]*\)\s*\.reqntid (\d+), 1, 1", code))
    rows = [row for row in facts(program.stage("launches")).values() if "kernel" in row]
    assert len(rows) >= 2
    assert {row["kernel"] for row in rows} == set(threads)
    assert all(threads[row["kernel"]] == row["block"] and int(row["grid"].partition("x")[0]) > 0 for row in rows)


def test_an_elementwise_kernel_has_a_thread_for_each_element():
    program = ml.inspect(jnp.tanh, spec(1000, 1000), device="h100")
    (row,) = facts(program.stage("launches")).values()
    threads = int(row["grid"]) * int(row["block"])
    assert 1000 * 1000 / 4 <= threads < 1000 * 1000 + int(row["block"])  # of which each computes up to 4 elements
    assert "autotuning needs the device" in program.stage("launches").text.splitlines()[0]


def test_libraries_are_named_and_their_grids_unknown():
    function, *args = PROGRAMS["libraries"]
    rows = facts(ml.inspect(function, *args, device="h100").stage("launches")).values()
    calls = {row["library"]: row for row in rows if "library" in row}
    assert {"cuFFT", "cuSOLVER", "cuDNN"} <= set(calls)
    assert {row["grid"] for row in calls.values()} == {"unknown"}
    assert calls["cuDNN"]["function"] == "__cudnn$convForward"


def test_loops_and_branches():
    stage = ml.inspect(LOOPS[0], *LOOPS[1:], device="h100").stage("launches")
    rows = {row.id: row for row in stage.instructions}
    lines = stage.text.splitlines()

    def inside(row, start, end="$"):
        text = "\n".join(lines[row.line : row.line + row.lines - 1])
        return re.search(rf"^ +{start}\n(.*?)(?:^ +(?:{end})\n|\Z)", text, re.MULTILINE | re.DOTALL)[1]

    outer, inner = (row for row in rows.values() if row.opcode == "while")
    assert dict(outer.attributes)["known_trip_count"] == "5"
    assert dict(inner.attributes)["known_trip_count"] == "unknown"
    assert "cusolver_potrf_ffi" in inside(outer, "body")
    assert "cusolver_potrf_ffi" not in inside(outer, "condition", "body")
    branches = next(row for row in rows.values() if row.opcode == "conditional" and dict(row.shares).get("branches"))
    assert "sin" in inside(branches, "if true", "if false")
    assert "sin" not in inside(branches, "if false")
    assert outer.line < inner.line < inner.line + inner.lines <= outer.line + outer.lines


def test_copies_have_bytes():
    rows = facts(ml.inspect(LOOPS[0], *LOOPS[1:], device="h100").stage("launches")).values()
    assert {row["bytes"] for row in rows if "bytes" in row} <= {"4", str(64 * 64 * 4), "unknown"}


@pytest.fixture(scope="module")
def sharded(compilers):
    mesh = AbstractMesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)

    def on(*axes):
        return NamedSharding(mesh, P(*axes))

    weights = spec(256, 512, sharding=on("data", "model")), spec(512, 256, sharding=on("model", "data"))
    return ml.inspect(jax.grad(loss), weights, spec(128, 256, sharding=on("data", None)), device="h100:8")


def test_files_of_a_program_with_asynchronous_collectives(sharded):
    assert sharded.stage("hlo").unavailable is None  # without files: these come from a second compilation
    assert sharded.stage("asm").unavailable is None


def test_collectives(sharded):
    stage = sharded.stage("launches")
    collectives = [row for row in stage.instructions if row.opcode in ("all-reduce", "all-gather", "reduce-scatter")]
    assert collectives
    assert all(row.equations for row in collectives)
    assert {dict(row.attributes)["grid"] for row in collectives} == {"unknown"}


@pytest.mark.parametrize("device", ["cpu", "v5e"])
def test_programs_without_launches(device):
    program = ml.inspect(jnp.tanh, spec(3), device=device)
    assert "launches" not in program.stages
    assert "have no launches on the GPU" in program.stage("launches").unavailable


@pytest.mark.skipif(jax.__version_info__ < (0, 12), reason="JAX 0.10 needs a library of the GPU for Pallas kernels")
@pytest.mark.filterwarnings("ignore:The Pallas Triton backend is deprecated:DeprecationWarning")
@pytest.mark.parametrize("device", ["h100", "a100"])
def test_a_pallas_kernel_is_linked_to_its_call(device: str) -> None:
    function, args = programs()["Pallas kernel"]()
    program = ml.inspect(function, *args, device=device)
    (call,) = (equation for equation in program.equations if equation.primitive == "pallas_call")
    launch = program.stage("launches").instructions[0]
    assert (launch.opcode, launch.equations, launch.source) == ("kernel", (call.id,), (call.source,))
    code = [line for line in program.stage("asm").instructions if line.id.startswith("kernel")]
    assert len(code) > 100
    assert {(line.equations, line.source) for line in code} == {((call.id,), (call.source,))}
