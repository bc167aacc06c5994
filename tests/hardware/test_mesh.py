"""Slices of arrays and collectives on a mesh, against the shardings that JAX computes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import mithril_nb as ml
from mithril_nb.cost.mesh import _along, _dividing
from mithril_nb.errors import StageUnavailableError, UnknownOptionError

pytestmark = pytest.mark.usefixtures("compilers")
MESH = ml.device_mesh("v5e:2x4", data=2, model=4)


def spec(shape, *axes, dtype="bfloat16"):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*axes)))


def step(params, x):
    def loss(params):
        with jax.named_scope("up"):
            hidden = jax.nn.gelu(x @ params["up"])
        with jax.named_scope("down"):
            return jnp.mean((hidden @ params["down"]).astype("float32") ** 2)

    value, gradients = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients)


PARAMS = {"up": spec((256, 512), None, "model"), "down": spec((512, 256), "model", None)}


@pytest.fixture(scope="module", params=["v5e:2x4", "h100:8"])
def inspection(request, compilers):
    return ml.inspect(step, PARAMS, spec((128, 256), "data", None), device=request.param)


def test_slices_are_those_of_the_shardings(inspection):
    mesh = inspection.mesh
    assert mesh.axes == {"data": 2, "model": 4}
    for name, sharded in (("params['up']", PARAMS["up"]), ("params['down']", PARAMS["down"])):
        array = mesh[name]
        assert array.bytes == 256 * 512 * 2 // 4
        assert tuple(filter(None, array.axes)) == (("model",),)
        expected = _indices(sharded)
        for device in range(8):
            assert array.range_of(device) == expected[device]
    assert mesh["x"].axes == (("data",), ())
    assert mesh["result[0]"].counts == ()
    with pytest.raises(UnknownOptionError, match="no array 'y'"):
        _ = mesh["y"]


def _indices(sharded):
    """Return the slice of each device: axis sizes and coordinates by NumPy."""
    coordinates = np.stack(np.unravel_index(np.arange(8), (2, 4)), axis=1)
    position = {"data": 0, "model": 1}
    sizes = dict(zip(position, (2, 4), strict=True))
    slices = []
    for device in range(8):
        ranges = []
        for size, axis in zip(sharded.shape, (*sharded.sharding.spec, None, None), strict=False):
            part = size // sizes[axis] if axis else size
            start = part * int(coordinates[device][position[axis]]) if axis else 0
            ranges.append((start, start + part))
        slices.append(tuple(ranges))
    return slices


def test_collectives_name_their_axes_and_reasons(inspection):
    collectives = inspection.mesh.collectives
    total = inspection.cost("compiled").total
    assert sum(each.payload_bytes for each in collectives) == total.payload_bytes
    assert sum(each.wire_bytes for each in collectives) == total.wire_bytes
    along = {each.axes for each in collectives}
    assert along == {("model",), ("data",)}
    forward = next(each for each in collectives if each.axes == ("model",))
    assert (forward.opcode, forward.role, forward.payload_bytes) == ("all-reduce", "forward", 64 * 256 * 2)
    assert "dot_general over a dimension that is split" in forward.reason


def test_activations_have_the_slices_that_they_have_as_results():
    """Against the shardings of XLA's executable, which it has for results alone."""

    def hidden_too(params, x):
        with jax.named_scope("up"):
            hidden = jnp.tanh(x @ params["up"])
        with jax.named_scope("down"):
            return (hidden @ params["down"]).sum(axis=1), hidden

    program = ml.inspect(hidden_too, PARAMS, spec((128, 256), "data", None), device="h100:8")
    mesh = program.mesh
    found = {array.name: array for array in mesh.arrays if array.kind == "activation"}
    (hidden,) = [array for name, array in found.items() if name.startswith("up: tanh")]
    assert (hidden.slices, hidden.bytes) == (mesh["result[1]"].slices, mesh["result[1]"].bytes)
    assert hidden.axes == (("data",), ("model",))
    (last,) = [array for name, array in found.items() if name.startswith("down: dot_general")]
    assert last.axes == (("data",), ())


def test_activations_in_loops_and_manual_code():
    def layers(weights, x):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

    loop = ml.inspect(layers, spec((3, 64, 64), None, "model"), spec((16, 64), "data", "model"), device="h100:8")
    mesh = loop.mesh
    (last,) = [array for array in mesh.arrays if ": tanh" in array.name]
    assert (last.shape, last.slices) == ((16, 64), mesh["result"].slices)
    manual = jax.shard_map(lambda x: jnp.sin(x) + 1, mesh=MESH, in_specs=P("data"), out_specs=P("data"))
    program = ml.inspect(lambda x: manual(x) * 2, spec((16, 64), "data"), device="h100:8")
    names = [array.name for array in program.mesh.arrays if array.kind == "activation"]
    assert any(": mul" in name for name in names)
    assert not any(": sin" in name for name in names)  # the code of one device has no whole array


def test_why_the_activations_of_a_tpu_are_unknown():
    mesh = ml.inspect(step, PARAMS, spec((128, 256), "data", None), device="v5e:2x4").mesh
    assert not any(array.kind == "activation" for array in mesh.arrays)
    assert "the slices of activations are unknown: " in " ".join(mesh.notes)
    assert "TPU" in mesh.notes[-1]


def test_other_shardings(inspection):
    whole = inspection.with_shardings({"params['up']": P(), "params['down']": P()})
    mesh = whole.mesh
    assert mesh["params['up']"].bytes == 256 * 512 * 2
    assert {each.axes for each in mesh.collectives} == {("data",)}
    with pytest.raises(UnknownOptionError, match="no argument 'params'"):
        inspection.with_shardings({"params": P()})
    with pytest.raises(StageUnavailableError, match="runs on one device"):
        _ = ml.inspect(jnp.sin, jnp.ones(3)).mesh
    with pytest.raises(UnknownOptionError, match=r"'x' .* cannot have the sharding") as error:
        inspection.with_shardings({"x": P("rows")})
    assert "data=2, model=4" in str(error.value)


def test_other_shardings_of_a_python_number():
    scaled = ml.inspect(lambda x, k: x * k, spec((8, 4), "data"), 3.0, device="v5e:2x4").with_shardings({"k": P()})
    assert scaled.mesh["k"].shape == ()
    assert scaled.outputs[0].spec.dtype == "bfloat16"  # JAX promotes a Python number to the dtype of the array


def test_a_spec_needs_the_only_mesh_of_the_program():
    rows = NamedSharding(ml.device_mesh("v5e:2x4", rows=4, columns=2), P("rows"))
    y = jax.ShapeDtypeStruct((8, 4), "bfloat16", sharding=rows)
    program = ml.inspect(lambda x, y: x + y, spec((8, 4), "data"), y, device="v5e:2x4")
    with pytest.raises(UnknownOptionError, match="more than one mesh"):
        program.with_shardings({"x": P("model")})
    assert program.with_shardings({"x": rows}).arguments[0].sharding == rows


def test_a_mesh_is_shown(inspection):
    text = str(inspection.mesh)
    assert re.search(r"^params\['up'\] +bfloat16\[256, 512\]  dimension 1 in 4 along model ", text, re.MULTILINE)
    html = inspection.mesh._repr_mimebundle_()["text/html"]
    # Equal slices share a picture: params and their results; on GPUs, activations of two more.
    assert html.count("<details") == (4 if "v5e" in str(inspection.device) else 6)
    assert "5: [:, 128:256]" in html
    assert not re.search(r"<th\b[^>]*>\s*<", html)  # a heading has a text
    large = ml.device_mesh("v5e:16x16", a=256)
    x = jax.ShapeDtypeStruct((512,), "float32", sharding=NamedSharding(large, P("a")))
    program = ml.inspect(lambda x: x.sum(), x, device="v5e:16x16")
    (collective,) = program.mesh.collectives
    assert (collective.axes, collective.payload_bytes, collective.wire_bytes) == (("a",), 4, 8)  # 2·255/256·4, upward


def test_the_programs_own_collectives():
    def own(x):
        return jax.lax.psum(x, "model")

    program = ml.inspect(
        jax.shard_map(own, mesh=MESH, in_specs=P("data", "model"), out_specs=P("data")),
        jax.ShapeDtypeStruct((8, 16), "float32"),
        device="v5e:2x4",
    )
    (collective,) = program.mesh.collectives
    assert collective.axes == ("model",)
    assert collective.reason.startswith("the program's own psum")


def test_a_collective_in_a_fusion():
    """TPUs fuse a reduce-scatter with what follows."""
    mesh = ml.device_mesh("v5e:2x2", x=4)

    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, "bfloat16", sharding=NamedSharding(mesh, P(*axes)))

    product = jax.jit(lambda x, w: x @ w, out_shardings=NamedSharding(mesh, P("x", None)))
    program = ml.inspect(product, on((4096, 8192), None, "x"), on((8192, 4096), "x", None), device="v5e:2x2")
    use = program.mesh
    whole = 4096 * 4096 * 2
    # XLA may use several collectives for parts of the result.
    assert sum(each.wire_bytes for each in use.collectives) == pytest.approx(3 * whole / 4, rel=0.35)
    for each in use.collectives:
        assert each.axes == ("x",)
        assert each.predicted_s is None or each.predicted_s > 1e-6
        assert each.equations
    assert sum(each.opcode == "reduce-scatter" for each in use.collectives) >= 1
    assert ml.compare(program, program.on("h100:4")).figures["v5e:2x2"]["collectives"] == len(use.collectives)


def test_a_collective_that_may_not_run_has_no_known_time():
    def either(x):
        return jax.lax.cond(x[0, 0] > 0, lambda: jnp.exp(jnp.tanh(x @ x.T)), lambda: jax.lax.psum(x[:8, :8], "model"))

    program = ml.inspect(
        jax.shard_map(either, mesh=MESH, in_specs=P("data", "model"), out_specs=P("data", "model"), check_vma=False),
        jax.ShapeDtypeStruct((16, 64), "float32"),
        device="v5e:2x4",
    )
    for each in program.mesh.collectives:
        assert each.payload_bytes is not None or each.predicted_s is None


def test_slices_of_devices_that_are_here():
    """Against JAX's own map, for devices in another order than the mesh, and a dimension that two axes divide."""
    code = """
import jax, numpy as np
import mithril_nb as ml
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
order = [3, 1, 2, 0, 7, 6, 5, 4]
mesh = Mesh(np.array(jax.devices())[order].reshape(2, 2, 2), ("a", "b", "c"))
for spec in (P(("c", "a"), "b"), P(None, ("a", "b")), P("b"), P()):
    sharding = NamedSharding(mesh, spec)
    x = jax.ShapeDtypeStruct((16, 8), "float32", sharding=sharding)
    array = ml.inspect(jax.numpy.sin, x).mesh["x"]
    dims = (*spec, None, None)[:2]
    wanted = tuple(names if isinstance(names, tuple) else (names,) if names else () for names in dims)
    assert array.axes == wanted, (spec, array.axes)
    for device, slices in sharding.devices_indices_map(x.shape).items():
        expected = tuple(part.indices(size)[:2] for part, size in zip(slices, x.shape))
        assert array.range_of(order.index(device.id)) == expected
"""
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.data())
@settings(deadline=None)
def test_axes_of_a_division(sizes, data):
    axes = {f"axis_{number}": size for number, size in enumerate(sizes)}
    coordinates = [tuple(map(int, position)) for position in np.ndindex(*sizes)]
    chosen = data.draw(st.lists(st.sampled_from(range(len(sizes))), unique=True, min_size=1))
    counts = [sizes[axis] for axis in chosen]
    parts = [int(np.ravel_multi_index([position[axis] for axis in chosen], counts)) for position in coordinates]
    assert _dividing(parts, int(np.prod(counts)), axes, coordinates) == tuple(f"axis_{axis}" for axis in chosen)
    rest = [axis for axis in range(len(sizes)) if axis not in chosen]
    groups: dict[tuple[int, ...], list[int]] = {}
    for device, position in enumerate(coordinates):
        groups.setdefault(tuple(position[axis] for axis in rest), []).append(device)
    assert _along(groups.values(), axes, coordinates) == tuple(f"axis_{axis}" for axis in sorted(chosen))


@pytest.mark.parametrize("device", ["v5e:2x2", "h100:4"])
def test_combined_collectives_name_only_their_causes(device):
    mesh = ml.device_mesh(device, data=4)
    x = jax.ShapeDtypeStruct((256, 64), "bfloat16", sharding=NamedSharding(mesh, P("data")))
    weights = [jax.ShapeDtypeStruct((64, 64), "bfloat16", sharding=NamedSharding(mesh, P()))] * 4

    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return x.astype("float32").sum()

    collectives = ml.inspect(jax.grad(loss), weights, x, device=device).mesh.collectives
    assert sum(each.payload_bytes for each in collectives) == 4 * 64 * 64 * 2
    for each in collectives:
        assert "the parts of a sum over data are added: dot_general over a dimension that is split" in each.reason


def test_layers_on_many_chips_against_a_count_by_hand(stress):
    """In `make stress` 8 layers of width 4096 on 16 × 16 chips."""
    side, layers, width = stress.size(4, 16), stress.size(2, 8), stress.size(256, 4096)
    device = f"v5e:{side}x{side}"
    mesh = ml.device_mesh(device, data=side, model=side)

    def on(shape, *axes):
        return jax.ShapeDtypeStruct(shape, "bfloat16", sharding=NamedSharding(mesh, P(*axes)))

    hidden, batch = 4 * width, 256 * side
    weights = {"up": on((width, hidden), None, "model"), "down": on((hidden, width), "model", None)}

    def loss(params, x):
        for number, layer in enumerate(params):
            with jax.named_scope(f"layer_{number}"):
                x = x + jax.nn.relu(x @ layer["up"]) @ layer["down"]
        return jnp.mean(x.astype("float32") ** 2)

    def train(params, x):
        value, gradients = jax.value_and_grad(loss)(params, x)
        return value, jax.tree.map(lambda weight, gradient: weight - 0.01 * gradient, params, gradients)

    program = ml.inspect(
        jax.jit(train, donate_argnums=0), [weights] * layers, on((batch, width), "data"), device=device
    )
    cost, rows, part = program.cost("compiled"), batch // side, hidden // side
    products = sum(row.flops for row in cost.rows if row.opcode in ("dot", "convolution"))
    product = 2 * rows * width * part
    assert products == (2 + 4) * layers * product - product  # the first layer's input needs no gradient
    along: dict[tuple[str, ...], int] = {}
    for each in program.mesh.collectives:
        along[each.axes] = along.get(each.axes, 0) + each.payload_bytes
    activations = rows * width * 2
    assert along == {
        ("model",): layers * activations + (layers - 1) * activations,  # forward, and backward but for the input
        ("data",): layers * 2 * width * part * 2 + 4,  # the gradients of the weights, and the loss
    }
    assert program.memory.xla.argument == layers * 2 * width * part * 2 + activations
    assert program.memory.fits
    stress.report(chips=side * side, layers=layers, width=width, payload=cost.total.payload_bytes)
